package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/app"
	"github.com/rollscope/rollscope/internal/sim"
)

// The tests of this package start the program as a person does. The test binary is that program when
// asMain is set, so that nothing has to be built for it.
const asMain = "ROLLSCOPE_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" || len(os.Args) > 1 && os.Args[1] == app.ChildCommand {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// process is a running rollscope.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string // of the API, once it answers; "" for a command without one
	err  *syncBuffer
	out  *syncBuffer
	done chan struct{}
}

// syncBuffer may be read while the process writes.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// command prepares a run; the process is killed when the test ends.
func command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	return cmd
}

// runCLI runs a command to its end.
func runCLI(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out, errOut bytes.Buffer
	code = func() int {
		cmd := command(ctx, args...)
		cmd.Stdout, cmd.Stderr = &out, &errOut
		err := cmd.Run()
		if err == nil {
			return 0
		}
		if cmd.ProcessState == nil {
			t.Fatalf("rollscope %v: %v", args, err)
		}
		return cmd.ProcessState.ExitCode()
	}()
	return out.String(), errOut.String(), code
}

// start runs a server and waits until it says where it answers.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, out: &syncBuffer{}, err: &syncBuffer{}, done: make(chan struct{})}
	p.cmd = command(context.Background(), args...)
	p.cmd.Stderr = p.err
	pipe, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	address := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(pipe)
		for lines.Scan() {
			line := lines.Text()
			fmt.Fprintln(p.out, line)
			for _, word := range strings.Fields(line) {
				if strings.HasPrefix(word, "http") {
					select {
					case address <- word:
					default:
					}
				}
			}
		}
		_, _ = io.Copy(io.Discard, pipe)
		_ = p.cmd.Wait()
		close(p.done)
	}()
	select {
	case p.url = <-address:
	case <-p.done:
		t.Fatalf("rollscope %v ended before it answered:\n%s", args, p.err)
	case <-time.After(time.Minute):
		t.Fatalf("rollscope %v does not say where it answers:\n%s", args, p.err)
	}
	return p
}

// kill ends the process as a crash would.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.done
}

// stop ends the process as a person would, and wants it to go in good order.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		p.t.Fatalf("SIGTERM did not end it:\n%s", p.err)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		p.t.Fatalf("after SIGTERM it ended with %d:\n%s", code, p.err)
	}
}

// get reads JSON from a server into out and returns the status.
func get(t *testing.T, base, path string, params url.Values, out any) int {
	t.Helper()
	resp, err := http.Get(base + path + "?" + params.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(body, out); err != nil {
			t.Fatalf("%s%s: %v in %.300s", base, path, err, body)
		}
	}
	return resp.StatusCode
}

// vector is the answer of an instant query.
type vector struct {
	Status string
	Error  string
	Data   struct {
		ResultType string
		Result     []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	Warnings, Infos []string
}

func query(t *testing.T, base, expr string, at time.Time) vector {
	t.Helper()
	var v vector
	params := url.Values{"query": {expr}}
	if !at.IsZero() {
		params.Set("time", unix(at))
	}
	get(t, base, "/api/v1/query", params, &v)
	if v.Status != "success" {
		t.Fatalf("%s: %s", expr, v.Error)
	}
	return v
}

// eventually waits until ok holds; what says what is waited for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never happened: %s", what)
		}
	}
}

// fleet serves simulated engines for the test.
func fleet(t *testing.T, cfg sim.Config) *sim.Running {
	t.Helper()
	cfg.Start = time.Now()
	cfg.Faults = nil
	f, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r, err := sim.Serve(ctx, f, sim.Options{Speed: 4, Logger: slog.New(slog.DiscardHandler)})
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

// pair is a prefill and a decode engine behind a router.
func pair() sim.Config {
	demo := sim.Demo()
	cfg := sim.Config{Seed: 3}
	for _, m := range demo.Members {
		switch m.Name {
		case "prefill-0", "decode-0", "decode-1", "router-0":
			cfg.Members = append(cfg.Members, m)
		}
	}
	for _, l := range demo.Loads {
		if l.Name == "long" {
			cfg.Loads = append(cfg.Loads, l)
		}
	}
	return cfg
}

// addr finds the address of a member's path.
func addr(t *testing.T, r *sim.Running, member, path string) string {
	t.Helper()
	for _, target := range r.Targets() {
		if target.Member == member && target.Path == path {
			return target.Addr
		}
	}
	t.Fatalf("the fleet has no %s%s", member, path)
	return ""
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
