package timeline

import "strings"

// Decode reads a container with row and item columns: a whole one or a window. Memory is bounded by
// the size of data (times what deflate can, up to 1 GiB); everything that a later step relies on is
// checked. The columns share no memory with data except attributes, details and texts.
func Decode(data []byte) (*Columns, error) {
	f, err := openContainer(data)
	if err != nil {
		return nil, err
	}
	c := NewColumns(Head{})
	c.Head = f.head
	if err := c.takeDicts(); err != nil {
		return nil, err
	}
	for _, info := range f.head.Columns {
		if info.Name == "row.id" {
			c.rowID = &vec[uint32]{}
		}
	}
	for _, col := range c.columns() {
		ok, err := f.column(col)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, bad("there is no column %s", col.name)
		}
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	return c, c.takeBlocks(f)
}

func (c *Columns) takeDicts() error {
	d := &c.Head.Dicts
	for _, x := range []struct {
		name string
		list []string
		into **dict
		max  int
	}{
		{"name", d.Name, &c.names, 1 << 16}, {"status", d.Status, &c.statuses, 1 << 8}, {"source", d.Source, &c.sources, 1 << 16},
		{"label", d.Label, &c.labels, 1 << 31}, {"why", d.Why, &c.whys, 1 << 8}, {"finish", d.Finish, &c.finishes, 1 << 8},
		{"clip", d.Clip, &c.clips, 1 << 8},
	} {
		if len(x.list) == 0 || x.list[0] != "" || len(x.list) > x.max {
			return bad("dictionary %s has %d entries; the first must be empty, at most %d are allowed", x.name, len(x.list), x.max)
		}
		*x.into = dictOf(x.list, x.max)
	}
	// Readers know the classes by number; a newer writer may have added some at the end.
	if got := strings.Join(d.Class, " "); !strings.HasPrefix(got+" ", strings.Join(classNames(), " ")+" ") {
		return bad("the classes are %q", clean(got, 200))
	}
	return nil
}

// check tells whether the columns fit together.
func (c *Columns) check() error {
	h := &c.Head
	nRows, nItems, nReqs := c.Rows(), c.Items(), c.Requests()
	if h.Counts.Rows != nRows {
		return bad("the head says %d rows, there are %d", h.Counts.Rows, nRows)
	}
	for _, n := range []int{h.Counts.Samples, h.Counts.Items, h.Counts.Requests, h.Counts.Events, h.Counts.Skipped} {
		if n < 0 {
			return bad("the head has a negative count")
		}
	}
	if c.rowID == nil && (h.Counts.Items != nItems || h.Counts.Requests != nReqs) {
		return bad("the head says %d items and %d requests, there are %d and %d", h.Counts.Items, h.Counts.Requests, nItems, nReqs)
	}
	for _, col := range c.columns() {
		want := 0
		switch col.name[:strings.IndexByte(col.name, '.')] {
		case "row":
			want = nRows
		case "item":
			want = nItems
		case "req":
			want = nReqs
		case "seg":
			want = c.segs.start.len()
		}
		if col.s.len() != want {
			return bad("column %s has %d elements, not %d", col.name, col.s.len(), want)
		}
	}
	if e := h.Extent; e != nil && (e[0] > e[1] || e[0] < -maxSafe || e[1] > maxSafe) {
		return bad("the extent is %d to %d", e[0], e[1])
	}
	if h.Extent == nil && nItems > 0 && c.rowID == nil {
		return bad("there are items and no extent")
	}
	if h.T0 > maxUnits*unitNS || h.T0 < -maxUnits*unitNS {
		return bad("time 0 is %d", h.T0)
	}
	if e := h.Extent; e != nil {
		c.hasBase, c.base, c.lo, c.hi = true, units(h.T0), e[0], e[1]
	}
	for _, x := range []struct {
		name string
		v    interface{ most() uint32 }
		d    *dict
	}{
		{"row.status", most[uint8]{&c.rows.status}, c.statuses}, {"row.why", most[uint8]{&c.rows.why}, c.whys},
		{"row.source", most[uint16]{&c.rows.source}, c.sources}, {"row.label", most[uint32]{&c.rows.label}, c.labels},
		{"item.name", most[uint16]{&c.items.name}, c.names}, {"item.clip", most[uint8]{&c.items.clip}, c.clips},
		{"req.name", most[uint16]{&c.reqs.name}, c.names}, {"req.finish", most[uint8]{&c.reqs.finish}, c.finishes},
	} {
		if m := x.v.most(); uint64(m) >= uint64(len(x.d.list)) {
			return bad("column %s refers to entry %d of a dictionary of %d", x.name, m, len(x.d.list))
		}
	}
	return c.checkPlaces()
}

type most[T uint8 | uint16 | uint32] struct{ v *vec[T] }

func (m most[T]) most() uint32 {
	x := T(0)
	for _, y := range m.v.flat() {
		x = max(x, y)
	}
	return uint32(x)
}

// checkPlaces checks what rows own, and places within a row.
func (c *Columns) checkPlaces() error {
	items, reqs := c.rows.items.flat(), c.rows.requests.flat()
	parent, request, segs, reqItem := c.items.parent.flat(), c.items.request.flat(), c.items.segs.flat(), c.reqs.item.flat()
	why := c.rows.why.flat()
	i, q := 0, 0
	for r, n := range items {
		m := reqs[r]
		if int(n) > len(parent)-i || int(m) > len(reqItem)-q {
			return bad("row %d has more items or requests than there are", r)
		}
		if why[r] != 0 && n > 0 {
			return bad("row %d has items although it is said to be empty", r)
		}
		for k := range int(n) {
			if p := parent[i+k]; p >= int32(n) || p == int32(k) {
				return bad("item %d of row %d has parent %d", k, r, p)
			}
			if p := request[i+k]; p >= int32(m) {
				return bad("item %d of row %d has request %d", k, r, p)
			}
		}
		for k := range int(m) {
			if p := reqItem[q+k]; p >= int32(n) {
				return bad("request %d of row %d has item %d", k, r, p)
			}
		}
		i += int(n)
		q += int(m)
	}
	if i != len(parent) || q != len(reqItem) {
		return bad("%d items and %d requests belong to no row", len(parent)-i, len(reqItem)-q)
	}
	sum := 0
	for _, n := range segs {
		sum += int(n)
	}
	if sum != c.segs.start.len() {
		return bad("items have %d segments, there are %d", sum, c.segs.start.len())
	}
	// Ends stay within what every reader has exactly.
	starts, durs := c.items.start.flat(), c.items.dur.flat()
	for k, s := range starts {
		if s > maxSafe-durs[k] {
			return bad("item %d ends beyond the range of times", k)
		}
	}
	rowStart, rowDur := c.rows.start.flat(), c.rows.dur.flat()
	for k, s := range rowStart {
		if s > maxSafe-rowDur[k] {
			return bad("row %d ends beyond the range of times", k)
		}
	}
	return nil
}

// takeBlocks takes the blobs of attributes, details and texts out of f.
func (c *Columns) takeBlocks(f *container) error {
	used := make([]int, len(f.head.Blobs)) // 1 + its number in c.blobs
	left := maxBlocks
	mark := func(what string, blob int) error {
		if blob < 0 || blob >= len(used) || f.head.Blobs[blob].Raw > maxBlock {
			return bad("%s stand in blob %d", what, blob)
		}
		if left -= f.head.Blobs[blob].Raw; left < 0 {
			return bad("attributes, details and texts inflate to more than %d bytes", maxBlocks)
		}
		used[blob] = 1
		return nil
	}
	for _, x := range []struct {
		name string
		list []Block
		into *blockWriter
	}{{"attributes", c.Head.Attrs, &c.attrs}, {"details", c.Head.Details, &c.details}} {
		next := 0
		for _, b := range x.list {
			if b.From != next || b.Rows <= 0 || b.Rows > c.Rows()-next {
				return bad("a block of %s has %d rows from row %d", x.name, b.Rows, b.From)
			}
			if err := mark(x.name, b.Blob); err != nil {
				return err
			}
			next += b.Rows
		}
		if next != c.Rows() && len(x.list) > 0 {
			return bad("%s end at row %d of %d", x.name, next, c.Rows())
		}
		x.into.blocks, x.into.next = x.list, next
	}
	for _, t := range c.Head.Texts {
		if err := mark("texts", t.Blob); err != nil {
			return err
		}
	}
	c.texts.blocks = c.Head.Texts
	for i, b := range f.head.Blobs {
		if used[i] != 0 {
			c.blobs.list = append(c.blobs.list, blob{f.data[b.Offset : b.Offset+b.Bytes], b.Raw, b.Enc})
			used[i] = len(c.blobs.list)
		}
	}
	for _, list := range [][]Block{c.attrs.blocks, c.details.blocks} {
		for i := range list {
			list[i].Blob = used[list[i].Blob] - 1
		}
	}
	for i := range c.texts.blocks {
		c.texts.blocks[i].Blob = used[c.texts.blocks[i].Blob] - 1
	}
	return nil
}
