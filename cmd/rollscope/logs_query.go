package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rollscope/rollscope/internal/logsql"
)

type logsQueryCmd struct {
	*env
	source
	window
	query  string
	limit  int
	format string
}

func addLogsQuery(parent *kingpin.CmdClause, e *env) {
	c := &logsQueryCmd{env: e}
	cmd := parent.Command("query", "Stored log lines, spans and requests by LogsQL, or by LogQL, which is translated.").HelpLong(`
  rollscope logs query 'class:oom'
  rollscope logs query --since 6h '{app="sglang-7b"} |~ "preempt|OOM|abort|hang"'
  rollscope logs query 'row:span | stats by (_msg) count() n, quantile(0.99, duration) p99 | sort by (n desc)'
  rollscope logs query --dir /runs/7/tsdb --since 30d 'class:hang' --format json

Lines of logs are meant unless the query says row: itself. What a LogQL query was translated to is printed.
`)
	c.source.flags(cmd)
	c.window.rangeFlags(cmd, "1h")
	cmd.Flag("limit", "So many rows at most, the newest.").Default("1000").IntVar(&c.limit)
	cmd.Flag("format", "Form of the answer; json is an object a line.").Default("text").EnumVar(&c.format, "text", "json")
	cmd.Arg("query", "LogsQL or LogQL.").Required().StringVar(&c.query)
	cmd.Action(func(*kingpin.ParseContext) error { return c.run() })
}

func (c *logsQueryCmd) run() error {
	query := c.query
	if logsql.LooksLikeLogQL(query) {
		translated, err := logsql.FromLogQL(query)
		if err != nil {
			return badInput("%w", err)
		}
		query = translated
		fmt.Fprintln(c.err, "LogsQL:", query)
	}
	if !strings.Contains(query, "row:") && !strings.Contains(query, `"row":`) && !strings.Contains(query, "row=") {
		query = `{row="log"} ` + query
	}
	cl, err := c.source.open(c.ctx, c.env)
	if err != nil {
		return err
	}
	defer cl.close()
	last, err := cl.lastTime(c.env)
	if err != nil {
		return err
	}
	start, end, _, err := c.resolve(last)
	if err != nil {
		return err
	}
	params := url.Values{"query": {query}, "start": {strconv.FormatInt(start.UnixNano(), 10)}, "end": {strconv.FormatInt(end.UnixNano()+1, 10)}}
	if !strings.Contains(query, "|") { // the newest; with pipes the query says itself what it gives back
		params.Set("limit", strconv.Itoa(c.limit))
	}
	rows := 0
	err = cl.stream(c.ctx, "/select/logsql/query", params, func(body io.Reader) error {
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			if len(lines.Bytes()) == 0 {
				continue
			}
			rows++
			if c.format == "json" {
				if _, err := fmt.Fprintf(c.out, "%s\n", lines.Bytes()); err != nil {
					return err
				}
				continue
			}
			if err := c.print(lines.Bytes()); err != nil {
				return err
			}
		}
		return lines.Err()
	})
	if err != nil {
		return err
	}
	if rows == 0 {
		fmt.Fprintf(c.err, "nothing matches between %s and %s\n", start.UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339))
	}
	return nil
}

// print writes a line of a log as it was, after its time and place; rows of other kinds as their fields.
func (c *logsQueryCmd) print(raw []byte) error {
	var row map[string]string
	if err := json.Unmarshal(raw, &row); err != nil {
		return unknown(fmt.Errorf("the answer is no row of an event store: %.200s", raw))
	}
	if row["_msg"] == "" || row["_time"] == "" || row["row"] != "log" {
		_, err := fmt.Fprintf(c.out, "%s\n", raw)
		return err
	}
	at := row["_time"]
	if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
		at = t.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	_, err := fmt.Fprintf(c.out, "%s  %-20s  %-8s  %s\n", at, cmp.Or(row["engine"], row["service"], "-"), cmp.Or(row["class"], row["level"], "-"), row["_msg"])
	return err
}
