// Package wire is what the event store's process and the one that started it agree on, beside the HTTP
// API of VictoriaLogs: paths and the answer [Settled].
package wire

// Paths that only the child answers.
const (
	// ReadyPath answers 200 once the storage is open.
	ReadyPath = "/internal/rollscope/ready"
	// SettlePath (POST, ?days=YYYYMMDD,...) answers once everything inserted before lies in files; see [Settled].
	SettlePath = "/internal/rollscope/settle"
	// InsertPath (POST) takes lines as they stand in the spool, and answers 204 with [RefusedHeader], or
	// 429 when the disk is nearly full and nothing was taken.
	InsertPath = "/internal/rollscope/insert"
)

// RefusedHeader is how many lines of an InsertPath request could not be read; the others were taken.
const RefusedHeader = "Rollscope-Refused"

// Stop is the line on stdin that ends the child in good order. The end of stdin ends it at once.
const Stop = "stop"

// Probing begins the line, before the day (YYYYMMDD), that a child started with -probe writes to stderr
// before it reads the index of streams of that day.
const Probing = "reading the index of streams of "

// ListenFD is the file descriptor of the child's listening socket.
const ListenFD = 3

// Settled is the answer of [SettlePath].
//
// Rows go from a buffer (up to 1 s) into parts in memory and from there into files. /internal/force_flush
// empties the buffer only, a snapshot leaves out parts that are being merged, and the timer that writes
// parts to files skips those too: none of them says that a row lies in a file. What does say it: while
// nobody inserts, the buffer was flushed and no part in memory is left. So the caller stops inserting,
// asks, and goes on when it has the answer; snapshots, taken and removed until no part in memory is left,
// make that quick. A request that is canceled ends the wait.
//
// The index of streams has parts in memory of its own, which are not counted apart. When streams were
// added since the last answer, a snapshot of the days in question writes them out; it is taken while no
// merge of the index runs, again if one ran meanwhile, and removed.
type Settled struct {
	Settled  bool   `json:"settled"`
	Reason   string `json:"reason,omitempty"` // why not
	ReadOnly bool   `json:"read_only"`
	Free     int64  `json:"free_bytes"`
	Rows     int64  `json:"rows"`  // in files
	Bytes    int64  `json:"bytes"` // in files, index included
}

// QueryBytes is how long a query may be: lists of values are long.
const QueryBytes = 1 << 20
