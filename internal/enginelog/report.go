package enginelog

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/request"
)

// ReportOptions say how a log file is read and shown.
type ReportOptions struct {
	Source string         // its name in the report
	Zone   *time.Location // of times without one; nil: not known, taken as UTC unless ModTime tells
	// ModTime is when the file last changed: it tells the zone, and the date of times of day. Zero: not known.
	ModTime  time.Time
	JSON     bool   // write the Summary as JSON instead of text
	Examples int    // of lines that no grammar reads; 0: 5
	Engine   string // that writes the log, for Each
	// Each gets every record in the order of the lines; nil: nobody. Its error ends the reading and is
	// returned as it is.
	Each func(*Record) error
}

// Summary is what a log file holds.
type Summary struct {
	Source   string         `json:"source"`
	Lines    int64          `json:"lines"` // that are not empty
	From     string         `json:"from"`  // RFC 3339, "" when no line has a time
	To       string         `json:"to"`
	Zone     string         `json:"zone"` // what times without a zone were taken as, "" when all have one
	Formats  []FormatCount  `json:"formats"`
	Classes  []ClassCount   `json:"classes"` // all six, in the order of [Classes]
	Writers  []WriterCount  `json:"writers"`
	Folded   Folded         `json:"folded"`
	Unread   Unread         `json:"unread"`
	Marks    []MarkCount    `json:"marks"`
	Requests RequestCounts  `json:"requests"`
	Steps    []StepOverview `json:"steps"`
	Notes    []Note         `json:"notes"`
}

// FormatCount is how many lines a grammar read.
type FormatCount struct {
	Format string `json:"format"`
	Lines  int64  `json:"lines"`
}

// ClassCount is how many events there were; one line that Ray folded stands for several.
type ClassCount struct {
	Class  Class  `json:"class"`
	Events int64  `json:"events"`
	Lines  int64  `json:"lines"`
	First  string `json:"first"`
	Last   string `json:"last"`
}

// WriterCount is one writer of lines: an actor of Ray's, or a rank.
type WriterCount struct {
	Name  string `json:"name"`
	Lines int64  `json:"lines"`
}

// Folded is what Ray did not print.
type Folded struct {
	Lines int64  `json:"lines"` // that were not printed
	Into  int64  `json:"into"`  // lines that stand for them
	Hint  string `json:"hint"`
}

// Unread is lines that no grammar reads.
type Unread struct {
	Lines    int64    `json:"lines"`
	Examples []string `json:"examples"`
}

// MarkCount is how many lines have a mark.
type MarkCount struct {
	Mark  string `json:"mark"`
	Lines int64  `json:"lines"`
}

// RequestCounts is what the lines say about requests.
type RequestCounts struct {
	Observed int64 `json:"observed"` // lines about one request
	Requests int64 `json:"requests"` // different ones, at most 1 M are told apart
	Aborted  int64 `json:"aborted"`
	Invalid  int64 `json:"invalid"` // with a duration that cannot be
}

// StepOverview is a training step whose metrics were printed.
type StepOverview struct {
	Group   string `json:"group"`
	Axis    string `json:"axis"`
	Step    int64  `json:"step"`
	Metrics int    `json:"metrics"`
	Finite  int    `json:"finite"`
	Texts   int    `json:"texts"`
}

// Note is something worth knowing.
type Note struct {
	Kind string `json:"kind"` // storm, oom, hang, crash, durations, cached, folded, silence, full, graph, zone, cut
	Text string `json:"text"`
	Hint string `json:"hint"`
	From string `json:"from"`
	To   string `json:"to"`
}

// Exit is the exit code that a command gives for the summary: 0 nothing to do, 1 memory ran out, something
// hung or crashed, 3 no line was read by any grammar.
func (s *Summary) Exit() int {
	if s.Lines == 0 || s.Unread.Lines == s.Lines {
		return 3
	}
	for _, c := range s.Classes {
		if c.Events > 0 && (c.Class == OOM || c.Class == Hang || c.Class == Error) {
			return 1
		}
	}
	return 0
}

// Report reads a log and writes what it holds, as text or JSON. The error is of reading or writing.
func Report(w io.Writer, r io.Reader, o ReportOptions) (Summary, error) {
	s, err := Summarize(r, o)
	if err != nil {
		return s, err
	}
	if o.JSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return s, e.Encode(s)
	}
	return s, s.print(w)
}

// Summarize reads a log. Lines are read to their end or MaxLine; the rest of a longer one is not read.
func Summarize(r io.Reader, o ReportOptions) (Summary, error) {
	g := newGathering(o)
	in := bufio.NewReaderSize(r, 256<<10)
	var head [][]byte // what is read before the zone is known
	if o.Zone == nil && !o.ModTime.IsZero() {
		// The file's last line tells the zone: it has to be seen before the first is read.
		var err error
		if head, err = g.learn(in, o.ModTime); err != nil {
			return g.s, err
		}
	}
	for _, line := range head {
		if err := g.line(line, 0); err != nil {
			return g.s, err
		}
	}
	for {
		line, long, err := readLine(in)
		if len(line) > 0 || err == nil {
			var m Mark
			if long {
				m = Truncated
			} else if err != nil {
				m = Unterminated
			}
			if err := g.line(line, m); err != nil {
				return g.s, err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return g.s, fmt.Errorf("enginelog: reading %s after %d lines: %w", o.Source, g.s.Lines, err)
		}
	}
	if rec, ok := g.p.Flush(); ok {
		if err := g.add(&rec); err != nil {
			return g.s, err
		}
	}
	return g.finish(), nil
}

// maxHead is how many bytes are held while the zone is looked for.
const maxHead = 16 << 20

// learn holds the lines until the input's end, or as many as fit, and learns the zone from the last.
func (g *gathering) learn(in *bufio.Reader, mod time.Time) ([][]byte, error) {
	var head [][]byte
	size := 0
	for size < maxHead {
		line, _, err := readLine(in)
		if len(line) > 0 {
			head = append(head, slices.Clone(line))
			size += len(line)
		}
		if errors.Is(err, io.EOF) {
			for i := len(head) - 1; i >= 0 && i > len(head)-200; i-- {
				g.p.Learn(head[i], mod.UnixNano())
				if _, ok := g.p.Offset(); ok {
					break
				}
			}
			return head, nil
		}
		if err != nil {
			return head, fmt.Errorf("enginelog: reading %s: %w", g.o.Source, err)
		}
	}
	return head, nil // too long to hold: its zone stays unknown
}

// readLine reads a line of any length, of which it keeps MaxLine bytes. The slice is valid until the next
// call when the line fits the reader's buffer.
func readLine(in *bufio.Reader) (line []byte, long bool, err error) {
	line, err = in.ReadSlice('\n')
	if err == nil || !errors.Is(err, bufio.ErrBufferFull) {
		return line, false, err
	}
	line = slices.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		var more []byte
		more, err = in.ReadSlice('\n')
		if room := MaxLine - len(line); room < len(more) {
			more, long = more[:max(room, 0)], true
		}
		line = append(line, more...)
	}
	return line, long, err
}

// gathering sums records up.
type gathering struct {
	o       ReportOptions
	p       *Parser
	s       Summary
	formats map[string]int64
	writers map[string]int64
	marks   map[Mark]int64
	classes map[Class]*classTimes
	rids    map[string]bool
	steps   []StepOverview
	from    int64
	to      int64
	zone    bool

	last, gapFrom, gapTo int64
	preempts             []preempt
	full, decodes        int64
	noGraph              int64
	usage, queue         float64 // of the last decode line
	hungRanks            map[string]bool
	cachedMore           int64
}

type classTimes struct {
	events, lines, first, last int64
}

// preempt is one retraction and what the engine said just before.
type preempt struct {
	at           int64
	n            float64
	usage, queue float64
}

func newGathering(o ReportOptions) *gathering {
	if o.Examples == 0 {
		o.Examples = 5
	}
	opt := Options{Source: o.Source, Engine: o.Engine, Zone: o.Zone}
	if !o.ModTime.IsZero() {
		opt.Reference = o.ModTime.UnixNano()
	}
	return &gathering{o: o, p: NewParser(opt), formats: map[string]int64{}, writers: map[string]int64{}, marks: map[Mark]int64{},
		classes: map[Class]*classTimes{}, rids: map[string]bool{}, hungRanks: map[string]bool{}, usage: math.NaN(), queue: math.NaN()}
}

func (g *gathering) line(b []byte, m Mark) error {
	rec, ok := g.p.Line(b, 0)
	if !ok {
		return nil
	}
	rec.Marks |= m
	return g.add(&rec)
}

// maxNames bounds what is told apart by name.
const maxNames = 1_000_000

func (g *gathering) add(r *Record) error {
	if g.o.Each != nil {
		if err := g.o.Each(r); err != nil {
			return err
		}
	}
	s := &g.s
	s.Lines++
	g.formats[r.Format]++
	if r.Format == "" {
		s.Unread.Lines++
		if len(s.Unread.Examples) < g.o.Examples {
			s.Unread.Examples = append(s.Unread.Examples, shorten(r.Line, 160))
		}
	}
	if r.Repeat > 1 {
		s.Folded.Lines += int64(r.Repeat - 1)
		s.Folded.Into++
	}
	for i := range markNames {
		if m := Mark(1) << i; r.Marks&m != 0 {
			g.marks[m]++
		}
	}
	if name := writer(r); len(g.writers) < 10_000 || g.writers[name] > 0 {
		g.writers[name]++
	}
	if r.Marks&TimeAssumed == 0 && r.Time != 0 {
		if g.from == 0 || r.Time < g.from {
			g.from = r.Time
		}
		g.to = max(g.to, r.Time)
		if g.last != 0 && r.Time-g.last > g.gapTo-g.gapFrom {
			g.gapFrom, g.gapTo = g.last, r.Time
		}
		g.last = max(g.last, r.Time)
		g.zone = g.zone || r.Marks&ZoneAssumed != 0
	}
	if r.Class != None {
		c := g.classes[r.Class]
		if c == nil {
			c = &classTimes{first: r.Time}
			g.classes[r.Class] = c
		}
		c.lines++
		c.events += int64(r.Repeat)
		c.last = r.Time
	}
	g.watch(r)
	if o := r.Request; o != nil {
		s.Requests.Observed++
		if len(o.Aliases) > 0 && len(g.rids) < maxNames {
			g.rids[string(o.Aliases[0].Kind)+o.Aliases[0].ID] = true
		}
		if o.Outcome == request.AbortedRequest {
			s.Requests.Aborted++
		}
		if r.Marks&Invalid != 0 {
			s.Requests.Invalid++
		}
		if slices.Contains(o.Flags, "cached_gt_prompt") {
			g.cachedMore++
		}
	}
	if st := r.Step; st != nil && len(g.steps) < 100_000 {
		v := StepOverview{Group: st.Group, Axis: st.Axis, Step: st.Step, Metrics: len(st.Metrics), Texts: len(st.Texts)}
		for _, m := range st.Metrics {
			if m.Finite() {
				v.Finite++
			}
		}
		g.steps = append(g.steps, v)
	}
	return nil
}

// watch notes what a note may be made of.
func (g *gathering) watch(r *Record) {
	number := func(name string) float64 {
		if v, _, err := readLiteral(r.Get(name)); err == nil && v.kind == number {
			return v.num
		}
		return math.NaN()
	}
	switch {
	case r.Format == "sglang.decode":
		g.decodes++
		u := number("token_usage")
		if math.IsNaN(u) {
			u = number("full_token_usage")
		}
		if u >= 0.98 {
			g.full++
		}
		if r.Get("graph_used") == "false" {
			g.noGraph++
		}
		g.usage, g.queue = u, number("num_queue_reqs")
	case r.Class == Preempt && len(g.preempts) < maxNames:
		n := number("num_retracted_reqs")
		if math.IsNaN(n) {
			n = 1
		}
		g.preempts = append(g.preempts, preempt{r.Time, n * float64(r.Repeat), g.usage, g.queue})
	case r.Class == Hang:
		if k := r.Get("rank"); k != "" {
			g.hungRanks[k] = true
		}
	}
}

// writer names who wrote a line.
func writer(r *Record) string {
	if a := r.Get("actor"); a != "" {
		name := a
		if p := r.Get("pid"); p != "" {
			name += " pid=" + p
		}
		if ip := r.Get("ip"); ip != "" {
			name += " ip=" + ip
		}
		return name
	}
	var parts []string
	for _, n := range rankNames {
		if v := r.Get(n.field); v != "" {
			parts = append(parts, n.word+v)
		}
	}
	if v := r.Get("rank"); v != "" {
		parts = append(parts, "rank "+v)
	}
	return strings.Join(parts, " ")
}

func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xc0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}

func stampOf(ns int64) string {
	if ns == 0 {
		return ""
	}
	return time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
}

// stormEvents in stormSpan make a retraction storm.
const (
	stormEvents = 5
	stormSpan   = int64(time.Minute)
	longSilence = int64(5 * time.Minute)
)

func (g *gathering) finish() Summary {
	s := &g.s
	s.Source = g.o.Source
	s.From, s.To = stampOf(g.from), stampOf(g.to)
	if g.zone {
		off, ok := g.p.Offset()
		s.Zone = "UTC, for want of another"
		if ok {
			s.Zone = "UTC" + time.Unix(0, 0).In(time.FixedZone("", int(off/time.Second))).Format("-07:00")
		}
	} else if g.o.Zone != nil {
		s.Zone = g.o.Zone.String()
	}
	for f, n := range g.formats {
		s.Formats = append(s.Formats, FormatCount{f, n})
	}
	slices.SortFunc(s.Formats, func(a, b FormatCount) int {
		return cmp.Or(cmp.Compare(b.Lines, a.Lines), cmp.Compare(a.Format, b.Format))
	})
	for _, c := range Classes() {
		n := ClassCount{Class: c}
		if t := g.classes[c]; t != nil {
			n.Events, n.Lines, n.First, n.Last = t.events, t.lines, stampOf(t.first), stampOf(t.last)
		}
		s.Classes = append(s.Classes, n)
	}
	for w, n := range g.writers {
		s.Writers = append(s.Writers, WriterCount{w, n})
	}
	slices.SortFunc(s.Writers, func(a, b WriterCount) int {
		return cmp.Or(cmp.Compare(b.Lines, a.Lines), cmp.Compare(a.Name, b.Name))
	})
	for i, name := range markNames {
		if n := g.marks[1<<i]; n > 0 {
			s.Marks = append(s.Marks, MarkCount{name, n})
		}
	}
	s.Requests.Requests = int64(len(g.rids))
	s.Steps = g.steps
	if s.Folded.Lines > 0 {
		s.Folded.Hint = "Ray folds lines that look alike; start the driver with RAY_DEDUP_LOGS=0 to get all of them"
	}
	g.notes()
	// Lists are never null in JSON.
	s.Formats, s.Writers, s.Marks = notNil(s.Formats), notNil(s.Writers), notNil(s.Marks)
	s.Steps, s.Notes, s.Unread.Examples = notNil(s.Steps), notNil(s.Notes), notNil(s.Unread.Examples)
	return *s
}

func notNil[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

// notes says what is worth knowing.
func (g *gathering) notes() {
	s := &g.s
	note := func(kind, text, hint string, from, to int64) {
		s.Notes = append(s.Notes, Note{kind, text, hint, stampOf(from), stampOf(to)})
	}
	if from, to, n, first, last := g.storm(); n >= stormEvents {
		text := fmt.Sprintf("retraction storm: %d retractions within %s", n, time.Duration(to-from).Round(time.Second))
		if !math.IsNaN(first.usage) {
			text += fmt.Sprintf(", KV cache %.0f %% full", 100*last.usage)
		}
		if !math.IsNaN(first.queue) && last.queue > first.queue {
			text += fmt.Sprintf(", queue from %.0f to %.0f", first.queue, last.queue)
		}
		note("storm", text, "more is admitted than the KV cache holds: lower --max-running-requests, raise --schedule-conservativeness or --mem-fraction-static, or add engines", from, to)
	}
	if c := g.classes[OOM]; c != nil {
		note("oom", "memory ran out, "+plural(c.events, "time"), "lower --mem-fraction-static or --chunked-prefill-size", c.first, c.last)
	}
	if c := g.classes[Hang]; c != nil {
		text := plural(c.events, "hang") + " reported by watchdogs, collectives or health checks"
		if len(g.hungRanks) > 0 {
			var ranks []string
			for r := range g.hungRanks {
				ranks = append(ranks, r)
			}
			slices.SortFunc(ranks, func(a, b string) int { return cmp.Or(len(a)-len(b), cmp.Compare(a, b)) })
			text += ", on rank " + strings.Join(ranks[:min(len(ranks), 16)], ", ")
		}
		note("hang", text, "the rank that is missing from the list is often the one that hangs", c.first, c.last)
	}
	if n := s.Requests.Invalid; n > 0 {
		note("durations", plural(n, "request")+" with a duration that cannot be (negative, or of decades)", "the engine counts from an unset time; such durations are kept as they were written and are in no mean", 0, 0)
	}
	if g.cachedMore > 0 {
		note("cached", plural(g.cachedMore, "request")+" with more cached tokens than the prompt has", "older releases of SGLang count cached tokens again after each retraction", 0, 0)
	}
	if s.Folded.Lines > 0 {
		note("folded", plural(s.Folded.Lines, "line")+" folded by Ray: the numbers in them are unknown, throughput must not be summed from this log", s.Folded.Hint, 0, 0)
	}
	if g.gapTo-g.gapFrom > longSilence {
		note("silence", fmt.Sprintf("no line for %s", time.Duration(g.gapTo-g.gapFrom).Round(time.Second)), "", g.gapFrom, g.gapTo)
	}
	if g.decodes >= 10 && g.full*4 > g.decodes {
		note("full", fmt.Sprintf("the KV cache is full in %d of %d decode lines", g.full, g.decodes), "", 0, 0)
	}
	if g.decodes >= 10 && g.noGraph*2 > g.decodes {
		note("graph", fmt.Sprintf("%d of %d decode lines are without a graph", g.noGraph, g.decodes), "batches beyond --cuda-graph-max-bs run without one, more slowly", 0, 0)
	}
	if n := g.marks[Cut]; n > 0 {
		note("cut", plural(n, "line")+" cut: numbers that are not surely whole are left out", "", 0, 0)
	}
	if g.zone {
		note("zone", "times have no zone and are taken as "+s.Zone, "name the zone to be sure", 0, 0)
	}
}

// storm finds the minute with the most retractions and widens it while they go on.
func (g *gathering) storm() (from, to int64, n int, first, last preempt) {
	p := g.preempts
	best, at := 0, 0
	for i, j := 0, 0; j < len(p); j++ {
		for p[j].at-p[i].at > stormSpan {
			i++
		}
		if j-i+1 > best {
			best, at = j-i+1, i
		}
	}
	if best < stormEvents {
		return 0, 0, best, first, last
	}
	end := at + best - 1
	for at > 0 && p[at].at-p[at-1].at <= stormSpan {
		at--
	}
	for end+1 < len(p) && p[end+1].at-p[end].at <= stormSpan {
		end++
	}
	last = p[end]
	if g.decodes > 0 && end == len(p)-1 && !math.IsNaN(g.queue) {
		last.usage, last.queue = g.usage, g.queue
	}
	return p[at].at, p[end].at, end - at + 1, p[at], last
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// print writes the summary as text.
func (s *Summary) print(w io.Writer) error {
	b := bufio.NewWriter(w)
	line := func(format string, a ...any) { fmt.Fprintf(b, format+"\n", a...) }
	line("%s: %s", s.Source, plural(s.Lines, "line"))
	if s.From != "" {
		line("  from %s to %s", s.From, s.To)
	}
	if s.Zone != "" {
		line("  times without a zone are taken as %s", s.Zone)
	}
	line("\nevents")
	any := false
	for _, c := range s.Classes {
		if c.Events == 0 {
			continue
		}
		any = true
		more := ""
		if c.Lines != c.Events {
			more = fmt.Sprintf(" in %s", plural(c.Lines, "line"))
		}
		line("  %-10s %8d%s  %s .. %s", c.Class, c.Events, more, c.First, c.Last)
	}
	if !any {
		line("  none")
	}
	line("\nformats")
	for _, f := range s.Formats {
		name := f.Format
		if name == "" {
			name = "(none)"
		}
		line("  %-24s %8d", name, f.Lines)
	}
	if len(s.Writers) > 1 || len(s.Writers) == 1 && s.Writers[0].Name != "" {
		line("\nwriters")
		for i, x := range s.Writers {
			if i == 20 {
				line("  and %d more", len(s.Writers)-i)
				break
			}
			name := x.Name
			if name == "" {
				name = "(without a name)"
			}
			line("  %-44s %8d", shorten(name, 44), x.Lines)
		}
	}
	if s.Requests.Observed > 0 {
		line("\nrequests\n  %d seen in %s, %d aborted, %d with a duration that cannot be", s.Requests.Requests, plural(s.Requests.Observed, "line"), s.Requests.Aborted, s.Requests.Invalid)
	}
	if len(s.Steps) > 0 {
		line("\nmetrics of steps")
		for i, x := range s.Steps {
			if i == 20 {
				line("  and %d more", len(s.Steps)-i)
				break
			}
			line("  %-10s %6d  %d values, %d of them finite", x.Group, x.Step, x.Metrics, x.Finite)
		}
	}
	if s.Folded.Lines > 0 {
		line("\nfolded by Ray\n  %s folded into %d\n  %s", plural(s.Folded.Lines, "line"), s.Folded.Into, s.Folded.Hint)
	}
	if len(s.Notes) > 0 {
		line("\nworth knowing")
		for _, n := range s.Notes {
			when := ""
			if n.From != "" {
				when = "  (" + n.From + " .. " + n.To + ")"
			}
			line("  - %s%s", n.Text, when)
			if n.Hint != "" {
				line("    %s", n.Hint)
			}
		}
	}
	if s.Unread.Lines > 0 {
		line("\nread by no grammar: %s, such as", plural(s.Unread.Lines, "line"))
		for _, e := range s.Unread.Examples {
			line("  %s", e)
		}
	}
	return b.Flush()
}
