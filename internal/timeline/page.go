package timeline

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"strings"
	"unicode"
)

// PagePlaceholder is the line of the viewer's page that the data take the place of.
const PagePlaceholder = "<!--rollscope:data-->"

// PageRest is the line of the viewer's page, behind its script, that the data take the place of which the
// first picture does not need. A template without it has all data at [PagePlaceholder].
const PageRest = "<!--rollscope:rest-->"

// PageVersion counts changes of what a page is, so that an older one is made anew.
const PageVersion = 2

// PageMark says what a page was made of. It stands in the page's head, before anything that is long.
type PageMark struct {
	Format      string `json:"format"` // rollscope-page
	Version     int    `json:"version"`
	Container   int    `json:"container"` // version of the container inside
	Tool        string `json:"tool"`
	Fingerprint string `json:"fingerprint"` // of the dump
	Detail      string `json:"detail"`
	// Cache names the cache file that was written together with the page. Its shape is the reference's
	// and has no room for a mark of its own.
	Cache *CacheMark `json:"cache,omitempty"`
}

// CacheMark tells whether a cache file is the one that was written with a page.
type CacheMark struct {
	Bytes  int64  `json:"bytes"`
	Head   int64  `json:"head,omitempty"`
	SHA256 string `json:"sha256"` // hexadecimal; of the bytes from Head on, then of those before
}

const (
	pageFormat = "rollscope-page"
	markStart  = `<script type="application/json" id="rollscope-head">`
	dataStart  = `<script type="text/plain" id="rollscope-timeline">`
	scriptEnd  = `</script>`
	moreStart  = `<script type="text/plain" class="rollscope-more">`
	dataMore   = scriptEnd + moreStart
	dataPiece  = 48 << 10 // characters of base64 in one element; a multiple of four, so that each can be decoded alone
	maxMark    = 64 << 10
	markWithin = 1 << 20 // bytes of a page in which the mark is looked for
)

// PageOptions are the choices of [WritePage].
type PageOptions struct {
	Title string     // shown by the browser; any text
	Cache *CacheMark // see PageMark
}

// WritePage writes a self-contained page: template, which is the built viewer in one HTML file with the
// line [PagePlaceholder], its title replaced, and c's container inside as base64. Nothing that comes
// from the dump can leave the element that holds it.
func WritePage(w io.Writer, template []byte, c *Columns, o PageOptions) error {
	before, after, err := splitTemplate(template)
	if err != nil {
		return err
	}
	c.settle()
	mark, err := json.Marshal(PageMark{pageFormat, PageVersion, Version, c.Head.Tool, c.Head.Dump.Fingerprint, c.Head.Detail, o.Cache})
	if err != nil {
		return fmt.Errorf("timeline: writing a page: %w", err)
	}
	head := markStart + string(mark) + scriptEnd + "\n" // Marshal writes < and > as escapes
	bw := bufio.NewWriterSize(w, 1<<16)
	// A bufio.Writer keeps its first error; Flush returns it.
	if from, to, ok := titleOf(before); ok {
		bw.Write(before[:from])
		bw.WriteString(head)
		bw.WriteString("<title>" + escapeTitle(o.Title) + "</title>")
		bw.Write(before[to:])
	} else {
		bw.Write(before)
		bw.WriteString(head)
	}
	between, end, split := cutLine(after, PageRest)
	data := &embedded{w: bw, between: between}
	var rest io.Writer = data
	if split {
		rest = restOf{data}
	}
	bw.WriteString(dataStart)
	data.open()
	if err := c.encodeParts(data, rest); err != nil {
		return err
	}
	data.close()
	if !split {
		end = after
	} else if !data.behind {
		bw.Write(between)
	}
	bw.Write(end)
	if err := bw.Flush(); err != nil {
		return fmt.Errorf("timeline: writing a page: %w", err)
	}
	return nil
}

// embedded writes bytes as base64 in script elements.
type embedded struct {
	w       *bufio.Writer
	enc     io.WriteCloser
	between []byte // of the template: what stands before the rest
	behind  bool   // the rest has begun
}

// open begins base64 in an element that is open.
func (e *embedded) open() { e.enc = base64.NewEncoder(base64.StdEncoding, &pieces{w: e.w}) }

// close ends the base64 and its element. The writer below keeps errors.
func (e *embedded) close() {
	_ = e.enc.Close()
	e.w.WriteString(scriptEnd)
}

func (e *embedded) Write(b []byte) (int, error) { return e.enc.Write(b) }

// restOf writes what stands behind the viewer's script: it goes on in a new element there.
type restOf struct{ *embedded }

func (r restOf) Write(b []byte) (int, error) {
	if !r.behind {
		r.behind = true
		r.close()
		r.w.Write(r.between)
		r.w.WriteString(moreStart)
		r.open()
	}
	return r.enc.Write(b)
}

// pieces continues in another element after each dataPiece bytes: browsers take one element of many
// megabytes two to three times as slowly as many of some kilobytes.
type pieces struct {
	w *bufio.Writer
	n int // in the present element
}

func (p *pieces) Write(b []byte) (int, error) {
	for done := 0; done < len(b); {
		if p.n == dataPiece {
			p.w.WriteString(dataMore)
			p.n = 0
		}
		n, err := p.w.Write(b[done:min(len(b), done+dataPiece-p.n)])
		p.n += n
		done += n
		if err != nil {
			return done, err
		}
	}
	return len(b), nil
}

// splitTemplate cuts a template at its placeholder.
func splitTemplate(t []byte) (before, after []byte, err error) {
	before, after, ok := cutLine(t, PagePlaceholder)
	if !ok {
		return nil, nil, errors.New("timeline: the page's template has no line " + PagePlaceholder + "; build the viewer (npm run build in web/)")
	}
	if _, _, twice := cutLine(after, PagePlaceholder); twice {
		return nil, nil, errors.New("timeline: the page's template has the line " + PagePlaceholder + " twice; build the viewer again")
	}
	return before, after, nil
}

// cutLine cuts t around the first line that is this text, spaces aside.
func cutLine(t []byte, text string) (before, after []byte, ok bool) {
	for pos := 0; pos < len(t); {
		end := bytes.IndexByte(t[pos:], '\n')
		if end < 0 {
			end = len(t) - pos
		}
		line := bytes.TrimSpace(t[pos : pos+end])
		if string(line) == text {
			at := pos + bytes.Index(t[pos:pos+end], line)
			return t[:at], t[at+len(text):], true
		}
		pos += end + 1
	}
	return t, nil, false
}

// titleOf finds the title element.
func titleOf(t []byte) (from, to int, ok bool) {
	from = bytes.Index(t, []byte("<title>"))
	if from < 0 {
		return 0, 0, false
	}
	end := bytes.Index(t[from:], []byte("</title>"))
	if end < 0 {
		return 0, 0, false
	}
	return from, from + end + len("</title>"), true
}

// escapeTitle makes any text one line that is text in HTML.
func escapeTitle(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, clean(s, 256))
	return html.EscapeString(s)
}

// ErrNoMark says that a file is no page that [WritePage] wrote.
var ErrNoMark = errors.New("not a page of rollscope")

// ReadPageMark reads the mark of a page; it looks at the first MiB. The error wraps [ErrNoMark] when
// there is none.
func ReadPageMark(r io.Reader) (*PageMark, error) {
	b, err := io.ReadAll(io.LimitReader(r, markWithin))
	if err != nil {
		return nil, fmt.Errorf("timeline: reading a page: %w", err)
	}
	_, b, ok := bytes.Cut(b, []byte(markStart))
	if !ok {
		return nil, fmt.Errorf("timeline: %w", ErrNoMark)
	}
	b, _, ok = bytes.Cut(b[:min(len(b), maxMark)], []byte(scriptEnd))
	var m PageMark
	if !ok || json.Unmarshal(b, &m) != nil || m.Format != pageFormat {
		return nil, fmt.Errorf("timeline: the mark cannot be read: %w", ErrNoMark)
	}
	return &m, nil
}

// Fits says whether a page with this mark is what would be written now: by this version, by this tool,
// of this dump.
func (m *PageMark) Fits(tool, fingerprint string) bool {
	return m != nil && m.Version == PageVersion && m.Container == Version && m.Tool == tool &&
		m.Fingerprint == fingerprint && fingerprint != ""
}
