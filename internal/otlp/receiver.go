package otlp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rollscope/rollscope/internal/span"
)

// Options of a [Receiver].
type Options struct {
	Sink   Sink
	Limits Limits
	Logger *slog.Logger     // nil logs nothing
	Now    func() time.Time // nil is the clock

	// TLS is for both listeners; nil means plain text. See [WebConfig].
	TLS *tls.Config
	// Authorize says who may send to the listeners (not to what [Receiver.Handler] returns). The request
	// has the caller's Authorization header, TLS state and address also when it came over gRPC. nil
	// lets everybody.
	Authorize func(*http.Request) error
	// Metrics takes POST /v1/metrics over HTTP; nil answers 404 with a hint.
	Metrics http.Handler
}

// Receiver is OTLP's two servers. It is safe for concurrent use.
type Receiver struct {
	o      Options
	limits Limits
	log    *slog.Logger
	now    func() time.Time

	inside atomic.Int64  // requests that are read, wait or are worked on
	turns  chan struct{} // one for each request that is worked on
	scopes sync.Pool     // *[]span.Scope
	unpack unpacker

	mu      sync.Mutex
	sources map[sourceKey]*Source
	drops   map[dropKey]int64
	cut     map[string]int64 // by service: spans whose sender's SDK threw fields away
	said    map[string]time.Time
}

type sourceKey struct{ kind, name string }
type dropKey struct{ source, reason string }

// How many names are kept apart; what comes later counts as otherName.
const (
	maxSources  = 256
	maxServices = 256
	otherName   = "(other)"
)

// NewReceiver makes a receiver; the error names the option that is not possible.
func NewReceiver(o Options) (*Receiver, error) {
	if o.Sink == nil {
		return nil, errors.New("otlp: a receiver needs a sink")
	}
	limits, err := o.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Receiver{
		o: o, limits: limits, log: o.Logger, now: o.Now, turns: make(chan struct{}, limits.Concurrent),
		sources: map[sourceKey]*Source{}, drops: map[dropKey]int64{}, cut: map[string]int64{}, said: map[string]time.Time{},
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.now == nil {
		r.now = time.Now
	}
	r.unpack.limit = limits.Expanded
	r.scopes.New = func() any { return new([]span.Scope) }
	return r, nil
}

// Serve answers on the listeners until ctx ends, and then lets running requests finish for a few seconds.
// Either may be nil. It closes both. The error names the listener that failed; the other is stopped with it.
func (r *Receiver) Serve(ctx context.Context, overGRPC, overHTTP net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	errs := make(chan error, 2)
	if overGRPC != nil {
		l := limitListener(overGRPC, r.limits.Conns)
		s := r.grpcServer()
		wg.Go(func() {
			defer stop()
			if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				errs <- fmt.Errorf("serve OTLP over gRPC on %s: %w", l.Addr(), err)
			}
		})
		wg.Go(func() {
			<-ctx.Done()
			end := time.AfterFunc(drainTimeout, s.Stop)
			defer end.Stop()
			s.GracefulStop()
		})
	}
	if overHTTP != nil {
		l := limitListener(overHTTP, r.limits.Conns)
		s := r.httpServer()
		wg.Go(func() {
			defer stop()
			var err error
			if r.o.TLS != nil {
				s.TLSConfig = r.o.TLS.Clone()
				err = s.ServeTLS(l, "", "")
			} else {
				err = s.Serve(l)
			}
			if err != nil && !errors.Is(err, http.ErrServerClosed) {
				errs <- fmt.Errorf("serve OTLP over HTTP on %s: %w", l.Addr(), err)
			}
		})
		wg.Go(func() {
			<-ctx.Done()
			drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
			defer cancel()
			if s.Shutdown(drain) != nil {
				_ = s.Close() // whoever is still there had the time
			}
		})
	}
	<-ctx.Done()
	wg.Wait()
	close(errs)
	return <-errs
}

const drainTimeout = 5 * time.Second

// enter counts a request that begins to arrive; leave must be called when it is over.
func (r *Receiver) enter() (leave func(), err *Refusal) {
	if r.inside.Add(1) > int64(r.limits.Waiting) {
		r.inside.Add(-1)
		return nil, &Refusal{Verdict: Busy, Reason: "busy",
			Message: fmt.Sprintf("%d requests are being read or wait already: send again later, or send larger batches on fewer connections", r.limits.Waiting)}
	}
	return func() { r.inside.Add(-1) }, nil
}

// turn waits until the request may be worked on; done must be called then.
func (r *Receiver) turn(ctx context.Context) (done func(), err *Refusal) {
	free := func() { <-r.turns }
	select {
	case r.turns <- struct{}{}:
		return free, nil
	default:
	}
	t := time.NewTimer(r.limits.Wait)
	defer t.Stop()
	select {
	case r.turns <- struct{}{}:
		return free, nil
	case <-ctx.Done():
		return nil, asRefusal(ctx.Err())
	case <-t.C:
		return nil, &Refusal{Verdict: Busy, Reason: "busy", Message: fmt.Sprintf("no turn within %s, %d requests are being worked on: send again later", r.limits.Wait, r.limits.Concurrent)}
	}
}

// take hands a whole body to the sink. isJSON says what the body is.
func (r *Receiver) take(ctx context.Context, from sourceKey, k signalKind, body []byte, isJSON bool) (outcome, *Refusal) {
	done, refused := r.turn(ctx)
	if refused != nil {
		return outcome{}, refused
	}
	defer done()
	if k == logs {
		return r.takeLogs(ctx, from, body, isJSON)
	}
	return r.takeTraces(ctx, from, body, isJSON)
}

func (r *Receiver) takeTraces(ctx context.Context, from sourceKey, body []byte, isJSON bool) (outcome, *Refusal) {
	var bad rejections
	if isJSON {
		if err := shallow(body, 4*r.limits.Depth, r.limits.Spans); errors.Is(err, errTooMany) {
			return outcome{}, tooMany(r.limits.Spans, "spans")
		} else if err != nil {
			return outcome{}, &Refusal{Verdict: Invalid, Reason: "malformed", Message: "the body is not OTLP/JSON: " + err.Error()}
		}
		pb, rejected, err := span.FromJSON(body)
		if err != nil {
			return outcome{}, &Refusal{Verdict: Invalid, Reason: "malformed", Message: "the body is not OTLP/JSON: " + err.Error()}
		}
		for _, x := range rejected {
			bad.add(x)
		}
		body = pb
	}
	if !fewSpans(body, r.limits.Spans) {
		return outcome{}, tooMany(r.limits.Spans, "spans")
	}
	pooled := r.scopes.Get().(*[]span.Scope)
	defer func() {
		clear(*pooled)
		r.scopes.Put(pooled)
	}()
	scopes, err := span.Scan(body, (*pooled)[:0])
	*pooled = scopes
	if err != nil {
		return outcome{}, &Refusal{Verdict: Invalid, Reason: "malformed", Message: "the body is not an ExportTraceServiceRequest: " + err.Error()}
	}
	n, cutFields := 0, 0
	for i := range scopes {
		sc := &scopes[i]
		if bad.check(sc) {
			r.log.Debug("spans are rejected", "service", sc.Service, "why", bad.message)
		}
		n += len(sc.Spans)
		short := 0
		for j := range sc.Spans {
			if senderDropped(sc.Spans[j].Raw) {
				short++
			}
		}
		if short > 0 {
			cutFields += short
			r.countCut(sc.Service, short)
		}
	}
	out := outcome{}
	if n > 0 {
		rejected, message, err := r.o.Sink.Traces(ctx, scopes)
		if err != nil {
			return outcome{}, asRefusal(err)
		}
		out = outcome{rejected: min(max(rejected, 0), n), message: message}
	}
	r.taken(from, n-out.rejected, 0, out.rejected)
	for reason, count := range bad.by {
		r.countDrop(from, reason, count)
	}
	if bad.n > 0 {
		out.message = joinMessages(bad.text("spans"), out.message)
		out.rejected += bad.n
	}
	return out, nil
}

func tooMany(limit int, what string) *Refusal {
	return &Refusal{Verdict: TooBig, Reason: "too_many_" + strings.ReplaceAll(what, " ", "_"),
		Message: fmt.Sprintf("the request has more than %d %s, or far more attributes than those have: let the exporter send smaller batches (OTEL_BSP_MAX_EXPORT_BATCH_SIZE, send_batch_max_size)", limit, what)}
}

// fewSpans tells whether a request has at most limit spans, and scopes and resources beside: before
// anything of it is in memory. ResourceSpans is 1, ScopeSpans of it 2, Span of that 2. What is broken ends
// the count; who reads the body says so.
func fewSpans(body []byte, limit int) bool {
	left := 3 * limit
	spans := limit
	var walk func(b []byte, level int)
	walk = func(b []byte, level int) {
		for len(b) > 0 && left >= 0 && spans >= 0 {
			num, typ, n := protowire.ConsumeTag(b)
			if n < 0 {
				return
			}
			b = b[n:]
			if typ != protowire.BytesType {
				if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
					return
				}
				b = b[n:]
				continue
			}
			data, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return
			}
			b = b[n:]
			switch {
			case level == 2 && num == 2:
				spans--
			case level == 1 && num == 2, level == 0 && num == 1:
				left--
				walk(data, level+1)
			}
		}
	}
	walk(body, 0)
	return left >= 0 && spans >= 0
}

func joinMessages(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return a + "; " + b
}

// rejections are the spans of one request that are no spans.
type rejections struct {
	n       int
	by      map[string]int
	message string // of the first
}

func (b *rejections) add(x span.Rejected) {
	if b.by == nil {
		b.by = map[string]int{}
	}
	b.n++
	b.by[x.Reason]++
	if b.message == "" {
		b.message = x.Message
	}
}

// check takes the spans out of sc that have no usable ids.
func (b *rejections) check(sc *span.Scope) bool {
	before, kept := b.n, 0
	for i := range sc.Spans {
		if x := span.CheckIDs(&sc.Spans[i]); x != nil {
			b.add(*x)
			continue
		}
		if kept != i {
			sc.Spans[kept] = sc.Spans[i]
		}
		kept++
	}
	sc.Spans = sc.Spans[:kept]
	return b.n > before
}

func (b *rejections) text(what string) string {
	if b.n == 1 {
		return fmt.Sprintf("1 of the %s is rejected: %s", what, b.message)
	}
	return fmt.Sprintf("%d of the %s are rejected; the first: %s", b.n, what, b.message)
}

// senderDropped tells whether the sender's SDK threw attributes, events or links of the span away:
// fields 10, 12 and 14 of the message.
func senderDropped(raw []byte) bool {
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return false
		}
		raw = raw[n:]
		if typ == protowire.VarintType {
			v, n := protowire.ConsumeVarint(raw)
			if n < 0 {
				return false
			}
			if v > 0 && (num == 10 || num == 12 || num == 14) {
				return true
			}
			raw = raw[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(num, typ, raw); n < 0 {
			return false
		}
		raw = raw[n:]
	}
	return false
}

func (r *Receiver) countCut(service string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.cut[service]; !ok {
		if len(r.cut) >= maxServices {
			service = otherName
		}
		service = string(append([]byte(nil), service...)) // the name aliases the body
	}
	r.cut[service] += int64(n)
}

func (r *Receiver) countDrop(from sourceKey, reason string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drops[dropKey{from.kind, reason}] += int64(n)
}

// source returns the counts of a sender; r.mu must be held.
func (r *Receiver) source(from sourceKey) *Source {
	s := r.sources[from]
	if s == nil {
		if len(r.sources) >= maxSources {
			from.name = otherName
			if s = r.sources[from]; s != nil {
				return s
			}
		}
		s = &Source{Name: from.name, Kind: from.kind}
		r.sources[from] = s
	}
	return s
}

// came counts a request by its sender.
func (r *Receiver) came(from sourceKey, agent string) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.source(from)
	s.Requests++
	s.Last = now
	if agent != "" && agent != s.Agent {
		s.Agent = string(append([]byte(nil), agent[:min(len(agent), 200)]...))
	}
}

func (r *Receiver) taken(from sourceKey, spans, records, rejected int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.source(from)
	s.Spans += int64(spans)
	s.Logs += int64(records)
	s.Rejected += int64(rejected)
	if rejected > 0 {
		r.drops[dropKey{from.kind, "sink_rejected"}] += int64(rejected)
	}
}

// partly notes that a request was not taken whole, and logs it once a minute.
func (r *Receiver) partly(from sourceKey, o outcome) {
	if o.rejected == 0 && o.message == "" {
		return
	}
	r.mu.Lock()
	s := r.source(from)
	s.Error, s.ErrorAt = o.message, r.now()
	r.mu.Unlock()
	r.say("partial", "OTLP: a part of a request is rejected", "from", from.name, "over", from.kind, "rejected", o.rejected, "why", o.message)
}

// refused notes that a request was not taken, and logs it once a minute for each reason.
func (r *Receiver) refused(from sourceKey, x *Refusal) {
	r.mu.Lock()
	s := r.source(from)
	s.Refused++
	s.Error, s.ErrorAt = x.Message, r.now()
	r.drops[dropKey{from.kind, "request_" + x.Reason}]++
	r.mu.Unlock()
	r.say(x.Reason, "OTLP: a request is refused", "from", from.name, "over", from.kind, "reason", x.Reason, "why", x.Message, "may_retry", x.retry() > 0)
}

// say logs one line a minute for each subject.
func (r *Receiver) say(subject, text string, args ...any) {
	now := r.now()
	r.mu.Lock()
	last, ok := r.said[subject]
	if ok && now.Sub(last) < time.Minute {
		r.mu.Unlock()
		return
	}
	r.said[subject] = now
	r.mu.Unlock()
	r.log.Warn(text, args...)
}

// Sources lists the senders, the last one first.
func (r *Receiver) Sources() []Source {
	r.mu.Lock()
	out := make([]Source, 0, len(r.sources))
	for _, s := range r.sources {
		out = append(out, *s)
	}
	r.mu.Unlock()
	slices.SortFunc(out, func(a, b Source) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Drops counts what was not kept, by transport ("otlp_grpc", "otlp_http") and reason: spans and log
// records under the word of what was wrong with them, whole requests under request_ and the word.
func (r *Receiver) Drops() []Drop {
	r.mu.Lock()
	out := make([]Drop, 0, len(r.drops))
	for k, n := range r.drops {
		out = append(out, Drop{k.source, k.reason, n})
	}
	r.mu.Unlock()
	sortDrops(out)
	return out
}

func sortDrops(d []Drop) {
	slices.SortFunc(d, func(a, b Drop) int { return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Reason, b.Reason)) })
}

// SenderDropped counts, by service.name, the spans whose sender's SDK threw attributes, events or links
// away because of its limits (OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, OTEL_ATTRIBUTE_COUNT_LIMIT,
// OTEL_SPAN_EVENT_COUNT_LIMIT, OTEL_SPAN_LINK_COUNT_LIMIT raise them).
func (r *Receiver) SenderDropped() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]int64, len(r.cut))
	for k, n := range r.cut {
		out[k] = n
	}
	return out
}

// limitListener lets at most n connections be open.
func limitListener(l net.Listener, n int) net.Listener {
	return &limited{Listener: l, free: make(chan struct{}, n), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	free   chan struct{}
	closed chan struct{}
	once   sync.Once
}

// Accept implements [net.Listener].
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &limitedConn{Conn: c, free: sync.OnceFunc(func() { <-l.free })}, nil
}

// Close implements [net.Listener].
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	free func()
}

// Close implements [net.Conn].
func (c *limitedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
