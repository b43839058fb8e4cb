package torchfile

import (
	"encoding/binary"
	"sort"
)

// Doc is what one Load or Scan decoded: the root value, the names of the classes that the pickle
// mentions, and, after a salvaged cut, the error. A Doc decodes deferred values when they are asked
// for, so it is not safe for concurrent use; different Docs of one File are.
type Doc struct {
	f   *File
	src []byte // the pickle
	at  int    // where it begins in a file without records
	lim Limits

	nodes []node
	exts  []ext // exts[0] is unused
	cells arena

	memo    memoTable         // slot -> cell.a of the value, see remember
	memoFar map[uint32]uint64 // slots far beyond the end of memo
	lowPut  int               // lowest slot assigned out of order since the last element
	counts  bool              // MEMOIZE occurs: slots depend on how many there were before
	memoLen int               // slots in use: what MEMOIZE assigns next
	memoAux []slot            // values that do not fit in a memo entry
	puts    []uint64          // where the 1st, 65th, 129th ... slot was assigned, for MEMOIZE

	classes  []classInfo
	classIdx map[string]int
	extra    []byte // unescaped text of protocol 0

	ops, mem int64
	depth    int // of nested resolves
	resolved map[[2]uint64]resolution
	open     []int // nodes around the elements that are streamed
	lazy     bool  // there are deferred values
	inVisit  bool  // the caller's code runs

	root     cell
	cut      error
	end      int
	elements []span
	listEnd  int    // where the streamed list ends
	base     height // after the scan
}

type classInfo struct {
	Class
	known known
	attr  bool // reached by getattr from another name
}

type span struct {
	start, end int
	memo       int // slots in use at start
}

type resolution struct {
	c   cell
	err error
}

func newDoc(f *File, src []byte) *Doc {
	d := &Doc{f: f, src: src, lim: f.opts.Limits.withDefaults(len(src))}
	d.nodes = make([]node, 0, 64)
	d.exts = make([]ext, 1, 8)
	d.classIdx = make(map[string]int)
	d.resolved = make(map[[2]uint64]resolution)
	return d
}

// Root is the pickled value; after a cut, what there was of it.
func (d *Doc) Root() Value { return Value{d, d.root} }

// Cut is the error that ended a salvaged read early, nil when the pickle was complete.
func (d *Doc) Cut() error { return d.cut }

// Size is the number of bytes of pickle that were read, including the STOP opcode.
func (d *Doc) Size() int64 { return int64(d.end) }

// GlobalRef is a class or function that a pickle mentions.
type GlobalRef struct {
	Class
	// Known says that this package gives the name a meaning (tensors, arrays, OrderedDict, ...).
	// Others are opaque: their arguments and state can be read, nothing more.
	Known bool
}

// Globals lists the classes and functions that the pickle mentions, those in deferred values
// included, sorted by name. None of them was imported or called.
func (d *Doc) Globals() []GlobalRef {
	out := make([]GlobalRef, 0, len(d.classes))
	for _, c := range d.classes {
		out = append(out, GlobalRef{c.Class, c.known != knOpaque})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].String() < out[j].String() })
	return out
}

// Elements is the number of elements that a Scan with Index recorded.
func (d *Doc) Elements() int { return len(d.elements) }

// Element decodes element i of a Scan with Index again, without a filter. The value, and whatever was
// decoded of deferred values of the Doc, is valid until the next call.
func (d *Doc) Element(i int) (v Value, err error) {
	if i < 0 || i >= len(d.elements) {
		return Value{}, &Error{File: d.f.name, Offset: -1, Sort: ErrCorrupt,
			What: "no such element; Scan must have run with Index"}
	}
	defer d.f.leave(d.f.enter(), &err, nil)
	d.rewind(d.base)
	d.ops = 0
	s := d.elements[i]
	c, err := d.replay(s.start, s.end, -1, s.memo)
	return Value{d, c}, err
}

// height is how far a Doc's tables are filled.
type height struct {
	nodes, exts, aux, extra int
	cells                   arenaMark
}

func (d *Doc) height() height {
	return height{len(d.nodes), len(d.exts), len(d.memoAux), len(d.extra), d.cells.mark()}
}

// rewind forgets what was decoded since h was taken.
func (d *Doc) rewind(h height) {
	d.nodes = d.nodes[:h.nodes]
	d.exts = d.exts[:h.exts]
	d.memoAux = d.memoAux[:h.aux]
	d.extra = d.extra[:h.extra]
	d.mem -= d.cells.reset(h.cells)
	clear(d.resolved)
}

// charge accounts n bytes of memory.
func (d *Doc) charge(n int64) error {
	d.mem += n
	if d.mem > d.lim.MaxMemory {
		return d.fail(-1, ErrLimit, "decoding needs more than Limits.MaxMemory (%d bytes)", d.lim.MaxMemory)
	}
	return nil
}

func (d *Doc) fail(pos int, sort error, format string, args ...any) *Error {
	e := d.f.errorf(sort, format, args...)
	e.Record = d.f.pickleName
	e.Offset = int64(pos)
	if pos >= 0 && e.Record == "" {
		e.Offset += int64(d.at)
	}
	return e
}

// spend accounts n opcodes.
func (d *Doc) spend(n int) error {
	d.ops += int64(n)
	if d.ops > d.lim.MaxOps {
		return d.fail(-1, ErrLimit, "decoding needs more than Limits.MaxOps (%d) opcodes", d.lim.MaxOps)
	}
	return nil
}

func (d *Doc) newNode(n node) (cell, error) {
	had := cap(d.nodes)
	d.nodes = append(d.nodes, n)
	if c := cap(d.nodes); c != had {
		if err := d.charge(int64(c-had) * nodeSize); err != nil {
			return cell{}, err
		}
	}
	return mkCell(ckNode, 0, len(d.nodes)-1, 0), nil
}

func (d *Doc) node(c cell) *node { return &d.nodes[c.off()] }

// extOf returns the node's extension, making one when it has none.
func (d *Doc) extOf(n *node) (*ext, error) {
	if n.ext == 0 {
		had := cap(d.exts)
		d.exts = append(d.exts, ext{})
		if c := cap(d.exts); c != had {
			if err := d.charge(int64(c-had) * extSize); err != nil {
				return nil, err
			}
		}
		n.ext = uint32(len(d.exts) - 1)
	}
	return &d.exts[n.ext], nil
}

// grow makes room for add more cells in a list and returns the part to fill.
func (d *Doc) grow(l *listRef, add int) ([]cell, error) {
	want := int(l.n) + add
	if want > 1<<31 {
		return nil, d.fail(-1, ErrLimit, "a container has more than 2^31 cells")
	}
	if want > int(l.size) {
		if d.cells.extend(l.ref, int(l.size), want) {
			l.size = uint32(want)
		} else {
			size := want
			if l.size > 0 {
				size = max(want, 2*int(l.size))
			}
			ref, grown := d.cells.alloc(size)
			if err := d.charge(grown); err != nil {
				return nil, err
			}
			copy(d.cells.at(ref, want), d.cells.at(l.ref, int(l.n)))
			l.ref, l.size = ref, uint32(size)
		}
	}
	old := int(l.n)
	l.n = uint32(want)
	return d.cells.at(l.ref, want)[old:], nil
}

// addCells appends the slots' values to a node's cells.
func (d *Doc) addCells(n *node, items []slot) error {
	if n.flags&flagRun != 0 {
		if err := d.unrun(n); err != nil {
			return err
		}
	}
	l := listRef{n.ref, n.n, n.size}
	to, err := d.grow(&l, len(items))
	if err != nil {
		return err
	}
	for i := range items {
		to[i] = items[i].c
	}
	n.ref, n.n, n.size = l.ref, l.n, l.size
	return nil
}

// unrun turns a packed run into cells, because something else is appended to the list.
func (d *Doc) unrun(n *node) error {
	cur := runCursor{d.src, int(n.ref), int(n.aux)}
	count := int(n.n)
	ref, grown := d.cells.alloc(count)
	if err := d.charge(grown); err != nil {
		return err
	}
	to := d.cells.at(ref, count)
	for i := range to {
		to[i], _ = cur.next()
	}
	n.ref, n.size = ref, uint32(count)
	n.flags &^= flagRun
	n.aux, n.what = 0, 0
	return nil
}

// memoCountAt returns how many memo slots were in use before offset off. Only pickles of protocol 4
// and 5 need it: MEMOIZE does not say which slot it assigns.
func (d *Doc) memoCountAt(off int) (int, error) {
	if !d.counts {
		return 0, nil
	}
	// The last checkpoint before off: at puts[i] the opcode assigned one more slot than i*64.
	i := sort.Search(len(d.puts), func(i int) bool { return int(d.puts[i]) >= off }) - 1
	pos, n := 0, 0
	if i >= 0 {
		pos, n = int(d.puts[i]), i*64
	}
	for pos < off {
		if err := d.spend(1); err != nil {
			return 0, err
		}
		op := d.src[pos]
		next, err := d.nextOp(pos)
		if err != nil {
			return 0, err
		}
		switch op {
		case opMemoize, opBinPut, opLongBinPut, opPut:
			n++ // each its own slot: deferring values does not allow a slot to be assigned twice
		}
		if op == opMark {
			next, _, _ = scanRun(d.src, next)
		}
		pos = next
	}
	return n, nil
}

// nextOp returns where the opcode after the one at pos begins.
func (d *Doc) nextOp(pos int) (int, error) {
	b := d.src
	op := b[pos]
	size := 1
	switch op {
	case opBinInt1, opBinGet, opBinPut, opProto, opExt1:
		size = 2
	case opBinInt2, opExt2:
		size = 3
	case opBinInt, opLongBinGet, opLongBinPut, opExt4:
		size = 5
	case opBinFloat, opFrame:
		size = 9
	case opShortBinUnicode, opShortBinString, opShortBinBytes, opLong1:
		if pos+2 > len(b) {
			return 0, d.cutAt(pos, "the length of a short string")
		}
		size = 2 + int(b[pos+1])
	case opBinUnicode, opBinString, opBinBytes, opLong4:
		if pos+5 > len(b) {
			return 0, d.cutAt(pos, "the length of a string")
		}
		size = 5 + int(binary.LittleEndian.Uint32(b[pos+1:]))
	case opBinUnicode8, opBinBytes8, opByteArray8:
		if pos+9 > len(b) {
			return 0, d.cutAt(pos, "the length of a string")
		}
		n := binary.LittleEndian.Uint64(b[pos+1:])
		if n > maxOffset {
			return 0, d.fail(pos, ErrCorrupt, "a string of %d bytes", n)
		}
		size = 9 + int(n)
	case opInt, opLong, opFloat, opString, opUnicode, opPersID, opGet, opPut:
		_, next, err := d.line(pos + 1)
		return next, err
	case opGlobal, opInst:
		_, next, err := d.line(pos + 1)
		if err == nil {
			_, next, err = d.line(next)
		}
		return next, err
	}
	if pos+size > len(b) {
		return 0, d.cutAt(pos, "an opcode's argument")
	}
	return pos + size, nil
}

// cutAt is the error of a pickle that ends inside what.
func (d *Doc) cutAt(pos int, what string) error {
	return d.fail(pos, ErrIncomplete, "the pickle ends within %s: still being written or cut", what)
}
