package timeline

import (
	"strings"
	"unicode/utf8"
)

// vec is a list that grows without copying: a dump's columns are appended to while it is read, and
// the garbage of doubling slices would be most of the memory in use.
type vec[T any] struct {
	full [][]T
	cur  []T
	n    int // elements in full
}

const vecChunk = 1 << 13

func (v *vec[T]) add(x T) {
	if len(v.cur) == cap(v.cur) {
		v.grow()
	}
	v.cur = append(v.cur, x)
}

func (v *vec[T]) grow() {
	size := 64
	if len(v.cur) > 0 {
		v.full = append(v.full, v.cur)
		v.n += len(v.cur)
		size = min(2*cap(v.cur), vecChunk)
	}
	v.cur = make([]T, 0, size)
}

func (v *vec[T]) len() int { return v.n + len(v.cur) }

// each visits the chunks in order. They may be written to.
func (v *vec[T]) each(fn func([]T)) {
	for _, c := range v.full {
		fn(c)
	}
	if len(v.cur) > 0 {
		fn(v.cur)
	}
}

// flat returns all elements as one slice, which it keeps in place of the chunks.
func (v *vec[T]) flat() []T {
	if len(v.full) == 0 {
		return v.cur
	}
	all := make([]T, 0, v.len())
	v.each(func(c []T) { all = append(all, c...) })
	v.set(all)
	return all
}

// set makes x the content.
func (v *vec[T]) set(x []T) { v.full, v.n, v.cur = nil, 0, x }

// strs is a list of strings in one piece of memory.
type strs struct {
	data vec[byte]
	ends vec[uint32]
	size uint32
}

// maxStrs bounds the bytes of a list of strings, so that ends fit; strings beyond are stored empty.
const maxStrs = 1<<31 - 1

func (s *strs) add(x string) {
	if int(s.size)+len(x) > maxStrs {
		x = ""
	}
	for len(x) > 0 {
		if len(s.data.cur) == cap(s.data.cur) {
			s.data.grow()
		}
		room := min(cap(s.data.cur)-len(s.data.cur), len(x))
		s.data.cur = append(s.data.cur, x[:room]...)
		x = x[room:]
		s.size += uint32(room)
	}
	s.ends.add(s.size)
}

func (s *strs) len() int { return s.ends.len() }

// view returns the bytes and the ends of all strings, each in one slice.
func (s *strs) view() (data []byte, ends []uint32) { return s.data.flat(), s.ends.flat() }

// strAt returns string i of what view returned.
func strAt(data []byte, ends []uint32, i int) []byte {
	from := uint32(0)
	if i > 0 {
		from = ends[i-1]
	}
	return data[from:ends[i]]
}

// dict gives each distinct string a number. Number 0 is "".
type dict struct {
	ids   map[string]uint32
	list  []string
	max   int // entries
	bytes int
	full  uint32 // the entry that stands for all that found no room, 0 while there is room
}

const (
	maxDictEntry = 512      // bytes of one entry; longer ones are cut and end in an ellipsis
	maxDictBytes = 32 << 20 // of all entries
	dictFull     = "(not kept: too many)"
)

func newDict(entries int) *dict {
	return &dict{ids: map[string]uint32{"": 0}, list: []string{""}, max: entries}
}

// dictOf returns a dict with the entries of a decoded head.
func dictOf(list []string, entries int) *dict {
	d := newDict(entries)
	for i, s := range list {
		if i == 0 {
			continue
		}
		if _, twice := d.ids[s]; !twice {
			d.ids[s] = uint32(i)
		}
		d.list = append(d.list, s)
		d.bytes += len(s)
		if s == dictFull {
			d.full = uint32(i)
		}
	}
	return d
}

func (d *dict) id(s string) uint32 {
	if id, ok := d.ids[s]; ok {
		return id
	}
	return d.miss(s)
}

func (d *dict) idBytes(s []byte) uint32 {
	if id, ok := d.ids[string(s)]; ok {
		return id
	}
	return d.miss(string(s))
}

func (d *dict) miss(raw string) uint32 {
	s := clean(raw, maxDictEntry)
	if id, ok := d.ids[s]; ok {
		return id
	}
	if d.full != 0 {
		return d.full
	}
	if len(d.list) >= d.max-1 || d.bytes+len(s) > maxDictBytes {
		s = dictFull
	}
	id := uint32(len(d.list))
	d.list = append(d.list, s)
	d.ids[s] = id
	d.bytes += len(s)
	if s == dictFull {
		d.full = id
	}
	return id
}

// clean makes valid UTF-8 of s, of at most limit bytes: what is longer is cut and ends in an ellipsis.
func clean(s string, limit int) string {
	cut := len(s) > limit
	if cut {
		s = wholeRunes(s[:limit])
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD") // which may be longer
	}
	if !cut && len(s) <= limit {
		return s
	}
	return wholeRunes(s[:min(len(s), limit-len("…"))]) + "…"
}

// wholeRunes drops the beginning of a rune from the end of s.
func wholeRunes(s string) string {
	for i := 1; i < utf8.UTFMax && i <= len(s); i++ {
		if tail := s[len(s)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRuneInString(tail) {
				return s[:len(s)-i]
			}
			break
		}
	}
	return s
}
