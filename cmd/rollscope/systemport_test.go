package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/sim"
)

// One port has the metrics and the health of both engines, and says so on the standard output.
func TestSystemPort(t *testing.T) {
	r := fleet(t, sim.Uniform(2))
	args := []string{"serve", "--storage.tsdb.path", t.TempDir(), "--web.listen-address", "127.0.0.1:0", "--scrape-interval", "1s", "--system-port", "0"}
	for _, target := range r.Targets() {
		args = append(args, "--scrape", target.Addr)
	}
	p := start(t, args...)
	var url string
	eventually(t, "the port is announced", func() bool {
		_, rest, _ := strings.Cut(p.out.String(), "system port: ")
		url, _, _ = strings.Cut(rest, "\n")
		return url != ""
	})
	read := func(path string) (int, string) {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	eventually(t, "the node is ready", func() bool {
		status, body := read("/health")
		return status == http.StatusOK && strings.Count(body, `{"state":"ready"}`) == 2
	})
	_, text := read("/metrics")
	for _, target := range r.Targets() {
		if !strings.Contains(text, `worker_addr="http://`+target.Addr+`"`) {
			t.Errorf("%s is not in the exposition", target.Addr)
		}
	}
	if n := strings.Count(text, "# TYPE sglang:num_running_reqs "); n != 1 {
		t.Errorf("a type stands %d times", n)
	}
	if n := len(query(t, p.url, "up == 1", time.Time{}).Data.Result); n != 2 {
		t.Errorf("%d targets are recorded", n)
	}
	p.stop()
	for _, bad := range []string{"x", "65536", "-2"} {
		if _, stderr, code := runCLI(t, "serve", "--storage.tsdb.path", t.TempDir(), "--system-port", bad); code != exitBadInput || !strings.Contains(stderr, "invalid port") {
			t.Errorf("--system-port %s: exit code %d, %s", bad, code, stderr)
		}
	}
}
