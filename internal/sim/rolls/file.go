package rolls

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// FileOptions are the choices of [WriteFileWith].
type FileOptions struct {
	// InPlace writes at the final name from the first byte on, as torch.save does; otherwise the file
	// appears complete, by a rename.
	InPlace bool
	// Every and Pause call Pause after each so many bytes (default 1 MiB) with the bytes so far. An
	// error ends the write: in place, what was written stays, as after a job that was killed.
	Every int64
	Pause func(written int64) error
}

// WriteFile simulates a step and writes its dump, which appears complete by a rename.
func WriteFile(path string, opts Options) (Stats, error) {
	return WriteFileWith(path, opts, FileOptions{})
}

// WriteFileWith is WriteFile with choices.
func WriteFileWith(path string, opts Options, how FileOptions) (st Stats, err error) {
	if opts.Root == "" {
		opts.Root = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	var f *os.File
	if how.InPlace {
		f, err = os.Create(path)
	} else {
		f, err = os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	}
	if err != nil {
		return Stats{}, fmt.Errorf("rollout dump: %w", err)
	}
	if !how.InPlace {
		defer func() {
			if err != nil {
				err = errors.Join(err, os.Remove(f.Name()))
			}
		}()
		err = f.Chmod(0o644)
	}
	if err == nil {
		var w io.Writer = f
		if how.Pause != nil {
			w = &pacer{w: f, how: how}
		}
		st, err = Write(w, opts)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil && !how.InPlace {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return Stats{}, fmt.Errorf("write %s: %w", path, err)
	}
	return st, nil
}

type pacer struct {
	w       io.Writer
	how     FileOptions
	n, next int64
}

func (p *pacer) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.n += int64(n)
	if err != nil || p.n < p.next {
		return n, err
	}
	every := p.how.Every
	if every <= 0 {
		every = 1 << 20
	}
	p.next = p.n + every
	return n, p.how.Pause(p.n)
}
