package api

// The types of the HTTP API under /api/rollscope/v1/. This file is the source of web/src/api/types.ts
// (make generate). Times are RFC 3339 with nanoseconds, durations are seconds, ids are strings.
// A value that is not known is null and its state says why; a NaN is never written.

// State tells a value from its absence.
type State string

// States of a number.
const (
	StateValue         State = "value"          // the number is there; 0 is a value
	StateIdle          State = "idle"           // no events in the window: there is nothing to measure
	StateUnknown       State = "unknown"        // could not be read; Reason says why
	StateNotApplicable State = "not_applicable" // the question does not arise (ITL of a prefill engine)
)

// Level is a judgement, worst last.
type Level string

// Levels.
const (
	LevelOK      Level = "ok"
	LevelWarn    Level = "warn"
	LevelCrit    Level = "crit"
	LevelIdle    Level = "idle"
	LevelUnknown Level = "unknown"
)

// Envelope wraps every answer of the API.
type Envelope[T any] struct {
	Data     T         `json:"data"`
	State    State     `json:"state"`
	Unit     string    `json:"unit,omitempty"`
	Warnings []Warning `json:"warnings"`
	Dropped  []Drop    `json:"dropped"`
	Partial  bool      `json:"partial"`
	Next     string    `json:"next,omitempty"` // pass as ?after= for the following page
}

// Warning is something the reader of a number must know.
type Warning struct {
	Code    string `json:"code"` // stable: "renamed", "no_such_metric", "under_reported", "bucket_layouts", ...
	Message string `json:"message"`
	Where   string `json:"where,omitempty"` // target, series, file:line
	Hint    string `json:"hint,omitempty"`
}

// Drop counts what was not kept.
type Drop struct {
	Source string `json:"source"`
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

// ErrorBody is what a failed request answers with, whatever the status code.
type ErrorBody struct {
	Error Error `json:"error"`
}

// Error is the one shape of a failure: what happened, where, and what to do.
type Error struct {
	Code    string `json:"code"` // stable: "bad_parameter", "not_found", "forbidden", "foreign_origin", ...
	Message string `json:"message"`
	Where   string `json:"where,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

// Number is a value with its state.
type Number struct {
	Value  *float64 `json:"value"`
	State  State    `json:"state"`
	Reason string   `json:"reason,omitempty"` // of idle: "none since 13:41"; of unknown: "connection refused"
	// Of a percentile out of a histogram: the bucket it lies in, both bounds in the signal's unit; Upper
	// is null in the last bucket, and AtLeast is then true: the truth is Lower or more.
	Lower      *float64 `json:"lower,omitempty"`
	Upper      *float64 `json:"upper,omitempty"`
	AtLeast    bool     `json:"at_least,omitempty"`
	ShareAbove *float64 `json:"share_above,omitempty"` // share of events above the highest finite bound
	Caveat     string   `json:"caveat,omitempty"`      // "last batch only"
}

// Status describes this process (GET /status).
type Status struct {
	Version string `json:"version"`
	Mode    string `json:"mode"` // "live", "archive", "demo"
	Now     string `json:"now"`
	// The data's own range, null while there is none. Of an archive the page opens on it.
	From      *string    `json:"from"`
	To        *string    `json:"to"`
	Gaps      []Interval `json:"gaps"` // when recording paused
	ReadOnly  bool       `json:"read_only"`
	Notices   []Warning  `json:"notices"` // about this process: storage on NFS, reads only, ...
	Targets   int        `json:"targets"`
	TargetsUp int        `json:"targets_up"`
	Drops     []Drop     `json:"drops"`
	Dir       string     `json:"dir"`
}

// Interval is a closed time range.
type Interval struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Target is one thing that is scraped (GET /targets).
type Target struct {
	Job        string            `json:"job"`
	Instance   string            `json:"instance"`
	URL        string            `json:"url"`
	Backend    string            `json:"backend"`
	Role       string            `json:"role"`
	Version    string            `json:"version"`
	Model      string            `json:"model"`
	Up         *bool             `json:"up"` // null: not scraped yet
	LastScrape *string           `json:"last_scrape"`
	Duration   *float64          `json:"duration_seconds"`
	Samples    *int64            `json:"samples"`
	Error      string            `json:"error,omitempty"`
	Reason     string            `json:"reason,omitempty"` // "http_404", "connection_refused", "not_an_exposition", ...
	Hint       string            `json:"hint,omitempty"`
	Findings   []Warning         `json:"findings"`
	Labels     map[string]string `json:"labels"`
	DPRanks    int               `json:"dp_ranks"` // as the engine says; 0 unknown
}

// SkippedTarget is something that was discovered and cannot be scraped.
type SkippedTarget struct {
	Address string `json:"address"`
	Reason  string `json:"reason"`
	From    string `json:"from"`
}

// Targets is the answer of GET /targets.
type Targets struct {
	Active  []Target        `json:"active"`
	Skipped []SkippedTarget `json:"skipped"`
}

// Engine is one engine in a window of time (GET /engines).
type Engine struct {
	ID       string            `json:"id"` // "job/instance" with "/" escaped; used in the URL of one engine
	Name     string            `json:"name"`
	Job      string            `json:"job"`
	Instance string            `json:"instance"`
	Role     string            `json:"role"`
	Backend  string            `json:"backend"`
	Version  string            `json:"version"`
	Model    string            `json:"model"`
	View     string            `json:"view"`     // "direct", "router": which view of it counts
	DPRanks  []string          `json:"dp_ranks"` // data-parallel ranks that are visible
	DPSize   int               `json:"dp_size"`  // how many there are, as the engine says; 0 unknown
	Up       *bool             `json:"up"`       // at the end of the range; null: seen through a router only, or not scraped then
	Level    Level             `json:"level"`
	Why      string            `json:"why"` // one short clause, "" when ok
	Labels   map[string]string `json:"labels"`
	Signals  map[string]Number `json:"signals"` // by column key, as "ttft:p99", "queue_depth"
	Sparks   map[string]Spark  `json:"sparks"`
}

// Spark is a short series at equal steps; null where there is no value.
type Spark struct {
	Values []*float64 `json:"values"`
	State  State      `json:"state"`
}

// Engines is the answer of GET /engines?from=&to=&columns=: worst first.
type Engines struct {
	Engines []Engine `json:"engines"`
	Columns []Column `json:"columns"`
}

// EngineDetail is the answer of GET /engines/{id}: one engine with everything its page starts from.
type EngineDetail struct {
	Engine  Engine       `json:"engine"`
	Columns []Column     `json:"columns"`
	Alerts  []Alert      `json:"alerts"`  // on this engine
	Signals []SignalInfo `json:"signals"` // those that apply to its role and backend
}

// Column describes one column of the fleet table.
type Column struct {
	Key    string `json:"key"` // signal id, with ":p99" for a percentile
	Title  string `json:"title"`
	Unit   string `json:"unit"`
	Higher bool   `json:"higher_is_better"`
}

// SignalInfo is a catalog entry of a signal (GET /signals).
type SignalInfo struct {
	ID      string   `json:"id"`
	Title   string   `json:"title"`
	Short   string   `json:"short"`
	Group   string   `json:"group"`
	Unit    string   `json:"unit"`
	Kind    string   `json:"kind"`
	Higher  bool     `json:"higher_is_better"`
	Meaning string   `json:"meaning"`
	Trap    string   `json:"trap"`
	Roles   []string `json:"roles"`
	Custom  bool     `json:"custom"`
	Query   string   `json:"query"`    // raw PromQL of the fleet's number
	Record  string   `json:"recorded"` // PromQL over recorded series
}

// MetricInfo is a catalog entry of a metric (GET /metrics-catalog), for completion and explanation.
type MetricInfo struct {
	Name    string   `json:"name"`
	Backend string   `json:"backend"`
	Type    string   `json:"type"`
	Unit    string   `json:"unit"`
	Labels  []string `json:"labels"`
	Since   string   `json:"since"`
	Till    string   `json:"till"`
	Meaning string   `json:"meaning"`
	Trap    string   `json:"trap"`
	Use     string   `json:"use"`
	Custom  bool     `json:"custom"`
	Stored  bool     `json:"stored"` // the store holds it in the asked range
}

// SignalData is the answer of GET /signals/{id}?from=&to=&step=&by=fleet|engine|role|model&engine=&quantiles=0.5,0.99.
type SignalData struct {
	ID     string         `json:"id"`
	Title  string         `json:"title"`
	Unit   string         `json:"unit"`
	Form   string         `json:"form"` // "recorded", "raw", "mixed": what the lines were read from
	Query  string         `json:"query"`
	From   string         `json:"from"`
	To     string         `json:"to"`
	Step   float64        `json:"step_seconds"`
	Lines  []Line         `json:"lines"`
	Worst  *Worst         `json:"worst"`
	Spans  []UnknownRange `json:"unknown"` // where nothing could be read, with the reason
	Idle   []Interval     `json:"idle"`
	Source []string       `json:"sources"` // names of the sources used
}

// Line is one series of a chart at equal steps from SignalData.From.
type Line struct {
	Name     string            `json:"name"` // "p50", "p99", "fleet", an engine's name
	Quantile *float64          `json:"quantile,omitempty"`
	Labels   map[string]string `json:"labels"`
	Values   []*float64        `json:"values"`
	Now      Number            `json:"now"`
	// TopBound is the highest finite bucket bound: a value equal to it means "or more".
	TopBound *float64 `json:"top_bound,omitempty"`
}

// Worst names the engine with the worst value in the window's last evaluation.
type Worst struct {
	EngineID string `json:"engine_id"`
	Name     string `json:"name"`
	Number   Number `json:"number"`
	Line     string `json:"line"` // which line it is the worst of: "p99"
}

// UnknownRange is a range in which nothing could be read.
type UnknownRange struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Reason string `json:"reason"`
}

// Overview is the answer of GET /overview?from=&to=: everything the first page needs in one round trip.
type Overview struct {
	Golden  []SignalData  `json:"golden"`
	Engines Engines       `json:"engines"`
	Alerts  []Alert       `json:"alerts"`
	Counts  map[Level]int `json:"counts"`
	Jobs    int           `json:"jobs"`
}

// Alert is one alert instance (GET /alerts?from=&to=): active now, or active in the range and over.
type Alert struct {
	Name        string            `json:"name"`
	State       string            `json:"state"` // "firing", "pending", "resolved", "cannot_be_judged"
	Severity    string            `json:"severity"`
	Level       Level             `json:"level"`
	Since       *string           `json:"since"`
	Until       *string           `json:"until"` // when it was last active; null while it is
	Value       *float64          `json:"value"`
	Summary     string            `json:"summary"`
	Expr        string            `json:"expr"`
	For         float64           `json:"for_seconds"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	EngineID    string            `json:"engine_id,omitempty"`
	Group       string            `json:"group"`
	Reason      string            `json:"reason,omitempty"` // of cannot_be_judged
}

// AlertRule is a rule with its health (GET /alerts).
type AlertRule struct {
	Name     string  `json:"name"`
	Group    string  `json:"group"`
	Expr     string  `json:"expr"`
	For      float64 `json:"for_seconds"`
	Severity string  `json:"severity"`
	Summary  string  `json:"summary"`
	State    string  `json:"state"` // "firing", "pending", "inactive", "blind"
	Reason   string  `json:"reason,omitempty"`
	Source   string  `json:"source"` // "built-in" or the rule file
}

// Alerts is the answer of GET /alerts.
type Alerts struct {
	Alerts []Alert     `json:"alerts"`
	Rules  []AlertRule `json:"rules"`
	// Alertmanagers that get what fires.
	Receivers []string `json:"receivers"`
}

// Board is one dashboard (GET /boards, GET /boards/{id}).
type Board struct {
	ID       string         `json:"id"`
	Title    string         `json:"title"`
	Meaning  string         `json:"meaning"`
	Tags     []string       `json:"tags"`
	Custom   bool           `json:"custom"` // from the user's configuration
	Sections []BoardSection `json:"sections"`
}

// BoardSection is a titled row of panels.
type BoardSection struct {
	Title  string  `json:"title"`
	Panels []Panel `json:"panels"`
}

// Panel is one chart or number of a board.
type Panel struct {
	ID         string        `json:"id"`
	Title      string        `json:"title"`
	Unit       string        `json:"unit"`
	View       string        `json:"view"` // "lines", "stat", "gauge", "table"
	Meaning    string        `json:"meaning"`
	Signal     string        `json:"signal,omitempty"` // when the panel shows a signal: read /signals/{id}
	By         string        `json:"by,omitempty"`
	Quantiles  []float64     `json:"quantiles"` // of a percentile signal
	Targets    []PanelTarget `json:"targets"`   // otherwise, or for a table of the PromQL behind it
	Stacked    bool          `json:"stacked"`   // the lines are parts of one whole
	Min        *float64      `json:"min,omitempty"`
	Max        *float64      `json:"max,omitempty"`
	Thresholds []Threshold   `json:"thresholds"`
	Backends   []string      `json:"backends"`          // those whose engines it shows something of
	Problem    string        `json:"problem,omitempty"` // why it cannot be drawn
}

// PanelTarget is one PromQL expression of a panel.
type PanelTarget struct {
	Expr   string `json:"expr"`
	Legend string `json:"legend"` // with {{label}} where a label's value goes
}

// Threshold marks a value from which on a level holds, in the panel's unit.
type Threshold struct {
	Value float64 `json:"value"`
	Level Level   `json:"level"`
	Below bool    `json:"below"` // from which down
}

// ConfigView is the answer of GET /config: what runs, with every secret replaced by <secret>.
type ConfigView struct {
	Path  string            `json:"path"` // "" without a file
	YAML  string            `json:"yaml"`
	Flags map[string]string `json:"flags"`
}

// Tick is one message of GET /live (Server-Sent Events, event "tick"): something new can be read.
type Tick struct {
	Seq       int64         `json:"seq"`
	Now       string        `json:"now"`
	To        *string       `json:"to"` // newest sample in the store, null while there is none
	Targets   int           `json:"targets"`
	TargetsUp int           `json:"targets_up"`
	Alerts    map[Level]int `json:"alerts"` // firing, by level
}

// Run is one training run whose dumps are kept (GET /rollouts): newest step first.
type Run struct {
	Name       string  `json:"name"`
	Pattern    string  `json:"pattern"` // of its dumps, "" when it is not watched any more
	Steps      int     `json:"steps"`
	EvalSteps  int     `json:"eval_steps"`
	FirstStep  *int64  `json:"first_step"`
	LastStep   *int64  `json:"last_step"`
	From       *string `json:"from"` // first event of its first step
	To         *string `json:"to"`
	GPUs       int     `json:"gpus"`    // 0 unknown
	Metrics    []Curve `json:"metrics"` // what can be drawn over its steps: ours and the trainer's
	Files      []Dump  `json:"files"`   // dumps that are not in the index: waiting, failed
	ScalarsDir string  `json:"scalars"` // where the trainer's curves are read from
	Problem    string  `json:"problem,omitempty"`
}

// Curve names something that has one value a step.
type Curve struct {
	Key    string `json:"key"`    // "perf/rollout_time", "train/loss"
	Source string `json:"source"` // "dump": computed here; "trainer": read from its files
	Unit   string `json:"unit"`
	Axis   string `json:"axis"` // "rollout/step", "eval/step", "train/step"
}

// Dump is a file of a run that is not (yet) in the index.
type Dump struct {
	Path   string `json:"path"`
	State  string `json:"state"` // "waiting", "incomplete", "processing", "failed"
	Reason string `json:"reason,omitempty"`
	Hint   string `json:"hint,omitempty"`
	Bytes  int64  `json:"bytes"`
}

// Runs is the answer of GET /rollouts.
type Runs struct {
	Runs []Run `json:"runs"`
	// Watching tells that new dumps are picked up; false in an archive.
	Watching bool `json:"watching"`
}

// Step is one step of a run in a list (GET /rollouts/{run}/steps?kind=&metrics=&from=&to=&limit=&after=).
type Step struct {
	Run        string            `json:"run"`
	Kind       string            `json:"kind"` // "train", "eval"
	ID         int64             `json:"id"`   // rollout_id
	Attempt    int               `json:"attempt"`
	Attempts   int               `json:"attempts"` // how many times the step was run
	Start      *string           `json:"start"`    // first event; null without a trace
	End        *string           `json:"end"`
	Wall       Number            `json:"wall_seconds"`
	Samples    int               `json:"samples"`
	Requests   int               `json:"requests"`
	Statuses   map[string]int    `json:"statuses"`
	Reward     Number            `json:"reward"` // mean over the samples that have one
	Parts      []TimePart        `json:"parts"`  // where the time went; empty without a trace
	Values     map[string]Number `json:"values"` // of the metrics asked for
	Timeline   string            `json:"timeline"`
	Problems   int               `json:"problems"`
	DumpExists bool              `json:"dump_exists"` // texts can be read
}

// TimePart is one part of a step's wall time; those of a step add up to it.
type TimePart struct {
	Name    string  `json:"name"` // "queue", "prefill", "transfer", "decode", "tool", "reward", "straggler", "sync", "unexplained", ...
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"` // of the wall time, 0 to 1
}

// Steps is the answer of GET /rollouts/{run}/steps, in the order of the steps.
type Steps struct {
	Steps []Step `json:"steps"`
}

// StepDetail is the answer of GET /rollouts/{run}/steps/{kind}/{id}?attempt=: one step with everything
// that is known of it.
type StepDetail struct {
	Step    Step           `json:"step"`
	Metrics []StepMetric   `json:"metrics"`
	Wall    StepWallTime   `json:"wall"`
	Notes   []Warning      `json:"notes"`
	Path    string         `json:"path"` // of the dump
	Bytes   int64          `json:"bytes"`
	Mark    string         `json:"fingerprint"`
	Counts  map[string]int `json:"problem_counts"`
	Prev    *int64         `json:"prev"` // rollout_id of the step before, of the same kind
	Next    *int64         `json:"next"`
}

// StepMetric is one key of a step.
type StepMetric struct {
	Key   string `json:"key"`
	Value Number `json:"value"`
	Unit  string `json:"unit"`
	Note  string `json:"note,omitempty"` // why it is unknown, derived or partial
}

// StepWallTime is where a step's time went.
type StepWallTime struct {
	Wall          Number       `json:"wall_seconds"`
	Parts         []TimePart   `json:"parts"`
	AbortedTokens int64        `json:"aborted_tokens"` // generated and thrown away
	AbortedShare  *float64     `json:"aborted_share"`  // of all generated tokens
	AbortedBy     int          `json:"aborted_samples"`
	Held          []HeldSample `json:"held"` // the samples that held the step, slowest first
}

// HeldSample is a sample that ended late.
type HeldSample struct {
	Row     int     `json:"row"`    // in the timeline
	Sample  *int64  `json:"sample"` // its index
	Group   *int64  `json:"group"`
	End     float64 `json:"end_seconds"` // after the step's start
	Over    float64 `json:"over_median"` // its end over the median's
	Because string  `json:"because"`     // the part that it spent most in
	Seconds float64 `json:"because_seconds"`
}

// Received is the answer of POST /rollouts.
type Received struct {
	Run     string `json:"run"`
	Kind    string `json:"kind"`
	ID      int64  `json:"id"`
	Samples int    `json:"samples"` // of this batch
	Total   int    `json:"total"`   // of the step so far
	Again   bool   `json:"again"`   // the batch was here before: nothing was added
	Final   bool   `json:"final"`   // the step is complete and in the index
}

// TimelineInfo is one timeline that can be drawn (GET /timelines).
type TimelineInfo struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Run     string `json:"run"`
	Kind    string `json:"kind"`
	Step    *int64 `json:"step"`
	Samples int    `json:"samples"`
}

// Timelines is the answer of GET /timelines.
type Timelines struct {
	Timelines []TimelineInfo `json:"timelines"`
}

// SampleText is the answer of GET /timelines/{id}/rows/{row}/text: what a sample was asked and what it said.
type SampleText struct {
	Prompt   string `json:"prompt"`
	Response string `json:"response"`
	Tokens   bool   `json:"tokens_available"` // the dump holds the token ids too
	Cut      bool   `json:"cut"`              // the texts are longer than what is shown
}
