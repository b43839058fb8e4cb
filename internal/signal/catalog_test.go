package signal

import (
	"fmt"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

func TestTablesParse(t *testing.T) {
	ms, err := loadTables()
	if err != nil {
		t.Fatal(err)
	}
	c, err := newCatalog(ms, builtinSignals())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d metrics, %d signals", len(c.metrics), len(c.signals))
	for _, m := range c.metrics {
		if m.Use == "" {
			continue
		}
		_, isMetric := c.byName[m.Use]
		_, isSignal := c.byID[m.Use]
		if !isMetric && !isSignal {
			t.Errorf("%s: use %q is neither a metric nor a signal", m.Name, m.Use)
		}
		if m.Same && !isMetric {
			t.Errorf("%s: the same measurement as %q, which is no metric", m.Name, m.Use)
		}
	}
}

func TestEverySignalParses(t *testing.T) {
	p := parser.NewParser(parser.Options{})
	c := Default()
	for _, s := range c.Signals() {
		for _, by := range []By{ByFleet, ByEngine, ByRole, ByModel} {
			for _, form := range []Form{Raw, Recorded} {
				for _, match := range []string{"", `instance="a:1"`, `job=~"x|y",model_name!~"m.*",instance!~"b:.*"`} {
					for _, common := range []bool{false, true} {
						if common && s.Kind != Quantile {
							continue
						}
						q := Query{By: by, Form: form, Match: match, CommonBounds: common}
						name := fmt.Sprintf("%s by %s %s {%s} %v", s.ID, by, form, match, common)
						exprs := map[string]string{}
						var err error
						if exprs["value"], err = Compile(s, q); err != nil {
							t.Errorf("%s: %v", name, err)
						}
						if exprs["count"], err = CompileCount(s, q); err != nil {
							t.Errorf("%s: %v", name, err)
						}
						if s.Kind == Quantile {
							if exprs["buckets"], err = CompileBuckets(s, q); err != nil {
								t.Errorf("%s: %v", name, err)
							}
						}
						for what, e := range exprs {
							if what == "count" && e == "" && (s.Kind == Level || s.Kind == Worst) {
								continue
							}
							if _, err := p.ParseExpr(e); err != nil {
								t.Errorf("%s: %s: %v\n%s", name, what, err, e)
							}
						}
					}
				}
			}
		}
	}
}
