package app

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/span"
)

// recorderProcess is a recorder that a test may kill.
type recorderProcess struct {
	cmd *exec.Cmd
	url string
	err *bytes.Buffer
}

// startProcess starts one on dir; it is killed when the test ends.
func startProcess(t *testing.T, dir string) *recorderProcess {
	t.Helper()
	p := &recorderProcess{cmd: exec.Command(os.Args[0]), err: &bytes.Buffer{}}
	p.cmd.Env = append(os.Environ(), serveEnv+"="+dir)
	p.cmd.Stderr = p.err
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.kill()
		t.Fatalf("the recorder did not say where it answers: %v\n%s", err, p.err)
	}
	fields := strings.Fields(line)
	p.url = strings.TrimSuffix(fields[len(fields)-1], "/")
	return p
}

func (p *recorderProcess) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
}

// get asks for a path, as long as it takes the recorder to answer.
func (p *recorderProcess) get(t *testing.T, path string) []byte {
	t.Helper()
	var last string
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		resp, err := http.Get(p.url + path)
		if err != nil {
			last = err.Error()
			continue
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK {
			return b
		}
		last = fmt.Sprintf("%s %.200s %v", resp.Status, b, err)
	}
	t.Fatalf("%s: %s\n%s", path, last, p.err)
	return nil
}

// rows are the answers to a LogsQL query.
func (p *recorderProcess) rows(t *testing.T, query string) []map[string]string {
	t.Helper()
	var out []map[string]string
	for line := range bytes.Lines(p.get(t, "/select/logsql/query?query="+url.QueryEscape(query))) {
		row := map[string]string{}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, row)
	}
	return out
}

// metric is the value of a metric without labels, summed over its labels when it has some.
func (p *recorderProcess) metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	for line := range strings.Lines(string(p.get(t, "/metrics"))) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == ' ' || rest[0] == '{') {
			f := strings.Fields(rest)
			v, err := strconv.ParseFloat(f[len(f)-1], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

// spanSender sends generations as their processes would: slices while they go on, the root last, some spans
// after that. What is not acknowledged it sends again, to whatever recorder there is then.
type spanSender struct {
	rnd *rand.Rand

	mu    sync.Mutex
	url   string // "" while there is no recorder
	acked map[string]map[string]bool
	tries int
}

func (s *spanSender) at(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.url = url
}

// generation is the spans of one, in the order in which they are sent.
func (s *spanSender) generation(n int) []span.Span {
	now := time.Now().UnixNano()
	var id span.TraceID
	put := func(b []byte) {
		for i := range b {
			b[i] = byte(s.rnd.Uint32() | 1)
		}
	}
	put(id[8:])
	var root span.ID
	put(root[:])
	common := []span.Attr{{Key: "rid", Value: span.Value{Str: fmt.Sprintf("rid-%d", n)}}}
	if n%9 == 0 {
		common = append(common, span.Attr{Key: "session.id", Value: span.Value{Str: fmt.Sprintf("session-%d", n/27)}})
	}
	var out []span.Span
	add := func(name string, id2, parent span.ID) *span.Span {
		out = append(out, span.Span{Header: span.Header{Trace: id, ID: id2, Parent: parent, Name: name, Start: now, End: now + int64(time.Duration(50+s.rnd.IntN(100))*time.Millisecond)},
			Service: "sglang", Attrs: common, Resource: []span.Attr{{Key: "service.name", Value: span.Value{Str: "sglang"}}}})
		return &out[len(out)-1]
	}
	names := []string{"tokenize", "prefill_waiting", "prefill_forward", "decode_waiting", "decode_forward"}
	for i := range 2 + s.rnd.IntN(4) {
		var sid span.ID
		put(sid[:])
		if sp := add(names[i%len(names)], sid, root); s.rnd.IntN(25) == 0 {
			sp.Status, sp.StatusMessage = span.Failed, "out of memory"
		}
	}
	add(" Req "+fmt.Sprintf("%08x", n), root, span.ID{})
	if s.rnd.IntN(4) == 0 {
		var sid span.ID
		put(sid[:])
		add("quick_finish", sid, root)
	}
	return out
}

// send sends one span at a time until it is acknowledged or stop is closed.
func (s *spanSender) send(sp *span.Span, stop <-chan struct{}) bool {
	body := span.AppendTraces(nil, []span.Span{*sp})
	for {
		s.mu.Lock()
		url := s.url
		if url != "" {
			s.tries++
		}
		s.mu.Unlock()
		if url != "" {
			resp, err := http.Post(url+"/v1/traces", "application/x-protobuf", bytes.NewReader(body))
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if err == nil && resp.StatusCode == http.StatusOK {
					s.mu.Lock()
					id := sp.Trace.String()
					if s.acked[id] == nil {
						s.acked[id] = map[string]bool{}
					}
					s.acked[id][sp.ID.String()] = true
					s.mu.Unlock()
					return true
				}
			}
		}
		select {
		case <-stop:
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestSamplingOverKills kills the recorder at random moments while spans come in. In the end each trace of
// which a span was acknowledged is stored with all that was acknowledged of it, or none of it is stored and
// its request is in the table as sampled away; and all say the same.
func TestSamplingOverKills(t *testing.T) {
	rounds := 3
	if n, err := strconv.Atoi(os.Getenv("ROLLSCOPE_KILL_ROUNDS")); err == nil {
		rounds = n
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	config := `
rollscope:
  traces:
    sampling:
      ratio: 40%
      linger: 1s
      keep: {slow: {p99: true, min_requests: 20}}
`
	if err := os.WriteFile(filepath.Join(dir, "rollscope.yaml"), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	s := &spanSender{rnd: rand.New(rand.NewPCG(seed, 2)), acked: map[string]map[string]bool{}}
	stop := make(chan struct{}) // no new generations
	never := make(chan struct{})
	var wg sync.WaitGroup
	generations := 0
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				generations = n
				return
			case <-time.After(time.Duration(s.rnd.IntN(12)) * time.Millisecond):
			}
			spans := s.generation(n)
			pauses := make([]time.Duration, len(spans))
			for i := range pauses {
				pauses[i] = time.Duration(s.rnd.IntN(120)) * time.Millisecond
				if i == len(spans)-1 && spans[i].Name == "quick_finish" {
					pauses[i] = time.Duration(s.rnd.IntN(4000)) * time.Millisecond // some are later than the decision
				}
			}
			wg.Go(func() {
				for i := range spans {
					time.Sleep(pauses[i])
					if !s.send(&spans[i], never) {
						return
					}
				}
			})
		}
	})
	for round := range rounds {
		p := startProcess(t, dir)
		s.at(p.url)
		time.Sleep(time.Duration(200+rnd.IntN(2800)) * time.Millisecond)
		s.at("")
		if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = p.cmd.Wait() // killed
		if b := p.err.String(); strings.Contains(b, "level=ERROR") {
			t.Errorf("round %d: %s", round, b)
		}
	}
	close(stop)
	p := startProcess(t, dir)
	s.at(p.url)
	wg.Wait()
	for until := time.Now().Add(time.Minute); p.metric(t, "rollscope_tailsample_held_traces") != 0 || p.metric(t, "rollscope_tailsample_waiting_bytes") != 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("traces are still held")
		}
	}

	// What the store has can be asked for a moment after it was accepted.
	stored := map[string]map[string]int{}
	said := map[string]map[string]bool{}
	var problems []string
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(500 * time.Millisecond) {
		clear(stored)
		clear(said)
		problems = problems[:0]
		for _, r := range p.rows(t, "row:span | fields trace_id, span_id") {
			if stored[r["trace_id"]] == nil {
				stored[r["trace_id"]] = map[string]int{}
			}
			stored[r["trace_id"]][r["span_id"]]++
		}
		for _, r := range p.rows(t, "row:observation | fields trace_id, spans_kept") {
			if said[r["trace_id"]] == nil {
				said[r["trace_id"]] = map[string]bool{}
			}
			said[r["trace_id"]][r["spans_kept"]] = true
		}
		for id, spans := range s.acked {
			want := "sampled_away"
			if len(stored[id]) > 0 {
				want = "kept"
				if len(stored[id]) != len(spans) {
					problems = append(problems, fmt.Sprintf("%s: %d of %d acknowledged spans are stored; observed as %v", id, len(stored[id]), len(spans), said[id]))
				}
			}
			if len(said[id]) != 1 || !said[id][want] {
				problems = append(problems, fmt.Sprintf("%s: %d spans are stored, and its request is observed as %v", id, len(stored[id]), said[id]))
			}
		}
		for id := range stored {
			if s.acked[id] == nil {
				problems = append(problems, id+": stored and never sent")
			}
		}
		if len(problems) == 0 || time.Now().After(until) {
			break
		}
	}
	if len(problems) > 0 {
		t.Errorf("%d of %d traces are neither whole nor counted as sampled away:\n%s", len(problems), generations, strings.Join(problems[:min(len(problems), 20)], "\n"))
	}
	spans, again := 0, 0
	for _, ids := range stored {
		for _, n := range ids {
			spans++
			again += n - 1
		}
	}
	if len(stored) == 0 || len(stored) == generations {
		t.Errorf("%d of %d traces are kept: the test did not get to what it is about", len(stored), generations)
	}
	t.Logf("%d kills, %d requests for %d traces; %d traces kept with %d spans, %d of them stored twice", rounds, s.tries, generations, len(stored), spans, again)
}
