package passstore

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/fpm"
)

// rowsOfAllKinds are passes as they may come, each a second after the one before.
func rowsOfAllKinds(base time.Time) []Row {
	full := pass(base, "9007199254740993", 63, 0)
	full.Name, full.Counter, full.Missing, full.Flags = "http://10.0.0.1:30000", 1<<64-1, 12, Restart|Gap|Late
	full.Wall = 0.012345678901234
	full.Scheduled = fpm.Scheduled{PrefillRequests: 1, PrefillTokens: 2048, PrefillLengths: 2.5, PrefillKV: 3, DecodeRequests: 4, DecodeKV: 1<<53 + 1, DecodeLengths: 1e-7}
	full.Queued = fpm.Queued{PrefillRequests: 7, PrefillTokens: 8, PrefillLengths: 0.5, DecodeRequests: 9, DecodeKV: 10, DecodeLengths: 1024}
	rows := []Row{
		full,
		pass(base, "2", 0, 4),
		{Key: fpm.Key{Namespace: "ns", Component: "backend", Worker: "2"}, Flags: Heartbeat, HasCounter: true},                  // no queue told
		{Key: fpm.Key{Namespace: "ns", Component: "backend", Worker: "2"}, Wall: 0.5, HasQueued: true},                          // no counter, nothing waits
		{Key: fpm.Key{Namespace: "ns", Component: "backend", Publisher: 1<<64 - 1}, Flags: Implausible},                         // named by its publisher
		{Key: fpm.Key{Source: `ipc:///run/fpm "a" \b.0`, Rank: 3}, Name: "http://h:1", Wall: 1e-9},                              // named by where it is heard
		{Key: fpm.Key{Namespace: `a"b\c`, Component: "back end", Worker: "18446744073709551615"}, Wall: 3600, HasCounter: true}, // names with quotes
	}
	for i := range rows {
		rows[i].Engine = EngineOf(rows[i].Key)
		rows[i].Time = base.UnixNano() + int64(i)*1e9 + 7
	}
	return rows
}

// A pass comes back from the event store as it went in: what was absent is absent, large numbers are exact.
func TestRowRoundTrip(t *testing.T) {
	base := time.Now().Add(-time.Hour).Truncate(time.Second)
	rows := rowsOfAllKinds(base)
	events, _ := openEvents(t, eventstore.Options{Dir: t.TempDir()})
	s := open(t, Options{Events: events})
	s.Write(rows)
	flushAll(t, s, events)
	got, more, err := s.Query(within(t), 0, 0, "", 100)
	if err != nil || more || !slices.Equal(got, rows) {
		t.Fatalf("more %v, %v\n got %+v\nwant %+v", more, err, got, rows)
	}
	// Each engine's alone.
	for _, r := range rows {
		var want []Row
		for _, o := range rows {
			if o.Engine == r.Engine {
				want = append(want, o)
			}
		}
		got, more, err := s.Query(within(t), 0, 0, r.Engine, 100)
		if err != nil || more || !slices.Equal(got, want) {
			t.Errorf("%s: more %v, %v\n got %+v\nwant %+v", r.Engine, more, err, got, want)
		}
	}
	if _, _, err := s.Query(within(t), 0, 0, "backend", 100); err == nil || !strings.Contains(err.Error(), "namespace/component/worker") {
		t.Errorf("an engine that is none: %v", err)
	}
	// By time, and the newest of more.
	got, more, err = s.Query(within(t), rows[1].Time, rows[5].Time, "", 2)
	if err != nil || !more || !slices.Equal(got, rows[4:6]) {
		t.Errorf("a part of them: more %v, %v, %+v", more, err, got)
	}
}

// A pass that lies in the store several times, in bursts too, counts once, and the limit is of passes.
func TestQueryTwice(t *testing.T) {
	base := time.Now().Add(-time.Hour).Truncate(time.Second)
	events, _ := openEvents(t, eventstore.Options{Dir: t.TempDir()})
	c := newClock(base)
	s := open(t, Options{Events: events, Now: c.now})
	for _, engine := range []string{"ns/backend/1", "ns/backend/2", ""} {
		if _, err := s.Burst(Manual, "", engine, 10*time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	s.Write(passesOf(base, "1", 0, 50))
	s.Write(passesOf(base, "1", 0, 50)) // and all of it again
	flushAll(t, s, events)
	if n := countOf(t, events, `{row="pass"}`); n != 2*3*50 {
		t.Errorf("%d rows, want %d", n, 2*3*50)
	}
	for _, x := range []struct {
		limit int
		want  string
		more  bool
	}{{100, "0..49", false}, {50, "0..49", false}, {49, "1..49", true}, {1, "49..49", true}} {
		rows, more, err := s.Query(within(t), 0, 0, "ns/backend/1", x.limit)
		if err != nil || more != x.more || counters(rows) != x.want {
			t.Errorf("limit %d: %s, more %v, %v", x.limit, counters(rows), more, err)
		}
	}
}

// What stands in a row that cannot be read is said with its field.
func TestRowDamaged(t *testing.T) {
	good, _ := new(pass(time.Unix(1_700_000_000, 0), "1", 0, 1)).appendEvent(nil, "b1")
	var r Row
	if burst, err := r.read(good.Fields, parseTime); err != nil || burst != "b1" {
		t.Fatalf("burst %q, %v", burst, err)
	}
	for _, name := range []string{"_time", "publisher_id", "dp_rank", "counter_id", "wall_time", "missing", "sum_decode_kv_tokens", "queued_var_prefill_length"} {
		_, err := r.read([]event.Field{{Name: name, Value: "x"}}, parseTime)
		if err == nil || name != "_time" && !strings.Contains(err.Error(), name+"="+strconv.Quote("x")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// flushAll makes all that was written visible to queries.
func flushAll(t testing.TB, s *Store, events *eventstore.Store) {
	t.Helper()
	s.flush(within(t))
	if err := events.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
}
