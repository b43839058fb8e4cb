package scrape

import "math"

// processes tells whether the answers of one target come from one process. A balanced address that
// leads to several replicas looks to rate() like a counter that is reset at every scrape.
type processes struct {
	starts   []float64 // process_start_time_seconds of the last answers, newest last
	counters [watched]lineage
}

// window is how many answers are remembered.
const window = 12

// verdict is what the last answers say.
type verdict struct {
	restarted   bool // since the answer before: another process answers for good
	alternating int  // how many processes answer in turn; 0 when it is one
}

// observe takes the watched series of one answer. Slot 0 is the start time, the others are counters.
func (p *processes) observe(values [watched]float64, got [watched]bool) verdict {
	if got[0] {
		return p.observeStart(values[0])
	}
	var v verdict
	for i := 1; i < watched; i++ {
		if !got[i] {
			continue
		}
		fell := p.counters[i].observe(values[i])
		v.restarted = v.restarted || fell
		v.alternating = max(v.alternating, p.counters[i].alternating())
	}
	if v.alternating > 0 {
		v.restarted = false
	}
	return v
}

// sameStart allows for the jitter of a boot time that is computed anew at every answer.
func sameStart(a, b float64) bool { return math.Abs(a-b) <= 2 }

func (p *processes) observeStart(s float64) verdict {
	var v verdict
	if n := len(p.starts); n > 0 && !sameStart(p.starts[n-1], s) {
		v.restarted = true
	}
	p.starts = append(p.starts, s)
	if len(p.starts) > window {
		p.starts = p.starts[len(p.starts)-window:]
	}
	// A process that starts anew never gets an earlier one's start time back.
	var distinct []float64
	returned := false
	for i, x := range p.starts {
		known := false
		for _, d := range distinct {
			known = known || sameStart(d, x)
		}
		if !known {
			distinct = append(distinct, x)
		} else if i > 0 && !sameStart(p.starts[i-1], x) {
			returned = true
		}
	}
	if returned {
		v.alternating, v.restarted = len(distinct), false
	}
	return v
}

// lineage assigns the values of one counter to the processes they may come from: a value continues
// the process with the greatest value that is not above it.
type lineage struct {
	lasts []float64
	who   []int // index into lasts of the last answers
	any   bool
	last  float64
}

// observe adds a value and tells whether it is below the one before.
func (l *lineage) observe(v float64) bool {
	fell := l.any && v < l.last
	best := -1
	for i, x := range l.lasts {
		if x <= v && (best < 0 || x > l.lasts[best]) {
			best = i
		}
	}
	if best < 0 {
		if len(l.lasts) >= 8 {
			l.lasts, l.who = nil, nil
		}
		l.lasts = append(l.lasts, v)
		best = len(l.lasts) - 1
	}
	l.lasts[best] = v
	l.who = append(l.who, best)
	if len(l.who) > window {
		l.who = l.who[len(l.who)-window:]
	}
	l.any, l.last = true, v
	return fell
}

// alternating gives the number of processes, 0 when the values look like one. Three times there and
// straight back is asked for: an engine that crashes in a loop does not do that.
func (l *lineage) alternating() int {
	back := 0
	seen := map[int]bool{}
	for i, w := range l.who {
		seen[w] = true
		if i >= 2 && w != l.who[i-1] && w == l.who[i-2] {
			back++
		}
	}
	if back < 3 {
		return 0
	}
	return len(seen)
}
