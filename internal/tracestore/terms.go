package tracestore

import (
	"strconv"
	"strings"
)

// ParseTerms reads conditions as people write them in a search box: key=value, key!=value, key=~"a|b",
// key!~re, key>5, key<=1.5s, with spaces between; all must hold for the same span. A key is an attribute's
// of any scope, or one with a scope (span.rid, resource.host.name); a word alone is an attribute that is
// there. The error is a *[QueryError].
func ParseTerms(text string) ([]*Cond, error) {
	p := &parser{text: text}
	if len(text) > maxQueryBytes {
		return nil, p.fail(maxQueryBytes, "the search is longer than %d bytes", maxQueryBytes)
	}
	var out []*Cond
	for {
		for p.at < len(text) && (text[p.at] == ' ' || text[p.at] == '\t' || text[p.at] == '\n') {
			p.at++
		}
		if p.at == len(text) {
			return out, nil
		}
		if len(out) >= maxQueryDepth {
			return nil, p.fail(p.at, "at most %d conditions", maxQueryDepth)
		}
		c, err := p.term()
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
}

func (p *parser) term() (*Cond, error) {
	at := p.at
	key, err := p.key()
	if err != nil {
		return nil, err
	}
	f := Field{AnyScope, key}
	if scope, rest, ok := strings.Cut(key, "."); ok && rest != "" && p.text[at] != '"' {
		if s, ok := scopes[scope]; ok {
			f = Field{s, rest}
		}
	}
	if name, ok := intrinsics[key]; ok && p.text[at] != '"' {
		f = Field{Intrinsic, name}
	}
	rest := p.text[p.at:]
	cmp := Exists
	for _, o := range []struct {
		op  string
		cmp Cmp
	}{{"=~", Matches}, {"!~", NotMatches}, {"!=", NotEqual}, {">=", GreaterEqual}, {"<=", LessEqual}, {"=", Equal}, {">", Greater}, {"<", Less}} {
		if strings.HasPrefix(rest, o.op) {
			cmp = o.cmp
			p.at += len(o.op)
			break
		}
	}
	if cmp == Exists {
		if rest != "" && !strings.HasPrefix(rest, " ") && !strings.HasPrefix(rest, "\t") && !strings.HasPrefix(rest, "\n") {
			return nil, p.fail(p.at, "here comes =, !=, =~, !~, <, <=, > or >=, or a space")
		}
		return &Cond{field: f, cmp: Exists}, nil
	}
	at = p.at
	v, quoted, err := p.termValue()
	if err != nil {
		return nil, err
	}
	seconds := f.Scope == Intrinsic && (f.Key == SpanDuration || f.Key == TraceDuration)
	value := Value{Text: v}
	ordered := cmp >= Less && cmp <= GreaterEqual
	if ordered || seconds {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil {
			d, derr := parseDuration(v)
			if derr != nil || quoted {
				return nil, p.fail(at, "%q is neither a number nor a duration: 5, 1.5s, 300ms", v)
			}
			n = float64(d) / 1e9
		}
		if !(n > -1e300 && n < 1e300) {
			return nil, p.fail(at, "%q is out of range", v)
		}
		value = Value{Text: strconv.FormatFloat(n, 'f', -1, 64), Number: n, IsNumber: true}
	}
	if f == (Field{Intrinsic, SpanName}) && cmp == Equal {
		return NameIs(v), nil
	}
	c, err := Compare(f, cmp, value)
	if err != nil {
		return nil, p.fail(at, "%s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return c, nil
}

// termValue reads a value: quoted, or up to a space.
func (p *parser) termValue() (v string, quoted bool, err error) {
	rest := p.text[p.at:]
	if rest != "" && (rest[0] == '"' || rest[0] == '`') {
		prefix, err := strconv.QuotedPrefix(rest)
		if err == nil {
			v, err = strconv.Unquote(prefix)
		}
		if err != nil {
			return "", true, p.fail(p.at, "this text has no end, or an escape that there is not")
		}
		p.at += len(prefix)
		return v, true, nil
	}
	n := strings.IndexAny(rest, " \t\n")
	if n < 0 {
		n = len(rest)
	}
	if n == 0 {
		return "", false, p.fail(p.at, "here comes a value")
	}
	p.at += n
	return rest[:n], false, nil
}
