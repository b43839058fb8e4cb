package metricstore

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/promql"
)

// bucket is one cumulative bucket of a histogram: events per second at or below a bound.
type bucket struct{ le, count float64 }

// histogramOf is the buckets of one group, sorted by bound.
type histogramOf []bucket

// histograms sorts a vector of buckets by the group that key tells.
func histograms(v promql.Vector, key func(promql.Sample) string) map[string]histogramOf {
	out := map[string]histogramOf{}
	for _, s := range v {
		le, err := strconv.ParseFloat(s.Metric.Get("le"), 64)
		if err != nil || math.IsNaN(s.F) {
			continue
		}
		k := key(s)
		out[k] = append(out[k], bucket{le, s.F})
	}
	for k, h := range out {
		slices.SortFunc(h, func(a, b bucket) int { return cmp.Compare(a.le, b.le) })
		h.grow()
		out[k] = h
	}
	return out
}

// grow makes the counts never fall with the bound: rates of buckets that were reset apart may dip.
func (h histogramOf) grow() {
	for i := 1; i < len(h); i++ {
		h[i].count = max(h[i].count, h[i-1].count)
	}
}

// layout is the list of bounds, to compare histograms by.
func (h histogramOf) layout() string {
	var b strings.Builder
	for _, x := range h {
		b.WriteString(strconv.FormatFloat(x.le, 'g', -1, 64))
		b.WriteByte(' ')
	}
	return b.String()
}

// total is the events per second in all buckets.
func (h histogramOf) total() float64 {
	if len(h) == 0 || !math.IsInf(h[len(h)-1].le, 1) {
		return math.NaN()
	}
	return h[len(h)-1].count
}

// top is the highest finite bound.
func (h histogramOf) top() (bucket, bool) {
	for i := len(h) - 1; i >= 0; i-- {
		if !math.IsInf(h[i].le, 1) {
			return h[i], true
		}
	}
	return bucket{}, false
}

// addCommon adds histograms over the bounds that all of them have: with others, an engine that lacks a
// bound would be missing from that bucket and the sum no longer grow with the bound.
func addCommon(hs map[string]histogramOf) histogramOf {
	seen := map[float64]int{}
	sum := map[float64]float64{}
	for _, h := range hs {
		for _, b := range h {
			seen[b.le]++
			sum[b.le] += b.count
		}
	}
	var out histogramOf
	for le, n := range seen {
		if n == len(hs) {
			out = append(out, bucket{le, sum[le]})
		}
	}
	slices.SortFunc(out, func(a, b bucket) int { return cmp.Compare(a.le, b.le) })
	return out
}

// layouts counts the different lists of bounds.
func layouts(hs map[string]histogramOf) int {
	distinct := map[string]bool{}
	for _, h := range hs {
		distinct[h.layout()] = true
	}
	return len(distinct)
}

// quantile is the percentile of a histogram with the bucket it lies in, all in units of scale. ok is
// false without events. The value is interpolated within the bucket as PromQL does it.
func (h histogramOf) quantile(q, scale float64) (n Number, ok bool) {
	total := h.total()
	if !(total > 0) || len(h) < 2 {
		return Number{}, false
	}
	top, _ := h.top()
	above := max(0, (total-top.count)/total)
	n = Number{State: StateValue, ShareAbove: &above}
	rank := q * total
	i := 0
	for i < len(h)-1 && h[i].count < rank {
		i++
	}
	if math.IsInf(h[i].le, 1) {
		lower := top.le * scale
		n.Value, n.Lower, n.AtLeast = &lower, pointer(lower), true
		return n, true
	}
	lower, below := 0.0, 0.0
	if i > 0 {
		lower, below = h[i-1].le, h[i-1].count
	} else if h[0].le <= 0 {
		v := h[0].le * scale
		n.Value, n.Upper = &v, pointer(v)
		return n, true
	}
	v := h[i].le
	if in := h[i].count - below; in > 0 {
		v = lower + (h[i].le-lower)*(rank-below)/in
	}
	n.Value, n.Lower, n.Upper = pointer(v*scale), pointer(lower*scale), pointer(h[i].le*scale)
	return n, true
}
