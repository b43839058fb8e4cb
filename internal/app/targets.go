package app

import (
	"fmt"
	"io"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/metricstore"
	"github.com/rollscope/rollscope/internal/scrape"
)

// scraped shows the scraper's targets to the API.
type scraped struct{ m *scrape.Manager }

func (s scraped) Targets() []api.Target {
	list := s.m.Targets()
	out := make([]api.Target, 0, len(list))
	for _, t := range list {
		target := api.Target{
			Job: t.Job, Instance: t.Instance, URL: t.URL,
			Backend: string(t.Identity.Backend), Role: string(t.Identity.Role), Version: t.Identity.Version, Model: t.Identity.Model,
			Up: t.Up, Error: t.Error, Reason: string(t.Reason), Hint: t.Hint,
			Findings: []api.Warning{}, Labels: t.Labels.Map(), DPRanks: t.Identity.DPSize,
		}
		if !t.LastScrape.IsZero() {
			at, took, samples := stamp(t.LastScrape), t.Duration.Seconds(), int64(t.Samples)
			target.LastScrape, target.Duration, target.Samples = &at, &took, &samples
		}
		for _, f := range t.Findings {
			where := t.Instance
			if f.Line > 0 {
				where = fmt.Sprintf("%s, line %d", t.Instance, f.Line)
			}
			target.Findings = append(target.Findings, api.Warning{Code: f.Code, Message: f.Message, Where: where, Hint: f.Hint})
		}
		out = append(out, target)
	}
	return out
}

func (s scraped) Skipped() []api.SkippedTarget {
	list := s.m.Skipped()
	out := make([]api.SkippedTarget, 0, len(list))
	for _, t := range list {
		out = append(out, api.SkippedTarget{Address: t.Address, Reason: t.Reason, From: t.From})
	}
	return out
}

// dropsOf adds up what the scraper and the store did not keep.
func dropsOf(store *metricstore.Store, scraper *scrape.Manager) []api.Drop {
	out := []api.Drop{}
	for _, d := range scraper.Drops() {
		out = append(out, api.Drop{Source: d.Job + "/" + d.Instance, Reason: d.Reason, Count: d.Count})
	}
	for _, d := range store.Drops() {
		out = append(out, api.Drop{Source: d.Source, Reason: d.Reason, Count: d.Count})
	}
	return out
}

func fmtAddress(w io.Writer, version, url, dir string) {
	fmt.Fprintf(w, "rollscope %s: %s shows %s, read-only\n", version, url, dir)
}
