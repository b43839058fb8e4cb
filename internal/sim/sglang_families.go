package sim

import "strconv"

// sglangFamilies builds the families of one SGLang process. Each line gives a family's lifetime as
// SGLang's history has it: since, till ("" = open). What a version does not have is a nil metric.
type sglangFamilies struct {
	reg *registry
	rel release
}

func (b sglangFamilies) name(short string) string { return "sglang:" + short }

func (b sglangFamilies) counter(short, since, till string, ls labels, help string) *metric {
	if !b.rel.has(since, till) {
		return nil
	}
	return b.reg.counter(b.name(short), help, ls)
}

func (b sglangFamilies) gauge(short, since, till string, ls labels, help string) *metric {
	if !b.rel.has(since, till) {
		return nil
	}
	return b.reg.gauge(b.name(short), help, ls)
}

func (b sglangFamilies) histogram(short, since, till string, ls labels, bounds []float64, help string) *metric {
	if !b.rel.has(since, till) {
		return nil
	}
	return b.reg.histogram(b.name(short), help, ls, bounds)
}

// ranked is one measurement that every TP rank of a scheduler writes.
type ranked []*metric

func (r ranked) add(v float64) {
	for _, m := range r {
		m.add(v)
	}
}

func (r ranked) observe(v float64) {
	for _, m := range r {
		m.observe(v)
	}
}

// byStream is a family of the tokenizer manager that newer versions split by is_streaming.
type byStream [2]*metric

func (b byStream) of(r *request) *metric {
	if r.streaming {
		return b[1]
	}
	return b[0]
}

// tokenizerMetrics are the families of the tokenizer manager (label set T) and the HTTP front.
type tokenizerMetrics struct {
	ttft, e2e, prompt, generation, requests   byStream
	itl, structured, abortedCalls             *metric
	cachedTotal, cachedDevice, cachedHost     *metric
	promptHist, uncachedHist, generationHist  *metric
	specVerify, getLoads                      *metric
	startup                                   map[string]*metric
	graphs                                    *metric
	httpRequests, httpResponses, httpActive   *metric
	httpScrapes, httpScrapesOK, httpScraping  *metric
	httpHealth, httpHealthOK                  *metric
	routingKeys                               *metric
	cpuTokenizer, cpuScheduler, cpuDetokenize *metric
}

func (b sglangFamilies) tokenizer(t labels, m Member) *tokenizerMetrics {
	k := &tokenizerMetrics{startup: map[string]*metric{}}
	split := func(make func(ls labels) *metric) byStream {
		if b.rel.has("2026-08-04", "") {
			return byStream{make(t.with("is_streaming", "false")), make(t.with("is_streaming", "true"))}
		}
		one := make(t)
		return byStream{one, one}
	}
	k.ttft = split(func(ls labels) *metric {
		return b.histogram("time_to_first_token_seconds", "", "", ls, ttftBounds(), "Histogram of time to first token in seconds.")
	})
	k.itl = b.histogram("inter_token_latency_seconds", "", "", t, itlBounds(), "Histogram of inter-token latency in seconds.")
	k.e2e = split(func(ls labels) *metric {
		return b.histogram("e2e_request_latency_seconds", "", "", ls, e2eBounds(), "Histogram of End-to-end request latency in seconds")
	})
	k.prompt = split(func(ls labels) *metric {
		return b.counter("prompt_tokens_total", "", "", ls, "Number of prefill tokens processed.")
	})
	k.generation = split(func(ls labels) *metric {
		return b.counter("generation_tokens_total", "", "", ls, "Number of generation tokens processed.")
	})
	k.requests = split(func(ls labels) *metric {
		return b.counter("num_requests_total", "", "", ls, "Number of requests processed.")
	})
	cached := "Number of cached prompt tokens."
	k.cachedTotal = b.counter("cached_tokens_total", "", "0.5.9", t, cached)
	k.cachedDevice = b.counter("cached_tokens_total", "0.5.9", "", t.with("cache_source", "device"), cached)
	k.cachedHost = b.counter("cached_tokens_total", "0.5.9", "", t.with("cache_source", "host"), cached)
	k.structured = b.counter("num_so_requests_total", "", "", t, "Number of structured output requests processed.")
	k.abortedCalls = b.counter("num_aborted_requests_total", "", "", t, "Number of requests aborted.")
	if m.TokenHistograms {
		k.promptHist = b.histogram("prompt_tokens_histogram", "", "", t, tokenBounds(), "Histogram of prompt token length.")
		k.uncachedHist = b.histogram("uncached_prompt_tokens_histogram", "2026-05-06", "", t, tokenBounds(), "Histogram of uncached prompt token length.")
		k.generationHist = b.histogram("generation_tokens_histogram", "", "", t, tokenBounds(), "Histogram of generation token length.")
	}
	k.specVerify = b.counter("spec_verify_calls_total", "2026-05-18", "", t, "Number of speculative decoding verify calls.")
	if m.Extended {
		k.getLoads = b.histogram("get_loads_duration_seconds", "2026-05-13", "", t, loadsBounds(), "Time to collect loads of all ranks.")
	}
	for _, phase := range []string{"load_weight", "kv_cache_allocation", "scheduler_e2e", "tokenizer_e2e"} {
		k.startup[phase] = b.gauge("startup_time_seconds", "2026-08-04", "", t.with("phase", phase), "Time taken by each startup phase.")
	}
	k.graphs = b.gauge("startup_cuda_graph_time_seconds", "2026-08-04", "", t.with("phase", "decode"), "Time taken to capture CUDA graphs.")

	path := func(endpoint, method string) labels { return labels{{"endpoint", endpoint}, {"method", method}} }
	gen, scrape, health := path("/generate", "POST"), path("/metrics", "GET"), path("/health", "GET")
	http := func(ls labels) (requests, responses, active *metric) {
		return b.counter("http_requests_total", "0.5.7", "", ls, "Total number of HTTP requests by endpoint and method."),
			b.counter("http_responses_total", "0.5.6.post2", "", ls.with("status_code", "200"), "Total number of HTTP responses by endpoint and status code."),
			b.gauge("http_requests_active", "0.5.8", "", ls, "Number of currently active HTTP requests.")
	}
	k.httpRequests, k.httpResponses, k.httpActive = http(gen)
	k.httpScrapes, k.httpScrapesOK, k.httpScraping = http(scrape)
	k.httpHealth, k.httpHealthOK, _ = http(health)
	k.routingKeys = b.gauge("routing_keys_active", "0.5.8", "", nil, "Number of unique routing keys with active requests.").fromStart()
	cpu := func(component string) *metric {
		return b.counter("process_cpu_seconds_total", "0.5.8", "", labels{{"component", component}}, "Total CPU time consumed by the component.")
	}
	k.cpuTokenizer, k.cpuScheduler, k.cpuDetokenize = cpu("tokenizer"), cpu("scheduler"), cpu("detokenizer")
	return k
}

// schedulerMetrics are the families of one data-parallel rank (label set S).
type schedulerMetrics struct {
	running, queue, grammarQueue, offline, throughput, hitRate, sumSeqLens *metric
	usage, fullUsage, usedTokens, kvUsed, kvAvailable, kvEvictable         *metric
	ratio, retractedGauge, pausedGauge, utilization, occupancy, weightLoad *metric
	dead                                                                   []*metric // written at every report, always 0
	routingUnique                                                          *metric
	routingRunning, routingAll                                             []*metric
	loraUsed, loraTotal, loraUtil, sessions, sessionTokens                 *metric
	constants                                                              []constant
	perReportMax                                                           *metric // max_total_num_tokens while it was written at each report
	retracted, retractedIn, retractedOut, queueTime                        ranked
	stages                                                                 map[string]ranked
	compute, cacheHit, decode                                              *metric
	effInput, effDevice, effHost, effStorage                               *metric
	passDecode, passPrefill                                                *metric
	forwardDecode, forwardExtend, flops, readBytes, writeBytes             *metric
	coopDecode, coopCompute, coopCached, coopDecodeSec, coopExtendSec      *metric
	delayPasses, delaySeconds, delayOutcomes                               *metric
	grammarTime, grammarSchemas, grammarSize, grammarAvg, grammarMax       *metric
	grammars, grammarHits, grammarAborted, grammarTimeouts                 *metric
	acceptLength, acceptRate, specSteps, specDraft                         *metric
	balanceDecode, balanceExtend                                           *metric
	bootstrapQueue, inflightQueue, preallocQueue, transferQueue            *metric
	bootFailed, transferFailed, prefillRetries                             *metric
	speed, latency, size, bootMS, allocMS                                  *metric
	speedG, latencyG, sizeG, bootG, allocG                                 *metric
	hostUsed, hostTotal                                                    *metric
}

// constant is a gauge that is written once at start.
type constant struct {
	m *metric
	v float64
}

func (b sglangFamilies) scheduler(s labels, ranks []labels, m Member, pid int) *schedulerMetrics {
	k := &schedulerMetrics{stages: map[string]ranked{}}
	every := func(make func(ls labels) *metric) (out ranked) {
		for _, ls := range ranks {
			if m := make(ls); m != nil {
				out = append(out, m)
			}
		}
		return out
	}
	k.running = b.gauge("num_running_reqs", "", "", s, "The number of running requests.")
	k.queue = b.gauge("num_queue_reqs", "", "", s, "The number of requests in the waiting queue.")
	k.grammarQueue = b.gauge("num_grammar_queue_reqs", "", "", s, "The number of requests in the grammar waiting queue.")
	k.offline = b.gauge("num_running_reqs_offline_batch", "", "2026-05-01", s, "The number of running low-priority offline batch requests(label is 'batch').")
	k.throughput = b.gauge("gen_throughput", "", "", s, "The generation throughput (token/s).")
	k.hitRate = b.gauge("cache_hit_rate", "", "", s, "The prefix cache hit rate.")
	k.sumSeqLens = b.gauge("decode_sum_seq_lens", "0.5.7", "", s, "The sum of all sequence lengths in decode.")
	k.usage = b.gauge("token_usage", "", "", s, "The token usage.")
	k.fullUsage = b.gauge("full_token_usage", "0.5.10rc0", "", s, "The token usage for full attention layers.")
	k.usedTokens = b.gauge("num_used_tokens", "", "", s, "The number of used tokens.")
	k.kvUsed = b.gauge("kv_used_tokens", "2026-04-13", "", s, "KV cache tokens locked by running requests.")
	k.kvAvailable = b.gauge("kv_available_tokens", "2026-04-13", "", s, "KV cache tokens that are free.")
	k.kvEvictable = b.gauge("kv_evictable_tokens", "2026-04-13", "", s, "KV cache tokens held by the radix cache and evictable.")
	k.ratio = b.gauge("new_token_ratio", "0.5.5.post1", "", s, "The new token ratio.")
	for _, d := range []struct{ name, since, help string }{
		{"swa_token_usage", "", "The token usage for SWA layers."},
		{"mamba_usage", "0.5.4.post3", "The token usage for Mamba layers."},
		{"swa_used_tokens", "2026-05-05", "SWA cache tokens locked by running requests."},
		{"swa_available_tokens", "2026-05-05", "SWA cache tokens that are free."},
		{"swa_evictable_tokens", "2026-05-05", "SWA cache tokens that are evictable."},
		{"mamba_used_tokens", "2026-05-05", "Mamba cache slots in use."},
		{"mamba_available_tokens", "2026-05-05", "Mamba cache slots that are free."},
		{"mamba_evictable_tokens", "2026-05-05", "Mamba cache slots that are evictable."},
		{"is_cuda_graph", "", "Whether the batch is using CUDA graph."},
		{"pending_prealloc_token_usage", "", "The token usage for pending preallocated tokens (not preallocated yet)."},
	} {
		k.dead = append(k.dead, b.gauge(d.name, d.since, "", s, d.help))
	}
	k.retractedGauge = b.gauge("num_retracted_reqs", "", "", s.with("pid", strconv.Itoa(pid)), "The number of retracted requests.")
	k.pausedGauge = b.gauge("num_paused_reqs", "", "", s.with("pid", strconv.Itoa(pid)), "The number of paused requests by async weight sync.")
	k.utilization = b.gauge("utilization", "", "", s, "The utilization.")
	k.occupancy = b.gauge("fwd_occupancy", "2026-05-05", "", s, "Forward pass GPU occupancy percentage.")
	k.weightLoad = b.gauge("weight_load_duration_seconds", "2026-06-08", "", s.with("source", "distributed"), "Duration of the last weight update in seconds.")
	k.retracted = every(func(ls labels) *metric {
		return b.counter("num_retracted_requests_total", "0.5.7", "", ls, "Total number of retracted requests.")
	})
	k.retractedIn = every(func(ls labels) *metric {
		return b.counter("num_retracted_input_tokens_total", "0.5.7", "", ls, "Total number of retracted input tokens.")
	})
	k.retractedOut = every(func(ls labels) *metric {
		return b.counter("num_retracted_output_tokens_total", "0.5.7", "", ls, "Total number of retracted output tokens.")
	})
	b.routing(k, s)
	if m.Extended {
		k.loraUsed = b.gauge("lora_pool_slots_used", "0.5.7", "", s, "Number of LoRA adapter slots currently occupied in GPU memory.")
		k.loraTotal = b.gauge("lora_pool_slots_total", "0.5.7", "", s, "Total number of LoRA adapter slots available (max_loras_per_batch).")
		k.loraUtil = b.gauge("lora_pool_utilization", "0.5.7", "", s, "LoRA pool utilization ratio (used/total). 1.0 means pool is full.")
		k.sessions = b.gauge("num_streaming_sessions", "2026-04-12", "", s, "The number of streaming sessions.")
		k.sessionTokens = b.gauge("streaming_session_held_tokens", "2026-04-12", "", s, "KV tokens held by streaming sessions.")
	}
	b.constants(k, s, ranks, m)
	b.work(k, s, every, m)
	b.disaggregation(k, s)
	if m.HiCacheTokens > 0 {
		k.hostUsed = b.gauge("hicache_host_used_tokens", "0.5.10rc0", "", s, "Tokens used in the host KV cache.")
		k.hostTotal = b.gauge("hicache_host_total_tokens", "0.5.10rc0", "", s, "Capacity of the host KV cache in tokens.")
	}
	return k
}

// routing adds the heat-map gauges of requests by routing key: not cumulative, no histograms.
func (b sglangFamilies) routing(k *schedulerMetrics, s labels) {
	k.routingUnique = b.gauge("num_unique_running_routing_keys", "0.5.8", "", s, "Number of unique routing keys in running batch.")
	if !b.rel.has("0.5.8", "") {
		return
	}
	bounds := []string{"0", "1", "2", "3", "5", "7", "10", "20", "50", "100", "200", "+Inf"}
	for i := 0; i+1 < len(bounds); i++ {
		ls := s.with("gt", bounds[i], "le", bounds[i+1])
		k.routingRunning = append(k.routingRunning, b.gauge("routing_key_running_req_count", "0.5.8", "", ls, "Distribution of routing keys by running request count (gt < count <= le)."))
		k.routingAll = append(k.routingAll, b.gauge("routing_key_all_req_count", "0.5.8", "", ls, "Distribution of routing keys by running+waiting request count (gt < count <= le)."))
	}
}

func (b sglangFamilies) constants(k *schedulerMetrics, s labels, ranks []labels, m Member) {
	const pageSize = 1
	hw := m.Hardware
	if b.rel.has("2026-05-01", "") {
		for _, ls := range ranks {
			c := func(name, since string, v float64, help string) {
				if g := b.gauge(name, since, "", ls, help); g != nil {
					k.constants = append(k.constants, constant{g, v})
				}
			}
			c("max_total_num_tokens", "", float64(hw.KVTokens), "Maximum total number of tokens in the KV cache pool.")
			c("page_size", "", pageSize, "The page size of the KV cache.")
			c("num_pages", "", float64(hw.KVTokens/pageSize), "The number of pages of the KV cache.")
			c("context_len", "", 131072, "The context length of the model.")
			c("startup_available_gpu_memory_gb", "", 9.42, "Available GPU memory after startup in GB.")
			c("weight_memory_usage_gb", "2026-08-04", 61.1/float64(m.TP), "GPU memory used by weights in GB.")
			c("kv_cache_memory_usage_gb", "2026-08-04", float64(hw.KVTokens)*hw.KVBytes/float64(m.TP)/1e9, "GPU memory used by the KV cache in GB.")
			if b.rel.has("2026-08-04", "") {
				k.constants = append(k.constants, constant{b.gauge("graph_memory_usage_gb", "", "", ls.with("phase", "decode"), "GPU memory used by CUDA graphs in GB."), 1.87})
			}
		}
	} else {
		k.perReportMax = b.gauge("max_total_num_tokens", "0.5.6", "", s, "Maximum total number of tokens in the KV cache pool.")
		if g := b.gauge("cache_config_info", "0.5.9", "", labels{{"num_pages", strconv.Itoa(hw.KVTokens)}, {"page_size", "1"}}, "Information of the cache config."); g != nil && len(b.reg.byName[b.name("cache_config_info")].metrics) == 1 {
			k.constants = append(k.constants, constant{g, 1})
		}
	}
	if g := b.gauge("engine_startup_time", "", "2026-08-04", s, "The time taken for the engine to start up."); g != nil {
		k.constants = append(k.constants, constant{g, 48.6})
	}
	if g := b.gauge("engine_load_weights_time", "", "2026-08-04", s, "The time taken for the engine to load weights."); g != nil {
		k.constants = append(k.constants, constant{g, 17.3})
	}
}

// work adds what forward passes count.
func (b sglangFamilies) work(k *schedulerMetrics, s labels, every func(func(labels) *metric) ranked, m Member) {
	mode := func(name, since, help string, modes ...string) []*metric {
		var out []*metric
		for _, v := range modes {
			out = append(out, b.counter(name, since, "", s.with("mode", v), help))
		}
		return out
	}
	t := mode("realtime_tokens_total", "0.5.7", "Total number of tokens processed (updated on each log interval). mode: prefill_compute, prefill_cache, decode.", "prefill_compute", "prefill_cache", "decode")
	k.compute, k.cacheHit, k.decode = t[0], t[1], t[2]
	e := mode("prefill_effective_tokens_total", "2026-08-05", "Total number of prefill tokens by where they came from. mode: input, device_hit, host_hit, storage_hit.", "input", "device_hit", "host_hit", "storage_hit")
	k.effInput, k.effDevice, k.effHost, k.effStorage = e[0].fromStart(), e[1].fromStart(), e[2].fromStart(), e[3].fromStart()
	g := mode("cuda_graph_passes_total", "0.5.7", "Total number of forward passes categorized by CUDA graph.", "decode_cuda_graph", "prefill_none")
	k.passDecode, k.passPrefill = g[0], g[1]
	k.queueTime = every(func(ls labels) *metric {
		return b.histogram("queue_time_seconds", "", "", ls, queueBounds(b.rel), "Histogram of queueing time in seconds.")
	})
	for _, stage := range stagesOf(m) {
		k.stages[stage] = every(func(ls labels) *metric {
			return b.histogram("per_stage_req_latency_seconds", "", "", ls.with("stage", stage), stageBounds(), "The latency of each stage of requests.")
		})
	}
	category := func(name, since, till, cat string, help string, extra ...string) *metric {
		return b.counter(name, since, till, s.with(append([]string{"category", cat}, extra...)...), help)
	}
	if m.MoE || m.Extended {
		forward, since := "forward_execution_seconds_total", "2026-05-01"
		if !b.rel.has("2026-05-01", "") {
			forward, since = "gpu_execution_seconds_total", "0.5.7"
		}
		help := "Total time that GPU is busy executing a workload. Refer to ForwardMode for category labels."
		k.forwardDecode, k.forwardExtend = category(forward, since, "", "DECODE", help), category(forward, since, "", "EXTEND", help)
		if m.DP > 1 {
			coop := "dp_cooperation_" + forward
			k.coopDecodeSec = category(coop, since, "", "DECODE", help, "num_prefill_ranks", "0")
			k.coopExtendSec = category(coop, since, "", "EXTEND", help, "num_prefill_ranks", "1")
			tokens := func(mode, ranks string) *metric {
				return b.counter("dp_cooperation_realtime_tokens_total", "0.5.7", "", s.with("mode", mode, "num_prefill_ranks", ranks), "Total number of tokens processed with labels about DP cooperation. mode: prefill_compute, prefill_cache, decode.")
			}
			k.coopDecode, k.coopCompute, k.coopCached = tokens("decode", "0"), tokens("prefill_compute", "1"), tokens("prefill_cache", "1")
		}
	}
	if m.Extended {
		k.flops = b.counter("estimated_flops_per_gpu_total", "2026-03-29", "", s, "Estimated number of floating point operations per GPU.")
		k.readBytes = b.counter("estimated_read_bytes_per_gpu_total", "2026-03-29", "", s, "Estimated number of bytes read per GPU.")
		k.writeBytes = b.counter("estimated_write_bytes_per_gpu_total", "2026-03-29", "", s, "Estimated number of bytes written per GPU.")
		k.delayPasses = b.histogram("prefill_delayer_wait_forward_passes", "0.5.8", "", s, []float64{0, 5, 20, 29}, "Histogram of forward passes waited by prefill delayer.")
		k.delaySeconds = b.histogram("prefill_delayer_wait_seconds", "0.5.8", "", s, []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500}, "Histogram of wait time in seconds by prefill delayer.")
		k.delayOutcomes = b.counter("prefill_delayer_outcomes_total", "0.5.8", "", s.with("input_estimation", "all", "output_allow", "true", "output_reason", "no_wait", "actual_execution", "true"), "Prefill delayer outcome counts.")
	}
	k.grammarTime = b.histogram("grammar_compilation_time_seconds", "", "", s, grammarTimeBounds(), "Histogram of grammar compilation time in seconds.")
	k.grammarSchemas = b.histogram("grammar_schema_count", "", "", s, grammarCountBounds(), "Histogram of grammar schema count.")
	k.grammarSize = b.histogram("grammar_ebnf_size", "", "", s, grammarSizeBounds(), "Histogram of grammar EBNF size.")
	k.grammarAvg = b.histogram("grammar_tree_traversal_time_avg", "", "", s, grammarWalkBounds(), "Histogram of average grammar tree traversal time in seconds.")
	k.grammarMax = b.histogram("grammar_tree_traversal_time_max", "", "", s, grammarWalkBounds(), "Histogram of max grammar tree traversal time in seconds.")
	k.grammars = b.counter("num_grammar_total", "", "", s, "Number of the total grammar requests.")
	k.grammarHits = b.counter("num_grammar_cache_hit_total", "", "", s, "Number of grammar cache hits.")
	k.grammarAborted = b.counter("num_grammar_aborted_total", "", "", s, "Number of grammar aborted requests.")
	k.grammarTimeouts = b.counter("num_grammar_timeout_total", "0.5.6", "", s, "Number of grammar timeouts.")
	k.acceptLength = b.gauge("spec_accept_length", "", "", s, "The average acceptance length of speculative decoding.")
	k.acceptRate = b.gauge("spec_accept_rate", "", "", s, "The average acceptance rate of speculative decoding (`accepted tokens / total draft tokens` in batch).")
	if m.Speculative {
		k.specSteps = b.gauge("spec_num_steps", "2026-06-01", "", s, "Currently active speculative_num_steps.")
		k.specDraft = b.gauge("spec_num_draft_tokens", "2026-06-01", "", s, "Currently active speculative_num_draft_tokens (decouples from steps under topk>1).")
	}
	if m.MoE && b.rel.has("0.5.7", "") {
		balance := func(mode string) *metric {
			return b.reg.summary(b.name("eplb_balancedness"), "Balancedness of MoE in expert parallelism.", s.with("forward_mode", mode))
		}
		k.balanceDecode, k.balanceExtend = balance("decode"), balance("extend")
	}
}

// stagesOf lists the stages that an engine of this role passes through.
func stagesOf(m Member) []string {
	switch m.Role {
	case "prefill":
		return []string{"request_process", "prefill_bootstrap", "prefill_forward", "chunked_prefill", "prefill_transfer_kv_cache"}
	case "decode":
		return []string{"request_process", "decode_prepare", "decode_bootstrap", "decode_transferred", "decode_waiting"}
	}
	return []string{"request_process", "prefill_forward", "chunked_prefill"}
}

// disaggregation adds the PD families. The queues of the other role exist on every engine, at 0.
func (b sglangFamilies) disaggregation(k *schedulerMetrics, s labels) {
	k.bootstrapQueue = b.gauge("num_prefill_bootstrap_queue_reqs", "2026-05-04", "", s, "The number of requests in the prefill bootstrap queue.")
	if k.bootstrapQueue == nil {
		k.bootstrapQueue = b.gauge("num_prefill_prealloc_queue_reqs", "", "", s, "The number of requests in the prefill prealloc queue.")
	}
	k.inflightQueue = b.gauge("num_prefill_inflight_queue_reqs", "", "", s, "The number of requests in the prefill inflight queue.")
	k.preallocQueue = b.gauge("num_decode_prealloc_queue_reqs", "", "", s, "The number of requests in the decode prealloc queue.")
	k.transferQueue = b.gauge("num_decode_transfer_queue_reqs", "", "", s, "The number of requests in the decode transfer queue.")
	k.bootFailed = b.counter("num_bootstrap_failed_reqs_total", "", "", s, "The number of bootstrap failed requests.")
	k.transferFailed = b.counter("num_transfer_failed_reqs_total", "", "", s, "The number of transfer failed requests.")
	k.prefillRetries = b.counter("num_prefill_retries_total", "0.5.8", "", s, "Total number of prefill retries.")
	for _, d := range []struct {
		h, g        **metric
		name, since string
		bounds      []float64
		help        string
	}{
		{&k.speed, &k.speedG, "kv_transfer_speed_gb_s", "", transferSpeedBounds(), "The transfer speed of the KV cache in GB/s."},
		{&k.latency, &k.latencyG, "kv_transfer_latency_ms", "", transferLatencyBounds(), "The transfer latency of the KV cache in ms."},
		{&k.size, &k.sizeG, "kv_transfer_total_mb", "0.5.7", transferSizeBounds(), "The total number of tokens transferred in the KV cache."},
		{&k.bootMS, &k.bootG, "kv_transfer_bootstrap_ms", "0.5.4.post3", bootstrapBounds(), "The bootstrap time of the KV transfer in ms."},
		{&k.allocMS, &k.allocG, "kv_transfer_alloc_ms", "0.5.4.post3", bootstrapBounds(), "The allocation waiting time of the KV transfer in ms."},
	} {
		// Gauges of the last transfer before 0.5.10, histograms since.
		if b.rel.has("0.5.10", "") {
			*d.h = b.histogram(d.name, "", "", s, d.bounds, d.help)
		} else {
			*d.g = b.gauge(d.name, d.since, "", s, d.help)
		}
	}
}

// cacheMetrics are the families of the radix cache (label set R): no rank labels.
type cacheMetrics struct {
	evicted, evictTime, loadBack, loadBackBytes, loadBackTime    *metric
	backup, backupBytes, backupTime, dropped                     *metric
	prefetched, stored, prefetchPages, backupPages, prefetchRate *metric
	backupRate                                                   *metric
}

func (b sglangFamilies) cache(m Member) *cacheMetrics {
	kind := "RadixCache"
	if m.HiCacheTokens > 0 {
		kind = "HiRadixCache"
	}
	r := labels{{"cache_type", kind}}
	k := &cacheMetrics{
		evicted:   b.counter("evicted_tokens_total", "0.5.5.post1", "", r, "Total number of tokens evicted from the device."),
		evictTime: b.histogram("eviction_duration_seconds", "0.5.5.post1", "", r, moveBounds(true), "Histogram of eviction duration in seconds."),
	}
	if m.HiCacheTokens == 0 {
		return k
	}
	pool := r
	if b.rel.has("2026-08-05", "") {
		pool = r.with("pool", "kv")
	}
	k.loadBack = b.counter("load_back_tokens_total", "0.5.5.post1", "", pool, "Total number of tokens loaded back from host to device.")
	k.loadBackBytes = b.counter("load_back_bytes_total", "2026-08-05", "", r, "Total number of bytes loaded back from host to device.")
	k.loadBackTime = b.histogram("load_back_duration_seconds", "0.5.5.post1", "", r, moveBounds(false), "Histogram of load back duration in seconds.")
	k.backup = b.counter("hicache_backup_tokens_total", "2026-08-05", "", r.with("pool", "kv"), "Total number of tokens backed up from device to host.")
	k.backupBytes = b.counter("hicache_backup_bytes_total", "2026-08-05", "", r, "Total number of bytes backed up from device to host.")
	k.backupTime = b.histogram("hicache_backup_duration_seconds", "2026-08-05", "", r, backupBounds(), "Histogram of backup duration in seconds.")
	k.dropped = b.counter("hicache_dropped_tokens_total", "2026-08-05", "", r.with("pool", "kv", "reason", "host_full"), "Total number of tokens destroyed without backup.")
	if m.Extended {
		l := labels{{"attn_cp_rank", "0"}, {"attn_cp_size", "1"}, {"dp_rank", "0"}, {"pp_rank", "0"}, {"pp_size", "1"}, {"storage_backend", "file"}, {"tp_rank", "0"}}
		pages := []float64{1, 5, 10, 50, 100}
		rates := []float64{0.1, 0.5, 1, 5, 10, 50, 100}
		k.prefetched = b.counter("prefetched_tokens_total", "", "", l, "Number of prefetched prompt tokens.")
		k.stored = b.counter("backuped_tokens_total", "", "", l, "Number of backuped tokens.")
		k.prefetchPages = b.histogram("prefetch_pgs", "", "", l, pages, "Histogram of prefetch pages of batches.")
		k.backupPages = b.histogram("backup_pgs", "", "", l, pages, "Histogram of backup pages of batches.")
		k.prefetchRate = b.histogram("prefetch_bandwidth", "", "", l, rates, "Histogram of prefetch bandwidth in GB/s.")
		k.backupRate = b.histogram("backup_bandwidth", "", "", l, rates, "Histogram of backup bandwidth in GB/s.")
	}
	return k
}
