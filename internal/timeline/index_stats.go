package timeline

import (
	"cmp"
	"slices"
	"sort"

	"github.com/rollscope/rollscope/internal/rollout"
)

// Stats are the statistics of a window; see "Statistics" in FORMAT.md.
type Stats struct {
	Names []NameStats    `json:"names"`
	Rows  map[string]int `json:"rows"`
}

// NameStats are those of one span name. Sum and what follows are seconds, null when N is 0.
type NameStats struct {
	Name   string   `json:"name"`
	N      int      `json:"n"`
	Open   int      `json:"open"`
	Points int      `json:"points"`
	Merged int      `json:"merged"`
	Sum    *float64 `json:"sum"`
	P50    *float64 `json:"p50"`
	P99    *float64 `json:"p99"`
	Max    *float64 `json:"max"`
}

// Stats counts what q's rows do between t0 and t1 (units).
func (ix *Index) Stats(q Query, t0, t1 int64) (*Stats, error) {
	order, err := ix.Order(q)
	if err != nil {
		return nil, err
	}
	type tally struct {
		n, open, points, merged int
		sum, most               int64
		from                    int
	}
	names := make([]tally, len(ix.head.Dicts.Name))
	visit := func(fn func(i int)) {
		for _, r := range order {
			if ix.why[r] != 0 {
				continue
			}
			for i := ix.firstItem[r]; i < ix.firstItem[r+1]; i++ {
				if s := ix.itemStart[i]; s > t1 || s+ix.itemDur[i] < t0 || q.Attempt.OK && int64(ix.itemAttempt[i]) != q.Attempt.N {
					continue
				}
				fn(i)
			}
		}
	}
	visit(func(i int) {
		t := &names[ix.itemName[i]]
		switch {
		case ix.itemFlags[i]&ItemMerged != 0:
			t.merged += int(ix.itemN[i])
		case State(ix.itemState[i]) == Closed:
			t.n++
			t.sum += ix.itemDur[i]
			t.most = max(t.most, ix.itemDur[i])
		case State(ix.itemState[i]) == Open:
			t.open++
		default:
			t.points++
		}
	})
	total := 0
	for i := range names {
		names[i].from = total
		total += names[i].n
	}
	durs := make([]int64, total)
	fill := make([]int, len(names))
	visit(func(i int) {
		if State(ix.itemState[i]) == Closed && ix.itemFlags[i]&ItemMerged == 0 {
			n := ix.itemName[i]
			durs[names[n].from+fill[n]] = ix.itemDur[i]
			fill[n]++
		}
	})
	out := &Stats{Names: []NameStats{}, Rows: map[string]int{}}
	by := make([]int, 0, len(names))
	for i := range names {
		if t := &names[i]; t.n+t.open+t.points+t.merged > 0 {
			by = append(by, i)
		}
	}
	slices.SortStableFunc(by, func(a, b int) int { return cmp.Compare(names[b].sum, names[a].sum) })
	for _, i := range by {
		t := &names[i]
		s := NameStats{Name: ix.head.Dicts.Name[i], N: t.n, Open: t.open, Points: t.points, Merged: t.merged}
		if t.n > 0 {
			d := durs[t.from : t.from+t.n]
			// The larger rank first: what lies before it is not larger.
			hi := (99*t.n+99)/100 - 1
			p99 := rollout.Nth(d, hi)
			p50 := rollout.Nth(d[:hi+1], (t.n+1)/2-1)
			s.Sum, s.P50, s.P99, s.Max = ix.secs(t.sum), ix.secs(p50), ix.secs(p99), ix.secs(t.most)
		}
		out.Names = append(out.Names, s)
	}
	ix.countRows(q, order, t1, out.Rows)
	return out, nil
}

func (ix *Index) secs(units int64) *float64 {
	s := ix.seconds(units)
	return &s
}

// countRows counts what the rows do at t.
func (ix *Index) countRows(q Query, order []uint32, t int64, counts map[string]int) {
	for _, k := range []string{"total", "empty", "not_started", "ended", "running"} {
		counts[k] = 0
	}
	for _, k := range busy {
		counts[k] = 0
	}
	counts["total"] = len(order)
	src := ix.leafSource(ByClass, q.Attempt)
	for _, r := range order {
		switch {
		case ix.why[r] != 0:
			counts["empty"]++
		case t < ix.start[r]:
			counts["not_started"]++
		case t >= ix.start[r]+ix.dur[r]:
			counts["ended"]++
		default:
			counts["running"]++
			counts[src.row(int(r)).busyAt(t)]++
		}
	}
}

// busyAt names what the row does at t.
func (s stretches) busyAt(t int64) string {
	i := sort.Search(len(s.at), func(i int) bool { return s.at[i] > t }) - 1
	if i < 0 || s.class[i] == noLeaf {
		return "other"
	}
	return busy[s.class[i]]
}
