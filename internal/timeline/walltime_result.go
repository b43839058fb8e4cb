package timeline

import (
	"math"
	"slices"
)

// WallTimeResult is where a step's wall time went; see [WallTime] for what the numbers mean. Its JSON
// holds no NaN; without a single trace Known is false and there are no parts.
type WallTimeResult struct {
	Known   bool    `json:"known"`
	Why     string  `json:"why,omitempty"` // why it is not known
	Start   int64   `json:"start_ns,string"`
	End     int64   `json:"end_ns,string"`
	Seconds float64 `json:"wall_seconds"` // End - Start

	Samples  int `json:"samples"`  // that the parts are a mean over
	Untraced int `json:"untraced"` // samples without a trace
	Shared   int `json:"shared"`   // samples whose trace is that of one before

	Parts []WallPart `json:"parts"` // all of them, also those of 0 s, in the order of the constants
	// IdleShare is the idle bubble: the share of the step that samples that were done waited for others.
	IdleShare float64 `json:"idle_share"`

	Aborted AbortedTokens `json:"aborted"`
	Median  float64       `json:"median_end_seconds"` // after Start
	Held    []Held        `json:"held"`               // the samples that ended last, latest first
	// Carried are the ordinals of samples that an earlier step began.
	Carried []int `json:"carried"`
	// Critical is the path of the sample that ended last, CriticalRow its ordinal, -1 when there is none.
	Critical    []PathStep `json:"critical"`
	CriticalRow int        `json:"critical_row"`
}

// WallPart is one part of a step's wall time.
type WallPart struct {
	Part    Part    `json:"-"`
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"` // of the wall time, 0 to 1
}

// AbortedTokens are the tokens that were generated in vain; see tokenLedger for how that is known.
type AbortedTokens struct {
	Tokens    int64 `json:"tokens"`
	Samples   int   `json:"samples"`          // that lost some
	Generated int64 `json:"generated_tokens"` // of all requests, those thrown away included
	// Unknown counts aborted requests of which the dump does not tell what became of their tokens.
	Unknown        int64 `json:"unknown_requests"`
	UnknownSamples int   `json:"unknown_samples"`
	// Unfinished counts samples that are in the dump as aborted: their tokens may be used by a later step.
	Unfinished int `json:"unfinished_samples"`
}

// Share is the share of the generated tokens that was thrown away; ok is false when none were generated.
func (a AbortedTokens) Share() (share float64, ok bool) {
	if a.Generated <= 0 {
		return 0, false
	}
	return float64(a.Tokens) / float64(a.Generated), true
}

// Held is a sample that the step waited for.
type Held struct {
	Ordinal int    `json:"row"`
	Sample  *int64 `json:"sample"` // its index
	Group   *int64 `json:"group"`
	Status  string `json:"status"`
	Tokens  *int64 `json:"tokens"` // of its response
	// Start and End are its own time, seconds after the step's start; Over is its end over the median's.
	Start float64 `json:"start_seconds"`
	End   float64 `json:"end_seconds"`
	Over  float64 `json:"over_median"`
	// Because is the part that it spent most of its own time in.
	Because        string  `json:"because"`
	BecauseSeconds float64 `json:"because_seconds"`

	start, end int64
}

// Result is what is known after the rows that were added.
func (w *WallTime) Result() *WallTimeResult {
	v := *w
	v.held, v.ends = slices.Clone(w.held), slices.Clone(w.ends)
	v.carry()
	r := &WallTimeResult{
		Untraced: v.untraced, Shared: v.shared, Aborted: v.aborted, CriticalRow: v.criticalRow,
		Parts: []WallPart{}, Held: []Held{}, Carried: append([]int{}, v.carried...), Critical: append([]PathStep{}, v.critical...),
	}
	if v.n == 0 {
		r.Why = "no sample has a trace"
		return r
	}
	r.Known, r.Samples = true, v.n
	r.Start, r.End = v.start, v.end
	r.Seconds = seconds(v.end - v.start)
	n := float64(v.n)
	v.sums[PartGap] += v.starts.sum + n*float64(v.starts.base-v.start)
	for _, e := range v.ends {
		v.sums[PartStraggler] += float64(v.end - e)
	}
	var rest float64
	for p := range NumParts {
		s := v.sums[p] / n / 1e9
		r.Parts = append(r.Parts, WallPart{Part: p, Name: p.String(), Seconds: s})
		rest += s
	}
	u := &r.Parts[PartUnexplained]
	u.Seconds = max(0, u.Seconds+(r.Seconds-rest))
	for i := range r.Parts {
		if p := &r.Parts[i]; r.Seconds > 0 {
			p.Share = p.Seconds / r.Seconds
		}
	}
	r.IdleShare = r.Parts[PartStraggler].Share
	slices.Sort(v.ends)
	median := v.ends[(len(v.ends)-1)/2]
	if len(v.ends)%2 == 0 {
		median += (v.ends[len(v.ends)/2] - median) / 2
	}
	r.Median = seconds(median - v.start)
	for _, h := range v.held {
		h.Start, h.End, h.Over = seconds(h.start-v.start), seconds(h.end-v.start), seconds(h.end-median)
		r.Held = append(r.Held, h)
	}
	return r
}

// carry adds the carried-over samples that wait for the step's start.
func (w *WallTime) carry() {
	if len(w.late) == 0 {
		return
	}
	from := w.start
	if w.n == 0 { // nobody else says when the step began
		from = math.MaxInt64
		for _, l := range w.late {
			from = min(from, l.held.start)
		}
	}
	for _, l := range w.late {
		own := interval{max(l.held.start, from), max(l.held.end, from)}
		var sums [NumParts]int64
		for _, p := range l.pieces {
			if p.end > own.start {
				sums[p.part] += p.end - max(p.start, own.start)
			}
		}
		h := l.held
		h.start, h.end = own.start, own.end
		w.take(own, max(l.until, from), sums, h)
	}
	w.late = nil
}
