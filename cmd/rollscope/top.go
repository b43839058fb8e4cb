package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/term"

	"github.com/rollscope/rollscope/internal/api"
)

type topCmd struct {
	*env
	source
	every time.Duration
	since time.Duration
	once  bool
}

func addTop(a *kingpin.Application, e *env) {
	c := &topCmd{env: e}
	cmd := a.Command("top", "The fleet live in a terminal of 80x24, also over ssh.").HelpLong(`
Keys: q ends, s sorts by the next column, space pauses.
  rollscope top
  rollscope top --server http://10.0.0.1:9090 --every 5s
  rollscope top --once | head -20
`)
	c.source.flags(cmd)
	cmd.Flag("every", "Time between refreshes.").Default("2s").SetValue(duration(&c.every))
	cmd.Flag("since", "Window of the curves.").Default("15m").SetValue(duration(&c.since))
	cmd.Flag("once", "Print one screen and end; the default when the output is not a terminal.").BoolVar(&c.once)
	cmd.Action(func(*kingpin.ParseContext) error { return c.run() })
}

func (c *topCmd) run() error {
	cl, err := c.source.open(c.ctx, c.env)
	if err != nil {
		return err
	}
	defer cl.close()
	out, isFile := c.out.(*os.File)
	if c.once || !isFile || !term.IsTerminal(int(out.Fd())) {
		screen, err := c.screen(c.ctx, cl, 100, 1000, 0)
		if err != nil {
			return err
		}
		_, err = io.WriteString(c.out, screen)
		return err
	}
	return c.live(cl, out)
}

// live redraws until q or a signal. It works on the alternate screen and puts the terminal back.
func (c *topCmd) live(cl *client, out *os.File) error {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	keys := make(chan byte)
	if in, ok := c.in.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		old, err := term.MakeRaw(int(in.Fd()))
		if err == nil {
			defer term.Restore(int(in.Fd()), old)
			go func() {
				r := bufio.NewReader(in)
				for {
					b, err := r.ReadByte()
					if err != nil {
						return
					}
					select {
					case keys <- b:
					case <-ctx.Done():
						return
					}
				}
			}()
		}
	}
	fmt.Fprint(out, "\x1b[?1049h\x1b[?25l")
	defer fmt.Fprint(out, "\x1b[?25h\x1b[?1049l")
	sortBy, paused := 0, false
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for {
		if !paused {
			w, h, err := term.GetSize(int(out.Fd()))
			if err != nil {
				w, h = 80, 24
			}
			screen, err := c.screen(ctx, cl, w, h, sortBy)
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				screen = "rollscope top: " + err.Error() + "\ntrying again every " + c.every.String() + "\n"
			}
			fmt.Fprint(out, "\x1b[H", strings.ReplaceAll(screen, "\n", "\x1b[K\r\n"), "\x1b[J")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case k := <-keys:
			switch k {
			case 'q', 3: // ctrl-c arrives as a byte in raw mode
				return nil
			case 's':
				sortBy++
			case ' ':
				paused = !paused
			}
		}
	}
}

// screen reads one overview and lays it out in w columns and at most h lines.
func (c *topCmd) screen(ctx context.Context, cl *client, w, h, sortBy int) (string, error) {
	var (
		status   api.Envelope[api.Status]
		overview api.Envelope[api.Overview]
	)
	if err := cl.get(ctx, "/api/rollscope/v1/status", nil, &status); err != nil {
		return "", notRollscope(err)
	}
	to := time.Now()
	if status.Data.Mode == "archive" && status.Data.To != nil {
		if t, err := time.Parse(time.RFC3339Nano, *status.Data.To); err == nil {
			to = t
		}
	}
	params := url.Values{"from": {to.Add(-c.since).UTC().Format(time.RFC3339Nano)}, "to": {to.UTC().Format(time.RFC3339Nano)}}
	if err := cl.get(ctx, "/api/rollscope/v1/overview", params, &overview); err != nil {
		return "", err
	}
	return layoutTop(status.Data, overview.Data, to, w, h, sortBy), nil
}

func notRollscope(err error) error {
	var a *apiError
	if errors.As(err, &a) && a.status == 404 {
		return unknown(errors.New("this server is not rollscope: top needs its own API (rollscope query works with any Prometheus)"))
	}
	return err
}

// layoutTop is pure, so that a test can look at the screen.
func layoutTop(s api.Status, o api.Overview, at time.Time, w, h, sortBy int) string {
	var lines []string
	head := fmt.Sprintf("rollscope %s  %s  targets %d/%d up", s.Mode, at.UTC().Format("15:04:05 UTC"), s.TargetsUp, s.Targets)
	for _, l := range []api.Level{api.LevelCrit, api.LevelWarn, api.LevelUnknown, api.LevelIdle, api.LevelOK} {
		if n := o.Counts[l]; n > 0 {
			head += fmt.Sprintf("  %d %s", n, l)
		}
	}
	lines = append(lines, head)
	for _, g := range o.Golden {
		for _, l := range g.Lines {
			vals := make([]float64, len(l.Values))
			for i, v := range l.Values {
				vals[i] = orNaN(v)
			}
			lines = append(lines, fmt.Sprintf("%-22s %-5s %12s  %s", clip(g.Title, 22), clip(l.Name, 5), show(l.Now, g.Unit), sparkline(vals, max(w-46, 8))))
		}
	}
	lines = append(lines, "")

	cols := o.Engines.Columns
	engines := append([]api.Engine(nil), o.Engines.Engines...)
	if len(cols) > 0 && sortBy > 0 {
		col := cols[(sortBy-1)%len(cols)]
		sortEngines(engines, col)
	}
	nameW := 10
	for _, e := range engines {
		nameW = min(max(nameW, utf8.RuneCountInString(e.Name)), 24)
	}
	room := (w - nameW - 20) / 10
	if room < len(cols) {
		cols = cols[:max(room, 0)]
	}
	row := fmt.Sprintf("%-*s %-8s %-8s", nameW, "ENGINE", "ROLE", "STATE")
	for i, col := range cols {
		title := clip(col.Title, 9)
		if sortBy > 0 && (sortBy-1)%len(o.Engines.Columns) == i {
			title = clip(col.Title, 8) + "*"
		}
		row += fmt.Sprintf(" %9s", title)
	}
	lines = append(lines, row)
	for _, e := range engines {
		row := fmt.Sprintf("%-*s %-8s %-8s", nameW, clip(e.Name, nameW), clip(e.Role, 8), e.Level)
		for _, col := range cols {
			row += fmt.Sprintf(" %9s", show(e.Signals[col.Key], col.Unit))
		}
		lines = append(lines, row)
	}
	if len(engines) == 0 {
		lines = append(lines, "no engines yet: give serve a target with --scrape HOST:PORT")
	}
	firing := 0
	for _, a := range o.Alerts {
		if a.State == "firing" || a.State == "cannot_be_judged" {
			firing++
			lines = append(lines, fmt.Sprintf("%-8s %s  %s", a.Level, a.Name, a.Summary))
		}
	}
	if firing == 0 {
		lines = append(lines, "no alert fires")
	}
	if len(lines) > h-1 && h > 2 {
		hidden := len(lines) - (h - 2)
		lines = append(lines[:h-2], fmt.Sprintf("… %d more lines: make the terminal taller", hidden))
	}
	for i, l := range lines {
		lines[i] = clip(l, w)
	}
	return strings.Join(lines, "\n") + "\n"
}

// show writes a number in its column's unit, or the word for its absence.
func show(n api.Number, unit string) string {
	switch n.State {
	case api.StateIdle:
		return "idle"
	case api.StateUnknown:
		return "unknown"
	case api.StateNotApplicable:
		return "–"
	}
	if n.Value == nil {
		return "unknown"
	}
	v, prefix := *n.Value, ""
	if n.AtLeast {
		prefix = "≥"
		if n.Lower != nil {
			v = *n.Lower
		}
	}
	switch unit {
	case "seconds":
		if v < 10 {
			return prefix + strconv.FormatFloat(v*1e3, 'f', 0, 64) + " ms"
		}
		return prefix + strconv.FormatFloat(v, 'f', 1, 64) + " s"
	case "ratio":
		return prefix + strconv.FormatFloat(v*100, 'f', 1, 64) + " %"
	}
	switch {
	case v >= 1e6:
		return prefix + strconv.FormatFloat(v/1e6, 'f', 2, 64) + " M"
	case v >= 1e4:
		return prefix + strconv.FormatFloat(v/1e3, 'f', 1, 64) + " k"
	}
	return prefix + formatFloat(v)
}

func orNaN(v *float64) float64 {
	if v == nil {
		return nan
	}
	return *v
}

// clip cuts a text to w columns and marks the cut.
func clip(s string, w int) string {
	if utf8.RuneCountInString(s) <= w {
		return s
	}
	if w <= 1 {
		return ""
	}
	return string([]rune(s)[:w-1]) + "…"
}
