// Package collector tests the recorder beside the OpenTelemetry Collector and its load generator. It is a module
// of its own, so that the recorder's does not have theirs: cd test/collector && go test ./...
package collector

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// programs are built once: the recorder, the collector and the load generator.
type programs struct{ rollscope, otelcol, telemetrygen string }

// ROLLSCOPE_COLLECTOR_PROGRAMS is a directory where they stay; those that are there are not built again.
var built = sync.OnceValues(func() (programs, error) {
	dir := os.Getenv("ROLLSCOPE_COLLECTOR_PROGRAMS")
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "rollscope-collector-"); err != nil {
			return programs{}, err
		}
	}
	p := programs{filepath.Join(dir, "rollscope"), filepath.Join(dir, "otelcol"), filepath.Join(dir, "telemetrygen")}
	for _, b := range []struct{ in, to, what string }{
		{"../..", p.rollscope, "./cmd/rollscope"}, {".", p.otelcol, "./otelcol"},
		{".", p.telemetrygen, "github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen"},
	} {
		if _, err := os.Stat(b.to); err == nil {
			continue
		}
		if err := build(b.in, b.to, b.what); err != nil {
			return p, err
		}
	}
	return p, nil
})

func build(dir, to, what string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", to, what)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", what, err, out)
	}
	return nil
}

// need returns the programs. Where they cannot be built the test is skipped, or fails with ROLLSCOPE_TEST_STRICT.
func need(t *testing.T) programs {
	t.Helper()
	p, err := built()
	if err != nil {
		if os.Getenv("ROLLSCOPE_TEST_STRICT") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return p
}

func TestMain(m *testing.M) {
	code := m.Run()
	if p, _ := built(); p.otelcol != "" && os.Getenv("ROLLSCOPE_COLLECTOR_PROGRAMS") == "" {
		os.RemoveAll(filepath.Dir(p.otelcol))
	}
	os.Exit(code)
}

// process is a program that runs until the test ends.
type process struct {
	cmd  *exec.Cmd
	log  *bytes.Buffer
	done chan struct{}
}

func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...), log: &bytes.Buffer{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in its log
		close(p.done)
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(name), tail(p.log.Bytes()))
		}
	})
	return p
}

// stop ends the process and waits for it.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

func tail(b []byte) []byte { return b[max(0, len(b)-6000):] }

// cost is the processor time and the most memory that the process took so far.
func (p *process) cost(t *testing.T) (cpu time.Duration, peakMB float64) {
	t.Helper()
	pid := p.cmd.Process.Pid
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Skip(err)
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(v)[0], 64)
			peakMB = kb / 1024
		}
	}
	return time.Duration(user+system) * 10 * time.Millisecond, peakMB
}

// run runs a program to its end.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", filepath.Base(name), args, err, tail(out))
	}
	return string(out)
}

// address is one that is free just now, for a configuration that has to name it. Its port is below those that systems
// give out by themselves (from 32768 on), so that nobody gets it by chance before it is listened at.
func address(t *testing.T) string {
	t.Helper()
	for range 100 {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(15000))); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("of a hundred ports none is free")
	return ""
}

// recorder is a running rollscope serve.
type recorder struct {
	*process
	web, grpc, http string
}

// serve starts a recorder with what is below rollscope.traces in its configuration.
func serve(t *testing.T, p programs, traces string) *recorder {
	t.Helper()
	r := &recorder{web: address(t), grpc: address(t), http: address(t)}
	dir := t.TempDir()
	file := filepath.Join(dir, "rollscope.yml")
	text := fmt.Sprintf("rollscope:\n  traces:\n    otlp_grpc: %s\n    otlp_http: %s\n    tempo: off\n%s", r.grpc, r.http, traces)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r.process = start(t, p.rollscope, "serve", "--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", r.web, "--no-rules.builtin")
	r.waitFor(t, "http://"+r.web+"/-/ready")
	return r
}

// collector starts a collector with two receivers and the given rest of its configuration.
func collector(t *testing.T, p programs, rest string) (c *process, overGRPC, overHTTP string) {
	t.Helper()
	overGRPC, overHTTP = address(t), address(t)
	file := filepath.Join(t.TempDir(), "collector.yml")
	text := fmt.Sprintf("receivers: {otlp: {protocols: {grpc: {endpoint: '%s', max_recv_msg_size_mib: 64}, http: {endpoint: '%s'}}}}\n%s", overGRPC, overHTTP, rest)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c = start(t, p.otelcol, "--config", "file:"+file)
	c.waitFor(t, "http://"+overHTTP+"/")
	return c, overGRPC, overHTTP
}

// waitFor waits until something answers.
func (p *process) waitFor(t *testing.T, url string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		select {
		case <-p.done:
			t.Fatalf("it ended: %s", tail(p.log.Bytes()))
		default:
		}
		resp, err := http.Get(url)
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			return
		}
	}
	t.Fatalf("%s does not answer", url)
}

// counter is the sum of a metric of the recorder's own over all its labels.
func (r *recorder) counter(t *testing.T, name string) int {
	t.Helper()
	sum := 0
	for line := range strings.Lines(string(fetch(t, "http://"+r.web+"/metrics"))) {
		if f := strings.Fields(line); len(f) == 2 && (f[0] == name || strings.HasPrefix(f[0], name+"{")) {
			v, _ := strconv.ParseFloat(f[1], 64)
			sum += int(v)
		}
	}
	return sum
}

// rows answers a LogsQL query.
func (r *recorder) rows(t *testing.T, query string) []map[string]string {
	t.Helper()
	var out []map[string]string
	d := json.NewDecoder(bytes.NewReader(fetch(t, "http://"+r.web+"/select/logsql/query?limit=1000000&query="+url.QueryEscape(query))))
	for d.More() {
		var row map[string]string
		if err := d.Decode(&row); err != nil {
			t.Fatal(err)
		}
		out = append(out, row)
	}
	return out
}

// count is how many rows a filter finds.
func (r *recorder) count(t *testing.T, filter string) int {
	t.Helper()
	rows := r.rows(t, "_time:1h "+filter+" | stats count() n")
	if len(rows) != 1 {
		t.Fatalf("%s: %v", filter, rows)
	}
	n, err := strconv.Atoi(rows[0]["n"])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// eventually waits until as many rows are there, and fails when there are others after a while.
func (r *recorder) eventually(t *testing.T, filter string, want int) {
	t.Helper()
	got := -1
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); time.Sleep(300 * time.Millisecond) {
		if got = r.count(t, filter); got == want {
			return
		}
	}
	t.Fatalf("%s: %d rows, want %d", filter, got, want)
}

func fetch(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v: %.500s", url, resp.Status, err, b)
	}
	return b
}
