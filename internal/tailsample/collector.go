package tailsample

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rollscope/rollscope/internal/span"
)

// Collector is a policy in the form of the OpenTelemetry Collector's tail_sampling processor (contrib
// v0.161.0). [Parse] makes it.
type Collector struct {
	policies   []*node
	FirstMatch bool  // sample_on_first_match: the first policy in the file names the decision and the others are not asked
	DropHeld   bool  // drop_pending_traces_on_shutdown
	MaxBytes   int64 // maximum_trace_size_bytes, 0 for none
}

// node is a policy, or a part of one.
type node struct {
	name, kind string
	line       int
	rule       uint8
	subs       []*node

	cond    *leaf // of the kinds that ask spans and resources
	bit     int
	invert  bool
	low     int64 // latency in ms, spans
	high    int64
	salt    string
	percent float64
	rate    float64 // spans or bytes a second
	burst   float64

	// Of rate_limiting, bytes_limiting: a bucket of tokens. Of composite: spans in the current second.
	tokens float64
	at     int64
	begun  bool
	sub    []float64 // allocation by part
	spent  []float64
}

// verdicts of a policy.
type verdict uint8

const (
	notSampled verdict = iota
	sampled
	dropped
)

// Kinds of policies and where their settings stand.
var policyKinds = []string{
	"always_sample", "latency", "numeric_attribute", "probabilistic", "status_code", "string_attribute", "rate_limiting", "bytes_limiting",
	"span_count", "trace_state", "trace_flags", "boolean_attribute", "ottl_condition", "and", "not", "drop", "composite",
}

// collector reads the processor's settings.
func (r *reader) collector(n *yaml.Node, o *Options) {
	keys := []string{
		"decision_wait", "decision_wait_after_root_received", "num_traces", "block_on_overflow", "expected_new_traces_per_sec", "policies", "decision_cache",
		"tail_storage", "sample_on_first_match", "sampling_strategy", "drop_pending_traces_on_shutdown", "maximum_trace_size_bytes", "num_shards",
	}
	c := &Collector{}
	var wait, afterRoot time.Duration
	var policies *yaml.Node
	r.mapping(n, "tail_sampling", keys, func(key string, v *yaml.Node) {
		switch key {
		case "decision_wait":
			wait = r.positive(v, key)
		case "decision_wait_after_root_received":
			afterRoot = r.duration(v, key)
		case "num_traces":
			o.MaxTraces = int(r.int(v, key, 1, maxSlots))
		case "policies":
			policies = v
			r.list(v, key, func(i int, v *yaml.Node) {
				if p := r.policy(v, fmt.Sprintf("policies[%d]", i), 0); p != nil {
					c.policies = append(c.policies, p)
				}
			})
		case "decision_cache":
			total := int64(0)
			r.mapping(v, key, []string{"sampled_cache_size", "non_sampled_cache_size"}, func(key string, v *yaml.Node) {
				total += r.int(v, key, 0, maxSlots)
			})
			o.RememberTraces = int(min(total, maxSlots))
		case "sample_on_first_match":
			c.FirstMatch = r.bool(v, key)
		case "drop_pending_traces_on_shutdown":
			c.DropHeld = r.bool(v, key)
		case "maximum_trace_size_bytes":
			c.MaxBytes = r.int(v, key, 0, math.MaxInt64)
		case "expected_new_traces_per_sec":
			r.int(v, key, 0, math.MaxInt64)
		case "num_shards":
			r.int(v, key, 0, 256)
		case "block_on_overflow":
			if r.bool(v, key) {
				r.note(v, "block_on_overflow: nothing waits here; above num_traces the oldest traces are decided early, and counted")
			}
		case "tail_storage":
			r.note(v, "tail_storage: spans are held in memory here, compressed")
		case "sampling_strategy":
			switch s := r.text(v, key); s {
			case "trace-complete":
			case "span-ingest":
				r.note(v, "sampling_strategy: a trace is decided once its request is finished, and at once where no later span can change the answer")
			default:
				r.fail(v, "sampling_strategy must be trace-complete or span-ingest, not %q", s)
			}
		}
	})
	if len(c.policies) == 0 && len(r.errs) == 0 {
		at := policies
		if at == nil || at.Line == 0 {
			at = n
		}
		r.fail(at, "tail_sampling has no policies: nothing would be kept")
	}
	names := map[string]int{}
	for _, p := range c.policies {
		if line, ok := names[p.name]; ok && p.name != "" {
			r.errs = append(r.errs, &PolicyError{Path: r.path, Line: p.line, Msg: fmt.Sprintf("the policy %q stands twice (also in line %d); give it another name", p.name, line)})
		}
		names[p.name] = p.line
	}
	// What the collector waits from the first span on, we wait after the last.
	o.Linger = wait
	if afterRoot > 0 {
		o.Linger = afterRoot
	}
	o.Policy = Policy{Collector: c}
}

// policy reads one policy; nil after an error.
func (r *reader) policy(n *yaml.Node, what string, depth int) *node {
	if depth > 8 {
		r.fail(n, "%s lies more than 8 policies deep", what)
		return nil
	}
	if n == nil || n.Kind != yaml.MappingNode {
		r.fail(n, "%s must be a mapping with name and type", what)
		return nil
	}
	failed := len(r.errs)
	p := &node{line: n.Line}
	var said []string
	// Settings beside type instead of under its name are what many write; the processor would ignore them.
	known := append([]string{"name", "type"}, policyKinds...)
	beside := &yaml.Node{Kind: yaml.MappingNode, Line: n.Line}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.Tag != "!!merge" && !slices.Contains(known, k.Value) {
			beside.Content = append(beside.Content, k, n.Content[i+1])
		}
	}
	for i := 0; i < len(beside.Content); i += 2 {
		known = append(known, beside.Content[i].Value)
	}
	r.mapping(n, what, known, func(key string, v *yaml.Node) {
		switch key {
		case "name":
			p.name = r.text(v, what+".name")
		case "type":
			p.kind = r.text(v, what+".type")
			if p.kind == "ottl_condition" {
				r.fail(v, "%s is of type ottl_condition, which is not supported: say it with string_attribute, numeric_attribute, boolean_attribute, status_code or latency, and with and, not, drop over them", what)
			} else if p.kind != "" && !slices.Contains(policyKinds, p.kind) {
				r.fail(v, "%s is of the unknown type %q; known are %s", what, p.kind, strings.Join(policyKinds, ", "))
			}
		default:
			if slices.Contains(policyKinds, key) {
				said = append(said, key)
			}
		}
	})
	if len(r.errs) > failed {
		return nil
	}
	if p.kind == "" {
		r.fail(n, "%s has no type; known are %s", what, strings.Join(policyKinds, ", "))
		return nil
	}
	if p.name == "" {
		p.name = p.kind
	}
	for _, key := range said {
		if key != p.kind {
			r.note(n, "%s: the settings under %s do not belong to its type %s and mean nothing", what, key, p.kind)
		}
	}
	settings := r.get(n, p.kind)
	switch {
	case len(beside.Content) == 0:
	case isNull(settings):
		settings = beside
		r.note(n, "%s: its settings stand beside type, where the collector ignores them; it wants them under %s", what, p.kind)
	default:
		r.fail(beside.Content[0], "unknown key %q in %s; settings stand under %s", beside.Content[0].Value, what, p.kind)
		return nil
	}
	r.settings(p, settings, n, what+"."+p.kind, depth)
	if len(r.errs) > failed {
		return nil
	}
	return p
}

// get looks a key up, also in what is merged in.
func (r *reader) get(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		v := r.real(n.Content[i+1])
		if n.Content[i].Value == key {
			return v
		}
		if n.Content[i].Tag == "!!merge" && v != nil && v.Kind == yaml.MappingNode {
			for j := 0; j+1 < len(v.Content); j += 2 {
				if v.Content[j].Value == key {
					return r.real(v.Content[j+1])
				}
			}
		}
	}
	return nil
}

// settings reads what stands under the name of a policy's type.
func (r *reader) settings(p *node, n, parent *yaml.Node, what string, depth int) {
	need := func(key string, given bool) {
		if !given {
			at := n
			if isNull(at) {
				at = parent
			}
			r.fail(at, "%s needs %s", what, key)
		}
	}
	subs := func(key string, v *yaml.Node) {
		r.list(v, key, func(i int, v *yaml.Node) {
			if s := r.policy(v, fmt.Sprintf("%s.%s[%d]", what, key, i), depth+1); s != nil {
				p.subs = append(p.subs, s)
			}
		})
	}
	switch p.kind {
	case "always_sample":
		r.mapping(n, what, []string{}, nil)
	case "latency":
		r.mapping(n, what, []string{"threshold_ms", "upper_threshold_ms"}, func(key string, v *yaml.Node) {
			if ms := r.int(v, what+"."+key, 0, math.MaxInt64/1_000_000); key == "threshold_ms" {
				p.low = ms
			} else {
				p.high = ms
			}
		})
	case "numeric_attribute":
		p.cond = &leaf{kind: leafNumber, min: math.Inf(-1), max: math.Inf(1)}
		said := false
		r.mapping(n, what, []string{"key", "min_value", "max_value", "invert_match"}, func(key string, v *yaml.Node) {
			switch key {
			case "key":
				p.cond.key = r.text(v, what+".key")
			case "invert_match":
				p.invert = r.bool(v, what+".invert_match")
			default:
				// 0 is "not set" there, and so here.
				f := float64(r.int(v, what+"."+key, math.MinInt64, math.MaxInt64))
				if f == 0 {
					r.note(v, "%s.%s: 0 means no bound in this form", what, key)
					return
				}
				said = true
				if key == "min_value" {
					p.cond.min = f
				} else {
					p.cond.max = f
				}
			}
		})
		need("a key", p.cond.key != "")
		need("min_value or max_value other than 0", said)
	case "string_attribute":
		p.cond = &leaf{kind: leafText}
		var values []*yaml.Node
		regex := false
		r.mapping(n, what, []string{"key", "values", "enabled_regex_matching", "cache_max_size", "invert_match"}, func(key string, v *yaml.Node) {
			switch key {
			case "key":
				p.cond.key = r.text(v, what+".key")
			case "values":
				r.list(v, what+".values", func(_ int, v *yaml.Node) { values = append(values, v) })
			case "enabled_regex_matching":
				regex = r.bool(v, what+"."+key)
			case "cache_max_size":
				p.cond.cache = int(r.int(v, what+"."+key, 0, 1_000_000))
			case "invert_match":
				p.invert = r.bool(v, what+".invert_match")
			}
		})
		need("a key", p.cond.key != "")
		need("values", len(values) > 0)
		var texts []string
		for _, v := range values {
			if regex {
				p.cond.regexps = append(p.cond.regexps, r.regexp(v, what+".values"))
			} else {
				texts = append(texts, r.text(v, what+".values"))
			}
		}
		p.cond.setValues(texts)
	case "boolean_attribute":
		p.cond = &leaf{kind: leafBool}
		r.mapping(n, what, []string{"key", "value", "invert_match"}, func(key string, v *yaml.Node) {
			switch key {
			case "key":
				p.cond.key = r.text(v, what+".key")
			case "value":
				p.cond.want = r.bool(v, what+".value")
			case "invert_match":
				p.invert = r.bool(v, what+".invert_match")
			}
		})
		need("a key", p.cond.key != "")
	case "status_code":
		p.cond = &leaf{kind: leafStatus}
		r.mapping(n, what, []string{"status_codes"}, func(_ string, v *yaml.Node) { r.statuses(v, what, p.cond) })
		need("status_codes: some of OK, ERROR, UNSET", p.cond.status != 0)
	case "trace_state":
		p.cond = &leaf{kind: leafState}
		r.mapping(n, what, []string{"key", "values"}, func(key string, v *yaml.Node) {
			if key == "key" {
				p.cond.key = r.text(v, what+".key")
			} else {
				p.cond.setValues(r.texts(v, what+".values"))
			}
		})
		need("a key", p.cond.key != "")
		need("values", len(p.cond.values) > 0)
	case "trace_flags":
		p.cond = &leaf{kind: leafFlags}
		r.mapping(n, what, []string{}, nil)
	case "probabilistic":
		r.mapping(n, what, []string{"hash_salt", "sampling_percentage"}, func(key string, v *yaml.Node) {
			if key == "hash_salt" {
				p.salt = r.text(v, what+".hash_salt")
			} else if p.percent = r.float(v, what+"."+key); p.percent < 0 || p.percent > 100 {
				r.fail(v, "%s.sampling_percentage must lie between 0 and 100", what)
			}
		})
		if p.salt == "" {
			p.salt = "default-hash-seed" // what the processor takes
		}
	case "rate_limiting", "bytes_limiting":
		each := map[string]string{"rate_limiting": "spans_per_second", "bytes_limiting": "bytes_per_second"}[p.kind]
		r.mapping(n, what, []string{each, "burst_capacity"}, func(key string, v *yaml.Node) {
			if f := float64(r.int(v, what+"."+key, 0, math.MaxInt64)); key == each {
				p.rate = f
			} else {
				p.burst = f
			}
		})
		need(each, p.rate > 0)
		if p.burst == 0 {
			p.burst = 2 * p.rate
		}
	case "span_count":
		r.mapping(n, what, []string{"min_spans", "max_spans"}, func(key string, v *yaml.Node) {
			if i := r.int(v, what+"."+key, 0, math.MaxInt32); key == "min_spans" {
				p.low = i
			} else {
				p.high = i
			}
		})
	case "and":
		r.mapping(n, what, []string{"and_sub_policy"}, subs)
		need("and_sub_policy", len(p.subs) > 0)
	case "drop":
		r.mapping(n, what, []string{"drop_sub_policy"}, subs)
		need("drop_sub_policy", len(p.subs) > 0)
	case "not":
		r.mapping(n, what, []string{"not_sub_policy"}, func(key string, v *yaml.Node) {
			if s := r.policy(v, what+"."+key, depth+1); s != nil {
				p.subs = append(p.subs, s)
			}
		})
		need("not_sub_policy", len(p.subs) > 0)
	case "composite":
		r.composite(p, n, what, subs, need)
	}
}

func (r *reader) statuses(n *yaml.Node, what string, l *leaf) {
	r.list(n, what+".status_codes", func(_ int, v *yaml.Node) {
		switch s := r.text(v, what+".status_codes"); s {
		case "UNSET":
			l.status |= 1 << span.Unset
		case "OK":
			l.status |= 1 << span.OK
		case "ERROR":
			l.status |= 1 << span.Failed
		default:
			r.fail(v, "%s.status_codes may be OK, ERROR or UNSET, not %q", what, s)
		}
	})
}

func (r *reader) composite(p *node, n *yaml.Node, what string, subs func(string, *yaml.Node), need func(string, bool)) {
	var order []string
	var orderAt *yaml.Node
	percent := map[string]float64{}
	r.mapping(n, what, []string{"max_total_spans_per_second", "policy_order", "composite_sub_policy", "rate_allocation"}, func(key string, v *yaml.Node) {
		switch key {
		case "max_total_spans_per_second":
			p.rate = float64(r.int(v, what+"."+key, 0, math.MaxInt64))
		case "policy_order":
			order, orderAt = r.texts(v, what+"."+key), v
		case "composite_sub_policy":
			subs(key, v)
		case "rate_allocation":
			r.list(v, what+"."+key, func(i int, v *yaml.Node) {
				at := fmt.Sprintf("%s.%s[%d]", what, key, i)
				var name string
				var share float64
				r.mapping(v, at, []string{"policy", "percent"}, func(key string, v *yaml.Node) {
					if key == "policy" {
						name = r.text(v, at+".policy")
					} else {
						share = float64(r.int(v, at+".percent", 0, 100))
					}
				})
				percent[name] = share
			})
		}
	})
	need("max_total_spans_per_second", p.rate > 0)
	need("composite_sub_policy", len(p.subs) > 0)
	// The processor asks in the order of the list and reads policy_order nowhere; a file that orders
	// differently would be read by its author as the processor does not.
	var names []string
	for _, s := range p.subs {
		names = append(names, s.name)
		share := percent[s.name]
		if share > 0 {
			p.sub = append(p.sub, math.Floor(p.rate*share/100))
		} else {
			p.sub = append(p.sub, math.Floor(p.rate/float64(len(p.subs))))
		}
	}
	if len(order) > 0 && !slices.Equal(order, names) {
		r.note(orderAt, "%s.policy_order: the processor asks in the order of composite_sub_policy (%s), and so does this", what, strings.Join(names, ", "))
	}
}

// compileCollector copies the policies, which have state, and numbers their conditions and names.
func (c *compiled) compileCollector() error {
	drops := false
	in := *c.Collector
	in.policies = nil
	for _, p := range c.Collector.policies {
		q, err := c.compileNode(p)
		if err != nil {
			return err
		}
		q.rule = c.rule(q.name)
		in.policies = append(in.policies, q)
		drops = drops || q.kind == "drop"
	}
	c.Collector = &in
	if drops || in.MaxBytes > 0 {
		return nil // until the end, a later span may throw the trace away
	}
	for _, p := range in.policies {
		if p.cond != nil && !p.invert {
			c.early |= 1 << p.bit
			c.ruleOf[p.bit] = p.rule
		}
	}
	return nil
}

func (c *compiled) compileNode(p *node) (*node, error) {
	q := *p
	q.tokens, q.spent = p.burst, make([]float64, len(p.sub))
	if p.cond != nil {
		l := *p.cond
		if l.known != nil {
			l.known = map[string]bool{}
		}
		bit, err := c.leaf(l)
		if err != nil {
			return nil, err
		}
		q.bit = bit
	}
	q.subs = nil
	for _, s := range p.subs {
		t, err := c.compileNode(s)
		if err != nil {
			return nil, err
		}
		q.subs = append(q.subs, t)
	}
	return &q, nil
}

// meetsState tells whether the tracestate of a span has the leaf's key with one of its values.
func (l *leaf) meetsState(raw []byte) bool {
	w := wire{b: raw}
	for w.next() {
		if w.num != spanTraceState || w.typ != wireBytes {
			continue
		}
		for member := range strings.SplitSeq(text(w.data), ",") {
			key, v, ok := strings.Cut(strings.TrimSpace(member), "=")
			if ok && key == l.key {
				if _, ok := l.values[v]; ok {
					return true
				}
			}
		}
	}
	return false
}

// ask evaluates a policy over a whole trace, and gives the share of its like that it samples: 1 for all,
// 0 when that cannot be said.
func (p *node) ask(t *trace, now int64) (verdict, float64) {
	yes := func(b bool) (verdict, float64) {
		if b {
			return sampled, 1
		}
		return notSampled, 1
	}
	if p.cond != nil {
		return yes((t.bits>>p.bit&1 != 0) != p.invert)
	}
	switch p.kind {
	case "always_sample":
		return sampled, 1
	case "latency":
		ms := (t.end - t.begin) / int64(time.Millisecond)
		return yes(ms > p.low && (p.high == 0 || ms <= p.high))
	case "span_count":
		return yes(int64(t.spans) >= p.low && (p.high == 0 || int64(t.spans) <= p.high))
	case "probabilistic":
		limit, any := saltedThreshold(p.percent)
		v, _ := yes(any && saltedHash(p.salt, t.id) <= limit)
		return v, min(p.percent/100, 1)
	case "rate_limiting":
		v, _ := yes(p.take(float64(t.spans), now))
		return v, 0
	case "bytes_limiting":
		v, _ := yes(p.take(float64(t.wire), now))
		return v, 0
	case "and":
		share := 1.0
		all := true
		for _, s := range p.subs {
			v, of := s.ask(t, now)
			if v != sampled {
				all = false
				break
			}
			share = min(share, of)
		}
		v, _ := yes(all)
		return v, share
	case "not":
		v, share := p.subs[0].ask(t, now)
		if share != 1 { // a share of all, and the rest of it
			share = 0
			if p.subs[0].kind == "probabilistic" {
				share = 1 - p.subs[0].percent/100
			}
		}
		r, _ := yes(v == notSampled)
		return r, share
	case "drop":
		for _, s := range p.subs {
			if v, _ := s.ask(t, now); v != sampled {
				return notSampled, 1
			}
		}
		return dropped, 1
	case "composite":
		return p.askComposite(t, now)
	}
	return notSampled, 1
}

// take draws from the bucket.
func (p *node) take(n float64, now int64) bool {
	if p.begun {
		p.tokens = min(p.tokens+p.rate*float64(now-p.at)/1e9, p.burst)
	}
	p.at, p.begun = now, true
	if n > p.tokens {
		return false
	}
	p.tokens -= n
	return true
}

// askComposite gives the trace to the first part that samples it, if that still has spans left in this
// second.
func (p *node) askComposite(t *trace, now int64) (verdict, float64) {
	if second := now / int64(time.Second); second != p.at || !p.begun {
		p.at, p.begun = second, true
		clear(p.spent)
	}
	for i, s := range p.subs {
		if v, _ := s.ask(t, now); v == sampled {
			after := p.spent[i] + float64(t.spans)
			if after <= p.sub[i] && after <= p.rate {
				p.spent[i] = after
				return sampled, 0
			}
			return notSampled, 0
		}
	}
	return notSampled, 0
}

// decideCollector is the decision of the collector's form: a drop policy that matches throws away, else
// one that samples keeps.
func (c *compiled) decideCollector(t *trace, now int64) (keep bool, rule uint8, weight float64) {
	if c.Collector.MaxBytes > 0 && t.wire > c.Collector.MaxBytes {
		return false, ruleTooLarge, 1
	}
	rule = ruleNone
	best := 0.0
	for _, drops := range []bool{true, false} {
		for _, p := range c.Collector.policies {
			if (p.kind == "drop") != drops {
				continue
			}
			v, share := p.ask(t, now)
			if v == dropped {
				return false, p.rule, 1
			}
			if v != sampled {
				continue
			}
			if !keep {
				keep, rule, best = true, p.rule, share
			}
			best = max(best, share)
			if c.Collector.FirstMatch {
				return true, rule, weightOf(best)
			}
		}
	}
	if !keep {
		return false, rule, 1
	}
	return true, rule, weightOf(best)
}

// weightOf is how many traces a kept one stands for; 0 when that is not known.
func weightOf(share float64) float64 {
	if share <= 0 {
		return 0
	}
	return 1 / share
}
