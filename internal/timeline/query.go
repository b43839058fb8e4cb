package timeline

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rollscope/rollscope/internal/rollout"
)

// Query chooses rows of a timeline and their order; FORMAT.md says what each part means. The zero
// Query is all rows as the dump has them.
type Query struct {
	Filter  string
	Sort    string // "" is row
	Desc    bool
	Group   bool
	Attempt rollout.Int // only rows and items of this attempt
}

// QueryError is a part of a query that cannot be understood.
type QueryError struct {
	At   int    // UTF-16 offset in the filter, -1 when it is about another part
	What string // what is wrong and what is allowed
}

func (e *QueryError) Error() string {
	if e.At < 0 {
		return e.What
	}
	return fmt.Sprintf("at character %d of the filter: %s", e.At+1, e.What)
}

// field is something that a filter compares.
type field uint8

const (
	fSample field = iota
	fRow
	fGroup
	fRollout
	fReward
	fDur
	fStart
	fEnd
	fTokens
	fPrompt
	fLanes
	fItems
	fRequests
	fAttempts
	fOpen
	fOrphans
	fPoints
	fQueue
	fE2E
	fPrefill
	fDecode
	fRetries
	numNumbers
)

const (
	fStatus = numNumbers + iota
	fSource
	fLabel
	fTrace
	fRID
	fName
	fFlag
	fAttr
	fWord // any text
	fRegexp
)

var fieldNames = [...]string{
	fSample: "sample", fRow: "row", fGroup: "group", fRollout: "rollout", fReward: "reward", fDur: "dur", fStart: "start",
	fEnd: "end", fTokens: "tokens", fPrompt: "prompt", fLanes: "lanes", fItems: "items", fRequests: "requests",
	fAttempts: "attempts", fOpen: "open", fOrphans: "orphans", fPoints: "points", fQueue: "queue", fE2E: "e2e",
	fPrefill: "prefill", fDecode: "decode", fRetries: "retries", fStatus: "status", fSource: "source", fLabel: "label",
	fTrace: "trace", fRID: "rid", fName: "name", fFlag: "flag",
}

// fieldList is what an error says is allowed.
var fieldList = strings.Join(fieldNames[:], ", ") + ", attr.KEY"

var flagNames = [...]string{"carried", "shared", "held", "error", "aborted", "merged", "critical", "problem", "empty"}

// time says that a field is a duration or a time in seconds.
func (f field) time() bool {
	switch f {
	case fDur, fStart, fEnd, fQueue, fE2E, fPrefill, fDecode, fAttr:
		return true
	}
	return false
}

type op uint8

const (
	opContains op = iota
	opEqual
	opLess
	opLessEqual
	opMore
	opMoreEqual
)

// term is one condition of a filter.
type term struct {
	not   bool
	field field
	op    op
	text  string // lower case
	num   float64
	isNum bool
	flag  int    // of fFlag: place in flagNames
	key   string // of fAttr
	re    *regexp.Regexp
}

const (
	maxFilter = 4096 // bytes
	maxTerms  = 64
)

// parser walks a filter.
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
	return &QueryError{At: n, What: fmt.Sprintf(format, args...)}
}

func (p *parser) spaces() {
	for p.pos < len(p.s) && isSpace(p.s[p.pos]) {
		p.pos++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isOp(c byte) bool { return c == ':' || c == '=' || c == '<' || c == '>' }

// parseFilter reads a filter. Errors are [*QueryError].
func parseFilter(s string) ([]term, error) {
	p := &parser{s: s}
	if len(s) > maxFilter {
		return nil, &QueryError{At: -1, What: fmt.Sprintf("the filter has %d bytes, at most %d are allowed", len(s), maxFilter)}
	}
	if !utf8.ValidString(s) {
		return nil, &QueryError{At: -1, What: "the filter is not UTF-8"}
	}
	var terms []term
	for {
		p.spaces()
		if p.pos == len(s) {
			return terms, nil
		}
		if len(terms) > 0 && p.and() {
			p.spaces()
			if p.pos == len(s) {
				return nil, p.fail(len(s), `a term is expected after "and"`)
			}
		}
		if len(terms) == maxTerms {
			return nil, p.fail(p.pos, "a filter has at most %d terms", maxTerms)
		}
		at := p.pos
		if p.and() {
			return nil, p.fail(at, `a term is expected before "and"; to look for the word, put it in quotes`)
		}
		t, err := p.term()
		if err != nil {
			return nil, err
		}
		terms = append(terms, t)
	}
}

// and skips the word "and".
func (p *parser) and() bool {
	rest := p.s[p.pos:]
	if len(rest) >= 3 && strings.EqualFold(rest[:3], "and") && (len(rest) == 3 || isSpace(rest[3])) {
		p.pos += 3
		return true
	}
	return false
}

func (p *parser) term() (t term, err error) {
	if p.s[p.pos] == '-' {
		t.not = true
		p.pos++
		if p.pos == len(p.s) || isSpace(p.s[p.pos]) {
			return t, p.fail(p.pos, `a term is expected directly after "-"`)
		}
	}
	switch p.s[p.pos] {
	case '"':
		t.field = fWord
		t.text, err = p.quoted()
		t.text = strings.ToLower(t.text)
		return t, err
	case '/':
		t.field = fRegexp
		t.re, err = p.regexp()
		return t, err
	}
	start := p.pos
	name, key, isAttr, err := p.name()
	if err != nil {
		return t, err
	}
	if name != "" {
		after := p.pos
		p.spaces()
		if p.pos < len(p.s) && isOp(p.s[p.pos]) {
			return p.condition(t, start, name, key, isAttr)
		}
		p.pos = after
		if isAttr {
			return t, p.fail(p.pos, "one of : = < <= > >= is expected after attr.%s", key)
		}
	}
	p.pos = start
	t.field, t.text = fWord, strings.ToLower(p.bare())
	return t, nil
}

// name reads what may be a field.
func (p *parser) name() (name, key string, isAttr bool, err error) {
	start := p.pos
	for p.pos < len(p.s) {
		c := p.s[p.pos]
		if !(c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' && p.pos > start) {
			break
		}
		p.pos++
	}
	name = strings.ToLower(p.s[start:p.pos])
	if name != "attr" || p.pos == len(p.s) || p.s[p.pos] != '.' {
		return name, "", false, nil
	}
	p.pos++
	if p.pos < len(p.s) && p.s[p.pos] == '"' {
		key, err = p.quoted()
		return name, key, true, err
	}
	from := p.pos
	for p.pos < len(p.s) && !isSpace(p.s[p.pos]) && !isOp(p.s[p.pos]) {
		p.pos++
	}
	if key = p.s[from:p.pos]; key == "" {
		return "", "", true, p.fail(p.pos, "the key of an attribute is expected after attr.")
	}
	return name, key, true, nil
}

// bare reads up to the next space.
func (p *parser) bare() string {
	start := p.pos
	for p.pos < len(p.s) && !isSpace(p.s[p.pos]) {
		p.pos++
	}
	return p.s[start:p.pos]
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
	return "", p.fail(start, `this quote is not closed`)
}

// regexp reads a regular expression between slashes.
func (p *parser) regexp() (*regexp.Regexp, error) {
	start := p.pos
	var b strings.Builder
	for p.pos++; p.pos < len(p.s); p.pos++ {
		switch c := p.s[p.pos]; {
		case c == '/':
			p.pos++
			re, err := regexp.Compile("(?i)" + b.String())
			if err != nil {
				return nil, p.fail(start, "%v", err)
			}
			return re, nil
		case c == '\\' && p.pos+1 < len(p.s):
			p.pos++
			if p.s[p.pos] != '/' {
				b.WriteByte(c)
			}
			b.WriteByte(p.s[p.pos])
		default:
			b.WriteByte(c)
		}
	}
	return nil, p.fail(start, "this regular expression is not closed by a slash")
}

// condition reads the op and the value after a field; start is where the field began.
func (p *parser) condition(t term, start int, name, key string, isAttr bool) (term, error) {
	found := isAttr
	if isAttr {
		t.field, t.key = fAttr, key
	}
	for i, n := range fieldNames {
		if n == name && !isAttr {
			t.field, found = field(i), true
		}
	}
	if !found {
		return t, p.fail(start, "there is no field %q: it is one of %s; to look for the text, put it in quotes", name, fieldList)
	}
	opAt := p.pos
	switch c := p.s[p.pos]; c {
	case ':':
		t.op = opContains
	case '=':
		t.op = opEqual
	case '<':
		t.op = opLess
	case '>':
		t.op = opMore
	}
	p.pos++
	if t.op >= opLess && p.pos < len(p.s) && p.s[p.pos] == '=' {
		t.op++
		p.pos++
	}
	if t.op >= opLess && t.field >= numNumbers && t.field != fAttr {
		return t, p.fail(opAt, "%s is text: use : (contains) or = (equals)", fieldNames[t.field])
	}
	p.spaces()
	at := p.pos
	if p.pos == len(p.s) {
		return t, p.fail(p.pos, "a value is expected")
	}
	value, isQuoted := "", p.s[p.pos] == '"'
	if isQuoted {
		var err error
		if value, err = p.quoted(); err != nil {
			return t, err
		}
	} else {
		value = p.bare()
	}
	t.text = strings.ToLower(value)
	if t.field == fFlag {
		for i, n := range flagNames {
			if n == t.text {
				t.flag = i
				return t, nil
			}
		}
		return t, p.fail(at, "there is no flag %q: it is one of %s", value, strings.Join(flagNames[:], ", "))
	}
	if t.op != opContains && (t.field < numNumbers || t.field == fAttr) {
		t.num, t.isNum = parseNumber(value, t.field.time())
		if !t.isNum && (t.op != opEqual || t.field != fAttr) {
			if t.field.time() {
				return t, p.fail(at, "a number is expected, with s, ms or m after it or nothing (seconds)")
			}
			return t, p.fail(at, "a number is expected")
		}
	}
	return t, nil
}

// parseNumber reads digits with a sign, a point and an exponent, and a suffix when it is a time.
func parseNumber(s string, time bool) (float64, bool) {
	scale := 1.0
	if time {
		switch {
		case strings.HasSuffix(s, "ms"):
			s, scale = s[:len(s)-2], 1e-3
		case strings.HasSuffix(s, "s"):
			s = s[:len(s)-1]
		case strings.HasSuffix(s, "m"):
			s, scale = s[:len(s)-1], 60
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
	if scale == 1e-3 {
		return f / 1e3, true
	}
	return f * scale, true
}
