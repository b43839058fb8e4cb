package spans

import (
	"container/heap"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/sim"
	"github.com/rollscope/rollscope/internal/span"
)

// Renderer turns calls into spans. It is not safe for concurrent use.
type Renderer struct {
	o     Options
	due   queue
	seq   uint64
	turns map[uint64]turn // the last trace of a conversation that an agent leads
	count int64
}

// turn is where the next turn of a conversation links to.
type turn struct {
	trace span.TraceID
	id    span.ID
}

// maxTurns bounds the conversations that are remembered.
const maxTurns = 10_000

// New makes a renderer. Give its Call to [sim.Fleet.Watch].
func New(o Options) (*Renderer, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Renderer{o: o, turns: map[uint64]turn{}}, nil
}

// Call renders one call. The spans wait until their exporters would send them, see [Renderer.Due].
func (r *Renderer) Call(c sim.Call) {
	if r.o.Share < 1 && !r.chance("share", c.ID, r.o.Share) {
		return
	}
	switch c.Kind {
	case sim.VLLM:
		r.vllm(c)
	case sim.SGLang, sim.DynamoWorker:
		r.sglang(c)
	}
}

// Due takes the spans that are exported by t, in the order in which they leave their processes.
func (r *Renderer) Due(t time.Time) []span.Span {
	var out []span.Span
	for len(r.due) > 0 && !r.due[0].at.After(t) {
		out = append(out, heap.Pop(&r.due).(waiting).span)
	}
	return out
}

// Next is when the next span is due; false when none waits.
func (r *Renderer) Next() (time.Time, bool) {
	if len(r.due) == 0 {
		return time.Time{}, false
	}
	return r.due[0].at, true
}

// Rendered is how many spans there were so far, with those that wait.
func (r *Renderer) Rendered() int64 { return r.count }

// waiting is a span and when its exporter sends it.
type waiting struct {
	at   time.Time
	seq  uint64
	span span.Span
}

// queue is a heap, what is due first on top.
type queue []waiting

// Len implements [heap.Interface].
func (q queue) Len() int { return len(q) }

// Less implements [heap.Interface].
func (q queue) Less(i, j int) bool {
	if !q[i].at.Equal(q[j].at) {
		return q[i].at.Before(q[j].at)
	}
	return q[i].seq < q[j].seq
}

// Swap implements [heap.Interface].
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements [heap.Interface].
func (q *queue) Push(x any) { *q = append(*q, x.(waiting)) }

// Pop implements [heap.Interface].
func (q *queue) Pop() any {
	n := len(*q) - 1
	x := (*q)[n]
	(*q)[n] = waiting{}
	*q = (*q)[:n]
	return x
}

// mix is a cheap hash (splitmix64's finaliser).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

// chance decides something about a call: the same for the same call, share and what.
func (r *Renderer) chance(what string, id uint64, share float64) bool {
	return float64(mix(id^r.o.Seed^hashOf(what))>>11)/(1<<53) < share
}

func hashOf(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s)) // never fails
	return h.Sum64()
}

// process is who exports a span.
type process struct {
	service  string
	scope    string
	version  string
	resource []span.Attr
	skew     time.Duration
	delay    time.Duration // of its exporter
}

// processOf makes the process of a member.
func (r *Renderer) processOf(member, service, scope, version, language string, extra ...span.Attr) process {
	p := process{service: service, scope: scope, version: version, delay: 500 * time.Millisecond}
	p.resource = append([]span.Attr{text("telemetry.sdk.language", language), text("telemetry.sdk.name", "opentelemetry"), text("telemetry.sdk.version", "1.38.0"), text("service.name", service)}, extra...)
	h := mix(hashOf("host/"+member) ^ r.o.Seed)
	if float64(h>>11)/(1<<53) < r.o.Skewed {
		p.skew = time.Duration(int64(mix(h)%160)-80) * time.Millisecond
	}
	return p
}

// instance names the engine of a call in a resource. Engines leave it to OTEL_RESOURCE_ATTRIBUTES.
func instance(c sim.Call) span.Attr { return text("service.instance.id", c.Addr) }

// trace is the spans of one call as they are made.
type trace struct {
	r     *Renderer
	id    span.TraceID
	key   uint64 // of the call: span ids are made from it
	n     uint64
	spans []waiting
}

func (r *Renderer) trace(id span.TraceID, key uint64) *trace {
	return &trace{r: r, id: id, key: key}
}

// newID is a fresh span id.
func (t *trace) newID() span.ID {
	t.n++
	var id span.ID
	binary.BigEndian.PutUint64(id[:], mix(t.key^mix(t.n)^t.r.o.Seed)|1)
	return id
}

// add makes a span. It returns its index.
func (t *trace) add(p process, parent span.ID, name string, kind span.Kind, from, to time.Time, attrs ...span.Attr) int {
	if to.Before(from) {
		to = from
	}
	s := span.Span{
		Header:  span.Header{Trace: t.id, ID: t.newID(), Parent: parent, Name: name, Kind: kind, Start: from.Add(p.skew).UnixNano(), End: to.Add(p.skew).UnixNano(), Flags: 0x101},
		Service: p.service, Resource: p.resource, ScopeName: p.scope, ScopeVersion: p.version, Attrs: attrs,
	}
	if parent != (span.ID{}) {
		s.Flags |= 0x100 // it is known whether the parent is remote
	}
	t.spans = append(t.spans, waiting{at: to.Add(p.delay), span: s})
	return len(t.spans) - 1
}

func (t *trace) of(i int) *span.Span { return &t.spans[i].span }

// attr adds attributes to a span.
func (t *trace) attr(i int, attrs ...span.Attr) {
	s := t.of(i)
	s.Attrs = append(s.Attrs, attrs...)
}

// fail ends a span with an error.
func (t *trace) fail(i int, message string) {
	s := t.of(i)
	s.Status, s.StatusMessage = span.Failed, message
}

// export hands the spans over. What ends with the call leaves in the order in which it was made, the root of
// a process last, as SGLang sends them; some of it late.
func (t *trace) export(lost map[int]bool) {
	for i := len(t.spans) - 1; i >= 0; i-- {
		if lost[i] {
			continue
		}
		w := t.spans[i]
		if t.r.chance("late", t.key^uint64(i)<<40, t.r.o.Late) {
			w.at = w.at.Add(time.Duration(2+mix(t.key^uint64(i))%20) * time.Second)
		}
		t.fill(&w.span, i)
		t.r.seq++
		w.seq = t.r.seq
		t.r.count++
		heap.Push(&t.r.due, w)
	}
}

// fill adds what a team's own instrumentation would, up to the wanted number of attributes.
func (t *trace) fill(s *span.Span, i int) {
	for n := len(s.Attrs); n < t.r.o.Attributes; n++ {
		h := mix(t.key ^ uint64(i)<<32 ^ uint64(n))
		f := fillers[n%len(fillers)]
		key := f.key
		if n >= len(fillers) {
			key += "." + strconv.Itoa(n/len(fillers))
		}
		var v span.Value
		switch f.kind {
		case span.Int:
			v = span.Value{Type: span.Int, Str: strconv.FormatUint(h%f.n, 10)}
		case span.Float:
			v = span.Value{Type: span.Float, Str: strconv.FormatFloat(float64(h%f.n)/1000, 'g', -1, 64)}
		case span.Bool:
			v = span.Value{Type: span.Bool, Str: strconv.FormatBool(h%f.n == 0)}
		default:
			v = span.Value{Type: span.Text, Str: f.text + strconv.FormatUint(h%f.n, 10)}
		}
		s.Attrs = append(s.Attrs, span.Attr{Key: key, Value: v})
	}
}

// fillers are the attributes that [Options.Attributes] adds: of an attribute that repeats all over, of few
// values, and of many.
var fillers = [...]struct {
	key  string
	kind span.Type
	text string
	n    uint64
}{
	{"llm.worker", span.Text, "worker-", 64}, {"rollout.id", span.Int, "", 500}, {"rollout.step", span.Int, "", 2000}, {"sample.index", span.Int, "", 16384},
	{"sample.group", span.Int, "", 2048}, {"policy.version", span.Text, "v", 400}, {"engine.rank", span.Int, "", 8}, {"batch.size", span.Int, "", 256},
	{"batch.id", span.Int, "", 1 << 40}, {"kv.token_usage", span.Float, "", 1000}, {"kv.cache_hit_rate", span.Float, "", 1000}, {"queue.depth", span.Int, "", 300},
	{"tenant", span.Text, "team-", 12}, {"priority", span.Int, "", 4}, {"prompt.tokens", span.Int, "", 30000}, {"output.tokens", span.Int, "", 8192},
	{"sampling.temperature", span.Float, "", 1000}, {"sampling.top_p", span.Float, "", 1000}, {"stream", span.Bool, "", 2}, {"lora.adapter", span.Text, "adapter-", 8},
	{"weights.version", span.Text, "step-", 900}, {"node", span.Text, "gpu-node-", 32}, {"client", span.Text, "10.9.0.", 250}, {"trace.source", span.Text, "sim-", 3},
	{"gpu.index", span.Int, "", 8}, {"prefix.hash", span.Int, "", 1 << 60},
}

func text(key, v string) span.Attr {
	return span.Attr{Key: key, Value: span.Value{Type: span.Text, Str: v}}
}
func num(key string, v int) span.Attr {
	return span.Attr{Key: key, Value: span.Value{Type: span.Int, Str: strconv.Itoa(v)}}
}
func float(key string, v float64) span.Attr {
	return span.Attr{Key: key, Value: span.Value{Type: span.Float, Str: strconv.FormatFloat(v, 'g', -1, 64)}}
}

// lowTrace is a trace id as SGLang makes one: 64 bits, the upper half zero.
func lowTrace(x uint64) span.TraceID {
	var id span.TraceID
	binary.BigEndian.PutUint64(id[8:], mix(x)|1)
	return id
}

// fullTrace is a trace id of 128 bits.
func fullTrace(rid string) span.TraceID {
	var id span.TraceID
	if _, err := hex.Decode(id[:], []byte(rid)); err != nil || id.IsZero() {
		return lowTrace(hashOf(rid))
	}
	return id
}

// room is a bootstrap room as SGLang writes it into an attribute.
func room(x uint64) string { return fmt.Sprintf("0x%x", x) }

// old tells an SGLang before 0.5.10, whose trees look different.
func old(version string) bool {
	rest, ok := strings.CutPrefix(version, "0.5.")
	if !ok {
		return false
	}
	digits := rest
	for i, c := range rest {
		if c < '0' || c > '9' {
			digits = rest[:i]
			break
		}
	}
	n, err := strconv.Atoi(digits)
	return err == nil && n < 10
}

// silent tells an SGLang that computes a request's attributes before it knows when it ended.
func silent(version string) bool { return version == "" || version >= "0.5.16" }
