package span

import (
	"cmp"
	"math"
	"slices"
)

// Tree is the spans of one trace in order, as they were sent: nothing is moved, cut or invented, except
// placeholders for spans that children name and nobody sent. [NewTree] makes it, and it does not change.
type Tree struct {
	// Nodes are the spans depth first; children follow their parent by start, then longest first.
	Nodes []Node
	Spans []Span // as they were handed in; Node.Span is an index of it
	Roots []int  // indices of nodes without a parent, by start

	Start, End int64 // first start and last end of real spans, 0 when no span has a time
	Missing    int   // placeholders
	Repeated   int   // spans that came twice word for word and are left out
	Clocks     []Skew
	Problems   []Problem
	Critical   []Segment // the critical path, by time

	// Engine names the engine that sent a span, "" when it is not known; nil asks nobody. [Observe] uses it.
	Engine func(*Span) string

	means []Meaning // of names, by Node.mean
}

// Node is a span in its place.
type Node struct {
	Span       int // index in Tree.Spans, -1 for a placeholder
	Parent     int // index in Tree.Nodes, -1
	Depth      int
	Size       int // nodes of its subtree, itself included: the next sibling stands at its own index + Size
	ID         ID
	Start, End int64 // ns since 1970; of a placeholder the extent of its children
	Self       int64 // ns in which no child ran
	Flags      Flags
	mean       int32
	clock      int32
}

// Flags of a node.
type Flags uint8

// Flags.
const (
	IsMissing   Flags = 1 << iota // a placeholder: children name it, nobody sent it
	IsCritical                    // on the critical path
	DuplicateID                   // another span of the trace has the same id and is not the same
	CycleBroken                   // its parents lead back to itself; shown as a root
	NegativeEnd                   // ends before it starts
	Outside                       // lies outside its parent by more than a few ms; fine when it was not waited for
	SkewedClock                   // outside its parent, and the two were timed by different clocks
	NoTime                        // has no start
)

var flagNames = [...]string{"missing", "critical", "duplicate_id", "cycle", "negative", "outside_parent", "skewed", "no_time"}

// Names are the words for the flags that are set.
func (f Flags) Names() []string {
	var out []string
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// Segment is a stretch of time in which a span itself, and no child of it, kept its trace from ending.
type Segment struct {
	Node       int
	Start, End int64
}

// tolerance is how far outside its parent a span may lie before that is worth a word: SGLang measures the
// offset of its clock anew for each request, and processes of one host differ by less than this.
const tolerance = 2_000_000 // ns

// Meaning is what the name of a node says; of a placeholder it is empty.
func (t *Tree) Meaning(node int) *Meaning { return &t.means[t.Nodes[node].mean] }

// Of is the span of a node, nil for a placeholder.
func (t *Tree) Of(node int) *Span {
	if i := t.Nodes[node].Span; i >= 0 {
		return &t.Spans[i]
	}
	return nil
}

// Name is the name of a node's span, or "missing parent" and the id that its children name.
func (t *Tree) Name(node int) string {
	if s := t.Of(node); s != nil {
		return s.Name
	}
	return "missing parent " + t.Nodes[node].ID.String()
}

// Incomplete tells that spans are known to be missing.
func (t *Tree) Incomplete() bool { return t.Missing > 0 }

// key is a span's identity; a tree may be made of several traces, such as the halves of a PD pair.
type key struct {
	trace TraceID
	id    ID
}

// NewTree puts the spans of a trace in order. It keeps spans, takes time and memory in proportion to
// them (about 100 bytes each) and does not recurse, however deep they nest.
func NewTree(spans []Span) *Tree {
	t := &Tree{Spans: spans}
	b := treeBuilder{t: t, names: map[string]int32{"": 0}}
	t.means = append(t.means, Meaning{})
	b.index()
	b.parents()
	b.cycles()
	b.order()
	t.times()
	t.clocks()
	t.critical()
	t.problems(b.cycleCount, b.duplicates)
	return t
}

type treeBuilder struct {
	t      *Tree
	names  map[string]int32
	sorted []int32 // spans by start, repeated ones left out
	byID   map[key]int32
	parent []int32 // of a span: a span, -1, or -2-i for the placeholder i
	dup    []bool
	cycle  []bool
	gaps   []key

	cycleCount, duplicates int
}

// index sorts the spans and finds those with equal ids.
func (b *treeBuilder) index() {
	s := b.t.Spans
	b.sorted = make([]int32, len(s))
	for i := range s {
		b.sorted[i] = int32(i)
	}
	slices.SortFunc(b.sorted, func(x, y int32) int {
		p, q := &s[x], &s[y]
		if p.Start != q.Start {
			return cmp.Compare(p.Start, q.Start)
		}
		return cmp.Or(cmp.Compare(p.Start, q.Start), cmp.Compare(q.End, p.End), slices.Compare(p.Trace[:], q.Trace[:]), slices.Compare(p.ID[:], q.ID[:]), cmp.Compare(p.Name, q.Name), cmp.Compare(x, y))
	})
	b.byID = make(map[key]int32, len(s))
	b.dup = make([]bool, len(s))
	kept := b.sorted[:0]
	for _, i := range b.sorted {
		k := key{s[i].Trace, s[i].ID}
		first, ok := b.byID[k]
		if !ok {
			b.byID[k] = i
		} else if same(&s[first], &s[i]) {
			b.t.Repeated++
			continue
		} else {
			b.dup[first], b.dup[i] = true, true
			b.duplicates++
		}
		kept = append(kept, i)
	}
	b.sorted = kept
}

// same tells spans that came twice, because an exporter tried again.
func same(a, b *Span) bool {
	return a.Parent == b.Parent && a.Start == b.Start && a.End == b.End && a.Name == b.Name && a.Service == b.Service && len(a.Attrs) == len(b.Attrs)
}

func (b *treeBuilder) parents() {
	s := b.t.Spans
	b.parent = make([]int32, len(s))
	missing := map[key]int32{}
	for _, i := range b.sorted {
		if b.parent[i] = -1; s[i].Parent.IsZero() {
			continue
		}
		k := key{s[i].Trace, s[i].Parent}
		if p, ok := b.byID[k]; ok {
			b.parent[i] = p
			continue
		}
		at, ok := missing[k]
		if !ok {
			at = int32(len(b.gaps))
			missing[k] = at
			b.gaps = append(b.gaps, k)
		}
		b.parent[i] = -2 - at
	}
}

// cycles makes a root of the first span of each circle of parents.
func (b *treeBuilder) cycles() {
	b.cycle = make([]bool, len(b.t.Spans))
	state := make([]uint8, len(b.t.Spans)) // 0 new, 1 on the way, 2 known to end
	var way []int32
	for _, i := range b.sorted {
		way = way[:0]
		at := i
		for at >= 0 && state[at] == 0 {
			state[at] = 1
			way = append(way, at)
			at = b.parent[at]
		}
		if at >= 0 && state[at] == 1 {
			// at is in the circle; of its spans the one that starts first becomes the root.
			first := at
			for p := b.parent[at]; p != at; p = b.parent[p] {
				if x, y := &b.t.Spans[p], &b.t.Spans[first]; x.Start < y.Start || x.Start == y.Start && p < first {
					first = p
				}
			}
			b.parent[first], b.cycle[first] = -1, true
			b.cycleCount++
		}
		for _, w := range way {
			state[w] = 2
		}
	}
}

// order lays the nodes out depth first.
func (b *treeBuilder) order() {
	t := b.t
	n := len(t.Spans) + len(b.gaps)
	// Lists of children: heads and tails by span, then by placeholder, then the roots.
	first, last, next := make([]int32, n+1), make([]int32, n+1), make([]int32, n)
	for i := range first {
		first[i] = -1
	}
	add := func(list int, item int32) {
		next[item] = -1
		if first[list] < 0 {
			first[list] = item
		} else {
			next[last[list]] = item
		}
		last[list] = item
	}
	hung := make([]bool, len(b.gaps))
	for _, i := range b.sorted {
		switch p := b.parent[i]; {
		case p >= 0:
			add(int(p), i)
		case p == -1:
			add(n, i)
		default:
			gap := int(-2 - p)
			if !hung[gap] { // by the start of its first child, among the roots
				hung[gap] = true
				add(n, int32(len(t.Spans)+gap))
			}
			add(len(t.Spans)+gap, i)
		}
	}
	t.Nodes = make([]Node, 0, len(b.sorted)+len(b.gaps))
	t.Missing = len(b.gaps)
	type open struct{ item, node int32 }
	var stack []open
	for root := first[n]; root >= 0; root = next[root] {
		t.Roots = append(t.Roots, len(t.Nodes))
		item, parent := root, int32(-1)
		for {
			at := int32(len(t.Nodes))
			t.Nodes = append(t.Nodes, b.node(item, parent))
			if c := first[item]; c >= 0 {
				stack = append(stack, open{item, at})
				item, parent = c, at
				continue
			}
			t.Nodes[at].Size = 1
			for len(stack) > 0 && next[item] < 0 {
				top := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				t.Nodes[top.node].Size = len(t.Nodes) - int(top.node)
				item, parent = top.item, int32(t.Nodes[top.node].Parent)
			}
			if len(stack) == 0 {
				break
			}
			item = next[item]
		}
	}
}

// node makes the node of a span, or of a placeholder.
func (b *treeBuilder) node(item, parent int32) Node {
	t := b.t
	x := Node{Span: int(item), Parent: int(parent)}
	if parent >= 0 {
		x.Depth = t.Nodes[parent].Depth + 1
	}
	if int(item) >= len(t.Spans) {
		x.Span, x.ID, x.Flags = -1, b.gaps[int(item)-len(t.Spans)].id, IsMissing
		return x
	}
	s := &t.Spans[item]
	x.ID, x.Start, x.End = s.ID, s.Start, s.End
	if s.Start == 0 {
		x.Flags |= NoTime
	}
	if s.End < s.Start {
		x.Flags |= NegativeEnd
		x.End = s.Start
	}
	if b.dup[item] {
		x.Flags |= DuplicateID
	}
	if b.cycle[item] {
		x.Flags |= CycleBroken
	}
	m, ok := b.names[s.Name]
	if !ok {
		m = int32(len(t.means))
		t.means = append(t.means, Explain(s.Name))
		b.names[s.Name] = m
	}
	x.mean = m
	return x
}

// times finds the extent of placeholders and of the trace, and what each span did itself.
func (t *Tree) times() {
	// Children stand behind their parents, so going backwards sees them first.
	for i := len(t.Nodes) - 1; i >= 0; i-- {
		n := &t.Nodes[i]
		if n.Flags&NoTime != 0 {
			continue
		}
		if p := n.Parent; p >= 0 && t.Nodes[p].Span < 0 && n.Start > 0 {
			m := &t.Nodes[p]
			if m.Start == 0 || n.Start < m.Start {
				m.Start = n.Start
			}
			m.End = max(m.End, n.End)
		}
		if n.Span >= 0 && n.Start > 0 {
			if t.Start == 0 || n.Start < t.Start {
				t.Start = n.Start
			}
			t.End = max(t.End, n.End)
		}
	}
	for i := range t.Nodes {
		n := &t.Nodes[i]
		if n.Flags&NoTime != 0 {
			continue
		}
		n.Self = n.End - n.Start
		covered := n.Start
		for c := i + 1; c < i+n.Size; c += t.Nodes[c].Size {
			k := &t.Nodes[c]
			from, to := max(k.Start, covered), min(k.End, n.End)
			if k.Flags&NoTime == 0 && to > from {
				n.Self -= to - from
				covered = to
			}
		}
	}
}

// critical walks back from the end of the trace: at each moment the child that ended last is what its
// parent waited for. Children outside their parents' times are passed over.
func (t *Tree) critical() {
	root := -1
	for _, r := range t.Roots {
		if n := &t.Nodes[r]; n.Start > 0 && (root < 0 || n.End-n.Start > t.Nodes[root].End-t.Nodes[root].Start) {
			root = r
		}
	}
	if root < 0 {
		return
	}
	type frame struct {
		node     int
		from, to int64 // the stretch that is the node's turn
		cursor   int64 // what is before it is not explained yet
		children []int32
	}
	enter := func(node int, from, to int64) frame {
		t.Nodes[node].Flags |= IsCritical
		f := frame{node: node, from: from, to: to, cursor: to}
		n := &t.Nodes[node]
		for c := node + 1; c < node+n.Size; c += t.Nodes[c].Size {
			k := &t.Nodes[c]
			if k.Start == 0 || k.End <= from || k.Start >= to || k.End <= k.Start {
				continue
			}
			if k.End > n.End+tolerance && k.Flags&SkewedClock == 0 {
				continue // it outlives its parent by the same clock: nobody waited for it
			}
			f.children = append(f.children, int32(c))
		}
		slices.SortFunc(f.children, func(a, b int32) int {
			return cmp.Or(cmp.Compare(t.Nodes[b].End, t.Nodes[a].End), cmp.Compare(t.Nodes[a].Start, t.Nodes[b].Start), cmp.Compare(a, b))
		})
		return f
	}
	stack := []frame{enter(root, t.Nodes[root].Start, t.Nodes[root].End)}
	for len(stack) > 0 {
		f := &stack[len(stack)-1]
		if len(f.children) == 0 {
			if f.cursor > f.from {
				t.Critical = append(t.Critical, Segment{f.node, f.from, f.cursor})
			}
			stack = stack[:len(stack)-1]
			continue
		}
		c := int(f.children[0])
		f.children = f.children[1:]
		k := &t.Nodes[c]
		from, to := max(k.Start, f.from), k.End
		if to > f.cursor {
			// What still runs while a later child does was not waited for; what outlives the whole node is cut.
			if k.Start >= f.cursor || f.cursor < f.to && to-f.cursor > tolerance {
				continue
			}
			to = f.cursor
		}
		if to <= from {
			continue
		}
		if f.cursor > to {
			t.Critical = append(t.Critical, Segment{f.node, to, f.cursor})
		}
		f.cursor = from
		stack = append(stack, enter(c, from, to))
	}
	slices.Reverse(t.Critical)
}

// CriticalOf adds the critical path up by node: ns by index of a node.
func (t *Tree) CriticalOf() map[int]int64 {
	out := map[int]int64{}
	for _, s := range t.Critical {
		out[s.Node] += s.End - s.Start
	}
	return out
}

// Duration is that of the trace in ns: from its first start to its last end.
func (t *Tree) Duration() int64 {
	if t.End < t.Start || t.Start == 0 {
		return 0
	}
	return min(t.End-t.Start, math.MaxInt64)
}

// Children calls fn with the children of a node, in order.
func (t *Tree) Children(node int, fn func(child int)) {
	for c := node + 1; c < node+t.Nodes[node].Size; c += t.Nodes[c].Size {
		fn(c)
	}
}
