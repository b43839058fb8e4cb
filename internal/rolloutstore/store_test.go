package rolloutstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/rollout"
)

var t0 = time.Date(2026, 8, 18, 6, 13, 20, 0, time.UTC)

// blob is a container.
type blob string

func (b blob) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, string(b))
	return int64(n), err
}

// broken is a container that fails half way.
type broken struct{}

func (broken) WriteTo(w io.Writer) (int64, error) {
	n, _ := io.WriteString(w, "half")
	return int64(n), errors.New("the encoder fails")
}

func open(t *testing.T, dir string, o Options) *Store {
	t.Helper()
	if o.Now == nil {
		o.Now = func() time.Time { return t0 }
	}
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func step(run string, id int64, print string) Step {
	return Step{
		Summary: Summary{
			ID:       ID{Run: run, RolloutID: id},
			Dump:     Dump{Path: fmt.Sprintf("/d/rollout_%d.pt", id), Size: 100 + id, ModTime: t0.Add(time.Duration(id) * time.Minute), Fingerprint: print},
			First:    t0.Add(time.Duration(id) * time.Minute),
			Last:     t0.Add(time.Duration(id)*time.Minute + 40*time.Second),
			Counts:   Counts{Samples: 8, Traced: 7, Status: map[string]int{"completed": 8}, Requests: 9, Events: 200},
			Analysis: "v1",
		},
		Metrics: []Metric{
			{Key: "perf/rollout_time", Value: float64(id) + 0.1, Unit: "s"},
			{Key: "perf/request/queue_time/mean", State: Idle, Unit: "s"},
			{Key: "perf/tokens_per_gpu_per_sec", State: Unknown, Note: "the number of GPUs is not known"},
			{Key: "perf/longest", Value: 3, State: Partial, Derived: true, Note: "7 of 8 samples"},
		},
		Compat:   []Metric{{Key: "perf/rollout_time", Value: 1}},
		Walltime: json.RawMessage(`{"parts":[1,2]}`),
		Problems: []Problem{{Code: "no_trace", Where: "samples[3]", What: "no trace", Count: 1}},
	}
}

func put(t *testing.T, s *Store, st Step, c string) ID {
	t.Helper()
	id, err := s.Put(st, blob(c))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func content(t *testing.T, s *Store, id ID) string {
	t.Helper()
	c, err := s.Container(id)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	if c.Size() != int64(len(b)) {
		t.Errorf("size %d for %d bytes", c.Size(), len(b))
	}
	return string(b)
}

// tree lists a directory with the contents of its files and their mtimes.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintln(&b, path[len(dir):], fi.ModTime().UnixNano(), fi.Mode(), sum(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func ids(list []Summary) string {
	var b strings.Builder
	for _, s := range list {
		fmt.Fprintf(&b, "%s ", strings.TrimPrefix(s.ID.String(), "r/"))
		if s.Superseded {
			b.WriteString("(superseded) ")
		}
	}
	return strings.TrimSpace(b.String())
}

func TestWhatIsPutComesBack(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	want := step("r", 142, "a")
	id := put(t, s, want, "timeline")
	if id.String() != "r/train-142.0" {
		t.Error(id)
	}
	if err := s.MarkPublished(id, "tensorboard", "/tb"); err != nil {
		t.Fatal(err)
	}
	if err := s.MarkPublished(id, "tensorboard", "/tb2"); err != nil {
		t.Fatal(err)
	}
	want.ID.Attempt, want.Added, want.Container, want.Sum = 0, t0, 8, sum([]byte("timeline"))
	want.Published = []Publication{{"tensorboard", t0, "/tb2"}}
	check := func(s *Store) {
		t.Helper()
		got, err := s.Step(ID{Run: "r", RolloutID: 142, Attempt: Newest})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		if c := content(t, s, id); c != "timeline" {
			t.Errorf("container %q", c)
		}
		curve := s.Curves("r", Filter{}, "perf/longest", "perf/request/queue_time/mean", "nothing", "perf/tokens_per_gpu_per_sec")
		if len(curve.Points) != 1 || !reflect.DeepEqual(curve.Points[0], []Point{{3, Partial}, {0, Idle}, {0, Missing}, {0, Unknown}}) || curve.Units[1] != "s" {
			t.Errorf("curve %+v", curve)
		}
		keys, units := s.Keys("r")
		if strings.Join(keys, " ") != "perf/longest perf/request/queue_time/mean perf/rollout_time perf/tokens_per_gpu_per_sec" || units[2] != "s" {
			t.Error(keys, units)
		}
		if got := s.Runs(); len(got) != 1 || got[0].Steps != 1 || !got[0].Last.Equal(want.Last) {
			t.Errorf("%+v", got)
		}
	}
	check(s)
	s.Close()
	check(open(t, dir, Options{}))
	if err := os.Remove(filepath.Join(dir, "r", cacheName)); err != nil {
		t.Fatal(err)
	}
	check(open(t, dir, Options{ReadOnly: true}))
}

// TestCaseW03: the job died at step 150 and went back to step 100.
func TestCaseW03(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	at := func(id int64, print string, began time.Duration) Step {
		st := step("r", id, print)
		st.First, st.Last = t0.Add(began), t0.Add(began+time.Minute)
		return st
	}
	for id := range int64(6) {
		put(t, s, at(id, fmt.Sprint("first", id), time.Duration(id)*time.Hour), fmt.Sprint("first", id))
	}
	for id := int64(2); id < 4; id++ {
		put(t, s, at(id, fmt.Sprint("second", id), time.Duration(10+id)*time.Hour), fmt.Sprint("second", id))
	}
	for range 2 { // what is put again changes nothing
		put(t, s, at(3, "second3", 13*time.Hour), "second3")
		if got := ids(s.Steps("r", Filter{})); got != "train-0.0 train-1.0 train-2.1 train-3.1 train-4.0 (superseded) train-5.0 (superseded)" {
			t.Error(got)
		}
	}
	if got := ids(s.Steps("r", Filter{Attempts: true, From: new(int64(2)), To: new(int64(3))})); got != "train-2.0 (superseded) train-2.1 train-3.0 (superseded) train-3.1" {
		t.Error(got)
	}
	old := ID{Run: "r", RolloutID: 3}
	if content(t, s, old) != "first3" || content(t, s, ID{Run: "r", RolloutID: 3, Attempt: Newest}) != "second3" {
		t.Error("the attempts' containers are mixed up")
	}
	if f, err := s.Find(ID{Run: "r", RolloutID: 4, Attempt: Newest}); err != nil || !f.Superseded {
		t.Error(f, err)
	}
	if err := s.Delete(ID{Run: "r", RolloutID: 3, Attempt: Newest}); err != nil {
		t.Fatal(err)
	}
	if f, err := s.Find(ID{Run: "r", RolloutID: 3, Attempt: Newest}); err != nil || f.Dump.Fingerprint != "first3" {
		t.Error(f, err)
	}
}

func TestPutAgainKeepsWhatIsPublished(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	id := put(t, s, step("r", 1, "a"), "one")
	if err := s.MarkPublished(id, "wandb", "run 7"); err != nil {
		t.Fatal(err)
	}
	st := step("r", 1, "a")
	st.Analysis = "v2"
	if again := put(t, s, st, "another"); again != id {
		t.Error(again)
	}
	got, err := s.Step(id)
	if err != nil || got.Analysis != "v2" || len(got.Published) != 1 || content(t, s, id) != "another" {
		t.Errorf("%+v, %v", got, err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "r", "*.rtc")); len(files) != 1 {
		t.Error("the replaced timeline is there: ", files)
	}
	if _, err := s.Put(st, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Container(id); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	// Content without a fingerprint is never the same.
	st.Dump.Fingerprint = ""
	if put(t, s, st, "x").Attempt != 1 || put(t, s, st, "x").Attempt != 2 {
		t.Error("no new attempts")
	}
	if err := s.SetDumpPlace(id, "/elsewhere/rollout_1.pt", t0.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if f, _ := s.Find(id); f.Dump.Path != "/elsewhere/rollout_1.pt" || !f.Dump.ModTime.Equal(t0.Add(time.Hour)) {
		t.Errorf("%+v", f)
	}
}

func TestFilters(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	for id := range int64(5) {
		put(t, s, step("r", id, "p"), "c")
	}
	eval := step("r", 2, "p")
	eval.ID.Kind = rollout.Eval
	put(t, s, eval, "c")
	untraced := step("r", 9, "p")
	untraced.First, untraced.Last = time.Time{}, time.Time{}
	put(t, s, untraced, "c")
	for _, c := range []struct {
		f    Filter
		want string
	}{
		{Filter{}, "train-0.0 train-1.0 train-2.0 train-3.0 train-4.0 train-9.0 eval-2.0"},
		{Filter{Kind: []rollout.Kind{rollout.Eval}}, "eval-2.0"},
		{Filter{Kind: []rollout.Kind{}}, ""},
		{Filter{From: new(int64(3))}, "train-3.0 train-4.0 train-9.0"},
		{Filter{Since: t0.Add(4 * time.Minute)}, "train-4.0 train-9.0"},
		{Filter{Until: t0.Add(time.Minute)}, "train-0.0"},
	} {
		if got := ids(s.Steps("r", c.f)); got != c.want {
			t.Errorf("%+v: %s", c.f, got)
		}
	}
	if s.Steps("nobody", Filter{}) != nil {
		t.Error("steps of a run that there is not")
	}
}

func TestErrors(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	id := put(t, s, step("r", 1, "a"), "c")
	for _, bad := range []ID{{Run: "x", RolloutID: 1}, {Run: "r", RolloutID: 2}, {Run: "r", RolloutID: 1, Attempt: 1}, {Run: "r", RolloutID: 1, Kind: rollout.Eval, Attempt: Newest}} {
		_, a := s.Step(bad)
		_, b := s.Container(bad)
		_, c := s.Find(bad)
		for _, err := range []error{a, b, c, s.Delete(bad), s.MarkPublished(bad, "x", "")} {
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("%s: %v", bad, err)
			}
		}
	}
	if _, err := s.Put(step("r", -1, "a"), nil); err == nil {
		t.Error("a negative rollout id")
	}
	if _, err := s.Put(step("", 1, "a"), nil); err == nil {
		t.Error("a run without a name")
	}
	twice := step("r", 3, "a")
	twice.Metrics = append(twice.Metrics, twice.Metrics[0])
	if _, err := s.Put(twice, nil); err == nil {
		t.Error("a metric twice")
	}
	if _, err := s.Put(step("r", 1, "b"), broken{}); err == nil || !strings.Contains(err.Error(), "encoder fails") {
		t.Error(err)
	}
	if got := ids(s.Steps("r", Filter{Attempts: true})); got != "train-1.0" {
		t.Error("a failed Put left", got)
	}
	if _, err := s.Put(step("r", 1, "b"), blob("")); err == nil {
		t.Error("an empty container")
	}
	if left, _ := filepath.Glob(filepath.Join(s.Dir(), "r", tempPrefix+"*")); len(left) != 0 {
		t.Error(left)
	}
	if content(t, s, id) != "c" {
		t.Error("a failed Put changed the step")
	}
}

// TestReadOnly: nothing on disk changes, whatever is damaged or missing there.
func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	for id := range int64(4) {
		put(t, s, step("r", id, "a"), "c")
	}
	s.Close()
	run := filepath.Join(dir, "r")
	write(t, filepath.Join(run, "train-000001.0.json"), "{")
	write(t, filepath.Join(run, "train-000007.0.00000000.rtc"), "an orphan")
	write(t, filepath.Join(run, tempPrefix+"1"), "x")
	write(t, filepath.Join(run, cacheName), "garbage")
	before := tree(t, dir)
	s = open(t, dir, Options{ReadOnly: true})
	if got := ids(s.Steps("r", Filter{})); got != "train-0.0 train-2.0 train-3.0" {
		t.Error(got)
	}
	if d := s.Damaged(); len(d) != 1 || d[0].Aside || s.Dropped()["damaged"] != 1 {
		t.Errorf("%+v", d)
	}
	_, err := s.Put(step("r", 8, "a"), nil)
	_, pruned := s.Prune(Retention{MaxBytes: 1})
	for _, err := range []error{err, pruned, s.PutRun(Run{Name: "x"}), s.Delete(ID{Run: "r"}), s.MarkPublished(ID{Run: "r"}, "t", "")} {
		if !errors.Is(err, ErrReadOnly) {
			t.Error(err)
		}
	}
	if tree(t, dir) != before {
		t.Error("a read-only store changed something")
	}
	missing := open(t, filepath.Join(dir, "missing"), Options{ReadOnly: true})
	if len(missing.Runs()) != 0 {
		t.Error("runs out of nothing")
	}
	if _, err := os.Stat(filepath.Join(dir, "missing")); err == nil {
		t.Error("a read-only store made its directory")
	}
}

func write(t *testing.T, path, s string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(s), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCrash opens what a process left that ended between any two of its writes.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	id := put(t, s, step("r", 1, "a"), "old")
	s.Close()
	run := filepath.Join(dir, "r")
	write(t, filepath.Join(run, containerFile(id, "12345678")), "the container of a Put that did not end")
	write(t, filepath.Join(run, "train-000002.0.12345678.rtc"), "and of another")
	write(t, filepath.Join(run, tempPrefix+"99"), "half a file")
	write(t, filepath.Join(run, "notes.txt"), "somebody's")
	s = open(t, dir, Options{})
	if content(t, s, id) != "old" || ids(s.Steps("r", Filter{})) != "train-1.0" {
		t.Error("the step is another one")
	}
	var names []string
	list, _ := os.ReadDir(run)
	for _, d := range list {
		names = append(names, d.Name())
	}
	if got := strings.Join(names, " "); got != "index.cache notes.txt run.json train-000001.0."+sum([]byte("old"))+".rtc train-000001.0.json" {
		t.Error(got)
	}
}

func TestACopiedDirectoryIsNotReadAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	for id := range int64(3) {
		put(t, s, step("r", id, "a"), "c")
	}
	s.Close()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	// Behind its checksum a record may be anything now: nobody looks.
	path := filepath.Join(to, "r", "train-000001.0.json")
	b, _ := os.ReadFile(path)
	b[len(b)-3] = '!'
	write(t, path, string(b))
	s = open(t, to, Options{ReadOnly: true})
	if got := ids(s.Steps("r", Filter{})); got != "train-0.0 train-1.0 train-2.0" {
		t.Error(got)
	}
}

func TestTheCacheIsWrittenAnew(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	id := put(t, s, step("r", 1, "a"), "c")
	for range 150 {
		if err := s.MarkPublished(id, "tensorboard", ""); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "r", cacheName))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("\n")); n > 80 {
		t.Errorf("%d lines for one step", n)
	}
	entries, keys, _, sound := readCache(filepath.Join(dir, "r", cacheName))
	if len(entries) != 1 || len(keys.names) != 4 || !sound {
		t.Error(len(entries), len(keys.names), sound)
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("prefix/", 40)
	dir := t.TempDir()
	s := open(t, dir, Options{})
	names := []string{"qwen3-4B", "a/b", "../../etc", ".hidden", "ünï 训练", "100%", "%41", "A", "a", long + "1", long + "2", "x\ny", "CON", "a.b_c-d"}
	for i, n := range names {
		put(t, s, step(n, int64(i), "a"), n)
	}
	if err := s.PutRun(Run{Name: "empty", Pattern: "/d/rollout_{rollout_id}.pt", GPUs: 8}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	list, _ := os.ReadDir(dir)
	for _, d := range list {
		if len(d.Name()) > 255 || strings.ContainsAny(d.Name(), "/\n ") {
			t.Errorf("directory %q", d.Name())
		}
	}
	if len(list) != len(names)+1 {
		t.Errorf("%d directories for %d runs", len(list), len(names)+1)
	}
	s = open(t, dir, Options{})
	for i, n := range names {
		id := ID{Run: n, RolloutID: int64(i)}
		if content(t, s, id) != n {
			t.Errorf("%q", n)
		}
		back, err := ParseID(id.String())
		if err != nil || back != id {
			t.Errorf("%q: %v, %v", id, back, err)
		}
	}
	if r, err := s.Run("empty"); err != nil || r.GPUs != 8 || !r.Created.Equal(t0) {
		t.Error(r, err)
	}
	for _, bad := range []string{"", "r", "r/", "r/train", "r/train-", "r/train-x", "r/test-1", "r/train--1", "r/train-1.x", "r/train-1.-1", "/train-1", "%zz/train-1", "r/train-+1", "r/train-1.99999999999"} {
		if id, err := ParseID(bad); err == nil {
			t.Errorf("%q is read as %v", bad, id)
		}
	}
	if id, err := ParseID("r/eval-7"); err != nil || id != (ID{"r", rollout.Eval, 7, Newest}) {
		t.Error(id, err)
	}
}

func TestPrune(t *testing.T) {
	now := t0.Add(10 * time.Minute)
	s := open(t, t.TempDir(), Options{Now: func() time.Time { return now }})
	for id := range int64(10) {
		put(t, s, step("r", id, "a"), strings.Repeat("c", 1000))
	}
	for _, p := range []string{"b", "c"} {
		put(t, s, step("r", 9, p), "c")
	}
	got, err := s.Prune(Retention{Attempts: 2})
	if err != nil || len(got) != 1 || got[0].String() != "r/train-9.0" {
		t.Error(got, err)
	}
	got, err = s.Prune(Retention{MaxAge: 8 * time.Minute})
	if err != nil || fmt.Sprint(got) != "[r/train-0.0 r/train-1.0]" {
		t.Error(got, err)
	}
	r, _ := s.Run("r")
	got, err = s.Prune(Retention{MaxBytes: r.Bytes - 1})
	if err != nil || fmt.Sprint(got) != "[r/train-2.0]" {
		t.Error(got, err)
	}
	if got, err := s.Prune(Retention{}); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
	if files, _ := filepath.Glob(filepath.Join(s.Dir(), "r", "train-*")); len(files) != 2*8 {
		t.Error(files)
	}
}

func TestSubscribers(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	var got []string
	cancel := s.Subscribe(func(c Change) {
		// The change is there when it is told.
		_, err := s.Find(c.ID)
		got = append(got, fmt.Sprint(c.What, " ", c.ID, " ", err == nil))
	})
	id := put(t, s, step("r", 1, "a"), "c")
	put(t, s, step("r", 1, "a"), "d")
	if err := s.MarkPublished(id, "t", ""); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(id); err != nil {
		t.Fatal(err)
	}
	cancel()
	put(t, s, step("r", 2, "a"), "c")
	want := []string{"1 r/train-1.0 true", "2 r/train-1.0 true", "2 r/train-1.0 true", "3 r/train-1.0 false"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestConcurrentUse is for the race detector, and for what readers see while steps come and go.
func TestConcurrentUse(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	done := make(chan error, 3)
	stop := make(chan struct{})
	for range 3 {
		go func() {
			for {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				for _, sum := range s.Steps("r", Filter{Attempts: true}) {
					st, err := s.Step(sum.ID)
					if errors.Is(err, ErrNotFound) {
						continue
					}
					if err != nil || st.ID != sum.ID || len(st.Metrics) != 4 {
						done <- fmt.Errorf("%v: %v", st.ID, err)
						return
					}
				}
				s.Curves("r", Filter{}, "perf/rollout_time")
				s.Runs()
			}
		}()
	}
	for i := range int64(40) {
		id := put(t, s, step("r", i%7, fmt.Sprint(i)), "c")
		if i%5 == 4 {
			if err := s.Delete(id); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestFilesThatGoWhileTheyAreOpened: a step whose files go between finding and opening them is looked for again,
// and is not taken for a damaged one.
func TestFilesThatGoWhileTheyAreOpened(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	put(t, s, step("r", 1, "a"), "one")
	id := put(t, s, step("r", 1, "b"), "two")
	once := func(change func()) {
		s.found = func() {
			s.found = nil
			change()
		}
	}
	once(func() { put(t, s, step("r", 1, "b"), "another") })
	if got := content(t, s, id); got != "another" {
		t.Errorf("a replaced timeline is %q", got)
	}
	once(func() {
		if _, err := s.Put(step("r", 1, "b"), nil); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := s.Container(id); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged) {
		t.Errorf("a timeline that went with a new analysis: %v", err)
	}
	drop := func() {
		if err := s.Delete(id); err != nil {
			t.Fatal(err)
		}
	}
	newest := ID{Run: "r", RolloutID: 1, Attempt: Newest}
	once(drop)
	if st, err := s.Step(newest); err != nil || st.ID.Attempt != 0 || st.Dump.Fingerprint != "a" {
		t.Errorf("the newest attempt when it was deleted: %+v, %v", st.ID, err)
	}
	put(t, s, step("r", 1, "b"), "two")
	once(drop)
	if got := content(t, s, newest); got != "one" {
		t.Errorf("the newest timeline when it was deleted is %q", got)
	}
	put(t, s, step("r", 1, "b"), "two")
	for _, read := range []func() error{
		func() error { _, err := s.Step(id); return err },
		func() error { _, err := s.Container(id); return err },
	} {
		once(drop)
		if err := read(); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrDamaged) {
			t.Errorf("a step that was deleted: %v", err)
		}
		put(t, s, step("r", 1, "b"), "two")
	}
	// Deleted and put again under the same name, both between a look at its file and one at the index.
	looks := 0
	if _, err := s.openFile(id, func(string, *entry) error {
		if looks++; looks == 1 {
			drop()
			put(t, s, step("r", 1, "b"), "two")
			return os.ErrNotExist
		}
		return nil
	}); err != nil || looks != 2 {
		t.Errorf("put again: %d looks, %v", looks, err)
	}
	// What somebody took away is damage.
	for _, pattern := range []string{"train-000001.1.json", "train-000001.1.*.rtc"} {
		files, _ := filepath.Glob(filepath.Join(dir, "r", pattern))
		if len(files) != 1 || os.Remove(files[0]) != nil {
			t.Fatal(files)
		}
	}
	if _, err := s.Step(id); !errors.Is(err, ErrDamaged) {
		t.Errorf("without its record: %v", err)
	}
	if _, err := s.Container(id); !errors.Is(err, ErrDamaged) {
		t.Errorf("without its timeline: %v", err)
	}
}

func TestMetricsAsJSON(t *testing.T) {
	in := []Metric{{Key: "a", Value: math.NaN()}, {Key: "b", Value: math.Inf(1), State: Partial}, {Key: "c", State: Idle, Value: 7}, {Key: "d", Value: 0}}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if want := `[{"k":"a","s":"unknown","n":"the value was not finite"},{"k":"b","s":"unknown","n":"the value was not finite"},{"k":"c","s":"idle"},{"k":"d","v":0}]`; string(b) != want {
		t.Errorf("%s", b)
	}
	var out []Metric
	if err := json.Unmarshal([]byte(`[{"k":"a","s":"new state","v":1},{"k":"b"}]`), &out); err != nil {
		t.Fatal(err)
	}
	if out[0].State != Unknown || out[0].Value != 0 || out[1].State != Unknown {
		t.Errorf("%+v", out)
	}
	got := FromRollout([]rollout.Metric{{Key: "x", Value: 2, State: rollout.MetricPartial, Unit: "s", Note: "n", Derived: true}, {State: rollout.MetricIdle}, {State: rollout.MetricUnknown}})
	if got[0] != (Metric{"x", 2, Partial, true, "s", "n"}) || got[1].State != Idle || got[2].State != Unknown {
		t.Errorf("%+v", got)
	}
}
