package torchfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"
)

// shared is where the large fixtures are in a development checkout; tests that need them skip
// without it.
const shared = "../../shared/fixtures/dumps"

// slimeClasses is what a caller who knows slime tells the reader.
var slimeClasses = map[string]ClassHint{
	"slime.utils.types.Sample.Status": {Enum: map[string]any{
		"PENDING": "pending", "COMPLETED": "completed", "TRUNCATED": "truncated", "ABORTED": "aborted", "FAILED": "failed"}},
	"http.HTTPStatus":          {Enum: map[string]any{"OK": 200}},
	"uuid.SafeUUID":            {Enum: map[string]any{"unknown": nil}},
	"re.RegexFlag":             {Enum: map[string]any{"IGNORECASE": 2}},
	"urllib.parse.SplitResult": {Fields: []string{"scheme", "netloc", "path", "query", "fragment"}},
}

// The golden files show live Python objects; some of what they show is not in the file.
var goldenExceptions = map[string]string{
	"builtins.type":       "the golden lists the attributes of the class int in that interpreter; the file has only its name",
	"PIL.Image.Image":     "the golden shows the loaded image's attributes; the file has its state [info, mode, size, palette, data]",
	"builtins.ValueError": "the golden omits an exception's arguments; ours keeps them",
}

func openTest(t testing.TB, path string, opts *Options) *File {
	t.Helper()
	f, err := Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func jsonOf(t testing.TB, v Value) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteJSON(&b, v, JSONOptions{}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// goldenDiff compares two decoded JSON values and reports where they differ.
func goldenDiff(at string, got, want any, out *[]string) {
	if reflect.DeepEqual(got, want) {
		return
	}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		if obj, ok := w["$obj"].(map[string]any); ok {
			if _, ok := goldenExceptions[obj["class"].(string)]; ok {
				if checkException(obj["class"].(string), g, obj) {
					return
				}
			}
		}
		keys := map[string]bool{}
		for k := range w {
			keys[k] = true
		}
		for k := range g {
			keys[k] = true
		}
		var sorted []string
		for k := range keys {
			sorted = append(sorted, k)
		}
		sort.Strings(sorted)
		for _, k := range sorted {
			goldenDiff(at+"/"+k, g[k], w[k], out)
		}
		return
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			break
		}
		for i := range w {
			goldenDiff(fmt.Sprintf("%s/%d", at, i), g[i], w[i], out)
		}
		return
	}
	clip := func(v any) string {
		s := fmt.Sprint(v)
		if len(s) > 200 {
			s = s[:200] + "..."
		}
		return s
	}
	*out = append(*out, fmt.Sprintf("%s: got %s, want %s", at, clip(got), clip(want)))
}

func checkException(class string, got, want map[string]any) bool {
	switch class {
	case "builtins.type":
		return got["$global"] == "builtins.int"
	case "PIL.Image.Image":
		obj, _ := got["$obj"].(map[string]any)
		state, _ := obj["state"].([]any)
		live, _ := want["state"].(map[string]any)
		return obj["class"] == class && len(state) == 5 && state[1] == live["mode"] && reflect.DeepEqual(state[2], live["_size"])
	case "builtins.ValueError":
		obj, _ := got["$obj"].(map[string]any)
		args, _ := obj["args"].([]any)
		return obj["class"] == class && len(args) == 2 && args[0] == "boom"
	}
	return false
}

func parseJSON(t *testing.T, b []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("invalid JSON: %v", err)
	}
	return v
}

// TestGolden compares the whole-object view of every dump that has a golden one.
func TestGolden(t *testing.T) {
	type pair struct{ dump, full string }
	var pairs []pair
	goldens, _ := filepath.Glob("testdata/full/*.full.json")
	for _, g := range goldens {
		pairs = append(pairs, pair{"testdata/dumps/" + strings.TrimSuffix(filepath.Base(g), ".full.json") + ".pt", g})
	}
	for _, same := range []string{"f15_protocol3", "f15_protocol4", "f15_protocol5", "f16_legacy_nonzip", "f18_zip_deflated", "f17_torch2_numpy2_layout"} {
		pairs = append(pairs, pair{"testdata/dumps/" + same + ".pt", "testdata/full/f15_protocol2.full.json"})
	}
	more, _ := filepath.Glob(shared + "/full/*.full.json")
	for _, g := range more {
		if _, err := os.Stat("testdata/full/" + filepath.Base(g)); err != nil {
			pairs = append(pairs, pair{shared + "/" + strings.TrimSuffix(filepath.Base(g), ".full.json") + ".pt", g})
		}
	}
	if len(pairs) < 10 {
		t.Fatalf("only %d golden files found", len(pairs))
	}
	for _, p := range pairs {
		for _, how := range []string{"load", "deferred", "scan"} {
			t.Run(filepath.Base(p.dump)+"/"+how, func(t *testing.T) {
				f := openTest(t, p.dump, &Options{Classes: slimeClasses, Verify: true})
				want, err := os.ReadFile(p.full)
				if err != nil {
					t.Fatal(err)
				}
				var got []byte
				path := []string{"samples"}
				if strings.Contains(p.dump, "f12_") {
					path = nil // a bare list
				}
				switch how {
				case "load":
					d, err := f.Load(LoadOptions{})
					if err != nil {
						t.Fatal(err)
					}
					got = jsonOf(t, d.Root())
				case "deferred":
					d, err := f.Load(LoadOptions{Path: path, Fields: []string{"reward"}})
					if err != nil {
						t.Fatal(err)
					}
					got = jsonOf(t, d.Root())
				case "scan":
					d, err := f.Scan(ScanOptions{Path: path, Fields: []string{"trace", "index"}}, func(Element) error { return nil })
					if err != nil {
						t.Fatal(err)
					}
					got = jsonOf(t, d.Root())
				}
				want = bytes.TrimSpace(want)
				if bytes.Equal(got, want) {
					return
				}
				var diffs []string
				goldenDiff("", parseJSON(t, got), parseJSON(t, want), &diffs)
				for i, s := range diffs {
					if i == 20 {
						t.Errorf("... and %d more", len(diffs)-i)
						break
					}
					t.Error(s)
				}
			})
		}
	}
}
