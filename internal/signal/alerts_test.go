package signal

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/rules"
)

// firing lists the alerts that fire, as "name instance", sorted.
func (s *store) firing() []string {
	var out []string
	for _, g := range s.groups {
		for _, r := range g.AlertingRules() {
			for _, a := range r.ActiveAlerts() {
				if a.State == rules.StateFiring {
					out = append(out, r.Name()+" "+a.Labels.Get("instance"))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// at evaluates up to a time and compares what fires then.
func (s *store) at(from, to time.Duration, want ...string) {
	s.t.Helper()
	s.evaluate(from, to)
	if got := s.firing(); !slices.Equal(got, want) {
		s.t.Errorf("firing at %s:\n got %q\nwant %q", to, got, want)
	}
}

// histogramOf writes a latency histogram whose every event lies between the bounds low and high.
func histogramOf(name, labels, low, high, points string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s_bucket{%s,le=%q} 0x200\n", name, labels, low)
	fmt.Fprintf(&b, "  %s_bucket{%s,le=%q} %s\n", name, labels, high, points)
	fmt.Fprintf(&b, "  %s_bucket{%s,le=\"+Inf\"} %s\n", name, labels, points)
	fmt.Fprintf(&b, "  %s_count{%s} %s\n", name, labels, points)
	return b.String()
}

func TestAlertsNameTheEngine(t *testing.T) {
	busy, idle := "0+30x200", "30x200"
	s := load(t, "load 15s\n"+
		histogramOf("sglang:time_to_first_token_seconds", `job="sglang",instance="slow:1",model_name="m"`, "1.0", "2.0", busy)+
		histogramOf("sglang:time_to_first_token_seconds", `job="slime-sglang",instance="slow2:1",model_name="m"`, "1.0", "2.0", busy)+
		histogramOf("sglang:time_to_first_token_seconds", `job="sglang",instance="idle:1",model_name="m"`, "1.0", "2.0", idle)+
		histogramOf("vllm:time_to_first_token_seconds", `job="sglang",instance="vllm:1",model_name="m",engine="0"`, "1.0", "2.0", busy)+
		histogramOf("sglang:inter_token_latency_seconds", `job="slime-sglang",instance="slow2:1",model_name="m"`, "0.1", "0.2", busy)+
		histogramOf("vllm:inter_token_latency_seconds", `job="v",instance="vllm:1",model_name="m",engine="0"`, "0.1", "0.2", busy)+`
	  sglang:num_queue_reqs{job="sglang",instance="slow:1",model_name="m",engine_type="decode",dp_rank="0",tp_rank="0",priority=""} 60x200
	  sglang:num_queue_reqs{job="sglang",instance="slow:1",model_name="m",engine_type="decode",dp_rank="1",tp_rank="0",priority=""} 60x200
	  sglang:num_queue_reqs{job="sglang",instance="slow2:1",model_name="m",tp_rank="0",priority=""} 60x200
	  sglang:num_queue_reqs{job="sglang",instance="slow2:1",model_name="m",tp_rank="0",priority="1"} 60x200
	  sglang:num_running_reqs{job="sglang",instance="slow:1",model_name="m",engine_type="decode",tp_rank="0"} 1x200
	  sglang:realtime_tokens_total{job="sglang",instance="cold:1",model_name="m",mode="prefill_compute",tp_rank="0"} 0+3000x200
	  sglang:realtime_tokens_total{job="sglang",instance="cold:1",model_name="m",mode="prefill_cache",tp_rank="0"} 0+300x200
	  sglang:realtime_tokens_total{job="sglang",instance="warm:1",model_name="m",mode="prefill_compute",tp_rank="0"} 0+300x200
	  sglang:realtime_tokens_total{job="sglang",instance="warm:1",model_name="m",mode="prefill_cache",tp_rank="0"} 0+3000x200
	  sglang:cache_hit_rate{job="sglang",instance="warm:1",model_name="m",tp_rank="0"} 0x200
	  sglang:gen_throughput{job="sglang",instance="gauge:1",model_name="m",tp_rank="0"} 0x200
	  sglang:cache_hit_rate{job="sglang",instance="gauge:1",model_name="m",tp_rank="0"} 0x200
	  sglang:num_requests_total{job="sglang",instance="abort:1",model_name="m"} 0+30x200
	  sglang:num_aborted_requests_total{job="sglang",instance="abort:1",model_name="m"} 0+30x200
	  sglang:token_usage{job="sglang",instance="full:1",model_name="m",tp_rank="0"} 0.97x200
	  sglang:num_used_tokens{job="sglang",instance="full2:1",model_name="m",tp_rank="0"} 97x200
	  sglang:max_total_num_tokens{job="sglang",instance="full2:1",model_name="m",tp_rank="0"} 100x200
	  sglang:gen_throughput{job="sglang",instance="spec:1",model_name="m",tp_rank="0"} 1x200
	  sglang:spec_accept_rate{job="sglang",instance="spec:1",model_name="m",tp_rank="0"} 0.3x200
	  sglang:spec_accept_length{job="sglang",instance="spec:1",model_name="m",tp_rank="0"} 1.3x200
	  sglang:gen_throughput{job="sglang",instance="off:1",model_name="m",tp_rank="0"} 1x200
	  sglang:spec_accept_rate{job="sglang",instance="off:1",model_name="m",tp_rank="0"} 0x200
	  sglang:spec_accept_length{job="sglang",instance="off:1",model_name="m",tp_rank="0"} 0x200
	`)
	s.only("rollscope_identity", "rollscope_golden", "rollscope_requests", "rollscope_kv_cache", "rollscope_speculative_decoding", "sglang")
	s.step = 30 * time.Second
	s.at(10*time.Minute, 11*time.Minute+30*time.Second)
	s.at(12*time.Minute, 12*time.Minute, "SGLangTTFTHigh slow2:1", "SGLangTTFTHigh slow:1")
	s.at(12*time.Minute+30*time.Second, 15*time.Minute,
		"SGLangAbortRateHigh abort:1", "SGLangKVPoolFull full2:1", "SGLangKVPoolFull full:1", "SGLangQueueBuildup slow:1",
		"SGLangTPOTHigh slow2:1", "SGLangTTFTHigh slow2:1", "SGLangTTFTHigh slow:1")
	s.at(15*time.Minute+30*time.Second, 25*time.Minute,
		"SGLangAbortRateHigh abort:1", "SGLangCacheHitDrop cold:1", "SGLangKVPoolFull full2:1", "SGLangKVPoolFull full:1", "SGLangQueueBuildup slow:1",
		"SGLangSpecAcceptRateLow spec:1", "SGLangTPOTHigh slow2:1", "SGLangTTFTHigh slow2:1", "SGLangTTFTHigh slow:1")
	for _, g := range s.groups {
		for _, r := range g.AlertingRules() {
			for _, a := range r.ActiveAlerts() {
				if a.Labels.Get("backend") != "sglang" || a.Labels.Get("role") == "" || a.Labels.Get("model_name") != "m" || a.Labels.Get("severity") == "" {
					t.Errorf("%s: labels %s", r.Name(), a.Labels)
				}
			}
		}
	}
}

// Alerts over what log lines say: once per engine, or per source where no engine is known, over with the
// five minutes; of a counter that is new all counts.
func TestAlertsOfLogs(t *testing.T) {
	s := load(t, `load 15s
	  rollscope_log_events_total{job="rollscope",instance="me:9090",class="oom",engine="a:1",source="a.log"} 0x40 1x200
	  rollscope_log_events_total{job="rollscope",instance="me:9090",class="hang",engine="a:1",source="a.log"} 0x240
	  rollscope_log_events_total{job="rollscope",instance="me:9090",class="preempt",engine="a:1",source="a.log"} 0+1x240
	  rollscope_log_events_total{job="rollscope",instance="me:9090",class="oom",engine="new:1",source="new.log"} _x39 1x200
	  rollscope_log_events_total{job="rollscope",instance="me:9090",class="hang",engine="",source="driver.log"} 0x40 4x200
	  rollscope_log_events_total{job="rollscope",instance="me:9090",class="preempt",engine="storm:1",source="s.log"} 0+3x80 240x160
	  rollscope_log_events_total{job="rollscope",instance="me:9090",class="error",engine="a:1",source="a.log"} 0+10x240
	`)
	s.only("sglang")
	s.step = 30 * time.Second
	s.at(time.Minute, 4*time.Minute)
	s.at(4*time.Minute+30*time.Second, 9*time.Minute+30*time.Second, "EngineRetractionStorm storm:1")
	s.at(10*time.Minute, 14*time.Minute, "EngineHang ", "EngineOutOfMemory a:1", "EngineOutOfMemory new:1", "EngineRetractionStorm storm:1")
	s.at(14*time.Minute+30*time.Second, 16*time.Minute, "EngineRetractionStorm storm:1")
	s.at(16*time.Minute+30*time.Second, 26*time.Minute)
	for _, g := range s.groups {
		for _, r := range g.AlertingRules() {
			for _, a := range r.ActiveAlerts() {
				t.Errorf("%s is active at the end: %s", r.Name(), a.Labels)
			}
		}
	}
}

// Alerts over what is counted of forward passes: a source whose messages do not come, for as long as it lasts;
// messages that are lost, not those that came late; a model that held no longer. What an engine is called may
// become known later, which is no loss.
func TestAlertsOfForwardPasses(t *testing.T) {
	rank := func(worker, engine string) string {
		return `job="rollscope",instance="me:9090",namespace="n",component="backend",worker_id="` + worker + `",dp_rank="0",engine="` + engine + `"`
	}
	s := load(t, `load 15s
	  rollscope_fpm_blind{job="rollscope",instance="me:9090",source="good"} 0x200
	  rollscope_fpm_blind{job="rollscope",instance="me:9090",source="bad"} 0x39 1x40 0x200
	  rollscope_fpm_missing_total{`+rank("1", "")+`} 0x39 5x200
	  rollscope_fpm_filled_total{`+rank("1", "")+`} 0x200
	  rollscope_fpm_missing_total{`+rank("2", "")+`} 0x39 5x200
	  rollscope_fpm_filled_total{`+rank("2", "")+`} 0x40 5x200
	  rollscope_fpm_missing_total{`+rank("3", "")+`} 7x39 stale
	  rollscope_fpm_filled_total{`+rank("3", "")+`} 2x39 stale
	  rollscope_fpm_missing_total{`+rank("3", "e:1")+`} _x39 7x200
	  rollscope_fpm_filled_total{`+rank("3", "e:1")+`} _x39 2x200
	  rollscope_fpm_missing_total{`+rank("4", "")+`} _x39 3x200
	  rollscope_fpm_filled_total{`+rank("4", "")+`} _x39 0x200
	  rollscope_planner_model_changes_total{job="rollscope",instance="me:9090",namespace="n",component="prefill"} 0x200
	  rollscope_planner_model_changes_total{job="rollscope",instance="me:9090",namespace="n",component="decode"} 0x39 1x200
	`)
	s.only("sglang")
	s.step = 15 * time.Second
	firing := func(to time.Duration, want ...string) {
		t.Helper()
		s.evaluate(to, to)
		var got []string
		for _, g := range s.groups {
			for _, r := range g.AlertingRules() {
				for _, a := range r.ActiveAlerts() {
					if a.State == rules.StateFiring {
						got = append(got, r.Name()+" "+a.Labels.Get("source")+a.Labels.Get("component")+a.Labels.Get("worker_id"))
					}
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("firing at %s:\n got %q\nwant %q", to, got, want)
		}
	}
	s.evaluate(6*time.Minute, 9*time.Minute+45*time.Second)
	firing(9*time.Minute + 45*time.Second)
	firing(10*time.Minute+15*time.Second, "ForwardPassesBlind bad", "PlannerModelChanged decode")
	s.evaluate(10*time.Minute+30*time.Second, 11*time.Minute+15*time.Second)
	firing(11*time.Minute+30*time.Second, "ForwardPassesBlind bad", "ForwardPassesLost backend1", "ForwardPassesLost backend4", "PlannerModelChanged decode")
	s.evaluate(11*time.Minute+45*time.Second, 19*time.Minute)
	firing(19*time.Minute+15*time.Second, "ForwardPassesBlind bad", "PlannerModelChanged decode")
	s.evaluate(20*time.Minute, 21*time.Minute)
	firing(21 * time.Minute)
}

func TestEngineDown(t *testing.T) {
	// Evaluated from 5m. At 7m: one engine's scrape fails, one leaves service discovery while its queue alert
	// fires, one vanishes from a router, one restarts and has nothing to say yet, one stays.
	s := load(t, `load 15s
	  up{job="sglang",instance="fails:1"} 1x28 0x400
	  sglang:num_running_reqs{job="sglang",instance="fails:1",model_name="m",engine_type="decode",tp_rank="0"} 1x28 stale
	  up{job="slime-sglang",instance="leaves:1"} 1x28 stale
	  sglang:num_running_reqs{job="slime-sglang",instance="leaves:1",model_name="m",tp_rank="0"} 1x28 stale
	  sglang:token_usage{job="slime-sglang",instance="leaves:1",model_name="m",tp_rank="0"} 0.99x28 stale
	  up{job="r",instance="router:1"} 1x400
	  sglang:num_running_reqs{job="r",instance="router:1",worker_addr="http://routed:1",model_name="m",tp_rank="0"} 1x28 stale
	  up{job="sglang",instance="restarts:1"} 1x400
	  sglang:num_running_reqs{job="sglang",instance="restarts:1",model_name="m",tp_rank="0"} 1x28 stale
	  up{job="sglang",instance="stays:1"} 1x400
	  sglang:num_running_reqs{job="sglang",instance="stays:1",model_name="m",tp_rank="0"} 1x400
	  up{job="vllm",instance="other:1"} 1x28 0x400
	  vllm:num_requests_running{job="vllm",instance="other:1",model_name="m",engine="0"} 1x28 stale
	  up{job="node",instance="node:9100"} 0x400
	`)
	s.only("rollscope_identity", "rollscope_kv_cache", "sglang")
	s.step = 30 * time.Second
	s.at(time.Minute, 7*time.Minute, "SGLangKVPoolFull leaves:1")
	s.at(7*time.Minute+30*time.Second, 8*time.Minute, "SGLangKVPoolFull leaves:1")
	down := []string{"SGLangDown fails:1", "SGLangDown leaves:1", "SGLangDown routed:1", "SGLangKVPoolFull leaves:1"}
	s.at(8*time.Minute+30*time.Second, 9*time.Minute, down...)
	s.at(9*time.Minute+30*time.Second, 10*time.Minute, down...)
	// An hour after it was seen last, an engine that is no target any more is forgotten; one that is, is not.
	s.at(64*time.Minute, 68*time.Minute, "SGLangDown fails:1")
	s.want("lost by backend", s.query(`count by (backend) (`+LostSeries+`)`, 68*time.Minute), `{backend="sglang"} 1`, `{backend="vllm"} 1`)
}

// A role that was not known at the first scrapes leaves a second identity behind: the engine is lost once.
func TestLostOnce(t *testing.T) {
	s := load(t, `load 15s
	  up{job="sglang",instance="a:1"} 1x28 0x100
	  sglang:num_requests_total{job="sglang",instance="a:1",model_name="m",engine_type="unified"} 0x28 stale
	  sglang:num_running_reqs{job="sglang",instance="a:1",model_name="m",engine_type="decode",tp_rank="0"} _x8 1x20 stale
	`)
	s.only("rollscope_identity", "sglang")
	s.step = 30 * time.Second
	s.at(time.Minute, 9*time.Minute, "SGLangDown a:1")
	s.want("lost", s.query(`sum by (instance, role) (`+LostSeries+`)`, 9*time.Minute), `{instance="a:1", role="decode"} 1`)
}
