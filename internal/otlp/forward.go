package otlp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/span"
)

// Endpoint is a collector that is forwarded to.
type Endpoint struct {
	// Name names the endpoint in the queue, in counters and in messages; default the URL's host and port.
	// Two endpoints may not share one.
	Name string
	// URL is "grpc://host:4317", "grpcs://host:4317", "http://host:4318" or "https://host:4318/prefix"; without
	// a scheme it is gRPC without TLS, as in SGLang's --otlp-traces-endpoint. Over HTTP /v1/traces and /v1/logs
	// are appended.
	URL         string
	Headers     map[string]string
	TLS         *tls.Config   // for grpcs and https; nil trusts what the system trusts
	Compression string        // "gzip" (default), "zstd", "none"
	Timeout     time.Duration // of one request; default 10 s
	BatchBytes  int           // of a request, at most, before compression, except when one record is larger; default 1 MiB
	Everything  bool          // everything that came in; otherwise what was kept
	NoTraces    bool
	NoLogs      bool
}

// ForwardOptions of a [Forwarder].
type ForwardOptions struct {
	Dir       string // for the queues; made when it is not there
	MaxBytes  int64  // of each of the two queues on disk; default 1 GiB
	Endpoints []Endpoint
	Logger    *slog.Logger     // nil logs nothing
	Now       func() time.Time // nil is the clock
	// Backoff is how long the first retry waits; the next ones wait 1.5 times as long each, up to MaxBackoff.
	// Default 1 s and 30 s.
	Backoff, MaxBackoff time.Duration
}

// Forwarder sends traces and logs on to collectors, from a queue on disk: what [Forwarder.Traces] and
// [Forwarder.Logs] took arrives at each endpoint at least once, also over restarts and kill -9, unless the
// endpoint refuses it for good or the queue becomes larger than allowed; both are counted. It is safe for
// concurrent use.
type Forwarder struct {
	o      ForwardOptions
	log    *slog.Logger
	now    func() time.Time
	queues [2]*queue // of what was kept, and of everything; nil when no endpoint wants it
	wants  [2][2]bool
	all    []*courier

	mu    sync.Mutex
	unput map[string]int64 // items that could not be queued, by reason
}

const (
	kept = iota
	everything
)

// courier carries one endpoint's records.
type courier struct {
	f      *Forwarder
	e      Endpoint
	r      *reader
	sender sender

	mu sync.Mutex
	st EndpointStatus
}

// EndpointStatus is how forwarding to one endpoint goes.
type EndpointStatus struct {
	Name, URL    string
	State        string    // "idle", "ok", "retrying"
	Sent         int64     // spans and log records that were acknowledged
	Requests     int64     // acknowledged
	Rejected     int64     // by the endpoint: for good, or as a part of a request
	Lost         int64     // went from a full queue before they could be sent
	Damaged      int64     // stretches of the queue that could not be read
	Waiting      int64     // items in the queue
	WaitingBytes int64     // in the queue
	Last         time.Time // of an acknowledgement
	Error        string    // of the last request that failed or was taken only in part
	ErrorAt      time.Time
}

// NewForwarder opens the queues; the error names the endpoint or file that is not possible. Nothing is sent
// before [Forwarder.Run].
func NewForwarder(o ForwardOptions) (*Forwarder, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 1 << 30
	}
	if o.Backoff <= 0 {
		o.Backoff = time.Second
	}
	if o.MaxBackoff <= 0 {
		o.MaxBackoff = 30 * time.Second
	}
	f := &Forwarder{o: o, log: o.Logger, now: o.Now, unput: map[string]int64{}}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if f.now == nil {
		f.now = time.Now
	}
	if len(o.Endpoints) > 0 && o.Dir == "" {
		return nil, errors.New("forward: no directory for the queue is given")
	}
	var names [2][]string
	seen := map[string]bool{}
	for _, e := range o.Endpoints {
		e, err := e.withDefaults()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		file := fileName(e.Name)
		if seen[file] {
			return nil, errors.Join(fmt.Errorf("forward: two endpoints are called %q: give them names", e.Name), f.Close())
		}
		seen[file] = true
		which := kept
		if e.Everything {
			which = everything
		}
		f.wants[which][0] = f.wants[which][0] || !e.NoTraces
		f.wants[which][1] = f.wants[which][1] || !e.NoLogs
		names[which] = append(names[which], file)
		s, err := newSender(e)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		f.all = append(f.all, &courier{f: f, e: e, sender: s, st: EndpointStatus{Name: e.Name, URL: e.URL, State: "idle"}})
	}
	for which, dir := range [...]string{"kept", "everything"} {
		if len(names[which]) == 0 {
			continue
		}
		q, err := openQueue(filepath.Join(o.Dir, dir), o.MaxBytes, names[which])
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		f.queues[which] = q
		for _, r := range q.readers {
			for _, c := range f.all {
				if fileName(c.e.Name) == r.name {
					c.r = r
				}
			}
		}
	}
	return f, nil
}

// fileName is a name as part of a file's.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' {
			return r
		}
		return '_'
	}, name)
}

func (e Endpoint) withDefaults() (Endpoint, error) {
	if !strings.Contains(e.URL, "://") {
		e.URL = "grpc://" + e.URL
	}
	u, err := url.Parse(e.URL)
	if err != nil || u.Host == "" {
		return e, fmt.Errorf("forward: endpoint %q is no URL: write grpc://HOST:4317 or http://HOST:4318", e.URL)
	}
	if u.User != nil {
		return e, fmt.Errorf("forward: endpoint %s: put the password into a header (Authorization) and not into the URL", u.Redacted())
	}
	if e.Name == "" {
		e.Name = u.Host
	}
	switch u.Scheme {
	case "grpc", "grpcs":
		if u.Port() == "" {
			u.Host += ":4317"
		}
	case "http", "https":
		if u.Port() == "" && u.Path == "" {
			u.Host += ":4318"
		}
	default:
		return e, fmt.Errorf("forward: endpoint %s: the scheme %q is not known: grpc, grpcs, http or https", e.Name, u.Scheme)
	}
	e.URL = u.String()
	switch e.Compression {
	case "":
		e.Compression = "gzip"
	case "gzip", "zstd", "none":
	default:
		return e, fmt.Errorf("forward: endpoint %s: compression %q is not known: gzip, zstd or none", e.Name, e.Compression)
	}
	if e.NoTraces && e.NoLogs {
		return e, fmt.Errorf("forward: endpoint %s takes neither traces nor logs", e.Name)
	}
	if e.Timeout <= 0 {
		e.Timeout = 10 * time.Second
	}
	if e.BatchBytes <= 0 {
		e.BatchBytes = 1 << 20
	}
	return e, nil
}

// Wanted tells whether some endpoint wants traces that were kept, or all that came in.
func (f *Forwarder) Wanted(all bool) bool { return f.wants[index(all)][0] }

func index(all bool) int {
	if all {
		return everything
	}
	return kept
}

// Traces queues spans for the endpoints that take what was kept, or, with all, for those that take
// everything. The spans may alias what they like: they are copied. The error says that they could not be
// queued; they are counted then.
func (f *Forwarder) Traces(all bool, scopes []span.Scope) error {
	if !f.wants[index(all)][0] {
		return nil
	}
	n := 0
	for i := range scopes {
		n += len(scopes[i].Spans)
	}
	if n == 0 {
		return nil
	}
	return f.put(index(all), traceRecord, n, AppendTraces(nil, scopes))
}

// Logs queues log records likewise.
func (f *Forwarder) Logs(all bool, records []LogRecord) error {
	if !f.wants[index(all)][1] || len(records) == 0 {
		return nil
	}
	return f.put(index(all), logRecord, len(records), AppendLogs(nil, records))
}

func (f *Forwarder) put(which int, kind recordKind, items int, body []byte) error {
	err := f.queues[which].append(kind, items, body)
	if err != nil {
		f.mu.Lock()
		f.unput["queue_unwritable"] += int64(items)
		f.mu.Unlock()
	}
	return err
}

// Run sends until ctx ends.
func (f *Forwarder) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, c := range f.all {
		wg.Go(func() { c.run(ctx) })
	}
	wg.Wait()
}

// Close closes the queues and connections, after Run has returned.
func (f *Forwarder) Close() error {
	var errs []error
	for _, q := range f.queues {
		if q != nil {
			errs = append(errs, q.close())
		}
	}
	for _, c := range f.all {
		errs = append(errs, c.sender.close())
	}
	return errors.Join(errs...)
}

// maxRecords is how many records of the queue one request carries at most.
const maxRecords = 1000

func (c *courier) run(ctx context.Context) {
	limit := maxRecords
	for {
		b, err := c.r.next(ctx, c.e.BatchBytes, limit)
		if err != nil {
			return // the context has ended or the queue is closed
		}
		limit = maxRecords
		if b.kind == traceRecord && c.e.NoTraces || b.kind == logRecord && c.e.NoLogs {
			c.acknowledge(b)
			continue
		}
		out, refused := c.deliver(ctx, b)
		switch {
		case ctx.Err() != nil:
			return
		case refused == nil:
			c.sent(b, out)
		case refused.Verdict == TooBig && b.count > 1:
			limit = (b.count + 1) / 2 // in halves, down to a single record
			continue
		default:
			c.refused(b, refused)
		}
		c.acknowledge(b)
	}
}

// deliver sends a batch until it is taken or refused for good.
func (c *courier) deliver(ctx context.Context, b batch) (outcome, *Refusal) {
	wait := c.f.o.Backoff
	for {
		attempt, cancel := context.WithTimeout(ctx, c.e.Timeout)
		out, refused := c.sender.send(attempt, b.kind, b.body)
		cancel()
		if refused == nil || refused.Verdict != Busy && refused.Verdict != Down {
			return out, refused
		}
		pause := time.Duration(float64(wait) * (0.8 + 0.4*rand.Float64())) // so that many senders do not come at once
		pause = max(pause, refused.After)
		wait = min(wait*3/2, c.f.o.MaxBackoff)
		c.waits(refused, pause)
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return outcome{}, asRefusal(ctx.Err())
		case <-t.C:
		}
	}
}

// waits notes that the endpoint does not take anything now, and logs it when that begins.
func (c *courier) waits(x *Refusal, pause time.Duration) {
	now := c.f.now()
	c.mu.Lock()
	first := c.st.State != "retrying" || c.st.Error != x.Message
	c.st.State, c.st.Error, c.st.ErrorAt = "retrying", x.Message, now
	c.mu.Unlock()
	if first {
		c.f.log.Warn("OTLP forward: the endpoint does not take what is sent; it waits in the queue", "endpoint", c.e.Name, "reason", x.Reason, "why", x.Message, "next_try_in", pause.Round(time.Millisecond))
	}
}

func (c *courier) sent(b batch, out outcome) {
	now := c.f.now()
	rejected := min(max(out.rejected, 0), b.items)
	c.mu.Lock()
	back, first := c.st.State == "retrying", rejected > 0 && c.st.Rejected == 0
	c.st.State, c.st.Last = "ok", now
	c.st.Requests++
	c.st.Sent += int64(b.items - rejected)
	c.st.Rejected += int64(rejected)
	if out.message != "" {
		c.st.Error, c.st.ErrorAt = out.message, now
	}
	c.mu.Unlock()
	if back {
		c.f.log.Info("OTLP forward: the endpoint takes what is sent again", "endpoint", c.e.Name)
	}
	if first {
		c.f.log.Warn("OTLP forward: the endpoint rejects a part of what is sent; further ones are only counted", "endpoint", c.e.Name, "rejected", rejected, "why", out.message)
	}
}

// refused drops a batch that the endpoint will never take.
func (c *courier) refused(b batch, x *Refusal) {
	c.mu.Lock()
	first := c.st.Rejected == 0
	c.st.State = "ok"
	c.st.Rejected += int64(b.items)
	c.st.Error, c.st.ErrorAt = x.Message, c.f.now()
	c.mu.Unlock()
	if first {
		c.f.log.Warn("OTLP forward: the endpoint refuses a request for good; further ones are only counted", "endpoint", c.e.Name, "items", b.items, "reason", x.Reason, "why", x.Message)
	}
}

func (c *courier) acknowledge(b batch) {
	if err := c.r.ack(b); err != nil {
		c.f.log.Warn("OTLP forward: how far the endpoint is cannot be written down; after a restart some is sent twice", "endpoint", c.e.Name, "error", err)
	}
}

// Endpoints says how each endpoint does.
func (f *Forwarder) Endpoints() []EndpointStatus {
	out := make([]EndpointStatus, 0, len(f.all))
	for _, c := range f.all {
		c.mu.Lock()
		st := c.st
		c.mu.Unlock()
		st.Waiting, st.WaitingBytes = c.r.waiting()
		st.Lost, st.Damaged = c.r.gone()
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b EndpointStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Drops counts what did not arrive, with the source "otlp_forward/NAME": rejected by the endpoint, gone from
// a full queue (queue_full), damaged stretches of the queue (queue_damaged); and what could not be queued at
// all ("otlp_forward", queue_unwritable).
func (f *Forwarder) Drops() []Drop {
	var out []Drop
	add := func(source, reason string, n int64) {
		if n > 0 {
			out = append(out, Drop{source, reason, n})
		}
	}
	for _, e := range f.Endpoints() {
		add("otlp_forward/"+e.Name, "rejected", e.Rejected)
		add("otlp_forward/"+e.Name, "queue_full", e.Lost)
		add("otlp_forward/"+e.Name, "queue_damaged", e.Damaged)
	}
	f.mu.Lock()
	for reason, n := range f.unput {
		add("otlp_forward", reason, n)
	}
	f.mu.Unlock()
	sortDrops(out)
	return out
}
