package scrape

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// entry is one thing a text exposition says, with the line it starts in.
type entry struct {
	kind  textparse.Entry
	line  int    // 1-based
	name  []byte // of the family in HELP, TYPE and UNIT; aliases the body
	text  []byte // help or unit; may alias the body
	typ   model.MetricType
	met   []byte // of a sample: name and labels as written; aliases the body
	value float64
	ts    *int64 // milliseconds; nil without one
	// labels are those of a sample, name included.
	labels labels.Labels
}

// badLine is a line that Prometheus's parser refuses, and which would cost the whole scrape.
type badLine struct {
	line int
	text []byte // the line without its newline; aliases the body
	from int    // offsets of the line in the body, the newline included
	to   int
	err  error
}

// maxBad bounds the work on something that is no exposition: the parser is started again after
// every bad line.
const maxBad = 10_000

// walkResult says how a walk ended.
type walkResult struct {
	noEOF   bool // OpenMetrics without "# EOF": cut off
	gaveUp  bool // after maxBad bad lines
	entries int
}

// walk runs Prometheus's own text parser over a body, and after an error starts it again behind the
// line it failed at: what comes out is exactly what Prometheus would store if the bad lines were
// not there. visit and bad may be nil.
func walk(body []byte, openMetrics bool, visit func(entry), bad func(badLine)) walkResult {
	var res walkResult
	size := len(body)
	if size == 0 {
		return res
	}
	if body[len(body)-1] != '\n' && !openMetrics {
		// A full slice expression, so that the caller's array is not written to.
		body = append(body[:len(body):len(body)], '\n')
	}
	symbols := labels.NewSymbolTable()
	at := lineCounter{body: body}
	off, nbad := 0, 0
	for off < len(body) {
		rest := body[off:]
		var p textparse.Parser
		if openMetrics {
			p = textparse.NewOpenMetricsParser(rest, symbols)
		} else {
			p = textparse.NewPromParser(rest, symbols, false)
		}
		// position is where a slice of the body starts: slices keep the capacity up to the array's end.
		position := func(s []byte) int { return len(body) - (cap(s) - (cap(body) - len(body))) }
		end := off // behind the last good entry's line
		for {
			kind, err := p.Next()
			if err != nil {
				if errors.Is(err, io.EOF) {
					return res
				}
				start := end
				if !openMetrics { // which has no blank lines
					start = skipBlank(body, end)
				}
				if start >= len(body) {
					res.noEOF = openMetrics
					return res
				}
				stop := len(body)
				if i := bytes.IndexByte(body[start:], '\n'); i >= 0 {
					stop = start + i
				}
				if openMetrics && bytes.Equal(body[start:stop], []byte("# EOF")) && len(bytes.TrimSpace(body[stop:])) == 0 {
					// Blank lines behind the end: they are what must go.
					start, stop, err = min(stop+1, size), size, errors.New("unexpected data after # EOF")
					if bad != nil {
						bad(badLine{line: at.at(start), text: body[start:stop], from: start, to: stop, err: err})
					}
					return res
				}
				if bad != nil {
					bad(badLine{line: at.at(start), text: body[start:stop], from: start, to: min(stop+1, size), err: plainError(err)})
				}
				if nbad++; nbad >= maxBad {
					res.gaveUp = true
					return res
				}
				off = min(stop+1, len(body))
				break
			}
			e := entry{kind: kind}
			var mark []byte
			switch kind {
			case textparse.EntryType:
				e.name, e.typ = p.Type()
				mark = e.name
			case textparse.EntryHelp:
				e.name, e.text = p.Help()
				mark = e.name
			case textparse.EntryUnit:
				e.name, e.text = p.Unit()
				mark = e.name
			case textparse.EntryComment:
				mark = p.Comment()
				e.text = mark
			case textparse.EntrySeries:
				e.met, e.ts, e.value = p.Series()
				p.Labels(&e.labels)
				mark = e.met
			default:
				continue
			}
			res.entries++
			pos := position(mark)
			e.line = at.at(pos)
			tail := pos + len(mark)
			if i := bytes.IndexByte(body[tail:], '\n'); i >= 0 {
				end = tail + i + 1
			} else {
				end = len(body)
			}
			if err := storable(e); err != nil {
				start := bytes.LastIndexByte(body[:pos], '\n') + 1
				if bad != nil {
					bad(badLine{line: e.line, text: bytes.TrimRight(body[start:end], "\n"), from: start, to: min(end, size), err: err})
				}
				if nbad++; nbad >= maxBad {
					res.gaveUp = true
					return res
				}
				continue
			}
			if visit != nil {
				visit(e)
			}
		}
	}
	res.noEOF = openMetrics
	return res
}

// storable finds what the parser lets pass and the scrape loop or the store refuse, with the whole
// answer.
func storable(e entry) error {
	if e.kind != textparse.EntrySeries {
		return nil
	}
	if !e.labels.IsValid(model.UTF8Validation) || e.labels.Get(model.MetricNameLabel) == "" {
		return errors.New("the metric's name or a label's name is empty or not valid")
	}
	if l, dup := e.labels.HasDuplicateLabelNames(); dup {
		return fmt.Errorf("label %q stands twice", l)
	}
	return nil
}

// skipBlank gives the offset of the first line at or behind off that has more than spaces in it.
func skipBlank(body []byte, off int) int {
	for off < len(body) {
		stop := len(body)
		if i := bytes.IndexByte(body[off:], '\n'); i >= 0 {
			stop = off + i
		}
		if len(bytes.Trim(body[off:stop], " \t")) > 0 {
			return off
		}
		off = stop + 1
	}
	return len(body)
}

// lineCounter turns growing offsets into line numbers, reading the body once.
type lineCounter struct {
	body []byte
	off  int
	line int // newlines before off
}

func (c *lineCounter) at(off int) int {
	if off < c.off {
		c.off, c.line = 0, 0
	}
	c.line += bytes.Count(c.body[c.off:off], []byte{'\n'})
	c.off = off
	return c.line + 1
}

// plainError cuts the quoted context off a parser's message; the line is quoted beside it anyway.
func plainError(err error) error {
	s := err.Error()
	if i := strings.Index(s, " while parsing: "); i >= 0 {
		s = s[:i]
	}
	if len(s) > 200 {
		s = s[:200] + "..."
	}
	return errors.New(s)
}
