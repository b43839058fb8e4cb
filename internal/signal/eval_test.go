package signal

import (
	"context"
	"fmt"
	"log/slog"
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
	"github.com/prometheus/prometheus/util/teststorage"
)

// store is a storage with loaded series, a PromQL engine as Rollscope runs it, and the built-in rules.
type store struct {
	t      *testing.T
	db     *teststorage.TestStorage
	engine *promql.Engine
	groups []*rules.Group
}

// load fills a store with series in promqltest's notation ("load 15s" and lines of series).
func load(t *testing.T, series string) *store {
	t.Helper()
	db := promqltest.LoadedStorage(t, series)
	e := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
		Parser: parser.NewParser(parser.Options{}),
	})
	return &store{t: t, db: db, engine: e}
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
		lb.Del(labels.MetricName)
		out = append(out, fmt.Sprintf("%s %.4g", lb.Labels(), p.F))
	}
	slices.Sort(out)
	return out
}

// signal evaluates a signal of the catalog.
func (s *store) signal(id string, q Query, at time.Duration) []string {
	s.t.Helper()
	sig, ok := Default().Signal(id)
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
	sig, _ := Default().Signal(id)
	expr, err := CompileCount(sig, q)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.query(expr, at)
}

// evaluate runs the built-in rules every 15 s over a span, recording rules first, as the rule manager does.
func (s *store) evaluate(from, to time.Duration) {
	s.t.Helper()
	if s.groups == nil {
		s.groups = s.loadRules()
	}
	for at := from; at <= to; at += 15 * time.Second {
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
	for _, name := range sortedKeys(byName) {
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
	s.evaluate(5*time.Minute, minutes10)
	s.want("recorded", s.signal("running", Query{By: ByEngine, Form: Recorded}, minutes10),
		`{backend="sglang", instance="e1:30000", model_name="m", role="unified"} 3`, `{backend="sglang", instance="e2:30000", model_name="m_x", role="unified"} 5`)
	s.want("recorded fleet", s.signal("running", Query{Form: Recorded}, minutes10), `{} 8`)
	s.want("recorded count", s.count("ttft", Query{Form: Recorded}, minutes10), `{} 2`)
	s.want("recorded p50", s.signal("ttft", Query{Form: Recorded, Quantile: 0.5}, minutes10), `{} 0.5`)
	s.want("recorded p90", s.signal("ttft", Query{Form: Recorded, Quantile: 0.9, By: ByRole}, minutes10), `{role="unified"} 0.9`)
}
