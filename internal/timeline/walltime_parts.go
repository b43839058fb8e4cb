package timeline

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/rollscope/rollscope/internal/request"
)

// rank orders what a sample may be in at one instant: the lowest counts.
type rank uint8

const (
	rankSync rank = iota
	rankQueue
	rankPrefill
	rankTransfer
	rankDecodeWait
	rankDecode
	rankGenerate
	rankReward
	rankTool
	rankOther
	rankOpen
	numRanks
)

var rankParts = [numRanks]Part{PartSync, PartQueue, PartPrefill, PartTransfer, PartQueue, PartDecode, PartGenerate, PartReward, PartTool, PartOther, PartUnexplained}

// classRank is the rank of a class; ok is false for what only holds others.
func classRank(c Class) (rank, bool) {
	if p, ok := phaseOf(c); ok {
		switch p {
		case request.PrefillBootstrapQueue, request.PrefillBootstrap, request.PrefillAllocWait:
			return rankQueue, true
		case request.PrefillForward:
			return rankPrefill, true
		case request.PrefillTransferQueue, request.DecodeTransfer:
			return rankTransfer, true
		case request.DecodePrealloc, request.DecodeBootstrap, request.DecodeAllocWait:
			return rankDecodeWait, true
		}
		return rankDecode, true
	}
	switch c {
	case ClassSync:
		return rankSync, true
	case ClassQueue:
		return rankQueue, true
	case ClassPrefill:
		return rankPrefill, true
	case ClassDecode:
		return rankDecode, true
	case ClassGenerate:
		return rankGenerate, true
	case ClassReward:
		return rankReward, true
	case ClassTool:
		return rankTool, true
	case ClassOther:
		return rankOther, true
	}
	return 0, false
}

// edge is where a stretch of a rank begins or ends.
type edge struct {
	at    int64
	rank  rank
	delta int8
}

// stretch notes that the sample is in a rank from start to end, as far as that is its own time.
func (w *WallTime) stretch(own interval, k rank, start, end int64) {
	start, end = max(start, own.start), min(end, own.end)
	if end > start {
		w.edges = append(w.edges, edge{start, k, 1}, edge{end, k, -1})
	}
}

// partition cuts a sample's own time into pieces, each in one part, in order and without gaps. The result
// is valid until the next call.
func (w *WallTime) partition(r *Row, own interval) []piece {
	reqs := r.Sample.Requests
	w.virtual = resize(w.virtual, len(reqs))
	clear(w.virtual)
	for i := range r.Items {
		if it := &r.Items[i]; it.Flags&Virtual != 0 {
			w.virtual[it.Request] = true
		}
	}
	w.edges = w.edges[:0]
	for _, c := range w.cover {
		w.stretch(own, rankSync, c.start, c.end)
	}
	for i := range r.Items {
		it := &r.Items[i]
		switch {
		case it.State == PointEvent:
			w.syncPoint(own, it)
		case it.State == OrphanEnd:
		case it.Flags&Virtual != 0:
			for _, s := range it.Segments {
				if k, ok := classRank(s.Class); ok {
					w.stretch(own, k, s.Start, s.End)
				}
			}
		case w.shadowed(it):
		case it.State == Open && it.ClippedBy == clipNames[clipRow]:
			if _, ok := classRank(it.Class); ok {
				w.stretch(own, rankOpen, it.Start, it.End)
			}
		default:
			if k, ok := classRank(it.Class); ok {
				w.stretch(own, k, it.Start, it.End)
			}
			if it.Class == ClassGenerate && it.Request >= 0 {
				w.request(own, it, &reqs[it.Request], w.virtual[it.Request])
			}
		}
	}
	return w.sweep(own)
}

// shadowed tells whether an item is a phase's span of a request that has virtual lanes, or one whose
// place is made up.
func (w *WallTime) shadowed(it *Item) bool {
	if it.Flags&Derived != 0 {
		return true
	}
	return it.Request >= 0 && it.Class != ClassGenerate && w.virtual[it.Request]
}

// request splits a request by what its answer said.
func (w *WallTime) request(own interval, it *Item, q *request.Request, virtual bool) {
	length := it.End - it.Start
	known := func(v request.Value) (int64, bool) {
		f, ok := v.Known()
		if !ok || f < 0 {
			return 0, false
		}
		return Nanos(f), true
	}
	queue, hasQueue := known(q.QueueTime)
	queue = min(queue, length)
	if hasQueue {
		w.stretch(own, rankQueue, it.Start, it.Start+queue)
	}
	if virtual {
		return
	}
	total := length
	if e2e, ok := known(q.E2ELatency); ok {
		total = min(total, e2e)
	}
	tokens, hasTokens := q.CompletionTokens.Known()
	speed, hasSpeed := q.DecodeThroughput.Known()
	if !hasTokens || !hasSpeed || tokens <= 0 || speed <= 0 {
		return
	}
	end := it.Start + max(total, queue)
	decode := min(Nanos(tokens/speed), end-it.Start-queue)
	w.stretch(own, rankDecode, end-decode, end)
	w.stretch(own, rankPrefill, it.Start+queue, end-decode)
}

// syncPoint takes a point that marks a weight sync and says how long it took; such points are written
// when the work is done.
func (w *WallTime) syncPoint(own interval, it *Item) {
	if w.classes.of(it.Name) != ClassSync {
		return
	}
	for _, key := range [...]string{"duration_s", "duration", "seconds"} {
		if d, ok := it.StartAttrs.Get(key).Number(); ok && d > 0 && finite(d) {
			w.stretch(own, rankSync, it.Start-min(Nanos(d), it.Start+maxNS), it.Start)
			return
		}
	}
}

// sweep walks along the edges.
func (w *WallTime) sweep(own interval) []piece {
	slices.SortFunc(w.edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	pieces := w.path.pieces[:0]
	add := func(start, end int64, p Part) {
		if end <= start {
			return
		}
		if n := len(pieces); n > 0 && pieces[n-1].part == p {
			pieces[n-1].end = end
			return
		}
		pieces = append(pieces, piece{interval{start, end}, p})
	}
	var count [numRanks]int
	var active uint16
	at := own.start
	for i := 0; i < len(w.edges); {
		now := w.edges[i].at
		part := PartGap
		if active != 0 {
			part = rankParts[bits.TrailingZeros16(active)]
		}
		add(at, now, part)
		at = now
		for ; i < len(w.edges) && w.edges[i].at == now; i++ {
			e := w.edges[i]
			count[e.rank] += int(e.delta)
			if count[e.rank] > 0 {
				active |= 1 << e.rank
			} else {
				active &^= 1 << e.rank
			}
		}
	}
	add(at, own.end, PartGap)
	w.path.pieces = pieces
	return pieces
}
