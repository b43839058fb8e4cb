package tailsample

import (
	"math"

	"github.com/rollscope/rollscope/internal/span"
)

// trace is a trace that is held. It has no pointers, so that a million of them cost the garbage
// collector nothing; what few need stands in extra.
type trace struct {
	id          span.TraceID
	first, last int64 // when its first and its latest span came
	due         int64 // when it is to be decided
	timer       int64 // when its earliest timer fires
	begin, end  int64 // earliest start and latest end of its spans
	raw, comp   ref   // newest block in the nursery, and of the compressed ones
	bits        uint64
	wire        int64 // bytes of its spans as they came
	tokens      float64
	slow        [numMeasures]float64 // s, -1 not said
	spans       int32
	flags       uint32
	service     int32 // of the root or else of the first span, in Sampler.words
	model       int32
	prev, next  int32 // in its list
	gen         uint32
	rule        uint8 // it is kept by this, whatever else comes; noRule when undecided
	list        uint8
	extra       bool // extras has more
	waits       bool // its request is finished, due is set for good
}

// undecided tells that nothing says yet whether the trace is kept.
func (t *trace) undecided() bool { return t.rule == noRule && t.flags&thrownBefore == 0 }

// extra is what few traces have.
type extra struct {
	up      upstream
	groups  []*group // what it is tied to: session, room, linked traces
	session uint64
	room    uint64
	links   []span.TraceID
}

// chunk of slots: traces do not move when there are more of them.
const (
	chunkBits = 10
	chunkLen  = 1 << chunkBits
	maxSlots  = 1 << 24
	nobody    = int32(-1)
)

func (s *Sampler) at(slot uint32) *trace { return &s.chunks[slot>>chunkBits][slot&(chunkLen-1)] }

// create takes a slot.
func (s *Sampler) create(id span.TraceID, now int64) uint32 {
	var slot uint32
	if n := len(s.free); n > 0 {
		slot = s.free[n-1]
		s.free = s.free[:n-1]
	} else {
		slot = s.slots
		if slot>>chunkBits == uint32(len(s.chunks)) {
			s.chunks = append(s.chunks, new([chunkLen]trace))
		}
		s.slots++
	}
	t := s.at(slot)
	*t = trace{id: id, first: now, last: now, service: nobody, model: nobody, timer: math.MaxInt64, gen: t.gen + 1, slow: [numMeasures]float64{-1, -1, -1, -1, -1}}
	s.held[id] = slot
	s.listAdd(slot, listOpen)
	return slot
}

// destroy gives a slot and all that it holds back.
func (s *Sampler) destroy(slot uint32) {
	t := s.at(slot)
	s.nursery.drop(t.raw)
	s.dictDrop(t.comp)
	s.packed.drop(t.comp)
	t.raw, t.comp = 0, 0
	if t.flags&thrownBefore != 0 {
		delete(s.again, t.id)
	}
	if t.extra {
		s.ungroup(slot)
		delete(s.extras, slot)
	}
	s.listRemove(slot)
	delete(s.held, t.id)
	t.id = span.TraceID{}
	t.gen++
	s.free = append(s.free, slot)
}

// Lists that a held trace stands in, each in the order of arrival. Eviction takes from the first that is
// not empty.
const (
	listEnded = iota // finished, only waiting for stragglers
	listOpen
	listKept // kept already; here for the sake of its observation
	numLists
)

type list struct {
	head, tail int32
	n          int
}

func (s *Sampler) listAdd(slot uint32, which uint8) {
	t := s.at(slot)
	l := &s.lists[which]
	t.list, t.prev, t.next = which, l.tail, nobody
	if l.tail != nobody {
		s.at(uint32(l.tail)).next = int32(slot)
	} else {
		l.head = int32(slot)
	}
	l.tail = int32(slot)
	l.n++
}

func (s *Sampler) listRemove(slot uint32) {
	t := s.at(slot)
	l := &s.lists[t.list]
	if t.prev != nobody {
		s.at(uint32(t.prev)).next = t.next
	} else {
		l.head = t.next
	}
	if t.next != nobody {
		s.at(uint32(t.next)).prev = t.prev
	} else {
		l.tail = t.prev
	}
	l.n--
}

func (s *Sampler) listMove(slot uint32, which uint8) {
	if s.at(slot).list != which {
		s.listRemove(slot)
		s.listAdd(slot, which)
	}
}

// timer says when to look at a trace again. A trace may have several; only what it says itself counts.
type timer struct {
	due  int64
	slot uint32
	gen  uint32
}

// timers is a heap by due, then slot.
type timers []timer

func (h timers) less(i, j int) bool {
	return h[i].due < h[j].due || h[i].due == h[j].due && h[i].slot < h[j].slot
}

func (h *timers) push(t timer) {
	*h = append(*h, t)
	a := *h
	for i := len(a) - 1; i > 0; {
		p := (i - 1) / 2
		if !a.less(i, p) {
			break
		}
		a[i], a[p] = a[p], a[i]
		i = p
	}
}

func (h *timers) pop() timer {
	a := *h
	top := a[0]
	n := len(a) - 1
	a[0] = a[n]
	a = a[:n]
	*h = a
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && a.less(c+1, c) {
			c++
		}
		if !a.less(c, i) {
			break
		}
		a[i], a[c] = a[c], a[i]
		i = c
	}
	return top
}
