package systemport

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A line of an exposition is read by hand, and whatever need not change stays where it is in the answer: an
// engine's labels, value and time are copied as they were written, digit by digit.

// pair is one label as it is written, its value between the quotes and still escaped.
type pair struct {
	name, value []byte
	text        []byte // name="value"
}

// line is one sample as it was read. All of it points into the answer, or into memory made for a line whose
// labels or time have to be written anew.
type line struct {
	name   []byte
	pairs  []pair // in the engine's order; used again for the next line
	labels []byte // the pairs with commas between them
	value  []byte
	rest   []byte // the value, and behind a space the time in milliseconds
}

var errLine = errors.New("this is no sample")

// read takes a line without its end apart. An exemplar behind the value is left out: the text format has
// none. In OpenMetrics a time is in seconds.
func (l *line) read(text []byte, openMetrics bool) error {
	l.pairs, l.labels = l.pairs[:0], nil
	n := nameLength(text)
	l.name = text[:n]
	rest := trimLeft(text[n:])
	if len(rest) > 0 && rest[0] == '{' {
		var err error
		if rest, err = l.readLabels(rest[1:]); err != nil {
			return err
		}
	}
	if len(l.name) == 0 {
		return errLine
	}
	return l.readValue(trimLeft(rest), openMetrics)
}

// readLabels reads what stands behind an opening brace and returns what stands behind the closing one.
// A name in quotes without a value is the metric's: the way of Prometheus 3 to write names.
func (l *line) readLabels(text []byte) ([]byte, error) {
	rest, asIs := text, true // asIs: nothing between the braces but pairs and single commas
	sorted := true
	for {
		before := len(rest)
		rest = trimLeft(rest)
		asIs = asIs && len(rest) == before
		if len(rest) == 0 {
			return nil, errLine
		}
		if rest[0] == '}' {
			asIs = asIs && (len(l.pairs) == 0 || text[len(text)-len(rest)-1] != ',')
			break
		}
		start := rest
		p := pair{}
		quoted := rest[0] == '"'
		if quoted {
			v, after, ok := quotedText(rest)
			if !ok {
				return nil, errLine
			}
			p.name, rest, asIs = v, trimLeft(after), false
		} else {
			n := nameLength(rest)
			p.name, rest = rest[:n], rest[n:]
			if len(rest) > 0 && rest[0] != '=' {
				rest, asIs = trimLeft(rest), false
			}
		}
		if len(rest) == 0 || len(p.name) == 0 || nameLength(p.name) != len(p.name) {
			return nil, errLine
		}
		if quoted && rest[0] != '=' {
			if len(l.name) > 0 {
				return nil, errLine
			}
			l.name = p.name
		} else {
			if rest[0] != '=' || string(p.name) == "__name__" || bytes.IndexByte(p.name, ':') >= 0 {
				return nil, errLine
			}
			value := rest[1:]
			if len(value) > 0 && value[0] != '"' {
				value, asIs = trimLeft(value), false
			}
			v, after, ok := quotedText(value)
			if !ok {
				return nil, errLine
			}
			p.value, rest = v, after
			p.text = start[:len(start)-len(after)]
			if k := len(l.pairs); k > 0 && sorted {
				sorted = bytes.Compare(l.pairs[k-1].name, p.name) < 0
			}
			if !sorted && l.has(p.name) {
				return nil, errLine
			}
			l.pairs = append(l.pairs, p)
			if len(rest) > 0 && rest[0] != ',' && rest[0] != '}' {
				rest, asIs = trimLeft(rest), false
			}
		}
		switch {
		case len(rest) > 0 && rest[0] == ',':
			rest = rest[1:]
		case len(rest) == 0 || rest[0] != '}':
			return nil, errLine
		}
	}
	l.labels = text[:len(text)-len(rest)]
	if !asIs {
		l.rewrite()
	}
	return rest[1:], nil
}

// rewrite makes the text of the labels out of the pairs.
func (l *line) rewrite() {
	n := 0
	for _, p := range l.pairs {
		n += len(p.name) + len(p.value) + len(`="",`)
	}
	b := make([]byte, 0, n) // never grows: the pairs point into it
	for i := range l.pairs {
		p := &l.pairs[i]
		if i > 0 {
			b = append(b, ',')
		}
		start := len(b)
		b = append(append(append(append(b, p.name...), '=', '"'), p.value...), '"')
		p.text = b[start:]
	}
	l.labels = b
}

func (l *line) has(name []byte) bool {
	return slices.ContainsFunc(l.pairs, func(p pair) bool { return bytes.Equal(p.name, name) })
}

// get returns the value of a label, nil without one.
func (l *line) get(name string) []byte {
	for _, p := range l.pairs {
		if string(p.name) == name {
			return p.value
		}
	}
	return nil
}

// drop takes a label out.
func (l *line) drop(name string) {
	l.pairs = slices.DeleteFunc(l.pairs, func(p pair) bool { return string(p.name) == name })
	l.rewrite()
}

// readValue reads what stands behind name and labels.
func (l *line) readValue(text []byte, openMetrics bool) error {
	value, after := field(text)
	if !number(value) {
		return errLine
	}
	l.value = value
	at, behind := field(after)
	switch {
	case len(at) == 0 || at[0] == '#':
		l.rest = value
		return nil
	case len(behind) > 0 && behind[0] != '#':
		return errLine
	}
	ms, err := milliseconds(at, openMetrics)
	if err != nil {
		return err
	}
	if text[len(value)] == ' ' && len(after)+len(value)+1 == len(text) && !openMetrics && len(behind) == 0 {
		l.rest = text[:len(value)+1+len(at)]
		return nil
	}
	l.rest = append(append(slices.Clone(value), ' '), ms...)
	return nil
}

// field cuts the first word off, and the blanks behind it.
func field(b []byte) (word, after []byte) {
	n := 0
	for n < len(b) && b[n] != ' ' && b[n] != '\t' {
		n++
	}
	return b[:n], trimLeft(b[n:])
}

// quotedText cuts a quoted string off and returns what is between the quotes, escapes and all.
func quotedText(b []byte) (value, after []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		return nil, nil, false
	}
	ascii := true
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case c == '\\':
			i++
			if i >= len(b) || b[i] != '\\' && b[i] != '"' && b[i] != 'n' {
				return nil, nil, false
			}
		case c == '"':
			v := b[1:i]
			return v, b[i+1:], ascii || utf8.Valid(v)
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, nil, false
}

// next cuts the first pair off a text of labels as [line] holds it. The text is sound: it was read before.
func next(labels []byte) (p pair, after []byte) {
	eq := bytes.IndexByte(labels, '=')
	v, rest, _ := quotedText(labels[eq+1:])
	p = pair{labels[:eq], v, labels[:len(labels)-len(rest)]}
	if len(rest) > 0 {
		rest = rest[1:] // the comma
	}
	return p, rest
}

// escape writes a text as the value of a label.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(strings.ToValidUTF8(s, "\uFFFD"))
}

// nameLength is how many bytes at the beginning of b are a name.
func nameLength(b []byte) int {
	for n, c := range b {
		if c == '_' || c == ':' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || n > 0 && c >= '0' && c <= '9' {
			continue
		}
		return n
	}
	return len(b)
}

func trimLeft(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

// number tells whether every reader of the text format takes b for one: digits with a point and an exponent, or
// one of the words.
func number(b []byte) bool {
	if len(b) > 0 && (b[0] == '+' || b[0] == '-') {
		b = b[1:]
		if equalFold(b, "inf") || equalFold(b, "infinity") {
			return true
		}
	} else if equalFold(b, "nan") || equalFold(b, "inf") || equalFold(b, "infinity") {
		return true
	}
	whole := digits(b)
	b = b[whole:]
	if len(b) > 0 && b[0] == '.' {
		fraction := digits(b[1:])
		b = b[1+fraction:]
		whole += fraction
	}
	if whole == 0 {
		return false
	}
	if len(b) > 0 && (b[0] == 'e' || b[0] == 'E') {
		b = b[1:]
		if len(b) > 0 && (b[0] == '+' || b[0] == '-') {
			b = b[1:]
		}
		n := digits(b)
		return n > 0 && n == len(b)
	}
	return len(b) == 0
}

func equalFold(b []byte, word string) bool {
	return len(b) == len(word) && strings.EqualFold(string(b), word)
}

func digits(b []byte) int {
	for n, c := range b {
		if c < '0' || c > '9' {
			return n
		}
	}
	return len(b)
}

// milliseconds reads the time of a sample.
func milliseconds(b []byte, openMetrics bool) ([]byte, error) {
	if !openMetrics {
		if _, err := strconv.ParseUint(string(b), 10, 63); err != nil { // Prometheus reads none with a sign
			return nil, errLine
		}
		return b, nil
	}
	if !number(b) {
		return nil, errLine
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || !(f >= 0 && f < 9e15) {
		return nil, errLine
	}
	return strconv.AppendInt(nil, int64(f*1000), 10), nil
}
