package scrape

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/common/model"

	"github.com/rollscope/rollscope/internal/engine"
)

// fleet compares targets: engines may be started with different bucket bounds, and percentiles over
// both are wrong; a router may write other names than its engines.
type fleet struct {
	mu     sync.Mutex
	family map[string]map[*target]string // histogram -> target -> bounds
	models map[*target]view
}

// view is how a target names its models.
type view struct {
	router bool     // it speaks for its engines
	models []string // model_name
	at     []string // of a router: its engines' host:port; else its own
}

func newFleet() *fleet {
	return &fleet{family: map[string]map[*target]string{}, models: map[*target]view{}}
}

// layoutsOf gives the bounds of every histogram, written as one string.
func layoutsOf(e *Exposition) map[string]string {
	bounds := map[int]map[string]bool{}
	for _, s := range e.Samples {
		f := e.Families[s.Family]
		if f.Type != model.MetricTypeHistogram || s.Name() != f.Name+"_bucket" {
			continue
		}
		if bounds[s.Family] == nil {
			bounds[s.Family] = map[string]bool{}
		}
		bounds[s.Family][s.Labels.Get(model.BucketLabel)] = true
	}
	out := make(map[string]string, len(bounds))
	for i, b := range bounds {
		out[e.Families[i].Name] = strings.Join(sortedKeys(b), " ")
	}
	return out
}

// update replaces what is known of a target.
func (l *fleet) update(t *target, layouts map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for f, m := range l.family {
		if _, ok := layouts[f]; !ok {
			delete(m, t)
		}
	}
	for f, b := range layouts {
		if l.family[f] == nil {
			l.family[f] = map[*target]string{}
		}
		l.family[f][t] = b
	}
}

func (l *fleet) forget(t *target) {
	l.update(t, nil)
	l.mu.Lock()
	delete(l.models, t)
	l.mu.Unlock()
}

// see records how a target names its models.
func (l *fleet) see(t *target, e *Exposition) {
	v := view{router: e.Backend == engine.EngineMetrics, models: e.Models, at: []string{t.instance()}}
	if v.router {
		v.at = nil
		for _, a := range e.WorkerAddrs {
			i, _ := engine.InstanceOf(a)
			v.at = append(v.at, i)
		}
	}
	l.mu.Lock()
	l.models[t] = v
	l.mu.Unlock()
}

// renamed lists models that a router writes with _ for a colon. l.mu is held.
func (l *fleet) renamed(t *target) []Finding {
	mine, ok := l.models[t]
	if !ok || !mine.router {
		return nil
	}
	var out []Finding
	for o, v := range l.models {
		if v.router || o == t {
			continue
		}
		for _, m := range v.models {
			r := strings.ReplaceAll(m, ":", "_")
			if r == m || !slices.Contains(mine.models, r) {
				continue
			}
			how := "probably the same"
			if slices.Contains(mine.at, o.instance()) {
				how = "the same, by worker_addr"
			}
			out = append(out, Finding{Code: "model_renamed", Level: LevelWarn, Series: r,
				Message: fmt.Sprintf("this router writes model_name=%q for %q of %s (%s): routers replace every colon", r, m, o.instance(), how),
				Hint:    "one model stands under two names; select by the engine's own series"})
		}
	}
	slices.SortFunc(out, func(a, b Finding) int { return strings.Compare(a.Message, b.Message) })
	return slices.CompactFunc(out, func(a, b Finding) bool { return a.Series == b.Series })
}

// Layout is one set of bucket bounds of a histogram with the targets that have it.
type Layout struct {
	Bounds  []string // of le, sorted as text
	Targets []string // instances, sorted
}

// Layouts gives the histograms of which the fleet has more than one set of bucket bounds, most
// targets first.
func (m *Manager) Layouts() map[string][]Layout {
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	out := map[string][]Layout{}
	for f := range m.fleet.family {
		if ls := m.fleet.of(f); len(ls) > 1 {
			out[f] = ls
		}
	}
	return out
}

// of groups the targets of one histogram by layout. l.mu is held.
func (l *fleet) of(family string) []Layout {
	by := map[string][]string{}
	for t, b := range l.family[family] {
		by[b] = append(by[b], t.instance())
	}
	var out []Layout
	for b, ts := range by {
		slices.Sort(ts)
		out = append(out, Layout{Bounds: strings.Fields(b), Targets: ts})
	}
	slices.SortFunc(out, func(a, b Layout) int {
		if len(a.Targets) != len(b.Targets) {
			return len(b.Targets) - len(a.Targets)
		}
		return strings.Compare(a.Targets[0], b.Targets[0])
	})
	return out
}

// findings lists the histograms of a target whose bounds differ from another target's.
func (l *fleet) findings(t *target) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.renamed(t)
	for f, m := range l.family {
		mine, ok := m[t]
		if !ok {
			continue
		}
		var others []string
		for o, b := range m {
			if b != mine {
				others = append(others, o.instance())
			}
		}
		if len(others) == 0 {
			continue
		}
		slices.Sort(others)
		n := len(others)
		if n > 3 {
			others = append(others[:3], fmt.Sprintf("and %d more", n-3))
		}
		out = append(out, Finding{Code: "fleet_bucket_layouts", Level: LevelWarn, Family: f,
			Message: fmt.Sprintf("%s has other bucket bounds here than on %s", f, strings.Join(others, ", ")),
			Hint:    "percentiles over all of them use only the bounds they share; start the engines with the same bucket options"})
	}
	return out
}
