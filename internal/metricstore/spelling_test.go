package metricstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// plainStore writes points as another program would: straight into a database, with its spellings.
func plainStore(t testing.TB, ps ...point) string {
	t.Helper()
	dir := t.TempDir()
	db, err := tsdb.Open(dir, nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	app := db.AppenderV2(context.Background())
	for _, p := range ps {
		if _, err := app.Append(0, parseSeries(t, p.series), 0, p.t, p.v, nil, nil, storage.AOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSpellingsSplitInTime(t *testing.T) {
	start := time.Unix(1780000000, 0)
	var ps []point
	for i := range 20 {
		name := "sglang_num_running_reqs" // until an upgrade
		if i >= 10 {
			name = "sglang:num_running_reqs"
		}
		for _, e := range []string{"a", "b"} {
			ps = append(ps, point{fmt.Sprintf(`%s{instance="%s"}`, name, e), start.Add(time.Duration(i) * time.Minute).UnixMilli(), float64(i)})
		}
	}
	a := openArchive(t, plainStore(t, ps...))
	end := start.Add(19 * time.Minute)
	for _, name := range []string{"sglang:num_running_reqs", "sglang_num_running_reqs", "ray_sglang_num_running_reqs"} {
		got := eval(t, a.Engine(), a.Queryable(), `count_over_time(`+name+`[1h])`, end)
		if got[`{instance="a"}`] != 20 || got[`{instance="b"}`] != 20 || len(got) != 2 {
			t.Errorf("%s: %v, want two series of 20", name, got)
		}
	}
	if got := eval(t, a.Engine(), a.Queryable(), `sum(rate({__name__=~"sglang:num_running_reqs|sglang_num_running_reqs"}[5m]))`, start.Add(15*time.Minute)); len(got) != 1 {
		t.Errorf("alternation of both: %v", got)
	}
	// A name in a regular expression that is no alternation is taken as it is.
	if got := eval(t, a.Engine(), a.Queryable(), `count({__name__=~"sglang.num_running.*"})`, end); got["{}"] != 2 {
		t.Errorf("expression: %v, want the two that have samples now", got)
	}

	// the chunk interface sees the same
	cq, err := a.Queryable().ChunkQuerier(start.UnixMilli(), end.UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	defer cq.Close()
	set := cq.Select(context.Background(), true, nil, labels.MustNewMatcher(labels.MatchEqual, "__name__", "sglang_num_running_reqs"))
	n := 0
	for set.Next() {
		if set.At().Labels().Get("__name__") != "sglang_num_running_reqs" {
			t.Errorf("chunk series %v", set.At().Labels())
		}
		it := set.At().Iterator(nil)
		samples := 0
		for it.Next() {
			samples += it.At().Chunk.NumSamples()
		}
		if samples != 20 {
			t.Errorf("%d samples in chunks", samples)
		}
		n++
	}
	if n != 2 || set.Err() != nil {
		t.Errorf("%d chunk series, %v", n, set.Err())
	}

	// labels
	q, err := a.Queryable().Querier(start.UnixMilli(), end.UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	ctx := context.Background()
	asked := labels.MustNewMatcher(labels.MatchEqual, "__name__", "sglang_num_running_reqs")
	if vs, _, err := q.LabelValues(ctx, "instance", nil, asked); err != nil || !slices.Equal(vs, []string{"a", "b"}) {
		t.Errorf("instances %v, %v", vs, err)
	}
	if vs, _, err := q.LabelValues(ctx, "__name__", nil, asked); err != nil || !slices.Equal(vs, []string{"sglang_num_running_reqs"}) {
		t.Errorf("names %v, %v", vs, err)
	}
	if vs, _, err := q.LabelValues(ctx, "__name__", nil); err != nil || !slices.Equal(vs, []string{"sglang:num_running_reqs", "sglang_num_running_reqs"}) {
		t.Errorf("all names %v, %v: they stay as they are stored", vs, err)
	}
	if vs, _, err := q.LabelNames(ctx, nil, asked); err != nil || !slices.Equal(vs, []string{"__name__", "instance"}) {
		t.Errorf("label names %v, %v", vs, err)
	}
}

func TestBoundsOfPrometheus2(t *testing.T) {
	start := time.Unix(1780000000, 0)
	var ps []point
	for i := range 20 {
		at := start.Add(time.Duration(i) * 30 * time.Second).UnixMilli()
		for _, b := range []struct {
			old, now string
			share    float64
		}{{"0.5", "0.5", 1}, {"1", "1.0", 2}, {"10", "10.0", 3}, {"+Inf", "+Inf", 4}} {
			le := b.old // Prometheus 2 kept what was written; 3 normalises
			if i >= 10 {
				le = b.now
			}
			ps = append(ps, point{fmt.Sprintf(`x_seconds_bucket{instance="a",le="%s"}`, le), at, float64(i) * b.share})
		}
		q := "0.99"
		ps = append(ps, point{fmt.Sprintf(`y_seconds{quantile="%s"}`, q), at, 1}, point{`z_seconds{quantile="1"}`, at, 2})
	}
	a := openArchive(t, plainStore(t, ps...))
	at := start.Add(9*30*time.Second + 150*time.Second) // the window spans the change
	got := eval(t, a.Engine(), a.Queryable(), `sum by (le) (rate(x_seconds_bucket[5m]))`, at)
	if len(got) != 4 || got[`{le="1.0"}`] == 0 {
		t.Errorf("buckets %v, want four", got)
	}
	if h := eval(t, a.Engine(), a.Queryable(), `histogram_quantile(0.5, sum by (le) (rate(x_seconds_bucket[5m])))`, at); h["{}"] != 1 {
		t.Errorf("median %v, want 1", h)
	}
	for _, le := range []string{"1", "1.0"} {
		for _, op := range []string{"=", "=~"} {
			expr := fmt.Sprintf(`count_over_time(x_seconds_bucket{le%s"%s"}[15m])`, op, le)
			if op == "=~" {
				expr = fmt.Sprintf(`count_over_time(x_seconds_bucket{le=~"%s|7"}[15m])`, strings.ReplaceAll(le, ".", `\\.`))
			}
			if got := eval(t, a.Engine(), a.Queryable(), expr, start.Add(10*time.Minute)); got[`{instance="a", le="1.0"}`] != 20 {
				t.Errorf("%s: %v, want one bucket with 20 samples", expr, got)
			}
		}
		if got := eval(t, a.Engine(), a.Queryable(), fmt.Sprintf(`count(x_seconds_bucket{le!="%s"})`, le), start.Add(9*time.Minute)); got["{}"] != 3 {
			t.Errorf("le!=%s: %v, want the other three", le, got)
		}
	}
	if got := eval(t, a.Engine(), a.Queryable(), `z_seconds{quantile="1.0"}`, start.Add(5*time.Minute)); got[`{__name__="z_seconds", quantile="1.0"}`] != 2 {
		t.Errorf("quantile: %v", got)
	}
}

func TestBoundSpellings(t *testing.T) {
	for v, want := range map[string][]string{
		"1": {"1", "1.0"}, "1.0": {"1.0", "1"}, "0.5": {"0.5"}, "+Inf": {"+Inf", "Inf"},
		"1e+06": {"1e+06", "1000000", "1000000.0"}, "2.50": {"2.50", "2.5"}, "x": {"x"}, "": {""},
	} {
		if got := boundSpellings(v); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", v, got, want)
		}
	}
}

func TestLoadsAreNoSpelling(t *testing.T) {
	at := time.Unix(1780000000, 0)
	ms := at.UnixMilli()
	// The text of /v1/loads beside the engine's metrics: near names, other meanings.
	a := openArchive(t, plainStore(t,
		point{`sglang:num_used_tokens{instance="e"}`, ms, 1},
		point{`sglang_num_used_tokens{instance="e"}`, ms, 100},
		point{`sglang_num_total_tokens{instance="e"}`, ms, 1000},
	))
	for name, want := range map[string]float64{"sglang:num_used_tokens": 1, "sglang_num_used_tokens": 100} {
		if got := eval(t, a.Engine(), a.Queryable(), name, at); len(got) != 1 || got[`{__name__="`+name+`", instance="e"}`] != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestNotesOfNames(t *testing.T) {
	at := time.Unix(1780000000, 0)
	s := openStore(t, testOptions(t, at))
	appendPoints(t, s.Appendable(),
		point{`sglang:time_to_first_token_seconds_count{instance="e"}`, at.UnixMilli(), 1},
		point{`sglang:e2e_request_latency_seconds_count{instance="e"}`, at.UnixMilli(), 1},
		point{`only_once{instance="e"}`, at.Add(-9 * time.Minute).UnixMilli(), 1},
	)
	for _, c := range []struct {
		expr, note string // "" none
		info       bool
	}{
		{"sglang:time_to_first_token_seconds_count", "", false},
		{"vllm:kv_cache_usage_perc", "vllm:kv_cache_usage_perc", true}, // good, and not there
		{"sglang_tokens_per_seconds", "sglang", false},
		{"no_such_thing_at_all", "no_such_thing_at_all", false},
		{"only_once", "", false}, // it is stored, only not now
		{"engine:ttft:p99_rate5m", "", false},
		{"ALERTS", "", false},
		{"up", "", false},
		{`{__name__=~"nothing.*"}`, "", false},
	} {
		got, notes := evalNotes(t, s.Engine(), s.Queryable(), c.expr, at)
		if c.note == "" && len(notes) > 0 || c.note != "" && (len(notes) != 1 || !strings.Contains(notes[0], c.note) || strings.Contains(notes[0], "info") != c.info) {
			t.Errorf("%s: %v, notes %q", c.expr, got, notes)
		}
	}
	// queries of our own do not ask for a word about each alternative
	q, err := s.Engine().NewInstantQuery(WithoutNameNotes(context.Background()), s.Queryable(), nil, "no_such_thing_at_all", at)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if res := q.Exec(WithoutNameNotes(context.Background())); len(res.Warnings) > 0 {
		t.Errorf("notes %v", res.Warnings)
	}
}

func TestCoverage(t *testing.T) {
	start := time.Unix(1780000000, 0)
	at := func(min int) int64 { return start.Add(time.Duration(min) * time.Minute).UnixMilli() }
	run := func(series string, from, to int) (ps []point) {
		for i := from; i <= to; i++ {
			ps = append(ps, point{series, at(i), 1})
		}
		return ps
	}
	for name, c := range map[string]struct {
		ps          []point
		first, last int
		gaps        [][2]int
	}{
		"one run":             {run(`up{instance="a"}`, 0, 300), 0, 300, nil},
		"a pause":             {append(run(`up{instance="a"}`, 0, 100), run(`up{instance="a"}`, 160, 300)...), 0, 300, [][2]int{{100, 160}}},
		"a pause in a chunk":  {append(run(`up{instance="a"}`, 0, 30), run(`up{instance="a"}`, 50, 70)...), 0, 70, [][2]int{{30, 50}}},
		"a target comes late": {append(run(`up{instance="a"}`, 0, 100), run(`up{instance="b"}`, 50, 200)...), 0, 200, nil},
		"two pauses":          {slices.Concat(run(`up{instance="a"}`, 0, 20), run(`up{instance="b"}`, 40, 60), run(`up{instance="a"}`, 90, 100)), 0, 100, [][2]int{{20, 40}, {60, 90}}},
		"one missed scrape":   {append(run(`up{instance="a"}`, 0, 30), run(`up{instance="a"}`, 32, 70)...), 0, 70, nil},
		"no up":               {run(`sglang:num_running_reqs{instance="a"}`, 5, 60), 5, 60, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := openArchive(t, plainStore(t, c.ps...))
			rec, err := Coverage(context.Background(), a.Queryable())
			if err != nil {
				t.Fatal(err)
			}
			if rec.First.UnixMilli() != at(c.first) || rec.Last.UnixMilli() != at(c.last) || len(rec.Gaps) != len(c.gaps) {
				t.Fatalf("%+v", rec)
			}
			for i, g := range c.gaps {
				if rec.Gaps[i].From.UnixMilli() != at(g[0]) || rec.Gaps[i].To.UnixMilli() != at(g[1]) {
					t.Errorf("gap %v, want minutes %v", rec.Gaps[i], g)
				}
			}
		})
	}
	empty := openStore(t, testOptions(t, start))
	if rec, err := Coverage(context.Background(), empty.Queryable()); err != nil || !rec.First.IsZero() {
		t.Errorf("empty store: %+v, %v", rec, err)
	}
}

func TestArchiveErrorsNameTheDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, "/no/such/dir"} {
		if _, err := OpenArchive(context.Background(), ArchiveOptions{Dir: dir, Registerer: prometheus.NewRegistry()}); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestSuccessorInARange(t *testing.T) { // case M11
	start := time.Unix(1780000000, 0)
	s := openStore(t, testOptions(t, start.Add(3*time.Hour)))
	write := func(name string, from, to int) {
		for i := from; i < to; i++ {
			appendPoints(t, s.Appendable(), point{name + `{instance="v:8000"}`, start.Add(time.Duration(i) * time.Minute).UnixMilli(), float64(i)})
		}
	}
	write("vllm:gpu_cache_usage_perc", 0, 30) // an upgrade renames it while we record
	write("vllm:kv_cache_usage_perc", 30, 60)
	for _, c := range []struct {
		name  string
		at    int
		notes int
	}{{"vllm:gpu_cache_usage_perc", 29, 0}, {"vllm:gpu_cache_usage_perc", 59, 1}, {"vllm:kv_cache_usage_perc", 59, 0}, {"vllm:kv_cache_usage_perc", 20, 1}} {
		got, notes := evalNotes(t, s.Engine(), s.Queryable(), c.name, start.Add(time.Duration(c.at)*time.Minute))
		if len(got) != 1 || len(notes) != c.notes {
			t.Errorf("%s at minute %d: %v, notes %q", c.name, c.at, got, notes)
		}
		for k, v := range got {
			if v != float64(c.at) || !strings.Contains(k, c.name) {
				t.Errorf("%s at minute %d: %s = %v", c.name, c.at, k, v)
			}
		}
	}
}

func TestHeadForgetsNames(t *testing.T) {
	n := newNameSet()
	a, b := labels.FromStrings("__name__", "x", "i", "1"), labels.FromStrings("__name__", "x", "i", "2")
	n.PostCreation(a)
	n.PostCreation(b)
	n.PostDeletion(map[chunks.HeadSeriesRef]labels.Labels{1: a})
	if !n.has("x") {
		t.Error("a name went with the first of its series")
	}
	n.PostDeletion(map[chunks.HeadSeriesRef]labels.Labels{2: b})
	if n.has("x") {
		t.Error("a name stays after its last series")
	}
}
