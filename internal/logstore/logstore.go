// Package logstore answers questions about log records in the event store: the newest that fit a filter,
// and how many there were over time. Its entry point is [New].
package logstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/VictoriaMetrics/VictoriaLogs/lib/logstorage"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/logsql"
)

// Rows is what is needed of the event store.
type Rows interface {
	Query(ctx context.Context, q eventstore.Query, fn func(fields []event.Field) error) error
}

// Query chooses records. Empty fields choose nothing out.
type Query struct {
	From, To int64  // ns since 1970, both inclusive
	Filter   string // LogsQL without pipes, or a LogQL query of lines
	Class    string // NoClass for records without one
	Level    string
	Engine   string
	Service  string
	RID      string
	TraceID  string
}

// NoClass is the class of records that have none.
const NoClass = "none"

// FilterError is a filter that cannot be used.
type FilterError struct {
	Filter string
	Msg    string
	Err    error // nil, or why
}

func (e *FilterError) Error() string {
	if e.Err != nil {
		return e.Msg + ": " + e.Err.Error()
	}
	return e.Msg
}

func (e *FilterError) Unwrap() error { return e.Err }

// LogsQL is the query that is run for q.
func (q Query) LogsQL() (string, error) {
	parts := []string{logsql.Equal("row", string(event.Log))}
	for _, f := range []struct{ name, value string }{
		{"class", q.Class}, {"level", q.Level}, {"engine", q.Engine}, {"service", q.Service}, {"rid", q.RID}, {"trace_id", q.TraceID},
	} {
		switch {
		case f.value == "":
		case f.name == "class" && f.value == NoClass:
			parts = append(parts, logsql.Equal("class", ""))
		default:
			parts = append(parts, logsql.Equal(f.name, f.value))
		}
	}
	filter := strings.TrimSpace(q.Filter)
	if logsql.LooksLikeLogQL(filter) {
		translated, err := logsql.FromLogQL(filter)
		if err != nil {
			return "", &FilterError{q.Filter, "this LogQL query has no translation", err}
		}
		filter = translated
	}
	if filter != "" {
		parsed, err := logstorage.ParseQuery(filter)
		if err != nil {
			return "", &FilterError{q.Filter, "the filter is no LogsQL", err}
		}
		if _, err := logstorage.ParseFilter(filter); err != nil {
			return "", &FilterError{q.Filter, "the filter has a pipe, and here only lines are shown: ask `rollscope query` for numbers", nil}
		}
		parts = append(parts, "("+strings.TrimSuffix(parsed.String(), " | ")+")")
	}
	return strings.Join(parts, " "), nil
}

// Record is one record as it was kept.
type Record struct {
	Seq     string // names the record
	Time    int64  // ns since 1970
	Line    string
	Service string
	Engine  string
	Fields  []event.Field // the rest
}

// Store answers.
type Store struct{ rows Rows }

// New makes a store over rows.
func New(rows Rows) *Store { return &Store{rows} }

// errCursor is an after that is no answer's next.
var errCursor = errors.New("is not the next of an answer: leave it out to start again")

// cursor is a place in the list: the time of the last record, and the records of that very time that
// were shown.
type cursor struct {
	at   int64
	seen []string
}

func parseCursor(s string) (cursor, error) {
	at, seen, ok := strings.Cut(s, ":")
	n, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil || len(seen) > 64<<10 {
		return cursor{}, fmt.Errorf("after %q %w", s[:min(len(s), 40)], errCursor)
	}
	return cursor{n, strings.Split(seen, ".")}, nil
}

// List returns up to limit records, newest first; pass next as after for the ones before, "" is the end.
func (s *Store) List(ctx context.Context, q Query, limit int, after string) (list []Record, next string, err error) {
	text, err := q.LogsQL()
	if err != nil {
		return nil, "", err
	}
	var from cursor
	to := q.To
	if after != "" {
		if from, err = parseCursor(after); err != nil {
			return nil, "", &FilterError{Filter: after, Msg: err.Error()}
		}
		to = min(to, from.at)
	}
	more := false
	err = s.rows.Query(ctx, eventstore.Query{LogsQL: text, From: q.From, To: to, Limit: limit + len(from.seen) + 1}, func(fields []event.Field) error {
		r := record(fields)
		if r.Time == from.at && slices.Contains(from.seen, r.Seq) {
			return nil
		}
		if len(list) == limit {
			more = true
			return eventstore.ErrStop
		}
		list = append(list, r)
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	// Records of one time come in any order; a list that is asked for twice must not jump.
	slices.SortStableFunc(list, func(a, b Record) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(len(b.Seq), len(a.Seq)), cmp.Compare(b.Seq, a.Seq))
	})
	if more {
		last := list[len(list)-1].Time
		c := cursor{at: last}
		if from.at == last {
			c.seen = from.seen
		}
		for _, r := range list {
			if r.Time == last {
				c.seen = append(c.seen, r.Seq)
			}
		}
		next = strconv.FormatInt(last, 10) + ":" + strings.Join(c.seen, ".")
	}
	return list, next, nil
}

// record copies the fields of a row.
func record(fields []event.Field) Record {
	var r Record
	for _, f := range fields {
		switch f.Name {
		case "_time":
			if t, err := time.Parse(time.RFC3339Nano, f.Value); err == nil {
				r.Time = t.UnixNano()
			}
		case "_msg":
			r.Line = strings.Clone(f.Value)
		case "_seq":
			r.Seq = strings.Clone(f.Value)
		case "service":
			r.Service = strings.Clone(f.Value)
		case "engine":
			r.Engine = strings.Clone(f.Value)
		case "row", "received", "_stream", "_stream_id":
		default:
			r.Fields = append(r.Fields, event.Field{Name: strings.Clone(f.Name), Value: strings.Clone(f.Value)})
		}
	}
	return r
}

// Histogram is how many records fell into equal steps.
type Histogram struct {
	From    int64 // ns since 1970: of the first step, a multiple of Step
	Step    time.Duration
	Series  map[string][]int64 // by value of the field; NoClass where a record has no class
	Total   int64
	Classes map[string]int64 // of the whole range
}

// Count counts records over time by the field by.
func (s *Store) Count(ctx context.Context, q Query, step time.Duration, by string) (Histogram, error) {
	text, err := q.LogsQL()
	if err != nil {
		return Histogram{}, err
	}
	h := Histogram{From: q.From - q.From%int64(step), Step: step, Series: map[string][]int64{}, Classes: map[string]int64{}}
	n := (q.To-h.From)/int64(step) + 1
	counts := fmt.Sprintf("%s | stats by (_time:%s, %s) count() as n", text, step, logsql.Quote(by))
	err = s.rows.Query(ctx, eventstore.Query{LogsQL: counts, From: q.From, To: q.To}, func(fields []event.Field) error {
		var name string
		var at, count int64
		for _, f := range fields {
			switch f.Name {
			case "_time":
				t, err := time.Parse(time.RFC3339Nano, f.Value)
				if err != nil {
					return fmt.Errorf("a count of %q: %w", f.Value, err)
				}
				at = t.UnixNano()
			case "n":
				count, _ = strconv.ParseInt(f.Value, 10, 64) // the store's own number
			case by:
				name = strings.Clone(f.Value)
			}
		}
		if name == "" && by == "class" {
			name = NoClass
		}
		line := h.Series[name]
		if line == nil {
			line = make([]int64, n)
			h.Series[name] = line
		}
		if i := (at - h.From) / int64(step); i >= 0 && i < n {
			line[i] += count
			h.Total += count
		}
		return nil
	})
	if err != nil {
		return Histogram{}, err
	}
	if by == "class" {
		for name, line := range h.Series {
			for _, c := range line {
				h.Classes[name] += c
			}
		}
		return h, nil
	}
	err = s.rows.Query(ctx, eventstore.Query{LogsQL: text + " | stats by (class) count() as n", From: q.From, To: q.To}, func(fields []event.Field) error {
		name, count := NoClass, int64(0)
		for _, f := range fields {
			switch f.Name {
			case "n":
				count, _ = strconv.ParseInt(f.Value, 10, 64) // the store's own number
			case "class":
				name = strings.Clone(f.Value)
			}
		}
		h.Classes[name] += count
		return nil
	})
	return h, err
}
