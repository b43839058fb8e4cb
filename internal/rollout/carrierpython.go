package rollout

import (
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/rollscope/rollscope/torchfile"
)

// isFalse is Python's `not v`, for what a pickle holds as plain data; a missing value is false.
func isFalse(v torchfile.Value) bool {
	switch v.Kind() {
	case torchfile.KindInvalid, torchfile.KindNone:
		return v.Err() == nil
	case torchfile.KindBool:
		b, _ := v.Bool()
		return !b
	case torchfile.KindInt:
		n, ok := v.Int()
		return ok && n == 0
	case torchfile.KindFloat:
		f, _ := v.Float()
		return f == 0
	case torchfile.KindStr, torchfile.KindBytes, torchfile.KindByteArray, torchfile.KindList, torchfile.KindTuple,
		torchfile.KindDict, torchfile.KindSet, torchfile.KindFrozenSet:
		return v.Len() == 0
	case torchfile.KindNPScalar, torchfile.KindTensor, torchfile.KindNDArray:
		f, _, ok := number(v)
		return ok && f == 0
	}
	return false
}

// pyFloat is Python's float(v): numbers and bools in any form, and the text of one. Integers beyond 64
// bits, of which Python takes those up to 2^1024, are no time.
func pyFloat(v torchfile.Value) (float64, bool) {
	if bigInt(v) {
		return 0, false
	}
	if f, _, ok := number(v); ok {
		return f, true
	}
	switch v.Kind() {
	case torchfile.KindStr:
		return pyFloatText(string(cutText(v.RawStr(), maxText)))
	case torchfile.KindBytes, torchfile.KindByteArray:
		if v.Len() <= maxText {
			return pyFloatText(string(v.Bytes()))
		}
	case torchfile.KindNPScalar:
		if s, err := v.NPScalar(); err == nil {
			if text, ok := s.Elem().Text(); ok {
				return pyFloatText(text)
			}
		}
	case torchfile.KindObject:
		if c := v.Class(); c.Module == "decimal" && c.Name == "Decimal" || c.Module == "_decimal" {
			if arg := v.Args().Index(0); arg.Kind() == torchfile.KindStr {
				return pyFloatText(string(cutText(arg.RawStr(), maxText)))
			}
		}
	}
	return 0, false
}

// pyFloatText is Python's float(s) of text: space around it, underscores between digits, inf and nan
// in any case; no hexadecimal.
func pyFloatText(s string) (float64, bool) {
	s, ok := pyDigits(s)
	if !ok || strings.ContainsAny(s, "xXpP") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || math.IsInf(f, 0) // what is too large is infinite
}

// pyInt is Python's int(s) of text, within 64 bits.
func pyInt(s string) (int64, bool) {
	s, ok := pyDigits(s)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// pyDigits strips the space around a number and takes underscores between digits out.
func pyDigits(s string) (string, bool) {
	s = strings.TrimFunc(s, func(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f })
	if !strings.Contains(s, "_") {
		return s, s != ""
	}
	digit := func(i int) bool { return i >= 0 && i < len(s) && s[i] >= '0' && s[i] <= '9' }
	for i := range len(s) {
		if s[i] == '_' && !(digit(i-1) && digit(i+1)) {
			return "", false
		}
	}
	return strings.ReplaceAll(s, "_", ""), true
}

// attemptOf is Python's int(v or 0). ok is false where Python raises an error, or the number is no
// attempt that anybody could have made.
func attemptOf(v torchfile.Value) (n int, ok bool) {
	if isFalse(v) {
		return 0, true
	}
	i, ok := int64(0), false
	switch v.Kind() {
	case torchfile.KindInt:
		i, ok = v.Int()
	case torchfile.KindStr:
		i, ok = pyInt(string(cutText(v.RawStr(), maxWord)))
	default:
		f, _, isNumber := number(v)
		if ok = isNumber && math.Abs(f) <= 1<<53; ok {
			i = int64(f)
		}
	}
	return int(i), ok
}
