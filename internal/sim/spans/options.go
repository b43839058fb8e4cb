// Package spans renders the requests of a simulated fleet as the spans that its engines, routers and
// frontends would export, with the trouble that real traces have, and sends them over OTLP. Its entry points
// are [New], which renders, and [Run], which also sends.
package spans

import "fmt"

// Options say what is traced and what goes wrong. The same options and calls give the same spans.
// Shares are between 0 and 1; 0 takes the default, a negative share is none.
type Options struct {
	Seed  uint64
	Level int // SGLANG_TRACE_LEVEL of the engines, 1 to 4; default 2, as Dynamo sets it

	// Attributes is how many a span has at least: what a team's own instrumentation would add fills up.
	// 0 adds nothing.
	Attributes int

	// Share of the requests that are traced at all, as a head sampler would have it, whole traces; default 1.
	Share float64

	Split    float64 // share of PD requests whose router passes no trace context, so that the halves are two traces; default 0.3
	Agents   float64 // share of conversations without a router or frontend that an agent leads, with tools; default 0.3
	ToolFail float64 // share of tool calls that fail; default 0.04
	Late     float64 // share of a request's spans whose exporter is late by seconds; default 0.01
	Orphans  float64 // share of engine calls whose thread spans nobody exports; default 0.005
	Broken   float64 // share of engine calls that do not go on with the context of the frontend: split roots; default 0.005
	Skewed   float64 // share of hosts whose clock is off; default 0.2
	Dropped  float64 // share of frontend spans that lost attributes to the SDK's limit; default 0.01

	Mooncake bool // --trace-modules request,mooncake
}

func (o Options) withDefaults() (Options, error) {
	if o.Level == 0 {
		o.Level = 2
	}
	if o.Level < 1 || o.Level > 4 {
		return o, fmt.Errorf("sim traces: level %d; SGLANG_TRACE_LEVEL is 1 to 4", o.Level)
	}
	if o.Attributes < 0 || o.Attributes > 1000 {
		return o, fmt.Errorf("sim traces: %d attributes a span; 0 to 1000", o.Attributes)
	}
	for _, s := range []struct {
		name string
		v    *float64
		d    float64
	}{
		{"Share", &o.Share, 1}, {"Split", &o.Split, 0.3}, {"Agents", &o.Agents, 0.3}, {"ToolFail", &o.ToolFail, 0.04}, {"Late", &o.Late, 0.01}, {"Orphans", &o.Orphans, 0.005},
		{"Broken", &o.Broken, 0.005}, {"Skewed", &o.Skewed, 0.2}, {"Dropped", &o.Dropped, 0.01},
	} {
		switch {
		case *s.v == 0:
			*s.v = s.d
		case *s.v < 0:
			*s.v = 0
		case !(*s.v <= 1):
			return o, fmt.Errorf("sim traces: %s is %v; it is a share between 0 and 1", s.name, *s.v)
		}
	}
	return o, nil
}
