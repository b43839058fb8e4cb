package signal

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// mixedFleet is engines of two programs, three roles, with and without ranks, seen in three ways, and
// their neighbours.
const mixedFleet = `load 15s
  up{job="sglang",instance="p:1"} 1x60
  sglang:num_running_reqs{job="sglang",instance="p:1",model_name="m",engine_type="prefill",tp_rank="0",dp_rank="0"} 3x60
  sglang:num_running_reqs{job="sglang",instance="p:1",model_name="m",engine_type="prefill",tp_rank="1",dp_rank="1"} 4x60
  sglang:num_queue_reqs{job="sglang",instance="p:1",model_name="m",engine_type="prefill",tp_rank="0",dp_rank="0"} 9x60
  sglang:num_running_reqs{job="r",instance="router:29000",worker_addr="http://p:1",model_name="m",engine_type="prefill",tp_rank="0",dp_rank="0"} 3x60
  sglang:num_running_reqs{job="r",instance="router:29000",worker_addr="http://d:1",model_name="m",engine_type="decode",tp_rank="0"} 5x60
  sglang:realtime_tokens_total{job="r",instance="router:29000",worker_addr="http://d:1",model_name="m",engine_type="decode",tp_rank="0",mode="decode"} 0+150x60
  sglang:realtime_tokens_total{job="sglang",instance="p:1",model_name="m",engine_type="prefill",tp_rank="0",dp_rank="0",mode="prefill_compute"} 0+300x60
  sglang:realtime_tokens_total{job="sglang",instance="p:1",model_name="m",engine_type="prefill",tp_rank="0",dp_rank="0",mode="prefill_cache"} 0+100x60
  sglang:generation_tokens_total{job="r",instance="router:29000",worker_addr="http://d:1",model_name="m",engine_type="unified"} 0+150x60
  sglang:time_to_first_token_seconds_bucket{job="r",instance="router:29000",worker_addr="http://d:1",model_name="m",le="1.0"} 0+10x60
  sglang:time_to_first_token_seconds_bucket{job="r",instance="router:29000",worker_addr="http://d:1",model_name="m",le="2.0"} 0+15x60
  sglang:time_to_first_token_seconds_bucket{job="r",instance="router:29000",worker_addr="http://d:1",model_name="m",le="+Inf"} 0+15x60
  sglang:time_to_first_token_seconds_count{job="r",instance="router:29000",worker_addr="http://d:1",model_name="m"} 0+15x60
  sglang:token_usage{job="sglang",instance="p:1",model_name="m",tp_rank="0",dp_rank="0"} 0.5x60
  sglang:token_usage{job="r",instance="router:29000",worker_addr="http://d:1",model_name="m",tp_rank="0"} 0.7x60
  sglang:spec_accept_length{job="r",instance="router:29000",worker_addr="http://d:1",model_name="m",tp_rank="0"} 2x60
  sglang:spec_accept_rate{job="r",instance="router:29000",worker_addr="http://d:1",model_name="m",tp_rank="0"} 0.8x60
  sglang:num_requests_total{job="sglang",instance="p:1",model_name="m"} 0+15x60
  sglang:num_requests_total{job="r",instance="router:29000",worker_addr="http://d:1",model_name="m"} 0+15x60
  sglang:evicted_tokens_total{job="sglang",instance="p:1",cache_type="radix"} 0+30x60
  sglang:kv_transfer_latency_ms_bucket{job="sglang",instance="p:1",model_name="m",tp_rank="0",le="100"} 0+15x60
  sglang:kv_transfer_latency_ms_bucket{job="sglang",instance="p:1",model_name="m",tp_rank="0",le="+Inf"} 0+15x60
  sglang:kv_transfer_latency_ms_count{job="sglang",instance="p:1",model_name="m",tp_rank="0"} 0+15x60
  vllm:num_requests_running{job="v",instance="v:8000",model_name="n",engine="0"} 1x60
  vllm:num_requests_running{job="v",instance="v:8000",model_name="n",engine="1"} 1x60
  vllm:num_requests_running{job="ray",instance="agent:8080",WorkerId="w1",model_name="n",engine="0"} 6x60
  vllm:num_requests_waiting{job="v",instance="v:8000",model_name="n",engine="0"} 2x60
  vllm:generation_tokens_total{job="v",instance="v:8000",model_name="n",engine="0"} 0+45x60
  vllm:generation_tokens_total{job="v",instance="v:8000",model_name="n",engine="1"} 0+45x60
  vllm:prefix_cache_hits_total{job="v",instance="v:8000",model_name="n",engine="0"} 0+15x60
  vllm:prefix_cache_queries_total{job="v",instance="v:8000",model_name="n",engine="0"} 0+60x60
  vllm:kv_cache_usage_perc{job="v",instance="v:8000",model_name="n",engine="0"} 0.3x60
  vllm:time_to_first_token_seconds_bucket{job="v",instance="v:8000",model_name="n",engine="0",le="1.0"} 0+10x60
  vllm:time_to_first_token_seconds_bucket{job="v",instance="v:8000",model_name="n",engine="0",le="2.0"} 0+30x60
  vllm:time_to_first_token_seconds_bucket{job="v",instance="v:8000",model_name="n",engine="0",le="+Inf"} 0+30x60
  vllm:time_to_first_token_seconds_count{job="v",instance="v:8000",model_name="n",engine="0"} 0+30x60
  vllm:request_success_total{job="v",instance="v:8000",model_name="n",engine="0",finished_reason="stop"} 0+30x60
  vllm:request_success_total{job="v",instance="v:8000",model_name="n",engine="0",finished_reason="abort"} 0+15x60
  dynamo_frontend_requests_total{job="f",instance="f:8000",model="m",status="success"} 0+30x60
  dynamo_frontend_time_to_first_token_seconds_bucket{job="f",instance="f:8000",model="m",le="2.0"} 0+30x60
  dynamo_frontend_time_to_first_token_seconds_bucket{job="f",instance="f:8000",model="m",le="+Inf"} 0+30x60
  dynamo_frontend_time_to_first_token_seconds_count{job="f",instance="f:8000",model="m"} 0+30x60
  dynamo_component_inflight_requests{job="w",instance="w:8081",model="m",dynamo_component="backend",dynamo_namespace="ns",dynamo_endpoint="generate"} 2x60
  dynamo_component_requests_total{job="w",instance="w:8081",model="m",dynamo_component="backend",dynamo_namespace="ns",dynamo_endpoint="generate"} 0+15x60
  dynamo_component_gpu_cache_usage_percent{job="w",instance="w:8081",model="m",dp_rank="0"} 0.2x60
  dynamo_kvbm_offload_blocks_d2h{job="w",instance="w:8081"} 0+15x60
  smg_router_requests_total{job="r",instance="router:29000",model="m",endpoint="chat"} 0+15x60
  smg_worker_health{job="r",instance="router:29000",worker="http://d:1"} 0x60
  smg_worker_health{job="r",instance="router:29000",worker="http://gone:1"} -1x60
  smg_worker_health{job="r",instance="router:29000",worker="http://p:1"} 1x60
  DCGM_FI_DEV_GPU_UTIL{job="g",instance="g:9400",gpu="0",UUID="a"} 50x60
  DCGM_FI_DEV_GPU_UTIL{job="g",instance="g:9400",gpu="1",UUID="b"} 100x60
  DCGM_FI_DEV_FB_USED{job="g",instance="g:9400",gpu="0",UUID="a"} 1024x60
`

// TestRecordedIsRaw evaluates every signal in every grouping, raw and recorded, and compares; and the sum
// over roles with the total.
func TestRecordedIsRaw(t *testing.T) {
	s := load(t, mixedFleet)
	s.evaluate(minutes10-30*time.Second, minutes10)
	values := 0
	for _, sig := range Default().Signals() {
		for _, by := range []By{ByFleet, ByEngine, ByRole, ByModel} {
			raw := s.signal(sig.ID, Query{By: by, CommonBounds: true}, minutes10)
			recorded := s.signal(sig.ID, Query{By: by, CommonBounds: true, Form: Recorded}, minutes10)
			if by == ByEngine { // recorded ones also say role and backend
				for i := range recorded {
					recorded[i] = withoutLabels(recorded[i], "backend", "role")
				}
				slices.Sort(recorded)
			}
			s.want(sig.ID+" by "+string(by), recorded, raw...)
			values += len(raw)
			for _, line := range raw {
				if strings.Contains(line, "NaN") {
					t.Errorf("%s by %s: %s", sig.ID, by, line)
				}
			}
		}
		if sig.Kind == Rate || sig.Kind == Level {
			total, err := Compile(sig, Query{})
			if err != nil {
				t.Fatal(err)
			}
			byRole, err := Compile(sig, Query{By: ByRole})
			if err != nil {
				t.Fatal(err)
			}
			s.want("sum over the roles of "+sig.ID, s.query("sum("+byRole+")", minutes10), s.query(total, minutes10)...)
		}
	}
	if values < 80 {
		t.Errorf("only %d values were compared", values)
	}
	s.want("who is there", s.query(InfoSeries, minutes10),
		`{backend="dynamo_worker", instance="w:8081", model_name="m", role="unified"} 1`,
		`{backend="sglang", instance="d:1", model_name="m", role="decode"} 1`,
		`{backend="sglang", instance="p:1", model_name="m", role="prefill"} 1`,
		`{backend="vllm", instance="v:8000", model_name="n", role="unified"} 1`,
		`{backend="vllm", instance="w1", model_name="n", role="unified"} 1`)
	s.want("running by role", s.signal("running", Query{By: ByRole}, minutes10), `{role="decode"} 5`, `{role="prefill"} 7`, `{role="unified"} 8`)
	s.want("unhealthy workers", s.signal("router_unhealthy", Query{}, minutes10), `{} 1`)
	s.want("GPUs", s.signal("gpu_util", Query{}, minutes10), `{} 0.75`)
}

// withoutLabels takes labels out of a line of query's result.
func withoutLabels(line string, names ...string) string {
	set, value, _ := strings.Cut(strings.TrimPrefix(line, "{"), "}")
	var keep []string
	for l := range strings.SplitSeq(set, ", ") {
		name, _, _ := strings.Cut(l, "=")
		drop := false
		for _, n := range names {
			drop = drop || n == name
		}
		if !drop && l != "" {
			keep = append(keep, l)
		}
	}
	return "{" + strings.Join(keep, ", ") + "}" + value
}
