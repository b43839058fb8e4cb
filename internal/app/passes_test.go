package app

import (
	"context"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/fpmbus"
	"github.com/rollscope/rollscope/internal/metricstore"
	"github.com/rollscope/rollscope/internal/passstore"
	"github.com/rollscope/rollscope/internal/sim/passes"
)

// passRig is a passPart with a store of metrics and without one of events.
func passRig(t *testing.T, text string) (*passPart, *metricstore.Store) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := metricstore.Open(context.Background(), metricstore.Options{Dir: t.TempDir(), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	cfg, err := config.Load([]byte("rollscope:\n"+text), t.TempDir()+"/rollscope.yaml")
	if err != nil {
		t.Fatal(err)
	}
	reader := metricstore.NewReader(store.Queryable(), store.Engine(), metricstore.ReaderOptions{Logger: log})
	metrics := metricsSource{store.Queryable(), store.Engine(), func() *metricstore.Reader { return reader }}
	plan := newPlanning(metrics, log)
	p := newPassPart(cfg.Rollscope.ForwardPasses, metrics, func(...string) string { return "" }, plan, log)
	if p.store, err = passstore.New(passstore.Options{Keep: passstore.KeepBursts, Logger: log}); err != nil {
		t.Fatal(err)
	}
	if err := plan.apply(cfg); err != nil {
		t.Fatal(err)
	}
	if p.now, err = openPassBus(&p.cfg, FPMOptions{}, p, log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p, store
}

// message is a pass as an engine's socket brings it.
func message(source string, at time.Time, p fpm.Pass) fpmbus.Message {
	return fpmbus.Message{Source: source, Kind: fpmbus.EngineSocket, Received: at, DPRank: int(p.Rank), Sequence: p.Counter, HasSequence: true, Payload: p.Append(nil, fpm.Layout{})}
}

func take(t *testing.T, p *passPart, list ...fpmbus.Message) {
	t.Helper()
	if err := p.Take(context.Background(), list); err != nil {
		t.Fatal(err)
	}
}

// An engine that works and says nothing is told within half a minute, with the reason; one that is idle or
// unknown is no alarm.
func TestBlindSources(t *testing.T) {
	const text = "  forward_passes:\n    zmq: [{endpoint: \"tcp://127.0.0.1:9\", engine: \"e:1\"}]\n"
	start := time.Now()
	for _, c := range []struct {
		name     string
		requests map[string]float64
		after    time.Duration
		flow     fpm.Flow
		alarm    bool
	}{
		{"busy", map[string]float64{"e:1": 12}, 15 * time.Second, fpm.Blind, true},
		{"busy, too early to tell", map[string]float64{"e:1": 12}, 5 * time.Second, fpm.Starting, false},
		{"idle", map[string]float64{"e:1": 0}, 15 * time.Second, fpm.Waiting, false},
		{"not scraped", map[string]float64{"other:1": 12}, 15 * time.Second, fpm.Unheard, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := passRig(t, text)
			p.since = start
			p.look(start.Add(c.after), scrapedEngines{requests: c.requests})
			s := p.Status()
			if len(s.Sources) != 1 || s.Sources[0].Flow != string(c.flow) || s.Sources[0].Alarm != c.alarm {
				t.Fatalf("%+v", s.Sources)
			}
			var blind *float64
			for _, m := range metricsOf(t, passCounters{p}, "rollscope_fpm_blind") {
				blind = new(m.GetGauge().GetValue())
			}
			if blind == nil || (*blind == 1) != c.alarm {
				t.Errorf("rollscope_fpm_blind is %v", blind)
			}
			if notices := p.notices(); (len(notices) == 1) != c.alarm {
				t.Errorf("%+v", notices)
			}
		})
	}
}

// A rank with nothing to do beside one that works is no rank without passes.
func TestIdleRankBesideBusyOne(t *testing.T) {
	p, _ := passRig(t, "  forward_passes:\n    zmq: [{endpoint: \"tcp://127.0.0.1:9\", ranks: 2, engine: \"e:1\"}]\n")
	start := time.Now()
	p.since = start
	for i := range uint64(40) {
		at := start.Add(time.Duration(i) * time.Second / 2)
		work := fpm.Pass{WorkerID: "7", Counter: i, Wall: 0.02, Scheduled: fpm.Scheduled{DecodeRequests: 3, DecodeKV: 900}}
		take(t, p, message("tcp://127.0.0.1:9", at, work), message("tcp://127.0.0.1:10", at, fpm.Pass{WorkerID: "7", Rank: 1, Counter: i}))
	}
	p.look(start.Add(20*time.Second), scrapedEngines{requests: map[string]float64{"e:1": 5}})
	for _, s := range p.Status().Sources {
		if s.Alarm || s.Flow != string(fpm.Receiving) {
			t.Errorf("%+v", s)
		}
	}
}

// Every pass is in the histograms, by what it did and with the queue of the engine's role.
func TestPassSeries(t *testing.T) {
	p, _ := passRig(t, "  forward_passes:\n    zmq: [{endpoint: \"tcp://127.0.0.1:9\", namespace: ns, component: decode}]\n")
	start := time.Now()
	m := func(i uint64, pass fpm.Pass) fpmbus.Message {
		pass.WorkerID, pass.Counter = "7", i
		out := message("tcp://127.0.0.1:9", start.Add(time.Duration(i)*10*time.Millisecond), pass)
		out.Namespace, out.Component = "ns", "decode"
		return out
	}
	decode := fpm.Pass{Wall: 0.004, Scheduled: fpm.Scheduled{DecodeRequests: 2, DecodeKV: 300}, Queued: fpm.Queued{PrefillRequests: 50, DecodeRequests: 3, DecodeKV: 700}}
	mixed := decode
	mixed.Wall, mixed.Scheduled.PrefillRequests, mixed.Scheduled.PrefillTokens = 0.25, 1, 512
	implausible := decode
	implausible.Wall = 1e6
	take(t, p, m(0, decode), m(1, decode), m(2, mixed), m(3, fpm.Pass{}), m(4, implausible), m(4, implausible) /* twice */, m(7, decode) /* after a gap */)
	count := func(name, label, value string) (n uint64, sum float64) {
		for _, x := range metricsOf(t, p.series, name) {
			for _, l := range x.GetLabel() {
				if l.GetName() == label && l.GetValue() == value {
					n, sum = n+x.GetHistogram().GetSampleCount(), sum+x.GetHistogram().GetSampleSum()
				}
			}
		}
		return n, sum
	}
	for _, c := range []struct {
		name, label, value string
		n                  uint64
		sum                float64
	}{
		{"rollscope_fpm_iteration_seconds", "work", "decode", 3, 0.012},
		{"rollscope_fpm_iteration_seconds", "work", "mixed", 1, 0.25},
		{"rollscope_fpm_iteration_seconds", "work", "prefill", 0, 0},
		{"rollscope_fpm_batch_requests", "phase", "decode", 5, 10}, // the one whose time cannot be had a batch all the same
		{"rollscope_fpm_batch_tokens", "kind", "prefill", 1, 512},
		{"rollscope_fpm_queued_requests", "worker_id", "7", 5, 15}, // of a decode engine those that wait for their KV cache, not the 50
		{"rollscope_fpm_queued_tokens", "kind", "decode_kv", 5, 3500},
		{"rollscope_fpm_queued_tokens", "kind", "prefill", 0, 0},
	} {
		if n, sum := count(c.name, c.label, c.value); n != c.n || sum < c.sum-1e-9 || sum > c.sum+1e-9 {
			t.Errorf("%s{%s=%q}: %d, %g; want %d, %g", c.name, c.label, c.value, n, sum, c.n, c.sum)
		}
	}
	for name, want := range map[string]float64{"rollscope_fpm_passes_total": 5, "rollscope_fpm_heartbeats_total": 1, "rollscope_fpm_missing_total": 2, "rollscope_fpm_duplicates_total": 1} {
		for _, x := range metricsOf(t, passCounters{p}, name) {
			if x.GetCounter().GetValue() != want {
				t.Errorf("%s is %g, want %g", name, x.GetCounter().GetValue(), want)
			}
		}
	}
	live, err := p.Live("", "ns/decode/7", 10)
	if err != nil || len(live.Rank) != 6 || live.Flags[3] != int(passstore.Heartbeat) || live.Flags[4]&int(passstore.Implausible) == 0 || live.Flags[5]&int(passstore.Gap) == 0 || live.Missing[5] != 2 {
		t.Errorf("%+v %v", live, err)
	}
	// A rank that falls silent for an hour is forgotten, with its series.
	p.look(start.Add(2*time.Hour), scrapedEngines{})
	if left := metricsOf(t, p.series, "rollscope_fpm_iteration_seconds"); len(left) != 0 || len(p.ranks) != 0 {
		t.Errorf("%d series of %d ranks are left", len(left), len(p.ranks))
	}
}

// metricsOf are the metrics of a name.
func metricsOf(t *testing.T, c prometheus.Collector, name string) []*dto.Metric {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()
		}
	}
	return nil
}

// What is scraped says whether an engine works, what waits at it, and whose worker_id is whose.
func TestScrapedEngines(t *testing.T) {
	p, store := passRig(t, "  forward_passes: {}\n")
	now := time.Now().Truncate(time.Millisecond)
	app := store.Appendable().AppenderV2(t.Context())
	add := func(ago time.Duration, v float64, list ...string) {
		t.Helper()
		if _, err := app.Append(0, labels.FromStrings(append([]string{"job", "j"}, list...)...), 0, now.Add(-ago).UnixMilli(), v, nil, nil, storage.AOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, ago := range []time.Duration{50 * time.Second, 30 * time.Second, 10 * time.Second} {
		ran := (60 - ago.Seconds()) / 10
		for _, tp := range []string{"0", "1"} { // both ranks tell the same
			add(ago, 4, "__name__", "sglang:num_running_reqs", "instance", "long:1", "tp_rank", tp)
			add(ago, 7, "__name__", "sglang:num_queue_reqs", "instance", "long:1", "tp_rank", tp)
		}
		add(ago, 100, "__name__", "sglang:num_requests_total", "instance", "long:1") // none ended
		add(ago, ran, "__name__", "sglang:num_requests_total", "instance", "quick:1")
		add(ago, 0, "__name__", "sglang:num_running_reqs", "instance", "quick:1")
		add(ago, 5, "__name__", "vllm:request_success_total", "instance", "idle:1")
		add(ago, 0, "__name__", "vllm:num_requests_running", "instance", "idle:1")
		add(ago, 1, "__name__", "dynamo_component_uptime_seconds", "instance", "d:1", "worker_id", "694d98147d54be25")
		add(ago, 1, "__name__", "dynamo_component_uptime_seconds", "instance", "d:2", "worker_id", "1f")
		add(ago, 1, "__name__", "dynamo_component_uptime_seconds", "instance", "d:3", "worker_id", "1f")
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	s, err := p.metrics.scrape(t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	if s.requests["long:1"] != 4 || s.requests["quick:1"] < 4 || s.requests["quick:1"] > 7 {
		t.Errorf("%v", s.requests)
	}
	if n, ok := s.requests["idle:1"]; !ok || n != 0 {
		t.Errorf("an idle engine: %v %v", n, ok)
	}
	if _, ok := s.requests["d:1"]; ok {
		t.Error("an engine without counters is known to be idle")
	}
	if q := s.queues["long:1"]; q.Waiting == nil || *q.Waiting != 7 || q.Prealloc != nil {
		t.Errorf("%+v", q)
	}
	for worker, want := range map[string]string{"7587888160958627365": "d:1", "31": "" /* two have it */, "5": ""} {
		if got := s.instanceOf(worker, ""); got != want {
			t.Errorf("worker %s is of %q, want %q", worker, got, want)
		}
	}
	if got := s.instanceOf("31", "e:1"); got != "e:1" {
		t.Errorf("the configuration's word does not count: %q", got)
	}
}

// A relay that the configuration names carries what engines send, an embedded NATS server takes it, and a
// reload changes both.
func TestRelayAndReload(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	at := make(chan string, 2)
	for range 2 {
		wg.Go(func() {
			if _, err := passes.Run(ctx, passes.Options{Endpoint: "tcp://127.0.0.1:0", Ranks: 1, Rate: 100, Worker: "7", Begun: func(e []string) { at <- e[0] }}); err != nil {
				t.Error(err)
			}
		})
	}
	one, two := <-at, <-at
	text := func(endpoint string) string {
		return "  forward_passes:\n    keep: bursts\n    zmq: [{endpoint: \"" + endpoint + "\"}]\n    relay: {nats: {url: embedded}, namespace: ns, component: backend}\n"
	}
	p, _ := passRig(t, text(one))
	wg.Go(func() {
		if err := p.run(ctx); err != nil {
			t.Error(err)
		}
	})
	from := func(source string) {
		t.Helper()
		until(t, "passes come from "+source+" and are relayed", func() bool {
			s := p.Status()
			return len(s.Sources) == 1 && s.Sources[0].Name == source && s.Sources[0].Passes > 0 && s.Relay != nil && s.Relay.Relayed > 0 && s.Relay.State == string(fpmbus.Connected)
		})
	}
	from(one)
	cfg, err := config.Load([]byte("rollscope:\n"+text(two)), "rollscope.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.apply(cfg); err != nil {
		t.Fatal(err)
	}
	from(two)
	bad, err := config.Load([]byte("rollscope:\n  forward_passes:\n    zmq: [{endpoint: \""+two+"\"}]\n    relay: {bind: \"tcp://203.0.113.1:9\", namespace: ns, component: c}\n"), "rollscope.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.apply(bad); err != nil {
		t.Fatal(err)
	}
	until(t, "what cannot be opened is said", func() bool {
		for _, n := range p.notices() {
			if n.Code == "passes_config" && strings.Contains(n.Message, "203.0.113.1") {
				return true
			}
		}
		return false
	})
	from(two) // goes on
	if err := p.apply(cfg); err != nil {
		t.Fatal(err)
	}
	if n := p.notices(); len(n) != 0 {
		t.Errorf("what was put right is still said: %+v", n)
	}
	from(two)
}

// Bursts start by themselves for what the configuration names.
func TestBurstTriggers(t *testing.T) {
	for on, want := range map[string][]string{"": {"restart"}, "burst: {on: [gap]}": {"gap"}} {
		p, _ := passRig(t, "  forward_passes:\n    zmq: [{endpoint: \"tcp://127.0.0.1:9\"}]\n    keep: bursts\n    "+on+"\n")
		start := time.Now()
		for i, counter := range []uint64{10, 11, 15, 16, 0, 1} {
			take(t, p, message("tcp://127.0.0.1:9", start.Add(time.Duration(i)*time.Second), fpm.Pass{WorkerID: "7", Counter: counter, Wall: 0.01, Scheduled: fpm.Scheduled{DecodeRequests: 1, DecodeKV: 9}}))
		}
		got := map[string]bool{}
		for _, b := range p.Status().Bursts {
			got[b.Trigger] = true
		}
		wanted := map[string]bool{}
		for _, w := range want {
			wanted[w] = true
		}
		if !maps.Equal(got, wanted) {
			t.Errorf("%q: %v, want %v", on, got, wanted)
		}
	}
}

// An alert that begins to fire keeps the passes around it, once.
func TestBurstOfAnAlert(t *testing.T) {
	p, _ := passRig(t, "  forward_passes: {keep: bursts}\n")
	firing := []api.Alert{{Name: "SGLangDown", State: "firing"}, {Name: "Slow", State: "pending"}}
	p.alerts = func() []api.Alert { return firing }
	for range 3 {
		p.look(time.Now(), scrapedEngines{})
	}
	if b := p.Status().Bursts; len(b) != 1 || b[0].Trigger != "alert" || b[0].Reason != "SGLangDown" {
		t.Errorf("%+v", b)
	}
}

// onLog calls a function when something is logged as an error.
type onLog struct {
	slog.Handler
	call func()
}

func (h onLog) Enabled(context.Context, slog.Level) bool { return true }

func (h onLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelError {
		h.call()
	}
	return nil
}

// A configuration that comes while the one before it is found not to work is not lost, and nothing is said of the
// one that nobody wants any more.
func TestConfigurationWhileSourcesAreOpened(t *testing.T) {
	text := func(port string) string {
		return "  forward_passes:\n    keep: bursts\n    zmq: [{endpoint: \"tcp://127.0.0.1:" + port + "\"}]\n"
	}
	load := func(text string) *config.Config {
		t.Helper()
		cfg, err := config.Load([]byte("rollscope:\n"+text), "rollscope.yaml")
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	for name, port := range map[string]string{"another one": "11", "the one before": "9"} {
		t.Run(name, func(t *testing.T) {
			p, _ := passRig(t, text("9"))
			apply := func(cfg *config.Config) {
				if err := p.apply(cfg); err != nil {
					t.Error(err)
				}
			}
			p.log = slog.New(onLog{Handler: slog.DiscardHandler, call: func() { apply(load(text(port))) }})
			apply(load(text("9") + "    relay: {bind: \"tcp://203.0.113.1:9\", namespace: ns, component: c}\n"))
			<-p.changes
			p.reopen() // finds that it does not work, and hears of the next one
			<-p.changes
			p.log = slog.New(slog.DiscardHandler)
			p.reopen()
			if s := p.Status().Sources; len(s) != 1 || s[0].Name != "tcp://127.0.0.1:"+port {
				t.Errorf("sources %+v", s)
			}
			if n := p.notices(); len(n) != 0 {
				t.Errorf("it is said %+v", n)
			}
		})
	}
}
