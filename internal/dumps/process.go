package dumps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/rollscope/rollscope/torchfile"
)

// process reads one dump's directory, and hands the dump over unless it is known.
func (w *Watcher) process(ctx context.Context, f *file) {
	w.mu.Lock()
	found, info, last := f.Found, f.info, f.last
	f.state, f.why = Working, ""
	w.mu.Unlock()
	known, isKnown := Mark{}, false
	if w.opts.Index != nil {
		known, isKnown = w.opts.Index.Known(found.Run, found.Kind, found.RolloutID)
	}
	if isKnown && known.Fingerprint != "" && known.Path == found.Path && known.Size == found.Size && known.ModTime.Equal(found.ModTime) {
		w.settled(f, known.Fingerprint, true)
		return
	}
	print, err := w.fingerprint(found.Path)
	if err == nil {
		err = w.unchanged(found.Path, info)
	}
	if err == nil && (isKnown && known.Fingerprint == print || last == print) {
		w.settled(f, print, true)
		return
	}
	if err == nil {
		found.Fingerprint = print
		if err = w.opts.Handler.Handle(ctx, found); err != nil {
			err = &handlerError{err}
		}
	}
	if err != nil && ctx.Err() != nil {
		w.mu.Lock()
		f.state = Waiting
		w.mu.Unlock()
		return
	}
	if err != nil {
		_, gone := w.opts.Stat(found.Path)
		w.mu.Lock()
		defer w.mu.Unlock()
		if errors.Is(gone, fs.ErrNotExist) {
			w.forget(f, w.opts.Now())
			return
		}
		w.fail(f, reasonOf(err), err.Error(), w.opts.Now())
		return
	}
	w.settled(f, print, false)
}

// fingerprint opens a dump, which fails while it is incomplete, and tells its content.
func (w *Watcher) fingerprint(path string) (print string, err error) {
	t, err := w.opts.Open(path)
	if err != nil {
		return "", err
	}
	defer func() {
		if e := t.Close(); err == nil {
			err = e
		}
	}()
	err = t.Guard(func() error {
		print, err = w.opts.Print(t)
		return err
	})
	return print, err
}

// errMoved is a dump that changed while it was looked at.
var errMoved = fmt.Errorf("it changed while it was read: %w", torchfile.ErrChanged)

func (w *Watcher) unchanged(path string, was fs.FileInfo) error {
	fi, err := w.opts.Stat(path)
	if err != nil {
		return err
	}
	if fi.Size() != was.Size() || !fi.ModTime().Equal(was.ModTime()) || !os.SameFile(fi, was) {
		return errMoved
	}
	return nil
}

// settled notes that a dump is done. One that changed meanwhile is seen at the next look.
func (w *Watcher) settled(f *file, print string, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.state, f.reason, f.why, f.next, f.tries = Processed, "", "", time.Time{}, 0
	f.Fingerprint, f.last, f.done = print, print, w.opts.Now()
	if known {
		f.why = "known from before"
		w.counts.Known++
		return
	}
	w.counts.Processed++
}

// fail notes why a dump cannot be processed, and when it is tried again. The lock is held.
func (w *Watcher) fail(f *file, reason Reason, why string, now time.Time) {
	first := f.tries == 0 || f.reason != reason
	if f.state != Working && f.state != Waiting && !first && now.Before(f.next) {
		return // a stat that goes on failing
	}
	f.tries++
	f.reason, f.why = reason, why
	f.state = Failed
	if reason == ReasonIncomplete || reason == ReasonEmpty || reason == ReasonChanged {
		f.state = Incomplete
	}
	wait := w.opts.Retry << min(f.tries-1, 20)
	if wait <= 0 || wait > w.opts.RetryMax {
		wait = w.opts.RetryMax
	}
	if f.next = now.Add(wait); reason == ReasonSameStep || reason == ReasonNotRegular {
		f.next = time.Time{} // trying does not help
	}
	w.counts.Failures++
	if !first {
		return
	}
	if f.state == Failed {
		w.dropped[string(reason)]++
		w.opts.Logger.Warn("a dump cannot be processed; it is tried again", "path", f.Path, "reason", string(reason), "err", why)
	} else {
		w.opts.Logger.Info("a dump is not complete", "path", f.Path, "why", why)
	}
}

// handlerError is an error of the handler.
type handlerError struct{ err error }

func (e *handlerError) Error() string { return e.err.Error() }
func (e *handlerError) Unwrap() error { return e.err }

func reasonOf(err error) Reason {
	for _, r := range []struct {
		err    error
		reason Reason
	}{
		{torchfile.ErrEmpty, ReasonEmpty}, {torchfile.ErrIncomplete, ReasonIncomplete}, {torchfile.ErrChanged, ReasonChanged},
		{torchfile.ErrNotTorch, ReasonNotTorch}, {torchfile.ErrCorrupt, ReasonCorrupt}, {torchfile.ErrUnsupported, ReasonUnsupported},
		{torchfile.ErrLimit, ReasonLimit},
	} {
		if errors.Is(err, r.err) {
			return r.reason
		}
	}
	var h *handlerError
	switch {
	case errors.As(err, &h):
		return ReasonHandler
	case errors.Is(err, fs.ErrPermission):
		return ReasonPermission
	}
	return ReasonIO
}
