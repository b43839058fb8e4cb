package torchfile

import (
	"bytes"
	"encoding/binary"
)

// Roles of containers under a filter. Containers on the way to the target have rolePath plus the
// number of path elements already matched.
const (
	roleItem   = 1  // a dict (or an object's state) whose keys are filtered
	roleItems  = 2  // a list whose members are elements
	roleTarget = 3  // the list at the path's end, whose elements are streamed
	rolePath   = 16 // a dict on the path
)

// filter says which values of a pickle are wanted.
type filter struct {
	path   []string
	keep   map[string]struct{} // nil: every key
	except map[string]struct{}
}

// newFilter returns nil when nothing is to be filtered or streamed.
func newFilter(path, fields, except []string, stream bool) *filter {
	if len(fields) == 0 && len(except) == 0 && !stream {
		return nil
	}
	f := &filter{path: path}
	if len(fields) > 0 {
		f.keep = make(map[string]struct{}, len(fields))
		for _, s := range fields {
			f.keep[s] = struct{}{}
		}
	}
	if len(except) > 0 {
		f.except = make(map[string]struct{}, len(except))
		for _, s := range except {
			f.except[s] = struct{}{}
		}
	}
	return f
}

func (f *filter) wants(key []byte) bool {
	if _, no := f.except[string(key)]; no {
		return false
	}
	if f.keep == nil {
		return true
	}
	_, ok := f.keep[string(key)]
	return ok
}

// atKey says that the value just pushed stands where a filtered dict has its keys.
func (m *machine) atKey() bool {
	return m.keyRole != 0 && len(m.st) > m.keyBase && (len(m.st)-m.keyBase)&1 == 1
}

// roleOf gives a container that the opcode at pos creates its role.
func (m *machine) roleOf(pos int, op byte) uint8 {
	f := m.flt
	if f == nil {
		return 0
	}
	if op == opDict || op == opList {
		pos-- // protocol 0 writes MARK before
	}
	isDict := op == opEmptyDict || op == opDict
	role := uint8(0)
	switch {
	case len(m.st) == 0:
		role = rolePath
		if len(f.path) == 0 {
			role = roleTarget
		}
	case m.pendRole != 0 && m.pendAt == pos:
		role = m.pendRole
	case m.markRole == roleTarget || m.markRole == roleItems:
		role = roleItems
	default:
		// An element that is appended without a MARK, or the state of such an element.
		if len(m.st) > m.fence && m.st[len(m.st)-1].c.kind() == ckNode {
			n := m.d.node(m.st[len(m.st)-1].c)
			switch {
			case n.kind == KindObject && n.role == roleItem:
				role = roleItem
			case n.kind == KindList && (n.role == roleTarget || n.role == roleItems):
				role = roleItems
			}
		}
	}
	switch {
	case op == opNewObj:
		if role == roleItems || role == roleItem {
			return roleItem
		}
		return 0
	case isDict:
		switch {
		case role == roleItems:
			return roleItem
		case role == roleTarget:
			return 0
		}
	default: // a list
		if role >= rolePath || role == roleItem {
			return 0
		}
	}
	return role
}

// key looks at the key that was just pushed on a filtered dict: an unwanted key's value is skipped,
// the path's next key makes the following container the next on the path.
func (m *machine) key(pos, end int) (int, error) {
	for pos < end {
		switch m.data[pos] {
		case opBinPut, opLongBinPut, opMemoize, opPut:
			next, err := m.put(pos, end)
			if err != nil {
				return pos, err
			}
			pos = next
			continue
		case opFrame:
			if pos+9 <= end {
				pos += 9
				continue
			}
		}
		break
	}
	k := m.d.rawBytes(m.st[len(m.st)-1].c)
	if m.keyRole == roleItem {
		if pos >= end || m.flt.wants(k) {
			return pos, nil
		}
		switch m.data[pos] {
		case opBinInt1, opBinInt2, opBinInt, opBinFloat, opNone, opNewTrue, opNewFalse, opBinUnicode, opShortBinUnicode:
			return pos, nil // costs nothing
		}
		return m.skips.skip(m, pos, end)
	}
	if level := int(m.keyRole) - rolePath; level >= 0 && level < len(m.flt.path) && m.flt.path[level] == string(k) {
		m.pendAt = pos
		m.pendRole = rolePath + uint8(level) + 1
		if level+1 == len(m.flt.path) {
			m.pendRole = roleTarget
		}
	}
	return pos, nil
}

// skipper runs over values without decoding them. It keeps, for each value on its part of the stack,
// only where the value begins and what the memo would need of it.
type skipper struct {
	st    []skipped
	marks []skipMark
}

type skipped struct {
	a     uint64 // as in the memo
	start int
}

type skipMark struct{ base, pos int }

// skip runs over the value that begins at pos and pushes a deferred value for it. What a value is
// can only be seen from what follows (a list is followed by its elements, which look like the next
// key), so it stops where something begins that may be a key, and the caller goes on from there.
func (k *skipper) skip(m *machine, pos, end int) (int, error) {
	d := m.d
	d.lazy = true
	data := m.data[:end]
	k.st, k.marks = k.st[:0], k.marks[:0]
	memo := d.memoLen
	first := pos
	steps := 0
	var err error
loop:
	for pos < end {
		if steps++; steps == 4096 {
			if err = d.spend(steps); err != nil {
				break
			}
			if err = d.charge(0); err != nil {
				break
			}
			steps = 0
		}
		op := data[pos]
		if size := int(opPush[op]); size != 0 {
			// A list or dict is no key: it belongs to what is skipped.
			if len(k.marks) == 0 && len(k.st) == 1 && op != opEmptyList && op != opEmptyDict && op != opEmptySet &&
				!(op == opEmptyTuple && cellKind(k.st[0].a) == ckGlobal) {
				break
			}
			if pos+size > end {
				err = d.cutAt(pos, "an opcode's argument")
				break
			}
			if op == opNextBuffer {
				err = d.fail(pos, ErrOrder, "an out-of-band buffer in a value that is skipped; read the file with Load")
				break
			}
			k.push(cell{a: uint64(ckDeferred)}.a, pos)
			pos += size
			continue
		}
		switch op {
		case opMark:
			if len(k.st) > 0 && pos+1 < end && runInfo[data[pos+1]] != 0 {
				run := m.scanRun(pos+1, end)
				if run.end < end && data[run.end] == opAppends && cellKind(k.st[len(k.st)-1].a) == ckDeferred {
					d.ops += int64(run.n)
					pos = run.end + 1
					continue
				}
			}
			k.marks = append(k.marks, skipMark{len(k.st), pos})
			pos++
		case opBinPut, opLongBinPut, opMemoize, opPut:
			if len(k.st) == 0 {
				break loop
			}
			idx, next, e := d.putIndex(pos, end)
			if err = e; err != nil {
				break loop
			}
			top := k.st[len(k.st)-1]
			a := top.a
			if k := cellKind(a); k == ckDeferred || k == ckMemoRef {
				a = mkCell(ckDeferred, 0, top.start, 0).a
			}
			if err = d.setMemo(idx, a, pos); err != nil {
				break loop
			}
			pos = next
		case opBinGet, opLongBinGet, opGet:
			if len(k.marks) == 0 && len(k.st) == 1 {
				break loop
			}
			var idx, next int
			if idx, next, err = d.getIndex(pos, end); err != nil {
				break loop
			}
			a := d.memoEntry(idx)
			switch cellKind(a) {
			case ckEmpty:
				err = d.fail(pos, ErrCorrupt, "memo slot %d is used before it is assigned", idx)
				break loop
			case ckNode:
				if err = d.refersOut(cell{a: a}, pos); err != nil {
					break loop
				}
				a = mkCell(ckMemoRef, 0, idx, 0).a
			case ckDeferred, ckAux:
				a = mkCell(ckMemoRef, 0, idx, 0).a
			}
			k.push(a, pos)
			pos = next
		case opLong1, opLong4, opInt, opLong, opFloat, opString, opUnicode, opPersID,
			opBinUnicode, opShortBinUnicode, opBinUnicode8, opBinString, opShortBinString, opBinBytes, opShortBinBytes,
			opBinBytes8, opByteArray8:
			if len(k.marks) == 0 && len(k.st) == 1 {
				break loop
			}
			var next int
			if next, err = d.nextOp(pos); err != nil {
				break loop
			}
			if next > end {
				err = d.cutAt(pos, "a string")
				break loop
			}
			k.push(atomEntry(op, pos, next), pos)
			pos = next
		case opGlobal:
			if len(k.marks) == 0 && len(k.st) == 1 {
				break loop
			}
			c, next, e := d.globalAt(pos)
			if err = e; err != nil {
				break loop
			}
			k.push(c.a, pos)
			pos = next
		case opStackGlobal:
			if !k.have(2) {
				break loop
			}
			n := len(k.st)
			c, e := d.globalFrom(k.value(d, n-2), k.value(d, n-1), pos)
			if err = e; err != nil {
				break loop
			}
			start := k.st[n-2].start
			k.st = k.st[:n-2]
			k.push(c.a, start)
			pos++
		case opFrame, opProto:
			if pos, err = d.nextOp(pos); err != nil {
				break loop
			}
		case opAppends, opSetItems, opAddItems:
			if len(k.marks) == 0 || k.marks[len(k.marks)-1].base == 0 {
				break loop
			}
			k.st = k.st[:k.popMark().base]
			if err = k.owned(d, pos); err != nil {
				break loop
			}
			pos++
		case opTuple, opList, opDict, opFrozenSet, opObj, opInst:
			if len(k.marks) == 0 {
				break loop
			}
			next := pos + 1
			if op == opInst {
				if _, next, err = d.globalAt(pos); err != nil {
					break loop
				}
			}
			mk := k.popMark()
			k.st = k.st[:mk.base]
			k.push(uint64(ckDeferred), mk.pos)
			pos = next
		case opAppend:
			if !k.have(2) {
				break loop
			}
			k.st = k.st[:len(k.st)-1]
			if err = k.owned(d, pos); err != nil {
				break loop
			}
			pos++
		case opSetItem:
			if !k.have(3) {
				break loop
			}
			k.st = k.st[:len(k.st)-2]
			if err = k.owned(d, pos); err != nil {
				break loop
			}
			pos++
		case opBuild:
			if !k.have(2) {
				break loop
			}
			k.st = k.st[:len(k.st)-1]
			if err = k.owned(d, pos); err != nil {
				break loop
			}
			pos++
		case opReduce, opNewObj, opTuple2:
			if !k.have(2) {
				break loop
			}
			k.fold(2)
			pos++
		case opNewObjEx, opTuple3:
			if !k.have(3) {
				break loop
			}
			k.fold(3)
			pos++
		case opTuple1, opBinPersID:
			if !k.have(1) {
				break loop
			}
			k.fold(1)
			pos++
		case opReadonlyBuffer:
			pos++
		case opPop:
			if n := len(k.marks); n > 0 && len(k.st) == k.marks[n-1].base {
				k.popMark()
				pos++
				continue
			}
			if !k.have(1) || len(k.st) == 1 {
				break loop
			}
			k.st = k.st[:len(k.st)-1]
			pos++
		case opPopMark:
			if len(k.marks) == 0 {
				break loop
			}
			k.st = k.st[:k.popMark().base]
			pos++
		case opDup:
			if !k.have(1) || len(k.marks) == 0 {
				break loop
			}
			// The copy cannot be decoded from where it stands; the memo must not know it.
			err = d.fail(pos, ErrOrder, "DUP in a value that is skipped; read the file with Load")
			break loop
		default: // STOP, or no opcode at all: the machine says what is wrong
			break loop
		}
	}
	if e := d.spend(steps); err == nil {
		err = e
	}
	if err == nil && pos >= end && end == len(m.data) {
		err = d.fail(pos, ErrIncomplete, "the pickle ends without STOP: still being written or cut")
	}
	// Hand over what is on the stack: as a rule one value.
	base := len(m.st)
	for i, s := range k.st {
		c := cell{a: s.a}
		if c.kind() == ckDeferred {
			at := memo
			if s.start != first {
				if n, e := d.memoCountAt(s.start); e == nil {
					at = n
				}
			}
			c = deferredCell(s.start, s.start, at)
		} else {
			c = k.value(d, i)
		}
		m.push(c, s.start)
	}
	for _, mk := range k.marks {
		m.mark(mk.pos)
		m.marks[len(m.marks)-1].base = base + mk.base
		m.fence = base + mk.base
	}
	return pos, err
}

func (k *skipper) push(a uint64, start int) { k.st = append(k.st, skipped{a, start}) }

func (k *skipper) popMark() skipMark {
	mk := k.marks[len(k.marks)-1]
	k.marks = k.marks[:len(k.marks)-1]
	return mk
}

// have says that there are n values above the newest mark.
func (k *skipper) have(n int) bool {
	base := 0
	if len(k.marks) > 0 {
		base = k.marks[len(k.marks)-1].base
	}
	return len(k.st)-base >= n
}

// owned makes sure that what is being changed belongs to what is skipped: a change to a value from
// elsewhere would be lost.
func (k *skipper) owned(d *Doc, pos int) error {
	if cellKind(k.st[len(k.st)-1].a) != ckDeferred {
		return d.fail(pos, ErrOrder, "a value that is skipped changes one that is not; read the file with Load")
	}
	return nil
}

// fold replaces the top n values by one that begins where the first of them does.
func (k *skipper) fold(n int) {
	at := len(k.st) - n
	k.st = k.st[:at+1]
	k.st[at].a = uint64(ckDeferred)
}

// value is the cell of value i of the skipper's stack.
func (k *skipper) value(d *Doc, i int) cell {
	s := k.st[i]
	switch (cell{a: s.a}).kind() {
	case ckStr, ckBytes, ckByteArray:
		return cell{a: s.a}.sized(d.src)
	case ckGlobal:
		return cell{a: s.a}
	}
	if c := (cell{a: s.a}); c.kind() == ckMemoRef {
		return d.recall(c.off())
	}
	return mkCell(ckDeferred, 0, s.start, 0)
}

// atomEntry is the memo entry of the value that the single opcode at pos makes.
func atomEntry(op byte, pos, next int) uint64 {
	switch op {
	case opBinUnicode:
		return mkCell(ckStr, subLen4, pos+5, 0).a
	case opShortBinUnicode:
		return mkCell(ckStr, subLen1, pos+2, 0).a
	case opBinUnicode8:
		return mkCell(ckStr, subLen8, pos+9, 0).a
	case opBinBytes:
		return mkCell(ckBytes, subLen4, pos+5, 0).a
	case opShortBinBytes:
		return mkCell(ckBytes, subLen1, pos+2, 0).a
	case opBinBytes8:
		return mkCell(ckBytes, subLen8, pos+9, 0).a
	}
	return uint64(ckDeferred)
}

// putIndex reads the slot of a PUT opcode.
func (d *Doc) putIndex(pos, end int) (idx, next int, err error) {
	switch d.src[pos] {
	case opBinPut:
		if pos+2 > end {
			return 0, pos, d.cutAt(pos, "a memo slot")
		}
		return int(d.src[pos+1]), pos + 2, nil
	case opLongBinPut:
		if pos+5 > end {
			return 0, pos, d.cutAt(pos, "a memo slot")
		}
		return int(binary.LittleEndian.Uint32(d.src[pos+1:])), pos + 5, nil
	case opMemoize:
		d.counts = true
		return d.memoLen, pos + 1, nil
	}
	line, next, err := d.line(pos + 1)
	if err != nil {
		return 0, pos, err
	}
	v, ok := parseInt(bytes.TrimSpace(line))
	if !ok || v < 0 || v > 1<<32-1 {
		return 0, pos, d.fail(pos, ErrCorrupt, "memo slot %q is not a number", clip(line))
	}
	return int(v), next, nil
}

// getIndex reads the slot of a GET opcode.
func (d *Doc) getIndex(pos, end int) (idx, next int, err error) {
	switch d.src[pos] {
	case opBinGet:
		if pos+2 > end {
			return 0, pos, d.cutAt(pos, "a memo reference")
		}
		return int(d.src[pos+1]), pos + 2, nil
	case opLongBinGet:
		if pos+5 > end {
			return 0, pos, d.cutAt(pos, "a memo reference")
		}
		return int(binary.LittleEndian.Uint32(d.src[pos+1:])), pos + 5, nil
	}
	line, next, err := d.line(pos + 1)
	if err != nil {
		return 0, pos, err
	}
	v, ok := parseInt(bytes.TrimSpace(line))
	if !ok || v < 0 || v > 1<<32-1 {
		return 0, pos, d.fail(pos, ErrCorrupt, "memo slot %q is not a number", clip(line))
	}
	return int(v), next, nil
}
