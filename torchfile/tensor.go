package torchfile

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Storage is a torch storage: a flat run of bytes that tensors are views of. Tensors that share
// a storage have the same Key.
type Storage struct {
	Key      string // name of the record data/KEY of a zip container
	Location string // device it was saved from: "cpu", "cuda:0", ...
	Elements int64  // how many, of the tensor's type; bytes of an untyped storage
	dtype    DType  // 0 for an untyped storage
	view     int64  // of a legacy view: first element
	f        *File
}

// DType is the storage's element type, 0 for an untyped one.
func (s Storage) DType() DType { return s.dtype }

// Bytes returns the storage's content: a view into the file where the record is stored.
func (s Storage) Bytes() ([]byte, error) {
	if s.f == nil {
		return nil, &Error{Offset: -1, Sort: ErrUnsupported, What: "the tensor has no storage in the file"}
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	switch s.f.format {
	case Zip:
		return s.f.record(s.f.prefix + "data/" + s.Key)
	case Legacy:
		return s.f.legacyData(s.Key)
	}
	return nil, s.f.errorf(ErrCorrupt, "a storage in a plain pickle, which has none")
}

// Tensor is a lazy view of a torch tensor: its form is known, its elements are read when asked for.
type Tensor struct {
	Class        string // "Tensor", "Parameter", or a subclass's full name
	DType        DType
	Shape        []int64
	Stride       []int64 // in elements
	Offset       int64   // first element, in the storage
	RequiresGrad bool
	Layout       string  // "strided", or "sparse_coo", "sparse_csr", ...
	Indices      *Tensor // of a sparse_coo tensor
	Values       *Tensor // of a sparse tensor
	Storage      Storage
	d            *Doc
}

func (d *Doc) badTensor(format string, args ...any) error {
	return d.fail(-1, ErrCorrupt, "a tensor "+format, args...)
}

// Storage reads v as a storage.
func (v Value) Storage() (Storage, error) {
	n := v.nodeOf()
	if n == nil || n.kind != KindStorage {
		return Storage{}, &Error{Offset: -1, Sort: ErrCorrupt, What: "a value of kind " + v.Kind().String() + " is no storage"}
	}
	args := v.Args()
	if n.flags&flagReduce != 0 {
		return v.nestedStorage(args.Index(0).Bytes())
	}
	s := Storage{Key: args.Index(2).Str(), Location: args.Index(3).Str(), f: v.d.f}
	if k, ok := args.Index(2).Int(); ok {
		s.Key = fmt.Sprint(k)
	}
	s.dtype = storageDType(args.Index(1).Class().Name)
	s.Elements, _ = args.Index(4).Int()
	if s.Elements < 0 {
		return s, v.d.badTensor("has a storage of %d elements", s.Elements)
	}
	if view := args.Index(5); view.Kind() == KindTuple {
		s.view, _ = view.Index(1).Int()
	}
	return s, nil
}

// nestedStorage reads the storage of a tensor in a plain pickle: bytes that are a torch file.
func (v Value) nestedStorage(b []byte) (Storage, error) {
	if len(b) == 0 {
		return Storage{}, v.d.badTensor("has no storage")
	}
	opts := v.d.f.opts
	f, err := OpenBytes(b, &opts)
	if err != nil {
		return Storage{}, err
	}
	d, err := f.Load(LoadOptions{})
	if err != nil {
		return Storage{}, err
	}
	root := d.Root()
	if n := root.nodeOf(); n == nil || n.kind != KindStorage || n.flags&flagReduce != 0 {
		return Storage{}, v.d.badTensor("has a nested storage that is a %s", root.Kind())
	}
	return root.Storage()
}

func (d *Doc) dims(v Value) ([]int64, error) {
	n := v.Len()
	if k := v.Kind(); (k != KindTuple && k != KindList) || n > 64 {
		return nil, d.badTensor("has a shape that is no tuple of up to 64 numbers")
	}
	out := make([]int64, 0, n)
	for _, x := range v.All() {
		i, ok := x.Int()
		if !ok || i < 0 || i > maxOffset {
			return nil, d.badTensor("has a dimension that is no size")
		}
		out = append(out, i)
	}
	return out, nil
}

// Tensor reads v as a tensor.
func (v Value) Tensor() (Tensor, error) { return v.tensor(0) }

func (v Value) tensor(depth int) (t Tensor, err error) {
	n := v.nodeOf()
	if n == nil || n.kind != KindTensor {
		return t, &Error{Offset: -1, Sort: ErrCorrupt, What: "a value of kind " + v.Kind().String() + " is no tensor"}
	}
	return v.d.tensorFrom(v.Class(), v.Args(), depth)
}

// tensorFrom reads the arguments of the functions by which torch makes tensors again.
func (d *Doc) tensorFrom(fn Class, args Value, depth int) (t Tensor, err error) {
	if depth > 8 {
		return t, d.fail(-1, ErrLimit, "a tensor is nested more than 8 deep")
	}
	t = Tensor{Class: "Tensor", Layout: "strided", d: d}
	a := args.Index
	switch fn.Name {
	case "_rebuild_parameter", "_rebuild_parameter_with_state":
		t, err = a(0).tensor(depth + 1)
		t.Class = "Parameter"
		t.RequiresGrad, _ = a(1).Bool()
		return t, err
	case "_rebuild_from_type", "_rebuild_from_type_v2":
		t, err = d.tensorFrom(a(0).Class(), a(2), depth+1)
		t.Class = a(1).Class().String()
		return t, err
	case "_rebuild_sparse_tensor", "_rebuild_sparse_csr_tensor":
		return d.sparseTensor(a(0), a(1), depth)
	case "_rebuild_meta_tensor_no_storage":
		t.DType = torchDType(a(0).Class().Name)
		if t.Shape, err = d.dims(a(1)); err != nil {
			return t, err
		}
		t.Stride, err = d.dims(a(2))
		t.RequiresGrad, _ = a(3).Bool()
		t.Storage.Location = "meta"
		return t, err
	case "_rebuild_device_tensor_from_numpy":
		return t, d.fail(-1, ErrUnsupported, "a tensor of an XLA-like device; read its first argument as a numpy array")
	}
	if t.Storage, err = a(0).Storage(); err != nil {
		return t, err
	}
	t.DType = t.Storage.dtype
	off, ok := a(1).Int()
	if !ok || off < 0 || off > maxOffset {
		return t, d.badTensor("begins at no valid element of its storage")
	}
	t.Offset = off + t.Storage.view
	if t.Shape, err = d.dims(a(2)); err != nil {
		return t, err
	}
	if t.Stride, err = d.dims(a(3)); err != nil {
		return t, err
	}
	if len(t.Shape) != len(t.Stride) {
		return t, d.badTensor("has %d dimensions and %d strides", len(t.Shape), len(t.Stride))
	}
	switch fn.Name {
	case "_rebuild_tensor_v2":
		t.RequiresGrad, _ = a(4).Bool()
	case "_rebuild_tensor_v3":
		t.RequiresGrad, _ = a(4).Bool()
		t.DType = torchDType(a(6).Class().Name)
	case "_rebuild_qtensor":
		t.RequiresGrad, _ = a(5).Bool()
	}
	if t.DType == 0 {
		return t, d.fail(-1, ErrUnsupported, "a tensor of an element type this reader does not know")
	}
	return t, nil
}

func (d *Doc) sparseTensor(layout, data Value, depth int) (t Tensor, err error) {
	t = Tensor{Class: "Tensor", Layout: "sparse_coo", d: d}
	if l := layout.Args().Index(0).Str(); len(l) > len("torch.") {
		t.Layout = l[len("torch."):]
	}
	at := 1
	if t.Layout == "sparse_coo" {
		idx, err := data.Index(0).tensor(depth + 1)
		if err != nil {
			return t, err
		}
		t.Indices = &idx
	} else {
		at = 2
	}
	val, err := data.Index(at).tensor(depth + 1)
	if err != nil {
		return t, err
	}
	t.Values, t.DType = &val, val.DType
	t.Shape, err = d.dims(data.Index(at + 1))
	return t, err
}

// Len is the number of elements; -1 when it does not fit in 48 bits.
func (t Tensor) Len() int64 { return product(t.Shape) }

func product(shape []int64) int64 {
	n := int64(1)
	for _, s := range shape {
		if s == 0 {
			return 0
		}
		if s < 0 || n > maxOffset/s {
			n = -1
			break
		}
		n *= s
	}
	if n < 0 { // too large, unless a later dimension is 0
		for _, s := range shape {
			if s == 0 {
				return 0
			}
		}
	}
	return n
}

// Contiguous says that the elements stand one after the other, the last dimension fastest.
func (t Tensor) Contiguous() bool {
	want := int64(1)
	for i := len(t.Shape) - 1; i >= 0; i-- {
		if t.Shape[i] != 1 && t.Stride[i] != want {
			return t.Len() == 0
		}
		want *= t.Shape[i]
	}
	return true
}

// BigEndian says that the elements' bytes stand in big-endian order.
func (t Tensor) BigEndian() bool { return t.Storage.f != nil && t.Storage.f.bigEndian }

func (t Tensor) order() binary.ByteOrder {
	if t.BigEndian() {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// dense says that the elements can be read one by one.
func (t Tensor) dense() error {
	if t.Layout != "strided" {
		return t.d.fail(-1, ErrUnsupported, "a %s tensor has no list of elements; read its Indices and Values", t.Layout)
	}
	if t.DType == QUInt4x2 || t.DType == QUInt2x4 {
		return t.d.fail(-1, ErrUnsupported, "a %s tensor packs several values in a byte; read its storage", t.DType)
	}
	return nil
}

// span checks that the view lies in its storage and returns the storage's bytes.
func (t Tensor) span() (data []byte, n int64, err error) {
	if err := t.dense(); err != nil {
		return nil, 0, err
	}
	if n = t.Len(); n == 0 {
		return nil, 0, nil
	}
	if n < 0 || n > t.d.lim.MaxMemory/8 {
		return nil, 0, t.d.fail(-1, ErrLimit, "a tensor of shape %v has more elements than Limits.MaxMemory allows", t.Shape)
	}
	last := t.Offset
	for i, s := range t.Shape {
		if s > 1 && t.Stride[i] > (maxOffset-last)/(s-1) {
			return nil, 0, t.d.badTensor("of shape %v and stride %v does not fit in any storage", t.Shape, t.Stride)
		}
		last += (s - 1) * t.Stride[i]
	}
	if data, err = t.Storage.Bytes(); err != nil {
		return nil, 0, err
	}
	if (last+1)*int64(t.DType.Size()) > int64(len(data)) {
		return nil, 0, t.d.badTensor("of shape %v needs %d bytes of storage %q, which has %d",
			t.Shape, (last+1)*int64(t.DType.Size()), t.Storage.Key, len(data))
	}
	return data, n, nil
}

// Bytes returns the elements' bytes, the last dimension fastest, in the file's byte order: a view
// of the file when the tensor is contiguous, gathered into a new slice otherwise.
func (t Tensor) Bytes() ([]byte, error) {
	data, n, err := t.span()
	if err != nil || n == 0 {
		return nil, err
	}
	size := int64(t.DType.Size())
	if t.Contiguous() {
		return data[t.Offset*size : (t.Offset+n)*size], nil
	}
	out := make([]byte, 0, n*size)
	t.walk(data, func(b []byte) { out = append(out, b...) })
	return out, nil
}

// walk calls fn with each element's bytes, the last dimension fastest.
func (t Tensor) walk(data []byte, fn func([]byte)) {
	size := int64(t.DType.Size())
	n := t.Len()
	if t.Contiguous() {
		for i := t.Offset; i < t.Offset+n; i++ {
			fn(data[i*size : (i+1)*size])
		}
		return
	}
	idx := make([]int64, len(t.Shape))
	at := t.Offset
	for ; n > 0; n-- {
		fn(data[at*size : (at+1)*size])
		for k := len(idx) - 1; k >= 0; k-- {
			idx[k]++
			at += t.Stride[k]
			if idx[k] < t.Shape[k] {
				break
			}
			at -= idx[k] * t.Stride[k]
			idx[k] = 0
		}
	}
}

// Float64s appends the elements as float64, the last dimension fastest. Complex tensors have
// Complex128s instead.
func (t Tensor) Float64s(dst []float64) ([]float64, error) {
	data, n, err := t.span()
	if err != nil || n == 0 {
		return dst, err
	}
	if t.DType.IsComplex() {
		return dst, t.d.fail(-1, ErrUnsupported, "a %s tensor as real numbers", t.DType)
	}
	o, dt := t.order(), t.DType
	t.walk(data, func(b []byte) {
		x, _ := dt.float(b, o)
		dst = append(dst, x)
	})
	return dst, nil
}

// Int64s appends the elements of an integer or bool tensor, the last dimension fastest. Elements of
// a uint64 tensor from 2^63 on come out negative.
func (t Tensor) Int64s(dst []int64) ([]int64, error) {
	data, n, err := t.span()
	if err != nil || n == 0 {
		return dst, err
	}
	if t.DType.IsComplex() || t.DType.IsFloat() {
		return dst, t.d.fail(-1, ErrUnsupported, "a %s tensor as integers", t.DType)
	}
	o, dt := t.order(), t.DType
	t.walk(data, func(b []byte) {
		x, _ := dt.int(b, o)
		dst = append(dst, x)
	})
	return dst, nil
}

// Complex128s appends the elements of a complex tensor, the last dimension fastest.
func (t Tensor) Complex128s(dst []complex128) ([]complex128, error) {
	data, n, err := t.span()
	if err != nil || n == 0 {
		return dst, err
	}
	if !t.DType.IsComplex() {
		return dst, t.d.fail(-1, ErrUnsupported, "a %s tensor as complex numbers", t.DType)
	}
	o, dt := t.order(), t.DType
	t.walk(data, func(b []byte) {
		x, _ := dt.complex(b, o)
		dst = append(dst, x)
	})
	return dst, nil
}

// extended decodes an x87 80-bit float, which numpy calls longdouble, to the nearest float64.
func extended(b []byte) float64 {
	m := binary.LittleEndian.Uint64(b)
	se := binary.LittleEndian.Uint16(b[8:])
	e := int(se & 0x7fff)
	var v float64
	switch {
	case e == 0x7fff && m<<1 != 0:
		return math.NaN()
	case e == 0x7fff:
		v = math.Inf(1)
	default:
		v = math.Ldexp(float64(m), e-16383-63)
	}
	if se&0x8000 != 0 {
		v = -v
	}
	return v
}
