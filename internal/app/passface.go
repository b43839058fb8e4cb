package app

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/fpmbus"
	"github.com/rollscope/rollscope/internal/passstore"
)

// Status implements [api.Passes].
func (p *passPart) Status() api.ForwardPasses {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	out := api.ForwardPasses{Enabled: p.now != nil, Rows: passRows(p.store), Bursts: passBursts(p.store)}
	if p.now != nil {
		out.Sources = p.sources()
		out.Relay = p.relay()
	} else {
		out.Rows.Keep, out.Rows.Retention = string(passstore.KeepNone), nil // there is nothing to keep
	}
	for _, w := range p.track.Workers(now.UnixNano()) {
		out.Engines = append(out.Engines, p.engine(&w))
	}
	return out
}

func passRows(s *passstore.Store) api.PassRows {
	st := s.Stats()
	out := api.PassRows{Keep: string(st.Keep), Stored: st.Stored, Recent: st.Recent, Seconds: st.RecentSpan.Seconds()}
	if st.Keep == passstore.KeepAll {
		seconds := st.Retention.Seconds()
		out.Retention = &seconds
	}
	return out
}

func passBursts(s *passstore.Store) (out []api.PassBurst) {
	for _, b := range s.Bursts() {
		out = append(out, passBurst(b))
	}
	return out
}

func passBurst(b passstore.Burst) api.PassBurst {
	at := func(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }
	return api.PassBurst{ID: b.ID, Reason: b.Reason, Trigger: b.Trigger, Engine: b.Engine, From: at(b.From), To: at(b.To), Rows: b.Rows, Done: b.Done}
}

// sources are those of the bus. A source of several connections is shown as one: its state is the best of them.
func (p *passPart) sources() (out []api.PassSource) {
	at := map[string]int{}
	for _, s := range p.now.bus.Sources() {
		i, again := at[s.Name]
		if again {
			x := &out[i]
			x.Missed += s.Missed
			if s.State == fpmbus.Connected {
				x.State, x.Error = string(s.State), ""
			}
			continue
		}
		at[s.Name] = len(out)
		seen, v := p.track.Source(s.Name), p.verdicts[s.Name]
		x := api.PassSource{
			Name: s.Name, Kind: string(s.Kind), State: string(s.State), Flow: string(cmp.Or(v.Flow, fpm.Starting)), Cause: string(v.Cause), Alarm: v.Alarm,
			Why: v.Why, Do: v.Do, Messages: int64(seen.Messages), Passes: int64(seen.Passes), Heartbeats: int64(seen.Heartbeats), Refused: map[string]int64{},
			Missed: s.Missed, Last: stampOf(s.Last), Error: cmp.Or(s.Error, seen.LastError),
		}
		for reason, n := range seen.Refused {
			x.Refused[string(reason)] = int64(n)
		}
		out = append(out, x)
	}
	slices.SortStableFunc(out, func(a, b api.PassSource) int {
		if a.Alarm != b.Alarm {
			if a.Alarm {
				return -1
			}
			return 1
		}
		return 0
	})
	return out
}

func (p *passPart) relay() *api.PassRelay {
	for _, o := range p.now.bus.Outlets() {
		if o.Name == outRelay {
			return &api.PassRelay{To: p.now.to, State: string(o.Connection.State), Relayed: o.Taken, Filtered: o.Filtered, Waiting: o.Waiting,
				Limit: o.Limit, Lost: o.Lost, Error: cmp.Or(o.Error, o.Connection.Error)}
		}
	}
	return nil
}

// engine is a worker as the API has it.
func (p *passPart) engine(w *fpm.Worker) api.PassEngine {
	out := api.PassEngine{
		ID: passstore.EngineOf(w.Key), Namespace: w.Key.Namespace, Component: w.Key.Component, Worker: w.Key.Worker, State: string(w.State),
		Silent: w.Silent, QueueRule: string(w.QueueRule),
		Load: api.PassWorkerLoad{PrefillRequests: int64(w.Load.PrefillRequests), PrefillTokens: int64(w.Load.PrefillTokens),
			DecodeRequests: int64(w.Load.DecodeRequests), DecodeKV: int64(w.Load.DecodeKV)},
	}
	out.Name = shortName(w.Key)
	if id, err := fpm.ParseWorkerID(w.Key.Worker, fpm.DecimalID); err == nil {
		out.WorkerHex = fpm.HexWorkerID(id)
	}
	if w.Wall > 0 {
		out.Wall = new(w.Wall)
	}
	if w.Imbalance > 0 {
		out.Imbalance = new(w.Imbalance)
	}
	out.Differ = p.differ[out.ID]
	role := p.pools.role(w.Key.Namespace, w.Key.Component)
	if r := p.ranks[w.Ranks[0].Key]; r != nil {
		out.Name = cmp.Or(r.name, out.Name)
		if r.instance != "" {
			info := p.scraped.info[r.instance]
			out.EngineID = api.EngineID(info.Job, r.instance)
		}
		if role = r.role; r.instance != "" {
			if s, ok := p.scraped.queues[r.instance]; ok {
				out.Scraped = passQueue(fpm.ScrapedQueue(role, s), role, nil)
			}
		}
	}
	out.Role = string(role)
	if w.QueueKnown {
		out.Queue = passQueue(fpm.PassQueue(role, w.Queued), role, &w.Queued)
	}
	for i := range w.Ranks {
		out.Ranks = append(out.Ranks, passRankOf(&w.Ranks[i]))
	}
	return out
}

// shortName is an engine's name when nobody gave it one: of its places those that are known.
func shortName(k fpm.Key) string {
	return strings.TrimLeft(passstore.EngineOf(k), "/")
}

// passQueue is a queue with its parts; q has the tokens that messages tell.
func passQueue(x fpm.Queue, role fpm.Role, q *fpm.Queued) *api.PassQueue {
	if !x.Known {
		return nil
	}
	out := &api.PassQueue{Requests: x.Requests}
	for i, part := range x.Parts {
		y := api.PassQueuePart{Name: part.Name}
		if part.Known {
			y.Requests = new(part.Requests)
		}
		if q != nil && part.Known {
			tokens := q.PrefillTokens
			if i == 1 || role == fpm.Decode { // the order of [fpm.PassQueue]
				tokens = q.DecodeKV
			}
			y.Tokens = new(float64(tokens))
		}
		out.Parts = append(out.Parts, y)
	}
	return out
}

func passRankOf(s *fpm.Status) api.PassRank {
	at := func(ns int64) *string {
		if ns == 0 {
			return nil
		}
		return stampOf(time.Unix(0, ns))
	}
	out := api.PassRank{
		Rank: int(s.Key.Rank), State: string(s.State), Reason: s.Reason, First: *at(max(s.First, 1)), Last: *at(max(s.Last, 1)), LastPass: at(s.LastPass),
		Allowance: s.Allowance.Seconds(), Passes: int64(s.Passes), Heartbeats: int64(s.Heartbeats), Late: int64(s.Late), Duplicates: int64(s.Duplicates),
		Restarts: int64(s.Restarts), LastGap: at(s.LastGap), LastStart: at(s.LastRestart), Busy: s.BusySeconds, Least: s.BusyIsLowerBound,
		Unmeasured: s.UnmeasuredSeconds, Notices: s.Notices,
	}
	if !s.LossUnknown {
		n := int64(s.Lost())
		out.Lost = &n
	}
	return out
}

// Live implements [api.Passes].
func (p *passPart) Live(after, engine string, limit int) (api.PassColumns, error) {
	return livePasses(p.store, after, engine, limit)
}

// Rows implements [api.Passes].
func (p *passPart) Rows(ctx context.Context, q api.PassQuery) (api.PassColumns, error) {
	return storedPasses(ctx, p.store, q)
}

// Advice implements [api.Passes].
func (p *passPart) Advice(ctx context.Context) (api.PassAdvice, error) {
	now := time.Now()
	return p.plan.advice(ctx, now, p.workers(now))
}

// Capacity implements [api.Passes].
func (p *passPart) Capacity(ctx context.Context, q api.CapacityQuery) (api.PassCapacity, error) {
	now := time.Now()
	return p.plan.capacity(ctx, now, p.workers(now), q)
}

func (p *passPart) workers(now time.Time) []planWorker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known(p.track.Workers(now.UnixNano()))
}

// known adds what is known of workers beside their streams.
func (p *passPart) known(list []fpm.Worker) []planWorker {
	out := make([]planWorker, len(list))
	for i, w := range list {
		out[i] = planWorker{Worker: w, role: p.pools.role(w.Key.Namespace, w.Key.Component)}
		if r := p.ranks[w.Ranks[0].Key]; r != nil {
			out[i].role, out[i].instance = r.role, r.instance
		}
	}
	return out
}

// Burst implements [api.Passes].
func (p *passPart) Burst(engine, reason string, around time.Duration) (api.PassBurst, error) {
	if engine != "" {
		p.mu.Lock()
		known := slices.ContainsFunc(p.track.Statuses(time.Now().UnixNano()), func(s fpm.Status) bool { return passstore.EngineOf(s.Key) == engine })
		p.mu.Unlock()
		if !known {
			return api.PassBurst{}, &api.Error{Code: "not_found", Message: "no forward pass came of the engine " + engine, Where: "engine", Hint: "GET /api/rollscope/v1/passes lists those that send"}
		}
	}
	b, err := p.store.Burst("manual", reason, engine, around)
	if err != nil {
		return api.PassBurst{}, &api.Error{Code: "conflict", Message: err.Error()}
	}
	return passBurst(b), nil
}

// drops are what was not kept of forward passes.
func (p *passPart) drops() (out []api.Drop) {
	p.mu.Lock()
	sums := map[[2]string]int64{}
	add := func(source, reason string, n int64) {
		if n > 0 {
			sums[[2]string{source, reason}] += n
		}
	}
	list := p.gone
	if p.now != nil {
		list = slices.Concat(list, p.now.bus.Drops())
	}
	for _, d := range list {
		add(d.Source, d.Reason, d.Count)
	}
	for _, d := range refusals(p.track) {
		add(d.Source, d.Reason, d.Count)
	}
	add("rollscope_fpm", "too_many_series", p.series.refused)
	p.mu.Unlock()
	for _, d := range p.store.Drops() {
		add("passes", d.Reason, d.Count)
	}
	for _, d := range p.plan.drops() {
		add(d.Source, d.Reason, d.Count)
	}
	for k, n := range sums {
		out = append(out, api.Drop{Source: k[0], Reason: k[1], Count: n})
	}
	slices.SortFunc(out, func(a, b api.Drop) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// notices are what forward passes have to say to whoever looks at the page.
func (p *passPart) notices() []api.Warning {
	p.mu.Lock()
	out := slices.Clone(p.notes)
	for source, v := range p.verdicts {
		if v.Alarm {
			out = append(out, api.Warning{Code: "passes_blind", Message: string(v.Flow) + ": " + v.Why, Where: source, Hint: v.Do})
		}
	}
	p.mu.Unlock()
	slices.SortStableFunc(out, func(a, b api.Warning) int { return cmp.Compare(a.Where, b.Where) })
	if why := p.store.Notice(); why != "" {
		out = append(out, api.Warning{Code: "passes_retention", Message: "forward passes beyond their retention stay as long as other events: " + why, Where: "forward_passes.retention"})
	}
	return append(out, p.plan.warnings()...)
}
