package sim

// pass is one prefill forward pass in progress.
type pass struct {
	active              bool
	start, end          float64
	done                []*request // their prompts are complete when it ends
	chunked             bool       // one request continues in the next pass
	computed, hit, host int        // tokens
	again               int        // of these, of requests that were retracted before
	requests            int
}

// decodeRun is a run of equal decode steps.
type decodeRun struct {
	steps  int
	gap    float64 // seconds between two tokens of one request, except of the first step
	stall  float64 // added to the first step's gap: the prefill pass before it
	tokens float64 // tokens of the whole run
	batch  int
}

// kvTransfer is one prompt's KV sent from a prefill to a decode engine.
type kvTransfer struct {
	bytes   float64
	seconds float64
	alloc   float64 // seconds the decode engine took to allocate
	boot    float64 // seconds of the bootstrap
}

// reportKind is what made a scheduler write its gauges.
type reportKind uint8

const (
	reportPrefill reportKind = iota
	reportDecode
	reportIdle
	reportPause
)

// observer turns what happens in a program into that program's own metrics. Its methods are called
// in the order of simulated time of one scheduler.
type observer interface {
	started(sv *server)                                 // a new process is up: everything counted is forgotten
	received(s *scheduler, r *request)                  // by the engine
	compiled(s *scheduler, r *request, sec float64)     // grammar; 0 s: found in the cache
	admitted(s *scheduler, r *request, wait float64)    // waiting queue to first forward
	prefilled(s *scheduler, p *pass)                    // a prefill pass ended
	firstToken(s *scheduler, r *request)                // of the request
	decoded(s *scheduler, d decodeRun)                  // a run of decode steps ended
	retracted(s *scheduler, n, input, output int)       // requests thrown out of the batch
	granted(s *scheduler, r *request)                   // decode engine: KV slots allocated
	transferred(s *scheduler, r *request, t kvTransfer) // prefill engine: KV sent
	resent(s *scheduler)                                // prefill engine: a transfer was tried again
	arrived(s *scheduler, r *request)                   // decode engine: KV here
	broken(s *scheduler, r *request)                    // bootstrap or transfer failed
	finished(s *scheduler, r *request, o outcome)       // all of it, with tokens
	dropped(s *scheduler, r *request, o outcome)        // ended before its first token
	cache(s *scheduler, m kvMoves)                      // the KV pool moved tokens
	report(s *scheduler, kind reportKind)               // gauges are written
	swept(s *scheduler)                                 // one abort call for everything that runs
	synced(s *scheduler, sec float64)                   // a weight update ended
}
