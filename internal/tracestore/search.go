package tracestore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/logsql"
	"github.com/rollscope/rollscope/internal/span"
)

// Search finds traces by their spans. It looks at the newest part of the range first and goes back, or, for
// the slowest, at all of it; it ends with the limit, the range or the budget of time, and says when there
// may be more.
func (st *Store) Search(ctx context.Context, q Query) (Result, error) {
	s := st.newSearch(q)
	within, cancel := context.WithTimeout(ctx, st.budget)
	defer cancel()
	err := s.run(within)
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		s.res.Partial = joinReasons(s.res.Partial, fmt.Sprintf("the search ended after %s", st.budget))
		err = nil
	}
	if err != nil {
		return Result{}, err
	}
	switch q.Order {
	case Slowest:
		slices.SortStableFunc(s.res.Traces, func(a, b Found) int { return cmp.Compare(b.End-b.Start, a.End-a.Start) })
	default:
		slices.SortStableFunc(s.res.Traces, func(a, b Found) int { return cmp.Compare(b.Start, a.Start) })
	}
	if len(s.res.Traces) > s.q.Limit {
		s.res.Traces = s.res.Traces[:s.q.Limit]
	}
	return s.res, nil
}

type search struct {
	st     *Store
	q      Query
	leaves []*Cond
	filter string // of candidates
	res    Result
	seen   map[span.TraceID]bool
}

func (st *Store) newSearch(q Query) *search {
	if q.Limit <= 0 {
		q.Limit = 20
	}
	q.Limit = min(q.Limit, MaxTraces)
	if q.SpansPerTrace <= 0 {
		q.SpansPerTrace = 3
	}
	q.SpansPerTrace = min(q.SpansPerTrace, MaxMatched)
	if q.Where == nil {
		q.Where = Spans(All())
	}
	if now := st.now().UnixNano(); q.To == 0 {
		q.To = max(now, q.From) + int64(time.Minute) // clocks of senders may be ahead
	}
	s := &search{st: st, q: q, leaves: q.Where.leaves(), seen: map[span.TraceID]bool{}}
	s.filter = candidateFilter(q.Where)
	if s.filter == everything && q.MinDuration > 0 {
		// A trace that long has a span that long, unless parts of it are missing.
		s.filter = `duration:>=` + strconv.FormatInt(int64(q.MinDuration), 10)
	}
	return s
}

// candidateFilter finds at least one span of each trace in a set.
func candidateFilter(s *Set) string {
	switch s.op {
	case leaf:
		return s.cond.filter()
	case allOf: // one of the conditions is enough; the one with most to say finds the fewest
		best := everything
		for _, a := range s.args {
			if f := candidateFilter(a); best == everything || f == nothing || len(f) > len(best) && f != everything {
				best = f
			}
			if best == nothing {
				return nothing
			}
		}
		return best
	}
	var parts []string
	for _, a := range s.args {
		switch f := candidateFilter(a); f {
		case everything:
			return everything
		case nothing:
		default:
			parts = append(parts, f)
		}
	}
	if len(parts) == 0 {
		return nothing
	}
	return "(" + strings.Join(parts, " or ") + ")"
}

// firstWindow is the newest part of the range that is looked at first; each next one is longer.
const firstWindow = int64(10 * time.Minute)

func (s *search) run(ctx context.Context) error {
	if s.filter == nothing {
		return nil
	}
	if s.q.Order == Slowest {
		return s.slowest(ctx)
	}
	from := s.q.From
	if from <= 0 {
		first, err := s.first(ctx)
		if err != nil || first == 0 {
			return err
		}
		from = first
	}
	for hi, width := s.q.To, firstWindow; hi >= from && len(s.res.Traces) < s.q.Limit; width *= 4 {
		lo := max(from, hi-width)
		if hi-from < 2*width {
			lo = from
		}
		if err := s.window(ctx, lo, hi); err != nil {
			return err
		}
		if s.res.Inspected >= maxCandidates && len(s.res.Traces) < s.q.Limit {
			s.res.Partial = fmt.Sprintf("the search ended after %d traces that may match", s.res.Inspected)
			return nil
		}
		hi = lo - 1
	}
	return nil
}

// first is when the oldest span starts that may match.
func (s *search) first(ctx context.Context) (at int64, err error) {
	err = s.st.query(ctx, spansOnly+" "+s.filter+" | stats min(_time) as t", 0, s.q.To, func(r row) error {
		at = r.time("t")
		return nil
	})
	return at, err
}

type candidate struct {
	id span.TraceID
	at int64 // start of the newest span that matches, or ns of the longest
}

// window finds traces by spans in [lo, hi], the newest first.
func (s *search) window(ctx context.Context, lo, hi int64) error {
	for hi >= lo && len(s.res.Traces) < s.q.Limit && s.res.Inspected < maxCandidates {
		page := max(20, 2*(s.q.Limit-len(s.res.Traces)))
		list, n, err := s.candidates(ctx, page, lo, hi)
		if err != nil {
			return err
		}
		if err := s.check(ctx, list); err != nil {
			return err
		}
		if n < page {
			return nil
		}
		// The next page begins where this one ends. Traces whose newest spans start in the same instant are
		// seen again and known; when all are, the instant is left behind.
		last := list[len(list)-1].at
		if last >= hi {
			last = hi - 1
		}
		hi = last
	}
	return nil
}

// slowest finds traces by the longest spans that match. The event store keeps only those while it looks, not
// something of every trace: recordings have millions.
func (s *search) slowest(ctx context.Context) error {
	rows := min(maxSlowest, max(1600, 16*s.q.Limit)) // a trace's longest spans are often its root and what the root waits for
	var list []candidate
	n, seen := 0, map[span.TraceID]bool{}
	text := spansOnly + " " + s.filter + " | fields trace_id, duration | sort by (duration desc) limit " + strconv.Itoa(rows)
	err := s.st.query(ctx, text, s.q.From, s.q.To, func(r row) error {
		n++
		if id, ok := parseTraceID(r.get("trace_id")); ok {
			list = append(list, candidate{id, r.int("duration")})
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.at, a.at), bytes.Compare(a.id[:], b.id[:])) })
	list = slices.DeleteFunc(list, func(c candidate) bool {
		twice := seen[c.id]
		seen[c.id] = true
		return twice
	})
	looked := len(list)
	for len(list) > 0 && len(s.res.Traces) < s.q.Limit {
		batch := min(len(list), max(20, s.q.Limit))
		if err := s.check(ctx, list[:batch]); err != nil {
			return err
		}
		list = list[batch:]
	}
	if n == rows && len(s.res.Traces) < s.q.Limit {
		s.res.Partial = fmt.Sprintf("only the %d traces with the longest spans were looked at", looked)
	}
	return nil
}

// candidates lists traces that may match, the newest first; n is how many rows there were. Those that were
// looked at before stand in the list too.
func (s *search) candidates(ctx context.Context, limit int, from, to int64) (list []candidate, n int, err error) {
	text := spansOnly + " " + s.filter + " | stats by (trace_id) max(_time) as t | sort by (t desc, trace_id) limit " + strconv.Itoa(limit)
	err = s.st.query(ctx, text, from, to, func(r row) error {
		n++
		if id, ok := parseTraceID(r.get("trace_id")); ok {
			list = append(list, candidate{id, r.time("t")})
		}
		return nil
	})
	slices.SortStableFunc(list, func(a, b candidate) int { return cmp.Compare(b.at, a.at) })
	return list, n, err
}

// check reads what is needed of candidates and keeps those that match.
func (s *search) check(ctx context.Context, list []candidate) error {
	var ids []string
	lo, hi := int64(math.MaxInt64), int64(0)
	for _, c := range list {
		if s.seen[c.id] {
			continue
		}
		s.seen[c.id] = true
		ids = append(ids, c.id.String())
		if s.q.Order == Newest {
			lo, hi = min(lo, c.at), max(hi, c.at)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	s.res.Inspected += len(ids)
	if s.q.Order != Newest {
		lo, hi = s.q.From, s.q.To
	}
	lo, hi = widen(lo, hi)
	found, err := s.st.summaries(ctx, ids, lo, hi)
	if err != nil {
		return err
	}
	matched := make([]map[span.TraceID][]span.Span, len(s.leaves))
	for i, c := range s.leaves {
		if matched[i], err = s.matching(ctx, c, ids, found); err != nil {
			return err
		}
	}
	for _, text := range ids {
		id, _ := parseTraceID(text)
		f := found[id]
		if f == nil {
			continue
		}
		if d := time.Duration(f.End - f.Start); d < s.q.MinDuration || s.q.MaxDuration > 0 && d > s.q.MaxDuration {
			continue
		}
		at := 0
		if !s.q.Where.holds(func() bool { at++; return len(matched[at-1][id]) > 0 }) {
			continue
		}
		for i := range matched {
			f.Matched = append(f.Matched, matched[i][id]...)
		}
		f.Matched = unique(f.Matched)
		f.Count = len(f.Matched)
		f.Matched = f.Matched[:min(len(f.Matched), s.q.SpansPerTrace)]
		s.res.Traces = append(s.res.Traces, *f)
	}
	return nil
}

// holds evaluates a set; next tells of each leaf in order whether it has spans.
func (s *Set) holds(next func() bool) bool {
	if s.op == leaf {
		return next()
	}
	ok := s.op == allOf
	for _, a := range s.args {
		h := a.holds(next) // every leaf is asked
		if s.op == allOf {
			ok = ok && h
		} else {
			ok = ok || h
		}
	}
	return ok
}

// sortedTraces is how many traces one query takes the first spans of: the event store sorts those in memory,
// which is bounded.
const sortedTraces = 20

// matching reads the spans of some traces for which a condition holds: the first ones of each trace.
func (s *search) matching(ctx context.Context, c *Cond, ids []string, found map[span.TraceID]*Found) (map[span.TraceID][]span.Span, error) {
	out := map[span.TraceID][]span.Span{}
	filter := c.filter()
	if filter == nothing {
		return out, nil
	}
	keep := newPool()
	read := func(most int, behind string) func(ids []string) error {
		return func(ids []string) error {
			text := spansOnly + " " + inFilter("trace_id", ids) + " " + filter + behind
			return s.st.query(ctx, text, s.q.From, s.q.To, func(r row) error {
				sp, _ := span.FromRow(r) // what cannot be read of it is told with the whole trace
				f := found[sp.Trace]
				if f == nil {
					return nil
				}
				facts := traceFacts{f.Root, f.RootService, float64(f.End-f.Start) / 1e9}
				if len(out[sp.Trace]) < most && c.holds(&sp, &facts) {
					out[sp.Trace] = append(out[sp.Trace], keep.keep(sp))
				}
				return nil
			})
		}
	}
	var whole, long []string
	for _, id := range ids {
		t, _ := parseTraceID(id)
		switch f := found[t]; {
		case f == nil: // removed meanwhile
		case f.Spans <= MaxMatched:
			whole = append(whole, id)
		default:
			long = append(long, id)
		}
	}
	if err := s.st.inParts(whole, len(filter), len(whole), read(2*MaxMatched, "")); err != nil {
		return nil, err
	}
	first := " | sort by (_time) partition by (trace_id) limit " + strconv.Itoa(MaxMatched)
	if err := s.st.inParts(long, len(filter), sortedTraces, read(MaxMatched, first)); err != nil {
		return nil, err
	}
	for _, spans := range out {
		slices.SortFunc(spans, func(a, b span.Span) int {
			return cmp.Or(cmp.Compare(a.Start, b.Start), bytes.Compare(a.ID[:], b.ID[:]))
		})
	}
	return out, nil
}

// summaries reads what lists show of traces.
func (st *Store) summaries(ctx context.Context, ids []string, from, to int64) (map[span.TraceID]*Found, error) {
	out := make(map[span.TraceID]*Found, len(ids))
	err := st.inParts(ids, 512, len(ids), func(part []string) error { return st.summarize(ctx, part, from, to, out) })
	return out, err
}

// summarize is summaries for as many traces as stand in a query.
func (st *Store) summarize(ctx context.Context, ids []string, from, to int64, out map[span.TraceID]*Found) error {
	of := func(r row) *Found {
		id, ok := parseTraceID(r.get("trace_id"))
		if !ok {
			return nil
		}
		f := out[id]
		if f == nil {
			f = &Found{ID: id, Services: map[string]ServiceCount{}}
			out[id] = f
		}
		return f
	}
	these := spansOnly + " " + inFilter("trace_id", ids)
	// The end of a span is no field: it is added up, to about 0.3 microseconds.
	text := these + ` | math (_time + duration) default _time as e | stats by (trace_id, service) count() as n, count() if (status_code:="error") as bad, min(_time) as t, max(e) as e, max(rid) as rid, max(x_request_id) as x, max(request_id) as q`
	first := map[*Found]string{}
	firstAt := map[*Found]int64{}
	err := st.query(ctx, text, from, to, func(r row) error {
		f := of(r)
		if f == nil {
			return nil
		}
		service := r.get("service")
		n, bad, start, end := int(r.int("n")), int(r.int("bad")), r.time("t"), r.int("e")
		f.Services[service] = ServiceCount{n, bad}
		f.Spans += n
		f.Errors += bad
		if f.Start == 0 || start < f.Start {
			f.Start = start
		}
		if at, ok := firstAt[f]; !ok || start < at || start == at && service < first[f] {
			first[f], firstAt[f] = service, start
		}
		f.End = max(f.End, end)
		f.RID = cmp.Or(f.RID, r.get("rid"))
		f.RequestID = cmp.Or(f.RequestID, r.get("x"), r.get("q"))
		return nil
	})
	if err != nil {
		return err
	}
	rootAt := map[*Found]int64{}
	text = these + ` parent_span_id:"" | fields trace_id, _msg, service, _time, duration, unnamed, rid, x_request_id, request_id | sort by (_time) partition by (trace_id) limit 10`
	err = st.query(ctx, text, from, to, func(r row) error {
		f := of(r)
		if f == nil {
			return nil
		}
		start := r.time("_time")
		end := start + r.int("duration")
		// The exact end where the root is the last to end, as it should be.
		if f.End-end < 1024 && end-f.End < 1024 {
			f.End = end
		}
		f.Roots++
		if at, ok := rootAt[f]; ok && at <= start {
			return nil
		}
		rootAt[f] = start
		f.Root, f.RootService = r.get("_msg"), r.get("service")
		f.RID = cmp.Or(r.get("rid"), f.RID)
		f.RequestID = cmp.Or(r.get("x_request_id"), r.get("request_id"), f.RequestID)
		return nil
	})
	if err != nil {
		return err
	}
	for f := range first { // those of this part
		if f.Roots == 0 {
			f.Orphans, f.RootService = true, first[f]
		}
		f.End = max(f.End, f.Start)
	}
	return nil
}

// exactService is the filter of a service's spans.
func exactService(service string) string {
	if service == "" {
		return spansOnly + ` service:""`
	}
	return `{row="span",service=` + logsql.Quote(service) + `}`
}
