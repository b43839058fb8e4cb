package metricstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// BlindRule is an alert rule that cannot be judged: what it reads is not there, so that it would be quiet
// whatever happens.
type BlindRule struct {
	File, Group, Name string
	Missing           []string // selectors without a sample lately
	Reason            string   // one sentence, with the successor's name where one is known
}

// blindAfter is for how long a series may be silent before a rule that needs it counts as blind.
const blindAfter = 15 * time.Minute

// BlindRules lists the alert rules that cannot be judged now. A rule over alternatives (`or`) is blind
// when none of them has data; one over a recorded series, when what that is recorded from has none: a
// recorded series may be empty because nothing happens.
func (r *Rules) BlindRules(ctx context.Context) ([]BlindRule, error) {
	now := r.opts.Now()
	q, err := r.opts.Queryable.Querier(now.Add(-blindAfter).UnixMilli(), now.UnixMilli())
	if err != nil {
		return nil, fmt.Errorf("metricstore: looking for blind rules: %w", err)
	}
	defer q.Close()
	groups := r.manager.RuleGroups()
	r.mu.Lock()
	if len(groups) == 0 {
		groups = r.offline
	}
	r.mu.Unlock()
	j := judge{ctx: WithoutNameNotes(ctx), q: q, recorded: map[string][]parser.Expr{}, known: map[string]evidence{}}
	for _, g := range groups {
		for _, rule := range g.Rules() {
			if rec, ok := rule.(*rules.RecordingRule); ok {
				j.recorded[rec.Name()] = append(j.recorded[rec.Name()], rec.Query())
			}
		}
	}
	var out []BlindRule
	for _, g := range groups {
		for _, rule := range g.AlertingRules() {
			j.missing = nil
			if j.expr(rule.Query(), 0) != missing {
				continue
			}
			slices.Sort(j.missing)
			b := BlindRule{File: g.File(), Group: g.Name(), Name: rule.Name(), Missing: slices.Compact(j.missing)}
			b.Reason = r.blindReason(b.Missing)
			out = append(out, b)
		}
	}
	return out, j.err
}

// blindReason says what is missing, and what to read instead.
func (r *Rules) blindReason(selectors []string) string {
	var instead []string
	for _, s := range selectors {
		name, _, _ := strings.Cut(s, "{")
		if name == "" || ours(name) {
			continue
		}
		if res := r.opts.Catalog.Resolve(name); res.Use != "" {
			instead = append(instead, fmt.Sprintf("%s is now %s", name, res.Use))
		} else if len(res.DidYouMean) > 0 {
			instead = append(instead, res.Message)
		}
	}
	shown := selectors
	if len(shown) > 3 {
		shown = append(slices.Clone(shown[:3]), fmt.Sprintf("%d more", len(selectors)-3))
	}
	reason := "no data in the last 15 minutes for " + strings.Join(shown, ", ")
	if len(instead) > 0 {
		reason += "; " + strings.Join(instead, "; ")
	}
	return reason
}

// evidence is what an expression can be judged by.
type evidence int

const (
	constant evidence = iota // needs no data
	present
	missing
)

// judge decides whether expressions have data.
type judge struct {
	ctx      context.Context
	q        storage.Querier
	recorded map[string][]parser.Expr
	known    map[string]evidence // by selector
	missing  []string
	err      error
}

// maxDepth bounds recorded series that are made of recorded series.
const maxDepth = 8

func (j *judge) expr(e parser.Expr, depth int) evidence {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return j.selector(e, depth)
	case *parser.BinaryExpr:
		l, r := j.expr(e.LHS, depth), j.expr(e.RHS, depth)
		switch e.Op {
		case parser.LOR:
			// Alternatives. A constant one (`or vector(0)`) only says what to assume without data.
			switch {
			case l == present || r == present:
				return present
			case l == missing || r == missing:
				return missing
			}
			return constant
		case parser.LUNLESS:
			return l // without its right side it says the same
		}
		return both(l, r)
	case *parser.Call:
		if e.Func.Name == "absent" || e.Func.Name == "absent_over_time" {
			return present // judged by there being nothing
		}
		out := constant
		for _, a := range e.Args {
			out = both(out, j.expr(a, depth))
		}
		return out
	}
	out := constant
	for n := range parser.ChildrenIter(e) {
		if x, ok := n.(parser.Expr); ok {
			out = both(out, j.expr(x, depth))
		}
	}
	return out
}

// both needs both sides.
func both(l, r evidence) evidence { return max(l, r) }

func (j *judge) selector(v *parser.VectorSelector, depth int) evidence {
	name := v.Name
	if name == "" {
		if _, m := nameMatcher(v.LabelMatchers); m != nil && m.Type == labels.MatchEqual {
			name = m.Value
		}
	}
	if exprs := j.recorded[name]; len(exprs) > 0 && depth < maxDepth {
		out := missing
		for _, e := range exprs { // the same name may be recorded by several rules
			if j.expr(e, depth+1) != missing {
				out = present
			}
		}
		return out
	}
	key := v.String()
	if known, ok := j.known[key]; ok {
		if known == missing {
			j.missing = append(j.missing, key)
		}
		return known
	}
	out := missing
	if j.hasSample(v.LabelMatchers) {
		out = present
	} else {
		j.missing = append(j.missing, key)
	}
	j.known[key] = out
	return out
}

// hasSample tells whether any of the first series has a sample that is not a staleness marker.
func (j *judge) hasSample(ms []*labels.Matcher) bool {
	set := j.q.Select(j.ctx, false, nil, ms...)
	var it chunkenc.Iterator
	for n := 0; set.Next() && n < 100; n++ {
		it = set.At().Iterator(it)
		for t := it.Next(); t != chunkenc.ValNone; t = it.Next() {
			if t != chunkenc.ValFloat {
				return true
			}
			if _, v := it.At(); !value.IsStaleNaN(v) {
				return true
			}
		}
	}
	if err := set.Err(); err != nil && j.err == nil {
		j.err = fmt.Errorf("metricstore: looking for blind rules: %w", err)
	}
	return false
}
