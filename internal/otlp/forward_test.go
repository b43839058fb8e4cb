package otlp

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/rollscope/rollscope/internal/span"
)

// wait polls until ok, for a time that only a broken program needs.
func wait(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// patient is a timeout of requests for tests that count what arrives: what is sent again because its answer
// was late arrives twice.
const patient = 5 * time.Minute

// run runs a forwarder until the test ends or stop is called.
func run(t testing.TB, f *Forwarder) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		f.Run(ctx)
		close(done)
	}()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		<-done
		if err := f.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func scopesOf(t testing.TB, n int) []span.Scope {
	t.Helper()
	b, err := ptraceotlp.NewExportRequestFromTraces(someTraces("engine", n, false)).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	s, err := span.Scan(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func recordsOf(t testing.TB, n int) []LogRecord {
	t.Helper()
	b, err := plogotlp.NewExportRequestFromLogs(someLogs(n)).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	l, err := DecodeLogs(b, n)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (c *collected) counts() (spans, logs int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.spans), len(c.logs)
}

func (c *collected) set(err error, rejected int, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail, c.rejected, c.message = err, rejected, message
}

func TestForward(t *testing.T) {
	kept, all := &collected{}, &collected{}
	a, b := start(t, Options{Sink: kept}), start(t, Options{Sink: all})
	f, err := NewForwarder(ForwardOptions{Dir: t.TempDir(), Endpoints: []Endpoint{
		{Name: "grpc", URL: a.grpc, Compression: "zstd", Timeout: patient},
		{Name: "http", URL: "http://" + a.http, NoLogs: true, Timeout: patient},
		{Name: "all", URL: "http://" + b.http, Everything: true, Compression: "none", Timeout: patient},
		{Name: "none", URL: "grpc://" + b.grpc, Everything: true, NoTraces: true, Timeout: patient},
	}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, f)
	for range 3 {
		if err := f.Traces(false, scopesOf(t, 10)); err != nil {
			t.Fatal(err)
		}
		if err := f.Traces(true, scopesOf(t, 15)); err != nil {
			t.Fatal(err)
		}
		if err := f.Logs(false, recordsOf(t, 4)); err != nil {
			t.Fatal(err)
		}
		if err := f.Logs(true, recordsOf(t, 5)); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, "everything arrives", func() bool {
		s, l := kept.counts()
		s2, l2 := all.counts()
		return s == 60 && l == 12 && s2 == 45 && l2 == 30
	})
	if kept.spans[0].Name != "span 0" || kept.services["engine"] != 60 || kept.logs[0].Service != "engine" || kept.logs[0].ScopeName != "sglang" {
		t.Errorf("first span %+v, services %v, log %+v", kept.spans[0], kept.services, kept.logs[0])
	}
	wait(t, "everything is acknowledged", func() bool {
		for _, e := range f.Endpoints() {
			if e.Waiting != 0 || e.State != "ok" {
				return false
			}
		}
		return true
	})
	if d := f.Drops(); len(d) != 0 {
		t.Errorf("drops %v", d)
	}
	if !f.Wanted(false) || !f.Wanted(true) {
		t.Error("nobody wants anything")
	}
}

// TestForwardRetry waits as it is told, and drops what is refused for good.
func TestForwardRetry(t *testing.T) {
	sink := &collected{fail: &Refusal{Verdict: Busy, Message: "full", After: time.Millisecond}}
	r := start(t, Options{Sink: sink, Limits: Limits{Spans: 25}})
	f, err := NewForwarder(ForwardOptions{Dir: t.TempDir(), Backoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond, Endpoints: []Endpoint{
		{Name: "grpc", URL: r.grpc, Timeout: patient}, {Name: "http", URL: "http://" + r.http, Timeout: patient},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 8 { // together more than the endpoint takes at once
		if err := f.Traces(false, scopesOf(t, 10)); err != nil {
			t.Fatal(err)
		}
	}
	run(t, f)
	wait(t, "both retry", func() bool {
		for _, e := range f.Endpoints() {
			if e.State != "retrying" || !strings.Contains(e.Error, "full") || e.Waiting != 80 {
				return false
			}
		}
		return true
	})
	sink.set(nil, 0, "")
	wait(t, "both deliver", func() bool { n, _ := sink.counts(); return n == 160 })
	wait(t, "both acknowledge", func() bool {
		for _, e := range f.Endpoints() {
			if e.Waiting != 0 || e.Sent != 80 {
				return false
			}
		}
		return true
	})
	sink.set(&Refusal{Verdict: Invalid, Message: "never"}, 0, "")
	if err := f.Traces(false, scopesOf(t, 10)); err != nil {
		t.Fatal(err)
	}
	wait(t, "both drop", func() bool {
		d := f.Drops()
		return len(d) == 2 && d[0].Count == 10 && d[1].Count == 10 && d[0].Reason == "rejected"
	})
	sink.set(nil, 3, "too old")
	if err := f.Traces(false, scopesOf(t, 10)); err != nil {
		t.Fatal(err)
	}
	wait(t, "a part is rejected", func() bool {
		d := f.Drops()
		return d[0].Count == 13 && d[1].Count == 13
	})
	// One record that is larger than the endpoint takes can only be dropped.
	if err := f.Traces(false, scopesOf(t, 30)); err != nil {
		t.Fatal(err)
	}
	wait(t, "too large a record is dropped", func() bool { d := f.Drops(); return d[0].Count == 43 && d[1].Count == 43 })
}

// TestForwardHTTPStatuses reads answers of collectors and proxies.
func TestForwardHTTPStatuses(t *testing.T) {
	status, header := 0, ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if header != "" {
			w.Header().Set("Retry-After", header)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, "because")
	}))
	defer srv.Close()
	s, err := NewSender(Endpoint{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, c := range []struct {
		status  int
		header  string
		verdict Verdict
		after   time.Duration
	}{
		{429, "3", Down, 3 * time.Second}, {503, "", Down, 0}, {502, "x", Down, 0}, {504, "1", Down, time.Second},
		{400, "", Invalid, 0}, {500, "", Invalid, 0}, {413, "", TooBig, 0}, {401, "", Down, 10 * time.Second}, {404, "", Down, 10 * time.Second}, {307, "", Down, 10 * time.Second},
	} {
		status, header = c.status, c.header
		_, _, err := s.Traces(t.Context(), nil)
		x, ok := err.(*Refusal)
		if !ok || x.Verdict != c.verdict || x.After != c.after || !strings.Contains(x.Message, "because") {
			t.Errorf("%d: %+v", c.status, err)
		}
	}
	status = 200
	if _, _, err := s.Traces(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestForwardOptions(t *testing.T) {
	for _, e := range []Endpoint{
		{URL: "ftp://x"}, {URL: "http://"}, {URL: "http://u:p@x"}, {URL: "x", Compression: "br"}, {URL: "x", NoTraces: true, NoLogs: true},
	} {
		if f, err := NewForwarder(ForwardOptions{Dir: t.TempDir(), Endpoints: []Endpoint{e}}); err == nil {
			t.Errorf("%+v is fine", e)
			f.Close()
		} else if strings.Contains(err.Error(), ":p@") {
			t.Errorf("the error has the password: %v", err)
		}
	}
	if _, err := NewForwarder(ForwardOptions{Dir: t.TempDir(), Endpoints: []Endpoint{{URL: "x"}, {URL: "grpc://x"}}}); err == nil {
		t.Error("two endpoints of one name are fine")
	}
}

func items(t *testing.T, r *reader) (out []string) {
	t.Helper()
	for {
		ctx, cancel := context.WithCancel(context.Background())
		if n, _ := r.waiting(); n == 0 {
			cancel()
			return out
		}
		b, err := r.next(ctx, 1, 1)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b.body))
		if err := r.ack(b); err != nil {
			t.Fatal(err)
		}
	}
}

func TestQueue(t *testing.T) {
	dir := t.TempDir()
	open := func(names ...string) *queue {
		q, err := openQueue(dir, 1<<20, names)
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	q := open("a", "b")
	for i := range 5 {
		if err := q.append(traceRecord, 1, []byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	if got := items(t, q.readers[0]); fmt.Sprint(got) != "[0 1 2 3 4]" {
		t.Errorf("a reads %v", got)
	}
	b, err := q.readers[1].next(t.Context(), 2, 10)
	if err != nil || string(b.body) != "01" || b.items != 2 {
		t.Errorf("b reads %+v, %v", b, err)
	}
	if err := q.readers[1].ack(b); err != nil {
		t.Fatal(err)
	}
	q.close()

	// Half a record, as a killed process leaves it.
	path := filepath.Join(dir, "0000000001.otlp")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range recordHeader {
		if err := os.WriteFile(path, append(data[:len(data):len(data)], data[:cut]...), 0o666); err != nil {
			t.Fatal(err)
		}
		q = open("a", "b")
		if n, _ := q.readers[1].waiting(); n != 3 {
			t.Errorf("with %d bytes of a record: b waits for %d", cut, n)
		}
		q.close()
	}
	q = open("a", "b")
	if err := q.append(logRecord, 1, []byte("5")); err != nil {
		t.Fatal(err)
	}
	if got := items(t, q.readers[1]); fmt.Sprint(got) != "[2 3 4 5]" {
		t.Errorf("b reads %v after the restart", got)
	}
	if got := items(t, q.readers[0]); fmt.Sprint(got) != "[5]" {
		t.Errorf("a reads %v after the restart", got)
	}
	q.close()
	q = open("a", "c")
	if n, _ := q.readers[1].waiting(); n != 0 {
		t.Errorf("a new reader waits for %d", n)
	}
	if _, err := os.Stat(filepath.Join(dir, "b.cursor")); err == nil {
		t.Error("the cursor of an endpoint that is gone is still there")
	}
	q.close()
}

// TestQueueFull drops the oldest for those who did not read it, and counts that.
func TestQueueFull(t *testing.T) {
	q, err := openQueue(t.TempDir(), 256<<10, []string{"fast", "slow"})
	if err != nil {
		t.Fatal(err)
	}
	defer q.close()
	const n = 100
	read := 0
	for i := range n {
		body := make([]byte, 10<<10)
		binary.LittleEndian.PutUint32(body, uint32(i))
		if err := q.append(traceRecord, 2, body); err != nil {
			t.Fatal(err)
		}
		read += len(items(t, q.readers[0]))
	}
	if lost, _ := q.readers[0].gone(); lost != 0 || read != n {
		t.Errorf("the fast one lost %d and read %d of %d", lost, read, n)
	}
	lost, _ := q.readers[1].gone()
	waiting, bytes := q.readers[1].waiting()
	if lost == 0 || lost+waiting != 2*n || bytes > 256<<10 {
		t.Errorf("the slow one lost %d of %d, %d (%d bytes) wait", lost, 2*n, waiting, bytes)
	}
	if got := items(t, q.readers[1]); int64(len(got))*2 != waiting || binary.LittleEndian.Uint32([]byte(got[0])) != uint32(lost/2) {
		t.Errorf("the slow one reads %d, waiting were %d", len(got), waiting)
	}
}

// TestQueueFullWhileSending drops the segment of a batch that is being sent. It is lost only when it does not
// arrive, and what is counted stays so.
func TestQueueFullWhileSending(t *testing.T) {
	for _, arrives := range []bool{true, false} {
		q, err := openQueue(t.TempDir(), 256<<10, []string{"a"})
		if err != nil {
			t.Fatal(err)
		}
		defer q.close()
		r, n := q.readers[0], int64(0)
		put := func(times int) {
			for range times {
				if err := q.append(traceRecord, 2, make([]byte, 10<<10)); err != nil {
					t.Fatal(err)
				}
				n += 2
			}
		}
		put(3)
		b, err := r.next(t.Context(), 1<<20, 2)
		if err != nil || b.items != 4 {
			t.Fatal(b.items, err)
		}
		put(40)
		before, _ := r.gone()
		if waiting, _ := r.waiting(); before == 0 || before+waiting+4 != n {
			t.Errorf("while 4 are sent %d of %d are lost and %d wait", before, n, waiting)
		}
		want := before
		if arrives {
			if err := r.ack(b); err != nil {
				t.Fatal(err)
			}
		} else {
			want += 4
		}
		if b, err = r.next(t.Context(), 1, 1); err != nil || b.items != 2 {
			t.Fatal(b.items, err)
		}
		if err := r.ack(b); err != nil {
			t.Fatal(err)
		}
		if after, _ := r.gone(); after != want {
			t.Errorf("arrives %v: %d are lost, then %d, want %d", arrives, before, after, want)
		}
	}
}

// TestQueueDamage goes on behind what cannot be read, and counts it.
func TestQueueDamage(t *testing.T) {
	for name, damage := range map[string]func(path string, data []byte) error{
		"a byte":       func(p string, d []byte) error { d[recordHeader] ^= 1; return os.WriteFile(p, d, 0o666) },
		"the checksum": func(p string, d []byte) error { d[5] ^= 1; return os.WriteFile(p, d, 0o666) },
		"the kind":     func(p string, d []byte) error { d[8] = 9; return os.WriteFile(p, d, 0o666) },
		"the length":   func(p string, d []byte) error { d[2] = 0xff; return os.WriteFile(p, d, 0o666) },
		"cut":          func(p string, d []byte) error { return os.WriteFile(p, d[:len(d)/2], 0o666) },
		"empty":        func(p string, _ []byte) error { return os.WriteFile(p, nil, 0o666) },
		"gone":         func(p string, _ []byte) error { return os.Remove(p) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			q, err := openQueue(dir, 2<<20, []string{"a"})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 20 { // about three of a segment
				if err := q.append(traceRecord, 1, append([]byte{byte(i)}, make([]byte, 40<<10)...)); err != nil {
					t.Fatal(err)
				}
			}
			if len(q.segments) < 3 {
				t.Fatalf("%d segments", len(q.segments))
			}
			q.close()
			path := q.path(1)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(path, data); err != nil {
				t.Fatal(err)
			}
			if q, err = openQueue(dir, 2<<20, []string{"a"}); err != nil {
				t.Fatal(err)
			}
			defer q.close()
			got := items(t, q.readers[0])
			if len(got) < 15 || got[len(got)-1][0] != 19 {
				t.Errorf("%d records are read", len(got))
			}
		})
	}
}

// TestForwardKilled is a process that queues what it says that it has queued, and is killed again and again:
// all of it arrives.
func TestForwardKilled(t *testing.T) {
	if dir := os.Getenv("ROLLSCOPE_TEST_FORWARD_DIR"); dir != "" {
		forwardUntilKilled(dir, os.Getenv("ROLLSCOPE_TEST_FORWARD_TO"))
		return
	}
	rounds := 3
	if n, err := strconv.Atoi(os.Getenv("ROLLSCOPE_KILL_ROUNDS")); err == nil {
		rounds = n
	}
	sink := &seen{}
	r := start(t, Options{Sink: sink})
	dir, acked := t.TempDir(), map[uint64]bool{}
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestForwardKilled$")
		cmd.Env = append(os.Environ(), "ROLLSCOPE_TEST_FORWARD_DIR="+dir, "ROLLSCOPE_TEST_FORWARD_TO="+r.grpc, "ROLLSCOPE_TEST_FORWARD_FROM="+strconv.Itoa(round*1_000_000))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		got := 0
		var line string
		for got < 200*(round+1) {
			if _, err := fmt.Fscanln(out, &line); err != nil {
				t.Fatalf("round %d: the process ended: %v", round, err)
			}
			if id, err := strconv.ParseUint(line, 10, 64); err == nil {
				acked[id] = true
				got++
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it was killed, and says so
	}
	f, err := NewForwarder(ForwardOptions{Dir: dir, Endpoints: []Endpoint{{Name: "to", URL: r.grpc}}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, f)
	wait(t, "the rest arrives", func() bool { return f.Endpoints()[0].Waiting == 0 })
	missing := 0
	for id := range acked {
		if !sink.has(id) {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d acknowledged traces are missing", missing, len(acked))
	}
	if n := f.Drops(); len(n) != 0 {
		t.Errorf("drops %v", n)
	}
}

// seen remembers the last eight bytes of trace ids.
type seen struct{ collected }

func (s *seen) has(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.spans {
		if binary.BigEndian.Uint64(h.Trace[8:]) == id {
			return true
		}
	}
	return false
}

func forwardUntilKilled(dir, to string) {
	f, err := NewForwarder(ForwardOptions{Dir: dir, Endpoints: []Endpoint{{Name: "to", URL: to, BatchBytes: 2000}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	go f.Run(context.Background())
	from, _ := strconv.ParseUint(os.Getenv("ROLLSCOPE_TEST_FORWARD_FROM"), 10, 64)
	for id := from + 1; ; id++ {
		raw := binary.BigEndian.AppendUint64([]byte{1<<3 | 2, 16, 0, 0, 0, 0, 0, 0, 0, 1}, id)
		raw = append(raw, 2<<3|2, 8, 0, 0, 0, 0, 0, 0, 0, 1)
		if err := f.Traces(false, []span.Scope{{Spans: []span.Header{{Raw: raw}}}}); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(id)
	}
}

// door is a listener that lets nobody in until it is opened. Its address stays its own meanwhile.
type door struct {
	net.Listener
	open atomic.Bool
}

// Accept implements [net.Listener].
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil || d.open.Load() {
			return c, err
		}
		if err := c.Close(); err != nil {
			return nil, err
		}
	}
}

// TestForwardUnreachable keeps what nobody takes, and says why.
func TestForwardUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sink := &collected{}
	r, err := NewReceiver(Options{Sink: sink})
	if err != nil {
		t.Fatal(err)
	}
	d := &door{Listener: l}
	srv := &http.Server{Handler: r.Handler()}
	go func() { _ = srv.Serve(d) }()
	defer srv.Close()
	dir := t.TempDir()
	o := ForwardOptions{Dir: dir, Backoff: time.Millisecond, Endpoints: []Endpoint{{Name: "x", URL: "http://" + l.Addr().String(), Timeout: patient}}}
	f, err := NewForwarder(o)
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, f)
	if err := f.Traces(false, scopesOf(t, 7)); err != nil {
		t.Fatal(err)
	}
	wait(t, "it retries", func() bool { e := f.Endpoints()[0]; return e.State == "retrying" && e.Error != "" && e.Waiting == 7 })
	stop()
	if f, err = NewForwarder(o); err != nil {
		t.Fatal(err)
	}
	if e := f.Endpoints()[0]; e.Waiting != 7 || e.WaitingBytes == 0 {
		t.Errorf("after the restart: %+v", e)
	}
	stop = run(t, f)
	d.open.Store(true)
	wait(t, "it arrives", func() bool { n, _ := sink.counts(); return n == 7 })
	stop()
}
