package app

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/fpmbus"
	"github.com/rollscope/rollscope/internal/passstore"
)

// passPart is everything of a recorder that is about forward passes: it receives them, judges the streams,
// counts them into series, keeps them, passes them on, and hands them to the planner.
type passPart struct {
	log     *slog.Logger
	flags   FPMOptions
	metrics metricsSource
	nameOf  func(names ...string) string // the engine that a name is of
	alerts  func() []api.Alert           // nil: none
	store   *passstore.Store
	plan    passPlanner
	ran     bool

	mu       sync.Mutex           // of all below
	now      *passBus             // nil: nothing is received
	cfg      config.ForwardPasses // in force, or about to be
	opened   config.ForwardPasses // that now was opened with
	changes  chan struct{}
	notes    []api.Warning
	since    time.Time // since when the bus of now listens
	track    *fpm.Tracker
	dec      fpm.Decoder
	series   *passSeries
	ranks    map[fpm.Key]*passRank
	pools    poolNames
	scraped  scrapedEngines
	others   int64 // records that are not of forward passes
	watches  map[string]*fpm.QueueWatch
	differ   map[string]string
	history  []passMoment // of the sources, for the counts of the last minute
	verdicts map[string]fpm.Verdict
	told     map[string]fpm.Flow
	firing   map[string]bool // alerts that fired at the last look
	rows     []passstore.Row // of one batch
	gone     passDrops       // of buses before
}

// passPlanner learns from passes and answers what a deployment carries. Its methods may be called by several
// goroutines.
type passPlanner interface {
	prometheus.Collector
	// remember has settings written down below home from now on.
	remember(home string)
	apply(cfg *config.Config) error
	// observe takes a pass in; it returns words when it noticed that the model of the pool holds no longer.
	observe(now int64, k fpm.Key, role fpm.Role, p *fpm.Pass, seen fpm.Observation) (changed string)
	// refresh computes the series of workers as they are now.
	refresh(ctx context.Context, now time.Time, workers []planWorker)
	advice(ctx context.Context, now time.Time, workers []planWorker) (api.PassAdvice, error)
	capacity(ctx context.Context, now time.Time, workers []planWorker, q api.CapacityQuery) (api.PassCapacity, error)
	drops() []api.Drop
	warnings() []api.Warning
}

// planWorker is a worker with what is known of it beside its stream.
type planWorker struct {
	fpm.Worker
	role     fpm.Role
	instance string // of the scraped engine, "" unknown
}

// passDrops are counts of a bus that ended.
type passDrops []fpmbus.Drop

// passMoment is what the sources had brought at a time.
type passMoment struct {
	at      time.Time
	sources map[string]fpm.SourceStatus
	drops   map[string]int64 // unreadable, by source
}

// passRank is what is known of a rank beside its stream.
type passRank struct {
	source   string
	instance string // of the scraped engine, "" unknown
	name     string // of the engine, "" unknown
	id       string // namespace/component/worker
	role     fpm.Role
	series   *rankSeries
}

// passEvery is how often the streams are judged: a blind source is told within 30 s.
const passEvery = 5 * time.Second

// newPassPart is one without sources and store.
func newPassPart(cfg config.ForwardPasses, metrics metricsSource, nameOf func(...string) string, plan passPlanner, log *slog.Logger) *passPart {
	return &passPart{
		log: log, metrics: metrics, nameOf: nameOf, plan: plan, cfg: cfg, opened: cfg, changes: make(chan struct{}, 1),
		track: fpm.NewTracker(fpm.Options{}), series: newPassSeries(), ranks: map[fpm.Key]*passRank{}, pools: newPoolNames(cfg.Pools),
		watches: map[string]*fpm.QueueWatch{}, differ: map[string]string{}, verdicts: map[string]fpm.Verdict{}, told: map[string]fpm.Flow{}, firing: map[string]bool{},
	}
}

// openPasses opens the sources. Nothing is received before run.
func openPasses(cfg *config.Config, flags FPMOptions, events *eventstore.Store, dir string, metrics metricsSource, nameOf func(...string) string, plan passPlanner, logger *slog.Logger, reg prometheus.Registerer) (_ *passPart, err error) {
	p := newPassPart(cfg.Rollscope.ForwardPasses, metrics, nameOf, plan, logger.With("component", "passes"))
	p.flags = flags
	plan.remember(filepath.Join(dir, "rollscope"))
	f := &p.cfg
	p.store, err = passstore.New(passstore.Options{
		Events: events, Keep: passstore.Keep(f.Keep), Retention: f.RetentionTime(), State: filepath.Join(dir, "rollscope", "state", "bursts.json"),
		BurstsPerHour: f.Burst.PerHour, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	if p.now, err = openPassBus(f, flags, p, p.log); err != nil {
		return nil, fmt.Errorf("%s: %w", cmp.Or(cfg.Path, "forward passes"), err)
	}
	for _, c := range []prometheus.Collector{p.series, passCounters{p}, p.plan} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of forward passes: %w", err)
		}
	}
	return p, nil
}

// apply puts a configuration in force. New sources are opened when the old ones have ended: they may want
// the same sockets.
func (p *passPart) apply(cfg *config.Config) error {
	if err := p.plan.apply(cfg); err != nil {
		return err
	}
	f := cfg.Rollscope.ForwardPasses
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pools = newPoolNames(f.Pools)
	for _, r := range p.ranks {
		r.role = ""
	}
	if reflect.DeepEqual(placeless(p.cfg), placeless(f)) {
		p.notes = slices.DeleteFunc(p.notes, func(n api.Warning) bool { return n.Code == "passes_config" })
		return nil
	}
	p.cfg = f
	select {
	case p.changes <- struct{}{}:
	default:
	}
	return nil
}

// placeless is a section without its lines in the file and without what needs no new sockets.
func placeless(f config.ForwardPasses) config.ForwardPasses {
	f.ZMQ = slices.Clone(f.ZMQ)
	for i := range f.ZMQ {
		f.ZMQ[i].Line = 0
	}
	f.Pools = nil
	return f
}

// run receives until ctx ends.
func (p *passPart) run(ctx context.Context) error {
	p.ran = true // close comes after run, or without it
	var wg sync.WaitGroup
	wg.Go(func() { p.store.Run(ctx) })
	wg.Go(func() { p.judgeAll(ctx) })
	defer wg.Wait()
	for {
		p.mu.Lock()
		bus := p.now
		p.since = time.Now()
		p.history = nil
		if bus != nil { // a source may have been there before the configuration changed
			p.history = []passMoment{p.moment(p.since)}
		}
		p.mu.Unlock()
		busCtx, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		if bus != nil {
			go func() { ended <- bus.run(busCtx) }()
		}
		var err error
		select {
		case <-ctx.Done():
		case <-p.changes:
		case err = <-ended: // a source failed for good
			stop()
			p.log.Error("forward passes are not received any more", "err", err, "do", "correct forward_passes and reload")
			p.note("passes_ended", fmt.Sprintf("forward passes are not received any more: %v", err))
			select {
			case <-ctx.Done():
				return nil
			case <-p.changes:
			}
			bus = nil
		}
		stop()
		if bus != nil {
			if err := <-ended; err != nil && ctx.Err() == nil {
				p.log.Warn("a source of forward passes ended badly", "err", err)
			}
			p.mu.Lock()
			p.gone = append(p.gone, bus.bus.Drops()...)
			p.mu.Unlock()
		}
		if ctx.Err() != nil {
			return nil
		}
		p.reopen()
	}
}

// reopen opens the sources of the configuration in force. When that is not possible, those before it go on. A
// configuration that comes meanwhile has its own change announced, and stays the one to be opened.
func (p *passPart) reopen() {
	p.mu.Lock()
	f, before := p.cfg, p.opened
	p.notes = nil
	p.mu.Unlock()
	next, err := openPassBus(&f, p.flags, p, p.log)
	if err != nil {
		p.log.Error("the sources of forward passes were not taken over; those before go on", "err", err)
		p.mu.Lock()
		if reflect.DeepEqual(p.cfg, f) { // with the note: who applies what was before takes it back
			p.cfg = before
			p.noteLocked("passes_config", fmt.Sprintf("forward_passes was not taken over, what it was before stays in force: %v", err))
		}
		p.mu.Unlock()
		f = before
		if next, err = openPassBus(&f, p.flags, p, p.log); err != nil {
			p.log.Error("and those before could not be opened again", "err", err)
			p.note("passes_ended", fmt.Sprintf("forward passes are not received any more: %v", err))
		}
	}
	p.store.Configure(passstore.Keep(f.Keep), f.RetentionTime(), f.Burst.PerHour)
	p.mu.Lock()
	p.now, p.opened = next, f
	p.mu.Unlock()
}

func (p *passPart) note(code, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteLocked(code, message)
}

// noteLocked is note under the lock.
func (p *passPart) noteLocked(code, message string) {
	p.notes = append(p.notes, api.Warning{Code: code, Message: message, Where: "forward_passes", Hint: "see docs/fpm.md"})
}

// close gives up what was opened and never run.
func (p *passPart) close() error {
	if p.ran || p.now == nil {
		return nil
	}
	return p.now.abandon()
}

// Take implements [fpmbus.Sink].
func (p *passPart) Take(_ context.Context, batch []fpmbus.Message) error {
	p.mu.Lock()
	p.rows = p.rows[:0]
	for i := range batch {
		p.take(&batch[i])
	}
	rows := p.rows
	p.mu.Unlock()
	p.store.Write(rows) // rows are ours until the next batch: one goroutine hands them in
	return nil
}

// take takes one message.
func (p *passPart) take(m *fpmbus.Message) {
	if m.Record != fpmbus.ForwardPass {
		p.others++
		return
	}
	at := messageTime(m)
	now := at.UnixNano()
	p.dec.Positional = p.now != nil && p.now.arrays[m.Source]
	var pass fpm.Pass
	decode := p.dec.Decode
	if m.Encoding == fpmbus.JSON {
		decode = p.dec.DecodeJSON
	}
	if err := decode(m.Payload, &pass); err != nil {
		p.track.Refuse(now, m.Source, err)
		return
	}
	seen := p.track.Observe(now, originOf(m), &pass)
	if seen.Dropped || seen.Duplicate {
		return
	}
	r := p.rank(seen.Key, m.Source)
	r.series.observe(&pass, r.role)
	change := p.plan.observe(now, seen.Key, r.role, &pass, seen)
	p.rows = append(p.rows, rowOf(seen, r, now, &pass))
	f := &p.cfg.Burst
	switch {
	case change != "":
		p.burst("model_change", r.id, change, f)
	case seen.Restart:
		p.burst("restart", r.id, "the engine began anew: rank "+fmt.Sprint(seen.Key.Rank), f)
	case seen.Missing > 0:
		p.burst("gap", r.id, fmt.Sprintf("%d messages missing on rank %d", seen.Missing, seen.Key.Rank), f)
	}
}

// defaultTriggers start bursts when the configuration names none: gaps come often where a link is bad.
var defaultTriggers = []string{"restart", "model_change", "alert"}

// burst keeps what is around now, when the configuration wants it and the store allows it: what it does not
// is counted there.
func (p *passPart) burst(trigger, engine, reason string, f *config.PassBursts) {
	on := f.On
	if len(on) == 0 {
		on = defaultTriggers
	}
	if slices.Contains(on, trigger) {
		_, _ = p.store.Burst(trigger, reason, engine, burstSeconds(f))
	}
}

func burstSeconds(f *config.PassBursts) time.Duration {
	return time.Duration(cmp.Or(f.Seconds, 30)) * time.Second
}

// rank is what is known of a rank.
func (p *passPart) rank(k fpm.Key, source string) *passRank {
	r := p.ranks[k]
	if r == nil {
		r = &passRank{source: source, id: passstore.EngineOf(k)}
		p.ranks[k] = r
		p.pools.saw(k.Namespace, k.Component)
		p.resolve(k, r)
	}
	if r.role == "" {
		r.role = p.roleOf(k, r)
	}
	return r
}

// resolve joins a rank with the scraped engine and its series.
func (p *passPart) resolve(k fpm.Key, r *passRank) {
	configured := ""
	if p.now != nil {
		configured = p.now.engines[r.source]
	}
	r.instance = p.scraped.instanceOf(k.Worker, configured)
	r.name = ""
	if r.instance != "" {
		r.name = cmp.Or(p.scraped.info[r.instance].Name, p.nameOf(r.instance), r.instance)
	}
	r.role = p.roleOf(k, r)
	r.series = p.series.of(k, r.name)
}

// roleOf is the role of a rank's engine: by its component, else as its metrics tell.
func (p *passPart) roleOf(k fpm.Key, r *passRank) fpm.Role {
	if k.Component == "" {
		if role := p.scraped.roleOf(r.instance); role != "" {
			return role
		}
	}
	return p.pools.role(k.Namespace, k.Component)
}

// rowOf is a pass as it is kept.
func rowOf(seen fpm.Observation, r *passRank, now int64, p *fpm.Pass) passstore.Row {
	out := passstore.Row{
		Key: seen.Key, Engine: r.id, Name: r.name, Time: now, Counter: p.Counter, HasCounter: p.Has&fpm.HasCounter != 0,
		HasQueued: p.Has&fpm.HasQueued != 0, Missing: seen.Missing, Scheduled: p.Scheduled, Queued: p.Queued,
	}
	var ok bool
	out.Wall, ok = p.Seconds()
	for _, f := range []struct {
		on   bool
		flag passstore.Flags
	}{
		{p.Heartbeat(), passstore.Heartbeat}, {seen.Restart, passstore.Restart}, {seen.Missing > 0, passstore.Gap}, {seen.Late, passstore.Late},
		{!ok && !p.Heartbeat(), passstore.Implausible},
	} {
		if f.on {
			out.Flags |= f.flag
		}
	}
	if !ok {
		out.Wall = 0
	}
	return out
}

// messageTime is when a message was said: a file is read much faster than it was written.
func messageTime(m *fpmbus.Message) time.Time {
	if m.Kind == fpmbus.TraceFile && !m.Published.IsZero() {
		return m.Published
	}
	return m.Received
}

// originOf is where a message came from, as the tracker takes it.
func originOf(m *fpmbus.Message) fpm.Origin {
	return fpm.Origin{
		Source: m.Source, Namespace: m.Namespace, Component: m.Component,
		HasPublisher: m.HasPublisher, PublisherID: m.Publisher, Sequence: m.Sequence,
		HasHop: m.Kind == fpmbus.EngineSocket && m.HasSequence, Hop: m.Sequence,
		Sampled: m.Sampled,
	}
}
