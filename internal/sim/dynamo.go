package sim

import (
	"fmt"
	"hash/fnv"
	"math"
	"strings"
)

// dynamoFrontend writes the metrics of NVIDIA Dynamo's HTTP frontend, which sees every request as a
// client does.
type dynamoFrontend struct {
	reg                                              *registry
	ok, failed, cancelled, begun                     *metric
	inflight, queued, active, disconnected           *metric
	ttft, itl, duration, input, output, cached       *metric
	outputTokens, cancellations, rejections          *metric
	stages                                           []*metric
	stageTime                                        []*metric
	tokenizer, detokenizer                           *metric
	roundTrip, planeQueue, planeSend, planeInflight  *metric
	kvHit, overheadTotal, overheadMatch, overheadAll *metric
	workers                                          []*dynamoSeen
	eventLoop, pending                               *metric
	constants                                        []constant
}

// dynamoSeen is what the frontend's router knows of one worker.
type dynamoSeen struct {
	sv                                 *server
	blocks, prefillTokens, waitingReqs *metric
}

func newDynamoFrontend(f *front) []*registry {
	r := newRegistry(rust)
	d := &dynamoFrontend{reg: r}
	served := f.anyWorker().spec
	lower := labels{{"model", strings.ToLower(served.Model)}}
	req := labels{{"endpoint", "chat_completions"}, {"model", lower[0].value}, {"request_type", "stream"}}
	n := func(s string) string { return "dynamo_frontend_" + s }
	requests := func(status, kind string) *metric {
		return r.counter(n("requests_total"), "Total number of LLM requests processed", req.with("status", status, "error_type", kind))
	}
	d.ok, d.failed, d.cancelled = requests("success", ""), requests("error", "internal"), requests("error", "cancelled")
	d.begun = r.counter(n("requests_started_total"), "Total number of LLM requests received", req)
	d.inflight = r.gauge(n("inflight_requests"), "Number of inflight requests", lower)
	d.queued = r.gauge(n("queued_requests"), "Number of requests in HTTP processing queue", lower)
	d.active = r.gauge(n("active_requests"), "Number of active requests", lower)
	d.disconnected = r.gauge(n("disconnected_clients"), "Number of disconnected clients", nil).fromStart()
	d.ttft = r.histogram(n("time_to_first_token_seconds"), "Time to first token in seconds", lower, dynamoTTFTBounds())
	d.itl = r.histogram(n("inter_token_latency_seconds"), "Inter-token latency in seconds", lower, dynamoITLBounds())
	d.duration = r.histogram(n("request_duration_seconds"), "Duration of LLM requests", lower, dynamoDurationBounds())
	d.input = r.histogram(n("input_sequence_tokens"), "Input sequence length in tokens", lower, dynamoInputBounds())
	d.output = r.histogram(n("output_sequence_tokens"), "Output sequence length in tokens", lower, dynamoOutputBounds())
	d.cached = r.histogram(n("cached_tokens"), "Cached tokens of a request", lower, dynamoInputBounds())
	d.outputTokens = r.counter(n("output_tokens_total"), "Total number of output tokens generated (updates in real-time)", lower)
	d.cancellations = r.counter(n("model_cancellation_total"), "Total number of request cancellations", req)
	d.rejections = r.counter(n("model_rejection_total"), "Total number of rejected requests", labels{{"endpoint", "chat_completions"}, lower[0]})
	d.pending = r.gauge(n("router_queue_pending_requests"), "Requests in the router's queue", labels{{"worker_type", "decode"}})
	for _, stage := range []string{"preprocess", "route", "dispatch"} {
		d.stages = append(d.stages, r.gauge(n("stage_requests"), "Number of requests in a stage", labels{{"phase", "aggregated"}, {"stage", stage}}))
	}
	for _, stage := range []string{"preprocess", "route", "transport_roundtrip", "postprocess"} {
		d.stageTime = append(d.stageTime, r.histogram(n("stage_duration_seconds"), "Duration of a stage", labels{{"stage", stage}}, componentBounds()))
	}
	ms := []float64{0.1, 0.5, 1, 2, 5, 10, 20, 50, 100}
	d.tokenizer = r.histogram(n("tokenizer_latency_ms"), "Latency of the tokenizer in ms", labels{{"operation", "tokenize"}}, ms)
	d.detokenizer = r.histogram(n("tokenizer_latency_ms"), "Latency of the tokenizer in ms", labels{{"operation", "detokenize"}}, ms)
	d.eventLoop = r.histogram(n("event_loop_delay_seconds"), "Delay of the event loop", nil, componentBounds())
	d.planeQueue = r.histogram("dynamo_request_plane_queue_seconds", "Time from request receipt to send", nil, componentBounds())
	d.planeSend = r.histogram("dynamo_request_plane_send_seconds", "Time to send a request", nil, componentBounds())
	d.roundTrip = r.histogram("dynamo_request_plane_roundtrip_ttft_seconds", "Time from send to the first response", nil, componentBounds())
	d.planeInflight = r.gauge("dynamo_request_plane_inflight_requests", "Requests in flight on the request plane", nil).fromStart()
	share := []float64{0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1}
	router := labels{{"router_id", "1"}}
	d.kvHit = r.histogram("dynamo_component_router_kv_hit_rate", "Predicted KV cache hit rate of a request", router, share)
	d.overheadMatch = r.histogram("dynamo_router_overhead_indexer_find_matches_ms", "Time to find matches in the indexer in ms", router, ms)
	d.overheadAll = r.histogram("dynamo_router_overhead_scheduling_ms", "Time to schedule in ms", router, ms)
	d.overheadTotal = r.histogram("dynamo_router_overhead_total_ms", "Total router overhead in ms", router, ms)
	original := labels{{"model", served.Model}}
	for _, g := range []struct {
		name string
		v    float64
		help string
	}{
		{"model_context_length", 131072, "Maximum context length in tokens for a worker serving the model"},
		{"model_kv_cache_block_size", 16, "KV cache block size in tokens for a worker serving the model"},
		{"model_max_num_batched_tokens", float64(served.Hardware.Chunk), "Maximum number of batched tokens for a worker serving the model"},
		{"model_max_num_seqs", float64(served.Hardware.MaxRunning), "Maximum number of sequences for a worker serving the model"},
		{"model_migration_limit", 0, "Maximum number of request migrations allowed for the model"},
		{"model_total_kv_blocks", float64(served.Hardware.KVTokens / 16), "Total KV cache blocks available for a worker serving the model"},
	} {
		d.constants = append(d.constants, constant{r.gauge(n(g.name), g.help, original).fromStart(), g.v})
	}
	for _, list := range [][]*server{f.workers, f.prefills, f.decodes} {
		for _, sv := range list {
			kind := "decode"
			if sv.prefillOnly() {
				kind = "prefill"
			}
			ls := labels{{"dp_rank", "0"}, {"worker_id", workerID(sv)}, {"worker_type", kind}}
			d.workers = append(d.workers, &dynamoSeen{
				sv:            sv,
				blocks:        r.gauge(n("worker_active_decode_blocks"), "Active decode blocks of a worker", ls),
				prefillTokens: r.gauge(n("worker_active_prefill_tokens"), "Active prefill tokens of a worker", ls),
				waitingReqs:   r.gauge(n("worker_waiting_requests"), "Waiting requests of a worker", ls),
			})
			if g, ok := sv.obs.(*dynamoWorker); ok {
				g.gap = d.tokens
			}
		}
	}
	f.obs = d
	d.started()
	return []*registry{r}
}

func (d *dynamoFrontend) started() {
	d.reg.reset()
	for _, c := range d.constants {
		c.m.set(c.v)
	}
}

// workerID is the hexadecimal instance id of a worker; it does not fit a float64.
func workerID(sv *server) string { return fmt.Sprintf("%x", sv.instanceID()) }

// instanceID is Dynamo's id of a worker: of each process another. Engines that Dynamo does not run keep theirs.
func (sv *server) instanceID() uint64 {
	if sv.spec.Kind == DynamoWorker {
		return mix(uint64(sv.pid))>>1 | 1<<62
	}
	h := fnv.New64a()
	h.Write([]byte(sv.name))
	return h.Sum64()>>1 | 1<<62
}

func (d *dynamoFrontend) accepted(f *front, r *request, _ *server) {
	d.begun.add(1)
	rng := r.load.rng
	d.stageTime[0].observe(0.0006 + 0.0004*rng.ExpFloat64())
	d.stageTime[1].observe(0.0003 + 0.0003*rng.ExpFloat64())
	d.tokenizer.observe(0.2 + float64(r.prompt)/9000)
	d.planeQueue.observe(0.0002)
	d.planeSend.observe(0.0004)
	match := 0.05 + 0.05*rng.ExpFloat64()
	d.overheadMatch.observe(match)
	d.overheadAll.observe(0.08)
	d.overheadTotal.observe(0.2 + match)
	d.eventLoop.observe(0.0001)
}

func (d *dynamoFrontend) firstToken(r *request, now float64) {
	d.ttft.observe(now - r.born)
	d.roundTrip.observe(now - r.born - 0.002)
	d.outputTokens.add(1)
	if r.prompt > 0 {
		d.kvHit.observe(float64(r.hit+r.hostHit) / float64(r.prompt))
	}
}

func (d *dynamoFrontend) tokens(gap, n float64) {
	if n <= 0 {
		return
	}
	d.itl.observeN(gap, n)
	d.outputTokens.add(n)
}

func (d *dynamoFrontend) finished(r *request, o outcome, now float64) {
	d.duration.observe(now - r.born)
	d.input.observe(float64(r.prompt))
	d.output.observe(r.done)
	d.cached.observe(float64(r.cachedTotal))
	d.detokenizer.observe(0.1)
	d.stageTime[2].observe(now - r.born - 0.003)
	d.stageTime[3].observe(0.0004)
	switch o {
	case completed:
		d.ok.add(1)
	case aborted:
		d.cancelled.add(1)
		d.cancellations.add(1)
	default:
		d.failed.add(1)
	}
}

// retried is not a migration: that is of a request with output, and the limit for those is 0.
func (d *dynamoFrontend) retried(*front) {}

func (d *dynamoFrontend) refused(*front) {
	d.begun.add(1)
	d.rejections.add(1)
	d.failed.add(1)
}

func (d *dynamoFrontend) tick(f *front, _ float64) {
	n := float64(f.active)
	d.inflight.set(n)
	d.active.set(n)
	d.planeInflight.set(n)
	waiting := 0
	for _, w := range d.workers {
		q, tokens, used := 0, 0, 0
		for _, s := range w.sv.scheds {
			q += len(s.queue)
			tokens += s.pass.computed
			used += s.pool.used()
		}
		waiting += q
		w.blocks.set(float64(used / 16))
		w.prefillTokens.set(float64(tokens))
		w.waitingReqs.set(float64(q))
	}
	d.queued.set(float64(waiting))
	d.pending.set(0)
	for i, m := range d.stages {
		m.set(0)
		if i == 2 {
			m.set(float64(waiting))
		}
	}
}

// dynamoWorker is an SGLang engine inside Dynamo's worker runtime: the runtime's own metrics, and
// the engine's passed through.
type dynamoWorker struct {
	*sglang
	own                                                       *registry
	requests, inflight, duration, inBytes, outBytes, canceled *metric
	errors, uptime, blocks, usage, transit, toFirst, depth    *metric
	busy, tasks                                               *metric
	offload, onboard, matched, hostHits                       *metric // KVBM
	open                                                      float64
}

func newDynamoWorker(sv *server) ([]*registry, error) {
	regs, err := newSGLang(sv)
	if err != nil {
		return nil, err
	}
	w := &dynamoWorker{sglang: sv.obs.(*sglang), own: newRegistry(rust)}
	component := "backend"
	if sv.prefillOnly() {
		component = "prefill"
	}
	auto := labels{{"dynamo_component", component}, {"dynamo_endpoint", "generate"}, {"dynamo_namespace", "dynamo"}, {"model", sv.spec.Model}, {"worker_id", workerID(sv)}}
	r := w.own
	n := func(s string) string { return "dynamo_component_" + s }
	w.requests = r.counter(n("requests_total"), "Total number of requests processed by work handler", auto)
	w.inflight = r.gauge(n("inflight_requests"), "Number of requests currently being processed by work handler", auto).fromStart()
	w.duration = r.histogram(n("request_duration_seconds"), "Time spent processing requests by work handler", auto, componentBounds())
	w.inBytes = r.counter(n("request_bytes_total"), "Total number of bytes received in requests by work handler", auto)
	w.outBytes = r.counter(n("response_bytes_total"), "Total number of bytes sent in responses by work handler", auto)
	w.canceled = r.counter(n("cancellation_total"), "Total number of cancelled requests", auto)
	w.errors = r.counter(n("errors_total"), "Total number of errors in work handler", auto.with("error_type", "generate"))
	w.uptime = r.gauge(n("uptime_seconds"), "Total uptime of the DistributedRuntime in seconds", nil).fromStart()
	kv := labels{{"dp_rank", "0"}, {"dynamo_component", component}, {"dynamo_namespace", "dynamo"}, {"model", sv.spec.Model}, {"worker_id", workerID(sv)}}
	w.blocks = r.gauge(n("total_blocks"), "Total number of KV cache blocks", kv).fromStart()
	w.usage = r.gauge(n("gpu_cache_usage_percent"), "GPU cache usage as a percentage (0.0-1.0)", kv).fromStart()
	h := func(s string) string { return "dynamo_work_handler_" + s }
	w.transit = r.histogram(h("network_transit_seconds"), "Time of a request on the network", auto, componentBounds())
	w.toFirst = r.histogram(h("time_to_first_response_seconds"), "Time to the first response", auto, componentBounds())
	w.depth = r.gauge(h("queue_depth"), "Requests in the work handler's queue", auto).fromStart()
	w.busy = r.gauge("dynamo_tokio_worker_busy_ratio", "Busy ratio of a tokio worker", labels{{"worker", "0"}}).fromStart()
	w.tasks = r.gauge("dynamo_tokio_alive_tasks", "Alive tokio tasks", nil).fromStart()
	if sv.spec.HiCacheTokens > 0 {
		k := func(s string) string { return "dynamo_kvbm_" + s }
		w.offload = r.counter(k("offload_blocks_d2h"), "The number of offload blocks from device to host", nil).fromStart()
		w.onboard = r.counter(k("onboard_blocks_h2d"), "The number of onboard blocks from host to device", nil).fromStart()
		for _, s := range []string{"offload_blocks_h2d", "offload_blocks_d2d", "offload_blocks_d2o", "onboard_blocks_d2d", "onboard_blocks_o2d"} {
			r.counter(k(s), "The number of blocks moved to or from disk or object storage", nil).fromStart()
		}
		w.matched = r.counter(k("matched_tokens"), "The number of matched tokens", nil).fromStart()
		w.hostHits = r.gauge(k("host_cache_hit_rate"), "Host cache hit rate (0.0-1.0) from the sliding window", nil).fromStart()
		r.gauge(k("disk_cache_hit_rate"), "Disk cache hit rate (0.0-1.0) from the sliding window", nil).fromStart()
	}
	sv.obs = w
	w.constants()
	return append([]*registry{w.own}, regs...), nil
}

func (w *dynamoWorker) constants() {
	w.blocks.set(float64(w.sv.spec.Hardware.KVTokens / 16))
}

func (w *dynamoWorker) started(sv *server) {
	w.own.reset()
	w.open = 0
	w.constants()
	w.sglang.started(sv)
}

func (w *dynamoWorker) received(s *scheduler, r *request) {
	w.sglang.received(s, r)
	w.requests.add(1)
	w.open++
	w.inflight.set(w.open)
	w.inBytes.add(float64(180 + 6*r.prompt))
	w.transit.observe(0.001)
}

func (w *dynamoWorker) cache(s *scheduler, m kvMoves) {
	w.sglang.cache(s, m)
	if w.offload != nil {
		w.offload.add(float64(m.backedUp / 16))
		w.onboard.add(float64(m.loadedBack / 16))
	}
}

func (w *dynamoWorker) admitted(s *scheduler, r *request, wait float64) {
	w.sglang.admitted(s, r, wait)
	if w.offload != nil && r.prompt > 0 {
		w.matched.add(float64(r.hostHit))
		w.hostHits.set(0.9*w.hostHits.value + 0.1*float64(r.hostHit)/float64(r.prompt))
	}
}

func (w *dynamoWorker) firstToken(s *scheduler, r *request) {
	w.sglang.firstToken(s, r)
	w.toFirst.observe(s.now - r.recv)
}

func (w *dynamoWorker) finished(s *scheduler, r *request, o outcome) {
	w.sglang.finished(s, r, o)
	w.close(s, r)
	w.outBytes.add(61 * r.done)
	if o == aborted {
		w.canceled.add(1)
	}
}

func (w *dynamoWorker) dropped(s *scheduler, r *request, o outcome) {
	w.sglang.dropped(s, r, o)
	if r.recv == 0 {
		return
	}
	w.close(s, r)
	if o == failed {
		w.errors.add(1)
	} else {
		w.canceled.add(1)
	}
}

func (w *dynamoWorker) close(s *scheduler, r *request) {
	w.open--
	w.inflight.set(w.open)
	w.duration.observe(s.now - r.recv)
}

func (w *dynamoWorker) report(s *scheduler, kind reportKind) {
	w.sglang.report(s, kind)
	w.usage.set(float64(s.pool.used()) / float64(s.pool.capacity))
	w.uptime.set(math.Round((s.now-w.sv.began)*1e3) / 1e3)
	w.depth.set(float64(len(s.queue)))
	w.busy.set(min(0.9, 0.02+0.002*float64(len(s.batch))))
	w.tasks.set(float64(24 + 3*len(s.batch)))
}
