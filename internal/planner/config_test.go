package planner

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestConfigOldAndNewNames(t *testing.T) {
	want := Config{
		Mode: ModeDisagg, Target: TargetSLA, EnableThroughput: true, EnableLoad: true,
		ThroughputInterval: 120, LoadInterval: 10, TTFT: 0.3, ITL: 0.025, MaxGPUs: 32, MinGPUs: 4, MinPrefill: 2, MinDecode: 3,
		PrefillGPUs: 2, DecodeGPUs: 4, MaxSamples: 128, Buckets: 25, MinObservations: 8, Sensitivity: 70, ColdStartPasses: 8,
	}
	for file, notes := range map[string]int{"new": 0, "old": 10} {
		path := "testdata/config/" + file + ".yaml"
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, said, err := Parse(path, text)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s gives\n%+v, want\n%+v", file, got, want)
		}
		if len(said) != notes {
			t.Errorf("%s: %d notes, want %d: %q", file, len(said), notes, said)
		}
		if _, err := New(got, nil); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestConfigParts(t *testing.T) {
	for _, c := range []struct {
		name, text string
		check      func(Config) bool
		note       string // a part of a note
	}{
		{"nothing", "", func(c Config) bool { return c.TTFT == 0.5 && c.ITL == 0.05 && !c.EnableThroughput && c.EnableLoad }, ""},
		{"null", "null", func(c Config) bool { return c.Target == TargetThroughput }, ""},
		{"JSON", `{"mode": "agg", "optimization_target": "sla", "itl": 20}`, func(c Config) bool { return c.Mode == ModeAgg && c.ITL == 0.02 && c.EnableThroughput }, "planner:1: itl is called itl_ms now"},
		{"misspelled by Dynamo", "optimization_target: load\nmode: decode\ndecode_sacle_up_kv_rate: 90\ndecode_scale_down_kv_rate: 70", func(c Config) bool { return *c.DecodeUpKV == 90 }, "planner:3"},
		{"not known", "hyperdrive: 9", func(c Config) bool { return true }, "not a setting that is known"},
		{"not used", "load_predictor: prophet", func(c Config) bool { return true }, "load_predictor is not used"},
		{"seconds by mistake", "ttft_ms: 0.5", func(c Config) bool { return c.TTFT == 0.0005 }, "is in milliseconds"},
		{"targets that do not look", "ttft_ms: 100", func(c Config) bool { return c.TTFT == 0.1 }, "does not look at"},
		{"null where Dynamo has it", "prefill_engine_num_gpu: null\nprefill_scale_up_queue_tokens: null\nmode: agg", func(c Config) bool { return c.PrefillGPUs == 0 }, ""},
		{"an alias", "a: &x 12\nmax_gpu_budget: *x", func(c Config) bool { return c.MaxGPUs == 12 }, ""},
		{"no limit", "max_gpu_budget: -1", func(c Config) bool { return c.MaxGPUs == -1 }, ""},
	} {
		got, notes, err := Parse("", []byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !c.check(got) || !strings.Contains(strings.Join(notes, "\n"), c.note) {
			t.Errorf("%s gives %+v, notes %q", c.name, got, notes)
		}
	}
	var n yaml.Node
	if err := yaml.Unmarshal([]byte("a: 1\nplanner:\n  mode: nonsense\n"), &n); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ParseNode("x.yaml", n.Content[0].Content[3]); err == nil || !strings.HasPrefix(err.Error(), "x.yaml:3: mode is") {
		t.Errorf("a section of a larger file: %v", err)
	}
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"- a", "must be a mapping"},
		{"a: [", "not YAML"},
		{"mode: sideways", "mode is \"sideways\""},
		{"optimization_target: speed", "optimization_target is \"speed\""},
		{"ttft_ms: 1\nttft: 2", `planner:2: "ttft_ms" and "ttft" set the same; keep ttft_ms`},
		{"mode: agg\nmode: agg", "set the same"},
		{"ttft_ms: fast", "ttft_ms must be a number"},
		{"ttft_ms: 0", "ttft_ms must be above 0"},
		{"itl_ms: .nan", "itl_ms must be a number"},
		{"itl_ms: [1]", "itl_ms must be a number"},
		{"max_gpu_budget: 2.5", "max_gpu_budget must be a whole number"},
		{"max_gpu_budget: 99999999999", "max_gpu_budget must be a whole number"},
		{"max_gpu_budget: 4\nmin_gpu_budget: 5", "min_gpu_budget (5) is above"},
		{"fpm_sample_bucket_size: 10", "use a square"},
		{"max_num_fpm_samples: 0", "max_num_fpm_samples is 0"},
		{"load_min_observations: 0", "load_min_observations is 0"},
		{"load_scaling_down_sensitivity: 101", "load_scaling_down_sensitivity is 101"},
		{"cold_start_passes: -1", "cold_start_passes is -1"},
		{"min_endpoint: -1", "min_endpoint must be 0"},
		{"enable_load_scaling: perhaps", "must be true or false"},
		{"optimization_target: sla\nenable_throughput_scaling: false\nenable_load_scaling: false", "both off"},
		{"optimization_target: sla\nenable_load_scaling: true\nload_adjustment_interval: 180", "must be shorter"},
		{"optimization_target: load", "needs prefill_scale_up_queue_tokens"},
		{"optimization_target: load\nmode: agg", "needs decode_scale_up_kv_rate"},
		{"optimization_target: load\nmode: prefill\nprefill_scale_up_queue_tokens: 5\nprefill_scale_down_queue_tokens: 5", "must be above"},
		{"optimization_target: load\nmode: decode\ndecode_scale_up_kv_rate: 101\ndecode_scale_down_kv_rate: 5", "percentage from 0 to 100"},
		{"prefill_scale_up_queue_tokens: -4", "number of tokens"},
	} {
		_, _, err := Parse("", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q gives %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := New(Config{}, nil); err == nil {
		t.Error("an empty Config makes a planner")
	}
}
