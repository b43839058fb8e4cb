package fpm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// whole is a count in JSON; Python writes some as 128.0.
type whole uint64

func (w *whole) UnmarshalJSON(b []byte) error {
	if u, err := strconv.ParseUint(string(b), 10, 64); err == nil {
		*w = whole(u)
		return nil
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return &Error{Reason: Type, Detail: fmt.Sprintf("want a number, got %.40s", b)}
	}
	switch {
	case f < 0:
		return &Error{Reason: Value, Detail: fmt.Sprintf("%.40s is no count", b)}
	case f != math.Trunc(f) || f > 1<<53:
		return &Error{Reason: Type, Detail: fmt.Sprintf("want a whole number of 64 bits, got %.40s", b)}
	}
	*w = whole(f)
	return nil
}

// real is a number in JSON that is not negative.
type real float64

func (r *real) UnmarshalJSON(b []byte) error {
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil {
		return &Error{Reason: Type, Detail: fmt.Sprintf("want a number, got %.40s", b)}
	}
	if !(f >= 0) || math.IsInf(f, 0) {
		return &Error{Reason: Value, Detail: fmt.Sprintf("%.40s is negative or not finite", b)}
	}
	*r = real(f + 0)
	return nil
}

// message is the schema in JSON.
type message struct {
	Version   *whole `json:"version"`
	WorkerID  string `json:"worker_id"`
	Rank      whole  `json:"dp_rank"`
	Counter   *whole `json:"counter_id"`
	Scope     string `json:"timing_scope"`
	Wall      *real  `json:"wall_time"`
	Scheduled *struct {
		PrefillRequests whole `json:"num_prefill_requests"`
		PrefillTokens   whole `json:"sum_prefill_tokens"`
		PrefillLengths  real  `json:"var_prefill_length"`
		PrefillKV       whole `json:"sum_prefill_kv_tokens"`
		DecodeRequests  whole `json:"num_decode_requests"`
		DecodeKV        whole `json:"sum_decode_kv_tokens"`
		DecodeLengths   real  `json:"var_decode_kv_tokens"`
	} `json:"scheduled_requests"`
	Queued *struct {
		PrefillRequests whole `json:"num_prefill_requests"`
		PrefillTokens   whole `json:"sum_prefill_tokens"`
		PrefillLengths  real  `json:"var_prefill_length"`
		DecodeRequests  whole `json:"num_decode_requests"`
		DecodeKV        whole `json:"sum_decode_kv_tokens"`
		DecodeLengths   real  `json:"var_decode_kv_tokens"`
	} `json:"queued_requests"`
}

// read turns encoding/json's errors into ours.
func read(b []byte, into any) error {
	if len(bytes.TrimSpace(b)) == 0 {
		return &Error{Reason: Empty, Detail: "no bytes"}
	}
	if len(b) > MaxPayload {
		return &Error{Reason: TooLarge, Detail: fmt.Sprintf("%d bytes, more than %d", len(b), MaxPayload)}
	}
	err := json.Unmarshal(b, into)
	var (
		ours   *Error
		syntax *json.SyntaxError
		typed  *json.UnmarshalTypeError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ours):
		return ours
	case errors.As(err, &syntax):
		return &Error{Reason: Malformed, Offset: int(syntax.Offset), Detail: "not JSON: " + syntax.Error()}
	case errors.As(err, &typed):
		if typed.Field == "" {
			return &Error{Reason: NotAMap, Offset: int(typed.Offset), Detail: "want an object, got " + typed.Value}
		}
		return &Error{Reason: Type, Offset: int(typed.Offset), Field: typed.Field, Detail: fmt.Sprintf("want %s, got %s", typed.Type, typed.Value)}
	}
	return &Error{Reason: Malformed, Detail: "not JSON: " + err.Error()}
}

// DecodeJSON reads one message as JSON, as Dynamo's exporter and its trace files hold it, under the same rules as [Decoder.Decode], except that a null is
// an absent field and unknown keys are not counted.
func (d *Decoder) DecodeJSON(b []byte, p *Pass) error {
	var m message
	if err := read(b, &m); err != nil {
		return err
	}
	return m.pass(p)
}

func (m *message) pass(p *Pass) error {
	*p = Pass{WorkerID: m.WorkerID, TimingScope: m.Scope, Rank: uint32(min(m.Rank, maxRank))}
	if m.Rank > maxRank {
		return &Error{Reason: Value, Field: "dp_rank", Detail: fmt.Sprintf("rank %d is more than %d", m.Rank, maxRank)}
	}
	if len(m.WorkerID) > 256 || len(m.Scope) > 256 {
		return &Error{Reason: Value, Field: "worker_id", Detail: "the name is longer than 256 bytes"}
	}
	if m.Version != nil {
		p.Version, p.Has = uint64(*m.Version), p.Has|HasVersion
		if p.Version != Version {
			return &Error{Reason: Versioned, Field: "version", Detail: fmt.Sprintf("version %d of the schema; only version %d is known, so what its fields mean is not", p.Version, Version)}
		}
	}
	if m.Counter != nil {
		p.Counter, p.Has = uint64(*m.Counter), p.Has|HasCounter
	}
	if m.Wall != nil {
		p.Wall, p.Has = float64(*m.Wall), p.Has|HasWall
	}
	if s := m.Scheduled; s != nil {
		p.Has |= HasScheduled
		p.Scheduled = Scheduled{
			uint64(s.PrefillRequests), uint64(s.PrefillTokens), float64(s.PrefillLengths), uint64(s.PrefillKV),
			uint64(s.DecodeRequests), uint64(s.DecodeKV), float64(s.DecodeLengths),
		}
	}
	if q := m.Queued; q != nil {
		p.Has |= HasQueued
		p.Queued = Queued{
			uint64(q.PrefillRequests), uint64(q.PrefillTokens), float64(q.PrefillLengths),
			uint64(q.DecodeRequests), uint64(q.DecodeKV), float64(q.DecodeLengths),
		}
	}
	return nil
}
