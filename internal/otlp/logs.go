package otlp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/span"
)

// LogRecord is one record as OTLP has it. Texts alias the receiver's buffer, Resource and ScopeAttrs are
// shared by the records of one resource and scope.
type LogRecord struct {
	Service      string // service.name of the resource, "" for none
	Resource     []span.Attr
	ScopeName    string
	ScopeVersion string
	ScopeAttrs   []span.Attr

	Time         int64 // ns since 1970 (UTC), 0 when the sender did not say
	Observed     int64 // ns; when the sender's side saw it, 0 when it did not say
	Severity     int32 // 1 to 24, 0 for none
	SeverityText string
	EventName    string
	Body         span.Value // of Type JSON with Str "null" when there is none
	Attrs        []span.Attr
	DroppedAttrs uint32 // thrown away by the sender's SDK
	Flags        uint32
	Trace        span.TraceID // zero for none
	Span         span.ID      // zero for none

	// The wire bytes: messages Resource, InstrumentationScope (nil for none) and LogRecord.
	RawResource, RawScope, Raw []byte
}

// At is the record's time: its own, else when it was observed, else received. assumed says that it is
// not its own.
func (l *LogRecord) At(received int64) (t int64, assumed bool) {
	switch {
	case l.Time > 0:
		return l.Time, false
	case l.Observed > 0:
		return l.Observed, true
	}
	return received, true
}

// Level is the severity as a word in lower case: trace, debug, info, warn, error, fatal; by the number,
// else by the sender's text, else "".
func (l *LogRecord) Level() string {
	if l.Severity >= 1 && l.Severity <= 24 {
		return [...]string{"trace", "debug", "info", "warn", "error", "fatal"}[(l.Severity-1)/4]
	}
	switch t := strings.ToLower(l.SeverityText); t {
	case "warning":
		return "warn"
	case "critical":
		return "fatal"
	case "trace", "debug", "info", "warn", "error", "fatal":
		return t
	}
	return ""
}

// Text is the body as a line.
func (l *LogRecord) Text() string {
	if l.Body.Type == span.JSON && l.Body.Str == "null" {
		return ""
	}
	return l.Body.Str
}

// Row fills r, whose Fields are reused. Beside what every row has, the fields are:
//
//	level            trace, debug, info, warn, error or fatal
//	severity_number  as sent, 1 to 24
//	severity_text    as sent
//	event_name       as sent
//	trace_id span_id lower-case hex
//	flags            decimal
//	observed         RFC 3339 is the reader's business: ns since 1970, when it differs from _time
//	time_assumed     "true" when the record has no time of its own
//	body_type        int, float, bool, json; absent for text
//	dropped_attributes_count
//	scope_name scope_version
//	resource_attr:KEY scope_attr:KEY log_attr:KEY
//
// Texts alias the record.
func (l *LogRecord) Row(r *event.Row, received int64) {
	t, assumed := l.At(received)
	*r = event.Row{Kind: event.Log, Time: t, Message: l.Text(), Service: l.Service, Fields: r.Fields[:0]}
	r.Add("level", l.Level())
	if l.Severity != 0 {
		r.Add("severity_number", strconv.Itoa(int(l.Severity)))
	}
	r.Add("severity_text", l.SeverityText)
	r.Add("event_name", l.EventName)
	if !l.Trace.IsZero() {
		r.Add("trace_id", l.Trace.String())
	}
	r.Add("span_id", l.Span.String())
	if l.Flags != 0 {
		r.Add("flags", strconv.FormatUint(uint64(l.Flags), 10))
	}
	if l.Observed > 0 && l.Observed != t {
		r.Add("observed", strconv.FormatInt(l.Observed, 10))
	}
	if assumed {
		r.Add("time_assumed", "true")
	}
	if b := l.Text(); b != "" && l.Body.Type != span.Text {
		r.Add("body_type", [...]string{"text", "bool", "int", "float", "json"}[l.Body.Type])
	}
	if l.DroppedAttrs > 0 {
		r.Add("dropped_attributes_count", strconv.FormatUint(uint64(l.DroppedAttrs), 10))
	}
	r.Add("scope_name", l.ScopeName)
	r.Add("scope_version", l.ScopeVersion)
	for _, a := range l.Resource {
		r.Add("resource_attr:"+a.Key, a.Value.Str)
	}
	for _, a := range l.ScopeAttrs {
		r.Add("scope_attr:"+a.Key, a.Value.Str)
	}
	for _, a := range l.Attrs {
		r.Add("log_attr:"+a.Key, a.Value.Str)
	}
}

func (r *Receiver) takeLogs(ctx context.Context, from sourceKey, body []byte, isJSON bool) (outcome, *Refusal) {
	if isJSON {
		if len(body) > r.limits.Body {
			return outcome{}, r.tooLarge(r.limits.Body, ", unpacked, which is the limit of log records in JSON")
		}
		pb, err := logsFromJSON(body, r.limits.Depth, r.limits.Spans)
		if errors.Is(err, errTooMany) {
			return outcome{}, tooMany(r.limits.Spans, "log records")
		}
		if err != nil {
			return outcome{}, &Refusal{Verdict: Invalid, Reason: "malformed", Message: "the body is not OTLP/JSON: " + err.Error()}
		}
		body = pb
	}
	records, err := DecodeLogs(body, r.limits.Spans)
	if errors.Is(err, errTooMany) {
		return outcome{}, tooMany(r.limits.Spans, "log records")
	}
	if err != nil {
		return outcome{}, &Refusal{Verdict: Invalid, Reason: "malformed", Message: "the body is not an ExportLogsServiceRequest: " + err.Error()}
	}
	out := outcome{}
	if len(records) > 0 {
		rejected, message, err := r.o.Sink.Logs(ctx, records)
		if err != nil {
			return outcome{}, asRefusal(err)
		}
		out = outcome{rejected: min(max(rejected, 0), len(records)), message: message}
	}
	r.taken(from, 0, len(records)-out.rejected, out.rejected)
	return out, nil
}

// wireError says where in a body its protobuf is broken.
type wireError struct {
	message string
	why     error
}

func (e *wireError) Error() string { return fmt.Sprintf("%s: %v", e.message, e.why) }
func (e *wireError) Unwrap() error { return e.why }

// each calls fn for each field of a message: of bytes with data, else with v.
func each(what string, b []byte, fn func(num protowire.Number, typ protowire.Type, v uint64, data []byte) error) error {
	for at := 0; at < len(b); {
		num, typ, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return &wireError{fmt.Sprintf("%s, byte %d", what, at), protowire.ParseError(n)}
		}
		field := at
		at += n
		var v uint64
		var data []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b[at:])
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(b[at:])
		case protowire.Fixed32Type:
			var v32 uint32
			v32, n = protowire.ConsumeFixed32(b[at:])
			v = uint64(v32)
		case protowire.BytesType:
			data, n = protowire.ConsumeBytes(b[at:])
		default:
			n = protowire.ConsumeFieldValue(num, typ, b[at:])
		}
		if n < 0 {
			return &wireError{fmt.Sprintf("%s, field %d at byte %d", what, num, field), protowire.ParseError(n)}
		}
		at += n
		if err := fn(num, typ, v, data); err != nil {
			return err
		}
	}
	return nil
}

// attrsPerRecord is how many attributes a record has on average at most.
const attrsPerRecord = 32

// errTooMany says that a body holds more than is allowed.
var errTooMany = errors.New("more than is allowed")

// DecodeLogs reads an ExportLogsServiceRequest (resource_logs = 1) of at most limit records, and of at most
// 32 times as many attributes. What the records hold aliases body.
func DecodeLogs(body []byte, limit int) ([]LogRecord, error) {
	d := logDecoder{records: limit, attrs: limit * attrsPerRecord}
	err := each("ExportLogsServiceRequest", body, func(num protowire.Number, typ protowire.Type, _ uint64, b []byte) error {
		if num != 1 || typ != protowire.BytesType {
			return nil
		}
		return d.resourceLogs(b)
	})
	return d.out, err
}

// logDecoder collects records, and counts down what may still come.
type logDecoder struct {
	out            []LogRecord
	records, attrs int
}

// resourceLogs reads ResourceLogs: resource = 1, scope_logs = 2.
func (d *logDecoder) resourceLogs(b []byte) error {
	like := LogRecord{}
	err := each("ResourceLogs", b, func(num protowire.Number, typ protowire.Type, _ uint64, data []byte) error {
		if num != 1 || typ != protowire.BytesType {
			return nil
		}
		like.Resource, like.RawResource = nil, data // the last one counts
		return each("Resource", data, func(num protowire.Number, typ protowire.Type, _ uint64, data []byte) error {
			if num != 1 || typ != protowire.BytesType {
				return nil
			}
			return d.attr(&like.Resource, data)
		})
	})
	if err != nil {
		return err
	}
	for _, a := range like.Resource {
		if a.Key == "service.name" {
			like.Service = a.Value.Str
		}
	}
	return each("ResourceLogs", b, func(num protowire.Number, typ protowire.Type, _ uint64, data []byte) error {
		if num != 2 || typ != protowire.BytesType {
			return nil
		}
		return d.scopeLogs(data, like)
	})
}

// scopeLogs reads ScopeLogs: scope = 1 (name = 1, version = 2, attributes = 3), log_records = 2.
func (d *logDecoder) scopeLogs(b []byte, like LogRecord) error {
	err := each("ScopeLogs", b, func(num protowire.Number, typ protowire.Type, _ uint64, data []byte) error {
		if num != 1 || typ != protowire.BytesType {
			return nil
		}
		like.ScopeAttrs, like.RawScope = nil, data
		return each("InstrumentationScope", data, func(num protowire.Number, typ protowire.Type, _ uint64, data []byte) error {
			switch {
			case typ != protowire.BytesType:
			case num == 1:
				like.ScopeName = text(data)
			case num == 2:
				like.ScopeVersion = text(data)
			case num == 3:
				return d.attr(&like.ScopeAttrs, data)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	return each("ScopeLogs", b, func(num protowire.Number, typ protowire.Type, _ uint64, data []byte) error {
		if num != 2 || typ != protowire.BytesType {
			return nil
		}
		if d.records--; d.records < 0 {
			return errTooMany
		}
		d.out = append(d.out, like)
		return d.record(&d.out[len(d.out)-1], data)
	})
}

// record reads LogRecord: time_unix_nano = 1, severity_number = 2, severity_text = 3, body = 5,
// attributes = 6, dropped_attributes_count = 7, flags = 8, trace_id = 9, span_id = 10,
// observed_time_unix_nano = 11, event_name = 12. Ids of another length than theirs are none.
func (d *logDecoder) record(l *LogRecord, b []byte) error {
	l.Raw, l.Body = b, span.Value{Type: span.JSON, Str: "null"}
	return each("LogRecord", b, func(num protowire.Number, typ protowire.Type, v uint64, data []byte) error {
		switch {
		case num == 1 && typ == protowire.Fixed64Type:
			l.Time = nanos(v)
		case num == 11 && typ == protowire.Fixed64Type:
			l.Observed = nanos(v)
		case num == 2 && typ == protowire.VarintType:
			l.Severity = int32(min(v, math.MaxInt32))
		case num == 7 && typ == protowire.VarintType:
			l.DroppedAttrs = uint32(min(v, math.MaxUint32))
		case num == 8 && typ == protowire.Fixed32Type:
			l.Flags = uint32(v)
		case typ != protowire.BytesType:
		case num == 3:
			l.SeverityText = text(data)
		case num == 12:
			l.EventName = text(data)
		case num == 5:
			body, err := span.DecodeAny(data)
			if err != nil {
				return fmt.Errorf("LogRecord, body: %w", err)
			}
			l.Body = body
		case num == 6:
			return d.attr(&l.Attrs, data)
		case num == 9 && len(data) == len(l.Trace):
			copy(l.Trace[:], data)
		case num == 10 && len(data) == len(l.Span):
			copy(l.Span[:], data)
		}
		return nil
	})
}

func (d *logDecoder) attr(to *[]span.Attr, b []byte) error {
	if d.attrs--; d.attrs < 0 {
		return errTooMany
	}
	key, v, err := span.DecodeKeyValue(b)
	if err != nil {
		return err
	}
	*to = append(*to, span.Attr{Key: key, Value: v})
	return nil
}

func nanos(v uint64) int64 { return int64(min(v, math.MaxInt64)) }

// text is a protobuf string; bytes that are no UTF-8 are replaced.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "\ufffd") }

// fixed64 appends a field of eight bytes.
func fixed64(b []byte, num protowire.Number, v uint64) []byte {
	return binary.LittleEndian.AppendUint64(protowire.AppendTag(b, num, protowire.Fixed64Type), v)
}
