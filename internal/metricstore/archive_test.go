package metricstore

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
)

func openArchive(t testing.TB, dir string) *Archive {
	t.Helper()
	a, err := OpenArchive(context.Background(), ArchiveOptions{Dir: dir, TempDir: t.TempDir(), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(a.opts.TempDir); len(left) > 0 {
			t.Errorf("left in the temporary directory: %v", left)
		}
	})
	return a
}

// checksum hashes names, sizes, modes, times and bytes below dir.
func checksum(t testing.TB, dir string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(h, path, st.Size(), st.Mode(), st.ModTime().UnixNano())
		if !e.IsDir() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			h.Write(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// writeRun writes a run of samples: blocks of two hours and a log of the rest.
func writeRun(t testing.TB, dir string, from time.Time, hours int, names ...string) {
	t.Helper()
	o := testOptions(t, from.Add(time.Duration(hours)*time.Hour))
	o.Dir = dir
	s, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range hours * 60 {
		at := from.Add(time.Duration(i) * time.Minute)
		var ps []point
		for _, n := range names {
			ps = append(ps, point{n + `{job="sglang",instance="e1"}`, at.UnixMilli(), float64(i)})
		}
		ps = append(ps, point{`up{job="sglang",instance="e1"}`, at.UnixMilli(), 1})
		appendPoints(t, s.Appendable(), ps...)
		if i%120 == 119 {
			if err := s.DB().Compact(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestArchiveOfFinishedRun(t *testing.T) { // case T03
	dir := t.TempDir()
	o := testOptions(t, time.Unix(1779966300, 0))
	o.Dir = dir
	s := openStore(t, o)
	appendPoints(t, s.Appendable(), readExposition(t, filepath.Join("testdata", "T03", "run.om"), 0)...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := checksum(t, dir)
	readOnly(t, dir)
	ro := checksum(t, dir)

	a := openArchive(t, dir)
	rec, err := Coverage(context.Background(), a.Queryable())
	if err != nil {
		t.Fatal(err)
	}
	want := Recording{First: time.Date(2026, 5, 28, 11, 0, 0, 0, time.UTC), Last: time.Date(2026, 5, 28, 11, 5, 0, 0, time.UTC)}
	if !rec.First.Equal(want.First) || !rec.Last.Equal(want.Last) || len(rec.Gaps) != 0 {
		t.Errorf("coverage %+v, want %+v", rec, want)
	}
	got := eval(t, a.Engine(), a.Queryable(), `count_over_time(sglang:num_running_reqs[10m])`, want.Last)
	if got[`{instance="e1"}`] != 21 {
		t.Errorf("read %v, want 21 samples", got)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if checksum(t, dir) != ro || before == "" {
		t.Error("reading changed the directory")
	}
}

// readOnly takes the write permission off everything below dir.
func readOnly(t testing.TB, dir string) {
	t.Helper()
	chmod := func(file, d fs.FileMode) {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				return os.Chmod(path, d)
			} else if err == nil {
				return os.Chmod(path, file)
			}
			return nil
		})
	}
	chmod(0o444, 0o555)
	t.Cleanup(func() { chmod(0o644, 0o755) })
}

// readOnlyMount is what the child of TestArchiveOnReadOnlyMount does.
func readOnlyMount(dir string) {
	if err := os.WriteFile(filepath.Join(dir, "probe"), nil, 0o644); err == nil {
		fmt.Println("writable")
		return
	}
	a, err := OpenArchive(context.Background(), ArchiveOptions{Dir: dir, Registerer: prometheus.NewRegistry()})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	rec, err := Coverage(context.Background(), a.Queryable())
	fmt.Println("covers", rec.Last.Sub(rec.First), err)
	if err := a.Close(); err != nil {
		fmt.Println("error", err)
	}
}

func TestArchiveOnReadOnlyMount(t *testing.T) { // case T03
	dir := t.TempDir()
	writeRun(t, dir, time.Unix(1780000000, 0), 3, "sglang:num_running_reqs")
	script := fmt.Sprintf("mount --bind %[1]s %[1]s && mount -o remount,ro,bind %[1]s && exec %[2]s", dir, os.Args[0])
	cmd := exec.Command("unshare", "--mount", "--map-root-user", "sh", "-c", script)
	cmd.Env = append(os.Environ(), "ROLLSCOPE_TEST_READER="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Skipf("no mount can be made here: %v: %s", err, out)
	}
	if got := strings.TrimSpace(string(out)); got != "covers 2h59m0s <nil>" {
		t.Errorf("on a read-only mount: %s", got)
	}
}

func TestArchiveOfBlocksAndLog(t *testing.T) {
	dir := t.TempDir()
	from := time.Unix(1780000000, 0)
	writeRun(t, dir, from, 7, "sglang:num_running_reqs")
	before := checksum(t, dir)
	a := openArchive(t, dir)
	if n := len(a.BlockMetas()); n < 2 {
		t.Fatalf("%d blocks, want at least 2", n)
	}
	var wg sync.WaitGroup
	for range 8 { // concurrent queries
		wg.Go(func() {
			got := eval(t, a.Engine(), a.Queryable(), `count_over_time(sglang_num_running_reqs[7h])`, from.Add(7*time.Hour-time.Minute))
			for _, v := range got {
				if v != 420 {
					t.Errorf("%v samples, want 420", v)
				}
			}
			if len(got) != 1 {
				t.Errorf("%d series", len(got))
			}
		})
	}
	wg.Wait()
	if err := a.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	if checksum(t, dir) != before {
		t.Error("reading changed the directory")
	}
}

func TestArchiveWhileWritten(t *testing.T) {
	from := time.Unix(1780000000, 0)
	o := testOptions(t, from.Add(time.Hour))
	s := openStore(t, o)
	series := `sglang:num_running_reqs{instance="e1"}`
	appendPoints(t, s.Appendable(), point{series, from.UnixMilli(), 1})
	a := openArchive(t, o.Dir)
	live := false
	for _, n := range a.Notices() {
		live = live || n.Code == "live" && strings.Contains(n.Message, fmt.Sprint(os.Getpid()))
	}
	if !live {
		t.Errorf("the writer is not named in %v", a.Notices())
	}
	count := func() float64 {
		for _, v := range eval(t, a.Engine(), a.Queryable(), `count_over_time(sglang:num_running_reqs[1h])`, from.Add(time.Minute)) {
			return v
		}
		return 0
	}
	if count() != 1 {
		t.Fatalf("count %v, want 1", count())
	}
	appendPoints(t, s.Appendable(), point{series, from.Add(time.Second).UnixMilli(), 2})
	q, err := a.Queryable().Querier(math.MinInt64/2, math.MaxInt64/2)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	if count() != 2 {
		t.Errorf("count after Refresh %v, want 2", count())
	}
	// A reader that began before the refresh still reads.
	set := q.Select(context.Background(), false, nil, labels.MustNewMatcher(labels.MatchEqual, "__name__", "sglang:num_running_reqs"))
	if !set.Next() || set.Err() != nil {
		t.Error("the old view is gone under its reader")
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

func TestDamagedArchive(t *testing.T) {
	from := time.Unix(1780000000, 0)
	whole := t.TempDir()
	writeRun(t, whole, from, 7, "sglang:num_running_reqs")
	blocks, _ := filepath.Glob(filepath.Join(whole, "01*"))
	if len(blocks) < 2 {
		t.Fatalf("%d blocks", len(blocks))
	}
	first := filepath.Base(blocks[0])
	segs, _ := filepath.Glob(filepath.Join(whole, "wal", "0*"))
	lastSeg := ""
	for _, s := range segs {
		if st, err := os.Stat(s); err == nil && st.Size() > 0 {
			lastSeg = s
		}
	}
	rel, _ := filepath.Rel(whole, lastSeg)

	cases := []struct {
		name    string
		harm    func(dir string) error
		notice  string // code of the notice, "" none
		atLeast float64
		fails   string
	}{
		{"whole", func(string) error { return nil }, "", 420, ""},
		{"garbage meta.json", func(d string) error { return os.WriteFile(filepath.Join(d, first, "meta.json"), []byte("{"), 0o644) }, "damaged_block", 200, ""},
		{"no meta.json", func(d string) error { return os.Remove(filepath.Join(d, first, "meta.json")) }, "damaged_block", 200, ""},
		{"missing chunk file", func(d string) error { return os.Remove(filepath.Join(d, first, "chunks", "000001")) }, "damaged_block", 200, ""},
		{"cut chunk file", func(d string) error { return os.Truncate(filepath.Join(d, first, "chunks", "000001"), 20) }, "damaged_block", 200, ""},
		{"flipped bit in a chunk", func(d string) error { return flip(filepath.Join(d, first, "chunks", "000001"), 40) }, "damaged_chunk", 200, ""},
		{"cut index", func(d string) error { return os.Truncate(filepath.Join(d, first, "index"), 100) }, "damaged_block", 200, ""},
		{"empty index", func(d string) error { return os.Truncate(filepath.Join(d, first, "index"), 0) }, "damaged_block", 200, ""},
		{"torn end of the log", func(d string) error { return cut(filepath.Join(d, rel), 7) }, "", 410, ""},
		{"flipped bit early in the log", func(d string) error { return flip(filepath.Join(d, rel), 200) }, "damaged_log", 200, ""},
		{"no log", func(d string) error { return os.RemoveAll(filepath.Join(d, "wal")) }, "", 200, ""},
		{"nothing at all", func(d string) error {
			es, _ := os.ReadDir(d)
			for _, e := range es {
				if err := os.RemoveAll(filepath.Join(d, e.Name())); err != nil {
					return err
				}
			}
			return nil
		}, "", 0, "holds no blocks"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			if err := c.harm(dir); err != nil {
				t.Fatal(err)
			}
			before := checksum(t, dir)
			if c.fails != "" {
				_, err := OpenArchive(context.Background(), ArchiveOptions{Dir: dir, Registerer: prometheus.NewRegistry()})
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("error %v, want %q", err, c.fails)
				}
				return
			}
			a := openArchive(t, dir)
			var got float64
			for _, v := range eval(t, a.Engine(), a.Queryable(), `count_over_time(sglang:num_running_reqs[7h])`, from.Add(7*time.Hour-time.Minute)) {
				got = v
			}
			if got < c.atLeast {
				t.Errorf("%v samples, want at least %v", got, c.atLeast)
			}
			found := ""
			for _, n := range a.Notices() {
				found = n.Code
			}
			if found != c.notice {
				t.Errorf("notices %v, want %q", a.Notices(), c.notice)
			}
			if checksum(t, dir) != before {
				t.Error("reading changed the directory")
			}
		})
	}
}

func flip(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	b[0] ^= 0x10
	_, err = f.WriteAt(b, at)
	return err
}

func cut(path string, n int64) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, st.Size()-n)
}
