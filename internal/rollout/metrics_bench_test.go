package rollout

import (
	"bufio"
	"os"
	"path/filepath"
	"testing"

	"github.com/rollscope/rollscope/torchfile"
)

// benchDump is a dump of benchSamples samples, or the file that ROLLSCOPE_BENCH_DUMP names.
func benchDump(b *testing.B) *torchfile.File {
	path := os.Getenv("ROLLSCOPE_BENCH_DUMP")
	if path == "" {
		path = filepath.Join(b.TempDir(), "rollout_7.pt")
		out, err := os.Create(path)
		if err != nil {
			b.Fatal(err)
		}
		w := bufio.NewWriterSize(out, 1<<20)
		if err := writeDump(w, *benchSamples); err != nil {
			b.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			b.Fatal(err)
		}
		if err := out.Close(); err != nil {
			b.Fatal(err)
		}
	}
	f, err := torchfile.Open(path, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return f
}

// BenchmarkMetrics reads a dump and computes its metrics; BenchmarkRead is the part of it that is not
// the metrics.
func BenchmarkMetrics(b *testing.B) {
	f := benchDump(b)
	b.SetBytes(f.Size())
	b.ReportAllocs()
	samples := 0
	for b.Loop() {
		m := NewMetrics(MetricOptions{GPUs: 8, RolloutTime: 600})
		hdr, err := Read(f, Options{}, func(s *Sample) error {
			m.Add(s)
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		m.Finish(hdr)
		samples += m.Result().Samples
	}
	b.ReportMetric(float64(samples)/b.Elapsed().Seconds(), "samples/s")
}

// BenchmarkMetricsAdd adds one sample of the dump over and over.
func BenchmarkMetricsAdd(b *testing.B) {
	f := benchDump(b)
	m := NewMetrics(MetricOptions{GPUs: 8, RolloutTime: 600})
	_, err := Read(f, Options{}, func(s *Sample) error {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			if n++; n%16384 == 0 {
				m = NewMetrics(m.opts)
			}
			m.Add(s)
		}
		return torchfile.Stop
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}

// BenchmarkMetricsResult computes the result of 16,384 samples.
func BenchmarkMetricsResult(b *testing.B) {
	f := benchDump(b)
	m := NewMetrics(MetricOptions{GPUs: 8, RolloutTime: 600})
	_, err := Read(f, Options{}, func(s *Sample) error {
		for range 16384 {
			m.Add(s)
		}
		return torchfile.Stop
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if m.Result().Samples != 16384 {
			b.Fatal("not all samples")
		}
	}
}
