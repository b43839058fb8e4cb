package tracker

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Definition is a declared axis: the metrics that Glob names (a key, or a prefix and "*") are drawn over
// the key Step.
type Definition struct {
	Glob string `json:"glob"`
	Step string `json:"step"`
}

// matches says whether the definition is about key, as W&B decides it.
func (d Definition) matches(key string) bool {
	prefix, glob := strings.CutSuffix(d.Glob, "*")
	return key == d.Glob || glob && strings.HasPrefix(key, prefix)
}

// AxisFinding is a declared axis that rows do not carry.
type AxisFinding struct {
	Definition
	// Rows is how many rows hold a metric of the glob, Missing how many of those lack the axis. A row
	// that holds nothing but possible axes is not counted.
	Rows    int `json:"rows"`
	Missing int `json:"missing"`
	// Proposal is the key that those rows carry instead, or empty.
	Proposal string `json:"proposal,omitempty"`
}

// String says what is wrong and what to do.
func (f AxisFinding) String() string {
	in := fmt.Sprintf("%d of %d rows with %s lack it", f.Missing, f.Rows, f.Glob)
	if f.Missing == f.Rows {
		in = fmt.Sprintf("no row with %s contains it", f.Glob)
	}
	s := fmt.Sprintf("%s is drawn over %s, but %s: its curves lie on the wrong axis or at step 0", f.Glob, f.Step, in)
	if f.Proposal != "" {
		s += fmt.Sprintf("; declare %s, which these rows carry", f.Proposal)
	}
	return s
}

// CheckAxes finds declared axes that rows do not carry. Of several definitions that match a key the
// longest counts. The findings are in the order of defs.
func CheckAxes(defs []Definition, rows []map[string]float64) []AxisFinding {
	stats := make([]struct{ rows, missing int }, len(defs))
	candidates := make([]map[string]*candidate, len(defs))
	for _, row := range rows {
		var hit []int
		for key := range row {
			best := -1
			for i, d := range defs {
				if d.matches(key) && key != d.Step && (best < 0 || len(d.Glob) > len(defs[best].Glob)) {
					best = i
				}
			}
			if best >= 0 && !slices.Contains(hit, best) {
				hit = append(hit, best)
			}
		}
		for _, i := range hit {
			stats[i].rows++
			if _, ok := row[defs[i].Step]; ok {
				continue
			}
			stats[i].missing++
			if candidates[i] == nil {
				candidates[i] = map[string]*candidate{}
			}
			for key, v := range row {
				c := candidates[i][key]
				if c == nil {
					c = &candidate{key: key, last: math.Inf(-1), steps: true}
					candidates[i][key] = c
				}
				c.rows++
				if v != math.Trunc(v) || v < c.last || v < 0 {
					c.steps = false
				}
				c.last = v
			}
		}
	}
	var out []AxisFinding
	for i, d := range defs {
		if d.Step == "" || stats[i].missing == 0 {
			continue
		}
		var keys []string
		for _, c := range candidates[i] {
			// An axis is in every row and only ever grows, in whole numbers.
			if c.steps && c.rows == stats[i].missing {
				keys = append(keys, c.key)
			}
		}
		out = append(out, AxisFinding{Definition: d, Rows: stats[i].rows, Missing: stats[i].missing, Proposal: nearest(d.Step, prefixOf(d.Step), keys)})
	}
	return out
}

type candidate struct {
	key   string
	rows  int
	last  float64
	steps bool
}

func prefixOf(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }

// nearest returns the key that most likely is meant by the axis: one that is named as an axis is, by
// preference with the same prefix, then the most similar. It is empty when none is named like an axis.
func nearest(axis, prefix string, keys []string) string {
	type ranked struct {
		key   string
		other int
		dist  int
	}
	var list []ranked
	for _, k := range keys {
		if !axisLike(k) {
			continue
		}
		r := ranked{key: k, dist: distance(axis, k)}
		if !strings.HasPrefix(k, prefix) || prefix == "" && strings.Contains(k, "/") {
			r.other = 1
		}
		list = append(list, r)
	}
	if len(list) == 0 {
		return ""
	}
	return slices.MinFunc(list, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.other, b.other), cmp.Compare(a.dist, b.dist), strings.Compare(a.key, b.key))
	}).key
}

func axisLike(key string) bool {
	name := strings.ToLower(key[strings.LastIndexByte(key, '/')+1:])
	for _, end := range []string{"step", "steps", "epoch", "epochs", "iteration", "iter", "rollout_id", "batch", "update"} {
		if strings.HasSuffix(name, end) {
			return !strings.HasPrefix(key, "_")
		}
	}
	return false
}

// distance is the edit distance of two short names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
