package api

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/span"
	"github.com/rollscope/rollscope/internal/tracestore"
)

// fakeTraces has one trace, and what else a test says.
type fakeTraces struct {
	trace   tracestore.Trace
	related []tracestore.Related
	partial string
	err     error
	asked   *fakeAsked
}

// fakeAsked is what a fake was asked last.
type fakeAsked struct {
	id       string
	query    tracestore.Query
	field    tracestore.Field
	scope    tracestore.Scope
	where    *tracestore.Set
	from, to int64
	limit    int
}

const (
	madeTraceID = "0af7651916cd43dd8448eb211c80319c"
	madeTraceAt = 1767366000_000000000 // ns: now
)

// madeTrace is a request through a frontend and an engine that failed, with every type of attribute.
func madeTrace() tracestore.Trace {
	id, err := span.ParseTraceID(madeTraceID)
	if err != nil {
		panic(err)
	}
	text := func(k, v string) span.Attr { return span.Attr{Key: k, Value: span.Value{Str: v}} }
	make1 := func(n, parent byte, service, name string, kind span.Kind, at, dur int64, attrs ...span.Attr) span.Span {
		s := span.Span{Service: service, Resource: []span.Attr{text("service.name", service), text("host.name", "node-1")}, ScopeName: "made", ScopeVersion: "1", Attrs: attrs}
		s.Trace, s.ID, s.Name, s.Kind = id, span.ID{7: n}, name, kind
		if parent > 0 {
			s.Parent = span.ID{7: parent}
		}
		s.Start = madeTraceAt + at*1e6
		s.End = s.Start + dur*1e6
		return s
	}
	root := make1(1, 0, "dynamo-frontend", "http-request", 2, 0, 1000, text("x-request-id", "my-trace-001"))
	req := make1(2, 1, "sglang", " Req 0af76519", 1, 10, 980, text("rid", "r1"),
		span.Attr{Key: "tokens", Value: span.Value{Type: span.Int, Str: "128"}}, span.Attr{Key: "big", Value: span.Value{Type: span.Int, Str: "9223372036854775807"}},
		span.Attr{Key: "ttft", Value: span.Value{Type: span.Float, Str: "0.25"}}, span.Attr{Key: "bad", Value: span.Value{Type: span.Float, Str: "NaN"}},
		span.Attr{Key: "stream", Value: span.Value{Type: span.Bool, Str: "true"}}, span.Attr{Key: "finish", Value: span.Value{Type: span.JSON, Str: `["stop",1,2.5,true,{"a":1}]`}})
	req.Status, req.StatusMessage, req.DroppedAttrs, req.TraceState = span.Failed, "aborted", 37, "a=b"
	req.Events = []span.Event{{Time: req.Start + 5e6, Name: "retract", Attrs: []span.Attr{text("reason", "kv")}}}
	req.Links = []span.Link{{Trace: span.TraceID{15: 9}, ID: span.ID{7: 9}, Attrs: []span.Attr{text("why", "prefill")}}}
	out := tracestore.Trace{ID: id, Spans: []span.Span{root, req, make1(3, 2, "sglang", "prefill_forward", 0, 12, 100)}}
	for i := range byte(3) {
		out.Spans = append(out.Spans, make1(10+i, 2, "sglang", "decode_loop", 0, 120+int64(i)*30, 25))
	}
	return out
}

func (f fakeTraces) Trace(_ context.Context, id string, from, to int64) (tracestore.Trace, error) {
	if f.asked != nil {
		f.asked.id, f.asked.from, f.asked.to = id, from, to
	}
	if f.err != nil {
		return tracestore.Trace{}, f.err
	}
	if strings.TrimLeft(strings.ToLower(id), "0") != strings.TrimLeft(madeTraceID, "0") && id != "my-trace-001" {
		if _, err := span.ParseLookup(id); err != nil {
			return tracestore.Trace{}, &tracestore.LookupError{Err: err}
		}
		return tracestore.Trace{}, fmt.Errorf("%w: %s", tracestore.ErrNotFound, id)
	}
	t := f.trace
	t.Partial = f.partial
	if id == "my-trace-001" {
		t.By = "x_request_id"
	}
	return t, nil
}

func (f fakeTraces) Search(_ context.Context, q tracestore.Query) (tracestore.Result, error) {
	if f.asked != nil {
		f.asked.query = q
	}
	if f.err != nil {
		return tracestore.Result{}, f.err
	}
	whole := tracestore.Found{ID: f.trace.ID, Root: "http-request", RootService: "dynamo-frontend", Start: madeTraceAt, End: madeTraceAt + 1e9, Spans: 6, Errors: 1,
		Services: map[string]tracestore.ServiceCount{"dynamo-frontend": {Spans: 1}, "sglang": {Spans: 5, Errors: 1}}, RID: "r1", RequestID: "my-trace-001", Roots: 1,
		Matched: f.trace.Spans[1:2], Count: 1}
	bare := tracestore.Found{ID: span.TraceID{15: 5}, RootService: "engine", Start: madeTraceAt - 200*24*3600e9, End: madeTraceAt, Spans: 1,
		Services: map[string]tracestore.ServiceCount{"engine": {Spans: 1}}, Orphans: true}
	return tracestore.Result{Traces: []tracestore.Found{whole, bare}, Partial: f.partial, Inspected: 2}, nil
}

func (f fakeTraces) Services(_ context.Context, from, to int64) ([]string, error) {
	if f.asked != nil {
		f.asked.from, f.asked.to = from, to
	}
	return []string{"dynamo-frontend", "sglang"}, f.err
}

func (f fakeTraces) Operations(_ context.Context, service string, _, _ int64) ([]tracestore.Operation, error) {
	if service != "sglang" {
		return nil, f.err
	}
	return []tracestore.Operation{{Name: "Req *", Kind: 1}, {Name: "Req *", Kind: 2}, {Name: "decode_loop"}}, f.err
}

func (f fakeTraces) TagNames(_ context.Context, scope tracestore.Scope, where *tracestore.Set, from, to int64) (map[tracestore.Scope][]string, error) {
	if f.asked != nil {
		f.asked.scope, f.asked.where, f.asked.from, f.asked.to = scope, where, from, to
	}
	all := map[tracestore.Scope][]string{tracestore.SpanScope: {"rid", "tokens"}, tracestore.Resource: {"host.name", "service.name"}, tracestore.EventScope: {"reason"}}
	if scope != tracestore.AnyScope {
		all = map[tracestore.Scope][]string{scope: all[scope]}
	}
	return all, f.err
}

func (f fakeTraces) TagValues(_ context.Context, field tracestore.Field, where *tracestore.Set, from, to int64, limit int) ([]tracestore.TagValue, error) {
	if f.asked != nil {
		f.asked.field, f.asked.where, f.asked.from, f.asked.to, f.asked.limit = field, where, from, to, limit
	}
	return []tracestore.TagValue{{Type: "string", Value: "sglang"}, {Type: "string", Value: "dynamo-frontend"}}, f.err
}

func (f fakeTraces) Stats(context.Context, int64, int64) ([]tracestore.ServiceStats, error) {
	return []tracestore.ServiceStats{{Service: "sglang", Spans: 5, Names: []tracestore.NameCount{{Name: "decode_loop", Count: 3}, {Name: "Req *", Count: 1}}, Level: 2, Missing: []string{"3: decode_loop"},
		Sure: true, PerHour: 3600, Bytes: 90_000, Dropped: 1}, {Service: "dynamo-frontend", Spans: 1, PerHour: math.NaN(), Bytes: math.NaN()}}, f.err
}

func (f fakeTraces) Related(context.Context, *tracestore.Trace) ([]tracestore.Related, error) {
	return f.related, f.err
}

func (f fakeTraces) Dependencies(_ context.Context, from, to int64) ([]tracestore.Dependency, string, error) {
	if f.asked != nil {
		f.asked.from, f.asked.to = from, to
	}
	return []tracestore.Dependency{{Parent: "dynamo-frontend", Child: "sglang", Calls: 3}, {Parent: "a", Child: "b", Calls: 1}}, f.partial, f.err
}

func (f fakeTraces) Coverage(context.Context, int64, int64) (tracestore.Coverage, error) {
	c := tracestore.Coverage{Orphaned: 1, Partial: f.partial}
	made := madeTrace()
	c.Add(span.NewTree(made.Spans))
	c.Add(span.NewTree(slices.Clone(made.Spans[:1])))
	return c, f.err
}

func (f fakeTraces) Senders(context.Context, int64, int64) ([]tracestore.Sender, error) {
	return nil, f.err
}

func withTraces(f fakeTraces) func(*Options) {
	f.trace = madeTrace()
	return func(o *Options) {
		o.Traces = f
		o.TraceRequest = func(context.Context, string) (string, error) { return "r0123456789abcdef0123", nil }
	}
}
