package eventstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// century is a retention that removes nothing.
const century = 100 * 365 * 24 * time.Hour

// OpenReadOnly opens the events of a directory without ever writing there: a copy made of links, in
// Options.Scratch, is opened instead, and removed by [Store.Close]. Rows that wait in the spool are found
// too. [Store.Append] returns [ErrReadOnly]. The store needs [Store.Run] as any other does.
func OpenReadOnly(ctx context.Context, o Options) (*Store, error) {
	o.Retention, o.MaxBytes, o.MinFreeBytes, o.Fsync = century, 0, -1, false
	if err := o.defaults(); err != nil {
		return nil, err
	}
	// An absolute path, since links are followed from where they lie.
	from, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp(o.Scratch, "rollscope-events-")
	if err != nil {
		return nil, fmt.Errorf("a place for a copy of the events: %w", err)
	}
	if o.URL == "" {
		err = linkAll(ctx, from, scratch)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("a copy of the events in %s: %w", from, err), os.RemoveAll(scratch))
	}
	o.Dir = scratch
	s, err := open(o, filepath.Join(scratch, "spool"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(scratch))
	}
	first, last, _ := s.spool.bounds()
	s.nothing = o.URL == "" && !s.prior && first > last
	s.completing = make(chan struct{}, 1)
	s.readOnly, s.scratch, s.diskDir = true, scratch, filepath.Join(from, "events")
	return s, nil
}

// complete returns once the rows that waited in the spool of what was opened to be read are found too.
func (s *Store) complete(ctx context.Context) error {
	if !s.readOnly {
		return nil
	}
	select {
	case s.completing <- struct{}{}:
		defer func() { <-s.completing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.whole {
		return nil
	}
	if err := s.Flush(ctx); err != nil {
		return err
	}
	s.whole = true
	return nil
}

// linkAll copies events and spool. Somebody may write there: a file that vanishes on the way was merged
// into another, so all is begun again. The spool comes first: rows leave it once they lie in the events, so
// the other way round some could be in neither copy.
func linkAll(ctx context.Context, from, to string) error {
	const lastTry = 5 // then a part that is listed and not there is a damaged store's, which the child deals with
	for try := 0; ; try++ {
		err := linkTree(filepath.Join(from, "spool"), filepath.Join(to, "spool"), false)
		if err == nil {
			err = linkTree(filepath.Join(from, "events"), filepath.Join(to, "events"), try < lastTry)
		}
		if err == nil || try == lastTry || ctx.Err() != nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, d := range []string{"events", "spool"} {
			if err := os.RemoveAll(filepath.Join(to, d)); err != nil {
				return err
			}
		}
	}
}

// allThere checks that the parts of a list are in the copy: one that was made since the directory was read
// is not, and takes the place of others. What is no list is the store's to complain about.
func allThere(list []byte, dir string) error {
	var names []string
	if json.Unmarshal(list, &names) != nil {
		return nil
	}
	for _, n := range names {
		if _, err := os.Lstat(filepath.Join(dir, n)); err != nil {
			return err
		}
	}
	return nil
}

// linkTree makes the directories of a tree and links its files: hard, so that they stay whatever the
// writer does, or else by name. The store replaces files and never changes one, so links are safe; those
// that it replaces, and that are small, are copied. checked has lists of parts compared with what was linked.
func linkTree(from, to string, checked bool) error {
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		dst := filepath.Join(to, rel)
		switch {
		case d.IsDir() && (d.Name() == "snapshots" || strings.HasSuffix(d.Name(), ".must-remove.")):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(dst, 0o777)
		case !d.Type().IsRegular() || d.Name() == "flock.lock" || strings.Contains(d.Name(), ".tmp"):
			return nil
		case strings.HasSuffix(d.Name(), ".json"):
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if checked && d.Name() == partsFile {
				if err := allThere(b, filepath.Dir(dst)); err != nil {
					return err
				}
			}
			return os.WriteFile(dst, b, 0o666)
		}
		if err := os.Link(path, dst); err == nil || errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return os.Symlink(path, dst)
	})
	if errors.Is(err, fs.ErrNotExist) {
		if _, serr := os.Stat(from); errors.Is(serr, fs.ErrNotExist) {
			return nil // there is nothing to read
		}
	}
	return err
}
