package metricstore

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("ROLLSCOPE_TEST_WRITER"); dir != "" {
		writeUntilKilled(dir)
		return
	}
	if dir := os.Getenv("ROLLSCOPE_TEST_READER"); dir != "" {
		readOnlyMount(dir)
		return
	}
	code := m.Run()
	closeWeek()
	// A log whose last write failed cannot be closed: the library returns before it stops the log's
	// goroutine. A store that is left open still shows by its other goroutines.
	if err := goleak.Find(goleak.IgnoreTopFunction("github.com/prometheus/prometheus/tsdb/wlog.(*WL).run")); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// testOptions are options for a store in a fresh directory with a fixed clock.
func testOptions(t testing.TB, now time.Time) Options {
	t.Helper()
	o := Options{Dir: t.TempDir(), Mounts: "-", Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)}
	if !now.IsZero() {
		o.Now = func() time.Time { return now }
	}
	return o
}

func openStore(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// point is one sample to append.
type point struct {
	series string // name{a="b",...}
	t      int64  // Unix milliseconds
	v      float64
}

func parseSeries(t testing.TB, s string) labels.Labels {
	t.Helper()
	ls, err := parser.NewParser(parser.Options{}).ParseMetric(s)
	if err != nil {
		t.Fatalf("series %q: %v", s, err)
	}
	return ls
}

// appendPoints appends points in one transaction and returns how many were refused.
func appendPoints(t testing.TB, to storage.AppendableV2, ps ...point) (refused int) {
	t.Helper()
	app := to.AppenderV2(context.Background())
	for _, p := range ps {
		if _, err := app.Append(0, parseSeries(t, p.series), 0, p.t, p.v, nil, nil, storage.AOptions{}); err != nil {
			refused++
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	return refused
}

// readExposition reads samples of a text or OpenMetrics file; at is the time of those without one, and
// extra labels are added.
func readExposition(t testing.TB, path string, at int64, extra ...string) []point {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var p textparse.Parser
	if strings.HasSuffix(path, ".om") {
		p = textparse.NewOpenMetricsParser(b, labels.NewSymbolTable())
	} else {
		p = textparse.NewPromParser(b, labels.NewSymbolTable(), false)
	}
	var out []point
	for {
		e, err := p.Next()
		if err != nil {
			break
		}
		if e != textparse.EntrySeries {
			continue
		}
		_, ts, v := p.Series()
		var ls labels.Labels
		p.Labels(&ls)
		bld := labels.NewBuilder(ls)
		for i := 0; i+1 < len(extra); i += 2 {
			bld.Set(extra[i], extra[i+1])
		}
		when := at
		if ts != nil {
			when = *ts
		}
		out = append(out, point{bld.Labels().String(), when, v})
	}
	return out
}

// eval evaluates PromQL at a time and returns value by series.
func eval(t testing.TB, e promql.QueryEngine, q storage.Queryable, expr string, at time.Time) map[string]float64 {
	t.Helper()
	got, _ := evalNotes(t, e, q, expr, at)
	return got
}

func evalNotes(t testing.TB, e promql.QueryEngine, q storage.Queryable, expr string, at time.Time) (map[string]float64, []string) {
	t.Helper()
	qry, err := e.NewInstantQuery(context.Background(), q, nil, expr, at)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer qry.Close()
	res := qry.Exec(context.Background())
	if res.Err != nil {
		t.Fatalf("%s: %v", expr, res.Err)
	}
	w, i := res.Warnings.AsStrings(expr, 0, 0)
	out := map[string]float64{}
	switch v := res.Value.(type) {
	case promql.Vector:
		for _, s := range v {
			out[s.Metric.String()] = s.F
		}
	case promql.Scalar:
		out[""] = v.V
	default:
		t.Fatalf("%s: %T", expr, v)
	}
	return out, append(w, i...)
}

func TestClockStepsBack(t *testing.T) { // case T04
	steps := readExposition(t, filepath.Join("testdata", "T04", "steps.om"), 0)
	start := time.Unix(1780000000, 0)
	s := openStore(t, testOptions(t, start.Add(time.Minute)))

	for _, p := range steps { // each scrape is a transaction
		if n := appendPoints(t, s.Appendable(), p); n != 0 {
			t.Errorf("sample at %d refused", p.t)
		}
	}
	got := eval(t, s.Engine(), s.Queryable(), `count_over_time(sglang:num_running_reqs[10m])`, start.Add(time.Minute))
	if got[`{instance="e1"}`] != 6 {
		t.Errorf("ingested %v samples, want 6", got)
	}
	if d := s.Drops(); len(d) != 0 {
		t.Errorf("dropped %v within the window", d)
	}

	// 1 h ahead is refused, since it would block the series.
	ahead := point{`sglang:num_running_reqs{job="sglang",instance="e2"}`, start.Add(time.Hour).UnixMilli(), 1}
	if n := appendPoints(t, s.Appendable(), ahead); n != 1 {
		t.Error("a sample one hour ahead was taken")
	}
	wantDrop(t, s, "sglang/e2", "future", 1)

	// Beyond the window: counted per target, reported once with the step.
	const series = `sglang:num_running_reqs{job="sglang",instance="e3"}`
	appendPoints(t, s.Appendable(), point{series, start.UnixMilli(), 1})
	for i := range 3 {
		appendPoints(t, s.Appendable(), point{series, start.Add(-20*time.Minute + time.Duration(i)*time.Second).UnixMilli(), 1})
	}
	wantDrop(t, s, "sglang/e3", "too_old", 3)
	var steps3 []Notice
	for _, n := range s.Notices() {
		if n.Code == "clock_step" {
			steps3 = append(steps3, n)
		}
	}
	if len(steps3) != 1 || !strings.Contains(steps3[0].Message, "-20m0s") || steps3[0].Where != "sglang/e3" {
		t.Errorf("notices of the step: %+v", steps3)
	}
}

func TestClockStepsBackBeyondTheWindow(t *testing.T) { // case T04
	start := time.Unix(1780000000, 0)
	o := testOptions(t, start.Add(time.Minute))
	o.OutOfOrderWindow = time.Minute
	s := openStore(t, o)
	for _, p := range readExposition(t, filepath.Join("testdata", "T04", "steps.om"), 0, "job", "sglang") {
		appendPoints(t, s.Appendable(), p)
	}
	wantDrop(t, s, "sglang/e1", "too_old", 2)
	var notices []Notice
	for _, n := range s.Notices() {
		if n.Code == "clock_step" {
			notices = append(notices, n)
		}
	}
	if len(notices) != 1 || !strings.Contains(notices[0].Message, "-2m0s") {
		t.Errorf("notices %+v, want one with the step of -120 s", notices)
	}
}

func wantDrop(t *testing.T, s *Store, source, reason string, n int64) {
	t.Helper()
	for _, d := range s.Drops() {
		if d.Source == source && d.Reason == reason {
			if d.Count != n {
				t.Errorf("%s %s dropped %d, want %d", source, reason, d.Count, n)
			}
			return
		}
	}
	t.Errorf("no drop of %s for %s in %v", source, reason, s.Drops())
}

func TestOpenedAgainInOneRegistry(t *testing.T) {
	o := testOptions(t, time.Unix(1780000000, 0))
	for range 2 {
		s, err := Open(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := o.Registerer.(*prometheus.Registry).Gather(); err != nil || len(left) > 0 {
		t.Errorf("%d families stay on the registry, %v", len(left), err)
	}
}

func TestAnySpelling(t *testing.T) { // case M01
	at := time.Unix(1780000000, 0)
	for _, file := range []string{"engine.prom", "router.prom"} {
		t.Run(file, func(t *testing.T) {
			s := openStore(t, testOptions(t, at))
			appendPoints(t, s.Appendable(), readExposition(t, filepath.Join("testdata", "M01", file), at.UnixMilli(), "job", "j", "instance", "i")...)
			for _, name := range []string{"sglang:num_running_reqs", "sglang_num_running_reqs", "ray_sglang_num_running_reqs"} {
				got, notes := evalNotes(t, s.Engine(), s.Queryable(), name, at)
				if len(got) != 1 || len(notes) != 0 {
					t.Errorf("%s: %v %v", name, got, notes)
				}
				for k, v := range got {
					if !strings.Contains(k, name) || v != 3 {
						t.Errorf("%s answers %s = %v, want 3 under the asked name", name, k, v)
					}
				}
				sum := eval(t, s.Engine(), s.Queryable(), strings.Replace(`sum(X_time_to_first_token_seconds_count)`, "X_", name[:len(name)-len("num_running_reqs")], 1), at)
				if sum["{}"] != 40 {
					t.Errorf("%s: TTFT count %v, want 40", name, sum)
				}
			}
			// both spellings in one alternation are one series
			if got := eval(t, s.Engine(), s.Queryable(), `sum({__name__=~"sglang:num_running_reqs|sglang_num_running_reqs"})`, at); got["{}"] != 3 {
				t.Errorf("alternation counts %v, want 3", got)
			}
			_, notes := evalNotes(t, s.Engine(), s.Queryable(), `sglang_e2e_first_token_latency_seconds`, at)
			if len(notes) != 1 {
				t.Errorf("invented name gives notes %q, want one", notes)
			}
		})
	}
}

// waitFor waits for something that happens on another goroutine; it fails only when that never comes.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("it never came")
}
