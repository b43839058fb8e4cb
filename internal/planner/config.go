package planner

import (
	"errors"
	"fmt"
	"math"
)

// Mode is the topology that is advised on.
type Mode string

// Modes.
const (
	ModeDisagg  Mode = "disagg"  // a pool that prefills and one that decodes
	ModePrefill Mode = "prefill" // one of the two
	ModeDecode  Mode = "decode"
	ModeAgg     Mode = "agg" // engines that do both
)

// Target is what the advice aims at.
type Target string

// Targets.
const (
	TargetThroughput Target = "throughput" // static thresholds on queue and KV cache
	TargetLatency    Target = "latency"    // the same, earlier
	TargetLoad       Target = "load"       // thresholds of one's own
	TargetSLA        Target = "sla"        // the regressions against TTFT and ITL
)

// Config holds Dynamo's planner settings that its advice depends on, under their newest names.
type Config struct {
	Mode   Mode   // mode
	Target Target // optimization_target

	EnableThroughput bool // enable_throughput_scaling; only with TargetSLA
	EnableLoad       bool // enable_load_scaling; always on with the other targets

	ThroughputInterval float64 // throughput_adjustment_interval_seconds
	LoadInterval       float64 // load_adjustment_interval_seconds

	TTFT float64 // seconds (ttft_ms is in milliseconds)
	ITL  float64 // seconds (itl_ms is in milliseconds)

	MaxGPUs     int // max_gpu_budget; below 0 for no limit
	MinGPUs     int // min_gpu_budget; below 0 for none
	MinPrefill  int // prefill_min_endpoint, else min_endpoint
	MinDecode   int // decode_min_endpoint, else min_endpoint
	PrefillGPUs int // prefill_engine_num_gpu; 0 when not known
	DecodeGPUs  int // decode_engine_num_gpu; 0 when not known

	MaxSamples      int // max_num_fpm_samples
	Buckets         int // fpm_sample_bucket_size
	MinObservations int // load_min_observations
	Sensitivity     int // load_scaling_down_sensitivity, 0 (never down) to 100

	// Thresholds of TargetLoad; nil when not set.
	PrefillUpTokens, PrefillDownTokens *int64   // prefill_scale_{up,down}_queue_tokens
	DecodeUpKV, DecodeDownKV           *float64 // decode_scale_{up,down}_kv_rate, percent of max_kv_tokens

	// ColdStartPasses is ours: how many of an engine's first passes our own model leaves out. Dynamo's has
	// them all, and so has the advice that says what Dynamo would do.
	ColdStartPasses int // cold_start_passes
}

// Defaults are Dynamo's.
func Defaults() Config {
	return Config{
		Mode: ModeDisagg, Target: TargetThroughput, EnableThroughput: true,
		ThroughputInterval: 180, LoadInterval: 5, TTFT: 0.5, ITL: 0.05,
		MaxGPUs: 8, MinGPUs: -1, MinPrefill: 1, MinDecode: 1,
		MaxSamples: 64, Buckets: 16, MinObservations: 5, Sensitivity: 80, ColdStartPasses: 8,
	}
}

// SLO returns the promise.
func (c Config) SLO() SLO { return SLO{TTFT: c.TTFT, ITL: c.ITL} }

func (c Config) has(pool Component) bool {
	if pool == PrefillPool {
		return c.Mode == ModeDisagg || c.Mode == ModePrefill
	}
	return pool == DecodePool && c.Mode != ModePrefill
}

func (c Config) least(pool Component) int {
	if pool == PrefillPool {
		return c.MinPrefill
	}
	return c.MinDecode
}

// settle applies Dynamo's rule that only the sla target knows the throughput loop, and checks the rest as
// Dynamo does. The error names settings by their newest name.
func (c *Config) settle() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.Mode != ModeDisagg && c.Mode != ModePrefill && c.Mode != ModeDecode && c.Mode != ModeAgg,
		"mode is %q; use disagg, prefill, decode or agg", c.Mode)
	bad(c.Target != TargetThroughput && c.Target != TargetLatency && c.Target != TargetLoad && c.Target != TargetSLA,
		"optimization_target is %q; use throughput, latency, load or sla", c.Target)
	if c.Target != TargetSLA {
		c.EnableLoad, c.EnableThroughput = true, false
	}
	bad(!c.EnableLoad && !c.EnableThroughput, "enable_load_scaling and enable_throughput_scaling are both off; switch one on")
	bad(!(c.TTFT > 0 && c.TTFT <= 86400), "ttft_ms must be above 0 and at most a day")
	bad(!(c.ITL > 0 && c.ITL <= 86400), "itl_ms must be above 0 and at most a day")
	bad(!(c.LoadInterval > 0), "load_adjustment_interval_seconds must be above 0")
	bad(!(c.ThroughputInterval > 0), "throughput_adjustment_interval_seconds must be above 0")
	bad(c.EnableLoad && c.EnableThroughput && c.LoadInterval >= c.ThroughputInterval,
		"load_adjustment_interval_seconds (%g) must be shorter than throughput_adjustment_interval_seconds (%g)", c.LoadInterval, c.ThroughputInterval)
	bad(c.MinPrefill < 0 || c.MinDecode < 0, "min_endpoint must be 0 or more")
	bad(c.PrefillGPUs < 0 || c.DecodeGPUs < 0, "prefill_engine_num_gpu and decode_engine_num_gpu must be 0 or more")
	bad(c.MaxGPUs >= 0 && c.MinGPUs > c.MaxGPUs, "min_gpu_budget (%d) is above max_gpu_budget (%d)", c.MinGPUs, c.MaxGPUs)
	root := int(math.Sqrt(float64(max(c.Buckets, 0))))
	bad(c.Buckets < 1 || c.Buckets > maxBucketsLimit || root*root != c.Buckets,
		"fpm_sample_bucket_size is %d; use a square such as 4, 9 or 16, up to %d", c.Buckets, maxBucketsLimit)
	bad(c.MaxSamples < 1 || c.MaxSamples > maxSamplesLimit, "max_num_fpm_samples is %d; use 1 to %d", c.MaxSamples, maxSamplesLimit)
	bad(c.MinObservations < 1, "load_min_observations is %d; use 1 or more", c.MinObservations)
	bad(c.Sensitivity < 0 || c.Sensitivity > 100, "load_scaling_down_sensitivity is %d; use 0 (never down) to 100", c.Sensitivity)
	bad(c.ColdStartPasses < 0, "cold_start_passes is %d; use 0 or more", c.ColdStartPasses)
	if c.Target == TargetLoad {
		if c.has(PrefillPool) {
			up, down := c.PrefillUpTokens, c.PrefillDownTokens
			bad(up == nil || down == nil, "optimization_target load needs prefill_scale_up_queue_tokens and prefill_scale_down_queue_tokens")
			bad(up != nil && down != nil && (*down < 0 || *up <= *down), "prefill_scale_up_queue_tokens must be above prefill_scale_down_queue_tokens, and both 0 or more")
		}
		if c.has(DecodePool) {
			up, down := c.DecodeUpKV, c.DecodeDownKV
			bad(up == nil || down == nil, "optimization_target load needs decode_scale_up_kv_rate and decode_scale_down_kv_rate")
			bad(up != nil && down != nil && !(*down >= 0 && *up <= 100 && *up > *down), "decode_scale_up_kv_rate must be above decode_scale_down_kv_rate, and both from 0 to 100 percent")
		}
	}
	return errors.Join(errs...)
}
