package timeline

import (
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"

	"github.com/rollscope/rollscope/torchfile"
)

// pyJSON appends values as Python's json.dumps(ensure_ascii=True, separators=(",", ":")) writes what
// the reference viewer's _json_safe makes of them.
type pyJSON struct {
	depth int
	limit int // length of dst beyond which values are left out
}

const (
	compatDepth  = 500     // beyond it the reference dies
	compatDigits = 4300    // digits; Python refuses to read or write more
	compatValue  = 1 << 24 // bytes of one value
	compatBytes  = 1 << 30 // bytes of one sample
)

const compatOmitted = `"<left out: too large or too deep>"`

// appendPyQuoted appends s as a JSON string in ASCII. s is UTF-8 in which lone surrogates may be three
// bytes each.
func appendPyQuoted(dst, s []byte) []byte {
	dst = append(dst, '"')
	dst = appendPyText(dst, s)
	return append(dst, '"')
}

func appendPyText(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < 0x80 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		if c < 0x80 {
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, `\n`...)
			case '\r':
				dst = append(dst, `\r`...)
			case '\t':
				dst = append(dst, `\t`...)
			case '\b':
				dst = append(dst, `\b`...)
			case '\f':
				dst = append(dst, `\f`...)
			default:
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			i++
			from = i
			continue
		}
		r, size := pyRune(s[i:])
		u := func(x rune) {
			dst = append(dst, '\\', 'u', hex[x>>12&15], hex[x>>8&15], hex[x>>4&15], hex[x&15])
		}
		if r > 0xffff {
			r -= 0x10000
			u(0xd800 + r>>10)
			u(0xdc00 + r&0x3ff)
		} else {
			u(r)
		}
		i += size
		from = i
	}
	return append(dst, s[from:]...)
}

// pyRune decodes a code point, lone surrogates included.
func pyRune(s []byte) (rune, int) {
	r, size := utf8.DecodeRune(s)
	if r == utf8.RuneError && size == 1 && len(s) >= 3 && s[0] == 0xed && s[1]&0xe0 == 0xa0 && s[2]&0xc0 == 0x80 {
		return 0xd000 | rune(s[1]&0x3f)<<6 | rune(s[2]&0x3f), 3
	}
	return r, size
}

// appendPyFloat appends a float as Python's repr does. NaN and the infinities, for which Python writes
// words that are no JSON, become strings of the same words.
func appendPyFloat(dst []byte, f float64) []byte {
	switch {
	case f != f:
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	at := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	for _, c := range dst[at:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, '.', '0')
}

// roundMicro is Python's round(f, 6).
func roundMicro(f float64) float64 {
	if n, ok := micros(f); ok {
		return float64(n) / 1e6
	}
	if f != f || math.IsInf(f, 0) || math.Abs(f) >= 1<<53 {
		return f
	}
	var buf [64]byte
	r, err := strconv.ParseFloat(string(strconv.AppendFloat(buf[:0], f, 'f', 6, 64)), 64)
	if err != nil {
		return f
	}
	return r
}

// micros is f*1e6 rounded; ok only where that is certain, and where the result as a decimal number is
// also the shortest one of the float next to it.
func micros(f float64) (n int64, ok bool) {
	if !(f >= 1e-3 && f < 4e9) {
		return 0, f == 0 && !math.Signbit(f)
	}
	whole := math.Floor(f)
	frac := (f - whole) * 1e6
	down := math.Floor(frac)
	rest := frac - down
	if rest > 0.4999 && rest < 0.5001 {
		return 0, false
	}
	if rest > 0.5 {
		down++
	}
	return int64(whole)*1e6 + int64(down), true
}

// appendMicro appends roundMicro(f) for an f that is rounded already.
func appendMicro(dst []byte, f float64) []byte {
	n, ok := micros(f)
	if !ok {
		return appendPyFloat(dst, f)
	}
	dst = strconv.AppendInt(dst, n/1e6, 10)
	frac := n % 1e6
	if frac == 0 {
		return append(dst, '.', '0')
	}
	var b [7]byte
	b[0] = '.'
	for i := 6; i >= 1; i-- {
		b[i] = byte('0' + frac%10)
		frac /= 10
	}
	end := 7
	for b[end-1] == '0' {
		end--
	}
	return append(dst, b[:end]...)
}

// value appends v.
func (j *pyJSON) value(dst []byte, v torchfile.Value) []byte {
	switch v.Kind() {
	case torchfile.KindStr:
		raw := v.RawStr()
		if len(raw) > compatValue {
			return append(dst, compatOmitted...)
		}
		return appendPyQuoted(dst, raw)
	case torchfile.KindFloat:
		f, _ := v.Float()
		return appendPyFloat(dst, f)
	case torchfile.KindInt:
		return appendPyInt(dst, v)
	case torchfile.KindNone:
		return append(dst, "null"...)
	case torchfile.KindBool:
		if b, _ := v.Bool(); b {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case torchfile.KindInvalid:
		if !v.Exists() && v.Err() == nil {
			return append(dst, "null"...)
		}
		return append(dst, `"<unreadable>"`...)
	case torchfile.KindList, torchfile.KindTuple:
		return j.list(dst, v)
	case torchfile.KindDict:
		return j.dict(dst, v, nil)
	case torchfile.KindNPScalar:
		if s, err := v.NPScalar(); err == nil && s.Type.Kind == 'f' && s.Type.Size == 8 {
			if f, ok := s.Number(); ok { // numpy.float64 is a float
				return appendPyFloat(dst, f)
			}
		}
	case torchfile.KindGlobal:
		if e, ok := v.Enum(); ok {
			if n, ok := intEnum(e); ok {
				return strconv.AppendInt(dst, n, 10)
			}
		}
	case torchfile.KindObject:
		c := v.Class()
		if e, ok := v.Enum(); ok {
			if n, ok := intEnum(e); ok {
				return strconv.AppendInt(dst, n, 10)
			}
		}
		switch {
		case c.Module == "urllib.parse" && !v.Args().IsNone() && v.Args().Len() > 1:
			return j.list(dst, v.Args()) // a namedtuple
		case !v.Called() && !v.State().Exists() && v.Args().Kind() == torchfile.KindTuple && v.Args().Len() > 1:
			return j.list(dst, v.Args()) // what a namedtuple of a missing class looks like
		}
	}
	return appendPyQuoted(dst, []byte(v.PyStr()))
}

// intEnum is the value of a member of the standard library's enums that are integers, and of those
// that Options.Classes knows to be.
func intEnum(e torchfile.EnumMember) (int64, bool) {
	switch known := e.Known.(type) {
	case int64:
		return known, e.HasKnown
	case int:
		return int64(known), e.HasKnown
	}
	if e.Class != (torchfile.Class{Module: "http", Name: "HTTPStatus"}) && e.Class != (torchfile.Class{Module: "re", Name: "RegexFlag"}) {
		return 0, false
	}
	if n, ok := e.Value.Int(); ok {
		return n, true
	}
	n, ok := intEnums[e.Name]
	return n, ok
}

// intEnums are the members of http.HTTPStatus and re.RegexFlag.
var intEnums = map[string]int64{
	"CONTINUE": 100, "SWITCHING_PROTOCOLS": 101, "PROCESSING": 102, "EARLY_HINTS": 103, "OK": 200, "CREATED": 201,
	"ACCEPTED": 202, "NON_AUTHORITATIVE_INFORMATION": 203, "NO_CONTENT": 204, "RESET_CONTENT": 205, "PARTIAL_CONTENT": 206,
	"MULTI_STATUS": 207, "ALREADY_REPORTED": 208, "IM_USED": 226, "MULTIPLE_CHOICES": 300, "MOVED_PERMANENTLY": 301,
	"FOUND": 302, "SEE_OTHER": 303, "NOT_MODIFIED": 304, "USE_PROXY": 305, "TEMPORARY_REDIRECT": 307, "PERMANENT_REDIRECT": 308,
	"BAD_REQUEST": 400, "UNAUTHORIZED": 401, "PAYMENT_REQUIRED": 402, "FORBIDDEN": 403, "NOT_FOUND": 404, "METHOD_NOT_ALLOWED": 405,
	"NOT_ACCEPTABLE": 406, "PROXY_AUTHENTICATION_REQUIRED": 407, "REQUEST_TIMEOUT": 408, "CONFLICT": 409, "GONE": 410,
	"LENGTH_REQUIRED": 411, "PRECONDITION_FAILED": 412, "REQUEST_ENTITY_TOO_LARGE": 413, "REQUEST_URI_TOO_LONG": 414,
	"UNSUPPORTED_MEDIA_TYPE": 415, "REQUESTED_RANGE_NOT_SATISFIABLE": 416, "EXPECTATION_FAILED": 417, "IM_A_TEAPOT": 418,
	"MISDIRECTED_REQUEST": 421, "UNPROCESSABLE_ENTITY": 422, "LOCKED": 423, "FAILED_DEPENDENCY": 424, "TOO_EARLY": 425,
	"UPGRADE_REQUIRED": 426, "PRECONDITION_REQUIRED": 428, "TOO_MANY_REQUESTS": 429, "REQUEST_HEADER_FIELDS_TOO_LARGE": 431,
	"UNAVAILABLE_FOR_LEGAL_REASONS": 451, "INTERNAL_SERVER_ERROR": 500, "NOT_IMPLEMENTED": 501, "BAD_GATEWAY": 502,
	"SERVICE_UNAVAILABLE": 503, "GATEWAY_TIMEOUT": 504, "HTTP_VERSION_NOT_SUPPORTED": 505, "VARIANT_ALSO_NEGOTIATES": 506,
	"INSUFFICIENT_STORAGE": 507, "LOOP_DETECTED": 508, "NOT_EXTENDED": 510, "NETWORK_AUTHENTICATION_REQUIRED": 511,
	"NOFLAG": 0, "TEMPLATE": 1, "IGNORECASE": 2, "LOCALE": 4, "MULTILINE": 8, "DOTALL": 16, "UNICODE": 32, "VERBOSE": 64, "DEBUG": 128, "ASCII": 256,
}

// number appends a number of numpy or torch as the number that it is, where the reference fails.
func (j *pyJSON) number(dst []byte, v torchfile.Value) []byte {
	switch v.Kind() {
	case torchfile.KindNPScalar, torchfile.KindTensor:
		if f, ok := v.Number(); ok {
			if f == math.Trunc(f) && math.Abs(f) < 1<<53 && !floatKind(v) {
				return strconv.AppendInt(dst, int64(f), 10)
			}
			return appendPyFloat(dst, f)
		}
	}
	return j.value(dst, v)
}

func floatKind(v torchfile.Value) bool {
	if s, err := v.NPScalar(); err == nil && v.Kind() == torchfile.KindNPScalar {
		return s.Type.Kind == 'f'
	}
	t, err := v.Tensor()
	return err == nil && t.DType.IsFloat()
}

func appendPyInt(dst []byte, v torchfile.Value) []byte {
	if n, ok := v.Int(); ok {
		return strconv.AppendInt(dst, n, 10)
	}
	b, ok := v.BigInt()
	if !ok {
		return append(dst, compatOmitted...)
	}
	return appendBigInt(dst, 0, b)
}

// appendBigInt appends b, or n when there is no b; as a string when Python would not read it.
func appendBigInt(dst []byte, n int64, b *big.Int) []byte {
	switch {
	case b == nil:
		return strconv.AppendInt(dst, n, 10)
	case b.BitLen() > compatDigits*10/3:
		dst = append(dst, '"')
		return append(b.Append(dst, 10), '"')
	}
	return b.Append(dst, 10)
}

func (j *pyJSON) enter(dst []byte) bool {
	if j.depth >= compatDepth || len(dst) > j.limit {
		return false
	}
	j.depth++
	return true
}

func (j *pyJSON) list(dst []byte, v torchfile.Value) []byte {
	if !j.enter(dst) {
		return append(dst, compatOmitted...)
	}
	defer func() { j.depth-- }()
	dst = append(dst, '[')
	for i, x := range v.All() {
		if i > 0 {
			dst = append(dst, ',')
		}
		if len(dst) > j.limit {
			dst = append(dst, compatOmitted...)
			break
		}
		dst = j.value(dst, x)
	}
	return append(dst, ']')
}

// dictEntry is where a key and its value stand in the output.
type dictEntry struct {
	key, value, end int
}

// dict appends a dict. Keys that are equal as strings are one: the place is the first's, the value the
// last's. seen, if not nil, is told of every key that is a string, its value and its value's text.
func (j *pyJSON) dict(dst []byte, v torchfile.Value, seen func(key []byte, v torchfile.Value, text []byte)) []byte {
	if !j.enter(dst) {
		return append(dst, compatOmitted...)
	}
	defer func() { j.depth-- }()
	var few [24]dictEntry
	entries := few[:0]
	var index map[string]int // of many entries
	start := len(dst)
	dst = append(dst, '{')
	again := false
	for k, x := range v.Pairs() {
		if len(dst) > j.limit {
			break
		}
		e := dictEntry{key: len(dst)}
		raw := k.RawStr()
		if k.Kind() == torchfile.KindStr {
			dst = appendPyQuoted(dst, raw)
		} else {
			dst = appendPyQuoted(dst, []byte(k.PyStr()))
		}
		e.value = len(dst)
		dst = append(dst, ':')
		dst = j.value(dst, x)
		e.end = len(dst)
		dst = append(dst, ',')
		if seen != nil && k.Kind() == torchfile.KindStr {
			seen(raw, x, dst[e.value+1:e.end])
		}
		name := dst[e.key:e.value]
		if len(entries) < len(few) {
			for i := range entries {
				if o := &entries[i]; o.value-o.key == len(name) && string(dst[o.key:o.value]) == string(name) {
					again = true
				}
			}
		} else {
			if index == nil {
				index = make(map[string]int, 64)
				for i, o := range entries {
					index[string(dst[o.key:o.value])] = i
				}
			}
			if _, ok := index[string(name)]; ok {
				again = true
			} else {
				index[string(name)] = len(entries)
			}
		}
		entries = append(entries, e)
	}
	if again {
		return dedupe(dst, start, entries)
	}
	if dst[len(dst)-1] == ',' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, '}')
}

// dedupe writes the entries again, each key once.
func dedupe(dst []byte, start int, entries []dictEntry) []byte {
	old := append([]byte(nil), dst[start:]...)
	at := func(from, to int) []byte { return old[from-start : to-start] }
	last := make(map[string]dictEntry, len(entries))
	for _, e := range entries {
		last[string(at(e.key, e.value))] = e
	}
	dst = append(dst[:start], '{')
	for _, e := range entries {
		key := at(e.key, e.value)
		l, ok := last[string(key)]
		if !ok {
			continue
		}
		delete(last, string(key))
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(dst, key...)
		dst = append(dst, at(l.value, l.end)...)
	}
	return append(dst, '}')
}
