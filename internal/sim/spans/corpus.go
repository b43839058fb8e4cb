package spans

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rollscope/rollscope/internal/sim"
	"github.com/rollscope/rollscope/internal/span"
)

// Corpus is some minutes of a fleet's traces as OTLP requests, made once and sent again and again: each round
// has other ids and the times of its own. So a load of any rate costs little to make. Requests have the spans of
// all processes in the order in which they are exported, as from a collector that gathers them.
type Corpus struct {
	Spans    int           // of one round
	Traces   int           // of one round
	Length   time.Duration // of the time that the traces are from
	requests []request
	end      int64 // ns; of the last span
}

// request is the body of one export and what changes in it.
type request struct {
	body  []byte
	spans int
	ids   []int // offsets of 8 bytes that a round's salt is applied to
	times []int // offsets of times
	hex   []place
}

// place is hex digits of an id in a text: those of a whole rid, or its beginning, or a number without zeros.
type place struct{ at, digits int }

// CorpusOptions say what a corpus is made of.
type CorpusOptions struct {
	Fleet  sim.Config    // whose requests
	Traces Options       // how they are traced
	For    time.Duration // of the fleet's time; default 2 minutes
	Warm   time.Duration // before that, not traced; default 30 s
	Batch  int           // spans of a request at most; default 512, as OpenTelemetry's exporters send
	Max    int           // spans at most; default 200,000
}

const defaultLength = 2 * time.Minute

// NewCorpus runs the fleet and keeps what its traces would be.
func NewCorpus(o CorpusOptions) (*Corpus, error) {
	if o.For <= 0 {
		o.For = defaultLength
	}
	if o.Warm <= 0 {
		o.Warm = 30 * time.Second
	}
	if o.Batch <= 0 {
		o.Batch = defaultBatch
	}
	if o.Max <= 0 {
		o.Max = 200_000
	}
	r, err := New(o.Traces)
	if err != nil {
		return nil, err
	}
	f, err := sim.New(o.Fleet)
	if err != nil {
		return nil, err
	}
	f.Advance(f.Start().Add(o.Warm))
	f.Watch(sim.Watch{Call: r.Call})
	from := f.Now()
	c := &Corpus{}
	traces := map[span.TraceID]bool{}
	var held []span.Span
	flush := func() {
		q := request{body: span.AppendTraces(nil, held), spans: len(held)}
		q.index()
		c.requests = append(c.requests, q)
		c.Spans += len(held)
		held = held[:0]
	}
	take := func(to time.Time) {
		for _, s := range r.Due(to) {
			held = append(held, s)
			traces[s.Trace] = true
			c.end = max(c.end, s.End)
			if len(held) >= o.Batch {
				flush()
			}
		}
	}
	until := from.Add(o.For)
	for f.Now().Before(until) && c.Spans < o.Max {
		f.Advance(f.Now().Add(time.Second))
		take(f.Now())
	}
	take(f.Now().Add(time.Hour)) // what waits
	if len(held) > 0 {
		flush()
	}
	if c.Spans == 0 {
		return nil, fmt.Errorf("sim traces: the fleet finished no request within %s: give it more time or another load", o.For)
	}
	c.Traces, c.Length = len(traces), f.Now().Sub(from)
	return c, nil
}

// Requests is how many requests a round has.
func (c *Corpus) Requests() int { return len(c.requests) }

// AppendRequest appends request i of a round as an ExportTraceServiceRequest, with its number of spans. The
// times are such that the round's last span ends at end (ns since 1970).
func (c *Corpus) AppendRequest(dst []byte, i int, round uint64, end int64) ([]byte, int) {
	q := &c.requests[i]
	from := len(dst)
	dst = append(dst, q.body...)
	b := dst[from:]
	salt := mix(round)
	if round == 0 {
		salt = 0
	}
	for _, at := range q.ids {
		binary.BigEndian.PutUint64(b[at:], binary.BigEndian.Uint64(b[at:])^salt)
	}
	var tmp [8]byte
	for _, h := range q.hex {
		text := b[h.at : h.at+h.digits]
		n := (h.digits + 1) / 2
		if _, err := hex.Decode(tmp[:n], text); err != nil {
			continue
		}
		var s [8]byte
		binary.BigEndian.PutUint64(s[:], salt)
		for k := range n {
			tmp[k] ^= s[k]
		}
		hex.Encode(text, tmp[:n])
	}
	shift := uint64(end - c.end)
	for _, at := range q.times {
		binary.LittleEndian.PutUint64(b[at:], binary.LittleEndian.Uint64(b[at:])+shift)
	}
	return dst, q.spans
}

// index finds what changes from round to round: ids in binary (of traces the upper half only when it is not
// zero), times, and the ids that stand in names and attributes.
func (q *request) index() {
	body := q.body
	var walk func(b []byte, base int, path string)
	walk = func(b []byte, base int, path string) {
		for at := 0; at < len(b); {
			num, typ, n := protowire.ConsumeTag(b[at:])
			if n < 0 {
				return // of our own making: cannot be
			}
			at += n
			here := path + "." + fmt.Sprint(int(num))
			if typ == protowire.Fixed64Type && slices.Contains(timeFields(), here) {
				q.times = append(q.times, base+at)
			}
			if typ != protowire.BytesType {
				at += max(protowire.ConsumeFieldValue(num, typ, b[at:]), 1)
				continue
			}
			size, n := protowire.ConsumeVarint(b[at:])
			at += n
			data := b[at : at+int(size)]
			switch here {
			case ".1", ".1.2", ".1.2.2", ".1.2.2.11", ".1.2.2.13":
				walk(data, base+at, here)
			case ".1.2.2.1", ".1.2.2.13.1":
				if len(data) == 16 {
					if binary.BigEndian.Uint64(data) != 0 { // Dynamo's: the rid, whose halves both change
						q.ids = append(q.ids, base+at)
					}
					q.ids = append(q.ids, base+at+8)
				}
			case ".1.2.2.2", ".1.2.2.4", ".1.2.2.13.2":
				if len(data) == 8 {
					q.ids = append(q.ids, base+at)
				}
			case ".1.2.2.5":
				if i := strings.LastIndex(string(data), "Req "); i >= 0 && len(data) == i+12 {
					q.hex = append(q.hex, place{base + at + i + 4, 8})
				}
			case ".1.2.2.9":
				q.attribute(data, base+at)
			}
			at += int(size)
		}
	}
	walk(body, 0, "")
}

// timeFields are start, end and events' times of spans.
func timeFields() []string { return []string{".1.2.2.7", ".1.2.2.8", ".1.2.2.11.1"} }

// attribute finds the hex digits of ids in an attribute: in halves of 16, each of which the salt is applied to.
func (q *request) attribute(kv []byte, base int) {
	var key string
	for at := 0; at < len(kv); {
		num, typ, n := protowire.ConsumeTag(kv[at:])
		if n < 0 || typ != protowire.BytesType {
			return
		}
		at += n
		size, n := protowire.ConsumeVarint(kv[at:])
		at += n
		data := kv[at : at+int(size)]
		if num == 1 {
			key = string(data)
		}
		if num == 2 && len(data) > 2 && data[0] == 1<<3|2 {
			value, vn := protowire.ConsumeBytes(data[1:])
			off := base + at + len(data) - len(value)
			if vn > 0 {
				switch key {
				case "rid", "gen_ai.request.id", "trace_id":
					if i := len(value) - 32; i >= 0 {
						q.hex = append(q.hex, place{off + i, 16}, place{off + i + 16, 16})
					}
				case "parent_id":
					if len(value) == 16 {
						q.hex = append(q.hex, place{off, 16})
					}
				}
			}
		}
		at += int(size)
	}
}
