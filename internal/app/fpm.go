package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/fpmbus"
)

// FPMOptions say where forward-pass messages come from.
type FPMOptions struct {
	// Sources are ipc:///PATH and tcp://HOST:PORT (an engine's socket), plane+tcp://HOST:PORT (a publisher of
	// Dynamo's event plane over ZMQ), broker+tcp://HOST:PORT[,...] (its brokers), discovery+file:///PATH and
	// discovery+http://HOST:2379 (publishers as Dynamo's discovery knows them), nats://HOST:PORT[/NAMESPACE],
	// unix:///PATH (the exporter connects to it), or trace files.
	Sources    []string
	Ranks      int  // above 0: engines' sockets are the first of so many
	Positional bool // arrays are taken in place of maps
	Follow     bool // files are followed as they grow
	Logger     *slog.Logger
}

// fpmSources makes the sources. Files are read once unless they are followed; files tells whether there is nothing else.
func fpmSources(o FPMOptions, own *fpmbus.Own) (sources []fpmbus.Source, files bool, err error) {
	add := func(s fpmbus.Source, err error) error {
		if err == nil {
			sources = append(sources, s)
		}
		return err
	}
	common := func(name string) fpmbus.Common { return fpmbus.Common{Name: name, Logger: o.Logger} }
	files = true
	seen := map[string]bool{}
	for _, arg := range o.Sources {
		if seen[arg] {
			return nil, false, fmt.Errorf("the source %s is named twice", arg)
		}
		seen[arg] = true
		scheme, rest, isURL := strings.Cut(arg, "://")
		files = files && !isURL
		switch {
		case !isURL:
			err = add(fpmbus.NewTraceFiles(fpmbus.TraceFilesOptions{Common: common(arg), Paths: []string{arg}, Once: !o.Follow}))
		case scheme == "ipc" || scheme == "tcp":
			at := []string{arg}
			if o.Ranks > 0 {
				if at, err = fpmbus.EngineSockets(arg, o.Ranks); err != nil {
					return nil, false, err
				}
			}
			for i, endpoint := range at {
				rank := -1
				if o.Ranks > 0 {
					rank = i
				}
				if err = add(fpmbus.NewEngineSocket(fpmbus.EngineSocketOptions{Common: common(endpoint), Endpoint: endpoint, DPRank: rank})); err != nil {
					break
				}
			}
		case scheme == "plane+tcp" || scheme == "plane+ipc":
			endpoint := strings.TrimPrefix(arg, "plane+")
			err = add(fpmbus.NewPlaneZMQ(fpmbus.PlaneZMQOptions{Common: common(arg), Channels: []fpmbus.Channel{{Endpoint: endpoint}}, Own: own}))
		case scheme == "broker+tcp" || scheme == "broker+ipc":
			err = add(fpmbus.NewPlaneZMQ(fpmbus.PlaneZMQOptions{Common: common(arg), Brokers: strings.Split(strings.TrimPrefix(arg, "broker+"), ","), Own: own}))
		case strings.HasPrefix(scheme, "discovery+"):
			var discover fpmbus.Discover
			if discover, err = discovery(strings.TrimPrefix(arg, "discovery+")); err == nil {
				err = add(fpmbus.NewPlaneZMQ(fpmbus.PlaneZMQOptions{Common: common(arg), Discover: discover, Own: own}))
			}
		case scheme == "nats" || scheme == "tls":
			server, namespace, shown, e := natsURL(arg)
			if e != nil {
				return nil, false, e
			}
			var subjects []string
			if namespace != "" {
				subject := fpmbus.Scope{Namespace: namespace}.Subject()
				subjects = []string{strings.TrimSuffix(subject, fpmbus.Topic) + ">"}
			}
			err = add(fpmbus.NewPlaneNATS(fpmbus.PlaneNATSOptions{Common: common(shown), Server: fpmbus.NATSServer{URL: server}, Subjects: subjects, Own: own}))
		case scheme == "unix":
			err = add(fpmbus.NewExportSocket(fpmbus.ExportSocketOptions{Common: common(arg), Path: rest, Own: own}))
		default:
			err = fmt.Errorf("%s is no source: write ipc:///PATH, tcp://HOST:PORT, plane+tcp://HOST:PORT, broker+tcp://HOST:PORT, discovery+file:///PATH, nats://HOST:PORT/NAMESPACE, unix:///PATH or a trace file", arg)
		}
		if err != nil {
			return nil, false, err
		}
	}
	return sources, files, nil
}

// discovery is where publishers are looked up: a file or directory of Dynamo's, or etcd.
func discovery(at string) (fpmbus.Discover, error) {
	if path, ok := strings.CutPrefix(at, "file://"); ok && strings.HasPrefix(path, "/") {
		return fpmbus.FileDiscovery(path), nil
	}
	if strings.HasPrefix(at, "http://") || strings.HasPrefix(at, "https://") {
		return fpmbus.EtcdDiscovery(strings.Split(at, ","), nil), nil
	}
	return nil, fmt.Errorf("%q is no discovery: write file:///PATH or etcd's http://HOST:2379", at)
}

// natsURL takes the namespace off a server's URL. shown has no password.
func natsURL(s string) (server, namespace, shown string, err error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return "", "", "", fmt.Errorf("%s is no address: write nats://HOST:PORT/NAMESPACE", s)
	}
	namespace = strings.Trim(u.Path, "/")
	shown = u.Redacted()
	u.Path = ""
	return u.String(), namespace, shown, nil
}

// FPMPass is one message as it came.
type FPMPass struct {
	Source    string          `json:"source"`
	Received  time.Time       `json:"received"`
	Namespace string          `json:"namespace,omitempty"`
	Component string          `json:"component,omitempty"`
	Heartbeat bool            `json:"heartbeat"`
	Missing   uint64          `json:"missing,omitempty"`   // messages before it that did not come
	Restart   bool            `json:"restart,omitempty"`   // the engine began anew before it
	Duplicate bool            `json:"duplicate,omitempty"` // it came before
	Late      bool            `json:"late,omitempty"`      // newer ones came before it
	Pass      *fpm.Pass       `json:"pass"`
	Key       fpm.Key         `json:"-"`
	Seen      fpm.Observation `json:"-"`
}

// fpmReader decodes what a bus receives and keeps what the stream says.
type fpmReader struct {
	mu      sync.Mutex
	dec     fpm.Decoder
	track   *fpm.Tracker
	last    int64 // the newest message's time
	other   int64 // records that are not of forward passes
	each    func(FPMPass) error
	refused func(source string, err error)
}

func newFPMReader(positional bool) *fpmReader {
	return &fpmReader{dec: fpm.Decoder{Positional: positional}, track: fpm.NewTracker(fpm.Options{})}
}

// Take implements fpmbus.Sink.
func (r *fpmReader) Take(_ context.Context, batch []fpmbus.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range batch {
		m := &batch[i]
		if m.Record != fpmbus.ForwardPass {
			r.other++
			continue
		}
		at := messageTime(m)
		var p fpm.Pass
		err := r.dec.Decode
		if m.Encoding == fpmbus.JSON {
			err = r.dec.DecodeJSON
		}
		if err := err(m.Payload, &p); err != nil {
			r.track.Refuse(at.UnixNano(), m.Source, err)
			if r.refused != nil {
				r.refused(m.Source, err)
			}
			continue
		}
		r.last = max(r.last, at.UnixNano())
		o := r.track.Observe(at.UnixNano(), originOf(m), &p)
		if r.each == nil {
			continue
		}
		if err := r.each(FPMPass{
			Source: m.Source, Received: at, Namespace: m.Namespace, Component: m.Component, Heartbeat: p.Heartbeat(),
			Missing: o.Missing, Restart: o.Restart, Duplicate: o.Duplicate, Late: o.Late, Pass: &p, Key: o.Key, Seen: o,
		}); err != nil {
			return err
		}
	}
	return nil
}

// TailFPM hands every message to each until ctx ends, each returns an error, or all files are read. Refused
// messages go to the logger, the first of each source and reason.
func TailFPM(ctx context.Context, o FPMOptions, each func(FPMPass) error) (drops []fpmbus.Drop, err error) {
	sources, _, err := fpmSources(o, nil)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := newFPMReader(o.Positional)
	var ended error
	r.each = func(p FPMPass) error {
		if ended == nil {
			if ended = each(p); ended != nil {
				stop()
			}
		}
		return nil
	}
	told := map[string]bool{}
	r.refused = func(source string, err error) {
		reason := ""
		if e, ok := errors.AsType[*fpm.Error](err); ok {
			reason = string(e.Reason)
		}
		if k := source + "\x00" + reason; !told[k] {
			told[k] = true
			o.Logger.Warn("a message cannot be decoded; others with the same reason are only counted", "source", source, "reason", reason, "err", err)
		}
	}
	bus, err := fpmbus.New(fpmbus.Options{Sources: sources, Outlets: []fpmbus.Outlet{{Name: "tail", Sink: r}}, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	if err = bus.Run(ctx); err == nil {
		err = ended
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(bus.Drops(), refusals(r.track)...), err
}

// refusals are the tracker's drops as the bus counts its own.
func refusals(t *fpm.Tracker) (out []fpmbus.Drop) {
	for _, d := range t.Drops() {
		out = append(out, fpmbus.Drop{Source: d.Source, Reason: string(d.Reason), Count: int64(d.Count)})
	}
	return out
}

// FPMRelayOptions are for [RelayFPM].
type FPMRelayOptions struct {
	FPMOptions
	// To is nats://HOST:PORT[/NAMESPACE] or tcp://HOST:PORT or ipc:///PATH to listen at; "" with an embedded server.
	To string
	// Embedded is HOST:PORT at which a NATS server of this process listens; "" starts none.
	Embedded string
	// Scope is where messages of engines' sockets belong. A namespace in To goes before its own.
	Scope fpmbus.Scope
	// Every is how often Tell is called, and it is called at the end.
	Every time.Duration
	// Began is told the address at which the relayed messages can be had.
	Began func(at string)
	Tell  func(FPMRelayed)
}

// FPMRelayed is what a relay has done so far.
type FPMRelayed struct {
	Received int64             `json:"received"`
	Relayed  int64             `json:"relayed"`
	Filtered int64             `json:"filtered"` // not from an engine, so it is on a plane already
	Waiting  int               `json:"waiting"`
	Lost     int64             `json:"lost"`
	Drops    []fpmbus.Drop     `json:"drops"`
	State    fpmbus.State      `json:"state"` // of the way out
	Error    string            `json:"error,omitempty"`
	Sources  map[string]string `json:"sources"` // their states
}

// RelayFPM passes messages on unaltered until ctx ends.
func RelayFPM(ctx context.Context, o FPMRelayOptions) (FPMRelayed, error) {
	own := &fpmbus.Own{}
	sources, _, err := fpmSources(o.FPMOptions, own)
	if err != nil {
		return FPMRelayed{}, err
	}
	to := fpmbus.RelayTo{Name: "relay", Scope: o.Scope, Own: own}
	scheme, _, _ := strings.Cut(o.To, "://")
	var sink fpmbus.Sink
	var at string // where what is relayed can be had
	switch {
	case o.To != "" && o.Embedded != "":
		return FPMRelayed{}, errors.New("an embedded NATS server is where messages go: name it or --to, not both")
	case o.Embedded != "":
		ctx, stop := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the relay, which says its last words to it
		server, err := fpmbus.StartEmbeddedNATS(ctx, fpmbus.EmbeddedNATSOptions{Listen: o.Embedded, Logger: o.Logger})
		if err != nil {
			stop()
			return FPMRelayed{}, err
		}
		defer server.Wait()
		defer stop()
		if sink, err = fpmbus.NewRelayNATS(fpmbus.RelayNATSOptions{RelayTo: to, Server: fpmbus.NATSServer{InProcess: server}}); err != nil {
			return FPMRelayed{}, err
		}
		at = server.URL() + "/" + to.Scope.Namespace
	case scheme == "nats" || scheme == "tls":
		server, namespace, shown, err := natsURL(o.To)
		if err != nil {
			return FPMRelayed{}, err
		}
		if namespace != "" {
			to.Scope.Namespace = namespace
		}
		if sink, err = fpmbus.NewRelayNATS(fpmbus.RelayNATSOptions{RelayTo: to, Server: fpmbus.NATSServer{URL: server}}); err != nil {
			return FPMRelayed{}, err
		}
		at = shown
	case scheme == "tcp" || scheme == "ipc":
		zmq, err := fpmbus.NewRelayZMQ(fpmbus.RelayZMQOptions{RelayTo: to, Bind: o.To, Logger: o.Logger})
		if err != nil {
			return FPMRelayed{}, err
		}
		sink, at = zmq, "plane+"+zmq.Endpoint()
	default:
		return FPMRelayed{}, fmt.Errorf("--to %q is no address: write nats://HOST:PORT/NAMESPACE, tcp://HOST:PORT or ipc:///PATH, or take --nats embedded", o.To)
	}
	bus, err := fpmbus.New(fpmbus.Options{
		Sources: sources, Logger: o.Logger,
		Outlets: []fpmbus.Outlet{{Name: "relay", Sink: sink, Accept: func(m fpmbus.Message) bool { return m.Record == fpmbus.ForwardPass }}},
	})
	if err != nil {
		if c, ok := sink.(interface{ Close() error }); ok {
			_ = c.Close()
		}
		return FPMRelayed{}, err
	}
	o.Began(at)
	done := make(chan error, 1)
	go func() { done <- bus.Run(ctx) }()
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			o.Tell(relayed(bus))
		case err := <-done:
			return relayed(bus), err
		}
	}
}

func relayed(bus *fpmbus.Bus) FPMRelayed {
	out := bus.Outlets()[0]
	s := FPMRelayed{
		Received: bus.Received(), Relayed: out.Taken, Filtered: out.Filtered, Waiting: out.Waiting, Lost: out.Lost,
		Drops: bus.Drops(), State: out.Connection.State, Error: out.Connection.Error, Sources: map[string]string{},
	}
	for _, src := range bus.Sources() {
		s.Sources[src.Name] = string(src.State)
	}
	return s
}
