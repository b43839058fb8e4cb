package timeline

import (
	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
)

// Summary is what the page's legend and its comparisons with medians say of a query's rows, over all of
// their time; see "Summary" in FORMAT.md. Lists hold what occurs, by number.
type Summary struct {
	Rows     int            `json:"rows"`
	Classes  []ClassCount   `json:"classes"`
	Names    []NameCount    `json:"names"`
	Attempts []AttemptCount `json:"attempts"`
	Statuses []StatusCount  `json:"statuses"`
	Medians  Medians        `json:"medians"`
}

// Count is how many items there are of something, and for how long.
type Count struct {
	N       int     `json:"n"`       // what merged items stand for is counted
	Seconds float64 `json:"seconds"` // of their durations
}

// ClassCount counts the items of a class and the parts of items that are of it.
type ClassCount struct {
	Class string `json:"class"`
	Count
}

// NameCount counts the items of a span name.
type NameCount struct {
	Name string `json:"name"`
	Count
	Other *Count `json:"other,omitempty"` // those of class other, which have the name's colour by phase
}

// AttemptCount counts the items of an attempt.
type AttemptCount struct {
	Attempt int `json:"attempt"`
	Count
}

// StatusCount counts the items of rows of a status, and the rows, those without a trace included.
type StatusCount struct {
	Status string `json:"status"`
	Count
	Rows int `json:"rows"`
}

// Medians are those of all requests that say the value, seconds by nearest rank; null when none does.
type Medians struct {
	Phases [request.NumPhases]*float64 `json:"phases"`
	Queue  *float64                    `json:"queue"`
	E2E    *float64                    `json:"e2e"`
	Dur    *float64                    `json:"dur"` // of requests that ended
}

// tally adds up in floating point: durations are of others, and their sum need not fit an integer.
type tally struct {
	n     int
	units float64
}

func (t *tally) add(n int, units int64) {
	t.n += n
	t.units += float64(units)
}

func (t *tally) count(ix *Index) Count {
	return Count{t.n, t.units * float64(ix.head.UnitNS) / 1e9}
}

// Summary counts the items and requests of q's rows.
func (ix *Index) Summary(q Query) (*Summary, error) {
	order, err := ix.Order(q)
	if err != nil {
		return nil, err
	}
	d := &ix.head.Dicts
	var classes [NumClasses]tally
	var attempts [256]tally
	names, others := make([]tally, len(d.Name)), make([]tally, len(d.Name))
	statuses, rows := make([]tally, len(d.Status)), make([]int, len(d.Status))
	for _, r := range order {
		rows[ix.status[r]]++
		status := &statuses[ix.status[r]]
		for i := ix.firstItem[r]; i < ix.firstItem[r+1]; i++ {
			if q.Attempt.OK && int64(ix.itemAttempt[i]) != q.Attempt.N {
				continue
			}
			n, dur, name, class := int(ix.itemN[i]), ix.itemDur[i], ix.itemName[i], Class(ix.itemClass[i])
			classes[class].add(n, dur)
			names[name].add(n, dur)
			if class == ClassOther {
				others[name].add(n, dur)
			}
			attempts[ix.itemAttempt[i]].add(n, dur)
			status.add(n, dur)
			if ix.firstSeg != nil {
				for s := ix.firstSeg[i]; s < ix.firstSeg[i+1]; s++ {
					classes[ix.segClass[s]].add(1, ix.segDur[s])
				}
			}
		}
	}
	out := &Summary{Rows: len(order), Classes: []ClassCount{}, Names: []NameCount{}, Attempts: []AttemptCount{}, Statuses: []StatusCount{}}
	for c := range classes {
		if t := &classes[c]; t.n > 0 {
			out.Classes = append(out.Classes, ClassCount{Class(c).String(), t.count(ix)})
		}
	}
	for i := range names {
		if t := &names[i]; t.n > 0 {
			c := NameCount{Name: d.Name[i], Count: t.count(ix)}
			if o := &others[i]; o.n > 0 {
				n := o.count(ix)
				c.Other = &n
			}
			out.Names = append(out.Names, c)
		}
	}
	for a := range attempts {
		if t := &attempts[a]; t.n > 0 {
			out.Attempts = append(out.Attempts, AttemptCount{a, t.count(ix)})
		}
	}
	for i := range statuses {
		if rows[i] > 0 {
			out.Statuses = append(out.Statuses, StatusCount{d.Status[i], statuses[i].count(ix), rows[i]})
		}
	}
	out.Medians = ix.medians(q, order)
	return out, nil
}

// medians of the requests of some rows.
func (ix *Index) medians(q Query, order []uint32) Medians {
	total := 0
	for _, r := range order {
		total += ix.firstReq[r+1] - ix.firstReq[r]
	}
	values := make([]int64, 0, total)
	median := func(col []int64) *float64 {
		values = values[:0]
		for _, r := range order {
			for k := ix.firstReq[r]; k < ix.firstReq[r+1]; k++ {
				if col[k] != missing && (!q.Attempt.OK || int64(ix.reqAttempt[k]) == q.Attempt.N) {
					values = append(values, col[k])
				}
			}
		}
		if len(values) == 0 {
			return nil
		}
		return ix.secs(rollout.Nth(values, (len(values)+1)/2-1))
	}
	m := Medians{Queue: median(ix.reqQueue), E2E: median(ix.reqE2E), Dur: median(ix.reqDur)}
	for p := range m.Phases {
		m.Phases[p] = median(ix.reqPhases[p])
	}
	return m
}
