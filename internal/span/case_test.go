package span

import (
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/request"
)

// TestCaseO05: ids in base64 cost their span and say so; upper case, an empty parent and times as numbers do not.
func TestCaseO05(t *testing.T) {
	pb, rejected, err := FromJSON(read(t, "O05/ids.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(rejected) != 1 || rejected[0].Index != 0 || rejected[0].Reason != "id_base64" || !strings.Contains(rejected[0].Message, "looks base64, must be 32 hex digits") {
		t.Errorf("rejected %+v", rejected)
	}
	spans := decodeAll(t, pb)
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	up, root := spans[0], spans[1]
	if up.Trace.String() != "000000000000000000000000000000ab" || up.ID.String() != "00000000000000cd" || up.Name != "upper" {
		t.Errorf("upper case: %v %v %q", up.Trace, up.ID, up.Name)
	}
	if !root.Parent.IsZero() || root.Start != 1780000000000000000 || root.End != 1780000001000000000 {
		t.Errorf("empty parent, times as numbers: %+v", root.Header)
	}
}

// TestRejectedIDs has every id that cannot be, in both forms.
func TestRejectedIDs(t *testing.T) {
	const trace, id = "0102030405060708090a0b0c0d0e0f10", "0102030405060708"
	for _, c := range []struct{ trace, id, parent, reason, says string }{
		{trace, id, "", "", ""},
		{trace, id, strings.Repeat("0", 16), "", ""},
		{strings.ToUpper(trace), strings.ToUpper(id), id, "", ""},
		{strings.Repeat("0", 32), id, "", "id_zero", "traceId is all zero"},
		{trace, strings.Repeat("0", 16), "", "id_zero", "spanId is all zero"},
		{"", id, "", "id_absent", "traceId is missing"},
		{trace, "", "", "id_absent", "spanId is missing"},
		{trace[:31], id, "", "id_length", "31 hex digits, must have 32"},
		{trace[:16], id, "", "id_length", "16 hex digits, must have 32"},
		{trace, id, trace, "id_length", "parentSpanId"},
		{trace, "AAAAAAAAAAE=", "", "id_base64", "spanId \"AAAAAAAAAAE=\" looks base64, must be 16 hex digits"},
		{"_____________________w", id, "", "id_base64", "base64"},
		{trace, id, "parent", "id_not_hex", "parentSpanId"},
		{trace[:30] + "zz", id, "", "id_not_hex", "traceId"},
	} {
		body := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"` + c.trace + `","spanId":"` + c.id + `","parentSpanId":"` + c.parent + `","name":"x"}]}]}]}`
		pb, rejected, err := FromJSON([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		scopes, err := Scan(pb, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.reason == "" {
			if len(rejected) > 0 || len(scopes) != 1 || CheckIDs(&scopes[0].Spans[0]) != nil {
				t.Errorf("%+v: rejected %+v", c, rejected)
			}
			continue
		}
		if len(rejected) != 1 || rejected[0].Reason != c.reason || !strings.Contains(rejected[0].Message, c.says) || len(scopes) != 0 {
			t.Errorf("%+v: rejected %+v", c, rejected)
		}
	}
	for _, c := range []struct{ trace, id, parent, reason, says string }{
		{"0123456789abcdef", "12345678", "", "", ""},
		{"", "12345678", "", "id_absent", "traceId is missing"},
		{"0123456789abcdef", "", "", "id_absent", "spanId is missing"},
		{strings.Repeat("\x00", 16), "12345678", "", "id_zero", "traceId"},
		{"0123456789abcdef", strings.Repeat("\x00", 8), "", "id_zero", "spanId"},
		{"0123456789abcdef01234567", "12345678", "", "id_length", "decoded as base64"},
		{trace, "12345678", "", "id_length", "hex text of 32 digits"},
		{"0123456789abcdef", "1234567", "", "id_length", "7 bytes"},
		{"0123456789abcdef", "12345678", "123", "id_length", "parentSpanId has 3 bytes"},
	} {
		raw := appendText(appendText(appendText(appendText(nil, 1, c.trace), 2, c.id), 4, c.parent), 5, "x")
		h, err := ScanSpan(raw)
		if err != nil {
			t.Fatal(err)
		}
		r := CheckIDs(&h)
		if c.reason == "" {
			if r != nil {
				t.Errorf("%q: %+v", c, r)
			}
			continue
		}
		if r == nil || r.Reason != c.reason || !strings.Contains(r.Message, c.says) {
			t.Errorf("%q: %+v", c, r)
		}
	}
}

// TestCaseO07 has spans whose parents nobody sent, and a request that two traces share.
func TestCaseO07(t *testing.T) {
	load := func(name string) []Span {
		pb, rejected, err := FromJSON(read(t, name))
		if err != nil || len(rejected) > 0 {
			t.Fatal(err, rejected)
		}
		return decodeAll(t, pb)
	}
	orphan := NewTree(load("O07/orphan.json"))
	if len(orphan.Nodes) != 2 || !orphan.Incomplete() {
		t.Fatalf("%+v", orphan.Nodes)
	}
	gap, decode := orphan.Nodes[0], orphan.Nodes[1]
	if orphan.Name(0) != "missing parent 0000000000000063" || gap.Flags&IsMissing == 0 || decode.Parent != 0 || decode.Depth != 1 {
		t.Errorf("placeholder %q %+v over %+v", orphan.Name(0), gap, decode)
	}
	if decode.Start != 1780000000500000000 || decode.End != 1780000002000000000 || orphan.Duration() != 1500000000 {
		t.Errorf("times were altered: %+v", decode)
	}
	if flags := orphan.FlagNames(); strings.Join(flags, " ") != "incomplete orphans" {
		t.Errorf("flags %v", flags)
	}

	split := load("O07/split.json")
	gateway, engine := NewTree(split[:1]), NewTree(split[1:])
	why, ok := SameRequest(gateway, engine, request.Tolerance{})
	if !ok || !strings.Contains(why, "r-17") {
		t.Errorf("%v %q", ok, why)
	}
	if why, ok := SameRequest(gateway, orphan, request.Tolerance{}); ok {
		t.Errorf("strangers are one request: %q", why)
	}

	var c Coverage
	for _, tr := range []*Tree{orphan, gateway, engine} {
		c.Add(tr)
	}
	if c.Text() != "1 of 3 traces have no span of an engine (gateway 1 of 1)" {
		t.Errorf("%q", c.Text())
	}
	if s := c.Services(); len(s) != 2 || s[1] != (ServiceCoverage{Service: "engine", Traces: 2, Orphaned: 1}) {
		t.Errorf("%+v", s)
	}
}

// TestCaseO11: what a sender's limits cost is said beside the span and for its service, with what raises them.
func TestCaseO11(t *testing.T) {
	pb, _, err := FromJSON(read(t, "O11/dropped.json"))
	if err != nil {
		t.Fatal(err)
	}
	spans := decodeAll(t, pb)
	if got := spans[0].DroppedText(); got != "37 attributes dropped by the sender" {
		t.Errorf("%q", got)
	}
	drops := DropsOf(spans)
	if len(drops) != 1 || drops[0] != (ServiceDrops{"gateway", 1, 37}) || !strings.Contains(drops[0].Text(), "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT") {
		t.Errorf("%+v", drops)
	}
}
