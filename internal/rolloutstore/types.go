package rolloutstore

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/rollout"
)

// Newest as an ID's Attempt stands for the step's newest attempt.
const Newest = -1

// ID names a step: one attempt at it.
type ID struct {
	Run       string
	Kind      rollout.Kind
	RolloutID int64
	Attempt   int // 0 is the first; [Newest] asks for the highest
}

// kindNames are the words for the kinds on disk and in ids.
var kindNames = [...]string{rollout.Train: "train", rollout.Eval: "eval"}

// String is the id as URLs carry it: RUN/train-142.0, the run path-escaped.
func (id ID) String() string {
	s := url.PathEscape(id.Run) + "/" + id.kind() + "-" + strconv.FormatInt(id.RolloutID, 10)
	if id.Attempt != Newest {
		s += "." + strconv.Itoa(id.Attempt)
	}
	return s
}

func (id ID) kind() string {
	if int(id.Kind) < len(kindNames) {
		return kindNames[id.Kind]
	}
	return "kind" + strconv.Itoa(int(id.Kind))
}

// ParseID reads what [ID.String] writes; without an attempt it is the newest one.
func ParseID(s string) (ID, error) {
	bad := fmt.Errorf("%q is no step; one is RUN/train-142 or RUN/eval-140.0", s)
	run, rest, ok := strings.Cut(s, "/")
	if !ok {
		return ID{}, bad
	}
	name, err := url.PathUnescape(run)
	if err != nil || name == "" {
		return ID{}, bad
	}
	id, ok := parseStem(rest)
	if !ok {
		return ID{}, bad
	}
	id.Run = name
	return id, nil
}

// parseStem reads KIND-ROLLOUT[.ATTEMPT].
func parseStem(s string) (ID, bool) {
	kind, rest, ok := strings.Cut(s, "-")
	if !ok {
		return ID{}, false
	}
	id := ID{Attempt: Newest}
	found := false
	for k, n := range kindNames {
		if n == kind {
			id.Kind, found = rollout.Kind(k), true
		}
	}
	number, attempt, has := strings.Cut(rest, ".")
	if has {
		n, err := strconv.ParseUint(attempt, 10, 31)
		if err != nil {
			return ID{}, false
		}
		id.Attempt = int(n)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || number[0] == '+' {
		return ID{}, false
	}
	id.RolloutID = n
	return id, found
}

// stem is the name of the step's files without an extension.
func (id ID) stem() string {
	return fmt.Sprintf("%s-%06d.%d", id.kind(), id.RolloutID, id.Attempt)
}

// containerFile is the name of a step's container.
func containerFile(id ID, sum string) string { return id.stem() + "." + sum + ".rtc" }

func (s *Summary) containerFile() string { return containerFile(s.ID, s.Sum) }

// Run is a run and what was said about it.
type Run struct {
	Name string `json:"name"`
	// Pattern is where its dumps are; Derived says that the name was derived from it.
	Pattern string          `json:"pattern,omitempty"`
	Derived bool            `json:"derived,omitempty"`
	GPUs    int             `json:"gpus,omitempty"`
	Created time.Time       `json:"created"`
	Extra   json.RawMessage `json:"extra,omitempty"` // what the caller keeps; an object

	// What the store knows.
	Steps    int       `json:"-"` // newest attempts
	Attempts int       `json:"-"` // all of them
	Last     time.Time `json:"-"` // end of the last step
	Bytes    int64     `json:"-"` // records and containers
}

// Dump is the file that a step was read from.
type Dump struct {
	Path        string    `json:"path"`
	Size        int64     `json:"size"` // bytes
	ModTime     time.Time `json:"mtime"`
	Fingerprint string    `json:"fingerprint"` // of the content; "" is unlike any other
}

// Counts are a step's samples and what is in their traces. Status is shared with the store: it must not
// be changed.
type Counts struct {
	Samples  int            `json:"samples"`
	Traced   int            `json:"traced"` // samples with a usable trace
	Carried  int            `json:"carried,omitempty"`
	Status   map[string]int `json:"status,omitempty"`
	Groups   int            `json:"groups,omitempty"`
	Requests int            `json:"requests"`
	Events   int            `json:"events"`
	Skipped  int            `json:"skipped,omitempty"`  // entries of events lists that are no events
	Problems int            `json:"problems,omitempty"` // of samples
}

// MetricState says what a metric's value is.
type MetricState uint8

// States of a metric, as [rollout.MetricState], and Missing for one that a step does not have.
const (
	Value MetricState = iota
	Partial
	Idle
	Unknown
	Missing MetricState = 255
)

var stateNames = map[MetricState]string{Value: "value", Partial: "partial", Idle: "idle", Unknown: "unknown", Missing: "missing"}

func (s MetricState) String() string { return stateNames[s] }

// Metric is one metric of a step.
type Metric struct {
	Key     string
	Value   float64 // finite; 0 unless State is Value or Partial
	State   MetricState
	Derived bool
	Unit    string
	Note    string
}

type metricJSON struct {
	K string   `json:"k"`
	V *float64 `json:"v,omitempty"`
	S string   `json:"s,omitempty"`
	D bool     `json:"d,omitempty"`
	U string   `json:"u,omitempty"`
	N string   `json:"n,omitempty"`
}

// Metrics are written as [{"k": key, "v": value, ...}].
type Metrics []Metric

// UnmarshalJSON decodes the list at once: one by one takes twice the time.
func (ms *Metrics) UnmarshalJSON(b []byte) error {
	var list []metricJSON
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	*ms = nil
	for _, j := range list {
		*ms = append(*ms, j.metric())
	}
	return nil
}

// MarshalJSON writes {"k": key, "v": value, "s": state unless it is a value, "d", "u", "n"}. A value that
// is not finite becomes unknown.
func (m Metric) MarshalJSON() ([]byte, error) {
	j := metricJSON{K: m.Key, D: m.Derived, U: m.Unit, N: m.Note}
	m = m.checked()
	if m.State <= Partial {
		j.V = &m.Value
	}
	if m.State != Value {
		j.S = m.State.String()
	}
	j.N = m.Note
	return json.Marshal(j)
}

func (m Metric) checked() Metric {
	if m.State <= Partial && (math.IsNaN(m.Value) || math.IsInf(m.Value, 0)) {
		m.State = Unknown
		if m.Note == "" {
			m.Note = "the value was not finite"
		}
	}
	if m.State > Partial {
		m.Value = 0
	}
	return m
}

// UnmarshalJSON reads what MarshalJSON writes.
func (m *Metric) UnmarshalJSON(b []byte) error {
	var j metricJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*m = j.metric()
	return nil
}

func (j *metricJSON) metric() Metric {
	m := Metric{Key: j.K, Derived: j.D, Unit: j.U, Note: j.N}
	if j.S != "" {
		m.State = Unknown // also what a state is that a later version knows
		for s, n := range stateNames {
			if n == j.S {
				m.State = s
			}
		}
	}
	if j.V != nil && m.State <= Partial {
		m.Value = *j.V
	} else if m.State <= Partial {
		m.State = Unknown
	}
	return m
}

// FromRollout turns the metrics of a dump into those of the store.
func FromRollout(in []rollout.Metric) Metrics {
	out := make(Metrics, len(in))
	for i, m := range in {
		out[i] = Metric{Key: m.Key, Value: m.Value, Derived: m.Derived, Unit: m.Unit, Note: m.Note}
		switch m.State {
		case rollout.MetricValue:
		case rollout.MetricPartial:
			out[i].State = Partial
		case rollout.MetricIdle:
			out[i].State = Idle
		default:
			out[i].State = Unknown
		}
	}
	return out
}

// Problem is something odd about a step, and how often it is.
type Problem struct {
	Code  string `json:"code"`
	Where string `json:"where,omitempty"` // of the first
	What  string `json:"what,omitempty"`
	Count int    `json:"count"`
}

// Publication is that a tracker has a step.
type Publication struct {
	Tracker string    `json:"tracker"` // tensorboard, wandb, metrics
	At      time.Time `json:"at"`
	Note    string    `json:"note,omitempty"` // what it was written to
}

// Summary is what lists show of a step.
type Summary struct {
	ID ID `json:"-"`
	// Superseded is not stored: a step with a lower id ran later, so that the job went back to a
	// checkpoint and has not come here again.
	Superseded bool `json:"-"`

	Dump      Dump          `json:"dump"`
	First     time.Time     `json:"first,omitzero"` // first and last event; zero when no trace has one
	Last      time.Time     `json:"last,omitzero"`
	Counts    Counts        `json:"counts"`
	Analysis  string        `json:"analysis,omitempty"` // version of what made the record and the container
	Added     time.Time     `json:"added"`
	Container int64         `json:"container,omitempty"` // bytes; 0 when there is none
	Sum       string        `json:"container_crc32c,omitempty"`
	Published []Publication `json:"published,omitempty"`
}

// PublishedTo says whether a tracker has the step.
func (s *Summary) PublishedTo(tracker string) (Publication, bool) {
	for _, p := range s.Published {
		if p.Tracker == tracker {
			return p, true
		}
	}
	return Publication{}, false
}

// Step is all that is kept of a step, apart from its container.
type Step struct {
	Summary
	// Metrics are what is plotted over steps; no key occurs twice.
	Metrics Metrics `json:"metrics,omitempty"`
	// Compat are slime's own values of them.
	Compat   Metrics         `json:"compat,omitempty"`
	Walltime json.RawMessage `json:"walltime,omitempty"` // where the time went, of the timeline
	Extra    json.RawMessage `json:"extra,omitempty"`    // what the caller keeps beside
	Problems []Problem       `json:"problems,omitempty"`
}

// Filter selects steps; the zero value selects the newest attempt of each.
type Filter struct {
	Kind     []rollout.Kind // nil: all
	From, To *int64         // rollout ids, both included
	Since    time.Time      // steps that ended at or after it
	Until    time.Time      // steps that began before it
	Attempts bool           // older attempts too
}

func (f *Filter) has(s *Summary) bool {
	if f.Kind != nil {
		ok := false
		for _, k := range f.Kind {
			ok = ok || k == s.ID.Kind
		}
		if !ok {
			return false
		}
	}
	if f.From != nil && s.ID.RolloutID < *f.From || f.To != nil && s.ID.RolloutID > *f.To {
		return false
	}
	if !f.Since.IsZero() && s.when().Before(f.Since) {
		return false
	}
	begin := s.First
	if begin.IsZero() {
		begin = s.Dump.ModTime
	}
	return f.Until.IsZero() || begin.Before(f.Until)
}

// when is the end of a step: its last event, else when its dump was written.
func (s *Summary) when() time.Time {
	if s.Last.IsZero() {
		return s.Dump.ModTime
	}
	return s.Last
}

// Change is something that happened to a step.
type Change struct {
	What ChangeKind
	ID   ID
}

// ChangeKind says what happened.
type ChangeKind uint8

// Kinds of changes.
const (
	Added ChangeKind = iota + 1
	Updated
	Deleted
)

// Damage is a file that could not be read.
type Damage struct {
	Run  string // name of the run, or of its directory when that is all there is
	File string // as it is called now
	Why  string
	// Aside says that the file was renamed; otherwise it is where it was (a read-only store, or a later version's file).
	Aside bool
}
