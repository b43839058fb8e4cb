package rolloutstore

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// killChild is the environment variable that makes the test's process the one that is killed.
const killChild = "ROLLSCOPE_ROLLOUTSTORE_CHILD"

// TestMain lets the test binary be the process that writes until it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(killChild); dir != "" {
		if err := writeForever(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// writeForever puts steps, replaces and marks some, and says each time what is done.
func writeForever(dir string) error {
	s, err := Open(dir, Options{})
	if err != nil {
		return err
	}
	if d := s.Damaged(); len(d) > 0 {
		return fmt.Errorf("damaged: %+v", d)
	}
	start := int64(len(s.Steps("r", Filter{})))
	for i := start; ; i++ {
		for _, print := range []string{"a", "a", "b"} { // new, again, another attempt
			id, err := s.Put(step("r", i, print), blob(strings.Repeat(fmt.Sprint(i, print, " "), 5000)))
			if err != nil {
				return err
			}
			if err := s.MarkPublished(id, "tensorboard", ""); err != nil {
				return err
			}
			fmt.Println(id, print)
		}
	}
}

// TestKill kills a writer at any time: what it said is done is there, and nothing is damaged.
func TestKill(t *testing.T) {
	rounds := 3
	if n, err := strconv.Atoi(os.Getenv("ROLLSCOPE_KILL_ROUNDS")); err == nil {
		rounds = n
	}
	dir := t.TempDir()
	said := map[string]string{}
	for round := range rounds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), killChild+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			id, print, ok := strings.Cut(lines.Text(), " ")
			if !ok {
				continue
			}
			said[id] = print
			if n == 4+3*round {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || len(said) == 0 {
			t.Fatalf("the writer ended by itself: %v", err)
		}
		s, err := Open(dir, Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if d := s.Damaged(); len(d) > 0 {
			t.Errorf("round %d: %+v", round, d)
		}
		for text, print := range said {
			id, err := ParseID(text)
			if err != nil {
				t.Fatal(err)
			}
			st, err := s.Step(id)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := st.PublishedTo("tensorboard"); !ok || st.Dump.Fingerprint != print {
				t.Errorf("round %d: %s is %+v", round, id, st.Summary)
			}
		}
		for _, sum := range s.Steps("r", Filter{Attempts: true}) {
			if want := strings.Repeat(fmt.Sprint(sum.ID.RolloutID, sum.Dump.Fingerprint, " "), 5000); content(t, s, sum.ID) != want {
				t.Errorf("round %d: the timeline of %s is another one", round, sum.ID)
			}
		}
		s.Close()
	}
}
