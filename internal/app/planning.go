package app

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/config"
	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/planner"
)

// planning is the planner of each deployment: what it has learned, and what it would do. It makes a
// passPlanner.
type planning struct {
	metrics metricsSource
	log     *slog.Logger

	mu       sync.Mutex
	settings planner.Config
	asked    bool // the settings name a mode
	node     string
	pools    map[string]config.PassPool
	notes    []api.Warning
	spaces   map[string]*planSpace // by namespace
	refused  int64                 // passes of namespaces beyond the limit
}

// maxSpaces is how many namespaces are learned of.
const maxSpaces = 64

// planSpace is one namespace's.
type planSpace struct {
	namespace string
	roles     map[fpm.Role]bool // that were seen
	planner   *planner.Planner
	mode      planner.Mode
	from      string // why this mode
	caps      map[planner.Component]planner.Caps
	capsFrom  []string
	changes   map[planner.Component]moment
	seen      map[planner.Component]int64 // the most tokens that a pass prefilled
	demand    *api.PassDemand
	why       string // why there is no demand
	answer    *api.PassCapacity
	advice    *api.PassDeployment
	busy      uint64 // passes
}

// moment is when a model was noticed to hold no longer.
type moment struct {
	at     int64
	factor float64
}

func newPlanning(metrics metricsSource, log *slog.Logger) *planning {
	p := &planning{metrics: metrics, log: log, spaces: map[string]*planSpace{}}
	p.settings = planner.Defaults()
	return p
}

// apply puts settings in force. Models are kept as long as the settings stay.
func (p *planning) apply(cfg *config.Config) error {
	settings, notes, err := planner.ParseNode(cfg.Path, nodeOf(&cfg.Rollscope.Planner))
	if err != nil {
		return fmt.Errorf("rollscope.planner: %w", err)
	}
	text, err := yaml.Marshal(&cfg.Rollscope.Planner)
	if err != nil {
		text = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notes = nil
	for _, n := range notes {
		p.notes = append(p.notes, api.Warning{Code: "planner", Message: n, Where: cfg.Path, Hint: "see docs/planner.md"})
	}
	if string(text) != p.node || !reflect.DeepEqual(p.pools, cfg.Rollscope.ForwardPasses.Pools) {
		p.spaces = map[string]*planSpace{}
	}
	p.settings, p.node, p.pools = settings, string(text), cfg.Rollscope.ForwardPasses.Pools
	p.asked = hasKey(&cfg.Rollscope.Planner, "mode")
	return nil
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

// space is a namespace's; with a role that it has not, its planner is made anew, since the mode is another.
// nil when there are too many.
func (p *planning) space(namespace string, role fpm.Role) *planSpace {
	s := p.spaces[namespace]
	if s == nil {
		if len(p.spaces) >= maxSpaces {
			return nil
		}
		s = &planSpace{namespace: namespace, roles: map[fpm.Role]bool{}, seen: map[planner.Component]int64{}}
		p.spaces[namespace] = s
	}
	if role != "" && !s.roles[role] {
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
	if s.planner != nil && mode == s.mode {
		return
	}
	cfg := p.settings
	cfg.Mode = mode
	made, err := planner.New(cfg, s.caps)
	if err != nil { // settings that do not go with this mode
		p.notes = append(p.notes, api.Warning{Code: "planner", Message: fmt.Sprintf("namespace %s: %v", s.namespace, err), Where: "planner", Hint: "see docs/planner.md"})
		s.planner, s.mode, s.from = nil, mode, from
		return
	}
	s.planner, s.mode, s.from, s.changes, s.answer, s.advice = made, mode, from, map[planner.Component]moment{}, nil, nil
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
	if seen.Late {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.space(k.Namespace, role)
	if s == nil {
		p.refused++
		return ""
	}
	if s.planner == nil {
		return ""
	}
	c, worker := componentOf(role), k.Worker
	if worker == "" {
		worker = cmp.Or(k.Source, "-")
	}
	if seen.Restart {
		s.planner.Restarted(c, worker, int(k.Rank))
	}
	s.busy++
	if n := int64(pass.Scheduled.PrefillTokens); n > s.seen[c] {
		s.seen[c] = n
	}
	_, change := s.planner.Observe(c, iterationOf(worker, k, pass))
	if change == nil {
		return ""
	}
	s.changes[c] = moment{now, change.Factor}
	return fmt.Sprintf("passes of the %s pool take %.2f times what passes like them took before", c, change.Factor)
}

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
	names := make([]string, 0, len(p.spaces))
	for n := range p.spaces {
		names = append(names, n)
	}
	window := time.Duration(p.settings.ThroughputInterval * float64(time.Second))
	pools := p.pools
	p.mu.Unlock()
	for _, n := range names {
		mine := inNamespace(workers, n)
		caps, capsFrom := p.metrics.caps(ctx, now, mine, pools)
		demand, why := p.metrics.demand(ctx, now, min(max(window, time.Minute), 10*time.Minute), mine)
		p.mu.Lock()
		if s := p.spaces[n]; s != nil {
			s.caps, s.capsFrom, s.demand, s.why = caps, capsFrom, demand, why
			if s.planner != nil {
				for c, x := range caps {
					s.planner.SetCaps(c, x)
				}
				advice := s.deployment(now, mine)
				answer := s.capacity(mine, api.CapacityQuery{})
				s.advice, s.answer = &advice, &answer
			}
		}
		p.mu.Unlock()
	}
}

func inNamespace(workers []planWorker, namespace string) []planWorker {
	return slices.DeleteFunc(slices.Clone(workers), func(w planWorker) bool { return w.Key.Namespace != namespace })
}

// advice implements passPlanner.
func (p *planning) advice(_ context.Context, now time.Time, workers []planWorker) (api.PassAdvice, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := api.PassAdvice{}
	for _, s := range p.spaces {
		if s.planner != nil {
			out.Deployments = append(out.Deployments, s.deployment(now, inNamespace(workers, s.namespace)))
		}
	}
	slices.SortFunc(out.Deployments, func(a, b api.PassDeployment) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return out, nil
}

// capacity implements passPlanner.
func (p *planning) capacity(_ context.Context, _ time.Time, workers []planWorker, q api.CapacityQuery) (api.PassCapacity, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	var most *planSpace
	for n, s := range p.spaces {
		if s.planner == nil {
			continue
		}
		names = append(names, n)
		if most == nil || s.busy > most.busy || s.busy == most.busy && n < most.namespace {
			most = s
		}
	}
	slices.Sort(names)
	s := most
	if q.Namespace != "" {
		if s = p.spaces[q.Namespace]; s == nil || s.planner == nil {
			return api.PassCapacity{}, &api.Error{Code: "not_found", Message: fmt.Sprintf("no forward pass came of a namespace %q", q.Namespace), Where: "namespace",
				Hint: fmt.Sprintf("there are %q", names)}
		}
	}
	if s == nil {
		c := p.settings
		return api.PassCapacity{TTFT: orElse(q.TTFT, c.TTFT), ITL: orElse(q.ITL, c.ITL), Reason: "no forward pass has come yet"}, nil
	}
	out := s.capacity(inNamespace(workers, s.namespace), q)
	out.Namespaces = names
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
	if p.refused > 0 {
		out = append(out, api.Drop{Source: "planner", Reason: "too_many_namespaces", Count: p.refused})
	}
	sums := map[string]int64{}
	for _, s := range p.spaces {
		if s.planner == nil {
			continue
		}
		for _, d := range s.planner.Drops() {
			sums[d.Reason] += int64(d.Count)
		}
	}
	for reason, n := range sums {
		out = append(out, api.Drop{Source: "planner", Reason: reason, Count: n})
	}
	return out
}

// warnings implements passPlanner.
func (p *planning) warnings() []api.Warning {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := slices.Clone(p.notes)
	for _, s := range p.spaces {
		if s.planner == nil {
			continue
		}
		for _, h := range s.planner.Health() {
			if h.Drift.State == planner.Broken {
				out = append(out, api.Warning{Code: "planner_model", Where: s.namespace + "/" + string(h.Component),
					Message: "the model of how long a pass takes holds no longer: what it says of capacity is of before", Hint: "a new line is learned; see GET /api/rollscope/v1/passes/advice"})
			}
		}
	}
	return out
}

var _ prometheus.Collector = (*planning)(nil)
