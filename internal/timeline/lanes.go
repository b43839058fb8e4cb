package timeline

import (
	"math"
	"slices"
)

// layout gives every item its lane.
//
// A span's children lie in the lanes below it, depth first. Children that overlap, themselves or by
// what is in them, lie in different tracks; a child goes to the first track that is free when it
// begins, and a track is as high as the highest of what lies in it. So work that runs one after the other
// lies in the lanes that its depth says, and nothing is ever painted over. A point lies on its parent's
// lane, or on the first one when it has none.
func (b *Builder) layout() {
	for i := range b.nodes {
		n := &b.nodes[i]
		n.lo, n.hi, n.height, n.rel = n.start, n.end, 1, 0
	}
	skew := int64(b.opts.Skew)
	for _, i := range slices.Backward(b.topo) {
		n := &b.nodes[i]
		b.packKids(i)
		if n.parent < 0 {
			continue
		}
		p := &b.nodes[n.parent]
		if (n.start < p.start-skew || n.end > p.end+skew) && n.flags&Derived == 0 {
			n.flags |= Skewed
		}
		p.lo, p.hi = min(p.lo, n.lo), max(p.hi, n.hi)
	}
	b.packKids(-1)
	for _, i := range b.topo {
		n := &b.nodes[i]
		n.lane = n.rel
		if n.parent >= 0 {
			n.lane += b.nodes[n.parent].lane
		}
	}
}

// packKids places the children of a node (-1: the roots) below it; they are packed already.
func (b *Builder) packKids(of int32) {
	kids := b.children(of)
	if len(kids) == 0 {
		return
	}
	// By start of what they hold. A child may hold something that began before it did.
	list := b.pack.list[:0]
	sorted := true
	for _, i := range kids {
		n := &b.nodes[i]
		if !n.span || n.follows {
			continue
		}
		k := startKey{n.lo, n.hi, i}
		if n.pair >= 0 {
			d := &b.nodes[n.pair]
			k.start, k.end = min(k.start, d.lo), max(k.end, d.hi)
			n.height = 2
		}
		sorted = sorted && (len(list) == 0 || list[len(list)-1].start <= k.start)
		list = append(list, k)
	}
	if !sorted {
		slices.SortFunc(list, startKey.compare)
	}
	// A request's [P] and [D] come directly below it.
	for i, k := range list {
		if b.nodes[k.i].flags&Virtual != 0 {
			copy(list[1:i+1], list[:i])
			list[0] = k
		}
	}
	p := &b.pack
	p.list = list
	p.reset()
	for _, k := range list {
		n := &b.nodes[k.i]
		n.rel = p.place(k.start, k.end, n.height)
	}
	base := int32(1)
	if of < 0 {
		base = 0
	}
	total := base
	for i, h := range p.heights {
		p.heights[i] = total
		total += h
	}
	for _, k := range list {
		n := &b.nodes[k.i]
		n.rel = p.heights[n.rel]
		if n.pair >= 0 {
			b.nodes[n.pair].rel = n.rel + 1
		}
	}
	if of >= 0 {
		b.nodes[of].height = total
	}
}

// packer assigns intervals that come in the order of their starts to tracks: each to the first that is
// free. It finds that in log n by a tree of the least ends.
type packer struct {
	list    []startKey
	heights []int32
	tree    []int64 // tree[1] is the root, tree[size+i] the end of track i
	size    int
}

func (p *packer) reset() {
	p.heights = p.heights[:0]
	p.grow(4)
}

// grow makes room for size tracks, a power of two, keeping those there are.
func (p *packer) grow(size int) {
	old := p.tree
	if cap(p.tree) < 2*size {
		p.tree = make([]int64, 2*size)
	} else {
		p.tree = p.tree[:2*size]
	}
	n := len(p.heights)
	if n > 0 {
		copy(p.tree[size:size+n], old[p.size:p.size+n])
	}
	for i := size + n; i < 2*size; i++ {
		p.tree[i] = math.MinInt64
	}
	p.size = size
	for i := size - 1; i >= 1; i-- {
		p.tree[i] = min(p.tree[2*i], p.tree[2*i+1])
	}
}

func (p *packer) place(start, end int64, height int32) int32 {
	if p.tree[1] > start {
		p.grow(2 * p.size)
	}
	at := 1
	for at < p.size {
		if at *= 2; p.tree[at] > start {
			at++
		}
	}
	track := at - p.size
	if track == len(p.heights) {
		p.heights = append(p.heights, 0)
	}
	p.heights[track] = max(p.heights[track], height)
	p.tree[at] = end
	for at /= 2; at >= 1; at /= 2 {
		p.tree[at] = min(p.tree[2*at], p.tree[2*at+1])
	}
	return int32(track)
}
