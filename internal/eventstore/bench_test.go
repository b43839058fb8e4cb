package eventstore

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rollscope/rollscope/internal/enginelog"
	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore/eventtest"
	spans "github.com/rollscope/rollscope/internal/span"
)

// benchRows is how many spans a benchmark stores: ROLLSCOPE_BENCH_SPANS, or few.
func benchRows() int {
	if n, err := strconv.Atoi(os.Getenv("ROLLSCOPE_BENCH_SPANS")); err == nil && n > 0 {
		return n
	}
	return 200_000
}

// load makes traces of ten spans as an engine's exporter sends them: one of the request and nine of its
// stages, each with 25 attributes beside those of its resource. Traces begin one after the other in six
// hours.
type load struct {
	rnd  *rand.Rand
	base int64 // ns, when the first trace begins
	made []spans.Span
	rid  string // of the last trace
}

const (
	loadEngines  = 64
	loadSeconds  = 6 * 3600
	spansOfTrace = 10
)

var loadStages = [spansOfTrace]string{
	"Req", "tokenize", "api_server_dispatch", "request_process", "prefill_waiting",
	"prefill_forward", "decode_waiting", "decode_forward", "detokenize", "quick_finish",
}

var loadResource = []spans.Attr{
	{Key: "service.name", Value: spans.Value{Str: "sglang"}},
	{Key: "telemetry.sdk.language", Value: spans.Value{Str: "python"}},
	{Key: "telemetry.sdk.version", Value: spans.Value{Str: "1.40.0"}},
}

func newLoad(seed uint64) *load {
	return &load{rnd: rand.New(rand.NewPCG(seed, 1)), base: time.Now().Add(-loadSeconds*time.Second - time.Hour).UnixNano()}
}

// next makes the trace that begins at a time in ns. The spans hold until the next call.
func (l *load) next(at int64) []spans.Span {
	r := l.rnd
	engine := r.IntN(loadEngines)
	var trace spans.TraceID
	for i := 8; i < 16; i++ {
		trace[i] = byte(r.Uint32())
	}
	start := at
	rid := fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64())
	l.rid = rid
	sample := r.IntN(1024)
	prompt, output := 200+r.IntN(8000), 1+int(r.ExpFloat64()*800)
	var root spans.ID
	for i := range l.made {
		s := &l.made[i]
		s.Trace = trace
		for k := range s.ID {
			s.ID[k] = byte(r.Uint32())
		}
		s.Parent = root
		if i == 0 {
			root = s.ID
		}
		s.Name, s.Kind, s.Service, s.ScopeName, s.Resource = loadStages[i], spans.Kind(1), "sglang", "sglang server", loadResource
		took := int64(r.ExpFloat64() * 2e8)
		if i == 0 {
			took = 9 * took
			s.Start = start
		} else {
			s.Start = at
			at += took
		}
		s.End = s.Start + took
		s.Status = spans.Unset
		if r.IntN(200) == 0 {
			s.Status = spans.Failed
		}
		a := append(s.Attrs[:0], text("rid", rid), text("module", "sglang::request"), text("host_id", loadHosts[engine]),
			integer("pid", 4000+engine%8), text("thread_label", []string{"Tokenizer", "Scheduler"}[i%2]),
			integer("tp_rank", 0), integer("pp_rank", 0), integer("dp_rank", engine%8), integer("weight_version", int(start-l.base)/3e11),
			integer("gen_ai.usage.prompt_tokens", prompt), integer("gen_ai.usage.cached_tokens", prompt/64*16))
		if i == 0 {
			a = append(a, integer("gen_ai.usage.completion_tokens", output), text("gen_ai.request.id", rid), integer("gen_ai.request.max_tokens", 8192),
				float("gen_ai.request.top_p", 0.95), float("gen_ai.request.temperature", 0.8), integer("gen_ai.request.n", 1),
				text("gen_ai.response.model", "Qwen/Qwen3-30B-A3B"), text("gen_ai.response.finish_reasons", `[{"type": "stop", "matched": 151645}]`),
				float("gen_ai.latency.time_to_first_token", r.ExpFloat64()), float("gen_ai.latency.e2e", float64(took)/1e9),
				float("gen_ai.latency.time_in_model_prefill", r.ExpFloat64()/8), float("gen_ai.latency.time_in_model_decode", r.ExpFloat64()*8),
				float("gen_ai.latency.time_in_model_inference", r.ExpFloat64()*9), integer("bootstrap_room", r.IntN(1<<40)))
		} else {
			// An engine's gauges follow its load, which comes and goes in minutes.
			busy := 0.5 + 0.4*math.Sin(float64(s.Start-l.base)/1e9/300+float64(engine))
			running := int(256*busy) + r.IntN(8)
			a = append(a, integer("bid", int((s.Start-l.base)/3e7)), integer("batch_size", running), text("forward_mode", []string{"prefill", "decode"}[i%2]),
				integer("num_running_reqs", running), integer("num_queue_reqs", int(20*busy)+r.IntN(4)), integer("num_new_tokens", r.IntN(4096)),
				float("token_usage", math.Round(busy*100)/100), float("cache_hit_rate", float64(r.IntN(20))/100),
				float("gen_throughput", math.Round(busy*400000+r.Float64()*5000)/100), text("attention_backend", "fa3"),
				integer("num_correct_drafts", r.IntN(5)), text("priority", "default"), integer("sample_index", sample), integer("group_index", sample/8))
		}
		s.Attrs = a
	}
	return l.made
}

var loadHosts = func() (h [loadEngines]string) {
	for i := range h {
		h[i] = fmt.Sprintf("%08x", uint32(i+1)*2654435761)
	}
	return h
}()

func text(key, value string) spans.Attr { return spans.Attr{Key: key, Value: spans.Value{Str: value}} }

func integer(key string, v int) spans.Attr {
	return spans.Attr{Key: key, Value: spans.Value{Type: spans.Int, Str: strconv.Itoa(v)}}
}

func float(key string, v float64) spans.Attr {
	return spans.Attr{Key: key, Value: spans.Value{Type: spans.Float, Str: strconv.FormatFloat(v, 'f', -1, 64)}}
}

// usage is what processes used of the processor and had in memory at most.
type usage struct{ parent, child float64 }

func (s *Store) benchUsage(tb testing.TB) (cpu, peakMB usage) {
	var self unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &self); err != nil {
		tb.Fatal(err)
	}
	s.sup.mu.Lock()
	pid := s.sup.pid
	s.sup.mu.Unlock()
	cpu.parent = float64(self.Utime.Nano()+self.Stime.Nano()) / 1e9
	peakMB.parent = peak(tb, os.Getpid())
	if pid == 0 {
		return cpu, peakMB
	}
	peakMB.child = peak(tb, pid)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	for _, i := range []int{11, 12} { // utime and stime, in hundredths of a second
		v, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			tb.Fatal(err)
		}
		cpu.child += v / 100
	}
	return cpu, peakMB
}

// peak is the most that a process had in memory so far, in MB.
func peak(tb testing.TB, pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(v)[0], 64)
			if err != nil {
				tb.Fatal(err)
			}
			return kb * 1024 / 1e6
		}
	}
	tb.Fatal("no VmHWM")
	return 0
}

// benchStore runs a store on the disk, not in memory, with defaults.
func benchStore(b *testing.B, dir string) (*Store, func()) {
	o := testOptions(b, dir)
	s, stop := start(b, o)
	s.need()
	if _, err := s.client(within(b)); err != nil {
		b.Fatal(err)
	}
	return s, stop
}

// settled waits until everything lies in the store's own files.
func settled(b *testing.B, s *Store) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	if err := s.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	for s.drain.pending() {
		s.drain.urge()
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			b.Fatal("rows are not confirmed")
		}
	}
}

func ingest(b *testing.B, s *Store, rows int, fill func(*event.Row) (more bool)) {
	batch := make([]event.Row, 0, 1000)
	for n := 0; n < rows; {
		batch = batch[:cap(batch)]
		k := 0
		for more := true; k < len(batch) && more; k++ {
			more = fill(&batch[k])
		}
		if err := s.Append(context.Background(), batch[:k]); err != nil {
			b.Fatal(err)
		}
		n += k
	}
}

// BenchmarkSpans stores spans as fast as it can and searches them: rows per CPU-second of both processes
// until all lie in files, with what it costs to make them; bytes on disk; memory; and the times of queries.
// ROLLSCOPE_BENCH_SPANS says how many.
func BenchmarkSpans(b *testing.B) {
	rows := benchRows()
	for b.Loop() {
		dir := b.TempDir()
		s, stop := benchStore(b, dir)
		l := newLoad(7)
		var known []string // some of the trace ids
		var rids []string
		var trace []spans.Span
		cpu0, _ := s.benchUsage(b)
		began := time.Now()
		// Rows of a batch alias what a span was made of, so there are as many spans as rows in a batch.
		buffers, traces := make([][]spans.Span, 101), 0
		for i := range buffers {
			buffers[i] = make([]spans.Span, spansOfTrace)
		}
		ingest(b, s, rows, func(r *event.Row) bool {
			if len(trace) == 0 {
				l.made = buffers[traces%len(buffers)]
				trace = l.next(l.base + int64(traces)*loadSeconds*1e9/int64(rows/spansOfTrace))
				if traces%997 == 0 {
					known, rids = append(known, trace[0].Trace.String()), append(rids, l.rid)
				}
				traces++
			}
			trace[0].Row(r)
			r.Engine = trace[0].Attrs[2].Value.Str
			trace = trace[1:]
			return true
		})
		appended := time.Since(began)
		settled(b, s)
		wall := time.Since(began)
		cpu1, peak1 := s.benchUsage(b)
		used := cpu1.parent - cpu0.parent + cpu1.child - cpu0.child
		b.ReportMetric(float64(rows)/used, "spans/cpu-s")
		b.ReportMetric(float64(rows)/(cpu1.parent-cpu0.parent), "parent-spans/cpu-s")
		b.ReportMetric(float64(rows)/(cpu1.child-cpu0.child), "child-spans/cpu-s")
		b.ReportMetric(float64(rows)/wall.Seconds(), "spans/s")
		b.ReportMetric(float64(rows)/appended.Seconds(), "appended/s")
		b.ReportMetric(peak1.parent, "parent-MB")
		b.ReportMetric(peak1.child, "child-MB")
		b.ReportMetric(float64(treeBytes(filepath.Join(dir, "events")))/float64(rows), "B/span")
		if n := count(b, s, `{row="span"}`); n != rows {
			b.Fatalf("%d spans stored, %d can be found", rows, n)
		}
		rnd := rand.New(rand.NewPCG(9, 9))
		pick := func(list []string) string { return list[rnd.IntN(len(list))] }
		for _, q := range []struct {
			name string
			n    int
			make func() Query
		}{
			{"lookup", 200, func() Query { return Query{LogsQL: `{row="span"} trace_id:=` + pick(known)} }},
			{"rid", 100, func() Query { return Query{LogsQL: `{row="span"} rid:=` + pick(rids)} }},
			{"slow", 40, func() Query {
				return Query{LogsQL: fmt.Sprintf(`{row="span",service="sglang"} duration:>%dms`, 900+rnd.IntN(2000)), Limit: 20}
			}},
			{"failed", 40, func() Query {
				return Query{LogsQL: `{row="span"} status_code:=error _msg:=` + loadStages[1+rnd.IntN(9)], Limit: 20}
			}},
			{"attribute", 40, func() Query {
				return Query{LogsQL: fmt.Sprintf(`{row="span"} "span_attr:sample_index":=%d`, rnd.IntN(1024)), Limit: 20}
			}},
		} {
			took := make([]float64, q.n)
			before, _ := s.benchUsage(b)
			for i := range took {
				found, at := 0, time.Now()
				if err := s.Query(within(b), q.make(), func([]event.Field) error { found++; return nil }); err != nil {
					b.Fatal(err)
				}
				took[i] = float64(time.Since(at).Microseconds()) / 1e3
				if found == 0 || q.name == "lookup" && found != spansOfTrace {
					b.Fatalf("%s: %d rows", q.name, found)
				}
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)*95/100], q.name+"-p95-ms")
			after, _ := s.benchUsage(b)
			b.ReportMetric((after.parent-before.parent+after.child-before.child)/float64(q.n)*1e3, q.name+"-cpu-ms")
		}
		_, peak2 := s.benchUsage(b)
		b.ReportMetric(peak2.child, "child-searching-MB")
		stop()
		benchServer(b, min(rows, 500_000))

		o := testOptions(b, dir)
		o.Scratch = b.TempDir()
		at := time.Now()
		ro, err := OpenReadOnly(b.Context(), o)
		if err != nil {
			b.Fatal(err)
		}
		stop = eventtest.Run(b, ro)
		if n := count(b, ro, `{row="span"} trace_id:=`+pick(known)); n != spansOfTrace {
			b.Fatalf("read-only: %d spans of a trace", n)
		}
		b.ReportMetric(float64(time.Since(at).Microseconds())/1e3, "read-only-first-answer-ms")
		stop()
	}
}

// benchServer is the peer: a VictoriaLogs server gets the same rows, without any promise before it has
// written them to files.
func benchServer(b *testing.B, rows int) {
	url := eventtest.Server(b)
	c := &client{base: url, http: &http.Client{}, remote: true}
	defer c.http.CloseIdleConnections()
	stats := func() map[string]float64 {
		resp, err := c.http.Get(url + "/metrics")
		if err != nil {
			b.Fatal(err)
		}
		defer drain(resp.Body)
		m := map[string]float64{}
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
			if at := strings.LastIndexByte(in.Text(), ' '); at > 0 {
				m[in.Text()[:at]], _ = strconv.ParseFloat(in.Text()[at+1:], 64)
			}
		}
		return m
	}
	const cpu = "process_cpu_seconds_total"
	before := stats()
	l := newLoad(7)
	l.made = make([]spans.Span, spansOfTrace)
	var lines []byte
	var r event.Row
	for n := 0; n < rows; n += spansOfTrace {
		for _, s := range l.next(l.base + int64(n)*loadSeconds*1e9/int64(rows)) {
			s.Row(&r)
			r.Engine = s.Attrs[2].Value.Str
			lines = appendRow(lines, &r, stamp(time.Now()))
		}
		if len(lines) > sendBytes || n+spansOfTrace >= rows {
			if _, err := c.insert(b.Context(), lines); err != nil {
				b.Fatal(err)
			}
			lines = lines[:0]
		}
	}
	m := stats()
	for range 600 {
		if m[`vl_storage_rows{type="storage/inmemory"}`] == 0 && m[`vl_pending_rows{type="storage"}`] == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
		m = stats()
	}
	stored := m[`vl_storage_rows{type="storage/small"}`] + m[`vl_storage_rows{type="storage/big"}`]
	if int(stored) != rows {
		b.Fatalf("the server stored %.0f rows of %d", stored, rows)
	}
	b.ReportMetric(stored/(m[cpu]-before[cpu]), "server-spans/cpu-s")
	b.ReportMetric((m[`vl_data_size_bytes{type="storage"}`]+m[`vl_data_size_bytes{type="indexdb"}`])/stored, "server-B/span")
}

// BenchmarkLogs parses lines as engines write them and stores the records.
func BenchmarkLogs(b *testing.B) {
	rows := benchRows()
	var lines [][]byte
	size := 0
	for _, path := range []string{"../enginelog/testdata/sglang/batches.log", "../enginelog/testdata/requests/stats.log"} {
		t, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(t)) {
			lines = append(lines, []byte(strings.TrimSpace(line)))
		}
	}
	for b.Loop() {
		dir := b.TempDir()
		s, stop := benchStore(b, dir)
		o := enginelog.Options{Source: "/var/log/sglang/engine-0.log", Service: "sglang", Engine: "10.0.0.1:30000", Zone: time.UTC}
		p := enginelog.NewParser(o)
		cpu0, _ := s.benchUsage(b)
		began, n := time.Now(), 0
		base := began.Add(-time.Hour).UnixNano()
		ingest(b, s, rows, func(r *event.Row) bool {
			for {
				line := lines[n%len(lines)]
				rec, ok := p.Line(line, base)
				n++
				if !ok {
					continue
				}
				size += len(line)
				rec.Time = base + int64(n)*1e5
				*r = rec.Row(o)
				return true
			}
		})
		settled(b, s)
		cpu1, _ := s.benchUsage(b)
		b.ReportMetric(float64(rows)/(cpu1.parent-cpu0.parent+cpu1.child-cpu0.child), "lines/cpu-s")
		b.ReportMetric(float64(rows)/time.Since(began).Seconds(), "lines/s")
		b.ReportMetric(float64(treeBytes(filepath.Join(dir, "events")))/float64(rows), "B/line")
		b.ReportMetric(float64(size)/float64(rows), "raw-B/line")
		stop()
	}
}
