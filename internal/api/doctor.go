package api

import (
	"context"
	"math"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/diagnose"
	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/logsql"
	"github.com/rollscope/rollscope/internal/requeststore"
	"github.com/rollscope/rollscope/internal/span"
	"github.com/rollscope/rollscope/internal/tailsample"
	"github.com/rollscope/rollscope/internal/tracestore"
)

// getDoctorTracing judges the set-up of tracing by what arrived in a range. What could not be looked at is
// a warning: the findings are then those of the rest.
func (a *API) getDoctorTracing(r *http.Request) (any, error) {
	p := a.params(r, "from", "to")
	from, to := p.window()
	if p.err != nil {
		return nil, p.err
	}
	if a.Traces == nil {
		return nil, &Error{Code: "not_enabled", Message: "this process has no traces, so there is nothing to judge", Where: r.URL.Path,
			Hint: "run `rollscope serve`, or open a directory that has events"}
	}
	ev, looked, warnings := a.tracingEvidence(r.Context(), from, to)
	answer := TracingReport{From: stamp(from), To: stamp(to), Looked: looked}
	for _, f := range diagnose.Tracing(ev) {
		answer.Findings = append(answer.Findings, Finding{Code: f.Code, Severity: string(f.Severity), Subject: f.Subject, What: f.What, Evidence: f.Evidence, Do: f.Do})
	}
	e := envelope(a, answer)
	e.Warnings = warnings
	return e, nil
}

// tracesLookedAt is how many of the newest traces are looked at for requests that stand in several.
const tracesLookedAt = 500

// tracingEvidence collects what is known. looked says in words how much that is.
func (a *API) tracingEvidence(ctx context.Context, from, to time.Time) (ev diagnose.TracingEvidence, looked Looked, warnings []Warning) {
	skipped := func(what string, err error) {
		warnings = append(warnings, Warning{Code: "not_looked_at", Message: what + " could not be looked at: " + err.Error()})
	}
	ev.Receiver = a.receiver()
	stats, err := a.traceStats(ctx, from.UnixNano(), to.UnixNano())
	if err != nil {
		skipped("what services send", err)
	}
	senders, err := a.Traces.Senders(ctx, from.UnixNano(), to.UnixNano())
	if err != nil {
		skipped("who sends", err)
	}
	for i := range stats {
		s := service(&stats[i], senders)
		looked.Spans += s.Spans
		ev.Services = append(ev.Services, s)
	}
	looked.Services = len(stats)
	if ev.Engines, err = a.tracedEngines(ctx, from, to, senders); err != nil {
		skipped("engines", err)
	}
	looked.Engines = len(ev.Engines)
	if err := a.lookAtTraces(ctx, from, to, &ev); err != nil {
		skipped("how spans hang together", err)
	}
	looked.Traces = ev.Traces
	if a.Logs != nil {
		words := diagnose.TracingLines()
		for i, w := range words {
			words[i] = regexp.QuoteMeta(w)
		}
		// Engines say it when they start, which may be long ago.
		list, _, _, err := a.Logs.Logs(ctx, LogQuery{From: from.Add(-24 * time.Hour), To: to, Limit: 500, Filter: logsql.Match("_msg", strings.Join(words, "|"))})
		if err != nil {
			skipped("logs", err)
		}
		for _, l := range list {
			ev.Lines = append(ev.Lines, diagnose.Line{Source: l.Source, Engine: l.Engine, Text: l.Line})
		}
		looked.Lines = len(list)
	}
	if j := a.headSampling(ctx, from, to); j.State == "sampled" && looked.Spans > 0 {
		ev.HeadSampled = j.Reason
	}
	return ev, looked, warnings
}

// receiver is what this process receives with.
func (a *API) receiver() diagnose.Receiver {
	if a.Events == nil || a.Events.Push() == nil {
		return diagnose.Receiver{Unknown: true}
	}
	out := diagnose.Receiver{Loopback: true, Rejected: map[string]int64{}}
	status := a.Events.Status()
	var why []string
	for _, s := range status.Sources {
		if s.Kind != DoorKind {
			if strings.HasPrefix(s.Kind, "otlp") {
				out.Spans += s.Count
			}
			continue
		}
		name, open := strings.CutPrefix(s.State, "listening ")
		switch {
		case open && name == "otlp_grpc":
			out.GRPC = s.Name
		case open && name == "otlp_http":
			out.HTTP = s.Name
		case open:
			continue
		case s.Name == "otlp_grpc" || s.Name == "otlp_http":
			why = append(why, s.Name+": "+s.Error)
			continue
		}
		host, _, err := net.SplitHostPort(s.Name)
		ip := net.ParseIP(host)
		out.Loopback = out.Loopback && err == nil && ip != nil && ip.IsLoopback()
	}
	out.Reason = strings.Join(why, "; ")
	if a.Options.Drops != nil {
		for _, d := range a.Options.Drops() {
			if d.Source == "otlp" {
				out.Rejected[d.Reason] += d.Count
			}
		}
	}
	return out
}

// service is a sender as the diagnosis wants it.
func service(s *tracestore.ServiceStats, senders []tracestore.Sender) diagnose.Service {
	out := diagnose.Service{Name: s.Service, Spans: s.Spans, Level: s.Level, DroppedAttrs: s.Dropped}
	if s.PerHour > 0 {
		out.SpansPerHour = s.PerHour
	}
	for _, n := range s.Names {
		switch span.Explain(sampleName(n.Name)).System {
		case "sglang":
			out.SGLang = true
		case "dynamo":
			out.Dynamo = true
		}
	}
	processes := map[string]bool{}
	for _, x := range senders {
		if x.Service == s.Service && x.Process != "" {
			processes[x.Process] = true
		}
	}
	out.Instances = len(processes)
	return out
}

// sampleName is a name that a family of names, as "Req *", stands for.
func sampleName(name string) string {
	if f, ok := strings.CutSuffix(name, "*"); ok {
		return f + "00000000"
	}
	return name
}

// tracedEngines lists the engines that worked in the range, and whether spans of them arrived.
func (a *API) tracedEngines(ctx context.Context, from, to time.Time, senders []tracestore.Sender) ([]diagnose.Engine, error) {
	list, _, err := a.Reader.Engines(ctx, from, to)
	if err != nil {
		return nil, err
	}
	sent := map[string]bool{}
	for _, s := range senders {
		sent[s.Engine] = true
	}
	data, _, err := a.Reader.Signal(ctx, SignalRequest{ID: "request_rate", From: to, To: to, Step: to.Sub(from), Window: to.Sub(from), By: "engine"})
	if err != nil {
		return nil, err
	}
	busy := map[string]bool{}
	for _, l := range data.Lines {
		for _, v := range l.Values {
			busy[l.Labels["instance"]] = busy[l.Labels["instance"]] || v != nil && *v > 0
		}
	}
	out := make([]diagnose.Engine, 0, len(list))
	for _, e := range list {
		out = append(out, diagnose.Engine{Name: e.Instance, Backend: e.Backend, Busy: busy[e.Instance], Spans: sent[e.Instance]})
	}
	return out, nil
}

// lookAtTraces looks at how the spans of the newest traces hang together.
func (a *API) lookAtTraces(ctx context.Context, from, to time.Time, ev *diagnose.TracingEvidence) error {
	cov, err := a.traceCoverage(ctx, from.UnixNano(), to.UnixNano())
	if err != nil {
		return err
	}
	ev.Traces, ev.Orphaned, ev.WithoutEngine = cov.Traces, cov.Orphaned, map[string]diagnose.Share{}
	for _, s := range cov.Services() {
		for _, sender := range ev.Services {
			if sender.Name == s.Service && !sender.SGLang {
				ev.WithoutEngine[s.Service] = diagnose.Share{Lacking: s.Lacking, Of: s.Traces}
			}
		}
	}
	res, err := a.Traces.Search(ctx, tracestore.Query{From: from.UnixNano(), To: to.UnixNano(), Limit: tracesLookedAt, SpansPerTrace: 1, Order: tracestore.Newest})
	if err != nil {
		return err
	}
	byRequest := map[string]int{}
	for i := range res.Traces {
		if rid := res.Traces[i].RID; rid != "" {
			byRequest[rid]++
		}
	}
	for _, n := range byRequest {
		if n > 1 {
			ev.SplitRequests++
		}
	}
	return nil
}

// headSampling judges whether what arrived was sampled before it came here: then rates and percentiles
// that are made of traces are not those of all requests.
func (a *API) headSampling(ctx context.Context, from, to time.Time) tailsample.Judgement {
	in := tailsample.Input{Observed: -1, Counted: math.NaN()}
	if a.Requests != nil && a.Reader != nil {
		in.Counted = a.countedRequests(ctx, from, to)
	}
	if in.Counted > 0 {
		q := requeststore.Query{From: from.UnixNano(), To: to.UnixNano(), Filter: "source:trace"}
		if page, err := a.Requests.List(ctx, q, requeststore.Order{Desc: true}, 1, ""); err == nil {
			in.Observed = float64(page.Total)
		}
	}
	return tailsample.HeadSampled(in)
}

// settled is how long a request may take from its end until the table has it.
const settled = 2 * time.Minute

// countedRequests is how many requests the engines' own counters saw end in a range, NaN when there are
// none. A request of a prefill engine is counted once, where it ends; what ended a moment ago is left out,
// since the table may not have it yet.
func (a *API) countedRequests(ctx context.Context, from, to time.Time) float64 {
	if latest := time.Now().Add(-settled); to.After(latest) {
		to = latest
	}
	if to.Sub(from) < settled {
		return math.NaN()
	}
	data, _, err := a.Reader.Signal(ctx, SignalRequest{ID: "request_rate", From: to, To: to, Step: to.Sub(from), Window: to.Sub(from), By: "role"})
	if err != nil {
		return math.NaN()
	}
	total, some := 0.0, false
	for _, l := range data.Lines {
		if l.Labels["role"] == string(engine.Prefill) {
			continue
		}
		if n := len(l.Values); n > 0 && l.Values[n-1] != nil {
			total, some = total+*l.Values[n-1]*to.Sub(from).Seconds(), true
		}
	}
	if !some {
		return math.NaN()
	}
	return total
}
