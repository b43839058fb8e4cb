package main

import "fmt"

// sampling is tail sampling alone: from the bytes of a request to the decision about its traces, and what
// traces take that wait for theirs.
func sampling(string, string) ([]row, error) {
	decide, err := bench("./internal/tailsample/", "BenchmarkDecide", "-benchtime", "3x")
	if err != nil {
		return nil, err
	}
	held, err := bench("./internal/tailsample/", "BenchmarkHeld", "-benchtime", "1x", "-timeout", "30m")
	if err != nil {
		return nil, err
	}
	const per = "%.0f k spans/cpu-s"
	return []row{
		{"tail sampling: scan, hold, decide; 22 attributes a span", fmt.Sprintf(per, decide["Decide/observed=false spans/cpu-s"]/1e3), "", ""},
		{"  and what each request was, kept or not", fmt.Sprintf(per, decide["Decide/observed=true spans/cpu-s"]/1e3), "150 k with the receiver", ""},
		{"  resident memory of an undecided span", fmt.Sprintf("%.0f B", held["Held rss-B/span"]), "300 B", fmt.Sprintf("as it came %.0f B", held["Held wire-B/span"])},
		{"  of it in use", fmt.Sprintf("%.0f B", held["Held heap-B/span"]), "", ""},
	}, nil
}
