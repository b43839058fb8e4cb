package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

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

// eventArchive is the events of a data directory, to be read. They follow a writer that still uses it.
type eventArchive struct {
	events   *followedEvents
	requests *requeststore.Store
	traces   *tracestore.Store
	logs     *logstore.Store
	home     string // DIR/rollscope
	log      *slog.Logger
	passes   *passArchive // made by face
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
	a := &eventArchive{home: home, log: logger}
	a.events = &followedEvents{
		dir: home, follow: o.URL == "", log: logger, lookAfter: eventsLookAfter, waitAfter: eventsWaitAfter, patience: eventsPatience, effort: eventsEffort,
		open: func(ctx context.Context) (*eventstore.Store, error) {
			return eventstore.OpenReadOnly(ctx, eventstore.Options{Dir: home, URL: o.URL, Command: command, Logger: logger})
		},
		renewed: a.renewed,
	}
	if err := a.events.start(ctx); err != nil {
		return nil, err
	}
	// Nothing is settled here: what the recorder left unsettled, it or its next start settles.
	if a.requests, err = requeststore.New(a.events, requeststore.Options{Logger: logger}); err != nil {
		return nil, errors.Join(err, a.events.close())
	}
	a.traces = tracestore.New(a.events, tracestore.Options{})
	a.logs = logstore.New(a.events)
	store, err := a.passStore()
	if err != nil {
		return nil, errors.Join(err, a.events.close())
	}
	a.passes = &passArchive{store: store, history: planHistoryIn(home)}
	return a, nil
}

// passStore reads the list of bursts as it is now.
func (a *eventArchive) passStore() (*passstore.Store, error) {
	return passstore.New(passstore.Options{Events: a.events, Keep: passstore.KeepNone, State: filepath.Join(a.home, "state", "bursts.json"), Logger: a.log})
}

// renewed has what is worked out of the events worked out again.
func (a *eventArchive) renewed() {
	store, err := a.passStore()
	if err != nil {
		a.log.Warn("the list of bursts could not be read again; the old one stays shown", "err", err)
	}
	a.passes.renew(store)
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
	a.passes.metrics = metrics
	o.Passes = a.passes
	f := eventFace{store: a.events, logs: a.logs, archive: a.events}
	o.Requests, o.Traces, o.TraceRequest, o.Logs, o.Events = a.requests, a.traces, a.requests.OfTrace, f, f
}

// notices are what to know of what is shown.
func (a *eventArchive) notices() []api.Warning {
	if a == nil {
		return nil
	}
	at, err := a.events.asOf()
	if err == nil {
		return nil
	}
	return []api.Warning{{Code: "events_old", Where: a.home, Hint: "the directory is looked at again when something is asked",
		Message: fmt.Sprintf("spans, logs, requests and passes are as they were at %s: %v", at.UTC().Format(time.RFC3339), err)}}
}

func (a *eventArchive) close() error {
	if a == nil {
		return nil
	}
	return a.events.close()
}
