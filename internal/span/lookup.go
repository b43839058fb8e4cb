package span

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrNotTraceID tells text that no trace can have as its id: not the same as an id that is not found.
var ErrNotTraceID = errors.New("not a trace id")

// Lookup is which traces a person means by an id that was copied from somewhere.
type Lookup struct {
	Text string // as it was given, without spaces around it
	// Exact are ids that the text may be in full; leading zeros are put back. Try these first: they are
	// found by an index.
	Exact []TraceID
	// Suffixes are 16 hex digits each: the low 64 bits, which is all that some systems keep. Traces that end
	// with one of these may be meant too; when several are found, say so.
	Suffixes []string
}

// ParseLookup reads a trace id as people have it: 32 hex digits, fewer because leading zeros were cut, 16
// because only the low 64 bits were kept, upper case, with 0x, with dashes like a UUID, as a whole
// traceparent, in base64 (protobuf shown as JSON), or 64 bits in decimal. The error wraps [ErrNotTraceID]
// and says what was wrong.
func ParseLookup(text string) (Lookup, error) {
	l := Lookup{Text: strings.TrimSpace(text)}
	no := func(format string, args ...any) (Lookup, error) {
		return Lookup{Text: l.Text}, fmt.Errorf("%.80q is %w: %s", l.Text, ErrNotTraceID, fmt.Sprintf(format, args...))
	}
	s := strings.ToLower(l.Text)
	if c, err := ParseTraceparent(s); err == nil {
		l.Exact = []TraceID{c.Trace}
		return l, nil
	}
	if len(l.Text) == 24 && strings.HasSuffix(l.Text, "==") {
		if b, err := base64.StdEncoding.DecodeString(l.Text); err == nil && len(b) == 16 {
			if id := TraceID(b); !id.IsZero() {
				l.Exact = []TraceID{id}
				return l, nil
			}
		}
	}
	s, had0x := strings.CutPrefix(s, "0x")
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
		s = strings.ReplaceAll(s, "-", "")
	}
	switch {
	case s == "":
		return no("it is empty")
	case !isHex(bytesOf(s)):
		return no("it has other characters than hex digits; a request id is looked up with rid or x_request_id")
	case len(s) > 32:
		return no("it has %d hex digits, an id has at most 32", len(s))
	}
	id := padded(s)
	if id.IsZero() {
		return no("it is all zero")
	}
	l.Exact = append(l.Exact, id)
	if len(s) <= 16 {
		l.Suffixes = append(l.Suffixes, id.String()[16:])
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil && !had0x && len(s) >= 17 {
		var low TraceID
		binary.BigEndian.PutUint64(low[8:], n)
		l.Exact = append(l.Exact, low)
		l.Suffixes = append(l.Suffixes, low.String()[16:])
	}
	return l, nil
}

func padded(digits string) TraceID {
	var full [32]byte
	for i := range full {
		full[i] = '0'
	}
	copy(full[32-len(digits):], digits)
	var id TraceID
	hex.Decode(id[:], full[:])
	return id
}

// Matches tells whether a trace may be the one that is meant.
func (l Lookup) Matches(id TraceID) bool {
	for _, e := range l.Exact {
		if e == id {
			return true
		}
	}
	for _, s := range l.Suffixes {
		if id.String()[16:] == s {
			return true
		}
	}
	return false
}

// ParseTraceID reads 32 hex digits in any case; the error wraps [ErrNotTraceID].
func ParseTraceID(s string) (TraceID, error) {
	var id TraceID
	if len(s) != 32 || !isHex(bytesOf(s)) {
		return id, fmt.Errorf("%.80q is %w: it must be 32 hex digits", s, ErrNotTraceID)
	}
	hex.Decode(id[:], bytesOf(s))
	if id.IsZero() {
		return id, fmt.Errorf("%.80q is %w: it is all zero", s, ErrNotTraceID)
	}
	return id, nil
}

// ParseID reads a span's 16 hex digits in any case, or the empty text for none.
func ParseID(s string) (ID, error) {
	var id ID
	if s == "" {
		return id, nil
	}
	if len(s) != 16 || !isHex(bytesOf(s)) {
		return id, fmt.Errorf("%.80q is not a span id: it must be 16 hex digits", s)
	}
	hex.Decode(id[:], bytesOf(s))
	return id, nil
}
