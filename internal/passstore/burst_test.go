package passstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/eventstore"
)

// A burst has every pass from before its cause until after it, once, and of its engine alone.
func TestBurst(t *testing.T) {
	base := time.Unix(1_700_000_000, 0)
	at := func(i int) time.Time { return base.Add(time.Duration(i) * 250 * time.Millisecond) }
	for _, x := range []struct {
		name    string
		keep    Keep
		engines []string // of bursts that begin in the moment of pass 100
		again   int      // pass at which the first is asked for again, 0: not
		around  time.Duration
		want    map[string]string // rows of each burst, "" for raw ones, as engine:counters
	}{
		{name: "one engine", keep: KeepBursts, engines: []string{"ns/backend/1"}, around: 5 * time.Second,
			want: map[string]string{"0": "1:80..120"}},
		{name: "all engines", keep: KeepBursts, engines: []string{""}, around: 5 * time.Second,
			want: map[string]string{"0": "1:80..120 2:80..120"}},
		{name: "raw rows too", keep: KeepAll, engines: []string{"ns/backend/2"}, around: 5 * time.Second,
			want: map[string]string{"": "1:0..299 2:0..299", "0": "2:80..120"}},
		{name: "two in one moment", keep: KeepBursts, engines: []string{"ns/backend/1", "ns/backend/2"}, around: 5 * time.Second,
			want: map[string]string{"0": "1:80..120", "1": "2:80..120"}},
		{name: "an engine of one of all", keep: KeepBursts, engines: []string{"", "ns/backend/2"}, around: 5 * time.Second,
			want: map[string]string{"0": "1:80..120 2:80..120"}},
		{name: "longer", keep: KeepBursts, engines: []string{"ns/backend/1"}, again: 110, around: 5 * time.Second,
			want: map[string]string{"0": "1:80..130"}},
		{name: "anew when it is over", keep: KeepBursts, engines: []string{"ns/backend/1"}, again: 160, around: 5 * time.Second,
			want: map[string]string{"0": "1:80..120", "1": "1:140..180"}},
		{name: "longer than there are passes", keep: KeepBursts, engines: []string{"ns/backend/1"}, around: time.Hour,
			want: map[string]string{"0": "1:0..299"}},
		{name: "an engine that is not there", keep: KeepBursts, engines: []string{"ns/backend/9"}, around: time.Hour,
			want: map[string]string{}},
	} {
		t.Run(x.name, func(t *testing.T) {
			c, m := newClock(base), &memory{}
			s := open(t, Options{Events: m, Keep: x.keep, Now: c.now})
			var ids []string
			begin := func(engine string) {
				b, err := s.Burst("gap", "why", engine, x.around)
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range ids {
					if id == b.ID {
						return
					}
				}
				ids = append(ids, b.ID)
			}
			for i := range 300 {
				c.set(at(i))
				s.Write([]Row{pass(base, "1", 0, i), pass(base, "2", 0, i)})
				if i == 100 {
					for _, e := range x.engines {
						begin(e)
					}
				}
				if i == x.again && i > 0 {
					begin(x.engines[0])
				}
			}
			s.flush(within(t))
			got := map[string]string{}
			total := map[string]int64{}
			for n, id := range append([]string{""}, ids...) {
				key := ""
				if n > 0 {
					key = fmt.Sprint(n - 1)
				}
				for _, w := range []string{"1", "2", "9"} {
					var rows []Row
					for i := range m.rows {
						var r Row
						burst, err := r.read(m.rows[i].Fields, parseTime)
						if err != nil {
							t.Fatal(err)
						}
						if burst == id && r.Key.Worker == w {
							rows = append(rows, r)
						}
					}
					sortByCounter(rows)
					if len(rows) > 0 {
						got[key] = strings.TrimSpace(got[key] + " " + w + ":" + counters(rows))
						total[id] += int64(len(rows))
					}
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(x.want) {
				t.Errorf("rows %v, want %v", got, x.want)
			}
			for _, b := range s.Bursts() {
				if b.Rows != total[b.ID] {
					t.Errorf("burst %s says %d rows, there are %d", b.ID, b.Rows, total[b.ID])
				}
			}
		})
	}
}

// A burst that is asked for again with more around it has what came before its first beginning, too.
func TestBurstEarlier(t *testing.T) {
	base := time.Unix(1_700_000_000, 0)
	c, m := newClock(base.Add(25*time.Second)), &memory{}
	s := open(t, Options{Events: m, Keep: KeepBursts, Now: c.now})
	s.Write(passesOf(base, "1", 0, 101)) // the last of them comes now
	for _, around := range []time.Duration{5 * time.Second, 20 * time.Second} {
		if _, err := s.Burst(Manual, "why", "ns/backend/1", around); err != nil {
			t.Fatal(err)
		}
	}
	s.flush(within(t))
	var rows []Row
	for i := range m.rows {
		var r Row
		if _, err := r.read(m.rows[i].Fields, parseTime); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	sortByCounter(rows)
	list := s.Bursts()
	if len(list) != 1 || list[0].Rows != 81 || counters(rows) != "20..100" {
		t.Errorf("%s of %+v, want 20..100 in one burst", counters(rows), list)
	}
}

// The past of a burst is read from memory piece by piece: it needs no room among the rows that wait. What
// memory loses before it was read is counted.
func TestBurstLarge(t *testing.T) {
	base := time.Unix(1_700_000_000, 0)
	c, m := newClock(base), &memory{}
	s := open(t, Options{Events: m, Keep: KeepBursts, Recent: 24 * chunkSize, Now: c.now})
	const held = 24 * chunkSize // more than may wait
	s.Write(passesOf(base, "1", 0, held))
	c.set(base.Add(held * 250 * time.Millisecond))
	if _, err := s.Burst(Manual, "", "", 48*time.Hour); err != nil {
		t.Fatal(err)
	}
	s.flush(within(t))
	if len(m.rows) != held || len(s.Drops()) != 0 {
		t.Fatalf("%d rows, want %d, drops %v", len(m.rows), held, s.Drops())
	}

	m.rows = nil
	s = open(t, Options{Events: m, Keep: KeepBursts, Recent: 2 * chunkSize, Now: c.now})
	s.Write(passesOf(base, "1", 0, 2*chunkSize))
	if _, err := s.Burst(Manual, "", "ns/backend/1", 48*time.Hour); err != nil {
		t.Fatal(err)
	}
	s.Write(passesOf(base, "2", 0, 100))
	s.flush(within(t))
	if n := drop(s, "burst_left_memory"); n != 100 || len(m.rows) != 2*chunkSize-100 {
		t.Errorf("%d rows and %d lost, want %d and 100", len(m.rows), n, 2*chunkSize-100)
	}
}

// Bursts that start by themselves are few, and those that were refused are counted; others have no limit.
func TestBurstLimit(t *testing.T) {
	base := time.Unix(1_700_000_000, 0)
	c := newClock(base)
	s := open(t, Options{Events: &memory{}, BurstsPerHour: 2, Now: c.now})
	begin := func(trigger string, min int) error {
		c.set(base.Add(time.Duration(min) * time.Minute))
		_, err := s.Burst(trigger, "why", "ns/backend/1", time.Second)
		return err
	}
	for _, x := range []struct {
		min     int
		trigger string
		want    error
	}{{0, "gap", nil}, {1, "restart", nil}, {2, "gap", ErrTooMany}, {3, Manual, nil}, {4, "alert", ErrTooMany}, {61, "gap", nil}, {62, "gap", nil}, {63, "gap", ErrTooMany}} {
		if err := begin(x.trigger, x.min); !errors.Is(err, x.want) {
			t.Errorf("%s in minute %d: %v, want %v", x.trigger, x.min, err, x.want)
		}
	}
	if n := drop(s, "bursts_per_hour"); n != 3 {
		t.Errorf("%d counted, want 3", n)
	}
	s.Configure(KeepNone, 0, 0)
	if err := begin(Manual, 130); !errors.Is(err, ErrOff) {
		t.Errorf("while nothing is kept: %v", err)
	}
}

// The list survives a restart, in which what ran ends; one that is damaged is said, with what to do.
func TestBurstList(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "bursts.json")
	base := time.Unix(1_700_000_000, 0)
	c := newClock(base)
	o := Options{Events: &memory{}, State: file, Now: c.now}
	s := open(t, o)
	for i := range maxBursts + 5 {
		c.set(base.Add(time.Duration(i) * time.Minute))
		s.Write([]Row{pass(c.now(), "1", 0, 0)})
		if _, err := s.Burst(Manual, fmt.Sprint(i), "ns/backend/1", time.Second); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Run(ctx) // its end writes what is there
	want := s.Bursts()
	if len(want) != maxBursts || want[0].Reason != fmt.Sprint(maxBursts+4) || want[0].Done || !want[1].Done || want[0].Rows != 1 {
		t.Fatalf("%d bursts, the newest %+v", len(want), want[:2])
	}
	want[0].Done = true
	got := open(t, o).Bursts()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after a restart %d bursts, the newest %+v, want %+v", len(got), got[:1], want[:1])
	}

	if err := os.WriteFile(file, []byte(`[{"id":`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "remove") {
		t.Errorf("a damaged list: %v", err)
	}
}

// A store that takes no rows stops nobody: what finds no room is counted, the rest is kept when it does.
func TestWriteFull(t *testing.T) {
	base := time.Unix(1_700_000_000, 0)
	m := &memory{block: make(chan struct{})}
	s := open(t, Options{Events: m})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	const all = 3 * maxWaiting
	for i := 0; i < all; i += 1024 {
		s.Write(passesOf(base, "1", i, i+1024))
	}
	close(m.block)
	cancel()
	<-done
	full := drop(s, "rows_queue_full")
	// A batch that waits as all ends may come too late.
	if st := s.Stats(); full < all-2*maxWaiting-1024 || st.Stored+full+drop(s, "not_stored") != all || int64(len(m.rows)) != st.Stored {
		t.Errorf("%d stored (%d came there), %d found no room, of %d", st.Stored, len(m.rows), full, all)
	}

	for _, x := range []struct {
		name       string
		err        error
		not, store int64
	}{
		{"read-only", fmt.Errorf("%w: no space", eventstore.ErrReadOnly), 40, 0},
		{"some refused", &eventstore.RejectedError{Rows: 10, Reasons: map[string]int{eventstore.TooOld: 10}, Reason: eventstore.TooOld}, 0, 30},
	} {
		s := open(t, Options{Events: &memory{err: x.err}})
		s.Write(passesOf(base, "1", 0, 40))
		s.flush(within(t))
		if n := drop(s, "not_stored"); n != x.not || s.Stats().Stored != x.store {
			t.Errorf("%s: %d not stored and %d stored, want %d and %d", x.name, n, s.Stats().Stored, x.not, x.store)
		}
	}
}

// What came right before the end is given the time that the rest has, not none.
func TestWriteAtTheEnd(t *testing.T) {
	base := time.Unix(1_700_000_000, 0)
	m := &memory{block: make(chan struct{})}
	s := open(t, Options{Events: m})
	ctx, cancel := context.WithCancel(t.Context())
	s.Write(passesOf(base, "1", 0, 40))
	cancel() // before Run can have looked
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	go func() { close(m.block) }()
	<-done
	if n := drop(s, "not_stored"); n != 0 || s.Stats().Stored != 40 {
		t.Errorf("%d not stored and %d stored, of 40", n, s.Stats().Stored)
	}
}

// Nothing is stored with off; rows of bursts alone with bursts; and a change counts from then on.
func TestKeep(t *testing.T) {
	base := time.Unix(1_700_000_000, 0)
	m := &memory{}
	s := open(t, Options{Events: m, Keep: KeepNone})
	stored := func(keep Keep, want int64) {
		t.Helper()
		s.Configure(keep, 0, 0)
		s.Write(passesOf(base, "1", 0, 10))
		s.flush(within(t))
		if st := s.Stats(); st.Stored != want || int64(len(m.rows)) != want {
			t.Errorf("%s: %d stored, want %d", keep, st.Stored, want)
		}
	}
	stored(KeepNone, 0)
	stored(KeepBursts, 0)
	stored(KeepAll, 10)
	stored(KeepNone, 10)
	if n := s.Stats().Recent; n != 40 {
		t.Errorf("%d in memory, want 40", n)
	}
}

// Where rows cannot be removed, that is a notice; another failure is an error.
func TestExpireErrors(t *testing.T) {
	m := &memory{delErr: fmt.Errorf("%w: start it with -delete.enable", eventstore.ErrNoDelete)}
	c := newClock(time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC))
	s := open(t, Options{Events: m, Retention: 10 * time.Minute, Now: c.now})
	if err := s.Expire(t.Context()); err != nil || !strings.Contains(s.Notice(), "-delete.enable") {
		t.Errorf("notice %q, %v", s.Notice(), err)
	}
	if want := `{row="pass"} !burst:* _time:<2026-01-02T02:54:05.006Z`; len(m.deletes) != 1 || m.deletes[0] != want {
		t.Errorf("asked to remove %q, want %q", m.deletes, want)
	}
	m.delErr = eventstore.ErrDown
	if err := s.Expire(t.Context()); !errors.Is(err, eventstore.ErrDown) {
		t.Errorf("a store that is down: %v", err)
	}
	m.delErr = nil
	if err := s.Expire(t.Context()); err != nil || s.Notice() != "" {
		t.Errorf("notice %q, %v", s.Notice(), err)
	}
}

func sortByCounter(rows []Row) {
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Counter, b.Counter) })
}
