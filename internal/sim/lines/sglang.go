package lines

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/sim"
)

// who is a process that writes as SGLang does.
type who struct {
	member  string
	kind    sim.Kind
	version string
	ranks   string // " DP1 TP0", "" for the process that speaks HTTP
}

// ranksOf are the ranks of a scheduler's lines. Only dimensions above one are named.
func ranksOf(rank, dp, tp int) string {
	s := ""
	if dp > 1 {
		s += fmt.Sprintf(" DP%d", rank)
	}
	if tp > 1 {
		s += " TP0"
	}
	return s
}

// say adds a line of SGLang's: behind a time and ranks, or within a line of Dynamo's.
func (r *Renderer) say(w who, at time.Time, text string) { r.sayAs(w, at, "INFO", text) }

func (r *Renderer) sayAs(w who, at time.Time, level, text string) {
	if w.kind == sim.DynamoWorker {
		r.add(w.member, at, func(t time.Time) string { return dynamoLog(t, level, text) })
		return
	}
	r.add(w.member, at, func(t time.Time) string { return "[" + r.local(t) + w.ranks + "] " + text })
}

func (r *Renderer) local(t time.Time) string {
	if r.o.Millis {
		return t.Format("2006-01-02 15:04:05.000")
	}
	return t.Format("2006-01-02 15:04:05")
}

// batch writes a "Prefill batch" or "Decode batch" line as the engine's release does.
func (r *Renderer) batch(p sim.Report) {
	v := release(p.Version)
	w := who{p.Member, p.Kind, p.Version, ranksOf(p.Rank, p.DP, p.TP)}
	usage := 0.0
	if p.Capacity > 0 {
		usage = float64(p.Tokens) / float64(p.Capacity)
	}
	var b strings.Builder
	switch p.What {
	case "prefill":
		fmt.Fprintf(&b, "Prefill batch, #new-seq: %d, #new-token: %d, #cached-token: %d, token usage: %.2f, #running-req: %d, #queue-req: %d, ",
			p.New, p.Computed, p.Cached, usage, p.Running, p.Queue)
		if v >= 11 {
			fmt.Fprintf(&b, "#pending-token: %d, ", p.Queue*900)
		}
		if p.Role == engine.Prefill {
			boot := "#prealloc-req"
			if v >= 12 {
				boot = "#bootstrap-req"
			}
			fmt.Fprintf(&b, "%s: %d, #inflight-req: %d, ", boot, p.Bootstrap, p.Inflight)
		}
		if v >= 9 {
			b.WriteString("cuda graph: False, ")
		}
		if v >= 10 || p.Role == engine.Prefill {
			speed := 0.0
			if p.Took > 0 {
				speed = float64(p.Computed) / p.Took
			}
			fmt.Fprintf(&b, "input throughput (token/s): %.2f, ", speed)
		}
	case "decode":
		fmt.Fprintf(&b, "Decode batch, #running-req: %d, #token: %d, token usage: %.2f, ", p.Running, p.Tokens, usage)
		if p.AcceptLen > 0 {
			fmt.Fprintf(&b, "accept len: %.2f, accept rate: %.2f, ", p.AcceptLen, p.AcceptRate)
		}
		if p.Role == engine.Decode {
			fmt.Fprintf(&b, "pre-allocated usage: %.2f, #prealloc-req: %d, #transfer-req: %d, #retracted-req: 0, ", usage*0.1, p.Prealloc, p.Transfer)
		}
		fmt.Fprintf(&b, "cuda graph: %s, gen throughput (token/s): %.2f, #queue-req: %d, ", title(p.Running <= 160), p.Throughput, p.Queue)
	default: // what only moves gauges is not logged
		return
	}
	text := b.String()
	if v >= 9 {
		text = strings.TrimSuffix(text, ", ")
	}
	r.say(w, p.Time, text)
}

// title writes a truth as Python does.
func title(v bool) string {
	if v {
		return "True"
	}
	return "False"
}

// sglangCall writes what is said of one request: access, statistics, failures.
func (r *Renderer) sglangCall(c sim.Call) {
	if c.Received.IsZero() || c.Outcome == sim.Failed && c.Room == 0 {
		return // it never came here, or the process that would tell is dead
	}
	sched := who{c.Member, c.Kind, c.Version, ranksOf(c.Rank, c.DP, c.TP)}
	http := who{c.Member, c.Kind, c.Version, ""}
	failed := r.transferFailed(sched, c)
	r.access(c)
	if r.o.NoRequests {
		return
	}
	if !failed && !c.Started.IsZero() {
		r.timeStats(sched, c)
	}
	if release(c.Version) >= 10 && c.Role != engine.Prefill {
		r.requestLog(http, c)
	}
}

// transferFailed tells of a KV transfer that broke.
func (r *Renderer) transferFailed(w who, c sim.Call) bool {
	if c.Outcome != sim.Failed || c.Room == 0 {
		return false
	}
	req, half := "req", "Prefill"
	if c.Role == engine.Decode {
		req, half = "decode_req.req", "Decode"
	}
	r.sayAs(w, c.Ended, "ERROR", fmt.Sprintf("%s transfer failed for request rank=%d %s.rid='%s' %s.bootstrap_room=%d with exception KVTransferError(bootstrap_room=%d): Failed to send kv chunk",
		half, c.Rank, req, c.RID, req, c.Room, c.Room))
	return true
}

// access writes uvicorn's line: when the answer begins, so for a stream with its first token. (The model
// tells of a call when it is over: the line then has the time of the lines around it.)
func (r *Renderer) access(c sim.Call) {
	at, status := c.Ended, "200 OK"
	switch {
	case c.Streaming && !c.First.IsZero():
		at = c.First
	case c.Outcome == sim.Aborted:
		return // the client is gone before anything was sent
	case c.Outcome == sim.Failed:
		status = "500 Internal Server Error"
	}
	path := "/v1/chat/completions"
	if !c.Streaming && c.Session == 0 {
		path = "/generate"
	}
	w := who{c.Member, c.Kind, c.Version, ""}
	r.say(w, at, fmt.Sprintf(`INFO:     %s - "POST %s HTTP/1.1" %s`, r.client(c.ID), path, status))
}

// timeStats writes what --enable-request-time-stats-logging says at a request's end.
func (r *Renderer) timeStats(w who, c sim.Call) {
	kind := "unified"
	switch c.Role {
	case engine.Prefill:
		kind = "prefill"
	case engine.Decode:
		kind = "decode"
	}
	room := ""
	if c.Room != 0 {
		room = fmt.Sprintf(", bootstrap_room=%d", c.Room)
	}
	entered := first(c.Queued, c.Received)
	queue := millis(c.Queued, c.Started)
	if n := len(c.Retracted); n > 0 && release(c.Version) < 16 {
		// Before 0.5.16 the time of the last return to the queue was taken for that of the first.
		queue = millis(c.Retracted[n-1], c.Started)
	}
	forward := millis(c.Started, c.Ended)
	var transfer string
	if c.Role == engine.Prefill && !c.Sent.IsZero() {
		forward = millis(c.Started, c.Sent)
		speed := 0.0
		if d := c.Ended.Sub(c.Sent).Seconds(); d > 0 {
			speed = c.KVBytes / 1e9 / d
		}
		transfer = fmt.Sprintf(", transfer_speed=%.2f GB/s, transfer_total=%.2f MB", speed, c.KVBytes/1e6)
	}
	boot := first(c.Granted, c.Received).Add(3 * time.Millisecond)
	if release(c.Version) < 12 {
		text := fmt.Sprintf("Req Time Stats(rid=%s%s, input len=%d, output len=%d, type=%s): ", c.RID, room, c.Prompt, c.Output, kind)
		switch kind {
		case "prefill":
			text += fmt.Sprintf("bootstrap_queue_duration(%s) queue_duration=%s, forward_duration=%s, start=%s%s, #retries=0",
				millis(c.Received, c.Queued), queue, forward, uptime(c.Received), strings.ReplaceAll(transfer, " GB", "GB"))
		case "decode":
			text += fmt.Sprintf("prealloc_queue_duration(%s) = bootstrap(3.00ms) + alloc_wait(%s); transfer_duration=%s; queue_duration=%s, forward_duration=%s, start=%s",
				millis(c.Received, boot), millis(c.Received, c.Granted), millis(boot, c.Arrived), queue, forward, uptime(c.Received))
		default:
			text += fmt.Sprintf("queue_duration=%s, forward_duration=%s, start_time=%s", queue, forward, uptime(entered))
		}
		r.say(w, c.Ended, text)
		return
	}
	body := fmt.Sprintf("queue_duration=%s, forward_duration=%s, entry_time=%s", queue, forward, stampSeconds(entered))
	switch kind {
	case "prefill":
		body = fmt.Sprintf("bootstrap_duration=%s, %s%s", millis(c.Received, c.Queued), body, transfer)
	case "decode":
		body = fmt.Sprintf("bootstrap_duration=3.00ms, alloc_wait_duration=%s, transfer_duration=%s, %s", millis(c.Received, c.Granted), millis(boot, c.Arrived), body)
	}
	r.say(w, c.Ended, fmt.Sprintf("ReqTimeStats(rid=%s%s, input_len=%d, cached_input_len=%d, output_len=%d, attempts=%d, type=%s): %s",
		c.RID, room, c.Prompt, c.Cached, c.Output, len(c.Retracted), kind, body))
}

// uptime is a reading of a clock that counts from the machine's start.
func uptime(t time.Time) string { return fmt.Sprintf("%.3f", float64(t.UnixMilli()%1e9)/1000) }

// finished is what --log-requests-format json writes at a request's end, with --log-requests-level 0.
type finished struct {
	Timestamp string `json:"timestamp"`
	Event     string `json:"event"`
	RID       string `json:"rid"`
	Obj       struct {
		Stream bool   `json:"stream"`
		Room   uint64 `json:"bootstrap_room,omitempty"`
	} `json:"obj"`
	Out struct {
		Meta metaInfo `json:"meta_info"`
	} `json:"out"`
}

type metaInfo struct {
	ID               string  `json:"id"`
	FinishReason     any     `json:"finish_reason"`
	PromptTokens     int     `json:"prompt_tokens"`
	CompletionTokens int     `json:"completion_tokens"`
	CachedTokens     int     `json:"cached_tokens"`
	E2E              float64 `json:"e2e_latency"`
	Queue            float64 `json:"queue_time"`
	Received         float64 `json:"request_received_ts"`
	Sent             float64 `json:"response_sent_to_client_ts"`
	Throughput       float64 `json:"decode_throughput,omitempty"`
	Retractions      int     `json:"num_retractions"`
	DPRank           *int    `json:"dp_rank,omitempty"`
}

type finishReason struct {
	Type    string `json:"type"`
	Length  int    `json:"length,omitempty"`
	Matched int    `json:"matched,omitempty"`
	Message string `json:"message,omitempty"`
	Status  int    `json:"status_code,omitempty"`
}

func (r *Renderer) requestLog(w who, c sim.Call) {
	f := finished{Event: "request.finished", RID: c.RID}
	f.Obj.Stream, f.Obj.Room = c.Streaming, c.Room
	m := &f.Out.Meta
	*m = metaInfo{ID: c.RID, PromptTokens: c.Prompt, CompletionTokens: c.Output, CachedTokens: c.Cached, E2E: seconds(c.Received, c.Ended), Queue: seconds(c.Queued, c.Started),
		Received: stamp(c.Received), Sent: stamp(c.Ended), Retractions: len(c.Retracted)}
	if c.DP > 1 {
		m.DPRank = &c.Rank
	}
	if d := seconds(c.First, c.Ended); d > 0 && c.Output > 1 {
		m.Throughput = float64(int(float64(c.Output-1)/d*1000)) / 1000
	}
	switch {
	case c.Outcome == sim.Aborted:
		m.FinishReason = finishReason{Type: "abort", Message: "Client disconnected", Status: 499}
	case c.Outcome == sim.Failed:
		m.FinishReason = finishReason{Type: "abort", Message: "KVTransferError: KV transfer failed", Status: 500}
	case c.Output >= c.Limit:
		m.FinishReason = finishReason{Type: "length", Length: c.Limit}
	default:
		m.FinishReason = finishReason{Type: "stop", Matched: 151645}
	}
	r.add(w.member, c.Ended, func(t time.Time) string {
		f.Timestamp = t.Format("2006-01-02T15:04:05.000000")
		b, err := json.Marshal(f)
		if err != nil { // numbers and texts of our own
			b = []byte("{}")
		}
		return "[" + r.local(t) + "] " + string(b)
	})
}

// seconds between two times, 0 when one was not reached.
func seconds(from, to time.Time) float64 {
	if from.IsZero() || to.IsZero() {
		return 0
	}
	return float64(to.Sub(from).Microseconds()) / 1e6
}

// stamp is a time in seconds since 1970.
func stamp(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// retract tells that requests were thrown out of the batch.
func (r *Renderer) retract(st *member, m sim.Moment) {
	if m.Kind == sim.VLLM {
		st.stats.preempted += max(m.Requests, 1)
		return
	}
	before := st.ratios[m.Rank]
	if before == 0 || before > m.Ratio {
		before = m.Ratio * 0.7
	}
	st.ratios[m.Rank] = m.Ratio
	r.sayAs(who{m.Member, m.Kind, m.Version, ranksOf(m.Rank, m.DP, m.TP)}, m.Time, "WARN",
		fmt.Sprintf("KV cache pool is full. Retract requests. #retracted_reqs: %d, #new_tokens_gained: %d, #new_token_ratio: %.4f -> %.4f",
			max(m.Requests, 1), 400+mix(hashOf(m.RID))%900, before, m.Ratio))
}

// admin writes the lines of calls that a trainer makes.
func (r *Renderer) admin(m sim.Moment) {
	if m.Kind != sim.SGLang {
		return
	}
	w := who{m.Member, m.Kind, m.Version, ""}
	post := func(at time.Time, path string) {
		r.say(w, at, fmt.Sprintf(`INFO:     %s - "POST %s HTTP/1.1" 200 OK`, r.client(hashOf(path)), path))
	}
	switch m.What {
	case sim.Sweep:
		post(m.Time, "/abort_request")
	case sim.Paused:
		post(m.Time, "/pause_generation")
	case sim.Synced:
		s := who{m.Member, m.Kind, m.Version, ranksOf(0, m.DP, m.TP)}
		r.say(s, m.Time, "Cache flushed successfully!")
		r.say(s, m.Time, fmt.Sprintf("Update weights from distributed done. elapsed=%.2f s", m.Seconds))
		post(m.Time, "/update_weights_from_distributed")
		post(m.Time, "/continue_generation")
	}
}

// stuck writes what a process that makes no progress says.
func (r *Renderer) stuck(st *member, now time.Time) {
	if st.hung.IsZero() || st.ref.Kind != sim.SGLang && st.ref.Kind != sim.DynamoWorker {
		return
	}
	w := who{st.ref.Member, st.ref.Kind, st.ref.Version, ""}
	for !st.told.Add(healthEvery).After(now) {
		st.told = st.told.Add(healthEvery)
		tic := st.told.Add(-healthEvery)
		r.sayAs(w, st.told, "ERROR", fmt.Sprintf("Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: %s. last_heartbeat time: %s",
			tic.In(r.o.Zone).Format("15:04:05"), st.hung.In(r.o.Zone).Format("15:04:05")))
		r.say(w, st.told, fmt.Sprintf(`INFO:     %s - "GET /health HTTP/1.1" 503 Service Unavailable`, r.client(1)))
	}
	if at := st.hung.Add(watchdogAfter); !st.alarmed && !at.After(now) {
		st.alarmed = true
		s := who{st.ref.Member, st.ref.Kind, st.ref.Version, ranksOf(0, st.ref.DP, st.ref.TP)}
		if release(st.ref.Version) < 7 {
			r.sayAs(s, at, "ERROR", "Watchdog timeout (self.watchdog_timeout=60)")
			return
		}
		r.sayAs(s, at, "ERROR", fmt.Sprintf("Scheduler debug info: running batch of %d", st.ref.Requests))
		r.sayAs(s, at, "ERROR", "Scheduler watchdog timeout (self.watchdog_timeout=60.0, self.soft=True)")
	}
}

const (
	healthEvery   = 20 * time.Second // a health check waits this long for the detokenizer
	watchdogAfter = time.Minute      // --soft-watchdog-timeout 60
)
