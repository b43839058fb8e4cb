package collector

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"
)

const keepAll = "    sampling: {ratio: 1}\n"

// generate has the load generator make traces of a root and two children each.
func generate(t *testing.T, p programs, service, to string, overHTTP bool, workers, traces int, more ...string) {
	t.Helper()
	args := append([]string{"traces", "--otlp-endpoint", to, "--otlp-insecure", "--service", service, "--workers", strconv.Itoa(workers),
		"--traces", strconv.Itoa(traces), "--child-spans", "2", "--rate", "0"}, more...)
	if overHTTP {
		args = append(args, "--otlp-http")
	}
	run(t, p.telemetrygen, args...)
}

// TestLoadGenerator sends a standard load straight to the recorder, over both transports, and through a collector
// that hands it on over both, and finds every span and log record in the store, once.
func TestLoadGenerator(t *testing.T) {
	p := need(t)
	r := serve(t, p, keepAll)
	_, viaGRPC, viaHTTP := collector(t, p, fmt.Sprintf(`
exporters:
  otlp: {endpoint: '%s', tls: {insecure: true}}
  otlphttp: {endpoint: 'http://%s', compression: zstd}
service:
  pipelines:
    traces: {receivers: [otlp], exporters: [otlp]}
    logs: {receivers: [otlp], exporters: [otlphttp]}
`, r.grpc, r.http))
	const workers, traces = 2, 300
	const spans = workers * traces * 3
	generate(t, p, "direct-grpc", r.grpc, false, workers, traces)
	generate(t, p, "direct-http", r.http, true, workers, traces)
	generate(t, p, "via-grpc", viaGRPC, false, workers, traces)
	generate(t, p, "via-http", viaHTTP, true, workers, traces)
	for _, to := range []struct{ service, addr string }{{"logs-direct", r.grpc}, {"logs-via", viaGRPC}} {
		run(t, p.telemetrygen, "logs", "--otlp-endpoint", to.addr, "--otlp-insecure", "--service", to.service, "--workers", "2", "--logs", "500", "--rate", "0")
	}
	for _, service := range []string{"direct-grpc", "direct-http", "via-grpc", "via-http"} {
		r.eventually(t, fmt.Sprintf(`{row="span",service=%q}`, service), spans)
	}
	for _, service := range []string{"logs-direct", "logs-via"} {
		r.eventually(t, fmt.Sprintf(`{row="log",service=%q}`, service), 1000)
	}
	if got := r.counter(t, "rollscope_otlp_spans_total"); got != 4*spans {
		t.Errorf("%d spans are counted as received, %d were sent", got, 4*spans)
	}
	if got := r.counter(t, "rollscope_otlp_log_records_total"); got != 2000 {
		t.Errorf("%d log records are counted as received, 2000 were sent", got)
	}
}

// TestForward has the recorder forward everything to a collector, which hands it to another recorder.
func TestForward(t *testing.T) {
	p := need(t)
	last := serve(t, p, keepAll)
	_, viaGRPC, viaHTTP := collector(t, p, fmt.Sprintf(`
exporters: {otlp: {endpoint: '%s', tls: {insecure: true}}}
service:
  pipelines: {traces: {receivers: [otlp], exporters: [otlp]}}
`, last.grpc))
	const traces = 400
	endpoints := []string{viaGRPC, "http://" + viaHTTP}
	service := func(i int) string { return fmt.Sprintf("forwarded-%d", i) }
	for i, endpoint := range endpoints {
		first := serve(t, p, fmt.Sprintf("    sampling: {ratio: 0}\n    forward: [{endpoint: '%s', all: true}]\n", endpoint))
		generate(t, p, service(i), first.grpc, false, 1, traces)
	}
	for i := range endpoints {
		last.eventually(t, fmt.Sprintf(`{row="span",service=%q}`, service(i)), 3*traces)
	}
}

// policies are in the collector's own form, and used by both.
const policies = `decision_wait: 3s
      num_traces: 200000
      decision_cache: {sampled_cache_size: 200000, non_sampled_cache_size: 200000}
      policies:
        - {name: errors, type: status_code, status_code: {status_codes: [ERROR]}}
        - {name: slow, type: latency, latency: {threshold_ms: 20000}}
`

// sampler is somebody who samples and hands what is kept to a recorder that stores it all.
type sampler struct {
	name string
	*process
	addr string
	to   *recorder
}

func samplers(t *testing.T, p programs) [2]sampler {
	t.Helper()
	ours := serve(t, p, "    sampling:\n      "+policies)
	theirs := serve(t, p, keepAll)
	c, addr, _ := collector(t, p, fmt.Sprintf(`
processors:
    tail_sampling:
      %s
exporters: {otlp: {endpoint: '%s', tls: {insecure: true}}}
service:
  pipelines: {traces: {receivers: [otlp], processors: [tail_sampling], exporters: [otlp]}}
`, policies, theirs.grpc))
	return [2]sampler{{"rollscope", ours.process, ours.grpc, ours}, {"collector", c, addr, theirs}}
}

// TestSamplingSame gives both samplers good, failed and slow traces of a standard load: they keep the same.
func TestSamplingSame(t *testing.T) {
	p := need(t)
	both := samplers(t, p)
	for _, s := range both {
		generate(t, p, "good", s.addr, false, 1, 500)
		generate(t, p, "bad", s.addr, false, 1, 60, "--status-code", "Error")
		generate(t, p, "long", s.addr, false, 1, 40, "--span-duration", "25s")
	}
	for _, s := range both {
		s.to.eventually(t, `{row="span",service="bad"}`, 60*3)
		s.to.eventually(t, `{row="span",service="long"}`, 40*3)
		if n := s.to.count(t, `{row="span",service="good"}`); n != 0 {
			t.Errorf("%s: %d spans of good traces are kept", s.name, n)
		}
	}
}

// TestSamplingCompared gives both samplers the same traces of a simulated fleet, with late spans and lost parents,
// and prints what each kept and what it took.
func TestSamplingCompared(t *testing.T) {
	p := need(t)
	// Ids are new with each run; what a trace is, is told by how long its root took, to the nanosecond.
	kept := [2]map[string]int{}
	t.Logf("%-10s %8s %12s %12s  %s", "SAMPLER", "SPANS", "KEPT TRACES", "KEPT SPANS", "CPU, PEAK MEMORY")
	for i, s := range samplers(t, p) {
		var sent struct{ Spans, Acknowledged int }
		out := run(t, p.rollscope, "sim", "traces", "--to", s.addr, "--fleet", "uniform:16", "--seed", "7", "--rate", "8000", "--count", "80000", "--attributes", "22", "--json", "--log.level", "error")
		if err := json.Unmarshal([]byte(out), &sent); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if sent.Acknowledged != 80000 {
			t.Errorf("%s acknowledged %d of 80000 spans", s.name, sent.Acknowledged)
		}
		const spans = `{row="span"}`
		before, quiet := -1, 0
		for deadline := time.Now().Add(time.Minute); quiet < 8 && time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
			if n := s.to.count(t, spans); n != before {
				before, quiet = n, 0
			} else {
				quiet++
			}
		}
		cpu, peak := s.cost(t)
		kept[i] = map[string]int{}
		roots := 0
		for _, row := range s.to.rows(t, `_time:1h `+spans+` parent_span_id:"" | fields service, duration`) {
			kept[i][row["service"]+" "+row["duration"]]++
			roots++
		}
		traces := len(s.to.rows(t, "_time:1h "+spans+" | uniq by (trace_id)"))
		t.Logf("%-10s %8d %12d %12d  %.1f s, %.0f MB", s.name, sent.Spans, traces, before, cpu.Seconds(), peak)
		if roots == 0 {
			t.Errorf("%s kept nothing", s.name)
		}
	}
	both, most := 0, 0
	for root, n := range kept[0] {
		both += min(n, kept[1][root])
		most += max(n, kept[1][root])
	}
	t.Logf("%d of %d roots are kept by both", both, most)
	// Spans that come after the decision may make the other decide otherwise about a few.
	if both*10 < most*9 {
		t.Errorf("only %d of %d roots are kept by both", both, most)
	}
}
