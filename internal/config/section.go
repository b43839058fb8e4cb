package config

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// rollscope decodes our section strictly.
func (d *document) rollscope() (Rollscope, []error) {
	var r Rollscope
	if d.value == nil || (d.value.Kind == yaml.ScalarNode && d.value.Tag == "!!null") {
		return r, nil
	}
	errs := d.unknownKeys(d.value, reflect.TypeFor[Rollscope](), sectionKey)
	if len(errs) > 0 {
		return r, errs
	}
	if err := d.value.Decode(&r); err != nil {
		return r, []error{d.yamlError(err)}
	}
	return r, d.check(&r)
}

// later lists the sections that the design names and this version does not read yet: a clearer
// word than "unknown key".
var later = []string{"objectives", "metrics"}

// unknownKeys walks the tree beside the Go type and names every key that has no field.
func (d *document) unknownKeys(n *yaml.Node, t reflect.Type, at string) []error {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[yaml.Node]() {
		return nil // another package reads it
	}
	var errs []error
	switch t.Kind() {
	case reflect.Struct:
		if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
			return nil
		}
		if n.Kind != yaml.MappingNode {
			return []error{d.errorf(n.Line, "%s must be a mapping of keys: %s", at, strings.Join(tags(t), ", "))}
		}
		fields := map[string]reflect.Type{}
		for i := range t.NumField() {
			f := t.Field(i)
			if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" && name != "-" {
				fields[name] = f.Type
			}
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			ft, ok := fields[k.Value]
			if !ok {
				if at == sectionKey && slices.Contains(later, k.Value) {
					errs = append(errs, d.errorf(k.Line, "%s.%s: this version does not read this section", at, k.Value))
					continue
				}
				errs = append(errs, d.errorf(k.Line, "unknown key %q in %s%s", k.Value, at, nearestOf(k.Value, tags(t))))
				continue
			}
			errs = append(errs, d.unknownKeys(v, ft, at+"."+k.Value)...)
		}
	case reflect.Map:
		if t.Elem().Kind() != reflect.Struct || n.Kind != yaml.MappingNode {
			return nil // decoding says what is wrong
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			errs = append(errs, d.unknownKeys(n.Content[i+1], t.Elem(), at+"."+n.Content[i].Value)...)
		}
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
				return nil
			}
			return []error{d.errorf(n.Line, "%s must be a list: start each entry with \"- \"", at)}
		}
		for i, it := range n.Content {
			errs = append(errs, d.unknownKeys(it, t.Elem(), fmt.Sprintf("%s[%d]", at, i))...)
		}
	}
	return errs
}

// Words that may stand in the section. The packages that interpret them own their meaning; a
// typing error is found here because here the line is known.
var (
	kinds    = []string{"quantile", "rate", "level", "share", "worst"}
	ranks    = []string{"", "leader", "all"}
	roles    = []string{"unified", "prefill", "decode", "encode", "router", "frontend"}
	views    = []string{"", "lines", "stat", "gauge", "table"}
	bys      = []string{"", "fleet", "engine", "role", "model"}
	backends = []string{"", "sglang", "vllm", "dynamo_frontend", "dynamo_worker", "router", "engine_metrics", "dcgm", "trainer", "other"}
	idForm   = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
)

// check finds what is well-formed and still wrong, and notes lines.
func (d *document) check(r *Rollscope) []error {
	var errs []error
	fail := func(n *yaml.Node, format string, args ...any) {
		line := 0
		if n != nil {
			line = n.Line
		}
		errs = append(errs, d.errorf(line, format, args...))
	}
	word := func(n *yaml.Node, key, got string, allowed []string) {
		if slices.Contains(allowed, got) {
			return
		}
		at := child(n, key)
		if at == nil {
			at = n
		}
		var names []string
		for _, a := range allowed {
			if a != "" {
				names = append(names, a)
			}
		}
		if got == "" {
			fail(at, "%s: is missing; it is one of %s", key, strings.Join(names, ", "))
			return
		}
		fail(at, "%s: %q is not one of %s%s", key, got, strings.Join(names, ", "), nearestOf(got, names))
	}
	each := func(key string, f func(i int, n *yaml.Node)) {
		if l := child(d.value, key); l != nil {
			for i, n := range l.Content {
				for n.Kind == yaml.AliasNode {
					n = n.Alias
				}
				f(i, n)
			}
		}
	}
	seen := map[string]int{}
	once := func(n *yaml.Node, what, id string) {
		if l, ok := seen[what+id]; ok {
			fail(n, "%s %q is defined twice; the first is in line %d", what, id, l)
		}
		seen[what+id] = n.Line
	}
	ident := func(n *yaml.Node, what, id string) {
		if !idForm.MatchString(id) {
			at := child(n, "id")
			if at == nil {
				at = n
			}
			fail(at, "a %s needs an id of lower-case letters, digits and _, not %q: it stands in URLs and series names", what, id)
			return
		}
		once(n, what, id)
	}
	each("signals", func(i int, n *yaml.Node) {
		s := &r.Signals[i]
		s.Line = n.Line
		ident(n, "signal", s.ID)
		word(n, "kind", s.Kind, kinds)
		word(n, "ranks", s.Ranks, ranks)
		for _, role := range s.Roles {
			word(n, "roles", role, roles)
		}
		if (s.Metric == "") == (len(s.Sources) == 0) {
			fail(n, "signal %q needs either metric: or sources:", s.ID)
		}
		if s.Kind == "share" && s.Metric != "" {
			fail(n, "signal %q is a share: give sources: with num: and den:", s.ID)
		}
		srcs := child(n, "sources")
		for k, src := range s.Sources {
			sn := n
			if srcs != nil && k < len(srcs.Content) {
				sn = srcs.Content[k]
			}
			word(sn, "backend", src.Backend, backends)
			if (src.Metric == "") == (len(src.Num) == 0) {
				fail(sn, "a source of signal %q needs either metric: or num:", s.ID)
			}
			if (s.Kind == "share") != (len(src.Den) > 0) {
				fail(sn, "den: belongs to a signal of kind share, and only there (signal %q is of kind %q)", s.ID, s.Kind)
			}
			for _, t := range slices.Concat([]Term{{Metric: "-", Ranks: src.Ranks}}, src.Num, src.Den) {
				if t.Metric == "" {
					fail(sn, "a term of signal %q has no metric:", s.ID)
				}
				word(sn, "ranks", t.Ranks, ranks)
			}
		}
	})
	each("boards", func(i int, n *yaml.Node) {
		b := &r.Boards[i]
		b.Line = n.Line
		ident(n, "board", b.ID)
		if b.Title == "" {
			fail(n, "board %q has no title:", b.ID)
		}
		for _, sec := range b.Sections {
			for _, p := range sec.Panels {
				word(n, "view", p.View, views)
				word(n, "by", p.By, bys)
				if (p.Signal == "") == (len(p.Targets) == 0) {
					fail(n, "panel %q of board %q needs either signal: or targets:", p.Title, b.ID)
				}
				for _, t := range p.Targets {
					if t.Expr == "" {
						fail(n, "a target of panel %q of board %q has no expr:", p.Title, b.ID)
					}
				}
			}
		}
	})
	each("engines", func(i int, n *yaml.Node) {
		e := &r.Engines[i]
		e.Line = n.Line
		if e.Instance == "" {
			fail(n, "an entry of engines needs instance: HOST:PORT as it is scraped")
			return
		}
		once(n, "engine", e.Instance)
		word(n, "role", e.Role, append([]string{""}, roles...))
	})
	each("alerts", func(i int, n *yaml.Node) {
		a := &r.Alerts[i]
		a.Line = n.Line
		if a.Name == "" {
			fail(n, "an entry of alerts needs the name: of a built-in alert")
			return
		}
		once(n, "alert", a.Name)
		if a.For != "" {
			if _, err := model.ParseDuration(a.For); err != nil {
				fail(child(n, "for"), "for: %v", err)
			}
		}
	})
	d.checkRollouts(r, each, once, fail)
	d.checkEvents(r, each, once, fail)
	d.checkPasses(&r.ForwardPasses, word, once, fail)
	each("webhooks", func(i int, n *yaml.Node) {
		if err := httpURL(r.Webhooks[i].URL); err != nil {
			fail(n, "url: %v", err)
		}
	})

	return errs
}

// httpURL says what is wrong with an absolute http or https URL.
func httpURL(s string) error {
	if s == "" {
		return errors.New("is missing")
	}
	u, err := url.Parse(s)
	if err != nil {
		return fmt.Errorf("%q is not a URL: %w", s, err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("%q is not a URL of the form http://HOST:PORT/PATH", s)
	}
	return nil
}

// nearestOf gives "; did you mean x?" or the list of keys when nothing is near.
func nearestOf(got string, keys []string) string {
	if s := nearest(got, keys); s != "" {
		return fmt.Sprintf("; did you mean %q?", s)
	}
	if len(keys) == 0 {
		return ""
	}
	return "; it knows " + strings.Join(keys, ", ")
}

// nearest gives the key with the smallest edit distance if it is small enough to be a typing error.
func nearest(got string, keys []string) string {
	best, dist := "", 2 // less than
	if len(got) >= 4 {
		dist = 3
	}
	if len(got) >= 9 {
		dist = 4
	}
	for _, k := range keys {
		if n := distance(got, k); n < dist {
			best, dist = k, n
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
