package tailsample

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rollscope/rollscope/internal/span"
)

// export is what one exporter sends: a request's body with the spans given.
func export(service string, spans []made) []byte {
	var ss []byte
	ss = protowire.AppendTag(ss, 1, protowire.BytesType)
	ss = protowire.AppendBytes(ss, protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "sglang server"))
	for _, m := range spans {
		ss = protowire.AppendTag(ss, 2, protowire.BytesType)
		ss = protowire.AppendBytes(ss, m.wire())
	}
	rs := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), resource(service, "host.name", "node-a"))
	rs = protowire.AppendBytes(protowire.AppendTag(rs, 2, protowire.BytesType), ss)
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), rs)
}

// load of n generations that last from 1 s to 40 s each, n/20 of them begun a second, as the bodies of
// 64 spans that exporters send; a hundredth fails.
func traffic(n int) (bodies [][]byte, spans int) {
	r := rng(3)
	byTime := map[int64][]made{}
	for i := range n {
		at := int64(i) * 20e9 / int64(n)
		g := generation(r, uint64(i), t0+at)
		length := int64(1e9 + r.ExpFloat64()*8e9)
		for j, m := range g {
			if i%100 == 0 && j == len(g)-1 {
				m.failed = true
			}
			tick := (at + length*int64(j)/int64(len(g))) / 1e9
			byTime[tick] = append(byTime[tick], m)
		}
	}
	for tick := int64(0); len(byTime) > 0; tick++ {
		all := byTime[tick]
		delete(byTime, tick)
		spans += len(all)
		for len(all) > 0 {
			k := min(64, len(all))
			bodies = append(bodies, export("sglang", all[:k]))
			all = all[k:]
		}
	}
	return bodies, spans
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// rss is the resident memory of this process in bytes, 0 where that cannot be read.
func rss() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	pages, _ := strconv.Atoi(f[1])
	return float64(pages * os.Getpagesize())
}

// BenchmarkDecide is scan, add and decide of traffic in which every request ends: with and without the
// observations of what is thrown away.
func BenchmarkDecide(b *testing.B) {
	bodies, spans := traffic(20_000)
	for _, observed := range []bool{false, true} {
		b.Run(fmt.Sprintf("observed=%v", observed), func(b *testing.B) {
			b.ReportAllocs()
			kept := 0
			begin := cpuSeconds()
			for range b.N {
				o := Options{}
				if !observed {
					o.Observe = nothing
				}
				s := start(b, o)
				var scopes []span.Scope
				for i, body := range bodies {
					now := t0 + int64(i)*40e9/int64(len(bodies))
					var err error
					if scopes, err = span.Scan(body, scopes[:0]); err != nil {
						b.Fatal(err)
					}
					for _, d := range s.Add(now, scopes) {
						if d.Final && d.Keep {
							kept++
						}
					}
				}
				s.Flush(t0 + 100e9)
			}
			cpu := cpuSeconds() - begin
			b.ReportMetric(float64(spans*b.N)/cpu, "spans/cpu-s")
			b.ReportMetric(float64(kept)/float64(b.N), "kept")
		})
	}
}

// heldEnv makes the test binary a process that holds what comes in on its standard input: bodies with
// their length in 4 bytes before them. In the end it prints spans held, bytes of them as they came, and
// what it measured of its own memory.
const heldEnv = "ROLLSCOPE_TEST_HOLD"

func TestMain(m *testing.M) {
	if os.Getenv(heldEnv) != "" {
		if err := holdInput(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func holdInput(r io.Reader, w io.Writer) error {
	s, err := New(Options{MaxBytes: 4 << 30, MaxTraces: 1 << 24})
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(r, 1<<20)
	var body []byte
	var scopes []span.Scope
	before := rss()
	for i := int64(0); ; i++ {
		var head [4]byte
		if _, err := io.ReadFull(in, head[:]); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		n := int(binary.LittleEndian.Uint32(head[:]))
		body = slices.Grow(body[:0], n)[:n]
		if _, err := io.ReadFull(in, body); err != nil {
			return err
		}
		if scopes, err = span.Scan(body, scopes[:0]); err != nil {
			return err
		}
		s.Add(t0+i*1e6, scopes)
	}
	after := rss() // as it is, without a collection of garbage first
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	n := float64(s.Stats().HeldSpans)
	_, err = fmt.Fprintln(w, n, float64(s.heldWire)/n, (after-before)/n, float64(m.HeapAlloc)/n, float64(s.Stats().HeldBytes)/n)
	return err
}

// BenchmarkHeld is the memory of a million undecided spans of 20 to 25 attributes, of a process that does
// nothing else: what its resident memory grew by, whatever it is used for.
func BenchmarkHeld(b *testing.B) {
	for range b.N {
		const spans = 1_000_000
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), heldEnv+"=1")
		cmd.Stderr = os.Stderr
		pipe, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		var said bytes.Buffer
		cmd.Stdout = &said
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		out := bufio.NewWriterSize(pipe, 1<<20)
		r := rng(5)
		// A thousand requests go on at a time, so that the spans of one come in over a second or so. Their
		// roots do not come.
		for i := 0; i < spans/9; i += 1000 {
			var all [][]made
			for j := range 1000 {
				all = append(all, generation(r, uint64(i+j), t0+int64(i)*1e6)[:9])
			}
			for k := range 9 {
				for from := 0; from < len(all); from += 100 {
					var batch []made
					for _, g := range all[from : from+100] {
						batch = append(batch, g[k])
					}
					body := export("sglang", batch)
					_, _ = out.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(body)))) // Flush tells
					_, _ = out.Write(body)
				}
			}
		}
		if err := errors.Join(out.Flush(), pipe.Close(), cmd.Wait()); err != nil {
			b.Fatal(err)
		}
		var n, wire, resident, heap, counted float64
		if _, err := fmt.Sscan(said.String(), &n, &wire, &resident, &heap, &counted); err != nil || n < 0.99*spans {
			b.Fatalf("%q: %v", said.String(), err)
		}
		b.ReportMetric(wire, "wire-B/span")
		b.ReportMetric(heap, "heap-B/span")
		b.ReportMetric(resident, "rss-B/span")
		b.ReportMetric(counted, "said-B/span")
	}
}
