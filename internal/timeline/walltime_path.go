package timeline

import (
	"cmp"
	"slices"
	"strings"
)

// PathStep is a stretch of the critical path.
type PathStep struct {
	Item  int    `json:"item"` // place in Row.Items, -1 when nothing ran
	Name  string `json:"name"`
	Class Class  `json:"class"`
	// Start and End are ns since 1970.
	Start int64 `json:"start_ns,string"`
	End   int64 `json:"end_ns,string"`
}

// maxPath bounds the steps of a path that are kept.
const maxPath = 10_000

// pathFinder holds the memory of CriticalPath.
type pathFinder struct {
	pieces []piece
	byEnd  []int32 // items by parent, then by end, latest first
	at     []int32 // where those of item i begin is at[i+1]
	levels []pathLevel
	steps  []PathStep
}

// pathLevel is a span on the path, being walked back.
type pathLevel struct {
	item int32
	next int32 // in byEnd: the first child not looked at
	cur  int64 // walked back to here
	back bool  // it was walked back from its end
	from int64 // where it begins, within what it is in
}

// pathSlack is how much two spans that follow one another may overlap.
const pathSlack = 1_000_000

// CriticalPath is what a row waited for, from its start to its end: at each instant the innermost span
// that the rest depended on. It is found backwards: from the end of a span, the child that ended last
// is on the path, before its start the child that ended last before that, and so on within each; what
// lies between is the span's own. Steps follow one another without gaps. Of two spans that ran at once
// the one that ended earlier is on the path only before the other's start. Phases stand as [P] and [D]
// items where the row has those.
//
// The path is appended to dst; at most 10,000 steps, the latest ones.
func CriticalPath(dst []PathStep, r *Row) []PathStep {
	var f pathFinder
	return append(dst, f.find(r, interval{r.Start, r.End})...)
}

func (f *pathFinder) find(r *Row, own interval) []PathStep {
	items := r.Items
	onPath := func(it *Item) bool {
		span := it.State == Closed || it.State == Open
		phase := it.Class == ClassPrefill || it.Class == ClassDecode || it.Class >= ClassPhase
		return span && (it.Flags&Virtual != 0 || !phase || it.Request < 0)
	}
	f.at = resize(f.at, len(items)+2)
	clear(f.at)
	f.byEnd = f.byEnd[:0]
	for i := range items {
		if onPath(&items[i]) {
			f.byEnd = append(f.byEnd, int32(i))
			f.at[items[i].Parent+2]++
		}
	}
	for i := 1; i < len(f.at); i++ {
		f.at[i] += f.at[i-1]
	}
	slices.SortFunc(f.byEnd, func(x, y int32) int {
		a, b := &items[x], &items[y]
		if c := cmp.Compare(a.Parent, b.Parent); c != 0 {
			return c
		}
		if c := cmp.Compare(b.End, a.End); c != 0 {
			return c
		}
		if c := cmp.Compare(a.Start, b.Start); c != 0 {
			return c
		}
		return cmp.Compare(x, y)
	})
	f.steps = f.steps[:0]
	step := func(item int32, start, end int64) {
		start, end = max(start, own.start), min(end, own.end)
		if end <= start || len(f.steps) >= maxPath {
			return
		}
		if n := len(f.steps); n > 0 && f.steps[n-1].Item == int(item) && f.steps[n-1].Start == end {
			f.steps[n-1].Start = start
			return
		}
		s := PathStep{Item: int(item), Start: start, End: end, Class: ClassWait}
		if item >= 0 {
			s.Name, s.Class = items[item].Name, items[item].Class
		}
		f.steps = append(f.steps, s)
	}
	f.levels = append(f.levels[:0], pathLevel{item: -1, next: f.at[0], cur: own.end, from: own.start})
	for len(f.levels) > 0 {
		l := &f.levels[len(f.levels)-1]
		floor := l.from
		last := f.at[l.item+2]
		for l.next < last && l.back && items[f.byEnd[l.next]].End > l.cur+pathSlack {
			l.next++
		}
		if l.next >= last || l.cur <= floor || items[f.byEnd[l.next]].End <= floor {
			// What is left is the span's own.
			step(l.item, floor, l.cur)
			f.levels = f.levels[:len(f.levels)-1]
			if n := len(f.levels); n > 0 {
				up := &f.levels[n-1]
				up.cur, up.back = min(up.cur, floor), true
			}
			continue
		}
		child := f.byEnd[l.next]
		l.next++
		end := min(items[child].End, l.cur)
		if items[child].Start >= end {
			continue
		}
		step(l.item, end, l.cur)
		l.cur = end
		f.levels = append(f.levels, pathLevel{item: child, next: f.at[child+1], cur: end, from: max(floor, items[child].Start)})
	}
	slices.Reverse(f.steps)
	return f.steps
}

// lastOne keeps the path of the row that ends last.
func (w *WallTime) lastOne(r *Row, own interval) {
	if w.criticalRow >= 0 && own.end <= w.criticalEnd {
		return
	}
	w.criticalRow, w.criticalEnd = r.Sample.Ordinal, own.end
	w.critical = append(w.critical[:0], w.path.find(r, own)...)
	names := map[string]string{}
	for i := range w.critical {
		s := &w.critical[i]
		n, ok := names[s.Name]
		if !ok {
			n = strings.Clone(s.Name)
			names[n] = n
		}
		s.Name = n
	}
}
