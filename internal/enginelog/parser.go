// Package enginelog reads what engines, routers and trainers log: it classifies each line, reads the
// numbers in it and keeps the line as it was written. Its entry points are [Parser], which is pure,
// [Follow], which follows files, and [Report], which sums a file up.
//
// # What a line becomes
//
// One [Record], whatever the line looks like. Lines of a traceback stay records of their own and share a
// block. A line that Ray printed for several ([repeated 3x across cluster]) is one record whose Repeat is
// 3: the values of the others are unknown and are never multiplied.
//
// # Time
//
// Most engines write local time without a zone. It is read with Options.Zone; without one with the
// offset between the line's time and the time at which it came in, to the quarter of an hour; else as
// UTC. The last two are marked time_assumed or zone_assumed. A line without time has that of the line
// before.
package enginelog

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/request"
)

// Class is a kind of event that one counts and alerts on.
type Class string

// Classes of lines. Most lines have none.
const (
	None    Class = ""
	Preempt Class = "preempt" // requests thrown out of the batch for want of KV cache
	OOM     Class = "oom"     // memory ran out
	Abort   Class = "abort"   // a request was aborted
	Hang    Class = "hang"    // a watchdog, a collective or a health check timed out
	Startup Class = "startup" // a stage of a start
	Error   Class = "error"   // an exception, a crash, a failed transfer, a line of level error
)

// Classes lists the classes in the order in which they are shown.
func Classes() []Class { return []Class{Preempt, OOM, Abort, Hang, Error, Startup} }

// Mark says what is not certain about a record.
type Mark uint16

// Marks of records.
const (
	TimeAssumed  Mark = 1 << iota // the line has no time: it is that of the line before, or of arrival
	ZoneAssumed                   // the line's time has no zone: the offset seen while following, or UTC
	DateAssumed                   // the line has a time of day or no year only
	Cut                           // the line ends within a field, or a part of it is missing
	Interleaved                   // two writers' lines are mixed
	Truncated                     // the line was longer than the limit: its rest is dropped
	Binary                        // bytes that are no text are written as \xNN
	Overwritten                   // the line has carriage returns: its last state was read
	NotFinite                     // a number was nan or inf and is left out
	Invalid                       // a number cannot be: a negative or absurd duration
	Unterminated                  // the file ended without a line end
	NoRepeat                      // values of the lines that Ray folded into this one are unknown
)

var markNames = []string{"time_assumed", "zone_assumed", "date_assumed", "cut", "interleaved", "truncated", "binary", "overwritten",
	"not_finite", "invalid", "unterminated", "others_unknown"}

// String lists the marks, with commas between them.
func (m Mark) String() string {
	if m == 0 {
		return ""
	}
	var b strings.Builder
	for i, n := range markNames {
		if m&(1<<i) != 0 {
			if b.Len() > 0 {
				b.WriteByte(',')
			}
			b.WriteString(n)
		}
	}
	return b.String()
}

// Record is one line. It shares no memory with what the parser was given.
type Record struct {
	Time    int64  // ns since 1970 (UTC)
	Line    string // as it was written, without its end
	Message string // Line without prefixes and colours; what Format says is in it
	Format  string // which grammar read it: sglang.decode, uvicorn.access, ...; "" for none
	Class   Class
	Level   string // debug, info, warning, error, critical; "" when the line does not say
	Repeat  int    // how many lines it stands for, at least 1
	Engine  string
	Fields  []event.Field // numbers and words that were read
	Marks   Mark

	Request *request.Observation // what the line says about one request
	Step    *Step                // metrics of a training step
}

// Get returns a field's value, "" when the line has none.
func (r *Record) Get(name string) string {
	for i := range r.Fields {
		if r.Fields[i].Name == name {
			return r.Fields[i].Value
		}
	}
	return ""
}

// Options of a Parser.
type Options struct {
	Source  string // name of the source: a path, "stdin"; the field source of each row
	Engine  string // the engine that writes here, "" when unknown or when there are several
	Service string
	// Zone is that of the times without one; nil: not known.
	Zone *time.Location
	// EngineOf names the engine of a line with a Ray prefix, "" when it is not known; nil: Engine.
	EngineOf func(actor, pid, ip string) string
	// Reference is about when the source was written, ns since 1970, such as a file's time of change: what
	// times of day and days without a year are completed by when no line tells. 0: not known.
	Reference int64
	// Offset is what an earlier Parser of this source had learned, see [Parser.Offset].
	Offset *time.Duration
}

// Parser turns the lines of one source into records. It is not safe for concurrent use.
type Parser struct {
	opt     Options
	unwrap  unwrapper
	clock   clock
	streams map[string]*stream // by Ray prefix
	main    stream
	arena   []event.Field
	fields  []event.Field // of the line in work
}

// stream is one writer's lines in a source that mixes several.
type stream struct {
	last  int64 // time of the last line
	block string
	kind  blockKind
	lines int
	class Class // class that the block's lines have given already
}

// maxStreams bounds how many writers are told apart in one source; more share one state.
const maxStreams = 4096

// MaxLine is how many bytes of a line are read.
const MaxLine = 1 << 20

// NewParser makes a Parser.
func NewParser(o Options) *Parser {
	p := &Parser{opt: o, streams: map[string]*stream{}, fields: make([]event.Field, 0, 64)}
	p.clock.zone, p.clock.reference = o.Zone, o.Reference
	if o.Offset != nil {
		p.clock.learned, p.clock.offset = true, *o.Offset
	}
	return p
}

// Offset returns how far the source's local time is ahead of UTC as learned while following, and whether
// anything was learned. Hand it to the next Parser of the source.
func (p *Parser) Offset() (time.Duration, bool) { return p.clock.offset, p.clock.learned }

// Learn tells the parser that the source's local time stamped at was written at the moment moment (ns).
func (p *Parser) Learn(line []byte, moment int64) {
	l := lineState{}
	if l.stamp(l.prefix(cleanLine(line).text)); l.hasTime && !l.zoned && l.dated {
		p.clock.learn(l.local, moment)
	}
}

// Line reads one line without its line end. At is when it came in, ns since 1970, or 0 when it is read
// later than it was written. ok is false when nothing is to be recorded yet: the line is empty or a part
// of a container runtime's partial line.
func (p *Parser) Line(line []byte, at int64) (rec Record, ok bool) {
	line, wrapped, ok := p.unwrap.line(line)
	if !ok {
		return Record{}, false
	}
	if wrapped.time != 0 {
		at = wrapped.time
	}
	return p.read(line, at, wrapped)
}

// Holding tells whether the parser holds a part of a line.
func (p *Parser) Holding() bool { return p.unwrap.holding }

// Flush returns what Line held back, if anything.
func (p *Parser) Flush() (rec Record, ok bool) {
	line, wrapped, ok := p.unwrap.flush()
	if !ok {
		return Record{}, false
	}
	rec, ok = p.read(line, wrapped.time, wrapped)
	rec.Marks |= Cut
	return rec, ok
}

func (p *Parser) read(line []byte, at int64, w wrapping) (Record, bool) {
	c := cleanLine(line)
	if c.raw == "" {
		return Record{}, false
	}
	p.fields = p.fields[:0]
	l := lineState{p: p, marks: c.marks | w.marks, repeat: 1, fields: p.fields}
	if len(line) > MaxLine {
		l.marks |= Truncated
	}
	s := l.prefix(c.text)
	st := p.stream(&l)
	s = l.stamp(s)
	l.at(p, st, at)
	l.classify(st, s)
	l.finish(st, c)
	p.fields = l.fields

	rec := Record{
		Time: l.time, Line: c.raw, Message: l.msg, Format: l.format, Class: l.class, Level: l.level, Repeat: l.repeat,
		Engine: p.opt.Engine, Marks: l.marks, Request: l.request, Step: l.step,
	}
	if p.opt.EngineOf != nil && l.pid != "" {
		rec.Engine = p.opt.EngineOf(l.actor, l.pid, l.ip)
	}
	if w.stream != "" {
		l.add("stream", w.stream)
		p.fields = l.fields
	}
	rec.Fields = p.keep(l.fields)
	if rec.Request != nil {
		if rec.Request.Engine == "" {
			rec.Request.Engine = rec.Engine
		}
		if rec.Request.Service == "" {
			rec.Request.Service = p.opt.Service
		}
	}
	if rec.Step != nil {
		rec.Step.Time = rec.Time
	}
	return rec, true
}

// keep copies fields out of the parser's buffer. Many lines share one allocation.
func (p *Parser) keep(f []event.Field) []event.Field {
	if len(f) == 0 {
		return nil
	}
	if cap(p.arena)-len(p.arena) < len(f) {
		p.arena = make([]event.Field, 0, max(512, len(f)))
	}
	n := len(p.arena)
	p.arena = append(p.arena, f...)
	return p.arena[n:len(p.arena):len(p.arena)]
}

func (p *Parser) stream(l *lineState) *stream {
	if l.actor == "" {
		return &p.main
	}
	if s := p.streams[l.who]; s != nil {
		return s
	}
	if len(p.streams) >= maxStreams {
		return &p.main
	}
	s := &stream{}
	p.streams[strings.Clone(l.who)] = s
	return s
}

// Row writes the record as a row of the event store. Fields that every log row may have stand first, in
// the order of docs/logs.md.
func (r *Record) Row(o Options) event.Row {
	row := event.Row{Kind: event.Log, Time: r.Time, Message: r.Line, Service: o.Service, Engine: r.Engine}
	row.Fields = make([]event.Field, 0, len(r.Fields)+6)
	row.Add("level", r.Level)
	row.Add("class", string(r.Class))
	row.Add("format", r.Format)
	row.Add("source", o.Source)
	if r.Repeat > 1 {
		row.Add("repeat", itoa(r.Repeat))
	}
	row.Add("marks", r.Marks.String())
	for _, f := range r.Fields {
		if f.Value != "" && row.Get(f.Name) == "" {
			row.Fields = append(row.Fields, f)
		}
	}
	return row
}

// cleaned is a line as it is kept and as it is read.
type cleaned struct {
	raw   string
	text  string // without colours and overwritten parts
	marks Mark
}

// cleanLine makes a line text: bytes that are none are written as \xNN, zero bytes before the text (a log
// that was cut while its writer went on) are dropped.
func cleanLine(b []byte) cleaned {
	var c cleaned
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == '\r') {
		b = b[:len(b)-1]
	}
	if len(b) > 0 && b[0] == 0 {
		for len(b) > 0 && b[0] == 0 {
			b = b[1:]
		}
		c.marks |= Binary
	}
	if len(b) > MaxLine {
		b = b[:MaxLine]
		for i := 0; i < 3 && len(b) > 0 && !utf8.RuneStart(b[len(b)-1]); i++ {
			b = b[:len(b)-1]
		}
		if len(b) > 0 && b[len(b)-1] >= 0xc0 {
			b = b[:len(b)-1]
		}
	}
	special := false
	for _, x := range b {
		if x < 0x20 && x != '\t' || x == 0x7f {
			special = true
			break
		}
	}
	if !utf8.Valid(b) {
		c.marks |= Binary
		c.raw = escapeBytes(b)
	} else {
		c.raw = string(b)
	}
	c.text = c.raw
	if !special {
		return c
	}
	if strings.IndexByte(c.raw, 0) >= 0 {
		c.marks |= Binary
		c.raw = escapeBytes([]byte(c.raw))
		c.text = c.raw
	}
	if strings.IndexByte(c.text, 0x1b) >= 0 {
		c.text = stripANSI(c.text)
	}
	if strings.IndexByte(c.text, '\r') >= 0 {
		c.marks |= Overwritten
		parts := strings.Split(c.text, "\r")
		for i := len(parts) - 1; i >= 0; i-- {
			if strings.TrimSpace(parts[i]) != "" {
				c.text = parts[i]
				break
			}
		}
	}
	return c
}

const hexDigits = "0123456789abcdef"

// escapeBytes writes zero bytes and bytes that are no UTF-8 as \xNN.
func escapeBytes(b []byte) string {
	var s strings.Builder
	s.Grow(len(b) + 16)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 || r == 0 {
			s.WriteString(`\x`)
			s.WriteByte(hexDigits[b[0]>>4])
			s.WriteByte(hexDigits[b[0]&15])
		} else {
			s.Write(b[:n])
		}
		b = b[n:]
	}
	return s.String()
}

// stripANSI drops terminal control sequences: CSI (colours, cursor) and OSC (titles, links).
func stripANSI(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		if s[i] != 0x1b {
			b.WriteByte(s[i])
			i++
			continue
		}
		i++
		if i >= len(s) {
			break
		}
		switch s[i] {
		case '[':
			for i++; i < len(s) && (s[i] < 0x40 || s[i] > 0x7e); i++ {
			}
			i++
		case ']':
			for i++; i < len(s) && s[i] != 7 && s[i] != 0x1b; i++ {
			}
			if i < len(s) && s[i] == 7 {
				i++
			} else if i+1 < len(s) && s[i+1] == '\\' {
				i += 2
			}
		default:
			i++
		}
	}
	return b.String()
}
