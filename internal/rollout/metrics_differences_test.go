package rollout

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/torchfile"
)

// allFixtures are the dumps of this package and of the reader of torch files.
func allFixtures(t testing.TB) []string {
	t.Helper()
	seen := map[string]bool{}
	var out []string
	for _, dir := range []string{"testdata/dumps", "../../torchfile/testdata/dumps"} {
		names, err := filepath.Glob(dir + "/*.pt")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range names {
			if name := filepath.Base(path); !seen[name] {
				seen[name] = true
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	if len(out) < 50 {
		t.Fatalf("%d fixtures, expected at least 50", len(out))
	}
	return out
}

func metricText(m *Metric) string {
	switch {
	case m == nil:
		return "-"
	case m.State == MetricUnknown, m.State == MetricIdle:
		return m.State.String()
	}
	s := strconv.FormatFloat(m.Value, 'g', -1, 64)
	if m.State == MetricPartial {
		s += " (partial)"
	}
	if m.Derived {
		s += " (derived)"
	}
	return s
}

// byHowMuch is the difference of two values in percent of the first.
func byHowMuch(a, b *Metric) string {
	if a == nil || b == nil || a.State > MetricPartial || b.State > MetricPartial || a.Value == b.Value {
		return "-"
	}
	if a.Value == 0 {
		return "from 0"
	}
	return fmt.Sprintf("%+.3g%%", 100*(b.Value-a.Value)/a.Value)
}

func TestDifferencesGolden(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Every metric on which the views differ, on every fixture: slime's value, ours of all traces and of this step,\n")
	b.WriteString("# the change from slime's to ours and from ours to the step's, and why. Made by go test -update.\n")
	b.WriteString("fixture\tkey\tcompat\tperf\tperf_step\tperf-compat\tstep-perf\twhy\n")
	used := map[Why]int{}
	for _, name := range allFixtures(t) {
		opts := goldenOptions
		kind, _ := FromName(name)
		opts.Eval = kind == Eval || strings.Contains(name, "_eval_")
		f := openable(t, name)
		if f == "" {
			continue
		}
		r := measureDump(t, f, opts).Result()
		for _, d := range r.Differences() {
			var why []string
			for _, w := range d.Why {
				if !slices.Contains(Whys(), w) {
					t.Errorf("%s: %s: %s (compat %s, perf %s, perf_step %s)", name, d.Key, w, metricText(d.Compat), metricText(d.Perf), metricText(d.PerfStep))
				}
				used[w]++
				why = append(why, string(w))
			}
			fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, d.Key, metricText(d.Compat), metricText(d.Perf), metricText(d.PerfStep),
				byHowMuch(d.Compat, d.Perf), byHowMuch(d.Perf, d.PerfStep), strings.Join(why, "; "))
		}
	}
	for _, w := range []Why{WhyOurs, WhySlimeFails, WhyChildSpans, WhyOldName, WhyStreaming, WhyInvalid, WhyEarlier, WhyDefinition} {
		if used[w] == 0 {
			t.Errorf("no fixture shows: %s", w)
		}
	}
	compareGolden(t, "testdata/metrics/differences.golden", b.String())
}

// openable is the path of a fixture that is a torch file or pickle, "" for others.
func openable(t testing.TB, name string) string {
	if strings.Contains(name, "html") {
		return ""
	}
	return dumpPath(t, name)
}

func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
		for i := range g {
			if i >= len(w) || g[i] != w[i] {
				t.Fatalf("%s differs in line %d (run with -update and look at the difference):\n%s", path, i+1, g[i])
			}
		}
		t.Fatalf("%s has lines that are no more", path)
	}
}

func whyOf(r *MetricsResult, key string) []Why {
	for _, d := range r.Differences() {
		if d.Key == key {
			return d.Why
		}
	}
	return nil
}

func TestWhyViewsDiffer(t *testing.T) {
	attrs := func(e2e any) map[string]any { return map[string]any{"e2e_latency": e2e} }
	f := func() map[string]any {
		return sampleOf(map[string]any{"trace": traceOf("t", "sglang_generate", 1.0, 2.0, attrs(1.0))})
	}
	e2e := "perf/request/e2e_latency/mean"
	for _, c := range []struct {
		name    string
		samples []map[string]any
		opts    MetricOptions
		key     string
		want    []Why
	}{
		{"nothing", []map[string]any{f()}, goldenOptions, e2e, nil},
		{"a derived time", []map[string]any{f()}, MetricOptions{GPUs: 1}, "perf/longest_sample_tokens_per_sec", []Why{WhyTime}},
		{"a span of the agent's own", []map[string]any{f(), sampleOf(map[string]any{"trace": traceOf("u", "my_generate", 1.0, 2.0, attrs(2.0))})},
			goldenOptions, e2e, []Why{WhyOtherSpan}},
		{"a stream and a negative value", []map[string]any{f(), sampleOf(map[string]any{"trace": traceOf("u", "sglang_generate_stream", 1.0, 2.0, attrs(2.0), "sglang_generate", 3.0, 4.0, attrs(-1.0))})},
			goldenOptions, e2e, []Why{WhyStreaming, WhyInvalid}},
		{"a time that is no number", []map[string]any{f(), sampleOf(map[string]any{"trace": traceOf("u", "sglang_generate", 1.0, 2.0, attrs(torchfile.TensorData{DType: torchfile.Float32, Shape: []int64{1}, Data: make([]byte, 4)}))})},
			goldenOptions, e2e, []Why{WhyOddType}},
		{"a reward that is missing", []map[string]any{sampleOf(map[string]any{"reward": nil})}, goldenOptions, "rollout/response_len/mean", []Why{WhySlimeFails}},
		{"a group that is not full", []map[string]any{f()}, MetricOptions{RolloutTime: 600, GPUs: 8, LogPassrate: true, NSamplesPerPrompt: 2}, "passrate/pass@1", []Why{WhySlimeFails}},
	} {
		r := metricsOf(t, dumpOf(t, 1, c.samples...), c.opts).Result()
		if got := whyOf(r, c.key); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, expected %v", c.name, got, c.want)
		}
	}
}
