// Package house holds the rule of who may import whom, as data that a test reads.
// Its entry point is [Check].
package house

import (
	"fmt"
	"strings"
)

// Module is the path before every package's name.
const Module = "github.com/rollscope/rollscope/"

// Columns lists the packages from the left (imports nothing of ours) to the right (wires everything).
// A package imports only packages of columns to its left.
var Columns = [][]string{
	{"torchfile", "trace"}, // public
	{"engine", "signal", "request", "rollout", "timeline", "event", "logsql", "span", "fpm", "tfevents", "wandbfile", "tailsample", "config"},                                      // domain: pure, no I/O, no clock
	{"metricstore", "eventstore", "eventstore/child", "eventstore/eventtest", "eventstore/wire", "tracestore", "requeststore", "logstore", "passstore", "holdlog", "rolloutstore"}, // stores
	{"scrape", "dumps", "convert", "otlp", "enginelog", "logpush", "fpmbus", "scalars", "tracker", "systemport"},                                                                   // sources and sinks
	{"slo", "planner", "diagnose", "report"}, // analysis
	{"dashboard", "api", "web"},              // faces
	{"sim", "app", "cmd/rollscope"},          // whole
}

// Inside lists what a package may import of its own column.
var Inside = map[string][]string{
	"timeline":             {"rollout", "request", "span"},
	"rollout":              {"request"},
	"request":              {"engine", "event"},
	"span":                 {"request", "event"},
	"tailsample":           {"span", "request", "event"},
	"eventstore":           {"eventstore/wire"},
	"eventstore/child":     {"eventstore/wire"},
	"eventstore/eventtest": {"eventstore/child"},
	"tracestore":           {"eventstore"},
	"requeststore":         {"eventstore"},
	"logstore":             {"eventstore"},
	"passstore":            {"eventstore"},
	"signal":               {"engine"},
	"api":                  {"dashboard", "web"},
	"cmd/rollscope":        {"app", "sim"},
	"app":                  {"sim"},
	"sim/spans":            {"sim"}, // they render what the model tells
	"sim/lines":            {"sim"},
	"sim/passes":           {"sim"},
}

// Only lists packages that a path may be imported by, whatever the column.
var Only = map[string][]string{
	"github.com/VictoriaMetrics/VictoriaLogs/app": {"eventstore/child"},
}

// ForTests lists packages that only tests may import.
var ForTests = []string{"eventstore/eventtest"}

// outside are directories with Go code that is not part of the binary and may import anything.
var outside = []string{"house", "tools/", "test/"}

// short turns an import path of ours into the name that the columns use.
func short(path string) (string, bool) {
	s, ours := strings.CutPrefix(path, Module)
	return strings.TrimPrefix(s, "internal/"), ours
}

// Check returns an error for the first import of pkg that the columns do not allow. Both are full
// import paths, imports those of the package's own files without its tests.
func Check(pkg string, imports []string) error {
	name, ours := short(pkg)
	if !ours {
		return nil
	}
	for _, o := range outside {
		if name == strings.TrimSuffix(o, "/") || strings.HasPrefix(name, o) {
			return nil
		}
	}
	from := column(name)
	if from < 0 {
		return fmt.Errorf("%s stands in no column: add it to Columns in internal/house/house.go, and to docs/architecture.md", pkg)
	}
	for _, imp := range imports {
		for prefix, by := range Only {
			if strings.HasPrefix(imp, prefix) && !contains(by, name) {
				return fmt.Errorf("%s imports %s, which only %s may", pkg, imp, strings.Join(by, ", "))
			}
		}
		dep, ours := short(imp)
		if !ours {
			continue
		}
		if contains(ForTests, dep) {
			return fmt.Errorf("%s imports %s, which only tests may", pkg, imp)
		}
		to := column(dep)
		switch {
		case to < 0:
			return fmt.Errorf("%s imports %s, which stands in no column", pkg, imp)
		case to > from:
			return fmt.Errorf("%s imports %s, which stands to its right: let %s declare the small interface it needs, and hand the thing in", pkg, imp, name)
		case to == from && !contains(Inside[name], dep):
			return fmt.Errorf("%s imports %s of its own column, which Inside does not list", pkg, imp)
		}
	}
	return nil
}

// column returns the index of the column of a package or of the package that holds it, or -1.
func column(name string) int {
	best, at := -1, -1
	for i, c := range Columns {
		for _, p := range c {
			if (name == p || strings.HasPrefix(name, p+"/")) && len(p) > best {
				best, at = len(p), i
			}
		}
	}
	return at
}

func contains(list []string, name string) bool {
	for _, l := range list {
		if l == name || strings.HasPrefix(name, l+"/") {
			return true
		}
	}
	return false
}
