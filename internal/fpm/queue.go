package fpm

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Role is what an engine does. The words are those of the engine's identity elsewhere.
type Role string

// Roles that have queues of their own.
const (
	Unified Role = "unified"
	Prefill Role = "prefill"
	Decode  Role = "decode"
)

// Part is one of the queues of an engine.
type Part struct {
	Name     string
	Requests float64
	Known    bool // false: no series or message tells
	InPass   bool // forward-pass messages count these requests too
}

// Queue is what waits at an engine of a role.
type Queue struct {
	Requests float64 // sum of the parts that are known
	Known    bool    // one of them is
	Parts    []Part
}

func queue(parts ...Part) Queue {
	q := Queue{Parts: parts}
	for _, p := range parts {
		if p.Known {
			q.Requests += p.Requests
			q.Known = true
		}
	}
	return q
}

// PassQueue returns the queue that counts for the role, out of a message. SGLang fills queued_requests
// from the queue of the role: waiting when one engine does all, bootstrap on a prefill engine, prealloc
// and transfer (requests that wait for their KV cache) on a decode engine. For an engine whose role is
// unknown both kinds count.
func PassQueue(role Role, q Queued) Queue {
	prefill := Part{Name: "waiting (prefill)", Requests: float64(q.PrefillRequests), Known: true, InPass: true}
	decode := Part{Name: "waiting (preempted)", Requests: float64(q.DecodeRequests), Known: true, InPass: true}
	switch role {
	case Prefill:
		prefill.Name = "bootstrap"
		return queue(prefill)
	case Decode:
		decode.Name = "prealloc + transfer"
		return queue(decode)
	}
	return queue(prefill, decode)
}

// Scraped are an SGLang engine's queues as its metrics give them; nil when there is no such series.
type Scraped struct {
	Waiting   *float64 // sglang:num_queue_reqs
	Bootstrap *float64 // sglang:num_prefill_prealloc_queue_reqs
	Prealloc  *float64 // sglang:num_decode_prealloc_queue_reqs
	Transfer  *float64 // sglang:num_decode_transfer_queue_reqs
}

// ScrapedQueue returns the queue that counts for the role, out of metrics. On a decode engine the metric
// of waiting requests alone is 0 while requests wait for their KV cache, so all three queues count.
func ScrapedQueue(role Role, s Scraped) Queue {
	part := func(name string, v *float64, inPass bool) Part {
		p := Part{Name: name, InPass: inPass}
		if v != nil && *v >= 0 && !math.IsInf(*v, 0) {
			p.Requests, p.Known = *v, true
		}
		return p
	}
	switch role {
	case Prefill:
		return queue(part("bootstrap", s.Bootstrap, true), part("waiting", s.Waiting, false))
	case Decode:
		return queue(part("prealloc", s.Prealloc, true), part("transfer", s.Transfer, true), part("waiting", s.Waiting, false))
	}
	return queue(part("waiting", s.Waiting, true))
}

// common returns the requests of the parts that both sides count, and whether all of them are known.
func (q *Queue) common() (requests float64, known bool) {
	for _, p := range q.Parts {
		if !p.InPass {
			continue
		}
		if !p.Known {
			return 0, false
		}
		requests += p.Requests
		known = true
	}
	return requests, known
}

// lasting is how long two queues must differ, in ns, before it is no matter of when each was read.
const lasting = 30e9

// QueueWatch compares the queue of one worker in messages with that in metrics.
type QueueWatch struct {
	since int64 // 0 while they agree
}

// Difference is a lasting difference between the two.
type Difference struct {
	Passes, Scraped float64 // requests
	For             time.Duration
	Reason          string // in words
}

// Compare takes both queues at a time and returns their difference once it has lasted for 30 s: more than
// two requests and a quarter of the larger. What only one side counts is left out. When either is unknown
// the comparison begins anew.
func (w *QueueWatch) Compare(now int64, role Role, passes, scraped Queue) (Difference, bool) {
	a, ok := passes.common()
	b, ok2 := scraped.common()
	if !ok || !ok2 || math.Abs(a-b) <= max(2, max(a, b)/4) {
		w.since = 0
		return Difference{}, false
	}
	if w.since == 0 {
		w.since = now
	}
	d := Difference{Passes: a, Scraped: b, For: time.Duration(now - w.since)}
	if d.For < lasting {
		return Difference{}, false
	}
	var names []string
	for _, p := range scraped.Parts {
		if p.InPass {
			names = append(names, p.Name)
		}
	}
	d.Reason = fmt.Sprintf("forward-pass messages say %g requests wait, the metrics of the same queue (%s) say %g, for %s: ",
		a, strings.Join(names, " + "), b, short(d.For))
	switch {
	case a == 0 && role == Decode:
		d.Reason += "the emitter reads another queue than those of requests that wait for their KV cache"
	case b == 0:
		d.Reason += "the metric is of another queue, or of another worker"
	default:
		d.Reason += "one of them is of another worker, counts a rank twice, or is not current"
	}
	return d, true
}
