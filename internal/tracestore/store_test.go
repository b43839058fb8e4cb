package tracestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/eventstore/eventtest"
	"github.com/rollscope/rollscope/internal/span"
)

// TestMain runs the test binary as the event store's process when the store starts it.
func TestMain(m *testing.M) {
	eventtest.Child()
	code := m.Run()
	if sharedStop != nil {
		sharedStop()
	}
	os.Exit(code)
}

// base is where the made traces begin: the times of the shared cases.
const base = int64(1_780_000_000_000_000_000)

func now() time.Time { return time.Unix(0, base).Add(time.Hour).UTC() }

var (
	sharedOnce sync.Once
	shared     *eventstore.Store
	sharedErr  error
	sharedStop func()
)

// openStore starts an event store with a process of its own.
func openStore(dir string) (*eventstore.Store, func(), error) { return openStoreWith(dir, 0) }

func openStoreWith(dir string, memory int64) (*eventstore.Store, func(), error) {
	o := eventstore.Options{Dir: dir, Now: now, Command: eventtest.Command, Retention: 5 * 365 * 24 * time.Hour, MemoryBytes: memory}
	ctx, cancel := context.WithCancel(context.Background())
	es, err := eventstore.Open(ctx, o)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = es.Run(ctx) }()
	return es, func() { cancel(); <-done; _ = es.Close(); _ = os.RemoveAll(dir) }, nil
}

// store returns one with every trace of this file in it.
func store(t *testing.T) *Store {
	t.Helper()
	if testing.Short() {
		t.Skip("needs the event store's process")
	}
	sharedOnce.Do(func() {
		dir, err := os.MkdirTemp("", "traces")
		if err != nil {
			sharedErr = err
			return
		}
		if shared, sharedStop, sharedErr = openStore(dir); sharedErr != nil {
			return
		}
		var spans []span.Span
		for _, file := range []string{"O07/orphan.json", "O07/split.json", "O09/lead.json"} {
			list, err := readOTLP("testdata/" + file)
			if err != nil {
				sharedErr = err
				return
			}
			spans = append(spans, list...)
		}
		spans = append(spans, madeSpans()...)
		sharedErr = write(shared, spans)
	})
	if sharedErr != nil {
		t.Fatal(sharedErr)
	}
	return New(shared, Options{Now: now, Budget: time.Hour})
}

func readOTLP(path string) ([]span.Span, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pb, _, err := span.FromJSON(raw)
	if err != nil {
		return nil, err
	}
	scopes, err := span.Scan(pb, nil)
	if err != nil {
		return nil, err
	}
	var out []span.Span
	for i := range scopes {
		for j := range scopes[i].Spans {
			var s span.Span
			if err := span.Decode(&scopes[i], &scopes[i].Spans[j], &s); err != nil {
				return nil, err
			}
			out = append(out, s.Clone())
		}
	}
	return out, nil
}

func write(es *eventstore.Store, spans []span.Span) error {
	ctx := context.Background()
	rows := make([]event.Row, len(spans))
	for i := range spans {
		spans[i].Row(&rows[i])
	}
	if err := es.Append(ctx, rows); err != nil {
		return err
	}
	return es.Flush(ctx)
}

// made makes a span: at and for are milliseconds from base.
func made(trace byte, id, parent byte, service, name string, at, dur int64, attrs ...string) span.Span {
	s := span.Span{Service: service, Resource: []span.Attr{{Key: "service.name", Value: span.Value{Str: service}}}, ScopeName: "test"}
	s.Trace, s.ID, s.Name, s.Kind = span.TraceID{0: 0xaa, 15: trace}, span.ID{6: trace, 7: id}, name, 1
	if parent != 0 {
		s.Parent = span.ID{6: trace, 7: parent}
	}
	s.Start = base + at*1e6
	s.End = s.Start + dur*1e6
	for i := 0; i+1 < len(attrs); i += 2 {
		s.Attrs = append(s.Attrs, span.Attr{Key: attrs[i], Value: span.Value{Str: attrs[i+1]}})
	}
	return s
}

// madeSpans are ten requests through a frontend, a router and an engine; one fails, one is slow, one has no root.
func madeSpans() []span.Span {
	var out []span.Span
	for i := range byte(10) {
		at := int64(i) * 60_000
		dur := int64(1000)
		if i == 3 {
			dur = 9000
		}
		rid := fmt.Sprintf("rid-%d", i)
		root := made(i+1, 1, 0, "dynamo-frontend", "http-request", at, dur, "x-request-id", fmt.Sprintf("my-trace-%03d", i), "http.status_code", "200")
		root.Kind = 2
		worker := made(i+1, 2, 1, "dynamo-worker-1", "handle_payload", at+10, dur-20)
		req := made(i+1, 3, 2, "sglang", fmt.Sprintf(" Req %08x", i), at+20, dur-40, "rid", rid, "bootstrap_room", fmt.Sprintf("0x%x", 4096+int(i)),
			"gen_ai.usage.completion_tokens", fmt.Sprint(100*int(i)))
		req.Attrs[len(req.Attrs)-1].Value.Type = span.Int
		if i == 5 {
			req.Status, req.StatusMessage = span.Failed, "aborted: out of memory"
			req.Events = []span.Event{{Time: req.Start + 5e6, Name: "retract", Attrs: []span.Attr{{Key: "reason", Value: span.Value{Str: "kv"}}}}}
		}
		if i != 7 {
			out = append(out, root)
		}
		out = append(out, worker, req)
		for n := range byte(3) {
			out = append(out, made(i+1, 10+n, 3, "sglang", "decode_loop", at+30+int64(n)*10, 8))
		}
	}
	// Two traces that end with the same 64 bits.
	a, b := made(1, 1, 0, "twin", "one", 0, 5), made(1, 1, 0, "twin", "two", 1, 5)
	a.Trace, b.Trace = span.TraceID{0: 1, 8: 0xfe, 15: 0xed}, span.TraceID{0: 2, 8: 0xfe, 15: 0xed}
	return append(out, a, b, made(99, 1, 0, "lower", "short", 0, 1))
}

func find(t *testing.T, st *Store, query string, change func(*Query)) Result {
	t.Helper()
	q, err := ParseTraceQL(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	q.From, q.To = base-int64(time.Hour), base+int64(time.Hour)
	q.Limit = 100
	if change != nil {
		change(&q)
	}
	res, err := st.Search(t.Context(), q)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return res
}

// ends are the last digits of the traces' ids, enough to know the made ones.
func ends(list []Found) string {
	var out []string
	for _, f := range list {
		out = append(out, strings.TrimLeft(f.ID.String()[16:], "0"))
	}
	return strings.Join(out, " ")
}

// TestSearch asks for the made traces, newest first.
func TestSearch(t *testing.T) {
	st := store(t)
	for query, want := range map[string]string{
		`{resource.service.name="dynamo-frontend"}`:                           "a 9 7 6 5 4 3 2 1",
		`{name="Req *" && duration>5s}`:                                       "4",
		`{name="http-request" && duration>=9s}`:                               "4",
		`{status=error}`:                                                      "6",
		`{status=error && span.rid="rid-5"}`:                                  "6",
		`{span.rid=~"rid-[23]"}`:                                              "4 3",
		`{.rid="rid-0" || .rid="rid-9"}`:                                      "a 1",
		`{span.x-request-id="my-trace-001"}`:                                  "2",
		`{rootServiceName="dynamo-frontend" && span.rid!="rid-9"}`:            "9 7 6 5 4 3 2 1",
		`{rootName="http-request" && name="decode_loop" && traceDuration>2s}`: "4",
		`{span.gen_ai.usage.completion_tokens>=800}`:                          "a 9",
		`{span.gen_ai.usage.completion_tokens=800}`:                           "9",
		`{nestedSetParent<0 && duration>5s}`:                                  "4",
		`{resource.service.name="sglang" && kind=server}`:                     "",
		`{kind=server && name="http-request"} && {status=error}`:              "6",
		`{status=error} && {resource.service.name="nobody"}`:                  "",
		`{status=error} || {span.rid="rid-1"}`:                                "6 2",
		`{event:name="retract" && event.reason="kv"}`:                         "6",
		`{event.reason="other"}`:                                              "",
		`{statusMessage=~".*out of memory"}`:                                  "6",
		`{span.rid="rid-1\" or trace_id:* or \"" || span.rid="rid-1|*"}`:      "",
		`{resource.service.name="sglang" && span.bootstrap_room="0x1003"}`:    "4",
		`{span.request.id="r-17"}`:                                            "7 6",
	} {
		res := find(t, st, query, nil)
		if got := ends(res.Traces); got != want || res.Partial != "" {
			t.Errorf("%s\n found %q (%s)\n want  %q", query, got, res.Partial, want)
		}
	}
}

// TestSearchAnswer looks at one answer in full: counts, root, services, what matched.
func TestSearchAnswer(t *testing.T) {
	st := store(t)
	res := find(t, st, `{name="decode_loop"}`, func(q *Query) {
		q.SpansPerTrace = 2
		q.Order = Slowest
		q.MinDuration = 500 * time.Millisecond
		q.Limit = 3
	})
	if len(res.Traces) != 3 {
		t.Fatalf("%d traces, want 3", len(res.Traces))
	}
	res = find(t, st, `{span.rid="rid-3"}`, nil)
	f := res.Traces[0]
	if f.Root != "http-request" || f.RootService != "dynamo-frontend" || f.Spans != 6 || f.Errors != 0 || f.End-f.Start != 9e9 || f.RID != "rid-3" || f.RequestID != "my-trace-003" ||
		f.Count != 1 || f.Matched[0].Name != " Req 00000003" || f.Services["sglang"].Spans != 4 || f.Orphans {
		t.Errorf("the slow trace is %+v", f)
	}
	f = find(t, st, `{span.rid="rid-7"}`, nil).Traces[0]
	if !f.Orphans || f.Root != "" || f.RootService != "dynamo-worker-1" || f.Spans != 5 {
		t.Errorf("the trace without a root is %+v", f)
	}
	// The slowest of all, and the bounds of a trace's own duration.
	slow := find(t, st, `{resource.service.name="sglang"}`, func(q *Query) { q.Order = Slowest; q.Limit = 1 })
	if ends(slow.Traces) != "4" {
		t.Errorf("the slowest is %s, want 4", ends(slow.Traces))
	}
	short := find(t, st, `{}`, func(q *Query) { q.MaxDuration = 10 * time.Millisecond })
	for _, f := range short.Traces {
		if f.End-f.Start > 10e6 {
			t.Errorf("%s lasts %d ns", f.ID, f.End-f.Start)
		}
	}
	long := find(t, st, `{}`, func(q *Query) { q.MinDuration = 3 * time.Second })
	if ends(long.Traces) != "4" {
		t.Errorf("of at least 3 s: %s, want 4", ends(long.Traces))
	}
	// A limit keeps the newest.
	if got := ends(find(t, st, `{name="handle_payload"}`, func(q *Query) { q.Limit = 3 }).Traces); got != "a 9 8" {
		t.Errorf("the newest three are %s", got)
	}
	// No range at all.
	if got := find(t, st, `{span.rid="rid-2"}`, func(q *Query) { q.From, q.To = 0, 0 }); ends(got.Traces) != "3" {
		t.Errorf("without a range: %s", ends(got.Traces))
	}
}

// TestLookup is case O09, and what else may be typed in the place of a trace's id.
func TestLookup(t *testing.T) {
	st := store(t)
	const lead = "00fbb99bfc59174ccefa0338d4886914"
	for _, c := range []struct{ ask, want, by string }{
		{lead, lead, ""},
		{"fbb99bfc59174ccefa0338d4886914", lead, ""},
		{"FBB99BFC59174CCEFA0338D4886914", lead, ""},
		{"  0x00fbb99bfc59174ccefa0338d4886914 ", lead, ""},
		{"cefa0338d4886914", lead, ""},
		{"my-trace-001", "aa000000000000000000000000000002", "x_request_id"},
		{"rid-3", "aa000000000000000000000000000004", "rid"},
		{"0x1003", "aa000000000000000000000000000004", "bootstrap_room"},
		{"4099", "aa000000000000000000000000000004", "bootstrap_room"},
		{"0000000000000203", "aa000000000000000000000000000002", "span_id"},
	} {
		tr, err := st.Trace(t.Context(), c.ask, 0, 0)
		if err != nil {
			t.Errorf("%q: %v", c.ask, err)
			continue
		}
		if tr.ID.String() != c.want || tr.By != c.by || len(tr.Others) != 0 {
			t.Errorf("%q: %s by %q, %d others; want %s by %q", c.ask, tr.ID, tr.By, len(tr.Others), c.want, c.by)
		}
	}
	tr, err := st.Trace(t.Context(), "fe000000000000ed", 0, 0)
	if err != nil || len(tr.Others) != 1 || tr.ID == tr.Others[0] {
		t.Errorf("the low half of two traces: %s, others %v, %v", tr.ID, tr.Others, err)
	}
	tr, err = st.Trace(t.Context(), "r-17", 0, 0)
	if err != nil || len(tr.Others) != 1 || tr.By != "request_id" {
		t.Errorf("a request id of two traces: %s by %q, others %v, %v", tr.ID, tr.By, tr.Others, err)
	}
	for _, nonsense := range []string{"", "hello", "zz00", `" or *`, strings.Repeat("f", 33), "00000000000000000000000000000000", "rid-%"} {
		_, err := st.Trace(t.Context(), nonsense, 0, 0)
		if !errors.Is(err, span.ErrNotTraceID) || !strings.Contains(err.Error(), "not a trace id") || errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v, want: not a trace id", nonsense, err)
		}
	}
	if _, err := st.Trace(t.Context(), "deadbeefdeadbeefdeadbeefdeadbeef", 0, 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("an id of no trace: %v", err)
	}
}

// TestTags lists services, names, keys and values.
func TestTags(t *testing.T) {
	st := store(t)
	from, to := base-int64(time.Hour), base+int64(time.Hour)
	services, err := st.Services(t.Context(), from, to)
	if want := []string{"dynamo-frontend", "dynamo-worker-1", "engine", "gateway", "lower", "sglang", "twin"}; err != nil || !slices.Equal(services, want) {
		t.Errorf("services %v, %v", services, err)
	}
	ops, err := st.Operations(t.Context(), "sglang", from, to)
	if want := []Operation{{"Req *", 1}, {"decode_loop", 1}}; err != nil || !slices.Equal(ops, want) {
		t.Errorf("names of sglang: %v, %v", ops, err)
	}
	names, err := st.TagNames(t.Context(), AnyScope, nil, from, to)
	if err != nil {
		t.Fatal(err)
	}
	for scope, want := range map[Scope][]string{
		SpanScope:  {"bootstrap_room", "gen_ai.usage.completion_tokens", "http.status_code", "request.id", "rid", "x-request-id"},
		Resource:   {"host.name", "service.name"},
		EventScope: {"reason"},
	} {
		if !slices.Equal(names[scope], want) {
			t.Errorf("keys of %s: %v, want %v", scope, names[scope], want)
		}
	}
	where, _ := ParseTraceQL(`{status=error}`)
	for _, c := range []struct {
		field string
		where *Set
		want  string
	}{
		{"span.rid", where.Where, "string:rid-5"},
		{"resource.service.name", where.Where, "string:sglang"},
		{".host.name", nil, "string:node-a string:node-g"},
		{"span.http.status_code", nil, "int:200"},
		{"status", nil, "keyword:error keyword:ok keyword:unset"},
		{"rootServiceName", nil, "string:dynamo-frontend string:engine string:twin string:gateway string:lower"},
		{"event.reason", nil, "string:kv"},
		{"event:name", nil, "string:retract"},
		{"name", nil, "string:decode_loop string:Req * string:handle_payload string:http-request"},
	} {
		f, err := ParseField(c.field)
		if err != nil {
			t.Fatal(err)
		}
		list, err := st.TagValues(t.Context(), f, c.where, from, to, 0)
		if err != nil {
			t.Errorf("%s: %v", c.field, err)
			continue
		}
		var got []string
		for _, v := range list {
			got = append(got, v.Type+":"+v.Value)
		}
		if text := strings.Join(got, " "); text != c.want && !(c.field == "name" && strings.HasPrefix(text, c.want)) {
			t.Errorf("values of %s: %s\nwant %s", c.field, text, c.want)
		}
	}
	links, partial, err := st.Dependencies(t.Context(), from, to)
	if want := []Dependency{{"dynamo-frontend", "dynamo-worker-1", 9}, {"dynamo-worker-1", "sglang", 10}}; err != nil || partial != "" || !slices.Equal(links, want) {
		t.Errorf("dependencies %v, %q, %v", links, partial, err)
	}
}

// TestStats counts what services send.
func TestStats(t *testing.T) {
	st := store(t)
	stats, err := st.Stats(t.Context(), base-int64(time.Hour), base+int64(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	s := stats[0]
	if s.Service != "sglang" || s.Spans != 40 || s.Names[0] != (NameCount{"decode_loop", 30}) || s.Names[1] != (NameCount{"Req *", 10}) || !(s.PerHour > 200 && s.PerHour < 300) {
		t.Errorf("most spans: %+v", s)
	}
	if !(s.Bytes > 0) {
		t.Errorf("sglang costs %v bytes/hour, want some", s.Bytes)
	}
}

// TestCoverage is the third part of case O07: which traces have no span of an engine, by service. The case's
// three traces begin up to half a second after base, when the made ones have begun too; these are told apart
// by what is counted of the services. The engine of case O09 sends a span of no name that engines have.
func TestCoverage(t *testing.T) {
	st := store(t)
	c, err := st.Coverage(t.Context(), base-int64(time.Hour), base+int64(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]span.ServiceCoverage{}
	for _, s := range c.Services() {
		of[s.Service] = s
	}
	if of["gateway"] != (span.ServiceCoverage{Service: "gateway", Traces: 1, Lacking: 1}) || of["engine"] != (span.ServiceCoverage{Service: "engine", Traces: 3, Lacking: 1, Orphaned: 1}) {
		t.Errorf("services of the case: %+v, %+v", of["gateway"], of["engine"])
	}
	if of["sglang"].Lacking != 0 || of["sglang"].Traces != 10 || c.Orphaned != 2 || c.Partial != "" { // the case's, and the one whose root is missing
		t.Errorf("sglang %+v, %d traces lack parents, %q", of["sglang"], c.Orphaned, c.Partial)
	}
	if !strings.Contains(c.Text(), "gateway 1 of 1") {
		t.Errorf("%s", c.Text())
	}
}

// TestPoolKeepsEverything compares spans with what is kept of them.
func TestPoolKeepsEverything(t *testing.T) {
	st := store(t)
	for _, id := range []string{"aa000000000000000000000000000006", "rid-3", "r-17"} {
		tr, err := st.Trace(t.Context(), id, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		p := newPool()
		for i := range tr.Spans {
			if got := p.keep(tr.Spans[i].Clone()); !reflect.DeepEqual(got, tr.Spans[i]) {
				t.Errorf("%s: kept %+v\nof   %+v", id, got, tr.Spans[i])
			}
		}
	}
}

// TestCanceled ends with the context.
func TestCanceled(t *testing.T) {
	st := store(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := st.Search(ctx, Query{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled search: %v", err)
	}
}
