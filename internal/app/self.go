package app

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
)

// selfJob is the job of our own series.
const selfJob = "rollscope"

// selfEvery is how often they are written.
const selfEvery = 15 * time.Second

// recordSelf writes this process's own rollscope_* series beside what is scraped: rules can alert on them
// (log events, drops, requests counted from spans, forward passes), and an archive still has them when the
// process is gone. A scrape of our own port would need its users and its TLS. Of histograms those of forward
// passes are written; those about this process, and the runtime's metrics, stay at /metrics.
func recordSelf(ctx context.Context, gather prometheus.Gatherer, to storage.AppendableV2, instance string, log *slog.Logger) error {
	t := time.NewTicker(selfEvery)
	defer t.Stop()
	var last map[uint64]labels.Labels
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-t.C:
			written, err := appendSelf(ctx, gather, to, instance, now, last)
			if err != nil {
				if ctx.Err() == nil {
					log.Warn("this process's own metrics were not recorded", "err", err)
				}
				continue
			}
			last = written
		}
	}
}

// recordedHistograms is how the names of histograms begin that are recorded.
const recordedHistograms = "rollscope_fpm_"

// appendSelf writes one sample of each series, and the end of those that were written last and are gone: an
// engine that was forgotten must not look like one that goes on. It returns what it wrote.
func appendSelf(ctx context.Context, gather prometheus.Gatherer, to storage.AppendableV2, instance string, now time.Time, last map[uint64]labels.Labels) (map[uint64]labels.Labels, error) {
	families, err := gather.Gather()
	if err != nil && len(families) == 0 {
		return nil, err
	}
	w := selfWriter{app: to.AppenderV2(ctx), instance: instance, at: now.UnixMilli(), b: labels.NewScratchBuilder(8), written: make(map[uint64]labels.Labels, len(last))}
	for _, f := range families {
		name := f.GetName()
		if !strings.HasPrefix(name, "rollscope_") {
			continue
		}
		for _, m := range f.GetMetric() {
			switch {
			case f.GetType() == dto.MetricType_COUNTER:
				w.write(name, m, "", m.GetCounter().GetValue())
			case f.GetType() == dto.MetricType_GAUGE:
				w.write(name, m, "", m.GetGauge().GetValue())
			case f.GetType() == dto.MetricType_HISTOGRAM && strings.HasPrefix(name, recordedHistograms):
				h := m.GetHistogram()
				for _, b := range h.GetBucket() {
					w.write(name+"_bucket", m, labels.FormatOpenMetricsFloat(b.GetUpperBound()), float64(b.GetCumulativeCount()))
				}
				w.write(name+"_bucket", m, "+Inf", float64(h.GetSampleCount()))
				w.write(name+"_sum", m, "", h.GetSampleSum())
				w.write(name+"_count", m, "", float64(h.GetSampleCount()))
			}
		}
	}
	for id, l := range last {
		if _, ok := w.written[id]; !ok && w.err == nil {
			_, w.err = w.app.Append(0, l, 0, w.at, math.Float64frombits(value.StaleNaN), nil, nil, storage.AOptions{})
		}
	}
	if w.err != nil {
		return nil, errors.Join(w.err, w.app.Rollback())
	}
	return w.written, w.app.Commit()
}

// selfWriter writes samples as a scrape of our own port would. It stops at the first error.
type selfWriter struct {
	app      storage.AppenderV2
	instance string
	at       int64
	b        labels.ScratchBuilder
	written  map[uint64]labels.Labels
	err      error
}

func (w *selfWriter) write(name string, m *dto.Metric, le string, v float64) {
	if w.err != nil {
		return
	}
	w.b.Reset()
	w.b.Add(model.MetricNameLabel, name)
	w.b.Add("job", selfJob)
	w.b.Add("instance", w.instance)
	if le != "" {
		w.b.Add(model.BucketLabel, le)
	}
	for _, l := range m.GetLabel() {
		name := l.GetName()
		if name == "job" || name == "instance" { // as a scrape would
			name = "exported_" + name
		}
		w.b.Add(name, l.GetValue())
	}
	w.b.Sort()
	l := w.b.Labels()
	w.written[l.Hash()] = l
	_, w.err = w.app.Append(0, l, 0, w.at, v, nil, nil, storage.AOptions{})
}
