package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/dumps"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/rolloutstore"
	"github.com/rollscope/rollscope/internal/timeline"
)

// rollouts is what the API reads runs, steps and timelines from: the store's index, what the watchers
// wait for, and the trainers' curves.
type rollouts struct {
	index atomic.Pointer[rolloutIndex] // of an archive it is opened again now and then
	// watched tells the dumps of a run that are not in the index; nil when nothing is watched.
	watched func(run string) []api.Dump
	// receive takes a batch of samples; nil when nothing is received.
	receive  func(ctx context.Context, body io.Reader) (api.Received, error)
	watching func() bool

	mu   sync.Mutex
	open []openIndex // most recently used last
}

// curveSource is the trainer's curves of one run.
type curveSource interface {
	Tags() []string
	// At is a curve's value at a step; ok is false when it has none there.
	At(tag string, step int64) (v float64, ok bool)
	Dir() string
}

// openIndex is a timeline in memory.
type openIndex struct {
	id    string
	added time.Time // of the step, so that one that was replaced is read again
	ix    *timeline.Index
	bytes int64
}

// maxOpenBytes bounds the containers of the timelines that stay in memory, compressed; an index takes
// five to ten times as much.
const maxOpenBytes = 48 << 20

// rolloutIndex is what was recorded of rollouts.
type rolloutIndex struct {
	store *rolloutstore.Store
	// curves has the trainer's curves of a run; nil when none are read.
	curves func(run string) curveSource
}

// newRollouts is the face of a store and of the trainers' curves.
func newRollouts(s *rolloutstore.Store, curves func(run string) curveSource) *rollouts {
	r := &rollouts{}
	r.index.Store(&rolloutIndex{s, curves})
	return r
}

func (r *rollouts) store() *rolloutstore.Store { return r.index.Load().store }

func (r *rollouts) Watching() bool { return r.watching != nil && r.watching() }

func (r *rollouts) Runs(context.Context) ([]api.Run, error) {
	var out []api.Run
	for _, run := range r.store().Runs() {
		a := api.Run{Name: run.Name, Pattern: run.Pattern, GPUs: run.GPUs}
		steps := r.store().Steps(run.Name, rolloutstore.Filter{})
		for i := range steps {
			s := &steps[i]
			if s.ID.Kind == rollout.Eval {
				a.EvalSteps++
				continue
			}
			a.Steps++
			id := s.ID.RolloutID
			if a.FirstStep == nil {
				first := id
				a.FirstStep = &first
			}
			a.LastStep = &id
		}
		var from, to time.Time
		for i := range steps {
			if s := &steps[i]; !s.First.IsZero() {
				if from.IsZero() || s.First.Before(from) {
					from = s.First
				}
				if s.Last.After(to) {
					to = s.Last
				}
			}
		}
		a.From, a.To = stampOf(from), stampOf(to)
		keys, units := r.store().Keys(run.Name)
		for i, k := range keys {
			a.Metrics = append(a.Metrics, api.Curve{Key: k, Source: "dump", Unit: units[i], Axis: axisOf(k)})
		}
		if c := r.curvesOf(run.Name); c != nil {
			a.ScalarsDir = c.Dir()
			for _, tag := range c.Tags() {
				if !slices.Contains(keys, tag) {
					a.Metrics = append(a.Metrics, api.Curve{Key: tag, Source: "trainer", Axis: axisOf(tag)})
				}
			}
		}
		if r.watched != nil {
			a.Files = r.watched(run.Name)
		}
		out = append(out, a)
	}
	return out, nil
}

func (r *rollouts) curvesOf(run string) curveSource {
	if curves := r.index.Load().curves; curves != nil {
		return curves(run)
	}
	return nil
}

// stampOf is a time as the API writes it, nil for none.
func stampOf(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format(time.RFC3339Nano)
	return &s
}

func (r *rollouts) known(run string) error {
	if _, err := r.store().Run(run); err != nil {
		return &api.Error{Code: "not_found", Message: fmt.Sprintf("there is no run %q", run), Hint: "GET /api/rollscope/v1/rollouts lists them"}
	}
	return nil
}

// kinds reads the API's word for a kind; "" is all.
func kinds(kind string) []rollout.Kind {
	switch kind {
	case "train":
		return []rollout.Kind{rollout.Train}
	case "eval":
		return []rollout.Kind{rollout.Eval}
	}
	return nil
}

func kindWord(k rollout.Kind) string {
	if k == rollout.Eval {
		return "eval"
	}
	return "train"
}

// listKeys are the metrics that a list of steps of a kind always shows: wall time, reward, parts.
func listKeys(k rollout.Kind) []string {
	keys := []string{wallKey(k), rewardKey(k)}
	for p := range timeline.NumParts {
		keys = append(keys, partKey(k, p))
	}
	return keys
}

// prefixOf is what the metrics of a step's own requests and time stand under.
func prefixOf(k rollout.Kind) string {
	if k == rollout.Eval {
		return "eval_perf/"
	}
	return "perf_step/"
}

func wallKey(k rollout.Kind) string { return prefixOf(k) + "wall_time" }

// rewardKey is the mean reward of a training step. Of an evaluation each dataset has its own.
func rewardKey(k rollout.Kind) string {
	if k == rollout.Eval {
		return "eval_perf/reward/mean"
	}
	return "rollout/reward/mean"
}

// partKey is the metric of a part of a step's wall time, so that it can be drawn over the steps.
func partKey(k rollout.Kind, p timeline.Part) string { return prefixOf(k) + "time/" + p.String() }

func (r *rollouts) Steps(_ context.Context, run, kind string, metrics []string) ([]api.Step, error) {
	if err := r.known(run); err != nil {
		return nil, err
	}
	var out []api.Step
	for _, k := range []rollout.Kind{rollout.Train, rollout.Eval} {
		if kind == "" || kind == kindWord(k) {
			out = append(out, r.stepsOf(run, k, metrics)...)
		}
	}
	return out, nil
}

func (r *rollouts) stepsOf(run string, kind rollout.Kind, metrics []string) []api.Step {
	keys := listKeys(kind)
	c := r.store().Curves(run, rolloutstore.Filter{Kind: []rollout.Kind{kind}}, append(slices.Clone(keys), metrics...)...)
	trainer := r.curvesOf(run)
	out := make([]api.Step, len(c.Steps))
	for i := range c.Steps {
		s := r.step(&c.Steps[i])
		s.Wall, s.Reward = pointNumber(c.Points[i][0], "no sample has a trace"), pointNumber(c.Points[i][1], "no sample has a reward that is a number")
		s.Parts = parts(c.Points[i][2:len(keys)], s.Wall)
		s.Values = map[string]api.Number{}
		for k, key := range metrics {
			n := pointNumber(c.Points[i][len(keys)+k], "the step does not have it")
			if n.Value == nil && trainer != nil {
				if v, ok := trainer.At(key, c.Steps[i].ID.RolloutID); ok {
					n = number(v)
				}
			}
			s.Values[key] = n
		}
		out[i] = s
	}
	return out
}

// step is what the index knows without a record.
func (r *rollouts) step(s *rolloutstore.Summary) api.Step {
	out := api.Step{
		Run: s.ID.Run, Kind: kindWord(s.ID.Kind), ID: s.ID.RolloutID, Attempt: s.ID.Attempt, Attempts: s.ID.Attempt + 1,
		Start: stampOf(s.First), End: stampOf(s.Last), Samples: s.Counts.Samples, Requests: s.Counts.Requests,
		Statuses: s.Counts.Status, Problems: s.Counts.Problems,
	}
	if s.Container > 0 {
		out.Timeline = s.ID.String()
	}
	if info, err := os.Stat(s.Dump.Path); err == nil && info.Size() == s.Dump.Size {
		out.DumpExists = true
	}
	return out
}

func number(v float64) api.Number { return api.Number{Value: &v, State: api.StateValue} }

func pointNumber(p rolloutstore.Point, missing string) api.Number {
	switch p.State {
	case rolloutstore.Value:
		return number(p.Value)
	case rolloutstore.Partial:
		n := number(p.Value)
		n.Caveat = "of a part of the samples"
		return n
	case rolloutstore.Idle:
		return api.Number{State: api.StateIdle}
	case rolloutstore.Missing:
		return api.Number{State: api.StateUnknown, Reason: missing}
	}
	return api.Number{State: api.StateUnknown}
}

func metricNumber(m rolloutstore.Metric) api.Number {
	n := pointNumber(rolloutstore.Point{Value: m.Value, State: m.State}, "")
	if n.Value == nil {
		n.Reason = m.Note
	} else if m.Derived {
		n.Caveat = "derived"
	}
	return n
}

// parts are the points of partKey, in the order of the parts.
func parts(points []rolloutstore.Point, wall api.Number) []api.TimePart {
	if wall.Value == nil {
		return nil
	}
	var out []api.TimePart
	for p, pt := range points {
		if pt.State != rolloutstore.Value {
			continue
		}
		part := api.TimePart{Name: timeline.Part(p).String(), Seconds: pt.Value}
		if *wall.Value > 0 {
			part.Share = pt.Value / *wall.Value
		}
		out = append(out, part)
	}
	return out
}

func (r *rollouts) Step(_ context.Context, key api.StepKey) (api.StepDetail, error) {
	if err := r.known(key.Run); err != nil {
		return api.StepDetail{}, err
	}
	id := rolloutstore.ID{Run: key.Run, Kind: kinds(key.Kind)[0], RolloutID: key.ID, Attempt: key.Attempt}
	if id.Attempt < 0 {
		id.Attempt = rolloutstore.Newest
	}
	st, err := r.store().Step(id)
	switch {
	case errors.Is(err, rolloutstore.ErrNotFound):
		return api.StepDetail{}, &api.Error{Code: "not_found", Message: fmt.Sprintf("run %q has no %s step %d", key.Run, key.Kind, key.ID), Hint: "its list of steps has those that there are"}
	case err != nil:
		return api.StepDetail{}, err
	}
	d := api.StepDetail{Step: r.step(&st.Summary), Path: st.Dump.Path, Bytes: st.Dump.Size, Mark: st.Dump.Fingerprint, Counts: map[string]int{}}
	if newest, err := r.store().Find(rolloutstore.ID{Run: id.Run, Kind: id.Kind, RolloutID: id.RolloutID, Attempt: rolloutstore.Newest}); err == nil {
		d.Step.Attempts = newest.ID.Attempt + 1
	}
	d.Step.Wall = api.Number{State: api.StateUnknown, Reason: "no sample has a trace"}
	d.Step.Reward = api.Number{State: api.StateUnknown, Reason: "no sample has a reward that is a number"}
	for _, m := range st.Metrics {
		n := metricNumber(m)
		switch m.Key {
		case wallKey(id.Kind):
			d.Step.Wall = n
		case rewardKey(id.Kind):
			d.Step.Reward = n
		}
		d.Metrics = append(d.Metrics, api.StepMetric{Key: m.Key, Value: n, Unit: m.Unit, Note: m.Note})
	}
	if c := r.curvesOf(key.Run); c != nil {
		for _, tag := range c.Tags() {
			if v, ok := c.At(tag, id.RolloutID); ok && !slices.ContainsFunc(d.Metrics, func(m api.StepMetric) bool { return m.Key == tag }) {
				d.Metrics = append(d.Metrics, api.StepMetric{Key: tag, Value: number(v), Note: "the trainer's"})
			}
		}
	}
	if d.Wall, err = wallOf(st.Walltime, d.Step.Wall); err != nil {
		return api.StepDetail{}, fmt.Errorf("step %s: %w", st.ID, err)
	}
	d.Step.Parts = d.Wall.Parts
	for _, p := range st.Problems {
		d.Counts[p.Code] = p.Count
		d.Notes = append(d.Notes, api.Warning{Code: p.Code, Message: fmt.Sprintf("%s (%d times)", p.What, p.Count), Where: p.Where})
	}
	if !d.Step.DumpExists {
		d.Notes = append(d.Notes, api.Warning{Code: "dump_gone", Message: "the dump is not there any more, or is another file now: prompts and responses cannot be read", Where: st.Dump.Path})
	}
	if st.Superseded {
		d.Notes = append(d.Notes, api.Warning{Code: "superseded", Message: "the job went back to an earlier step after this one and has not come here again"})
	}
	d.Prev, d.Next = r.neighbours(id)
	return d, nil
}

// neighbours are the ids of the steps before and after, of the same run and kind.
func (r *rollouts) neighbours(id rolloutstore.ID) (prev, next *int64) {
	for _, s := range r.store().Steps(id.Run, rolloutstore.Filter{Kind: []rollout.Kind{id.Kind}}) {
		n := s.ID.RolloutID
		switch {
		case n < id.RolloutID:
			prev = &n
		case n > id.RolloutID && next == nil:
			next = &n
		}
	}
	return prev, next
}

func wallOf(raw json.RawMessage, wall api.Number) (api.StepWallTime, error) {
	out := api.StepWallTime{Wall: wall}
	if len(raw) == 0 {
		return out, nil
	}
	var w timeline.WallTimeResult
	if err := json.Unmarshal(raw, &w); err != nil {
		return out, fmt.Errorf("where its time went: %w", err)
	}
	for _, p := range w.Parts {
		out.Parts = append(out.Parts, api.TimePart{Name: p.Name, Seconds: p.Seconds, Share: p.Share})
	}
	out.AbortedTokens, out.AbortedBy = w.Aborted.Tokens, w.Aborted.Samples
	if share, ok := w.Aborted.Share(); ok {
		out.AbortedShare = &share
	}
	for _, h := range w.Held {
		out.Held = append(out.Held, api.HeldSample{Row: h.Ordinal, Sample: h.Sample, Group: h.Group, End: h.End, Over: h.Over, Because: h.Because, Seconds: h.BecauseSeconds})
	}
	return out, nil
}

func (r *rollouts) Receive(ctx context.Context, body io.Reader) (api.Received, error) {
	if r.receive == nil {
		return api.Received{}, &api.Error{Code: "not_enabled", Message: "this process takes no samples: it shows what is recorded"}
	}
	return r.receive(ctx, body)
}

func (r *rollouts) Timelines(context.Context) ([]api.TimelineInfo, error) {
	var out []api.TimelineInfo
	for _, run := range r.store().Runs() {
		for _, s := range r.store().Steps(run.Name, rolloutstore.Filter{}) {
			if s.Container > 0 {
				id := s.ID.RolloutID
				out = append(out, api.TimelineInfo{ID: s.ID.String(), Name: filepath.Base(s.Dump.Path), Run: run.Name, Kind: kindWord(s.ID.Kind), Step: &id, Samples: s.Counts.Samples})
			}
		}
	}
	return out, nil
}

func (r *rollouts) summary(id string) (rolloutstore.Summary, error) {
	gone := &api.Error{Code: "not_found", Message: fmt.Sprintf("there is no timeline %q", id), Hint: "GET /api/rollscope/v1/timelines lists them"}
	step, err := rolloutstore.ParseID(id)
	if err != nil {
		return rolloutstore.Summary{}, gone
	}
	s, err := r.store().Find(step)
	if err != nil || s.Container == 0 {
		return rolloutstore.Summary{}, gone
	}
	return s, nil
}

func (r *rollouts) Timeline(_ context.Context, id string) (*timeline.Index, error) {
	s, err := r.summary(id)
	if err != nil {
		return nil, err
	}
	key := s.ID.String()
	r.mu.Lock()
	defer r.mu.Unlock() // who asks for the same one meanwhile waits for it instead of reading it twice
	for i, o := range r.open {
		if o.id == key && o.added.Equal(s.Added) {
			r.open = append(slices.Delete(r.open, i, i+1), o)
			return o.ix, nil
		}
	}
	c, err := r.store().Container(s.ID)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(c)
	if err := errors.Join(err, c.Close()); err != nil {
		return nil, fmt.Errorf("timeline %s: %w", key, err)
	}
	columns, err := timeline.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("timeline %s: %w", key, err)
	}
	o := openIndex{id: key, added: s.Added, ix: timeline.NewIndex(columns), bytes: int64(len(data))}
	r.open = slices.DeleteFunc(r.open, func(x openIndex) bool { return x.id == key })
	total := o.bytes
	for i := len(r.open) - 1; i >= 0; i-- {
		if total += r.open[i].bytes; total > maxOpenBytes {
			r.open = slices.Delete(r.open, 0, i+1)
			break
		}
	}
	r.open = append(r.open, o)
	return o.ix, nil
}

// maxText bounds a prompt or response as sent, in bytes.
const maxText = 4 << 20

func (r *rollouts) Text(ctx context.Context, id string, row int) (api.SampleText, error) {
	s, err := r.summary(id)
	if err != nil {
		return api.SampleText{}, err
	}
	gone := &api.Error{Code: "not_found", Message: "the dump is not there any more, or is another file now: prompt and response stand in it alone", Where: s.Dump.Path}
	f, opts, err := dumps.Open(s.Dump.Path, false)
	if err != nil {
		return api.SampleText{}, gone
	}
	defer f.Close()
	if mark, err := timeline.Fingerprint(f); err != nil || mark != s.Dump.Fingerprint {
		return api.SampleText{}, gone
	}
	opts.NoTrace, opts.NoMask = true, true
	opts.Only = func(ordinal int) bool { return ordinal == row }
	var out api.SampleText
	found := false
	_, err = rollout.Read(f, opts, func(sample *rollout.Sample) error {
		if sample.Ordinal != row {
			return ctx.Err()
		}
		found = true
		prompt, response := sample.Raw.Field("prompt"), sample.Raw.Field("response")
		out.Prompt, out.Response = timeline.Text(prompt, maxText), timeline.Text(response, maxText)
		out.Cut = len(out.Prompt) >= maxText || len(out.Response) >= maxText
		out.Tokens = sample.Raw.Field("tokens").Len() > 0
		return errFound
	})
	if err != nil && !errors.Is(err, errFound) {
		return api.SampleText{}, err
	}
	if !found {
		return api.SampleText{}, &api.Error{Code: "not_found", Message: fmt.Sprintf("the dump has no sample %d", row), Where: s.Dump.Path}
	}
	return out, nil
}

// errFound ends a scan that has what it looked for.
var errFound = errors.New("found")

// axisOf names the axis of a key as the trackers declare it.
func axisOf(key string) string {
	switch {
	case strings.HasPrefix(key, "eval/"), strings.HasPrefix(key, "eval_perf/"):
		return "eval/step"
	case strings.HasPrefix(key, "train/"):
		return "train/step"
	}
	return "rollout/step"
}
