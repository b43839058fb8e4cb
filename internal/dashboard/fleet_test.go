package dashboard

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/rollscope/rollscope/internal/scrape"
)

// fleet is a store in which expositions were scraped for eleven minutes, and the engine to ask it.
type fleet struct {
	db     *tsdb.DB
	engine *promql.Engine
	end    time.Time
}

const (
	scrapes  = 44
	interval = 15 * time.Second
)

// scraped is one exposition under its target's labels.
type scraped struct {
	job, instance string
	e             scrape.Exposition
}

// record plays expositions: levels stay, and what only grows grows by a tenth of its final value with every
// scrape, so that any capture of one moment has rates.
func record(t *testing.T, targets ...scraped) *fleet {
	t.Helper()
	opts := tsdb.DefaultOptions()
	opts.RetentionDuration = 0
	opts.MinBlockDuration, opts.MaxBlockDuration = int64(24*time.Hour/time.Millisecond), int64(24*time.Hour/time.Millisecond)
	db, err := tsdb.Open(t.TempDir(), nil, nil, opts, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	start := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	for i := range scrapes {
		at := start.Add(time.Duration(i) * interval)
		app := db.AppenderV2(context.Background())
		for _, tg := range targets {
			for _, s := range tg.e.Samples {
				v := s.Value
				if grows(tg.e, s) {
					v *= 1 + float64(i)/10
				}
				ls := labels.NewBuilder(s.Labels).Set("job", tg.job).Set("instance", tg.instance).Labels()
				if _, err := app.Append(0, ls, 0, at.UnixMilli(), v, nil, nil, storage.AOptions{}); err != nil {
					t.Fatalf("%s: %v", ls, err)
				}
			}
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	return &fleet{
		db: db,
		engine: promql.NewEngine(promql.EngineOpts{
			MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		}),
		end: start.Add((scrapes - 1) * interval),
	}
}

func grows(e scrape.Exposition, s scrape.Sample) bool {
	switch e.Families[s.Family].Type {
	case model.MetricTypeCounter, model.MetricTypeHistogram, model.MetricTypeSummary:
		return true
	}
	return false
}

// ask evaluates an expression at the end of the recording.
func (f *fleet) ask(t *testing.T, expr string) promql.Vector {
	t.Helper()
	v, err := f.try(expr)
	if err != nil {
		t.Fatalf("%s\n%v", expr, err)
	}
	return v
}

func (f *fleet) try(expr string) (promql.Vector, error) {
	q, err := f.engine.NewInstantQuery(context.Background(), f.db, nil, expr, f.end)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	r := q.Exec(context.Background())
	if r.Err != nil {
		return nil, r.Err
	}
	v, err := r.Vector()
	return slices.Clone(v), err
}

// inspect reads an exposition file; the test fails when a line of it is bad.
func inspect(t *testing.T, path string) scrape.Exposition {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	e := scrape.Inspect(data, "")
	if e.Kind != scrape.KindExposition || e.BadLines > 0 {
		t.Fatalf("%s is read as %s with %d bad lines: %v", path, e.Kind, e.BadLines, e.Findings)
	}
	return e
}

// expositions reads testdata/expositions by file name.
func expositions(t *testing.T) map[string]scrape.Exposition {
	t.Helper()
	files, err := filepath.Glob("testdata/expositions/*.prom")
	if err != nil || len(files) == 0 {
		t.Fatalf("no expositions: %v", err)
	}
	out := map[string]scrape.Exposition{}
	for _, f := range files {
		out[strings.TrimSuffix(filepath.Base(f), ".prom")] = inspect(t, f)
	}
	return out
}

func labelsOf(m map[string]string) labels.Labels { return labels.FromMap(m) }
