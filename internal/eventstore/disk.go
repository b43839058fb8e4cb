package eventstore

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// space watches the free bytes of the disk.
type space struct {
	dir  string
	need int64
	free func(dir string) (int64, error)

	mu  sync.Mutex
	at  time.Time
	err error
}

func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// ok is nil while there is room; it is at most a quarter of a second old.
func (s *space) ok() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) > 250*time.Millisecond {
		s.lookLocked()
	}
	return s.err
}

func (s *space) look() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookLocked()
	return s.err
}

func (s *space) lookLocked() {
	s.at, s.err = time.Now(), nil
	free, err := s.free(s.dir)
	switch {
	case err != nil:
		s.err = fmt.Errorf("free space of %s: %w", s.dir, err)
	case free < s.need:
		s.err = fmt.Errorf("%s has %d MiB free, %d MiB are to stay: make room, or lower the events' retention or size", s.dir, free>>20, s.need>>20)
	}
}

// diskBytes is the size of the events on disk, at most some seconds old.
func (s *Store) diskBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sup == nil {
		return 0
	}
	if time.Since(s.diskT) > 5*time.Second {
		s.disk, s.diskT = treeBytes(s.diskDir), time.Now()
	}
	return s.disk
}

// treeBytes sums the files below a directory; what vanishes meanwhile is not counted.
func treeBytes(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

// bySize removes the oldest days while all of them are larger than they may be.
func (s *Store) bySize(ctx context.Context) {
	root := filepath.Join(s.parts.dir, "partitions")
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	var names []string
	var total int64
	sizes := map[string]int64{}
	for _, e := range entries {
		if len(e.Name()) == len("20060102") && e.IsDir() {
			names = append(names, e.Name())
			sizes[e.Name()] = treeBytes(filepath.Join(root, e.Name()))
			total += sizes[e.Name()]
		}
	}
	slices.Sort(names)
	for len(names) > 2 && total > s.opts.MaxBytes {
		day := names[0]
		c, err := s.client(ctx)
		if err == nil {
			_, err = c.post(ctx, "/internal/partition/detach?name="+url.QueryEscape(day))
		}
		if err != nil {
			s.opts.Logger.Warn("the oldest day of events cannot be removed", "day", day, "reason", err)
			return
		}
		rows := dayRows(filepath.Join(root, day))
		// A directory that is removed halfway must not be opened again.
		gone := filepath.Join(s.opts.Dir, "events-removed")
		_ = os.RemoveAll(gone)
		if err = os.Rename(filepath.Join(root, day), gone); err == nil {
			err = os.RemoveAll(gone)
		}
		if err != nil {
			s.opts.Logger.Warn("the oldest day of events cannot be removed", "day", day, "reason", err)
			return
		}
		s.drop(lostSize, rows)
		s.opts.Logger.Info("the oldest day of events was removed, for all of them are larger than they may be", "day", day, "rows", rows, "bytes", sizes[day], "max_bytes", s.opts.MaxBytes)
		total -= sizes[day]
		names = names[1:]
	}
}

func dayRows(dir string) (n int64) {
	names, _ := readParts(filepath.Join(dir, dataDir))
	for _, name := range names {
		if m, err := readMetadata(filepath.Join(dir, dataDir, name)); err == nil {
			n += m.RowsCount
		}
	}
	return n
}

func sortDrops(list []Drop) {
	slices.SortFunc(list, func(a, b Drop) int { return strings.Compare(a.Source+"\x00"+a.Reason, b.Source+"\x00"+b.Reason) })
}
