package scrape

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery/targetgroup"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/engine"
)

// Case M05: eight addresses are two targets, the ranks are kept, the gRPC worker is named.
func TestWorkerListOfACase(t *testing.T) {
	workers, skipped, err := ParseWorkerList([]byte(read(t, "testdata/cases/M05/workers.json")))
	if err != nil {
		t.Fatal(err)
	}
	if len(workers) != 2 || workers[0].Address != "10.0.0.21:30000" || workers[1].Address != "10.0.0.22:30000" {
		t.Errorf("workers %+v", workers)
	}
	for _, w := range workers {
		if !slices.Equal(w.Ranks, []int{0, 1, 2, 3}) || w.Scheme != "http" || w.Healthy == nil || !*w.Healthy {
			t.Errorf("worker %+v", w)
		}
	}
	if len(skipped) != 1 || skipped[0].Address != "grpc://10.0.0.23:31000" || skipped[0].Reason != "skipped: no metrics endpoint known" {
		t.Errorf("skipped %+v", skipped)
	}
}

func TestParseWorkerList(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		want       []Worker
		skipped    int
		err        string
	}{
		{"old router", `{"urls":["http://a:1","http://b:2/"]}`, []Worker{{Address: "a:1", Scheme: "http"}, {Address: "b:2", Scheme: "http"}}, 0, ""},
		{"no workers", `{"urls":[]}`, nil, 0, ""},
		{"roles", `{"workers":[{"url":"http://a:1","worker_type":"prefill","model_id":"m"},{"url":"http://b:1","worker_type":"decode"},{"url":"http://c:1","worker_type":"regular"}]}`,
			[]Worker{{Address: "a:1", Scheme: "http", Role: engine.Prefill, Model: "m"}, {Address: "b:1", Scheme: "http", Role: engine.Decode}, {Address: "c:1", Scheme: "http"}}, 0, ""},
		{"plain list", `{"workers":["a:1"]}`, []Worker{{Address: "a:1", Scheme: "http"}}, 0, ""},
		{"https and ipv6", `{"urls":["https://a","http://[::1]:30000@1"]}`, []Worker{{Address: "a:443", Scheme: "https"}, {Address: "[::1]:30000", Scheme: "http", Ranks: []int{1}}}, 0, ""},
		{"odd ones", `{"urls":["tcp://a:1","http://a:1@x","http://","http://a:1/v1","grpc://a:1"]}`, nil, 5, ""},
		{"an error", `{"error":"no"}`, nil, 0, "neither workers nor urls"},
		{"no json", `<html>`, nil, 0, "no worker list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, skipped, err := ParseWorkerList([]byte(tt.body))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || fmt.Sprint(got) != fmt.Sprint(tt.want) || len(skipped) != tt.skipped {
				t.Errorf("got %+v, %+v, %v", got, skipped, err)
			}
		})
	}
}

// The same addresses in a file or static config.
func TestScrapeable(t *testing.T) {
	g := &targetgroup.Group{Source: "x", Labels: model.LabelSet{"team": "a"}}
	for _, a := range []string{"10.0.0.21:30000@0", "10.0.0.21:30000@1", "http://10.0.0.22:30000@0", "plain:1", "grpc://10.0.0.23:31000"} {
		g.Targets = append(g.Targets, model.LabelSet{model.AddressLabel: model.LabelValue(a)})
	}
	plain := &targetgroup.Group{Targets: []model.LabelSet{{model.AddressLabel: "a:1"}}}
	out, skipped := scrapeable("j", []*targetgroup.Group{g, plain})
	if out[1] != plain {
		t.Error("a plain group was copied")
	}
	if len(out[0].Targets) != 3 || out[0].Labels["team"] != "a" {
		t.Fatalf("targets %v", out[0].Targets)
	}
	if l := out[0].Targets[0]; l[model.AddressLabel] != "10.0.0.21:30000" || l[dpRanksLabel] != "0,1" {
		t.Errorf("first %v", l)
	}
	if l := out[0].Targets[1]; l[model.AddressLabel] != "10.0.0.22:30000" || l[model.SchemeLabel] != "http" || l[dpRanksLabel] != "0" {
		t.Errorf("second %v", l)
	}
	if len(skipped) != 1 || skipped[0].From != "job j" || skipped[0].Reason != noEndpoint {
		t.Errorf("skipped %v", skipped)
	}
}

func flags(t *testing.T, targets ...string) *config.Config {
	t.Helper()
	c, err := config.FromFlags(targets, interval)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Case M05 live: a router lists one engine once for each rank; it is scraped once an interval.
func TestScrapeThroughAWorkerList(t *testing.T) {
	eng := &page{body: "sglang:num_running_reqs{dp_rank=\"0\"} 1\nsglang:num_running_reqs{dp_rank=\"1\"} 2\n"}
	addr := serve(t, eng)
	list := []string{"http://" + addr + "@0", "http://" + addr + "@1", "grpc://" + addr}
	router := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ws []map[string]string
		for _, u := range list {
			ws = append(ws, map[string]string{"url": u})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"workers": ws})
	}))
	r := start(t, flags(t, router+"/workers"))
	eventually(t, "the engine is stored", func() bool { return len(r.points(t, name("sglang:num_running_reqs"))) == 2 })
	ti := r.only(t)
	if ti.Instance != addr || ti.Job != jobWorkers || !slices.Equal(ti.DPRanks, []string{"0", "1"}) {
		t.Errorf("target %+v", ti)
	}
	sk := r.m.Skipped()
	if len(sk) != 1 || sk[0].Reason != noEndpoint || !strings.HasSuffix(sk[0].From, "/workers") {
		t.Errorf("skipped %+v", sk)
	}
}

// The engine that a training run's router names is scraped, over restarts of the run and rotation
// of its log.
func TestScrapeFromLog(t *testing.T) {
	routers := []*page{
		{path: "/engine_metrics", body: "sglang_num_running_reqs{worker_addr=\"http://10.0.0.1:1\"} 1\n"},
		{path: "/engine_metrics", body: "sglang_num_running_reqs{worker_addr=\"http://10.0.0.1:1\"} 2\n"},
	}
	own := serve(t, &page{body: "smg_http_requests_total 5\n"})
	var addrs []string
	for _, p := range routers {
		addrs = append(addrs, serve(t, p))
	}
	path := filepath.Join(t.TempDir(), "train.log")
	line := func(i int) string {
		return fmt.Sprintf("\x1b[36m(RolloutManager pid=77, ip=10.1.2.3)\x1b[0m [2026-07-20 10:00:00] INFO rollout.py:88 - Router launched at %s, Prometheus port: %s\n", addrs[i], own[strings.LastIndexByte(own, ':')+1:])
	}
	c := flags(t)
	c.FollowLogs = []string{path}
	r := start(t, c)
	write := func(s string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the missing file is said", func() bool { return r.log.count("does not exist yet") == 1 })
	write("starting\n" + line(0)[:40])
	write(line(0)[40:])
	seen := func(v float64) func() bool {
		return func() bool {
			for _, vs := range r.points(t, name("sglang:num_running_reqs")) {
				for _, x := range vs {
					if x == v {
						return true
					}
				}
			}
			return false
		}
	}
	eventually(t, "the first router's engines are stored", seen(1))
	eventually(t, "its own metrics are stored", func() bool { return len(r.points(t, name("smg_http_requests_total"))) == 1 })
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write("again\n" + line(1))
	eventually(t, "the second router's engines are stored", seen(2))
	gone := r.m.Gone()
	if len(gone) != 1 || gone[0].Address != addrs[0] || gone[0].Next != addrs[1] {
		t.Errorf("gone %+v", gone)
	}
	eventually(t, "only the second is scraped", func() bool {
		n := 0
		for _, ti := range r.m.Targets() {
			if ti.Job == jobRouter {
				n++
				if ti.Instance != addrs[1] {
					return false
				}
			}
		}
		return n == 1
	})
}

func TestParseRouterLine(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want RouterAddress
		ok   bool
	}{
		{"Router launched at 10.0.0.1:3333, Prometheus port: 4444", RouterAddress{"10.0.0.1", 3333, 4444}, true},
		{"[2026-01-01 00:00:00] rollout.py:1 - Router launched at node-7.cluster:3333, Prometheus port: 4444", RouterAddress{"node-7.cluster", 3333, 4444}, true},
		{"Router launched at 10.0.0.1:3333", RouterAddress{"10.0.0.1", 3333, 0}, true},
		{"Router launched at http://10.0.0.1:3333/, Prometheus port: 4444", RouterAddress{"10.0.0.1", 3333, 4444}, true},
		{"Router launched at [fd00::1]:3333, Prometheus port: 4444", RouterAddress{"fd00::1", 3333, 4444}, true},
		{"\x1b[36m(RolloutManager pid=1, ip=10.9.9.9)\x1b[0m \x1b[32mRouter launched at \x1b[1m10.0.0.1\x1b[0m:3333, Prometheus port: 4444\x1b[0m", RouterAddress{"10.0.0.1", 3333, 4444}, true},
		{"(RolloutManager pid=1, ip=10.9.9.9) Router launched at 0.0.0.0:3333, Prometheus port: 4444", RouterAddress{"10.9.9.9", 3333, 4444}, true},
		{"Router launched at 0.0.0.0:3333, Prometheus port: 4444", RouterAddress{"127.0.0.1", 3333, 4444}, true},
		{"Router launched at 10.0.0.1:3333, Prometheus port: 4444 [repeated 2x across cluster]", RouterAddress{"10.0.0.1", 3333, 4444}, true},
		{"Router launched at 10.0.0.1:3333, Prometheus port: 4444\r", RouterAddress{"10.0.0.1", 3333, 4444}, true},
		{"Router launched at 10.0.0.1:99999, Prometheus port: 4444", RouterAddress{}, false},
		{"Router launched at 10.0.0.1:333333", RouterAddress{}, false},
		{"Router launched at", RouterAddress{}, false},
		{"The router launched at 10.0.0.1:3333", RouterAddress{}, false},
		{"Router launched", RouterAddress{}, false},
		{"", RouterAddress{}, false},
	} {
		got, ok := ParseRouterLine([]byte(tt.in))
		if got != tt.want || ok != tt.ok {
			t.Errorf("%q: %+v %v, want %+v %v", tt.in, got, ok, tt.want, tt.ok)
		}
	}
}

func FuzzParseRouterLine(f *testing.F) {
	f.Add([]byte("Router launched at 10.0.0.1:3333, Prometheus port: 4444"))
	f.Add([]byte("\x1b[36m(R pid=1, ip=10.9.9.9)\x1b[0m Router launched at [fd00::1]:3333"))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, ok := ParseRouterLine(line)
		if ok && (r.Host == "" || r.Port < 1 || r.Port > 65535 || r.PromPort < 0 || r.PromPort > 65535) {
			t.Errorf("%+v", r)
		}
		if !ok && r != (RouterAddress{}) {
			t.Errorf("an address and no: %+v", r)
		}
	})
}

// The file is followed over truncation in place, and very long lines do no harm.
func TestFollowLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	ctx, cancel := context.WithCancel(context.Background())
	got := make(chan RouterAddress, 10)
	done := make(chan error)
	at := func(port int) string {
		return fmt.Sprintf("Router launched at 10.0.0.1:%d, Prometheus port: 4000\n", port)
	}
	if err := os.WriteFile(path, []byte(at(3001)+strings.Repeat("x", 3*maxLine)+" "+at(3009)+at(3002)), 0o600); err != nil {
		t.Fatal(err)
	}
	go func() { done <- FollowLog(ctx, path, time.Millisecond, nil, func(r RouterAddress) { got <- r }) }()
	want := func(port int) {
		t.Helper()
		select {
		case r := <-got:
			if r.Port != port {
				t.Errorf("got %v, want port %d", r, port)
			}
		case <-time.After(time.Minute):
			t.Fatalf("port %d did not come", port)
		}
	}
	want(3002)                                                          // of what was there only the last
	if err := os.WriteFile(path, []byte(at(3003)), 0o600); err != nil { // truncates
		t.Fatal(err)
	}
	want(3003)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(at(3004)), 0o600); err != nil {
		t.Fatal(err)
	}
	want(3004)
	cancel()
	if err := <-done; err != context.Canceled {
		t.Errorf("ended with %v", err)
	}
	if len(got) != 0 {
		t.Errorf("more addresses: %v", <-got)
	}
}

func TestTargetsForRouter(t *testing.T) {
	got := TargetsForRouter("fd00::1", 3000, 4000)
	if a := got[jobRouter][0].Targets[0][model.AddressLabel]; a != "[fd00::1]:3000" {
		t.Errorf("router %v", a)
	}
	if a := got[jobRouterSelf][0].Targets[0][model.AddressLabel]; a != "[fd00::1]:4000" {
		t.Errorf("its own metrics %v", a)
	}
	if _, ok := TargetsForRouter("a", 1, 0)[jobRouterSelf]; ok {
		t.Error("a target without a port")
	}
}

// A router named by flags.
func TestRouterFlag(t *testing.T) {
	p := &page{path: "/engine_metrics", body: read(t, "testdata/cases/M01/router.prom")}
	addr := serve(t, p)
	host, port, _ := strings.Cut(addr, ":")
	c := flags(t)
	n := 0
	fmt.Sscan(port, &n)
	c.Routers = []config.Router{{Host: host, Port: n}}
	r := start(t, c)
	eventually(t, "its engines are stored", func() bool { return len(r.points(t, name("sglang:num_running_reqs"), eq("job", jobRouter))) == 1 })
}

// A reload adds and removes targets; a bad one changes nothing.
func TestReload(t *testing.T) {
	a, b := serve(t, &page{body: "a 1\n"}), serve(t, &page{body: "b 1\n"})
	r := start(t, yamlConfig(t, jobFor("a", a)))
	eventually(t, "a is stored", func() bool { return len(r.points(t, name("a"))) == 1 })
	jobs := func() string {
		var out []string
		for _, ti := range r.m.Targets() {
			out = append(out, ti.Job)
		}
		return strings.Join(out, " ")
	}
	if err := r.m.Apply(yamlConfig(t, jobFor("a", a)+jobFor("b", b))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b is stored", func() bool { return len(r.points(t, name("b"))) == 1 && jobs() == "a b" })
	bad := yamlConfig(t, jobFor("c", a))
	bad.Prometheus.ScrapeConfigFiles = []string{"testdata/cases/M01/engine.prom"}
	if err := r.m.Apply(bad); err == nil || !strings.Contains(err.Error(), "engine.prom") {
		t.Errorf("a scrape config file that is none: %v", err)
	}
	if err := r.m.Apply(nil); err == nil {
		t.Error("no configuration is accepted")
	}
	if jobs() != "a b" {
		t.Errorf("jobs %q after a bad reload", jobs())
	}
	if err := r.m.Apply(yamlConfig(t, jobFor("b", b))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a is gone", func() bool { return jobs() == "b" })
	if err := r.m.Run(context.Background()); err == nil {
		t.Error("it runs twice")
	}
}

// File discovery works, and its changes are taken over.
func TestFileDiscovery(t *testing.T) {
	a := serve(t, &page{body: "a 1\n"})
	f := filepath.Join(t.TempDir(), "t.json")
	if err := os.WriteFile(f, []byte(fmt.Sprintf(`[{"targets":["http://%s@0","http://%s@1"]}]`, a, a)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, yamlConfig(t, "- job_name: f\n  file_sd_configs: [{files: [\""+f+"\"]}]\n"))
	eventually(t, "it is stored", func() bool { return len(r.points(t, name("a"))) == 1 })
	if ti := r.only(t); ti.Instance != a || !slices.Equal(ti.DPRanks, []string{"0", "1"}) {
		t.Errorf("target %+v", ti)
	}
}

func TestNewWithoutAStore(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("no error")
	}
}

// A job that the configuration calls as flags' targets would be called keeps its name.
func TestNamesOfFoundJobs(t *testing.T) {
	eng := serve(t, &page{body: "sglang:num_running_reqs 1\n"})
	router := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, `{"urls":["http://%s"]}`, eng) }))
	c := yamlConfig(t, jobFor(jobWorkers, eng))
	c.WorkerLists = []config.WorkerList{{URL: "http://" + router + "/list_workers"}}
	r := start(t, c)
	eventually(t, "both are stored", func() bool { return len(r.points(t, name("sglang:num_running_reqs"))) == 2 })
	if ts := r.m.Targets(); len(ts) != 2 || ts[0].Job != jobWorkers || ts[1].Job != jobWorkers+"-found" {
		t.Errorf("targets %+v", ts)
	}
}

// A target that is gone is forgotten.
func TestSweep(t *testing.T) {
	a := serve(t, &page{body: "a 1\nbad line here\n"})
	r := start(t, yamlConfig(t, jobFor("a", a)))
	eventually(t, "it is read around its bad line", func() bool { return r.first().Lenient })
	if err := r.m.Apply(yamlConfig(t, "")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is left of it", func() bool {
		n := 0
		r.m.watch.each(func(*target) { n++ })
		r.m.lenient.mu.Lock()
		defer r.m.lenient.mu.Unlock()
		return n == 0 && len(r.m.lenient.routed) == 0
	})
}
