package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/metricstore"
	"github.com/rollscope/rollscope/internal/rolloutstore"
	"github.com/rollscope/rollscope/internal/signal"
	"github.com/rollscope/rollscope/internal/web"
)

// ArchiveOptions configure [OpenArchive].
type ArchiveOptions struct {
	Dir     string
	Logger  *slog.Logger
	Version string
	Events  EventOptions // of these only URL and Child

	hosts  api.Hosts
	access api.Access
}

// Archive is a finished run's directory behind the same API as a running recorder's.
type Archive struct {
	store    *metricstore.Archive
	faces    *faces
	rollouts *rollouts
	events   *eventArchive // nil: none
	api      *api.API
	// forgotten says why what the recorder's configuration said cannot be used, "" when it is.
	forgotten atomic.Pointer[string]
}

// OpenArchive opens a data directory to read; nothing in it changes.
func OpenArchive(ctx context.Context, o ArchiveOptions) (*Archive, error) {
	ui, err := web.New()
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	store, err := metricstore.OpenArchive(ctx, metricstore.ArchiveOptions{
		Dir: o.Dir, Logger: o.Logger, Registerer: registry, Catalog: signal.Default(),
	})
	if err != nil {
		return nil, err
	}
	faces := newFaces(store.Queryable(), store.Engine(), o.Logger)
	faces.use(signal.Default(), nil, nil)
	a := &Archive{store: store, faces: faces}
	a.recall(o.Logger)
	index, err := openIndexOf(store.Dir(), o.Logger)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	runs := newRollouts(index, openKept(store.Dir(), o.Logger))
	a.rollouts = runs
	events, err := openEventArchive(ctx, store.Dir(), o.Events, o.Logger)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	a.events = events
	options := api.Options{
		Mode: api.ModeArchive, Version: o.Version, Dir: store.Dir(), Logger: o.Logger,
		Registerer: registry, Gatherer: registry, Hosts: o.hosts, Access: o.access,
		Reader: api.NewStoreReader(faces.reader), Catalog: faces, Boards: faces,
		Prometheus: api.Prometheus{Engine: store.Engine(), Queryable: store.Queryable(), Archive: store, Started: time.Now()},
		Rollouts:   runs, Timelines: runs,
		Notices: func() []api.Warning {
			return slices.Concat(api.FromNotices(store.Notices()), events.notices(), a.notices())
		},
		UI: ui,
	}
	events.face(&options, metricsSource{store.Queryable(), store.Engine(), faces.reader})
	if a.api, err = api.New(options); err != nil {
		return nil, errors.Join(err, events.close(), store.Close())
	}
	return a, nil
}

// recall reads what the recorder's configuration said of engines, signals and boards.
func (a *Archive) recall(logger *slog.Logger) {
	words := ""
	if err := a.faces.recall(a.store.Dir()); err != nil {
		words = err.Error()
	}
	if last := a.forgotten.Swap(&words); words != "" && (last == nil || *last != words) {
		logger.Warn("The names of engines and the signals and boards that the recorder had cannot be read; the built-in ones are shown.", "err", words)
	}
}

// notices are what to know of what is shown.
func (a *Archive) notices() []api.Warning {
	if words := *a.forgotten.Load(); words != "" {
		return []api.Warning{{Code: "meaning", Message: "names of engines, signals and boards are not those of the recorder: " + words, Where: metricstore.MeaningFile(a.store.Dir())}}
	}
	return nil
}

// openIndexOf opens the rollouts of a data directory to read; a directory without any has none.
func openIndexOf(dir string, logger *slog.Logger) (*rolloutstore.Store, error) {
	return rolloutstore.Open(filepath.Join(dir, "rollscope", "rollouts"), rolloutstore.Options{ReadOnly: true, Logger: logger})
}

// refresh looks again at a directory that another process still writes. Events are looked at when they are
// asked for.
func (a *Archive) refresh(ctx context.Context, logger *slog.Logger) error {
	a.recall(logger)
	err := a.store.Refresh(ctx)
	index, openErr := openIndexOf(a.store.Dir(), logger)
	if openErr == nil {
		a.rollouts.index.Store(&rolloutIndex{index, openKept(a.store.Dir(), logger)})
	}
	return errors.Join(err, openErr)
}

// Handler answers the API's paths.
func (a *Archive) Handler() http.Handler { return a.api }

// Close ends running queries' stores and removes the copy of the log.
func (a *Archive) Close() error {
	a.api.Close()
	return errors.Join(a.events.close(), a.store.Close())
}

// ReplayOptions configure [Replay].
type ReplayOptions struct {
	Dir     string
	Web     WebOptions
	Logger  *slog.Logger
	Version string
	Out     io.Writer
	Events  EventOptions // of these only Tempo, URL and Child

	started func(url string)
}

// refreshEvery is how often a directory that another process still writes is looked at again.
const refreshEvery = 15 * time.Second

// Replay serves a data directory read-only until ctx ends.
func Replay(ctx context.Context, o ReplayOptions) error {
	sockets, err := listen(o.Web, true)
	if err != nil {
		return err
	}
	archive, err := OpenArchive(ctx, ArchiveOptions{
		Dir: o.Dir, Logger: o.Logger, Version: o.Version, Events: o.Events, hosts: sockets.hosts(), access: sockets.access(),
	})
	if err != nil {
		sockets.close()
		return err
	}
	var tempo net.Listener
	if archive.events != nil && o.Events.Tempo != "" && o.Events.Tempo != config.Off {
		if tempo, err = net.Listen("tcp", o.Events.Tempo); err != nil {
			sockets.close()
			return errors.Join(fmt.Errorf("--traces.tempo: %w", err), archive.Close())
		}
	}
	for _, n := range archive.store.Notices() {
		o.Logger.Warn(n.Message, "where", n.Where, "do", n.Hint)
	}
	g := &group{logger: o.Logger, grace: time.Minute}
	g.add(actor{name: "archive", stop: archive.Close, why: "last: the API reads from it"})
	g.add(actor{name: "refresh", run: func(ctx context.Context) error {
		t := time.NewTicker(refreshEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-t.C:
				if err := archive.refresh(ctx, o.Logger); err != nil {
					o.Logger.Warn("the directory could not be read again; what was read stays shown", "err", err)
				}
				archive.api.Evaluated()
			}
		}
	}, why: "before the archive it refreshes"})
	g.add(actor{name: "api", run: func(ctx context.Context) error {
		if o.Out != nil {
			fmt.Fprintf(o.Out, "rollscope %s: %s shows %s, read-only\n", o.Version, sockets.url(), archive.store.Dir())
		}
		if o.started != nil {
			go o.started(sockets.url())
		}
		return sockets.serve(ctx, archive.api, tempo)
	}, why: "first: nobody asks a server that is going down"})
	return g.run(ctx)
}
