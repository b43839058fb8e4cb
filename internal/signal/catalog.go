package signal

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
)

// Catalog is an immutable set of metrics and signals, safe for concurrent use.
type Catalog struct {
	metrics []Metric
	byName  map[string]int
	signals []Signal
	byID    map[string]int
}

// Default builds the catalog of everything Rollscope knows. The metrics come from the tables embedded
// in the binary, which a test parses strictly, so there is nothing to fail at run time.
func Default() *Catalog {
	metrics, _ := loadTables()
	c, _ := newCatalog(metrics, builtinSignals())
	return c
}

// newCatalog indexes metrics and signals; the error names every duplicate and every signal that
// cannot be compiled.
func newCatalog(metrics []Metric, signals []Signal) (*Catalog, error) {
	c := &Catalog{byName: make(map[string]int, len(metrics)), byID: make(map[string]int, len(signals))}
	var errs []string
	for _, m := range metrics {
		if _, dup := c.byName[m.Name]; dup {
			errs = append(errs, fmt.Sprintf("metric %q stands twice in the catalog", m.Name))
			continue
		}
		c.byName[m.Name] = len(c.metrics)
		c.metrics = append(c.metrics, m)
	}
	for _, s := range signals {
		if _, dup := c.byID[s.ID]; dup {
			errs = append(errs, fmt.Sprintf("signal %q stands twice in the catalog", s.ID))
			continue
		}
		if err := checkSignal(s); err != nil {
			errs = append(errs, err.Error())
			continue
		}
		c.byID[s.ID] = len(c.signals)
		c.signals = append(c.signals, s)
	}
	if len(errs) > 0 {
		return c, fmt.Errorf("signal catalog: %s", strings.Join(errs, "; "))
	}
	return c, nil
}

// Metrics returns every metric, grouped as in the documentation. The slice is the caller's.
func (c *Catalog) Metrics() []Metric { return slices.Clone(c.metrics) }

// Signals returns every signal, the golden five first. The slice is the caller's.
func (c *Catalog) Signals() []Signal { return slices.Clone(c.signals) }

// Signal looks a signal up by its id.
func (c *Catalog) Signal(id string) (Signal, bool) {
	i, ok := c.byID[id]
	if !ok {
		return Signal{}, false
	}
	return c.signals[i], true
}

// Metric looks a metric up by any spelling of its name or of one of its series' names: sglang:x,
// sglang_x, ray_sglang_x, with or without _bucket, _sum, _count, or a counter without its _total.
func (c *Catalog) Metric(name string) (Metric, bool) {
	canonical := Canonical(name)
	if i, ok := c.byName[canonical]; ok && !c.metrics[i].Invented {
		return c.metrics[i], true
	}
	for _, n := range slices.Concat([]string{name}, lookupNames(canonical), lookupNames(name)) {
		if i, ok := c.byName[n]; ok {
			return c.metrics[i], true
		}
	}
	return Metric{}, false
}

// lookupNames are the family names that a canonical name may stand for, the most literal first.
func lookupNames(name string) []string {
	names := []string{name}
	family, suffix := splitSuffix(name)
	if suffix != "" {
		names = append(names, family)
	}
	if t, ok := strings.CutSuffix(name, "_total"); ok {
		names = append(names, t)
	} else {
		names = append(names, name+"_total")
	}
	return names
}

// With returns a catalog that also holds the user's signals, marked Custom; one with the id of a
// built-in signal replaces it. The error names the signal and what is wrong with it.
func (c *Catalog) With(extra []Signal) (*Catalog, error) {
	signals := slices.Clone(c.signals)
	seen := map[string]bool{}
	promql := parser.NewParser(parser.Options{})
	for _, s := range extra {
		s.Custom = true
		if err := checkSignal(s); err != nil {
			return nil, err
		}
		expr, err := Compile(s, Query{})
		if err == nil {
			_, err = promql.ParseExpr(expr)
		}
		if err != nil {
			return nil, fmt.Errorf("signal %q: a metric's name or its match is not PromQL: %w (in %s)", s.ID, err, expr)
		}
		if seen[s.ID] {
			return nil, fmt.Errorf("signal %q is defined twice in the configuration: give one of them another id", s.ID)
		}
		seen[s.ID] = true
		if i, ok := c.byID[s.ID]; ok {
			signals[i] = s
			continue
		}
		signals = append(signals, s)
	}
	return newCatalog(c.metrics, signals)
}

var signalID = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// checkSignal says why a signal cannot be compiled.
func checkSignal(s Signal) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("signal %q: %s", s.ID, fmt.Sprintf(format, args...))
	}
	if !signalID.MatchString(s.ID) {
		return bad("the id must be lower-case letters, digits and underscores, as in queue_depth")
	}
	for _, end := range []string{"_bucket", "_count", "_sum", "_num", "_den"} {
		if strings.HasSuffix(s.ID, end) {
			return bad("an id must not end in %s, which the names of recorded series use", end)
		}
	}
	if !slices.Contains([]Kind{Quantile, Rate, Level, Share, Worst}, s.Kind) {
		return bad("unknown kind %q: use quantile, rate, level, share or worst", s.Kind)
	}
	if len(s.Sources) == 0 {
		return bad("it has no sources: name at least one metric")
	}
	scale := s.Scale()
	for i, src := range s.Sources {
		if len(src.Num) == 0 {
			return bad("source %d names no metric", i)
		}
		if len(src.Den) > 0 && s.Kind != Share && s.Kind != Worst {
			return bad("source %d has a denominator, which only a share and a worst can have", i)
		}
		if s.Kind == Quantile && orOne(src.Scale) != scale {
			return bad("source %d has scale %g and the first one %g: buckets of two units cannot be added", i, orOne(src.Scale), scale)
		}
		for _, t := range slices.Concat(src.Num, src.Den, src.ZeroIf) {
			if t.Metric == "" {
				return bad("source %d has a term without a metric", i)
			}
		}
	}
	return nil
}

func orOne(f float64) float64 {
	if f == 0 {
		return 1
	}
	return f
}

// closest returns up to n candidates within a small edit distance of name, nearest first.
func closest(name string, candidates []string, n int) []string {
	type scored struct {
		name string
		dist int
	}
	limit := max(2, len(name)/4)
	var found []scored
	for _, c := range candidates {
		if abs(len(c)-len(name)) > limit {
			continue
		}
		if d := editDistance(name, c); d <= limit {
			found = append(found, scored{c, d})
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].dist < found[j].dist })
	var out []string
	for i := 0; i < len(found) && i < n; i++ {
		out = append(out, found[i].name)
	}
	return out
}

func abs(x int) int {
	if x < 0 {
		return -x
	}
	return x
}

// editDistance is Levenshtein's over bytes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next := min(row[j]+1, row[j-1]+1, diag+cost)
			diag, row[j] = row[j], next
		}
	}
	return row[len(b)]
}
