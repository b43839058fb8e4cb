package rollout

import (
	"strconv"

	"github.com/rollscope/rollscope/torchfile"
)

const (
	maxWord = 256  // bytes of an id or a version
	maxText = 4096 // bytes of a name, status or source
	// maxWords bounds how many words are kept for reuse.
	maxWords = 1 << 14
)

// intern keeps one copy of each word of a small vocabulary: span names, statuses, sources.
type intern struct {
	words map[string]string
	bytes int // of all strings that were made
}

// maxWordBytes bounds the memory of all words. Beyond it, words are cut to maxRest bytes: a file may
// refer to one long word from each of a million events.
const (
	maxWordBytes = 64 << 20
	maxRest      = 64
)

// add returns b as a string, without a copy when it was seen before. It is cut to maxText bytes.
func (t *intern) add(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	b = cutText(b, maxText)
	if s, ok := t.words[string(b)]; ok {
		return s
	}
	if t.bytes += len(b); t.bytes > maxWordBytes {
		return string(cutText(b, maxRest))
	}
	s := string(b)
	if len(t.words) < maxWords {
		if t.words == nil {
			t.words = make(map[string]string)
		}
		t.words[s] = s
	}
	return s
}

// text is add for a string, and the Python str of other scalars; "" for anything else. Text beyond
// limit bytes is cut.
func (t *intern) text(v torchfile.Value, limit int) string {
	if b := v.RawStr(); b != nil {
		return t.add(cutText(b, limit))
	}
	return scalarText(v, limit)
}

// cutText cuts text to limit bytes at the boundary of a character; what is cut off is not marked.
func cutText(b []byte, limit int) []byte {
	if len(b) <= limit {
		return b
	}
	for limit > 0 && b[limit]&0xc0 == 0x80 {
		limit--
	}
	return b[:limit]
}

// scalarText is the Python str of a scalar, of an enum's member, and of a short tuple or list of
// scalars; "" for anything else. It is short whatever the file holds.
func scalarText(v torchfile.Value, limit int) string {
	switch v.Kind() {
	case torchfile.KindStr:
		return string(cutText(v.RawStr(), limit))
	case torchfile.KindInt:
		if n, ok := v.Int(); ok {
			return strconv.FormatInt(n, 10)
		}
	case torchfile.KindBool, torchfile.KindFloat, torchfile.KindNPScalar:
		return string(cutText([]byte(v.PyStr()), limit))
	case torchfile.KindBytes:
		if v.Len() <= limit {
			return string(cutText([]byte(v.PyStr()), limit))
		}
	case torchfile.KindGlobal:
		return string(cutText([]byte(v.Class().Name), limit))
	case torchfile.KindTensor, torchfile.KindNDArray:
		if f, _, ok := number(v); ok {
			return strconv.FormatFloat(f, 'g', -1, 64)
		}
	case torchfile.KindObject:
		if e, ok := v.Enum(); ok && e.Value.Exists() && !isList(e.Value) && !isMapping(e.Value) {
			return scalarText(e.Value, limit)
		}
	case torchfile.KindTuple, torchfile.KindList:
		if v.Len() > 16 {
			return ""
		}
		for _, x := range v.All() {
			switch x.Kind() {
			case torchfile.KindStr:
				if x.Len() > limit {
					return ""
				}
			case torchfile.KindInt:
				if _, ok := x.Int(); !ok {
					return ""
				}
			case torchfile.KindBool, torchfile.KindFloat, torchfile.KindNone:
			default:
				return ""
			}
		}
		return string(cutText([]byte(v.PyStr()), limit))
	}
	return ""
}

// arena collects the ids of one trace, so that all of them are one allocation.
type arena struct {
	buf []byte
	out string
}

// span is where a string stands in an arena.
type textSpan struct{ from, to int }

func (a *arena) add(b []byte) textSpan {
	from := len(a.buf)
	a.buf = append(a.buf, b...)
	return textSpan{from, len(a.buf)}
}

// seal makes the collected text strings.
func (a *arena) seal() {
	a.out = string(a.buf)
	a.buf = a.buf[:0]
}

func (a *arena) get(s textSpan) string { return a.out[s.from:s.to] }
