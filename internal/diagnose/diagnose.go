// Package diagnose says what is wrong and why: it looks at what was recorded, and each finding names its
// cause with the evidence for it and what to do. Its entry point for the set-up of tracing is [Tracing].
package diagnose

import "cmp"

// Severity orders findings.
type Severity string

// Severities, worst first.
const (
	Broken Severity = "broken" // what was asked for does not arrive
	Poor   Severity = "poor"   // it arrives, with something missing or too much of it
	Note   Severity = "note"   // good to know
)

var order = map[Severity]int{Broken: 0, Poor: 1, Note: 2}

// Finding is one thing that is wrong.
type Finding struct {
	Code     string   `json:"code"` // stable
	Severity Severity `json:"severity"`
	Subject  string   `json:"subject"`  // a service, an engine, this process
	What     string   `json:"what"`     // one sentence
	Evidence []string `json:"evidence"` // what was seen
	Do       []string `json:"do"`       // switches, commands, settings; the first is the likeliest cure
}

func compare(a, b Finding) int {
	return cmp.Or(cmp.Compare(order[a.Severity], order[b.Severity]), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Subject, b.Subject))
}
