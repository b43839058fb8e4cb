package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/enginelog"
	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
	"github.com/rollscope/rollscope/internal/logpush"
	"github.com/rollscope/rollscope/internal/otlp"
	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/span"
)

// lineReader reads lines that were pushed as those of files are read: a parser for each source, since the
// lines of one source explain each other. It is safe for concurrent use.
type lineReader struct {
	counts *enginelog.Counts

	mu      sync.Mutex
	parsers map[string]*sourceParser
	engines map[string]string // by alias
}

type sourceParser struct {
	parser  *enginelog.Parser
	options enginelog.Options
	used    time.Time
}

// maxParsers bounds the sources that are told apart; the one that was quiet longest goes first.
const maxParsers = 4096

func newLineReader(counts *enginelog.Counts) *lineReader {
	return &lineReader{counts: counts, parsers: map[string]*sourceParser{}}
}

// name takes over the names of engines.
func (l *lineReader) name(engines []config.Engine) {
	names := map[string]string{}
	for _, e := range engines {
		names[e.Instance] = e.Instance
		for _, a := range e.Aliases {
			names[a] = e.Instance
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.engines = names
}

// engineOf is the engine that one of the names is of: one of the configuration's, else the first that is
// an address, as a scrape would have it. "" when it is not known.
func (l *lineReader) engineOf(names ...string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range names {
		if e, ok := l.engines[n]; ok && n != "" {
			return e
		}
	}
	for _, n := range names {
		if host, port, err := net.SplitHostPort(n); err == nil && host != "" && port != "" {
			return n
		}
	}
	return ""
}

// read makes a record of a line that came at a time.
func (l *lineReader) read(o enginelog.Options, line string, at time.Time) (enginelog.Record, enginelog.Options, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := o.Source + "\x00" + o.Engine
	p := l.parsers[key]
	if p == nil {
		if len(l.parsers) >= maxParsers {
			var oldest string
			for k, q := range l.parsers {
				if oldest == "" || q.used.Before(l.parsers[oldest].used) {
					oldest = k
				}
			}
			delete(l.parsers, oldest)
		}
		p = &sourceParser{parser: enginelog.NewParser(o), options: o}
		l.parsers[key] = p
	}
	p.used = at
	r, ok := p.parser.Line([]byte(line), at.UnixNano())
	return r, p.options, ok
}

func (p *eventPart) engineOf(names ...string) string { return p.lines.engineOf(names...) }

// keepLines stores rows and what they say about requests.
func (p *eventPart) keepLines(ctx context.Context, rows []event.Row, obs []request.Observation) error {
	if len(rows) > 0 {
		err := p.store.Append(ctx, rows)
		var refused *eventstore.RejectedError
		if err != nil && !errors.As(err, &refused) { // refused rows are counted there
			return err
		}
	}
	if len(obs) == 0 {
		return nil
	}
	return p.requests.Observe(ctx, obs)
}

// pushed takes what shippers push.
func (p *eventPart) pushed(ctx context.Context, batch []logpush.Entry) error {
	now := time.Now()
	var rows []event.Row
	var obs []request.Observation
	for _, e := range batch {
		engine := ""
		for _, f := range e.Fields {
			if f.Name == "engine" || f.Name == "instance" {
				engine = p.engineOf(f.Value)
			}
		}
		if engine == "" {
			engine = p.engineOf(e.Service, e.Source)
		}
		at := now
		if e.Time != 0 {
			at = time.Unix(0, e.Time)
		}
		rec, o, ok := p.lines.read(enginelog.Options{Source: e.Source, Engine: engine, Service: e.Service}, e.Line, at)
		var row event.Row
		if ok {
			row = rec.Row(o)
			p.lines.counts.AddAt(e.Source, &rec, now.UnixNano())
			if rec.Request != nil {
				obs = append(obs, *rec.Request)
			}
		} else { // an empty line, or a record that is fields only
			row = event.Row{Kind: event.Log, Time: at.UnixNano(), Message: e.Line, Service: e.Service, Engine: engine}
			row.Add("source", e.Source)
		}
		// The shipper saw the line at a time; the line's own is better unless it had to be guessed.
		if e.Time != 0 && (!ok || rec.Marks&(enginelog.TimeAssumed|enginelog.ZoneAssumed|enginelog.DateAssumed) != 0) {
			row.Time = e.Time
		}
		for _, f := range e.Fields {
			if !reservedField(f.Name) && row.Get(f.Name) == "" {
				row.Add(f.Name, f.Value)
			}
		}
		rows = append(rows, row)
	}
	return p.keepLines(ctx, rows, obs)
}

// reservedField tells fields that every row has by itself.
func reservedField(name string) bool {
	return slices.Contains([]string{"_time", "_msg", "_seq", "_stream", "_stream_id", "row", "service", "engine", "received"}, name)
}

// Traces and Logs make it an [otlp.Sink].

func (p *eventPart) Traces(ctx context.Context, scopes []span.Scope) (int, string, error) {
	if err := p.sampling.take(ctx, scopes); err != nil {
		return 0, "", otlpRefusal(err)
	}
	return 0, "", nil
}

func (p *eventPart) Logs(ctx context.Context, records []otlp.LogRecord) (int, string, error) {
	now := time.Now()
	if p.forward != nil && p.forward.Wanted(true) {
		if err := p.forward.Logs(true, records); err != nil {
			p.log.Error("log records could not be queued for forwarding", "err", err) // counted there
		}
	}
	rows := make([]event.Row, 0, len(records))
	var obs []request.Observation
	for i := range records {
		r := &records[i]
		var row event.Row
		r.Row(&row, now.UnixNano())
		source, instance := r.Service, ""
		for _, a := range r.Resource {
			switch a.Key {
			case "service.instance.id", "host.name", "k8s.pod.name":
				source += "/" + a.Value.Str
				if a.Key == "service.instance.id" {
					instance = a.Value.Str
				}
			}
		}
		row.Engine = p.engineOf(instance, r.Service)
		text := r.Text()
		if text == "" {
			rows = append(rows, row)
			continue
		}
		rec, o, ok := p.lines.read(enginelog.Options{Source: source, Engine: row.Engine, Service: r.Service}, text, time.Unix(0, row.Time))
		if ok {
			p.lines.counts.AddAt(source, &rec, now.UnixNano())
			for _, f := range rec.Row(o).Fields {
				if row.Get(f.Name) == "" { // what the sender said about its own record wins
					row.Add(f.Name, f.Value)
				}
			}
			if rec.Request != nil {
				obs = append(obs, *rec.Request)
			}
		}
		rows = append(rows, row)
	}
	if err := p.keepLines(ctx, rows, obs); err != nil {
		return 0, "", otlpRefusal(err)
	}
	if p.forward != nil && p.forward.Wanted(false) && !p.forward.Wanted(true) {
		if err := p.forward.Logs(false, records); err != nil {
			p.log.Error("log records could not be queued for forwarding", "err", err) // counted there
		}
	}
	return 0, "", nil
}

// syslogs opens the sockets among the sources of logs: syslog+tcp://HOST:PORT and syslog+udp://HOST:PORT.
func (p *eventPart) syslogs(sources []config.LogFile) (out []*logpush.Syslog, err error) {
	defer func() {
		if err != nil {
			for _, s := range out {
				err = errors.Join(err, s.Close())
			}
		}
	}()
	for _, src := range sources {
		if !config.IsSyslog(src.Path) {
			continue
		}
		u, err := url.Parse(src.Path)
		if err != nil {
			return out, err
		}
		var extra []event.Field
		if src.Engine != "" {
			extra = []event.Field{{Name: "engine", Value: src.Engine}}
		}
		s, err := logpush.ListenSyslog(logpush.SyslogOptions{Network: strings.TrimPrefix(u.Scheme, "syslog+"), Address: u.Host, Zone: zoneOf(src.Timezone),
			Sink: p.pushed, Logger: p.log, Service: src.Service, Extra: extra})
		if err != nil {
			return out, err
		}
		out = append(out, s)
	}
	return out, nil
}

func zoneOf(name string) *time.Location {
	if name == "" {
		return nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil { // checked on loading
		return nil
	}
	return zone
}

// follow follows the log files of the configuration in force, until ctx ends.
func (p *eventPart) follow(ctx context.Context) error {
	for {
		p.mu.Lock()
		now := p.now
		p.mu.Unlock()
		part, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		failed := make(chan error, 1)
		var files []enginelog.Source
		for _, s := range now.sources {
			if !config.IsSyslog(s.Path) {
				files = append(files, enginelog.Source{Path: s.Path, Engine: s.Engine, Service: s.Service, Zone: zoneOf(s.Timezone),
					EngineOf: func(actor, pid, ip string) string { return p.lines.engineOf(actor+"/"+pid, ip) }})
			}
		}
		if len(files) > 0 {
			f, err := enginelog.NewFollower(enginelog.FollowOptions{Sources: files, Sink: p.keepLines, StateDir: p.stateDir(), Counts: p.lines.counts, Logger: p.log})
			if err != nil {
				stop()
				return err
			}
			p.mu.Lock()
			p.now.files = f
			p.mu.Unlock()
			running.Go(func() { failed <- f.Run(part) })
		}
		var err error
		select {
		case <-ctx.Done():
		case <-p.changes:
		case err = <-failed:
			if part.Err() == nil && err != nil {
				p.log.Error("a source of logs failed; the others go on", "err", err)
			}
			select {
			case <-ctx.Done():
			case <-p.changes:
			}
		}
		stop()
		running.Wait()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// stateDir keeps the places up to which log files were read.
func (p *eventPart) stateDir() string { return p.home("state", "logs") }

// checkLogs says what is wrong with a source of logs of the command line.
func checkLogs(paths []string) error {
	for _, path := range paths {
		if err := config.CheckLogPath(path); err != nil {
			return fmt.Errorf("--logs: %w", err)
		}
	}
	return nil
}
