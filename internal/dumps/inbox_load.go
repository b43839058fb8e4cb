package dumps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// load reads what an earlier process left.
func (b *Inbox) load() error {
	left, err := os.ReadDir(b.temp())
	if err != nil {
		return err
	}
	for _, e := range left { // of batches that nobody was told are taken
		if err := os.Remove(filepath.Join(b.temp(), e.Name())); err != nil {
			return err
		}
	}
	runs, err := os.ReadDir(b.dir)
	if err != nil {
		return err
	}
	for _, run := range runs {
		if !run.IsDir() || strings.HasPrefix(run.Name(), ".") {
			continue
		}
		rollouts, err := os.ReadDir(filepath.Join(b.dir, run.Name()))
		if err != nil {
			return err
		}
		for _, r := range rollouts {
			if r.IsDir() {
				if err := b.loadRollout(filepath.Join(b.dir, run.Name(), r.Name())); err != nil {
					return err
				}
			}
		}
	}
	var began []*upload
	for key, r := range b.rollouts {
		slices.SortFunc(r.attempts, func(x, y *attempt) int { return x.Attempt - y.Attempt })
		for _, u := range r.uploads {
			began = append(began, u)
			for _, p := range u.parts {
				b.waiting += p.charge()
				b.batches++
			}
		}
		for _, a := range r.attempts {
			if !a.cleaned {
				a.eachPart(func(_ string, p *doneRecord) {
					b.waiting += p.charge()
					b.batches++
				})
			}
			if a.State != finished {
				b.o.Logger.Info("a rollout that was closed before the restart is continued", "rollout", key, "attempt", a.Attempt, "state", a.State)
			}
		}
		for _, a := range r.attempts {
			if a.State == finished && a.Kept && slices.ContainsFunc(a.Uploads, func(u uploadRecord) bool { return r.uploads[u.Upload] != nil }) {
				b.reopen(r, a)
			}
		}
		b.tidy(r)
	}
	slices.SortFunc(began, func(x, y *upload) int {
		if c := x.first.Compare(y.first); c != 0 {
			return c
		}
		return strings.Compare(x.name, y.name)
	})
	for _, u := range began {
		b.began++
		u.order = b.began
	}
	return nil
}

// loadRollout reads the directory of a rollout: first what was closed, then the batches.
func (b *Inbox) loadRollout(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() || !strings.HasPrefix(e.Name(), "attempt-") || !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		rec, err := readAttempt(path)
		if err == nil && path != b.attemptPath(rec.key(), rec.Attempt) {
			err = fmt.Errorf("it is of %s, attempt %d", rec.key(), rec.Attempt)
		}
		if err != nil {
			if err := b.setAside(path, err); err != nil {
				return err
			}
			continue
		}
		r := b.rollout(rec.key())
		r.attempts = append(r.attempts, newAttempt(rec))
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), uploadPrefix) {
			continue
		}
		if err := b.loadUpload(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// rollout returns what is known of a rollout, made when that is nothing; mu is held, or nobody else there.
func (b *Inbox) rollout(key rolloutKey) *incoming {
	r := b.rollouts[key]
	if r == nil {
		r = &incoming{key: key, uploads: map[string]*upload{}}
		b.rollouts[key] = r
	}
	return r
}

func (b *Inbox) loadUpload(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	left := false
	for _, e := range entries {
		if e.IsDir() || !strings.HasPrefix(e.Name(), partPrefix) || !strings.HasSuffix(e.Name(), partSuffix) {
			left = true
			continue
		}
		path := filepath.Join(dir, e.Name())
		rec, err := readPart(path)
		if err == nil && path != b.partPath(rec.key(), rec.Upload, rec.Part) {
			err = fmt.Errorf("it is part %d of upload %.40q of %s", rec.Part, rec.Upload, rec.key())
		}
		if err != nil {
			left = true
			if err := b.setAside(path, err); err != nil {
				return err
			}
			continue
		}
		r := b.rollout(rec.key())
		if a := r.closedWith(rec); a != nil {
			if !a.cleaned {
				left = true
			} else if err := os.Remove(path); err != nil { // its dump is there
				return err
			}
			continue
		}
		left = true
		if rec.Received.After(b.opened) { // the clock was set back since
			rec.Received = b.opened
		}
		r.upload(rec.Upload, 0).add(rec)
	}
	if !left {
		return os.Remove(dir)
	}
	return nil
}

// closedWith returns the attempt that a batch on disk belongs to.
func (r *incoming) closedWith(rec *partRecord) *attempt {
	for _, a := range r.attempts {
		if u := a.uploads[rec.Upload]; u != nil {
			if again, _ := u.compare(rec); again {
				return a
			}
		}
	}
	return nil
}

// readPart reads the record of a batch's file and checks its size.
func readPart(path string) (*partRecord, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rec, err := readBlock(f)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if want := rec.Payload + blockSize; info.Size() != want {
		return nil, fmt.Errorf("it has %d bytes instead of %d", info.Size(), want)
	}
	return rec, nil
}

// forget removes what is remembered of rollouts that were finished long ago, or of the oldest when
// that are many batches.
func (b *Inbox) forget(now time.Time) error {
	const most = 1 << 18
	type done struct {
		r *incoming
		a *attempt
	}
	b.mu.Lock()
	var all []done
	total := 0
	for _, r := range b.rollouts {
		for _, a := range r.attempts {
			if a.State == finished && !a.Kept {
				total += a.count
				all = append(all, done{r, a})
			}
		}
	}
	b.mu.Unlock()
	slices.SortFunc(all, func(x, y done) int { return x.a.Finished.Compare(y.a.Finished) })
	var failed error
	for _, d := range all {
		if total <= most && now.Sub(d.a.Finished) < b.o.Remember {
			break
		}
		total -= d.a.count
		if err := os.Remove(b.attemptPath(d.r.key, d.a.Attempt)); err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = errors.Join(failed, err)
			continue
		}
		b.dirs.Lock()
		b.mu.Lock()
		d.r.attempts = slices.DeleteFunc(d.r.attempts, func(a *attempt) bool { return a == d.a })
		if len(d.r.attempts) == 0 && !d.r.active() {
			_ = os.Remove(b.rolloutDir(d.r.key)) // stays when something is in it
		}
		b.tidy(d.r)
		b.mu.Unlock()
		b.dirs.Unlock()
	}
	return failed
}
