package metricstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// Span is a range of time, both ends included.
type Span struct{ From, To time.Time }

// Recording says when something was recorded.
type Recording struct {
	First, Last time.Time // zero when nothing was
	Gaps        []Span    // in which nothing was: from the last sample before to the first after
}

// missed is how many scrapes in a row must be missing before it is a gap.
const missed = 3

// Coverage tells when recording began, paused and ended, from the series `up`, or where there is none
// from some other series. It reads the bounds of chunks, and the samples of those chunks only that are
// longer than their number of samples explains.
func Coverage(ctx context.Context, q storage.ChunkQueryable) (Recording, error) {
	cq, err := q.ChunkQuerier(math.MinInt64/2, math.MaxInt64/2) // halves: the database adds to them
	if err != nil {
		return Recording{}, fmt.Errorf("metricstore: coverage: %w", err)
	}
	r, err := coverage(WithoutNameNotes(ctx), cq)
	return r, errors.Join(err, cq.Close())
}

func coverage(ctx context.Context, cq storage.ChunkQuerier) (Recording, error) {
	up := labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, "up")
	runs, err := recordedRuns(ctx, cq, up)
	if err == nil && len(runs) == 0 {
		var names []string
		if names, _, err = cq.LabelValues(ctx, model.MetricNameLabel, nil); err == nil && len(names) > 0 {
			runs, err = recordedRuns(ctx, cq, alternation(labels.MatchRegexp, model.MetricNameLabel, witnesses(names)))
		}
	}
	if err != nil || len(runs) == 0 {
		return Recording{}, err
	}
	slices.SortFunc(runs, func(a, b run) int { return int(sign(a.from - b.from)) })
	rec := Recording{First: time.UnixMilli(runs[0].from).UTC()}
	last, covered := runs[0].to, runs[0].to+runs[0].grace
	for _, r := range runs[1:] {
		if r.from > covered {
			rec.Gaps = append(rec.Gaps, Span{time.UnixMilli(last).UTC(), time.UnixMilli(r.from).UTC()})
		}
		last, covered = max(last, r.to), max(covered, r.to+r.grace)
	}
	rec.Last = time.UnixMilli(last).UTC()
	return rec, nil
}

// witnesses picks a few names whose series stand for the whole record: scraped ones before recorded ones,
// never buckets.
func witnesses(names []string) []string {
	var scraped, others []string
	for _, n := range names {
		switch {
		case strings.HasSuffix(n, "_bucket"):
		case strings.HasPrefix(n, "engine:"), strings.HasPrefix(n, "fleet:"), strings.HasPrefix(n, "ALERTS"):
			others = append(others, n)
		default:
			scraped = append(scraped, n)
		}
	}
	out := append(scraped, others...)
	if len(out) == 0 {
		out = names
	}
	return out[:min(len(out), 10)]
}

// run is a stretch of samples without a pause, in Unix milliseconds; grace is how long after its end the
// next sample may come.
type run struct{ from, to, grace int64 }

// recordedRuns collects the runs of all series that m selects.
func recordedRuns(ctx context.Context, cq storage.ChunkQuerier, m *labels.Matcher) ([]run, error) {
	set := cq.Select(ctx, false, &storage.SelectHints{Start: math.MinInt64 / 2, End: math.MaxInt64 / 2, DisableTrimming: true}, m)
	var out []run
	var it chunks.Iterator
	for set.Next() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		it = set.At().Iterator(it)
		var metas []chunks.Meta
		interval := int64(math.MaxInt64)
		for it.Next() {
			c := it.At()
			metas = append(metas, c)
			if n := int64(c.Chunk.NumSamples()); n > 1 && c.MaxTime > c.MinTime {
				interval = min(interval, (c.MaxTime-c.MinTime)/(n-1))
			}
		}
		if err := it.Err(); err != nil {
			return nil, fmt.Errorf("metricstore: coverage: %w", err)
		}
		if len(metas) > 0 {
			// A pause makes the mean of a chunk too long, and a series may have one chunk only.
			if step := medianStep(metas[0].Chunk); step > 0 {
				interval = min(interval, step)
			}
		}
		if interval == math.MaxInt64 {
			interval = time.Minute.Milliseconds() // single samples tell nothing of their rhythm
		}
		out = appendRuns(out, metas, interval)
	}
	if err := set.Err(); err != nil {
		return nil, fmt.Errorf("metricstore: coverage: %w", err)
	}
	return out, nil
}

// medianStep is the middle of the steps between a chunk's samples, 0 with fewer than two.
func medianStep(c chunkenc.Chunk) int64 {
	var steps []int64
	it := c.Iterator(nil)
	var last int64
	for n := 0; it.Next() != chunkenc.ValNone; n++ {
		if t := it.AtT(); n > 0 {
			steps = append(steps, t-last)
		}
		last = it.AtT()
	}
	if len(steps) == 0 {
		return 0
	}
	slices.Sort(steps)
	return steps[len(steps)/2]
}

// appendRuns adds one series' chunks. Only a chunk that has fewer samples than its length asks for is
// read, to find where they are missing.
func appendRuns(out []run, metas []chunks.Meta, interval int64) []run {
	grace := missed * interval
	begin := len(out)
	add := func(from, to int64) {
		if n := len(out); n > begin && from <= out[n-1].to+grace {
			out[n-1].to = max(out[n-1].to, to)
			return
		}
		out = append(out, run{from, to, grace})
	}
	for _, c := range metas {
		n := int64(c.Chunk.NumSamples())
		if n == 0 {
			continue // damaged
		}
		if c.MaxTime-c.MinTime <= (n-1)*interval+grace {
			add(c.MinTime, c.MaxTime)
			continue
		}
		it := c.Chunk.Iterator(nil)
		from, to := int64(math.MinInt64), int64(0)
		for it.Next() != chunkenc.ValNone {
			t := it.AtT()
			if from == math.MinInt64 {
				from = t
			} else if t-to > grace {
				add(from, to)
				from = t
			}
			to = t
		}
		if from != math.MinInt64 {
			add(from, to)
		}
	}
	return out
}

func sign(x int64) int64 {
	switch {
	case x < 0:
		return -1
	case x > 0:
		return 1
	}
	return 0
}
