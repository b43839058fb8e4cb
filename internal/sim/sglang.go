package sim

import (
	"fmt"
	"math"
	"strconv"

	"github.com/rollscope/rollscope/internal/engine"
)

// sglang writes the metrics of one SGLang process.
type sglang struct {
	sv    *server
	rel   release
	reg   *registry
	tm    *tokenizerMetrics
	ranks []*schedulerMetrics
	rc    *cacheMetrics
	gap   func(gap, n float64) // also told of every inter-token gap; nil = nobody

	active    float64 // requests in the HTTP front
	itlCarry  float64 // fractions of tokens not yet counted
	pausedMsg bool    // since 2026-06-02 a pause publishes the gauges once
}

// newSGLang builds the registry of an SGLang engine and makes it the server's observer.
func newSGLang(sv *server) ([]*registry, error) {
	version := sv.spec.Version
	if version == "" {
		version = newestSGLang
		sv.spec.Version = version
	}
	rel, err := parseRelease(version)
	if err != nil {
		return nil, err
	}
	if rel < oldest {
		return nil, fmt.Errorf("sim: member %q: SGLang %s is not modelled: 0.5.4 to 0.5.18", sv.name, version)
	}
	g := &sglang{sv: sv, rel: rel, reg: newRegistry(pythonMulti), pausedMsg: rel.has("2026-06-02", "")}
	sv.promptIdle = rel.has("2026-07-16", "")
	b := sglangFamilies{reg: g.reg, rel: rel}
	t := labels{{"model_name", sv.spec.Model}}
	if rel.has("2026-04-30", "") {
		t = t.with("engine_type", string(sv.spec.Role))
	}
	g.tm = b.tokenizer(t, sv.spec)
	for rank := range sv.scheds {
		var all []labels
		for tp := range sv.spec.TP {
			all = append(all, g.rankLabels(rank, tp))
		}
		g.ranks = append(g.ranks, b.scheduler(all[0], all, sv.spec, sv.pid))
	}
	g.rc = b.cache(sv.spec)
	sv.obs = g
	g.started(sv)
	return []*registry{g.reg}, nil
}

const newestSGLang = "0.5.18"

// rankLabels is label set S of one rank.
func (g *sglang) rankLabels(dp, tp int) labels {
	spec := &g.sv.spec
	// With DP attention the TP ranks are spread over the DP ranks.
	if spec.DP > 1 {
		tp += dp * spec.TP
	}
	ls := labels{
		{"engine_type", string(spec.Role)}, {"model_name", spec.Model}, {"pp_rank", "0"}, {"tp_rank", strconv.Itoa(tp)},
	}
	if g.rel.has("0.5.7", "") {
		ls = ls.with("moe_ep_rank", "0")
	}
	if spec.DP > 0 {
		ls = ls.with("dp_rank", strconv.Itoa(dp))
	}
	return ls
}

func (g *sglang) started(sv *server) {
	g.reg.reset()
	g.active, g.itlCarry = 0, 0
	for i, k := range g.ranks {
		if sv.began > 0 {
			// Multiprocess mode "all": a series per process that ever was.
			k.retractedGauge.retire()
			k.pausedGauge.retire()
			b := sglangFamilies{reg: g.reg, rel: g.rel}
			s := g.rankLabels(i, 0).with("pid", strconv.Itoa(sv.pid))
			k.retractedGauge = b.gauge("num_retracted_reqs", "", "", s, k.retractedGauge.family.help)
			k.pausedGauge = b.gauge("num_paused_reqs", "", "", s, k.pausedGauge.family.help)
		}
		for _, c := range k.constants {
			c.m.set(c.v)
		}
		k.loraTotal.set(8)
		k.hostTotal.set(float64(sv.spec.HiCacheTokens))
	}
	for phase, sec := range map[string]float64{"load_weight": 17.3, "kv_cache_allocation": 0.8, "scheduler_e2e": 44.9, "tokenizer_e2e": 48.6} {
		g.tm.startup[phase].set(sec)
	}
	g.tm.graphs.set(11.4)
}

func (g *sglang) rank(s *scheduler) *schedulerMetrics { return g.ranks[s.rank] }

func (g *sglang) received(s *scheduler, r *request) {
	g.tm.httpRequests.add(1)
	g.active++
	g.tm.httpActive.set(g.active)
	g.rank(s).stages["request_process"].observe(0.0012 + 0.0011*s.rng.ExpFloat64())
}

func (g *sglang) compiled(s *scheduler, _ *request, sec float64) {
	k := g.rank(s)
	k.grammars.add(1)
	if sec == 0 {
		k.grammarHits.add(1)
		return
	}
	k.grammarTime.observe(sec)
	k.grammarSchemas.observe(1)
	k.grammarSize.observe(math.Round(400 * math.Exp(s.rng.NormFloat64())))
	k.grammarAvg.observe(0.0004 * math.Exp(s.rng.NormFloat64()))
	k.grammarMax.observe(0.004 * math.Exp(s.rng.NormFloat64()))
}

func (g *sglang) admitted(s *scheduler, r *request, wait float64) {
	k := g.rank(s)
	k.queueTime.observe(wait)
	if s.server.decodeOnly() {
		k.stages["decode_waiting"].observe(wait)
	}
	if g.tm.getLoads != nil {
		g.tm.getLoads.observe(0.0004 * math.Exp(0.4*s.rng.NormFloat64()))
	}
}

func (g *sglang) prefilled(s *scheduler, p *pass) {
	k := g.rank(s)
	hit := float64(p.hit + p.host)
	k.compute.add(float64(p.computed))
	k.cacheHit.add(hit)
	k.effInput.add(float64(max(0, p.computed-p.again)))
	k.effDevice.add(float64(p.hit))
	k.effHost.add(float64(p.host))
	k.passPrefill.add(1)
	took := p.end - p.start
	k.forwardExtend.add(took * 0.94)
	if k.coopCompute != nil {
		k.coopCompute.add(float64(p.computed))
		k.coopCached.add(hit)
		k.coopExtendSec.add(took * 0.94)
	}
	k.balanceExtend.observe(g.balance(s))
	k.flops.add(float64(p.computed) * flopsPerToken / float64(s.server.spec.TP))
	k.readBytes.add(weightBytes / float64(s.server.spec.TP))
	k.writeBytes.add(float64(p.computed) * s.server.spec.Hardware.KVBytes)
	k.delayPasses.observe(0)
	k.delaySeconds.observe(0)
	k.delayOutcomes.add(1)
	for _, r := range p.done {
		if r.chunks <= 1 {
			k.stages["prefill_forward"].observe(took)
		} else {
			k.stages["chunked_prefill"].observe(p.end - r.start)
		}
	}
}

const (
	flopsPerToken = 6.4e10 // a dense model of 32 billion parameters
	weightBytes   = 6.4e10
)

// balance is the share of the busiest expert's load that the mean expert has.
func (g *sglang) balance(s *scheduler) float64 {
	if !s.server.spec.MoE {
		return 0
	}
	mean := 0.86
	if s.server.skewed {
		mean = 0.42
	}
	return min(1, max(0.05, mean+0.03*s.rng.NormFloat64()))
}

func (g *sglang) firstToken(s *scheduler, r *request) {
	g.tm.httpResponses.add(1)
	if s.server.prefillOnly() {
		return
	}
	g.tm.ttft.of(r).observe(s.now - r.recv)
}

func (g *sglang) decoded(s *scheduler, d decodeRun) {
	k := g.rank(s)
	k.decode.set(math.Floor(s.decoded - s.decodedBefore))
	k.passDecode.add(float64(d.steps))
	sec := d.gap * d.tokens / float64(d.batch)
	k.forwardDecode.add(sec * 0.93)
	if k.coopDecode != nil {
		k.coopDecode.set(math.Floor(s.decoded - s.decodedBefore))
		k.coopDecodeSec.add(sec * 0.93)
	}
	if k.balanceDecode != nil {
		k.balanceDecode.observeN(g.balance(s), float64(d.steps))
	}
	if k.flops != nil {
		k.flops.add(d.tokens * flopsPerToken / float64(s.server.spec.TP))
		k.readBytes.add(float64(d.steps) * (weightBytes/float64(s.server.spec.TP) + s.seqLens*s.server.spec.Hardware.KVBytes))
		k.writeBytes.add(d.tokens * s.server.spec.Hardware.KVBytes)
	}
	gaps(&g.itlCarry, d, func(gap, n float64) {
		g.tm.itl.observeN(gap, n)
		if g.gap != nil {
			g.gap(gap, n)
		}
	})
}

// gaps spreads a run's tokens over the inter-token gaps that its clients saw: most near the mean,
// some later, and those of the first step later by the prefill pass before it.
func gaps(carry *float64, d decodeRun, observe func(gap, n float64)) {
	n := math.Floor(d.tokens + *carry)
	*carry += d.tokens - n
	if d.stall > 0 {
		first := min(n, float64(d.batch))
		observe(d.gap+d.stall, first)
		n -= first
	}
	late, soon := math.Floor(n*0.04), math.Floor(n*0.3)
	observe(d.gap*1.8, late)
	observe(d.gap*0.93, soon)
	observe(d.gap, n-late-soon)
}

func (g *sglang) retracted(s *scheduler, n, input, output int) {
	k := g.rank(s)
	k.retracted.add(float64(n))
	k.retractedIn.add(float64(input))
	k.retractedOut.add(float64(output))
}

func (g *sglang) granted(s *scheduler, r *request) {
	k := g.rank(s)
	wait := r.granted - r.recv
	if s.server.prefillOnly() {
		k.stages["prefill_bootstrap"].observe(wait)
		return
	}
	k.stages["decode_prepare"].observe(wait)
	k.stages["decode_bootstrap"].observe(handshake)
	if g.rel.has("2026-05-08", "") {
		k.bootMS.observe((wait + handshake) * 1000)
		k.allocMS.observe(wait * 1000)
	}
}

func (g *sglang) transferred(s *scheduler, r *request, t kvTransfer) {
	k := g.rank(s)
	k.stages["prefill_transfer_kv_cache"].observe(t.seconds)
	speed, ms, mb := t.bytes/gib/t.seconds, t.seconds*1000, t.bytes/(1024*1024)
	k.speed.observe(speed)
	k.latency.observe(ms)
	k.size.observe(mb)
	k.bootMS.observe(t.boot * 1000)
	k.allocMS.observe(t.alloc * 1000)
	k.speedG.set(speed)
	k.latencyG.set(ms)
	k.sizeG.set(mb)
	k.bootG.set(t.boot * 1000)
	k.allocG.set(t.alloc * 1000)
}

func (g *sglang) resent(s *scheduler) { g.rank(s).prefillRetries.add(1) }

func (g *sglang) arrived(s *scheduler, r *request) {
	g.rank(s).stages["decode_transferred"].observe(s.now - r.granted)
}

func (g *sglang) broken(s *scheduler, r *request) {
	k := g.rank(s)
	if r.at == transfer || r.at == inflight {
		k.transferFailed.add(1)
	} else {
		k.bootFailed.add(1)
	}
}

func (g *sglang) finished(s *scheduler, r *request, o outcome) {
	t := g.tm
	g.active--
	t.httpActive.set(g.active)
	t.requests.of(r).add(1)
	t.prompt.of(r).add(float64(r.prompt))
	t.generation.of(r).add(r.done)
	if n := float64(r.cachedTotal); n > 0 {
		t.cachedTotal.add(n)
		host := float64(r.hostTotal)
		if n > host {
			t.cachedDevice.add(n - host)
		}
		if host > 0 {
			t.cachedHost.add(host)
		}
	}
	if r.grammar {
		t.structured.add(1)
	}
	if o == aborted && !r.swept {
		t.abortedCalls.add(1)
	}
	t.e2e.of(r).observe(s.now - r.recv)
	t.promptHist.observe(float64(r.prompt))
	t.uncachedHist.observe(float64(max(0, r.prompt-r.cachedTotal)))
	t.generationHist.observe(r.done)
	if s.server.spec.Speculative {
		t.specVerify.add(math.Ceil(r.done / s.accept))
	}
}

func (g *sglang) dropped(s *scheduler, r *request, o outcome) {
	if r.recv > 0 {
		g.active--
		g.tm.httpActive.set(max(0, g.active))
	}
	if o == aborted && !r.swept {
		g.tm.abortedCalls.add(1)
	}
}

func (g *sglang) swept(*scheduler) { g.tm.abortedCalls.add(1) }

func (g *sglang) cache(s *scheduler, m kvMoves) {
	c, bytes := g.rc, s.server.spec.Hardware.KVBytes
	if m.evicted > 0 {
		c.evicted.add(float64(m.evicted))
		c.evictTime.observe(0.0006 + 4e-8*float64(m.evicted) + 2e-7*float64(m.backedUp))
	}
	if m.backedUp > 0 {
		c.backup.add(float64(m.backedUp))
		c.backupBytes.add(float64(m.backedUp) * bytes)
		c.backupTime.observe(0.001 + float64(m.backedUp)*bytes/(24*gib))
		c.stored.add(float64(m.backedUp))
		c.backupPages.observe(float64(m.backedUp) / 64)
		c.backupRate.observe(4 + s.rng.Float64())
	}
	if m.dropped > 0 {
		c.dropped.add(float64(m.dropped))
	}
	if m.loadedBack > 0 {
		c.loadBack.add(float64(m.loadedBack))
		c.loadBackBytes.add(float64(m.loadedBack) * bytes)
		c.loadBackTime.observe(0.001 + float64(m.loadedBack)*bytes/(24*gib))
		c.prefetched.add(float64(m.loadedBack))
		c.prefetchPages.observe(float64(m.loadedBack) / 64)
		c.prefetchRate.observe(3 + s.rng.Float64())
	}
}

func (g *sglang) synced(s *scheduler, sec float64) { g.rank(s).weightLoad.set(sec) }

// report writes the gauges, as the scheduler does after a prefill pass, every 40 decode steps and
// when idle.
func (g *sglang) report(s *scheduler, kind reportKind) {
	if kind == reportPause && !g.pausedMsg {
		return
	}
	k, p := g.rank(s), s.pool
	capacity := float64(p.capacity)
	used := float64(p.used())
	running := float64(len(s.batch))
	if kind == reportPrefill && s.server.prefillOnly() {
		running = float64(s.pass.requests)
	}
	k.running.set(running)
	k.queue.set(float64(len(s.queue)))
	k.grammarQueue.set(float64(s.compiling))
	k.offline.set(0)
	k.throughput.set(s.throughput)
	switch kind {
	case reportPrefill:
		k.hitRate.set(s.lastHitRate)
	default:
		k.hitRate.set(0)
	}
	k.sumSeqLens.set(math.Round(s.seqLens))
	k.usage.set(math.Round(used/capacity*100) / 100)
	k.fullUsage.set(used / capacity)
	k.usedTokens.set(used)
	k.kvUsed.set(used)
	k.kvAvailable.set(float64(p.free()))
	k.kvEvictable.set(float64(p.evictable))
	k.ratio.set(s.ratio)
	k.retractedGauge.set(float64(s.retractedIn))
	k.pausedGauge.set(0)
	for _, d := range k.dead {
		d.set(0)
	}
	k.utilization.set(0)
	if s.server.prefillOnly() {
		k.utilization.set(-1)
	}
	k.occupancy.set(math.NaN())
	if kind != reportIdle && k.forwardDecode != nil {
		k.occupancy.set(min(99, 100*s.busy/max(s.now, 1)))
	}
	k.perReportMax.set(capacity)
	k.routingUnique.set(0)
	for i := range k.routingRunning {
		k.routingRunning[i].set(0)
		k.routingAll[i].set(0)
	}
	k.loraUsed.set(2)
	k.loraUtil.set(0.25)
	k.sessions.set(float64(min(len(s.batch), 4)))
	k.sessionTokens.set(float64(min(len(s.batch), 4)) * 512)
	accept, rate := 0.0, 0.0
	if s.server.spec.Speculative && kind != reportIdle {
		accept, rate = s.accept, (s.accept-1)/3
	}
	k.acceptLength.set(accept)
	k.acceptRate.set(rate)
	k.specSteps.set(3)
	k.specDraft.set(4)
	k.bootstrapQueue.set(float64(s.bootstrapping))
	k.inflightQueue.set(float64(len(s.sending)))
	k.preallocQueue.set(float64(len(s.prealloc)))
	k.transferQueue.set(float64(s.transferring))
	k.hostUsed.set(float64(p.host.used))
	for _, m := range []*metric{k.speedG, k.latencyG, k.sizeG, k.bootG, k.allocG} {
		if m != nil {
			m.set(m.value)
		}
	}
	g.front(s.now)
}

// front writes what the HTTP front counts besides requests: scrapes every 15 s, probes every 10 s.
func (g *sglang) front(now float64) {
	up := now - g.sv.began
	t := g.tm
	t.httpScrapes.set(math.Floor(up/15) + 1)
	t.httpScrapesOK.set(math.Floor(up / 15))
	t.httpScraping.set(1)
	t.httpHealth.set(math.Floor(up/10) + 1)
	t.httpHealthOK.set(math.Floor(up/10) + 1)
	busy := 0.0
	for _, s := range g.sv.scheds {
		busy += s.busy
	}
	t.cpuScheduler.set(math.Round(up*99) / 100)
	t.cpuTokenizer.set(math.Round((up*0.02+busy*0.3)*100) / 100)
	t.cpuDetokenize.set(math.Round((up*0.01+busy*0.12)*100) / 100)
}

// role is the SGLang name of the disaggregation mode.
func disaggregationMode(r engine.Role) string {
	if r == engine.Prefill || r == engine.Decode {
		return string(r)
	}
	return "null"
}
