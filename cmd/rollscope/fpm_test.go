package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rollscope/rollscope/internal/app"
)

// background runs a command until the test ends and returns the first line of either output that has want,
// from there on.
func background(t *testing.T, want string, args ...string) string {
	t.Helper()
	cmd := command(context.Background(), args...)
	return backgroundCmd(t, want, cmd)
}

func backgroundCmd(t *testing.T, want string, cmd *exec.Cmd) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	found := make(chan string, 1)
	go func() {
		defer close(found)
		defer r.Close()
		told := false
		for lines := bufio.NewScanner(r); lines.Scan(); {
			if i := strings.Index(lines.Text(), want); i >= 0 && !told {
				told = true
				found <- lines.Text()[i:]
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, ok := <-found
	if !ok {
		t.Fatalf("%v ended without saying %q", cmd.Args[1:], want)
	}
	return line
}

// simFPM starts simulated ranks and returns their endpoints.
func simFPM(t *testing.T, args ...string) []string {
	t.Helper()
	line := background(t, "rollscope fpm tail ", append([]string{"sim", "fpm", "--for", "5m"}, args...)...)
	return strings.Fields(line)[3:]
}

// shortDir is a directory with a short name: UNIX sockets have at most 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fpm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// tailed runs tail and returns what it printed.
func tailed(t *testing.T, args ...string) (passes []map[string]any) {
	t.Helper()
	if !slices.Contains(args, "--for") {
		args = append(args, "--for", "30s")
	}
	out, stderr, code := runCLI(t, append([]string{"fpm", "tail", "--json"}, args...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	return passesIn(t, out)
}

// passesIn reads the lines of tail.
func passesIn(t *testing.T, out string) (passes []map[string]any) {
	t.Helper()
	for line := range strings.Lines(out) {
		var p map[string]any
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		passes = append(passes, p)
	}
	return passes
}

func checked(t *testing.T, args ...string) (res app.FPMCheck, code int) {
	t.Helper()
	out, stderr, code := runCLI(t, append([]string{"fpm", "check", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &res); err != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, stderr)
	}
	return res, code
}

func TestFPMTailSeesEachForm(t *testing.T) {
	for _, form := range []string{"v1", "v0", "vllm", "wide", "future", "positional"} {
		t.Run(form, func(t *testing.T) {
			at := simFPM(t, "--form", form, "--to", "ipc://"+shortDir(t)+"/e", "--rate", "200")
			if len(at) != 2 || !strings.HasSuffix(at[1], "/e.1") {
				t.Fatalf("endpoints %v", at)
			}
			args := append(at, "--count", "40")
			if form == "positional" {
				args = append(args, "--positional")
			}
			ranks := map[float64]int{}
			passes := tailed(t, args...)
			for _, p := range passes {
				pass := p["pass"].(map[string]any)
				ranks[pass["dp_rank"].(float64)]++
				if _, has := pass["counter_id"]; has == (form == "v0") || pass["wall_time"].(float64) <= 0 || pass["timing_scope"] != nil != (form == "vllm") {
					t.Fatalf("%v", p)
				}
			}
			if len(passes) != 40 || len(ranks) != 2 {
				t.Errorf("%d lines of ranks %v", len(passes), ranks)
			}
		})
	}
	out, _, code := runCLI(t, append([]string{"fpm", "tail", "--count", "3"}, simFPM(t, "--to", "tcp://127.0.0.1:0")...)...)
	if code != 0 || strings.Count(out, "\n") != 3 || !strings.Contains(out, " 7587893811422159/") || !strings.Contains(out, " ms  prefill ") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestFPMSimCountsAreTheReceivers(t *testing.T) {
	at := "ipc://" + shortDir(t) + "/e"
	var counts struct{ Passes, Dropped, Restarts, Unheard int }
	done := make(chan error, 1)
	sim := command(t.Context(), "sim", "fpm", "--to", at, "--ranks", "1", "--rate", "500", "--count", "1000", "--drop", "0.05", "--restart", "1s", "--wait", "--json")
	var said bytes.Buffer
	sim.Stdout = &said
	go func() { done <- sim.Run() }()
	tail := command(t.Context(), "fpm", "tail", "--json", at+".0")
	out := &syncBuffer{}
	tail.Stdout = out
	if err := tail.Start(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(said.Bytes(), &counts); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all that were sent have come", func() bool { return strings.Count(out.String(), "\n") >= counts.Passes })
	if err := errors.Join(tail.Process.Signal(syscall.SIGTERM), tail.Wait()); err != nil {
		t.Fatal(err)
	}
	passes := passesIn(t, out.String())
	missing, restarts := 0.0, 0
	for _, p := range passes {
		if n, ok := p["missing"].(float64); ok {
			missing += n
		}
		if p["restart"] == true {
			restarts++
		}
	}
	if len(passes) != counts.Passes || counts.Passes+counts.Dropped != 1000 || counts.Unheard != 0 || counts.Restarts != 1 || restarts != 1 {
		t.Errorf("%d passes came with %d restarts; sent were %+v", len(passes), restarts, counts)
	}
	// Losses at the end of a life and before the first message cannot be seen.
	if missing == 0 || missing > float64(counts.Dropped) {
		t.Errorf("%v are missing of %d that were dropped", missing, counts.Dropped)
	}
}

func TestFPMCheck(t *testing.T) {
	at := simFPM(t, "--to", "ipc://"+shortDir(t)+"/e", "--rate", "200", "--drop", "0.2")
	res, code := checked(t, at...) // ends when both are heard
	if code != 0 || res.Blind || !res.Known || len(res.Sources) != 2 || len(res.Ranks) != 2 || res.Ranks[0].Lost == 0 || res.Sources[0].Flow != "receiving" {
		t.Errorf("exit code %d: %+v", code, res)
	}
	// Arrays are refused unless they are asked for, which is said.
	at = simFPM(t, "--to", "tcp://127.0.0.1:0", "--ranks", "1", "--form", "positional")
	if res, code = checked(t, at[0], "--for", "8s"); code != exitNo || !res.Blind || res.Sources[0].Cause != "undecodable" || !strings.Contains(res.Sources[0].Why, "positional") {
		t.Errorf("exit code %d: %+v", code, res)
	}
	if res, code = checked(t, at[0], "--positional"); code != 0 || res.Blind {
		t.Errorf("exit code %d: %+v", code, res)
	}
	// Too short to tell.
	if res, code = checked(t, "ipc://"+shortDir(t)+"/none.0", "--for", "5s"); code != exitUnknown || res.Blind || res.Sources[0].State != "missing" {
		t.Errorf("exit code %d: %+v", code, res)
	}
}

// Case F05: everything is green and nothing is sent. The engine's own metrics tell whether that is right.
func TestFPMCheckF05(t *testing.T) {
	var n atomic.Int64
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "# TYPE sglang:num_requests_total counter\nsglang:num_requests_total{model_name=\"a b\"} %d\n", 300*n.Add(1))
	}))
	t.Cleanup(busy.Close)
	idle := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "sglang:num_requests_total{model_name=\"a b\"} 300\n")
	}))
	t.Cleanup(idle.Close)
	// A socket that is there and silent: all messages are dropped, as far as a receiver can see.
	silent := simFPM(t, "--to", "tcp://127.0.0.1:0", "--ranks", "1", "--rate", "0.005", "--drop", "0.999999")[0]
	gone := "ipc://" + shortDir(t) + "/none.0"
	for _, c := range []struct {
		name        string
		args        []string
		code        int
		flow, cause string
		do          string
	}{
		{"busy, socket missing", []string{gone, "--metrics", busy.URL}, exitNo, "no payload while engine is busy", "socket_missing", "--enable-forward-pass-metrics"},
		{"busy, socket silent", []string{silent, "--metrics", busy.URL}, exitNo, "no payload while engine is busy", "socket_silent", "socket is there and silent"},
		{"busy, runtime does not emit", []string{silent, "--metrics", busy.URL, "--runtime", "sglang-runtime:1.2.0"}, exitNo, "no payload while engine is busy", "runtime_does_not_emit", "vLLM"},
		{"idle", []string{silent, "--metrics", idle.URL}, exitOK, "waiting (engine idle)", "", ""},
		{"activity unknown", []string{silent}, exitUnknown, "nothing received", "socket_silent", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			res, code := checked(t, append(c.args, "--for", "11s")...)
			s := res.Sources[0]
			if code != c.code || string(s.Flow) != c.flow || string(s.Cause) != c.cause || !strings.Contains(s.Do, c.do) || s.Why == "" || s.Alarm != (c.code == exitNo) {
				t.Errorf("exit code %d: %+v, notes %v", code, s, res.Notes)
			}
		})
	}
}

func TestFPMRelay(t *testing.T) {
	at := simFPM(t, "--to", "ipc://"+shortDir(t)+"/e", "--ranks", "2", "--rate", "100")
	for name, args := range map[string][]string{
		"embedded NATS": {"--nats", "embedded", "--nats-listen", "127.0.0.1:0", "--namespace", "prod"},
		"ZMQ":           {"--to", "tcp://127.0.0.1:0", "--namespace", "prod"},
	} {
		t.Run(name, func(t *testing.T) {
			line := background(t, "rollscope fpm tail ", append(append([]string{"fpm", "relay", "--for", "5m"}, at...), args...)...)
			plane := strings.Fields(line)[3]
			passes := tailed(t, plane, "--count", "50")
			for _, p := range passes {
				if name == "embedded NATS" && (p["namespace"] != "prod" || p["component"] != "backend") {
					t.Fatalf("%v", p)
				}
			}
			if len(passes) != 50 {
				t.Errorf("%d passes", len(passes))
			}
			if res, code := checked(t, plane); code != 0 || len(res.Ranks) != 2 {
				t.Errorf("exit code %d: %+v", code, res)
			}
		})
	}
	out, code := relayed(t, func(out string) bool {
		return strings.Contains(out, `"relayed":`) && !strings.HasPrefix(out, `{"received":0,`)
	},
		at[0], "--nats", "embedded", "--nats-listen", "127.0.0.1:0", "--every", "200ms", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var s app.FPMRelayed
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &s); err != nil || code != 0 || len(lines) < 2 || s.Received == 0 || s.Relayed != s.Received || s.Lost != 0 {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
	// Nobody subscribed: every message is counted as lost.
	out, code = relayed(t, func(out string) bool { return strings.Contains(out, "no_subscriber (relay)") }, at[0], "--to", "tcp://127.0.0.1:0", "--every", "200ms")
	if code != exitNo || !strings.Contains(out, " 0 relayed, ") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// relayed runs a relay until its summaries say enough, and stops it as a person would.
func relayed(t *testing.T, enough func(last string) bool, args ...string) (out string, code int) {
	t.Helper()
	cmd := command(t.Context(), append([]string{"fpm", "relay"}, args...)...)
	said := &syncBuffer{}
	cmd.Stdout = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the relay has something to tell", func() bool {
		lines := strings.SplitAfter(said.String(), "\n")
		return len(lines) > 1 && enough(lines[len(lines)-2]) // the last one that is whole
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its code is what is asked for
	return said.String(), cmd.ProcessState.ExitCode()
}

func TestFPMTraceFiles(t *testing.T) {
	record := func(i int) string {
		return fmt.Sprintf(`{"timestamp":%d,"event":{"schema":"dynamo.fpm.trace.v1","source":{"namespace":"default","component":"backend","producer_id":"7"},"capture_mode":"sampled","observed_at_unix_ms":%d,"fpm":{"version":1,"worker_id":"7","dp_rank":0,"counter_id":%d,"wall_time":0.025,"scheduled_requests":{"num_decode_requests":3,"sum_decode_kv_tokens":1024},"queued_requests":{}}}}`+"\n",
			1250+30*i, 1782777601250+30*i, 40+4*i)
	}
	text := []byte(record(0) + record(1) + record(2))
	dir := t.TempDir()
	plain, zipped := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.jsonl.gz")
	if err := os.WriteFile(plain, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(text)
	_ = z.Close()
	if err := os.WriteFile(zipped, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{plain, zipped} {
		if p := tailed(t, f); len(p) != 3 || p[0]["namespace"] != "default" || p[1]["missing"] != nil {
			t.Errorf("%s: %v", f, p)
		}
		if res, code := checked(t, f); code != 0 || len(res.Ranks) != 1 || res.Ranks[0].Passes != 3 || !res.Ranks[0].Unknown {
			t.Errorf("%s: exit code %d: %+v", f, code, res)
		}
	}
	bad := filepath.Join(dir, "bad.jsonl")
	if err := os.WriteFile(bad, []byte(strings.Replace(record(0), "worker_id\":\"7\"", "worker_id\":7", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, code := runCLI(t, "fpm", "tail", bad); code != exitUnknown {
		t.Errorf("a file without a pass: exit code %d", code)
	}
}

func TestFPMHearsLibzmq(t *testing.T) {
	python := ""
	for _, p := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(p, "-c", "import zmq, msgpack").Run() == nil {
			python = p
			break
		}
	}
	if python == "" {
		missing(t, "no python3 with zmq and msgpack: tools/test-deps.sh installs it")
	}
	for _, at := range []string{"ipc://" + shortDir(t) + "/fpm.0", "tcp://127.0.0.1:*"} {
		at = strings.Fields(backgroundCmd(t, "bound ", exec.Command(python, "testdata/fpm_pub.py", at)))[1]
		passes := tailed(t, at, "--count", "20")
		if id := passes[0]["pass"].(map[string]any)["worker_id"]; len(passes) != 20 || id != "18446744073709551557" {
			t.Errorf("%d passes of worker %v", len(passes), id)
		}
		if res, code := checked(t, at); code != 0 || res.Ranks[0].Lost != 0 {
			t.Errorf("exit code %d: %+v", code, res)
		}
	}
}

func TestFPMBadUsage(t *testing.T) {
	for _, bad := range [][]string{
		{"fpm", "tail"}, {"fpm", "tail", "http://x"}, {"fpm", "tail", "tcp://nowhere"}, {"fpm", "tail", "ipc:///a", "ipc:///a"}, {"fpm", "tail", "ipc:///a", "--count", "-1"},
		{"fpm", "tail", "nats://"}, {"fpm", "check", "ipc:///a", "--for", "0s"},
		{"fpm", "relay", "ipc:///a"}, {"fpm", "relay", "ipc:///a", "--to", "http://x"}, {"fpm", "relay", "ipc:///a", "--to", "nats://x", "--nats", "embedded"},
		{"fpm", "relay", "ipc:///a", "--to", "tcp://127.0.0.1:0", "--namespace", ""},
		{"sim", "fpm", "--ranks", "0"}, {"sim", "fpm", "--rate", "0"}, {"sim", "fpm", "--rate", "NaN"}, {"sim", "fpm", "--drop", "1"}, {"sim", "fpm", "--idle", "2"}, {"sim", "fpm", "--form", "v9"}, {"sim", "fpm", "--to", "nats://x"},
	} {
		if out, stderr, code := runCLI(t, bad...); code != exitBadInput || stderr == "" {
			t.Errorf("%v: exit code %d: %s%s", bad, code, out, stderr)
		}
	}
}
