package web

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func testUI(t *testing.T) *UI {
	t.Helper()
	ui, err := fromFS(fstest.MapFS{
		".keep":                &fstest.MapFile{},
		"index.html":           &fstest.MapFile{Data: []byte("<!doctype html>" + strings.Repeat("page ", 100))},
		"viewer.html":          &fstest.MapFile{Data: []byte("<!doctype html>alone")},
		"favicon.svg":          &fstest.MapFile{Data: []byte("<svg/>")},
		"assets/main-ABCD.js":  &fstest.MapFile{Data: []byte(strings.Repeat("let a = 1;", 100))},
		"assets/main-ABCD.css": &fstest.MapFile{Data: []byte("a{}")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return ui
}

func TestServe(t *testing.T) {
	ui := testUI(t)
	for _, c := range []struct {
		method, path string
		status       int
		contentType  string
		cache        string
	}{
		{"GET", "/", 200, "text/html; charset=utf-8", "no-cache"},
		{"GET", "/engines", 200, "text/html; charset=utf-8", "no-cache"},
		{"GET", "/graph", 200, "text/html; charset=utf-8", "no-cache"},
		{"HEAD", "/explore", 200, "text/html; charset=utf-8", "no-cache"},
		{"GET", "/assets/main-ABCD.js", 200, "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"},
		{"GET", "/assets/main-ABCD.css", 200, "text/css; charset=utf-8", "public, max-age=31536000, immutable"},
		{"GET", "/favicon.svg", 200, "image/svg+xml", "no-cache"},
		{"GET", "/assets/other.js", 404, "", ""},
		{"GET", "/.keep", 404, "", ""},
		{"GET", "/index.html", 404, "", ""},
		{"GET", "/viewer.html", 404, "", ""},
		{"GET", "/rollouts", 200, "text/html; charset=utf-8", "no-cache"},
		{"GET", "/engines/x", 404, "", ""},
		{"GET", "/assets/../index.html", 404, "", ""},
		{"POST", "/", 405, "", ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			r := httptest.NewRequest(c.method, "http://x"+c.path, nil)
			w := httptest.NewRecorder()
			ui.ServeHTTP(w, r)
			if w.Code != c.status {
				t.Fatalf("status %d, want %d", w.Code, c.status)
			}
			if got := w.Header().Get("Content-Security-Policy"); got != Policy {
				t.Errorf("policy %q", got)
			}
			if c.contentType != "" && w.Header().Get("Content-Type") != c.contentType {
				t.Errorf("content type %q, want %q", w.Header().Get("Content-Type"), c.contentType)
			}
			if c.cache != "" && w.Header().Get("Cache-Control") != c.cache {
				t.Errorf("cache %q, want %q", w.Header().Get("Cache-Control"), c.cache)
			}
			if c.method == "HEAD" && w.Body.Len() != 0 {
				t.Errorf("HEAD answered with %d bytes", w.Body.Len())
			}
		})
	}
}

func TestNotModified(t *testing.T) {
	ui := testUI(t)
	get := func(encoding, match string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "http://x/", nil)
		r.Header.Set("Accept-Encoding", encoding)
		if match != "" {
			r.Header.Set("If-None-Match", match)
		}
		w := httptest.NewRecorder()
		ui.ServeHTTP(w, r)
		return w
	}
	plain, packed := get("", ""), get("br, gzip;q=0.8", "")
	if plain.Header().Get("ETag") == packed.Header().Get("ETag") {
		t.Error("both representations have one validator")
	}
	if packed.Header().Get("Content-Encoding") != "gzip" {
		t.Fatal("not packed though asked for")
	}
	zr, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(zr)
	if err != nil {
		t.Fatal(err)
	}
	if string(body) != plain.Body.String() {
		t.Error("the packed page is another page")
	}
	if w := get("gzip;q=0", ""); w.Header().Get("Content-Encoding") != "" {
		t.Error("packed though refused")
	}
	if w := get("", plain.Header().Get("ETag")); w.Code != http.StatusNotModified {
		t.Errorf("status %d, want 304", w.Code)
	}
	if w := get("gzip", plain.Header().Get("ETag")); w.Code != http.StatusOK {
		t.Errorf("status %d for the other representation's validator, want 200", w.Code)
	}
}

func TestViewer(t *testing.T) {
	if got := string(testUI(t).Viewer()); got != "<!doctype html>alone" {
		t.Errorf("the page that stands alone is %q", got)
	}
}

func TestUnbuiltSaysHowToBuild(t *testing.T) {
	ui, err := fromFS(fstest.MapFS{".keep": &fstest.MapFile{}})
	if err != nil {
		t.Fatal(err)
	}
	if ui.Built() {
		t.Error("an empty tree counts as built")
	}
	w := httptest.NewRecorder()
	ui.ServeHTTP(w, httptest.NewRequest("GET", "http://x/", nil))
	if w.Code != 200 || !strings.Contains(w.Body.String(), "npm run build") {
		t.Errorf("status %d, body %q", w.Code, w.Body.String())
	}
	if strings.Contains(w.Body.String(), "<style") || strings.Contains(w.Body.String(), "style=") {
		t.Error("the page breaks its own policy")
	}
}

func TestEmbedded(t *testing.T) {
	ui, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if !ui.Built() {
		t.Skip("web/dist is not built: run `make ui`")
	}
	page := string(ui.page.body)
	for _, bad := range []string{"style=", "<style", "onclick", "onload", "http://", "https://", "//cdn"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q, which its policy forbids", bad)
		}
	}
	for _, f := range ui.Files() {
		if strings.HasPrefix(f, AssetPrefix) && !strings.Contains(page, f) && !strings.HasSuffix(f, ".txt") {
			t.Errorf("%s is built but the page does not name it", f)
		}
	}
	if n := strings.Count(page, "<script"); n != 1 {
		t.Errorf("%d scripts, want 1", n)
	}
}
