package eventstore

import (
	"hash/fnv"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/rollscope/rollscope/internal/event"
)

// Limits of a row. They are the store's own; a row beyond them would vanish there without a word.
const (
	maxFieldName = 128
	maxFields    = 1900
	maxRowBytes  = 1900 << 10
)

// seqDigits is the width of _seq: values have 16 digits from the first on, so that the number can be
// written into an encoded line later, at a fixed place.
const (
	seqDigits = 16
	seqMin    = 1_000_000_000_000_000
	seqMax    = 9_007_199_254_740_991 // what a float64 still tells apart: LogsQL compares numbers as such
	linePre   = `{"_seq":`
	timePre   = `,"_time":`
)

// appendRow appends a row as one JSON line, with zeros for _seq. received is RFC 3339.
//
// _seq and _time come first at fixed places, so that a spooled line need not be parsed to be skipped.
func appendRow(b []byte, r *event.Row, received string) []byte {
	b = append(b, linePre+"0000000000000000"+timePre...)
	b = strconv.AppendInt(b, r.Time, 10)
	b = append(b, `,"_msg":"`...)
	b = appendEscaped(b, r.Message)
	b = append(b, `","row":"`...)
	b = appendEscaped(b, string(r.Kind))
	if r.Service != "" {
		b = append(b, `","service":"`...)
		b = appendEscaped(b, r.Service)
	}
	if r.Engine != "" {
		b = append(b, `","engine":"`...)
		b = appendEscaped(b, r.Engine)
	}
	b = append(b, `","received":"`...)
	b = append(b, received...)
	for i := range r.Fields {
		f := &r.Fields[i]
		if f.Value == "" {
			continue
		}
		b = append(b, `","`...)
		b = appendEscaped(b, fieldName(f.Name))
		b = append(b, `":"`...)
		b = appendEscaped(b, f.Value)
	}
	return append(b, '"', '}', '\n')
}

// putSeq writes _seq into a line that appendRow made.
func putSeq(line []byte, seq uint64) {
	d := line[len(linePre) : len(linePre)+seqDigits]
	for i := seqDigits - 1; i >= 0; i-- {
		d[i] = byte('0' + seq%10)
		seq /= 10
	}
}

// lineTime reads _time of a line that appendRow made.
func lineTime(line []byte) (int64, bool) {
	const at = len(linePre) + seqDigits + len(timePre)
	if len(line) <= at {
		return 0, false
	}
	end := at
	for end < len(line) && line[end] != ',' {
		end++
	}
	t, err := strconv.ParseInt(string(line[at:end]), 10, 64)
	return t, err == nil
}

// fieldName is the name that a field is stored under. Names that the store or every row uses get a
// prefix, too long ones end in a hash, an empty one is spelled out: the value is kept in any case.
func fieldName(name string) string {
	switch {
	case name == "":
		return "(empty)"
	case len(name) > maxFieldName:
		return cutName(name)
	case name[0] == '_' || len(name) == len("row") || len(name) == len("engine") || len(name) == len("service") || len(name) == len("received"):
		switch name {
		case "_time", "_msg", "_stream", "_stream_id", "_seq", "row", "service", "engine", "received":
			return "field." + name
		}
	}
	return name
}

// renamed reports whether fieldName changes a name.
func renamed(name string) bool { return fieldName(name) != name }

func cutName(name string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	cut := maxFieldName - 17
	for cut > 0 && !utf8.RuneStart(name[cut]) {
		cut--
	}
	sum := strconv.FormatUint(h.Sum64()|1<<63, 16)
	return name[:cut] + "~" + sum
}

// plain marks the bytes that stand for themselves in a JSON string.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 0x20 && c != '"' && c != '\\'
	}
	return t
}()

const hexDigits = "0123456789abcdef"

func appendEscaped(b []byte, s string) []byte {
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if plain[c] {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(b, s[from:]...)
}

// size is an upper bound of what the store counts as a row's length.
func size(r *event.Row) int {
	n := 128 + len(r.Message) + len(r.Service) + len(r.Engine)
	for i := range r.Fields {
		n += len(r.Fields[i].Name) + len(r.Fields[i].Value) + 8
	}
	return n
}

// stamp writes a time as every row's received field has it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
