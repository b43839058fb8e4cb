package logsql

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// FromLogQL translates a query in Loki's LogQL. The stream selector, line filters, label filters, the
// parsers json and logfmt, keep, drop, and the counts over time (count_over_time, rate, bytes_over_time,
// with sum, by and topk around them) have a translation; anything else is a *SyntaxError that names its
// place. Labels in which shippers name a program match our field service as well.
func FromLogQL(q string) (string, error) {
	p := &logQL{text: q}
	out, err := p.query()
	if err != nil {
		return "", err
	}
	p.space()
	if p.at < len(p.text) {
		return "", p.fail("this is not translated")
	}
	return out, nil
}

type logQL struct {
	text string
	at   int
}

func (p *logQL) fail(format string, args ...any) error {
	return &SyntaxError{Query: p.text, At: p.at, Msg: fmt.Sprintf(format, args...)}
}

func (p *logQL) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// accept takes one of the tokens, the longest first as they are listed.
func (p *logQL) accept(tokens ...string) string {
	p.space()
	for _, t := range tokens {
		if strings.HasPrefix(p.text[p.at:], t) {
			p.at += len(t)
			return t
		}
	}
	return ""
}

func (p *logQL) name() string {
	p.space()
	start := p.at
	for p.at < len(p.text) {
		c := p.text[p.at]
		if c != '_' && c != '.' && (c|0x20 < 'a' || c|0x20 > 'z') && (p.at == start || c < '0' || c > '9') {
			break
		}
		p.at++
	}
	return p.text[start:p.at]
}

func (p *logQL) literal() (string, error) {
	p.space()
	rest := p.text[p.at:]
	if quoted, err := strconv.QuotedPrefix(rest); err == nil && quoted[0] != '\'' {
		if s, err := strconv.Unquote(quoted); err == nil {
			p.at += len(quoted)
			return s, nil
		}
	}
	return "", p.fail("a text in quotes is expected")
}

// programLabels are those that our receivers take the service from.
var programLabels = []string{"service_name", "service", "app", "app_name", "container", "job"}

// label is a filter of one label.
func label(name, op, value string) (string, error) {
	filter := func(field string) string {
		switch op {
		case "=", "!=":
			return Equal(field, value)
		default:
			return Whole(field, value)
		}
	}
	f := filter(name)
	if slices.Contains(programLabels, name) && name != "service" && value != "" {
		f = "(" + f + " or " + filter("service") + ")"
	}
	if op[0] == '!' {
		f = Not(f)
	}
	return f, nil
}

func (p *logQL) query() (string, error) {
	p.space()
	if p.at < len(p.text) && p.text[p.at] == '{' {
		return p.lines()
	}
	return p.metric()
}

// lines is a log query: a selector and what is piped through.
func (p *logQL) lines() (string, error) {
	if p.accept("{") == "" {
		return "", p.fail("a selector in braces is expected")
	}
	filters := []string{Equal("row", "log")}
	for first := true; p.accept("}") == ""; first = false {
		if !first && p.accept(",") == "" {
			return "", p.fail("a comma or } is expected")
		}
		if !first && p.accept("}") != "" {
			break
		}
		name := p.name()
		if name == "" {
			return "", p.fail("the name of a label is expected")
		}
		op := p.accept("=~", "!~", "!=", "=")
		if op == "" {
			return "", p.fail("one of = != =~ !~ is expected")
		}
		value, err := p.literal()
		if err != nil {
			return "", err
		}
		f, err := label(name, op, value)
		if err != nil {
			return "", err
		}
		filters = append(filters, f)
	}
	out := strings.Join(filters, " ")
	piped := false // after a pipe a filter is a pipe too
	add := func(filter string) {
		if piped {
			out += " | filter " + filter
		} else {
			out += " " + filter
		}
	}
	for {
		switch op := p.accept("|=", "|~", "!=", "!~", "|>", "!>", "|"); op {
		case "":
			return out, nil
		case "|=", "|~", "!=", "!~":
			var alternatives []string
			for {
				value, err := p.literal()
				if err != nil {
					return "", err
				}
				f := Contains("_msg", value)
				if op[1] == '~' {
					f = Match("_msg", value)
				}
				alternatives = append(alternatives, f)
				if at := p.at; p.name() != "or" {
					p.at = at
					break
				}
			}
			f := strings.Join(alternatives, " or ")
			if len(alternatives) > 1 {
				f = "(" + f + ")"
			}
			if op[0] == '!' {
				f = Not(f)
			}
			add(f)
		case "|":
			s, filter, err := p.pipe()
			if err != nil {
				return "", err
			}
			if filter {
				add(s)
				continue
			}
			out += " | " + s
			piped = true
		default:
			p.at -= len(op)
			return "", p.fail("pattern filters are not translated: use a regular expression, |~")
		}
	}
}

// pipe is what follows a |.
func (p *logQL) pipe() (out string, filter bool, err error) {
	start := p.at
	name := p.name()
	switch name {
	case "json":
		return "unpack_json", false, nil
	case "logfmt":
		return "unpack_logfmt", false, nil
	case "decolorize":
		return "decolorize", false, nil
	case "keep", "drop":
		var names []string
		for {
			n := p.name()
			if n == "" {
				return "", false, p.fail("the name of a label is expected")
			}
			names = append(names, Quote(n))
			if p.accept(",") == "" {
				break
			}
		}
		if name == "keep" {
			return "fields " + strings.Join(append([]string{"_time", "_msg"}, names...), ", "), false, nil
		}
		return "delete " + strings.Join(names, ", "), false, nil
	case "":
		return "", false, p.fail("the name of a parser or a label is expected")
	}
	var list []string
	for {
		f, err := p.labelFilter(name)
		if err != nil {
			if len(list) == 0 {
				p.at = start
				return "", false, p.fail("%s is not translated", name)
			}
			return "", false, err
		}
		list = append(list, f)
		at := p.at
		switch word := p.name(); word {
		case "and", "or":
			list = append(list, word)
		default:
			p.at = at
			if len(list) == 1 {
				return list[0], true, nil
			}
			return "(" + strings.Join(list, " ") + ")", true, nil
		}
		if name = p.name(); name == "" {
			return "", false, p.fail("the name of a label is expected")
		}
	}
}

// labelFilter is name op value, the name being read.
func (p *logQL) labelFilter(name string) (string, error) {
	op := p.accept("=~", "!~", "!=", ">=", "<=", "==", "=", ">", "<")
	p.space()
	switch op {
	case "=~", "!~", "=", "!=":
		if p.at < len(p.text) && (p.text[p.at] == '"' || p.text[p.at] == '`') {
			value, err := p.literal()
			if err != nil {
				return "", err
			}
			return label(name, op, value)
		}
	case "":
		return "", p.fail("a comparison is expected")
	}
	start := p.at
	for p.at < len(p.text) && strings.IndexByte("0123456789.+-eEnumshdkKMGiB", p.text[p.at]) >= 0 {
		p.at++
	}
	number := p.text[start:p.at]
	if number == "" || strings.HasSuffix(op, "~") {
		return "", p.fail("a number is expected")
	}
	switch op {
	case "=", "==":
		return Equal(name, number), nil
	case "!=":
		return Not(Equal(name, number)), nil
	default:
		return Quote(name) + ":" + op + number, nil
	}
}

// metric is a query of numbers over time.
func (p *logQL) metric() (string, error) {
	var by []string
	top := ""
	depth := 0
	for {
		start := p.at
		switch name := p.name(); name {
		case "sum", "topk":
			labels, err := p.grouping()
			if err != nil {
				return "", err
			}
			by = append(by, labels...)
			if p.accept("(") == "" {
				return "", p.fail("( is expected")
			}
			depth++
			if name == "topk" {
				p.space()
				n := p.at
				for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
					p.at++
				}
				top = p.text[n:p.at]
				if top == "" || p.accept(",") == "" {
					return "", p.fail("topk needs a number and a comma")
				}
			}
		case "count_over_time", "rate", "bytes_over_time":
			if p.accept("(") == "" {
				return "", p.fail("( is expected")
			}
			lines, err := p.lines()
			if err != nil {
				return "", err
			}
			if p.accept("[") == "" {
				return "", p.fail("a range in brackets is expected, as [5m]")
			}
			n := p.at
			for p.at < len(p.text) && p.text[p.at] != ']' {
				p.at++
			}
			step := p.text[n:p.at]
			if step == "" || strings.Trim(step, "0123456789smhdw") != "" || p.accept("]") == "" || p.accept(")") == "" {
				return "", p.fail("a range in brackets is expected, as [5m]")
			}
			for ; depth > 0; depth-- {
				if p.accept(")") == "" {
					return "", p.fail(") is expected")
				}
			}
			labels, err := p.grouping()
			if err != nil {
				return "", err
			}
			by = append(by, labels...)
			return metricPipes(lines, name, step, top, by), nil
		default:
			p.at = start
			if name == "" {
				return "", p.fail("a selector in braces, or a function over one, is expected")
			}
			return "", p.fail("%s is not translated", name)
		}
	}
}

func metricPipes(lines, function, step, top string, by []string) string {
	fn := map[string]string{"count_over_time": "count()", "rate": "rate()", "bytes_over_time": "sum_len(_msg)"}[function]
	for i := range by {
		by[i] = Quote(by[i])
	}
	out := fmt.Sprintf("%s | stats by (%s) %s as value", lines, strings.Join(append([]string{"_time:" + step}, by...), ", "), fn)
	if top != "" {
		return out + " | sort by (value desc) limit " + top
	}
	return out + " | sort by (_time)"
}

// grouping is by (a, b); without one it is nothing.
func (p *logQL) grouping() ([]string, error) {
	at := p.at
	switch word := p.name(); word {
	case "by":
	case "without":
		p.at = at
		return nil, p.fail("without is not translated: name the labels with by")
	default:
		p.at = at
		return nil, nil
	}
	if p.accept("(") == "" {
		return nil, p.fail("( is expected")
	}
	var out []string
	for p.accept(")") == "" {
		if len(out) > 0 && p.accept(",") == "" {
			return nil, p.fail("a comma or ) is expected")
		}
		n := p.name()
		if n == "" {
			return nil, p.fail("the name of a label is expected")
		}
		out = append(out, n)
	}
	return out, nil
}
