package torchfile

import (
	"iter"
	"math"
	"math/big"
	"slices"
)

// Value is a value of a [Doc]: a small handle that is passed by value. The zero Value has kind
// [KindInvalid] and stands for "there is none"; every method may be called on it.
//
// Strings and bytes are views into the file until Close unless a method says that it copies.
type Value struct {
	d *Doc
	c cell
}

// val is the cell behind v with deferral resolved; empty when that failed.
func (v Value) val() cell {
	switch v.c.kind() {
	case ckDeferred, ckMemoRef:
		c, err := v.d.force(v.c)
		if err != nil {
			return cell{}
		}
		return c
	}
	return v.c
}

// nodeOf returns the node behind v, nil when it has none.
func (v Value) nodeOf() *node {
	c := v.val()
	if c.kind() != ckNode {
		return nil
	}
	return v.d.node(c)
}

// extension returns what objects and instances of dict subclasses have beside their node.
func (v Value) extension() *ext {
	if n := v.nodeOf(); n != nil && n.ext != 0 {
		return &v.d.exts[n.ext]
	}
	return nil
}

// Exists says that v is a value, not the absence of one.
func (v Value) Exists() bool { return v.d != nil && v.c.kind() != ckEmpty }

// Deferred says that v has not been decoded yet; asking it anything decodes it.
func (v Value) Deferred() bool {
	if k := v.c.kind(); k != ckDeferred && k != ckMemoRef {
		return false
	}
	_, done := v.d.resolved[[2]uint64{v.c.a, v.c.b}]
	return !done
}

// Err is why a deferred value could not be decoded. Such a value has kind KindInvalid.
func (v Value) Err() error {
	if v.d == nil {
		return nil
	}
	_, err := v.d.force(v.c)
	return err
}

// Kind is what v is.
func (v Value) Kind() Kind {
	c := v.val()
	switch c.kind() {
	case ckNone:
		return KindNone
	case ckBool:
		return KindBool
	case ckInt, ckLong, ckLongText:
		return KindInt
	case ckFloat:
		return KindFloat
	case ckStr:
		return KindStr
	case ckBytes:
		return KindBytes
	case ckByteArray:
		return KindByteArray
	case ckNode:
		return v.d.node(c).kind
	case ckGlobal:
		return KindGlobal
	case ckBuffer:
		return KindBuffer
	}
	return KindInvalid
}

// IsNone says that v is None. A missing value is not.
func (v Value) IsNone() bool { return v.val().kind() == ckNone }

// ID identifies a container or object: two values with the same ID are the same Python object, also
// across the elements of a Scan and after re-decoding. It is 0 for values without identity.
func (v Value) ID() uint64 {
	if n := v.nodeOf(); n != nil {
		return n.id + 1
	}
	return 0
}

// Bool returns the value of a bool.
func (v Value) Bool() (b, ok bool) {
	c := v.val()
	return c.b != 0, c.kind() == ckBool
}

// Int returns the value of an integer that fits; for others see BigInt.
func (v Value) Int() (i int64, ok bool) {
	c := v.val()
	if c.kind() != ckInt {
		return 0, false
	}
	return int64(c.b), true
}

// Float returns the value of a float.
func (v Value) Float() (f float64, ok bool) {
	c := v.val()
	if c.kind() != ckFloat {
		return 0, false
	}
	return math.Float64frombits(c.b), true
}

// Number returns a Float, an Int, a numpy scalar or a tensor with one element as float64; a bool is
// no number.
func (v Value) Number() (f float64, ok bool) { return v.number(0) }

func (v Value) number(depth int) (f float64, ok bool) {
	c := v.val()
	switch c.kind() {
	case ckFloat:
		return math.Float64frombits(c.b), true
	case ckInt:
		return float64(int64(c.b)), true
	case ckLong, ckLongText:
		if b, ok := v.BigInt(); ok {
			f, _ := new(big.Float).SetInt(b).Float64()
			return f, true
		}
	case ckNode:
		switch v.d.node(c).kind {
		case KindNPScalar:
			if s, err := v.NPScalar(); err == nil && depth < 4 {
				return s.Elem().number(depth + 1)
			}
		case KindTensor:
			if t, err := v.Tensor(); err == nil && t.Len() == 1 && !t.DType.IsComplex() && t.DType != TorchBool {
				if x, err := t.Float64s(nil); err == nil && len(x) == 1 {
					return x[0], true
				}
			}
		}
	}
	return 0, false
}

// BigInt returns an integer of any size up to Limits.MaxIntBytes.
func (v Value) BigInt() (i *big.Int, ok bool) {
	c := v.val()
	switch c.kind() {
	case ckInt:
		return big.NewInt(int64(c.b)), true
	case ckLong:
		if int(c.b) > v.d.lim.MaxIntBytes {
			return nil, false
		}
		le := v.d.src[c.off() : c.off()+int(c.b)]
		be := make([]byte, len(le))
		for i, x := range le {
			be[len(le)-1-i] = x
		}
		i := new(big.Int).SetBytes(be)
		if le[len(le)-1]&0x80 != 0 {
			i.Sub(i, new(big.Int).Lsh(big.NewInt(1), uint(8*len(le))))
		}
		return i, true
	case ckLongText:
		if int(c.b) > v.d.lim.MaxIntBytes*2 {
			return nil, false
		}
		return new(big.Int).SetString(string(v.d.src[c.off():c.off()+int(c.b)]), 10)
	}
	return nil, false
}

// rawBytes are the bytes of a string or bytes cell as they stand in the file.
func (d *Doc) rawBytes(c cell) []byte {
	from := d.src
	if c.sub()&subExtra != 0 {
		from = d.extra
	}
	off, n := c.off(), int(c.b)
	return from[off : off+n : off+n]
}

// Str returns a copy of a string; "" for anything else. Lone surrogates, which Python strings may
// hold, are three bytes each that are not valid UTF-8.
func (v Value) Str() string { return string(v.RawStr()) }

// RawStr returns a string's bytes without copying them: they lie in the file and are valid until
// Close. It is nil for anything but a string.
func (v Value) RawStr() []byte {
	c := v.val()
	if c.kind() != ckStr {
		return nil
	}
	return v.d.rawBytes(c)
}

// AppendStr appends the bytes of a string from byte from on to dst, and nothing of anything else. Where it
// can it reads them from the file: for bytes that nobody has looked at yet that costs less than their
// pages in the map do.
func (v Value) AppendStr(dst []byte, from int) []byte {
	c := v.val()
	if c.kind() != ckStr || from < 0 || uint64(from) >= c.b {
		return dst
	}
	n := int(c.b) - from
	if f := v.d.f; f.mapped != nil && f.pickleAt >= 0 && c.sub()&subExtra == 0 && n >= scoutPage {
		at := len(dst)
		dst = slices.Grow(dst, n)[:at+n]
		if got, _ := f.r.ReadAt(dst[at:], int64(f.pickleAt+c.off()+from)); got == n {
			return dst
		}
		dst = dst[:at]
	}
	return append(dst, v.d.rawBytes(c)[from:]...)
}

// Is says that v is the string s.
func (v Value) Is(s string) bool {
	c := v.val()
	return c.kind() == ckStr && string(v.d.rawBytes(c)) == s
}

// Bytes returns the content of bytes or a bytearray; nil for anything else. It is a view unless the
// pickle holds it in another encoding (protocol 2 writes bytes from 0x80 on as two bytes).
func (v Value) Bytes() []byte {
	c := v.val()
	if k := c.kind(); k != ckBytes && k != ckByteArray {
		return nil
	}
	return v.d.bytesOf(c)
}

func (d *Doc) bytesOf(c cell) []byte {
	b := d.rawBytes(c)
	if c.sub()&subLatin == 0 || isASCII(b) {
		return b
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] < 0x80 || i+1 == len(b) {
			out = append(out, b[i])
			continue
		}
		out = append(out, b[i]<<6|b[i+1]&0x3f)
		i++
	}
	return out
}

// list returns the cells of a sequence: of an object that is a list subclass, too. A run has none.
func (v Value) list() (n *node, cells []cell) {
	n = v.nodeOf()
	if n == nil {
		return nil, nil
	}
	if n.flags&flagEmitted != 0 {
		at, err := v.d.memoCountAt(n.start())
		if err != nil {
			return nil, nil
		}
		c, err := v.d.force(deferredCell(n.start(), v.d.listEnd, at))
		if err != nil || c.kind() != ckNode {
			return nil, nil
		}
		n = v.d.node(c)
	}
	if n.flags&flagRun != 0 {
		return n, nil
	}
	return n, v.d.cells.at(n.ref, int(n.n))
}

// Len is the number of elements, of entries of a dict, or of bytes of a string.
func (v Value) Len() int {
	c := v.val()
	switch c.kind() {
	case ckStr:
		return int(c.b)
	case ckBytes, ckByteArray:
		return len(v.d.bytesOf(c))
	case ckNode:
		n := v.d.node(c)
		switch n.kind {
		case KindList, KindTuple, KindSet, KindFrozenSet:
			return int(n.n)
		case KindDict:
			return int(n.n) / 2
		case KindObject:
			if n.n > 0 {
				return int(n.n)
			}
			if n.ext != 0 {
				return int(v.d.exts[n.ext].pairs.n) / 2
			}
		}
	}
	return 0
}

// Index returns element i of a list, tuple, set or list-like object; the zero Value when there is
// none. In a packed list of numbers of different sizes it walks from the start: use All, Ints or
// Floats for those.
func (v Value) Index(i int) Value {
	n, cells := v.list()
	if n == nil || i < 0 || i >= int(n.n) || n.kind == KindDict {
		return Value{}
	}
	if n.flags&flagRun == 0 {
		return Value{v.d, cells[i]}
	}
	cur := runCursor{v.d.src, int(n.ref), int(n.aux)}
	for c, ok := cur.next(); ok; c, ok = cur.next() {
		if i == 0 {
			return Value{v.d, c}
		}
		i--
	}
	return Value{}
}

// All iterates over the elements of a list, tuple, set or list-like object.
func (v Value) All() iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) {
		n, cells := v.list()
		if n == nil || n.kind == KindDict {
			return
		}
		if n.flags&flagRun != 0 {
			cur := runCursor{v.d.src, int(n.ref), int(n.aux)}
			for i := 0; ; i++ {
				c, ok := cur.next()
				if !ok || !yield(i, Value{v.d, c}) {
					return
				}
			}
		}
		for i, c := range cells {
			if !yield(i, Value{v.d, c}) {
				return
			}
		}
	}
}

// Ints appends the elements of a list or tuple of integers (bools count as 0 and 1). ok is false,
// and dst is returned as it was, when an element is something else.
func (v Value) Ints(dst []int64) (out []int64, ok bool) {
	n, cells := v.list()
	if n == nil || n.kind == KindDict {
		return dst, false
	}
	if n.flags&flagRun != 0 {
		if n.what&(runFloat|runNone) != 0 {
			return dst, false
		}
		return appendRunInts(dst, v.d.src, int(n.ref), int(n.aux)), true
	}
	out = dst
	for _, c := range cells {
		if k := c.kind(); k != ckInt && k != ckBool {
			return dst, false
		}
		out = append(out, int64(c.b))
	}
	return out, true
}

// SumInts adds up the elements of a list or tuple of integers (bools count as 0 and 1) without unpacking
// it; the sum wraps around as int64 does. ok is false when an element is something else.
func (v Value) SumInts() (sum int64, ok bool) {
	n, cells := v.list()
	if n == nil || n.kind == KindDict {
		return 0, false
	}
	if n.flags&flagRun != 0 {
		if n.what&(runFloat|runNone) != 0 {
			return 0, false
		}
		if n.size != 0 {
			return int64(n.size) - 1, true
		}
		return sumRunInts(v.d.src, int(n.ref), int(n.aux)), true
	}
	for _, c := range cells {
		if k := c.kind(); k != ckInt && k != ckBool {
			return 0, false
		}
		sum += int64(c.b)
	}
	return sum, true
}

// Floats appends the elements of a list or tuple of numbers; None becomes NaN. ok is false, and dst
// is returned as it was, when an element is something else.
func (v Value) Floats(dst []float64) (out []float64, ok bool) {
	n, cells := v.list()
	if n == nil || n.kind == KindDict {
		return dst, false
	}
	if n.flags&flagRun != 0 {
		return appendRunFloats(dst, v.d.src, int(n.ref), int(n.aux)), true
	}
	out = dst
	for _, c := range cells {
		switch c.kind() {
		case ckInt, ckBool:
			out = append(out, float64(int64(c.b)))
		case ckFloat:
			out = append(out, math.Float64frombits(c.b))
		case ckNone:
			out = append(out, math.NaN())
		default:
			f, ok := (Value{v.d, c}).Number()
			if !ok {
				return dst, false
			}
			out = append(out, f)
		}
	}
	return out, true
}

// pairCells returns the keys and values of a dict or dict-like object.
func (v Value) pairCells() []cell {
	n := v.nodeOf()
	if n == nil {
		return nil
	}
	switch {
	case n.kind == KindDict:
		return v.d.cells.at(n.ref, int(n.n))
	case n.kind == KindObject && n.ext != 0:
		p := v.d.exts[n.ext].pairs
		return v.d.cells.at(p.ref, int(p.n))
	}
	return nil
}

// Pairs iterates over the entries of a dict, or of an object that is a dict subclass, in the file's
// order. A key that is written twice comes twice; Python keeps the last.
func (v Value) Pairs() iter.Seq2[Value, Value] {
	return func(yield func(Value, Value) bool) {
		cells := v.pairCells()
		for i := 0; i+1 < len(cells); i += 2 {
			if !yield(Value{v.d, cells[i]}, Value{v.d, cells[i+1]}) {
				return
			}
		}
	}
}

// Get returns the entry of a dict (or dict-like object) with the string key; the zero Value when
// there is none. It compares with each key, from the last to the first.
func (v Value) Get(key string) Value {
	cells := v.pairCells()
	for i := len(cells) - 2; i >= 0; i -= 2 {
		c := cells[i]
		if c.kind() == ckDeferred || c.kind() == ckMemoRef {
			c = Value{v.d, c}.val()
		}
		if c.kind() == ckStr && int(c.b) == len(key) && string(v.d.rawBytes(c)) == key {
			return Value{v.d, cells[i+1]}
		}
	}
	return Value{}
}

// Class names the class of an object, of an instance of a dict subclass or of torch.Size, the
// callable of a call that was not made, or the class or function that a Global is.
func (v Value) Class() Class {
	c := v.val()
	for range 8 { // an instance may be of what another call returned
		switch c.kind() {
		case ckGlobal:
			return v.d.class(c).Class
		case ckNode:
			n := v.d.node(c)
			if n.ext == 0 {
				return Class{}
			}
			c = v.d.exts[n.ext].class
		default:
			return Class{}
		}
	}
	return Class{}
}

// Called says that an object was made by calling something with Args (pickle's REDUCE), not by
// making an instance of a class and filling it. The call was not made.
func (v Value) Called() bool {
	n := v.nodeOf()
	return n != nil && n.flags&flagReduce != 0
}

// Args are the arguments of an object's class or callable: a tuple as a rule.
func (v Value) Args() Value {
	if e := v.extension(); e != nil && e.args.kind() != ckEmpty {
		return Value{v.d, e.args}
	}
	return Value{}
}

// Kwargs are the keyword arguments of an object's class: a dict.
func (v Value) Kwargs() Value {
	if e := v.extension(); e != nil && e.kwargs.kind() != ckEmpty {
		return Value{v.d, e.kwargs}
	}
	return Value{}
}

// State is what would fill an object: a dict of attributes, a tuple of such a dict and one of
// slots, or whatever its class's __setstate__ takes.
func (v Value) State() Value {
	if e := v.extension(); e != nil && e.state.kind() != ckEmpty {
		return Value{v.d, e.state}
	}
	return Value{}
}

// Attr returns an attribute of an object: out of its state, or, for a namedtuple or a slotted
// dataclass whose fields Options.Classes names, by position. The zero Value when there is none.
func (v Value) Attr(name string) Value {
	s := v.State()
	switch s.Kind() {
	case KindDict:
		if x := s.Get(name); x.Exists() {
			return x
		}
	case KindTuple: // (attributes, slots), or two states after each other
		for i := s.Len() - 1; i >= 0; i-- {
			if x := s.Index(i).Get(name); x.Exists() {
				return x
			}
		}
	}
	if n := v.nodeOf(); n != nil && n.kind == KindObject && len(v.d.f.opts.Classes) > 0 {
		for i, field := range v.d.f.opts.Classes[v.Class().String()].Fields {
			if field != name {
				continue
			}
			if k := s.Kind(); k == KindList || k == KindTuple {
				return s.Index(i)
			}
			return v.Args().Index(i)
		}
	}
	return Value{}
}

// Field returns the entry of a dict or the attribute of an object, so that samples that are dicts
// and samples that are objects read alike.
func (v Value) Field(name string) Value {
	if x := v.Get(name); x.Exists() {
		return x
	}
	return v.Attr(name)
}

// EnumMember is a member of an enum as a pickle names it: by name (Python 3.11) or by value
// (3.10 and 3.12). The other half is known only when Options.Classes tells it.
type EnumMember struct {
	Class Class
	Name  string // "" when it is not known
	Value Value  // does not exist when it is not known
	// Known is the member's value from Options.Classes when the file has only its name.
	Known    any
	HasKnown bool
}

// Enum reads v as a member of an enum. ok says that v has the form of one; other things have it, too
// (a class attribute, a call with one argument), so ask only where an enum is expected.
func (v Value) Enum() (e EnumMember, ok bool) {
	c := v.val()
	switch c.kind() {
	case ckGlobal:
		ci := v.d.class(c)
		if !ci.attr {
			return e, false
		}
		i := lastDot(ci.Name)
		if i < 0 {
			return e, false
		}
		e.Class, e.Name = Class{ci.Module, ci.Name[:i]}, ci.Name[i+1:]
		if h, has := v.d.f.opts.Classes[e.Class.String()]; has {
			e.Known, e.HasKnown = h.Enum[e.Name]
		}
		return e, true
	case ckNode:
		n := v.d.node(c)
		if n.kind != KindObject || n.flags&flagReduce == 0 || n.n != 0 || v.Args().Len() != 1 || v.State().Exists() {
			return e, false
		}
		e.Class, e.Value = v.Class(), v.Args().Index(0)
		for name, x := range v.d.f.opts.Classes[e.Class.String()].Enum {
			if e.Value.equals(x) && (e.Name == "" || name < e.Name) {
				e.Name = name // of aliases always the same one
			}
		}
		return e, true
	}
	return e, false
}

func lastDot(s string) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '.' {
			return i
		}
	}
	return -1
}

// equals compares with a value from ClassHint.Enum.
func (v Value) equals(x any) bool {
	switch x := x.(type) {
	case nil:
		return v.IsNone()
	case string:
		return v.Is(x)
	case bool:
		b, ok := v.Bool()
		return ok && b == x
	case int:
		i, ok := v.Int()
		return ok && i == int64(x)
	case float64:
		f, ok := v.Float()
		return ok && f == x
	}
	return false
}
