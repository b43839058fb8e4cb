package timeline

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/span"
)

// ClassOfSpan is the class of a span of a trace, which chooses its colour; name is the span's.
func ClassOfSpan(m *span.Meaning, name string) Class {
	if m.HasPhase {
		return ClassPhase + Class(m.Phase)
	}
	switch m.Class {
	case span.ClassGroup, span.ClassThread, span.ClassFrontend:
		return ClassGroup
	case span.ClassRequest:
		return ClassGenerate
	case span.ClassQueue:
		return ClassQueue
	case span.ClassPrefill:
		return ClassPrefill
	case span.ClassTransfer:
		if m.Role == "prefill" {
			return ClassPhase + Class(request.PrefillTransferQueue)
		}
		return ClassPhase + Class(request.DecodeTransfer)
	case span.ClassDecode:
		return ClassDecode
	case span.ClassStep:
		if strings.Contains(name, "prefill") {
			return ClassPrefill
		}
		return ClassDecode
	case span.ClassTool:
		return ClassTool
	case span.ClassReward:
		return ClassReward
	case span.ClassSync:
		return ClassSync
	}
	return ClassOther
}

// participant is who a row is of: a service, in a role, on a host.
type participant struct{ service, role, host string }

// label is how a participant is called: "sglang [P] @ node-a".
func (p participant) label(hosts bool) string {
	out := p.service
	if out == "" {
		out = "(service without a name)"
	}
	switch p.role {
	case "":
	case "prefill":
		out += " [P]"
	case "decode":
		out += " [D]"
	default:
		if !strings.Contains(out, p.role) {
			out += " (" + p.role + ")"
		}
	}
	if hosts && p.host != "" {
		out += " @ " + p.host
	}
	return out
}

// TraceColumns makes a timeline of a trace: a row for each participant, in the order in which they come in,
// with their spans in lanes as those of a sample. Spans are where they were sent; a span that nobody sent
// is a placeholder with the extent of its children, flagged [Derived]; events of spans are points. Of
// h what [NewColumns] keeps is kept; its dump's name should be the trace's id.
func TraceColumns(h Head, t *span.Tree) *Columns {
	c := NewColumns(h)
	of, list := participants(t)
	services := map[participant]bool{} // by service and role: those on several hosts name the host
	several := map[participant]bool{}
	for _, p := range list {
		k := participant{p.service, p.role, ""}
		several[k] = services[k]
		services[k] = true
	}
	b := NewBuilder(Options{})
	w := traceRows{t: t, b: b, of: of, at: make([]int32, len(t.Nodes))}
	var marks Marks
	for i, p := range list {
		row, critical := w.row(i)
		row.Sample.Source = p.service
		row.Label = p.label(several[participant{p.service, p.role, ""}])
		c.Add(row)
		if len(critical) > 0 {
			marks.Items = append(marks.Items, MarkedRow{i, critical})
		}
	}
	c.Mark(marks)
	return c
}

// participants tells whose row each node belongs to.
func participants(t *span.Tree) (of []int32, list []participant) {
	of = make([]int32, len(t.Nodes))
	known := make([]participant, len(t.Nodes))
	ids := map[participant]int32{}
	for i := range t.Nodes {
		n := &t.Nodes[i]
		s := t.Of(i)
		if s == nil {
			of[i] = -1
			continue
		}
		p := participant{service: s.Service, role: t.Meaning(i).Role}
		for _, k := range [...]string{"service.instance.id", "host.name", "k8s.pod.name"} {
			for _, a := range s.Resource {
				if a.Key == k && p.host == "" {
					p.host = a.Value.Str
				}
			}
		}
		if up := n.Parent; up >= 0 && known[up].service == p.service && t.Of(up) != nil {
			if p.role == "" {
				p.role = known[up].role
			}
			if p.host == "" {
				p.host = known[up].host
			}
		}
		known[i] = p
		id, ok := ids[p]
		if !ok {
			id = int32(len(list))
			ids[p] = id
			list = append(list, p)
		}
		of[i] = id
	}
	// A placeholder stands with the first of its children.
	for i := range t.Nodes {
		if of[i] < 0 {
			of[i] = 0
			for j := i + 1; j < i+t.Nodes[i].Size; j++ {
				if of[j] >= 0 {
					of[i] = of[j]
					break
				}
			}
		}
	}
	return of, list
}

// traceRows makes the rows of one trace.
type traceRows struct {
	t  *span.Tree
	b  *Builder
	of []int32
	at []int32 // place of a tree's node among the builder's, of the row in the making
}

// traceFlags are the flags that a tree's nodes and items both have.
var traceFlags = [...]struct {
	theirs span.Flags
	ours   Flags
}{{span.DuplicateID, DuplicateID}, {span.CycleBroken, LeakedParent}, {span.NegativeEnd, NegativeSpan}, {span.SkewedClock, Skewed}}

// maxPoints bounds the events of spans that one row shows.
const maxPoints = 100_000

// row makes that of one participant; critical are the places of items on the critical path.
func (w *traceRows) row(who int) (row *Row, critical []int) {
	b, t := w.b, w.t
	b.nodes, b.segs = b.nodes[:0], b.segs[:0]
	type source struct{ node, event int32 } // event -1: the span itself
	var from []source
	row = &Row{Sample: &rollout.Sample{Ordinal: who, Group: -1, Member: -1, Part: -1}}
	failed := false
	for i := range t.Nodes {
		n := &t.Nodes[i]
		w.at[i] = -1
		if int(w.of[i]) != who {
			continue
		}
		s := t.Of(i)
		if n.Flags&span.NoTime != 0 || s == nil && n.Start == 0 {
			row.Unplaced++
			continue
		}
		x := node{start: n.Start, end: max(n.Start, n.End), ev: -1, endEv: -1, parent: -1, pair: -1, same: -1, request: -1, span: true, class: ClassGroup}
		if n.Parent >= 0 {
			x.parent = w.at[n.Parent] // -1 in another row
			if int(w.of[n.Parent]) != who {
				x.parent = -1
			}
		}
		if s == nil {
			x.flags |= Derived
		} else {
			x.class = ClassOfSpan(t.Meaning(i), s.Name)
			if s.Status == span.Failed {
				x.flags |= Error
				failed = true
			}
		}
		for _, f := range traceFlags {
			if n.Flags&f.theirs != 0 {
				x.flags |= f.ours
			}
		}
		w.at[i] = int32(len(b.nodes))
		b.nodes = append(b.nodes, x)
		from = append(from, source{int32(i), -1})
		if s == nil {
			continue
		}
		for e := range s.Events {
			if row.Points >= maxPoints {
				break
			}
			at := s.Events[e].Time
			if at == 0 {
				row.Unplaced++
				continue
			}
			row.Points++
			b.nodes = append(b.nodes, node{start: at, end: at, ev: -1, endEv: -1, parent: w.at[i], pair: -1, same: -1, request: -1, class: ClassEvent, state: PointEvent})
			from = append(from, source{int32(i), int32(e)})
		}
	}
	row.Points = 0
	s := row.Sample
	s.Trace.Present, s.Trace.SharedWith = true, -1
	if failed {
		s.StatusText = "error"
	}
	if len(t.Spans) > 0 {
		s.Trace.ID = t.Spans[0].Trace.String()
	}
	if len(b.nodes) == 0 {
		row.WhyEmpty = "no span with a time"
		return row, nil
	}
	b.sortChildren()
	b.layout()
	b.finishTrace(row)
	for place, k := range b.keys {
		it := &row.Items[place]
		src := from[k.i]
		n := &t.Nodes[src.node]
		sp := t.Of(int(src.node))
		if src.event >= 0 {
			it.Name, it.Attrs = sp.Events[src.event].Name, attrsJSON(sp.Events[src.event].Attrs)
			continue
		}
		it.Name, it.SpanID = t.Name(int(src.node)), n.ID.String()
		if sp != nil {
			it.Attrs = spanJSON(sp)
		}
		if n.Flags&span.IsCritical != 0 {
			critical = append(critical, place)
		}
	}
	return row, critical
}

// finishTrace writes the items of nodes that come from no list of events, in their order.
func (b *Builder) finishTrace(r *Row) {
	keys := slices.Grow(b.keys[:0], len(b.nodes))
	for i := range b.nodes {
		n := &b.nodes[i]
		keys = append(keys, sortKey{n.lane, startKey{n.start, n.end, int32(i)}})
	}
	slices.SortFunc(keys, sortKey.order)
	b.keys = keys
	b.place = resize(b.place, len(b.nodes))
	for at, k := range keys {
		b.place[k.i] = int32(at)
	}
	r.Start, r.End = math.MaxInt64, math.MinInt64
	for _, k := range keys {
		n := &b.nodes[k.i]
		it := Item{Class: n.class, State: n.state, Flags: n.flags, Start: n.start, End: n.end, Lane: int(n.lane), Depth: int(n.depth), Parent: -1, Request: -1}
		if n.parent >= 0 {
			it.Parent = int(b.place[n.parent])
		}
		r.Start, r.End = min(r.Start, n.start), max(r.End, n.end)
		r.Lanes = max(r.Lanes, int(n.lane)+1)
		if n.state == PointEvent {
			r.Points++
		} else {
			r.Spans++
		}
		r.Items = append(r.Items, it)
	}
	r.Attempts = 1
}

// spanJSON is what the panel shows of a span beside its times: attributes, and what OTLP has fields for.
func spanJSON(s *span.Span) []byte {
	b := []byte{'{'}
	add := func(key, value string) {
		if value == "" {
			return
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = appendQuoted(b, []byte(clean(key, maxDictEntry)))
		b = append(b, ':')
		b = appendQuoted(b, []byte(clean(value, maxString)))
	}
	add("span_id", s.ID.String())
	add("parent_span_id", s.Parent.String())
	add("kind", s.Kind.String())
	add("status", s.Status.String())
	add("status_message", s.StatusMessage)
	add("scope", s.ScopeName)
	b = appendSpanAttrs(b, s.Attrs)
	for _, l := range s.Links {
		add("link", l.Trace.String()+" "+l.ID.String())
	}
	return append(b, '}')
}

func attrsJSON(list []span.Attr) []byte {
	if len(list) == 0 {
		return nil
	}
	return append(appendSpanAttrs([]byte{'{'}, list), '}')
}

// appendSpanAttrs appends the entries of attributes to an object that is open; they are cut as those of
// samples are.
func appendSpanAttrs(b []byte, list []span.Attr) []byte {
	from := len(b)
	for _, a := range list {
		if len(b)-from > maxAttrs {
			if b[len(b)-1] != '{' {
				b = append(b, ',')
			}
			return append(b, `"…":"more was left out"`...)
		}
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = appendQuoted(b, []byte(clean(a.Key, maxDictEntry)))
		b = append(b, ':')
		v := a.Value
		switch {
		case v.Type == span.Bool && (v.Str == "true" || v.Str == "false"):
			b = append(b, v.Str...)
		case (v.Type == span.Int || v.Type == span.Float) && len(v.Str) < 16 && json.Valid([]byte(v.Str)):
			b = append(b, v.Str...)
		case v.Type == span.JSON && len(v.Str) <= maxString && json.Valid([]byte(v.Str)):
			b = append(b, v.Str...)
		default:
			b = appendQuoted(b, []byte(clean(v.Str, maxString)))
		}
	}
	return b
}
