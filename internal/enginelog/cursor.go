package enginelog

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// printLength is how many bytes of a file's begin its fingerprint is of.
const printLength = 1024

// shortPrint is the least begin by which a file is known again under another name and identity.
const shortPrint = 128

// cursor is how far a file was read and taken by the sink. The file cursors.json holds all of them:
//
//	{"version": 1, "files": [{"path", "dev", "ino", "print_length", "print", "offset", "done", "ahead", "seen"}]}
//
// print is FNV-1a (64 bit, hex) of the first print_length bytes, ahead what was learned of the file's
// zone in seconds, seen when the file was last there, in seconds since 1970. The file is written beside
// and renamed, so that a crash leaves the old one or the new one.
type cursor struct {
	Path        string `json:"path"`
	Dev         uint64 `json:"dev"`
	Ino         uint64 `json:"ino"`
	PrintLength int    `json:"print_length"`
	Print       string `json:"print"`
	Offset      int64  `json:"offset"` // bytes, of a compressed file of its content
	Done        bool   `json:"done"`   // of a compressed file
	Ahead       *int64 `json:"ahead,omitempty"`
	Seen        int64  `json:"seen"`
	taken       bool   // a file that is followed has it
}

type cursorFile struct {
	Version int       `json:"version"`
	Files   []*cursor `json:"files"`
}

const (
	cursorVersion = 1
	maxCursors    = 10_000
	forget        = 14 * 24 * time.Hour // of files that are gone
)

// cursors is the state directory's file.
type cursors struct {
	path  string // "" keeps nothing
	list  []*cursor
	dirty bool
	saved time.Time
}

// loadCursors reads the state. One that cannot be read is set aside and named in the error; the cursors
// are then empty and usable.
func loadCursors(dir string) (*cursors, error) {
	if dir == "" {
		return &cursors{}, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("enginelog: state directory: %w", err)
	}
	c := &cursors{path: filepath.Join(dir, "cursors.json")}
	b, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("enginelog: cursors of log files: %w", err)
	}
	var f cursorFile
	if err := json.Unmarshal(b, &f); err != nil || f.Version != cursorVersion {
		if err == nil {
			err = fmt.Errorf("version %d, this program writes %d", f.Version, cursorVersion)
		}
		aside := c.path + ".damaged"
		if e := os.Rename(c.path, aside); e != nil {
			return nil, fmt.Errorf("enginelog: %s cannot be read (%w) nor set aside: %w", c.path, err, e)
		}
		return c, fmt.Errorf("enginelog: %s cannot be read and is set aside as %s, log files are read again from their start: %w", c.path, filepath.Base(aside), err)
	}
	for _, x := range f.Files {
		if x != nil && x.Offset >= 0 && x.PrintLength >= 0 && x.PrintLength <= printLength {
			c.list = append(c.list, x)
		}
	}
	return c, nil
}

// find returns the cursor of a file: of its path and identity, else of its identity, else one that lost
// its file and was of the same begin. The file's begin must be what it was in any case.
func (c *cursors) find(path string, fi fs.FileInfo, f io.ReaderAt) *cursor {
	dev, ino := fileID(fi)
	same := func(x *cursor) bool {
		return !x.taken && x.PrintLength <= int(min(fi.Size(), printLength)) && x.Print == fingerprint(f, x.PrintLength)
	}
	for _, strict := range [...]func(x *cursor) bool{
		func(x *cursor) bool { return x.Path == path && x.Dev == dev && x.Ino == ino },
		func(x *cursor) bool { return ino != 0 && x.Dev == dev && x.Ino == ino && x.PrintLength > 0 },
		func(x *cursor) bool { return x.PrintLength > 32 && x.Path == path },
		func(x *cursor) bool { return x.PrintLength >= shortPrint && gone(x) },
	} {
		for _, x := range c.list {
			if strict(x) && same(x) {
				return x
			}
		}
	}
	return nil
}

// gone tells whether the file that x was of is no longer under its path.
func gone(x *cursor) bool {
	fi, err := os.Stat(x.Path)
	if err != nil {
		return true
	}
	dev, ino := fileID(fi)
	return dev != x.Dev || ino != x.Ino || fi.Size() < x.Offset
}

// add makes a cursor for a new file.
func (c *cursors) add(path string, fi fs.FileInfo) *cursor {
	x := &cursor{Path: path}
	x.Dev, x.Ino = fileID(fi)
	c.list = append(c.list, x)
	c.dirty = true
	return x
}

// save writes the state when it changed, at most once a second unless now.
func (c *cursors) save(now time.Time, force bool) error {
	if c.path == "" || !c.dirty || !force && now.Sub(c.saved) < time.Second {
		return nil
	}
	c.list = slices.DeleteFunc(c.list, func(x *cursor) bool {
		return !x.taken && x.Seen != 0 && now.Sub(time.Unix(x.Seen, 0)) > forget
	})
	if len(c.list) > maxCursors {
		slices.SortStableFunc(c.list, func(a, b *cursor) int { return int(b.Seen - a.Seen) })
		c.list = c.list[:maxCursors]
	}
	b, err := json.Marshal(cursorFile{cursorVersion, c.list})
	if err != nil {
		return fmt.Errorf("enginelog: cursors: %w", err)
	}
	tmp := c.path + ".tmp"
	f, err := os.Create(tmp)
	if err != nil {
		return fmt.Errorf("enginelog: cursors of log files: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp, c.path)
	}
	if err != nil {
		return fmt.Errorf("enginelog: cursors of log files: %w", err)
	}
	c.dirty, c.saved = false, now
	return nil
}

// fingerprint is the hash of a file's first n bytes, "" when they cannot be read.
func fingerprint(f io.ReaderAt, n int) string {
	if n == 0 {
		return ""
	}
	b := make([]byte, n)
	if k, err := f.ReadAt(b, 0); k < n && err != nil {
		return ""
	}
	h := fnv.New64a()
	h.Write(b)
	return fmt.Sprintf("%016x", h.Sum64())
}
