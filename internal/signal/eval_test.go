package signal

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/teststorage"
)

// store is a storage with loaded series, a PromQL engine as Rollscope runs it, and the built-in rules.
type store struct {
	t      testing.TB
	db     *teststorage.TestStorage
	engine *promql.Engine
	groups []*rules.Group
	cat    *Catalog
	step   time.Duration // between evaluations of the rules
}

// load fills a store with series in promqltest's notation ("load 15s" and lines of series).
func load(t *testing.T, series string) *store {
	t.Helper()
	var lines []string
	for line := range strings.Lines(series) { // a blank line would end the load command
		if strings.TrimSpace(line) != "" {
			lines = append(lines, line)
		}
	}
	series = strings.Join(lines, "")
	db := promqltest.LoadedStorage(t, series)
	e := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		Parser: parser.NewParser(parser.Options{}),
	})
	return &store{t: t, db: db, engine: e, cat: Default(), step: 15 * time.Second}
}

// query evaluates PromQL at a time and returns "{labels} value" lines, sorted.
func (s *store) query(expr string, at time.Duration) []string {
	s.t.Helper()
	q, err := s.engine.NewInstantQuery(context.Background(), s.db, nil, expr, time.Unix(0, 0).Add(at))
	if err != nil {
		s.t.Fatalf("%v\n%s", err, expr)
	}
	defer q.Close()
	res := q.Exec(context.Background())
	if res.Err != nil {
		s.t.Fatalf("%v\n%s", res.Err, expr)
	}
	v, err := res.Vector()
	if err != nil {
		s.t.Fatalf("%v\n%s", err, expr)
	}
	var out []string
	for _, p := range v {
		lb := labels.NewBuilder(p.Metric)
		lb.Del(model.MetricNameLabel)
		out = append(out, fmt.Sprintf("%s %.4g", lb.Labels(), p.F))
	}
	slices.Sort(out)
	return out
}

// signal evaluates a signal of the catalog.
func (s *store) signal(id string, q Query, at time.Duration) []string {
	s.t.Helper()
	sig, ok := s.cat.Signal(id)
	if !ok {
		s.t.Fatalf("no signal %q", id)
	}
	expr, err := Compile(sig, q)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.query(expr, at)
}

// count evaluates a signal's events per second.
func (s *store) count(id string, q Query, at time.Duration) []string {
	s.t.Helper()
	sig, _ := s.cat.Signal(id)
	expr, err := CompileCount(sig, q)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.query(expr, at)
}

// evaluate runs the built-in rules over a span, recording rules first, as the rule manager does.
func (s *store) evaluate(from, to time.Duration) {
	s.t.Helper()
	if s.groups == nil {
		s.groups = s.loadRules()
	}
	for at := from; at <= to; at += s.step {
		for _, g := range s.groups {
			g.Eval(context.Background(), time.Unix(0, 0).Add(at))
			for _, r := range g.Rules() {
				if err := r.LastError(); err != nil {
					s.t.Fatalf("%s at %s: %v\n%s", r.Name(), at, err, r.Query())
				}
			}
		}
	}
}

func (s *store) loadRules() []*rules.Group {
	s.t.Helper()
	dir := s.t.TempDir()
	var files []string
	for i, file := range [][]byte{RecordingRules(Default()), AlertRules(Default())} {
		name := filepath.Join(dir, fmt.Sprintf("%d.yml", i))
		if err := os.WriteFile(name, file, 0o600); err != nil {
			s.t.Fatal(err)
		}
		files = append(files, name)
	}
	m := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(s.engine, s.db), AppendableV2: s.db, Queryable: s.db, Context: context.Background(),
		Logger: slog.New(slog.DiscardHandler), ExternalURL: &url.URL{}, NameValidationScheme: model.LegacyValidation,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Registerer: prometheus.NewRegistry(), Parser: parser.NewParser(parser.Options{}),
	})
	byName, errs := m.LoadGroups(15*time.Second, labels.EmptyLabels(), "", nil, false, files...)
	for _, err := range errs {
		s.t.Fatal(err)
	}
	groups := make([]*rules.Group, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		for _, r := range byName[name].Rules() {
			if a, ok := r.(*rules.AlertingRule); ok {
				a.SetRestored(true)
			}
		}
		groups = append(groups, byName[name])
	}
	// Who is there comes first, alerts last.
	slices.SortStableFunc(groups, func(a, b *rules.Group) int { return rank(a) - rank(b) })
	return groups
}

// only leaves the rule groups with these names.
func (s *store) only(names ...string) {
	s.groups = slices.DeleteFunc(s.loadRules(), func(g *rules.Group) bool { return !slices.Contains(names, g.Name()) })
}

func rank(g *rules.Group) int {
	switch {
	case g.Name() == "rollscope_identity":
		return 0
	case strings.HasPrefix(g.Name(), "rollscope_"):
		return 1
	default:
		return 2
	}
}

func (s *store) want(what string, got []string, want ...string) {
	s.t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("%s:\n got %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// append adds one sample.
func (s *store) append(series string, at time.Duration, v float64) {
	s.t.Helper()
	l, err := parser.NewParser(parser.Options{}).ParseMetric(series)
	if err != nil {
		s.t.Fatal(err)
	}
	app := s.db.AppenderV2(context.Background())
	if _, err := app.Append(0, l, 0, at.Milliseconds(), v, nil, nil, storage.AOptions{}); err != nil {
		s.t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		s.t.Fatal(err)
	}
}

const minutes10 = 10 * time.Minute

func TestEngineIsCountedOnce(t *testing.T) {
	s := load(t, `load 15s
	  sglang:num_running_reqs{job="a",instance="e1:30000",engine_type="unified",model_name="m",tp_rank="0"} 3x60
	  sglang:num_running_reqs{job="b",instance="e1:30000",engine_type="unified",model_name="m",tp_rank="0",gpu="h100"} 3x60
	  sglang:num_running_reqs{job="r",instance="r1:29000",worker_addr="http://e1:30000",engine_type="unified",model_name="m",tp_rank="0"} 3x60
	  sglang:num_running_reqs{job="r",instance="r2:29000",worker_addr="http://e1:30000@0",engine_type="unified",model_name="m",tp_rank="0"} 3x60
	  sglang:num_running_reqs{job="r",instance="r1:29000",worker_addr="grpc://e2:30000/x",engine_type="unified",model_name="m_x",tp_rank="0"} 5x60
	  sglang:num_running_reqs{job="r",instance="r2:29000",worker_addr="grpc://e2:30000/x",engine_type="unified",model_name="m_x",tp_rank="0"} 5x60
	  sglang:time_to_first_token_seconds_bucket{job="a",instance="e1:30000",model_name="m:x",is_streaming="true",le="1.0"} 0+15x60
	  sglang:time_to_first_token_seconds_bucket{job="a",instance="e1:30000",model_name="m:x",is_streaming="true",le="+Inf"} 0+15x60
	  sglang:time_to_first_token_seconds_bucket{job="a",instance="e1:30000",model_name="m:x",is_streaming="false",le="1.0"} 0+15x60
	  sglang:time_to_first_token_seconds_bucket{job="a",instance="e1:30000",model_name="m:x",is_streaming="false",le="+Inf"} 0+15x60
	  sglang:time_to_first_token_seconds_bucket{job="r",instance="r1:29000",worker_addr="http://e1:30000",model_name="m_x",le="1.0"} 0+30x60
	  sglang:time_to_first_token_seconds_bucket{job="r",instance="r1:29000",worker_addr="http://e1:30000",model_name="m_x",le="+Inf"} 0+30x60
	  sglang:time_to_first_token_seconds_count{job="a",instance="e1:30000",model_name="m:x",is_streaming="true"} 0+15x60
	  sglang:time_to_first_token_seconds_count{job="a",instance="e1:30000",model_name="m:x",is_streaming="false"} 0+15x60
	  sglang:time_to_first_token_seconds_count{job="r",instance="r1:29000",worker_addr="http://e1:30000",model_name="m_x"} 0+30x60
	`)
	s.want("running", s.signal("running", Query{}, minutes10), `{} 8`)
	s.want("running by engine", s.signal("running", Query{By: ByEngine}, minutes10),
		`{instance="e1:30000", model_name="m"} 3`, `{instance="e2:30000", model_name="m_x"} 5`)
	s.want("running by role", s.signal("running", Query{By: ByRole}, minutes10), `{role="unified"} 8`)
	s.want("one engine, scraped", s.signal("running", Query{By: ByEngine, Match: `instance="e1:30000"`}, minutes10), `{instance="e1:30000", model_name="m"} 3`)
	s.want("one engine, by a router", s.signal("running", Query{By: ByEngine, Match: `instance="e2:30000"`}, minutes10), `{instance="e2:30000", model_name="m_x"} 5`)
	s.want("all but one engine", s.signal("running", Query{Match: `instance!~"e2:.*"`}, minutes10), `{} 3`)
	s.want("count", s.count("ttft", Query{}, minutes10), `{} 2`)
	s.want("count by engine", s.count("ttft", Query{By: ByEngine}, minutes10), `{instance="e1:30000", model_name="m:x"} 2`)
	s.want("quantile by engine", s.signal("ttft", Query{By: ByEngine, Quantile: 0.5}, minutes10), `{instance="e1:30000", model_name="m:x"} 0.5`)
	s.want("count by role", s.count("ttft", Query{By: ByRole}, minutes10), `{role="unified"} 2`)
	s.evaluate(minutes10-30*time.Second, minutes10)
	s.want("recorded", s.signal("running", Query{By: ByEngine, Form: Recorded}, minutes10),
		`{backend="sglang", instance="e1:30000", model_name="m", role="unified"} 3`, `{backend="sglang", instance="e2:30000", model_name="m_x", role="unified"} 5`)
	s.want("recorded fleet", s.signal("running", Query{Form: Recorded}, minutes10), `{} 8`)
	s.want("recorded count", s.count("ttft", Query{Form: Recorded}, minutes10), `{} 2`)
	s.want("recorded p50", s.signal("ttft", Query{Form: Recorded, Quantile: 0.5}, minutes10), `{} 0.5`)
	s.want("recorded p90", s.signal("ttft", Query{Form: Recorded, Quantile: 0.9, By: ByRole}, minutes10), `{role="unified"} 0.9`)
}

// exposition turns a case's exposition into series of one target: gauges stay at their value, counters and
// histograms grow by it every 15 s. Names become canonical, as the scraper stores them.
func exposition(t *testing.T, file, target string, rename ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "cases", file))
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]string{}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if f := strings.Fields(line); strings.HasPrefix(line, "# TYPE") {
			types[f[2]] = f[3]
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		series, value := line[:strings.LastIndexByte(line, ' ')], line[strings.LastIndexByte(line, ' ')+1:]
		name, lset, _ := strings.Cut(series, "{")
		family, _ := splitSuffix(name)
		points := value + "x60"
		if typ := types[family]; typ == "histogram" || typ == "counter" || types[name] == "counter" {
			points = "0+" + value + "x60"
		}
		lset = strings.NewReplacer(`le="1"`, `le="1.0"`, `le="5"`, `le="5.0"`).Replace(lset) // as Prometheus 3 does at scrape
		fmt.Fprintf(&out, "  %s{%s,%s %s\n", Canonical(name), target, lset, points)
	}
	return out.String()
}

func TestSpellings(t *testing.T) { // M01
	direct := load(t, "load 15s\n"+exposition(t, "M01/engine.prom", `job="e",instance="10.0.0.11:30000"`))
	routed := load(t, "load 15s\n"+exposition(t, "M01/router.prom", `job="r",instance="router:29000"`))
	both := load(t, "load 15s\n"+exposition(t, "M01/engine.prom", `job="e",instance="10.0.0.11:30000"`)+exposition(t, "M01/router.prom", `job="r",instance="router:29000"`))
	for name, s := range map[string]*store{"direct": direct, "routed": routed, "both": both} {
		s.want(name+": running", s.signal("running", Query{By: ByEngine}, minutes10), `{instance="10.0.0.11:30000", model_name="acme/chat-7b"} 3`)
		s.want(name+": requests per 15 s", s.query("15 * ("+must(CompileCount, "ttft", Query{})+")", minutes10), `{} 40`)
		s.want(name+": quantile", s.signal("ttft", Query{Quantile: 0.9}, minutes10), `{} 1`)
	}
}

func must(compile func(Signal, Query) (string, error), id string, q Query) string {
	s, ok := Default().Signal(id)
	if !ok {
		panic("no signal " + id)
	}
	e, err := compile(s, q)
	if err != nil {
		panic(err)
	}
	return e
}

func TestModelNameThroughRouter(t *testing.T) { // M03
	s := load(t, "load 15s\n"+exposition(t, "M03/engine.prom", `job="e",instance="10.0.0.11:30000"`)+exposition(t, "M03/router.prom", `job="r",instance="router:29000"`))
	s.want("one engine, one model", s.signal("throughput", Query{By: ByEngine}, minutes10), `{instance="10.0.0.11:30000", model_name="acme/chat-7b:v2"} 60`)
	s.want("models", s.signal("throughput", Query{By: ByModel}, minutes10), `{model_name="acme/chat-7b:v2"} 60`)
	s.want("fleet", s.signal("throughput", Query{}, minutes10), `{} 60`)
}

func TestDataParallelRanksAdd(t *testing.T) { // M06
	s := load(t, "load 15s\n"+exposition(t, "M06/labelled.prom", `job="e",instance="e1:30000"`))
	s.want("four ranks", s.signal("throughput", Query{}, minutes10), `{} 300`)
	s.want("one engine", s.signal("throughput", Query{By: ByEngine}, minutes10), `{instance="e1:30000", model_name="acme/chat-7b"} 300`)
}

func TestTensorParallelRanksDoNot(t *testing.T) {
	var b strings.Builder
	b.WriteString("load 15s\n")
	for dp := range 2 {
		for tp := range 4 {
			l := fmt.Sprintf(`job="e",instance="e1:1",model_name="m",engine_type="unified",dp_rank="%d",tp_rank="%d",pp_rank="0",moe_ep_rank="%d"`, dp, dp*4+tp, tp)
			fmt.Fprintf(&b, "  sglang:queue_time_seconds_bucket{%s,le=\"1.0\"} 0+15x60\n", l)
			fmt.Fprintf(&b, "  sglang:queue_time_seconds_bucket{%s,le=\"+Inf\"} 0+30x60\n", l)
			fmt.Fprintf(&b, "  sglang:queue_time_seconds_count{%s} 0+30x60\n", l)
			fmt.Fprintf(&b, "  sglang:num_queue_reqs{%s,priority=\"\"} 7x60\n", l)
			fmt.Fprintf(&b, "  sglang:num_queue_reqs{%s,priority=\"1\"} 5x60\n", l)
			fmt.Fprintf(&b, "  sglang:num_queue_reqs{%s,priority=\"None\"} 2x60\n", l)
			fmt.Fprintf(&b, "  sglang:num_retracted_requests_total{%s} 0+15x60\n", l)
			fmt.Fprintf(&b, "  sglang:prefill_effective_tokens_total{%s,mode=\"input\"} 0+150x60\n", l)
			fmt.Fprintf(&b, "  sglang:prefill_effective_tokens_total{%s,mode=\"device_hit\"} 0+300x60\n", l)
			fmt.Fprintf(&b, "  sglang:prefill_effective_tokens_total{%s,mode=\"host_hit\"} 0+150x60\n", l)
			fmt.Fprintf(&b, "  sglang:token_usage{%s} 0.%dx60\n", l, 3+dp)
		}
	}
	s := load(t, b.String())
	for _, by := range []By{ByFleet, ByEngine, ByRole} {
		labels := map[By]string{ByFleet: `{}`, ByEngine: `{instance="e1:1", model_name="m"}`, ByRole: `{role="unified"}`}[by]
		s.want("queue", s.signal("queue_depth", Query{By: by}, minutes10), labels+" 14")
		s.want("queue time count", s.count("queue_time", Query{By: by}, minutes10), labels+" 4")
		s.want("retractions", s.signal("retractions", Query{By: by}, minutes10), labels+" 2")
		s.want("hit rate", s.signal("cache_hit_rate", Query{By: by}, minutes10), labels+" 0.75")
		s.want("hit rate's tokens", s.count("cache_hit_rate", Query{By: by}, minutes10), labels+" 80")
		s.want("fullest rank", s.signal("kv_usage", Query{By: by}, minutes10), labels+" 0.4")
	}
}

func TestRolesOfTargets(t *testing.T) { // M09, P08
	s := load(t, "load 15s\n"+exposition(t, "M09/pd.prom", `job="e",instance="d1:30000"`)+`
	  sglang:num_running_reqs{job="e",instance="p1:30000",engine_type="prefill",tp_rank="0"} 2x60
	  sglang:generation_tokens_total{job="e",instance="p1:30000",engine_type="unified"} 0+1500x60
	  sglang:generation_tokens_total{job="e",instance="old:30000"} 0+1500x60
	  sglang:generation_tokens_total{job="e",instance="t1:30000",engine_type="prefill"} 0+1500x60
	  vllm:num_requests_running{job="v",instance="v1:8000",engine="0"} 1x60
	  vllm:generation_tokens_total{job="v",instance="v1:8000",engine="0"} 0+1500x60
	  sglang:generation_tokens_total{job="e",instance="c1:30000",engine_type="unified"} 0+1500x60
	  rollscope_target_info{job="e",instance="c1:30000",role="decode",backend="sglang"} 1x60
	  dynamo_component_inflight_requests{job="k",instance="w1:8081",dynamo_namespace="n",dynamo_component="prefill",dynamo_endpoint="generate"} 1x60
	  dynamo_component_inflight_requests{job="k",instance="w2:8081",dynamo_namespace="n",dynamo_component="backend",dynamo_endpoint="generate"} 1x60
	  dynamo_component_inflight_requests{job="k",instance="w3:8081",dynamo_namespace="aggregated",dynamo_component="backend",dynamo_endpoint="generate"} 1x60
	  dynamo_component_requests_total{job="k",instance="w1:8081",dynamo_namespace="n",dynamo_component="prefill",dynamo_endpoint="generate"} 0+15x60
	  dynamo_component_requests_total{job="k",instance="w2:8081",dynamo_namespace="n",dynamo_component="backend",dynamo_endpoint="generate"} 0+30x60
	  dynamo_component_requests_total{job="k",instance="w3:8081",dynamo_namespace="aggregated",dynamo_component="backend",dynamo_endpoint="generate"} 0+60x60
	`)
	s.want("token counters by role", s.signal("generation_tokens", Query{By: ByRole}, minutes10),
		`{role="decode"} 433.3`, `{role="prefill"} 200`, `{role="unified"} 200`)
	s.want("their total", s.signal("generation_tokens", Query{}, minutes10), `{} 833.3`)
	s.want("running by role", s.signal("running", Query{By: ByRole}, minutes10), `{role="decode"} 4`, `{role="prefill"} 2`, `{role="unified"} 1`)
	s.want("components by role", s.signal("component_requests", Query{By: ByRole}, minutes10), `{role="decode"} 2`, `{role="prefill"} 1`, `{role="unified"} 4`)
	s.evaluate(minutes10-30*time.Second, minutes10)
	s.want("recorded by role", s.signal("generation_tokens", Query{By: ByRole, Form: Recorded}, minutes10),
		`{role="decode"} 433.3`, `{role="prefill"} 200`, `{role="unified"} 200`)
	s.want("recorded components by role", s.signal("component_requests", Query{By: ByRole, Form: Recorded}, minutes10),
		`{role="decode"} 2`, `{role="prefill"} 1`, `{role="unified"} 4`)
}

func TestOldAndNewVLLM(t *testing.T) { // M11
	s := load(t, "load 15s\n"+exposition(t, "M11/vllm-old.prom", `job="v",instance="old:8000"`)+exposition(t, "M11/vllm-new.prom", `job="v",instance="new:8000"`))
	s.want("KV usage", s.signal("kv_usage", Query{By: ByEngine}, minutes10),
		`{instance="new:8000", model_name="acme/chat-7b"} 0.55`, `{instance="old:8000", model_name="acme/chat-7b"} 0.42`)
	s.want("tokens per 15 s", s.query("15 * ("+must(CompileCount, "itl", Query{By: ByEngine})+")", minutes10),
		`{instance="new:8000", model_name="acme/chat-7b"} 7`, `{instance="old:8000", model_name="acme/chat-7b"} 7`)
	s.want("fleet", s.query("15 * ("+must(CompileCount, "itl", Query{})+")", minutes10), `{} 14`)
}

func TestRay(t *testing.T) { // M12
	s := load(t, "load 15s\n"+exposition(t, "M12/ray.prom", `job="ray",instance="agent:8080"`))
	s.want("the worker is the engine", s.signal("running", Query{By: ByEngine}, minutes10),
		`{instance="w1", model_name="acme/chat-7b"} 2`, `{instance="w2", model_name="acme/chat-7b"} 2`, `{instance="w3", model_name="acme/chat-7b"} 5`)
	s.want("total", s.signal("running", Query{}, minutes10), `{} 9`)
	s.want("one worker", s.signal("running", Query{By: ByEngine, Match: `instance="w2"`}, minutes10), `{instance="w2", model_name="acme/chat-7b"} 2`)
	s.evaluate(minutes10-30*time.Second, minutes10)
	s.want("recorded", s.signal("running", Query{Form: Recorded}, minutes10), `{} 9`)
}

func TestCacheHitRateCountsTokens(t *testing.T) { // M13
	series, err := os.ReadFile("testdata/cases/M13/data.promtest")
	if err != nil {
		t.Fatal(err)
	}
	loads, _, _ := strings.Cut(string(series), "\neval")
	s := load(t, loads)
	s.want("75 percent", s.signal("cache_hit_rate", Query{}, 5*time.Minute), `{} 0.75`)
	s.want("75 percent by engine", s.signal("cache_hit_rate", Query{By: ByEngine}, 5*time.Minute), `{instance="e1"} 0.75`)

	gauge := load(t, `load 15s
	  sglang:cache_hit_rate{instance="e1",tp_rank="0"} 0.9x60
	`)
	s = gauge
	s.want("the gauge where nothing else is", s.signal("cache_hit_rate", Query{}, minutes10), `{} 0.9`)
	cold := load(t, `load 15s
	  sglang:realtime_tokens_total{instance="e1",mode="prefill_compute",tp_rank="0"} 0+15x60
	  sglang:cache_hit_rate{instance="e1",tp_rank="0"} 0.9x60
	`)
	cold.want("no hit yet is 0", cold.signal("cache_hit_rate", Query{}, minutes10), `{} 0`)
	finished := load(t, `load 15s
	  sglang:cached_tokens_total{instance="e1",cache_source="device"} 0+15x60
	  sglang:cached_tokens_total{instance="e1",cache_source="host"} 0+15x60
	  sglang:prompt_tokens_total{instance="e1"} 0+120x60
	  sglang:prompt_tokens_total{instance="e2"} 0+120x60
	`)
	finished.want("finished requests", finished.signal("cache_hit_rate", Query{}, minutes10), `{} 0.125`)
	idle := load(t, `load 15s
	  sglang:realtime_tokens_total{instance="e1",mode="prefill_compute",tp_rank="0"} 15x60
	  sglang:realtime_tokens_total{instance="e1",mode="prefill_cache",tp_rank="0"} 15x60
	  sglang:prompt_tokens_total{instance="e1"} 120x60
	  sglang:cache_hit_rate{instance="e1",tp_rank="0"} 0.9x60
	`)
	idle.want("idle is not the gauge", idle.signal("cache_hit_rate", Query{}, minutes10))
	idle.want("idle is 0 tokens", idle.count("cache_hit_rate", Query{}, minutes10), `{} 0`)
}

func TestTopBucket(t *testing.T) { // M16
	series, err := os.ReadFile("testdata/cases/M16/data.promtest")
	if err != nil {
		t.Fatal(err)
	}
	loads, _, _ := strings.Cut(string(series), "\neval")
	s := load(t, loads)
	s.want("p99 is the top bound", s.signal("e2e", Query{}, 5*time.Minute), `{} 60`)
	s.want("buckets", s.query("30 * ("+must(CompileBuckets, "e2e", Query{})+")", 5*time.Minute),
		`{le="1.0"} 10`, `{le="5.0"} 40`, `{le="10.0"} 70`, `{le="30.0"} 85`, `{le="60.0"} 90`, `{le="+Inf"} 100`)
}

func TestBucketSpellings(t *testing.T) { // M18
	s := load(t, "load 15s\n"+exposition(t, "M18/a.prom", `job="e",instance="a:1"`)+exposition(t, "M18/b.prom", `job="e",instance="b:1"`))
	s.want("one bucket", s.query("15 * ("+must(CompileBuckets, "ttft", Query{})+")", minutes10), `{le="1.0"} 30`, `{le="5.0"} 40`, `{le="+Inf"} 40`)
}

func TestIdle(t *testing.T) { // P01
	series, err := os.ReadFile("testdata/cases/P01/idle.promtest")
	if err != nil {
		t.Fatal(err)
	}
	loads, _, _ := strings.Cut(string(series), "\neval")
	s := load(t, loads+`
	  dynamo_frontend_time_to_first_token_seconds_bucket{model="chat-7b",le="1.0"} 40x20 40+10x20
	  dynamo_frontend_time_to_first_token_seconds_bucket{model="chat-7b",le="+Inf"} 60x20 60+10x20
	`)
	s.want("no NaN", s.signal("ttft", Query{}, minutes10))
	s.want("no NaN by engine", s.signal("ttft", Query{By: ByEngine}, minutes10))
	s.want("nobody came", s.count("ttft", Query{}, minutes10), `{} 0`)
	s.want("rate is 0", s.signal("request_rate", Query{}, minutes10), `{} 0`)
	s.want("first traffic", s.signal("ttft", Query{}, minutes10+time.Minute), `{} 0.99`)
	s.want("never seen", s.count("itl", Query{}, minutes10))
	s.evaluate(minutes10-30*time.Second, minutes10)
	s.want("recorded has no NaN", s.signal("ttft", Query{Form: Recorded}, minutes10))
	s.want("recorded nobody came", s.count("ttft", Query{Form: Recorded}, minutes10), `{} 0`)
}

func TestTwoBucketLayouts(t *testing.T) {
	s := load(t, `load 15s
	  sglang:time_to_first_token_seconds_bucket{instance="a:1",le="0.1"} 0+15x60
	  sglang:time_to_first_token_seconds_bucket{instance="a:1",le="1.0"} 0+30x60
	  sglang:time_to_first_token_seconds_bucket{instance="a:1",le="+Inf"} 0+30x60
	  vllm:time_to_first_token_seconds_bucket{instance="b:1",engine="0",le="0.25"} 0+15x60
	  vllm:time_to_first_token_seconds_bucket{instance="b:1",engine="0",le="1.0"} 0+15x60
	  vllm:time_to_first_token_seconds_bucket{instance="b:1",engine="0",le="+Inf"} 0+30x60
	  vllm:time_to_first_token_seconds_bucket{instance="b:1",engine="1",le="0.25"} 0+15x60
	  vllm:time_to_first_token_seconds_bucket{instance="b:1",engine="1",le="1.0"} 0+15x60
	  vllm:time_to_first_token_seconds_bucket{instance="b:1",engine="1",le="+Inf"} 0+30x60
	  sglang:time_to_first_token_seconds_count{instance="a:1"} 0+30x60
	  vllm:time_to_first_token_seconds_count{instance="b:1",engine="0"} 0+30x60
	`)
	s.want("common bounds", s.query(must(CompileBuckets, "ttft", Query{CommonBounds: true}), minutes10), `{le="1.0"} 4`, `{le="+Inf"} 6`)
	s.want("their quantile", s.signal("ttft", Query{CommonBounds: true, Quantile: 0.5}, minutes10), `{} 0.75`)
	s.want("by role", s.query(must(CompileBuckets, "ttft", Query{CommonBounds: true, By: ByRole}), minutes10), `{le="1.0", role="unified"} 4`, `{le="+Inf", role="unified"} 6`)
	s.evaluate(minutes10-30*time.Second, minutes10)
	s.want("recorded", s.signal("ttft", Query{Form: Recorded, Quantile: 0.5}, minutes10), `{} 0.75`)
	disjoint := load(t, `load 15s
	  sglang:time_to_first_token_seconds_bucket{instance="a:1",le="0.1"} 0+15x60
	  sglang:time_to_first_token_seconds_bucket{instance="a:1",le="+Inf"} 0+30x60
	  vllm:time_to_first_token_seconds_bucket{instance="b:1",engine="0",le="0.25"} 0+15x60
	  vllm:time_to_first_token_seconds_bucket{instance="b:1",engine="0",le="+Inf"} 0+30x60
	`)
	disjoint.want("nothing in common", disjoint.signal("ttft", Query{CommonBounds: true}, minutes10))
}

func TestVersionsInOneFleet(t *testing.T) {
	s := load(t, `load 15s
	  sglang:queue_time_s_count{instance="old:1",tp_rank="0"} 0+15x60
	  sglang:queue_time_seconds_count{instance="new:1",tp_rank="0"} 0+15x60
	  sglang:queue_time_seconds_count{instance="new:1",tp_rank="1"} 0+15x60
	  vllm:request_queue_time_seconds_count{instance="v:1",engine="0"} 0+15x60
	  sglang:num_prefill_prealloc_queue_reqs{instance="old:1",engine_type="prefill"} 2x60
	  sglang:num_prefill_bootstrap_queue_reqs{instance="new:1",engine_type="prefill",priority=""} 3x60
	  sglang:kv_transfer_latency_ms{instance="old:1"} 250x60
	  sglang:kv_transfer_latency_ms_bucket{instance="new:1",le="100"} 0+15x60
	  sglang:kv_transfer_latency_ms_bucket{instance="new:1",le="250"} 0+30x60
	  sglang:kv_transfer_latency_ms_bucket{instance="new:1",le="+Inf"} 0+30x60
	  sglang:kv_transfer_speed_gb_s_bucket{instance="new:1",le="10"} 0+30x60
	  sglang:kv_transfer_speed_gb_s_bucket{instance="new:1",le="+Inf"} 0+30x60
	  sglang:num_used_tokens{instance="new:1",dp_rank="0",tp_rank="0"} 90x60
	  sglang:max_total_num_tokens{instance="new:1",dp_rank="0",tp_rank="0"} 100x60
	  sglang:max_total_num_tokens{instance="new:1",dp_rank="0",tp_rank="1"} 100x60
	  sglang:num_used_tokens{instance="new:1",dp_rank="1",tp_rank="0"} 10x60
	  sglang:max_total_num_tokens{instance="new:1",dp_rank="1",tp_rank="0"} 100x60
	  sglang:spec_accept_length{instance="new:1",tp_rank="0"} 2.5x60
	  sglang:spec_accept_rate{instance="new:1",tp_rank="0"} 0.4x60
	  sglang:spec_accept_length{instance="off:1",tp_rank="0"} 0x60
	  sglang:spec_accept_rate{instance="off:1",tp_rank="0"} 0x60
	  sglang:fwd_occupancy{instance="off:1",tp_rank="0"} 80x60
	`)
	s.append(`sglang:fwd_occupancy{instance="new:1",tp_rank="0"}`, minutes10, math.NaN())
	s.want("queue time", s.count("queue_time", Query{}, minutes10), `{} 3`)
	s.want("bootstrap queue", s.signal("pd_bootstrap_queue", Query{}, minutes10), `{} 5`)
	s.want("milliseconds become seconds", s.signal("kv_transfer_latency", Query{Quantile: 0.5}, minutes10), `{} 0.1`)
	s.want("old gauge too", s.signal("kv_transfer_latency_last", Query{}, minutes10), `{} 0.25`)
	s.want("speed", s.signal("kv_transfer_speed", Query{Quantile: 0.5}, minutes10), `{} 5`)
	s.want("used over capacity", s.signal("kv_usage", Query{By: ByEngine}, minutes10), `{instance="new:1"} 0.9`)
	s.want("off is no measurement", s.signal("spec_accept_rate", Query{By: ByEngine}, minutes10), `{instance="new:1"} 0.4`)
	s.want("lowest", s.signal("spec_accept_length", Query{}, minutes10), `{} 2.5`)
	s.want("NaN is no measurement", s.signal("gpu_busy", Query{}, minutes10), `{} 0.8`)
}

func TestAbsentCounters(t *testing.T) { // M15
	s := load(t, `load 15s
	  sglang:num_requests_total{instance="a:1"} 0+15x60
	  sglang:num_requests_total{instance="b:1"} 0+15x60
	  sglang:num_aborted_requests_total{instance="b:1"} 0+30x60
	  sglang:num_queue_rejected_requests_total{instance="b:1",tp_rank="0",reason="queue_full"} 0+15x60
	  sglang:num_queue_rejected_requests_total{instance="b:1",tp_rank="1",reason="queue_full"} 0+15x60
	  sglang:request_outcomes_total{instance="c:1",outcome="success",reason=""} 0+45x60
	  sglang:request_outcomes_total{instance="c:1",outcome="abort",reason="client"} 0+15x60
	  sglang:num_requests_total{instance="c:1"} 0+15x60
	`)
	s.want("no abort yet is 0", s.signal("aborts", Query{By: ByEngine}, minutes10), `{instance="a:1"} 0`, `{instance="b:1"} 2`, `{instance="c:1"} 0`)
	s.want("no rejection counter is unknown", s.signal("rejections", Query{By: ByEngine}, minutes10), `{instance="b:1"} 1`)
	s.want("outcomes where they are counted", s.signal("outcomes", Query{By: ByEngine}, minutes10),
		`{instance="a:1"} 1`, `{instance="b:1"} 0.25`, `{instance="c:1"} 0.75`)
}

func TestFrontendOnlyWhereNoEngineIs(t *testing.T) {
	front := `
	  dynamo_frontend_output_tokens_total{job="f",instance="f:8000",model="m"} 0+150x60
	`
	only := load(t, "load 15s"+front)
	only.want("frontend alone", only.signal("throughput", Query{}, minutes10), `{} 10`)
	only.want("frontend by role", only.signal("throughput", Query{By: ByRole}, minutes10), `{role="frontend"} 10`)
	only.want("frontend by model", only.signal("throughput", Query{By: ByModel}, minutes10), `{model_name="m"} 10`)
	only.want("frontend by engine", only.signal("throughput", Query{By: ByEngine, Match: `model_name="m"`}, minutes10), `{instance="f:8000", model_name="m"} 10`)
	only.evaluate(minutes10-30*time.Second, minutes10)
	only.want("recorded", only.signal("throughput", Query{By: ByEngine, Form: Recorded}, minutes10),
		`{backend="dynamo_frontend", instance="f:8000", model_name="m", role="frontend"} 10`)
	both := load(t, "load 15s"+front+`
	  sglang:realtime_tokens_total{job="w",instance="w:8081",model_name="M",mode="decode",tp_rank="0"} 0+120x60
	`)
	both.want("engine", both.signal("throughput", Query{}, minutes10), `{} 8`)
	both.evaluate(minutes10-30*time.Second, minutes10)
	both.want("recorded engine", both.signal("throughput", Query{By: ByEngine, Form: Recorded}, minutes10), `{backend="sglang", instance="w:8081", model_name="M", role="unified"} 8`)
}
