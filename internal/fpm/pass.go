// Package fpm is the codec of forward-pass messages, which engines under NVIDIA Dynamo send for every
// iteration of their scheduler, and what a stream of them says about the engine that sends it. Its entry
// points are [Decoder] for one message and [Tracker] for the stream; FORMAT.md beside this file is the
// wire format in prose.
//
// Nothing here opens a socket or reads a clock: sources hand bytes in, and now is a parameter,
// nanoseconds since 1970 (UTC). Neither type is safe for use by several goroutines at once.
package fpm

import (
	"encoding/json"
	"math"
)

// Topic is the event plane's topic of forward-pass messages.
const Topic = "forward-pass-metrics"

// Version is the only version of the schema that is read when a message names one.
const Version = 1

// Parts are the fields that a message had. A field that it had not is zero in the [Pass].
type Parts uint8

// Parts of a message.
const (
	HasVersion Parts = 1 << iota // absent in v0
	HasCounter                   // absent in v0
	HasWall
	HasScheduled
	HasQueued
)

// Scheduled is what ran in a pass.
type Scheduled struct {
	PrefillRequests uint64  // num_prefill_requests
	PrefillTokens   uint64  // sum_prefill_tokens: newly computed in this pass (the chunk)
	PrefillLengths  float64 // var_prefill_length: population variance of the prompts' full lengths, tokens²
	PrefillKV       uint64  // sum_prefill_kv_tokens: read from the cache or from earlier chunks
	DecodeRequests  uint64  // num_decode_requests
	DecodeKV        uint64  // sum_decode_kv_tokens: sum of the context lengths
	DecodeLengths   float64 // var_decode_kv_tokens: population variance of the context lengths, tokens²
}

// Queued is what waited when a pass was made.
type Queued struct {
	PrefillRequests uint64  // num_prefill_requests
	PrefillTokens   uint64  // sum_prefill_tokens: tokens of the prompts that wait
	PrefillLengths  float64 // var_prefill_length, tokens²
	DecodeRequests  uint64  // num_decode_requests: preempted, or waiting for their KV cache
	DecodeKV        uint64  // sum_decode_kv_tokens
	DecodeLengths   float64 // var_decode_kv_tokens, tokens²
}

// Pass is one message: an iteration of an engine's scheduler, or a heartbeat.
type Pass struct {
	Has         Parts
	Positional  bool    // it was an array, see [Decoder.Positional]
	Skipped     uint16  // keys or items that are not of this schema and were passed over
	Rank        uint32  // dp_rank
	Version     uint64  // 0 when the message names none
	WorkerID    string  // "" for an engine without Dynamo around it and for one that was restored from a snapshot
	Counter     uint64  // counter_id: increases by one with each message of a (worker, rank)
	TimingScope string  // timing_scope, what the wall time is of; only vLLM's own emitter says it
	Wall        float64 // wall_time: seconds that the pass took; 0 in a heartbeat
	Scheduled   Scheduled
	Queued      Queued
}

// maxWall is the longest time, in seconds, that is believed to be that of one pass. Emitters have been
// seen that wrote the time of day there.
const maxWall = 3600

// Heartbeat says whether the message only tells that the engine lives. One is sent each second in which
// nothing else was.
func (p *Pass) Heartbeat() bool { return p.Wall == 0 }

// Seconds returns how long the pass took; ok is false when it did not say so believably: a heartbeat, or
// more than an hour.
func (p *Pass) Seconds() (s float64, ok bool) { return p.Wall, p.Wall > 0 && p.Wall <= maxWall }

// Empty says whether nothing waits.
func (q *Queued) Empty() bool {
	return q.PrefillRequests == 0 && q.PrefillTokens == 0 && q.DecodeRequests == 0 && q.DecodeKV == 0
}

// digest is a number that two messages of different content rarely share.
func (p *Pass) digest() uint32 {
	h := uint64(14695981039346656037)
	for _, v := range [...]uint64{
		math.Float64bits(p.Wall),
		p.Scheduled.PrefillRequests, p.Scheduled.PrefillTokens, math.Float64bits(p.Scheduled.PrefillLengths), p.Scheduled.PrefillKV,
		p.Scheduled.DecodeRequests, p.Scheduled.DecodeKV, math.Float64bits(p.Scheduled.DecodeLengths),
		p.Queued.PrefillRequests, p.Queued.PrefillTokens, math.Float64bits(p.Queued.PrefillLengths),
		p.Queued.DecodeRequests, p.Queued.DecodeKV, math.Float64bits(p.Queued.DecodeLengths),
	} {
		h = (h ^ v) * 1099511628211
		h ^= h >> 29
	}
	return uint32(h ^ h>>32)
}

type scheduledJSON struct {
	PrefillRequests uint64  `json:"num_prefill_requests"`
	PrefillTokens   uint64  `json:"sum_prefill_tokens"`
	PrefillLengths  float64 `json:"var_prefill_length"`
	PrefillKV       uint64  `json:"sum_prefill_kv_tokens"`
	DecodeRequests  uint64  `json:"num_decode_requests"`
	DecodeKV        uint64  `json:"sum_decode_kv_tokens"`
	DecodeLengths   float64 `json:"var_decode_kv_tokens"`
}

type queuedJSON struct {
	PrefillRequests uint64  `json:"num_prefill_requests"`
	PrefillTokens   uint64  `json:"sum_prefill_tokens"`
	PrefillLengths  float64 `json:"var_prefill_length"`
	DecodeRequests  uint64  `json:"num_decode_requests"`
	DecodeKV        uint64  `json:"sum_decode_kv_tokens"`
	DecodeLengths   float64 `json:"var_decode_kv_tokens"`
}

// MarshalJSON writes the message as Dynamo's trace files and its exporter do. Parts that the message had
// not are left out, so that they read back the same.
func (p *Pass) MarshalJSON() ([]byte, error) {
	var out struct {
		Version   *uint64        `json:"version,omitempty"`
		WorkerID  string         `json:"worker_id"`
		Rank      uint32         `json:"dp_rank"`
		Counter   *uint64        `json:"counter_id,omitempty"`
		Scope     string         `json:"timing_scope,omitempty"`
		Wall      *float64       `json:"wall_time,omitempty"`
		Scheduled *scheduledJSON `json:"scheduled_requests,omitempty"`
		Queued    *queuedJSON    `json:"queued_requests,omitempty"`
	}
	out.WorkerID, out.Rank, out.Scope = p.WorkerID, p.Rank, p.TimingScope
	if p.Has&HasVersion != 0 {
		out.Version = &p.Version
	}
	if p.Has&HasCounter != 0 {
		out.Counter = &p.Counter
	}
	if p.Has&HasWall != 0 {
		out.Wall = &p.Wall
	}
	if p.Has&HasScheduled != 0 {
		s := scheduledJSON(p.Scheduled)
		out.Scheduled = &s
	}
	if p.Has&HasQueued != 0 {
		q := queuedJSON(p.Queued)
		out.Queued = &q
	}
	return json.Marshal(&out)
}
