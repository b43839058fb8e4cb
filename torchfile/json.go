package torchfile

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"
)

// JSONOptions are the choices of [WriteJSON].
type JSONOptions struct {
	// MaxBytes ends the output with ErrLimit; a value that refers to itself many times can be far
	// larger than its file. Default 1 GiB.
	MaxBytes int64
}

// WriteJSON writes v as type-tagged JSON, from which every value could be made again. The same value
// gives the same bytes.
//
// None, bools, integers up to 2^53, strings, lists and dicts with string keys are what JSON has for
// them; a lone surrogate in a key is the escape that Python's json
// module writes. Everything else is an object with one key that begins with "$":
//
//	{"$f": "0x1.8000000000000p+1"}      a float, in C's hexadecimal form; inf, -inf, nan
//	{"$int": "9223372036854775808"}     an integer beyond 2^53
//	{"$c": [RE, IM]}                    a complex number
//	{"$surrogate_str": HEX}             a string with lone surrogates, as UTF-8 with surrogatepass
//	{"$bytes": HEX}, {"$bytearray": HEX}
//	{"$tuple": [...]}, {"$set": [...]}, {"$frozenset": [...]}, {"$torch.Size": [...]}
//	{"$pairs": [[KEY, VALUE], ...]}     a dict with other keys (or keys that begin with "$")
//	{"$OrderedDict": DICT}, {"$defaultdict": DICT}, {"$Counter": DICT}
//	{"$tensor": {class, dtype, shape, stride, requires_grad, data}}
//	{"$sparse": {dtype, shape, indices, values}}
//	{"$dtype": "torch.float32"}, {"$device": "cuda:0"}, {"$storage": {key, dtype, location, elements}}
//	{"$ndarray": {dtype, shape, data}}, {"$np": {dtype, value}}
//	{"$str": TEXT, "$type": CLASS}      a value of the standard library, as Python's str() shows it
//	{"$obj": {class, state}}            any other object; "args", "kwargs", "items" and "pairs" where
//	                                    it has them, "call": true when it is a call that was not made
//	{"$global": "module.Name"}          a class or function
//	{"$persistent": VALUE}, {"$buffer": N}
//	{"$cycle": N}                       the container N levels up
//	{"$error": TEXT}                    a part that is damaged or not supported
//
// Nesting beyond Limits.MaxDepth is an error.
func WriteJSON(w io.Writer, v Value, opts JSONOptions) (err error) {
	if v.d != nil {
		defer v.d.f.leave(v.d.f.enter(), &err, nil)
	}
	j := &jsonWriter{w: w, left: opts.MaxBytes}
	if j.left <= 0 {
		j.left = 1 << 30
	}
	if err := j.value(v); err != nil {
		return err
	}
	return j.flush()
}

type jsonWriter struct {
	w    io.Writer
	buf  []byte
	left int64
	open []uint64 // containers around the current value
}

func (j *jsonWriter) flush() error {
	if j.left -= int64(len(j.buf)); j.left < 0 {
		return &Error{Offset: -1, Sort: ErrLimit, What: "the JSON is larger than JSONOptions.MaxBytes"}
	}
	_, err := j.w.Write(j.buf)
	j.buf = j.buf[:0]
	return err
}

func (j *jsonWriter) str(s string) { j.buf = append(j.buf, s...) }

func (j *jsonWriter) value(v Value) error {
	if len(j.buf) > 1<<15 {
		if err := j.flush(); err != nil {
			return err
		}
	}
	switch v.Kind() {
	case KindInvalid:
		err := v.Err()
		if isLimit(err) || errors.Is(err, ErrOrder) {
			return err
		}
		if err != nil {
			j.failed(err)
			return nil
		}
		j.str("null")
	case KindNone:
		j.str("null")
	case KindBool:
		b, _ := v.Bool()
		j.buf = strconv.AppendBool(j.buf, b)
	case KindInt:
		return j.integer(v)
	case KindFloat:
		f, _ := v.Float()
		j.float(f)
	case KindStr:
		if b := v.RawStr(); utf8.Valid(b) {
			j.buf = appendJSONString(j.buf, b)
		} else {
			j.tagHex("$surrogate_str", b)
		}
	case KindBytes:
		j.tagHex("$bytes", v.Bytes())
	case KindByteArray:
		j.tagHex("$bytearray", v.Bytes())
	case KindGlobal:
		j.global(v)
	case KindBuffer:
		j.str(`{"$buffer":`)
		j.buf = strconv.AppendUint(j.buf, v.c.b, 10)
		j.str("}")
	default:
		return j.container(v)
	}
	return nil
}

// container writes what may hold other values.
func (j *jsonWriter) container(v Value) error {
	id := v.ID()
	for i := len(j.open) - 1; i >= 0; i-- {
		if j.open[i] == id {
			j.str(`{"$cycle":` + strconv.Itoa(len(j.open)-i) + "}")
			return nil
		}
	}
	if len(j.open) >= v.d.lim.MaxDepth {
		return v.d.fail(-1, ErrLimit, "values nest deeper than Limits.MaxDepth (%d)", v.d.lim.MaxDepth)
	}
	j.open = append(j.open, id)
	defer func() { j.open = j.open[:len(j.open)-1] }()
	switch v.Kind() {
	case KindList:
		return j.seq(v)
	case KindTuple:
		tag := "$tuple"
		if v.Class().Name == "Size" {
			tag = "$torch.Size"
		}
		return j.tagged(tag, func() error { return j.seq(v) })
	case KindSet:
		return j.tagged("$set", func() error { return j.seq(v) })
	case KindFrozenSet:
		return j.tagged("$frozenset", func() error { return j.seq(v) })
	case KindDict:
		if c := v.Class(); c.Name != "" {
			return j.tagged("$"+c.Name, func() error { return j.dict(v) })
		}
		return j.dict(v)
	case KindComplex:
		re, _ := v.Args().Index(0).Number()
		im, _ := v.Args().Index(1).Number()
		j.complex(complex(re, im))
	case KindTensor:
		return j.soften(v, j.tensor)
	case KindNDArray:
		return j.soften(v, j.ndarray)
	case KindNPScalar:
		return j.soften(v, j.npscalar)
	case KindStorage:
		return j.soften(v, j.storage)
	case KindPersistent:
		return j.tagged("$persistent", func() error { return j.value(v.Args()) })
	case KindObject:
		return j.object(v)
	}
	return nil
}

// soften writes what cannot be shown of a damaged tensor or array as a tagged message, so that one
// bad value does not lose the rest. Limits stay errors.
func (j *jsonWriter) soften(v Value, fn func(Value) error) error {
	at := len(j.buf)
	left := j.left
	err := fn(v)
	if err == nil || isLimit(err) || j.left != left {
		return err
	}
	j.buf = j.buf[:at]
	j.failed(err)
	return nil
}

func (j *jsonWriter) failed(err error) {
	j.str(`{"$error":`)
	j.quoted(err.Error())
	j.str("}")
}

func (j *jsonWriter) tagged(tag string, fn func() error) error {
	j.str("{")
	j.buf = appendJSONString(j.buf, []byte(tag))
	j.str(":")
	if err := fn(); err != nil {
		return err
	}
	j.str("}")
	return nil
}

func (j *jsonWriter) tagHex(tag string, b []byte) {
	j.str(`{"` + tag + `":"`)
	j.buf = hex.AppendEncode(j.buf, b)
	j.str(`"}`)
}

func (j *jsonWriter) seq(v Value) error {
	j.str("[")
	for i, x := range v.All() {
		if i > 0 {
			j.str(",")
		}
		if err := j.value(x); err != nil {
			return err
		}
	}
	j.str("]")
	return nil
}

// plainKeys says that a dict can be a JSON object: its keys are strings, none of them twice.
func plainKeys(v Value) bool {
	cells := v.pairCells()
	few := len(cells) <= 64
	var keys map[string]struct{}
	if !few {
		keys = make(map[string]struct{}, len(cells)/2)
	}
	for i := 0; i+1 < len(cells); i += 2 {
		k := Value{v.d, cells[i]}
		b := k.RawStr()
		if k.Kind() != KindStr || (len(b) > 0 && b[0] == '$') {
			return false
		}
		if !few {
			if _, twice := keys[string(b)]; twice {
				return false
			}
			keys[string(b)] = struct{}{}
			continue
		}
		for m := 0; m < i; m += 2 {
			if (Value{v.d, cells[m]}).Is(string(b)) {
				return false
			}
		}
	}
	return true
}

func (j *jsonWriter) dict(v Value) error {
	if !plainKeys(v) {
		return j.tagged("$pairs", func() error { return j.pairs(v) })
	}
	j.str("{")
	n := 0
	for k, x := range v.Pairs() {
		if n++; n > 1 {
			j.str(",")
		}
		j.buf = appendJSONString(j.buf, k.RawStr())
		j.str(":")
		if err := j.value(x); err != nil {
			return err
		}
	}
	j.str("}")
	return nil
}

func (j *jsonWriter) pairs(v Value) error {
	j.str("[")
	n := 0
	for k, x := range v.Pairs() {
		if n++; n > 1 {
			j.str(",")
		}
		j.str("[")
		if err := j.value(k); err != nil {
			return err
		}
		j.str(",")
		if err := j.value(x); err != nil {
			return err
		}
		j.str("]")
	}
	j.str("]")
	return nil
}

func (j *jsonWriter) integer(v Value) error {
	if i, ok := v.Int(); ok {
		j.int64(i)
		return nil
	}
	b, ok := v.BigInt()
	if !ok {
		return v.d.fail(-1, ErrLimit, "an integer is longer than Limits.MaxIntBytes (%d)", v.d.lim.MaxIntBytes)
	}
	j.bigInt(b)
	return nil
}

func (j *jsonWriter) bigInt(b *big.Int) {
	if b.IsInt64() {
		j.int64(b.Int64())
		return
	}
	j.str(`{"$int":"`)
	j.buf = b.Append(j.buf, 10)
	j.str(`"}`)
}

func (j *jsonWriter) int64(i int64) {
	if i > 1<<53 || i < -1<<53 {
		j.str(`{"$int":"`)
		j.buf = strconv.AppendInt(j.buf, i, 10)
		j.str(`"}`)
		return
	}
	j.buf = strconv.AppendInt(j.buf, i, 10)
}

func (j *jsonWriter) float(f float64) {
	j.str(`{"$f":"`)
	j.buf = appendHexFloat(j.buf, f)
	j.str(`"}`)
}

func (j *jsonWriter) complex(c complex128) {
	j.str(`{"$c":["`)
	j.buf = appendHexFloat(j.buf, real(c))
	j.str(`","`)
	j.buf = appendHexFloat(j.buf, imag(c))
	j.str(`"]}`)
}

// appendHexFloat writes a float as Python's float.hex does.
func appendHexFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	}
	bits := math.Float64bits(f)
	if bits>>63 != 0 {
		dst = append(dst, '-')
	}
	exp := int(bits>>52) & 0x7ff
	frac := bits & (1<<52 - 1)
	switch {
	case exp == 0 && frac == 0:
		return append(dst, "0x0.0p+0"...)
	case exp == 0:
		return fmt.Appendf(dst, "0x0.%013xp-1022", frac)
	}
	return fmt.Appendf(dst, "0x1.%013xp%+d", frac, exp-1023)
}

const hexDigits = "0123456789abcdef"

// appendJSONString quotes UTF-8 (lone surrogates included) in ASCII, as Python's json module does.
func appendJSONString(dst, s []byte) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case c == '"' || c == '\\':
				dst = append(dst, '\\', c)
			case c == '\n':
				dst = append(dst, '\\', 'n')
			case c == '\r':
				dst = append(dst, '\\', 'r')
			case c == '\t':
				dst = append(dst, '\\', 't')
			case c == '\b':
				dst = append(dst, '\\', 'b')
			case c == '\f':
				dst = append(dst, '\\', 'f')
			case c < 0x20 || c == 0x7f:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			default:
				dst = append(dst, c)
			}
			continue
		}
		r, n := utf8.DecodeRune(s[i:])
		if r == utf8.RuneError && n == 1 && i+3 <= len(s) && s[i] == 0xed { // a lone surrogate
			r, n = rune(s[i]&15)<<12|rune(s[i+1]&0x3f)<<6|rune(s[i+2]&0x3f), 3
		}
		i += n
		if r > 0xffff {
			r -= 0x10000
			dst = appendU(dst, 0xd800+r>>10)
			r = 0xdc00 + r&0x3ff
		}
		dst = appendU(dst, r)
	}
	return append(dst, '"')
}

func appendU(dst []byte, r rune) []byte {
	return append(dst, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

func (j *jsonWriter) quoted(s string) { j.buf = appendJSONString(j.buf, []byte(validUTF8(s))) }

// validUTF8 replaces what is not UTF-8.
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

func (j *jsonWriter) ints(x []int64) {
	j.str("[")
	for i, v := range x {
		if i > 0 {
			j.str(",")
		}
		j.int64(v)
	}
	j.str("]")
}

func (j *jsonWriter) global(v Value) {
	c := v.Class()
	if e, ok := v.Enum(); ok && e.HasKnown {
		j.enum(e)
		return
	}
	switch {
	case c.Module == "torch" && torchDType(c.Name) != 0:
		j.str(`{"$dtype":`)
		j.quoted(torchDType(c.Name).String())
		j.str("}")
	case c.Module == "builtins" && (c.Name == "Ellipsis" || c.Name == "NotImplemented"):
		j.strType(c.Name, pyTypeOfConstant(c.Name))
	case isBuiltinFunction(c):
		j.strType("<built-in function "+c.Name+">", "builtins.builtin_function_or_method")
	default:
		j.str(`{"$global":`)
		j.quoted(c.String())
		j.str("}")
	}
}

func (j *jsonWriter) strType(text, class string) {
	j.str(`{"$str":`)
	j.quoted(text)
	j.str(`,"$type":`)
	j.quoted(class)
	j.str("}")
}

// enum writes a member of which both halves are known.
func (j *jsonWriter) enum(e EnumMember) {
	j.str(`{"$obj":{"class":`)
	j.quoted(e.Class.String())
	j.str(`,"state":{"name":`)
	j.quoted(e.Name)
	j.str(`,"value":`)
	x := e.Known
	if e.Value.Exists() {
		_ = j.value(e.Value) // an atom that equals the hint
		j.str("}}}")
		return
	}
	switch x := x.(type) {
	case string:
		j.quoted(x)
	case bool:
		j.buf = strconv.AppendBool(j.buf, x)
	case int:
		j.int64(int64(x))
	case float64:
		j.float(x)
	default:
		j.str("null")
	}
	j.str("}}}")
}

func (j *jsonWriter) object(v Value) error {
	class := v.Class()
	if class.Module == "torch" && class.Name == "device" {
		j.str(`{"$device":`)
		j.quoted(v.PyStr())
		j.str("}")
		return nil
	}
	if e, ok := v.Enum(); ok && e.Name != "" {
		j.enum(e)
		return nil
	}
	if s, ok := v.pyKnown(); ok {
		j.strType(s, class.String())
		return nil
	}
	j.str(`{"$obj":{"class":`)
	j.quoted(class.String())
	if class.Name == "" {
		if e := v.extension(); e != nil && e.class.kind() != ckEmpty { // made by what is no global
			j.str(`,"of":`)
			if err := j.value(Value{v.d, e.class}); err != nil {
				return err
			}
		}
	}
	j.str(`,"state":`)
	if err := j.state(v.State()); err != nil {
		return err
	}
	if a := v.Args(); a.Kind() != KindTuple && a.Exists() || a.Len() > 0 {
		j.str(`,"args":`)
		var err error
		if a.Kind() == KindTuple {
			err = j.seq(a)
		} else {
			err = j.value(a)
		}
		if err != nil {
			return err
		}
	}
	if k := v.Kwargs(); k.Exists() {
		j.str(`,"kwargs":`)
		if err := j.value(k); err != nil {
			return err
		}
	}
	if n := v.nodeOf(); n != nil && n.n > 0 {
		j.str(`,"items":`)
		if err := j.seq(v); err != nil {
			return err
		}
	}
	if len(v.pairCells()) > 0 {
		j.str(`,"pairs":`)
		if err := j.dict(v); err != nil {
			return err
		}
	}
	if v.Called() {
		j.str(`,"call":true`)
	}
	j.str("}}")
	return nil
}

// state writes an object's state: {} when it has none, attributes and slots as one dict.
func (j *jsonWriter) state(s Value) error {
	if !s.Exists() {
		j.str("{}")
		return nil
	}
	if s.Kind() == KindTuple && s.Len() == 2 && s.Index(0).IsNone() && s.Index(1).Kind() == KindDict {
		s = s.Index(1)
	}
	return j.value(s)
}
