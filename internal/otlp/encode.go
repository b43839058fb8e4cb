package otlp

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rollscope/rollscope/internal/span"
)

// AppendTraces appends the scopes as an ExportTraceServiceRequest. Requests may be put behind one another:
// together they are one with the spans of all.
func AppendTraces(dst []byte, scopes []span.Scope) []byte {
	for i := range scopes {
		sc := &scopes[i]
		if len(sc.Spans) == 0 {
			continue
		}
		inner := 0 // ScopeSpans: scope = 1, spans = 2
		if sc.Scope != nil {
			inner += 1 + protowire.SizeBytes(len(sc.Scope))
		}
		for j := range sc.Spans {
			inner += 1 + protowire.SizeBytes(len(sc.Spans[j].Raw))
		}
		outer := 1 + protowire.SizeBytes(inner) // ResourceSpans: resource = 1, scope_spans = 2
		if sc.Resource != nil {
			outer += 1 + protowire.SizeBytes(len(sc.Resource))
		}
		dst = openField(dst, 1, outer)
		if sc.Resource != nil {
			dst = bytesField(dst, 1, sc.Resource)
		}
		dst = openField(dst, 2, inner)
		if sc.Scope != nil {
			dst = bytesField(dst, 1, sc.Scope)
		}
		for j := range sc.Spans {
			dst = bytesField(dst, 2, sc.Spans[j].Raw)
		}
	}
	return dst
}

// AppendLogs appends the records as an ExportLogsServiceRequest; those of one resource and scope that follow
// one another share it.
func AppendLogs(dst []byte, records []LogRecord) []byte {
	for from := 0; from < len(records); {
		to := from + 1
		for to < len(records) && same(records[from].RawResource, records[to].RawResource) && same(records[from].RawScope, records[to].RawScope) {
			to++
		}
		first := &records[from]
		inner := 0
		if first.RawScope != nil {
			inner += 1 + protowire.SizeBytes(len(first.RawScope))
		}
		for i := from; i < to; i++ {
			inner += 1 + protowire.SizeBytes(len(records[i].Raw))
		}
		outer := 1 + protowire.SizeBytes(inner)
		if first.RawResource != nil {
			outer += 1 + protowire.SizeBytes(len(first.RawResource))
		}
		dst = openField(dst, 1, outer)
		if first.RawResource != nil {
			dst = bytesField(dst, 1, first.RawResource)
		}
		dst = openField(dst, 2, inner)
		if first.RawScope != nil {
			dst = bytesField(dst, 1, first.RawScope)
		}
		for i := from; i < to; i++ {
			dst = bytesField(dst, 2, records[i].Raw)
		}
		from = to
	}
	return dst
}

// openField begins a field of bytes of which size will follow.
func openField(dst []byte, num protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.BytesType), uint64(size))
}

// same tells whether two slices are one.
func same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
