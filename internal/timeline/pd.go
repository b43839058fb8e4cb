package timeline

import (
	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
)

// held says which phase holds a phase; itself for those that nothing holds.
var held = [request.NumPhases]request.Phase{
	request.PrefillBootstrapQueue: request.PrefillBootstrapQueue,
	request.PrefillBootstrap:      request.PrefillBootstrapQueue,
	request.PrefillAllocWait:      request.PrefillBootstrapQueue,
	request.PrefillForward:        request.PrefillForward,
	request.PrefillTransferQueue:  request.PrefillForward,
	request.DecodePrealloc:        request.DecodePrealloc,
	request.DecodeBootstrap:       request.DecodePrealloc,
	request.DecodeAllocWait:       request.DecodePrealloc,
	request.DecodeTransfer:        request.DecodeTransfer,
	request.DecodeForward:         request.DecodeForward,
}

// phaseOf is the phase of a class of phases.
func phaseOf(c Class) (request.Phase, bool) {
	if c < ClassPhase || c >= NumClasses {
		return 0, false
	}
	return request.Phase(c - ClassPhase), true
}

func isPrefill(p request.Phase) bool { return p < request.DecodePrealloc }

// interval is half open, in ns since 1970.
type interval struct{ start, end int64 }

// phaseTimes are the times of a request's phases.
type phaseTimes struct {
	at  [request.NumPhases]interval
	has [request.NumPhases]bool
}

// pdReader holds what is needed for one request.
type pdReader struct {
	raw   phaseTimes
	spans []int32 // the sglang_pd_* spans of the request
	names map[string][2]string
}

// requests ties the sample's requests to their spans, and the spans of their phases to them.
func (b *Builder) requests(s *rollout.Sample) {
	events := s.Trace.Events
	for i := range s.Requests {
		r := &s.Requests[i]
		if r.SpanStart < 0 || r.SpanStart >= len(events) {
			continue
		}
		if at := b.evNode[r.SpanStart]; at >= 0 && b.nodes[at].span {
			b.nodes[at].request = int32(i)
			b.nodes[at].class = ClassGenerate
		}
	}
	if len(s.Requests) == 0 {
		return
	}
	for _, i := range b.topo {
		n := &b.nodes[i]
		if n.request < 0 && n.parent >= 0 && n.span && (n.class == ClassPrefill || n.class == ClassDecode || n.class >= ClassPhase) {
			n.request = b.nodes[n.parent].request
		}
	}
}

// virtual adds a [P] and a [D] item below each request that says something about its phases, and
// tells whether it added any.
//
// Where the phases are spans with times of their own, those times count. slime since 8f732538a makes
// such spans out of durations alone and lays them end to end, although some phases hold others, so that
// they go on after their request. Such spans are recognised, flagged Derived, and treated as the durations
// that they are, like those in end attributes of older versions: prefill begins with the request, after
// its time in the queue as far as that leaves room, decode ends with the request. The spans are moved to
// where the lanes have their phases.
func (b *Builder) virtual(s *rollout.Sample) bool {
	before := len(b.nodes)
	for at := 0; at < before; at++ {
		ri := b.nodes[at].request
		if ri < 0 || b.nodes[at].class != ClassGenerate {
			continue
		}
		r := &s.Requests[ri]
		real := b.phaseSpans(int32(at))
		if !real {
			for _, i := range b.pd.spans {
				b.nodes[i].flags |= Derived
			}
			if len(b.pd.spans) > 0 {
				for _, i := range b.children(int32(at)) {
					if n := &b.nodes[i]; n.state == PointEvent && s.Trace.Events[n.ev].Name == "sglang_pd_summary" {
						n.flags |= Derived
					}
				}
			}
		}
		var p, d node
		var hasP, hasD bool
		if real {
			p, hasP = b.lanePlaced(at, true)
			d, hasD = b.lanePlaced(at, false)
		} else {
			p, hasP = b.laneDerived(at, r, true)
			d, hasD = b.laneDerived(at, r, false)
		}
		if !real {
			b.replace(at, &p, &d, hasP, hasD)
		}
		if hasP {
			b.nodes = append(b.nodes, p)
		}
		if hasD {
			if hasP {
				b.nodes[len(b.nodes)-1].pair = int32(len(b.nodes))
				d.follows = true
			}
			b.nodes = append(b.nodes, d)
		}
	}
	return len(b.nodes) > before
}

// replace moves the spans of a request's phases, of which only the durations are known, to where its lanes
// have them. A phase without a stretch there has no length.
func (b *Builder) replace(at int, p, d *node, hasP, hasD bool) {
	from, to := b.nodes[at].start, b.nodes[at].end
	var t phaseTimes
	take := func(n *node) {
		for _, s := range b.segs[n.seg : n.seg+n.segs] {
			q, _ := phaseOf(s.Class)
			for _, q := range [...]request.Phase{q, held[q]} {
				if !t.has[q] {
					t.at[q], t.has[q] = interval{s.Start, s.End}, true
				}
				t.at[q].end = s.End
			}
		}
	}
	if hasP {
		take(p)
	}
	if hasD {
		take(d)
	}
	for _, i := range b.pd.spans {
		n := &b.nodes[i]
		if n.state != Closed {
			continue
		}
		switch q, isPhase := phaseOf(n.class); {
		case isPhase && t.has[q]:
			n.start, n.end = t.at[q].start, t.at[q].end
		case n.class == ClassPrefill && hasP:
			n.start, n.end = p.start, p.end
		case n.class == ClassDecode && hasD:
			n.start, n.end = d.start, d.end
		case isPhase && !isPrefill(q) && hasD:
			n.start, n.end = d.start, d.start
		default:
			n.start, n.end = from, from
		}
	}
	for _, i := range b.children(int32(at)) {
		if n := &b.nodes[i]; n.state == PointEvent && n.flags&Derived != 0 && n.start > to {
			n.start, n.end = to, to
		}
	}
}

// phaseSpans reads the times of the sglang_pd_* spans of a request and tells whether they are real.
func (b *Builder) phaseSpans(at int32) bool {
	t := &b.pd.raw
	*t = phaseTimes{}
	b.pd.spans = b.pd.spans[:0]
	collect := func(i int32) {
		n := &b.nodes[i]
		if !n.span || n.request != b.nodes[at].request {
			return
		}
		p, ok := phaseOf(n.class)
		if !ok {
			if n.class == ClassPrefill || n.class == ClassDecode {
				b.pd.spans = append(b.pd.spans, i)
			}
			return
		}
		b.pd.spans = append(b.pd.spans, i)
		if n.state == Closed && n.flags&NegativeSpan == 0 {
			t.at[p], t.has[p] = interval{n.start, n.end}, true
		}
	}
	for _, i := range b.children(at) {
		collect(i)
		if c := b.nodes[i].class; c == ClassPrefill || c == ClassDecode {
			for _, j := range b.children(i) {
				collect(j)
			}
		}
	}
	return t.real(b.nodes[at].start)
}

// tick is how exactly a time stands in a dump: two steps of a float64 of seconds.
const tick = 512

func near(a, b int64) bool { return a-b <= tick && b-a <= tick }

// real tells whether the phases' times were measured. They were not when a phase lies outside the one
// that holds it, or when the first begins exactly with the request and each other one exactly where
// the one before ends: then they were laid out from durations.
func (t *phaseTimes) real(start int64) bool {
	any, chain := false, true
	last := start
	for p := range request.NumPhases {
		if !t.has[p] {
			continue
		}
		any = true
		if h := held[p]; h != p && t.has[h] && (t.at[p].start < t.at[h].start-tick || t.at[p].end > t.at[h].end+tick) {
			return false
		}
		chain = chain && near(t.at[p].start, last)
		last = t.at[p].end
	}
	return any && !chain
}

// laneNode begins a virtual item below a request.
func (b *Builder) laneNode(at int, prefill bool) node {
	n := node{ev: -1, endEv: -1, parent: int32(at), pair: -1, same: -1, request: b.nodes[at].request, class: ClassPrefill, state: Closed, flags: Virtual, span: true, seg: int32(len(b.segs))}
	if !prefill {
		n.class = ClassDecode
	}
	return n
}

// segment adds a part to the lane that begins at b.segs[from]; it never goes back before the one before.
func (b *Builder) segment(from int32, c Class, start, end int64) {
	if n := len(b.segs); n > int(from) {
		start = max(start, b.segs[n-1].End)
	}
	if end > start {
		b.segs = append(b.segs, Segment{Class: c, Start: start, End: end})
	}
}

// lanePlaced makes a lane out of phases that have times.
func (b *Builder) lanePlaced(at int, prefill bool) (node, bool) {
	t := &b.pd.raw
	n := b.laneNode(at, prefill)
	// The phases that nothing holds, with the times of what they hold when they have none.
	for p := range request.NumPhases {
		if isPrefill(p) != prefill || held[p] != p {
			continue
		}
		class := ClassPhase + Class(p)
		if !t.has[p] {
			for q := p + 1; q < request.NumPhases && held[q] == p; q++ {
				if t.has[q] {
					b.segment(n.seg, ClassPhase+Class(q), t.at[q].start, t.at[q].end)
				}
			}
			continue
		}
		h := t.at[p]
		at := h.start
		for q := p + 1; q < request.NumPhases && held[q] == p; q++ {
			if !t.has[q] {
				continue
			}
			start, end := max(t.at[q].start, at), min(t.at[q].end, h.end)
			b.segment(n.seg, class, at, start)
			b.segment(n.seg, ClassPhase+Class(q), start, end)
			at = max(at, end)
		}
		b.segment(n.seg, class, at, h.end)
	}
	if n.segs = int32(len(b.segs)) - n.seg; n.segs == 0 {
		return n, false
	}
	n.start, n.end = b.segs[n.seg].Start, b.segs[len(b.segs)-1].End
	return n, true
}

// phaseNS is a phase's duration in ns, 0 when it is not known.
func phaseNS(r *request.Request, p request.Phase) int64 {
	if v, ok := r.Phases[p].Known(); ok && v > 0 {
		return Nanos(v)
	}
	return 0
}

// noRest is what a holder must have beside what it holds, in ns, to have a part of its own.
const noRest = 1000

// laneDerived makes a lane out of durations. A phase is at least as long as nothing and at most as long
// as what holds it; a holder without a duration is as long as what it holds.
func (b *Builder) laneDerived(at int, r *request.Request, prefill bool) (node, bool) {
	n := b.laneNode(at, prefill)
	n.flags |= Derived
	var parts [6]struct {
		class Class
		ns    int64
	}
	count := 0
	add := func(p request.Phase, ns int64) {
		if ns > 0 {
			parts[count].class, parts[count].ns = ClassPhase+Class(p), ns
			count++
		}
	}
	// holder adds a phase and two that it holds, in the order given; own is 0, 1 or 2: where the rest
	// of the holder stands.
	holder := func(p request.Phase, own int, inner ...request.Phase) {
		total := phaseNS(r, p)
		var ns [2]int64
		var sum int64
		for i, q := range inner {
			ns[i] = phaseNS(r, q)
			if total > 0 {
				ns[i] = min(ns[i], total-sum)
			}
			sum = min(sum+ns[i], maxNS)
		}
		rest := total - sum
		if rest < noRest { // also what rounding leaves
			rest = 0
		}
		for i, q := range inner {
			if i == own {
				add(p, rest)
			}
			add(q, ns[i])
		}
		if own >= len(inner) {
			add(p, rest)
		}
	}
	if prefill {
		holder(request.PrefillBootstrapQueue, 2, request.PrefillBootstrap, request.PrefillAllocWait)
		holder(request.PrefillForward, 0, request.PrefillTransferQueue)
	} else {
		holder(request.DecodePrealloc, 2, request.DecodeBootstrap, request.DecodeAllocWait)
		add(request.DecodeTransfer, phaseNS(r, request.DecodeTransfer))
		add(request.DecodeForward, phaseNS(r, request.DecodeForward))
	}
	if count == 0 {
		return n, false
	}
	var total int64
	for _, p := range parts[:count] {
		total = min(total+p.ns, maxNS)
	}
	from, to := b.nodes[at].start, b.nodes[at].end
	room := to - from
	start := from
	switch {
	case total > room+int64(b.opts.Skew):
		n.flags |= Skewed
		fallthrough
	case total > room:
		if !prefill {
			start = to - total // its first parts are cut
		}
	case prefill:
		if q, ok := r.QueueTime.Known(); ok && q > 0 {
			start += min(Nanos(q), room-total)
		}
	default:
		start = to - total
	}
	for _, p := range parts[:count] {
		b.segment(n.seg, p.class, max(start, from), min(start+p.ns, to))
		start += p.ns
	}
	n.start, n.end = from, from
	if n.segs = int32(len(b.segs)) - n.seg; n.segs > 0 {
		n.start, n.end = b.segs[n.seg].Start, b.segs[len(b.segs)-1].End
	}
	return n, n.segs > 0
}

// nameVirtual names a virtual item after its request.
func (b *Builder) nameVirtual(it *Item, n *node, s *rollout.Sample) {
	r := &s.Requests[n.request]
	names, ok := b.pd.names[r.Name]
	if !ok {
		names = [2]string{r.Name + " [P]", r.Name + " [D]"}
		if b.pd.names == nil || len(b.pd.names) > maxClassCache {
			b.pd.names = map[string][2]string{}
		}
		b.pd.names[string(append([]byte(nil), r.Name...))] = names
	}
	it.Attempt = r.Attempt
	if it.Name = names[0]; n.class == ClassDecode {
		it.Name = names[1]
	}
}
