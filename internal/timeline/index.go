package timeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/rollscope/rollscope/internal/request"
)

// Index answers queries over one dump's [Columns], which must not change any more. It is safe for
// concurrent use; what a query needs beyond the columns is computed once, when it is first asked for.
type Index struct {
	c    *Columns
	head Head

	// Columns by row.
	ordinal                  []uint32
	sample, group, rolloutID []int64
	status, why              []uint8
	source                   []uint16
	label                    []uint32
	reward                   []float64
	start, dur               []int64
	attempts                 []uint8
	response, prompt         []int64
	lanes                    []uint16
	nItems, nReqs            []uint32
	open, orphans, points    []uint32
	flags                    []uint16
	firstItem, firstReq      []int // and one more
	traceData                []byte
	traceEnds                []uint32
	itemStart, itemDur       []int64
	itemName, itemFlags      []uint16
	itemClass, itemState     []uint8
	itemLane, itemDepth      []uint16
	itemParent, itemReq      []int32
	itemAttempt              []uint8
	itemN                    []uint32
	firstSeg                 []uint32 // by item and one more; nil when there are no segments
	segClass                 []uint8
	segStart, segDur         []int64
	ridData                  []byte
	ridEnds                  []uint32
	reqStart, reqDur         []int64
	reqQueue, reqE2E         []int64
	reqAttempt               []uint8
	reqPhases                [request.NumPhases][]int64
	reqRetries               []int64
	reqItem                  []int32

	sumsOnce sync.Once
	sums     rowSums

	leaves [ByStatus]leaves // by what they are told apart

	lowerOnce sync.Once
	lower     lowerTexts

	mu     sync.Mutex
	orders map[Query][]uint32
	recent []Query
	attrs  map[string]*attrValues
	keys   []string
}

// NewIndex prepares c for queries. c must not be changed afterwards.
func NewIndex(c *Columns) *Index {
	c.settle()
	c.flush()
	r, t, s, q := &c.rows, &c.items, &c.segs, &c.reqs
	ix := &Index{
		c: c, head: c.Head,
		ordinal: r.ordinal.flat(), sample: r.index.flat(), group: r.group.flat(), rolloutID: r.rollout.flat(),
		status: r.status.flat(), why: r.why.flat(), source: r.source.flat(), label: r.label.flat(), reward: r.reward.flat(),
		start: r.start.flat(), dur: r.dur.flat(), attempts: r.attempts.flat(), response: r.response.flat(), prompt: r.prompt.flat(),
		lanes: r.lanes.flat(), nItems: r.items.flat(), nReqs: r.requests.flat(), open: r.open.flat(), orphans: r.orphans.flat(),
		points: r.points.flat(), flags: r.flags.flat(),
		itemStart: t.start.flat(), itemDur: t.dur.flat(), itemName: t.name.flat(), itemFlags: t.flags.flat(), itemClass: t.class.flat(),
		itemState: t.state.flat(), itemLane: t.lane.flat(), itemDepth: t.depth.flat(), itemParent: t.parent.flat(),
		itemReq: t.request.flat(), itemAttempt: t.attempt.flat(), itemN: t.n.flat(),
		segClass: s.class.flat(), segStart: s.start.flat(), segDur: s.dur.flat(),
		reqStart: q.start.flat(), reqDur: q.dur.flat(), reqAttempt: q.attempt.flat(), reqQueue: q.queue.flat(), reqE2E: q.e2e.flat(), reqRetries: q.retry.flat(), reqItem: q.item.flat(),
		orders: map[Query][]uint32{}, attrs: map[string]*attrValues{},
	}
	ix.traceData, ix.traceEnds = r.trace.view()
	ix.ridData, ix.ridEnds = q.rid.view()
	for p := range q.phases {
		ix.reqPhases[p] = q.phases[p].flat()
	}
	// The rest is only read one by one, but reading must not change anything either.
	for _, col := range c.columns() {
		flatten(col.s)
	}
	ix.firstItem, ix.firstReq = starts(ix.nItems), starts(ix.nReqs)
	if len(ix.segClass) > 0 {
		ix.firstSeg = make([]uint32, len(ix.itemStart)+1)
		for i, n := range t.segs.flat() {
			ix.firstSeg[i+1] = ix.firstSeg[i] + uint32(n)
		}
	}
	return ix
}

func flatten(s store) {
	switch s := s.(type) {
	case uv[uint8]:
		s.v.flat()
	case uv[uint16]:
		s.v.flat()
	case uv[uint32]:
		s.v.flat()
	case zv[int32]:
		s.v.flat()
	case ov:
		s.v.flat()
	case raw32:
		s.v.flat()
	case raw8:
		s.v.flat()
	}
}

// starts returns where each row's part begins, and the end of the last.
func starts(counts []uint32) []int {
	out := make([]int, len(counts)+1)
	for i, n := range counts {
		out[i+1] = out[i] + int(n)
	}
	return out
}

// Head is the head of the columns; it must not be changed.
func (ix *Index) Head() *Head { return &ix.head }

// Rows is the number of rows.
func (ix *Index) Rows() int { return len(ix.ordinal) }

// Extent is the first start and the last end in units; 0, 0 when no row has items.
func (ix *Index) Extent() (t0, t1 int64) {
	if e := ix.head.Extent; e != nil {
		return e[0], e[1]
	}
	return 0, 0
}

// seconds of a number of units.
func (ix *Index) seconds(units int64) float64 {
	return float64(units) * float64(ix.head.UnitNS) / 1e9
}

// rowSums are the numbers of rows that stand in no column, NaN where missing.
type rowSums struct{ queue, e2e, prefill, decode, retries []float64 }

func (ix *Index) rowSums() *rowSums {
	ix.sumsOnce.Do(func() {
		n := ix.Rows()
		all := make([]float64, 5*n)
		for i := range all {
			all[i] = math.NaN()
		}
		s := rowSums{all[:n:n], all[n : 2*n : 2*n], all[2*n : 3*n : 3*n], all[3*n : 4*n : 4*n], all[4*n:]}
		largest := func(x *float64, units int64, scale bool) {
			if units == missing {
				return
			}
			v := float64(units)
			if scale {
				v = ix.seconds(units)
			}
			if !(*x >= v) {
				*x = v
			}
		}
		p := &ix.reqPhases
		for r := range n {
			for q := ix.firstReq[r]; q < ix.firstReq[r+1]; q++ {
				largest(&s.queue[r], ix.reqQueue[q], true)
				largest(&s.e2e[r], ix.reqE2E[q], true)
				largest(&s.retries[r], ix.reqRetries[q], false)
				largest(&s.prefill[r], sumOf(
					orParts(p[request.PrefillBootstrapQueue][q], p[request.PrefillBootstrap][q], p[request.PrefillAllocWait][q]),
					orParts(p[request.PrefillForward][q], p[request.PrefillTransferQueue][q], missing)), true)
				largest(&s.decode[r], sumOf(sumOf(
					orParts(p[request.DecodePrealloc][q], p[request.DecodeBootstrap][q], p[request.DecodeAllocWait][q]),
					p[request.DecodeTransfer][q]), p[request.DecodeForward][q]), true)
			}
		}
		ix.sums = s
	})
	return &ix.sums
}

// orParts is whole, or the sum of its parts when it is missing.
func orParts(whole, a, b int64) int64 {
	if whole != missing {
		return whole
	}
	return sumOf(a, b)
}

// sumOf adds what is not missing.
func sumOf(a, b int64) int64 {
	switch {
	case a == missing:
		return b
	case b == missing:
		return a
	}
	return a + b
}

// number returns a function from a row to its value of f, NaN when it is missing.
func (ix *Index) number(f field) func(r int) float64 {
	opt := func(v []int64) func(int) float64 {
		return func(r int) float64 {
			if v[r] == missing {
				return math.NaN()
			}
			return float64(v[r])
		}
	}
	ints := func(v []uint32) func(int) float64 { return func(r int) float64 { return float64(v[r]) } }
	floats := func(v []float64) func(int) float64 { return func(r int) float64 { return v[r] } }
	timed := func(fn func(r int) int64) func(int) float64 {
		return func(r int) float64 {
			if ix.why[r] != 0 {
				return math.NaN()
			}
			return ix.seconds(fn(r))
		}
	}
	switch f {
	case fSample:
		return opt(ix.sample)
	case fRow:
		return ints(ix.ordinal)
	case fGroup:
		return opt(ix.group)
	case fRollout:
		return opt(ix.rolloutID)
	case fReward:
		return floats(ix.reward)
	case fDur:
		return timed(func(r int) int64 { return ix.dur[r] })
	case fStart:
		return timed(func(r int) int64 { return ix.start[r] })
	case fEnd:
		return timed(func(r int) int64 { return ix.start[r] + ix.dur[r] })
	case fTokens:
		return opt(ix.response)
	case fPrompt:
		return opt(ix.prompt)
	case fLanes:
		return func(r int) float64 { return float64(ix.lanes[r]) }
	case fItems:
		return ints(ix.nItems)
	case fRequests:
		return ints(ix.nReqs)
	case fAttempts:
		return func(r int) float64 { return float64(ix.attempts[r]) }
	case fOpen:
		return ints(ix.open)
	case fOrphans:
		return ints(ix.orphans)
	case fPoints:
		return ints(ix.points)
	case fQueue:
		return floats(ix.rowSums().queue)
	case fE2E:
		return floats(ix.rowSums().e2e)
	case fPrefill:
		return floats(ix.rowSums().prefill)
	case fDecode:
		return floats(ix.rowSums().decode)
	}
	return floats(ix.rowSums().retries)
}

// sortFields are what a query may be sorted by; status by its text.
var sortFields = [...]struct {
	name string
	f    field
}{
	{"start", fStart}, {"end", fEnd}, {"dur", fDur}, {"reward", fReward}, {"lanes", fLanes}, {"open", fOpen}, {"group", fGroup},
	{"sample", fSample}, {"status", fStatus}, {"tokens", fTokens}, {"queue", fQueue}, {"e2e", fE2E}, {"prefill", fPrefill},
	{"decode", fDecode}, {"row", fRow},
}

const keptOrders = 16

// Order returns the rows that q keeps, in its order, by their places in the columns (which are their
// ordinals, but in a window). It must not be changed. Errors are [*QueryError].
func (ix *Index) Order(q Query) ([]uint32, error) {
	ix.mu.Lock()
	order, ok := ix.orders[q]
	ix.mu.Unlock()
	if ok {
		return order, nil
	}
	terms, err := parseFilter(q.Filter)
	if err != nil {
		return nil, err
	}
	keep, err := ix.match(terms)
	if err != nil {
		return nil, err
	}
	if q.Attempt.OK {
		ix.keepAttempt(keep, q.Attempt.N)
	}
	order = make([]uint32, 0, len(keep))
	for r, k := range keep {
		if k {
			order = append(order, uint32(r))
		}
	}
	if err := ix.sort(order, q); err != nil {
		return nil, err
	}
	if q.Group {
		order = ix.grouped(order)
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if _, ok := ix.orders[q]; !ok {
		ix.orders[q] = order
		if ix.recent = append(ix.recent, q); len(ix.recent) > keptOrders {
			delete(ix.orders, ix.recent[0])
			ix.recent = slices.Delete(ix.recent, 0, 1)
		}
	}
	return order, nil
}

// keepAttempt drops rows without an item of the attempt.
func (ix *Index) keepAttempt(keep []bool, attempt int64) {
	for r := range keep {
		keep[r] = keep[r] && attempt >= 0 && attempt <= math.MaxUint8 &&
			slices.Contains(ix.itemAttempt[ix.firstItem[r]:ix.firstItem[r+1]], uint8(attempt))
	}
}

func (ix *Index) sort(order []uint32, q Query) error {
	name := q.Sort
	if name == "" {
		name = "row"
	}
	at := slices.IndexFunc(sortFields[:], func(s struct {
		name string
		f    field
	}) bool {
		return s.name == name
	})
	if at < 0 {
		names := make([]string, len(sortFields))
		for i, s := range sortFields {
			names[i] = s.name
		}
		return &QueryError{At: -1, What: fmt.Sprintf("rows cannot be sorted by %q: it is one of %s", clean(q.Sort, 64), strings.Join(names, ", "))}
	}
	type keyed struct {
		key float64
		row uint32
	}
	keys := make([]keyed, len(order))
	if f := sortFields[at].f; f == fStatus {
		rank := ranks(ix.head.Dicts.Status)
		for i, r := range order {
			keys[i] = keyed{rank[ix.status[r]], r}
		}
	} else {
		value := ix.number(f)
		for i, r := range order {
			keys[i] = keyed{value(int(r)), r}
		}
	}
	slices.SortFunc(keys, func(a, b keyed) int {
		switch aMissing, bMissing := a.key != a.key, b.key != b.key; {
		case a.key == b.key || aMissing && bMissing:
			return cmp.Compare(a.row, b.row)
		case aMissing:
			return 1
		case bMissing:
			return -1
		case (a.key < b.key) != q.Desc:
			return -1
		}
		return 1
	})
	for i, k := range keys {
		order[i] = k.row
	}
	return nil
}

// ranks returns for each string its place among all of them sorted; "" is missing.
func ranks(list []string) []float64 {
	by := make([]int, len(list))
	for i := range by {
		by[i] = i
	}
	slices.SortStableFunc(by, func(a, b int) int { return strings.Compare(list[a], list[b]) })
	out := make([]float64, len(list))
	for i, x := range by {
		out[x] = float64(i)
		if list[x] == "" {
			out[x] = math.NaN()
		}
	}
	return out
}

// grouped puts rows of one group together, groups in the order of their first row.
func (ix *Index) grouped(order []uint32) []uint32 {
	place := map[int64]int{}
	of := make([]int, len(order))
	counts := make([]int, 0, len(order))
	for i, r := range order {
		g := ix.group[r]
		p, ok := place[g]
		if !ok || g == missing {
			p = len(counts)
			counts = append(counts, 0)
			place[g] = p
		}
		of[i] = p
		counts[p]++
	}
	at := 0
	for i, n := range counts {
		counts[i], at = at, at+n
	}
	out := make([]uint32, len(order))
	for i, r := range order {
		out[counts[of[i]]] = r
		counts[of[i]]++
	}
	return out
}

// Hit is a row that a search found.
type Hit struct {
	Place int   `json:"place"` // in the order
	Row   int   `json:"row"`
	Items []int `json:"items"` // places of items whose names hold the first word, at most 64
}

// Find returns up to limit rows of q's order, from place from on, that also match the filter what, and
// how many there are in all.
func (ix *Index) Find(q Query, what string, from, limit int) (hits []Hit, total int, err error) {
	order, err := ix.Order(q)
	if err != nil {
		return nil, 0, err
	}
	terms, err := parseFilter(what)
	if err != nil {
		return nil, 0, err
	}
	match, err := ix.match(terms)
	if err != nil {
		return nil, 0, err
	}
	var names []bool
	for _, t := range terms {
		if !t.not && (t.field == fWord || t.field == fRegexp || t.field == fName) {
			names = ix.namesOf(t)
			break
		}
	}
	hits = []Hit{}
	for place, r := range order {
		if !match[r] {
			continue
		}
		total++
		if place < from || len(hits) >= limit {
			continue
		}
		h := Hit{Place: place, Row: int(r), Items: []int{}}
		for i := ix.firstItem[r]; names != nil && i < ix.firstItem[r+1] && len(h.Items) < 64; i++ {
			if names[ix.itemName[i]] {
				h.Items = append(h.Items, i-ix.firstItem[r])
			}
		}
		hits = append(hits, h)
	}
	return hits, total, nil
}

// block returns the attributes or details of row r, raw; nil when there are none.
func (ix *Index) block(list []Block, r int) (json.RawMessage, error) {
	i, ok := slices.BinarySearchFunc(list, r, func(b Block, r int) int {
		switch {
		case r < b.From:
			return 1
		case r >= b.From+b.Rows:
			return -1
		}
		return 0
	})
	if !ok {
		return nil, nil
	}
	rows, err := ix.c.readBlock(list[i])
	if err != nil {
		return nil, err
	}
	return rows[r-list[i].From], nil
}
