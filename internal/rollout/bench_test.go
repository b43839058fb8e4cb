package rollout

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/torchfile"
)

var benchSamples = flag.Int("samples", 256, "samples of the benchmark's dump (about 66 KB each)")

// pdParts are the child spans that slime writes for a request of a PD deployment.
var pdParts = [...]struct {
	name  string
	parts []string
}{
	{"prefill", []string{"bootstrap_queue", "bootstrap", "alloc_wait", "forward", "transfer_queue"}},
	{"decode", []string{"prealloc", "bootstrap", "alloc_wait", "transfer", "forward"}},
}

// writeDump writes a dump as slime's save_debug_rollout_data does in PD mode: prompt, response, tokens,
// mask and log-probabilities, and per request a span with 12 children and a summary.
func writeDump(w io.Writer, samples int) error {
	rnd := rand.New(rand.NewPCG(1, 2))
	e := torchfile.NewWriter(w, &torchfile.WriterOptions{Root: "rollout_7"})
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
			switch p := rnd.IntN(100); {
			case p < 8:
				tokens[k] = rnd.Int64N(256)
			case p < 80:
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
		trace, ts := hex(), 1.787e9+float64(i%64)/7
		e.BeginDict()
		field("group_index", func() { e.Int(int64(i / 8)) })
		field("index", func() { e.Int(int64(i)) })
		field("rollout_id", e.None)
		field("prompt", func() { e.Str(prompt) })
		field("tokens", func() { e.Ints(tokens) })
		field("multimodal_inputs", e.None)
		field("multimodal_train_inputs", e.None)
		field("apply_chat_template_kwargs", func() { e.BeginDict(); e.EndDict() })
		field("response", func() { e.Str(response[:len(response)-rnd.IntN(2000)]) })
		field("response_length", func() { e.Int(int64(n)) })
		field("label", func() { e.Str("42") })
		field("reward", func() { e.Float(float64(rnd.IntN(2))) })
		field("loss_mask", func() { e.Ints(mask) })
		field("weight_versions", func() { e.Value([]string{"7"}) })
		field("rollout_log_probs", func() { e.Floats(probs) })
		field("rollout_routed_experts", e.None)
		field("remove_sample", func() { e.Bool(false) })
		field("status", func() { e.Shared("completed") })
		field("metadata", func() {
			e.Value(map[string]any{"source_name": "dapo-math-17k", "difficulty": 0.5, "tags": []any{}, "multi_turn": false})
		})
		field("session_id", func() { e.Str(hex()) })
		field("non_generation_time", func() { e.Float(0) })
		field("spec_info", func() {
			e.Value(map[string]any{"spec_accept_token_num": 0, "spec_draft_token_num": 0, "spec_verify_ct": 0, "completion_token_num": 0})
		})
		field("prefix_cache_info", func() { e.Value(map[string]any{"cached_tokens": 96, "total_prompt_tokens": 160}) })
		e.Key("trace")
		e.BeginDict()
		field("version", func() { e.Int(1) })
		field("trace_id", func() { e.Shared(trace) })
		e.Key("events")
		e.BeginList()
		event := func(kind, name string, at float64, id, parent string, attrs map[string]any) {
			e.BeginDict()
			field("type", func() { e.Shared(kind) })
			field("name", func() { e.Shared(name) })
			field("ts", func() { e.Float(at) })
			field("trace_id", func() { e.Shared(trace) })
			field("sample_id", func() { e.Int(int64(i)) })
			field("group_id", func() { e.Int(int64(i / 8)) })
			field("attempt", func() { e.Int(0) })
			if id != "" {
				field("span_id", func() { e.Shared(id) })
			}
			if parent != "" {
				field("parent_span_id", func() { e.Shared(parent) })
			}
			if attrs != nil {
				field("attrs", func() { e.Value(attrs) })
			}
			e.EndDict()
		}
		group, rm := hex(), hex()
		event("event", "data_source_create", ts, "", "", map[string]any{"rollout_id": 7})
		event("span_start", "generate_and_rm_group", ts, group, "", map[string]any{"group_size": 8})
		event("span_start", "generate_and_rm", ts, rm, group, nil)
		for range 1 + i%4/3 {
			gen := hex()
			event("span_start", "sglang_generate", ts, gen, rm, map[string]any{"max_new_tokens": 4096})
			for _, side := range pdParts {
				top := hex()
				event("span_start", "sglang_pd_"+side.name, ts, top, gen, nil)
				for k, part := range side.parts {
					id, name := hex(), side.name+"_"+part
					event("span_start", "sglang_pd_"+name, ts+float64(k)/20, id, top, nil)
					event("span_end", "sglang_pd_"+name, ts+float64(k+1)/20, id, "", map[string]any{"pd_" + name + "_duration": 0.05})
				}
				event("span_end", "sglang_pd_"+side.name, ts+0.25, top, "", map[string]any{"phase": side.name, "duration_s": 0.25})
			}
			event("event", "sglang_pd_summary", ts+0.5, "", gen, map[string]any{"pd_transfer_speed_gb_s": 11.5, "pd_transfer_total_mb": 70.25, "pd_prefill_retry_count": 0})
			ts += rnd.Float64() * 30
			event("span_end", "sglang_generate", ts, gen, "", map[string]any{
				"prompt_tokens": 160, "completion_tokens": n, "cached_tokens": 96, "queue_time": 0.01, "e2e_latency": 12.5,
				"decode_throughput": 96.5, "finish_reason": "stop", "sglang_request_id": hex(),
			})
		}
		reward := hex()
		event("span_start", "reward_model", ts, reward, rm, nil)
		event("span_end", "reward_model", ts+0.1, reward, "", nil)
		event("span_end", "generate_and_rm", ts+0.1, rm, "", nil)
		event("span_end", "generate_and_rm_group", ts+0.2, group, "", nil)
		e.EndList()
		field("sample_id", func() { e.Int(int64(i)) })
		field("group_id", func() { e.Int(int64(i / 8)) })
		field("attempt", func() { e.Int(0) })
		e.EndDict()
		e.EndDict()
	}
	e.EndList()
	e.EndDict()
	return e.Close()
}

// benchRead reads a dump over and over; b.N passes over all of it.
func benchRead(b *testing.B, opts Options) {
	path := filepath.Join(b.TempDir(), "rollout_7.pt")
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
	f, err := torchfile.Open(path, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	b.SetBytes(f.Size())
	b.ReportAllocs()
	events, start := 0, cpuSeconds()
	for b.Loop() {
		events = 0
		if _, err := Read(f, opts, func(s *Sample) error {
			events += len(s.Trace.Events)
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	if used := cpuSeconds() - start; used > 0 {
		b.ReportMetric(float64(f.Size())*float64(b.N)/1e6/used, "MB/cpu-s")
	}
	b.ReportMetric(float64(events), "events")
}

// BenchmarkRead decodes all that a timeline and a step's metrics need.
func BenchmarkRead(b *testing.B) { benchRead(b, Options{}) }

// BenchmarkReadNoMask is BenchmarkRead without the sums of the loss masks.
func BenchmarkReadNoMask(b *testing.B) { benchRead(b, Options{NoMask: true}) }

// BenchmarkReadNoTrace leaves the traces out.
func BenchmarkReadNoTrace(b *testing.B) { benchRead(b, Options{NoTrace: true}) }
