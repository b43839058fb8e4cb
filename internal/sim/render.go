package sim

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/signal"
)

// Target is one address that a recorder scrapes.
type Target struct {
	Name   string // as Exposition takes it: a member's name, or ROUTER/engine_metrics
	Member string
	Addr   string // host:port
	Path   string // "/metrics" or "/engine_metrics"
	Kind   Kind
}

// engineMetrics is the suffix of a router's second target.
const engineMetrics = "/engine_metrics"

// target is a Target with the series that it shows.
type target struct {
	Target
	member  *member
	workers []*member // of /engine_metrics
	views   []*view
	series  [][][2]string
	body    []byte // of the last rendering, reused
}

// view is one registry as a target shows it.
type view struct {
	reg   *registry
	style style
	alive func() bool
	base  []int // number of the first series of each metric
}

func (f *Fleet) makeTargets() {
	add := func(t *target) {
		f.targets = append(f.targets, t)
		f.targetOf[t.Name] = t
	}
	for _, m := range f.members {
		t := &target{Target: Target{Name: m.name, Member: m.name, Addr: m.spec.Addr, Path: "/metrics", Kind: m.spec.Kind}, member: m}
		for _, r := range m.regs {
			t.views = append(t.views, &view{reg: r, style: plain, alive: func() bool { return true }})
		}
		add(t)
		if m.spec.Kind != Router {
			continue
		}
		a := &target{Target: Target{Name: m.name + engineMetrics, Member: m.name, Addr: m.spec.Addr, Path: engineMetrics, Kind: Router}, member: m}
		for _, name := range m.spec.Workers {
			w := f.byName[name]
			a.workers = append(a.workers, w)
			for _, r := range w.regs {
				r.rename("http://" + w.spec.Addr)
				a.views = append(a.views, &view{reg: r, style: routed, alive: func() bool { return w.answers() }})
			}
		}
		add(a)
	}
}

// answers tells whether a member gives a router an exposition.
func (m *member) answers() bool {
	return m.server != nil && !m.server.down && !m.wire.empty && !m.wire.html && !m.wire.notFound && !m.wire.badLine
}

// Targets lists what can be scraped, in the order of the members.
func (f *Fleet) Targets() []Target {
	out := make([]Target, 0, len(f.targets))
	for _, t := range f.targets {
		out = append(out, t.Target)
	}
	return out
}

// Rebind gives a member the address under which it is really served; routers and their worker_addr
// labels follow.
func (f *Fleet) Rebind(name, addr string) error {
	m := f.byName[name]
	if m == nil {
		return fmt.Errorf("sim: no member %q", name)
	}
	m.spec.Addr = addr
	if m.server != nil {
		m.server.spec.Addr = addr
	}
	for _, t := range f.targets {
		if t.member == m {
			t.Addr = addr
		}
		if g, ok := t.member.gateway(); ok {
			g.rewire()
		}
		t.forget()
	}
	for _, r := range m.regs {
		r.rename("http://" + addr)
	}
	return nil
}

func (m *member) gateway() (*gateway, bool) {
	if m.front == nil {
		return nil, false
	}
	g, ok := m.front.obs.(*gateway)
	return g, ok
}

// Content types, by who answers.
const (
	textPlain    = "text/plain; version=0.0.4; charset=utf-8"
	text100      = "text/plain; version=1.0.0; charset=utf-8; escaping=underscores"
	openUnder    = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"
	openUTF8     = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8"
	routerText   = "text/plain; charset=utf-8"
	dynamoText   = "text/plain; version=0.0.4"
	htmlText     = "text/html; charset=utf-8"
	jsonText     = "application/json"
	refusedState = 0
)

// Exposition is what the target answers now to a client without an Accept header: body, Content-Type
// and HTTP status. Status 0 means connection refused, 404 an unknown target. The body is valid until
// the next call.
func (f *Fleet) Exposition(name string) (body []byte, contentType string, status int) {
	return f.ExpositionFor(name, "")
}

// ExpositionFor is Exposition for a client that sends the given Accept header. Python programs answer
// it as prometheus_client does: OpenMetrics with escaping=underscores writes samples with '_' and
// HELP and TYPE with ':'.
func (f *Fleet) ExpositionFor(name, accept string) (body []byte, contentType string, status int) {
	t := f.targetOf[name]
	switch {
	case t == nil:
		return []byte(`{"detail":"Not Found"}`), jsonText, 404
	case t.member.down():
		return nil, "", refusedState
	}
	w := &t.member.wire
	switch {
	case w.notFound:
		return []byte(`{"detail":"Not Found"}`), jsonText, 404
	case w.html:
		return []byte("<!doctype html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>\n"), htmlText, 200
	case w.empty:
		return nil, textPlain, 200
	}
	if t.Path == engineMetrics {
		return t.aggregated()
	}
	s, contentType, openMetrics := t.negotiate(accept)
	var stamp []byte
	if w.stamp != 0 {
		stamp = stampOf(f.Now().Add(w.stamp), openMetrics)
	}
	b := t.body[:0]
	for _, v := range t.views {
		for _, fam := range v.reg.families {
			b = v.reg.appendFamily(b, fam, s, stamp)
		}
	}
	if w.duplicate {
		b = duplicate(b)
	}
	if w.badLine {
		b = malform(b)
	}
	if openMetrics {
		b = append(b, "# EOF\n"...)
	}
	t.body = b
	return b, contentType, 200
}

// negotiate picks the spelling for a client, as the programs' libraries do.
func (t *target) negotiate(accept string) (s style, contentType string, openMetrics bool) {
	switch t.Kind {
	case Router:
		return plain, routerText, false
	case DynamoFrontend, DynamoWorker, DCGM:
		return plain, dynamoText, false
	}
	for _, part := range strings.Split(accept, ",") {
		media, params, _ := strings.Cut(strings.ReplaceAll(part, " ", ""), ";")
		switch {
		case media == "application/openmetrics-text" && strings.Contains(params, "escaping=allow-utf-8"):
			return utf8Names, openUTF8, true
		case media == "application/openmetrics-text":
			return underscored, openUnder, true
		case media == "text/plain" && strings.Contains(params, "version=1.0.0"):
			return plain, text100, false
		case media == "text/plain":
			return plain, textPlain, false
		}
	}
	return plain, textPlain, false
}

// stampOf is an explicit timestamp: milliseconds in the text format, seconds in OpenMetrics.
func stampOf(t time.Time, openMetrics bool) []byte {
	b := []byte{' '}
	if openMetrics {
		return strconv.AppendFloat(b, float64(t.UnixMilli())/1000, 'f', 3, 64)
	}
	return strconv.AppendInt(b, t.UnixMilli(), 10)
}

// duplicate repeats the last sample with another value.
func duplicate(b []byte) []byte {
	end := len(bytes.TrimRight(b, "\n"))
	start := bytes.LastIndexByte(b[:end], '\n') + 1
	line := slices.Clone(b[start:end])
	if sp := bytes.LastIndexByte(line, ' '); sp > 0 && line[0] != '#' {
		b = append(append(b, line[:sp]...), " 12345\n"...)
	}
	return b
}

// malform cuts one sample line in its label set.
func malform(b []byte) []byte {
	i := bytes.IndexByte(b, '{')
	if i < 0 {
		return append(b, "sglang:broken{model_name=\"x 1.0\n"...)
	}
	end := bytes.IndexByte(b[i:], '\n')
	return append(b[:i+9:i+9], b[i+end:]...)
}

// aggregated is the answer of a router's /engine_metrics.
func (t *target) aggregated() ([]byte, string, int) {
	var up []*registry
	for _, v := range t.views {
		if v.alive() {
			up = append(up, v.reg)
		}
	}
	if len(up) == 0 {
		return []byte("All backend requests failed"), routerText, 500
	}
	b, ok := aggregate(t.body[:0], up, t.member.front.fills())
	t.body = b
	if !ok {
		return b, routerText, 500
	}
	return b, routerText, 200
}

// forget numbers the series again; used when their labels change.
func (t *target) forget() {
	t.series = nil
	for _, v := range t.views {
		v.base = nil
	}
}

// number gives every metric that has none yet its place among the target's series.
func (t *target) number() {
	for _, v := range t.views {
		for i := len(v.base); i < len(v.reg.metrics); i++ {
			m := v.reg.metrics[i]
			v.base = append(v.base, len(t.series))
			for _, p := range m.parts(pythonSingle, plain) {
				ls := m.wireLabels(v.reg.dialect, v.style, v.reg.worker, "")
				if p.le != "" {
					ls = ls.with("le", p.le)
				}
				pairs := make([][2]string, 0, len(ls)+1)
				pairs = append(pairs, [2]string{"__name__", wire(m.family.name, v.style) + p.suffix})
				for _, l := range ls.with() {
					pairs = append(pairs, [2]string{l.name, l.value})
				}
				t.series = append(t.series, pairs)
			}
		}
	}
}

// Series lists the label sets of a target's series, __name__ first and the rest in order. A series
// keeps its number; a restarted engine adds some. Names are spelled as on the wire; le is written as
// Prometheus 3 stores it ("1.0"). The result must not be changed.
func (f *Fleet) Series(name string) [][][2]string {
	t := f.targetOf[name]
	if t == nil {
		return nil
	}
	t.number()
	return t.series
}

// Samples hands out the values that all targets would expose now, without rendering text: the series'
// number in Series and its value. Targets that do not answer, and series not yet written, are left
// out; so are all of a router's /engine_metrics when its aggregation would fail.
func (f *Fleet) Samples(emit func(target string, series int, v float64)) {
	for _, t := range f.targets {
		_, _, status := f.state(t)
		if status != 200 {
			continue
		}
		t.number()
		for _, v := range t.views {
			if !v.alive() {
				continue
			}
			for i, m := range v.reg.metrics {
				if !m.present {
					continue
				}
				at := v.base[i]
				switch m.family.typ {
				case signal.Histogram:
					total := 0.0
					for j, n := range m.buckets {
						total += n
						emit(t.Name, at+j, total)
					}
					emit(t.Name, at+len(m.buckets), m.count)
					emit(t.Name, at+len(m.buckets)+1, m.value)
				case signal.Summary:
					emit(t.Name, at, m.count)
					emit(t.Name, at+1, m.value)
				default:
					emit(t.Name, at, m.value)
				}
			}
		}
	}
}

// state tells whether a target gives samples now: the status of its answer, 204 for an answer without any.
func (f *Fleet) state(t *target) (up bool, reason string, status int) {
	m := t.member
	switch {
	case m.down():
		return false, "connection refused", refusedState
	case m.wire.notFound:
		return false, "404", 404
	case m.wire.empty, m.wire.html, m.wire.badLine:
		return true, "no samples", 204
	}
	if t.Path == engineMetrics {
		var up []*registry
		for _, v := range t.views {
			if v.alive() {
				up = append(up, v.reg)
			}
		}
		if len(up) == 0 || !t.member.front.fills() && !agree(up) {
			return false, "aggregation failed", 500
		}
	}
	return true, "", 200
}
