package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/app"
)

// source is where a command reads from: a running rollscope (or any Prometheus), or a data directory.
type source struct {
	server, dir, user string
}

func (s *source) flags(cmd *kingpin.CmdClause) {
	cmd.Flag("server", "Address of a running rollscope; PromQL also works against any Prometheus.").
		Default("http://127.0.0.1:9090").Envar("ROLLSCOPE_SERVER").StringVar(&s.server)
	cmd.Flag("dir", "Read this data directory instead, without a server; nothing in it is changed.").StringVar(&s.dir)
	cmd.Flag("user", "USER:PASSWORD for a server with basic auth.").Envar("ROLLSCOPE_USER").StringVar(&s.user)
}

// client asks the one HTTP API, over the network or of a handler in this process.
type client struct {
	base  *url.URL
	user  string
	do    func(*http.Request) (*http.Response, error)
	close func() error
}

func (s *source) open(ctx context.Context, e *env) (*client, error) {
	if s.dir != "" {
		archive, err := app.OpenArchive(ctx, app.ArchiveOptions{Dir: s.dir, Logger: e.logger(), Version: e.version})
		if err != nil {
			return nil, badInput("%w", err)
		}
		return &client{
			base:  &url.URL{Scheme: "http", Host: "localhost"},
			do:    func(r *http.Request) (*http.Response, error) { return serveInProcess(archive.Handler(), r), nil },
			close: archive.Close,
		}, nil
	}
	base := s.server
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return nil, badInput("--server %q is not an address: write http://HOST:PORT", s.server)
	}
	hc := &http.Client{Timeout: 2 * time.Minute}
	return &client{base: u, user: s.user, do: hc.Do, close: func() error { return nil }}, nil
}

// serveInProcess answers a request without a socket.
func serveInProcess(h http.Handler, r *http.Request) *http.Response {
	r.Host = r.URL.Host
	r.RequestURI = r.URL.RequestURI()
	r.RemoteAddr = "127.0.0.1:0"
	rec := &recorder{header: http.Header{}, status: http.StatusOK}
	h.ServeHTTP(rec, r)
	return &http.Response{StatusCode: rec.status, Header: rec.header, Body: io.NopCloser(&rec.body), Request: r}
}

// recorder keeps an answer in memory. (httptest has one too, but brings a flag into the program.)
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

// apiError is what a server answered instead of data.
type apiError struct {
	status  int
	code    string // of our API; "" from others
	message string
}

func (e *apiError) Error() string { return e.message }

// get reads path, escaped, with its parameters into out. Its errors carry the exit code that fits them: a server
// that cannot be reached leaves the question open, one that refuses the question says it was bad.
func (c *client) get(ctx context.Context, path string, params url.Values, out any) error {
	return c.stream(ctx, path, params, func(r io.Reader) error {
		body, err := io.ReadAll(io.LimitReader(r, 256<<20))
		if err != nil {
			return unknown(fmt.Errorf("reading the answer of %s%s: %w", c.base.Redacted(), path, err))
		}
		if err := json.Unmarshal(body, out); err != nil {
			return unknown(fmt.Errorf("%s%s answered something that is not the API's JSON: %w", c.base.Redacted(), path, err))
		}
		return nil
	})
}

// stream is get for answers that are read as they come.
func (c *client) stream(ctx context.Context, path string, params url.Values, read func(io.Reader) error) error {
	u := c.base.JoinPath(path)
	u.RawQuery = params.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return badInput("%w", err)
	}
	if name, password, ok := strings.Cut(c.user, ":"); ok {
		req.SetBasicAuth(name, password)
	}
	resp, err := c.do(req)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return unknown(fmt.Errorf("%s did not answer in time: %w", c.base, err))
		}
		return unknown(fmt.Errorf("no answer from %s: %w (is rollscope serve running there? --server names another, --dir reads a directory)", c.base, err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if err != nil {
			return unknown(fmt.Errorf("reading the answer of %s: %w", u.Redacted(), err))
		}
		code, text := errorText(resp.StatusCode, body)
		refused := &apiError{resp.StatusCode, code, text}
		if resp.StatusCode >= 500 {
			return unknown(refused)
		}
		return &exitError{exitBadInput, refused}
	}
	return read(resp.Body)
}

// errorText finds the code and the sentence in an error of our API, or the sentence in one of Prometheus's.
func errorText(status int, body []byte) (code, text string) {
	var ours struct {
		Error struct{ Code, Message, Where, Hint string } `json:"error"`
	}
	if json.Unmarshal(body, &ours) == nil && ours.Error.Message != "" {
		s := ours.Error.Message
		if ours.Error.Where != "" {
			s += " (" + ours.Error.Where + ")"
		}
		if ours.Error.Hint != "" {
			s += "; " + ours.Error.Hint
		}
		return ours.Error.Code, s
	}
	var theirs struct{ Error, ErrorType string }
	if json.Unmarshal(body, &theirs) == nil && theirs.Error != "" {
		return "", theirs.Error
	}
	return "", fmt.Sprintf("the server answered %d %s: %.200s", status, http.StatusText(status), body)
}
