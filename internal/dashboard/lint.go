package dashboard

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rollscope/rollscope/internal/signal"
)

// Severity says how sure and how bad a finding is.
type Severity string

// Severities, worst first.
const (
	Error   Severity = "error"   // it shows nothing, never fires, or is wrong by construction
	Warning Severity = "warning" // it will mislead on some data
	Info    Severity = "info"    // worth knowing
)

func (s Severity) rank() int {
	switch s {
	case Error:
		return 2
	case Warning:
		return 1
	}
	return 0
}

// Finding is one thing the lint has to say about one expression, rule, panel or file.
type Finding struct {
	Code     string   `json:"code"` // stable; [Codes] explains each
	Severity Severity `json:"severity"`
	File     string   `json:"file"`
	Line     int      `json:"line,omitempty"`   // in the file, from 1; 0 when there is no file position
	Column   int      `json:"column,omitempty"` // in characters, from 1
	Where    string   `json:"where,omitempty"`  // `panel "Queue", query A`, `alert SGLangDown`
	Expr     string   `json:"expr,omitempty"`   // the expression as written
	At       int      `json:"at,omitempty"`     // position in Expr in characters, from 1; 0 when it is about all of it
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"` // what to do
	Use      string   `json:"use,omitempty"`  // the name to use instead

	// optional marks a blind query of a metric that programs of today emit when a feature is on: beside
	// queries that do show something it is no error.
	optional bool
}

// Report is what a lint found, and how much it looked at.
type Report struct {
	Findings []Finding `json:"findings"` // by file and position
	Items    int       `json:"items"`    // rules, panels and loose expressions read
	Exprs    int       `json:"expressions"`
	Bad      int       `json:"bad"`     // items with at least one error
	Blind    int       `json:"blind"`   // items that can show or fire nothing on the data they were held against
	Against  string    `json:"against"` // what the names were held against; "" for the catalog alone
}

// Merge adds what another report found.
func (r *Report) Merge(o Report) {
	r.Findings = append(slices.Clip(r.Findings), o.Findings...)
	if r.Findings == nil {
		r.Findings = []Finding{} // an empty list in JSON, not null
	}
	r.Items += o.Items
	r.Exprs += o.Exprs
	r.Bad += o.Bad
	r.Blind += o.Blind
	if r.Against == "" {
		r.Against = o.Against
	}
}

// Worst is the severity of the worst finding, "" when there is none.
func (r Report) Worst() Severity {
	var worst Severity
	for _, f := range r.Findings {
		if worst == "" || f.Severity.rank() > worst.rank() {
			worst = f.Severity
		}
	}
	return worst
}

// Count is the number of findings of a severity.
func (r Report) Count(s Severity) int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

// WriteText writes the report for people: one finding a paragraph, in the form editors jump to.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, f := range r.Findings {
		b.WriteString(f.File)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
		}
		fmt.Fprintf(&b, ": %s [%s]", f.Severity, f.Code)
		if f.Where != "" {
			fmt.Fprintf(&b, " %s", f.Where)
		}
		fmt.Fprintf(&b, ": %s\n", f.Message)
		if f.Expr != "" && f.At > 0 {
			line, col := exprLine(f.Expr, f.At)
			fmt.Fprintf(&b, "    %s\n    %s^\n", line, strings.Repeat(" ", col))
		}
		if f.Hint != "" {
			fmt.Fprintf(&b, "    %s\n", f.Hint)
		}
	}
	against := "the catalog alone (no --against)"
	if r.Against != "" {
		against = r.Against
	}
	fmt.Fprintf(&b, "%s, %s read against %s: %s, %s, %s; %d bad, %d blind\n",
		count(r.Items, "rule or panel", "rules and panels"), count(r.Exprs, "expression", "expressions"), against,
		count(r.Count(Error), "error", "errors"), count(r.Count(Warning), "warning", "warnings"),
		count(r.Count(Info), "note", "notes"), r.Bad, r.Blind)
	_, err := io.WriteString(w, b.String())
	return err
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// exprLine is the line of expr that holds the character at (from 1), cut to a screen's width around
// it, and the column of that character in it, from 0.
func exprLine(expr string, at int) (string, int) {
	line, col := []rune{}, 0
	for i, r := range []rune(expr) {
		if i+1 == at {
			col = len(line)
		}
		if r == '\n' {
			if i+1 >= at {
				break
			}
			line = line[:0]
			continue
		}
		line = append(line, r)
	}
	const width = 100
	if len(line) > width {
		from := min(max(col-width/2, 0), len(line)-width)
		line, col = line[from:from+width], col-from
	}
	return string(line), col
}

// Linter judges rules, boards and expressions. It is safe for concurrent use.
type Linter struct {
	cat      *signal.Catalog
	names    Names // nil: nothing to hold names against
	recorded map[string]bool
	parser   parser.Parser
}

// NewLinter returns a linter that knows the metrics of a catalog and holds names against a place; names
// may be nil, then only what the catalog knows to be wrong is found.
func NewLinter(cat *signal.Catalog, names Names) *Linter {
	l := &Linter{
		cat:      cat,
		names:    names,
		recorded: map[string]bool{},
		// What a foreign Prometheus may have switched on is no error.
		parser: parser.NewParser(parser.Options{EnableExperimentalFunctions: true, EnableBinopFillModifiers: true}),
	}
	for _, name := range ruleNames(signal.RecordingRules(cat)) {
		l.recorded[name] = true
	}
	return l
}

// Recording returns a linter that also takes the series recorded by these rule files for given,
// so that the files of one server can be judged together. Files that cannot be read add nothing.
func (l *Linter) Recording(files ...[]byte) *Linter {
	more := *l
	more.recorded = map[string]bool{}
	for name := range l.recorded {
		more.recorded[name] = true
	}
	for _, data := range files {
		for _, name := range ruleNames(data) {
			more.recorded[name] = true
		}
	}
	return &more
}

// Against returns a linter that holds names against another place; nil is the catalog alone.
func (l *Linter) Against(names Names) *Linter {
	other := *l
	other.names = names
	return &other
}

// Expr judges one loose expression. where names it in the findings.
func (l *Linter) Expr(file, where, expr string) Report {
	var it item
	it.file, it.where = file, where
	l.expr(&it, source{text: expr})
	r := l.report()
	r.add(it)
	return r.done()
}

// source is an expression as written and the way from it to the file.
type source struct {
	text string
	// pos gives line and column in the file of a byte offset in text; nil when there is no file.
	pos func(offset int) (line, col int)
	// unit is the unit of the panel in Grafana's words; "" when there is none.
	unit string
	// rule tells that an alert or a recorded series depends on the number, not only a person's eye.
	rule bool
	// vars are the variables that text may use.
	vars map[string]variable
}

// item is one rule or panel while it is judged.
type item struct {
	file, where string
	exprs       int
	names       []string // canonical metric names in its expressions
	blind       int      // expressions that can only be empty
	findings    []Finding
}

func (l *Linter) report() Report {
	r := Report{Findings: []Finding{}}
	if l.names != nil {
		r.Against = l.names.Where()
	}
	return r
}

func (r *Report) add(it item) {
	r.Items++
	r.Exprs += it.exprs
	blind := it.exprs > 0 && it.blind == it.exprs
	if blind {
		r.Blind++
	}
	bad := false
	seen := map[string]bool{}
	for _, f := range it.findings {
		key := fmt.Sprint(f.Code, f.Where, f.Message) // a name that stands in a query ten times is said once
		if seen[key] {
			continue
		}
		seen[key] = true
		if f.Code == "renamed" && slices.Contains(it.names, f.Use) {
			f.Severity = Info // the newer name stands beside it
		}
		if f.optional && !blind {
			f.Severity = Warning
		}
		bad = bad || f.Severity == Error
		r.Findings = append(r.Findings, f)
	}
	if bad {
		r.Bad++
	}
}

func (r Report) done() Report {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r
}

// found notes a finding at a byte offset of the expression; an offset below 0 means all of it.
func (it *item) found(src source, offset int, f Finding) {
	f.File, f.Where, f.Expr = it.file, it.where, src.text
	at := max(offset, 0)
	at = min(at, len(src.text))
	if offset >= 0 {
		f.At = 1 + len([]rune(src.text[:at]))
	}
	if src.pos != nil {
		f.Line, f.Column = src.pos(at)
	}
	it.findings = append(it.findings, f)
}
