package dumps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/rolloutstore"
	"github.com/rollscope/rollscope/internal/sim/rolls"
	"github.com/rollscope/rollscope/torchfile"
)

// t0 is where the clocks of these tests begin, long before the files that they write, as the system sees them:
// a directory that changed less than three seconds ago by the watcher's clock is always listed, and what a test
// lets pass between two writes takes no time at all for the system.
var t0 = time.Date(2006, 8, 18, 6, 13, 20, 0, time.UTC)

// bench is a watcher with a clock, over a directory.
type bench struct {
	t   *testing.T
	dir string
	now time.Time
	w   *Watcher
	got []string
	// fail, when set, is asked before a dump counts as handled.
	fail func(Found) error
}

func newBench(t *testing.T, change func(*Options)) *bench {
	b := &bench{t: t, dir: t.TempDir(), now: t0}
	b.restart(change)
	return b
}

func (b *bench) restart(change func(*Options)) {
	b.t.Helper()
	o := Options{
		Patterns: []Pattern{{"r", filepath.Join(b.dir, "rollout_{rollout_id}.pt")}},
		Now:      func() time.Time { return b.now },
		Handler: HandlerFunc(func(_ context.Context, f Found) error {
			if b.fail != nil {
				if err := b.fail(f); err != nil {
					return err
				}
			}
			if f.Fingerprint == "" || f.Run != "r" || f.Path != filepath.Join(b.dir, filepath.Base(f.Path)) {
				b.t.Errorf("%+v", f)
			}
			b.got = append(b.got, strings.TrimSuffix(filepath.Base(f.Path), ".pt"))
			return nil
		}),
	}
	if change != nil {
		change(&o)
	}
	var err error
	if b.w, err = New(o); err != nil {
		b.t.Fatal(err)
	}
}

// look passes so much time in looks of 2 s.
func (b *bench) look(d time.Duration) {
	for end := b.now.Add(d); !b.now.After(end); b.now = b.now.Add(2 * time.Second) {
		b.w.Look(b.t.Context())
	}
}

// handled returns what was handled since it was last called.
func (b *bench) handled() string {
	s := strings.Join(b.got, " ")
	b.got = nil
	return s
}

func (b *bench) want(s string) {
	b.t.Helper()
	if got := b.handled(); got != s {
		b.t.Errorf("handled %q instead of %q; %+v", got, s, b.w.Files())
	}
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) status(name string) FileStatus {
	b.t.Helper()
	for _, f := range b.w.Files() {
		if filepath.Base(f.Path) == name {
			return f
		}
	}
	b.t.Fatalf("%s is not seen", name)
	return FileStatus{}
}

// dump is a small dump whose content depends on the seed.
func dump(t *testing.T, seed uint64) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := rolls.Write(&b, rolls.Options{Seed: seed, Samples: 8, Response: rolls.Lengths{Median: 5}}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (b *bench) write(name string, data []byte) {
	b.t.Helper()
	if err := os.WriteFile(b.path(name), data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// replace puts another file in a file's place, as a rename does.
func (b *bench) replace(name string, data []byte) {
	b.t.Helper()
	b.write(".tmp", data)
	if err := os.Rename(b.path(".tmp"), b.path(name)); err != nil {
		b.t.Fatal(err)
	}
}

func TestADumpIsHandledOnceItIsAtRest(t *testing.T) {
	b := newBench(t, nil)
	b.write("rollout_7.pt", dump(t, 1))
	b.w.Look(t.Context())
	b.want("")
	if s := b.status("rollout_7.pt"); s.State != Waiting {
		t.Errorf("%+v", s)
	}
	b.look(2 * time.Second)
	b.want("")
	b.look(2 * time.Second)
	b.want("rollout_7")
	b.look(10 * time.Minute)
	b.want("")
	if s := b.status("rollout_7.pt"); s.State != Processed || s.Fingerprint == "" || s.Done.IsZero() || b.w.Counts().Processed != 1 {
		t.Errorf("%+v", s)
	}
}

// TestAGrowingDump looks between any two writes of a dump that is written in place.
func TestAGrowingDump(t *testing.T) {
	b := newBench(t, nil)
	looks := 0
	_, err := rolls.WriteFileWith(b.path("rollout_3.pt"), rolls.Options{Samples: 64}, rolls.FileOptions{InPlace: true, Every: 1 << 18, Pause: func(int64) error {
		looks++
		// The writer thinks for longer than a dump must be at rest.
		b.look(time.Minute)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if looks < 10 {
		t.Fatalf("%d looks", looks)
	}
	b.want("")
	b.look(10 * time.Second)
	b.want("rollout_3")
	if by, _ := b.w.Dropped(); len(by) != 0 {
		t.Error(by)
	}
}

// TestCaseD03: three bad files, one of them cut, and one that is well.
func TestCaseD03(t *testing.T) {
	b := newBench(t, nil)
	cut, err := os.ReadFile("../../torchfile/testdata/dumps/d03_rollout_8.pt")
	if err != nil {
		t.Fatal(err)
	}
	html, err := os.ReadFile("../../torchfile/testdata/dumps/d03_html.pt")
	if err != nil {
		t.Fatal(err)
	}
	b.write("rollout_6.pt", nil)
	b.write("rollout_7.pt", html)
	b.write("rollout_8.pt", cut)
	b.write("rollout_9.pt", dump(t, 1))
	b.look(10 * time.Second)
	b.want("rollout_9")
	why := map[string]bool{}
	for name, want := range map[string]struct {
		state  State
		reason Reason
		why    string
	}{
		"rollout_6.pt": {Incomplete, ReasonEmpty, "empty"},
		"rollout_7.pt": {Failed, ReasonNotTorch, "neither"},
		"rollout_8.pt": {Incomplete, ReasonIncomplete, "incomplete (no central directory): still being written or cut"},
	} {
		s := b.status(name)
		if s.State != want.state || s.Reason != want.reason || !strings.Contains(s.Why, want.why) || s.Next.IsZero() {
			t.Errorf("%+v", s)
		}
		why[s.Why] = true
	}
	if len(why) != 3 {
		t.Error(why)
	}
	if by, _ := b.w.Dropped(); !reflect.DeepEqual(by, map[string]int64{"not_torch": 1}) {
		t.Error(by)
	}
	b.write("rollout_8.pt", dump(t, 2)) // the job saves it again
	b.look(10 * time.Second)
	b.want("rollout_8")
	b.look(time.Hour)
	b.want("")
	if s := b.status("rollout_7.pt"); s.Tries < 10 || s.Tries > 30 {
		t.Errorf("tried %d times in an hour", s.Tries)
	}
}

func TestOldestFirst(t *testing.T) {
	b := newBench(t, nil)
	for _, name := range []string{"rollout_10.pt", "rollout_9.pt", "rollout_eval_9.pt", "rollout_eval_10.pt", "rollout_0.pt"} {
		b.write(name, dump(t, 1))
	}
	for _, name := range []string{"rollout_x.pt", "rollout_.pt", "rollout_1.pt.tmp", "rollout_-1.pt", "rollout_eval_.pt", "rollout_99999999999999999999.pt", "Rollout_1.pt", "rollout_1", "rollout_+1.pt"} {
		b.write(name, dump(t, 1))
	}
	b.look(10 * time.Second)
	b.want("rollout_0 rollout_eval_9 rollout_9 rollout_eval_10 rollout_10")
	if len(b.w.Files()) != 5 {
		t.Errorf("%+v", b.w.Files())
	}
	r := b.w.Runs()
	if len(r) != 1 || r[0].States[Processed] != 5 || r[0].Newest != 10 || r[0].Problem != "" {
		t.Errorf("%+v", r)
	}
}

func TestReplacedTouchedAndRestored(t *testing.T) {
	b := newBench(t, nil)
	one, two := dump(t, 1), dump(t, 2)
	b.write("rollout_1.pt", one)
	b.look(10 * time.Second)
	b.want("rollout_1")
	was, err := os.Stat(b.path("rollout_1.pt"))
	if err != nil {
		t.Fatal(err)
	}
	// The same size and time do not hide another file.
	two = append(two[:0:0], two...)
	b.replace("rollout_1.pt", two)
	if err := os.Chtimes(b.path("rollout_1.pt"), was.ModTime(), was.ModTime()); err != nil {
		t.Fatal(err)
	}
	b.look(10 * time.Second)
	b.want("rollout_1")
	// A new time does not make it another content.
	if err := os.Chtimes(b.path("rollout_1.pt"), t0, t0); err != nil {
		t.Fatal(err)
	}
	b.look(10 * time.Second)
	b.want("")
	b.write("rollout_1.pt", one) // in place
	b.look(10 * time.Second)
	b.want("rollout_1")
	if c := b.w.Counts(); c.Processed != 3 || c.Known != 1 || c.Failures != 0 {
		t.Errorf("%+v", c)
	}
}

func TestDeleted(t *testing.T) {
	b := newBench(t, nil)
	b.write("rollout_1.pt", dump(t, 1))
	b.look(10 * time.Second)
	b.write("rollout_2.pt", dump(t, 1))
	b.w.Look(t.Context())
	for _, n := range []string{"rollout_1.pt", "rollout_2.pt"} {
		if err := os.Remove(b.path(n)); err != nil {
			t.Fatal(err)
		}
	}
	b.look(10 * time.Second)
	b.want("rollout_1")
	by, lost := b.w.Dropped()
	if len(b.w.Files()) != 0 || !reflect.DeepEqual(by, map[string]int64{"deleted_unread": 1}) || len(lost) != 1 || filepath.Base(lost[0].Path) != "rollout_2.pt" {
		t.Error(b.w.Files(), by, lost)
	}
	// A step that comes again is a new one.
	b.write("rollout_1.pt", dump(t, 1))
	b.look(10 * time.Second)
	b.want("rollout_1")
}

// TestDeletedByItsHandler: what goes while it is handled is not an error to be tried again.
func TestDeletedWhileItIsHandled(t *testing.T) {
	b := newBench(t, nil)
	b.write("rollout_1.pt", dump(t, 1))
	b.fail = func(f Found) error { return errors.Join(os.Remove(f.Path), errors.New("cannot read it")) }
	b.look(10 * time.Second)
	if by, _ := b.w.Dropped(); len(b.w.Files()) != 0 || by["deleted_unread"] != 1 || by["handler"] != 0 {
		t.Error(b.w.Files(), by)
	}
}

func TestDirectories(t *testing.T) {
	b := newBench(t, nil)
	b.restart(func(o *Options) {
		o.Patterns = []Pattern{{"r", b.path("later/rollout_{rollout_id}.pt")}, {"s", b.path("file/rollout_{rollout_id}.pt")}}
	})
	b.write("file", nil)
	b.look(10 * time.Second)
	if r := b.w.Runs(); r[0].Problem != "the directory does not exist yet" || !strings.Contains(r[1].Problem, "no directory") {
		t.Errorf("%+v", r)
	}
	b.dir = b.path("later")
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.write("rollout_1.pt", dump(t, 1))
	b.look(10 * time.Second)
	b.want("rollout_1")
	// The directory goes, and comes again.
	if err := os.RemoveAll(b.dir); err != nil {
		t.Fatal(err)
	}
	b.look(10 * time.Second)
	if len(b.w.Files()) != 0 {
		t.Errorf("%+v", b.w.Files())
	}
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.write("rollout_2.pt", dump(t, 1))
	b.look(10 * time.Second)
	b.want("rollout_2")
	if r := b.w.Runs(); r[0].Problem != "" {
		t.Errorf("%+v", r)
	}
}

// TestALateDirectory: a network file system may show a new name long before a new mtime.
func TestALateDirectory(t *testing.T) {
	b := newBench(t, nil)
	old := t0.Add(-time.Hour)
	chtimes := func() {
		if err := os.Chtimes(b.dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	chtimes()
	b.look(10 * time.Second)
	b.write("rollout_1.pt", dump(t, 1))
	chtimes()
	b.look(listAnyway + 10*time.Second)
	b.want("rollout_1")
}

func TestHandlersThatFail(t *testing.T) {
	b := newBench(t, nil)
	broken := errors.New("the disk is full")
	var tries []time.Duration
	b.fail = func(f Found) error {
		if f.RolloutID == 1 && len(tries) < 4 {
			tries = append(tries, b.now.Sub(t0))
			return broken
		}
		return nil
	}
	b.write("rollout_1.pt", dump(t, 1))
	b.write("rollout_2.pt", dump(t, 1))
	b.look(10 * time.Second)
	b.want("rollout_2")
	s := b.status("rollout_1.pt")
	if s.State != Failed || s.Reason != ReasonHandler || s.Why != broken.Error() || s.Tries < 1 {
		t.Errorf("%+v", s)
	}
	b.look(2 * time.Minute)
	b.want("rollout_1")
	// After 5, 10 and 20 s, at the next look.
	if fmt.Sprint(tries) != "[4s 10s 20s 40s]" {
		t.Error(tries)
	}
	if by, _ := b.w.Dropped(); by["handler"] != 1 {
		t.Error(by)
	}
	// A handler may find that a pickle has no end.
	b.fail = func(Found) error { return fmt.Errorf("read: %w", torchfile.ErrIncomplete) }
	b.write("rollout_3.pt", dump(t, 1))
	b.look(10 * time.Second)
	if s := b.status("rollout_3.pt"); s.State != Incomplete {
		t.Errorf("%+v", s)
	}
}

// TestAChangeWhileItIsHandled is seen, and the dump comes again.
func TestAChangeWhileItIsHandled(t *testing.T) {
	b := newBench(t, nil)
	b.write("rollout_1.pt", dump(t, 1))
	first := true
	b.fail = func(Found) error {
		if first {
			first = false
			b.replace("rollout_1.pt", dump(t, 2))
		}
		return nil
	}
	b.look(20 * time.Second)
	b.want("rollout_1 rollout_1")
}

// TestTheEnd: what is with the handler when the context ends is not a failure.
func TestTheEnd(t *testing.T) {
	b := newBench(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	b.write("rollout_1.pt", dump(t, 1))
	b.write("rollout_2.pt", dump(t, 1))
	b.fail = func(Found) error { cancel(); return ctx.Err() }
	waits := 0
	b.w.opts.After = func(d time.Duration) <-chan time.Time {
		waits++
		b.now = b.now.Add(d)
		c := make(chan time.Time, 1)
		c <- b.now
		return c
	}
	if err := b.w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if waits < 2 {
		t.Errorf("%d waits", waits)
	}
	for _, f := range b.w.Files() {
		if f.State != Waiting || f.Tries != 0 {
			t.Errorf("%+v", f)
		}
	}
	b.want("")
}

// TestRestart keeps what was done in a store, and finds there what is the same.
func TestRestart(t *testing.T) {
	b := newBench(t, nil)
	store, err := rolloutstore.Open(t.TempDir(), rolloutstore.Options{Now: func() time.Time { return b.now }})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	version := "v1"
	b.fail = func(f Found) error {
		_, err := store.Put(rolloutstore.Step{Summary: rolloutstore.Summary{
			ID:       rolloutstore.ID{Run: f.Run, Kind: f.Kind, RolloutID: f.RolloutID},
			Dump:     rolloutstore.Dump{Path: f.Path, Size: f.Size, ModTime: f.ModTime, Fingerprint: f.Fingerprint},
			Analysis: version,
		}}, nil)
		return err
	}
	start := func() {
		b.restart(func(o *Options) { o.Index = StoreIndex{store, version} })
		b.look(10 * time.Second)
	}
	for i := range 3 {
		b.write(fmt.Sprintf("rollout_%d.pt", i), dump(t, 1))
	}
	b.write("rollout_eval_1.pt", dump(t, 1))
	start()
	b.want("rollout_0 rollout_eval_1 rollout_1 rollout_2")
	start()
	b.want("")
	if c := b.w.Counts(); c.Known != 4 || c.Processed != 0 {
		t.Errorf("%+v", c)
	}
	// While nobody looked: one was replaced, one touched, one moved away, one is new.
	b.replace("rollout_0.pt", dump(t, 2))
	if err := os.Chtimes(b.path("rollout_1.pt"), t0, t0); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(b.path("rollout_2.pt")); err != nil {
		t.Fatal(err)
	}
	b.write("rollout_3.pt", dump(t, 1))
	start()
	b.want("rollout_0 rollout_3")
	var ids []string
	for _, s := range store.Steps("r", rolloutstore.Filter{Attempts: true}) {
		ids = append(ids, s.ID.String())
	}
	if got := strings.Join(ids, " "); got != "r/train-0.0 r/train-0.1 r/train-1.0 r/train-2.0 r/train-3.0 r/eval-1.0" {
		t.Error(got)
	}
	version = "v2" // another version of the program makes the steps again
	start()
	b.want("rollout_0 rollout_eval_1 rollout_1 rollout_3")
	if n := len(store.Steps("r", rolloutstore.Filter{Attempts: true})); n != 6 {
		t.Errorf("%d attempts", n)
	}
}

// TestNothingIsTouched compares bytes and times before and after.
func TestNothingIsTouched(t *testing.T) {
	b := newBench(t, nil)
	data := dump(t, 1)
	b.write("rollout_1.pt", data)
	old := t0.Add(-1000 * time.Hour)
	if err := os.Chtimes(b.path("rollout_1.pt"), old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(b.path("rollout_1.pt"), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(b.dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(b.dir, 0o755)
	times := func() string {
		fi, err := os.Stat(b.path("rollout_1.pt"))
		if err != nil {
			t.Fatal(err)
		}
		v := reflect.ValueOf(fi.Sys()).Elem()
		s := fi.ModTime().String()
		for _, name := range []string{"Atim", "Ctim", "Ino"} {
			if f := v.FieldByName(name); f.IsValid() {
				s += fmt.Sprint(" ", name, f.Interface())
			}
		}
		return s
	}
	before := times()
	b.fail = func(f Found) error {
		t, err := torchfile.Open(f.Path, nil)
		if err != nil {
			return err
		}
		defer t.Close()
		_, err = t.Load(torchfile.LoadOptions{})
		return err
	}
	b.look(10 * time.Second)
	b.want("rollout_1")
	if after := times(); after != before {
		t.Errorf("before %s\nafter  %s", before, after)
	}
	if got, err := os.ReadFile(b.path("rollout_1.pt")); err != nil || !bytes.Equal(got, data) {
		t.Error("other bytes", err)
	}
	if list, _ := os.ReadDir(b.dir); len(list) != 1 {
		t.Error(list)
	}
}

func TestTwoFilesOfOneStep(t *testing.T) {
	b := newBench(t, nil)
	b.write("rollout_7.pt", dump(t, 1))
	b.write("rollout_07.pt", dump(t, 2))
	b.look(10 * time.Minute)
	b.want("rollout_07") // the first by name
	if s := b.status("rollout_7.pt"); s.State != Failed || s.Reason != ReasonSameStep || !strings.Contains(s.Why, "rollout_07.pt") || !s.Next.IsZero() {
		t.Errorf("%+v", s)
	}
	if err := os.Remove(b.path("rollout_07.pt")); err != nil {
		t.Fatal(err)
	}
	b.look(10 * time.Second)
	b.want("rollout_7")
}

// TestWhatIsNoFile: a directory and a pipe are not opened, a link is followed.
func TestWhatIsNoFile(t *testing.T) {
	b := newBench(t, nil)
	if err := os.Mkdir(b.path("rollout_1.pt"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(b.path("rollout_2.pt"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.write("elsewhere", dump(t, 1))
	if err := os.Symlink(b.path("elsewhere"), b.path("rollout_3.pt")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(b.path("nowhere"), b.path("rollout_4.pt")); err != nil {
		t.Fatal(err)
	}
	b.look(time.Minute)
	b.want("rollout_3")
	for _, n := range []string{"rollout_1.pt", "rollout_2.pt"} {
		if s := b.status(n); s.State != Failed || s.Reason != ReasonNotRegular {
			t.Errorf("%+v", s)
		}
	}
}

// TestAReplacedOldDump is found although the newest are looked at first.
func TestAReplacedOldDump(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Recheck = time.Minute })
	data := dump(t, 1)
	for i := range 100 {
		b.write(fmt.Sprintf("rollout_%d.pt", i), data)
	}
	b.look(10 * time.Second)
	if n := len(strings.Fields(b.handled())); n != 100 {
		t.Fatal(n)
	}
	b.write("rollout_17.pt", dump(t, 2))
	b.look(time.Minute + 10*time.Second)
	b.want("rollout_17")
}

// TestStatsThatFail: an error of a network file system is neither a deletion nor the end.
func TestStatsThatFail(t *testing.T) {
	var broken error
	b := newBench(t, func(o *Options) {
		o.Stat = func(path string) (fs.FileInfo, error) {
			if broken != nil && strings.HasSuffix(path, "_1.pt") {
				return nil, &fs.PathError{Op: "stat", Path: path, Err: broken}
			}
			return os.Stat(path)
		}
	})
	broken = syscall.ESTALE
	b.write("rollout_1.pt", dump(t, 1))
	b.write("rollout_2.pt", dump(t, 1))
	b.look(time.Minute)
	b.want("rollout_2")
	if s := b.status("rollout_1.pt"); s.State != Failed || s.Reason != ReasonIO || s.Tries > 6 {
		t.Errorf("%+v", s)
	}
	broken = nil
	b.look(2 * time.Minute)
	b.want("rollout_1")
}

// TestLooksGoOnDuringALongList: a dump that comes while others are processed takes its place in the order.
func TestLooksGoOnDuringALongList(t *testing.T) {
	b := newBench(t, nil)
	for i := range 5 {
		b.write(fmt.Sprintf("rollout_%d.pt", 10+i), dump(t, 1))
	}
	b.fail = func(f Found) error {
		if f.RolloutID == 10 {
			b.write("rollout_3.pt", dump(t, 1))
		}
		b.now = b.now.Add(3 * time.Second)
		return nil
	}
	b.look(4 * time.Second)
	b.want("rollout_10 rollout_11 rollout_12 rollout_3 rollout_13 rollout_14")
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	h := HandlerFunc(func(context.Context, Found) error { return nil })
	for name, o := range map[string]Options{
		"handler": {}, "pattern": {Handler: h, Patterns: []Pattern{{"r", "/d/x.pt"}}}, "twice": {Handler: h, Patterns: []Pattern{{"r", "/d/{rollout_id}_{rollout_id}.pt"}}},
		"directory": {Handler: h, Patterns: []Pattern{{"r", "/{rollout_id}/{rollout_id}.pt"}}}, "run": {Handler: h, Patterns: []Pattern{{"", "/d/{rollout_id}.pt"}}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestNameRuns(t *testing.T) {
	const f = "rollout_{rollout_id}.pt"
	for _, c := range []struct {
		paths string
		want  string
	}{
		{"/exp/qwen3-4B/" + f, "qwen3-4B"},
		{"/exp/qwen3-4B/debug_rollout_data/" + f, "qwen3-4B"},
		{"/exp/qwen3-4B/Dumps/rollouts/" + f, "qwen3-4B"},
		{"/exp/qwen3-4B/actor_{rollout_id}.pt /exp/qwen3-4B/critic_{rollout_id}.pt", "qwen3-4B-actor qwen3-4B-critic"},
		{"/a/qwen/dumps/" + f + " /b/qwen/dumps/" + f, "qwen b/qwen"},
		{"/a/qwen/dumps/" + f + " /a/qwen/rollouts/" + f, "qwen a/qwen"},
		{"/dumps/" + f, "dumps"},
		{"/" + f, "*"},
		{"/x/a/{rollout_id}.pt", "a"},
		{"run=/a/qwen/" + f + " /b/run/" + f, "run b/run"},
	} {
		var in []Pattern
		for _, p := range strings.Fields(c.paths) {
			run, path, ok := strings.Cut(p, "=")
			if !ok {
				run, path = "", p
			}
			in = append(in, Pattern{run, path})
		}
		got, err := NameRuns(in, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range got {
			names = append(names, p.Run)
		}
		if s := strings.Join(names, " "); s != c.want && c.want != "*" || s == "" {
			t.Errorf("%s: %s instead of %s", c.paths, s, c.want)
		}
	}
	store, err := rolloutstore.Open(t.TempDir(), rolloutstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, r := range []rolloutstore.Run{{Name: "first name", Pattern: "/exp/a/" + f}, {Name: "b", Pattern: "/other/b/" + f}, {Name: "c"}} {
		if err := store.PutRun(r); err != nil {
			t.Fatal(err)
		}
	}
	x := StoreIndex{Store: store}
	got, err := NameRuns([]Pattern{{"", "/exp/a/" + f}, {"", "/exp/b/" + f}, {"", "/exp/c/" + f}}, x.Name, x.Taken)
	if err != nil || fmt.Sprint(got) != fmt.Sprintf("[{first name /exp/a/%s} {exp/b /exp/b/%s} {c /exp/c/%s}]", f, f, f) {
		t.Error(got, err)
	}
	for _, bad := range [][]Pattern{{{"a", "/x/" + f}, {"a", "/y/" + f}}, {{"a", "/x/" + f}, {"b", "/x/" + f}}, {{"", "/x/y.pt"}}} {
		if got, err := NameRuns(bad, nil, nil); err == nil {
			t.Error(got)
		}
	}
	rel, err := NameRuns([]Pattern{{"", f}}, nil, nil)
	if err != nil || !filepath.IsAbs(rel[0].Path) || rel[0].Run != "internal" {
		t.Error(rel, err)
	}
}

// BenchmarkLook looks at a run of 10,000 dumps that are done.
func BenchmarkLook(b *testing.B) {
	dir, now := b.TempDir(), t0
	data := []byte("x")
	w, err := New(Options{
		Patterns: []Pattern{{"r", filepath.Join(dir, "rollout_{rollout_id}.pt")}},
		Now:      func() time.Time { return now },
		Handler:  HandlerFunc(func(context.Context, Found) error { return nil }),
		Open: func(string) (*torchfile.File, error) {
			return torchfile.OpenBytes([]byte("\x80\x02N."), nil)
		},
		Print: func(*torchfile.File) (string, error) { return "p", nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 10000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("rollout_%d.pt", i)), data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.Chtimes(dir, t0.Add(-time.Hour), t0.Add(-time.Hour)); err != nil {
		b.Fatal(err)
	}
	for range 4 {
		w.Look(b.Context())
		now = now.Add(2 * time.Second)
	}
	if c := w.Counts(); c.Processed != 10000 {
		b.Fatalf("%+v", c)
	}
	for b.Loop() {
		w.Look(b.Context())
		now = now.Add(2 * time.Second)
	}
}
