package timeline

import (
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/rollout"
)

// Part is what a stretch of a step's wall time was spent on.
type Part uint8

// Parts. Their names in JSON are those of Part.String.
const (
	PartQueue       Part = iota // in a queue: of the engine, of prefill's bootstrap, for decode's memory, or in a span of class queue
	PartPrefill                 // prefill forward
	PartTransfer                // KV cache on its way from prefill to decode, or waiting for that
	PartDecode                  // decode forward
	PartGenerate                // in a request, where its engine did not say more
	PartTool                    // tools, sandboxes, environments
	PartReward                  // reward models, verifiers
	PartOther                   // spans that no rule knows
	PartGap                     // in no such span, before the sample's first and between them: it waited, or its group did
	PartStraggler               // the sample was done and the step was not
	PartSync                    // weight sync
	PartUnexplained             // in a span that never ended, with nothing that says when its work was over; and what rounding leaves
	NumParts
)

var partNames = [NumParts]string{"queue", "prefill", "transfer", "decode", "generate", "tool", "reward", "other", "gap", "straggler", "sync", "unexplained"}

// String is the part's name.
func (p Part) String() string { return partNames[min(p, NumParts-1)] }

// WallTimeOptions are the choices of a [WallTime].
type WallTimeOptions struct {
	// Held is how many of the samples that ended last are named. Default 8.
	Held int
}

// WallTime finds out where a step's wall time went. Feed it the step's rows, one by one, and ask for the
// [WallTime.Result].
//
// # Definition
//
// The step runs from the earliest to the latest event of its samples' own segments ([rollout.Segment]):
// what they did in this step and not in those that carried them over. A sample's own time begins with
// the first event of its own segment and ends with the last span in it that is its own: that of its
// group (generate_and_rm_group), which ends with the slowest member, is not. A sample that was carried
// over and whose trace does not show where this step began counts from the step's start, and does not
// move it. Samples without a trace say nothing about time and are counted apart; siblings that share
// one trace count once.
//
// At each instant of the step a sample is in exactly one [Part]. In its own time it is in the first of
// these that any of its spans is in:
//
//	sync, queue (of a request), prefill, transfer, queue (for decode's memory), decode, generate,
//	reward, tool, other, unexplained, gap
//
// so that work wins over what holds it or waits beside it. Spans that only hold others
// (generate_and_rm_group, generate_and_rm) count as gap. Before its own time a sample is in gap, after it
// in straggler. Requests with [P] and [D] lanes are split by the lanes' segments; others by what the
// answer said: QueueTime from the start, decode (CompletionTokens / DecodeThroughput) to the end of
// E2ELatency, prefill between the two; what is not said is generate. Open spans count as what they are
// up to where a sibling, an ancestor or a child shows that they were over, and as unexplained when
// nothing does.
//
// A part's seconds are its time summed over the samples, divided by their number. So the parts of a step
// add up to its wall time, exactly but for the rounding of the last digit, which is given to unexplained.
type WallTime struct {
	opts   WallTimeOptions
	sums   [NumParts]float64 // ns over all samples, without straggler and the gap before the own time
	ends   []int64           // of own times
	starts int64Sum          // of own times
	n      int
	start  int64
	end    int64
	held   []Held // the latest ends, latest first
	late   []unsplit
	tokens tokenLedger

	shared, untraced int
	carried          []int
	aborted          AbortedTokens
	critical         []PathStep
	criticalRow      int
	criticalEnd      int64

	edges   []edge
	cover   []interval // sync of the whole step
	virtual []bool     // per request: it has virtual lanes
	path    pathFinder
	classes classCache
}

// int64Sum adds up times, which overflow an int64 after a few of them, relative to the first.
type int64Sum struct {
	base int64
	set  bool
	sum  float64
}

func (s *int64Sum) add(v int64) {
	if !s.set {
		s.base, s.set = v, true
	}
	s.sum += float64(v - s.base)
}

// unsplit is a carried-over sample whose parts must wait for the step's start.
type unsplit struct {
	pieces []piece
	held   Held
	until  int64
}

// piece is a stretch of own time.
type piece struct {
	interval
	part Part
}

// NewWallTime returns a WallTime.
func NewWallTime(opts WallTimeOptions) *WallTime {
	if opts.Held <= 0 {
		opts.Held = 8
	}
	return &WallTime{opts: opts, criticalRow: -1}
}

// AddSync tells of a weight sync, in ns since 1970, that concerned all samples. Call it before Add.
func (w *WallTime) AddSync(start, end int64) {
	if end > start {
		w.cover = append(w.cover, interval{start, end})
	}
}

// Add takes a row. It keeps nothing of it but numbers and the names on a path, a few dozen bytes a sample.
func (w *WallTime) Add(r *Row) {
	s := r.Sample
	if r.WhyEmpty != "" || len(r.Items) == 0 {
		w.untraced++
		return
	}
	if s.Trace.SharedWith >= 0 {
		w.shared++
		return
	}
	w.addTokens(s)
	own := ownTime(r)
	split := len(s.Trace.Segments) > 1
	open := s.StartRollout.OK && !split
	until := own.end
	own.end = workEnd(r, own)
	if split || open {
		w.carried = append(w.carried, s.Ordinal)
	}
	h := Held{Ordinal: s.Ordinal, Sample: optionalInt(s.Index), Group: optionalInt(s.GroupIndex), Status: statusOf(s), Tokens: optionalInt(s.ResponseLength), start: own.start, end: own.end}
	pieces := w.partition(r, own)
	if open {
		w.late = append(w.late, unsplit{pieces: slices.Clone(pieces), held: h, until: until})
		w.lastOne(r, own)
		return
	}
	var sums [NumParts]int64
	for _, p := range pieces {
		sums[p.part] += p.end - p.start
	}
	w.take(own, until, sums, h)
	w.lastOne(r, own)
}

// take adds a sample's own time, and how long its group went on.
func (w *WallTime) take(own interval, until int64, sums [NumParts]int64, h Held) {
	for p, ns := range sums {
		w.sums[p] += float64(ns)
	}
	w.starts.add(own.start)
	w.ends = append(w.ends, own.end)
	if w.n == 0 || own.start < w.start {
		w.start = own.start
	}
	if w.n == 0 || until > w.end {
		w.end = until
	}
	w.n++
	best := Part(0)
	for p := range NumParts {
		if sums[p] > sums[best] {
			best = p
		}
	}
	h.Because, h.BecauseSeconds = best.String(), seconds(sums[best])
	at, _ := slices.BinarySearchFunc(w.held, h, func(a, b Held) int {
		switch {
		case a.end > b.end, a.end == b.end && a.Ordinal < b.Ordinal:
			return -1
		case a.end == b.end && a.Ordinal == b.Ordinal:
			return 0
		}
		return 1
	})
	if at < w.opts.Held {
		h.Status = strings.Clone(h.Status)
		if len(w.held) == w.opts.Held {
			w.held = w.held[:len(w.held)-1]
		}
		w.held = slices.Insert(w.held, at, h)
	}
}

// ownTime is the time of a row's own segment. Parts of a request that were laid out from durations do
// not count: slime puts them end to end, so that they may end long after the request did.
func ownTime(r *Row) interval {
	t := &r.Sample.Trace
	own := interval{r.Start, r.End}
	any := false
	add := func(start, end int64) {
		if !any {
			own, any = interval{start, end}, true
		}
		own.start, own.end = min(own.start, start), max(own.end, end)
	}
	if len(t.Segments) < 2 || t.Own < 0 || t.Own >= len(t.Segments) {
		for i := range r.Items {
			if it := &r.Items[i]; it.Flags&Derived == 0 {
				add(it.Start, it.End)
			}
		}
		return own
	}
	g := t.Segments[t.Own]
	for i := max(0, g.First); i < min(g.End, len(t.Events)); i++ {
		e := &t.Events[i]
		if e.NonFinite || strings.HasPrefix(e.Name, "sglang_pd_") {
			continue
		}
		ts := Nanos(e.TS)
		add(ts, ts)
	}
	return own
}

// workEnd is when the last of a row's own spans ended within its own segment; the segment's end when there
// is none.
func workEnd(r *Row, own interval) int64 {
	end, any := own.start, false
	for i := range r.Items {
		it := &r.Items[i]
		span := it.State == Closed || it.State == Open
		if !span || it.Flags&Derived != 0 || it.Start > own.end || it.End <= own.start || it.Class == ClassGroup && it.Name != "generate_and_rm" {
			continue
		}
		end, any = max(end, min(it.End, own.end)), true
	}
	if !any {
		return own.end
	}
	return end
}

func statusOf(s *rollout.Sample) string {
	if s.StatusText != "" {
		return s.StatusText
	}
	return statusWords[min(int(s.Status), len(statusWords)-1)]
}

var statusWords = [...]string{rollout.StatusNone: "", rollout.StatusPending: "pending", rollout.StatusCompleted: "completed", rollout.StatusTruncated: "truncated", rollout.StatusAborted: "aborted", rollout.StatusFailed: "failed", rollout.StatusOther: "other"}

func optionalInt(v rollout.Int) *int64 {
	if !v.OK {
		return nil
	}
	n := v.N
	return &n
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// addTokens counts the tokens that the sample's aborted attempts threw away.
func (w *WallTime) addTokens(s *rollout.Sample) {
	for i := range s.Requests {
		if n, ok := s.Requests[i].CompletionTokens.Known(); ok && n > 0 {
			w.aborted.Generated += int64(min(n, 1e15))
		}
	}
	w.tokens.lost(s.Requests)
	w.aborted.Tokens += w.tokens.wasted
	if w.tokens.wasted > 0 {
		w.aborted.Samples++
	}
	if w.tokens.unknown > 0 {
		w.aborted.Unknown += w.tokens.unknown
		w.aborted.UnknownSamples++
	}
	if s.Status == rollout.StatusAborted {
		w.aborted.Unfinished++
	}
}
