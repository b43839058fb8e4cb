package dashboard

import (
	"regexp"
	"strings"
)

// This file knows how Grafana puts the values of variables into a query of its Prometheus datasource, so
// that the lint sees the text that Prometheus would see, and can lead a position in it back to the
// text in the board.

// state says how the variables of a board stand when a query is tried.
type state string

const (
	asSaved state = "as saved"
	empty   state = "empty"
	single  state = "a single value"
	multi   state = "several values"
	all     state = "All"
)

// variable is one entry of a board's templating list.
type variable struct {
	name     string
	kind     string // "query", "custom", "textbox", "constant", "interval", "datasource", "adhoc", ...
	multi    bool
	all      bool
	allValue string
	saved    []string // the values stored in the file, without Grafana's $__all
	savedAll bool     // the stored value is All
	options  []string // the choices stored in the file, without All
}

// values gives what the variable stands for in a state; ok is false when it cannot be in it.
func (v variable) values(s state) (values []string, raw, ok bool) {
	one := "x"
	switch {
	case len(v.saved) > 0 && v.saved[0] != "":
		one = v.saved[0]
	case len(v.options) > 0:
		one = v.options[0]
	case v.kind == "interval":
		one = "5m"
	}
	switch v.kind {
	case "textbox", "constant":
		saved := ""
		if len(v.saved) > 0 {
			saved = v.saved[0]
		}
		switch {
		case s == asSaved:
			return []string{saved}, true, true
		case s == empty && v.kind == "textbox":
			return []string{""}, true, true
		}
		return []string{saved}, true, false
	case "interval", "datasource":
		return []string{one}, false, s == asSaved
	}
	two := []string{one, "y"}
	if len(v.options) > 1 {
		two = v.options[:2]
	}
	switch s {
	case asSaved:
		switch {
		case v.savedAll || (v.all && len(v.saved) == 0):
			return v.values(all)
		case len(v.saved) > 0:
			return v.saved, false, true
		}
		return []string{one}, false, true
	case single:
		return []string{one}, false, true
	case multi:
		if v.multi {
			return two, false, true
		}
	case all:
		if v.all && v.allValue != "" {
			return []string{v.allValue}, true, true
		}
		if v.all {
			return two, false, true
		}
	case empty:
		// A query that finds nothing leaves its variable empty; a list of fixed choices never is.
		if v.kind == "query" {
			return []string{""}, false, true
		}
	}
	return []string{one}, false, false
}

// reference matches $name, [[name:format]] and ${name.field:format}.
var reference = regexp.MustCompile(`\$(\w+)|\[\[(\w+)(?::(\w+))?\]\]|\$\{(\w+)(?:\.[^:^}]+)?(?::([^}]+))?\}`)

var digits = regexp.MustCompile(`^\d+$`)

// builtin are the names that Grafana fills in itself, with a value for an hour seen at one minute steps.
var builtin = map[string]string{
	"__interval":      "1m",
	"__interval_ms":   "60000",
	"__rate_interval": "5m",
	"__range":         "1h",
	"__range_s":       "3600",
	"__range_ms":      "3600000",
	"__from":          "1700000000000",
	"__to":            "1700003600000",
	"__dashboard":     "board",
	"__name":          "name",
	"__org":           "1",
	"__user":          "user",
	"__timezone":      "UTC",
}

// expanded is a query with its variables filled in.
type expanded struct {
	text    string
	pieces  []piece
	used    []string // variables of the board, in order of first use
	unknown []unknownVariable
}

type piece struct{ at, from int } // offset in the text, offset in the source

type unknownVariable struct {
	name string
	from int // offset in the source
}

// source leads an offset in the expanded text back to the source: inside a value to where the
// variable stands.
func (e expanded) source(offset int) int {
	for i := len(e.pieces) - 1; i >= 0; i-- {
		p := e.pieces[i]
		if p.at > offset {
			continue
		}
		if i%2 == 1 { // odd pieces are values
			return p.from
		}
		return p.from + offset - p.at
	}
	return 0
}

// expand fills in the variables of a query. choose returns the values of one variable and whether they
// go in as they are.
func expand(query string, vars map[string]variable, choose func(variable) ([]string, bool)) expanded {
	var out strings.Builder
	e := expanded{pieces: []piece{{0, 0}}}
	seen := map[string]bool{}
	last := 0
	for _, m := range reference.FindAllStringSubmatchIndex(query, -1) {
		name, format := "", ""
		for _, g := range []int{1, 2, 4} {
			if m[2*g] >= 0 {
				name = query[m[2*g]:m[2*g+1]]
			}
		}
		for _, g := range []int{3, 5} {
			if m[2*g] >= 0 {
				format = query[m[2*g]:m[2*g+1]]
			}
		}
		value, ok := "", true
		switch v, known := vars[name]; {
		case known:
			if !seen[name] {
				seen[name] = true
				e.used = append(e.used, name)
			}
			values, raw := choose(v)
			value = render(v, values, raw, format)
		case builtin[name] != "":
			value = builtin[name]
		case strings.HasPrefix(name, "__auto_interval"):
			value = "1m"
		case strings.HasPrefix(name, "__"):
			value = "x"
		case digits.MatchString(name): // $1 of label_replace is no variable
			ok = false
		default:
			ok = false
			e.unknown = append(e.unknown, unknownVariable{name, m[0]})
		}
		if !ok { // Grafana leaves it in the text as it is
			continue
		}
		out.WriteString(query[last:m[0]])
		e.pieces = append(e.pieces, piece{out.Len(), m[0]})
		out.WriteString(value)
		e.pieces = append(e.pieces, piece{out.Len(), m[1]})
		last = m[1]
	}
	out.WriteString(query[last:])
	e.text = out.String()
	return e
}

// render writes the values of a variable as Grafana's Prometheus datasource does.
func render(v variable, values []string, raw bool, format string) string {
	join := func(sep, before, after string, quote func(string) string) string {
		parts := make([]string, len(values))
		for i, s := range values {
			parts[i] = quote(s)
		}
		if len(parts) == 1 {
			return parts[0]
		}
		return before + strings.Join(parts, sep) + after
	}
	asIs := func(s string) string { return s }
	switch format {
	case "raw", "csv", "text", "queryparam", "percentencode":
		return join(",", "", "", asIs)
	case "pipe":
		return join("|", "", "", asIs)
	case "glob":
		return join(",", "{", "}", asIs)
	case "doublequote", "json":
		return join(",", "", "", func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` })
	case "singlequote", "sqlstring":
		return join(",", "", "", func(s string) string { return "'" + strings.ReplaceAll(s, "'", `\'`) + "'" })
	case "regex":
		return join("|", "(", ")", regexp.QuoteMeta)
	}
	if raw {
		return join("|", "(", ")", asIs)
	}
	if !v.multi && !v.all {
		return join(",", "", "", func(s string) string {
			return strings.NewReplacer(`\`, `\\`, `'`, `\\'`).Replace(s)
		})
	}
	return join("|", "(", ")", func(s string) string {
		// The value stands inside a PromQL string, so a backslash of the regular expression is doubled.
		return strings.ReplaceAll(regexp.QuoteMeta(s), `\`, `\\`)
	})
}
