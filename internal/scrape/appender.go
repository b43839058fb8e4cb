package scrape

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	promscrape "github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
)

// watcher stands between Prometheus's scrape loops and the store. It sees every sample with the
// target it came from. On a sample whose series is known it does one comparison; what it wants to
// know about a series it reads when the series is seen first.
type watcher struct {
	m       *Manager
	next    storage.AppendableV2
	targets sync.Map // *promscrape.Target -> *target
}

func newWatcher(m *Manager) *watcher { return &watcher{m: m, next: m.opts.Appendable} }

// of gives what is known about a target, making it at first sight.
func (w *watcher) of(t *promscrape.Target) *target {
	if v, ok := w.targets.Load(t); ok {
		return v.(*target)
	}
	v, _ := w.targets.LoadOrStore(t, newTarget(t))
	return v.(*target)
}

// each calls f for every target that is known.
func (w *watcher) each(f func(*target)) {
	w.targets.Range(func(_, v any) bool {
		f(v.(*target))
		return true
	})
}

// AppenderV2 opens the appender of one scrape.
func (w *watcher) AppenderV2(ctx context.Context) storage.AppenderV2 {
	next := w.next.AppenderV2(ctx)
	pt, ok := promscrape.TargetFromContext(ctx)
	if !ok {
		return next
	}
	t := w.of(pt)
	store, ok := promscrape.MetricMetadataStoreFromContext(ctx)
	if ok {
		// The scrape loop sets its own store whenever it is made anew, so ours is set every time.
		if isLoadsPath(pt.GetValue(model.MetricsPathLabel)) {
			pt.SetMetadataStore(store)
		} else {
			pt.SetMetadataStore(canonicalStore{store})
		}
	}
	a := &appender{AppenderV2: next, m: w.m, t: t, meta: store, up: math.NaN()}
	t.scan.Lock()
	t.iter++
	a.iter = t.iter
	a.refs = t.refs
	a.aliased = len(t.alias) > 0
	t.scan.Unlock()
	return a
}

// watched is how many series of a target are looked at on every scrape, to tell whether one process
// answers.
const watched = 4

// appender is the appender of one scrape of one target.
type appender struct {
	storage.AppenderV2
	m    *Manager
	t    *target
	meta promscrape.MetricMetadataStore
	iter uint64

	refs    [watched]storage.SeriesRef // watched series; 0 is none
	values  [watched]float64
	got     [watched]bool
	aliased bool // some series of the target is known to come in two spellings

	// What the scrape loop reports at the end.
	up      float64 // NaN: not reported
	at      int64   // milliseconds
	samples int
	added   int
	dropped map[string]int64 // by reason
}

// Append passes a sample on.
func (a *appender) Append(ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, opts storage.AOptions) (storage.SeriesRef, error) {
	if ref == 0 || a.aliased || opts.MetricFamilyName != "" || ref == a.refs[0] || ref == a.refs[1] || ref == a.refs[2] || ref == a.refs[3] {
		return a.look(ref, ls, st, t, v, h, fh, opts)
	}
	r, err := a.AppenderV2.Append(ref, ls, st, t, v, h, fh, opts)
	if err != nil {
		return r, a.failed(err, false)
	}
	return r, nil
}

// look handles everything but a plain sample of a known series.
func (a *appender) look(ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, opts storage.AOptions) (storage.SeriesRef, error) {
	if name := opts.MetricFamilyName; name != "" && name[len(name)-1] == 0xff {
		// The scrape's own report: Prometheus marks these names so that no exposition can have them.
		a.report(name[:len(name)-1], t, v)
		r, err := a.AppenderV2.Append(ref, ls, st, t, v, h, fh, opts)
		if err != nil {
			return r, a.failed(err, true)
		}
		return r, nil
	}
	for i, w := range a.refs {
		if w != 0 && w == ref {
			a.values[i], a.got[i] = v, true
		}
	}
	if ref == 0 {
		ls = a.normalised(ls)
	}
	r, err := a.AppenderV2.Append(ref, ls, st, t, v, h, fh, opts)
	if err != nil {
		return r, a.failed(err, false)
	}
	if value.IsStaleNaN(v) || h != nil || fh != nil {
		return r, nil
	}
	if a.t.twice(a, ref, r) {
		// Two spellings of one series in one answer: the first is in the batch already and wins.
		return r, storage.ErrDuplicateSampleForTimestamp
	}
	if ref == 0 {
		a.firstSight(r, ls, v)
	} else if r != ref {
		a.t.moved(a, ref, r)
	}
	return r, nil
}

// normalised completes what Prometheus's parser does for le and quantile: it does it only under a
// TYPE line. It changes the labels of a series before the store has seen it.
func (a *appender) normalised(ls labels.Labels) labels.Labels {
	le, q := ls.Get(model.BucketLabel), ls.Get(model.QuantileLabel)
	if le == "" && q == "" {
		return ls
	}
	name := ls.Get(model.MetricNameLabel)
	typ := model.MetricType("")
	if a.meta != nil {
		for _, n := range []string{name, strings.TrimSuffix(name, "_bucket")} {
			if md, ok := (canonicalStore{a.meta}).GetMetadata(n); ok {
				typ = md.Type
				break
			}
		}
	}
	if !needsFloat(ls, typ) {
		return ls
	}
	lb := labels.NewBuilder(ls)
	normaliseFloats(lb, typ)
	return lb.Labels()
}

// firstSight chooses the series that are watched.
func (a *appender) firstSight(ref storage.SeriesRef, ls labels.Labels, v float64) {
	name := ls.Get(model.MetricNameLabel)
	slot := -1
	switch {
	case name == "process_start_time_seconds":
		slot = 0 // alone decides where it is
	case v > 0 && strings.HasSuffix(name, "_total") && ls.Get("worker_addr") == "":
		for i := 1; i < watched; i++ {
			if a.refs[i] == 0 {
				slot = i
				break
			}
		}
	}
	if slot < 0 || (slot == 0 && a.refs[0] != 0) {
		return
	}
	a.refs[slot], a.values[slot], a.got[slot] = ref, v, true
}

// report takes what the scrape loop says about the scrape.
func (a *appender) report(name string, t int64, v float64) {
	if value.IsStaleNaN(v) {
		return
	}
	switch name {
	case "up":
		a.up, a.at = v, t
	case "scrape_samples_scraped":
		a.samples = int(v)
	case "scrape_series_added":
		a.added = int(v)
	}
}

// failed counts a sample that the store refused and gives the error to return. Prometheus's loop
// does not know ErrTooOldSample, which a store with an out-of-order window returns: it would drop
// the whole scrape, and the report on it, for as long as a clock that went back has not caught up.
func (a *appender) failed(err error, report bool) error {
	reason := ""
	switch {
	case errors.Is(err, storage.ErrTooOldSample):
		reason, err = dropTooOld, storage.ErrOutOfOrderSample
	case errors.Is(err, storage.ErrOutOfOrderSample):
		reason = dropOutOfOrder
	case errors.Is(err, storage.ErrOutOfBounds):
		reason = dropTooOld
		if report {
			err = storage.ErrOutOfOrderSample
		}
		a.t.expect(expectOutOfBounds)
	case errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
		reason = dropDuplicateTime
		if !report {
			a.t.expect(expectDuplicate)
		}
	default:
		return err
	}
	if a.dropped == nil {
		a.dropped = map[string]int64{}
	}
	a.dropped[reason]++
	return err
}

// Commit commits the scrape and then tells the manager about it.
func (a *appender) Commit() error {
	err := a.AppenderV2.Commit()
	if !math.IsNaN(a.up) {
		a.m.scraped(a, err)
	}
	return err
}
