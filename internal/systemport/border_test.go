package systemport

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/engine"
)

// newPort makes a port of these targets; fetch nil asks over HTTP.
func newPort(t *testing.T, targets func() []Target, fetch func(context.Context, Target, int64) Answer) *Port {
	t.Helper()
	health, err := ParseHealthConfig("", "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if fetch == nil {
		fetch = httpFetch(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}})
	}
	return New(Options{Targets: func(context.Context) []Target { return targets() }, Fetch: fetch, Machine: NewMachine(fixed), Health: health, Now: fixed})
}

// says is a Fetch of answers by instance.
func says(texts map[string]string) func(context.Context, Target, int64) Answer {
	return func(_ context.Context, t Target, _ int64) Answer { return Answer{Body: []byte(texts[t.Instance])} }
}

func local(ports ...string) []Target {
	var out []Target
	for _, p := range ports {
		out = append(out, Target{URL: "http://127.0.0.1:" + p + "/metrics", Instance: "127.0.0.1:" + p, Backend: engine.SGLang})
	}
	return out
}

func ask(p *Port, method string, header ...string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	r := httptest.NewRequest(method, "/metrics", http.NoBody)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	p.ServeMetrics(rec, r)
	return rec
}

// Many engines that hang, more than are read at once elsewhere, cost their own parts of the answer.
func TestHangingEngines(t *testing.T) {
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hang.Close()
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "sglang:a 1\n") }))
	defer good.Close()
	var targets []Target
	for i := range 40 {
		targets = append(targets, Target{URL: fmt.Sprintf("%s/%d/metrics", hang.URL, i), Instance: strings.TrimPrefix(hang.URL, "http://"), Backend: engine.SGLang})
	}
	targets = append(targets, Target{URL: good.URL + "/metrics", Instance: strings.TrimPrefix(good.URL, "http://"), Backend: engine.SGLang})
	p := newPort(t, func() []Target { return targets }, nil)
	text := ask(p, http.MethodGet, "X-Prometheus-Scrape-Timeout-Seconds", "1").Body.String()
	if !strings.Contains(text, `sglang:a{worker_addr="`+good.URL+`"} 1`) {
		t.Error("the engine that answers is not there")
	}
	if n := strings.Count(text, "rollscope_system_target_missing{"); n != 40 {
		t.Errorf("%d are missing", n)
	}
}

// slowWriter takes nothing until it is told to.
type slowWriter struct {
	*httptest.ResponseRecorder
	writing chan<- struct{}
	release <-chan struct{}
}

func (w slowWriter) Write(b []byte) (int, error) {
	w.writing <- struct{}{}
	<-w.release
	return w.ResponseRecorder.Write(b)
}

// Callers that do not take their answers keep nobody else from one.
func TestSlowCallers(t *testing.T) {
	p := newPort(t, func() []Target { return local("1") }, says(map[string]string{"127.0.0.1:1": "sglang:a 1\n"}))
	writing, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	for range 2 * slots {
		wg.Go(func() {
			p.ServeMetrics(slowWriter{httptest.NewRecorder(), writing, release}, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
		})
	}
	for range 2 * slots {
		<-writing
	}
	if rec := ask(p, http.MethodGet); rec.Code != http.StatusOK || !strings.Contains(rec.Body.String(), "sglang:a") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	close(release)
	wg.Wait()
}

// While too many answers are in the making a further caller is told to come again.
func TestTooManyScrapes(t *testing.T) {
	asked, release := make(chan struct{}, slots), make(chan struct{})
	p := newPort(t, func() []Target { return local("1") }, func(context.Context, Target, int64) Answer {
		asked <- struct{}{}
		<-release
		return Answer{Body: []byte("sglang:a 1\n")}
	})
	var wg sync.WaitGroup
	for range slots {
		wg.Go(func() { ask(p, http.MethodGet) })
	}
	for range slots {
		<-asked
	}
	rec := ask(p, http.MethodGet, "X-Prometheus-Scrape-Timeout-Seconds", "0.1")
	if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v %s", rec.Code, rec.Header(), rec.Body)
	}
	close(release)
	wg.Wait()
}

// The answer is the text format for everybody, and packed for those who can unpack it.
func TestNegotiation(t *testing.T) {
	var fetched atomic.Int32
	p := newPort(t, func() []Target { return local("1") }, func(context.Context, Target, int64) Answer {
		fetched.Add(1)
		return Answer{ContentType: "application/openmetrics-text; version=1.0.0; charset=utf-8", Body: []byte("# TYPE sglang:a counter\nsglang:a_total 1 # {t=\"x\"} 1\n# EOF\n")}
	})
	for _, tt := range []struct {
		method, accept, encoding string
		zip                      bool
	}{
		{"GET", "", "", false},
		{"GET", "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", "gzip", true},
		{"GET", "application/openmetrics-text", "zstd, gzip;q=0.5", true},
		{"GET", "text/plain", "gzip;q=0", false},
		{"GET", "*/*", "deflate", false},
		{"HEAD", "text/plain", "gzip", false},
	} {
		before := fetched.Load()
		rec := ask(p, tt.method, "Accept", tt.accept, "Accept-Encoding", tt.encoding)
		h := rec.Header()
		if rec.Code != http.StatusOK || h.Get("Content-Type") != contentType || h.Get("Vary") != "Accept-Encoding" || h.Get("Cache-Control") != "no-store" || (h.Get("Content-Encoding") == "gzip") != tt.zip {
			t.Errorf("%+v: %d %v", tt, rec.Code, h)
		}
		if tt.method == "HEAD" {
			if rec.Body.Len() != 0 || fetched.Load() != before {
				t.Errorf("HEAD: %d bytes, %d engines asked", rec.Body.Len(), fetched.Load()-before)
			}
			continue
		}
		text := rec.Body.Bytes()
		if tt.zip {
			zip, err := gzip.NewReader(rec.Body)
			if err != nil {
				t.Fatal(err)
			}
			if text, err = io.ReadAll(zip); err != nil {
				t.Fatal(err)
			}
		} else if h.Get("Content-Length") != fmt.Sprint(len(text)) {
			t.Errorf("%+v: %s bytes are said, %d sent", tt, h.Get("Content-Length"), len(text))
		}
		if _, _, err := readAll(text); err != nil || !bytes.Contains(text, []byte(`sglang:a_total{worker_addr="http://127.0.0.1:1"} 1`+"\n")) || bytes.Contains(text, []byte("# EOF")) {
			t.Errorf("%+v: %v\n%s", tt, err, text)
		}
	}
}

// However many engines there are, their answers have a bound together; one that is too large is left out and named.
func TestBodyLimit(t *testing.T) {
	for _, tt := range []struct {
		engines int
		limit   int64
	}{{1, maxBody}, {8, maxBody}, {64, maxBodies / 64}, {1000, minBody}} {
		var ports []string
		for i := range tt.engines {
			ports = append(ports, fmt.Sprint(10000+i))
		}
		var limits sync.Map
		p := newPort(t, func() []Target { return local(ports...) }, func(_ context.Context, _ Target, limit int64) Answer {
			limits.Store(limit, true)
			return Answer{Reason: "body_size_limit"}
		})
		text := ask(p, http.MethodGet).Body.String()
		limits.Range(func(k, _ any) bool {
			if k != tt.limit {
				t.Errorf("%d engines: %d bytes, want %d", tt.engines, k, tt.limit)
			}
			return true
		})
		if n := strings.Count(text, `reason="body_size_limit"} 1`); n != tt.engines || p.Drops()["body_size_limit"] != int64(tt.engines) {
			t.Errorf("%d engines: %d are named, %v counted", tt.engines, n, p.Drops())
		}
	}
}

// Which worker has which engine is kept while both answer, also when the engine went on between their answers;
// it is forgotten when they contradict each other, and what was left out is told and is no drop.
func TestSameEngineRemembered(t *testing.T) {
	texts := map[string]string{}
	p := newPort(t, func() []Target { return local("1", "2") }, says(texts))
	a := engineSays{"m", 7, 0.31415926535, 3}
	const same = `rollscope_system_same_engine{worker_addr="http://127.0.0.1:2",engine="http://127.0.0.1:1",evidence="values"} 1`
	const left = `rollscope_system_lines_left_out{source="127.0.0.1:2",reason="same_engine"} 8`
	const perhaps = `rollscope_system_perhaps_same_engine{worker_addr="http://127.0.0.1:2"} 1`
	next, far := a, a
	next.requests++
	far.requests = 90000
	for i, step := range []struct {
		worker  engineSays
		running int // how often a gauge of the engine stands there
		want    []string
	}{
		{next, 2, []string{perhaps}},
		{a, 1, []string{same, left}},
		{next, 1, []string{same, left}},
		{far, 2, nil},
		{next, 2, []string{perhaps}},
		{a, 1, []string{same, left}},
	} {
		texts["127.0.0.1:1"], texts["127.0.0.1:2"] = a.text(), step.worker.passedOn(injectedA)
		text := ask(p, http.MethodGet).Body.String()
		if _, _, err := readAll([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(text, "\nsglang:num_running_reqs{"); n != step.running {
			t.Errorf("step %d: the engine counts %d times", i, n)
		}
		for _, w := range []string{same, left, perhaps} {
			if strings.Contains(text, w+"\n") != slices.Contains(step.want, w) {
				t.Errorf("step %d: %s: %t", i, w, !slices.Contains(step.want, w))
			}
		}
	}
	if d := p.Drops(); len(d) != 0 {
		t.Errorf("drops %v", d)
	}
}

// A probe of Dynamo's workers reads ours: the same codes, the same keys with the same types.
func TestHealthShape(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		up   *bool
		code int
		file string // what a real worker said
	}{{&yes, http.StatusOK, "health_worker_ready_200.json"}, {&no, http.StatusServiceUnavailable, "health_worker_notready_503.json"}, {nil, http.StatusServiceUnavailable, "health_worker_notready_503.json"}} {
		targets := local("1")
		targets[0].Up = tt.up
		p := newPort(t, func() []Target { return targets }, nil)
		rec := httptest.NewRecorder()
		p.ServeHealth(rec, httptest.NewRequest(http.MethodGet, "/health", http.NoBody))
		if rec.Code != tt.code || rec.Header().Get("Content-Type") != "text/plain; charset=utf-8" || rec.Header().Get("Content-Length") != fmt.Sprint(rec.Body.Len()) {
			t.Errorf("%d %v", rec.Code, rec.Header())
		}
		var ours map[string]any
		if err := json.Unmarshal(rec.Body.Bytes(), &ours); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile("../../../shared/fixtures/captures/dynamo/" + tt.file)
		if errors.Is(err, fs.ErrNotExist) {
			raw = []byte(`{"endpoints":{"generate":"` + ours["status"].(string) + `"},"status":"` + ours["status"].(string) + `","uptime":{"nanos":1,"secs":1}}`)
		} else if err != nil {
			t.Fatal(err)
		}
		var theirs map[string]any
		if err := json.Unmarshal(raw, &theirs); err != nil {
			t.Fatal(err)
		}
		if ours["status"] != theirs["status"] {
			t.Errorf("status: %v, a worker says %v", ours["status"], theirs["status"])
		}
		for key, v := range theirs {
			if fmt.Sprintf("%T", ours[key]) != fmt.Sprintf("%T", v) {
				t.Errorf("%s is %T, of a worker %T", key, ours[key], v)
			}
		}
		if ours["endpoints"].(map[string]any)["generate"] != theirs["endpoints"].(map[string]any)["generate"] {
			t.Errorf("endpoints %v, of a worker %v", ours["endpoints"], theirs["endpoints"])
		}
		for _, part := range []string{"secs", "nanos"} {
			if _, ok := ours["uptime"].(map[string]any)[part].(float64); !ok {
				t.Errorf("uptime has no %s", part)
			}
		}
	}
}

// A name server that is silent costs little, and does not make an engine somebody else's.
func TestMachineNames(t *testing.T) {
	now := fixed()
	var asked []string
	answers := map[string]func() ([]netip.Addr, error){
		"here": func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil },
		"away": func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.0.2.7")}, nil },
	}
	silent := func() ([]netip.Addr, error) {
		now = now.Add(nameTimeout)
		return nil, &net.DNSError{Err: "i/o timeout", IsTimeout: true}
	}
	unknown := func() ([]netip.Addr, error) { return nil, &net.DNSError{Err: "no such host", IsNotFound: true} }
	m := NewMachine(func() time.Time { return now })
	m.names = func() []string { return []string{"this.example"} }
	m.look = func(_ context.Context, host string) ([]netip.Addr, error) {
		asked = append(asked, host)
		return answers[host]()
	}
	look := func(want string, hosts ...string) {
		t.Helper()
		asked = nil
		place := m.Places(t.Context())
		var got []string
		for _, h := range hosts {
			if _, ok := place(h + ":1"); ok {
				got = append(got, h)
			}
		}
		if s := fmt.Sprint(got, asked); s != want {
			t.Errorf("%s, want %s", s, want)
		}
	}
	look("[here localhost THIS.example. 127.0.0.9 [::1]] [here away]", "here", "away", "localhost", "THIS.example.", "127.0.0.9", "[::1]", "192.0.2.1")
	look("[here] []", "here", "away")
	now = now.Add(2 * nameAge)
	there, here := answers["away"], answers["here"]
	answers["here"], answers["away"] = silent, silent
	look("[here] [here]", "here", "away") // no time is left for the second
	look("[here] [away]", "here", "away")
	now = now.Add(2 * nameAge)
	answers["here"], answers["away"] = unknown, there
	look("[] [here away]", "here", "away")
	now = now.Add(2 * nameAge)
	answers["here"] = here
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := m.Places(gone)("here:1"); ok {
		t.Error("who is gone was told something new")
	}
	look("[here] [here]", "here")
}
