package scrape

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what this package tells about itself.
type metrics struct {
	dropped *prometheus.CounterVec // source, reason
	probes  *prometheus.CounterVec // result
	lenient prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollscope_dropped_total",
			Help: "Things that were not kept, by where they came from and why.",
		}, []string{"source", "reason"}),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollscope_scrape_probes_total",
			Help: "Requests made to find out what a target is, beside the scrapes, by result.",
		}, []string{"result"}),
		lenient: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rollscope_scrape_lenient_targets",
			Help: "Targets whose answers have unreadable lines and are read around them.",
		}),
	}
	// Other sources count into the same family.
	if err := reg.Register(m.dropped); err != nil {
		var are prometheus.AlreadyRegisteredError
		if !errors.As(err, &are) {
			return nil, err
		}
		have, ok := are.ExistingCollector.(*prometheus.CounterVec)
		if !ok {
			return nil, err
		}
		m.dropped = have
	}
	for _, c := range []prometheus.Collector{m.probes, m.lenient} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// drop counts what was not kept, for the process and for the target. t.mu is held.
func (m *Manager) drop(t *target, reason string, n int64) {
	if n <= 0 {
		return
	}
	if !m.countedByStore(reason) {
		m.metrics.dropped.WithLabelValues("scrape", reason).Add(float64(n))
	}
	t.drops[reason] += n
}

// countedByStore tells of what the appendable refused that it has counted it already.
func (m *Manager) countedByStore(reason string) bool {
	switch reason {
	case dropOutOfOrder, dropTooOld, dropDuplicateTime: // not dropTooNew: Prometheus refuses it before the store
		return m.opts.StoreCounts
	}
	return false
}

// Drop counts what one target's scrapes did not keep.
type Drop struct {
	Job, Instance string
	Reason        string
	Count         int64
}

// Drops lists what was not kept, by target and reason, of the targets that are scraped now; without
// what the appendable counts itself.
func (m *Manager) Drops() []Drop {
	var out []Drop
	for _, t := range m.Targets() {
		for _, r := range sortedCounts(t.Drops) {
			if m.countedByStore(r) {
				continue
			}
			out = append(out, Drop{Job: t.Job, Instance: t.Instance, Reason: r, Count: t.Drops[r]})
		}
	}
	return out
}
