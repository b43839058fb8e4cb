package signal

import (
	"fmt"
	"strings"
)

// Resolution is what can be said about a name that the store does not hold.
type Resolution struct {
	Name string // canonical form of what was asked, with its _bucket, _sum or _count
	// Use is what to ask instead: a series name with the same suffix, or a signal id; "" when unknown.
	Use string
	// Also are further candidates, for stores that do not hold Use either.
	Also []string
	// Same tells that Use is the same measurement: a query for Name may be answered with Use's data.
	Same       bool
	DidYouMean []string // near names of the catalog, when the name is in none of its tables
	Message    string   // one sentence for a warning
}

// Resolve says what to do about a name that is not in the store.
func (c *Catalog) Resolve(name string) Resolution {
	r := Resolution{Name: Canonical(name)}
	m, known := c.Metric(name)
	if !known {
		family, _ := splitSuffix(r.Name)
		r.DidYouMean = closest(family, c.names(), 3)
		r.Message = fmt.Sprintf("no program that Rollscope knows emits %s", name)
		if len(r.DidYouMean) > 0 {
			r.Message += "; did you mean " + strings.Join(r.DidYouMean, " or ") + "?"
		}
		return r
	}
	_, suffix := splitSuffix(r.Name)
	if m.Name == r.Name {
		suffix = ""
	}
	r.Use, r.Same = m.Use, m.Same
	if used, ok := c.Metric(m.Use); ok && used.Type == Histogram {
		r.Use += suffix
	}
	r.Message = m.Name + " is not stored"
	return r
}

// names are the names of all metrics.
func (c *Catalog) names() []string {
	out := make([]string, 0, len(c.metrics))
	for _, m := range c.metrics {
		out = append(out, m.Name)
	}
	return out
}
