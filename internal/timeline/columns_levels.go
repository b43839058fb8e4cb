package timeline

import (
	"encoding/json"
	"fmt"
	"slices"
)

// LevelOptions are the choices of [Levels]; zero fields mean their defaults.
type LevelOptions struct {
	MaxItems int // a dump with more is reduced; 2,000,000
	Slowest  int // rows of the longest duration that stay whole; 200
	Pixels   int // what is below the extent divided by this is merged per lane; 4,000
}

// Levels returns a timeline of c that can be embedded into a page: c itself when it is small enough,
// else one in which small items of all but the slowest rows are merged, and attributes are kept for
// those only. Its head's Note says so. When merging is not enough, it is done more coarsely.
func Levels(c *Columns, o LevelOptions) (*Columns, error) {
	if o.MaxItems <= 0 {
		o.MaxItems = 2_000_000
	}
	if o.Slowest <= 0 {
		o.Slowest = 200
	}
	if o.Pixels <= 0 {
		o.Pixels = 4000
	}
	if c.Items() <= o.MaxItems {
		return c, nil
	}
	ix := NewIndex(c)
	t0, t1 := ix.Extent()
	order, err := ix.Order(Query{Sort: "dur", Desc: true})
	if err != nil {
		return nil, err
	}
	whole := make([]bool, ix.Rows())
	kept, slowest := 0, 0
	for _, r := range order[:min(o.Slowest, len(order))] {
		if kept += int(ix.nItems[r]); kept > o.MaxItems/2 {
			break // a few samples may be most of the dump
		}
		whole[r] = true
		slowest++
	}
	var w *Columns
	pixels := min(o.Pixels, maxSide)
	lanes := true
	for {
		if w, err = ix.levels(whole, pixels, lanes, t0, max(t1, t0+1)); err != nil {
			return nil, err
		}
		if w.Items() <= o.MaxItems || pixels <= 8 {
			break
		}
		if pixels /= 2; pixels < 1000 {
			lanes = false
		}
	}
	how := "in each lane"
	if !lanes {
		how = "over all lanes"
	}
	w.Head.Detail = "levels"
	w.Head.Note = fmt.Sprintf("%d items are too many for one page: the %d slowest samples are whole; of the others, what is shorter than %.3g s (1/%d of the step) is merged %s, and attributes are left out. Serve the dump to see everything.",
		c.Items(), slowest, ix.seconds(t1-t0)/float64(pixels), pixels, how)
	if c.Head.Note != "" {
		w.Head.Note = c.Head.Note + " " + w.Head.Note
	}
	return w, nil
}

// levels copies rows, whole or merged.
func (ix *Index) levels(whole []bool, pixels int, perLane bool, t0, t1 int64) (*Columns, error) {
	w := ix.emptyCopy()
	w.Head.Step = ix.head.Step
	full := merger{ix: ix, t0: t0, t1: t1}
	part := merger{ix: ix, t0: t0, t1: t1, pixels: pixels, perLane: perLane}
	var rows []json.RawMessage // of the attribute block of the row at hand
	block := -1
	for r := range whole {
		m := &part
		if whole[r] {
			m = &full
		}
		ix.copyRow(w, r, m)
		if len(ix.head.Attrs) == 0 {
			continue
		}
		w.attrs.begin()
		if m == &part && m.merged {
			w.attrs.buf = append(w.attrs.buf, "[]"...)
		} else {
			i := slices.IndexFunc(ix.head.Attrs[max(block, 0):], func(b Block) bool { return r < b.From+b.Rows }) + max(block, 0)
			if i != block {
				var err error
				if rows, err = ix.c.readBlock(ix.head.Attrs[i]); err != nil {
					return nil, err
				}
				block = i
			}
			w.attrs.buf = append(w.attrs.buf, rows[r-ix.head.Attrs[i].From]...)
		}
		w.attrs.end(&w.blobs)
	}
	w.attrs.flush(&w.blobs)
	for _, b := range ix.head.Details {
		w.details.blocks = append(w.details.blocks, Block{b.From, b.Rows, len(w.blobs.list)})
		w.blobs.put(ix.c.blobs.list[b.Blob])
	}
	w.details.next = ix.Rows()
	for _, t := range ix.head.Texts {
		w.texts.blocks = append(w.texts.blocks, TextBlock{t.Rows, len(w.blobs.list)})
		w.blobs.put(ix.c.blobs.list[t.Blob])
	}
	return w, nil
}
