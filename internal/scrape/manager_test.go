package scrape

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"go.uber.org/goleak"

	"github.com/rollscope/rollscope/internal/config"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// page is what a test server answers; it may be changed while it is scraped.
type page struct {
	mu     sync.Mutex
	status int
	ctype  string
	body   string
	hits   int
	paths  []string
	other  http.HandlerFunc // every path but the metrics'
	path   string           // "/metrics" if empty
	drop   bool             // close the connection instead
}

func (p *page) set(f func(*page)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p)
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	path := p.path
	if path == "" {
		path = "/metrics"
	}
	if r.URL.Path != path {
		p.paths = append(p.paths, r.URL.Path)
		other := p.other
		p.mu.Unlock()
		if other != nil {
			other(w, r)
			return
		}
		http.NotFound(w, r)
		return
	}
	defer p.mu.Unlock()
	p.hits++
	if p.drop {
		panic(http.ErrAbortHandler)
	}
	ct := p.ctype
	if ct == "" {
		ct = "text/plain; version=0.0.4; charset=utf-8"
	}
	w.Header().Set("Content-Type", ct)
	if ct == "-" {
		w.Header()["Content-Type"] = nil
	}
	if p.status != 0 {
		w.WriteHeader(p.status)
	}
	fmt.Fprint(w, p.body)
}

func serve(t *testing.T, p *page) string {
	t.Helper()
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}

// bench is a running manager over a real database.
type rig struct {
	m   *Manager
	db  *tsdb.DB
	reg *prometheus.Registry
	log *logbook
}

// logbook keeps what is logged.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logbook) count(s string) int { return strings.Count(l.String(), s) }

func start(t *testing.T, cfg *config.Config, change ...func(*Options)) *rig {
	t.Helper()
	db, err := tsdb.Open(t.TempDir(), slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return startOn(t, db, cfg, change...)
}

func startOn(t *testing.T, db *tsdb.DB, cfg *config.Config, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{db: db, reg: prometheus.NewRegistry(), log: &logbook{}}
	o := Options{
		Appendable: db, Registerer: r.reg, Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelInfo})),
		InfoInterval: 50 * time.Millisecond, DiscoveryInterval: 20 * time.Millisecond, RefreshInterval: 20 * time.Millisecond,
	}
	for _, c := range change {
		c(&o)
	}
	var err error
	if r.m, err = New(o); err != nil {
		t.Fatal(err)
	}
	if err := r.m.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

// interval is that of the tests' scrapes, and no answer may take longer: on a busy machine some do, and then the
// target is down for a moment and its series end with a marker.
const interval = 200 * time.Millisecond

// yamlConfig is a configuration of jobs at that interval.
func yamlConfig(t *testing.T, jobs string) *config.Config {
	t.Helper()
	c, err := config.Load(fmt.Appendf(nil, "global:\n  scrape_interval: %[1]s\n  scrape_timeout: %[1]s\nscrape_configs:\n%[2]s", interval, jobs), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func jobFor(name, addr string) string {
	return fmt.Sprintf("- job_name: %s\n  static_configs: [{targets: [%q]}]\n", name, addr)
}

// eventually waits for a condition; the time is only a limit for a broken program.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if cond() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("did not happen: %s", what)
}

// points gives the values of all series that match, by their labels without job and instance.
func (r *rig) points(t *testing.T, ms ...*labels.Matcher) map[string][]float64 {
	t.Helper()
	q, err := r.db.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	out := map[string][]float64{}
	set := q.Select(context.Background(), false, nil, ms...)
	for set.Next() {
		s := set.At()
		var vs []float64
		for it := s.Iterator(nil); it.Next() == chunkenc.ValFloat; {
			_, v := it.At()
			vs = append(vs, v)
		}
		if len(vs) > 0 { // else it was born in a scrape that is not committed yet
			out[labels.NewBuilder(s.Labels()).Del("instance").Labels().String()] = vs
		}
	}
	if set.Err() != nil {
		t.Fatal(set.Err())
	}
	return out
}

func name(n string) *labels.Matcher  { return labels.MustNewMatcher(labels.MatchEqual, "__name__", n) }
func eq(l, v string) *labels.Matcher { return labels.MustNewMatcher(labels.MatchEqual, l, v) }

func last(vs []float64) float64 {
	if len(vs) == 0 {
		return math.NaN()
	}
	return vs[len(vs)-1]
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// first gives the one target, an empty one while there is none.
func (r *rig) first() TargetInfo {
	if ts := r.m.Targets(); len(ts) > 0 {
		return ts[0]
	}
	return TargetInfo{}
}

// only gives the one target.
func (r *rig) only(t *testing.T) TargetInfo {
	t.Helper()
	ts := r.m.Targets()
	if len(ts) != 1 {
		t.Fatalf("%d targets: %+v", len(ts), ts)
	}
	return ts[0]
}

// Case M01: both ways to one engine give the same series with the same numbers.
func TestBothSpellings(t *testing.T) {
	direct := serve(t, &page{body: read(t, "testdata/cases/M01/engine.prom")})
	router := serve(t, &page{body: read(t, "testdata/cases/M01/router.prom"), ctype: "text/plain; charset=utf-8", path: "/engine_metrics"})
	r := start(t, yamlConfig(t, jobFor("direct", direct)+jobFor("router", router)+"  metrics_path: /engine_metrics\n"))
	for _, job := range []string{"direct", "router"} {
		eventually(t, job+" is stored", func() bool {
			run := r.points(t, name("sglang:num_running_reqs"), eq("job", job))
			count := r.points(t, name("sglang:time_to_first_token_seconds_count"), eq("job", job))
			if len(run) != 1 || len(count) != 1 {
				return false
			}
			for _, vs := range run {
				if vs[0] != 3 {
					t.Fatalf("%s: running %v", job, vs)
				}
			}
			for _, vs := range count {
				if vs[0] != 40 {
					t.Fatalf("%s: TTFT count %v", job, vs)
				}
			}
			return true
		})
		if got := r.points(t, name("sglang_num_running_reqs")); len(got) != 0 {
			t.Errorf("the router's spelling is stored as well: %v", got)
		}
	}
}

func listenUnix(t *testing.T, path string, h http.Handler) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	return func() { _ = srv.Close(); <-done }
}

func newServer(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://")
}
