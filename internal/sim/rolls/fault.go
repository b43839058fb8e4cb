package rolls

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Fault is something that goes wrong in a step: NAME@T+D[:engine].
type Fault struct {
	Name   string
	At     time.Duration // since the step's start
	For    time.Duration // 0: until the step's end
	Engine int           // -1: the fault's own choice, see FaultInfo.Scope
}

// FaultInfo describes one kind of fault.
type FaultInfo struct {
	Name    string
	Meaning string // one line
	Scope   string // whom it hits when no engine is named
}

const (
	slowEngine    = "slow_engine"
	straggler     = "straggler"
	rewardOutage  = "reward_outage"
	toolTimeouts  = "tool_timeouts"
	engineRestart = "engine_restart"
	transferSlow  = "transfer_slow"
)

// Faults lists the kinds of faults.
func Faults() []FaultInfo {
	return []FaultInfo{
		{slowEngine, "an engine decodes at a quarter of its speed (a throttled GPU)", "the last engine"},
		{straggler, "one request decodes at a tenth of its engine's speed and holds the whole step", "the first request that comes"},
		{rewardOutage, "the reward model answers nothing; calls end when it is back", "every sample"},
		{toolTimeouts, "tools hang until they are cancelled, which leaves open spans", "every tool call"},
		{engineRestart, "an engine aborts its requests and is away; their samples start again, the tokens are lost", "the first engine"},
		{transferSlow, "KV transfers take eight times as long and are tried again (PD)", "every transfer"},
	}
}

// ParseFault reads NAME@T[+D][:ENGINE], as in slow_engine@0s+5m:1.
func ParseFault(s string) (Fault, error) {
	f := Fault{Engine: -1}
	bad := func(what string) (Fault, error) {
		return Fault{}, fmt.Errorf("fault %q: %s; it is NAME@T[+D][:ENGINE], as in slow_engine@0s+5m:1", s, what)
	}
	name, rest, ok := strings.Cut(s, "@")
	if !ok {
		return bad("no @")
	}
	f.Name = name
	rest, engine, ok := strings.Cut(rest, ":")
	if ok {
		n, err := strconv.Atoi(engine)
		if err != nil || n < 0 {
			return bad("the engine is no number")
		}
		f.Engine = n
	}
	at, length, ok := strings.Cut(rest, "+")
	var err error
	if f.At, err = time.ParseDuration(at); err != nil {
		return bad(err.Error())
	}
	if ok {
		if f.For, err = time.ParseDuration(length); err != nil {
			return bad(err.Error())
		}
	}
	for _, k := range Faults() {
		if k.Name == f.Name {
			return f, nil
		}
	}
	return bad("no such fault")
}

// String writes f as ParseFault reads it.
func (f Fault) String() string {
	s := f.Name + "@" + f.At.String()
	if f.For > 0 {
		s += "+" + f.For.String()
	}
	if f.Engine >= 0 {
		s += ":" + strconv.Itoa(f.Engine)
	}
	return s
}

func (f Fault) check(o Options) error {
	known := false
	for _, k := range Faults() {
		known = known || k.Name == f.Name
	}
	switch {
	case !known:
		return fmt.Errorf("rolls: there is no fault %q", f.Name)
	case f.At < 0 || f.For < 0:
		return fmt.Errorf("rolls: fault %s: times must not be negative", f)
	case f.Engine >= o.Engines:
		return fmt.Errorf("rolls: fault %s: there are %d engines, counted from 0", f, o.Engines)
	case (f.Name == engineRestart || f.Name == rewardOutage) && f.For == 0:
		return fmt.Errorf("rolls: fault %s must end: say how long it lasts", f)
	case f.Name == transferSlow && !o.PD:
		return fmt.Errorf("rolls: fault %s: KV is transferred only with PD", f)
	}
	return nil
}

// window is the fault's time in seconds since the step's start.
func (f Fault) window() (from, to float64) {
	from = f.At.Seconds()
	if f.For == 0 {
		return from, 1e18
	}
	return from, from + f.For.Seconds()
}

// during returns the fault of a kind that is active at t on an engine, if there is one. engine is -1
// for what happens on none.
func (o *Options) during(name string, t float64, engine int) (Fault, bool) {
	for _, f := range o.Faults {
		if f.Name != name || (f.Engine >= 0 && engine >= 0 && f.Engine != engine) {
			continue
		}
		if from, to := f.window(); t >= from && t < to {
			return f, true
		}
	}
	return Fault{}, false
}
