package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// actor is one long-lived part of the process.
type actor struct {
	name string
	// run works until ctx ends and then returns; nil for a part that only needs closing.
	run func(ctx context.Context) error
	// stop, if set, is called once run has returned.
	stop func() error
	// why says why the part stops where it does in the order.
	why string
}

// group starts parts in order and stops them in reverse, one after the other, each fully ended before
// the next is told: what is written by one part must still find the part that takes it.
type group struct {
	logger *slog.Logger
	actors []actor
	// grace bounds how long one part may take to end.
	grace time.Duration
}

func (g *group) add(a actor) { g.actors = append(g.actors, a) }

// run blocks until ctx ends or a part fails, then stops all. It returns the first failure.
func (g *group) run(ctx context.Context) error {
	type ended struct {
		i   int
		err error
	}
	var (
		ends    = make(chan ended, len(g.actors))
		cancels = make([]context.CancelFunc, len(g.actors))
		dones   = make([]chan struct{}, len(g.actors))
	)
	for i, a := range g.actors {
		// Detached from ctx: a part ends when its turn comes, not when the signal arrives.
		actx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		cancels[i], dones[i] = cancel, make(chan struct{})
		if a.run == nil {
			close(dones[i])
			continue
		}
		go func() {
			defer close(dones[i])
			err := a.run(actx)
			if actx.Err() != nil && errors.Is(err, context.Canceled) {
				err = nil
			}
			ends <- ended{i, err}
		}()
	}
	var first error
	select {
	case <-ctx.Done():
		g.logger.Info("stopping", "reason", context.Cause(ctx))
	case e := <-ends:
		first = e.err
		if first == nil {
			first = errors.New("it ended by itself")
		}
		first = fmt.Errorf("%s: %w", g.actors[e.i].name, first)
		g.logger.Error("stopping, because a part of the process failed", "err", first)
	}
	for i := len(g.actors) - 1; i >= 0; i-- {
		a := g.actors[i]
		cancels[i]()
		select {
		case <-dones[i]:
		case <-time.After(g.grace):
			g.logger.Error("a part does not end; going on without it", "part", a.name, "waited", g.grace)
		}
		if a.stop != nil {
			if err := a.stop(); err != nil {
				g.logger.Error("a part did not stop cleanly", "part", a.name, "err", err)
				if first == nil {
					first = fmt.Errorf("stopping %s: %w", a.name, err)
				}
			}
		}
		g.logger.Debug("stopped", "part", a.name, "order", a.why)
	}
	return first
}
