package metricstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// copier keeps a second directory up to date with a store's: closed blocks are copied whole, the log
// grows by what was appended to it since. At every moment the copy is a data directory that an archive
// opens: what replaces something is put in place before that is removed.
//
// Nothing is deleted from the copy but what a larger copied block or a newer checkpoint holds. So a copy
// survives the loss of its source, also when the program starts again on an empty one: what the old log
// holds is then made into a block first.
type copier struct {
	from, to string
	id       string // of the source directory
	log      *slog.Logger
	lock     *dirLock
	verified bool // the log's files were compared byte by byte since the start
}

// snapshotLoop copies until ctx ends, and once more then.
func (s *Store) snapshotLoop(ctx context.Context) {
	last := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "rollscope_snapshot_last_success_timestamp_seconds",
		Help: "When the data directory was last copied completely.",
	})
	if err := s.opts.Registerer.Register(last); err == nil {
		defer s.opts.Registerer.Unregister(last)
	}
	c := &copier{from: s.opts.Dir, to: s.opts.SnapshotTo, log: s.log}
	round := func(ctx context.Context) {
		if err := c.round(ctx, s.opts.Now); err != nil {
			s.notices.put(Notice{
				Code:    "snapshot_failed",
				Message: fmt.Sprintf("Copying the data directory to %s failed: %v.", c.to, err),
				Where:   c.to,
				Hint:    "It is tried again at the next interval; the data directory itself is not affected.",
			})
			s.log.Error("copying the data directory failed", "to", c.to, "err", err)
			return
		}
		s.notices.remove("snapshot_failed", c.to)
		last.Set(float64(s.opts.Now().UnixMilli()) / 1000)
	}
	tick := time.NewTicker(s.opts.SnapshotEvery)
	defer tick.Stop()
	for {
		round(ctx)
		select {
		case <-ctx.Done():
			end, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			round(end)
			cancel()
			if err := c.close(); err != nil {
				s.log.Warn("giving the copy's lock back", "err", err)
			}
			return
		case <-tick.C:
		}
	}
}

func (c *copier) close() error {
	if c.lock == nil {
		return nil
	}
	return c.lock.release()
}

// round brings the copy up to date.
func (c *copier) round(ctx context.Context, now func() time.Time) error {
	if err := c.prepare(ctx, now); err != nil {
		return err
	}
	// The log first: data that moves into a block in between is copied twice, not missed. What the log has lost
	// before it was copied stands in a checkpoint or a block that is copied after; what it loses later stays in
	// the copy until the next round.
	var kept [2]segmentRange
	for i, d := range logDirs[:2] {
		err := again(func() (err error) { kept[i], err = c.copyLog(ctx, d); return err })
		if err != nil {
			return err
		}
	}
	if err := again(func() error { return c.copyBlocks(ctx) }); err != nil {
		return err
	}
	for i, d := range logDirs[:2] {
		if err := c.trimLog(d, kept[i]); err != nil {
			return err
		}
	}
	c.verified = true
	return c.copyMeaning()
}

// copyMeaning copies what the recorder's configuration said of the series, where it has been kept.
func (c *copier) copyMeaning() error {
	b, err := os.ReadFile(MeaningFile(c.from))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	to := MeaningFile(c.to)
	if had, err := os.ReadFile(to); err == nil && bytes.Equal(had, b) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return writeWhole(to, b)
}

// MeaningFile is where a data directory has what its recorder's configuration said of engines, signals and
// boards; the app package writes and reads it, and a copy has it too.
func MeaningFile(dir string) string { return filepath.Join(dir, "rollscope", "state", "meaning.yaml") }

// again tries anew, a few times, while files go before they are copied: what has taken their place is there then.
func again(f func() error) error {
	for try := 0; ; try++ {
		if err := f(); !errors.Is(err, fs.ErrNotExist) || try == 5 {
			return err
		}
	}
}

// segmentRange are the numbers of a log's first and last segment; first is -1 when it has none.
type segmentRange struct{ first, last int }

// prepare locks the copy and makes sure that its log is this store's.
func (c *copier) prepare(ctx context.Context, now func() time.Time) error {
	if c.lock != nil {
		return nil
	}
	to, err := filepath.Abs(c.to)
	if err != nil {
		return err
	}
	c.to = to
	if within(c.to, c.from) || within(c.from, c.to) {
		return fmt.Errorf("the copy %s and the data directory %s lie in one another", c.to, c.from)
	}
	if c.id, err = storeID(c.from); err != nil {
		return err
	}
	lock, err := lockDir(c.to, now, c.log)
	if err != nil {
		return err
	}
	if err := c.adopt(ctx); err != nil {
		return errors.Join(err, lock.release())
	}
	c.lock = lock
	return nil
}

// adopt turns whatever the directory holds into a copy of this store.
func (c *copier) adopt(ctx context.Context) error {
	if err := checkFormat(filepath.Join(c.to, "rollscope", "FORMAT")); err != nil {
		return err
	}
	mark := filepath.Join(c.to, "rollscope", "state", "copy-of")
	b, err := os.ReadFile(mark)
	if err == nil && strings.TrimSpace(string(b)) == c.id {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if list, _ := segmentList(filepath.Join(c.to, "wal")); len(list) > 0 {
		if err := c.seal(ctx); err != nil {
			return fmt.Errorf("keeping what an earlier store left in %s: %w", c.to, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(mark), 0o755); err != nil {
		return err
	}
	return writeWhole(mark, []byte(c.id+"\n"))
}

// seal makes blocks of the log that an earlier store left in the copy, and removes the log.
func (c *copier) seal(ctx context.Context) error {
	a, err := OpenArchive(ctx, ArchiveOptions{Dir: c.to, Logger: c.log})
	if err != nil {
		return err
	}
	err = c.writeHead(ctx, a)
	if err := errors.Join(err, a.Close()); err != nil {
		return err
	}
	var errs []error
	for _, d := range logDirs {
		errs = append(errs, os.RemoveAll(filepath.Join(c.to, d)))
	}
	return errors.Join(errs...)
}

// writeHead compacts the archive's replayed log in its scratch directory, and copies the blocks.
func (c *copier) writeHead(ctx context.Context, a *Archive) error {
	h := a.current.Load().head
	if h == nil {
		return nil
	}
	head := h.DB.Head()
	if head.MinTime() <= head.MaxTime() {
		if err := h.CompactHead(tsdb.NewRangeHead(head, head.MinTime(), head.MaxTime())); err != nil {
			return err
		}
	}
	if err := h.CompactOOOHead(ctx); err != nil {
		return err
	}
	for _, b := range h.Blocks() {
		if err := copyTree(ctx, b.Dir(), filepath.Join(c.to, filepath.Base(b.Dir()))); err != nil {
			return err
		}
	}
	return nil
}

// storeID reads the name that a data directory is known by, and gives it one if it has none.
func storeID(dir string) (string, error) {
	path := filepath.Join(dir, "rollscope", "state", "store-id")
	b, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	id := rand.Text()
	return id, writeWhole(path, []byte(id+"\n"))
}

// copyLog appends to each copied segment what its original grew by, and copies a new checkpoint. It returns the
// segments that there were, and fs.ErrNotExist when one of them was cut off meanwhile: the checkpoint that has
// what it held may not be among what was copied.
func (c *copier) copyLog(ctx context.Context, d string) (segmentRange, error) {
	from, to := filepath.Join(c.from, d), filepath.Join(c.to, d)
	none := segmentRange{-1, -1}
	list, err := segmentList(from) // before the checkpoint, which has what is missing here
	if err != nil || len(list) == 0 {
		return none, err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return none, err
	}
	if cp, _, err := wlog.LastCheckpoint(from); err == nil {
		copied := filepath.Join(to, filepath.Base(cp))
		if _, err := os.Stat(copied); errors.Is(err, fs.ErrNotExist) {
			if err := copyTree(ctx, cp, copied); err != nil {
				return none, err
			}
		}
	}
	for _, n := range list {
		if err := ctx.Err(); err != nil {
			return none, err
		}
		if err := c.growFile(wlog.SegmentName(from, n), wlog.SegmentName(to, n)); err != nil {
			return none, err
		}
	}
	return segmentRange{list[0], list[len(list)-1]}, nil
}

// growFile appends what the original has more. A copy that is longer than the original, or differs from
// it, is of a log that was repaired: it is copied anew.
func (c *copier) growFile(from, to string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	have, err := dst.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	st, err := src.Stat()
	if err != nil {
		return err
	}
	keep := have <= st.Size()
	if keep && !c.verified {
		if keep, err = sameStart(src, dst, have); err != nil {
			return err
		}
	}
	if !keep {
		have = 0
		if err := dst.Truncate(0); err != nil {
			return err
		}
	}
	if have == st.Size() {
		return nil
	}
	if _, err := src.Seek(have, io.SeekStart); err != nil {
		return err
	}
	if _, err := dst.Seek(have, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		return err
	}
	return dst.Sync()
}

// sameStart compares the first n bytes.
func sameStart(a, b *os.File, n int64) (bool, error) {
	x, y := make([]byte, 1<<16), make([]byte, 1<<16)
	for at := int64(0); at < n; {
		k := min(int64(len(x)), n-at)
		if _, err := a.ReadAt(x[:k], at); err != nil {
			return false, err
		}
		if _, err := b.ReadAt(y[:k], at); err != nil {
			return false, err
		}
		if string(x[:k]) != string(y[:k]) {
			return false, nil
		}
		at += k
	}
	return true, nil
}

// trimLog removes what the original no longer had when it was copied: segments that a checkpoint took the place
// of, older checkpoints, and segments that a repair cut off.
func (c *copier) trimLog(d string, had segmentRange) error {
	if had.first < 0 {
		return nil
	}
	to := filepath.Join(c.to, d)
	copied, err := segmentList(to)
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range copied {
		if n < had.first || n > had.last {
			errs = append(errs, os.Remove(wlog.SegmentName(to, n)))
		}
	}
	if _, i, err := wlog.LastCheckpoint(to); err == nil {
		errs = append(errs, wlog.DeleteCheckpoints(to, i))
	}
	return errors.Join(errs...)
}

// copyBlocks copies the blocks that the copy lacks, then removes those that a copied one replaces.
func (c *copier) copyBlocks(ctx context.Context) error {
	entries, err := os.ReadDir(c.from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, err := ulid.ParseStrict(e.Name()); err != nil {
			continue
		}
		to := filepath.Join(c.to, e.Name())
		if _, err := os.Stat(to); err == nil {
			continue
		}
		if err := copyTree(ctx, filepath.Join(c.from, e.Name()), to); err != nil {
			return err // fs.ErrNotExist: compacted away meanwhile, and in a block that is not on this list
		}
	}
	return c.removeReplaced()
}

// removeReplaced removes blocks of the copy whose data a later block of the copy holds.
func (c *copier) removeReplaced() error {
	entries, err := os.ReadDir(c.to)
	if err != nil {
		return err
	}
	metas := map[ulid.ULID]tsdb.BlockMeta{}
	for _, e := range entries {
		if id, err := ulid.ParseStrict(e.Name()); err == nil {
			if m, err := readMeta(filepath.Join(c.to, e.Name())); err == nil {
				metas[id] = m
			}
		}
	}
	var errs []error
	for id, m := range metas {
		for by, larger := range metas {
			if by != id && replaces(larger, m) {
				gone := filepath.Join(c.to, id.String())
				errs = append(errs, os.Rename(gone, gone+".tmp-for-deletion"), os.RemoveAll(gone+".tmp-for-deletion"))
				break
			}
		}
	}
	return errors.Join(errs...)
}

// replaces tells whether block a was compacted from b, directly or over several levels.
func replaces(a, b tsdb.BlockMeta) bool {
	if a.Compaction.Level <= b.Compaction.Level {
		return false
	}
	from := map[ulid.ULID]bool{}
	for _, s := range a.Compaction.Sources {
		from[s] = true
	}
	for _, s := range b.Compaction.Sources {
		if !from[s] {
			return false
		}
	}
	return len(b.Compaction.Sources) > 0
}

func readMeta(dir string) (tsdb.BlockMeta, error) {
	var m tsdb.BlockMeta
	b, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, &m)
}

// copyTree copies a directory under another name first, and renames it when it is complete.
func copyTree(ctx context.Context, from, to string) error {
	tmp := to + ".tmp-for-creation"
	if strings.Contains(filepath.Base(to), "checkpoint") {
		tmp = to + wlog.CheckpointTempFileSuffix
	}
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
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
			return os.MkdirAll(filepath.Join(tmp, rel), 0o755)
		}
		return copyFile(path, filepath.Join(tmp, rel))
	})
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return os.Rename(tmp, to)
}

// SnapshotInto copies the data directory into another one once, as Options.SnapshotTo does continually.
func (s *Store) SnapshotInto(ctx context.Context, dir string) error {
	c := &copier{from: s.opts.Dir, to: dir, log: s.log}
	err := c.round(ctx, s.opts.Now)
	if err := errors.Join(err, c.close()); err != nil {
		return fmt.Errorf("metricstore: copying %s to %s: %w", s.opts.Dir, dir, err)
	}
	return nil
}
