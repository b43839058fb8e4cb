package spans

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/otlp"
	"github.com/rollscope/rollscope/internal/sim"
	"github.com/rollscope/rollscope/internal/span"
)

// RunOptions say what load is sent, and where.
type RunOptions struct {
	Fleet  sim.Config // whose requests; its start does not matter
	Traces Options
	To     otlp.Endpoint

	// Rate is spans a second. 0 sends what the fleet makes as it lives, +Inf as fast as the receiver takes
	// it. Other rates send some minutes of the fleet's traces again and again, each time with other ids and
	// the times of then; below the fleet's own rate, of a share of its requests.
	Rate        float64
	For         time.Duration // stop after this time; 0 for no end
	Spans       int64         // stop after so many spans; 0 for no end
	Connections int           // that send at once; default 1, not with Rate 0
	Batch       int           // spans of a request at most; default 512
	Patience    time.Duration // how long a request is tried again; then all ends. Default 30 s, not with Rate 0
	Length      time.Duration // of the fleet's time that is sent again and again; default 2 minutes

	// Begun is called once with what is about to be sent; Tell with the counts so far, every Every (default
	// 5 s). Both may be nil.
	Begun func(*Corpus) // not with Rate 0
	Tell  func(Counts, time.Duration)
	Every time.Duration
}

// defaultBatch is how many spans OpenTelemetry's exporters send at once.
const defaultBatch = 512

// defaultPatience is how long a request of a load is tried again.
const defaultPatience = 30 * time.Second

// Run sends traces of a simulated fleet until its time or its number of spans is reached, ctx ends, which is no
// error, or the receiver has taken nothing for as long as Patience. It returns what became of them and how long it took, the making of the traces not included. An
// error means that nothing could be sent; what the receiver refused is in the counts.
func Run(ctx context.Context, o RunOptions) (Counts, time.Duration, error) {
	switch {
	case math.IsNaN(o.Rate) || o.Rate < 0:
		return Counts{}, 0, fmt.Errorf("sim traces: a rate of %v spans a second", o.Rate)
	case o.For < 0 || o.Spans < 0 || o.Connections < 0 || o.Batch < 0:
		return Counts{}, 0, errors.New("sim traces: time, number of spans, connections and spans of a request cannot be negative")
	}
	if o.Connections == 0 {
		o.Connections = 1
	}
	if o.Batch == 0 {
		o.Batch = defaultBatch
	}
	if o.Every <= 0 {
		o.Every = 5 * time.Second
	}
	if o.Patience <= 0 {
		o.Patience = defaultPatience
	}
	if o.Rate == 0 {
		return runLive(ctx, o)
	}
	c, err := corpusFor(o)
	if err != nil {
		return Counts{}, 0, err
	}
	return runLoad(ctx, o, c)
}

// corpusFor makes traces that can be sent at the wanted rate without becoming old: a round of them must not
// take longer than the time that they are from.
func corpusFor(o RunOptions) (*Corpus, error) {
	co := CorpusOptions{Fleet: o.Fleet, Traces: o.Traces, Batch: o.Batch, For: o.Length}
	c, err := NewCorpus(co)
	if err != nil {
		return nil, err
	}
	own := float64(c.Spans) / c.Length.Seconds()
	if o.Rate >= own {
		return c, nil
	}
	share := o.Rate / own
	if o.Traces.Share > 0 {
		share *= o.Traces.Share
	}
	co.Traces.Share = share
	if co.For <= 0 {
		co.For = defaultLength
	}
	if c, err = NewCorpus(co); err != nil {
		return nil, fmt.Errorf("sim traces: %g spans a second are %.2g of what this fleet makes (%.0f spans a second), too few for its traces: a smaller --fleet or a higher --rate: %w", o.Rate, share, own, err)
	}
	return c, nil
}

// runLive lets a fleet live from now on.
func runLive(ctx context.Context, o RunOptions) (Counts, time.Duration, error) {
	o.Fleet.Start = time.Now()
	f, err := sim.New(o.Fleet)
	if err != nil {
		return Counts{}, 0, err
	}
	l, err := NewLive(LiveOptions{Traces: o.Traces, To: o.To, Batch: o.Batch})
	if err != nil {
		return Counts{}, 0, err
	}
	f.Watch(l.Watch())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if o.For > 0 {
		ctx, stop = context.WithTimeout(ctx, o.For)
		defer stop()
	}
	began := time.Now()
	var sending sync.WaitGroup
	var closing error
	sending.Go(func() { closing = l.Run(ctx) })
	told := began
	for sleep(ctx, 200*time.Millisecond) {
		f.Advance(time.Now())
		if now := time.Now(); o.Tell != nil && now.Sub(told) >= o.Every {
			told = now
			o.Tell(l.Counts(), now.Sub(began))
		}
		if o.Spans > 0 && l.Counts().Spans >= o.Spans {
			break
		}
	}
	stop()
	sending.Wait()
	return l.Counts(), time.Since(began), closing
}

// runLoad sends a corpus over several connections.
func runLoad(ctx context.Context, o RunOptions, c *Corpus) (Counts, time.Duration, error) {
	var to []*exporter
	defer func() {
		for _, e := range to {
			_ = e.close() // nothing is under way any more
		}
	}()
	for range o.Connections {
		e, err := newExporter(o.To, o.Patience)
		if err != nil {
			return Counts{}, 0, err
		}
		to = append(to, e)
	}
	if o.Begun != nil {
		o.Begun(c)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if o.For > 0 {
		ctx, stop = context.WithTimeout(ctx, o.For)
		defer stop()
	}
	p := newPace(c, o, time.Now())
	sum := func() Counts {
		var all Counts
		for _, e := range to {
			all = all.Plus(e.count())
		}
		return all
	}
	var sending sync.WaitGroup
	for _, e := range to {
		sending.Go(func() {
			var body []byte
			for {
				next, ok := p.next()
				if !ok || !sleep(ctx, time.Until(next.at)) {
					return
				}
				var spans int
				body, spans = c.AppendRequest(body[:0], next.request, next.round, next.end)
				if next.spans < spans {
					body = firstSpans(body, next.spans)
				}
				if !e.send(ctx, body, next.spans) {
					stop()
				}
			}
		})
	}
	done := make(chan struct{})
	go func() {
		sending.Wait()
		close(done)
	}()
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if o.Tell != nil {
				o.Tell(sum(), time.Since(p.began))
			}
		case <-done:
			return sum(), time.Since(p.began), nil
		}
	}
}

// pace hands out what is to be sent next, and when.
type pace struct {
	c     *Corpus
	rate  float64
	left  int64 // spans; < 0 for no end
	began time.Time

	mu      sync.Mutex
	request int
	round   uint64
	end     int64 // of the round's last span, ns
	given   int64 // spans
}

// order is one request to send.
type order struct {
	at      time.Time
	request int
	round   uint64
	end     int64
	spans   int // fewer than the request has: only the first
}

func newPace(c *Corpus, o RunOptions, now time.Time) *pace {
	p := &pace{c: c, rate: o.Rate, left: -1, began: now, round: uint64(now.UnixNano())}
	if o.Spans > 0 {
		p.left = o.Spans
	}
	p.end = p.ends(now)
	return p
}

// ends is when the last span of a round ends that begins at t: when it is sent.
func (p *pace) ends(t time.Time) int64 {
	return t.Add(time.Duration(float64(p.c.Spans) / p.rate * float64(time.Second))).UnixNano()
}

func (p *pace) next() (order, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 {
		return order{}, false
	}
	at := p.began.Add(time.Duration(float64(p.given) / p.rate * float64(time.Second)))
	if p.request == p.c.Requests() {
		p.request = 0
		p.round++
		p.end = p.ends(latest(at, time.Now()))
	}
	n := p.c.requests[p.request].spans
	if p.left > 0 {
		n = int(min(int64(n), p.left))
		p.left -= int64(n)
	}
	t := order{at: at, request: p.request, round: p.round, end: p.end, spans: n}
	p.request++
	p.given += int64(n)
	return t, true
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// firstSpans makes a request of the first n spans of another of our making.
func firstSpans(body []byte, n int) []byte {
	scopes, err := span.Scan(body, nil)
	if err != nil {
		return body
	}
	for i := range scopes {
		k := min(n, len(scopes[i].Spans))
		scopes[i].Spans = scopes[i].Spans[:k]
		n -= k
	}
	return otlp.AppendTraces(nil, scopes)
}
