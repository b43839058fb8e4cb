package passstore

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/eventstore"
)

// benchPasses is how many passes a benchmark stores: ROLLSCOPE_BENCH_PASSES, or few.
func benchPasses() int {
	if n, err := strconv.Atoi(os.Getenv("ROLLSCOPE_BENCH_PASSES")); err == nil && n > 0 {
		return n
	}
	return 100_000
}

// benchRanks is how many schedulers send.
const benchRanks = 64

// fleet makes the passes of a busy fleet, rank after rank, each every 15 ms.
type fleet struct {
	base  time.Time
	n     int
	batch []Row
}

func (f *fleet) next(count int) []Row {
	f.batch = f.batch[:0]
	for range count {
		rank, i := f.n%benchRanks, f.n/benchRanks
		r := pass(f.base, strconv.Itoa(rank/8), uint32(rank%8), i)
		r.Time = f.base.UnixNano() + int64(i)*15e6 + int64(rank)*2e5
		r.Wall = 0.012 + float64((i*7919+rank*104729)%1000)/1e6
		r.Scheduled.DecodeRequests = uint64(180 + (i/40+rank)%60)
		r.Scheduled.DecodeKV = r.Scheduled.DecodeRequests * uint64(2400+i%900)
		if i%9 == 0 {
			r.Scheduled.PrefillRequests, r.Scheduled.PrefillTokens = 2, uint64(1500+(i*31+rank)%6000)
		}
		f.batch = append(f.batch, r)
		f.n++
	}
	return f.batch
}

// store writes passes and waits until they are with the event store.
func (f *fleet) store(b *testing.B, s *Store, n int) {
	for n > 0 {
		k := min(n, 4*batchRows)
		s.Write(f.next(k))
		s.flush(b.Context())
		n -= k
	}
	if d := s.Drops(); len(d) > 0 {
		b.Fatalf("lost: %v", d)
	}
}

// settledFiles waits until the spool has let go of all, and returns what the events take on disk.
func settledFiles(b *testing.B, events *eventstore.Store, dir string) (bytes int64) {
	// A removal of nothing returns when all lies in the store's files.
	if err := events.Delete(within(b), "_msg:=none"); err != nil {
		b.Fatal(err)
	}
	err := filepath.WalkDir(filepath.Join(dir, "events"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil { // else it was merged into another
				bytes += info.Size()
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return bytes
}

// BenchmarkAppend stores passes through the real process as fast as it takes them: rows a second until they
// can be found, and bytes on disk for each. ROLLSCOPE_BENCH_PASSES says how many.
func BenchmarkAppend(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		dir := b.TempDir()
		events, stop := openEvents(b, eventstore.Options{Dir: dir})
		s := open(b, Options{Events: events})
		f := &fleet{base: time.Now().Add(-time.Hour)}
		f.store(b, s, benchRanks) // the process is there, and its streams
		if err := events.Flush(within(b)); err != nil {
			b.Fatal(err)
		}
		n := benchPasses()
		began := time.Now()
		f.store(b, s, n)
		appended := time.Since(began)
		if err := events.Flush(within(b)); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(n)/time.Since(began).Seconds(), "rows/s")
		b.ReportMetric(float64(n)/appended.Seconds(), "appended/s")
		b.ReportMetric(float64(settledFiles(b, events, dir))/float64(n+benchRanks), "B/row")
		if got := countOf(b, events, `{row="pass"} dp_rank:*`); got != n+benchRanks {
			b.Fatalf("%d rows are found, %d were stored", got, n+benchRanks)
		}
		stop()
	}
}

// BenchmarkExpire removes the older half of the passes while others come: how long Expire waits and how long
// until the rows are gone, what is stored in a second meanwhile, and bytes on disk for each that is left.
func BenchmarkExpire(b *testing.B) {
	for b.Loop() {
		dir := b.TempDir()
		events, stop := openEvents(b, eventstore.Options{Dir: dir})
		n := benchPasses()
		base := time.Now().Add(-2 * time.Hour)
		c := newClock(base)
		s := open(b, Options{Events: events, Now: c.now})
		f := &fleet{base: base}
		f.store(b, s, n)
		border := base.Add(time.Duration(n/benchRanks/2) * 15 * time.Millisecond)
		c.set(border.Add(time.Hour))
		if err := events.Flush(within(b)); err != nil {
			b.Fatal(err)
		}

		ctx, cancel := context.WithCancel(b.Context())
		stored := make(chan int, 1)
		go func() {
			came := 0
			for ctx.Err() == nil {
				s.Write(f.next(batchRows))
				s.flush(b.Context())
				came += batchRows
			}
			stored <- came
		}()
		began := time.Now()
		if err := s.Expire(within(b)); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "expire-s")
		old := fmt.Sprintf(`{row="pass"} dp_rank:* _time:<%s`, border.UTC().Format("2006-01-02T15:04:05.000Z"))
		until(b, "the old rows are gone", func() bool { return countOf(b, events, old) == 0 })
		took := time.Since(began).Seconds()
		cancel()
		came := <-stored
		b.ReportMetric(took, "gone-s")
		b.ReportMetric(float64(came)/took, "rows/s")
		if d := s.Drops(); len(d) > 0 {
			b.Fatalf("lost: %v", d)
		}
		if err := events.Flush(within(b)); err != nil {
			b.Fatal(err)
		}
		left := countOf(b, events, `{row="pass"} dp_rank:*`)
		if want := n - n/benchRanks/2*benchRanks + came; left < want-2*benchRanks || left > want+2*benchRanks {
			b.Fatalf("%d rows are left, not about %d", left, want)
		}
		b.ReportMetric(float64(settledFiles(b, events, dir))/float64(left), "B/row")
		stop()
	}
}
