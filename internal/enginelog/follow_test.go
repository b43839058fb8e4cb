package enginelog

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/request"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a sink that keeps the lines.
type memory struct {
	mu    sync.Mutex
	lines []string
	rows  []event.Row
	obs   []request.Observation
	fail  int // how many calls are refused first
	calls int
	block chan struct{}
}

func (m *memory) take(ctx context.Context, rows []event.Row, obs []request.Observation) error {
	if m.block != nil {
		select {
		case <-m.block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if m.fail > 0 {
		m.fail--
		return errors.New("the store is busy")
	}
	for _, r := range rows {
		m.lines = append(m.lines, r.Message)
		m.rows = append(m.rows, r)
	}
	m.obs = append(m.obs, obs...)
	return nil
}

func (m *memory) got() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.lines...)
}

// following starts a Follower and returns what stops it.
func following(t *testing.T, o FollowOptions) (*Follower, func()) {
	t.Helper()
	o.Poll, o.Rescan, o.Drain = time.Millisecond, 2*time.Millisecond, 20*time.Millisecond
	if o.Partial == 0 {
		o.Partial = 50 * time.Millisecond
	}
	f, err := NewFollower(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return f, stop
}

// until waits for a state that must come.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "[2026-09-13 16:06:%02d] line %06d of a log that is long enough to have a fingerprint of its own\n", i%60, i)
	}
	return b.String()
}

// complete checks that every line from..to is there, and tells how many came twice.
func complete(t *testing.T, lines []string, to int) (twice int) {
	t.Helper()
	seen := make([]int, to)
	for _, l := range lines {
		_, rest, ok := strings.Cut(l, "] line ")
		if !ok {
			t.Errorf("a line that nobody wrote: %q", l)
			continue
		}
		n := atoi(strings.TrimLeft(rest[:6], "0"))
		if n < to {
			seen[n]++
		}
	}
	for i, n := range seen {
		if n == 0 {
			t.Errorf("line %d is missing", i)
		}
		if n > 1 {
			twice++
		}
	}
	return twice
}

func appendFile(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestFollowRotation(t *testing.T) {
	for _, name := range []string{"rename", "rename_followed", "copytruncate", "copytruncate_followed", "late"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "engine.log")
			pattern := path
			if strings.HasSuffix(name, "_followed") {
				pattern = filepath.Join(dir, "engine.log*")
			}
			if name != "late" {
				appendFile(t, path, numbered(0, 50))
			}
			m := &memory{}
			f, stop := following(t, FollowOptions{Sources: []Source{{Path: pattern, Zone: time.UTC}}, Sink: m.take, StateDir: filepath.Join(dir, "state"), Partial: time.Minute})
			if name == "late" {
				time.Sleep(10 * time.Millisecond)
				appendFile(t, path, numbered(0, 50))
			}
			until(t, "50 lines", func() bool { return len(m.got()) == 50 })
			appendFile(t, path, numbered(50, 100))
			if strings.HasPrefix(name, "copy") {
				until(t, "100 lines", func() bool { return len(m.got()) == 100 })
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path+".1", b, 0o644); err != nil {
					t.Fatal(err)
				}
				time.Sleep(6 * time.Millisecond) // a look may fall between copy and cut
				if err := os.Truncate(path, 0); err != nil {
					t.Fatal(err)
				}
				until(t, "the cut is seen", func() bool { return f.Status()[0].Size == 0 })
			} else if err := os.Rename(path, path+".1"); err != nil {
				t.Fatal(err)
			}
			appendFile(t, path, numbered(100, 150))
			until(t, "150 lines", func() bool { return len(m.got()) >= 150 })
			time.Sleep(60 * time.Millisecond) // a second reading would come now
			stop()
			if twice := complete(t, m.got(), 150); twice > 0 {
				t.Errorf("%d lines came twice", twice)
			}
			if d := f.Drops(); len(d) > 0 {
				t.Errorf("drops %v", d)
			}
		})
	}
}

// TestFollowRestart stops and starts while a file grows and is rotated; cursors and what was learned of
// the zone are kept.
func TestFollowRestart(t *testing.T) {
	dir := t.TempDir()
	path, state := filepath.Join(dir, "engine.log"), filepath.Join(dir, "state")
	m := &memory{}
	o := FollowOptions{Sources: []Source{{Path: path + "*"}}, Sink: m.take, StateDir: state}
	n := 0
	for round := range 6 {
		appendFile(t, path, numbered(n, n+40))
		n += 40
		_, stop := following(t, o)
		until(t, "the lines of the round", func() bool { return len(m.got()) >= n })
		stop()
		if round%2 == 1 { // rotated while nobody looks, and written to before
			appendFile(t, path, numbered(n, n+7))
			n += 7
			if err := os.Rename(path, fmt.Sprintf("%s.%d", path, round)); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, stop := following(t, o)
	until(t, "all lines", func() bool { return len(m.got()) >= n })
	stop()
	if twice := complete(t, m.got(), n); twice > 0 {
		t.Errorf("%d lines came twice", twice)
	}
}

// TestFollowCrash keeps a copy of the state of some moments and goes on from it, as after a kill: nothing
// is missing.
func TestFollowCrash(t *testing.T) {
	dir := t.TempDir()
	path, state := filepath.Join(dir, "engine.log"), filepath.Join(dir, "state")
	m := &memory{}
	appendFile(t, path, numbered(0, 500))
	for i := 1; i <= 5; i++ {
		f, stop := following(t, FollowOptions{Sources: []Source{{Path: path}}, Sink: m.take, StateDir: state, Batch: 37})
		until(t, "some lines", func() bool { return len(m.got()) >= i*100 })
		old, _ := os.ReadFile(filepath.Join(state, "cursors.json"))
		stop()
		_ = f
		if len(old) > 0 && i%2 == 0 {
			if err := os.WriteFile(filepath.Join(state, "cursors.json"), old, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, stop := following(t, FollowOptions{Sources: []Source{{Path: path}}, Sink: m.take, StateDir: state})
	until(t, "all lines", func() bool { return len(m.got()) >= 500 })
	stop()
	complete(t, m.got(), 500)
}

// TestFollowSlowSink: a sink that refuses and then blocks gets every line in the end, in order.
func TestFollowSlowSink(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "engine.log")
	appendFile(t, path, numbered(0, 5000))
	m := &memory{fail: 2, block: make(chan struct{})}
	_, stop := following(t, FollowOptions{Sources: []Source{{Path: path}}, Sink: m.take, Batch: 100})
	until(t, "all lines", func() bool {
		select {
		case m.block <- struct{}{}:
		default:
		}
		return len(m.got()) == 5000
	})
	stop()
	if twice := complete(t, m.got(), 5000); twice > 0 {
		t.Errorf("%d lines came twice", twice)
	}
}

// TestFollowDamagedState: a state that cannot be read is set aside, and files are read from their start.
func TestFollowDamagedState(t *testing.T) {
	for _, content := range []string{"{", `{"version":9}`, "\x00\x00", `{"version":1,"files":[null,{"path":"x","offset":-4}]}`} {
		dir := t.TempDir()
		state := filepath.Join(dir, "state")
		if err := os.MkdirAll(state, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(state, "cursors.json"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		appendFile(t, filepath.Join(dir, "a.log"), numbered(0, 3))
		m := &memory{}
		_, stop := following(t, FollowOptions{Sources: []Source{{Path: filepath.Join(dir, "*.log")}}, Sink: m.take, StateDir: state})
		until(t, "the lines", func() bool { return len(m.got()) == 3 })
		stop()
	}
}

func TestFollowHostileLines(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "engine.log")
	m := &memory{}
	appendFile(t, path, strings.Repeat("x", 3*MaxLine)+"\n\n"+"\xff\xfe\x00garbage\n"+strings.Repeat("\x00", 4096)+"[2026-09-13 16:06:01] after the hole\n"+"half a")
	var clock atomic.Int64 // only what is waited for may be taken for unfinished
	clock.Store(time.Now().UnixNano())
	f, stop := following(t, FollowOptions{Sources: []Source{{Path: path, Zone: time.UTC}}, Sink: m.take, Now: func() time.Time { return time.Unix(0, clock.Load()) }})
	until(t, "the whole lines", func() bool { return len(m.got()) == 3 })
	clock.Add(int64(time.Minute))
	until(t, "the unfinished line", func() bool { return len(m.got()) == 4 })
	appendFile(t, path, " line\n[2026-09-13 16:06:02] last\n")
	until(t, "the rest", func() bool { return len(m.got()) == 6 })
	stop()
	want := []struct{ begin, marks string }{
		{"xxx", "time_assumed,truncated"}, {`\xff\xfe\x00garbage`, "time_assumed,binary"}, {"[2026-09-13 16:06:01] after the hole", "binary"},
		{"half a", "time_assumed,unterminated"}, {" line", "time_assumed,cut"}, {"[2026-09-13 16:06:02] last", ""},
	}
	for i, w := range want {
		r := m.rows[i]
		if !strings.HasPrefix(r.Message, w.begin) || r.Get("marks") != w.marks {
			t.Errorf("row %d %.60q marks %q, want %q with %q", i, r.Message, r.Get("marks"), w.begin, w.marks)
		}
	}
	if len(m.rows[0].Message) != MaxLine {
		t.Errorf("the long line has %d bytes, want %d", len(m.rows[0].Message), MaxLine)
	}
	if d := f.Drops(); len(d) != 1 || d[0].Reason != DropLineEnd || d[0].Count != 1 {
		t.Errorf("drops %v", d)
	}
}

func TestFollowGzip(t *testing.T) {
	dir := t.TempDir()
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	io.WriteString(w, numbered(0, 1000))
	w.Close()
	if err := os.WriteFile(filepath.Join(dir, "engine.log.2.gz"), z.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	appendFile(t, filepath.Join(dir, "engine.log"), numbered(1000, 1010))
	m := &memory{}
	o := FollowOptions{Sources: []Source{{Path: filepath.Join(dir, "engine.log*"), Rotated: true}}, Sink: m.take, StateDir: filepath.Join(dir, "state")}
	for range 2 { // the second time nothing is read again
		f, stop := following(t, o)
		until(t, "all lines", func() bool { return len(m.got()) >= 1010 })
		until(t, "both files are read to their ends", func() bool {
			st := f.Status()
			return len(st) == 2 && st[0].State == "following" && st[1].State == "done"
		})
		stop()
	}
	if twice := complete(t, m.got(), 1010); twice > 0 {
		t.Errorf("%d lines came twice", twice)
	}
	// One that is cut is read as far as it goes and counted.
	if err := os.WriteFile(filepath.Join(dir, "engine.log.3.gz"), z.Bytes()[:z.Len()/2], 0o644); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "engine.log.3.gz"), old, old); err != nil {
		t.Fatal(err)
	}
	f, stop := following(t, o)
	until(t, "the cut file is counted", func() bool {
		d := f.Drops()
		return len(d) == 1 && d[0].Reason == DropGzip
	})
	stop()
}

func TestFollowStdin(t *testing.T) {
	r, w := io.Pipe()
	m := &memory{}
	f, err := NewFollower(FollowOptions{Sources: []Source{{Path: "-", Engine: "e1", Zone: time.UTC}}, Sink: m.take, Stdin: r, Poll: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		io.WriteString(w, numbered(0, 300)+"[2026-09-13 16:06:09] line 000300 wit")
		io.WriteString(w, "hout an end")
		w.Close()
	}()
	if err := f.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	complete(t, m.got(), 301)
	if last := m.rows[300]; last.Engine != "e1" || last.Get("source") != "stdin" || last.Get("marks") != "unterminated" {
		t.Errorf("the last row %+v", last)
	}
}

// TestFollowContainers: Docker's and Kubernetes' forms, with lines that the runtime split.
func TestFollowContainers(t *testing.T) {
	dir := t.TempDir()
	docker := `{"log":"[2026-09-13 18:06:04 TP0] Decode batch, #running-req: 67, #tok","stream":"stdout","time":"2026-09-13T16:06:04.100000000Z"}
{"log":"en: 81316, token usage: 0.93, cuda graph: False, gen throughput (token/s): 2663.43, #queue-req: 9\n","stream":"stdout","time":"2026-09-13T16:06:04.100200000Z"}
`
	cri := `2026-09-13T16:06:05.000000001Z stderr F Traceback (most recent call last):
2026-09-13T16:06:05.000000002Z stderr F   File "x.py", line 3, in <module>
2026-09-13T16:06:05.000000003Z stderr F torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB
2026-09-13T16:06:06.000000001Z stdout P [2026-09-13 18:06:06 TP0] KV cache pool is full. Retract reque
2026-09-13T16:06:06.000000002Z stdout F sts. #retracted_reqs: 3, #new_token_ratio: 0.1000 -> 0.2000
`
	appendFile(t, filepath.Join(dir, "d-json.log"), docker)
	appendFile(t, filepath.Join(dir, "k-cri.log"), cri)
	m := &memory{}
	f, stop := following(t, FollowOptions{Sources: []Source{{Path: filepath.Join(dir, "*.log")}}, Sink: m.take})
	until(t, "five records", func() bool { return len(m.got()) == 5 })
	stop()
	byFormat := map[string]event.Row{}
	for _, r := range m.rows {
		byFormat[r.Get("format")] = r
	}
	if r := byFormat["sglang.decode"]; r.Get("num_used_tokens") != "81316" || r.Get("stream") != "stdout" || r.Time != time.Date(2026, 9, 13, 16, 6, 4, 0, time.UTC).UnixNano() {
		t.Errorf("the joined line %+v at %s", r, time.Unix(0, r.Time).UTC())
	}
	if r := byFormat["sglang.retract"]; r.Get("num_retracted_reqs") != "3" || r.Get("class") != "preempt" {
		t.Errorf("the joined line %+v", r)
	}
	want := map[Class]int64{OOM: 1, Preempt: 1, Error: 0, Hang: 0, Abort: 0, Startup: 0}
	for c, n := range f.Counts().Events() {
		if want[c] != n {
			t.Errorf("%d events of %s, want %d", n, c, want[c])
		}
	}
}

func TestFollowOptions(t *testing.T) {
	sink := func(context.Context, []event.Row, []request.Observation) error { return nil }
	for _, o := range []FollowOptions{{}, {Sink: sink}, {Sink: sink, Sources: []Source{{Path: "[x"}}}, {Sink: sink, Sources: []Source{{Path: "-"}}}} {
		if _, err := NewFollower(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
