package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/sim"
)

// The command that slime's users are told to run, with its four flags, works with `rollscope serve` in
// the place of `prometheus`.
func TestPrometheusCommandLine(t *testing.T) {
	r := fleet(t, pair())
	config := writeFile(t, "prometheus.yml", fmt.Sprintf(`global:
  scrape_interval: 1s
scrape_configs:
  - job_name: slime-sglang
    metrics_path: /engine_metrics
    static_configs:
      - targets:
          - "%s"
`, addr(t, r, "router-0", "/engine_metrics")))
	data := filepath.Join(t.TempDir(), "prometheus-data")
	p := start(t, "serve",
		"--config.file="+config,
		"--storage.tsdb.path="+data,
		"--storage.tsdb.retention.time=7d",
		"--web.listen-address=127.0.0.1:0")
	// The names of the guide have a colon; the router writes none.
	for _, name := range []string{"sglang:num_queue_reqs", "sglang:num_running_reqs", "sglang:num_decode_transfer_queue_reqs", "sglang_num_running_reqs"} {
		eventually(t, name+" has data", func() bool { return len(query(t, p.url, name, time.Time{}).Data.Result) > 0 })
	}
	var engines api.Envelope[api.Engines]
	get(t, p.url, "/api/rollscope/v1/engines", url.Values{"from": {"now-5m"}, "to": {"now"}}, &engines)
	if n := len(engines.Data.Engines); n != 3 {
		t.Errorf("the router names 3 engines, %d are shown", n)
	}
	p.stop()
	if _, err := os.Stat(filepath.Join(data, "wal")); err != nil {
		t.Errorf("the data directory is no Prometheus data directory: %v", err)
	}
}

func TestScrapeFlagsAndReload(t *testing.T) {
	r := fleet(t, sim.Uniform(2))
	one, two := addr(t, r, "engine-0", "/metrics"), addr(t, r, "engine-1", "/metrics")
	log := writeFile(t, "train.log", "")
	config := writeFile(t, "rollscope.yml", "global: {scrape_interval: 1s}\n")
	p := start(t, "serve", "--config.file", config, "--scrape", one, "--scrape-interval", "1s", "--scrape-from-log", log,
		"--storage.tsdb.path", t.TempDir(), "--web.listen-address", "127.0.0.1:0")
	up := func(n int) func() bool {
		return func() bool { return len(query(t, p.url, "up == 1", time.Time{}).Data.Result) == n }
	}
	eventually(t, "the target of the flag is up", up(1))

	good := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs:\n  - job_name: more\n    static_configs: [{targets: ['%s']}]\n", two)
	if err := os.WriteFile(config, []byte(good), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the target of the reloaded file is up", up(2))

	if err := os.WriteFile(config, []byte(good+"rollscope:\n  signal: []\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(p.url+"/-/reload", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		t.Error("a file with a key that does not exist was taken over")
	}
	eventually(t, "what ran before goes on", up(2))
	p.stop()
}

// A SIGHUP is a reload, and never the end: neither while the recorder starts nor while it stops.
func TestHangupWhileItStartsAndStops(t *testing.T) {
	dir := t.TempDir()
	hung := make(chan struct{})
	go func() { // the lock tells the process's id before the API answers
		defer close(hung)
		for t.Context().Err() == nil {
			b, _ := os.ReadFile(filepath.Join(dir, "rollscope", "LOCK"))
			var pid int
			if _, err := fmt.Sscanf(string(b), "pid %d", &pid); err == nil && strings.Count(string(b), "\n") == 3 {
				_ = syscall.Kill(pid, syscall.SIGHUP)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	p := start(t, "serve", "--storage.tsdb.path", dir, "--web.listen-address", "127.0.0.1:0")
	<-hung
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API has stopped", func() bool {
		resp, err := http.Get(p.url + "/-/healthy")
		if err == nil {
			resp.Body.Close()
		}
		return err != nil
	})
	for ended := false; !ended; {
		_ = p.cmd.Process.Signal(syscall.SIGHUP) // it may have ended
		select {
		case <-p.done:
			ended = true
		case <-time.After(time.Millisecond):
		}
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ended with %d (%v):\n%s", code, p.cmd.ProcessState, p.err)
	}
}

// Beyond this machine, without users: it records as always and answers reads only.
func TestStrangersReadOnly(t *testing.T) {
	r := fleet(t, sim.Uniform(1))
	p := start(t, "serve", "--scrape", addr(t, r, "engine-0", "/metrics"), "--scrape-interval", "1s",
		"--storage.tsdb.path", t.TempDir(), "--web.listen-address", "0.0.0.0:0")
	eventually(t, "the target is recorded", func() bool { return len(query(t, p.url, "up == 1", time.Time{}).Data.Result) == 1 })
	resp, err := http.Post(p.url+"/-/reload", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a stranger's reload is answered with %d, want 403", resp.StatusCode)
	}
	eventually(t, "the warning of the start", func() bool { return strings.Contains(p.err.String(), "without users") })
	p.stop()
}

func TestSecondProcessOnTheDirectory(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "serve", "--storage.tsdb.path", dir, "--web.listen-address", "127.0.0.1:0")
	_, stderr, code := runCLI(t, "serve", "--storage.tsdb.path", dir, "--web.listen-address", "127.0.0.1:0")
	if code != exitBadInput || !strings.Contains(stderr, strconv.Itoa(p.cmd.Process.Pid)) {
		t.Errorf("a second process on the directory: exit code %d and %q; want 2 and the pid %d of the holder", code, stderr, p.cmd.Process.Pid)
	}
	p.stop()
}

// Every scrape that a query has shown is there again after a kill, whenever it comes, and the next start
// works. ROLLSCOPE_KILL_ROUNDS rounds, 3 by default.
func TestKill(t *testing.T) {
	rounds := 3
	if s := os.Getenv("ROLLSCOPE_KILL_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		rounds = n
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	r, dir := fleet(t, sim.Uniform(4)), t.TempDir()
	args := []string{"serve", "--scrape-interval", "200ms", "--storage.tsdb.path", dir, "--web.listen-address", "127.0.0.1:0"}
	for _, target := range r.Targets() {
		args = append(args, "--scrape", target.Addr)
	}
	seen := map[string]bool{} // "instance time" of every sample that was ever shown
	for round := range rounds {
		p := start(t, args...)
		now := samplesOf(t, p.url)
		for s := range seen {
			if !now[s] {
				t.Fatalf("round %d: the sample %s was shown before the kill and is gone", round, s)
			}
		}
		look := func() {
			for s := range samplesOf(t, p.url) {
				seen[s] = true
			}
		}
		// A round that has shown nothing new proves nothing: however slow the machine, the kill waits for it.
		before := len(seen)
		eventually(t, "the round shows samples of its own", func() bool { look(); return len(seen) >= before+4 })
		pause := time.Duration(random.IntN(2500)) * time.Millisecond
		for end := time.Now().Add(pause); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			look()
		}
		p.kill()
	}
	p := start(t, args...)
	now := samplesOf(t, p.url)
	for s := range seen {
		if !now[s] {
			t.Errorf("after the last kill the sample %s is gone", s)
		}
	}
	p.stop()
}

// samplesOf lists the raw samples of up that a server shows.
func samplesOf(t *testing.T, base string) map[string]bool {
	t.Helper()
	var m struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	get(t, base, "/api/v1/query", url.Values{"query": {"up[30m]"}}, &m)
	out := map[string]bool{}
	for _, s := range m.Data.Result {
		for _, v := range s.Values {
			out[fmt.Sprintf("%s %.3f", s.Metric["instance"], v[0])] = true
		}
	}
	return out
}

// What is scraped arrives at a remote write receiver, here a second rollscope.
func TestRemoteWrite(t *testing.T) {
	receiver := start(t, "serve", "--web.enable-remote-write-receiver", "--storage.tsdb.path", t.TempDir(), "--web.listen-address", "127.0.0.1:0")
	r := fleet(t, sim.Uniform(1))
	config := writeFile(t, "prometheus.yml", fmt.Sprintf(`global: {scrape_interval: 1s}
scrape_configs:
  - job_name: engines
    static_configs: [{targets: ['%s']}]
remote_write:
  - url: %s/api/v1/write
`, addr(t, r, "engine-0", "/metrics"), receiver.url))
	sender := start(t, "serve", "--config.file", config, "--storage.tsdb.path", t.TempDir(), "--web.listen-address", "127.0.0.1:0")
	const expr = `sglang:max_total_num_tokens`
	eventually(t, "the receiver holds what the sender scraped", func() bool {
		want, got := query(t, sender.url, expr, time.Time{}).Data.Result, query(t, receiver.url, expr, time.Time{}).Data.Result
		if len(want) == 0 || len(got) == 0 { // a scrape that came late leaves a gap
			return false
		}
		if fmt.Sprint(want[0].Metric, want[0].Value[1]) != fmt.Sprint(got[0].Metric, got[0].Value[1]) {
			t.Fatalf("sent %v, received %v", want[0], got[0])
		}
		return true
	})
	sender.stop()
	receiver.stop()
}
