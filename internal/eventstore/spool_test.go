package eventstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/prometheus/prometheus/tsdb/wlog"

	"github.com/rollscope/rollscope/internal/event"
)

var silent = slog.New(slog.DiscardHandler)

// testChunk is n rows, numbered from first on in their messages, each at least pad bytes long.
func testChunk(first, n, pad int) chunk {
	var c chunk
	for i := range n {
		c.starts = append(c.starts, len(c.lines))
		r := event.Row{Kind: event.Log, Time: 1e18 + int64(first+i), Message: strconv.Itoa(first + i)}
		msg := []byte(r.Message)
		for j := 0; len(msg) < pad; j++ { // text that does not compress to nothing
			msg = strconv.AppendInt(append(msg, ' '), int64((first+i)*7919+j*104729), 16)
		}
		r.Message = string(msg)
		c.lines = appendRow(c.lines, &r, "now")
	}
	c.minT, c.maxT = 1e18+int64(first), 1e18+int64(first+n-1)
	return c
}

// spooled reads all rows of a spool and returns their numbers by message, which is their order of writing.
func spooled(t *testing.T, s *spool) (got []int, seqs []uint64) {
	t.Helper()
	first, last, _ := s.bounds()
	err := s.read(first, last, func(r record) error {
		seq := r.first
		for line := range bytes.Lines(r.lines) {
			if n := binaryOf(line[len(linePre) : len(linePre)+seqDigits]); n != seq {
				t.Errorf("a line says that it is %d, its record %d", n, seq)
			}
			_, rest, _ := bytes.Cut(line, []byte(`"_msg":"`))
			end := bytes.IndexAny(rest, ` "`)
			n, err := strconv.Atoi(string(rest[:end]))
			if err != nil {
				return err
			}
			got, seqs = append(got, n), append(seqs, seq)
			seq++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(seqs) || len(slices.Compact(slices.Clone(seqs))) != len(seqs) {
		t.Error("the numbers do not increase")
	}
	return got, seqs
}

func binaryOf(digits []byte) (n uint64) {
	for _, c := range digits {
		n = n*10 + uint64(c-'0')
	}
	return n
}

// testSpool writes four segments: 0-9, 10-19, 20-29, 30-39, each row in a record of its own; those of
// segment 1 with rows of 20 KB, that span pages.
func testSpool(t *testing.T, dir string) {
	t.Helper()
	s, damage, err := openSpool(dir, false, silent)
	if err != nil || len(damage) > 0 {
		t.Fatal(err, damage)
	}
	for i := range 40 {
		pad := 100
		if i/10 == 1 {
			pad = 20_000
		}
		if err := s.append([]chunk{testChunk(i, 1, pad)}, func(uint64, chunk) {}); err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 && i < 39 {
			s.mu.Lock()
			err := s.roll()
			s.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

func seg(dir string, n int) string { return wlog.SegmentName(dir, n) }

// offsets are where the fragments of a segment begin.
func offsets(t *testing.T, path string) (list []int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for pos := 0; pos+fragmentHead <= len(b); {
		if b[pos]&fragmentType == fragmentPad {
			pos = (pos/pageSize + 1) * pageSize
			continue
		}
		list = append(list, pos)
		pos += fragmentHead + int(binary.BigEndian.Uint16(b[pos+1:]))
	}
	return list
}

func edit(t *testing.T, path string, change func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(b), 0o666); err != nil {
		t.Fatal(err)
	}
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte { b[at] ^= 0x40; return b }
}

func without(numbers ...int) (want []int) {
	for i := range 40 {
		if !slices.Contains(numbers, i) {
			want = append(want, i)
		}
	}
	return want
}

// TestSpoolDamage damages a spool in each way and says which rows must be left.
func TestSpoolDamage(t *testing.T) {
	for _, c := range []struct {
		name   string
		do     func(t *testing.T, dir string)
		want   []int
		damage int    // places reported
		lost   uint64 // rows reported as missing
	}{
		{"none", func(*testing.T, string) {}, without(), 0, 0},
		// In segment n, fragment 0 is the head and fragment 1+i row i.
		{"flipped bit in a payload", func(t *testing.T, d string) { edit(t, seg(d, 0), flip(offsets(t, seg(d, 0))[4]+fragmentHead+5)) }, without(3), 2, 1},
		{"flipped bit in a checksum", func(t *testing.T, d string) { edit(t, seg(d, 0), flip(offsets(t, seg(d, 0))[4]+3)) }, without(3), 2, 1},
		{"flipped bit in a type", func(t *testing.T, d string) { edit(t, seg(d, 0), flip(offsets(t, seg(d, 0))[4])) }, without(3), 2, 1},
		{"flipped bit in a length", func(t *testing.T, d string) { edit(t, seg(d, 0), flip(offsets(t, seg(d, 0))[4]+1)) }, without(3, 4, 5, 6, 7, 8, 9), 2, 7},
		{"flipped bit in a head", func(t *testing.T, d string) { edit(t, seg(d, 2), flip(offsets(t, seg(d, 2))[0]+fragmentHead+3)) }, without(), 1, 0},
		{"flipped bit in the last row", func(t *testing.T, d string) { edit(t, seg(d, 3), flip(offsets(t, seg(d, 3))[10]+fragmentHead)) }, without(39), 1, 0},
		{"flipped bit in a part of a long row", func(t *testing.T, d string) { edit(t, seg(d, 1), flip(pageSize+100)) }, nil, 2, 0},
		{"zeroed page between pages", func(t *testing.T, d string) {
			edit(t, seg(d, 1), func(b []byte) []byte { clear(b[pageSize : 2*pageSize]); return b })
		}, nil, -1, 0},
		{"zeroed page at the start", func(t *testing.T, d string) { edit(t, seg(d, 0), func(b []byte) []byte { clear(b); return b }) }, without(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), 0, 0},
		{"torn tail", func(t *testing.T, d string) {
			at := offsets(t, seg(d, 3))[10]
			edit(t, seg(d, 3), func(b []byte) []byte { return b[:at+20] })
		}, without(39), 1, 0},
		{"torn head of a row", func(t *testing.T, d string) {
			at := offsets(t, seg(d, 3))[10]
			edit(t, seg(d, 3), func(b []byte) []byte { return b[:at+3] })
		}, without(39), 1, 0},
		{"torn middle segment", func(t *testing.T, d string) {
			at := offsets(t, seg(d, 2))[8]
			edit(t, seg(d, 2), func(b []byte) []byte { return b[:at+9] })
		}, without(27, 28, 29), 2, 3},
		{"cut to nothing", func(t *testing.T, d string) { edit(t, seg(d, 3), func([]byte) []byte { return nil }) }, without(30, 31, 32, 33, 34, 35, 36, 37, 38, 39), 0, 0},
		{"missing segment", func(t *testing.T, d string) { remove(t, seg(d, 1)) }, without(10, 11, 12, 13, 14, 15, 16, 17, 18, 19), 1, 10},
		{"missing first segment", func(t *testing.T, d string) { remove(t, seg(d, 0)) }, without(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), 0, 0},
		{"missing last segment", func(t *testing.T, d string) { remove(t, seg(d, 3)) }, without(30, 31, 32, 33, 34, 35, 36, 37, 38, 39), 0, 0},
		{"a segment twice under another number", func(t *testing.T, d string) { duplicate(t, seg(d, 1), seg(d, 4)) }, without(), 0, 0},
		{"a segment twice under the same number", func(t *testing.T, d string) { duplicate(t, seg(d, 1), filepath.Join(d, "1")) }, without(), 0, 0},
		{"a record of another version", func(t *testing.T, d string) {
			s, _, err := openSpool(d, false, silent)
			if err == nil {
				err = s.wl.Log([]byte{recordRows, recordVersion + 1, 1, 2, 3}, []byte{9, 9}, nil)
			}
			if err == nil {
				err = s.close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}, without(), 3, 0},
		{"files of others", func(t *testing.T, d string) {
			if err := os.WriteFile(filepath.Join(d, "notes.txt"), []byte("x"), 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(seg(d, 4), bytes.Repeat([]byte("not a segment"), 10_000), 0o666); err != nil {
				t.Fatal(err)
			}
		}, without(), 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			testSpool(t, dir)
			c.do(t, dir)
			s, damage, err := openSpool(dir, false, silent)
			if err != nil {
				t.Fatal(err)
			}
			var lost uint64
			for _, d := range damage {
				lost += d.lost
			}
			got, seqs := spooled(t, s)
			want := c.want
			if want == nil { // long rows: those whose pages are whole; the exact list is in the log
				want = got
				if len(got) < 36 || len(got) > 39 || int(lost) != 40-len(got) {
					t.Errorf("%d rows left, %d said to be lost: %v", len(got), lost, got)
				}
				lost = c.lost
			}
			if !slices.Equal(got, want) {
				t.Errorf("left %v, want %v", got, want)
			}
			if c.damage >= 0 && len(damage) != c.damage || lost != c.lost {
				t.Errorf("%d places and %d rows reported, want %d and %d: %v", len(damage), lost, c.damage, c.lost, damage)
			}
			// What comes next must not take numbers that were used, and must be there after another start.
			if err := s.append([]chunk{testChunk(100, 2, 10)}, func(first uint64, _ chunk) {
				if len(seqs) > 0 && first <= seqs[len(seqs)-1] {
					t.Errorf("the number %d is used again", first)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			again, _, err := openSpool(dir, false, silent)
			if err != nil {
				t.Fatal(err)
			}
			defer again.close()
			if got, _ := spooled(t, again); !slices.Equal(got, append(slices.Clone(want), 100, 101)) {
				t.Errorf("after another start: %v", got)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func duplicate(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestSpoolRemove(t *testing.T) {
	dir := t.TempDir()
	testSpool(t, dir)
	s, _, err := openSpool(dir, false, silent)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	_, seqs := spooled(t, s)
	for _, c := range []struct{ upTo, left int }{{5, 40}, {9, 30}, {28, 20}, {29, 10}, {39, 0}} {
		if err := s.remove(seqs[c.upTo], 0); err != nil {
			t.Fatal(err)
		}
		if got, _ := spooled(t, s); len(got) != c.left {
			t.Errorf("confirmed up to %d: %d rows left, want %d", c.upTo, len(got), c.left)
		}
	}
	if n := treeBytes(dir); n != s.size() {
		t.Errorf("%d bytes on disk, the spool says %d", n, s.size())
	}
	// A spool without rows remembers its numbers.
	if _, _, next := s.bounds(); next <= seqs[39] {
		t.Errorf("next %d", next)
	}
}

// Reading may begin and end at any row: of a spool that was written now, and of one that was opened again.
func TestSpoolReadRange(t *testing.T) {
	dir := t.TempDir()
	s, _, err := openSpool(dir, false, silent)
	if err != nil {
		t.Fatal(err)
	}
	const batches, rows = 120, 7 // records of 40 KB on disk, with rows that span pages; three segments
	for i := range batches {
		if err := s.append([]chunk{testChunk(i*rows, 4, 12_000), testChunk(i*rows+4, rows-4, 12_000)}, func(uint64, chunk) {}); err != nil {
			t.Fatal(err)
		}
		if i%50 == 49 {
			if _, err := s.cut(); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(s *spool) {
		t.Helper()
		places := 0
		for _, seg := range s.segments {
			places += len(seg.places)
		}
		if places < 8 {
			t.Errorf("%d places are known in %d bytes", places, s.size())
		}
		begin, _, _ := s.bounds()
		for first := 0; first < batches*rows; first += 5 {
			last := min(first+first%40, batches*rows-1)
			want := first
			err := s.read(begin+uint64(first), begin+uint64(last), func(r record) error {
				for i := range r.rows {
					n := int(r.first-begin) + i
					if n < first || n > last {
						continue
					}
					if n != want {
						return fmt.Errorf("row %d follows on %d", n, want-1)
					}
					want++
				}
				if int(r.last()-begin) < first || int(r.first-begin) > last {
					return fmt.Errorf("rows %d to %d were not asked for", r.first-begin, r.last()-begin)
				}
				return nil
			})
			if err != nil || want != last+1 {
				t.Fatalf("rows %d to %d: %v, ended before %d", first, last, err, want)
			}
		}
	}
	check(s)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	again, _, err := openSpool(dir, false, silent)
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	check(again)
}

// FuzzSegment reads bytes as a segment: no panic, no endless loop, and rows only with a checksum.
func FuzzSegment(f *testing.F) {
	dir := f.TempDir()
	s, _, err := openSpool(dir, false, silent)
	if err != nil {
		f.Fatal(err)
	}
	for i := range 5 {
		if err := s.append([]chunk{testChunk(i*10, 3, 10+i*9000)}, func(uint64, chunk) {}); err != nil {
			f.Fatal(err)
		}
	}
	path := s.livePath()
	if err := s.close(); err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:len(b)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		places := 0
		r := newSegmentReader(bytes.NewReader(b), len(b), func(offset int, reason string) {
			places++
			if offset < 0 || offset > len(b) || reason == "" {
				t.Errorf("damage at %d of %d: %q", offset, len(b), reason)
			}
		})
		n := 0
		for {
			rec, ok := r.next()
			if !ok {
				break
			}
			if n++; n > len(b) {
				t.Fatal("more records than bytes")
			}
			if rec.rows > 0 && rec.last() < rec.first {
				t.Errorf("rows %d to %d", rec.first, rec.last())
			}
		}
	})
}

// FuzzRow writes a row and reads it back.
func FuzzRow(f *testing.F) {
	f.Add("message", "name", "value", int64(1764465304000000000))
	f.Add("a\"b\\c\x00\n", "_time", "\u2028", int64(1e18))
	f.Fuzz(func(t *testing.T, msg, name, value string, at int64) {
		r := event.Row{Kind: event.Log, Time: at, Message: msg}
		r.Add(name, value)
		line := appendRow(nil, &r, "2026-01-01T00:00:00Z")
		putSeq(line, seqMin+7)
		if got, ok := lineTime(line); !ok || got != at {
			t.Fatalf("time %d is read as %d", at, got)
		}
		if bytes.IndexByte(line, '\n') != len(line)-1 {
			t.Fatal("not one line")
		}
		// The two numbers stand without quotes, all else as strings: what the server answers has quotes.
		text := string(line[len(linePre)+seqDigits+1 : len(line)-1])
		_, text, _ = bytesCut(text)
		fields, err := parseRow(nil, "{"+text)
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		got := map[string]string{}
		for _, x := range fields {
			got[x.Name] = x.Value
		}
		if msg != "" && got["_msg"] != msg && !bytes.HasPrefix([]byte(msg), []byte("missing _msg")) {
			t.Errorf("message %q is read as %q", msg, got["_msg"])
		}
		if value != "" && got[fieldName(name)] != value {
			t.Errorf("%q=%q is read as %q", name, value, got[fieldName(name)])
		}
		if len(fieldName(name)) > maxFieldName {
			t.Errorf("a name of %d bytes", len(fieldName(name)))
		}
	})
}

// bytesCut cuts a line behind its _time.
func bytesCut(text string) (before, after string, ok bool) {
	i := 0
	for i < len(text) && text[i] != ',' {
		i++
	}
	if i == len(text) {
		return text, "", false
	}
	return text[:i], text[i+1:], true
}

// FuzzAnswer reads bytes as a line of an answer.
func FuzzAnswer(f *testing.F) {
	f.Add(`{"_time":"2026-01-01T00:00:00Z","a":"b\u00e9\ud83d\ude00\n","c":""}`)
	f.Add(`{}`)
	f.Add(`{"a":"`)
	f.Fuzz(func(t *testing.T, text string) {
		fields, err := parseRow(nil, text)
		if err != nil && fields != nil {
			t.Error("fields beside an error")
		}
		for _, x := range fields {
			if x.Value == "" {
				t.Error("an empty value")
			}
		}
	})
}
