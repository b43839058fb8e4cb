package metricstore

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// readPromtest reads the load blocks of a PromQL test file as samples from start on; extra labels are added.
func readPromtest(t testing.TB, path string, start time.Time, extra ...string) (ps []point, end time.Time) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := parser.NewParser(parser.Options{})
	var step time.Duration
	end = start
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "load "); ok {
			d, err := model.ParseDuration(strings.TrimSpace(rest))
			if err != nil {
				t.Fatal(err)
			}
			step = time.Duration(d)
			continue
		}
		if step == 0 || !strings.HasPrefix(line, "  ") {
			step = 0
			continue
		}
		ls, vals, err := p.ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		bld := labels.NewBuilder(ls)
		for i := 0; i+1 < len(extra); i += 2 {
			bld.Set(extra[i], extra[i+1])
		}
		for i, v := range vals {
			if v.Omitted {
				continue
			}
			at := start.Add(time.Duration(i) * step)
			ps = append(ps, point{bld.Labels().String(), at.UnixMilli(), v.Value})
			if at.After(end) {
				end = at
			}
		}
	}
	return ps, end
}

// testReader makes a store with the points and a reader over it.
func testReader(t testing.TB, now time.Time, ps ...point) (*Store, *Reader) {
	t.Helper()
	s := openStore(t, testOptions(t, now))
	byTime := map[int64][]point{}
	for _, p := range ps {
		byTime[p.t] = append(byTime[p.t], p)
	}
	var times []int64
	for at := range byTime {
		times = append(times, at)
	}
	for range times { // in order of time
		first := times[0]
		for _, at := range times {
			if at < first && byTime[at] != nil || byTime[first] == nil {
				first = at
			}
		}
		if n := appendPoints(t, s.Appendable(), byTime[first]...); n > 0 {
			t.Fatalf("%d samples refused", n)
		}
		byTime[first] = nil
	}
	return s, NewReader(s.Queryable(), s.Engine(), ReaderOptions{Now: func() time.Time { return now }})
}

func read(t *testing.T, r *Reader, req SignalRequest) SignalResult {
	t.Helper()
	res, err := r.Signal(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func showNumber(n Number) string {
	f := func(p *float64) string {
		if p == nil {
			return "nil"
		}
		return fmt.Sprintf("%.4g", *p)
	}
	return fmt.Sprintf("%s %s [%s,%s] atleast=%v above=%s %s", n.State, f(n.Value), f(n.Lower), f(n.Upper), n.AtLeast, f(n.ShareAbove), n.Reason)
}

func TestTopBucket(t *testing.T) { // case M16
	start := time.Unix(1780000000, 0)
	ps, end := readPromtest(t, filepath.Join("testdata", "M16", "data.promtest"), start, "job", "sglang", "instance", "e1:30000", "model_name", "m")
	bounds := ps
	for _, p := range bounds {
		if strings.Contains(p.series, `le="+Inf"`) {
			ps = append(ps, point{strings.Replace(strings.Replace(p.series, "_bucket", "_count", 1), `le="+Inf", `, "", 1), p.t, p.v})
		}
	}
	_, r := testReader(t, end, ps...)
	for _, by := range []signal.By{signal.ByFleet, signal.ByEngine} {
		res := read(t, r, SignalRequest{ID: "e2e", From: start, To: end, Step: 30 * time.Second, By: by})
		if len(res.Lines) != 2 {
			t.Fatalf("%s: %d lines", by, len(res.Lines))
		}
		p50, p99 := res.Lines[0], res.Lines[1]
		if got := showNumber(p50.Now); got != "value 6.667 [5,10] atleast=false above=0.1 " {
			t.Errorf("%s p50: %s", by, got)
		}
		if got := showNumber(p99.Now); got != "value 60 [60,nil] atleast=true above=0.1 " {
			t.Errorf("%s p99: %s", by, got)
		}
		if p99.TopBound == nil || *p99.TopBound != 60 {
			t.Errorf("%s top bound %v", by, p99.TopBound)
		}
		if last := p99.Values[len(p99.Values)-1]; last == nil || *last != 60 {
			t.Errorf("%s chart ends at %v", by, last)
		}
		if res.Form != "raw" {
			t.Errorf("form %s", res.Form)
		}
	}
}

func TestIdle(t *testing.T) { // case P01
	start := time.Unix(1780000000, 0)
	ps, end := readPromtest(t, filepath.Join("testdata", "P01", "idle.promtest"), start, "job", "dynamo", "instance", "f:8000")
	var more []point
	for _, p := range ps { // the case has no buckets: a frontend writes them
		if strings.Contains(p.series, "seconds_count") {
			for _, le := range []string{"1.0", "+Inf"} {
				s := strings.Replace(p.series, "_count", "_bucket", 1)
				more = append(more, point{strings.Replace(s, "{", `{le="`+le+`", `, 1), p.t, p.v})
			}
		}
	}
	s, r := testReader(t, end, append(ps, more...)...)
	res := read(t, r, SignalRequest{ID: "ttft", From: end.Add(-2 * time.Minute), To: end, Step: 30 * time.Second})
	if res.State != StateIdle {
		t.Errorf("state %s, want idle: %+v", res.State, res.Lines)
	}
	for _, l := range res.Lines {
		if l.Now.State != StateIdle || l.Now.Value != nil {
			t.Errorf("%s: %s", l.Name, showNumber(l.Now))
		}
	}
	if len(res.Idle) != 1 || len(res.Unknown) != 0 {
		t.Errorf("idle %v, unknown %v", res.Idle, res.Unknown)
	}
	rate := read(t, r, SignalRequest{ID: "request_rate", From: end.Add(-2 * time.Minute), To: end, Step: 30 * time.Second})
	if got := rate.Lines[0].Now; got.State != StateValue || *got.Value != 0 {
		t.Errorf("request rate: %s", showNumber(got))
	}
	// First traffic flips the state within one evaluation.
	var traffic []point
	for _, p := range append(ps, more...) {
		if p.t == end.UnixMilli() {
			traffic = append(traffic, point{p.series, end.Add(30 * time.Second).UnixMilli(), p.v + 5})
		}
	}
	appendPoints(t, s.Appendable(), traffic...)
	res = read(t, r, SignalRequest{ID: "ttft", From: end, To: end.Add(30 * time.Second), Step: 30 * time.Second})
	if res.State != StateValue {
		t.Errorf("after traffic: %s", showNumber(res.Lines[0].Now))
	}
}

func TestRenamedMetrics(t *testing.T) { // case M11
	at := time.Unix(1780000000, 0)
	for file, want := range map[string]float64{"vllm-old.prom": 0.42, "vllm-new.prom": 0.55} {
		s, r := testReader(t, at, readExposition(t, filepath.Join("testdata", "M11", file), at.UnixMilli(), "job", "vllm", "instance", "v:8000")...)
		res := read(t, r, SignalRequest{ID: "kv_usage", From: at.Add(-time.Minute), To: at, Step: time.Minute})
		if got := res.Lines[0].Now; got.Value == nil || *got.Value != want {
			t.Errorf("%s: KV usage %s, want %v", file, showNumber(got), want)
		}
		// either name answers, and says so when it is the other one's data
		for _, name := range []string{"vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"} {
			got, notes := evalNotes(t, s.Engine(), s.Queryable(), name, at)
			for k, v := range got {
				if v != want || !strings.Contains(k, name) {
					t.Errorf("%s: %s = %v", file, k, v)
				}
			}
			other := (file == "vllm-old.prom") != strings.Contains(name, "gpu")
			if len(got) != 1 || other != (len(notes) == 1) {
				t.Errorf("%s %s: %v, notes %q", file, name, got, notes)
			}
		}
	}
}

func TestEngines(t *testing.T) { // cases M01, M03, M06
	at := time.Unix(1780000000, 0)
	ms := at.UnixMilli()
	// The direct scrape's job is the engine's, whichever series the store met first.
	for _, first := range []string{"engine", "router"} {
		t.Run("both views are one engine and one model, "+first+" first", func(t *testing.T) {
			ps := readExposition(t, filepath.Join("testdata", "M03", "engine.prom"), ms, "job", "sglang", "instance", "10.0.0.11:30000")
			routed := readExposition(t, filepath.Join("testdata", "M03", "router.prom"), ms, "job", "router", "instance", "10.0.0.1:29000")
			if first == "engine" {
				ps = append(ps, routed...)
			} else {
				ps = append(routed, ps...)
			}
			_, r := testReader(t, at, ps...)
			es, ws, err := r.Engines(context.Background(), at.Add(-time.Minute), at)
			if err != nil {
				t.Fatal(err)
			}
			if len(es) != 1 || es[0].Instance != "10.0.0.11:30000" || es[0].Model != "acme/chat-7b:v2" || es[0].View != engine.Direct || es[0].Job != "sglang" {
				t.Errorf("engines %+v", es)
			}
			wantCodes(t, ws, "both_views")
		})
	}
	t.Run("a model seen through a router only", func(t *testing.T) {
		ps := readExposition(t, filepath.Join("testdata", "M03", "engine.prom"), ms, "job", "sglang", "instance", "10.0.0.12:30000")
		ps = append(ps, readExposition(t, filepath.Join("testdata", "M03", "router.prom"), ms, "job", "router", "instance", "10.0.0.1:29000")...)
		_, r := testReader(t, at, ps...)
		es, ws, err := r.Engines(context.Background(), at.Add(-time.Minute), at)
		if err != nil || len(es) != 2 {
			t.Fatalf("engines %+v, %v", es, err)
		}
		wantCodes(t, ws, "model_names")
		if ws[0].Where != "10.0.0.1:29000" {
			t.Errorf("the router is not named: %+v", ws)
		}
	})
	t.Run("an idle rank", func(t *testing.T) {
		_, r := testReader(t, at, readExposition(t, filepath.Join("testdata", "M06", "labelled.prom"), ms, "job", "sglang", "instance", "e:1")...)
		es, ws, err := r.Engines(context.Background(), at.Add(-time.Minute), at)
		if err != nil || len(es) != 1 || len(es[0].DPRanks) != 4 {
			t.Fatalf("engines %+v, %v", es, err)
		}
		wantCodes(t, ws, "rank_idle")
	})
	t.Run("ranks that are not visible", func(t *testing.T) {
		ps := readExposition(t, filepath.Join("testdata", "M06", "unlabelled.prom"), ms, "job", "sglang", "instance", "e:1")
		ps = append(ps, point{`rollscope_target_info{job="sglang",instance="e:1",backend="sglang",dp_size="4",version="0.5.3"}`, ms, 1})
		_, r := testReader(t, at, ps...)
		es, ws, err := r.Engines(context.Background(), at.Add(-time.Minute), at)
		if err != nil || len(es) != 1 || es[0].DPSize != 4 || es[0].Version != "0.5.3" {
			t.Fatalf("engines %+v, %v", es, err)
		}
		wantCodes(t, ws, "under_reported")
		if ws[0].Message != "under-reported: 1 of 4 DP ranks visible" {
			t.Errorf("message %q", ws[0].Message)
		}
		res := read(t, r, SignalRequest{ID: "throughput", From: at.Add(-time.Minute), To: at, Step: time.Minute})
		wantCodes(t, res.Warnings, "under_reported")
	})
}

func wantCodes(t *testing.T, ws []Warning, codes ...string) {
	t.Helper()
	var got []string
	for _, w := range ws {
		got = append(got, w.Code)
	}
	if strings.Join(got, " ") != strings.Join(codes, " ") {
		t.Errorf("warnings %v, want %v: %+v", got, codes, ws)
	}
}

func TestAlternatingTarget(t *testing.T) { // case M22
	start := time.Unix(1780000000, 0)
	ps, end := readPromtest(t, filepath.Join("testdata", "M22", "data.promtest"), start, "job", "sglang")
	_, r := testReader(t, end, ps...)
	_, ws, err := r.Engines(context.Background(), start, end)
	if err != nil {
		t.Fatal(err)
	}
	wantCodes(t, ws, "alternating_target")
	if len(ws) > 0 && (!strings.HasPrefix(ws[0].Message, "target alternates between 2 processes") || ws[0].Where != "svc") {
		t.Errorf("%+v", ws[0])
	}
	res := read(t, r, SignalRequest{ID: "generation_tokens", From: start, To: end, Step: 30 * time.Second})
	wantCodes(t, res.Warnings, "alternating_target")

	for name, c := range map[string]struct {
		starts []float64
		want   int
	}{
		"restart":       {[]float64{1000, 1000, 2000, 2000}, 0},
		"two restarts":  {[]float64{1000, 2000, 3000}, 0},
		"clock jitter":  {[]float64{1000, 1001, 1000, 1001}, 0},
		"three in turn": {[]float64{1, 100, 1000, 1, 100, 1000}, 3},
		"none":          {nil, 0},
	} {
		if got := alternatingStarts(c.starts); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	for name, c := range map[string]struct {
		counter []float64
		want    bool
	}{
		"two replicas":      {[]float64{100, 20, 130, 25, 160, 30, 190, 35}, true},
		"low one first":     {[]float64{20, 100, 25, 130, 30, 160, 35, 190}, true},
		"one restart":       {[]float64{100, 120, 3, 50, 60}, false},
		"restarts each day": {[]float64{100, 120, 3, 50, 1, 60, 2, 40}, false},
		"steady":            {[]float64{1, 2, 3, 4}, false},
	} {
		if got := twoStreams(c.counter); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// engineAt writes what an SGLang engine shows at a time: its role, a queue and a TTFT histogram.
func engineAt(instance, role string, at time.Time, n float64, bounds ...string) []point {
	ls := fmt.Sprintf(`{job="sglang",instance="%s",model_name="m",engine_type="%s"`, instance, role)
	ranks := `,tp_rank="0",pp_rank="0",priority=""}`
	ms := at.UnixMilli()
	ps := []point{
		{"sglang:num_running_reqs" + ls + ranks, ms, n},
		{"sglang:num_queue_reqs" + ls + ranks, ms, n},
		{fmt.Sprintf(`up{job="sglang",instance="%s"}`, instance), ms, 1},
		{"sglang:time_to_first_token_seconds_count" + ls + "}", ms, 4 * n},
	}
	for i, le := range append(bounds, "+Inf") {
		ps = append(ps, point{fmt.Sprintf(`sglang:time_to_first_token_seconds_bucket%s,le="%s"}`, ls, le), ms, n * float64(i+1) * 4 / float64(len(bounds)+1)})
	}
	return ps
}

func TestStatesOfEngines(t *testing.T) {
	start := time.Unix(1780000020, 0)
	var ps []point
	for i := range 41 {
		at := start.Add(time.Duration(i) * 15 * time.Second)
		ps = append(ps, engineAt("busy:1", "decode", at, float64(i*10), "0.1", "1.0", "10.0")...)
		ps = append(ps, engineAt("idle:1", "decode", at, 7, "0.1", "1.0", "10.0")...)
		if i < 10 {
			ps = append(ps, engineAt("lost:1", "prefill", at, float64(i), "0.1", "1.0", "10.0")...)
		} else {
			ps = append(ps, point{`up{job="sglang",instance="lost:1"}`, at.UnixMilli(), 0})
		}
		ps = append(ps, point{`up{job="sglang",instance="never:1"}`, at.UnixMilli(), 0},
			point{`rollscope_target_info{job="sglang",instance="never:1",backend="sglang"}`, at.UnixMilli(), 1})
	}
	end := start.Add(10 * time.Minute)
	_, r := testReader(t, end, ps...)
	res := read(t, r, SignalRequest{ID: "ttft", By: signal.ByEngine, Quantiles: []float64{0.99}, From: end.Add(-time.Minute), To: end, Step: 30 * time.Second})
	got := map[string]Number{}
	for _, l := range res.Lines {
		got[l.Labels["instance"]] = l.Now
		for _, v := range l.Values {
			if l.Labels["instance"] != "busy:1" && v != nil {
				t.Errorf("%s has the value %v", l.Name, *v)
			}
		}
	}
	for instance, want := range map[string]string{
		"busy:1": "value", "idle:1": "idle nil [nil,nil] atleast=false above=nil none in this range",
		"never:1": "unknown nil [nil,nil] atleast=false above=nil target down",
	} {
		if n, ok := got[instance]; !ok || !strings.HasPrefix(showNumber(n), want) {
			t.Errorf("%s: %s, want %s", instance, showNumber(n), want)
		}
	}
	// A signal of one role is no question for the other.
	pd := read(t, r, SignalRequest{ID: "pd_decode_transfer", By: signal.ByEngine, From: end.Add(-5 * time.Minute), To: end, Step: time.Minute})
	for _, l := range pd.Lines {
		want := StateUnknown
		if l.Labels["role"] == "prefill" {
			want = StateNotApplicable
		}
		if l.Labels["instance"] != "never:1" && l.Now.State != want {
			t.Errorf("%s (%s): %s", l.Name, l.Labels["role"], showNumber(l.Now))
		}
	}
	// The lost engine: values until it went, then unknown with the reason.
	lost := read(t, r, SignalRequest{ID: "queue_depth", By: signal.ByEngine, Instance: "lost:1", From: start, To: end, Step: time.Minute})
	if len(lost.Lines) != 1 || lost.State != StateUnknown {
		t.Fatalf("lost engine: %+v", lost.Lines)
	}
	last := UnknownRange{}
	for _, u := range lost.Unknown {
		last = u
	}
	if last.Reason != "target down" || !last.To.Equal(end) {
		t.Errorf("unknown %+v", lost.Unknown)
	}
	es, _, err := r.Engines(context.Background(), end.Add(-time.Minute), end)
	if err != nil {
		t.Fatal(err)
	}
	up := map[string]string{}
	for _, e := range es {
		up[e.Instance] = "nil"
		if e.Up != nil {
			up[e.Instance] = fmt.Sprint(*e.Up)
		}
	}
	if fmt.Sprint(up) != "map[busy:1:true idle:1:true lost:1:false never:1:false]" {
		t.Errorf("up: %v", up)
	}
	if res.Worst != nil {
		t.Errorf("the worst of one engine with events: %+v", res.Worst)
	}
	none := read(t, r, SignalRequest{ID: "ttft", By: signal.ByEngine, Instance: "nobody:1", From: start, To: end, Step: time.Minute})
	if none.State != StateUnknown || !strings.Contains(none.Lines[0].Now.Reason, "nobody:1") {
		t.Errorf("nobody: %+v", none.Lines)
	}
}

func TestDifferentBucketLayouts(t *testing.T) {
	start := time.Unix(1780000020, 0)
	var ps []point
	for i := range 41 {
		at := start.Add(time.Duration(i) * 15 * time.Second)
		ps = append(ps, engineAt("a:1", "unified", at, float64(i*10), "0.1", "1.0", "10.0")...)
		ps = append(ps, engineAt("b:1", "unified", at, float64(i*10), "0.5", "1.0", "10.0")...)
	}
	end := start.Add(10 * time.Minute)
	_, r := testReader(t, end, ps...)
	res := read(t, r, SignalRequest{ID: "ttft", From: end.Add(-time.Minute), To: end, Step: 30 * time.Second})
	wantCodes(t, res.Warnings, "bucket_layouts")
	// Common bounds are 1.0 and 10.0: half the events of each engine lie at or below the first.
	p50 := res.Lines[0]
	if got := showNumber(p50.Now); got != "value 1 [0,1] atleast=false above=0.25 " {
		t.Errorf("p50 %s", got)
	}
	if v := p50.Values[len(p50.Values)-1]; v == nil || *v != 1 {
		t.Errorf("chart ends at %v", v)
	}
	if res.Worst == nil || res.Worst.Line != "p99" || !res.Worst.Number.AtLeast {
		t.Errorf("worst %+v", res.Worst)
	}
}

func TestQuantileLikePromQL(t *testing.T) {
	at := time.Unix(1780000000, 0)
	counts := map[string]float64{"0.1": 3, "0.5": 3, "1.0": 9, "5.0": 10, "+Inf": 12}
	var ps []point
	h := histogramOf{{0.1, 3}, {0.5, 3}, {1, 9}, {5, 10}, {math.Inf(1), 12}}
	for le, n := range counts {
		ps = append(ps, point{`x_bucket{le="` + le + `"}`, at.UnixMilli(), n})
	}
	s, _ := testReader(t, at, ps...)
	for _, q := range []float64{0, 0.1, 0.25, 0.26, 0.5, 0.75, 0.8, 0.83, 0.9, 0.99, 1} {
		want := eval(t, s.Engine(), s.Queryable(), fmt.Sprintf("histogram_quantile(%g, x_bucket)", q), at)["{}"]
		n, ok := h.quantile(q, 1)
		if !ok || math.Abs(*n.Value-want) > 1e-9 {
			t.Errorf("q %g: %s, PromQL says %v", q, showNumber(n), want)
		}
	}
	if _, ok := (histogramOf{{1, 0}, {math.Inf(1), 0}}).quantile(0.5, 1); ok {
		t.Error("a percentile of no events")
	}
}

func TestRequestsThatCannotBe(t *testing.T) {
	at := time.Unix(1780000000, 0)
	_, r := testReader(t, at)
	for name, c := range map[string]struct {
		req  SignalRequest
		want string
	}{
		"unknown signal": {SignalRequest{ID: "no_such", From: at, To: at}, `no signal "no_such"`},
		"backwards":      {SignalRequest{ID: "ttft", From: at, To: at.Add(-time.Hour)}, "ends"},
		"too fine":       {SignalRequest{ID: "ttft", From: at.Add(-24 * time.Hour), To: at, Step: time.Second}, "limit"},
	} {
		if _, err := r.Signal(context.Background(), c.req); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	res := read(t, r, SignalRequest{ID: "ttft", From: at.Add(-time.Hour), To: at})
	if res.State != StateUnknown || res.Lines[0].Now.Reason != "no engine was recorded in this range" {
		t.Errorf("empty store: %s %+v", res.State, res.Lines)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Signal(ctx, SignalRequest{ID: "throughput", From: at.Add(-2 * time.Hour), To: at}); err == nil {
		t.Error("a cancelled request gives no error")
	}
}
