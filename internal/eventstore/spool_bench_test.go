package eventstore

import (
	"testing"
)

// BenchmarkSpoolRead reads a spool of several segments as a drainer does that lags behind: in pieces, some of
// which it still had in memory and leaves out.
func BenchmarkSpoolRead(b *testing.B) {
	const batches, rows, piece = 200, 1000, 10
	dir := b.TempDir()
	s, _, err := openSpool(dir, false, silent)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			b.Error(err)
		}
	}()
	c := testChunk(0, rows, 400)
	bytes := 0
	for range batches {
		if err := s.append([]chunk{c}, func(uint64, chunk) {}); err != nil {
			b.Fatal(err)
		}
		bytes += len(c.lines)
	}
	first, last, _ := s.bounds()
	b.ReportMetric(float64(s.size())/1e6, "spool-MB")
	b.ReportMetric(float64(len(s.segments)), "segments")
	b.SetBytes(int64(bytes / 2))
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for at := first; at <= last; at += 2 * piece * rows {
			err := s.read(at, at+piece*rows-1, func(r record) error { n += r.rows; return nil })
			if err != nil {
				b.Fatal(err)
			}
		}
		if n != batches*rows/2 {
			b.Fatalf("%d rows read, not %d", n, batches*rows/2)
		}
	}
}
