package requeststore

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/eventstore/child"
)

var update = flag.Bool("update", false, "write the golden files")

const childEnv = "ROLLSCOPE_TEST_EVENTS_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child.Main(os.Args[1:]))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// realEvents is an event store with its process, until the test ends.
func realEvents(t testing.TB, dir string) *eventstore.Store {
	t.Helper()
	s, err := eventstore.Open(t.Context(), eventstore.Options{Dir: dir, MinFreeBytes: -1, Retention: 10 * 365 * 24 * time.Hour,
		Command: func(ctx context.Context, args ...string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, os.Args[0], args...)
			cmd.Env = append(os.Environ(), childEnv+"=1", "GOMAXPROCS=2")
			return cmd
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
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
