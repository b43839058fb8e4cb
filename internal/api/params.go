package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// What the lists and the charts of the API are bounded to.
const (
	maxLimit     = 10000 // of a list, and the default: the lists are short
	maxPoints    = 11000 // of one line, as in Prometheus
	defaultRange = time.Hour
)

// timeForms says in errors what a time may look like.
const timeForms = "RFC 3339 (2026-01-02T15:04:05Z), UNIX seconds (1767366245.5), now, or now-DURATION (now-1h30m)"

// badParameter is the error of a parameter that cannot be used; form says what can.
func badParameter(name, value, problem, form string) *Error {
	return &Error{
		Code:    "bad_parameter",
		Message: fmt.Sprintf("parameter %s=%q %s", name, value, problem),
		Where:   name,
		Hint:    "allowed: " + form,
	}
}

// params are the query parameters of one request. The first problem is kept in err, so that a handler
// reads all it needs and looks once.
type params struct {
	values url.Values
	now    time.Time
	err    *Error
}

func (a *API) params(r *http.Request, known ...string) *params {
	p := &params{values: r.URL.Query(), now: a.clock(r.Context())}
	for name := range p.values {
		if !slices.Contains(known, name) {
			slices.Sort(known)
			p.fail(badParameter(name, p.values.Get(name), "is not known here", strings.Join(known, ", ")))
			break
		}
	}
	return p
}

func (p *params) fail(e *Error) {
	if p.err == nil {
		p.err = e
	}
}

func (p *params) text(name string) string { return p.values.Get(name) }

// oneOf returns the parameter, or fallback without it.
func (p *params) oneOf(name, fallback string, allowed ...string) string {
	v := p.values.Get(name)
	if v == "" {
		return fallback
	}
	if !slices.Contains(allowed, v) {
		p.fail(badParameter(name, v, "is none of the allowed", strings.Join(allowed, ", ")))
	}
	return v
}

// window reads from and to. Without them it is the last hour.
func (p *params) window() (from, to time.Time) {
	to = p.time("to", p.now)
	from = p.time("from", to.Add(-defaultRange))
	if p.err == nil && !from.Before(to) {
		p.fail(badParameter("from", p.values.Get("from"), "is not before to="+stamp(to), timeForms))
	}
	return from, to
}

func (p *params) time(name string, fallback time.Time) time.Time {
	v := p.values.Get(name)
	if v == "" {
		return fallback
	}
	t, err := parseTime(v, p.now)
	if err != nil {
		p.fail(badParameter(name, v, "is not a time: "+err.Error(), timeForms))
	}
	return t
}

// step reads step; without it a line has about 240 points.
func (p *params) step(from, to time.Time) time.Duration {
	v := p.values.Get("step")
	if v == "" {
		return defaultStep(to.Sub(from), 240)
	}
	const form = "seconds (15, 0.5) or a duration (15s, 1m30s), at least 1s"
	step, err := parseDuration(v)
	switch {
	case err != nil:
		p.fail(badParameter("step", v, "is not a duration", form))
	case step < time.Second:
		p.fail(badParameter("step", v, "is too short", form))
	case to.Sub(from)/step > maxPoints:
		p.fail(badParameter("step", v, fmt.Sprintf("gives more than %d points from %s to %s", maxPoints, stamp(from), stamp(to)),
			"at least "+(to.Sub(from)/maxPoints+time.Second).Truncate(time.Second).String()+" for this range"))
	}
	return step
}

// defaultStep is the shortest round step of which n cover d.
func defaultStep(d time.Duration, n int) time.Duration {
	for _, s := range []int{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200} {
		step := time.Duration(s) * time.Second
		if d/step <= time.Duration(n) {
			return step
		}
	}
	return 24 * time.Hour
}

// quantiles reads a list such as 0.5,0.99. Without it, fallback.
func (p *params) quantiles(name string, fallback ...float64) []float64 {
	v := p.values.Get(name)
	if v == "" {
		return fallback
	}
	var out []float64
	for part := range strings.SplitSeq(v, ",") {
		q, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || !(q >= 0 && q <= 1) {
			p.fail(badParameter(name, v, fmt.Sprintf("has %q, which is no quantile", part), "numbers from 0 to 1, with commas (0.5,0.99)"))
			return fallback
		}
		out = append(out, q)
	}
	if len(out) > 10 {
		p.fail(badParameter(name, v, "asks for too many", "at most 10"))
	}
	return out
}

// limit reads limit.
func (p *params) limit() int {
	v := p.values.Get("limit")
	if v == "" {
		return maxLimit
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > maxLimit {
		p.fail(badParameter("limit", v, "is out of range", fmt.Sprintf("a whole number from 1 to %d", maxLimit)))
		return maxLimit
	}
	return n
}

// page cuts a list to limit and after; key names an item. next is what to pass as after to go on, "" at the end.
func page[T any](p *params, items []T, key func(T) string) (cut []T, next string) {
	limit := p.limit()
	if after := p.values.Get("after"); after != "" {
		i := slices.IndexFunc(items, func(t T) bool { return key(t) == after })
		if i < 0 {
			p.fail(badParameter("after", after, "names nothing in this list", "the next of the answer before; leave it out to start again"))
			return nil, ""
		}
		items = items[i+1:]
	}
	if len(items) <= limit {
		return items, ""
	}
	return items[:limit], key(items[limit-1])
}

// parseTime reads one of timeForms.
func parseTime(s string, now time.Time) (time.Time, error) {
	if rest, ok := strings.CutPrefix(s, "now"); ok {
		if rest == "" {
			return now, nil
		}
		// In a query string a plus sign that was not escaped arrives as a space.
		if rest[0] != '-' && rest[0] != '+' && rest[0] != ' ' {
			return now, fmt.Errorf("after now comes + or - and a duration")
		}
		d, err := model.ParseDuration(rest[1:])
		if err != nil {
			return now, fmt.Errorf("%q is no duration", rest[1:])
		}
		if rest[0] == '-' {
			return now.Add(-time.Duration(d)), nil
		}
		return now.Add(time.Duration(d)), nil
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		if !finite(f) || f < 0 || f > 253402300799 { // year 9999
			return now, fmt.Errorf("out of range")
		}
		sec := int64(f)
		return time.Unix(sec, int64((f-float64(sec))*1e9)).UTC(), nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return now, fmt.Errorf("none of the forms fits")
	}
	return t.UTC(), nil
}

// parseDuration reads seconds or Prometheus's form of a duration.
func parseDuration(s string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		if !finite(f) || f < 0 || f > 1e9 {
			return 0, fmt.Errorf("out of range")
		}
		return time.Duration(f * float64(time.Second)), nil
	}
	d, err := model.ParseDuration(s)
	return time.Duration(d), err
}
