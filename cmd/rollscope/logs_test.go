package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/enginelog"
)

const logsDir = "../../internal/enginelog/testdata/"

func TestLogsParse(t *testing.T) {
	// L01.3: how many lines Ray folded, and how to switch that off.
	out, errOut, code := ran(t, "logs", "parse", logsDir+"L01/ray.log", "--timezone", "UTC")
	if code != exitOK || !strings.Contains(out, "4 lines folded into 2") || !strings.Contains(out, "RAY_DEDUP_LOGS=0") {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	out, errOut, code = ran(t, "logs", "parse", logsDir+"L01/ray.log", "--timezone", "UTC", "--json")
	var s enginelog.Summary
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.Lines != 5 || s.Folded.Lines != 4 || code != exitOK {
		t.Errorf("exit code %d, %v: %s%s", code, err, out, errOut)
	}
	if out, _, code = ran(t, "logs", "parse", logsDir+"sglang/events.log"); code != exitNo {
		t.Errorf("a log with events: exit code %d: %s", code, out)
	}
	none := filepath.Join(t.TempDir(), "none.log")
	if err := os.WriteFile(none, []byte("nothing that anybody knows\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, code = ran(t, "logs", "parse", none); code != exitUnknown {
		t.Errorf("a log that nobody can read: exit code %d", code)
	}
	// The standard input of a test is empty.
	if out, errOut, code = ran(t, "logs", "parse", "-"); code != exitUnknown || !strings.HasPrefix(out, "stdin: 0 lines") {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	for _, bad := range [][]string{{"none.log"}, {none, "--json", "--records"}, {none, "--class", "oom"}, {none, "--timezone", "Mars"}, {none, "--written", "then"}, {none, "--records", "--class", "x"}, {}} {
		if _, _, code := ran(t, append([]string{"logs", "parse"}, bad...)...); code != exitBadInput {
			t.Errorf("%q: exit code %d", bad, code)
		}
	}
}

func TestLogsParseToTensorBoard(t *testing.T) {
	tb := t.TempDir()
	out, errOut, code := ran(t, "logs", "parse", logsDir+"L03/perf.log", "--timezone", "UTC", "--tensorboard", tb)
	// One of the keys is none that a tracker takes.
	if code != exitNo || !strings.Contains(out, "3 steps written with 6 points") || !strings.Contains(out, "1 points refused: key") {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	if files, err := filepath.Glob(filepath.Join(tb, "perf", "events.out.tfevents.*")); err != nil || len(files) != 1 {
		t.Errorf("%v %v", files, err)
	}
}

// TestSimLogs: what the simulated fleet writes is read, in each form.
func TestSimLogs(t *testing.T) {
	for _, form := range []string{"plain", "docker", "cri"} {
		dir := t.TempDir()
		out, errOut, code := ran(t, "sim", "logs", "--dir", dir, "--for", "1s", "--form", form)
		if code != exitOK || !strings.Contains(out, "lines a second of 1 fleet") {
			t.Fatalf("exit code %d: %s%s", code, out, errOut)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil || len(files) < 9 {
			t.Fatalf("%v %v", files, err)
		}
		out, errOut, code = ran(t, append([]string{"logs", "parse", "--json", "--timezone", "UTC"}, files...)...)
		if code != exitOK || errOut != "" {
			t.Errorf("%s: exit code %d: %s", form, code, errOut)
		}
		d := json.NewDecoder(strings.NewReader(out))
		for range files {
			var s enginelog.Summary
			if err := d.Decode(&s); err != nil {
				t.Fatal(err)
			}
			if s.Unread.Lines != 0 || s.Lines == 0 {
				t.Errorf("%s: %s: %d lines, of which nobody reads %q", form, s.Source, s.Lines, s.Unread.Examples)
			}
		}
	}
	for _, bad := range [][]string{{}, {"--dir", t.TempDir(), "--rate", "-1"}, {"--dir", t.TempDir(), "--form", "xml"}, {"--dir", t.TempDir(), "--fleet", "x"}, {"--dir", t.TempDir(), "--timezone", "Mars"}} {
		if _, _, code := ran(t, append([]string{"sim", "logs"}, bad...)...); code != exitBadInput {
			t.Errorf("%q: exit code %d", bad, code)
		}
	}
}
