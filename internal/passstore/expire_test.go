package passstore

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/eventstore/eventtest"
)

// until asks again until a condition holds: deletions are done in the background.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 600 {
		if ok() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s: not after a minute", what)
}

// store flushes a store into its event store, and that.
func settle(t testing.TB, s *Store, events *eventstore.Store) {
	t.Helper()
	s.flush(within(t))
	if err := events.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
}

// Rows outside bursts go with their retention; bursts and rows of other kinds stay, and queries are right.
func TestExpire(t *testing.T) {
	events, stop := openEvents(t, eventstore.Options{Dir: t.TempDir()})
	base := time.Now().Add(-3 * time.Hour).Truncate(time.Second)
	c := newClock(base)
	s := open(t, Options{Events: events, Retention: time.Hour, Now: c.now})
	other := event.Row{Kind: event.Log, Time: base.UnixNano(), Message: "a line as old", Service: "backend", Fields: []event.Field{{Name: "n", Value: "1"}}}
	if err := events.Append(within(t), []event.Row{other}); err != nil {
		t.Fatal(err)
	}

	s.Write(passesOf(base, "1", 0, 40)) // 10 s
	c.set(base.Add(10 * time.Second))
	if _, err := s.Burst(Manual, "why", "ns/backend/1", 5*time.Second); err != nil { // passes 20..60
		t.Fatal(err)
	}
	s.Write(passesOf(base, "1", 40, 80))
	late := base.Add(2 * time.Hour)
	s.Write(passesOf(late, "1", 1000, 1040)) // 250 s after late on
	settle(t, s, events)
	if n := countOf(t, events, `{row="pass"} dp_rank:*`); n != 80+41+40 {
		t.Fatalf("%d rows before, want 161", n)
	}

	c.set(late.Add(20 * time.Minute)) // the first are 2 h 20 min old, the last 16 min
	if err := s.Expire(within(t)); err != nil {
		t.Fatal(err)
	}
	if s.Notice() != "" {
		t.Errorf("notice %q", s.Notice())
	}
	until(t, "rows beyond the retention are gone", func() bool { return countOf(t, events, `{row="pass"} dp_rank:* !burst:*`) == 40 })
	if n := countOf(t, events, `{row="pass"} burst:*`); n != 41 {
		t.Errorf("%d rows of the burst, want 41", n)
	}
	if n := countOf(t, events, `{row="log"}`); n != 1 {
		t.Errorf("%d log lines, want 1", n)
	}
	rows, more, err := s.Query(within(t), 0, 0, "", 1000)
	if err != nil || more || counters(rows) != "20..60 1000..1039" {
		t.Errorf("passes %s, more %v, %v", counters(rows), more, err)
	}
	stop()
}

// A deletion that the store's process was killed in loses no other row, and the next process brings it to its end.
func TestExpireKilled(t *testing.T) {
	for round := range 3 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			var mu sync.Mutex
			var children []*exec.Cmd
			events, _ := openEvents(t, eventstore.Options{Dir: t.TempDir(), Command: func(ctx context.Context, args ...string) *exec.Cmd {
				cmd := eventtest.Command(ctx, args...)
				mu.Lock()
				children = append(children, cmd)
				mu.Unlock()
				return cmd
			}})
			base := time.Now().Add(-3 * time.Hour).Truncate(time.Second)
			c := newClock(base)
			s := open(t, Options{Events: events, Now: c.now})
			for w := range 4 {
				s.Write(passesOf(base, fmt.Sprint(w), 0, 8000)) // 2000 s
			}
			settle(t, s, events)
			c.set(base.Add(time.Hour + 1000*time.Second))
			if err := s.Expire(within(t)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(round*round) * 300 * time.Millisecond)
			mu.Lock()
			killed := children[len(children)-1].Process // started: the deletion was accepted by it
			mu.Unlock()
			if err := killed.Kill(); err != nil {
				t.Fatal(err)
			}
			border := c.now().Add(-time.Hour).UTC().Format(time.RFC3339)
			left := func(logsQL string) int {
				n := 0
				for tries := 0; ; tries++ {
					err := events.Query(within(t), eventstore.Query{LogsQL: logsQL + " | stats count() n"}, func(fields []event.Field) error {
						_, err := fmt.Sscan(fields[0].Value, &n)
						return err
					})
					if err == nil {
						return n
					}
					if tries == 3 {
						t.Fatal(err)
					}
				}
			}
			// What was not to go is there at once, and what went does not come back out of the spool.
			if n := left(`{row="pass"} dp_rank:* _time:>=` + border); n != 4*4000 {
				t.Errorf("%d rows within the retention, want %d", n, 4*4000)
			}
			until(t, "what is too old is gone", func() bool { return left(`{row="pass"} dp_rank:* _time:<`+border) == 0 })
			if n := countOf(t, events, `{row="pass"} dp_rank:*`); n != 4*4000 {
				t.Errorf("%d rows are left at the end, want %d", n, 4*4000)
			}
		})
	}
}

// A server of somebody else's may let rows be removed, or not: then that is a notice and no error.
func TestExpireServer(t *testing.T) {
	for _, x := range []struct {
		name   string
		args   []string
		notice string
		left   int
	}{
		{"deletes", []string{"-delete.enable"}, "", 40},
		{"does_not", nil, "-delete.enable", 80},
	} {
		t.Run(x.name, func(t *testing.T) {
			events, _ := openEvents(t, eventstore.Options{Dir: t.TempDir(), URL: eventtest.Server(t, x.args...), SettleAfter: 2 * time.Second})
			base := time.Now().Add(-3 * time.Hour).Truncate(time.Second)
			c := newClock(base)
			s := open(t, Options{Events: events, Now: c.now})
			s.Write(passesOf(base, "1", 0, 80))
			settle(t, s, events)
			c.set(base.Add(time.Hour + 10*time.Second))
			if err := s.Expire(within(t)); err != nil {
				t.Fatal(err)
			}
			if n := s.Notice(); !strings.Contains(n, x.notice) || (n == "") != (x.notice == "") {
				t.Errorf("notice %q, want %q", n, x.notice)
			}
			until(t, "the rows are as they should", func() bool { return countOf(t, events, `{row="pass"} dp_rank:*`) == x.left })
		})
	}
}
