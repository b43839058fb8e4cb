package span

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"sort"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/rollscope/rollscope/internal/event"
)

// madeTraces are traces with everything that OTLP can say, made by another implementation of it.
func madeTraces(r *rand.Rand, spans int) ptrace.Traces {
	texts := []string{"", "a", "decode_loop", "Ünï \"quoted\"\n\t\x01 \\ text", "key with space", "🙂", "true", "12", "null", string(bytes.Repeat([]byte("long "), 60))}
	text := func() string { return texts[r.IntN(len(texts))] }
	var value func(v pcommon.Value, depth int)
	value = func(v pcommon.Value, depth int) {
		switch k := r.IntN(9); {
		case k == 0:
			v.SetInt([]int64{0, 1, -1, math.MaxInt64, math.MinInt64, 1 << 53}[r.IntN(6)])
		case k == 1:
			v.SetDouble([]float64{0, 1, -1.5, 1e21, 1e-9, 123456.789, math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64}[r.IntN(10)])
		case k == 2:
			v.SetBool(r.IntN(2) == 0)
		case k == 3:
			v.SetEmptyBytes().FromRaw([]byte(text()))
		case k == 4 && depth < 5:
			s := v.SetEmptySlice()
			for range r.IntN(4) {
				value(s.AppendEmpty(), depth+1)
			}
		case k == 5 && depth < 5:
			m := v.SetEmptyMap()
			for range r.IntN(4) {
				value(m.PutEmpty(text()), depth+1)
			}
		case k == 6 && depth < 5:
			value(v.SetEmptyMap().PutEmpty([]string{keyBytes, keyDouble, keyMap}[r.IntN(3)]), depth+1)
		case k == 7 && depth > 0:
			// left empty
		default:
			v.SetStr(text())
		}
	}
	attrs := func(m pcommon.Map, n int) {
		for i := range r.IntN(n) {
			key := text()
			if i > 3 {
				key += string(rune('a' + i))
			}
			value(m.PutEmpty(key), 0)
		}
	}
	td := ptrace.NewTraces()
	for range 1 + r.IntN(3) {
		rs := td.ResourceSpans().AppendEmpty()
		if r.IntN(3) > 0 {
			rs.Resource().Attributes().PutStr("service.name", text())
		}
		attrs(rs.Resource().Attributes(), 5)
		rs.Resource().SetDroppedAttributesCount(uint32(r.IntN(3)))
		for range 1 + r.IntN(2) {
			ss := rs.ScopeSpans().AppendEmpty()
			ss.Scope().SetName(text())
			ss.Scope().SetVersion(text())
			attrs(ss.Scope().Attributes(), 3)
			ss.Scope().SetDroppedAttributesCount(uint32(r.IntN(2)))
			for range 1 + r.IntN(spans) {
				s := ss.Spans().AppendEmpty()
				s.SetTraceID(pcommon.TraceID{1: byte(r.IntN(256)), 15: 1})
				s.SetSpanID(pcommon.SpanID{0: byte(r.IntN(256)), 7: 1})
				if r.IntN(2) == 0 {
					s.SetParentSpanID(pcommon.SpanID{0: byte(r.IntN(256)), 7: 2})
				}
				s.SetName(text())
				s.TraceState().FromRaw([]string{"", "ot=th:8,x=y"}[r.IntN(2)])
				s.SetKind(ptrace.SpanKind(r.IntN(6)))
				s.SetFlags(uint32(r.IntN(2) * 0x301))
				s.SetStartTimestamp(pcommon.Timestamp([]int64{0, 1780000000123456789}[r.IntN(2)]))
				s.SetEndTimestamp(pcommon.Timestamp([]int64{0, 1780000000123456789, 1780000000123450000, 1780000009123456789}[r.IntN(4)]))
				attrs(s.Attributes(), 30)
				s.SetDroppedAttributesCount(uint32(r.IntN(2) * 37))
				s.SetDroppedEventsCount(uint32(r.IntN(2)))
				s.SetDroppedLinksCount(uint32(r.IntN(2)))
				s.Status().SetCode(ptrace.StatusCode(r.IntN(3)))
				s.Status().SetMessage(text())
				for range r.IntN(3) {
					e := s.Events().AppendEmpty()
					e.SetName(text())
					e.SetTimestamp(1780000000123456799)
					e.SetDroppedAttributesCount(uint32(r.IntN(2)))
					attrs(e.Attributes(), 4)
				}
				for range r.IntN(3) {
					l := s.Links().AppendEmpty()
					l.SetTraceID(pcommon.TraceID{3: 9})
					l.SetSpanID(pcommon.SpanID{3: 8})
					l.TraceState().FromRaw([]string{"", "a=b"}[r.IntN(2)])
					l.SetFlags(uint32(r.IntN(2)))
					l.SetDroppedAttributesCount(uint32(r.IntN(2)))
					attrs(l.Attributes(), 4)
				}
			}
		}
	}
	return td
}

// decodeAll reads a body in full. One Span is used for all, as a receiver does.
func decodeAll(t testing.TB, body []byte) []Span {
	t.Helper()
	scopes, err := Scan(body, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []Span
	var s Span
	for i := range scopes {
		for k := range scopes[i].Spans {
			if err := Decode(&scopes[i], &scopes[i].Spans[k], &s); err != nil {
				t.Fatal(err)
			}
			out = append(out, s.Clone())
		}
	}
	return out
}

// canonical is a body as another implementation shows it, with attributes in the order of their keys.
func canonical(t testing.TB, pb []byte) string {
	t.Helper()
	td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(pb)
	if err != nil {
		t.Fatal(err)
	}
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				if list, ok := x.([]any); ok && k == "attributes" {
					key := func(i int) string { s, _ := list[i].(map[string]any)["key"].(string); return s }
					sort.SliceStable(list, func(i, j int) bool { return key(i) < key(j) })
				}
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(v)
	out, _ := json.MarshalIndent(v, "", " ")
	return string(out)
}

// TestEveryForm sends made traces through every form that spans take here: wire, row, JSON, and back.
func TestEveryForm(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		td := madeTraces(r, 4)
		pb, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		if err != nil {
			t.Fatal(err)
		}
		spans := decodeAll(t, pb)
		if len(spans) != td.SpanCount() {
			t.Fatalf("seed %d: %d spans of %d", seed, len(spans), td.SpanCount())
		}
		// The other implementation groups as it was made, we by resource and scope: compare what we wrote.
		ours := AppendTraces(nil, spans)
		want := canonical(t, ours)
		again := decodeAll(t, ours)
		if len(again) != len(spans) {
			t.Fatalf("seed %d: %d spans after writing %d", seed, len(again), len(spans))
		}
		if grouped := canonical(t, pbOfGrouped(t, td)); want != grouped {
			t.Fatalf("seed %d: written back:\n%s\nwant\n%s", seed, want, grouped)
		}

		fromJSON, rejected, err := FromJSON(AppendTracesJSON(nil, spans))
		if err != nil || len(rejected) > 0 {
			t.Fatalf("seed %d: own JSON: %v %v", seed, err, rejected)
		}
		if got := canonical(t, fromJSON); got != want {
			t.Fatalf("seed %d: through own JSON:\n%s\nwant\n%s", seed, got, want)
		}
		theirs, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
		if err != nil {
			t.Fatal(err)
		}
		fromJSON, rejected, err = FromJSON(theirs)
		if err != nil || len(rejected) > 0 {
			t.Fatalf("seed %d: their JSON: %v %v", seed, err, rejected)
		}
		if got := canonical(t, fromJSON); got != canonical(t, pb) {
			t.Fatalf("seed %d: through their JSON:\n%s\nwant\n%s", seed, got, canonical(t, pb))
		}

		var row event.Row
		back := make([]Span, len(spans))
		for i := range spans {
			spans[i].Row(&row)
			names := map[string]bool{}
			for _, f := range row.Fields {
				if f.Value == "" || names[f.Name] || len(f.Name) > maxFieldName {
					t.Fatalf("seed %d: field %q (%q) is repeated, empty or too long", seed, f.Name, f.Value)
				}
				names[f.Name] = true
			}
			if back[i], err = FromRow(stored(&row)); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		for i := range spans {
			if got, want := canonical(t, AppendTraces(nil, back[i:i+1])), canonical(t, AppendTraces(nil, spans[i:i+1])); got != want {
				t.Fatalf("seed %d: through a row:\n%s\nwant\n%s", seed, got, want)
			}
			if !reflect.DeepEqual(back[i].Service, spans[i].Service) {
				t.Fatalf("service %q, want %q", back[i].Service, spans[i].Service)
			}
		}
	}
}

// pbOfGrouped is td with equal resources and scopes brought together, as AppendTraces does.
func pbOfGrouped(t testing.TB, td ptrace.Traces) []byte {
	t.Helper()
	out := ptrace.NewTraces()
	marshal := func(fill func(ptrace.ResourceSpans)) string {
		one := ptrace.NewTraces()
		fill(one.ResourceSpans().AppendEmpty())
		pb, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(one)
		return string(pb)
	}
	resources := map[string]ptrace.ResourceSpans{}
	scopes := map[string]ptrace.ScopeSpans{}
	for i := range td.ResourceSpans().Len() {
		rs := td.ResourceSpans().At(i)
		rkey := marshal(func(x ptrace.ResourceSpans) { rs.Resource().CopyTo(x.Resource()) })
		to, ok := resources[rkey]
		if !ok {
			to = out.ResourceSpans().AppendEmpty()
			rs.Resource().CopyTo(to.Resource())
			resources[rkey] = to
		}
		for k := range rs.ScopeSpans().Len() {
			ss := rs.ScopeSpans().At(k)
			skey := rkey + marshal(func(x ptrace.ResourceSpans) { ss.Scope().CopyTo(x.ScopeSpans().AppendEmpty().Scope()) })
			sto, ok := scopes[skey]
			if !ok {
				sto = to.ScopeSpans().AppendEmpty()
				ss.Scope().CopyTo(sto.Scope())
				scopes[skey] = sto
			}
			for n := range ss.Spans().Len() {
				ss.Spans().At(n).CopyTo(sto.Spans().AppendEmpty())
			}
		}
	}
	pb, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(out)
	if err != nil {
		t.Fatal(err)
	}
	return pb
}

// stored is a row as the event store gives it back: every field as text, in any order, none empty.
func stored(r *event.Row) []event.Field {
	out := []event.Field{{Name: "_time", Value: formatTime(r.Time)}, {Name: "_msg", Value: r.Message}, {Name: "row", Value: string(r.Kind)}, {Name: "service", Value: r.Service}, {Name: "received", Value: formatTime(r.Time)}}
	for _, f := range r.Fields {
		out = append(out, event.Field{Name: string([]byte(f.Name)), Value: string([]byte(f.Value))})
	}
	rand.New(rand.NewPCG(1, uint64(len(out)))).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
