package enginelog

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// tail is one file that is followed.
type tail struct {
	src    *Source
	path   string
	file   *os.File
	info   os.FileInfo
	parser *Parser
	cur    *cursor

	offset   int64  // of the first byte that was not taken as a line
	safe     int64  // of the first byte of what the parser still holds, else offset
	buf      []byte // from there on
	size     int64  // as last seen
	skipping bool   // the rest of a line that was too long
	midLine  bool   // an unfinished line was taken already
	live     bool   // read to its end: what comes now was just written
	gone     bool   // no longer under a name that is followed
	done     bool   // a compressed file, read
	over     bool   // to be left
	changed  time.Time
	lines    int64
	last     int64
	err      string

	gz     bool
	unpack *gzip.Reader
	gzSize int64 // at which it could not be read
}

// readChunk is how much is read of one file before the next one's turn.
const readChunk = 1 << 20

// print brings the cursor's fingerprint up to the file's size.
func (t *tail) print(size int64) {
	n := int(min(size, printLength))
	if t.cur.PrintLength >= n || t.file == nil {
		return
	}
	if p := fingerprint(t.file, n); p != "" {
		t.cur.PrintLength, t.cur.Print = n, p
	}
}

// cut tells whether a file is no longer what was read of it.
func (t *tail) cut() bool {
	now := fingerprint(t.file, t.cur.PrintLength) // before its size: one that is cut meanwhile is shorter then
	fi, err := t.file.Stat()
	return err == nil && fi.Size() < t.size || now != "" && now != t.cur.Print
}

// grown opens a file anew when its path shows more than the open one: on network file systems an open
// file may not hear of it for long.
func (t *tail) grown(fi os.FileInfo) {
	if t.file == nil || t.gz || fi.Size() <= t.size || !t.live {
		return
	}
	if f, err := os.Open(t.path); err == nil {
		if now, err := f.Stat(); err == nil && os.SameFile(now, t.info) {
			t.file.Close()
			t.file = f
			return
		}
		f.Close()
	}
}

// learnFromEnd learns the zone of a file that was written earlier: its last line was written when the
// file last changed.
func (t *tail) learnFromEnd(fi os.FileInfo) {
	const look = 64 << 10
	n := min(fi.Size(), look)
	if n == 0 {
		return
	}
	b := make([]byte, n)
	if _, err := t.file.ReadAt(b, fi.Size()-n); err != nil {
		return
	}
	lines := bytes.Split(b, []byte{'\n'})
	for i := len(lines) - 1; i > 0 && i > len(lines)-200; i-- {
		in, w, _, _ := unwrapLine(lines[i])
		at := fi.ModTime().UnixNano()
		if w.time != 0 {
			at = w.time
		}
		t.parser.Learn(in, at)
		if _, ok := t.parser.Offset(); ok {
			return
		}
	}
}

// lastLineEnd is the place behind the last line end.
func lastLineEnd(f io.ReaderAt, size int64) int64 {
	b := make([]byte, 64<<10)
	for end := size; end > 0; {
		n := min(end, int64(len(b)))
		if _, err := f.ReadAt(b[:n], end-n); err != nil && !errors.Is(err, io.EOF) {
			return size
		}
		if i := bytes.LastIndexByte(b[:n], '\n'); i >= 0 {
			return end - n + int64(i) + 1
		}
		end -= n
	}
	return 0
}

// read takes what a file has got, a chunk at most. more says that there may be more at once.
func (f *Follower) read(ctx context.Context, t *tail, now time.Time) (more bool, err error) {
	if t.gz {
		return f.readGzip(ctx, t, now)
	}
	fi, err := t.file.Stat()
	if err != nil {
		t.fail(f, err)
		return false, nil
	}
	if fi.Size() != t.size || !fi.ModTime().Equal(t.info.ModTime()) {
		if err := f.replaced(ctx, t, fi, now); err != nil {
			return false, err
		}
		t.print(fi.Size())
	}
	at := t.offset + int64(len(t.buf))
	n, err := 0, error(nil)
	if at < fi.Size() {
		want := int(min(readChunk, fi.Size()-at))
		have := len(t.buf)
		if cap(t.buf)-have < want {
			t.buf = append(make([]byte, 0, have+want), t.buf...)
		}
		n, err = t.file.ReadAt(t.buf[have:have+want], at)
		t.buf = t.buf[:have+n]
		if err != nil && !errors.Is(err, io.EOF) {
			t.fail(f, err)
			return false, nil
		}
	}
	t.size, t.info, t.err = fi.Size(), fi, ""
	if n > 0 {
		t.changed = now
		if err := f.lines(ctx, t, now, func(n int) { t.offset += int64(n) }); err != nil {
			return false, err
		}
		if at+int64(n) < fi.Size() {
			return true, nil
		}
		t.live = true
		return false, nil
	}
	t.live = true
	if len(t.buf) > 0 && now.Sub(t.changed) >= f.o.Partial {
		if err := f.unfinished(ctx, t, now); err != nil {
			return false, err
		}
	}
	if t.gone {
		if now.Sub(t.changed) >= f.o.Drain {
			if err := f.unfinished(ctx, t, now); err != nil {
				return false, err
			}
			t.over = true
		}
	}
	return false, nil
}

// unfinished takes a line whose end has not come, and what the parser holds.
func (f *Follower) unfinished(ctx context.Context, t *tail, now time.Time) error {
	if len(t.buf) > 0 {
		line := t.buf
		t.buf = nil
		t.offset += int64(len(line))
		t.midLine = !t.skipping
		if !t.skipping {
			if err := f.take(ctx, t, line, Unterminated, now); err != nil {
				return err
			}
		}
	}
	if rec, ok := t.parser.Flush(); ok {
		return f.keep(ctx, t, &rec, 0, now)
	}
	return nil
}

// replaced notices that a file was cut (copytruncate) or written anew: it is shorter than what was read,
// or its begin is another. It is then read from its start; the copy of what it was is found by its begin.
func (f *Follower) replaced(ctx context.Context, t *tail, fi os.FileInfo, now time.Time) error {
	short := fi.Size() < t.offset+int64(len(t.buf))
	other := !short && t.cur.PrintLength > 0 && fi.Size() >= int64(t.cur.PrintLength) && fingerprint(t.file, t.cur.PrintLength) != t.cur.Print
	if !short && !other {
		return nil
	}
	if err := f.unfinished(ctx, t, now); err != nil {
		return err
	}
	if err := f.flush(ctx); err != nil {
		return err
	}
	if t.size > t.cur.Offset {
		f.drop(DropReplaced, 1)
	}
	if t.cur.PrintLength >= shortPrint {
		old := *t.cur
		old.taken, old.Dev, old.Ino = false, 0, 0
		f.cursors.list = append(f.cursors.list, &old)
	}
	f.log.Info("a log file was cut or replaced and is read from its start", "path", t.path, "was_read_to", t.offset)
	t.offset, t.safe, t.buf, t.skipping, t.midLine = 0, 0, t.buf[:0], false, false
	t.cur.Offset, t.cur.PrintLength, t.cur.Print = 0, 0, ""
	f.cursors.dirty = true
	return nil
}

// fail notes an error of reading and opens the file anew the next time.
func (t *tail) fail(f *Follower, err error) {
	t.err = err.Error()
	f.warn("read "+t.path, "a log file cannot be read", "path", t.path, "err", err)
	if file, e := os.Open(t.path); e == nil {
		if fi, e := file.Stat(); e == nil && os.SameFile(fi, t.info) {
			t.file.Close()
			t.file = file
			return
		}
		file.Close()
	}
	if t.gone {
		t.over = true
	}
	f.note(t)
}

// gzipWait is how long a compressed file that ends too early may still be being written.
const gzipWait = time.Minute

// readGzip reads a rotated file that was compressed, once. One that is still being written is tried again
// when it has changed, and for the last time after gzipWait.
func (f *Follower) readGzip(ctx context.Context, t *tail, now time.Time) (more bool, err error) {
	if t.done {
		if t.gone {
			t.over = true
		}
		return false, nil
	}
	if t.unpack == nil {
		fi, err := t.file.Stat()
		if err != nil || fi.Size() == t.gzSize && (fi.Size() == 0 || now.Sub(fi.ModTime()) <= gzipWait) {
			if t.gone {
				t.over = true
			}
			return false, nil
		}
		t.size, t.info = fi.Size(), fi
		if _, err := t.file.Seek(0, io.SeekStart); err != nil {
			t.fail(f, err)
			return false, nil
		}
		if t.unpack, err = gzip.NewReader(t.file); err == nil {
			_, err = io.CopyN(io.Discard, t.unpack, t.offset+int64(len(t.buf)))
		}
		if err != nil {
			return false, f.gzipEnd(ctx, t, err, now)
		}
	}
	b := make([]byte, 256<<10)
	n := 0
	for n < len(b) && err == nil {
		var k int
		k, err = t.unpack.Read(b[n:])
		n += k
	}
	t.buf = append(t.buf, b[:n]...)
	if e := f.lines(ctx, t, now, func(n int) { t.offset += int64(n) }); e != nil {
		return false, e
	}
	if err != nil {
		return false, f.gzipEnd(ctx, t, err, now)
	}
	return true, nil
}

func (f *Follower) gzipEnd(ctx context.Context, t *tail, err error, now time.Time) error {
	t.unpack = nil
	if errors.Is(err, io.EOF) && t.size > 0 {
		t.done, t.live = true, true
		return f.unfinished(ctx, t, now)
	}
	t.gzSize = t.size
	t.err = err.Error()
	if now.Sub(t.info.ModTime()) > gzipWait {
		f.drop(DropGzip, 1)
		f.warn("gz "+t.path, "a compressed log file cannot be read to its end", "path", t.path, "read", t.offset, "err", err)
		t.done = true
		return f.unfinished(ctx, t, now)
	}
	f.note(t)
	return nil
}
