package scrape

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/model/value"
	promscrape "github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	promconfig "github.com/prometheus/prometheus/config"

	"github.com/rollscope/rollscope/internal/signal"
)

// dropped reads rollscope_dropped_total{source="scrape"}.
func (r *rig) dropped(reason string) float64 {
	return testutil.ToFloat64(r.m.metrics.dropped.WithLabelValues("scrape", reason))
}

// The rule for spellings and signal.Canonical say the same.
func TestSpellingRule(t *testing.T) {
	rule, err := spellingRule()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{
		"sglang:x", "sglang_x", "ray_sglang_x", "ray_sglang:x", "ray_serve_sglang_x", "vllm:x", "vllm_x", "ray_vllm:x", "ray_vllm_x",
		"sgl_router_requests_total", "smg_x", "up", "sglang", "sglang_", "sglang:", "sglangx", "ray_x", "ray_serve_x", "xsglang_x",
		"ray_ray_sglang_x", "sglang__x", "sglang:a:b", "sglang_a:b", "vllm", "rayserve_vllm_x", "sglang_\n",
	}
	for _, m := range signal.Default().Metrics() {
		names = append(names, signal.Spellings(m.Name)...)
	}
	for _, n := range names {
		lb := labels.NewBuilder(labels.FromStrings("__name__", n))
		keep := relabel.ProcessBuilder(lb, rule)
		if got := lb.Get("__name__"); !keep || got != signal.Canonical(n) {
			t.Errorf("%q becomes %q (kept: %v), signal.Canonical says %q", n, got, keep, signal.Canonical(n))
		}
	}
}

// Case M18: after ingest there is one bucket for 1 s on each engine, and the fleet has 30 there.
func TestBucketBoundsHaveOneSpelling(t *testing.T) {
	a := read(t, "testdata/cases/M18/a.prom")
	b := read(t, "testdata/cases/M18/b.prom")
	bare := strings.Join(strings.SplitAfter(b, "\n")[1:], "") // without its TYPE line
	for _, tt := range []struct{ name, b string }{{"typed", b}, {"untyped", bare}} {
		t.Run(tt.name, func(t *testing.T) {
			r := start(t, yamlConfig(t, jobFor("a", serve(t, &page{body: a}))+jobFor("b", serve(t, &page{body: tt.b}))))
			bucket := name("sglang:time_to_first_token_seconds_bucket")
			eventually(t, "both are stored", func() bool { return len(r.points(t, bucket)) == 6 })
			sum := 0.0
			for _, vs := range r.points(t, bucket, eq("le", "1.0")) {
				sum += vs[0] // the page never changes; a scrape that times out ends the series
			}
			if sum != 30 {
				t.Errorf("the fleet has %v at 1 s", sum)
			}
			if got := r.points(t, bucket, eq("le", "1")); len(got) != 0 {
				t.Errorf("le=\"1\" is stored too: %v", got)
			}
		})
	}
}

func TestQuantilesHaveOneSpelling(t *testing.T) {
	for _, typ := range []string{"# TYPE q summary\n", ""} {
		r := start(t, yamlConfig(t, jobFor("a", serve(t, &page{body: typ + "q{quantile=\"0.50\"} 1\nq{quantile=\"1\"} 2\n"}))))
		eventually(t, "the summary is stored", func() bool {
			return len(r.points(t, name("q"), eq("quantile", "0.5"))) == 1 && len(r.points(t, name("q"), eq("quantile", "1.0"))) == 1
		})
	}
}

// A label le on something that is declared to be no histogram is left alone.
func TestOtherLabelsKeepTheirSpelling(t *testing.T) {
	r := start(t, yamlConfig(t, jobFor("a", serve(t, &page{body: "# TYPE g gauge\ng{gt=\"1\",le=\"2\"} 1\n"}))))
	eventually(t, "the gauge is stored", func() bool { return len(r.points(t, name("g"), eq("le", "2"))) == 1 })
}

// Case M19: the scrape succeeds, the first value is stored, each scrape counts one duplicate, and one
// warning names target, series and both values.
func TestDuplicateSeries(t *testing.T) {
	p := &page{body: read(t, "testdata/cases/M19/dup.prom")}
	addr := serve(t, p)
	r := start(t, yamlConfig(t, jobFor("a", addr)))
	eventually(t, "several scrapes and the warning", func() bool {
		return r.dropped(dropDuplicateSeries) >= 5 && r.log.count("stands twice in one answer") == 1
	})
	for l, vs := range r.points(t, name("sglang:num_queue_reqs")) {
		for _, v := range vs {
			if v != 4 && !value.IsStaleNaN(v) {
				t.Errorf("%s: %v, the first value is 4", l, vs)
			}
		}
	}
	if run := r.points(t, name("sglang:num_running_reqs")); len(run) != 1 {
		t.Errorf("the other series: %v", run)
	}
	var ti TargetInfo
	eventually(t, "it is up", func() bool { ti = r.only(t); return ti.Up != nil && *ti.Up && ti.Reason == ReasonNone })
	// One is counted in each scrape that succeeds; the last one before and the first one after the look may be under way.
	ups := func() (n float64) {
		for _, vs := range r.points(t, name("up")) {
			for _, v := range vs {
				n += v
			}
		}
		return n
	}
	before := ups()
	ti = r.only(t)
	if n := float64(ti.Drops[dropDuplicateSeries]); n < before-1 || n > ups()+1 {
		t.Errorf("%v duplicates counted in %v scrapes", n, before)
	}
	said := r.log.String()
	for _, want := range []string{addr, "sglang:num_queue_reqs", "with 4", "with 9"} {
		if !strings.Contains(said, want) {
			t.Errorf("the warning does not say %q", want)
		}
	}
	if n := r.log.count("level=WARN") - r.log.count("reason=timeout"); n != 1 {
		t.Errorf("%d warnings", n)
	}
	if len(ti.Findings) == 0 || ti.Findings[0].Code != "duplicate_series" {
		t.Errorf("findings %+v", ti.Findings)
	}
}

// One series in two spellings is one series: the first wins, the second is counted.
func TestTwoSpellingsOfOneSeries(t *testing.T) {
	p := &page{body: "# TYPE ray_vllm:num_requests_running gauge\nray_vllm:num_requests_running{WorkerId=\"w\"} 2\n# TYPE ray_vllm_num_requests_running gauge\nray_vllm_num_requests_running{WorkerId=\"w\"} 7\n"}
	r := start(t, yamlConfig(t, jobFor("a", serve(t, p))))
	eventually(t, "several scrapes", func() bool { return r.dropped(dropDuplicateSeries) >= 5 })
	got := r.points(t, name("vllm:num_requests_running"))
	if len(got) != 1 {
		t.Fatalf("series %v", got)
	}
	for _, vs := range got {
		for _, v := range vs {
			if v != 2 && !value.IsStaleNaN(v) {
				t.Errorf("values %v, the first is 2", vs)
			}
		}
	}
}

// A series that goes and comes back is no duplicate, and the manager forgets the suspicion.
func TestSeriesThatComesBack(t *testing.T) {
	const with, without = "a 1\nb 2\n", "a 1\n"
	p := &page{body: with}
	r := start(t, yamlConfig(t, jobFor("a", serve(t, p))))
	n := func() int {
		for _, vs := range r.points(t, name("b")) {
			return len(vs)
		}
		return 0
	}
	eventually(t, "b is stored", func() bool { return n() > 1 })
	for range 3 {
		p.set(func(p *page) { p.body = without })
		before := n()
		eventually(t, "b is stale", func() bool { return n() > before })
		p.set(func(p *page) { p.body = with })
		before = n()
		eventually(t, "b is back", func() bool { return n() > before+2 })
	}
	if d := r.dropped(dropDuplicateSeries); d != 0 {
		t.Errorf("%v duplicates", d)
	}
	var tg *target
	r.m.watch.targets.Range(func(_, v any) bool { tg = v.(*target); return false })
	eventually(t, "no suspicion is left", func() bool {
		tg.scan.Lock()
		defer tg.scan.Unlock()
		return len(tg.alias) == 0
	})
}

// Case M12: three spellings of Ray's, one name each, 9 in all.
func TestRaySpellings(t *testing.T) {
	r := start(t, yamlConfig(t, jobFor("a", serve(t, &page{body: read(t, "testdata/cases/M12/ray.prom")}))))
	eventually(t, "all are stored", func() bool {
		return len(r.points(t, name("vllm:num_requests_running"))) == 2 && len(r.points(t, name("sglang:num_running_reqs"))) == 1
	})
	sum := 0.0
	for _, n := range []string{"vllm:num_requests_running", "sglang:num_running_reqs"} {
		for _, vs := range r.points(t, name(n)) {
			sum += vs[0] // the page never changes
		}
	}
	if sum != 9 {
		t.Errorf("total %v", sum)
	}
	if got := r.points(t, name("sglang:num_running_reqs"), eq("WorkerId", "w3"), eq("ReplicaId", "r1")); len(got) != 1 {
		t.Error("Ray's labels are lost")
	}
}

// The user's own relabelling sees the names as they are written, and goes first.
func TestUsersRulesGoFirst(t *testing.T) {
	p := &page{body: "sglang_keep 1\nsglang_drop 1\n"}
	r := start(t, yamlConfig(t, jobFor("a", serve(t, p))+"  metric_relabel_configs: [{source_labels: [__name__], regex: sglang_drop, action: drop}]\n"))
	eventually(t, "keep is stored", func() bool { return len(r.points(t, name("sglang:keep"))) == 1 })
	if got := r.points(t, name("sglang:drop")); len(got) != 0 {
		t.Errorf("dropped series is stored: %v", got)
	}
}

// The load report's names mean something else and are kept.
func TestLoadReportKeepsItsNames(t *testing.T) {
	p := &page{path: "/v1/loads", body: "# TYPE sglang_num_used_tokens gauge\nsglang_num_used_tokens{dp_rank=\"0\"} 5\nsglang_num_total_tokens 6\n"}
	r := start(t, yamlConfig(t, jobFor("a", serve(t, p))+"  metrics_path: /v1/loads\n"))
	eventually(t, "it is stored", func() bool { return len(r.points(t, name("sglang_num_used_tokens"))) == 1 })
	if got := r.points(t, name("sglang:num_used_tokens")); len(got) != 0 {
		t.Errorf("renamed: %v", got)
	}
}

// Types survive the mixed form of OpenMetrics and the router's spelling.
func TestMetadataUnderCanonicalNames(t *testing.T) {
	mixed := "# HELP sglang:x X\n# TYPE sglang:x counter\nsglang_x_total 1\n# EOF\n"
	router := "# HELP sglang_y Y\n# TYPE sglang_y histogram\nsglang_y_bucket{le=\"+Inf\"} 1\nsglang_y_sum 1\nsglang_y_count 1\n"
	r := start(t, yamlConfig(t, jobFor("a", serve(t, &page{body: mixed, ctype: "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"}))+
		jobFor("b", serve(t, &page{body: router}))))
	md := func(job, n string) (promscrape.MetricMetadata, bool) {
		for _, tg := range r.m.Prom().TargetsActive()[job] {
			return tg.GetMetadata(n)
		}
		return promscrape.MetricMetadata{}, false
	}
	eventually(t, "both are stored", func() bool {
		return len(r.points(t, name("sglang:x_total"))) == 1 && len(r.points(t, name("sglang:y_count"))) == 1
	})
	for _, n := range []string{"sglang:x", "sglang:x_total", "sglang_x_total"} {
		if m, ok := md("a", n); !ok || m.Type != model.MetricTypeCounter || m.Help != "X" || m.MetricFamily != n {
			t.Errorf("%s: %+v %v", n, m, ok)
		}
	}
	if m, ok := md("b", "sglang:y"); !ok || m.Type != model.MetricTypeHistogram {
		t.Errorf("sglang:y: %+v %v", m, ok)
	}
	if _, ok := md("b", "sglang:z"); ok {
		t.Error("metadata of a metric that is not there")
	}
	for _, tg := range r.m.Prom().TargetsActive()["b"] {
		for _, m := range tg.ListMetadata() {
			if m.MetricFamily != "sglang:y" {
				t.Errorf("listed: %+v", m)
			}
		}
	}
}

// drive runs one scrape of a made-up target through the manager's appender at a time of choice.
func drive(t *testing.T, m *Manager, pt *promscrape.Target, at int64, body map[string]float64) (errs []error) {
	t.Helper()
	app := m.watch.AppenderV2(promscrape.ContextWithTarget(context.Background(), pt))
	for n, v := range body {
		if _, err := app.Append(0, labels.FromStrings("__name__", n, "job", "j", "instance", "e1"), 0, at, v, nil, nil, storage.AOptions{}); err != nil {
			errs = append(errs, err)
		}
	}
	for n, v := range map[string]float64{"up": 1, "scrape_samples_scraped": float64(len(body)), "scrape_series_added": 0} {
		if _, err := app.Append(0, labels.FromStrings("__name__", n, "job", "j", "instance", "e1"), 0, at, v, nil, nil, storage.AOptions{MetricFamilyName: n + "\xff"}); err != nil {
			errs = append(errs, err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	return errs
}

// Case T04: within the window all is stored; beyond it drops are counted and reported once with the
// step, and no error reaches the scrape loop that would make it drop the whole answer.
func TestClockStepsBack(t *testing.T) {
	e := Inspect([]byte(read(t, "testdata/cases/T04/steps.om")), "application/openmetrics-text; version=1.0.0")
	if len(e.Samples) != 6 {
		t.Fatalf("steps.om: %+v", e)
	}
	for _, tt := range []struct {
		name   string
		window time.Duration
		lost   float64 // of the series itself
	}{{"within the window", 10 * time.Minute, 0}, {"beyond it", time.Minute, 2}, {"no window", 0, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			o := tsdb.DefaultOptions()
			o.OutOfOrderTimeWindow = tt.window.Milliseconds()
			db, err := tsdb.Open(t.TempDir(), nil, nil, o, nil)
			if err != nil {
				t.Fatal(err)
			}
			r := startOn(t, db, yamlConfig(t, ""))
			sc := promconfig.DefaultScrapeConfig
			pt := promscrape.NewTarget(labels.FromStrings("__address__", "e1:1", "__scheme__", "http", "__metrics_path__", "/metrics", "job", "j", "instance", "e1:1"), &sc, nil, nil)
			for _, s := range e.Samples {
				for _, err := range drive(t, r.m, pt, *s.Timestamp, map[string]float64{s.Name(): s.Value}) {
					if err != storage.ErrOutOfOrderSample {
						t.Errorf("the scrape loop does not know the error %v", err)
					}
				}
			}
			n := 0
			for _, vs := range r.points(t, name("sglang:num_running_reqs")) {
				n = len(vs)
			}
			if want := 6 - int(tt.lost); n != want {
				t.Errorf("%d of 6 samples stored, want %d", n, want)
			}
			drops := r.dropped(dropOutOfOrder) + r.dropped(dropTooOld)
			if want := tt.lost * 4; drops != want { // each with the three series of its report
				t.Errorf("%v drops, want %v", drops, want)
			}
			tg := r.m.watch.of(pt)
			tg.mu.Lock()
			defer tg.mu.Unlock()
			var got Finding
			for _, f := range tg.findings {
				if f.Code == "clock_stepped_back" {
					got = f
				}
			}
			want := "-2m0s"
			if tt.lost == 0 {
				want = "by 2m0s"
			}
			if !strings.Contains(got.Message, want) {
				t.Errorf("finding %+v does not say %s", got, want)
			}
			if tt.lost > 0 && r.log.count("samples are refused: the clock went back") != 1 {
				t.Errorf("reported %d times", r.log.count("samples are refused: the clock went back"))
			}
		})
	}
}

// Case T04: a sample dated an hour ahead is refused and named.
func TestSampleFromTheFuture(t *testing.T) {
	p := &page{body: fmt.Sprintf("# TYPE a gauge\na 1 %d\nb 2\n", time.Now().Add(time.Hour).UnixMilli())}
	r := start(t, yamlConfig(t, jobFor("a", serve(t, p))))
	eventually(t, "it is refused", func() bool { return r.dropped(dropTooNew) >= 3 })
	if got := r.points(t, name("a")); len(got) != 0 {
		t.Errorf("stored: %v", got)
	}
	if got := r.points(t, name("b")); len(got) != 1 {
		t.Errorf("the other series: %v", got)
	}
	if n := r.log.count("samples from the future are refused"); n != 1 {
		t.Errorf("reported %d times", n)
	}
	if f := r.only(t).Findings; len(f) == 0 || f[0].Code != "too_new" {
		t.Errorf("findings %+v", f)
	}
}

// Two targets that write the same series: the store refuses one of two values of a time.
func TestSampleLimit(t *testing.T) {
	p := &page{body: "a 1\nb 2\nc 3\n"}
	r := start(t, yamlConfig(t, jobFor("a", serve(t, p))+"  sample_limit: 2\n"))
	eventually(t, "the limit is hit", func() bool {
		ti := r.first()
		return ti.Reason == ReasonSampleLimit && ti.Drops[dropSampleLimit] >= 3
	})
	if ti := r.only(t); ti.Up == nil || *ti.Up || ti.Hint == "" {
		t.Errorf("target %+v", ti)
	}
}

func TestUnixSocket(t *testing.T) {
	sock := t.TempDir() + "/s"
	stop := listenUnix(t, sock, &page{body: "# TYPE sglang:a gauge\nsglang:a 7\n"})
	defer stop()
	r := start(t, yamlConfig(t, "- job_name: a\n  static_configs: [{targets: [\"engine\"], labels: {__unix_socket__: \""+sock+"\"}}]\n"))
	eventually(t, "it is stored", func() bool { return len(r.points(t, name("sglang:a"))) == 1 })
	eventually(t, "it is identified", func() bool { return r.first().Identity.Backend == "sglang" })
}
