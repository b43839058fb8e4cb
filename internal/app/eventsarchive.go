package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/logstore"
	"github.com/rollscope/rollscope/internal/passstore"
	"github.com/rollscope/rollscope/internal/requeststore"
	"github.com/rollscope/rollscope/internal/tracestore"
)

// command makes the event store's process.
func (o EventOptions) command() (func(ctx context.Context, args ...string) *exec.Cmd, error) {
	if o.Child != nil {
		return o.Child, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("the event store runs this program again, and its file cannot be found: %w", err)
	}
	return func(ctx context.Context, args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, self, append([]string{ChildCommand}, args...)...)
	}, nil
}

// eventArchive is the events of a data directory, as they were when it was opened, to be read.
type eventArchive struct {
	store    *eventstore.Store
	requests *requeststore.Store
	traces   *tracestore.Store
	logs     *logstore.Store
	passes   *passstore.Store
	home     string // DIR/rollscope
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// openEventArchive opens the events below dir; nil when there are none and url names no other place.
func openEventArchive(ctx context.Context, dir string, o EventOptions, logger *slog.Logger) (*eventArchive, error) {
	home := filepath.Join(dir, "rollscope")
	if o.URL == "" && !anyOf(filepath.Join(home, "events"), filepath.Join(home, "spool")) {
		return nil, nil
	}
	command, err := o.command()
	if err != nil {
		return nil, err
	}
	a := &eventArchive{home: home}
	a.store, err = eventstore.OpenReadOnly(ctx, eventstore.Options{Dir: home, URL: o.URL, Command: command, Logger: logger})
	if err != nil {
		return nil, err
	}
	// Nothing is settled here: what the recorder left unsettled, its next start settles.
	if a.requests, err = requeststore.New(a.store, requeststore.Options{Logger: logger}); err != nil {
		return nil, errors.Join(err, a.store.Close())
	}
	a.traces = tracestore.New(a.store, tracestore.Options{})
	a.logs = logstore.New(a.store)
	a.passes, err = passstore.New(passstore.Options{Events: a.store, Keep: passstore.KeepNone, State: filepath.Join(home, "state", "bursts.json"), Logger: logger})
	if err != nil {
		return nil, errors.Join(err, a.store.Close())
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.stop = stop
	a.running.Go(func() {
		if err := a.store.Run(run); err != nil {
			logger.Error("the event store ended", "err", err)
		}
	})
	return a, nil
}

// anyOf tells whether one of the paths is there.
func anyOf(paths ...string) bool {
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			return true
		}
	}
	return false
}

// face puts the events into the API's options.
func (a *eventArchive) face(o *api.Options, metrics metricsSource) {
	if a == nil {
		return
	}
	o.Passes = &passArchive{store: a.passes, metrics: metrics, history: planHistoryIn(a.home)}
	f := eventFace{store: a.store, logs: a.logs}
	o.Requests, o.Traces, o.TraceRequest, o.Logs, o.Events = a.requests, a.traces, a.requests.OfTrace, f, f
}

func (a *eventArchive) close() error {
	if a == nil {
		return nil
	}
	a.stop()
	a.running.Wait()
	return a.store.Close()
}
