package sim

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// vllm writes the metrics of one vLLM engine (V1). Its counters move at every step, and its label
// `engine` is the data-parallel rank.
type vllm struct {
	sv    *server
	reg   *registry
	ranks []*vllmMetrics
	http  struct{ requests, ok *metric }
	start *metric
	made  []*metric // the _created series
	carry float64
}

type vllmMetrics struct {
	running, waiting, usage, usageOld                                   *metric
	prompt, generation, preemptions, queries, hits, cached              *metric
	bySource, byTransfer                                                *metric
	success                                                             map[string]*metric
	promptHist, generationHist, maxHist, limitHist, nHist, iteration    *metric
	computedHist                                                        *metric
	ttft, itl, perToken, e2e, queue, prefill, decode, inference, oldTPT *metric
	drafts, draftTokens, accepted                                       *metric
	acceptedAt                                                          []*metric
	config                                                              *metric
}

const newestVLLM = "0.14.0"

// vllmMinor is the minor version of "0.11.2"; the newest for what cannot be read.
func vllmMinor(version string) int {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return 14
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return 14
	}
	return n
}

func newVLLM(sv *server) []*registry {
	if sv.spec.Version == "" {
		sv.spec.Version = newestVLLM
	}
	v := &vllm{sv: sv, reg: newRegistry(pythonSingle)}
	v.start = v.reg.gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", nil).fromStart()
	for rank := range sv.scheds {
		v.ranks = append(v.ranks, v.build(labels{{"engine", strconv.Itoa(rank)}, {"model_name", sv.spec.Model}}))
	}
	v.http.requests = v.counter("http_requests_total", "Total number of requests by method, status and handler.", labels{{"handler", "/v1/chat/completions"}, {"method", "POST"}, {"status", "2xx"}})
	v.http.ok = v.counter("http_requests_total", "Total number of requests by method, status and handler.", labels{{"handler", "/metrics"}, {"method", "GET"}, {"status", "2xx"}})
	sv.promptIdle = true
	sv.obs = v
	v.started(sv)
	return []*registry{v.reg}
}

func (v *vllm) counter(name, help string, ls labels) *metric {
	m := v.reg.counter(name, help, ls).fromStart()
	v.made = append(v.made, v.reg.gauge(strings.TrimSuffix(name, "_total")+"_created", help, ls).fromStart())
	return m
}

func (v *vllm) histogram(name, help string, ls labels, bounds []float64) *metric {
	m := v.reg.histogram(name, help, ls, bounds).fromStart()
	v.made = append(v.made, v.reg.gauge(name+"_created", help, ls).fromStart())
	return m
}

func (v *vllm) build(ls labels) *vllmMetrics {
	g := func(name, help string) *metric { return v.reg.gauge(name, help, ls).fromStart() }
	c := func(name, help string, extra ...string) *metric { return v.counter(name, help, ls.with(extra...)) }
	h := func(name, help string, bounds []float64) *metric { return v.histogram(name, help, ls, bounds) }
	sizes := oneTwoFive(131072)
	k := &vllmMetrics{
		running:     g("vllm:num_requests_running", "Number of requests in model execution batches."),
		waiting:     g("vllm:num_requests_waiting", "Number of requests waiting to be processed."),
		usage:       g("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage."),
		queries:     c("vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens."),
		hits:        c("vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens."),
		preemptions: c("vllm:num_preemptions_total", "Cumulative number of preemption from the engine."),
		prompt:      c("vllm:prompt_tokens_total", "Number of prefill tokens processed."),
		generation:  c("vllm:generation_tokens_total", "Number of generation tokens processed."),
		success:     map[string]*metric{},
	}
	for _, reason := range []string{"stop", "length", "abort", "error"} {
		k.success[reason] = c("vllm:request_success_total", "Count of successfully processed requests.", "finished_reason", reason)
	}
	minor := vllmMinor(v.sv.spec.Version)
	if minor < 11 {
		k.usageOld = g("vllm:gpu_cache_usage_perc", "GPU KV-cache usage. 1 means 100 percent usage. DEPRECATED: Use vllm:kv_cache_usage_perc instead.")
		k.oldTPT = h("vllm:time_per_output_token_seconds", "Histogram of time per output token in seconds.", vllmITLBounds())
	} else {
		k.itl = h("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", vllmITLBounds())
		k.perToken = h("vllm:request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.", vllmITLBounds())
	}
	if minor >= 13 {
		k.bySource = c("vllm:prompt_tokens_by_source_total", "Number of prompt tokens by source.", "source", "local_compute")
		k.byTransfer = c("vllm:prompt_tokens_by_source_total", "Number of prompt tokens by source.", "source", "local_cache_hit")
		k.cached = c("vllm:prompt_tokens_cached_total", "Number of cached prompt tokens (local + external).")
		k.computedHist = h("vllm:request_prefill_kv_computed_tokens", "Histogram of new KV tokens computed during prefill (excluding cached tokens).", sizes)
	}
	k.promptHist = h("vllm:request_prompt_tokens", "Number of prefill tokens processed.", sizes)
	k.generationHist = h("vllm:request_generation_tokens", "Number of generation tokens processed.", sizes)
	k.iteration = h("vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384})
	k.maxHist = h("vllm:request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.", sizes)
	k.nHist = h("vllm:request_params_n", "Histogram of the n request parameter.", []float64{1, 2, 5, 10, 20})
	k.limitHist = h("vllm:request_params_max_tokens", "Histogram of the max_tokens request parameter.", sizes)
	k.ttft = h("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", vllmTTFTBounds())
	k.e2e = h("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", vllmLatencyBounds())
	k.queue = h("vllm:request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", vllmLatencyBounds())
	k.inference = h("vllm:request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", vllmLatencyBounds())
	k.prefill = h("vllm:request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", vllmLatencyBounds())
	k.decode = h("vllm:request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", vllmLatencyBounds())
	if v.sv.spec.Speculative {
		k.drafts = c("vllm:spec_decode_num_drafts_total", "Number of spec decoding drafts.")
		k.draftTokens = c("vllm:spec_decode_num_draft_tokens_total", "Number of draft tokens.")
		k.accepted = c("vllm:spec_decode_num_accepted_tokens_total", "Number of accepted tokens.")
		for i := range 3 {
			k.acceptedAt = append(k.acceptedAt, c("vllm:spec_decode_num_accepted_tokens_per_pos_total", "Accepted tokens per draft position.", "position", strconv.Itoa(i)))
		}
	}
	k.config = v.reg.gauge("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", ls.with(
		"block_size", "16", "cache_dtype", "auto", "enable_prefix_caching", "True", "gpu_memory_utilization", "0.9",
		"num_gpu_blocks", fmt.Sprint(v.sv.spec.Hardware.KVTokens/16))).fromStart()
	return k
}

func (v *vllm) started(sv *server) {
	v.reg.reset()
	at := float64(sv.fleet.cfg.Start.Unix()) + sv.began
	v.start.set(at)
	for _, m := range v.made {
		m.set(at + 21.5)
	}
	for _, k := range v.ranks {
		k.config.set(1)
	}
}

func (v *vllm) rank(s *scheduler) *vllmMetrics { return v.ranks[s.rank] }

func (v *vllm) received(*scheduler, *request)                { v.http.requests.add(1) }
func (v *vllm) compiled(*scheduler, *request, float64)       {}
func (v *vllm) granted(*scheduler, *request)                 {}
func (v *vllm) transferred(*scheduler, *request, kvTransfer) {}
func (v *vllm) resent(*scheduler)                            {}
func (v *vllm) arrived(*scheduler, *request)                 {}
func (v *vllm) broken(*scheduler, *request)                  {}
func (v *vllm) cache(*scheduler, kvMoves)                    {}
func (v *vllm) swept(*scheduler)                             {}
func (v *vllm) synced(*scheduler, float64)                   {}
func (v *vllm) retracted(s *scheduler, n, _, _ int)          { v.rank(s).preemptions.add(float64(n)) }
func (v *vllm) firstToken(s *scheduler, r *request)          { v.first(s, r) }
func (v *vllm) report(s *scheduler, _ reportKind)            { v.gauges(s) }
func (v *vllm) dropped(s *scheduler, _ *request, o outcome) {
	v.rank(s).success[reasonOf(o, nil)].add(1)
}
func (v *vllm) admitted(s *scheduler, r *request, wait float64) { v.admit(s, r, wait) }

func (v *vllm) gauges(s *scheduler) {
	k, p := v.rank(s), s.pool
	k.running.set(float64(len(s.batch)))
	k.waiting.set(float64(len(s.queue)))
	use := float64(p.used()) / float64(p.capacity)
	k.usage.set(use)
	k.usageOld.set(use)
	v.http.ok.set(math.Floor((s.now-v.sv.began)/15) + 1)
}

func (v *vllm) admit(s *scheduler, r *request, wait float64) {
	k := v.rank(s)
	k.queue.observe(wait)
	hit := float64(r.hit + r.hostHit)
	k.queries.add(float64(r.prompt))
	k.hits.add(hit)
	k.byTransfer.add(hit)
	k.cached.add(hit)
	k.bySource.add(float64(r.prompt) - hit)
}

func (v *vllm) prefilled(s *scheduler, p *pass) {
	v.rank(s).iteration.observe(float64(p.computed))
	v.gauges(s)
}

func (v *vllm) first(s *scheduler, r *request) {
	k := v.rank(s)
	k.ttft.observe(s.now - r.recv)
	k.prompt.add(float64(r.prompt))
	k.generation.add(1)
}

func (v *vllm) decoded(s *scheduler, d decodeRun) {
	k := v.rank(s)
	k.iteration.observeN(d.tokens/float64(d.steps), float64(d.steps))
	gaps(&v.carry, d, func(gap, n float64) {
		k.itl.observeN(gap, n)
		k.oldTPT.observeN(gap, n)
		if n > 0 {
			k.generation.add(n)
		}
	})
	if k.drafts != nil {
		n := float64(d.steps * d.batch)
		k.drafts.add(n)
		k.draftTokens.add(3 * n)
		took := math.Floor(max(0, d.tokens-n))
		k.accepted.add(took)
		for i, m := range k.acceptedAt {
			m.add(math.Floor(took * []float64{0.48, 0.31, 0.21}[i]))
		}
	}
	v.gauges(s)
}

func reasonOf(o outcome, r *request) string {
	switch {
	case o == aborted:
		return "abort"
	case o == failed:
		return "error"
	case r != nil && r.output >= r.limit:
		return "length"
	}
	return "stop"
}

func (v *vllm) finished(s *scheduler, r *request, o outcome) {
	k := v.rank(s)
	k.success[reasonOf(o, r)].add(1)
	k.e2e.observe(s.now - r.recv)
	k.prefill.observe(r.first - r.start)
	k.decode.observe(s.now - r.first)
	k.inference.observe(s.now - r.start)
	if r.done > 1 {
		k.perToken.observe((s.now - r.first) / (r.done - 1))
	}
	k.promptHist.observe(float64(r.prompt))
	k.computedHist.observe(float64(max(0, r.prompt-r.cachedTotal)))
	k.generationHist.observe(r.done)
	k.maxHist.observe(r.done)
	k.limitHist.observe(float64(r.limit))
	k.nHist.observe(1)
	v.gauges(s)
}
