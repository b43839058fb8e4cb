package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/alecthomas/units"
	"github.com/prometheus/client_golang/prometheus"
	promcommon "github.com/prometheus/common/config"
	"go.yaml.in/yaml/v3"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/enginelog"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/eventstore/child"
	"github.com/rollscope/rollscope/internal/holdlog"
	"github.com/rollscope/rollscope/internal/logpush"
	"github.com/rollscope/rollscope/internal/logstore"
	"github.com/rollscope/rollscope/internal/otlp"
	"github.com/rollscope/rollscope/internal/requeststore"
	"github.com/rollscope/rollscope/internal/tailsample"
	"github.com/rollscope/rollscope/internal/tracestore"
)

// EventOptions are the flags about spans, logs and requests. They win over the configuration file.
type EventOptions struct {
	OTLPGRPC, OTLPHTTP, Tempo string // addresses, "off" for none; "" leaves it to the file
	Logs                      []string
	Retention                 time.Duration // 0 leaves it to the file
	MaxBytes                  units.Base2Bytes
	Fsync                     bool
	URL                       string

	// Child makes the process of the event store; nil runs this program again with [ChildCommand].
	Child func(ctx context.Context, args ...string) *exec.Cmd
}

// ChildCommand is the hidden command that runs the event store's process.
const ChildCommand = "events-child"

// EventsChild is the event store's process; it returns the exit code.
func EventsChild(args []string) int { return child.Main(args) }

// Default addresses, taken when they are free.
const (
	defaultOTLPGRPC = "127.0.0.1:4317"
	defaultOTLPHTTP = "127.0.0.1:4318"
	defaultTempo    = "127.0.0.1:3200"
)

// eventPart is everything of a recorder that is about events: what comes in, what is kept of it, and the
// tables that are made of it.
type eventPart struct {
	log      *slog.Logger
	dir      string // DIR/rollscope
	opts     EventOptions
	first    config.Rollscope // of the start: addresses and the store's own settings hold until the next
	store    *eventstore.Store
	requests *requeststore.Store
	traces   *tracestore.Store
	logs     *logstore.Store
	sampling *sampling
	lines    *lineReader
	push     *logpush.Handler
	receiver *otlp.Receiver
	forward  *otlp.Forwarder // nil: nobody to forward to
	doors    doors
	syslog   []*logpush.Syslog

	mu       sync.Mutex
	now      following
	changes  chan struct{} // other log files are to be followed
	warnings []api.Warning // of the configuration in force
}

// following is what one configuration has us follow.
type following struct {
	sources []config.LogFile
	files   *enginelog.Follower // nil: none, or not started yet
}

// doors are the sockets of others' protocols.
type doors struct {
	grpc, http, tempo net.Listener
	reasons           map[string]string // by name of the option: why it is not there
}

// openEvents opens the store and the sockets. Nothing is received before run.
func openEvents(ctx context.Context, dir string, o EventOptions, cfg *config.Config, web WebOptions, logger *slog.Logger, reg prometheus.Registerer, next bool) (_ *eventPart, err error) {
	p := &eventPart{log: logger.With("component", "events"), opts: o, first: cfg.Rollscope, changes: make(chan struct{}, 1)}
	home := filepath.Join(dir, "rollscope")
	p.dir = home
	command, err := o.command()
	if err != nil {
		return nil, err
	}
	ev := cfg.Rollscope.Events
	url := o.URL
	if url == "" {
		url = ev.URL
	}
	retention := o.Retention
	if retention == 0 {
		retention = ev.RetentionTime()
	}
	size := int64(o.MaxBytes)
	if size == 0 {
		size = ev.MaxBytes()
	}
	var opened []func() error
	defer func() {
		if err != nil {
			for _, f := range slices.Backward(opened) {
				err = errors.Join(err, f())
			}
		}
	}()
	p.store, err = eventstore.Open(ctx, eventstore.Options{
		Dir: home, URL: url, Command: command, Retention: retention, MaxBytes: size, MinFreeBytes: ev.MinFreeBytes(),
		Fsync: o.Fsync || ev.Fsync, Logger: logger, Registerer: reg,
	})
	if err != nil {
		return nil, err
	}
	opened = append(opened, p.store.Close)
	p.requests, err = requeststore.New(p.store, requeststore.Options{State: filepath.Join(home, "state", "requests"), Logger: logger, Registerer: reg})
	if err != nil {
		return nil, err
	}
	p.traces = tracestore.New(p.store, tracestore.Options{})
	p.logs = logstore.New(p.store)
	p.lines = newLineReader(enginelog.NewCounts())
	p.push = logpush.New(logpush.Options{Sink: p.pushed, Busy: busy, Logger: logger})

	if endpoints, err := endpointsOf(cfg.Rollscope.Traces.Forward); err != nil {
		return nil, fmt.Errorf("%s: rollscope.traces.forward: %w", cfg.Path, err)
	} else if len(endpoints) > 0 {
		var most int64
		for _, f := range cfg.Rollscope.Traces.Forward {
			most = max(most, f.QueueBytes())
		}
		p.forward, err = otlp.NewForwarder(otlp.ForwardOptions{Dir: filepath.Join(home, "forward"), MaxBytes: most, Endpoints: endpoints, Logger: logger})
		if err != nil {
			return nil, err
		}
		opened = append(opened, p.forward.Close)
	}
	held, err := holdlog.Open(holdlog.Options{Dir: filepath.Join(home, "undecided"), Fsync: o.Fsync || ev.Fsync, Logger: logger})
	if err != nil {
		return nil, err
	}
	opened = append(opened, held.Close)
	p.sampling = newSampling(held, p.store, p.requests, p.forward, p.engineOf, p.log)
	p.sampling.learned.path = p.home("state", "percentiles")

	ro := otlp.Options{Sink: p, Logger: logger}
	if web.ConfigFile != "" {
		wc, err := otlp.OpenWebConfig(web.ConfigFile)
		if err != nil {
			return nil, err
		}
		if ro.TLS, err = wc.TLS(); err != nil {
			return nil, err
		}
		ro.Authorize = wc.Authorize
	}
	if p.receiver, err = otlp.NewReceiver(ro); err != nil {
		return nil, err
	}
	if err := p.open(cfg.Rollscope.Traces, next); err != nil {
		return nil, err
	}
	opened = append(opened, p.doors.close)
	if p.syslog, err = p.syslogs(cfg.Rollscope.Logs); err != nil {
		return nil, fmt.Errorf("%s: rollscope.logs: %w", cfg.Path, err)
	}
	for _, s := range p.syslog {
		opened = append(opened, s.Close)
	}
	for _, c := range []prometheus.Collector{p.receiver, p.lines.counts, p.sampling} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of events: %w", err)
		}
	}
	return p, nil
}

// open opens the sockets. A default address that is taken by somebody else is no error: most machines that
// have a collector have it there.
func (p *eventPart) open(t config.Traces, next bool) error {
	p.doors.reasons = map[string]string{}
	for _, d := range []struct {
		name, flag, file, fallback string
		to                         *net.Listener
	}{
		{"otlp_grpc", p.opts.OTLPGRPC, t.OTLPGRPC, defaultOTLPGRPC, &p.doors.grpc},
		{"otlp_http", p.opts.OTLPHTTP, t.OTLPHTTP, defaultOTLPHTTP, &p.doors.http},
		{"tempo", p.opts.Tempo, t.Tempo, defaultTempo, &p.doors.tempo},
	} {
		addr, asked := firstSet(d.flag, d.file), true
		if addr == "" {
			addr, asked = d.fallback, false
		}
		if addr == config.Off {
			p.doors.reasons[d.name] = "it is switched off"
			continue
		}
		l, err := net.Listen("tcp", addr)
		for tries := 0; err != nil && next && !asked && tries < 50; tries++ {
			following, splitErr := nextPort(addr)
			if splitErr != nil {
				break
			}
			addr = following
			l, err = net.Listen("tcp", addr)
		}
		switch {
		case err == nil:
			*d.to = l
		case asked:
			return errors.Join(fmt.Errorf("%s: listen on %s: %w", d.name, addr, err), p.doors.close())
		default:
			p.doors.reasons[d.name] = err.Error()
			p.log.Warn("a default port is taken by another program", "door", d.name, "err", err, "do", "set traces."+d.name+" in the configuration, or --traces.*")
		}
	}
	return nil
}

func firstSet(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

func (d *doors) close() error {
	var errs []error
	for _, l := range []net.Listener{d.grpc, d.http, d.tempo} {
		if l == nil {
			continue
		}
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func addressOf(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// apply puts a configuration in force: the sampling policy, the engines' names and the log files. What is
// bound at the start (addresses, the store, forwarding) is compared and warned of.
func (p *eventPart) apply(cfg *config.Config) error {
	r := cfg.Rollscope
	policy, notes, err := tailsample.FromNode(nodeOf(&r.Traces.Sampling), cfg.Path)
	if err != nil {
		return err
	}
	if policy.File != "" {
		path := policy.File
		if !filepath.IsAbs(path) {
			path = filepath.Join(cfg.Dir, path)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%s: rollscope.traces.sampling: %w", cfg.Path, err)
		}
		limits := policy
		if policy, notes, err = tailsample.Parse(text, path); err != nil {
			return err
		}
		policy = withLimits(policy, limits)
	}
	sources := slices.Clone(r.Logs)
	for _, path := range p.opts.Logs {
		sources = append(sources, config.LogFile{Path: path})
	}
	next := following{sources: sources}
	p.mu.Lock()
	same := reflect.DeepEqual(linesOff(p.now.sources), linesOff(sources))
	p.mu.Unlock()
	if err := p.sampling.use(policy, time.Now()); err != nil {
		return fmt.Errorf("%s: rollscope.traces.sampling: %w", cfg.Path, err)
	}
	p.lines.name(r.Engines)
	var warnings []api.Warning
	for _, n := range notes {
		warnings = append(warnings, api.Warning{Code: "sampling", Message: n, Where: cfg.Path})
	}
	if a, b := p.first, r; a.Events != b.Events || a.Traces.OTLPGRPC != b.Traces.OTLPGRPC || a.Traces.OTLPHTTP != b.Traces.OTLPHTTP ||
		a.Traces.Tempo != b.Traces.Tempo || !reflect.DeepEqual(syslogOf(a.Logs), syslogOf(b.Logs)) || !reflect.DeepEqual(a.Traces.Forward, b.Traces.Forward) {
		warnings = append(warnings, api.Warning{Code: "restart", Message: "the addresses of traces: and syslog, forward: and events: are taken over at the next start only", Where: cfg.Path})
	}
	p.mu.Lock()
	p.warnings = warnings
	if !same {
		p.now = next
		select {
		case p.changes <- struct{}{}:
		default:
		}
	}
	p.mu.Unlock()
	return nil
}

// syslogOf are the sources that are sockets.
func syslogOf(list []config.LogFile) []config.LogFile {
	return slices.DeleteFunc(linesOff(list), func(l config.LogFile) bool { return !config.IsSyslog(l.Path) })
}

// linesOff are sources without their places in the file.
func linesOff(list []config.LogFile) []config.LogFile {
	out := slices.Clone(list)
	for i := range out {
		out[i].Line = 0
	}
	return out
}

// run receives until ctx ends.
func (p *eventPart) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// The store and the table outlive those that write into them.
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	tableCtx, stopTable := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStore()
	defer stopTable()
	errs := make(chan error, 8)
	var store, table, sources sync.WaitGroup
	start := func(wg *sync.WaitGroup, name string, f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				errs <- fmt.Errorf("%s: %w", name, err)
				stop()
			}
		})
	}
	start(&store, "event store", func() error { return p.store.Run(storeCtx) })
	start(&table, "requests", func() error { return p.requests.Run(tableCtx) })
	if err := p.sampling.replay(); err != nil {
		errs <- err
		stop()
	}
	start(&sources, "sampling", func() error { return p.sampling.run(ctx) })
	start(&sources, "otlp", func() error { return p.receiver.Serve(ctx, p.doors.grpc, p.doors.http) })
	start(&sources, "logs", func() error { return p.follow(ctx) })
	for _, s := range p.syslog {
		start(&sources, "syslog", func() error { return s.Run(ctx) })
	}
	if p.forward != nil {
		start(&sources, "forward", func() error { p.forward.Run(ctx); return nil })
	}
	<-ctx.Done()
	sources.Wait()
	stopTable()
	table.Wait()
	stopStore()
	store.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

func (p *eventPart) close() error {
	errs := []error{p.doors.close(), p.sampling.held.Close(), p.store.Close()}
	for _, s := range p.syslog {
		errs = append(errs, s.Close())
	}
	if p.forward != nil {
		errs = append(errs, p.forward.Close())
	}
	return errors.Join(errs...)
}

// busy tells errors after which the same may be tried again.
func busy(err error) bool {
	return errors.Is(err, eventstore.ErrFull) || errors.Is(err, eventstore.ErrReadOnly) || errors.Is(err, eventstore.ErrDown) ||
		errors.Is(err, eventstore.ErrClosed) || errors.Is(err, holdlog.ErrFull)
}

// otlpRefusal is what an OTLP sender is told about an error.
func otlpRefusal(err error) error {
	switch {
	case errors.Is(err, eventstore.ErrFull), errors.Is(err, holdlog.ErrFull):
		return &otlp.Refusal{Verdict: otlp.Busy, Reason: "full", Message: err.Error(), After: 5 * time.Second}
	case busy(err):
		return &otlp.Refusal{Verdict: otlp.Down, Reason: "store", Message: err.Error(), After: 5 * time.Second}
	}
	return err
}

// pushHandlers are the paths in which others push on the main listener.
func (p *eventPart) pushHandlers() *api.PushHandlers {
	otlpHTTP := p.receiver.Handler()
	return &api.PushHandlers{
		Loki: http.HandlerFunc(p.push.Loki), JSONLines: http.HandlerFunc(p.push.JSONLines), Elastic: http.HandlerFunc(p.push.Elastic),
		Ready: http.HandlerFunc(p.push.Ready), Traces: otlpHTTP, Logs: otlpHTTP,
	}
}

// home is a path below DIR/rollscope.
func (p *eventPart) home(parts ...string) string {
	return filepath.Join(append([]string{p.dir}, parts...)...)
}

// nodeOf is a part of the configuration's tree, nil when it is not there.
func nodeOf(n *yaml.Node) *yaml.Node {
	if n.Kind == 0 {
		return nil
	}
	return n
}

// withLimits is a policy out of a file with the limits that stand beside the file's name.
func withLimits(policy, limits tailsample.Options) tailsample.Options {
	limits.Policy, limits.File = policy.Policy, ""
	out := reflect.ValueOf(&limits).Elem()
	from := reflect.ValueOf(policy)
	for i := range out.NumField() {
		if out.Field(i).IsZero() {
			out.Field(i).Set(from.Field(i))
		}
	}
	return limits
}

// endpointsOf are the collectors that are forwarded to.
func endpointsOf(list []config.Forward) ([]otlp.Endpoint, error) {
	var out []otlp.Endpoint
	for _, f := range list {
		e := otlp.Endpoint{URL: f.Endpoint, Headers: f.Headers, Everything: f.All}
		if f.CAFile != "" {
			tc, err := promcommon.NewTLSConfig(&promcommon.TLSConfig{CAFile: f.CAFile, InsecureSkipVerify: f.Insecure})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.Endpoint, err)
			}
			e.TLS = tc
		} else if f.Insecure {
			e.TLS = &tls.Config{InsecureSkipVerify: true} // #nosec G402: the user asked for it by name
		}
		out = append(out, e)
	}
	return out, nil
}
