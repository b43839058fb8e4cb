package rollout

import (
	"fmt"
	"math"
	"strconv"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/torchfile"
)

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

func isList(v torchfile.Value) bool {
	switch v.Kind() {
	case torchfile.KindList, torchfile.KindTuple, torchfile.KindSet, torchfile.KindFrozenSet:
		return true
	case torchfile.KindObject: // a subclass of list that nobody here has
		return v.Len() > 0 && v.Index(0).Exists() && v.State().Kind() != torchfile.KindDict
	}
	return false
}

func isMapping(v torchfile.Value) bool {
	k := v.Kind()
	return k == torchfile.KindDict || k == torchfile.KindObject
}

// number reads a real number in any of its forms: int, float, bool, numpy scalar, and tensors and
// arrays of one element.
func number(v torchfile.Value) (f float64, isBool, ok bool) {
	switch v.Kind() {
	case torchfile.KindBool:
		b, _ := v.Bool()
		if b {
			f = 1
		}
		return f, true, true
	case torchfile.KindInt, torchfile.KindFloat:
		f, ok = v.Number()
		return f, false, ok
	case torchfile.KindNPScalar:
		s, err := v.NPScalar()
		if err != nil {
			return 0, false, false
		}
		return elem(s.Elem())
	case torchfile.KindNDArray:
		a, err := v.NDArray()
		if err != nil || a.Len() != 1 {
			return 0, false, false
		}
		err = a.Each(func(e torchfile.Elem) error {
			f, isBool, ok = elem(e)
			return nil
		})
		return f, isBool, ok && err == nil
	case torchfile.KindTensor:
		t, err := v.Tensor()
		if err != nil || t.Len() != 1 || t.DType.IsComplex() {
			return 0, false, false
		}
		x, err := t.Float64s(nil)
		if err != nil || len(x) != 1 {
			return 0, false, false
		}
		return x[0], t.DType == torchfile.TorchBool, true
	}
	return 0, false, false
}

func elem(e torchfile.Elem) (f float64, isBool, ok bool) {
	switch e.Type().Kind {
	case 'b':
		n, ok := e.Int()
		return float64(n), true, ok
	case 'i', 'u', 'f':
		f, ok = e.Number()
		return f, false, ok
	case 'O':
		if o := e.Object(); o.Kind() == torchfile.KindInt || o.Kind() == torchfile.KindFloat {
			f, ok = o.Number()
			return f, false, ok
		}
	}
	return 0, false, false
}

// integer reads an integer in any of its forms; why says what is wrong with it. Bools and text are
// none; a float is one when it has no fraction.
func integer(v torchfile.Value) (n int64, why string) {
	switch v.Kind() {
	case torchfile.KindInt:
		n, ok := v.Int()
		if !ok {
			return 0, "an integer beyond 64 bits"
		}
		return n, ""
	case torchfile.KindNPScalar:
		if s, err := v.NPScalar(); err == nil && s.Type.Kind == 'i' {
			if n, ok := s.Elem().Int(); ok {
				return n, ""
			}
		}
	}
	f, isBool, ok := number(v)
	if !ok || isBool {
		return 0, "not an integer: " + describe(v)
	}
	if f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, "not an integer: " + strconv.FormatFloat(f, 'g', -1, 64)
	}
	return int64(f), ""
}

// bigInt says that v is an integer beyond 64 bits: to convert it takes time, which a file that refers
// to one of 64 KiB from each event has for the asking.
func bigInt(v torchfile.Value) bool {
	if v.Kind() != torchfile.KindInt {
		return false
	}
	_, ok := v.Int()
	return !ok
}

// measure reads a duration, a count or a rate: a finite real number from 0 on, within 64 bits; bools are
// none. None and a missing value are Absent. A number that cannot be keeps its value.
func measure(v torchfile.Value) request.Value {
	if k := v.Kind(); k == torchfile.KindInvalid && v.Err() == nil || k == torchfile.KindNone {
		return request.Value{}
	}
	if bigInt(v) {
		return request.Value{State: request.Invalid}
	}
	f, isBool, ok := number(v)
	if !ok || isBool {
		return request.Value{State: request.Invalid}
	}
	if !finite(f) || f < 0 {
		return request.Value{V: f, State: request.Invalid}
	}
	return request.Value{V: f, State: request.Known}
}

// length is the number of elements of a list, tuple, tensor or array.
func length(v torchfile.Value) (n int64, ok bool) {
	switch v.Kind() {
	case torchfile.KindList, torchfile.KindTuple:
		return int64(v.Len()), true
	case torchfile.KindTensor:
		if t, err := v.Tensor(); err == nil {
			n = t.Len()
			return n, n >= 0
		}
	case torchfile.KindNDArray:
		if a, err := v.NDArray(); err == nil {
			n = a.Len()
			return n, n >= 0
		}
	}
	return 0, false
}

// maxElements bounds a mask and the columns of a train dict that are tensors.
const maxElements = 1 << 24

// sum adds up a mask: a list, tuple, tensor or array of numbers or bools. Fractions are cut off the
// sum.
func (r *reader) sum(v torchfile.Value) (n int64, ok bool) {
	// A tensor may be a view that repeats one element as often as it likes.
	if n, ok := length(v); !ok || n > maxElements || !r.afford(int(n/8)) {
		return 0, false
	}
	r.ints, r.floats = r.ints[:0], r.floats[:0]
	switch v.Kind() {
	case torchfile.KindList, torchfile.KindTuple:
		if n, ok = v.SumInts(); !ok {
			r.floats, ok = v.Floats(r.floats)
		}
	case torchfile.KindTensor:
		if t, err := v.Tensor(); err == nil && t.DType.IsFloat() {
			r.floats, err = t.Float64s(r.floats)
			ok = err == nil
		} else if err == nil {
			r.ints, err = t.Int64s(r.ints)
			ok = err == nil
		}
	case torchfile.KindNDArray:
		if a, err := v.NDArray(); err == nil && a.Type.Kind == 'f' {
			r.floats, err = a.Float64s(r.floats)
			ok = err == nil
		} else if err == nil {
			r.ints, err = a.Int64s(r.ints)
			ok = err == nil
		}
	}
	if !ok {
		return 0, false
	}
	for _, x := range r.ints {
		n += x
	}
	f := 0.0
	for _, x := range r.floats {
		f += x
	}
	if len(r.floats) > 0 && (!finite(f) || math.Abs(f) > 1<<53) {
		return 0, false
	}
	return n + int64(f), true
}

// describe says in a few words what v is.
func describe(v torchfile.Value) string {
	switch k := v.Kind(); k {
	case torchfile.KindInvalid:
		if err := v.Err(); err != nil {
			return "a value that cannot be decoded: " + err.Error()
		}
		return "nothing"
	case torchfile.KindNone:
		return "None"
	case torchfile.KindBool, torchfile.KindFloat:
		return v.PyRepr()
	case torchfile.KindInt:
		if n, ok := v.Int(); ok {
			return strconv.FormatInt(n, 10)
		}
		return "an integer beyond 64 bits"
	case torchfile.KindStr:
		return quote(v.RawStr())
	case torchfile.KindObject, torchfile.KindGlobal:
		return "a " + k.String() + " " + v.Class().String()
	case torchfile.KindList, torchfile.KindTuple, torchfile.KindDict, torchfile.KindSet, torchfile.KindFrozenSet,
		torchfile.KindBytes, torchfile.KindByteArray:
		return fmt.Sprintf("a %s of %d", k, v.Len())
	default:
		return "a " + k.String()
	}
}

// quote shows text in at most 60 bytes of it.
func quote(b []byte) string {
	if len(b) > 60 {
		return fmt.Sprintf("%q... (%d bytes)", b[:60], len(b))
	}
	return strconv.Quote(string(b))
}
