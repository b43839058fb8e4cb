package eventstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore/wire"
)

// Query is what [Store.Query] asks.
type Query struct {
	LogsQL string
	// From and To bound the rows' time in ns since 1970, both inclusive; 0 leaves that side open. Always
	// give them when they are known: rows lie in a partition for each day.
	From, To int64
	// Limit is the number of rows at most, the newest then, newest first; 0: all, in no order.
	Limit int
}

// ErrStop ends a query from inside its callback; Query then returns nil.
var ErrStop = errors.New("stop")

// QueryError is a query that the store cannot read or answer.
type QueryError struct {
	Query string
	Words string // of the server
}

func (e *QueryError) Error() string {
	const most = 400 // of either: queries of ours may have thousands of values, and the server repeats them
	return fmt.Sprintf("the event store refuses %q: %s", cut(e.Query, most), cut(e.Words, most))
}

// cut leaves out the middle: a server says what is wrong behind the query that it repeats.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most/2], "") + " ... " + strings.ToValidUTF8(s[len(s)-most/2:], "")
}

// MaxQueryBytes is how long a query may be: a list of values that is longer must be asked in parts.
func (s *Store) MaxQueryBytes() int {
	if s.sup == nil {
		return 15 << 10 // a VictoriaLogs refuses more than 16 KiB unless it was told otherwise
	}
	return wire.QueryBytes - 1<<10
}

// Query calls fn with the fields of each row found; they are valid during the call only. It returns nil
// when fn returned [ErrStop], what fn returned otherwise, a [*QueryError] for a query that is wrong, and
// an error that is [ErrDown] when the store cannot be reached or ended meanwhile.
//
// Rows that were visible stay so: when the process ended with rows in memory alone, the next one is sent them
// again before it is asked. A query waits for that for 30 s, and is [ErrDown] then; while the disk is full or
// the spool cannot be read it is answered without them, and [Store.State] says so.
//
// A store that was never written to finds nothing, and starts no process to find it.
func (s *Store) Query(ctx context.Context, q Query, fn func(fields []event.Field) error) error {
	if s.sup != nil && !s.sup.isNeeded() && !s.closed.Load() {
		return nil
	}
	if err := s.complete(ctx); err != nil {
		return err
	}
	const again = 3
	for try := 1; ; try++ {
		c, err := s.answering(ctx)
		if err != nil {
			return err
		}
		rows, err := s.ask(ctx, c, q, fn)
		if s.sup == nil || !errors.Is(err, ErrDown) || ctx.Err() != nil {
			return err
		}
		// A damaged part may show only when a query reads it: it ends the child, is set aside, and the
		// query can be answered without it, by us as long as the caller has seen no row.
		s.sup.passed(ctx, c.generation)
		if rows > 0 || try == again {
			return fmt.Errorf("%w (%s); ask again", err, s.sup.lastReason())
		}
	}
}

// ask runs a query in the way that is cheapest for the store. For the newest rows it halves the range of
// time until the rows that are left are few, and reads all fields of some of them each time. So it is given
// a range that begins no earlier than rows can, and is asked for their times first.
func (s *Store) ask(ctx context.Context, c *client, q Query, fn func([]event.Field) error) (int, error) {
	if q.Limit <= 0 {
		return c.query(ctx, q, fn)
	}
	if now := s.opts.Now(); !c.remote && !s.readOnly {
		if q.From == 0 {
			q.From = now.Add(-s.opts.Retention - 48*time.Hour).UnixNano()
		}
		if q.To == 0 {
			q.To = now.Add(2 * futureSlack).UnixNano()
		}
	}
	if strings.Contains(q.LogsQL, "|") {
		return c.query(ctx, q, fn)
	}
	times := q
	times.LogsQL += "\n| fields _time" // on a line of its own: a comment may stand in the last one
	from := int64(math.MaxInt64)
	n, err := c.query(ctx, times, func(fields []event.Field) error {
		for _, f := range fields {
			if f.Name == "_time" {
				t, err := time.Parse(time.RFC3339Nano, f.Value)
				if err != nil {
					return fmt.Errorf("%w: _time is %q", ErrDown, f.Value)
				}
				from = min(from, t.UnixNano())
			}
		}
		return nil
	})
	var wrong *QueryError
	if errors.As(err, &wrong) {
		wrong.Query = q.LogsQL
	}
	if err != nil || n == 0 {
		return 0, err
	}
	q.From = max(q.From, from)
	return c.query(ctx, q, fn)
}

func queryTime(ns int64) string {
	if ns >= 1e18 { // 2001: shorter numbers are taken for coarser units
		return strconv.FormatInt(ns, 10)
	}
	return time.Unix(0, ns).UTC().Format("2006-01-02T15:04:05.000000000Z")
}

// query runs q and returns the number of rows that fn saw.
func (c *client) query(ctx context.Context, q Query, fn func([]event.Field) error) (int, error) {
	form := url.Values{"query": {q.LogsQL}}
	if q.From != 0 {
		form.Set("start", queryTime(q.From))
	}
	if q.To != 0 {
		form.Set("end", queryTime(q.To+1)) // exclusive there
	}
	if q.Limit > 0 {
		form.Set("limit", strconv.Itoa(q.Limit))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/select/logsql/query", strings.NewReader(form.Encode()))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, c.broken(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		words := readWords(resp.Body)
		if resp.StatusCode >= 500 {
			return 0, fmt.Errorf("%w: %s: %s", ErrDown, resp.Status, words)
		}
		return 0, &QueryError{q.LogsQL, words}
	}
	r := bufio.NewReaderSize(resp.Body, 64<<10)
	rows := 0
	var fields []event.Field
	var long []byte
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, line...)
			continue
		}
		if len(long) > 0 {
			long = append(long, line...)
			line = long
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return rows, c.broken(ctx, err)
		}
		if text := strings.TrimSuffix(string(line), "\n"); text != "" {
			if text[0] != '{' { // what went wrong after rows were sent stands in plain words
				return rows, &QueryError{q.LogsQL, text}
			}
			fields, perr := parseRow(fields[:0], text)
			if perr != nil {
				return rows, fmt.Errorf("%w: row %d of the answer: %w", ErrDown, rows+1, perr)
			}
			rows++
			switch ferr := fn(fields); {
			case errors.Is(ferr, ErrStop):
				return rows, nil
			case ferr != nil:
				return rows, ferr
			}
		}
		if err != nil {
			return rows, nil
		}
		long = long[:0]
	}
}

func readWords(r io.Reader) string {
	b, _ := io.ReadAll(io.LimitReader(r, 2*wire.QueryBytes)) // it repeats the query first
	return strings.TrimSpace(string(b))
}

// parseRow reads a JSON object of strings. The fields alias the text where it has no escapes.
func parseRow(fields []event.Field, text string) ([]event.Field, error) {
	p := rowParser{text: text}
	if !p.take('{') {
		return nil, p.fail("no object")
	}
	if p.take('}') {
		return fields, p.end()
	}
	for {
		name, err := p.str()
		if err != nil {
			return nil, err
		}
		if !p.take(':') {
			return nil, p.fail("no colon after a name")
		}
		value, err := p.str()
		if err != nil {
			return nil, err
		}
		// A server that was started by somebody else puts this text where a row has no message.
		if value != "" && (name != "_msg" || !strings.HasPrefix(value, "missing _msg field; see ")) {
			fields = append(fields, event.Field{Name: name, Value: value})
		}
		if p.take(',') {
			continue
		}
		if p.take('}') {
			return fields, p.end()
		}
		return nil, p.fail("neither a comma nor the end after a value")
	}
}

type rowParser struct {
	text string
	at   int
}

func (p *rowParser) fail(what string) error { return fmt.Errorf("byte %d: %s", p.at, what) }

func (p *rowParser) take(c byte) bool {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t' || p.text[p.at] == '\r') {
		p.at++
	}
	if p.at < len(p.text) && p.text[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *rowParser) end() error {
	if rest := strings.TrimSpace(p.text[p.at:]); rest != "" {
		return p.fail("more after the object")
	}
	return nil
}

func (p *rowParser) str() (string, error) {
	if !p.take('"') {
		return "", p.fail("no string")
	}
	from := p.at
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case '"':
			p.at++
			return p.text[from : p.at-1], nil
		case '\\':
			return p.unescape(from)
		}
		p.at++
	}
	return "", p.fail("a string without an end")
}

// unescape reads on at the first backslash of a string that began at from.
func (p *rowParser) unescape(from int) (string, error) {
	b := append([]byte(nil), p.text[from:p.at]...)
	for p.at < len(p.text) {
		c := p.text[p.at]
		p.at++
		switch {
		case c == '"':
			return string(b), nil
		case c != '\\':
			b = append(b, c)
			continue
		}
		if p.at >= len(p.text) {
			break
		}
		c = p.text[p.at]
		p.at++
		switch c {
		case '"', '\\', '/':
			b = append(b, c)
		case 'n':
			b = append(b, '\n')
		case 't':
			b = append(b, '\t')
		case 'r':
			b = append(b, '\r')
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'u':
			r, err := p.hex4()
			if err != nil {
				return "", err
			}
			if utf16.IsSurrogate(r) {
				low := rune(utf8.RuneError)
				if strings.HasPrefix(p.text[p.at:], `\u`) {
					p.at += 2
					if low, err = p.hex4(); err != nil {
						return "", err
					}
				}
				r = utf16.DecodeRune(r, low)
			}
			b = utf8.AppendRune(b, r)
		default:
			return "", p.fail("an unknown escape")
		}
	}
	return "", p.fail("a string without an end")
}

func (p *rowParser) hex4() (rune, error) {
	if p.at+4 > len(p.text) {
		return 0, p.fail("a cut escape")
	}
	v, err := strconv.ParseUint(p.text[p.at:p.at+4], 16, 32)
	if err != nil {
		return 0, p.fail("an escape that is no number")
	}
	p.at += 4
	return rune(v), nil
}
