package api

import (
	"fmt"
	"strings"

	"github.com/rollscope/rollscope/internal/scrape"
)

// ScrapeTargets is the [TargetSource] of a scrape manager.
type ScrapeTargets struct{ Manager *scrape.Manager }

// Targets implements [TargetSource].
func (s ScrapeTargets) Targets() []Target {
	var out []Target
	for _, t := range s.Manager.Targets() {
		target := Target{Job: t.Job, Instance: t.Instance, URL: t.URL, Backend: string(t.Identity.Backend), Role: string(t.Identity.Role),
			Version: t.Identity.Version, Model: t.Identity.Model, Up: t.Up, LastScrape: stampPtr(t.LastScrape), Error: t.Error,
			Reason: string(t.Reason), Hint: t.Hint, Labels: t.Labels.Map(), DPRanks: max(t.Identity.DPSize, len(t.DPRanks))}
		if !t.LastScrape.IsZero() {
			seconds, samples := t.Duration.Seconds(), int64(t.Samples)
			target.Duration, target.Samples = &seconds, &samples
		}
		for _, f := range t.Findings {
			target.Findings = append(target.Findings, finding(f))
		}
		out = append(out, target)
	}
	return out
}

// finding says where in the exposition something odd is.
func finding(f scrape.Finding) Warning {
	var where []string
	if f.Line > 0 {
		where = append(where, fmt.Sprintf("line %d", f.Line))
	}
	switch {
	case f.Series != "":
		where = append(where, f.Series)
	case f.Family != "":
		where = append(where, f.Family)
	}
	w := Warning{Code: f.Code, Message: f.Message, Where: strings.Join(where, ", "), Hint: f.Hint}
	if f.Count > 1 {
		w.Message += fmt.Sprintf(" (and %d more of the kind)", f.Count-1)
	}
	return w
}

// Skipped implements [TargetSource]: what cannot be scraped, and what was and was replaced.
func (s ScrapeTargets) Skipped() []SkippedTarget {
	var out []SkippedTarget
	for _, k := range s.Manager.Skipped() {
		out = append(out, SkippedTarget{Address: k.Address, Reason: k.Reason, From: k.From})
	}
	for _, g := range s.Manager.Gone() {
		reason := "gone since " + stamp(g.At)
		if g.Next != "" {
			reason += ", replaced by " + g.Next
		}
		out = append(out, SkippedTarget{Address: g.Address, Reason: reason, From: g.From})
	}
	return out
}

// ScrapeDrops lists what a scrape manager did not keep.
func ScrapeDrops(m *scrape.Manager) []Drop {
	var out []Drop
	for _, d := range m.Drops() {
		out = append(out, Drop{Source: d.Job + "/" + d.Instance, Reason: d.Reason, Count: d.Count})
	}
	return out
}
