package dashboard

import (
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/rollscope/rollscope/internal/scrape"
	"github.com/rollscope/rollscope/internal/signal"
)

// Names is what the lint needs to know about the place whose data a rule or a board will meet: an
// exposition, a store, or both. Implementations must be safe for concurrent use and must answer for a
// name in the spelling they were asked, whatever spelling they hold.
type Names interface {
	// Has tells whether a series of that name exists ("sglang:x", "sglang_x", "x_bucket").
	Has(name string) bool
	// Type is the type of the family that name belongs to; "" when it cannot be told.
	Type(name string) signal.Type
	// Values lists the values that label has on series of that name, sorted; known is false when that
	// cannot be told. A series without the label counts as the value "".
	Values(name, label string) (values []string, known bool)
	// Where names the place in messages: a file, a URL.
	Where() string
}

// NameSet is a [Names] that is filled once and then read, also from several goroutines.
type NameSet struct {
	where string
	types map[string]signal.Type
	// values holds, by canonical name and label, how many series have which value.
	values map[string]map[string]map[string]int
	series map[string]int // by canonical name, how many series were added with their labels
}

// NewNameSet returns an empty set; where names the place in messages.
func NewNameSet(where string) *NameSet {
	return &NameSet{
		where:  where,
		types:  map[string]signal.Type{},
		values: map[string]map[string]map[string]int{},
		series: map[string]int{},
	}
}

// AddName notes that series of a name exist, of which nothing more is known.
func (s *NameSet) AddName(name string) {
	if name = signal.Canonical(name); s.values[name] == nil {
		s.values[name] = map[string]map[string]int{}
	}
}

// AddType notes the type of a family.
func (s *NameSet) AddType(family string, t signal.Type) {
	s.types[signal.Canonical(family)] = t
}

// AddSeries notes one series with its labels. Bounds and quantiles are taken as a store writes them.
func (s *NameSet) AddSeries(name string, ls labels.Labels) {
	s.AddName(name)
	name = signal.Canonical(name)
	s.series[name]++
	ls.Range(func(l labels.Label) {
		if l.Name == model.MetricNameLabel {
			return
		}
		v := l.Value
		if l.Name == labels.BucketLabel || l.Name == "quantile" {
			if f, err := strconv.ParseFloat(v, 64); err == nil {
				v = labels.FormatOpenMetricsFloat(f)
			}
		}
		if s.values[name][l.Name] == nil {
			s.values[name][l.Name] = map[string]int{}
		}
		s.values[name][l.Name][v]++
	})
}

// Has implements [Names].
func (s *NameSet) Has(name string) bool { return s.values[signal.Canonical(name)] != nil }

// Type implements [Names].
func (s *NameSet) Type(name string) signal.Type {
	name = signal.Canonical(name)
	if t := s.types[name]; t != "" {
		return t
	}
	if t := s.types[family(name)]; t == signal.Histogram || t == signal.Summary {
		return t
	}
	return ""
}

// Values implements [Names]. Labels that no series of the name has are not known: they may be added
// when the exposition is scraped.
func (s *NameSet) Values(name, label string) ([]string, bool) {
	name = signal.Canonical(name)
	counts := s.values[name][label]
	if len(counts) == 0 {
		return nil, false
	}
	out := slices.Collect(maps.Keys(counts))
	with := 0
	for _, n := range counts {
		with += n
	}
	if with < s.series[name] && counts[""] == 0 {
		out = append(out, "")
	}
	slices.Sort(out)
	return out, true
}

// Where implements [Names].
func (s *NameSet) Where() string { return s.where }

// NamesOf is what one exposition exposes.
func NamesOf(where string, e scrape.Exposition) *NameSet {
	s := NewNameSet(where)
	s.AddExposition(e)
	return s
}

// AddExposition adds everything that an exposition exposes.
func (s *NameSet) AddExposition(e scrape.Exposition) {
	for _, f := range e.Families {
		switch t := signal.Type(f.Type); t {
		case signal.Counter, signal.Gauge, signal.Histogram, signal.Summary, signal.Info:
			s.AddType(f.Name, t)
		}
	}
	for _, sample := range e.Samples {
		s.AddSeries(sample.Name(), sample.Labels)
	}
}

// NamesIn is a store of which only the metric names are known.
func NamesIn(where string, names []string) *NameSet {
	s := NewNameSet(where)
	for _, name := range names {
		s.AddName(name)
	}
	return s
}
