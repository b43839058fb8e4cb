package requeststore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/request"
)

const second = int64(time.Second)

// start is when made requests begin.
var start = time.Date(2026, 5, 28, 20, 26, 40, 0, time.UTC).UnixNano()

func known(v float64) request.Value { return request.Value{V: v, State: request.Known} }

func alias(kv ...string) (out []request.Alias) {
	for i := 0; i < len(kv); i += 2 {
		out = append(out, request.Alias{Kind: request.AliasKind(kv[i]), ID: kv[i+1]})
	}
	return out
}

// engineSaw and dumpSaw are what an engine and a rollout say of made request i. Its TTFT is i tenths of a
// second, its step 40 for even i; every tenth failed.
func engineSaw(i int) request.Observation {
	at := start + int64(i)*second
	o := request.Observation{Source: request.FromTrace, Role: "unified", Service: "sglang", Engine: fmt.Sprintf("10.0.0.%d:30000", i%3), Model: "Qwen/qwen3", Start: at, Finish: at + int64(i+1)*second,
		Final: true, Outcome: request.Finished, FinishReason: "stop", TTFT: known(float64(i) / 10), ITL: known(0.02), E2E: known(float64(i + 1)), CompletionTokens: known(100),
		Aliases: alias("rid", fmt.Sprintf("rid-%d", i), "trace_id", fmt.Sprintf("%032x", i+1)), Spans: 9, SpansKept: "kept"}
	if i%10 == 9 {
		o.Outcome, o.FinishReason, o.Error = request.ErrorOutcome, "", `CUDA "out of memory"`
	}
	return o
}

func dumpSaw(i int) request.Observation {
	at := start + int64(i)*second
	return request.Observation{Source: request.FromDump, Start: at - 2e6, Finish: at + int64(i+1)*second + 3e6, Final: true, FinishReason: "stop", E2E: known(float64(i + 1)),
		Run: "exp1", Kind: "train", Step: known(float64(40 + i%2)), Sample: known(float64(i)),
		Aliases: alias("rid", fmt.Sprintf("rid-%d", i), "sample_span", fmt.Sprintf("exp1/train/%d/%d/s", 40+i%2, i))}
}

func newStore(t testing.TB, events EventStore, o Options) *Store {
	t.Helper()
	s, err := New(events, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func observe(t testing.TB, s *Store, list ...request.Observation) {
	t.Helper()
	if err := s.Observe(within(t), list); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(within(t)); err != nil {
		t.Fatal(err)
	}
}

func list(t testing.TB, s *Store, filter string, o Order) []request.Settled {
	t.Helper()
	p, err := s.List(within(t), Query{Filter: filter}, o, 10_000, "")
	if err != nil {
		t.Fatalf("%s: %v", filter, err)
	}
	if int(p.Total) != len(p.Requests) {
		t.Fatalf("%s: total %d of %d", filter, p.Total, len(p.Requests))
	}
	return p.Requests
}

func rids(rows []request.Settled) string {
	var out []string
	for _, r := range rows {
		out = append(out, strings.TrimPrefix(r.Alias(request.RID), "rid-"))
	}
	return strings.Join(out, " ")
}

func TestTable(t *testing.T) {
	events := realEvents(t, t.TempDir())
	s := newStore(t, events, Options{})
	const n = 30
	var engine, dump []request.Observation
	for i := range n {
		engine, dump = append(engine, engineSaw(i)), append(dump, dumpSaw(i))
	}
	observe(t, s, engine...)
	first := list(t, s, "", Order{})
	if len(first) != n || first[0].Revision != 1 || rids(first[:3]) != "0 1 2" {
		t.Fatalf("%d rows: %s", len(first), rids(first))
	}
	observe(t, s, dump...) // minutes later
	if got := raw(t, events, requestRows); got != 2*n {
		t.Errorf("%d rows of requests are stored", got)
	}
	rows := list(t, s, "", Order{})
	if len(rows) != n {
		t.Fatalf("%d rows after the dump", len(rows))
	}
	for i, r := range rows {
		if r.ID != first[i].ID || r.Revision != 2 || r.Time != first[i].Time || r.NumberFrom[request.TTFT] != "trace" || r.NumberFrom[request.Step] != "dump" {
			t.Fatalf("row %d: %+v", i, r)
		}
	}
	for _, c := range []struct{ filter, want string }{
		{"", "29 28 27 26 25 24 23 22 21 20 19 18 17 16 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1 0"},
		{"step:40 ttft>2s", "28 26 24 22"},
		{"step:40 ttft>2s engine:\"10.0.0.1:30000\"", "28 22"},
		{"ttft>=2600ms", "29 28 27 26"},
		{"ttft<0.3 -outcome:error", "2 1 0"},
		{"outcome:error", "29 19 9"},
		{"outcome:error and ttft<1m ttft>1", "29 19"},
		{"-finish:stop", ""}, // the dump says stop of those, too
		{`error:"cuda \"out"`, "29 19 9"},
		{"error:none ttft>=2.7", "28 27"},
		{"rid=rid-3", "3"},
		{"rid:id-1 ttft<1.2", "11 10 1"},
		{"rid~^rid-[12]$", "2 1"},
		{"run:exp1 kind:train sample=7", "7"},
		{"sample:-1", ""},
		{"tokens>0.1k", ""},
		{"tokens:100 e2e=5s", "4"},
		{"model~qwen3$ itl=20ms queue:none prompt_tokens:none e2e<2", "0"},
		{"queue:any", ""},
		{"source:dump source:trace e2e<2", "0"},
		{"spans:kept step=41 e2e<3", "1"},
		{"rid-29", "29"},
		{"trace:00000000000000000000000000000005", "4"},
		{"nothing-like-it", ""},
		{`rid:" or row:x | delete" `, ""},
		{`"*" `, ""},
		{`rid="rid-1\") or (id:*"`, ""},
	} {
		if got := rids(list(t, s, c.filter, Order{By: "ttft", Desc: true})); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.filter, got, c.want)
		}
	}
	// A filter that held for an older revision finds nothing.
	if got := list(t, s, "run:none", Order{}); len(got) != 0 {
		t.Errorf("superseded rows are found: %s", rids(got))
	}
	t.Run("pages", func(t *testing.T) {
		for _, o := range []Order{{}, {Desc: true}, {By: "ttft"}, {By: "e2e", Desc: true}, {By: "itl"}, {By: "queue", Desc: true}} {
			want := list(t, s, "", o)
			var got []request.Settled
			for after, pages := "", 0; pages < 20; pages++ {
				p, err := s.List(within(t), Query{}, o, 7, after)
				if err != nil || p.Total != n {
					t.Fatal(p.Total, err)
				}
				got = append(got, p.Requests...)
				if after = p.Next; after == "" {
					break
				}
			}
			if rids(got) != rids(want) {
				t.Errorf("%+v: pages %s\nlist %s", o, rids(got), rids(want))
			}
		}
		for _, bad := range []string{"x", "1~2", "1~NaN~r", "a~1~r"} {
			if _, err := s.List(within(t), Query{}, Order{}, 7, bad); !errors.As(err, new(*MarkError)) {
				t.Errorf("mark %q: %v", bad, err)
			}
		}
	})
	t.Run("range", func(t *testing.T) {
		p, err := s.List(within(t), Query{From: start + 3*second, To: start + 5*second}, Order{}, 100, "")
		if err != nil || rids(p.Requests) != "3 4 5" {
			t.Errorf("%s %v", rids(p.Requests), err)
		}
	})
	t.Run("detail", func(t *testing.T) {
		d, err := s.Get(within(t), rows[9].ID)
		if err != nil || len(d.Observations) != 2 || d.Missing != 0 || d.Observations[0].Source != request.FromDump {
			t.Fatalf("%+v %v", d, err)
		}
		if got := d.Request.Others["outcome"]; d.Request.Outcome != request.ErrorOutcome || got != nil {
			t.Errorf("outcome %q, others %v", d.Request.Outcome, d.Request.Others)
		}
		for _, id := range []string{"r0", "", `" or "`} {
			if _, err := s.Get(within(t), id); !errors.Is(err, ErrNotFound) {
				t.Errorf("%q: %v", id, err)
			}
		}
	})
	t.Run("summary", func(t *testing.T) {
		sum, err := s.Summarize(within(t), Query{}, "step", Targets{TTFT: 1.5, ITL: 0.05})
		if err != nil {
			t.Fatal(err)
		}
		whole := sum.Groups[0]
		// TTFT is 0 to 2.9: the 15th of 30 is 1.4, the 27th 2.6, the 30th 2.9.
		if q := whole.Quantiles[0]; whole.Count != n || q != (Quantiles{1.4, 2.6, 2.9, 2.9, n}) {
			t.Errorf("%+v", whole)
		}
		// Judged are all, good those up to 1.5 s without the failed one.
		if whole.Judged != n || whole.Good != 15 || whole.GoodTokens != 1500 || whole.Outcomes[request.ErrorOutcome] != 3 {
			t.Errorf("%+v", whole)
		}
		if len(sum.Groups) != 3 || sum.Groups[1].Name != "40" || sum.Groups[1].Count != 15 || sum.Groups[2].Name != "41" {
			t.Errorf("%+v", sum.Groups)
		}
		for _, by := range Groups {
			sum, err := s.Summarize(within(t), Query{Filter: "step:40"}, by, Targets{})
			total := int64(0)
			for _, g := range sum.Groups[1:] {
				total += g.Count
			}
			if err != nil || total != 15 || sum.Groups[0].Judged != 0 {
				t.Errorf("%s: %d %v", by, total, err)
			}
		}
	})
	t.Run("points", func(t *testing.T) {
		p, err := s.Points(within(t), Query{}, "start", "ttft", "outcome", 1000)
		if err != nil || p.Total != n || len(p.Points) != n || p.Thin != "" || p.Points[9].Color != "error" || p.Points[9].Y != 0.9 || p.Points[9].X != float64(rows[9].Time)/1e9 {
			t.Fatalf("%+v %v", p, err)
		}
		p, err = s.Points(within(t), Query{}, "e2e", "queue", "engine", 1000)
		if err != nil || p.Unplaced != n || len(p.Points) != 0 {
			t.Errorf("%+v %v", p, err)
		}
		p, err = s.Points(within(t), Query{}, "e2e", "ttft", "", 10)
		if err != nil || len(p.Points) != 10 || p.Total != n || !strings.Contains(p.Thin, "10 of 30 requests are shown: 3 failed ones, the 2 with the highest ttft") {
			t.Fatalf("%+v %v", p, err)
		}
		have := map[float64]bool{}
		for _, x := range p.Points {
			have[x.Y] = true
		}
		for _, y := range []float64{0.9, 1.9, 2.9, 2.8, 2.7} {
			if !have[y] {
				t.Errorf("%v is missing in %+v", y, p.Points)
			}
		}
	})
	t.Run("errors", func(t *testing.T) {
		if _, err := s.List(within(t), Query{Filter: "ttft>"}, Order{}, 1, ""); !errors.As(err, new(*FilterError)) {
			t.Error(err)
		}
		if _, err := s.List(within(t), Query{}, Order{By: "engine"}, 1, ""); !errors.As(err, new(*FieldError)) {
			t.Error(err)
		}
		if _, err := s.Summarize(within(t), Query{}, "rid", Targets{}); !errors.As(err, new(*FieldError)) {
			t.Error(err)
		}
		if _, err := s.Points(within(t), Query{}, "engine", "ttft", "", 1); !errors.As(err, new(*FieldError)) {
			t.Error(err)
		}
		if _, err := s.Points(within(t), Query{}, "start", "ttft", "rid", 1); !errors.As(err, new(*FieldError)) {
			t.Error(err)
		}
		small := newStore(t, events, Options{MaxRows: 10})
		if _, err := small.List(within(t), Query{}, Order{}, 1, ""); !errors.As(err, new(*TooManyError)) {
			t.Error(err)
		}
	})
}

// Whatever the order and however often the process starts anew, the table is the same.
func TestTableOfShuffledObservations(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var all []request.Observation
	for i := range 60 {
		all = append(all, engineSaw(i), dumpSaw(i))
		if i%2 == 0 {
			o := engineSaw(i)
			o.Source, o.TTFT, o.Role, o.Service, o.TimeRank, o.Start, o.Finish = request.FromLog, request.Value{}, "", "", 1, o.Finish, 0
			o.Aliases = o.Aliases[:1]
			all = append(all, o)
		}
	}
	var want []string
	for round := range 2 {
		rng.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
		events := realEvents(t, t.TempDir())
		s := newStore(t, events, Options{})
		for k, part := range slices.Collect(slices.Chunk(all, 25)) {
			observe(t, s, part...)
			if k%2 == 1 { // forgets all
				s = newStore(t, events, Options{})
			}
		}
		var got []string
		for _, r := range list(t, s, "", Order{By: "e2e"}) {
			slices.Sort(r.Keys)
			got = append(got, fmt.Sprint(r.Keys, r.Numbers, r.Words, r.Outcome))
		}
		if want == nil {
			want = got
		}
		if len(got) != 60 || !reflect.DeepEqual(got, want) {
			t.Errorf("round %d: %d rows\n%s", round, len(got), strings.Join(got[:min(len(got), 3)], "\n"))
		}
	}
}

// What a process did not settle before it died is settled by the next.
func TestRecover(t *testing.T) {
	dir := t.TempDir()
	events := realEvents(t, dir)
	s := newStore(t, events, Options{State: dir})
	if err := s.Observe(within(t), []request.Observation{engineSaw(1), engineSaw(2)}); err != nil {
		t.Fatal(err)
	}
	s.save() // and dies
	if err := events.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	next := newStore(t, events, Options{State: dir, SettlerOptions: request.SettlerOptions{Linger: time.Millisecond}, Every: 5 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- next.Run(ctx) }()
	for end := time.Now().Add(30 * time.Second); raw(t, events, requestRows) < 2 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err := events.Flush(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	check := func(s *Store) {
		t.Helper()
		if rows := list(t, s, "", Order{}); rids(rows) != "1 2" || rows[0].Revision != 1 {
			t.Errorf("%s", rids(rows))
		}
	}
	check(next)
	next = newStore(t, events, Options{State: dir}) // what is settled is read again, and changes nothing
	if err := next.recover(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := next.Settle(within(t)); err != nil {
		t.Fatal(err)
	}
	check(next)
	if _, err := os.Stat(filepath.Join(dir, stateFile)); err != nil {
		t.Error(err)
	}
}

// A process that ends, in good order or not, before it has settled what it read at its start leaves it to
// the next, however long the one before that is gone.
func TestRecoverInterrupted(t *testing.T) {
	for _, x := range []struct {
		name string
		end  func(ctx context.Context, s *Store) error
	}{
		{"while it reads", func(ctx context.Context, s *Store) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return s.Run(ctx)
		}},
		{"before it settles", func(ctx context.Context, s *Store) error {
			err := s.recover(ctx)
			s.save()
			return err
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := t.TempDir()
			events := realEvents(t, dir)
			now := time.Now()
			o := Options{State: dir, Now: func() time.Time { return now }}
			s := newStore(t, events, o)
			if err := s.Observe(within(t), []request.Observation{engineSaw(1), engineSaw(2)}); err != nil {
				t.Fatal(err)
			}
			s.save()
			if err := events.Flush(within(t)); err != nil {
				t.Fatal(err)
			}
			now = now.Add(20 * time.Minute)
			if err := x.end(within(t), newStore(t, events, o)); err != nil {
				t.Fatal(err)
			}
			now = now.Add(20 * time.Minute)
			s = newStore(t, events, o)
			if err := s.recover(within(t)); err != nil {
				t.Fatal(err)
			}
			if err := s.Settle(within(t)); err != nil {
				t.Fatal(err)
			}
			if rows := list(t, s, "", Order{}); rids(rows) != "1 2" {
				t.Errorf("the table has %q", rids(rows))
			}
			s.save() // all is settled: the next one has no need to look
			if since := s.since(); !since.Equal(now) {
				t.Errorf("unsettled since %s, it is %s", since, now)
			}
		})
	}
}

// failing is an event store that refuses rows for a while.
type failing struct {
	EventStore
	appendErr, queryErr error
}

func (f *failing) Append(ctx context.Context, rows []event.Row) error {
	if f.appendErr != nil && (len(rows) == 0 || rows[0].Kind == event.Request) {
		return f.appendErr
	}
	return f.EventStore.Append(ctx, rows)
}

func (f *failing) Query(ctx context.Context, q eventstore.Query, fn func([]event.Field) error) error {
	if f.queryErr != nil {
		return f.queryErr
	}
	return f.EventStore.Query(ctx, q, fn)
}

func TestEventStoreThatFails(t *testing.T) {
	f := &failing{EventStore: realEvents(t, t.TempDir()), appendErr: eventstore.ErrReadOnly}
	now := time.Now()
	s := newStore(t, f, Options{Now: func() time.Time { return now }})
	if err := s.Observe(within(t), []request.Observation{engineSaw(1)}); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(within(t)); err == nil {
		t.Fatal("it says that all is settled")
	}
	f.appendErr = nil
	if err := s.Settle(within(t)); err != nil {
		t.Fatal(err)
	}
	f.queryErr = eventstore.ErrDown
	if err := s.Observe(within(t), []request.Observation{dumpSaw(1), dumpSaw(2)}); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(within(t)); err == nil {
		t.Fatal("it settles without looking up what is stored")
	}
	f.queryErr = nil
	now = now.Add(time.Minute)
	if err := s.Settle(within(t)); err != nil {
		t.Fatal(err)
	}
	if rows := list(t, s, "", Order{}); rids(rows) != "1 2" || rows[0].Revision != 2 {
		t.Errorf("%s", rids(rows))
	}
	// What the event store refuses is no request, and is counted there alone.
	old := engineSaw(3)
	old.Start, old.Finish = 5, 6 // 1970
	if err := s.Observe(within(t), []request.Observation{old, engineSaw(4)}); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(within(t)); err != nil {
		t.Fatal(err)
	}
	if d := s.Drops(); len(d) != 0 {
		t.Errorf("%+v", d)
	}
	if rows := list(t, s, "", Order{}); rids(rows) != "1 2 4" {
		t.Errorf("%s", rids(rows))
	}
}
