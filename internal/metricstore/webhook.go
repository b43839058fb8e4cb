package metricstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/util/strutil"
)

// webhookMessage is the body of a POST, as Alertmanager's webhook receiver sends it (version 4), so that
// what understands the one understands the other.
type webhookMessage struct {
	Version           string            `json:"version"`
	GroupKey          string            `json:"groupKey"`
	TruncatedAlerts   int               `json:"truncatedAlerts"`
	Status            string            `json:"status"` // "firing" or "resolved"
	Receiver          string            `json:"receiver"`
	GroupLabels       map[string]string `json:"groupLabels"`
	CommonLabels      map[string]string `json:"commonLabels"`
	CommonAnnotations map[string]string `json:"commonAnnotations"`
	ExternalURL       string            `json:"externalURL"`
	Alerts            []webhookAlert    `json:"alerts"`
}

type webhookAlert struct {
	Status       string            `json:"status"`
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"` // zero while it fires
	GeneratorURL string            `json:"generatorURL"`
	Fingerprint  string            `json:"fingerprint"`
}

// repeatAfter is when a webhook hears again of an alert that keeps firing, as with Alertmanager.
const repeatAfter = 4 * time.Hour

// webhooks sends alerts to plain URLs: when one begins to fire, when it is resolved, and every four hours
// in between. A receiver that cannot be reached is tried again while a bounded queue holds what comes
// meanwhile; what is dropped is counted, and its alerts are sent anew when they are evaluated next.
type webhooks struct {
	opts RulesOptions
	log  *slog.Logger

	mu   sync.Mutex
	all  []*webhook
	ctx  context.Context // of run; nil before
	loop sync.WaitGroup
}

func newWebhooks(o RulesOptions, log *slog.Logger) *webhooks {
	return &webhooks{opts: o, log: log.With("component", "webhook")}
}

// webhook is one receiver.
type webhook struct {
	w      *webhooks
	url    string
	name   string // the URL without user, password and query
	client *http.Client
	stop   context.CancelFunc

	mu    sync.Mutex
	queue []queued
	busy  bool // the first is being posted: it stays
	wake  chan struct{}
	sent  map[string]sentAlert // by fingerprint
}

type queued struct {
	body   []byte
	alerts []string // fingerprints
}

type sentAlert struct {
	status string
	at     time.Time
}

// apply sets the receivers; those that stay keep their queue.
func (w *webhooks) apply(urls []string) error {
	var next []*webhook
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("metricstore: webhook %q is not an http URL", raw)
		}
		if slices.ContainsFunc(next, func(h *webhook) bool { return h.url == raw }) {
			continue
		}
		if i := slices.IndexFunc(w.all, func(h *webhook) bool { return h.url == raw }); i >= 0 {
			next = append(next, w.all[i])
			continue
		}
		shown := *u
		shown.User, shown.RawQuery, shown.Fragment = nil, "", ""
		next = append(next, &webhook{
			w: w, url: raw, name: shown.String(),
			client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 2, IdleConnTimeout: time.Minute}},
			wake:   make(chan struct{}, 1),
			sent:   map[string]sentAlert{},
		})
	}
	for _, h := range w.all {
		if !slices.Contains(next, h) && h.stop != nil {
			h.stop()
		}
	}
	w.all = next
	if w.ctx != nil {
		w.startLocked()
	}
	return nil
}

func (w *webhooks) startLocked() {
	for _, h := range w.all {
		if h.stop != nil {
			continue
		}
		ctx, stop := context.WithCancel(w.ctx)
		h.stop = stop
		w.loop.Go(func() { h.run(ctx) })
	}
}

// run delivers until ctx ends; then each receiver gets one more try for what waits.
func (w *webhooks) run(ctx context.Context) {
	w.mu.Lock()
	w.ctx = ctx
	w.startLocked()
	w.mu.Unlock()
	<-ctx.Done()
	w.loop.Wait()
}

func (w *webhooks) urls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, h := range w.all {
		out = append(out, h.name)
	}
	return out
}

// send queues the news among the alerts of one rule.
func (w *webhooks) send(expr string, alerts []*rules.Alert) {
	w.mu.Lock()
	all := slices.Clone(w.all)
	w.mu.Unlock()
	for _, h := range all {
		h.enqueue(expr, alerts)
	}
}

func (h *webhook) enqueue(expr string, alerts []*rules.Alert) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.w.opts.Now()
	m := webhookMessage{
		Version: "4", Status: "resolved", Receiver: "rollscope", ExternalURL: h.w.opts.ExternalURL.String(),
		GroupLabels: map[string]string{},
	}
	var prints []string
	for _, a := range alerts {
		status := "firing"
		if !a.ResolvedAt.IsZero() {
			status = "resolved"
		}
		print := fingerprintOf(a.Labels)
		last, told := h.sent[print]
		if status == "resolved" && (!told || last.status == "resolved") || told && last.status == status && now.Sub(last.at) < repeatAfter {
			continue
		}
		h.sent[print] = sentAlert{status, now}
		if status == "firing" {
			m.Status = "firing"
		}
		prints = append(prints, print)
		name := a.Labels.Get(labels.AlertName)
		m.GroupLabels["alertname"] = name
		m.GroupKey = fmt.Sprintf("{}:{alertname=%q}", name)
		m.Alerts = append(m.Alerts, webhookAlert{
			Status: status, Labels: a.Labels.Map(), Annotations: a.Annotations.Map(),
			StartsAt: a.FiredAt.UTC(), EndsAt: a.ResolvedAt.UTC(), Fingerprint: print,
			GeneratorURL: h.w.opts.ExternalURL.String() + strutil.TableLinkForExpression(expr),
		})
	}
	if len(m.Alerts) == 0 {
		return
	}
	m.CommonLabels = common(m.Alerts, func(a webhookAlert) map[string]string { return a.Labels })
	m.CommonAnnotations = common(m.Alerts, func(a webhookAlert) map[string]string { return a.Annotations })
	body, err := json.Marshal(m)
	if err != nil { // maps of strings always marshal
		h.w.log.Error("forming a notification", "err", err)
		return
	}
	if oldest := 0; len(h.queue) >= orDefault(h.w.opts.QueueCapacity, 500) {
		if h.busy {
			oldest = 1
		}
		if oldest < len(h.queue) {
			h.dropLocked(h.queue[oldest], "queue_full")
			h.queue = slices.Delete(h.queue, oldest, oldest+1)
		}
	}
	h.queue = append(h.queue, queued{body, prints})
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// dropLocked counts a message that is given up, and forgets that its alerts were told.
func (h *webhook) dropLocked(q queued, reason string) {
	for _, p := range q.alerts {
		delete(h.sent, p)
	}
	h.w.opts.Drops("webhook "+h.name, reason, len(q.alerts))
}

// common keeps what all alerts share.
func common(as []webhookAlert, of func(webhookAlert) map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range of(as[0]) {
		shared := true
		for _, a := range as[1:] {
			got, ok := of(a)[k]
			shared = shared && ok && got == v
		}
		if shared {
			out[k] = v
		}
	}
	return out
}

func fingerprintOf(ls labels.Labels) string {
	set := model.LabelSet{}
	ls.Range(func(l labels.Label) { set[model.LabelName(l.Name)] = model.LabelValue(l.Value) })
	return set.Fingerprint().String()
}

// run delivers in order. A message that cannot be delivered now holds up those behind it.
func (h *webhook) run(ctx context.Context) {
	defer h.client.CloseIdleConnections()
	pause := orDefault(h.w.opts.Retry, time.Second)
	wait := pause
	for {
		h.mu.Lock()
		var head queued
		if len(h.queue) > 0 {
			head = h.queue[0]
		}
		h.busy = len(h.queue) > 0
		h.mu.Unlock()
		if head.body == nil {
			select {
			case <-h.wake:
				continue
			case <-ctx.Done():
				h.last()
				return
			}
		}
		err := h.post(ctx, head.body)
		if err == nil {
			h.pop("")
			wait = pause
			continue
		}
		var refused *refusedError
		if errors.As(err, &refused) && refused.final() {
			h.w.log.Error("a webhook refuses a notification", "url", h.name, "err", err)
			h.pop("refused")
			continue
		}
		h.w.log.Warn("a webhook cannot be reached, it is tried again", "url", h.name, "in", wait, "err", h.redact(err))
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			h.last()
			return
		}
		wait = min(2*wait, time.Minute)
	}
}

// pop takes the first message off the queue; dropped says why it was not delivered, "" when it was.
func (h *webhook) pop(dropped string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	head := h.queue[0]
	h.queue, h.busy = slices.Delete(h.queue, 0, 1), false
	if dropped != "" {
		h.dropLocked(head, dropped)
	}
}

// last tries once to deliver what waits when the program ends.
func (h *webhook) last() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, q := range h.queue {
		if err := h.post(ctx, q.body); err != nil {
			for _, q := range h.queue[i:] {
				h.dropLocked(q, "stopped")
			}
			break
		}
	}
	h.queue = nil
}

// refusedError is an answer other than 2xx.
type refusedError struct {
	status int
	body   string
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("answered %d %s: %s", e.status, http.StatusText(e.status), e.body)
}

// final tells answers that a repetition will not change.
func (e *refusedError) final() bool {
	return e.status >= 400 && e.status < 500 && e.status != http.StatusTooManyRequests && e.status != http.StatusRequestTimeout
}

func (h *webhook) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "rollscope")
	res, err := h.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 512)) // only for the log
	if res.StatusCode/100 == 2 {
		return nil
	}
	return &refusedError{res.StatusCode, strings.TrimSpace(string(text))}
}

// redact keeps the URL's secrets out of an error.
func (h *webhook) redact(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return fmt.Errorf("%s %s: %w", u.Op, h.name, u.Err)
	}
	return err
}
