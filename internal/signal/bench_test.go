package signal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/teststorage"
)

// fleetOf fills a store with ten minutes of a fleet's expositions: about 400 series an engine.
func fleetOf(tb testing.TB, engines int) *store {
	tb.Helper()
	db := teststorage.New(tb)
	e := promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	tb.Cleanup(func() { _ = e.Close() })
	var series []labels.Labels
	gauge := map[int]bool{}
	for i := range engines {
		base := labels.FromStrings("job", "sglang", "instance", fmt.Sprintf("10.0.0.%d:30000", i), "model_name", "acme/chat-7b", "engine_type", "unified")
		add := func(name string, isGauge bool, kv ...string) {
			lb := labels.NewBuilder(base)
			lb.Set(model.MetricNameLabel, name)
			for j := 0; j < len(kv); j += 2 {
				lb.Set(kv[j], kv[j+1])
			}
			gauge[len(series)] = isGauge
			series = append(series, lb.Labels())
		}
		histogram := func(name string, bounds int, kv ...string) {
			for b := range bounds {
				add(name+"_bucket", false, append([]string{"le", fmt.Sprintf("%d.0", b+1)}, kv...)...)
			}
			add(name+"_bucket", false, append([]string{"le", "+Inf"}, kv...)...)
			add(name+"_count", false, kv...)
			add(name+"_sum", false, kv...)
		}
		rank := []string{"tp_rank", "0", "pp_rank", "0", "moe_ep_rank", "0"}
		histogram("sglang:time_to_first_token_seconds", 18)
		histogram("sglang:inter_token_latency_seconds", 23)
		histogram("sglang:e2e_request_latency_seconds", 22)
		histogram("sglang:prompt_tokens_histogram", 35)
		histogram("sglang:generation_tokens_histogram", 35)
		histogram("sglang:queue_time_seconds", 40, rank...)
		for _, stage := range []string{"request_process", "prefill_forward", "chunked_prefill"} {
			histogram("sglang:per_stage_req_latency_seconds", 30, append([]string{"stage", stage}, rank...)...)
		}
		for _, g := range Default().Metrics() {
			if g.Group == "Scheduler gauges" || g.Group == "Constants" {
				add(g.Name, true, rank...)
			}
		}
		for _, c := range []string{"prompt_tokens_total", "generation_tokens_total", "num_requests_total", "cached_tokens_total"} {
			add("sglang:"+c, false)
		}
		for _, mode := range []string{"prefill_compute", "prefill_cache", "decode"} {
			add("sglang:realtime_tokens_total", false, append([]string{"mode", mode}, rank...)...)
		}
	}
	tb.Logf("%d series, %d an engine", len(series), len(series)/engines)
	r := rand.New(rand.NewPCG(1, 2))
	values := make([]float64, len(series))
	for at := time.Duration(0); at <= 10*time.Minute; at += 15 * time.Second {
		app := db.AppenderV2(context.Background())
		for i, l := range series {
			if values[i] += float64(r.IntN(20)); gauge[i] {
				values[i] = r.Float64()
			}
			if _, err := app.Append(0, l, 0, at.Milliseconds(), values[i], nil, nil, storage.AOptions{}); err != nil {
				tb.Fatal(err)
			}
		}
		if err := app.Commit(); err != nil {
			tb.Fatal(err)
		}
	}
	return &store{t: tb, db: db, engine: e, cat: Default(), step: 15 * time.Second}
}

// BenchmarkRules is one evaluation of every built-in rule for 64 engines of 400 series, due every 15 s.
func BenchmarkRules(b *testing.B) {
	s := fleetOf(b, 64)
	s.groups = s.loadRules()
	at := 9 * time.Minute
	before := cpuTime(b)
	for b.Loop() {
		at += time.Millisecond
		for _, g := range s.groups {
			g.Eval(context.Background(), time.Unix(0, 0).Add(at))
		}
	}
	b.StopTimer()
	b.ReportMetric(float64((cpuTime(b)-before).Milliseconds())/float64(b.N), "cpu-ms/op")
}

// cpuTime is this process's CPU time, which other work on the machine does not stretch.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func BenchmarkDefault(b *testing.B) {
	for b.Loop() {
		Default()
	}
}

func BenchmarkRecordingRules(b *testing.B) {
	c := Default()
	for b.Loop() {
		RecordingRules(c)
	}
}
