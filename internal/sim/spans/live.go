package spans

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/otlp"
	"github.com/rollscope/rollscope/internal/sim"
)

// LiveOptions say how the traces of a fleet that lives in real time are sent.
type LiveOptions struct {
	Traces Options
	To     otlp.Endpoint
	// Now is the fleet's time: spans leave when it reaches the moment at which their exporters would send
	// them. Default: the clock, which is right for a fleet of speed 1.
	Now    func() time.Time
	Every  time.Duration // between two looks at what is due; default 500 ms
	Batch  int           // spans of a request at most; default 512
	Logger *slog.Logger  // nil logs nothing
}

// Live exports the traces of a fleet as it lives. Its methods are safe for concurrent use.
type Live struct {
	o   LiveOptions
	log *slog.Logger
	to  *exporter

	mu sync.Mutex
	r  *Renderer
}

// livePatience is how long a request is tried again: an exporter of an engine drops it then too.
const livePatience = 15 * time.Second

// NewLive makes an exporter; give its Watch to the fleet before time passes, and run it.
func NewLive(o LiveOptions) (*Live, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Every <= 0 {
		o.Every = 500 * time.Millisecond
	}
	if o.Batch <= 0 {
		o.Batch = defaultBatch
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r, err := New(o.Traces)
	if err != nil {
		return nil, err
	}
	e, err := newExporter(o.To, livePatience)
	if err != nil {
		return nil, err
	}
	return &Live{o: o, log: o.Logger, to: e, r: r}, nil
}

// Watch is for [sim.Fleet.Watch].
func (l *Live) Watch() sim.Watch {
	return sim.Watch{Call: func(c sim.Call) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.r.Call(c)
	}}
}

// Counts says what became of the spans so far.
func (l *Live) Counts() Counts { return l.to.count() }

// Run sends what is due until ctx ends, and then what is due by then. The connections are closed when it
// returns. It fails only where they cannot be closed: what the receiver does not take is counted, and logged
// once in a while.
func (l *Live) Run(ctx context.Context) error {
	t := time.NewTicker(l.o.Every)
	defer t.Stop()
	var failed int64
	var said time.Time
	for {
		l.step(ctx)
		if c := l.to.count(); c.Failed > failed && time.Since(said) > time.Minute {
			l.log.Warn("traces of the simulated fleet were not taken", "spans", c.Failed-failed, "err", c.Error)
			failed, said = c.Failed, time.Now()
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			l.step(ctx)
			return errors.Join(l.to.close())
		}
	}
}

// step sends what is due. While the receiver takes nothing, nothing else is taken from the renderer; then it
// may be much at once.
func (l *Live) step(ctx context.Context) {
	now := l.o.Now()
	l.mu.Lock()
	due := l.r.Due(now)
	l.mu.Unlock()
	for _, b := range batches(due, l.o.Batch) {
		l.to.send(ctx, b.body, b.spans)
	}
}
