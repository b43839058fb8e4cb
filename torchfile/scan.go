package torchfile

import (
	"errors"
)

// Stop, returned by a visitor, ends a Scan early without an error.
//
//lint:ignore ST1012 it is a signal and no failure, as fs.SkipAll is
var Stop = errors.New("stop the scan")

// LoadOptions are the choices of [File.Load].
type LoadOptions struct {
	// Path leads from the root to a list whose elements Fields and Except are about: the keys of
	// nested dicts. Empty means that the root is that list.
	Path []string
	// Fields names the keys (of dict elements) or attributes (of object elements) to decode; nil
	// means all. Others are deferred: they are decoded when they are asked for.
	Fields []string
	// Except names keys or attributes to defer although Fields would have them.
	Except []string
}

// ScanOptions are the choices of [File.Scan].
type ScanOptions struct {
	// Path leads from the root to the list whose elements are visited: the keys of nested dicts.
	// Empty means that the root is that list.
	Path []string
	// Fields and Except are as in LoadOptions.
	Fields []string
	Except []string
	// Index keeps where each element stands, so that Doc.Element can decode it again later.
	Index bool
}

// Element is one element of the list that is scanned. Values of it, those of deferred fields
// included, are valid until the visitor returns.
type Element struct {
	Value
	// Ordinal counts the elements from 0.
	Ordinal int
	// Start and End are the element's bytes in the pickle.
	Start, End int64
	// Partial says that the file was cut within this element; only with Options.Salvage.
	Partial bool
}

// Load decodes the pickle. Lists of numbers stay where they are in the file until they are asked
// for, strings always do, and tensors are views: a Doc is an index more than a copy.
//
// When the file is cut and Options.Salvage is set, Load returns what there was together with an
// error that is [ErrIncomplete].
func (f *File) Load(opts LoadOptions) (d *Doc, err error) {
	defer f.leave(f.enter(), &err, &d)
	src, err := f.pickle()
	if err != nil {
		return nil, err
	}
	d = f.newDoc(src)
	m := &machine{d: d, data: src, flt: newFilter(opts.Path, opts.Fields, opts.Except, false), want: -1}
	d.lazy = m.flt != nil
	return d.finish(m)
}

// Scan decodes the pickle and calls visit for each element of the list at opts.Path, in order, as
// soon as it is complete; then it forgets the element, so that memory does not grow with the file.
// In the returned Doc that list is deferred and everything else is decoded.
//
// When the path leads to something else than a list that is written in the usual order (a dict, a
// tuple, a list that is shared with another place), it is decoded whole and then visited.
// An error of visit ends the scan and is returned as it is; [Stop] ends it without an error.
func (f *File) Scan(opts ScanOptions, visit func(Element) error) (d *Doc, err error) {
	defer f.leave(f.enter(), &err, &d)
	src, err := f.pickle()
	if err != nil {
		return nil, err
	}
	d = f.newDoc(src)
	d.lazy = true
	if f.mapped != nil {
		adviseSequential(f.mapped)
	}
	m := &machine{d: d, data: src, flt: newFilter(opts.Path, opts.Fields, opts.Except, true), want: -1}
	m.emit = &emitter{visit: visit, index: opts.Index}
	if f.mapped != nil && f.pickleAt >= 0 && len(src) > 2*readAhead {
		m.emit.owner = f.owned.CompareAndSwap(false, true)
		m.ahead = newScout(f, src, m.emit.owner)
		defer func() {
			if m.ahead.stop() && m.emit.owner {
				f.owned.Store(false)
			}
		}()
	}
	d, err = d.finish(m)
	switch {
	case errors.Is(err, errStopped):
		return d, nil
	case m.emit.failed != nil:
		return d, m.emit.failed
	case d == nil:
		return nil, err
	}
	if e := m.emit.check(d, opts.Path, err); e != nil {
		if errors.Is(e, errStopped) {
			e = nil
		}
		return d, e
	}
	return d, err
}

// newDoc returns a Doc for the file's object.
func (f *File) newDoc(src []byte) *Doc {
	d := newDoc(f, src)
	if f.legacy != nil {
		d.at = f.legacy.start
	}
	return d
}

// finish runs the machine and salvages what there is after a cut.
func (d *Doc) finish(m *machine) (*Doc, error) {
	pos, err := m.run(0, len(m.data))
	d.end = pos
	d.open = nil
	defer func() { d.base = d.height() }()
	if err == nil {
		d.root = m.st[len(m.st)-1].c
		return d, nil
	}
	if !errors.Is(err, ErrIncomplete) || !d.f.opts.Salvage {
		if errors.Is(err, errStopped) || (m.emit != nil && m.emit.failed != nil) {
			m.close(pos)
			d.root = m.top()
			return d, err
		}
		return nil, err
	}
	d.cut = err
	if e := m.salvage(pos); e != nil {
		return d, e
	}
	return d, err
}

// emitter gives the elements of the target list to a visitor, one by one.
type emitter struct {
	visit  func(Element) error
	index  bool
	failed error

	list    cell // the target, once it is met
	count   int
	memo    int // memo slots in use where the element begins
	memoLow int // first memo entry that may refer to an element's nodes
	packed  int // memo pages that were packed

	base    height // what to go back to after each element
	dropped int    // pages of the map before this offset were given back
	owner   bool   // of the map: no other scan gives pages back
}

const (
	dropWindow = 8 << 20
	// maxHeld bounds how many elements are looked at again and again to see whether they are complete.
	maxHeld = 64
)

// begin notes the state at the target list's creation.
func (e *emitter) begin(m *machine) {
	d := m.d
	if e.list.kind() != ckEmpty {
		// A second list at the same path: the machine goes on as for any list.
		d.node(m.st[len(m.st)-1].c).role = roleItems
		return
	}
	e.list = m.st[len(m.st)-1].c
	e.base = d.height()
	e.memoLow = d.memo.n
	d.lowPut = d.memo.n
	// The list and what it is in are not complete while its elements are visited.
	for _, s := range m.st {
		if s.c.kind() == ckNode {
			d.open = append(d.open, s.c.off())
		}
	}
}

// boundary is called before an opcode that begins a list, a dict or a reference to a class. If it
// stands among the target's elements and cannot belong to the one before, that one is complete.
func (m *machine) boundary(pos int, op byte) error {
	if m.emit == nil || m.markRole != roleTarget || len(m.st) <= m.emitted || len(m.st) <= m.fence {
		return nil
	}
	if len(m.st)-m.emitted > maxHeld {
		return nil // they are visited when the batch ends
	}
	top := m.st[len(m.st)-1].c
	for _, s := range m.st[m.emitted:] {
		switch s.c.kind() {
		case ckGlobal:
			return nil // a class whose arguments are being made
		case ckNode:
			if top.kind() != ckNode {
				return nil // top may be a key, and what follows its value
			}
		}
	}
	if top.kind() != ckNode {
		return m.emit.upTo(m, m.st[m.emitted:], pos)
	}
	n := m.d.node(top)
	switch n.kind {
	case KindDict, KindFrozenSet: // what follows is no key
	case KindTuple:
	case KindList, KindSet:
		// A list may go on with one more element, but only after full batches of 1000.
		if op != opEmptyList || n.n == 0 || n.n%1000 == 0 {
			return nil
		}
	default:
		if op != opGlobal {
			return nil // its state may follow
		}
	}
	return m.emit.upTo(m, m.st[m.emitted:], pos)
}

// upTo visits elements and forgets what was decoded for them.
func (e *emitter) upTo(m *machine, items []slot, pos int) error {
	d := m.d
	if err := d.fixEnds(items, pos); err != nil {
		return err
	}
	for i := range items {
		end := pos
		if i+1 < len(items) {
			end = int(items[i+1].start)
		}
		switch items[i].c.kind() { // others are decoded again without the memo's count
		case ckNode:
			var err error
			if e.memo, err = d.memoCountAt(int(items[i].start)); err != nil {
				return err
			}
		case ckDeferred:
			e.memo = items[i].c.deferMemo()
		}
		if err := e.element(m, &items[i], end, false); err != nil {
			return err
		}
	}
	m.emitted = len(m.st)
	return e.forget(m, pos)
}

func (e *emitter) element(m *machine, s *slot, end int, partial bool) error {
	d := m.d
	start := int(s.start)
	if e.index {
		if err := d.charge(24); err != nil {
			return err
		}
		d.elements = append(d.elements, span{start, end, e.memo})
	}
	el := Element{Value: Value{d, s.c}, Ordinal: e.count, Start: int64(start), End: int64(end), Partial: partial}
	e.count++
	if err := d.visiting(e.visit, el); err != nil {
		if errors.Is(err, Stop) {
			return errStopped
		}
		e.failed = err
		return err
	}
	s.c = deferredCell(start, end, e.memo)
	s.c.a |= subEmitted << 8
	return nil
}

// forget gives back what was decoded for the elements visited so far.
func (e *emitter) forget(m *machine, pos int) error {
	d := m.d
	low := min(e.memoLow, d.lowPut)
	for i := low; i < d.memo.n; i++ {
		a := d.memo.get(i)
		if b := e.demote(d, a); b != a {
			d.memo.set(i, b)
		}
	}
	for (e.packed+1)<<pageBits <= d.memo.n {
		d.mem += d.memo.pack(e.packed)
		e.packed++
	}
	if len(d.memoFar) > 0 {
		if err := d.spend(len(d.memoFar)); err != nil {
			return err
		}
		for i, a := range d.memoFar {
			d.memoFar[i] = e.demote(d, a)
		}
	}
	e.memoLow, d.lowPut = d.memo.n, d.memo.n
	d.rewind(e.base)
	if e.owner && pos-e.dropped > dropWindow {
		if to := pos - 64<<10; m.ahead.drop(d.f.pickleAt+e.dropped, d.f.pickleAt+to) {
			e.dropped = to
		}
	}
	if m.ahead != nil {
		m.ahead.at(pos)
	}
	return nil
}

// demote turns a memo entry that refers to something decoded into where that begins.
func (e *emitter) demote(d *Doc, a uint64) uint64 {
	c := cell{a: a}
	switch c.kind() {
	case ckNode:
		if c.off() >= e.base.nodes {
			return mkCell(ckDeferred, 0, d.node(c).start(), 0).a
		}
	case ckAux:
		if c.off() >= e.base.aux {
			return mkCell(ckDeferred, 0, int(d.memoAux[c.off()].start), 0).a
		}
	}
	return a
}

// batch visits what is left of a batch when APPENDS closes it.
func (e *emitter) batch(m *machine, items []slot, pos int) error {
	base := len(m.st)
	list := m.top()
	if list.kind() != ckNode || list.a != e.list.a {
		return nil
	}
	if err := e.upTo(m, items[min(max(m.emitted-base, 0), len(items)):], pos); err != nil {
		return err
	}
	n := m.d.node(e.list)
	n.n += uint32(len(items))
	n.flags |= flagEmitted
	m.d.listEnd = pos + 1
	return nil
}

// one visits a single element that APPEND adds.
func (e *emitter) one(m *machine, items []slot, pos int) error {
	if err := e.upTo(m, items, pos); err != nil {
		return err
	}
	n := m.d.node(e.list)
	n.n++
	n.flags |= flagEmitted
	m.d.listEnd = pos + 1
	return nil
}

func (m *machine) top() cell {
	if len(m.st) == 0 {
		return cell{}
	}
	return m.st[len(m.st)-1].c
}

// visiting calls the visitor; a panic in it is the caller's, not a defect of the reader.
func (d *Doc) visiting(visit func(Element) error, el Element) error {
	d.inVisit = true
	err := visit(el)
	d.inVisit = false
	return err
}

// check makes sure that the list which was streamed is the one the path leads to in the finished
// value, and visits what the path leads to when nothing was streamed.
func (e *emitter) check(d *Doc, path []string, cut error) error {
	at := d.Root()
	for _, key := range path {
		at = at.Field(key)
	}
	c, err := d.force(at.c)
	if at.d == nil || err != nil {
		if cut != nil {
			return cut
		}
		return d.fail(-1, ErrCorrupt, "the path %q leads to nothing", path)
	}
	if e.list.kind() != ckEmpty {
		if c.a == e.list.a {
			return nil
		}
		return d.fail(-1, ErrOrder, "another list than that at path %q was streamed; read the file with Load", path)
	}
	visit := func(v Value) error {
		el := Element{Value: v, Ordinal: e.count}
		e.count++
		err := d.visiting(e.visit, el)
		if errors.Is(err, Stop) {
			return errStopped
		}
		return err
	}
	switch at.Kind() {
	case KindList, KindTuple, KindSet, KindFrozenSet:
		for _, v := range at.All() {
			if err := visit(v); err != nil {
				return err
			}
		}
	case KindDict:
		for _, v := range at.Pairs() {
			if err := visit(v); err != nil {
				return err
			}
		}
	default:
		return d.fail(-1, ErrCorrupt, "the path %q leads to a value of kind %s, not to a list", path, at.Kind())
	}
	return nil
}

// force resolves a deferred value; other cells are returned as they are.
func (d *Doc) force(c cell) (cell, error) {
	want := -1
	switch c.kind() {
	case ckDeferred:
	case ckMemoRef:
		want = int(c.b)
	default:
		return c, nil
	}
	key := [2]uint64{c.a, c.b}
	if r, ok := d.resolved[key]; ok {
		return r.c, r.err
	}
	err := d.charge(64)
	end, at := 0, 0
	if want < 0 {
		end, at = c.off()+c.deferLen(), c.deferMemo()
	} else if err == nil {
		at, err = d.memoCountAt(c.off())
	}
	var r cell
	if err == nil {
		r, err = d.replay(c.off(), end, want, at)
	}
	d.resolved[key] = resolution{r, err}
	return r, err
}

// maxReplays bounds how deferred values may need each other while they are decoded.
const maxReplays = 100

// replay decodes the value that begins at start again: up to end, or, when it is the value of the
// memo slot want, until what follows no longer belongs to it.
func (d *Doc) replay(start, end, want, memoAt int) (cell, error) {
	if d.depth >= maxReplays {
		return cell{}, d.fail(start, ErrLimit, "deferred values need each other more than %d deep", maxReplays)
	}
	d.depth++
	defer func() { d.depth-- }()
	m := machine{d: d, data: d.src, replay: true, want: want, memoAt: memoAt, base: len(d.nodes)}
	to := end
	if want >= 0 {
		to = len(d.src)
	}
	pos, err := m.run(start, to)
	switch {
	case want < 0 && err == nil && d.cut != nil && (len(m.st) != 1 || len(m.marks) > 0):
		m.close(pos) // what the cut left of it
		if m.result = m.top(); len(m.st) == 0 {
			err = d.fail(start, ErrIncomplete, "the pickle ends within a value")
		}
	case want < 0 && err == nil && (len(m.st) != 1 || len(m.marks) > 0):
		err = d.fail(start, ErrCorrupt, "a deferred value does not end where it should")
	case want < 0 && errors.Is(err, errUnderflow):
		err = d.fail(start, ErrCorrupt, "a deferred value takes more than belongs to it")
	case want < 0:
		m.result = m.top()
	case m.seen && (err == nil || errors.Is(err, errUnderflow)):
		err = nil
		if pos == to { // the cut is in it, or in what follows
			m.close(pos)
		}
	case m.seen && errors.Is(err, ErrIncomplete):
		m.close(pos)
		err = nil
	case err == nil || errors.Is(err, errUnderflow):
		err = d.fail(start, ErrCorrupt, "a deferred value is not where the memo says")
	}
	if err != nil {
		return cell{}, err
	}
	return d.force(m.result)
}

// close finishes the containers that are open at a cut, innermost first, as if their batches had
// been closed there.
func (m *machine) close(pos int) {
	for len(m.marks) > 0 {
		m.closeMark(pos)
	}
	m.closeTail(0, pos)
}

func (m *machine) closeMark(pos int) {
	k := len(m.marks) - 1
	mk := m.marks[k]
	m.closeTail(mk.base, pos)
	items := append([]slot(nil), m.st[mk.base:]...)
	m.st = m.st[:mk.base]
	m.marks = m.marks[:k]
	m.markRole, m.keyRole, m.keyBase, m.emitted = mk.markRole, mk.keyRole, mk.keyBase, mk.emitted
	m.fence = 0
	if k > 0 {
		m.fence = m.marks[k-1].base
	}
	if len(m.st) > m.fence && m.top().kind() == ckNode {
		n := m.d.node(m.top())
		t := &m.st[len(m.st)-1]
		switch n.kind {
		case KindDict:
			if m.setItems(t, items[:len(items)&^1], pos) == nil {
				return
			}
		case KindList, KindSet:
			if n.role == roleTarget && m.emit != nil {
				return
			}
			if m.d.fixEnds(items, pos) == nil && m.d.addCells(n, items) == nil {
				return
			}
		}
	}
	_ = m.pushSeq(KindTuple, items, mk.pos, pos)
}

// closeTail folds what stands above height base without a mark: an object whose state is open, the
// last key and value of a dict, the last element of a list.
func (m *machine) closeTail(base, pos int) {
	for len(m.st)-base >= 2 {
		n := len(m.st)
		x := m.st[n-2].c
		if x.kind() != ckNode {
			break
		}
		nd := m.d.node(x)
		if nd.kind != KindObject || nd.ext == 0 || m.d.exts[nd.ext].state.kind() != ckEmpty || m.st[n-1].c.kind() != ckNode {
			break
		}
		m.d.exts[nd.ext].state = m.st[n-1].c
		m.st = m.st[:n-1]
	}
	if base > 0 {
		return
	}
	for len(m.st) > 1 {
		n := len(m.st)
		x := m.st[n-2].c
		var y *node
		if n >= 3 && m.st[n-3].c.kind() == ckNode {
			y = m.d.node(m.st[n-3].c)
		}
		switch {
		case x.kind() == ckNode && m.d.node(x).kind == KindList && m.d.node(x).role != roleTarget:
			_ = m.d.fixEnds(m.st[n-1:], pos)
			_ = m.d.addCells(m.d.node(x), m.st[n-1:n])
			m.st = m.st[:n-1]
		case y != nil && y.kind == KindDict:
			_ = m.d.fixEnds(m.st[n-2:], pos)
			_ = m.d.addCells(y, m.st[n-2:n])
			m.st = m.st[:n-2]
		default:
			m.st = m.st[:n-1]
		}
	}
}

// salvage finishes what is open at a cut and visits the elements that are left, the last of them
// as a partial one.
func (m *machine) salvage(pos int) error {
	e := m.emit
	if e != nil && e.list.kind() != ckEmpty {
		for len(m.marks) > 0 && !(m.markRole == roleTarget && m.st[m.fence-1].c.a == e.list.a) {
			m.closeMark(pos)
		}
		if len(m.marks) > 0 {
			base := m.marks[len(m.marks)-1].base
			m.closeTail(base, pos)
			items := m.st[max(m.emitted, base):]
			if err := m.d.fixEnds(items, pos); err != nil {
				return err
			}
			for i := range items {
				end := pos
				if i+1 < len(items) {
					end = int(items[i+1].start)
				}
				if err := e.element(m, &items[i], end, i == len(items)-1); err != nil {
					return err
				}
			}
			n := m.d.node(e.list)
			n.n += uint32(len(m.st) - base)
			n.flags |= flagEmitted
			m.d.listEnd = pos
		}
	}
	m.close(pos)
	m.d.root = m.top()
	return nil
}
