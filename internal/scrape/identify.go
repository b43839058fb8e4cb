package scrape

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/rollscope/rollscope/internal/engine"
)

// structural are the findings about the shape of an exposition that somebody should act on; they stay
// true until it is inspected again. What is true for a moment only (NaN, idle ranks), and what engines
// always do (gauges with gt and le, le="1"), is for lint.
var structural = map[string]bool{
	"duplicate_series": true, "type_conflict": true, "type_mismatch": true, "mixed_names": true, "mixed_spelling": true,
	"bucket_layouts": true, "no_eof": true, "bad_bound": true, "not_monotone": true,
}

// inspected takes over what an exposition looks like.
func (m *Manager) inspected(t *target, e *Exposition) {
	now := m.opts.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for code := range structural {
		t.dropFindings(code)
	}
	dups := 0
	var dup Finding
	for _, f := range e.Findings {
		if !structural[f.Code] {
			continue
		}
		t.addFinding(f)
		if f.Code == "duplicate_series" {
			if dups++; dups == 1 {
				dup = f
			}
			dups += max(f.Count-1, 0)
		}
	}
	if dups > 0 && t.once("duplicates") {
		more := ""
		if dups > 1 {
			more = fmt.Sprintf(" (and %d more)", dups-1)
		}
		m.log.Warn("a series stands twice in one answer; the first value is kept", "target", t, "series", dup.Series,
			"detail", dup.Message+more, "hint", dup.Hint)
	}
	old := t.exposition
	t.exposition = summary{
		at: now, kind: e.Kind, backend: e.Backend, spelling: e.Spelling, dpRanks: e.DPRanks,
		engineTypes: e.EngineTypes, models: e.Models, workers: e.WorkerAddrs, layouts: layoutsOf(e),
	}
	if e.Backend == engine.VLLM {
		t.exposition.dpRanks = vllmRanks(e)
	}
	m.typeChanges(t, e, old.at.IsZero())
	m.fleet.update(t, t.exposition.layouts)
	m.fleet.see(t, e)
}

// vllmRanks reads vLLM's data-parallel ranks, which it calls engine.
func vllmRanks(e *Exposition) []string {
	seen := map[string]bool{}
	for _, s := range e.Samples {
		if v := s.Labels.Get("engine"); v != "" && strings.HasPrefix(s.Name(), "vllm:") {
			seen[v] = true
		}
	}
	return sortedKeys(seen)
}

// typeChanges notices a family whose type is not what it was: an upgrade in place, or two versions
// behind one address. t.mu is held.
func (m *Manager) typeChanges(t *target, e *Exposition, first bool) {
	if t.types == nil {
		t.types = map[string]model.MetricType{}
	}
	for _, f := range e.Families {
		if f.Type == "" || f.Type == model.MetricTypeUnknown || f.Guessed {
			continue
		}
		was, ok := t.types[f.Name]
		if len(t.types) < 20_000 {
			t.types[f.Name] = f.Type
		}
		if first || !ok || was == f.Type {
			continue
		}
		fi := Finding{Code: "type_changed", Level: LevelWarn, Family: f.Name,
			Message: fmt.Sprintf("%s was a %s and is a %s now", f.Name, was, f.Type),
			Hint:    "the target runs another version now; queries for the old form end here"}
		if t.addFinding(fi) {
			m.log.Warn("a metric changed its type", "target", t, "metric", f.Name, "was", string(was), "is", string(f.Type))
		}
	}
}

// identify finds out what a target is and says so once.
func (p *prober) identify(ctx context.Context, t *target, e *Exposition) {
	id := Identity{Backend: e.Backend}
	if len(e.Models) == 1 {
		id.Model = e.Models[0]
	}
	t.mu.Lock()
	fresh := !t.identified
	prev := t.identity
	s := &t.probe
	now := p.m.opts.Now()
	side := fresh || prev.Backend != id.Backend || (prev.Version == "" && s.sideOff > 0 && now.Sub(s.sideAt) >= s.sideOff)
	if side {
		s.sideAt = now
	}
	t.mu.Unlock()

	if side {
		transient := p.side(ctx, t, e, &id)
		t.mu.Lock()
		if transient && id.Version == "" {
			s.sideOff = min(max(2*s.sideOff, againFrom), againUpTo)
		} else {
			s.sideOff = 0
		}
		t.mu.Unlock()
	} else {
		id.Version, id.DPSize, id.From, id.Workers = prev.Version, prev.DPSize, prev.From, prev.Workers
		if id.Model == "" {
			id.Model = prev.Model
		}
		if id.Role == engine.RoleUnknown {
			id.Role = prev.Role
		}
	}
	p.m.role(t, e, &id)

	t.mu.Lock()
	defer t.mu.Unlock()
	t.identity, t.identified, t.probe.known = id, true, true
	t.probe.wants &^= probeIdentify | probeInspect // asked for by scrapes while this ran
	p.m.ranks(t)
	if t.once("identity:" + fmt.Sprint(id)) {
		p.m.log.Info("the target is "+Describe(id), "target", t, "backend", string(id.Backend), "role", string(id.Role),
			"version", id.Version, "model", id.Model, "dp_size", id.DPSize, "spelling", string(e.Spelling))
	}
}

// Describe says in words what a target is.
func Describe(id Identity) string {
	names := map[engine.Backend]string{
		engine.SGLang: "an SGLang engine", engine.VLLM: "a vLLM engine", engine.DynamoFrontend: "a Dynamo frontend",
		engine.DynamoWorker: "a Dynamo worker", engine.Router: "a router's own metrics", engine.EngineMetrics: "a router that answers for its engines",
		engine.SGLangLoads: "SGLang's load report", engine.DCGM: "a GPU exporter (DCGM)", engine.Trainer: "a trainer",
	}
	s := names[id.Backend]
	if s == "" {
		return "an exposition of no program Rollscope knows"
	}
	if id.Version != "" {
		s += " " + id.Version
	}
	if id.Role != engine.RoleUnknown && id.Role != engine.RoleRouter && id.Role != engine.Frontend {
		s += " (" + string(id.Role) + ")"
	}
	if id.Workers > 0 {
		s += fmt.Sprintf(", %d engines", id.Workers)
	}
	return s
}

// serverInfo is what SGLang's GET /server_info says of interest.
type serverInfo struct {
	Version   string `json:"version"`
	DPSize    int    `json:"dp_size"`
	Served    string `json:"served_model_name"`
	ModelPath string `json:"model_path"`
	Mode      string `json:"disaggregation_mode"` // null, "null", prefill, decode
}

// side asks the cheap endpoints beside the metrics, of engines and routers only. It tells whether
// the same question may be answered later.
func (p *prober) side(ctx context.Context, t *target, e *Exposition, id *Identity) (transient bool) {
	path := strings.TrimRight(t.prom.URL().Path, "/")
	ask := func(path string, into any) bool {
		a := p.get(ctx, t, base(t)+path, "application/json", p.m.opts.ProbeTimeout)
		switch {
		case a.err != nil:
			transient = true
		case a.status >= 500:
			transient = true
		case a.status == http.StatusOK && json.Unmarshal(a.body, into) == nil:
			p.count("side_ok")
			return true
		}
		p.count("side_failed")
		return false
	}
	switch id.Backend {
	case engine.SGLang:
		if path != "/metrics" {
			return false // something else answers at this address
		}
		for _, at := range []string{"/server_info", "/get_server_info"} {
			var si serverInfo
			if !ask(at, &si) {
				if transient {
					break
				}
				continue
			}
			id.Version, id.DPSize, id.From = si.Version, si.DPSize, at
			for _, n := range []string{si.Served, si.ModelPath} {
				if id.Model == "" {
					id.Model = n
				}
			}
			switch si.Mode {
			case "prefill":
				id.Role = engine.Prefill
			case "decode":
				id.Role = engine.Decode
			}
			break
		}
	case engine.VLLM:
		if path != "/metrics" {
			return false
		}
		var v struct {
			Version string `json:"version"`
		}
		if ask("/version", &v) {
			id.Version, id.From = v.Version, "/version"
		}
	case engine.EngineMetrics:
		id.Workers = len(e.WorkerAddrs)
		for _, u := range WorkerListURLs("") {
			var raw json.RawMessage
			if !ask(u, &raw) {
				continue
			}
			workers, skipped, err := ParseWorkerList(raw)
			if err != nil {
				continue
			}
			id.From = u
			p.m.routerFindings(t, e, u, workers, len(skipped))
			break
		}
		transient = false
	}
	return transient
}

// routerFindings compares what a router answers for with what it lists: a worker that is down
// vanishes from its answer without a word.
func (m *Manager) routerFindings(t *target, e *Exposition, listAt string, workers []Worker, skipped int) {
	seen := map[string]bool{}
	for _, a := range e.WorkerAddrs {
		i, _ := engine.InstanceOf(a)
		seen[i] = true
	}
	var missing []string
	for _, w := range workers {
		if !seen[w.Address] {
			missing = append(missing, w.Address)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropFindings("router_view", "missing_workers")
	where := t.prom.URL().Host + listAt
	t.addFinding(Finding{Code: "router_view", Level: LevelInfo,
		Message: fmt.Sprintf("this is a router's view of its engines: an engine that is down vanishes from it without up=0, and a colon in a model's name is an underscore (%d engines listed, %d without HTTP)", len(workers), skipped),
		Hint:    "to scrape the engines directly as well: --scrape " + where})
	if len(missing) > 0 {
		f := Finding{Code: "missing_workers", Level: LevelWarn,
			Message: fmt.Sprintf("the router lists %d engines and answers for %d; missing: %s", len(workers), len(workers)-len(missing), strings.Join(missing, ", ")),
			Hint:    "they are down, or run without --enable-metrics"}
		t.addFinding(f)
		m.log.Warn(f.Message, "target", t, "hint", f.Hint)
	}
	if t.once("router_view") {
		m.log.Info("the target is a router; its engines can be scraped directly too", "target", t, "with", "--scrape "+where)
	}
}

// role settles the role of a target, by the one resolver of identities.
func (m *Manager) role(t *target, e *Exposition, id *Identity) {
	switch id.Backend {
	case engine.EngineMetrics, engine.Router:
		id.Role = engine.RoleRouter
		return
	case engine.DynamoFrontend:
		id.Role = engine.Frontend
		return
	case engine.SGLang, engine.VLLM, engine.DynamoWorker:
	default:
		id.Role = engine.RoleUnknown
		return
	}
	said := id.Role // by the server itself
	public := map[string]string{}
	t.prom.LabelsRange(func(l labels.Label) { public[l.Name] = l.Value })
	r := engine.NewResolver(m.overrides())
	instance := t.instance()
	for _, s := range e.Samples {
		r.Observe(s.Name(), func(label string) string {
			if v, ok := public[label]; ok {
				return v
			}
			return s.Labels.Get(label)
		})
	}
	for _, seen := range r.Instances() {
		instance = seen.Instance
	}
	id.Role = r.Role(instance)
	if id.Role == engine.Unified && said != engine.RoleUnknown {
		id.Role = said
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropFindings("role_conflict")
	for _, c := range r.Conflicts() {
		f := Finding{Code: "role_conflict", Level: LevelInfo, Message: c.Message}
		t.addFinding(f)
		if t.once("role_conflict") {
			m.log.Info("two places disagree about the role of a target", "target", t, "role", string(c.Role), "detail", c.Message)
		}
	}
}

// overrides are the identities that the configuration sets.
func (m *Manager) overrides() []engine.Override {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cfg == nil {
		return nil
	}
	var out []engine.Override
	for _, e := range m.cfg.Rollscope.Engines {
		out = append(out, engine.Override{Instance: e.Instance, Aliases: e.Aliases, Role: engine.Role(e.Role), Name: e.Name})
	}
	return out
}

// ranks compares the data-parallel ranks an engine has with those its series show. t.mu is held.
func (m *Manager) ranks(t *target) {
	t.dropFindings("under_reported")
	want, have := t.identity.DPSize, len(t.exposition.dpRanks)
	if want < 2 || have >= want || t.identity.Backend != engine.SGLang {
		return
	}
	have = max(have, 1)
	f := Finding{Code: "under_reported", Level: LevelWarn,
		Message: fmt.Sprintf("under-reported: %d of %d DP ranks visible", have, want)}
	if len(t.exposition.dpRanks) == 0 {
		f.Hint = "the ranks overwrite one another in this version; SGLang labels them with dp_rank from 0.4.9.post3 on"
	} else {
		f.Hint = "the other ranks have written nothing yet, or run on a node whose /metrics is not scraped"
	}
	t.addFinding(f)
	if t.once(f.Message) {
		m.log.Warn(f.Message, "target", t, "hint", f.Hint)
	}
}

// inform writes rollscope_target_info, so that an archive knows what its targets were, and forgets
// targets that are gone.
func (m *Manager) inform(ctx context.Context) {
	tick := time.NewTicker(m.opts.InfoInterval)
	defer tick.Stop()
	first := time.NewTimer(min(m.opts.InfoInterval, 3*time.Second))
	defer first.Stop()
	w := &infoWriter{m: m}
	for {
		select {
		case <-ctx.Done():
			return
		case <-first.C:
		case <-tick.C:
		}
		w.write(ctx)
		m.sweep()
	}
}

// InfoMetric is the name of the series that says what each target is; its value is 1.
const InfoMetric = "rollscope_target_info"

func infoLabels(t TargetInfo) labels.Labels {
	dp := ""
	if t.Identity.DPSize > 0 {
		dp = strconv.Itoa(t.Identity.DPSize)
	}
	return labels.FromStrings(
		model.MetricNameLabel, InfoMetric, model.JobLabel, t.Job, model.InstanceLabel, t.Instance,
		"backend", string(t.Identity.Backend), "role", string(t.Identity.Role), "version", t.Identity.Version,
		"model_name", t.Identity.Model, "dp_size", dp)
}
