package requeststore

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/eventstore/eventtest"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { eventtest.Main(m) }

// realEvents is an event store with its process, until the test ends.
func realEvents(t testing.TB, dir string) *eventstore.Store {
	t.Helper()
	s, err := eventstore.Open(t.Context(), eventstore.Options{Dir: dir, MinFreeBytes: -1, Retention: 10 * 365 * 24 * time.Hour, Command: eventtest.Command})
	if err != nil {
		t.Fatal(err)
	}
	eventtest.Run(t, s)
	return s
}

// within is a context that a test cannot hang on.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// raw counts the rows that a query finds.
func raw(t testing.TB, s EventStore, query string) (n int) {
	t.Helper()
	if err := s.Query(within(t), eventstore.Query{LogsQL: query}, func([]event.Field) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}
