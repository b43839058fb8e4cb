package span

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// reader reads JSON by hand: OTLP/JSON, and what [Span.Row] stores. The first error sticks, and from then
// on every method returns at once and loops end:
//
//	for ok := r.open('{'); ok; ok = r.more('}') { key := r.key(); ... }
type reader struct {
	b   []byte
	i   int
	err error
}

// JSONError is a body that is no JSON, or not of OTLP's shape.
type JSONError struct {
	Offset int
	Why    string
}

func (e *JSONError) Error() string { return fmt.Sprintf("OTLP/JSON: byte %d: %s", e.Offset, e.Why) }

func (r *reader) fail(why string) {
	if r.err == nil {
		r.err = &JSONError{r.i, why}
	}
}

func (r *reader) space() {
	for r.i < len(r.b) {
		switch r.b[r.i] {
		case ' ', '\t', '\n', '\r':
			r.i++
		default:
			return
		}
	}
}

// peek is the first byte of the next value, 0 at the end and after an error.
func (r *reader) peek() byte {
	if r.err != nil {
		return 0
	}
	if r.space(); r.i < len(r.b) {
		return r.b[r.i]
	}
	return 0
}

// open takes [ or { and tells whether there is an element.
func (r *reader) open(c byte) bool {
	if r.peek() != c {
		r.fail("expected " + string(rune(c)))
		return false
	}
	r.i++
	if r.peek() == c+2 { // ] follows [ and } follows { by two in ASCII
		r.i++
		return false
	}
	return r.err == nil
}

// more takes a comma, or the closing bracket and then returns false.
func (r *reader) more(c byte) bool {
	switch r.peek() {
	case ',':
		r.i++
		return true
	case c:
		r.i++
	default:
		r.fail("expected , or " + string(rune(c)))
	}
	return false
}

// end takes what may stand behind the last value: nothing.
func (r *reader) end() {
	if r.peek(); r.err == nil && r.i < len(r.b) {
		r.fail("something follows the value")
	}
}

// key takes a key and its colon.
func (r *reader) key() string {
	s := r.text()
	if r.peek() != ':' {
		r.fail("expected :")
		return ""
	}
	r.i++
	return s
}

// null takes null and tells whether it stood there.
func (r *reader) null() bool { return r.peek() == 'n' && r.word("null") }

func (r *reader) word(w string) bool {
	if len(r.b)-r.i >= len(w) && string(r.b[r.i:r.i+len(w)]) == w {
		r.i += len(w)
		return true
	}
	r.fail("expected " + w)
	return false
}

func (r *reader) bool() bool {
	if r.peek() == 't' {
		return r.word("true")
	}
	r.word("false")
	return false
}

// text takes a string. Without escapes it aliases the body.
func (r *reader) text() string {
	if r.peek() != '"' {
		r.fail("expected a string")
		return ""
	}
	r.i++
	from := r.i
	for r.i < len(r.b) {
		switch c := r.b[r.i]; {
		case c == '"':
			r.i++
			return clean(alias(r.b[from : r.i-1]))
		case c == '\\':
			return r.escaped(from)
		case c < ' ':
			r.fail("a control character in a string")
			return ""
		}
		r.i++
	}
	r.fail("cut inside a string")
	return ""
}

// escaped takes the rest of a string that begins at from and has an escape at r.i.
func (r *reader) escaped(from int) string {
	out := append(make([]byte, 0, r.i-from+32), r.b[from:r.i]...)
	for r.i < len(r.b) {
		c := r.b[r.i]
		r.i++
		switch {
		case c == '"':
			return clean(string(out))
		case c < ' ':
			r.fail("a control character in a string")
			return ""
		case c != '\\':
			out = append(out, c)
			continue
		}
		if r.i >= len(r.b) {
			break
		}
		c = r.b[r.i]
		r.i++
		switch c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			u, ok := r.hex4()
			if !ok {
				return ""
			}
			if utf16.IsSurrogate(u) {
				if r.i+1 < len(r.b) && r.b[r.i] == '\\' && r.b[r.i+1] == 'u' {
					at := r.i
					r.i += 2
					low, ok := r.hex4()
					if !ok {
						return ""
					}
					if u = utf16.DecodeRune(u, low); u == utf8.RuneError {
						r.i = at
					}
				} else {
					u = utf8.RuneError
				}
			}
			out = utf8.AppendRune(out, u)
		default:
			r.fail("an escape that JSON has not")
			return ""
		}
	}
	r.fail("cut inside a string")
	return ""
}

func (r *reader) hex4() (rune, bool) {
	if len(r.b)-r.i < 4 {
		r.fail("cut inside an escape")
		return 0, false
	}
	u, err := strconv.ParseUint(alias(r.b[r.i:r.i+4]), 16, 16)
	if err != nil {
		r.fail("an escape that is not four hex digits")
		return 0, false
	}
	r.i += 4
	return rune(u), true
}

// number takes a number as it is written and tells whether it is an integer.
func (r *reader) number() (string, bool) {
	r.peek()
	from, isInt := r.i, true
	for r.i < len(r.b) {
		switch c := r.b[r.i]; {
		case '0' <= c && c <= '9', c == '-', c == '+':
		case c == '.', c == 'e', c == 'E':
			isInt = false
		default:
			goto done
		}
		r.i++
	}
done:
	if from == r.i {
		r.fail("expected a value")
		return "", false
	}
	return alias(r.b[from:r.i]), isInt
}

// skip takes any value. It does not recurse: hostile nesting costs a counter.
func (r *reader) skip() {
	depth := 0
	for r.err == nil {
		switch c := r.peek(); c {
		case '{', '[':
			r.i++
			depth++
			if r.peek() == c+2 {
				continue
			}
			if c == '{' {
				r.key()
			}
			continue
		case '}', ']':
			if depth == 0 {
				r.fail("expected a value")
				return
			}
			r.i++
			depth--
		case ',':
			if depth == 0 {
				r.fail("expected a value")
				return
			}
			r.i++
			continue
		case '"':
			r.text()
			if depth > 0 && r.peek() == ':' {
				r.i++
				continue
			}
		case 't', 'f':
			r.bool()
		case 'n':
			r.null()
		case 0:
			r.fail("cut inside a value")
		default:
			r.number()
		}
		if depth == 0 {
			return
		}
	}
}

// raw takes any value and returns its bytes.
func (r *reader) raw() string {
	r.peek()
	from := r.i
	r.skip()
	if r.err != nil {
		return ""
	}
	return alias(r.b[from:r.i])
}

// marked takes an object that stands for bytes or for a number that JSON has not, and returns its key.
// Of a map that is marked as a map it takes nothing and returns keyMap; of any other object it takes
// nothing and returns "".
func (r *reader) marked() (b []byte, f float64, kind string) {
	try := reader{b: r.b, i: r.i}
	if !try.open('{') {
		return nil, 0, ""
	}
	switch key := try.key(); key {
	case keyMap:
		if try.peek() == '{' {
			if try.skip(); !try.more('}') && try.err == nil {
				return nil, 0, keyMap
			}
		}
	case keyBytes, keyDouble:
		if try.peek() != '"' {
			return nil, 0, ""
		}
		s := try.text()
		if try.more('}') || try.err != nil {
			return nil, 0, ""
		}
		if key == keyBytes {
			data, err := base64.StdEncoding.DecodeString(s)
			if err != nil {
				return nil, 0, ""
			}
			r.i = try.i
			return data, 0, keyBytes
		}
		if v, ok := parseFloat(s); ok {
			r.i = try.i
			return nil, v, keyDouble
		}
	}
	return nil, 0, ""
}

// appendQuoted writes s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	s = clean(s)
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, `\u00`...)
			dst = hex.AppendEncode(dst, []byte{c})
		}
	}
	return append(append(dst, s[from:]...), '"')
}
