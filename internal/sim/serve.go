package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Options say how a fleet is served.
type Options struct {
	// Listen is where the first member listens; the others take the following ports, and a busy port is
	// passed over. With port 0 every member gets a free one. Default "127.0.0.1:0".
	Listen string
	Speed  float64          // simulated seconds per second; default 1
	Every  time.Duration    // real time between two steps of the model; default 200 ms
	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // default: discards
}

// Running is a fleet that is being served. Its methods may be called from any goroutine.
type Running struct {
	opts    Options
	log     *slog.Logger
	fleet   *Fleet
	mu      sync.Mutex // guards fleet and doors
	doors   []*door
	done    chan struct{}
	serving sync.WaitGroup // the doors' accept loops
	anchor  time.Time      // real time at which the fleet was at simulated time origin
	origin  time.Time
}

// door is the listener of one member. It is closed while the member is down.
type door struct {
	member string
	addr   string
	server *http.Server
	open   bool
}

// Serve serves every member of the fleet on its own loopback listener and lets simulated time pass,
// until ctx ends. The fleet belongs to the result from then on: use [Running.With]. A model that
// cannot keep up with the wanted speed lags; it never piles up work.
func Serve(ctx context.Context, f *Fleet, o Options) (*Running, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Speed <= 0 {
		o.Speed = 1
	}
	if o.Every <= 0 {
		o.Every = 200 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Running{opts: o, log: o.Logger, fleet: f, done: make(chan struct{})}
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("sim: listen address %q: %w", o.Listen, err)
	}
	next := 0
	if _, err := fmt.Sscan(port, &next); err != nil {
		return nil, fmt.Errorf("sim: listen address %q: the port must be a number", o.Listen)
	}
	var listeners []net.Listener
	closeAll := func() {
		for _, l := range listeners {
			l.Close()
		}
	}
	for _, m := range f.members {
		l, err := listen(host, &next)
		if err != nil {
			closeAll()
			return nil, fmt.Errorf("sim: listener of %s: %w", m.name, err)
		}
		listeners = append(listeners, l)
		d := &door{member: m.name, addr: l.Addr().String()}
		r.doors = append(r.doors, d)
		if err := f.Rebind(m.name, d.addr); err != nil {
			closeAll()
			return nil, err
		}
	}
	r.anchor, r.origin = o.Now(), f.Now()
	for i, d := range r.doors {
		r.admit(d, listeners[i])
	}
	go r.run(ctx)
	return r, nil
}

// listen takes the next free port from *next on; a busy one is passed over, up to a hundred.
func listen(host string, next *int) (net.Listener, error) {
	if *next == 0 {
		return net.Listen("tcp", net.JoinHostPort(host, "0"))
	}
	var last error
	for range 100 {
		l, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(*next)))
		*next++
		if err == nil {
			return l, nil
		}
		last = err
	}
	return nil, last
}

// admit serves d on l.
func (r *Running) admit(d *door, l net.Listener) {
	d.server = &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.answer(d.member, w, q) }),
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      30 * time.Second,
		MaxHeaderBytes:    1 << 16,
	}
	d.open = true
	server := d.server
	r.serving.Go(func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			r.log.Warn("listener ended", "member", d.member, "err", err)
		}
	})
}

func (r *Running) answer(member string, w http.ResponseWriter, q *http.Request) {
	if q.Method != http.MethodGet && q.Method != http.MethodHead {
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	r.mu.Lock()
	body, contentType, status := r.fleet.Answer(member, q.URL.RequestURI(), q.Header.Get("Accept"))
	body = append([]byte(nil), body...)
	r.mu.Unlock()
	if status == refusedState { // it went down while the request was under way
		if h, ok := w.(http.Hijacker); ok {
			if conn, _, err := h.Hijack(); err == nil {
				conn.Close()
			}
		}
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	w.Write(body) // a client that has gone needs no answer
}

// run lets simulated time pass, and opens and closes doors, until ctx ends.
func (r *Running) run(ctx context.Context) {
	defer close(r.done)
	tick := time.NewTicker(r.opts.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.mu.Lock()
			for _, d := range r.doors {
				r.shut(d)
			}
			r.mu.Unlock()
			r.serving.Wait()
			return
		case <-tick.C:
			r.step()
		}
	}
}

// step advances the fleet to where it should be now, but by no more than ten steps' worth.
func (r *Running) step() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.opts.Now()
	want := r.origin.Add(time.Duration(float64(now.Sub(r.anchor)) * r.opts.Speed))
	limit := r.fleet.Now().Add(time.Duration(10 * float64(r.opts.Every) * r.opts.Speed))
	if want.After(limit) {
		want = limit
		r.anchor, r.origin = now, limit
	}
	r.fleet.Advance(want)
	for _, d := range r.doors {
		down := r.fleet.isDown(d.member)
		if down && d.open {
			r.shut(d)
		}
		if !down && !d.open {
			l, err := net.Listen("tcp", d.addr)
			if err != nil {
				r.log.Warn("cannot listen again yet", "member", d.member, "addr", d.addr, "err", err)
				continue
			}
			r.admit(d, l)
		}
	}
}

func (r *Running) shut(d *door) {
	if d.open {
		d.server.Close()
		d.open = false
	}
}

func (f *Fleet) isDown(member string) bool { return f.byName[member].down() }

// With calls use with the fleet while time stands still, to order faults or look at it.
func (r *Running) With(use func(*Fleet)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	use(r.fleet)
}

// Targets lists what is served, with real addresses.
func (r *Running) Targets() []Target {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fleet.Targets()
}

// Wait returns when serving has ended, all listeners closed.
func (r *Running) Wait() { <-r.done }

// PrometheusConfig is a prometheus.yml that scrapes all targets.
func PrometheusConfig(targets []Target, interval time.Duration) []byte {
	type job struct{ name, path string }
	var order []job
	addrs := map[job][]string{}
	for _, t := range targets {
		j := job{strings.ReplaceAll(string(t.Kind), "_", "-"), t.Path}
		if t.Path == engineMetrics {
			j.name = "router-engines"
		}
		if addrs[j] == nil {
			order = append(order, j)
		}
		addrs[j] = append(addrs[j], t.Addr)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "global:\n  scrape_interval: %s\n  evaluation_interval: %s\n\nscrape_configs:\n", interval, interval)
	for _, j := range order {
		fmt.Fprintf(&b, "  - job_name: %s\n", j.name)
		if j.path != "/metrics" {
			fmt.Fprintf(&b, "    metrics_path: %s\n", j.path)
		}
		b.WriteString("    static_configs:\n      - targets:\n")
		for _, a := range addrs[j] {
			fmt.Fprintf(&b, "          - %q\n", a)
		}
	}
	return []byte(b.String())
}
