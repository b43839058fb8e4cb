package timeline

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// compatItem is an item of the reference's row.
type compatItem struct {
	kind       uint8
	ev, endEv  int32
	start      float64 // unrounded; of points and orphans the time
	end        float64 // display_end_ts
	rs, re     float64 // both rounded: what is written and sorted by
	parent     ref     // JSON of the parent's id; n == 0: none
	parentSlot int32
	slot       int32
	depth      int32
	clip       uint8
	role       uint8 // of virtual ones: 0 prefill, 1 decode
}

const (
	itemClosed = iota
	itemOpen
	itemPoint
	itemOrphan
	itemVirtual
)

// compatSlot is what is known of a span id.
type compatSlot struct {
	key   ref
	open  int32 // item of the span that waits for its end, -1
	span  int32 // the item that counts for the id, -1
	depth int32 // -1 until known
	on    int32 // topmost entry of the stack with that id, -1
	end   float64
	state uint8 // of end: 0 unknown, 1 on the path, 2 known, 3 there is none
}

type compatEntry struct {
	slot    int32
	text    ref
	below   int32 // the entry before with the same id
	removed bool
}

// compatBuilder makes the reference's row out of a job.
type compatBuilder struct {
	j          *compatJob
	seed       maphash.Seed
	table      []int32
	slots      []compatSlot
	stack      []compatEntry
	items      []compatItem
	spans      []int32 // all_spans
	order      []int32
	path       []int32
	groups     []startKeyF
	next       []float64
	out        []byte
	start, end float64 // of the row, rounded
}

type startKeyF struct {
	parent int32
	item   int32
	start  float64
}

// slot returns the place of an id in slots, made when there is none.
func (b *compatBuilder) slot(key ref) int32 {
	text := b.j.text(key)
	mask := len(b.table) - 1
	h := int(maphash.Bytes(b.seed, text)) & mask
	for ; b.table[h] != 0; h = (h + 1) & mask {
		if bytes.Equal(b.j.text(b.slots[b.table[h]-1].key), text) {
			return b.table[h] - 1
		}
	}
	b.slots = append(b.slots, compatSlot{key: key, open: -1, span: -1, depth: -1, on: -1})
	b.table[h] = int32(len(b.slots))
	return int32(len(b.slots) - 1)
}

// build returns the row's JSON, valid until the next call.
func (b *compatBuilder) build(j *compatJob) []byte {
	b.j = j
	size := 16
	for size < 4*len(j.events) {
		size *= 2
	}
	if b.table == nil {
		b.seed = maphash.MakeSeed()
	}
	b.table = resize(b.table, size)
	clear(b.table)
	b.slots, b.stack, b.items, b.spans = b.slots[:0], b.stack[:0], b.items[:0], b.spans[:0]
	rowEnd := b.match()
	for i := range b.items {
		if b.items[i].kind == itemOpen {
			b.spans = append(b.spans, int32(i))
		}
	}
	for _, i := range b.spans {
		b.slots[b.items[i].slot].span = i
	}
	b.depths()
	if slices.ContainsFunc(b.items, func(it compatItem) bool { return it.kind == itemOpen }) {
		b.clip(rowEnd)
	}
	b.virtual()
	b.sort()
	return b.write()
}

// match pairs starts and ends, and infers parents from a stack that only ends take from.
func (b *compatBuilder) match() (rowEnd float64) {
	rowEnd = math.Inf(-1)
	for i := range b.j.events {
		e := &b.j.events[i]
		rowEnd = max(rowEnd, e.ts)
		it := compatItem{ev: int32(i), endEv: -1, start: e.ts, end: e.ts, parentSlot: -1, slot: -1}
		for n := len(b.stack); n > 0 && b.stack[n-1].removed; n-- {
			b.stack = b.stack[:n-1]
		}
		switch n := len(b.stack); {
		case e.parent.n > 0:
			it.parent, it.parentSlot = e.parent, b.slot(e.parentKey)
		case n > 0:
			it.parent, it.parentSlot = b.stack[n-1].text, b.stack[n-1].slot
		}
		switch e.kind {
		case compatStart:
			s := b.slot(e.key)
			it.slot, it.kind = s, itemOpen
			b.stack = append(b.stack, compatEntry{slot: s, text: e.id, below: b.slots[s].on})
			b.slots[s].on = int32(len(b.stack) - 1)
			if o := b.slots[s].open; o >= 0 {
				b.items[o] = it // a dict's entry written again keeps its place
			} else {
				b.slots[s].open = int32(len(b.items))
				b.items = append(b.items, it)
			}
			continue
		case compatEnd:
			s := &b.slots[b.slot(e.key)]
			if s.on >= 0 {
				b.stack[s.on].removed = true
				s.on = b.stack[s.on].below
			}
			if s.open >= 0 {
				o := &b.items[s.open]
				o.kind, o.endEv, o.end = itemClosed, int32(i), e.ts
				b.spans = append(b.spans, s.open)
				s.open = -1
				continue
			}
			it.kind = itemOrphan
		case compatOther:
			it.kind = itemOrphan
		default:
			it.kind = itemPoint
		}
		b.items = append(b.items, it)
	}
	return rowEnd
}

// depths gives every id the depth that the reference's recursion gives it, cycles included.
func (b *compatBuilder) depths() {
	for _, i := range b.spans {
		at := b.items[i].slot
		path := b.path[:0]
		var depth int32
		for {
			s := &b.slots[at]
			if s.depth >= 0 {
				depth = s.depth + 1
				break
			}
			if s.state == 1 { // a cycle: it counts as 0 where it closes
				depth = 1
				break
			}
			s.state = 1
			path = append(path, at)
			p := b.items[s.span].parentSlot
			if p < 0 || b.slots[p].span < 0 {
				depth = 0
				break
			}
			at = p
		}
		for _, at := range slices.Backward(path) {
			b.slots[at].depth = depth
			b.slots[at].state = 0
			depth++
		}
		b.path = path
	}
	for i := range b.items {
		it := &b.items[i]
		switch it.kind {
		case itemPoint, itemOrphan:
			if it.parentSlot >= 0 && b.slots[it.parentSlot].depth >= 0 {
				it.depth = b.slots[it.parentSlot].depth + 1
			}
		default:
			it.depth = b.slots[it.slot].depth
		}
	}
}

// clip says how far open spans are drawn.
func (b *compatBuilder) clip(rowEnd float64) {
	keys := b.groups[:0]
	for _, i := range b.spans {
		keys = append(keys, startKeyF{b.items[i].parentSlot, i, b.items[i].start})
	}
	slices.SortFunc(keys, func(x, y startKeyF) int {
		if c := cmp.Compare(x.parent, y.parent); c != 0 {
			return c
		}
		return cmp.Compare(x.start, y.start)
	})
	b.groups = keys
	b.next = resize(b.next, len(b.items))
	next, current := math.Inf(1), math.Inf(1)
	for i := len(keys) - 1; i >= 0; i-- {
		k := keys[i]
		if i == len(keys)-1 || keys[i+1].parent != k.parent {
			next, current = math.Inf(1), math.Inf(1)
		}
		if k.start < current {
			next, current = current, k.start
		}
		b.next[k.item] = next
	}
	for _, i := range b.spans {
		it := &b.items[i]
		if it.kind != itemOpen {
			continue
		}
		it.end, it.clip = rowEnd, clipRow
		if b.next[i] < it.end {
			it.end, it.clip = b.next[i], clipSibling
		}
		if a, ok := b.ancestorEnd(it.parentSlot); ok && a > it.start && a < it.end {
			it.end, it.clip = a, clipAncestor
		}
		if it.end <= it.start {
			it.end, it.clip = it.start, clipSelf
		}
	}
}

// ancestorEnd is the end of the nearest closed span at a slot or above it.
func (b *compatBuilder) ancestorEnd(at int32) (float64, bool) {
	path := b.path[:0]
	end, state := 0.0, uint8(3)
	for at >= 0 && b.slots[at].span >= 0 {
		s := &b.slots[at]
		if s.state == 1 {
			break
		}
		if s.state > 1 {
			end, state = s.end, s.state
			break
		}
		it := &b.items[s.span]
		if it.kind == itemClosed {
			end, state = it.end, 2
			break
		}
		s.state = 1
		path = append(path, at)
		at = it.parentSlot
	}
	for _, x := range path {
		b.slots[x].end, b.slots[x].state = end, state
	}
	b.path = path
	return end, state == 2
}

// virtual adds the lanes of phases that stand in end attributes.
func (b *compatBuilder) virtual() {
	if len(b.j.pd) == 0 {
		return
	}
	lane := int32(-1)
	for i := range b.items {
		lane = max(lane, b.items[i].depth)
	}
	for _, i := range b.spans {
		it := b.items[i]
		if it.kind != itemClosed {
			continue
		}
		e := &b.j.events[it.endEv]
		if name := b.j.events[it.ev].name; !name.none && strings.HasPrefix(name.raw, "sglang_pd_") {
			continue
		}
		var has [2]bool
		for _, p := range b.j.pd[e.pd : e.pd+e.pdN] {
			has[b2i(p.key >= pdPrefillKeys)] = true
		}
		for role, ok := range has {
			if ok {
				lane++
				v := it
				v.kind, v.role, v.depth = itemVirtual, uint8(role), lane
				b.items = append(b.items, v)
			}
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sort orders items by lane, start, end and name; what is equal in these keeps the reference's order:
// spans, points, orphan ends, virtual lanes.
func (b *compatBuilder) sort() {
	b.order = b.order[:0]
	b.order = append(b.order, b.spans...)
	for _, kind := range [...]uint8{itemPoint, itemOrphan, itemVirtual} {
		for i := range b.items {
			if b.items[i].kind == kind {
				b.order = append(b.order, int32(i))
			}
		}
	}
	for i := range b.items {
		it := &b.items[i]
		it.rs, it.re = roundMicro(it.start), roundMicro(it.end)
	}
	slices.SortStableFunc(b.order, func(x, y int32) int {
		p, q := &b.items[x], &b.items[y]
		if c := cmp.Compare(p.depth, q.depth); c != 0 {
			return c
		}
		if c := cmp.Compare(p.rs, q.rs); c != 0 {
			return c
		}
		if c := cmp.Compare(p.re, q.re); c != 0 {
			return c
		}
		return b.compareNames(p, q)
	})
}

func (b *compatBuilder) compareNames(p, q *compatItem) int {
	n, m := b.j.events[p.ev].name, b.j.events[q.ev].name
	if n == m && p.kind != itemVirtual && q.kind != itemVirtual {
		return 0
	}
	switch {
	case p.kind == itemVirtual || q.kind == itemVirtual:
		return strings.Compare(b.virtualName(p, n), b.virtualName(q, m))
	case n.str && m.str:
		return strings.Compare(n.raw, m.raw)
	case n.num && m.num:
		return cmp.Compare(n.f, m.f)
	}
	return bytes.Compare(n.json, m.json)
}

func (b *compatBuilder) virtualName(it *compatItem, n *compatName) string {
	switch {
	case it.kind != itemVirtual:
		return n.raw
	case it.role == 0:
		return n.raw + " [P]"
	}
	return n.raw + " [D]"
}

// write appends the row's JSON.
func (b *compatBuilder) write() []byte {
	j := b.j
	b.start, b.end = math.Inf(1), math.Inf(-1)
	lanes := int32(0)
	var counts [5]int
	var lengths compatLengths
	length := func(ev int32, nested bool) {
		if ev < 0 {
			return
		}
		e := &j.events[ev]
		for _, r := range j.resp[e.resp : e.resp+e.respN] {
			if !r.nested || nested {
				lengths.add(r)
			}
		}
	}
	for i := range b.items {
		it := &b.items[i]
		b.start, b.end = min(b.start, it.rs), max(b.end, it.re)
		lanes = max(lanes, it.depth)
		counts[it.kind]++
		switch it.kind {
		case itemVirtual:
		case itemPoint, itemOrphan:
			length(it.ev, true)
		default:
			length(it.ev, false)
			length(it.endEv, false)
		}
	}
	o := b.out[:0]
	field := func(key string, r ref) {
		o = append(o, key...)
		o = append(o, j.text(r)...)
	}
	number := func(key string, n int64) {
		o = append(o, key...)
		o = strconv.AppendInt(o, n, 10)
	}
	number(`{"row_id":`, int64(j.at))
	field(`,"sample_index":`, j.index)
	field(`,"group_index":`, j.group)
	field(`,"source":`, j.source)
	field(`,"status":`, j.status)
	field(`,"label":`, j.label)
	field(`,"reward":`, j.reward)
	field(`,"trace_id":`, j.traceID)
	field(`,"attempt":`, j.attempt)
	o = append(o, `,"start":`...)
	o = appendMicro(o, b.start)
	o = append(o, `,"end":`...)
	o = appendMicro(o, b.end)
	o = append(o, `,"duration":`...)
	o = appendMicro(o, roundMicro(max(0, b.end-b.start)))
	number(`,"lane_count":`, int64(lanes)+1)
	number(`,"item_count":`, int64(len(b.order)))
	number(`,"closed_span_count":`, int64(counts[itemClosed]+counts[itemVirtual]))
	number(`,"open_span_count":`, int64(counts[itemOpen]))
	number(`,"point_event_count":`, int64(counts[itemPoint]))
	number(`,"orphan_count":`, int64(counts[itemOrphan]))
	o = append(o, `,"total_response_length":`...)
	o = appendBigInt(o, lengths.total, lengths.bigTotal)
	o = append(o, `,"max_response_length":`...)
	o = appendBigInt(o, lengths.longest, lengths.bigLongest)
	o = append(o, `,"items":[`...)
	for n, i := range b.order {
		if n > 0 {
			o = append(o, ',')
		}
		o = b.item(o, &b.items[i])
	}
	o = append(o, ']', '}')
	b.out = o
	return o
}

// compatLengths sums up response lengths, of which nothing says that they are small.
type compatLengths struct {
	any                  bool
	total, longest       int64
	bigTotal, bigLongest *big.Int // instead, once one is big
}

func (l *compatLengths) add(r compatResp) {
	if r.big == nil && l.bigTotal == nil && l.total < 1<<62 && l.total > -1<<62 {
		l.total += r.n
		if !l.any || r.n > l.longest {
			l.longest = r.n
		}
		l.any = true
		return
	}
	n := r.big
	if n == nil {
		n = big.NewInt(r.n)
	}
	if l.bigTotal == nil {
		l.bigTotal, l.bigLongest = big.NewInt(l.total), big.NewInt(l.longest)
	}
	l.bigTotal = new(big.Int).Add(l.bigTotal, n)
	if !l.any || n.Cmp(l.bigLongest) > 0 {
		l.bigLongest = n
	}
	l.any = true
}

var (
	nullJSON  = []byte("null")
	itemHeads = [...]string{
		itemClosed:  `{"type":"span","state":"closed_span","name":`,
		itemOpen:    `{"type":"span","state":"open_span","name":`,
		itemPoint:   `{"type":"event","state":"point_event","name":`,
		itemOrphan:  `{"type":"orphan_end","state":"orphan_end","name":`,
		itemVirtual: `{"type":"span","state":"closed_span","name":`,
	}
	roleNames  = [...]string{"prefill", "decode"}
	roleSuffix = [...]string{" [P]\"", " [D]\""}
)

func (b *compatBuilder) item(o []byte, it *compatItem) []byte {
	j := b.j
	e := &j.events[it.ev]
	o = append(o, itemHeads[it.kind]...)
	if it.kind == itemVirtual {
		o = append(o, '"')
		o = appendPyText(o, []byte(e.name.raw))
		o = append(o, roleSuffix[it.role]...)
	} else {
		o = append(o, e.name.json...)
	}
	span := it.kind != itemPoint && it.kind != itemOrphan
	if span {
		o = append(o, `,"start_ts":`...)
		o = appendMicro(o, it.rs)
		o = append(o, `,"end_ts":`...)
		at := len(o)
		o = appendMicro(o, it.re)
		if it.kind == itemOpen {
			o = append(o[:at], nullJSON...)
			o = append(o, `,"display_end_ts":`...)
			o = appendMicro(o, it.re)
		} else {
			end := len(o)
			o = append(o, `,"display_end_ts":`...)
			o = append(o, o[at:end]...)
		}
	} else {
		o = append(o, `,"ts":`...)
		o = appendMicro(o, it.rs)
	}
	o = append(o, `,"attempt":`...)
	o = append(o, j.text(e.attempt)...)
	o = append(o, `,"span_id":`...)
	switch {
	case it.kind == itemPoint:
		o = append(o, nullJSON...)
	case it.kind == itemVirtual:
		o = b.virtualID(o, j.text(e.id), it.role)
	default:
		o = append(o, j.text(e.id)...)
	}
	o = append(o, `,"parent_span_id":`...)
	switch {
	case it.kind == itemVirtual:
		o = append(o, j.text(e.id)...)
	case it.parent.n == 0:
		o = append(o, nullJSON...)
	default:
		o = append(o, j.text(it.parent)...)
	}
	o = append(o, `,"parent_span_name":`...)
	switch {
	case it.kind == itemVirtual:
		o = append(o, e.name.json...)
	case it.parentSlot >= 0 && b.slots[it.parentSlot].span >= 0:
		o = append(o, j.events[b.items[b.slots[it.parentSlot].span].ev].name.json...)
	default:
		o = append(o, nullJSON...)
	}
	o = append(o, `,"lane":`...)
	at := len(o)
	o = strconv.AppendInt(o, int64(it.depth), 10)
	end := len(o)
	o = append(o, `,"depth":`...)
	o = append(o, o[at:end]...)
	o = append(o, `,"attrs":`...)
	switch it.kind {
	case itemClosed:
		o = append(o, `{"start_attrs":`...)
		o = append(o, j.text(e.attrs)...)
		o = append(o, `,"end_attrs":`...)
		o = append(o, j.text(j.events[it.endEv].attrs)...)
		o = append(o, '}')
	case itemOpen:
		o = append(o, `{"start_attrs":`...)
		o = append(o, j.text(e.attrs)...)
		o = append(o, `,"end_attrs":{"clipped_by":"`...)
		o = append(o, clipNames[it.clip]...)
		o = append(o, `"}}`...)
	case itemVirtual:
		o = b.phases(o, it)
	default:
		o = append(o, j.text(e.attrs)...)
	}
	return append(o, '}')
}

// virtualID appends the id of a virtual lane: the span's, as Python's str shows it, and its role.
func (b *compatBuilder) virtualID(o, id []byte, role uint8) []byte {
	if len(id) >= 2 && id[0] == '"' {
		o = append(o, id[:len(id)-1]...)
	} else {
		o = append(o, '"')
		if string(id) == "true" {
			id = []byte("True")
		}
		o = appendPyText(o, id)
	}
	o = append(o, ":pd:"...)
	o = append(o, roleNames[role]...)
	return append(o, '"')
}

// phases appends the attributes of a virtual lane.
func (b *compatBuilder) phases(o []byte, it *compatItem) []byte {
	j := b.j
	e := &j.events[it.endEv]
	o = append(o, `{"start_attrs":{},"end_attrs":{`...)
	list := j.pd[e.pd : e.pd+e.pdN]
	for key := uint8(it.role) * pdPrefillKeys; key < uint8(it.role+1)*pdPrefillKeys; key++ {
		for _, p := range list {
			if p.key == key {
				o = append(o, '"')
				o = append(o, pdKeys[key]...)
				o = append(o, '"', ':')
				o = append(o, j.text(p.value)...)
				o = append(o, ',')
			}
		}
	}
	o = append(o, `"timeline_pd_virtual_role":"`...)
	o = append(o, roleNames[it.role]...)
	o = append(o, `","timeline_pd_parent_name":`...)
	o = append(o, j.events[it.ev].name.json...)
	o = append(o, `,"timeline_pd_parent_duration":`...)
	o = appendMicro(o, roundMicro(max(0, it.end-it.start)))
	return append(o, '}', '}')
}
