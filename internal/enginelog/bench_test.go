package enginelog

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

// BenchmarkLine parses lines to rows, as a follower does: per kind of line, and a mix as an engine writes it.
func BenchmarkLine(b *testing.B) {
	read := func(path string) [][]byte {
		t, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		return bytes.Split(bytes.TrimSpace(t), []byte("\n"))
	}
	batches := read("testdata/sglang/batches.log")
	stats := read("testdata/requests/stats.log")
	access := []byte(`[2026-05-24 00:53:21] INFO:     127.0.0.1:59272 - "POST /generate HTTP/1.1" 200 OK`)
	jsonl := []byte(`{"time":"2025-10-31T21:06:45.397194Z","level":"DEBUG","file":"/opt/dynamo/lib/runtime/src/pipeline/network/tcp/server.rs","line":230,"target":"dynamo_runtime::pipeline::network::tcp::server","message":"Registering new TcpStream on 10.0.4.65:41959","method":"POST","span_id":"f7e487a9d2a6bf38","span_name":"http-request","trace_id":"80196f3e3a6fdf06d23bb9ada3788518","uri":"/v1/chat/completions","version":"HTTP/1.1","x_request_id":"8372eac7-5f43-4d76-beca-0a94cfb311d0"}`)
	plain := []byte(`[2026-05-24 00:52:42] Using default HuggingFace chat template with detected content format: string`)
	mix := [][]byte{batches[12], batches[2], access, stats[4], access, batches[13], access, plain}
	for _, k := range []struct {
		name  string
		lines [][]byte
	}{{"mix", mix}, {"decode", batches[12:13]}, {"access", [][]byte{access}}, {"stats", stats[4:6]}, {"jsonl", [][]byte{jsonl}}, {"finish", stats[10:11]}, {"text", [][]byte{plain}}} {
		b.Run(k.name, func(b *testing.B) {
			o := Options{Source: "x", Zone: time.UTC}
			p := NewParser(o)
			b.ReportAllocs()
			size, cpu := 0, cpuSeconds()
			for i := 0; b.Loop(); i++ {
				line := k.lines[i%len(k.lines)]
				size += len(line)
				r, ok := p.Line(line, 0)
				if !ok {
					b.Fatal("held")
				}
				if row := r.Row(o); row.Message == "" {
					b.Fatal("no message")
				}
			}
			b.ReportMetric(float64(b.N)/max(cpuSeconds()-cpu, 1e-9), "lines/cpu-s")
			b.SetBytes(int64(size / max(b.N, 1)))
		})
	}
}

// BenchmarkReport sums up a log of 50,000 lines.
func BenchmarkReport(b *testing.B) {
	t, err := os.ReadFile("testdata/sglang/batches.log")
	if err != nil {
		b.Fatal(err)
	}
	text := strings.Repeat(string(t), 50_000/bytes.Count(t, []byte("\n")))
	n := strings.Count(text, "\n")
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	cpu := cpuSeconds()
	for b.Loop() {
		if _, err := Summarize(strings.NewReader(text), ReportOptions{Zone: time.UTC}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/max(cpuSeconds()-cpu, 1e-9), "lines/cpu-s")
}
