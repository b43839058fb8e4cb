package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// otlpSpans is how many spans are sent to each program: some seconds of a fast one.
const otlpSpans = 1_000_000

// otlpTraces is what a span costs from the socket on: with tail sampling as it is by default, with everything
// stored, and in a collector that samples the same traces. Per core means per second of processor time, of all
// processes that are part of the program.
func otlpTraces(binary, dir string) ([]row, error) {
	sampled, err := receiveSpans(binary, filepath.Join(dir, "sampled"), "")
	if err != nil {
		return nil, fmt.Errorf("OTLP and tail sampling: %w", err)
	}
	peer, peerMemory := "", ""
	theirs, err := collectorSpans(binary, dir)
	if err != nil {
		peer = "the collector could not be measured: " + err.Error()
	} else {
		peer = fmt.Sprintf("collector's tail_sampling %.0f k/cpu-s", theirs.perCore()/1e3)
		peerMemory = fmt.Sprintf("collector %.0f MB", theirs.peak)
	}
	what := fmt.Sprintf("OTLP/gRPC, %d k spans of 22 attributes", otlpSpans/1000)
	rows := []row{
		{what + ", tail decision", fmt.Sprintf("%.0f k/cpu-s", sampled.perCore()/1e3), "150 k/cpu-s", peer},
		{"  of that without the event store's process", fmt.Sprintf("%.0f k/cpu-s", otlpSpans/sampled.own/1e3), "", "the collector stores nothing"},
		{"  acknowledged", fmt.Sprintf("%.0f k/s", sampled.rate/1e3), "", ""},
		{"  peak resident memory", fmt.Sprintf("%.0f MB", sampled.peak), "", peerMemory},
	}
	stored, err := receiveSpans(binary, filepath.Join(dir, "stored"), "    sampling: {ratio: 1}\n")
	if err != nil { // the rest has been measured
		return append(rows, row{what + ", all stored", "not measured", "40 k/cpu-s", err.Error()}), nil
	}
	return append(rows,
		row{what + ", all stored", fmt.Sprintf("%.0f k/cpu-s", stored.perCore()/1e3), "40 k/cpu-s", ""},
		row{"  acknowledged", fmt.Sprintf("%.0f k/s", stored.rate/1e3), "", ""},
		row{"  peak resident memory", fmt.Sprintf("%.0f MB", stored.peak), "", ""},
		row{"  on disk, a span", fmt.Sprintf("%.0f B", float64(stored.disk)/otlpSpans), "70 B", ""},
	), nil
}

// spansCost is what a program took for otlpSpans spans.
type spansCost struct {
	cpu  float64 // s, of all its processes
	own  float64 // s, without the process of the event store
	rate float64 // acknowledged spans a second
	peak float64 // MB, of all its processes
	disk int64   // bytes of the store
}

func (c spansCost) perCore() float64 { return otlpSpans / c.cpu }

// receiveSpans sends spans to a recorder and waits until all of them are decided and stored.
func receiveSpans(binary, dir, sampling string) (spansCost, error) {
	r, err := startRecorder(binary, dir, sampling)
	if err != nil {
		return spansCost{}, err
	}
	defer r.stop()
	before, err := costOf(r.pid)
	if err != nil {
		return spansCost{}, err
	}
	var c spansCost
	if c.rate, err = sendSpans(binary, r.otlp); err != nil {
		return c, err
	}
	if err := r.decided(otlpSpans); err != nil {
		return c, err
	}
	after, err := costOf(r.pid)
	if err != nil {
		return c, err
	}
	c.cpu, c.own, c.peak = after.cpu-before.cpu, after.own-before.own, after.peak
	r.stop() // so that all is on the disk
	c.disk, err = sizeOf(filepath.Join(dir, "data", "rollscope", "events"))
	return c, err
}

// collectorSpans sends the same spans to a collector that samples as the default does as far as it can: errors,
// what is slow, and 1 % of the rest.
func collectorSpans(binary, dir string) (spansCost, error) {
	program := filepath.Join(dir, "otelcol")
	build := exec.Command("go", "build", "-C", "test/collector", "-o", program, "./otelcol")
	if out, err := build.CombinedOutput(); err != nil {
		return spansCost{}, fmt.Errorf("go build: %w: %.300s", err, out)
	}
	to, err := startRecorder(binary, filepath.Join(dir, "behind"), "    sampling: {ratio: 1}\n")
	if err != nil {
		return spansCost{}, err
	}
	defer to.stop()
	addr, err := freeAddress()
	if err != nil {
		return spansCost{}, err
	}
	config := filepath.Join(dir, "collector.yml")
	text := fmt.Sprintf(`receivers: {otlp: {protocols: {grpc: {endpoint: '%s', max_recv_msg_size_mib: 64}}}}
processors:
  tail_sampling:
    decision_wait: 10s
    num_traces: 1000000
    policies:
      - {name: errors, type: status_code, status_code: {status_codes: [ERROR]}}
      - {name: slow, type: latency, latency: {threshold_ms: 20000}}
      - {name: some, type: probabilistic, probabilistic: {sampling_percentage: 1}}
exporters: {otlp: {endpoint: '%s', tls: {insecure: true}}}
service: {pipelines: {traces: {receivers: [otlp], processors: [tail_sampling], exporters: [otlp]}}}
`, addr, to.otlp)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return spansCost{}, err
	}
	cmd := exec.Command(program, "--config", "file:"+config)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return spansCost{}, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var c spansCost
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			return c, fmt.Errorf("it does not listen: %.300s", said.Bytes())
		}
	}
	before, err := costOf(cmd.Process.Pid)
	if err != nil {
		return c, err
	}
	if c.rate, err = sendSpans(binary, addr); err != nil {
		return c, err
	}
	time.Sleep(13 * time.Second) // past its decisions
	after, err := costOf(cmd.Process.Pid)
	c.cpu, c.own, c.peak = after.cpu-before.cpu, after.own-before.own, after.peak
	return c, err
}

// sendSpans has the simulator send, and returns the rate at which the spans were acknowledged.
func sendSpans(binary, to string) (float64, error) {
	cmd := exec.Command(binary, "sim", "traces", "--to", to, "--fleet", "uniform:64", "--rate", "max", "--count", strconv.Itoa(otlpSpans),
		"--attributes", "22", "--batch", "1000", "--connections", "2", "--compression", "none", "--json", "--log.level", "error")
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("sim traces: %w", explain(err))
	}
	var sent struct {
		Acknowledged int
		Seconds      float64
	}
	if err := json.Unmarshal(out, &sent); err != nil {
		return 0, fmt.Errorf("sim traces: %w", err)
	}
	if sent.Acknowledged != otlpSpans {
		return 0, fmt.Errorf("sim traces: %d of %d spans were acknowledged", sent.Acknowledged, otlpSpans)
	}
	return otlpSpans / sent.Seconds, nil
}

// traceRecorder is a running recorder without anything to scrape.
type traceRecorder struct {
	cmd       *exec.Cmd
	pid       int
	web, otlp string
}

func startRecorder(binary, dir, sampling string) (*traceRecorder, error) {
	r := &traceRecorder{}
	for _, a := range []*string{&r.web, &r.otlp} {
		var err error
		if *a, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "rollscope.yml")
	text := fmt.Sprintf("rollscope:\n  traces:\n    otlp_grpc: %s\n    otlp_http: off\n    tempo: off\n%s", r.otlp, sampling)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	r.cmd = exec.Command(binary, "serve", "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", r.web, "--no-rules.builtin", "--log.level", "error")
	r.cmd.Stderr = os.Stderr
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	r.pid = r.cmd.Process.Pid
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if _, err := get("http://" + r.web + "/-/ready"); err == nil {
			return r, nil
		}
	}
	r.stop()
	return nil, errors.New("the recorder is not ready after a minute")
}

// stop ends the recorder; again it does nothing.
func (r *traceRecorder) stop() {
	if r.cmd == nil {
		return
	}
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	_ = r.cmd.Wait()
	r.cmd = nil
}

// decided waits until nearly all of so many spans were kept or thrown away: what has lost its root waits longer.
func (r *traceRecorder) decided(n int) error {
	got := 0.0
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		b, err := get("http://" + r.web + "/metrics")
		if err != nil {
			return err
		}
		got = 0
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) == 2 && strings.HasPrefix(f[0], "rollscope_tailsample_spans_total{") {
				v, _ := strconv.ParseFloat(f[1], 64)
				got += v
			}
		}
		if int(got) >= n-n/100 {
			return nil
		}
	}
	return fmt.Errorf("%.0f of %d spans are decided after three minutes", got, n)
}

func get(url string) ([]byte, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return b, err
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// processCost is what a process has taken so far.
type processCost struct {
	cpu  float64 // s, its children too
	own  float64 // s, without them
	peak float64 // MB resident, its children too
}

func costOf(pid int) (c processCost, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return c, err
	}
	for _, e := range entries {
		one, convErr := strconv.Atoi(e.Name())
		if convErr != nil {
			continue
		}
		stat, readErr := os.ReadFile(fmt.Sprintf("/proc/%d/stat", one))
		if readErr != nil {
			continue // it has ended
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if one != pid && f[1] != strconv.Itoa(pid) {
			continue
		}
		for _, ticks := range f[11:13] {
			v, _ := strconv.ParseFloat(ticks, 64)
			c.cpu += v / 100
			if one == pid {
				c.own += v / 100
			}
		}
		mib, err := peakMemory(one)
		if err != nil {
			return processCost{}, err
		}
		c.peak += mib * 1.048576
	}
	if c == (processCost{}) {
		return c, fmt.Errorf("there is no process %d", pid)
	}
	return c, nil
}

// sizeOf is the size of all files below a directory.
func sizeOf(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}
