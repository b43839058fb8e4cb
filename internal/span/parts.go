package span

import (
	"cmp"
	"math"
	"slices"
)

// Part is a stretch of a request's life as its spans show it. Times are ns.
type Part struct {
	Name       string
	Class      Class
	Depth      int // 1 lies in the part of depth 0 before it
	Start, End int64
	Time       int64 // in which at least one span of the name ran
	Count      int
}

// interval is half open, in ns.
type interval struct{ from, to int64 }

// union sorts intervals and adds up the time that at least one of them covers.
func union(runs []interval) int64 {
	slices.SortFunc(runs, func(a, b interval) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	var sum, end int64 = 0, math.MinInt64
	for _, r := range runs {
		if from := max(r.from, end); r.to > from {
			sum += r.to - from
			end = r.to
		}
	}
	return sum
}

// Parts splits the life of a node (a request, or the root of a trace) into what its spans measured, by
// start, and the rest that no span explains, in ns. Spans that only hold others, such as threads, handlers
// and calls, explain nothing. Passes inside a stage are parts of depth 1 and do not count twice. What
// routed a request and went on around the worker's handling of it counts without that.
func (t *Tree) Parts(node int) (parts []Part, rest int64) {
	n := &t.Nodes[node]
	p := partsOf{t: t, node: node, by: map[partID]*part{}, inside: make([]int32, n.Size), resets: make([]int32, n.Size+1)}
	for i := n.Size - 1; i > 0; i-- {
		p.resets[i] = p.resets[i+1]
		if p.isReset(node + i) {
			p.resets[i]++
		}
	}
	for i := node + 1; i < node+n.Size; i++ {
		p.add(i)
	}
	slices.SortStableFunc(p.order, func(a, b partID) int { return cmp.Compare(p.by[a].Start, p.by[b].Start) })
	for _, k := range p.order {
		p.by[k].Time = union(p.by[k].runs)
	}
	within := func(k partID) string {
		if k.under != "" {
			return k.under
		}
		return p.stageOf(k)
	}
	for _, k := range p.order {
		if within(k) != "" {
			continue
		}
		parts = append(parts, p.by[k].Part)
		for _, c := range p.order {
			if within(c) == k.name {
				inner := p.by[c].Part
				inner.Depth = 1
				parts = append(parts, inner)
			}
		}
	}
	return parts, max(n.End-n.Start-union(p.all), 0)
}

// stageOf is the stage that passes which were sent beside it are of: the shortest one around all of them.
// Otherwise their time would count twice. "" for what is no pass, and where there is no such stage.
func (p *partsOf) stageOf(k partID) string {
	x := p.by[k]
	if x.Class != ClassStep {
		return ""
	}
	best, name := int64(math.MaxInt64), ""
	for _, c := range p.order {
		q := p.by[c]
		if c.under == "" && q.Class != ClassStep && q.Start <= x.Start && q.End >= x.End && q.Time >= x.Time && q.End-q.Start < best {
			best, name = q.End-q.Start, c.name
		}
	}
	return name
}

type partID struct{ name, under string }

type part struct {
	Part
	runs []interval
}

type partsOf struct {
	t      *Tree
	node   int
	by     map[partID]*part
	order  []partID
	all    []interval
	inside []int32 // by node: the measuring node around it, as offset, 0 for none
	resets []int32 // by node: how many nodes from it on begin another process's handling
}

// isReset tells nodes from which on another process handles the request.
func (p *partsOf) isReset(i int) bool {
	if p.t.Of(i) == nil {
		return false
	}
	switch p.t.Meaning(i).Class {
	case ClassFrontend, ClassRequest, ClassHandler, ClassThread, ClassGroup:
		return true
	}
	return false
}

func (p *partsOf) add(i int) {
	t, n, x := p.t, &p.t.Nodes[p.node], &p.t.Nodes[i]
	at := i - p.node
	if p.isReset(i) {
		return // inside[at] stays 0
	}
	if x.Parent > p.node {
		p.inside[at] = p.inside[x.Parent-p.node]
	}
	if t.Of(i) == nil || x.Flags&NoTime != 0 {
		return
	}
	switch t.Meaning(i).Class {
	case ClassOther, ClassCall:
		return
	}
	from, to := max(x.Start, n.Start), min(x.End, n.End)
	if to < from {
		return
	}
	k := partID{name: t.Name(i)}
	depth := 0
	if holder := int(p.inside[at]); holder > 0 {
		if up := t.Nodes[p.node+holder].Parent - p.node; up > 0 && p.inside[up] > 0 {
			return // deeper than two levels says nothing new about phases
		}
		k.under, depth = t.Name(p.node+holder), 1
	}
	runs := []interval{{from, to}}
	if p.resets[at+1] > p.resets[at+x.Size] {
		runs = p.without(i, runs[0])
	}
	if depth == 0 {
		p.all = append(p.all, runs...)
	}
	p.inside[at] = int32(at)
	q := p.by[k]
	if q == nil {
		q = &part{Part: Part{Name: k.name, Class: t.Meaning(i).Class, Depth: depth, Start: from, End: to}}
		p.by[k] = q
		p.order = append(p.order, k)
	}
	q.Start, q.End = min(q.Start, from), max(q.End, to)
	q.Count++
	q.runs = append(q.runs, runs...)
}

// without is a node's time minus that of the handlings below it.
func (p *partsOf) without(i int, whole interval) []interval {
	var cut []interval
	for c := i + 1; c < i+p.t.Nodes[i].Size; c++ {
		if p.isReset(c) {
			cut = append(cut, interval{p.t.Nodes[c].Start, p.t.Nodes[c].End})
			c += p.t.Nodes[c].Size - 1
		}
	}
	union(cut) // sorts
	var out []interval
	at := whole.from
	for _, c := range cut {
		if c.from > at {
			out = append(out, interval{at, min(c.from, whole.to)})
		}
		at = max(at, c.to)
	}
	if at < whole.to {
		out = append(out, interval{at, whole.to})
	}
	return out
}
