package api

import (
	"context"
	"net/http"
	"time"
)

// LogQuery chooses log records. Empty fields choose nothing out.
type LogQuery struct {
	From, To time.Time // both inclusive
	Filter   string    // LogsQL without pipes, or a LogQL query of lines
	Class    string    // one of the classes, or "none" for records without one
	Level    string
	Engine   string
	Service  string
	RID      string
	TraceID  string
	Limit    int
	After    string // Next of the answer before
}

// LogSource answers questions about log records. An error about the filter is an *Error with code "bad_query".
type LogSource interface {
	// Logs lists records, newest first; next is "" at the end.
	Logs(ctx context.Context, q LogQuery) (list []LogRecord, query, next string, err error)
	// Histogram counts records in equal steps; by is "class", "level", "engine" or "service".
	Histogram(ctx context.Context, q LogQuery, step time.Duration, by string) (LogHistogram, error)
}

// logLimit is how many records a page gets when it does not say.
const logLimit = 200

// eventsOff is the error of routes that need a store of events where there is none.
func eventsOff(r *http.Request, what string) error {
	return &Error{Code: "not_enabled", Message: "this process keeps no " + what, Where: r.URL.Path,
		Hint: "`rollscope serve` keeps them; see docs/events.md"}
}

var logParams = []string{"from", "to", "q", "class", "level", "engine", "service", "rid", "trace_id"}

func (a *API) logQuery(r *http.Request, more ...string) (*params, LogQuery, error) {
	if a.Logs == nil {
		return nil, LogQuery{}, eventsOff(r, "logs")
	}
	p := a.params(r, append(append([]string(nil), logParams...), more...)...)
	q := LogQuery{Filter: p.text("q"), Class: p.text("class"), Level: p.text("level"), Engine: p.text("engine"),
		Service: p.text("service"), RID: p.text("rid"), TraceID: p.text("trace_id"), After: p.text("after")}
	q.From, q.To = p.window()
	return p, q, nil
}

func (a *API) getLogs(r *http.Request) (any, error) {
	p, q, err := a.logQuery(r, "limit", "after")
	if err != nil {
		return nil, err
	}
	q.Limit = logLimit
	if p.text("limit") != "" {
		q.Limit = p.limit()
	}
	if p.err != nil {
		return nil, p.err
	}
	list, query, next, err := a.Logs.Logs(r.Context(), q)
	if err != nil {
		return nil, err
	}
	e := envelope(a, Logs{Records: list, Query: query})
	e.Next = next
	return e, nil
}

func (a *API) getLogHistogram(r *http.Request) (any, error) {
	p, q, err := a.logQuery(r, "step", "by")
	if err != nil {
		return nil, err
	}
	by := p.oneOf("by", "class", "class", "level", "engine", "service")
	step := p.step(q.From, q.To)
	if p.err != nil {
		return nil, p.err
	}
	h, err := a.Logs.Histogram(r.Context(), q, step, by)
	if err != nil {
		return nil, err
	}
	return envelope(a, h), nil
}
