package dashboard

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// ruleFile is the part of a Prometheus rule file that the lint reads, with the places of its scalars.
type ruleFile struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	} `yaml:"groups"`
}

type rule struct {
	Record      yaml.Node            `yaml:"record"`
	Alert       yaml.Node            `yaml:"alert"`
	Expr        yaml.Node            `yaml:"expr"`
	Labels      map[string]yaml.Node `yaml:"labels"`
	Annotations map[string]yaml.Node `yaml:"annotations"`
}

// ruleNames lists the series that a rule file records; nil when it cannot be read.
func ruleNames(data []byte) []string {
	var f ruleFile
	if yaml.Unmarshal(data, &f) != nil {
		return nil
	}
	var out []string
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			if r.Record.Value != "" {
				out = append(out, r.Record.Value)
			}
		}
	}
	return out
}

// Rules judges a Prometheus rule file. A file that cannot be read gives one finding with the place.
func (l *Linter) Rules(file string, data []byte) Report {
	r := l.report()
	var f ruleFile
	if err := yaml.Unmarshal(data, &f); err != nil {
		// YAML knows more kinds of line ends than editors do.
		line := min(yamlLine(err), 1+bytes.Count(data, []byte("\n")))
		r.add(unreadable(file, line, 1, "this is no YAML: "+strings.TrimPrefix(err.Error(), "yaml: ")))
		return r.done()
	}
	if f.Groups == nil {
		r.add(unreadable(file, 1, 1, "this is no rule file: there is no list \"groups\" at its top"))
		return r.done()
	}
	own := l.Recording(data)
	for _, g := range f.Groups {
		for i := range g.Rules {
			it := item{file: file}
			rule := &g.Rules[i]
			kind, name := "alert", rule.Alert.Value
			if rule.Record.Value != "" {
				kind, name = "record", rule.Record.Value
			}
			it.where = fmt.Sprintf("%s %s", kind, name)
			if name == "" {
				it.where = fmt.Sprintf("rule %d of group %s", i+1, g.Name)
			}
			own.rule(&it, rule, data)
			r.add(it)
		}
	}
	return r.done()
}

func (l *Linter) rule(it *item, r *rule, data []byte) {
	src := source{text: r.Expr.Value, rule: true, pos: yamlPos(data, &r.Expr)}
	if r.Expr.Line == 0 {
		src.pos = yamlPos(data, firstPlaced(&r.Alert, &r.Record))
	}
	l.expr(it, src)
	if r.Alert.Value == "" {
		return
	}
	tree, err := l.parser.ParseExpr(src.text)
	if err != nil {
		return
	}
	l.droppedLabels(it, src, tree, r, data)
}

func firstPlaced(nodes ...*yaml.Node) *yaml.Node {
	for _, n := range nodes {
		if n.Line > 0 {
			return n
		}
	}
	return &yaml.Node{Line: 1, Column: 1}
}

// labelUse matches {{ $labels.instance }} and {{ .Labels.instance }}.
var labelUse = regexp.MustCompile(`(?:\$labels|\.Labels)\.(\w+)`)

// droppedLabels finds texts of an alert that print a label which the expression aggregates away.
func (l *Linter) droppedLabels(it *item, src source, tree parser.Expr, r *rule, data []byte) {
	kept, all := survivors(tree)
	if all {
		return
	}
	texts := map[string]yaml.Node{}
	for k, v := range r.Labels {
		texts["label "+k] = v
	}
	for k, v := range r.Annotations {
		texts["annotation "+k] = v
	}
	for _, where := range sortedKeys(texts) {
		n := texts[where]
		for _, m := range labelUse.FindAllStringSubmatch(n.Value, -1) {
			if slices.Contains(kept, m[1]) {
				continue
			}
			line, col := yamlPos(data, &n)(0)
			it.findings = append(it.findings, Finding{
				Code: "label_dropped", Severity: Warning, File: it.file, Line: line, Column: col, Where: it.where, Expr: src.text,
				Message: fmt.Sprintf("%s prints label %q, which the expression aggregates away: it will be empty", where, m[1]),
				Hint:    fmt.Sprintf("keep it with by (%s)", m[1]),
			})
		}
	}
}

// survivors lists the labels that can be on the result; all is true when nothing is known to be dropped.
func survivors(e parser.Expr) (kept []string, all bool) {
	switch n := unwrap(e).(type) {
	case *parser.AggregateExpr:
		if n.Op == parser.TOPK || n.Op == parser.BOTTOMK || n.Op == parser.LIMITK || n.Op == parser.LIMIT_RATIO {
			return survivors(n.Expr)
		}
		if n.Without {
			return nil, true
		}
		return n.Grouping, false
	case *parser.BinaryExpr:
		left, right := len(selectors(n.LHS)) > 0, len(selectors(n.RHS)) > 0
		switch {
		case left && right && n.Op == parser.LOR:
			a, allA := survivors(n.LHS)
			b, allB := survivors(n.RHS)
			return append(slices.Clone(a), b...), allA || allB
		case left && right && n.VectorMatching != nil && n.VectorMatching.Card == parser.CardManyToOne,
			left && right && n.VectorMatching != nil && n.VectorMatching.Card == parser.CardOneToMany:
			return nil, true
		case left && right && n.VectorMatching != nil && n.VectorMatching.On && !n.Op.IsSetOperator():
			return n.VectorMatching.MatchingLabels, false
		case left:
			return survivors(n.LHS)
		case right:
			return survivors(n.RHS)
		}
	case *parser.Call:
		if n.Func.Name == "label_replace" || n.Func.Name == "label_join" || strings.HasPrefix(n.Func.Name, "absent") {
			return nil, true
		}
		for _, a := range n.Args {
			if len(selectors(a)) > 0 {
				return survivors(a)
			}
		}
	case *parser.UnaryExpr:
		return survivors(n.Expr)
	case *parser.SubqueryExpr:
		return survivors(n.Expr)
	}
	return nil, true
}

func unreadable(file string, line, col int, message string) item {
	return item{file: file, findings: []Finding{{
		Code: "unreadable", Severity: Error, File: file, Line: line, Column: col, Message: message,
	}}}
}

// yamlLine takes the line out of an error of the YAML library, 1 when it has none.
func yamlLine(err error) int {
	text := err.Error()
	if t := (*yaml.TypeError)(nil); errors.As(err, &t) && len(t.Errors) > 0 {
		text = t.Errors[0]
	}
	if m := regexp.MustCompile(`line (\d+)`).FindStringSubmatch(text); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return n
		}
	}
	return 1
}

// yamlPos gives the way from a byte offset in the value of a scalar to its place in the file. It walks
// the value and the source side by side: what differs between them is white space (folding,
// indentation) and quoting.
func yamlPos(data []byte, n *yaml.Node) func(int) (int, int) {
	line, col := n.Line, n.Column
	start := lineOffset(data, line) + max(col-1, 0)
	p := min(start, len(data))
	switch n.Style &^ yaml.TaggedStyle {
	case yaml.LiteralStyle, yaml.FoldedStyle: // the text starts on the line after | or >
		if i := bytes.IndexByte(data[p:], '\n'); i >= 0 {
			p += i + 1
		}
	case yaml.DoubleQuotedStyle, yaml.SingleQuotedStyle:
		p++
	}
	places := make([]int, 0, len(n.Value)+1)
	for i := 0; i < len(n.Value); i++ {
		c := n.Value[i]
		if c == ' ' || c == '\n' || c == '\t' {
			places = append(places, p)
			if p < len(data) && isSpace(data[p]) {
				p++
			}
			continue
		}
		for p < len(data) && data[p] != c && (isSpace(data[p]) || data[p] == '\\' || data[p] == '\'') {
			p++
		}
		if p >= len(data) || data[p] != c {
			break // an escape that is not followed here; what comes after it is at its place
		}
		places = append(places, p)
		p++
	}
	return func(offset int) (int, int) {
		if line == 0 {
			return 0, 0
		}
		if len(places) == 0 {
			return lineCol(data, start)
		}
		return lineCol(data, places[min(max(offset, 0), len(places)-1)])
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// lineOffset is the byte offset at which a line (from 1) starts.
func lineOffset(data []byte, line int) int {
	p := 0
	for i := 1; i < line; i++ {
		n := bytes.IndexByte(data[p:], '\n')
		if n < 0 {
			return len(data)
		}
		p += n + 1
	}
	return p
}
