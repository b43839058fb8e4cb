package scrape

import (
	"fmt"
	"log/slog"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	promscrape "github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"

	"github.com/rollscope/rollscope/internal/engine"
)

// Reasons for which samples are not stored, as in rollscope_dropped_total{source="scrape"}.
const (
	dropDuplicateSeries = "duplicate_series"    // the series stood twice in one answer
	dropDuplicateTime   = "duplicate_timestamp" // another value of the same time is stored, from another target
	dropOutOfOrder      = "out_of_order"        // older than the newest stored, and no out-of-order window
	dropTooOld          = "too_old"             // older than the out-of-order window
	dropTooNew          = "too_new"             // its own time is more than 10 minutes ahead
	dropBadLine         = "bad_line"            // unreadable lines of an otherwise good answer
	dropBadAnswer       = "bad_answer"          // scrapes lost whole to an unreadable line
	dropSampleLimit     = "sample_limit"        // samples of answers over sample_limit
	dropLabelLimit      = "label_limit"         // scrapes lost whole to a label over its limit
)

// target is what is known about one scrape target, beside what Prometheus knows.
type target struct {
	prom *promscrape.Target

	// scan guards what the appenders of consecutive scrapes hand on.
	scan    sync.Mutex
	iter    uint64
	size    int // samples of the last scrape
	refs    [watched]storage.SeriesRef
	first   map[storage.SeriesRef]uint64 // series -> scrape in which it was seen first
	alias   map[storage.SeriesRef]aliasState
	expects [expectations]int

	mu        sync.Mutex
	pool      string // job_name of its scrape config
	appendErr error  // of the scrape that runs: what the parser or the limits refused
	appended  bool   // appendErr is of the scrape that runs

	scrapes int64
	absent  int // rounds in which it was not among the active targets
	samples int
	up      *bool // as the last scrape went; nil before it and while there are no metrics yet
	everUp  bool
	reason  Reason
	message string // of the failure, with the body quoted
	hint    string
	// routerHint is what to do instead, when a router answers where metrics were asked for.
	routerHint string
	lastAt     int64 // of the last scrape, milliseconds
	drops      map[string]int64
	findings   map[string]Finding // by key
	warned     map[string]bool    // what was logged once

	identity   Identity
	identified bool
	lastBad    string // reason and message last logged
	probe      probeState
	procs      processes
	bad        badState
	exposition summary
	types      map[string]model.MetricType // of families, as last seen
}

// summary is what stays of an inspected exposition.
type summary struct {
	at          time.Time
	kind        Kind
	backend     engine.Backend
	spelling    Spelling
	dpRanks     []string
	engineTypes []string
	models      []string
	workers     []string
	layouts     map[string]string // histogram family -> bounds
}

func newTarget(t *promscrape.Target) *target {
	return &target{prom: t, first: map[storage.SeriesRef]uint64{}, drops: map[string]int64{}, findings: map[string]Finding{}, warned: map[string]bool{}}
}

func (t *target) job() string      { return t.prom.GetValue(model.JobLabel) }
func (t *target) instance() string { return t.prom.GetValue(model.InstanceLabel) }
func (t *target) url() string      { return t.prom.URL().String() }

// LogValue names the target in log lines.
func (t *target) LogValue() slog.Value {
	return slog.GroupValue(slog.String("job", t.job()), slog.String("instance", t.instance()), slog.String("url", t.url()))
}

// What the appender tells the log tap to expect, so that one event is counted once.
const (
	expectDuplicate = iota
	expectOutOfBounds
	expectations
)

func (t *target) expect(what int) {
	t.scan.Lock()
	t.expects[what]++
	t.scan.Unlock()
}

// expected takes one expectation back.
func (t *target) expected(what int) bool {
	t.scan.Lock()
	defer t.scan.Unlock()
	if t.expects[what] == 0 {
		return false
	}
	t.expects[what]--
	return true
}

// aliasState is of a series that came, or may have come, in two spellings in one answer.
type aliasState struct {
	since uint64 // scrape in which it was suspected
	last  uint64 // scrape in which it was appended last
	dup   uint64 // scrape in which it was appended twice; 0 never
}

// twice tells whether the series r was appended in this scrape before under another spelling.
// asked is the reference the scrape loop gave: 0 when it sees this text for the first time.
func (t *target) twice(a *appender, asked, r storage.SeriesRef) bool {
	t.scan.Lock()
	defer t.scan.Unlock()
	if s, ok := t.alias[r]; ok {
		dup := s.last == a.iter
		s.last = a.iter
		if dup {
			s.dup = a.iter
		}
		t.alias[r] = s
		return dup
	}
	if asked != 0 {
		return false
	}
	at, ok := t.first[r]
	if !ok {
		if len(t.first) > 4*t.size+10_000 {
			clear(t.first) // churn: forget, at the cost of noticing a second spelling later
		}
		t.first[r] = a.iter
		return false
	}
	// Seen before: it came back after an absence, or this is a second spelling of it. Within one
	// scrape that is certain; otherwise the next scrape tells.
	s := aliasState{since: a.iter, last: a.iter}
	if at == a.iter {
		s.dup = a.iter
	}
	if t.alias == nil {
		t.alias = map[storage.SeriesRef]aliasState{}
	}
	if len(t.alias) < 10_000 {
		t.alias[r] = s
		a.aliased = true
	}
	return s.dup != 0
}

// handOn takes over what a scrape learned. The scrape was committed.
func (t *target) handOn(a *appender) {
	t.scan.Lock()
	defer t.scan.Unlock()
	t.refs = a.refs
	t.size = a.samples
	for r, s := range t.alias {
		if a.iter > s.since && s.dup+1 < a.iter {
			delete(t.alias, r)
		}
	}
	t.expects = [expectations]int{}
}

// moved follows a watched series to its new reference.
func (t *target) moved(a *appender, from, to storage.SeriesRef) {
	for i := range a.refs {
		if a.refs[i] == from {
			a.refs[i] = to
		}
	}
}

// setPool records the scrape config a target belongs to.
func (t *target) setPool(pool string) {
	t.mu.Lock()
	t.pool = pool
	t.mu.Unlock()
}

// addFinding keeps a finding; false when it is known already. t.mu is held.
func (t *target) addFinding(f Finding) bool {
	k := f.Code + "\x00" + f.Family + "\x00" + f.Series
	_, known := t.findings[k]
	if !known && len(t.findings) >= 100 {
		return false
	}
	t.findings[k] = f
	return !known
}

// dropFindings forgets findings of some codes. t.mu is held.
func (t *target) dropFindings(codes ...string) {
	for k, f := range t.findings {
		for _, c := range codes {
			if f.Code == c {
				delete(t.findings, k)
			}
		}
	}
}

// once is true the first time it is asked for a key. t.mu is held.
func (t *target) once(key string) bool {
	if t.warned[key] {
		return false
	}
	if len(t.warned) < 1000 {
		t.warned[key] = true
	}
	return true
}

// Identity is what a target turned out to be.
type Identity struct {
	Backend engine.Backend
	Role    engine.Role
	Version string // "" not known
	Model   string // "" not known, or several
	DPSize  int    // data-parallel ranks as the engine says; 0 not known
	From    string // where version and sizes come from: "/server_info"; "" when only the exposition was read
	Workers int    // of a router: how many engines it reports or lists; 0 not known
}

// TargetInfo is one target as it stands.
type TargetInfo struct {
	Pool     string // job_name of the scrape config
	Job      string
	Instance string
	URL      string
	Labels   labels.Labels // public ones
	// Up is nil before the first scrape, and while the target answers but has no metrics yet.
	Up         *bool
	EverUp     bool      // it has given metrics since it became a target
	LastScrape time.Time // zero before the first
	Duration   time.Duration
	Samples    int
	Error      string // what went wrong, an unexpected body quoted
	Reason     Reason
	Hint       string
	Identity   Identity
	Spelling   Spelling
	DPRanks    []string         // data-parallel ranks: seen in the exposition, or named by the worker list
	Findings   []Finding        // sorted
	Drops      map[string]int64 // by reason
	Lenient    bool             // its answers have unreadable lines and are read around them
}

// Targets lists the active targets, sorted by job and instance.
func (m *Manager) Targets() []TargetInfo {
	var out []TargetInfo
	for pool, ts := range m.prom.TargetsActive() {
		for _, pt := range ts {
			out = append(out, m.info(pool, pt))
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if a.Job != b.Job {
			return a.Job < b.Job
		}
		if a.Instance != b.Instance {
			return a.Instance < b.Instance
		}
		return a.URL < b.URL
	})
	return out
}

func (m *Manager) info(pool string, pt *promscrape.Target) TargetInfo {
	t := m.watch.of(pt)
	b := labels.NewBuilder(labels.EmptyLabels())
	ti := TargetInfo{
		Pool: pool, Job: t.job(), Instance: t.instance(), URL: t.url(), Labels: pt.Labels(b),
		LastScrape: pt.LastScrape(), Duration: pt.LastScrapeDuration(), Drops: map[string]int64{},
	}
	if ranks := pt.DiscoveredLabels(b).Get(dpRanksLabel); ranks != "" {
		ti.DPRanks = strings.Split(ranks, ",")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pool == "" {
		t.pool = pool
	}
	if t.up != nil {
		up := *t.up
		ti.Up = &up
	}
	ti.EverUp = t.everUp
	ti.Samples, ti.Reason, ti.Error, ti.Hint = t.samples, t.reason, t.message, t.hint
	ti.Identity, ti.Spelling = t.identity, t.exposition.spelling
	if len(t.exposition.dpRanks) > 0 {
		ti.DPRanks = append([]string(nil), t.exposition.dpRanks...)
	}
	ti.Lenient = t.bad.lenient
	for _, f := range t.findings {
		ti.Findings = append(ti.Findings, f)
	}
	ti.Findings = append(ti.Findings, m.fleet.findings(t)...)
	sortFindings(ti.Findings)
	for r, n := range t.drops {
		ti.Drops[r] = n
	}
	return ti
}

func sortFindings(fs []Finding) {
	rank := map[Level]int{LevelError: 0, LevelWarn: 1, LevelInfo: 2}
	sort.Slice(fs, func(i, j int) bool {
		a, b := fs[i], fs[j]
		if a.Level != b.Level {
			return rank[a.Level] < rank[b.Level]
		}
		if a.Code != b.Code {
			return a.Code < b.Code
		}
		return fmt.Sprint(a.Family, a.Series) < fmt.Sprint(b.Family, b.Series)
	})
}

// sweep forgets targets that are no longer scraped.
func (m *Manager) sweep() {
	active := map[*promscrape.Target]bool{}
	for _, ts := range m.prom.TargetsActive() {
		for _, t := range ts {
			active[t] = true
		}
	}
	m.watch.targets.Range(func(k, v any) bool {
		if !active[k.(*promscrape.Target)] {
			t := v.(*target)
			t.mu.Lock()
			t.absent++ // the first time it may be one that is just being added
			gone := t.absent > 1
			t.mu.Unlock()
			if gone {
				m.watch.targets.Delete(k)
				m.fleet.forget(t)
				m.lenient.forget(t)
			}
		}
		return true
	})
}
