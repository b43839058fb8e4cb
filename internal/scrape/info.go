package scrape

import (
	"context"
	"errors"
	"math"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"

	"github.com/rollscope/rollscope/internal/engine"
)

// infoWriter writes one series for each identified target and ends those that are no longer true.
type infoWriter struct {
	m    *Manager
	have map[string]labels.Labels
}

func (w *infoWriter) write(ctx context.Context) {
	now := w.m.opts.Now().UnixMilli()
	next := map[string]labels.Labels{}
	for _, t := range w.m.Targets() {
		if t.Identity.Backend == engine.Unknown {
			continue
		}
		l := infoLabels(t).WithoutEmpty()
		next[l.String()] = l
	}
	app := w.m.opts.Appendable.AppenderV2(ctx)
	n := 0
	put := func(l labels.Labels, v float64) bool {
		n++
		_, err := app.Append(0, l, 0, now, v, nil, nil, storage.AOptions{})
		switch {
		case err == nil,
			errors.Is(err, storage.ErrOutOfOrderSample), errors.Is(err, storage.ErrTooOldSample),
			errors.Is(err, storage.ErrDuplicateSampleForTimestamp), errors.Is(err, storage.ErrOutOfBounds):
			return true // the clock went back: the next round writes again
		default:
			w.m.log.Warn("the targets' identities could not be stored", "err", err)
			return false
		}
	}
	ok := true
	for k, l := range next {
		delete(w.have, k)
		ok = ok && put(l, 1)
	}
	for _, l := range w.have {
		ok = ok && put(l, math.Float64frombits(value.StaleNaN))
	}
	w.have = next
	if n == 0 || !ok {
		if err := app.Rollback(); err != nil {
			w.m.log.Warn("the targets' identities could not be rolled back", "err", err)
		}
		return
	}
	if err := app.Commit(); err != nil {
		w.m.log.Warn("the targets' identities could not be stored", "err", err)
	}
}
