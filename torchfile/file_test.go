package torchfile

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenSaysWhatAFileIs(t *testing.T) {
	big := bytes.Repeat([]byte{0}, 1000)
	for name, c := range map[string]struct {
		data []byte
		sort error
		says string
	}{
		"empty":     {nil, ErrEmpty, "the file is empty"},
		"html":      {[]byte("<html><body>404 not found</body></html>\n"), ErrNotTorch, "HTML page"},
		"doctype":   {[]byte("\n<!DOCTYPE html>"), ErrNotTorch, "HTML page"},
		"json":      {[]byte(`{"samples": []}`), ErrNotTorch, "JSON"},
		"gzip":      {[]byte("\x1f\x8b\x08\x00"), ErrNotTorch, "gzip"},
		"zeros":     {big, ErrNotTorch, "zero bytes"},
		"lfs":       {[]byte("version https://git-lfs.github.com/spec/v1\n"), ErrNotTorch, "Git LFS"},
		"npy":       {[]byte("\x93NUMPY\x01\x00"), ErrNotTorch, ".npy"},
		"text":      {[]byte("hello world"), ErrNotTorch, `begins with "hello world"`},
		"text 2":    {[]byte("Just some text"), ErrNotTorch, "begins with"},
		"zip":       {zipOf(t, zip.Store, "readme.txt", "hi"), ErrNotTorch, "without a data.pkl"},
		"zip start": {[]byte("PK\x03\x04"), ErrIncomplete, "incomplete (no central directory): still being written or cut"},
		"tar":       {append(append(bytes.Repeat([]byte{'x'}, 257), "ustar"...), big...), ErrUnsupported, "tar archive"},
		"protocol":  {[]byte("\x80\x09N."), ErrNotTorch, "begins with"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := OpenBytes(c.data, nil)
			if !errors.Is(err, c.sort) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v with %q", err, c.sort, c.says)
			}
			path := filepath.Join(t.TempDir(), "rollout_8.pt")
			if err := os.WriteFile(path, c.data, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = Open(path, nil)
			if !errors.Is(err, c.sort) || !strings.Contains(err.Error(), path+": ") {
				t.Errorf("by path: got %v", err)
			}
		})
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none.pt"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Open(t.TempDir(), nil); !errors.Is(err, ErrNotTorch) {
		t.Errorf("a directory: %v", err)
	}
}

func zipOf(t *testing.T, method uint16, nameAndData ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(nameAndData); i += 2 {
		f, err := w.CreateHeader(&zip.FileHeader{Name: nameAndData[i], Method: method})
		if err == nil {
			_, err = io.WriteString(f, nameAndData[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestHowAFileIsRead checks that a map, a reader, and memory give the same.
func TestHowAFileIsRead(t *testing.T) {
	for _, name := range []string{"f09_tensors_multimodal", "f16_legacy_nonzip", "f18_zip_deflated", "f30_pickle_1dc85516d.pkl"} {
		path := "testdata/dumps/" + name + ".pt"
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var first []byte
		for how, open := range map[string]func() (*File, error){
			"map":    func() (*File, error) { return Open(path, nil) },
			"no map": func() (*File, error) { return Open(path, &Options{NoMap: true}) },
			"bytes":  func() (*File, error) { return OpenBytes(data, nil) },
			"reader": func() (*File, error) { return OpenReaderAt(bytes.NewReader(data), int64(len(data)), nil) },
		} {
			f, err := open()
			if err != nil {
				t.Fatal(how, err)
			}
			d, err := f.Load(LoadOptions{})
			if err != nil {
				t.Fatal(how, err)
			}
			got := jsonOf(t, d.Root())
			if first == nil {
				first = got
			}
			if !bytes.Equal(got, first) {
				t.Errorf("%s: by %s it reads differently", name, how)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestFormats(t *testing.T) {
	for name, want := range map[string]Format{
		"f09_tensors_multimodal": Zip, "f18_zip_deflated": Zip, "f16_legacy_nonzip": Legacy, "f30_pickle_1dc85516d.pkl": Pickle,
	} {
		f := openTest(t, "testdata/dumps/"+name+".pt", nil)
		if f.Format() != want {
			t.Errorf("%s is %s, want %s", name, f.Format(), want)
		}
	}
	f := openTest(t, "testdata/dumps/f18_zip_deflated.pt", nil)
	if r := f.Records(); len(r) < 10 || !strings.HasSuffix(r[0].Name, "data.pkl") || !r[0].Compressed {
		t.Errorf("records %v", r)
	}
}

func TestZipLayer(t *testing.T) {
	load := func(data []byte, o *Options) error {
		f, err := OpenBytes(data, o)
		if err != nil {
			return err
		}
		_, err = f.Load(LoadOptions{})
		return err
	}
	stored := zipOf(t, zip.Store, "archive/data.pkl", "\x80\x02K\x07.", "archive/version", "3\n")
	bomb := zipOf(t, zip.Deflate, "archive/data.pkl", "\x80\x02"+strings.Repeat("N0", 1<<20)+"N.")
	bad := bytes.Clone(stored)
	bad[bytes.Index(bad, []byte("K\x07."))+1]++
	mangle := func(data []byte, at string, off int, with ...byte) []byte {
		b := bytes.Clone(data)
		copy(b[bytes.LastIndex(b, []byte(at))+off:], with)
		return b
	}
	for name, c := range map[string]struct {
		data []byte
		o    Options
		want error
	}{
		"stored":             {stored, Options{Verify: true}, nil},
		"inflated":           {bomb, Options{}, nil},
		"bomb":               {bomb, Options{Limits: Limits{MaxInflate: 1 << 20}}, ErrLimit},
		"checksum":           {bad, Options{Verify: true}, ErrCorrupt},
		"checksum unchecked": {bad, Options{}, nil},
		"twice":              {zipOf(t, zip.Store, "a/data.pkl", "N.", "a/data.pkl", "N."), Options{}, ErrCorrupt},
		"nested name":        {zipOf(t, zip.Store, "a/b/data.pkl", "garbage", "a/data.pkl", "\x80\x02N."), Options{}, nil},
		"no folder":          {zipOf(t, zip.Store, "data.pkl", "\x80\x02N."), Options{}, nil},
		"escaping name":      {zipOf(t, zip.Store, "../data.pkl", "\x80\x02N."), Options{}, nil},
		"two sizes":          {mangle(stored, "PK\x01\x02", 24, 9), Options{}, ErrCorrupt},
		"beyond the file":    {mangle(zipOf(t, zip.Store, "data.pkl", "\x80\x02N."), "PK\x01\x02", 20, 9, 9, 9, 0, 9, 9, 9, 0), Options{}, ErrIncomplete},
		"damaged directory":  {mangle(stored, "PK\x05\x06", 16, 0xff, 0xff, 0xff), Options{}, ErrCorrupt},
		"encrypted":          {mangle(zipOf(t, zip.Store, "data.pkl", "\x80\x02N."), "PK\x01\x02", 8, 1), Options{}, ErrUnsupported},
		"method 99":          {mangle(zipOf(t, zip.Store, "data.pkl", "\x80\x02N."), "PK\x01\x02", 10, 99), Options{}, ErrUnsupported},
		"empty pickle":       {zipOf(t, zip.Store, "data.pkl", ""), Options{}, ErrIncomplete},
		"data after the end": {append(bytes.Clone(stored), make([]byte, 100)...), Options{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			err := load(c.data, &c.o)
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if err != nil {
				checkTyped(t, err)
			}
		})
	}
}

// TestZip64 writes every size and offset as a zip64 field.
func TestZip64(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b, nil)
	w.zw.wideSize, w.zw.wideStart = 1, 1
	writeEverything(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var plain bytes.Buffer
	p := NewWriter(&plain, nil)
	writeEverything(p)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	var views [2][]byte
	for i, data := range [][]byte{b.Bytes(), plain.Bytes()} {
		f, err := OpenBytes(data, &Options{Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		d, err := f.Load(LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		views[i] = jsonOf(t, d.Root())
	}
	if !bytes.Equal(views[0], views[1]) {
		t.Error("zip64 fields change what is read")
	}
	// A zip64 file that is cut can be salvaged like any other.
	cut := b.Bytes()[:bytes.LastIndex(b.Bytes(), []byte("PK\x01\x02"))/2]
	f, err := OpenBytes(cut, &Options{Salvage: true})
	if err != nil {
		t.Fatal(err)
	}
	if d, _ := f.Load(LoadOptions{}); d == nil || d.Root().Kind() != KindDict {
		t.Error("nothing salvaged")
	}
}

func TestWriterRepeatsStrings(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b, nil)
	w.BeginList()
	var refs []Ref
	for i := range 300 {
		refs = append(refs, w.StrRef(fmt.Sprint("id", i)))
	}
	for i := range 300 {
		w.Again(refs[299-i])
	}
	w.EndList()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := OpenBytes(b.Bytes(), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Load(LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		want, again := d.Root().Index(299-i), d.Root().Index(300+i)
		if again.Str() != fmt.Sprint("id", 299-i) || again.Str() != want.Str() {
			t.Fatalf("%d: %q and %q", i, want.Str(), again.Str())
		}
	}
}

func TestWriterAlignsAndRefuses(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b, &WriterOptions{Root: "rollout_12"})
	w.Value(map[string]any{"t": TensorData{DType: Float32, Shape: []int64{1}, Data: []byte{0, 0, 128, 63}}, "u": TensorData{DType: Int8, Shape: []int64{1}, Data: []byte{7}}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	zr, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range zr.File {
		off, err := f.DataOffset()
		if err != nil || off%64 != 0 || !strings.HasPrefix(f.Name, "rollout_12/") {
			t.Errorf("%s at %d: %v", f.Name, off, err)
		}
		rc, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, rc); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	for name, fn := range map[string]func(*Writer){
		"nothing":        func(w *Writer) {},
		"two roots":      func(w *Writer) { w.None(); w.None() },
		"open":           func(w *Writer) { w.BeginList() },
		"wrong end":      func(w *Writer) { w.BeginList(); w.EndDict() },
		"end of nothing": func(w *Writer) { w.EndDict() },
		"key in a list":  func(w *Writer) { w.BeginList(); w.Key("k"); w.EndList() },
		"key alone":      func(w *Writer) { w.BeginDict(); w.Key("k"); w.EndDict() },
		"two keys":       func(w *Writer) { w.BeginDict(); w.Key("k"); w.Key("l"); w.EndDict() },
		"unknown ref":    func(w *Writer) { w.BeginList(); w.StrRef("a"); w.Again(7); w.EndList() },
		"not UTF-8":      func(w *Writer) { w.Str("\xff") },
		"strange type":   func(w *Writer) { w.Value(struct{}{}) },
		"short tensor":   func(w *Writer) { w.Tensor(TensorData{DType: Float32, Shape: []int64{2}, Data: []byte{1}}) },
		"float8 tensor":  func(w *Writer) { w.Tensor(TensorData{DType: Float8E5M2, Shape: []int64{1}, Data: []byte{1}}) },
		"wrong stream": func(w *Writer) {
			w.Tensor(TensorData{DType: Int8, Shape: []int64{2}, Write: func(o io.Writer) error { _, err := o.Write([]byte{1}); return err }})
		},
		"failing stream": func(w *Writer) {
			w.Tensor(TensorData{DType: Int8, Shape: []int64{2}, Write: func(o io.Writer) error { return io.ErrUnexpectedEOF }})
		},
	} {
		w := NewWriter(io.Discard, nil)
		fn(w)
		if err := w.Close(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	w = NewWriter(failingWriter{}, nil)
	w.Str(strings.Repeat("x", 1<<20))
	if err := w.Close(); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a full disk: %v", err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// TestCutEverywhere cuts dumps at many places. Whatever is left, the error says so, nothing breaks,
// and what lies before the cut can be salvaged: ever more of it, the later the cut.
func TestCutEverywhere(t *testing.T) {
	for _, name := range []string{"f15_protocol2", "f15_protocol4", "f16_legacy_nonzip", "f25_malformed_traces", "f12_sample_objects_py312"} {
		data, err := os.ReadFile("testdata/dumps/" + name + ".pt")
		if err != nil {
			t.Fatal(err)
		}
		path := []string{"samples"}
		if name == "f12_sample_objects_py312" {
			path = nil
		}
		step := 53
		if testing.Short() {
			step = 197
		}
		most := 0
		for n := 1; n < len(data)-600; n += step {
			cut := data[:n]
			f, err := OpenBytes(cut, nil)
			if err == nil {
				_, err = f.Load(LoadOptions{})
			}
			if err == nil && name == "f16_legacy_nonzip" {
				continue // only storages are missing
			}
			if !errors.Is(err, ErrIncomplete) && n > 40 {
				t.Fatalf("%s cut at %d: %v", name, n, err)
			}
			f, err = OpenBytes(cut, &Options{Salvage: true})
			if err != nil {
				if n > 400 {
					t.Fatalf("%s cut at %d cannot be opened: %v", name, n, err)
				}
				continue
			}
			complete := 0
			d, err := f.Scan(ScanOptions{Path: path, Fields: []string{"trace", "status"}}, func(e Element) error {
				if e.Partial {
					_ = jsonOf(t, e.Value)
				} else {
					complete++
				}
				return nil
			})
			if err != nil && !errors.Is(err, ErrIncomplete) && !strings.Contains(err.Error(), "leads to") {
				t.Fatalf("%s cut at %d: scan: %v", name, n, err)
			}
			if complete < most {
				t.Fatalf("%s cut at %d: %d complete elements, with less of the file there were %d", name, n, complete, most)
			}
			most = complete
			if d != nil && d.Root().Exists() {
				_, _ = viewOf(t, d.Root())
			}
			if d, _ = f.Load(LoadOptions{}); d != nil {
				_, _ = viewOf(t, d.Root())
			}
		}
		if most < 3 {
			t.Errorf("%s: only %d elements were ever salvaged", name, most)
		}
	}
}

// TestCutDump is a dump whose job was killed while it saved.
func TestCutDump(t *testing.T) {
	const path = "testdata/dumps/d03_rollout_8.pt"
	_, err := Open(path, nil)
	if !errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), "incomplete (no central directory): still being written or cut") {
		t.Fatalf("got %v", err)
	}
	f := openTest(t, path, &Options{Salvage: true})
	if f.Incomplete() == nil {
		t.Error("Incomplete is nil")
	}
	var complete, partial int
	d, err := f.Scan(ScanOptions{Path: []string{"samples"}}, func(e Element) error {
		if e.Partial {
			partial++
		} else {
			complete++
			if e.Get("trace").Get("events").Len() == 0 {
				t.Errorf("sample %d has no events", e.Ordinal)
			}
		}
		return nil
	})
	var cut *Error
	if !errors.As(err, &cut) || !errors.Is(err, ErrIncomplete) || cut.Offset <= 0 || cut.Record == "" {
		t.Fatalf("got %v", err)
	}
	if complete == 0 || partial != 1 || d.Cut() == nil {
		t.Errorf("%d complete, %d partial, cut %v", complete, partial, d.Cut())
	}
	if id, ok := d.Root().Get("rollout_id").Int(); !ok || id != 8 {
		t.Errorf("rollout_id is %d, %v", id, ok)
	}
}

// TestBigEndian reads storages that a big-endian machine wrote.
func TestBigEndian(t *testing.T) {
	tensor := func(class, key string, n int) string {
		return "ctorch._utils\n_rebuild_tensor_v2\n((" + uni("storage") + "ctorch\n" + class + "\n" + uni(key) + uni("cpu") + "K" + string(rune(n)) + "tQK\x00K" + string(rune(n)) + "\x85K\x01\x85\x89NtR"
	}
	pickle := "\x80\x02]" + tensor("FloatStorage", "0", 2) + "a" + tensor("ShortStorage", "1", 2) + "a."
	data := zipOf(t, zip.Store, "a/data.pkl", pickle, "a/byteorder", "big", "a/data/0", "\x3f\x80\x00\x00\xc0\x00\x00\x00", "a/data/1", "\x01\x02\xff\xfe")
	f, err := OpenBytes(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Load(LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t0, err := d.Root().Index(0).Tensor()
	if err != nil {
		t.Fatal(err)
	}
	x, err := t0.Float64s(nil)
	t1, _ := d.Root().Index(1).Tensor()
	y, err2 := t1.Int64s(nil)
	if err != nil || err2 != nil || fmt.Sprint(x, y) != "[1 -2] [258 -2]" || !t0.BigEndian() {
		t.Errorf("%v %v %v %v", x, y, err, err2)
	}
}

// TestLegacyView reads a storage view, which torch before 0.4 wrote.
func TestLegacyView(t *testing.T) {
	pid := "(" + uni("storage") + "ctorch\nIntStorage\n" + uni("7") + uni("cpu") + "K\x04(" + uni("v") + "K\x02K\x02ttQ"
	obj := "\x80\x02ctorch._utils\n_rebuild_tensor\n(" + pid + "K\x00K\x02\x85K\x01\x85tR."
	data := "\x80\x02" + legacyMagic + "\x80\x02M\xe9\x03." + "\x80\x02}" + uni("little_endian") + "\x88s." + obj + "\x80\x02]" + uni("7") + "a." +
		string(binary.LittleEndian.AppendUint64(nil, 4)) + "\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00"
	f, err := OpenBytes([]byte(data), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Load(LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ten, err := d.Root().Tensor()
	if err != nil {
		t.Fatal(err)
	}
	if x, err := ten.Int64s(nil); err != nil || fmt.Sprint(x) != "[3 4]" {
		t.Errorf("%v %v", x, err)
	}
	// A storage that the file ends before.
	f, err = OpenBytes([]byte(data[:len(data)-3]), nil)
	if err != nil {
		t.Fatal(err)
	}
	if d, err = f.Load(LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	ten, err = d.Root().Tensor()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ten.Int64s(nil); !errors.Is(err, ErrIncomplete) {
		t.Errorf("a cut storage: %v", err)
	}
}
