package timeline

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/torchfile"
)

const template = "<!doctype html><html><head>\n<meta charset=utf-8>\n<title>Rollscope</title>\n</head><body>\n  " +
	PagePlaceholder + "\n<script>run('" + `x` + "')</script></body></html>\n"

func TestPage(t *testing.T) {
	c := handmade(t)
	c.Head.Dump.Fingerprint = `z1:</script><script>alert(1)</script>`
	var b bytes.Buffer
	err := WritePage(&b, []byte(template), c, PageOptions{Title: "a\";document.title=\"PWNED</title><script>\n\u2028\".pt", Cache: &CacheMark{Bytes: 12, SHA256: "ab"}})
	if err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if n := strings.Count(page, "<script"); n != 3 {
		t.Errorf("the page has %d script elements, not 3:\n%.2000s", n, page)
	}
	if n := strings.Count(page, "<title>"); n != 1 || !strings.Contains(page, "<title>a&#34;;document.title=&#34;PWNED&lt;/title&gt;&lt;script&gt;  &#34;.pt</title>") {
		t.Errorf("the title is not escaped:\n%.1000s", page)
	}
	m, err := ReadPageMark(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	if m.Fingerprint != c.Head.Dump.Fingerprint || m.Cache == nil || m.Cache.Bytes != 12 {
		t.Errorf("the mark is %+v", m)
	}
	if !m.Fits("v0.0.0-test", c.Head.Dump.Fingerprint) || m.Fits("v1", c.Head.Dump.Fingerprint) || m.Fits("v0.0.0-test", "z1:") {
		t.Error("Fits does not tell pages apart")
	}
	_, rest, _ := strings.Cut(page, dataStart)
	data, _, _ := strings.Cut(rest, scriptEnd)
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(raw, encode(t, c)) {
		t.Error("the page holds another container")
	}
}

// A large container stands in several elements, each of which can be decoded alone.
func TestPagePieces(t *testing.T) {
	c := handmade(t)
	noise := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, 200<<10)
	for i := range text {
		text[i] = byte('!' + noise.IntN(90))
	}
	c.AddText(0, string(text), "")
	var out bytes.Buffer
	if err := WritePage(&out, []byte(template), c, PageOptions{Title: "x"}); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(out.String(), dataStart)
	rest, _, _ = strings.Cut(rest, scriptEnd+"\n")
	var raw []byte
	list := strings.Split(strings.TrimSuffix(rest, scriptEnd), dataMore)
	for _, p := range list {
		b, err := base64.StdEncoding.DecodeString(p)
		if err != nil || len(p) > dataPiece {
			t.Fatalf("a piece of %d characters: %v", len(p), err)
		}
		raw = append(raw, b...)
	}
	if len(list) < 3 || !bytes.Equal(raw, encode(t, c)) {
		t.Errorf("%d pieces hold %d bytes of another container", len(list), len(raw))
	}
}

// What the first picture does not need stands behind the script, when the template has a line for it.
func TestPageRest(t *testing.T) {
	c := handmade(t)
	whole := encode(t, c)
	// As the columns end where the first other blob begins.
	columns := 8 + int(binary.LittleEndian.Uint32(whole[4:]))
	for _, ci := range c.Head.Columns {
		b := c.Head.Blobs[ci.Blob]
		columns = max(columns, 8+int(binary.LittleEndian.Uint32(whole[4:]))+b.Offset+b.Bytes)
	}
	if columns >= len(whole) {
		t.Fatalf("the columns end at %d of %d bytes: there is no rest", columns, len(whole))
	}
	tpl := strings.Replace(template, "</body>", "\n"+PageRest+"\n</body>", 1)
	var out bytes.Buffer
	if err := WritePage(&out, []byte(tpl), c, PageOptions{Title: "x"}); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	before, after, ok := strings.Cut(page, "<script>run('x')</script>")
	if !ok || strings.Contains(page, PageRest) || !strings.HasSuffix(page, scriptEnd+"\n</body></html>\n") {
		t.Fatalf("the template is not whole: %s", page)
	}
	read := func(text, start string) []byte {
		t.Helper()
		_, text, ok := strings.Cut(text, start)
		text, _, ended := strings.Cut(text, scriptEnd)
		b, err := base64.StdEncoding.DecodeString(text)
		if !ok || !ended || err != nil {
			t.Fatalf("no data behind %s: %v", start, err)
		}
		return b
	}
	if got := read(before, dataStart); !bytes.Equal(got, whole[:columns]) {
		t.Errorf("%d bytes stand before the script, not the %d of head and columns", len(got), columns)
	}
	if got := read(after, moreStart); !bytes.Equal(got, whole[columns:]) {
		t.Errorf("%d bytes stand behind the script, not the other %d", len(got), len(whole)-columns)
	}

	// Without attributes and the like there is no rest, and the template is still whole.
	out.Reset()
	if err := WritePage(&out, []byte(tpl), NewColumns(Head{Tool: "v"}), PageOptions{Title: "x"}); err != nil {
		t.Fatal(err)
	}
	if page := out.String(); strings.Contains(page, "rollscope-more") || !strings.HasSuffix(page, "</script>\n\n</body></html>\n") {
		t.Errorf("a page without a rest: %s", page)
	}
}

func TestPageTemplates(t *testing.T) {
	for name, tpl := range map[string]string{"none": "<html></html>", "twice": PagePlaceholder + "\n" + PagePlaceholder, "inside a line": "x" + PagePlaceholder} {
		if err := WritePage(io.Discard, []byte(tpl), handmade(t), PageOptions{}); err == nil {
			t.Errorf("placeholder %s: no error", name)
		}
	}
	var b bytes.Buffer
	if err := WritePage(&b, []byte(PagePlaceholder), handmade(t), PageOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPageMark(&b); err != nil {
		t.Errorf("a page without a title: %v", err)
	}
	for _, s := range []string{"", "<html>", markStart, markStart + "{}" + scriptEnd, markStart + "[" + scriptEnd, markStart + `{"format":"x"}` + scriptEnd} {
		if _, err := ReadPageMark(strings.NewReader(s)); !errors.Is(err, ErrNoMark) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

type failing struct{ after int }

var errFull = errors.New("no space left on device")

func (f *failing) Write(b []byte) (int, error) {
	if f.after -= len(b); f.after < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestWritersReport cuts every writer short.
func TestWritersReport(t *testing.T) {
	c := handmade(t)
	for name, write := range map[string]func(io.Writer) error{
		"page":     func(w io.Writer) error { return WritePage(w, []byte(template), c, PageOptions{}) },
		"encode":   func(w io.Writer) error { return c.Encode(w) },
		"perfetto": func(w io.Writer) error { return WritePerfetto(w, NewIndex(c), Query{}, 0, 0) },
	} {
		for _, n := range []int{0, 10, 1000} {
			if err := write(&failing{n}); !errors.Is(err, errFull) {
				t.Errorf("%s after %d bytes: %v", name, n, err)
			}
		}
	}
}

func TestFingerprint(t *testing.T) {
	seen := map[string]string{}
	files, err := filepath.Glob("../../torchfile/testdata/dumps/*.pt")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		f, err := torchfile.Open(path, &torchfile.Options{Salvage: true})
		if errors.Is(err, torchfile.ErrNotTorch) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := Fingerprint(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if other, twice := seen[got]; twice {
			t.Errorf("%s and %s have one fingerprint", path, other)
		}
		seen[got] = path
		// The name and the way it is read do not matter.
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := torchfile.OpenBytes(b, &torchfile.Options{Salvage: true})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Fingerprint(m); err != nil || again != got {
			t.Errorf("%s: %s from memory, %s from the file: %v", path, again, got, err)
		}
	}
}

// TestFingerprintOfLargeFiles changes one byte of a record through the writer: sampled or not, the
// record's checksum gives it away.
func TestFingerprintOfLargeFiles(t *testing.T) {
	dump := func(x byte) string {
		var b bytes.Buffer
		w := torchfile.NewWriter(&b, nil)
		data := make([]byte, 1<<20)
		data[500_001] = x
		w.BeginDict()
		w.Key("a")
		w.Bytes(data)
		w.EndDict()
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := torchfile.OpenBytes(b.Bytes(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Fingerprint(f)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one, two, again := dump(1), dump(2), dump(1)
	if one == two {
		t.Error("a changed byte gives the same fingerprint")
	}
	if one != again {
		t.Error("the same content gives two fingerprints")
	}
}
