package torchfile

// The memo. An entry is the a of the value's cell when that is enough to make the value again: the
// offset of a string's bytes (its length stands before them), a node, a class. An element that was
// streamed leaves ckDeferred entries: where the value begins. Everything else goes to memoAux.

// memoTable maps slots, which are assigned in order as a rule, to entries. It grows by pages, so that
// nothing is copied; the pages that a scan leaves behind are packed to half their size.
type memoTable struct {
	pages []memoPage
	n     int // slots, the unassigned ones between others included
	free  []uint64
}

const (
	pageBits  = 12
	pageSlots = 1 << pageBits
)

type memoPage struct {
	wide   []uint64
	narrow []uint32 // offset from base (28 bits) | code of kind and sub (4 bits)
	base   int
}

// memoCodes are the kinds of entries that a packed page can hold.
var memoCodes = [...]uint64{
	0,
	uint64(ckDeferred),
	uint64(ckGlobal),
	uint64(ckStr) | subLen1<<8,
	uint64(ckStr) | subLen4<<8,
	uint64(ckStr) | subLen8<<8,
	uint64(ckBytes) | subLen1<<8,
	uint64(ckBytes) | subLen4<<8,
	uint64(ckBytes) | subLen8<<8,
	uint64(ckBytes) | (subLen1|subLatin)<<8,
	uint64(ckBytes) | (subLen4|subLatin)<<8,
}

func (m *memoTable) get(i int) uint64 {
	p := &m.pages[i>>pageBits]
	if p.wide != nil {
		return p.wide[i&(pageSlots-1)]
	}
	return p.unpack(p.narrow[i&(pageSlots-1)])
}

func (p *memoPage) unpack(v uint32) uint64 {
	if v == 0 {
		return 0
	}
	code := memoCodes[v&15]
	off := int(v >> 4)
	if cellKind(code) != ckGlobal {
		off += p.base
	}
	return code | uint64(off)<<16
}

func (m *memoTable) set(i int, a uint64) {
	p := &m.pages[i>>pageBits]
	if p.wide == nil { // a slot between others is assigned late
		p.wide = make([]uint64, pageSlots)
		for k, v := range p.narrow {
			p.wide[k] = p.unpack(v)
		}
		p.narrow = nil
	}
	p.wide[i&(pageSlots-1)] = a
}

// add appends a slot and returns how many bytes that took newly.
func (m *memoTable) add(a uint64) (grown int64) {
	if m.n>>pageBits == len(m.pages) {
		w := m.free
		m.free = nil
		if w == nil {
			w = make([]uint64, pageSlots)
			grown = pageSlots * 8
		}
		m.pages = append(m.pages, memoPage{wide: w})
	}
	m.pages[m.n>>pageBits].wide[m.n&(pageSlots-1)] = a
	m.n++
	return grown
}

// pack halves page i when all its entries allow it, and returns how many bytes that took or gave back.
func (m *memoTable) pack(i int) int64 {
	p := &m.pages[i]
	if p.wide == nil {
		return 0
	}
	base := maxOffset
	for _, a := range p.wide {
		if c := (cell{a: a}); a != 0 && c.kind() != ckGlobal {
			base = min(base, c.off())
		}
	}
	narrow := make([]uint32, pageSlots)
	for k, a := range p.wide {
		if a == 0 {
			continue
		}
		c := cell{a: a}
		off := c.off()
		if c.kind() != ckGlobal {
			off -= base
		}
		code := 0
		for j := 1; j < len(memoCodes); j++ {
			if memoCodes[j] == a&0xffff {
				code = j
				break
			}
		}
		if code == 0 || off>>28 != 0 {
			return 0
		}
		narrow[k] = uint32(off)<<4 | uint32(code)
	}
	w := p.wide
	*p = memoPage{narrow: narrow, base: base}
	if m.free == nil {
		clear(w)
		m.free = w
		return pageSlots * 4
	}
	return pageSlots*4 - pageSlots*8
}

func (d *Doc) remember(idx int, s slot, pos int) error {
	a := s.c.a
	switch s.c.kind() {
	case ckGlobal:
	case ckNode:
		if d.lazy && d.node(s.c).start() != int(s.start) {
			a = 0 // a GET: the value is found again from there, not from where it begins
		}
	case ckDeferred:
		a = mkCell(ckDeferred, 0, s.c.off(), 0).a
	case ckStr, ckBytes, ckByteArray:
		if s.c.sub()&subHeader == subNoLen {
			a = 0
		}
	default:
		a = 0
	}
	if a == 0 {
		if err := d.charge(24); err != nil {
			return err
		}
		d.memoAux = append(d.memoAux, s)
		a = mkCell(ckAux, 0, len(d.memoAux)-1, 0).a
	}
	return d.setMemo(idx, a, pos)
}

func (d *Doc) setMemo(idx int, a uint64, pos int) error {
	switch {
	case idx < d.memo.n:
		if d.memo.get(idx) == 0 {
			d.assigned(pos)
		} else if d.lazy {
			return d.fail(pos, ErrOrder, "memo slot %d is assigned twice; read the file with Load and no filter", idx)
		}
		d.memo.set(idx, a)
		d.lowPut = min(d.lowPut, idx)
		return nil
	case idx <= d.memo.n+1024:
		if idx >= d.lim.MaxMemo {
			return d.fail(pos, ErrLimit, "memo slot %d is beyond Limits.MaxMemo (%d)", idx, d.lim.MaxMemo)
		}
		var grown int64
		for d.memo.n < idx {
			grown += d.memo.add(0)
		}
		grown += d.memo.add(a)
		d.assigned(pos)
		if grown > 0 {
			return d.charge(grown)
		}
		return nil
	}
	if d.memoFar == nil {
		d.memoFar = make(map[uint32]uint64)
	}
	if _, ok := d.memoFar[uint32(idx)]; !ok {
		d.assigned(pos)
		if err := d.charge(40); err != nil {
			return err
		}
	} else if d.lazy {
		return d.fail(pos, ErrOrder, "memo slot %d is assigned twice; read the file with Load and no filter", idx)
	}
	if d.memoLen > d.lim.MaxMemo {
		return d.fail(pos, ErrLimit, "more memo slots than Limits.MaxMemo (%d)", d.lim.MaxMemo)
	}
	d.memoFar[uint32(idx)] = a
	return nil
}

// assigned counts a slot that the opcode at pos assigns for the first time.
func (d *Doc) assigned(pos int) {
	if d.memoLen&63 == 0 {
		d.puts = append(d.puts, uint64(pos))
	}
	d.memoLen++
}

// memoEntry is the raw entry of a memo slot, 0 when it was never assigned.
func (d *Doc) memoEntry(idx int) uint64 {
	if idx < d.memo.n {
		return d.memo.get(idx)
	}
	return d.memoFar[uint32(idx)]
}

// recall makes the value in a memo slot; an empty cell when the slot was never assigned.
func (d *Doc) recall(idx int) cell {
	c := cell{a: d.memoEntry(idx)}
	switch c.kind() {
	case ckStr, ckBytes, ckByteArray:
		return c.sized(d.src)
	case ckAux:
		return d.memoAux[c.off()].c
	case ckDeferred:
		return mkCell(ckMemoRef, 0, c.off(), uint64(idx))
	}
	return c
}
