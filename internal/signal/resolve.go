package signal

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/engine"
)

// Resolution is what can be said about a name that the store does not hold.
type Resolution struct {
	Name string // canonical form of what was asked, with its _bucket, _sum or _count
	// Use is what to ask instead: a series name with the same suffix, or a signal id; "" when unknown.
	Use string
	// Also are series of other versions that measure nearly the same, for a store that does not hold Use.
	Also []string
	// Same tells that Use is a series of the same measurement: a query for Name may be answered with it.
	Same       bool
	DidYouMean []string // near names of the catalog, when the name is in none of its tables
	Message    string   // one sentence for a warning
}

// Resolve says what to do about a name, in any spelling, that is not in the store.
func (c *Catalog) Resolve(name string) Resolution {
	r := Resolution{Name: Canonical(name)}
	m, known := c.Metric(name)
	if s, ok := c.recordedFrom(name); ok && !known {
		r.Message = fmt.Sprintf("%s is not stored: the built-in rules record it from the signal %s, where they run", name, s.ID)
		return r
	}
	if !known {
		family, _ := splitSuffix(r.Name)
		r.DidYouMean = closest(family, c.names(), 3)
		r.Message = fmt.Sprintf("%s is not stored, and no program that Rollscope knows emits it", name)
		if len(r.DidYouMean) > 0 {
			r.Message += "; did you mean " + strings.Join(r.DidYouMean, " or ") + "?"
		}
		return r
	}
	if m.Backend == engine.SGLangLoads { // kept as written
		r.Name = m.Name
	}
	_, suffix := splitSuffix(r.Name)
	if r.Name == m.Name || r.Name == m.Name+"_total" || r.Name+"_total" == m.Name {
		suffix = "" // the name itself ends so
	}
	r.Also = c.alternatives(m, suffix)
	if r.Name != m.Name && r.Name != m.Name+suffix { // prompt_tokens of prompt_tokens_total
		r.Use, r.Same = m.Name, true
		r.Message = fmt.Sprintf("%s is not stored: the series is called %s", name, m.Name)
		return r
	}
	r.Use, r.Same = m.Use, m.Same
	if u, ok := c.Metric(m.Use); ok && m.Use == u.Name && u.Type == Histogram {
		r.Use += suffix
	}
	r.Message = c.why(name, m, suffix)
	if r.Use == "" && m.Type == Histogram && suffix == "" {
		r.Use = m.Name + "_bucket"
	}
	return r
}

// why is the sentence about a metric that is not stored.
func (c *Catalog) why(name string, m Metric, suffix string) string {
	var reason string
	switch {
	case m.Invented && m.Trap != "":
		reason = fmt.Sprintf("%s is in documents and dashboards only: %s", name, m.Trap)
	case m.Invented:
		reason = fmt.Sprintf("%s is in documents and dashboards only: no program emits it", name)
	case m.Type == Histogram && suffix == "":
		reason = fmt.Sprintf("%s is a histogram and has no sample of that name: ask for _bucket, _sum or _count", name)
		if m.WasType != "" {
			reason += " (a " + m.WasType + ")"
		}
	case m.Till != "":
		reason = fmt.Sprintf("%s is not stored: it was emitted until %s", name, m.Till)
	case m.Dead:
		reason = fmt.Sprintf("%s is not stored, and where it is emitted it is never set", name)
	case m.Since != "":
		reason = fmt.Sprintf("%s is not stored: %s emits it since %s", name, programName(m.Backend), m.Since)
		if m.Type == Counter {
			reason += ", some counters from their first event on"
		}
	default:
		reason = fmt.Sprintf("%s is not stored", name)
	}
	switch {
	case m.Use == "":
		return reason
	case c.isSignal(m.Use):
		s, _ := c.Signal(m.Use)
		return fmt.Sprintf("%s; use the signal %s (%s)", reason, m.Use, recordedHeadline(s))
	case m.Same:
		return fmt.Sprintf("%s; the same measurement is %s", reason, m.Use+suffix)
	default:
		return fmt.Sprintf("%s; the nearest is %s", reason, m.Use)
	}
}

func (c *Catalog) isSignal(id string) bool {
	_, ok := c.byID[id]
	return ok
}

// recordedHeadline is the recorded per-engine series that a signal is best known by.
func recordedHeadline(s Signal) string {
	switch {
	case s.RawOnly:
		return s.Title
	case s.Kind == Quantile:
		return recordedName("engine", s, "p99")
	case s.Kind == Share:
		return recordedName("engine", s, "ratio")
	default:
		return recordedName("engine", s, "rate")
	}
}

// alternatives are the series of other versions of the same program: first those that were renamed to m,
// then the other sources of the signals that m is a source of.
func (c *Catalog) alternatives(m Metric, suffix string) []string {
	var out []string
	add := func(name string) {
		if o, ok := c.byName[name]; ok && c.metrics[o].Type == Histogram {
			name += suffix
		}
		if name != m.Name+suffix && name != m.Name && name != m.Use && name != m.Use+suffix && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for _, o := range c.metrics {
		if o.Same && o.Use == m.Name && !o.Invented {
			add(o.Name)
		}
	}
	for _, s := range c.signals {
		if !slices.ContainsFunc(s.Sources, func(src Source) bool { return src.Backend == m.Backend && single(src) == m.Name }) {
			continue
		}
		for _, src := range s.Sources {
			if src.Backend == m.Backend && single(src) != "" {
				add(single(src))
			}
		}
	}
	return out
}

// single is the metric of a source that is nothing but that metric.
func single(s Source) string {
	if len(s.Num) == 1 && len(s.Den) == 0 && s.Num[0].Match == "" {
		return s.Num[0].Metric
	}
	return ""
}

// names are the names of all metrics.
func (c *Catalog) names() []string {
	out := make([]string, 0, len(c.metrics))
	for _, m := range c.metrics {
		out = append(out, m.Name)
	}
	return out
}
