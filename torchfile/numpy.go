package torchfile

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
)

// NPType is a numpy element type.
type NPType struct {
	// Kind is numpy's letter: b bool, i and u integers, f floats, c complex, S bytes, U text,
	// O any Python object, V raw or structured, M datetime, m timedelta.
	Kind byte
	// Size of an element in bytes; of O, what numpy used in memory.
	Size int64
	// Order is '<', '>', or '|' where it does not matter.
	Order byte
	// Fields of a structured type, in the order of their names.
	Fields []NPField
	// Sub and SubShape describe an element that is itself an array.
	Sub      *NPType
	SubShape []int64
	// Unit of M and m: "ns", "25s", "D", ...; "" for generic ones.
	Unit string
}

// NPField is a field of a structured type.
type NPField struct {
	Name   string
	Type   *NPType
	Offset int64
}

// String is numpy's dtype.str: "<f8", "|b1", "<U5", "|V16", "<M8[ns]".
func (t *NPType) String() string {
	order := t.Order
	if t.Sub != nil {
		return "|V" + strconv.FormatInt(t.Size, 10)
	}
	s := string([]byte{order, t.Kind})
	switch t.Kind {
	case 'O':
		return "|O"
	case 'U':
		s += strconv.FormatInt(t.Size/4, 10)
	default:
		s += strconv.FormatInt(t.Size, 10)
	}
	if (t.Kind == 'M' || t.Kind == 'm') && t.Unit != "" {
		s += "[" + t.Unit + "]"
	}
	return s
}

// sound says that the kind exists in this size.
func (t *NPType) sound() bool {
	if t.Sub != nil || len(t.Fields) > 0 {
		return true
	}
	switch t.Kind {
	case 'b':
		return t.Size == 1
	case 'i', 'u':
		return t.Size == 1 || t.Size == 2 || t.Size == 4 || t.Size == 8
	case 'f':
		return t.Size == 2 || t.Size == 4 || t.Size == 8 || t.Size == 12 || t.Size == 16
	case 'c':
		return t.Size == 8 || t.Size == 16 || t.Size == 24 || t.Size == 32
	case 'M', 'm':
		return t.Size == 8
	case 'U':
		return t.Size%4 == 0
	}
	return true
}

func (t *NPType) bo() binary.ByteOrder {
	if t.Order == '>' {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// hasObjects says that elements refer to pickled objects.
func (t *NPType) hasObjects() bool {
	if t.Kind == 'O' || (t.Sub != nil && t.Sub.hasObjects()) {
		return true
	}
	for _, f := range t.Fields {
		if f.Type.hasObjects() {
			return true
		}
	}
	return false
}

// NDArray is a lazy view of a numpy array.
type NDArray struct {
	Class   Class // numpy.ndarray or a subclass
	Type    *NPType
	Shape   []int64
	Fortran bool // the first dimension is the fastest in Raw

	raw     []byte
	objects Value // of an object array: the list of elements
	d       *Doc
}

// NPScalar is a numpy scalar.
type NPScalar struct {
	Type   *NPType
	raw    []byte
	object Value
	d      *Doc
}

// maxEmpty bounds arrays whose elements have no bytes, so that nothing in the file limits their number.
const maxEmpty = 1 << 16

func (d *Doc) badArray(format string, args ...any) error {
	return d.fail(-1, ErrCorrupt, "a numpy value "+format, args...)
}

// npType reads a pickled numpy.dtype: its argument names kind and size, its state byte order,
// fields and the rest.
func (v Value) npType(depth int) (*NPType, error) {
	d := v.d
	if depth > 16 {
		return nil, d.fail(-1, ErrLimit, "a numpy type is nested more than 16 deep")
	}
	if d == nil || v.Kind() != KindObject || v.Class().Module != "numpy" {
		// Not `numpy.dtype(...)`, but a class such as numpy.float64.
		return nil, &Error{Offset: -1, Sort: ErrUnsupported, What: "a numpy type that is not a pickled numpy.dtype"}
	}
	name := v.Args().Index(0).Str()
	if b := v.Args().Index(0).Bytes(); name == "" && len(b) > 0 {
		name = string(b)
	}
	// A type may refer to the same inner type many times, so reading it counts.
	if err := d.spend(64); err != nil {
		return nil, err
	}
	t := &NPType{Order: '|'}
	if name == "" {
		return nil, d.badArray("has a type without a name")
	}
	s := strings.TrimLeft(name, "<>=|")
	if s == "" {
		return nil, d.badArray("has the type %q", clip([]byte(name)))
	}
	t.Kind = s[0]
	switch {
	case s == "?" || s == "bool":
		t.Kind, t.Size = 'b', 1
	case s == "O" || s == "object":
		t.Kind, t.Size = 'O', 8
	default:
		n, err := strconv.ParseInt(s[1:], 10, 48)
		if err != nil && len(s) > 1 || n < 0 {
			return nil, d.badArray("has the type %q", clip([]byte(name)))
		}
		t.Size = n
		if t.Kind == 'U' {
			t.Size *= 4
		}
	}
	if !strings.ContainsRune("biufcSUOVMm", rune(t.Kind)) {
		return nil, d.fail(-1, ErrUnsupported, "a numpy array of type %q", clip([]byte(name)))
	}
	if t.Size > 1 && strings.ContainsRune("iufcUMm", rune(t.Kind)) {
		t.Order = '<' // of files without state; the usual machine
	}
	if err := v.npState(t, depth); err != nil {
		return nil, err
	}
	if !t.sound() {
		return nil, d.badArray("has the type %q with elements of %d bytes", clip([]byte(name)), t.Size)
	}
	return t, nil
}

// npState reads (version, order, (sub, shape), names, fields, size, alignment, flags[, metadata]).
func (v Value) npState(t *NPType, depth int) error {
	st := v.State()
	if st.Kind() != KindTuple || st.Len() < 7 {
		return nil
	}
	d := v.d
	if o := st.Index(1).Str(); o != "" {
		t.Order = o[0]
	} else if b := st.Index(1).Bytes(); len(b) > 0 {
		t.Order = b[0]
	}
	switch t.Order {
	case '<', '>', '|':
	default: // "=": the machine's, which is little-endian wherever torch runs
		t.Order = '<'
	}
	if n, ok := st.Index(5).Int(); ok && n >= 0 && n < maxOffset {
		t.Size = n
	}
	if sub := st.Index(2); sub.Kind() == KindTuple && sub.Len() == 2 {
		inner, err := sub.Index(0).npType(depth + 1)
		if err != nil {
			return err
		}
		t.Sub = inner
		if n, ok := sub.Index(1).Int(); ok && n >= 0 {
			t.SubShape = []int64{n}
		} else if t.SubShape, err = d.dims(sub.Index(1)); err != nil {
			return err
		}
		if n := product(t.SubShape); n < 0 || (inner.Size == 0 && n > maxEmpty) || (n > 0 && inner.Size > maxOffset/n) || n*inner.Size != t.Size {
			return d.badArray("has a type whose inner array does not have its size")
		}
	}
	if names := st.Index(3); names.Kind() == KindTuple {
		for _, name := range names.All() {
			f := st.Index(4).Get(name.Str())
			if f.Kind() != KindTuple || f.Len() < 2 {
				return d.badArray("has a type without its field %q", clip(name.RawStr()))
			}
			ft, err := f.Index(0).npType(depth + 1)
			if err != nil {
				return err
			}
			off, ok := f.Index(1).Int()
			if !ok || off < 0 || off+ft.Size > t.Size {
				return d.badArray("has a type whose field %q does not fit", clip(name.RawStr()))
			}
			t.Fields = append(t.Fields, NPField{name.Str(), ft, off})
		}
	}
	// Metadata of datetimes: ({}, (b"ns", 1, 1, 1)).
	if (t.Kind == 'M' || t.Kind == 'm') && st.Len() >= 9 {
		m := st.Index(8).Index(1)
		unit := m.Index(0).Str()
		if b := m.Index(0).Bytes(); len(b) > 0 {
			unit = string(b)
		}
		if n, ok := m.Index(1).Int(); ok && n > 1 {
			unit = strconv.FormatInt(n, 10) + unit
		}
		if unit != "generic" {
			t.Unit = unit
		}
	}
	return nil
}

// NDArray reads v as a numpy array.
func (v Value) NDArray() (NDArray, error) {
	n := v.nodeOf()
	if n == nil || n.kind != KindNDArray {
		return NDArray{}, &Error{Offset: -1, Sort: ErrCorrupt, What: "a value of kind " + v.Kind().String() + " is no numpy array"}
	}
	a := NDArray{d: v.d, Class: Class{"numpy", "ndarray"}}
	var shape, typ, data Value
	args := v.Args()
	if v.Class().Name == "_frombuffer" {
		// (buffer, dtype, shape, order): protocol 5.
		shape, typ, data = args.Index(2), args.Index(1), args.Index(0)
		a.Fortran = args.Index(3).Is("F")
	} else {
		// _reconstruct(class, (0,), b"b"), then the state ([version,] shape, dtype, fortran, data).
		a.Class = args.Index(0).Class()
		st := v.State()
		k := st.Len() - 4
		if st.Kind() != KindTuple || k < 0 {
			return a, v.d.badArray("has no state")
		}
		if k > 1 {
			k = 1
		}
		shape, typ, data = st.Index(k), st.Index(k+1), st.Index(k+3)
		a.Fortran, _ = st.Index(k + 2).Bool()
	}
	var err error
	if a.Type, err = typ.npType(0); err != nil {
		return a, err
	}
	if n, ok := shape.Int(); ok && n >= 0 {
		a.Shape = []int64{n}
	} else if a.Shape, err = v.d.dims(shape); err != nil {
		return a, err
	}
	count := a.Len()
	if count < 0 {
		return a, v.d.badArray("has the shape %v", a.Shape)
	}
	switch data.Kind() {
	case KindList:
		if a.objects = data; int64(data.Len()) != count {
			return a, v.d.badArray("of shape %v has %d elements", a.Shape, data.Len())
		}
	case KindBytes, KindByteArray:
		a.raw = data.Bytes()
		if a.Type.Size == 0 && count > maxEmpty {
			return a, v.d.fail(-1, ErrLimit, "a numpy array has %d elements of no size", count)
		}
		if a.Type.Size > 0 && count > math.MaxInt64/a.Type.Size || count*a.Type.Size != int64(len(a.raw)) {
			return a, v.d.badArray("of shape %v and type %s has %d bytes", a.Shape, a.Type, len(a.raw))
		}
	case KindBuffer:
		return a, v.d.fail(-1, ErrUnsupported, "a numpy array whose data was kept out of the file (protocol 5 buffer)")
	default:
		return a, v.d.badArray("has data of kind %s", data.Kind())
	}
	return a, nil
}

// Len is the number of elements; -1 when it does not fit in 48 bits.
func (a NDArray) Len() int64 { return product(a.Shape) }

// Raw is the elements' bytes, as numpy wrote them; nil for an object array. It is a view into the
// file where the pickle holds bytes as they are (protocol 3 and later).
func (a NDArray) Raw() []byte { return a.raw }

// order calls fn with the position in Raw of each element, the last dimension fastest.
func (a NDArray) order(fn func(i int64) error) error {
	n := a.Len()
	if !a.Fortran || len(a.Shape) < 2 {
		for i := range n {
			if err := fn(i); err != nil {
				return err
			}
		}
		return nil
	}
	stride := make([]int64, len(a.Shape))
	s := int64(1)
	for k, dim := range a.Shape {
		stride[k] = s
		s *= dim
	}
	idx := make([]int64, len(a.Shape))
	at := int64(0)
	for ; n > 0; n-- {
		if err := fn(at); err != nil {
			return err
		}
		for k := len(idx) - 1; k >= 0; k-- {
			idx[k]++
			at += stride[k]
			if idx[k] < a.Shape[k] {
				break
			}
			at -= idx[k] * stride[k]
			idx[k] = 0
		}
	}
	return nil
}

// Each calls fn with every element, the last dimension fastest, until fn returns an error, which it
// returns.
func (a NDArray) Each(fn func(Elem) error) error {
	if a.objects.Exists() {
		if !a.Fortran || len(a.Shape) < 2 {
			for _, v := range a.objects.All() {
				if err := fn(Elem{t: a.Type, obj: v, d: a.d}); err != nil {
					return err
				}
			}
			return nil
		}
		return a.order(func(i int64) error { return fn(Elem{t: a.Type, obj: a.objects.Index(int(i)), d: a.d}) })
	}
	if a.Type.hasObjects() {
		return a.d.fail(-1, ErrUnsupported, "a structured numpy array with fields that are objects")
	}
	size := a.Type.Size
	return a.order(func(i int64) error { return fn(Elem{t: a.Type, b: a.raw[i*size : (i+1)*size], d: a.d}) })
}

// Float64s appends the elements of an array of real numbers or bools, the last dimension fastest.
func (a NDArray) Float64s(dst []float64) ([]float64, error) {
	err := a.Each(func(e Elem) error {
		f, ok := e.Number()
		if !ok && e.t.Kind != 'b' {
			return a.d.fail(-1, ErrUnsupported, "a numpy array of type %s as real numbers", a.Type)
		}
		dst = append(dst, f)
		return nil
	})
	return dst, err
}

// Int64s appends the elements of an array of integers or bools, the last dimension fastest.
// Elements of a uint64 array from 2^63 on come out negative.
func (a NDArray) Int64s(dst []int64) ([]int64, error) {
	if !strings.ContainsRune("iub", rune(a.Type.Kind)) {
		return dst, a.d.fail(-1, ErrUnsupported, "a numpy array of type %s as integers", a.Type)
	}
	err := a.Each(func(e Elem) error {
		i, _ := e.Int()
		dst = append(dst, i)
		return nil
	})
	return dst, err
}

// NPScalar reads v as a numpy scalar.
func (v Value) NPScalar() (NPScalar, error) {
	n := v.nodeOf()
	if n == nil || n.kind != KindNPScalar {
		return NPScalar{}, &Error{Offset: -1, Sort: ErrCorrupt, What: "a value of kind " + v.Kind().String() + " is no numpy scalar"}
	}
	t, err := v.Args().Index(0).npType(0)
	if err != nil {
		return NPScalar{}, err
	}
	s := NPScalar{Type: t, d: v.d}
	x := v.Args().Index(1)
	if t.Kind == 'O' {
		s.object = x
		return s, nil
	}
	if s.raw = x.Bytes(); int64(len(s.raw)) != t.Size || t.hasObjects() {
		return s, v.d.badArray("of type %s has %d bytes", t, len(s.raw))
	}
	return s, nil
}

// Elem returns the scalar as an element.
func (s NPScalar) Elem() Elem { return Elem{t: s.Type, b: s.raw, obj: s.object, d: s.d} }

// Number returns a real scalar as float64; a bool is no number.
func (s NPScalar) Number() (float64, bool) { return s.Elem().Number() }

// Elem is one element of a numpy array, or a numpy scalar.
type Elem struct {
	t   *NPType
	b   []byte
	obj Value
	d   *Doc
}

// Type is the element's type.
func (e Elem) Type() *NPType { return e.t }

// Object is the element of an object array.
func (e Elem) Object() Value { return e.obj }

// Raw is the element's bytes; nil for an object.
func (e Elem) Raw() []byte { return e.b }

// Int returns an integer or a bool.
func (e Elem) Int() (int64, bool) {
	o := e.t.bo()
	switch e.t.Kind {
	case 'b':
		if e.b[0] != 0 {
			return 1, true
		}
		return 0, true
	case 'i', 'M', 'm':
		switch e.t.Size {
		case 1:
			return int64(int8(e.b[0])), true
		case 2:
			return int64(int16(o.Uint16(e.b))), true
		case 4:
			return int64(int32(o.Uint32(e.b))), true
		case 8:
			return int64(o.Uint64(e.b)), true
		}
	case 'u':
		switch e.t.Size {
		case 1:
			return int64(e.b[0]), true
		case 2:
			return int64(o.Uint16(e.b)), true
		case 4:
			return int64(o.Uint32(e.b)), true
		case 8:
			return int64(o.Uint64(e.b)), true
		}
	}
	return 0, false
}

// Number returns a real number; a bool is none.
func (e Elem) Number() (float64, bool) { return e.number(0) }

func (e Elem) number(depth int) (float64, bool) {
	o := e.t.bo()
	switch e.t.Kind {
	case 'f':
		switch e.t.Size {
		case 2:
			return halfToFloat(o.Uint16(e.b)), true
		case 4:
			return float64(math.Float32frombits(o.Uint32(e.b))), true
		case 8:
			return math.Float64frombits(o.Uint64(e.b)), true
		case 12, 16:
			if e.t.Order != '>' {
				return extended(e.b), true
			}
		}
	case 'i':
		i, ok := e.Int()
		return float64(i), ok
	case 'u':
		i, ok := e.Int()
		return float64(uint64(i)), ok
	case 'b':
		i, _ := e.Int()
		return float64(i), false
	case 'O':
		return e.obj.number(depth)
	}
	return 0, false
}

// Complex returns a complex number.
func (e Elem) Complex() (complex128, bool) {
	if e.t.Kind != 'c' {
		return 0, false
	}
	o := e.t.bo()
	switch e.t.Size {
	case 8:
		return complex(float64(math.Float32frombits(o.Uint32(e.b))), float64(math.Float32frombits(o.Uint32(e.b[4:])))), true
	case 16:
		return complex(math.Float64frombits(o.Uint64(e.b)), math.Float64frombits(o.Uint64(e.b[8:]))), true
	case 32:
		if e.t.Order != '>' {
			return complex(extended(e.b), extended(e.b[16:])), true
		}
	}
	return 0, false
}

// Text returns the text of U (without the zero characters that fill it up) and S elements.
func (e Elem) Text() (string, bool) {
	switch e.t.Kind {
	case 'U':
		o := e.t.bo()
		var out []byte
		end := len(e.b) &^ 3
		for end >= 4 && o.Uint32(e.b[end-4:]) == 0 {
			end -= 4
		}
		for i := 0; i < end; i += 4 {
			out = appendRune(out, rune(min(o.Uint32(e.b[i:]), 0x110000)))
		}
		return string(out), true
	case 'S':
		return strings.TrimRight(string(e.b), "\x00"), true
	}
	return "", false
}

// Field returns a field of a structured element.
func (e Elem) Field(name string) (Elem, bool) {
	for _, f := range e.t.Fields {
		if f.Name == name {
			return e.field(f), true
		}
	}
	return Elem{}, false
}

func (e Elem) field(f NPField) Elem {
	return Elem{t: f.Type, b: e.b[f.Offset : f.Offset+f.Type.Size], d: e.d}
}

// sub returns the inner array of an element whose type has one.
func (e Elem) sub() NDArray {
	return NDArray{Class: Class{"numpy", "ndarray"}, Type: e.t.Sub, Shape: e.t.SubShape, raw: e.b, d: e.d}
}

func (e Elem) unsupported() error {
	return e.d.fail(-1, ErrUnsupported, "a numpy element of type %s", e.t)
}
