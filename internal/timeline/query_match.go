package timeline

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// lowerTexts are the texts of a dump in lower case.
type lowerTexts struct {
	names, statuses, sources, labels []string
	trace, rid                       lowerStrs
}

type lowerStrs struct {
	data []byte
	ends []uint32
}

func (ix *Index) lowered() *lowerTexts {
	ix.lowerOnce.Do(func() {
		d := &ix.head.Dicts
		ix.lower = lowerTexts{lowerAll(d.Name), lowerAll(d.Status), lowerAll(d.Source), lowerAll(d.Label),
			lowerArena(ix.traceData, ix.traceEnds), lowerArena(ix.ridData, ix.ridEnds)}
	})
	return &ix.lower
}

func lowerAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.ToLower(s)
	}
	return out
}

func lowerArena(data []byte, ends []uint32) lowerStrs {
	out := lowerStrs{make([]byte, 0, len(data)), make([]uint32, len(ends))}
	for i := range ends {
		s := strAt(data, ends, i)
		ascii := true
		for _, c := range s {
			if c >= utf8.RuneSelf {
				ascii = false
				break
			}
			if c >= 'A' && c <= 'Z' {
				c += 'a' - 'A'
			}
			out.data = append(out.data, c)
		}
		if !ascii {
			from := uint32(0)
			if i > 0 {
				from = out.ends[i-1]
			}
			out.data = append(out.data[:from], bytes.ToLower(s)...)
		}
		out.ends[i] = uint32(len(out.data))
	}
	return out
}

// containing calls mark for each string that holds needle.
func (s lowerStrs) containing(needle string, mark func(i int)) {
	if needle == "" {
		for i := range s.ends {
			mark(i)
		}
		return
	}
	for i, pos := 0, 0; i < len(s.ends); {
		k := bytes.Index(s.data[pos:], []byte(needle))
		if k < 0 {
			return
		}
		pos += k
		for int(s.ends[i]) <= pos {
			i++
		}
		if pos+len(needle) <= int(s.ends[i]) {
			mark(i)
			pos = int(s.ends[i])
			i++
		} else {
			pos++
		}
	}
}

// each calls fn with each string.
func (s lowerStrs) each(fn func(i int, s []byte)) {
	for i := range s.ends {
		fn(i, strAt(s.data, s.ends, i))
	}
}

// match returns for each row whether all terms hold.
func (ix *Index) match(terms []term) ([]bool, error) {
	keep := make([]bool, ix.Rows())
	for i := range keep {
		keep[i] = true
	}
	hit := make([]bool, ix.Rows())
	for _, t := range terms {
		clear(hit)
		if err := ix.holds(t, hit); err != nil {
			return nil, err
		}
		for i := range keep {
			keep[i] = keep[i] && hit[i] != t.not
		}
	}
	return keep, nil
}

// holds sets hit for the rows for which t, not negated, holds.
func (ix *Index) holds(t term, hit []bool) error {
	switch {
	case t.field < numNumbers:
		ix.holdsNumber(t, hit)
		return nil
	case t.field == fAttr:
		return ix.holdsAttr(t, hit)
	case t.field == fFlag:
		for r := range hit {
			if t.flag == len(flagNames)-1 {
				hit[r] = ix.why[r] != 0
			} else {
				hit[r] = ix.flags[r]&(1<<t.flag) != 0
			}
		}
		return nil
	}
	low := ix.lowered()
	test := t.test()
	all := t.field == fWord || t.field == fRegexp
	if t.field == fStatus || all {
		byDict(ix.status, low.statuses, test, hit)
	}
	if t.field == fSource || all {
		byDict(ix.source, low.sources, test, hit)
	}
	if t.field == fLabel || all {
		byDict(ix.label, low.labels, test, hit)
	}
	if t.field == fTrace || all {
		low.trace.find(t, test, func(i int) { hit[i] = true })
	}
	if t.field == fRID || all {
		row := 0
		low.rid.find(t, test, func(q int) {
			for q >= ix.firstReq[row+1] {
				row++
			}
			hit[row] = true
		})
	}
	if t.field == fName || all {
		names := ix.namesOf(t)
		if slices.Contains(names, true) {
			for r := range hit {
				for _, n := range ix.itemName[ix.firstItem[r]:ix.firstItem[r+1]] {
					if names[n] {
						hit[r] = true
						break
					}
				}
			}
		}
	}
	if all && (t.re != nil || numeric(t.text)) {
		var buf []byte
		for r := range hit {
			if hit[r] {
				continue
			}
			buf = appendNumber(buf[:0], float64(ix.ordinal[r]))
			hit[r] = test(string(buf))
			if s := ix.sample[r]; !hit[r] && s != missing {
				buf = appendNumber(buf[:0], float64(s))
				hit[r] = test(string(buf))
			}
		}
	}
	return nil
}

// numeric says that s may be part of an integer.
func numeric(s string) bool {
	for i := range len(s) {
		if c := s[i]; !(c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return true
}

// test returns what t says about one text, which is in lower case.
func (t term) test() func(string) bool {
	switch {
	case t.re != nil:
		return t.re.MatchString
	case t.op == opEqual:
		return func(s string) bool { return s == t.text }
	}
	return func(s string) bool { return strings.Contains(s, t.text) }
}

// find calls mark for each string for which t holds.
func (s lowerStrs) find(t term, test func(string) bool, mark func(i int)) {
	switch {
	case t.re != nil:
		s.each(func(i int, b []byte) {
			if t.re.Match(b) {
				mark(i)
			}
		})
	case t.op == opEqual:
		s.each(func(i int, b []byte) {
			if string(b) == t.text {
				mark(i)
			}
		})
	default:
		s.containing(t.text, mark)
	}
}

func byDict[T uint8 | uint16 | uint32](column []T, dict []string, test func(string) bool, hit []bool) {
	match := make([]bool, len(dict))
	some := false
	for i, s := range dict {
		match[i] = test(s)
		some = some || match[i]
	}
	if !some {
		return
	}
	for r, id := range column {
		if match[id] {
			hit[r] = true
		}
	}
}

// namesOf says for each entry of the dictionary of names whether t holds.
func (ix *Index) namesOf(t term) []bool {
	test := t.test()
	names := ix.lowered().names
	out := make([]bool, len(names))
	for i, s := range names {
		out[i] = test(s)
	}
	return out
}

func (ix *Index) holdsNumber(t term, hit []bool) {
	value := ix.number(t.field)
	if t.op != opContains {
		for r := range hit {
			hit[r] = t.compare(value(r))
		}
		return
	}
	var buf []byte
	for r := range hit {
		if v := value(r); !math.IsNaN(v) {
			buf = appendNumber(buf[:0], v)
			hit[r] = bytes.Contains(buf, []byte(t.text))
		}
	}
}

// compare compares a number with the term's; NaN fails.
func (t term) compare(v float64) bool {
	switch t.op {
	case opEqual:
		return v == t.num
	case opLess:
		return v < t.num
	case opLessEqual:
		return v <= t.num
	case opMore:
		return v > t.num
	case opMoreEqual:
		return v >= t.num
	}
	return false
}

// attrValues are the values that one key has in the attributes of all items.
type attrValues struct {
	rows  []uint32
	nums  []float64 // NaN when the value is no number
	texts []string  // lower case
}

const keptKeys = 16

// attr gathers the values of a key. The first time all attributes are inflated.
func (ix *Index) attr(key string) (*attrValues, error) {
	ix.mu.Lock()
	v, ok := ix.attrs[key]
	ix.mu.Unlock()
	if ok {
		return v, nil
	}
	v = &attrValues{}
	var buf []byte
	for _, b := range ix.head.Attrs {
		piece := ix.c.blobs.list[b.Blob]
		raw, err := inflate(piece, buf)
		if err != nil {
			return nil, bad("attributes from row %d: %w", b.From, err)
		}
		if piece.enc != "none" {
			buf = raw
		}
		err = scanAttrs(raw, key, func(row int, value []byte) {
			if row < b.Rows {
				v.add(uint32(b.From+row), value)
			}
		})
		if err != nil {
			return nil, bad("attributes from row %d: %w", b.From, err)
		}
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if _, ok := ix.attrs[key]; !ok {
		ix.attrs[key] = v
		if ix.keys = append(ix.keys, key); len(ix.keys) > keptKeys {
			delete(ix.attrs, ix.keys[0])
			ix.keys = slices.Delete(ix.keys, 0, 1)
		}
	}
	return v, nil
}

func (v *attrValues) add(row uint32, raw []byte) {
	num, text := math.NaN(), string(raw)
	switch c := raw[0]; {
	case c == '"':
		if bytes.IndexByte(raw, '\\') < 0 {
			text = string(raw[1 : len(raw)-1])
		} else if json.Unmarshal(raw, &text) != nil {
			return
		}
	case c == '-' || c >= '0' && c <= '9':
		var err error
		if num, err = strconv.ParseFloat(text, 64); err != nil {
			return
		}
		text = string(appendNumber(nil, num))
	case c == '{' || c == '[':
		var b bytes.Buffer
		if json.Compact(&b, raw) == nil {
			text = b.String()
		}
	}
	v.rows = append(v.rows, row)
	v.nums = append(v.nums, num)
	v.texts = append(v.texts, strings.ToLower(text))
}

func (ix *Index) holdsAttr(t term, hit []bool) error {
	v, err := ix.attr(t.key)
	if err != nil {
		return err
	}
	test := t.test()
	for i, r := range v.rows {
		switch {
		case hit[r]:
		case t.op == opContains:
			hit[r] = test(v.texts[i])
		case t.isNum && !math.IsNaN(v.nums[i]):
			hit[r] = t.compare(v.nums[i])
		case t.op == opEqual:
			hit[r] = test(v.texts[i])
		}
	}
	return nil
}
