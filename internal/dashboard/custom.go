package dashboard

import (
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// CustomSignals turns the signals of a configuration into the catalog's form, for [signal.Catalog.With].
func CustomSignals(in []config.Signal) []signal.Signal {
	out := make([]signal.Signal, 0, len(in))
	for _, c := range in {
		s := signal.Signal{
			ID: c.ID, Title: c.Title, Short: c.Short, Group: c.Group, Unit: c.Unit, Kind: signal.Kind(c.Kind),
			Higher: c.Higher, Meaning: c.Meaning, Trap: c.Trap, Custom: true,
		}
		if s.Title == "" {
			s.Title = c.ID
		}
		if s.Short == "" {
			s.Short = s.Title
		}
		if s.Group == "" {
			s.Group = "Custom"
		}
		for _, r := range c.Roles {
			s.Roles = append(s.Roles, engine.Role(r))
		}
		sources := c.Sources
		if len(sources) == 0 {
			sources = []config.Source{{Metric: c.Metric, Match: c.Match, Ranks: c.Ranks}}
		}
		for _, src := range sources {
			s.Sources = append(s.Sources, customSource(src))
		}
		out = append(out, s)
	}
	return out
}

func customSource(c config.Source) signal.Source {
	out := signal.Source{
		Backend: engine.Backend(c.Backend), Name: c.Name, Scale: c.Scale, Caveat: c.Caveat, Fallback: c.Fallback,
		Num: terms(c.Num), Den: terms(c.Den),
	}
	if c.Metric != "" {
		out.Num = terms([]config.Term{{Metric: c.Metric, Match: c.Match, Ranks: c.Ranks}})
	}
	if out.Backend == "" {
		out.Backend = engine.Other
		if len(out.Num) > 0 {
			out.Backend = backendOf(out.Num[0].Metric)
		}
	}
	return out
}

// backendOf tells by a metric's name who emits it, where the configuration does not say.
func backendOf(metric string) engine.Backend {
	if b, ok := signal.Detect([]string{metric}); ok {
		return b
	}
	return engine.Other
}

func terms(in []config.Term) signal.Vec {
	var out signal.Vec
	for _, t := range in {
		out = append(out, signal.Term{Metric: t.Metric, Match: t.Match, Ranks: signal.Ranks(t.Ranks)})
	}
	return out
}

// Custom turns the boards of a configuration into boards, for [Boards]. All that is wrong with them is
// reported together, each with the line of the board: a signal that the catalog lacks, PromQL that cannot
// be read, an id that a built-in board has.
func Custom(cat *signal.Catalog, in []config.Board) ([]Board, error) {
	var out []Board
	var errs []error
	builtIn := Boards(cat)
	p := parser.NewParser(parser.Options{})
	for _, c := range in {
		fail := func(format string, args ...any) {
			errs = append(errs, &config.Error{Line: c.Line, Msg: fmt.Sprintf("board %q: ", c.ID) + fmt.Sprintf(format, args...)})
		}
		if slices.ContainsFunc(builtIn, func(b Board) bool { return b.ID == c.ID }) {
			fail("a built-in board has this id; choose another")
		}
		b := Board{ID: c.ID, Title: c.Title, Meaning: c.Meaning, Tags: []string{"custom"}, Custom: true}
		for _, cs := range c.Sections {
			s := Section{Title: cs.Title}
			for _, cp := range cs.Panels {
				panel := Panel{
					ID: cp.ID, Title: cp.Title, Unit: cp.Unit, View: View(cp.View), Meaning: cp.Meaning,
					Signal: cp.Signal, By: signal.By(cp.By), Min: cp.Min, Max: cp.Max,
				}
				if cp.Signal != "" {
					if _, ok := cat.Signal(cp.Signal); !ok {
						fail("panel %q: there is no signal %q", cp.Title, cp.Signal)
					}
				}
				for _, t := range cp.Targets {
					if _, err := p.ParseExpr(t.Expr); err != nil {
						fail("panel %q: %q: %v", cp.Title, t.Expr, err)
					}
					panel.Targets = append(panel.Targets, Target{Expr: t.Expr, Legend: t.Legend})
				}
				s.Panels = append(s.Panels, panel)
			}
			b.Sections = append(b.Sections, s)
		}
		out = append(out, b)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}
