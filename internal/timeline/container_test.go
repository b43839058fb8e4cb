package timeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files of testdata")

// content is a container as plain values: what a reader of any language must have.
type content struct {
	Head    map[string]any   `json:"head"` // without columns and blobs
	Columns map[string][]any `json:"columns"`
	Attrs   json.RawMessage  `json:"attrs"` // of all rows, one array
	Details json.RawMessage  `json:"details"`
	Texts   map[string]any   `json:"texts"`
}

func contentOf(t testing.TB, data []byte) []byte {
	t.Helper()
	c, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	out := content{Columns: map[string][]any{}, Texts: map[string]any{}}
	j, err := json.Marshal(c.Head)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(j, &out.Head); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"columns", "blobs", "attrs", "details", "texts"} {
		delete(out.Head, k)
	}
	for _, col := range c.columns() {
		list := []any{}
		num := func(f float64) {
			if math.IsNaN(f) {
				list = append(list, nil)
				return
			}
			list = append(list, f)
		}
		switch s := col.s.(type) {
		case text:
			data, ends := s.s.view()
			for i := range ends {
				list = append(list, string(strAt(data, ends, i)))
			}
		case raw8:
			each(s.v, num)
		case raw32:
			each(s.v, num)
		case raw64:
			each(s.v, num)
		case ov:
			s.v.each(func(x []int64) {
				for _, x := range x {
					if x == missing {
						list = append(list, nil)
					} else {
						list = append(list, x)
					}
				}
			})
		case uv[uint8]:
			each(s.v, num)
		case uv[uint16]:
			each(s.v, num)
		case uv[uint32]:
			each(s.v, num)
		case uv[int64]:
			each(s.v, num)
		case zv[uint32]:
			each(s.v, num)
		case zv[int32]:
			each(s.v, num)
		case zv[int64]:
			each(s.v, num)
		default:
			t.Fatalf("column %s is a %T", col.name, s)
		}
		out.Columns[col.name] = list
	}
	all := func(blocks []Block) json.RawMessage {
		rows := []json.RawMessage{}
		for _, b := range blocks {
			r, err := c.readBlock(b)
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, r...)
		}
		j, err := json.Marshal(rows)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	out.Attrs, out.Details = all(c.Head.Attrs), all(c.Head.Details)
	for _, b := range c.Head.Texts {
		raw, err := inflate(c.blobs.list[b.Blob], nil)
		if err != nil {
			t.Fatal(err)
		}
		var texts []map[string]any
		if err := json.Unmarshal(raw, &texts); err != nil {
			t.Fatal(err)
		}
		for i, r := range b.Rows {
			out.Texts[string(appendNumber(nil, float64(r)))] = texts[i]
		}
	}
	b, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

func each[T uint8 | uint16 | uint32 | int32 | int64 | float32 | float64](v *vec[T], fn func(float64)) {
	v.each(func(x []T) {
		for _, x := range x {
			fn(float64(x))
		}
	})
}

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (make it with -update)", err)
	}
	if !bytes.Equal(got, want) {
		i := 0
		for i < len(got) && i < len(want) && got[i] == want[i] {
			i++
		}
		t.Errorf("%s differs from byte %d on (-update writes it):\n got %.120q\nwant %.120q", path, i, got[i:], want[i:])
	}
}

// goldenContainers are made by hand here; those of dumps are in dumps_test.go.
func goldenContainers(t testing.TB) map[string]*Columns {
	empty := NewColumns(Head{Tool: "v0.0.0-test", Dump: Dump{Name: "empty.pt", Kind: "eval", Shape: "dict of samples"}})
	untraced := NewColumns(Head{Tool: "v0.0.0-test", Dump: Dump{Name: "untraced.pt", Kind: "train", Shape: "list"}})
	untraced.Add(handmadeRows(t)[1])
	many := NewColumns(Head{Tool: "v0.0.0-test", Dump: Dump{Name: "many.pt", Kind: "train", Shape: "dict of samples"}})
	for _, r := range fleetRows(600, 12) { // several attribute blocks, columns with blobs of their own
		many.Add(r)
	}
	return map[string]*Columns{"hand": handmade(t), "empty": empty, "untraced": untraced, "many": many}
}

func TestGoldenContainers(t *testing.T) {
	for name, c := range goldenContainers(t) {
		t.Run(name, func(t *testing.T) {
			b := encode(t, c)
			golden(t, "container/"+name+".rtc", b)
			if name != "many" {
				golden(t, "container/"+name+".json", contentOf(t, b))
			}
		})
	}
}

// TestDecodeGivesWhatWasEncoded decodes, encodes again and compares bytes and content.
func TestDecodeGivesWhatWasEncoded(t *testing.T) {
	for name, c := range goldenContainers(t) {
		first := encode(t, c)
		if again := encode(t, c); !bytes.Equal(first, again) {
			t.Errorf("%s: encoding twice gives different bytes", name)
		}
		d, err := Decode(first)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		second := encode(t, d)
		if !bytes.Equal(first, second) {
			t.Errorf("%s: what was decoded is encoded differently", name)
		}
		if !bytes.Equal(contentOf(t, first), contentOf(t, second)) {
			t.Errorf("%s: the content changed", name)
		}
	}
}

// TestDecodeDamaged cuts a container at every length and flips its bytes: an error or a container that
// passes all checks, never a panic.
func TestDecodeDamaged(t *testing.T) {
	whole := encode(t, handmade(t))
	for n := range whole {
		if _, err := Decode(whole[:n]); err == nil {
			t.Fatalf("cut to %d of %d bytes it was read", n, len(whole))
		} else if !errors.Is(err, ErrContainer) {
			t.Fatalf("cut to %d: %v is no ErrContainer", n, err)
		}
	}
	b := bytes.Clone(whole)
	for i := range b {
		for _, x := range []byte{0x01, 0x80} {
			b[i] ^= x
			if c, err := Decode(b); err == nil {
				if i%16 == 0 {
					exercise(c)
				}
			} else if !errors.Is(err, ErrContainer) {
				t.Fatalf("byte %d: %v is no ErrContainer", i, err)
			}
			b[i] ^= x
		}
	}
}

// exercise asks everything of a container that was read.
func exercise(c *Columns) {
	ix := NewIndex(c)
	_ = ask(ix) // an error is fine: attributes are read when asked for
	_ = WritePerfetto(io.Discard, ix, Query{}, 0, 0)
	_, _ = Levels(c, LevelOptions{MaxItems: 1})
}

func FuzzDecode(f *testing.F) {
	for _, c := range goldenContainers(f) {
		b := encode(f, c)
		if len(b) < 1<<16 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Decode(data)
		if err != nil {
			if !errors.Is(err, ErrContainer) {
				t.Fatalf("%v is no ErrContainer", err)
			}
			return
		}
		exercise(c)
		var b bytes.Buffer
		if err := c.Encode(&b); err != nil {
			t.Fatal(err)
		}
		again, err := Decode(b.Bytes())
		if err != nil {
			t.Fatalf("what was decoded and encoded is not read: %v", err)
		}
		if again.Rows() != c.Rows() || again.Items() != c.Items() {
			t.Fatal("rows or items were lost")
		}
	})
}
