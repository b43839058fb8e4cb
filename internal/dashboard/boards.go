package dashboard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// Boards returns the built-in boards over the signals of a catalog, then the extra ones (see [Custom]).
// Signals' targets are compiled in the raw form; a panel whose signal is not in the catalog says so in
// Problem. The result is the caller's.
func Boards(cat *signal.Catalog, extra ...Board) []Board {
	boards := []Board{
		goldenBoard(), sglangBoard(), dynamoSGLangBoard(), pdBoard(), routerBoard(), hicacheBoard(),
		speculativeBoard(), schedulerBoard(), dynamoBoard(), kvbmBoard(), gpuBoard(), vllmBoard(),
	}
	boards = append(boards, extra...)
	for i := range boards {
		boards[i] = complete(cat, boards[i])
	}
	return boards
}

// complete fills in what follows from the signals and gives every panel an id that is unique in its board.
func complete(cat *signal.Catalog, b Board) Board {
	used := map[string]int{}
	sections := make([]Section, len(b.Sections))
	for i, s := range b.Sections {
		sections[i] = Section{Title: s.Title, Panels: slices.Clone(s.Panels)}
		for j := range sections[i].Panels {
			p := &sections[i].Panels[j]
			p.complete(cat)
			if p.ID == "" {
				p.ID = slug(p.Title)
			}
			if used[p.ID]++; used[p.ID] > 1 {
				p.ID = fmt.Sprintf("%s_%d", p.ID, used[p.ID])
			}
		}
	}
	b.Sections = sections
	return b
}

func (p *Panel) complete(cat *signal.Catalog) {
	if p.View == "" {
		p.View = Lines
	}
	if p.Signal != "" && p.Targets == nil {
		p.Targets = []Target{{Signal: p.Signal, By: p.By}}
		if s, ok := cat.Signal(p.Signal); ok && s.Kind == signal.Quantile {
			if p.Quantiles == nil {
				p.Quantiles = []float64{0.5, 0.99}
				if p.By != "" && p.By != signal.ByFleet {
					p.Quantiles = []float64{0.99}
				}
			}
			p.Targets = nil
			for _, q := range p.Quantiles {
				p.Targets = append(p.Targets, Target{Signal: p.Signal, By: p.By, Quantile: q})
			}
		}
	}
	p.Targets = slices.Clone(p.Targets)
	for i := range p.Targets {
		t := &p.Targets[i]
		if t.Signal == "" {
			continue
		}
		s, ok := cat.Signal(t.Signal)
		if !ok {
			p.Problem = fmt.Sprintf("signal %q is not in the catalog", t.Signal)
			continue
		}
		if t.By == "" {
			t.By = p.By
		}
		if t.By == "" {
			t.By = signal.ByFleet
		}
		if t.Backend == "" {
			t.Backend = p.Backend
		}
		if t.Legend == "" {
			t.Legend = legend(s, *t)
		}
		if p.Claims == nil && i == 0 {
			p.Claims = claims(s, t.Backend)
		}
		if p.Unit == "" {
			p.Unit = s.Unit
		}
		if p.Title == "" {
			p.Title = s.Title
		}
		if p.Meaning == "" {
			p.Meaning = strings.TrimSpace(s.Meaning + " " + s.Trap)
		}
		expr, err := t.compile(s, QueryOptions{})
		if err != nil {
			p.Problem = err.Error()
			continue
		}
		t.Expr = expr
	}
	if p.Signal != "" && p.By == "" {
		p.By = signal.ByFleet
	}
	if p.Unit == "ratio" && !p.NoMax && p.Max == nil {
		p.Max = bound(1)
	}
	if p.Min == nil && p.View != Stat && p.View != Table {
		p.Min = bound(0)
	}
}

func bound(f float64) *float64 { return &f }

// QueryOptions says which form of a panel's queries is wanted.
type QueryOptions struct {
	Form  signal.Form // of signals; "" is raw
	Match string      // further matchers on the signals' series, as signal.Query.Match
}

// Queries gives the panel's targets with their expressions in the wanted form. Plain PromQL stays as it
// is. The error names the target that has no such form.
func (p Panel) Queries(cat *signal.Catalog, o QueryOptions) ([]Target, error) {
	out := slices.Clone(p.Targets)
	for i := range out {
		if out[i].Signal == "" {
			continue
		}
		s, ok := cat.Signal(out[i].Signal)
		if !ok {
			return nil, fmt.Errorf("panel %q: signal %q is not in the catalog", p.Title, out[i].Signal)
		}
		expr, err := out[i].compile(s, o)
		if err != nil {
			return nil, fmt.Errorf("panel %q: %w", p.Title, err)
		}
		out[i].Expr = expr
	}
	return out, nil
}

func (t Target) compile(s signal.Signal, o QueryOptions) (string, error) {
	q := signal.Query{By: t.By, Form: o.Form, Quantile: t.Quantile, Match: o.Match}
	if t.Backend != "" {
		if o.Form == signal.Recorded {
			q.Match = join(q.Match, fmt.Sprintf("backend=%q", t.Backend))
		} else {
			for i, src := range s.Sources {
				if src.Backend == t.Backend {
					q.Sources = append(q.Sources, i)
				}
			}
			if q.Sources == nil {
				return "", fmt.Errorf("signal %q has no source for %s", s.ID, t.Backend)
			}
		}
	}
	return signal.Compile(s, q)
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "," + b
}

// claims are the backends whose own numbers a signal shows.
func claims(s signal.Signal, only engine.Backend) []engine.Backend {
	var out []engine.Backend
	for _, src := range s.Sources {
		if (only == "" || src.Backend == only) && !slices.Contains(out, src.Backend) {
			out = append(out, src.Backend)
		}
	}
	return out
}

func legend(s signal.Signal, t Target) string {
	suffix := ""
	if s.Kind == signal.Quantile {
		suffix = fmt.Sprintf("p%g", t.Quantile*100)
	}
	switch t.By {
	case signal.ByEngine:
		return strings.TrimSpace("{{instance}} " + suffix)
	case signal.ByRole:
		return strings.TrimSpace("{{role}} " + suffix)
	case signal.ByModel:
		return strings.TrimSpace("{{model_name}} " + suffix)
	}
	if suffix != "" {
		return suffix
	}
	if s.Short != "" {
		return s.Short
	}
	return s.Title
}

// slug makes an id of a title: "Running / queued" gives "running_queued".
func slug(title string) string {
	var b strings.Builder
	gap := false
	for _, r := range strings.ToLower(title) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			if gap && b.Len() > 0 {
				b.WriteByte('_')
			}
			gap = false
			b.WriteRune(r)
			continue
		}
		gap = true
	}
	return b.String()
}

// Find is the board with that id or Grafana uid.
func Find(boards []Board, id string) (Board, bool) {
	i := slices.IndexFunc(boards, func(b Board) bool { return b.ID == id || UID(b) == id })
	if i < 0 {
		return Board{}, false
	}
	return boards[i], true
}

// Search finds the boards whose title, id, tags or meaning hold every word of the query, whatever its case;
// an empty query finds all.
func Search(boards []Board, query string) []Board {
	var out []Board
	words := strings.Fields(strings.ToLower(query))
	for _, b := range boards {
		text := strings.ToLower(strings.Join(append([]string{b.ID, UID(b), b.Title, b.Meaning}, b.Tags...), "\n"))
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			out = append(out, b)
		}
	}
	return out
}

// The pieces that the boards are written with.

// sig is a panel of one signal of the fleet.
func sig(id string, with ...func(*Panel)) Panel {
	p := Panel{Signal: id, ID: id}
	for _, f := range with {
		f(&p)
	}
	return p
}

// each is a panel of one signal, one line an engine.
func each(id string, with ...func(*Panel)) Panel {
	return sig(id, append([]func(*Panel){func(p *Panel) { p.By, p.ID = signal.ByEngine, id+"_by_engine" }}, with...)...)
}

// roles is a panel of one signal, one line a role.
func roles(id string, with ...func(*Panel)) Panel {
	return sig(id, append([]func(*Panel){func(p *Panel) { p.By, p.ID = signal.ByRole, id+"_by_role" }}, with...)...)
}

// prom is a panel of several targets.
func prom(title, unit string, targets []Target, with ...func(*Panel)) Panel {
	p := Panel{Title: title, Unit: unit, Targets: targets}
	for _, f := range with {
		f(&p)
	}
	return p
}

func expr(legend, promql string) Target { return Target{Expr: promql, Legend: legend} }

func lazy(t Target) Target {
	t.Lazy = true
	return t
}

func titled(title string) func(*Panel) { return func(p *Panel) { p.Title = title } }
func means(text string) func(*Panel)   { return func(p *Panel) { p.Meaning = text } }
func shown(v View) func(*Panel)        { return func(p *Panel) { p.View = v } }
func stacked(p *Panel)                 { p.Stacked = true }

// unbounded lets the axis of a ratio go above 1: seconds a second over several engines.
func unbounded(p *Panel) { p.NoMax = true }

func backend(b engine.Backend) func(*Panel) { return func(p *Panel) { p.Backend = b } }
func claiming(b ...engine.Backend) func(*Panel) {
	return func(p *Panel) { p.Claims = b }
}
func quantiles(q ...float64) func(*Panel) {
	return func(p *Panel) { p.Quantiles = q }
}

// above marks the values from v up, below those from v down.
func above(l Level, v float64) func(*Panel) {
	return func(p *Panel) { p.Thresholds = append(p.Thresholds, Threshold{Value: v, Level: l}) }
}

func below(l Level, v float64) func(*Panel) {
	return func(p *Panel) { p.Thresholds = append(p.Thresholds, Threshold{Value: v, Level: l, Below: true}) }
}

func row(title string, panels ...Panel) Section { return Section{Title: title, Panels: panels} }

func targets(t ...Target) []Target { return t }
