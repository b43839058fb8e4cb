package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/fpmbus"
)

// passBus is the bus of one configuration: sources in, our own sink and the relay out.
type passBus struct {
	bus     *fpmbus.Bus
	server  *embeddedNATS     // nil without one
	engines map[string]string // by source: the instance that the configuration says it is of
	places  map[string]place  // by source: what the configuration says of its namespace and component
	arrays  map[string]bool   // sources whose messages may be arrays
	to      string            // where the relay passes on to, "" without one
	release []func() error    // sockets of parts that were never run
}

// place is where an engine's messages belong when they do not say so.
type place struct{ namespace, component string }

type embeddedNATS struct {
	*fpmbus.EmbeddedNATS
	stop context.CancelFunc
}

func (e *embeddedNATS) close() {
	if e == nil {
		return
	}
	e.stop()
	e.Wait()
}

// outRelay and outKeep are the names of the outlets.
const (
	outKeep  = "passes"
	outRelay = "relay"
)

// openPassBus makes the parts of a configuration; nil when nothing is received. Sockets are bound here, so
// that what is not possible is said at once.
func openPassBus(f *config.ForwardPasses, flags FPMOptions, sink fpmbus.Sink, logger *slog.Logger) (_ *passBus, err error) {
	b := &passBus{engines: map[string]string{}, places: map[string]place{}, arrays: map[string]bool{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.abandon())
		}
	}()
	own := &fpmbus.Own{}
	sources, err := b.sources(f, own, logger)
	if err != nil {
		return nil, err
	}
	flags.Logger = logger
	more, _, err := fpmSources(flags, own)
	if err != nil {
		return nil, fmt.Errorf("--fpm: %w", err)
	}
	for _, s := range more {
		for _, st := range s.Status() {
			b.arrays[st.Name] = flags.Positional
		}
	}
	if sources = append(sources, more...); len(sources) == 0 {
		return nil, nil
	}
	outlets := []fpmbus.Outlet{{Name: outKeep, Sink: sink}}
	if f.Relay != nil {
		out, err := b.relay(f.Relay, own, logger)
		if err != nil {
			return nil, fmt.Errorf("forward_passes.relay: %w", err)
		}
		outlets = append(outlets, out)
	}
	b.bus, err = fpmbus.New(fpmbus.Options{Sources: sources, Outlets: outlets, Logger: logger})
	return b, err
}

// abandon gives up what openPassBus bound, of a bus that is not run.
func (b *passBus) abandon() error {
	var errs []error
	for _, f := range b.release {
		errs = append(errs, f())
	}
	b.server.close()
	return errors.Join(errs...)
}

// run works until ctx ends.
func (b *passBus) run(ctx context.Context) error {
	defer b.server.close() // the relay's last words go there
	return b.bus.Run(ctx)
}

// sources makes those of the configuration.
func (b *passBus) sources(f *config.ForwardPasses, own *fpmbus.Own, logger *slog.Logger) (out []fpmbus.Source, err error) {
	add := func(s fpmbus.Source, err error) error {
		if err == nil {
			out = append(out, s)
		}
		return err
	}
	common := func(name string) fpmbus.Common { return fpmbus.Common{Name: name, Logger: logger} }
	for _, z := range f.ZMQ {
		at := []string{z.Endpoint}
		if z.Ranks > 0 {
			if at, err = fpmbus.EngineSockets(z.Endpoint, z.Ranks); err != nil {
				return nil, fmt.Errorf("line %d: forward_passes.zmq: %w", z.Line, err)
			}
		}
		for i, endpoint := range at {
			rank := -1
			if z.Ranks > 0 {
				rank = i
			}
			b.engines[endpoint], b.arrays[endpoint] = z.Engine, z.Encoding == positional
			b.places[endpoint] = place{z.Namespace, z.Component}
			if err := add(fpmbus.NewEngineSocket(fpmbus.EngineSocketOptions{
				Common: common(endpoint), Endpoint: endpoint, DPRank: rank, Namespace: z.Namespace, Component: z.Component,
			})); err != nil {
				return nil, fmt.Errorf("line %d: forward_passes.zmq: %w", z.Line, err)
			}
		}
	}
	if p := f.PlaneZMQ; p != nil {
		o := fpmbus.PlaneZMQOptions{Common: common("plane_zmq"), Brokers: p.Brokers, Own: own}
		if len(p.Brokers) == 1 && strings.Contains(p.Brokers[0], "=") { // the form of DYN_ZMQ_BROKER_URL
			if _, o.Brokers, err = fpmbus.Brokers(p.Brokers[0]); err != nil {
				return nil, fmt.Errorf("forward_passes.plane_zmq.brokers: %w", err)
			}
		}
		for _, c := range p.Channels {
			o.Channels = append(o.Channels, fpmbus.Channel{Endpoint: c})
		}
		if p.Discovery != "" {
			if o.Discover, err = discovery(p.Discovery); err != nil {
				return nil, fmt.Errorf("forward_passes.plane_zmq: %w", err)
			}
		}
		b.arrays[o.Name] = p.Encoding == positional
		if err := add(fpmbus.NewPlaneZMQ(o)); err != nil {
			return nil, fmt.Errorf("forward_passes.plane_zmq: %w", err)
		}
	}
	if n := f.NATS; n != nil {
		server, shown, err := b.nats(n, logger)
		if err != nil {
			return nil, fmt.Errorf("forward_passes.nats: %w", err)
		}
		subjects := n.Subjects
		if len(subjects) == 0 && n.Namespace != "" {
			subjects = []string{strings.TrimSuffix(fpmbus.Scope{Namespace: n.Namespace}.Subject(), fpmbus.Topic) + ">"}
		}
		b.arrays[shown] = n.Encoding == positional
		if err := add(fpmbus.NewPlaneNATS(fpmbus.PlaneNATSOptions{Common: common(shown), Server: server, Subjects: subjects, Own: own})); err != nil {
			return nil, fmt.Errorf("forward_passes.nats: %w", err)
		}
	}
	if f.Socket != "" {
		if err := add(fpmbus.NewExportSocket(fpmbus.ExportSocketOptions{Common: common("unix://" + f.Socket), Path: f.Socket, Own: own})); err != nil {
			return nil, fmt.Errorf("forward_passes.socket: %w", err)
		}
	}
	if len(f.Files) > 0 {
		if err := add(fpmbus.NewTraceFiles(fpmbus.TraceFilesOptions{Common: common("files"), Paths: f.Files})); err != nil {
			return nil, fmt.Errorf("forward_passes.files: %w", err)
		}
	}
	return out, nil
}

// positional is the word of an encoding in which arrays stand in place of maps.
const positional = "positional"

// nats is how a server is reached; an embedded one is started with the first who asks for it.
func (b *passBus) nats(n *config.PassNATS, logger *slog.Logger) (server fpmbus.NATSServer, shown string, err error) {
	if n.URL == config.Embedded {
		if b.server == nil {
			ctx, stop := context.WithCancel(context.Background()) // ends with the bus, see run
			e, err := fpmbus.StartEmbeddedNATS(ctx, fpmbus.EmbeddedNATSOptions{Listen: n.Listen, Logger: logger})
			if err != nil {
				stop()
				return server, "", err
			}
			b.server = &embeddedNATS{e, stop}
		}
		return fpmbus.NATSServer{InProcess: b.server}, firstSet(b.server.URL(), "nats embedded"), nil
	}
	read := func(path string) (string, error) {
		if path == "" {
			return "", nil
		}
		text, err := os.ReadFile(path)
		return strings.TrimSpace(string(text)), err
	}
	server = fpmbus.NATSServer{URL: n.URL, User: n.User, CredentialsFile: n.CredentialsFile, NKeySeedFile: n.NKeySeedFile, RootCAs: n.CAFiles}
	if server.Password, err = read(n.PasswordFile); err != nil {
		return server, "", fmt.Errorf("password_file: %w", err)
	}
	if server.Token, err = read(n.TokenFile); err != nil {
		return server, "", fmt.Errorf("token_file: %w", err)
	}
	var list []string
	for one := range strings.SplitSeq(n.URL, ",") {
		_, _, at, err := natsURL(strings.TrimSpace(one))
		if err != nil {
			return server, "", err
		}
		list = append(list, at)
	}
	return server, strings.Join(list, ","), nil
}

// relay makes the way out.
func (b *passBus) relay(r *config.PassRelay, own *fpmbus.Own, logger *slog.Logger) (fpmbus.Outlet, error) {
	out := fpmbus.Outlet{Name: outRelay, Queue: r.Queue, Accept: fpmbus.FromEngines}
	if r.Planes {
		out.Accept = func(m fpmbus.Message) bool { return m.Record == fpmbus.ForwardPass }
	}
	to := fpmbus.RelayTo{Name: outRelay, Scope: fpmbus.Scope{Namespace: r.Namespace, Component: r.Component, Endpoint: r.Endpoint}, Own: own}
	if r.NATS != nil {
		server, shown, err := b.nats(r.NATS, logger)
		if err != nil {
			return out, err
		}
		b.to = shown
		out.Sink, err = fpmbus.NewRelayNATS(fpmbus.RelayNATSOptions{RelayTo: to, Server: server})
		return out, err
	}
	zmq, err := fpmbus.NewRelayZMQ(fpmbus.RelayZMQOptions{RelayTo: to, Bind: r.Bind, Brokers: r.Brokers, Logger: logger})
	if err != nil {
		return out, err
	}
	b.release = append(b.release, zmq.Close)
	if b.to = strings.Join(r.Brokers, ","); b.to == "" {
		b.to = "plane+" + zmq.Endpoint()
	}
	out.Sink = zmq
	return out, nil
}
