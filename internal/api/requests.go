package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/requeststore"
	"github.com/rollscope/rollscope/internal/tailsample"
)

// RequestSource is the table of requests; [requeststore.Store] is one. Its errors are those of that
// package, or an *Error.
type RequestSource interface {
	List(ctx context.Context, q requeststore.Query, o requeststore.Order, limit int, after string) (requeststore.Page, error)
	Get(ctx context.Context, id string) (requeststore.Detail, error)
	Summarize(ctx context.Context, q requeststore.Query, by string, t requeststore.Targets) (requeststore.Summary, error)
	Points(ctx context.Context, q requeststore.Query, x, y, color string, limit int) (requeststore.Points, error)
}

// noRequests is the error of every route while there is no source.
func (a *API) noRequests(r *http.Request) error {
	if a.Requests != nil {
		return nil
	}
	return &Error{Code: "not_enabled", Message: "this process keeps no requests", Where: r.URL.Path,
		Hint: "give serve a source of requests: traces (--traces.otlp-grpc), logs or rollouts; docs/requests.md says more"}
}

// requestFailure makes what cannot be answered as it was asked the client's mistake.
func requestFailure(err error) error {
	var filter *requeststore.FilterError
	var field *requeststore.FieldError
	var many *requeststore.TooManyError
	var mark *requeststore.MarkError
	var query *eventstore.QueryError
	switch {
	case errors.As(err, &filter):
		return &Error{Code: "bad_query", Message: filter.Error(), Where: "filter", Hint: "docs/requests.md says what a filter may hold"}
	case errors.As(err, &field):
		return &Error{Code: "bad_parameter", Message: fmt.Sprintf("there is no field %q here", field.Name), Where: field.Name, Hint: "allowed: " + strings.Join(field.Allowed, ", ")}
	case errors.As(err, &many):
		return &Error{Code: "bad_query", Message: many.Error(), Where: "from", Hint: "ask for a shorter range, or add to the filter"}
	case errors.As(err, &mark):
		return badParameter("after", mark.Mark, "names nothing in this list", "the next of the answer before; leave it out to start again")
	case errors.As(err, &query): // such as a regular expression that is too large there
		return &Error{Code: "bad_query", Message: query.Words, Where: "filter"}
	case errors.Is(err, requeststore.ErrNotFound):
		return &Error{Code: "not_found", Message: err.Error(), Hint: "GET " + ours + "/requests lists them; rows older than the retention of events are gone"}
	case errors.Is(err, eventstore.ErrDown), errors.Is(err, eventstore.ErrClosed):
		return &Error{Code: "not_ready", Message: err.Error(), Hint: "GET " + ours + "/events says how the event store is"}
	}
	return err
}

// requestQuery reads from, to and filter.
func (p *params) requestQuery() requeststore.Query {
	from, to := p.window()
	return requeststore.Query{From: from.UnixNano(), To: to.UnixNano(), Filter: p.text("filter")}
}

const (
	defaultRequests = 100
	maxRequestRows  = 1000
	maxPointsShown  = 20000
)

func (a *API) getRequests(r *http.Request) (any, error) {
	p := a.params(r, "from", "to", "filter", "sort", "desc", "limit", "after")
	q, limit := p.requestQuery(), int(p.whole("limit", defaultRequests, 1, maxRequestRows))
	o := requeststore.Order{By: strings.TrimSuffix(p.text("sort"), "_seconds"), Desc: p.flag("desc")}
	if p.text("sort") == "" && p.text("desc") == "" { // newest first
		o.Desc = true
	}
	if p.err != nil {
		return nil, p.err
	}
	if err := a.noRequests(r); err != nil {
		return nil, err
	}
	page, err := a.Requests.List(r.Context(), q, o, limit, p.text("after"))
	if err != nil {
		return nil, requestFailure(err)
	}
	answer := Requests{Total: &page.Total}
	for i := range page.Requests {
		answer.Requests = append(answer.Requests, requestRow(&page.Requests[i]))
	}
	e := envelope(a, answer)
	e.Next = page.Next
	if page.Total == 0 {
		e.State = StateIdle
	}
	return e, nil
}

// requestRow shows a settled request in the table.
func requestRow(s *request.Settled) RequestRow {
	value := func(n request.Number) *float64 {
		if v, ok := s.Value(n); ok {
			return number(v)
		}
		return nil
	}
	whole := func(n request.Number) *int64 {
		if v, ok := s.Value(n); ok {
			i := int64(v)
			return &i
		}
		return nil
	}
	row := RequestRow{ID: s.ID, Start: stampNano(cmp.Or(s.Start, s.Time)), RID: s.Alias(request.RID), TraceID: s.Alias(request.TraceID),
		Engine: s.Words[request.EngineWord], Prefill: s.Words[request.PrefillEngine], Service: s.Words[request.ServiceWord], Model: s.Words[request.ModelWord],
		Outcome: string(s.Outcome), Finish: s.Words[request.FinishReason],
		TTFT: value(request.TTFT), ITL: value(request.ITL), E2E: value(request.E2E), Queue: value(request.Queue), PrefillS: value(request.Prefill),
		Transfer: value(request.Transfer), Decode: value(request.Decode),
		Prompt: value(request.PromptTokens), Completion: value(request.CompletionTokens), Cached: value(request.CachedTokens),
		Throughput: value(request.DecodeThroughput), Retries: value(request.Retries),
		Run: s.Words[request.RunWord], Kind: s.Words[request.KindWord], Step: whole(request.Step), Sample: whole(request.Sample),
		Spans: cmp.Or(s.SpansKept, "none"), Probable: len(s.Probable), Flags: slices.Clone(s.Flags)}
	if s.SpansKept == "" && s.Spans > 0 { // nobody decided: all that came are kept
		row.Spans = "kept"
	}
	if row.Engine != "" {
		row.EngineID = EngineID("", row.Engine)[1:] // an instance of any job
	}
	for _, x := range s.Sources {
		row.Sources = append(row.Sources, string(x))
	}
	return row
}

func stampNano(ns int64) string { return stamp(time.Unix(0, ns)) }

func (a *API) getRequest(r *http.Request) (any, error) {
	if err := a.noRequests(r); err != nil {
		return nil, err
	}
	if p := a.params(r); p.err != nil {
		return nil, p.err
	}
	d, err := a.Requests.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, requestFailure(err)
	}
	s := &d.Request
	answer := RequestDetail{Request: requestRow(s), Revision: s.Revision, Settled: s.Final, Fields: requestFields(s), Phases: requestPhases(s), Logs: int(d.Logs)}
	for _, x := range s.Aliases {
		answer.Aliases = append(answer.Aliases, RequestAlias{string(x.Kind), x.ID})
	}
	if rest, ok := s.Rest(d.Observations); ok {
		answer.Rest = number(rest)
	}
	for i := range d.Observations {
		answer.Seen = append(answer.Seen, requestSeen(&d.Observations[i]))
	}
	for _, x := range s.Probable {
		answer.Probable = append(answer.Probable, ProbableMatch{x.ID, x.TraceID, x.Why})
	}
	for i := range d.Related {
		answer.Links = append(answer.Links, RequestRelated{d.Related[i].ID, relation(s, &d.Related[i])})
	}
	var warnings []Warning
	if d.Missing > 0 {
		warnings = append(warnings, Warning{Code: "observations_gone", Message: fmt.Sprintf("%d of the observations that this request is made of are no longer stored", d.Missing), Where: s.ID})
	}
	answer.Timeline = a.timelineOfRequest(r.Context(), &answer.Request)
	return envelope(a, answer, warnings), nil
}

// timelineOfRequest is the timeline that the request's sample is in, "" without one.
func (a *API) timelineOfRequest(ctx context.Context, row *RequestRow) string {
	if a.Rollouts == nil || row.Run == "" || row.Step == nil {
		return ""
	}
	step, err := a.Rollouts.Step(ctx, StepKey{Run: row.Run, Kind: row.Kind, ID: *row.Step, Attempt: -1})
	if err != nil { // the step is gone; the request is not
		return ""
	}
	return step.Step.Timeline
}

// relation says what another request has to do with s.
func relation(s, other *request.Settled) string {
	same := func(k request.AliasKind) bool { return s.Alias(k) != "" && s.Alias(k) == other.Alias(k) }
	switch {
	case same(request.RID):
		return "another try of the same rid"
	case same(request.XRequestID):
		return "the same x-request-id"
	case same(request.TraceID):
		return "the same trace"
	}
	return "one of its ids"
}

// requestFields are all fields that anybody said something about.
func requestFields(s *request.Settled) []RequestField {
	var out []RequestField
	add := func(rule *request.FieldRule, value, from string) {
		others := s.Others[rule.Name]
		if value == "" && len(others) == 0 {
			return
		}
		f := RequestField{Name: rule.Name, Value: value, Unit: rule.Unit, From: from, Others: map[string]string{}}
		for _, o := range others {
			if was, twice := f.Others[o.Source]; twice {
				f.Others[o.Source] = was + ", " + o.Text
			} else {
				f.Others[o.Source] = o.Text
			}
		}
		out = append(out, f)
	}
	add(&request.FieldRule{Name: "outcome"}, string(s.Outcome), "")
	for w := range request.NumWords {
		add(&request.Words[w], s.Words[w], s.WordFrom[w])
	}
	for n := range request.NumNumbers {
		v := s.Numbers[n]
		text := ""
		switch v.State {
		case request.Known:
			text = strconv.FormatFloat(v.V, 'f', -1, 64)
		case request.Invalid:
			text = strconv.FormatFloat(v.V, 'f', -1, 64) + " (invalid)"
		}
		add(&request.Numbers[n], text, s.NumberFrom[n])
	}
	return out
}

// requestPhases are the stretches of a request whose length is known, each followed by those it holds.
func requestPhases(s *request.Settled) []RequestPhase {
	var out []RequestPhase
	add := func(n request.Number, name, class string, depth int) {
		if v, ok := s.Value(n); ok {
			out = append(out, RequestPhase{Name: name, Class: class, Depth: depth, Seconds: number(v), From: s.NumberFrom[n]})
		}
	}
	phases := func(from, to request.Phase) {
		for p := from; p <= to; p++ {
			depth := 1
			if p.Holder() != p {
				depth = 2
			}
			add(request.PhaseNumber(p), p.String(), p.String(), depth)
		}
	}
	add(request.Queue, "queue", "queue", 0)
	phases(request.PrefillBootstrapQueue, request.PrefillAllocWait)
	add(request.Prefill, "prefill", "prefill", 0)
	phases(request.PrefillForward, request.PrefillTransferQueue)
	phases(request.DecodePrealloc, request.DecodeAllocWait)
	add(request.Transfer, "transfer", request.DecodeTransfer.String(), 0)
	add(request.Decode, "decode", "decode", 0)
	phases(request.DecodeForward, request.DecodeForward)
	return out
}

// requestSeen is what one source said, as it is stored.
func requestSeen(o *request.Observation) RequestSeen {
	seen := RequestSeen{Source: string(o.Source), Engine: o.Engine, Role: o.Role, Fields: o.Texts()}
	if o.Start != 0 {
		seen.Start = stampNano(o.Start)
	}
	return seen
}

func (p *params) target(name string) (v float64) {
	text := p.text(name)
	if text == "" {
		return 0
	}
	d, err := parseDuration(text)
	if err != nil || d <= 0 {
		p.fail(badParameter(name, text, "is no target", "seconds (0.5) or a duration (500ms, 2s), above 0"))
	}
	return d.Seconds()
}

// histograms are the signals whose percentile stands beside the exact one, in the order of
// requeststore.Latencies.
var histograms = [...]string{"ttft", "itl", "e2e", "queue_time", "prefill_time", "kv_transfer_latency", "decode_time"}

// latencyNames are the keys of RequestGroup.Quantiles.
var latencyNames = func() (out []string) {
	for _, n := range requeststore.Latencies {
		out = append(out, request.Numbers[n].Name)
	}
	return out
}()

func (a *API) getRequestSummary(r *http.Request) (any, error) {
	p := a.params(r, "from", "to", "filter", "by", "ttft", "itl")
	from, to := p.window()
	q := requeststore.Query{From: from.UnixNano(), To: to.UnixNano(), Filter: p.text("filter")}
	by := p.oneOf("by", "", requeststore.Groups...)
	targets := requeststore.Targets{TTFT: p.target("ttft"), ITL: p.target("itl")}
	if p.err != nil {
		return nil, p.err
	}
	if err := a.noRequests(r); err != nil {
		return nil, err
	}
	sum, err := a.Requests.Summarize(r.Context(), q, by, targets)
	if err != nil {
		return nil, requestFailure(err)
	}
	answer := RequestSummary{By: by}
	if targets.TTFT > 0 {
		answer.TTFT = &targets.TTFT
	}
	if targets.ITL > 0 {
		answer.ITL = &targets.ITL
	}
	seconds := to.Sub(from).Seconds()
	if from.UnixNano() <= 0 { // of all that there is: how long that is nobody knows
		seconds = 0
	}
	estimated := a.sampledBefore(r.Context(), from, to, &sum, strings.TrimSpace(q.Filter) != "")
	for i := range sum.Groups {
		answer.Groups = append(answer.Groups, requestGroup(&sum.Groups[i], targets != (requeststore.Targets{}), seconds, estimated))
	}
	var warnings []Warning
	if estimated != "" {
		warnings = append(warnings, Warning{Code: "head_sampled", Message: "counts and percentiles are not of all requests: " + estimated})
	}
	if sum.Cut > 0 {
		warnings = append(warnings, Warning{Code: "groups_cut", Message: fmt.Sprintf("the %d smallest groups are not listed; the whole has them", sum.Cut)})
	}
	if more, err := a.histogramsOf(r.Context(), from, to, by, strings.TrimSpace(q.Filter) != "", answer.Groups); err != nil {
		warnings = append(warnings, Warning{Code: "no_histograms", Message: "the engines' histograms cannot be read: " + err.Error()})
	} else {
		warnings = append(warnings, more...)
	}
	e := envelope(a, answer, warnings)
	if sum.Groups[0].Count == 0 {
		e.State = StateIdle
	}
	return e, nil
}

// sampledBefore says why a summary is not of all requests, "" when nothing speaks for that: traces of which
// a sampler before us threw others away, by their own word or beside the engines' counters. A filter has no
// counterpart there.
func (a *API) sampledBefore(ctx context.Context, from, to time.Time, sum *requeststore.Summary, filtered bool) string {
	if sum.HeadSampled > 0 {
		return fmt.Sprintf("head-sampled input: %d requests come from traces of which a part was thrown away before it came here", sum.HeadSampled)
	}
	if a.Reader == nil || filtered || sum.Traced == 0 || from.UnixNano() <= 0 {
		return ""
	}
	counted := a.countedRequests(ctx, from, to)
	judge := func(n int64) tailsample.Judgement {
		return tailsample.HeadSampled(tailsample.Input{Observed: float64(n), Counted: counted})
	}
	// What traces lack may be known from logs and dumps.
	if j := judge(sum.Traced); j.State == "sampled" && judge(sum.Groups[0].Count).State == "sampled" {
		return "head-sampled input: " + j.Reason
	}
	return ""
}

func requestGroup(g *requeststore.Group, judged bool, seconds float64, estimated string) RequestGroup {
	out := RequestGroup{Name: g.Name, Estimated: estimated, Count: g.Count, Outcomes: map[string]int64{}, Quantiles: map[string]RequestQuantiles{}}
	for o, n := range g.Outcomes {
		out.Outcomes[cmp.Or(string(o), "unknown")] += n
	}
	for i, q := range g.Quantiles {
		one := RequestQuantiles{Count: q.Count}
		if q.Count > 0 {
			one.P50, one.P90, one.P99, one.Max = number(q.P50), number(q.P90), number(q.P99), number(q.Max)
		}
		out.Quantiles[latencyNames[i]] = one
	}
	if judged {
		out.Good, out.Judged = &g.Good, &g.Judged
		if g.Judged > 0 {
			out.Goodput = number(float64(g.Good) / float64(g.Judged))
			if seconds > 0 {
				out.GoodRate = number(float64(g.Good) / seconds)
			}
		}
	}
	return out
}

// histogramsOf puts the p99 of the engines' own histograms beside the exact ones: for all requests, and for
// each engine or model. A filter has no counterpart there.
func (a *API) histogramsOf(ctx context.Context, from, to time.Time, by string, filtered bool, groups []RequestGroup) ([]Warning, error) {
	if a.Reader == nil || filtered || len(groups) == 0 || groups[0].Count == 0 {
		return nil, nil
	}
	kinds := []string{"fleet"}
	if by == "engine" || by == "model" {
		kinds = append(kinds, by)
	}
	var warnings []Warning
	for i, id := range histograms {
		name := latencyNames[i]
		if groups[0].Quantiles[name].Count == 0 {
			continue
		}
		if _, known := a.Catalog.Signal(id); !known {
			continue
		}
		for _, kind := range kinds {
			data, more, err := a.Reader.Signal(ctx, SignalRequest{ID: id, From: to, To: to, Step: to.Sub(from), By: kind, Quantiles: []float64{0.99}, Window: to.Sub(from)})
			if err != nil {
				return warnings, fmt.Errorf("%s: %w", id, err)
			}
			warnings = append(warnings, more...)
			for _, l := range data.Lines {
				for g := range groups {
					if kind == "fleet" && g == 0 || kind != "fleet" && g > 0 && (l.Name == groups[g].Name || l.Labels["instance"] == groups[g].Name) {
						q := groups[g].Quantiles[name]
						now := l.Now
						q.Histogram = &now
						groups[g].Quantiles[name] = q
					}
				}
			}
		}
	}
	return warnings, nil
}

func (a *API) getRequestPoints(r *http.Request) (any, error) {
	p := a.params(r, "from", "to", "filter", "x", "y", "color", "limit")
	q := p.requestQuery()
	axes := append([]string{"start"}, requeststore.NumberFields()...)
	x, y := p.oneOf("x", "start", axes...), p.oneOf("y", "e2e", axes...)
	color := p.oneOf("color", "outcome", requeststore.Colors...)
	limit := int(p.whole("limit", 5000, 1, maxPointsShown))
	if p.err != nil {
		return nil, p.err
	}
	if err := a.noRequests(r); err != nil {
		return nil, err
	}
	got, err := a.Requests.Points(r.Context(), q, x, y, color, limit)
	if err != nil {
		return nil, requestFailure(err)
	}
	answer := RequestPoints{Shown: len(got.Points), Total: got.Total, Thin: got.Thin, Fields: axes}
	for _, f := range requeststore.Colors {
		if !slices.Contains(answer.Fields, f) { // step is both
			answer.Fields = append(answer.Fields, f)
		}
	}
	for _, pt := range got.Points {
		answer.IDs = append(answer.IDs, pt.ID)
		answer.X = append(answer.X, number(pt.X))
		answer.Y = append(answer.Y, number(pt.Y))
		answer.Color = append(answer.Color, pt.Color)
	}
	var warnings []Warning
	if got.Unplaced > 0 {
		warnings = append(warnings, Warning{Code: "no_value", Message: fmt.Sprintf("%d of %d requests have no %s or no %s and are not shown", got.Unplaced, got.Total, x, y)})
	}
	e := envelope(a, answer, warnings)
	if got.Total == 0 {
		e.State = StateIdle
	}
	return e, nil
}
