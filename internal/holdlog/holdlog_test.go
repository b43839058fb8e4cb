package holdlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, dir string) *Log {
	t.Helper()
	l, err := Open(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // most are closed before
	return l
}

// replayed lists what a log has: "time body" of each request whose trace has no verdict. In these tests a
// body begins with its trace's name.
func replayed(t testing.TB, l *Log) (out []string) {
	t.Helper()
	decided := map[ID]bool{}
	err := l.Replay(Reader{
		Verdict:  func(_ int64, v Verdict) { decided[v.Trace] = true },
		Progress: func(int64) {},
		Request: func(at int64, body []byte) error {
			if !decided[id(string(body[:1]))] {
				out = append(out, fmt.Sprintf("%d %s", at, body[:min(len(body), 10)]))
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func id(name string) (i ID) { copy(i[:], name); return i }

func write(t testing.TB, l *Log, at int64, body string) {
	t.Helper()
	if err := l.Append(at, []byte(body)); err != nil {
		t.Fatal(err)
	}
}

func TestReplayIsWhatIsNotDecided(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	if got := replayed(t, l); got != nil {
		t.Fatalf("an empty log has %q", got)
	}
	write(t, l, 1, "a1")
	write(t, l, 2, "b1")
	if err := l.Decide(3, []Verdict{{Trace: id("a")}, {Trace: id("x")}}); err != nil {
		t.Fatal(err)
	}
	write(t, l, 4, "c1")
	// Not closed: as after a crash.
	again := open(t, dir)
	if got, want := replayed(t, again), []string{"2 b1", "4 c1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	write(t, again, 5, "d1")
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := replayed(t, open(t, dir)), []string{"2 b1", "4 c1", "5 d1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	_ = l.Close()
}

// What was decided comes back as it was said, and the newest progress with it, also when the segments that
// said it are gone.
func TestVerdictsComeBack(t *testing.T) {
	dir := t.TempDir()
	read := func(l *Log) (out []string, progress int64) {
		t.Helper()
		err := l.Replay(Reader{
			Verdict: func(at int64, v Verdict) {
				out = append(out, fmt.Sprintf("%d %s kept=%v final=%v %.20s", at, v.Trace[:1], v.Kept, v.Final, v.Rule))
			},
			Progress: func(at int64) { progress = at },
			Request:  func(int64, []byte) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		return out, progress
	}
	l := open(t, dir)
	read(l)
	decide := func(at int64, list ...Verdict) {
		t.Helper()
		if err := l.Decide(at, list); err != nil {
			t.Fatal(err)
		}
	}
	decide(1, Verdict{Trace: id("a"), Kept: true, Rule: "error"}, Verdict{Trace: id("b"), Final: true, Rule: strings.Repeat("long", 100)})
	decide(2)
	decide(3, Verdict{Trace: id("a"), Kept: true, Final: true})
	if err := l.Done(1); err != nil {
		t.Fatal(err)
	}
	got, progress := read(open(t, dir))
	want := []string{"1 a kept=true final=false error", "1 b kept=false final=true longlonglonglonglong", "3 a kept=true final=true "}
	if !slices.Equal(got, want) || progress != 1 {
		t.Errorf("got %q and progress %d, want %q and 1", got, progress, want)
	}
	for at := int64(10); at < 10_000; at += 10 {
		var many []Verdict
		for i := range 20 {
			many = append(many, Verdict{Trace: id(fmt.Sprint("c", at, i)), Final: true, Rule: strings.Repeat("x", 100)})
		}
		decide(at, many...)
	}
	if err := l.Release(0, 9_000, 8_000); err != nil {
		t.Fatal(err)
	}
	got, progress = read(open(t, dir))
	if progress != 8_000 || len(got) < 2000 || len(got) > 15_000 {
		t.Errorf("progress is %d with %d verdicts left", progress, len(got))
	}
}

// Whoever is late does not write into a directory that was given up.
func TestClosed(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	replayed(t, l)
	write(t, l, 1, "a1")
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	before, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second write after a failure begins a log anew
		if err := l.Append(2, []byte("b1")); err == nil {
			t.Error("a request is taken")
		}
		if err := l.Decide(2, []Verdict{{Trace: id("a")}}); err == nil {
			t.Error("a decision is taken")
		}
	}
	if err := l.Release(10, 10, 10); err != nil {
		t.Error(err)
	}
	if after, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || !slices.Equal(before, after) {
		t.Errorf("there is %q, there was %q; %v", after, before, err)
	}
	if got, want := replayed(t, open(t, dir)), []string{"1 a1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// noise cannot be compressed, so that a few requests fill a segment.
func noise(n int) string {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

func TestReleaseByTime(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	defer l.Close()
	replayed(t, l)
	for at := range int64(10) {
		write(t, l, at, string(rune('a'+at))+noise(6<<20))
	}
	before := l.Size()
	if err := l.Release(5, 0, 0); err != nil {
		t.Fatal(err)
	}
	if after := l.Size(); after >= before || after < 5*6<<20 {
		t.Errorf("size %d became %d", before, after)
	}
	names, _ := filepath.Glob(filepath.Join(dir, "0*"))
	var first []string
	for _, s := range replayed(t, open(t, dir)) {
		first = append(first, s[:1])
	}
	// Segments hold three each: the one with 3, 4, 5 is kept whole.
	if want := []string{"3", "4", "5", "6", "7", "8", "9"}; !slices.Equal(first, want) {
		t.Errorf("%d files with %v, want %v", len(names), first, want)
	}
	if err := l.Release(100, 0, 0); err != nil {
		t.Fatal(err)
	}
	if l.Size() > requestSegment+8<<20 {
		t.Errorf("%d bytes are left when nothing is held", l.Size())
	}
}

func TestFull(t *testing.T) {
	l, err := Open(Options{Dir: t.TempDir(), MaxBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Append(1, []byte("a")); err == nil {
		t.Error("it takes requests before it was read")
	}
	replayed(t, l)
	write(t, l, 1, "a"+noise(2000))
	if err := l.Append(2, []byte("b")); err != ErrFull {
		t.Errorf("%v, want ErrFull", err)
	}
	if err := l.Decide(3, []Verdict{{Trace: id("a")}}); err != nil { // must always be possible: it is what makes room
		t.Error(err)
	}
}

// What survives each kind of damage in the middle one of three segments.
func TestDamage(t *testing.T) {
	made := func(t *testing.T) string {
		dir := t.TempDir()
		for _, bodies := range [][]string{{"a1", "a2"}, {"b1", "b2" + strings.Repeat("x", 50000) + noise(40000), "b3"}, {"c1"}} {
			l := open(t, dir)
			replayed(t, l)
			for _, b := range bodies {
				write(t, l, 1, b)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	change := func(f func([]byte) []byte) func(string) error {
		return func(path string) error {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, f(data), 0o666)
		}
	}
	for name, tt := range map[string]struct {
		damage func(path string) error
		want   string // first letters and digits
		told   bool
	}{
		"none":         {func(string) error { return nil }, "a1 a2 b1 b2 b3 c1", false},
		"missing":      {os.Remove, "a1 a2 c1", true},
		"empty":        {change(func(b []byte) []byte { return nil }), "a1 a2 c1", true},
		"torn":         {change(func(b []byte) []byte { return b[:40000] }), "a1 a2 b1 c1", true},
		"flipped body": {change(func(b []byte) []byte { b[20000] ^= 1; return b }), "a1 a2 b1 c1", true},
		"flipped crc":  {change(func(b []byte) []byte { b[3] ^= 1; return b }), "a1 a2 c1", true},
		"length":       {change(func(b []byte) []byte { b[1] ^= 0x80; return b }), "a1 a2 c1", true},
		"zeroed page":  {change(func(b []byte) []byte { clear(b[32<<10 : 64<<10]); return b }), "a1 a2 b1 c1", true},
		"all nonsense": {change(func(b []byte) []byte { return bytes.Repeat([]byte{0xA5}, len(b)) }), "a1 a2 c1", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := made(t)
			names, err := filepath.Glob(filepath.Join(dir, "0*"))
			if err != nil || len(names) < 3 {
				t.Fatal(names, err)
			}
			if err := tt.damage(names[1]); err != nil {
				t.Fatal(err)
			}
			l, err := Open(Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var got []string
			for _, s := range replayed(t, l) {
				got = append(got, s[2:4])
			}
			if strings.Join(got, " ") != tt.want || (len(l.Damaged()) > 0) != tt.told {
				t.Errorf("got %q, want %q; told %q", got, tt.want, l.Damaged())
			}
			write(t, l, 2, "d1")
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	l := open(b, b.TempDir())
	defer l.Close()
	replayed(b, l)
	body := []byte(strings.Repeat("a span of five hundred bytes or so, with some words that come again. ", 4000))
	b.SetBytes(int64(len(body)))
	for i := range b.N {
		if err := l.Append(int64(i), body); err != nil {
			b.Fatal(err)
		}
		if i%100 == 0 {
			if err := l.Release(int64(i), 0, 0); err != nil {
				b.Fatal(err)
			}
		}
	}
}
