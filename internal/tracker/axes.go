package tracker

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/wandbfile"
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
	c := newAxisCheck(defs)
	for _, row := range rows {
		c.add(row)
	}
	return c.findings()
}

// CheckRunFile is CheckAxes of a W&B run file, anybody's: what it declares against what its rows carry.
func CheckRunFile(path string) ([]AxisFinding, error) {
	var defs []Definition
	err := eachRecord(path, func(rec *wandbfile.Record) {
		if m := rec.Metric; rec.Kind == wandbfile.KindMetric && !m.Expanded && m.StepMetric != "" && len(defs) < maxDefinitions {
			defs = append(defs, Definition{Glob: m.Name + m.Glob, Step: m.StepMetric})
		}
	})
	if err != nil {
		return nil, err
	}
	c := newAxisCheck(defs)
	row := map[string]float64{}
	err = eachRecord(path, func(rec *wandbfile.Record) {
		if rec.Kind != wandbfile.KindHistory {
			return
		}
		clear(row)
		for i := range rec.Items {
			if v, ok := rec.Items[i].Number(); ok {
				row[rec.Items[i].Name()] = v
			}
		}
		c.add(row)
	})
	return c.findings(), err
}

const maxDefinitions = 10000

// eachRecord calls fn with each whole record of a run file.
func eachRecord(path string, fn func(rec *wandbfile.Record)) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("tracker: %w", err)
	}
	defer f.Close()
	rd := wandbfile.NewReader(newBuffered(f), wandbfile.Options{})
	for {
		rec, err := rd.Next()
		var damaged *wandbfile.CorruptError
		switch {
		case err == io.EOF, errors.Is(err, wandbfile.ErrCut):
			return nil
		case errors.As(err, &damaged):
		case err != nil:
			return fmt.Errorf("tracker: %s: %w", path, err)
		default:
			fn(rec)
		}
	}
}

// axisCheck is CheckAxes row by row.
type axisCheck struct {
	defs  []Definition
	stats []axisStats
	of    map[string]int // the definition of a key, or -1
	hit   map[int]bool
}

type axisStats struct {
	rows, missing int
	candidates    map[string]*candidate
}

func newAxisCheck(defs []Definition) *axisCheck {
	return &axisCheck{defs: defs, stats: make([]axisStats, len(defs)), of: map[string]int{}, hit: map[int]bool{}}
}

// definition returns the longest definition that matches key, or -1.
func (c *axisCheck) definition(key string) int {
	if i, ok := c.of[key]; ok {
		return i
	}
	best := -1
	for i, d := range c.defs {
		if d.matches(key) && key != d.Step && (best < 0 || len(d.Glob) > len(c.defs[best].Glob)) {
			best = i
		}
	}
	c.of[key] = best
	return best
}

func (c *axisCheck) add(row map[string]float64) {
	clear(c.hit)
	for key := range row {
		if i := c.definition(key); i >= 0 {
			c.hit[i] = true
		}
	}
	for i := range c.hit {
		s := &c.stats[i]
		s.rows++
		if _, ok := row[c.defs[i].Step]; ok {
			continue
		}
		s.missing++
		if s.candidates == nil {
			s.candidates = map[string]*candidate{}
		}
		for key, v := range row {
			if !axisLike(key) {
				continue
			}
			k := s.candidates[key]
			if k == nil {
				k = &candidate{key: key, last: math.Inf(-1), steps: true}
				s.candidates[key] = k
			}
			k.rows++
			if v != math.Trunc(v) || v < k.last || v < 0 {
				k.steps = false
			}
			k.last = v
		}
	}
}

func (c *axisCheck) findings() []AxisFinding {
	var out []AxisFinding
	for i, d := range c.defs {
		s := &c.stats[i]
		if d.Step == "" || s.missing == 0 {
			continue
		}
		var keys []string
		for _, k := range s.candidates {
			// An axis is in every row and only ever grows, in whole numbers.
			if k.steps && k.rows == s.missing {
				keys = append(keys, k.key)
			}
		}
		out = append(out, AxisFinding{Definition: d, Rows: s.rows, Missing: s.missing, Proposal: nearest(d.Step, prefixOf(d.Step), keys)})
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
