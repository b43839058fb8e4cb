package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// systemURL waits until the port is announced.
func systemURL(t *testing.T, p *process) string {
	t.Helper()
	var url string
	eventually(t, "the port is announced", func() bool {
		_, rest, _ := strings.Cut(p.out.String(), "system port: ")
		var ended bool
		url, _, ended = strings.Cut(rest, "\n")
		return ended
	})
	return url
}

// ask sends a request without a body and returns the status and the answer.
func ask(t *testing.T, c *http.Client, method, url, user, password string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		r.SetBasicAuth(user, password)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// healthOf is what /health says of each engine.
func healthOf(t *testing.T, url string) (status string, states map[string]string) {
	t.Helper()
	_, body := ask(t, http.DefaultClient, "GET", url+"/health", "", "")
	var h struct {
		Status  string
		Engines map[string]struct{ State string }
	}
	if err := json.Unmarshal([]byte(body), &h); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	states = map[string]string{}
	for name, e := range h.Engines {
		states[name] = e.State
	}
	return h.Status, states
}

// exposed serves a text as metrics on loopback.
func exposed(t *testing.T, text string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return s
}

// The users and the certificate of the web configuration are those of the system port too.
func TestSystemPortUsers(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	donor := httptest.NewTLSServer(nil) // has a certificate for 127.0.0.1
	defer donor.Close()
	dir := t.TempDir()
	key, err := x509.MarshalPKCS8PrivateKey(donor.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	users := "basic_auth_users:\n  ada: " + string(hash) + "\n"
	for name, data := range map[string][]byte{
		"cert.pem":  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: donor.Certificate().Raw}),
		"key.pem":   pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		"users.yml": []byte(users),
		"tls.yml":   []byte(users + "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := exposed(t, "# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs 3\n")
	trusting := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: donor.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}}}
	for _, tt := range []struct {
		file, scheme string
		client       *http.Client
	}{{"users.yml", "http://", http.DefaultClient}, {"tls.yml", "https://", trusting}} {
		t.Run(tt.file, func(t *testing.T) {
			p := start(t, "serve", "--storage.tsdb.path", t.TempDir(), "--web.listen-address", "127.0.0.1:0", "--web.config.file", filepath.Join(dir, tt.file),
				"--scrape", strings.TrimPrefix(e.URL, "http://"), "--scrape-interval", "1s", "--system-host", "0.0.0.0", "--system-port", "0")
			url := systemURL(t, p)
			if !strings.HasPrefix(url, tt.scheme+"127.0.0.1:") || !strings.HasPrefix(p.url, tt.scheme) {
				t.Fatalf("announced are %s and %s", p.url, url)
			}
			for _, path := range []string{"/metrics", "/health", "/live"} {
				for _, who := range []struct{ user, password string }{{"", ""}, {"ada", "wrong"}, {"eve", "secret"}} {
					if status, body := ask(t, tt.client, "GET", url+path, who.user, who.password); status != http.StatusUnauthorized || strings.Contains(body, "sglang") {
						t.Errorf("%s as %q: %d %s", path, who.user, status, body)
					}
				}
			}
			eventually(t, "the node is ready", func() bool {
				status, _ := ask(t, tt.client, "GET", url+"/health", "ada", "secret")
				return status == http.StatusOK
			})
			if status, body := ask(t, tt.client, "GET", url+"/metrics", "ada", "secret"); status != http.StatusOK || !strings.Contains(body, `sglang:num_running_reqs{worker_addr="`+e.URL+`"} 3`) {
				t.Errorf("%d %s", status, body)
			}
			if tt.scheme == "https://" { // nothing is told to who speaks in the clear
				if status, body := ask(t, http.DefaultClient, "GET", strings.Replace(url, "https", "http", 1)+"/metrics", "ada", "secret"); status != http.StatusBadRequest || strings.Contains(body, "sglang") {
					t.Errorf("in the clear: %d %s", status, body)
				}
			}
			if strings.Contains(p.err.String(), "without users") {
				t.Errorf("it says that there are no users:\n%s", p.err)
			}
			p.stop()
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

// A system port that others reach without users answers, and the log says at the start that it does. An engine
// that a Dynamo worker passes on is there once. After a restart an engine that was up is down, one that was never
// seen starts.
func TestSystemPortOpenAndRestarted(t *testing.T) {
	const engineText = "# TYPE sglang:e2e_request_latency_seconds summary\nsglang:e2e_request_latency_seconds_sum 2.171226978302002\nsglang:e2e_request_latency_seconds_count 1\n" +
		"# TYPE sglang:queue_time_seconds summary\nsglang:queue_time_seconds_sum 0.0018392642959952354\nsglang:queue_time_seconds_count 1\n" +
		"# TYPE sglang:num_running_reqs gauge\nsglang:num_running_reqs 3\n"
	e := exposed(t, engineText)
	injected := strings.NewReplacer("_sum ", `_sum{worker_id="694d98147d54be25"} `, "_count ", `_count{worker_id="694d98147d54be25"} `, "reqs 3", `reqs{worker_id="694d98147d54be25"} 3`).Replace(engineText)
	worker := exposed(t, "# TYPE dynamo_component_uptime_seconds gauge\ndynamo_component_uptime_seconds 110.2\n"+injected)
	never := refusing(t)
	at := strings.TrimPrefix(e.URL, "http://")
	args := []string{"serve", "--storage.tsdb.path", t.TempDir(), "--web.listen-address", "127.0.0.1:0", "--scrape-interval", "1s",
		"--scrape", at, "--scrape", strings.TrimPrefix(worker.URL, "http://"), "--scrape", never, "--system-port", "0"}

	p := start(t, append(args, "--system-host", "0.0.0.0")...)
	url := systemURL(t, p)
	eventually(t, "the open port is told of", func() bool { // by another pipe than its address
		log := p.err.String()
		return strings.Contains(log, "this server listens beyond this machine without users") && strings.Contains(log, url[strings.LastIndexByte(url, ':'):])
	})
	eventually(t, "both are up", func() bool {
		_, states := healthOf(t, url)
		return states[at] == "ready" && states[never] == "starting"
	})
	status, text := ask(t, http.DefaultClient, "GET", url+"/metrics", "", "")
	if status != http.StatusOK || strings.Count(text, "\nsglang:num_running_reqs{") != 1 {
		t.Errorf("%d, and the engine is not there once:\n%s", status, text)
	}
	for _, want := range []string{
		fmt.Sprintf(`rollscope_system_same_engine{worker_addr=%q,engine=%q,evidence="values"} 1`, worker.URL, e.URL),
		fmt.Sprintf(`rollscope_system_lines_left_out{source=%q,reason="same_engine"} 5`, strings.TrimPrefix(worker.URL, "http://")),
		fmt.Sprintf(`dynamo_component_uptime_seconds{worker_addr=%q} 110.2`, worker.URL),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
	for _, tt := range []struct {
		method, path string
		want         int
	}{{"POST", "/metrics", http.StatusMethodNotAllowed}, {"HEAD", "/metrics", http.StatusOK}, {"HEAD", "/live", http.StatusServiceUnavailable}, {"GET", "/", http.StatusNotFound}, {"GET", "/api/v1/query", http.StatusNotFound}} {
		if got, _ := ask(t, http.DefaultClient, tt.method, url+tt.path, "", ""); got != tt.want {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, got, tt.want)
		}
	}
	eventually(t, "the engine is recorded", func() bool { return len(query(t, p.url, "up == 1", time.Time{}).Data.Result) == 2 })
	p.stop()

	e.Close()
	p = start(t, append(args, "--system-starting-health-status", "ready")...)
	url = systemURL(t, p)
	eventually(t, "the engine that was up is down", func() bool {
		status, states := healthOf(t, url)
		return states[at] == "notready" && states[never] == "starting" && status == "notready"
	})
	if strings.Contains(p.err.String(), "without users") {
		t.Errorf("on loopback it says that strangers come:\n%s", p.err)
	}
	p.stop()

	p = start(t, append(args[:len(args)-1], "-1")...)
	if out := p.out.String(); strings.Contains(out, "system port") {
		t.Errorf("-1 opens a port: %s", out)
	}
	p.stop()
}
