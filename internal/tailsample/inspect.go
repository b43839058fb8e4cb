package tailsample

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"unsafe"

	"github.com/rollscope/rollscope/internal/span"
)

// The wire numbers of trace/v1/trace.proto and common/v1/common.proto that a decision looks at.
const (
	spanTraceState = 3
	spanAttributes = 9
	spanEvents     = 11
	spanLinks      = 13

	eventName  = 2
	eventAttrs = 3
	linkTrace  = 1
)

// wire walks over the fields of a protobuf message. It ends at the first byte that cannot be: what Add is
// given was scanned before, so there is no such byte, and were there one, only less would be seen.
type wire struct {
	b    []byte
	num  uint32
	typ  uint8
	u    uint64 // of a varint or a fixed number
	data []byte // of bytes
}

const (
	wireVarint = 0
	wireFixed8 = 1
	wireBytes  = 2
	wireFixed4 = 5
)

func (w *wire) varint() (uint64, bool) {
	if len(w.b) > 0 && w.b[0] < 0x80 {
		u := uint64(w.b[0])
		w.b = w.b[1:]
		return u, true
	}
	u, n := binary.Uvarint(w.b)
	if n <= 0 {
		return 0, false
	}
	w.b = w.b[n:]
	return u, true
}

func (w *wire) next() bool {
	if len(w.b) == 0 {
		return false
	}
	tag, ok := w.varint()
	if !ok || tag>>3 > 1<<29 {
		return false
	}
	w.num, w.typ = uint32(tag>>3), uint8(tag&7)
	switch w.typ {
	case wireVarint:
		w.u, ok = w.varint()
		return ok
	case wireFixed8:
		if len(w.b) < 8 {
			return false
		}
		w.u = binary.LittleEndian.Uint64(w.b)
		w.b = w.b[8:]
	case wireFixed4:
		if len(w.b) < 4 {
			return false
		}
		w.u = uint64(binary.LittleEndian.Uint32(w.b))
		w.b = w.b[4:]
	case wireBytes:
		n, ok := w.varint()
		if !ok || n > uint64(len(w.b)) {
			return false
		}
		w.data, w.b = w.b[:n], w.b[n:]
	default:
		return false
	}
	return true
}

// text lets a string alias bytes; only for what is not kept.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// value is an attribute's value as far as conditions ask.
type value struct {
	kind uint8 // the field number in AnyValue: 1 string, 2 bool, 3 int, 4 double, 5 array, 6 map, 7 bytes; 0 none
	u    uint64
	data []byte
}

const (
	isText   = 1
	isBool   = 2
	isInt    = 3
	isDouble = 4
	isArray  = 5
)

// number gives ints and doubles, and texts that spell a plain decimal: some senders write numbers so.
func (v *value) number() (float64, bool) {
	switch v.kind {
	case isInt:
		return float64(int64(v.u)), true
	case isDouble:
		f := math.Float64frombits(v.u)
		return f, !math.IsNaN(f) && !math.IsInf(f, 0)
	case isText:
		return decimal(text(v.data))
	}
	return 0, false
}

// true tells a bool that is set.
func (v *value) true() bool { return v.kind == isBool && v.u != 0 }

// decimal reads a number that was sent as text.
func decimal(s string) (float64, bool) {
	if s == "" || len(s) > 32 || (s[0] < '0' || s[0] > '9') && s[0] != '-' && s[0] != '.' {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
}

func readValue(b []byte) (v value) {
	w := wire{b: b}
	for w.next() {
		v.kind, v.u, v.data = uint8(w.num), w.u, w.data
	}
	return v
}

// keyValue splits a KeyValue message.
func keyValue(b []byte) (key string, v value) {
	w := wire{b: b}
	for w.next() {
		switch {
		case w.num == 1 && w.typ == wireBytes:
			key = text(w.data)
		case w.num == 2 && w.typ == wireBytes:
			v = readValue(w.data)
		}
	}
	return key, v
}

// seen is what one span says that matters to a decision. Its texts alias the span.
type seen struct {
	flags   uint32 // saw*
	bits    uint64 // conditions that the span meets
	slow    [numMeasures]float64
	tokens  float64 // of the answer, 0 when not said
	model   string
	session string
	room    string
	state   string // tracestate
	links   []span.TraceID
}

// What a span or a trace showed.
const (
	sawFailed       = 1 << iota // status error, or an attribute that says so
	sawAborted                  // finish reason abort
	sawRetracted                // retract event
	sawToolFailed               // an execute_tool span or a tool_end event that failed
	sawFinishReason             // the generation said how it ended
	sawRoot                     // the span without a parent has ended
	sawTop                      // a span ended whose parent is another process's
	sawPrefillHalf              // the root of a prefill engine's half
	sawDecodeHalf               // and of a decode engine's
	sawRequest                  // the root of an engine's request
	sawRoom                     // a bootstrap room
	sawHalfRoot                 // the root is a prefill engine's: its trace is half of a request
	sawSampled                  // flags or tracestate of a sampler before us
	thrownBefore                // not seen but known: a process before this one threw the trace away
)

// Measures that a request can be slow by.
const (
	ttft = iota
	itl
	e2e
	queue
	transfer
	numMeasures
)

// measureNames are as the policy file and the rules' names spell them.
var measureNames = [numMeasures]string{"ttft", "itl", "e2e", "queue", "transfer"}

// inspect reads of a span what a decision needs. into.links is reused.
func (c *compiled) inspect(sc *span.Scope, h *span.Header, into *seen) {
	*into = seen{links: into.links[:0], slow: [numMeasures]float64{-1, -1, -1, -1, -1}}
	name := h.Name
	duration := float64(h.End-h.Start) / 1e9
	tool := strings.HasPrefix(name, "execute_tool")
	bad, closed := h.Status == span.Failed, false // by whatever says so; by SGLang's own tidying up
	switch name {
	case "prefill_waiting", "decode_waiting":
		into.longer(queue, duration)
	case "prefill_transfer_kv_cache", "decode_transferred", "mooncake_send":
		into.longer(transfer, duration)
	}
	switch {
	case strings.HasPrefix(name, "prefill Req "):
		into.flags |= sawPrefillHalf | sawRequest
	case strings.HasPrefix(name, "decode Req "):
		into.flags |= sawDecodeHalf | sawRequest
	case strings.HasPrefix(name, " Req "), strings.HasPrefix(name, "Req "):
		into.flags |= sawRequest
	}
	const remote = 0x100 | 0x200 // SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE, ..._IS_REMOTE
	switch {
	case h.Parent.IsZero():
		if strings.HasPrefix(name, "Bootstrap Room") {
			// Made beside the requests of a room, and ended at once: no end of theirs.
			break
		}
		into.flags |= sawRoot
		if into.flags&sawPrefillHalf != 0 {
			into.flags |= sawHalfRoot
		}
		into.longer(e2e, duration)
	case h.Flags&remote == remote, into.flags&sawRequest != 0:
		into.flags |= sawTop
		into.longer(e2e, duration)
	}
	w := wire{b: h.Raw}
	for w.next() {
		if w.typ != wireBytes {
			continue
		}
		switch w.num {
		case spanAttributes:
			key, v := keyValue(w.data)
			if c.leafOf != nil {
				c.match(key, &v, into)
			}
			into.attribute(key, &v, &tool, &bad)
			if h.Status == span.Failed && v.kind == isText {
				switch key {
				case "reason":
					// SGLang ends spans that it did not close itself as errors; that is no failure of the request.
					closed = strings.Contains(text(v.data), "auto closed")
				case "type":
					if text(v.data) == "abort" {
						into.flags |= sawAborted
					}
				}
			}
		case spanTraceState:
			into.state = text(w.data)
		case spanEvents:
			into.event(w.data)
		case spanLinks:
			l := wire{b: w.data}
			for l.next() {
				if l.num == linkTrace && len(l.data) == len(h.Trace) && text(l.data) != text(h.Trace[:]) && len(into.links) < maxLinks {
					into.links = append(into.links, span.TraceID(l.data))
				}
			}
		}
	}
	if bad && !closed {
		into.flags |= sawFailed
		if tool {
			into.flags |= sawToolFailed
		}
	}
	if into.state != "" && strings.Contains(into.state, "ot=") {
		into.flags |= sawSampled
	} else {
		into.state = ""
	}
	c.matchSpan(h, into)
}

// maxLinks is how many other traces one trace is tied to at most.
const maxLinks = 8

func (s *seen) longer(m int, v float64) {
	if v > s.slow[m] && !math.IsInf(v, 0) {
		s.slow[m] = v
	}
}

// measure takes a duration from an attribute, which counts more than what a span's length suggests.
func (s *seen) measure(m int, v *value, unit float64) {
	if f, ok := v.number(); ok && f >= 0 {
		s.longer(m, f*unit)
	}
}

// attribute takes in one attribute. Where the names come from: sglang and vllm (gen_ai.latency.*,
// bootstrap_room), Dynamo's frontend (ttft_ms, avg_itl_ms), the SGLang router (status_code), and
// OpenTelemetry's semantic conventions (error.type, gen_ai.*, http.*, session.id).
func (s *seen) attribute(key string, v *value, tool, bad *bool) {
	switch key {
	case "gen_ai.latency.time_to_first_token", "gen_ai.server.time_to_first_token":
		s.measure(ttft, v, 1)
	case "ttft_ms":
		s.measure(ttft, v, 1e-3)
	case "avg_itl_ms":
		s.measure(itl, v, 1e-3)
	case "gen_ai.latency.time_per_output_token", "gen_ai.server.time_per_output_token":
		s.measure(itl, v, 1)
	case "gen_ai.latency.e2e":
		s.measure(e2e, v, 1)
	case "gen_ai.latency.time_in_queue":
		s.measure(queue, v, 1)
	case "gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens", "output_tokens":
		if f, ok := v.number(); ok && f > 0 {
			s.tokens = f
		}
	case "gen_ai.response.model", "gen_ai.request.model", "model":
		if v.kind == isText && s.model == "" {
			s.model = text(v.data)
		}
	case "gen_ai.response.finish_reasons", "gen_ai.response.finish_reason", "finish_reason", "finish_reasons":
		if v.kind == isText || v.kind == isArray {
			s.flags |= sawFinishReason
			if strings.Contains(text(v.data), "abort") {
				s.flags |= sawAborted
			}
		}
	case "session.id", "gen_ai.conversation.id", "session_id", "conversation_id", "langfuse.session.id":
		if v.kind == isText && len(v.data) > 0 {
			s.session = text(v.data)
		}
	case "bootstrap_room":
		s.takeRoom(v)
	case "error.type":
		if v.kind == isText && len(v.data) > 0 {
			*bad = true
		}
	case "error":
		if v.true() {
			*bad = true
		}
	case "http.response.status_code", "http.status_code", "status_code":
		if f, ok := v.number(); ok && f >= 500 && f < 600 {
			*bad = true
		}
	case "gen_ai.operation.name":
		if v.kind == isText && text(v.data) == "execute_tool" {
			*tool = true
		}
	}
}

// takeRoom notes a bootstrap room: SGLang writes it as hex text, "0x0" when there is none.
func (s *seen) takeRoom(v *value) {
	switch v.kind {
	case isText:
		if t := strings.TrimLeft(strings.TrimPrefix(text(v.data), "0x"), "0"); t != "" && t != "None" {
			s.room = t
			s.flags |= sawRoom
		}
	case isInt:
		if v.u != 0 {
			var b [16]byte
			n := len(b)
			for u := v.u; u > 0; u >>= 4 {
				n--
				b[n] = "0123456789abcdef"[u&15]
			}
			s.room = string(b[n:])
			s.flags |= sawRoom
		}
	}
}

// event takes in one event.
func (s *seen) event(b []byte) {
	var name string
	failed := false
	w := wire{b: b}
	for w.next() {
		switch {
		case w.num == eventName && w.typ == wireBytes:
			name = text(w.data)
		case w.num == eventAttrs && w.typ == wireBytes:
			switch key, v := keyValue(w.data); key {
			case "error", "error.type":
				failed = failed || v.true() || v.kind == isText && len(v.data) > 0
			case "status":
				failed = failed || v.kind == isText && (text(v.data) == "error" || text(v.data) == "failed")
			}
		}
	}
	switch name {
	case "retract":
		s.flags |= sawRetracted
	case "tool_end":
		if failed {
			s.flags |= sawToolFailed | sawFailed
		}
	}
}
