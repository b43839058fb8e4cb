package planner

import (
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// What is written down is read back as it was, and each setting that can be set is written.
func TestSettings(t *testing.T) {
	for _, text := range []string{
		"",
		"{mode: agg, optimization_target: sla, ttft_ms: 333, itl_ms: 7.1, enable_load_scaling: true, throughput_adjustment_interval_seconds: 61.5}",
		"{optimization_target: sla, enable_throughput_scaling: false, enable_load_scaling: true, max_gpu_budget: -1, min_endpoint: 3, decode_min_endpoint: 0}",
		"{optimization_target: load, prefill_scale_up_queue_tokens: 500, prefill_scale_down_queue_tokens: 0, decode_scale_up_kv_rate: 81.5, decode_scale_down_kv_rate: 20, prefill_engine_num_gpu: 4}",
		"{max_num_fpm_samples: 128, fpm_sample_bucket_size: 25, load_min_observations: 9, load_scaling_down_sensitivity: 0, cold_start_passes: 0, load_adjustment_interval_seconds: 2.5}",
	} {
		c, _, err := Parse("", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		b, err := yaml.Marshal(c.Settings())
		if err != nil {
			t.Fatal(err)
		}
		got, notes, err := Parse("", b)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s became\n%s\n%v", text, b, err)
		}
		for _, n := range notes {
			if !strings.Contains(n, "does not look at") {
				t.Error(n)
			}
		}
	}
	if n, fields := len(Defaults().Settings())+4, reflect.TypeFor[Config]().NumField(); n != fields {
		t.Errorf("%d settings are written, there are %d", n, fields)
	}
	for us := range 100_000 {
		s := float64(us+1) * 10 / 1e3 / 1000
		if milliseconds(s)/1000 != s {
			t.Fatalf("%v s", s)
		}
	}
}
