package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/requeststore"
)

// fakeRequests has one request of a PD pair and a rollout; it answers with err where there is one.
type fakeRequests struct {
	err error
	got *string // what was asked
}

func (f fakeRequests) note(format string, args ...any) {
	if f.got != nil {
		*f.got = fmt.Sprintf(format, args...)
	}
}

func madeObservations() []request.Observation {
	known := func(v float64) request.Value { return request.Value{V: v, State: request.Known} }
	at := now.UnixNano() - 600e9
	var phases [request.NumPhases]request.Value
	phases[request.DecodeForward], phases[request.DecodePrealloc], phases[request.DecodeBootstrap] = known(3), known(0.5), known(0.25)
	rid := request.Alias{Kind: request.RID, ID: "rid-1"}
	trace := request.Alias{Kind: request.TraceID, ID: "0af7651916cd43dd8448eb211c80319c"}
	room := request.Alias{Kind: request.BootstrapRoom, ID: "8823"}
	return []request.Observation{
		{Source: request.FromTrace, Role: "prefill", Engine: "10.0.0.1:30000", Service: "prefill", Model: "qwen", Start: at, Finish: at + 5e8, Final: true, Outcome: request.Finished, FinishReason: "length",
			Aliases: []request.Alias{rid, trace, room}, Queue: known(0.125), Prefill: known(0.375), CachedTokens: known(64), Spans: 5, SpansKept: "kept"},
		{Source: request.FromTrace, Role: "decode", Engine: "10.0.0.2:30000", Service: "decode", Model: "qwen", Start: at + 1e6, Finish: at + 4e9, Final: true, Outcome: request.Finished, FinishReason: "stop",
			Aliases: []request.Alias{rid, trace, room}, TTFT: known(0.75), E2E: known(4), Phases: phases, CompletionTokens: known(66), PromptTokens: known(100), Spans: 7, SpansKept: "kept"},
		{Source: request.FromDump, Start: at - 2e6, Finish: at + 4e9 + 3e6, Final: true, Outcome: request.Finished, FinishReason: "stop", E2E: known(4.0625), Queue: request.Value{V: -0.5, State: request.Invalid},
			Aliases: []request.Alias{rid, {Kind: request.SampleSpan, ID: "math-7b/train/7/3/s1"}}, Run: "math-7b", Kind: "train", Step: known(7), Sample: known(3)},
	}
}

func madeRequest() request.Settled {
	s := request.Merge(madeObservations())
	s.ID, s.Revision, s.Time = "r0123456789abcdef0123", 2, s.Start
	s.Probable = []request.Probable{{ID: "rffff", TraceID: "0bf7651916cd43dd8448eb211c80319c", Why: "two traces name the rid rid-1 at the same time"}}
	return s
}

func (f fakeRequests) List(_ context.Context, q requeststore.Query, o requeststore.Order, limit int, after string) (requeststore.Page, error) {
	f.note("%d %d %q %q %v %d %q", q.From, q.To, q.Filter, o.By, o.Desc, limit, after)
	if f.err != nil {
		return requeststore.Page{}, f.err
	}
	bare := request.Settled{ID: "rbare", Revision: 1, Time: now.UnixNano(), Flags: []string{request.FlagNoTime}, Outcome: request.Running}
	return requeststore.Page{Requests: []request.Settled{madeRequest(), bare}, Total: 7, Next: "1~2~r"}, nil
}

func (f fakeRequests) Get(_ context.Context, id string) (requeststore.Detail, error) {
	if f.err != nil {
		return requeststore.Detail{}, f.err
	}
	s := madeRequest()
	if id != s.ID {
		return requeststore.Detail{}, requeststore.ErrNotFound
	}
	retry := madeRequest()
	retry.ID = "rretry"
	return requeststore.Detail{Request: s, Observations: madeObservations(), Missing: 1, Related: []request.Settled{retry}, Logs: 12}, nil
}

func (f fakeRequests) Summarize(_ context.Context, q requeststore.Query, by string, t requeststore.Targets) (requeststore.Summary, error) {
	f.note("%d %d %q %q %v", q.From, q.To, q.Filter, by, t)
	if f.err != nil {
		return requeststore.Summary{}, f.err
	}
	whole := requeststore.Group{Count: 4, Outcomes: map[request.Outcome]int64{request.Finished: 3, request.OutcomeUnknown: 1}}
	whole.Quantiles[0] = requeststore.Quantiles{P50: 0.5, P90: 1, P99: 2, Max: 2, Count: 4}
	if t != (requeststore.Targets{}) {
		whole.Good, whole.Judged, whole.GoodTokens = 2, 3, 900
	}
	engine := whole
	engine.Name, engine.Count = fakeFleet[2], 2
	return requeststore.Summary{Groups: []requeststore.Group{whole, engine}, By: by, Cut: 1, HeadSampled: 2}, nil
}

func (f fakeRequests) Points(_ context.Context, q requeststore.Query, x, y, color string, limit int) (requeststore.Points, error) {
	f.note("%s %s %s %d", x, y, color, limit)
	if f.err != nil {
		return requeststore.Points{}, f.err
	}
	return requeststore.Points{Points: []requeststore.Point{{ID: "r1", X: 1767366000.5, Y: 2, Color: "ok"}}, Total: 9, Unplaced: 1, Thin: "1 of 8 requests are shown"}, nil
}

func withRequests(f fakeRequests) func(*Options) { return func(o *Options) { o.Requests = f } }

func TestRequestsGolden(t *testing.T) {
	a := newAPI(t, withRequests(fakeRequests{}))
	for _, c := range []struct{ name, target string }{
		{"requests", ours + "/requests"},
		{"request", ours + "/requests/r0123456789abcdef0123"},
		{"request_summary", ours + "/requests/summary?by=engine&ttft=500ms&itl=0.05"},
		{"request_points", ours + "/requests/points?x=start&y=ttft"},
	} {
		w := ask(a, "GET", c.target, "")
		if w.Code != 200 {
			t.Fatalf("%s: status %d: %s", c.name, w.Code, w.Body)
		}
		golden(t, c.name, w.Body.Bytes())
	}
}

func TestRequestsAreAskedForAsThePageSays(t *testing.T) {
	var got string
	a := newAPI(t, withRequests(fakeRequests{got: &got}))
	from, to := now.Add(-defaultRange).UnixNano(), now.UnixNano()
	for _, c := range []struct{ target, want string }{
		{"/requests", fmt.Sprintf(`%d %d "" "" true 100 ""`, from, to)},
		{"/requests?sort=ttft&desc=1&limit=7&filter=step%3A40&after=1~2~r", fmt.Sprintf(`%d %d "step:40" "ttft" true 7 "1~2~r"`, from, to)},
		{"/requests?sort=start&desc=0", fmt.Sprintf(`%d %d "" "start" false 100 ""`, from, to)},
		{"/requests/summary?by=step&filter=ttft%3E5s", fmt.Sprintf(`%d %d "ttft>5s" "step" {0 0}`, from, to)},
		{"/requests/summary?ttft=2s&itl=50ms", fmt.Sprintf(`%d %d "" "" {2 0.05}`, from, to)},
		{"/requests/points", "start e2e outcome 5000"},
		{"/requests/points?x=prompt_tokens&y=phase.decode_forward&color=role&limit=10", "prompt_tokens phase.decode_forward role 10"},
	} {
		if w := ask(a, "GET", ours+c.target, ""); w.Code != 200 || got != c.want {
			t.Errorf("%s: %d, asked %s\nwant %s", c.target, w.Code, got, c.want)
		}
	}
}

func TestRequestErrors(t *testing.T) {
	_, filter := requeststore.Filter("ttft>fast")
	for _, c := range []struct {
		err          error
		target, code string
		where, hint  string
	}{
		{filter, "/requests", "bad_query", "filter", "docs/requests.md"},
		{filter, "/requests/summary", "bad_query", "filter", ""},
		{filter, "/requests/points", "bad_query", "filter", ""},
		{&requeststore.FieldError{Name: "size", Allowed: []string{"ttft"}}, "/requests?sort=size", "bad_parameter", "size", "ttft"},
		{&requeststore.MarkError{Mark: "x"}, "/requests?after=x", "bad_parameter", "after", "leave it out"},
		{&requeststore.TooManyError{Max: 5}, "/requests", "bad_query", "from", "shorter"},
		{&eventstore.QueryError{Words: "regexp too large"}, "/requests", "bad_query", "filter", ""},
		{fmt.Errorf("%w: connection refused", eventstore.ErrDown), "/requests", "not_ready", "", "/events"},
		{nil, "/requests/nobody", "not_found", "", "/requests"},
		{nil, "/requests?from=x", "bad_parameter", "from", ""},
		{nil, "/requests?limit=0", "bad_parameter", "limit", ""},
		{nil, "/requests?colour=red", "bad_parameter", "colour", ""},
		{nil, "/requests/summary?by=rid", "bad_parameter", "by", "engine"},
		{nil, "/requests/summary?ttft=-1", "bad_parameter", "ttft", "500ms"},
		{nil, "/requests/points?x=engine", "bad_parameter", "x", "ttft"},
		{nil, "/requests/points?color=rid", "bad_parameter", "color", "engine"},
		{errors.New("disk on fire"), "/requests", "internal", "", ""},
	} {
		a := newAPI(t, withRequests(fakeRequests{err: c.err}))
		w := ask(a, "GET", ours+c.target, "")
		var body ErrorBody
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatalf("%s: %v: %s", c.target, err, w.Body)
		}
		if e := body.Error; e.Code != c.code || e.Where != c.where && c.where != "" || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s: %+v", c.target, e)
		}
	}
	none := newAPI(t)
	for _, target := range []string{"/requests", "/requests/r1", "/requests/summary", "/requests/points"} {
		if w := ask(none, "GET", ours+target, ""); w.Code != 404 || !strings.Contains(w.Body.String(), "not_enabled") {
			t.Errorf("%s without a source: %d %s", target, w.Code, w.Body)
		}
	}
}

// A filter has no counterpart in the engines' histograms, so none stands beside its percentiles.
func TestHistogramsOfAFilterAreNotShown(t *testing.T) {
	a := newAPI(t, withRequests(fakeRequests{}))
	for filter, want := range map[string]bool{"": true, "step:40": false} {
		w := ask(a, "GET", ours+"/requests/summary?by=engine&filter="+url.QueryEscape(filter), "")
		var e Envelope[RequestSummary]
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		for _, g := range e.Data.Groups {
			if (g.Quantiles["ttft"].Histogram != nil) != want {
				t.Errorf("filter %q, group %q: %+v", filter, g.Name, g.Quantiles["ttft"])
			}
		}
		if !slices.ContainsFunc(e.Warnings, func(w Warning) bool { return w.Code == "groups_cut" }) {
			t.Errorf("%+v", e.Warnings)
		}
	}
}

// A summary of traces that were sampled before they came says so: by their own word, or when the engines
// counted more requests than any source knows.
func TestSummaryOfSampledTraces(t *testing.T) {
	a := newAPI(t, withRequests(fakeRequests{}))
	from, to := now.Add(-defaultRange), now
	counted := int64(a.countedRequests(t.Context(), from, to))
	if counted < 100 {
		t.Fatalf("the fleet counted %d requests", counted)
	}
	for _, c := range []struct {
		what               string
		traced, seen, said int64
		from               time.Time
		filtered           bool
		want               string
	}{
		{"all are traced", counted, counted, 0, from, false, ""},
		{"a tenth is traced", counted / 10, counted / 10, 0, from, false, "the engines counted"},
		{"the others are known from logs", counted / 10, counted, 0, from, false, ""},
		{"there are no traces", 0, counted / 10, 0, from, false, ""},
		{"counters know no filter", counted / 10, counted / 10, 0, from, true, ""},
		{"counters know no open range", counted / 10, counted / 10, 0, time.Unix(0, 0), false, ""},
		{"they say it", counted, counted, 3, from, true, "3 requests come from traces"},
	} {
		sum := requeststore.Summary{Groups: []requeststore.Group{{Count: c.seen}}, Traced: c.traced, HeadSampled: c.said}
		if got := a.sampledBefore(t.Context(), c.from, to, &sum, c.filtered); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", c.what, got)
		}
	}
}
