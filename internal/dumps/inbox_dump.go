package dumps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/torchfile"
	"github.com/rollscope/rollscope/trace"
)

// States of an attempt, in order.
const (
	closing  = "closing"  // its batches make a dump
	dumped   = "dumped"   // the dump is there: the batches go, then the Receiver is told
	finished = "finished" // the Receiver took it; it is remembered for batches that come again
)

// attempt is a rollout, or a part of its uploads, that is closed. The record is changed by settle
// and reopen; it and what is below are read with mu held, or by settle.
type attempt struct {
	*attemptRecord
	uploads  map[string]*upload
	count    int  // batches
	cleaned  bool // the batches' files are gone, or another attempt's
	unwanted bool // batches that were kept are in the way
	stale    bool // the record on disk has parts that are open again
	tries    int  // that failed
	next     time.Time
	err      error // of the last one
}

// newAttempt makes an attempt of its record.
func newAttempt(rec *attemptRecord) *attempt {
	a := &attempt{attemptRecord: rec, cleaned: rec.State != closing && !rec.Kept}
	a.index()
	return a
}

// index makes uploads and count agree with the record.
func (a *attempt) index() {
	a.uploads, a.count = make(map[string]*upload, len(a.Uploads)), 0
	for i := range a.Uploads {
		rec := &a.Uploads[i]
		u := newUpload(rec.Upload, 0)
		u.last, u.final, u.lost, u.first, u.latest = rec.Last, rec.Final, rec.Lost, rec.First, rec.Latest
		for _, p := range rec.Parts {
			u.parts[p.Part], u.ids[p.BatchID] = &part{p.BatchID, p.Digest, p.Samples, p.Text, p.Payload}, p.Part
			u.samples += p.Samples
		}
		a.uploads[u.name] = u
		a.count += len(rec.Parts)
	}
}

// reopen gives the uploads of an attempt whose batches were kept back to their rollout; mu is held, or
// nobody else there. Nothing is written: when the inbox is opened, uploads of which more came are reopened.
func (b *Inbox) reopen(r *incoming, a *attempt) {
	for i := range a.Uploads {
		u := a.uploads[a.Uploads[i].Upload]
		b.began++
		u.order = b.began
		if more := r.uploads[u.name]; more != nil { // what came before a restart
			for no, p := range more.parts {
				u.parts[no], u.ids[p.id] = p, no
			}
			u.last, u.final, u.lost = max(u.last, more.last), u.final || more.final, max(u.lost, more.lost)
			u.samples += more.samples
			if more.latest.After(u.latest) {
				u.latest = more.latest
			}
		}
		r.uploads[u.name] = u
	}
	rec := *a.attemptRecord
	rec.Uploads, rec.Kept = nil, false
	a.attemptRecord = &rec
	a.cleaned, a.stale = true, true
	a.index()
}

func (a *attempt) eachPart(fn func(upload string, p *doneRecord)) {
	for i := range a.Uploads {
		u := &a.Uploads[i]
		for j := range u.Parts {
			fn(u.Upload, &u.Parts[j])
		}
	}
}

func (p *doneRecord) charge() int64 { return max(p.Payload+blockSize, p.Text) }

// due returns the uploads that make a dump now, those of each dump in the order in which they began.
func (r *incoming) due(now, opened time.Time, o *InboxOptions) (groups [][]*upload) {
	if r.storing > 0 || len(r.uploads) == 0 {
		return nil
	}
	all := slices.SortedFunc(maps.Values(r.uploads), func(x, y *upload) int {
		return cmp.Or(x.first.Compare(y.first), cmp.Compare(x.order, y.order))
	})
	quiet := func(since time.Time) time.Duration {
		if opened.After(since) {
			since = opened
		}
		return now.Sub(since)
	}
	newest := all[len(all)-1]
	var rest []*upload
	var latest time.Time
	complete, final := true, true
	for _, u := range all {
		if !u.complete() && quiet(u.latest) >= o.SettleAfter && newest.first.After(u.latest) {
			groups = append(groups, []*upload{u}) // it had broken off when another one began
			continue
		}
		rest = append(rest, u)
		if u.latest.After(latest) {
			latest = u.latest
		}
		complete, final = complete && u.complete(), final && u.final
	}
	switch {
	case complete && now.Sub(latest) >= o.Linger,
		final && quiet(latest) >= o.MissingAfter,
		quiet(latest) >= o.SettleAfter:
		groups = append(groups, rest)
	}
	return groups
}

// close makes uploads an attempt; mu is held.
func (r *incoming) close(list []*upload, now time.Time) *attempt {
	rec := &attemptRecord{State: closing, Run: r.key.run, Kind: r.key.kind, RolloutID: r.key.id, Closed: now.UTC()}
	for _, a := range r.attempts {
		rec.Attempt = max(rec.Attempt, a.Attempt+1)
	}
	for _, u := range list {
		done := uploadRecord{Upload: u.name, Last: u.last, Final: u.final, Lost: u.lost, First: u.first, Latest: u.latest}
		for _, no := range slices.Sorted(maps.Keys(u.parts)) {
			p := u.parts[no]
			done.Parts = append(done.Parts, doneRecord{no, p.id, p.digest, p.samples, p.text, p.payload})
		}
		rec.Uploads = append(rec.Uploads, done)
		rec.Samples += u.samples
		rec.Lost += u.lost
		rec.Missing += u.missing()
		rec.Kept = rec.Kept || !u.complete()
		rec.Incomplete = rec.Incomplete || !u.complete() || u.lost > 0
		delete(r.uploads, u.name)
	}
	a := newAttempt(rec)
	r.attempts = append(r.attempts, a)
	return a
}

// settle closes the rollouts whose time has come and goes on with those that are closed.
func (b *Inbox) settle(ctx context.Context) {
	b.passing.Lock()
	defer b.passing.Unlock()
	now := b.o.Now()
	b.mu.Lock()
	var work []*attempt
	for _, r := range b.rollouts {
		for _, list := range r.due(now, b.opened, &b.o) {
			r.close(list, now)
		}
		for _, a := range r.attempts {
			if a.State != finished && !now.Before(a.next) {
				work = append(work, a)
			}
		}
	}
	b.mu.Unlock()
	slices.SortFunc(work, func(x, y *attempt) int {
		return cmp.Or(cmp.Compare(x.Run, y.Run), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.RolloutID, y.RolloutID), x.Attempt-y.Attempt)
	})
	for _, a := range work {
		if ctx.Err() != nil {
			return
		}
		err := b.finish(ctx, a)
		if err == nil || ctx.Err() != nil {
			continue
		}
		pause := min(time.Second<<min(a.tries, 9), 5*time.Minute)
		b.mu.Lock()
		a.tries++
		a.err, a.next = err, now.Add(pause)
		key, number := a.key(), a.Attempt
		b.mu.Unlock()
		b.o.Logger.Error("a received rollout could not be finished", "rollout", key, "attempt", number, "again_in", pause, "err", err)
	}
	if err := b.makeRoom(now); err != nil {
		b.o.Logger.Error("batches that were kept cannot be removed", "err", err)
	}
	if err := b.forget(now); err != nil {
		b.o.Logger.Warn("cannot remove what was remembered of old rollouts", "err", err)
	}
}

// finish brings an attempt to its end, from wherever it is.
func (b *Inbox) finish(ctx context.Context, a *attempt) error {
	if a.State == closing {
		if err := b.dump(ctx, a); err != nil {
			return err
		}
	}
	if !a.cleaned && !a.Kept {
		if err := b.clean(a); err != nil {
			return err
		}
	}
	if a.Dump != "" && b.o.Receiver != nil {
		d := ReceivedDump{
			Path: filepath.Join(b.runDir(a.Run), a.Dump), Run: a.Run, Kind: a.Kind, RolloutID: a.RolloutID, Attempt: a.Attempt,
			Samples: a.Samples, Lost: a.Lost, Missing: a.Missing, Incomplete: a.Incomplete,
		}
		err := b.o.Receiver.Received(ctx, d)
		if err != nil && b.o.Now().Sub(a.Closed) < b.o.Remember {
			return fmt.Errorf("handing on %s: %w", d.Path, err)
		}
		if err != nil {
			b.drop(droppedReceiver, 1)
			b.o.Logger.Error("a dump was not taken for too long; it stays and is not offered again", "path", d.Path, "err", err)
		}
	}
	if err := b.at("received"); err != nil {
		return err
	}
	key := a.key() // once it is finished, a batch that comes may reopen it
	if err := b.advance(a, finished); err != nil {
		return err
	}
	return b.prune(key)
}

// advance writes an attempt's next state.
func (b *Inbox) advance(a *attempt, state string) error {
	rec := *a.attemptRecord
	rec.State = state
	if state == finished {
		rec.Finished = b.o.Now().UTC()
	}
	if err := b.writeAttempt(&rec); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a.attemptRecord = &rec
	a.tries, a.err, a.next = 0, nil, time.Time{}
	return nil
}

// dump writes the dump of an attempt. What was decided before a crash is done as it was decided.
func (b *Inbox) dump(ctx context.Context, a *attempt) error {
	key := a.key()
	if a.Dump == "" {
		if err := b.supersede(key); err != nil {
			return err
		}
		rec := *a.attemptRecord
		for ; ; rec.Attempt++ { // a dump that is there belongs to an attempt that is forgotten
			rec.Dump = dumpName(key, rec.Attempt)
			if _, err := os.Lstat(filepath.Join(b.runDir(key.run), rec.Dump)); errors.Is(err, fs.ErrNotExist) {
				break
			} else if err != nil {
				return err
			}
		}
		if err := b.writeAttempt(&rec); err != nil {
			return err
		}
		b.mu.Lock()
		a.attemptRecord = &rec
		b.mu.Unlock()
		b.drop(droppedMissing, int64(a.Missing))
		b.drop(droppedLost, a.Lost)
	}
	if err := b.at("closed"); err != nil {
		return err
	}
	path := filepath.Join(b.runDir(key.run), a.Dump)
	switch _, err := os.Lstat(path); {
	case err == nil: // it was written before a crash
		if err := syncDir(filepath.Dir(path)); err != nil {
			return err
		}
		return b.advance(a, dumped)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := b.verify(ctx, a); err != nil {
		return err
	}
	if a.count == 0 {
		b.mu.Lock()
		rec := *a.attemptRecord
		rec.Dump = ""
		a.attemptRecord = &rec
		b.mu.Unlock()
		return b.advance(a, dumped)
	}
	err := b.writeWhole(path, func(f io.Writer) error {
		w := torchfile.NewWriter(f, &torchfile.WriterOptions{Root: strings.TrimSuffix(a.Dump, ".pt")})
		err := trace.WriteDumpFrom(w, func(yield func(trace.Batch, error) bool) { b.read(ctx, a, yield) })
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
		return b.at("dump written")
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := b.at("dump in place"); err != nil {
		return err
	}
	return b.advance(a, dumped)
}

// supersede writes the records of attempts that were reopened, before another record has their parts.
func (b *Inbox) supersede(key rolloutKey) error {
	b.mu.Lock()
	var stale []*attempt
	for _, a := range b.rollouts[key].attempts {
		if a.stale {
			stale = append(stale, a)
		}
	}
	b.mu.Unlock()
	for _, a := range stale {
		if err := b.writeAttempt(a.attemptRecord); err != nil {
			return err
		}
		b.mu.Lock()
		a.stale = false
		b.mu.Unlock()
	}
	return b.at("superseded")
}

// makeRoom removes batches that were kept for what might come: when it is too late for that, when a
// later attempt is whole, and the oldest ones when their room is wanted.
func (b *Inbox) makeRoom(now time.Time) error {
	b.mu.Lock()
	pressed := b.pressed
	b.pressed = false
	var kept []*attempt
	for _, r := range b.rollouts {
		whole := false
		for _, a := range slices.Backward(r.attempts) {
			if a.State == finished && a.Kept {
				kept = append(kept, a)
				a.unwanted = a.unwanted || whole || now.Sub(a.Finished) >= b.o.Remember
			}
			whole = whole || a.State == finished && !a.Incomplete
		}
	}
	slices.SortFunc(kept, func(x, y *attempt) int { return x.Closed.Compare(y.Closed) })
	bytes, batches := b.waiting, b.batches
	for _, a := range kept {
		if pressed && (bytes > b.o.MaxBytes/2 || batches > b.o.MaxBatches/2) {
			a.unwanted = true
		}
		if a.unwanted {
			batches -= a.count
			a.eachPart(func(_ string, p *doneRecord) { bytes -= p.charge() })
		}
	}
	kept = slices.DeleteFunc(kept, func(a *attempt) bool { return !a.unwanted })
	b.mu.Unlock()
	for _, a := range kept {
		rec := *a.attemptRecord
		rec.Kept = false
		if err := b.writeAttempt(&rec); err != nil {
			return err
		}
		if err := b.clean(a); err != nil {
			return err
		}
		b.mu.Lock()
		a.attemptRecord = &rec
		b.mu.Unlock()
	}
	return nil
}

// read yields the batches of an attempt one after the other.
func (b *Inbox) read(ctx context.Context, a *attempt, yield func(trace.Batch, error) bool) {
	for i := range a.Uploads {
		u := &a.Uploads[i]
		for j := range u.Parts {
			batch, err := b.readBatch(a, u.Upload, &u.Parts[j])
			if err == nil {
				err = context.Cause(ctx)
			}
			if !yield(batch, err) || err != nil {
				return
			}
		}
	}
}

func (b *Inbox) readBatch(a *attempt, upload string, p *doneRecord) (trace.Batch, error) {
	path := b.partPath(a.key(), upload, p.Part)
	f, err := os.Open(path)
	if err != nil {
		return trace.Batch{}, err
	}
	defer f.Close()
	// The limits were kept when the batch was taken; they may be others now.
	limits := trace.Limits{Bytes: max(b.o.Limits.Bytes, p.Text+1<<20), LineBytes: p.Text + 1<<20, Samples: p.Samples + 1}
	batch, err := trace.DecodeBatch(io.NewSectionReader(f, blockSize, p.Payload), limits)
	if err != nil {
		return batch, fmt.Errorf("%s: %w", path, err)
	}
	return batch, nil
}

// damaged is an error of one batch's file that reading it again will not mend.
type damaged struct{ error }

func (d damaged) Unwrap() error { return d.error }

// maxTries is how often a file that cannot be read is tried before it counts as damaged.
const maxTries = 5

// verify reads all files of an attempt and sets those aside that are not what was stored. Their samples
// are missing in the dump, which says so.
func (b *Inbox) verify(ctx context.Context, a *attempt) error {
	rec := *a.attemptRecord
	rec.Uploads = make([]uploadRecord, 0, len(a.Uploads))
	var gone int64
	bad := 0
	for i := range a.Uploads {
		old := &a.Uploads[i]
		u := *old
		u.Parts = make([]doneRecord, 0, len(old.Parts))
		for _, p := range old.Parts {
			if err := ctx.Err(); err != nil {
				return err
			}
			path := b.partPath(a.key(), old.Upload, p.Part)
			err := checkPart(path, &p)
			if err == nil {
				u.Parts = append(u.Parts, p)
				continue
			}
			if !errors.As(err, &damaged{}) && a.tries < maxTries {
				return fmt.Errorf("%s: %w", path, err)
			}
			if err := b.setAside(path, err); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			bad++
			gone += p.charge()
			rec.Samples -= p.Samples
			rec.Missing++
			rec.Incomplete = true
		}
		rec.Uploads = append(rec.Uploads, u)
	}
	if bad == 0 {
		return nil
	}
	if err := b.writeAttempt(&rec); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a.attemptRecord = &rec
	a.index()
	b.waiting -= gone
	b.batches -= bad
	return nil
}

// checkPart compares a file with what was stored.
func checkPart(path string, p *doneRecord) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return damaged{err}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	rec, err := readBlock(f)
	var disk *fs.PathError
	switch {
	case errors.As(err, &disk):
		return err
	case err != nil:
		return damaged{err}
	case rec.Payload != p.Payload || rec.Digest != p.Digest:
		return damaged{errors.New("it is another batch than the one that was stored")}
	}
	sum := crc32.New(castagnoli)
	n, err := io.Copy(sum, io.NewSectionReader(f, blockSize, p.Payload))
	switch {
	case err != nil:
		return err
	case n != p.Payload:
		return damaged{fmt.Errorf("it ends after %d bytes of %d", n, p.Payload)}
	case sum.Sum32() != rec.Sum:
		return damaged{errors.New("it does not have the checksum that it should")}
	}
	return nil
}

// clean removes the batches of an attempt, which are in its dump.
func (b *Inbox) clean(a *attempt) error {
	for i := range a.Uploads {
		u := &a.Uploads[i]
		for j := range u.Parts {
			if err := os.Remove(b.partPath(a.key(), u.Upload, u.Parts[j].Part)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if err := b.at("batch removed"); err != nil {
				return err
			}
		}
		_ = os.Remove(b.uploadDir(a.key(), u.Upload)) // stays when something was set aside in it
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a.cleaned = true
	a.eachPart(func(_ string, p *doneRecord) {
		b.waiting -= p.charge()
		b.batches--
	})
	return nil
}

// prune removes the oldest dumps beyond what is to be kept. Those that the Receiver did not take yet
// stay, and so does the newest one.
func (b *Inbox) prune(key rolloutKey) error {
	type dumpFile struct {
		path string
		kind rollout.Kind
		info fs.FileInfo
	}
	if b.o.KeepDumps <= 0 && b.o.KeepBytes <= 0 {
		return nil
	}
	b.mu.Lock()
	busy := map[string]bool{}
	for _, r := range b.rollouts {
		for _, a := range r.attempts {
			if a.State != finished {
				busy[filepath.Join(b.runDir(a.Run), a.Dump)] = true
			}
		}
	}
	b.mu.Unlock()
	runs := []string{b.runDir(key.run)}
	if b.o.KeepBytes > 0 {
		entries, err := os.ReadDir(b.dir)
		if err != nil {
			return err
		}
		runs = runs[:0]
		for _, e := range entries {
			if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
				runs = append(runs, filepath.Join(b.dir, e.Name()))
			}
		}
	}
	var files []dumpFile
	for _, dir := range runs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || !strings.HasPrefix(e.Name(), "rollout_") || !strings.HasSuffix(e.Name(), ".pt") {
				continue
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			kind, _ := rollout.FromName(e.Name())
			files = append(files, dumpFile{filepath.Join(dir, e.Name()), kind, info})
		}
	}
	slices.SortFunc(files, func(x, y dumpFile) int {
		return cmp.Or(y.info.ModTime().Compare(x.info.ModTime()), strings.Compare(y.path, x.path))
	})
	type group struct {
		dir  string
		kind rollout.Kind
	}
	count := map[group]int{}
	var bytes int64
	for i, f := range files {
		g := group{filepath.Dir(f.path), f.kind}
		count[g]++
		bytes += f.info.Size()
		over := b.o.KeepDumps > 0 && count[g] > b.o.KeepDumps || b.o.KeepBytes > 0 && bytes > b.o.KeepBytes
		if i == 0 || !over || busy[f.path] {
			continue
		}
		if err := os.Remove(f.path); err != nil {
			return err
		}
		bytes -= f.info.Size()
		b.drop(droppedPruned, 1)
	}
	return nil
}

// ReceivingRollout is a rollout of which batches wait, or whose dump waits for the Receiver.
type ReceivingRollout struct {
	Run       string
	Kind      string
	RolloutID int64
	// State is "receiving", "closing" (its dump is being written) or "dumped" (the Receiver did not take it yet).
	State   string
	Uploads int
	Batches int
	Samples int   // so far
	Lost    int64 // samples, by what the senders say
	Missing int   // parts that are known of and not there
	Final   bool  // the last part of each upload is there
	First   time.Time
	Latest  time.Time     // when the newest batch came, or when the rollout was closed
	Age     time.Duration // since First
	Err     string        // why the last try to finish it failed
	Next    time.Time     // when that is tried again
}

// InboxStatus is what an inbox is doing.
type InboxStatus struct {
	Rollouts []ReceivingRollout // sorted by run, kind and number
	Batches  int                // that wait
	Bytes    int64              // of them, as MaxBytes counts
	MaxBytes int64
}

// Status tells what is being received.
func (b *Inbox) Status() InboxStatus {
	now := b.o.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	out := InboxStatus{Batches: b.batches, Bytes: b.waiting, MaxBytes: b.o.MaxBytes}
	for _, r := range b.rollouts {
		if len(r.uploads) > 0 {
			s := ReceivingRollout{Run: r.key.run, Kind: r.key.kind, RolloutID: r.key.id, State: "receiving", Uploads: len(r.uploads), Final: true}
			for _, u := range r.uploads {
				s.Batches += len(u.parts)
				s.Samples += u.samples
				s.Lost += u.lost
				s.Missing += u.missing()
				s.Final = s.Final && u.final
				if s.First.IsZero() || u.first.Before(s.First) {
					s.First = u.first
				}
				if u.latest.After(s.Latest) {
					s.Latest = u.latest
				}
			}
			s.Age = now.Sub(s.First)
			out.Rollouts = append(out.Rollouts, s)
		}
		for _, a := range r.attempts {
			if a.State == finished {
				continue
			}
			s := ReceivingRollout{
				Run: a.Run, Kind: a.Kind, RolloutID: a.RolloutID, State: a.State, Uploads: len(a.Uploads), Batches: a.count, Samples: a.Samples,
				Lost: a.Lost, Missing: a.Missing, Final: !a.Incomplete, First: a.Closed, Latest: a.Closed, Age: now.Sub(a.Closed), Next: a.next,
			}
			if a.err != nil {
				s.Err = a.err.Error()
			}
			out.Rollouts = append(out.Rollouts, s)
		}
	}
	slices.SortFunc(out.Rollouts, func(x, y ReceivingRollout) int {
		return cmp.Or(cmp.Compare(x.Run, y.Run), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.RolloutID, y.RolloutID), x.First.Compare(y.First))
	})
	return out
}
