package timeline

import (
	"math"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/torchfile"
)

const (
	maxID      = 256       // bytes of a trace or request id
	maxRowSegs = 1<<8 - 1  // of one item
	maxU16     = 1<<16 - 1 // lanes, depths
)

// maxUnits is the time that is furthest from 1970, either way, so that differences are exact in every
// reader: 142 years.
const maxUnits = 1<<52 - 1

// units are whole units since 1970 of a time in nanoseconds.
func units(ns int64) int64 {
	u := ns / unitNS
	if ns%unitNS < 0 {
		u--
	}
	return max(-maxUnits, min(u, maxUnits))
}

// rel is a time in units from the base.
func (c *Columns) rel(ns int64) int64 { return units(ns) - c.base }

// Add appends a row; it copies all it keeps, so the row may be reused.
func (c *Columns) Add(row *Row) {
	s := row.Sample
	r := &c.rows
	why := row.WhyEmpty
	if why == "" && len(row.Items) == 0 {
		why = "no items"
	}
	empty := why != ""
	if !empty && !c.hasBase {
		c.base, c.hasBase = units(row.Start), true
		c.lo, c.hi = 0, 0
	}
	r.ordinal.add(uint32(s.Ordinal))
	r.index.add(optional(s.Index))
	r.group.add(optional(s.GroupIndex))
	r.rollout.add(optional(s.RolloutID))
	r.status.add(uint8(c.statuses.id(statusText(s))))
	r.why.add(uint8(c.whys.id(why)))
	source := s.Source
	if source == "" {
		source = s.Dataset
	}
	r.source.add(uint16(c.sources.id(source)))
	if row.Label != "" {
		r.label.add(c.labels.id(row.Label))
	} else {
		r.label.add(c.label(s.Raw.Field("label")))
	}
	reward := math.NaN()
	if v, ok := s.Reward.Value.Known(); ok {
		reward = v
	}
	r.reward.add(reward)
	flags := uint16(0)
	if s.Trace.SharedWith >= 0 && s.Trace.Present && s.Trace.SharedWith != s.Ordinal {
		flags |= RowShared
	}
	if len(s.Problems) > 0 {
		flags |= RowProblem
	}
	switch s.Status {
	case rollout.StatusFailed:
		flags |= RowError
	case rollout.StatusAborted:
		flags |= RowAborted
	}
	if empty {
		r.start.add(0)
		r.dur.add(0)
	} else {
		start, end := c.rel(row.Start), c.rel(row.End)
		r.start.add(start)
		r.dur.add(max(0, end-start))
		c.lo, c.hi = min(c.lo, start), max(c.hi, end)
		flags |= c.addItems(row)
	}
	r.attempts.add(uint8(min(max(row.Attempts, 0), 255)))
	r.response.add(optional(s.ResponseLength))
	r.prompt.add(optional(s.PromptTokens))
	r.lanes.add(uint16(min(max(row.Lanes, 0), maxU16)))
	nItems := len(row.Items)
	if empty {
		nItems = 0
	}
	r.items.add(uint32(nItems))
	r.requests.add(uint32(len(s.Requests)))
	r.open.add(uint32(max(row.Open, 0)))
	r.orphans.add(uint32(max(row.Orphans, 0)))
	r.points.add(uint32(max(row.Points, 0)))
	r.flags.add(flags)
	r.trace.add(clean(s.Trace.ID, maxID))
	c.addRequests(row, empty)
	c.Head.Counts.Events += s.Trace.Total
	c.Head.Counts.Skipped += s.Trace.Skipped
	c.addAttrs(row, nItems)
	c.addDetail(s)
}

func optional(i rollout.Int) int64 {
	if !i.OK || i.N > maxSafe || i.N < -maxSafe {
		return missing
	}
	return i.N
}

func statusText(s *rollout.Sample) string {
	switch s.Status {
	case rollout.StatusPending:
		return "pending"
	case rollout.StatusCompleted:
		return "completed"
	case rollout.StatusTruncated:
		return "truncated"
	case rollout.StatusAborted:
		return "aborted"
	case rollout.StatusFailed:
		return "failed"
	}
	return s.StatusText
}

// label is the number of a sample's label: a string as a rule, else as JSON.
func (c *Columns) label(v torchfile.Value) uint32 {
	switch v.Kind() {
	case torchfile.KindInvalid, torchfile.KindNone:
		return 0
	case torchfile.KindStr:
		b := v.RawStr()
		if len(b) > 4*maxDictEntry {
			b = b[:4*maxDictEntry]
		}
		return c.labels.idBytes(b)
	}
	return c.labels.id(string(appendPlain(nil, v, 4*maxDictEntry)))
}

func (c *Columns) addItems(row *Row) (flags uint16) {
	t := &c.items
	for i := range row.Items {
		it := &row.Items[i]
		start, end := c.rel(it.Start), c.rel(it.End)
		end = max(start, end)
		c.lo, c.hi = min(c.lo, start), max(c.hi, end)
		if it.State == PointEvent || it.State == OrphanEnd {
			end = start
		}
		t.start.add(start)
		t.dur.add(end - start)
		t.name.add(uint16(c.names.id(it.Name)))
		t.class.add(uint8(min(it.Class, NumClasses-1)))
		t.state.add(uint8(it.State))
		t.flags.add(uint16(it.Flags))
		t.lane.add(uint16(min(max(it.Lane, 0), maxU16)))
		t.depth.add(uint16(min(max(it.Depth, 0), maxU16)))
		t.parent.add(place(it.Parent, len(row.Items)))
		t.request.add(place(it.Request, len(row.Sample.Requests)))
		t.attempt.add(uint8(min(max(it.Attempt, 0), 255)))
		t.clip.add(uint8(c.clips.id(it.ClippedBy)))
		t.n.add(1)
		segs := it.Segments[:min(len(it.Segments), maxRowSegs)]
		t.segs.add(uint8(len(segs)))
		for _, s := range segs {
			a, b := c.rel(s.Start), c.rel(s.End)
			c.segs.class.add(uint8(min(s.Class, NumClasses-1)))
			c.segs.start.add(a)
			c.segs.dur.add(max(0, b-a))
			c.lo, c.hi = min(c.lo, a), max(c.hi, b)
		}
		if it.Flags&Error != 0 {
			flags |= RowError
		}
		if it.Flags&AbortedSpan != 0 {
			flags |= RowAborted
		}
	}
	return flags
}

// place is an index into a list of n, or -1.
func place(i, n int) int32 {
	if i < 0 || i >= n {
		return -1
	}
	return int32(i)
}

func (c *Columns) addRequests(row *Row, empty bool) {
	reqs := row.Sample.Requests
	if len(reqs) == 0 {
		return
	}
	at := c.req2item[:0]
	for range reqs {
		at = append(at, -1)
	}
	c.req2item = at
	if !empty {
		for i := range row.Items {
			it := &row.Items[i]
			if q := it.Request; q >= 0 && q < len(at) && at[q] < 0 && it.Flags&Virtual == 0 &&
				(it.State == Closed || it.State == Open) && (reqs[q].SpanID == "" || it.SpanID == reqs[q].SpanID) {
				at[q] = int32(i)
			}
		}
	}
	t := &c.reqs
	for i := range reqs {
		q := &reqs[i]
		t.rid.add(clean(q.RID, maxID))
		t.name.add(uint16(c.names.id(q.Name)))
		start, dur := int64(0), int64(missing)
		if at[i] >= 0 {
			it := &row.Items[at[i]]
			start = c.rel(it.Start)
			if it.State == Closed {
				dur = max(0, c.rel(it.End)-start)
			}
		} else if c.hasBase && !math.IsNaN(q.Start) {
			start = c.rel(Nanos(q.Start))
			if !math.IsNaN(q.End) {
				dur = max(0, c.rel(Nanos(q.End))-start)
			}
		}
		t.start.add(start)
		t.dur.add(dur)
		t.attempt.add(uint8(min(max(q.Attempt, 0), 255)))
		t.finish.add(uint8(c.finishes.id(q.FinishReason)))
		invalid := uint32(0)
		t.prompt.add(count(q.PromptTokens, invalidPrompt, &invalid))
		t.completion.add(count(q.CompletionTokens, invalidCompletion, &invalid))
		t.cached.add(count(q.CachedTokens, invalidCached, &invalid))
		t.retry.add(count(q.Retries, invalidRetries, &invalid))
		t.queue.add(duration(q.QueueTime, invalidQueue, &invalid))
		t.e2e.add(duration(q.E2ELatency, invalidE2E, &invalid))
		for p := range q.Phases {
			t.phases[p].add(duration(q.Phases[p], invalidPhase0+p, &invalid))
		}
		t.throughput.add(float(q.DecodeThroughput, invalidThroughput, &invalid))
		t.speed.add(float(q.TransferSpeed, invalidSpeed, &invalid))
		t.transferredSize.add(float(q.TransferSize, invalidSize, &invalid))
		t.invalid.add(invalid)
		t.item.add(at[i])
	}
}

// scaled is a number in whole multiples of 1/scale, missing when there is none; one that was said but
// cannot be sets its bit of invalid.
func scaled(v request.Value, bit int, invalid *uint32, scale float64) int64 {
	x, ok := v.Known()
	if ok {
		x = math.Round(x * scale)
		ok = math.Abs(x) <= maxSafe
	}
	if !ok {
		if v.State != request.Absent {
			*invalid |= 1 << bit
		}
		return missing
	}
	return int64(x)
}

func count(v request.Value, bit int, invalid *uint32) int64 { return scaled(v, bit, invalid, 1) }

func duration(v request.Value, bit int, invalid *uint32) int64 {
	return scaled(v, bit, invalid, 1e9/unitNS)
}

func float(v request.Value, bit int, invalid *uint32) float32 {
	if x, ok := v.Known(); ok && math.Abs(x) <= math.MaxFloat32 {
		return float32(x)
	}
	if v.State != request.Absent {
		*invalid |= 1 << bit
	}
	return float32(math.NaN())
}
