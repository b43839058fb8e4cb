package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/passstore"
	"github.com/rollscope/rollscope/internal/planner"
)

// planning is the planner of each deployment: what it has learned, and what it would do. It makes a
// passPlanner.
type planning struct {
	metrics metricsSource
	log     *slog.Logger

	mu       sync.Mutex // of all below
	settings planner.Config
	asked    bool   // the settings name a mode
	origin   string // where the settings come from
	pools    map[string]config.PassPool
	notes    []api.Warning
	spaces   map[string]*planSpace // by namespace
	beyond   int64                 // passes of namespaces beyond the limit
	gone     map[string]int64      // passes that planners refused before the settings changed, by reason
	history  *planHistory          // of a recorder: where all that is written down; nil: nowhere
	damaged  int64                 // histories that could not be read
	past     map[string]planMode   // of a recording: the modes that its namespaces had
}

// maxSpaces is how many namespaces are learned of.
const maxSpaces = 64

// planSpace is one namespace's.
type planSpace struct {
	namespace string
	roles     map[fpm.Role]bool // of the engines that send
	planner   *planner.Planner
	problem   string // why there is no planner: settings that do not go with the mode
	mode      planner.Mode
	from      string // why this mode
	caps      map[planner.Component]planner.Caps
	capsFrom  []string
	changes   map[planner.Component]moment
	seen      map[planner.Component]int64            // the most tokens that a pass prefilled
	refused   map[planner.Component]map[string]int64 // passes that were not taken, by reason
	names     map[fpm.Key]string                     // of workers without an id
	demand    demandNow
	answer    *api.PassCapacity // of the last refresh, as the two below
	advice    *api.PassDeployment
	wanted    map[string]int // replicas, of the pools of which that is known
	passes    uint64
}

// moment is when a model was noticed to hold no longer.
type moment struct {
	at     int64
	factor float64
}

func newPlanning(metrics metricsSource, log *slog.Logger) *planning {
	return &planning{metrics: metrics, log: log, settings: planner.Defaults(), origin: defaultSettings, spaces: map[string]*planSpace{}, gone: map[string]int64{}}
}

// Where settings may come from.
const (
	givenSettings   = "the configuration"
	defaultSettings = "Dynamo's defaults"
)

// remember writes the settings that are in force from now on, and the modes, down below home.
func (p *planning) remember(home string) {
	path := planHistoryIn(home)
	h, err := openPlanHistory(path)
	if err != nil {
		if _, there := os.Stat(path); there == nil {
			err = errors.Join(err, os.Rename(path, path+".damaged"))
		}
		p.log.Error("which settings the planner had cannot be read; the list begins anew, and what there was lies beside it", "err", err, "aside", path+".damaged")
		h = newPlanHistory(path)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.history = h
	if err != nil {
		p.damaged++
	}
}

// recall puts the settings in force that held at a time of a recording.
func (p *planning) recall(h *planHistory, at time.Time) error {
	s, modes := h.at(at)
	if s == nil {
		return nil
	}
	cfg, err := s.config(h.path)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	origin := defaultSettings
	if s.Given {
		origin = givenSettings
	}
	p.settings, p.asked, p.pools, p.past = cfg, s.ModeGiven, s.Pools, modes
	p.origin = fmt.Sprintf("the recording: %s, in force since %s", origin, s.From.UTC().Format(time.RFC3339))
	return nil
}

// note writes down what changed, once there is something that was planned with it.
func (p *planning) note() {
	if len(p.spaces) == 0 {
		return
	}
	if err := p.history.save(); err != nil {
		p.log.Warn("which settings the planner has cannot be written down; a recording would not know them", "err", err)
	}
}

// apply puts settings in force. What was learned is kept while neither a setting nor the make-up of the pools
// changes; limits of engines are no part of that.
func (p *planning) apply(cfg *config.Config) error {
	node := &cfg.Rollscope.Planner
	settings, notes, err := planner.ParseNode(cfg.Path, nodeOf(node))
	if err != nil {
		return fmt.Errorf("rollscope.planner: %w", err)
	}
	pools, asked := cfg.Rollscope.ForwardPasses.Pools, hasKey(node, "mode")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notes = nil
	for _, n := range notes {
		p.notes = append(p.notes, api.Warning{Code: "planner", Message: n, Where: cfg.Path, Hint: "see docs/planner.md"})
	}
	if asked != p.asked || !reflect.DeepEqual(settings, p.settings) || !reflect.DeepEqual(componentsOf(pools), componentsOf(p.pools)) {
		for _, s := range p.spaces {
			for _, reasons := range s.refused {
				for reason, n := range reasons {
					p.gone[reason] += n
				}
			}
		}
		p.spaces = map[string]*planSpace{}
	}
	p.settings, p.asked, p.pools, p.origin = settings, asked, pools, defaultSettings
	if len(node.Content) > 0 {
		p.origin = givenSettings
	}
	if err := p.history.use(time.Now(), settings, p.origin == givenSettings, asked, pools); err != nil {
		return fmt.Errorf("rollscope.planner: %w", err)
	}
	return nil
}

// componentsOf is which components make up the pools.
func componentsOf(pools map[string]config.PassPool) map[string][]string {
	out := map[string][]string{}
	for name, p := range pools {
		if len(p.Components) > 0 {
			out[name] = p.Components
		}
	}
	return out
}

// hasKey tells whether a mapping names a key.
func hasKey(n *yaml.Node, key string) bool {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return true
		}
	}
	return false
}

// componentOf is the pool that engines of a role are in.
func componentOf(r fpm.Role) planner.Component {
	if r == fpm.Prefill {
		return planner.PrefillPool
	}
	return planner.DecodePool
}

// space is a namespace's; with a role that it has not, its planner is made anew when the mode is another by
// it. nil when there are too many.
func (p *planning) space(namespace string, role fpm.Role) *planSpace {
	s := p.spaces[namespace]
	if s == nil {
		if len(p.spaces) >= maxSpaces {
			return nil
		}
		s = &planSpace{namespace: namespace, roles: map[fpm.Role]bool{}, seen: map[planner.Component]int64{},
			refused: map[planner.Component]map[string]int64{}, names: map[fpm.Key]string{}, demand: demandNow{why: "nobody has looked yet"}}
		p.spaces[namespace] = s
	}
	if !s.roles[role] {
		s.roles[role] = true
		p.settle(s)
	}
	return s
}

// settle chooses the mode and makes the planner for it.
func (p *planning) settle(s *planSpace) {
	mode, from := p.settings.Mode, "the configuration"
	if !p.asked {
		mode, from = modeOf(s.roles)
	}
	if then, ok := p.past[s.namespace]; ok {
		mode, from = planner.Mode(then.Mode), then.Why
	}
	s.from = from
	if s.planner != nil && mode == s.mode {
		return
	}
	cfg := p.settings
	cfg.Mode = mode
	made, err := planner.New(cfg, s.caps)
	s.mode, s.problem, s.planner = mode, "", made
	s.changes, s.answer, s.advice, s.wanted = map[planner.Component]moment{}, nil, nil, nil
	if err != nil {
		s.planner, s.problem = nil, fmt.Sprintf("the planner's settings do not go with mode %s (%s): %v", mode, from, err)
	}
}

// modeOf is the topology that the roles which send make.
func modeOf(roles map[fpm.Role]bool) (planner.Mode, string) {
	prefill, other := roles[fpm.Prefill], roles[fpm.Decode] || roles[fpm.Unified]
	switch {
	case prefill && other:
		return planner.ModeDisagg, "engines of a prefill component and of another send"
	case prefill:
		return planner.ModePrefill, "only engines that prefill send"
	case roles[fpm.Decode]:
		return planner.ModeDecode, "only engines that decode send"
	}
	return planner.ModeAgg, "the engines that send do both"
}

// observe implements passPlanner.
func (p *planning) observe(now int64, k fpm.Key, role fpm.Role, pass *fpm.Pass, seen fpm.Observation) string {
	if seen.Late || seen.Duplicate || seen.Dropped {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.space(k.Namespace, role)
	if s == nil {
		p.beyond++
		return ""
	}
	if s.planner == nil {
		return ""
	}
	c, worker := componentOf(role), s.worker(k)
	if seen.Restart {
		s.planner.Restarted(c, worker, int(k.Rank))
	}
	verdict, change := s.planner.Observe(c, iterationOf(worker, k, pass))
	switch verdict {
	case planner.Heartbeat:
	case planner.Sample, planner.Cold:
		s.passes++
		s.seen[c] = max(s.seen[c], int64(pass.Scheduled.PrefillTokens))
	default:
		if s.refused[c] == nil {
			s.refused[c] = map[string]int64{}
		}
		s.refused[c][string(verdict)]++
	}
	if change == nil {
		return ""
	}
	s.changes[c] = moment{now, change.Factor}
	return fmt.Sprintf("passes of the %s pool take %.2f times what passes like them took before", c, change.Factor)
}

// maxNames bounds the names that are kept: publishers come and go.
const maxNames = 4096

// worker is the name by which the models know a worker.
func (s *planSpace) worker(k fpm.Key) string {
	if k.Worker != "" {
		return k.Worker
	}
	k.Rank = 0
	name, ok := s.names[k]
	if !ok {
		if len(s.names) >= maxNames {
			clear(s.names)
		}
		name = workerName(k)
		s.names[k] = name
	}
	return name
}

// workerName tells the workers of a namespace apart: by its id, else by who publishes for it, else by its source.
func workerName(k fpm.Key) string { return cmp.Or(passstore.WorkerOf(k), "-") }

// iterationOf is a pass as the models read it. Counts beyond what a planner can hold are refused there.
func iterationOf(worker string, k fpm.Key, p *fpm.Pass) planner.Iteration {
	return planner.Iteration{
		Worker: worker, Rank: int(k.Rank), WallTime: p.Wall,
		NumPrefillRequests: int64(p.Scheduled.PrefillRequests), SumPrefillTokens: int64(p.Scheduled.PrefillTokens),
		NumDecodeRequests: int64(p.Scheduled.DecodeRequests), SumDecodeKVTokens: int64(p.Scheduled.DecodeKV),
		QueuedPrefillTokens: int64(p.Queued.PrefillTokens), QueuedDecodeKVTokens: int64(p.Queued.DecodeKV),
	}
}

// refresh implements passPlanner.
func (p *planning) refresh(ctx context.Context, now time.Time, workers []planWorker) {
	p.mu.Lock()
	names := slices.Sorted(maps.Keys(p.spaces))
	window := min(max(time.Duration(p.settings.ThroughputInterval*float64(time.Second)), time.Minute), 10*time.Minute)
	pools := p.pools
	p.mu.Unlock()
	for _, n := range names {
		of := deploymentOf(workers, n)
		caps, capsFrom := p.metrics.caps(ctx, now, of, pools)
		demand := p.metrics.demand(ctx, now, window, of)
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		if s := p.spaces[n]; s != nil {
			if roles := rolesOf(of.workers); len(roles) > 0 && !maps.Equal(roles, s.roles) { // of those that are known for longer, or gone
				s.roles = roles
				p.settle(s)
			}
			p.history.mode(now, n, s.mode, s.from)
			s.caps, s.capsFrom, s.demand = caps, capsFrom, demand
			if s.planner != nil {
				for _, c := range bothPools {
					s.planner.SetCaps(c, caps[c])
				}
				advice := s.deployment(now, of.workers)
				answer := s.capacity(of.workers, api.CapacityQuery{})
				s.advice, s.answer = &advice, &answer
			}
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note()
}

// bothPools are the pools in the order in which they are told.
var bothPools = []planner.Component{planner.PrefillPool, planner.DecodePool}

// rolesOf are the roles that workers have.
func rolesOf(workers []planWorker) map[fpm.Role]bool {
	out := map[fpm.Role]bool{}
	for i := range workers {
		out[workers[i].role] = true
	}
	return out
}

func inNamespace(workers []planWorker, namespace string) []planWorker {
	return slices.DeleteFunc(slices.Clone(workers), func(w planWorker) bool { return w.Key.Namespace != namespace })
}

// advice implements passPlanner.
func (p *planning) advice(_ context.Context, now time.Time, workers []planWorker) (api.PassAdvice, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := api.PassAdvice{}
	for _, n := range slices.Sorted(maps.Keys(p.spaces)) {
		if s := p.spaces[n]; s.planner != nil {
			d := s.deployment(now, inNamespace(workers, n))
			d.SettingsFrom = p.origin
			out.Deployments = append(out.Deployments, d)
		}
	}
	return out, nil
}

// capacity implements passPlanner.
func (p *planning) capacity(_ context.Context, _ time.Time, workers []planWorker, q api.CapacityQuery) (api.PassCapacity, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := slices.Sorted(maps.Keys(p.spaces))
	var s *planSpace
	for _, n := range names { // the busiest when none is asked for
		if x := p.spaces[n]; s == nil || x.passes > s.passes {
			s = x
		}
	}
	chosen := "it is the only one"
	if len(names) > 1 {
		chosen = fmt.Sprintf("most passes came of it, %d; that may be another soon: name one", s.passes)
	}
	if q.Namespace != "" {
		chosen = "the question"
		name := q.Namespace
		if _, there := p.spaces[name]; !there && name == api.NoNamespace {
			name = ""
		}
		if s = p.spaces[name]; s == nil {
			hint := "no pass has come at all; GET /api/rollscope/v1/passes says how the sources are"
			if len(names) > 0 {
				hint = fmt.Sprintf("passes come of %q", names)
			}
			return api.PassCapacity{}, &api.Error{Code: "not_found", Message: fmt.Sprintf("no forward pass came of a namespace %q", q.Namespace), Where: "namespace", Hint: hint}
		}
	}
	if s == nil || s.planner == nil {
		c := p.settings
		out := api.PassCapacity{TTFT: orElse(q.TTFT, c.TTFT), ITL: orElse(q.ITL, c.ITL), Namespaces: names, SettingsFrom: p.origin, Reason: "no forward pass has come yet"}
		if s != nil {
			out.Namespace, out.NamespaceFrom, out.Reason = s.namespace, chosen, s.problem
		}
		return out, nil
	}
	out := s.capacity(inNamespace(workers, s.namespace), q)
	out.Namespaces, out.NamespaceFrom, out.SettingsFrom = names, chosen, p.origin
	return out, nil
}

func orElse(p *float64, v float64) float64 {
	if p != nil {
		return *p
	}
	return v
}

// drops implements passPlanner.
func (p *planning) drops() (out []api.Drop) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sums := maps.Clone(p.gone)
	if p.beyond > 0 {
		sums["too_many_namespaces"] = p.beyond
	}
	if p.damaged > 0 {
		sums["damaged_settings"] = p.damaged
	}
	for _, s := range p.spaces {
		for _, reasons := range s.refused {
			for reason, n := range reasons {
				sums[reason] += n
			}
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, api.Drop{Source: "planner", Reason: reason, Count: sums[reason]})
	}
	return out
}

// warnings implements passPlanner.
func (p *planning) warnings() []api.Warning {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := slices.Clone(p.notes)
	for _, n := range slices.Sorted(maps.Keys(p.spaces)) {
		s := p.spaces[n]
		if s.planner == nil {
			out = append(out, api.Warning{Code: "planner", Where: "planner", Message: "namespace " + n + ": " + s.problem, Hint: "see docs/planner.md"})
			continue
		}
		for _, h := range s.planner.Health() {
			if h.Drift.State == planner.Broken {
				out = append(out, api.Warning{Code: "planner_model", Where: s.namespace + "/" + string(h.Component),
					Message: "the model of how long a pass takes holds no longer, and few passes have come since", Hint: "a new line is learned; see GET /api/rollscope/v1/passes/advice"})
			}
		}
	}
	return out
}
