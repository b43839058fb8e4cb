package app

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
)

// requestSink takes what was seen of requests into their table.
type requestSink interface {
	Observe(ctx context.Context, list []request.Observation) error
}

// dumpObserver hands the requests of a dump's samples to the table while the dump is read. The table is
// not what a step depends on: when it takes nothing, the step is stored all the same, and what is missing
// of its requests is counted.
type dumpObserver struct {
	ctx    context.Context // of the read
	sink   requestSink     // nil: nobody keeps requests
	run    string
	kind   rollout.Kind
	step   int64
	logger *slog.Logger
	lost   *atomic.Int64

	batch []request.Observation
	err   error // of the first batch that was not taken; no other is tried
}

const (
	// observeBatch is how many are handed over at once; observeWait how long the store may let us wait.
	observeBatch = 1000
	observeWait  = 30 * time.Second
)

func (o *dumpObserver) sample(s *rollout.Sample) {
	if o.sink == nil {
		return
	}
	if o.batch = append(o.batch, s.Observations(o.run, o.kind, o.step)...); len(o.batch) >= observeBatch {
		o.flush()
	}
}

// flush hands over what is left.
func (o *dumpObserver) flush() {
	if len(o.batch) == 0 || o.ctx.Err() != nil {
		return
	}
	if o.err == nil {
		ctx, cancel := context.WithTimeout(o.ctx, observeWait)
		o.err = o.sink.Observe(ctx, o.batch)
		cancel()
		if o.err != nil {
			o.logger.Error("requests of a step are not in the table of requests; the step itself is kept", "run", o.run, "kind", kindWord(o.kind), "step", o.step, "err", o.err)
		}
	}
	if o.err != nil {
		o.lost.Add(int64(len(o.batch)))
	}
	o.batch = o.batch[:0]
}
