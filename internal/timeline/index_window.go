package timeline

import (
	"fmt"
	"math"

	"github.com/rollscope/rollscope/internal/rollout"
)

// WindowOptions say which part of an order is wanted.
type WindowOptions struct {
	From, Count int   // places in the order
	T0, T1      int64 // units
	// Pixels is the width on which the part is drawn: what is below one pixel is merged. 0 merges nothing.
	Pixels int
	// Open are the rows of which each lane is shown.
	Open map[int]bool
}

const maxWindowRows = 1 << 16

// Window returns a part of q's order as columns of their own, with row.id; see "Windows" in FORMAT.md.
func (ix *Index) Window(q Query, o WindowOptions) (*Columns, error) {
	if o.T1 <= o.T0 || o.T0 < -maxSafe || o.T1 > maxSafe || o.T1-o.T0 > maxSafe {
		return nil, &QueryError{At: -1, What: "the end of the window must come after its start"}
	}
	if o.From < 0 || o.Count < 0 || o.Count > maxWindowRows || o.Pixels < 0 || o.Pixels > maxSide {
		return nil, &QueryError{At: -1, What: fmt.Sprintf("a window has at most %d rows and %d pixels", maxWindowRows, maxSide)}
	}
	order, err := ix.Order(q)
	if err != nil {
		return nil, err
	}
	order = order[min(o.From, len(order)):]
	order = order[:min(o.Count, len(order))]
	w := ix.emptyCopy()
	w.rowID = &vec[uint32]{}
	w.labels, w.sources = newDict(1<<31), newDict(1<<16) // only what the window shows
	m := merger{ix: ix, t0: o.T0, t1: o.T1, pixels: o.Pixels, attempt: q.Attempt, cut: true}
	for _, r := range order {
		m.perLane = o.Open[int(r)]
		ix.copyRow(w, int(r), &m)
		w.rowID.add(r)
	}
	w.settle()
	return w, nil
}

// emptyCopy returns columns without rows that have the dump's head, dictionaries and times.
func (ix *Index) emptyCopy() *Columns {
	c, h := ix.c, ix.head
	w := NewColumns(h)
	w.Head.Step = nil
	w.Head.Counts, w.Head.T0, w.Head.UnitNS, w.Head.Extent = h.Counts, h.T0, h.UnitNS, h.Extent
	w.base, w.hasBase, w.lo, w.hi = c.base, c.hasBase, c.lo, c.hi
	// Shared: nothing is added to them, since all strings are those of the dump.
	w.names, w.statuses, w.sources, w.labels = c.names, c.statuses, c.sources, c.labels
	w.whys, w.finishes, w.clips = c.whys, c.finishes, c.clips
	return w
}

// picked is an item that is sent: one of the row, or several merged.
type picked struct {
	i          int // of the first
	start, end int64
	longest    int64
	of         int // item whose class and name it has
	flags      uint16
	spans      bool
	n          uint32
}

// merger chooses what of a row is sent.
type merger struct {
	ix      *Index
	t0, t1  int64
	pixels  int
	perLane bool
	cut     bool // leave out what lies outside of the window
	attempt rollout.Int

	out    []picked
	places []int32 // by item of the row: its place in out, -1
	stamp  []int32 // by pixel: generation in which bucket is valid
	bucket []int32
	gen    int32
	merged bool
}

func (m *merger) row(r int) {
	ix := m.ix
	from, to := ix.firstItem[r], ix.firstItem[r+1]
	m.out, m.places, m.merged = m.out[:0], m.places[:0], false
	if len(m.stamp) != m.pixels {
		m.stamp, m.bucket, m.gen = make([]int32, m.pixels), make([]int32, m.pixels), 0
	}
	m.gen++
	lane := uint16(0)
	scale, span := float64(m.pixels), float64(m.t1-m.t0)
	for i := from; i < to; i++ {
		start, dur := ix.itemStart[i], ix.itemDur[i]
		m.places = append(m.places, -1)
		if m.cut && (start > m.t1 || start+dur < m.t0) || m.attempt.OK && int64(ix.itemAttempt[i]) != m.attempt.N {
			continue
		}
		if m.perLane && ix.itemLane[i] != lane {
			lane = ix.itemLane[i]
			m.gen++
		}
		state := State(ix.itemState[i])
		isSpan := state == Closed || state == Open
		p := picked{i, start, start + dur, dur, i, ix.itemFlags[i], isSpan, ix.itemN[i]}
		if m.pixels > 0 && (!isSpan || float64(dur)*scale < span) {
			x := max(0, min(m.pixels-1, int(math.Floor(float64(start-m.t0)*scale/span))))
			if m.stamp[x] == m.gen {
				k := m.bucket[x]
				m.join(&m.out[k], p)
				m.places[m.out[k].i-from] = -1
				continue
			}
			m.stamp[x], m.bucket[x] = m.gen, int32(len(m.out))
		}
		m.places[i-from] = int32(len(m.out))
		m.out = append(m.out, p)
	}
}

// join merges p into into.
func (m *merger) join(into *picked, p picked) {
	m.merged = true
	into.start, into.end = min(into.start, p.start), max(into.end, p.end)
	if p.longest > into.longest {
		into.longest, into.of = p.longest, p.of
	}
	into.flags |= p.flags | ItemMerged
	into.spans = into.spans || p.spans
	into.n += p.n
}

// copyRow appends to dst what m leaves of row r.
func (ix *Index) copyRow(dst *Columns, r int, m *merger) {
	m.row(r)
	d, b := &ix.head.Dicts, &dst.rows
	b.ordinal.add(ix.ordinal[r])
	b.index.add(ix.sample[r])
	b.group.add(ix.group[r])
	b.rollout.add(ix.rolloutID[r])
	b.status.add(ix.status[r])
	b.why.add(ix.why[r])
	b.source.add(uint16(dst.sources.id(d.Source[ix.source[r]])))
	b.label.add(dst.labels.id(d.Label[ix.label[r]]))
	b.reward.add(ix.reward[r])
	b.start.add(ix.start[r])
	b.dur.add(ix.dur[r])
	b.attempts.add(ix.attempts[r])
	b.response.add(ix.response[r])
	b.prompt.add(ix.prompt[r])
	b.lanes.add(ix.lanes[r])
	b.items.add(uint32(len(m.out)))
	b.requests.add(ix.nReqs[r])
	b.open.add(ix.open[r])
	b.orphans.add(ix.orphans[r])
	b.points.add(ix.points[r])
	flags := ix.flags[r]
	if m.merged {
		flags |= RowMerged
	}
	b.flags.add(flags)
	b.trace.add(string(strAt(ix.traceData, ix.traceEnds, r)))
	ix.copyItems(dst, m)
	ix.copyRequests(dst, r, m)
}

func (ix *Index) copyItems(dst *Columns, m *merger) {
	t, u := &dst.items, &ix.c.items
	for _, p := range m.out {
		merged := p.flags&ItemMerged != 0
		t.start.add(p.start)
		t.dur.add(p.end - p.start)
		t.name.add(ix.itemName[p.of])
		t.class.add(ix.itemClass[p.of])
		t.flags.add(p.flags)
		t.lane.add(ix.itemLane[p.i])
		t.depth.add(ix.itemDepth[p.i])
		t.attempt.add(ix.itemAttempt[p.i])
		t.n.add(p.n)
		if merged {
			state := PointEvent
			if p.spans {
				state = Closed
			}
			t.state.add(uint8(state))
			t.parent.add(-1)
			t.request.add(-1)
			t.clip.add(0)
			t.segs.add(0)
			continue
		}
		t.state.add(ix.itemState[p.i])
		parent := ix.itemParent[p.i]
		if parent >= 0 {
			parent = m.places[parent]
		}
		t.parent.add(parent)
		t.request.add(ix.itemReq[p.i])
		t.clip.add(u.clip.cur[p.i])
		t.segs.add(u.segs.cur[p.i])
		if ix.firstSeg == nil {
			continue
		}
		for s := ix.firstSeg[p.i]; s < ix.firstSeg[p.i+1]; s++ {
			dst.segs.class.add(ix.segClass[s])
			dst.segs.start.add(ix.segStart[s])
			dst.segs.dur.add(ix.segDur[s])
		}
	}
}

func (ix *Index) copyRequests(dst *Columns, r int, m *merger) {
	a, b := &ix.c.reqs, &dst.reqs
	for q := ix.firstReq[r]; q < ix.firstReq[r+1]; q++ {
		b.rid.add(string(strAt(ix.ridData, ix.ridEnds, q)))
		b.name.add(a.name.cur[q])
		b.start.add(a.start.cur[q])
		b.dur.add(a.dur.cur[q])
		b.attempt.add(a.attempt.cur[q])
		b.finish.add(a.finish.cur[q])
		b.prompt.add(a.prompt.cur[q])
		b.completion.add(a.completion.cur[q])
		b.cached.add(a.cached.cur[q])
		b.retry.add(a.retry.cur[q])
		b.queue.add(a.queue.cur[q])
		b.e2e.add(a.e2e.cur[q])
		for p := range a.phases {
			b.phases[p].add(a.phases[p].cur[q])
		}
		b.throughput.add(a.throughput.cur[q])
		b.speed.add(a.speed.cur[q])
		b.transferredSize.add(a.transferredSize.cur[q])
		b.invalid.add(a.invalid.cur[q])
		item := a.item.cur[q]
		if item >= 0 {
			item = m.places[item]
		}
		b.item.add(item)
	}
}
