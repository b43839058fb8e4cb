package torchfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
)

// slot is a value on the machine's stack and where in the pickle it begins.
type slot struct {
	c     cell
	start uint64
}

// mark is where a MARK opcode stood, and what of the filter's state to restore when it closes.
type mark struct {
	base     int // stack height
	pos      int // of the opcode
	markRole uint8
	keyRole  uint8
	keyBase  int
	emitted  int
}

// machine executes one pickle, or a part of it. It builds data and calls nothing: GLOBAL yields a
// name, REDUCE and NEWOBJ yield an object that holds a name and arguments.
type machine struct {
	d     *Doc
	data  []byte
	st    []slot
	marks []mark
	fence int // base of the newest mark: what lies below cannot be popped

	flt *filter // nil: everything is decoded, nothing is streamed
	// Filter state of the newest mark, or of a filtered dict that is filled without marks.
	markRole uint8 // roleItems or roleTarget: values at this level are elements
	keyRole  uint8 // values at odd heights above keyBase are keys of a dict with this role
	keyBase  int
	pendAt   int // offset at which a container opcode begins the value of a key on the path
	pendRole uint8
	emitted  int // of the target's current batch: stack height up to which elements were visited
	emit     *emitter
	ahead    *scout // nil for small files and parts
	skips    skipper

	// Decoding a part again (see replay).
	replay  bool
	overlay map[int]cell
	want    int // memo slot whose value is wanted, -1 for none
	seen    bool
	result  cell // the wanted value, once it is seen
	memoAt  int  // slot that MEMOIZE assigns next
	base    int  // nodes there were before: what a replay does to them was done already
	buffers int
}

var (
	errUnderflow = errors.New("stack underflow") // internal: a replay ran past its value
	errStopped   = errors.New("stopped")         // internal: the visitor has seen enough
)

func (m *machine) push(c cell, start int) {
	if len(m.st) == cap(m.st) {
		m.d.mem += int64(cap(m.st)) * slotSize // about what it grows by; checked every 4096 steps
	}
	m.st = append(m.st, slot{c, uint64(start)})
}

// under is the error of an opcode that needs more values than there are.
func (m *machine) under(pos int) error {
	if m.replay && m.fence == 0 {
		return errUnderflow
	}
	return m.d.fail(pos, ErrCorrupt, "opcode %s needs more values than there are", opName(m.data[pos]))
}

func (m *machine) have(n int) bool { return len(m.st)-m.fence >= n }

// run executes opcodes from pos until STOP, until end, or until an error, and returns where it stopped.
func (m *machine) run(pos, end int) (int, error) {
	d := m.d
	data := m.data[:end]
	steps := 0
	for pos < end {
		if steps++; steps == 4096 {
			if err := d.spend(steps); err != nil {
				return pos, err
			}
			if err := d.charge(0); err != nil {
				return pos, err
			}
			steps = 0
		}
		op := data[pos]
		switch op {
		case opBinGet, opLongBinGet:
			var idx, next int
			if op == opBinGet {
				if pos+2 > end {
					return pos, d.cutAt(pos, "a memo reference")
				}
				idx, next = int(data[pos+1]), pos+2
			} else {
				if pos+5 > end {
					return pos, d.cutAt(pos, "a memo reference")
				}
				idx, next = int(binary.LittleEndian.Uint32(data[pos+1:])), pos+5
			}
			var err error
			if next, err = m.get(idx, pos, next); err != nil {
				return pos, err
			}
			pos = next
		case opBinInt1:
			if pos+2 > end {
				return pos, d.cutAt(pos, "an integer")
			}
			m.push(intCell(int64(data[pos+1])), pos)
			pos += 2
		case opBinInt2:
			if pos+3 > end {
				return pos, d.cutAt(pos, "an integer")
			}
			m.push(intCell(int64(binary.LittleEndian.Uint16(data[pos+1:]))), pos)
			pos += 3
		case opBinInt:
			if pos+5 > end {
				return pos, d.cutAt(pos, "an integer")
			}
			m.push(intCell(int64(int32(binary.LittleEndian.Uint32(data[pos+1:])))), pos)
			pos += 5
		case opBinFloat:
			if pos+9 > end {
				return pos, d.cutAt(pos, "a float")
			}
			m.push(cell{uint64(ckFloat), binary.BigEndian.Uint64(data[pos+1:])}, pos)
			pos += 9
		case opBinUnicode:
			if pos+5 > end {
				return pos, d.cutAt(pos, "the length of a string")
			}
			n := int(binary.LittleEndian.Uint32(data[pos+1:]))
			if pos+5+n > end {
				return pos, d.cutAt(pos, "a string")
			}
			m.push(mkCell(ckStr, subLen4, pos+5, uint64(n)), pos)
			pos += 5 + n
			if m.atKey() {
				var err error
				if pos, err = m.key(pos, end); err != nil {
					return pos, err
				}
			}
		case opShortBinUnicode:
			if pos+2 > end || pos+2+int(data[pos+1]) > end {
				return pos, d.cutAt(pos, "a string")
			}
			n := int(data[pos+1])
			m.push(mkCell(ckStr, subLen1, pos+2, uint64(n)), pos)
			pos += 2 + n
			if m.atKey() {
				var err error
				if pos, err = m.key(pos, end); err != nil {
					return pos, err
				}
			}
		case opBinPut, opLongBinPut, opMemoize, opPut:
			next, err := m.put(pos, end)
			if err != nil {
				return pos, err
			}
			pos = next
		case opEmptyDict:
			if m.flt != nil {
				if err := m.boundary(pos, op); err != nil {
					return pos, err
				}
			}
			c, err := d.newNode(node{id: uint64(pos), kind: KindDict, role: m.roleOf(pos, op)})
			if err != nil {
				return pos, err
			}
			m.push(c, pos)
			if r := d.nodes[len(d.nodes)-1].role; r != 0 {
				m.keyRole, m.keyBase = r, len(m.st)
			}
			pos++
		case opEmptyList:
			if m.flt != nil {
				if err := m.boundary(pos, op); err != nil {
					return pos, err
				}
			}
			c, err := d.newNode(node{id: uint64(pos), kind: KindList, role: m.roleOf(pos, op)})
			if err != nil {
				return pos, err
			}
			m.push(c, pos)
			if d.nodes[len(d.nodes)-1].role == roleTarget && m.emit != nil {
				m.emit.begin(m)
			}
			pos++
		case opMark:
			if pos+1 < end && (runInfo[data[pos+1]] != 0 || data[pos+1] == opLong1) {
				if next := m.packed(pos, end, &steps); next > 0 {
					pos = next
					continue
				}
			}
			m.mark(pos)
			pos++
		case opSetItems:
			items, err := m.popMark(pos)
			if err != nil {
				return pos, err
			}
			if len(m.st) == 0 || len(m.st) <= m.fence {
				return pos, m.under(pos)
			}
			if err := m.setItems(&m.st[len(m.st)-1], items, pos); err != nil {
				return pos, err
			}
			pos++
		case opAppends:
			items, err := m.popMark(pos)
			if err != nil {
				return pos, err
			}
			if len(m.st) == 0 || len(m.st) <= m.fence {
				return pos, m.under(pos)
			}
			if err := m.appends(&m.st[len(m.st)-1], items, pos); err != nil {
				return pos, err
			}
			pos++
		case opNone:
			m.push(cell{a: uint64(ckNone)}, pos)
			pos++
		case opNewTrue, opNewFalse:
			m.push(boolCell(op == opNewTrue), pos)
			pos++
		case opSetItem:
			if !m.have(3) {
				return pos, m.under(pos)
			}
			n := len(m.st)
			items := m.st[n-2:]
			m.st = m.st[:n-2]
			if err := m.setItems(&m.st[n-3], items, pos); err != nil {
				return pos, err
			}
			pos++
		case opAppend:
			if !m.have(2) {
				return pos, m.under(pos)
			}
			n := len(m.st)
			items := m.st[n-1:]
			m.st = m.st[:n-1]
			if err := m.appends(&m.st[n-2], items, pos); err != nil {
				return pos, err
			}
			pos++
		case opStop:
			_ = d.spend(steps)
			if m.replay {
				return pos, errUnderflow
			}
			if !m.have(1) {
				return pos, m.under(pos)
			}
			if err := d.fixEnds(m.st[len(m.st)-1:], pos); err != nil {
				return pos, err
			}
			return pos + 1, nil
		default:
			next, err := m.rare(pos, end)
			if err != nil {
				return pos, err
			}
			pos = next
		}
		if m.seen && m.settled(pos) {
			return pos, nil
		}
	}
	_ = d.spend(steps)
	if end < len(m.data) || m.replay {
		return pos, nil
	}
	return pos, d.fail(pos, ErrIncomplete, "the pickle ends without STOP: still being written or cut")
}

// mark executes MARK.
func (m *machine) mark(pos int) {
	mk := mark{base: len(m.st), pos: pos, markRole: m.markRole, keyRole: m.keyRole, keyBase: m.keyBase, emitted: m.emitted}
	m.marks = append(m.marks, mk)
	m.fence = mk.base
	if len(m.marks)&4095 == 0 {
		m.d.mem += 4096 * 64
	}
	if m.flt == nil {
		return
	}
	inElements := m.markRole == roleTarget || m.markRole == roleItems
	m.markRole, m.keyRole, m.emitted = 0, 0, len(m.st)
	if n := len(m.st); n > 0 && m.st[n-1].c.kind() == ckNode {
		switch r := m.d.node(m.st[n-1].c).role; {
		case r == roleTarget || r == roleItems:
			m.markRole = r
			return
		case r != 0:
			m.keyRole, m.keyBase = r, n
			return
		}
	}
	if inElements {
		m.markRole = roleItems // a tuple of elements begins
	}
}

// popMark closes the newest mark and returns the values above it. They stay valid until the next push.
func (m *machine) popMark(pos int) ([]slot, error) {
	k := len(m.marks) - 1
	if k < 0 {
		if m.replay {
			return nil, errUnderflow
		}
		return nil, m.d.fail(pos, ErrCorrupt, "opcode %s without a MARK", opName(m.data[pos]))
	}
	mk := m.marks[k]
	items := m.st[mk.base:]
	m.st = m.st[:mk.base]
	if m.markRole == roleTarget && m.emit != nil && m.data[pos] == opAppends {
		m.marks = m.marks[:k]
		if err := m.emit.batch(m, items, pos); err != nil {
			return nil, err
		}
		items = items[:0]
	} else if m.emitted > mk.base && m.markRole == roleTarget {
		return nil, m.d.fail(pos, ErrOrder, "elements that were streamed as a list become something else; read the file with Load")
	}
	m.marks = m.marks[:k]
	m.markRole, m.keyRole, m.keyBase, m.emitted = mk.markRole, mk.keyRole, mk.keyBase, mk.emitted
	m.fence = 0
	if k > 0 {
		m.fence = m.marks[k-1].base
	}
	return items, nil
}

// packed recognises a batch of numbers that is appended to a list, and keeps it as it stands.
// It returns where the batch ends, 0 when it is something else.
func (m *machine) packed(pos, end int, steps *int) int {
	n := len(m.st)
	if n <= m.fence || m.st[n-1].c.kind() != ckNode || m.before(m.st[n-1].c) {
		return 0
	}
	l := m.d.node(m.st[n-1].c)
	if m.d.lazy && l.start() != int(m.st[n-1].start) {
		return 0
	}
	if l.kind != KindList || l.flags&flagAtStart != 0 || l.role == roleTarget || (l.n != 0 && (l.flags&flagRun == 0 || !m.follows(l, pos))) {
		return 0
	}
	run := m.scanRun(pos+1, end)
	stop, count := run.end, run.n
	*steps += 1
	m.d.ops += int64(count)
	if count == 0 || stop >= end || m.data[stop] != opAppends || int(l.n)+count > math.MaxInt32 {
		return 0
	}
	switch {
	case l.n == 0:
		l.ref, l.size = cellRef(pos+1), 0
		l.flags |= flagRun
		if run.sum >= 0 && run.sum < math.MaxUint32 {
			l.size = uint32(run.sum) + 1
		}
	default:
		l.size = 0
	}
	l.aux = uint64(stop)
	l.n += uint32(count)
	l.what |= run.what
	return stop + 1
}

// scanRun is the run of numbers that begins at pos, as the scout knows it already; its batches that
// follow, too, when each is closed by APPENDS.
func (m *machine) scanRun(pos, end int) foundRun {
	if m.ahead != nil && end == len(m.data) {
		return m.ahead.run(pos)
	}
	stop, n, what := scanRun(m.data[:end], pos)
	return foundRun{start: pos, end: stop, n: n, what: what, sum: -1}
}

// follows says that pos comes right after the run of l, but for a frame header.
func (m *machine) follows(l *node, pos int) bool {
	next := int(l.aux) + 1
	return next == pos || (next+9 == pos && m.data[next] == opFrame)
}

// packOne keeps a single number that is appended to an empty or packed list packed.
func (m *machine) packOne(l *node, s slot, pos int) bool {
	p := int(s.start)
	if l.flags&flagAtStart != 0 {
		return false // aux is taken
	}
	switch s.c.kind() {
	case ckInt, ckFloat, ckNone, ckBool:
	default:
		return false
	}
	if l.n != 0 && (l.flags&flagRun == 0 || !m.follows(l, p)) {
		return false
	}
	if info := runInfo[m.data[p]]; info != 0 {
		l.what |= info &^ runSize
	} else if m.data[p] == opLong1 && s.c.kind() == ckInt {
		l.what |= runInt
	} else {
		return false
	}
	if l.n == 0 {
		l.ref = cellRef(p)
		l.flags |= flagRun
	}
	l.size = 0
	l.aux = uint64(pos)
	l.n++
	return true
}

// get executes the GET opcodes.
func (m *machine) get(idx, pos, next int) (int, error) {
	var c cell
	if m.replay {
		c = m.overlay[idx]
	}
	if c.kind() == ckEmpty {
		c = m.d.recall(idx)
	}
	switch c.kind() {
	case ckEmpty:
		return pos, m.d.fail(pos, ErrCorrupt, "memo slot %d is used before it is assigned", idx)
	case ckNode:
		if err := m.d.refersOut(c, pos); err != nil {
			return pos, err
		}
	case ckGlobal:
		if m.flt != nil {
			if err := m.boundary(pos, opGlobal); err != nil {
				return pos, err
			}
		}
	}
	m.push(c, pos)
	if m.atKey() && c.kind() == ckStr {
		return m.key(next, len(m.data))
	}
	return next, nil
}

// refersOut is the error of an element that refers to the list which is streamed, or to what that is
// in: neither is complete while the element is visited.
func (d *Doc) refersOut(c cell, pos int) error {
	for _, i := range d.open {
		if i == c.off() {
			return d.fail(pos, ErrOrder, "an element refers to the list it is in; read the file with Load")
		}
	}
	return nil
}

// put executes the PUT opcodes.
func (m *machine) put(pos, end int) (int, error) {
	d := m.d
	idx, next, err := d.putIndex(pos, end)
	if err != nil {
		return pos, err
	}
	if m.replay {
		if m.data[pos] == opMemoize {
			idx = m.memoAt
		}
		m.memoAt++
	}
	if !m.have(1) {
		return pos, m.under(pos)
	}
	s := m.st[len(m.st)-1]
	if m.replay {
		if m.overlay == nil {
			m.overlay = make(map[int]cell)
		}
		if err := d.charge(48); err != nil {
			return pos, err
		}
		m.overlay[idx] = s.c
		if idx == m.want && len(m.st) == 1 {
			m.seen, m.result = true, s.c
		}
		return next, nil
	}
	return next, d.remember(idx, s, pos)
}

// settled says that the value which a replay was started for is complete: something took it, or
// what follows cannot belong to it.
func (m *machine) settled(pos int) bool {
	if len(m.st) == 0 || m.st[0].c != m.result {
		return true
	}
	if len(m.st) != 1 || len(m.marks) != 0 || pos >= len(m.data) {
		return false
	}
	if m.result.kind() != ckNode {
		return true
	}
	switch m.d.node(m.result).kind {
	case KindTuple, KindFrozenSet:
		return true
	case KindDict:
		return m.data[pos] == opEmptyDict || m.data[pos] == opEmptyList
	}
	return false
}

// line returns the text from pos to the next newline, and where the next line begins.
func (d *Doc) line(pos int) ([]byte, int, error) {
	if pos > len(d.src) {
		return nil, 0, d.cutAt(pos, "a line of text")
	}
	i := bytes.IndexByte(d.src[pos:], '\n')
	if i < 0 {
		return nil, 0, d.cutAt(pos, "a line of text")
	}
	return d.src[pos : pos+i], pos + i + 1, nil
}

// setItems adds keys and values to a dict or object.
func (m *machine) setItems(t *slot, items []slot, pos int) error {
	if len(items)%2 != 0 {
		return m.d.fail(pos, ErrCorrupt, "a dict's keys and values are %d, an odd number", len(items))
	}
	if err := m.d.fixEnds(items, pos); err != nil {
		return err
	}
	if err := m.hashable(items, pos); err != nil {
		return err
	}
	switch t.c.kind() {
	case ckDeferred, ckMemoRef:
		return m.touched(t, pos)
	case ckNode:
		if skip, err := m.mayChange(t, pos); skip || err != nil {
			return err
		}
		n := m.d.node(t.c)
		switch n.kind {
		case KindDict:
			return m.d.addCells(n, items)
		case KindObject:
			e, err := m.d.extOf(n)
			if err != nil {
				return err
			}
			to, err := m.d.grow(&e.pairs, len(items))
			if err != nil {
				return err
			}
			for i := range items {
				to[i] = items[i].c
			}
			return nil
		}
	}
	return m.d.fail(pos, ErrCorrupt, "SETITEMS on a value that is no dict")
}

// hashable checks the keys among keys and values. That a list or dict is no key is also what tells
// where the value before it ends.
func (m *machine) hashable(items []slot, pos int) error {
	for i := 0; i < len(items); i += 2 {
		if k := items[i].c; k.kind() == ckNode {
			switch kind := m.d.node(k).kind; kind {
			case KindList, KindDict, KindSet:
				return m.d.fail(pos, ErrCorrupt, "a dict's key is a %s, which has no hash", kind)
			}
		}
	}
	return nil
}

// appends adds values to a list, a set or an object.
func (m *machine) appends(t *slot, items []slot, pos int) error {
	if err := m.d.fixEnds(items, pos); err != nil {
		return err
	}
	switch t.c.kind() {
	case ckDeferred, ckMemoRef:
		return m.touched(t, pos)
	case ckNode:
		if skip, err := m.mayChange(t, pos); skip || err != nil {
			return err
		}
		n := m.d.node(t.c)
		if n.role == roleTarget && m.emit != nil && n.kind == KindList {
			if m.data[pos] == opAppend {
				return m.emit.one(m, items, pos)
			}
			return nil // the batch went to the visitor when its mark closed
		}
		if n.kind == KindList && m.data[pos] == opAppend && m.packOne(n, items[0], pos) {
			return nil
		}
		if n.kind == KindList || n.kind == KindObject {
			return m.d.addCells(n, items)
		}
	}
	return m.d.fail(pos, ErrCorrupt, "APPENDS on a value that is no list")
}

// before says that a node is older than this replay. The opcodes that change it were executed when
// they were met first; they must not be executed twice.
func (m *machine) before(c cell) bool { return m.replay && c.off() < m.base }

// mayChange is asked before a node is changed. A node that is older than this replay is skipped. With
// deferred values a node may change only where it is made, not by reference: decoding its bytes again
// would miss the change.
func (m *machine) mayChange(t *slot, pos int) (skip bool, err error) {
	if m.before(t.c) {
		return true, nil
	}
	if m.d.lazy {
		if n := m.d.node(t.c); n.start() != int(t.start) {
			return false, m.d.fail(pos, ErrOrder, "a value changes by reference; read the file with Load and no filter")
		}
	}
	return false, nil
}

// touched handles a change to a value that is only known by where it stands: fine while it is still
// being skipped (the change belongs to it), an error after it was visited.
func (m *machine) touched(t *slot, pos int) error {
	if t.c.sub()&subEmitted != 0 || t.c.kind() == ckMemoRef {
		return m.d.fail(pos, ErrOrder, "an element changes after it was complete; read the file with Load")
	}
	return nil
}

// fixEnds sets where deferred values end that become part of something: where the next one begins,
// or at pos. Elements that were visited already must not become part of anything else.
func (d *Doc) fixEnds(items []slot, pos int) error {
	if !d.lazy {
		return nil
	}
	for i := range items {
		if items[i].c.kind() != ckDeferred {
			continue
		}
		if items[i].c.sub()&subEmitted != 0 {
			return d.fail(pos, ErrOrder, "an element becomes part of something else after it was visited; read the file with Load")
		}
		end := uint64(pos)
		if i+1 < len(items) {
			end = items[i+1].start
		}
		items[i].c = deferredCell(int(items[i].start), int(end), items[i].c.deferMemo())
	}
	return nil
}
