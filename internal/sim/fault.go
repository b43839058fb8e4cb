package sim

import (
	"fmt"
	"strings"
	"time"
)

// Fault is something that goes wrong at a time: NAME@T+D[/EVERY][:member].
type Fault struct {
	Name   string
	At     time.Duration // since the fleet's start
	For    time.Duration
	Every  time.Duration // the fault comes again after this time; 0 = once
	Member string        // "" = the fault's own choice, see FaultInfo.Scope
}

// String writes f as ParseFault reads it.
func (f Fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s@%s+%s", f.Name, f.At, f.For)
	if f.Every > 0 {
		fmt.Fprintf(&b, "/%s", f.Every)
	}
	if f.Member != "" {
		b.WriteString(":" + f.Member)
	}
	return b.String()
}

// FaultInfo describes one kind of fault.
type FaultInfo struct {
	Name    string
	Meaning string // one line
	Scope   string // whom it hits when no member is named
}

// faultKind is a fault and what it does: set while it is active, begin and end at its edges.
type faultKind struct {
	FaultInfo
	begin, set, end func(f *Fleet, m *member)
	loads           func(l *load) // set on the loads of the members
}

// wireFault is what is wrong with a member's answers.
type wireFault struct {
	badLine, duplicate, empty, html, notFound bool
	stamp                                     time.Duration // samples carry timestamps that are off by this
}

const (
	everyMember = "every member"
	everyEngine = "every engine"
	firstEngine = "the first engine"
)

// clockStep is how far a wrong clock is behind.
const clockStep = -2 * time.Minute

func engines(do func(sv *server)) func(*Fleet, *member) {
	return func(_ *Fleet, m *member) {
		if m.server != nil {
			do(m.server)
		}
	}
}

func faultKinds() []faultKind {
	wire := func(do func(w *wireFault)) func(*Fleet, *member) {
		return func(_ *Fleet, m *member) { do(&m.wire) }
	}
	return []faultKind{
		{FaultInfo: FaultInfo{"slow_decode", "forward passes take three times as long (a throttled GPU)", everyEngine},
			set: engines(func(sv *server) { sv.slow *= 3 })},
		{FaultInfo: FaultInfo{"kv_pressure", "over half of the KV pool is lost and admission stays optimistic: a retraction storm", everyEngine},
			set: engines(func(sv *server) { sv.squeezed = true })},
		{FaultInfo: FaultInfo{"cache_flush", "the prefix cache is emptied and stays unused", everyEngine},
			begin: engines(func(sv *server) {
				for _, s := range sv.scheds {
					s.pool.flush()
				}
			}),
			set: engines(func(sv *server) { sv.noCache = true })},
		{FaultInfo: FaultInfo{"transfer_slow", "KV transfers take eight times as long and some fail (PD disaggregation)", everyEngine},
			set: engines(func(sv *server) { sv.slowLink = 8 })},
		{FaultInfo: FaultInfo{"spec_drop", "the draft model no longer fits: the accept length falls", everyEngine},
			set: engines(func(sv *server) { sv.badDraft = true })},
		{FaultInfo: FaultInfo{"expert_skew", "a few experts get most tokens: MoE balance falls, passes get slower", everyEngine},
			set: engines(func(sv *server) {
				if sv.spec.MoE {
					sv.skewed = true
					sv.slow *= 1.3
				}
			})},
		{FaultInfo: FaultInfo{"weight_update", "generation stands still for a weight update", everyEngine},
			begin: func(f *Fleet, m *member) {
				if m.server != nil {
					m.server.pause(f.now, f.beginning.Seconds())
				}
			}},
		{FaultInfo: FaultInfo{"engine_down", "connection refused, requests in it are lost; it comes back with its counters kept", firstEngine},
			begin: stop(Down), end: func(f *Fleet, m *member) {
				comeBack(m)
				if m.server != nil {
					f.watchMoment(m.server, nil, nil, Up, f.now, 0, 0)
				}
			}},
		{FaultInfo: FaultInfo{"engine_restart", "the process dies and a new one comes up: counters start again at 0, the cache is cold", firstEngine},
			begin: stop(Crashed), end: func(f *Fleet, m *member) {
				comeBack(m)
				m.began = time.Duration(f.ticks) * Tick
				switch {
				case m.server != nil:
					m.server.startAgain(f.now)
				case m.front != nil:
					m.front.obs.started()
				}
			}},
		{FaultInfo: FaultInfo{"engine_hang", "no progress: requests pile up, gauges stand still, /metrics still answers", firstEngine},
			begin: tell(Hung), end: tell(Freed), set: engines(func(sv *server) { sv.hung = true })},
		{FaultInfo: FaultInfo{"abort_burst", "clients leave: two running or waiting requests a second are aborted", everyEngine},
			set: engines(func(sv *server) { sv.leaving = 2 })},
		{FaultInfo: FaultInfo{"idle", "no new requests", everyEngine}, loads: func(l *load) { l.muted = true }},
		{FaultInfo: FaultInfo{"burst", "four times the requests", everyEngine}, loads: func(l *load) { l.factor *= 4 }},
		{FaultInfo: FaultInfo{"long_outputs", "answers are three times as long", everyEngine}, loads: func(l *load) { l.longer *= 3 }},
		{FaultInfo: FaultInfo{"bad_line", "one line of the exposition is malformed", firstEngine},
			set: wire(func(w *wireFault) { w.badLine = true })},
		{FaultInfo: FaultInfo{"duplicate_series", "one series appears twice with different values", firstEngine},
			set: wire(func(w *wireFault) { w.duplicate = true })},
		{FaultInfo: FaultInfo{"empty_body", "200 with 0 bytes, as an engine before its first request", firstEngine},
			set: wire(func(w *wireFault) { w.empty = true })},
		{FaultInfo: FaultInfo{"html_body", "200 with a login page", firstEngine},
			set: wire(func(w *wireFault) { w.html = true })},
		{FaultInfo: FaultInfo{"not_found", "404 with a JSON body, as an engine without --enable-metrics", firstEngine},
			set: wire(func(w *wireFault) { w.notFound = true })},
		{FaultInfo: FaultInfo{"clock_step", "samples carry explicit timestamps of a clock that is two minutes behind", everyMember},
			set: wire(func(w *wireFault) { w.stamp = clockStep })},
	}
}

// tell only tells those who watch.
func tell(what MomentKind) func(*Fleet, *member) {
	return func(f *Fleet, m *member) {
		if m.server != nil {
			f.watchMoment(m.server, nil, nil, what, f.now, m.server.requests(), 0)
		}
	}
}

func stop(what MomentKind) func(*Fleet, *member) {
	return func(f *Fleet, m *member) {
		switch {
		case m.server != nil:
			m.server.kill(f.now, what)
		case m.front != nil:
			m.front.down = true
		default:
			m.gpus.down = true
		}
	}
}

func comeBack(m *member) {
	switch {
	case m.server != nil:
		m.server.down = false
	case m.front != nil:
		m.front.down = false
	default:
		m.gpus.down = false
	}
}

// Faults lists the faults that can be ordered.
func Faults() []FaultInfo {
	var out []FaultInfo
	for _, k := range faultKinds() {
		out = append(out, k.FaultInfo)
	}
	return out
}

// ParseFault reads NAME@T+D[/EVERY][:member]: the fault NAME begins T after the fleet's start and
// lasts D, both as Go durations ("90s", "2m"); with /EVERY it comes again; without a member it hits
// whom its Scope says. Example: "engine_down@45s+100s:sglang-1".
func ParseFault(s string) (Fault, error) {
	bad := func(what string, err error) (Fault, error) {
		if err != nil {
			what += ": " + err.Error()
		}
		return Fault{}, fmt.Errorf("fault %q: %s; write NAME@T+D[/EVERY][:member], for example engine_down@45s+100s", s, what)
	}
	name, rest, ok := strings.Cut(s, "@")
	if !ok {
		return bad("no @", nil)
	}
	f := Fault{Name: name}
	rest, f.Member, _ = strings.Cut(rest, ":")
	at, rest, ok := strings.Cut(rest, "+")
	if !ok {
		return bad("no +", nil)
	}
	length, every, repeats := strings.Cut(rest, "/")
	var err error
	if f.At, err = time.ParseDuration(at); err != nil || f.At < 0 {
		return bad("begin "+at, err)
	}
	if f.For, err = time.ParseDuration(length); err != nil || f.For <= 0 {
		return bad("length "+length, err)
	}
	if repeats {
		if f.Every, err = time.ParseDuration(every); err != nil || f.Every <= f.For {
			return bad("period "+every+" (must be longer than the fault)", err)
		}
	}
	if _, ok := kindOf(name); !ok {
		var names []string
		for _, k := range Faults() {
			names = append(names, k.Name)
		}
		return Fault{}, fmt.Errorf("fault %q: no fault is called %q; there are %s", s, name, strings.Join(names, ", "))
	}
	return f, nil
}

func kindOf(name string) (faultKind, bool) {
	for _, k := range faultKinds() {
		if k.Name == name {
			return k, true
		}
	}
	return faultKind{}, false
}

// order is a fault and whom it hits.
type order struct {
	fault   Fault
	kind    faultKind
	members []*member
	loads   []*load
	active  bool
}

// Order adds a fault. It may be called at any time; a fault whose time has passed begins at once.
func (f *Fleet) Order(fault Fault) error {
	kind, ok := kindOf(fault.Name)
	if !ok {
		return fmt.Errorf("sim: no fault is called %q", fault.Name)
	}
	o := &order{fault: fault, kind: kind}
	for _, m := range f.members {
		switch {
		case fault.Member != "":
			if m.name == fault.Member {
				o.members = append(o.members, m)
			}
		case kind.Scope == everyMember, kind.Scope == everyEngine && m.server != nil:
			o.members = append(o.members, m)
		case kind.Scope == firstEngine && m.server != nil && len(o.members) == 0:
			o.members = append(o.members, m)
		}
	}
	if len(o.members) == 0 {
		return fmt.Errorf("sim: fault %s: no member %q to hit", fault, fault.Member)
	}
	if kind.loads != nil {
		for _, l := range f.loads {
			for _, m := range o.members {
				if l.reaches(m) {
					o.loads = append(o.loads, l)
					break
				}
			}
		}
		if len(o.loads) == 0 {
			return fmt.Errorf("sim: fault %s: no load goes to %q", fault, fault.Member)
		}
	}
	f.orders = append(f.orders, o)
	return nil
}

// reaches tells whether l sends requests to m.
func (l *load) reaches(m *member) bool {
	if m.front != nil {
		return l.sink == sink(m.front)
	}
	for _, sv := range l.servers {
		if sv == m.server {
			return true
		}
	}
	return false
}

// due tells whether the fault is on at time t since the start.
func (f Fault) due(t time.Duration) bool {
	if t < f.At {
		return false
	}
	since := t - f.At
	if f.Every > 0 {
		since %= f.Every
	}
	return since < f.For
}

// applyFaults begins and ends what is due at time t, and sets what is active.
func (f *Fleet) applyFaults(t time.Duration) {
	changed := false
	for _, o := range f.orders {
		if on := o.fault.due(t); on != o.active {
			o.active = on
			changed = true
			edge := o.kind.begin
			if !on {
				edge = o.kind.end
			}
			if edge != nil {
				f.beginning = o.fault.For
				for _, m := range o.members {
					edge(f, m)
				}
			}
		}
	}
	if !changed {
		return
	}
	for _, m := range f.members {
		m.wire = wireFault{}
		if m.server != nil {
			m.server.clearFaults()
		}
	}
	for _, l := range f.loads {
		l.factor, l.longer, l.muted = 1, 1, false
	}
	for _, o := range f.orders {
		if !o.active {
			continue
		}
		if o.kind.set != nil {
			for _, m := range o.members {
				o.kind.set(f, m)
			}
		}
		for _, l := range o.loads {
			o.kind.loads(l)
		}
	}
}

// Active lists the faults that are on at Now.
func (f *Fleet) Active() []Fault {
	var out []Fault
	for _, o := range f.orders {
		if o.active {
			out = append(out, o.fault)
		}
	}
	return out
}

func (sv *server) clearFaults() {
	sv.slow, sv.slowLink, sv.leaving = 1, 1, 0
	sv.noCache, sv.squeezed, sv.badDraft, sv.skewed, sv.hung = false, false, false, false, false
}
