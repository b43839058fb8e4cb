// Package logsql writes queries in LogsQL, the language of the event store: text that may hold anything
// becomes a literal that cannot be anything else, and queries in Loki's LogQL are translated. Its entry
// points are [Quote] and [FromLogQL].
package logsql

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Quote makes a literal of any text, for names of fields as well as for values.
func Quote(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strconv.Quote(s)
}

// Equal is the filter of rows whose field is exactly value; an empty value finds rows without the field.
func Equal(field, value string) string { return Quote(field) + ":=" + Quote(value) }

// Match is the filter of rows whose field matches a regular expression somewhere.
func Match(field, re string) string { return Quote(field) + ":~" + Quote(re) }

// Whole is the filter of rows whose whole field matches a regular expression.
func Whole(field, re string) string { return Match(field, "^(?:"+re+")$") }

// Contains is the filter of rows whose field holds text anywhere, also within words.
func Contains(field, text string) string { return Match(field, regexp.QuoteMeta(text)) }

// Not negates a filter.
func Not(filter string) string { return "!(" + filter + ")" }

// SyntaxError is a query that cannot be translated.
type SyntaxError struct {
	Query string
	At    int // byte offset
	Msg   string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("LogQL at %d (%s): %s", e.At+1, near(e.Query, e.At), e.Msg)
}

// near is a piece of the query to recognise the place by.
func near(q string, at int) string {
	if at >= len(q) {
		return "at its end"
	}
	s := q[at:]
	if len(s) > 20 {
		s = s[:20] + "…"
	}
	return "near " + strconv.Quote(strings.ToValidUTF8(s, "\uFFFD"))
}

// LooksLikeLogQL tells whether a query is more likely LogQL than LogsQL: it begins with a selector in
// braces that is followed by one of LogQL's line filters, or it has a range in brackets after one.
func LooksLikeLogQL(q string) bool {
	q = strings.TrimSpace(q)
	if _, err := FromLogQL(q); err != nil {
		return false
	}
	i := strings.IndexByte(q, '}')
	if i < 0 {
		return false
	}
	if !strings.HasPrefix(q, "{") { // rate({...}[5m])
		return true
	}
	rest := strings.TrimSpace(q[i+1:])
	for _, op := range []string{"|=", "|~", "!=", "!~"} {
		if strings.HasPrefix(rest, op) {
			return true
		}
	}
	return false
}
