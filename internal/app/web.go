package app

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"

	"github.com/grafana/regexp"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/otlp"
)

// WebOptions say where and for whom the HTTP API is served.
type WebOptions struct {
	Listen       []string // host:port; port 0 takes a free one
	ConfigFile   string   // Prometheus's web configuration: TLS and users; "" for none
	ExternalURL  string   // under which others reach us; "" for none
	AllowedHosts []string // further names under which requests may arrive
	CORSOrigin   string   // regular expression of whole origins whose pages may read from us; "" for none
	TokensFile   string   // bearer tokens and their scopes; "" for none
}

// sockets are the open listeners of the HTTP face. They are opened first of all, so that a busy port is
// known before the store is touched.
type sockets struct {
	opts      WebOptions
	listeners []net.Listener
	external  *url.URL
	auth      *api.WebAuth
	secure    bool // the web configuration has a certificate
	cors      *regexp.Regexp
	tokens    []api.Token
	system    *systemPart // beside them, nil = none
}

// listen opens the sockets. With next it takes the following port, up to 50 times, while one is busy.
func listen(o WebOptions, next bool) (*sockets, error) {
	s := &sockets{opts: o}
	if o.ExternalURL != "" {
		u, err := url.Parse(o.ExternalURL)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("--web.external-url %q is not a URL: write https://HOST[:PORT]", o.ExternalURL)
		}
		s.external = u
	}
	if err := api.CheckWebConfig(o.ConfigFile); err != nil {
		return nil, err
	}
	s.auth = api.NewWebAuth(o.ConfigFile)
	if o.ConfigFile != "" {
		wc, err := otlp.OpenWebConfig(o.ConfigFile)
		if err != nil {
			return nil, err
		}
		tls, err := wc.TLS()
		if err != nil {
			return nil, err
		}
		s.secure = tls != nil
	}
	if o.CORSOrigin != "" {
		re, err := regexp.Compile("^(?:" + o.CORSOrigin + ")$")
		if err != nil {
			return nil, fmt.Errorf("--web.cors.origin: %w", err)
		}
		s.cors = re
	}
	if o.TokensFile != "" {
		data, err := os.ReadFile(o.TokensFile)
		if err != nil {
			return nil, fmt.Errorf("--web.tokens-file: %w", err)
		}
		if s.tokens, err = api.ParseTokens(data, o.TokensFile); err != nil {
			return nil, fmt.Errorf("--web.tokens-file: %w", err)
		}
	}
	for _, addr := range o.Listen {
		l, err := net.Listen("tcp", addr)
		for tries := 0; err != nil && next && tries < 50; tries++ {
			following, splitErr := nextPort(addr)
			if splitErr != nil {
				break
			}
			addr = following
			l, err = net.Listen("tcp", addr)
		}
		if err != nil {
			s.close()
			return nil, fmt.Errorf("listen on %s: %w (another address: --web.listen-address)", addr, err)
		}
		s.listeners = append(s.listeners, l)
	}
	return s, nil
}

func nextPort(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, strconv.Itoa(n+1)), nil
}

func (s *sockets) addrs() []net.Addr {
	var a []net.Addr
	for _, l := range s.listeners {
		a = append(a, l.Addr())
	}
	return a
}

// url is the address to print for a person.
func (s *sockets) url() string {
	if s.external != nil {
		return s.external.String()
	}
	return urlOf(s.listeners[0], s.secure)
}

// urlOf is the address of a listener to print for a person.
func urlOf(l net.Listener, secure bool) string {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	addr := l.Addr().(*net.TCPAddr)
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(addr.Port))
}

// linkURL is what links in notifications begin with.
func (s *sockets) linkURL() *url.URL {
	u, err := url.Parse(s.url())
	if err != nil {
		return nil // an address of our own making: it parses
	}
	return u
}

func (s *sockets) hosts() api.Hosts {
	name, _ := os.Hostname() // without it only addresses and configured names are good
	listen := s.addrs()
	if s.system != nil {
		listen = append(listen, s.system.listener.Addr())
	}
	return api.Hosts{Listen: listen, External: s.external, Allowed: s.opts.AllowedHosts, Hostname: name, CORS: s.cors}
}

func (s *sockets) access() api.Access {
	return api.Access{Loopback: api.LoopbackOnly(s.addrs()), Authenticated: s.auth.Authenticated, Tokens: s.tokens}
}

// strangers are the addresses at which people who have not said who they are can reach us: they get reads only.
// tempo is nil when there is no such port.
func (s *sockets) strangers(tempo net.Listener) []string {
	if s.auth.Configured() || len(s.tokens) > 0 {
		return nil
	}
	doors := slices.Clone(s.listeners)
	if tempo != nil {
		doors = append(doors, tempo)
	}
	if s.system != nil {
		doors = append(doors, s.system.listener)
	}
	scheme := "http://"
	if s.secure {
		scheme = "https://"
	}
	var out []string
	for _, l := range doors {
		if !api.LoopbackOnly([]net.Addr{l.Addr()}) {
			out = append(out, scheme+l.Addr().String())
		}
	}
	return out
}

// serve answers on all sockets, on the system port, and on tempo's, which may be nil, in Tempo's language.
func (s *sockets) serve(ctx context.Context, a *api.API, tempo net.Listener) error {
	var list []api.Listener
	for _, l := range s.listeners {
		list = append(list, api.Listener{Listener: l, Handler: a})
	}
	if tempo != nil {
		list = append(list, api.Listener{Listener: tempo, Handler: a.Tempo()})
	}
	if s.system != nil {
		list = append(list, api.Listener{Listener: s.system.listener, Handler: a.SystemPort()})
	}
	return a.ServeAll(ctx, list, s.opts.ConfigFile)
}

// address is host:port of the first socket: the instance of our own series.
func (s *sockets) address() string { return s.listeners[0].Addr().String() }

func (s *sockets) close() {
	for _, l := range s.listeners {
		_ = l.Close()
	}
	s.system.close()
}
