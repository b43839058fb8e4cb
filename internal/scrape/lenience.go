package scrape

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	promscrape "github.com/prometheus/prometheus/scrape"
)

// badState is what is known of a target's unreadable lines; target.mu guards it.
type badState struct {
	lenient bool
	clean   int   // answers in a row without a bad line
	err     error // of the last request made in the target's place; nil when it was answered
}

// cleanEnough is after how many clean answers in a row a target is read directly again.
const cleanEnough = 5

// lenience reads targets whose answers have unreadable lines. Prometheus drops a whole answer for
// one of them, and has no hook between the answer and its parser; but it lets us dial. So once a
// target's answer could not be parsed, connections to its address end in this process: a handler
// asks the real target, takes the bad lines out, counts them, and answers the rest. Connections to
// healthy targets are what they always are.
type lenience struct {
	m        *Manager
	dialer   net.Dialer
	listener *pipeListener
	upstream *http.Transport

	mu     sync.Mutex
	routed map[string]map[string]*target        // dial address -> request URI -> target
	conns  map[string]map[*trackedConn]struct{} // open connections by dial address
}

func newLenience(m *Manager) *lenience {
	l := &lenience{
		m: m, listener: newPipeListener(),
		routed: map[string]map[string]*target{}, conns: map[string]map[*trackedConn]struct{}{},
	}
	l.upstream = &http.Transport{DialContext: l.dialer.DialContext, MaxIdleConnsPerHost: 4, IdleConnTimeout: 5 * time.Minute}
	return l
}

// dialAddress is what net/http dials for a URL's scheme and host.
func dialAddress(scheme, host string) string {
	if h, p, err := net.SplitHostPort(host); err == nil && p != "" {
		return net.JoinHostPort(h, p)
	}
	port := "80"
	if scheme == "https" {
		port = "443"
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// dial is how Prometheus's scrape clients connect.
func (l *lenience) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	_, through := l.routed[addr]
	l.mu.Unlock()
	var c net.Conn
	var err error
	if through {
		c, err = l.listener.connect(ctx, addr)
	} else {
		sock, serr := l.m.sources.socketOf(addr)
		switch {
		case serr != nil:
			return nil, serr
		case sock != "":
			c, err = l.dialer.DialContext(ctx, "unix", sock)
		default:
			c, err = l.dialer.DialContext(ctx, network, addr)
		}
	}
	if err != nil {
		return nil, err
	}
	t := &trackedConn{Conn: c, l: l, addr: addr}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[addr] == nil {
		l.conns[addr] = map[*trackedConn]struct{}{}
	}
	l.conns[addr][t] = struct{}{}
	return t, nil
}

// trackedConn is a connection that can be told to take no further request. net/http then opens
// another one, as it does when an idle connection turns out to be closed.
type trackedConn struct {
	net.Conn
	l      *lenience
	addr   string
	doomed atomic.Bool
}

var errRerouted = errors.New("this connection was given up; a new one goes another way")

// Write refuses once the connection is doomed, before anything was written.
func (c *trackedConn) Write(b []byte) (int, error) {
	if c.doomed.Load() {
		return 0, errRerouted
	}
	return c.Conn.Write(b)
}

// Close closes and forgets.
func (c *trackedConn) Close() error {
	c.l.mu.Lock()
	delete(c.l.conns[c.addr], c)
	if len(c.l.conns[c.addr]) == 0 {
		delete(c.l.conns, c.addr)
	}
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// reroute makes the next requests to an address dial anew. l.mu is held.
func (l *lenience) reroute(addr string) {
	for c := range l.conns[addr] {
		c.doomed.Store(true)
	}
}

// judge decides on a target whose exposition was inspected.
func (l *lenience) judge(t *target, e *Exposition) {
	lost := e.BadLines > 0
	var first Finding
	for _, f := range e.Findings {
		if f.Code == "bad_line" || f.Code == "no_eof" {
			lost = true
			if first.Code == "" {
				first = f
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !lost || t.bad.lenient {
		return
	}
	if t.reason != ReasonBadLine {
		return // the last scrape was fine: it happened in between
	}
	if why := l.cannot(t); why != "" {
		l.m.fail(t, failure{
			reason:  ReasonBadLine,
			message: fmt.Sprintf("the whole answer is lost to %d unreadable lines; %s", max(e.BadLines, 1), first.Message),
			hint:    "Rollscope reads around such lines only where it can stand between: " + why,
		})
		return
	}
	t.bad = badState{lenient: true}
	l.m.metrics.lenient.Inc()
	addr, uri := l.key(t)
	l.mu.Lock()
	if l.routed[addr] == nil {
		l.routed[addr] = map[string]*target{}
	}
	l.routed[addr][uri] = t
	l.reroute(addr)
	l.mu.Unlock()
	t.message = first.Message + "; the other lines are read from the next scrape on"
	l.m.log.Warn("a target's answer has unreadable lines; they are left out from now on", "target", t,
		"lines", e.BadLines, "detail", first.Message)
}

// cannot says why a target cannot be read around its bad lines; "" when it can. t.mu is held.
func (l *lenience) cannot(t *target) string {
	u := t.prom.URL()
	switch {
	case u.Scheme != "http":
		return "not on https, where the connection is encrypted between Prometheus's client and the target"
	case t.prom.GetValue(promscrape.UnixSocketLabel) != "":
		return "not on a unix socket"
	}
	l.m.prober.mu.Lock()
	sc := l.m.prober.jobs[t.pool]
	l.m.prober.mu.Unlock()
	if sc != nil && (sc.HTTPClientConfig.ProxyURL.URL != nil || sc.HTTPClientConfig.ProxyFromEnvironment) {
		return "not behind a proxy"
	}
	return ""
}

// key is under which address and request a target is known here.
func (l *lenience) key(t *target) (addr, uri string) {
	u := t.prom.URL()
	return dialAddress(u.Scheme, u.Host), u.RequestURI()
}

// forget takes a target out: it is read directly again, or gone.
func (l *lenience) forget(t *target) {
	t.mu.Lock()
	was := t.bad.lenient
	t.bad = badState{}
	if was {
		t.dropFindings("bad_line", "no_eof")
	}
	t.mu.Unlock()
	if !was {
		return
	}
	l.m.metrics.lenient.Dec()
	addr, uri := l.key(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.routed[addr][uri] == t {
		delete(l.routed[addr], uri)
		if len(l.routed[addr]) == 0 {
			delete(l.routed, addr)
			l.reroute(addr)
		}
	}
}

// serve answers routed connections until ctx ends.
func (l *lenience) serve(ctx context.Context) {
	srv := &http.Server{
		Handler: http.HandlerFunc(l.handle),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, addrKey{}, addrOf(c))
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		// The scrape's own timeout ends a request; nothing outside this process can connect.
		ReadHeaderTimeout: time.Minute,
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l.listener) }()
	<-ctx.Done()
	_ = srv.Close()
	<-done
	l.upstream.CloseIdleConnections()
}

type addrKey struct{}

func addrOf(c net.Conn) string {
	if p, ok := c.(*pipeConn); ok {
		return p.addr
	}
	return ""
}

// handle passes one scrape on.
func (l *lenience) handle(w http.ResponseWriter, r *http.Request) {
	addr, _ := r.Context().Value(addrKey{}).(string)
	l.mu.Lock()
	t := l.routed[addr][r.URL.RequestURI()]
	l.mu.Unlock()
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host = "http", addr
	out.Host, out.RequestURI = r.Host, ""
	out.Body = http.NoBody
	// Left out, so that the transport asks for gzip itself and undoes it.
	out.Header.Del("Accept-Encoding")
	resp, err := l.upstream.RoundTrip(out)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
		resp.Body.Close()
	}
	if t != nil {
		t.mu.Lock()
		t.bad.err = err
		t.mu.Unlock()
	}
	if err != nil {
		// Closing the connection makes the scrape fail; the reason is kept above.
		panic(http.ErrAbortHandler)
	}
	if t != nil && resp.StatusCode == http.StatusOK {
		body = l.clean(t, body, resp.Header.Get("Content-Type"))
	}
	for _, h := range []string{"Content-Type", "Location"} {
		if v := resp.Header.Get(h); v != "" {
			w.Header().Set(h, v)
		}
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(body) // the scrape is gone if this fails
}

// clean takes the unreadable lines out of an answer and counts them.
func (l *lenience) clean(t *target, body []byte, contentType string) []byte {
	f := formatOf(body, contentType)
	if f == FormatProtobuf {
		return body
	}
	out, bad := withoutBad(body, f == FormatOpenMetrics)
	t.mu.Lock()
	if len(bad) == 0 {
		t.bad.clean++
		back := t.bad.clean >= cleanEnough
		t.mu.Unlock()
		if back {
			l.m.log.Info("a target's answers are clean again; it is read directly", "target", t)
			l.forget(t)
		}
		return body
	}
	defer t.mu.Unlock()
	t.bad.clean = 0
	l.m.drop(t, dropBadLine, int64(len(bad)))
	t.dropFindings("bad_line")
	b := bad[0]
	t.addFinding(Finding{Code: "bad_line", Level: LevelError, Line: b.line,
		Message: fmt.Sprintf("%d unreadable lines are left out; line %d (%v): %s", len(bad), b.line, b.err, excerpt(b.text)),
		Hint:    "report it to whoever writes this exposition: any other Prometheus loses the whole answer"})
	return out
}

// withoutBad gives a body without the lines that Prometheus's parser refuses, and those lines. When
// it cannot be made readable, or nothing would be left, the body comes back as it is.
func withoutBad(body []byte, openMetrics bool) ([]byte, []badLine) {
	var all []badLine
	cur := body
	for range 3 {
		var bad []badLine
		samples := 0
		res := walk(cur, openMetrics, func(e entry) {
			if e.met != nil {
				samples++
			}
		}, func(b badLine) { bad = append(bad, b) })
		if len(bad) == 0 && !res.noEOF {
			if samples == 0 {
				return body, nil
			}
			return cur, all
		}
		if samples == 0 || res.gaveUp {
			return body, nil
		}
		out := make([]byte, 0, len(cur)+6)
		at := 0
		for _, b := range bad {
			out = append(out, cur[at:b.from]...)
			at = b.to
		}
		out = append(out, cur[at:]...)
		all = append(all, bad...)
		if res.noEOF {
			// Cut off: what stands behind the last newline may be half a number.
			last := len(bad) - 1
			if i := bytes.LastIndexByte(out, '\n'); last >= 0 && bad[last].to == len(cur) && cur[len(cur)-1] != '\n' {
				// It is left out already.
			} else if i+1 < len(out) {
				all = append(all, badLine{line: bytes.Count(cur, []byte{'\n'}) + 1, text: bytes.Clone(out[i+1:]), err: errors.New("the answer was cut off here")})
				out = out[:i+1]
			} else {
				all = append(all, badLine{line: bytes.Count(cur, []byte{'\n'}) + 1, err: errors.New(`the answer was cut off: "# EOF" is missing`)})
			}
			out = append(out, "# EOF\n"...)
		}
		cur = out
	}
	return body, nil
}

// pipeListener hands connections made in this process to the server.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

type pipeConn struct {
	net.Conn
	addr string
}

func (p *pipeListener) connect(ctx context.Context, addr string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- &pipeConn{Conn: server, addr: addr}:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Accept waits for a connection.
func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (p *pipeListener) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr is of no use and asked for by net/http.
func (p *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "rollscope" }
