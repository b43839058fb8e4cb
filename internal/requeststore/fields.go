package requeststore

import (
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/request"
)

// field is something of a request that a filter, a sort, a group or an axis can name.
type field struct {
	name   string // as people write it
	stored string // in rows
	number bool
	time   bool // a number in seconds: 5s, 300ms and 2m are understood
	hint   string
}

// The fields that are no numbers, in the order in which errors list them.
var words = []field{
	{name: "rid", stored: "rid"},
	{name: "trace", stored: "trace_id"},
	{name: "engine", stored: "engine"},
	{name: "prefill_engine", stored: "prefill_engine"},
	{name: "service", stored: "service"},
	{name: "model", stored: "model"},
	{name: "outcome", stored: "outcome", hint: "ok, error, aborted, running"},
	{name: "finish", stored: "finish_reason", hint: "stop, length, abort"},
	{name: "error", stored: "error"},
	{name: "run", stored: "run"},
	{name: "kind", stored: "kind", hint: "train, eval"},
	{name: "source", stored: "sources", hint: "dump, trace, log, export, dynamo"},
	{name: "flag", stored: "flags", hint: "clock_skew, half_missing"},
	{name: "spans", stored: "spans_kept", hint: "kept, sampled_away"},
	{name: "streaming", stored: "streaming", hint: "true, false"},
	{name: "weights", stored: "weight_version"},
	{name: "room", stored: "bootstrap_room"},
	{name: "request_id", stored: "x_request_id"},
	{name: "dynamo_id", stored: "dynamo_id"},
	{name: "id", stored: "id"},
}

// short are other names of fields.
var short = map[string]string{"trace_id": "trace", "finish_reason": "finish", "prompt": "prompt_tokens", "tokens": "completion_tokens", "completion": "completion_tokens",
	"cached": "cached_tokens", "tpot": "itl", "queue_time": "queue", "latency": "e2e", "x_request_id": "request_id", "bootstrap_room": "room", "throughput": "decode_throughput", "weight_version": "weights"}

// findField looks a name up.
func findField(name string) (field, bool) {
	if full, ok := short[name]; ok {
		name = full
	}
	for _, f := range words {
		if f.name == name {
			return f, true
		}
	}
	if n, ok := numberField(name); ok {
		r := request.Numbers[n]
		return field{name: r.Name, stored: r.Name, number: true, time: r.Unit == "s"}, true
	}
	return field{}, false
}

// numberField finds a numeric field of a request.
func numberField(name string) (request.Number, bool) {
	if full, ok := short[name]; ok {
		name = full
	}
	for n := range request.NumNumbers {
		if request.Numbers[n].Name == name {
			return n, true
		}
	}
	return 0, false
}

// NumberFields are the numeric fields by name, for axes and sorting.
func NumberFields() []string {
	var out []string
	for n := range request.NumNumbers {
		out = append(out, request.Numbers[n].Name)
	}
	return out
}

// fieldNames is what an error says is allowed.
func fieldNames() string {
	var out []string
	for _, n := range NumberFields() {
		if !strings.HasPrefix(n, "phase.") {
			out = append(out, n)
		}
	}
	for _, f := range words {
		out = append(out, f.name)
	}
	return strings.Join(append(out, "phase.NAME"), ", ")
}

// Groups are what a summary can be grouped by.
var Groups = []string{"engine", "prefill_engine", "model", "outcome", "finish", "step", "run", "service", "role", "kind"}

// groupable says whether a name is one of Groups.
func groupable(name string) bool { return slices.Contains(Groups, name) }
