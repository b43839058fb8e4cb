package span

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is something about a trace that a person must know before trusting what it shows.
type Problem struct {
	Code    string // missing_parent, split_roots, cycle, duplicate_id, sent_twice, skew, outside_parent, negative, no_time, dropped
	Message string
	Spans   int // how many are concerned
	Node    int // the first of them, -1 when it is none
}

// Skew is how far one clock is from another, as far as calls between them show. Times are never moved by it.
type Skew struct {
	From, To string // clocks: host or service of the caller and of the called
	Calls    int    // that were compared
	// Offset is the least by which To's clock must differ from From's, in ns: positive is ahead. 0 when
	// the calls fit without.
	Offset int64
	// Consistent is false when no single offset explains all calls: then some were not waited for.
	Consistent bool
}

// clocks finds which clock timed each span and compares clocks where one called the other.
func (t *Tree) clocks() {
	ids := map[string]int32{}
	var names []string
	id := func(name string) int32 {
		n, ok := ids[name]
		if !ok {
			n = int32(len(names))
			ids[name] = n
			names = append(names, name)
		}
		return n
	}
	type pair struct{ from, to int32 }
	type bounds struct {
		lo, hi int64
		calls  int
	}
	found := map[pair]*bounds{}
	var order []pair
	for i := range t.Nodes {
		n := &t.Nodes[i]
		s := t.Of(i)
		if s == nil {
			n.clock = -1
			continue
		}
		p := n.Parent
		if name, own := clockOf(s); own || p < 0 || t.Nodes[p].clock < 0 || t.Of(p).Service != s.Service {
			n.clock = id(name)
		} else {
			n.clock = t.Nodes[p].clock
		}
		if p < 0 || t.Of(p) == nil || n.Flags&(NoTime|NegativeEnd) != 0 || t.Nodes[p].Flags&(NoTime|NegativeEnd) != 0 {
			continue
		}
		m := &t.Nodes[p]
		out := n.Start < m.Start-tolerance || n.End > m.End+tolerance
		if out {
			n.Flags |= Outside
		}
		if n.clock == m.clock {
			continue
		}
		if n.End-n.Start > m.End-m.Start+tolerance {
			continue // longer than its caller: it was not waited for, and says nothing about clocks
		}
		if out {
			n.Flags |= SkewedClock
		}
		k := pair{m.clock, n.clock}
		b := found[k]
		if b == nil {
			b = &bounds{lo: m.Start - n.Start, hi: m.End - n.End}
			found[k] = b
			order = append(order, k)
		}
		// The called must be moved by at least lo and at most hi to lie inside its caller.
		b.lo, b.hi = max(b.lo, m.Start-n.Start), min(b.hi, m.End-n.End)
		b.calls++
	}
	for _, k := range order {
		b := found[k]
		s := Skew{From: names[k.from], To: names[k.to], Calls: b.calls, Consistent: b.lo <= b.hi+tolerance}
		switch {
		case b.lo > tolerance && b.lo >= -b.hi:
			s.Offset = -b.lo
		case b.hi < -tolerance:
			s.Offset = -b.hi
		}
		t.Clocks = append(t.Clocks, s)
	}
}

// clockOf names the clock that timed a span; own is false when only its service tells.
func clockOf(s *Span) (name string, own bool) {
	for _, k := range [...]string{"host.name", "host.id", "k8s.pod.name", "service.instance.id"} {
		if v, ok := find(s.Resource, k); ok && v.Str != "" {
			return v.Str, true
		}
	}
	if v, ok := find(s.Attrs, "host_id"); ok && v.Str != "" {
		return v.Str, true
	}
	if s.Service == "" {
		return "service without a name", false
	}
	return s.Service, false
}

// problems puts what was found into words, worst first.
func (t *Tree) problems(cycles, duplicates int) {
	count := func(f Flags) (n, first int) {
		first = -1
		for i := range t.Nodes {
			if t.Nodes[i].Flags&f != 0 {
				if n++; first < 0 {
					first = i
				}
			}
		}
		return n, first
	}
	add := func(code string, n, node int, format string, args ...any) {
		if n > 0 {
			t.Problems = append(t.Problems, Problem{code, fmt.Sprintf(format, args...), n, node})
		}
	}
	n, at := count(IsMissing)
	if n > 0 {
		ids := make([]string, 0, 3)
		for i := range t.Nodes {
			if t.Nodes[i].Flags&IsMissing != 0 && len(ids) < 3 {
				ids = append(ids, t.Nodes[i].ID.String())
			}
		}
		add("missing_parent", n, at, "the trace is incomplete: %d %s named as parent (%s) came from nobody; its sender does not export, exports elsewhere, or sampled it away", n, plural(n, "span"), strings.Join(ids, ", "))
	}
	if len(t.Roots) > 1 {
		add("split_roots", len(t.Roots), t.Roots[1], "%d roots: some hop began anew instead of continuing its caller's context", len(t.Roots))
	}
	n, at = count(CycleBroken)
	add("cycle", n, at, "%d %s of parents; the span that starts first is shown as a root", cycles, plural(cycles, "circle"))
	n, at = count(DuplicateID)
	add("duplicate_id", n, at, "%d spans share an id with another: two processes may draw ids from one seed; children hang below the first", n)
	add("sent_twice", t.Repeated, -1, "%d %s came twice, word for word, and are shown once", t.Repeated, plural(t.Repeated, "span"))
	n, at = count(SkewedClock)
	for _, s := range t.Clocks {
		if s.Offset == 0 {
			continue
		}
		word, off := "ahead of", s.Offset
		if off < 0 {
			word, off = "behind", -off
		}
		if s.Consistent {
			add("skew", max(n, 1), at, "the clock of %s is at least %s %s that of %s; times are shown as they were sent", s.To, milliseconds(off), word, s.From)
		} else {
			add("outside_parent", max(n, 1), at, "spans of %s lie outside their callers of %s, and no offset of a clock explains all of them: some calls were not waited for", s.To, s.From)
		}
	}
	n, at = count(NegativeEnd)
	add("negative", n, at, "%d %s before starting; shown without length", n, plural2(n, "span ends", "spans end"))
	n, at = count(NoTime)
	add("no_time", n, at, "%d %s no start", n, plural2(n, "span has", "spans have"))
	drops := DropsOf(t.Spans)
	for _, d := range drops {
		add("dropped", int(d.Spans), -1, "%s", d.Text())
	}
}

func plural(n int, word string) string { return plural2(n, word, word+"s") }

func plural2(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func milliseconds(ns int64) string {
	return fmt.Sprintf("%.3g ms", float64(ns)/1e6)
}

// FlagNames are short words for lists of traces: incomplete, orphans, split, skewed, cycle, duplicates, dropped.
func (t *Tree) FlagNames() []string {
	var out []string
	for _, p := range t.Problems {
		switch p.Code {
		case "missing_parent":
			out = append(out, "incomplete", "orphans")
		case "split_roots":
			out = append(out, "split")
		case "skew":
			out = append(out, "skewed")
		case "cycle":
			out = append(out, "cycle")
		case "duplicate_id":
			out = append(out, "duplicates")
		case "dropped":
			out = append(out, "dropped")
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ServiceCount is how many spans of a trace a service sent.
type ServiceCount struct {
	Service       string
	Spans, Errors int
}

// Services counts the spans by service, most first.
func (t *Tree) Services() []ServiceCount {
	by := map[string]*ServiceCount{}
	for i := range t.Nodes {
		s := t.Of(i)
		if s == nil {
			continue
		}
		c := by[s.Service]
		if c == nil {
			c = &ServiceCount{Service: s.Service}
			by[s.Service] = c
		}
		c.Spans++
		if s.Status == Failed {
			c.Errors++
		}
	}
	out := make([]ServiceCount, 0, len(by))
	for _, c := range by {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b ServiceCount) int {
		return cmp.Or(cmp.Compare(b.Spans, a.Spans), cmp.Compare(a.Service, b.Service))
	})
	return out
}
