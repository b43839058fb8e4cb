package fpmbus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// RelayNATSOptions are for [NewRelayNATS].
type RelayNATSOptions struct {
	RelayTo
	Server NATSServer
	Retry  Retry
	// Settle is how long after a lost connection was made again nothing is sent: core NATS keeps nothing, and
	// subscribers that come back later than we would miss it. 0: 2 s; negative: not at all.
	Settle time.Duration
}

// RelayNATS is a [Sink] that publishes to core NATS. While there is no server its batch and the outlet's
// queue wait. A batch counts as taken when the server has confirmed it; a batch whose confirmation got lost
// is sent again with the same numbers, so a receiver may get a message twice but can tell.
type RelayNATS struct {
	o    RelayNATSOptions
	num  *numbering
	lost losses
	m    *meter

	mu    sync.Mutex
	nc    *nats.Conn
	up    chan struct{} // closed while connected
	since time.Time     // when it was made again; zero after the first connection
	life  uint64        // which of the client's connections that is, as it counts them
	buf   []byte
}

// NewRelayNATS makes a relay; a [Bus] runs it.
func NewRelayNATS(o RelayNATSOptions) (*RelayNATS, error) {
	if err := o.Server.check(); err != nil {
		return nil, err
	}
	num, err := newNumbering(o.RelayTo)
	if err != nil {
		return nil, err
	}
	o.RelayTo = num.to
	if o.Name == "" {
		o.Name = o.Server.address()
	}
	if o.Settle == 0 {
		o.Settle = 2 * time.Second
	}
	o.Retry = o.Retry.withDefaults()
	return &RelayNATS{o: o, num: num, m: newMeter(o.Now, o.Name, PlaneNATS, o.Server.address()), up: make(chan struct{})}, nil
}

// Run keeps the connection until ctx ends.
func (r *RelayNATS) Run(ctx context.Context) error {
	defer r.m.state(Ended, nil)
	closed := make(chan struct{})
	nc, err := r.o.Server.connect(r.o.Retry, events{
		up: func(nc *nats.Conn, again bool) {
			r.m.state(Connected, nil)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.life = nc.Stats().Reconnects
			if again {
				r.since = time.Now()
			}
			select {
			case <-r.up:
			default:
				close(r.up)
			}
		},
		down: func(err error) {
			r.m.down(err)
			r.mu.Lock()
			defer r.mu.Unlock()
			select {
			case <-r.up:
				r.up = make(chan struct{})
			default:
			}
		},
		wrong: func(_ *nats.Subscription, err error) { r.m.wrong(err) },
		// Nothing is held back in the client while there is no server: what is held is in our queue.
	}, nats.ReconnectBufSize(-1), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.nc = nc
	r.mu.Unlock()
	<-ctx.Done()
	nc.Close()
	<-closed
	return nil
}

// Take implements [Sink]. It returns when the server has the batch, or when ctx ends.
func (r *RelayNATS) Take(ctx context.Context, batch []Message) error {
	for {
		nc, life, err := r.ready(ctx)
		if err != nil {
			return err
		}
		unfits := map[string]int64{}
		if err = r.publish(ctx, nc, life, batch, unfits); err == nil {
			var n int64
			for reason, c := range unfits {
				r.lost.add(reason, c)
				n += c
			}
			if n > 0 {
				return &Lost{N: n, Err: fmt.Errorf("fpmbus: relay to NATS at %s: %d messages cannot be passed on: %v", r.o.Server.address(), n, unfits)}
			}
			return nil
		}
		r.m.wrong(err)
		if !sleep(ctx, r.o.Retry.Min) {
			return ctx.Err()
		}
	}
}

// ready waits for a connection that is settled, and tells which one it is.
func (r *RelayNATS) ready(ctx context.Context) (*nats.Conn, uint64, error) {
	for {
		r.mu.Lock()
		up := r.up
		r.mu.Unlock()
		select {
		case <-up:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
		r.mu.Lock()
		nc, since, life := r.nc, r.since, r.life // of the connection that is there now
		r.mu.Unlock()
		// Run has not come so far yet, or the client has another connection and has not said so yet.
		if nc == nil || nc.Stats().Reconnects != life {
			if !sleep(ctx, time.Millisecond) {
				return nil, 0, ctx.Err()
			}
			continue
		}
		rest := time.Duration(0)
		if !since.IsZero() && r.o.Settle > 0 {
			rest = r.o.Settle - time.Since(since)
		}
		if rest <= 0 {
			return nc, life, nil
		}
		if !sleep(ctx, rest) {
			return nil, 0, ctx.Err()
		}
	}
}

// flushTimeout is how long the server may take to confirm a batch before it is sent again.
const flushTimeout = 10 * time.Second

// publish sends a batch and has the server confirm it. That means nothing when the client made its connection
// anew meanwhile: what went into the former one may be lost.
func (r *RelayNATS) publish(ctx context.Context, nc *nats.Conn, life uint64, batch []Message, unfits map[string]int64) error {
	for i := range batch {
		m := &batch[i]
		if reason := unfit(m); reason != "" {
			unfits[reason]++
			continue
		}
		r.buf = AppendEnvelope(r.buf[:0], m.envelope(r.o.Now))
		err := nc.Publish(m.stream.subject, r.buf) // it copies
		switch {
		case errors.Is(err, nats.ErrMaxPayload):
			unfits["too_large"]++
		case errors.Is(err, nats.ErrBadSubject):
			unfits["bad_subject"]++
		case err != nil:
			return fmt.Errorf("fpmbus: relay to NATS at %s: %w", r.o.Server.address(), err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("fpmbus: relay to NATS at %s: the server did not confirm: %w", r.o.Server.address(), err)
	}
	if nc.Stats().Reconnects != life {
		return fmt.Errorf("fpmbus: relay to NATS at %s: the connection was lost and made again within a batch", r.o.Server.address())
	}
	return nil
}

// envelope is the message's on its way out. It was published when it was received, so that sending it
// again does not look like another message.
func (m *Message) envelope(now func() time.Time) Envelope {
	at := m.Received
	if at.IsZero() {
		at = now()
	}
	return Envelope{Publisher: m.stream.publisher, Sequence: m.number, Published: at, Topic: Topic, Payload: m.Payload}
}

// Status tells how the connection is.
func (r *RelayNATS) Status() Status { return r.m.status() }

// Drops tells what the relay could not pass on.
func (r *RelayNATS) Drops() []Drop { return r.lost.list(r.o.Name) }

func (r *RelayNATS) number(m *Message) { r.num.number(m) }
