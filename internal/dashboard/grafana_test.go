package dashboard

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

var update = flag.Bool("update", false, "write the golden files")

var flavours = map[string]GrafanaOptions{
	"for a foreign Prometheus": {},
	"for Rollscope":            {OneSpelling: true},
	"recorded":                 {Recorded: true, OneSpelling: true},
}

// The boards we ship stand our own lint: no query breaks with any value of any variable, no datasource is
// fixed, no unit is wrong, and every name is one that the catalog or the recording rules know.
func TestGrafanaBoardsStandTheLint(t *testing.T) {
	cat := signal.Default()
	l := NewLinter(cat, nil)
	for flavour, o := range flavours {
		for _, b := range Boards(cat) {
			data, err := Grafana(cat, b, o)
			if err != nil {
				t.Fatalf("%s: %v", flavour, err)
			}
			r := l.Board(b.ID, data)
			if r.Items == 0 || r.Exprs == 0 {
				t.Errorf("%s, %s: nothing was read", flavour, b.ID)
			}
			for _, f := range r.Findings {
				if f.Severity != Info {
					t.Errorf("%s, %s: %s %s: %s\n%s", flavour, f.File, f.Where, f.Code, f.Message, f.Expr)
				}
			}
		}
	}
}

// exprs lists the queries of a Grafana board by panel title, as Grafana would send them.
func exprs(t *testing.T, data []byte, s state) map[string][]string {
	t.Helper()
	root, _, err := parseJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	b := boardLint{vars: map[string]variable{}}
	b.variables(root)
	out := map[string][]string{}
	for _, p := range root.at("panels").list() {
		for _, target := range p.at("targets").list() {
			e := expand(target.at("expr").str(), b.vars, func(v variable) ([]string, bool) {
				values, raw, _ := v.values(s)
				return values, raw
			})
			if len(e.unknown) > 0 {
				t.Errorf("unknown variables %v in %s", e.unknown, target.at("expr").str())
			}
			out[p.at("title").str()] = append(out[p.at("title").str()], e.text)
		}
	}
	return out
}

// Every variable empty, single, several and All gives PromQL that parses; with All every panel shows what it
// shows in our own pages, by name or through a router, in either spelling.
func TestGrafanaVariables(t *testing.T) {
	cat := signal.Default()
	boards := Boards(cat)
	p := parser.NewParser(parser.Options{})
	f := fleetOf(t, backends[engine.SGLang]...)
	for flavour, o := range flavours {
		for _, b := range boards {
			data, err := Grafana(cat, b, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []state{empty, single, multi, all, asSaved} {
				for title, queries := range exprs(t, data, s) {
					for _, q := range queries {
						if _, err := p.ParseExpr(q); err != nil {
							t.Errorf("%s, board %s, panel %q, variables %s: %v\n%s", flavour, b.ID, title, s, err, q)
						}
					}
				}
			}
			if o.Recorded {
				continue
			}
			shown := exprs(t, data, asSaved)
			for _, section := range b.Sections {
				for _, panel := range section.Panels {
					if !slices.Contains(panel.Claims, engine.SGLang) {
						continue
					}
					some := false
					for _, q := range shown[panel.Title] {
						some = some || len(f.ask(t, q)) > 0
					}
					if !some {
						t.Errorf("%s, board %s, panel %q shows nothing:\n%s", flavour, b.ID, panel.Title, strings.Join(shown[panel.Title], "\n"))
					}
				}
			}
		}
	}
}

// A foreign Prometheus that scraped a router holds sglang_x only; M01.2 asks for the same panels.
func TestGrafanaBoardsReadEitherSpelling(t *testing.T) {
	cat := signal.Default()
	golden, _ := Find(Boards(cat), "golden")
	data, err := Grafana(cat, golden, GrafanaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := expositions(t)["engine-metrics"]
	// The samples under the names they were written by, as a foreign Prometheus keeps them.
	for i, s := range e.Samples {
		b := s.Labels.Map()
		b["__name__"] = strings.Replace(b["__name__"], ":", "_", 1)
		e.Samples[i].Labels = labelsOf(b)
	}
	f := record(t, scraped{"slime-sglang", "10.0.0.1:3000", e})
	shown := exprs(t, data, asSaved)
	for title, want := range map[string]int{
		"Time to first token": 1, "Generation throughput": 1, "Queue depth": 1, "Running requests": 1, "Prefix cache hit rate": 1,
	} {
		for _, q := range shown[title] {
			if v := f.ask(t, q); len(v) < want {
				t.Errorf("%s: %d series, want %d\n%s", title, len(v), want, q)
			}
		}
	}
	if v := f.ask(t, shown["Running requests"][0]); len(v) > 0 && v[0].F != 36 {
		t.Errorf("running is %v, want 36: two engines of two ranks with 9 each", v[0].F)
	}
}

func TestExport(t *testing.T) {
	cat := signal.Default()
	o := ExportOptions{Catalog: cat, Boards: Boards(cat), URL: "http://rollscope:9090"}
	one, two := t.TempDir(), t.TempDir()
	files, err := Export(one, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Export(two, o); err != nil {
		t.Fatal(err)
	}
	uids := map[string]bool{}
	for _, name := range files {
		a, err := os.ReadFile(filepath.Join(one, name))
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := os.ReadFile(filepath.Join(two, name)); !bytes.Equal(a, b) {
			t.Errorf("%s differs between two runs", name)
		}
		switch filepath.Ext(name) {
		case ".json":
			var d struct {
				UID           string `json:"uid"`
				SchemaVersion int    `json:"schemaVersion"`
				Panels        []struct {
					ID      int                                 `json:"id"`
					GridPos struct{ H, W, X, Y int }            `json:"gridPos"`
					Targets []struct{ Expr, RefID, Legend any } `json:"targets"`
				} `json:"panels"`
			}
			if err := json.Unmarshal(a, &d); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if uids[d.UID] || len(d.UID) > 40 || d.SchemaVersion < 39 {
				t.Errorf("%s: uid %q taken or too long, schema %d", name, d.UID, d.SchemaVersion)
			}
			uids[d.UID] = true
			ids, cells := map[int]bool{}, map[string]bool{}
			for _, p := range d.Panels {
				cell := fmt.Sprint(p.GridPos.X, ",", p.GridPos.Y)
				if ids[p.ID] || cells[cell] || p.GridPos.X+p.GridPos.W > 24 {
					t.Errorf("%s: panel %d: id or place %s taken, or off the grid", name, p.ID, cell)
				}
				ids[p.ID], cells[cell] = true, true
			}
			if bytes.Contains(a, []byte(`"uid": "rollscope"`)) {
				t.Errorf("%s names a datasource", name)
			}
		case ".yaml", ".yml":
			var v any
			if err := yaml.Unmarshal(a, &v); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, name := range []string{
		"dashboards/rollscope-golden.json", "provisioning/dashboards/rollscope.yaml", "provisioning/datasources/rollscope.yaml",
		"rules/rollscope-alerts.yml", "rules/rollscope-recording.yml",
	} {
		if !slices.Contains(files, name) {
			t.Errorf("no %s among %v", name, files)
		}
	}
	entries, err := filepath.Glob(filepath.Join(one, "dashboards", ".*"))
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v %v", entries, err)
	}
	if len(uids) != len(o.Boards) {
		t.Errorf("%d boards written, want %d", len(uids), len(o.Boards))
	}
}

// A board with one panel of each view, whose whole JSON is looked at by eye when it changes.
func TestGrafanaGolden(t *testing.T) {
	cat := signal.Default()
	w := claiming(engine.DynamoWorker)
	b := complete(cat, Board{
		ID: "views", Title: "Views", Meaning: "One panel of each view.", Tags: []string{"dynamo"},
		Sections: []Section{
			row("Over time",
				prom("Lines", "seconds", targets(expr("p99", percentile(0.99, "dynamo_component_request_duration_seconds"))), w, above(Warn, 1), above(Crit, 5),
					means("Time at the worker.")),
				prom("Stacked", "requests/s", targets(expr("{{model}}", speed("dynamo_component_requests_total", "model"))), w, stacked)),
			row("Now",
				prom("Stat", "ratio", targets(expr("usage", highest("dynamo_component_gpu_cache_usage_percent"))), w, shown(Stat), below(Warn, 0.5), below(Crit, 0.2)),
				prom("Gauge", "ratio", targets(expr("usage", highest("dynamo_component_gpu_cache_usage_percent"))), w, shown(Gauge), above(Crit, 0.97)),
				prom("Table", "blocks", targets(expr("{{instance}}", added("dynamo_component_total_blocks", "instance"))), w, shown(Table))),
		},
	})
	got, err := Grafana(cat, b, GrafanaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/grafana-views.json"
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the board has changed; look at it and run with -update")
	}
}

// What we ship for a foreign Prometheus stands our own lint too: the alerts and the recording rules, and every
// recorded name that a board reads is one that the rules make.
func TestShippedRulesStandTheLint(t *testing.T) {
	cat := signal.Default()
	recording, alerts := signal.RecordingRules(cat), signal.AlertRules(cat)
	made := ruleNames(recording)
	if len(made) == 0 {
		t.Fatal("the recording rules make nothing")
	}
	for name, data := range map[string][]byte{"recording": recording, "alerts": alerts} {
		r := linter(t, nil).Recording(recording).Rules(name, data)
		if r.Items == 0 {
			t.Errorf("%s: nothing was read", name)
		}
		for _, f := range r.Findings {
			// The numerator and the denominator of an average of ratios are sums of ratios each.
			half := strings.Contains(f.Where, "_num:") || strings.Contains(f.Where, "_den:")
			if f.Severity != Info && !(half && f.Code == "ratio_summed") {
				t.Errorf("%s: %s: %s: %s\n%s", name, f.Where, f.Code, f.Message, f.Expr)
			}
		}
	}
	p := parser.NewParser(parser.Options{})
	for _, b := range Boards(cat) {
		for _, s := range b.Sections {
			for _, panel := range s.Panels {
				list, err := panel.Queries(cat, QueryOptions{Form: signal.Recorded})
				if err != nil {
					t.Errorf("board %s: %v", b.ID, err)
				}
				for _, target := range list {
					tree, err := p.ParseExpr(target.Expr)
					if err != nil {
						t.Fatal(err)
					}
					for _, s := range selectors(tree) {
						name := nameOf(s)
						if (strings.HasPrefix(name, "engine:") || strings.HasPrefix(name, "fleet:")) && !slices.Contains(made, name) {
							t.Errorf("board %s, panel %q reads %s, which no rule records", b.ID, panel.Title, name)
						}
					}
				}
			}
		}
	}
}
