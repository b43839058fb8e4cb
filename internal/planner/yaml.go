package planner

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ConfigError is what is wrong with settings and where.
type ConfigError struct {
	Path string // "" when not from a file
	Line int    // 1-based, 0 when not known
	Msg  string // what is wrong and what to do
}

// Error gives "path:line: message".
func (e *ConfigError) Error() string {
	where := e.Path
	if where == "" {
		where = "planner"
	}
	if e.Line > 0 {
		where += ":" + strconv.Itoa(e.Line)
	}
	return where + ": " + e.Msg
}

// oldNames maps names that Dynamo had, or has as an alias, to the newest.
var oldNames = map[string]string{
	"ttft":                               "ttft_ms",
	"itl":                                "itl_ms",
	"adjustment_interval":                "throughput_adjustment_interval_seconds",
	"throughput_adjustment_interval":     "throughput_adjustment_interval_seconds",
	"load_adjustment_interval":           "load_adjustment_interval_seconds",
	"loadbased_adjustment_interval":      "load_adjustment_interval_seconds",
	"enable_loadbased_scaling":           "enable_load_scaling",
	"load_learning_window":               "max_num_fpm_samples",
	"loadbased_learning_window":          "max_num_fpm_samples",
	"loadbased_min_observations":         "load_min_observations",
	"loadbased_scaling_down_sensitivity": "load_scaling_down_sensitivity",
	"decode_sacle_up_kv_rate":            "decode_scale_up_kv_rate", // as Dynamo once spelled it
}

// noBearing are Dynamo's settings that change nothing about the advice: where its planner runs, where it
// reads traffic, how it reports. They are accepted in silence, so that its own file can be used as it is.
var noBearing = map[string]bool{
	"environment": true, "namespace": true, "backend": true, "model_name": true, "served_model_name": true,
	"global_planner_namespace": true, "log_dir": true, "no_operation": true, "advisory": true, "scaling_mode": true,
	"advisory_log_interval": true, "pre_deployment_sweeping_mode": true, "aic_interpolation": true,
	"metric_pulling_prometheus_endpoint": true, "metric_pulling_prometheus_token": true,
	"metric_pulling_prometheus_ssl_verify": true, "metric_pulling_prometheus_extra_query_params": true,
	"metric_reporting_prometheus_port": true, "throughput_metrics_source": true, "report_interval_hours": true,
	"report_output_dir": true, "report_filename": true, "report_write_gzip_log": true, "live_dashboard_port": true,
	"scheduling": true, "load_metric_samples": true, "loadbased_metric_samples": true,
	"loadbased_router_metrics_url": true, "load_router_metrics_url": true,
}

// notUsed are settings that do change what Dynamo decides, in a part that is not rebuilt here.
var notUsed = map[string]string{
	"load_predictor":              "the demand is taken as it is given, as with the predictor \"constant\"",
	"load_predictor_log1p":        "there is no forecast here",
	"load_predictor_warmup_trace": "there is no forecast here",
	"prophet_window_size":         "there is no forecast here",
	"kalman_q_level":              "there is no forecast here",
	"kalman_q_trend":              "there is no forecast here",
	"kalman_r":                    "there is no forecast here",
	"kalman_min_points":           "there is no forecast here",
	"profile_results_dir":         "the models learn from live passes only",
	"speculative_nextn":           "tokens accepted from speculation are not discounted",
	"no_correction":               "correction factors are gone from Dynamo",
}

// Parse reads settings from YAML or JSON, as Dynamo's planner takes them; path is for messages. The notes say
// which settings go under a newer name now and which are not used, and are no errors.
func Parse(path string, text []byte) (Config, []string, error) {
	var n yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&n); err != nil && len(bytes.TrimSpace(text)) > 0 {
		return Config{}, nil, &ConfigError{Path: path, Msg: "this is not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	return ParseNode(path, &n)
}

// ParseNode reads settings from a tree, so that they can be a section of a larger file. A nil or empty node
// gives the defaults.
func ParseNode(path string, n *yaml.Node) (Config, []string, error) {
	r := reader{path: path, cfg: Defaults(), at: map[string]*yaml.Node{}}
	if n != nil && n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	for i := 0; n != nil && n.Kind == yaml.AliasNode && i < 10; i++ {
		n = n.Alias
	}
	if n == nil || n.Kind == 0 || n.Kind == yaml.DocumentNode || n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		err := r.cfg.settle()
		return r.cfg, nil, err
	}
	if n.Kind != yaml.MappingNode {
		r.fail(n, "the planner's settings must be a mapping such as \"mode: disagg\"")
		return Config{}, nil, errors.Join(r.errs...)
	}
	r.read(n)
	if len(r.errs) == 0 {
		if err := r.cfg.settle(); err != nil {
			r.errs = append(r.errs, &ConfigError{Path: path, Line: n.Line, Msg: strings.ReplaceAll(err.Error(), "\n", "; ")})
		}
	}
	if len(r.errs) > 0 {
		return Config{}, r.notes, errors.Join(r.errs...)
	}
	if r.cfg.Target != TargetSLA && (r.at["ttft_ms"] != nil || r.at["itl_ms"] != nil) {
		r.notes = append(r.notes, (&ConfigError{Path: path, Line: n.Line, Msg: fmt.Sprintf(
			"optimization_target %s does not look at ttft_ms and itl_ms; they still serve the capacity", r.cfg.Target)}).Error())
	}
	return r.cfg, r.notes, nil
}

type reader struct {
	path  string
	cfg   Config
	at    map[string]*yaml.Node // keys that were set, by their newest name
	notes []string
	errs  []error
}

func (r *reader) fail(n *yaml.Node, format string, args ...any) {
	if len(r.errs) < 20 {
		r.errs = append(r.errs, &ConfigError{Path: r.path, Line: n.Line, Msg: fmt.Sprintf(format, args...)})
	}
}

func (r *reader) note(n *yaml.Node, format string, args ...any) {
	if len(r.notes) < 100 {
		r.notes = append(r.notes, (&ConfigError{Path: r.path, Line: n.Line, Msg: fmt.Sprintf(format, args...)}).Error())
	}
}

func (r *reader) read(n *yaml.Node) {
	least, prefill, decode := 1, -1, -1
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		for hops := 0; v.Kind == yaml.AliasNode && hops < 10; hops++ {
			v = v.Alias
		}
		given := k.Value
		name := strings.ReplaceAll(strings.TrimLeft(given, "-"), "-", "_") // flags had dashes
		if newest, ok := oldNames[name]; ok {
			name = newest
		}
		if other := r.at[name]; other != nil {
			r.fail(k, "%q and %q set the same; keep %s", other.Value, given, name)
			continue
		}
		r.at[name] = k
		if name != given {
			r.note(k, "%s is called %s now", given, name)
		}
		null := v.Kind == yaml.ScalarNode && v.Tag == "!!null"
		switch name {
		case "mode":
			r.cfg.Mode = Mode(r.text(v, name))
		case "optimization_target":
			r.cfg.Target = Target(r.text(v, name))
		case "enable_throughput_scaling":
			r.cfg.EnableThroughput = r.bool(v, name)
		case "enable_load_scaling":
			r.cfg.EnableLoad = r.bool(v, name)
		case "throughput_adjustment_interval_seconds":
			r.cfg.ThroughputInterval = r.float(v, name)
		case "load_adjustment_interval_seconds":
			r.cfg.LoadInterval = r.float(v, name)
		case "ttft_ms":
			r.cfg.TTFT = r.float(v, name) / 1000
			r.inSeconds(k, given, r.cfg.TTFT)
		case "itl_ms":
			r.cfg.ITL = r.float(v, name) / 1000
			r.inSeconds(k, given, r.cfg.ITL)
		case "max_gpu_budget":
			r.cfg.MaxGPUs = r.int(v, name)
		case "min_gpu_budget":
			r.cfg.MinGPUs = r.int(v, name)
		case "min_endpoint":
			least = r.int(v, name)
		case "prefill_min_endpoint":
			if !null {
				prefill = max(0, r.int(v, name))
			}
		case "decode_min_endpoint":
			if !null {
				decode = max(0, r.int(v, name))
			}
		case "prefill_engine_num_gpu":
			if !null {
				r.cfg.PrefillGPUs = r.int(v, name)
			}
		case "decode_engine_num_gpu":
			if !null {
				r.cfg.DecodeGPUs = r.int(v, name)
			}
		case "max_num_fpm_samples":
			r.cfg.MaxSamples = r.int(v, name)
		case "fpm_sample_bucket_size":
			r.cfg.Buckets = r.int(v, name)
		case "load_min_observations":
			r.cfg.MinObservations = r.int(v, name)
		case "load_scaling_down_sensitivity":
			r.cfg.Sensitivity = r.int(v, name)
		case "prefill_scale_up_queue_tokens":
			r.cfg.PrefillUpTokens = r.tokens(v, name, null)
		case "prefill_scale_down_queue_tokens":
			r.cfg.PrefillDownTokens = r.tokens(v, name, null)
		case "decode_scale_up_kv_rate":
			r.cfg.DecodeUpKV = r.percent(v, name, null)
		case "decode_scale_down_kv_rate":
			r.cfg.DecodeDownKV = r.percent(v, name, null)
		case "cold_start_passes":
			r.cfg.ColdStartPasses = r.int(v, name)
		default:
			why, known := notUsed[name]
			switch {
			case noBearing[name]:
			case known:
				r.note(k, "%s is not used: %s", given, why)
			default:
				r.note(k, "%s is not a setting that is known here; it is not used", given)
			}
		}
	}
	r.cfg.MinPrefill, r.cfg.MinDecode = least, least
	if prefill >= 0 {
		r.cfg.MinPrefill = prefill
	}
	if decode >= 0 {
		r.cfg.MinDecode = decode
	}
}

// inSeconds warns of a promise that was surely meant in seconds: the flags of 2025 took them so.
func (r *reader) inSeconds(k *yaml.Node, given string, seconds float64) {
	if seconds > 0 && seconds < 0.001 {
		r.note(k, "%s is in milliseconds: this says %g ms", given, seconds*1000)
	}
}

func (r *reader) text(v *yaml.Node, name string) string {
	if v.Kind != yaml.ScalarNode || v.Tag == "!!null" {
		r.fail(v, "%s must be a text", name)
		return ""
	}
	return strings.ToLower(strings.TrimSpace(v.Value))
}

func (r *reader) bool(v *yaml.Node, name string) bool {
	b, err := strconv.ParseBool(strings.ToLower(v.Value))
	if v.Kind != yaml.ScalarNode || err != nil {
		r.fail(v, "%s must be true or false", name)
	}
	return b
}

func (r *reader) int(v *yaml.Node, name string) int {
	n, err := strconv.ParseInt(v.Value, 10, 32)
	if v.Kind != yaml.ScalarNode || err != nil {
		r.fail(v, "%s must be a whole number, not %q", name, v.Value)
	}
	return int(n)
}

func (r *reader) float(v *yaml.Node, name string) float64 {
	f, err := strconv.ParseFloat(v.Value, 64)
	if v.Kind != yaml.ScalarNode || err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		r.fail(v, "%s must be a number, not %q", name, v.Value)
		return 0
	}
	return f
}

func (r *reader) tokens(v *yaml.Node, name string, null bool) *int64 {
	if null {
		return nil
	}
	n, err := strconv.ParseInt(v.Value, 10, 48)
	if v.Kind != yaml.ScalarNode || err != nil || n < 0 {
		r.fail(v, "%s must be a number of tokens from 0, not %q", name, v.Value)
	}
	return &n
}

func (r *reader) percent(v *yaml.Node, name string, null bool) *float64 {
	if null {
		return nil
	}
	f := r.float(v, name)
	if f < 0 || f > 100 {
		r.fail(v, "%s must be a percentage from 0 to 100, not %q", name, v.Value)
	}
	return &f
}
