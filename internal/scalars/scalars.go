// Package scalars follows what a trainer logs: the curves in its TensorBoard event files or its W&B run
// files, so that reward, loss, KL and entropy stand beside what we measured. Its entry point is [Open].
//
// # Following
//
// Files are polled, since network file systems tell nobody when they grow, and opened anew at each poll,
// which is when NFS looks at the server. A file is read up to its last whole record and from there at the
// next poll. New files are found, those of other runs in a directory of runs are not mixed in: the newest
// run is followed.
//
// # Runs that began again
//
// A trainer that resumes from a checkpoint opens a new file and logs steps a second time. The later
// writer wins from its first step on: when it logs a step of a tag that an earlier file already has, all
// points of that step and later ones, of every tag on the same axis, that were logged before the later
// file began are dropped and counted. Two writers at once (a rollout process and a trainer) do not hit
// each other, since what one logs after the other began stays. A session_log START (torch's purge_step)
// drops the step it names and later ones of all tags, as TensorBoard does.
//
// # Bounds
//
// A curve has at most MaxPoints points: when it has more, every second one is dropped, and the curve says
// so. Values are passed on as they are, NaN included: who makes JSON of them has to look.
package scalars

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options bound and resume a Follower.
type Options struct {
	// MaxPoints is the most points kept of a tag, 4096 when 0; MaxTags the most tags, 2000 when 0.
	MaxPoints, MaxTags int
	// Resume is what Cursor returned: the Follower goes on where that one was, points included.
	Resume []byte
	// Logger gets what is wrong with files; nothing is logged when it is nil.
	Logger *slog.Logger
}

// Point is one value of a curve.
type Point struct {
	Step  int64
	Time  time.Time
	Value float64 // may be NaN or infinite
}

// Curve is the points of a tag, ascending by step, one for each step.
type Curve struct {
	Tag string
	// Axis is the key of the steps where it is known (rollout/step), else empty.
	Axis   string
	Points []Point
	// Thinned is how many points were dropped to stay within MaxPoints; Stride says that of the oldest
	// part about every Stride-th point is left (1: all).
	Thinned int64
	Stride  int64
}

// Stats counts what a Follower met.
type Stats struct {
	Files  int
	Points int64 // taken
	// Dropped points, records or files by reason, see the Dropped constants.
	Dropped map[string]int64
}

// Reasons in Stats.Dropped.
const (
	DroppedSuperseded = "superseded"   // points that a later writer, or a session start, replaced
	DroppedCorrupt    = "corrupt"      // records that do not match their checksum
	DroppedTooLarge   = "too_large"    // records beyond the size limit
	DroppedNoAxis     = "no_axis"      // points of a row in which the declared axis is missing
	DroppedTags       = "too_many"     // points of tags beyond MaxTags
	DroppedRewritten  = "file_changed" // points of files that became shorter, read again from their start
	DroppedThinned    = "thinned"      // points dropped to stay within MaxPoints
)

// Follower reads a trainer's curves. It is safe for concurrent use.
type Follower struct {
	path string
	opts Options
	log  *slog.Logger

	mu    sync.Mutex
	store *store
	files []*source // in the order in which they were found: of one poll, the older first
	kind  string    // "", kindEvents or kindWandB
	dir   string    // the directory whose files are read
	warn  map[string]string
}

const (
	kindEvents = "tensorboard"
	kindWandB  = "wandb"
)

// source is a file being read.
type source struct {
	Name   string
	Offset int64
	// Began is the time of its first record, in seconds; Started says whether that is known.
	Began   float64
	Started bool
	// Bad says that nothing after Offset can be read.
	Bad bool
	// Defs are the axes that a W&B file declares, by key or glob.
	Defs map[string]string
	// What follows is derived from Defs: the axes, and the axis of each key met so far.
	axes     map[string]bool
	resolved map[string]string
}

// Open returns a Follower of path: a directory of event files, a W&B run file, the directory of one, or a
// directory that holds such directories. The path need not exist yet: a trainer may still be starting.
// Nothing is read before the first Poll.
func Open(path string, opts Options) (*Follower, error) {
	if path == "" {
		return nil, errors.New("scalars: the path is empty: name the trainer's TensorBoard directory or W&B run")
	}
	if opts.MaxPoints == 0 {
		opts.MaxPoints = 4096
	}
	if opts.MaxTags == 0 {
		opts.MaxTags = 2000
	}
	if opts.MaxPoints < 4 || opts.MaxTags < 1 {
		return nil, fmt.Errorf("scalars: MaxPoints %d and MaxTags %d: at least 4 and 1 are needed", opts.MaxPoints, opts.MaxTags)
	}
	f := &Follower{path: path, opts: opts, log: opts.Logger, store: newStore(opts.MaxPoints, opts.MaxTags), warn: map[string]string{}}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	f.log = f.log.With("component", "scalars")
	if opts.Resume != nil {
		if err := f.restore(opts.Resume); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Poll reads what is new. An error says that the path cannot be read at all; what is wrong with single
// files is logged once, counted, and tried again at the next Poll. A path that does not exist is no error.
func (f *Follower) Poll(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, err := f.discover()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("scalars: %w", err)
	}
	for _, path := range found {
		if err := ctx.Err(); err != nil {
			return err
		}
		i := slices.IndexFunc(f.files, func(s *source) bool { return s.Name == path })
		if i < 0 {
			i = len(f.files)
			f.files = append(f.files, &source{Name: path})
		}
		if err := f.read(ctx, i); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f.warnOnce(path, err)
		}
	}
	return nil
}

// Run polls at each tick until ctx ends.
func (f *Follower) Run(ctx context.Context, tick <-chan time.Time) {
	for {
		if err := f.Poll(ctx); err != nil && ctx.Err() == nil {
			f.mu.Lock()
			f.warnOnce(f.path, err)
			f.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

func (f *Follower) warnOnce(path string, err error) {
	if f.warn[path] == err.Error() {
		return
	}
	f.warn[path] = err.Error()
	f.log.Warn("trainer's file cannot be read on", "file", path, "error", err)
}

// maxFiles bounds the files of one run; the newest are read.
const maxFiles = 4096

func (f *Follower) read(ctx context.Context, i int) error {
	src := f.files[i]
	file, err := os.Open(src.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // rotated away between the listing and now
	}
	if err != nil {
		return err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return err
	}
	if st.Size() < src.Offset {
		// Written anew under the same name: what was read of it is void.
		f.store.forget(int32(i))
		*src = source{Name: src.Name}
	}
	if st.Size() == src.Offset || src.Bad {
		return nil
	}
	if f.kind == kindWandB {
		return f.readRun(ctx, file, src, int32(i))
	}
	return f.readEvents(ctx, file, src, int32(i))
}

// Dir returns the directory whose files are followed, empty as long as none is found.
func (f *Follower) Dir() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dir
}

// Tags returns the tags that have points, sorted.
func (f *Follower) Tags() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var tags []string
	for tag, c := range f.store.curves {
		if len(c.points) > 0 {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	return tags
}

// Curve returns a copy of a tag's points; ok is false when it has none.
func (f *Follower) Curve(tag string) (c Curve, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := f.store.curves[tag]
	if from == nil || len(from.points) == 0 {
		return Curve{}, false
	}
	c = Curve{Tag: tag, Axis: from.axis, Thinned: from.thinned, Stride: from.stride, Points: make([]Point, len(from.points))}
	for i, p := range from.points {
		c.Points[i] = Point{Step: p.step, Time: timeOf(p.wall), Value: p.value}
	}
	return c, true
}

// Stats returns the counters.
func (f *Follower) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Stats{Files: len(f.files), Points: f.store.taken, Dropped: maps.Clone(f.store.dropped)}
}

// timeOf makes a time of seconds; what no time can be is the zero Time.
func timeOf(wall float64) time.Time {
	if !(wall > 0 && wall < 1<<33) {
		return time.Time{}
	}
	sec := int64(wall)
	return time.Unix(sec, int64((wall-float64(sec))*1e9)).UTC()
}

// slimeAxes are the axes of slime's keys by prefix (wandb_utils.py); in an event file nothing says so.
var slimeAxes = []struct{ prefix, axis string }{
	{"rollout/", "rollout/step"}, {"perf/", "rollout/step"}, {"perf_step/", "rollout/step"}, {"multi_turn/", "rollout/step"},
	{"passrate/", "rollout/step"}, {"serving/", "rollout/step"}, {"eval/", "eval/step"}, {"train/", "train/step"},
}

func slimeAxis(tag string) string {
	for _, a := range slimeAxes {
		if strings.HasPrefix(tag, a.prefix) {
			return a.axis
		}
	}
	return ""
}

// Role is what a curve shows, whatever its trainer calls it.
type Role string

// The roles that a page shows first.
const (
	RoleReward   Role = "reward"
	RoleLoss     Role = "loss"
	RoleKL       Role = "kl"
	RoleEntropy  Role = "entropy"
	RoleGradNorm Role = "grad_norm"
)

// roleTags are the tags of each role by preference: slime's, verl's, and plain ones.
var roleTags = map[Role][]string{
	RoleReward:   {"rollout/raw_reward", "rollout/rewards", "rollout/reward", "critic/rewards/mean", "critic/score/mean", "train/reward", "reward"},
	RoleLoss:     {"train/loss", "train/pg_loss", "actor/pg_loss", "actor/loss", "loss"},
	RoleKL:       {"train/kl_loss", "train/ppo_kl", "train/kl", "actor/kl_loss", "actor/ppo_kl", "rollout/kl", "kl"},
	RoleEntropy:  {"train/entropy_loss", "train/entropy", "rollout/entropy", "actor/entropy", "actor/entropy_loss", "entropy"},
	RoleGradNorm: {"train/grad_norm", "actor/grad_norm", "grad_norm"},
}

// Headline returns the tag of each role that the run logs; a role without a curve is not in it.
func (f *Follower) Headline() map[Role]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[Role]string{}
	for role, tags := range roleTags {
		for _, tag := range tags {
			if c := f.store.curves[tag]; c != nil && len(c.points) > 0 {
				out[role] = tag
				break
			}
		}
	}
	return out
}
