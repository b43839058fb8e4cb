// Command testreport reads `go test -json` and prints what a person needs: a line for each package,
// the output of what failed, every skipped test with its reason, and the counts on the last line.
// It exits with 1 if anything failed, did not build, or if no test ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
)

type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

func main() {
	var (
		passed, failed int
		badPackages    int
		out            = map[string][]string{} // package/test -> its output
		skips          []string
		in             = bufio.NewScanner(os.Stdin)
	)
	in.Buffer(make([]byte, 1<<20), 16<<20)
	for in.Scan() {
		var e event
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			fmt.Println(in.Text()) // not an event: the go command itself speaks
			continue
		}
		key := e.Package + "/" + e.Test
		switch e.Action {
		case "build-output":
			fmt.Print(e.Output)
		case "output":
			out[key] = append(out[key], e.Output)
		case "pass":
			if e.Test != "" {
				passed++
			} else {
				fmt.Printf("ok    %-60s %6.1fs\n", e.Package, e.Elapsed)
			}
			delete(out, key)
		case "skip":
			if e.Test != "" {
				skips = append(skips, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(out[key])))
			}
			delete(out, key)
		case "fail":
			if e.Test != "" {
				failed++
			} else {
				badPackages++
				fmt.Printf("FAIL  %-60s %6.1fs\n", e.Package, e.Elapsed)
			}
			fmt.Print(strings.Join(out[key], ""))
			delete(out, key)
		}
	}
	if len(skips) > 0 {
		sort.Strings(skips)
		fmt.Println("skipped:")
		for _, s := range skips {
			fmt.Println("  " + s)
		}
	}
	if badPackages > 0 && failed == 0 {
		failed = badPackages // did not build, or ended before a test could fail
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failed, len(skips))
	if failed > 0 || passed == 0 {
		os.Exit(1)
	}
}

// reason finds the text that t.Skip printed among a test's output.
func reason(lines []string) string {
	for _, l := range lines {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "===") || strings.HasPrefix(l, "---") {
			continue
		}
		return l
	}
	return "no reason given"
}
