package signal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rollscope/rollscope/internal/engine"
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
						if common && (s.Kind != Quantile || match != "") {
							continue
						}
						if match != "" && by != ByEngine && by != ByModel {
							continue // matchers are the same in every grouping
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

func TestUsersSignals(t *testing.T) {
	term := func(metric, match string) Vec { return Vec{{Metric: metric, Match: match}} }
	for _, c := range []struct {
		signal Signal
		says   string
	}{
		{Signal{ID: "tool_calls", Kind: Rate, Sources: []Source{{Backend: engine.Other, Num: term("my_tool_calls_total", "")}}}, ""},
		{Signal{ID: "queue_depth", Kind: Level, Sources: []Source{{Backend: engine.Other, Num: term("my_queue", "")}}}, ""},
		{Signal{ID: "My Signal", Kind: Rate, Sources: []Source{{Num: term("x", "")}}}, "lower-case"},
		{Signal{ID: "x_count", Kind: Rate, Sources: []Source{{Num: term("x", "")}}}, "must not end in _count"},
		{Signal{ID: "x", Kind: "median", Sources: []Source{{Num: term("x", "")}}}, "unknown kind"},
		{Signal{ID: "x", Kind: Rate}, "no sources"},
		{Signal{ID: "x", Kind: Rate, Sources: []Source{{Num: term("x", ""), Den: term("y", "")}}}, "denominator"},
		{Signal{ID: "x", Kind: Rate, Sources: []Source{{Num: term("a-b c", "")}}}, "not PromQL"},
		{Signal{ID: "x", Kind: Rate, Sources: []Source{{Num: term("x", "mode=decode")}}}, "not PromQL"},
		{Signal{ID: "x", Kind: Quantile, Sources: []Source{{Num: term("x", "")}, {Num: term("y_ms", ""), Scale: 0.001}}}, "two units"},
	} {
		got, err := Default().With([]Signal{c.signal})
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.signal.ID) {
				t.Errorf("%s: error %v, want %q", c.signal.ID, err, c.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.signal.ID, err)
			continue
		}
		s, ok := got.Signal(c.signal.ID)
		if !ok || !s.Custom || s.Sources[0].Num[0].Metric != c.signal.Sources[0].Num[0].Metric {
			t.Errorf("%s: %+v", c.signal.ID, s)
		}
		parseRules(t, RecordingRules(got))
	}
	twice := Signal{ID: "x", Kind: Rate, Sources: []Source{{Num: term("x", "")}}}
	if _, err := Default().With([]Signal{twice, twice}); err == nil {
		t.Error("one id twice is no error")
	}
}
