package api

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/metricstore"
	"github.com/rollscope/rollscope/internal/signal"
)

// realAPI is an API over a store, the real catalog and the real reader.
func realAPI(t *testing.T, text string, extra ...string) (*API, *metricstore.Store) {
	t.Helper()
	store := openStore(t)
	load(t, store.Appendable(), text, extra...)
	cat := signal.Default()
	reader := metricstore.NewReader(store.Queryable(), store.Engine(), metricstore.ReaderOptions{Catalog: cat, Now: func() time.Time { return now }})
	a := newAPI(t, func(o *Options) {
		o.Prometheus, o.Catalog = overStore(store), cat
		o.Reader = NewStoreReader(func() *metricstore.Reader { return reader })
		o.Targets, o.Rules = nil, nil
	})
	return a, store
}

func readCase(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "cases", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// signalNow asks for a signal and returns the number of the line with that quantile (of the only line for 0).
func signalNow(t *testing.T, a *API, id string, quantile float64) (Number, Envelope[SignalData]) {
	t.Helper()
	w := ask(a, "GET", ours+"/signals/"+id+"?from=now-10m&step=30", "")
	if w.Code != 200 {
		t.Fatalf("%s: %d %s", id, w.Code, w.Body)
	}
	if strings.Contains(w.Body.String(), "NaN") || strings.Contains(w.Body.String(), "Inf") {
		t.Errorf("%s: the answer holds what JSON has no word for: %s", id, w.Body)
	}
	e := decode[Envelope[SignalData]](t, w)
	for _, l := range e.Data.Lines {
		if quantile == 0 || l.Quantile != nil && *l.Quantile == quantile {
			return l.Now, e
		}
	}
	t.Fatalf("%s has no such line: %s", id, w.Body)
	return Number{}, e
}

// Case P01: counters are there and do not move.
func TestIdle(t *testing.T) {
	a, _ := realAPI(t, readCase(t, "P01.promtest"), "job", "dynamo", "instance", "10.0.0.9:8000")
	n, e := signalNow(t, a, "ttft", 0.99)
	if n.Value != nil || n.State != StateIdle || e.State != StateIdle {
		t.Errorf("TTFT without requests: %+v, the whole is %s", n, e.State)
	}
	if n, _ := signalNow(t, a, "request_rate", 0); n.State != StateValue || n.Value == nil || *n.Value != 0 {
		t.Errorf("request rate without requests: %+v", n)
	}
}

// Case P01, the end of it: the first traffic after idle is a number at the next evaluation.
func TestIdleEnds(t *testing.T) {
	a, _ := realAPI(t, `
load 30s
  up 1x20
  sglang:time_to_first_token_seconds_bucket{le="0.5"} 40x19 43
  sglang:time_to_first_token_seconds_bucket{le="1.0"} 50x19 53
  sglang:time_to_first_token_seconds_bucket{le="+Inf"} 50x19 53
  sglang:time_to_first_token_seconds_count 50x19 53
  sglang:time_to_first_token_seconds_sum 20x19 21
  sglang:num_running_reqs 0x19 1
`, "job", "sglang", "instance", "10.0.0.1:30000", "model_name", "chat-7b")
	before := decode[Envelope[SignalData]](t, ask(a, "GET", ours+"/signals/ttft?quantiles=0.5&step=30&from=now-10m&to=now-30s", ""))
	if n := before.Data.Lines[0].Now; n.State != StateIdle || n.Value != nil || before.State != StateIdle {
		t.Errorf("before: %s", show(n))
	}
	if n, e := signalNow(t, a, "ttft", 0.5); n.State != StateValue || n.Value == nil || *n.Value <= 0 || *n.Value > 0.5 || e.State != StateValue {
		t.Errorf("after: %s", show(n))
	}
	// The engine follows: idle, then ok.
	for to, want := range map[string]Level{"now-30s": LevelIdle, "now": LevelOK} {
		fleet := decode[Envelope[Engines]](t, ask(a, "GET", ours+"/engines?from=now-10m&to="+to, "")).Data.Engines
		if len(fleet) != 1 || fleet[0].Level != want {
			t.Errorf("at %s: %+v", to, fleet)
		}
	}
}

// Case M16: a tenth of the requests lie above the highest bound.
func TestAboveTheTopBound(t *testing.T) {
	text := strings.ReplaceAll(readCase(t, "M16.promtest"), "x10", "x20")
	a, _ := realAPI(t, text, "job", "sglang", "instance", "10.0.0.1:30000", "model_name", "chat-7b")
	p99, _ := signalNow(t, a, "e2e", 0.99)
	if !p99.AtLeast || p99.Lower == nil || *p99.Lower != 60 || p99.Upper != nil || p99.ShareAbove == nil || *p99.ShareAbove < 0.0999 || *p99.ShareAbove > 0.1001 {
		t.Errorf("p99 %+v", show(p99))
	}
	if got := say(p99, "seconds"); got != ">= 60 s" {
		t.Errorf("p99 is shown as %q", got)
	}
	p50, _ := signalNow(t, a, "e2e", 0.5)
	if p50.AtLeast || p50.Lower == nil || p50.Upper == nil || *p50.Lower != 5 || *p50.Upper != 10 {
		t.Errorf("p50 %+v", show(p50))
	}
}

// A finished record: nothing is scraped or evaluated, and every answer comes from what was written.
func TestOverAnArchive(t *testing.T) {
	store := openStore(t)
	load(t, store.Appendable(), someSeries+`
  sglang:time_to_first_token_seconds_bucket{le="0.5"} 0+10x20
  sglang:time_to_first_token_seconds_bucket{le="+Inf"} 0+10x20
  sglang:time_to_first_token_seconds_count 0+10x20
  ALERTS{alertname="SGLangTTFTHigh",alertstate="firing",severity="warning"} _x15 1x5
`, "job", "sglang", "instance", "10.0.0.1:30000", "model_name", "chat-7b")
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	cat := signal.Default()
	archive, err := metricstore.OpenArchive(context.Background(), metricstore.ArchiveOptions{Dir: store.Dir(), Catalog: cat})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := archive.Close(); err != nil {
			t.Error(err)
		}
	})
	reader := metricstore.NewReader(archive.Queryable(), archive.Engine(), metricstore.ReaderOptions{Catalog: cat})
	a := newAPI(t, func(o *Options) {
		o.Mode, o.Catalog, o.Targets, o.Rules, o.Reload = ModeArchive, cat, nil, nil, nil
		o.Now = func() time.Time { return now.AddDate(1, 0, 0) } // it is looked at a year later
		o.Reader = NewStoreReader(func() *metricstore.Reader { return reader })
		o.Prometheus = Prometheus{Engine: archive.Engine(), Queryable: archive.Queryable(), Archive: archive}
	})
	status := decode[Envelope[Status]](t, ask(a, "GET", ours+"/status", "")).Data
	if status.From == nil || *status.From != stamp(loadStart) || status.To == nil || *status.To != stamp(now) || !status.ReadOnly {
		t.Errorf("%+v", status)
	}
	overview := decode[Envelope[Overview]](t, ask(a, "GET", ours+"/overview?from=now-10m", "")).Data
	if len(overview.Golden) != 5 || len(overview.Engines.Engines) != 1 || len(overview.Alerts) != 1 {
		t.Fatalf("%+v", overview)
	}
	if e := overview.Engines.Engines[0]; e.Level != LevelWarn || e.Why != "SGLangTTFTHigh" || e.Signals["ttft:p99"].Value == nil {
		t.Errorf("%+v", e)
	}
	for _, c := range []struct{ path, want string }{
		{"/api/v1/status/tsdb", `"numSeries":8`},
		{"/api/v1/status/tsdb/blocks", "blocks"},
		{fmt.Sprintf("/api/v1/query?query=sglang:num_running_reqs&time=%d", now.Unix()), `"7"`},
		{"/federate?match[]=up", "up{"},
	} {
		if w := ask(a, "GET", c.path, ""); w.Code != 200 || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s", c.path, w.Code, w.Body)
		}
	}
}

func show(n Number) string {
	f := func(p *float64) string {
		if p == nil {
			return "null"
		}
		return fmt.Sprint(*p)
	}
	return fmt.Sprintf("%s %s %q lower %s upper %s at least %v above %s", f(n.Value), n.State, n.Reason, f(n.Lower), f(n.Upper), n.AtLeast, f(n.ShareAbove))
}
