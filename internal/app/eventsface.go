package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/logpush"
	"github.com/rollscope/rollscope/internal/logstore"
	"github.com/rollscope/rollscope/internal/tailsample"
)

// eventFace is what the API sees of events; it makes [api.Events] and [api.LogSource].
type eventFace struct {
	store interface {
		Proxy() http.Handler
		State() eventstore.State
	}
	logs    *logstore.Store
	part    *eventPart      // nil in an archive
	archive *followedEvents // nil in a recorder
}

func (p *eventPart) face() eventFace { return eventFace{store: p.store, logs: p.logs, part: p} }

// Query implements [api.Events].
func (f eventFace) Query() http.Handler { return f.store.Proxy() }

// Push implements [api.Events].
func (f eventFace) Push() *api.PushHandlers {
	if f.part == nil {
		return nil
	}
	return f.part.pushHandlers()
}

// Status implements [api.Events].
func (f eventFace) Status() api.EventsStatus {
	st := f.store.State()
	out := api.EventsStatus{Enabled: true, State: st.State, Reason: st.Reason, Bytes: st.DiskBytes, Spool: st.SpoolBytes,
		Retention: st.Retention.Seconds(), Damaged: st.Damaged, Rows: map[string]int64{}}
	for k, n := range st.Rows {
		out.Rows[string(k)] = n
	}
	if f.part == nil {
		at, err := f.archive.asOf()
		out.AsOf = stampOf(at)
		if err != nil {
			out.Reason += "; it could not be read again: " + err.Error()
		}
		return out
	}
	out.Sources = f.part.sources()
	s, _ := f.part.sampling.stats()
	out.Sampling = &api.SamplingStatus{Held: s.HeldTraces, HeldBytes: s.HeldBytes, Kept: s.Kept, Dropped: s.Dropped}
	out.Sampling.Ratio, out.Sampling.Policies = describePolicy(f.part.sampling.inForce())
	f.part.mu.Lock()
	out.Sampling.Warnings = slices.Clone(f.part.warnings)
	f.part.mu.Unlock()
	if s.EvictedEarly > 0 {
		out.Sampling.Warnings = append(out.Sampling.Warnings, api.Warning{Code: "evicted_early", Where: "traces.sampling",
			Message: strconv.FormatInt(s.EvictedEarly, 10) + " traces were decided before their requests were finished, for want of room",
			Hint:    "raise max_memory or max_traces"})
	}
	return out
}

// describePolicy is a policy in words.
func describePolicy(o tailsample.Options) (ratio float64, words []string) {
	p := o.Policy
	if p.Collector != nil {
		return 0, []string{"a tail_sampling policy of the OpenTelemetry Collector"}
	}
	for _, r := range []struct {
		on   bool
		name string
	}{{p.Errors, "errors"}, {p.Aborted, "aborted"}, {p.Retracted, "retracted"}, {p.Tools, "failed tool calls"}, {p.Linked, "what is tied to a kept one"}, {p.Slow.P99, "slower than the live p99"}} {
		if r.on {
			words = append(words, r.name)
		}
	}
	for _, l := range []struct {
		name  string
		limit time.Duration
	}{{"TTFT", p.Slow.TTFT}, {"ITL", p.Slow.ITL}, {"end to end", p.Slow.E2E}, {"queue", p.Slow.Queue}, {"transfer", p.Slow.Transfer}} {
		if l.limit > 0 {
			words = append(words, l.name+" above "+l.limit.String())
		}
	}
	for _, c := range p.Keep {
		words = append(words, "condition "+c.Name)
	}
	return p.Ratio, words
}

func (s *sampling) inForce() tailsample.Options {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policy
}

// sources lists where events come from.
func (p *eventPart) sources() []api.EventSource {
	var out []api.EventSource
	for _, d := range []struct{ name, kind, addr string }{
		{"otlp_grpc", "otlp_grpc", addressOf(p.doors.grpc)}, {"otlp_http", "otlp_http", addressOf(p.doors.http)}, {"tempo", "tempo", addressOf(p.doors.tempo)},
	} {
		if d.addr == "" {
			out = append(out, api.EventSource{Name: d.name, Kind: api.DoorKind, State: "off", Error: p.doors.reasons[d.name]})
		} else {
			out = append(out, api.EventSource{Name: d.addr, Kind: api.DoorKind, State: "listening " + d.name})
		}
	}
	for _, s := range p.receiver.Sources() {
		e := api.EventSource{Name: s.Name, Kind: s.Kind, State: "ok", Count: s.Spans + s.Logs, Error: s.Error, Last: stampOf(s.Last)}
		if s.Error != "" && s.ErrorAt.After(s.Last) {
			e.State = "refused"
		}
		out = append(out, e)
	}
	push := func(list []logpush.Source) {
		for _, s := range list {
			e := api.EventSource{Name: s.Name, Kind: "push", State: "ok", Count: s.Lines, Error: s.Error, Last: stampOf(s.Last)}
			if s.Error != "" {
				e.State = "refused"
			}
			out = append(out, e)
		}
	}
	push(p.push.Sources())
	for _, s := range p.syslog {
		push(s.Sources())
	}
	p.mu.Lock()
	files := p.now.files
	p.mu.Unlock()
	if files != nil {
		for _, s := range files.Status() {
			e := api.EventSource{Name: s.Path, Kind: "log_file", State: s.State, Count: s.Lines, Error: s.Error}
			if s.Last != 0 {
				e.Last = stampOf(time.Unix(0, s.Last))
			}
			out = append(out, e)
		}
	}
	if p.forward != nil {
		for _, s := range p.forward.Endpoints() {
			out = append(out, api.EventSource{Name: s.URL, Kind: "forward", State: s.State, Count: s.Sent, Error: s.Error, Last: stampOf(s.Last)})
		}
	}
	return out
}

// drops are what was not kept of events.
func (p *eventPart) drops() []api.Drop {
	var out []api.Drop
	add := func(source, reason string, n int64) {
		if n > 0 {
			out = append(out, api.Drop{Source: source, Reason: reason, Count: n})
		}
	}
	for _, d := range p.store.Drops() {
		add(d.Source, d.Reason, d.Count)
	}
	for _, d := range p.requests.Drops() {
		add(d.Source, d.Reason, d.Count)
	}
	for _, d := range p.receiver.Drops() {
		add(d.Source, d.Reason, d.Count)
	}
	_, sampled := p.sampling.stats()
	for _, d := range sampled {
		// What sampling throws away is what it is for: it is counted in rollscope_tailsample_* and shown beside what is kept.
		if !strings.HasPrefix(d.Reason, "sampled_away") {
			add(d.Source, d.Reason, d.Count)
		}
	}
	for _, d := range p.push.Drops() {
		add(d.Source, d.Reason, d.Count)
	}
	for _, s := range p.syslog {
		for _, d := range s.Drops() {
			add(d.Source, d.Reason, d.Count)
		}
	}
	p.mu.Lock()
	files := p.now.files
	p.mu.Unlock()
	if files != nil {
		for _, d := range files.Drops() {
			add(d.Source, d.Reason, d.Count)
		}
	}
	if p.forward != nil {
		for _, d := range p.forward.Drops() {
			add(d.Source, d.Reason, d.Count)
		}
	}
	add("holdlog", "damaged", int64(len(p.sampling.held.Damaged())))
	return out
}

// notices are what events have to say to whoever looks at the page.
func (p *eventPart) notices() []api.Warning {
	var out []api.Warning
	st := p.store.State()
	if st.State == eventstore.StateReadOnly || st.State == eventstore.StateDown {
		out = append(out, api.Warning{Code: "events_" + st.State, Message: "spans, logs and requests: " + st.Reason, Where: p.dir,
			Hint: "see docs/events.md"})
	}
	for _, d := range p.store.Drops() {
		if d.Reason == eventstore.TooOld && d.Count > 0 {
			out = append(out, api.Warning{Code: "events_too_old", Where: p.dir,
				Message: fmt.Sprintf("%d spans, log lines or requests were refused: they are older than the %s that events are kept", d.Count, model.Duration(st.Retention)),
				Hint:    "--events.retention keeps them longer; dumps that were read already are read again into an empty data directory"})
		}
	}
	p.mu.Lock()
	out = append(out, p.warnings...)
	p.mu.Unlock()
	return out
}

// Logs implements [api.LogSource].
func (f eventFace) Logs(ctx context.Context, q api.LogQuery) ([]api.LogRecord, string, string, error) {
	query := logQuery(q)
	list, next, err := f.logs.List(ctx, query, q.Limit, q.After)
	if err != nil {
		return nil, "", "", logError(err)
	}
	out := make([]api.LogRecord, len(list))
	for i, r := range list {
		out[i] = logRecord(r)
	}
	text, err := query.LogsQL()
	return out, text, next, err
}

func logQuery(q api.LogQuery) logstore.Query {
	return logstore.Query{From: q.From.UnixNano(), To: q.To.UnixNano(), Filter: q.Filter, Class: q.Class, Level: q.Level,
		Engine: q.Engine, Service: q.Service, RID: q.RID, TraceID: q.TraceID}
}

// logError makes the API's errors of those of the store.
func logError(err error) error {
	var filter *logstore.FilterError
	var query *eventstore.QueryError
	switch {
	case errors.As(err, &filter):
		return &api.Error{Code: "bad_query", Message: filter.Error(), Where: filter.Filter, Hint: "docs/logs.md says what a filter may hold"}
	case errors.As(err, &query):
		return &api.Error{Code: "bad_query", Message: query.Words, Where: query.Query}
	case errors.Is(err, eventstore.ErrDown):
		return &api.Error{Code: "busy", Message: err.Error(), Where: "events", Hint: "what comes in is kept meanwhile; try again in a moment"}
	}
	return err
}

// logRecord is a record as the API has it.
func logRecord(r logstore.Record) api.LogRecord {
	out := api.LogRecord{ID: r.Seq, Time: time.Unix(0, r.Time).UTC().Format(time.RFC3339Nano), Line: r.Line, Service: r.Service, Engine: r.Engine,
		Repeat: 1, Fields: map[string]string{}}
	for _, f := range r.Fields {
		switch f.Name {
		case "level":
			out.Level = f.Value
		case "class":
			out.Class = f.Value
		case "format":
			out.Format = f.Value
		case "source":
			out.Source = f.Value
		case "rid":
			out.RID = f.Value
		case "trace_id":
			out.TraceID = f.Value
		case "span_id":
			out.SpanID = f.Value
		case "marks":
			out.Marks = strings.Split(f.Value, ",")
		case "repeat":
			if n, err := strconv.Atoi(f.Value); err == nil {
				out.Repeat = n
			}
		default:
			out.Fields[f.Name] = f.Value
		}
	}
	return out
}

// Histogram implements [api.LogSource].
func (f eventFace) Histogram(ctx context.Context, q api.LogQuery, step time.Duration, by string) (api.LogHistogram, error) {
	h, err := f.logs.Count(ctx, logQuery(q), step, by)
	if err != nil {
		return api.LogHistogram{}, logError(err)
	}
	out := api.LogHistogram{From: time.Unix(0, h.From).UTC().Format(time.RFC3339Nano), Step: step.Seconds(), By: by, Total: h.Total, Counts: h.Classes}
	for _, name := range slices.Sorted(maps.Keys(h.Series)) {
		out.Series = append(out.Series, api.LogSeries{Name: name, Counts: h.Series[name]})
	}
	return out, nil
}
