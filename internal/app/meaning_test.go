package app

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/metricstore"
)

func configOf(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Load([]byte(text), "rollscope.yml")
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// asSaid is all that a configuration says of engines, signals and boards, in JSON: YAML is what is tested.
func asSaid(t *testing.T, cfg *config.Config) string {
	t.Helper()
	b, err := json.Marshal(meaningParts{cfg.Rollscope.Signals, cfg.Rollscope.Engines, cfg.Rollscope.Boards})
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`"Line":\d+`).ReplaceAllString(string(b), "")
	return strings.ReplaceAll(text, ":[]", ":null")
}

const named = `rollscope:
  signals:
    - {id: my_queue, title: My queue, unit: requests, kind: level, meaning: "what waits: all of it", sources: [{backend: sglang, metric: num_queue_reqs, match: 'priority="0"', scale: 0.5}]}
  engines:
    - {instance: "10.0.0.7:30000", name: prefill-0, role: prefill, aliases: ["pod-7:30000"]}
    - {instance: "10.0.0.8:30000", name: "decode \"8\""}
  boards:
    - id: mine
      title: "Mine #1"
      sections:
        - title: all
          panels:
            - {id: q, signal: my_queue, by: role, min: 0}
            - {id: e, title: raw, targets: [{expr: 'sum(up) > 1', legend: "{{job}}"}]}
`

// TestMeaning: what a configuration says of engines, signals and boards is read back as it was, stays until
// something else is said, and engines keep their names when they leave.
func TestMeaning(t *testing.T) {
	dir := t.TempDir()
	if err := keepMeaning(dir, configOf(t, "global: {scrape_interval: 5s}\n"), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "rollscope")); err == nil {
		t.Error("a configuration that says nothing is kept")
	}
	full := configOf(t, named)
	if err := keepMeaning(dir, full, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	got, err := readMeaning(metricstore.MeaningFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	if is, was := asSaid(t, got), asSaid(t, full); is != was {
		t.Errorf("kept  %s\nof    %s", is, was)
	}
	if _, _, err := shownBy(got); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(metricstore.MeaningFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := keepMeaning(dir, full, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if again, err := os.Stat(metricstore.MeaningFile(dir)); err != nil || !os.SameFile(info, again) {
		t.Errorf("the same was written again (%v)", err)
	}

	if err := keepMeaning(dir, configOf(t, "rollscope:\n  engines: [{instance: '10.0.0.8:30000', name: decode-8}]\n"), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	got, err = readMeaning(metricstore.MeaningFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, e := range got.Rollscope.Engines {
		names += fmt.Sprintf("%s %s %s, ", e.Instance, e.Name, e.Role)
	}
	if want := "10.0.0.8:30000 decode-8 , 10.0.0.7:30000 prefill-0 prefill, "; names != want || len(got.Rollscope.Boards)+len(got.Rollscope.Signals) != 0 {
		t.Errorf("kept %s%+v, want %s", names, got.Rollscope, want)
	}
}

// TestMeaningDamaged: what cannot be read is said with its place, and is written anew by the next recorder.
func TestMeaningDamaged(t *testing.T) {
	for _, text := range []string{"rollscope: {engines: [{instance: a, nam: b}]}", "\x00", "rollscope: [", "rollscope: {boards: [{id: x, title: X, sections: [{title: s, panels: [{id: p, signal: nobody}]}]}]}", strings.Repeat("# long\n", maxMeaning/7+1)} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Dir(metricstore.MeaningFile(dir)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(metricstore.MeaningFile(dir), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		f := &faces{}
		if err := f.recall(dir); err == nil || !strings.Contains(err.Error(), metricstore.MeaningFile(dir)) {
			t.Errorf("%.40q: %v", text, err)
		}
		if f.now.Load() != nil {
			t.Errorf("%.40q is used", text)
		}
		full := configOf(t, named)
		if err := keepMeaning(dir, full, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		if got, err := readMeaning(metricstore.MeaningFile(dir)); err != nil || len(got.Rollscope.Engines) != 2 {
			t.Errorf("%.40q: not written anew: %v", text, err)
		}
		if strings.Contains(text, "boards") {
			continue // a configuration all the same; its boards are replaced as always
		}
		if aside, err := os.ReadFile(metricstore.MeaningFile(dir) + ".damaged"); err != nil || string(aside) != text {
			t.Errorf("%.40q: what there was is gone: %v", text, err)
		}
	}
}
