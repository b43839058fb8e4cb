package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/scrape"
	"github.com/rollscope/rollscope/internal/systemport"
)

// SystemOptions are those of the unified endpoint, in Dynamo's words.
type SystemOptions struct {
	Port      int    // -1 = none, 0 takes a free one
	Host      string // "" = the host of the first --web.listen-address
	Health    string // path
	Live      string // path
	Starting  string // ready or notready
	Endpoints string // JSON array of names
}

// systemPart is the open system port. A nil one is none.
type systemPart struct {
	listener net.Listener
	port     *systemport.Port
	secure   bool
}

// openSystem opens the port, nil when there is to be none. The parts of the recorder are asked for at each
// request: they come after the sockets.
func openSystem(o *SystemOptions, web WebOptions, r *recorder) (*systemPart, error) {
	if o == nil || o.Port == -1 {
		return nil, nil
	}
	if o.Port < -1 || o.Port > 65535 {
		return nil, fmt.Errorf("--system-port (or DYN_SYSTEM_PORT) %d is no port: 0 to 65535, or -1 for none", o.Port)
	}
	health, err := systemport.ParseHealthConfig(o.Health, o.Live, o.Starting, o.Endpoints)
	if err != nil {
		return nil, err
	}
	host := o.Host
	if host == "" {
		if host, _, err = net.SplitHostPort(web.Listen[0]); err != nil {
			return nil, fmt.Errorf("--web.listen-address %q: %w", web.Listen[0], err)
		}
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(o.Port)))
	if err != nil {
		return nil, fmt.Errorf("the system port: %w (another one: --system-port, or DYN_SYSTEM_PORT; none: --system-port=-1)", err)
	}
	past := &recordedPast{queryable: func() storage.Queryable { return r.store.Queryable() }, until: r.started, log: r.log}
	return &systemPart{listener: l, secure: r.sockets.secure, port: systemport.New(systemport.Options{
		Targets: func(ctx context.Context) []systemport.Target {
			return systemTargets(r.scraper.Targets(), r.config.Load(), func(job, instance string) bool { return past.up(ctx, job, instance) })
		},
		Fetch: func(ctx context.Context, t systemport.Target, limit int64) systemport.Answer {
			f := r.scraper.Fetch(ctx, t.Pool, t.URL, limit)
			return systemport.Answer{ContentType: f.ContentType, Body: f.Body, Reason: string(f.Reason), Message: f.Message}
		},
		Machine: systemport.NewMachine(time.Now), Health: health, Now: time.Now,
	})}, nil
}

// systemTargets are the targets with a state, but those whose names mean other things. wasUp tells what the store
// knows of one that is down and was never up in this process.
func systemTargets(targets []scrape.TargetInfo, cfg *config.Config, wasUp func(job, instance string) bool) []systemport.Target {
	named := map[string]string{} // instances and aliases -> instance of the engine
	if cfg != nil {
		for _, e := range cfg.Rollscope.Engines {
			named[e.Instance] = e.Instance
			for _, a := range e.Aliases {
				host, _ := engine.InstanceOf(a)
				named[host] = e.Instance
			}
		}
	}
	var out []systemport.Target
	for _, t := range targets {
		u, err := url.Parse(t.URL)
		if err != nil || scrape.IsLoadsPath(u.Path) {
			continue
		}
		instance := u.Host
		if u.Port() == "" {
			port := "80"
			if u.Scheme == "https" {
				port = "443"
			}
			instance = net.JoinHostPort(u.Hostname(), port)
		}
		is := named[t.Instance]
		if is == "" {
			is = named[instance]
		}
		everUp := t.EverUp || t.Up != nil && !*t.Up && wasUp(t.Job, t.Instance)
		out = append(out, systemport.Target{Pool: t.Pool, URL: t.URL, Instance: instance, Engine: is, Backend: t.Identity.Backend,
			Up: t.Up, EverUp: everUp, Reason: string(t.Reason), Message: t.Error})
	}
	return out
}

// How far back it is looked whether an engine was up before this process, and how long that may take.
const (
	pastWindow  = 24 * time.Hour
	pastTimeout = 2 * time.Second
)

// recordedPast knows which targets were up before this process began, so that an engine that went down while
// nobody looked is not taken for one that starts. The store is read once, when the first target is found down:
// the start does not wait for it. It is safe for concurrent use.
type recordedPast struct {
	queryable func() storage.Queryable
	until     time.Time
	log       *slog.Logger

	mu     sync.Mutex
	known  map[[2]string]bool // by job and instance; nil until it was read
	warned bool
}

// up tells whether a target was. While that cannot be read it was not: it is asked again the next time.
func (p *recordedPast) up(ctx context.Context, job, instance string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		limit, cancel := context.WithTimeout(ctx, pastTimeout)
		defer cancel()
		known, err := upBefore(limit, p.queryable(), p.until)
		if err != nil {
			if !p.warned && ctx.Err() == nil {
				p.warned = true
				p.log.Warn("it cannot be read which engines were up before this start: those that are down count as starting", "component", "system port", "err", err)
			}
			return false
		}
		p.known = known
	}
	return p.known[[2]string{job, instance}]
}

// upBefore reads which targets were up within a day before a time.
func upBefore(ctx context.Context, q storage.Queryable, until time.Time) (map[[2]string]bool, error) {
	from, to := until.Add(-pastWindow).UnixMilli(), until.UnixMilli()
	querier, err := q.Querier(from, to)
	if err != nil {
		return nil, err
	}
	defer querier.Close()
	out := map[[2]string]bool{}
	set := querier.Select(ctx, false, &storage.SelectHints{Start: from, End: to}, labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, "up"))
	var it chunkenc.Iterator
	for set.Next() {
		s := set.At()
		it = s.Iterator(it)
		up := false
		for !up && it.Next() == chunkenc.ValFloat {
			_, v := it.At()
			up = v == 1
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
		if l := s.Labels(); up {
			out[[2]string{l.Get(model.JobLabel), l.Get(model.InstanceLabel)}] = true
		}
	}
	return out, set.Err()
}

// announcement is the line that says where it answers, "" without a port.
func (s *systemPart) announcement() string {
	if s == nil {
		return ""
	}
	return "system port: " + urlOf(s.listener, s.secure) + "\n"
}

func (s *systemPart) close() {
	if s != nil {
		_ = s.listener.Close()
	}
}

// face is what the API serves there, nil for none.
func (s *systemPart) face() *systemport.Port {
	if s == nil {
		return nil
	}
	return s.port
}

// drops are what engines said and this port did not pass on.
func (s *systemPart) drops() []api.Drop {
	if s == nil {
		return nil
	}
	var out []api.Drop
	for reason, n := range s.port.Drops() {
		out = append(out, api.Drop{Source: "system_port", Reason: reason, Count: n})
	}
	return out
}
