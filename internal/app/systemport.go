package app

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/rollscope/rollscope/internal/api"
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

// openSystem opens the port, nil when there is to be none. The scraper is asked for at each request: it comes
// after the sockets.
func openSystem(o *SystemOptions, web WebOptions, scraper func() *scrape.Manager) (*systemPart, error) {
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
	return &systemPart{listener: l, secure: web.ConfigFile != "", port: systemport.New(systemport.Options{
		Targets: func() []systemport.Target { return systemTargets(scraper()) },
		Fetch: func(ctx context.Context, t systemport.Target, limit int64) systemport.Answer {
			f := scraper().Fetch(ctx, t.Pool, t.URL, limit)
			return systemport.Answer{ContentType: f.ContentType, Body: f.Body, Reason: string(f.Reason), Message: f.Message}
		},
		Machine: systemport.NewMachine(time.Now), Health: health, Now: time.Now,
	})}, nil
}

// systemTargets are the targets with a state, but those whose names mean other things.
func systemTargets(scraper *scrape.Manager) []systemport.Target {
	var out []systemport.Target
	for _, t := range scraper.Targets() {
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
		out = append(out, systemport.Target{Pool: t.Pool, URL: t.URL, Instance: instance, Backend: t.Identity.Backend,
			Up: t.Up, EverUp: t.EverUp, Reason: string(t.Reason), Message: t.Error})
	}
	return out
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
