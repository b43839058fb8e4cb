package metricstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	promconfig "github.com/prometheus/prometheus/config"
)

// startPrometheus runs Debian's Prometheus on a directory until the test ends or stop is called.
func startPrometheus(t *testing.T, dir, config string) (address string, stop func(signal os.Signal)) {
	t.Helper()
	bin, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("Debian's prometheus is not installed")
	}
	file := filepath.Join(t.TempDir(), "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "--config.file="+file, "--storage.tsdb.path="+dir, "--storage.tsdb.retention.time=10y", "--web.listen-address=127.0.0.1:0", "--web.enable-remote-write-receiver")
	cmd.Dir = t.TempDir()
	address, wait := startServer(t, cmd)
	var ended atomic.Bool
	stop = func(s os.Signal) {
		if ended.CompareAndSwap(false, true) {
			_ = cmd.Process.Signal(s)
			wait()
		}
	}
	t.Cleanup(func() { stop(os.Kill) })
	waitFor(t, func() bool {
		res, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == 200
	})
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return address, stop
}

// askPrometheus evaluates an instant query whose result has one series at most.
func askPrometheus(t *testing.T, address, expr string, at time.Time) (v float64, ok bool) {
	t.Helper()
	res, err := http.Get(fmt.Sprintf("http://%s/api/v1/query?query=%s&time=%d", address, url.QueryEscape(expr), at.Unix()))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var got struct {
		Status, Error string
		Data          struct {
			Result []struct{ Value [2]any }
		}
	}
	b, _ := io.ReadAll(res.Body)
	if err := json.Unmarshal(b, &got); err != nil || got.Status != "success" {
		t.Fatalf("%s: %s", expr, b)
	}
	if len(got.Data.Result) == 0 {
		return 0, false
	}
	v, err = strconv.ParseFloat(got.Data.Result[0].Value[1].(string), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v, true
}

var sameAnswers = []string{
	`sum(count_over_time(sglang:num_running_reqs[10h]))`,
	`sum(rate(sglang:num_running_reqs[1h]))`,
	`max_over_time(sum(up)[6h:10m])`,
	`quantile_over_time(0.9, sglang:num_running_reqs[6h])`,
}

func TestDebianPrometheusOpensOurDirectory(t *testing.T) {
	dir := t.TempDir()
	from := time.Now().Add(-8 * time.Hour).Truncate(time.Minute)
	writeRun(t, dir, from, 7, "sglang:num_running_reqs")
	// Between two samples: Prometheus 3 leaves the beginning of a range out, 2 did not.
	at := from.Add(7*time.Hour - 30*time.Second)
	a := openArchive(t, dir)
	want := map[string]float64{}
	for _, expr := range sameAnswers {
		for _, v := range eval(t, a.Engine(), a.Queryable(), expr, at) {
			want[expr] = v
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	address, stop := startPrometheus(t, dir, "")
	for _, expr := range sameAnswers {
		if got, ok := askPrometheus(t, address, expr, at); !ok || got != want[expr] {
			t.Errorf("%s: Debian's Prometheus says %v, we %v", expr, got, want[expr])
		}
	}
	stop(os.Interrupt)
	// and we open it again afterwards
	o := testOptions(t, time.Time{})
	o.Dir = dir
	s := openStore(t, o)
	for expr, w := range want {
		for _, v := range eval(t, s.Engine(), s.Queryable(), expr, at) {
			if v != w {
				t.Errorf("%s: %v after Debian's Prometheus, before %v", expr, v, w)
			}
		}
	}
}

func TestDirectoryOfDebianPrometheus(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# TYPE sglang:time_to_first_token_seconds histogram\n"+
			"sglang:time_to_first_token_seconds_bucket{le=\"1\"} 3\nsglang:time_to_first_token_seconds_bucket{le=\"+Inf\"} 4\n"+
			"sglang:time_to_first_token_seconds_sum 5\nsglang:time_to_first_token_seconds_count 4\n")
	}))
	defer target.Close()
	u, _ := url.Parse(target.URL)
	dir := t.TempDir()
	address, stop := startPrometheus(t, dir, "scrape_configs: [{job_name: sglang, scrape_interval: 100ms, scrape_timeout: 100ms, static_configs: [{targets: ['"+u.Host+"']}]}]")
	waitFor(t, func() bool {
		n, _ := askPrometheus(t, address, `count_over_time(up[1m])`, time.Now().Add(time.Second))
		return n > 5
	})
	blocked := testOptions(t, time.Time{})
	blocked.Dir = dir
	var locked *LockedError
	if _, err := Open(context.Background(), blocked); !errors.As(err, &locked) || locked.PID == 0 {
		t.Errorf("a directory that Prometheus writes was opened: %v", err)
	}
	live := openArchive(t, dir) // while it writes
	held := false
	for _, n := range live.Notices() {
		held = held || n.Code == "live"
	}
	if !held {
		t.Errorf("that Prometheus writes is not noticed: %v", live.Notices())
	}
	check := func(a *Archive) {
		t.Helper()
		rec, err := Coverage(context.Background(), a.Queryable())
		if err != nil || rec.First.IsZero() {
			t.Fatalf("coverage %+v, %v", rec, err)
		}
		// Debian's Prometheus 2 keeps le="1"; both spellings match the one bucket.
		for _, le := range []string{"1", "1.0"} {
			got := eval(t, a.Engine(), a.Queryable(), `sglang_time_to_first_token_seconds_bucket{le="`+le+`"}`, rec.Last)
			if len(got) != 1 {
				t.Errorf("le=%s: %v", le, got)
			}
		}
	}
	check(live)
	if err := live.Close(); err != nil {
		t.Error(err)
	}
	stop(os.Kill) // kill -9
	before := checksum(t, dir)
	check(openArchive(t, dir))
	if checksum(t, dir) != before {
		t.Error("reading changed the directory")
	}
	o := testOptions(t, time.Time{})
	o.Dir = dir
	s := openStore(t, o)
	if got := eval(t, s.Engine(), s.Queryable(), `sglang:time_to_first_token_seconds_count`, time.Now()); len(got) != 1 {
		t.Errorf("opened to record on: %v", got)
	}
}

func TestRemoteWrite(t *testing.T) {
	address, _ := startPrometheus(t, t.TempDir(), "")
	s := openStore(t, testOptions(t, time.Time{}))
	cfg, err := promconfig.Load("remote_write: [{url: 'http://"+address+"/api/v1/write', queue_config: {batch_send_deadline: 50ms, min_backoff: 10ms}}]", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ApplyConfig(cfg); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	series := `sglang:num_running_reqs{job="sglang",instance="e1"}`
	n := 0
	waitFor(t, func() bool {
		// The sender reads the log from its next segment or from now on; keep writing until it has begun.
		n++
		appendPoints(t, s.Appendable(), point{series, now.Add(time.Duration(n) * time.Millisecond).UnixMilli(), 7})
		v, ok := askPrometheus(t, address, `sglang:num_running_reqs`, now.Add(time.Minute))
		return ok && v == 7
	})
}
