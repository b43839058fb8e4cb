package main

import (
	"fmt"
	"os"
)

// events is what the event store costs: spans of 25 attributes and log lines into it, and back out.
// ROLLSCOPE_BENCH_SPANS (5,000,000 unless it is set; 200000 is enough to see that it runs) says how many.
func events(string, string) ([]row, error) {
	const spans = "ROLLSCOPE_BENCH_SPANS"
	if os.Getenv(spans) == "" {
		if err := os.Setenv(spans, "5000000"); err != nil {
			return nil, err
		}
		defer os.Unsetenv(spans)
	}
	m, err := bench("./internal/eventstore/", "Benchmark(Spans|Logs)", "-benchtime", "1x", "-timeout", "40m")
	if err != nil {
		return nil, err
	}
	k := func(name, unit string) string { return fmt.Sprintf("%.1f k%s", m[name]/1e3, unit) }
	mb := func(name string) string { return fmt.Sprintf("%.0f MB", m[name]) }
	ms := func(name string) string { return fmt.Sprintf("%.0f ms", m[name]) }
	cpu := func(name string) string { return fmt.Sprintf("%.0f ms of processor each", m[name]) }
	bytes := func(name string) string { return fmt.Sprintf("%.1f B", m[name]) }
	return []row{
		{"event store: " + os.Getenv(spans) + " spans of 25 attributes, all durable", k("Spans spans/cpu-s", "/cpu-s"), "40 k/cpu-s", ""},
		{"  the store's process of that", k("Spans child-spans/cpu-s", "/cpu-s"), "", "VictoriaLogs' server, no spool " + k("Spans server-spans/cpu-s", "/cpu-s")},
		{"  until all lie in files", k("Spans spans/s", "/s"), "", ""},
		{"  acknowledged", k("Spans appended/s", "/s"), "", ""},
		{"  on disk, a span", bytes("Spans B/span"), "70 B", "VictoriaLogs' server " + bytes("Spans server-B/span")},
		{"  peak resident memory of our process, with the sender", mb("Spans parent-MB"), "", ""},
		{"  peak resident memory of the store's process", mb("Spans child-MB"), "", ""},
		{"  the same after searches", mb("Spans child-searching-MB"), "", ""},
		{"  lookup by trace id, no time range, p95", ms("Spans lookup-p95-ms"), "20 ms", cpu("Spans lookup-cpu-ms")},
		{"  lookup by rid, no time range, p95", ms("Spans rid-p95-ms"), "", cpu("Spans rid-cpu-ms")},
		{"  search: service and duration, newest 20, p95", ms("Spans slow-p95-ms"), "500 ms", cpu("Spans slow-cpu-ms")},
		{"  search: error and name, newest 20, p95", ms("Spans failed-p95-ms"), "500 ms", cpu("Spans failed-cpu-ms")},
		{"  search: an attribute's value, newest 20, p95", ms("Spans attribute-p95-ms"), "500 ms", cpu("Spans attribute-cpu-ms")},
		{"  opened read-only, until the first answer", ms("Spans read-only-first-answer-ms"), "", ""},
		{"event store: log lines parsed and stored", k("Logs lines/cpu-s", "/cpu-s"), "40 k/cpu-s", ""},
		{"  on disk, a line", bytes("Logs B/line"), "", "as text " + bytes("Logs raw-B/line")},
	}, nil
}
