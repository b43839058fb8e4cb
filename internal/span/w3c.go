package span

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Headers of W3C Trace Context (https://www.w3.org/TR/trace-context/).
const (
	TraceparentHeader = "traceparent"
	TracestateHeader  = "tracestate"
)

// Sampled is the flag of a traceparent and of a span that its sender recorded the trace. Random says that
// the low 56 bits of the trace id are random; SGLang's are, but it does not set the flag.
const (
	Sampled uint32 = 1
	Random  uint32 = 2
)

// Context is where a request stands in a trace: what a caller hands to whom it calls.
type Context struct {
	Trace TraceID
	Span  ID
	Flags uint8
	State TraceState
}

// ErrTraceparent tells a header that is no traceparent; a receiver then begins a new trace.
var ErrTraceparent = errors.New("no traceparent")

// ParseTraceparent reads the header traceparent as the recommendation says: lower-case hex, no zero ids,
// and of versions above 00 the part that is known. Spaces around it are allowed.
func ParseTraceparent(s string) (Context, error) {
	var c Context
	s = strings.Trim(s, " \t")
	bad := func(why string) (Context, error) {
		return Context{}, fmt.Errorf("%w: %.80q: %s", ErrTraceparent, s, why)
	}
	if len(s) < 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return bad("it must look like 00-<32 hex digits>-<16 hex digits>-<2 hex digits>")
	}
	for _, part := range [...]string{s[:2], s[3:35], s[36:52], s[53:55]} {
		for i := 0; i < len(part); i++ {
			if c := part[i]; !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
				return bad("digits must be hex in lower case")
			}
		}
	}
	switch {
	case s[:2] == "ff":
		return bad("version ff is forbidden")
	case s[:2] == "00" && len(s) != 55:
		return bad("version 00 has 55 characters")
	case len(s) > 55 && s[55] != '-':
		return bad("something follows the flags")
	}
	hex.Decode(c.Trace[:], bytesOf(s[3:35]))
	hex.Decode(c.Span[:], bytesOf(s[36:52]))
	var flags [1]byte
	hex.Decode(flags[:], bytesOf(s[53:55]))
	if c.Flags = flags[0]; s[:2] != "00" {
		c.Flags &= uint8(Sampled) // what other bits mean in later versions is not known
	}
	if c.Trace.IsZero() || c.Span.IsZero() {
		return bad("an id of zeros is none")
	}
	return c, nil
}

// Traceparent is the header of version 00.
func (c Context) Traceparent() string {
	return "00-" + c.Trace.String() + "-" + hex.EncodeToString(c.Span[:]) + "-" + hex.EncodeToString([]byte{c.Flags})
}

// Extract reads a context out of headers. get returns a header's value, several joined by commas, "" for
// none. A tracestate that is wrong is left out, as the recommendation says; the error is that of the
// traceparent.
func Extract(get func(header string) string) (Context, error) {
	c, err := ParseTraceparent(get(TraceparentHeader))
	if err != nil {
		return c, err
	}
	c.State, _ = ParseTraceState(get(TracestateHeader))
	return c, nil
}

// Inject writes a context into headers.
func (c Context) Inject(set func(header, value string)) {
	set(TraceparentHeader, c.Traceparent())
	if s := c.State.String(); s != "" {
		set(TracestateHeader, s)
	}
}

// TraceState is the members of a tracestate, the newest first.
type TraceState []Member

// Member is what one vendor says of a trace.
type Member struct{ Key, Value string }

// Limits of a tracestate: members as the recommendation says, bytes more than the 512 that it asks to pass on.
const (
	maxMembers    = 32
	maxStateBytes = 8192
)

// ParseTraceState reads a tracestate; on an error there is none, as the recommendation says.
func ParseTraceState(s string) (TraceState, error) {
	if len(s) > maxStateBytes {
		return nil, fmt.Errorf("tracestate: %d bytes, at most %d are read", len(s), maxStateBytes)
	}
	var out TraceState
	for rest, more := s, true; more; {
		var one string
		one, rest, more = strings.Cut(rest, ",")
		if one = strings.Trim(one, " \t"); one == "" {
			continue
		}
		key, value, ok := strings.Cut(one, "=")
		if !ok || !stateKey(key) || !stateValue(value) {
			return nil, fmt.Errorf("tracestate: member %.80q is no key=value as W3C Trace Context has them", one)
		}
		if _, twice := out.Get(key); twice {
			return nil, fmt.Errorf("tracestate: key %q stands twice", key)
		}
		if len(out) == maxMembers {
			return nil, fmt.Errorf("tracestate: more than %d members", maxMembers)
		}
		out = append(out, Member{key, value})
	}
	return out, nil
}

func stateKey(s string) bool {
	tenant, system, multi := strings.Cut(s, "@")
	part := func(s string, limit int, digitFirst bool) bool {
		if s == "" || len(s) > limit {
			return false
		}
		for i := 0; i < len(s); i++ {
			c := s[i]
			letter := 'a' <= c && c <= 'z'
			digit := '0' <= c && c <= '9'
			if !letter && !digit && (i == 0 || !strings.ContainsRune("_-*/", rune(c))) || i == 0 && digit && !digitFirst {
				return false
			}
		}
		return true
	}
	if multi {
		return part(tenant, 241, true) && part(system, 14, false)
	}
	return part(s, 256, true)
}

func stateValue(s string) bool {
	if s == "" || len(s) > 256 || s[len(s)-1] == ' ' {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c > '~' || c == ',' || c == '=' {
			return false
		}
	}
	return true
}

// Get returns a member's value.
func (t TraceState) Get(key string) (string, bool) {
	for _, m := range t {
		if m.Key == key {
			return m.Value, true
		}
	}
	return "", false
}

// With is t with a member set and moved to the front, the last members left out when there are too many.
func (t TraceState) With(key, value string) (TraceState, error) {
	if !stateKey(key) || !stateValue(value) {
		return t, fmt.Errorf("tracestate: %q=%.80q is no member as W3C Trace Context has them", key, value)
	}
	out := TraceState{{key, value}}
	for _, m := range t {
		if m.Key != key && len(out) < maxMembers {
			out = append(out, m)
		}
	}
	return out, nil
}

// String is the header's value.
func (t TraceState) String() string {
	var b strings.Builder
	for i, m := range t {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(m.Key)
		b.WriteByte('=')
		b.WriteString(m.Value)
	}
	return b.String()
}

// Threshold reads the consistent sampling threshold that OpenTelemetry's samplers put into a tracestate
// (ot=th:...): of 2^56 values of randomness those below it were thrown away, so 0 means all were kept.
// ok is false when the sender said nothing.
func Threshold(traceState string) (threshold uint64, ok bool) {
	s, ok := otMember(traceState, "th:")
	if !ok || len(s) > 14 {
		return 0, false
	}
	v, err := strconv.ParseUint(s+strings.Repeat("0", 14-len(s)), 16, 56)
	return v, err == nil
}

// Randomness is the 56 bits by which consistent samplers decide about a trace: ot=rv:... of its
// tracestate, else the low bits of its id.
func Randomness(id TraceID, traceState string) uint64 {
	if s, ok := otMember(traceState, "rv:"); ok && len(s) == 14 {
		if v, err := strconv.ParseUint(s, 16, 56); err == nil {
			return v
		}
	}
	var v uint64
	for _, b := range id[9:] {
		v = v<<8 | uint64(b)
	}
	return v
}

func otMember(traceState, name string) (string, bool) {
	if !strings.Contains(traceState, "ot=") {
		return "", false
	}
	t, err := ParseTraceState(traceState)
	if err != nil {
		return "", false
	}
	ot, _ := t.Get("ot")
	for rest, more := ot, true; more; {
		var one string
		one, rest, more = strings.Cut(rest, ";")
		if v, ok := strings.CutPrefix(one, name); ok && v != "" {
			return v, true
		}
	}
	return "", false
}
