package signal

import (
	"fmt"
	"strings"

	"github.com/rollscope/rollscope/internal/engine"
)

// Explain is the text of `rollscope explain NAME` about a signal or a metric in any spelling: what it
// means, how it misleads, and the queries. False means the name is unknown; the text then says what was
// perhaps meant.
func Explain(c *Catalog, name string) (string, bool) {
	_, isMetric := c.byName[name]
	if s, ok := c.Signal(name); ok && !isMetric {
		return explainSignal(c, s), true
	}
	if m, ok := c.Metric(name); ok {
		return explainMetric(c, m), true
	}
	if s, ok := c.recordedFrom(name); ok {
		return name + " is recorded by the built-in rules.\n\n" + explainSignal(c, s), true
	}
	r := c.Resolve(name)
	near := closest(name, c.ids(), 3)
	text := r.Message + "\n"
	if len(near) > 0 {
		text += "Signals with a near name: " + strings.Join(near, ", ") + "\n"
	}
	return text, false
}

func (c *Catalog) ids() []string {
	out := make([]string, 0, len(c.signals))
	for _, s := range c.signals {
		out = append(out, s.ID)
	}
	return out
}

// programName is a backend in words.
func programName(b engine.Backend) string {
	switch b {
	case engine.SGLang:
		return "SGLang"
	case engine.SGLangLoads:
		return "SGLang's /v1/loads"
	case engine.VLLM:
		return "vLLM"
	case engine.DynamoFrontend:
		return "the Dynamo frontend"
	case engine.DynamoWorker:
		return "the Dynamo worker"
	case engine.Router:
		return "the router"
	case engine.DCGM:
		return "dcgm-exporter"
	default:
		return "another program"
	}
}

// page writes "key  value" lines, long values wrapped under each other.
type page struct{ strings.Builder }

const pageWidth, keyWidth = 100, 11

func (p *page) line(key, value string) {
	if value == "" {
		return
	}
	for i, part := range wrap(value, pageWidth-keyWidth-2) {
		if i > 0 {
			key = ""
		}
		fmt.Fprintf(p, "  %-*s%s\n", keyWidth, key, part)
	}
}

// wrap breaks text at spaces.
func wrap(text string, width int) []string {
	var lines []string
	var line string
	for _, w := range strings.Fields(text) {
		if line != "" && len(line)+1+len(w) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += w
	}
	return append(lines, line)
}

func (p *page) query(heading, promql string) {
	fmt.Fprintf(p, "\n%s\n  %s\n", heading, promql)
}

func explainMetric(c *Catalog, m Metric) string {
	var p page
	fmt.Fprintln(&p, m.Name)
	if m.Invented {
		p.line("", "No program emits this: it stands in documents and dashboards.")
	}
	typ := string(m.Type)
	if m.WasType != "" {
		typ += " (" + m.WasType + ")"
	}
	p.line("type", typ)
	p.line("unit", m.Unit)
	if !m.Invented {
		p.line("emitted by", programName(m.Backend)+", "+m.Group)
	}
	p.line("labels", strings.Join(m.Labels, ", "))
	p.line("since", m.Since)
	p.line("till", m.Till)
	p.line("meaning", m.Meaning)
	if m.Dead {
		p.line("", "Emitted, but never set.")
	}
	p.line("trap", m.Trap)
	switch {
	case c.isSignal(m.Use):
		p.line("use", "the signal "+m.Use)
	case m.Same:
		p.line("use", m.Use+" (the same measurement)")
	default:
		p.line("use", m.Use)
	}
	if s := Spellings(m.Name); len(s) > 1 && !m.Invented {
		p.line("also as", strings.Join(s[1:], ", "))
	}
	if i, ok := c.byName[strings.Replace(m.Name, ":", "_", 1)]; ok && c.metrics[i].Name != m.Name {
		o := c.metrics[i]
		p.line("not to be", fmt.Sprintf("confused with %s of %s (labels %s): %s; %s", o.Name, programName(o.Backend), strings.Join(o.Labels, ", "), o.Meaning, o.Trap))
	}
	for _, s := range c.signals {
		for i, src := range s.Sources {
			if !mentions(src, m.Name) && !(m.Invented && m.Use != "" && mentions(src, m.Use)) {
				continue
			}
			e, err := Compile(s, Query{Sources: []int{i}})
			if err != nil || len(e) > longQuery {
				e = "rollscope explain " + s.ID
			}
			p.query(fmt.Sprintf("Signal %s, from %s:", s.ID, src.Name), e)
			break
		}
	}
	return p.String()
}

// longQuery is from where on a metric's page refers to the signal's page instead of showing a query.
const longQuery = 1000

// mentions tells whether a source reads a metric.
func mentions(src Source, metric string) bool {
	for _, v := range []Vec{src.Num, src.Den} {
		for _, t := range v {
			if t.Metric == metric || strings.TrimSuffix(strings.TrimSuffix(t.Metric, "_sum"), "_count") == metric {
				return true
			}
		}
	}
	return false
}

func explainSignal(c *Catalog, s Signal) string {
	var p page
	fmt.Fprintf(&p, "%s: %s\n", s.ID, s.Title)
	p.line("kind", kindInWords(s))
	p.line("unit", s.Unit)
	p.line("roles", roleList(s))
	p.line("meaning", s.Meaning)
	p.line("trap", s.Trap)
	fmt.Fprintf(&p, "\nSources, best first:\n")
	for _, src := range s.Sources {
		p.line("", sourceInWords(src))
	}
	if !s.RawOnly {
		for _, by := range []By{ByFleet, ByEngine} {
			if e, err := Compile(s, Query{By: by, Form: Recorded}); err == nil {
				p.query(fmt.Sprintf("By %s, recorded:", by), e)
			}
		}
	}
	for i, src := range s.Sources {
		if e, err := Compile(s, Query{Sources: []int{i}}); err == nil {
			p.query(fmt.Sprintf("Fleet, raw, from %s (%s):", programName(src.Backend), src.Name), e)
		}
	}
	if len(s.Sources) > 1 {
		if e, err := Compile(s, Query{}); err == nil {
			p.query("Fleet, raw, each engine from its best source:", e)
		}
	}
	return p.String()
}

func kindInWords(s Signal) string {
	switch s.Kind {
	case Quantile:
		return "percentiles of a histogram; engines are merged by adding buckets"
	case Rate:
		return "events per second; engines add up"
	case Level:
		return "a level; engines add up"
	case Share:
		return "a share; engines are merged by adding numerators and denominators"
	default:
		if s.Higher {
			return "a level; of several engines the lowest"
		}
		return "a level; of several engines the highest"
	}
}

func roleList(s Signal) string {
	var out []string
	for _, r := range s.Roles {
		out = append(out, string(r))
	}
	return strings.Join(out, ", ")
}

// sourceInWords is one line about a source.
func sourceInWords(src Source) string {
	text := programName(src.Backend) + ": " + vecInWords(src.Num)
	if len(src.Den) > 0 {
		text += " / " + vecInWords(src.Den)
	}
	if src.Scale != 0 {
		text += fmt.Sprintf(" * %g", src.Scale)
	}
	if src.Since != "" {
		text += " (since " + src.Since + ")"
	}
	if src.Fallback {
		text += "; only where no engine has data"
	}
	if src.Caveat != "" {
		text += "; caveat: " + src.Caveat
	}
	return text
}

func vecInWords(v Vec) string {
	var out []string
	for _, t := range v {
		var m []string
		if t.Match != "" {
			m = []string{t.Match}
		}
		out = append(out, selector(t.Metric, m))
	}
	return strings.Join(out, " + ")
}
