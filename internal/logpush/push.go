// Package logpush takes log lines that shippers push: Loki's push API (Promtail, Grafana Alloy, Fluent Bit),
// Elasticsearch's bulk API (Vector, Filebeat, Logstash), lines of JSON, and syslog. The paths and parameters
// are those of VictoriaLogs, so a shipper that is set up for one needs only a new URL. Its entry point is
// [Handler].
package logpush

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/event"
)

// Entry is one pushed line. Its strings are its own.
type Entry struct {
	Time    int64  // ns since 1970 (UTC); 0: the shipper said none
	Line    string // as it was written
	Service string // what the shipper calls the program, "" for nothing
	Source  string // what tells one file or container from another; lines of one source are in order
	Fields  []event.Field
}

// Sink takes lines. It returns nil once they are kept; an error makes the shipper send them again.
type Sink func(ctx context.Context, batch []Entry) error

// Drop counts lines that were not kept.
type Drop struct {
	Source, Reason string
	Count          int64
}

// Source is one way in that was used.
type Source struct {
	Name  string // "loki", "elasticsearch", "jsonline", "syslog"
	Last  time.Time
	Lines int64
	Error string // the last one, "" once a request after it was good
}

// counts are what came in and what did not. It is safe for concurrent use.
type counts struct {
	mu      sync.Mutex
	sources map[string]*Source
	drops   map[[2]string]int64
}

func (c *counts) took(name string, n int, at time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sources[name]
	if s == nil {
		s = &Source{Name: name}
		c.sources[name] = s
	}
	if err != nil {
		s.Error = err.Error()
		return
	}
	s.Last, s.Error = at, ""
	s.Lines += int64(n)
}

func (c *counts) drop(source, reason string, n int) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drops[[2]string{source, reason}] += int64(n)
}

func (c *counts) list() (sources []Source, drops []Drop) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sources {
		sources = append(sources, *s)
	}
	for k, n := range c.drops {
		drops = append(drops, Drop{k[0], k[1], n})
	}
	slices.SortFunc(sources, func(a, b Source) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(drops, func(a, b Drop) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.Reason, b.Reason))
	})
	return sources, drops
}

// names of labels in which shippers leave what a program is called, best first.
var serviceLabels = []string{"service_name", "service.name", "service", "app", "app_name", "kubernetes.labels.app", "container", "kubernetes.container_name", "job", "hostname"}

// settle finds the service and the source of a line in its labels: the first n fields.
func (e *Entry) settle(n int) {
	labels := e.Fields[:min(n, len(e.Fields))]
	for _, name := range serviceLabels {
		if i := slices.IndexFunc(labels, func(f event.Field) bool { return f.Name == name }); i >= 0 {
			e.Service = labels[i].Value
			break
		}
	}
	var b strings.Builder
	for _, f := range labels {
		b.WriteString(f.Name)
		b.WriteByte('=')
		b.WriteString(f.Value)
		b.WriteByte(',')
	}
	e.Source = strings.TrimSuffix(b.String(), ",")
}

// parameters of a request, as VictoriaLogs has them: in the URL, or in headers (VL-Time-Field and so on).
type parameters struct {
	time, message, stream, ignore []string
	extra                         []event.Field
}

func readParameters(get func(name, header string) string) (parameters, error) {
	list := func(name, header string) []string {
		var out []string
		for s := range strings.SplitSeq(get(name, header), ",") {
			if s = strings.TrimSpace(s); s != "" {
				out = append(out, s)
			}
		}
		return out
	}
	p := parameters{
		time: list("_time_field", "VL-Time-Field"), message: list("_msg_field", "VL-Msg-Field"),
		stream: list("_stream_fields", "VL-Stream-Fields"), ignore: list("ignore_fields", "VL-Ignore-Fields"),
	}
	for _, s := range list("extra_fields", "VL-Extra-Fields") {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" || value == "" {
			return p, fmt.Errorf("extra_fields: %q is not NAME=VALUE", s)
		}
		p.extra = append(p.extra, event.Field{Name: name, Value: value})
	}
	return p, nil
}

// entry makes an entry of an object's fields: time and message are taken out, ignored ones left out.
func (p *parameters) entry(fields []event.Field, fallbackTime []string, fallbackMessage []string) (Entry, error) {
	var e Entry
	times, messages := p.time, p.message
	if times == nil {
		times = fallbackTime
	}
	if messages == nil {
		messages = fallbackMessage
	}
	take := func(names []string) string {
		for _, n := range names {
			for i := range fields {
				if fields[i].Name == n && fields[i].Value != "" {
					v := fields[i].Value
					fields = slices.Delete(fields, i, i+1)
					return v
				}
			}
		}
		return ""
	}
	if t := take(times); t != "" && t != "0" {
		ns, err := parseTime(t)
		if err != nil {
			return e, err
		}
		e.Time = ns
	}
	e.Line = take(messages)
	fields = append(fields, p.extra...)
	if len(p.ignore) > 0 {
		fields = slices.DeleteFunc(fields, func(f event.Field) bool { return slices.Contains(p.ignore, f.Name) })
	}
	// The fields that make a stream come first: they say where a line is from.
	rank := func(f event.Field) int {
		if slices.Contains(p.stream, f.Name) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(fields, func(a, b event.Field) int { return rank(a) - rank(b) })
	labels := 0
	for labels < len(fields) && rank(fields[labels]) == 0 {
		labels++
	}
	e.Fields = fields
	if labels == 0 {
		e.settle(len(fields))
		e.Source = e.Service
	} else {
		e.settle(labels)
	}
	return e, nil
}

// parseTime reads what shippers write: RFC 3339, or a number of seconds, milliseconds, microseconds or
// nanoseconds since 1970, told apart by its size.
func parseTime(s string) (int64, error) {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return inRange(t)
	}
	for _, layout := range []string{"2006-01-02T15:04:05.999999999Z0700", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil { // without a zone it is UTC
			return inRange(t)
		}
	}
	whole, fraction, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is no time: write RFC 3339, or a number since 1970", s)
	}
	scale := int64(1)
	switch {
	case n < 1e11:
		scale = 1e9
	case n < 1e14:
		scale = 1e6
	case n < 1e17:
		scale = 1e3
	}
	if n > (1<<63-1)/scale {
		return 0, fmt.Errorf("%q is no time: it is too far away", s)
	}
	ns := n * scale
	if fraction != "" && scale > 1 {
		f, err := strconv.ParseFloat("0."+fraction, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is no time: write RFC 3339, or a number since 1970", s)
		}
		ns += int64(f * float64(scale))
	}
	return ns, nil
}

func inRange(t time.Time) (int64, error) {
	if y := t.Year(); y < 1970 || y > 2261 {
		return 0, fmt.Errorf("%s is no time that can be kept: the year must be in 1970 to 2261", t.Format(time.RFC3339))
	}
	return t.UnixNano(), nil
}

var errTooLong = errors.New("is longer than what one line may have (1 MiB)")
