package eventstore

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore/eventtest"
)

func TestMain(m *testing.M) {
	eventtest.Child()
	if dir := os.Getenv(writerEnv); dir != "" {
		writeUntilKilled(dir)
		os.Exit(1)
	}
	eventtest.Main(m)
}

func testOptions(t testing.TB, dir string) Options {
	o := Options{Dir: dir, Command: eventtest.Command, MinFreeBytes: -1}
	if os.Getenv("ROLLSCOPE_TEST_VERBOSE") != "" {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return o
}

// start opens a store and runs it until the test or stop ends it.
func start(t testing.TB, o Options) (s *Store, stop func()) {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s, eventtest.Run(t, s)
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func mustAppend(t testing.TB, s *Store, rows ...event.Row) {
	t.Helper()
	if err := s.Append(within(t), rows); err != nil {
		t.Fatal(err)
	}
}

func mustFlush(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
}

// ask returns each row found as its fields joined, without those that differ from run to run, sorted.
func ask(t testing.TB, s *Store, q Query) []string {
	t.Helper()
	rows, err := tryAsk(within(t), s, q)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func tryAsk(ctx context.Context, s *Store, q Query) ([]string, error) {
	var rows []string
	err := s.Query(ctx, q, func(fields []event.Field) error {
		var parts []string
		for _, f := range fields {
			switch f.Name {
			case "_seq", "_stream_id", "received", "_time", "_stream":
			default:
				parts = append(parts, f.Name+"="+f.Value)
			}
		}
		slices.Sort(parts)
		rows = append(rows, strings.Join(parts, " "))
		return nil
	})
	slices.Sort(rows)
	return rows, err
}

func count(t testing.TB, s *Store, logsQL string) (n int) {
	t.Helper()
	n, err := tryCount(within(t), s, logsQL)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func tryCount(ctx context.Context, s *Store, logsQL string) (n int, err error) {
	err = s.Query(ctx, Query{LogsQL: logsQL + " | stats count() n"}, func(fields []event.Field) error {
		for _, f := range fields {
			if f.Name == "n" {
				_, err := fmt.Sscan(f.Value, &n)
				return err
			}
		}
		return nil
	})
	return n, err
}

func span(at time.Time, i int) event.Row {
	return event.Row{Kind: event.Span, Time: at.UnixNano() + int64(i), Message: fmt.Sprintf("Req %d", i), Service: "sglang", Engine: "e0",
		Fields: []event.Field{{Name: "n", Value: fmt.Sprint(i)}}}
}

func TestAppendQueryReopen(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	s, stop := start(t, testOptions(t, dir))
	if st := s.State(); st.State != StateOff {
		t.Errorf("a store that nobody used is %s", st.State)
	}
	for i := range 100 {
		mustAppend(t, s, span(now, i))
	}
	mustFlush(t, s)
	if n := count(t, s, `{row="span"}`); n != 100 {
		t.Errorf("%d rows", n)
	}
	if st := s.State(); st.State != StateOK || st.Waiting != 0 || st.Rows[event.Span] != 100 {
		t.Errorf("state %+v", st)
	}
	stop()
	if left, _ := filepath.Glob(filepath.Join(dir, "events.sock")); left != nil {
		t.Error("the socket is left behind")
	}
	s, _ = start(t, testOptions(t, dir))
	if n := count(t, s, "*"); n != 100 {
		t.Errorf("%d rows after it was opened again", n)
	}
	mustAppend(t, s, span(now, 100))
	mustFlush(t, s)
	if n := count(t, s, `service:sglang`); n != 101 {
		t.Errorf("%d rows at last", n)
	}
}
