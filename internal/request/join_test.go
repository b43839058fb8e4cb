package request

import (
	"strings"
	"testing"
	"time"
)

func TestRelated(t *testing.T) {
	const ms = int64(time.Millisecond)
	obs := func(source Source, role, engine string, start int64, kv ...string) Observation {
		return Observation{Source: source, Role: role, Engine: engine, Start: base + start*ms, Finish: base + (start+1000)*ms, Final: true, Aliases: alias(kv...)}
	}
	line := func(at int64, kv ...string) Observation {
		return Observation{Source: FromLog, Engine: "e1", Start: base + at*ms, TimeRank: 1, Aliases: alias(kv...)}
	}
	for name, c := range map[string]struct {
		a, b Observation
		want Verdict
		why  string
	}{
		"nothing in common":       {obs(FromDump, "", "", 0, "rid", "a"), obs(FromTrace, "unified", "e1", 0, "rid", "b"), Unrelated, ""},
		"rid and start":           {obs(FromDump, "", "", 0, "rid", "a"), obs(FromTrace, "unified", "e1", 40, "rid", "a"), Proven, ""},
		"rid of a retry":          {obs(FromDump, "", "", 0, "rid", "a"), obs(FromTrace, "unified", "e1", 9000, "rid", "a"), Unrelated, ""},
		"rid, no time":            {Observation{Source: FromDump, Aliases: alias("rid", "a")}, obs(FromTrace, "unified", "e1", 0, "rid", "a"), ProbablyOne, "not known"},
		"rid on another engine":   {obs(FromExport, "", "e2", 0, "rid", "a"), obs(FromTrace, "unified", "e1", 40, "rid", "a"), ProbablyOne, "two engines"},
		"rid in two traces":       {obs(FromTrace, "", "g", 0, "rid", "r-17", "trace_id", "06"), obs(FromTrace, "", "e", 100, "rid", "r-17", "trace_id", "07"), ProbablyOne, "two traces"},
		"rid is the trace id":     {obs(FromDump, "", "", 0, "rid", "0af7"), obs(FromTrace, "unified", "e1", 40, "trace_id", "0af7"), Proven, ""},
		"two calls of one sample": {obs(FromDump, "", "", 0, "rid", "a", "sample_span", "r/train/1/2/s1"), obs(FromDump, "", "", 0, "rid", "a", "sample_span", "r/train/1/2/s2"), Unrelated, ""},
		"one call in two dumps":   {obs(FromDump, "", "", 0, "sample_span", "r/train/1/2/s1"), obs(FromDump, "", "", 90000, "sample_span", "r/train/1/2/s1"), Proven, ""},
		"span":                    {obs(FromTrace, "unified", "e1", 0, "trace_id", "06", "span_id", "1"), obs(FromDynamo, "", "", 9000, "trace_id", "06", "span_id", "1"), Proven, ""},
		"span of another trace":   {obs(FromTrace, "unified", "e1", 0, "trace_id", "06", "span_id", "1"), obs(FromDynamo, "", "", 0, "trace_id", "07", "span_id", "1"), Unrelated, ""},
		"halves by room":          {obs(FromTrace, "prefill", "p", 0, "trace_id", "06", "bootstrap_room", "77"), obs(FromTrace, "decode", "d", 40, "trace_id", "07", "bootstrap_room", "77"), Proven, ""},
		"room of another time":    {obs(FromTrace, "prefill", "p", 0, "bootstrap_room", "0"), obs(FromTrace, "decode", "d", 60000, "bootstrap_room", "0"), Unrelated, ""},
		"room, twice prefill":     {obs(FromTrace, "prefill", "p", 0, "bootstrap_room", "77"), obs(FromTrace, "prefill", "q", 40, "bootstrap_room", "77"), ProbablyOne, "no prefill and decode"},
		"halves by trace":         {obs(FromTrace, "prefill", "p", 0, "trace_id", "06", "rid", "x"), obs(FromTrace, "decode", "d", 40, "trace_id", "06", "rid", "y"), Proven, ""},
		"trace, two rids":         {obs(FromTrace, "unified", "e1", 0, "trace_id", "06", "rid", "x"), obs(FromExport, "", "e1", 40, "trace_id", "06", "rid", "y"), Unrelated, ""},
		"trace, later call":       {obs(FromTrace, "frontend", "f", 0, "trace_id", "06"), obs(FromExport, "", "e1", 9000, "trace_id", "06"), Unrelated, ""},
		"frontend and engine":     {obs(FromTrace, "frontend", "f", 0, "trace_id", "06"), obs(FromTrace, "unified", "e1", 10, "trace_id", "06", "rid", "x"), Proven, ""},
		"one source, two starts":  {obs(FromTrace, "unified", "e1", 0, "rid", "a"), obs(FromTrace, "unified", "e1", 500, "rid", "a"), Unrelated, ""},
		"line within":             {line(700, "rid", "a"), obs(FromTrace, "unified", "e1", 0, "rid", "a"), Proven, ""},
		"line after":              {line(9000, "rid", "a"), obs(FromTrace, "unified", "e1", 0, "rid", "a"), Unrelated, ""},
		"x-request-id":            {obs(FromTrace, "frontend", "f", 0, "x_request_id", "x1"), obs(FromDynamo, "", "", 10, "x_request_id", "x1"), Proven, ""},
		"x-request-id, two rids":  {obs(FromExport, "", "e1", 0, "x_request_id", "x1", "rid", "a"), obs(FromTrace, "unified", "e1", 10, "x_request_id", "x1", "rid", "b"), ProbablyOne, "different rids"},
	} {
		for range 2 {
			if got, why := Related(&c.a, &c.b, Tolerance{}); got != c.want || (c.why == "") != (why == "") || !strings.Contains(why, c.why) {
				t.Errorf("%s: %v %q, want %v %q", name, got, why, c.want, c.why)
			}
			c.a, c.b = c.b, c.a
		}
	}
	a, b := obs(FromDump, "", "", 0, "rid", "a"), obs(FromTrace, "unified", "e1", 9000, "rid", "a")
	if got, _ := Related(&a, &b, Tolerance{Skew: func(x, y string) time.Duration { return 8 * time.Second }}); got != Proven {
		t.Errorf("with skewed hosts: %v", got)
	}
}
