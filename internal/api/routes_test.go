package api

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/grafana/regexp"
)

// sample turns a route's path into one that can be asked for.
func sample(r Route) string {
	path := strings.NewReplacer("{id}", "ttft", "{uid}", "rollscope-golden", "{name}", "job",
		"{run}", "math-7b", "{kind}", "train", "{step}", "7", "{row}", "0").Replace(r.Path)
	if strings.Contains(r.Path, "/timelines/{id}") {
		path = strings.Replace(path, "/ttft", "/"+url.PathEscape(fakeTimeline), 1)
	}
	if r.Path == ours+"/boards/{id}" {
		path = ours + "/boards/golden"
	}
	if r.Path == ours+"/engines/{id}" {
		path = ours + "/engines/" + url.PathEscape(EngineID("sglang", fakeFleet[0]))
	}
	return path
}

// askRoute asks for a route with a context that is over, so that a stream ends with its first tick.
func askRoute(a *API, r Route, header ...string) (int, string, http.Header) {
	w := ask(withCanceled(a, strings.HasSuffix(r.Path, "/live")), r.Method, sample(r), "", header...)
	return w.Code, w.Body.String(), w.Header()
}

func withCanceled(h http.Handler, cancel bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cancel {
			ctx, stop := context.WithCancel(r.Context())
			stop()
			r = r.WithContext(ctx)
		}
		h.ServeHTTP(w, r)
	})
}

// refused tells whether a body names the code, in whichever format the route has.
func refused(body, code string) bool { return strings.Contains(body, `"`+code+`"`) }

// The table is the whole surface: each line refuses who may not.
func TestEveryRoute(t *testing.T) {
	everything := func(o *Options) {
		o.Prometheus.RemoteWriteReceiver, o.Prometheus.OTLPReceiver, o.Prometheus.AdminAPI = true, true, true
	}
	home := newAPI(t, everything)
	open := newAPI(t, everything, func(o *Options) {
		o.Access = Access{}
		o.Hosts.Listen = []net.Addr{&net.TCPAddr{IP: net.IPv4zero, Port: 9090}}
	})
	tokens, err := ParseTokens([]byte("read read-token-0123456789\nwrite write-token-0123456789\nadmin admin-token-0123456789\n"), "tokens")
	if err != nil {
		t.Fatal(err)
	}
	guarded := newAPI(t, everything, func(o *Options) { o.Access = Access{Loopback: true, Tokens: tokens} })
	cors := newAPI(t, everything, func(o *Options) { o.Hosts.CORS = regexp.MustCompile(`^(?:https://grafana\.example\.com)$`) })

	if len(home.Routes()) < 50 {
		t.Fatalf("only %d routes", len(home.Routes()))
	}
	for _, r := range home.Routes() {
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			if r.Scope < ScopeRead || r.Scope > ScopeAdmin {
				t.Fatalf("scope %d", r.Scope)
			}
			expect := func(a *API, status int, code string, header ...string) {
				t.Helper()
				got, body, _ := askRoute(a, r, header...)
				if got != status || !refused(body, code) {
					t.Errorf("%v: status %d, want %d with %s; body %.200s", header, got, status, code, body)
				}
			}
			passes := func(a *API, header ...string) {
				t.Helper()
				got, body, h := askRoute(a, r, header...)
				if got == 401 || got == 403 {
					t.Errorf("%v: refused with %d: %.200s", header, got, body)
				}
				if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Content-Security-Policy") == "" {
					t.Errorf("%v: security headers missing", header)
				}
			}
			// Host: also on loopback, against DNS rebinding.
			expect(home, 403, "foreign_host", "Host: evil.example")
			expect(home, 403, "foreign_host", "Host: evil.example:9090")
			expect(home, 403, "foreign_host", "Host: 10.1.2.3:9090")
			expect(home, 403, "foreign_host", "Host: localhost.evil.example")
			passes(home, "Host: 127.0.0.1:9090")
			passes(home, "Host: [::1]:9090")
			passes(home, "Host: localhost:3000") // through an ssh tunnel
			// Origin.
			expect(home, 403, "foreign_origin", "Origin: https://evil.example")
			expect(home, 403, "foreign_origin", "Origin: null")
			expect(home, 403, "foreign_origin", "Origin: http://localhost:8888")
			passes(home, "Origin: http://localhost:9090")
			// Cross-origin reads can be allowed, writes cannot.
			if r.Scope == ScopeRead {
				passes(cors, "Origin: https://grafana.example.com")
			} else {
				expect(cors, 403, "foreign_origin", "Origin: https://grafana.example.com")
				expect(home, 403, "foreign_origin", "Sec-Fetch-Site: cross-site")
			}
			expect(cors, 403, "foreign_origin", "Origin: https://grafana.example.com.evil.example")
			// Scope: on the network without authentication, only reading.
			if r.Scope == ScopeRead {
				passes(open, "Host: 10.1.2.3:9090")
			} else {
				expect(open, 403, "forbidden", "Host: 10.1.2.3:9090")
			}
			// Tokens.
			expect(guarded, 401, "not_authenticated")
			expect(guarded, 401, "unknown_token", "Authorization: Bearer guessed-token-0123456")
			for _, name := range []string{"read", "write", "admin"} {
				scope := map[string]Scope{"read": ScopeRead, "write": ScopeWrite, "admin": ScopeAdmin}[name]
				header := "Authorization: Bearer " + name + "-token-0123456789"
				if scope >= r.Scope {
					passes(guarded, header)
				} else {
					expect(guarded, 403, "forbidden", header)
				}
			}
			// Body.
			w := ask(home, r.Method, sample(r), strings.Repeat("x", int(r.Body)+1))
			if w.Code != http.StatusRequestEntityTooLarge {
				t.Errorf("a body of %d bytes: status %d", r.Body+1, w.Code)
			}
			// Method.
			if w := ask(home, "DELETE", sample(r), ""); w.Code != http.StatusMethodNotAllowed || !strings.Contains(w.Header().Get("Allow"), r.Method) {
				t.Errorf("DELETE: status %d, Allow %q", w.Code, w.Header().Get("Allow"))
			}
		})
	}
}

func TestWhatIsNotInTheTable(t *testing.T) {
	a := newAPI(t)
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/api/rollscope/v1/nothing", 404, `"code":"not_found"`},
		{"POST", "/api/rollscope/v1/nothing", 404, `"code":"not_found"`},
		{"GET", "/api/v1/nothing", 404, `"errorType":"not_found"`},
		{"GET", "/api/v1/search/metric_names", 404, `"errorType":"not_found"`},
		{"GET", "/-/quit", 404, `"code":"not_found"`},
		{"GET", "/-/reload", 405, `"code":"method_not_allowed"`},
		{"GET", "/debug/pprof/", 404, ""},
		{"GET", "//metrics", 404, `"code":"not_found"`},
		{"GET", "/engines", 200, "<!doctype html>"},
		{"OPTIONS", "/api/v1/query", 204, ""},
		{"HEAD", "/-/healthy", 200, ""},
		{"HEAD", "/-/ready", 200, ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			w := ask(a, c.method, c.path, "")
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) {
				t.Errorf("status %d, want %d; body %s", w.Code, c.status, w.Body)
			}
		})
	}
}

func TestCORS(t *testing.T) {
	a := newAPI(t, func(o *Options) { o.Hosts.CORS = regexp.MustCompile(`^(?:https://grafana\.example\.com)$`) })
	w := ask(a, "OPTIONS", "/api/v1/query", "", "Origin: https://grafana.example.com", "Access-Control-Request-Method: POST")
	if w.Code != 204 || w.Header().Get("Access-Control-Allow-Origin") != "https://grafana.example.com" ||
		!strings.Contains(w.Header().Get("Access-Control-Allow-Methods"), "POST") {
		t.Errorf("preflight: %d %v", w.Code, w.Header())
	}
	if w := ask(a, "OPTIONS", "/-/reload", "", "Origin: https://grafana.example.com"); w.Code != 403 {
		t.Errorf("preflight of a write: %d", w.Code)
	}
	w = ask(a, "GET", "/api/v1/query?query=1", "", "Origin: https://grafana.example.com")
	if w.Code != 200 || w.Header().Get("Access-Control-Allow-Origin") != "https://grafana.example.com" {
		t.Errorf("read: %d %v", w.Code, w.Header())
	}
	if got := ask(a, "GET", "/api/v1/query?query=1", "").Header().Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("allowed origin %q without an origin", got)
	}
}

func TestExternalURL(t *testing.T) {
	u, err := url.Parse("https://rollscope.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	a := newAPI(t, func(o *Options) { o.Hosts.External = u; o.Hosts.Allowed = []string{"*.svc", "Node-7"} })
	for host, want := range map[string]int{"rollscope.example.com": 200, "rollscope.monitoring.svc:9090": 200, "node-7": 200, "svc": 403, "other.example.com": 403} {
		if w := ask(a, "GET", "/-/healthy", "", "Host: "+host); w.Code != want {
			t.Errorf("Host %s: %d, want %d", host, w.Code, want)
		}
	}
	// A proxy that passes its own name as Host: the page's origin is the external URL's.
	if w := ask(a, "POST", "/-/reload", "", "Host: localhost:9090", "Origin: https://rollscope.example.com"); w.Code != 200 {
		t.Errorf("from the external URL: %d %s", w.Code, w.Body)
	}
}

func TestPanicIsAnError(t *testing.T) {
	a := newAPI(t, func(o *Options) {
		o.Catalog = nil // a nil interface: every use panics
	})
	w := ask(a, "GET", ours+"/signals", "")
	if w.Code != 500 || !strings.Contains(w.Body.String(), `"code":"internal"`) || strings.Contains(w.Body.String(), "nil pointer") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestReadiness(t *testing.T) {
	state := Starting
	a := newAPI(t, func(o *Options) { o.Ready = func() Readiness { return state } })
	for _, path := range []string{"/-/ready", ours + "/overview", "/api/v1/query?query=1", "/federate?match[]=up", ours + "/live"} {
		state = Starting
		if w := ask(a, "GET", path, ""); w.Code != 503 || !strings.Contains(w.Body.String(), "not_ready") {
			t.Errorf("%s starting: %d %s", path, w.Code, w.Body)
		}
	}
	if w := ask(a, "GET", "/-/healthy", ""); w.Code != 200 {
		t.Errorf("healthy: %d", w.Code)
	}
	state = Ready
	if w := ask(a, "GET", "/-/ready", ""); w.Code != 200 {
		t.Errorf("ready: %d", w.Code)
	}
}
