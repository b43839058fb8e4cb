package metricstore

import (
	"context"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// nameSet is the set of metric names of a block or head, with the number of their series in a head.
type nameSet struct {
	mu    sync.RWMutex
	names map[string]int
	// odd tells that some le or quantile is not spelled as Prometheus 3 spells it.
	odd atomic.Bool
}

func newNameSet() *nameSet { return &nameSet{names: map[string]int{}} }

func (n *nameSet) has(name string) bool {
	n.mu.RLock()
	_, ok := n.names[name]
	n.mu.RUnlock()
	return ok
}

// add counts a series of a name.
func (n *nameSet) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.names[name]; !ok {
		name = strings.Clone(name) // not to keep the rest of the labels alive
	}
	n.names[name]++
}

func (n *nameSet) each(f func(string)) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for name := range n.names {
		f(name)
	}
}

// PreCreation, PostCreation and PostDeletion make a nameSet a [tsdb.SeriesLifecycleCallback], through
// which a head tells of new series.
func (n *nameSet) PreCreation(labels.Labels) error { return nil }

// PostCreation notes the series' name.
func (n *nameSet) PostCreation(ls labels.Labels) {
	n.add(ls.Get(model.MetricNameLabel))
	if !n.odd.Load() && (isOdd(ls.Get("le")) || isOdd(ls.Get("quantile"))) {
		n.odd.Store(true)
	}
}

// PostDeletion forgets a name with its last series.
func (n *nameSet) PostDeletion(gone map[chunks.HeadSeriesRef]labels.Labels) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ls := range gone {
		name := ls.Get(model.MetricNameLabel)
		if n.names[name]--; n.names[name] <= 0 {
			delete(n.names, name)
		}
	}
}

// normalBound spells a bucket bound or quantile as Prometheus 3 does ("1" becomes "1.0"); what is not a
// number stays.
func normalBound(v string) string {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return v
	}
	return labels.FormatOpenMetricsFloat(f)
}

func isOdd(v string) bool { return v != "" && normalBound(v) != v }

// boundSpellings lists how a bucket bound may be stored: as asked, as Prometheus 3 normalises it, as Go
// and Python programs write it.
func boundSpellings(v string) []string {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(f) {
		return []string{v}
	}
	out := []string{v}
	plain := strconv.FormatFloat(f, 'f', -1, 64)
	short := strconv.FormatFloat(f, 'g', -1, 64)
	cands := []string{labels.FormatOpenMetricsFloat(f), short}
	if math.IsInf(f, 0) {
		cands = []string{labels.FormatOpenMetricsFloat(f), "+Inf", "Inf"}
	} else if len(plain) < 20 {
		cands = append(cands, plain)
		if !strings.Contains(plain, ".") {
			cands = append(cands, plain+".0")
		}
	}
	for _, c := range cands {
		if !contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// blockNames remembers the name sets of blocks, which never change.
type blockNames struct {
	mu     sync.RWMutex
	blocks map[ulid.ULID]*nameSet
	intern map[string]string
}

func newBlockNames() *blockNames {
	return &blockNames{blocks: map[ulid.ULID]*nameSet{}, intern: map[string]string{}}
}

// of returns the names of a block, reading its index the first time. A block that cannot be read has no
// names; its queries report why.
func (b *blockNames) of(block *tsdb.Block) *nameSet {
	id := block.Meta().ULID
	b.mu.RLock()
	n := b.blocks[id]
	b.mu.RUnlock()
	if n != nil {
		return n
	}
	n = newNameSet()
	ir, err := block.Index()
	if err != nil {
		return n
	}
	defer ir.Close()
	ctx := context.Background()
	names, err := ir.LabelValues(ctx, model.MetricNameLabel, nil)
	if err != nil {
		return n
	}
	b.mu.Lock()
	for _, name := range names {
		s, ok := b.intern[name]
		if !ok {
			s = strings.Clone(name)
			b.intern[s] = s
		}
		n.names[s] = 1
	}
	b.mu.Unlock()
	for _, l := range []string{"le", "quantile"} {
		vs, err := ir.LabelValues(ctx, l, nil)
		if err != nil {
			continue
		}
		for _, v := range vs {
			if isOdd(v) {
				n.odd.Store(true)
			}
		}
	}
	b.mu.Lock()
	b.blocks[id] = n
	b.mu.Unlock()
	return n
}

// forget drops the sets of blocks that are not in keep.
func (b *blockNames) forget(keep []*tsdb.Block) {
	alive := make(map[ulid.ULID]bool, len(keep))
	for _, k := range keep {
		alive[k.Meta().ULID] = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range b.blocks {
		if !alive[id] {
			delete(b.blocks, id)
		}
	}
}

// holding is what a store holds in a range of time.
type holding struct {
	sets []*nameSet
	// open tells that other data may stand behind (remote read), whose names are not known.
	open bool
}

func (h holding) has(name string) bool {
	for _, s := range h.sets {
		if s.has(name) {
			return true
		}
	}
	return false
}

func (h holding) odd() bool {
	for _, s := range h.sets {
		if s.odd.Load() {
			return true
		}
	}
	return false
}

// some tells whether f is true of any name.
func (h holding) some(f func(string) bool) bool {
	found := false
	for _, s := range h.sets {
		s.each(func(n string) { found = found || f(n) })
		if found {
			return true
		}
	}
	return false
}

// holder tells what a store holds.
type holder interface {
	holds(mint, maxt int64) holding
}

// holds implements holder over the blocks and the head.
func (s *Store) holds(mint, maxt int64) holding {
	h := s.current.Load()
	out := holding{sets: make([]*nameSet, 0, 8), open: s.remoteReads.Load()}
	blocks := h.db.Blocks()
	for _, b := range blocks {
		if b.OverlapsClosedInterval(mint, maxt) {
			out.sets = append(out.sets, s.names.of(b))
		}
	}
	head := h.db.Head()
	if maxt >= head.MinTime() || (maxt >= head.MinOOOTime() && mint <= head.MaxOOOTime()) {
		out.sets = append(out.sets, h.names)
	}
	s.names.mu.RLock()
	stale := len(s.names.blocks) > len(blocks)+16
	s.names.mu.RUnlock()
	if stale {
		s.names.forget(blocks)
	}
	return out
}
