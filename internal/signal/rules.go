package signal

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rollscope/rollscope/internal/engine"
)

// RuleInterval is how often the built-in rules are evaluated.
const RuleInterval = "15s"

// ruleFile is Prometheus's rule file.
type ruleFile struct {
	Groups []ruleGroup `yaml:"groups"`
}

type ruleGroup struct {
	Name     string `yaml:"name"`
	Interval string `yaml:"interval"`
	Rules    []rule `yaml:"rules"`
}

type rule struct {
	Record      string            `yaml:"record,omitempty"`
	Alert       string            `yaml:"alert,omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

// RecordingRules is the rule file, in YAML, that makes the recorded series of a catalog's signals: for each
// engine engine:<id>... with the labels instance, model_name, role and backend, for the fleet fleet:<id>...,
// and the series [InfoSeries] and [LostSeries] that they and the alerts rest on.
func RecordingRules(c *Catalog) []byte {
	groups := []ruleGroup{identityGroup()}
	byGroup := map[string]int{}
	for _, s := range c.signals {
		if s.RawOnly {
			continue
		}
		i, ok := byGroup[s.Group]
		if !ok {
			i = len(groups)
			byGroup[s.Group] = i
			groups = append(groups, ruleGroup{Name: "rollscope_" + slug(s.Group), Interval: RuleInterval})
		}
		groups[i].Rules = append(groups[i].Rules, signalRules(s)...)
	}
	return writeRules("Made by Rollscope: what its signals read over long ranges. `rollscope explain SIGNAL` says what each means.", groups)
}

// identityGroup records who is there.
func identityGroup() ruleGroup {
	g := ruleGroup{Name: "rollscope_identity", Interval: RuleInterval}
	for _, b := range []engine.Backend{engine.SGLang, engine.VLLM, engine.DynamoWorker} {
		g.Rules = append(g.Rules, rule{Record: InfoSeries, Expr: infoExpr(b), Labels: map[string]string{"backend": string(b)}})
	}
	g.Rules = append(g.Rules, rule{Record: LostSeries, Expr: lostExpr()})
	return g
}

// signalRules are the rules of one signal: per backend and engine first, then what is made of them.
func signalRules(s Signal) []rule {
	var out []rule
	each := func(what string, sd side) {
		name := recordedName("engine", s, what)
		for _, p := range parts(s) {
			out = append(out, p.rule(s, name, sd))
		}
	}
	fleet := func(what, expr string) {
		out = append(out, rule{Record: recordedName("fleet", s, what), Expr: expr})
	}
	switch s.Kind {
	case Quantile:
		each("_count", countOf)
		each("_bucket", bucketOf)
		buckets := recordedName("engine", s, "_bucket")
		fleet("_count", fmt.Sprintf("sum(%s)", recordedName("engine", s, "_count")))
		fleet("_bucket", commonBounds(buckets, nil))
		for _, q := range recordedQuantiles {
			b := builder{s: s, q: Query{Quantile: q}}
			out = append(out, rule{Record: recordedName("engine", s, quantileName(q)), Expr: b.quantileOf(buckets)})
			fleet(quantileName(q), b.quantileOf(recordedName("fleet", s, "_bucket")))
		}
	case Share:
		each("_num", numOf)
		each("_den", denOf)
		num, den := recordedName("engine", s, "_num"), recordedName("engine", s, "_den")
		out = append(out, rule{Record: recordedName("engine", s, "ratio"), Expr: fmt.Sprintf("%s / (%s > 0)", num, den)})
		fleet("ratio", fmt.Sprintf("sum(%s) / (sum(%s) > 0)", num, den))
	default:
		each("rate", valueOf)
		b := builder{s: s}
		fleet("rate", fmt.Sprintf("%s(%s)", b.aggregator(), recordedName("engine", s, "rate")))
	}
	return out
}

// part is the sources of one program.
type part struct {
	backend  engine.Backend
	sources  []int
	fallback bool
}

// parts splits a signal's sources by program, those that only fill in last.
func parts(s Signal) []part {
	var out []part
	for _, fallback := range []bool{false, true} {
		for i, src := range s.Sources {
			if src.Fallback != fallback {
				continue
			}
			j := slices.IndexFunc(out, func(p part) bool { return p.backend == src.Backend && p.fallback == fallback })
			if j < 0 {
				j = len(out)
				out = append(out, part{backend: src.Backend, fallback: fallback})
			}
			out[j].sources = append(out[j].sources, i)
		}
	}
	return out
}

// rule records one program's engines.
func (p part) rule(s Signal, name string, sd side) rule {
	b, err := newBuilder(s, Query{By: ByEngine, Sources: p.sources})
	if err != nil { // a catalog holds only signals that compile
		return rule{Record: name, Expr: "absent(0)"}
	}
	expr := b.grouped(b.vector(sd), sd == bucketOf)
	labels := map[string]string{"backend": string(p.backend)}
	switch {
	case hasRole(p.backend):
		expr = fmt.Sprintf("%s * on (instance) group_left (role) %s", operand(expr), InfoSeries)
	case roleOf(p.backend) != engine.RoleUnknown:
		labels["role"] = string(roleOf(p.backend))
	}
	if p.fallback {
		witness := name
		if sd == bucketOf {
			witness = recordedName("engine", s, "_count")
		}
		expr = fmt.Sprintf(`%s unless on () %s{backend!=%q}`, operand(expr), witness, string(p.backend))
	}
	return rule{Record: name, Expr: expr, Labels: labels}
}

// slug makes a group's name out of a heading.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		default:
			return '_'
		}
	}, heading)
}

// writeRules writes a rule file with a comment on top.
func writeRules(comment string, groups []ruleGroup) []byte {
	var buf bytes.Buffer
	fmt.Fprintf(&buf, "# %s\n", comment)
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := enc.Encode(ruleFile{Groups: groups}); err != nil { // strings and maps of strings always encode
		return fmt.Appendf(nil, "# %v\ngroups: []\n", err)
	}
	return buf.Bytes()
}
