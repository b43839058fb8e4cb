package torchfile

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"unicode/utf8"
)

// rare executes the opcodes that are not worth a place in the machine's main loop.
func (m *machine) rare(pos, end int) (int, error) {
	d := m.d
	data := m.data[:end]
	op := data[pos]
	switch op {
	case opProto:
		if pos+2 > end {
			return pos, d.cutAt(pos, "the protocol number")
		}
		if data[pos+1] > maxProtocol {
			return pos, d.fail(pos, ErrUnsupported, "pickle protocol %d; this reader knows 0 to %d", data[pos+1], maxProtocol)
		}
		return pos + 2, nil
	case opFrame:
		if pos+9 > end {
			return pos, d.cutAt(pos, "a frame's length")
		}
		return pos + 9, nil
	case opEmptyTuple:
		return pos + 1, m.pushNode(node{id: uint64(pos), aux: uint64(pos), kind: KindTuple, flags: flagAtStart}, pos)
	case opEmptySet:
		return pos + 1, m.pushNode(node{id: uint64(pos), kind: KindSet}, pos)
	case opTuple1, opTuple2, opTuple3:
		n := int(op-opTuple1) + 1
		if !m.have(n) {
			return pos, m.under(pos)
		}
		items := m.st[len(m.st)-n:]
		m.st = m.st[:len(m.st)-n]
		return pos + 1, m.pushSeq(KindTuple, items, int(items[0].start), pos)
	case opTuple, opList, opFrozenSet, opDict:
		start := 0
		if k := len(m.marks) - 1; k >= 0 {
			start = m.marks[k].pos
		}
		items, err := m.popMark(pos)
		if err != nil {
			return pos, err
		}
		switch op {
		case opTuple:
			err = m.pushSeq(KindTuple, items, start, pos)
		case opFrozenSet:
			err = m.pushSeq(KindFrozenSet, items, start, pos)
		case opList:
			err = m.pushSeq(KindList, items, start, pos)
		default:
			if len(items)%2 != 0 {
				return pos, d.fail(pos, ErrCorrupt, "a dict's keys and values are %d, an odd number", len(items))
			}
			if err = m.hashable(items, pos); err == nil {
				err = m.pushSeq(KindDict, items, start, pos)
			}
		}
		return pos + 1, err
	case opAddItems:
		items, err := m.popMark(pos)
		if err != nil {
			return pos, err
		}
		if len(m.st) <= m.fence {
			return pos, m.under(pos)
		}
		if err := d.fixEnds(items, pos); err != nil {
			return pos, err
		}
		t := &m.st[len(m.st)-1]
		switch {
		case t.c.kind() == ckDeferred || t.c.kind() == ckMemoRef:
			return pos + 1, m.touched(t, pos)
		case t.c.kind() == ckNode:
			if skip, err := m.mayChange(t, pos); skip || err != nil {
				return pos + 1, err
			}
		}
		switch {
		case t.c.kind() == ckNode && (d.node(t.c).kind == KindSet || d.node(t.c).kind == KindObject):
			return pos + 1, d.addCells(d.node(t.c), items)
		}
		return pos, d.fail(pos, ErrCorrupt, "ADDITEMS on a value that is no set")
	case opPop:
		if len(m.st) == m.fence && len(m.marks) > 0 {
			_, err := m.popMark(pos)
			return pos + 1, err
		}
		if !m.have(1) {
			return pos, m.under(pos)
		}
		if err := d.fixEnds(m.st[len(m.st)-1:], pos); err != nil {
			return pos, err
		}
		m.st = m.st[:len(m.st)-1]
		return pos + 1, nil
	case opPopMark:
		_, err := m.popMark(pos)
		return pos + 1, err
	case opDup:
		if !m.have(1) {
			return pos, m.under(pos)
		}
		s := m.st[len(m.st)-1]
		if d.lazy {
			return pos, d.fail(pos, ErrOrder, "DUP; read the file with Load and no filter")
		}
		m.push(s.c, int(s.start))
		return pos + 1, nil
	case opBinString, opBinBytes, opBinUnicode8, opBinBytes8, opByteArray8, opShortBinString, opShortBinBytes:
		return m.counted(pos, end)
	case opLong1, opLong4:
		next, err := d.nextOp(pos)
		if err != nil {
			return pos, err
		}
		b := data[pos+2:]
		if op == opLong4 {
			if int32(binary.LittleEndian.Uint32(data[pos+1:])) < 0 {
				return pos, d.fail(pos, ErrCorrupt, "an integer of negative size")
			}
			b = data[pos+5:]
		}
		if next > end {
			return pos, d.cutAt(pos, "an integer")
		}
		n := next - (end - len(b))
		if n <= 8 {
			m.push(intCell(smallLong(b[:n])), pos)
		} else {
			m.push(mkCell(ckLong, 0, next-n, uint64(n)), pos)
		}
		return next, nil
	case opInt, opLong, opFloat, opString, opUnicode:
		return m.textual(pos)
	case opGet:
		idx, next, err := d.getIndex(pos, end)
		if err != nil {
			return pos, err
		}
		return m.get(idx, pos, next)
	case opGlobal:
		if m.flt != nil {
			if err := m.boundary(pos, op); err != nil {
				return pos, err
			}
		}
		c, next, err := d.globalAt(pos)
		if err != nil {
			return pos, err
		}
		m.push(c, pos)
		return next, nil
	case opStackGlobal:
		if !m.have(2) {
			return pos, m.under(pos)
		}
		n := len(m.st)
		if err := d.fixEnds(m.st[n-2:], pos); err != nil {
			return pos, err
		}
		c, err := d.globalFrom(m.st[n-2].c, m.st[n-1].c, pos)
		if err != nil {
			return pos, err
		}
		start := m.st[n-2].start
		m.st = m.st[:n-2]
		m.push(c, int(start))
		return pos + 1, nil
	case opExt1, opExt2, opExt4:
		next, err := d.nextOp(pos)
		if err != nil {
			return pos, err
		}
		var code uint64
		for i, b := range data[pos+1 : next] {
			code |= uint64(b) << (8 * i)
		}
		c, err := d.global("copyreg.extension", strconv.FormatUint(code, 10), false)
		if err != nil {
			return pos, err
		}
		m.push(c, pos)
		return next, nil
	case opPersID:
		line, next, err := d.line(pos + 1)
		if err != nil {
			return pos, err
		}
		m.push(mkCell(ckStr, subNoLen, pos+1, uint64(len(line))), pos)
		return next, m.object(KindPersistent, len(m.st)-1, pos, cell{}, 0)
	case opBinPersID:
		if !m.have(1) {
			return pos, m.under(pos)
		}
		return pos + 1, m.persistent(pos)
	case opNextBuffer:
		m.push(cell{uint64(ckBuffer), uint64(m.buffers)}, pos)
		m.buffers++
		return pos + 1, nil
	case opReadonlyBuffer:
		if !m.have(1) {
			return pos, m.under(pos)
		}
		return pos + 1, nil
	case opReduce:
		if !m.have(2) {
			return pos, m.under(pos)
		}
		return pos + 1, m.reduce(pos)
	case opNewObj:
		if !m.have(2) {
			return pos, m.under(pos)
		}
		return pos + 1, m.newObject(pos, false)
	case opNewObjEx:
		if !m.have(3) {
			return pos, m.under(pos)
		}
		return pos + 1, m.newObject(pos, true)
	case opBuild:
		if !m.have(2) {
			return pos, m.under(pos)
		}
		return pos + 1, m.build(pos)
	case opInst, opObj:
		return m.oldInstance(pos)
	}
	return pos, d.fail(pos, ErrCorrupt, "byte 0x%02x is no pickle opcode", op)
}

func (m *machine) pushNode(n node, start int) error {
	c, err := m.d.newNode(n)
	if err != nil {
		return err
	}
	m.push(c, start)
	return nil
}

// pushSeq pushes a container that is made of values popped from the stack.
func (m *machine) pushSeq(k Kind, items []slot, start, pos int) error {
	if err := m.d.fixEnds(items, pos); err != nil {
		return err
	}
	c, err := m.d.newNode(node{id: uint64(pos), aux: uint64(start), kind: k, flags: flagAtStart})
	if err != nil {
		return err
	}
	if k == KindList || k == KindDict {
		n := m.d.node(c)
		n.role = m.roleOf(pos, m.data[pos])
	}
	if len(items) > 0 {
		if err := m.d.addCells(m.d.node(c), items); err != nil {
			return err
		}
	}
	m.push(c, start)
	if r := m.d.node(c).role; r != 0 && k == KindDict {
		m.keyRole, m.keyBase = r, len(m.st)
	}
	if m.d.node(c).role == roleTarget && m.emit != nil && k == KindList && len(items) == 0 {
		m.emit.begin(m)
	} else if k == KindList && len(items) > 0 && m.d.node(c).role == roleTarget {
		m.d.node(c).role = roleItems // made with its elements at once: they are visited at the end
	}
	return nil
}

// counted executes the opcodes of strings and bytes with a length, except the two of the main loop.
func (m *machine) counted(pos, end int) (int, error) {
	d := m.d
	next, err := d.nextOp(pos)
	if err != nil {
		return pos, err
	}
	if next > end {
		return pos, d.cutAt(pos, "a string")
	}
	kind, sub := ckBytes, uint8(subLen4)
	switch m.data[pos] {
	case opShortBinString, opShortBinBytes:
		sub = subLen1
	case opBinUnicode8:
		kind, sub = ckStr, subLen8
	case opBinBytes8:
		sub = subLen8
	case opByteArray8:
		kind, sub = ckByteArray, subLen8
	}
	at := pos + headerSize(sub)
	if op := m.data[pos]; (op == opShortBinString || op == opBinString) && utf8.Valid(m.data[at:next]) {
		kind = ckStr // a Python 2 str: text when it can be
	}
	m.push(mkCell(kind, sub, at, uint64(next-at)), pos)
	if kind == ckStr && m.atKey() {
		return m.key(next, end)
	}
	return next, nil
}

// textual executes the opcodes of protocol 0 whose argument is a line of text.
func (m *machine) textual(pos int) (int, error) {
	d := m.d
	line, next, err := d.line(pos + 1)
	if err != nil {
		return pos, err
	}
	switch m.data[pos] {
	case opInt:
		switch string(line) {
		case "00":
			m.push(boolCell(false), pos)
			return next, nil
		case "01":
			m.push(boolCell(true), pos)
			return next, nil
		}
		fallthrough
	case opLong:
		digits := bytes.TrimSpace(bytes.TrimSuffix(line, []byte("L")))
		if v, ok := parseInt(digits); ok {
			m.push(intCell(v), pos)
			return next, nil
		}
		t := digits
		if len(t) > 0 && (t[0] == '-' || t[0] == '+') {
			t = t[1:]
		}
		for _, c := range t {
			if c < '0' || c > '9' {
				t = nil
				break
			}
		}
		if len(t) == 0 {
			return pos, d.fail(pos, ErrCorrupt, "%q is no integer", clip(line))
		}
		m.push(mkCell(ckLongText, 0, pos+1+bytes.Index(line, digits), uint64(len(digits))), pos)
		return next, nil
	case opFloat:
		v, err := strconv.ParseFloat(string(bytes.TrimSpace(line)), 64)
		if err != nil && !math.IsInf(v, 0) {
			return pos, d.fail(pos, ErrCorrupt, "%q is no float", clip(line))
		}
		m.push(floatCell(v), pos)
		return next, nil
	case opUnicode:
		if bytes.IndexByte(line, '\\') < 0 && isASCII(line) {
			m.push(mkCell(ckStr, subNoLen, pos+1, uint64(len(line))), pos)
			break
		}
		at := len(d.extra)
		d.extra = rawUnicodeUnescape(d.extra, line)
		if err := d.charge(int64(len(d.extra) - at)); err != nil {
			return pos, err
		}
		m.push(mkCell(ckStr, subExtra, at, uint64(len(d.extra)-at)), pos)
	case opString:
		if len(line) < 2 || line[0] != line[len(line)-1] || (line[0] != '\'' && line[0] != '"') {
			return pos, d.fail(pos, ErrCorrupt, "a string without its quotes: %q", clip(line))
		}
		body := line[1 : len(line)-1]
		kind := ckStr
		if bytes.IndexByte(body, '\\') < 0 {
			if !utf8.Valid(body) {
				kind = ckBytes
			}
			m.push(mkCell(kind, subNoLen, pos+2, uint64(len(body))), pos)
			break
		}
		at := len(d.extra)
		var ok bool
		if d.extra, ok = stringUnescape(d.extra, body); !ok {
			return pos, d.fail(pos, ErrCorrupt, "a string with a broken escape: %q", clip(line))
		}
		if err := d.charge(int64(len(d.extra) - at)); err != nil {
			return pos, err
		}
		if !utf8.Valid(d.extra[at:]) {
			kind = ckBytes
		}
		m.push(mkCell(kind, subExtra, at, uint64(len(d.extra)-at)), pos)
	}
	if m.st[len(m.st)-1].c.kind() == ckStr && m.atKey() {
		return m.key(next, len(m.data))
	}
	return next, nil
}

func parseInt(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	v, err := strconv.ParseInt(string(b), 10, 64)
	return v, err == nil
}

// clip shortens outside text for an error message.
func clip(b []byte) []byte {
	if len(b) > 40 {
		return append(append([]byte{}, b[:40]...), "..."...)
	}
	return b
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

// appendRune is utf8.AppendRune that also writes lone surrogates, as Python's "surrogatepass" does.
func appendRune(dst []byte, r rune) []byte {
	if r >= 0xd800 && r <= 0xdfff {
		return append(dst, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
	}
	return utf8.AppendRune(dst, r)
}

// rawUnicodeUnescape decodes Python's raw-unicode-escape: \uXXXX and \UXXXXXXXX after an odd number
// of backslashes; every other byte is a latin-1 character.
func rawUnicodeUnescape(dst, b []byte) []byte {
	for i := 0; i < len(b); {
		if b[i] == '\\' && i+1 < len(b) {
			n := 0
			switch b[i+1] {
			case 'u':
				n = 4
			case 'U':
				n = 8
			}
			if n > 0 && i+2+n <= len(b) {
				if v, err := strconv.ParseUint(string(b[i+2:i+2+n]), 16, 32); err == nil && v <= utf8.MaxRune {
					dst = appendRune(dst, rune(v))
					i += 2 + n
					continue
				}
			}
		}
		dst = utf8.AppendRune(dst, rune(b[i]))
		i++
	}
	return dst
}

// stringUnescape decodes the escapes of a Python 2 string literal.
func stringUnescape(dst, b []byte) ([]byte, bool) {
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			dst = append(dst, b[i])
			continue
		}
		i++
		if i == len(b) {
			return dst, false
		}
		switch c := b[i]; c {
		case '\n':
		case '\\', '\'', '"':
			dst = append(dst, c)
		case 'a':
			dst = append(dst, 7)
		case 'b':
			dst = append(dst, 8)
		case 't':
			dst = append(dst, 9)
		case 'n':
			dst = append(dst, 10)
		case 'v':
			dst = append(dst, 11)
		case 'f':
			dst = append(dst, 12)
		case 'r':
			dst = append(dst, 13)
		case 'x':
			if i+2 >= len(b) {
				return dst, false
			}
			v, err := strconv.ParseUint(string(b[i+1:i+3]), 16, 8)
			if err != nil {
				return dst, false
			}
			dst = append(dst, byte(v))
			i += 2
		case '0', '1', '2', '3', '4', '5', '6', '7':
			v := 0
			j := i
			for ; j < len(b) && j < i+3 && b[j] >= '0' && b[j] <= '7'; j++ {
				v = v*8 + int(b[j]-'0')
			}
			dst = append(dst, byte(v))
			i = j - 1
		default:
			dst = append(dst, '\\', c)
		}
	}
	return dst, true
}
