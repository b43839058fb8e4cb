package tailsample

// counters count since New.
type counters struct {
	kept, dropped               []int64 // traces by rule
	spansKept, spansDropped     int64
	lateKept, lateDropped       int64 // spans
	evicted, hinted             int64
	evictedBy                   string
	tooLarge, unfinished        int64
	requests, headSampled, noID int64
	broken                      int64
	groupsFull, undecoded       int64
}

// Stats is what a sampler holds and did. The first four are gauges, the rest counts since New.
type Stats struct {
	HeldTraces, HeldSpans int64
	HeldBytes             int64 // memory that undecided traces take
	Remembered            int64 // decisions

	Kept, Dropped           map[string]int64 // traces by the rule that decided, of rules that did
	SpansKept, SpansDropped int64            // of decided traces, without late ones
	LateKept, LateDropped   int64            // spans that came after the decision and followed it
	EvictedEarly            int64            // traces decided early for want of room, whatever the answer
	TooLarge                int64            // traces decided at MaxSpansPerTrace
	Unfinished              int64            // traces decided though their root never came
	Requests                int64            // observations made
	HeadSampled             int64            // spans whose tracestate says that a sampler threw others away
	GroupsFull              int64            // traces that did not fit in their session's group of 4096
}

// Stats gives the numbers of now.
func (s *Sampler) Stats() Stats {
	c := &s.stats
	st := Stats{
		HeldTraces: int64(len(s.held)), HeldSpans: s.heldSpans, Remembered: int64(s.memory.n),
		Kept: map[string]int64{}, Dropped: map[string]int64{},
		SpansKept: c.spansKept, SpansDropped: c.spansDropped, LateKept: c.lateKept, LateDropped: c.lateDropped,
		EvictedEarly: c.evicted, TooLarge: c.tooLarge, Unfinished: c.unfinished, Requests: c.requests, HeadSampled: c.headSampled, GroupsFull: c.groupsFull,
	}
	if len(s.held) > 0 {
		st.HeldBytes = s.used()
	}
	for i, name := range s.c.names {
		if c.kept[i] > 0 {
			st.Kept[name] += c.kept[i]
		}
		if c.dropped[i] > 0 {
			st.Dropped[name] += c.dropped[i]
		}
	}
	return st
}

// Drop is something that was not kept.
type Drop struct {
	Source, Reason string
	Count          int64
}

// Drops are the spans that were not kept, by reason: the rule that threw their traces away is in
// Stats.Dropped.
func (s *Sampler) Drops() []Drop {
	c := &s.stats
	out := []Drop{
		{"traces", "sampled_away", c.spansDropped},
		{"traces", "sampled_away_late", c.lateDropped},
		{"traces", "no_trace_id", c.noID},
	}
	if c.undecoded > 0 {
		out = append(out, Drop{"traces", "undecodable_span_not_observed", c.undecoded})
	}
	if c.broken > 0 {
		out = append(out, Drop{"traces", "unreadable_span", c.broken})
	}
	return out
}
