package metricstore

import (
	"context"
	"errors"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/storage"
)

// localStorage is the current database behind the guard, as the fan-out's primary.
type localStorage struct{ s *Store }

var _ storage.Storage = localStorage{}

func (l localStorage) Querier(mint, maxt int64) (storage.Querier, error) {
	h := l.s.current.Load()
	release, err := h.acquire()
	if err != nil {
		return nil, err
	}
	q, err := h.db.Querier(mint, maxt)
	if err != nil {
		release()
		return nil, err
	}
	return leasedQuerier{q, release}, nil
}

func (l localStorage) ChunkQuerier(mint, maxt int64) (storage.ChunkQuerier, error) {
	h := l.s.current.Load()
	release, err := h.acquire()
	if err != nil {
		return nil, err
	}
	q, err := h.db.ChunkQuerier(mint, maxt)
	if err != nil {
		release()
		return nil, err
	}
	return leasedChunkQuerier{q, release}, nil
}

func (l localStorage) AppenderV2(ctx context.Context) storage.AppenderV2 {
	return l.s.guard.AppenderV2(ctx)
}

// Appender is the old interface, which nothing of ours uses.
func (localStorage) Appender(context.Context) storage.Appender { return noAppender{} }

func (l localStorage) StartTime() (int64, error) { return l.s.startTime() }

// Close leaves closing to the store.
func (localStorage) Close() error { return nil }

// leasedQuerier gives the database's lease back when it is closed.
type leasedQuerier struct {
	storage.Querier
	release func()
}

func (q leasedQuerier) Close() error {
	defer q.release()
	return q.Querier.Close()
}

type leasedChunkQuerier struct {
	storage.ChunkQuerier
	release func()
}

func (q leasedChunkQuerier) Close() error {
	defer q.release()
	return q.ChunkQuerier.Close()
}

// exemplars reads exemplars of whatever database is current.
type exemplars struct{ s *Store }

func (e exemplars) ExemplarQuerier(ctx context.Context) (storage.ExemplarQuerier, error) {
	h := e.s.current.Load()
	release, err := h.acquire()
	if err != nil {
		return nil, err
	}
	defer release() // exemplars live on the heap
	return h.db.ExemplarQuerier(ctx)
}

var errOldAppender = errors.New("metricstore: this storage takes samples through AppenderV2 only")

// noAppender refuses everything.
type noAppender struct{}

func (noAppender) Append(storage.SeriesRef, labels.Labels, int64, float64) (storage.SeriesRef, error) {
	return 0, errOldAppender
}
func (noAppender) SetOptions(*storage.AppendOptions) {}
func (noAppender) Commit() error                     { return errOldAppender }
func (noAppender) Rollback() error                   { return nil }
func (noAppender) AppendExemplar(storage.SeriesRef, labels.Labels, exemplar.Exemplar) (storage.SeriesRef, error) {
	return 0, errOldAppender
}
func (noAppender) AppendHistogram(storage.SeriesRef, labels.Labels, int64, *histogram.Histogram, *histogram.FloatHistogram) (storage.SeriesRef, error) {
	return 0, errOldAppender
}
func (noAppender) AppendHistogramSTZeroSample(storage.SeriesRef, labels.Labels, int64, int64, *histogram.Histogram, *histogram.FloatHistogram) (storage.SeriesRef, error) {
	return 0, errOldAppender
}
func (noAppender) UpdateMetadata(storage.SeriesRef, labels.Labels, metadata.Metadata) (storage.SeriesRef, error) {
	return 0, errOldAppender
}
func (noAppender) AppendSTZeroSample(storage.SeriesRef, labels.Labels, int64, int64) (storage.SeriesRef, error) {
	return 0, errOldAppender
}
