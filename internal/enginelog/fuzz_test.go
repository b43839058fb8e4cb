package enginelog

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rollscope/rollscope/internal/request"
)

// seeds adds every line of testdata.
func seeds(f *testing.F, add func(line string)) {
	files, _ := filepath.Glob("testdata/*/*.log")
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, line := range strings.Split(string(b), "\n") {
			add(line)
		}
	}
}

// check holds what is true of every record.
func check(t *testing.T, r *Record) {
	if !utf8.ValidString(r.Line) || strings.ContainsAny(r.Line, "\x00\n") {
		t.Fatalf("the line kept is no text of one line: %q", r.Line)
	}
	if r.Repeat < 1 {
		t.Fatalf("repeat %d", r.Repeat)
	}
	for _, f := range r.Fields {
		if f.Name == "" || f.Value == "" {
			t.Fatalf("field %+v", f)
		}
		if strings.HasPrefix(f.Name, "num_") || strings.HasSuffix(f.Name, "_usage") {
			switch strings.ToLower(f.Value) {
			case "nan", "inf", "-inf":
				t.Fatalf("field %+v is no finite number", f)
			}
		}
	}
	if o := r.Request; o != nil {
		if len(o.Aliases) == 0 {
			t.Fatal("an observation of nobody")
		}
		for _, v := range append([]request.Value{o.TTFT, o.ITL, o.E2E, o.Queue, o.Prefill, o.Transfer, o.Decode}, o.Phases[:]...) {
			if v.State == request.Known && (v.V < 0 || v.V > absurd || math.IsNaN(v.V)) {
				t.Fatalf("a duration of %v is known", v.V)
			}
		}
	}
	row := r.Row(Options{Source: "x"})
	seen := map[string]bool{}
	for _, f := range row.Fields {
		if seen[f.Name] || f.Value == "" {
			t.Fatalf("field %s of the row is empty or there twice", f.Name)
		}
		seen[f.Name] = true
	}
}

func FuzzLine(f *testing.F) {
	seeds(f, func(line string) { f.Add([]byte(line), []byte("  File \"x\", line 1"), int64(0)) })
	f.Add([]byte("[rank1]:[E0"), []byte("(a pid=1, ip="), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, a, b []byte, at int64) {
		p := NewParser(Options{Source: "x"})
		for _, line := range [][]byte{a, b, a} {
			if i := strings.IndexByte(string(line), '\n'); i >= 0 {
				line = line[:i]
			}
			if r, ok := p.Line(line, at); ok {
				check(t, &r)
			}
		}
		if r, ok := p.Flush(); ok {
			check(t, &r)
		}
	})
}

func FuzzPythonLiteral(f *testing.F) {
	for _, s := range []string{"{'a': nan, 'b': [1, 2.5, -inf], 'c': np.float64(0.5)}", "f(x=1, y={'z': (1,)})", "<object <a 'b>'> >", "'a' ... 'b'", "[1] ... [2]",
		"\"\\u00e9\\ud83d\\ude00\\x41\\N\"", "'''x'''", "1_000e-5", "{1, 2}", strings.Repeat("[", 100), "tensor(1., device='cuda:0')", "__import__('os').system('x')"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, n, err := readLiteral(s)
		if n < 0 || n > len(s) {
			t.Fatalf("read %d bytes of %d", n, len(s))
		}
		if err == nil && v.kind == absent {
			t.Fatal("no error and no value")
		}
		v.keyText()
	})
}

func FuzzJSON(f *testing.F) {
	seeds(f, func(line string) {
		if strings.HasPrefix(line, "{") {
			f.Add(line)
		}
	})
	f.Fuzz(func(t *testing.T, s string) {
		if _, n, _ := readJSON(s); n < 0 || n > len(s) {
			t.Fatalf("read %d bytes of %d", n, len(s))
		}
		l := lineState{time: 1}
		l.jsonLine("{" + s)
	})
}

func FuzzContainer(f *testing.F) {
	f.Add([]byte(`{"log":"a\n","stream":"stdout","time":"2026-09-13T16:06:04.1Z"}`), []byte("2026-09-13T16:06:05.000000001Z stderr P x"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var u unwrapper
		for _, line := range [][]byte{a, b, a, b} {
			u.line(line)
			if len(u.held) > 2*MaxLine {
				t.Fatalf("%d bytes held", len(u.held))
			}
		}
		u.flush()
	})
}

// FuzzReport: a report of any bytes ends and is JSON without NaN.
func FuzzReport(f *testing.F) {
	seeds(f, func(line string) { f.Add(line + "\n" + line) })
	f.Fuzz(func(t *testing.T, s string) {
		var out strings.Builder
		if _, err := Report(&out, strings.NewReader(s), ReportOptions{JSON: true, Zone: time.UTC}); err != nil {
			t.Fatal(err)
		}
		if _, err := Report(&out, strings.NewReader(s), ReportOptions{ModTime: time.Unix(1e9, 0)}); err != nil {
			t.Fatal(err)
		}
	})
}
