// Package systemport is one port for a node, as NVIDIA Dynamo's workers have it: the metrics of all
// engines of this machine in one exposition, and their health. Its entry point is [New].
package systemport

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/engine"
)

// Target is a program that is scraped.
type Target struct {
	Pool     string // job_name of its scrape config
	URL      string
	Instance string // host:port of the URL
	Engine   string // the instance that it is in the configuration's eyes, see [Input.Engine]
	Backend  engine.Backend
	Up       *bool // as the last scrape went, nil when none has told
	EverUp   bool  // it has given metrics, also before this process began
	Reason   string
	Message  string
}

// Answer is what a target said when it was asked.
type Answer struct {
	ContentType string
	Body        []byte
	Reason      string // one word why there is no body, "" when there is
	Message     string
}

// Options are what a Port is made of; all but Health are required.
type Options struct {
	Targets func(context.Context) []Target
	// Fetch asks a target. It ends with ctx, and bounds the size of an answer by limit bytes.
	Fetch   func(ctx context.Context, t Target, limit int64) Answer
	Machine *Machine
	Health  HealthConfig // of [ParseHealthConfig]
	Now     func() time.Time
}

// Port answers on the system port. It is safe for concurrent use.
type Port struct {
	opts    Options
	started time.Time
	slots   chan struct{}

	mu    sync.Mutex
	drops map[string]int64
	same  map[string]string // Dynamo workers that were seen to repeat an engine, and which, by instance
}

// Bounds of one answer.
const (
	maxBody        = 32 << 20         // of one engine, bytes,
	maxBodies      = 256 << 20        // and of all of them: where there are many each may have less,
	minBody        = 2 << 20          // but this much
	defaultTimeout = 10 * time.Second // of a caller that does not say how long it waits: Prometheus's default
	maxTimeout     = 2 * time.Minute
	writeTimeout   = 30 * time.Second // for a caller to take the answer
	slots          = 4                // answers in the making at a time: each asks all engines
	asked          = 256              // engines asked at a time: those that hang must not keep others from being asked
)

// contentType is that of the text format.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

// New makes a port; its uptime begins now.
func New(o Options) *Port {
	return &Port{opts: o, started: o.Now(), slots: make(chan struct{}, slots), drops: map[string]int64{}, same: map[string]string{}}
}

// HealthPath is where [Port.ServeHealth] is to be served.
func (p *Port) HealthPath() string { return p.opts.Health.HealthPath }

// LivePath is the second path of [Port.ServeHealth].
func (p *Port) LivePath() string { return p.opts.Health.LivePath }

// Drops counts by reason what was not passed on in all answers so far, though it is the engines' own:
// unreadable lines, series given twice, answers too large. Lines that somebody repeats for an engine are not among them.
func (p *Port) Drops() map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]int64, len(p.drops))
	for r, n := range p.drops {
		out[r] = n
	}
	return out
}

// silent are programs that have no names of those that are passed on, or other meanings under them.
func silent(b engine.Backend) bool {
	return b == engine.DCGM || b == engine.Router || b == engine.SGLangLoads || b == engine.Trainer
}

// local are the targets of this machine, sorted, each once, whatever name of the machine it goes by.
func (p *Port) local(ctx context.Context, place Place) []Target {
	var out []Target
	seen := map[string]bool{}
	for _, t := range p.opts.Targets(ctx) {
		key, ok := place(t.Instance)
		key += " " + pathOf(t.URL)
		if ok && !seen[key] {
			seen[key] = true
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b Target) int {
		if c := strings.Compare(a.Instance, b.Instance); c != 0 {
			return c
		}
		return strings.Compare(a.URL, b.URL)
	})
	return out
}

// pathOf is what stands behind the host of a URL.
func pathOf(u string) string {
	_, rest, _ := strings.Cut(u, "://")
	_, path, _ := strings.Cut(rest, "/")
	return path
}

// ServeHealth answers as Dynamo does: 200 or 503, JSON named text. What it says is what the last scrape saw.
func (p *Port) ServeHealth(w http.ResponseWriter, r *http.Request) {
	targets := p.local(r.Context(), p.opts.Machine.Places(r.Context()))
	h := Judge(targets, p.opts.Health, p.opts.Now().Sub(p.started))
	body, err := json.Marshal(h)
	if err != nil { // of our own strings and numbers: it does not happen
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	status := http.StatusOK
	if h.Status != Ready {
		status = http.StatusServiceUnavailable
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// ServeMetrics asks the engines of this machine and answers with what they said, in the text format whatever
// the caller accepts: that is what Dynamo's workers do, and every reader of OpenMetrics reads it.
func (p *Port) ServeMetrics(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Add("Vary", "Accept-Encoding")
	if r.Method == http.MethodHead { // no engine needs to be asked for what is not sent
		h.Set("Content-Type", contentType)
		return
	}
	text, ok := p.answer(r)
	if !ok {
		h.Set("Retry-After", "1")
		http.Error(w, "too many scrapes of this port at a time: each asks every engine of the machine", http.StatusServiceUnavailable)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // of the socket; a writer without one has no such caller
	h.Set("Content-Type", contentType)
	if !takesGzip(r.Header.Get("Accept-Encoding")) {
		h.Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = w.Write(text)
		return
	}
	h.Set("Content-Encoding", "gzip")
	zip, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is a good one
	_, _ = zip.Write(text)
	_ = zip.Close()
}

// answer makes the exposition; false when too many are in the making. Its slot is free again before the caller
// takes it, which may be slow.
func (p *Port) answer(r *http.Request) ([]byte, bool) {
	ctx, cancel := context.WithTimeout(r.Context(), patience(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds")))
	defer cancel()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
		return p.exposition(r.Context(), ctx), true
	case <-ctx.Done():
		return nil, false
	}
}

// patience is how long engines may take: less than the caller waits, so that one that hangs costs its
// own part of the answer and not the whole.
func patience(header string) time.Duration {
	d := defaultTimeout
	if s, err := strconv.ParseFloat(header, 64); err == nil && s > 0 {
		d = time.Duration(min(s, maxTimeout.Seconds()) * float64(time.Second))
	}
	return d - min(d/5, time.Second)
}

func takesGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, params, _ := strings.Cut(part, ";")
		if strings.TrimSpace(name) != "gzip" {
			continue
		}
		q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=")
		f, err := strconv.ParseFloat(q, 64)
		return !ok || err != nil || f > 0
	}
	return false
}

// exposition asks every target of this machine, until ctx ends, and joins the answers for the caller.
func (p *Port) exposition(caller, ctx context.Context) []byte {
	place := p.opts.Machine.Places(caller)
	targets := slices.DeleteFunc(p.local(caller, place), func(t Target) bool { return silent(t.Backend) })
	answers := p.ask(ctx, targets)
	var inputs []Input
	var of []int
	for i, t := range targets {
		if a := &answers[i]; a.Reason == "" && len(bytes.TrimSpace(a.Body)) == 0 {
			a.Reason = noMetricsYet
		} else if a.Reason == "" {
			of = append(of, i)
			kind, _, err := mime.ParseMediaType(a.ContentType)
			inputs = append(inputs, Input{Instance: t.Instance, Engine: t.Engine, WorkerAddr: workerAddr(t), Body: a.Body,
				OpenMetrics: err == nil && kind == "application/openmetrics-text"})
		}
	}
	m := Merge(inputs, place, p.knownSame())
	for n, i := range of {
		if m.Parsed[n] == 0 && !comments(answers[i].Body) {
			answers[i].Reason = "not_an_exposition"
		} else if m.Parsed[n] == 0 {
			answers[i].Reason = noMetricsYet
		}
	}
	p.count(m, answers)
	p.remember(inputs, m)
	return append(m.Text, report(targets, answers, inputs, m)...)
}

// ask asks all targets at once.
func (p *Port) ask(ctx context.Context, targets []Target) []Answer {
	limit := int64(max(minBody, min(maxBody, maxBodies/max(1, len(targets)))))
	answers := make([]Answer, len(targets))
	gate := make(chan struct{}, asked)
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			answers[i] = p.opts.Fetch(ctx, t, limit)
		})
	}
	wg.Wait()
	return answers
}

func (p *Port) knownSame() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.same)
}

// remember keeps which worker has which engine: a moment later an engine that is busy may have gone on between
// the two answers, and nothing proves it. A pair that both answered and was not found again is forgotten.
func (p *Port) remember(inputs []Input, m Merged) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answered := map[string]bool{}
	for _, in := range inputs {
		answered[in.Instance] = true
	}
	for worker, of := range p.same {
		if answered[worker] && answered[of] {
			delete(p.same, worker)
		}
	}
	for _, s := range m.Same {
		if s.Evidence == Values {
			p.same[inputs[s.Input].Instance] = inputs[s.Engine].Instance
		}
	}
	if len(p.same) > maxRemembered {
		clear(p.same) // they come and go: they are found again
	}
}

// maxRemembered bounds the pairs of workers that went away.
const maxRemembered = 4096

// noMetricsYet is the reason of a program that answers and has nothing to say: SGLang until its first request.
const noMetricsYet = "no_metrics_yet"

// comments tells whether a text has nothing but comments.
func comments(body []byte) bool {
	for line := range bytes.Lines(body) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// workerAddr names a target as SGLang's router does.
func workerAddr(t Target) string {
	scheme, _, ok := strings.Cut(t.URL, "://")
	if !ok {
		scheme = "http"
	}
	return scheme + "://" + t.Instance
}

func (p *Port) count(m Merged, answers []Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, by := range m.Left {
		for reason, n := range by {
			if reason == DropBadLine || reason == DropDuplicate {
				p.drops[reason] += int64(n)
			}
		}
	}
	for _, a := range answers {
		if a.Reason == "body_size_limit" {
			p.drops[a.Reason]++
		}
	}
}

// report is what this port says about its answer, so that what is missing is not taken for zero.
func report(targets []Target, answers []Answer, inputs []Input, m Merged) []byte {
	var answered, missing, left, same, alike bytes.Buffer
	for i, t := range targets {
		a, by := answers[i], fmt.Sprintf(`%s="%s"`, WorkerLabel, escape(workerAddr(t)))
		path := fmt.Sprintf(`,target="%s"`, escape(t.URL))
		ok := 1
		if a.Reason != "" {
			ok = 0
			seen := t // what counts is this answer, and whether there was ever one
			seen.Up, seen.Reason = nil, a.Reason
			fmt.Fprintf(&missing, "rollscope_system_target_missing{%s%s,state=\"%s\",reason=\"%s\"} 1\n", by, path, seen.state(), escape(a.Reason))
		}
		fmt.Fprintf(&answered, "rollscope_system_target_answered{%s%s} %d\n", by, path, ok)
	}
	for _, instance := range sorted(m.Left) {
		for _, reason := range sorted(m.Left[instance]) {
			fmt.Fprintf(&left, "rollscope_system_lines_left_out{source=\"%s\",reason=\"%s\"} %d\n", escape(instance), reason, m.Left[instance][reason])
		}
	}
	for _, s := range m.Same {
		fmt.Fprintf(&same, "rollscope_system_same_engine{%s=\"%s\",engine=\"%s\",evidence=\"%s\"} 1\n", WorkerLabel, escape(inputs[s.Input].WorkerAddr), escape(inputs[s.Engine].WorkerAddr), s.Evidence)
	}
	for _, i := range m.Alike {
		fmt.Fprintf(&alike, "rollscope_system_perhaps_same_engine{%s=\"%s\"} 1\n", WorkerLabel, escape(inputs[i].WorkerAddr))
	}
	var b bytes.Buffer
	for _, f := range []struct {
		name, help string
		lines      *bytes.Buffer
	}{
		{"rollscope_system_target_answered", "Whether a target of this machine is in this answer: 1, or 0 when it did not answer.", &answered},
		{"rollscope_system_target_missing", "Targets that are not in this answer, and why; an engine that was never up is starting.", &missing},
		{"rollscope_system_lines_left_out", "Lines of engines, workers and routers that are not in this answer, and why.", &left},
		{"rollscope_system_same_engine", "Programs that repeat an engine which answers itself: what it said is here once, under the address of the engine.", &same},
		{"rollscope_system_perhaps_same_engine", "Workers that may repeat an engine which answers itself, unproven: all is here, perhaps twice. Name them in rollscope.engines.", &alike},
	} {
		if f.lines.Len() > 0 {
			fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n", f.name, f.help, f.name)
			b.Write(f.lines.Bytes())
		}
	}
	return b.Bytes()
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
