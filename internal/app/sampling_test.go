package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/holdlog"
	"github.com/rollscope/rollscope/internal/requeststore"
	"github.com/rollscope/rollscope/internal/span"
	"github.com/rollscope/rollscope/internal/tailsample"
)

// samplingBench is sampling over a directory with the store that it needs, until it is stopped.
type samplingBench struct {
	*sampling
	t     testing.TB
	stop  func()
	store *eventstore.Store
}

// openSampling opens what a process would. minFree above what there is makes a store that takes nothing.
func openSampling(t testing.TB, dir string, policy tailsample.Options, minFree int64) *samplingBench {
	t.Helper()
	return openSamplingTold(t, dir, policy, minFree, io.Discard)
}

// openSamplingTold writes what is logged to w.
func openSamplingTold(t testing.TB, dir string, policy tailsample.Options, minFree int64, w io.Writer) *samplingBench {
	t.Helper()
	store, err := eventstore.Open(t.Context(), eventstore.Options{Dir: dir, MinFreeBytes: minFree, Retention: 24 * time.Hour,
		Command: func(ctx context.Context, args ...string) *exec.Cmd {
			return exec.CommandContext(ctx, os.Args[0], append([]string{ChildCommand}, args...)...)
		}})
	if err != nil {
		t.Fatal(err)
	}
	requests, err := requeststore.New(store, requeststore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	held, err := holdlog.Open(holdlog.Options{Dir: dir + "/undecided"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- store.Run(ctx) }()
	b := &samplingBench{sampling: newSampling(held, store, requests, nil, func(...string) string { return "" }, slog.New(slog.NewTextHandler(w, nil))), t: t, store: store}
	b.learned.path = dir + "/state/percentiles"
	stopped := false
	b.stop = func() { // without carrying anything out, as after a crash
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := errors.Join(<-done, store.Close(), held.Close()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(b.stop)
	if err := b.use(policy, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := b.take(t.Context(), oneSpan(99, 1, "early")); !busy(err) {
		t.Fatalf("before the log was read: %v", err)
	}
	if err := b.replay(); err != nil {
		t.Fatal(err)
	}
	return b
}

// spansStored lists the ids of stored spans, "trace/span", sorted, each as often as it is there.
func (b *samplingBench) spansStored() (out []string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.store.Flush(ctx); err != nil {
		b.t.Fatal(err)
	}
	err := b.store.Query(ctx, eventstore.Query{LogsQL: "row:span | fields trace_id, span_id"}, func(f []event.Field) error {
		at := map[string]string{}
		for _, x := range f {
			at[x.Name] = strings.TrimLeft(x.Value, "0")
		}
		out = append(out, at["trace_id"]+"/"+at["span_id"])
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func (b *samplingBench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// oneSpan is a request with a span of a trace. Number 1 is the root.
func oneSpan(trace, id byte, name string, attrs ...string) []span.Scope {
	now := time.Now().UnixNano()
	s := span.Span{Header: span.Header{Trace: span.TraceID{8: 0x10, 15: trace}, ID: span.ID{7: id}, Name: name, Start: now, End: now + 1e6}, Service: "sglang",
		Resource: []span.Attr{{Key: "service.name", Value: span.Value{Str: "sglang"}}}}
	if id != 1 {
		s.Parent = span.ID{7: 1}
	}
	if name == "failed" {
		s.Status = span.Failed
	}
	for i := 0; i+1 < len(attrs); i += 2 {
		s.Attrs = append(s.Attrs, span.Attr{Key: attrs[i], Value: span.Value{Str: attrs[i+1]}})
	}
	scopes, err := span.Scan(span.AppendTraces(nil, []span.Span{s}), nil)
	if err != nil {
		panic(err)
	}
	return scopes
}

// errorsOnly keeps traces with errors and nothing else.
func errorsOnly() tailsample.Options {
	return tailsample.Options{Policy: tailsample.Policy{Errors: true}}
}

// What was decided before a stop holds for what comes after it: for late spans, for a trace that goes on,
// and for one whose decision was noted and not carried out.
func TestDecisionsOverRestarts(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	b := openSampling(t, dir, errorsOnly(), -1)
	b.must(b.take(ctx, oneSpan(1, 2, "failed")))
	b.must(b.take(ctx, oneSpan(1, 1, "root")))
	b.must(b.take(ctx, oneSpan(2, 1, "root")))
	b.tick(ctx, time.Now().Add(10*time.Second)) // both are decided
	b.must(b.take(ctx, oneSpan(3, 2, "failed")))
	b.must(b.take(ctx, oneSpan(4, 2, "slice"))) // neither kept nor thrown away yet
	if got := b.spansStored(); !slices.Equal(got, []string{"1000000000000001/1", "1000000000000001/2", "1000000000000003/2"}) {
		t.Fatalf("stored %v", got)
	}
	b.stop()

	b = openSampling(t, dir, errorsOnly(), -1)
	if st, _ := b.stats(); st.HeldTraces != 2 {
		t.Errorf("%d traces are held again, want 2", st.HeldTraces)
	}
	b.must(b.take(ctx, oneSpan(1, 3, "late")))
	b.must(b.take(ctx, oneSpan(2, 3, "failed"))) // late too
	b.must(b.take(ctx, oneSpan(3, 1, "root")))
	b.must(b.take(ctx, oneSpan(4, 3, "failed")))
	want := []string{"1000000000000001/1", "1000000000000001/2", "1000000000000001/3", "1000000000000003/1", "1000000000000003/2", "1000000000000004/2", "1000000000000004/3"}
	if got := b.spansStored(); !slices.Equal(got, want) {
		t.Errorf("stored %v, want %v", got, want)
	}
	if st, _ := b.stats(); st.LateDropped != 1 || st.LateKept != 1 {
		t.Errorf("late spans: %+v", st)
	}
	b.stop()

	// A policy that would keep nothing changes nothing about what was decided.
	b = openSampling(t, dir, tailsample.Options{Policy: tailsample.Policy{Aborted: true}}, -1)
	b.must(b.take(ctx, oneSpan(1, 4, "late")))
	b.must(b.take(ctx, oneSpan(4, 1, "root")))
	b.tick(ctx, time.Now().Add(time.Minute))
	want = append(want, "1000000000000001/4", "1000000000000004/1")
	slices.Sort(want)
	if got := b.spansStored(); !slices.Equal(got, want) {
		t.Errorf("stored %v, want %v", got, want)
	}
}

// While the store takes nothing, spans are acknowledged until too much waits; then senders are told to come
// again. Nothing of what was acknowledged is missing when the store takes it again, also after a crash.
func TestStoreThatTakesNothing(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	b := openSampling(t, dir, errorsOnly(), 1<<60)
	b.mostWaiting = 16 << 20
	acked := 0
	var err error
	for trace := byte(1); trace < 200; trace++ {
		if err = b.take(ctx, oneSpan(trace, 2, "failed", "prompt", strings.Repeat(fmt.Sprint(trace%10), 1<<20))); err != nil {
			break
		}
		acked++
	}
	if !busy(err) || acked < 10 || acked > 16 {
		t.Fatalf("%d requests of 1 MB or more were taken, then: %v", acked, err)
	}
	b.tick(ctx, time.Now().Add(20*time.Second))
	if b.held.Size() == 0 || len(b.queue) == 0 {
		t.Fatal("what waits was let go")
	}
	b.stop()

	b = openSampling(t, dir, errorsOnly(), -1)
	b.tick(ctx, time.Now().Add(time.Minute))
	if got := b.spansStored(); len(got) != acked || len(slices.Compact(got)) != acked {
		t.Errorf("%d spans are stored, %d were acknowledged", len(got), acked)
	}
	b.must(b.take(ctx, oneSpan(200, 2, "failed")))
	if len(b.queue) != 0 || b.waiting != 0 {
		t.Errorf("%d decisions and %d bytes still wait", len(b.queue), b.waiting)
	}
}

// The same policy again leaves what is held alone; another one decides it, and late spans go where their
// traces went.
func TestPolicyInForce(t *testing.T) {
	ctx := t.Context()
	b := openSampling(t, t.TempDir(), errorsOnly(), -1)
	b.must(b.take(ctx, oneSpan(1, 2, "failed")))
	b.must(b.take(ctx, oneSpan(2, 2, "slice")))
	b.must(b.use(errorsOnly(), time.Now()))
	if st, _ := b.stats(); st.HeldTraces != 2 {
		t.Fatalf("%d traces are held after the same policy again, want 2", st.HeldTraces)
	}
	b.must(b.use(tailsample.Options{Policy: tailsample.KeepAll()}, time.Now()))
	b.tick(ctx, time.Now())
	b.must(b.take(ctx, oneSpan(1, 3, "late")))
	b.must(b.take(ctx, oneSpan(2, 3, "late")))
	if got, want := b.spansStored(), []string{"1000000000000001/2", "1000000000000001/3"}; !slices.Equal(got, want) {
		t.Errorf("stored %v, want %v", got, want)
	}
	st, drops := b.stats()
	if st.LateKept != 1 || st.LateDropped != 1 || st.SpansKept != 1 || st.SpansDropped != 1 {
		t.Errorf("%+v", st)
	}
	if i := slices.IndexFunc(drops, func(d tailsample.Drop) bool { return d.Reason == "sampled_away" }); i < 0 || drops[i].Count != 1 {
		t.Errorf("the drops of the policy before are gone: %+v", drops)
	}
	if err := b.use(tailsample.Options{MaxBytes: 1}, time.Now()); err == nil {
		t.Error("a policy that cannot be is taken")
	}
}
