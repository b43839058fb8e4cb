package dumps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rollscope/rollscope/trace"
)

// Receiver is told of each dump that an [Inbox] wrote.
type Receiver interface {
	// Received may be called again for the same dump: after an error, and after a crash. It is called by
	// one goroutine at a time.
	Received(ctx context.Context, d ReceivedDump) error
}

// ReceivedDump is a rollout that senders posted, as a dump.
type ReceivedDump struct {
	Path      string // rollout_7.pt or rollout_eval_7.pt; of later attempts rollout_7.attempt1.pt
	Run       string
	Kind      string // trace.Train or trace.Eval
	RolloutID int64
	Attempt   int   // 0, then 1, ... of this rollout; see [Inbox]
	Samples   int   // in the dump
	Lost      int64 // samples that the senders said they dropped
	Missing   int   // parts that did not come, of those that are known of
	// Incomplete says that the dump is not the whole rollout: samples were lost, parts are missing, or
	// the last one never came.
	Incomplete bool
}

// InboxOptions are the choices of [OpenInbox]. Zero fields have the defaults that stand beside them.
type InboxOptions struct {
	Receiver Receiver         // nil: dumps are written and nobody is told
	Now      func() time.Time // time.Now
	Logger   *slog.Logger     // slog.Default

	Limits      trace.Limits // of one batch
	MaxBytes    int64        // of all batches that wait, each counted as what is larger, its file or its text; 4 GiB
	MaxBatches  int          // that wait; 65,536
	MaxRollouts int          // that are being received; 256
	MaxSenders  int          // requests at a time; 64
	MinFree     int64        // bytes that the disk must have left to take a batch; 1 GiB, negative for none

	// Linger is how long a complete rollout waits for an upload of another process; 2 s, negative for not at all.
	Linger time.Duration
	// MissingAfter is how long a rollout waits for missing parts when all uploads sent their last one; 2 min.
	MissingAfter time.Duration
	// SettleAfter is how long it waits for anything more when a last part did not come; 15 min. Both
	// count from the newest batch, and again from the opening of the inbox.
	SettleAfter time.Duration
	// Remember is how long batches of finished rollouts are known when they are sent again, how long
	// those of a rollout that was closed without its end are kept for what may come, if there is room,
	// and how long a Receiver that fails is asked again; 24 h.
	Remember time.Duration

	KeepDumps int   // dumps that are kept for each run and kind, the newest; all
	KeepBytes int64 // of dumps that are kept, of all runs; all

	// Free returns how many bytes a directory's disk has left, or an error when that is not known; the
	// file system is asked.
	Free func(dir string) (int64, error)
}

// Inbox keeps batches of samples that senders post, and makes each rollout a dump once it is complete
// or nothing more comes. INBOX.md describes its directory, which one process may use at a time. It
// holds the text of at most three batches in memory, whatever the size of a rollout, and is safe for
// concurrent use.
//
// Uploads that overlap in time, or follow each other within Linger, are of processes that share a
// rollout: they become one dump. An upload of a rollout that has its dump already is a job that was
// restarted, and so is one that began after another one had broken off: it becomes a dump of its own,
// the next attempt, and the earlier dump stays. When more comes of an upload that was closed without its
// end, the next attempt has all of it. A store that knows steps by their content finds an attempt with
// the same samples to be the same one.
type Inbox struct {
	dir  string
	o    InboxOptions
	wake chan struct{}

	senders  chan struct{} // a place for each request
	decoders chan struct{} // a place for each batch that is held in memory
	opened   time.Time
	dirs     sync.Mutex // held while directories are made or removed; before mu
	passing  sync.Mutex // held by settle
	stop     func(point string) error

	mu       sync.Mutex
	rollouts map[rolloutKey]*incoming
	flights  map[flight]chan struct{} // uploads of which a batch is being stored; closed when it is
	spooled  int64                    // bytes of bodies that are being received
	waiting  int64                    // bytes of batches, as MaxBytes counts them
	batches  int
	began    int64 // uploads so far
	pressed  bool  // a batch was refused for want of room
	dropped  map[string]int64
}

// rolloutKey identifies a rollout.
type rolloutKey struct {
	run, kind string
	id        int64
}

func (k rolloutKey) String() string { return fmt.Sprintf("run %q %s %d", k.run, k.kind, k.id) }

type flight struct {
	key    rolloutKey
	upload string
}

// incoming is a rollout that is being received, or was.
type incoming struct {
	key      rolloutKey
	uploads  map[string]*upload // that no attempt has
	attempts []*attempt         // in order
	storing  int                // batches that are being written
}

// upload is what came of one upload.
type upload struct {
	name    string
	order   int64 // in which uploads began
	parts   map[int]*part
	ids     map[string]int // batch ids: parts
	last    int            // the highest part that is known of
	final   bool           // the last part is there
	lost    int64
	samples int
	first   time.Time // when its first batch came
	latest  time.Time
}

type part struct {
	id      string
	digest  string
	samples int
	text    int64 // bytes of samples
	payload int64 // bytes of the body
}

// charge is what a batch counts of MaxBytes.
func (p *part) charge() int64 { return max(p.payload+blockSize, p.text) }

// mostLost is the highest number of lost samples that is believed, so that their sum is one.
const mostLost = 1 << 40

// add takes a batch that is stored into the upload.
func (u *upload) add(rec *partRecord) {
	p := &part{rec.BatchID, rec.Digest, rec.Samples, rec.Text, rec.Payload}
	u.parts[rec.Part], u.ids[p.id] = p, rec.Part
	u.last = max(u.last, rec.Part)
	if rec.Parts != nil {
		u.last = max(u.last, *rec.Parts-1)
	}
	u.final = u.final || rec.Final
	u.lost = max(u.lost, min(rec.Lost, mostLost)) // a sum, as the sender counts it
	u.samples += rec.Samples
	if u.first.IsZero() || rec.Received.Before(u.first) {
		u.first = rec.Received
	}
	if rec.Received.After(u.latest) {
		u.latest = rec.Received
	}
}

// missing is what trace.Missing says of all batches.
func (u *upload) missing() int { return u.last + 1 - len(u.parts) }

func (u *upload) complete() bool { return u.final && u.missing() == 0 }

// upload returns an open upload, made when it is new.
func (r *incoming) upload(name string, order int64) *upload {
	u := r.uploads[name]
	if u == nil {
		u = newUpload(name, order)
		r.uploads[name] = u
	}
	return u
}

func newUpload(name string, order int64) *upload {
	return &upload{name: name, order: order, parts: map[int]*part{}, ids: map[string]int{}, last: -1}
}

// sums are the samples of a rollout's open uploads, and whether all of these are complete.
func (r *incoming) sums() (samples int, complete bool) {
	complete = len(r.uploads) > 0
	for _, u := range r.uploads {
		samples += u.samples
		complete = complete && u.complete()
	}
	return samples, complete
}

// active says that batches of the rollout wait.
func (r *incoming) active() bool {
	if len(r.uploads) > 0 || r.storing > 0 {
		return true
	}
	for _, a := range r.attempts {
		if !a.cleaned && a.State != finished {
			return true
		}
	}
	return false
}

// OpenInbox opens or makes a directory for batches and continues what was under way in it. [Inbox.Run]
// must run for dumps to be written.
func OpenInbox(dir string, o InboxOptions) (*Inbox, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Logger = o.Logger.With("component", "inbox")
	if o.Free == nil {
		o.Free = freeBytes
	}
	orDefault(&o.Limits.Bytes, 128<<20)
	orDefault(&o.MaxBytes, 4<<30)
	orDefault(&o.MaxBatches, 1<<16)
	orDefault(&o.MaxRollouts, 256)
	orDefault(&o.MaxSenders, 64)
	orDefault(&o.MissingAfter, 2*time.Minute)
	orDefault(&o.SettleAfter, 15*time.Minute)
	orDefault(&o.Remember, 24*time.Hour)
	if o.MinFree == 0 {
		o.MinFree = 1 << 30
	}
	if o.Linger == 0 {
		o.Linger = 2 * time.Second
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	b := &Inbox{
		dir: dir, o: o, wake: make(chan struct{}, 1), senders: make(chan struct{}, o.MaxSenders), decoders: make(chan struct{}, maxDecoders),
		opened: o.Now(), rollouts: map[rolloutKey]*incoming{}, flights: map[flight]chan struct{}{}, dropped: map[string]int64{},
	}
	if err := os.MkdirAll(b.temp(), 0o755); err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}
	if err := b.load(); err != nil {
		return nil, fmt.Errorf("inbox: reading what waits in %s: %w", dir, err)
	}
	return b, nil
}

// maxDecoders is how many batches may be held in memory at a time, beside that of a dump being written.
const maxDecoders = 2

func orDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// at tells tests that a point is reached; their error ends what is under way there, as a crash would.
func (b *Inbox) at(point string) error {
	if b.stop == nil {
		return nil
	}
	return b.stop(point)
}

// Run writes dumps and hands them on until ctx is done: when a rollout is complete, and at each tick
// what waits for its time. A tick a second is enough.
func (b *Inbox) Run(ctx context.Context, tick <-chan time.Time) {
	for {
		b.settle(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick:
		case <-b.wake:
		}
	}
}

// Words of [Inbox.Dropped] that are not a [Refusal]'s.
const (
	droppedMissing  = "missing"
	droppedLost     = "lost_by_sender"
	droppedDamaged  = "damaged"
	droppedReceiver = "receiver"
	droppedPruned   = "pruned"
)

// Dropped counts by reason, since the inbox was opened: batches that were refused, under the words of
// Refusal.Reason (of these inbox_full, disk_full and busy come again, as a rule); "damaged" batches,
// whose files were set aside; "missing" parts of rollouts that were closed without them;
// "lost_by_sender", samples that senders said they dropped; "receiver", dumps that the Receiver
// did not take in the time of Remember; "pruned", dumps that KeepDumps or KeepBytes removed.
func (b *Inbox) Dropped() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[string]int64, len(b.dropped))
	for k, n := range b.dropped {
		out[k] = n
	}
	return out
}

func (b *Inbox) drop(reason string, n int64) {
	if n > 0 {
		b.mu.Lock()
		b.dropped[reason] += n
		b.mu.Unlock()
	}
}

// Reasons of a [Refusal].
const (
	RefusedMalformed   = "malformed"   // the batch is not what FORMAT.md says; wraps a *trace.LineError
	RefusedTooLarge    = "too_large"   // beyond Limits; wraps trace.ErrTooLarge
	RefusedConflict    = "conflict"    // the part or the batch id is taken by another content
	RefusedLate        = "late"        // the rollout was closed without this part, too long ago to add it
	RefusedInterrupted = "interrupted" // the body could not be read to its end; wraps its error
	RefusedFull        = "inbox_full"  // MaxBytes, MaxBatches or MaxRollouts
	RefusedDiskFull    = "disk_full"
	RefusedBusy        = "busy"   // MaxSenders, or what it depends on is being written
	RefusedFailed      = "failed" // the disk failed
)

// Refusal is why a batch was not taken.
type Refusal struct {
	Reason     string
	RetryAfter time.Duration // when it may work; 0 when the same batch would be refused again, or nobody knows
	Err        error
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Status is the HTTP status that tells a sender what to do, as FORMAT.md has it: 4xx gives the batch
// up, 5xx and 408 try it again.
func (r *Refusal) Status() int {
	switch r.Reason {
	case RefusedMalformed:
		return 400
	case RefusedInterrupted:
		return 408
	case RefusedConflict, RefusedLate:
		return 409
	case RefusedTooLarge:
		return 413
	case RefusedFull, RefusedBusy:
		return 503
	case RefusedDiskFull:
		return 507
	}
	return 500
}

func refuse(reason string, after time.Duration, format string, args ...any) error {
	return &Refusal{reason, after, fmt.Errorf(format, args...)}
}

// refusal makes any error one.
func refusal(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	if isFull(err) {
		return &Refusal{RefusedDiskFull, time.Minute, fmt.Errorf("the disk of the inbox is full: make room or give it another directory: %w", err)}
	}
	return &Refusal{RefusedFailed, 10 * time.Second, fmt.Errorf("the batch could not be stored: %w", err)}
}
