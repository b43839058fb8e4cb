package api

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"go.uber.org/goleak"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/metricstore"
	"github.com/rollscope/rollscope/internal/signal"
)

var update = flag.Bool("update", false, "write the golden files")

// now is the clock of every test; loadStart is where the samples of load begin.
var (
	now       = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	loadStart = now.Add(-10 * time.Minute)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openStore opens a store in a fresh directory, with the clock at now.
func openStore(t testing.TB) *metricstore.Store {
	t.Helper()
	s, err := metricstore.Open(context.Background(), metricstore.Options{Dir: t.TempDir(), Mounts: "-", Registerer: prometheus.NewRegistry(),
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }})
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

// load appends the series of the load blocks of a promtest text, with job and instance where they have
// none. Samples begin at loadStart.
func load(t testing.TB, to storage.AppendableV2, text string, extra ...string) {
	t.Helper()
	p := parser.NewParser(parser.Options{})
	step := 30 * time.Second
	app := to.AppenderV2(context.Background())
	loading := false
	for _, line := range strings.Split(text, "\n") {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "load":
			d, err := time.ParseDuration(rest)
			if err != nil {
				t.Fatal(err)
			}
			step, loading = d, true
			continue
		case word == "eval" || word == "clear":
			loading = false
			continue
		case word == "" || !loading:
			continue
		}
		ls, values, err := p.ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		b := labels.NewBuilder(ls)
		for i := 0; i+1 < len(extra); i += 2 {
			if !ls.Has(extra[i]) {
				b.Set(extra[i], extra[i+1])
			}
		}
		for i, v := range values {
			if v.Omitted {
				continue
			}
			if _, err := app.Append(0, b.Labels(), 0, loadStart.Add(time.Duration(i)*step).UnixMilli(), v.Value, nil, nil, storage.AOptions{}); err != nil {
				_ = app.Rollback() // else the store waits for it
				t.Fatalf("%s: %v", line, err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

// overStore is the part of the options that a store gives.
func overStore(s *metricstore.Store) Prometheus {
	return Prometheus{Engine: s.Engine(), Queryable: s.Queryable(), Exemplars: s.ExemplarQueryable(), Appendable: s.Appendable(), DB: s.DB,
		Started: now}
}

// newAPI makes an API over an empty store and a fake fleet, as change says.
func newAPI(t testing.TB, change ...func(*Options)) *API {
	t.Helper()
	store := openStore(t)
	o := Options{
		Mode: ModeLive, Version: "1.2.3", Dir: "/data", Now: func() time.Time { return now },
		Gatherer:   prometheus.NewRegistry(),
		Hosts:      Hosts{Listen: []net.Addr{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9090}}},
		Access:     Access{Loopback: true},
		Reader:     fakeReader{},
		Catalog:    fakeCatalog{},
		Prometheus: overStore(store),
		Targets:    fakeTargets{},
		Rules:      fakeRules{},
		Boards:     fakeBoards{},
		Rollouts:   fakeRollouts{},
		Timelines:  fakeTimelines{timelineOf(t)},
		Drops:      func() []Drop { return []Drop{{Source: "sglang/10.0.0.1:30000", Reason: "duplicate", Count: 3}} },
		Notices:    func() []Warning { return []Warning{{Code: "filesystem", Message: "on NFS", Hint: "use a local disk"}} },
		ConfigView: func() ConfigView {
			return ConfigView{Path: "rollscope.yaml", YAML: "global: {}\n", Flags: map[string]string{"web.listen-address": "127.0.0.1:9090"}}
		},
		Reload: func(context.Context) error { return nil },
		UI: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/" && r.URL.Path != "/engines" {
				http.NotFound(w, r)
				return
			}
			io.WriteString(w, "<!doctype html>")
		}),
	}
	for _, c := range change {
		c(&o)
	}
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ask sends a request to the handler; header lines are "Name: value", Host included.
func ask(h http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "localhost:9090"
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// golden compares an answer's JSON with testdata/golden/NAME.json.
func golden(t *testing.T, name string, body []byte) {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("the answer is not JSON: %v\n%s", err, body)
	}
	maskPromQL(v)
	got, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := filepath.Join("testdata", "golden", name+".json")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs (go test -update writes it anew); got\n%s", file, got)
	}
}

// maskPromQL replaces the expressions of signals, which are the signal package's to test.
func maskPromQL(v any) {
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			maskPromQL(e)
		}
	case map[string]any:
		for _, e := range x {
			maskPromQL(e)
		}
		if s, ok := x["recorded"].(string); ok && s != "" {
			x["recorded"], x["query"] = "PromQL", "PromQL"
		}
	}
}

func decode[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("status %d: %v\n%s", w.Code, err, w.Body)
	}
	return v
}

func ptr[T any](v T) *T { return &v }

// fakeReader is a fleet of six engines: five busy decoders of which one is slow, and one that is idle.
type fakeReader struct {
	signalErr error
	noData    bool
}

var fakeFleet = []string{"10.0.0.1:30000", "10.0.0.2:30000", "10.0.0.3:30000", "10.0.0.4:30000", "10.0.0.5:30000", "10.0.0.6:30000"}

func (f fakeReader) Engines(context.Context, time.Time, time.Time) ([]Engine, []Warning, error) {
	var out []Engine
	for i, instance := range fakeFleet {
		out = append(out, Engine{ID: EngineID("sglang", instance), Name: "engine " + string(rune('a'+i)), Job: "sglang", Instance: instance,
			Role: "unified", Backend: "sglang", Version: "0.5.11", Model: "chat-7b", View: "direct"})
	}
	return out, nil, nil
}

func (f fakeReader) Signal(_ context.Context, q SignalRequest) (SignalData, []Warning, error) {
	if f.signalErr != nil {
		return SignalData{}, nil, f.signalErr
	}
	unit := "seconds"
	if q.ID == "throughput" {
		unit = "tokens/s"
	}
	d := SignalData{ID: q.ID, Title: q.ID, Unit: unit, Form: "raw", Query: "up", From: stamp(q.From), To: stamp(q.To), Step: q.Step.Seconds()}
	line := func(name, instance string, quantile *float64, v *float64, state State) Line {
		l := Line{Name: name, Quantile: quantile, Labels: map[string]string{}, Values: []*float64{nil, v}, Now: Number{Value: v, State: state}}
		if instance != "" {
			l.Labels["instance"] = instance
		}
		if state == StateIdle {
			l.Now.Reason = "none since 13:41"
		}
		return l
	}
	quantiles := []*float64{nil}
	if q.ID == "ttft" || q.ID == "itl" {
		quantiles = nil
		for _, x := range q.Quantiles {
			quantiles = append(quantiles, ptr(x))
		}
	}
	for _, quantile := range quantiles {
		if q.By == "fleet" {
			d.Lines = append(d.Lines, line("fleet", "", quantile, ptr(0.5), StateValue))
			continue
		}
		for i, instance := range fakeFleet {
			switch {
			case q.Instance != "" && q.Instance != instance:
			case i == 5 && (q.ID == "running" || q.ID == "queue_depth" || q.ID == "throughput"):
				d.Lines = append(d.Lines, line("engine", instance, quantile, ptr(0.0), StateValue))
			case i == 5:
				d.Lines = append(d.Lines, line("engine", instance, quantile, nil, StateIdle))
			case i == 2 && q.ID == "ttft":
				d.Lines = append(d.Lines, line("engine", instance, quantile, ptr(4.2), StateValue))
			default:
				d.Lines = append(d.Lines, line("engine", instance, quantile, ptr(0.8), StateValue))
			}
		}
	}
	return d, []Warning{{Code: "example", Message: "as in " + q.ID}}, nil
}

func (f fakeReader) Coverage(context.Context) (first, last time.Time, gaps []Interval, err error) {
	if f.noData {
		return time.Time{}, time.Time{}, nil, nil
	}
	return now.Add(-24 * time.Hour), now, []Interval{{From: stamp(now.Add(-2 * time.Hour)), To: stamp(now.Add(-time.Hour))}}, nil
}

func (f fakeReader) Names(context.Context, time.Time, time.Time) ([]string, error) {
	return []string{"sglang:num_running_reqs", "sglang:my_own_total", "sglang:my_hist_bucket", "sglang:my_hist_count", "sglang:my_hist_sum", "up"}, nil
}

// fakeCatalog is a small catalog that does not change when the real one learns more.
type fakeCatalog struct{}

func (fakeCatalog) Signals() []signal.Signal {
	one := func(id, title, short, unit string, kind signal.Kind, metric string) signal.Signal {
		return signal.Signal{ID: id, Title: title, Short: short, Group: "Golden", Unit: unit, Kind: kind, Meaning: "what " + short + " means",
			Sources: []signal.Source{{Backend: engine.SGLang, Name: "the engine's", Num: signal.Vec{{Metric: metric}}}}}
	}
	hits := one("cache_hit_rate", "Cache hit rate", "Hit rate", "ratio", signal.Share, "sglang:cached_tokens_total")
	hits.Higher = true
	hits.Sources[0].Den = signal.Vec{{Metric: "sglang:prompt_tokens_total"}}
	speed := one("throughput", "Throughput", "tok/s", "tokens/s", signal.Rate, "sglang:generation_tokens_total")
	speed.Higher = true
	pd := one("pd_queue", "Bootstrap queue", "Bootstrap", "requests", signal.Level, "sglang:num_prefill_prealloc_queue_reqs")
	pd.Roles = []engine.Role{engine.Prefill}
	return []signal.Signal{
		one("ttft", "Time to first token", "TTFT", "seconds", signal.Quantile, "sglang:time_to_first_token_seconds"),
		one("itl", "Inter-token latency", "ITL", "seconds", signal.Quantile, "sglang:inter_token_latency_seconds"),
		speed, hits,
		one("queue_depth", "Queue depth", "Queued", "requests", signal.Level, "sglang:num_queue_reqs"),
		one("running", "Running requests", "Running", "requests", signal.Level, "sglang:num_running_reqs"),
		one("kv_usage", "KV cache usage", "KV", "ratio", signal.Worst, "sglang:token_usage"),
		pd,
	}
}

func (c fakeCatalog) Signal(id string) (signal.Signal, bool) {
	for _, s := range c.Signals() {
		if s.ID == id {
			return s, true
		}
	}
	return signal.Signal{}, false
}

func (fakeCatalog) Metrics() []signal.Metric {
	return []signal.Metric{
		{Name: "sglang:num_running_reqs", Backend: engine.SGLang, Type: signal.Gauge, Unit: "requests", Labels: []string{"tp_rank"}, Meaning: "running"},
		{Name: "sglang:never_was", Invented: true},
	}
}

func (c fakeCatalog) Metric(name string) (signal.Metric, bool) {
	for _, m := range c.Metrics() {
		if m.Name == signal.Canonical(name) {
			return m, true
		}
	}
	return signal.Metric{}, false
}

type fakeTargets struct{}

func (fakeTargets) Targets() []Target {
	return []Target{
		{Job: "sglang", Instance: fakeFleet[0], URL: "http://10.0.0.1:30000/metrics", Backend: "sglang", Up: ptr(true), LastScrape: ptr(stamp(now))},
		{Job: "sglang", Instance: fakeFleet[3], URL: "http://10.0.0.4:30000/metrics", Up: ptr(false), Error: "connection refused", Reason: "connection_refused"},
		{Job: "sglang", Instance: fakeFleet[4], URL: "http://10.0.0.5:30000/metrics"},
	}
}

func (fakeTargets) Skipped() []SkippedTarget {
	return []SkippedTarget{{Address: "unix:/x", Reason: "not an address", From: "workers.json"}}
}

type fakeRules struct{}

func (fakeRules) Alerts() []Alert {
	return []Alert{{Name: "HighTTFT", State: "firing", Severity: "critical", Since: ptr(stamp(now.Add(-5 * time.Minute))), Value: ptr(4.2),
		Summary: "slow", Labels: map[string]string{"alertname": "HighTTFT", "instance": fakeFleet[1], "severity": "critical"}, Group: "g"}}
}

func (fakeRules) Rules(context.Context) ([]AlertRule, error) {
	return []AlertRule{{Name: "HighTTFT", Group: "g", Expr: "sglang:num_running_reqs > 1", State: "firing", Source: "built-in"},
		{Name: "Blind", Group: "g", Expr: "sglang:nothing_of_the_kind > 1", State: "blind", Reason: "no data", Source: "rules.yml"}}, nil
}

func (fakeRules) Receivers() []string { return []string{"http://alertmanager:9093/api/v2/alerts"} }

type fakeBoards struct{}

func (fakeBoards) Boards() []Board {
	return []Board{{ID: "golden", Title: "Golden signals", Sections: []BoardSection{{Title: "Latency", Panels: []Panel{{ID: "ttft", Title: "TTFT", Signal: "ttft"}}}}},
		{ID: "pd", Title: "PD disaggregation"}}
}

func (fakeBoards) Search(query string) []BoardHit {
	if !strings.Contains("golden signals sglang", strings.ToLower(query)) {
		return nil
	}
	return []BoardHit{{UID: "rollscope-golden", Title: "Golden signals", Tags: []string{"sglang"}}}
}

func (fakeBoards) Grafana(uid string) (json.RawMessage, bool, error) {
	if uid != "rollscope-golden" {
		return nil, false, nil
	}
	return json.RawMessage(`{"uid":"rollscope-golden","title":"Golden signals"}`), true, nil
}
