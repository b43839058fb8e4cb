package scrape

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Case M08: each node's answer is told apart, the 404's body is quoted, and node-a is collected.
func TestAnswersOfNodes(t *testing.T) {
	var answers []struct {
		Target      string `yaml:"target"`
		Status      int    `yaml:"status"`
		ContentType string `yaml:"content_type"`
		Body        string `yaml:"body"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "testdata/cases/M08/responses.yaml")), &answers); err != nil {
		t.Fatal(err)
	}
	jobs := ""
	for _, a := range answers {
		addr := serve(t, &page{status: a.Status, ctype: a.ContentType, body: a.Body})
		jobs += jobFor(strings.Split(a.Target, ":")[0], addr)
	}
	r := start(t, yamlConfig(t, jobs))
	get := func(job string) TargetInfo {
		for _, ti := range r.m.Targets() {
			if ti.Job == job {
				return ti
			}
		}
		return TargetInfo{}
	}
	eventually(t, "node-a is collected", func() bool {
		ti := get("node-a")
		return ti.Up != nil && *ti.Up && len(r.points(t, name("sglang:num_running_reqs"))) == 1
	})
	eventually(t, "node-b is down with http_404 and its body", func() bool {
		ti := get("node-b")
		return ti.Up != nil && !*ti.Up && ti.Reason == "http_404" && strings.Contains(ti.Error, `{"detail":"Not Found"}`)
	})
	if h := get("node-b").Hint; !strings.Contains(h, "rank above 0") || !strings.Contains(h, "--enable-metrics") {
		t.Errorf("hint %q", h)
	}
	eventually(t, "node-c is down and no exposition", func() bool {
		ti := get("node-c")
		return ti.Up != nil && !*ti.Up && ti.Reason == ReasonNotAnExposition && strings.Contains(ti.Error, "<html>login</html>")
	})
	eventually(t, "each is logged", func() bool {
		return r.log.count("reason=http_404") == 1 && r.log.count("reason=not_an_exposition") == 1
	})
	for l, vs := range r.points(t, name("up")) {
		if up := slices.Contains(vs, 1); up != strings.Contains(l, "node-a") {
			t.Errorf("up of %s: %v", l, vs)
		}
	}
}

func TestReasons(t *testing.T) {
	closed := refusing(t)
	quiet := func(c net.Conn) {} // answers nothing
	talk := func(s string) func(net.Conn) { return func(c net.Conn) { fmt.Fprint(c, s); c.Close() } }
	secure := httptest.NewTLSServer(&page{body: "a 1\n"})
	t.Cleanup(secure.Close)
	https := strings.TrimPrefix(secure.URL, "https://")
	for _, tt := range []struct {
		name, addr, more string
		want             Reason
		msg, hint        string
	}{
		{"refused", closed, "", ReasonConnectionRefused, "nothing listens", "port"},
		{"timeout", rawServer(t, quiet), "", ReasonTimeout, "no answer", "scrape_timeout"},
		{"reset", rawServer(t, func(c net.Conn) { c.Close() }), "", ReasonConnectionReset, "closed", ""},
		{"cut", rawServer(t, talk("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\na 1\n")), "", ReasonConnectionReset, "closed", ""},
		{"not http", rawServer(t, talk("\x00\x00\x18\x04\x00\x00\x00\x00\x00")), "", ReasonNotHTTP, "does not speak HTTP", "gRPC"},
		{"dns", "no-such-host.invalid:80", "", ReasonDNS, "no-such-host.invalid", ""},
		{"tls", https, "  scheme: https\n", ReasonTLS, "certificate", "ca_file"},
		{"https asked of http", serve(t, &page{body: "a 1\n"}), "  scheme: https\n", ReasonTLS, "plain HTTP", "scheme: http"},
		{"401", serve(t, &page{status: 401, body: `{"error":"Unauthorized"}`}), "", "http_401", "Unauthorized", "authorization"},
		{"403", serve(t, &page{status: 403}), "", "http_403", "HTTP 403", "authorization"},
		{"503", serve(t, &page{status: 503, body: "no available workers"}), "", "http_503", "no available workers", "not ready"},
		{"label sets", serve(t, &page{status: 500, path: "/engine_metrics", body: "Failed to aggregate metrics: Label names should agree \na=[\"x\"]"}), "  metrics_path: /engine_metrics\n", "http_500", "Label names should agree a=", "engines directly"},
		{"all failed", serve(t, &page{status: 500, path: "/engine_metrics", body: "All backend requests failed"}), "  metrics_path: /engine_metrics\n", "http_500", "All backend", "--enable-metrics"},
		{"no workers", serve(t, &page{status: 500, path: "/engine_metrics", body: "No available workers"}), "  metrics_path: /engine_metrics\n", "http_500", "No available", "registered"},
		{"404 of a router", serve(t, &page{}), "  metrics_path: /engine_metrics\n", "http_404", "HTTP 404", "0.2.3"},
		{"json", serve(t, &page{ctype: "application/json", body: `{"status":"ok"}`}), "", ReasonNotAnExposition, "JSON", "metrics_path"},
		{"json as text", serve(t, &page{body: `{"status":"ready"}`}), "", ReasonNotAnExposition, "JSON", ""},
		{"words", serve(t, &page{body: "OK\n"}), "", ReasonNotAnExposition, "OK", ""},
		{"body limit", serve(t, &page{body: strings.Repeat("a 1\n", 100)}), "  body_size_limit: 10B\n", ReasonBodySizeLimit, "body_size_limit", ""},
		{"label limit", serve(t, &page{body: "a{b=\"c\",d=\"e\"} 1\n"}), "  label_limit: 3\n", ReasonLabelLimit, "label_limit", ""},
		{"credentials file", serve(t, &page{body: "a 1\n"}), "  authorization: {credentials_file: /no/such/file}\n", ReasonBadConfig, "/no/such/file", ""},
		{"target limit", serve(t, &page{body: "a 1\n"}), "  target_limit: 1\n", ReasonTargetLimit, "target_limit", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			job := jobFor("j", tt.addr) + tt.more
			if tt.want == ReasonTargetLimit {
				job = strings.Replace(job, "targets: [", `targets: ["127.0.0.1:1", `, 1)
			}
			r := start(t, yamlConfig(t, job))
			var ti TargetInfo
			eventually(t, "the reason is known", func() bool {
				ti = r.first()
				return ti.Up != nil && ti.Reason == tt.want && strings.Contains(ti.Error, tt.msg) && strings.Contains(ti.Hint, tt.hint)
			})
			if *ti.Up {
				t.Error("it is up")
			}
		})
	}
}

// refusing is an address at which connections are refused until the test ends: its socket is bound and does not
// listen, so that nobody else gets it.
func refusing(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// rawServer accepts connections and lets f have them.
func rawServer(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var conns []net.Conn
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
			f(c)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
		for _, c := range conns {
			c.Close()
		}
	})
	return l.Addr().String()
}

// An empty answer is neither success nor failure, and becomes one when there is something to read.
func TestNoMetricsYet(t *testing.T) {
	p := &page{}
	r := start(t, yamlConfig(t, jobFor("a", serve(t, p))))
	eventually(t, "the state is known", func() bool { return r.first().Reason == ReasonNoMetricsYet })
	ti := r.only(t)
	if ti.Up != nil || !strings.Contains(ti.Error, "no metrics yet") || ti.Samples != 0 {
		t.Errorf("target %+v", ti)
	}
	p.set(func(p *page) { p.body = "# TYPE sglang:a gauge\nsglang:a 1\n" })
	eventually(t, "it is up", func() bool {
		ti := r.first()
		return ti.Up != nil && *ti.Up && ti.Reason == ReasonNone && ti.Identity.Backend == "sglang"
	})
	if n := r.log.count("no metrics yet"); n == 0 {
		t.Error("it was not said")
	}
	if n := r.log.count("level=WARN") - r.log.count("reason=timeout"); n != 0 {
		t.Errorf("%d warnings", n)
	}
}

// A proxy took the content type away: the answer is read, and it is said.
func TestNoContentType(t *testing.T) {
	p := &page{ctype: "-", body: "a 1\n"}
	q := &page{ctype: "application/octet-stream", body: "b 1\n"}
	r := start(t, yamlConfig(t, jobFor("a", serve(t, p))+jobFor("b", serve(t, q))))
	eventually(t, "both are stored", func() bool { return len(r.points(t, name("a"))) == 1 && len(r.points(t, name("b"))) == 1 })
	for _, ti := range r.m.Targets() {
		if len(ti.Findings) != 1 || ti.Findings[0].Code != "content_type" {
			t.Errorf("%s: %+v", ti.Job, ti.Findings)
		}
	}
}

// The reason changes with the answer, and recovery is logged.
func TestReasonsChange(t *testing.T) {
	p := &page{status: 500, body: "No available workers"}
	r := start(t, yamlConfig(t, jobFor("a", serve(t, p))))
	eventually(t, "500", func() bool { return r.first().Reason == "http_500" && r.log.count("No available workers") > 0 })
	p.set(func(p *page) { p.status, p.body = 404, "" })
	eventually(t, "404", func() bool { return r.first().Reason == "http_404" })
	p.set(func(p *page) { p.status, p.body = 0, "a 1\n" })
	eventually(t, "up", func() bool { ti := r.first(); return ti.Up != nil && *ti.Up && ti.Reason == ReasonNone })
	eventually(t, "recovery is logged", func() bool { return r.log.count("is read again") >= 1 })
}

const goodAndBad = "# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs 3\nsglang:oops this is no sample\nsglang:num_queue_reqs 4\n"

// One bad line does not lose the rest, and a target that is healthy again is read directly.
func TestBadLine(t *testing.T) {
	p := &page{body: goodAndBad}
	q := &page{path: "/other", body: "other 1\n"}
	mux := http.NewServeMux()
	mux.Handle("/metrics", p)
	mux.Handle("/other", q)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	addr := strings.TrimPrefix(srv.URL, "http://")
	r := start(t, yamlConfig(t, jobFor("a", addr)+jobFor("b", addr)+"  metrics_path: /other\n"))
	eventually(t, "the good lines are stored", func() bool {
		return len(r.points(t, name("sglang:num_running_reqs"))) == 1 && len(r.points(t, name("sglang:num_queue_reqs"))) == 1 && r.dropped(dropBadLine) >= 3
	})
	var ti TargetInfo
	eventually(t, "it is up", func() bool { ti = r.m.Targets()[0]; return ti.Up != nil && *ti.Up })
	if !ti.Lenient || len(ti.Findings) == 0 || ti.Findings[0].Code != "bad_line" || !strings.Contains(ti.Findings[0].Message, "line 3") {
		t.Errorf("target %+v", ti)
	}
	if n := r.log.count("unreadable lines; they are left out"); n != 1 {
		t.Errorf("warned %d times", n)
	}
	if !strings.Contains(r.log.String(), "sglang:oops this is no sample") {
		t.Error("the line is not named")
	}
	if other := r.points(t, name("other")); len(other) != 1 {
		t.Errorf("its neighbour: %v", other)
	}
	p.set(func(p *page) { p.body = "sglang:num_running_reqs 5\n" })
	eventually(t, "it is read directly again", func() bool { return !r.m.Targets()[0].Lenient && r.log.count("clean again") == 1 })
	n := r.dropped(dropBadLine)
	eventually(t, "new values are stored", func() bool {
		for _, vs := range r.points(t, name("sglang:num_running_reqs")) {
			return last(vs) == 5
		}
		return false
	})
	if r.dropped(dropBadLine) != n {
		t.Error("bad lines counted in clean answers")
	}
	// And back: the same target fails again.
	p.set(func(p *page) { p.body = goodAndBad })
	eventually(t, "it is read around again", func() bool { return r.dropped(dropBadLine) > n && r.m.Targets()[0].Lenient })
}

// Of a target read around its bad lines the real failure is told, not that of the detour.
func TestBadLineThenDown(t *testing.T) {
	p := &page{body: goodAndBad}
	srv := httptest.NewServer(p)
	addr := strings.TrimPrefix(srv.URL, "http://")
	r := start(t, yamlConfig(t, jobFor("a", addr)))
	eventually(t, "it is read around", func() bool { return r.dropped(dropBadLine) > 0 })
	p.set(func(p *page) { p.status = 500 })
	eventually(t, "500", func() bool { return r.first().Reason == "http_500" })
	srv.Close()
	eventually(t, "refused", func() bool { return r.first().Reason == ReasonConnectionRefused })
}

// A cut-off OpenMetrics answer.
func TestNoEOF(t *testing.T) {
	p := &page{ctype: "application/openmetrics-text; version=1.0.0; charset=utf-8", body: "# TYPE a gauge\na 1\nb 2"}
	r := start(t, yamlConfig(t, jobFor("a", serve(t, p))))
	eventually(t, "what is whole is stored", func() bool { return len(r.points(t, name("a"))) == 1 })
	if got := r.points(t, name("b")); len(got) != 0 {
		t.Errorf("half a line is stored: %v", got)
	}
}

func TestBadLineOverHTTPS(t *testing.T) {
	srv := httptest.NewTLSServer(&page{body: goodAndBad})
	defer srv.Close()
	r := start(t, yamlConfig(t, jobFor("a", strings.TrimPrefix(srv.URL, "https://"))+"  scheme: https\n  tls_config: {insecure_skip_verify: true}\n"))
	eventually(t, "it says why the rest is lost", func() bool {
		ti := r.first()
		return ti.Reason == ReasonBadLine && strings.Contains(ti.Error, "line 3") && strings.Contains(ti.Hint, "https")
	})
	if n := r.dropped(dropBadAnswer); n == 0 {
		t.Error("lost answers are not counted")
	}
}
