package signal

import (
	"fmt"
	"strings"

	"github.com/prometheus/common/model"
)

// recordedName is the name of a series that [RecordingRules] makes: scope "engine" or "fleet", the
// signal, what of it ("_bucket", "_count", "_num", "_den", "p99", "ratio", "rate") and its window.
func recordedName(scope string, s Signal, what string) string {
	if s.Kind == Level || s.Kind == Worst {
		return scope + ":" + s.ID
	}
	w := model.Duration(s.DefaultRange()).String()
	switch what {
	case "_bucket", "_count", "_num", "_den":
		return scope + ":" + s.ID + what + ":rate" + w
	case "rate", "ratio":
		return scope + ":" + s.ID + ":" + what + w
	default:
		return scope + ":" + s.ID + ":" + what + "_rate" + w
	}
}

// recordedFrom is the signal that a recorded series' name belongs to.
func (c *Catalog) recordedFrom(name string) (Signal, bool) {
	rest, ok := strings.CutPrefix(name, "engine:")
	if !ok {
		if rest, ok = strings.CutPrefix(name, "fleet:"); !ok {
			return Signal{}, false
		}
	}
	id, _, _ := strings.Cut(rest, ":")
	for _, what := range []string{"", "_bucket", "_count", "_num", "_den"} {
		if s, ok := c.Signal(strings.TrimSuffix(id, what)); ok && strings.HasSuffix(id, what) {
			return s, true
		}
	}
	return Signal{}, false
}

// recordedQuantiles are the percentiles that are recorded; others are taken from recorded buckets.
var recordedQuantiles = []float64{0.5, 0.99}

func quantileName(q float64) string {
	return "p" + strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.4f", q*100), "0"), ".")
}

// series selects a recorded series; a longer window than the recorded one averages over it.
func (b *builder) series(scope, what string) string {
	m := append([]string{}, b.match.other...)
	m = append(m, renamed(b.match.model, "model_name")...)
	m = append(m, renamed(b.match.instance, "instance")...)
	sel := selector(recordedName(scope, b.s, what), m)
	if b.q.Window > b.s.DefaultRange() && b.s.Kind != Level && b.s.Kind != Worst {
		return fmt.Sprintf("avg_over_time(%s[%s])", sel, b.window)
	}
	return sel
}

// fromFleet tells whether the recorded fleet series answers the query as it is.
func (b *builder) fromFleet() bool {
	return b.q.By == ByFleet && b.q.Match == "" && b.q.Window <= b.s.DefaultRange() && b.q.Sources == nil
}

// checkRecorded says why the recorded form cannot answer.
func (b *builder) checkRecorded() error {
	if b.q.Sources != nil {
		return fmt.Errorf("signal %q: recorded series do not tell sources apart: use the raw form", b.s.ID)
	}
	if b.q.Window < b.s.DefaultRange() && b.s.Kind != Level && b.s.Kind != Worst {
		return fmt.Errorf("signal %q is recorded over %s, which cannot answer for %s: use the raw form",
			b.s.ID, model.Duration(b.s.DefaultRange()), model.Duration(b.q.Window))
	}
	return nil
}

// recorded is Compile over recorded series.
func (b *builder) recorded() (string, error) {
	if err := b.checkRecorded(); err != nil {
		return "", err
	}
	switch b.s.Kind {
	case Quantile:
		isRecorded := false
		for _, q := range recordedQuantiles {
			isRecorded = isRecorded || q == b.q.Quantile
		}
		if isRecorded && b.q.Window <= b.s.DefaultRange() {
			if b.fromFleet() {
				return b.series("fleet", quantileName(b.q.Quantile)), nil
			}
			if b.q.By == ByEngine {
				return b.series("engine", quantileName(b.q.Quantile)), nil
			}
		}
		buckets, err := b.recordedBuckets()
		if err != nil {
			return "", err
		}
		return b.quantileOf(buckets), nil
	case Share:
		if b.fromFleet() {
			return b.series("fleet", "ratio"), nil
		}
		if b.q.By == ByEngine && b.q.Window <= b.s.DefaultRange() {
			return b.series("engine", "ratio"), nil
		}
		return fmt.Sprintf("%s / (%s > 0)", b.sumOf(b.series("engine", "_num")), b.sumOf(b.series("engine", "_den"))), nil
	default:
		if b.fromFleet() {
			return b.series("fleet", "rate"), nil
		}
		return b.sumOf(b.series("engine", "rate")), nil
	}
}

// sumOf groups a recorded per-engine series.
func (b *builder) sumOf(series string) string {
	if b.q.By == ByEngine {
		return series
	}
	return b.grouped(vec{expr: series}, false)
}

func (b *builder) recordedCount() (string, error) {
	if err := b.checkRecorded(); err != nil {
		return "", err
	}
	what := map[Kind]string{Quantile: "_count", Share: "_den", Rate: "rate"}[b.s.Kind]
	if b.fromFleet() && b.s.Kind != Share {
		return b.series("fleet", what), nil
	}
	return b.sumOf(b.series("engine", what)), nil
}

func (b *builder) recordedBuckets() (string, error) {
	if err := b.checkRecorded(); err != nil {
		return "", err
	}
	series := b.series("engine", "_bucket")
	switch {
	case b.fromFleet():
		return b.series("fleet", "_bucket"), nil
	case b.q.By == ByEngine:
		return series, nil
	case b.q.CommonBounds || b.q.By == ByFleet:
		return commonBounds(series, b.groupLabels()), nil
	default:
		return b.grouped(vec{expr: series}, true), nil
	}
}
