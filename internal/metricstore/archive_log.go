package metricstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// logDirs are the parts of a data directory that are not blocks: the log of samples in order, that of
// samples out of order, and full chunks of both that are not in a block yet.
var logDirs = []string{"wal", "wbl", "chunks_head"}

// fingerprint changes whenever a file of the log does.
func fingerprint(dir string) string {
	var b strings.Builder
	for _, d := range logDirs {
		// Errors show when the log is copied.
		_ = filepath.WalkDir(filepath.Join(dir, d), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return nil
			}
			if st, err := e.Info(); err == nil {
				fmt.Fprintf(&b, "%s %d %d\n", path, st.Size(), st.ModTime().UnixNano())
			}
			return nil
		})
	}
	return b.String()
}

// replayLog copies the log into a scratch directory, cuts out of the copy what is damaged, and opens it
// as a database of its own, which holds nothing but the head.
func (a *Archive) replayLog(ctx context.Context) (_ *sharedHead, err error) {
	if first, _, err := segments(filepath.Join(a.opts.Dir, "wal")); err != nil || first < 0 {
		if _, _, err := wlog.LastCheckpoint(filepath.Join(a.opts.Dir, "wal")); err != nil {
			return nil, nil // a snapshot has blocks only
		}
	}
	scratch, err := os.MkdirTemp(a.opts.TempDir, "rollscope-archive-")
	if err != nil {
		return nil, fmt.Errorf("metricstore: making a scratch directory for the log of %s: %w", a.opts.Dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(scratch))
		}
	}()
	for try := 0; ; try++ {
		err = copyLog(ctx, a.opts.Dir, scratch)
		if err == nil {
			break
		}
		// Its writer cut the log off meanwhile: begin again with what is there now.
		if errors.Is(err, fs.ErrNotExist) && try < 5 {
			for _, d := range logDirs {
				if err := os.RemoveAll(filepath.Join(scratch, d)); err != nil {
					return nil, err
				}
			}
			continue
		}
		return nil, fmt.Errorf("metricstore: copying the log of %s to %s (set TMPDIR to a place with room): %w", a.opts.Dir, scratch, err)
	}
	for _, d := range logDirs[:2] {
		if err := a.repairLog(filepath.Join(scratch, d), d); err != nil {
			return nil, err
		}
	}
	names := newNameSet()
	o := tsdb.DefaultOptions()
	o.RetentionDuration = 0
	o.NoLockfile = true
	o.SeriesLifecycleCallback = names
	o.BlockReloadInterval = 100 * 365 * 24 * 3600 * 1e9 // never: there are no blocks, and chunks stay where they are
	var db *tsdb.DB
	err = noPanic(func() (err error) {
		db, err = tsdb.Open(scratch, a.log, nil, o, nil)
		return err
	})
	if err != nil {
		// The log is worth less than the blocks: show those.
		a.damage("log", filepath.Join(a.opts.Dir, "wal"), err.Error())
		return nil, os.RemoveAll(scratch)
	}
	db.DisableCompactions()
	return &sharedHead{DB: db, names: names, scratch: scratch}, nil
}

// copyLog copies the log's files. A file that its writer removes meanwhile is fs.ErrNotExist.
func copyLog(ctx context.Context, from, to string) error {
	for _, d := range logDirs {
		src := filepath.Join(from, d)
		err := filepath.WalkDir(src, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				if path == src && errors.Is(err, fs.ErrNotExist) {
					return filepath.SkipDir // chunks_head and wbl need not be there
				}
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			rel, err := filepath.Rel(from, path)
			if err != nil {
				return err
			}
			if e.IsDir() {
				if strings.HasSuffix(e.Name(), ".tmp") {
					return filepath.SkipDir // a checkpoint in the making
				}
				return os.MkdirAll(filepath.Join(to, rel), 0o755)
			}
			if strings.HasSuffix(e.Name(), ".tmp") {
				return nil
			}
			return copyFile(path, filepath.Join(to, rel))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies a file; long runs of zeros (chunk files are made at full size) become holes.
func copyFile(from, to string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	buf := make([]byte, 1<<16)
	var size int64
	for {
		n, err := io.ReadFull(src, buf)
		if n > 0 {
			if !zeros(buf[:n]) {
				if _, err := dst.WriteAt(buf[:n], size); err != nil {
					return err
				}
			}
			size += int64(n)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return dst.Truncate(size)
		}
		if err != nil {
			return err
		}
	}
}

func zeros(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// segments lists the numbers of the first and last segment of a log, -1 when there is none.
func segments(dir string) (first, last int, err error) {
	list, err := segmentList(dir)
	if err != nil || len(list) == 0 {
		return -1, -1, err
	}
	return list[0], list[len(list)-1], nil
}

func segmentList(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	var out []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && !e.IsDir() {
			out = append(out, n)
		}
	}
	return out, nil
}

// repairLog makes a copied log replayable: it closes gaps in the numbering, and cuts each segment off at
// the first record that is torn or damaged. A torn last record is the ordinary end of a log whose writer
// was killed or is still writing.
func (a *Archive) repairLog(dir, name string) error {
	list, err := segmentList(dir)
	if err != nil {
		return err
	}
	original := filepath.Join(a.opts.Dir, name)
	if cp, _, err := wlog.LastCheckpoint(dir); err == nil {
		inside, err := segmentList(cp)
		if err != nil {
			return err
		}
		for _, n := range inside {
			if err := a.repairSegment(cp, n, filepath.Join(original, filepath.Base(cp)), false); err != nil {
				return err
			}
		}
	}
	for i, n := range list {
		if err := a.repairSegment(dir, n, original, i == len(list)-1); err != nil {
			return err
		}
		if want := list[0] + i; n != want {
			if i > 0 && n != list[i-1]+1 {
				a.damage("log", wlog.SegmentName(original, list[i-1]+1), "the file is missing")
			}
			if err := os.Rename(wlog.SegmentName(dir, n), wlog.SegmentName(dir, want)); err != nil {
				return err
			}
		}
	}
	return nil
}

// repairSegment rewrites a segment without what comes after its first bad record.
func (a *Archive) repairSegment(dir string, n int, original string, last bool) (err error) {
	path := wlog.SegmentName(dir, n)
	good, bad := readSegment(path, func([]byte) error { return nil })
	if bad == nil {
		return nil
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	var at *wlog.CorruptionErr
	if !last || !errors.As(bad, &at) || at.Offset < st.Size() {
		a.damage("log", wlog.SegmentName(original, n), fmt.Sprintf("%v; %d records before it are kept", bad, good))
	}
	tmp := path + ".repair"
	size := (int(st.Size())*4/(32<<10) + 64) * (32 << 10) // decompressed records may take more room
	w, err := wlog.NewSize(a.log, nil, tmp, size, compression.None)
	if err != nil {
		return err
	}
	_, _ = readSegment(path, func(rec []byte) error { return w.Log(rec) })
	if err := w.Close(); err != nil {
		return err
	}
	if err := os.Rename(wlog.SegmentName(tmp, 0), path); err != nil {
		return err
	}
	return os.RemoveAll(tmp)
}

// readSegment calls f with each whole record, and returns how many there were and what ended them.
func readSegment(path string, f func([]byte) error) (records int, err error) {
	s, err := wlog.OpenReadSegment(path)
	if err != nil {
		return 0, err
	}
	sr := wlog.NewSegmentBufReader(s)
	defer func() { err = errors.Join(err, sr.Close()) }()
	r := wlog.NewReader(sr)
	for r.Next() {
		if err := f(r.Record()); err != nil {
			return records, err
		}
		records++
	}
	return records, r.Err()
}
