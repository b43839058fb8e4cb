package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/span"
)

// checking is a sink that holds what it gets against what it may count on.
type checking struct {
	t       *testing.T
	spans   int
	records int
}

func (c *checking) Traces(_ context.Context, scopes []span.Scope) (int, string, error) {
	n := 0
	for i := range scopes {
		for j := range scopes[i].Spans {
			if x := span.CheckIDs(&scopes[i].Spans[j]); x != nil {
				c.t.Errorf("a span comes through without usable ids: %s", x.Message)
			}
			n++
		}
	}
	again, err := span.Scan(AppendTraces(nil, scopes), nil)
	if err != nil {
		c.t.Fatalf("what was taken cannot be read when it is written again: %v", err)
	}
	for i := range again {
		n -= len(again[i].Spans)
	}
	if n != 0 {
		c.t.Errorf("%d spans are lost when they are written again", n)
	}
	for i := range scopes {
		c.spans += len(scopes[i].Spans)
	}
	return 0, "", nil
}

func (c *checking) Logs(_ context.Context, records []LogRecord) (int, string, error) {
	again, err := DecodeLogs(AppendLogs(nil, records), len(records)+1)
	if err != nil || len(again) != len(records) {
		c.t.Fatalf("%d records become %d when they are written again: %v", len(records), len(again), err)
	}
	for i := range records {
		var a, b event.Row
		records[i].Row(&a, 1)
		again[i].Row(&b, 1)
		x, errX := json.Marshal(a)
		y, errY := json.Marshal(b)
		if errX != nil || errY != nil || !bytes.Equal(x, y) {
			c.t.Fatalf("a record is another when it is written again:\n%s\n%s", x, y)
		}
	}
	c.records += len(records)
	return 0, "", nil
}

// fuzzed gives a body to a receiver and checks that it is counted or refused.
func fuzzed(t *testing.T, k signalKind, body []byte, isJSON bool) {
	if len(body) > 1<<16 {
		return
	}
	sink := &checking{t: t}
	r, err := NewReceiver(Options{Sink: sink})
	if err != nil {
		t.Fatal(err)
	}
	kept := bytes.Clone(body)
	out, refused := r.take(context.Background(), sourceKey{"otlp_http", "fuzz"}, k, body, isJSON)
	if !bytes.Equal(body, kept) {
		t.Error("the body is changed")
	}
	switch {
	case refused != nil && (refused.Message == "" || refused.Reason == ""):
		t.Errorf("a refusal without a reason: %+v", refused)
	case refused == nil && out.rejected > 0 && out.message == "":
		t.Errorf("%d rejected without a message", out.rejected)
	}
}

func cases(f *testing.F, add func([]byte)) {
	f.Helper()
	files, err := filepath.Glob("testdata/*/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no cases", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		add(b)
	}
}

func FuzzTraces(f *testing.F) {
	for _, n := range []int{0, 1, 3} {
		req := ptraceotlp.NewExportRequestFromTraces(someTraces("engine", n, n == 3))
		pb, err := req.MarshalProto()
		if err != nil {
			f.Fatal(err)
		}
		js, err := req.MarshalJSON()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(pb, false)
		f.Add(js, true)
	}
	cases(f, func(b []byte) { f.Add(b, true) })
	f.Fuzz(func(t *testing.T, body []byte, isJSON bool) { fuzzed(t, traces, body, isJSON) })
}

func FuzzLogs(f *testing.F) {
	for _, n := range []int{0, 1, 3} {
		req := plogotlp.NewExportRequestFromLogs(someLogs(n))
		pb, err := req.MarshalProto()
		if err != nil {
			f.Fatal(err)
		}
		js, err := req.MarshalJSON()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(pb, false)
		f.Add(js, true)
	}
	cases(f, func(b []byte) { f.Add(b, true) })
	f.Fuzz(func(t *testing.T, body []byte, isJSON bool) { fuzzed(t, logs, body, isJSON) })
}
