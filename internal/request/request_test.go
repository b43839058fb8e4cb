package request

import "testing"

func TestProfiled(t *testing.T) {
	value := Value{V: 0, State: Known}
	for name, c := range map[string]struct {
		r    Request
		want bool
	}{
		"nothing":         {Request{}, false},
		"tokens alone":    {Request{PromptTokens: value, CompletionTokens: value, CachedTokens: value}, false},
		"invalid alone":   {Request{QueueTime: Value{V: -1, State: Invalid}}, false},
		"queue time":      {Request{QueueTime: value}, true},
		"latency":         {Request{E2ELatency: value}, true},
		"throughput":      {Request{DecodeThroughput: value}, true},
		"transfer speed":  {Request{TransferSpeed: value}, true},
		"transfer size":   {Request{TransferSize: value}, true},
		"retries":         {Request{Retries: value}, true},
		"an aborted call": {Request{FinishReason: "abort", PromptTokens: value}, false},
	} {
		if got := c.r.Profiled(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	for p := range NumPhases {
		var r Request
		r.Phases[p] = value
		if !r.Profiled() {
			t.Errorf("phase %d: not profiled", p)
		}
	}
}

func TestKnown(t *testing.T) {
	for _, c := range []struct {
		v    Value
		want bool
	}{{Value{}, false}, {Value{V: 2, State: Invalid}, false}, {Value{V: 2, State: Known}, true}} {
		if f, ok := c.v.Known(); ok != c.want || f != c.v.V {
			t.Errorf("%+v: %v, %v", c.v, f, ok)
		}
	}
}
