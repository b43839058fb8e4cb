package torchfile

import (
	"bytes"
	"strings"
)

// known is the meaning that this package gives to a class or function. The meaning is applied to
// data only: nothing that a pickle names is ever imported, looked up or called.
type known uint8

const (
	knOpaque known = iota
	knOther        // understood by views, with no effect on decoding
	knGetattr
	knEncode
	knBytes
	knByteArray
	knSet
	knFrozenSet
	knComplex
	knDict // OrderedDict, defaultdict, Counter
	knTensor
	knParameter
	knSparse
	knFromType
	knSize
	knReconstructor
	knNewObj
	knNewObjEx
	knNDArray
	knNPScalar
	knLoadBytes
)

func knownName(module, name string) known {
	switch module {
	case "builtins":
		switch name {
		case "getattr":
			return knGetattr
		case "bytes":
			return knBytes
		case "bytearray":
			return knByteArray
		case "set":
			return knSet
		case "frozenset":
			return knFrozenSet
		case "complex":
			return knComplex
		case "object", "list", "dict", "tuple", "int", "float", "str", "bool", "slice", "range", "Ellipsis",
			"NotImplemented", "type", "len":
			return knOther
		}
	case "_codecs":
		if name == "encode" {
			return knEncode
		}
	case "collections":
		switch name {
		case "OrderedDict", "defaultdict", "Counter":
			return knDict
		case "deque":
			return knOther
		}
	case "copyreg":
		switch name {
		case "_reconstructor":
			return knReconstructor
		case "__newobj__":
			return knNewObj
		case "__newobj_ex__":
			return knNewObjEx
		}
	case "torch._utils":
		switch name {
		case "_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor",
			"_rebuild_meta_tensor_no_storage", "_rebuild_device_tensor_from_numpy":
			return knTensor
		case "_rebuild_parameter", "_rebuild_parameter_with_state":
			return knParameter
		case "_rebuild_sparse_tensor", "_rebuild_sparse_csr_tensor":
			return knSparse
		}
	case "torch._tensor":
		switch name {
		case "_rebuild_from_type", "_rebuild_from_type_v2":
			return knFromType
		}
	case "torch.serialization":
		if name == "_get_layout" {
			return knOther
		}
	case "torch.storage":
		if name == "_load_from_bytes" {
			return knLoadBytes
		}
		return knOther
	case "torch":
		if name == "Size" {
			return knSize
		}
		if name == "device" || torchDType(name) != 0 || strings.HasSuffix(name, "Storage") {
			return knOther
		}
	case "torch.nn.parameter":
		if name == "Parameter" {
			return knOther
		}
	case "numpy.core.multiarray":
		switch name {
		case "_reconstruct":
			return knNDArray
		case "scalar":
			return knNPScalar
		}
	case "numpy.core.numeric":
		if name == "_frombuffer" {
			return knNDArray
		}
	case "numpy":
		return knOther
	case "datetime":
		switch name {
		case "datetime", "date", "time", "timedelta", "timezone":
			return knOther
		}
	case "decimal", "fractions", "uuid", "pathlib":
		switch name {
		case "Decimal", "Fraction", "UUID", "PurePosixPath", "PosixPath", "PureWindowsPath", "WindowsPath":
			return knOther
		}
	}
	return knOpaque
}

// python3Name renames what protocols 0 to 2 write for Python 2's sake, and numpy 2's new module.
func python3Name(module, name string) (string, string) {
	switch module {
	case "__builtin__":
		module = "builtins"
		switch name {
		case "xrange":
			name = "range"
		case "unicode":
			name = "str"
		case "long":
			name = "int"
		case "reduce":
			module = "functools"
		case "intern":
			module = "sys"
		case "unichr":
			name = "chr"
		case "basestring":
			name = "str"
		}
	case "exceptions":
		module = "builtins"
		if name == "StandardError" {
			name = "Exception"
		}
	case "copy_reg":
		module = "copyreg"
	case "Queue":
		module = "queue"
	case "SocketServer":
		module = "socketserver"
	case "ConfigParser":
		module = "configparser"
	case "repr":
		module = "reprlib"
	case "tkFileDialog":
		module = "tkinter.filedialog"
	case "itertools":
		switch name {
		case "izip":
			module, name = "builtins", "zip"
		case "imap":
			module, name = "builtins", "map"
		case "ifilter":
			module, name = "builtins", "filter"
		case "izip_longest":
			name = "zip_longest"
		case "ifilterfalse":
			name = "filterfalse"
		}
	case "UserDict", "UserList", "UserString", "__collections__", "_abcoll":
		module = "collections"
		if name == "IterableUserDict" {
			name = "UserDict"
		}
	case "whichdb", "anydbm":
		module = "dbm"
	case "cPickle":
		module = "pickle"
	case "cStringIO", "StringIO":
		module = "io"
	case "urlparse", "robotparser":
		module = "urllib.parse"
	case "urllib", "urllib2":
		switch name {
		case "quote", "quote_plus", "unquote", "unquote_plus", "urlencode":
			module = "urllib.parse"
		case "ContentTooShortError", "HTTPError", "URLError":
			module = "urllib.error"
		default:
			module = "urllib.request"
		}
	case "httplib":
		module = "http.client"
	case "Cookie":
		module = "http.cookies"
	case "cookielib":
		module = "http.cookiejar"
	case "HTMLParser":
		module = "html.parser"
	case "htmlentitydefs":
		module = "html.entities"
	case "multiprocessing.process":
		module = "multiprocessing.context"
	case "numpy._core.multiarray", "numpy.core._multiarray_umath", "numpy._core._multiarray_umath":
		module = "numpy.core.multiarray"
	case "numpy._core.numeric":
		module = "numpy.core.numeric"
	}
	return module, name
}

// global interns a class or function.
func (d *Doc) global(module, name string, attr bool) (cell, error) {
	key := module + "\x00" + name
	if i, ok := d.classIdx[key]; ok {
		if attr {
			d.classes[i].attr = true
		}
		return mkCell(ckGlobal, 0, i, 0), nil
	}
	if err := d.charge(int64(len(key)) + 128); err != nil {
		return cell{}, err
	}
	i := len(d.classes)
	kn := knOpaque
	if !attr {
		kn = knownName(module, name)
	}
	d.classes = append(d.classes, classInfo{Class{module, name}, kn, attr})
	d.classIdx[key] = i
	return mkCell(ckGlobal, 0, i, 0), nil
}

// globalAt executes GLOBAL: two lines of text.
func (d *Doc) globalAt(pos int) (cell, int, error) {
	module, next, err := d.line(pos + 1)
	if err != nil {
		return cell{}, pos, err
	}
	name, next, err := d.line(next)
	if err != nil {
		return cell{}, pos, err
	}
	m, n := python3Name(string(module), string(name))
	c, err := d.global(m, n, false)
	return c, next, err
}

// globalFrom executes STACK_GLOBAL.
func (d *Doc) globalFrom(module, name cell, pos int) (cell, error) {
	module, err := d.force(module)
	if err == nil {
		name, err = d.force(name)
	}
	if err != nil {
		return cell{}, err
	}
	if module.kind() != ckStr || name.kind() != ckStr {
		return cell{}, d.fail(pos, ErrCorrupt, "a global whose name is no string")
	}
	m, n := python3Name(string(d.rawBytes(module)), string(d.rawBytes(name)))
	return d.global(m, n, false)
}

func (d *Doc) class(c cell) *classInfo { return &d.classes[c.off()] }

// known is the meaning of a callable, knOpaque for anything that is not a global.
func (d *Doc) known(c cell) known {
	if c.kind() != ckGlobal {
		return knOpaque
	}
	return d.class(c).known
}

// tupleItems returns the cells of a tuple; nil for anything else. Deferred items stay deferred.
func (d *Doc) tupleItems(c cell) []cell {
	c, err := d.force(c)
	if err != nil || c.kind() != ckNode {
		return nil
	}
	n := d.node(c)
	if n.kind != KindTuple {
		return nil
	}
	return d.cells.at(n.ref, int(n.n))
}

// forced returns item i of items with deferral resolved; an empty cell when there is none.
func (d *Doc) forced(items []cell, i int) cell {
	if i >= len(items) {
		return cell{}
	}
	c, err := d.force(items[i])
	if err != nil {
		return cell{}
	}
	return c
}

// object replaces the stack's values from height at by a new object of kind k.
func (m *machine) object(k Kind, at, pos int, class cell, flags uint8, args ...cell) error {
	d := m.d
	start := m.st[at].start
	items := m.st[at:]
	if err := d.fixEnds(items, pos); err != nil {
		return err
	}
	var a, kw cell
	switch {
	case len(args) > 0:
		a = args[0]
	case len(items) == 1:
		a = items[0].c
	default:
		a = items[1].c
	}
	if len(items) > 2 {
		kw = items[2].c
	}
	c, err := d.newNode(node{id: uint64(pos), aux: start, kind: k, flags: flags | flagAtStart})
	if err != nil {
		return err
	}
	n := d.node(c)
	e, err := d.extOf(n)
	if err != nil {
		return err
	}
	e.class, e.args, e.kwargs = class, a, kw
	m.st = m.st[:at]
	if m.flt != nil && k == KindObject {
		n.role = m.roleOf(pos, opNewObj)
	}
	m.push(c, int(start))
	return nil
}

// persistent executes BINPERSID. A torch storage is the tuple
// ("storage", storage class, key, location, element count[, view]).
func (m *machine) persistent(pos int) error {
	k := KindPersistent
	items := m.d.tupleItems(m.st[len(m.st)-1].c)
	if len(items) >= 5 {
		if s := m.d.forced(items, 0); s.kind() == ckStr && string(m.d.rawBytes(s)) == "storage" {
			k = KindStorage
		}
	}
	return m.object(k, len(m.st)-1, pos, cell{}, 0)
}

// replaceTop replaces the top n values by c.
func (m *machine) replaceTop(n int, c cell) {
	at := len(m.st) - n
	start := m.st[at].start
	m.st = m.st[:at]
	m.push(c, int(start))
}

// reduce executes REDUCE: a callable and its arguments become the value that the call would have
// made when it is one of the few whose result is plain data, and an object that holds both otherwise.
func (m *machine) reduce(pos int) error {
	d := m.d
	at := len(m.st) - 2
	if err := d.fixEnds(m.st[at:], pos); err != nil {
		return err
	}
	fn, err := d.force(m.st[at].c)
	if err != nil {
		return err
	}
	args := m.st[at+1].c
	kn := d.known(fn)
	if kn == knOpaque || kn == knOther {
		return m.object(KindObject, at, pos, fn, flagReduce)
	}
	items := d.tupleItems(args)
	first := d.forced(items, 0)
	switch kn {
	case knGetattr:
		name := d.forced(items, 1)
		if len(items) == 2 && first.kind() == ckGlobal && name.kind() == ckStr {
			of := d.class(first).Class
			if len(of.Name)+int(name.b) > 4096 {
				return d.fail(pos, ErrLimit, "a qualified name longer than 4096 bytes")
			}
			c, err := d.global(of.Module, of.Name+"."+string(d.rawBytes(name)), true)
			if err != nil {
				return err
			}
			m.replaceTop(2, c)
			return nil
		}
	case knEncode:
		enc := d.forced(items, 1)
		if first.kind() == ckStr && (len(items) == 1 || enc.kind() == ckStr) {
			sub := first.sub()
			if len(items) == 2 && isLatin1(d.rawBytes(enc)) {
				sub |= subLatin
			}
			// The length field of a string serves the memo only when the bytes are the string's.
			m.replaceTop(2, mkCell(ckBytes, sub, first.off(), first.b))
			return nil
		}
	case knBytes, knByteArray:
		k := ckBytes
		if kn == knByteArray {
			k = ckByteArray
		}
		switch {
		case len(items) == 0:
			m.replaceTop(2, mkCell(k, subNoLen, pos, 0))
			return nil
		case len(items) == 1 && first.kind() == ckBytes:
			m.replaceTop(2, mkCell(k, first.sub(), first.off(), first.b))
			return nil
		case len(items) == 2 && first.kind() == ckStr:
			sub := first.sub()
			if enc := d.forced(items, 1); enc.kind() == ckStr && isLatin1(d.rawBytes(enc)) {
				sub |= subLatin
			}
			m.replaceTop(2, mkCell(k, sub, first.off(), first.b))
			return nil
		}
	case knSet, knFrozenSet:
		k := KindSet
		if kn == knFrozenSet {
			k = KindFrozenSet
		}
		if len(items) == 0 {
			return m.copySeq(k, cell{}, pos)
		}
		if first.kind() == ckNode && (d.node(first).kind == KindList || d.node(first).kind == KindTuple) {
			return m.copySeq(k, first, pos)
		}
	case knComplex:
		if len(items) == 2 {
			return m.object(KindComplex, at, pos, fn, flagReduce, args)
		}
	case knDict:
		return m.dictObject(at, pos, fn, items)
	case knSize:
		if first.kind() == ckNode && (d.node(first).kind == KindTuple || d.node(first).kind == KindList) {
			if err := m.copySeq(KindTuple, first, pos); err != nil {
				return err
			}
			n := d.node(m.st[len(m.st)-1].c)
			e, err := d.extOf(n)
			if err != nil {
				return err
			}
			e.class = fn
			return nil
		}
	case knTensor, knParameter, knSparse, knFromType:
		return m.object(KindTensor, at, pos, fn, flagReduce)
	case knNDArray:
		return m.object(KindNDArray, at, pos, fn, flagReduce)
	case knNPScalar:
		return m.object(KindNPScalar, at, pos, fn, flagReduce)
	case knLoadBytes:
		return m.object(KindStorage, at, pos, fn, flagReduce)
	case knReconstructor:
		if len(items) == 3 && first.kind() == ckGlobal {
			return m.reconstruct(at, pos, first, d.forced(items, 1), d.forced(items, 2))
		}
	case knNewObj, knNewObjEx:
		if len(items) > 0 && first.kind() == ckGlobal {
			if kn == knNewObjEx && len(items) == 3 {
				return m.object(KindObject, at, pos, first, 0, items[1])
			}
			rest := make([]slot, len(items)-1)
			for i := range rest {
				rest[i].c = items[i+1]
			}
			start := int(m.st[at].start)
			m.st = m.st[:at]
			if err := m.pushSeq(KindTuple, rest, start, pos); err != nil {
				return err
			}
			return m.object(KindObject, len(m.st)-1, pos, first, 0)
		}
	}
	return m.object(KindObject, at, pos, fn, flagReduce)
}

// reconstruct makes the instance of copyreg._reconstructor(class, base, value), by which protocols 0
// and 1 write objects: value is what the instance of a builtin type holds.
func (m *machine) reconstruct(at, pos int, class, base, value cell) error {
	d := m.d
	if err := m.object(KindObject, at, pos, class, 0, cell{}); err != nil {
		return err
	}
	if base.kind() == ckGlobal && d.class(base).Class == (Class{"builtins", "object"}) {
		return nil
	}
	n := d.node(m.top())
	e := &d.exts[n.ext]
	if value.kind() == ckNode {
		from := d.node(value)
		switch from.kind {
		case KindTuple:
			e.args = value
			return nil
		case KindDict:
			e.pairs = listRef{ref: from.ref, n: from.n} // shared: size 0 keeps it from growing there
			return nil
		case KindList:
			if from.flags&flagRun != 0 {
				if err := d.unrun(from); err != nil {
					return err
				}
			}
			n.ref, n.n, n.size = from.ref, from.n, 0
			return nil
		}
	}
	// A number, a string: as the only argument.
	c, err := d.newNode(node{id: uint64(pos), aux: m.st[len(m.st)-1].start, kind: KindTuple, flags: flagAtStart})
	if err != nil {
		return err
	}
	e.args = c
	return d.addCells(d.node(c), []slot{{c: value}})
}

func isLatin1(enc []byte) bool {
	switch string(bytes.ToLower(enc)) {
	case "latin1", "latin-1", "latin_1", "iso-8859-1", "iso8859-1", "iso8859_1", "iso_8859_1", "l1", "8859":
		return true
	}
	return false
}

// copySeq replaces callable and arguments by a sequence of kind k with the elements of from.
func (m *machine) copySeq(k Kind, from cell, pos int) error {
	d := m.d
	at := len(m.st) - 2
	start := m.st[at].start
	n := node{id: uint64(pos), aux: start, kind: k, flags: flagAtStart}
	if from.kind() == ckNode {
		src := d.node(from)
		if src.flags&flagRun != 0 {
			if err := d.unrun(src); err != nil {
				return err
			}
		}
		// The cells are shared with the list, which has no other use; size 0 keeps it from growing there.
		n.ref, n.n, n.size = src.ref, src.n, 0
	}
	c, err := d.newNode(n)
	if err != nil {
		return err
	}
	m.st = m.st[:at]
	m.push(c, int(start))
	return nil
}

// dictObject makes an OrderedDict, defaultdict or Counter. Entries come as a dict, as pairs, or by
// SETITEMS later.
func (m *machine) dictObject(at, pos int, class cell, items []cell) error {
	d := m.d
	start := m.st[at].start
	c, err := d.newNode(node{id: uint64(pos), aux: start, kind: KindDict, flags: flagReduce | flagAtStart})
	if err != nil {
		return err
	}
	e, err := d.extOf(d.node(c))
	if err != nil {
		return err
	}
	e.class, e.args = class, m.st[at+1].c
	if from := d.forced(items, 0); from.kind() == ckNode && len(items) == 1 {
		src := *d.node(from)
		var pairs []slot
		switch src.kind {
		case KindDict:
			for _, c := range d.cells.at(src.ref, int(src.n)) {
				pairs = append(pairs, slot{c: c})
			}
		case KindList, KindTuple:
			if src.flags&flagRun == 0 {
				for _, c := range d.cells.at(src.ref, int(src.n)) {
					c, err := d.force(c)
					if err != nil || c.kind() != ckNode || d.node(c).n != 2 || d.node(c).kind != KindList && d.node(c).kind != KindTuple {
						pairs = nil
						break
					}
					p := d.node(c)
					if p.flags&flagRun != 0 {
						if err := d.unrun(p); err != nil {
							return err
						}
					}
					kv := d.cells.at(p.ref, 2)
					pairs = append(pairs, slot{c: kv[0]}, slot{c: kv[1]})
				}
			}
		}
		if len(pairs) > 0 {
			if err := d.addCells(d.node(c), pairs); err != nil {
				return err
			}
		}
	}
	m.st = m.st[:at]
	r := m.roleOf(pos, opEmptyDict)
	d.node(c).role = r
	m.push(c, int(start))
	if r != 0 {
		m.keyRole, m.keyBase = r, len(m.st)
	}
	return nil
}

// newObject executes NEWOBJ and NEWOBJ_EX.
func (m *machine) newObject(pos int, withKw bool) error {
	n := 2
	if withKw {
		n = 3
	}
	at := len(m.st) - n
	if err := m.d.fixEnds(m.st[at:], pos); err != nil {
		return err
	}
	class, err := m.d.force(m.st[at].c)
	if err != nil {
		return err
	}
	if m.d.known(class) == knDict && !withKw {
		return m.dictObject(at, pos, class, nil)
	}
	return m.object(KindObject, at, pos, class, 0)
}

// build executes BUILD: the state belongs to the object, whatever its class would do with it.
func (m *machine) build(pos int) error {
	d := m.d
	k := len(m.st)
	if err := d.fixEnds(m.st[k-1:], pos); err != nil {
		return err
	}
	state := m.st[k-1].c
	m.st = m.st[:k-1]
	t := &m.st[k-2]
	switch t.c.kind() {
	case ckDeferred, ckMemoRef:
		return m.touched(t, pos)
	case ckNode:
		if skip, err := m.mayChange(t, pos); skip || err != nil {
			return err
		}
		e, err := d.extOf(d.node(t.c))
		if err != nil {
			return err
		}
		if e.state.kind() != ckEmpty {
			// A second BUILD updates the first in Python. Keep both, in order.
			c, err := d.newNode(node{id: uint64(pos), aux: t.start, kind: KindTuple, flags: flagAtStart})
			if err != nil {
				return err
			}
			if err := d.addCells(d.node(c), []slot{{c: e.state}, {c: state}}); err != nil {
				return err
			}
			state = c
		}
		e.state = state
		return nil
	}
	// State for a class, a number, ...: keep both as an object.
	class := t.c
	c, err := d.newNode(node{id: uint64(pos), aux: t.start, kind: KindObject, flags: flagAtStart})
	if err != nil {
		return err
	}
	e, err := d.extOf(d.node(c))
	if err != nil {
		return err
	}
	e.class, e.state = class, state
	t.c = c
	return nil
}

// oldInstance executes INST and OBJ, which make instances of old-style classes.
func (m *machine) oldInstance(pos int) (int, error) {
	d := m.d
	k := len(m.marks) - 1
	if k < 0 {
		return pos, m.under(pos)
	}
	start := m.marks[k].pos
	var class cell
	next := pos + 1
	if m.data[pos] == opInst {
		var err error
		if class, next, err = d.globalAt(pos); err != nil {
			return pos, err
		}
	}
	items, err := m.popMark(pos)
	if err != nil {
		return pos, err
	}
	if m.data[pos] == opObj {
		if len(items) == 0 {
			return pos, d.fail(pos, ErrCorrupt, "OBJ without a class")
		}
		if err := d.fixEnds(items, pos); err != nil {
			return pos, err
		}
		if class, err = d.force(items[0].c); err != nil {
			return pos, err
		}
		items = items[1:]
	}
	if err := m.pushSeq(KindTuple, append([]slot(nil), items...), start, pos); err != nil {
		return pos, err
	}
	return next, m.object(KindObject, len(m.st)-1, pos, class, 0)
}
