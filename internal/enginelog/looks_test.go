package enginelog

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// looker is a Follower whose looks at its files a test makes one by one, on a clock that stands still
// between them.
type looker struct {
	t   *testing.T
	f   *Follower
	m   *memory
	now time.Time
}

func looking(t *testing.T, o FollowOptions) *looker {
	t.Helper()
	l := &looker{t: t, m: &memory{}, now: time.Now()}
	o.Sink, o.Now = l.m.take, func() time.Time { return l.now }
	f, err := NewFollower(o)
	if err != nil {
		t.Fatal(err)
	}
	l.f = f
	t.Cleanup(f.close)
	return l
}

// look evaluates the globs and reads what there is.
func (l *looker) look() {
	l.t.Helper()
	l.now = l.now.Add(l.f.o.Rescan)
	for worked := true; worked; {
		var err error
		if worked, err = l.f.round(context.Background()); err == nil {
			err = l.f.flush(context.Background())
		}
		if err != nil {
			l.t.Fatal(err)
		}
	}
}

// once checks that every line up to one came, and none twice.
func (l *looker) once(lines int) {
	l.t.Helper()
	if twice := complete(l.t, l.m.got(), lines); twice > 0 {
		l.t.Errorf("%d lines came twice", twice)
	}
	if d := l.f.Drops(); len(d) > 0 {
		l.t.Errorf("drops %v", d)
	}
}

func cutFile(t *testing.T, path string) {
	t.Helper()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
}

// TestFollowCopyLooks: copytruncate copies piece by piece, cuts, and the log goes on. Wherever looks fall,
// and wherever they do not, every line comes once.
func TestFollowCopyLooks(t *testing.T) {
	old := numbered(0, 20)
	for _, first := range []int{shortPrint - 10, len(old)} { // what was read before it all begins
		dir := t.TempDir()
		steps := []func(path string){}
		at := 0
		for _, to := range []int{0, 60, shortPrint, printLength + 1, len(old)} {
			from := at
			steps = append(steps, func(path string) { appendFile(t, path+".1", old[from:to]) })
			at = to
		}
		steps = append(steps,
			func(path string) { cutFile(t, path) },
			func(path string) { appendFile(t, path, numbered(20, 21)) },
			func(path string) { appendFile(t, path, numbered(21, 50)) }) // more than there was
		for looks := range 1 << len(steps) {
			path := filepath.Join(dir, fmt.Sprint(looks), "engine.log")
			if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if first < len(old) && looks&(1<<5-1) == 0 {
				continue // it is cut before anybody saw it grow: too little is known of it to tell its copy
			}
			l := looking(t, FollowOptions{Sources: []Source{{Path: path + "*", Zone: time.UTC}}, Partial: time.Minute})
			appendFile(t, path, old[:first])
			l.look()
			appendFile(t, path, old[first:])
			for i, step := range steps {
				step(path)
				if looks>>i&1 != 0 {
					l.look()
				}
			}
			l.look()
			l.look()
			if l.once(50); t.Failed() {
				t.Fatalf("with looks behind the steps %0*b, the first on the right", len(steps), looks)
			}
			l.f.close()
		}
	}
}

// TestFollowCopyWhileLooking: a copy is finished and its origin cut while a look at the copy goes on, which
// knows the copy's size of before.
func TestFollowCopyWhileLooking(t *testing.T) {
	old := numbered(0, 20)
	for _, size := range []int{0, 1, 60, shortPrint, 500, printLength, printLength + 1, len(old)} {
		for _, after := range []string{"", numbered(20, 21), numbered(20, 60)} {
			path := filepath.Join(t.TempDir(), "engine.log")
			l := looking(t, FollowOptions{Sources: []Source{{Path: path, Zone: time.UTC}}})
			appendFile(t, path, old)
			l.look()
			appendFile(t, path+".1", old[:size])
			file, err := os.Open(path + ".1")
			if err != nil {
				t.Fatal(err)
			}
			fi, err := file.Stat()
			if err != nil {
				t.Fatal(err)
			}
			appendFile(t, path+".1", old[size:])
			cutFile(t, path)
			appendFile(t, path, after)
			if !l.f.copying(path+".1", fi, file, l.now) {
				t.Errorf("a copy of %d bytes whose origin was cut and has %d bytes is a new log", size, len(after))
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
			other := path + ".other"
			appendFile(t, other, numbered(900, 930))
			if file, err = os.Open(other); err != nil {
				t.Fatal(err)
			}
			if fi, err = file.Stat(); err != nil {
				t.Fatal(err)
			}
			if l.f.copying(other, fi, file, l.now) {
				t.Error("another file is taken for a copy of the one that was cut")
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestFollowCopyAnew: a log that is never cut is copied again and again to the same place. A look at the
// emptied copy is no other than one at the first.
func TestFollowCopyAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engine.log")
	l := looking(t, FollowOptions{Sources: []Source{{Path: path + "*", Zone: time.UTC}}})
	appendFile(t, path, numbered(0, 20))
	l.look()
	n := 20
	for range 3 {
		appendFile(t, path+".bak", "")
		cutFile(t, path+".bak")
		l.look()
		appendFile(t, path+".bak", numbered(0, n))
		l.look()
		l.now = l.now.Add(time.Hour)
		appendFile(t, path, numbered(n, n+20))
		n += 20
		l.look()
	}
	l.once(n)
}

// TestFollowShortFile: a short file that begins as another does may be a copy that is being made. It is
// followed when it did not become one.
func TestFollowShortFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engine.log")
	l := looking(t, FollowOptions{Sources: []Source{{Path: path + "*", Zone: time.UTC}}})
	appendFile(t, path, numbered(0, 20))
	appendFile(t, path+".short", numbered(0, 1))
	appendFile(t, path+".other", "[2026-09-13 16:06:00] line 000020 is short\n")
	l.look()
	if n := len(l.m.got()); n != 21 {
		t.Errorf("%d lines, want those of the log and of the short file that begins otherwise", n)
	}
	l.now = l.now.Add(l.f.o.Partial)
	l.look()
	if n := len(l.m.got()); n != 22 {
		t.Errorf("%d lines after the wait, want that of the short file, too", n)
	}
}

// TestFollowIdentityAgain: a compressed file that was read before a restart is not held open, so the system
// may give its identity to the next file that is made. That is another file.
func TestFollowIdentityAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "engine.log")
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := io.WriteString(w, numbered(0, 20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".1.gz", z.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	o := FollowOptions{Sources: []Source{{Path: path + "*", Rotated: true, Zone: time.UTC}}, StateDir: filepath.Join(dir, "state")}
	l := looking(t, o)
	l.look()
	l.once(20)
	l.f.close()
	l = looking(t, o)
	l.look()
	if st := l.f.Status(); len(st) != 1 || st[0].State != "done" {
		t.Fatalf("after the restart: %+v", st)
	}
	// The same identity, another file: what is there is moved and written anew.
	if err := os.Rename(path+".1.gz", path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(numbered(0, 30)), 0o644); err != nil {
		t.Fatal(err)
	}
	l.look()
	l.once(30)
}

// TestFollowGzipCutEarly: a compressed file that ends too early was seen first while it could still grow.
// That it never did is counted, and what it has is read once.
func TestFollowGzipCutEarly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engine.log.1.gz")
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := io.WriteString(w, numbered(0, 20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil { // and no end
		t.Fatal(err)
	}
	if err := os.WriteFile(path, z.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	l := looking(t, FollowOptions{Sources: []Source{{Path: path, Rotated: true, Zone: time.UTC}}})
	l.now = time.Now()
	l.look()
	l.look()
	if d := l.f.Drops(); len(d) > 0 {
		t.Errorf("it may still grow: %v", d)
	}
	for range 3 {
		l.now = l.now.Add(gzipWait)
		l.look()
	}
	if twice := complete(t, l.m.got(), 20); twice > 0 {
		t.Errorf("%d lines came twice", twice)
	}
	if d := l.f.Drops(); len(d) != 1 || d[0].Reason != DropGzip || d[0].Count != 1 {
		t.Errorf("drops %v, want the file that ends too early, once", d)
	}
	if st := l.f.Status(); len(st) != 1 || !strings.HasPrefix(st[0].State, "error") {
		t.Errorf("status %+v", st)
	}
}
