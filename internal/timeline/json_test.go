package timeline

import (
	"bytes"
	"encoding/json"
	"math"
	bigint "math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/torchfile"
)

func TestAppendPlain(t *testing.T) {
	huge := new(bigint.Int).Lsh(bigint.NewInt(1), 80)
	deep := any("x")
	for range 40 {
		deep = []any{deep}
	}
	for _, x := range []struct {
		name string
		v    torchfile.Value
		want string
	}{
		{"nothing", torchfile.Value{}, "null"},
		{"None", pickled(t, nil), "null"},
		{"bool", pickled(t, true), "true"},
		{"int", pickled(t, 12), "12"},
		{"2^53", pickled(t, int64(1)<<53), `"9007199254740992"`},
		{"big", pickled(t, huge), `"1208925819614629174706176"`},
		{"float", pickled(t, 0.1), "0.1"},
		{"whole float", pickled(t, 3.0), "3"},
		{"small", pickled(t, 1e-7), "1e-7"},
		{"large", pickled(t, 1e21), "1e+21"},
		{"tiny", pickled(t, 5e-324), "5e-324"},
		{"NaN", pickled(t, math.NaN()), `"NaN"`},
		{"inf", pickled(t, math.Inf(1)), `"Infinity"`},
		{"-inf", pickled(t, math.Inf(-1)), `"-Infinity"`},
		{"text", pickled(t, "a\"\\\n\t\r\x00\x7f</script>\u2028é😀"), `"a\"\\\n\t\r\u0000\u007f</script>` + "\u2028é😀\""},
		{"list", pickled(t, []any{1, "x", nil}), `[1,"x",null]`},
		{"dict", pickled(t, map[string]any{"a": []any{}}), `{"a":[]}`},
		{"deep", pickled(t, deep), strings.Repeat("[", 16) + `"…"` + strings.Repeat("]", 16)},
	} {
		got := string(appendPlain(nil, x.v, 1<<20))
		if got != x.want {
			t.Errorf("%s: %s, not %s", x.name, got, x.want)
		}
		if !json.Valid([]byte(got)) {
			t.Errorf("%s: %s is no JSON", x.name, got)
		}
	}
}

func TestAppendQuoted(t *testing.T) {
	for s, want := range map[string]string{
		"":                     `""`,
		"a\xed\xa0\xbdb":       `"a\ud83db"`, // a lone surrogate
		"a\xffb\xe2\x82":       "\"a\uFFFDb\uFFFD\uFFFD\"",
		"\xed\xa0":             "\"\uFFFD\uFFFD\"",
		"\U0001F600\x1f\u007f": "\"\U0001F600\\u001f\\u007f\"",
	} {
		got := string(appendQuoted(nil, []byte(s)))
		if got != want || !json.Valid([]byte(got)) {
			t.Errorf("%q is written as %s, not %s", s, got, want)
		}
	}
}

// TestAppendPlainIsBounded gives values whose JSON would be large.
func TestAppendPlainIsBounded(t *testing.T) {
	long := pickled(t, strings.Repeat("é", 10_000))
	if got := appendPlain(nil, long, 1<<20); len(got) > maxString+10 || !json.Valid(got) || !bytes.HasSuffix(got, []byte(`…"`)) {
		t.Errorf("a string of 20,000 bytes takes %d", len(got))
	}
	var b bytes.Buffer
	w := torchfile.NewWriter(&b, nil)
	many := make([]any, 20_000)
	for i := range many {
		many[i] = "some text"
	}
	w.Value(map[string]any{"many": many, "after": 1})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := torchfile.OpenBytes(b.Bytes(), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Load(torchfile.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := appendPlain(nil, d.Root(), 1000); len(got) > 1200 || !json.Valid(got) {
		t.Errorf("%d bytes, valid %v: %.100s ... %s", len(got), json.Valid(got), got, got[max(0, len(got)-100):])
	}
}

// TestAttrsOfDumps checks that every attribute of every dump is JSON, bounded, and that two keys which
// Python tells apart stay two.
func TestAttrsOfDumps(t *testing.T) {
	for _, path := range dumpFiles(t) {
		f := openDump(t, path)
		if f == nil {
			continue
		}
		_, err := rollout.Read(f, rollout.Options{}, func(s *rollout.Sample) error {
			for _, e := range s.Trace.Events {
				j := appendPlain(nil, e.Attrs, maxAttrs)
				if !json.Valid(j) {
					t.Errorf("%s: %.200s is no JSON", path, j)
				}
				if e.Attrs.Kind() != torchfile.KindDict {
					continue
				}
				var m map[string]any
				if err := json.Unmarshal(j, &m); err != nil {
					t.Fatal(err)
				}
				if len(j) < maxAttrs && len(m) < e.Attrs.Len() {
					t.Errorf("%s: %d of %d keys are left: %.300s", path, len(m), e.Attrs.Len(), j)
				}
			}
			return nil
		})
		_ = err // a cut file; TestDumps judges it
	}
}

func TestText(t *testing.T) {
	for _, x := range []struct {
		v     any
		limit int
		want  string
	}{
		{"plain", 100, "plain"},
		{nil, 100, ""},
		{"0123456789", 8, "01234…"},
		{[]any{map[string]any{"role": "user", "content": "hi"}}, 1000, "[\n  {\n    \"content\": \"hi\",\n    \"role\": \"user\"\n  }\n]"},
	} {
		got := Text(pickled(t, x.v), x.limit)
		if m, ok := x.v.([]any); ok && len(m) > 0 { // dicts come in the order of the file
			var a, b any
			if json.Unmarshal([]byte(got), &a) != nil || json.Unmarshal([]byte(x.want), &b) != nil {
				t.Errorf("%q is no JSON", got)
				continue
			}
			ja, _ := json.Marshal(a)
			jb, _ := json.Marshal(b)
			got, x.want = string(ja), string(jb)
		}
		if got != x.want {
			t.Errorf("%v: %q, not %q", x.v, got, x.want)
		}
	}
	long := Text(pickled(t, strings.Repeat("x", 9<<20)), maxText)
	if len(long) != maxText {
		t.Errorf("a long text has %d bytes", len(long))
	}
}

func TestClean(t *testing.T) {
	for _, x := range []struct {
		s     string
		limit int
		want  string
	}{
		{"abc", 3, "abc"},
		{"abcdef", 5, "ab…"},
		{"ab\xff", 10, "ab\uFFFD"},
		{"aé😀b", 8, "aé😀b"},
		{"aé😀bc", 8, "aé…"},
	} {
		got := clean(x.s, x.limit)
		if got != x.want || len(got) > x.limit || !utf8.ValidString(got) {
			t.Errorf("%q to %d bytes is %q, not %q", x.s, x.limit, got, x.want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("aé😀\xff", 6)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 8 || limit > 1<<16 {
			return
		}
		got := clean(s, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("%q to %d is %q", s, limit, got)
		}
		if len(s) <= limit && utf8.ValidString(s) && got != s {
			t.Fatalf("%q became %q", s, got)
		}
		q := appendQuoted(nil, []byte(s))
		if !json.Valid(q) {
			t.Fatalf("%q is written as %q", s, q)
		}
	})
}

func TestDictOverflow(t *testing.T) {
	d := newDict(5)
	ids := []uint32{}
	for _, s := range []string{"", "a", "b", "a", "c", "d", "e"} {
		ids = append(ids, d.id(s))
	}
	want := []uint32{0, 1, 2, 1, 3, 4, 4}
	for i := range want {
		if ids[i] != want[i] {
			t.Fatalf("numbers are %v, not %v of %q", ids, want, d.list)
		}
	}
	if len(d.list) != 5 || d.list[4] != dictFull {
		t.Errorf("entries are %q", d.list)
	}
}
