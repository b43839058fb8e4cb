package tracestore

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/span"
)

var update = flag.Bool("update", false, "write the golden files")

// text writes a condition with all its parentheses.
func (c *Cond) text() string {
	switch c.op {
	case allOf, anyOf:
		word := " && "
		if c.op == anyOf {
			word = " || "
		}
		parts := make([]string, len(c.args))
		for i, a := range c.args {
			parts[i] = a.text()
		}
		if len(parts) == 0 {
			return fmt.Sprint(c.op == allOf)
		}
		return "(" + strings.Join(parts, word) + ")"
	}
	if c.cmp == Exists || c.cmp == Absent {
		return fmt.Sprintf("%s %s", c.field, c.cmp)
	}
	v := fmt.Sprintf("%q", c.value.Text)
	if c.value.IsNumber {
		v = c.value.Text
	}
	return fmt.Sprintf("%s %s %s", c.field, c.cmp, v)
}

func (s *Set) text() string {
	if s.op == leaf {
		return "{" + s.cond.text() + "}"
	}
	word := " && "
	if s.op == anyOf {
		word = " || "
	}
	parts := make([]string, len(s.args))
	for i, a := range s.args {
		parts[i] = a.text()
	}
	return "(" + strings.Join(parts, word) + ")"
}

// TestTraceQL reads queries, one a line, and writes what was understood of each and which filter finds its
// traces.
func TestTraceQL(t *testing.T) {
	raw, err := os.ReadFile("testdata/traceql/queries.txt")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			fmt.Fprintln(&b, line)
			continue
		}
		fmt.Fprintf(&b, "%s\n", line)
		q, err := ParseTraceQL(line)
		if err != nil {
			var qe *QueryError
			if !errors.As(err, &qe) || qe.At < 0 || qe.At > len(line) {
				t.Errorf("%s: %v is no QueryError with a place in the query", line, err)
				continue
			}
			fmt.Fprintf(&b, "  %s^ %s\n", strings.Repeat(" ", len([]rune(line[:qe.At]))), qe.Msg)
			continue
		}
		fmt.Fprintf(&b, "  is      %s\n", q.Where.text())
		if len(q.Select) > 0 {
			fmt.Fprintf(&b, "  select  %v\n", q.Select)
		}
		fmt.Fprintf(&b, "  finds   %s\n", candidateFilter(q.Where))
	}
	golden(t, "traceql/queries.golden", b.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what it was; run the test with -update and look at the difference\n%s", path, got)
	}
}

func testSpan() (span.Span, traceFacts) {
	text := func(k, v string) span.Attr { return span.Attr{Key: k, Value: span.Value{Str: v}} }
	s := span.Span{Service: "sglang", Resource: []span.Attr{text("service.name", "sglang"), text("host", "node-1")}, StatusMessage: "out of memory",
		Attrs:  []span.Attr{text("rid", "r-17"), {Key: "tokens", Value: span.Value{Type: span.Int, Str: "128"}}, {Key: "ok", Value: span.Value{Type: span.Bool, Str: "true"}}, text("host", "inner")},
		Events: []span.Event{{Name: "retract", Attrs: []span.Attr{text("reason", "kv")}}}, Links: []span.Link{{ID: span.ID{7: 9}}}}
	s.Name, s.Kind, s.Status, s.Start, s.End = " Req 1a2b3c4d", 2, span.Failed, 1_000_000_000, 1_250_000_000
	s.Trace, s.ID, s.Parent = span.TraceID{15: 1}, span.ID{7: 1}, span.ID{7: 2}
	return s, traceFacts{"http-request", "frontend", 2.5}
}

// TestHolds evaluates queries of one span each.
func TestHolds(t *testing.T) {
	for query, want := range map[string]bool{
		`{}`:                                               true,
		`{ true }`:                                         true,
		`{ false }`:                                        false,
		`{name="x"}`:                                       false,
		`{name=" Req 1a2b3c4d"}`:                           true,
		`{name="Req *"}`:                                   true,
		`{name=~"Req .*"}`:                                 false, // anchored, and the name begins with a space
		`{name=~".*Req .*"}`:                               true,
		`{resource.service.name="sglang"}`:                 true,
		`{.service.name="sglang"}`:                         true,
		`{resource.service.name!="sglang"}`:                false,
		`{span.rid="r-17" && duration>100ms}`:              true,
		`{span.rid="r-17" && duration>250ms}`:              false,
		`{duration>=250ms && duration<=250ms}`:             true,
		`{span.tokens>100}`:                                true,
		`{span.tokens=128}`:                                true,
		`{span.tokens="128"}`:                              true,
		`{span.tokens=128.0}`:                              true,
		`{span.tokens!=128}`:                               false,
		`{span.tokens<=127.9}`:                             false,
		`{span.missing!="x"}`:                              false, // what is not there is not different
		`{span.missing=nil}`:                               true,
		`{span.rid!=nil}`:                                  true,
		`{span.ok=true}`:                                   true,
		`{span.ok}`:                                        true,
		`{span.ok=false}`:                                  false,
		`{.host="node-1"}`:                                 false, // the span's own counts
		`{.host="inner"}`:                                  true,
		`{resource.host="node-1"}`:                         true,
		`{status=error}`:                                   true,
		`{status!=error}`:                                  false,
		`{status=unset || kind=server}`:                    true,
		`{kind!=client}`:                                   true,
		`{statusMessage=~".*memory"}`:                      true,
		`{event:name="retract"}`:                           true,
		`{event.reason="kv"}`:                              true,
		`{event.reason="other"}`:                           false,
		`{link:spanID="0000000000000009"}`:                 true,
		`{span:id="0000000000000001"}`:                     true,
		`{trace:id="00000000000000000000000000000001"}`:    true,
		`{rootName="http-request"}`:                        true,
		`{rootServiceName=~"front.*" && traceDuration>2s}`: true,
		`{traceDuration>3s}`:                               false,
		`{nestedSetParent<0}`:                              false,
		`{nestedSetParent>=0}`:                             true,
		`{(name="x" || kind=server) && (status=ok || span.rid=~"r-.*")}`: true,
	} {
		q, err := ParseTraceQL(query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		s, facts := testSpan()
		if got := q.Where.cond.holds(&s, &facts); got != want {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
}

func FuzzTraceQL(f *testing.F) {
	raw, err := os.ReadFile("testdata/traceql/queries.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		f.Add(strings.TrimSuffix(line, "\n"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := ParseTraceQL(text)
		if err != nil {
			var qe *QueryError
			if !errors.As(err, &qe) {
				t.Fatalf("%v is no QueryError", err)
			}
			if qe.At < 0 || qe.At > max(len(text), maxQueryBytes) {
				t.Fatalf("the error is at %d of %d bytes", qe.At, len(text))
			}
			return
		}
		filter := candidateFilter(q.Where)
		if _, err := checkLogsQL(filter); err != nil {
			t.Fatalf("%q became %q, which the store does not read: %v", text, filter, err)
		}
		s, facts := testSpan()
		for _, c := range q.Where.leaves() {
			c.holds(&s, &facts)
			checkLogsQL(c.filter())
		}
		// What is understood can be written and is understood the same again.
		if names := Fields(q.Where); len(names) > 0 {
			for _, n := range names {
				back, err := ParseField(n.String())
				if err != nil || back != n {
					t.Fatalf("field %q of %q reads back as %v, %v", n, text, back, err)
				}
			}
		}
	})
}
