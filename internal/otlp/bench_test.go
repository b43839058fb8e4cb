package otlp

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/rollscope/rollscope/internal/span"
)

// counter is a sink that only counts.
type counter struct{ spans atomic.Int64 }

func (c *counter) Traces(_ context.Context, scopes []span.Scope) (int, string, error) {
	for i := range scopes {
		c.spans.Add(int64(len(scopes[i].Spans)))
	}
	return 0, "", nil
}

func (c *counter) Logs(context.Context, []LogRecord) (int, string, error) { return 0, "", nil }

// BenchmarkReceive is a request of 1000 spans over loopback, with the sender in the same process: the figure
// per second of processor time has both sides in it.
func BenchmarkReceive(b *testing.B) {
	const spans = 1000
	body, err := ptraceotlp.NewExportRequestFromTraces(someTraces("engine", spans, false)).MarshalProto()
	if err != nil {
		b.Fatal(err)
	}
	for _, over := range []string{"grpc", "http"} {
		b.Run(over, func(b *testing.B) {
			sink := &counter{}
			s := start(b, Options{Sink: sink})
			url := "grpc://" + s.grpc
			if over == "http" {
				url = "http://" + s.http
			}
			to, err := NewSender(Endpoint{URL: url, Compression: "none"})
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := to.Close(); err != nil {
					b.Error(err)
				}
			}()
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			before := processorTime()
			for b.Loop() {
				if _, _, err := to.Traces(context.Background(), body); err != nil {
					b.Fatal(err)
				}
			}
			used := processorTime() - before
			b.ReportMetric(float64(b.N*spans)/used.Seconds(), "spans/cpu-s")
			if got := sink.spans.Load(); got < int64(b.N*spans) {
				b.Errorf("%d spans came", got)
			}
		})
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
