package signal

import (
	"strings"

	"github.com/rollscope/rollscope/internal/engine"
)

// rayPrefixes are what Ray's metrics agent and Ray Serve put before an engine's own names.
var rayPrefixes = []string{"ray_serve_", "ray_"}

// enginePrefixes are the families that are known under several spellings, in the engine's own one.
var enginePrefixes = []string{"sglang", "vllm"}

// Canonical gives the engine's own spelling of a metric or series name: sglang_x, ray_sglang_x and
// ray_serve_sglang_x become sglang:x; vllm_x, ray_vllm:x and ray_vllm_x become vllm:x. Every other
// name, the routers' sgl_router_* and smg_* included, is returned as it is.
// Names of SGLang's /v1/loads text must not be given to it: see [IsLoads].
func Canonical(name string) string {
	bare := name
	for _, p := range rayPrefixes {
		if strings.HasPrefix(bare, p) {
			bare = bare[len(p):]
			break
		}
	}
	for _, p := range enginePrefixes {
		if rest, ok := strings.CutPrefix(bare, p); ok && len(rest) > 1 && (rest[0] == ':' || rest[0] == '_') {
			return p + ":" + rest[1:]
		}
	}
	return name
}

// Spellings lists the names under which one series may stand in a store: the canonical one first,
// then what routers, OpenMetrics negotiation and Ray make of it.
func Spellings(name string) []string {
	c := Canonical(name)
	p, rest, ok := strings.Cut(c, ":")
	if !ok || (p != "sglang" && p != "vllm") {
		return []string{name}
	}
	return []string{c, p + "_" + rest, "ray_" + p + "_" + rest, "ray_" + c, "ray_serve_" + p + "_" + rest, "ray_serve_" + c}
}

// IsLoads tells whether the family names are those of SGLang's GET /v1/loads?format=prometheus. Some
// of its names differ from the engine's metrics only in the spelling (sglang_num_used_tokens) and mean
// something else, so such an exposition must be kept under the names it was written with.
func IsLoads(families []string) bool {
	for _, f := range families {
		switch {
		case f == "sglang_num_total_tokens", f == "sglang_max_running_requests",
			strings.HasPrefix(f, "sglang_memory_"), strings.HasPrefix(f, "sglang_queues_"), strings.HasPrefix(f, "sglang_disagg_"):
			return true
		}
	}
	return false
}

// backendPrefixes tells programs apart by the prefix of their (canonical) metric names. The order is
// the precedence within one exposition: a Dynamo worker passes its engine's metrics on beside its own.
var backendPrefixes = []struct {
	prefix  string
	backend engine.Backend
}{
	{"dynamo_frontend_", engine.DynamoFrontend},
	{"dynamo_component_", engine.DynamoWorker},
	{"dynamo_work_handler_", engine.DynamoWorker},
	{"sglang:", engine.SGLang},
	{"vllm:", engine.VLLM},
	{"smg_", engine.Router},
	{"sgl_router_", engine.Router},
	{"DCGM_FI_", engine.DCGM},
	{"dynamo_planner_", engine.Other},
	{"dynamo_", engine.DynamoWorker},
}

// Detect tells from the metric family names of one exposition, in any spelling, which program wrote
// it; false when it is none of those in the catalog. A router's /engine_metrics has the engine's
// names and is reported as that engine: only the label worker_addr on its samples tells it apart.
func Detect(families []string) (engine.Backend, bool) {
	if IsLoads(families) {
		return engine.SGLangLoads, true
	}
	best := len(backendPrefixes)
	for _, f := range families {
		c := Canonical(f)
		for i := 0; i < best; i++ {
			if strings.HasPrefix(c, backendPrefixes[i].prefix) {
				best = i
				break
			}
		}
	}
	if best == len(backendPrefixes) {
		return engine.Unknown, false
	}
	return backendPrefixes[best].backend, true
}

// histogramSuffixes are the parts in which a histogram or summary is stored.
var histogramSuffixes = []string{"_bucket", "_sum", "_count"}

// splitSuffix cuts _bucket, _sum or _count off a series name.
func splitSuffix(name string) (family, suffix string) {
	for _, s := range histogramSuffixes {
		if f, ok := strings.CutSuffix(name, s); ok {
			return f, s
		}
	}
	return name, ""
}
