package spans

import (
	"context"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rollscope/rollscope/internal/otlp"
	"github.com/rollscope/rollscope/internal/sim"
	"github.com/rollscope/rollscope/internal/span"
)

// counting is a receiver's sink that counts, and refuses some requests.
type counting struct {
	mu     sync.Mutex
	calls  int
	refuse func(call int) error
	reject int // of each request
	spans  int
	ids    map[span.TraceID]bool
	oldest int64
	newest int64
}

func (s *counting) Traces(_ context.Context, scopes []span.Scope) (int, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.refuse != nil {
		if err := s.refuse(s.calls); err != nil {
			return 0, "", err
		}
	}
	for i := range scopes {
		for j := range scopes[i].Spans {
			h := &scopes[i].Spans[j]
			s.spans++
			s.ids[h.Trace] = true
			if s.oldest == 0 {
				s.oldest = h.End
			}
			s.oldest, s.newest = min(s.oldest, h.End), max(s.newest, h.End)
		}
	}
	if s.reject > 0 {
		return s.reject, "the test rejects some", nil
	}
	return 0, "", nil
}

func (s *counting) Logs(context.Context, []otlp.LogRecord) (int, string, error) { return 0, "", nil }

// receive serves OTLP until the test ends and returns the addresses of both transports.
func receive(t *testing.T, s *counting) (overGRPC, overHTTP string) {
	t.Helper()
	s.ids = map[span.TraceID]bool{}
	r, err := otlp.NewReceiver(otlp.Options{Sink: s})
	if err != nil {
		t.Fatal(err)
	}
	var l [2]net.Listener
	for i := range l {
		if l[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, l[0], l[1]) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "grpc://" + l[0].Addr().String(), "http://" + l[1].Addr().String()
}

// TestRun sends over both transports and several connections, a number of spans that is in no step with the
// requests, and compares what the receiver got.
func TestRun(t *testing.T) {
	otlp.RegisterCompressors()
	for _, over := range []int{0, 1} {
		s := &counting{}
		urls := [2]string{}
		urls[0], urls[1] = receive(t, s)
		var corpus *Corpus
		before := time.Now()
		const wanted = 20_011
		c, took, err := Run(context.Background(), RunOptions{
			Fleet: sim.Uniform(1), Length: 20 * time.Second, To: otlp.Endpoint{URL: urls[over]}, Rate: math.Inf(1), Spans: wanted, Connections: 3,
			Begun: func(c *Corpus) { corpus = c },
		})
		if err != nil {
			t.Fatal(err)
		}
		if c.Spans != wanted || c.Acked != wanted || c.Failed+c.Rejected != 0 || c.Error != "" || took <= 0 {
			t.Errorf("%s: %+v in %s", urls[over], c, took)
		}
		if s.spans != wanted || int64(s.calls) != c.Requests {
			t.Errorf("%s: the receiver has %d spans in %d requests, the sender %+v", urls[over], s.spans, s.calls, c)
		}
		if rounds := wanted / corpus.Spans; rounds < 3 || len(s.ids) < rounds*corpus.Traces {
			t.Errorf("%s: %d traces of %d rounds of %d", urls[over], len(s.ids), rounds, corpus.Traces)
		}
		if s.newest < before.UnixNano() || s.newest > time.Now().Add(time.Second).UnixNano() || s.oldest < before.Add(-5*time.Minute).UnixNano() {
			t.Errorf("%s: spans end between %s and %s", urls[over], time.Unix(0, s.oldest), time.Unix(0, s.newest))
		}
	}
}

// TestRefused has a receiver that is busy, one that rejects a part, and one that takes nothing.
func TestRefused(t *testing.T) {
	load := RunOptions{Fleet: sim.Uniform(1), Length: 10 * time.Second, Rate: math.Inf(1), Spans: 1000, Batch: 250, To: otlp.Endpoint{Compression: "none"}}
	busy := &counting{refuse: func(call int) error {
		if call <= 2 {
			return &otlp.Refusal{Verdict: otlp.Busy, Reason: "busy", Message: "the test is busy", After: time.Millisecond}
		}
		return nil
	}}
	load.To.URL, _ = receive(t, busy)
	c, _, err := Run(context.Background(), load)
	if err != nil || c.Acked != 1000 || c.Retries != 2 || busy.spans != 1000 {
		t.Errorf("busy: %+v, %v; the receiver has %d", c, err, busy.spans)
	}
	partly := &counting{reject: 7}
	_, load.To.URL = receive(t, partly)
	c, _, err = Run(context.Background(), load)
	if err != nil || c.Rejected != 7*c.Requests || c.Acked != 1000-c.Rejected || c.Error == "" {
		t.Errorf("partly: %+v, %v", c, err)
	}
	never := &counting{refuse: func(int) error {
		return &otlp.Refusal{Verdict: otlp.Invalid, Reason: "malformed", Message: "the test wants none"}
	}}
	load.To.URL, _ = receive(t, never)
	c, _, err = Run(context.Background(), load)
	if err != nil || c.Failed != 1000 || c.Acked+c.Retries != 0 || c.Error == "" {
		t.Errorf("never: %+v, %v", c, err)
	}
	down := &counting{refuse: func(int) error {
		return &otlp.Refusal{Verdict: otlp.Down, Reason: "store_down", Message: "the test's store is away", After: time.Millisecond}
	}}
	load.To.URL, _ = receive(t, down)
	load.Patience, load.Connections = 10*time.Millisecond, 2
	c, _, err = Run(context.Background(), load)
	if err != nil || c.Requests > 2 || c.Failed != c.Spans || c.Acked != 0 || c.Error == "" {
		t.Errorf("down: %+v, %v", c, err)
	}
	for _, bad := range []RunOptions{{Rate: -1}, {Rate: math.NaN()}, {For: -1}, {Spans: -1}, {To: otlp.Endpoint{URL: "ftp://127.0.0.1:1"}, Rate: 1000, Fleet: sim.Uniform(1)}, {Fleet: sim.Config{}, Rate: 10}} {
		if _, _, err := Run(context.Background(), bad); err == nil {
			t.Errorf("%+v is fine", bad)
		}
	}
}

// TestPace checks when requests are due, on times that are given.
func TestPace(t *testing.T) {
	c := &Corpus{Spans: 300, requests: []request{{spans: 100}, {spans: 200}}}
	now := time.Now().Add(time.Hour) // so that no round begins later than planned
	p := newPace(c, RunOptions{Rate: 1000, Spans: 650}, now)
	var last order
	for i, want := range []struct {
		after time.Duration
		spans int
	}{{0, 100}, {100 * time.Millisecond, 200}, {300 * time.Millisecond, 100}, {400 * time.Millisecond, 200}, {600 * time.Millisecond, 50}} {
		o, ok := p.next()
		if !ok || o.at.Sub(now) != want.after || o.spans != want.spans || o.request != i%2 {
			t.Errorf("request %d: %+v, %v after the start", i, o, o.at.Sub(now))
		}
		if i > 0 && (i%2 == 0) == (o.round == last.round) {
			t.Errorf("request %d is of round %d after one of %d", i, o.round, last.round)
		}
		if i%2 == 0 && o.end != o.at.Add(300*time.Millisecond).UnixNano() {
			t.Errorf("request %d: its round ends %v after it", i, time.Duration(o.end-o.at.UnixNano()))
		}
		last = o
	}
	if o, ok := p.next(); ok {
		t.Errorf("%+v is over the number", o)
	}
}

// TestSlow asks for less than the fleet makes: fewer whole traces.
func TestSlow(t *testing.T) {
	o := RunOptions{Fleet: sim.Uniform(4), Length: time.Minute, Rate: math.Inf(1)}
	all, err := corpusFor(o)
	if err != nil {
		t.Fatal(err)
	}
	own := float64(all.Spans) / all.Length.Seconds()
	o.Rate = own / 4
	some, err := corpusFor(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := float64(some.Spans) / some.Length.Seconds(); got < o.Rate*0.7 || got > o.Rate*1.3 || some.Spans/some.Traces*10 < all.Spans/all.Traces*7 {
		t.Errorf("%.0f of %.0f spans a second, %d spans of %d traces; all are %d of %d", got, own, some.Spans, some.Traces, all.Spans, all.Traces)
	}
}

// TestLive exports a fleet as it lives, on a clock that the test moves.
func TestLive(t *testing.T) {
	s := &counting{}
	url, _ := receive(t, s)
	f, err := sim.New(sim.Uniform(2))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	now := f.Start()
	l, err := NewLive(LiveOptions{
		To: otlp.Endpoint{URL: url, Compression: "none"}, Every: time.Millisecond, Batch: 100,
		Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Watch(l.Watch())
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	for range 60 {
		next := f.Now().Add(time.Second)
		f.Advance(next)
		mu.Lock()
		now = next
		mu.Unlock()
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// Run has sent what was due at the end; what waits for its exporter is not.
	rest := len(l.r.Due(now.Add(time.Hour)))
	c := l.Counts()
	if c.Acked != int64(s.spans) || c.Acked+int64(rest) != l.r.Rendered() || c.Acked == 0 || c.Failed != 0 {
		t.Errorf("%+v; the receiver has %d, %d wait, %d were rendered", c, s.spans, rest, l.r.Rendered())
	}
	if s.newest > now.Add(time.Second).UnixNano() {
		t.Error("spans are sent before they end")
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
