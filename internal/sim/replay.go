package sim

import (
	"context"
	"fmt"
	"time"
)

// Scrape is one answer of one target on the virtual clock. Body is valid during the call only.
type Scrape struct {
	Time        time.Time
	Target      Target
	Body        []byte
	ContentType string
	Status      int // 0 = connection refused
}

// ReplayOptions say which scrapes Replay makes.
type ReplayOptions struct {
	From, To time.Time     // inclusive; a zero From means where the fleet is
	Interval time.Duration // between two scrapes of a target; default 15 s
	Accept   string        // header that the scraper would send
}

// Replay drives the fleet on a virtual clock: it advances it to each scrape time and hands out what
// every target answers then. It stops at the first error of each, or when ctx ends.
func Replay(ctx context.Context, f *Fleet, o ReplayOptions, each func(Scrape) error) error {
	return f.steps(ctx, o, func(t time.Time) error {
		for _, target := range f.targets {
			s := Scrape{Time: t, Target: target.Target}
			s.Body, s.ContentType, s.Status = f.ExpositionFor(target.Name, o.Accept)
			if err := each(s); err != nil {
				return fmt.Errorf("sim: replay of %s at %s: %w", target.Name, t.Format(time.RFC3339), err)
			}
		}
		return nil
	})
}

// ReplaySamples is Replay without text: at each scrape time it calls at, which reads Samples and
// Series of the fleet.
func ReplaySamples(ctx context.Context, f *Fleet, o ReplayOptions, at func(t time.Time) error) error {
	return f.steps(ctx, o, at)
}

func (f *Fleet) steps(ctx context.Context, o ReplayOptions, at func(t time.Time) error) error {
	if o.Interval <= 0 {
		o.Interval = 15 * time.Second
	}
	if o.From.IsZero() {
		o.From = f.Now()
	}
	for t := o.From; !t.After(o.To); t = t.Add(o.Interval) {
		if err := ctx.Err(); err != nil {
			return err
		}
		f.Advance(t)
		if err := at(t); err != nil {
			return err
		}
	}
	return nil
}
