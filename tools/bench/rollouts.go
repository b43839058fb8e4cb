package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// The peers of these rows are the reference viewer and slime's own metrics on dumps of the same make,
// measured once on two cores with the page cache warm; they need torch and are not run again here.
var rolloutSizes = []struct {
	samples                                        int
	view, viewCache, perf                          string // aims
	peerView, peerMemory, peerPerf, peerPerfMemory string
}{
	{2048, "0.2 s", "0.4 s", "0.2 s", "reference 6.2 s", "reference 1,033 MiB", "slime 2.6 s", "slime 1,052 MiB"},
	{16384, "1.5 s", "2.5 s", "1.5 s", "reference 44 s", "reference 6,774 MiB", "slime 36 s", "slime 6,794 MiB"},
}

// rollouts is what opening a dump costs: the page alone, page and cache, and the metrics of a step.
func rollouts(binary, dir string) ([]row, error) {
	var rows []row
	for _, size := range rolloutSizes {
		at := filepath.Join(dir, fmt.Sprintf("dumps-%d", size.samples))
		made, err := timed(binary, "sim", "rollouts", at, "--samples", fmt.Sprint(size.samples), "--first", "1", "--pd", "--multi-turn", "0.15", "--partial", "0.1")
		if err != nil {
			return nil, err
		}
		dump := filepath.Join(at, "rollout_1.pt")
		info, err := os.Stat(dump)
		if err != nil {
			return nil, err
		}
		mb := float64(info.Size()) / 1e6
		name := fmt.Sprintf("%d samples, %.0f MB", size.samples, mb)
		rows = append(rows, row{"sim rollouts: " + name, fmt.Sprintf("%.1f s, %.0f MB/s", made.wall.Seconds(), mb/made.wall.Seconds()), "", ""})
		for _, m := range []struct {
			what, aim, peer, memory string
			args                    []string
		}{
			{"view --no-serve --no-cache", size.view, size.peerView, size.peerMemory, []string{"view", "--no-serve", "--no-cache", "--rebuild", dump}},
			{"view --no-serve, with the JSON cache", size.viewCache, size.peerView, size.peerMemory, []string{"view", "--no-serve", "--rebuild", dump}},
			{"perf", size.perf, size.peerPerf, size.peerPerfMemory, []string{"perf", "--json", dump}},
		} {
			best, err := fastest(3, binary, m.args...)
			if err != nil {
				return nil, err
			}
			rows = append(rows,
				row{m.what + ": " + name, fmt.Sprintf("%.2f s, %.0f MB/s", best.wall.Seconds(), mb/best.wall.Seconds()), m.aim, m.peer},
				row{"  its peak resident memory", fmt.Sprintf("%.0f MiB", float64(best.peak)/(1<<20)), "a tenth", m.memory})
		}
		page, err := viewer(filepath.Join(at, "rollout_1.trace_timeline_viewer.html"), name, size.samples == 16384)
		if err != nil {
			return nil, err
		}
		rows = append(rows, page...)
	}
	return rows, nil
}

// viewer is what the page of a dump does in Chromium, opened from disk.
func viewer(page, name string, large bool) ([]row, error) {
	out, err := exec.Command("node", "web/bench/viewer.mjs", page).Output()
	if err != nil {
		return nil, fmt.Errorf("node web/bench/viewer.mjs: %w", explain(err))
	}
	type moving struct {
		P95 *float64 `json:"frame_p95_ms"`
	}
	var m struct {
		Opens    *float64 `json:"tti_ms"`
		Memory   *float64 `json:"renderer_rss_mb"`
		Pan      moving   `json:"pan"`
		Zoom     moving   `json:"zoom"`
		Overview moving   `json:"overview"`
		Filter   *float64 `json:"filter_max_ms"`
		Sort     *float64 `json:"sort_max_ms"`
		Errors   []string `json:"errors"`
	}
	if err := json.Unmarshal(out, &m); err != nil {
		return nil, fmt.Errorf("web/bench/viewer.mjs printed no numbers: %w", err)
	}
	if len(m.Errors) > 0 {
		return nil, fmt.Errorf("the page of %s: %s", name, m.Errors[0])
	}
	var rows []row
	for _, f := range []struct {
		value                 *float64
		what, unit, aim, peer string
	}{
		{m.Opens, "page opens from disk", "ms", "1500 ms", "reference 3,200 ms through its server"},
		{m.Memory, "renderer memory", "MB", "290 MB", "reference 1,151 MB"},
		{m.Pan.P95, "pan, frame p95", "ms", "17 ms", ""},
		{m.Zoom.P95, "zoom, frame p95", "ms", "17 ms", "reference 18 ms"},
		{m.Overview.P95, "all rows at once, frame p95", "ms", "17 ms", ""},
		{m.Filter, "filter, slowest", "ms", "50 ms", "reference 223 ms"},
		{m.Sort, "sort, slowest", "ms", "50 ms", "reference 211 ms"},
	} {
		if f.value == nil {
			return nil, fmt.Errorf("web/bench/viewer.mjs did not measure: %s", f.what)
		}
		r := row{what: "page of " + name + ": " + f.what, measured: fmt.Sprintf("%.1f %s", *f.value, f.unit)}
		if large {
			r.aim, r.peer = f.aim, f.peer
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// cost is what one run of a program took.
type cost struct {
	wall time.Duration
	peak int64 // resident memory, bytes; of a mapped file the pages that are in memory count
}

func timed(name string, args ...string) (cost, error) {
	cmd := exec.Command(name, args...)
	began := time.Now()
	if _, err := cmd.Output(); err != nil {
		return cost{}, fmt.Errorf("%s %v: %w", filepath.Base(name), args, explain(err))
	}
	c := cost{wall: time.Since(began)}
	if use, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.peak = use.Maxrss << 10
	}
	return c, nil
}

// fastest runs a program n times and returns the run with the shortest wall time.
func fastest(n int, name string, args ...string) (cost, error) {
	var runs []cost
	for range n {
		c, err := timed(name, args...)
		if err != nil {
			return cost{}, err
		}
		runs = append(runs, c)
	}
	return slices.MinFunc(runs, func(a, b cost) int { return int(a.wall - b.wall) }), nil
}

// explain adds what the program said to an exit error.
func explain(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return err
}
