package timeline

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/rollscope/rollscope/torchfile"
)

const (
	maxAttrs     = 64 << 10 // bytes of JSON of one item's start or end attributes
	maxString    = 4 << 10  // bytes of a string in them
	maxJSONDepth = 16
)

// appendPlain appends v as JSON that shows it to a person: the types of Python that JSON lacks are
// their str, NaN and infinities the strings "NaN", "Infinity", "-Infinity", integers beyond 2^53
// strings. Long strings are cut, and what nests deeper than 16 or lies past limit bytes is "…".
func appendPlain(dst []byte, v torchfile.Value, limit int) []byte {
	p := plain{dst: dst, limit: len(dst) + limit}
	p.value(v, 0)
	return p.dst
}

type plain struct {
	dst   []byte
	limit int // of len(dst); one string or closing brackets may go beyond
	text  int // bytes of one string, maxString when 0
}

func (p *plain) str(s string) { p.dst = append(p.dst, s...) }

func (p *plain) full() bool { return len(p.dst) >= p.limit }

func (p *plain) value(v torchfile.Value, depth int) {
	k := v.Kind()
	switch k {
	case torchfile.KindInvalid, torchfile.KindNone:
		p.str("null")
		return
	case torchfile.KindBool:
		b, _ := v.Bool()
		p.dst = strconv.AppendBool(p.dst, b)
		return
	case torchfile.KindInt:
		p.int(v)
		return
	case torchfile.KindFloat:
		f, _ := v.Float()
		p.dst = appendFloat(p.dst, f)
		return
	case torchfile.KindStr:
		p.quote(v.RawStr())
		return
	case torchfile.KindNPScalar:
		if p.npScalar(v) {
			return
		}
	case torchfile.KindTensor:
		if t, err := v.Tensor(); err == nil && t.Len() == 1 {
			if f, ok := v.Number(); ok {
				p.dst = appendFloat(p.dst, f)
				return
			}
		}
	case torchfile.KindList, torchfile.KindTuple, torchfile.KindSet, torchfile.KindFrozenSet:
		if depth >= maxJSONDepth || p.full() {
			break
		}
		p.str("[")
		for i, x := range v.All() {
			if i > 0 {
				p.str(",")
			}
			if p.full() {
				p.str(`"…"`)
				break
			}
			p.value(x, depth+1)
		}
		p.str("]")
		return
	case torchfile.KindDict:
		if depth >= maxJSONDepth || p.full() {
			break
		}
		p.dict(v, depth)
		return
	case torchfile.KindGlobal, torchfile.KindObject:
		if p.enum(v, depth) {
			return
		}
	}
	if depth >= maxJSONDepth || p.full() {
		p.str(`"…"`)
		return
	}
	p.quote([]byte(v.PyStr()))
}

// npScalar writes a numpy scalar that JSON has a form for.
func (p *plain) npScalar(v torchfile.Value) bool {
	s, err := v.NPScalar()
	if err != nil {
		return false
	}
	e := s.Elem()
	switch s.Type.Kind {
	case 'b':
		i, ok := e.Int()
		p.dst = strconv.AppendBool(p.dst, ok && i != 0)
		return true
	case 'i', 'u':
		if i, ok := e.Int(); ok {
			p.dst = appendSafe(p.dst, i)
			return true
		}
	case 'f':
		if f, ok := e.Number(); ok {
			if a := math.Abs(f); s.Type.Size <= 4 && a >= 1e-6 && a < 1e21 && f != math.Trunc(f) { // 0.1 is not 0.10000000149011612
				p.dst = strconv.AppendFloat(p.dst, f, 'f', -1, 32)
				return true
			}
			p.dst = appendFloat(p.dst, f)
			return true
		}
	}
	return false
}

// enum writes a member of an enum by its value, or by its name where the value is not known.
func (p *plain) enum(v torchfile.Value, depth int) bool {
	e, ok := v.Enum()
	if !ok || depth >= maxJSONDepth {
		return false
	}
	if v.Kind() == torchfile.KindObject { // a call with one argument may be anything
		if k := e.Value.Kind(); k != torchfile.KindStr && k != torchfile.KindInt {
			return false
		}
		p.quote([]byte(e.Class.Name + "(" + e.Value.PyRepr() + ")"))
		return true
	}
	p.quote([]byte(e.Class.Name + "." + e.Name))
	return true
}

func (p *plain) dict(v torchfile.Value, depth int) {
	p.str("{")
	first := true
	for k, x := range v.Pairs() {
		if !first {
			p.str(",")
		}
		first = false
		if p.full() {
			p.str(`"…":"…"`)
			break
		}
		if k.Kind() == torchfile.KindStr {
			p.quote(k.RawStr())
		} else {
			s := k.PyStr()
			if v.Get(s).Exists() { // 1 and "1" are two keys
				s += " (" + k.Kind().String() + ")"
			}
			p.quote([]byte(s))
		}
		p.str(":")
		p.value(x, depth+1)
	}
	p.str("}")
}

func (p *plain) int(v torchfile.Value) {
	if i, ok := v.Int(); ok {
		if i > maxSafe || i < -maxSafe {
			p.str(`"`)
			p.dst = strconv.AppendInt(p.dst, i, 10)
			p.str(`"`)
			return
		}
		p.dst = strconv.AppendInt(p.dst, i, 10)
		return
	}
	b, ok := v.BigInt()
	switch {
	case !ok || b.BitLen() > 4096:
		p.str(`"an integer of more than 4096 bits"`)
	case b.IsInt64() && b.Int64() <= maxSafe && b.Int64() >= -maxSafe:
		p.dst = strconv.AppendInt(p.dst, b.Int64(), 10)
	default:
		p.str(`"`)
		p.dst = b.Append(p.dst, 10)
		p.str(`"`)
	}
}

// quote writes a string, cut when it is long.
func (p *plain) quote(s []byte) {
	limit := maxString
	if p.text > 0 {
		limit = p.text
	}
	if len(s) > limit {
		s = append(s[:limit:limit], "…"...)
		// The cut may have split a rune: its halves are replaced.
	}
	p.dst = appendQuoted(p.dst, s)
}

// appendFloat appends f as ECMAScript's JSON.stringify would, and NaN and infinities as strings.
func appendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	return appendNumber(dst, f)
}

// appendNumber appends a finite number as ECMAScript's String(f) would.
func appendNumber(dst []byte, f float64) []byte {
	if f == math.Trunc(f) && math.Abs(f) <= maxSafe {
		return strconv.AppendInt(dst, int64(f), 10)
	}
	if a := math.Abs(f); a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	if n := len(dst); n >= 4 && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' { // 1e-07 is 1e-7
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

const hexDigits = "0123456789abcdef"

// appendQuoted appends s as a JSON string. Bytes that are not UTF-8 are replaced, but for lone
// surrogates, which are the escapes that every JSON reader of JavaScript understands.
func appendQuoted(dst, s []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf && c != 0x7f {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(s[i:])
			if r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
			dst = append(dst, s[from:i]...)
			if c == 0xed && i+3 <= len(s) && s[i+1]&0xe0 == 0xa0 && s[i+2]&0xc0 == 0x80 {
				u := 0xd000 | uint(s[i+1]&0x3f)<<6 | uint(s[i+2]&0x3f)
				dst = append(dst, '\\', 'u', hexDigits[u>>12&15], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15])
				i += 3
			} else {
				dst = append(dst, "\uFFFD"...)
				i++
			}
			from = i
			continue
		}
		dst = append(dst, s[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}
