package dumps

import (
	"slices"
	"time"

	"github.com/rollscope/rollscope/internal/rollout"
)

// State is where a dump is on its way.
type State uint8

// The states of a dump. Each but Processed may become any other.
const (
	Waiting    State = iota // it was seen, and is not at rest for long enough or not its turn yet
	Incomplete              // it has no end: still being written, or cut
	Working                 // it is with the handler
	Processed               // the handler took it, or the index knew it
	Failed                  // it cannot be read or handled; it is tried again
)

func (s State) String() string {
	return [...]string{"waiting", "incomplete", "working", "processed", "failed"}[s]
}

// Reason is a fixed word for why a dump is not processed.
type Reason string

// Reasons.
const (
	ReasonEmpty       Reason = "empty"
	ReasonIncomplete  Reason = "incomplete"
	ReasonChanged     Reason = "changed" // while it was read
	ReasonNotTorch    Reason = "not_torch"
	ReasonCorrupt     Reason = "corrupt"
	ReasonUnsupported Reason = "unsupported"
	ReasonLimit       Reason = "limit"
	ReasonPermission  Reason = "permission"
	ReasonIO          Reason = "io"
	ReasonNotRegular  Reason = "not_regular"
	ReasonSameStep    Reason = "same_step"
	ReasonHandler     Reason = "handler"
	ReasonDeleted     Reason = "deleted_unread"
)

// FileStatus is a dump as the watcher sees it.
type FileStatus struct {
	Path        string
	Run         string
	Kind        rollout.Kind
	RolloutID   int64
	Size        int64 // bytes
	ModTime     time.Time
	Fingerprint string // "" until it was read
	State       State
	Reason      Reason    // "" unless Incomplete or Failed
	Why         string    // in words
	Tries       int       // that failed since it last changed
	Next        time.Time // when it is tried again; zero when it is not waiting for that
	Done        time.Time // when it was processed
}

// RunStatus is a pattern as the watcher sees it.
type RunStatus struct {
	Pattern
	// Problem says why the directory cannot be listed; "" when it can.
	Problem string
	Listed  time.Time
	States  map[State]int // how many dumps are in each
	// Newest is the highest rollout id of a training dump that was processed; -1 for none.
	Newest int64
}

// Lost is a dump that will never be processed.
type Lost struct {
	Path, Run, Why string
	At             time.Time
}

// maxLost is how many are remembered.
const maxLost = 100

// Counts are totals since the start.
type Counts struct {
	Looks     int64
	Processed int64 // by the handler
	Known     int64 // by the index, so that they were not processed again
	Failures  int64 // attempts to process a dump that failed
}

// Files lists the dumps, oldest first.
func (w *Watcher) Files() []FileStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]*file, 0, len(w.files))
	for _, f := range w.files {
		list = append(list, f)
	}
	slices.SortFunc(list, byAge)
	out := make([]FileStatus, len(list))
	for i, f := range list {
		out[i] = FileStatus{Path: f.Path, Run: f.Run, Kind: f.Kind, RolloutID: f.RolloutID, Size: f.Size, ModTime: f.ModTime,
			Fingerprint: f.Fingerprint, State: f.state, Reason: f.reason, Why: f.why, Tries: f.tries, Next: f.next, Done: f.done}
	}
	return out
}

// Runs lists the patterns in the order of the options.
func (w *Watcher) Runs() []RunStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]RunStatus, len(w.dirs))
	at := make(map[*dir]*RunStatus, len(w.dirs))
	for i, d := range w.dirs {
		out[i] = RunStatus{Pattern: d.Pattern, Problem: d.state, Listed: d.listed, States: map[State]int{}, Newest: -1}
		at[d] = &out[i]
	}
	for _, f := range w.files {
		r := at[f.dir]
		r.States[f.state]++
		if f.state == Processed && f.Kind == rollout.Train {
			r.Newest = max(r.Newest, f.RolloutID)
		}
	}
	return out
}

// Counts returns the totals.
func (w *Watcher) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}

// Dropped counts by reason the dumps that could not be processed when they were first tried, each
// content once, and those that were deleted before; lost are the last of the latter.
func (w *Watcher) Dropped() (byReason map[string]int64, lost []Lost) {
	w.mu.Lock()
	defer w.mu.Unlock()
	byReason = make(map[string]int64, len(w.dropped))
	for k, v := range w.dropped {
		byReason[k] = v
	}
	return byReason, slices.Clone(w.lost)
}
