package signal

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/engine"
)

const docsHead = `# Signals and metrics

<!-- Generated from internal/signal by its test: go test ./internal/signal -run TestDocs -update -->

A **signal** is one question about a fleet with one right answer per backend, version and role; a **metric** is what a
program emits. Boards, alerts and the pages ask signals; PromQL may ask either. ` + "`rollscope explain NAME`" + ` prints
one entry with its queries.

How a signal counts each engine once:

- A router's ` + "`/engine_metrics`" + ` names the engine in ` + "`worker_addr`" + `, Ray's agent in ` + "`WorkerId`" + `; both become ` + "`instance`" + `. Where an
  engine is seen directly and through a router, the direct view counts.
- What several jobs or routers say about one engine, and what its tensor-, pipeline- and expert-parallel ranks repeat,
  collapses to the largest number. Data-parallel ranks add up. Of a gauge by priority, ` + "`priority=\"\"`" + ` is the total.
- Of several sources the first that an engine has counts for that engine, so old and new versions, SGLang and vLLM stand in
  one fleet. A frontend counts only where no engine has data.
- Percentiles of several engines are taken from their added buckets, over the bounds that all of them have; shares from
  added numerators and denominators. Nothing is averaged that must not be.
- Where nothing happened there is no sample (idle), never NaN.

The role of an engine is what the configuration says, else ` + "`engine_type`" + ` of the scheduler's gauges, else Dynamo's component,
else ` + "`engine_type`" + ` of the token counters, else unified.

## Recorded series

The built-in rules record each signal every ` + RuleInterval + ` with the labels ` + "`instance`, `model_name`, `role`, `backend`" + `:

| Kind | Series |
|---|---|
| quantile | ` + "`engine:ID:p50_rate5m`, `engine:ID:p99_rate5m`, `engine:ID_bucket:rate5m`, `engine:ID_count:rate5m`" + ` |
| rate | ` + "`engine:ID:rate5m`, of throughput `engine:throughput:rate1m`" + ` |
| share | ` + "`engine:ID:ratio5m`, `engine:ID_num:rate5m`, `engine:ID_den:rate5m`" + ` |
| level, worst | ` + "`engine:ID`" + ` |

` + "`fleet:ID...`" + ` are the fleet's numbers, without labels. ` + "`" + InfoSeries + "`" + ` is 1 for each engine that is there, ` + "`" + LostSeries + "`" + ` for each that was
there within the last hour and is not now.
`

// WriteDocs writes docs/metrics.md: every signal with its sources, every alert, every metric with its
// trap, and the names that no program emits.
func WriteDocs(w io.Writer, c *Catalog) error {
	d := docs{w: w}
	d.printf("%s", docsHead)
	d.signals(c)
	d.alerts()
	d.metrics(c)
	return d.err
}

// docs writes until the first error.
type docs struct {
	w   io.Writer
	err error
}

func (d *docs) printf(format string, args ...any) {
	if d.err == nil {
		_, d.err = fmt.Fprintf(d.w, format, args...)
	}
}

func (d *docs) signals(c *Catalog) {
	d.printf("\n## Signals\n")
	var groups []string
	for _, s := range c.signals {
		if !slices.Contains(groups, s.Group) {
			groups = append(groups, s.Group)
		}
	}
	for _, g := range groups {
		d.printf("\n### %s\n", g)
		for _, s := range c.signals {
			if s.Group == g {
				d.signal(s)
			}
		}
	}
}

func (d *docs) signal(s Signal) {
	d.printf("\n**`%s`** %s (%s, %s", s.ID, s.Title, s.Kind, s.Unit)
	if len(s.Roles) > 0 {
		d.printf("; %s", roleList(s))
	}
	d.printf("). %s", s.Meaning)
	if s.Trap != "" {
		d.printf(" *%s*", s.Trap)
	}
	if s.RawOnly {
		d.printf(" Not recorded.")
	}
	d.printf("\n\n")
	for _, src := range s.Sources {
		d.printf("- %s\n", codeNames(sourceInWords(src)))
	}
}

// codeNames sets the selectors of a source in code style: the words that hold an underscore.
func codeNames(text string) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		bare := strings.TrimRight(w, ";,:")
		if strings.Contains(bare, "_") && !strings.HasPrefix(bare, "(") {
			words[i] = "`" + bare + "`" + w[len(bare):]
		}
	}
	return strings.Join(words, " ")
}

func (d *docs) alerts() {
	d.printf("\n## Alerts\n\nOn by default; each holds per engine and is idle-safe. While an engine is lost, what fires for it goes on firing.\n\n")
	d.printf("| Alert | Severity | For | Expression | |\n|---|---|---|---|---|\n")
	for _, a := range Alerts() {
		cond, _, _ := strings.Cut(a.Expr, " or (max without")
		d.printf("| %s | %s | %s | `%s` | %s |\n", a.Name, a.Severity, a.For, cond, a.Meaning)
	}
}

func (d *docs) metrics(c *Catalog) {
	d.printf("\n## Metrics\n\nTypes: C counter, G gauge, H histogram, S summary, I info. \"Use\" names a better metric or a signal.\n")
	var group string
	var backend engine.Backend
	for _, m := range c.metrics {
		if m.Group != group || m.Backend != backend {
			group, backend = m.Group, m.Backend
			d.printf("\n### %s: %s\n\n| Metric | Type | Unit | Labels | Since | Till | Meaning | Trap | Use |\n|---|---|---|---|---|---|---|---|---|\n",
				strings.TrimPrefix(programName(backend), "the "), group)
		}
		name := "`" + m.Name + "`"
		if m.Invented {
			name += " (never emitted)"
		}
		if m.Dead {
			name += " (never set)"
		}
		typ := strings.ToUpper(string(m.Type)[:1])
		if m.WasType != "" {
			typ += " (" + m.WasType + ")"
		}
		use := m.Use
		if use != "" {
			use = "`" + use + "`"
		}
		d.printf("| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n",
			name, typ, m.Unit, strings.Join(m.Labels, " "), m.Since, m.Till, m.Meaning, m.Trap, use)
	}
}
