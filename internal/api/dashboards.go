package api

import (
	"encoding/json"

	"github.com/rollscope/rollscope/internal/dashboard"
	"github.com/rollscope/rollscope/internal/signal"
)

// Dashboards is the [BoardSource] of a list of boards. It is immutable.
type Dashboards struct {
	cat    *signal.Catalog
	boards []dashboard.Board
	shown  []Board
}

// NewDashboards shows the boards of dashboard.Boards over cat, which it keeps.
func NewDashboards(cat *signal.Catalog, boards []dashboard.Board) *Dashboards {
	d := &Dashboards{cat: cat, boards: boards}
	for _, b := range boards {
		d.shown = append(d.shown, shownBoard(b))
	}
	return d
}

// Boards returns what our own pages show.
func (d *Dashboards) Boards() []Board { return d.shown }

// Search finds boards by words.
func (d *Dashboards) Search(query string) []BoardHit {
	hits := []BoardHit{}
	for _, b := range dashboard.Search(d.boards, query) {
		hits = append(hits, BoardHit{UID: dashboard.UID(b), Title: b.Title, Tags: b.Tags})
	}
	return hits
}

// Grafana writes the Grafana JSON of a board. It is for our own data source, which answers to any
// spelling of a name.
func (d *Dashboards) Grafana(uid string) (json.RawMessage, bool, error) {
	for _, b := range d.boards {
		if dashboard.UID(b) == uid {
			raw, err := dashboard.Grafana(d.cat, b, dashboard.GrafanaOptions{OneSpelling: true})
			return raw, err == nil, err
		}
	}
	return nil, false, nil
}

func shownBoard(b dashboard.Board) Board {
	out := Board{ID: b.ID, Title: b.Title, Meaning: b.Meaning, Tags: b.Tags, Custom: b.Custom}
	for _, s := range b.Sections {
		section := BoardSection{Title: s.Title}
		for _, p := range s.Panels {
			section.Panels = append(section.Panels, shownPanel(p))
		}
		out.Sections = append(out.Sections, section)
	}
	return out
}

func shownPanel(p dashboard.Panel) Panel {
	out := Panel{ID: p.ID, Title: p.Title, Unit: p.Unit, View: string(p.View), Meaning: p.Meaning, Signal: p.Signal, By: string(p.By),
		Quantiles: p.Quantiles, Stacked: p.Stacked, Min: p.Min, Max: p.Max, Problem: p.Problem}
	if p.Backend != "" {
		out.Signal = "" // a signal is read of all engines: the panel is drawn from its targets
	}
	for _, t := range p.Targets {
		out.Targets = append(out.Targets, PanelTarget{Expr: t.Expr, Legend: t.Legend})
	}
	for _, t := range p.Thresholds {
		out.Thresholds = append(out.Thresholds, Threshold{Value: t.Value, Level: Level(t.Level), Below: t.Below})
	}
	for _, b := range p.Claims {
		out.Backends = append(out.Backends, string(b))
	}
	return out
}
