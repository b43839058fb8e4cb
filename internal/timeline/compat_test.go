package timeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/torchfile"
)

const sharedDumps = "../../torchfile/testdata/dumps"

// compatOf is the cache of a dump, and what reading it said.
func compatOf(t testing.TB, path string, salvage bool) (string, CompatStats, error) {
	t.Helper()
	f, err := torchfile.Open(path, &torchfile.Options{Salvage: salvage})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b bytes.Buffer
	st, err := WriteCompat(&b, f, CompatOptions{PtPath: path, GeneratedAt: time.Unix(1_787_000_000, 0), TempDir: t.TempDir()})
	if int64(b.Len()) != st.Bytes {
		t.Errorf("stats say %d bytes, %d were written", st.Bytes, b.Len())
	}
	return b.String(), st, err
}

var compatVolatile = regexp.MustCompile(`"pt_path":"(?:[^"\\]|\\.)*","generated_at":[0-9.e+]+,`)

// The caches of the reference viewer, byte by byte but for the two fields that tell when and where.
// random.pt holds 70 traces made by chance: ids and names of all types, double starts, cycles, clocks
// that go back, numbers and texts that are hard to write.
func TestCompatGolden(t *testing.T) {
	goldens, err := filepath.Glob("testdata/compat/*.json")
	if err != nil || len(goldens) < 26 {
		t.Fatalf("%d golden caches: %v", len(goldens), err)
	}
	for _, g := range goldens {
		name := strings.TrimSuffix(filepath.Base(g), ".json")
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(g)
			if err != nil {
				t.Fatal(err)
			}
			path := ""
			for _, dir := range []string{sharedDumps, "../rollout/testdata/dumps", "testdata/compat"} {
				if p := filepath.Join(dir, name+".pt"); path == "" {
					if _, err := os.Stat(p); err == nil {
						path = p
					}
				}
			}
			got, _, err := compatOf(t, path, false)
			if err != nil {
				t.Fatal(err)
			}
			a, b := compatVolatile.ReplaceAllString(got, ""), compatVolatile.ReplaceAllString(string(want), "")
			if len(a) == len(got) || len(b) == len(want) {
				t.Fatal("no pt_path and generated_at where they belong")
			}
			if a == b {
				return
			}
			at := 0
			for at < min(len(a), len(b)) && a[at] == b[at] {
				at++
			}
			from := max(0, at-200)
			t.Errorf("differs at %d\n got ...%s\nwant ...%s", at, a[from:min(len(a), at+200)], b[from:min(len(b), at+200)])
		})
	}
}

// What the reference dies on, hangs on, or makes invalid JSON of.
func TestCompatBeyondReference(t *testing.T) {
	for _, c := range []struct {
		file          string
		rows, samples int
		has           []string
	}{
		{"c01_attempt_str", 2, 2, []string{`"attempt":0,"start"`}},
		{"c02_attempt_nan", 1, 1, nil},
		{"c03_span_id_list", 1, 1, []string{`"span_id":["a",1],"parent_span_id":"s0"`, `"closed_span_count":2`}},
		{"c04_name_tie", 1, 1, []string{`"name":"x","ts":1787000000.0`, `"name":null,"ts":1787000000.0`}},
		{"c06_parent_cycle_open", 1, 1, []string{`"open_span_count":2`, `"clipped_by":"row_end"`}},
		{"c07_reward_np_float32", 2, 2, []string{`"reward":1.0`, `"reward":0.5`}},
		{"c08_index_np_int64", 1, 1, []string{`"sample_index":3,"group_index":1`}},
		{"c09_reward_tensor", 1, 1, []string{`"reward":1.0`}},
		{"c11_missing_enum", 1, 1, nil},
		{"c12_missing_enum_py312", 1, 1, nil},
		{"c13_missing_namedtuple", 1, 1, nil},
		{"c15_int_5000_digits", 1, 1, []string{`"huge":"1000000`}},
		{"c17_attrs_ndarray", 1, 1, []string{`"end_attrs":"[0 1 2]"`}},
		{"c18_events_int", 0, 1, []string{`"global_start":null,"global_end":null,"rows":[]`}},
		{"f20_nan_inf", 3, 3, []string{`"e2e_latency":"NaN","queue_time":"Infinity","decode_throughput":"-Infinity"`, `"reward":"NaN"`}},
		{"f23_missing_dataclass", 2, 2, nil},
		{"f30_pickle_1dc85516d.pkl", 1, 3, []string{`"row_id":1`}},
		{"f17_torch2_numpy2_layout", 6, 6, nil},
	} {
		t.Run(c.file, func(t *testing.T) {
			got, st, err := compatOf(t, filepath.Join(sharedDumps, c.file+".pt"), false)
			if err != nil {
				t.Fatal(err)
			}
			var doc compatDoc
			if err := json.Unmarshal([]byte(got), &doc); err != nil {
				t.Fatalf("%v in %s", err, got)
			}
			if st.Rows != c.rows || st.Samples != c.samples || len(doc.Rows) != st.Rows {
				t.Errorf("%d rows of %d samples, want %d of %d", st.Rows, st.Samples, c.rows, c.samples)
			}
			for _, text := range c.has {
				if !strings.Contains(got, text) {
					t.Errorf("no %s in %s", text, got)
				}
			}
		})
	}
}

type compatDoc struct {
	SampleCount int `json:"sample_count"`
	Rows        []struct {
		RowID int               `json:"row_id"`
		Items []json.RawMessage `json:"items"`
	} `json:"rows"`
}

func TestCompatCut(t *testing.T) {
	path := filepath.Join(sharedDumps, "c19_truncated_zip.pt")
	got, st, err := compatOf(t, path, true)
	if !errors.Is(err, torchfile.ErrIncomplete) {
		t.Fatalf("error %v, want ErrIncomplete", err)
	}
	var doc compatDoc
	if err := json.Unmarshal([]byte(got), &doc); err != nil {
		t.Fatal(err)
	}
	if st.Rows == 0 || doc.SampleCount != st.Rows || len(doc.Rows) != st.Rows {
		t.Errorf("%d rows, the head says %d: %+v", len(doc.Rows), doc.SampleCount, st)
	}
}

type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

func TestCompatWriteError(t *testing.T) {
	f, err := torchfile.Open(filepath.Join(sharedDumps, "f02_head_pd_children.pt"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := WriteCompat(&failingWriter{left: 1000}, f, CompatOptions{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("error %v", err)
	}
	// A file that cannot be written: the reader stops.
	out, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	out.Close()
	if _, err := WriteCompat(out, f, CompatOptions{}); err == nil {
		t.Error("no error from a closed file")
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here: ", err)
	}
	defer full.Close()
	if _, err := WriteCompat(full, f, CompatOptions{}); err == nil {
		t.Error("no error from a full disk")
	}
}

// Into a file the head comes last, and the cache is the same but for zeros behind generated_at.
func TestCompatFile(t *testing.T) {
	path := filepath.Join(sharedDumps, "f02_head_pd_children.pt")
	want, _, err := compatOf(t, path, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []int{os.O_RDWR, os.O_APPEND | os.O_WRONLY} {
		out, err := os.OpenFile(filepath.Join(t.TempDir(), "cache.json"), mode|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if _, err := out.WriteString("before\n"); err != nil {
			t.Fatal(err)
		}
		f, err := torchfile.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		st, err := WriteCompat(out, f, CompatOptions{PtPath: path, GeneratedAt: time.Unix(1_787_000_000, 0)})
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		got, ok := strings.CutPrefix(string(text), "before\n")
		if !ok || int64(len(got)) != st.Bytes {
			t.Fatalf("%d bytes, stats say %d: %.300s", len(got), st.Bytes, got)
		}
		if zeros := regexp.MustCompile(`(1787000000\.0)0+,`).ReplaceAllString(got, "$1,"); zeros != want {
			t.Errorf("%.400s\nwant %.400s", got, want)
		}
		if mode != os.O_RDWR && got != want {
			t.Error("a file that only appends got a padded head")
		}
	}
}

// pyDump is a pickle of {"samples": [{"trace": {"events": [{"type", "name", "ts": 1.0, "attrs": ATTRS}]}}]},
// where ATTRS are opcodes that leave one value.
func pyDump(attrs string) []byte {
	str := func(s string) string { return "X" + string([]byte{byte(len(s)), 0, 0, 0}) + s }
	one := "G\x3f\xf0\x00\x00\x00\x00\x00\x00"
	event := "}" + str("type") + str("event") + "s" + str("name") + str("x") + "s" + str("ts") + one + "s" + str("attrs") + attrs + "s"
	return []byte("\x80\x02}" + str("samples") + "](}" + str("trace") + "}" + str("events") + "](" + event + "esse" + "s.")
}

func TestCompatHostile(t *testing.T) {
	dag := "]q\x00"
	for i := range byte(60) { // 2^60 lists
		dag = "]q" + string([]byte{i + 1}) + "(" + dag + "h" + string([]byte{i}) + "e"
	}
	for name, attrs := range map[string]string{
		"deep":         "}X\x01\x00\x00\x00a" + strings.Repeat("]", 100_000) + strings.Repeat("a", 99_999) + "s",
		"cycle":        "}q\x00X\x01\x00\x00\x00ah\x00s",
		"double cycle": "}X\x01\x00\x00\x00a]q\x00(h\x00h\x00es",
		"many times":   "}X\x01\x00\x00\x00a" + dag + "s",
	} {
		t.Run(name, func(t *testing.T) {
			f, err := torchfile.OpenBytes(pyDump(attrs), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var b bytes.Buffer
			st, err := WriteCompat(&b, f, CompatOptions{})
			if err != nil || st.Rows != 1 || st.Items != 1 {
				t.Fatalf("%+v, %v", st, err)
			}
			if !bytes.Contains(b.Bytes(), []byte("left out")) {
				t.Error("nothing is left out")
			}
			if b.Len() > 2*compatValue {
				t.Errorf("%d bytes", b.Len())
			}
			if !json.Valid(b.Bytes()) {
				t.Error("no JSON")
			}
		})
	}
}

func FuzzCompat(f *testing.F) {
	for _, name := range []string{"f25_malformed_traces", "f20_nan_inf", "c04_name_tie", "c06_parent_cycle_open", "c03_span_id_list", "c17_attrs_ndarray", "f23_missing_dataclass"} {
		b, err := os.ReadFile(filepath.Join(sharedDumps, name+".pt"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(pyDump("}X\x02\x00\x00\x00pd]q\x00h\x00as"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := torchfile.OpenBytes(data, &torchfile.Options{Salvage: true, Limits: torchfile.Limits{MaxMemory: 1 << 26, MaxInflate: 1 << 26}})
		if err != nil {
			return
		}
		defer file.Close()
		var b bytes.Buffer
		st, err := WriteCompat(&b, file, CompatOptions{PtPath: "x"})
		if b.Len() == 0 {
			if err == nil {
				t.Fatal("nothing, and no error")
			}
			return
		}
		var doc compatDoc
		if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
			t.Fatalf("%v in %.2000s", err, b.String())
		}
		if len(doc.Rows) != st.Rows || doc.SampleCount != st.Rows {
			t.Fatalf("%d rows, %+v", len(doc.Rows), st)
		}
	})
}

func TestSpill(t *testing.T) {
	dir := t.TempDir()
	s := spill{dir: dir}
	var want []byte
	block := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for i := range 40 {
		block[0] = byte('A' + i)
		if err := s.write(block); err != nil {
			t.Fatal(err)
		}
		want = append(want, block...)
	}
	if len(s.mem) >= spillAt {
		t.Errorf("%d bytes in memory", len(s.mem))
	}
	var got bytes.Buffer
	n, err := s.copyTo(&got)
	if err != nil || n != int64(len(want)) || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%d bytes, %v", n, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	s = spill{dir: filepath.Join(dir, "missing")}
	for range 40 {
		if err = s.write(block); err != nil {
			break
		}
	}
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

func TestRoundMicro(t *testing.T) {
	for _, c := range []struct {
		f    float64
		want string
	}{
		{0, "0.0"}, {1, "1.0"}, {1787000000.000078, "1787000000.000078"}, {1787000000.0000781, "1787000000.000078"},
		{0.0078125, "0.007812"}, // a tie goes to the even digit
		{0.0234375, "0.023438"}, {2.5e-6, "3e-06"}, {3.5e-6, "3e-06"}, {1e-7, "0.0"}, {5e-5, "5e-05"},
		{1.0000005, "1.000001"}, {-1.25, "-1.25"}, {-1e-9, "-0.0"}, {123456.7890125, "123456.789012"},
		{1e300, "1e+300"}, {12345678901.1234567, "12345678901.123457"}, {0.999999999, "1.0"}, {1e15 + 0.3, "1000000000000000.2"},
	} {
		if got := string(appendMicro(nil, roundMicro(c.f))); got != c.want {
			t.Errorf("round(%v, 6) = %s, want %s", c.f, got, c.want)
		}
	}
}

func BenchmarkCompat(b *testing.B) {
	f, err := torchfile.Open(filepath.Join(sharedDumps, "f02_head_pd_children.pt"), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	b.ReportAllocs()
	var st CompatStats
	for b.Loop() {
		if st, err = WriteCompat(io.Discard, f, CompatOptions{}); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(st.Bytes)
	}
}
