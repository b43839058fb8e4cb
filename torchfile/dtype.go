package torchfile

import (
	"encoding/binary"
	"math"
	"strings"
)

// DType is a torch element type.
type DType uint8

// Element types of torch. The zero DType is unknown.
const (
	Float64 DType = iota + 1
	Float32
	Float16
	BFloat16
	Float8E4M3FN
	Float8E5M2
	Float8E4M3FNUZ
	Float8E5M2FNUZ
	Float8E8M0FNU
	Complex128
	Complex64
	Complex32
	Int64
	Int32
	Int16
	Int8
	UInt64
	UInt32
	UInt16
	UInt8
	TorchBool
	QInt8
	QUInt8
	QInt32
	QUInt4x2 // two values a byte
	QUInt2x4 // four values a byte
)

type dtypeInfo struct {
	name    string // without "torch."
	storage string // class of its storage, "" when only untyped storages hold it
	size    uint8
}

var dtypes = [...]dtypeInfo{
	{},
	Float64:        {"float64", "DoubleStorage", 8},
	Float32:        {"float32", "FloatStorage", 4},
	Float16:        {"float16", "HalfStorage", 2},
	BFloat16:       {"bfloat16", "BFloat16Storage", 2},
	Float8E4M3FN:   {"float8_e4m3fn", "", 1},
	Float8E5M2:     {"float8_e5m2", "", 1},
	Float8E4M3FNUZ: {"float8_e4m3fnuz", "", 1},
	Float8E5M2FNUZ: {"float8_e5m2fnuz", "", 1},
	Float8E8M0FNU:  {"float8_e8m0fnu", "", 1},
	Complex128:     {"complex128", "ComplexDoubleStorage", 16},
	Complex64:      {"complex64", "ComplexFloatStorage", 8},
	Complex32:      {"complex32", "ComplexHalfStorage", 4},
	Int64:          {"int64", "LongStorage", 8},
	Int32:          {"int32", "IntStorage", 4},
	Int16:          {"int16", "ShortStorage", 2},
	Int8:           {"int8", "CharStorage", 1},
	UInt64:         {"uint64", "", 8},
	UInt32:         {"uint32", "", 4},
	UInt16:         {"uint16", "", 2},
	UInt8:          {"uint8", "ByteStorage", 1},
	TorchBool:      {"bool", "BoolStorage", 1},
	QInt8:          {"qint8", "QInt8Storage", 1},
	QUInt8:         {"quint8", "QUInt8Storage", 1},
	QInt32:         {"qint32", "QInt32Storage", 4},
	QUInt4x2:       {"quint4x2", "QUInt4x2Storage", 1},
	QUInt2x4:       {"quint2x4", "QUInt2x4Storage", 1},
}

// String is the type's name in torch, as in "torch.bfloat16".
func (t DType) String() string {
	if t == 0 || int(t) >= len(dtypes) {
		return "unknown"
	}
	return "torch." + dtypes[t].name
}

// Size is the size of an element in bytes.
func (t DType) Size() int {
	if int(t) >= len(dtypes) {
		return 0
	}
	return int(dtypes[t].size)
}

// IsComplex says that elements are complex numbers.
func (t DType) IsComplex() bool { return t == Complex128 || t == Complex64 || t == Complex32 }

// IsFloat says that elements are floating point numbers.
func (t DType) IsFloat() bool { return t >= Float64 && t <= Float8E8M0FNU }

// torchDType finds an element type by its name or an alias, without "torch."; 0 for none.
func torchDType(name string) DType {
	switch name {
	case "double":
		return Float64
	case "float":
		return Float32
	case "half":
		return Float16
	case "cfloat":
		return Complex64
	case "cdouble":
		return Complex128
	case "chalf":
		return Complex32
	case "long":
		return Int64
	case "int":
		return Int32
	case "short":
		return Int16
	case "":
		return 0
	}
	for i, d := range dtypes {
		if d.name == name {
			return DType(i)
		}
	}
	return 0
}

// storageDType finds the element type of a storage class; 0 for untyped ones.
func storageDType(class string) DType {
	class = class[strings.LastIndexByte(class, '.')+1:]
	for i, d := range dtypes {
		if d.storage != "" && d.storage == class {
			return DType(i)
		}
	}
	return 0
}

// float decodes one real element.
func (t DType) float(b []byte, o binary.ByteOrder) (float64, bool) {
	switch t {
	case Float64:
		return math.Float64frombits(o.Uint64(b)), true
	case Float32:
		return float64(math.Float32frombits(o.Uint32(b))), true
	case Float16:
		return halfToFloat(o.Uint16(b)), true
	case BFloat16:
		return float64(math.Float32frombits(uint32(o.Uint16(b)) << 16)), true
	case Float8E4M3FN:
		if b[0]&0x7f == 0x7f {
			return math.NaN(), true
		}
		return smallFloat(b[0], 3, 7), true
	case Float8E5M2:
		return halfToFloat(uint16(b[0]) << 8), true
	case Float8E4M3FNUZ:
		if b[0] == 0x80 {
			return math.NaN(), true
		}
		return smallFloat(b[0], 3, 8), true
	case Float8E5M2FNUZ:
		if b[0] == 0x80 {
			return math.NaN(), true
		}
		return smallFloat(b[0], 2, 16), true
	case Float8E8M0FNU:
		if b[0] == 0xff {
			return math.NaN(), true
		}
		return math.Ldexp(1, int(b[0])-127), true
	}
	if i, ok := t.int(b, o); ok {
		if t == UInt64 {
			return float64(uint64(i)), true
		}
		return float64(i), true
	}
	return 0, false
}

// int decodes one integer element; a uint64 comes as the int64 with the same bits.
func (t DType) int(b []byte, o binary.ByteOrder) (int64, bool) {
	switch t {
	case Int64, UInt64:
		return int64(o.Uint64(b)), true
	case Int32, QInt32:
		return int64(int32(o.Uint32(b))), true
	case Int16:
		return int64(int16(o.Uint16(b))), true
	case Int8, QInt8:
		return int64(int8(b[0])), true
	case UInt32:
		return int64(o.Uint32(b)), true
	case UInt16:
		return int64(o.Uint16(b)), true
	case UInt8, QUInt8:
		return int64(b[0]), true
	case TorchBool:
		if b[0] != 0 {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// complex decodes one complex element.
func (t DType) complex(b []byte, o binary.ByteOrder) (complex128, bool) {
	switch t {
	case Complex128:
		return complex(math.Float64frombits(o.Uint64(b)), math.Float64frombits(o.Uint64(b[8:]))), true
	case Complex64:
		return complex(float64(math.Float32frombits(o.Uint32(b))), float64(math.Float32frombits(o.Uint32(b[4:])))), true
	case Complex32:
		return complex(halfToFloat(o.Uint16(b)), halfToFloat(o.Uint16(b[2:]))), true
	}
	return 0, false
}

// halfToFloat decodes an IEEE 754 binary16 number.
func halfToFloat(h uint16) float64 {
	sign := 1.0
	if h&0x8000 != 0 {
		sign = -1
	}
	exp, frac := int(h>>10)&0x1f, float64(h&0x3ff)
	switch exp {
	case 0:
		return math.Copysign(math.Ldexp(frac, -24), sign)
	case 0x1f:
		if frac != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1+frac/1024, exp-15)
}

// smallFloat decodes an 8-bit float without infinities.
func smallFloat(b byte, fracBits, bias int) float64 {
	sign := 1.0
	if b&0x80 != 0 {
		sign = -1
	}
	frac := float64(b&(1<<fracBits-1)) / float64(int(1)<<fracBits)
	exp := int(b&0x7f) >> fracBits
	if exp == 0 {
		return math.Copysign(math.Ldexp(frac, 1-bias), sign)
	}
	return sign * math.Ldexp(1+frac, exp-bias)
}
