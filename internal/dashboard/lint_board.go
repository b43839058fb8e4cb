package dashboard

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Board judges a Grafana dashboard: the JSON of a file, of the API ({"dashboard": …}) or of the newer
// schema with elements. Panels are found however deep they are nested: in rows, collapsed rows, tabs,
// repeats. A file that cannot be read gives one finding with the place.
func (l *Linter) Board(file string, data []byte) Report {
	r := l.report()
	root, offset, err := parseJSON(data)
	if err != nil {
		line, col := lineCol(data, offset)
		r.add(unreadable(file, line, col, "this is no JSON: "+err.Error()))
		return r.done()
	}
	if inner := root.at("dashboard"); inner != nil {
		root = inner
	}
	if spec := root.at("spec"); spec != nil && root.at("apiVersion") != nil {
		root = spec
	}
	if root.at("panels") == nil && root.at("rows") == nil && root.at("elements") == nil {
		r.add(unreadable(file, 1, 1, "this is no dashboard: it has no panels, rows or elements"))
		return r.done()
	}
	b := boardLint{l: l, file: file, data: data, vars: map[string]variable{}, report: &r}
	b.variables(root)
	b.panels(root, panelScope{})
	b.variableQueries(root)
	b.annotations(root)
	return r.done()
}

type boardLint struct {
	l      *Linter
	file   string
	data   []byte
	vars   map[string]variable
	report *Report
}

// panelScope is what a panel hands down to its queries.
type panelScope struct {
	title, unit, kind string // kind of the datasource
	item              *item
}

// variables reads the templating list, of both schemas.
func (b *boardLint) variables(root *node) {
	for _, n := range root.at("templating", "list").list() {
		b.variable(n, n.at("type").str())
	}
	for _, n := range root.at("variables").list() {
		kind := strings.ToLower(strings.TrimSuffix(n.at("kind").str(), "Variable"))
		b.variable(n.at("spec"), kind)
	}
}

func (b *boardLint) variable(n *node, kind string) {
	v := variable{
		name: n.at("name").str(), kind: strings.ToLower(kind), multi: n.at("multi").isTrue(),
		all: n.at("includeAll").isTrue(), allValue: n.at("allValue").str(),
	}
	if v.name == "" {
		return
	}
	value := n.at("current", "value")
	saved := []string{}
	if value != nil && value.kind == 's' {
		saved = append(saved, value.text)
	}
	for _, one := range value.list() {
		saved = append(saved, one.str())
	}
	if (v.kind == "textbox" || v.kind == "constant") && len(saved) == 0 {
		saved = append(saved, n.at("query").str())
	}
	for _, s := range saved {
		if s == "$__all" {
			v.savedAll = true
			continue
		}
		v.saved = append(v.saved, s)
	}
	for _, o := range n.at("options").list() {
		if s := o.at("value").str(); s != "" && s != "$__all" {
			v.options = append(v.options, s)
		}
	}
	if v.kind == "custom" && len(v.options) == 0 {
		for _, s := range strings.Split(n.at("query").str(), ",") {
			if s = strings.TrimSpace(s); s != "" {
				if i := strings.LastIndex(s, " : "); i >= 0 { // "label : value"
					s = s[i+3:]
				}
				v.options = append(v.options, s)
			}
		}
	}
	b.vars[v.name] = v
}

// panels walks everything that can hold a query. A new item starts at each object that has queries of its own.
func (b *boardLint) panels(n *node, c panelScope) {
	if n == nil {
		return
	}
	if n.kind == 'a' {
		for _, item := range n.items {
			b.panels(item, c)
		}
		return
	}
	if n.kind != 'o' {
		return
	}
	if title := n.at("title"); title != nil && title.kind == 's' {
		c.title = title.text
	}
	if unit := n.at("fieldConfig", "defaults", "unit").str(); unit != "" {
		c.unit = unit
	}
	if n.at("kind").str() == "Panel" { // the newer schema keeps title and unit one level down
		c.title = n.at("spec", "title").str()
		c.unit = n.at("spec", "vizConfig", "spec", "fieldConfig", "defaults", "unit").str()
	}
	if kind := n.at("datasource", "type").str(); kind != "" {
		c.kind = kind
	}
	starts := c.item == nil && (n.at("targets") != nil || n.at("kind").str() == "Panel" || n.at("expr") != nil)
	if starts {
		c.item = &item{file: b.file, where: fmt.Sprintf("panel %q", c.title)}
	}
	if c.item != nil {
		b.datasource(n, c)
		b.query(n, c)
	}
	for _, k := range n.keys {
		if k == "templating" || k == "variables" || k == "annotations" || k == "libraryPanel" {
			continue
		}
		down := c
		if k == "panels" || k == "rows" || k == "elements" {
			down.item = nil
		}
		b.panels(n.fields[k], down)
	}
	if starts && (c.item.exprs > 0 || len(c.item.findings) > 0) {
		b.report.add(*c.item)
	}
}

// query judges the expression of one target.
func (b *boardLint) query(n *node, c panelScope) {
	expr := n.at("expr")
	if expr == nil || expr.kind != 's' {
		return
	}
	if c.kind != "" && !strings.Contains(c.kind, "prometheus") && !strings.HasPrefix(c.kind, "$") {
		return // LogsQL, LogQL, TraceQL, server-side expressions
	}
	where := c.item.where
	if ref := n.at("refId").str(); ref != "" {
		where += ", query " + ref
	}
	title := c.item.where
	c.item.where = where
	if expr.text != "" || !n.at("hide").isTrue() {
		b.l.expr(c.item, b.source(expr, c.unit))
	}
	c.item.where = title
}

func (b *boardLint) source(expr *node, unit string) source {
	return source{
		text: expr.text, unit: unit, vars: b.vars,
		pos: func(offset int) (int, int) { return lineCol(b.data, expr.offsetIn(b.data, offset)) },
	}
}

// builtInSources are datasources that every Grafana has.
var builtInSources = []string{"-- Grafana --", "-- Mixed --", "-- Dashboard --", "grafana", "__expr__", ""}

// datasource finds a datasource that only the author's Grafana has.
func (b *boardLint) datasource(n *node, c panelScope) {
	ds := n.at("datasource")
	if ds == nil {
		return
	}
	uid, at := ds.str(), ds
	if ds.kind == 'o' {
		at = ds.at("uid")
		uid = at.str()
		if at == nil {
			return
		}
	}
	if slices.Contains(builtInSources, uid) || strings.HasPrefix(uid, "$") || strings.HasPrefix(uid, "[[") {
		return
	}
	for _, f := range c.item.findings {
		if f.Code == "hard_coded_datasource" {
			return // once a panel
		}
	}
	line, col := lineCol(b.data, at.start)
	c.item.findings = append(c.item.findings, Finding{
		Code: "hard_coded_datasource", Severity: Warning, File: b.file, Line: line, Column: col, Where: c.item.where,
		Message: fmt.Sprintf("the datasource is fixed to %q, which only the author's Grafana has", uid),
		Hint:    `add a datasource variable and write "uid": "${datasource}"`,
	})
}

// variableQuery matches the functions of a query variable.
var (
	labelValues = regexp.MustCompile(`^\s*label_values\(\s*(.+?)\s*,\s*[\w$]+\s*\)\s*$`)
	queryResult = regexp.MustCompile(`^\s*query_result\(\s*(.+)\s*\)\s*$`)
)

// variableQueries judges the queries that fill variables.
func (b *boardLint) variableQueries(root *node) {
	vars := slices.Clone(root.at("templating", "list").list())
	for _, n := range root.at("variables").list() {
		vars = append(vars, n.at("spec"))
	}
	for _, n := range vars {
		query := n.at("query")
		if query != nil && query.kind == 'o' {
			query = query.at("query")
		}
		if query == nil || query.kind != 's' {
			continue
		}
		m := labelValues.FindStringSubmatchIndex(query.text)
		if m == nil {
			m = queryResult.FindStringSubmatchIndex(query.text)
		}
		if m == nil {
			continue
		}
		it := item{file: b.file, where: fmt.Sprintf("variable %q", n.at("name").str())}
		part := query.text[m[2]:m[3]]
		b.l.expr(&it, source{
			text: part, vars: b.vars,
			pos: func(offset int) (int, int) { return lineCol(b.data, query.offsetIn(b.data, m[2]+offset)) },
		})
		// A variable's query wants the series, not their values.
		it.findings = slices.DeleteFunc(it.findings, func(f Finding) bool {
			return f.Code != "parse_error" && f.Code != "blind" && f.Code != "unknown_variable"
		})
		b.report.add(it)
	}
}

// annotations judges the queries of annotations.
func (b *boardLint) annotations(root *node) {
	for _, n := range root.at("annotations", "list").list() {
		it := &item{file: b.file, where: fmt.Sprintf("annotation %q", n.at("name").str())}
		c := panelScope{item: it, kind: n.at("datasource", "type").str()}
		if n.at("expr") == nil {
			continue
		}
		b.datasource(n, c)
		b.query(n, c)
		b.report.add(*it)
	}
}
