package metricstore

import (
	"errors"
	"sort"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// noticeBoard holds notices by code and place; a later one replaces an earlier one.
type noticeBoard struct {
	mu  sync.Mutex
	all []Notice
}

// maxNotices bounds the board: with more, the oldest make room.
const maxNotices = 200

func (b *noticeBoard) put(n Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.all {
		if b.all[i].Code == n.Code && b.all[i].Where == n.Where {
			b.all[i] = n
			return
		}
	}
	if len(b.all) == maxNotices {
		b.all = b.all[1:]
	}
	b.all = append(b.all, n)
}

func (b *noticeBoard) remove(code, where string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.all {
		if b.all[i].Code == code && b.all[i].Where == where {
			b.all = append(b.all[:i:i], b.all[i+1:]...)
			return
		}
	}
}

func (b *noticeBoard) list() []Notice {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Notice(nil), b.all...)
}

// Drop counts what was not kept.
type Drop struct {
	Source string // target as "job/instance", receiver, file
	Reason string // "too_old", "future", "duplicate_timestamp", "storage_unwritable", ...
	Count  int64
}

// dropCounter counts drops by source and reason, for the list and for the metric.
type dropCounter struct {
	vec *prometheus.CounterVec
	mu  sync.Mutex
	n   map[[2]string]int64
}

// newDropCounter registers rollscope_dropped_total, or shares the one that is registered.
func newDropCounter(reg prometheus.Registerer) *dropCounter {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rollscope_dropped_total",
		Help: "Things that were not kept, by where they came from and why.",
	}, []string{"source", "reason"})
	if err := reg.Register(vec); err != nil {
		var dup prometheus.AlreadyRegisteredError
		if errors.As(err, &dup) {
			if v, ok := dup.ExistingCollector.(*prometheus.CounterVec); ok {
				vec = v
			}
		}
	}
	return &dropCounter{vec: vec, n: map[[2]string]int64{}}
}

func (d *dropCounter) add(source, reason string, n int) {
	if n <= 0 {
		return
	}
	d.vec.WithLabelValues(source, reason).Add(float64(n))
	d.mu.Lock()
	d.n[[2]string{source, reason}] += int64(n)
	d.mu.Unlock()
}

func (d *dropCounter) list() []Drop {
	d.mu.Lock()
	out := make([]Drop, 0, len(d.n))
	for k, n := range d.n {
		out = append(out, Drop{k[0], k[1], n})
	}
	d.mu.Unlock()
	sort.Slice(out, func(i, j int) bool {
		if out[i].Source != out[j].Source {
			return out[i].Source < out[j].Source
		}
		return out[i].Reason < out[j].Reason
	})
	return out
}
