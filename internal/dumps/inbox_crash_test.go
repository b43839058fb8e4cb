package dumps

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What is done before, between and after each crash.
func crashRollout() []message {
	return []message{
		{rollout: 7, upload: "a", samples: []int{1, 2}},
		{rollout: 7, upload: "b", samples: []int{5}},
		{rollout: 7, upload: "a", part: 1, final: true, samples: []int{3}},
		{rollout: 7, upload: "b", part: 1, final: true, samples: []int{6}},
	}
}

func TestInboxCrashes(t *testing.T) {
	crash := errors.New("crash")
	points := map[string]bool{}
	for k, done := 0, false; !done; k++ {
		x := newBox(t, nil)
		n, at := 0, ""
		x.stop = func(point string) error {
			if at == "" && n == k {
				at = point
			}
			n++
			if at != "" {
				return crash
			}
			return nil
		}
		var again []message // those without an answer
		for _, m := range crashRollout() {
			if at != "" {
				again = append(again, m)
				continue
			}
			if _, err := x.Take(context.Background(), strings.NewReader(m.body())); err != nil {
				again = append(again, m)
			}
		}
		if at == "" {
			x.after(time.Minute)
		}
		points[at] = true
		x.reopen()
		x.after(0) // nothing is closed because of the restart
		for _, m := range append(again, crashRollout()...) {
			x.take(m)
		}
		x.after(time.Minute)
		x.after(time.Minute)
		if at == "received" { // and told so, but that was not written down
			equal(t, len(x.got), 2)
			x.got = x.got[1:]
		}
		t.Logf("crash %d: %s", k, at)
		x.want("r/rollout_7.pt [1 2 3 5 6]")
		x.idle()
		if files := x.files(); !slices.Equal(files, []string{"r/rollout_7.pt", "r/train-7/attempt-000.json"}) {
			t.Error(files)
		}
		if t.Failed() {
			return
		}
		done = at == ""
	}
	for _, p := range []string{"batch written", "batch stored", "closed", "dump written", "dump in place", "batch removed", "received", ""} {
		if !points[p] {
			t.Errorf("no crash at %q", p)
		}
	}
}

// A rollout that is closed without its end, then opened again: a crash anywhere leaves all samples in
// the last dump, and no more dumps than without one, but for a restart of the whole.
func TestInboxCrashesOfALongRollout(t *testing.T) {
	crash := errors.New("crash")
	points := map[string]bool{}
	for k, done := 0, false; !done; k++ {
		x := newBox(t, nil)
		n, at := 0, ""
		x.stop = func(point string) error {
			if at == "" && n == k {
				at = point
			}
			n++
			if at != "" {
				return crash
			}
			return nil
		}
		taken := 0
		steps := []func() bool{
			func() bool { return x.tries(message{rollout: 7, upload: "a", samples: []int{1}}) },
			func() bool { return x.tries(message{rollout: 7, upload: "b", final: true, samples: []int{5}}) },
			func() bool { x.after(20 * time.Minute); return at == "" },
			func() bool { return x.tries(message{rollout: 7, upload: "a", part: 1, final: true, samples: []int{2}}) },
			func() bool { x.after(time.Minute); return at == "" },
		}
		for taken < len(steps) && steps[taken]() {
			taken++
		}
		points[at] = true
		x.reopen()
		x.stop = nil
		x.after(0)
		for ; taken < len(steps); taken++ { // the step that was cut short, again, and what comes after it
			if !steps[taken]() && at == "" {
				t.Fatal("a step failed without a crash")
			}
		}
		x.after(time.Hour)
		t.Logf("crash %d: %s", k, at)
		last := x.got[len(x.got)-1]
		if got := indexes(t, last.Path); !slices.Equal(got, []int{1, 2, 5}) || last.Incomplete {
			t.Errorf("%v %+v", got, last)
		}
		paths := map[string]bool{}
		for _, d := range x.got {
			paths[d.Path] = true
		}
		if len(paths) > 2 || len(x.got) > 3 {
			t.Errorf("%+v", x.got)
		}
		x.idle()
		if t.Failed() {
			return
		}
		done = at == ""
	}
	for _, p := range []string{"batch written", "batch stored", "superseded", "closed", "dump in place", "received", "batch removed", ""} {
		if !points[p] {
			t.Errorf("no crash at %q", p)
		}
	}
}

// tries posts a batch and says whether it was taken.
func (x *box) tries(m message) bool {
	_, err := x.Take(context.Background(), strings.NewReader(m.body()))
	return err == nil
}

func TestInboxDamage(t *testing.T) {
	const part = "r/train-7/u-u/part-000000.batch"
	for name, change := range map[string]func(t *testing.T, path string){
		"cut in the block":   func(t *testing.T, p string) { truncate(t, p, 100) },
		"cut in the body":    func(t *testing.T, p string) { truncate(t, p, blockSize+10) },
		"empty":              func(t *testing.T, p string) { truncate(t, p, 0) },
		"longer":             func(t *testing.T, p string) { truncate(t, p, 100_000) },
		"a bit of the block": func(t *testing.T, p string) { flip(t, p, 30) },
		"a bit of the body":  func(t *testing.T, p string) { flip(t, p, blockSize+200) },
		"removed":            func(t *testing.T, p string) { remove(t, p) },
		"in another place": func(t *testing.T, p string) {
			if err := os.Rename(p, strings.Replace(p, "000000", "000009", 1)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, closed := range []bool{false, true} { // when the crash was
				x := newBox(t, nil)
				x.take(message{rollout: 7, samples: []int{1, 2}})
				x.take(message{rollout: 7, part: 1, final: true, samples: []int{3}})
				if closed {
					x.stop = func(point string) error {
						if point == "closed" {
							return errors.New("crash")
						}
						return nil
					}
					x.after(time.Minute)
				}
				change(t, filepath.Join(x.dir, part))
				x.reopen()
				x.after(time.Hour)
				x.want("r/rollout_7.pt [3] missing 1 incomplete")
				x.release()
				x.idle()
				left := slices.ContainsFunc(x.files(), func(f string) bool { return strings.HasSuffix(f, ".batch.damaged") })
				if name != "removed" && (!left || x.Dropped()[droppedDamaged] == 0) {
					t.Error(x.files(), x.Dropped())
				}
			}
		})
	}
	t.Run("all of a rollout", func(t *testing.T) {
		x := newBox(t, nil)
		x.take(message{rollout: 7, final: true, samples: []int{1, 2}})
		flip(t, filepath.Join(x.dir, part), blockSize+200)
		x.after(time.Minute)
		x.want()
		x.idle()
	})
	t.Run("the record", func(t *testing.T) {
		x := newBox(t, nil)
		x.take(message{rollout: 7, final: true, samples: []int{1, 2}})
		x.after(time.Minute)
		flip(t, filepath.Join(x.dir, "r/train-7/attempt-000.json"), 30)
		x.reopen()
		equal(t, x.Dropped()[droppedDamaged], 1)
		x.take(message{rollout: 7, final: true, samples: []int{1, 2}})
		x.after(time.Minute)
		x.want("r/rollout_7.pt [1 2]", "r/rollout_7.attempt1.pt [1 2]")
	})
	t.Run("what is not ours", func(t *testing.T) {
		x := newBox(t, nil)
		x.take(message{rollout: 7, samples: []int{1}})
		for _, f := range []string{"notes.txt", "r/notes.txt", "r/train-7/notes.txt", "r/train-7/u-u/notes.txt", ".tmp/body-1"} {
			if err := os.WriteFile(filepath.Join(x.dir, f), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		x.reopen()
		x.take(message{rollout: 7, part: 1, final: true})
		x.after(time.Minute)
		x.want("r/rollout_7.pt [1]")
		if files := x.files(); len(files) != 6 {
			t.Error(files)
		}
	})
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func flip(t *testing.T, path string, at int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 4
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// killedDir tells TestInboxKilled that it is the process to be killed, and where its inbox is.
const killedDir = "ROLLSCOPE_TEST_KILLED_INBOX"

const killedParts = 3

// postUntilKilled posts rollouts from a number on and prints each batch that was taken.
func postUntilKilled(dir string, first int64) error {
	b, err := OpenInbox(dir, InboxOptions{Linger: -1, MinFree: -1, MaxRollouts: 1 << 20, MaxBatches: 1 << 20})
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Millisecond)
	go b.Run(context.Background(), tick.C)
	for id := first; ; id++ {
		for part := range killedParts {
			m := message{rollout: id, part: part, final: part == killedParts-1, samples: []int{part}}
			if _, err := b.Take(context.Background(), strings.NewReader(m.body())); err != nil {
				return err
			}
			if _, err := fmt.Printf("taken %d %d\n", id, part); err != nil {
				return err
			}
		}
	}
}

func TestInboxKilled(t *testing.T) {
	if dir := os.Getenv(killedDir); dir != "" {
		at, err := strconv.ParseInt(filepath.Base(dir), 10, 64)
		if err == nil {
			err = postUntilKilled(filepath.Dir(dir), at)
		}
		t.Fatal(err)
	}
	x := newBox(t, func(o *InboxOptions) { o.MaxRollouts = 1 << 20 })
	taken := map[[2]int64]bool{}
	for round := range int64(3) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestInboxKilled$")
		cmd.Env = append(os.Environ(), killedDir+"="+filepath.Join(x.dir, strconv.FormatInt(round*1_000_000, 10)))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); {
			var id, part int64
			if _, err := fmt.Sscanf(lines.Text(), "taken %d %d", &id, &part); err != nil {
				continue
			}
			taken[[2]int64{id, part}] = true
			if n++; n == 20+7*int(round) { // what it printed until it is dead counts, too
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || len(taken) < 20 {
			t.Fatalf("%v, %d batches taken", err, len(taken))
		}
	}
	x.reopen()
	x.now.Store(max(x.now.Load(), time.Now().UnixNano()) + int64(time.Hour)) // the killed process had the real clock
	x.after(time.Hour)
	x.release()
	x.idle()
	equal(t, x.Dropped()[droppedDamaged], 0)
	for _, f := range x.files() {
		if !strings.HasSuffix(f, ".pt") {
			continue
		}
		id, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(f)[len("rollout_"):], ".pt"), 10, 64)
		if err != nil {
			t.Fatal(f, err) // an attempt: a rollout was written twice
		}
		for _, part := range indexes(t, filepath.Join(x.dir, f)) {
			delete(taken, [2]int64{id, int64(part)})
		}
	}
	if len(taken) > 0 {
		t.Errorf("taken and lost: %v", taken)
	}
}
