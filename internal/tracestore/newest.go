package tracestore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rollscope/rollscope/internal/eventstore"
)

// newestSpans calls fn with fields of the newest spans of a range, in no order, of about most at most; cut
// says that there are older ones, and from when on all were read. The event store is not asked to sort them:
// it would have to hold all of them, and refuses that long before most.
func (st *Store) newestSpans(ctx context.Context, fields string, from, to int64, most int, fn func(r row) error) (since int64, cut bool, err error) {
	since, cut, err = st.startOfNewest(ctx, from, to, most)
	if err != nil || since == 0 {
		return 0, false, err
	}
	n := 0
	err = st.query(ctx, spansOnly+" | fields "+fields, since, to, func(r row) error {
		if n++; n > most+most/4 { // more came meanwhile, or one instant has them all
			cut = true
			return eventstore.ErrStop
		}
		return fn(r)
	})
	return since, cut, err
}

// startOfNewest is the time from which on a range has at most most spans, or few more where they stand close
// together; 0 when it has none. older says that there are spans before.
func (st *Store) startOfNewest(ctx context.Context, from, to int64, most int) (since int64, older bool, err error) {
	n, lo, hi := 0, int64(0), int64(0)
	err = st.query(ctx, spansOnly+" | stats count() as n, min(_time) as a, max(_time) as b", from, to, func(r row) error {
		n, lo, hi = int(r.int("n")), r.time("a"), r.time("b")
		return nil
	})
	if err != nil || n <= most {
		return lo, false, err
	}
	// The bucket in which the limit lies is divided until it no longer matters.
	type bucket struct {
		at int64
		n  int
	}
	const finest = int64(time.Millisecond)
	for room := most; ; {
		step := max((hi-lo)/256, finest)
		var buckets []bucket
		err := st.query(ctx, spansOnly+fmt.Sprintf(" | stats by (_time:%dns) count() as n", step), lo, hi, func(r row) error {
			buckets = append(buckets, bucket{max(lo, r.time("_time")), int(r.int("n"))})
			return nil
		})
		if err != nil {
			return 0, false, err
		}
		slices.SortFunc(buckets, func(a, b bucket) int { return cmp.Compare(b.at, a.at) })
		i := 0
		for ; i < len(buckets) && buckets[i].n <= room; i++ {
			room -= buckets[i].n
			since = buckets[i].at
		}
		if i == len(buckets) { // some were removed meanwhile
			return max(since, lo), true, nil
		}
		if since != 0 && room < most/8 || step == finest {
			if since == 0 {
				since = buckets[i].at
			}
			return since, true, nil
		}
		lo, hi = buckets[i].at, min(hi, buckets[i].at+step-1)
	}
}
