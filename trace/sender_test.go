package trace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// receiver decodes what is posted and answers with the given statuses first, then with 200.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	batches  []Batch
	headers  []http.Header
	statuses []int
	hold     chan struct{} // nil, or closed when answers may go out
	arrived  chan struct{}
}

func receive(t *testing.T, hold chan struct{}, statuses ...int) *receiver {
	r := &receiver{statuses: statuses, hold: hold, arrived: make(chan struct{}, 100)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, err := DecodeBatch(req.Body, Limits{})
		if err != nil || req.URL.Path != RolloutsPath || req.Method != http.MethodPost {
			t.Errorf("%s %s: %v", req.Method, req.URL, err)
		}
		r.mu.Lock()
		r.batches, r.headers = append(r.batches, b), append(r.headers, req.Header)
		status := 200
		if len(r.statuses) > 0 {
			status, r.statuses = r.statuses[0], r.statuses[1:]
		}
		r.mu.Unlock()
		r.arrived <- struct{}{}
		if r.hold != nil {
			<-r.hold
		}
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"data":{}}`)
	}))
	t.Cleanup(r.Close)
	return r
}

func sender(t *testing.T, address string, o SenderOptions) *Sender {
	t.Helper()
	o.Run, o.MinBackoff, o.MaxBackoff = "math-7b", time.Microsecond, 2*time.Microsecond
	s, err := NewSender(address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx)
	})
	return s
}

func flush(t *testing.T, s *Sender) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

type slimeSample struct {
	Index    int            `json:"index"`
	Tokens   []int          `json:"tokens"`
	LossMask []float64      `json:"loss_mask"`
	Reward   float64        `json:"reward"`
	Label    string         `json:"label,omitempty"`
	Meta     map[string]any `json:"metadata"`
	Trace    *Carrier       `json:"trace"`
	Hidden   chan int       `json:"-"`
	private  int
}

func TestSenderSendsARollout(t *testing.T) {
	r := receive(t, nil)
	s := sender(t, r.URL+"/", SenderOptions{Token: "secret", Batch: 2, Exclude: []string{"secret"}})
	c := NewCarrier(0, nil)
	var tr Tracer
	tr.Event(context.Background(), c, "e")
	loop := map[string]any{}
	loop["self"] = loop
	first := &slimeSample{Index: 0, Tokens: []int{1, 2, 3}, LossMask: []float64{1, 0, 1}, Reward: math.NaN(), Meta: map[string]any{"d": time.Second, "e": errors.New("bad")}, Trace: c, private: 1}
	taken := s.Send(Train, 7, first, map[string]any{"index": 1, "loop": loop, "secret": 1}, map[string]float64{"reward": math.Inf(-1)},
		json.RawMessage(`{"index": 3, "tokens": [1]}`), slimeSample{Index: 4, Hidden: make(chan int)})
	equal(t, taken, 5)
	first.Meta["d"] = "changed"
	flush(t, s)
	var got []string
	for i, b := range r.batches {
		n := 3
		want := Header{1, "math-7b", Train, 7, i, nil, i == 2, fmt.Sprintf("%s-%d", b.Upload, i), r.batches[0].Upload, 0}
		if i == 2 {
			want.Parts = &n
		}
		equal(t, b.Header, want)
		equal(t, r.headers[i].Get("Idempotency-Key"), b.BatchID)
		equal(t, r.headers[i].Get("Authorization"), "Bearer secret")
		for _, line := range b.Samples {
			got = append(got, string(line))
		}
	}
	event, _ := json.Marshal(c)
	equal(t, got[0], `{"index":0,"token_count":3,"effective_response_length":2,"reward":"NaN","metadata":{"d":1.0,"e":"bad"},"trace":`+string(event)+`}`)
	if !strings.HasPrefix(got[1], `{"index":1,"loop":{"self":{`) || !strings.Contains(got[1], "nested deeper") || strings.Contains(got[1], "secret") {
		t.Error(got[1][:40])
	}
	equal(t, got[2:], []string{`{"reward":"-Infinity"}`, `{"index":3,"tokens":[1]}`, `{"index":4,"reward":0.0,"metadata":null,"trace":null}`})
	st := s.Stats()
	equal(t, []int64{st.Batches, st.Samples, st.Retries, int64(len(st.Dropped)), int64(st.Queued)}, []int64{3, 5, 0, 0, 0})
}

func TestSenderInParts(t *testing.T) {
	r := receive(t, nil)
	s := sender(t, r.URL, SenderOptions{})
	s.SendPart(Train, 1, map[string]any{"index": 0})
	s.SendPart(Eval, 1)
	s.Send(Eval, 1)
	s.Send(Train, 1, map[string]any{"index": 1})
	s.Send(Train, 1, map[string]any{"index": 0})
	flush(t, s)
	var got []string
	for _, b := range r.batches {
		parts := 0
		if b.Parts != nil {
			parts = *b.Parts
		}
		got = append(got, fmt.Sprint(b.Kind, b.Part, parts, b.Final, len(b.Samples)))
	}
	equal(t, got, []string{"train0 0 false 1", "eval0 1 true 0", "train1 2 true 1", "train0 1 true 1"})
	equal(t, r.batches[0].Upload == r.batches[2].Upload && r.batches[2].Upload != r.batches[3].Upload, true)
}

func TestSenderRetries(t *testing.T) {
	r := receive(t, nil, 0, 500, 429, 408) // on a new connection, since net/http tries again itself when a kept one is hung up
	s := sender(t, r.URL, SenderOptions{})
	s.Send(Train, 0, map[string]any{"index": 0})
	flush(t, s)
	equal(t, len(r.batches), 5)
	for _, b := range r.batches {
		equal(t, b.BatchID, r.batches[0].BatchID)
	}
	st := s.Stats()
	equal(t, []int64{st.Samples, st.Retries, int64(len(st.Dropped))}, []int64{1, 4, 0})
}

func TestSenderGivesUp(t *testing.T) {
	r := receive(t, nil, 400, 302, 500, 500, 500)
	s := sender(t, r.URL, SenderOptions{Retries: 2})
	s.Send(Train, 0, map[string]any{}, map[string]any{})
	s.Send(Train, 1, map[string]any{})
	s.Send(Train, 2, map[string]any{})
	flush(t, s)
	equal(t, s.Stats().Dropped, map[string]int64{"rejected": 3, "retries": 1})
	equal(t, s.Stats().LastError, `HTTP 500: {"data":{}}`)
	s = sender(t, "http://127.0.0.1:1", SenderOptions{Retries: -1}) // nobody listens there, nor can in a moment
	s.Send(Train, 0, map[string]any{})
	flush(t, s)
	equal(t, s.Stats().Dropped, map[string]int64{"retries": 1})
}

type panics struct{ A int }

func (panics) MarshalJSON() ([]byte, error) { panic("mean") }

func TestSenderBounds(t *testing.T) {
	hold := make(chan struct{})
	r := receive(t, hold)
	s := sender(t, r.URL, SenderOptions{Batch: 1, MaxQueue: 2, MaxSampleBytes: 1000})
	s.Send(Train, 0, map[string]any{})
	<-r.arrived // under way, no longer in the queue
	equal(t, s.SendPart(Train, 1, map[string]any{}, map[string]any{}, map[string]any{}, strings.Repeat("x", 5), map[string]any{"a": strings.Repeat("x", 2000)}, panics{}), 2)
	equal(t, s.Stats().Dropped, map[string]int64{"queue_full": 1, "encode": 2, "too_large": 1})
	close(hold)
	flush(t, s)
	s.Send(Train, 1, map[string]any{})
	flush(t, s)
	last := r.batches[len(r.batches)-1].Header
	equal(t, []int{last.Part, *last.Parts, int(last.Lost)}, []int{3, 4, 4})
}

func TestSenderBoundsBytes(t *testing.T) {
	hold := make(chan struct{})
	r := receive(t, hold)
	s := sender(t, r.URL, SenderOptions{MaxBatchBytes: 500, MaxQueueBytes: 1000})
	s.Send(Train, 0, map[string]any{})
	<-r.arrived
	big := map[string]any{"a": strings.Repeat("x", 380)}
	equal(t, s.Send(Train, 1, big, big, big), 2)
	close(hold)
	flush(t, s)
	equal(t, s.Stats().Dropped, map[string]int64{"queue_full": 1})
	equal(t, len(r.batches), 3)
}

func TestSenderClose(t *testing.T) {
	before := runtime.NumGoroutine()
	hold := make(chan struct{})
	r := receive(t, hold)
	s := sender(t, r.URL, SenderOptions{})
	s.Send(Train, 0, map[string]any{})
	<-r.arrived
	s.Send(Train, 1, map[string]any{}, map[string]any{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	equal(t, s.Stats().Dropped, map[string]int64{"closed": 3})
	equal(t, s.Send(Train, 2, map[string]any{}), 0)
	equal(t, s.Stats().Dropped, map[string]int64{"closed": 4})
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	close(hold)
	r.Close()

	// One that has nothing left to do ends as well, also while it waits to try again.
	for _, status := range []int{200, 500} {
		r := receive(t, nil, status)
		s, err := NewSender(r.URL, SenderOptions{Run: "r", MinBackoff: time.Hour, MaxBackoff: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		s.Send(Train, 0, map[string]any{})
		<-r.arrived
		if status == 200 {
			flush(t, s)
		}
		if err := s.Close(ctx); (err == nil) != (status == 200) {
			t.Error(status, err)
		}
		r.Close()
	}
	// Goroutines of closed connections end soon after: wait for them, but not for ever.
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return
		}
	}
	buf := make([]byte, 1<<16)
	t.Fatalf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
}

func TestNewSenderErrors(t *testing.T) {
	for _, c := range []struct{ address, run string }{{"", "r"}, {"host:9090", "r"}, {"ftp://host", "r"}, {"http://", "r"}, {"http://host", ""}, {"http://host", strings.Repeat("x", 257)}} {
		if _, err := NewSender(c.address, SenderOptions{Run: c.run}); err == nil {
			t.Error(c)
		}
	}
}
