package dashboard

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/rollscope/rollscope/internal/signal"
)

// pasted lists what people paste out of the guides and out of Dynamo's stock board: where it stands and the
// expression as it stands there.
func pasted(t *testing.T) map[string][]string {
	t.Helper()
	read := func(name string) []byte {
		data, err := os.ReadFile("testdata/seeds/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	out := map[string][]string{}
	lines := bufio.NewScanner(bytes.NewReader(read("expressions.txt")))
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" && line[0] != '#' {
			out["guides"] = append(out["guides"], line)
		}
	}
	var f ruleFile
	if err := yaml.Unmarshal(read("004-alerts.yml"), &f); err != nil {
		t.Fatal(err)
	}
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			out["alerts"] = append(out["alerts"], r.Expr.Value)
		}
	}
	root, _, err := parseJSON(read("dynamo-sglang.json"))
	if err != nil {
		t.Fatal(err)
	}
	var walk func(*node)
	walk = func(n *node) {
		for _, p := range n.at("panels").list() {
			walk(p)
			for _, target := range p.at("targets").list() {
				out["Dynamo's board"] = append(out["Dynamo's board"], target.at("expr").str())
			}
		}
	}
	walk(root)
	return out
}

// Every expression of the guides and of Dynamo's stock board, pasted unchanged, reads names that the
// catalog knows in that spelling, or the catalog says what to use instead.
func TestPastedExpressionsResolve(t *testing.T) {
	cat := signal.Default()
	p := parser.NewParser(parser.Options{})
	all := pasted(t)
	for where, want := range map[string]int{"guides": 46, "alerts": 8, "Dynamo's board": 95} {
		if got := len(all[where]); got != want {
			t.Errorf("%s: %d expressions, want %d", where, got, want)
		}
	}
	successors := map[string]string{}
	for where, list := range all {
		for _, text := range list {
			e := expand(text, nil, nil)
			tree, err := p.ParseExpr(e.text)
			if err != nil {
				t.Errorf("%s: %s: %v", where, text, err)
				continue
			}
			for _, s := range selectors(tree) {
				name := nameOf(s)
				m, known := cat.Metric(name)
				if synthetic.MatchString(name) || known && !m.Invented {
					continue
				}
				r := cat.Resolve(name)
				if r.Use == "" || !strings.Contains(r.Message, r.Use) {
					t.Errorf("%s: %s: %s is in no table, and the catalog says: %+v", where, text, name, r)
				}
				successors[signal.Canonical(name)] = r.Use
			}
		}
	}
	for name, use := range map[string]string{
		"sglang:e2e_first_token_latency_seconds_bucket": "sglang:time_to_first_token_seconds_bucket",
		"sglang:num_input_tokens_total":                 "sglang:prompt_tokens_total",
		"sglang:num_output_tokens_total":                "sglang:generation_tokens_total",
		"sglang:moe_imbalance_ratio":                    "moe_balance",
	} {
		if successors[name] != use {
			t.Errorf("%s resolves to %q, want %q", name, successors[name], use)
		}
	}
}

// The guide's alerts against what a real engine exposes: the two on invented names are blind and say so,
// the ones on the last batch's gauge and on job names are told apart from the sound ones.
func TestLintOfTheGuidesAlerts(t *testing.T) {
	data, err := os.ReadFile("testdata/seeds/004-alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	set := NamesOf("an engine", expositions(t)["sglang-unified"])
	r := linter(t, set).Rules("alerts.yml", data)
	if r.Items != 8 || r.Blind != 1 || r.Bad != 1 {
		t.Errorf("%d rules, %d blind, %d bad; want 8, 1, 1", r.Items, r.Blind, r.Bad)
	}
	got := map[string][]string{}
	for _, f := range r.Findings {
		if f.Severity == Info {
			continue
		}
		got[f.Where] = append(got[f.Where], f.Code)
	}
	want := map[string][]string{
		"alert SGLangTTFTHigh":     {"blind"},
		"alert SGLangCacheHitDrop": {"cache_hit_rate_gauge"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Dynamo's stock board against a frontend and a worker: what the lint finds is what its users report.
func TestLintOfDynamosBoard(t *testing.T) {
	data, err := os.ReadFile("testdata/seeds/dynamo-sglang.json")
	if err != nil {
		t.Fatal(err)
	}
	all := expositions(t)
	set := NewNameSet("a Dynamo deployment")
	for _, name := range []string{"dynamo-frontend", "dynamo-worker-decode", "sglang-decode", "dcgm"} {
		set.AddExposition(all[name])
	}
	r := linter(t, set).Board("sglang.json", data)
	if r.Items != 46 || len(with(r, "parse_error"))+len(with(r, "unreadable")) > 0 {
		t.Errorf("%d panels: %+v", r.Items, with(r, "parse_error"))
	}
	has := func(code, panel string) bool {
		return slices.ContainsFunc(r.Findings, func(f Finding) bool {
			return f.Code == code && strings.Contains(f.Where, panel) && f.Line > 1
		})
	}
	for _, w := range []struct{ code, panel string }{
		{"percent_of_ratio", "GPU Cache Usage"},
		{"cache_hit_rate_gauge", "Per-Worker Cache Hit"},
		{"blind", "Pending Prealloc"},
		{"ratio_summed", "New Token Ratio"},
		{"idle_division", "Avg TTFT"},
		{"blind", "P/D queues"}, // in a collapsed row; renamed in May 2026
		{"counter_without_rate", "Total Requests"},
	} {
		if !has(w.code, w.panel) {
			t.Errorf("panel %q is not reported as %s", w.panel, w.code)
		}
	}
	for _, w := range []struct{ code, panel string }{
		{"percent_of_ratio", "GPU KV Util"}, {"percent_of_ratio", "Request Success"}, {"percent_of_ratio", "HiCache Host Usage %"},
		{"blind", "Frontend RPS"}, {"hard_coded_datasource", ""},
	} {
		if has(w.code, w.panel) {
			t.Errorf("panel %q is wrongly reported as %s", w.panel, w.code)
		}
	}
}
