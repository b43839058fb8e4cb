package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/dumps"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/rolloutstore"
	"github.com/rollscope/rollscope/internal/tracker"
	"github.com/rollscope/rollscope/trace"
)

// receivedBytes bounds the dumps that are made of posted samples, of all runs; older ones are removed.
const receivedBytes = 20 << 30

// openInbox opens the place where posted samples wait: DIR/rollscope/rollouts-in.
func (p *rolloutPart) openInbox() error {
	var err error
	p.inbox, err = dumps.OpenInbox(filepath.Join(p.dir, "rollscope", "rollouts-in"), dumps.InboxOptions{
		Receiver: p, Logger: p.logger, KeepBytes: receivedBytes,
	})
	if err == nil {
		p.face.receive = p.take
	}
	return err
}

// take is POST /rollouts.
func (p *rolloutPart) take(ctx context.Context, body io.Reader) (api.Received, error) {
	got, err := p.inbox.Take(ctx, body)
	if err != nil {
		return api.Received{}, refusal(err)
	}
	if err := tracker.ValidateRun(got.Run); err != nil {
		p.logger.Warn("the name of a run that is posted does not fit the trackers", "err", err)
	}
	return api.Received{Run: got.Run, Kind: got.Kind, ID: got.RolloutID, Samples: got.Samples, Total: got.Total, Again: got.Again, Final: got.Final}, nil
}

// refusal turns the inbox's answer into the API's.
func refusal(err error) error {
	var r *dumps.Refusal
	if !errors.As(err, &r) {
		return err
	}
	return &api.Error{Code: r.Reason, Message: r.Error()}
}

// Received implements [dumps.Receiver]: a rollout whose samples were posted is read like one that was
// found.
func (p *rolloutPart) Received(ctx context.Context, d dumps.ReceivedDump) error {
	now := p.current()
	kind := rollout.Train
	if d.Kind == trace.Eval {
		kind = rollout.Eval
	}
	observer := p.observer(ctx, d.Run, kind, d.RolloutID)
	st, err := dumps.Read(ctx, d.Path, dumps.ReadOptions{Metrics: metricOptions(now.rolloutOf(d.Run), 0), Tool: p.version, Sample: observer.sample})
	if err != nil {
		return err
	}
	observer.flush()
	st.Header.RolloutID = rollout.Int{N: d.RolloutID, OK: true}
	if d.Incomplete {
		what := fmt.Sprintf("the senders dropped %d samples and %d parts did not come", d.Lost, d.Missing)
		st.Metrics.MarkPartial(what)
		st.Problems["incomplete"] = dumps.ProblemCount{Count: 1, What: what}
	}
	if _, err := p.store.Run(d.Run); err != nil {
		if err := p.store.PutRun(rolloutstore.Run{Name: d.Run}); err != nil {
			return err
		}
	}
	p.putting.Lock()
	defer p.putting.Unlock()
	id, err := now.ingest.put(ctx, d.Run, st)
	if err != nil {
		return err
	}
	p.logger.Info("a step was received", "step", id, "samples", st.Samples)
	if p.changed != nil {
		p.changed()
	}
	return nil
}

// runInbox makes dumps of what was posted until ctx ends.
func (p *rolloutPart) runInbox(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	p.inbox.Run(ctx, t.C)
}
