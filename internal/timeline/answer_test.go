package timeline

import (
	"bytes"
	"slices"
	"testing"
)

// TestAnswers reads what a server sends besides windows.
func TestAnswers(t *testing.T) {
	ix := NewIndex(handmade(t))
	var b bytes.Buffer
	if err := ix.WriteHead(&b); err != nil {
		t.Fatal(err)
	}
	h, err := DecodeHead(b.Bytes())
	if err != nil || h.Counts.Rows != 4 || len(h.Dicts.Name) < 5 || len(h.Columns) != 0 {
		t.Errorf("the head is %+v: %v", h, err)
	}
	read := func(name, typ, enc string, s store) {
		t.Helper()
		f, err := openContainer(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := f.column(column{name, typ, enc, s}); !ok || err != nil {
			t.Fatalf("column %s: %v", name, err)
		}
	}
	b.Reset()
	q := Query{Sort: "dur", Desc: true}
	if err := ix.WriteOrder(&b, q); err != nil {
		t.Fatal(err)
	}
	rows := &vec[uint32]{}
	read("order.row", "u32", "dv", zv[uint32]{rows, 0, 100, true})
	if !slices.Equal(rows.flat(), []uint32{2, 3, 0, 1}) {
		t.Errorf("the order is %v", rows.flat())
	}
	b.Reset()
	t0, t1 := ix.Extent()
	img, err := ix.Raster(q, ByName, 300, 200, t0, t1) // large enough for blobs of its own
	if err != nil {
		t.Fatal(err)
	}
	if err := ix.WriteRaster(&b, img); err != nil {
		t.Fatal(err)
	}
	class := &vec[uint8]{}
	read("raster.class", "u8", "raw", raw8{class, 255})
	if !slices.Equal(class.flat(), img.Class) {
		t.Error("the picture changed")
	}
	// A window is a container that a whole one's reader takes, with what it shows and no more.
	b.Reset()
	w, err := ix.Window(q, WindowOptions{From: 1, Count: 2, T0: t0, T1: t1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Encode(&b); err != nil {
		t.Fatal(err)
	}
	d, err := Decode(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(d.rowID.flat(), []uint32{3, 0}) || len(d.labels.list) != 2 || d.Head.T0 != ix.Head().T0 || d.Head.Counts.Items != 10 {
		t.Errorf("rows %v, labels %q, head %+v", d.rowID.flat(), d.labels.list, d.Head.Counts)
	}
}
