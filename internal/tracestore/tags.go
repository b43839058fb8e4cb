package tracestore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/logsql"
	"github.com/rollscope/rollscope/internal/span"
)

// families are names that every request has one of its own of: SGLang puts an id behind the word. Lists
// have the family; a search takes the star.
var families = []string{"Req *", "prefill Req *", "decode Req *", "Bootstrap Room *"}

// familyPrefixes are how the names of a family begin, in the order of families. SGLang's begin with a space.
var familyPrefixes = [][]string{{" Req ", "Req "}, {"prefill Req ", " prefill Req "}, {"decode Req ", " decode Req "}, {"Bootstrap Room "}}

func prefixFilter(field string, prefixes []string) string {
	parts := make([]string, len(prefixes))
	for i, p := range prefixes {
		parts[i] = logsql.Quote(field) + ":=" + logsql.Quote(p) + "*"
	}
	return "(" + strings.Join(parts, " or ") + ")"
}

// Services lists the services that sent spans in the range, in order. One that named none is left out.
func (st *Store) Services(ctx context.Context, from, to int64) ([]string, error) {
	var out []string
	err := st.query(ctx, spansOnly+" | uniq by (service) limit "+strconv.Itoa(MaxValues), from, to, func(r row) error {
		if s := r.get("service"); s != "" {
			out = append(out, s)
		}
		return nil
	})
	slices.Sort(out)
	return out, err
}

// Operations lists the names of a service's spans with their kinds, in order; "" is all services. Names
// that have a request's id in them are one: "Req *".
func (st *Store) Operations(ctx context.Context, service string, from, to int64) ([]Operation, error) {
	names, err := st.names(ctx, service, from, to, MaxValues)
	out := make([]Operation, 0, len(names))
	for _, n := range names {
		if o := (Operation{n.Name, n.kind}); !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b Operation) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind)) })
	return out, err
}

type nameKind struct {
	NameCount
	service string
	kind    span.Kind
}

// names counts spans by service, name and kind, most first.
func (st *Store) names(ctx context.Context, service string, from, to int64, limit int) ([]nameKind, error) {
	these := spansOnly
	if service != "" {
		these = exactService(service)
	}
	var out []nameKind
	read := func(name string) func(r row) error {
		return func(r row) error {
			n := nameKind{NameCount{cmp.Or(name, r.get("_msg")), r.int("n")}, r.get("service"), kindOf(r.get("kind"))}
			if n.Count > 0 {
				out = append(out, n)
			}
			return nil
		}
	}
	var others []string
	for i, prefixes := range familyPrefixes {
		f := prefixFilter("_msg", prefixes)
		others = append(others, "!"+f)
		if err := st.query(ctx, these+" "+f+" | stats by (service, kind) count() as n", from, to, read(families[i])); err != nil {
			return nil, err
		}
	}
	text := these + " " + strings.Join(others, " ") + " | stats by (service, _msg, kind) count() as n | sort by (n desc) limit " + strconv.Itoa(limit)
	if err := st.query(ctx, text, from, to, read("")); err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b nameKind) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name), cmp.Compare(a.service, b.service), cmp.Compare(a.kind, b.kind))
	})
	return out, nil
}

func kindOf(word string) span.Kind {
	if i := slices.Index(kindNames[:], word); i >= 0 {
		return span.Kind(i)
	}
	return 0
}

// spansOf is the filter of the spans that a set asks for: of any of its conditions.
func spansOf(where *Set) string {
	if where == nil {
		return spansOnly
	}
	conds := where.leaves()
	f := Any(conds...).filter()
	if f == everything {
		return spansOnly
	}
	return spansOnly + " " + f
}

// TagNames lists keys of attributes by scope, in order; AnyScope asks for all scopes. Those of events and
// links are of the newest spans that have any.
func (st *Store) TagNames(ctx context.Context, scope Scope, where *Set, from, to int64) (map[Scope][]string, error) {
	out := map[Scope][]string{}
	these := spansOf(where)
	wants := func(s Scope) bool { return scope == AnyScope || scope == s }
	if wants(SpanScope) || wants(Resource) || wants(Instrument) {
		err := st.query(ctx, these+" | field_names", from, to, func(r row) error {
			name := r.get("name")
			for s, prefix := range map[Scope]string{SpanScope: span.SpanAttr, Resource: span.ResourceAttr, Instrument: span.ScopeAttr} {
				if key, ok := strings.CutPrefix(name, prefix); ok && key != "" && wants(s) && len(out[s]) < MaxValues {
					out[s] = append(out[s], key)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if wants(Resource) && !slices.Contains(out[Resource], "service.name") {
			services, err := st.Services(ctx, from, to)
			if err != nil {
				return nil, err
			}
			if len(services) > 0 {
				out[Resource] = append(out[Resource], "service.name")
			}
		}
	}
	for s, field := range map[Scope]string{EventScope: "events", LinkScope: "links"} {
		if !wants(s) {
			continue
		}
		keys := map[string]bool{}
		err := st.eachWithin(ctx, these, field, from, to, func(sp *span.Span) {
			for _, attrs := range attrsWithin(sp, s) {
				for _, a := range attrs {
					keys[a.Key] = true
				}
			}
		})
		if err != nil {
			return nil, err
		}
		out[s] = slices.Collect(maps.Keys(keys))
	}
	for s := range out {
		slices.Sort(out[s])
	}
	return out, nil
}

// sampleWithin is how many spans are read for what stands inside events and links.
const sampleWithin = 2000

func (st *Store) eachWithin(ctx context.Context, these, field string, from, to int64, fn func(*span.Span)) error {
	text := these + " " + logsql.Quote(field) + ":* | fields _time, " + field + " | sort by (_time desc) limit " + strconv.Itoa(sampleWithin)
	return st.query(ctx, text, from, to, func(r row) error {
		sp, _ := span.FromRow(r)
		fn(&sp)
		return nil
	})
}

func attrsWithin(s *span.Span, scope Scope) (out [][]span.Attr) {
	if scope == EventScope {
		for i := range s.Events {
			out = append(out, s.Events[i].Attrs)
		}
		return out
	}
	for i := range s.Links {
		out = append(out, s.Links[i].Attrs)
	}
	return out
}

// TagValues lists values of a field, the most frequent first.
func (st *Store) TagValues(ctx context.Context, f Field, where *Set, from, to int64, limit int) ([]TagValue, error) {
	if limit <= 0 || limit > MaxValues {
		limit = MaxValues
	}
	these := spansOf(where)
	counts := map[string]int64{}
	read := func(filter, field string) error {
		return st.query(ctx, these+filter+" | field_values "+logsql.Quote(field)+" limit "+strconv.Itoa(limit), from, to, func(r row) error {
			if v := r.get(field); v != "" {
				counts[v] += r.int("hits")
			}
			return nil
		})
	}
	typ := ""
	var err error
	attr := func(prefix string) {
		name := prefix + f.Key
		if err == nil && len(name) <= maxFieldName && f.Key != "" && !strings.HasSuffix(name, "*") {
			err = read("", name)
		}
	}
	switch f.Scope {
	case SpanScope:
		attr(span.SpanAttr)
	case Instrument:
		attr(span.ScopeAttr)
	case Resource, AnyScope:
		attr(span.ResourceAttr)
		if f.Key == "service.name" && err == nil {
			typ, err = "string", read("", "service")
		}
		if f.Scope == AnyScope {
			attr(span.SpanAttr)
		}
	case EventScope, LinkScope:
		field := map[Scope]string{EventScope: "events", LinkScope: "links"}[f.Scope]
		err = st.eachWithin(ctx, these, field, from, to, func(sp *span.Span) {
			eachValue(f, sp, &traceFacts{}, func(v string) bool { counts[v]++; return true })
		})
	default:
		var fixed []TagValue
		typ = "string"
		switch f.Key {
		case SpanStatus:
			fixed = []TagValue{{"keyword", "error"}, {"keyword", "ok"}, {"keyword", "unset"}}
		case SpanKind:
			for _, k := range kindNames {
				fixed = append(fixed, TagValue{"keyword", k})
			}
		case SpanName:
			var list []nameKind
			if list, err = st.names(ctx, "", from, to, limit); where != nil {
				list = nil
				err = read("", "_msg")
			}
			for _, n := range list {
				counts[n.Name] += n.Count
			}
		case RootName:
			err = read(` parent_span_id:""`, "_msg")
		case RootService:
			err = read(` parent_span_id:""`, "service")
		case StatusMessage:
			err = read("", "status_message")
		case ScopeName:
			err = read("", "scope_name")
		case ScopeVersion:
			err = read("", "scope_version")
		case EventName:
			err = st.eachWithin(ctx, these, "events", from, to, func(sp *span.Span) {
				for i := range sp.Events {
					counts[sp.Events[i].Name]++
				}
			})
		}
		if fixed != nil {
			return fixed, nil
		}
	}
	if err != nil {
		return nil, err
	}
	values := slices.Collect(maps.Keys(counts))
	slices.SortFunc(values, func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	if typ == "" {
		typ = typeOf(values)
	}
	out := make([]TagValue, 0, min(len(values), limit))
	for _, v := range values[:min(len(values), limit)] {
		out = append(out, TagValue{typ, v})
	}
	return out, nil
}

// typeOf guesses what values are from all of them: the store has texts.
func typeOf(values []string) string {
	ints, floats, bools := len(values) > 0, len(values) > 0, len(values) > 0
	for _, v := range values {
		if _, err := strconv.ParseInt(v, 10, 64); err != nil {
			ints = false
		}
		if f, err := strconv.ParseFloat(v, 64); err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			floats = false
		}
		bools = bools && (v == "true" || v == "false")
	}
	switch {
	case ints:
		return "int"
	case floats:
		return "float"
	case bools:
		return "bool"
	}
	return "string"
}

// Stats says what each service sent in the range, most spans first.
func (st *Store) Stats(ctx context.Context, from, to int64) ([]ServiceStats, error) {
	names, err := st.names(ctx, "", from, to, MaxValues)
	if err != nil {
		return nil, err
	}
	by := map[string]*ServiceStats{}
	all := map[string]map[string]int64{}
	for _, n := range names {
		s := by[n.service]
		if s == nil {
			s = &ServiceStats{Service: n.service, Bytes: math.NaN(), PerHour: math.NaN()}
			by[n.service] = s
			all[n.service] = map[string]int64{}
		}
		all[n.service][n.Name] += n.Count
	}
	// What is counted in whole: the list of names may be cut.
	text := spansOnly + " | stats by (service) count() as n, count() if (dropped_attributes_count:>0) as d, min(_time) as t0, max(_time) as t1"
	err = st.query(ctx, text, from, to, func(r row) error {
		s := by[r.get("service")]
		if s == nil {
			return nil
		}
		s.Spans, s.Dropped = r.int("n"), r.int("d")
		first, last := r.time("t0"), r.time("t1")
		if from > 0 {
			first = max(first, from)
		}
		// The rate while it sent; less than a minute says too little.
		if hours := float64(last-first) / 3.6e12; hours >= 1.0/60 {
			s.PerHour = float64(s.Spans) / hours
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := st.bytes(ctx, by, from, to); err != nil {
		return nil, err
	}
	out := make([]ServiceStats, 0, len(by))
	for service, s := range by {
		for name, count := range all[service] {
			s.Names = append(s.Names, NameCount{name, count})
		}
		slices.SortFunc(s.Names, func(a, b NameCount) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
		s.level()
		s.Names = s.Names[:min(len(s.Names), MaxNames)]
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b ServiceStats) int {
		return cmp.Or(cmp.Compare(b.Spans, a.Spans), cmp.Compare(a.Service, b.Service))
	})
	return out, nil
}

// bytes fills what a service's spans cost on disk. Rows that are in memory only have no size yet.
func (st *Store) bytes(ctx context.Context, by map[string]*ServiceStats, from, to int64) error {
	for service, s := range by {
		if !(s.PerHour > 0) {
			continue
		}
		text := exactService(service) + ` | block_stats | stats sum(values_bytes) as v, sum(bloom_bytes) as b, sum(dict_bytes) as d, sum(rows) if (field:="_time" type:!="inmemory") as n`
		err := st.query(ctx, text, from, to, func(r row) error {
			if n := r.int("n"); n > 0 {
				s.Bytes = s.PerHour * float64(r.int("v")+r.int("b")+r.int("d")) / float64(n)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Dependencies counts the calls between services: spans whose parent is another service's. partial says
// which spans were not looked at.
func (st *Store) Dependencies(ctx context.Context, from, to int64) (links []Dependency, partial string, err error) {
	type key struct {
		trace span.TraceID
		id    string
	}
	services := map[key]string{}
	type child struct {
		parent  key
		service string
	}
	var children []child
	since, cut, err := st.newestSpans(ctx, "trace_id, span_id, parent_span_id, service", from, to, st.links, func(r row) error {
		id, ok := parseTraceID(r.get("trace_id"))
		if !ok {
			return nil
		}
		service := r.get("service")
		services[key{id, r.get("span_id")}] = service
		if p := r.get("parent_span_id"); p != "" {
			children = append(children, child{key{id, p}, service})
		}
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	if cut {
		partial = fmt.Sprintf("only the newest %d spans, from %s on, were looked at", len(services), instant(since))
	}
	counts := map[[2]string]uint64{}
	for _, c := range children {
		if p, ok := services[c.parent]; ok && p != c.service {
			counts[[2]string{p, c.service}]++
		}
	}
	for k, calls := range counts {
		links = append(links, Dependency{k[0], k[1], calls})
	}
	slices.SortFunc(links, func(a, b Dependency) int {
		return cmp.Or(cmp.Compare(a.Parent, b.Parent), cmp.Compare(a.Child, b.Child))
	})
	return links, partial, nil
}
