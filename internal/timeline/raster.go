package timeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
)

// noLeaf is the class of a stretch of time in which nothing runs.
const noLeaf = math.MaxUint8

// leaves say for all rows what fills each instant; see "What fills an instant of a row" in FORMAT.md.
type leaves struct {
	once  sync.Once
	first []int // by row, and one more
	// A stretch goes from at to the next one's at; the last of a row has class noLeaf. The class is what By
	// takes a leaf for.
	at    []int64
	class []uint8
	// Items of no duration.
	firstDot []int
	dotAt    []int64
	dotClass []uint8
}

// stretches are the leaves and dots of one row.
type stretches struct {
	at       []int64
	class    []uint8
	dotAt    []int64
	dotClass []uint8
}

func (l *leaves) row(r int) stretches {
	a, b, c, d := l.first[r], l.first[r+1], l.firstDot[r], l.firstDot[r+1]
	return stretches{l.at[a:b], l.class[a:b], l.dotAt[c:d], l.dotClass[c:d]}
}

// allLeaves are the leaves of all rows without regard to attempts. by is not ByStatus.
func (ix *Index) allLeaves(by By) *leaves {
	l := &ix.leaves[by]
	l.once.Do(func() {
		n := ix.Rows()
		l.first, l.firstDot = make([]int, n+1), make([]int, n+1)
		sw := sweeper{ix: ix, by: by}
		for r := range n {
			s := sw.row(r, rollout.Int{})
			l.at, l.class = append(l.at, s.at...), append(l.class, s.class...)
			l.dotAt, l.dotClass = append(l.dotAt, s.dotAt...), append(l.dotClass, s.dotClass...)
			l.first[r+1], l.firstDot[r+1] = len(l.at), len(l.dotAt)
		}
		l.at, l.class = slices.Clip(l.at), slices.Clip(l.class)
	})
	return l
}

// leafSource gives the leaves of rows, for one goroutine.
type leafSource struct {
	all     *leaves
	sw      sweeper
	attempt rollout.Int
	// By status a row is of one kind whatever its leaves are: those by class, under another number.
	status      []uint8
	class, dots []uint8
}

func (ix *Index) leafSource(by By, attempt rollout.Int) *leafSource {
	s := &leafSource{attempt: attempt}
	if by == ByStatus {
		by, s.status = ByClass, ix.status
	}
	s.sw = sweeper{ix: ix, by: by}
	if !attempt.OK {
		s.all = ix.allLeaves(by)
	}
	return s
}

// row is valid until the next call.
func (s *leafSource) row(r int) stretches {
	var out stretches
	if s.all != nil {
		out = s.all.row(r)
	} else {
		out = s.sw.row(r, s.attempt)
	}
	if s.status != nil {
		kind := kindOf(int(s.status[r]))
		s.class, s.dots = s.class[:0], s.dots[:0]
		for _, c := range out.class {
			if c != noLeaf {
				c = kind
			}
			s.class = append(s.class, c)
		}
		for range out.dotClass {
			s.dots = append(s.dots, kind)
		}
		out.class, out.dotClass = s.class, s.dots
	}
	return out
}

// sweeper finds a row's leaves: by start, with a heap of what is running, deepest first.
type sweeper struct {
	ix    *Index
	by    By
	order []int32
	heap  []int32
	out   stretches
	end   int64 // of the last stretch
	r     int   // the row
}

func (w *sweeper) row(r int, attempt rollout.Int) stretches {
	ix := w.ix
	from, to := ix.firstItem[r], ix.firstItem[r+1]
	w.order, w.heap, w.r = w.order[:0], w.heap[:0], r
	o := &w.out
	o.at, o.class, o.dotAt, o.dotClass = o.at[:0], o.class[:0], o.dotAt[:0], o.dotClass[:0]
	for i := from; i < to; i++ {
		if attempt.OK && int64(ix.itemAttempt[i]) != attempt.N {
			continue
		}
		switch st := State(ix.itemState[i]); {
		case st == PointEvent || st == OrphanEnd:
			o.dotAt, o.dotClass = append(o.dotAt, ix.itemStart[i]), append(o.dotClass, w.kind(i, uint8(ClassEvent)))
		case ix.itemDur[i] == 0:
			o.dotAt, o.dotClass = append(o.dotAt, ix.itemStart[i]), append(o.dotClass, w.kind(i, ix.itemClass[i]))
		default:
			w.order = append(w.order, int32(i))
		}
	}
	slices.SortStableFunc(w.order, func(a, b int32) int { return cmp.Compare(ix.itemStart[a], ix.itemStart[b]) })
	w.end = math.MinInt64
	now := int64(math.MinInt64)
	for k := 0; k < len(w.order) || len(w.heap) > 0; {
		next := int64(math.MaxInt64)
		if k < len(w.order) {
			next = ix.itemStart[w.order[k]]
		}
		if len(w.heap) == 0 || next <= now {
			w.push(w.order[k])
			now = max(now, next)
			k++
			continue
		}
		top := w.heap[0]
		end := ix.itemStart[top] + ix.itemDur[top]
		if end <= now {
			w.pop()
			continue
		}
		end = min(end, next)
		w.emit(int(top), now, end)
		now = end
	}
	if len(o.at) > 0 {
		o.at, o.class = append(o.at, w.end), append(o.class, noLeaf)
	}
	return *o
}

// above says that a is the leaf when both run.
func (w *sweeper) above(a, b int32) bool {
	ix := w.ix
	if x, y := ix.itemDepth[a], ix.itemDepth[b]; x != y {
		return x > y
	}
	if x, y := ix.itemStart[a], ix.itemStart[b]; x != y {
		return x > y
	}
	return a > b
}

func (w *sweeper) push(x int32) {
	h := append(w.heap, x)
	i := len(h) - 1
	for i > 0 && w.above(h[i], h[(i-1)/2]) {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
		i = (i - 1) / 2
	}
	w.heap = h
}

func (w *sweeper) pop() {
	h := w.heap
	n := len(h) - 1
	h[0] = h[n]
	h = h[:n]
	for i := 0; ; {
		best := i
		for c := 2*i + 1; c <= 2*i+2 && c < n; c++ {
			if w.above(h[c], h[best]) {
				best = c
			}
		}
		if best == i {
			break
		}
		h[i], h[best] = h[best], h[i]
		i = best
	}
	w.heap = h
}

// emit adds the stretch in which item i is the leaf, in the classes of its parts.
func (w *sweeper) emit(i int, from, to int64) {
	ix := w.ix
	class := ix.itemClass[i]
	if w.by != ByClass && w.by != ByPhase { // parts of an item are of its name and attempt
		w.add(from, to, w.kind(i, class))
		return
	}
	if ix.firstSeg != nil {
		for s := ix.firstSeg[i]; s < ix.firstSeg[i+1]; s++ {
			a, b := max(from, ix.segStart[s]), min(to, ix.segStart[s]+ix.segDur[s])
			if a >= b {
				continue
			}
			w.add(from, a, w.kind(i, class))
			w.add(a, b, w.kind(i, ix.segClass[s]))
			from = b
		}
	}
	if class == uint8(ClassGenerate) && ix.itemReq[i] >= 0 {
		if q := ix.reqQueue[ix.firstReq[w.r]+int(ix.itemReq[i])]; q != missing && q > 0 {
			b := max(from, min(to, ix.itemStart[i]+min(q, maxSafe)))
			w.add(from, b, uint8(ClassQueue))
			from = b
		}
	}
	w.add(from, to, w.kind(i, class))
}

// kind is what item i counts as where it is of a class.
func (w *sweeper) kind(i int, class uint8) uint8 {
	switch w.by {
	case ByName:
		return kindOf(int(w.ix.itemName[i]))
	case ByAttempt:
		return kindOf(int(w.ix.itemAttempt[i]))
	case ByPhase:
		if class == uint8(ClassOther) {
			return kindOf(firstName + int(w.ix.itemName[i]))
		}
	}
	return class
}

func (w *sweeper) add(from, to int64, class uint8) {
	if from >= to {
		return
	}
	o := &w.out
	n := len(o.at)
	switch {
	case n > 0 && w.end == from && o.class[n-1] == class:
	case n > 0 && w.end < from:
		o.at, o.class = append(o.at, w.end, from), append(o.class, noLeaf, class)
	default:
		o.at, o.class = append(o.at, from), append(o.class, class)
	}
	w.end = to
}

// RasterImage is a picture of many rows; see "Raster" in FORMAT.md.
type RasterImage struct {
	W, H  int
	Class []uint8 // W*H, row by row: what By tells apart + 1, 0 where there is nothing
	Fill  []uint8 // W*H: the share that is covered
}

const (
	maxSide   = 1 << 13
	maxPixels = 1 << 24
)

// Raster draws q's rows between t0 and t1 (units) on w times h pixels.
func (ix *Index) Raster(q Query, by By, w, h int, t0, t1 int64) (*RasterImage, error) {
	if w < 1 || h < 1 || w > maxSide || h > maxSide || w*h > maxPixels {
		return nil, &QueryError{At: -1, What: fmt.Sprintf("a raster of %d by %d pixels: 1 to %d a side, at most %d in all", w, h, maxSide, maxPixels)}
	}
	if t1 <= t0 || t0 < -maxSafe || t1 > maxSafe || t1-t0 > maxSafe {
		return nil, &QueryError{At: -1, What: "the end of the window must come after its start"}
	}
	order, err := ix.Order(q)
	if err != nil {
		return nil, err
	}
	img := &RasterImage{W: w, H: h, Class: make([]uint8, w*h), Fill: make([]uint8, w*h)}
	n := len(order)
	if n == 0 {
		return img, nil
	}
	p := newPainter(w, t0, t1)
	src := ix.leafSource(by, q.Attempt)
	lastA, lastB := -1, -1
	for y := range h {
		a := y * n / h
		b := max((y+1)*n/h, a+1)
		line := img.Class[y*w : (y+1)*w]
		fill := img.Fill[y*w : (y+1)*w]
		if a == lastA && b == lastB { // more pixels than rows
			copy(line, img.Class[(y-1)*w:y*w])
			copy(fill, img.Fill[(y-1)*w:y*w])
			continue
		}
		lastA, lastB = a, b
		for _, r := range order[a:b] {
			p.add(src.row(int(r)))
		}
		p.finish(b-a, line, fill)
	}
	return img, nil
}

// painter gathers the rows of one line of pixels.
type painter struct {
	w      int
	t0, t1 int64
	scale  float64 // w * 256
	span   float64
	part   [noLeaf][]int32 // covered 1/256 pixels; nil for kinds that were not met yet
	full   [noLeaf][]int32 // differences of the number of rows that cover all of a pixel
	used   [noLeaf]bool
	total  []int64 // by pixel
	best   []int64 // sum << 8 | 255 - class
	dots   []uint8 // class + 1
	dotted bool
}

func newPainter(w int, t0, t1 int64) *painter {
	return &painter{w: w, t0: t0, t1: t1, scale: float64(w * 256), span: float64(t1 - t0), dots: make([]uint8, w),
		total: make([]int64, w), best: make([]int64, w)}
}

// use makes room for a kind.
func (p *painter) use(c uint8) {
	p.used[c] = true
	if p.part[c] == nil {
		all := make([]int32, 2*(p.w+1))
		p.part[c], p.full[c] = all[:p.w+1:p.w+1], all[p.w+1:]
	}
}

// at is p(t) of FORMAT.md.
func (p *painter) at(t int64) int32 {
	if t <= p.t0 {
		return 0
	}
	if t >= p.t1 {
		return int32(p.w * 256)
	}
	return int32(min(float64(t-p.t0)*p.scale/p.span, p.scale))
}

func (p *painter) dot(x int32, class uint8) {
	x = min(x>>8, int32(p.w-1))
	p.dots[x] = max(p.dots[x], class+1)
	p.dotted = true
}

func (p *painter) add(s stretches) {
	k := 0
	if len(s.at) > 0 && s.at[0] < p.t0 {
		k = max(0, sort.Search(len(s.at), func(i int) bool { return s.at[i] > p.t0 })-1)
	}
	var x int32
	if k < len(s.at) {
		x = p.at(s.at[k])
	}
	for ; k+1 < len(s.at) && s.at[k] < p.t1; k++ {
		end := p.at(s.at[k+1])
		from := x
		x = end
		c := s.class[k]
		if c == noLeaf || s.at[k+1] <= p.t0 {
			continue
		}
		if from == end {
			p.dot(from, c)
			continue
		}
		if !p.used[c] {
			p.use(c)
		}
		a, b := from>>8, end>>8
		if a == b {
			p.part[c][a] += end - from
			continue
		}
		p.part[c][a] += 256 - from&255
		p.part[c][b] += end & 255
		p.full[c][a+1]++
		p.full[c][b]--
	}
	for i, t := range s.dotAt {
		if t >= p.t0 && t < p.t1 {
			p.dot(p.at(t), s.dotClass[i])
		}
	}
}

// finish writes the line and forgets its rows.
func (p *painter) finish(rows int, class, fill []uint8) {
	w := p.w
	total, best := p.total[:w], p.best[:w]
	clear(total)
	clear(best)
	for c := range p.part {
		if !p.used[c] {
			continue
		}
		p.used[c] = false
		run := int32(0)
		part, full := p.part[c][:w], p.full[c][:w]
		low := int64(noLeaf - c) // of equal sums the lowest kind is the largest
		for x := range total {
			run += full[x]
			sum := int64(part[x]) + int64(run)<<8
			total[x] += sum
			best[x] = max(best[x], sum<<8|low)
		}
		clear(p.part[c])
		clear(p.full[c])
	}
	whole := 256 * int64(rows)
	dots, class, fill := p.dots[:w], class[:w], fill[:w]
	for x, t := range total {
		switch {
		case t >= whole:
			fill[x], class[x] = 255, uint8(noLeaf-best[x]&noLeaf)+1
		case t > 0:
			fill[x], class[x] = uint8(max(1, t*255/whole)), uint8(noLeaf-best[x]&noLeaf)+1
		case dots[x] > 0:
			fill[x], class[x] = 1, dots[x]
		}
	}
	if p.dotted {
		clear(p.dots)
		p.dotted = false
	}
}

// busy names what a row does while its leaf has a class, as [Stats] counts it.
var busy = func() (b [NumClasses]string) {
	for i := range b {
		b[i] = "other"
	}
	set := func(name string, classes ...Class) {
		for _, c := range classes {
			b[c] = name
		}
	}
	phase := func(p request.Phase) Class { return ClassPhase + Class(p) }
	set("queued", ClassQueue, phase(request.PrefillBootstrapQueue), phase(request.PrefillBootstrap), phase(request.PrefillAllocWait),
		phase(request.DecodePrealloc), phase(request.DecodeBootstrap), phase(request.DecodeAllocWait))
	set("prefill", ClassPrefill, phase(request.PrefillForward))
	set("transfer", phase(request.PrefillTransferQueue), phase(request.DecodeTransfer))
	set("decode", ClassDecode, phase(request.DecodeForward))
	set("generate", ClassGenerate)
	set("tools", ClassTool)
	set("reward", ClassReward)
	set("sync", ClassSync)
	set("wait", ClassWait)
	return b
}()
