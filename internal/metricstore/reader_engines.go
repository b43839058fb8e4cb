package metricstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

// EngineInfo is one engine in a range of time, however many ways it was seen in.
type EngineInfo struct {
	Job      string // of its own scrape; of the router's when only that saw it
	Instance string // host:port, or Ray's worker id
	Name     string // from the configuration, else Instance
	Role     engine.Role
	Backend  engine.Backend
	Version  string // "" unknown
	Model    string
	View     engine.View       // the view that counts
	DPRanks  []string          // data-parallel ranks that are visible
	DPSize   int               // how many there are, as the engine says; 0 unknown
	Up       *bool             // at the end of the range; nil: not scraped then, or seen through a router only
	Labels   map[string]string // what its series share, without rank labels
}

// IsEngine tells engines from frontends.
func (e EngineInfo) IsEngine() bool {
	return e.Backend == engine.SGLang || e.Backend == engine.VLLM || e.Backend == engine.DynamoWorker
}

// fleetEntry is what is known about the engines of a range.
type fleetEntry struct {
	engines  []EngineInfo
	warnings []Warning
	at       map[string]int  // index by instance
	names    map[string]bool // canonical metric names held
	read     time.Time
}

func (f fleetEntry) find(instance string) (EngineInfo, bool) {
	i, ok := f.at[instance]
	if !ok {
		return EngineInfo{}, false
	}
	return f.engines[i], true
}

func (f fleetEntry) role(instance string) engine.Role {
	e, _ := f.find(instance)
	return e.Role
}

func (f fleetEntry) name(instance string) string {
	if e, ok := f.find(instance); ok {
		return e.Name
	}
	return instance
}

// holds tells whether the range has a metric or, of a histogram, its series.
func (f fleetEntry) holds(metric string) bool {
	return f.names[metric] || f.names[metric+"_bucket"] || f.names[metric+"_count"]
}

// Engines lists the engines seen in a range, sorted by job and instance, and what is odd about them.
func (r *Reader) Engines(ctx context.Context, from, to time.Time) ([]EngineInfo, []Warning, error) {
	f, err := r.engines(ctx, from, to)
	return slices.Clone(f.engines), slices.Clone(f.warnings), err
}

// cacheFor is how long an answer about a range is kept: the parts of one page ask within seconds.
const cacheFor = 10 * time.Second

func (r *Reader) engines(ctx context.Context, from, to time.Time) (fleetEntry, error) {
	now := r.opts.Now()
	key := [2]int64{from.UnixMilli() / cacheFor.Milliseconds(), to.UnixMilli() / cacheFor.Milliseconds()}
	r.mu.Lock()
	f, ok := r.cache[key]
	r.mu.Unlock()
	if age := now.Sub(f.read); ok && age >= 0 && age < cacheFor {
		return f, nil
	}
	f, err := r.readEngines(WithoutNameNotes(ctx), from, to)
	if err != nil {
		return fleetEntry{}, fmt.Errorf("metricstore: engines: %w", err)
	}
	f.read = now
	r.mu.Lock()
	for k, old := range r.cache {
		if age := now.Sub(old.read); age < 0 || age >= cacheFor {
			delete(r.cache, k)
		}
	}
	r.cache[key] = f
	r.mu.Unlock()
	return f, nil
}

// presenceNames are series by which a program is known to be there: few, since every scrape has them.
var presenceNames = map[engine.Backend][]string{
	engine.SGLang: {
		"sglang:num_running_reqs", "sglang:max_total_num_tokens", "sglang:generation_tokens_total", "sglang:gen_throughput",
		"sglang:num_requests_total", "sglang:time_to_first_token_seconds_count", "sglang:realtime_tokens_total",
	},
	engine.VLLM: {
		"vllm:num_requests_running", "vllm:generation_tokens_total", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc",
		"vllm:time_to_first_token_seconds_count", "vllm:request_success_total",
	},
	engine.DynamoWorker:   {"dynamo_component_uptime_seconds", "dynamo_component_requests_total", "dynamo_component_inflight_requests"},
	engine.DynamoFrontend: {"dynamo_frontend_requests_total", "dynamo_frontend_inflight_requests", "dynamo_frontend_time_to_first_token_seconds_count"},
}

// rankLabels and others that tell series of one engine apart, and so do not describe the engine.
var seriesLabels = []string{model.MetricNameLabel, "tp_rank", "pp_rank", "dp_rank", "moe_ep_rank", "engine", "le", "quantile", "pid", "mode", "worker_addr", "engine_type", "finished_reason"}

// fleetReader gathers the engines of a range.
type fleetReader struct {
	res      *engine.Resolver
	names    map[string]bool
	found    map[string]*EngineInfo
	views    map[string]map[engine.View]string // by instance: the scraped instance that showed it
	models   map[string]map[engine.View]string
	infos    map[string]labels.Labels // rollscope_target_info by instance
	covered  map[string]bool          // values of the label instance whose series were seen
	upValues map[string]float64
	upJobs   map[string]string
}

func (r *Reader) readEngines(ctx context.Context, from, to time.Time) (_ fleetEntry, err error) {
	q, err := r.q.Querier(from.UnixMilli(), to.UnixMilli())
	if err != nil {
		return fleetEntry{}, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	stored, _, err := q.LabelValues(ctx, model.MetricNameLabel, nil)
	if err != nil {
		return fleetEntry{}, err
	}
	x := &fleetReader{
		res: engine.NewResolver(r.opts.Overrides), names: map[string]bool{}, found: map[string]*EngineInfo{},
		views: map[string]map[engine.View]string{}, models: map[string]map[engine.View]string{},
		infos: map[string]labels.Labels{}, covered: map[string]bool{},
		upValues: map[string]float64{}, upJobs: map[string]string{},
	}
	byBackend := map[engine.Backend][]string{}
	for _, n := range stored {
		c := strings.Clone(signal.Canonical(n))
		x.names[c] = true
		if strings.HasSuffix(c, "_bucket") || strings.HasSuffix(c, "_created") {
			continue
		}
		if b, ok := signal.Detect([]string{n}); ok {
			byBackend[b] = append(byBackend[b], strings.Clone(n))
		}
	}
	if err := x.observe(ctx, q, signal.TargetInfoSeries, nil); err != nil {
		return fleetEntry{}, err
	}
	// The frontend before the worker: it has the runtime's metrics as well, and the first word counts.
	for _, b := range []engine.Backend{engine.SGLang, engine.VLLM, engine.DynamoFrontend, engine.DynamoWorker} {
		if err := x.backend(ctx, q, b, byBackend[b]); err != nil {
			return fleetEntry{}, err
		}
	}
	if err := x.up(ctx, r, to); err != nil {
		return fleetEntry{}, err
	}
	if err := x.lookBack(ctx, r, from); err != nil {
		return fleetEntry{}, err
	}
	f := x.entry()
	warnings, err := r.fleetWarnings(ctx, x, f, from, to)
	f.warnings = warnings
	return f, err
}

// backend observes the series of one kind of program.
func (x *fleetReader) backend(ctx context.Context, q storage.Querier, b engine.Backend, stored []string) error {
	if len(stored) == 0 {
		return nil
	}
	seen := 0
	for _, n := range presenceNames[b] {
		if seen < 4 && x.names[n] {
			seen++
			if err := x.observe(ctx, q, n, nil); err != nil {
				return err
			}
		}
	}
	// Engines of other versions, or seen with few series, may have none of those.
	all := alternation(labels.MatchRegexp, model.MetricNameLabel, stored)
	instances, _, err := q.LabelValues(ctx, "instance", nil, all)
	if err != nil {
		return err
	}
	var rest []string
	for _, i := range instances {
		if !x.covered[i] {
			rest = append(rest, strings.Clone(i))
		}
	}
	if len(rest) == 0 {
		return nil
	}
	canonical := map[string]bool{}
	for _, n := range stored {
		canonical[signal.Canonical(n)] = true
	}
	for _, n := range sortedKeys(canonical) {
		if err := x.observe(ctx, q, n, alternation(labels.MatchRegexp, "instance", rest)); err != nil {
			return err
		}
	}
	return nil
}

// observe takes the label sets of a name's series into account; their samples are not read.
func (x *fleetReader) observe(ctx context.Context, q storage.Querier, name string, only *labels.Matcher) error {
	if !x.names[name] {
		return nil
	}
	ms := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, name)}
	if only != nil {
		ms = append(ms, only)
	}
	set := q.Select(ctx, false, nil, ms...)
	for set.Next() {
		x.series(name, set.At().Labels())
	}
	return set.Err()
}

// series takes one label set into account.
func (x *fleetReader) series(name string, ls labels.Labels) {
	get := ls.Get
	if strings.HasPrefix(name, "vllm:") {
		get = func(l string) string {
			if l == "dp_rank" {
				return ls.Get("engine")
			}
			return ls.Get(l)
		}
	}
	if name == signal.TargetInfoSeries {
		x.infos[ls.Get("instance")] = cloneLabels(ls)
		return
	}
	x.covered[strings.Clone(ls.Get("instance"))] = true
	id := x.res.Observe(name, func(l string) string { return strings.Clone(get(l)) })
	if id.Instance == "" {
		return
	}
	e := x.found[id.Instance]
	if e == nil {
		e = &EngineInfo{Instance: id.Instance, Labels: map[string]string{}}
		x.found[id.Instance] = e
		x.views[id.Instance] = map[engine.View]string{}
		x.models[id.Instance] = map[engine.View]string{}
	}
	job, fromRouter := strings.Clone(ls.Get("job")), x.jobFromRouter(id.Instance)
	if v, ok := x.views[id.Instance][id.View]; !ok || ls.Get("instance") < v {
		x.views[id.Instance][id.View] = strings.Clone(ls.Get("instance"))
	}
	if id.View != engine.ViaRouter && (fromRouter || job < e.Job) || e.Job == "" {
		e.Job = job
	}
	m := cmp.Or(ls.Get("model_name"), ls.Get("model"))
	if old := x.models[id.Instance][id.View]; m != "" && (old == "" || m < old) {
		x.models[id.Instance][id.View] = strings.Clone(m)
	}
	if len(e.Labels) == 0 || id.View != engine.ViaRouter {
		ls.Range(func(l labels.Label) {
			if !contains(seriesLabels, l.Name) {
				e.Labels[strings.Clone(l.Name)] = strings.Clone(l.Value)
			}
		})
	}
}

// jobFromRouter tells whether an engine was seen through a router only, until now.
func (x *fleetReader) jobFromRouter(instance string) bool {
	_, direct := x.views[instance][engine.Direct]
	_, ray := x.views[instance][engine.ViaRay]
	return !direct && !ray
}

func cloneLabels(ls labels.Labels) labels.Labels {
	b := labels.NewScratchBuilder(ls.Len())
	ls.Range(func(l labels.Label) { b.Add(strings.Clone(l.Name), strings.Clone(l.Value)) })
	return b.Labels()
}

// up reads which targets are up at the end of the range.
func (x *fleetReader) up(ctx context.Context, r *Reader, to time.Time) error {
	v, err := r.instant(ctx, "max by (job, instance) (up)", to)
	if err != nil {
		return err
	}
	for _, s := range v {
		i := s.Metric.Get("instance")
		if old, ok := x.upValues[i]; !ok || s.F > old { // two jobs may scrape one engine
			x.upValues[i] = s.F
			x.upJobs[i] = s.Metric.Get("job")
		}
	}
	return nil
}

// lookBack finds out what the targets are that gave nothing in the range: an engine that is down all the
// time is still an engine.
func (x *fleetReader) lookBack(ctx context.Context, r *Reader, from time.Time) (err error) {
	var dark []string
	for i := range x.upValues {
		if x.found[i] == nil && !x.covered[i] {
			dark = append(dark, i)
		}
	}
	if len(dark) == 0 {
		return nil
	}
	slices.Sort(dark)
	q, err := r.q.Querier(from.Add(-24*time.Hour).UnixMilli(), from.UnixMilli())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	only := alternation(labels.MatchRegexp, "instance", dark)
	for _, b := range []engine.Backend{engine.SGLang, engine.VLLM, engine.DynamoWorker} {
		for _, n := range presenceNames[b] {
			set := q.Select(ctx, false, nil, labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, n), only)
			for set.Next() {
				x.series(n, set.At().Labels())
			}
			if err := set.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// entry forms the list.
func (x *fleetReader) entry() fleetEntry {
	f := fleetEntry{at: map[string]int{}, names: x.names}
	known := map[string]engine.Seen{}
	for _, s := range x.res.Instances() {
		known[s.Instance] = s
	}
	// A target that never answered is known by what was written about it only.
	for instance, ls := range x.infos {
		b := engine.Backend(ls.Get("backend"))
		if x.found[instance] == nil && (b == engine.SGLang || b == engine.VLLM) {
			x.found[instance] = &EngineInfo{Instance: instance, Job: ls.Get("job"), Labels: map[string]string{}}
			known[instance] = engine.Seen{Instance: instance, Backend: b, Role: engine.Unified, View: engine.Direct}
		}
	}
	for instance, e := range x.found {
		s := known[instance]
		e.Name, e.Role, e.Backend, e.View, e.DPRanks = cmp.Or(s.Name, instance), s.Role, s.Backend, s.View, s.DPRanks
		for _, v := range []engine.View{engine.Direct, engine.ViaRay, engine.ViaRouter} {
			if m := x.models[instance][v]; m != "" {
				e.Model = m
				break
			}
		}
		if up, ok := x.upValues[instance]; ok && e.View != engine.ViaRouter {
			isUp := up > 0
			e.Up = &isUp
		}
		if ls, ok := x.infos[instance]; ok {
			e.Version = ls.Get("version")
			e.DPSize, _ = strconv.Atoi(ls.Get("dp_size")) // absent: unknown
			e.Model = cmp.Or(e.Model, ls.Get("model_name"), ls.Get("model"))
			if e.Backend == engine.Unknown {
				e.Backend = engine.Backend(ls.Get("backend"))
			}
			if role := engine.Role(ls.Get("role")); role != engine.RoleUnknown {
				e.Role = role // only what the configuration set is written there
			}
		}
		f.engines = append(f.engines, *e)
	}
	slices.SortFunc(f.engines, func(a, b EngineInfo) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Instance, b.Instance))
	})
	for i, e := range f.engines {
		f.at[e.Instance] = i
	}
	return f
}

// samplesOf reads a name's samples in a range by series, staleness markers left out.
func (r *Reader) samplesOf(ctx context.Context, name string, from, to time.Time, f func(ls labels.Labels, ts []int64, vs []float64)) (err error) {
	q, err := r.q.Querier(from.UnixMilli(), to.UnixMilli())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	set := q.Select(ctx, false, nil, labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, name))
	var ts []int64
	var vs []float64
	for set.Next() {
		ts, vs = ts[:0], vs[:0]
		it := set.At().Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if kind != chunkenc.ValFloat {
				continue
			}
			if t, v := it.At(); !math.IsNaN(v) {
				ts, vs = append(ts, t), append(vs, v)
			}
		}
		if err := it.Err(); err != nil {
			return err
		}
		f(set.At().Labels(), ts, vs)
	}
	return set.Err()
}
