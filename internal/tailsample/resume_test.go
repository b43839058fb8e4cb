package tailsample

import (
	"fmt"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/span"
)

func TestOldest(t *testing.T) {
	s := start(t, Options{Policy: calm(0), Observe: nothing})
	if at, some := s.Oldest(); some || at != 0 {
		t.Fatalf("an empty sampler holds something since %d", at)
	}
	open := func(n uint64) []span.Scope {
		return []span.Scope{scope("a", made{trace: traceOf(n), id: n, parent: 99, name: "x", start: t0, end: t0 + 1})}
	}
	for i := range 3000 { // more than a chunk of slots
		s.Add(after(time.Duration(i)*time.Millisecond), open(uint64(i+1)))
	}
	if at, some := s.Oldest(); !some || at != t0 {
		t.Fatalf("held since %d, want %d", at, t0)
	}
	// The first ends and is decided; its slot is used again by a newer one.
	s.Add(after(4*time.Second), []span.Scope{scope("a", made{trace: traceOf(1), id: 1, name: "x", start: t0, end: t0 + 1})})
	s.Advance(after(11 * time.Second))
	if at, _ := s.Oldest(); at != after(time.Millisecond) {
		t.Fatalf("held since %d, want that of the second", at)
	}
	s.Add(after(12*time.Second), open(5000))
	if at, _ := s.Oldest(); at != after(time.Millisecond) {
		t.Fatalf("held since %d after a slot was used again", at)
	}
	s.Flush(after(13 * time.Second))
	if _, some := s.Oldest(); some {
		t.Fatal("something is held after all was decided")
	}
}

// When the log on disk has no more room, what holds it up is decided, by name.
func TestEvictBefore(t *testing.T) {
	s := start(t, Options{Policy: calm(0), Observe: nothing})
	for i := range 10 {
		s.Add(after(time.Duration(i)*time.Second), []span.Scope{scope("a", made{trace: traceOf(uint64(i + 1)), id: 1, parent: 9, name: "x", start: t0, end: t0 + 1, failed: i == 1})})
	}
	ds := s.EvictBefore(after(10*time.Second), after(4*time.Second))
	if len(ds) != 4 {
		t.Fatalf("%d decisions, want those about the four oldest", len(ds))
	}
	for _, d := range ds {
		wantPolicy := RuleEvicted
		if d.Trace == traceOf(2) {
			wantPolicy = RuleErrors
		}
		if d.Policy != wantPolicy || d.Flags&Evicted == 0 || !d.Final || d.First >= after(4*time.Second) {
			t.Errorf("%+v", d)
		}
	}
	if at, _ := s.Oldest(); at != after(4*time.Second) || s.Stats().EvictedEarly != 4 {
		t.Errorf("held since %d; %+v", at, s.Stats())
	}
	if h := s.Hint(); h == "" {
		t.Error("there is no hint")
	}
}

// A trace about which a process before this one decided goes the same way, whatever its spans say now.
func TestResume(t *testing.T) {
	spans := func(failed bool) []made {
		return []made{
			{trace: traceOf(1), id: 2, parent: 1, name: "a", start: t0, end: t0 + 1, failed: failed, attrs: []any{"session.id", "s"}},
			{trace: traceOf(1), id: 1, name: "root", start: t0, end: t0 + 1},
		}
	}
	requests := 0
	observe := func([]span.Scope) []requestObservation { requests++; return make([]requestObservation, 1) }
	for _, keep := range []bool{true, false} {
		for _, failed := range []bool{true, false} {
			requests = 0
			s := start(t, Options{Policy: calm(0.5), Observe: observe})
			s.Resume(t0, traceOf(1), keep, "a rule of before")
			st := stored{}
			var final []*Decision
			// Another trace of its session is kept: that tells nothing here.
			s.Add(after(time.Second), []span.Scope{scope("x", made{trace: traceOf(7), id: 7, name: "r", start: t0, end: t0 + 1, failed: true, attrs: []any{"session.id", "s"}})})
			ds := append(s.Add(after(2*time.Second), []span.Scope{scope("x", spans(failed)...)}), s.Advance(after(time.Minute))...)
			ds = append(ds, s.Add(after(2*time.Minute), []span.Scope{scope("x", made{trace: traceOf(1), id: 3, parent: 1, name: "late", start: t0, end: t0 + 1})})...)
			st.take(ds)
			for _, d := range ds {
				if d.Trace == traceOf(1) {
					if d.Policy != "a rule of before" || d.Keep != keep {
						t.Errorf("keep=%v failed=%v: %+v", keep, failed, d)
					}
					if d.Final {
						final = append(final, d)
					}
				}
			}
			want := "[]"
			if keep {
				want = "[0000000000000002 0000000000000001 0000000000000003]"
			}
			if got := fmt.Sprint(st[traceOf(1)]); got != want || len(final) != 1 || len(final[0].Requests) != 1 {
				t.Errorf("keep=%v failed=%v: stored %s, %d final decisions", keep, failed, got, len(final))
			}
			if len(s.again) != 0 {
				t.Error("something is left")
			}
		}
	}
	t.Run("its spans do not come", func(t *testing.T) {
		s := start(t, Options{Policy: calm(0), Observe: nothing})
		s.Resume(t0, traceOf(1), false, RuleRatio)
		s.Resume(t0, traceOf(2), true, RuleErrors)
		if ds := s.Advance(after(time.Hour)); len(ds) != 2 || s.Stats().HeldTraces != 0 {
			t.Fatalf("%d decisions", len(ds))
		}
	})
}

type requestObservation = request.Observation

// What is remembered outlives a process and a policy.
func TestRememberedDecisions(t *testing.T) {
	late := func(n uint64) []span.Scope {
		return []span.Scope{scope("x", made{trace: traceOf(n), id: 5, parent: 1, name: "late", start: t0, end: t0 + 1, failed: true})}
	}
	check := func(t *testing.T, s *Sampler) {
		t.Helper()
		if at, some := s.Remembered(); !some || at != t0 {
			t.Errorf("remembered since %d", at)
		}
		if ds := s.Add(after(time.Minute), late(1)); len(ds) != 1 || !ds[0].Keep || !ds[0].Late || ds[0].Policy != "a policy of before" || ds[0].First != after(time.Minute) {
			t.Errorf("kept before: %+v", ds)
		}
		if ds := s.Add(after(time.Minute), late(2)); len(ds) != 0 || s.Stats().LateDropped != 1 {
			t.Errorf("thrown away before: %+v", ds)
		}
		if ds := s.Add(after(time.Hour), late(2)); len(ds) != 1 || ds[0].Late {
			t.Errorf("forgotten: %+v", ds)
		}
	}
	s := start(t, Options{Policy: calm(0), Observe: nothing})
	if _, some := s.Remembered(); some {
		t.Error("a new sampler remembers")
	}
	s.Remember(t0, traceOf(1), true, "a policy of before")
	s.Remember(after(time.Second), traceOf(2), false, RuleRatio)
	heir := start(t, Options{Observe: nothing, Policy: func() Policy {
		p := calm(0.5)
		p.Drop = []Condition{{Name: "d", Key: "k", Values: []string{"v"}}}
		return p
	}()})
	heir.Inherit(s)
	t.Run("a process", func(t *testing.T) { check(t, s) })
	t.Run("a policy", func(t *testing.T) { check(t, heir) })
}
