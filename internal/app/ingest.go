package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/dumps"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/rolloutstore"
	"github.com/rollscope/rollscope/internal/timeline"
	"github.com/rollscope/rollscope/internal/tracker"
)

// ingest turns what was read of a dump into a step of the store, and hands its metrics to the trackers,
// once. It is used by one goroutine at a time.
type ingest struct {
	store    *rolloutstore.Store
	trackers []openTracker
	serving  func(ctx context.Context, st *rolloutstore.Summary) []tracker.Metric
	options  func(rolloutstore.ID) rollout.MetricOptions // with which a step is read; nil: none
	logger   *slog.Logger
	version  string

	// recent are the metrics of the last steps of each run and kind: a sample that was carried over
	// brings requests of steps before, which then count there.
	recent map[string][]recentStep
}

type recentStep struct {
	id      rolloutstore.ID
	metrics *rollout.Metrics
}

// A carried-over sample is followed maxRecent steps back; after a restart, when those must be read again,
// maxRecalled.
const (
	maxRecent   = 4
	maxRecalled = 2
)

// put stores a step of a run. It returns the step's id.
func (g *ingest) put(ctx context.Context, run string, st *dumps.Step) (rolloutstore.ID, error) {
	if !st.Header.RolloutID.OK {
		return rolloutstore.ID{}, fmt.Errorf("%s: neither the file nor its name says which step it is of; name it rollout_{rollout_id}.pt", st.Path)
	}
	key := run + "\x00" + st.Kind()
	older, known := g.recent[key]
	if !known && len(st.Wall.Carried) > 0 {
		older = g.recall(ctx, run, st)
	}
	before := make([]int, len(older))
	metrics := make([]*rollout.Metrics, 0, len(older)+1)
	for i, o := range older {
		metrics = append(metrics, o.metrics)
		before[i] = o.metrics.Late()
	}
	rollout.Attribute(append(metrics, st.Metrics))
	id, err := g.store.Put(g.record(run, st), containerOf(st.Columns))
	if err != nil {
		return rolloutstore.ID{}, err
	}
	for i, o := range older { // steps that got requests back
		if o.metrics.Late() != before[i] && o.id != id {
			if err := g.refresh(o); err != nil {
				g.logger.Warn("requests that were carried over could not be counted where they ran", "step", o.id, "err", err)
			}
		}
	}
	older = slices.DeleteFunc(older, func(o recentStep) bool { return o.id.RolloutID == id.RolloutID })
	older = append(older, recentStep{id, st.Metrics})
	slices.SortFunc(older, func(a, b recentStep) int { return cmp.Compare(a.id.RolloutID, b.id.RolloutID) })
	if g.recent == nil {
		g.recent = map[string][]recentStep{}
	}
	g.recent[key] = older[max(0, len(older)-maxRecent):]
	if err := g.publish(ctx, id); err != nil { // the step is read: publishRest tries again
		g.logger.Error("a step waits for the trackers, which are asked again", "step", id, "err", err)
	}
	return id, nil
}

// recall reads the steps before one again, whose dumps are still there: after a restart nobody knows yet
// where the requests of its carried-over samples ran.
func (g *ingest) recall(ctx context.Context, run string, st *dumps.Step) (out []recentStep) {
	to := st.Header.RolloutID.N - 1
	before := g.store.Steps(run, rolloutstore.Filter{Kind: []rollout.Kind{st.Header.Kind}, To: &to})
	for _, s := range before[max(0, len(before)-maxRecalled):] {
		var o rollout.MetricOptions
		if g.options != nil {
			o = g.options(s.ID)
		}
		old, err := dumps.Read(ctx, s.Dump.Path, dumps.ReadOptions{Metrics: o, NoTimeline: true})
		if err == nil && old.Fingerprint != s.Dump.Fingerprint {
			err = errors.New("it is another file now")
		}
		if err != nil {
			g.logger.Warn("requests that ran in a step before are not counted there: its dump cannot be read", "step", s.ID, "file", s.Dump.Path, "err", err)
			continue
		}
		out = append(out, recentStep{s.ID, old.Metrics})
	}
	return out
}

// containerOf is a timeline as the store takes it, nil without one.
func containerOf(c *timeline.Columns) io.WriterTo {
	if c == nil {
		return nil
	}
	return columnsWriter{c}
}

type columnsWriter struct{ *timeline.Columns }

func (c columnsWriter) WriteTo(w io.Writer) (int64, error) {
	n := &counter{w: w}
	err := c.Encode(n)
	return n.n, err
}

// counter counts what goes through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// record is what the store keeps of a step.
func (g *ingest) record(run string, st *dumps.Step) rolloutstore.Step {
	result := st.Metrics.Result()
	out := rolloutstore.Step{
		Summary: rolloutstore.Summary{
			ID:    rolloutstore.ID{Run: run, Kind: st.Header.Kind, RolloutID: st.Header.RolloutID.N},
			Dump:  rolloutstore.Dump{Path: st.Path, Size: st.Size, ModTime: st.ModTime, Fingerprint: st.Fingerprint},
			First: st.First, Last: st.Last, Analysis: g.version,
			Counts: rolloutstore.Counts{
				Samples: st.Samples, Traced: st.Traced, Carried: len(st.Wall.Carried), Status: st.Statuses, Groups: st.Groups,
				Requests: st.Requests, Events: st.Events, Skipped: st.Skipped,
			},
		},
		Compat: rolloutstore.FromRollout(result.Compat),
	}
	out.Metrics = append(rolloutstore.FromRollout(result.Perf), rolloutstore.FromRollout(result.PerfStep)...)
	out.Metrics = append(out.Metrics, wallMetrics(st.Header.Kind, st.Wall)...)
	if st.Header.Kind == rollout.Eval && st.Rewarded > 0 { // each dataset has its own; this is that of the list
		out.Metrics = append(out.Metrics, rolloutstore.Metric{Key: rewardKey(rollout.Eval), Value: st.Rewards / float64(st.Rewarded), Unit: ""})
	}
	if raw, err := json.Marshal(st.Wall); err == nil { // its numbers are finite
		out.Walltime = raw
	}
	for code, p := range st.Problems {
		out.Counts.Problems += p.Count
		out.Problems = append(out.Problems, rolloutstore.Problem{Code: code, Where: p.Where, What: p.What, Count: p.Count})
	}
	slices.SortFunc(out.Problems, func(a, b rolloutstore.Problem) int { return strings.Compare(a.Code, b.Code) })
	return out
}

// wallMetrics are the parts of a step's wall time as metrics, so that they can be drawn over the steps.
func wallMetrics(k rollout.Kind, w *timeline.WallTimeResult) []rolloutstore.Metric {
	if !w.Known {
		return []rolloutstore.Metric{{Key: wallKey(k), State: rolloutstore.Unknown, Unit: "s", Note: w.Why}}
	}
	out := []rolloutstore.Metric{{Key: wallKey(k), Value: w.Seconds, Unit: "s"}}
	for _, p := range w.Parts {
		out = append(out, rolloutstore.Metric{Key: partKey(k, p.Part), Value: p.Seconds, Unit: "s"})
	}
	tokens := rolloutstore.Metric{Key: prefixOf(k) + "aborted_tokens", Value: float64(w.Aborted.Tokens), Unit: "tokens"}
	if w.Aborted.Unknown > 0 {
		tokens.State, tokens.Note = rolloutstore.Partial, fmt.Sprintf("what became of the tokens of %d aborted requests is not known", w.Aborted.Unknown)
	}
	return append(out, tokens)
}

// refresh writes the record of a step again, with what later dumps said about it.
func (g *ingest) refresh(o recentStep) error {
	st, err := g.store.Step(o.id)
	if err != nil {
		return err
	}
	result := o.metrics.Result()
	fresh := map[string]rolloutstore.Metric{}
	for _, m := range rolloutstore.FromRollout(result.PerfStep) {
		fresh[m.Key] = m
	}
	for i, m := range st.Metrics {
		if f, ok := fresh[m.Key]; ok {
			st.Metrics[i] = f
			delete(fresh, m.Key)
		}
	}
	for _, m := range result.PerfStep { // those that were not there before, in their order
		if f, ok := fresh[m.Key]; ok {
			st.Metrics = append(st.Metrics, f)
		}
	}
	return g.store.SetMetrics(o.id, st.Metrics)
}

// publish hands a step to the trackers that the store does not know to have it. What they have already is
// not written again: a restart between the write and the store's mark costs nothing.
func (g *ingest) publish(ctx context.Context, id rolloutstore.ID) error {
	if len(g.trackers) == 0 {
		return nil
	}
	sum, err := g.store.Find(id)
	if err != nil {
		return err
	}
	missing := g.missing(&sum)
	if len(missing) == 0 {
		return nil
	}
	step, err := g.trackerStep(id)
	if err != nil {
		return err
	}
	if g.serving != nil {
		step.Metrics = append(step.Metrics, g.serving(ctx, &sum)...)
	}
	var errs []error
	for _, t := range missing {
		note := ""
		if err := t.Log(ctx, step); err != nil {
			var rejected *tracker.RejectedError
			if !errors.As(err, &rejected) {
				errs = append(errs, fmt.Errorf("step %s could not be given to %s: %w", id, t.name, err))
				continue
			}
			note = rejected.Error() // asking again would not help
			g.logger.Error("a tracker does not take all of a step", "step", id, "tracker", t.name, "err", rejected)
		}
		errs = append(errs, g.store.MarkPublished(id, t.name, note))
	}
	return errors.Join(errs...)
}

// drops are the points that the trackers refused.
func (g *ingest) drops() (out []api.Drop) {
	for _, t := range g.trackers {
		s, ok := t.Tracker.(interface{ Stats() tracker.Stats })
		if !ok {
			continue
		}
		for reason, n := range s.Stats().Rejected {
			if n > 0 {
				out = append(out, api.Drop{Source: t.name, Reason: reason, Count: n})
			}
		}
	}
	return out
}

// missing are the trackers that are not known to have a step.
func (g *ingest) missing(s *rolloutstore.Summary) []openTracker {
	return slices.DeleteFunc(slices.Clone(g.trackers), func(t openTracker) bool {
		_, done := s.PublishedTo(t.name)
		return done
	})
}

// publishRest publishes all steps of the store that a tracker lacks, each under the lock, the earlier first:
// a later attempt at a step is told by its time. left is how many remain when one fails.
func (g *ingest) publishRest(ctx context.Context, lock sync.Locker) (left int, err error) {
	var rest []rolloutstore.Summary
	for _, run := range g.store.Runs() {
		for _, s := range g.store.Steps(run.Name, rolloutstore.Filter{Attempts: true}) {
			if len(g.missing(&s)) > 0 {
				rest = append(rest, s)
			}
		}
	}
	slices.SortStableFunc(rest, func(a, b rolloutstore.Summary) int { return endOf(&a).Compare(endOf(&b)) })
	for i := range rest {
		lock.Lock()
		if err = ctx.Err(); err == nil {
			err = g.publish(ctx, rest[i].ID)
		}
		lock.Unlock()
		if err != nil {
			return len(rest) - i, err
		}
	}
	return 0, nil
}

// endOf is when a step ended; without a trace the dump's own time is the best there is.
func endOf(s *rolloutstore.Summary) time.Time {
	if s.Last.IsZero() {
		return s.Dump.ModTime
	}
	return s.Last
}

// trackerStep is a step of the store as a tracker takes it.
func (g *ingest) trackerStep(id rolloutstore.ID) (tracker.Step, error) {
	st, err := g.store.Step(id)
	if err != nil {
		return tracker.Step{}, err
	}
	return trackerStep(st), nil
}

func trackerStep(st rolloutstore.Step) tracker.Step {
	axis := tracker.AxisRollout
	if st.ID.Kind == rollout.Eval {
		axis = tracker.AxisEval
	}
	out := tracker.Step{Run: st.ID.Run, Axis: axis, Step: st.ID.RolloutID, Time: endOf(&st.Summary)}
	for _, m := range st.Metrics {
		known := m.State == rolloutstore.Value || m.State == rolloutstore.Partial
		out.Metrics = append(out.Metrics, tracker.Metric{Key: m.Key, Value: m.Value, Unknown: !known})
	}
	return out
}
