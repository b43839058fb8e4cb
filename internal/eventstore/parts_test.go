package eventstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/event"
)

// threeParts makes a store whose day, which it names, has three parts: rows 0-99, 100-199 and 200-299.
func threeParts(t *testing.T, dir string) (day string) {
	t.Helper()
	now := time.Now().UTC()
	at := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	for part := range 3 {
		s, stop := start(t, testOptions(t, dir))
		var rows []event.Row
		for i := range 100 {
			r := span(at, part*100+i)
			r.Service = fmt.Sprint("part", part)
			r.Add("text", fmt.Sprintf("value %x of row %d", (part*100+i)*7919, part*100+i))
			rows = append(rows, r)
		}
		mustAppend(t, s, rows...)
		mustFlush(t, s)
		stop()
	}
	return at.Format("20060102")
}

// partOf finds the directories of a day's parts, in the order in which they were made.
func partsIn(t *testing.T, dir, kind string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "events", "partitions", "*", kind, "????????????????"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return found
}

func half(b []byte) []byte { return b[:len(b)/2] }

func flipMiddle(b []byte) []byte {
	for i := range min(len(b), 8) {
		b[(len(b)/2+i)%len(b)] ^= 0xff
	}
	return b
}

// TestDamagedParts damages the second of three parts in each way: the store comes up, the rows of the
// others are read, and the part is named and counted.
func TestDamagedParts(t *testing.T) {
	original := t.TempDir()
	day := threeParts(t, original)
	if n := len(partsIn(t, original, dataDir)); n != 3 {
		t.Fatalf("%d parts, not 3", n)
	}
	inPart := func(name string, change func([]byte) []byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			edit(t, filepath.Join(partsIn(t, dir, dataDir)[1], name), change)
		}
	}
	inDay := func(kind, name string, change func([]byte) []byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			edit(t, filepath.Join(filepath.Dir(partsIn(t, dir, dataDir)[1]), "..", kind, name), change)
		}
	}
	rest := func(b []byte) []byte { return nil }
	const all, others = 300, 200
	for _, c := range []struct {
		name   string
		do     func(t *testing.T, dir string)
		rows   int // that must be found
		silent bool
	}{
		{"missing part", func(t *testing.T, dir string) {
			if err := os.RemoveAll(partsIn(t, dir, dataDir)[1]); err != nil {
				t.Fatal(err)
			}
		}, others, false},
		{"metadata cut", inPart("metadata.json", half), others, false},
		{"metadata missing", func(t *testing.T, dir string) {
			remove(t, filepath.Join(partsIn(t, dir, dataDir)[1], "metadata.json"))
		}, others, false},
		{"metaindex cut", inPart("metaindex.bin", half), others, false},
		{"metaindex empty", inPart("metaindex.bin", rest), others, false},
		{"metaindex flipped", inPart("metaindex.bin", flipMiddle), others, true},
		{"index cut", inPart("index.bin", half), others, false},
		{"index flipped", inPart("index.bin", flipMiddle), others, false},
		{"columns header cut", inPart("columns_header.bin", half), others, false},
		{"columns header empty", inPart("columns_header.bin", rest), others, false},
		{"columns header index cut", inPart("columns_header_index.bin", half), others, false},
		{"column names cut", inPart("column_names.bin", half), others, false},
		{"column names flipped", inPart("column_names.bin", flipMiddle), others, false},
		{"column indexes cut", inPart("column_idxs.bin", half), others, false},
		{"timestamps cut", inPart("timestamps.bin", half), others, false},
		{"values cut", inPart("values.bin0", half), others, false},
		{"values empty", inPart("values.bin0", rest), others, false},
		{"values flipped", inPart("values.bin0", flipMiddle), others, true},
		{"bloom filter cut", inPart("bloom.bin0", half), others, false},
		{"messages cut", inPart("message_values.bin", half), others, false},
		{"list of parts broken", inDay(dataDir, "parts.json", func([]byte) []byte { return []byte(`["17`) }), all, false},
		{"list of parts empty", inDay(dataDir, "parts.json", rest), all, false},
		{"list of parts missing", func(t *testing.T, dir string) {
			remove(t, filepath.Join(filepath.Dir(partsIn(t, dir, dataDir)[1]), "parts.json"))
		}, all, false},
		{"index of streams cut", func(t *testing.T, dir string) {
			edit(t, filepath.Join(partsIn(t, dir, indexDir)[0], "metaindex.bin"), half)
		}, all, false},
		{"index of streams missing", func(t *testing.T, dir string) {
			if err := os.RemoveAll(partsIn(t, dir, indexDir)[0]); err != nil {
				t.Fatal(err)
			}
		}, all, false},
		{"index of streams flipped", func(t *testing.T, dir string) {
			edit(t, filepath.Join(partsIn(t, dir, indexDir)[0], "items.bin"), flipMiddle)
		}, all, true},
		{"list of the index broken", inDay(indexDir, "parts.json", func([]byte) []byte { return []byte(`{`) }), all, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(original)); err != nil {
				t.Fatal(err)
			}
			c.do(t, dir)
			s, _ := start(t, testOptions(t, dir))
			// All fields of all rows, and one that looks into the filters.
			seen := map[int]string{}
			read := func() error {
				clear(seen)
				return s.Query(within(t), Query{LogsQL: "*"}, func(fields []event.Field) error {
					n, text := -1, ""
					for _, f := range fields {
						switch f.Name {
						case "n":
							n, _ = strconv.Atoi(f.Value)
						case "text":
							text = f.Value
						}
					}
					seen[n] = text
					return nil
				})
			}
			err := read()
			if errors.Is(err, ErrDown) { // the damage showed after rows had been read
				err = read()
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range 100 {
				ask(t, s, Query{LogsQL: fmt.Sprintf("text:=%q", fmt.Sprintf("value %x of row %d", (i+100)*7919, i+100))})
			}
			found := 0
			for n, text := range seen {
				if n/100 == 1 && c.rows == others {
					continue // of the damaged part
				}
				if want := fmt.Sprintf("value %x of row %d", n*7919, n); text != want {
					t.Errorf("row %d has %q, not %q", n, text, want)
				}
				found++
			}
			if found != c.rows {
				t.Errorf("%d rows of undamaged parts, want %d", found, c.rows)
			}
			st, drops := s.State(), s.Drops()
			if c.silent {
				t.Logf("damaged: %v", st.Damaged)
				return
			}
			if len(st.Damaged) != 1 || !strings.Contains(st.Damaged[0], day) {
				t.Errorf("damaged: %q", st.Damaged)
			}
			if len(drops) != 1 || drops[0].Reason != "damaged_part" {
				t.Errorf("drops: %v", drops)
			}
			if got := ask(t, s, Query{LogsQL: `{service="part0"}`}); len(got) != 100 {
				t.Errorf("%d rows of a stream of 100", len(got))
			}
			// It is still known after another start, and the store takes rows.
			mustAppend(t, s, span(time.Now(), 1000))
			mustFlush(t, s)
			if got := ask(t, s, Query{LogsQL: "n:=1000"}); len(got) != 1 {
				t.Errorf("a new row: %q", got)
			}
		})
	}
}
