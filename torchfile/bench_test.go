package torchfile

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var benchSamples = flag.Int("samples", 256, "samples of the benchmark dump (about 67 KB each)")

// writeSlime writes a dump as slime's save_debug_rollout_data does: per sample a prompt, a response
// and its tokens, loss mask and log-probabilities, and a trace of 56 events.
func writeSlime(w io.Writer, samples int) error {
	rnd := rand.New(rand.NewPCG(1, 2))
	e := NewWriter(w, &WriterOptions{Root: "rollout_7"})
	field := func(k string, fn func()) {
		e.Key(k)
		fn()
	}
	hex := func() string { return fmt.Sprintf("%016x%016x", rnd.Uint64(), rnd.Uint64()) }
	prompt := strings.Repeat("Problem: let n be a natural number, show that it is one. 让 n 为自然数。\n", 8)
	response := strings.Repeat("Wait, I should double-check the base case: when n = 0 the product is empty and equals 1.\n", 155)
	e.BeginDict()
	field("rollout_id", func() { e.Int(7) })
	e.Key("samples")
	e.BeginList()
	for i := range samples {
		n := 3000 + rnd.IntN(800)
		tokens := make([]int64, n+160)
		for k := range tokens {
			switch r := rnd.IntN(100); {
			case r < 8:
				tokens[k] = rnd.Int64N(256)
			case r < 80:
				tokens[k] = rnd.Int64N(65536)
			default:
				tokens[k] = 65536 + rnd.Int64N(86000)
			}
		}
		probs := make([]float64, n)
		mask := make([]int64, n)
		for k := range probs {
			probs[k] = float64(float32(-rnd.ExpFloat64() / 3))
			mask[k] = 1
		}
		trace := hex()
		e.BeginDict()
		field("group_index", func() { e.Int(int64(i / 8)) })
		field("index", func() { e.Int(int64(i)) })
		field("rollout_id", e.None)
		field("prompt", func() { e.Str(prompt) })
		field("tokens", func() { e.Ints(tokens) })
		field("multimodal_inputs", e.None)
		field("apply_chat_template_kwargs", func() { e.BeginDict(); e.EndDict() })
		field("response", func() { e.Str(response[:len(response)-rnd.IntN(2000)]) })
		field("response_length", func() { e.Int(int64(n)) })
		field("label", func() { e.Str("42") })
		field("reward", func() { e.Float(float64(rnd.IntN(2))) })
		field("loss_mask", func() { e.Ints(mask) })
		field("weight_versions", func() { e.Value([]string{"7"}) })
		field("rollout_log_probs", func() { e.Floats(probs) })
		field("status", func() { e.Shared("completed") })
		field("metadata", func() {
			e.Value(map[string]any{"source_name": "dapo-math-17k", "difficulty": 0.5, "tags": []any{}, "multi_turn": false})
		})
		field("session_id", func() { e.Str(hex()) })
		field("spec_info", func() {
			e.Value(map[string]any{"spec_accept_token_num": 0, "spec_draft_token_num": 0, "spec_verify_ct": 0})
		})
		e.Key("trace")
		e.BeginDict()
		field("version", func() { e.Int(1) })
		field("trace_id", func() { e.Shared(trace) })
		field("events", func() {
			e.BeginList()
			for k := range 56 {
				e.BeginDict()
				kind := []string{"span_start", "span_end"}[k%2]
				field("type", func() { e.Shared(kind) })
				field("name", func() {
					e.Shared([]string{"sglang_generate", "reward_model", "generate_and_rm", "sglang_pd_prefill"}[k/2%4])
				})
				field("ts", func() { e.Float(1.787e9 + float64(i) + float64(k)/10) })
				field("trace_id", func() { e.Shared(trace) })
				field("sample_id", func() { e.Int(int64(i)) })
				field("group_id", func() { e.Int(int64(i / 8)) })
				field("attempt", func() { e.Int(0) })
				field("span_id", func() { e.Shared(fmt.Sprintf("%s%02d", trace, k/2)) })
				if k%2 == 1 {
					field("attrs", func() {
						e.Value(map[string]any{"completion_tokens": n, "e2e_latency": 1.5, "pd_prefill_forward_duration": 0.25})
					})
				}
				e.EndDict()
			}
			e.EndList()
		})
		e.EndDict()
		e.EndDict()
	}
	e.EndList()
	e.EndDict()
	return e.Close()
}

var benchDump = sync.OnceValues(func() (string, error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("torchfile-bench-%d-%d.pt", os.Getpid(), *benchSamples))
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	if err := writeSlime(w, *benchSamples); err != nil {
		return "", err
	}
	if err := w.Flush(); err != nil {
		return "", err
	}
	return path, f.Close()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if flag.Lookup("test.bench").Value.String() != "" {
		if path, err := benchDump(); err == nil {
			os.Remove(path)
		}
	}
	os.Exit(code)
}

func benchOpen(b *testing.B) *File {
	b.Helper()
	path, err := benchDump()
	if err != nil {
		b.Fatal(err)
	}
	f := openTest(b, path, nil)
	b.SetBytes(f.Size())
	b.ReportAllocs()
	b.ResetTimer()
	start := cpuSeconds()
	b.Cleanup(func() {
		if used := cpuSeconds() - start; used > 0 {
			b.ReportMetric(float64(f.Size())*float64(b.N)/1e6/used, "MB/cpu-s")
		}
	})
	return f
}

// BenchmarkLoad decodes everything; lists of numbers stay packed.
func BenchmarkLoad(b *testing.B) {
	f := benchOpen(b)
	for b.Loop() {
		if _, err := f.Load(LoadOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLoadAndUnpack decodes everything and unpacks every list of numbers into slices.
func BenchmarkLoadAndUnpack(b *testing.B) {
	f := benchOpen(b)
	var ints []int64
	var floats []float64
	for b.Loop() {
		d, err := f.Load(LoadOptions{})
		if err != nil {
			b.Fatal(err)
		}
		for _, s := range d.Root().Get("samples").All() {
			ints, _ = s.Get("tokens").Ints(ints[:0])
			ints, _ = s.Get("loss_mask").Ints(ints[:0])
			floats, _ = s.Get("rollout_log_probs").Floats(floats[:0])
		}
	}
}

// BenchmarkScanTraces streams the samples and walks every event of their traces.
func BenchmarkScanTraces(b *testing.B) {
	f := benchOpen(b)
	for b.Loop() {
		events := 0
		_, err := f.Scan(ScanOptions{Path: []string{"samples"}, Fields: []string{"trace", "index", "status", "reward"}}, func(e Element) error {
			for _, ev := range e.Get("trace").Get("events").All() {
				if ev.Get("name").Is("sglang_generate") {
					events++
				}
			}
			return nil
		})
		if err != nil || events == 0 {
			b.Fatal(events, err)
		}
	}
}

// BenchmarkScanNothing streams the samples and wants only their status: the speed at which unwanted
// fields, traces included, are run over.
func BenchmarkScanNothing(b *testing.B) {
	f := benchOpen(b)
	for b.Loop() {
		_, err := f.Scan(ScanOptions{Path: []string{"samples"}, Fields: []string{"status"}}, func(e Element) error { return nil })
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		n := countWriter(0)
		if err := writeSlime(&n, 64); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(n))
	}
}

type countWriter int64

func (c *countWriter) Write(b []byte) (int, error) {
	*c += countWriter(len(b))
	return len(b), nil
}
