package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// Panels are found however deep they are nested, and each finding points at the character.
func TestLintFindsPanelsInEveryNesting(t *testing.T) {
	const bad = "sum(rate(sglang:prompt_tokens_total[5m])" // a parenthesis is missing
	query := func(title string) string {
		return fmt.Sprintf(`{"type":"timeseries","title":%q,"targets":[{"refId":"A","expr":%q}]}`, title, bad)
	}
	for name, board := range map[string]string{
		"flat":      `{"panels":[` + query("p") + `]}`,
		"row":       `{"panels":[{"type":"row","title":"r","collapsed":false,"panels":[]},` + query("p") + `]}`,
		"collapsed": `{"panels":[{"type":"row","title":"r","collapsed":true,"panels":[` + query("p") + `]}]}`,
		"repeated":  `{"templating":{"list":[{"name":"i","type":"query","multi":true}]},"panels":[{"type":"row","title":"r $i","repeat":"i","panels":[` + query("p") + `]}]}`,
		"old rows":  `{"rows":[{"title":"r","panels":[` + query("p") + `]}]}`,
		"API":       `{"meta":{},"dashboard":{"panels":[` + query("p") + `]}}`,
		"elements": `{"apiVersion":"dashboard.grafana.app/v2beta1","spec":{"elements":{"panel-1":{"kind":"Panel","spec":{"title":"p","data":{"spec":{"queries":[` +
			`{"spec":{"refId":"A","query":{"kind":"DataQuery","group":"prometheus","spec":{"expr":` + fmt.Sprintf("%q", bad) + `}}}}]}}}}}}}`,
	} {
		r := linter(t, nil).Board("b.json", []byte(board))
		f := with(r, "parse_error")
		if r.Items != 1 || len(f) != 1 || !strings.HasPrefix(f[0].Where, `panel "p"`) {
			t.Errorf("%s: %d panels, %+v", name, r.Items, r.Findings)
			continue
		}
		if f[0].Line != 1 || f[0].Column < strings.Index(board, "sum(") {
			t.Errorf("%s: found at %d:%d", name, f[0].Line, f[0].Column)
		}
	}
}

func TestLintOfVariables(t *testing.T) {
	board := func(variable, expr string) []byte {
		e, _ := json.Marshal(expr)
		return []byte(`{"templating":{"list":[` + variable + `]},"panels":[{"title":"p","targets":[{"expr":` + string(e) + `}]}]}`)
	}
	query := func(more string) string { return `{"name":"v","type":"query"` + more + `}` }
	for _, tc := range []struct {
		variable, expr, code string
		sev                  Severity
	}{
		{query(`,"multi":true`), `sum(up{job=~"$v"})`, "", ""},
		{query(`,"multi":true`), `sum(up{job=~"${v:regex}"})`, "", ""},
		{query(`,"multi":true`), `sum(up{job=~"[[v]]"})`, "", ""},
		{query(`,"multi":true`), `sum(up{job="$v"})`, "multi_value_equals", Error},
		{query(`,"includeAll":true`), `sum(up{job="$v"})`, "multi_value_equals", Error},
		{query(``), `sum(up{job="$v"})`, "", ""},
		{query(``), `sum(up{$v})`, "parse_error", Error},
		{query(`,"current":{"value":"a=\"b\""}`), `sum(up{$v})`, "", ""},
		{query(`,"current":{"value":"a=\"b\""}`), `sum(up{$v,c="d"})`, "parse_error", Warning},
		{query(``), `sum(up{job="$w"})`, "unknown_variable", Error},
		{query(``), `label_replace(up, "a", "$1", "b", "(.+)")`, "", ""},
		{query(`,"multi":true,"includeAll":true,"current":{"value":["$__all"]}`), `rate(x_total{a=~"$v"}[$__rate_interval])`, "", ""},
		{query(`,"includeAll":true,"allValue":".*"`), `rate(x_total{a=~"$v"}[$__interval])`, "", ""},
		{`{"name":"v","type":"interval","query":"1m,5m"}`, `rate(x_total[$v])`, "", ""},
		{`{"name":"v","type":"custom","query":"a : 5,b : 10"}`, `topk($v, up)`, "", ""},
		{`{"name":"v","type":"custom","query":"5,10","multi":true}`, `topk($v, up)`, "parse_error", Warning},
		{`{"name":"v","type":"constant","query":"5"}`, `topk($v, up)`, "", ""},
		{`{"name":"v","type":"textbox","query":"5"}`, `topk($v, up)`, "parse_error", Warning},
	} {
		r := linter(t, nil).Board("b.json", board(tc.variable, tc.expr))
		switch {
		case tc.code == "" && len(r.Findings) > 0:
			t.Errorf("%s with %s: %+v", tc.expr, tc.variable, r.Findings)
		case tc.code != "" && (len(r.Findings) != 1 || r.Findings[0].Code != tc.code || r.Findings[0].Severity != tc.sev):
			t.Errorf("%s with %s: want %s %s, got %+v", tc.expr, tc.variable, tc.sev, tc.code, r.Findings)
		}
	}
}

func TestLintOfDatasourcesUnitsAndOtherQueries(t *testing.T) {
	const board = `{
 "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"},
  {"name": "w", "type": "query", "query": {"query": "label_values(sglang:no_such_thing, instance)"}}]},
 "annotations": {"list": [{"name": "builtin", "datasource": {"type": "grafana", "uid": "-- Grafana --"}},
  {"name": "deploys", "expr": "changes(sum(", "datasource": {"type": "prometheus", "uid": "${datasource}"}}]},
 "panels": [
  {"title": "fixed", "datasource": {"type": "prometheus", "uid": "P1809F7CD0C75ACF3"},
   "targets": [{"refId": "A", "datasource": {"type": "prometheus", "uid": "P1809F7CD0C75ACF3"}, "expr": "sum(up)"}]},
  {"title": "by name", "datasource": "Prometheus", "targets": [{"expr": "sum(up)"}]},
  {"title": "free", "datasource": {"type": "prometheus", "uid": "$datasource"}, "targets": [{"expr": "sum(up)"}]},
  {"title": "logs", "datasource": {"type": "loki", "uid": "$loki"}, "targets": [{"expr": "{app=\"x\"} |= \"y\""}]},
  {"title": "share", "fieldConfig": {"defaults": {"unit": "percent"}}, "targets": [{"expr": "max(dynamo_component_gpu_cache_usage_percent)"}]},
  {"title": "hundred", "fieldConfig": {"defaults": {"unit": "percent"}}, "targets": [{"expr": "100 * max(sglang:token_usage)"}]},
  {"title": "ten thousand", "fieldConfig": {"defaults": {"unit": "percentunit"}}, "targets": [{"expr": "max(sglang:token_usage) * 100"}]},
  {"title": "gpu", "fieldConfig": {"defaults": {"unit": "percentunit"}}, "targets": [{"expr": "max(DCGM_FI_DEV_GPU_UTIL)"}]},
  {"title": "quotient", "fieldConfig": {"defaults": {"unit": "percent"}}, "targets": [{"expr": "sum(rate(sglang:cached_tokens_total[5m])) / (sum(rate(sglang:prompt_tokens_total[5m])) > 0)"}]},
  {"title": "ms", "fieldConfig": {"defaults": {"unit": "s"}}, "targets": [{"expr": "histogram_quantile(0.99, sum by (le) (rate(sglang:kv_transfer_latency_ms_bucket[5m])))"}]},
  {"title": "1000 s", "fieldConfig": {"defaults": {"unit": "ms"}}, "targets": [{"expr": "1000 * histogram_quantile(0.99, sum by (le) (rate(sglang:time_to_first_token_seconds_bucket[5m])))"}]},
  {"title": "mean", "fieldConfig": {"defaults": {"unit": "ms"}}, "targets": [{"expr": "sum(rate(sglang:time_to_first_token_seconds_sum[5m])) / (sum(rate(sglang:time_to_first_token_seconds_count[5m])) > 0)"}]}
 ]
}`
	set := NamesIn("a store", []string{"up", "dynamo_component_gpu_cache_usage_percent", "sglang:token_usage", "DCGM_FI_DEV_GPU_UTIL",
		"sglang:cached_tokens_total", "sglang:prompt_tokens_total", "sglang:kv_transfer_latency_ms_bucket",
		"sglang:time_to_first_token_seconds_bucket", "sglang:time_to_first_token_seconds_sum", "sglang:time_to_first_token_seconds_count"})
	r := linter(t, set).Board("b.json", []byte(board))
	var got []string
	for _, f := range r.Findings {
		if f.Severity != Info {
			got = append(got, f.Code+" "+f.Where)
		}
	}
	want := []string{
		`blind variable "w"`, `parse_error annotation "deploys"`, `hard_coded_datasource panel "fixed"`, `hard_coded_datasource panel "by name"`,
		`percent_of_ratio panel "share"`, `ratio_of_percent panel "ten thousand"`, `ratio_of_percent panel "gpu"`,
		`percent_of_ratio panel "quotient"`, `unit_mismatch panel "ms"`, `unit_mismatch panel "mean"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, f := range r.Findings {
		line := strings.Split(board, "\n")[f.Line-1]
		if f.Column > len(line) {
			t.Errorf("%s points at column %d of %q", f.Code, f.Column, line)
		}
	}
}

func TestLintOfFilesThatAreNone(t *testing.T) {
	l := linter(t, nil)
	for _, tc := range []struct {
		name string
		r    Report
		line int
	}{
		{"cut JSON", l.Board("f", []byte("{\"panels\": [\n{\"title\":")), 2},
		{"bad JSON", l.Board("f", []byte("{\n\"panels\": [,]}")), 2},
		{"other JSON", l.Board("f", []byte(`{"a": 1}`)), 1},
		{"empty", l.Board("f", nil), 1},
		{"deep", l.Board("f", []byte(strings.Repeat("[", 5000))), 1},
		{"bad YAML", l.Rules("f", []byte("groups:\n  - name: [\n")), 2},
		{"wrong YAML", l.Rules("f", []byte("groups:\n  - name: x\n    rules: y\n")), 3},
		{"other YAML", l.Rules("f", []byte("a: 1\n")), 1},
		{"empty rules", l.Rules("f", nil), 1},
	} {
		f := with(tc.r, "unreadable")
		if len(f) != 1 || f[0].Line != tc.line || tc.r.Bad != 1 {
			t.Errorf("%s: want one finding in line %d, got %+v", tc.name, tc.line, tc.r.Findings)
		}
	}
}

// However an expression is written in YAML, a finding points at the name in the file.
func TestLintPointsIntoRuleFiles(t *testing.T) {
	rules := `groups:
- name: g
  rules:
  - alert: Plain
    expr: sum(sglang:is_cuda_graph) > 1
  - alert: Double
    expr: "sum(up{a=\"b\"}) > sum(sglang:is_cuda_graph)"
  - alert: Single
    expr: 'sum(up{a="it''s"}) > sum(sglang:is_cuda_graph)'
  - alert: Literal
    expr: |
      sum(up)
        > sum(sglang:is_cuda_graph)
  - alert: Folded
    expr: >-
      sum(up) >

      sum(
        sglang:is_cuda_graph)
  - alert: Continued
    expr: sum(up) >
      sum(sglang:is_cuda_graph)
    annotations:
      summary: "{{ $labels.instance }} is {{ $labels.job }}"
  - record: instance:ttft:p99
    expr: avg(instance:ttft:p99)
  - alert: Empty
    expr: ""
`
	r := linter(t, nil).Rules("r.yml", []byte(rules))
	lines := strings.Split(rules, "\n")
	dead := with(r, "dead_metric")
	if len(dead) != 6 || r.Items != 8 {
		t.Fatalf("%d findings in %d rules: %+v", len(dead), r.Items, r.Findings)
	}
	for _, f := range dead {
		if at := string([]rune(lines[f.Line-1])[f.Column-1:]); !strings.HasPrefix(at, "sglang:is_cuda_graph") {
			t.Errorf("%s: %d:%d is %q", f.Where, f.Line, f.Column, at)
		}
		if at := string([]rune(f.Expr)[f.At-1:]); !strings.HasPrefix(at, "sglang:is_cuda_graph") {
			t.Errorf("%s: position %d of the expression is %q", f.Where, f.At, at)
		}
	}
	dropped := with(r, "label_dropped")
	if len(dropped) != 2 || dropped[0].Where != "alert Continued" || !strings.Contains(lines[dropped[0].Line-1], "summary") {
		t.Errorf("dropped labels: %+v", dropped)
	}
	if len(with(r, "no_expression")) != 1 || len(with(r, "percentile_averaged")) != 1 {
		t.Errorf("%+v", r.Findings)
	}
}

func TestReportIsForPeopleAndForPrograms(t *testing.T) {
	data, err := os.ReadFile("testdata/cases/P06-board.json")
	if err != nil {
		t.Fatal(err)
	}
	r := linter(t, nil).Board("board.json", data)
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	const file = "testdata/p06-report.txt"
	if *update {
		if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", text.String(), want)
	}
	out, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(out, &back); err != nil || back.Bad != 1 || len(back.Findings) != len(r.Findings) {
		t.Errorf("%v: %s", err, out)
	}
	var empty Report
	empty.Merge(Report{})
	if out, _ := json.Marshal(empty); !strings.Contains(string(out), `"findings":[]`) {
		t.Errorf("no findings are written as %s", out)
	}
}

func TestOffsetsInJSONStrings(t *testing.T) {
	text := `{"a": "x\"\\\n\u00e9é\ud83d\ude00z"}`
	root, _, err := parseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	n := root.at("a")
	for want, at := range map[string]int{"x": 0, `\"`: 1, `\\`: 2, `\n`: 3, `\u00e9`: 4, "é": 6, `\ud83d`: 8, "z": 12} {
		if got := text[n.offsetIn([]byte(text), at):]; !strings.HasPrefix(got, want) {
			t.Errorf("offset %d leads to %q, want %q", at, got, want)
		}
	}
}

func FuzzBoard(f *testing.F) {
	for _, file := range []string{"testdata/cases/P06-board.json", "testdata/seeds/dynamo-sglang.json"} {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	l := linter(f, NamesIn("x", []string{"up"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := l.Board("f", data)
		checkPlaces(t, r, data)
	})
}

func FuzzRules(f *testing.F) {
	data, err := os.ReadFile("testdata/seeds/004-alerts.yml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("groups: [{name: a, rules: [{alert: b, expr: \"sum(rate(x[5m])) / sum(rate(y[5m]))\"}]}]"))
	l := linter(f, nil)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := l.Rules("f", data)
		checkPlaces(t, r, data)
	})
}

func checkPlaces(t *testing.T, r Report, data []byte) {
	lines := 1 + bytes.Count(data, []byte("\n"))
	for _, f := range r.Findings {
		if f.Line < 0 || f.Line > lines || f.Column < 0 || f.At < 0 || f.At > len([]rune(f.Expr))+1 {
			t.Errorf("%+v is outside of %d lines", f, lines)
		}
	}
	if err := r.WriteText(&bytes.Buffer{}); err != nil {
		t.Error(err)
	}
}
