package tailsample

import "encoding/binary"

// ref is a place in an arena: the slab's index, and the offset in it plus one. 0 is none.
type ref uint64

func (r ref) slab() uint32 { return uint32(r >> 32) }
func (r ref) off() int     { return int(uint32(r)) - 1 }

// Every block of an arena begins with a header; the numbers are offsets in it.
const (
	hdrLen   = 0  // uint32: bytes that follow the header
	hdrOwner = 4  // uint32: slot of the trace, dead when the block is free
	hdrAux   = 8  // uint32: nursery: the scope; compressed: the dictionary
	hdrRaw   = 12 // uint32: bytes before compression
	hdrPrev  = 16 // ref: the trace's block before this one
	hdrNext  = 24 // ref: and the one after it
	hdrSize  = 32

	dead = ^uint32(0)

	slabSize = 256 << 10
	// spares is how many empty slabs wait for use instead of going back to the collector.
	spares = 4
)

type slab struct {
	b    []byte // len is what is used
	live int    // bytes of blocks that are not dead, headers included
}

// arena holds blocks of bytes in slabs, so that a million small blocks are a few thousand objects for
// the garbage collector, without pointers.
type arena struct {
	slabs []slab // an unused place has b nil
	holes []uint32
	spare [][]byte
	order []uint32 // slabs in the order in which they were begun; the last is being filled
	size  int64    // bytes of all slabs, spares included
	live  int64
}

func (a *arena) header(r ref) []byte {
	o := r.off()
	return a.slabs[r.slab()].b[o : o+hdrSize]
}

func (a *arena) payload(r ref) []byte {
	b := a.slabs[r.slab()].b[r.off():]
	n := int(binary.LittleEndian.Uint32(b))
	return b[hdrSize : hdrSize+n]
}

// put copies a block behind the one that head names and returns where it is. The caller makes it the
// trace's new head.
func (a *arena) put(owner, aux, raw uint32, head ref, data []byte) ref {
	need := hdrSize + len(data)
	var at *slab
	var index uint32
	if n := len(a.order); n > 0 {
		index = a.order[n-1]
		at = &a.slabs[index]
	}
	if at == nil || cap(at.b)-len(at.b) < need {
		index = a.begin(need)
		at = &a.slabs[index]
	}
	o := len(at.b)
	at.b = at.b[:o+need]
	h := at.b[o : o+hdrSize]
	binary.LittleEndian.PutUint32(h[hdrLen:], uint32(len(data)))
	binary.LittleEndian.PutUint32(h[hdrOwner:], owner)
	binary.LittleEndian.PutUint32(h[hdrAux:], aux)
	binary.LittleEndian.PutUint32(h[hdrRaw:], raw)
	binary.LittleEndian.PutUint64(h[hdrPrev:], uint64(head))
	binary.LittleEndian.PutUint64(h[hdrNext:], 0)
	copy(at.b[o+hdrSize:], data)
	at.live += need
	a.live += int64(need)
	r := ref(index)<<32 | ref(o+1)
	if head != 0 {
		binary.LittleEndian.PutUint64(a.header(head)[hdrNext:], uint64(r))
	}
	return r
}

// begin opens a slab with room for need bytes.
func (a *arena) begin(need int) uint32 {
	var b []byte
	switch n := len(a.spare); {
	case need > slabSize:
		b = make([]byte, 0, need)
		a.size += int64(need)
	case n > 0:
		b = a.spare[n-1]
		a.spare = a.spare[:n-1]
	default:
		b = make([]byte, 0, slabSize)
		a.size += slabSize
	}
	index := uint32(len(a.slabs))
	if n := len(a.holes); n > 0 {
		index = a.holes[n-1]
		a.holes = a.holes[:n-1]
		a.slabs[index] = slab{b: b}
	} else {
		a.slabs = append(a.slabs, slab{b: b})
	}
	// The slab that was being filled may have nothing alive left in it.
	if n := len(a.order); n > 0 && a.slabs[a.order[n-1]].live == 0 {
		last := a.order[n-1]
		a.order = a.order[:n-1]
		a.release(last)
	}
	a.order = append(a.order, index)
	return index
}

// release gives a slab back that holds nothing alive and stands in order no more.
func (a *arena) release(index uint32) {
	b := a.slabs[index].b
	a.slabs[index] = slab{}
	a.holes = append(a.holes, index)
	if cap(b) == slabSize && len(a.spare) < spares {
		a.spare = append(a.spare, b[:0])
		return
	}
	a.size -= int64(cap(b))
}

// drop frees a whole chain of blocks, from its newest one back.
func (a *arena) drop(head ref) {
	for r := head; r != 0; {
		h := a.header(r)
		prev := ref(binary.LittleEndian.Uint64(h[hdrPrev:]))
		a.kill(r, h)
		r = prev
	}
}

func (a *arena) kill(r ref, h []byte) {
	n := hdrSize + int(binary.LittleEndian.Uint32(h[hdrLen:]))
	binary.LittleEndian.PutUint32(h[hdrOwner:], dead)
	s := &a.slabs[r.slab()]
	s.live -= n
	a.live -= int64(n)
	if s.live > 0 || r.slab() == a.order[len(a.order)-1] {
		return
	}
	for i, x := range a.order {
		if x == r.slab() {
			a.order = append(a.order[:i], a.order[i+1:]...)
			break
		}
	}
	a.release(r.slab())
}

// chain appends the blocks of a trace to into, oldest first.
func (a *arena) chain(head ref, into []ref) []ref {
	from := len(into)
	for r := head; r != 0; r = ref(binary.LittleEndian.Uint64(a.header(r)[hdrPrev:])) {
		into = append(into, r)
	}
	for i, j := from, len(into)-1; i < j; i, j = i+1, j-1 {
		into[i], into[j] = into[j], into[i]
	}
	return into
}

// owners calls fn with the owner of each live block of a slab.
func (a *arena) owners(index uint32, fn func(owner uint32)) {
	for o := 0; o < len(a.slabs[index].b); {
		h := a.slabs[index].b[o : o+hdrSize]
		n := hdrSize + int(binary.LittleEndian.Uint32(h[hdrLen:]))
		if owner := binary.LittleEndian.Uint32(h[hdrOwner:]); owner != dead {
			fn(owner)
			if a.slabs[index].b == nil {
				return // that was its last
			}
		}
		o += n
	}
}

// compact moves what is alive in the emptiest slab together with the newest blocks. moved is told when
// a block that is some trace's head got a new place. It returns false when there was nothing to gain.
func (a *arena) compact(moved func(owner uint32, head ref)) bool {
	best, free := -1, slabSize/4 // less is not worth the copying
	for i, x := range a.order[:max(len(a.order)-1, 0)] {
		s := &a.slabs[x]
		if f := cap(s.b) - s.live; f > free {
			best, free = i, f
		}
	}
	if best < 0 {
		return false
	}
	index := a.order[best]
	a.order = append(a.order[:best], a.order[best+1:]...)
	old := a.slabs[index].b
	for o := 0; o < len(old); {
		h := old[o : o+hdrSize]
		n := hdrSize + int(binary.LittleEndian.Uint32(h[hdrLen:]))
		owner := binary.LittleEndian.Uint32(h[hdrOwner:])
		if owner != dead {
			prev, next := ref(binary.LittleEndian.Uint64(h[hdrPrev:])), ref(binary.LittleEndian.Uint64(h[hdrNext:]))
			r := a.put(owner, binary.LittleEndian.Uint32(h[hdrAux:]), binary.LittleEndian.Uint32(h[hdrRaw:]), prev, old[o+hdrSize:o+n])
			binary.LittleEndian.PutUint64(a.header(r)[hdrNext:], uint64(next))
			if next != 0 {
				binary.LittleEndian.PutUint64(a.header(next)[hdrPrev:], uint64(r))
			} else {
				moved(owner, r)
			}
			a.live -= int64(n)
		}
		o += n
	}
	a.release(index)
	return true
}
