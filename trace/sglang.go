package trace

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// ChildrenKey is the attribute under which [Span.Update] finds children.
const ChildrenKey = "_trace_children"

// Child is a span or an event below a span, known only afterwards. Start and End are in seconds since
// the parent's start.
type Child struct {
	Event      bool
	Name       string
	Start, End float64
	Attrs      Attrs // of the span's end, or of the event
	Children   []Child
}

// SGLangAttrs returns the end attributes of a generation span out of SGLang's meta_info, as decoded
// from JSON, for [Span.Update]. With prefill-decode disaggregation the phases become children, as
// FORMAT.md says; parts that are missing, not positive or not finite are left out.
func SGLangAttrs(meta map[string]any) []Attr {
	var out []Attr
	take := func(to *[]Attr, keys ...string) {
		for _, k := range keys {
			v := meta[k]
			if v == nil {
				continue
			}
			// encoding/json makes counts floats; in a carrier they are integers.
			if f, ok := v.(float64); ok && f == float64(int64(f)) && (strings.HasSuffix(k, "_tokens") || strings.HasSuffix(k, "_count")) {
				v = int64(f)
			}
			*to = append(*to, Attr{k, v})
		}
	}
	take(&out, "prompt_tokens", "completion_tokens", "cached_tokens", "queue_time", "e2e_latency", "decode_throughput")
	reason := meta["finish_reason"]
	if m, ok := reason.(map[string]any); ok && m["type"] != nil {
		reason = m["type"]
	}
	if reason != nil {
		out = append(out, Attr{"finish_reason", reason})
	}
	if v := meta["id"]; v != nil {
		out = append(out, Attr{"sglang_request_id", v})
	}

	var children []Child
	at := 0.0
	for _, phase := range []struct {
		name  string
		parts []string
	}{
		{"prefill", []string{"bootstrap_queue", "bootstrap", "alloc_wait", "forward", "transfer_queue"}},
		{"decode", []string{"prealloc", "bootstrap", "alloc_wait", "transfer", "forward"}},
	} {
		var inside []Child
		length := 0.0
		for _, part := range phase.parts {
			key := "pd_" + phase.name + "_" + part + "_duration"
			v := meta[key]
			if v == nil {
				v = meta[oldName(key)]
			}
			d := number(v)
			if !(d > 0) || math.IsInf(d, 0) {
				continue
			}
			inside = append(inside, Child{Name: "sglang_pd_" + phase.name + "_" + part, Start: length, End: length + d, Attrs: Attrs{{key, v}}})
			length += d
		}
		if len(inside) > 0 {
			children = append(children, Child{
				Name: "sglang_pd_" + phase.name, Start: at, End: at + length,
				Attrs: Attrs{{"phase", phase.name}, {"duration_s", length}}, Children: inside,
			})
			at += length
		}
	}
	var summary []Attr
	take(&summary, "pd_transfer_speed_gb_s", "pd_transfer_total_mb", "pd_prefill_retry_count")
	if len(summary) > 0 {
		children = append(children, Child{Event: true, Name: "sglang_pd_summary", Start: at, Attrs: summary})
	}
	if len(children) > 0 {
		out = append(out, Attr{ChildrenKey, children})
	}
	return out
}

// oldName is what SGLang called a duration before, or "".
func oldName(key string) string {
	switch key {
	case "pd_prefill_bootstrap_duration":
		return "pd_bootstrap_duration"
	case "pd_prefill_alloc_wait_duration":
		return "pd_alloc_waiting_duration"
	}
	return ""
}

// number reads what may be a number; anything else is NaN.
func number(v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case int:
		return float64(v)
	case int64:
		return float64(v)
	case bool:
		if v {
			return 1
		}
		return 0
	case json.Number:
		return number(v.String())
	case string:
		if f, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err == nil {
			return f
		}
	}
	return math.NaN()
}
