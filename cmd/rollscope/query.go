package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"
)

// window is the time range that a command looks at.
type window struct {
	since, start, end, step string
}

func (w *window) flags(cmd *kingpin.CmdClause, since string) {
	w.rangeFlags(cmd, since)
	cmd.Flag("step", "Distance of points; default a 240th of the window.").StringVar(&w.step)
}

func (w *window) rangeFlags(cmd *kingpin.CmdClause, since string) {
	cmd.Flag("since", "Look back this far from --end, as 90s, 15m, 1h, 7d.").Default(since).StringVar(&w.since)
	cmd.Flag("start", "Begin at this time (RFC 3339 or unix seconds) instead of --since.").StringVar(&w.start)
	cmd.Flag("end", "End at this time; default now, or the last sample of a directory.").StringVar(&w.end)
}

// resolve turns the flags into times. last is what "now" means: of an archive its last sample.
func (w *window) resolve(last time.Time) (start, end time.Time, step time.Duration, err error) {
	end = last
	if w.end != "" {
		if end, err = parseTime(w.end); err != nil {
			return start, end, 0, badInput("--end: %w", err)
		}
	}
	since := w.since
	if since == "" {
		since = "1h"
	}
	d, err := model.ParseDuration(since)
	if err != nil {
		return start, end, 0, badInput("--since %q is not a duration: write 90s, 15m, 1h or 7d", w.since)
	}
	start = end.Add(-time.Duration(d))
	if w.start != "" {
		if start, err = parseTime(w.start); err != nil {
			return start, end, 0, badInput("--start: %w", err)
		}
	}
	if !start.Before(end) {
		return start, end, 0, badInput("the window is empty: it starts at %s and ends at %s", start.UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339))
	}
	step = max(end.Sub(start)/240, time.Second).Truncate(time.Second)
	if w.step != "" {
		d, err := model.ParseDuration(w.step)
		if err != nil || d <= 0 {
			return start, end, 0, badInput("--step %q is not a duration above zero: write 15s or 5m", w.step)
		}
		step = time.Duration(d)
	}
	return start, end, step, nil
}

func parseTime(s string) (time.Time, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(f) && math.Abs(f) < 1e11 {
		sec, frac := math.Modf(f)
		return time.Unix(int64(sec), int64(frac*1e9)).UTC(), nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, fmt.Errorf("%q is not a time: write 2026-05-28T11:00:00Z or unix seconds", s)
	}
	return t.UTC(), nil
}

type queryCmd struct {
	*env
	source
	window
	expr   string
	format string
}

func addQuery(a *kingpin.Application, e *env) {
	c := &queryCmd{env: e}
	cmd := a.Command("query", "PromQL from a shell, of a running server or of a data directory.").HelpLong(`
Without --since or --start it asks for one point in time. Any spelling of a metric works.
  rollscope query 'sum(rate(sglang:realtime_tokens_total{mode="decode"}[1m]))'
  rollscope query --since 1h --step 15s --format csv sglang:num_queue_reqs > queue.csv
  rollscope query --dir /runs/7/tsdb --since 1h 'max(sglang:token_usage)'
`)
	c.source.flags(cmd)
	c.window.flags(cmd, "")
	cmd.Flag("format", "Form of the answer.").Default("table").EnumVar(&c.format, "table", "json", "csv")
	cmd.Arg("expr", "PromQL expression.").Required().StringVar(&c.expr)
	cmd.Action(func(*kingpin.ParseContext) error { return c.run() })
}

// promAnswer is the answer of Prometheus's query API.
type promAnswer struct {
	Data struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
	Warnings []string `json:"warnings"`
	Infos    []string `json:"infos"`
}

// promSeries is one series of it. A point is [unix seconds, "value"].
type promSeries struct {
	Metric map[string]string `json:"metric"`
	Value  *[2]any           `json:"value"`
	Values [][2]any          `json:"values"`
}

func (c *queryCmd) run() error {
	cl, err := c.source.open(c.ctx, c.env)
	if err != nil {
		return err
	}
	defer cl.close()
	last, err := cl.lastTime(c.env)
	if err != nil {
		return err
	}
	params, path := url.Values{"query": {c.expr}}, "/api/v1/query"
	if c.since != "" || c.start != "" || c.step != "" {
		start, end, step, err := c.resolve(last)
		if err != nil {
			return err
		}
		path = "/api/v1/query_range"
		params.Set("start", unix(start))
		params.Set("end", unix(end))
		params.Set("step", strconv.FormatFloat(step.Seconds(), 'f', -1, 64))
	} else {
		at := last
		if c.end != "" {
			if at, err = parseTime(c.end); err != nil {
				return badInput("--end: %w", err)
			}
		}
		params.Set("time", unix(at))
	}
	var raw json.RawMessage
	if err := cl.get(c.ctx, path, params, &raw); err != nil {
		return err
	}
	var ans promAnswer
	if err := json.Unmarshal(raw, &ans); err != nil {
		return unknown(fmt.Errorf("the answer is not Prometheus's: %w", err))
	}
	for _, w := range append(ans.Warnings, ans.Infos...) {
		fmt.Fprintln(c.err, "warning:", w)
	}
	if c.format == "json" {
		_, err := fmt.Fprintf(c.out, "%s\n", raw)
		return err
	}
	series, err := ans.series()
	if err != nil {
		return unknown(err)
	}
	if c.format == "csv" {
		return c.csv(series)
	}
	return c.table(series)
}

// lastTime is what "now" means for the source: of an archive the time of its last sample.
func (c *client) lastTime(e *env) (time.Time, error) {
	var status struct {
		Data struct {
			Mode string
			To   *string
		}
	}
	err := c.get(e.ctx, "/api/rollscope/v1/status", nil, &status)
	if err != nil || status.Data.Mode != "archive" || status.Data.To == nil {
		// A plain Prometheus has no such path; one that is away will say so when it is asked the question.
		return time.Now(), nil
	}
	t, err := time.Parse(time.RFC3339Nano, *status.Data.To)
	if err != nil {
		return t, unknown(fmt.Errorf("the archive's end %q is not a time: %w", *status.Data.To, err))
	}
	return t, nil
}

func unix(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1e3, 'f', 3, 64) }

func (a *promAnswer) series() ([]promSeries, error) {
	switch a.Data.ResultType {
	case "matrix", "vector":
		var s []promSeries
		if err := json.Unmarshal(a.Data.Result, &s); err != nil {
			return nil, fmt.Errorf("reading the answer: %w", err)
		}
		for i := range s {
			if s[i].Value != nil {
				s[i].Values = [][2]any{*s[i].Value}
			}
		}
		return s, nil
	case "scalar", "string":
		var v [2]any
		if err := json.Unmarshal(a.Data.Result, &v); err != nil {
			return nil, fmt.Errorf("reading the answer: %w", err)
		}
		return []promSeries{{Values: [][2]any{v}}}, nil
	}
	return nil, fmt.Errorf("the answer has the unknown type %q", a.Data.ResultType)
}

func point(p [2]any) (time.Time, string) {
	sec, _ := p[0].(float64)
	value, _ := p[1].(string)
	return time.UnixMilli(int64(math.Round(sec * 1e3))).UTC(), value
}

// name writes labels as PromQL does, sorted.
func (s promSeries) name() string {
	keys := make([]string, 0, len(s.Metric))
	for k := range s.Metric {
		if k != "__name__" {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for i, k := range keys {
		keys[i] = k + "=" + strconv.Quote(s.Metric[k])
	}
	if len(keys) == 0 && s.Metric["__name__"] != "" {
		return s.Metric["__name__"]
	}
	return s.Metric["__name__"] + "{" + strings.Join(keys, ", ") + "}"
}

// csv writes one row a point: time, value, then each label in a column of its own.
func (c *queryCmd) csv(series []promSeries) error {
	var cols []string
	for _, s := range series {
		for k := range s.Metric {
			if !slices.Contains(cols, k) {
				cols = append(cols, k)
			}
		}
	}
	sort.Strings(cols)
	w := csv.NewWriter(c.out)
	_ = w.Write(append([]string{"time", "value"}, cols...))
	for _, s := range series {
		for _, p := range s.Values {
			t, v := point(p)
			row := []string{t.Format("2006-01-02T15:04:05.000Z"), v}
			for _, k := range cols {
				row = append(row, s.Metric[k])
			}
			_ = w.Write(row)
		}
	}
	w.Flush()
	return w.Error()
}

// table prints one line a series: its last value, and for a range also least, greatest and the curve.
func (c *queryCmd) table(series []promSeries) error {
	if len(series) == 0 {
		fmt.Fprintln(c.err, "no data: no series matches in this window")
		return nil
	}
	isRange := false
	for _, s := range series {
		isRange = isRange || len(s.Values) > 1
	}
	t := newTable(c.out)
	if isRange {
		t.head("SERIES", ">LAST", ">MIN", ">MAX", ">POINTS", "CURVE")
	} else {
		t.head("SERIES", ">VALUE", "AT")
	}
	for _, s := range series {
		if len(s.Values) == 0 {
			continue
		}
		at, last := point(s.Values[len(s.Values)-1])
		if !isRange {
			t.row(s.name(), number(last), at.Format(time.RFC3339))
			continue
		}
		lo, hi, vals := math.Inf(1), math.Inf(-1), make([]float64, 0, len(s.Values))
		for _, p := range s.Values {
			_, v := point(p)
			f, err := strconv.ParseFloat(v, 64)
			if err != nil {
				f = math.NaN()
			}
			vals = append(vals, f)
			if !math.IsNaN(f) {
				lo, hi = min(lo, f), max(hi, f)
			}
		}
		if lo > hi { // every point was NaN
			t.row(s.name(), "idle", "–", "–", strconv.Itoa(len(vals)), "")
			continue
		}
		t.row(s.name(), number(last), formatFloat(lo), formatFloat(hi), strconv.Itoa(len(vals)), sparkline(vals, 24))
	}
	return t.flush()
}
