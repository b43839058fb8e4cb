package timeline

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// WritePerfetto writes what q's rows do between t0 and t1 (units; all when t1 <= t0) in Chrome's trace
// event format, for ui.perfetto.dev and chrome://tracing. Nothing outside of the window is needed to
// read it: spans that run over an edge begin or end there, and say in their args where they really do.
//
// A prompt group is a process, a sample a thread. Spans of one thread nest; those that overlap without
// nesting go to further threads of the sample. Times are microseconds from the timeline's t0, which
// otherData.clock_origin gives.
//
// The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
func WritePerfetto(w io.Writer, ix *Index, q Query, t0, t1 int64) error {
	order, err := ix.Order(q)
	if err != nil {
		return err
	}
	if t1 <= t0 {
		t0, t1 = ix.Extent()
	}
	p := &perfetto{ix: ix, w: bufio.NewWriterSize(w, 1<<16), q: q, t0: t0, t1: t1, pids: map[int64]int{}, nextTID: 1}
	place := make(map[uint32]int, len(order))
	for i, r := range order {
		place[r] = i
	}
	rows := slices.Clone(order)
	slices.Sort(rows) // attributes stand in this order
	p.str(`{"displayTimeUnit":"ms","otherData":`)
	h := ix.head
	other, err := json.Marshal(map[string]any{
		"clock_origin": "ts 0 is " + time.Unix(0, h.T0).UTC().Format(time.RFC3339Nano),
		"t0_ns":        strconv.FormatInt(h.T0, 10),
		"window_us":    []float64{p.micros(t0), p.micros(t1)},
		"dump":         h.Dump.Name, "fingerprint": h.Dump.Fingerprint, "detail": h.Detail, "note": h.Note, "tool": "rollscope " + h.Tool,
	})
	if err != nil {
		return fmt.Errorf("timeline: writing a trace: %w", err)
	}
	p.buf = append(p.buf, other...)
	p.str(",\"traceEvents\":[\n")
	for _, r := range rows {
		if err := p.row(int(r), place[r]); err != nil {
			return err
		}
		if _, err := p.w.Write(p.buf); err != nil {
			return fmt.Errorf("timeline: writing a trace: %w", err)
		}
		p.buf = p.buf[:0]
	}
	p.str("\n]}\n")
	if _, err := p.w.Write(p.buf); err != nil {
		return fmt.Errorf("timeline: writing a trace: %w", err)
	}
	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("timeline: writing a trace: %w", err)
	}
	return nil
}

// maxTracks bounds the threads of one sample; spans beyond are asynchronous events.
const maxTracks = 64

type perfetto struct {
	ix      *Index
	w       *bufio.Writer
	q       Query
	t0, t1  int64
	buf     []byte
	some    bool // an event was written
	pids    map[int64]int
	nextPID int
	nextTID int
	asyncID int

	block  Block // whose attributes are held
	raw    []json.RawMessage
	attrs  []json.RawMessage // of the row at hand
	items  []int
	tracks []track
}

// track is a thread: the ends of the spans that are open, outermost first.
type track struct {
	tid  int
	ends []int64
}

func (p *perfetto) str(s string) { p.buf = append(p.buf, s...) }

func (p *perfetto) micros(units int64) float64 {
	return float64(units) * float64(p.ix.head.UnitNS) / 1e3
}

// begin starts an event.
func (p *perfetto) begin(ph string, pid, tid int) {
	if p.some {
		p.str(",\n")
	}
	p.some = true
	p.str(`{"ph":"`)
	p.str(ph)
	p.str(`","pid":`)
	p.buf = strconv.AppendInt(p.buf, int64(pid), 10)
	p.str(`,"tid":`)
	p.buf = strconv.AppendInt(p.buf, int64(tid), 10)
}

func (p *perfetto) quoted(key, s string) {
	p.str(`,"` + key + `":`)
	p.buf = appendQuoted(p.buf, []byte(s))
}

func (p *perfetto) number(key string, f float64) {
	p.str(`,"` + key + `":`)
	p.buf = appendFloat(p.buf, f)
}

func (p *perfetto) meta(what string, pid, tid int, name string) {
	p.begin("M", pid, tid)
	p.quoted("name", what)
	p.str(`,"args":{"name":`)
	p.buf = appendQuoted(p.buf, []byte(name))
	p.str("}}")
}

func (p *perfetto) sortIndex(what string, pid, tid, index int) {
	p.begin("M", pid, tid)
	p.quoted("name", what)
	p.str(`,"args":{"sort_index":`)
	p.buf = strconv.AppendInt(p.buf, int64(index), 10)
	p.str("}}")
}

// pid is the process of a row's prompt group.
func (p *perfetto) pid(r, place int) int {
	g := p.ix.group[r]
	pid, ok := p.pids[g]
	if ok {
		return pid
	}
	p.nextPID++
	p.pids[g] = p.nextPID
	name := "no group"
	if g != missing {
		name = "group " + strconv.FormatInt(g, 10)
	}
	p.meta("process_name", p.nextPID, 0, name)
	p.sortIndex("process_sort_index", p.nextPID, 0, place)
	return p.nextPID
}

// repeats tells a span of a phase that was placed from its duration: the segments of its request's lanes
// say the same.
func (p *perfetto) repeats(i int) bool {
	f, c := Flags(p.ix.itemFlags[i]), Class(p.ix.itemClass[i])
	return f&Derived != 0 && f&Virtual == 0 && (c == ClassPrefill || c == ClassDecode || c >= ClassPhase)
}

func (p *perfetto) row(r, place int) error {
	ix := p.ix
	p.items = p.items[:0]
	for i := ix.firstItem[r]; i < ix.firstItem[r+1]; i++ {
		if p.repeats(i) {
			continue
		}
		if s := ix.itemStart[i]; s <= p.t1 && s+ix.itemDur[i] >= p.t0 && (!p.q.Attempt.OK || int64(ix.itemAttempt[i]) == p.q.Attempt.N) {
			p.items = append(p.items, i)
		}
	}
	if len(p.items) == 0 {
		return nil
	}
	if err := p.readAttrs(r); err != nil {
		return err
	}
	// Whoever holds others comes before them.
	slices.SortStableFunc(p.items, func(a, b int) int {
		return cmp.Or(cmp.Compare(p.from(a), p.from(b)), cmp.Compare(p.to(b), p.to(a)), cmp.Compare(ix.itemDepth[a], ix.itemDepth[b]))
	})
	pid := p.pid(r, place)
	p.tracks = p.tracks[:0]
	for _, i := range p.items {
		p.item(r, i, pid, place)
	}
	return nil
}

// from and to are an item's edges within the window.
func (p *perfetto) from(i int) int64 { return max(p.t0, p.ix.itemStart[i]) }
func (p *perfetto) to(i int) int64 {
	return min(p.t1, p.ix.itemStart[i]+p.ix.itemDur[i])
}

// thread returns the first track of the row in which a span nests, -1 when there is none.
func (p *perfetto) thread(r, pid, place int, from, to int64) int {
	for k := range p.tracks {
		t := &p.tracks[k]
		for len(t.ends) > 0 && t.ends[len(t.ends)-1] <= from {
			t.ends = t.ends[:len(t.ends)-1]
		}
		if len(t.ends) == 0 || t.ends[len(t.ends)-1] >= to {
			t.ends = append(t.ends, to)
			return t.tid
		}
	}
	if len(p.tracks) == maxTracks {
		return -1
	}
	tid := p.nextTID
	p.nextTID++
	p.meta("thread_name", pid, tid, p.threadName(r, len(p.tracks)))
	p.sortIndex("thread_sort_index", pid, tid, place*maxTracks+len(p.tracks))
	if len(p.tracks) < cap(p.tracks) {
		p.tracks = p.tracks[:len(p.tracks)+1]
		t := &p.tracks[len(p.tracks)-1]
		t.tid, t.ends = tid, append(t.ends[:0], to)
	} else {
		p.tracks = append(p.tracks, track{tid, []int64{to}})
	}
	return tid
}

func (p *perfetto) threadName(r, track int) string {
	ix := p.ix
	name := "row " + strconv.Itoa(int(ix.ordinal[r]))
	if ix.sample[r] != missing {
		name = "sample " + strconv.FormatInt(ix.sample[r], 10) + " (" + name + ")"
	}
	if s := ix.head.Dicts.Status[ix.status[r]]; s != "" {
		name += " " + s
	}
	if track > 0 {
		name += " · " + strconv.Itoa(track+1)
	}
	return name
}

func (p *perfetto) item(r, i, pid, place int) {
	ix := p.ix
	from, to := p.from(i), p.to(i)
	name := ix.head.Dicts.Name[ix.itemName[i]]
	state := State(ix.itemState[i])
	if state == PointEvent || state == OrphanEnd {
		if state == OrphanEnd {
			name += " (end without a start)"
		}
		p.begin("i", pid, p.thread(r, pid, place, from, from))
		p.quoted("s", "t")
		p.common(r, i, name, from)
		p.str("}")
		return
	}
	tid := p.thread(r, pid, place, from, to)
	if tid < 0 {
		p.asyncID++
		for k, ph := range []string{"b", "e"} {
			p.begin(ph, pid, p.tracks[0].tid)
			p.str(`,"id":"` + strconv.Itoa(p.asyncID) + `"`)
			if k == 0 {
				p.common(r, i, name, from)
			} else {
				p.quoted("cat", ix.head.Dicts.Class[ix.itemClass[i]])
				p.quoted("name", name)
				p.number("ts", p.micros(to))
			}
			p.str("}")
		}
		return
	}
	p.begin("X", pid, tid)
	p.common(r, i, name, from)
	p.number("dur", p.micros(to-from))
	p.str("}")
	if ix.firstSeg == nil {
		return
	}
	last := from
	for s := ix.firstSeg[i]; s < ix.firstSeg[i+1]; s++ {
		a, b := max(last, ix.segStart[s]), min(to, ix.segStart[s]+ix.segDur[s])
		if a >= b {
			continue
		}
		class := ix.head.Dicts.Class[ix.segClass[s]]
		p.begin("X", pid, tid)
		p.quoted("cat", class)
		p.quoted("name", class)
		p.number("ts", p.micros(a))
		p.number("dur", p.micros(b-a))
		p.str("}")
		last = b
	}
}

// common writes category, name, time and args.
func (p *perfetto) common(r, i int, name string, ts int64) {
	ix := p.ix
	p.quoted("cat", ix.head.Dicts.Class[ix.itemClass[i]])
	p.quoted("name", name)
	p.number("ts", p.micros(ts))
	p.str(`,"args":{"attempt":`)
	p.buf = strconv.AppendInt(p.buf, int64(ix.itemAttempt[i]), 10)
	start, end := ix.itemStart[i], ix.itemStart[i]+ix.itemDur[i]
	if start < p.t0 {
		p.number("started_us", p.micros(start))
	}
	if end > p.t1 {
		p.number("ends_us", p.micros(end))
	}
	if State(ix.itemState[i]) == Open {
		p.str(`,"open":true`)
		p.quoted("clipped_by", ix.head.Dicts.Clip[ix.c.items.clip.cur[i]])
	}
	if ix.itemFlags[i] != 0 {
		p.number("flags", float64(ix.itemFlags[i]))
	}
	if ix.itemN[i] != 1 {
		p.number("merged", float64(ix.itemN[i]))
	}
	if ix.itemParent[i] < 0 {
		p.sampleArgs(r)
	}
	if q := ix.itemReq[i]; q >= 0 && ix.reqItem[ix.firstReq[r]+int(q)] == int32(i-ix.firstItem[r]) {
		if j, err := json.Marshal(ix.requestDetail(ix.firstReq[r] + int(q))); err == nil {
			p.str(`,"request":`)
			p.buf = append(p.buf, j...)
		}
	}
	if k := i - ix.firstItem[r]; k < len(p.attrs) && !bytes.Equal(p.attrs[k], []byte("null")) {
		p.str(`,"attrs":`)
		p.buf = append(p.buf, wellFormed(p.attrs[k])...)
	}
	p.str("}")
}

func (p *perfetto) sampleArgs(r int) {
	ix, d := p.ix, &p.ix.head.Dicts
	p.str(`,"sample":{"row":` + strconv.Itoa(int(ix.ordinal[r])))
	for _, x := range []struct{ key, text string }{{"status", d.Status[ix.status[r]]}, {"source", d.Source[ix.source[r]]}, {"label", d.Label[ix.label[r]]}} {
		if x.text != "" {
			p.quoted(x.key, x.text)
		}
	}
	if v := ix.reward[r]; v == v {
		p.number("reward", v)
	}
	if v := ix.response[r]; v != missing {
		p.number("response_tokens", float64(v))
	}
	p.str("}")
}

// wellFormed replaces lone surrogates, which not every reader of JSON takes.
func wellFormed(raw json.RawMessage) json.RawMessage {
	if !bytes.Contains(raw, []byte(`\ud`)) && !bytes.Contains(raw, []byte(`\uD`)) {
		return raw
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return json.RawMessage("null")
	}
	out, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return out
}

// readAttrs makes p.attrs those of row r.
func (p *perfetto) readAttrs(r int) error {
	p.attrs = p.attrs[:0]
	if r < p.block.From || r >= p.block.From+p.block.Rows {
		p.block, p.raw = Block{}, nil
		for _, b := range p.ix.head.Attrs {
			if r >= b.From && r < b.From+b.Rows {
				raw, err := p.ix.c.readBlock(b)
				if err != nil {
					return err
				}
				p.block, p.raw = b, raw
				break
			}
		}
	}
	if p.raw == nil {
		return nil
	}
	if err := json.Unmarshal(p.raw[r-p.block.From], &p.attrs); err != nil {
		return bad("attributes of row %d: %w", r, err)
	}
	return nil
}
