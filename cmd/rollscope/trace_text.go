package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rollscope/rollscope/internal/api"
)

// Columns that a waterfall may have.
const (
	minTraceWidth = 60
	maxTraceWidth = 400
)

// printTrace writes a trace for people: its waterfall, where the time went, what is wrong, and where to look
// further. Bars of the critical path are full, the others half; what a sender or its SDK left out is said.
func printTrace(out io.Writer, d *api.TraceDetail, lines []api.LogRecord, width int) error {
	b := bufio.NewWriter(out)
	p := tracePrinter{w: b, d: d, width: width}
	p.head()
	p.waterfall()
	p.phases()
	p.problems()
	p.elsewhere()
	p.logs(lines)
	return b.Flush()
}

type tracePrinter struct {
	w     *bufio.Writer
	d     *api.TraceDetail
	width int
}

func (p *tracePrinter) line(format string, args ...any) {
	_, _ = fmt.Fprintln(p.w, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

func (p *tracePrinter) title(text string) { p.line("\n%s", text) }

func (p *tracePrinter) head() {
	d := p.d
	spans, errors := d.More, 0
	for i := range d.Spans {
		s := &d.Spans[i]
		switch {
		case s.Missing:
		case s.Folded != nil:
			spans += s.Folded.Count
		default:
			spans++
		}
		if s.Status == "error" {
			errors++
		}
	}
	p.line("trace %s", d.TraceID)
	text := fmt.Sprintf("%s   %s   %s in %s", d.Start, duration3(d.Duration), plural(spans, "span"), plural(len(d.Services), "service"))
	if errors > 0 {
		text += "   " + plural(errors, "error")
	}
	p.line("%s", text)
	if d.Request != "" {
		p.line("request %s", d.Request)
	}
	if len(d.Flags) > 0 {
		p.line("this trace is %s", strings.Join(d.Flags, ", "))
	}
	for _, service := range slices.Sorted(maps.Keys(d.Levels)) {
		p.line("%s traces at SGLANG_TRACE_LEVEL %d", service, d.Levels[service])
	}
}

// waterfall has a line a span: name, bar, duration.
func (p *tracePrinter) waterfall() {
	const took = 10 // the column of durations with its blank
	label := p.width*46/100 - 1
	bar := p.width - label - 2 - took
	total := 0.0
	for i := range p.d.Spans {
		total = max(total, p.d.Spans[i].Start+p.d.Spans[i].Duration)
	}
	p.line("")
	p.line("%s %s", strings.Repeat(" ", label), axis(bar, total))
	services := map[int]string{} // by depth
	for i := range p.d.Spans {
		s := &p.d.Spans[i]
		name := readable(s.Name)
		if s.Service != "" && (s.Depth == 0 || services[s.Depth-1] != s.Service) {
			name = readable(s.Service) + ": " + name
		}
		services[s.Depth] = cmp.Or(s.Service, services[s.Depth-1])
		took, note := duration3(s.Duration), ""
		if s.Folded != nil {
			name += fmt.Sprintf(" x%d", s.Folded.Count)
			took = duration3(s.Folded.Sum)
		}
		switch {
		case s.Missing:
			took = "not sent"
		case slices.Contains(s.Flags, "no_time"):
			took = "no time"
		}
		if s.Status == "error" {
			note += " error"
		}
		for _, f := range s.Flags {
			switch f {
			case "missing", "critical", "no_time":
			default:
				note += " " + strings.ReplaceAll(f, "_", " ")
			}
		}
		if s.Dropped > 0 {
			note += fmt.Sprintf(" %d attributes dropped by the sender", s.Dropped)
		}
		p.line("%s %s %*s%s", fit(strings.Repeat("  ", min(s.Depth, 40))+name, label), p.bar(s, bar, total), 9, took, note)
		if s.Message != "" {
			p.line("%s %s", strings.Repeat("  ", min(s.Depth, 40)+1), fit(readable(s.Message), p.width-2*min(s.Depth, 40)-4))
		}
	}
	if p.d.More > 0 {
		p.line("... and %s more: its timeline in the page has all", plural(p.d.More, "span"))
	}
}

// bar draws when a span ran; it is never empty, however short the span.
func (p *tracePrinter) bar(s *api.TraceSpan, width int, total float64) string {
	cells := []rune(strings.Repeat(" ", width))
	if total <= 0 || slices.Contains(s.Flags, "no_time") {
		return string(cells)
	}
	at := func(t float64) int { return int(math.Round(t / total * float64(width))) }
	from := min(max(at(s.Start), 0), width-1)
	to := min(max(at(s.Start+s.Duration), from+1), width)
	fill := '▒'
	switch {
	case s.Missing:
		fill = '·'
	case s.Critical:
		fill = '█'
	}
	for i := from; i < to; i++ {
		cells[i] = fill
	}
	for _, e := range s.Events { // moments
		if i := at(e.At); i >= 0 && i <= width {
			cells[min(i, width-1)] = '◆'
		}
	}
	return string(cells)
}

// axis has the time at its ends and in the middle.
func axis(width int, total float64) string {
	left, middle, right := "0", duration3(total/2), duration3(total)
	cells := []rune(strings.Repeat(" ", width))
	put := func(text string, at int) {
		for i, r := range []rune(text) {
			if at+i >= 0 && at+i < width {
				cells[at+i] = r
			}
		}
	}
	put(left, 0)
	put(middle, (width-utf8.RuneCountInString(middle))/2)
	put(right, width-utf8.RuneCountInString(right))
	return string(cells)
}

// phases says where the time went, and how much of it no span explains.
func (p *tracePrinter) phases() {
	if len(p.d.Phases) == 0 && p.d.Rest == nil {
		return
	}
	p.title("where the time went")
	t := newTable(p.w)
	t.head("PHASE", ">TIME", ">SHARE", "CLASS")
	share := func(seconds *float64) string {
		if seconds == nil || p.d.Duration <= 0 {
			return ""
		}
		return strconv.FormatFloat(100**seconds/p.d.Duration, 'f', 1, 64) + " %"
	}
	took := func(seconds *float64) string {
		if seconds == nil {
			return "unknown"
		}
		return duration3(*seconds)
	}
	for _, x := range p.d.Phases {
		t.row(strings.Repeat("  ", x.Depth)+fit0(readable(x.Name), p.width/2), took(x.Seconds), share(x.Seconds), x.Class)
	}
	if p.d.Rest != nil {
		t.row("not explained by any span", took(p.d.Rest), share(p.d.Rest), "")
	}
	_ = t.flush() // the buffer keeps the error
}

func (p *tracePrinter) problems() {
	if len(p.d.Problems) == 0 {
		return
	}
	p.title("worth knowing")
	for _, x := range p.d.Problems {
		text := readable(x.Message)
		where := strings.Fields(readable(x.Where))
		if n := len(where); n > 0 && !strings.Contains(text, where[n-1]) {
			text += " (" + strings.Join(where, " ") + ")"
		}
		p.wrap("- ", text)
	}
}

// elsewhere lists other traces: they are told of, never merged.
func (p *tracePrinter) elsewhere() {
	if len(p.d.Probable) > 0 {
		p.title("related traces")
		for _, x := range p.d.Probable {
			p.line("- %s", cmp.Or(x.TraceID, x.ID))
			p.wrap("  ", readable(x.Why))
		}
	}
	if len(p.d.Others) > 0 {
		p.title("the id that was asked for also means")
		for _, id := range p.d.Others {
			p.line("- %s", id)
		}
	}
}

func (p *tracePrinter) logs(lines []api.LogRecord) {
	if len(lines) == 0 {
		return
	}
	p.title("log lines")
	for i := len(lines) - 1; i >= 0; i-- { // the newest come first
		l := &lines[i]
		from := cmp.Or(l.Engine, l.Service, l.Source)
		p.line("%s", fit0(strings.TrimSpace(l.Time+" "+from)+"  "+readable(l.Line), p.width))
	}
}

// wrap writes text in lines of the width; the first begins with the mark, the others are indented as far.
func (p *tracePrinter) wrap(mark, text string) {
	room := p.width - len(mark)
	indent := mark
	line, n := "", 0
	for _, word := range strings.Fields(text) {
		if size := utf8.RuneCountInString(word); n > 0 && n+1+size > room {
			p.line("%s%s", indent, line)
			indent = strings.Repeat(" ", len(mark))
			line, n = word, size
		} else {
			if n > 0 {
				line, n = line+" ", n+1
			}
			line, n = line+word, n+size
		}
	}
	p.line("%s%s", indent, line)
}

// readable is text of somebody else for a terminal: no control characters, one line.
func readable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r == '\r' {
			return ' '
		}
		if r == utf8.RuneError || unicode.IsControl(r) || unicode.In(r, unicode.Cf) {
			return -1
		}
		return r
	}, strings.TrimSpace(s))
}

// fit cuts text to so many columns, or fills it up.
func fit(s string, columns int) string {
	s = fit0(s, columns)
	return s + strings.Repeat(" ", max(0, columns-utf8.RuneCountInString(s)))
}

// fit0 cuts text that is longer than so many columns.
func fit0(s string, columns int) string {
	r := []rune(s)
	if len(r) <= columns {
		return s
	}
	return string(r[:max(columns-1, 0)]) + "…"
}

// duration3 is a duration in seconds with three digits and a unit.
func duration3(seconds float64) string {
	d := math.Abs(seconds)
	if d == 0 {
		return "0 s"
	}
	for _, u := range []struct {
		unit string
		per  float64
	}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}} {
		if d >= u.per || u.unit == "µs" {
			v := seconds / u.per
			digits := 0
			switch x := math.Abs(v); {
			case x == math.Trunc(x) || x >= 99.95:
			case x >= 9.995:
				digits = 1
			default:
				digits = 2
			}
			return strconv.FormatFloat(v, 'f', digits, 64) + " " + u.unit
		}
	}
	return "" // not reached: the last unit takes all
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
