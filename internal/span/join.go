package span

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/request"
)

// SameRequest tells whether two traces may be of one request although nothing made them one trace: a
// gateway that does not continue its caller's context, the halves of a PD pair without a tracing router.
// why says in plain words what that rests on. The traces are never merged because of it.
func SameRequest(a, b *Tree, tolerance request.Tolerance) (why string, ok bool) {
	for i := range a.Spans {
		for k := range a.Spans[i].Links {
			l := &a.Spans[i].Links[k]
			if b.has(l.Trace, l.ID) && !a.has(l.Trace, l.ID) {
				return fmt.Sprintf("span %q links to a span of the other trace", a.Spans[i].Name), true
			}
		}
	}
	for i := range b.Spans {
		for k := range b.Spans[i].Links {
			l := &b.Spans[i].Links[k]
			if a.has(l.Trace, l.ID) && !b.has(l.Trace, l.ID) {
				return fmt.Sprintf("the other trace's span %q links to a span of this one", b.Spans[i].Name), true
			}
		}
	}
	best := request.Unrelated
	left, right := Observe(a), Observe(b)
	for i := range left {
		for k := range right {
			v, reason := request.Related(&left[i], &right[k], tolerance)
			if v > best {
				best, why = v, reason
				if v == request.Proven {
					return cmp.Or(why, shared(&left[i], &right[k])), true
				}
			}
		}
	}
	return why, best != request.Unrelated
}

// shared names the ids that two observations have in common.
func shared(a, b *request.Observation) string {
	var parts []string
	for _, x := range a.Aliases {
		if slices.Contains(b.Aliases, x) {
			parts = append(parts, string(x.Kind)+" "+x.ID)
		}
	}
	return "both name " + strings.Join(parts, ", ")
}

func (t *Tree) has(trace TraceID, id ID) bool {
	for i := range t.Spans {
		if t.Spans[i].Trace == trace && (t.Spans[i].ID == id || id.IsZero()) {
			return true
		}
	}
	return false
}

// Coverage tells how many of the traces that a service takes part in have spans of an engine. It is made
// for a window of traces: [Coverage.Add] each, then ask. The zero value is ready.
type Coverage struct {
	Traces  int // all
	Lacking int // without any span of an engine
	by      map[string]*ServiceCoverage
}

// ServiceCoverage is one service's part. A trace counts for each service that has spans in it.
type ServiceCoverage struct {
	Service  string
	Traces   int
	Lacking  int // traces without any span of an engine
	Orphaned int // traces in which a span of the service names a parent that nobody sent
	Split    int // traces with several roots, one of them the service's
}

// maxServices bounds a Coverage; services beyond are counted under the empty name of the rest.
const (
	maxServices = 1000
	restService = "(other services)"
)

// Add takes a trace into account.
func (c *Coverage) Add(t *Tree) {
	engine := false
	services := map[string]*ServiceCoverage{}
	of := func(name string) *ServiceCoverage {
		s := services[name]
		if s == nil {
			s = &ServiceCoverage{Service: name}
			services[name] = s
		}
		return s
	}
	for i := range t.Nodes {
		s := t.Of(i)
		if s == nil {
			continue
		}
		engine = engine || isEngine(t.Meaning(i).Class)
		sc := of(s.Service)
		if p := t.Nodes[i].Parent; p >= 0 && t.Nodes[p].Flags&IsMissing != 0 {
			sc.Orphaned = 1
		} else if p < 0 && len(t.Roots) > 1 {
			sc.Split = 1
		}
	}
	c.Traces++
	if !engine {
		c.Lacking++
	}
	if c.by == nil {
		c.by = map[string]*ServiceCoverage{}
	}
	for name, s := range services {
		if c.by[name] == nil {
			if len(c.by) >= maxServices {
				name = restService
			}
			if c.by[name] == nil {
				c.by[name] = &ServiceCoverage{Service: strings.Clone(name)}
			}
		}
		to := c.by[name]
		to.Traces++
		if !engine {
			to.Lacking++
		}
		to.Orphaned += s.Orphaned
		to.Split += s.Split
	}
}

// Services are the parts of the services, the most lacking first.
func (c *Coverage) Services() []ServiceCoverage {
	out := make([]ServiceCoverage, 0, len(c.by))
	for _, s := range c.by {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b ServiceCoverage) int {
		return cmp.Or(cmp.Compare(b.Lacking, a.Lacking), cmp.Compare(b.Orphaned, a.Orphaned), cmp.Compare(a.Service, b.Service))
	})
	return out
}

// Text says the share in words, "" when nothing lacks.
func (c *Coverage) Text() string {
	if c.Lacking == 0 {
		return ""
	}
	var parts []string
	for _, s := range c.Services() {
		if s.Lacking > 0 {
			parts = append(parts, fmt.Sprintf("%s %d of %d", cmp.Or(s.Service, "a service without a name"), s.Lacking, s.Traces))
		}
	}
	return fmt.Sprintf("%d of %d traces have no span of an engine (%s)", c.Lacking, c.Traces, strings.Join(parts, ", "))
}

// Cause is a known reason for spans that do not come, with what to do.
type Cause struct{ What, Do string }

// LackingCauses are known reasons for traces without spans of an engine, the most frequent first.
var LackingCauses = [...]Cause{
	{"the engine does not trace", "start it with --enable-trace (SGLang; vLLM needs only the endpoint)"},
	{"the engine sends elsewhere", "set --otlp-traces-endpoint to this receiver as host:port; SGLang up to 0.5.4 spelt it --oltp-traces-endpoint, and its default is localhost:4317"},
	{"the engine has no OpenTelemetry packages", "install opentelemetry-sdk, -api, -exporter-otlp and -exporter-otlp-proto-grpc; its log says that tracing is disabled because the packages cannot be imported"},
	{"tracing was switched off while running", "SGLANG_TRACE_LEVEL or /set_trace_level is 0, or --trace-modules leaves out request"},
	{"something between does not pass the context on", "a gateway, or Dynamo over its tcp transport in older releases, drops traceparent: then the engine's spans are traces of their own; look for them by request id or bootstrap room"},
	{"Dynamo does not export", "set OTEL_EXPORT_ENABLED=true and DYN_LOGGING_JSONL=true on every process"},
	{"the spans were sampled away", "head sampling in the engine's SDK or in a collector before this receiver decides per process; send everything and sample here"},
}

// OrphanCauses are known reasons for spans whose parents nobody sent.
var OrphanCauses = [...]Cause{
	{"the caller does not export its own spans", "switch its export on, or let it start no traces"},
	{"the caller sampled the trace away, the called did not", "use a parent-based sampler everywhere, or none"},
	{"several tokenizers share one request", "SGLang with --tokenizer-worker-num above 1 may export a request's root from a process that never ends it"},
	{"the caller's exporter dropped spans", "raise OTEL_BSP_MAX_QUEUE_SIZE of the caller; its log counts dropped spans"},
	{"the root has not ended yet", "wait: a root is sent when the request is finished"},
}
