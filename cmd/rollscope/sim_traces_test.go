package main

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rollscope/rollscope/internal/otlp"
	"github.com/rollscope/rollscope/internal/span"
)

// takeAll counts spans.
type takeAll struct{ spans atomic.Int64 }

func (s *takeAll) Traces(_ context.Context, scopes []span.Scope) (int, string, error) {
	for i := range scopes {
		s.spans.Add(int64(len(scopes[i].Spans)))
	}
	return 0, "", nil
}

func (s *takeAll) Logs(context.Context, []otlp.LogRecord) (int, string, error) { return 0, "", nil }

func TestSimTraces(t *testing.T) {
	sink := &takeAll{}
	r, err := otlp.NewReceiver(otlp.Options{Sink: sink})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, l, nil) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	to := l.Addr().String()
	out, stderr, code := runCLI(t, "sim", "traces", "--to", to, "--fleet", "uniform:2", "--rate", "max", "--count", "3210", "--connections", "2", "--json")
	var sent struct{ Spans, Acknowledged, Failed int64 }
	if err := json.Unmarshal([]byte(out), &sent); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, stderr)
	}
	if sent.Spans != 3210 || sent.Acknowledged != 3210 || sink.spans.Load() != 3210 {
		t.Errorf("%s; the receiver has %d", out, sink.spans.Load())
	}
	out, _, code = runCLI(t, "sim", "traces", "--to", to, "--fleet", "uniform:2", "--rate", "5000", "--for", "1s")
	if code != 0 || !strings.Contains(out, " acknowledged, 0 rejected, 0 failed; 0 retries") {
		t.Errorf("exit code %d: %s", code, out)
	}
	for _, bad := range [][]string{{"--rate", "fast"}, {"--rate", "-1"}, {"--rate", "NaN"}, {"--share", "0"}, {"--share", "2"}, {"--level", "5"}, {"--fleet", "none"}, {"--to", "ftp://x"}, {"--count", "-1"}} {
		if _, stderr, code := runCLI(t, append([]string{"sim", "traces", "--for", "1s"}, bad...)...); code != exitBadInput || stderr == "" {
			t.Errorf("%v: exit code %d: %s", bad, code, stderr)
		}
	}
}
