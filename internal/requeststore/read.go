package requeststore

import (
	"cmp"
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
	"github.com/rollscope/rollscope/internal/request"
)

// Query chooses requests: those that began in a range of time and that a filter lets through.
type Query struct {
	From, To int64  // ns since 1970, both inclusive; 0 leaves that side open
	Filter   string // see [Filter]
}

// Order is how a list is sorted. Requests without the field come last either way.
type Order struct {
	By   string // "" or start, or a numeric field
	Desc bool
}

// Page is a part of a list.
type Page struct {
	Requests []request.Settled
	Total    int64  // of all pages
	Next     string // what to ask the next page with, "" at the end
}

// ErrNotFound: there is no such request.
var ErrNotFound = errors.New("there is no such request")

// TooManyError: more requests would have to be read than one answer is made of.
type TooManyError struct{ Max int }

func (e *TooManyError) Error() string {
	return fmt.Sprintf("more than %d requests fit; narrow the range or the filter", e.Max)
}

// FieldError: a name that is no field, or not one that can be used there.
type FieldError struct {
	Name    string
	Allowed []string
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%q is not one of %s", e.Name, strings.Join(e.Allowed, ", "))
}

// scan calls fn with the fields of each row that fits, superseded ones too: id, revision and into are among
// them; those are gone once the caller knows the last revisions. Strings are valid during the call.
func (s *Store) scan(ctx context.Context, q Query, names []string, fn func(fields []event.Field) error) error {
	filter, err := Filter(q.Filter)
	if err != nil {
		return err
	}
	if filter != "" {
		filter = " " + filter
	}
	list := "_time, id, revision"
	for _, n := range names {
		list += ", " + logsql.Quote(n)
	}
	rows := 0
	return s.events.Query(ctx, eventstore.Query{LogsQL: requestRows + filter + ` "into":="" | fields ` + list, From: q.From, To: q.To}, func(fields []event.Field) error {
		if rows++; rows > s.o.MaxRows {
			return &TooManyError{s.o.MaxRows}
		}
		return fn(fields)
	})
}

// entry is a row in a list before it is read in full.
type entry struct {
	id    string
	hash  uint64
	rev   int
	time  int64
	value float64
	has   bool
}

// List returns the requests that fit, in an order, from the one after a page before ("" for the first). An
// error may be a *[FilterError], *[FieldError] or *[TooManyError].
func (s *Store) List(ctx context.Context, q Query, o Order, limit int, after string) (Page, error) {
	stored := ""
	if o.By != "" && o.By != "start" {
		n, ok := numberField(o.By)
		if !ok {
			return Page{}, &FieldError{o.By, append([]string{"start"}, NumberFields()...)}
		}
		stored = request.Numbers[n].Name
	}
	var names []string
	if stored != "" {
		names = append(names, stored)
	}
	var all []entry
	err := s.scan(ctx, q, names, func(fields []event.Field) error {
		var e entry
		for _, f := range fields {
			switch f.Name {
			case "id":
				e.id = strings.Clone(f.Value)
				e.hash = hash(f.Value)
			case "revision":
				e.rev, _ = strconv.Atoi(f.Value)
			case "_time":
				e.time = parseTime(f.Value)
			case stored:
				e.value, e.has = request.ParseStored(f.Value)
			}
		}
		all = append(all, e)
		return nil
	})
	if err != nil {
		return Page{}, err
	}
	if all, err = s.newest(ctx, q, all); err != nil {
		return Page{}, err
	}
	slices.SortFunc(all, func(a, b entry) int { return o.compare(stored != "", a, b) })
	page := Page{Total: int64(len(all))}
	if after != "" {
		mark, err := parseMark(after)
		if err != nil {
			return Page{}, err
		}
		at, _ := slices.BinarySearchFunc(all, mark, func(e, m entry) int { return o.compare(stored != "", e, m) })
		for at < len(all) && o.compare(stored != "", all[at], mark) <= 0 {
			at++
		}
		all = all[at:]
	}
	if len(all) > limit {
		all = all[:limit]
		page.Next = all[limit-1].mark()
	}
	page.Requests, err = s.rows(ctx, all)
	return page, err
}

func parseTime(text string) int64 {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0
	}
	return t.UnixNano()
}

// compare orders entries: by value where sorted by one, then by start, then by id.
func (o Order) compare(byValue bool, a, b entry) int {
	turn := 1
	if o.Desc {
		turn = -1
	}
	if byValue {
		switch {
		case a.has != b.has && a.has:
			return -1
		case a.has != b.has:
			return 1
		case a.has && a.value != b.value:
			return turn * cmp.Compare(a.value, b.value)
		}
		return cmp.Or(-cmp.Compare(a.time, b.time), strings.Compare(a.id, b.id))
	}
	return cmp.Or(turn*cmp.Compare(a.time, b.time), strings.Compare(a.id, b.id))
}

// mark names the place of an entry in its list.
func (e entry) mark() string {
	value := ""
	if e.has {
		value = strconv.FormatFloat(e.value, 'g', -1, 64)
	}
	return strconv.FormatInt(e.time, 10) + "~" + value + "~" + e.id
}

// MarkError is a page's mark that no list gave.
type MarkError struct{ Mark string }

func (e *MarkError) Error() string { return fmt.Sprintf("%q is no mark of a page", e.Mark) }

func parseMark(text string) (e entry, err error) {
	parts := strings.SplitN(text, "~", 3)
	if len(parts) != 3 {
		return e, &MarkError{text}
	}
	if e.time, err = strconv.ParseInt(parts[0], 10, 64); err != nil {
		return e, &MarkError{text}
	}
	if parts[1] != "" {
		if e.value, err = strconv.ParseFloat(parts[1], 64); err != nil || e.value != e.value {
			return e, &MarkError{text}
		}
		e.has = true
	}
	e.id = parts[2]
	return e, nil
}

// newest leaves of entries those that are the last revision of their request, each once.
func (s *Store) newest(ctx context.Context, q Query, all []entry) ([]entry, error) {
	if len(all) == 0 {
		return nil, nil
	}
	// Later than the entries were read: whatever revision is among them is known here.
	var last map[uint64]int
	var err error
	if len(all) <= perQuery {
		ids := make([]string, len(all))
		for i := range all {
			ids[i] = all[i].id
		}
		last, err = s.revisions(ctx, ids, q.From, q.To)
	} else {
		last, err = s.superseded(ctx, q.From, q.To)
	}
	if err != nil {
		return nil, err
	}
	seen := make(map[uint64]bool, len(all))
	return slices.DeleteFunc(all, func(e entry) bool {
		old := e.rev < last[e.hash] || seen[e.hash]
		if !old {
			seen[e.hash] = true
		}
		return old
	}), nil
}

// rows reads entries in full, in their order.
func (s *Store) rows(ctx context.Context, list []entry) ([]request.Settled, error) {
	byID := make(map[string]int, len(list))
	ids := make([]string, len(list))
	from, to := int64(1<<62), int64(0)
	for i, e := range list {
		byID[e.id], ids[i] = i, e.id
		from, to = min(from, e.time), max(to, e.time)
	}
	out := make([]request.Settled, len(list))
	err := s.chunks(ids, 1, func(part []string) error {
		return s.events.Query(ctx, eventstore.Query{LogsQL: requestRows + " " + in("id", part), From: from, To: to}, func(fields []event.Field) error {
			r, err := request.FromRow(fields)
			if err != nil {
				s.drop("unreadable_row", 1)
				return nil
			}
			if i, ok := byID[r.ID]; ok && r.Revision >= list[i].rev && r.Revision > out[i].Revision && r.Into == "" {
				out[i] = r
			}
			return nil
		})
	})
	// What was removed or could not be read meanwhile is no request.
	return slices.DeleteFunc(out, func(r request.Settled) bool { return r.ID == "" }), err
}

// Detail is everything about one request.
type Detail struct {
	Request      request.Settled // with Others
	Observations []request.Observation
	Missing      int               // observations that it is made of and that are no longer stored
	Related      []request.Settled // of the same rid, x-request-id or trace, nearest first, at most 50
	Logs         int64             // log records that name one of its ids
}

// Get finds a request by its id; one that became a part of another leads there. The error is [ErrNotFound]
// when there is none.
func (s *Store) Get(ctx context.Context, id string) (Detail, error) {
	var d Detail
	for range 8 { // longer chains would be a mistake of ours
		r, err := s.last(ctx, id)
		if err != nil {
			return d, err
		}
		if r.Into == "" {
			d.Request = r
			break
		}
		id = r.Into
	}
	r := &d.Request
	if r.ID == "" {
		return d, ErrNotFound
	}
	obs, err := s.observations(ctx, slices.Clone(r.Keys), 0, 0)
	if err != nil {
		return d, err
	}
	for _, k := range r.Keys {
		if o, ok := obs[k]; ok {
			d.Observations = append(d.Observations, o)
		} else {
			d.Missing++
		}
	}
	slices.SortFunc(d.Observations, func(a, b request.Observation) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), strings.Compare(string(a.Source), string(b.Source)), strings.Compare(a.Key(), b.Key()))
	})
	r.Others = request.Merge(d.Observations).Others
	if err := s.related(ctx, &d); err != nil {
		return d, err
	}
	return d, s.countLogs(ctx, &d)
}

// last reads the last revision of a request.
func (s *Store) last(ctx context.Context, id string) (found request.Settled, err error) {
	err = s.events.Query(ctx, eventstore.Query{LogsQL: requestRows + " " + logsql.Equal("id", id)}, func(fields []event.Field) error {
		r, err := request.FromRow(fields)
		if err != nil {
			return err
		}
		if r.Revision > found.Revision {
			found = r
		}
		return nil
	})
	if err == nil && found.ID == "" {
		err = ErrNotFound
	}
	return found, err
}

const maxRelated = 50

// related finds tries of the same call and calls of the same trace.
func (s *Store) related(ctx context.Context, d *Detail) error {
	var any []string
	for _, k := range []request.AliasKind{request.RID, request.XRequestID, request.TraceID} {
		if id := d.Request.Alias(k); id != "" {
			any = append(any, logsql.Equal(string(k), id))
		}
	}
	if len(any) == 0 {
		return nil
	}
	const around = int64(24 * time.Hour)
	from, to := d.Request.Time-around, d.Request.Time+around
	var all []entry
	err := s.events.Query(ctx, eventstore.Query{LogsQL: requestRows + " (" + strings.Join(any, " or ") + ") | fields _time, id, revision", From: from, To: to, Limit: 1000}, func(fields []event.Field) error {
		var e entry
		for _, f := range fields {
			switch f.Name {
			case "id":
				e.id, e.hash = strings.Clone(f.Value), hash(f.Value)
			case "_time":
				e.time = parseTime(f.Value)
			}
		}
		_, e.rev = idOf(fields)
		if e.id != d.Request.ID {
			all = append(all, e)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if all, err = s.newest(ctx, Query{From: from, To: to}, all); err != nil {
		return err
	}
	apart := func(e entry) int64 { return max(e.time-d.Request.Time, d.Request.Time-e.time) }
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(apart(a), apart(b)), strings.Compare(a.id, b.id))
	})
	d.Related, err = s.rows(ctx, all[:min(len(all), maxRelated)])
	return err
}

// countLogs counts the records that name the request, from just before it to a minute after its end.
func (s *Store) countLogs(ctx context.Context, d *Detail) error {
	var any []string
	for _, k := range []request.AliasKind{request.RID, request.TraceID, request.XRequestID} {
		if id := d.Request.Alias(k); id != "" {
			any = append(any, logsql.Equal(string(k), id))
		}
	}
	if len(any) == 0 {
		return nil
	}
	from := d.Request.Time - int64(time.Minute)
	to := max(d.Request.Finish, d.Request.Time+int64(10*time.Minute)) + int64(time.Minute)
	return s.events.Query(ctx, eventstore.Query{LogsQL: `{row="log"} (` + strings.Join(any, " or ") + ") | stats count() n", From: from, To: to}, func(fields []event.Field) error {
		for _, f := range fields {
			if f.Name == "n" {
				d.Logs, _ = strconv.ParseInt(f.Value, 10, 64) // of the store's own making
			}
		}
		return nil
	})
}

// OfTrace returns the id of the request that a trace is of, in 32 lower-case hex digits: the first one of
// several. "" when there is none.
func (s *Store) OfTrace(ctx context.Context, traceID string) (string, error) {
	var all []entry
	err := s.events.Query(ctx, eventstore.Query{LogsQL: requestRows + " " + logsql.Equal(string(request.TraceID), traceID) + ` "into":="" | fields _time, id, revision`, Limit: 1000}, func(fields []event.Field) error {
		var e entry
		for _, f := range fields {
			switch f.Name {
			case "id":
				e.id = strings.Clone(f.Value)
			case "_time":
				e.time = parseTime(f.Value)
			}
		}
		e.hash, e.rev = idOf(fields)
		all = append(all, e)
		return nil
	})
	if err != nil {
		return "", err
	}
	if all, err = s.newest(ctx, Query{}, all); err != nil || len(all) == 0 {
		return "", err
	}
	return slices.MinFunc(all, func(a, b entry) int { return cmp.Or(cmp.Compare(a.time, b.time), strings.Compare(a.id, b.id)) }).id, nil
}
