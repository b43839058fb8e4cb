package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	promconfig "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/prompb"

	"github.com/rollscope/rollscope/internal/metricstore"
)

const someSeries = `
load 30s
  up 1x20
  sglang:generation_tokens_total{model_name="chat-7b"} 0+3000x20
  sglang:cache_hit_rate{model_name="chat-7b"} 0.5x20
  sglang:num_running_reqs{model_name="chat-7b"} 7x20
`

// storeAPI is an API over a store with a few series.
func storeAPI(t testing.TB, text string, change ...func(*Options)) (*API, *metricstore.Store) {
	store := openStore(t)
	load(t, store.Appendable(), text, "job", "sglang", "instance", "10.0.0.1:30000")
	return newAPI(t, append([]func(*Options){func(o *Options) { o.Prometheus = overStore(store) }}, change...)...), store
}

type promAnswer struct {
	Status   string
	Data     json.RawMessage
	Warnings []string
	Infos    []string
	Error    string
}

// What Grafana's Prometheus data source asks for, as it asks for it.
func TestGrafanaDatasource(t *testing.T) {
	a, _ := storeAPI(t, someSeries)
	at := fmt.Sprint(now.Unix())
	form := url.Values{"query": {"sum(rate(sglang:generation_tokens_total[1m]))"}, "start": {fmt.Sprint(now.Add(-5 * time.Minute).Unix())}, "end": {at}, "step": {"15"}}
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", "/api/v1/query?query=1%2B1&time=" + at, "", `"2"`}, // "Save & test"
		{"GET", "/api/v1/status/buildinfo", "", `"version":"3.`},
		{"POST", "/api/v1/query_range", form.Encode(), `"100"`},
		{"POST", "/api/v1/query", "query=up&time=" + at, `"1"`},
		{"GET", "/api/v1/label/__name__/values", "", `"sglang:cache_hit_rate"`},
		{"GET", "/api/v1/label/job/values?match[]=up", "", `["sglang"]`},
		{"POST", "/api/v1/labels", "", `"model_name"`},
		{"POST", "/api/v1/series", "match[]=up", `"10.0.0.1:30000"`},
		{"GET", "/api/v1/metadata", "", `{}`},
		{"GET", "/api/v1/targets", "", `"activeTargets":[]`},
		{"GET", "/api/v1/rules", "", `"groups":[]`},
		{"GET", "/api/v1/alerts", "", `"alerts":[]`},
		{"GET", "/api/v1/alertmanagers", "", `"activeAlertmanagers":[]`},
		{"GET", "/api/v1/query_exemplars?query=up&start=0&end=1", "", `[]`},
		{"GET", "/api/v1/status/config", "", "yaml"},
		{"GET", "/api/v1/status/flags", "", "success"},
		{"GET", "/api/v1/status/runtimeinfo", "", "GOMAXPROCS"},
		{"GET", "/api/v1/status/tsdb", "", `"numSeries":4`},
		{"GET", "/api/v1/status/tsdb/blocks", "", "blocks"},
		{"GET", "/api/v1/status/walreplay", "", "current"},
		{"GET", "/api/v1/features", "", "success"},
		{"GET", "/api/v1/scrape_pools", "", "scrapePools"},
		{"GET", "/api/v1/format_query?query=up%2Bup", "", "up + up"},
		{"GET", "/api/v1/parse_query?query=up", "", "vectorSelector"},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			w := ask(a, c.method, c.path, c.body, "Content-Type: application/x-www-form-urlencoded")
			if w.Code != 200 || !strings.Contains(w.Body.String(), c.want) {
				t.Errorf("status %d, want it to hold %s: %.400s", w.Code, c.want, w.Body)
			}
		})
	}
}

// The curl lines of SGLang's and Dynamo's documents, unchanged: data, or a warning that says why not.
func TestDocumentedCurlLines(t *testing.T) {
	a, _ := storeAPI(t, someSeries)
	start, end := now.Add(-time.Hour).Format(time.RFC3339), now.Format(time.RFC3339)
	for _, c := range []struct{ path, want string }{
		{"/api/v1/query?query=rate(sglang:generation_tokens_total[1m])&time=" + end, `"100"`},
		{"/api/v1/query?query=dynamo_component_gpu_cache_usage_percent&time=" + end, "dynamo_component"},
		{"/api/v1/query_range?query=sglang:cache_hit_rate&start=" + start + "&end=" + end + "&step=15s", `"0.5"`},
		{"/api/v1/query?query=sglang_cache_hit_rate&time=" + end, `"0.5"`}, // the spelling of a router
	} {
		w := ask(a, "GET", c.path, "")
		answer := decode[promAnswer](t, w)
		empty := strings.Contains(string(answer.Data), `"result":[]`)
		if w.Code != 200 || answer.Status != "success" || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s", c.path, w.Code, w.Body)
		}
		if empty && len(answer.Warnings)+len(answer.Infos) == 0 {
			t.Errorf("%s: neither data nor a word why: %s", c.path, w.Body)
		}
	}
	for _, c := range []struct{ path, want string }{
		{"/api/search", "Golden signals"}, {"/api/search?query=SGLang", "rollscope-golden"}, {"/api/dashboards/uid/rollscope-golden", `"dashboard":`},
	} {
		w := ask(a, "GET", c.path, "", "Authorization: Basic ZHluYW1vOmR5bmFtbw==") // -u dynamo:dynamo: no users, so anybody is
		if w.Code != 200 || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s", c.path, w.Code, w.Body)
		}
	}
}

func TestPrometheusErrors(t *testing.T) {
	a, _ := storeAPI(t, someSeries)
	w := ask(a, "GET", "/api/v1/query?query=sum(", "")
	if answer := decode[promAnswer](t, w); w.Code != 400 || answer.Status != "error" || !strings.Contains(answer.Error, "query") {
		t.Errorf("%d %+v", w.Code, answer)
	}
	// Not enabled: says which flag.
	if w := ask(a, "POST", "/api/v1/write", ""); w.Code != 404 || !strings.Contains(w.Body.String(), "--web.enable-remote-write-receiver") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(a, "POST", "/api/v1/admin/tsdb/clean_tombstones", ""); w.Code == 204 || w.Code == 200 {
		t.Errorf("the admin API is on without its flag: %d", w.Code)
	}
}

func TestRemoteWriteReceiver(t *testing.T) {
	a, _ := storeAPI(t, someSeries, func(o *Options) { o.Prometheus.RemoteWriteReceiver = true })
	raw, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: "sglang:num_queue_reqs"}, {Name: "job", Value: "far"}},
		Samples: []prompb.Sample{{Value: 3, Timestamp: now.Add(-time.Minute).UnixMilli()}},
	}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	w := ask(a, "POST", "/api/v1/write", string(snappy.Encode(nil, raw)), "Content-Type: application/x-protobuf", "Content-Encoding: snappy",
		"X-Prometheus-Remote-Write-Version: 0.1.0")
	if w.Code != http.StatusNoContent {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	w = ask(a, "GET", fmt.Sprintf("/api/v1/query?query=sglang:num_queue_reqs&time=%d", now.Unix()), "")
	if !strings.Contains(w.Body.String(), `"3"`) {
		t.Error(w.Body)
	}
}

func TestAdminAPI(t *testing.T) {
	a, _ := storeAPI(t, someSeries, func(o *Options) { o.Prometheus.AdminAPI = true })
	if w := ask(a, "POST", "/api/v1/admin/tsdb/delete_series?match[]=up", ""); w.Code != http.StatusNoContent {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w := ask(a, "GET", fmt.Sprintf("/api/v1/query?query=up&time=%d", now.Unix()), ""); !strings.Contains(w.Body.String(), `"result":[]`) {
		t.Error(w.Body)
	}
}

func TestFederate(t *testing.T) {
	a, _ := storeAPI(t, someSeries)
	w := ask(a, "GET", `/federate?match[]={__name__=~"sglang:.*"}&match[]=up`, "")
	want := fmt.Sprintf(`# TYPE sglang:cache_hit_rate untyped
sglang:cache_hit_rate{instance="10.0.0.1:30000",job="sglang",model_name="chat-7b"} 0.5 %d`, now.UnixMilli())
	if w.Code != 200 || !strings.Contains(w.Body.String(), want) || !strings.Contains(w.Body.String(), "\nup{") {
		t.Errorf("%d\n%s\nwant it to hold\n%s", w.Code, w.Body, want)
	}
	// A person gets text, a Prometheus what it prefers.
	for accept, want := range map[string]string{"*/*": "text/plain",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1": "application/vnd.google.protobuf"} {
		if w := ask(a, "GET", "/federate?match[]=up", "", "Accept: "+accept); !strings.HasPrefix(w.Header().Get("Content-Type"), want) {
			t.Errorf("Accept %s: %s", accept, w.Header().Get("Content-Type"))
		}
	}
	for _, q := range []string{"", "?match[]=up("} {
		w := ask(a, "GET", "/federate"+q, "")
		if body := decode[ErrorBody](t, w); w.Code != 400 || body.Error.Where != "match[]" {
			t.Errorf("%q: %d %s", q, w.Code, w.Body)
		}
	}
}

// The real promtool works against us.
func TestPromtool(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("ROLLSCOPE_TEST_STRICT") != "" {
			t.Fatal("promtool is not installed: apt-get install prometheus")
		}
		t.Skip("promtool is not installed: apt-get install prometheus")
	}
	a, _ := storeAPI(t, someSeries)
	s := httptest.NewServer(a)
	defer s.Close()
	at := now.Format(time.RFC3339)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"query", "instant", "--time=" + at, s.URL, "sum(rate(sglang:generation_tokens_total[1m]))"}, "=> 100 @"},
		{[]string{"query", "range", "--start=" + fmt.Sprint(now.Add(-time.Minute).Unix()), "--end=" + fmt.Sprint(now.Unix()), "--step=30s", s.URL, "sglang:cache_hit_rate"}, "0.5 @"},
		{[]string{"query", "series", "--match=up", "--start=" + fmt.Sprint(loadStart.Unix()), "--end=" + fmt.Sprint(now.Unix()), s.URL}, "10.0.0.1:30000"},
		{[]string{"query", "labels", "--start=" + fmt.Sprint(loadStart.Unix()), "--end=" + fmt.Sprint(now.Unix()), s.URL, "model_name"}, "chat-7b"},
	} {
		out, err := exec.Command(tool, c.args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("promtool %s: %v\n%s", strings.Join(c.args, " "), err, out)
		}
	}
}

// The store's alerts and rules come through as they are, and a rule that cannot fire says so.
func TestStoreRules(t *testing.T) {
	store := openStore(t)
	load(t, store.Appendable(), someSeries, "job", "sglang", "instance", "10.0.0.1:30000")
	r, err := metricstore.NewRules(metricstore.RulesOptions{Appendable: store.Appendable(), Queryable: store.Queryable(), Engine: store.Engine(),
		Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	file := metricstore.RuleFile{Name: "ours", Data: []byte(`groups:
- name: ours
  interval: 1m
  rules:
  - {alert: Busy, expr: "sglang:num_running_reqs > 5", labels: {severity: critical}, annotations: {summary: "{{ $labels.instance }} runs {{ $value }}"}}
  - {alert: Soon, expr: "sglang:num_running_reqs > 6", for: 1h, labels: {severity: warning}}
  - {alert: Never, expr: "sglang:num_running_reqs > 100", labels: {severity: warning}}
  - {alert: Blind, expr: "sglang:not_a_metric > 1", labels: {severity: warning}}
`)}
	if err := r.Apply(&promconfig.Config{GlobalConfig: promconfig.DefaultGlobalConfig}, []metricstore.RuleFile{file}, []string{"http://hook.example/x"}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	waitFor(t, func() bool { return len(r.Manager().RuleGroups()) == 1 })
	for _, g := range r.Manager().RuleGroups() {
		g.Eval(ctx, now)
	}
	a := newAPI(t, func(o *Options) {
		o.Prometheus = overStore(store)
		o.Rules = StoreRules(r)
	})
	body := decode[Envelope[Alerts]](t, ask(a, "GET", ours+"/alerts", "")).Data
	var got []string
	for _, al := range body.Alerts {
		got = append(got, fmt.Sprintf("%s %s %s %v %s %s", al.Name, al.State, al.Level, *al.Value, al.Summary, al.EngineID))
	}
	want := "Busy firing crit 7 10.0.0.1:30000 runs 7 sglang/10.0.0.1:30000\nSoon pending warn 7 Soon sglang/10.0.0.1:30000"
	if strings.Join(got, "\n") != want {
		t.Errorf("alerts:\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	got = nil
	for _, r := range body.Rules {
		got = append(got, fmt.Sprintf("%s %s %s %v", r.Name, r.State, r.Source, r.Reason != ""))
	}
	want = "Busy firing built-in false\nSoon pending built-in false\nNever inactive built-in false\nBlind blind built-in true"
	if strings.Join(got, "\n") != want {
		t.Errorf("rules:\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	if len(body.Receivers) != 1 {
		t.Errorf("receivers %v", body.Receivers)
	}
}

// waitFor waits until a condition that another goroutine makes true holds.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("it did not happen")
}

// Alerts of an archive come from the ALERTS series: what is firing at its end, and what was over before.
func TestRecordedAlerts(t *testing.T) {
	a, _ := storeAPI(t, `
load 30s
  ALERTS{alertname="AtEnd",alertstate="pending",severity="critical"} 1x4 stale
  ALERTS{alertname="AtEnd",alertstate="firing",severity="critical"} _x5 1x15
  ALERTS{alertname="Over",alertstate="firing",severity="warning"} 1x2 _x4 1x4 stale
  ALERTS{alertname="NeverFired",alertstate="pending",severity="warning"} 1x3 stale
`, func(o *Options) { o.Mode, o.Rules, o.Targets = ModeArchive, nil, nil })
	body := decode[Envelope[Alerts]](t, ask(a, "GET", ours+"/alerts?from=now-15m", "")).Data
	var got []string
	for _, al := range body.Alerts {
		until := "now"
		if al.Until != nil {
			until = *al.Until
		}
		got = append(got, fmt.Sprintf("%s %s %s %s", al.Name, al.State, al.Level, until))
	}
	want := "AtEnd firing crit now\nOver resolved warn 2026-01-02T14:55:55Z"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}
