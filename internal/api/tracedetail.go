package api

import (
	"cmp"
	"slices"
	"time"

	"github.com/rollscope/rollscope/internal/span"
	"github.com/rollscope/rollscope/internal/timeline"
	"github.com/rollscope/rollscope/internal/tracestore"
)

// maxDetailSpans bounds the rows of a trace's detail; its timeline has all.
const maxDetailSpans = 5000

// traceTimeline begins the id of a trace's timeline.
const traceTimeline = "trace-"

// NewTraceDetail puts a trace in order as GET /traces/{id} answers it. Siblings of one name are folded when
// there are more than fold of them; 0 is the default, a negative number folds nothing. What needs other
// sources (the request, related traces) is left empty.
func NewTraceDetail(t *tracestore.Trace, fold int) TraceDetail {
	tree := span.NewTree(t.Spans)
	d := TraceDetail{
		TraceID: t.ID.String(), Start: stamp(time.Unix(0, tree.Start)), Duration: float64(tree.Duration()) / 1e9,
		Flags: tree.FlagNames(), Levels: map[string]int{}, Timeline: traceTimeline + t.ID.String(),
	}
	for _, o := range t.Others {
		d.Others = append(d.Others, o.String())
	}
	if t.Partial != "" {
		d.Problems = append(d.Problems, Warning{Code: "partial", Message: t.Partial})
	}
	if t.By != "" {
		d.Problems = append(d.Problems, Warning{Code: "found_by", Message: "the id that was asked for is the " + t.By + " of this trace"})
	}
	for _, p := range tree.Problems {
		w := Warning{Code: p.Code, Message: p.Message}
		if p.Node >= 0 {
			w.Where = tree.Name(p.Node)
		}
		d.Problems = append(d.Problems, w)
	}
	for _, s := range tree.Services() {
		d.Services = append(d.Services, s.Service)
	}
	for service, names := range namesByService(tree) {
		if l := span.LevelOf(names); l.Level > 0 {
			d.Levels[service] = l.Level
		}
	}
	if root := mainRoot(tree); root >= 0 {
		parts, rest := tree.Parts(root)
		for _, p := range parts {
			m := span.Explain(p.Name)
			start := stamp(time.Unix(0, p.Start))
			d.Phases = append(d.Phases, RequestPhase{Name: p.Name, Class: timeline.ClassOfSpan(&m, p.Name).String(), Depth: p.Depth,
				Seconds: number(float64(p.Time) / 1e9), Start: &start, From: "trace"})
		}
		d.Rest = number(float64(rest) / 1e9)
	}
	rows := tree.Rows(fold)
	if len(rows) > maxDetailSpans {
		d.More = len(rows) - maxDetailSpans
		rows = rows[:maxDetailSpans]
	}
	for i := range rows {
		d.Spans = append(d.Spans, traceSpan(tree, &rows[i]))
	}
	return d
}

func namesByService(tree *span.Tree) map[string]map[string]int64 {
	out := map[string]map[string]int64{}
	for i := range tree.Spans {
		s := &tree.Spans[i]
		if out[s.Service] == nil {
			out[s.Service] = map[string]int64{}
		}
		out[s.Service][s.Name]++
	}
	return out
}

// mainRoot is the node whose life is the trace's: the longest root that was sent, -1 when none has a time.
func mainRoot(tree *span.Tree) int {
	best := -1
	for _, r := range tree.Roots {
		n := &tree.Nodes[r]
		if n.Start == 0 {
			continue
		}
		if best < 0 {
			best = r
			continue
		}
		b := &tree.Nodes[best]
		if sent, had := n.Span >= 0, b.Span >= 0; sent != had {
			if sent {
				best = r
			}
		} else if n.End-n.Start > b.End-b.Start {
			best = r
		}
	}
	return best
}

func traceSpan(tree *span.Tree, r *span.Row) TraceSpan {
	n := &tree.Nodes[r.Node]
	out := TraceSpan{ID: n.ID.String(), ParentAt: r.Parent, Depth: r.Depth, Name: tree.Name(r.Node), Class: timeline.ClassGroup.String(),
		Missing: n.Flags&span.IsMissing != 0, Critical: n.Flags&span.IsCritical != 0, Self: float64(n.Self) / 1e9, Flags: n.Flags.Names()}
	from, to := n.Start, n.End
	if f := r.Fold; f != nil {
		from, to = f.Start, f.End
		out.Critical = f.Critical
		out.Folded = &TraceFold{Count: f.Count, Sum: float64(f.Sum) / 1e9, P50: float64(f.P50) / 1e9, P99: float64(f.P99) / 1e9, Max: float64(f.Max) / 1e9}
	}
	if from > 0 {
		out.Start, out.Duration = float64(from-tree.Start)/1e9, float64(to-from)/1e9
	}
	s := tree.Of(r.Node)
	if s == nil {
		return out
	}
	out.Parent, out.Service, out.Scope = s.Parent.String(), s.Service, s.ScopeName
	out.Kind, out.Status, out.Message = s.Kind.String(), s.Status.String(), s.StatusMessage
	out.Class = timeline.ClassOfSpan(tree.Meaning(r.Node), s.Name).String()
	out.Attrs, out.Resource, out.Dropped = traceAttrs(s.Attrs), traceAttrs(s.Resource), int(s.DroppedAttrs)
	for i := range s.Events {
		e := &s.Events[i]
		out.Events = append(out.Events, TraceEvent{At: float64(e.Time-tree.Start) / 1e9, Name: e.Name, Attrs: traceAttrs(e.Attrs)})
	}
	for i := range s.Links {
		l := &s.Links[i]
		out.Links = append(out.Links, TraceLink{TraceID: l.Trace.String(), SpanID: l.ID.String(), Attrs: traceAttrs(l.Attrs)})
	}
	return out
}

func traceAttrs(list []span.Attr) []TraceAttr {
	types := [...]string{"text", "bool", "int", "float", "json"}
	out := make([]TraceAttr, 0, len(list))
	for _, a := range list {
		t := types[0]
		if int(a.Value.Type) < len(types) {
			t = types[a.Value.Type]
		}
		out = append(out, TraceAttr{a.Key, a.Value.Str, t})
	}
	return out
}

// traceRow is one trace in a list.
func traceRow(f *tracestore.Found) TraceRow {
	out := TraceRow{TraceID: f.ID.String(), Root: f.Root, Service: f.RootService, Start: stamp(time.Unix(0, f.Start)), Duration: float64(f.End-f.Start) / 1e9,
		Spans: f.Spans, Errors: f.Errors, Services: map[string]int{}, RID: cmp.Or(f.RID, f.RequestID)}
	for s, c := range f.Services {
		out.Services[s] = c.Spans
	}
	if f.Orphans {
		out.Flags = append(out.Flags, "incomplete", "orphans")
	}
	if f.Roots > 1 {
		out.Flags = append(out.Flags, "split")
	}
	for i := range f.Matched {
		if id := f.Matched[i].ID.String(); !slices.Contains(out.Matched, id) {
			out.Matched = append(out.Matched, id)
		}
	}
	return out
}

// traceService is what one service sends.
func traceService(s *tracestore.ServiceStats) TraceService {
	out := TraceService{Service: s.Service, Names: map[string]int{}, Missing: s.Missing, PerHour: number(s.PerHour), Bytes: number(s.Bytes), Dropped: s.Dropped}
	for _, n := range s.Names {
		out.Names[n.Name] = int(n.Count)
	}
	if s.Level > 0 {
		out.Level = &s.Level
	}
	switch {
	case s.Generation != "" && s.Level == 0:
		out.Hint = "SGLang " + s.Generation + ": without levels"
	case s.Level > 0 && !s.Sure:
		out.Hint = "the level may be higher: few requests were seen"
	case s.Dropped > 0:
		out.Hint = "raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT in its environment"
	}
	return out
}
