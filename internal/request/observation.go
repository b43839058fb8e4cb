package request

// Source is who saw a request.
type Source string

// Sources of observations.
const (
	FromDump    Source = "dump"    // a sample's trace in a rollout dump: the client's view
	FromTrace   Source = "trace"   // spans of an engine, a router or a frontend
	FromLog     Source = "log"     // an engine's log lines
	FromExport  Source = "export"  // --export-metrics-to-file, request logs in JSON
	FromDynamo  Source = "dynamo"  // dynamo.request.trace.v1
	FromUnknown Source = "unknown" // pushed by somebody else
)

// Alias is one name of a request.
type Alias struct {
	Kind AliasKind
	ID   string
}

// AliasKind says whose name it is, and so how much two equal ones prove.
type AliasKind string

// Kinds of aliases. Equal rids prove nothing alone: they repeat over retries, so the start decides.
const (
	RID           AliasKind = "rid"            // the engine's id; Dynamo and some clients use the trace id
	TraceID       AliasKind = "trace_id"       // 32 lower-case hex
	SpanID        AliasKind = "span_id"        // of the request's root span
	XRequestID    AliasKind = "x_request_id"   // the header, unchanged
	DynamoID      AliasKind = "dynamo_id"      // request_id of a Dynamo component
	BootstrapRoom AliasKind = "bootstrap_room" // decimal; of both halves of a PD request
	SampleSpan    AliasKind = "sample_span"    // "run/kind/step/ordinal/span id" of a dump
)

// Outcome is how a request ended.
type Outcome string

// Outcomes.
const (
	OutcomeUnknown Outcome = ""
	Finished       Outcome = "ok"      // stop, length, tool_calls ...
	AbortedRequest Outcome = "aborted" // by the client, or by the engine for want of memory
	ErrorOutcome   Outcome = "error"
	Running        Outcome = "running" // no end was seen
)

// Observation is what one source said about one request. It never changes once it is written. Times are
// ns since 1970 (UTC), 0 when not said; durations are seconds.
type Observation struct {
	Source   Source
	Start    int64 // when the request reached whoever observed it; 0 only when nothing about time was said
	Finish   int64 // when it ended, 0 when open or not said
	TimeRank int   // how good Start is: 0 a time stamp of the request, 1 the time of a line about it
	Final    bool  // the source will say nothing more about this request
	Aliases  []Alias
	Engine   string // instance, "" when unknown; of a PD half that half's
	Role     string // of that engine: prefill, decode, unified, frontend, ""
	Service  string
	Model    string

	Outcome      Outcome
	FinishReason string // stop, length, abort, ...
	Error        string // message or class

	TTFT, ITL, E2E, Queue, Prefill, Transfer, Decode Value // s; ITL is the mean over the answer (TPOT)
	Phases                                           [NumPhases]Value
	PromptTokens, CompletionTokens, CachedTokens     Value
	DecodeThroughput                                 Value // tokens/s
	TransferSpeed, TransferSize                      Value // GB/s, MB
	Retries, Retractions                             Value
	Streaming                                        *bool
	WeightVersion                                    string

	// Of the rollout that asked for it; Run is "" when none is known.
	Run, Kind                    string
	Step, Sample, Group, Attempt Value

	Spans       int    // of a trace: how many there are
	SpansKept   string // of a trace: "kept", "sampled_away", "" when not decided
	SpansReason string // which policy decided
	Flags       []string
}
