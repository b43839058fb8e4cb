package metricstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/grafana/regexp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// NameNote is the annotation of a query for a name that the store does not hold as asked. It is an info
// when the answer is what was meant, and a warning when there is none.
type NameNote struct {
	Asked    string // as in the query
	Used     string // what was read instead, or should be asked; "" when nothing is known
	Answered bool   // Used is the same measurement and was read
	Message  string // one sentence
}

func (n *NameNote) Error() string {
	kind := annotations.PromQLWarning
	if n.info() {
		kind = annotations.PromQLInfo
	}
	return fmt.Sprintf("%v: %s", kind, n.Message)
}

// Unwrap gives the annotation its level.
func (n *NameNote) Unwrap() error {
	if n.info() {
		return annotations.PromQLInfo
	}
	return annotations.PromQLWarning
}

// info: answered, or a well-known metric that simply is not there.
func (n *NameNote) info() bool { return n.Answered || n.Used == n.Asked }

type quietKey struct{}

// WithoutNameNotes marks a query whose names come from the catalog: that some of them are not stored is
// not worth a word.
func WithoutNameNotes(ctx context.Context) context.Context {
	return context.WithValue(ctx, quietKey{}, true)
}

// anySpelling answers for a metric under any of its names. A name is looked for as it was asked and in
// its other spellings; what is found carries the name that was asked, and series that differ in the
// spelling only are one. Bucket bounds and quantiles are read as Prometheus 3 spells them.
type anySpelling struct {
	under storage.SampleAndChunkQueryable
	held  holder
	cat   *signal.Catalog
	// loads are the names of SGLang's /v1/loads that look like a spelling of an engine metric and are not.
	loads map[string]bool

	mu       sync.RWMutex
	resolved map[string]signal.Resolution // of names that were asked for in vain, up to maxResolved
}

// maxResolved bounds the cache of names asked for in vain.
const maxResolved = 4096

// resolve asks the catalog, which compares an unknown name with all it has.
func (a *anySpelling) resolve(name string) signal.Resolution {
	a.mu.RLock()
	r, ok := a.resolved[name]
	a.mu.RUnlock()
	if ok {
		return r
	}
	r = a.cat.Resolve(name)
	a.mu.Lock()
	if len(a.resolved) < maxResolved {
		a.resolved[name] = r
	}
	a.mu.Unlock()
	return r
}

func newAnySpelling(under storage.SampleAndChunkQueryable, held holder, cat *signal.Catalog) *anySpelling {
	a := &anySpelling{under: under, held: held, cat: cat, loads: map[string]bool{}, resolved: map[string]signal.Resolution{}}
	for _, m := range cat.Metrics() {
		if m.Backend == engine.SGLangLoads {
			a.loads[m.Name] = true
		}
	}
	return a
}

// Querier implements [storage.Queryable].
func (a *anySpelling) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := a.under.Querier(mint, maxt)
	if err != nil {
		return nil, err
	}
	return &anyQuerier{Querier: q, a: a, mint: mint, maxt: maxt}, nil
}

// ChunkQuerier implements [storage.ChunkQueryable].
func (a *anySpelling) ChunkQuerier(mint, maxt int64) (storage.ChunkQuerier, error) {
	q, err := a.under.ChunkQuerier(mint, maxt)
	if err != nil {
		return nil, err
	}
	return &anyChunkQuerier{ChunkQuerier: q, a: a, mint: mint, maxt: maxt}, nil
}

// part is one select on the store, and the name its series get; "" keeps theirs.
type part struct {
	matchers []*labels.Matcher
	rename   string
}

// plan is what a select becomes.
type plan struct {
	parts  []part
	normal bool // some bounds must be normalised
	note   *NameNote
	// otherwise is read when the parts give no series: the name is stored, but another version's program
	// emits it under a new name by now.
	otherwise *plan
}

func (p plan) plain() bool {
	return len(p.parts) == 1 && p.parts[0].rename == "" && !p.normal && p.note == nil && p.otherwise == nil
}

// hush takes the note off where nobody wants it.
func (p *plan) hush(ctx context.Context) {
	if ctx.Value(quietKey{}) == nil {
		return
	}
	p.note = nil
	if p.otherwise != nil {
		p.otherwise.note = nil
	}
}

// plan resolves the name of a select in a range of time.
func (a *anySpelling) plan(mint, maxt int64, hints *storage.SelectHints, ms []*labels.Matcher) plan {
	if hints != nil && hints.Start < hints.End {
		mint, maxt = max(mint, hints.Start), min(maxt, hints.End)
	}
	h := a.held.holds(mint, maxt)
	p := plan{normal: h.odd()}
	ms = widenBounds(ms)
	i, m := nameMatcher(ms)
	switch {
	case m == nil:
		p.parts = []part{{matchers: ms}}
	case m.Type == labels.MatchEqual:
		a.planName(&p, h, ms, i, m.Value)
	default:
		a.planNames(&p, h, ms, i, m.SetMatches())
	}
	return p
}

// planName plans for one name.
func (a *anySpelling) planName(p *plan, h holding, ms []*labels.Matcher, i int, asked string) {
	stored := a.stored(h, asked)
	if len(stored) == 0 || h.open && !contains(stored, asked) {
		if len(stored) == 0 {
			if use, note := a.successor(h, asked); len(use) > 0 || note != nil {
				stored, p.note = use, note
			}
		}
		if len(stored) == 0 || h.open {
			p.parts = append(p.parts, part{matchers: ms}) // finds nothing here, perhaps something elsewhere
		}
	}
	a.read(p, ms, i, asked, stored)
	if p.note != nil || len(stored) == 0 || ours(asked) {
		return
	}
	if r := a.resolve(asked); r.Same || len(r.Also) > 0 {
		if use, note := a.successor(h, asked); len(use) > 0 {
			p.otherwise = &plan{normal: p.normal, note: note}
			a.read(p.otherwise, ms, i, asked, use)
		}
	}
}

// read adds a select for each stored name, under the name that was asked.
func (a *anySpelling) read(p *plan, ms []*labels.Matcher, i int, asked string, stored []string) {
	for _, s := range stored {
		if s == asked {
			p.parts = append(p.parts, part{matchers: ms})
			continue
		}
		p.parts = append(p.parts, part{withName(ms, i, []string{s}), asked})
	}
}

// planNames plans for an alternation. A stored name is read once: as itself if it is asked for, else
// under the first of the asked names that it is a spelling of.
func (a *anySpelling) planNames(p *plan, h holding, ms []*labels.Matcher, i int, asked []string) {
	taken := map[string]bool{}
	for _, n := range asked {
		taken[n] = true
	}
	p.parts = append(p.parts, part{matchers: ms})
	for _, n := range asked {
		for _, s := range a.stored(h, n) {
			if !taken[s] {
				taken[s] = true
				p.parts = append(p.parts, part{withName(ms, i, []string{s}), n})
			}
		}
	}
}

// stored lists the spellings of a name that h holds.
func (a *anySpelling) stored(h holding, name string) []string {
	spellings := signal.Spellings(name)
	if !contains(spellings, name) {
		spellings = append(spellings, name)
	}
	var out []string
	for _, s := range spellings {
		if h.has(s) {
			out = append(out, s)
		}
	}
	if len(out) < 2 && (len(out) == 0 || out[0] == name) {
		return out
	}
	// A name of /v1/loads is no spelling of the engine's metric, if that text is what is stored.
	if slices.ContainsFunc(out, func(s string) bool { return a.loads[s] }) && h.some(func(n string) bool { return signal.IsLoads([]string{n}) }) {
		if a.loads[name] {
			return slices.DeleteFunc(out, func(s string) bool { return s != name })
		}
		return slices.DeleteFunc(out, func(s string) bool { return a.loads[s] })
	}
	return out
}

// successor finds what to read for a name that the range does not hold under any spelling, or what to
// say about it.
func (a *anySpelling) successor(h holding, asked string) ([]string, *NameNote) {
	if ours(asked) {
		return nil, nil
	}
	r := a.resolve(asked)
	candidates := r.Also
	if r.Use != "" {
		candidates = append([]string{r.Use}, r.Also...)
	}
	for _, c := range candidates {
		use := a.stored(h, c)
		if len(use) == 0 {
			continue
		}
		if a.same(asked, c, r) {
			return use, &NameNote{Asked: asked, Used: c, Answered: true,
				Message: fmt.Sprintf("%s is not stored here; this is the same measurement under its other name, %s", asked, c)}
		}
		return nil, &NameNote{Asked: asked, Used: c, Message: fmt.Sprintf("%s; %s is stored", r.Message, c)}
	}
	if everywhere := a.held.holds(math.MinInt64, math.MaxInt64); len(a.stored(everywhere, asked)) > 0 {
		return nil, nil // it is known, only not in this range
	}
	note := &NameNote{Asked: asked, Used: r.Use, Message: r.Message}
	if m, known := a.cat.Metric(asked); known && !m.Invented && !m.Dead && m.Till == "" && signal.Canonical(asked) == r.Name && !renamed(m, r) {
		note.Used = asked // a good name: nothing that is recorded emits it
	}
	return nil, note
}

// same tells whether a candidate is the same measurement as what was asked, under the name of another
// version, newer or older.
func (a *anySpelling) same(asked, candidate string, r signal.Resolution) bool {
	if candidate == r.Use {
		return r.Same
	}
	m, ok := a.cat.Metric(asked)
	old, known := a.cat.Metric(candidate)
	return ok && known && old.Same && old.Use == m.Name
}

// renamed tells whether the catalog has another series for what was asked.
func renamed(m signal.Metric, r signal.Resolution) bool { return r.Same && m.Name != r.Name }

// ours tells names that no engine emits and whose absence is ordinary: recorded series, alerts, and what
// the scraper writes.
func ours(name string) bool {
	if p, _, ok := strings.Cut(name, ":"); ok && p != "sglang" && p != "vllm" && !strings.HasPrefix(p, "ray_") {
		return true
	}
	for _, p := range []string{"ALERTS", "up", "scrape_", "rollscope_", "process_", "go_", "prometheus_"} {
		if name == p || strings.HasPrefix(name, p) && strings.HasSuffix(p, "_") || name == "ALERTS_FOR_STATE" {
			return true
		}
	}
	return false
}

// nameMatcher finds the matcher that names the metric: an equality, or a regular expression that is an
// alternation of names.
func nameMatcher(ms []*labels.Matcher) (int, *labels.Matcher) {
	for i, m := range ms {
		if m.Name != model.MetricNameLabel {
			continue
		}
		if m.Type == labels.MatchEqual && m.Value != "" {
			return i, m
		}
		if m.Type == labels.MatchRegexp && len(m.SetMatches()) > 0 {
			return i, m
		}
	}
	return -1, nil
}

// withName returns the matchers with the i-th replaced by one for names.
func withName(ms []*labels.Matcher, i int, names []string) []*labels.Matcher {
	out := slices.Clone(ms)
	if len(names) == 1 {
		out[i] = labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, names[0])
	} else {
		out[i] = alternation(labels.MatchRegexp, model.MetricNameLabel, names)
	}
	return out
}

// alternation matches any of values literally.
func alternation(t labels.MatchType, name string, values []string) *labels.Matcher {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = regexp.QuoteMeta(v)
	}
	return labels.MustNewMatcher(t, name, strings.Join(quoted, "|")) // quoted text always compiles
}

// widenBounds lets a matcher for one spelling of a bound (le="1") match the others (le="1.0").
func widenBounds(ms []*labels.Matcher) []*labels.Matcher {
	cloned := false
	for i, m := range ms {
		if m.Name != "le" && m.Name != "quantile" {
			continue
		}
		var values []string
		t := m.Type
		switch t {
		case labels.MatchEqual:
			t, values = labels.MatchRegexp, []string{m.Value}
		case labels.MatchNotEqual:
			t, values = labels.MatchNotRegexp, []string{m.Value}
		default:
			values = m.SetMatches()
		}
		var all []string
		for _, v := range values {
			for _, s := range boundSpellings(v) {
				if !contains(all, s) {
					all = append(all, s)
				}
			}
		}
		if len(all) == len(values) {
			continue
		}
		if !cloned {
			ms, cloned = slices.Clone(ms), true
		}
		ms[i] = alternation(t, m.Name, all)
	}
	return ms
}

// relabel gives a series the name and the bounds it is read under.
func (p plan) relabel(ls labels.Labels, rename string, b *labels.Builder) labels.Labels {
	le, quantile := "", ""
	if p.normal {
		le, quantile = ls.Get("le"), ls.Get("quantile")
	}
	if rename == "" && !isOdd(le) && !isOdd(quantile) {
		return ls
	}
	b.Reset(ls)
	if rename != "" {
		b.Set(model.MetricNameLabel, rename)
	}
	if le != "" {
		b.Set("le", normalBound(le))
	}
	if quantile != "" {
		b.Set("quantile", normalBound(quantile))
	}
	return b.Labels()
}

// labelMatchers rewrites matchers for a look-up of label names or values.
func (a *anySpelling) labelMatchers(mint, maxt int64, ms []*labels.Matcher) (out []*labels.Matcher, asked string) {
	ms = widenBounds(ms)
	i, m := nameMatcher(ms)
	if m == nil || m.Type != labels.MatchEqual {
		return ms, ""
	}
	h := a.held.holds(mint, maxt)
	stored := a.stored(h, m.Value)
	if len(stored) == 0 {
		stored, _ = a.successor(h, m.Value)
	}
	if len(stored) == 0 || len(stored) == 1 && stored[0] == m.Value {
		return ms, ""
	}
	if h.open && !contains(stored, m.Value) {
		stored = append(stored, m.Value)
	}
	return withName(ms, i, stored), m.Value
}

// anyQuerier is a [storage.Querier] under any spelling.
type anyQuerier struct {
	storage.Querier
	a          *anySpelling
	mint, maxt int64
}

func (q *anyQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	p := q.a.plan(q.mint, q.maxt, hints, ms)
	p.hush(ctx)
	if p.plain() {
		return q.Querier.Select(ctx, sorted, hints, p.parts[0].matchers...)
	}
	return &mergedSeries{plan: p, sel: func(ms []*labels.Matcher) storage.SeriesSet {
		return q.Querier.Select(ctx, true, hints, ms...)
	}}
}

func (q *anyQuerier) LabelValues(ctx context.Context, name string, hints *storage.LabelHints, ms ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	if len(ms) == 0 {
		return q.Querier.LabelValues(ctx, name, hints)
	}
	ms, asked := q.a.labelMatchers(q.mint, q.maxt, ms)
	vs, warn, err := q.Querier.LabelValues(ctx, name, hints, ms...)
	if name == model.MetricNameLabel && asked != "" && len(vs) > 0 {
		vs = []string{asked}
	}
	return vs, warn, err
}

func (q *anyQuerier) LabelNames(ctx context.Context, hints *storage.LabelHints, ms ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	if len(ms) > 0 {
		ms, _ = q.a.labelMatchers(q.mint, q.maxt, ms)
	}
	return q.Querier.LabelNames(ctx, hints, ms...)
}

// anyChunkQuerier is a [storage.ChunkQuerier] under any spelling.
type anyChunkQuerier struct {
	storage.ChunkQuerier
	a          *anySpelling
	mint, maxt int64
}

func (q *anyChunkQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, ms ...*labels.Matcher) storage.ChunkSeriesSet {
	p := q.a.plan(q.mint, q.maxt, hints, ms)
	p.hush(ctx)
	if p.plain() {
		return q.ChunkQuerier.Select(ctx, sorted, hints, p.parts[0].matchers...)
	}
	return &mergedChunks{plan: p, sel: func(ms []*labels.Matcher) storage.ChunkSeriesSet {
		return q.ChunkQuerier.Select(ctx, true, hints, ms...)
	}}
}

func (q *anyChunkQuerier) LabelValues(ctx context.Context, name string, hints *storage.LabelHints, ms ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	if len(ms) == 0 {
		return q.ChunkQuerier.LabelValues(ctx, name, hints)
	}
	ms, asked := q.a.labelMatchers(q.mint, q.maxt, ms)
	vs, warn, err := q.ChunkQuerier.LabelValues(ctx, name, hints, ms...)
	if name == model.MetricNameLabel && asked != "" && len(vs) > 0 {
		vs = []string{asked}
	}
	return vs, warn, err
}

func (q *anyChunkQuerier) LabelNames(ctx context.Context, hints *storage.LabelHints, ms ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	if len(ms) > 0 {
		ms, _ = q.a.labelMatchers(q.mint, q.maxt, ms)
	}
	return q.ChunkQuerier.LabelNames(ctx, hints, ms...)
}
