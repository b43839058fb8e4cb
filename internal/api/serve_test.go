package api

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// serve runs a.Serve on a free port until the test ends, and returns its address.
func serve(t *testing.T, a *API, webConfig string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Serve(ctx, []net.Listener{l}, webConfig) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// do sends a request and returns the status and the body.
func do(t *testing.T, c *http.Client, method, url, user, password string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		r.SetBasicAuth(user, password)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// Users of the web configuration may do everything, and nobody else anything; when the users are taken
// out of the file while we run, only reading is left.
func TestBasicAuth(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	file := writeFile(t, "web.yml", "basic_auth_users:\n  ada: "+string(hash)+"\n")
	if err := CheckWebConfig(file); err != nil {
		t.Fatal(err)
	}
	auth := NewWebAuth(file)
	if !auth.Configured() || NewWebAuth("").Configured() {
		t.Error("Configured is wrong")
	}
	addr := serve(t, newAPI(t, func(o *Options) { o.Access = Access{Authenticated: auth.Authenticated} }), file)
	for _, c := range []struct {
		method, path, user, password string
		want                         int
	}{
		{"GET", "/-/healthy", "", "", 401},
		{"GET", "/-/healthy", "ada", "wrong", 401},
		{"GET", "/-/healthy", "ada", "secret", 200},
		{"POST", "/-/reload", "", "", 401},
		{"POST", "/-/reload", "ada", "secret", 200},
	} {
		if got, body := do(t, http.DefaultClient, c.method, "http://"+addr+c.path, c.user, c.password); got != c.want {
			t.Errorf("%s %s as %q: %d, want %d: %s", c.method, c.path, c.user, got, c.want, body)
		}
	}
	if err := os.WriteFile(file, []byte("# nobody any more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, body := do(t, http.DefaultClient, "POST", "http://"+addr+"/-/reload", "ada", "secret"); got != 403 {
		t.Errorf("a user that is gone: %d %s", got, body)
	}
	if got, _ := do(t, http.DefaultClient, "GET", "http://"+addr+"/-/healthy", "", ""); got != 200 {
		t.Errorf("reading without users: %d", got)
	}
}

func TestTLS(t *testing.T) {
	// httptest has a certificate for example.com and 127.0.0.1.
	donor := httptest.NewTLSServer(nil)
	defer donor.Close()
	certificate, key := pemOf(t, donor)
	file := writeFile(t, "web.yml", "tls_server_config:\n  cert_file: "+certificate+"\n  key_file: "+key+"\n")
	addr := serve(t, newAPI(t), file)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: donor.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}}}
	if got, body := do(t, c, "GET", "https://"+addr+"/-/healthy", "", ""); got != 200 {
		t.Errorf("%d %s", got, body)
	}
	c.CloseIdleConnections()
}

func TestWebConfigErrors(t *testing.T) {
	file := writeFile(t, "web.yml", "basic_auth_user: {}\n")
	if err := CheckWebConfig(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := newAPI(t).Serve(context.Background(), []net.Listener{l}, file); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("served with a broken web configuration: %v", err)
	}
}

// The stream begins with a tick, has one more for each evaluation, and ends when the server does.
func TestLive(t *testing.T) {
	a := newAPI(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Serve(ctx, []net.Listener{l}, "") }()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+l.Addr().String()+ours+"/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %q", got)
	}
	lines := bufio.NewScanner(res.Body)
	event := func() string {
		var out []string
		for lines.Scan() && lines.Text() != "" {
			out = append(out, lines.Text())
		}
		return strings.Join(out, "\n")
	}
	want := `event: tick
data: {"seq":0,"now":"2026-01-02T15:00:00Z","to":"2026-01-02T15:00:00Z","targets":3,"targets_up":1,"alerts":{"crit":1}}`
	if got := event(); got != "id: 0\n"+want {
		t.Errorf("first event\n%s", got)
	}
	a.Evaluated()
	a.Evaluated() // two that nobody has read yet are one piece of news
	if got := event(); !strings.HasPrefix(got, "id: ") || !strings.Contains(got, "event: tick") || strings.Contains(got, `"seq":0`) {
		t.Errorf("second event\n%s", got)
	}
	stop2 := time.AfterFunc(time.Minute, func() { l.Close() }) // a server that hangs fails the test instead of the suite
	defer stop2.Stop()
	a.Close()
	if got := event(); got != "" && !strings.Contains(got, "tick") {
		t.Errorf("after the end: %q", got)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// pemOf writes a test server's certificate and key to files.
func pemOf(t *testing.T, s *httptest.Server) (certificate, key string) {
	t.Helper()
	c := s.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate = writeFile(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})))
	key = writeFile(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	return certificate, key
}
