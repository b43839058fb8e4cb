package metricstore

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func countIn(t *testing.T, dir string, at time.Time) float64 {
	t.Helper()
	a := openArchive(t, dir)
	defer a.Close()
	for _, n := range a.Notices() {
		if n.Code != "live" {
			t.Errorf("the copy: %+v", n)
		}
	}
	for _, v := range eval(t, a.Engine(), a.Queryable(), `count_over_time(sglang:num_running_reqs[30d])`, at) {
		return v
	}
	return 0
}

func TestSnapshot(t *testing.T) {
	from := time.Unix(1780000000, 0)
	end := from.Add(12 * time.Hour)
	o := testOptions(t, end)
	s := openStore(t, o)
	to := filepath.Join(t.TempDir(), "copy")
	series := `sglang:num_running_reqs{instance="e1"}`
	for i := range 12 * 60 {
		appendPoints(t, s.Appendable(), point{series, from.Add(time.Duration(i) * time.Minute).UnixMilli(), float64(i)})
		if i%240 == 239 {
			if err := s.DB().Compact(context.Background()); err != nil {
				t.Fatal(err)
			}
			if err := s.SnapshotInto(context.Background(), to); err != nil {
				t.Fatal(err)
			}
			if got := countIn(t, to, end); got != float64(i+1) {
				t.Errorf("the copy has %v samples, want %d", got, i+1)
			}
		}
	}
	// out of order, beside the log
	appendPoints(t, s.Appendable(), point{series, end.Add(-3*time.Minute + time.Second).UnixMilli(), 1})
	if err := s.SnapshotInto(context.Background(), to); err != nil {
		t.Fatal(err)
	}
	if got := countIn(t, to, end); got != 721 {
		t.Errorf("with one out of order: %v", got)
	}
	own, _ := filepath.Glob(filepath.Join(o.Dir, "01*"))
	copied, _ := filepath.Glob(filepath.Join(to, "01*"))
	if len(own) != len(copied) {
		t.Errorf("%d blocks, %d in the copy: replaced ones must go", len(own), len(copied))
	}
	if err := s.SnapshotInto(context.Background(), filepath.Join(o.Dir, "inside")); err == nil {
		t.Error("a copy inside the data directory was made")
	}

	// The machine's memory is lost: the next job starts empty and copies to the same place.
	second := testOptions(t, end.Add(time.Hour))
	s2 := openStore(t, second)
	for i := range 30 {
		appendPoints(t, s2.Appendable(), point{series, end.Add(time.Duration(i) * time.Minute).UnixMilli(), 1})
	}
	if err := s2.SnapshotInto(context.Background(), to); err != nil {
		t.Fatal(err)
	}
	if got := countIn(t, to, end.Add(time.Hour)); got != 751 {
		t.Errorf("over two stores: %v samples, want 751", got)
	}
}

func TestSnapshotOfRepairedLog(t *testing.T) {
	from := time.Unix(1780000000, 0)
	o := testOptions(t, from.Add(time.Hour))
	s := openStore(t, o)
	to := t.TempDir()
	write := func(s *Store, a, b int) {
		for i := a; i < b; i++ {
			appendPoints(t, s.Appendable(), point{`sglang:num_running_reqs{instance="e1"}`, from.Add(time.Duration(i) * time.Second).UnixMilli(), float64(i)})
		}
	}
	write(s, 0, 50)
	if err := s.SnapshotInto(context.Background(), to); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// The log loses its end, and is written on.
	segs, _ := filepath.Glob(filepath.Join(o.Dir, "wal", "0*"))
	for _, seg := range segs {
		if st, err := os.Stat(seg); err == nil && st.Size() > 0 {
			if err := os.Truncate(seg, 900); err != nil {
				t.Fatal(err)
			}
		}
	}
	again := testOptions(t, from.Add(time.Hour))
	again.Dir = o.Dir
	s = openStore(t, again)
	write(s, 50, 60)
	want := 0.0
	for _, v := range eval(t, s.Engine(), s.Queryable(), `count_over_time(sglang:num_running_reqs[1h])`, from.Add(time.Minute)) {
		want = v
	}
	if err := s.SnapshotInto(context.Background(), to); err != nil {
		t.Fatal(err)
	}
	if got := countIn(t, to, from.Add(time.Minute)); got != want || want < 20 {
		t.Errorf("the copy has %v samples, the store %v", got, want)
	}
}

func TestSnapshotWhileRunning(t *testing.T) {
	from := time.Unix(1780000000, 0)
	o := testOptions(t, from.Add(time.Hour))
	o.SnapshotTo = filepath.Join(t.TempDir(), "copy")
	o.SnapshotEvery = time.Hour
	s := openStore(t, o)
	appendPoints(t, s.Appendable(), point{`sglang:num_running_reqs{instance="e1"}`, from.UnixMilli(), 1})
	if err := os.MkdirAll(filepath.Dir(MeaningFile(o.Dir)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(MeaningFile(o.Dir), []byte("rollscope: {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // copies once more
		t.Fatal(err)
	}
	if b, err := os.ReadFile(MeaningFile(o.SnapshotTo)); err != nil || string(b) != "rollscope: {}\n" {
		t.Errorf("what the series mean is %q in the copy, %v", b, err)
	}
	if got := countIn(t, o.SnapshotTo, from); got != 1 {
		t.Errorf("the copy has %v samples after an orderly stop", got)
	}
}

// atStep does something at one of the moments at which a copier asks whether it may go on.
type atStep struct {
	context.Context
	left int
	do   func()
}

func (c *atStep) Err() error {
	if c.left--; c.left == -1 {
		c.do()
	}
	return c.Context.Err()
}

// Whenever the store makes blocks and cuts its log off while it is copied, the copy is whole.
func TestSnapshotWhileTheStoreCompacts(t *testing.T) {
	const series = `sglang:num_running_reqs{instance="e1"}`
	from := time.Unix(1780000000, 0)
	end := from.Add(16 * time.Hour)
	for step, reached := 0, true; reached; step += 6 { // of some two dozen
		s := openStore(t, testOptions(t, end))
		to, n := filepath.Join(t.TempDir(), "copy"), 0
		write := func(hours int) {
			for range hours * 12 {
				appendPoints(t, s.Appendable(), point{series, from.Add(time.Duration(n) * 5 * time.Minute).UnixMilli(), float64(n)})
				n++
			}
		}
		compact := func() {
			if err := s.DB().Compact(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			write(4)
			compact()
		}
		if err := s.SnapshotInto(context.Background(), to); err != nil {
			t.Fatal(err)
		}
		write(4)
		compact()
		write(4)
		reached = false
		ctx := &atStep{context.Background(), step, func() { reached = true; compact() }} // makes a checkpoint, and of several blocks one
		if err := s.SnapshotInto(ctx, to); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if got := countIn(t, to, end); got != float64(n) {
			t.Errorf("compacted at step %d: the copy has %v samples, want %d", step, got, n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if !reached && step < 12 {
			t.Errorf("a copier asks %d times only", step)
		}
	}
}
