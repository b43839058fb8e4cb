package app

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/fpmbus"
	"github.com/rollscope/rollscope/internal/passstore"
)

// judgeAll judges the streams every few seconds until ctx ends.
func (p *passPart) judgeAll(ctx context.Context) {
	t := time.NewTicker(passEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			if p.idle() {
				continue
			}
			scraped, err := p.metrics.scrape(ctx, now)
			if err != nil && ctx.Err() == nil {
				p.log.Warn("what the engines' metrics say could not be read", "err", err)
			}
			workers := p.look(now, scraped)
			p.plan.refresh(ctx, now, workers)
		}
	}
}

// idle tells that there is nothing to judge.
func (p *passPart) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now == nil && len(p.ranks) == 0
}

// look takes what the metrics say and judges; it returns the workers.
func (p *passPart) look(now time.Time, scraped scrapedEngines) []planWorker {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scraped = scraped
	ns := now.UnixNano()
	p.track.Forget(ns)
	workers := p.track.Workers(ns)
	alive := map[fpm.Key]bool{}
	for i := range workers {
		w := &workers[i]
		for _, r := range w.Ranks {
			alive[r.Key] = true
		}
	}
	for k, r := range p.ranks {
		if !alive[k] {
			p.series.forget(k)
			delete(p.ranks, k)
			continue
		}
		p.resolve(k, r)
	}
	p.judgeSources(now)
	p.compareQueues(ns, workers)
	p.watchAlerts()
	return p.known(workers)
}

// judgeSources says of each source what its stream is.
func (p *passPart) judgeSources(now time.Time) {
	p.verdicts = map[string]fpm.Verdict{}
	if p.now == nil {
		return
	}
	list := p.now.bus.Sources()
	if len(p.history) == 0 {
		p.history = []passMoment{{at: p.since}}
	}
	moment := p.moment(now)
	p.history = append(p.history, moment)
	for len(p.history) > 2 && now.Sub(p.history[1].at) >= evidenceWindow {
		p.history = p.history[1:]
	}
	before := p.history[0]
	passes := map[string]uint64{} // of all sources of an engine
	evidence := map[string]fpm.Evidence{}
	for _, s := range list {
		if _, done := evidence[s.Name]; done {
			continue
		}
		e := moment.sources[s.Name].Since(before.sources[s.Name])
		if n := moment.drops[s.Name] - before.drops[s.Name]; n > 0 {
			e.Refused += uint64(n)
			if e.Reason == "" {
				e.Reason = "bad_frames"
			}
		}
		evidence[s.Name] = e
		passes[p.now.engines[s.Name]] += e.Passes
	}
	for _, s := range list {
		e, instance := evidence[s.Name], p.now.engines[s.Name]
		e.Up, e.Window = now.Sub(p.since), now.Sub(before.at)
		e.Requests, e.Runtime = p.requestsOf(s, instance), p.runtimeOf(instance)
		if e.Messages > 0 && e.Passes == 0 && instance != "" && passes[instance] > 0 {
			e.Requests = -1 // another rank of the engine did the work
		}
		switch {
		case s.State == fpmbus.Connected && s.Kind != fpmbus.PlaneNATS: // connected to a server says nothing of an engine
			e.Socket = fpm.SocketOpen
		case (s.State == fpmbus.Missing || s.State == fpmbus.Down) && s.Kind == fpmbus.EngineSocket:
			e.Socket = fpm.SocketMissing
		}
		v := fpm.Judge(e)
		if s.Kind == fpmbus.TraceFile && e.Messages+e.Refused == 0 { // a file that does not grow is not blindness
			v = fpm.Verdict{Flow: fpm.Waiting, Why: "no record was added to the files lately"}
		}
		if old, again := p.verdicts[s.Name]; again && old.Alarm { // several connections of one source: the worst counts
			continue
		}
		p.verdicts[s.Name] = v
		if p.told[s.Name] != v.Flow {
			p.told[s.Name] = v.Flow
			if v.Alarm {
				p.log.Warn("forward passes: "+string(v.Flow), "source", s.Name, "why", v.Why, "do", v.Do)
			}
		}
	}
}

// moment is what the sources have brought by now.
func (p *passPart) moment(now time.Time) passMoment {
	m := passMoment{at: now, sources: map[string]fpm.SourceStatus{}, drops: unreadableDrops(p.now.bus.Drops())}
	for _, s := range p.now.bus.Sources() {
		st := p.track.Source(s.Name)
		st.Refused = maps.Clone(st.Refused)
		m.sources[s.Name] = st
	}
	return m
}

// unreadableDrops are what came and could not be read, by source.
func unreadableDrops(drops []fpmbus.Drop) map[string]int64 {
	out := map[string]int64{}
	for _, d := range drops {
		if slices.Contains(unreadable, d.Reason) {
			out[d.Source] += d.Count
		}
	}
	return out
}

// requestsOf is how many requests the engine behind a source had in the last minute, negative when that is
// unknown.
func (p *passPart) requestsOf(s fpmbus.Status, instance string) float64 {
	if instance != "" {
		if n, ok := p.scraped.requests[instance]; ok {
			return n
		}
		return -1
	}
	switch s.Kind {
	case fpmbus.PlaneNATS, fpmbus.PlaneZMQ, fpmbus.ExportSocket:
		if p.scraped.dynamo != nil {
			return *p.scraped.dynamo
		}
	case fpmbus.EngineSocket:
		// Without a word on whose socket it is, only the one engine that there is can be meant.
		var one float64
		n := 0
		for instance, requests := range p.scraped.requests {
			if e, ok := p.scraped.info[instance]; ok && e.IsEngine() {
				one = requests
				n++
			}
		}
		if n == 1 {
			return one
		}
	}
	return -1
}

// runtimeOf is the engine's package and version, "" unknown.
func (p *passPart) runtimeOf(instance string) string {
	if p.cfg.Runtime != "" {
		return p.cfg.Runtime
	}
	if e, ok := p.scraped.info[instance]; ok && e.Version != "" {
		return string(e.Backend) + " " + e.Version
	}
	return ""
}

// compareQueues says where the queue of messages and that of metrics differ for long.
func (p *passPart) compareQueues(now int64, workers []fpm.Worker) {
	seen := map[string]bool{}
	for i := range workers {
		w := &workers[i]
		id := passstore.EngineOf(w.Key)
		seen[id] = true
		r := p.ranks[w.Ranks[0].Key]
		if r == nil {
			continue
		}
		watch := p.watches[id]
		if watch == nil {
			watch = &fpm.QueueWatch{}
			p.watches[id] = watch
		}
		scraped, ok := p.scraped.queues[r.instance]
		if !w.QueueKnown || !ok || r.instance == "" {
			watch.Compare(now, r.role, fpm.Queue{}, fpm.Queue{})
			delete(p.differ, id)
			continue
		}
		if d, differ := watch.Compare(now, r.role, fpm.PassQueue(r.role, w.Queued), fpm.ScrapedQueue(r.role, scraped)); differ {
			p.differ[id] = d.Reason
		} else {
			delete(p.differ, id)
		}
	}
	for id := range p.watches {
		if !seen[id] {
			delete(p.watches, id)
			delete(p.differ, id)
		}
	}
}

// watchAlerts starts a burst for each alert that begins to fire.
func (p *passPart) watchAlerts() {
	if p.alerts == nil {
		return
	}
	now := map[string]bool{}
	for _, a := range p.alerts() {
		if a.State != "firing" {
			continue
		}
		key := a.Name + "\x00" + a.Labels["instance"] + "\x00" + a.Labels["source"]
		now[key] = true
		if !p.firing[key] {
			p.burst("alert", "", a.Name, &p.cfg.Burst)
		}
	}
	p.firing = now
}

// passCounters shows what the streams say as counters.
type passCounters struct{ p *passPart }

// Series of [passCounters].
var (
	rankDesc = func(name, help string) *prometheus.Desc { return prometheus.NewDesc(name, help, passLabels, nil) }

	passesDesc     = rankDesc("rollscope_fpm_passes_total", "Forward passes that were received.")
	heartbeatsDesc = rankDesc("rollscope_fpm_heartbeats_total", "Heartbeats that were received.")
	missingDesc    = rankDesc("rollscope_fpm_missing_total", "Messages that were missing when a newer one came. Those that came late after all are in rollscope_fpm_filled_total too.")
	filledDesc     = rankDesc("rollscope_fpm_filled_total", "Missing messages that came late.")
	duplicatesDesc = rankDesc("rollscope_fpm_duplicates_total", "Messages that came a second time and were not counted again.")
	restartsDesc   = rankDesc("rollscope_fpm_restarts_total", "Times that the engine began to count anew.")
	busyDesc       = rankDesc("rollscope_fpm_busy_seconds_total", "Sum of the times of passes; a lower bound when messages are missing or unmeasured.")
	unmeasuredDesc = rankDesc("rollscope_fpm_unmeasured_seconds_total", "Time in which the rank had requests and no message told of a pass.")
	lastDesc       = rankDesc("rollscope_fpm_last_message_timestamp_seconds", "When the last message came, seconds since 1970.")
	stateDesc      = prometheus.NewDesc("rollscope_fpm_ranks", "Ranks that are known, by what they do: working, idle, stale (silent for longer than their rhythm allows).", []string{"state"}, nil)
	blindDesc      = prometheus.NewDesc("rollscope_fpm_blind", "1 when the source's messages do not come, or cannot be read, though they should.", []string{"source"}, nil)
)

// Describe implements [prometheus.Collector].
func (c passCounters) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{passesDesc, heartbeatsDesc, missingDesc, filledDesc, duplicatesDesc, restartsDesc, busyDesc, unmeasuredDesc, lastDesc, stateDesc, blindDesc} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c passCounters) Collect(out chan<- prometheus.Metric) {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	states := map[fpm.State]int{}
	for _, s := range p.track.Statuses(time.Now().UnixNano()) {
		states[s.State]++
		r := p.ranks[s.Key]
		if r == nil || r.series == nil {
			continue
		}
		l := r.series.labels
		values := make([]string, len(passLabels))
		for i, name := range passLabels {
			values[i] = l[name]
		}
		for _, x := range []struct {
			d *prometheus.Desc
			t prometheus.ValueType
			v float64
		}{
			{passesDesc, prometheus.CounterValue, float64(s.Passes)}, {heartbeatsDesc, prometheus.CounterValue, float64(s.Heartbeats)},
			{missingDesc, prometheus.CounterValue, float64(s.Missing)}, {filledDesc, prometheus.CounterValue, float64(s.Filled)},
			{duplicatesDesc, prometheus.CounterValue, float64(s.Duplicates)}, {restartsDesc, prometheus.CounterValue, float64(s.Restarts)},
			{busyDesc, prometheus.CounterValue, s.BusySeconds}, {unmeasuredDesc, prometheus.CounterValue, s.UnmeasuredSeconds},
			{lastDesc, prometheus.GaugeValue, float64(s.Last) / 1e9},
		} {
			if (x.d == missingDesc || x.d == filledDesc) && s.LossUnknown {
				continue // unknown is not none
			}
			out <- prometheus.MustNewConstMetric(x.d, x.t, x.v, values...)
		}
	}
	if len(states) > 0 {
		for _, st := range []fpm.State{fpm.Working, fpm.Idle, fpm.Stale} {
			out <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, float64(states[st]), string(st))
		}
	}
	for source, v := range p.verdicts {
		n := 0.0
		if v.Alarm {
			n = 1
		}
		out <- prometheus.MustNewConstMetric(blindDesc, prometheus.GaugeValue, n, source)
	}
}
