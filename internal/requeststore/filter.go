package requeststore

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rollscope/rollscope/internal/logsql"
)

// FilterError is a part of a filter that cannot be understood.
type FilterError struct {
	At   int    // UTF-16 offset in the filter
	What string // what is wrong and what is allowed
}

func (e *FilterError) Error() string {
	return fmt.Sprintf("at character %d of the filter: %s", e.At+1, e.What)
}

const (
	maxFilter = 4096 // bytes
	maxTerms  = 64
)

// anywhere are the fields that a word without a field is looked for in.
var anywhere = []string{"rid", "trace_id", "id", "x_request_id", "dynamo_id", "engine", "prefill_engine", "service", "model", "error", "run", "finish_reason"}

// Filter compiles what a person wrote into LogsQL; "" is every request. Terms stand beside each other and
// must all hold:
//
//	ttft>5s step:40 engine:"10.0.0.1:30000" outcome:error -finish:stop rid:abc run=exp1 model~qwen.*chat
//
// A number is compared with : or = (equal), <, <=, >, >=; times take ms, s, m or h, others k or M. A text is
// compared with : (contains, upper and lower case are one), = (is) and ~ (matches a regular expression).
// A minus before a term turns it around, field:none and field:any ask whether there is a value, a word alone
// is looked for in ids, engines, models, errors. The error is a *[FilterError].
func Filter(text string) (string, error) {
	p := &parser{s: text}
	if len(text) > maxFilter {
		return "", &FilterError{What: fmt.Sprintf("the filter has %d bytes, at most %d are allowed", len(text), maxFilter)}
	}
	if !utf8.ValidString(text) {
		return "", &FilterError{What: "the filter is not UTF-8"}
	}
	var out []string
	for {
		p.spaces()
		if p.pos == len(text) {
			return strings.Join(out, " "), nil
		}
		if len(out) > 0 && p.and() {
			if p.spaces(); p.pos == len(text) {
				return "", p.fail(p.pos, `a term is expected after "and"`)
			}
		}
		if len(out) == maxTerms {
			return "", p.fail(p.pos, "a filter has at most %d terms", maxTerms)
		}
		t, err := p.term()
		if err != nil {
			return "", err
		}
		out = append(out, t)
	}
}

type parser struct {
	s   string
	pos int
}

func (p *parser) fail(at int, format string, args ...any) error {
	n := 0
	for _, r := range p.s[:at] {
		if n++; r > 0xffff {
			n++
		}
	}
	return &FilterError{At: n, What: fmt.Sprintf(format, args...)}
}

func (p *parser) spaces() {
	for p.pos < len(p.s) && isSpace(p.s[p.pos]) {
		p.pos++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// and skips the word "and": terms beside each other mean the same.
func (p *parser) and() bool {
	rest := p.s[p.pos:]
	if len(rest) >= 3 && strings.EqualFold(rest[:3], "and") && (len(rest) == 3 || isSpace(rest[3])) {
		p.pos += 3
		return true
	}
	return false
}

func (p *parser) term() (string, error) {
	at := p.pos
	if p.s[p.pos] == '-' {
		if p.pos++; p.pos == len(p.s) || isSpace(p.s[p.pos]) {
			return "", p.fail(p.pos, `a term is expected directly after "-"`)
		}
		f, err := p.positive()
		return logsql.Not(f), err
	}
	if p.and() {
		return "", p.fail(at, `a term is expected before "and"; to look for the word, put it in quotes`)
	}
	if rest := p.s[at:]; len(rest) >= 2 && strings.EqualFold(rest[:2], "or") && (len(rest) == 2 || isSpace(rest[2])) {
		return "", p.fail(at, `all terms must hold, there is no "or"; for several texts use ~, as in engine~"a|b"; to look for the word, put it in quotes`)
	}
	return p.positive()
}

func (p *parser) positive() (string, error) {
	start := p.pos
	if p.s[p.pos] == '"' {
		text, err := p.quoted()
		return word(text), err
	}
	for p.pos < len(p.s) && isName(p.s[p.pos], p.pos == start) {
		p.pos++
	}
	name, end := strings.ToLower(p.s[start:p.pos]), p.pos
	p.spaces()
	if name == "" || p.pos == len(p.s) || strings.IndexByte(":=<>~", p.s[p.pos]) < 0 {
		p.pos = end
		for p.pos < len(p.s) && !isSpace(p.s[p.pos]) {
			p.pos++
		}
		return word(p.s[start:p.pos]), nil
	}
	f, ok := findField(name)
	if !ok {
		return "", p.fail(start, "there is no field %q: it is one of %s; to look for the text, put it in quotes", name, fieldNames())
	}
	return p.condition(f)
}

func isName(c byte, first bool) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || !first && (c == '.' || c >= '0' && c <= '9')
}

// word is the filter of a text without a field.
func word(text string) string {
	var any []string
	for _, f := range anywhere {
		any = append(any, contains(f, text))
	}
	return "(" + strings.Join(any, " or ") + ")"
}

// contains finds a text anywhere in a field, whatever its case.
func contains(stored, text string) string {
	return logsql.Match(stored, "(?i)"+regexp.QuoteMeta(text))
}

// condition reads the operator and the value after a field.
func (p *parser) condition(f field) (string, error) {
	opAt := p.pos
	op := p.s[p.pos : p.pos+1]
	p.pos++
	if (op == "<" || op == ">") && p.pos < len(p.s) && p.s[p.pos] == '=' {
		op += "="
		p.pos++
	}
	switch {
	case f.number && op == "~":
		return "", p.fail(opAt, "%s is a number: use : = < <= > >=", f.name)
	case !f.number && op[0] != ':' && op[0] != '=' && op[0] != '~':
		return "", p.fail(opAt, "%s is text: use : (contains), = (is) or ~ (matches)", f.name)
	}
	p.spaces()
	at := p.pos
	if p.pos == len(p.s) {
		return "", p.fail(p.pos, "a value is expected")
	}
	value, isQuoted := "", p.s[p.pos] == '"'
	if isQuoted {
		var err error
		if value, err = p.quoted(); err != nil {
			return "", err
		}
	} else {
		for p.pos < len(p.s) && !isSpace(p.s[p.pos]) {
			p.pos++
		}
		value = p.s[at:p.pos]
	}
	if !isQuoted && op == ":" {
		switch value {
		case "none":
			return logsql.Equal(f.stored, ""), nil
		case "any":
			return logsql.Not(logsql.Equal(f.stored, "")), nil
		}
	}
	if !f.number {
		return p.text(f, op, value, at)
	}
	v, ok := parseNumber(value, f.time)
	if !ok {
		form := "a number is expected, with k or M after it or nothing"
		if f.time {
			form = "a number is expected, with ms, s, m or h after it or nothing (seconds)"
		}
		return "", p.fail(at, "%s; none and any ask whether there is one", form)
	}
	n := strconv.FormatFloat(v, 'f', -1, 64)
	if op == ":" || op == "=" {
		// By value: 40 was perhaps written as 4e1.
		return fmt.Sprintf("%s:range[%s,%s]", logsql.Quote(f.stored), n, n), nil
	}
	return fmt.Sprintf("%s:%s%s", logsql.Quote(f.stored), op, n), nil
}

func (p *parser) text(f field, op, value string, at int) (string, error) {
	switch op {
	case "=":
		return logsql.Equal(f.stored, value), nil
	case "~":
		if _, err := regexp.Compile(value); err != nil {
			return "", p.fail(at, "%v", err)
		}
		return logsql.Match(f.stored, "(?i)(?:"+value+")"), nil
	}
	if f.name == "outcome" { // a word of a short list: error is not part of another
		return logsql.Equal(f.stored, strings.ToLower(value)), nil
	}
	return contains(f.stored, value), nil
}

// quoted reads a string in double quotes.
func (p *parser) quoted() (string, error) {
	start := p.pos
	var b strings.Builder
	for p.pos++; p.pos < len(p.s); p.pos++ {
		switch c := p.s[p.pos]; {
		case c == '"':
			p.pos++
			return b.String(), nil
		case c == '\\' && p.pos+1 < len(p.s) && (p.s[p.pos+1] == '"' || p.s[p.pos+1] == '\\'):
			p.pos++
			b.WriteByte(p.s[p.pos])
		default:
			b.WriteByte(c)
		}
	}
	return "", p.fail(start, "this quote is not closed")
}

// units are what may stand behind a number, the longer first.
var units = []struct {
	suffix string
	scale  float64
	time   bool
}{{"ms", 1e-3, true}, {"us", 1e-6, true}, {"s", 1, true}, {"m", 60, true}, {"h", 3600, true}, {"k", 1e3, false}, {"M", 1e6, false}}

// parseNumber reads digits with a sign, a point and an exponent, and a unit.
func parseNumber(s string, time bool) (float64, bool) {
	scale := 1.0
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok && u.time == time && rest != "" {
			s, scale = rest, u.scale
			break
		}
	}
	for i := range len(s) {
		if c := s[i]; !(c >= '0' && c <= '9' || c == '.' || c == '-' || c == '+' || c == 'e' || c == 'E') {
			return 0, false // what ParseFloat knows beyond: inf, nan, hexadecimal, underscores
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, false
	}
	if scale < 1 {
		f /= math.Round(1 / scale) // 300ms is 0.3, not 0.30000000000000004
	} else {
		f *= scale
	}
	return f, !math.IsInf(f, 0)
}
