package tracestore

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// QueryError says what of a TraceQL query is not understood, or not answered here.
type QueryError struct {
	At  int // offset in bytes from the start of the query
	Msg string
}

func (e *QueryError) Error() string { return fmt.Sprintf("TraceQL at %d: %s", e.At+1, e.Msg) }

// Bounds of a query: what a person or a dashboard writes is far below them.
const (
	maxQueryBytes = 64 << 10
	maxQueryDepth = 64
	maxQueryParts = 512
)

// ParseTraceQL reads the TraceQL that search forms emit: spansets with comparisons of attributes and
// intrinsics, joined by && and ||, then any number of "| select(...)". The error is a *[QueryError] with the
// place of what is wrong or of what is not answered here (structural operators, aggregates, metrics).
func ParseTraceQL(text string) (Query, error) {
	p := &parser{text: text}
	if len(text) > maxQueryBytes {
		return Query{}, &QueryError{maxQueryBytes, fmt.Sprintf("the query is longer than %d bytes", maxQueryBytes)}
	}
	set, fields, err := p.query()
	if err != nil {
		return Query{}, err
	}
	return Query{Where: set, Select: fields}, nil
}

type tokenKind uint8

const (
	tokEnd tokenKind = iota
	tokOp
	tokText     // "..." or `...`
	tokNumber   // num
	tokDuration // num, seconds
	tokWord     // an identifier
	tokField    // scope and key: span.x, .x, resource."x y"
)

type token struct {
	kind  tokenKind
	at    int
	text  string // of an operator, a word or a string
	num   float64
	field Field
}

type parser struct {
	text  string
	at    int
	tok   token
	parts int
}

func (p *parser) fail(at int, format string, args ...any) error {
	return &QueryError{at, fmt.Sprintf(format, args...)}
}

// operators, the longest first where one begins like another. Those after the empty string are TraceQL's
// and not answered here; they are read as one so that the error names them.
var operators = []string{"&&", "||", "=~", "!~", "!=", ">=", "<=", "{", "}", "(", ")", "=", ">", "<", "|", ",", "!", "-",
	"", "+", "*", "/", "%", "^", "~", "&>", "&<", "&~", "&", "[", "]"}

var structural = []string{"!>>", "!<<", "&>>", "&<<", ">>", "<<", "&>", "&<", "&~"}

// next reads a token.
func (p *parser) next() error {
	for p.at < len(p.text) {
		r, n := utf8.DecodeRuneInString(p.text[p.at:])
		if !unicode.IsSpace(r) {
			break
		}
		p.at += n
	}
	t := token{at: p.at}
	rest := p.text[p.at:]
	switch {
	case rest == "":
	case rest[0] == '"' || rest[0] == '`':
		prefix, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return p.fail(p.at, "this text has no end, or an escape that there is not")
		}
		t.kind = tokText
		if t.text, err = strconv.Unquote(prefix); err != nil {
			return p.fail(p.at, "this text has an escape that there is not")
		}
		p.at += len(prefix)
	case rest[0] >= '0' && rest[0] <= '9':
		if err := p.number(&t, rest); err != nil {
			return err
		}
	case rest[0] == '.' && len(rest) > 1:
		p.at++
		key, err := p.key()
		if err != nil {
			return err
		}
		t.kind, t.field = tokField, Field{AnyScope, key}
	case wordStart(rest):
		if err := p.word(&t, rest); err != nil {
			return err
		}
	default:
		for _, op := range structural {
			if strings.HasPrefix(rest, op) {
				return p.fail(p.at, "%s is not answered here: only && and || join spansets", op)
			}
		}
		for _, op := range operators {
			if op != "" && strings.HasPrefix(rest, op) {
				t.kind, t.text = tokOp, op
				p.at += len(op)
				p.tok = t
				return nil
			}
		}
		r, _ := utf8.DecodeRuneInString(rest)
		return p.fail(p.at, "%q has no meaning here", r)
	}
	p.tok = t
	return nil
}

func wordStart(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return r == '_' || unicode.IsLetter(r)
}

// number reads a number or a duration such as 1h30m or 1.5s.
func (p *parser) number(t *token, rest string) error {
	n := 0
	for n < len(rest) && (rest[n] >= '0' && rest[n] <= '9' || rest[n] == '.' ||
		(rest[n] == 'e' || rest[n] == 'E') && n+1 < len(rest) && (rest[n+1] == '-' || rest[n+1] == '+' || rest[n+1] >= '0' && rest[n+1] <= '9') ||
		(rest[n] == '-' || rest[n] == '+') && (rest[n-1] == 'e' || rest[n-1] == 'E')) {
		n++
	}
	m := n
	for m < len(rest) {
		r, size := utf8.DecodeRuneInString(rest[m:])
		if !strings.ContainsRune("nsuµmhdwy.0123456789", r) {
			break
		}
		m += size
	}
	p.at += m
	if m == n {
		f, err := strconv.ParseFloat(rest[:n], 64)
		if err != nil || math.IsInf(f, 0) {
			return p.fail(t.at, "%q is no number", rest[:n])
		}
		t.kind, t.num = tokNumber, f
		return nil
	}
	d, err := parseDuration(rest[:m])
	if err != nil {
		return p.fail(t.at, "%q is no duration: 100ms, 1.5s, 1h30m", rest[:m])
	}
	t.kind, t.num = tokDuration, float64(d)/1e9
	return nil
}

// parseDuration is Go's with d, w and y (365 d), whole ones, before.
func parseDuration(s string) (time.Duration, error) {
	var total time.Duration
	for _, u := range []struct {
		unit string
		is   time.Duration
	}{{"y", 365 * 24 * time.Hour}, {"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		n, rest, ok := strings.Cut(s, u.unit)
		if !ok {
			continue
		}
		v, err := strconv.ParseUint(n, 10, 16)
		if err != nil || time.Duration(v) > (1<<62-total)/u.is {
			return 0, errors.New("no duration")
		}
		total += time.Duration(v) * u.is
		s = rest
	}
	if s == "" {
		return total, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || total > 1<<62-d {
		return 0, errors.New("no duration")
	}
	return total + d, nil
}

// attributeRune tells what a key may hold without quotes.
func attributeRune(r rune) bool {
	return !unicode.IsSpace(r) && !strings.ContainsRune("{}()=~!<>&|^,`", r)
}

// key reads the key of an attribute: parts of it may be quoted.
func (p *parser) key() (string, error) {
	var b strings.Builder
	start := p.at
	for p.at < len(p.text) {
		r, n := utf8.DecodeRuneInString(p.text[p.at:])
		if r == '"' {
			at := p.at
			p.at++
			closed := false
			for p.at < len(p.text) && !closed {
				r, n := utf8.DecodeRuneInString(p.text[p.at:])
				p.at += n
				switch {
				case r == '"':
					closed = true
				case r == '\\' && p.at < len(p.text) && (p.text[p.at] == '"' || p.text[p.at] == '\\'):
					b.WriteByte(p.text[p.at])
					p.at++
				case r == '\\':
					return "", p.fail(p.at-n, `after \ comes " or \`)
				default:
					b.WriteRune(r)
				}
			}
			if !closed {
				return "", p.fail(at, "this key has no closing quote")
			}
			continue
		}
		if !attributeRune(r) {
			break
		}
		b.WriteRune(r)
		p.at += n
	}
	if b.Len() == 0 {
		return "", p.fail(start, "here comes the key of an attribute")
	}
	return b.String(), nil
}

// scopes by the word before the dot; "parent" is TraceQL's and not answered.
var scopes = map[string]Scope{"span": SpanScope, "resource": Resource, "event": EventScope, "link": LinkScope, "instrumentation": Instrument}

// intrinsics by their names, the older ones and those with a scope.
var intrinsics = map[string]string{
	"name": SpanName, "status": SpanStatus, "statusMessage": StatusMessage, "kind": SpanKind, "duration": SpanDuration,
	"rootName": RootName, "rootServiceName": RootService, "traceDuration": TraceDuration, "nestedSetParent": IsRoot,
	"span:name": SpanName, "span:status": SpanStatus, "span:statusMessage": StatusMessage, "span:kind": SpanKind, "span:duration": SpanDuration,
	"span:id": SpanID, "span:parentID": ParentID, "trace:id": TraceIDField, "trace:duration": TraceDuration, "trace:rootName": RootName,
	"trace:rootService": RootService, "event:name": EventName, "link:traceID": LinkTraceID, "link:spanID": LinkSpanID,
	"instrumentation:name": ScopeName, "instrumentation:version": ScopeVersion,
}

// word reads a word, an intrinsic with a scope (span:name) or an attribute with one (span.rid).
func (p *parser) word(t *token, rest string) error {
	n := 0
	for n < len(rest) {
		r, size := utf8.DecodeRuneInString(rest[n:])
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			break
		}
		n += size
	}
	t.kind, t.text = tokWord, rest[:n]
	p.at += n
	if n == len(rest) {
		return nil
	}
	switch rest[n] {
	case ':':
		m := n + 1
		for m < len(rest) && (rest[m] >= 'a' && rest[m] <= 'z' || rest[m] >= 'A' && rest[m] <= 'Z') {
			m++
		}
		t.text = rest[:m]
		p.at += m - n
	case '.':
		scope, ok := scopes[t.text]
		if !ok {
			if t.text == "parent" {
				return p.fail(t.at, "attributes of the parent span are not answered here")
			}
			return p.fail(t.at, "%q is no scope: span, resource, event, link, instrumentation, or a dot alone for any", t.text)
		}
		p.at++
		key, err := p.key()
		if err != nil {
			return err
		}
		t.kind, t.field = tokField, Field{scope, key}
	}
	return nil
}

func (p *parser) is(op string) bool { return p.tok.kind == tokOp && p.tok.text == op }

func (p *parser) expect(op, after string) error {
	if !p.is(op) {
		return p.fail(p.tok.at, "%s comes here, %s", op, after)
	}
	return p.next()
}

// part counts, so that a query cannot be made of endless many.
func (p *parser) part(depth int) error {
	if p.parts++; p.parts > maxQueryParts || depth > maxQueryDepth {
		return p.fail(p.tok.at, "the query has too many parts: at most %d, %d deep", maxQueryParts, maxQueryDepth)
	}
	return nil
}

func (p *parser) query() (*Set, []Field, error) {
	if err := p.next(); err != nil {
		return nil, nil, err
	}
	set, err := p.sets(0)
	if err != nil {
		return nil, nil, err
	}
	var fields []Field
	for p.is("|") {
		if err := p.next(); err != nil {
			return nil, nil, err
		}
		if p.tok.kind != tokWord {
			return nil, nil, p.fail(p.tok.at, "after | comes select(...)")
		}
		if p.tok.text != "select" {
			return nil, nil, p.fail(p.tok.at, "%s is not answered here: only select(...) may follow a spanset", p.tok.text)
		}
		list, err := p.fields()
		if err != nil {
			return nil, nil, err
		}
		fields = append(fields, list...)
	}
	if p.tok.kind == tokWord && p.tok.text == "with" {
		if err := p.hints(); err != nil {
			return nil, nil, err
		}
	}
	if p.tok.kind != tokEnd {
		if p.is(">") || p.is("<") || p.is("!") || p.is("~") {
			return nil, nil, p.fail(p.tok.at, "structural operators are not answered here: only && and || join spansets")
		}
		return nil, nil, p.fail(p.tok.at, "the query should end here, or go on with &&, || or | select(...)")
	}
	return set, fields, nil
}

// hints reads with (key=value, ...), which tells Tempo how to search and changes no answer.
func (p *parser) hints() error {
	if err := p.next(); err != nil {
		return err
	}
	if err := p.expect("(", "after with"); err != nil {
		return err
	}
	for {
		if p.tok.kind != tokWord {
			return p.fail(p.tok.at, "here comes the name of a hint")
		}
		if err := p.next(); err != nil {
			return err
		}
		if err := p.expect("=", "after the name of a hint"); err != nil {
			return err
		}
		if p.tok.kind == tokOp || p.tok.kind == tokEnd || p.tok.kind == tokField {
			return p.fail(p.tok.at, "here comes the value of a hint")
		}
		if err := p.next(); err != nil {
			return err
		}
		if !p.is(",") {
			return p.expect(")", "at the end of the hints")
		}
		if err := p.next(); err != nil {
			return err
		}
	}
}

func (p *parser) fields() ([]Field, error) {
	if err := p.next(); err != nil {
		return nil, err
	}
	if err := p.expect("(", "after select"); err != nil {
		return nil, err
	}
	var out []Field
	for {
		f, ok := p.fieldOf(p.tok)
		if !ok {
			return nil, p.fail(p.tok.at, "here comes a field: span.key, resource.key, .key or an intrinsic such as name")
		}
		if len(out) >= maxQueryDepth {
			return nil, p.fail(p.tok.at, "at most %d fields", maxQueryDepth)
		}
		out = append(out, f)
		if err := p.next(); err != nil {
			return nil, err
		}
		if !p.is(",") {
			return out, p.expect(")", "after the fields")
		}
		if err := p.next(); err != nil {
			return nil, err
		}
	}
}

// fieldOf is the field that a token names.
func (p *parser) fieldOf(t token) (Field, bool) {
	if t.kind == tokField {
		return t.field, true
	}
	if t.kind == tokWord {
		if name, ok := intrinsics[t.text]; ok {
			return Field{Intrinsic, name}, true
		}
	}
	return Field{}, false
}

// sets = and { "||" and }
func (p *parser) sets(depth int) (*Set, error) {
	return p.joinSets("||", anyOf, depth, func() (*Set, error) {
		return p.joinSets("&&", allOf, depth, func() (*Set, error) { return p.set(depth + 1) })
	})
}

func (p *parser) joinSets(word string, o op, depth int, one func() (*Set, error)) (*Set, error) {
	first, err := one()
	if err != nil {
		return nil, err
	}
	out := first
	for p.is(word) {
		if err := p.next(); err != nil {
			return nil, err
		}
		s, err := one()
		if err != nil {
			return nil, err
		}
		if out == first {
			out = &Set{op: o, args: []*Set{first}}
		}
		out.args = append(out.args, s)
	}
	return out, nil
}

func (p *parser) set(depth int) (*Set, error) {
	if err := p.part(depth); err != nil {
		return nil, err
	}
	switch {
	case p.is("("):
		if err := p.next(); err != nil {
			return nil, err
		}
		s, err := p.sets(depth)
		if err != nil {
			return nil, err
		}
		return s, p.expect(")", "to close the parenthesis")
	case p.is("{"):
		if err := p.next(); err != nil {
			return nil, err
		}
		c := All()
		if !p.is("}") {
			var err error
			if c, err = p.conds(depth); err != nil {
				return nil, err
			}
		}
		return Spans(c), p.expect("}", "to close the spanset")
	}
	return nil, p.fail(p.tok.at, "here comes a spanset: { ... }")
}

// conds = and { "||" and }
func (p *parser) conds(depth int) (*Cond, error) {
	return p.joinConds("||", Any, func() (*Cond, error) {
		return p.joinConds("&&", All, func() (*Cond, error) { return p.cond(depth + 1) })
	})
}

func (p *parser) joinConds(word string, join func(...*Cond) *Cond, one func() (*Cond, error)) (*Cond, error) {
	var list []*Cond
	for {
		c, err := one()
		if err != nil {
			return nil, err
		}
		list = append(list, c)
		if !p.is(word) {
			return join(list...), nil
		}
		if err := p.next(); err != nil {
			return nil, err
		}
	}
}

func (p *parser) cond(depth int) (*Cond, error) {
	if err := p.part(depth); err != nil {
		return nil, err
	}
	if p.is("(") {
		if err := p.next(); err != nil {
			return nil, err
		}
		c, err := p.conds(depth)
		if err != nil {
			return nil, err
		}
		return c, p.expect(")", "to close the parenthesis")
	}
	if p.is("!") {
		return nil, p.fail(p.tok.at, "! before a condition is not answered here: use != or !~")
	}
	if p.tok.kind == tokWord && (p.tok.text == "true" || p.tok.text == "false") {
		c := All()
		if p.tok.text == "false" {
			c = Any()
		}
		return c, p.next()
	}
	left := p.tok
	f, ok := p.fieldOf(left)
	if !ok {
		return nil, p.fail(left.at, "here comes a field: span.key, resource.key, .key or an intrinsic such as name or duration")
	}
	if err := p.next(); err != nil {
		return nil, err
	}
	var cmp Cmp
	switch {
	case p.is("="):
		cmp = Equal
	case p.is("!="):
		cmp = NotEqual
	case p.is("=~"):
		cmp = Matches
	case p.is("!~"):
		cmp = NotMatches
	case p.is("<"):
		cmp = Less
	case p.is("<="):
		cmp = LessEqual
	case p.is(">"):
		cmp = Greater
	case p.is(">="):
		cmp = GreaterEqual
	case p.tok.kind == tokOp && !p.is("}") && !p.is(")") && !p.is("&&") && !p.is("||"):
		return nil, p.fail(p.tok.at, "%s is not answered here: =, !=, =~, !~, <, <=, >, >= compare a field", p.tok.text)
	default: // a field alone: it is true
		if f.Scope == Intrinsic {
			return nil, p.fail(p.tok.at, "after %s comes =, !=, =~, !~, <, <=, > or >=", f)
		}
		return Is(f, "true"), nil
	}
	if err := p.next(); err != nil {
		return nil, err
	}
	return p.value(f, cmp)
}

// value reads what a field is compared with.
func (p *parser) value(f Field, cmp Cmp) (*Cond, error) {
	at := p.tok.at
	sign := 1.0
	if p.is("-") {
		sign = -1
		if err := p.next(); err != nil {
			return nil, err
		}
		if p.tok.kind != tokNumber && p.tok.kind != tokDuration {
			return nil, p.fail(p.tok.at, "here comes a number")
		}
	}
	var v Value
	ordered := cmp >= Less && cmp <= GreaterEqual
	pattern := cmp == Matches || cmp == NotMatches
	seconds := f.Scope == Intrinsic && (f.Key == SpanDuration || f.Key == TraceDuration)
	switch p.tok.kind {
	case tokText:
		v.Text = p.tok.text
		if seconds || f == (Field{Intrinsic, IsRoot}) {
			return nil, p.fail(at, "%s is compared with a duration: 100ms, 1.5s", f)
		}
		if ordered && f.Scope == Intrinsic {
			return nil, p.fail(at, "%s has no order: use =, !=, =~ or !~", f)
		}
	case tokNumber, tokDuration:
		v.Number, v.IsNumber = sign*p.tok.num, true
		v.Text = strconv.FormatFloat(v.Number, 'f', -1, 64) // a duration that an attribute is compared with is in seconds
		switch {
		case pattern:
			return nil, p.fail(at, "a regular expression is text in quotes")
		case seconds && p.tok.kind == tokNumber && v.Number != 0:
			return nil, p.fail(at, "a duration has a unit: 100ms, 1.5s")
		case f.Scope == Intrinsic && !seconds && f.Key != IsRoot:
			return nil, p.fail(at, "%s is compared with text", f)
		}
	case tokWord:
		c, done, err := p.wordValue(f, cmp, &v)
		if err != nil {
			return nil, err
		}
		if done {
			return c, p.next()
		}
	default:
		return nil, p.fail(at, "here comes a value: text in quotes, a number, a duration, or a word such as error")
	}
	if err := p.next(); err != nil {
		return nil, err
	}
	if f == (Field{Intrinsic, IsRoot}) {
		return rootCond(p, at, cmp, v)
	}
	if f.Scope == Intrinsic && f.Key == SpanName && cmp == Equal && strings.Contains(v.Text, "*") {
		return NameIs(v.Text), nil // what users of SGLang's names write: Req *
	}
	if pattern {
		if _, err := regexp.Compile(v.Text); err != nil {
			return nil, p.fail(at, "%s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
	}
	c, err := Compare(f, cmp, v)
	if err != nil {
		return nil, p.fail(at, "%s", err)
	}
	return c, nil
}

// wordValue reads a word as a value: of a status, a kind, a boolean, or nil, when the condition is done.
func (p *parser) wordValue(f Field, cmp Cmp, v *Value) (*Cond, bool, error) {
	w := p.tok.text
	if w == "nil" {
		switch cmp {
		case Equal:
			return &Cond{field: f, cmp: Absent}, true, nil
		case NotEqual:
			return &Cond{field: f, cmp: Exists}, true, nil
		}
		return nil, false, p.fail(p.tok.at, "nil is compared with = or !=")
	}
	if cmp != Equal && cmp != NotEqual {
		return nil, false, p.fail(p.tok.at, "%s is compared with = or !=", w)
	}
	v.Text = w
	switch {
	case f == Field{Intrinsic, SpanStatus}:
		if w == "ok" || w == "error" || w == "unset" {
			return nil, false, nil
		}
		return nil, false, p.fail(p.tok.at, "a status is ok, error or unset")
	case f == Field{Intrinsic, SpanKind}:
		for _, k := range kindNames {
			if w == k {
				return nil, false, nil
			}
		}
		return nil, false, p.fail(p.tok.at, "a kind is one of %s", strings.Join(kindNames[:], ", "))
	case f.Scope != Intrinsic && (w == "true" || w == "false"):
		return nil, false, nil
	}
	return nil, false, p.fail(p.tok.at, "%q is no value of %s: text stands in quotes", w, f)
}

// rootCond reads what Grafana asks roots with: nestedSetParent < 0.
func rootCond(p *parser, at int, cmp Cmp, v Value) (*Cond, error) {
	parent := Field{Intrinsic, ParentID}
	switch {
	case cmp == Less && v.Number == 0 || cmp == Equal && v.Number == -1:
		return &Cond{field: parent, cmp: Absent}, nil
	case cmp == GreaterEqual && v.Number == 0 || cmp == Greater && v.Number == -1 || cmp == NotEqual && v.Number == -1:
		return &Cond{field: parent, cmp: Exists}, nil
	}
	return nil, p.fail(at, "of nestedSetParent only < 0 (roots) and >= 0 (others) are answered here")
}

var kindNames = [...]string{"unspecified", "internal", "server", "client", "producer", "consumer"}
