package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func serve(t *testing.T, cfg Config, o Options) *Running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := Serve(ctx, mustNew(t, cfg), o)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		r.Wait()
	})
	return r
}

func get(t *testing.T, addr, path, accept string) (string, string, int, error) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	client := http.Client{Timeout: 10 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return "", "", 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), res.Header.Get("Content-Type"), res.StatusCode, err
}

// until tries check until it is satisfied; the test fails when that takes very long.
func until(t *testing.T, what string, check func() bool) {
	t.Helper()
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if check() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	r := serve(t, pairCfg(), Options{Speed: 40, Every: 20 * time.Millisecond})
	addr := map[string]string{}
	for _, target := range r.Targets() {
		addr[target.Name] = target.Addr
	}
	if len(addr) != 8 || addr["r"] != addr["r/engine_metrics"] || addr["u"] == addr["p"] {
		t.Fatalf("addresses: %v", addr)
	}
	until(t, "the fleet has served requests", func() bool {
		body, _, _, err := get(t, addr["r"], "/engine_metrics", "")
		return err == nil && strings.Contains(body, `sglang_num_requests_total{engine_type="decode"`)
	})
	body, contentType, status, err := get(t, addr["r"], "/engine_metrics", "")
	if err != nil || status != 200 || contentType != "text/plain; charset=utf-8" {
		t.Fatalf("/engine_metrics: %d %s %v", status, contentType, err)
	}
	if !strings.Contains(body, `worker_addr="http://`+addr["p"]+`"`) || strings.Contains(body, "10.7.") {
		t.Error("worker_addr is not the address under which the worker is served")
	}
	body, contentType, _, _ = get(t, addr["u"], "/metrics", "application/openmetrics-text;version=1.0.0")
	if !strings.HasSuffix(contentType, "escaping=underscores") || !strings.HasSuffix(body, "# EOF\n") {
		t.Errorf("OpenMetrics: %s, ends %q", contentType, body[max(0, len(body)-20):])
	}
	var info struct {
		Version string `json:"version"`
		DPSize  int    `json:"dp_size"`
		TPSize  int    `json:"tp_size"`
		Mode    string `json:"disaggregation_mode"`
	}
	body, _, _, _ = get(t, addr["p"], "/server_info", "")
	if err := json.Unmarshal([]byte(body), &info); err != nil || info.Version != "0.5.18" || info.DPSize != 1 || info.TPSize != 1 || info.Mode != "prefill" {
		t.Errorf("/server_info: %+v, %v", info, err)
	}
	var workers struct {
		Workers []struct {
			URL  string `json:"url"`
			Type string `json:"worker_type"`
		} `json:"workers"`
	}
	body, _, _, _ = get(t, addr["r"], "/workers", "")
	if err := json.Unmarshal([]byte(body), &workers); err != nil || len(workers.Workers) != 2 || workers.Workers[0].URL != "http://"+addr["p"] || workers.Workers[0].Type != "prefill" {
		t.Errorf("/workers: %s, %v", body, err)
	}
	if body, _, status, _ := get(t, addr["v"], "/version", ""); status != 200 || body != `{"version":"0.14.0"}` {
		t.Errorf("vLLM's /version: %d %s", status, body)
	}
	for _, m := range []string{"u", "p", "d", "r", "v", "w", "f"} {
		var paths []string
		r.With(func(f *Fleet) { paths = f.Endpoints(m) })
		for _, path := range paths {
			if body, _, status, err := get(t, addr[m], path, ""); err != nil || status != 200 {
				t.Errorf("%s%s: %d %s %v", m, path, status, body, err)
			}
		}
		if _, _, status, err := get(t, addr[m], "/nothing", ""); err != nil || status != 404 {
			t.Errorf("%s/nothing: %d %v", m, status, err)
		}
	}
	if body, _, _, _ := get(t, addr["u"], "/v1/loads?format=prometheus", ""); !strings.Contains(body, `sglang_num_running_reqs{dp_rank="0"}`) {
		t.Errorf("/v1/loads as Prometheus text: %s", body)
	}
	res, err := http.Post("http://"+addr["u"]+"/metrics", "text/plain", nil)
	if err != nil || res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v %v", res, err)
	}
}

// The fleet's time passes as the test lets it: an engine is down for as long as it takes to see that.
func TestServeRefusesWhileDown(t *testing.T) {
	t.Parallel()
	var passed atomic.Int64
	began := time.Now()
	const every, speed = 10 * time.Millisecond, 50
	r := serve(t, pairCfg(), Options{Speed: speed, Every: every, Now: func() time.Time { return began.Add(time.Duration(passed.Load())) }})
	var addr string
	for _, target := range r.Targets() {
		if target.Name == "u" {
			addr = target.Addr
		}
	}
	// pass lets time pass until the fleet is d old.
	pass := func(d time.Duration) {
		until(t, fmt.Sprintf("the fleet is %s old", d), func() bool {
			age := time.Duration(0)
			r.With(func(f *Fleet) { age = f.Now().Sub(f.Start()) })
			if age < d {
				passed.Add(int64(every))
			}
			return age >= d
		})
	}
	listens := func() error {
		_, _, status, err := get(t, addr, "/metrics", "")
		if err == nil && status != 200 {
			err = fmt.Errorf("status %d", status)
		}
		return err
	}
	pass(500 * time.Millisecond)
	if err := listens(); err != nil {
		t.Error(err)
	}
	r.With(func(f *Fleet) {
		if err := f.Order(Fault{Name: "engine_down", At: 2 * time.Second, For: 10 * time.Second, Member: "u"}); err != nil {
			t.Error(err)
		}
	})
	pass(2500 * time.Millisecond)
	for range 3 {
		until(t, "the connection is refused", func() bool { return errors.Is(listens(), syscall.ECONNREFUSED) })
	}
	pass(13 * time.Second)
	until(t, "it listens again at the same address", func() bool { return listens() == nil })
}

func TestServeTakesTheNextPort(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	taken := busy.Addr().(*net.TCPAddr).Port
	r := serve(t, Uniform(2), Options{Listen: busy.Addr().String()})
	for _, target := range r.Targets() {
		_, port, err := net.SplitHostPort(target.Addr)
		if n, _ := strconv.Atoi(port); err != nil || n <= taken || n > taken+100 {
			t.Errorf("%s listens at %s, want a port after %d", target.Name, target.Addr, taken)
		}
	}
	for _, bad := range []string{"127.0.0.1", "127.0.0.1:http"} {
		if _, err := Serve(context.Background(), mustNew(t, Uniform(1)), Options{Listen: bad}); err == nil {
			t.Errorf("listen address %q is accepted", bad)
		}
	}
}

// The model lags rather than piles up work when the machine was asleep.
func TestServeIsBounded(t *testing.T) {
	now := time.Now()
	r := &Running{opts: Options{Speed: 1, Every: time.Second, Now: func() time.Time { return now }}, fleet: mustNew(t, Uniform(1))}
	r.anchor, r.origin = now, r.fleet.Now()
	now = now.Add(time.Hour)
	r.step()
	if d := r.fleet.Now().Sub(r.origin); d > 10*time.Second {
		t.Errorf("an hour asleep makes the model run %s in one step", d)
	}
	at := r.fleet.Now()
	now = now.Add(time.Second)
	r.step()
	if d := r.fleet.Now().Sub(at); d != time.Second {
		t.Errorf("afterwards a second is %s", d)
	}
}

func TestPrometheusConfig(t *testing.T) {
	f := mustNew(t, Demo())
	var cfg struct {
		ScrapeConfigs []struct {
			JobName       string `yaml:"job_name"`
			MetricsPath   string `yaml:"metrics_path"`
			StaticConfigs []struct{ Targets []string }
		} `yaml:"scrape_configs"`
	}
	text := PrometheusConfig(f.Targets(), 5*time.Second)
	if err := yaml.Unmarshal(text, &cfg); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	jobs := map[string]string{}
	for _, j := range cfg.ScrapeConfigs {
		jobs[j.JobName] = j.MetricsPath
	}
	if len(jobs) != 7 || jobs["router-engines"] != "/engine_metrics" || jobs["sglang"] != "" {
		t.Errorf("jobs: %v\n%s", jobs, text)
	}
}

// Debian's Prometheus scrapes the demo without losing a sample.
func TestPrometheusScrapesTheDemo(t *testing.T) {
	t.Parallel()
	bin, err := exec.LookPath("prometheus")
	if err != nil {
		if os.Getenv("ROLLSCOPE_TEST_STRICT") != "" {
			t.Fatal("Debian's prometheus is not installed")
		}
		t.Skip("Debian's prometheus is not installed")
	}
	cfg := Demo()
	cfg.Faults = nil
	r := serve(t, cfg, Options{Speed: 20, Every: 20 * time.Millisecond})
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, PrometheusConfig(r.Targets(), time.Second), 0o644); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(bin, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	listen := "" // it says which port it has got
	until(t, "Prometheus listens", func() bool {
		text, err := os.ReadFile(log.Name())
		if m := regexp.MustCompile(`"Listening on".* address=(\S+)\s`).FindSubmatch(text); err == nil && m != nil {
			listen = string(m[1])
		}
		return listen != ""
	})
	query := func(q string) map[string]float64 {
		body, _, _, err := get(t, listen, "/api/v1/query?query="+url.QueryEscape(q), "")
		if err != nil {
			return nil
		}
		var out struct {
			Data struct {
				Result []struct {
					Metric map[string]string
					Value  [2]any
				}
			}
		}
		if json.Unmarshal([]byte(body), &out) != nil {
			return nil
		}
		values := map[string]float64{}
		for _, s := range out.Data.Result {
			v, _ := strconv.ParseFloat(fmt.Sprint(s.Value[1]), 64)
			values[s.Metric["job"]+" "+s.Metric["instance"]] = v
		}
		return values
	}
	until(t, "all targets are up", func() bool {
		up := query("up")
		n := 0.0
		for _, v := range up {
			n += v
		}
		return len(up) == len(r.Targets()) && n == float64(len(up))
	})
	until(t, "every target has given samples", func() bool {
		return len(query("scrape_samples_scraped > 50")) == len(r.Targets())
	})
	for target, n := range query("scrape_samples_scraped - scrape_samples_post_metric_relabeling") {
		if n != 0 {
			t.Errorf("%s: %g samples were lost", target, n)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, "scrape") || strings.Contains(line, "append failed") {
			t.Error(line)
		}
	}
}
