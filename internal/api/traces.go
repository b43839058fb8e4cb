package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/span"
	"github.com/rollscope/rollscope/internal/timeline"
	"github.com/rollscope/rollscope/internal/tracestore"
)

// TraceSource has the traces; [tracestore.Store] is one. Ranges are ns since 1970, 0 for no bound. Errors are
// those of tracestore: ErrNotFound, *LookupError, *QueryError; others mean that the store cannot answer now.
type TraceSource interface {
	// Trace finds a trace by any of its ids.
	Trace(ctx context.Context, id string, from, to int64) (tracestore.Trace, error)
	Search(ctx context.Context, q tracestore.Query) (tracestore.Result, error)
	Services(ctx context.Context, from, to int64) ([]string, error)
	// Operations lists the names of a service's spans, "" for all services.
	Operations(ctx context.Context, service string, from, to int64) ([]tracestore.Operation, error)
	// TagNames lists keys of attributes by scope; AnyScope asks for all scopes.
	TagNames(ctx context.Context, scope tracestore.Scope, where *tracestore.Set, from, to int64) (map[tracestore.Scope][]string, error)
	TagValues(ctx context.Context, f tracestore.Field, where *tracestore.Set, from, to int64, limit int) ([]tracestore.TagValue, error)
	Stats(ctx context.Context, from, to int64) ([]tracestore.ServiceStats, error)
	Senders(ctx context.Context, from, to int64) ([]tracestore.Sender, error)
	// Related finds other traces that may be of the same request.
	Related(ctx context.Context, t *tracestore.Trace) ([]tracestore.Related, error)
	Dependencies(ctx context.Context, from, to int64) (links []tracestore.Dependency, partial string, err error)
	// Coverage tells how traces hang together: which have spans of an engine, which lack parents.
	Coverage(ctx context.Context, from, to int64) (tracestore.Coverage, error)
}

// traceRoutes are those of Jaeger's query API, on the main listener.
func (a *API) traceRoutes() []Route {
	return []Route{
		{"GET", "/api/services", ScopeRead, noBody, a.jaeger(a.jaegerServices)},
		{"GET", "/api/services/{service}/operations", ScopeRead, noBody, a.jaeger(a.jaegerServiceOperations)},
		{"GET", "/api/operations", ScopeRead, noBody, a.jaeger(a.jaegerOperations)},
		{"GET", "/api/traces", ScopeRead, noBody, a.jaeger(a.jaegerSearch)},
		{"GET", "/api/traces/{id}", ScopeRead, noBody, a.jaeger(a.jaegerTrace)},
		{"GET", "/api/dependencies", ScopeRead, noBody, a.jaeger(a.jaegerDependencies)},
	}
}

// nanos is a time as the trace source takes it.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// traceFailure turns an error of the trace source into one of ours.
func traceFailure(r *http.Request, err error) *Error {
	var query *tracestore.QueryError
	var lookup *tracestore.LookupError
	switch {
	case errors.As(err, &query):
		return &Error{Code: "bad_query", Message: query.Error(), Where: "q", Hint: "docs/traces.md says which TraceQL is answered"}
	case errors.As(err, &lookup):
		return &Error{Code: "bad_parameter", Message: lookup.Error(), Where: "id"}
	case errors.Is(err, tracestore.ErrNotFound):
		return &Error{Code: "not_found", Message: err.Error(), Where: r.URL.Path}
	case errors.Is(err, eventstore.ErrDown):
		return &Error{Code: "busy", Message: err.Error(), Where: r.URL.Path, Hint: "it is started again by itself: ask again"}
	}
	return failure(r, err)
}

func (a *API) noTraces(r *http.Request) error {
	if a.Traces != nil {
		return nil
	}
	return &Error{Code: "not_enabled", Message: "this process has no traces", Where: r.URL.Path, Hint: "start serve with --otlp"}
}

// maxTraceRows is how many traces a list may have.
const maxTraceRows = tracestore.MaxTraces

func (a *API) getTraces(r *http.Request) (any, error) {
	p := a.params(r, "from", "to", "service", "name", "tags", "min", "max", "status", "kind", "order", "limit")
	if a.Traces == nil { // the page asks without knowing
		return envelope(a, Traces{}), nil
	}
	q := traceQuery(p)
	if p.err != nil {
		return nil, p.err
	}
	var services []tracestore.ServiceStats
	var statsErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		services, statsErr = a.traceStats(r.Context(), q.From, q.To)
	}()
	res, err := a.Traces.Search(r.Context(), q)
	<-done
	if err != nil {
		return nil, traceFailure(r, err)
	}
	var answer Traces
	for i := range res.Traces {
		answer.Traces = append(answer.Traces, traceRow(&res.Traces[i]))
	}
	for i := range services {
		answer.Services = append(answer.Services, traceService(&services[i]))
	}
	e := envelope(a, answer)
	if res.Partial != "" {
		e.Partial = true
		e.Warnings = append(e.Warnings, Warning{Code: "partial", Message: "there may be more traces: " + res.Partial, Hint: "ask for a shorter range or more conditions"})
	}
	if statsErr != nil && r.Context().Err() == nil {
		e.Warnings = append(e.Warnings, Warning{Code: "services_unknown", Message: "what the services send could not be counted: " + statsErr.Error()})
	}
	return e, nil
}

func (a *API) getTraceServices(r *http.Request) (any, error) {
	p := a.params(r, "from", "to")
	from, to := p.window()
	if p.err != nil {
		return nil, p.err
	}
	if err := a.noTraces(r); err != nil {
		return nil, err
	}
	stats, err := a.traceStats(r.Context(), from.UnixNano(), to.UnixNano())
	if err != nil {
		return nil, traceFailure(r, err)
	}
	out := []TraceService{}
	for i := range stats {
		out = append(out, traceService(&stats[i]))
	}
	e := envelope(a, out)
	c, err := a.traceCoverage(r.Context(), from.UnixNano(), to.UnixNano())
	if err != nil {
		return nil, traceFailure(r, err)
	}
	e.Warnings = append(e.Warnings, coverageWarnings(&c)...)
	return e, nil
}

// coverageWarnings says what traces lack, with the known reasons.
func coverageWarnings(c *tracestore.Coverage) []Warning {
	var out []Warning
	reasons := func(causes []span.Cause) string {
		words := make([]string, len(causes))
		for i, x := range causes {
			words[i] = x.What
		}
		return "known causes: " + strings.Join(words, "; ")
	}
	if text := c.Text(); text != "" {
		out = append(out, Warning{Code: "no_engine_spans", Message: text, Hint: reasons(span.LackingCauses[:])})
	}
	if c.Orphaned > 0 {
		out = append(out, Warning{Code: "orphans", Message: fmt.Sprintf("%d of %d traces have spans whose parents nobody sent", c.Orphaned, c.Traces), Hint: reasons(span.OrphanCauses[:])})
	}
	if c.Partial != "" && len(out) > 0 {
		out = append(out, Warning{Code: "partial", Message: c.Partial})
	}
	return out
}

// statsAge is how old an answer about services may be, and how far apart ranges may be that share one.
const statsAge = 30 * time.Second

// held is the last answer of something that takes long to find out.
type held[T any] struct {
	mu       sync.Mutex
	from, to int64
	read     time.Time
	answer   T
}

// get asks, or remembers what was answered for nearly the same range.
func (h *held[T]) get(ctx context.Context, from, to int64, ask func(ctx context.Context, from, to int64) (T, error)) (T, error) {
	near := func(x, y int64) bool { return x-y < int64(statsAge) && y-x < int64(statsAge) }
	h.mu.Lock()
	defer h.mu.Unlock() // who comes meanwhile waits for the same answer
	if !h.read.IsZero() && time.Since(h.read) < statsAge && near(h.from, from) && near(h.to, to) {
		return h.answer, nil
	}
	answer, err := ask(ctx, from, to)
	if err == nil {
		h.from, h.to, h.read, h.answer = from, to, time.Now(), answer
	}
	return answer, err
}

// traceStats counts what services send.
func (a *API) traceStats(ctx context.Context, from, to int64) ([]tracestore.ServiceStats, error) {
	return a.statsHeld.get(ctx, from, to, a.Traces.Stats)
}

func (a *API) traceCoverage(ctx context.Context, from, to int64) (tracestore.Coverage, error) {
	return a.coverageHeld.get(ctx, from, to, a.Traces.Coverage)
}

// traceQuery reads a search of the page.
func traceQuery(p *params) tracestore.Query {
	from, to := p.window()
	q := tracestore.Query{From: from.UnixNano(), To: to.UnixNano(), Limit: 200, SpansPerTrace: 10, Order: tracestore.Slowest}
	if p.oneOf("order", "slowest", "slowest", "newest") == "newest" {
		q.Order = tracestore.Newest
	}
	if v := p.text("limit"); v != "" {
		q.Limit = int(p.whole("limit", 200, 1, maxTraceRows))
	}
	for name, into := range map[string]*time.Duration{"min": &q.MinDuration, "max": &q.MaxDuration} {
		v := p.text(name)
		if v == "" {
			continue
		}
		d, err := parseDuration(v)
		if err != nil {
			p.fail(badParameter(name, v, "is no duration", "seconds (5, 0.3) or a duration (5s, 300ms)"))
		}
		*into = d
	}
	intrinsic := func(key string) tracestore.Field {
		return tracestore.Field{Scope: tracestore.Intrinsic, Key: key}
	}
	var conds []*tracestore.Cond
	if v := p.text("service"); v != "" {
		conds = append(conds, tracestore.Is(tracestore.Field{Scope: tracestore.Resource, Key: "service.name"}, v))
	}
	if v := p.text("name"); v != "" {
		conds = append(conds, tracestore.NameIs(v))
	}
	if v := p.oneOf("status", "", "ok", "error", "unset"); v != "" {
		conds = append(conds, tracestore.Is(intrinsic(tracestore.SpanStatus), v))
	}
	if v := p.oneOf("kind", "", "internal", "server", "client", "producer", "consumer", "unspecified"); v != "" {
		conds = append(conds, tracestore.Is(intrinsic(tracestore.SpanKind), v))
	}
	tags := strings.TrimSpace(p.text("tags"))
	if strings.HasPrefix(tags, "{") || strings.HasPrefix(tags, "(") {
		parsed, err := tracestore.ParseTraceQL(tags)
		if err != nil {
			p.fail(&Error{Code: "bad_query", Message: err.Error(), Where: "tags", Hint: "docs/traces.md says which TraceQL is answered"})
			return q
		}
		q.Where = parsed.Where
		if len(conds) > 0 {
			q.Where = tracestore.Both(q.Where, tracestore.Spans(tracestore.All(conds...)))
		}
		return q
	}
	terms, err := tracestore.ParseTerms(tags)
	if err != nil {
		p.fail(&Error{Code: "bad_query", Message: err.Error(), Where: "tags", Hint: `key=value key!=value key>5 key=~"a|b", or TraceQL in braces`})
		return q
	}
	q.Where = tracestore.Spans(tracestore.All(append(conds, terms...)...))
	return q
}

func (a *API) getTrace(r *http.Request) (any, error) {
	if err := a.noTraces(r); err != nil {
		return nil, err
	}
	p := a.params(r, "from", "to", "fold")
	from, to := p.time("from", time.Time{}), p.time("to", time.Time{})
	fold := 0
	if v := p.text("fold"); v == "none" {
		fold = -1
	} else if v != "" {
		fold = int(p.whole("fold", 0, 0, 1<<20))
	}
	if p.err != nil {
		return nil, p.err
	}
	t, err := a.Traces.Trace(r.Context(), r.PathValue("id"), nanos(from), nanos(to))
	if err != nil {
		return nil, traceFailure(r, err)
	}
	d := NewTraceDetail(&t, fold)
	related, err := a.Traces.Related(r.Context(), &t)
	e := envelope(a, d)
	if err != nil && r.Context().Err() == nil {
		e.Warnings = append(e.Warnings, Warning{Code: "related_unknown", Message: "other traces of the same request were not looked for: " + err.Error()})
	}
	for _, x := range related {
		d.Probable = append(d.Probable, ProbableMatch{TraceID: x.ID.String(), Why: x.Why})
	}
	if a.TraceRequest != nil {
		if d.Request, err = a.TraceRequest(r.Context(), t.ID.String()); err != nil && r.Context().Err() == nil {
			e.Warnings = append(e.Warnings, Warning{Code: "request_unknown", Message: "the request of this trace was not looked for: " + err.Error()})
		}
	}
	if t.Partial != "" {
		e.Partial = true
	}
	e.Data = d
	return e, nil
}

// traceIndexes keeps the timelines of the traces that were looked at last: a page asks for many windows of one.
type traceIndexes struct {
	mu   sync.Mutex
	list []traceIndex // the newest last
}

type traceIndex struct {
	id   string
	read time.Time
	ix   *timeline.Index
}

// How many timelines of traces are kept, and for how long: a trace may still grow.
const (
	keptTraces = 4
	keptFor    = time.Minute
)

// traceTimelineOf makes the timeline of a trace; ok is false for an id of something else.
func (a *API) traceTimelineOf(r *http.Request, id string) (ix *timeline.Index, ok bool, err error) {
	trace, isTrace := strings.CutPrefix(id, traceTimeline)
	if !isTrace || len(trace) != 32 || a.Traces == nil {
		return nil, false, nil
	}
	if _, err := span.ParseTraceID(trace); err != nil {
		return nil, false, nil
	}
	k := &a.traceIndexes
	k.mu.Lock()
	defer k.mu.Unlock() // who asks for the same one meanwhile waits for it instead of reading it twice
	for _, x := range k.list {
		if x.id == trace && time.Since(x.read) < keptFor {
			return x.ix, true, nil
		}
	}
	t, err := a.Traces.Trace(r.Context(), trace, 0, 0)
	if err != nil {
		return nil, true, traceFailure(r, err)
	}
	c := timeline.TraceColumns(timeline.Head{Tool: a.Version, Dump: timeline.Dump{Name: trace, Kind: "trace"}, Note: t.Partial}, span.NewTree(t.Spans))
	x := traceIndex{trace, time.Now(), timeline.NewIndex(c)}
	k.list = append(slices.DeleteFunc(k.list, func(y traceIndex) bool { return y.id == trace || time.Since(y.read) >= keptFor }), x)
	if len(k.list) > keptTraces {
		k.list = slices.Delete(k.list, 0, len(k.list)-keptTraces)
	}
	return x.ix, true, nil
}
