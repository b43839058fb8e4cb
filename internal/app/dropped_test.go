package app

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollscope/rollscope/internal/api"
)

// Drops of rollouts stand under the name that other parts count into, in one family.
func TestDroppedBesideCounters(t *testing.T) {
	reg := prometheus.NewRegistry()
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rollscope_dropped_total", Help: "Things that were not kept, by where they came from and why.",
	}, []string{"source", "reason"})
	reg.MustRegister(vec)
	vec.WithLabelValues("scrape", "x").Add(2)
	reg.MustRegister(dropped{func() []api.Drop { return []api.Drop{{Source: "dumps", Reason: "corrupt", Count: 3}} }})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[m.GetLabel()[1].GetValue()+"/"+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	if len(families) != 1 || got["scrape/x"] != 2 || got["dumps/corrupt"] != 3 {
		t.Errorf("%d families: %v", len(families), got)
	}
}
