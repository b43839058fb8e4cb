package tracestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/logsql"
	"github.com/rollscope/rollscope/internal/span"
)

// Bounds of what one call reads or answers.
const (
	MaxTraces  = 1000    // that a search finds
	MaxMatched = 100     // matched spans shown of one trace
	MaxSpans   = 1 << 18 // of one trace
	MaxValues  = 10000   // names or values of tags
	MaxNames   = 200     // names of spans in a service's statistics
	MaxOthers  = 20      // traces that an ambiguous id may mean

	maxCandidates = 5000      // traces that one search looks at
	maxSlowest    = 20_000    // spans that the slowest traces are found by
	maxLinks      = 200_000   // spans that dependencies and coverage are found in
	maxTraceBytes = 256 << 20 // of memory that the spans of one trace take
)

// ErrNotFound is that no trace has the id that was asked for.
var ErrNotFound = errors.New("no trace has this id")

// Events is what is needed of the event store.
type Events interface {
	Query(ctx context.Context, q eventstore.Query, fn func(fields []event.Field) error) error
	// MaxQueryBytes is how long a query may be.
	MaxQueryBytes() int
}

// Options of [New].
type Options struct {
	Now func() time.Time // nil = time.Now
	// Budget bounds a search: what it found until then is the answer, marked partial. 0 = 20 s.
	Budget time.Duration
}

// Store finds traces. It is safe for concurrent use.
type Store struct {
	events Events
	now    func() time.Time
	budget time.Duration
	links  int // spans that dependencies and coverage are found in
}

// New returns a store that reads the spans of events.
func New(events Events, o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Budget == 0 {
		o.Budget = 20 * time.Second
	}
	return &Store{events: events, now: o.Now, budget: o.Budget, links: maxLinks}
}

// query runs a query and gives each row as a map-like accessor, valid during the call.
func (st *Store) query(ctx context.Context, text string, from, to int64, fn func(r row) error) error {
	return st.events.Query(ctx, eventstore.Query{LogsQL: text, From: from, To: to}, func(f []event.Field) error { return fn(f) })
}

// row is the fields of one row of an answer.
type row []event.Field

// get returns a copy of a field's value.
func (r row) get(name string) string {
	for i := range r {
		if r[i].Name == name {
			return strings.Clone(r[i].Value)
		}
	}
	return ""
}

func (r row) int(name string) int64 {
	v := r.get(name)
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		if f, err := strconv.ParseFloat(v, 64); err == nil && f >= -1<<62 && f <= 1<<62 {
			return int64(f)
		}
	}
	return n
}

// time reads RFC 3339, 0 for none.
func (r row) time(name string) int64 {
	t, err := time.Parse(time.RFC3339Nano, r.get(name))
	if err != nil {
		return 0
	}
	return t.UnixNano()
}

func parseTraceID(s string) (span.TraceID, bool) {
	id, err := span.ParseTraceID(s)
	return id, err == nil
}

// inFilter is the filter of rows whose field is one of the values.
func inFilter(field string, values []string) string {
	if len(values) == 1 {
		return logsql.Equal(field, values[0])
	}
	var b strings.Builder
	b.WriteString(logsql.Quote(field))
	b.WriteString(":in(")
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(logsql.Quote(v))
	}
	b.WriteByte(')')
	return b.String()
}

// inParts calls fn with parts of a list of trace ids, each short enough to stand in a query beside as many
// bytes, and of most traces at most.
func (st *Store) inParts(ids []string, beside, most int, fn func(ids []string) error) error {
	const idBytes = 2*len(span.TraceID{}) + 3 // quoted, with a comma
	most = max(1, min(most, (st.events.MaxQueryBytes()-beside-512)/idBytes))
	for part := range slices.Chunk(ids, most) {
		if err := fn(part); err != nil {
			return err
		}
	}
	return nil
}

// instant writes a time for people.
func instant(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339) }

// beside is how far spans of a trace may lie outside the range in which it was asked for.
const beside = int64(6 * time.Hour)

func widen(from, to int64) (int64, int64) {
	if from != 0 {
		from = max(1, from-beside)
	}
	if to != 0 {
		to += beside
	}
	return from, to
}

// Trace finds one trace by an id in any spelling: of the trace (leading zeros left out, upper case, the low
// 64 bits), else by rid, x-request-id, request id, bootstrap room or span id. The range, ns since 1970 with 0
// for no bound, makes it faster. The error is [ErrNotFound], or *[LookupError] when the id is none and
// nothing else of that name is there either.
func (st *Store) Trace(ctx context.Context, id string, from, to int64) (Trace, error) {
	from, to = widen(from, to)
	id = strings.TrimSpace(id)
	look, lookErr := span.ParseLookup(id)
	switch {
	case lookErr != nil:
	case len(look.Exact) == 1 && len(look.Suffixes) == 0: // most: one question is enough
		if t, err := st.fetch(ctx, look.Exact[0], from, to); !errors.Is(err, ErrNotFound) {
			return t, err
		}
	default:
		ids, partial, err := st.candidates(ctx, look, from, to)
		if err != nil {
			return Trace{}, err
		}
		if len(ids) > 0 {
			t, err := st.fetch(ctx, ids[0], from, to)
			t.Others = ids[1:]
			t.Partial = joinReasons(t.Partial, partial)
			return t, err
		}
	}
	ids, by, err := st.byAlias(ctx, id, from, to)
	if err != nil {
		return Trace{}, err
	}
	if len(ids) == 0 {
		if lookErr != nil {
			return Trace{}, &LookupError{Err: lookErr}
		}
		return Trace{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	t, err := st.fetch(ctx, ids[0], from, to)
	t.Others, t.By = ids[1:], by
	return t, err
}

// LookupError is an id that cannot be one of a trace, and that no request has either. It wraps
// [span.ErrNotTraceID].
type LookupError struct{ Err error }

func (e *LookupError) Error() string {
	return e.Err.Error() + "; no request has it as rid, x-request-id or bootstrap room either"
}

// Unwrap returns what is wrong with the id.
func (e *LookupError) Unwrap() error { return e.Err }

func joinReasons(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return a + "; " + b
}

// candidates are the traces that a lookup means: the exact ones first.
func (st *Store) candidates(ctx context.Context, l span.Lookup, from, to int64) (ids []span.TraceID, partial string, err error) {
	find := func(ctx context.Context, filter string) error {
		text := spansOnly + " " + filter + " | stats by (trace_id) max(_time) as t | sort by (t desc, trace_id) limit " + strconv.Itoa(MaxOthers+1)
		return st.query(ctx, text, from, to, func(r row) error {
			if id, ok := parseTraceID(r.get("trace_id")); ok && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
			return nil
		})
	}
	exact := make([]string, len(l.Exact))
	for i, id := range l.Exact {
		exact[i] = id.String()
	}
	if err := find(ctx, inFilter("trace_id", exact)); err != nil {
		return nil, "", err
	}
	if len(l.Suffixes) == 0 {
		return ids, "", nil
	}
	within, cancel := context.WithTimeout(ctx, st.budget)
	defer cancel()
	err = find(within, logsql.Match("trace_id", "(?:"+strings.Join(l.Suffixes, "|")+")$"))
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return ids, "other traces with these low 64 bits were not looked for to the end: it took too long", nil
	}
	if err != nil {
		return nil, "", err
	}
	return ids, "", nil
}

// aliasFields are the fields that other names of a request stand in, the surest first.
var aliasFields = []string{"rid", "x_request_id", "request_id", "bootstrap_room", "span_id"}

// byAlias finds traces by another name, the newest first, and tells whose name it is.
func (st *Store) byAlias(ctx context.Context, name string, from, to int64) (ids []span.TraceID, by string, err error) {
	if name == "" || len(name) > 4096 {
		return nil, "", nil
	}
	values := map[string][]string{}
	for _, f := range aliasFields {
		values[f] = []string{name}
	}
	if room, ok := span.Room(name); ok {
		values["bootstrap_room"] = []string{strconv.FormatUint(room, 10)}
	}
	values["span_id"] = []string{strings.ToLower(name)}
	var parts []string
	for _, f := range aliasFields {
		parts = append(parts, inFilter(f, values[f]))
	}
	type hit struct {
		id   span.TraceID
		rank int
		at   int64
	}
	var hits []hit
	text := spansOnly + " (" + strings.Join(parts, " or ") + ") | stats by (trace_id, " + strings.Join(aliasFields, ", ") + ") max(_time) as t | sort by (t desc) limit 1000"
	err = st.query(ctx, text, from, to, func(r row) error {
		id, ok := parseTraceID(r.get("trace_id"))
		if !ok {
			return nil
		}
		h := hit{id: id, rank: len(aliasFields), at: r.time("t")}
		for i, f := range aliasFields {
			if slices.Contains(values[f], r.get(f)) {
				h.rank = i
				break
			}
		}
		if i := slices.IndexFunc(hits, func(x hit) bool { return x.id == id }); i >= 0 {
			hits[i].rank = min(hits[i].rank, h.rank)
		} else {
			hits = append(hits, h)
		}
		return nil
	})
	if err != nil || len(hits) == 0 {
		return nil, "", err
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return a.rank - b.rank })
	for _, h := range hits[:min(len(hits), MaxOthers+1)] {
		ids = append(ids, h.id)
	}
	if hits[0].rank < len(aliasFields) {
		by = aliasFields[hits[0].rank]
	}
	return ids, by, nil
}

// fetch reads all spans of a trace.
func (st *Store) fetch(ctx context.Context, id span.TraceID, from, to int64) (Trace, error) {
	t := Trace{ID: id}
	var wrong error
	bad := 0
	keep := newPool()
	err := st.query(ctx, spansOnly+" "+logsql.Equal("trace_id", id.String()), from, to, func(r row) error {
		if len(t.Spans) >= MaxSpans {
			t.Partial = fmt.Sprintf("the trace has more than %d spans", MaxSpans)
			return eventstore.ErrStop
		}
		if keep.bytes > maxTraceBytes {
			t.Partial = fmt.Sprintf("the trace is larger than %d MiB: only %d of its spans are here", maxTraceBytes>>20, len(t.Spans))
			return eventstore.ErrStop
		}
		s, err := span.FromRow(r)
		if err != nil {
			bad, wrong = bad+1, err
		}
		t.Spans = append(t.Spans, keep.keep(s))
		return nil
	})
	if err != nil {
		return t, err
	}
	if bad > 0 {
		t.Partial = joinReasons(t.Partial, fmt.Sprintf("%d spans could not be read in full: %v", bad, wrong))
	}
	t.Spans = unique(t.Spans)
	if len(t.Spans) == 0 {
		return t, fmt.Errorf("%w in this range: %s", ErrNotFound, id)
	}
	return t, nil
}

// unique sorts spans by start and drops those that were sent twice.
func unique(spans []span.Span) []span.Span {
	slices.SortStableFunc(spans, func(a, b span.Span) int {
		switch {
		case a.Start != b.Start:
			if a.Start < b.Start {
				return -1
			}
			return 1
		case a.End != b.End: // what holds others comes first
			if a.End > b.End {
				return -1
			}
			return 1
		}
		return slices.Compare(a.ID[:], b.ID[:])
	})
	return slices.CompactFunc(spans, func(a, b span.Span) bool {
		return a.ID == b.ID && a.Start == b.Start && a.End == b.End && a.Name == b.Name && a.Service == b.Service && a.Parent == b.Parent
	})
}
