package enginelog

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// valueKind is what a value is.
type valueKind uint8

const (
	absent valueKind = iota
	null
	boolean
	number
	text
	list // also tuples and sets
	dict
	object // a call: GenerateReqInput(rid='x'), array([1, 2]); or <...>: never evaluated, only split up
)

// value is a Python literal or a JSON value that was read. Nothing in it is ever evaluated.
type value struct {
	kind  valueKind
	text  string  // of a text; of a number as it was written; of an object its name
	num   float64 // of a number, 1 of True
	list  []value // items; of an object its positional arguments
	pairs []pair  // of a dict; of an object its named arguments
}

type pair struct {
	key string
	val value
}

// get finds a key of a dict or a named argument.
func (v *value) get(key string) *value {
	for i := range v.pairs {
		if v.pairs[i].key == key {
			return &v.pairs[i].val
		}
	}
	return nil
}

// str is a text's content or a number as it was written, "" for anything else.
func (v *value) str() string {
	if v != nil && (v.kind == text || v.kind == number) {
		return v.text
	}
	return ""
}

// Limits of a literal.
const (
	maxDepth = 64
	maxNodes = 200_000
)

// syntaxError says where a literal cannot be read. Cut says that it ends too early.
type syntaxError struct {
	at  int
	msg string
	cut bool
}

func (e *syntaxError) Error() string { return fmt.Sprintf("byte %d: %s", e.at, e.msg) }

// literal reads values.
type literal struct {
	s     string
	i     int
	nodes int
	json  bool
}

// readLiteral reads a Python literal at the begin of s and returns how long it is. Of a literal that is
// cut or malformed it returns what stands before the error, and the error.
func readLiteral(s string) (value, int, error) {
	p := literal{s: s}
	v, err := p.value(0)
	return v, p.i, err
}

// readJSON reads a JSON value at the begin of s, as readLiteral.
func readJSON(s string) (value, int, error) {
	p := literal{s: s, json: true}
	v, err := p.value(0)
	return v, p.i, err
}

func (p *literal) fail(format string, args ...any) error {
	return &syntaxError{at: p.i, msg: fmt.Sprintf(format, args...), cut: p.i >= len(p.s)}
}

func (p *literal) space() {
	for p.i < len(p.s) && (p.s[p.i] == ' ' || p.s[p.i] == '\t' || p.s[p.i] == '\n' || p.s[p.i] == '\r') {
		p.i++
	}
}

// value reads a value. SGLang writes long texts and lists as their begin ... their end: both parts become
// one value.
func (p *literal) value(depth int) (value, error) {
	v, err := p.one(depth)
	for n := 0; err == nil && !p.json && n < 4; n++ {
		at := p.i
		p.space()
		if !strings.HasPrefix(p.s[p.i:], "... ") {
			p.i = at
			break
		}
		p.i += 4
		var rest value
		if rest, err = p.one(depth); rest.kind == text && v.kind == text {
			v.text += " ... " + rest.text
		} else {
			v.list = append(v.list, rest.list...)
		}
	}
	return v, err
}

func (p *literal) one(depth int) (value, error) {
	p.space()
	if p.i >= len(p.s) {
		return value{}, p.fail("the value is missing")
	}
	if depth > maxDepth {
		return value{}, p.fail("nested deeper than %d", maxDepth)
	}
	if p.nodes++; p.nodes > maxNodes {
		return value{}, p.fail("more than %d values", maxNodes)
	}
	switch c := p.s[p.i]; {
	case c == '{':
		return p.dict(depth)
	case c == '[' || c == '(' && !p.json:
		return p.list(depth)
	case c == '"', c == '\'' && !p.json:
		s, err := p.text()
		if err == nil && !p.json {
			s, err = p.moreText(s)
		}
		return value{kind: text, text: s}, err
	case c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.':
		return p.number()
	case c == '<' && !p.json:
		return p.opaque()
	case isWord(c) && c < '0' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '_':
		return p.name(depth)
	default:
		return value{}, p.fail("%q begins no value", c)
	}
}

// list reads [..] and (..); a parenthesis around one value is that value.
func (p *literal) list(depth int) (value, error) {
	open := p.s[p.i]
	end := byte(']')
	if open == '(' {
		end = ')'
	}
	p.i++
	v := value{kind: list}
	comma := false
	for {
		p.space()
		if p.i >= len(p.s) {
			return v, p.fail("no %c", end)
		}
		if p.s[p.i] == end {
			p.i++
			if open == '(' && len(v.list) == 1 && !comma {
				return v.list[0], nil
			}
			return v, nil
		}
		item, err := p.value(depth + 1)
		if item.kind != absent {
			v.list = append(v.list, item)
		}
		if err != nil {
			return v, err
		}
		p.space()
		comma = p.i < len(p.s) && p.s[p.i] == ','
		if comma {
			p.i++
		} else if p.i < len(p.s) && p.s[p.i] != end {
			return v, p.fail("%q where , or %c belongs", p.s[p.i], end)
		}
	}
}

// dict reads {key: value} and the set {value}.
func (p *literal) dict(depth int) (value, error) {
	p.i++
	v := value{kind: dict}
	for {
		p.space()
		if p.i >= len(p.s) {
			return v, p.fail("no }")
		}
		if p.s[p.i] == '}' {
			p.i++
			return v, nil
		}
		key, err := p.value(depth + 1)
		if err != nil {
			return v, err
		}
		p.space()
		if p.i >= len(p.s) {
			return v, p.fail("no : behind the key")
		}
		if p.s[p.i] != ':' {
			if p.json || len(v.pairs) > 0 {
				return v, p.fail("%q where : belongs", p.s[p.i])
			}
			v.kind = list
			v.list = append(v.list, key)
		} else {
			p.i++
			val, err := p.value(depth + 1)
			if val.kind != absent {
				v.pairs = append(v.pairs, pair{key.keyText(), val})
			}
			if err != nil {
				return v, err
			}
		}
		p.space()
		if p.i < len(p.s) && p.s[p.i] == ',' {
			p.i++
		} else if p.i < len(p.s) && p.s[p.i] != '}' {
			return v, p.fail("%q where , or } belongs", p.s[p.i])
		}
	}
}

// keyText is a key as text. Keys that are no text or number are told apart by kind only.
func (v *value) keyText() string {
	switch v.kind {
	case text, number:
		return v.text
	case boolean:
		if v.num == 1 {
			return "True"
		}
		return "False"
	case null:
		return "None"
	case list:
		parts := make([]string, len(v.list))
		for i := range v.list {
			parts[i] = v.list[i].keyText()
		}
		return strings.Join(parts, ",")
	}
	return v.text
}

// moreText reads texts that stand behind one another: Python joins them, and repr of a cut text ends with
// ' ... [truncated]' behind the quotes.
func (p *literal) moreText(s string) (string, error) {
	for n := 0; n < 1000; n++ {
		at := p.i
		p.space()
		if p.i >= len(p.s) || p.s[p.i] != '"' && p.s[p.i] != '\'' {
			p.i = at
			return s, nil
		}
		t, err := p.text()
		s += t
		if err != nil {
			return s, err
		}
	}
	return s, p.fail("too many texts behind one another")
}

// text reads a quoted text at p.i.
func (p *literal) text() (string, error) {
	quote := p.s[p.i]
	if !p.json && strings.HasPrefix(p.s[p.i:], strings.Repeat(string(quote), 3)) {
		end := strings.Index(p.s[p.i+3:], strings.Repeat(string(quote), 3))
		if end < 0 {
			s := p.s[p.i+3:]
			p.i = len(p.s)
			return s, p.fail("no end of the text")
		}
		s := p.s[p.i+3 : p.i+3+end]
		p.i += end + 6
		return s, nil
	}
	p.i++
	start := p.i
	for p.i < len(p.s) && p.s[p.i] != quote && p.s[p.i] != '\\' {
		p.i++
	}
	if p.i < len(p.s) && p.s[p.i] == quote {
		s := p.s[start:p.i]
		p.i++
		return s, nil
	}
	var b strings.Builder
	b.WriteString(p.s[start:p.i])
	for p.i < len(p.s) {
		c := p.s[p.i]
		switch {
		case c == quote:
			p.i++
			return b.String(), nil
		case c != '\\':
			b.WriteByte(c)
			p.i++
		default:
			p.escape(&b)
		}
	}
	return b.String(), p.fail("no end of the text")
}

// escape reads one \x of a text.
func (p *literal) escape(b *strings.Builder) {
	p.i++
	if p.i >= len(p.s) {
		return
	}
	c := p.s[p.i]
	p.i++
	hex := func(n int) (rune, bool) {
		if p.i+n > len(p.s) {
			return 0, false
		}
		v, err := strconv.ParseUint(p.s[p.i:p.i+n], 16, 32)
		if err != nil {
			return 0, false
		}
		p.i += n
		return rune(v), true
	}
	switch c {
	case 'n':
		b.WriteByte('\n')
	case 't':
		b.WriteByte('\t')
	case 'r':
		b.WriteByte('\r')
	case 'b':
		b.WriteByte('\b')
	case 'f':
		b.WriteByte('\f')
	case 'u', 'U', 'x':
		n := 4
		if c == 'U' {
			n = 8
		} else if c == 'x' {
			n = 2
		}
		r, ok := hex(n)
		if !ok {
			b.WriteByte(c)
			return
		}
		if utf16.IsSurrogate(r) && strings.HasPrefix(p.s[p.i:], `\u`) {
			at := p.i
			p.i += 2
			if low, ok := hex(4); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
				r = utf16.DecodeRune(r, low)
			} else {
				p.i = at
			}
		}
		b.WriteRune(r)
	case '\n':
	default:
		b.WriteByte(c)
	}
}

// number reads an int, a float, -inf, and Python's 1_000, 1j and 10L as far as they are numbers.
func (p *literal) number() (value, error) {
	start := p.i
	if p.s[p.i] == '-' || p.s[p.i] == '+' {
		p.i++
		if p.i < len(p.s) && p.s[p.i] >= 'A' && p.s[p.i] <= 'z' {
			v, err := p.name(maxDepth)
			if err != nil || v.kind != number {
				return value{}, p.fail("%q is no number", p.s[start:p.i])
			}
			if p.s[start] == '-' {
				v.num, v.text = -v.num, "-"+v.text
			}
			return v, nil
		}
	}
	for p.i < len(p.s) {
		c := p.s[p.i]
		if c >= '0' && c <= '9' || c == '.' || c == '_' && !p.json {
			p.i++
			continue
		}
		if (c == 'e' || c == 'E') && p.i > start {
			p.i++
			if p.i < len(p.s) && (p.s[p.i] == '-' || p.s[p.i] == '+') {
				p.i++
			}
			continue
		}
		break
	}
	raw := p.s[start:p.i]
	if strings.IndexByte(raw, '_') >= 0 {
		raw = strings.ReplaceAll(raw, "_", "")
	}
	f, err := strconv.ParseFloat(raw, 64)
	if err != nil && !math.IsInf(f, 0) {
		return value{}, p.fail("%q is no number", raw)
	}
	return value{kind: number, text: raw, num: f}, nil
}

// name reads a word: a constant, a text with a prefix letter, or a call.
func (p *literal) name(depth int) (value, error) {
	start := p.i
	for p.i < len(p.s) && (isWord(p.s[p.i]) || p.s[p.i] == '.' && !p.json) {
		p.i++
	}
	w := p.s[start:p.i]
	switch w {
	case "None", "null":
		return value{kind: null}, nil
	case "True", "true":
		return value{kind: boolean, num: 1}, nil
	case "False", "false":
		return value{kind: boolean}, nil
	case "nan", "NaN", "np.nan", "math.nan":
		return value{kind: number, text: "NaN", num: math.NaN()}, nil
	case "inf", "Infinity", "Inf", "np.inf", "math.inf":
		return value{kind: number, text: "Infinity", num: math.Inf(1)}, nil
	}
	if p.json {
		return value{}, p.fail("%q is no JSON", w)
	}
	if p.i < len(p.s) && (p.s[p.i] == '"' || p.s[p.i] == '\'') && len(w) <= 2 && strings.Trim(strings.ToLower(w), "bruf") == "" {
		s, err := p.text()
		return value{kind: text, text: s}, err
	}
	v := value{kind: object, text: w}
	if p.i >= len(p.s) || p.s[p.i] != '(' {
		return v, nil
	}
	return p.call(v, depth)
}

// call reads (positional, named=value): the arguments of something that is not called.
func (p *literal) call(v value, depth int) (value, error) {
	p.i++
	for {
		p.space()
		if p.i >= len(p.s) {
			return v, p.fail("no )")
		}
		if p.s[p.i] == ')' {
			p.i++
			return v.unpack(), nil
		}
		at := p.i
		name := ""
		for p.i < len(p.s) && isWord(p.s[p.i]) {
			p.i++
		}
		if p.i > at && p.i < len(p.s) && p.s[p.i] == '=' {
			name = p.s[at:p.i]
			p.i++
		} else {
			p.i = at
		}
		arg, err := p.value(depth + 1)
		if arg.kind != absent {
			if name == "" {
				v.list = append(v.list, arg)
			} else {
				v.pairs = append(v.pairs, pair{name, arg})
			}
		}
		if err != nil {
			return v, err
		}
		p.space()
		if p.i < len(p.s) && p.s[p.i] == ',' {
			p.i++
		} else if p.i < len(p.s) && p.s[p.i] != ')' {
			return v, p.fail("%q where , or ) belongs", p.s[p.i])
		}
	}
}

// unpack returns the number in np.float64(0.5), tensor(0.5, device='cuda:0') and the like.
func (v value) unpack() value {
	if len(v.list) != 1 || v.list[0].kind != number && v.list[0].kind != boolean && v.list[0].kind != text {
		return v
	}
	w := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(v.text, "numpy."), "np."), "torch.")
	in := v.list[0]
	switch {
	case w == "tensor" || w == "array" || w == "asarray" || w == "float" || w == "int" || w == "bool_" || w == "bool" || w == "Fraction",
		(strings.HasPrefix(w, "float") || strings.HasPrefix(w, "int") || strings.HasPrefix(w, "uint") || strings.HasPrefix(w, "bfloat")) && isDigits(strings.TrimLeft(w, "abcdefghijklmnopqrstuvwxyz")):
		if in.kind == number || in.kind == boolean {
			return in
		}
	case w == "str_" || w == "str" || w == "bytes_":
		return in
	case w == "Decimal" || w == "decimal.Decimal":
		if f, err := strconv.ParseFloat(in.text, 64); err == nil && in.kind == text {
			return value{kind: number, text: in.text, num: f}
		}
	}
	return v
}

// opaque skips <...>, the repr of an object without one.
func (p *literal) opaque() (value, error) {
	start, depth, quote := p.i, 0, byte(0)
	for ; p.i < len(p.s); p.i++ {
		switch c := p.s[p.i]; {
		case quote != 0:
			if c == '\\' {
				p.i++
			} else if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '<':
			depth++
		case c == '>':
			if depth--; depth == 0 {
				p.i++
				return value{kind: object, text: p.s[start:p.i]}, nil
			}
		}
	}
	p.i = len(p.s)
	return value{kind: object, text: p.s[start:]}, p.fail("no >")
}
