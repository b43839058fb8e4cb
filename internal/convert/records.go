// Package convert writes a rollout dump for other tools: Parquet tables, JSON lines and OTLP spans.
// Its entry point is [New]; the Chrome and Perfetto form is written by the timeline package.
package convert

import (
	"encoding/json"
	"math"
	"time"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/internal/timeline"
)

// stamp is a time: nanoseconds since 1970 in Parquet, RFC 3339 in JSON. Zero is none.
type stamp int64

// MarshalJSON writes null for no time.
func (s stamp) MarshalJSON() ([]byte, error) {
	if s == 0 {
		return []byte("null"), nil
	}
	return json.Marshal(time.Unix(0, int64(s)).UTC().Format(time.RFC3339Nano))
}

// sampleRecord is a row of the table of samples.
type sampleRecord struct {
	Ordinal         int64    `parquet:"ordinal" json:"ordinal"`
	Index           *int64   `parquet:"sample_index,optional" json:"sample_index"`
	GroupIndex      *int64   `parquet:"group_index,optional" json:"group_index"`
	RolloutID       *int64   `parquet:"rollout_id,optional" json:"rollout_id"` // of the sample, not of the dump
	Status          string   `parquet:"status,dict" json:"status"`
	Source          string   `parquet:"source,dict" json:"source"`
	Dataset         string   `parquet:"dataset,dict" json:"dataset"`
	Label           string   `parquet:"label" json:"label"`
	Reward          *float64 `parquet:"reward,optional" json:"reward"`
	RewardParts     string   `parquet:"reward_parts" json:"-"` // JSON object of a dict reward
	ResponseTokens  *int64   `parquet:"response_tokens,optional" json:"response_tokens"`
	EffectiveTokens *int64   `parquet:"effective_tokens,optional" json:"effective_tokens"`
	PromptTokens    *int64   `parquet:"prompt_tokens,optional" json:"prompt_tokens"`
	CachedTokens    *int64   `parquet:"cached_tokens,optional" json:"cached_tokens"`
	NonGeneration   *float64 `parquet:"non_generation_seconds,optional" json:"non_generation_seconds"`
	Start           stamp    `parquet:"start,optional,timestamp(nanosecond)" json:"start"`
	End             stamp    `parquet:"end,optional,timestamp(nanosecond)" json:"end"`
	Attempts        int64    `parquet:"attempts" json:"attempts"`
	Requests        int64    `parquet:"requests" json:"request_count"`
	Spans           int64    `parquet:"spans" json:"span_count"`
	OpenSpans       int64    `parquet:"open_spans" json:"open_spans"`
	OrphanEnds      int64    `parquet:"orphan_ends" json:"orphan_ends"`
	Problems        int64    `parquet:"problems" json:"problems"`
	TraceID         string   `parquet:"trace_id" json:"trace_id"`
	NoTrace         string   `parquet:"no_trace_because,dict" json:"no_trace_because"`
	Prompt          string   `parquet:"prompt" json:"prompt,omitempty"`
	Response        string   `parquet:"response" json:"response,omitempty"`
}

// requestRecord is a row of the table of requests. Phases nest: see the request package.
type requestRecord struct {
	Ordinal          int64    `parquet:"ordinal" json:"-"`
	Index            *int64   `parquet:"sample_index,optional" json:"-"`
	RID              string   `parquet:"rid" json:"rid"`
	SpanID           string   `parquet:"span_id" json:"span_id"`
	Name             string   `parquet:"name,dict" json:"name"`
	Attempt          int64    `parquet:"attempt" json:"attempt"`
	OwnStep          bool     `parquet:"own_step" json:"own_step"` // false: brought along from an earlier step
	Start            stamp    `parquet:"start,optional,timestamp(nanosecond)" json:"start"`
	End              stamp    `parquet:"end,optional,timestamp(nanosecond)" json:"end"`
	FinishReason     string   `parquet:"finish_reason,dict" json:"finish_reason"`
	ErrorType        string   `parquet:"error_type,dict" json:"error_type"`
	PromptTokens     *float64 `parquet:"prompt_tokens,optional" json:"prompt_tokens"`
	CompletionTokens *float64 `parquet:"completion_tokens,optional" json:"completion_tokens"`
	CachedTokens     *float64 `parquet:"cached_tokens,optional" json:"cached_tokens"`
	E2E              *float64 `parquet:"e2e_seconds,optional" json:"e2e_seconds"`
	Queue            *float64 `parquet:"queue_seconds,optional" json:"queue_seconds"`
	Throughput       *float64 `parquet:"decode_tokens_per_second,optional" json:"decode_tokens_per_second"`
	PBootstrapQueue  *float64 `parquet:"prefill_bootstrap_queue_seconds,optional" json:"prefill_bootstrap_queue_seconds"`
	PBootstrap       *float64 `parquet:"prefill_bootstrap_seconds,optional" json:"prefill_bootstrap_seconds"`
	PAllocWait       *float64 `parquet:"prefill_alloc_wait_seconds,optional" json:"prefill_alloc_wait_seconds"`
	PForward         *float64 `parquet:"prefill_forward_seconds,optional" json:"prefill_forward_seconds"`
	PTransferQueue   *float64 `parquet:"prefill_transfer_queue_seconds,optional" json:"prefill_transfer_queue_seconds"`
	DPrealloc        *float64 `parquet:"decode_prealloc_seconds,optional" json:"decode_prealloc_seconds"`
	DBootstrap       *float64 `parquet:"decode_bootstrap_seconds,optional" json:"decode_bootstrap_seconds"`
	DAllocWait       *float64 `parquet:"decode_alloc_wait_seconds,optional" json:"decode_alloc_wait_seconds"`
	DTransfer        *float64 `parquet:"decode_transfer_seconds,optional" json:"decode_transfer_seconds"`
	DForward         *float64 `parquet:"decode_forward_seconds,optional" json:"decode_forward_seconds"`
	TransferGBps     *float64 `parquet:"transfer_gb_per_second,optional" json:"transfer_gb_per_second"`
	TransferMB       *float64 `parquet:"transfer_mb,optional" json:"transfer_mb"`
	Retries          *float64 `parquet:"prefill_retries,optional" json:"prefill_retries"`
	Invalid          []string `parquet:"invalid,list" json:"invalid,omitempty"` // columns that were said but cannot be
}

// spanRecord is a row of the table of spans, points and orphan ends.
type spanRecord struct {
	Ordinal    int64           `parquet:"ordinal" json:"-"`
	Index      *int64          `parquet:"sample_index,optional" json:"-"`
	TraceID    string          `parquet:"trace_id,dict" json:"-"`
	SpanID     string          `parquet:"span_id" json:"span_id"`
	ParentID   string          `parquet:"parent_span_id" json:"parent_span_id"`
	Name       string          `parquet:"name,dict" json:"name"`
	Class      string          `parquet:"class,dict" json:"class"`
	State      string          `parquet:"state,dict" json:"state"` // closed, open, event, orphan_end
	Start      stamp           `parquet:"start,timestamp(nanosecond)" json:"start"`
	End        stamp           `parquet:"end,timestamp(nanosecond)" json:"end"` // of an open span, to where it is drawn
	ClippedBy  string          `parquet:"clipped_by,dict" json:"clipped_by,omitempty"`
	Attempt    int64           `parquet:"attempt" json:"attempt"`
	Lane       int64           `parquet:"lane" json:"lane"`
	Depth      int64           `parquet:"depth" json:"depth"`
	Flags      []string        `parquet:"flags,list" json:"flags,omitempty"`
	StartAttrs string          `parquet:"start_attrs" json:"-"` // JSON object
	EndAttrs   string          `parquet:"end_attrs" json:"-"`
	StartJSON  json.RawMessage `parquet:"-" json:"start_attrs,omitempty"`
	EndJSON    json.RawMessage `parquet:"-" json:"end_attrs,omitempty"`
}

// maxText bounds one text or one span's attributes in bytes.
const maxText = 16 << 20

func integer(i rollout.Int) *int64 {
	if !i.OK {
		return nil
	}
	return &i.N
}

func known(v request.Value) *float64 {
	if f, ok := v.Known(); ok {
		return &f
	}
	return nil
}

func seconds(t float64) stamp {
	if math.IsNaN(t) {
		return 0
	}
	return stamp(timeline.Nanos(t))
}

func ofSample(row *timeline.Row, texts bool) sampleRecord {
	s := row.Sample
	r := sampleRecord{
		Ordinal: int64(s.Ordinal), Index: integer(s.Index), GroupIndex: integer(s.GroupIndex), RolloutID: integer(s.RolloutID),
		Status: s.StatusText, Source: s.Source, Dataset: s.Dataset, Label: timeline.Text(s.Raw.Field("label"), maxText),
		Reward: known(s.Reward.Value), ResponseTokens: integer(s.ResponseLength), EffectiveTokens: integer(s.EffectiveLength),
		PromptTokens: integer(s.PromptTokens), CachedTokens: integer(s.CachedTokens), NonGeneration: known(s.NonGeneration),
		Attempts: int64(row.Attempts), Requests: int64(len(s.Requests)), Spans: int64(row.Spans), OpenSpans: int64(row.Open),
		OrphanEnds: int64(row.Orphans), Problems: int64(len(s.Problems) + s.MoreProblems), TraceID: s.Trace.ID, NoTrace: row.WhyEmpty,
	}
	if len(s.Reward.Keys) > 0 {
		r.RewardParts = string(timeline.AppendJSON(nil, s.Reward.Raw, maxText))
	}
	if len(row.Items) > 0 {
		r.Start, r.End = stamp(row.Start), stamp(row.End)
	}
	if texts {
		r.Prompt, r.Response = timeline.Text(s.Raw.Field("prompt"), maxText), timeline.Text(s.Raw.Field("response"), maxText)
	}
	return r
}

func ofRequest(s *rollout.Sample, q *request.Request) requestRecord {
	r := requestRecord{
		Ordinal: int64(s.Ordinal), Index: integer(s.Index), RID: q.RID, SpanID: q.SpanID, Name: q.Name, Attempt: int64(q.Attempt),
		OwnStep: q.OwnStep, Start: seconds(q.Start), End: seconds(q.End), FinishReason: q.FinishReason, ErrorType: q.ErrorType,
	}
	for _, c := range []struct {
		name string
		to   **float64
		v    request.Value
	}{
		{"prompt_tokens", &r.PromptTokens, q.PromptTokens},
		{"completion_tokens", &r.CompletionTokens, q.CompletionTokens},
		{"cached_tokens", &r.CachedTokens, q.CachedTokens},
		{"e2e_seconds", &r.E2E, q.E2ELatency},
		{"queue_seconds", &r.Queue, q.QueueTime},
		{"decode_tokens_per_second", &r.Throughput, q.DecodeThroughput},
		{"prefill_bootstrap_queue_seconds", &r.PBootstrapQueue, q.Phases[request.PrefillBootstrapQueue]},
		{"prefill_bootstrap_seconds", &r.PBootstrap, q.Phases[request.PrefillBootstrap]},
		{"prefill_alloc_wait_seconds", &r.PAllocWait, q.Phases[request.PrefillAllocWait]},
		{"prefill_forward_seconds", &r.PForward, q.Phases[request.PrefillForward]},
		{"prefill_transfer_queue_seconds", &r.PTransferQueue, q.Phases[request.PrefillTransferQueue]},
		{"decode_prealloc_seconds", &r.DPrealloc, q.Phases[request.DecodePrealloc]},
		{"decode_bootstrap_seconds", &r.DBootstrap, q.Phases[request.DecodeBootstrap]},
		{"decode_alloc_wait_seconds", &r.DAllocWait, q.Phases[request.DecodeAllocWait]},
		{"decode_transfer_seconds", &r.DTransfer, q.Phases[request.DecodeTransfer]},
		{"decode_forward_seconds", &r.DForward, q.Phases[request.DecodeForward]},
		{"transfer_gb_per_second", &r.TransferGBps, q.TransferSpeed},
		{"transfer_mb", &r.TransferMB, q.TransferSize},
		{"prefill_retries", &r.Retries, q.Retries},
	} {
		*c.to = known(c.v)
		if c.v.State == request.Invalid {
			r.Invalid = append(r.Invalid, c.name)
		}
	}
	return r
}

var stateNames = [...]string{timeline.Closed: "closed", timeline.Open: "open", timeline.PointEvent: "event", timeline.OrphanEnd: "orphan_end"}

func ofItem(row *timeline.Row, it *timeline.Item) spanRecord {
	s := row.Sample
	r := spanRecord{
		Ordinal: int64(s.Ordinal), Index: integer(s.Index), TraceID: s.Trace.ID, SpanID: it.SpanID, Name: it.Name,
		Class: it.Class.String(), State: stateNames[it.State], Start: stamp(it.Start), End: stamp(it.End), ClippedBy: it.ClippedBy,
		Attempt: int64(it.Attempt), Lane: int64(it.Lane), Depth: int64(it.Depth), Flags: it.Flags.Names(),
	}
	if it.Parent >= 0 {
		r.ParentID = row.Items[it.Parent].SpanID
	}
	if it.StartAttrs.Exists() && it.StartAttrs.Len() > 0 {
		r.StartJSON = timeline.AppendJSON(nil, it.StartAttrs, maxText)
	}
	if it.EndAttrs.Exists() && it.EndAttrs.Len() > 0 {
		r.EndJSON = timeline.AppendJSON(nil, it.EndAttrs, maxText)
	}
	r.StartAttrs, r.EndAttrs = string(r.StartJSON), string(r.EndJSON)
	return r
}
