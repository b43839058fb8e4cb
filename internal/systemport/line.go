package systemport

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rollscope/rollscope/internal/signal"
)

// A line of an exposition is read by hand and its value kept as it stands: what an engine writes is what
// a reader gets, digit by digit.

// label is one pair as it is written: the value between its quotes, still escaped.
type label struct{ name, value string }

// sample is one line with its name in the engine's own spelling.
type sample struct {
	name   string
	labels []label // as ordered by the engine
	value  string
	time   string // milliseconds, "" without
}

var errLine = errors.New("this is no sample")

// parseSample reads a line without its end. An exemplar behind the value is left out: the text format
// has none. In OpenMetrics a time is in seconds.
func parseSample(line []byte, openMetrics bool) (sample, error) {
	s := sample{}
	rest := line
	if n := nameLength(rest); n > 0 {
		s.name, rest = string(rest[:n]), rest[n:]
	}
	rest = trimLeft(rest)
	if len(rest) > 0 && rest[0] == '{' {
		var err error
		if rest, err = s.readLabels(rest[1:]); err != nil {
			return s, err
		}
	}
	if s.name == "" {
		return s, errLine
	}
	fields := bytes.Fields(rest)
	for i, f := range fields {
		if f[0] == '#' { // an exemplar
			fields = fields[:i]
			break
		}
	}
	if len(fields) == 0 || len(fields) > 2 {
		return s, errLine
	}
	s.value = string(fields[0])
	if !number(s.value) {
		return s, errLine
	}
	if len(fields) == 2 {
		t, err := milliseconds(string(fields[1]), openMetrics)
		if err != nil {
			return s, err
		}
		s.time = t
	}
	s.name = signal.Canonical(s.name)
	return s, nil
}

// readLabels reads what stands behind an opening brace and returns what stands behind the closing one.
// A name in quotes without a value is the metric's: the way of Prometheus 3 to write names.
func (s *sample) readLabels(rest []byte) ([]byte, error) {
	for {
		rest = trimLeft(rest)
		if len(rest) == 0 {
			return nil, errLine
		}
		if rest[0] == '}' {
			return rest[1:], nil
		}
		var name string
		quoted := rest[0] == '"'
		if quoted {
			v, after, ok := quotedText(rest)
			if !ok {
				return nil, errLine
			}
			name, rest = v, trimLeft(after)
		} else {
			n := nameLength(rest)
			name, rest = string(rest[:n]), trimLeft(rest[n:])
		}
		if len(rest) == 0 || nameLength([]byte(name)) != len(name) || name == "" {
			return nil, errLine
		}
		if quoted && rest[0] != '=' {
			if s.name != "" {
				return nil, errLine
			}
			s.name = name
		} else {
			if rest[0] != '=' || name == "__name__" || strings.Contains(name, ":") || slices.ContainsFunc(s.labels, func(l label) bool { return l.name == name }) {
				return nil, errLine
			}
			v, after, ok := quotedText(trimLeft(rest[1:]))
			if !ok {
				return nil, errLine
			}
			s.labels = append(s.labels, label{name, v})
			rest = trimLeft(after)
		}
		switch {
		case len(rest) > 0 && rest[0] == ',':
			rest = rest[1:]
		case len(rest) == 0 || rest[0] != '}':
			return nil, errLine
		}
	}
}

// quotedText cuts a quoted string off and returns what is between the quotes, escapes and all.
func quotedText(b []byte) (string, []byte, bool) {
	if len(b) == 0 || b[0] != '"' {
		return "", nil, false
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
			if i >= len(b) || b[i] != '\\' && b[i] != '"' && b[i] != 'n' {
				return "", nil, false
			}
		case '"':
			v := b[1:i]
			return string(v), b[i+1:], utf8.Valid(v)
		}
	}
	return "", nil, false
}

// escape writes a text as the value of a label.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(strings.ToValidUTF8(s, "\uFFFD"))
}

// nameLength is how many bytes at the beginning of b are a name.
func nameLength(b []byte) int {
	n := 0
	for n < len(b) {
		c := b[n]
		if c == '_' || c == ':' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || n > 0 && c >= '0' && c <= '9' {
			n++
			continue
		}
		break
	}
	return n
}

func trimLeft(b []byte) []byte { return bytes.TrimLeft(b, " \t") }

// number tells whether every reader of the text format takes s for one.
func number(s string) bool {
	if strings.ContainsAny(s, "pPxX_") {
		return false
	}
	_, err := strconv.ParseFloat(s, 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}

// milliseconds reads the time of a sample.
func milliseconds(s string, openMetrics bool) (string, error) {
	if !openMetrics {
		if _, err := strconv.ParseUint(s, 10, 63); err != nil { // Prometheus reads none with a sign
			return "", errLine
		}
		return s, nil
	}
	if !number(s) {
		return "", errLine
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0 && f < 9e15) {
		return "", errLine
	}
	return strconv.FormatInt(int64(f*1000), 10), nil
}

// get returns the value of a label, still escaped.
func (s *sample) get(name string) (string, bool) {
	for _, l := range s.labels {
		if l.name == name {
			return l.value, true
		}
	}
	return "", false
}

// key is equal for equal series.
func (s *sample) key() string {
	sorted := s.labels
	if !slices.IsSortedFunc(sorted, byName) {
		sorted = slices.Clone(sorted)
		slices.SortFunc(sorted, byName)
	}
	var b strings.Builder
	b.WriteString(s.name)
	for _, l := range sorted {
		if l.value == "" { // the same as none
			continue
		}
		b.WriteByte(0)
		b.WriteString(l.name)
		b.WriteByte('=')
		b.WriteString(l.value)
	}
	return b.String()
}

func byName(a, b label) int { return strings.Compare(a.name, b.name) }

// write appends the line.
func (s *sample) write(b *bytes.Buffer) {
	b.WriteString(s.name)
	for i, l := range s.labels {
		if i == 0 {
			b.WriteByte('{')
		} else {
			b.WriteByte(',')
		}
		b.WriteString(l.name)
		b.WriteString(`="`)
		b.WriteString(l.value)
		b.WriteByte('"')
	}
	if len(s.labels) > 0 {
		b.WriteByte('}')
	}
	b.WriteByte(' ')
	b.WriteString(s.value)
	if s.time != "" {
		b.WriteByte(' ')
		b.WriteString(s.time)
	}
	b.WriteByte('\n')
}
