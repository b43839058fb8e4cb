package torchfile

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// python finds an interpreter that has torch.
func python(t *testing.T) string {
	t.Helper()
	for _, p := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(p, "-c", "import sys, importlib.util as u; sys.exit(u.find_spec('torch') is None or u.find_spec('numpy') is None)").Run() == nil {
			return p
		}
	}
	why := "no python3 with torch: apt-get install -y --no-install-recommends python3-torch"
	if os.Getenv("ROLLSCOPE_TEST_STRICT") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}

// compareRandom reads the dumps i.pt of a directory and compares each with the view of it in i.json.
func compareRandom(t *testing.T, dir string) {
	files, _ := filepath.Glob(dir + "/*.pt")
	failed := 0
	for _, name := range files {
		if failed > 5 {
			t.Fatal("and perhaps more")
		}
		want, err := os.ReadFile(strings.TrimSuffix(name, ".pt") + ".json")
		if err != nil {
			t.Fatal(err)
		}
		f, err := Open(name, nil)
		if err != nil {
			t.Error(err)
			failed++
			continue
		}
		for _, fields := range [][]string{nil, {"trace"}} {
			d, err := f.Load(LoadOptions{Path: []string{"samples"}, Fields: fields})
			if err != nil {
				t.Error(err)
				failed++
				continue
			}
			got := jsonOf(t, d.Root())
			if bytes.Equal(got, want) {
				continue
			}
			t.Errorf("%s, fields %v:%s", filepath.Base(name), fields, difference(got, want))
			failed++
		}
		f.Close()
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(name), func(t *testing.T) { readEveryWay(t, b) })
	}
}

// TestPython has torch load what the Writer wrote, and compares what it sees with what we see; and it
// reads random dumps that torch and pickle wrote, and compares each with Python's view of it. They
// hold what the fixtures hold and more, in every protocol and container.
func TestPython(t *testing.T) {
	py := python(t)
	var names []string
	write := func(name string, fn func(*Writer)) {
		path := filepath.Join(t.TempDir(), name+".pt")
		out, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := NewWriter(out, &WriterOptions{Root: name})
		fn(w)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		names = append(names, path)
	}
	write("everything", writeEverything)
	write("wide", func(w *Writer) {
		w.zw.wideSize = 1 // every size as of a record beyond 4 GiB
		writeEverything(w)
	})
	path := filepath.Join(t.TempDir(), "slime.pt")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	bw := bufio.NewWriter(out)
	if err := writeSlime(bw, 9); err != nil {
		t.Fatal(err)
	}
	bw.Flush()
	out.Close()
	names = append(names, path)

	random := t.TempDir()
	cmd := exec.Command(py, append([]string{"testdata/python/oracle.py", "both", random, "16", "1"}, names...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	seen, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	lines := bytes.Split(bytes.TrimSpace(seen), []byte("\n"))
	if len(lines) != len(names) {
		t.Fatalf("%d views of %d files", len(lines), len(names))
	}
	for i, name := range names {
		f := openTest(t, name, &Options{Verify: true})
		d, err := f.Load(LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := jsonOf(t, d.Root()); !bytes.Equal(got, lines[i]) {
			t.Errorf("%s: torch sees another object:%s", name, difference(got, lines[i]))
		}
	}
	compareRandom(t, random)
	compareStrings(t, random)
}

// compareStrings compares PyStr of arrays with what Python shows.
func compareStrings(t *testing.T, dir string) {
	b, err := os.ReadFile(dir + "/str.json")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	f := openTest(t, dir+"/str.bin", nil)
	d, err := f.Load(LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range d.Root().Pairs() {
		if got := v.PyStr(); got != want[k.Str()] {
			t.Errorf("str() of %s %s is\n%.600s\nwant\n%.600s", v.Kind(), k.Str(), got, want[k.Str()])
		}
	}
}

func writeEverything(w *Writer) {
	big1, _ := new(big.Int).SetString("-1606938044258990275541962092341162602522202993782792835301376", 10)
	many := make([]int64, 2501)
	for i := range many {
		many[i] = int64(i*i - 1000)
	}
	wide := map[string]any{}
	for i := range 1203 {
		wide[fmt.Sprintf("k%04d", i)] = i
	}
	w.BeginDict()
	for _, kv := range []struct {
		k string
		v any
	}{
		{"none", nil}, {"true", true}, {"false", false}, {"str", "h\u00e9llo \U0001f30d \x00"}, {"long", strings.Repeat("é", 20000)},
		{"bytes", []byte{0, 255, 'a'}}, {"no bytes", []byte{}}, {"float", -0.1}, {"inf", math.Inf(-1)}, {"nan", math.NaN()},
		{"ints", []int64{0, 255, 256, 65535, 65536, -1, math.MaxInt32, math.MinInt32, math.MaxInt32 + 1, math.MinInt64, math.MaxInt64, 1 << 40, -129 << 32}},
		{"big", new(big.Int).Lsh(big.NewInt(1), 64)}, {"big negative", big1}, {"huge", new(big.Int).Lsh(big.NewInt(3), 5000)},
		{"many", many}, {"floats", []float64{1, 2.5}}, {"empty", []any{}}, {"wide", wide}, {"words", []string{"a", "b", "a"}},
		{"nested", map[string]any{"x": []any{map[string]any{"y": []any{nil, 1.5}}}}},
		{"f32", TensorData{DType: Float32, Shape: []int64{2, 1}, Data: []byte{0, 0, 128, 63, 0, 0, 0, 192}}},
		{"scalar", TensorData{DType: Int64, Shape: nil, Data: []byte{7, 0, 0, 0, 0, 0, 0, 0}}},
		{"bool", TensorData{DType: TorchBool, Shape: []int64{3}, Data: []byte{1, 0, 1}}},
		{"bf16", TensorData{DType: BFloat16, Shape: []int64{1, 1, 1, 2}, Data: []byte{128, 63, 0, 64}}},
		{"no elements", TensorData{DType: Int32, Shape: []int64{0, 3}, Data: []byte{}}},
		{"streamed", TensorData{DType: Int16, Shape: []int64{2}, Write: func(o io.Writer) error {
			_, err := o.Write([]byte{1, 0, 255, 255})
			return err
		}}},
	} {
		w.Key(kv.k)
		w.Value(kv.v)
	}
	w.Key("tuple")
	w.BeginTuple()
	w.Int(1)
	w.BeginTuple()
	w.EndTuple()
	w.EndTuple()
	w.Int(5) // a key that is no string
	w.Str("five")
	w.EndDict()
}
