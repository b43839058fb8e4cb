package sim

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/signal"
)

// dialect is how the client library of a program writes numbers and orders samples.
type dialect int

const (
	pythonMulti  dialect = iota // prometheus_client in multiprocess mode (SGLang): floats, sum first, no _created
	pythonSingle                // prometheus_client in one process (vLLM): floats, _created series
	rust                        // Rust programs (router, Dynamo): integers bare, le last
)

// style is a spelling of an exposition; which one arrives depends on who asks and through what.
type style int

const (
	plain       style = iota // text 0.0.4 and 1.0.0: names as the program has them
	underscored              // OpenMetrics, escaping=underscores: samples with '_', HELP and TYPE still with ':'
	utf8Names                // OpenMetrics, escaping=allow-utf-8
	routed                   // a router's /engine_metrics: every ':' is '_', worker_addr added, le last
	styles
)

// appendPython writes v as prometheus_client does: repr of a float, an exponent from 1e6 on.
func appendPython(dst []byte, v float64) []byte {
	if v == math.Trunc(v) && v > -1e6 && v < 1e6 {
		return append(strconv.AppendInt(dst, int64(v), 10), '.', '0')
	}
	switch {
	case math.IsNaN(v):
		return append(dst, "NaN"...)
	case math.IsInf(v, 1):
		return append(dst, "+Inf"...)
	case math.IsInf(v, -1):
		return append(dst, "-Inf"...)
	}
	at := len(dst)
	if a := math.Abs(v); v >= 1e6 || a < 1e-4 || a >= 1e16 {
		dst = strconv.AppendFloat(dst, v, 'e', -1, 64)
		// The library writes the exponent as "0" and the digits: 1.5e+010.
		if i := bytes.IndexByte(dst[at:], '+'); i >= 0 && v < 1e16 && v >= 1e10 {
			dst = append(dst, 0)
			copy(dst[at+i+2:], dst[at+i+1:])
			dst[at+i+1] = '0'
		}
		return dst
	}
	dst = strconv.AppendFloat(dst, v, 'f', -1, 64)
	if bytes.IndexByte(dst[at:], '.') < 0 {
		dst = append(dst, '.', '0')
	}
	return dst
}

// appendRust writes v as Rust's Display does: never an exponent, integers bare.
func appendRust(dst []byte, v float64) []byte {
	if v == math.Trunc(v) && v > -1e15 && v < 1e15 {
		return strconv.AppendInt(dst, int64(v), 10)
	}
	switch {
	case math.IsNaN(v):
		return append(dst, "NaN"...)
	case math.IsInf(v, 1):
		return append(dst, "+Inf"...)
	case math.IsInf(v, -1):
		return append(dst, "-Inf"...)
	}
	return strconv.AppendFloat(dst, v, 'f', -1, 64)
}

func (d dialect) appendValue(dst []byte, s style, v float64) []byte {
	if d == rust || s == routed {
		return appendRust(dst, v)
	}
	return appendPython(dst, v)
}

// escape writes a label value as the text formats want it.
func escape(v string) string {
	if !strings.ContainsAny(v, "\\\"\n") {
		return v
	}
	return strings.NewReplacer(`\`, `\\`, "\"", `\"`, "\n", `\n`).Replace(v)
}

// part is one sample of a metric: the suffix of its name and its extra label.
type part struct {
	suffix string
	le     string // "" without
}

// parts lists the samples of m in the order of the dialect and style.
func (m *metric) parts(d dialect, s style) []part {
	switch m.family.typ {
	case signal.Summary:
		return []part{{"_count", ""}, {"_sum", ""}}
	case signal.Histogram:
		bare := d == rust || s == routed
		out := make([]part, 0, len(m.buckets)+2)
		if d == pythonMulti && s != routed {
			out = append(out, part{"_sum", ""})
		}
		for _, b := range m.bounds {
			var le []byte
			if bare {
				le = appendRust(nil, b)
			} else {
				le = appendPython(nil, b)
			}
			out = append(out, part{"_bucket", string(le)})
		}
		out = append(out, part{"_bucket", "+Inf"})
		switch {
		case d == pythonMulti && s != routed:
			out = append(out, part{"_count", ""})
		case d == pythonSingle && s != routed:
			out = append(out, part{"_count", ""}, part{"_sum", ""})
		default:
			out = append(out, part{"_sum", ""}, part{"_count", ""})
		}
		return out
	}
	return []part{{"", ""}}
}

// wire returns the name of family f's samples (without suffix) in style s.
func wire(name string, s style) string {
	if s == underscored || s == routed {
		return strings.ReplaceAll(name, ":", "_")
	}
	return name
}

// wireLabels returns the labels of a sample in style s and dialect d, le in its place.
func (m *metric) wireLabels(d dialect, s style, worker, le string) labels {
	ls := m.labels
	if s == routed {
		out := make(labels, 0, len(ls)+2)
		for _, l := range ls {
			out = append(out, label{l.name, strings.ReplaceAll(l.value, ":", "_")})
		}
		out = append(out, label{"worker_addr", worker})
		if le != "" {
			out = append(out, label{"le", le})
		}
		return out
	}
	if le == "" {
		return ls
	}
	if d == rust {
		return append(append(make(labels, 0, len(ls)+1), ls...), label{"le", le})
	}
	return ls.with("le", le)
}

// text returns the heads of m's samples: everything up to the value.
func (m *metric) text(r *registry, s style) [][]byte {
	if m.heads[s] != nil {
		return m.heads[s]
	}
	ps := m.parts(r.dialect, s)
	heads := make([][]byte, len(ps))
	for i, p := range ps {
		var b []byte
		b = append(b, wire(m.family.name, s)...)
		b = append(b, p.suffix...)
		for j, l := range m.wireLabels(r.dialect, s, r.worker, p.le) {
			if j == 0 {
				b = append(b, '{')
			} else {
				b = append(b, ',')
			}
			b = append(b, l.name...)
			b = append(b, '=', '"')
			b = append(b, escape(l.value)...)
			b = append(b, '"')
		}
		if b[len(b)-1] == '"' {
			b = append(b, '}')
		}
		heads[i] = append(b, ' ')
	}
	m.heads[s] = heads
	return heads
}

// headText returns the HELP and TYPE lines of f.
func (f *family) headText(s style) []byte {
	if f.head[s] != nil {
		return f.head[s]
	}
	name, help := f.name, f.help
	switch s {
	case underscored, utf8Names:
		if f.typ == signal.Counter {
			name = strings.TrimSuffix(name, "_total")
		}
	case routed:
		name, help = wire(name, s), strings.ReplaceAll(help, ":", "_")
	}
	f.head[s] = []byte("# HELP " + name + " " + help + "\n# TYPE " + name + " " + string(f.typ) + "\n")
	return f.head[s]
}

// appendMetric writes the samples of m. stamp is an explicit timestamp with a leading space, or empty.
func (r *registry) appendMetric(dst []byte, m *metric, s style, stamp []byte) []byte {
	heads := m.text(r, s)
	line := func(i int, v float64) {
		dst = append(dst, heads[i]...)
		dst = r.dialect.appendValue(dst, s, v)
		dst = append(dst, stamp...)
		dst = append(dst, '\n')
	}
	switch m.family.typ {
	case signal.Summary:
		line(0, m.count)
		line(1, m.value)
	case signal.Histogram:
		i := 0
		sumFirst := r.dialect == pythonMulti && s != routed
		if sumFirst {
			line(0, m.value)
			i = 1
		}
		total := 0.0
		for _, n := range m.buckets {
			total += n
			line(i, total)
			i++
		}
		switch {
		case sumFirst:
			line(i, m.count)
		case r.dialect == pythonSingle && s != routed:
			line(i, m.count)
			line(i+1, m.value)
		default:
			line(i, m.value)
			line(i+1, m.count)
		}
	default:
		line(0, m.value)
	}
	return dst
}

// appendFamily writes what f exposes; nothing when no metric of it has been written yet.
func (r *registry) appendFamily(dst []byte, f *family, s style, stamp []byte) []byte {
	first := true
	for _, m := range f.metrics {
		if !m.present {
			continue
		}
		if first {
			dst = append(dst, f.headText(s)...)
			first = false
		}
		dst = r.appendMetric(dst, m, s, stamp)
	}
	return dst
}
