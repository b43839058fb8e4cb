package app

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/metricstore"
	"github.com/rollscope/rollscope/internal/signal"
	"github.com/rollscope/rollscope/internal/sim"
)

// Ten minutes of 64 engines, rules evaluated, on a virtual clock; then the record is opened as an archive.
func TestRecordVirtual(t *testing.T) {
	dir, from := t.TempDir(), time.Date(2026, 5, 28, 11, 0, 0, 0, time.UTC)
	res, err := RecordVirtual(t.Context(), VirtualOptions{
		Dir: dir, Fleet: sim.Uniform(64), From: from, For: 10 * time.Minute, Rules: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Scrapes != 41 || res.Evaluations != 41 || res.Series < 64*200 {
		t.Errorf("%+v: want 41 scrapes and evaluations of at least 12,800 series", res)
	}
	a, err := metricstore.OpenArchive(t.Context(), metricstore.ArchiveOptions{Dir: dir, TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	r := metricstore.NewReader(a.Queryable(), a.Engine(), metricstore.ReaderOptions{})
	to := from.Add(10 * time.Minute)
	for _, id := range []string{"ttft", "itl", "throughput", "cache_hit_rate", "queue_depth"} {
		s, err := r.Signal(context.Background(), metricstore.SignalRequest{ID: id, From: to.Add(-2 * time.Minute), To: to, By: signal.ByFleet})
		if err != nil {
			t.Fatal(err)
		}
		if s.Form != "recorded" || s.State != metricstore.StateValue || len(s.Lines) == 0 || s.Lines[0].Now.Value == nil {
			t.Errorf("%s: form %q, state %q, %d lines; want recorded values", id, s.Form, s.State, len(s.Lines))
		}
	}
	engines, _, err := r.Engines(context.Background(), from, to)
	if err != nil || len(engines) != 64 {
		t.Errorf("%d engines, %v; want 64", len(engines), err)
	}
}
