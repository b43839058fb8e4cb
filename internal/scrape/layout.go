package scrape

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/common/model"
)

// layoutTable compares the bucket bounds of one histogram over all targets: engines of one fleet may
// be started with different bounds, and percentiles over both are wrong.
type layoutTable struct {
	mu     sync.Mutex
	family map[string]map[*target]string // histogram -> target -> bounds
}

func newLayoutTable() *layoutTable {
	return &layoutTable{family: map[string]map[*target]string{}}
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
func (l *layoutTable) update(t *target, layouts map[string]string) {
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

func (l *layoutTable) forget(t *target) { l.update(t, nil) }

// Layout is one set of bucket bounds of a histogram with the targets that have it.
type Layout struct {
	Bounds  []string // of le, sorted as text
	Targets []string // instances, sorted
}

// Layouts gives the histograms of which the fleet has more than one set of bucket bounds, most
// targets first.
func (m *Manager) Layouts() map[string][]Layout {
	m.layouts.mu.Lock()
	defer m.layouts.mu.Unlock()
	out := map[string][]Layout{}
	for f := range m.layouts.family {
		if ls := m.layouts.of(f); len(ls) > 1 {
			out[f] = ls
		}
	}
	return out
}

// of groups the targets of one histogram by layout. l.mu is held.
func (l *layoutTable) of(family string) []Layout {
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
func (l *layoutTable) findings(t *target) []Finding {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Finding
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
