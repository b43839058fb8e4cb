package sim

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestReplay(t *testing.T) {
	cfg := Demo()
	f := mustNew(t, cfg)
	counts := map[string]int{}
	refused := 0
	var last time.Time
	err := Replay(context.Background(), f, ReplayOptions{To: f.after(2 * time.Minute)}, func(s Scrape) error {
		if s.Status == 0 {
			refused++
			return nil
		}
		if s.Status == 200 && len(s.Body) > 0 {
			counts[s.Target.Name]++
		}
		last = s.Time
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if counts["chat-0"] != 9 || !last.Equal(f.after(2*time.Minute)) {
		t.Errorf("scrapes: %v, the last at %s", counts, last)
	}
	// decode-1 is down from 35 s to 145 s: the scrapes at 45, 60, 75, 90, 105 and 120 s.
	if refused != 6 || counts["decode-1"] != 3 {
		t.Errorf("%d refused, decode-1 answered %d times", refused, counts["decode-1"])
	}
	stop := errors.New("enough")
	err = Replay(context.Background(), f, ReplayOptions{To: f.after(time.Hour)}, func(Scrape) error { return stop })
	if !errors.Is(err, stop) || !strings.Contains(err.Error(), "rollout-0") {
		t.Errorf("the error of the callback comes back as %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := ReplaySamples(ctx, f, ReplayOptions{To: f.after(time.Hour)}, func(time.Time) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled replay ends with %v", err)
	}
}

// cpuSeconds is what the process has used: the benchmarks' machine is shared.
func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

func BenchmarkAdvance64(b *testing.B) {
	cpu := cpuSeconds(b)
	for b.Loop() {
		f := mustNew(b, Uniform(64))
		f.Advance(f.after(10 * time.Minute))
	}
	b.ReportMetric((cpuSeconds(b)-cpu)/float64(b.N), "cpu-s/op")
}

// BenchmarkReplay64 is ten minutes of 64 engines, scraped every 15 s as text.
func BenchmarkReplay64(b *testing.B) {
	var bytes, samples int
	cpu := cpuSeconds(b)
	for b.Loop() {
		f := mustNew(b, Uniform(64))
		bytes = 0
		err := Replay(context.Background(), f, ReplayOptions{To: f.after(10*time.Minute - time.Second)}, func(s Scrape) error {
			bytes += len(s.Body)
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		samples = 0
		f.Samples(func(string, int, float64) { samples++ })
	}
	b.ReportMetric((cpuSeconds(b)-cpu)/float64(b.N), "cpu-s/op")
	b.ReportMetric(float64(bytes)/1e6, "MB")
	b.ReportMetric(float64(samples)/64, "series/engine")
}

// BenchmarkSamples64 is the same without text.
func BenchmarkSamples64(b *testing.B) {
	n := 0
	cpu := cpuSeconds(b)
	for b.Loop() {
		f := mustNew(b, Uniform(64))
		n = 0
		err := ReplaySamples(context.Background(), f, ReplayOptions{To: f.after(10*time.Minute - time.Second)}, func(time.Time) error {
			f.Samples(func(string, int, float64) { n++ })
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((cpuSeconds(b)-cpu)/float64(b.N), "cpu-s/op")
	b.ReportMetric(float64(n), "samples")
}

func BenchmarkExposition(b *testing.B) {
	f := mustNew(b, Uniform(1))
	f.Advance(f.after(5 * time.Minute))
	for b.Loop() {
		body, _, _ := f.Exposition("engine-0")
		b.SetBytes(int64(len(body)))
	}
}
