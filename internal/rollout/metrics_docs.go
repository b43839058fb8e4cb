package rollout

import (
	"fmt"
	"strings"
)

// MetricsDoc is docs/rollout-metrics.md: every metric of a step, from [Catalog].
func MetricsDoc() string {
	var b strings.Builder
	b.WriteString(`# Metrics of a rollout step

Made from ` + "`internal/rollout/metrics_catalog.go`" + `; do not edit (` + "`go test ./internal/rollout -run MetricsDoc -update`" + `).

A step's metrics come in three views.

| view | what it is |
|---|---|
| compat | What slime publishes for the same dump, key by key and to the last bit (numpy 1.24's order of additions; Python 3.11's sum, or that of 3.12 on request). Where slime raises an exception it publishes nothing, and so does this view, which names the exception. |
| perf | What we publish under slime's names. It adds what slime loses (PD phases, streaming requests, counts), and counts only durations that can be: finite, real, not negative. Like slime it walks the whole trace of every sample. |
| perf_step | Each request once, in the one step that it ran in. Use it to judge a step. Requests of an aborted sample are in the dump of the step that finished it; they are moved to their own step when that dump is read. |

Dumps of an evaluation have ` + "`eval/NAME`" + `, ` + "`eval/NAME/...`" + ` (the keys of rollout/ for that dataset), ` + "`eval/NAME-truncated_ratio`" + ` and ` + "`eval/NAME-pass@k`" + ` on the axis eval/step,
and the keys of perf_step/ under eval_perf/. Everything else is on rollout/step.

A metric is a value; partial (of some of what it should be of: the note says how many); idle (nothing happened that could be measured); or unknown (the note says why).
Throughput needs the rollout time and the number of GPUs: without GPUs it is unknown, without a time it is derived from the extent of the step's own events, and marked.

{stat} stands for mean, median, max and min.

`)
	for _, part := range [...]struct{ prefix, title string }{
		{"rollout/", "rollout/: samples"}, {"passrate/", "passrate/"}, {"perf/", "perf/: the step and all requests"},
		{"perf_step/", "perf_step/: the requests of this step"}, {"eval", "eval/: datasets of an evaluation"},
	} {
		fmt.Fprintf(&b, "## %s\n\n| key | unit | views | meaning | read from | trap |\n|---|---|---|---|---|---|\n", part.title)
		for _, d := range catalog {
			if !strings.HasPrefix(d.Pattern, part.prefix) {
				continue
			}
			key := strings.Replace(strings.Replace(d.Pattern, "eval-", "eval/NAME-", 1), "{metric}", "METRIC", 1)
			if key == "eval" {
				key = "eval/NAME"
			}
			unit := d.Unit
			if unit == "" {
				unit = "reward"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", key, unit, viewNames(d.Views), cell(d.Meaning), cell(d.Source), cell(d.Trap))
		}
		b.WriteString("\n")
	}
	b.WriteString("## Why two views differ\n\n")
	for _, w := range Whys() {
		fmt.Fprintf(&b, "- %s\n", w)
	}
	b.WriteString("\n`internal/rollout/testdata/metrics/differences.golden` lists every difference on every test dump.\n")
	return b.String()
}

func viewNames(views int) string {
	var names []string
	for i, name := range [...]string{"compat", "perf", "perf_step"} {
		if views&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// cell makes text safe within a table of Markdown.
func cell(s string) string { return strings.NewReplacer("|", `\|`, "*", `\*`).Replace(s) }
