package api

// The types of forward passes, the planner's advice and capacity.

// ForwardPasses says how forward passes come in (GET /passes): sources, the engines that send, and what is kept.
type ForwardPasses struct {
	Enabled bool         `json:"enabled"` // false: no source is configured, or this is an archive
	Sources []PassSource `json:"sources"`
	Engines []PassEngine `json:"engines"` // by name
	Relay   *PassRelay   `json:"relay"`   // null without one
	Rows    PassRows     `json:"rows"`
	Bursts  []PassBurst  `json:"bursts"` // newest first
}

// PassSource is one place that messages come from, and whether somebody is blind there.
type PassSource struct {
	Name       string           `json:"name"`
	Kind       string           `json:"kind"`  // "zmq_engine", "zmq_plane", "nats", "socket", "file"
	State      string           `json:"state"` // of the connection: "connected", "missing", ...
	Flow       string           `json:"flow"`  // what comes: "receiving", "no payload while engine is busy", ...
	Cause      string           `json:"cause"` // a word that does not change, "" for none
	Alarm      bool             `json:"alarm"`
	Why        string           `json:"why"`
	Do         string           `json:"do"`
	Messages   int64            `json:"messages"` // that could be read
	Passes     int64            `json:"passes"`
	Heartbeats int64            `json:"heartbeats"`
	Refused    map[string]int64 `json:"refused"` // by reason
	Missed     int64            `json:"missed"`  // by the carrier's own numbers
	Last       *string          `json:"last"`
	Error      string           `json:"error,omitempty"`
}

// PassEngine is one worker with its data-parallel ranks.
type PassEngine struct {
	ID        string         `json:"id"`   // namespace/component/worker
	Name      string         `json:"name"` // of the engine as the resolver knows it, else the ID
	EngineID  string         `json:"engine_id"`
	Namespace string         `json:"namespace"`
	Component string         `json:"component"`
	Worker    string         `json:"worker_id"` // decimal, "" when the engine has none
	WorkerHex string         `json:"worker_id_hex"`
	Role      string         `json:"role"`  // "prefill", "decode", "unified"
	State     string         `json:"state"` // "working", "idle", "stale"
	Ranks     []PassRank     `json:"ranks"`
	Silent    int            `json:"silent_ranks"`
	Wall      *float64       `json:"iteration_seconds"` // the longest current pass
	Imbalance *float64       `json:"imbalance"`         // the busiest rank's share over the mean
	Queue     *PassQueue     `json:"queue"`             // null while it is not known
	QueueRule string         `json:"queue_rule"`        // how the ranks' queues make up the worker's
	Scraped   *PassQueue     `json:"scraped_queue"`     // the same out of the engine's metrics; null when there are none
	Differ    string         `json:"queues_differ,omitempty"`
	Load      PassWorkerLoad `json:"load"`
}

// PassWorkerLoad is what runs on a worker: sums over its current ranks.
type PassWorkerLoad struct {
	PrefillRequests int64 `json:"prefill_requests"`
	PrefillTokens   int64 `json:"prefill_tokens"`
	DecodeRequests  int64 `json:"decode_requests"`
	DecodeKV        int64 `json:"decode_kv_tokens"`
}

// PassQueue is what waits, by kind.
type PassQueue struct {
	Requests float64         `json:"requests"`
	Parts    []PassQueuePart `json:"parts"`
}

// PassQueuePart is one kind of waiting: "prefill", "decode", "bootstrap", "prealloc", "transfer", "waiting".
type PassQueuePart struct {
	Name     string   `json:"name"`
	Requests *float64 `json:"requests"` // null: not told
	Tokens   *float64 `json:"tokens"`
}

// PassRank is one rank's stream.
type PassRank struct {
	Rank       int      `json:"rank"`
	State      string   `json:"state"` // "working", "idle", "stale"
	Reason     string   `json:"reason"`
	First      string   `json:"first"`
	Last       string   `json:"last"`
	LastPass   *string  `json:"last_pass"`
	Allowance  float64  `json:"allowance_seconds"` // silence that its rhythm allows
	Passes     int64    `json:"passes"`
	Heartbeats int64    `json:"heartbeats"`
	Lost       *int64   `json:"lost"` // null: its messages have no numbers to see losses by
	Late       int64    `json:"late"`
	Duplicates int64    `json:"duplicates"`
	Restarts   int64    `json:"restarts"`
	LastGap    *string  `json:"last_gap"`
	LastStart  *string  `json:"last_restart"`
	Busy       float64  `json:"busy_seconds"`
	Least      bool     `json:"busy_is_lower_bound"`
	Unmeasured float64  `json:"unmeasured_seconds"`
	Notices    []string `json:"notices"`
}

// PassRelay is the way out.
type PassRelay struct {
	To       string `json:"to"`
	State    string `json:"state"`
	Relayed  int64  `json:"relayed"`
	Filtered int64  `json:"filtered"` // on a plane already
	Waiting  int    `json:"waiting"`
	Limit    int    `json:"limit"`
	Lost     int64  `json:"lost"`
	Error    string `json:"error,omitempty"`
}

// PassRows says which passes are kept as rows.
type PassRows struct {
	Keep      string   `json:"keep"`              // "all", "bursts", "off"
	Retention *float64 `json:"retention_seconds"` // of rows outside bursts; null when none are kept
	Stored    int64    `json:"stored"`            // since the start
	Recent    int      `json:"recent"`            // passes in memory
	Seconds   float64  `json:"recent_seconds"`    // which they span
}

// PassBurst is a stretch of time of which every pass is kept as long as other events.
type PassBurst struct {
	ID      string `json:"id"`
	Reason  string `json:"reason"`
	Trigger string `json:"trigger"` // "manual", "gap", "restart", "model_change", "alert"
	Engine  string `json:"engine"`  // PassEngine's id, "" for all
	From    string `json:"from"`
	To      string `json:"to"`
	Rows    int64  `json:"rows"`
	Done    bool   `json:"done"`
}

// PassColumns are passes as columns of equal length (GET /passes/live?after=&engine=&limit= out of memory, in
// the order in which they came; GET /passes/rows?from=&to=&engine=&limit= out of the store, by time).
type PassColumns struct {
	Next  string        `json:"next"`    // after= of the next question; "" out of the store
	Gone  int64         `json:"gone"`    // passes between after= and the first here that memory no longer has
	More  bool          `json:"more"`    // there are others that limit= left out
	Ranks []PassRankRef `json:"ranks"`   // those that the column rank points to
	Rank  []int         `json:"rank"`    // index in ranks
	Time  []float64     `json:"time_ms"` // when it came, milliseconds since 1970
	Wall  []float64     `json:"wall_ms"` // what it took; 0 with the flag of a heartbeat or of a time that cannot be
	Flags []int         `json:"flags"`   // 1 heartbeat, 2 the engine began anew before it, 4 messages are missing before it, 8 late, 16 its time cannot be
	// Missing is how many messages before it did not come.
	Missing               []int64 `json:"missing"`
	PrefillRequests       []int64 `json:"prefill_requests"`
	PrefillTokens         []int64 `json:"prefill_tokens"`
	PrefillKV             []int64 `json:"prefill_kv_tokens"`
	DecodeRequests        []int64 `json:"decode_requests"`
	DecodeKV              []int64 `json:"decode_kv_tokens"`
	QueuedPrefillRequests []int64 `json:"queued_prefill_requests"`
	QueuedPrefillTokens   []int64 `json:"queued_prefill_tokens"`
	QueuedDecodeRequests  []int64 `json:"queued_decode_requests"`
	QueuedDecodeKV        []int64 `json:"queued_decode_kv_tokens"`
}

// PassRankRef names a rank of an engine.
type PassRankRef struct {
	Engine string `json:"engine"` // PassEngine's id
	Name   string `json:"name"`
	Rank   int    `json:"rank"`
}

// PassAdvice is the answer of GET /passes/advice: what Dynamo's planner would do with each deployment.
type PassAdvice struct {
	Deployments []PassDeployment `json:"deployments"`
}

// PassDeployment is one namespace's engines as a planner sees them.
type PassDeployment struct {
	Namespace string `json:"namespace"`
	Mode      string `json:"mode"`      // "disagg", "prefill", "decode", "agg"
	ModeFrom  string `json:"mode_from"` // "configuration" or why it was taken to be so
	// SettingsFrom is "the configuration", "Dynamo's defaults", or of a recording which of the two, and since when.
	SettingsFrom string         `json:"settings_from"`
	Target       string         `json:"target"` // "throughput", "latency", "load", "sla"
	TTFT         float64        `json:"ttft_target_seconds"`
	ITL          float64        `json:"itl_target_seconds"`
	At           string         `json:"at"`
	Demand       *PassDemand    `json:"demand"` // null while it is not known
	Load         PassLoop       `json:"load_loop"`
	Throughput   PassLoop       `json:"throughput_loop"`
	Replicas     map[string]int `json:"replicas"` // that it would scale to; empty: leave all as it is
	Notes        []string       `json:"notes"`
	Models       []PassModel    `json:"models"`
}

// PassDemand is what comes in, and where that was read.
type PassDemand struct {
	RequestsPerSecond float64  `json:"requests_per_second"`
	ISL               float64  `json:"isl_tokens"`
	OSL               float64  `json:"osl_tokens"`
	HitRate           *float64 `json:"hit_rate"`
	From              string   `json:"from"`
}

// PassLoop is the outcome of one of the planner's two loops.
type PassLoop struct {
	Reason string           `json:"reason"`
	Pools  []PassPoolAdvice `json:"pools"`
}

// PassPoolAdvice is a loop's outcome for one pool.
type PassPoolAdvice struct {
	Component string           `json:"component"` // "prefill", "decode"
	Current   int              `json:"current"`
	Want      int              `json:"want"`
	Reason    string           `json:"reason"`
	Why       string           `json:"why"`
	TTFT      *float64         `json:"ttft_seconds"`
	ITL       *float64         `json:"itl_seconds"`
	RPS       *float64         `json:"requests_per_second"` // of one engine
	Engines   []PassEngineView `json:"engines"`
}

// PassEngineView is one engine's rank as the load loop saw it.
type PassEngineView struct {
	Worker               string   `json:"worker_id"`
	Rank                 int      `json:"rank"`
	QueuedPrefillTokens  int64    `json:"queued_prefill_tokens"`
	QueuedDecodeKVTokens int64    `json:"queued_decode_kv_tokens"`
	InflightKVTokens     int64    `json:"inflight_kv_tokens"`
	TTFT                 *float64 `json:"ttft_seconds"`
	ITL                  *float64 `json:"itl_seconds"`
	Signal               *float64 `json:"signal"`
}

// PassModel is a pool's line and whether it can be trusted.
type PassModel struct {
	Component string           `json:"component"`
	Role      string           `json:"role"` // "prefill", "decode", "agg"
	Engines   int              `json:"engines"`
	Ranks     int              `json:"ranks"`        // of those engines, that send now
	TTFT      *float64         `json:"ttft_seconds"` // of the next request at the worst rank now, by our fit; null: not known, or none in this role
	ITL       *float64         `json:"itl_seconds"`
	Fit       PassFit          `json:"fit"`    // ours: without cold starts and what came before a change
	Dynamo    PassFit          `json:"dynamo"` // of all passes, on which Dynamo decides
	Cold      PassCold         `json:"cold_start"`
	Drift     PassDrift        `json:"drift"`
	Refused   map[string]int64 `json:"refused"` // passes that it did not take, by reason
}

// PassFit is intercept + coef[0]*feature[0] + ... seconds.
type PassFit struct {
	State     string       `json:"state"` // "learning", "refused", "fitted"
	Reason    string       `json:"reason"`
	Features  []string     `json:"features"` // "sum_prefill_tokens", "num_decode_requests", "sum_decode_kv_tokens"
	Coef      []float64    `json:"coef"`     // seconds per unit
	StdErr    []*float64   `json:"std_err"`
	Intercept float64      `json:"intercept_seconds"`
	Samples   int          `json:"samples"`
	R2        *float64     `json:"r2"`
	RMSE      *float64     `json:"rmse_seconds"`
	MeanError *float64     `json:"mean_error"`
	Range     [][2]float64 `json:"range"` // of each feature among the samples
}

// PassCold is about the first passes of engines.
type PassCold struct {
	Passes int64    `json:"passes"`
	Factor *float64 `json:"factor"` // how many times longer they took than the model says
}

// PassDrift says whether a model still holds.
type PassDrift struct {
	State    string   `json:"state"` // "learning", "holds", "broken"
	Changes  int      `json:"changes"`
	At       *string  `json:"at"`     // when the last was noticed
	Factor   *float64 `json:"factor"` // observed over predicted since then
	Pressure float64  `json:"pressure"`
}

// PassCapacity is the answer of GET /passes/capacity?namespace=&ttft=&itl=&isl=&osl=&hit=&rate=&prefill=&decode=:
// what a deployment carries within a promise. What is not given is taken from what is measured.
type PassCapacity struct {
	Namespace string `json:"namespace"`
	// NamespaceFrom is "the question", or why this one was taken.
	NamespaceFrom string             `json:"namespace_from"`
	Namespaces    []string           `json:"namespaces"`    // all of which passes came
	SettingsFrom  string             `json:"settings_from"` // as in PassDeployment
	TTFT          float64            `json:"ttft_target_seconds"`
	ITL           float64            `json:"itl_target_seconds"`
	ISL           *float64           `json:"isl_tokens"`
	OSL           *float64           `json:"osl_tokens"`
	HitRate       *float64           `json:"hit_rate"`
	ShapeFrom     string             `json:"shape_from"`
	Demand        *float64           `json:"demand_requests_per_second"`
	DemandFrom    string             `json:"demand_from"`
	Pools         []PassPoolCapacity `json:"pools"`
	RPS           *float64           `json:"requests_per_second"` // of the whole; null while it is not known
	Limiting      string             `json:"limiting"`
	Meets         bool               `json:"meets"`
	Reason        string             `json:"reason"` // why there is no answer, "" when there is
	Assumptions   []string           `json:"assumptions"`
}

// PassPoolCapacity is a pool's part of it.
type PassPoolCapacity struct {
	Component string              `json:"component"`
	Replicas  int                 `json:"replicas"`
	Engine    *PassEngineCapacity `json:"engine"` // of one; null while it is not known
	Needed    *int                `json:"needed"` // replicas for the demand
	AtDemand  *PassLoadEstimate   `json:"at_demand"`
	Reason    string              `json:"reason"`
}

// PassEngineCapacity is the most that one engine carries.
type PassEngineCapacity struct {
	RPS     float64 `json:"requests_per_second"`
	TTFT    float64 `json:"ttft_seconds"`
	ITL     float64 `json:"itl_seconds"`
	Batch   int     `json:"batch"`
	Meets   bool    `json:"meets"`
	Bound   string  `json:"bound"`   // what keeps it from carrying more
	Outside bool    `json:"outside"` // beyond all that was seen: the line guesses
}

// PassLoadEstimate is what one engine would be like at its share of the demand.
type PassLoadEstimate struct {
	TTFT        float64 `json:"ttft_seconds"`
	ITL         float64 `json:"itl_seconds"`
	Batch       float64 `json:"batch"`
	Utilisation float64 `json:"utilisation"`
	Saturated   bool    `json:"saturated"`
}
