package convert

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/rollscope/rollscope/internal/timeline"
	"github.com/rollscope/rollscope/torchfile"
)

// otlp writes one ExportTraceServiceRequest in OTLP/JSON a line and sample: what the collector's
// otlpjsonfile receiver reads.
//
// OTLP's ids are 16 bytes of a trace and 8 of a span; slime's are 16 bytes in hex. A trace id is kept when
// it is 32 hex digits; of a span id the first 16 digits are kept. Ids of another form are hashed. The
// dump's own id stands in the attribute slime.span_id. Samples that share a carrier are one trace, written
// once, with the first of them. Points are events of their parent span; those without a parent, and
// orphan ends, are spans of no length.
type otlp struct {
	o   Options
	buf *bufio.Writer
	enc ptrace.JSONMarshaler
}

func newOTLP(w io.Writer, o Options) *otlp {
	return &otlp{o: o, buf: bufio.NewWriterSize(w, 1<<18)}
}

func (t *otlp) Close() error { return t.buf.Flush() }

func (t *otlp) Add(row *timeline.Row) error {
	s := row.Sample
	if len(row.Items) == 0 || s.Trace.SharedWith >= 0 && s.Trace.SharedWith != s.Ordinal {
		return nil
	}
	traces := ptrace.NewTraces()
	res := traces.ResourceSpans().AppendEmpty()
	attrs := res.Resource().Attributes()
	attrs.PutStr("service.name", "slime.rollout")
	if t.o.Run != "" {
		attrs.PutStr("rollscope.run", t.o.Run)
	}
	attrs.PutStr("rollscope.step.kind", t.o.kind())
	if t.o.RolloutID.OK {
		attrs.PutInt("slime.rollout_id", t.o.RolloutID.N)
	}
	attrs.PutInt("slime.sample.ordinal", int64(s.Ordinal))
	if s.Index.OK {
		attrs.PutInt("slime.sample.index", s.Index.N)
	}
	if s.GroupIndex.OK {
		attrs.PutInt("slime.sample.group_index", s.GroupIndex.N)
	}
	if s.StatusText != "" {
		attrs.PutStr("slime.sample.status", s.StatusText)
	}
	if v, ok := s.Reward.Value.Known(); ok {
		attrs.PutDouble("slime.sample.reward", v)
	}
	scope := res.ScopeSpans().AppendEmpty()
	scope.Scope().SetName("rollscope")
	scope.Scope().SetVersion(t.o.Version)

	trace := traceID(s.Trace.ID, s.Ordinal)
	made := make(map[int]ptrace.Span, len(row.Items))
	out := scope.Spans()
	add := func(i int) ptrace.Span {
		it := &row.Items[i]
		sp := out.AppendEmpty()
		sp.SetTraceID(trace)
		sp.SetSpanID(spanID(it.SpanID, s.Ordinal, i))
		if it.Parent >= 0 {
			sp.SetParentSpanID(spanID(row.Items[it.Parent].SpanID, s.Ordinal, it.Parent))
		}
		sp.SetName(it.Name)
		sp.SetKind(ptrace.SpanKindInternal)
		if it.Class == timeline.ClassGenerate {
			sp.SetKind(ptrace.SpanKindClient)
		}
		sp.SetStartTimestamp(pcommon.Timestamp(max(0, it.Start)))
		sp.SetEndTimestamp(pcommon.Timestamp(max(0, it.End)))
		a := sp.Attributes()
		put(a, it.StartAttrs)
		put(a, it.EndAttrs)
		if it.SpanID != "" {
			a.PutStr("slime.span_id", it.SpanID)
		}
		a.PutInt("slime.attempt", int64(it.Attempt))
		if it.State == timeline.Open {
			a.PutStr("rollscope.open_until", it.ClippedBy)
		}
		if names := it.Flags.Names(); len(names) > 0 {
			a.PutStr("rollscope.flags", strings.Join(names, ","))
		}
		if it.Flags&timeline.Error != 0 {
			sp.Status().SetCode(ptrace.StatusCodeError)
			if text := it.EndAttrs.Get("error_message"); text.Exists() {
				sp.Status().SetMessage(text.PyStr())
			}
		}
		return sp
	}
	for i := range row.Items {
		if it := &row.Items[i]; it.Flags&timeline.Virtual == 0 && (it.State == timeline.Closed || it.State == timeline.Open) {
			made[i] = add(i)
		}
	}
	for i := range row.Items {
		it := &row.Items[i]
		if it.Flags&timeline.Virtual != 0 || it.State == timeline.Closed || it.State == timeline.Open {
			continue
		}
		parent, ok := made[it.Parent]
		if it.State == timeline.OrphanEnd || !ok {
			sp := add(i)
			sp.Attributes().PutStr("rollscope.kind", stateNames[it.State])
			continue
		}
		ev := parent.Events().AppendEmpty()
		ev.SetName(it.Name)
		ev.SetTimestamp(pcommon.Timestamp(max(0, it.Start)))
		put(ev.Attributes(), it.StartAttrs)
	}
	b, err := t.enc.MarshalTraces(traces)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	_, err = t.buf.Write(b)
	return err
}

// traceID keeps an id of 32 hex digits that is not zero, and hashes any other.
func traceID(id string, ordinal int) pcommon.TraceID {
	var t pcommon.TraceID
	if n, err := hex.Decode(t[:], []byte(id)[:min(len(id), 32)]); err == nil && n == 16 && len(id) == 32 && !t.IsEmpty() {
		return t
	}
	if id == "" {
		id = "ordinal " + strconv.Itoa(ordinal)
	}
	sum := sha256.Sum256([]byte(id))
	copy(t[:], sum[:])
	return t
}

// spanID is the first half of an id of 32 hex digits, an id of 16 as it is, and a hash of any other. An
// item without an id gets one of its place.
func spanID(id string, ordinal, place int) pcommon.SpanID {
	var sp pcommon.SpanID
	if len(id) == 16 || len(id) == 32 {
		if _, err := hex.Decode(sp[:], []byte(id)[:16]); err == nil && !sp.IsEmpty() {
			return sp
		}
	}
	if id == "" {
		id = "place " + strconv.Itoa(ordinal) + " " + strconv.Itoa(place)
	}
	sum := sha256.Sum256([]byte(id))
	copy(sp[:], sum[:])
	return sp
}

// put copies a dict's entries: text, numbers and booleans as they are, anything else as JSON.
func put(m pcommon.Map, v torchfile.Value) {
	if v.Kind() != torchfile.KindDict {
		if v.Exists() && !v.IsNone() {
			m.PutStr("value", string(timeline.AppendJSON(nil, v, maxText)))
		}
		return
	}
	for k, e := range v.Pairs() {
		key := k.PyStr()
		if b, ok := e.Bool(); ok {
			m.PutBool(key, b)
		} else if i, ok := e.Int(); ok && e.Kind() == torchfile.KindInt {
			m.PutInt(key, i)
		} else if f, ok := e.Float(); ok && !math.IsNaN(f) && !math.IsInf(f, 0) {
			m.PutDouble(key, f)
		} else if e.Kind() == torchfile.KindStr {
			m.PutStr(key, strings.ToValidUTF8(e.Str(), "\uFFFD"))
		} else if !e.IsNone() {
			m.PutStr(key, string(timeline.AppendJSON(nil, e, maxText)))
		}
	}
}
