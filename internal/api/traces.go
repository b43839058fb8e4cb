package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rollscope/rollscope/internal/eventstore"
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
	Dependencies(ctx context.Context, from, to int64) (links []tracestore.Dependency, partial string, err error)
}

// traceRoutes are those that answer from traces on the main listener: ours and Jaeger's.
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
