package fpmbus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestSequence(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	type step struct {
		n    uint64
		at   int
		want arrival
	}
	for _, c := range []struct {
		name    string
		ordered bool
		steps   []step
	}{
		{"in order", true, []step{{5, 0, arrival{}}, {6, 0, arrival{}}, {7, 0, arrival{}}}},
		{"a gap", true, []step{{0, 0, arrival{}}, {10, 0, arrival{missed: 9}}}},
		{"an engine began anew", true, []step{{100, 0, arrival{}}, {0, 0, arrival{restart: true}}, {1, 0, arrival{}}}},
		{"an engine began anew with 1", true, []step{{1, 0, arrival{}}, {2, 0, arrival{}}, {1, 0, arrival{restart: true}}}},
		{"the same twice", true, []step{{1, 0, arrival{}}, {1, 0, arrival{repeat: true}}}},
		{"brokers, one ahead", false, []step{{1, 1, arrival{}}, {2, 2, arrival{}}, {1, 1, arrival{repeat: true}}, {3, 3, arrival{}}, {2, 2, arrival{repeat: true}}}},
		{"one broker lost what the other has", false, []step{{1, 1, arrival{}}, {4, 4, arrival{missed: 2}}, {2, 2, arrival{missed: -1}}, {3, 3, arrival{missed: -1}}, {2, 2, arrival{repeat: true}}}},
		{"before the first", false, []step{{7, 7, arrival{}}, {6, 6, arrival{repeat: true}}}},
		{"a publisher began anew", false, []step{{7, 7, arrival{}}, {0, 8, arrival{restart: true}}, {1, 9, arrival{}}}},
		{"far back", false, []step{{100000, 7, arrival{}}, {0, 7, arrival{restart: true}}}},
		{"far ahead", false, []step{{1, 1, arrival{}}, {1 << 63, 2, arrival{missed: 1 << 62}}, {1<<63 - 1, 2, arrival{missed: -1}}}},
	} {
		s := sequence{ordered: c.ordered}
		for i, st := range c.steps {
			if got := s.see(st.n, at(st.at)); got != st.want {
				t.Errorf("%s, step %d: %+v, want %+v", c.name, i, got, st.want)
			}
		}
	}
}

// Two brokers that each lose some and are up to a window apart: each message is new exactly once, and what
// is missed in the end is what neither delivered.
func TestSequenceShuffled(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		s := sequence{}
		const n = 20_000
		lag := 1 + r.IntN(windowSize-1)
		have := map[uint64]bool{}
		fresh, missed, want := 0, int64(0), 0
		see := func(i uint64) {
			a := s.see(i, time.Unix(int64(i), 0))
			if a.restart {
				t.Fatalf("%d looks like a restart", i)
			}
			missed += a.missed
			if a.repeat != have[i] {
				t.Fatalf("%d: %+v, but it was here: %v", i, a, have[i])
			}
			if !a.repeat {
				fresh++
				have[i] = true
			}
		}
		see(0)
		lost := map[uint64]bool{}
		for i := uint64(1); i < n; i++ {
			if r.IntN(10) == 0 {
				lost[i] = true
			} else {
				see(i)
			}
			if j := int(i) - lag; j > 0 && r.IntN(10) > 0 {
				see(uint64(j))
			}
		}
		for i := uint64(0); i <= s.newest; i++ {
			if have[i] {
				want++
			}
		}
		if fresh != want || missed != int64(s.newest+1)-int64(want) {
			t.Fatalf("lag %d: %d are new of %d, %d missed of %d", lag, fresh, want, missed, s.newest+1)
		}
	}
}

func TestPublishersAreBounded(t *testing.T) {
	p := newPublishers(false)
	for i := range uint64(5 * maxPublishers) {
		p.see(i, "s", 0, time.Time{})
		p.see(1<<40, "s", i, time.Time{}) // one that is always there
		if len(p.of) > maxPublishers {
			t.Fatal(len(p.of))
		}
	}
	if a := p.see(1<<40, "s", 5*maxPublishers, time.Time{}); a != (arrival{}) {
		t.Errorf("the one that is always there was forgotten: %+v", a)
	}
}

func TestQueueBounds(t *testing.T) {
	q := newQueue(10, 100)
	for i := range 25 {
		q.push(Message{Sequence: uint64(i), Payload: make([]byte, 5)})
	}
	q.push(Message{Payload: make([]byte, 101)}) // larger than everything
	q.push(Message{Sequence: 99, Payload: make([]byte, 60)})
	if q.n != 9 || q.bytes != 100 || q.lost != 15+1+2 || q.high != 10 {
		t.Errorf("%d messages, %d bytes, %d lost, at most %d", q.n, q.bytes, q.lost, q.high)
	}
	batch := make([]Message, 4)
	if n := q.take(context.Background(), batch); n != 4 || batch[0].Sequence != 17 || batch[3].Sequence != 20 {
		t.Errorf("%d: %+v", n, batch)
	}
	q.close()
	q.push(Message{})
	if n := q.take(context.Background(), batch); n != 4 {
		t.Error(n)
	}
	if n := q.take(context.Background(), batch); n != 1 || batch[0].Sequence != 99 {
		t.Error(n)
	}
	if n := q.take(context.Background(), batch); n != 0 || q.lost != 19 {
		t.Error(n, q.lost)
	}
}

func TestBusOptions(t *testing.T) {
	h, k := newHandmade(), &keeper{}
	for name, o := range map[string]Options{
		"no source":      {},
		"no sink":        {Sources: []Source{h}, Outlets: []Outlet{{Name: "a"}}},
		"no name":        {Sources: []Source{h}, Outlets: []Outlet{{Sink: k}}},
		"one name twice": {Sources: []Source{h}, Outlets: []Outlet{{Name: "a", Sink: k}, {Name: "a", Sink: k}}},
		"negative":       {Sources: []Source{h}, Outlets: []Outlet{{Name: "a", Sink: k, Queue: -1}}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for name, make := range map[string]func() (Source, error){
		"endpoint": func() (Source, error) { return NewEngineSocket(EngineSocketOptions{Endpoint: "udp://x"}) },
		"rank":     func() (Source, error) { return NewEngineSocket(EngineSocketOptions{Endpoint: "ipc:///x", DPRank: -2}) },
		"plane":    func() (Source, error) { return NewPlaneZMQ(PlaneZMQOptions{}) },
		"both": func() (Source, error) {
			return NewPlaneZMQ(PlaneZMQOptions{Brokers: []string{"tcp://h:1"}, Channels: []Channel{{}}})
		},
		"broker":  func() (Source, error) { return NewPlaneZMQ(PlaneZMQOptions{Brokers: []string{"h:1"}}) },
		"channel": func() (Source, error) { return NewPlaneZMQ(PlaneZMQOptions{Channels: []Channel{{}}}) },
		"NATS":    func() (Source, error) { return NewPlaneNATS(PlaneNATSOptions{}) },
		"subject": func() (Source, error) {
			return NewPlaneNATS(PlaneNATSOptions{Server: NATSServer{URL: "nats://h"}, Subjects: []string{"a b"}})
		},
		"socket":  func() (Source, error) { return NewExportSocket(ExportSocketOptions{}) },
		"files":   func() (Source, error) { return NewTraceFiles(TraceFilesOptions{}) },
		"pattern": func() (Source, error) { return NewTraceFiles(TraceFilesOptions{Paths: []string{"["}}) },
	} {
		if _, err := make(); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	to := RelayTo{Scope: Scope{"n", "c", ""}}
	for name, o := range map[string]RelayZMQOptions{
		"neither": {RelayTo: to}, "both": {RelayTo: to, Bind: "tcp://127.0.0.1:0", Brokers: []string{"tcp://h:1"}}, "no scope": {Bind: "tcp://127.0.0.1:0"},
		"broker": {RelayTo: to, Brokers: []string{"h"}}, "bind": {RelayTo: to, Bind: "h"},
	} {
		if _, err := NewRelayZMQ(o); err == nil {
			t.Errorf("relay to ZMQ: %s is taken", name)
		}
	}
	if _, err := NewRelayNATS(RelayNATSOptions{RelayTo: to}); err == nil {
		t.Error("relay to NATS without a server")
	}
	if _, err := NewRelayNATS(RelayNATSOptions{Server: NATSServer{URL: "nats://h"}}); err == nil {
		t.Error("relay to NATS without a scope")
	}
}

// Several outlets are independent: one that fails or stands still does not hold up the others, filtering is
// no loss, and after the end what was queued has been handed on.
func TestOutletsAreIndependent(t *testing.T) {
	h, good, still := newHandmade(), &keeper{}, &keeper{gate: make(chan struct{})}
	boom := SinkFunc(func(context.Context, []Message) error { return errors.New("disk full") })
	b, stop := runBus(t, Options{Sources: []Source{h}, Drain: 100 * time.Millisecond, Outlets: []Outlet{
		{Name: "good", Sink: good}, {Name: "still", Sink: still, Queue: 10, Batch: 1}, {Name: "boom", Sink: boom},
		{Name: "none", Sink: good, Accept: func(m Message) bool { return m.Kind == TraceFile }},
	}})
	<-h.ready
	const n = 100
	for i := range n {
		h.emit(Message{Sequence: uint64(i), Kind: EngineSocket, Payload: []byte{1}, Received: time.Now()})
	}
	eventually(t, "all but the one that stands still are done", func() bool {
		return good.count() == n && dropsOf(b.Drops(), "boom", "sink_failed") == n
	})
	stop()
	if good.count() != n || still.count() != 0 {
		t.Errorf("%d and %d came", good.count(), still.count())
	}
	o := b.Outlets()
	if o[0].Taken != n || o[0].Lost != 0 || o[0].Last.IsZero() || o[1].Lost != n || o[1].Taken != 0 || o[2].Lost != n || o[2].Error != "disk full" || o[3].Filtered != n || o[3].Lost != 0 {
		t.Errorf("%+v", o)
	}
	d := b.Drops()
	if dropsOf(d, "still", "queue_full")+dropsOf(d, "still", "stopped") != n || dropsOf(d, "boom", "sink_failed") != n || dropsOf(d, "none", "filtered") != 0 {
		t.Errorf("%+v", d)
	}
	if err := b.Run(context.Background()); err == nil {
		t.Error("a bus runs twice")
	}
}

// failing is a sink whose connection fails for good.
type failing struct{ keeper }

func (f *failing) Run(context.Context) error { return errors.New("no such place") }

// late is a source that has something to say when it was told to end.
type late struct{}

func (late) Run(ctx context.Context, emit func(Message)) error {
	<-ctx.Done()
	time.Sleep(50 * time.Millisecond) // by then the outlet has ended, most of the time
	emit(Message{Payload: []byte{1}})
	return nil
}
func (late) Status() []Status { return nil }
func (late) Drops() []Drop    { return nil }

// What comes when an outlet has ended already is counted.
func TestBusCountsWhatComesLate(t *testing.T) {
	b := must[*Bus](t)(New(Options{Sources: []Source{late{}}, Outlets: []Outlet{{Name: "f", Sink: &failing{}}}}))
	if err := b.Run(context.Background()); err == nil {
		t.Error("no error")
	}
	if o := b.Outlets()[0]; b.Received() != 1 || o.Taken+o.Lost != 1 || o.Waiting != 0 {
		t.Errorf("%d received, %+v", b.Received(), o)
	}
}

// ending is a context that ends between a look at it and a wait for its end.
type ending struct {
	context.Context
	looked bool
}

// Err implements [context.Context].
func (e *ending) Err() error {
	if e.looked {
		return context.Canceled
	}
	e.looked = true
	return nil
}

// Done implements [context.Context].
func (e *ending) Done() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// A source that cannot work ends the bus, with its error.
func TestBusEndsWithASourceThatFails(t *testing.T) {
	src := must[Source](t)(NewTraceFiles(TraceFilesOptions{Paths: []string{"/nowhere/*.jsonl"}, Once: true}))
	b := must[*Bus](t)(New(Options{Sources: []Source{src, newHandmade()}, Outlets: []Outlet{{Name: "k", Sink: &keeper{}}}}))
	if err := b.Run(context.Background()); err == nil {
		t.Error("no error")
	}
}

// Files are read as fast as the slowest outlet takes them, and nothing of them is lost.
func TestFilesWaitForTheirReaders(t *testing.T) {
	const n = 5000
	name := filepath.Join(t.TempDir(), "a.jsonl")
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, fpmLine+"\n", 1782777601250, i)
	}
	if err := os.WriteFile(name, []byte(all.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var sources []Source
	for _, s := range []string{"one", "two"} {
		sources = append(sources, must[Source](t)(NewTraceFiles(TraceFilesOptions{Common: Common{Name: s}, Paths: []string{name}, Once: true})))
	}
	fast, slow := &keeper{}, &keeper{}
	b := must[*Bus](t)(New(Options{Sources: sources, Outlets: []Outlet{{Name: "fast", Sink: fast}, {Name: "slow", Queue: 20, Batch: 100, Sink: SinkFunc(func(ctx context.Context, batch []Message) error {
		time.Sleep(50 * time.Microsecond)
		return slow.Take(ctx, batch)
	})}}}))
	if err := b.Run(context.Background()); err != nil || fast.count() != 2*n || slow.count() != 2*n || len(b.Drops()) != 0 {
		t.Errorf("%v, %d and %d came, %+v", err, fast.count(), slow.count(), b.Drops())
	}
	// One that never takes anything does not keep the bus from ending.
	still := &keeper{gate: make(chan struct{})}
	src := must[Source](t)(NewTraceFiles(TraceFilesOptions{Common: Common{Name: "s"}, Paths: []string{name}}))
	b, stop := runBus(t, Options{Sources: []Source{src}, Drain: 50 * time.Millisecond, Outlets: []Outlet{{Name: "still", Sink: still, Queue: 20, Batch: 1}}})
	eventually(t, "it waits", func() bool { return b.Outlets()[0].Waiting == 20 })
	stop()
	if lost := dropsOf(b.Drops(), "still", "stopped"); lost != b.Received() {
		t.Errorf("%d lost, %d received", lost, b.Received())
	}
}

// Of many that wait for the same place one gets it, and the others go on waiting.
func TestQueueIsWaitedForByMany(t *testing.T) {
	const writers, each = 8, 20_000
	q := newQueue(1, 1<<20)
	var done sync.WaitGroup
	for range writers {
		done.Go(func() {
			for range each {
				if !q.pushWaiting(context.Background(), Message{Payload: []byte{1}}) {
					t.Error("it did not wait")
				}
			}
		})
	}
	go func() { done.Wait(); q.close() }()
	taken, batch := 0, make([]Message, 4)
	for n := q.take(context.Background(), batch); n > 0; n = q.take(context.Background(), batch) {
		taken += n
	}
	if taken != writers*each || q.lost != 0 || q.high != 1 {
		t.Errorf("%d taken, %d lost, at most %d waited", taken, q.lost, q.high)
	}
	// Who waits ends with its context, and what it had is not in the queue.
	full := newQueue(1, 1<<20)
	full.push(Message{})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	if full.pushWaiting(ctx, Message{}) || full.n != 1 || full.lost != 0 {
		t.Errorf("%d wait, %d lost", full.n, full.lost)
	}
	// One whose context ends as there is room does not keep that from another who waits.
	for range 50 { // it wakes up for either
		signal(full.room)
		if full.pushWaiting(&ending{Context: context.Background()}, Message{}) || len(full.room) != 1 {
			t.Fatal("nobody else learns that there is room")
		}
	}
}
