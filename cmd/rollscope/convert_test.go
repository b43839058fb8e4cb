package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const dumpsDir = "../../torchfile/testdata/dumps/"

// ran is what a command that ends by itself has printed.
func ran(t *testing.T, args ...string) (out, errOut string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(args, strings.NewReader(""), &o, &e)
	return o.String(), e.String(), code
}

func TestConvertToStandardOutput(t *testing.T) {
	out, errOut, code := ran(t, "convert", dumpsDir+"d08_rollout_1.pt", "--to", "jsonl", "--out", "-")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	for line := range strings.Lines(out) {
		if !json.Valid([]byte(line)) {
			t.Fatalf("no JSON: %q", line)
		}
	}
	if !strings.Contains(out, `"sample_index"`) {
		t.Fatalf("no samples: %q", out)
	}
}

func TestConvertSalvagesWhatIsThere(t *testing.T) {
	const cut = dumpsDir + "c19_truncated_zip.pt"
	for to, files := range map[string]int{"jsonl": 1, "otlp": 1, "parquet": 3, "perfetto": 1, "cache": 1} {
		dir := t.TempDir()
		if out, _, code := ran(t, "convert", cut, "--to", to, "--out", dir); code != exitBadInput || out != "" {
			t.Errorf("%s without --salvage: exit code %d, %q", to, code, out)
		}
		out, errOut, code := ran(t, "convert", cut, "--to", to, "--out", dir, "--salvage")
		if code != exitBadInput || !strings.Contains(errOut, "being written or cut") {
			t.Errorf("%s: exit code %d, stderr %q", to, code, errOut)
		}
		if got := strings.Fields(out); len(got) != files {
			t.Errorf("%s named %q", to, out)
		}
		for _, name := range strings.Fields(out) {
			if info, err := os.Stat(name); err != nil || info.Size() == 0 {
				t.Errorf("%s: %s: %v", to, name, err)
			}
		}
		if list, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(list) > 0 {
			t.Errorf("%s left %q behind, %v", to, list, err)
		}
	}
}
