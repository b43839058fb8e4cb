package app

import (
	"encoding/json"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/dashboard"
	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/metricstore"
	"github.com/rollscope/rollscope/internal/signal"
)

// faces is what the API reads the catalog, signals and boards from. All three depend on the
// configuration, which may change while requests run: each request sees one or the other, whole.
type faces struct {
	queryable storage.SampleAndChunkQueryable
	engine    promql.QueryEngine
	logger    *slog.Logger
	now       atomic.Pointer[face]
	recalled  []byte // of an archive: what [faces.recall] used last
}

// face is the faces of one configuration.
type face struct {
	*signal.Catalog
	reader *metricstore.Reader
	boards *api.Dashboards
}

func newFaces(q storage.SampleAndChunkQueryable, e promql.QueryEngine, logger *slog.Logger) *faces {
	return &faces{queryable: q, engine: e, logger: logger}
}

func (f *faces) use(cat *signal.Catalog, custom []dashboard.Board, engines []config.Engine) {
	var overrides []engine.Override
	for _, e := range engines {
		overrides = append(overrides, engine.Override{
			Instance: e.Instance, Aliases: e.Aliases, Role: engine.Role(e.Role), Name: e.Name,
		})
	}
	f.now.Store(&face{
		Catalog: cat,
		reader:  metricstore.NewReader(f.queryable, f.engine, metricstore.ReaderOptions{Catalog: cat, Overrides: overrides, Logger: f.logger}),
		boards:  api.NewDashboards(cat, dashboard.Boards(cat, custom...)),
	})
}

func (f *faces) reader() *metricstore.Reader { return f.now.Load().reader }

// Metrics, Metric, Signals and Signal make faces an [api.Catalog].

func (f *faces) Metrics() []signal.Metric                 { return f.now.Load().Metrics() }
func (f *faces) Metric(name string) (signal.Metric, bool) { return f.now.Load().Metric(name) }
func (f *faces) Signals() []signal.Signal                 { return f.now.Load().Signals() }
func (f *faces) Signal(id string) (signal.Signal, bool)   { return f.now.Load().Signal(id) }

// Boards, Search and Grafana make it an [api.BoardSource].

func (f *faces) Boards() []api.Board                { return f.now.Load().boards.Boards() }
func (f *faces) Search(query string) []api.BoardHit { return f.now.Load().boards.Search(query) }
func (f *faces) Grafana(uid string) (json.RawMessage, bool, error) {
	return f.now.Load().boards.Grafana(uid)
}
