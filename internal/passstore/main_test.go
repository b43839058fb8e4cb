package passstore

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/eventstore/eventtest"
	"github.com/rollscope/rollscope/internal/fpm"
)

func TestMain(m *testing.M) { eventtest.Main(m) }

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// openEvents runs an event store until the test or stop ends it.
func openEvents(t testing.TB, o eventstore.Options) (s *eventstore.Store, stop func()) {
	t.Helper()
	if o.URL == "" && o.Command == nil {
		o.Command = eventtest.Command
	}
	o.MinFreeBytes = -1
	s, err := eventstore.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s, eventtest.Run(t, s)
}

// clock is a time that only tests move.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time   { return time.Unix(0, c.ns.Load()) }
func (c *clock) set(at time.Time) { c.ns.Store(at.UnixNano()) }

func newClock(at time.Time) *clock {
	c := &clock{}
	c.set(at)
	return c
}

func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pass is the i-th of a worker's rank, a quarter of a second after the one before.
func pass(base time.Time, worker string, rank uint32, i int) Row {
	k := fpm.Key{Namespace: "ns", Component: "backend", Worker: worker, Rank: rank}
	r := Row{Key: k, Engine: EngineOf(k), Time: base.UnixNano() + int64(i)*int64(250*time.Millisecond), Counter: uint64(i), HasCounter: true, HasQueued: true, Wall: 0.0125}
	r.Scheduled.DecodeRequests, r.Scheduled.DecodeKV = 8, 9600
	return r
}

func passesOf(base time.Time, worker string, from, to int) (rows []Row) {
	for i := from; i < to; i++ {
		rows = append(rows, pass(base, worker, 0, i))
	}
	return rows
}

// counters are those of rows, as first..last where they count on.
func counters(rows []Row) string {
	out := ""
	for i := 0; i < len(rows); {
		j := i
		for j+1 < len(rows) && rows[j+1].Counter == rows[j].Counter+1 {
			j++
		}
		if out != "" {
			out += " "
		}
		out += fmt.Sprintf("%d..%d", rows[i].Counter, rows[j].Counter)
		i = j + 1
	}
	return out
}

// memory is an event store that remembers what it was handed and answers as it is told.
type memory struct {
	rows    []event.Row
	err     error
	block   chan struct{} // not nil: Append waits for it, or for its context
	deletes []string
	delErr  error
}

func (m *memory) Append(ctx context.Context, rows []event.Row) error {
	if m.block != nil {
		select {
		case <-m.block:
		case <-ctx.Done():
			return eventstore.ErrFull
		}
	}
	if m.err != nil {
		return m.err
	}
	for _, r := range rows {
		r.Fields = append([]event.Field(nil), r.Fields...)
		m.rows = append(m.rows, r)
	}
	return nil
}

func (m *memory) Query(context.Context, eventstore.Query, func([]event.Field) error) error {
	return nil
}

func (m *memory) Delete(_ context.Context, filter string) error {
	m.deletes = append(m.deletes, filter)
	return m.delErr
}

func drop(s *Store, reason string) int64 {
	for _, d := range s.Drops() {
		if d.Reason == reason {
			return d.Count
		}
	}
	return 0
}

func countOf(t testing.TB, s *eventstore.Store, logsQL string) int {
	t.Helper()
	n := 0
	err := s.Query(within(t), eventstore.Query{LogsQL: logsQL + " | stats count() n"}, func(fields []event.Field) (err error) {
		for _, f := range fields {
			if f.Name == "n" {
				n, err = strconv.Atoi(f.Value)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
