package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// door is one table of routes, as a listener serves it.
type door struct {
	table []Route
	mux   *http.ServeMux
	face  func(path string) face
}

func newDoor(table []Route, face func(string) face) *door {
	return &door{table: table, mux: dispatcher(table), face: face}
}

// ServeHTTP serves the table of [API.Routes].
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.serve(a.main, w, r) }

// serve is the border: every request passes the same checks, in this order, before a handler sees it.
func (a *API) serve(d *door, w http.ResponseWriter, r *http.Request) {
	start := time.Now() // how long it took; no data is stamped with it
	rec := &recorder{ResponseWriter: w}
	pattern := "other"
	f := d.face(r.URL.Path)
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler { // the way to say: cut the connection, it is no mistake
				panic(p)
			}
			a.log.Error("a handler panicked: please report it", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			if rec.status == 0 {
				rec.Header().Del("Content-Encoding")
				rec.Header().Del("Content-Length")
				refuse(rec, f, &Error{Code: "internal", Message: "the server made a mistake; its log has the details", Where: r.URL.Path})
			}
		}
		took := time.Since(start)
		a.metrics.observe(pattern, rec.code(), took)
		a.log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("method", r.Method), slog.String("path", r.URL.Path),
			slog.Int("status", rec.code()), slog.Int64("bytes", rec.bytes), slog.Duration("took", took), slog.String("from", r.RemoteAddr))
	}()

	h := rec.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'") // the pages set their own
	if r.TLS != nil {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}

	if !a.Hosts.allowed(r.Host) {
		refuse(rec, f, &Error{Code: "foreign_host", Message: fmt.Sprintf("this server does not answer for the name %q", hostname(r.Host)), Where: "Host",
			Hint: "start it with --web.allowed-hosts=" + hostname(r.Host) + " if that name is yours"})
		return
	}
	handler, path := d.mux.Handler(r)
	methods, ok := handler.(byMethod)
	if !ok || path == "/" && reserved(r.URL.Path) {
		refuse(rec, f, notFound(r.URL.Path))
		return
	}
	pattern = path
	route, known := methods.find(r.Method)
	if err := a.checkOrigin(rec, r, methods, route); err != nil {
		refuse(rec, f, err)
		return
	}
	if r.Method == http.MethodOptions {
		h.Set("Allow", methods.allow())
		rec.WriteHeader(http.StatusNoContent)
		return
	}
	if !known {
		h.Set("Allow", methods.allow())
		refuse(rec, f, &Error{Code: "method_not_allowed", Message: r.Method + " is not for " + r.URL.Path, Where: r.Method, Hint: "use " + methods.allow()})
		return
	}
	if err := a.checkScope(rec, r, route); err != nil {
		refuse(rec, f, err)
		return
	}
	if r.ContentLength > route.Body {
		h.Set("Connection", "close") // the rest of the body is not read
		refuse(rec, f, &Error{Code: "too_large", Message: fmt.Sprintf("the request's body has %d bytes", r.ContentLength), Where: r.URL.Path,
			Hint: fmt.Sprintf("at most %d", route.Body)})
		return
	}
	if r.Body != nil {
		r.Body = http.MaxBytesReader(rec, r.Body, route.Body)
	}
	d.mux.ServeHTTP(rec, r) // sets the path's values, and comes back to byMethod
}

// reserved tells paths that are never a page's.
func reserved(path string) bool {
	for _, prefix := range []string{"/api/", "/-/", "/select/", "/insert/", "/loki/", "/v1/"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

func notFound(path string) *Error {
	return &Error{Code: "not_found", Message: "there is nothing at " + path, Where: path}
}

// checkOrigin refuses what a page of another origin may not do, and tells the browser what it may.
func (a *API) checkOrigin(w http.ResponseWriter, r *http.Request, methods byMethod, route Route) *Error {
	w.Header().Add("Vary", "Origin")
	writes := route.Scope > ScopeRead
	if !a.Hosts.foreign(r) {
		if writes && crossSite(r) {
			return &Error{Code: "foreign_origin", Message: "a page of another site may not change anything here", Where: "Sec-Fetch-Site: " + r.Header.Get("Sec-Fetch-Site")}
		}
		return nil
	}
	origin := r.Header.Get("Origin")
	if writes {
		return &Error{Code: "foreign_origin", Message: "a page of another origin may not change anything here", Where: "Origin: " + origin,
			Hint: "if this is the address of a proxy in front of us, start with --web.external-url=" + origin}
	}
	if !a.Hosts.mayRead(r) {
		return &Error{Code: "foreign_origin", Message: "a page of another origin may not read from here", Where: "Origin: " + origin,
			Hint: "start with --web.cors.origin='...' matching it, or --web.external-url=" + origin + " if it is the address of a proxy in front of us"}
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "Date")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	if r.Method == http.MethodOptions {
		h.Set("Access-Control-Allow-Methods", methods.allow())
		h.Set("Access-Control-Allow-Headers", "Accept, Authorization, Content-Type")
	}
	return nil
}

// checkScope refuses what the request may not do.
func (a *API) checkScope(w http.ResponseWriter, r *http.Request, route Route) *Error {
	granted, err := a.Access.scopeOf(r)
	if err == nil && granted >= route.Scope {
		return nil
	}
	if len(a.Access.Tokens) > 0 {
		w.Header().Set("WWW-Authenticate", `Bearer realm="rollscope"`)
		if err == nil && r.Header.Get("Authorization") == "" {
			err = &Error{Code: "not_authenticated", Message: fmt.Sprintf("this needs a token for %s", route.Scope), Where: r.Method + " " + r.URL.Path,
				Hint: "send Authorization: Bearer TOKEN"}
		}
	}
	if err != nil {
		return err
	}
	e := &Error{Code: "forbidden", Message: fmt.Sprintf("this needs the scope %s, and the request has %s", route.Scope, granted), Where: r.Method + " " + r.URL.Path}
	if len(a.Access.Tokens) == 0 {
		e.Hint = "without authentication a server that listens beyond 127.0.0.1 only lets read: give it users with --web.config.file or tokens with --web.tokens-file"
	}
	return e
}

// failure turns what a handler returned into the error object.
func failure(r *http.Request, err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.Canceled) || r.Context().Err() != nil:
		return &Error{Code: "canceled", Message: "the request was canceled"}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Code: "timeout", Message: "the answer took too long: " + err.Error(), Where: r.URL.Path, Hint: "ask for a shorter range or a longer step"}
	}
	return &Error{Code: "internal", Message: err.Error(), Where: r.URL.Path}
}

// byMethod are the routes of one path.
type byMethod map[string]Route

// find returns the route for a method; for OPTIONS and for a method that is not there, the one that
// needs least, so that the checks before the answer have a scope to look at.
func (m byMethod) find(method string) (Route, bool) {
	if r, ok := m[method]; ok {
		return r, true
	}
	if r, ok := m[http.MethodGet]; ok && method == http.MethodHead {
		return r, true
	}
	var least Route
	for _, r := range m {
		if least.handler == nil || r.Scope < least.Scope {
			least = r
		}
	}
	return least, false
}

func (m byMethod) allow() string {
	methods := []string{http.MethodOptions}
	for method := range m {
		methods = append(methods, method)
		if method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	slices.Sort(methods)
	return strings.Join(methods, ", ")
}

func (m byMethod) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route, _ := m.find(r.Method)
	route.handler.ServeHTTP(w, r)
}

// dispatcher finds the routes of a path. Methods are told apart in byMethod and not by the mux, since
// its own answer to a wrong method is not in anybody's error format.
func dispatcher(table []Route) *http.ServeMux {
	paths := map[string]byMethod{}
	mux := http.NewServeMux()
	for _, r := range table {
		m, ok := paths[r.Path]
		if !ok {
			m = byMethod{}
			paths[r.Path] = m
			mux.Handle(r.Path, m)
		}
		m[r.Method] = r
	}
	return mux
}

// recorder keeps what was answered, for the log and the metrics.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// Flush sends what is buffered; a stream needs it.
func (r *recorder) Flush() { _ = http.NewResponseController(r.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) code() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

// httpMetrics count requests by route.
type httpMetrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newHTTPMetrics(reg prometheus.Registerer) (*httpMetrics, error) {
	m := &httpMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollscope_http_requests_total", Help: "HTTP requests by route and status code.",
		}, []string{"handler", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rollscope_http_request_duration_seconds", Help: "Time to answer an HTTP request, by route.",
			Buckets: []float64{.005, .025, .1, .3, 1, 3, 10, 60},
		}, []string{"handler"}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of the HTTP server: %w", err)
		}
	}
	return m, nil
}

func (m *httpMetrics) observe(pattern string, code int, took time.Duration) {
	m.requests.WithLabelValues(pattern, strconv.Itoa(code)).Inc()
	m.duration.WithLabelValues(pattern).Observe(took.Seconds())
}
