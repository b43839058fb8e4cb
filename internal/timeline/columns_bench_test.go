package timeline

import (
	"bytes"
	"io"
	"sync"
	"testing"

	"github.com/rollscope/rollscope/internal/rollout"
)

// The benchmarks' dump has 20,000 rows of about 50 items.
var benchRows = sync.OnceValue(func() []*Row { return fleetRows(20_000, 50) })

func benchColumns() *Columns {
	c := NewColumns(Head{Tool: "bench"})
	for _, r := range benchRows() {
		c.Add(r)
	}
	return c
}

var benchIndex = sync.OnceValue(func() *Index { return NewIndex(benchColumns()) })

func BenchmarkAdd(b *testing.B) {
	rows := benchRows()
	b.ReportAllocs()
	for b.Loop() {
		c := NewColumns(Head{})
		for _, r := range rows {
			c.Add(r)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	c := benchColumns()
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Encode(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	var buf bytes.Buffer
	if err := benchColumns().Encode(&buf); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(buf.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(buf.Bytes()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLeaves(b *testing.B) {
	c := benchColumns()
	for b.Loop() {
		NewIndex(c).allLeaves(ByClass)
	}
}

func BenchmarkOrder(b *testing.B) {
	ix := benchIndex()
	for _, q := range []struct {
		name string
		q    Query
	}{
		{"all", Query{}},
		{"sort", Query{Sort: "dur", Desc: true}},
		{"group", Query{Sort: "e2e", Group: true}},
		{"word", Query{Filter: "7f3"}},
		{"number", Query{Filter: "dur>5s and status:completed", Sort: "tokens"}},
		{"regexp", Query{Filter: "/^7f/"}},
		{"attempt", Query{Attempt: rollout.Int{N: 1, OK: true}}},
	} {
		b.Run(q.name, func(b *testing.B) {
			for b.Loop() {
				clear(ix.orders)
				ix.recent = nil
				if _, err := ix.Order(q.q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWindow(b *testing.B) {
	ix := benchIndex()
	t0, t1 := ix.Extent()
	for b.Loop() {
		w, err := ix.Window(Query{Sort: "dur", Desc: true}, WindowOptions{From: 1000, Count: 100, T0: t0, T1: t1, Pixels: 1600})
		if err != nil {
			b.Fatal(err)
		}
		if err := w.Encode(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRaster(b *testing.B) {
	ix := benchIndex()
	t0, t1 := ix.Extent()
	for by, name := range byNames {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := ix.Raster(Query{}, By(by), 1600, 900, t0, t1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSummary(b *testing.B) {
	ix := benchIndex()
	for b.Loop() {
		if _, err := ix.Summary(Query{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStats(b *testing.B) {
	ix := benchIndex()
	t0, t1 := ix.Extent()
	for b.Loop() {
		if _, err := ix.Stats(Query{}, t0, (t0+t1)/2); err != nil {
			b.Fatal(err)
		}
	}
}
