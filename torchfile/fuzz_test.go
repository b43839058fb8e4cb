package torchfile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// tightLimits keep a fuzz run small.
var tightLimits = Limits{MaxMemory: 32 << 20, MaxInflate: 16 << 20, MaxOps: 1 << 19, MaxMemo: 1 << 16, MaxDepth: 100}

func viewOf(t testing.TB, v Value) ([]byte, error) {
	t.Helper()
	var b bytes.Buffer
	err := WriteJSON(&b, v, JSONOptions{MaxBytes: 1 << 16})
	if errors.Is(err, ErrInternal) {
		t.Fatal(err)
	}
	return b.Bytes(), err
}

// readEveryWay reads a file by all entry points and checks that they agree. It returns whether the
// file could be loaded.
func readEveryWay(t testing.TB, data []byte) bool {
	t.Helper()
	f, err := OpenBytes(data, &Options{Limits: tightLimits})
	if err != nil {
		checkTyped(t, err)
		if f, err = OpenBytes(data, &Options{Limits: tightLimits, Salvage: true}); err != nil {
			checkTyped(t, err)
			return false
		}
	}
	d, err := f.Load(LoadOptions{})
	if err != nil {
		checkTyped(t, err)
		f.opts.Salvage = true
		sd, err := f.Load(LoadOptions{})
		if sd != nil {
			checkTyped(t, err)
			_, _ = viewOf(t, sd.Root())
			_ = sd.Root().PyRepr()
		}
		_, err = f.Scan(ScanOptions{Path: []string{"samples"}, Fields: []string{"trace"}}, func(e Element) error {
			_, _ = viewOf(t, e.Value)
			return nil
		})
		if err != nil {
			checkTyped(t, err)
		}
		return false
	}
	root := d.Root()
	whole, err := viewOf(t, root)
	if err != nil {
		checkTyped(t, err)
	}
	_ = root.PyRepr()
	walk(root, 0)
	loaded := err == nil

	// The same with every field of the elements deferred.
	var path []string
	var list Value
	switch root.Kind() {
	case KindList:
		list = root
	case KindDict:
		for k, x := range root.Pairs() {
			if k.Kind() == KindStr && x.Kind() == KindList {
				path, list = []string{k.Str()}, root.Get(k.Str())
				break
			}
		}
	}
	if !list.Exists() || list.Kind() != KindList {
		return loaded
	}
	for _, fields := range [][]string{{"\x00none"}, {"trace"}} {
		dd, err := f.Load(LoadOptions{Path: path, Fields: fields})
		if err != nil {
			if !errors.Is(err, ErrOrder) && !errors.Is(err, ErrLimit) {
				t.Fatalf("Load succeeds, Load with a filter does not: %v", err)
			}
			return loaded
		}
		got, err := viewOf(t, dd.Root())
		if err != nil {
			if loaded && !errors.Is(err, ErrOrder) && !errors.Is(err, ErrLimit) {
				t.Fatalf("a deferred value cannot be read: %v", err)
			}
			return loaded
		}
		if loaded && !bytes.Equal(got, whole) {
			t.Fatalf("deferred fields read differently%s", difference(got, whole))
		}
	}

	// And element by element.
	var want [][]byte
	for _, x := range list.All() {
		j, err := viewOf(t, x)
		if err != nil {
			return loaded
		}
		want = append(want, append([]byte(nil), j...))
	}
	n := 0
	var differ [2][]byte
	sd, err := f.Scan(ScanOptions{Path: path, Fields: []string{"trace"}, Index: true}, func(e Element) error {
		got, err := viewOf(t, e.Value)
		if err != nil {
			if errors.Is(err, ErrOrder) || errors.Is(err, ErrLimit) {
				return err
			}
			t.Fatalf("element %d of a scan: %v", n, err)
		}
		if n >= len(want) || !bytes.Equal(got, want[n]) {
			// Python may change an element after it was complete; the scan must end in ErrOrder then.
			differ = [2][]byte{append([]byte(nil), got...), nil}
			if n < len(want) {
				differ[1] = want[n]
			}
			return errDiffers
		}
		n++
		return nil
	})
	switch {
	case errors.Is(err, errDiffers):
		if _, err := f.Scan(ScanOptions{Path: path, Fields: []string{"trace"}}, func(Element) error { return nil }); err == nil {
			t.Fatalf("element %d of a scan reads differently%s", n, difference(differ[0], differ[1]))
		}
	case err != nil:
		if !errors.Is(err, ErrOrder) && !errors.Is(err, ErrLimit) {
			t.Fatalf("Load succeeds, Scan does not: %v", err)
		}
	case n != len(want):
		t.Fatalf("a scan visits %d of %d elements", n, len(want))
	default:
		for i := range sd.Elements() {
			v, err := sd.Element(i)
			if err != nil {
				if errors.Is(err, ErrLimit) {
					return loaded
				}
				t.Fatalf("element %d again: %v", i, err)
			}
			if got, err := viewOf(t, v); err == nil && !bytes.Equal(got, want[i]) {
				t.Fatalf("element %d reads differently again%s", i, difference(got, want[i]))
			}
		}
	}
	return loaded
}

// difference shows where two views part.
func difference(got, want []byte) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	from := max(0, i-120)
	return fmt.Sprintf("\n got ...%.300s\nwant ...%.300s", got[from:], want[from:])
}

var errDiffers = errors.New("differs")

func checkTyped(t testing.TB, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Sort == nil || errors.Is(err, ErrInternal) {
		t.Fatalf("not a typed error: %v", err)
	}
}

// walk asks a value everything there is to ask.
func walk(v Value, depth int) {
	if depth > 12 {
		return
	}
	v.Number()
	v.Enum()
	if depth < 2 {
		_ = v.PyStr()
	}
	if t, err := v.Tensor(); err == nil {
		_, _ = t.Bytes()
		_, _ = t.Float64s(nil)
	}
	if a, err := v.NDArray(); err == nil {
		_, _ = a.Float64s(nil)
	}
	ints, ok := v.Ints(nil)
	if sum, ok2 := v.SumInts(); ok2 != ok || ok && sum != sumOf(ints) {
		panic("SumInts and Ints differ")
	}
	_, _ = v.Floats(nil)
	n := 0
	for _, x := range v.All() {
		if n++; n > 20 {
			break
		}
		walk(x, depth+1)
	}
	for k, x := range v.Pairs() {
		if n++; n > 40 {
			break
		}
		walk(k, depth+1)
		walk(x, depth+1)
	}
	walkIf(v.State(), depth)
	walkIf(v.Args(), depth)
}

func walkIf(v Value, depth int) {
	if v.Exists() {
		walk(v, depth+4)
	}
}

// picklesOf returns the pickles of the test dumps, and the hand-made hostile ones.
func picklesOf(t testing.TB) map[string][]byte {
	t.Helper()
	out := make(map[string][]byte)
	files, _ := filepath.Glob("testdata/dumps/*.pt")
	for _, name := range files {
		f, err := Open(name, &Options{NoMap: true, Salvage: true})
		if err != nil {
			continue
		}
		if p, err := f.pickle(); err == nil && len(p) < 64<<10 {
			out[filepath.Base(name)] = p
		}
		f.Close()
	}
	for name, p := range hostile {
		out[name] = []byte(p.pickle)
	}
	return out
}

func FuzzPickle(f *testing.F) {
	seeds := picklesOf(f)
	for _, name := range slices.Sorted(maps.Keys(seeds)) {
		f.Add(seeds[name])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 0 && data[0] == 'P' {
			return // FuzzZip's
		}
		readEveryWay(t, data)
	})
}

func FuzzZip(f *testing.F) {
	files, _ := filepath.Glob("testdata/dumps/*.pt")
	for _, name := range files {
		if b, err := os.ReadFile(name); err == nil && len(b) < 16<<10 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { readEveryWay(t, data) })
}

func sumOf(ints []int64) (sum int64) {
	for _, x := range ints {
		sum += x
	}
	return sum
}
