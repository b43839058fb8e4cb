package systemport

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rollscope/rollscope/internal/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fixed() time.Time { return time.Unix(1_700_000_000, 0) }

// httpFetch asks as the recorder does.
func httpFetch(c *http.Client) func(context.Context, Target, int64) Answer {
	return func(ctx context.Context, t Target, limit int64) Answer {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL, http.NoBody)
		if err != nil {
			return Answer{Reason: "other", Message: err.Error()}
		}
		resp, err := c.Do(req)
		if err != nil {
			return Answer{Reason: "connection_refused", Message: err.Error()}
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, limit))
		if err != nil || resp.StatusCode != http.StatusOK {
			return Answer{Reason: "http_503"}
		}
		return Answer{ContentType: resp.Header.Get("Content-Type"), Body: body}
	}
}

func TestMetricsOverHTTP(t *testing.T) {
	up := true
	var targets []Target
	for _, body := range []string{"# TYPE sglang:a gauge\nsglang:a 1\n", "# TYPE sglang:a gauge\nsglang:a 2\n", "", "<html>"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		defer s.Close()
		targets = append(targets, Target{URL: s.URL + "/metrics", Instance: strings.TrimPrefix(s.URL, "http://"), Backend: engine.SGLang, Up: &up, EverUp: true})
	}
	loading := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer loading.Close()
	targets = append(targets, Target{URL: loading.URL + "/metrics", Instance: strings.TrimPrefix(loading.URL, "http://")},
		Target{URL: "http://192.0.2.1:1/metrics", Instance: "192.0.2.1:1", Backend: engine.SGLang, Up: &up}) // of another machine
	transport := &http.Transport{DisableKeepAlives: true}
	health, err := ParseHealthConfig("", "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	p := New(Options{Targets: func(context.Context) []Target { return targets }, Fetch: httpFetch(&http.Client{Transport: transport}), Machine: NewMachine(fixed), Health: health, Now: fixed})
	rec := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
	req.Header.Set("Accept-Encoding", "gzip")
	p.ServeMetrics(rec, req)
	zip, err := gzip.NewReader(rec.Body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := readAll(text); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for i, want := range []string{
		`sglang:a{worker_addr="` + "http://" + targets[0].Instance + `"} 1`,
		`sglang:a{worker_addr="` + "http://" + targets[1].Instance + `"} 2`,
		`target="` + targets[2].URL + `",state="starting",reason="no_metrics_yet"} 1`,
		`target="` + targets[3].URL + `",state="notready",reason="not_an_exposition"} 1`,
		`target="` + targets[4].URL + `",state="starting",reason="http_503"} 1`,
	} {
		if strings.Count(string(text), want) != 1 {
			t.Errorf("%d: %s does not stand once in\n%s", i, want, text)
		}
	}
	if strings.Contains(string(text), "192.0.2.1") {
		t.Error("an engine of another machine is there")
	}
}

func TestHealth(t *testing.T) {
	yes, no := true, false
	ready := Target{Instance: "a:1", Backend: engine.SGLang, Up: &yes, EverUp: true}
	loads := Target{Instance: "a:2", Up: &no, Reason: "connection_refused"}
	down := Target{Instance: "a:3", Backend: engine.SGLang, Up: &no, EverUp: true, Reason: "connection_refused"}
	wrong := Target{Instance: "a:4", Up: &no, Reason: "http_404"}
	other := Target{Instance: "a:5", Backend: engine.DCGM, Up: &no, EverUp: true, Reason: "timeout"}
	tests := []struct {
		name      string
		targets   []Target
		starting  string
		endpoints string
		status    State
		states    string // of engines
	}{
		{"ready", []Target{ready, other}, "", "", Ready, "a:1=ready"},
		{"starting", []Target{ready, loads}, "", "", NotReady, "a:1=ready a:2=starting"},
		{"starting counts as ready", []Target{ready, loads}, "ready", "", Ready, "a:1=ready a:2=starting"},
		{"down does not", []Target{ready, down}, "ready", "", NotReady, "a:1=ready a:3=notready"},
		{"wrong from the start", []Target{wrong}, "ready", "", NotReady, "a:4=notready"},
		{"one decides", []Target{ready, down}, "", `["a:1"]`, Ready, "a:1=ready a:3=notready"},
		{"all decide", []Target{ready, down}, "", `["generate"]`, NotReady, "a:1=ready a:3=notready"},
		{"nobody knows it", []Target{ready}, "", `["b"]`, NotReady, "a:1=ready"},
		{"no engine", nil, "", "", NotReady, ""},
		{"no engine, ready", nil, "ready", "", Ready, ""},
	}
	for _, tt := range tests {
		c, err := ParseHealthConfig("", "", tt.starting, tt.endpoints)
		if err != nil {
			t.Fatal(err)
		}
		h := Judge(tt.targets, c, 1500*time.Millisecond)
		var states []string
		for _, name := range sorted(h.Engines) {
			states = append(states, name+"="+string(h.Engines[name].State))
		}
		if h.Status != tt.status || strings.Join(states, " ") != tt.states {
			t.Errorf("%s: %s, %v", tt.name, h.Status, states)
		}
		body, err := json.Marshal(h)
		if err != nil || !strings.Contains(string(body), `"uptime":{"secs":1,"nanos":500000000}`) {
			t.Errorf("%s: %s, %v", tt.name, body, err)
		}
	}
	for _, bad := range [][4]string{{"health"}, {"/metrics"}, {"/{x}"}, {"", "/a b"}, {"", "", "starting"}, {"", "", "", "generate"}} {
		if _, err := ParseHealthConfig(bad[0], bad[1], bad[2], bad[3]); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
