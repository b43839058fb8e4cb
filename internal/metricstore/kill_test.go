package metricstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// writeUntilKilled is what the child of TestKill does: numbered samples, each printed after its commit.
func writeUntilKilled(dir string) {
	fail := func(err error) {
		fmt.Println("error", err)
		os.Exit(1)
	}
	s, err := Open(context.Background(), Options{Dir: dir, Mounts: "-"})
	if err != nil {
		fail(err)
	}
	var start int
	var base int64
	if _, err := fmt.Sscan(os.Getenv("ROLLSCOPE_TEST_FROM"), &base, &start); err != nil {
		fail(err)
	}
	out := bufio.NewWriter(os.Stdout)
	for i := start; ; i++ {
		app := s.Appendable().AppenderV2(context.Background())
		for e := range 20 {
			ls := labels.FromStrings("__name__", "sglang:generation_tokens_total", "job", "sglang", "instance", fmt.Sprintf("e%d", e))
			if _, err := app.Append(0, ls, 0, base+int64(i), float64(i), nil, nil, storage.AOptions{}); err != nil {
				fail(err)
			}
		}
		if err := app.Commit(); err != nil {
			fail(err)
		}
		fmt.Fprintln(out, "acked", i)
		if err := out.Flush(); err != nil {
			fail(err)
		}
	}
}

// TestKill kills a writer at random moments: each time everything it acknowledged must be there.
func TestKill(t *testing.T) {
	rounds := 3
	if n, err := strconv.Atoi(os.Getenv("ROLLSCOPE_KILL_ROUNDS")); err == nil {
		rounds = n
	}
	dir := t.TempDir()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	base, next := time.Now().Add(-30*time.Minute), 0
	for round := range rounds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "ROLLSCOPE_TEST_WRITER="+dir, fmt.Sprintf("ROLLSCOPE_TEST_FROM=%d %d", base.UnixMilli(), next))
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		killAfter := 50 + rnd.IntN(2000)
		var acked int
		sc := bufio.NewScanner(stdout)
		for n := 0; sc.Scan(); n++ {
			if _, err := fmt.Sscanf(sc.Text(), "acked %d", &acked); err != nil {
				t.Fatalf("round %d: %s", round, sc.Text())
			}
			if n == killAfter {
				_ = cmd.Process.Kill()
			}
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) {
			t.Fatalf("round %d: the writer ended: %v", round, err)
		}
		o := testOptions(t, time.Time{})
		o.Dir = dir
		s, err := Open(context.Background(), o)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		at := base.Add(time.Duration(acked) * time.Millisecond)
		got := eval(t, s.Engine(), s.Queryable(), `count_over_time(sglang:generation_tokens_total[1h]) and sglang:generation_tokens_total >= `+strconv.Itoa(acked), at)
		if len(got) != 20 {
			t.Errorf("round %d: %d of 20 series have the sample %d that was acknowledged", round, len(got), acked)
		}
		for series, n := range got {
			if int(n) < acked+1 {
				t.Errorf("round %d: %s has %v samples, %d were acknowledged", round, series, n, acked+1)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		next = acked + 1
	}
}
