// Package web serves the user interface that is embedded into the binary, under a content security
// policy that lets it talk to nothing but the server it came from. Its entry point is [New].
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"sort"
	"strings"
	"sync"
)

// The directory is built by `npm run build` in web/ and is empty but for .keep in a fresh clone, so
// that the binary can be built without Node.
//
//go:embed all:dist
var embedded embed.FS

// Policy is the content security policy of every answer of the interface: scripts, styles, images and
// requests come from and go to this server only; nothing inline, no eval, no framing.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Pages are the paths of the interface's pages. All of them answer with the same document, which reads
// its view from the URL; /graph is where Prometheus and Alertmanager links point to.
func Pages() []string {
	return []string{"/", "/engines", "/rollouts", "/requests", "/traces", "/logs", "/alerts", "/explore", "/graph"}
}

// AssetPrefix is the path under which the page's scripts and styles lie. Their names carry a hash of
// their content, so they never change and are cached for good.
const AssetPrefix = "/assets/"

// asset is one file, ready to be sent.
type asset struct {
	body        []byte
	gzipped     func() []byte // made when it is first asked for; nil where it would not be smaller
	contentType string
	etag        string
	forever     bool
}

// UI answers the requests for pages and assets. It is immutable and safe for concurrent use.
type UI struct {
	assets map[string]asset // by URL path
	page   asset
	viewer []byte // the page that stands alone; empty when it is not built
	built  bool
}

// Viewer is the page that stands alone: a template that a timeline is put into, see
// timeline.WritePage. Empty when the binary was built without its pages. It must not be changed.
func (ui *UI) Viewer() []byte { return ui.viewer }

// New reads the embedded files. It fails only when the embedded tree cannot be read; a binary built
// without the interface serves a page that says how to build it.
func New() (*UI, error) {
	dist, err := fs.Sub(embedded, "dist")
	if err != nil {
		return nil, fmt.Errorf("web: opening the embedded interface: %w", err)
	}
	return fromFS(dist)
}

func fromFS(dist fs.FS) (*UI, error) {
	ui := &UI{assets: map[string]asset{}, page: newAsset("index.html", []byte(unbuilt), false)}
	err := fs.WalkDir(dist, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(path.Base(name), ".") {
			return err
		}
		body, err := fs.ReadFile(dist, name)
		if err != nil {
			return err
		}
		if name == "index.html" {
			ui.page, ui.built = newAsset(name, body, false), true
			return nil
		}
		if name == "viewer.html" {
			ui.viewer = body
			return nil
		}
		ui.assets["/"+name] = newAsset(name, body, strings.HasPrefix("/"+name, AssetPrefix))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("web: reading the embedded interface: %w", err)
	}
	return ui, nil
}

func newAsset(name string, body []byte, forever bool) asset {
	sum := sha256.Sum256(body)
	a := asset{body: body, contentType: contentType(name), etag: `"` + hex.EncodeToString(sum[:12]) + `"`, forever: forever}
	a.gzipped = sync.OnceValue(func() []byte {
		var buf bytes.Buffer
		// The level is a constant of the package, and a bytes.Buffer takes every write.
		zw, _ := gzip.NewWriterLevel(&buf, gzip.BestCompression)
		if _, err := zw.Write(body); err == nil && zw.Close() == nil && buf.Len() < len(body) {
			return buf.Bytes()
		}
		return nil
	})
	return a
}

// contentType is decided here and not by the mime package, which reads tables of the machine.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".json", ".map":
		return "application/json"
	case ".txt":
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}

// Built tells whether the binary holds the interface, or only the page that says how to build it.
func (ui *UI) Built() bool { return ui.built }

// Files are the URL paths of the files beside the pages, sorted: "/assets/main-ABCD.js", "/favicon.svg".
func (ui *UI) Files() []string {
	names := make([]string, 0, len(ui.assets))
	for name := range ui.assets {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// ServeHTTP answers GET and HEAD for [Pages], for paths under [AssetPrefix] and for the few files
// beside them (/favicon.svg); everything else is 404. Access control is the caller's.
func (ui *UI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the interface is read with GET", http.StatusMethodNotAllowed)
		return
	}
	a, ok := ui.assets[r.URL.Path]
	if !ok {
		if !isPage(r.URL.Path) {
			http.NotFound(w, r)
			return
		}
		a = ui.page
	}
	send(w, r, a)
}

func isPage(p string) bool {
	for _, page := range Pages() {
		if p == page {
			return true
		}
	}
	return false
}

func send(w http.ResponseWriter, r *http.Request, a asset) {
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Vary", "Accept-Encoding")
	body, etag := a.body, a.etag
	if acceptsGzip(r.Header.Get("Accept-Encoding")) && a.gzipped() != nil {
		// A validator names one representation, so the packed one has its own.
		body, etag = a.gzipped(), strings.TrimSuffix(a.etag, `"`)+`-gz"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", etag)
	if a.forever {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		h.Set("Cache-Control", "no-cache") // asked again each time, answered with 304 while it is the same
	}
	if matches(r.Header.Get("If-None-Match"), etag) {
		h.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	// A reader that went away is not ours to report.
	_, _ = w.Write(body)
}

func acceptsGzip(header string) bool {
	for _, part := range strings.Split(header, ",") {
		coding, params, _ := strings.Cut(part, ";")
		if strings.TrimSpace(coding) != "gzip" {
			continue
		}
		q := strings.ReplaceAll(params, " ", "")
		return q != "q=0" && q != "q=0.0" && q != "q=0.00" && q != "q=0.000"
	}
	return false
}

func matches(ifNoneMatch, etag string) bool {
	for _, part := range strings.Split(ifNoneMatch, ",") {
		part = strings.TrimSpace(part)
		if part == "*" || strings.TrimPrefix(part, "W/") == etag {
			return true
		}
	}
	return false
}

const unbuilt = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Rollscope</title></head>
<body><h1>Rollscope records, but this binary was built without its page</h1>
<p>Build the page and then the binary, with Node 20 or later:</p>
<pre>make build</pre>
<p>or by hand:</p>
<pre>cd web &amp;&amp; npm ci &amp;&amp; npm run build &amp;&amp; cd .. &amp;&amp; go build ./cmd/rollscope</pre>
<p>The HTTP API works meanwhile: <a href="/api/v1/targets">/api/v1/targets</a>, <a href="/metrics">/metrics</a>.</p>
</body></html>
`
