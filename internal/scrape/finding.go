package scrape

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// Level is how much a finding matters.
type Level string

// Levels.
const (
	LevelInfo  Level = "info"  // worth knowing
	LevelWarn  Level = "warn"  // numbers may mislead
	LevelError Level = "error" // data is lost
)

// Finding is something odd about an exposition or a target.
type Finding struct {
	// Code is stable: "duplicate_series", "bad_line", "type_conflict", "mixed_names", "le_spelling",
	// "bucket_layouts", "nan", "gt_le_gauge", "not_monotone", ...
	Code    string
	Level   Level
	Line    int    // in the body; 0 when it is not about a line
	Family  string // canonical
	Series  string // as Prometheus writes it
	Message string // one sentence
	Hint    string // what to do; "" when there is nothing
	Count   int    // of the last one of a code whose list was cut: it and those not listed; else 0
}

// maxPerCode bounds how many findings of one code are listed.
const maxPerCode = 20

// find adds a finding, or counts it when there are many of its code.
func (b *builder) find(f Finding) {
	if b.counts == nil {
		b.counts = map[string]int{}
	}
	n := b.counts[f.Code] + 1
	b.counts[f.Code] = n
	if n <= maxPerCode {
		b.findings = append(b.findings, f)
		return
	}
	for i := len(b.findings) - 1; i >= 0; i-- {
		if b.findings[i].Code == f.Code {
			b.findings[i].Count = n - maxPerCode + 1
			return
		}
	}
}

// check looks for everything odd in an exposition.
func (b *builder) check(canonical func(string) string) {
	b.badLines()
	b.headerNames(canonical)
	b.duplicates()
	b.buckets()
	b.gauges()
	if b.walked.noEOF {
		b.find(Finding{Code: "no_eof", Level: LevelError, Line: b.e.Lines,
			Message: `an OpenMetrics answer must end with "# EOF"; it was cut off`,
			Hint:    "the connection or a proxy ended the answer early; its last line may be wrong"})
	}
	if b.e.Total > len(b.e.Samples) {
		b.find(Finding{Code: "too_many_samples", Level: LevelWarn,
			Message: fmt.Sprintf("of %d samples only the first %d were inspected", b.e.Total, len(b.e.Samples))})
	}
	slices.SortStableFunc(b.findings, func(x, y Finding) int { return x.Line - y.Line })
}

func (b *builder) badLines() {
	for _, l := range b.bad {
		b.find(Finding{Code: "bad_line", Level: LevelError, Line: l.line,
			Message: fmt.Sprintf("line %d cannot be read (%v): %s", l.line, l.err, excerpt(l.text)),
			Hint:    "Prometheus drops the whole answer for one such line"})
	}
	if more := b.e.BadLines - len(b.bad); more > 0 && len(b.findings) > 0 {
		b.findings[len(b.findings)-1].Count = more + 1
	}
	if b.walked.gaveUp {
		b.find(Finding{Code: "gave_up", Level: LevelError, Message: fmt.Sprintf("reading stopped after %d bad lines", maxBad)})
	}
}

// headerNames compares the names in HELP and TYPE with those of the samples.
func (b *builder) headerNames(canonical func(string) string) {
	e := b.e
	var mixed, untyped []string
	for _, f := range e.Families {
		if f.Header != "" && f.Written != "" && f.Header != f.Written &&
			canonical(f.Header) == strings.TrimSuffix(canonical(f.Written), "_total") ||
			f.Header != "" && f.Written != "" && f.Header != f.Written && canonical(f.Header) == canonical(f.Written) {
			if strings.TrimSuffix(f.Written, "_total") != f.Header {
				mixed = append(mixed, f.Name)
			}
		}
		if f.Header == "" && f.Samples > 0 {
			untyped = append(untyped, f.Name)
		}
	}
	if len(mixed) > 0 {
		f, _ := e.Family(mixed[0])
		b.find(Finding{Code: "mixed_names", Level: LevelWarn, Line: f.Line, Family: f.Name,
			Message: fmt.Sprintf("HELP and TYPE say %s where the samples say %s (%d families): a strict reader loses every type", f.Header, f.Written, len(mixed)),
			Hint:    "a known defect of prometheus_client under OpenMetrics; Rollscope stores both under one name"})
	}
	if len(untyped) > 0 {
		f, _ := e.Family(untyped[0])
		b.find(Finding{Code: "no_type", Level: LevelInfo, Line: f.Line, Family: f.Name,
			Message: fmt.Sprintf("%d families have samples and neither HELP nor TYPE, the first is %s", len(untyped), f.Name)})
	}
	if e.Spelling == SpellingMixed {
		b.find(Finding{Code: "mixed_spelling", Level: LevelWarn,
			Message: "the same engine's metrics are written in several spellings in one answer",
			Hint:    "Rollscope stores all of them under the engine's own names"})
	}
}

// duplicates finds series that stand twice. Prometheus keeps the first and drops the others.
func (b *builder) duplicates() {
	type first struct{ i int }
	seen := make(map[uint64][]first, len(b.e.Samples))
	for i, s := range b.e.Samples {
		h := s.Labels.Hash()
		var dup *Sample
		for _, f := range seen[h] {
			if p := &b.e.Samples[f.i]; labels.Equal(p.Labels, s.Labels) && sameTime(p.Timestamp, s.Timestamp) {
				dup = p
				break
			}
		}
		if dup == nil {
			seen[h] = append(seen[h], first{i})
			continue
		}
		b.find(Finding{Code: "duplicate_series", Level: LevelError, Line: s.Line, Family: b.e.Families[s.Family].Name, Series: s.Labels.String(),
			Message: fmt.Sprintf("%s stands in line %d with %s and in line %d with %s; the first is kept",
				s.Labels, dup.Line, number(dup.Value), s.Line, number(s.Value)),
			Hint: "several schedulers without rank labels, or a proxy that joins replicas: the numbers of all but one are missing"})
	}
}

func sameTime(a, b *int64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// bucketSet is one histogram: a label set without le.
type bucketSet struct {
	labels  labels.Labels
	family  int
	line    int
	bounds  []float64
	counts  []float64
	texts   []string
	count   float64
	counted bool
}

// buckets checks histograms: spelling and order of bounds, monotony, equal layouts.
func (b *builder) buckets() {
	e := b.e
	sets := map[uint64][]*bucketSet{}
	var order []*bucketSet
	lb := labels.NewBuilder(labels.EmptyLabels())
	get := func(s Sample, drop ...string) *bucketSet {
		lb.Reset(s.Labels)
		lb.Del(append(drop, model.MetricNameLabel)...)
		l := lb.Labels()
		h := l.Hash() ^ uint64(s.Family)*0x9e3779b97f4a7c15
		for _, x := range sets[h] {
			if x.family == s.Family && labels.Equal(x.labels, l) {
				return x
			}
		}
		x := &bucketSet{labels: l, family: s.Family, line: s.Line}
		sets[h] = append(sets[h], x)
		order = append(order, x)
		return x
	}
	for _, s := range e.Samples {
		f := e.Families[s.Family]
		if f.Type != model.MetricTypeHistogram {
			continue
		}
		switch n := s.Name(); {
		case n == f.Name+"_bucket":
			le := s.Labels.Get(model.BucketLabel)
			bound, err := strconv.ParseFloat(le, 64)
			if err != nil {
				b.find(Finding{Code: "bad_bound", Level: LevelError, Line: s.Line, Family: f.Name, Series: s.Labels.String(),
					Message: fmt.Sprintf("bucket bound le=%q of %s is no number", le, f.Name)})
				continue
			}
			x := get(s, model.BucketLabel)
			x.bounds, x.counts, x.texts = append(x.bounds, bound), append(x.counts, s.Value), append(x.texts, le)
		case n == f.Name+"_count":
			x := get(s)
			x.count, x.counted = s.Value, true
		}
	}
	first := map[int]*bucketSet{}
	odd := map[int]int{}
	for _, x := range order {
		f := e.Families[x.family]
		if len(x.bounds) == 0 {
			continue
		}
		b.monotone(f, x)
		sorted := slices.Clone(x.bounds)
		slices.Sort(sorted)
		x.bounds = sorted
		if p := first[x.family]; p == nil {
			first[x.family] = x
		} else if !slices.Equal(p.bounds, x.bounds) {
			odd[x.family]++
			if odd[x.family] == 1 {
				b.find(Finding{Code: "bucket_layouts", Level: LevelWarn, Line: x.line, Family: f.Name, Series: x.labels.String(),
					Message: fmt.Sprintf("%s has other bucket bounds for %s (%d bounds) than for %s (%d bounds)", f.Name, x.labels, len(x.bounds), p.labels, len(p.bounds)),
					Hint:    "percentiles over both are only right on the bounds they share"})
			}
		}
	}
	b.boundSpelling()
}

// monotone checks one histogram.
func (b *builder) monotone(f Family, x *bucketSet) {
	idx := make([]int, len(x.bounds))
	for i := range idx {
		idx[i] = i
	}
	slices.SortStableFunc(idx, func(i, j int) int {
		switch {
		case x.bounds[i] < x.bounds[j]:
			return -1
		case x.bounds[i] > x.bounds[j]:
			return 1
		}
		return 0
	})
	for k := 1; k < len(idx); k++ {
		lo, hi := idx[k-1], idx[k]
		if x.counts[hi] < x.counts[lo] {
			b.find(Finding{Code: "not_monotone", Level: LevelError, Line: x.line, Family: f.Name, Series: x.labels.String(),
				Message: fmt.Sprintf("buckets of %s%s are not cumulative: le=%s has %s and le=%s has %s", f.Name, x.labels, x.texts[lo], number(x.counts[lo]), x.texts[hi], number(x.counts[hi])),
				Hint:    "percentiles of it are meaningless"})
			return
		}
	}
	last := idx[len(idx)-1]
	if !math.IsInf(x.bounds[last], 1) {
		b.find(Finding{Code: "no_inf_bucket", Level: LevelWarn, Line: x.line, Family: f.Name, Series: x.labels.String(),
			Message: fmt.Sprintf("%s%s has no bucket le=\"+Inf\"", f.Name, x.labels)})
	} else if x.counted && x.counts[last] != x.count {
		b.find(Finding{Code: "count_differs", Level: LevelWarn, Line: x.line, Family: f.Name, Series: x.labels.String(),
			Message: fmt.Sprintf("%s%s: the +Inf bucket has %s and _count has %s", f.Name, x.labels, number(x.counts[last]), number(x.count))})
	}
}

// boundSpelling tells where le and quantile are not written as they are stored.
func (b *builder) boundSpelling() {
	for _, label := range []string{model.BucketLabel, model.QuantileLabel} {
		n := 0
		var first rawSample
		var stored Sample
		for i, s := range b.raw {
			if s.float == "" || !s.labels.Has(label) {
				continue
			}
			if sm := b.e.Samples[b.kept[i]]; takesFloat(label, sm.Name(), b.e.Families[sm.Family].Type) {
				if n == 0 {
					first, stored = s, sm
				}
				n++
			}
		}
		if n > 0 {
			to := stored.Labels.Get(label)
			b.find(Finding{Code: label + "_spelling", Level: LevelInfo, Line: first.line, Family: b.e.Families[stored.Family].Name,
				Message: fmt.Sprintf("%s=%q is stored as %s=%q (%d samples)", label, first.float, label, to, n),
				Hint:    fmt.Sprintf("match {%s=%q} in queries and rules", label, to)})
		}
	}
}

// oddFloat gives the value of le or quantile as it is written, if it is stored in another form. The
// parser gives the stored form only.
func oddFloat(met []byte, l labels.Labels) string {
	label := model.BucketLabel
	if !l.Has(label) {
		if label = model.QuantileLabel; !l.Has(label) {
			return ""
		}
	}
	key := []byte(label + `="`)
	for at := 0; ; {
		i := bytes.Index(met[at:], key)
		if i < 0 {
			return ""
		}
		at += i
		before := at - 1
		if before < 0 || !bytes.ContainsRune([]byte("{, "), rune(met[before])) {
			at++
			continue
		}
		v := met[at+len(key):]
		end := bytes.IndexByte(v, '"')
		if end < 0 {
			return ""
		}
		written := string(v[:end])
		if c, ok := canonicalFloat(written); ok && c != written {
			return written
		}
		return ""
	}
}

// gauges looks at values and labels that mislead.
func (b *builder) gauges() {
	e := b.e
	nan := map[int]int{}
	gtle := map[int]bool{}
	pid := map[int]bool{}
	stamped := 0
	var firstStamp int
	for _, s := range e.Samples {
		f := &e.Families[s.Family]
		if s.Timestamp != nil {
			if stamped == 0 {
				firstStamp = s.Line
			}
			stamped++
		}
		if math.IsNaN(s.Value) {
			if nan[s.Family]++; nan[s.Family] == 1 {
				b.find(Finding{Code: "nan", Level: LevelInfo, Line: s.Line, Family: f.Name, Series: s.Labels.String(),
					Message: fmt.Sprintf("%s is NaN: nothing was measured", s.Labels)})
			}
		}
		if !gtle[s.Family] && s.Labels.Has("gt") && s.Labels.Has(model.BucketLabel) && f.Type != model.MetricTypeHistogram {
			gtle[s.Family] = true
			b.find(Finding{Code: "gt_le_gauge", Level: LevelInfo, Line: s.Line, Family: f.Name,
				Message: fmt.Sprintf("%s has labels gt and le: its values are counts between two bounds, not cumulative buckets", f.Name),
				Hint:    "histogram_quantile() of it is wrong; add the values up instead"})
		}
		if !pid[s.Family] && s.Labels.Has("pid") && strings.HasPrefix(f.Name, "sglang:") {
			pid[s.Family] = true
			b.find(Finding{Code: "pid_label", Level: LevelInfo, Line: s.Line, Family: f.Name,
				Message: fmt.Sprintf("%s carries a pid: one series for each process there ever was", f.Name)})
		}
	}
	b.idleRanks()
	if stamped > 0 {
		b.find(Finding{Code: "timestamps", Level: LevelInfo, Line: firstStamp,
			Message: fmt.Sprintf("%d samples carry a time of their own and are stored at it", stamped)})
	}
	for i, f := range e.Families {
		switch {
		case f.Type == model.MetricTypeHistogram && f.Samples > 0 && !slices.ContainsFunc(e.Samples, func(s Sample) bool { return s.Family == i && s.Name() == f.Name+"_bucket" }):
			b.find(Finding{Code: "type_mismatch", Level: LevelWarn, Line: f.Line, Family: f.Name, Message: f.Name + " is declared a histogram and has no buckets"})
		case f.Type == model.MetricTypeGauge && f.Samples > 0:
			if j, ok := b.byName[f.Name+"_bucket"]; ok && e.Families[j].Samples > 0 {
				b.find(Finding{Code: "type_mismatch", Level: LevelWarn, Line: f.Line, Family: f.Name, Message: f.Name + " is declared a gauge and has buckets"})
			}
		}
	}
}

// idleRanks tells of data-parallel ranks that do nothing while others work.
func (b *builder) idleRanks() {
	i, ok := b.byName["sglang:gen_throughput"]
	if !ok {
		return
	}
	var idle []string
	busy, line := 0, 0
	for _, s := range b.e.Samples {
		if r := s.Labels.Get("dp_rank"); s.Family == i && r != "" {
			if s.Value == 0 {
				idle = append(idle, r)
				line = s.Line
			} else {
				busy++
			}
		}
	}
	if busy == 0 || len(idle) == 0 {
		return
	}
	b.find(Finding{Code: "idle_ranks", Level: LevelWarn, Line: line, Family: "sglang:gen_throughput",
		Message: fmt.Sprintf("DP rank %s generates nothing while %d others do: the ranks are not balanced", strings.Join(idle, ", "), busy)})
}

// takesFloat tells whether Prometheus 3 (and Rollscope, where no TYPE was written) stores the value
// of le or quantile in the one form of OpenMetrics.
func takesFloat(label, name string, t model.MetricType) bool {
	unknown := t == "" || t == model.MetricTypeUnknown
	switch label {
	case model.BucketLabel:
		return t == model.MetricTypeHistogram || (unknown && strings.HasSuffix(name, "_bucket"))
	case model.QuantileLabel:
		return t == model.MetricTypeSummary || unknown
	}
	return false
}

// canonicalFloat gives the OpenMetrics form of a number: "1" becomes "1.0". False when it is none.
func canonicalFloat(s string) (string, bool) {
	if strings.ContainsAny(s, "_xXpP") { // forms that Go reads and no exposition means
		return s, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return s, false
	}
	return labels.FormatOpenMetricsFloat(f), true
}

func needsFloat(l labels.Labels, t model.MetricType) bool {
	for _, label := range []string{model.BucketLabel, model.QuantileLabel} {
		v := l.Get(label)
		if v == "" || !takesFloat(label, l.Get(model.MetricNameLabel), t) {
			continue
		}
		if c, ok := canonicalFloat(v); ok && c != v {
			return true
		}
	}
	return false
}

func normaliseFloats(lb *labels.Builder, t model.MetricType) {
	name := lb.Get(model.MetricNameLabel)
	for _, label := range []string{model.BucketLabel, model.QuantileLabel} {
		v := lb.Get(label)
		if v == "" || !takesFloat(label, name, t) {
			continue
		}
		if c, ok := canonicalFloat(v); ok {
			lb.Set(label, c)
		}
	}
}
