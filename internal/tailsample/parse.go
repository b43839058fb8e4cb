package tailsample

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Keys of our own form.
var (
	nativeKeys = []string{"ratio", "keep", "drop", "max_memory", "max_traces", "max_spans_per_trace", "linger", "settle", "idle_after", "max_age", "remember", "remember_traces", "file"}
	keepKeys   = []string{"errors", "aborted", "retracted", "tool_errors", "linked", "slow", "attributes"}
	slowKeys   = []string{"ttft", "itl", "e2e", "queue", "transfer", "p99", "min_requests", "window"}
	matchKeys  = []string{"name", "key", "values", "regexp", "min", "max", "value"}
)

// Parse reads a policy from the text of a file: our own form (what stands under traces.sampling), the
// collector's tail_sampling, or a whole collector configuration that has one. Limits that it does not
// name are zero, which [New] takes for the defaults. The notes say what was accepted and means something
// else here, or nothing. Every error is a *[PolicyError] or several joined.
func Parse(text []byte, path string) (Options, []string, error) {
	r := &reader{path: path, left: maxNodes}
	n := r.parseTree(text)
	if err := r.err(); err != nil {
		return Options{}, nil, err
	}
	return r.options(n)
}

// FromNode reads a policy from a part of a YAML tree, whose lines errors name; nil and null give the
// default policy. See [Parse].
func FromNode(n *yaml.Node, path string) (Options, []string, error) {
	r := &reader{path: path, left: maxNodes}
	return r.options(n)
}

func (r *reader) options(n *yaml.Node) (Options, []string, error) {
	o := Options{Policy: DefaultPolicy()}
	n = r.real(n)
	switch {
	case isNull(n):
	case n.Kind == yaml.ScalarNode && (strings.EqualFold(n.Value, "off") || strings.EqualFold(n.Value, "false")):
		o.Policy = KeepAll()
	case n.Kind != yaml.MappingNode:
		r.fail(n, "sampling must be a mapping (ratio, keep, ...), or off to keep everything")
	default:
		if c := r.collectorNode(n); c != nil {
			r.collector(c, &o)
		} else if r.err() == nil {
			r.native(n, &o)
		}
	}
	if err := r.err(); err != nil {
		return Options{}, nil, err
	}
	// What a policy needs beyond its form, such as the number of conditions, is checked here too, so that
	// the file is at fault and not whoever starts the sampler.
	if _, err := compile(o.Policy); err != nil {
		r.fail(n, "%s", strings.TrimPrefix(err.Error(), "tail sampling: "))
		return Options{}, nil, r.err()
	}
	return o, r.notes, nil
}

// collectorNode finds the collector's form in a tree: processors.tail_sampling, tail_sampling, or what
// stands under it. It is nil for our own form.
func (r *reader) collectorNode(n *yaml.Node) *yaml.Node {
	var found []*yaml.Node
	look := func(n *yaml.Node) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if k := n.Content[i].Value; k == "tail_sampling" || strings.HasPrefix(k, "tail_sampling/") {
				found = append(found, r.real(n.Content[i+1]))
			}
		}
	}
	look(n)
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch k, v := n.Content[i].Value, r.real(n.Content[i+1]); {
		case k == "processors" && v != nil && v.Kind == yaml.MappingNode:
			look(v)
			if len(found) == 0 {
				r.fail(v, "there is no tail_sampling among the processors; give a file that has one, or our own form: ratio, keep, ...")
				return nil
			}
		case k == "policies" || k == "decision_wait":
			found = append(found, n)
			i = len(n.Content)
		}
	}
	if len(found) > 1 {
		r.fail(found[1], "there are %d tail_sampling processors; keep the one that counts", len(found))
		return nil
	}
	if len(found) == 0 {
		return nil
	}
	if isNull(found[0]) {
		r.fail(n, "tail_sampling is empty: give it policies")
		return nil
	}
	return found[0]
}

// native reads our own form.
func (r *reader) native(n *yaml.Node, o *Options) {
	p := &o.Policy
	r.mapping(n, "sampling", nativeKeys, func(key string, v *yaml.Node) {
		switch key {
		case "ratio":
			p.Ratio = r.share(v, "ratio")
		case "keep":
			r.keep(v, p)
		case "drop":
			p.Drop = r.conditions(v, "drop")
		case "max_memory":
			o.MaxBytes = r.bytes(v, key)
		case "max_traces":
			o.MaxTraces = int(r.int(v, key, 1, maxSlots))
		case "max_spans_per_trace":
			o.MaxSpansPerTrace = int(r.int(v, key, 1, math.MaxInt32))
		case "linger":
			o.Linger = r.positive(v, key)
		case "settle":
			o.Settle = r.positive(v, key)
		case "idle_after":
			o.IdleAfter = r.positive(v, key)
		case "max_age":
			o.MaxAge = r.positive(v, key)
		case "remember":
			o.Remember = r.positive(v, key)
		case "remember_traces":
			o.RememberTraces = int(r.int(v, key, 1, maxSlots))
		case "file":
			o.File = r.text(v, key)
			if len(n.Content) > 2 {
				r.fail(v, "file stands alone: what the file says is all that counts")
			}
		}
	})
}

func (r *reader) positive(n *yaml.Node, what string) time.Duration {
	d := r.duration(n, what)
	if d == 0 {
		r.fail(n, "%s must be longer than 0", what)
	}
	return d
}

func (r *reader) keep(n *yaml.Node, p *Policy) {
	r.mapping(n, "keep", keepKeys, func(key string, v *yaml.Node) {
		switch key {
		case "errors":
			p.Errors = r.bool(v, key)
		case "aborted":
			p.Aborted = r.bool(v, key)
		case "retracted":
			p.Retracted = r.bool(v, key)
		case "tool_errors":
			p.Tools = r.bool(v, key)
		case "linked":
			p.Linked = r.bool(v, key)
		case "attributes":
			p.Keep = r.conditions(v, "keep.attributes")
		case "slow":
			if v != nil && v.Kind == yaml.ScalarNode {
				if p.Slow.P99 = r.bool(v, key); !p.Slow.P99 {
					p.Slow = Slow{}
				}
				return
			}
			r.slow(v, &p.Slow)
		}
	})
}

func (r *reader) slow(n *yaml.Node, s *Slow) {
	r.mapping(n, "keep.slow", slowKeys, func(key string, v *yaml.Node) {
		switch key {
		case "ttft":
			s.TTFT = r.positive(v, key)
		case "itl":
			s.ITL = r.positive(v, key)
		case "e2e":
			s.E2E = r.positive(v, key)
		case "queue":
			s.Queue = r.positive(v, key)
		case "transfer":
			s.Transfer = r.positive(v, key)
		case "p99":
			s.P99 = r.bool(v, key)
		case "min_requests":
			s.Requests = int(r.int(v, key, 1, math.MaxInt32))
		case "window":
			s.Window = r.positive(v, key)
		}
	})
}

func (r *reader) conditions(n *yaml.Node, what string) (out []Condition) {
	r.list(n, what, func(i int, n *yaml.Node) {
		at := fmt.Sprintf("%s[%d]", what, i)
		c := Condition{Min: math.Inf(-1), Max: math.Inf(1)}
		failed := len(r.errs)
		r.mapping(n, at, matchKeys, func(key string, v *yaml.Node) {
			switch key {
			case "name":
				c.Name = r.text(v, at+".name")
			case "key":
				c.Key = r.text(v, at+".key")
			case "values":
				c.Values = r.texts(v, at+".values")
			case "regexp":
				c.Regexp = append(c.Regexp, r.regexp(v, at+".regexp"))
			case "min":
				c.Min, c.Number = r.float(v, at+".min"), true
			case "max":
				c.Max, c.Number = r.float(v, at+".max"), true
			case "value":
				b := r.bool(v, at+".value")
				c.Bool = &b
			}
		})
		kinds := 0
		for _, is := range []bool{len(c.Values)+len(c.Regexp) > 0, c.Number, c.Bool != nil} {
			if is {
				kinds++
			}
		}
		switch {
		case len(r.errs) > failed:
		case c.Key == "":
			r.fail(n, "%s has no key: name the attribute", at)
		case kinds != 1:
			r.fail(n, "%s must say one of: values and regexp (texts), min and max (numbers), value (true or false)", at)
		}
		if c.Name == "" {
			c.Name = c.Key
		}
		out = append(out, c)
	})
	return out
}

func (r *reader) regexp(n *yaml.Node, what string) *regexp.Regexp {
	s := r.text(n, what)
	re, err := regexp.Compile(s)
	if err != nil {
		r.fail(n, "%s is not a regular expression: %v", what, err)
		return nil
	}
	return re
}
