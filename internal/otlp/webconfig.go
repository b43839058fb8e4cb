package otlp

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	toolkit "github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/bcrypt"
)

// WebConfig is Prometheus's web configuration file for servers that the toolkit does not run: TLS and users
// for gRPC. The file is read again when it changes. It is safe for concurrent use.
type WebConfig struct {
	file string

	mu    sync.Mutex
	size  int64
	mtime time.Time
	now   *toolkit.Config
	err   error
	known map[[sha256.Size]byte]bool // passwords that were checked: bcrypt is slow on purpose
}

// maxKnown bounds how many passwords, right and wrong ones, are remembered.
const maxKnown = 100

// OpenWebConfig reads the file; the error says what is wrong with it.
func OpenWebConfig(file string) (*WebConfig, error) {
	w := &WebConfig{file: file}
	if _, err := w.read(); err != nil {
		return nil, err
	}
	return w, nil
}

// read returns the file as it is now.
func (w *WebConfig) read() (*toolkit.Config, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	info, err := os.Stat(w.file)
	if err != nil {
		return nil, fmt.Errorf("web configuration: %w", err)
	}
	if w.now != nil && info.Size() == w.size && info.ModTime().Equal(w.mtime) {
		return w.now, w.err
	}
	content, err := os.ReadFile(w.file)
	if err != nil {
		return nil, fmt.Errorf("web configuration: %w", err)
	}
	c := &toolkit.Config{TLSConfig: toolkit.TLSConfig{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13}}
	dec := yaml.NewDecoder(bytes.NewReader(content))
	dec.KnownFields(true)
	w.err = nil
	if len(bytes.TrimSpace(content)) > 0 {
		if err := dec.Decode(c); err != nil {
			w.err = fmt.Errorf("web configuration %s: %w", w.file, err)
		}
	}
	c.TLSConfig.SetDirectory(filepath.Dir(w.file))
	w.now, w.size, w.mtime, w.known = c, info.Size(), info.ModTime(), map[[sha256.Size]byte]bool{}
	return w.now, w.err
}

// TLS is for [Options.TLS]: nil when the file has no certificate. Certificates are read again for each
// connection, as the toolkit does.
func (w *WebConfig) TLS() (*tls.Config, error) {
	c, err := w.read()
	if err != nil {
		return nil, err
	}
	if !c.TLSConfig.IsEnabled() {
		return nil, nil
	}
	first, err := toolkit.ConfigToTLSConfig(&c.TLSConfig)
	if err != nil {
		return nil, fmt.Errorf("web configuration %s: %w", w.file, err)
	}
	first.NextProtos = []string{"h2", "http/1.1"}
	first.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := w.read()
		if err != nil {
			return nil, err
		}
		now, err := toolkit.ConfigToTLSConfig(&c.TLSConfig)
		if err != nil {
			return nil, err
		}
		now.NextProtos = []string{"h2", "http/1.1"}
		return now, nil
	}
	return first, nil
}

// errWho does not say what was wrong: whoever guesses learns nothing.
var errWho = errors.New("the user or the password is wrong or missing: send basic auth as the web configuration has it")

// Authorize is for [Options.Authorize]: basic auth when the file has users. A verified client certificate is
// TLS's business and passes by itself where no users are.
func (w *WebConfig) Authorize(r *http.Request) error {
	c, err := w.read()
	if err != nil {
		return errors.New("the web configuration cannot be read: nobody is let in; the log has the details")
	}
	if len(c.Users) == 0 {
		return nil
	}
	user, password, ok := r.BasicAuth()
	if !ok {
		return errWho
	}
	hash, known := c.Users[user]
	if !known {
		for _, h := range c.Users { // as much work as for a user that is there
			hash = h
			break
		}
	}
	key := sha256.Sum256([]byte(user + "\x00" + string(hash) + "\x00" + password))
	w.mu.Lock()
	good, seen := w.known[key]
	w.mu.Unlock()
	if !seen {
		good = bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil
		w.mu.Lock()
		if len(w.known) >= maxKnown {
			clear(w.known)
		}
		w.known[key] = good
		w.mu.Unlock()
	}
	if !good || !known {
		return errWho
	}
	return nil
}
