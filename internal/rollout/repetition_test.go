package rollout

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/torchfile"
)

// referenceText is text() of make_reference.py.
func referenceText(seed uint64, kind string, length, p int) []byte {
	r := lcg(seed)
	var out []byte
	letters := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(97 + r.below(26))
		}
		return b
	}
	switch kind {
	case "letters":
		for len(out) < length {
			out = append(out, byte(97+r.below(p)))
		}
	case "words":
		words := make([][]byte, p)
		for i := range words {
			words[i] = letters(2 + r.below(8))
		}
		for len(out) < length {
			out = append(append(out, words[r.below(p)]...), ' ')
		}
	case "block":
		block := make([]byte, p)
		for i := range block {
			block[i] = byte(r.below(256))
		}
		for len(out) < length {
			b := bytes.Clone(block)
			if r.below(97) < 40 {
				v := byte(0)
				i := 0
				v, i = 0, 0
				// Python evaluates the right side of b[i] = v first.
				v = byte(r.below(256))
				i = r.below(p)
				b[i] = v
			}
			out = append(out, b...)
		}
	case "bytes":
		for len(out) < length {
			// Python evaluates the condition before the value.
			if r.below(100) < p {
				out = append(out, byte(r.below(256)))
			} else {
				out = append(out, 0)
			}
		}
	}
	return out[:length]
}

func TestSizeEqualsZlib(t *testing.T) {
	var z zlibSizer
	stopped := 0
	for _, c := range readReference(t).Zlib {
		data := referenceText(c.Seed, c.Kind, c.Len, c.P)
		if n, exact := z.size(data, 0); n != c.Size || !exact {
			t.Errorf("%d bytes of %s %d (seed %d): %d, zlib writes %d", c.Len, c.Kind, c.P, c.Seed, n, c.Size)
		}
		// With a limit the verdict is the same.
		n, exact := z.size(data, c.Len/10)
		if exact && n != c.Size || !exact && (n > c.Size || c.Size <= c.Len/10) {
			t.Errorf("%d bytes of %s %d (seed %d): stopped with %d, %v; zlib writes %d", c.Len, c.Kind, c.P, c.Seed, n, exact, c.Size)
		}
		if !exact {
			stopped++
		}
	}
	if stopped < 50 {
		t.Errorf("only %d inputs were decided early", stopped)
	}
}

// strValue is a string as a dump has it, in a file that is mapped.
func strValue(t *testing.T, text string) torchfile.Value {
	t.Helper()
	b := binary.LittleEndian.AppendUint32([]byte("\x80\x02X"), uint32(len(text)))
	path := filepath.Join(t.TempDir(), "text.pkl")
	if err := os.WriteFile(path, append(append(b, text...), '.'), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := torchfile.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	d, err := f.Load(torchfile.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d.Root()
}

func TestRepetition(t *testing.T) {
	prose := string(referenceText(7, "words", 30000, 3000))
	surrogate := "\xed\xa0\x80"
	for _, c := range []struct {
		name, text string
		want, bad  bool
	}{
		{"empty", "", false, false},
		{"10,000 code points are not looked at", strings.Repeat("a", 10000), false, false},
		{"10,001 are", strings.Repeat("a", 10001), true, false},
		{"prose", prose, false, false},
		{"a loop at the end", prose + strings.Repeat("wait, ", 1700), true, false},
		{"a loop that ended", strings.Repeat("wait, ", 3000) + prose[:10000], false, false},
		{"10,000 code points of 3 bytes", strings.Repeat("等", 10000), false, false},
		{"10,001 code points of 3 bytes", strings.Repeat("等", 10001), true, false},
		{"4 bytes", strings.Repeat("😀!", 6000), true, false},
		{"4 bytes and one more", strings.Repeat("😀", 10001), true, false},
		{"10,000 code points of 4 bytes", strings.Repeat("😀", 10000), false, false},
		{"a long loop behind prose", prose + prose + strings.Repeat("等待, ", 9000), true, false},
		{"no valid text, 10,000 code points", strings.Repeat("a"+strings.Repeat("\x80", 5), 10000), false, false},
		{"no valid text, 10,001", strings.Repeat("a"+strings.Repeat("\x80", 5), 10001), true, false},
		{"a surrogate that is looked at", strings.Repeat("a", 10001) + surrogate, false, true},
		{"a surrogate before", surrogate + strings.Repeat("a", 10001), true, false},
		{"a surrogate in a short text", surrogate, false, false},
		{"ED that is none", strings.Repeat("\ud7ff", 10001), true, false},
	} {
		var q repetitionQueue
		var a rolloutAcc
		bad := q.add(strValue(t, c.text), &a, nil)
		q.wait()
		if got := a.repeats == 1; got != c.want || bad != c.bad {
			t.Errorf("%s: %v %v", c.name, got, bad)
		}
	}
}

func TestRepetitionOfManyBatches(t *testing.T) {
	loop, prose := strValue(t, strings.Repeat("wait, ", 2000)), strValue(t, string(referenceText(7, "words", 12000, 3000)))
	var q repetitionQueue
	var all, odd rolloutAcc
	const n = 500
	for i := range n {
		text, second := prose, (*rolloutAcc)(nil)
		if i%5 == 0 {
			text = loop
		}
		if i%2 == 1 {
			second = &odd
		}
		q.add(text, &all, second)
		if i == 77 {
			q.wait()
			if all.repeats != 16 || odd.repeats != 8 {
				t.Fatalf("half way: %d and %d", all.repeats, odd.repeats)
			}
		}
	}
	q.wait()
	q.wait()
	if all.repeats != n/5 || odd.repeats != n/10 {
		t.Errorf("%d of all and %d of the odd ones repeat themselves, expected %d and %d", all.repeats, odd.repeats, n/5, n/10)
	}
}

func FuzzZlibSize(f *testing.F) {
	f.Add([]byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), uint16(300))
	f.Add(referenceText(3, "words", 2000, 40), uint16(1))
	f.Fuzz(func(t *testing.T, data []byte, times uint16) {
		if len(data) > 0 {
			data = bytes.Repeat(data, min(int(times)%64+1, 70000/len(data)+1))
		}
		var a, b zlibSizer
		n, exact := a.size(data, 0)
		if !exact || n < 8 || n > len(data)+len(data)/1000+64 {
			t.Fatalf("%d bytes take %d, %v", len(data), n, exact)
		}
		// A used sizer says the same, and a limit changes only when it stops.
		if m, _ := a.size(data, 0); m != n {
			t.Fatalf("%d, then %d", n, m)
		}
		if m, ok := b.size(data, len(data)/10); ok && m != n || !ok && m > n {
			t.Fatalf("with a limit %d (%v), without %d", m, ok, n)
		}
	})
}

func BenchmarkRepetition(b *testing.B) {
	for _, c := range []struct {
		kind string
		p    int
	}{{"words", 3000}, {"words", 60}, {"words", 3}, {"letters", 1}} {
		text := referenceText(1, c.kind, 30000, c.p)
		b.Run(fmt.Sprintf("%s=%d", c.kind, c.p), func(b *testing.B) {
			var z zlibSizer
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tail, _ := lastCodePoints(text, repetitionWindow)
				z.repeats(tail)
			}
		})
	}
}
