package eventstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rollscope/rollscope/internal/event"
)

const writerEnv = "ROLLSCOPE_TEST_EVENTS_WRITER"

// writeUntilKilled is what the writer of TestKill does: numbered rows, each batch printed when it was
// acknowledged, and the pid of the store's process whenever that changes.
func writeUntilKilled(dir string) {
	fail := func(err error) {
		fmt.Println("error", err)
		os.Exit(1)
	}
	o := testOptions(nil, dir)
	o.FlushInterval = 300 * time.Millisecond
	s, err := Open(context.Background(), o)
	if err != nil {
		fail(err)
	}
	go func() { _ = s.Run(context.Background()) }()
	var base int64
	var from int
	if _, err := fmt.Sscan(os.Getenv("ROLLSCOPE_TEST_FROM"), &base, &from); err != nil {
		fail(err)
	}
	out := bufio.NewWriter(os.Stdout)
	pid := 0
	for i := from; ; {
		batch := 1 + i%37
		rows := make([]event.Row, batch)
		for j := range rows {
			rows[j] = span(time.Unix(0, base), i+j)
			rows[j].Service = fmt.Sprintf("s%d", (i+j)/5000) // new streams from time to time
		}
		if err := s.Append(context.Background(), rows); err != nil {
			fail(err)
		}
		i += batch
		s.sup.mu.Lock()
		if s.sup.pid != pid && s.sup.current != nil {
			pid = s.sup.pid
			fmt.Fprintln(out, "child", pid)
		}
		s.sup.mu.Unlock()
		fmt.Fprintln(out, "acked", i-1)
		if err := out.Flush(); err != nil {
			fail(err)
		}
		if i%20 == 0 {
			time.Sleep(time.Millisecond) // leave the store some of the processor
		}
	}
}

// TestKill kills a writer, its store's process or both at random moments: each time every row that was
// acknowledged must be there, and none twice.
func TestKill(t *testing.T) {
	rounds := 3
	if n, err := strconv.Atoi(os.Getenv("ROLLSCOPE_KILL_ROUNDS")); err == nil {
		rounds = n
	}
	dir := t.TempDir()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	base, next := time.Now().Add(-time.Hour), 0
	for round := range rounds {
		how := []string{"process", "child", "both"}[round%3]
		acked := writeAndKill(t, dir, base, next, how, rnd)
		t.Logf("round %d: %s killed after row %d", round, how, acked)

		s, stop := start(t, testOptions(t, dir))
		mustFlush(t, s)
		seen := make([]int, acked+1)
		more := map[int]int{}
		err := s.Query(within(t), Query{LogsQL: "* | fields n, _stream", From: base.UnixNano()}, func(fields []event.Field) error {
			n, stream := -1, ""
			for _, f := range fields {
				switch f.Name {
				case "n":
					n, _ = strconv.Atoi(f.Value)
				case "_stream":
					stream = f.Value
				}
			}
			switch {
			case n < 0:
				return errors.New("a row without a number")
			case !strings.Contains(stream, "service="):
				return fmt.Errorf("row %d has lost its stream: %q", n, stream)
			case n <= acked:
				seen[n]++
			default:
				more[n]++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		missing, twice := 0, 0
		for n, times := range seen {
			switch {
			case times == 0:
				if missing++; missing < 4 {
					t.Errorf("round %d: row %d was acknowledged and is missing", round, n)
				}
			case times > 1:
				if twice++; twice < 4 {
					t.Errorf("round %d: row %d is there %d times", round, n, times)
				}
			}
		}
		next = acked + 1
		for n, times := range more {
			if times > 1 {
				t.Errorf("round %d: row %d, not acknowledged, is there %d times", round, n, times)
			}
			next = max(next, n+1)
		}
		if missing+twice > 0 {
			t.Fatalf("round %d: %d rows missing, %d more than once, of %d", round, missing, twice, acked+1)
		}
		if st := s.State(); len(st.Damaged) > 0 {
			t.Errorf("round %d: damaged: %v", round, st.Damaged)
		}
		stop()
	}
}

// writeAndKill returns the last row that was acknowledged.
func writeAndKill(t *testing.T, dir string, base time.Time, next int, how string, rnd *rand.Rand) int {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerEnv+"="+dir, fmt.Sprintf("ROLLSCOPE_TEST_FROM=%d %d", base.UnixNano(), next))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	acked, child := next-1, 0
	read := make(chan error, 1)
	go func() {
		sc := bufio.NewScanner(stdout)
		for sc.Scan() {
			mu.Lock()
			if _, err := fmt.Sscanf(sc.Text(), "acked %d", &acked); err != nil {
				if _, err := fmt.Sscanf(sc.Text(), "child %d", &child); err != nil {
					mu.Unlock()
					read <- errors.New(sc.Text())
					return
				}
			}
			mu.Unlock()
		}
		read <- nil
	}()
	pid := func() int {
		mu.Lock()
		defer mu.Unlock()
		return child
	}
	pause := func(upTo int) { time.Sleep(time.Duration(100+rnd.IntN(upTo)) * time.Millisecond) }
	for range 600 { // until the store's process runs
		if pid() != 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	pause(1500)
	if how != "process" {
		// A pid that the writer printed is its child's, and stays so while the writer does not wait for it.
		if p := pid(); p != 0 {
			_ = syscall.Kill(p, syscall.SIGKILL)
		} else {
			t.Error("the store's process did not start")
		}
	}
	switch how {
	case "child": // rows must go on to be accepted, and to be stored by the next process
		pause(2500)
	case "both":
		time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
	}
	_ = cmd.Process.Kill()
	if err := <-read; err != nil {
		t.Fatalf("the writer: %v", err)
	}
	_ = cmd.Wait()
	// The store's process, if it is left, ends when it notices, which takes it as long as the machine lets it.
	eventually(t, "nobody has the store", func() bool { return unlocked(t, filepath.Join(dir, "events", "flock.lock")) })
	return acked
}

// unlocked reports whether no process holds the lock of a store.
func unlocked(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // and with it the lock
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}
