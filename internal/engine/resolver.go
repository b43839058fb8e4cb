package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Override is what the configuration says about one engine; it wins over everything observed.
type Override struct {
	Instance string   // host:port as it appears in the label instance, or any of Aliases
	Aliases  []string // other names of the same engine: worker addresses, Ray worker ids
	Role     Role     // RoleUnknown: not set
	Name     string   // shown instead of the instance; "" = not set
}

// View is the way in which an engine's series reached the store.
type View string

// Views.
const (
	Direct    View = "direct" // its own /metrics was scraped
	ViaRouter View = "router" // a router's /engine_metrics named it in worker_addr
	ViaRay    View = "ray"    // Ray's metrics agent named it in WorkerId
)

// Identity is what the labels of one series say about the engine it belongs to.
type Identity struct {
	Instance string
	DPRank   string // "" when the series belongs to the whole engine
	View     View
}

// Conflict is a disagreement about the role of one engine.
type Conflict struct {
	Instance string
	Role     Role   // the one that counts
	Message  string // what disagreed and which source won, one sentence
}

// Resolver judges which engine a series belongs to and which role each engine has. Feed it label sets
// with [Resolver.Observe] in any order, then ask; what it says does not depend on the order.
//
// The role of an engine is, in this order: what the configuration says; engine_type on the scheduler's
// gauges; the role of the pod or Dynamo sub-component (labels of the target); dynamo_component;
// engine_type on the token counters, which some versions label "unified" on a prefill or decode
// engine; unified. Programs that are not engines have the role of their kind.
//
// A Resolver is not safe for concurrent use.
type Resolver struct {
	overrides map[string]Override // by instance and by alias
	engines   map[string]*evidence
	prefillIn map[string]bool // Dynamo namespaces that have a prefill component
}

// source ranks the places a role is read from, best first.
type source int

const (
	fromConfig source = iota
	fromScheduler
	fromPod
	fromDynamo
	fromCounters
	sources
)

var sourceNames = [sources]string{
	"the configuration", "engine_type on the scheduler's gauges", "the pod's role label",
	"dynamo_component", "engine_type on the token counters",
}

type evidence struct {
	roles   [sources]map[Role]bool
	backend Backend
	// namespace of a Dynamo component called "backend", which decodes where the namespace has a prefill one.
	backendIn string
	views     map[View]bool
	dpRanks   map[string]bool
}

// NewResolver makes a resolver with the configuration's overrides. A later override of the same
// instance or alias replaces an earlier one.
func NewResolver(overrides []Override) *Resolver {
	r := &Resolver{overrides: map[string]Override{}, engines: map[string]*evidence{}, prefillIn: map[string]bool{}}
	for _, o := range overrides {
		r.overrides[o.Instance] = o
		for _, a := range o.Aliases {
			host, _ := InstanceOf(a)
			r.overrides[host] = o
		}
	}
	return r
}

// Identify reads the engine's identity from the labels of a series: worker_addr (a router's view) and
// Ray's WorkerId go before instance, and an alias from the configuration is replaced by its instance.
// get returns a label's value, "" when it is absent.
func (r *Resolver) Identify(get func(label string) string) Identity {
	id := Identity{Instance: get("instance"), DPRank: get("dp_rank"), View: Direct}
	if addr := get("worker_addr"); addr != "" {
		host, rank := InstanceOf(addr)
		id.Instance, id.View = host, ViaRouter
		id.DPRank = cmp.Or(id.DPRank, rank)
	} else if w := get("WorkerId"); w != "" {
		id.Instance, id.View = w, ViaRay
	}
	if o, ok := r.overrides[id.Instance]; ok {
		id.Instance = o.Instance
	}
	return id
}

// podRoleLabels are the target labels in which Kubernetes discovery leaves the role of a pod.
var podRoleLabels = []string{
	"nvidia_com_dynamo_sub_component_type", "dynamo_sub_component_type", "sub_component_type",
	"llm_d_ai_role", "pod_role", "role",
}

// earlySchedulerGauges were on the wire before the scheduler's series had rank labels.
var earlySchedulerGauges = []string{
	"num_running_reqs", "num_queue_reqs", "num_used_tokens", "token_usage", "gen_throughput",
	"cache_hit_rate", "num_grammar_queue_reqs", "spec_accept_length",
}

// Observe takes one series into account. name is its canonical metric name, get returns a label's value.
// Series that belong to no engine, such as a router's own, are fine.
func (r *Resolver) Observe(name string, get func(label string) string) Identity {
	id := r.Identify(get)
	e := r.engines[id.Instance]
	if e == nil {
		e = &evidence{views: map[View]bool{}, dpRanks: map[string]bool{}}
		r.engines[id.Instance] = e
	}
	e.views[id.View] = true
	if id.DPRank == "" && backendOf(name) == VLLM {
		id.DPRank = get("engine")
	}
	if id.DPRank != "" {
		e.dpRanks[id.DPRank] = true
	}
	if b := backendOf(name); b != Unknown && (e.backend == Unknown || b == SGLang || b == VLLM) {
		e.backend = b
	}
	if role, ok := parseRole(get("engine_type")); ok {
		bare := name[strings.IndexByte(name, ':')+1:]
		if get("tp_rank") != "" || slices.Contains(earlySchedulerGauges, bare) {
			e.add(fromScheduler, role)
		} else {
			e.add(fromCounters, role)
		}
	}
	for _, l := range podRoleLabels {
		if role, ok := parseRole(get(l)); ok {
			e.add(fromPod, role)
			break
		}
	}
	if component := get("dynamo_component"); component != "" {
		ns := get("dynamo_namespace")
		role, ok := parseRole(component)
		switch {
		case ok:
			e.add(fromDynamo, role)
			if role == Prefill {
				r.prefillIn[ns] = true
			}
		case component == "backend":
			e.backendIn = ns
			e.add(fromDynamo, RoleUnknown)
		}
	}
	return id
}

func (e *evidence) add(s source, role Role) {
	if e.roles[s] == nil {
		e.roles[s] = map[Role]bool{}
	}
	e.roles[s][role] = true
}

// backendOf tells the program by the prefix of a canonical metric name.
func backendOf(name string) Backend {
	switch {
	case strings.HasPrefix(name, "sglang:"):
		return SGLang
	case strings.HasPrefix(name, "vllm:"):
		return VLLM
	case strings.HasPrefix(name, "dynamo_frontend_"):
		return DynamoFrontend
	case strings.HasPrefix(name, "dynamo_component_"), strings.HasPrefix(name, "dynamo_work_handler_"):
		return DynamoWorker
	case strings.HasPrefix(name, "smg_"), strings.HasPrefix(name, "sgl_router_"):
		return Router
	case strings.HasPrefix(name, "DCGM_FI_"):
		return DCGM
	default:
		return Unknown
	}
}

// parseRole reads the words that engines, Dynamo and Kubernetes set-ups use for a role.
func parseRole(s string) (Role, bool) {
	switch strings.ToLower(s) {
	case "unified", "aggregated", "agg", "both":
		return Unified, true
	case "prefill":
		return Prefill, true
	case "decode":
		return Decode, true
	case "encode", "encoder":
		return Encode, true
	default:
		return RoleUnknown, false
	}
}

// Role is the one role of an instance. An instance that was never observed has RoleUnknown.
func (r *Resolver) Role(instance string) Role {
	role, _, _ := r.judge(instance)
	return role
}

// judge gives the role, the place it was read from (sources: the default) and what every place said.
func (r *Resolver) judge(instance string) (Role, source, [sources][]Role) {
	var said [sources][]Role
	e := r.engines[instance]
	if o, ok := r.overrides[instance]; ok && o.Role != RoleUnknown {
		said[fromConfig] = []Role{o.Role}
	}
	if e != nil {
		for s := range e.roles {
			for role := range e.roles[s] {
				if role == RoleUnknown { // Dynamo's component "backend"
					role = Unified
					if r.prefillIn[e.backendIn] {
						role = Decode
					}
				}
				said[s] = append(said[s], role)
			}
			slices.SortFunc(said[s], func(a, b Role) int { return cmp.Compare(weight(a), weight(b)) })
			said[s] = slices.Compact(said[s])
		}
	}
	for s := range said {
		if len(said[s]) > 0 {
			return said[s][0], source(s), said
		}
	}
	switch {
	case e == nil:
		return RoleUnknown, sources, said
	case e.backend == DynamoFrontend:
		return Frontend, sources, said
	case e.backend == Router:
		return RoleRouter, sources, said
	case e.backend == SGLang || e.backend == VLLM || e.backend == DynamoWorker:
		return Unified, sources, said
	default:
		return RoleUnknown, sources, said
	}
}

// weight orders roles within one place: the more specific word counts.
func weight(r Role) int {
	return slices.Index([]Role{Prefill, Decode, Encode, Frontend, RoleRouter, Unified}, r)
}

// Conflicts lists each engine about whose role two places, or one place in two words, disagree: once
// per engine, sorted by instance.
func (r *Resolver) Conflicts() []Conflict {
	var out []Conflict
	for instance := range r.engines {
		role, won, said := r.judge(instance)
		var other []string
		for s := range said {
			for _, x := range said[s] {
				if x != role {
					other = append(other, fmt.Sprintf("%s says %s", sourceNames[s], x))
				}
			}
		}
		if len(other) == 0 {
			continue
		}
		out = append(out, Conflict{
			Instance: instance,
			Role:     role,
			Message: fmt.Sprintf("%s counts as %s because %s says so, although %s",
				instance, role, sourceNames[won], strings.Join(other, " and ")),
		})
	}
	slices.SortFunc(out, func(a, b Conflict) int { return cmp.Compare(a.Instance, b.Instance) })
	return out
}

// Seen is what is known about one observed instance.
type Seen struct {
	Instance string
	Name     string // from the configuration; "" = none
	Backend  Backend
	Role     Role
	View     View     // the view that counts: direct before router
	DPRanks  []string // sorted; empty without data-parallel ranks
}

// Instances lists everything observed, sorted by instance.
func (r *Resolver) Instances() []Seen {
	var out []Seen
	for instance, e := range r.engines {
		s := Seen{Instance: instance, Name: r.overrides[instance].Name, Backend: e.backend, Role: r.Role(instance)}
		for _, v := range []View{Direct, ViaRay, ViaRouter} {
			if e.views[v] {
				s.View = v
				break
			}
		}
		for rank := range e.dpRanks {
			if e.backend != VLLM || len(e.dpRanks) > 1 { // a vLLM without ranks says engine="0" all the same
				s.DPRanks = append(s.DPRanks, rank)
			}
		}
		slices.SortFunc(s.DPRanks, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Seen) int { return cmp.Compare(a.Instance, b.Instance) })
	return out
}
