package eventstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
)

// What was removed stays so when the process is killed right after, and again; what was not stays too.
func TestDeleteKilled(t *testing.T) {
	for _, x := range []struct {
		name  string
		flush bool // rows are in the process's memory when they are removed, else on their way there
	}{{"visible", true}, {"on their way", false}} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			s, stop := start(t, testOptions(t, t.TempDir()))
			defer stop()
			now, n := time.Now().Add(-time.Minute), 0
			put := func(service string, rows int) {
				t.Helper()
				list := make([]event.Row, rows)
				for i := range list {
					list[i] = span(now, n)
					list[i].Service = service
					n++
				}
				mustAppend(t, s, list...)
			}
			for round := range 4 {
				put("goes", 500)
				put("stays", 100)
				if x.flush {
					mustFlush(t, s)
				}
				if err := s.Delete(within(t), `service:=goes # "all" of it`); err != nil {
					t.Fatal(err)
				}
				if first, last, _ := s.spool.bounds(); first <= last {
					t.Errorf("the spool has rows %d to %d: they come back when this process is killed", first, last)
				}
				put("goes", 10) // appended later: not meant, if of the same kind
				killer(t, s)()
				eventually(t, "the rows are gone", func() bool { return count(t, s, `service:=goes`) == 10 })
				killer(t, s)()
				mustFlush(t, s)
				if got := count(t, s, `service:=goes`); got != 10 {
					t.Fatalf("round %d: %d rows came back", round, got-10)
				}
				if got := count(t, s, `service:=stays`); got != 100*(round+1) {
					t.Fatalf("round %d: %d rows are left of %d that were not meant", round, got, 100*(round+1))
				}
			}
		})
	}
}

// A filter that is wrong is said so; a store that nobody used has nothing to remove.
func TestDeleteErrors(t *testing.T) {
	s, _ := start(t, testOptions(t, t.TempDir()))
	if err := s.Delete(within(t), "*"); err != nil || s.sup.isNeeded() {
		t.Errorf("a store that nobody used: %v, started %v", err, s.sup.isNeeded())
	}
	mustAppend(t, s, span(time.Now(), 0))
	for _, filter := range []string{"", "a | fields b", `{row=`} {
		var bad *QueryError
		if err := s.Delete(within(t), filter); !errors.As(err, &bad) || bad.Query != filter || bad.Words == "" {
			t.Errorf("%q: %v", filter, err)
		}
	}
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	if err := s.Delete(ctx, "*"); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	mustFlush(t, s)
	if n := count(t, s, "*"); n != 1 {
		t.Errorf("%d rows after deletions that were refused", n)
	}
}
