package planner

import (
	"math"
	"strconv"
)

// Settings are all settings under their newest names, so that they can be written down: [ParseNode] reads
// them back as the same Config, whatever the defaults are by then. Thresholds that are not set are left out.
func (c Config) Settings() map[string]any {
	out := map[string]any{
		"mode": string(c.Mode), "optimization_target": string(c.Target),
		"enable_throughput_scaling": c.EnableThroughput, "enable_load_scaling": c.EnableLoad,
		"throughput_adjustment_interval_seconds": c.ThroughputInterval, "load_adjustment_interval_seconds": c.LoadInterval,
		"ttft_ms": milliseconds(c.TTFT), "itl_ms": milliseconds(c.ITL),
		"max_gpu_budget": c.MaxGPUs, "min_gpu_budget": c.MinGPUs,
		"prefill_min_endpoint": c.MinPrefill, "decode_min_endpoint": c.MinDecode,
		"prefill_engine_num_gpu": c.PrefillGPUs, "decode_engine_num_gpu": c.DecodeGPUs,
		"max_num_fpm_samples": c.MaxSamples, "fpm_sample_bucket_size": c.Buckets,
		"load_min_observations": c.MinObservations, "load_scaling_down_sensitivity": c.Sensitivity, "cold_start_passes": c.ColdStartPasses,
	}
	for name, v := range map[string]*int64{"prefill_scale_up_queue_tokens": c.PrefillUpTokens, "prefill_scale_down_queue_tokens": c.PrefillDownTokens} {
		if v != nil {
			out[name] = *v
		}
	}
	for name, v := range map[string]*float64{"decode_scale_up_kv_rate": c.DecodeUpKV, "decode_scale_down_kv_rate": c.DecodeDownKV} {
		if v != nil {
			out[name] = *v
		}
	}
	return out
}

// milliseconds is the number that a file had, where there is one that a person would write.
func milliseconds(seconds float64) float64 {
	ms := seconds * 1000
	if v, err := strconv.ParseFloat(strconv.FormatFloat(ms, 'g', 12, 64), 64); err == nil && v/1000 == seconds {
		return v
	}
	for _, v := range [...]float64{ms, math.Nextafter(ms, 0), math.Nextafter(ms, math.Inf(1))} {
		if v/1000 == seconds {
			return v
		}
	}
	return ms
}
