package sim

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/engine"
)

// TestWatch checks what is told of calls against the times that a request can have, and that a fleet that
// is watched goes the same way.
func TestWatch(t *testing.T) {
	cfg := Demo()
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	calls, reports, moments := 0, map[string]int{}, map[MomentKind]int{}
	pairs := map[string]int{}
	outcomes := map[Outcome]int{}
	f.Watch(Watch{
		Call: func(c Call) {
			calls++
			outcomes[c.Outcome]++
			var order []time.Time
			for _, at := range []time.Time{c.Born, c.Received, c.Started, c.First, c.Ended} {
				if !at.IsZero() {
					order = append(order, at)
				}
			}
			if !slices.IsSortedFunc(order, time.Time.Compare) {
				t.Errorf("%s on %s: times %v", c.RID, c.Member, order)
			}
			if len(c.RID) != 32 || c.Member == "" || c.Addr == "" {
				t.Errorf("call %+v", c)
			}
			if c.Room != 0 {
				pairs[c.RID]++
			}
		},
		Report: func(r Report) { reports[r.What]++ },
		Moment: func(m Moment) { moments[m.What]++ },
	})
	f.Advance(f.Start().Add(4 * time.Minute))
	if calls < 300 || outcomes[Completed] == 0 || outcomes[Aborted] == 0 || outcomes[Failed] == 0 {
		t.Errorf("%d calls: %v", calls, outcomes)
	}
	if reports["prefill"] == 0 || reports["decode"] == 0 || moments[Retract] == 0 || moments[Down] == 0 || moments[Up] == 0 || moments[Paused] == 0 || moments[Synced] == 0 {
		t.Errorf("reports %v, moments %v", reports, moments)
	}
	both := 0
	for _, n := range pairs {
		if n == 2 {
			both++
		}
	}
	if both < 20 {
		t.Errorf("%d of %d PD requests have both halves", both, len(pairs))
	}
	plain, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	plain.Advance(plain.Start().Add(4 * time.Minute))
	for _, m := range f.members {
		a, _, _ := f.ExpositionFor(m.name, "")
		b, _, _ := plain.ExpositionFor(m.name, "")
		if string(a) != string(b) {
			t.Errorf("%s: the exposition differs when the fleet is watched", m.name)
		}
	}
}

// What schedulers say of their forward passes agrees with what they count.
func TestWatchPasses(t *testing.T) {
	cfg := Demo()
	cfg.Start = time.Unix(1_700_000_000, 0)
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	type key struct {
		member string
		rank   int
	}
	busy, tokens, prefilled := map[key]float64{}, map[key]float64{}, map[key]int{}
	waited := false
	last := map[key]time.Time{}
	f.Watch(Watch{Passes: func(p Passes) {
		k := key{p.Member, p.Rank}
		busy[k] += p.Each.Seconds() * float64(p.N)
		tokens[k] += p.Grows * float64(p.N)
		prefilled[k] += p.PrefillTokens
		if begin := p.End.Add(-p.Each * time.Duration(p.N)); begin.Before(last[k].Add(-time.Microsecond)) {
			t.Errorf("%v: a pass begins at %v, before the one before it has ended at %v", k, begin, last[k])
		}
		last[k] = p.End
		waited = waited || len(p.Waiting) > 0
		if s := f.byName[p.Member].server.scheds[p.Rank]; p.Role == engine.Unified && len(p.Waiting) != len(s.queue) {
			t.Errorf("%v: %d wait, and %d are in the queue", k, len(p.Waiting), len(s.queue))
		}
	}})
	for i := range 1200 {
		f.Advance(cfg.Start.Add(time.Duration(i) * 100 * time.Millisecond))
	}
	n := 0
	for _, m := range f.members {
		if m.server == nil {
			continue
		}
		for _, s := range m.server.scheds {
			k := key{m.name, s.rank}
			if s.busy == 0 {
				continue
			}
			n++
			if math.Abs(busy[k]-s.busy) > 1e-4*s.busy || math.Abs(tokens[k]-s.decoded) > 1e-6*s.decoded+1e-6 {
				t.Errorf("%v: passes take %g s and yield %g tokens; the scheduler counts %g s and %g", k, busy[k], tokens[k], s.busy, s.decoded)
			}
			if !m.server.decodeOnly() && prefilled[k] == 0 {
				t.Errorf("%v: no pass prefilled", k)
			}
		}
	}
	if n < 8 || !waited {
		t.Errorf("%d schedulers worked, something waited: %v: this test looked at too little", n, waited)
	}
}
