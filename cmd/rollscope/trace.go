package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/term"

	"github.com/rollscope/rollscope/internal/api"
)

type traceCmd struct {
	*env
	source
	id     string
	all    bool
	asJSON bool
	width  int
	lines  int
}

func addTrace(a *kingpin.Application, e *env) {
	c := &traceCmd{env: e}
	cmd := a.Command("trace", "One trace as a waterfall, with its phases and what is wrong with it.").HelpLong(`
ID is a trace id in any spelling (leading zeros left out, upper case, its low 64 bits), or the rid,
x-request-id, request id, bootstrap room or a span id of a request.
  rollscope trace fbb99bfc59174ccefa0338d4886914
  rollscope trace my-trace-001 --server http://10.0.0.5:9090
  rollscope trace 4099 --dir /runs/7/tsdb --json > trace.json
`)
	c.source.flags(cmd)
	cmd.Flag("all", "Every span in a line of its own, also repeated ones such as decode_loop.").BoolVar(&c.all)
	cmd.Flag("json", "Print the API's answer instead.").BoolVar(&c.asJSON)
	cmd.Flag("width", "Columns; default those of the terminal, else 100.").IntVar(&c.width)
	cmd.Flag("log-lines", "Print at most so many log lines of the trace.").Default("5").IntVar(&c.lines)
	cmd.Arg("id", "Id of the trace or of its request.").Required().StringVar(&c.id)
	cmd.Action(func(*kingpin.ParseContext) error { return c.run() })
}

func (c *traceCmd) run() error {
	if strings.TrimSpace(c.id) == "" {
		return badInput("ID is empty")
	}
	if c.width != 0 && c.width < minTraceWidth || c.width > maxTraceWidth {
		return badInput("--width is from %d to %d columns", minTraceWidth, maxTraceWidth)
	}
	if c.lines < 0 || c.lines > 1000 {
		return badInput("--log-lines is from 0 to 1000")
	}
	cl, err := c.source.open(c.ctx, c.env)
	if err != nil {
		return err
	}
	defer cl.close()
	params := url.Values{}
	if c.all {
		params.Set("fold", "none")
	}
	var answer struct {
		Data     json.RawMessage
		Warnings []api.Warning
		Error    *api.Error
	}
	err = cl.get(c.ctx, "/api/rollscope/v1/traces/"+url.PathEscape(c.id), params, &answer)
	var refused *apiError
	if errors.As(err, &refused) && refused.status == http.StatusNotFound && refused.code == "not_found" {
		return &exitError{exitNo, err}
	}
	if err != nil {
		return err
	}
	if c.asJSON {
		_, err := fmt.Fprintf(c.out, "%s\n", answer.Data)
		return err
	}
	var d api.TraceDetail
	if err := json.Unmarshal(answer.Data, &d); err != nil {
		return unknown(fmt.Errorf("the answer is no trace: %w", err))
	}
	for _, w := range answer.Warnings {
		fmt.Fprintln(c.err, "warning:", w.Message)
	}
	return printTrace(c.out, &d, c.logs(cl, &d), c.columns())
}

// columns is how wide the output is.
func (c *traceCmd) columns() int {
	if c.width > 0 {
		return c.width
	}
	if f, ok := c.out.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return min(max(w, minTraceWidth), maxTraceWidth)
		}
	}
	return 100
}

// aroundTrace is how far before and after a trace its log lines are looked for: clocks differ, and a line
// may be written late.
const aroundTrace = 10 * time.Minute

// logs asks for the log lines that name the trace; a server without logs has none.
func (c *traceCmd) logs(cl *client, d *api.TraceDetail) []api.LogRecord {
	start, err := time.Parse(time.RFC3339Nano, d.Start)
	if err != nil || c.lines == 0 {
		return nil
	}
	end := start.Add(time.Duration(d.Duration * float64(time.Second)))
	params := url.Values{"trace_id": {d.TraceID}, "limit": {fmt.Sprint(c.lines)},
		"from": {start.Add(-aroundTrace).Format(time.RFC3339Nano)}, "to": {end.Add(aroundTrace).Format(time.RFC3339Nano)}}
	var answer struct{ Data api.Logs }
	if err := cl.get(c.ctx, "/api/rollscope/v1/logs", params, &answer); err != nil {
		var refused *apiError
		if !errors.As(err, &refused) || refused.code != "not_enabled" {
			fmt.Fprintln(c.err, "warning: log lines of this trace were not read:", err)
		}
		return nil
	}
	return answer.Data.Records
}
