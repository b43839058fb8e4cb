package app

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/sim"
	"github.com/rollscope/rollscope/internal/sim/spans"
	"github.com/rollscope/rollscope/internal/span"
	"github.com/rollscope/rollscope/internal/tailsample"
)

// BenchmarkTake is a request of spans from its bytes until it may be acknowledged, with the log of what is
// held on disk and the default policy: without the receiver's sockets.
func BenchmarkTake(b *testing.B) {
	corpus, err := spans.NewCorpus(spans.CorpusOptions{Fleet: sim.Demo(), Traces: spans.Options{Attributes: 22}, For: 30 * time.Second, Max: 60_000})
	if err != nil {
		b.Fatal(err)
	}
	for name, policy := range map[string]tailsample.Options{"default": {}, "all": {Policy: tailsample.KeepAll()}} {
		b.Run(name, func(b *testing.B) {
			s := openSampling(b, b.TempDir(), policy, -1)
			ctx := b.Context()
			var body []byte
			var scopes []span.Scope
			n, sent, bytes := 0, 0, 0
			var used float64
			b.ResetTimer()
			for i := 0; b.Loop(); i++ {
				round := uint64(i/corpus.Requests()) + 1
				body, n = corpus.AppendRequest(body[:0], i%corpus.Requests(), round, time.Now().UnixNano())
				sent += n
				bytes += len(body)
				before := cpuSeconds()
				if scopes, err = span.Scan(body, scopes[:0]); err != nil {
					b.Fatal(err)
				}
				s.must(s.take(ctx, scopes))
				if i%64 == 0 {
					// Time goes faster here, so that requests end as they would.
					s.tick(ctx, time.Now().Add(time.Duration(i)*100*time.Millisecond))
				}
				used += cpuSeconds() - before
			}
			b.StopTimer()
			b.ReportMetric(float64(sent)/used, "spans/cpu-s")
			b.ReportMetric(float64(bytes)/float64(sent), "wire-B/span")
			b.ReportMetric(float64(s.held.Size())/float64(sent), "log-B/span")
			st, _ := s.stats()
			b.ReportMetric(100*float64(st.SpansKept)/float64(max(st.SpansKept+st.SpansDropped, 1)), "kept-%")
			runtime.KeepAlive(s)
		})
	}
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
