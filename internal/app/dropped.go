package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollscope/rollscope/internal/api"
)

// dropped shows what a part did not keep as rollscope_dropped_total, beside the counters that other
// parts count into. It describes nothing in advance: the name is registered already.
type dropped struct{ of func() []api.Drop }

var droppedDesc = prometheus.NewDesc("rollscope_dropped_total", "Things that were not kept, by where they came from and why.", []string{"source", "reason"}, nil)

// Describe implements [prometheus.Collector].
func (dropped) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (d dropped) Collect(out chan<- prometheus.Metric) {
	for _, x := range d.of() {
		out <- prometheus.MustNewConstMetric(droppedDesc, prometheus.CounterValue, float64(x.Count), x.Source, x.Reason)
	}
}
