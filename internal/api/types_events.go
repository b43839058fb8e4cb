package api

// The types of requests, traces, logs and the event store; the other half of types.go.

// RequestRow is one request in the table (GET /requests). Numbers that no source gave are null.
type RequestRow struct {
	ID         string   `json:"id"` // stable over revisions
	Start      string   `json:"start"`
	RID        string   `json:"rid"`
	TraceID    string   `json:"trace_id"`
	Engine     string   `json:"engine"` // where it was decoded; "" unknown
	EngineID   string   `json:"engine_id"`
	Prefill    string   `json:"prefill_engine"` // of a PD pair, else ""
	Service    string   `json:"service"`
	Model      string   `json:"model"`
	Outcome    string   `json:"outcome"` // "ok", "error", "aborted", "running", ""
	Finish     string   `json:"finish_reason"`
	TTFT       *float64 `json:"ttft_seconds"`
	ITL        *float64 `json:"itl_seconds"`
	E2E        *float64 `json:"e2e_seconds"`
	Queue      *float64 `json:"queue_seconds"`
	PrefillS   *float64 `json:"prefill_seconds"`
	Transfer   *float64 `json:"transfer_seconds"`
	Decode     *float64 `json:"decode_seconds"`
	Prompt     *float64 `json:"prompt_tokens"`
	Completion *float64 `json:"completion_tokens"`
	Cached     *float64 `json:"cached_tokens"`
	Throughput *float64 `json:"decode_throughput"` // tokens/s
	Retries    *float64 `json:"retries"`
	Run        string   `json:"run"`
	Kind       string   `json:"kind"`
	Step       *int64   `json:"step"`
	Sample     *int64   `json:"sample"` // ordinal in the dump: the row of the step's timeline
	Sources    []string `json:"sources"`
	Spans      string   `json:"spans"` // "kept", "sampled_away", "none"
	Probable   int      `json:"probable"`
	Flags      []string `json:"flags"`
}

// Requests is the answer of GET /requests?from=&to=&filter=&sort=&desc=&limit=&after=.
type Requests struct {
	Requests []RequestRow `json:"requests"`
	Total    *int64       `json:"total"` // of the filter; null when it was not counted
}

// RequestDetail is the answer of GET /requests/{id}.
type RequestDetail struct {
	Request  RequestRow       `json:"request"`
	Revision int              `json:"revision"`
	Settled  bool             `json:"settled"` // false while a source may still say more
	Aliases  []RequestAlias   `json:"aliases"`
	Fields   []RequestField   `json:"fields"`
	Phases   []RequestPhase   `json:"phases"`
	Rest     *float64         `json:"unattributed_seconds"` // of e2e, in no phase; phases of a PD pair overlap
	Seen     []RequestSeen    `json:"observations"`
	Probable []ProbableMatch  `json:"probable"`
	Logs     int              `json:"log_records"`
	Timeline string           `json:"timeline"` // id of the step's timeline, "" without one
	Links    []RequestRelated `json:"related"`  // PD half, retries, session
}

// RequestAlias is one name of a request.
type RequestAlias struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

// RequestField is one field with who said it, and what others said instead.
type RequestField struct {
	Name   string            `json:"name"`
	Value  string            `json:"value"`
	Unit   string            `json:"unit"`
	From   string            `json:"from"`
	Others map[string]string `json:"others"` // by source, where they differ
}

// RequestPhase is a stretch of a request's life. Phases nest: Depth 1 lies in the phase of depth 0 before it.
type RequestPhase struct {
	Name    string   `json:"name"`
	Class   string   `json:"class"` // as the timeline's classes
	Depth   int      `json:"depth"`
	Seconds *float64 `json:"seconds"`
	Start   *string  `json:"start"` // when known
	From    string   `json:"from"`
}

// RequestSeen is what one source saw.
type RequestSeen struct {
	Source string            `json:"source"`
	Engine string            `json:"engine"`
	Role   string            `json:"role"`
	Start  string            `json:"start"`
	Fields map[string]string `json:"fields"`
}

// ProbableMatch is a request or trace that may be the same one; it is never merged.
type ProbableMatch struct {
	ID      string `json:"id"`       // of a request, "" when it is only a trace
	TraceID string `json:"trace_id"` //
	Why     string `json:"why"`
}

// RequestRelated is another request that belongs to this one.
type RequestRelated struct {
	ID  string `json:"id"`
	Why string `json:"why"` // "retry", "same session", ...
}

// RequestSummary is the answer of GET /requests/summary?from=&to=&filter=&by=&ttft=&itl=.
type RequestSummary struct {
	Groups []RequestGroup `json:"groups"` // the whole first (name ""), then one a value of by
	By     string         `json:"by"`
	// The targets of goodput in seconds, null when none is set.
	TTFT *float64 `json:"ttft_target_seconds"`
	ITL  *float64 `json:"itl_target_seconds"`
}

// RequestGroup is a set of requests summed up. Percentiles are exact: of every request, kept spans or not.
type RequestGroup struct {
	Name     string           `json:"name"`
	Count    int64            `json:"count"`
	Outcomes map[string]int64 `json:"outcomes"`
	// Quantiles by field ("ttft", "itl", "e2e", "queue", "prefill", "transfer", "decode"): p50, p90, p99, max, count.
	Quantiles map[string]RequestQuantiles `json:"quantiles"`
	// Goodput: requests that finished and met both targets, of those for which that is known. There is no
	// rate with from=0.
	Good      *int64   `json:"good"`
	Judged    *int64   `json:"judged"`
	Goodput   *float64 `json:"goodput_share"`
	GoodRate  *float64 `json:"goodput_per_second"`
	Estimated string   `json:"estimated,omitempty"` // why the numbers are not exact: "head-sampled input: ..."
}

// RequestQuantiles are exact percentiles of one field in seconds, and the histogram's where there is one.
type RequestQuantiles struct {
	P50       *float64 `json:"p50"`
	P90       *float64 `json:"p90"`
	P99       *float64 `json:"p99"`
	Max       *float64 `json:"max"`
	Count     int64    `json:"count"`
	Histogram *Number  `json:"histogram_p99"` // p99 of the engines' own histogram in the same window
}

// RequestPoints is the answer of GET /requests/points?from=&to=&filter=&x=&y=&color=&limit=: columns of equal length.
type RequestPoints struct {
	IDs    []string   `json:"ids"`
	X      []*float64 `json:"x"` // seconds since 1970 when x is start
	Y      []*float64 `json:"y"`
	Color  []string   `json:"color"`
	Shown  int        `json:"shown"`
	Total  int64      `json:"total"`
	Thin   string     `json:"thinned,omitempty"` // what was left out, in words; the slowest always stay
	Fields []string   `json:"fields"`            // what x, y and color may be
}

// TraceRow is one trace in a list (GET /traces).
type TraceRow struct {
	TraceID  string         `json:"trace_id"`
	Root     string         `json:"root"` // name of the root span, "" when it is missing
	Service  string         `json:"service"`
	Start    string         `json:"start"`
	Duration float64        `json:"duration_seconds"`
	Spans    int            `json:"spans"`
	Errors   int            `json:"errors"`
	Services map[string]int `json:"services"` // spans by service
	Request  string         `json:"request_id"`
	RID      string         `json:"rid"`
	Flags    []string       `json:"flags"` // "incomplete", "orphans", "split", "skewed", "head_sampled"
	Matched  []string       `json:"matched"`
}

// Traces is the answer of GET /traces?from=&to=&service=&name=&tags=&min=&max=&status=&limit=.
type Traces struct {
	Traces   []TraceRow     `json:"traces"`
	Services []TraceService `json:"services"`
}

// TraceService is what one service sends: its spans, its level and what that costs.
type TraceService struct {
	Service string         `json:"service"`
	Names   map[string]int `json:"names"` // spans by name, most first, in the range
	Level   *int           `json:"level"` // SGLANG_TRACE_LEVEL as seen, null when it is no SGLang
	Missing []string       `json:"missing"`
	PerHour *float64       `json:"spans_per_hour"`
	Bytes   *float64       `json:"bytes_per_hour"` // on disk, as kept
	Dropped int64          `json:"attributes_dropped_spans"`
	Hint    string         `json:"hint,omitempty"`
}

// TraceDetail is the answer of GET /traces/{id}.
type TraceDetail struct {
	TraceID  string          `json:"trace_id"`
	Start    string          `json:"start"`
	Duration float64         `json:"duration_seconds"`
	Spans    []TraceSpan     `json:"spans"` // in the order of the tree, depth first
	Services []string        `json:"services"`
	Flags    []string        `json:"flags"`
	Problems []Warning       `json:"problems"`
	Phases   []RequestPhase  `json:"phases"`
	Rest     *float64        `json:"unattributed_seconds"`
	Request  string          `json:"request_id"`
	Probable []ProbableMatch `json:"probable"`
	Levels   map[string]int  `json:"levels"` // by service
	Timeline string          `json:"timeline"`
	More     int             `json:"spans_not_shown"`
	Others   []string        `json:"other_trace_ids"` // more traces that the asked id may mean (its low 64 bits)
}

// TraceSpan is one span of a trace, or a placeholder for one that nobody exported.
type TraceSpan struct {
	ID       string       `json:"span_id"`
	Parent   string       `json:"parent_id"`
	ParentAt int          `json:"parent"` // index in the list, -1
	Depth    int          `json:"depth"`
	Name     string       `json:"name"`
	Service  string       `json:"service"`
	Scope    string       `json:"scope"`
	Kind     string       `json:"kind"`
	Class    string       `json:"class"`         // as the timeline's classes
	Start    float64      `json:"start_seconds"` // after the trace's start
	Duration float64      `json:"duration_seconds"`
	Status   string       `json:"status"` // "ok", "error", ""
	Message  string       `json:"message,omitempty"`
	Attrs    []TraceAttr  `json:"attrs"`
	Resource []TraceAttr  `json:"resource"`
	Events   []TraceEvent `json:"events"`
	Links    []TraceLink  `json:"links"`
	Dropped  int          `json:"attributes_dropped"` // by the sender
	Folded   *TraceFold   `json:"folded"`
	Missing  bool         `json:"missing"`  // a placeholder: children name it, nobody exported it
	Critical bool         `json:"critical"` // on the critical path
	Self     float64      `json:"self_seconds"`
	Flags    []string     `json:"flags"`
}

// TraceAttr is an attribute as text with its type.
type TraceAttr struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Type  string `json:"type"` // "text", "bool", "int", "float", "json"
}

// TraceEvent is a moment of a span.
type TraceEvent struct {
	At    float64     `json:"at_seconds"` // after the trace's start
	Name  string      `json:"name"`
	Attrs []TraceAttr `json:"attrs"`
}

// TraceLink points to another span.
type TraceLink struct {
	TraceID string      `json:"trace_id"`
	SpanID  string      `json:"span_id"`
	Attrs   []TraceAttr `json:"attrs"`
}

// TraceFold stands for many spans of one name below one parent.
type TraceFold struct {
	Count int     `json:"count"`
	Sum   float64 `json:"sum_seconds"`
	P50   float64 `json:"p50_seconds"`
	P99   float64 `json:"p99_seconds"`
	Max   float64 `json:"max_seconds"`
}

// LogRecord is one line (GET /logs).
type LogRecord struct {
	ID      string            `json:"id"`
	Time    string            `json:"time"`
	Line    string            `json:"line"` // as it was written
	Level   string            `json:"level"`
	Class   string            `json:"class"`  // "preempt", "oom", "abort", "hang", "startup", "error", ...; "" for none
	Format  string            `json:"format"` // which grammar read it, "" for none
	Service string            `json:"service"`
	Engine  string            `json:"engine"`
	Source  string            `json:"source"`
	RID     string            `json:"rid"`
	TraceID string            `json:"trace_id"`
	SpanID  string            `json:"span_id"`
	Repeat  int               `json:"repeat"` // Ray folded this many; their values are unknown
	Fields  map[string]string `json:"fields"` // numbers and words read from the line
	Marks   []string          `json:"marks"`  // "time_assumed", "cut", "interleaved", ...
}

// Logs is the answer of GET /logs?from=&to=&q=&class=&level=&engine=&service=&limit=&after=: newest first.
type Logs struct {
	Records []LogRecord `json:"records"`
	Query   string      `json:"query"` // the LogsQL that was run
}

// LogHistogram is the answer of GET /logs/histogram with the same filters and step=.
type LogHistogram struct {
	From   string           `json:"from"`
	Step   float64          `json:"step_seconds"`
	By     string           `json:"by"` // "class", "level", "engine"
	Series []LogSeries      `json:"series"`
	Total  int64            `json:"total"`
	Counts map[string]int64 `json:"classes"` // events by class in the range
}

// LogSeries is how many lines fell into each step.
type LogSeries struct {
	Name   string  `json:"name"`
	Counts []int64 `json:"counts"`
}

// EventsStatus says how spans, logs and requests come in (GET /events).
type EventsStatus struct {
	Enabled   bool             `json:"enabled"`
	State     string           `json:"state"` // "ok", "starting", "read_only", "down", "off"
	Reason    string           `json:"reason"`
	Rows      map[string]int64 `json:"rows"` // by kind, since the start
	Bytes     int64            `json:"bytes_on_disk"`
	Spool     int64            `json:"spool_bytes"`
	Retention float64          `json:"retention_seconds"`
	Damaged   []string         `json:"damaged_parts"`
	Sampling  *SamplingStatus  `json:"sampling"`
	Sources   []EventSource    `json:"sources"`
	AsOf      *string          `json:"as_of"` // when the files were read that an archive answers from; null: it answers from the present
}

// SamplingStatus is what tail sampling does.
type SamplingStatus struct {
	Held      int64            `json:"held_traces"`
	HeldBytes int64            `json:"held_bytes"`
	Kept      map[string]int64 `json:"kept"` // traces by policy
	Dropped   map[string]int64 `json:"dropped"`
	Ratio     float64          `json:"ratio"`
	Policies  []string         `json:"policies"`
	Warnings  []Warning        `json:"warnings"`
}

// EventSource is one place that events come from.
type EventSource struct {
	Name  string  `json:"name"`
	Kind  string  `json:"kind"` // "otlp_grpc", "otlp_http", "log_file", ...
	State string  `json:"state"`
	Last  *string `json:"last"`
	Count int64   `json:"count"`
	Error string  `json:"error,omitempty"`
}

// TracingReport is the answer of GET /doctor/tracing?from=&to=: what is wrong with how traces are set up.
type TracingReport struct {
	From     string    `json:"from"`
	To       string    `json:"to"`
	Findings []Finding `json:"findings"` // worst first
	Looked   Looked    `json:"looked_at"`
}

// Finding is one thing that is wrong, with what shows it and what to do.
type Finding struct {
	Code     string   `json:"code"`
	Severity string   `json:"severity"` // "broken", "poor", "note"
	Subject  string   `json:"subject"`
	What     string   `json:"what"`
	Evidence []string `json:"evidence"`
	Do       []string `json:"do"`
}

// Looked is how much a report is made of.
type Looked struct {
	Spans    int64 `json:"spans"`
	Services int   `json:"services"`
	Engines  int   `json:"engines"`
	Traces   int   `json:"traces"`
	Lines    int   `json:"log_lines"`
}
