package trace

import (
	"context"
	"errors"
)

// Payload is what another process needs to add to a trace, for a header or a message in JSON.
type Payload struct {
	Version      int     `json:"version"`
	TraceID      string  `json:"trace_id"`
	SampleID     any     `json:"sample_id"`
	GroupID      any     `json:"group_id"`
	Attempt      int     `json:"attempt"`
	ParentSpanID *string `json:"parent_span_id"`
}

// Export describes the first carrier of a target for another process, whose spans will hang below the
// innermost span of ctx. A target without a carrier gives an empty trace id.
func (t *Tracer) Export(ctx context.Context, target Target) Payload {
	p := Payload{Version: Version}
	if t == nil {
		return p
	}
	around := FromContext(ctx)
	handles := t.orAround(target, around)
	if len(handles) == 0 {
		return p
	}
	c := handles[0].Carrier
	p.TraceID = c.TraceID()
	if parent, _ := parentOf(handles[0], p.TraceID, around); parent != "" {
		p.ParentSpanID = &parent
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.SampleID, p.GroupID, p.Attempt = c.sampleID, c.groupID, c.attempt
	return p
}

// Import returns a handle of the trace that another process exported. With a nil carrier its spans are
// collected in a new one, which goes back to the exporter for [Tracer.Merge]. A carrier that is given
// keeps its trace id.
func Import(p Payload, c *Carrier) *Handle {
	if c == nil {
		c = &Carrier{traceID: p.TraceID, attempt: p.Attempt}
	}
	c.mu.Lock()
	c.locked()
	if p.SampleID != nil {
		c.sampleID = importID(p.SampleID)
	}
	if p.GroupID != nil {
		c.groupID = importID(p.GroupID)
	}
	c.mu.Unlock()
	h := &Handle{Carrier: c}
	if p.ParentSpanID != nil {
		h.ParentSpanID = *p.ParentSpanID
	}
	return h
}

// importID makes the float64 that JSON makes of an integer one again.
func importID(v any) any {
	if f, ok := v.(float64); ok && f == float64(int64(f)) {
		return int64(f)
	}
	return id(numbers(v))
}

// Merge adds the events of a carrier that came back from another process to those of a target and
// returns how many. Starts and ends are kept or dropped in pairs.
func (t *Tracer) Merge(target Target, from *Carrier) int {
	if t == nil || target == nil {
		return 0
	}
	if from == nil {
		t.fail("merge", errors.New("no carrier"))
		return 0
	}
	events, lost := from.Events(), from.Dropped()
	added := 0
	for _, h := range t.handles(target) {
		if h.Carrier == from {
			continue
		}
		dropped := make(map[string]bool)
		for _, e := range events {
			ends := e.Type == SpanEnd
			switch {
			case ends && dropped[e.SpanID]:
				t.drop(h.Carrier, 1)
			case h.Carrier.put(e, ends, t.limit()):
				t.events.Add(1)
				added++
			default:
				t.dropped.Add(1)
				if e.SpanID != "" {
					dropped[e.SpanID] = true
				}
			}
		}
		h.Carrier.drop(lost) // counted by the other tracer already
	}
	return added
}

// put appends an event as it is.
func (c *Carrier) put(e Event, always bool, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !always && len(c.events) >= limit {
		c.dropped++
		return false
	}
	c.locked()
	c.events = append(c.events, e)
	return true
}
