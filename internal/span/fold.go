package span

import (
	"math"
	"slices"
)

// Row is a line of a trace as it is shown: a node, or many siblings of one name folded into one.
type Row struct {
	Node   int // index in Tree.Nodes; of a fold its first
	Parent int // index of a row, -1
	Depth  int
	Fold   *Fold // nil for a single node
}

// Fold is many spans of one name below one parent. Durations are ns. Start and End are the extent, so that
// the phase that they make up is where it was.
type Fold struct {
	Name                string
	Nodes               []int // all of them, in order
	Count               int
	Sum, P50, P99, Max  int64
	Start, End          int64
	Hidden              int // spans below them, which are not shown
	Critical            bool
	SumCritical, Errors int64 // ns on the critical path; failed ones are never folded, this counts those below
}

// DefaultFold is from how many equal siblings on they are folded.
const DefaultFold = 8

// FoldSteps is the same for passes (decode_loop and the like), which come once a token.
const FoldSteps = 3

// Rows are the nodes in order, with siblings of one name folded into a row when there are more than
// limit (FoldSteps of passes); limit 0 is [DefaultFold], a negative one folds nothing. Spans that failed,
// and those with events other than schedule, stay by themselves: they are what one looks for.
func (t *Tree) Rows(limit int) []Row {
	if limit == 0 {
		limit = DefaultFold
	}
	rows := make([]Row, 0, min(len(t.Nodes), 4096))
	rowOf := make([]int32, len(t.Nodes)) // row of a node, -1 when it is folded away
	folds := map[int]*Fold{}             // by first node
	var critical map[int]int64
	if limit > 0 {
		critical = t.CriticalOf()
		for i := range t.Nodes {
			t.foldChildren(i, limit, folds, critical)
		}
		t.foldRoots(limit, folds, critical)
	}
	hidden := make([]bool, len(t.Nodes))
	for _, f := range folds {
		for k, n := range f.Nodes {
			for j := n; j < n+t.Nodes[n].Size; j++ {
				hidden[j] = hidden[j] || k > 0 || j > n
			}
		}
	}
	for i := range t.Nodes {
		rowOf[i] = -1
		if hidden[i] {
			continue
		}
		n := &t.Nodes[i]
		r := Row{Node: i, Parent: -1, Depth: n.Depth, Fold: folds[i]}
		if n.Parent >= 0 {
			r.Parent = int(rowOf[n.Parent])
		}
		rowOf[i] = int32(len(rows))
		rows = append(rows, r)
	}
	return rows
}

func (t *Tree) foldChildren(node, limit int, folds map[int]*Fold, critical map[int]int64) {
	children := 0
	for c := node + 1; c < node+t.Nodes[node].Size && children <= FoldSteps; c += t.Nodes[c].Size {
		children++
	}
	if children <= FoldSteps {
		return
	}
	by := map[int32][]int{}
	t.Children(node, func(c int) { t.foldable(c, by) })
	t.makeFolds(by, limit, folds, critical)
}

func (t *Tree) foldRoots(limit int, folds map[int]*Fold, critical map[int]int64) {
	by := map[int32][]int{}
	for _, r := range t.Roots {
		t.foldable(r, by)
	}
	t.makeFolds(by, limit, folds, critical)
}

func (t *Tree) foldable(c int, by map[int32][]int) {
	s := t.Of(c)
	if s == nil || s.Status == Failed || t.Nodes[c].Flags&(NoTime|NegativeEnd|DuplicateID|CycleBroken) != 0 {
		return
	}
	for i := range s.Events {
		if s.Events[i].Name != "schedule" {
			return
		}
	}
	by[t.Nodes[c].mean] = append(by[t.Nodes[c].mean], c)
}

func (t *Tree) makeFolds(by map[int32][]int, limit int, folds map[int]*Fold, critical map[int]int64) {
	for mean, nodes := range by {
		most := limit
		if t.means[mean].Class == ClassStep {
			most = min(most, FoldSteps)
		}
		if len(nodes) <= most {
			continue
		}
		f := &Fold{Name: t.Name(nodes[0]), Nodes: nodes, Count: len(nodes), Start: math.MaxInt64}
		durations := make([]int64, len(nodes))
		for i, n := range nodes {
			x := &t.Nodes[n]
			d := x.End - x.Start
			durations[i] = d
			f.Sum += d
			f.Start, f.End = min(f.Start, x.Start), max(f.End, x.End)
			f.Hidden += x.Size - 1
			for j := n; j < n+x.Size; j++ {
				f.SumCritical += critical[j]
				f.Critical = f.Critical || t.Nodes[j].Flags&IsCritical != 0
				if s := t.Of(j); s != nil && s.Status == Failed {
					f.Errors++
				}
			}
		}
		slices.Sort(durations)
		f.P50, f.P99, f.Max = quantile(durations, 0.5), quantile(durations, 0.99), durations[len(durations)-1]
		folds[nodes[0]] = f
	}
}

// quantile is by nearest rank: a duration that some span really had.
func quantile(sorted []int64, q float64) int64 {
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[max(i, 0)]
}
