package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/dumps"
	"github.com/rollscope/rollscope/internal/metricstore"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/rolloutstore"
	"github.com/rollscope/rollscope/internal/scalars"
	"github.com/rollscope/rollscope/internal/signal"
	"github.com/rollscope/rollscope/internal/tracker"
)

// rolloutPart is everything of a recorder that is about rollouts: it watches for dumps, reads them into
// the index, follows the trainers' curves and hands each step to the trackers.
type rolloutPart struct {
	dir     string // data directory
	store   *rolloutstore.Store
	face    *rollouts
	logger  *slog.Logger
	version string
	reader  func() *metricstore.Reader
	changed func() // something new can be read
	poll    time.Duration

	requests     requestSink // nil: nobody keeps requests
	lostRequests atomic.Int64

	mu      sync.Mutex
	now     watching
	changes chan struct{} // a configuration came into force
	inbox   *dumps.Inbox

	putting sync.Mutex    // steps come from the watcher and from the inbox
	open    []openTracker // under putting
}

// watching is what one configuration watches.
type watching struct {
	rollouts []config.Rollout // with their runs' names and absolute paths
	trackers config.Trackers
	watcher  *dumps.Watcher // nil: no rollouts
	curves   map[string]*scalars.Follower
	ingest   *ingest
	syncer   *tracker.Syncer
}

// openTracker is a tracker in use. Its directory is locked: a new configuration takes it over as it is, or
// closes it before it opens another one there.
type openTracker struct {
	tracker.Tracker
	name     string // for the store's marks
	dir      string
	settings string
}

// curvePoll is how often the trainers' files are looked at.
const (
	curvePoll = 10 * time.Second
	// publishAgain is how often a tracker that did not take a step is asked again.
	publishAgain = time.Minute
)

func openRollouts(dir string, version string, logger *slog.Logger, reader func() *metricstore.Reader) (*rolloutPart, error) {
	store, err := rolloutstore.Open(filepath.Join(dir, "rollscope", "rollouts"), rolloutstore.Options{Logger: logger.With("component", "rolloutstore")})
	if err != nil {
		return nil, err
	}
	p := &rolloutPart{dir: dir, store: store, logger: logger.With("component", "rollouts"), version: version, reader: reader, changes: make(chan struct{}, 1)}
	p.face = newRollouts(store, p.curvesOf)
	p.face.watched, p.face.watching = p.files, p.isWatching
	if err := p.openInbox(); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return p, nil
}

// apply puts a configuration in force: what it names is checked here, before anything of the one before
// is given up.
func (p *rolloutPart) apply(cfg *config.Config) error {
	p.mu.Lock()
	old := p.now
	p.mu.Unlock()
	next := watching{trackers: cfg.Rollscope.Trackers, curves: map[string]*scalars.Follower{}}
	index := dumps.StoreIndex{Store: p.store, Analysis: analysisOf(p.version)}
	var patterns []dumps.Pattern
	for _, r := range cfg.Rollscope.Rollouts {
		patterns = append(patterns, dumps.Pattern{Run: r.Run, Path: r.Path})
	}
	named, err := dumps.NameRuns(patterns, index.Name, index.Taken)
	if err != nil {
		return fmt.Errorf("%s: rollscope.rollouts: %w", cfg.Path, err)
	}
	for i, r := range cfg.Rollscope.Rollouts {
		r.Run, r.Path = named[i].Run, named[i].Path
		if err := tracker.ValidateRun(r.Run); err != nil {
			return fmt.Errorf("%s: rollscope.rollouts: %w (give it a name with run:)", cfg.Path, err)
		}
		next.rollouts = append(next.rollouts, r)
		if r.Scalars == "" {
			continue
		}
		if f := old.curves[r.Run]; f != nil && slices.ContainsFunc(old.rollouts, func(o config.Rollout) bool { return o.Run == r.Run && o.Scalars == r.Scalars }) {
			next.curves[r.Run] = f // its points stay
			continue
		}
		f, err := scalars.Open(r.Scalars, scalars.Options{Logger: p.logger, Resume: p.savedCurves(r)})
		if err != nil { // what was kept may be of another version: the files are still there
			p.logger.Warn("curves that were kept cannot be used; the trainer's files are read from their start", "run", r.Run, "err", err)
			f, err = scalars.Open(r.Scalars, scalars.Options{Logger: p.logger})
		}
		if err != nil {
			return fmt.Errorf("%s: scalars of run %s: %w", cfg.Path, r.Run, err)
		}
		next.curves[r.Run] = f
	}
	next.ingest = &ingest{store: p.store, logger: p.logger, version: analysisOf(p.version), recent: map[string][]recentStep{}}
	next.ingest.options = func(id rolloutstore.ID) rollout.MetricOptions {
		return metricOptions(next.rolloutOf(id.Run), p.rolloutTime(id.Run, id.Kind, id.RolloutID))
	}
	if len(named) > 0 {
		if next.watcher, err = dumps.New(dumps.Options{Patterns: named, Handler: p, Index: index, Logger: p.logger, Interval: p.poll}); err != nil {
			return err
		}
	}
	for _, r := range next.rollouts {
		if err := p.store.PutRun(rolloutstore.Run{Name: r.Run, Pattern: r.Path, GPUs: r.GPUs}); err != nil {
			return err
		}
	}
	p.putting.Lock() // no step is on its way to a tracker that is closed here
	defer p.putting.Unlock()
	if err := p.openTrackers(&next, cfg.Path); err != nil {
		return err
	}
	if old.ingest != nil {
		next.ingest.recent = old.ingest.recent
	}
	p.mu.Lock()
	p.now = next
	p.mu.Unlock()
	select {
	case p.changes <- struct{}{}:
	default:
	}
	return nil
}

// analysisOf is the version under which steps are stored: those of another version are read again. A
// build without a version never is.
func analysisOf(version string) string { return version }

// openTrackers makes the trackers of a configuration those that are open. What is wrong with their settings
// is found before any is closed; when a directory cannot be opened, those before it are open, and applying
// the configuration before opens its own again.
func (p *rolloutPart) openTrackers(w *watching, path string) error {
	t, opts := w.trackers, tracker.Options{Strict: w.trackers.Strict, Serving: w.trackers.Serving, Logger: p.logger}
	type wanted struct {
		openTracker
		open func() (tracker.Tracker, error)
	}
	var want []wanted
	add := func(name, dir string, settings any, open func() (tracker.Tracker, error)) {
		want = append(want, wanted{openTracker{name: name, dir: filepath.Clean(dir), settings: fmt.Sprintf("%+v %t %t", settings, t.Strict, t.Serving)}, open})
	}
	if t.TensorBoard != "" {
		add("tensorboard", t.TensorBoard, nil, func() (tracker.Tracker, error) { return tracker.TensorBoard(t.TensorBoard, opts) })
	}
	if wb := t.WandB; wb != nil {
		cfg := tracker.WandBConfig{Dir: wb.Dir, Project: wb.Project, Entity: wb.Entity, Group: wb.Group, Tags: wb.Tags}
		if err := cfg.Validate(); err != nil {
			return fmt.Errorf("%s: trackers.wandb: %w", path, err)
		}
		add("wandb", wb.Dir, cfg, func() (tracker.Tracker, error) { return tracker.WandB(cfg, opts) })
		if wb.Sync {
			var err error
			if w.syncer, err = tracker.NewSyncer(tracker.SyncConfig{Dir: wb.Dir, Logger: p.logger}); err != nil {
				// Steps are kept all the same: another machine may upload them.
				p.logger.Warn("wandb sync is not started", "err", err, "do", "install the wandb client, or upload the offline runs elsewhere")
				w.syncer = nil
			}
		}
	}
	same := func(a, b openTracker) bool { return a.name == b.name && a.dir == b.dir && a.settings == b.settings }
	p.open = slices.DeleteFunc(p.open, func(o openTracker) bool {
		if slices.ContainsFunc(want, func(w wanted) bool { return same(w.openTracker, o) }) {
			return false
		}
		if err := o.Close(); err != nil {
			p.logger.Warn("a tracker of the configuration before did not close cleanly", "tracker", o.name, "err", err)
		}
		return true
	})
	for _, n := range want {
		i := slices.IndexFunc(p.open, func(o openTracker) bool { return same(n.openTracker, o) })
		if i < 0 {
			tr, err := n.open()
			if err != nil {
				return fmt.Errorf("%s: trackers.%s: %w", path, n.name, err)
			}
			n.Tracker = tr
			i, p.open = len(p.open), append(p.open, n.openTracker)
		}
		w.ingest.trackers = append(w.ingest.trackers, p.open[i])
	}
	if t.Serving {
		w.ingest.serving = p.serving
	}
	return nil
}

// rolloutOf is what the configuration says of a run; nothing of one that is posted and not named in it.
func (w *watching) rolloutOf(run string) config.Rollout {
	for _, r := range w.rollouts {
		if r.Run == run {
			return r
		}
	}
	return config.Rollout{Run: run}
}

// current is the configuration in force.
func (p *rolloutPart) current() watching {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// run watches until ctx ends; a new configuration starts it anew.
func (p *rolloutPart) run(ctx context.Context) error {
	for {
		now := p.current()
		inner, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { p.runInbox(inner) })
		if now.watcher != nil {
			wg.Go(func() {
				if err := now.watcher.Run(inner); err != nil && inner.Err() == nil {
					p.logger.Error("the watcher of dumps ended", "err", err)
				}
			})
		}
		for run, f := range now.curves {
			wg.Go(func() { p.follow(inner, run, f) })
		}
		if len(now.ingest.trackers) > 0 {
			wg.Go(func() { p.publishRest(inner, now.ingest) })
		}
		if now.syncer != nil {
			wg.Go(func() {
				t := time.NewTicker(time.Minute)
				defer t.Stop()
				now.syncer.Run(inner, t.C)
			})
		}
		select {
		case <-ctx.Done():
		case <-p.changes:
		}
		stop()
		wg.Wait()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// publishRest hands the trackers what they did not get: steps of before they were named, and those of
// which they had no room or the process ended between the index and them.
func (p *rolloutPart) publishRest(ctx context.Context, g *ingest) {
	t := time.NewTicker(publishAgain)
	defer t.Stop()
	for {
		if n, err := g.publishRest(ctx, &p.putting); err != nil && ctx.Err() == nil {
			p.logger.Error("steps wait for the trackers, which are asked again", "steps", n, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// follow polls the trainer's files at once and then every few seconds.
func (p *rolloutPart) follow(ctx context.Context, run string, f *scalars.Follower) {
	t := time.NewTicker(curvePoll)
	defer t.Stop()
	failing := false
	var kept int64
	defer func() { p.keepCurves(run, f, &kept) }()
	for n := 0; ; n++ {
		if n%6 == 5 {
			p.keepCurves(run, f, &kept)
		}
		if err := f.Poll(ctx); err != nil && ctx.Err() == nil {
			if !failing {
				p.logger.Warn("the trainer's curves cannot be read", "run", run, "err", err)
			}
			failing = true
		} else {
			failing = false
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// close ends the trackers and the index.
func (p *rolloutPart) close() error {
	p.putting.Lock()
	defer p.putting.Unlock()
	var errs []error
	for _, o := range p.open {
		errs = append(errs, o.Close())
	}
	p.open = nil
	return errors.Join(append(errs, p.store.Close())...)
}

// Handle implements [dumps.Handler]: it reads a finished dump into the index.
func (p *rolloutPart) Handle(ctx context.Context, f dumps.Found) error {
	now := p.current()
	observer := p.observer(ctx, f.Run, f.Kind, f.RolloutID)
	st, err := dumps.Read(ctx, f.Path, dumps.ReadOptions{Metrics: metricOptions(now.rolloutOf(f.Run), p.rolloutTime(f.Run, f.Kind, f.RolloutID)), Tool: p.version, Sample: observer.sample})
	if err != nil {
		return err
	}
	observer.flush()
	if !st.Header.RolloutID.OK || st.Header.RolloutID.N != f.RolloutID {
		// The file's place in the run is what its name says: what it holds may be a copy of another step.
		if st.Header.RolloutID.OK {
			st.Problems["rollout_id"] = dumps.ProblemCount{Count: 1, Where: "rollout_id", What: fmt.Sprintf("the file says rollout %d, its name %d", st.Header.RolloutID.N, f.RolloutID)}
		}
		st.Header.RolloutID = rollout.Int{N: f.RolloutID, OK: true}
	}
	p.putting.Lock()
	defer p.putting.Unlock()
	id, err := now.ingest.put(ctx, f.Run, st)
	if err != nil {
		return err
	}
	p.logger.Info("a step was read", "step", id, "samples", st.Samples, "requests", st.Requests, "file", f.Path)
	if p.changed != nil {
		p.changed()
	}
	return nil
}

func (p *rolloutPart) observer(ctx context.Context, run string, kind rollout.Kind, step int64) *dumpObserver {
	return &dumpObserver{ctx: ctx, sink: p.requests, run: run, kind: kind, step: step, logger: p.logger, lost: &p.lostRequests}
}

// metricOptions are the arguments of slime that a configuration tells.
func metricOptions(r config.Rollout, rolloutTime float64) rollout.MetricOptions {
	o := rollout.MetricOptions{
		GPUs: r.GPUs, RolloutTime: rolloutTime, RewardKey: r.RewardKey, RewardCategory: r.RewardCategory,
		SpecDecoding: r.Speculative, NSamplesPerPrompt: r.SamplesPerPrompt, LogPassrate: r.SamplesPerPrompt > 1,
	}
	for _, d := range r.Datasets {
		o.EvalDatasets = append(o.EvalDatasets, rollout.EvalDataset{Name: d.Name, Samples: d.Samples})
	}
	return o
}

// rolloutTime is what the trainer itself logged for a step, 0 when it did not (yet).
func (p *rolloutPart) rolloutTime(run string, k rollout.Kind, id int64) float64 {
	c := p.curvesOf(run)
	if c == nil || k != rollout.Train {
		return 0
	}
	if v, ok := c.At("perf/rollout_time", id); ok && v > 0 {
		return v
	}
	return 0
}

// servingSignals are what a step's summary of the engines is made of.
var servingSignals = []struct{ id, key string }{
	{"kv_usage", "kv_usage"}, {"queue_depth", "queue_depth"}, {"running", "running_requests"}, {"throughput", "throughput"}, {"gpu_memory", "gpu_memory"},
}

// serving is a step's summary of the engines that were scraped while it ran: mean and largest value of
// the fleet's signals. Without engines it is nothing.
func (p *rolloutPart) serving(ctx context.Context, st *rolloutstore.Summary) []tracker.Metric {
	if st.First.IsZero() || !st.Last.After(st.First) || p.reader == nil {
		return nil
	}
	var out []tracker.Metric
	for _, s := range servingSignals {
		res, err := p.reader().Signal(ctx, metricstore.SignalRequest{
			ID: s.id, From: st.First, To: st.Last, Step: max(time.Second, st.Last.Sub(st.First)/200), By: signal.By("fleet"),
		})
		if err != nil {
			var missing *metricstore.NotFoundError
			if !errors.As(err, &missing) {
				p.logger.Warn("a signal of the engines could not be read for a step", "signal", s.id, "err", err)
			}
			continue
		}
		sum, n, most := 0.0, 0, math.Inf(-1)
		for _, l := range res.Lines {
			for _, v := range l.Values {
				if v != nil {
					sum, n, most = sum+*v, n+1, max(most, *v)
				}
			}
		}
		if n > 0 {
			out = append(out, tracker.Metric{Key: "serving/" + s.key + "/mean", Value: sum / float64(n)}, tracker.Metric{Key: "serving/" + s.key + "/max", Value: most})
		}
	}
	return out
}

func (p *rolloutPart) isWatching() bool { return p.current().watcher != nil }

// files lists the dumps of a run that are not in the index.
func (p *rolloutPart) files(run string) []api.Dump {
	w := p.current().watcher
	if w == nil {
		return nil
	}
	var out []api.Dump
	for _, f := range w.Files() {
		if f.Run != run || f.State == dumps.Processed {
			continue
		}
		state := f.State.String()
		if f.State == dumps.Working {
			state = "processing"
		}
		out = append(out, api.Dump{Path: f.Path, State: state, Reason: f.Why, Bytes: f.Size})
	}
	for _, r := range w.Runs() {
		if r.Run == run && r.Problem != "" {
			out = append(out, api.Dump{Path: r.Path, State: "failed", Reason: r.Problem})
		}
	}
	return out
}

// drops are the dumps that could not be read, and what the followers left out.
func (p *rolloutPart) drops() []api.Drop {
	now := p.current()
	var out []api.Drop
	if now.watcher != nil {
		byReason, _ := now.watcher.Dropped()
		for reason, n := range byReason {
			out = append(out, api.Drop{Source: "dumps", Reason: reason, Count: n})
		}
	}
	total := map[string]int64{}
	for _, f := range now.curves {
		for reason, n := range f.Stats().Dropped {
			if reason != scalars.DroppedThinned && reason != scalars.DroppedSuperseded { // both are what it is for
				total[reason] += n
			}
		}
	}
	for reason, n := range total {
		out = append(out, api.Drop{Source: "scalars", Reason: reason, Count: n})
	}
	if now.ingest != nil {
		out = append(out, now.ingest.drops()...)
	}
	if n := p.lostRequests.Load(); n > 0 {
		out = append(out, api.Drop{Source: "rollouts", Reason: "requests_not_observed", Count: n})
	}
	for reason, n := range p.inbox.Dropped() {
		out = append(out, api.Drop{Source: "rollouts_in", Reason: reason, Count: n})
	}
	for reason, n := range p.store.Dropped() {
		out = append(out, api.Drop{Source: "rolloutstore", Reason: reason, Count: int64(n)})
	}
	return slices.DeleteFunc(out, func(d api.Drop) bool { return d.Count == 0 })
}

// curvesOf is the trainer's curves of a run, nil when none are followed.
func (p *rolloutPart) curvesOf(run string) curveSource {
	f := p.current().curves[run]
	if f == nil {
		return nil
	}
	return trainerCurves{f}
}

// trainerCurves is a follower as the API reads it.
type trainerCurves struct{ *scalars.Follower }

func (c trainerCurves) At(tag string, step int64) (float64, bool) {
	curve, ok := c.Curve(tag)
	if !ok {
		return 0, false
	}
	i, found := slices.BinarySearchFunc(curve.Points, step, func(p scalars.Point, s int64) int {
		switch {
		case p.Step < s:
			return -1
		case p.Step > s:
			return 1
		}
		return 0
	})
	if !found || math.IsNaN(curve.Points[i].Value) || math.IsInf(curve.Points[i].Value, 0) {
		return 0, false
	}
	return curve.Points[i].Value, true
}
