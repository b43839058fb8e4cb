package timeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/torchfile"
)

const (
	blockRows  = 256
	blockBytes = 1 << 20   // a block ends with the row that makes it longer
	maxBlock   = 256 << 20 // no block is longer
	maxBlocks  = 8 << 30   // nor all of them together, as a reader takes them
	maxRowJSON = 64 << 20  // attributes of one row; what is beyond is left out and said to be
)

// blockWriter gathers a JSON value per row and compresses them block by block.
type blockWriter struct {
	blocks []Block
	next   int // row that comes next
	buf    []byte
	rows   int // in buf
}

// begin makes room for a row's value, which the caller appends to w.buf.
func (w *blockWriter) begin() {
	if w.rows == 0 {
		w.buf = append(w.buf[:0], '[')
	} else {
		w.buf = append(w.buf, ',')
	}
}

// end completes a row's value; blobs is appended to when a block is full.
func (w *blockWriter) end(blobs *blobs) {
	w.rows++
	w.next++
	if w.rows == blockRows || len(w.buf) >= blockBytes {
		w.flush(blobs)
	}
}

func (w *blockWriter) flush(blobs *blobs) {
	if w.rows == 0 {
		return
	}
	w.buf = append(w.buf, ']')
	w.blocks = append(w.blocks, Block{From: w.next - w.rows, Rows: w.rows, Blob: len(blobs.list)})
	w.buf = blobs.add(w.buf)
	w.rows = 0
	if cap(w.buf) > 4*blockBytes {
		w.buf = nil
	}
}

// flush completes the blocks that are being filled.
func (c *Columns) flush() {
	c.attrs.flush(&c.blobs)
	c.details.flush(&c.blobs)
	c.texts.flush(&c.blobs)
	c.blobs.wait()
	c.Head.Attrs, c.Head.Details, c.Head.Texts = c.attrs.blocks, c.details.blocks, c.texts.blocks
}

// addAttrs appends a row's attributes: an array over its first n items of null or [start, end].
func (c *Columns) addAttrs(row *Row, n int) {
	w := &c.attrs
	w.begin()
	b := append(w.buf, '[')
	start := len(b)
	for i := range row.Items[:n] {
		it := &row.Items[i]
		if i > 0 {
			b = append(b, ',')
		}
		hasStart, hasEnd := hasAttrs(it.StartAttrs), hasAttrs(it.EndAttrs)
		if !hasStart && !hasEnd && it.Attrs == nil {
			b = append(b, "null"...)
			continue
		}
		if len(b)-start > maxRowJSON {
			b = append(b, `[{"…":"not kept: the row has more than 64 MiB of attributes"},null]`...)
			for range n - i - 1 {
				b = append(b, ",null"...)
			}
			break
		}
		b = append(b, '[')
		if it.Attrs != nil {
			b = append(b, it.Attrs...)
		} else {
			b = appendAttrs(b, it.StartAttrs, hasStart)
		}
		b = append(b, ',')
		b = appendAttrs(b, it.EndAttrs, hasEnd)
		b = append(b, ']')
	}
	w.buf = append(b, ']')
	w.end(&c.blobs)
}

// hasAttrs says that there is something to show.
func hasAttrs(v torchfile.Value) bool {
	switch v.Kind() {
	case torchfile.KindInvalid, torchfile.KindNone:
		return false
	case torchfile.KindDict:
		return v.Len() > 0
	}
	return true
}

// appendAttrs appends attributes as an object; what is no dict is the entry "value".
func appendAttrs(b []byte, v torchfile.Value, has bool) []byte {
	if !has {
		return append(b, "null"...)
	}
	if v.Kind() == torchfile.KindDict {
		return appendPlain(b, v, maxAttrs)
	}
	b = append(b, `{"value":`...)
	b = appendPlain(b, v, maxAttrs)
	return append(b, '}')
}

// addDetail appends what the sample panel shows beside the columns.
func (c *Columns) addDetail(s *rollout.Sample) {
	w := &c.details
	w.begin()
	b := append(w.buf, '{')
	first := true
	key := func(k string) {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, '"')
		b = append(b, k...)
		b = append(b, '"', ':')
	}
	if len(s.Reward.Keys) > 0 {
		key("reward")
		b = append(b, '{')
		for i, k := range s.Reward.Keys[:min(len(s.Reward.Keys), len(s.Reward.Parts))] {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendQuoted(b, []byte(clean(k, maxDictEntry)))
			b = append(b, ':')
			b = appendValue(b, s.Reward.Parts[i])
			if len(b)-len(w.buf) > maxAttrs {
				break
			}
		}
		b = append(b, '}')
	} else if s.Reward.Value.State != request.Known && hasAttrs(s.Reward.Raw) {
		key("reward")
		b = appendPlain(b, s.Reward.Raw, maxString)
	}
	for _, x := range []struct {
		key, text string
	}{{"dataset", s.Dataset}, {"session", s.SessionID}} {
		if x.text != "" {
			key(x.key)
			b = appendQuoted(b, []byte(clean(x.text, maxString)))
		}
	}
	if len(s.WeightVersions) > 0 {
		key("weight_versions")
		b = append(b, '[')
		for i, v := range s.WeightVersions[:min(len(s.WeightVersions), 64)] {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendQuoted(b, []byte(clean(v, maxDictEntry)))
		}
		b = append(b, ']')
	}
	for _, x := range []struct {
		key string
		n   rollout.Int
	}{{"effective_tokens", s.EffectiveLength}, {"cached_tokens", s.CachedTokens}, {"spec_accept", s.SpecAccept}, {"spec_draft", s.SpecDraft}} {
		if x.n.OK {
			key(x.key)
			b = appendSafe(b, x.n.N)
		}
	}
	if s.NonGeneration.State == request.Known {
		key("non_generation_s")
		b = appendFloat(b, s.NonGeneration.V)
	}
	if s.RemoveSample {
		key("removed")
		b = append(b, "true"...)
	}
	if s.Trace.SharedWith >= 0 && s.Trace.SharedWith != s.Ordinal {
		key("shares_trace_with")
		b = strconv.AppendInt(b, int64(s.Trace.SharedWith), 10)
	}
	if m := s.Raw.Field("metadata"); hasAttrs(m) {
		key("metadata")
		b = appendPlain(b, m, maxString)
	}
	if len(s.Problems) > 0 {
		key("problems")
		b = append(b, '[')
		for i, p := range s.Problems {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, `{"code":`...)
			b = appendQuoted(b, []byte(clean(p.Code, maxDictEntry)))
			b = append(b, `,"where":`...)
			b = appendQuoted(b, []byte(clean(p.Where, maxDictEntry)))
			b = append(b, `,"what":`...)
			b = appendQuoted(b, []byte(clean(p.What, maxDictEntry)))
			b = append(b, '}')
		}
		if s.MoreProblems > 0 {
			b = append(b, fmt.Sprintf(`,{"code":"more","where":"","what":"%d more"}`, s.MoreProblems)...)
		}
		b = append(b, ']')
	}
	w.buf = append(b, '}')
	w.end(&c.blobs)
}

func appendValue(b []byte, v request.Value) []byte {
	if v.State == request.Absent {
		return append(b, "null"...)
	}
	return appendFloat(b, v.V)
}

func appendSafe(b []byte, i int64) []byte {
	if i > maxSafe || i < -maxSafe {
		return append(strconv.AppendInt(append(b, '"'), i, 10), '"')
	}
	return strconv.AppendInt(b, i, 10)
}

// textWriter gathers prompts and responses.
type textWriter struct {
	blocks []TextBlock
	rows   []int
	buf    []byte
}

const (
	textRows = 64
	maxText  = 8 << 20 // bytes of a prompt or response
)

// AddText embeds a sample's prompt and response, for a page that cannot ask for them. Rows are named
// by their ordinals; each may be added once. Texts beyond 8 MiB are cut.
func (c *Columns) AddText(ordinal int, prompt, response string) {
	w := &c.texts
	sep := byte(',')
	if len(w.rows) == 0 {
		w.buf, sep = w.buf[:0], '['
	}
	w.buf = append(append(w.buf, sep), `{"prompt":`...)
	w.buf = appendQuoted(w.buf, []byte(clean(prompt, maxText)))
	w.buf = append(w.buf, `,"response":`...)
	w.buf = appendQuoted(w.buf, []byte(clean(response, maxText)))
	w.buf = append(w.buf, '}')
	w.rows = append(w.rows, ordinal)
	if len(w.rows) == textRows || len(w.buf) >= blockBytes {
		w.flush(&c.blobs)
	}
}

func (w *textWriter) flush(blobs *blobs) {
	if len(w.rows) == 0 {
		return
	}
	w.blocks = append(w.blocks, TextBlock{Rows: w.rows, Blob: len(blobs.list)})
	w.buf = blobs.add(append(w.buf, ']'))
	w.rows = nil
}

// Text returns a sample's prompt or response (or any other field) as text: a string as it is, a list
// of messages and anything else as indented JSON, at most limit bytes of it.
func Text(v torchfile.Value, limit int) string {
	switch v.Kind() {
	case torchfile.KindInvalid, torchfile.KindNone:
		return ""
	case torchfile.KindStr:
		b := v.RawStr()
		return clean(string(b[:min(len(b), limit+1)]), limit)
	}
	p := plain{limit: limit, text: limit}
	p.value(v, 0)
	var out bytes.Buffer
	if err := json.Indent(&out, p.dst, "", "  "); err != nil {
		return clean(string(p.dst), limit)
	}
	return clean(out.String(), limit)
}

// SampleText returns a sample's prompt and response, each at most 8 MiB of text, and whether its tokens
// are in the dump.
func SampleText(s *rollout.Sample) (prompt, response string, tokens bool) {
	t := s.Raw.Field("tokens")
	tokens = t.Exists() && t.Kind() != torchfile.KindNone
	return Text(s.Raw.Field("prompt"), maxText), Text(s.Raw.Field("response"), maxText), tokens
}

// readBlock returns the values of the rows of block b of list, as raw JSON.
func (c *Columns) readBlock(b Block) ([]json.RawMessage, error) {
	raw, err := inflate(c.blobs.list[b.Blob], nil)
	if err != nil {
		return nil, bad("attributes from row %d: %w", b.From, err)
	}
	var rows []json.RawMessage
	if err := json.Unmarshal(raw, &rows); err != nil {
		return nil, bad("attributes from row %d: %w", b.From, err)
	}
	if len(rows) != b.Rows {
		return nil, bad("attributes from row %d: %d rows, the head says %d", b.From, len(rows), b.Rows)
	}
	return rows, nil
}
