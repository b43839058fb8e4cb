package main

import (
	"encoding/csv"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/api"
)

// recorded writes ten minutes of the demo's fleet and returns the directory and its range.
func recorded(t *testing.T) (dir string, from, to time.Time) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	from = time.Date(2026, 5, 28, 11, 0, 0, 0, time.UTC)
	out, stderr, code := runCLI(t, "sim", "record", dir, "--fleet", "demo", "--for", "10m", "--from", from.Format(time.RFC3339))
	if code != 0 {
		t.Fatalf("sim record: exit code %d\n%s", code, stderr)
	}
	if !strings.Contains(out, "samples of") {
		t.Fatalf("sim record says %q", out)
	}
	return dir, from, from.Add(10 * time.Minute)
}

// A finished run opens at its own range, every board answers on it, and each face reads the same.
func TestReplayAndShellOnAnArchive(t *testing.T) {
	dir, from, to := recorded(t)
	p := start(t, "replay", dir, "--web.listen-address", "127.0.0.1:0")

	var status api.Envelope[api.Status]
	get(t, p.url, "/api/rollscope/v1/status", nil, &status)
	if status.Data.Mode != "archive" || status.Data.From == nil || status.Data.To == nil {
		t.Fatalf("status %+v: want an archive with a range", status.Data)
	}
	if *status.Data.From != "2026-05-28T11:00:00Z" || *status.Data.To != "2026-05-28T11:10:00Z" {
		t.Errorf("its range is %s to %s, want 11:00 to 11:10", *status.Data.From, *status.Data.To)
	}

	window := url.Values{"from": {from.Format(time.RFC3339)}, "to": {to.Format(time.RFC3339)}}
	var boards api.Envelope[[]api.Board]
	get(t, p.url, "/api/rollscope/v1/boards", nil, &boards)
	if len(boards.Data) < 8 {
		t.Fatalf("%d boards", len(boards.Data))
	}
	seen := map[string]bool{}
	withData := 0
	for _, b := range boards.Data {
		for _, s := range b.Sections {
			for _, panel := range s.Panels {
				if panel.Signal == "" || seen[panel.Signal] {
					continue
				}
				seen[panel.Signal] = true
				var data api.Envelope[api.SignalData]
				if code := get(t, p.url, "/api/rollscope/v1/signals/"+panel.Signal, window, &data); code != 200 {
					t.Errorf("board %s, panel %q: signal %s is answered with %d", b.ID, panel.Title, panel.Signal, code)
				}
				if data.State == api.StateValue {
					withData++
				}
			}
		}
	}
	if withData < len(seen)/2 {
		t.Errorf("only %d of %d signals have a value at the end of the run", withData, len(seen))
	}
	p.stop()

	out, stderr, code := runCLI(t, "query", "--dir", dir, "--format", "json", "count(up)")
	if code != 0 || !strings.Contains(out, `"success"`) {
		t.Errorf("query --dir: exit code %d, %s %s", code, out, stderr)
	}
	out, _, code = runCLI(t, "query", "--dir", dir, "--since", "10m", "--step", "1m", "--format", "csv", "sglang:num_running_reqs")
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if code != 0 || err != nil || len(rows) < 20 || rows[0][0] != "time" {
		t.Errorf("query --format csv: exit code %d, %v, %d rows", code, err, len(rows))
	}
	file := filepath.Join(t.TempDir(), "snapshot.json")
	if _, stderr, code = runCLI(t, "snapshot", "--dir", dir, "--since", "10m", "--step", "30s", "-o", file); code != 0 {
		t.Fatalf("snapshot: exit code %d: %s", code, stderr)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var snap snapshotFile
	if err := json.Unmarshal(data, &snap); err != nil {
		t.Fatal(err)
	}
	ok := 0
	for _, s := range snap.Signals {
		for _, l := range s.Summary {
			if l.Mean != nil {
				ok++
				break
			}
		}
	}
	if len(snap.Signals) < 40 || ok < 20 {
		t.Errorf("the snapshot has %d signals, %d of them with numbers", len(snap.Signals), ok)
	}
	out, stderr, code = runCLI(t, "top", "--dir", dir, "--once")
	if code != 0 || !strings.Contains(out, "ENGINE") || !strings.Contains(out, "Time to first token") {
		t.Errorf("top --once: exit code %d\n%s\n%s", code, out, stderr)
	}
}

func TestGuideExpressions(t *testing.T) {
	dir, _, to := recorded(t)
	p := start(t, "replay", dir, "--web.listen-address", "127.0.0.1:0")
	text, err := os.ReadFile("testdata/guides.promql")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		expr := strings.TrimSpace(line)
		if expr == "" || strings.HasPrefix(expr, "#") {
			continue
		}
		n++
		v := query(t, p.url, expr, to)
		if len(v.Data.Result) == 0 && len(v.Warnings)+len(v.Infos) == 0 {
			t.Errorf("%s: neither data nor a warning", expr)
		}
	}
	if n < 40 {
		t.Fatalf("only %d expressions were read", n)
	}
	p.stop()
}

func TestLintCommand(t *testing.T) {
	exposition := writeFile(t, "engine.prom", "# TYPE sglang:num_queue_reqs gauge\nsglang:num_queue_reqs{model_name=\"m\"} 1\n")
	good := writeFile(t, "good.yml", "groups:\n  - name: g\n    rules:\n      - {alert: Queue, expr: 'sglang_num_queue_reqs > 100', for: 5m}\n")
	out, stderr, code := runCLI(t, "lint", "rules", good, "--against", exposition)
	if code != exitOK {
		t.Errorf("a good rule: exit code %d\n%s%s", code, out, stderr)
	}
	bad := writeFile(t, "bad.yml", "groups:\n  - name: g\n    rules:\n      - {alert: Slow, expr: 'histogram_quantile(0.99, sum by (le) (rate(sglang_e2e_first_token_latency_seconds_bucket[5m]))) > 1'}\n")
	out, _, code = runCLI(t, "lint", "rules", bad, "--against", exposition)
	if code != exitNo || !strings.Contains(out, "time_to_first_token_seconds") {
		t.Errorf("a rule over an invented name: exit code %d, and it should name the true one:\n%s", code, out)
	}
	if _, _, code = runCLI(t, "lint", "rules", filepath.Join(t.TempDir(), "none.yml")); code != exitBadInput {
		t.Errorf("a file that is not there: exit code %d, want 2", code)
	}
	if _, _, code = runCLI(t, "lint", "rules", good, "--against", "http://127.0.0.1:1/metrics"); code != exitUnknown {
		t.Errorf("a target that does not answer: exit code %d, want 3", code)
	}
}

func TestExplainHelpAndExport(t *testing.T) {
	out, _, code := runCLI(t, "explain", "sglang_cache_hit_rate")
	if code != exitOK || !strings.Contains(out, "last prefill batch") {
		t.Errorf("explain: exit code %d\n%s", code, out)
	}
	if out, _, code = runCLI(t, "explain", "sglang:num_queue_requests"); code != exitNo || !strings.Contains(out, "num_queue_reqs") {
		t.Errorf("explain of a name that is not: exit code %d\n%s", code, out)
	}
	for _, c := range []string{"serve", "demo", "replay", "query", "top", "explain", "snapshot", "lint", "export", "sim engines", "sim record"} {
		out, _, code := runCLI(t, append(strings.Fields(c), "--help")...)
		if code != exitOK || !strings.Contains(out, "  rollscope "+c) {
			t.Errorf("%s --help: exit code %d, without an example:\n%s", c, code, out)
		}
	}
	if _, stderr, code := runCLI(t, "serv"); code != exitBadInput || !strings.Contains(stderr, "serv") {
		t.Errorf("a command that is not: exit code %d, %q", code, stderr)
	}
	for _, what := range []string{"grafana", "alerts", "prometheus"} {
		dir := t.TempDir()
		out, stderr, code := runCLI(t, "export", what, dir)
		if code != exitOK || out == "" {
			t.Fatalf("export %s: exit code %d %s", what, code, stderr)
		}
		for file := range strings.Lines(out) {
			if _, err := os.Stat(strings.TrimSpace(file)); err != nil {
				t.Errorf("export %s names a file that it did not write: %v", what, err)
			}
		}
	}
}
