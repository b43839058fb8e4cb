package signal

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rollscope/rollscope/internal/engine"
)

// matchers are a query's additional matchers. Those of the engine's identity and of the model are kept
// apart, because they read another label in each view and of each program.
type matchers struct {
	instance []*labels.Matcher
	model    []*labels.Matcher
	other    []string
}

// parseMatch reads matchers without braces.
func parseMatch(text string) (matchers, error) {
	var out matchers
	if strings.TrimSpace(text) == "" {
		return out, nil
	}
	ms, err := parser.NewParser(parser.Options{}).ParseMetricSelector("x{" + text + "}")
	if err != nil {
		return out, fmt.Errorf("bad matchers %q: %w", text, err)
	}
	for _, m := range ms {
		switch m.Name {
		case model.MetricNameLabel:
		case "instance":
			out.instance = append(out.instance, m)
		case "model_name":
			out.model = append(out.model, m)
		default:
			out.other = append(out.other, m.String())
		}
	}
	return out, nil
}

// matchersOf are the matchers of a term in a view. A program without a label for the model is not
// filtered by it.
func (b *builder) matchersOf(backend engine.Backend, t Term, v view) []string {
	var out []string
	if t.Match != "" {
		out = append(out, t.Match)
	}
	out = append(out, b.match.other...)
	if l := modelLabelOf(backend); l != "" {
		out = append(out, renamed(b.match.model, l)...)
	}
	switch v {
	case plainView:
		out = append(out, renamed(b.match.instance, "instance")...)
	case directView:
		out = append(out, `worker_addr=""`)
		if len(b.match.instance) > 0 {
			out = append(out, `WorkerId=""`)
			out = append(out, renamed(b.match.instance, "instance")...)
		}
	case rayView:
		out = append(out, `worker_addr=""`, `WorkerId!=""`)
		out = append(out, renamed(b.match.instance, "WorkerId")...)
	case routerView:
		if len(b.match.instance) == 0 {
			return append(out, `worker_addr!=""`)
		}
		for _, m := range b.match.instance {
			value, op := m.Value, labels.MatchRegexp
			if m.Type == labels.MatchEqual || m.Type == labels.MatchNotEqual {
				value = regexp.QuoteMeta(value)
			}
			if m.Type == labels.MatchNotEqual || m.Type == labels.MatchNotRegexp {
				op = labels.MatchNotRegexp
			}
			out = append(out, fmt.Sprintf("worker_addr%s%q", op, `([a-z]+://)?(`+value+`)([/@].*)?`))
		}
		out = append(out, `worker_addr!=""`)
	}
	return out
}

// renamed writes matchers with another label name.
func renamed(ms []*labels.Matcher, name string) []string {
	var out []string
	for _, m := range ms {
		out = append(out, fmt.Sprintf("%s%s%q", name, m.Type, m.Value))
	}
	return out
}

// selector writes a series selector.
func selector(metric string, matchers []string) string {
	if len(matchers) == 0 {
		return metric
	}
	return metric + "{" + strings.Join(matchers, ",") + "}"
}
