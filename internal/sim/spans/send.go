package spans

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/otlp"
	"github.com/rollscope/rollscope/internal/span"
)

// Counts say what became of the spans that were sent. Spans is Acked, Rejected and Failed together.
type Counts struct {
	Requests int64 // that were answered or given up
	Spans    int64
	Acked    int64 // spans that the receiver has taken
	Rejected int64 // of partial successes
	Failed   int64 // of requests that were refused for good, or given up
	Retries  int64 // requests that were sent again
	Bytes    int64 // of the requests, before compression
	Error    string
}

// Plus adds two counts; the error is the other's, when it has one.
func (c Counts) Plus(o Counts) Counts {
	c.Requests += o.Requests
	c.Spans += o.Spans
	c.Acked += o.Acked
	c.Rejected += o.Rejected
	c.Failed += o.Failed
	c.Retries += o.Retries
	c.Bytes += o.Bytes
	if o.Error != "" {
		c.Error = o.Error
	}
	return c
}

// exporter sends requests to one receiver and counts. It is safe for concurrent use.
type exporter struct {
	sender   *otlp.Sender
	patience time.Duration // how long a request is tried

	mu     sync.Mutex
	counts Counts
}

const (
	requestTimeout = 10 * time.Second // of one try, as OpenTelemetry's exporters have it
	firstPause     = 100 * time.Millisecond
	longestPause   = 5 * time.Second
)

// newExporter opens nothing yet. patience is how long one request is tried again.
func newExporter(to otlp.Endpoint, patience time.Duration) (*exporter, error) {
	s, err := otlp.NewSender(to)
	if err != nil {
		return nil, fmt.Errorf("sim traces: %w", err)
	}
	return &exporter{sender: s, patience: patience}, nil
}

func (e *exporter) close() error { return e.sender.Close() }

// Counts so far.
func (e *exporter) count() Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts
}

// send sends one request, again when the receiver says so, until ctx ends or its patience does. A try that has
// begun is waited for also when ctx ends: its spans are counted as what they became. It says false when it lost
// its patience.
func (e *exporter) send(ctx context.Context, body []byte, spans int) bool {
	c := Counts{Requests: 1, Spans: int64(spans), Bytes: int64(len(body))}
	defer func() {
		e.mu.Lock()
		e.counts = e.counts.Plus(c)
		e.mu.Unlock()
	}()
	until := time.Now().Add(e.patience)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		try, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		rejected, message, err := e.sender.Traces(try, body)
		cancel()
		if err == nil {
			c.Rejected = int64(min(rejected, spans))
			c.Acked = int64(spans) - c.Rejected
			if message != "" {
				c.Error = message
			}
			return true
		}
		c.Error = err.Error()
		var x *otlp.Refusal
		again := errors.As(err, &x) && (x.Verdict == otlp.Busy || x.Verdict == otlp.Down)
		if again {
			pause = max(pause, min(x.After, longestPause))
		}
		tired := again && time.Now().Add(pause).After(until)
		if !again || tired || !sleep(ctx, pause) {
			c.Failed = int64(spans)
			return !tired
		}
		c.Retries++
	}
}

// sleep waits, and says false when ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// batch is one request.
type batch struct {
	body  []byte
	spans int
}

// batches makes requests of spans as their processes would: each of one process, of at most size spans, in order.
func batches(all []span.Span, size int) []batch {
	var (
		out   []batch
		order []string
		held  = map[string][]span.Span{}
	)
	flush := func(p string) {
		if s := held[p]; len(s) > 0 {
			out = append(out, batch{span.AppendTraces(nil, s), len(s)})
			held[p] = nil
		}
	}
	for _, s := range all {
		p := processKey(&s)
		if _, ok := held[p]; !ok {
			order = append(order, p)
		}
		held[p] = append(held[p], s)
		if len(held[p]) >= size {
			flush(p)
		}
	}
	for _, p := range order {
		flush(p)
	}
	return out
}

// processKey tells processes apart: one exporter's spans share requests.
func processKey(s *span.Span) string {
	key := s.Service + "/" + s.ScopeName
	for _, a := range s.Resource {
		if a.Key == "service.instance.id" {
			key += "/" + a.Value.Str
		}
	}
	return key
}
