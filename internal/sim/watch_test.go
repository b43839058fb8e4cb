package sim

import (
	"slices"
	"testing"
	"time"
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
