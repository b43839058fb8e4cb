package api

import (
	"encoding/json"
	"fmt"

	"github.com/rollscope/rollscope/internal/dashboard"
	"github.com/rollscope/rollscope/internal/signal"
)

// Dashboards is the [BoardSource] of a list of boards. It is immutable.
type Dashboards struct {
	boards  []dashboard.Board
	shown   []Board
	grafana map[string]json.RawMessage
}

// NewDashboards prepares both faces of the boards of dashboard.Boards.
func NewDashboards(cat *signal.Catalog, boards []dashboard.Board) (*Dashboards, error) {
	d := &Dashboards{boards: boards, grafana: map[string]json.RawMessage{}}
	for _, b := range boards {
		d.shown = append(d.shown, shownBoard(b))
		raw, err := dashboard.Grafana(cat, b, dashboard.GrafanaOptions{})
		if err != nil {
			return nil, fmt.Errorf("board %s for Grafana: %w", b.ID, err)
		}
		d.grafana[dashboard.UID(b)] = raw
	}
	return d, nil
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

// Grafana returns the Grafana JSON of a board.
func (d *Dashboards) Grafana(uid string) (json.RawMessage, bool) {
	raw, ok := d.grafana[uid]
	return raw, ok
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
