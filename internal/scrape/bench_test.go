package scrape

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	promscrape "github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/rollscope/rollscope/internal/config"
)

// The fleet of the benchmark.
const (
	benchTargets = 64
	benchSeries  = 400
	benchSamples = 10 * benchTargets * benchSeries // measured in each of three rounds
	benchServer  = "ROLLSCOPE_BENCH_SERVER"        // set in the process that serves the expositions
)

// engineText renders an exposition of benchSeries series of an SGLang engine, as the engine itself
// or as a router spells it.
func engineText(n int64, router bool) []byte {
	var b bytes.Buffer
	prefix, more := "sglang:", ""
	if router {
		prefix, more = "sglang_", `,worker_addr="http://10.0.0.1:30000"`
	}
	left := benchSeries
	base := `engine_type="unified",model_name="acme/chat-7b",moe_ep_rank="0",pp_rank="0",tp_rank="0"` + more
	for h := 0; h < 10; h++ {
		fmt.Fprintf(&b, "# HELP %shist%d_seconds Histogram of something.\n# TYPE %shist%d_seconds histogram\n", prefix, h, prefix, h)
		fmt.Fprintf(&b, "%shist%d_seconds_sum{%s} %d.5\n", prefix, h, base, n*3)
		for k := range 24 {
			le := fmt.Sprintf("%d.0", k+1)
			if k == 23 {
				le = "+Inf"
			}
			fmt.Fprintf(&b, "%shist%d_seconds_bucket{%s,le=\"%s\"} %d.0\n", prefix, h, base, le, n*int64(k+1))
		}
		fmt.Fprintf(&b, "%shist%d_seconds_count{%s} %d.0\n", prefix, h, base, n*24)
		left -= 26
	}
	for i := 0; left > 0; i++ {
		typ, suf := "gauge", ""
		if i%3 == 0 {
			typ, suf = "counter", "_total"
		}
		fmt.Fprintf(&b, "# HELP %sm%d%s Something.\n# TYPE %sm%d%s %s\n", prefix, i, suf, prefix, i, suf, typ)
		fmt.Fprintf(&b, "%sm%d%s{%s} %d.0\n", prefix, i, suf, base, n+int64(i))
		left--
	}
	return b.Bytes()
}

// TestBenchServer is the other process of the benchmark: what it costs to serve is not measured.
func TestBenchServer(t *testing.T) {
	if os.Getenv(benchServer) == "" {
		return // the benchmark starts it
	}
	router := os.Getenv(benchServer) == "router"
	for range benchTargets {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var n atomic.Int64
		go func() {
			_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/metrics" {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
				_, _ = w.Write(engineText(n.Add(1), router))
			}))
		}()
		fmt.Println("listening", l.Addr())
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the benchmark is over
	os.Exit(0)
}

// startBenchServer gives the addresses of the fleet.
func startBenchServer(b *testing.B, kind string) []string {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestBenchServer$")
	cmd.Env = append(os.Environ(), benchServer+"="+kind)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	var addrs []string
	for s := bufio.NewScanner(out); s.Scan(); {
		if a, ok := strings.CutPrefix(s.Text(), "listening "); ok {
			addrs = append(addrs, a)
		}
		if s.Text() == "ready" {
			break
		}
	}
	if len(addrs) != benchTargets {
		b.Fatalf("%d servers", len(addrs))
	}
	return addrs
}

// counting counts samples on their way to the store. Both sides have it.
type counting struct {
	storage.AppendableV2
	n atomic.Int64
}

type countingAppender struct {
	storage.AppenderV2
	c *counting
	n int64
}

func (c *counting) AppenderV2(ctx context.Context) storage.AppenderV2 {
	return &countingAppender{AppenderV2: c.AppendableV2.AppenderV2(ctx), c: c}
}

func (a *countingAppender) Append(ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, o storage.AOptions) (storage.SeriesRef, error) {
	a.n++
	return a.AppenderV2.Append(ref, ls, st, t, v, h, fh, o)
}

func (a *countingAppender) Commit() error {
	a.c.n.Add(a.n)
	return a.AppenderV2.Commit()
}

// cpu is what this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// rate runs one side and gives samples per CPU-second over the given number of samples, after a
// warm-up in which every target was scraped several times and, on our side, identified.
func rate(b *testing.B, cfg *config.Config, ours bool, samples int64) float64 {
	b.Helper()
	db, err := tsdb.Open(b.TempDir(), slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	c := &counting{AppendableV2: db}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	warm := func() bool { return true }
	if ours {
		m, err := New(Options{Appendable: c, DiscoveryInterval: 50 * time.Millisecond})
		if err != nil {
			b.Fatal(err)
		}
		if err := m.Apply(cfg); err != nil {
			b.Fatal(err)
		}
		warm = func() bool {
			ts := m.Targets()
			for _, t := range ts {
				if t.Identity.Backend == "" {
					return false
				}
			}
			return len(ts) == benchTargets
		}
		go func() { defer close(done); _ = m.Run(ctx) }()
	} else {
		plain(b, ctx, cfg, c, done)
	}
	for c.n.Load() < 3*benchTargets*benchSeries || !warm() {
		time.Sleep(50 * time.Millisecond)
	}
	runtime.GC()
	n0, t0 := c.n.Load(), cpu()
	for c.n.Load() < n0+samples {
		time.Sleep(10 * time.Millisecond)
	}
	n, t := c.n.Load()-n0, cpu()-t0
	cancel()
	<-done
	return float64(n) / t.Seconds()
}

// plain is Prometheus's own scrape manager, as its server wires it.
func plain(b *testing.B, ctx context.Context, cfg *config.Config, app storage.AppendableV2, done chan struct{}) {
	reg := prometheus.NewRegistry()
	m, err := promscrape.NewManager(&promscrape.Options{DiscoveryReloadInterval: model.Duration(50 * time.Millisecond), DiscoveryReloadOnStartup: true}, nil, nil, nil, app, reg)
	if err != nil {
		b.Fatal(err)
	}
	sd, err := discovery.CreateAndRegisterSDMetrics(reg)
	if err != nil {
		b.Fatal(err)
	}
	d := discovery.NewManager(ctx, nil, reg, sd, discovery.Updatert(50*time.Millisecond))
	sets := map[string]discovery.Configs{}
	for _, sc := range cfg.Prometheus.ScrapeConfigs {
		sets[sc.JobName] = sc.ServiceDiscoveryConfigs
	}
	if err := d.ApplyConfig(sets); err != nil {
		b.Fatal(err)
	}
	if err := m.ApplyConfig(cfg.Prometheus); err != nil {
		b.Fatal(err)
	}
	go func() { _ = d.Run() }()
	go func() {
		defer close(done)
		go func() { <-ctx.Done(); m.Stop() }()
		_ = m.Run(d.SyncCh())
	}()
}

// BenchmarkScrape measures scraping and appending 64 targets of 400 series, ours beside plain
// Prometheus of the same library in the same run. The serving side is another process.
func BenchmarkScrape(b *testing.B) {
	for _, kind := range []string{"engine", "router"} {
		b.Run(kind, func(b *testing.B) {
			addrs := startBenchServer(b, kind)
			cfg, err := config.FromFlags(addrs, time.Second)
			if err != nil {
				b.Fatal(err)
			}
			var o, p []float64
			for range b.N {
				// In turns, each first as often as the other, so that both see the same machine.
				for i := range 4 {
					for _, ours := range []bool{i%2 == 0, i%2 == 1} {
						if r := rate(b, cfg, ours, benchSamples); ours {
							o = append(o, r)
						} else {
							p = append(p, r)
						}
					}
				}
			}
			b.Logf("ours %.0f, plain %.0f", o, p)
			b.ReportMetric(mean(o), "samples/cpu-s")
			b.ReportMetric(mean(p), "plain-samples/cpu-s")
			b.ReportMetric(mean(o)/mean(p), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func mean(v []float64) float64 {
	s := 0.0
	for _, x := range v {
		s += x
	}
	return s / float64(len(v))
}

// BenchmarkInspect measures what a probe costs.
func BenchmarkInspect(b *testing.B) {
	body := engineText(7, false)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		Inspect(body, "text/plain")
	}
}
