package timeline

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rollscope/rollscope/torchfile"
)

// ref is a stretch of compatJob.buf.
type ref struct{ off, n uint32 }

// compatName is a name of events: few, and written often. It is never changed.
type compatName struct {
	json []byte
	raw  string // the string; str() of anything else
	str  bool
	num  bool
	f    float64
	none bool // not true for Python
}

// compatEvent is an event as the reference normalises it, its parts as JSON.
type compatEvent struct {
	ts          float64
	name        *compatName
	kind        uint8
	attempt     ref
	id, key     ref // key: what ids are compared by
	parent      ref // n == 0: none
	parentKey   ref
	attrs       ref
	pd, pdN     int32 // in compatJob.pd, of span ends
	resp, respN int32 // in compatJob.resp
}

const (
	compatPoint = iota
	compatStart
	compatEnd
	compatOther // an end without an id: an orphan
)

// compatPD is a phase of an end's attributes that has a positive duration.
type compatPD struct {
	key   uint8
	value ref
}

// compatResp is a response_length in attributes; nested ones count for points only.
type compatResp struct {
	n      int64
	big    *big.Int // instead of n where that is too small
	nested bool
}

// compatJob is a sample on its way from the reader to the builder. Nothing in it refers to the file.
type compatJob struct {
	at      int
	buf     []byte
	events  []compatEvent
	pd      []compatPD
	resp    []compatResp
	skipped int

	index, group, source, status, label, reward, traceID, attempt ref
}

func (j *compatJob) reset() {
	big := cap(j.buf) > 1<<22 || cap(j.events) > 1<<16
	if big {
		*j = compatJob{}
		return
	}
	*j = compatJob{buf: j.buf[:0], events: j.events[:0], pd: j.pd[:0], resp: j.resp[:0]}
}

func (j *compatJob) text(r ref) []byte { return j.buf[r.off : r.off+r.n] }

// compatReader makes jobs of samples.
type compatReader struct {
	json   pyJSON
	names  map[string]*compatName
	mended bool
	left   int64 // bytes of attributes that may still be written, of the whole dump
}

// put renders v into the job.
func (c *compatReader) put(j *compatJob, v torchfile.Value) ref {
	at := len(j.buf)
	c.json.limit = at + compatValue
	j.buf = c.json.value(j.buf, v)
	return ref{uint32(at), uint32(len(j.buf) - at)}
}

// sample reads a sample, and tells whether the reference has a row for it.
func (c *compatReader) sample(j *compatJob, v torchfile.Value, at int) bool {
	c.json = pyJSON{}
	j.at = at
	trace := v.Field("trace")
	if trace.Kind() != torchfile.KindDict {
		return false
	}
	raw := trace.Get("events")
	switch raw.Kind() {
	case torchfile.KindList, torchfile.KindTuple:
	default:
		if truthy(raw) && raw.Kind() != torchfile.KindStr && raw.Kind() != torchfile.KindDict {
			c.mended = true // the reference fails on what it cannot iterate
		}
		return false
	}
	fallback := trace.Get("attempt")
	for _, e := range raw.All() {
		if len(j.buf) > compatBytes { // lists that hold each other many times
			j.skipped++
			c.mended = true
			continue
		}
		if e.Kind() != torchfile.KindDict || !c.event(j, e, fallback) {
			j.skipped++
		}
	}
	if len(j.events) == 0 {
		return false
	}
	index := v.Field("index")
	if index.Exists() {
		j.index = c.scalar(j, index)
	} else {
		from := len(j.buf)
		j.buf = strconv.AppendInt(j.buf, int64(at), 10)
		j.index = ref{uint32(from), uint32(len(j.buf) - from)}
	}
	j.group = c.scalar(j, v.Field("group_index"))
	j.source = c.compact(j, source(v), 64)
	j.status = c.compact(j, v.Field("status"), 64)
	j.label = c.compact(j, v.Field("label"), 256)
	j.reward = c.scalar(j, v.Field("reward"))
	j.traceID = c.put(j, trace.Get("trace_id"))
	j.attempt = c.int(j, fallback)
	return true
}

// scalar renders what the reference writes as it is, numbers of numpy and torch as numbers.
func (c *compatReader) scalar(j *compatJob, v torchfile.Value) ref {
	switch v.Kind() {
	case torchfile.KindNPScalar, torchfile.KindTensor, torchfile.KindNDArray, torchfile.KindObject:
		c.mended = true
	}
	at := len(j.buf)
	c.json.limit = at + compatValue
	j.buf = c.json.number(j.buf, v)
	return ref{uint32(at), uint32(len(j.buf) - at)}
}

// source is the reference's guess of where a sample came from.
func source(v torchfile.Value) torchfile.Value {
	given := func(x torchfile.Value) bool {
		return x.Exists() && !x.IsNone() && (x.Kind() != torchfile.KindStr || x.Len() > 0)
	}
	if s := v.Field("source"); given(s) {
		return s
	}
	m := v.Field("metadata")
	if m.Kind() != torchfile.KindDict {
		return torchfile.Value{}
	}
	for _, k := range [...]string{"source", "source_name"} {
		if s := m.Get(k); given(s) {
			return s
		}
	}
	for k, x := range m.Pairs() {
		name := k.RawStr()
		if k.Kind() != torchfile.KindStr {
			name = []byte(k.PyStr())
		}
		if strings.Contains(strings.ToLower(string(name)), "source") && given(x) {
			return x
		}
	}
	return torchfile.Value{}
}

// compact renders a value, a string of more than max characters cut.
func (c *compatReader) compact(j *compatJob, v torchfile.Value, max int) ref {
	var s []byte
	switch v.Kind() {
	case torchfile.KindStr:
		s = v.RawStr()
	case torchfile.KindGlobal, torchfile.KindObject:
		// A Status of slime is the string that is its value; slime's own to_dict says so.
		if e, ok := v.Enum(); ok && strings.HasSuffix(e.Class.Name, "Status") {
			switch known, isText := e.Known.(string); {
			case e.Value.Kind() == torchfile.KindStr:
				s = e.Value.RawStr()
			case e.HasKnown && isText:
				s = []byte(known)
			default:
				s = []byte(strings.ToLower(e.Name))
			}
			break
		}
		at := len(j.buf)
		if r := c.put(j, v); j.buf[at] != '"' {
			return r
		}
		j.buf = j.buf[:at]
		s = []byte(v.PyStr())
	case torchfile.KindInvalid, torchfile.KindNone, torchfile.KindBool, torchfile.KindInt, torchfile.KindFloat, torchfile.KindList, torchfile.KindTuple, torchfile.KindDict:
		return c.put(j, v)
	default:
		s = []byte(v.PyStr())
	}
	from := len(j.buf)
	cut, n := len(s), 0
	for i := 0; i < len(s); n++ {
		if n == max {
			cut = i
		}
		_, size := pyRune(s[i:])
		i += size
	}
	j.buf = append(j.buf, '"')
	j.buf = appendPyText(j.buf, s[:cut])
	if cut < len(s) {
		j.buf = append(j.buf, "...<truncated:"...)
		j.buf = strconv.AppendInt(j.buf, int64(n), 10)
		j.buf = append(j.buf, '>')
	}
	j.buf = append(j.buf, '"')
	return ref{uint32(from), uint32(len(j.buf) - from)}
}

// truthy is Python's bool(v).
func truthy(v torchfile.Value) bool {
	switch v.Kind() {
	case torchfile.KindInvalid, torchfile.KindNone:
		return false
	case torchfile.KindBool:
		b, _ := v.Bool()
		return b
	case torchfile.KindInt:
		n, ok := v.Int()
		return !ok || n != 0
	case torchfile.KindFloat:
		f, _ := v.Float()
		return f != 0
	case torchfile.KindStr, torchfile.KindBytes, torchfile.KindByteArray, torchfile.KindList, torchfile.KindTuple, torchfile.KindDict, torchfile.KindSet, torchfile.KindFrozenSet:
		return v.Len() > 0
	case torchfile.KindNPScalar:
		f, ok := v.Number()
		return !ok || f != 0
	}
	return true
}

// event normalises an event; false when it has no finite time.
func (c *compatReader) event(j *compatJob, v torchfile.Value, fallback torchfile.Value) bool {
	var typ, name, ts, attempt, id, parent, attrs torchfile.Value
	for k, x := range v.Pairs() {
		switch string(k.RawStr()) {
		case "type":
			typ = x
		case "name":
			name = x
		case "ts":
			ts = x
		case "attempt":
			attempt = x
		case "span_id":
			id = x
		case "parent_span_id":
			parent = x
		case "attrs":
			attrs = x
		}
	}
	t, ok := pyFloat(ts)
	if !ok || !finite(t) {
		c.mended = c.mended || ok
		return false
	}
	e := compatEvent{ts: t, name: c.name(name)}
	if !attempt.Exists() {
		attempt = fallback
	}
	e.attempt = c.int(j, attempt)
	if truthy(id) {
		e.id = c.put(j, id)
		e.key = c.key(j, id, e.id)
	}
	kind := typ.RawStr()
	switch {
	case string(kind) == "span_start" && e.id.n > 0:
		e.kind = compatStart
	case string(kind) == "span_end" && e.id.n > 0:
		e.kind = compatEnd
	case string(kind) == "span_end":
		e.kind = compatOther
		e.id = c.put(j, id)
	}
	if truthy(parent) {
		e.parent = c.put(j, parent)
		e.parentKey = c.key(j, parent, e.parent)
	}
	c.attrs(j, &e, attrs)
	j.events = append(j.events, e)
	return true
}

// pdKeys are the phases that make lanes: the first five of prefill, the others of decode.
var pdKeys = [...]string{
	"pd_prefill_bootstrap_queue_duration", "pd_prefill_bootstrap_duration", "pd_prefill_alloc_wait_duration",
	"pd_prefill_forward_duration", "pd_prefill_transfer_queue_duration",
	"pd_decode_prealloc_duration", "pd_decode_bootstrap_duration", "pd_decode_alloc_wait_duration",
	"pd_decode_transfer_duration", "pd_decode_forward_duration",
}

const pdPrefillKeys = 5

func (c *compatReader) attrs(j *compatJob, e *compatEvent, v torchfile.Value) {
	e.pd, e.resp = int32(len(j.pd)), int32(len(j.resp))
	at := len(j.buf)
	c.json.limit = at + compatValue
	switch {
	case !truthy(v):
		j.buf = append(j.buf, '{', '}')
	case c.left <= 0:
		c.mended = true
		j.buf = append(j.buf, '{', '}')
	case v.Kind() == torchfile.KindDict:
		j.buf = c.json.dict(j.buf, v, func(key []byte, x torchfile.Value, text []byte) { c.attr(j, e, key, x, text) })
	default:
		c.mended = true
		j.buf = c.json.value(j.buf, v)
	}
	e.attrs = ref{uint32(at), uint32(len(j.buf) - at)}
	c.left -= int64(e.attrs.n)
	if len(j.pd) > int(e.pd) {
		// Behind the attributes, so that the texts stay where they are.
		for i := int(e.pd); i < len(j.pd); i++ {
			k := pdKeys[j.pd[i].key]
			from := len(j.buf)
			j.buf = c.json.value(j.buf, v.Get(k))
			j.pd[i].value = ref{uint32(from), uint32(len(j.buf) - from)}
		}
	}
	e.pdN, e.respN = int32(len(j.pd))-e.pd, int32(len(j.resp))-e.resp
}

// attr takes note of what lanes and lengths are made of.
func (c *compatReader) attr(j *compatJob, e *compatEvent, key []byte, v torchfile.Value, text []byte) {
	length := func(v torchfile.Value, nested bool) {
		f, ok := pyNumber(v)
		switch {
		case !ok || !finite(f):
		case math.Abs(f) < 1<<53:
			j.resp = append(j.resp, compatResp{n: int64(f), nested: nested})
		default:
			n, ok := v.BigInt()
			if !ok {
				n, _ = big.NewFloat(f).Int(nil)
			}
			j.resp = append(j.resp, compatResp{big: n, nested: nested})
		}
	}
	switch {
	case len(key) < 10:
	case string(key) == "response_length":
		for n := len(j.resp); n > int(e.resp); n-- { // written twice: the last counts
			if !j.resp[n-1].nested {
				j.resp = append(j.resp[:n-1], j.resp[n:]...)
			}
		}
		length(v, false)
	case string(key) == "start_attrs", string(key) == "end_attrs":
		if v.Kind() == torchfile.KindDict {
			length(v.Get("response_length"), true)
		}
	case e.kind == compatEnd && string(key[:3]) == "pd_":
		for i, k := range pdKeys {
			if string(key) != k {
				continue
			}
			for n := len(j.pd); n > int(e.pd); n-- {
				if j.pd[n-1].key == uint8(i) {
					j.pd = append(j.pd[:n-1], j.pd[n:]...)
				}
			}
			if n, ok := pyNumber(v); ok && n > 0 {
				j.pd = append(j.pd, compatPD{key: uint8(i)})
			}
		}
	}
}

// pyNumber is v when isinstance(v, (int, float)) is true after _json_safe.
func pyNumber(v torchfile.Value) (float64, bool) {
	switch v.Kind() {
	case torchfile.KindBool:
		if b, _ := v.Bool(); b {
			return 1, true
		}
		return 0, true
	case torchfile.KindInt, torchfile.KindFloat:
		return v.Number()
	case torchfile.KindNPScalar:
		if s, err := v.NPScalar(); err == nil && s.Type.Kind == 'f' && s.Type.Size == 8 {
			return s.Number()
		}
	}
	return 0, false
}

// pyFloat is Python's float(v).
func pyFloat(v torchfile.Value) (float64, bool) {
	switch v.Kind() {
	case torchfile.KindFloat:
		return v.Float()
	case torchfile.KindBool:
		return pyNumber(v)
	case torchfile.KindStr:
		s := strings.TrimSpace(string(v.RawStr()))
		if len(s) > 64 || strings.ContainsAny(s, "xXpP_") {
			return 0, false
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil && !math.IsInf(f, 0) {
			return 0, false
		}
		return f, true
	}
	return v.Number()
}

// int renders int(v or 0); what is no integer is 0.
func (c *compatReader) int(j *compatJob, v torchfile.Value) ref {
	from := len(j.buf)
	switch {
	case !truthy(v):
		j.buf = append(j.buf, '0')
	case v.Kind() == torchfile.KindInt:
		j.buf = appendPyInt(j.buf, v)
	case v.Kind() == torchfile.KindStr:
		n, err := strconv.ParseInt(strings.TrimSpace(string(v.RawStr())), 10, 64)
		c.mended = c.mended || err != nil
		j.buf = strconv.AppendInt(j.buf, n, 10)
	default:
		f, ok := pyFloat(v)
		if !ok || !finite(f) || math.Abs(f) >= 1<<63 {
			c.mended = true
			f = 0
		}
		j.buf = strconv.AppendInt(j.buf, int64(f), 10)
	}
	return ref{uint32(from), uint32(len(j.buf) - from)}
}

// key is what an id is compared by: its JSON, with numbers that Python holds equal made so.
func (c *compatReader) key(j *compatJob, v torchfile.Value, text ref) ref {
	switch v.Kind() {
	case torchfile.KindStr, torchfile.KindInt:
		return text
	case torchfile.KindBool, torchfile.KindFloat:
		if f, _ := pyNumber(v); f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			from := len(j.buf)
			j.buf = strconv.AppendInt(j.buf, int64(f), 10)
			return ref{uint32(from), uint32(len(j.buf) - from)}
		}
	case torchfile.KindList, torchfile.KindTuple, torchfile.KindDict:
		c.mended = true // not hashable
	}
	return text
}

// maxCompatName bounds names that are remembered.
const maxCompatName = 256

func (c *compatReader) name(v torchfile.Value) *compatName {
	raw := v.RawStr()
	isStr := v.Kind() == torchfile.KindStr
	if isStr {
		if n, ok := c.names[string(raw)]; ok {
			return n
		}
	}
	n := &compatName{str: isStr, none: !truthy(v)}
	c.json.limit = compatValue
	n.json = c.json.value(nil, v)
	if isStr {
		n.raw = string(raw)
	} else {
		n.f, n.num = pyNumber(v)
		if !v.Exists() {
			n.raw = "None"
		} else {
			n.raw = v.PyStr()
		}
	}
	if isStr && len(raw) <= maxCompatName && utf8.Valid(raw) {
		if c.names == nil || len(c.names) >= maxClassCache {
			c.names = map[string]*compatName{}
		}
		c.names[n.raw] = n
	}
	return n
}
