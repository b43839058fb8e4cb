package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	toolkit "github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"
)

// How long a client may take to send its headers, and how long requests may go on when we stop.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	drainTimeout  = 5 * time.Second
)

// Listener is a socket and what is served there: the API itself, or [API.Tempo].
type Listener struct {
	net.Listener
	Handler http.Handler
}

// Serve is [API.ServeAll] of the API itself on every listener.
func (a *API) Serve(ctx context.Context, listeners []net.Listener, webConfig string) error {
	list := make([]Listener, len(listeners))
	for i, l := range listeners {
		list[i] = Listener{l, a}
	}
	return a.ServeAll(ctx, list, webConfig)
}

// ServeAll answers on every listener until ctx ends, with TLS and basic auth as the web configuration file
// says (Prometheus's format; "" = neither), and then lets running requests finish for a few seconds.
// It closes the listeners. The error names the listener that failed; the others are stopped with it.
func (a *API) ServeAll(ctx context.Context, listeners []Listener, webConfig string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	errs := make(chan error, len(listeners))
	servers := make([]*http.Server, len(listeners))
	for i, l := range listeners {
		// One server each: the toolkit wraps the handler of the server that it is given.
		s := &http.Server{Handler: l.Handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
			ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)}
		servers[i] = s
		wg.Go(func() {
			defer stop()
			quiet := slog.New(slog.DiscardHandler) // who starts us says where we listen
			err := toolkit.Serve(l.Listener, s, &toolkit.FlagConfig{WebConfigFile: &webConfig}, quiet)
			if err != nil && !errors.Is(err, http.ErrServerClosed) {
				errs <- fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
			}
			_ = l.Close() // a server that did not start left it open
		})
	}
	<-ctx.Done()
	a.Close() // streams would keep Shutdown waiting
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	for _, s := range servers {
		if err := s.Shutdown(drain); err != nil {
			_ = s.Close() // whoever is still there had the time
		}
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// CheckWebConfig tells what is wrong with a web configuration file; "" is no file and fine.
func CheckWebConfig(file string) error {
	if err := toolkit.Validate(file); err != nil {
		return fmt.Errorf("web configuration %s: %w", file, err)
	}
	return nil
}

// WebAuth tells whether the listeners have verified who sent a request. The toolkit reads the file anew
// for every request, so that users can be added and removed while we run; so do we, when it has changed.
type WebAuth struct {
	file string

	mu    sync.Mutex
	size  int64
	mtime time.Time
	users bool
}

// NewWebAuth watches the web configuration file; "" has no users.
func NewWebAuth(file string) *WebAuth { return &WebAuth{file: file} }

// Configured tells whether anybody can be verified: there are users, or client certificates are required.
func (w *WebAuth) Configured() bool {
	c, err := w.read()
	return err == nil && (len(c.Users) > 0 || c.TLS.ClientAuth == "RequireAndVerifyClientCert")
}

// Authenticated is for [Access]: the request has a verified client certificate, or passed basic auth.
func (w *WebAuth) Authenticated(r *http.Request) bool {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return true
	}
	_, _, ok := r.BasicAuth()
	return ok && w.hasUsers()
}

// hasUsers tells whether the file demands basic auth now. A file that cannot be read lets nobody
// through: the toolkit answers 500 then.
func (w *WebAuth) hasUsers() bool {
	if w.file == "" {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	info, err := os.Stat(w.file)
	if err != nil {
		w.users, w.size, w.mtime = false, 0, time.Time{}
		return false
	}
	if info.Size() != w.size || !info.ModTime().Equal(w.mtime) {
		c, err := w.read()
		w.users, w.size, w.mtime = err == nil && len(c.Users) > 0, info.Size(), info.ModTime()
	}
	return w.users
}

// webConfig is what we need of the file; the toolkit checks the rest.
type webConfig struct {
	TLS struct {
		ClientAuth string `yaml:"client_auth_type"`
	} `yaml:"tls_server_config"`
	Users map[string]string `yaml:"basic_auth_users"`
}

func (w *WebAuth) read() (webConfig, error) {
	var c webConfig
	if w.file == "" {
		return c, nil
	}
	raw, err := os.ReadFile(w.file)
	if err != nil {
		return c, err
	}
	err = yaml.Unmarshal(raw, &c)
	return c, err
}
