package main

import "fmt"

// logs is what reading log lines costs, from their bytes to rows of the event store.
func logs(string, string) ([]row, error) {
	m, err := bench("./internal/enginelog/", "Benchmark(Line|Report)", "-benchtime", "2s")
	if err != nil {
		return nil, err
	}
	k := func(name string) string { return fmt.Sprintf("%.0f k/cpu-s", m[name+" lines/cpu-s"]/1e3) }
	return []row{
		{"log lines parsed: batches, access, statistics, text", k("Line/mix"), "100 k/cpu-s", ""},
		{"  batch lines of SGLang", k("Line/decode"), "", ""},
		{"  request time statistics", k("Line/stats"), "", ""},
		{"  Dynamo's JSON", k("Line/jsonl"), "", ""},
		{"  a log summed up (logs parse)", k("Report"), "", ""},
	}, nil
}
