package child

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/VictoriaMetrics/VictoriaLogs/app/vlstorage"
	"github.com/VictoriaMetrics/VictoriaLogs/lib/logstorage"
	"github.com/VictoriaMetrics/VictoriaMetrics/lib/logger"

	"github.com/rollscope/rollscope/internal/eventstore/wire"
)

// maxBody bounds the lines of one request; the parent sends far less.
const maxBody = 256 << 20

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// insert answers [wire.InsertPath]. It does what VictoriaLogs' /insert/jsonline does, for a third of the
// cost: the lines come from one writer and have one form.
func insert(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "POST this path", http.StatusMethodNotAllowed)
		return
	}
	var storage vlstorage.Storage
	if err := storage.CanWriteData(); err != nil {
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	body := bodies.Get().(*bytes.Buffer)
	defer func() {
		if body.Cap() <= 8<<20 {
			body.Reset()
			bodies.Put(body)
		}
	}()
	if r.ContentLength > 0 && r.ContentLength <= maxBody {
		body.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	if _, err := body.ReadFrom(io.LimitReader(r.Body, maxBody+1)); err != nil {
		http.Error(w, "the lines are cut off: "+err.Error(), http.StatusInternalServerError)
		return
	}
	if body.Len() > maxBody {
		http.Error(w, fmt.Sprintf("more than %d bytes of lines", maxBody), http.StatusRequestEntityTooLarge)
		return
	}
	rows := logstorage.GetLogRows(streamFields, nil, nil, nil, "")
	defer logstorage.PutLogRows(rows)
	var p lineParser
	refused := 0
	for rest := body.Bytes(); len(rest) > 0; {
		line := rest
		if n := bytes.IndexByte(rest, '\n'); n >= 0 {
			line, rest = rest[:n], rest[n+1:]
		} else {
			rest = nil
		}
		at, err := p.parse(line)
		if err != nil {
			logger.Warnf("a row cannot be read: %s: %.200q", err, line)
			refused++
			continue
		}
		rows.MustAdd(logstorage.TenantID{}, at, p.fields, -1)
		if rows.NeedFlush() {
			storage.MustAddRows(rows)
			rows.ResetKeepSettings()
		}
	}
	storage.MustAddRows(rows)
	w.Header().Set(wire.RefusedHeader, strconv.Itoa(refused))
	w.WriteHeader(http.StatusNoContent)
}

// lineParser reads lines as package eventstore writes them: one JSON object, _seq and _time first and as
// whole numbers, all other values strings.
type lineParser struct {
	fields []logstorage.Field // of the last line, by name; they alias it
	found  []logstorage.Field // the same as they stand in the line
	orders []nameOrder        // the last ones used first
}

// nameOrder is how the fields of a line are put in order of their names. The storage does so with each
// row, and is quick when it is done; most lines have the names of one of the lines right before.
type nameOrder struct {
	names []string
	from  []int // fields[i] is found[from[i]]
}

const maxOrders = 8

// sort makes fields of found.
func (p *lineParser) sort() {
	i := slices.IndexFunc(p.orders, func(o nameOrder) bool {
		if len(o.names) != len(p.found) {
			return false
		}
		for k := range o.names {
			if o.names[k] != p.found[k].Name {
				return false
			}
		}
		return true
	})
	if i < 0 {
		o := nameOrder{names: make([]string, len(p.found)), from: make([]int, len(p.found))}
		for k := range p.found {
			o.names[k], o.from[k] = strings.Clone(p.found[k].Name), k
		}
		slices.SortStableFunc(o.from, func(a, b int) int { return strings.Compare(sortName(o.names[a]), sortName(o.names[b])) })
		if len(p.orders) == maxOrders {
			p.orders = p.orders[:maxOrders-1]
		}
		p.orders = append(p.orders, o)
		i = len(p.orders) - 1
	}
	o := p.orders[i]
	copy(p.orders[1:i+1], p.orders[:i])
	p.orders[0] = o
	p.fields = p.fields[:0]
	for _, k := range o.from {
		p.fields = append(p.fields, p.found[k])
	}
}

// sortName is what the storage calls a field inside.
func sortName(name string) string {
	if name == "_msg" {
		return ""
	}
	return name
}

const (
	seqPrefix  = `{"_seq":`
	timePrefix = `,"_time":`
)

var errLine = errors.New("it is no line of the spool")

// parse returns the time of a line in ns. Escaped text is unescaped in place.
func (p *lineParser) parse(line []byte) (int64, error) {
	p.found = p.found[:0]
	escaped := bytes.IndexByte(line, '\\') >= 0
	rest, ok := bytes.CutPrefix(line, []byte(seqPrefix))
	n := bytes.IndexByte(rest, ',')
	if !ok || n <= 0 {
		return 0, errLine
	}
	p.found = append(p.found, logstorage.Field{Name: "_seq", Value: lend(rest[:n])})
	rest, ok = bytes.CutPrefix(rest[n:], []byte(timePrefix))
	if n = bytes.IndexByte(rest, ','); !ok || n <= 0 {
		return 0, errLine
	}
	at, err := strconv.ParseInt(lend(rest[:n]), 10, 64)
	if err != nil {
		return 0, errLine
	}
	for rest = rest[n:]; ; {
		// rest begins with a comma or the object's end.
		if len(rest) < 2 || rest[0] != ',' || rest[1] != '"' {
			if len(rest) == 1 && rest[0] == '}' {
				p.sort()
				return at, nil
			}
			return 0, errLine
		}
		var name, value []byte
		if name, rest, ok = text(rest[2:], escaped); !ok || len(rest) < 2 || rest[0] != ':' || rest[1] != '"' {
			return 0, errLine
		}
		if value, rest, ok = text(rest[2:], escaped); !ok {
			return 0, errLine
		}
		p.found = append(p.found, logstorage.Field{Name: lend(name), Value: lend(value)})
	}
}

// text reads a JSON string behind its opening quote, and returns what follows the closing one.
func text(b []byte, escaped bool) (s, rest []byte, ok bool) {
	if !escaped {
		n := bytes.IndexByte(b, '"')
		if n < 0 {
			return nil, nil, false
		}
		return b[:n], b[n+1:], true
	}
	to := 0
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch c {
		case '"':
			return b[:to], b[i+1:], true
		case '\\':
			if i++; i == len(b) {
				return nil, nil, false
			}
			switch c = b[i]; c {
			case 'n':
				c = '\n'
			case 't':
				c = '\t'
			case 'r':
				c = '\r'
			case 'u': // only what is below a blank is written so
				if i+4 >= len(b) {
					return nil, nil, false
				}
				v, err := strconv.ParseUint(lend(b[i+1:i+5]), 16, 7)
				if err != nil {
					return nil, nil, false
				}
				c, i = byte(v), i+4
			case '"', '\\':
			default:
				return nil, nil, false
			}
		}
		b[to] = c
		to++
	}
	return nil, nil, false
}

// lend makes a string of bytes that stay as they are for as long as it is used.
func lend(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
