package metricstore

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// relabelled is a series under other labels. S is [storage.Series] or [storage.ChunkSeries].
type relabelled[S storage.Labels] struct {
	ls labels.Labels
	s  S
}

// seriesIter is what both kinds of series sets have in common.
type seriesIter[S storage.Labels] interface {
	Next() bool
	At() S
	Err() error
	Warnings() annotations.Annotations
}

// gather selects the parts of a plan, relabels their series and sorts them. Renaming may change the order
// and make two series one, so there is no way to do it series by series.
func gather[S storage.Labels, T seriesIter[S]](p plan, sel func([]*labels.Matcher) T) ([]relabelled[S], annotations.Annotations, error) {
	var out []relabelled[S]
	var warn annotations.Annotations
	b := labels.NewBuilder(labels.EmptyLabels())
	// All selects before any is read: a remote one works meanwhile.
	sets := make([]T, len(p.parts))
	for i, pt := range p.parts {
		sets[i] = sel(pt.matchers)
	}
	for i, set := range sets {
		for set.Next() {
			s := set.At()
			out = append(out, relabelled[S]{p.relabel(s.Labels(), p.parts[i].rename, b), s})
		}
		warn.Merge(set.Warnings())
		if err := set.Err(); err != nil {
			return nil, warn, err
		}
	}
	if len(out) == 0 && p.otherwise != nil {
		return gather[S](*p.otherwise, sel)
	}
	slices.SortStableFunc(out, func(a, b relabelled[S]) int { return labels.Compare(a.ls, b.ls) })
	if p.note != nil {
		warn.Add(p.note)
	}
	return out, warn, nil
}

// next cuts the leading series of equal labels off.
func next[S storage.Labels](all []relabelled[S]) (ls labels.Labels, same []S, rest []relabelled[S]) {
	n := 1
	for n < len(all) && labels.Equal(all[n].ls, all[0].ls) {
		n++
	}
	for _, r := range all[:n] {
		same = append(same, r.s)
	}
	return all[0].ls, same, all[n:]
}

// mergedSeries is a [storage.SeriesSet] over a plan.
type mergedSeries struct {
	plan plan
	sel  func([]*labels.Matcher) storage.SeriesSet

	read bool
	rest []relabelled[storage.Series]
	at   storage.Series
	warn annotations.Annotations
	err  error
}

func (m *mergedSeries) Next() bool {
	if !m.read {
		m.read = true
		m.rest, m.warn, m.err = gather[storage.Series](m.plan, m.sel)
	}
	if m.err != nil || len(m.rest) == 0 {
		return false
	}
	ls, same, rest := next(m.rest)
	m.rest = rest
	merged := same[0]
	if len(same) > 1 {
		merged = storage.ChainedSeriesMerge(same...)
	}
	m.at = seriesAs{ls, merged}
	return true
}

func (m *mergedSeries) At() storage.Series                { return m.at }
func (m *mergedSeries) Err() error                        { return m.err }
func (m *mergedSeries) Warnings() annotations.Annotations { return m.warn }

// seriesAs is a series under other labels.
type seriesAs struct {
	ls labels.Labels
	s  storage.Series
}

func (s seriesAs) Labels() labels.Labels                            { return s.ls }
func (s seriesAs) Iterator(it chunkenc.Iterator) chunkenc.Iterator  { return s.s.Iterator(it) }
func (c chunkSeriesAs) Labels() labels.Labels                       { return c.ls }
func (c chunkSeriesAs) Iterator(it chunks.Iterator) chunks.Iterator { return c.s.Iterator(it) }
func (m *mergedChunks) At() storage.ChunkSeries                     { return m.at }
func (m *mergedChunks) Err() error                                  { return m.err }
func (m *mergedChunks) Warnings() annotations.Annotations           { return m.warn }

// chunkSeriesAs is a chunk series under other labels.
type chunkSeriesAs struct {
	ls labels.Labels
	s  storage.ChunkSeries
}

// mergedChunks is a [storage.ChunkSeriesSet] over a plan.
type mergedChunks struct {
	plan plan
	sel  func([]*labels.Matcher) storage.ChunkSeriesSet

	read bool
	rest []relabelled[storage.ChunkSeries]
	at   storage.ChunkSeries
	warn annotations.Annotations
	err  error
}

func (m *mergedChunks) Next() bool {
	if !m.read {
		m.read = true
		m.rest, m.warn, m.err = gather[storage.ChunkSeries](m.plan, m.sel)
	}
	if m.err != nil || len(m.rest) == 0 {
		return false
	}
	ls, same, rest := next(m.rest)
	m.rest = rest
	merged := same[0]
	if len(same) > 1 {
		merged = storage.NewCompactingChunkSeriesMerger(storage.ChainedSeriesMerge)(same...)
	}
	m.at = chunkSeriesAs{ls, merged}
	return true
}
