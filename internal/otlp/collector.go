package otlp

import "github.com/prometheus/client_golang/prometheus"

// Describe implements [prometheus.Collector]. What was dropped is not among it: see [Receiver.Drops].
func (r *Receiver) Describe(out chan<- *prometheus.Desc) {
	for _, d := range receiverDescs() {
		out <- d
	}
}

func receiverDescs() [4]*prometheus.Desc {
	return [...]*prometheus.Desc{
		prometheus.NewDesc("rollscope_otlp_requests_total", "OTLP requests, by transport.", []string{"transport"}, nil),
		prometheus.NewDesc("rollscope_otlp_spans_total", "Spans taken over OTLP, by transport.", []string{"transport"}, nil),
		prometheus.NewDesc("rollscope_otlp_log_records_total", "Log records taken over OTLP, by transport.", []string{"transport"}, nil),
		prometheus.NewDesc("rollscope_otlp_sender_dropped_spans_total", "Spans of which the sender's SDK threw attributes, events or links away because of its limits, by service.", []string{"service"}, nil),
	}
}

// Collect implements [prometheus.Collector].
func (r *Receiver) Collect(out chan<- prometheus.Metric) {
	d := receiverDescs()
	counts := map[string][3]int64{"otlp_grpc": {}, "otlp_http": {}}
	for _, s := range r.Sources() {
		c := counts[s.Kind]
		counts[s.Kind] = [3]int64{c[0] + s.Requests, c[1] + s.Spans, c[2] + s.Logs}
	}
	for kind, c := range counts {
		for i, n := range c {
			out <- prometheus.MustNewConstMetric(d[i], prometheus.CounterValue, float64(n), kind[len("otlp_"):])
		}
	}
	for service, n := range r.SenderDropped() {
		out <- prometheus.MustNewConstMetric(d[3], prometheus.CounterValue, float64(n), service)
	}
}
