package timeline

import (
	"hash/maphash"
	"math"
	"slices"

	"github.com/rollscope/rollscope/internal/rollout"
)

// idSlot is what is known of one span id.
type idSlot struct {
	id            string
	first, latest int32 // nodes of the spans with that id
	open          int32 // the latest of them without an end, -1
}

// idTable maps span ids to slots. Only as much of it as a row needs is cleared for the row, so one huge
// sample does not slow down those after it.
type idTable struct {
	seed  maphash.Seed
	table []int32 // slot + 1
	slots []idSlot
}

func (t *idTable) reset(n int) {
	size := 16
	for size < 2*n {
		size *= 2
	}
	if t.table == nil {
		t.seed = maphash.MakeSeed()
	}
	t.table = resize(t.table, size)
	clear(t.table)
	clear(t.slots)
	t.slots = t.slots[:0]
}

// find returns the slot of id, nil when there is none. It is valid until the next add.
func (t *idTable) find(id string) *idSlot {
	mask := len(t.table) - 1
	for h := int(maphash.String(t.seed, id)) & mask; t.table[h] != 0; h = (h + 1) & mask {
		if s := &t.slots[t.table[h]-1]; s.id == id {
			return s
		}
	}
	return nil
}

// add returns the slot of id, made when there is none. At most the n of reset are made.
func (t *idTable) add(id string) *idSlot {
	mask := len(t.table) - 1
	h := int(maphash.String(t.seed, id)) & mask
	for ; t.table[h] != 0; h = (h + 1) & mask {
		if s := &t.slots[t.table[h]-1]; s.id == id {
			return s
		}
	}
	t.slots = append(t.slots, idSlot{id: id, first: -1, latest: -1, open: -1})
	t.table[h] = int32(len(t.slots))
	return &t.slots[len(t.slots)-1]
}

// match makes spans out of starts and ends, points and orphan ends. Of several open spans with one id
// an end closes the latest. Written parents are resolved: to the latest span before with that id, else
// to the first one after.
func (b *Builder) match(events []rollout.Event) {
	b.spans.reset(len(events))
	b.evNode = resize(b.evNode, len(events))
	parentOf := func(e *rollout.Event) int32 {
		if e.ParentID == "" {
			return -1
		}
		if s := b.spans.find(e.ParentID); s != nil {
			return s.latest
		}
		return unresolved
	}
	count := 0
	for i := range events {
		if events[i].Kind != rollout.SpanEnd {
			count++
		}
	}
	b.nodes = slices.Grow(b.nodes, count)
	for i := range events {
		e := &events[i]
		b.evNode[i] = -1
		if e.Kind == rollout.SpanEnd && e.SpanID != "" {
			if s := b.spans.find(e.SpanID); s != nil && s.open >= 0 {
				n := &b.nodes[s.open]
				b.evNode[i] = s.open
				n.endEv = int32(i)
				if !e.NonFinite {
					n.state = Closed
					if n.end = Nanos(e.TS); n.end < n.start {
						n.end = n.start
						n.flags |= NegativeSpan
					}
				}
				// The one before it that is still open, if any.
				s.open = n.same
				for s.open >= 0 && b.nodes[s.open].endEv >= 0 {
					s.open = b.nodes[s.open].same
				}
				n.same = s.open
				continue
			}
		}
		if e.NonFinite {
			b.row.Unplaced++
			continue
		}
		at := int32(len(b.nodes))
		b.evNode[i] = at
		ts := Nanos(e.TS)
		n := node{start: ts, end: ts, ev: int32(i), endEv: -1, parent: parentOf(e), pair: -1, same: -1, request: -1, class: ClassEvent, state: PointEvent}
		if ts == maxNS || ts == -maxNS {
			n.flags |= Skewed
		}
		switch {
		case e.Kind == rollout.SpanEnd:
			n.state = OrphanEnd
			n.class = b.classes.of(e.Name)
		case e.Kind == rollout.SpanStart && e.SpanID != "":
			n.state, n.span = Open, true
			n.class = b.classes.of(e.Name)
			s := b.spans.add(e.SpanID)
			if s.first < 0 {
				s.first = at
			} else {
				n.flags |= DuplicateID
				b.nodes[s.first].flags |= DuplicateID
			}
			n.same = s.open
			s.latest, s.open = at, at
		}
		b.nodes = append(b.nodes, n)
	}
	for i := range b.nodes {
		n := &b.nodes[i]
		if n.parent != unresolved {
			continue
		}
		if s := b.spans.find(events[n.ev].ParentID); s != nil {
			n.parent = s.first
		} else {
			n.parent = unknownParent
		}
	}
}

// Values of node.parent while a tree is made, beside -1 for none.
const (
	unresolved    = -2 // written, and to be looked for when all spans are known
	unknownParent = -3 // written, and nobody knows it (a trimmed trace, another process): a root
)

// never stands for the end of a span that has none.
const never = math.MaxInt32

// infer gives items without a written parent the innermost span that was open when they were written.
//
// A span that has no end is dangerous: cancelled work leaves such spans, and everything later would
// become theirs. So it can be a parent only until the nearest ancestor with an end has ended, only of
// the same attempt, and not at all in a trace whose spans name their parents: there, a span without a
// written parent is a root because its writer knew of none.
//
// A written parent that had ended, by the list and by the clock, is none: the item is a root.
func (b *Builder) infer(events []rollout.Event) {
	names := false
	for i := range b.nodes {
		if n := &b.nodes[i]; n.span && n.parent >= 0 {
			names = true
			break
		}
	}
	b.leave = resize(b.leave, len(b.nodes))
	stack := b.stack[:0]
	for i := range b.nodes {
		n := &b.nodes[i]
		if p := n.parent; p >= 0 {
			q := &b.nodes[p]
			if q.state == Closed && q.endEv < n.ev && n.start > q.end {
				n.parent = -1
				n.flags |= LeakedParent
			}
		} else if p == unknownParent {
			n.parent = -1
		} else {
			for len(stack) > 0 {
				top := stack[len(stack)-1]
				q := &b.nodes[top]
				if b.leave[top] > n.ev && (q.endEv >= 0 || events[q.ev].Attempt == events[n.ev].Attempt) {
					n.parent = top
					break
				}
				stack = stack[:len(stack)-1]
			}
		}
		b.leave[i] = never
		if !n.span {
			continue
		}
		switch {
		case n.endEv >= 0:
			b.leave[i] = n.endEv
		case n.parent >= 0 && n.parent < int32(i):
			b.leave[i] = b.leave[n.parent]
		}
		if n.endEv >= 0 || !names {
			stack = append(stack, int32(i))
		}
	}
	b.stack = stack
}

// breakCycles makes the first span of a cycle of parents a root.
func (b *Builder) breakCycles() {
	state := resize(b.place, len(b.nodes)) // 0 unknown, 1 on the current path, 2 known to end
	clear(state)
	for i := range b.nodes {
		at := int32(i)
		for at >= 0 && state[at] == 0 {
			state[at] = 1
			at = b.nodes[at].parent
		}
		first := int32(-1)
		if at >= 0 && state[at] == 1 {
			first = at
			for x := b.nodes[at].parent; x != at; x = b.nodes[x].parent {
				first = min(first, x)
			}
		}
		for at = int32(i); at >= 0 && state[at] == 1; at = b.nodes[at].parent {
			state[at] = 2
		}
		if first >= 0 {
			b.nodes[first].parent = -1
			b.nodes[first].flags |= LeakedParent
		}
	}
	b.place = state
}

// sortChildren lists children by parent, and all nodes with parents before children.
func (b *Builder) sortChildren() {
	keys := slices.Grow(b.byStart[:0], len(b.nodes))
	b.kidsAt = resize(b.kidsAt, len(b.nodes)+2)
	clear(b.kidsAt)
	sorted := true
	for i := range b.nodes {
		n := &b.nodes[i]
		k := startKey{n.start, n.end, int32(i)}
		if sorted && i > 0 && k.compare(keys[i-1]) < 0 {
			sorted = false
		}
		keys = append(keys, k)
		b.kidsAt[n.parent+2]++
	}
	if !sorted {
		slices.SortFunc(keys, startKey.compare)
	}
	b.byStart = keys
	for i := 1; i < len(b.kidsAt); i++ {
		b.kidsAt[i] += b.kidsAt[i-1]
	}
	b.kids = resize(b.kids, len(b.nodes))
	next := resize(b.place, len(b.nodes)+1)
	copy(next, b.kidsAt)
	for _, k := range keys {
		p := b.nodes[k.i].parent + 1
		b.kids[next[p]] = k.i
		next[p]++
	}
	b.place = next
	b.topo = append(slices.Grow(b.topo[:0], len(b.nodes)), b.children(-1)...)
	for at := 0; at < len(b.topo); at++ {
		b.topo = append(b.topo, b.children(b.topo[at])...)
	}
	for _, i := range b.topo {
		n := &b.nodes[i]
		n.depth = 0
		if n.parent >= 0 {
			n.depth = b.nodes[n.parent].depth + 1
		}
	}
}

// children lists the children of a node (-1: the roots) by start.
func (b *Builder) children(of int32) []int32 { return b.kids[b.kidsAt[of+1]:b.kidsAt[of+2]] }

// Names for Item.ClippedBy.
const (
	clipNone = iota
	clipRow
	clipSibling
	clipAncestor
	clipSelf
	clipChild
)

var clipNames = [...]string{clipNone: "", clipRow: "row_end", clipSibling: "next_sibling_start", clipAncestor: "ancestor_end", clipSelf: "self", clipChild: "last_child"}

// clipOpen says how far open spans are drawn: to the first of the row's end, the start of the next
// sibling, and the end of the span it is in (which may be clipped itself); but never shorter than what
// is known to have happened in it.
func (b *Builder) clipOpen() {
	rowEnd := int64(math.MinInt64)
	opens := false
	for i := range b.nodes {
		n := &b.nodes[i]
		rowEnd = max(rowEnd, n.end)
		n.hi = n.end // the last thing known of it
		n.lo = math.MaxInt64
		opens = opens || n.state == Open
	}
	if !opens {
		return
	}
	for _, i := range slices.Backward(b.topo) {
		n := &b.nodes[i]
		if n.parent >= 0 && b.nodes[n.parent].state == Open {
			p := &b.nodes[n.parent]
			p.hi = max(p.hi, n.hi)
		}
	}
	// lo holds the start of the next sibling while this runs.
	for of := int32(-1); of < int32(len(b.nodes)); of++ {
		next, current := int64(math.MaxInt64), int64(math.MaxInt64)
		for _, i := range slices.Backward(b.children(of)) {
			n := &b.nodes[i]
			if !n.span {
				continue
			}
			if n.start < current {
				next, current = current, n.start
			}
			n.lo = next
		}
	}
	for _, i := range b.topo {
		n := &b.nodes[i]
		if n.state != Open {
			continue
		}
		n.end, n.clip = rowEnd, clipRow
		if n.lo < n.end {
			n.end, n.clip = n.lo, clipSibling
		}
		if n.parent >= 0 {
			if p := &b.nodes[n.parent]; p.end > n.start && p.end < n.end {
				n.end, n.clip = p.end, clipAncestor
			}
		}
		if n.end < n.hi {
			n.end, n.clip = n.hi, clipChild
		}
		if n.end <= n.start {
			n.end, n.clip = n.start, clipSelf
		}
	}
}
