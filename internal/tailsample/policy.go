package tailsample

import (
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/rollscope/rollscope/internal/span"
)

// Policy says what is kept. Either the fields before Collector count, or Collector alone.
type Policy struct {
	Errors    bool // a span with status error, error.type, or a 5xx answer
	Aborted   bool // finish reason abort
	Retracted bool // thrown out of the running batch for want of memory
	Tools     bool // a tool call that failed
	Linked    bool // what is tied to a trace that was kept for a reason: session, PD half, span links
	Slow      Slow
	Keep      []Condition // always kept too
	Drop      []Condition // not kept unless one of the above but slow says so
	Ratio     float64     // share of the rest that is kept, 0 to 1

	Collector *Collector
}

// Slow says when a request is slow. A limit of 0 is none.
type Slow struct {
	TTFT, ITL, E2E, Queue, Transfer time.Duration
	// P99 keeps what is above the live 99th percentile of its service and model in any of the five.
	P99 bool
	// Requests is how many must have been seen of a service and model before P99 counts.
	Requests int
	// Window is the time over which the percentile is taken, at least this and at most twice as long.
	Window time.Duration
}

func (s *Slow) limits() [numMeasures]time.Duration {
	return [numMeasures]time.Duration{s.TTFT, s.ITL, s.E2E, s.Queue, s.Transfer}
}

// Condition is met by a trace when one of its spans, or a span's resource, has the attribute with such a
// value.
type Condition struct {
	Name   string // in Decision.Policy
	Key    string
	Values []string         // any of these texts
	Regexp []*regexp.Regexp // or a text that one of these matches
	Min    float64          // or a number in Min..Max when Number is set
	Max    float64
	Number bool
	Bool   *bool // or this bool
}

// DefaultPolicy keeps all errors, aborts, retractions and failed tools, what is above the live p99, what
// is tied to these, and 1 % of the rest.
func DefaultPolicy() Policy {
	return Policy{
		Errors: true, Aborted: true, Retracted: true, Tools: true, Linked: true,
		Slow:  Slow{P99: true, Requests: 200, Window: 10 * time.Minute},
		Ratio: 0.01,
	}
}

// KeepAll keeps everything.
func KeepAll() Policy { return Policy{Ratio: 1} }

// Names of rules in Decision.Policy. Conditions are "keep:NAME" and "drop:NAME", slow ones "slow:ttft"
// above a limit and "slow:ttft_p99" above the live percentile; those of the collector's form have the
// names that the file gives them.
const (
	RuleErrors    = "error"
	RuleAborted   = "aborted"
	RuleRetracted = "retracted"
	RuleTools     = "tool_error"
	RuleLinked    = "linked"
	RuleRatio     = "ratio"
	RuleEvicted   = "evicted_early" // the limit on memory or traces was reached, and the ratio decided
	RuleTooLarge  = "too_large"     // of the collector's form: above maximum_trace_size_bytes
	RulePending   = "shutdown"      // of the collector's form: drop_pending_traces_on_shutdown
	RuleNone      = "no_policy"     // of the collector's form: no policy sampled it
)

// leaf is a condition on a single span or resource. A trace remembers per leaf whether it was met.
type leaf struct {
	kind    uint8
	key     string
	values  map[string]struct{}
	regexps []*regexp.Regexp
	known   map[string]bool // results of regexps, at most cache of them
	cache   int
	min     float64
	max     float64
	want    bool
	status  uint8 // bits of span.Status
}

// Kinds of leaves.
const (
	leafText uint8 = iota
	leafNumber
	leafBool
	leafStatus
	leafState
	leafFlags
)

func (l *leaf) matches(v *value) bool {
	switch l.kind {
	case leafText:
		if v.kind != isText {
			return false
		}
		if _, ok := l.values[text(v.data)]; ok {
			return true
		}
		if len(l.regexps) == 0 {
			return false
		}
		t := text(v.data)
		if r, ok := l.known[t]; ok {
			return r
		}
		r := false
		for _, e := range l.regexps {
			if e.MatchString(t) {
				r = true
				break
			}
		}
		if len(l.known) >= l.cache {
			clear(l.known) // values that come in many forms are no use to a cache anyway
		}
		if len(t) <= 1024 {
			l.known[string(v.data)] = r
		}
		return r
	case leafNumber:
		if v.kind != isInt && v.kind != isDouble {
			return false
		}
		f, ok := v.number()
		return ok && f >= l.min && f <= l.max
	case leafBool:
		return v.kind == isBool && (v.u != 0) == l.want
	}
	return false
}

// maxLeaves is how many conditions on attributes, status, flags and tracestate a policy may have: a
// trace remembers them in one word.
const maxLeaves = 64

// compiled is a policy made ready.
type compiled struct {
	Policy
	native bool
	names  []string // rules by number, as trace.rule and remembered.rule have them
	index  map[string]uint8

	leaves  []leaf
	leafOf  map[string][]int // leaves on attributes by key; nil without any
	onSpan  []int            // the others
	early   uint64           // leaves that decide as soon as they are met
	ruleOf  []uint8          // the rule of an early leaf
	drops   uint64           // leaves of Drop
	limits  [numMeasures]float64
	slowBy  [numMeasures]uint8 // rules
	slowP99 [numMeasures]uint8
}

// maxRules bounds the rules: their numbers are bytes.
const maxRules = 250

// rule gives a name its number. There are at most 250; what is more shares the last, which New refuses.
func (c *compiled) rule(name string) uint8 {
	if i, ok := c.index[name]; ok {
		return i
	}
	i := uint8(min(len(c.names), 255))
	c.index[name] = i
	c.names = append(c.names, name)
	return i
}

// Rules with fixed numbers.
const (
	noRule uint8 = iota
	ruleErrors
	ruleAborted
	ruleRetracted
	ruleTools
	ruleLinked
	ruleRatio
	ruleEvicted
	ruleTooLarge
	rulePending
	ruleNone
)

func compile(p Policy) (*compiled, error) {
	c := &compiled{Policy: p, native: p.Collector == nil, index: map[string]uint8{}}
	for _, name := range []string{"", RuleErrors, RuleAborted, RuleRetracted, RuleTools, RuleLinked, RuleRatio, RuleEvicted, RuleTooLarge, RulePending, RuleNone} {
		c.rule(name)
	}
	if !c.native {
		if err := c.compileCollector(); err != nil {
			return nil, err
		}
	} else {
		if !(p.Ratio >= 0 && p.Ratio <= 1) {
			return nil, fmt.Errorf("tail sampling: the ratio is %v; it must lie between 0 and 1 (or 0 %% and 100 %%)", p.Ratio)
		}
		if p.Slow.P99 && p.Slow.Window <= 0 {
			c.Slow.Window = DefaultPolicy().Slow.Window
		}
		for m, l := range p.Slow.limits() {
			c.limits[m] = math.Inf(1)
			if l > 0 {
				c.limits[m] = l.Seconds()
			}
			c.slowBy[m] = c.rule("slow:" + measureNames[m])
			c.slowP99[m] = c.rule("slow:" + measureNames[m] + "_p99")
		}
		for _, k := range p.Keep {
			i, err := c.condition(k)
			if err != nil {
				return nil, err
			}
			c.early |= 1 << i
			c.ruleOf[i] = c.rule("keep:" + k.Name)
		}
		for _, k := range p.Drop {
			i, err := c.condition(k)
			if err != nil {
				return nil, err
			}
			c.drops |= 1 << i
			c.ruleOf[i] = c.rule("drop:" + k.Name)
		}
	}
	if len(c.names) > maxRules {
		return nil, fmt.Errorf("tail sampling: %d rules; at most %d can be told apart: merge some", len(c.names), maxRules)
	}
	return c, nil
}

func (c *compiled) condition(k Condition) (int, error) {
	if k.Key == "" {
		return 0, fmt.Errorf("tail sampling: the condition %q names no attribute: give it a key", k.Name)
	}
	l := leaf{key: k.Key}
	switch {
	case k.Bool != nil:
		l.kind, l.want = leafBool, *k.Bool
	case k.Number:
		l.kind, l.min, l.max = leafNumber, k.Min, k.Max
	case len(k.Values)+len(k.Regexp) > 0:
		l.kind, l.regexps = leafText, k.Regexp
		l.setValues(k.Values)
	default:
		return 0, fmt.Errorf("tail sampling: the condition %q says nothing about %q: give it values, regexp, min, max or value", k.Name, k.Key)
	}
	return c.leaf(l)
}

func (l *leaf) setValues(values []string) {
	l.values = make(map[string]struct{}, len(values))
	for _, v := range values {
		if v != "" {
			l.values[v] = struct{}{}
		}
	}
	if len(l.regexps) > 0 {
		if l.cache <= 0 {
			l.cache = 128
		}
		l.known = map[string]bool{}
	}
}

// leaf adds a leaf and gives its number.
func (c *compiled) leaf(l leaf) (int, error) {
	i := len(c.leaves)
	if i == maxLeaves {
		return 0, fmt.Errorf("tail sampling: more than %d conditions on attributes, status, flags and tracestate: merge some, for instance by listing more values in one", maxLeaves)
	}
	c.leaves = append(c.leaves, l)
	c.ruleOf = append(c.ruleOf, 0)
	switch l.kind {
	case leafText, leafNumber, leafBool:
		if c.leafOf == nil {
			c.leafOf = map[string][]int{}
		}
		c.leafOf[l.key] = append(c.leafOf[l.key], i)
	default:
		c.onSpan = append(c.onSpan, i)
	}
	return i, nil
}

// match sets the bits of conditions that an attribute meets.
func (c *compiled) match(key string, v *value, into *seen) {
	for _, i := range c.leafOf[key] {
		if c.leaves[i].matches(v) {
			into.bits |= 1 << i
		}
	}
}

// matchSpan sets the bits of conditions on what is no attribute.
func (c *compiled) matchSpan(h *span.Header, into *seen) {
	for _, i := range c.onSpan {
		l := &c.leaves[i]
		met := false
		switch l.kind {
		case leafStatus:
			met = l.status>>h.Status&1 != 0
		case leafState:
			met = l.meetsState(h.Raw)
		case leafFlags:
			met = h.Flags&1 != 0
		}
		if met {
			into.bits |= 1 << i
		}
	}
}

// matchResource gives the conditions that a resource meets.
func (c *compiled) matchResource(resource []byte) uint64 {
	if c.leafOf == nil {
		return 0
	}
	var s seen
	w := wire{b: resource}
	for w.next() {
		if w.num == 1 && w.typ == wireBytes {
			key, v := keyValue(w.data)
			c.match(key, &v, &s)
		}
	}
	return s.bits
}
