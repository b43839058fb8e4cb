package timeline

import "io"

// answerHead is the dump's head for an answer that carries few columns; without dictionaries where the
// columns do not refer to them.
func (ix *Index) answerHead(dicts bool) Head {
	h := ix.head
	h.Attrs, h.Details, h.Texts, h.Step = nil, nil, nil, nil
	if !dicts {
		none := []string{}
		h.Dicts = Dicts{Name: none, Status: none, Source: none, Label: none, Why: none, Finish: none, Clip: none, Class: none}
	}
	return h
}

// WriteHead writes the head alone: what a page asks for first.
func (ix *Index) WriteHead(w io.Writer) error {
	h := ix.answerHead(true)
	h.Step = ix.head.Step
	// Labels and sources are as many as rows; windows bring those that they need.
	h.Dicts.Label, h.Dicts.Source = []string{""}, []string{""}
	return writeContainer(w, &h, nil, nil)
}

// WriteOrder writes q's rows in order.
func (ix *Index) WriteOrder(w io.Writer, q Query) error {
	order, err := ix.Order(q)
	if err != nil {
		return err
	}
	h := ix.answerHead(false)
	h.Counts.Rows = len(order)
	v := &vec[uint32]{}
	v.set(order)
	return writeContainer(w, &h, []column{{"order.row", "u32", "dv", zv[uint32]{v, 0, 1<<32 - 1, true}}}, nil)
}

// WriteRaster writes a picture.
func (ix *Index) WriteRaster(w io.Writer, img *RasterImage) error {
	h := ix.answerHead(false)
	class, fill := &vec[uint8]{}, &vec[uint8]{}
	class.set(img.Class)
	fill.set(img.Fill)
	return writeContainer(w, &h, []column{{"raster.class", "u8", "raw", raw8{class, 255}}, {"raster.fill", "u8", "raw", raw8{fill, 255}}}, nil)
}
