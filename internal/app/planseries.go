package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollscope/rollscope/internal/planner"
)

// Series of [planning].
var (
	planDesc = func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc("rollscope_planner_"+name, help, append([]string{"namespace", "component"}, more...), nil)
	}
	planTTFT     = planDesc("estimated_ttft_seconds", "Estimated TTFT of the next request at the worst rank, by the fitted line.")
	planITL      = planDesc("estimated_itl_seconds", "Estimated ITL at the worst rank, by the fitted line.")
	planEngine   = planDesc("engine_capacity_requests_per_second", "Requests a second that one engine carries within the promise.")
	planNeeded   = planDesc("needed_replicas", "Engines that the present demand needs within the promise.")
	planCurrent  = planDesc("current_replicas", "Engines that send forward passes.")
	planWanted   = planDesc("wanted_replicas", "Engines that Dynamo's planner would have; equal to the current ones when it would leave them.")
	planR2       = planDesc("model_r2", "Share of the spread of the passes' durations that the model explains.")
	planSamples  = planDesc("model_samples", "Passes that the model holds.")
	planCoef     = planDesc("model_coefficient_seconds", "Seconds a unit of the feature; of the feature intercept, seconds.", "feature")
	planChanges  = planDesc("model_changes_total", "Times that passes began to take consistently longer or shorter than passes like them took before.")
	planBroken   = planDesc("model_broken", "1 while a change was noticed and too few passes came since to know the new line.")
	planRefused  = planDesc("refused_passes_total", "Passes that the model did not take: a count or a duration that cannot be, or a pool that the mode has not.", "reason")
	planCapacity = prometheus.NewDesc("rollscope_planner_capacity_requests_per_second", "Requests a second that the deployment carries within the promise.", []string{"namespace"}, nil)
	planDemand   = prometheus.NewDesc("rollscope_planner_demand_requests_per_second", "Requests a second that come in.", []string{"namespace"}, nil)
)

// Describe implements [prometheus.Collector].
func (p *planning) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{planTTFT, planITL, planEngine, planNeeded, planCurrent, planWanted, planR2, planSamples, planCoef, planChanges, planBroken, planRefused, planCapacity, planDemand} {
		out <- d
	}
}

// Collect implements [prometheus.Collector]. What is not known has no series.
func (p *planning) Collect(out chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.spaces {
		gauge := func(d *prometheus.Desc, v *float64, labels ...string) {
			if v = finite(v); v != nil {
				out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, *v, append([]string{s.namespace}, labels...)...)
			}
		}
		gauge(planDemand, s.demand.rate)
		if a := s.answer; a != nil {
			gauge(planCapacity, a.RPS)
			for _, x := range a.Pools {
				if x.Engine != nil {
					gauge(planEngine, &x.Engine.RPS, x.Component)
				}
				if x.Needed != nil {
					gauge(planNeeded, new(float64(*x.Needed)), x.Component)
				}
			}
		}
		for c, n := range s.wanted {
			gauge(planWanted, new(float64(n)), c)
		}
		for c, reasons := range s.refused {
			for reason, n := range reasons {
				out <- prometheus.MustNewConstMetric(planRefused, prometheus.CounterValue, float64(n), s.namespace, string(c), reason)
			}
		}
		if s.advice == nil {
			continue
		}
		for _, m := range s.advice.Models {
			gauge(planTTFT, m.TTFT, m.Component)
			gauge(planITL, m.ITL, m.Component)
			gauge(planCurrent, new(float64(m.Engines)), m.Component)
			gauge(planR2, m.Fit.R2, m.Component)
			gauge(planSamples, new(float64(m.Fit.Samples)), m.Component)
			broken := 0.0
			if m.Drift.State == string(planner.Broken) {
				broken = 1
			}
			gauge(planBroken, &broken, m.Component)
			out <- prometheus.MustNewConstMetric(planChanges, prometheus.CounterValue, float64(m.Drift.Changes), s.namespace, m.Component)
			if m.Fit.State == string(planner.Fitted) {
				for i, c := range m.Fit.Coef {
					gauge(planCoef, &c, m.Component, m.Fit.Features[i])
				}
				gauge(planCoef, &m.Fit.Intercept, m.Component, "intercept")
			}
		}
	}
}

var _ prometheus.Collector = (*planning)(nil)
