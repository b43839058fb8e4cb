package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// selfJob is the job of our own series.
const selfJob = "rollscope"

// selfEvery is how often they are written.
const selfEvery = 15 * time.Second

// recordSelf writes this process's own rollscope_* counters and gauges beside what is scraped: rules can
// alert on them (log events, drops, requests counted from spans), and an archive still has them when the
// process is gone. A scrape of our own port would need its users and its TLS. Histograms and the runtime's
// metrics stay at /metrics.
func recordSelf(ctx context.Context, gather prometheus.Gatherer, to storage.AppendableV2, instance string, log *slog.Logger) error {
	t := time.NewTicker(selfEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-t.C:
			if err := appendSelf(ctx, gather, to, instance, now); err != nil && ctx.Err() == nil {
				log.Warn("this process's own metrics were not recorded", "err", err)
			}
		}
	}
}

// appendSelf writes one sample of each series.
func appendSelf(ctx context.Context, gather prometheus.Gatherer, to storage.AppendableV2, instance string, now time.Time) error {
	families, err := gather.Gather()
	if err != nil && len(families) == 0 {
		return err
	}
	app := to.AppenderV2(ctx)
	b := labels.NewScratchBuilder(8)
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "rollscope_") {
			continue
		}
		for _, m := range f.GetMetric() {
			var v float64
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				v = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				v = m.GetGauge().GetValue()
			default:
				continue
			}
			b.Reset()
			b.Add(model.MetricNameLabel, f.GetName())
			b.Add("job", selfJob)
			b.Add("instance", instance)
			for _, l := range m.GetLabel() {
				name := l.GetName()
				if name == "job" || name == "instance" { // as a scrape would
					name = "exported_" + name
				}
				b.Add(name, l.GetValue())
			}
			b.Sort()
			if _, err := app.Append(0, b.Labels(), 0, now.UnixMilli(), v, nil, nil, storage.AOptions{}); err != nil {
				return errors.Join(err, app.Rollback())
			}
		}
	}
	return app.Commit()
}
