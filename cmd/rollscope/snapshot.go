package main

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/api"
)

var nan = math.NaN()

// sortEngines puts the worst of a column first; what has no value comes last.
func sortEngines(engines []api.Engine, col api.Column) {
	slices.SortStableFunc(engines, func(a, b api.Engine) int {
		x, y := a.Signals[col.Key].Value, b.Signals[col.Key].Value
		switch {
		case x == nil && y == nil:
			return 0
		case x == nil:
			return 1
		case y == nil:
			return -1
		case col.Higher:
			return cmp.Compare(*x, *y)
		}
		return cmp.Compare(*y, *x)
	})
}

type snapshotCmd struct {
	*env
	source
	window
	by, format, file string
}

func addSnapshot(a *kingpin.Application, e *env) {
	c := &snapshotCmd{env: e}
	cmd := a.Command("snapshot", "All signals of a window in one file, to lie beside a benchmark's result.").HelpLong(`
JSON holds every series and a summary of each; csv and table hold the summaries.
  rollscope snapshot --since 10m -o bench-7.json
  rollscope snapshot --start 2026-05-28T11:00:00Z --end 2026-05-28T11:05:00Z --by engine --format csv
`)
	c.source.flags(cmd)
	c.window.flags(cmd, "1h")
	cmd.Flag("by", "One line for the fleet, or for each engine, role or model.").Default("fleet").EnumVar(&c.by, "fleet", "engine", "role", "model")
	cmd.Flag("format", "json, csv or table.").Default("json").EnumVar(&c.format, "json", "csv", "table")
	cmd.Flag("output", "Write to FILE instead of standard output.").Short('o').PlaceHolder("FILE").StringVar(&c.file)
	cmd.Action(func(*kingpin.ParseContext) error { return c.run() })
}

// snapshotFile is the JSON form.
type snapshotFile struct {
	Rollscope string           `json:"rollscope"`
	From      string           `json:"from"`
	To        string           `json:"to"`
	Step      float64          `json:"step_seconds"`
	By        string           `json:"by"`
	Signals   []snapshotSignal `json:"signals"`
}

type snapshotSignal struct {
	api.SignalData
	State    api.State     `json:"state"`
	Warnings []api.Warning `json:"warnings"`
	Summary  []lineSummary `json:"summary"`
}

// lineSummary is what a line did in the window. Null where there was no value.
type lineSummary struct {
	Line   string   `json:"line"`
	Mean   *float64 `json:"mean"`
	Min    *float64 `json:"min"`
	Max    *float64 `json:"max"`
	Last   *float64 `json:"last"`
	Points int      `json:"points"` // steps with a value, of Steps
	Steps  int      `json:"steps"`
}

func (c *snapshotCmd) run() error {
	cl, err := c.source.open(c.ctx, c.env)
	if err != nil {
		return err
	}
	defer cl.close()
	last, err := cl.lastTime(c.env)
	if err != nil {
		return err
	}
	start, end, step, err := c.resolve(last)
	if err != nil {
		return err
	}
	var list api.Envelope[[]api.SignalInfo]
	if err := cl.get(c.ctx, "/api/rollscope/v1/signals", nil, &list); err != nil {
		return notRollscope(err)
	}
	out := snapshotFile{
		Rollscope: c.version, By: c.by, Step: step.Seconds(),
		From: start.UTC().Format(time.RFC3339Nano), To: end.UTC().Format(time.RFC3339Nano),
	}
	for _, s := range list.Data {
		params := url.Values{
			"from": {out.From}, "to": {out.To}, "by": {c.by},
			"step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
		}
		var data api.Envelope[api.SignalData]
		if err := cl.get(c.ctx, "/api/rollscope/v1/signals/"+url.PathEscape(s.ID), params, &data); err != nil {
			return fmt.Errorf("signal %s: %w", s.ID, err)
		}
		sig := snapshotSignal{SignalData: data.Data, State: data.State, Warnings: data.Warnings}
		for _, l := range data.Data.Lines {
			sig.Summary = append(sig.Summary, summarize(l))
		}
		out.Signals = append(out.Signals, sig)
	}

	w := c.out
	if c.file != "" {
		f, err := os.Create(c.file)
		if err != nil {
			return badInput("--output: %w", err)
		}
		defer f.Close()
		w = f
	}
	if err := c.write(w, out); err != nil {
		return fmt.Errorf("writing the snapshot: %w", err)
	}
	if c.file != "" {
		fmt.Fprintf(c.err, "%d signals from %s to %s written to %s\n", len(out.Signals), out.From, out.To, c.file)
	}
	return nil
}

func summarize(l api.Line) lineSummary {
	s := lineSummary{Line: l.Name, Steps: len(l.Values)}
	sum := 0.0
	for _, v := range l.Values {
		if v == nil {
			continue
		}
		s.Points++
		sum += *v
		if s.Min == nil || *v < *s.Min {
			s.Min = v
		}
		if s.Max == nil || *v > *s.Max {
			s.Max = v
		}
		s.Last = v
	}
	if s.Points > 0 {
		mean := sum / float64(s.Points)
		s.Mean = &mean
	}
	return s
}

func (c *snapshotCmd) write(w io.Writer, out snapshotFile) error {
	if c.format == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", " ")
		return enc.Encode(out)
	}
	cell := func(v *float64) string {
		if v == nil {
			return ""
		}
		if c.format == "table" {
			return formatFloat(*v)
		}
		return strconv.FormatFloat(*v, 'g', -1, 64)
	}
	head := []string{"signal", "line", "unit", "mean", "min", "max", "last", "points", "steps", "state"}
	var rows [][]string
	for _, s := range out.Signals {
		if len(s.Summary) == 0 {
			rows = append(rows, []string{s.ID, "", s.Unit, "", "", "", "", "0", "0", string(s.State)})
		}
		for _, l := range s.Summary {
			rows = append(rows, []string{s.ID, l.Line, s.Unit, cell(l.Mean), cell(l.Min), cell(l.Max), cell(l.Last),
				strconv.Itoa(l.Points), strconv.Itoa(l.Steps), string(s.State)})
		}
	}
	if c.format == "csv" {
		cw := csv.NewWriter(w)
		_ = cw.Write(head)
		_ = cw.WriteAll(rows)
		return cw.Error()
	}
	t := newTable(w)
	t.head("SIGNAL", "LINE", "UNIT", ">MEAN", ">MIN", ">MAX", ">LAST", ">POINTS", ">STEPS", "STATE")
	for _, r := range rows {
		t.row(r...)
	}
	return t.flush()
}
