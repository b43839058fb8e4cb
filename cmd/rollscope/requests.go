package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/api"
	"github.com/rollscope/rollscope/internal/requeststore"
)

type requestsCmd struct {
	*env
	source
	window
	filter              []string
	by, sort, ttft, itl string
	id                  string
	limit               int
	ascending, asJSON   bool
}

func addRequests(a *kingpin.Application, e *env) {
	c := &requestsCmd{env: e}
	cmd := a.Command("requests", "Requests by filter, slowest first, or summed up by engine, model, step.").HelpLong(`
All terms of the filter must hold; quote it for the shell.
  rollscope requests 'step:40 ttft>5s'
  rollscope requests 'step:40 ttft>5s' --by engine
  rollscope requests --by model --ttft 2s --itl 50ms --since 24h
  rollscope requests --dir /runs/7/tsdb 'outcome:error -finish:abort'
  rollscope requests --id r3f0c92b1aa57d0e4c611

A filter that begins with a minus stands behind two: rollscope requests -- '-outcome:ok'
`)
	c.source.flags(cmd)
	c.window.rangeFlags(cmd, "")
	cmd.Flag("by", "Sum up, one line for each of these: "+strings.Join(requeststore.Groups, ", ")+".").EnumVar(&c.by, requeststore.Groups...)
	cmd.Flag("ttft", "A good request has its first token within this: 2s, 500ms. Sums up.").PlaceHolder("TIME").StringVar(&c.ttft)
	cmd.Flag("itl", "A good request has this between two tokens, on the mean: 50ms. Sums up.").PlaceHolder("TIME").StringVar(&c.itl)
	cmd.Flag("sort", "Greatest first by this: e2e, ttft, itl, queue, completion_tokens, start and other numbers.").Default("e2e").StringVar(&c.sort)
	cmd.Flag("ascending", "Least first.").BoolVar(&c.ascending)
	cmd.Flag("limit", "Rows at most.").Default("20").IntVar(&c.limit)
	cmd.Flag("id", "One request, with who said what of it.").PlaceHolder("ID").StringVar(&c.id)
	cmd.Flag("json", "The answer of the API as JSON.").BoolVar(&c.asJSON)
	cmd.Arg("filter", "Terms such as step:40 ttft>5s engine:10.0.0.1 outcome:error; docs/requests.md has them all.").StringsVar(&c.filter)
	cmd.Action(func(*kingpin.ParseContext) error { return c.run() })
}

const requestsPath = "/api/rollscope/v1/requests"

func (c *requestsCmd) run() error {
	if c.limit < 1 {
		return badInput("--limit %d: write 1 or more", c.limit)
	}
	cl, err := c.source.open(c.ctx, c.env)
	if err != nil {
		return err
	}
	defer cl.close()
	if c.id != "" {
		return c.one(cl)
	}
	params, span, err := c.params(cl)
	if err != nil {
		return err
	}
	if c.by != "" || c.ttft != "" || c.itl != "" {
		return c.sumUp(cl, params, span)
	}
	return c.list(cl, params, span)
}

// params are the range and the filter, and the range in words. Without --since and --start it is the last
// hour of a server that records, and all that a finished record has.
func (c *requestsCmd) params(cl *client) (_ url.Values, span string, _ error) {
	var status api.Envelope[api.Status]
	if err := cl.get(c.ctx, "/api/rollscope/v1/status", nil, &status); err != nil {
		var refused *apiError
		if errors.As(err, &refused) && refused.status == 404 {
			return nil, "", unknown(errors.New("this server is not rollscope: requests are read over its own API"))
		}
		return nil, "", err
	}
	last := time.Now()
	archive := status.Data.Mode == string(api.ModeArchive)
	if archive && status.Data.To != nil {
		if t, err := time.Parse(time.RFC3339Nano, *status.Data.To); err == nil {
			last = t
		}
	}
	p := url.Values{"filter": {strings.Join(c.filter, " ")}}
	if archive && c.since == "" && c.start == "" && c.end == "" {
		p.Set("from", "0")
		p.Set("to", time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339)) // clocks that were ahead
		return p, "in the whole record", nil
	}
	from, to, _, err := c.resolve(last)
	if err != nil {
		return nil, "", err
	}
	p.Set("from", from.UTC().Format(time.RFC3339Nano))
	p.Set("to", to.UTC().Format(time.RFC3339Nano))
	return p, fmt.Sprintf("from %s to %s", from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339)), nil
}

// list prints rows, a page of the API after the other.
func (c *requestsCmd) list(cl *client, params url.Values, span string) error {
	params.Set("sort", c.sort)
	params.Set("desc", strconv.FormatBool(!c.ascending))
	var all api.Requests
	for {
		params.Set("limit", strconv.Itoa(min(c.limit-len(all.Requests), 1000)))
		var page api.Envelope[api.Requests]
		if err := cl.get(c.ctx, requestsPath, params, &page); err != nil {
			return err
		}
		c.warn(page.Warnings)
		all.Total = cmp.Or(all.Total, page.Data.Total)
		all.Requests = append(all.Requests, page.Data.Requests...)
		if page.Next == "" || len(page.Data.Requests) == 0 || len(all.Requests) >= c.limit {
			break
		}
		params.Set("after", page.Next)
	}
	if c.asJSON {
		return c.json(all)
	}
	if len(all.Requests) == 0 {
		c.none(span)
		return nil
	}
	has := func(f func(r *api.RequestRow) bool) bool {
		return slices.ContainsFunc(all.Requests, func(r api.RequestRow) bool { return f(&r) })
	}
	columns := []struct {
		head string
		on   bool
		cell func(r *api.RequestRow) string
	}{
		{"START", true, func(r *api.RequestRow) string { return clock(r.Start) }},
		{">TTFT s", true, func(r *api.RequestRow) string { return optional(r.TTFT) }},
		{">ITL s", true, func(r *api.RequestRow) string { return optional(r.ITL) }},
		{">E2E s", true, func(r *api.RequestRow) string { return optional(r.E2E) }},
		{">QUEUE s", true, func(r *api.RequestRow) string { return optional(r.Queue) }},
		{">PROMPT", true, func(r *api.RequestRow) string { return optional(r.Prompt) }},
		{">TOKENS", true, func(r *api.RequestRow) string { return optional(r.Completion) }},
		{"OUTCOME", true, func(r *api.RequestRow) string { return cmp.Or(r.Outcome, "unknown") }},
		{"ENGINE", true, engineCell},
		{"MODEL", c.modelsDiffer(all.Requests), func(r *api.RequestRow) string { return r.Model }},
		{"SAMPLE", has(func(r *api.RequestRow) bool { return r.Step != nil }), sampleCell},
		{"SEEN BY", true, func(r *api.RequestRow) string { return strings.Join(r.Sources, ",") }},
		{"MARKS", has(func(r *api.RequestRow) bool { return len(r.Flags) > 0 || r.Probable > 0 }), marksCell},
		{"RID", has(func(r *api.RequestRow) bool { return r.RID != "" }), func(r *api.RequestRow) string { return r.RID }},
		{"ID", true, func(r *api.RequestRow) string { return r.ID }},
	}
	t := newTable(c.out)
	var heads []string
	for _, col := range columns {
		if col.on {
			heads = append(heads, col.head)
		}
	}
	t.head(heads...)
	for i := range all.Requests {
		var cells []string
		for _, col := range columns {
			if col.on {
				cells = append(cells, printable(col.cell(&all.Requests[i])))
			}
		}
		t.row(cells...)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if all.Total != nil && *all.Total > int64(len(all.Requests)) {
		fmt.Fprintf(c.err, "%d of %d requests %s; --limit shows more\n", len(all.Requests), *all.Total, span)
	}
	return nil
}

func (c *requestsCmd) none(span string) {
	what := "no requests"
	if len(c.filter) > 0 {
		what = fmt.Sprintf("no requests that %q lets through", strings.Join(c.filter, " "))
	}
	hint := "; --since looks further back"
	if c.since == "" && c.start == "" && strings.Contains(span, "whole") {
		hint = ""
	}
	fmt.Fprintf(c.err, "%s %s%s\n", what, span, hint)
}

func (c *requestsCmd) warn(list []api.Warning) {
	for _, w := range list {
		fmt.Fprintln(c.err, "warning:", w.Message)
	}
}

func (c *requestsCmd) json(v any) error {
	enc := json.NewEncoder(c.out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (c *requestsCmd) modelsDiffer(rows []api.RequestRow) bool {
	return slices.ContainsFunc(rows, func(r api.RequestRow) bool { return r.Model != rows[0].Model })
}

// engineCell names the engines of a pair in the order in which the request goes through them.
func engineCell(r *api.RequestRow) string {
	switch {
	case r.Prefill != "" && r.Engine != "":
		return r.Prefill + "→" + r.Engine
	case r.Prefill != "":
		return r.Prefill + "→?"
	}
	return cmp.Or(r.Engine, "unknown")
}

func sampleCell(r *api.RequestRow) string {
	if r.Step == nil {
		return ""
	}
	s := r.Run + "/" + r.Kind + "/" + strconv.FormatInt(*r.Step, 10)
	if r.Sample != nil {
		s += "/" + strconv.FormatInt(*r.Sample, 10)
	}
	return s
}

func marksCell(r *api.RequestRow) string {
	marks := slices.Clone(r.Flags)
	if r.Probable > 0 {
		marks = append(marks, fmt.Sprintf("probable:%d", r.Probable))
	}
	return strings.Join(marks, ",")
}

// clock is a time to the millisecond.
func clock(text string) string {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// optional is a number or a dash where nobody said it.
func optional(v *float64) string {
	if v == nil {
		return "–"
	}
	return formatFloat(*v)
}

// printable keeps what others sent from driving the terminal.
func printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return '�'
	}, s)
}

// summed are the latencies of a summary's table; the others are in the JSON.
var summed = [...]struct{ key, head string }{{"ttft", "TTFT"}, {"itl", "ITL"}, {"e2e", "E2E"}, {"queue", "QUEUE"}}

// sumUp prints a line for all requests and one for each group.
func (c *requestsCmd) sumUp(cl *client, params url.Values, span string) error {
	if c.by != "" {
		params.Set("by", c.by)
	}
	for name, v := range map[string]string{"ttft": c.ttft, "itl": c.itl} {
		if v != "" {
			params.Set(name, v)
		}
	}
	var got api.Envelope[api.RequestSummary]
	if err := cl.get(c.ctx, requestsPath+"/summary", params, &got); err != nil {
		return err
	}
	c.warn(got.Warnings)
	if c.asJSON {
		return c.json(got.Data)
	}
	groups := got.Data.Groups
	if len(groups) == 0 || groups[0].Count == 0 {
		c.none(span)
		return nil
	}
	heads := []string{cmp.Or(strings.ToUpper(c.by), "REQUESTS"), ">COUNT", ">OK", ">ERROR", ">ABORTED", ">OTHER"}
	var columns []func(g *api.RequestGroup) string
	for _, s := range summed {
		if groups[0].Quantiles[s.key].Count == 0 {
			continue
		}
		heads = append(heads, ">"+s.head+" p50 s", ">p99 s")
		columns = append(columns, func(g *api.RequestGroup) string { return optional(g.Quantiles[s.key].P50) },
			func(g *api.RequestGroup) string { return optional(g.Quantiles[s.key].P99) })
		if slices.ContainsFunc(groups, func(g api.RequestGroup) bool { return g.Quantiles[s.key].Histogram != nil }) {
			heads = append(heads, ">histogram")
			columns = append(columns, func(g *api.RequestGroup) string { return estimate(g.Quantiles[s.key].Histogram) })
		}
	}
	if groups[0].Judged != nil {
		heads = append(heads, ">GOOD", ">JUDGED")
		columns = append(columns, func(g *api.RequestGroup) string { return share(g.Goodput) }, func(g *api.RequestGroup) string { return whole(g.Judged) })
		if groups[0].GoodRate != nil {
			heads = append(heads, ">good/s")
			columns = append(columns, func(g *api.RequestGroup) string { return optional(g.GoodRate) })
		}
	}
	t := newTable(c.out)
	t.head(heads...)
	for i := range groups {
		g := &groups[i]
		name := g.Name
		if i == 0 {
			name = "all"
		}
		ok, failed, aborted := g.Outcomes["ok"], g.Outcomes["error"], g.Outcomes["aborted"]
		cells := []string{printable(name), strconv.FormatInt(g.Count, 10), strconv.FormatInt(ok, 10), strconv.FormatInt(failed, 10), strconv.FormatInt(aborted, 10),
			strconv.FormatInt(g.Count-ok-failed-aborted, 10)}
		for _, cell := range columns {
			cells = append(cells, cell(g))
		}
		t.row(cells...)
	}
	return t.flush()
}

// estimate is a histogram's percentile: its state where there is no value, and at least how much where it
// lies above the last bound.
func estimate(n *api.Number) string {
	switch {
	case n == nil:
		return "–"
	case n.Value == nil:
		return string(n.State)
	case n.AtLeast:
		return "≥" + formatFloat(*n.Value)
	}
	return formatFloat(*n.Value)
}

func share(v *float64) string {
	if v == nil {
		return "–"
	}
	return strconv.FormatFloat(*v*100, 'f', 1, 64) + " %"
}

func whole(v *int64) string {
	if v == nil {
		return "–"
	}
	return strconv.FormatInt(*v, 10)
}

// one prints a request with each field's source and what others said of it.
func (c *requestsCmd) one(cl *client) error {
	if len(c.filter) > 0 {
		return badInput("--id is of one request: leave the filter out")
	}
	var got api.Envelope[api.RequestDetail]
	if err := cl.get(c.ctx, requestsPath+"/"+url.PathEscape(c.id), nil, &got); err != nil {
		return err
	}
	c.warn(got.Warnings)
	d := &got.Data
	if c.asJSON {
		return c.json(d)
	}
	state := "settled"
	if !d.Settled {
		state = "a source may say more"
	}
	fmt.Fprintf(c.out, "%s  %s  revision %d, %s\n", d.Request.ID, clock(d.Request.Start), d.Revision, state)
	for _, a := range d.Aliases {
		fmt.Fprintf(c.out, "  %s %s\n", a.Kind, printable(a.ID))
	}
	if len(d.Request.Flags) > 0 {
		fmt.Fprintf(c.out, "  marks: %s\n", strings.Join(d.Request.Flags, ", "))
	}
	fmt.Fprintln(c.out)
	t := newTable(c.out)
	t.head("FIELD", "VALUE", "UNIT", "FROM", "OTHERS SAID")
	for _, f := range d.Fields {
		var others []string
		for source, text := range f.Others {
			others = append(others, source+" "+text)
		}
		slices.Sort(others)
		t.row(f.Name, printable(cmp.Or(f.Value, "–")), f.Unit, f.From, printable(strings.Join(others, ", ")))
	}
	if d.Rest != nil {
		t.row("unattributed", formatFloat(*d.Rest), "s", "", "of e2e, in no phase")
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintln(c.out)
	for _, s := range d.Seen {
		fmt.Fprintf(c.out, "seen by %s  %s  %s\n", strings.Trim(s.Source+"/"+s.Role, "/"), clock(s.Start), printable(s.Engine))
	}
	for _, p := range d.Probable {
		fmt.Fprintf(c.out, "probably one with %s: %s\n", cmp.Or(p.ID, p.TraceID), printable(p.Why))
	}
	for _, r := range d.Links {
		fmt.Fprintf(c.out, "related %s: %s\n", r.ID, r.Why)
	}
	if d.Logs > 0 {
		fmt.Fprintf(c.out, "%d log records name it\n", d.Logs)
	}
	return nil
}
