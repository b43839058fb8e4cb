package rollout

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/torchfile"
)

const slimeDir = "testdata/metrics/slime"

// dumpPath finds a fixture, here or beside the reader of torch files.
func dumpPath(t testing.TB, name string) string {
	t.Helper()
	if strings.HasPrefix(name, "f22 ") {
		name = "f22_odd_name.pt"
	}
	for _, dir := range []string{"testdata/dumps", "../../torchfile/testdata/dumps"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatalf("no fixture %s", name)
	return ""
}

// measureDump computes the metrics of a dump as a command would.
func measureDump(t testing.TB, path string, opts MetricOptions) *Metrics {
	t.Helper()
	f, err := torchfile.Open(path, &torchfile.Options{Salvage: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := Measure(f, opts)
	if err != nil && f.Incomplete() == nil && !errors.Is(err, ErrShape) {
		t.Logf("%s: %v", path, err)
	}
	return m
}

// slimeGolden is what slime computed of a fixture.
type slimeGolden struct {
	File       string
	Samples    int
	Loader     string
	LoadError  string             `json:"load_error"`
	Request    map[string]float64 `json:"sglang_request_perf"`
	Perf       map[string]float64
	Rollout    map[string]float64
	RequestErr string `json:"sglang_request_perf_error"`
	PerfErr    string `json:"perf_error"`
	RolloutErr string `json:"rollout_error"`
}

func readSlime(t testing.TB) []slimeGolden {
	t.Helper()
	names, _ := filepath.Glob(slimeDir + "/*.metrics.json")
	if len(names) < 25 {
		t.Fatalf("%d golden files of slime, expected at least 25", len(names))
	}
	var out []slimeGolden
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var g slimeGolden
		if err := json.Unmarshal(b, &g); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out = append(out, g)
	}
	return out
}

var goldenOptions = MetricOptions{GPUs: 8, RolloutTime: 600}

func TestCompatEqualsSlime(t *testing.T) {
	compared := 0
	for _, g := range readSlime(t) {
		t.Run(g.File, func(t *testing.T) {
			m := measureDump(t, dumpPath(t, g.File), goldenOptions)
			r := m.Result()
			if g.Loader == "" {
				return // neither slime nor the fallback loads it: nothing to compare
			}
			if m.hdr.Shape != ShapeTrain && r.Samples != g.Samples {
				t.Errorf("%d samples, slime has %d", r.Samples, g.Samples)
			}
			got := map[string]float64{}
			for _, x := range r.Compat {
				if _, twice := got[x.Key]; twice {
					t.Errorf("%s comes twice", x.Key)
				}
				if x.State != MetricValue {
					t.Errorf("%s is %v: %s", x.Key, x.State, x.Note)
				}
				got[x.Key] = x.Value
			}
			for _, part := range []struct {
				prefix string
				want   map[string]float64
			}{{"rollout/", g.Rollout}, {"perf/", g.Perf}} {
				for k, want := range part.want {
					compared++
					v, ok := got[part.prefix+k]
					if !ok || !sameBits(v, want) {
						t.Errorf("%s%s = %v (%v), slime has %v", part.prefix, k, v, ok, want)
					}
					delete(got, part.prefix+k)
				}
			}
			for k, v := range got {
				t.Errorf("%s = %v, slime has no such key", k, v)
			}
			// What slime computes of the requests alone is part of perf.
			for k, want := range g.Request {
				if x, ok := Find(r.Compat, "perf/"+k); !ok || !sameBits(x.Value, want) {
					t.Errorf("%s = %v, slime has %v", k, x.Value, want)
				}
			}
			failures := map[string]string{}
			for _, f := range r.CompatFailed {
				failures[f.Part] = f.Error
			}
			for part, want := range map[string]string{"loader": g.LoadError, "rollout": g.RolloutErr, "perf": g.PerfErr} {
				if failures[part] != want {
					t.Errorf("%s fails with %q, slime with %q", part, failures[part], want)
				}
			}
		})
	}
	if compared < 500 {
		t.Errorf("only %d values were compared", compared)
	}
}
