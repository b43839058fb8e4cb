package passstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/fpm"
)

// Flags are what is to be said of a pass beside its numbers. Their values are part of the HTTP API.
type Flags uint8

// Flags of a pass.
const (
	Heartbeat   Flags = 1 << iota // it is no pass: the engine lives, and nothing else
	Restart                       // the engine began anew before it
	Gap                           // messages before it did not come
	Late                          // newer ones came before it
	Implausible                   // what it says of its time cannot be
)

// words are how flags stand in a row.
var words = []struct {
	flag Flags
	word string
}{{Heartbeat, "heartbeat"}, {Restart, "restart"}, {Gap, "gap"}, {Late, "late"}, {Implausible, "implausible"}}

// Row is one message of one rank.
type Row struct {
	Key        fpm.Key
	Engine     string // namespace/component/worker
	Name       string // of the engine as elsewhere in the program, "" when it is not known
	Time       int64  // when it came (or was written, out of a file), ns since 1970
	Counter    uint64 // counter_id
	HasCounter bool
	HasQueued  bool
	Flags      Flags
	Missing    uint64  // messages before it that did not come
	Wall       float64 // seconds; 0 of a heartbeat and of one whose time cannot be
	Scheduled  fpm.Scheduled
	Queued     fpm.Queued
}

// fields of a row's numbers, under the names of the wire format. Those of what waits begin with queued_.
var numbers = []struct {
	name string
	of   func(*Row) *uint64
}{
	{"num_prefill_requests", func(r *Row) *uint64 { return &r.Scheduled.PrefillRequests }},
	{"sum_prefill_tokens", func(r *Row) *uint64 { return &r.Scheduled.PrefillTokens }},
	{"sum_prefill_kv_tokens", func(r *Row) *uint64 { return &r.Scheduled.PrefillKV }},
	{"num_decode_requests", func(r *Row) *uint64 { return &r.Scheduled.DecodeRequests }},
	{"sum_decode_kv_tokens", func(r *Row) *uint64 { return &r.Scheduled.DecodeKV }},
	{"queued_num_prefill_requests", func(r *Row) *uint64 { return &r.Queued.PrefillRequests }},
	{"queued_sum_prefill_tokens", func(r *Row) *uint64 { return &r.Queued.PrefillTokens }},
	{"queued_num_decode_requests", func(r *Row) *uint64 { return &r.Queued.DecodeRequests }},
	{"queued_sum_decode_kv_tokens", func(r *Row) *uint64 { return &r.Queued.DecodeKV }},
}

// firstQueued is where those of what waits begin.
const firstQueued = 5

var variances = []struct {
	name string
	of   func(*Row) *float64
}{
	{"var_prefill_length", func(r *Row) *float64 { return &r.Scheduled.PrefillLengths }},
	{"var_decode_kv_tokens", func(r *Row) *float64 { return &r.Scheduled.DecodeLengths }},
	{"queued_var_prefill_length", func(r *Row) *float64 { return &r.Queued.PrefillLengths }},
	{"queued_var_decode_kv_tokens", func(r *Row) *float64 { return &r.Queued.DecodeLengths }},
}

// appendEvent makes the row of the event store. Its fields are appended to fields, which it returns.
func (r *Row) appendEvent(fields []event.Field, burst string) (event.Row, []event.Field) {
	from := len(fields)
	add := func(name, value string) { fields = append(fields, event.Field{Name: name, Value: value}) }
	text := func(name, value string) {
		if value != "" {
			add(name, value)
		}
	}
	text("namespace", r.Key.Namespace)
	text("component", r.Key.Component)
	text("worker_id", r.Key.Worker)
	if r.Key.Publisher != 0 {
		add("publisher_id", strconv.FormatUint(r.Key.Publisher, 10))
	}
	text("pass_source", r.Key.Source)
	add("dp_rank", strconv.FormatUint(uint64(r.Key.Rank), 10))
	if r.HasCounter {
		add("counter_id", strconv.FormatUint(r.Counter, 10))
	}
	if r.Flags&Implausible == 0 {
		add("wall_time", strconv.FormatFloat(r.Wall, 'g', -1, 64))
	}
	for i, n := range numbers {
		if i < firstQueued || r.HasQueued {
			add(n.name, strconv.FormatUint(*n.of(r), 10))
		}
	}
	for _, v := range variances {
		if x := *v.of(r); x != 0 {
			add(v.name, strconv.FormatFloat(x, 'g', -1, 64))
		}
	}
	if r.Flags != 0 {
		var marks []string
		for _, w := range words {
			if r.Flags&w.flag != 0 {
				marks = append(marks, w.word)
			}
		}
		add("marks", strings.Join(marks, ","))
	}
	if r.Missing > 0 {
		add("missing", strconv.FormatUint(r.Missing, 10))
	}
	text("burst", burst)
	name := r.Name
	if name == "" {
		name = r.Engine
	}
	return event.Row{Kind: event.Pass, Time: r.Time, Message: "pass", Service: r.Key.Component, Engine: name, Fields: fields[from:len(fields):len(fields)]}, fields
}

// read makes a row of what the event store holds; ok is false for what is no row of a pass.
func (r *Row) read(fields []event.Field, time func(string) (int64, error)) (burst string, err error) {
	*r = Row{}
	for _, f := range fields {
		switch f.Name {
		case "_time":
			if r.Time, err = time(f.Value); err != nil {
				return "", err
			}
		case "engine":
			r.Name = strings.Clone(f.Value)
		case "namespace":
			r.Key.Namespace = strings.Clone(f.Value)
		case "component":
			r.Key.Component = strings.Clone(f.Value)
		case "worker_id":
			r.Key.Worker = strings.Clone(f.Value)
		case "publisher_id":
			r.Key.Publisher, err = strconv.ParseUint(f.Value, 10, 64)
		case "pass_source":
			r.Key.Source = strings.Clone(f.Value)
		case "dp_rank":
			var n uint64
			n, err = strconv.ParseUint(f.Value, 10, 32)
			r.Key.Rank = uint32(n)
		case "counter_id":
			r.Counter, err = strconv.ParseUint(f.Value, 10, 64)
			r.HasCounter = err == nil
		case "wall_time":
			r.Wall, err = strconv.ParseFloat(f.Value, 64)
		case "missing":
			r.Missing, err = strconv.ParseUint(f.Value, 10, 64)
		case "marks":
			for m := range strings.SplitSeq(f.Value, ",") {
				for _, w := range words {
					if w.word == m {
						r.Flags |= w.flag
					}
				}
			}
		case "burst":
			burst = strings.Clone(f.Value)
		default:
			for i, n := range numbers {
				if n.name == f.Name {
					*n.of(r), err = strconv.ParseUint(f.Value, 10, 64)
					r.HasQueued = r.HasQueued || i >= firstQueued
				}
			}
			for _, v := range variances {
				if v.name == f.Name {
					*v.of(r), err = strconv.ParseFloat(f.Value, 64)
				}
			}
		}
		if err != nil {
			return "", fmt.Errorf("a stored pass has %s=%q: %w", f.Name, f.Value, err)
		}
	}
	r.Engine = EngineOf(r.Key)
	if r.Name == r.Engine {
		r.Name = ""
	}
	return burst, nil
}

// EngineOf is namespace/component/worker. A worker without an id is named by its publisher, else by where it
// is heard.
func EngineOf(k fpm.Key) string { return k.Namespace + "/" + k.Component + "/" + WorkerOf(k) }

// WorkerOf is the worker's part of [EngineOf].
func WorkerOf(k fpm.Key) string {
	switch {
	case k.Worker != "":
		return k.Worker
	case k.Publisher != 0:
		return "publisher-" + strconv.FormatUint(k.Publisher, 10)
	}
	return k.Source
}
