package signal

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/engine"
)

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		"sglang:num_running_reqs":                "sglang:num_running_reqs",
		"sglang_num_running_reqs":                "sglang:num_running_reqs",
		"ray_sglang_num_running_reqs":            "sglang:num_running_reqs",
		"ray_serve_sglang_num_running_reqs":      "sglang:num_running_reqs",
		"ray_sglang:num_running_reqs":            "sglang:num_running_reqs",
		"vllm_num_requests_running":              "vllm:num_requests_running",
		"ray_vllm:num_requests_running":          "vllm:num_requests_running",
		"ray_vllm_num_requests_running":          "vllm:num_requests_running",
		"sgl_router_requests_total":              "sgl_router_requests_total",
		"smg_http_requests_total":                "smg_http_requests_total",
		"ray_tasks":                              "ray_tasks",
		"dynamo_frontend_requests_total":         "dynamo_frontend_requests_total",
		"sglang":                                 "sglang",
		"sglang_":                                "sglang_",
		"sglangx_y":                              "sglangx_y",
		"up":                                     "up",
		"sglang_time_to_first_token_seconds_sum": "sglang:time_to_first_token_seconds_sum",
	} {
		if got := Canonical(in); got != want {
			t.Errorf("Canonical(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestSpellingsAreOneSeries(t *testing.T) {
	for _, name := range []string{"sglang_x", "ray_serve_vllm_y_bucket", "vllm:z"} {
		all := Spellings(name)
		if all[0] != Canonical(name) || !slices.Contains(all, name) {
			t.Errorf("Spellings(%q) = %q", name, all)
		}
		for _, s := range all {
			if Canonical(s) != all[0] {
				t.Errorf("Spellings(%q) has %q, which is not one of its spellings", name, s)
			}
		}
	}
	if got := Spellings("dynamo_frontend_x"); !slices.Equal(got, []string{"dynamo_frontend_x"}) {
		t.Errorf("Spellings of a name with one spelling: %q", got)
	}
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		families string
		want     engine.Backend
	}{
		{"python_info sglang:num_running_reqs", engine.SGLang},
		{"sglang_num_running_reqs sglang_token_usage", engine.SGLang},
		{"ray_vllm_num_requests_running", engine.VLLM},
		{"sglang:num_running_reqs dynamo_component_uptime_seconds", engine.DynamoWorker},
		{"dynamo_frontend_requests_total dynamo_component_router_requests_total", engine.DynamoFrontend},
		{"smg_http_requests_total", engine.Router},
		{"sgl_router_requests_total", engine.Router},
		{"DCGM_FI_DEV_GPU_UTIL", engine.DCGM},
		{"sglang_num_running_reqs sglang_num_total_tokens sglang_memory_weight_gb", engine.SGLangLoads},
		{"go_goroutines", engine.Unknown},
		{"", engine.Unknown},
	} {
		got, ok := Detect(strings.Fields(c.families))
		if got != c.want || ok != (c.want != engine.Unknown) {
			t.Errorf("Detect(%q) = %q %v, want %q", c.families, got, ok, c.want)
		}
	}
}

// TestCapturesAreKnown looks up every family of the recorded expositions: what real engines wrote is in the
// catalog, but for names that never shipped or came from forks.
func TestCapturesAreKnown(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "shared", "fixtures", "captures")
	files, err := filepath.Glob(filepath.Join(dir, "*", "metrics*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	more, _ := filepath.Glob(filepath.Join(dir, "*", "metrics*.prom"))
	if files = append(files, more...); len(files) == 0 {
		t.Skip("the recorded expositions are not beside this checkout")
	}
	c := Default()
	sample := regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)[{ ]`)
	n := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var families []string
		for line := range strings.Lines(string(text)) {
			if m := sample.FindStringSubmatch(line); m != nil {
				families = append(families, m[1])
			}
		}
		slices.Sort(families)
		for _, name := range slices.Compact(families) {
			if !strings.Contains(name, "sglang") && !strings.HasPrefix(name, "dynamo_") {
				continue
			}
			n++
			if _, ok := c.Metric(name); !ok {
				t.Errorf("%s: %s is in no table", filepath.Base(f), name)
			}
		}
		if strings.Contains(f, "v1_loads") != IsLoads(families) {
			t.Errorf("%s: IsLoads is %v", filepath.Base(f), IsLoads(families))
		}
	}
	t.Logf("%d names in %d files", n, len(files))
}

func TestResolve(t *testing.T) {
	c := Default()
	for _, want := range []struct {
		name, use, also string
		same            bool
		says            string
	}{
		// The names that the seeds of community boards use.
		{"sglang_e2e_first_token_latency_seconds_bucket", "sglang:time_to_first_token_seconds_bucket", "", true, "the same measurement is sglang:time_to_first_token_seconds_bucket"},
		{"sglang:num_input_tokens_total", "sglang:prompt_tokens_total", "", true, ""},
		{"sglang:num_output_tokens_total", "sglang:generation_tokens_total", "", true, ""},
		{"sglang:scheduler_idle_time", "scheduler_idle_share", "", false, "engine:scheduler_idle_share:ratio5m"},
		{"sglang:prefill_tokens_per_iter", "prefill_throughput", "", false, ""},
		{"sglang:decode_batch_size", "running", "", false, ""},
		{"sglang:spec_avg_accepted_tokens", "spec_accept_length", "", false, ""},
		{"sglang:moe_expert_load", "sglang:eplb_gpu_physical_count", "", false, ""},
		{"sglang:moe_imbalance_ratio", "moe_balance", "", false, ""},
		{"sglang:moe_alltoall_latency_ms", "sglang:forward_execution_seconds_total", "", false, ""},
		// Renames, on either side.
		{"sglang:num_aborted_requests", "sglang:num_aborted_requests_total", "", true, ""},
		{"sglang_num_prefill_prealloc_queue_reqs", "sglang:num_prefill_bootstrap_queue_reqs", "", true, "until 2026-05-04"},
		{"sglang:num_prefill_bootstrap_queue_reqs", "pd_bootstrap_queue", "sglang:num_prefill_prealloc_queue_reqs", false, "since 2026-05-04"},
		{"sglang:time_per_output_token_seconds_count", "sglang:inter_token_latency_seconds_count", "", false, "until 0.4.4.post3"},
		{"vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc", "", true, ""},
		{"vllm_kv_cache_usage_perc", "kv_usage", "vllm:gpu_cache_usage_perc", false, ""},
		{"vllm:time_per_output_token_seconds_bucket", "vllm:inter_token_latency_seconds_bucket", "vllm:request_time_per_output_token_seconds_bucket", true, ""},
		{"vllm:prompt_tokens", "vllm:prompt_tokens_total", "", true, "is called vllm:prompt_tokens_total"},
		{"dynamo_planner_num_prefill_workers", "dynamo_planner_num_prefill_replicas", "", true, ""},
		// Of another type now.
		{"sglang:kv_transfer_speed_gb_s", "kv_transfer_speed", "", false, "gauge before 0.5.10"},
		{"sglang:uncached_prompt_tokens_histogram", "sglang:uncached_prompt_tokens_histogram_bucket", "", false, "ask for _bucket"},
		{"sglang:cache_hit_rate", "cache_hit_rate", "", false, ""},
		{"sglang_disagg_prefill_prealloc_queue_reqs", "sglang_disagg_prefill_bootstrap_queue_reqs", "", true, "until 2026-05"},
		{"engine:ttft:p99_rate5m", "", "", false, "record it from the signal ttft"},
	} {
		got := c.Resolve(want.name)
		if got.Use != want.use || got.Same != want.same || !strings.Contains(got.Message, want.says) {
			t.Errorf("Resolve(%q) = %+v", want.name, got)
		}
		if want.also != "" && !slices.Contains(got.Also, want.also) {
			t.Errorf("Resolve(%q).Also = %q, want %q in it", want.name, got.Also, want.also)
		}
	}
	got := c.Resolve("sglang:num_runing_reqs")
	if got.Use != "" || len(got.DidYouMean) == 0 || got.DidYouMean[0] != "sglang:num_running_reqs" {
		t.Errorf("a typing error: %+v", got)
	}
	if got = c.Resolve("completely_different_thing"); len(got.DidYouMean) != 0 {
		t.Errorf("nothing near: %+v", got)
	}
}
