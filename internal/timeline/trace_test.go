package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/span"
)

// pdTrace is a request through a frontend, a prefill engine and a decode engine, milliseconds from a start.
func pdTrace() []span.Span {
	const t0 = 1_780_000_000_000_000_000
	make := func(id, parent byte, service, host, name string, from, to int64) span.Span {
		s := span.Span{Service: service, Resource: []span.Attr{{Key: "host.name", Value: span.Value{Str: host}}}}
		s.Trace, s.ID, s.Name, s.Kind = span.TraceID{15: 7}, span.ID{7: id}, name, 1
		if parent != 0 {
			s.Parent = span.ID{7: parent}
		}
		s.Start, s.End = t0+from*1e6, t0+to*1e6
		return s
	}
	out := []span.Span{
		make(1, 0, "frontend", "f", "http-request", 0, 1000),
		make(2, 1, "frontend", "f", "kv_router.route_request", 1, 20),
		make(3, 1, "sglang", "p", "prefill Req 1a2b3c4d", 20, 300),
		make(4, 3, "sglang", "p", "prefill_waiting", 21, 50),
		make(5, 3, "sglang", "p", "prefill_forward", 50, 250),
		make(6, 3, "sglang", "p", "prefill_transfer_kv_cache", 250, 299),
		make(7, 1, "sglang", "d", "decode Req 1a2b3c4d", 22, 990),
		make(8, 7, "sglang", "d", "decode_transferred", 250, 300),
		make(9, 7, "sglang", "d", "decode_forward", 300, 985),
		make(20, 99, "sglang", "d", "decode_loop", 310, 340), // its parent came from nobody
	}
	for i := range byte(4) {
		out = append(out, make(10+i, 9, "sglang", "d", "decode_loop", 300+100*int64(i), 390+100*int64(i)))
	}
	out[6].Status, out[6].StatusMessage = span.Failed, "aborted"
	out[4].Attrs = []span.Attr{{Key: "tokens", Value: span.Value{Type: span.Int, Str: "2048"}}, {Key: "tags", Value: span.Value{Type: span.JSON, Str: `["a",1]`}}, {Key: "name", Value: span.Value{Str: "quo\"te"}}}
	out[4].Events = []span.Event{{Time: out[4].Start + 5e6, Name: "retract", Attrs: []span.Attr{{Key: "reason", Value: span.Value{Str: "kv"}}}}}
	return out
}

// TestTraceColumns draws a PD pair's trace: a row a participant, spans in lanes, a placeholder, points.
func TestTraceColumns(t *testing.T) {
	c := TraceColumns(Head{Dump: Dump{Name: "7"}}, span.NewTree(pdTrace()))
	var buf bytes.Buffer
	if err := c.Encode(&buf); err != nil {
		t.Fatal(err)
	}
	back, err := Decode(buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	ix := NewIndex(back)
	var b strings.Builder
	for r := range ix.Rows() {
		d, err := ix.Row(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s | %s | %d lanes, flags %v, status %q\n", d.Label, d.Source, d.Lanes, d.Flags, d.Status)
		for _, it := range d.Items {
			attrs := string(it.Attrs)
			if !json.Valid(it.Attrs) {
				t.Errorf("attributes of %s are no JSON: %s", it.Name, attrs)
			}
			fmt.Fprintf(&b, "  lane %d depth %d %6.1f +%6.1f ms  %-24s %-22s %s flags %d %s\n", it.Lane, it.Depth, it.Start*1e3, it.Dur*1e3, it.Class, it.Name, it.State, it.Flags, attrs)
		}
	}
	path := filepath.Join("testdata", "trace", "pd.golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the timeline is not what it was; look at -update's difference\n%s", b.String())
	}
}

// TestTraceEmpty draws traces that have nothing to draw.
func TestTraceEmpty(t *testing.T) {
	for name, spans := range map[string][]span.Span{"nothing": nil, "no times": {{Header: span.Header{Trace: span.TraceID{1}, ID: span.ID{1}, Name: "x"}}}} {
		c := TraceColumns(Head{}, span.NewTree(spans))
		var buf bytes.Buffer
		if err := c.Encode(&buf); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		NewIndex(c).Extent()
	}
}

func BenchmarkTraceColumns(b *testing.B) {
	var spans []span.Span
	one := pdTrace()
	for i := range 2000 {
		for _, s := range one {
			s.ID[0], s.ID[1] = byte(i>>8), byte(i)
			if !s.Parent.IsZero() {
				s.Parent[0], s.Parent[1] = byte(i>>8), byte(i)
			}
			spans = append(spans, s)
		}
	}
	tree := span.NewTree(spans)
	b.ReportAllocs()
	for b.Loop() {
		TraceColumns(Head{}, tree)
	}
	b.ReportMetric(float64(len(spans))*float64(b.N)/b.Elapsed().Seconds(), "spans/s")
}
