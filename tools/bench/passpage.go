package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
)

// passPage is the live strip of 64 ranks in Chromium, without a GPU: how even its frames are, and what they cost.
func passPage(binary, _ string) ([]row, error) {
	out, err := exec.Command("node", "web/bench/passes.mjs", binary).Output()
	if err != nil {
		return nil, fmt.Errorf("node web/bench/passes.mjs: %w", explain(err))
	}
	var m map[string]float64
	if err := json.Unmarshal(out, &m); err != nil {
		return nil, fmt.Errorf("web/bench/passes.mjs printed no numbers: %w", err)
	}
	rows := []row{}
	for _, f := range []struct{ key, what, aim string }{
		{"frame_p95_ms", "page of forward passes, 64 ranks at 50/s: frame p95", "33 ms"},
		{"frame_p50_ms", "  frame p50", ""},
		{"frame_max_ms", "  longest frame of 10 s", ""},
		{"draw_p95_ms", "  the page's own work in a frame, p95", ""},
	} {
		v, ok := m[f.key]
		if !ok {
			return nil, fmt.Errorf("web/bench/passes.mjs did not measure %s", f.key)
		}
		rows = append(rows, row{what: f.what, measured: fmt.Sprintf("%.1f ms", v), aim: f.aim})
	}
	return rows, nil
}
