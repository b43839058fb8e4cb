package dashboard

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/rollscope/rollscope/internal/scrape"
	"github.com/rollscope/rollscope/internal/signal"
)

func caseFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/cases", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func caseNames(t *testing.T, file string) *NameSet {
	t.Helper()
	return NamesOf(file, scrape.Inspect(caseFile(t, file), ""))
}

// shared is one linter for all tests: the recording rules are read once.
var shared = sync.OnceValue(func() *Linter { return NewLinter(signal.Default(), nil) })

func linter(t testing.TB, names Names) *Linter {
	t.Helper()
	return shared().Against(names)
}

func with(r Report, code string) []Finding {
	var out []Finding
	for _, f := range r.Findings {
		if f.Code == code {
			out = append(out, f)
		}
	}
	return out
}

// P06: an empty optional filter leaves a comma behind.
func TestLintFindsTheEmptyVariable(t *testing.T) {
	data := caseFile(t, "P06-board.json")
	r := linter(t, nil).Board("board.json", data)
	bad := with(r, "parse_error")
	if r.Bad != 1 || r.Items != 2 || len(bad) != 1 {
		t.Fatalf("%d bad of %d panels, %d parse errors; want 1 of 2, 1: %+v", r.Bad, r.Items, len(bad), r.Findings)
	}
	f := bad[0]
	if !strings.Contains(f.Where, `"Generation tokens"`) || f.Severity != Error {
		t.Errorf("found in %s as %s", f.Where, f.Severity)
	}
	if got := []rune(f.Expr)[f.At-1]; got != ',' {
		t.Errorf("position %d of the expression is %q, want the stray comma", f.At, got)
	}
	line := strings.Split(string(data), "\n")[f.Line-1]
	if got := []rune(line)[f.Column-1]; got != ',' || !strings.HasPrefix(line[f.Column-1:], `,engine_type`) {
		t.Errorf("line %d column %d of the file is %q", f.Line, f.Column, got)
	}
	for _, f := range r.Findings {
		if strings.Contains(f.Where, "Queue") && f.Severity != Info {
			t.Errorf("the valid panel is reported: %+v", f)
		}
	}
}

// M11.3: vLLM renamed its metrics.
func TestLintNamesTheSuccessor(t *testing.T) {
	rules := []byte(`groups:
  - name: vllm
    rules:
      - alert: KVFull
        expr: max(vllm:gpu_cache_usage_perc) > 0.95
      - alert: SlowTokens
        expr: |
          histogram_quantile(0.99,
            sum by (le) (rate(vllm:time_per_output_token_seconds_bucket[5m]))
          ) > 0.1
      - alert: Fine
        expr: max(vllm:kv_cache_usage_perc) > 0.95
`)
	r := linter(t, caseNames(t, "M11-vllm-new.prom")).Rules("vllm.yml", rules)
	blind := with(r, "blind")
	if len(blind) != 2 || r.Blind != 2 || r.Bad != 2 {
		t.Fatalf("want two blind rules: %+v", r)
	}
	want := []struct{ where, use, text string }{
		{"alert KVFull", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"},
		{"alert SlowTokens", "vllm:inter_token_latency_seconds_bucket", "vllm:time_per_output_token_seconds_bucket"},
	}
	lines := strings.Split(string(rules), "\n")
	for i, w := range want {
		f := blind[i]
		if f.Where != w.where || f.Use != w.use || f.Severity != Error || !strings.Contains(f.Message, "blind") {
			t.Errorf("finding %d: %+v", i, f)
		}
		if at := lines[f.Line-1][f.Column-1:]; !strings.HasPrefix(at, w.text) {
			t.Errorf("finding %d points at %d:%d, %q", i, f.Line, f.Column, at)
		}
	}
}

// M01.3: either spelling of a board is fine against either path.
func TestLintAcceptsAnySpelling(t *testing.T) {
	for _, against := range []string{"M01-engine.prom", "M01-router.prom"} {
		l := linter(t, caseNames(t, against))
		for _, name := range []string{"sglang:num_running_reqs", "sglang_num_running_reqs", "ray_sglang_num_running_reqs",
			"sglang:time_to_first_token_seconds_bucket", "sglang_time_to_first_token_seconds_count"} {
			r := l.Expr("x", "x", fmt.Sprintf("count(%s)", name))
			if len(with(r, "blind")) > 0 || r.Blind > 0 {
				t.Errorf("%s against %s: %+v", name, against, r.Findings)
			}
		}
	}
}

// M13.2: the gauge of the last batch.
func TestLintFlagsTheHitRateGauge(t *testing.T) {
	l := linter(t, nil)
	for _, expr := range []string{
		"avg_over_time(sglang_cache_hit_rate[10m]) < 0.2", "sglang:cache_hit_rate", "max(sglang:cache_hit_rate)",
	} {
		if f := with(l.Expr("x", "x", expr), "cache_hit_rate_gauge"); len(f) != 1 || f[0].Use != "cache_hit_rate" {
			t.Errorf("%s: %+v", expr, f)
		}
	}
}

// M18.2 and M18.3: bounds and quantiles are text.
func TestLintKnowsHowBoundsAreWritten(t *testing.T) {
	set := NamesOf("a.prom", scrape.Inspect(caseFile(t, "M18-a.prom"), ""))
	old := NewNameSet("an old store")
	for _, le := range []string{"1", "5", "+Inf"} {
		old.AddName("sglang:time_to_first_token_seconds_bucket")
		old.values["sglang:time_to_first_token_seconds_bucket"]["le"] = map[string]int{"1": 1, "5": 1, "+Inf": 1}
		_ = le
	}
	summary := NewNameSet("a summary")
	for _, q := range []string{"0.5", "0.99"} {
		summary.AddSeries("smg_router_ttft_seconds", labels.FromStrings("quantile", q))
	}
	for _, tc := range []struct {
		names Names
		expr  string
		code  string
		use   string
	}{
		{nil, `rate(sglang:time_to_first_token_seconds_bucket{le="1"}[5m])`, "label_spelling", "1.0"},
		{nil, `rate(sglang:time_to_first_token_seconds_bucket{le=~"1|5"}[5m])`, "label_spelling", "1.0"},
		{nil, `rate(sglang:time_to_first_token_seconds_bucket{le="1.0"}[5m])`, "", ""},
		{nil, `rate(sglang:time_to_first_token_seconds_bucket{le="+Inf"}[5m])`, "", ""},
		{nil, `smg_router_ttft_seconds{quantile="0.50"}`, "label_spelling", "0.5"},
		{set, `rate(sglang:time_to_first_token_seconds_bucket{le="1"}[5m])`, "label_spelling", "1.0"},
		{set, `rate(sglang:time_to_first_token_seconds_bucket{le="5.0"}[5m])`, "", ""},
		{set, `rate(sglang:time_to_first_token_seconds_bucket{le="2.0"}[5m])`, "not_a_bound", ""},
		{old, `rate(sglang:time_to_first_token_seconds_bucket{le="1"}[5m])`, "", ""},
		{old, `rate(sglang:time_to_first_token_seconds_bucket{le="1.0"}[5m])`, "label_spelling", "1"},
		{summary, `smg_router_ttft_seconds{quantile="0.50"}`, "label_spelling", "0.5"},
		{summary, `smg_router_ttft_seconds{quantile="0.9"}`, "not_a_quantile", ""},
	} {
		r := linter(t, tc.names).Expr("x", "x", tc.expr)
		var got []Finding
		for _, code := range []string{"label_spelling", "not_a_bound", "not_a_quantile"} {
			got = append(got, with(r, code)...)
		}
		switch {
		case tc.code == "" && len(got) > 0:
			t.Errorf("%s: %+v", tc.expr, got)
		case tc.code != "" && (len(got) == 0 || got[0].Code != tc.code || got[0].Use != tc.use):
			t.Errorf("%s: want %s %q, got %+v", tc.expr, tc.code, tc.use, got)
		}
	}
}

// Shapes that are wrong whatever the data are.
func TestLintOfShapes(t *testing.T) {
	ranks := NewNameSet("two ranks")
	for _, tp := range []string{"0", "1"} {
		ranks.AddSeries("sglang:queue_time_seconds_count", labels.FromStrings("tp_rank", tp))
	}
	one := NewNameSet("one rank")
	one.AddSeries("sglang:queue_time_seconds_count", labels.FromStrings("tp_rank", "0"))
	priority := NewNameSet("priorities")
	for _, p := range []string{"", "0", "1"} {
		priority.AddSeries("sglang:num_queue_reqs", labels.FromStrings("tp_rank", "0", "priority", p))
	}
	views := NewNameSet("both ways")
	views.AddSeries("sglang:num_queue_reqs", labels.FromStrings("tp_rank", "0"))
	views.AddSeries("sglang:num_queue_reqs", labels.FromStrings("tp_rank", "0", "worker_addr", "http://a:1"))
	const ttft = "sglang:time_to_first_token_seconds"
	for _, tc := range []struct {
		names Names
		expr  string
		want  []string // codes, in order; Info ones only where named with "+"
	}{
		{nil, "sum(rate(" + ttft + "_sum[5m])) / (sum(rate(" + ttft + "_count[5m])) > 0)", nil},
		{nil, "sum(rate(" + ttft + "_sum[5m])) / sum(rate(" + ttft + "_count[5m]))", []string{"idle_division"}},
		{nil, "sum(rate(" + ttft + "_sum[5m])) / sum(rate(" + ttft + "_count[5m])) > 1", nil},
		{nil, "sum(rate(" + ttft + "_sum[5m])) / clamp_min(sum(rate(" + ttft + "_count[5m])), 1)", nil},
		{nil, "avg(rate(" + ttft + "_sum[5m]) / rate(" + ttft + "_count[5m]))", []string{"ratio_averaged", "idle_division"}},
		{nil, "histogram_quantile(0.99, sum by (le) (rate(" + ttft + "_bucket[5m])))", nil},
		{nil, "histogram_quantile(0.99, rate(" + ttft + "_bucket[5m]))", nil},
		{nil, "histogram_quantile(0.99, sum(rate(" + ttft + "_bucket[5m])))", []string{"quantile_without_le"}},
		{nil, "histogram_quantile(0.99, sum by (instance) (rate(" + ttft + "_bucket[5m])))", []string{"quantile_without_le"}},
		{nil, "histogram_quantile(0.99, sum without (le) (rate(" + ttft + "_bucket[5m])))", []string{"quantile_without_le"}},
		{nil, "histogram_quantile(0.99, sum without (instance) (rate(" + ttft + "_bucket[5m])))", nil},
		{nil, "histogram_quantile(99, sum by (le) (rate(" + ttft + "_bucket[5m])))", []string{"quantile_out_of_range"}},
		{nil, "histogram_quantile(0.99, rate(" + ttft + "_sum[5m]))", []string{"quantile_of_non_bucket"}},
		{nil, "histogram_quantile(0.99, " + ttft + "_bucket)", []string{"counter_without_rate"}},
		{nil, "avg(histogram_quantile(0.99, sum by (le, instance) (rate(" + ttft + "_bucket[5m]))))", []string{"percentile_averaged"}},
		{nil, "avg_over_time(histogram_quantile(0.99, sum by (le) (rate(" + ttft + "_bucket[5m])))[1h:])", []string{"percentile_averaged"}},
		{nil, `avg(smg_router_ttft_seconds{quantile="0.99"})`, []string{"percentile_averaged"}},
		{nil, "sum(instance:ttft:p99)", []string{"percentile_summed"}},
		{nil, "max(instance:ttft:p99)", nil},
		{nil, "rate(sglang:num_queue_reqs[5m])", []string{"rate_of_gauge"}},
		{nil, "increase(sglang_token_usage[5m])", []string{"rate_of_gauge"}},
		{nil, "delta(sglang:prompt_tokens_total[5m])", []string{"delta_of_counter"}},
		{nil, "sum(sglang:prompt_tokens_total)", []string{"+counter_without_rate"}},
		{nil, ttft + "_sum / " + ttft + "_count", []string{"counter_without_rate", "counter_without_rate"}},
		{nil, "count(sglang:prompt_tokens_total)", nil},
		{nil, "absent(sglang:prompt_tokens_total)", nil},
		{nil, "resets(sglang:prompt_tokens_total[1h])", nil},
		{nil, "rate(sum(sglang:prompt_tokens_total)[5m:])", []string{"rate_of_sum"}},
		{nil, "sum(sglang:token_usage)", []string{"ratio_summed"}},
		{nil, "max(sglang:token_usage)", nil},
		{nil, "avg(sglang:token_usage)", []string{"+ratio_averaged"}},
		{nil, "sglang:kv_transfer_latency_ms", []string{"+bare_histogram"}},
		{nil, "sglang:inter_token_latency_seconds", []string{"bare_histogram"}},
		{nil, "sum(sglang:prompt_tokens_total * 0)", nil},
		{nil, "sglang:num_paused_reqs", []string{"dead_metric"}},
		{nil, "sglang:num_prefill_prealloc_queue_reqs", []string{"renamed"}},
		{nil, "rate(sglang_num_output_tokens_total[5m])", []string{"invented_name"}},
		{nil, `rate(dynamo_component_requests_total{dynamo_component="backend"}[5m])`, []string{"component_is_not_role"}},
		{nil, "sum(rate(sglang:queue_time_seconds_count[5m]))", []string{"+ranks_summed"}},
		{ranks, "sum(rate(sglang:queue_time_seconds_count[5m]))", []string{"ranks_summed"}},
		{ranks, `sum(rate(sglang:queue_time_seconds_count{tp_rank="0"}[5m]))`, nil},
		{ranks, "sum by (tp_rank) (rate(sglang:queue_time_seconds_count[5m]))", nil},
		{one, "sum(rate(sglang:queue_time_seconds_count[5m]))", nil},
		{priority, "sum(sglang:num_queue_reqs)", []string{"priority_summed"}},
		{priority, `sum(sglang:num_queue_reqs{priority=""})`, nil},
		{views, "sum(sglang:num_queue_reqs)", []string{"views_summed"}},
		{views, `sum(sglang:num_queue_reqs{worker_addr=""})`, nil},
		{views, `sum(sglang:num_queue_reqs{worker_addr="http://b:1"})`, []string{"matches_nothing"}},
		{views, "sum(sglang:num_running_reqs) or sum(sglang:num_queue_reqs{worker_addr=\"\"})", []string{"+absent_part"}},
		{views, "sum(sglang:num_running_reqs) or vector(0)", []string{"blind"}},
		{views, "absent(sglang:num_running_reqs)", []string{"+absent_part"}},
		{views, `up{job="sglang"} == 0`, nil},
		{nil, "sum(rate(x[5m])", []string{"parse_error"}},
		{nil, "", []string{"no_expression"}},
		{nil, "sum($x)", []string{"unknown_variable"}},
	} {
		r := linter(t, tc.names).Expr("x", "x", tc.expr)
		var got []string
		for _, f := range r.Findings {
			if f.Severity != Info {
				got = append(got, f.Code)
			}
		}
		var want []string
		for _, w := range tc.want {
			code, info := strings.CutPrefix(w, "+")
			if !info {
				want = append(want, code)
				continue
			}
			if f := with(r, code); len(f) == 0 || f[0].Severity != Info {
				t.Errorf("%s: want a note %s, got %+v", tc.expr, code, r.Findings)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v\n%+v", tc.expr, got, want, r.Findings)
		}
		for _, f := range r.Findings {
			if f.Message == "" || explain(f.Code) == "" {
				t.Errorf("%s: %s has no message or no explanation", tc.expr, f.Code)
			}
		}
	}
}
