package trace

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
)

// SenderOptions are the choices of [NewSender]. Zero fields have the defaults that stand beside them.
type SenderOptions struct {
	Run   string // name of the training run; required
	Token string // bearer token; none

	Batch          int   // samples of one request; 64
	MaxBatchBytes  int   // of one request before compression; 8 MiB
	MaxSampleBytes int   // of one sample; 48 MiB
	MaxQueue       int   // batches that wait; 256
	MaxQueueBytes  int64 // bytes that wait; 256 MiB

	Timeout    time.Duration // of one request; 30 s
	Retries    int           // more tries of a batch whose failure may pass; 6, negative for none
	MinBackoff time.Duration // before the first of them, then doubled; 0.5 s
	MaxBackoff time.Duration // 30 s

	Include []string // of the fields that are left out otherwise (see FORMAT.md)
	Exclude []string // further fields to leave out

	Client *http.Client // default: one without proxies
	Logger *slog.Logger // is told of the first batch lost for each reason; none
}

// Sender posts the samples of finished rollouts to Rollscope from a goroutine of its own. What cannot
// be sent is dropped and counted; the caller never waits for the network. It is safe for concurrent use.
type Sender struct {
	url  string
	o    SenderOptions
	skip map[string]bool
	own  *http.Transport

	sending sync.Mutex // held while samples are encoded; before mu
	uploads map[step]*upload
	order   []step // of uploads that are not final, oldest first

	mu      sync.Mutex
	queue   []*outgoing
	queued  int64 // bytes
	pending int   // batches queued or under way
	stats   SenderStats
	closed  bool
	idle    chan struct{} // closed while nothing is pending

	wake   chan struct{}
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
}

// SenderStats counts what a Sender did.
type SenderStats struct {
	Batches, Samples, Bytes int64            // sent; bytes as compressed
	Retries                 int64            //
	Dropped                 map[string]int64 // samples by reason: queue_full, rejected, retries, encode, too_large, closed
	Queued                  int              // batches that wait or are under way
	LastError               string           //
}

type step struct {
	kind string
	id   int64
}

type upload struct {
	id   string
	part int
	lost int64
}

type outgoing struct {
	header Header
	body   []byte // lines
	count  int
}

// heavy are long lists that no page shows.
func heavy() []string {
	return []string{
		"tokens", "loss_mask", "rollout_log_probs", "teacher_log_probs", "rollout_top_p_token_ids", "rollout_top_p_token_offsets",
		"rollout_routed_experts", "multimodal_inputs", "multimodal_train_inputs",
	}
}

// NewSender begins to send to the Rollscope that listens at an address such as http://host:9090. Close
// ends its goroutine.
func NewSender(address string, o SenderOptions) (*Sender, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("trace: the address of a Sender is http://host:port, not %q", address)
	}
	if o.Run == "" || len(o.Run) > 256 {
		return nil, fmt.Errorf("trace: SenderOptions.Run %.40q: it is 1 to 256 bytes", o.Run)
	}
	if !strings.HasSuffix(u.Path, RolloutsPath) {
		u.Path = strings.TrimSuffix(u.Path, "/") + RolloutsPath
	}
	orDefault(&o.Batch, 64)
	orDefault(&o.MaxBatchBytes, 8<<20)
	orDefault(&o.MaxSampleBytes, 48<<20)
	orDefault(&o.MaxQueue, 256)
	orDefault(&o.MaxQueueBytes, 256<<20)
	orDefault(&o.Timeout, 30*time.Second)
	orDefault(&o.MinBackoff, 500*time.Millisecond)
	orDefault(&o.MaxBackoff, 30*time.Second)
	if o.Retries == 0 {
		o.Retries = 6
	}
	s := &Sender{
		url: u.String(), o: o, skip: make(map[string]bool), uploads: make(map[step]*upload),
		wake: make(chan struct{}, 1), idle: make(chan struct{}), done: make(chan struct{}),
	}
	close(s.idle)
	s.stats.Dropped = make(map[string]int64)
	for _, f := range append(heavy(), o.Exclude...) {
		s.skip[f] = true
	}
	for _, f := range o.Include {
		delete(s.skip, f)
	}
	if o.Client == nil {
		s.own = &http.Transport{MaxIdleConns: 1, IdleConnTimeout: 30 * time.Second}
		s.o.Client = &http.Client{Transport: s.own, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	go s.work()
	return s, nil
}

func orDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Send queues the samples of a rollout and says that it is complete; it returns how many were taken. A
// sample is a struct or a map with slime's field names; it is encoded at once and may change afterwards.
func (s *Sender) Send(kind string, rolloutID int64, samples ...any) int {
	return s.send(kind, rolloutID, true, samples)
}

// SendPart is Send for a rollout of which more will follow; the last part goes through [Sender.Send].
func (s *Sender) SendPart(kind string, rolloutID int64, samples ...any) int {
	return s.send(kind, rolloutID, false, samples)
}

func (s *Sender) send(kind string, rolloutID int64, final bool, samples []any) int {
	s.sending.Lock()
	defer s.sending.Unlock()
	at := step{kind, rolloutID}
	up := s.uploads[at]
	if up == nil {
		up = &upload{id: newID()}
	}
	if final {
		delete(s.uploads, at)
	} else if s.uploads[at] == nil {
		s.uploads[at] = up
		s.order = append(s.order, at)
		if len(s.order) > 64 { // rollouts that never became final
			delete(s.uploads, s.order[0])
			s.order = s.order[1:]
		}
	}
	taken := 0
	next := &outgoing{}
	for _, sample := range samples {
		before := len(next.body)
		body, ok := s.line(next.body, sample)
		size := len(body) - before
		if !ok || size > s.o.MaxSampleBytes {
			reason := "encode"
			if ok {
				reason = "too_large"
			}
			s.mu.Lock()
			s.drop(reason, 1)
			s.mu.Unlock()
			up.lost++
			next.body = body[:before]
			continue
		}
		if next.count > 0 && (next.count >= s.o.Batch || len(body) > s.o.MaxBatchBytes) {
			line := bytes.Clone(body[before:])
			next.body = body[:before]
			taken += s.enqueue(next, at, up, false)
			next, body = &outgoing{}, line
		}
		next.body = append(body, '\n')
		next.count++
	}
	if next.count > 0 || final {
		taken += s.enqueue(next, at, up, final)
	}
	return taken
}

// line appends a sample's JSON without the fields that are to be left out.
func (s *Sender) line(b []byte, sample any) (out []byte, ok bool) {
	before := len(b)
	defer func() {
		if recover() != nil { // a method of the sample
			out, ok = b[:before], false
		}
	}()
	v := reflect.ValueOf(sample)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		if _, own := v.Interface().(json.Marshaler); own {
			break
		}
		v = v.Elem()
	}
	own := false
	if v.IsValid() {
		_, own = v.Interface().(json.Marshaler)
	}
	if !own && (v.Kind() == reflect.Struct || v.Kind() == reflect.Map && !v.IsNil()) {
		fields := members(v)
		out := make(Attrs, 0, len(fields)+2)
		have := make(map[string]bool, len(fields))
		for _, f := range fields {
			have[f.Key] = true
		}
		for _, f := range fields {
			if !s.skip[f.Key] {
				out = append(out, f)
				continue
			}
			// What is computed from fields that are left out.
			list := reflect.ValueOf(f.Value)
			if list.Kind() != reflect.Slice || list.IsNil() {
				continue
			}
			if f.Key == "tokens" && !have["token_count"] {
				out = append(out, Attr{"token_count", list.Len()})
			}
			if f.Key == "loss_mask" && !have["effective_response_length"] {
				sum := 0.0
				for i := range list.Len() {
					sum += number(numeric(list.Index(i)))
				}
				if sum == float64(int64(sum)) {
					out = append(out, Attr{"effective_response_length", int64(sum)})
				}
			}
		}
		return appendAttrs(b, out, 0), true
	}
	b = appendValue(b, sample, 0)
	return b, len(b) > before && b[before] == '{'
}

// numeric makes any kind of number one that [number] reads.
func numeric(v reflect.Value) any {
	switch {
	case v.CanInt():
		return v.Int()
	case v.CanUint():
		return float64(v.Uint())
	case v.CanFloat():
		return v.Float()
	}
	return v.Interface()
}

// drop counts samples that are not sent; mu is held.
func (s *Sender) drop(reason string, samples int) {
	if s.stats.Dropped[reason] == 0 && s.o.Logger != nil {
		s.o.Logger.Warn("samples were not sent; more of this kind are only counted", "reason", reason, "samples", samples, "last_error", s.stats.LastError)
	}
	s.stats.Dropped[reason] += int64(samples)
}

func (s *Sender) enqueue(o *outgoing, at step, up *upload, final bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	part := up.part
	up.part++
	reason := ""
	switch {
	case s.closed:
		reason = "closed"
	case len(s.queue) >= s.o.MaxQueue || len(s.queue) > 0 && s.queued+int64(len(o.body)) > s.o.MaxQueueBytes:
		reason = "queue_full"
	}
	if reason != "" {
		if o.count > 0 {
			s.drop(reason, o.count)
		}
		up.lost += int64(o.count)
		return 0
	}
	o.header = Header{
		Version: WireVersion, Run: s.o.Run, Kind: at.kind, RolloutID: at.id, Part: part, Final: final,
		BatchID: up.id + "-" + strconv.Itoa(part), Upload: up.id, Lost: up.lost,
	}
	if final {
		n := part + 1
		o.header.Parts = &n
	}
	s.queue = append(s.queue, o)
	s.queued += int64(len(o.body))
	if s.pending == 0 {
		s.idle = make(chan struct{})
	}
	s.pending++
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return o.count
}

func (s *Sender) work() {
	defer close(s.done)
	if s.own != nil {
		defer s.own.CloseIdleConnections()
	}
	for {
		s.mu.Lock()
		var o *outgoing
		if len(s.queue) > 0 {
			o = s.queue[0]
			s.queue[0] = nil
			s.queue = s.queue[1:]
			s.queued -= int64(len(o.body))
		}
		closed := s.closed
		s.mu.Unlock()
		if o == nil {
			if closed {
				return
			}
			select {
			case <-s.wake:
			case <-s.ctx.Done():
			}
			continue
		}
		size, reason := s.post(o)
		s.mu.Lock()
		if reason == "" {
			s.stats.Batches++
			s.stats.Samples += int64(o.count)
			s.stats.Bytes += int64(size)
		} else if o.count > 0 {
			s.drop(reason, o.count)
		}
		s.settle(1)
		s.mu.Unlock()
	}
}

// settle takes batches off the pending ones; mu is held.
func (s *Sender) settle(n int) {
	if n == 0 {
		return
	}
	s.pending -= n
	if s.pending == 0 {
		close(s.idle)
	}
}

// post sends one batch and returns its compressed size, or why it was given up.
func (s *Sender) post(o *outgoing) (int, string) {
	head, err := json.Marshal(o.header)
	if err != nil {
		return 0, "encode"
	}
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	for _, part := range [][]byte{head, []byte("\n"), o.body} {
		if _, err = z.Write(part); err != nil {
			return 0, "encode"
		}
	}
	if err = z.Close(); err != nil {
		return 0, "encode"
	}
	wait := s.o.MinBackoff
	for try := 0; ; try++ {
		after, retry, err := s.request(buf.Bytes(), o.header.BatchID)
		if err == nil {
			return buf.Len(), ""
		}
		s.mu.Lock()
		s.stats.LastError = err.Error()
		s.mu.Unlock()
		switch {
		case s.ctx.Err() != nil:
			return 0, "closed"
		case !retry:
			return 0, "rejected"
		case try >= s.o.Retries:
			return 0, "retries"
		}
		s.mu.Lock()
		s.stats.Retries++
		s.mu.Unlock()
		pause := min(wait, s.o.MaxBackoff)
		pause = max(pause/2+rand.N(pause/2+1), min(after, s.o.MaxBackoff))
		wait *= 2
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			timer.Stop()
			return 0, "closed"
		}
	}
}

func (s *Sender) request(body []byte, batchID string) (after time.Duration, retry bool, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return 0, false, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("Idempotency-Key", batchID)
	req.Header.Set("User-Agent", "rollscope-trace/1")
	if s.o.Token != "" {
		req.Header.Set("Authorization", "Bearer "+s.o.Token)
	}
	res, err := s.o.Client.Do(req)
	if err != nil {
		return 0, true, err
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<16)) // read so that the connection can be kept
	if res.StatusCode/100 == 2 {
		return 0, false, nil
	}
	if n, bad := strconv.Atoi(res.Header.Get("Retry-After")); bad == nil && n > 0 && n < 1e6 {
		after = time.Duration(n) * time.Second
	}
	switch c := res.StatusCode; {
	case c == http.StatusRequestTimeout, c == http.StatusTooEarly, c == http.StatusTooManyRequests, c >= 500:
		retry = true
	}
	return after, retry, fmt.Errorf("HTTP %d: %s", res.StatusCode, cut(string(text), 300))
}

// Stats returns the counts so far.
func (s *Sender) Stats() SenderStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats
	out.Queued = s.pending
	out.Dropped = make(map[string]int64, len(s.stats.Dropped))
	for k, n := range s.stats.Dropped {
		out.Dropped[k] = n
	}
	return out
}

// Flush waits until nothing is queued or under way, or until ctx is done.
func (s *Sender) Flush(ctx context.Context) error {
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle: // also when ctx is done already
		return nil
	default:
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close flushes until ctx is done, drops and counts what is left, and ends the goroutine. Later samples
// are dropped.
func (s *Sender) Close(ctx context.Context) error {
	err := s.Flush(ctx)
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		left := 0
		for _, o := range s.queue {
			if o.count > 0 {
				s.drop("closed", o.count)
			}
			left++
		}
		s.queue, s.queued = nil, 0
		s.settle(left)
	}
	s.mu.Unlock()
	s.cancel()
	<-s.done
	if err != nil {
		return fmt.Errorf("trace: the sender was closed before all was sent: %w", err)
	}
	return nil
}
