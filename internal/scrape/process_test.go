package scrape

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// promtestValues reads the values of a series out of a promtest file.
func promtestValues(t *testing.T, text, series string) []float64 {
	t.Helper()
	for _, l := range strings.Split(text, "\n") {
		m := regexp.MustCompile(`^\s+(\S+)\{[^}]*\} (.*)$`).FindStringSubmatch(l)
		if m == nil || m[1] != series {
			continue
		}
		var out []float64
		for _, f := range strings.Fields(m[2]) {
			v, err := strconv.ParseFloat(f, 64)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, v)
		}
		return out
	}
	t.Fatalf("%s is not in the file", series)
	return nil
}

// Case M22: two processes by start time, and by the counter alone; a real restart is neither.
func TestProcesses(t *testing.T) {
	text := read(t, "testdata/cases/M22/data.promtest")
	starts := promtestValues(t, text, "process_start_time_seconds")
	tokens := promtestValues(t, text, "sglang:generation_tokens_total")
	repeat := func(v []float64, n int, grow float64) []float64 {
		var out []float64
		for i := range n {
			for _, x := range v {
				out = append(out, x+float64(i)*grow)
			}
		}
		return out
	}
	for _, tt := range []struct {
		name             string
		starts, counters []float64
		alternating      int
		restarts         int
	}{
		{"the case", starts, tokens, 2, -1},
		{"no start time", nil, []float64{100, 20, 130, 25, 160, 30, 190, 35}, 2, -1},
		{"no start time, idle replicas", nil, []float64{100, 20, 100, 20, 100, 20, 100}, 2, -1},
		{"three replicas", []float64{1, 2000, 5000, 1, 2000, 5000}, nil, 3, -1},
		{"one process", []float64{1000, 1000, 1000}, []float64{1, 2, 3}, 0, 0},
		{"jitter of the boot time", []float64{1000, 1001, 1000, 1001, 1000}, nil, 0, 0},
		{"a restart", []float64{1000, 1000, 2000, 2000, 2000}, []float64{100, 110, 5, 20, 30}, 0, 1},
		{"a restart without start time", nil, []float64{100, 110, 5, 20, 30, 200, 300}, 0, 1},
		{"a slow counter", nil, []float64{1, 1, 1, 2, 2, 2, 3}, 0, 0},
		{"a crash loop", nil, repeat([]float64{5, 50, 90, 120}, 4, 0), 0, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p processes
			var v verdict
			restarts := 0
			n := max(len(tt.starts), len(tt.counters))
			for i := range n {
				var vals [watched]float64
				var got [watched]bool
				if i < len(tt.starts) {
					vals[0], got[0] = tt.starts[i], true
				}
				if i < len(tt.counters) {
					vals[1], got[1] = tt.counters[i], true
				}
				v = p.observe(vals, got)
				if v.restarted {
					restarts++
				}
			}
			if v.alternating != tt.alternating {
				t.Errorf("alternating %d, want %d", v.alternating, tt.alternating)
			}
			if tt.restarts >= 0 && restarts != tt.restarts {
				t.Errorf("%d restarts, want %d", restarts, tt.restarts)
			}
		})
	}
}
