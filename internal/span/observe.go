package span

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/request"
)

// Observe says what a trace tells about requests: one observation of each place that saw a whole one, the
// frontend and the router first, then each engine; the halves of a PD pair and the attempts of a retried
// request are observations of their own, which the aliases tie together. Nothing is guessed: a number that
// neither an attribute nor a span's own times give is absent.
func Observe(t *Tree) []request.Observation {
	nodes := t.requestNodes()
	out := make([]request.Observation, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, t.observe(n, nodes))
	}
	return out
}

// requestNodes are the nodes that stand for whole requests, in the order of the tree.
func (t *Tree) requestNodes() []int {
	var out []int
	for i := range t.Nodes {
		s := t.Of(i)
		if s == nil {
			continue
		}
		switch m := t.Meaning(i); m.Class {
		case ClassFrontend:
			if t.generates(i) {
				out = append(out, i)
			}
		case ClassRequest:
			// A wrapper around the engine's own span of the same request says the same with less.
			if s.finishReason() != "" || !t.below(i, func(c int) bool { return t.Meaning(c).Class == ClassRequest }) {
				out = append(out, i)
			}
		}
	}
	if len(out) > 0 {
		return out
	}
	// Nobody whose names are known: what looks like a request all the same.
	for _, r := range t.Roots {
		if t.Of(r) == nil {
			t.Children(r, func(c int) {
				if t.looksLikeRequest(c) {
					out = append(out, c)
				}
			})
		} else if t.looksLikeRequest(r) {
			out = append(out, r)
		}
	}
	return out
}

// below tells whether a node below one fits.
func (t *Tree) below(node int, fits func(int) bool) bool {
	for c := node + 1; c < node+t.Nodes[node].Size; c++ {
		if fits(c) {
			return true
		}
	}
	return false
}

// generates tells whether an HTTP span is about a generation rather than a probe or a list of models.
func (t *Tree) generates(node int) bool {
	s := t.Of(node)
	path := s.first("uri", "url.path", "http.target", "http.route", "path")
	if u, err := url.Parse(path); err == nil && u.Path != "" {
		path = u.Path
	}
	if path == "" {
		return true
	}
	for _, end := range [...]string{"/generate", "/completions", "/responses", "/messages", "/embeddings", "/invocations", "/rerank", "/score", "/classify", "/encode"} {
		if strings.HasSuffix(strings.TrimSuffix(path, "/"), end) {
			return true
		}
	}
	return t.below(node, func(c int) bool { return t.Of(c) != nil && isEngine(t.Meaning(c).Class) })
}

func (t *Tree) looksLikeRequest(node int) bool {
	s := t.Of(node)
	if isEngine(t.Meaning(node).Class) {
		return true
	}
	for i := range s.Attrs {
		if strings.HasPrefix(s.Attrs[i].Key, "gen_ai.") {
			return true
		}
	}
	for i := range shortcuts[:4] {
		if s.first(shortcuts[i].keys...) != "" {
			return true
		}
	}
	return t.below(node, func(c int) bool { return t.Of(c) != nil && isEngine(t.Meaning(c).Class) })
}

// isEngine tells classes that only an engine sends.
func isEngine(c Class) bool {
	switch c {
	case ClassRequest, ClassThread, ClassTokenize, ClassDispatch, ClassQueue, ClassPrefill, ClassTransfer, ClassDecode, ClassStep, ClassDetokenize:
		return true
	}
	return false
}

// seconds is a duration as a value; a negative one cannot be.
func seconds(ns int64) request.Value {
	v := request.Value{V: float64(ns) / 1e9, State: request.Known}
	if ns < 0 {
		v.State = request.Invalid
	}
	return v
}

func (t *Tree) observe(node int, all []int) request.Observation {
	n, s, m := &t.Nodes[node], t.Of(node), t.Meaning(node)
	o := request.Observation{
		Source: request.FromTrace, Start: s.Start, Role: m.Role, Service: s.Service, Spans: t.realSpans(node),
		Final: s.End > 0, Streaming: s.streaming(),
		Model:        s.first(shortcuts[4].keys...),
		PromptTokens: s.value(promptTokens), CompletionTokens: s.value(completionTokens), CachedTokens: s.value(cachedTokens),
		TTFT: s.value(timeToFirst), ITL: s.value(timePerToken), E2E: s.value(endToEnd), Queue: s.value(inQueue),
		TransferSpeed: s.value(transferSpeed), TransferSize: s.value(transferSize),
		WeightVersion: s.first("weight_version", "gen_ai.response.weight_version"),
	}
	if s.End > 0 {
		o.Finish = s.End
	}
	if o.E2E.State == request.Absent && s.Start > 0 && s.End > 0 {
		o.E2E = seconds(s.End - s.Start)
	}
	engine := m.Class != ClassFrontend
	if t.Engine != nil && engine {
		o.Engine = t.Engine(s)
	}
	var st stages
	if engine {
		st = t.stages(node)
		if o.Role == "" {
			o.Role = st.role
		}
		if o.Role == "" && m.System != "" && m.System != "slime" {
			o.Role = "unified"
		}
		st.fill(&o)
		// vLLM measures these in the engine. SGLang's count from the dispatch on, waiting included: its spans
		// are better, and where there are none the attributes are not what the field means.
		if m.System != "sglang" {
			o.Prefill = or(o.Prefill, s.value(inPrefill))
		}
		o.Decode = or(o.Decode, s.value(inDecode))
	} else {
		t.attempts(node, all, &o)
	}
	if o.ITL.State == request.Absent {
		e2e, ok1 := o.E2E.Known()
		ttft, ok2 := o.TTFT.Known()
		tokens, ok3 := o.CompletionTokens.Known()
		if ok1 && ok2 && ok3 && tokens > 1 && e2e >= ttft {
			o.ITL = request.Value{V: (e2e - ttft) / (tokens - 1), State: request.Known}
		}
	}
	if tokens, ok := o.CompletionTokens.Known(); ok {
		if d, ok := o.Decode.Known(); ok && d > 0 {
			o.DecodeThroughput = request.Value{V: tokens / d, State: request.Known}
		}
	}
	t.outcome(node, &st, &o)
	t.aliases(node, &o)
	if n.Flags&SkewedClock != 0 {
		o.Flags = append(o.Flags, "skewed")
	}
	if t.Missing > 0 {
		o.Flags = append(o.Flags, "incomplete")
	}
	if st.autoClosed {
		o.Flags = append(o.Flags, "auto_closed")
	}
	return o
}

func or(a, b request.Value) request.Value {
	if a.State == request.Absent {
		return b
	}
	return a
}

func (t *Tree) realSpans(node int) int {
	count := 0
	for i := node; i < node+t.Nodes[node].Size; i++ {
		if t.Nodes[i].Span >= 0 {
			count++
		}
	}
	return count
}

// stages are what the spans below an engine's request say of its phases. Durations are ns.
type stages struct {
	role                                       string
	queue, prefill, decode, transfer           extent
	chunks, steps                              extent
	bootstrap, prealloc, wait                  extent
	queueSum, waitSum, transferSum, prefillSum int64
	decodeSum                                  int64
	retracted                                  int
	autoClosed, aborted, failed                bool
	abortWhy, failure                          string
}

// extent is from the first start to the last end of some spans.
type extent struct {
	start, end int64
	n          int
}

func (e *extent) add(n *Node) {
	if n.Flags&(NoTime|NegativeEnd) != 0 {
		return
	}
	if e.n == 0 || n.Start < e.start {
		e.start = n.Start
	}
	e.end = max(e.end, n.End)
	e.n++
}

func (t *Tree) stages(node int) stages {
	var st stages
	for i := node; i < node+t.Nodes[node].Size; i++ {
		s := t.Of(i)
		if s == nil {
			continue
		}
		if i > node && t.Meaning(i).Class == ClassRequest {
			i += t.Nodes[i].Size - 1 // another request's own
			continue
		}
		n, m := &t.Nodes[i], t.Meaning(i)
		if m.Role != "" && st.role == "" && m.Class != ClassRequest && m.Class != ClassFrontend && m.Role != "frontend" && m.Role != "router" {
			st.role = m.Role
		}
		d := n.End - n.Start
		switch s.Name {
		case "prefill_waiting":
			st.queue.add(n)
			st.queueSum += d
		case "decode_waiting":
			st.wait.add(n)
			st.waitSum += d
		case "prefill_forward", "prefill":
			st.prefill.add(n)
			st.prefillSum += d
		case "chunked_prefill":
			st.chunks.add(n)
		case "decode_forward", "decode":
			st.decode.add(n)
			st.decodeSum += d
		case "decode_loop", "decode loop":
			st.steps.add(n)
		case "prefill_transfer_kv_cache", "decode_transferred":
			st.transfer.add(n)
			st.transferSum += d
		case "prefill_bootstrap":
			st.bootstrap.add(n)
		case "decode_bootstrap":
			st.prealloc.add(n)
		}
		for k := range s.Events {
			switch s.Events[k].Name {
			case "retract":
				st.retracted++
			case "exception":
				if v, ok := find(s.Events[k].Attrs, "exception.message"); ok && st.failure == "" {
					st.failure = v.Str
				} else if v, ok := find(s.Events[k].Attrs, "exception.type"); ok && st.failure == "" {
					st.failure = v.Str
				}
			}
		}
		if s.Status != Failed {
			continue
		}
		// SGLang ends threads that it did not close itself as errors; that is no failure of the request.
		switch reason := s.first("reason"); {
		case strings.Contains(reason, "auto closed"):
			st.autoClosed = true
		case s.first("type") == "abort":
			st.aborted = true
			st.abortWhy = cmp.Or(st.abortWhy, s.first("message"), s.StatusMessage)
		default:
			st.failed = true
			st.failure = cmp.Or(st.failure, s.StatusMessage, s.first("error", "error.message", "error.type", "message"))
		}
	}
	return st
}

// fill gives an observation the numbers that spans measured. Sums, not extents, are what a request spent
// in a stage: after a retraction it goes through some again.
func (st *stages) fill(o *request.Observation) {
	set := func(v *request.Value, n int, ns int64) {
		if n > 0 && v.State == request.Absent {
			*v = seconds(ns)
		}
	}
	if o.Role == "decode" {
		set(&o.Queue, st.wait.n, st.waitSum)
	} else {
		set(&o.Queue, st.queue.n, st.queueSum)
	}
	if st.prefill.n > 0 {
		o.Prefill = seconds(st.prefillSum)
	} else {
		set(&o.Prefill, st.chunks.n, st.chunks.end-st.chunks.start)
	}
	if st.decode.n > 0 {
		o.Decode = seconds(st.decodeSum)
	} else {
		set(&o.Decode, st.steps.n, st.steps.end-st.steps.start)
	}
	set(&o.Transfer, st.transfer.n, st.transferSum)
	if o.Role == "prefill" || o.Role == "decode" {
		phase := func(p request.Phase, n int, ns int64) {
			if n > 0 {
				o.Phases[p] = seconds(ns)
			}
		}
		if o.Role == "prefill" {
			phase(request.PrefillBootstrapQueue, st.bootstrap.n, st.bootstrap.end-st.bootstrap.start)
			phase(request.PrefillTransferQueue, st.transfer.n, st.transferSum)
			if st.prefill.n > 0 { // as the engine's own timings have it, the forward pass holds the transfer
				phase(request.PrefillForward, 1, max(st.prefill.end, st.transfer.end)-st.prefill.start)
			}
		} else {
			phase(request.DecodePrealloc, st.prealloc.n, st.prealloc.end-st.prealloc.start)
			phase(request.DecodeTransfer, st.transfer.n, st.transferSum)
			if d, ok := o.Decode.Known(); ok {
				o.Phases[request.DecodeForward] = request.Value{V: d, State: request.Known}
			}
		}
	}
	if st.retracted > 0 {
		o.Retractions = request.Value{V: float64(st.retracted), State: request.Known}
	}
}

// attempts counts how often a frontend or a router tried: engines' requests below it in one role.
func (t *Tree) attempts(node int, all []int, o *request.Observation) {
	by := map[string]int{}
	for _, i := range all {
		if i > node && i < node+t.Nodes[node].Size && t.Meaning(i).Class == ClassRequest {
			by[t.Meaning(i).Role]++
		}
	}
	most := 0
	for _, n := range by {
		most = max(most, n)
	}
	if most > 1 {
		o.Retries = request.Value{V: float64(most - 1), State: request.Known}
	}
	if most > 0 && o.Model == "" {
		for _, i := range all {
			if i > node && i < node+t.Nodes[node].Size {
				if o.Model = t.Of(i).first(shortcuts[4].keys...); o.Model != "" {
					break
				}
			}
		}
	}
}

func (t *Tree) outcome(node int, st *stages, o *request.Observation) {
	s := t.Of(node)
	o.FinishReason = s.finishReason()
	code, _ := strconv.Atoi(s.first("http.response.status_code", "http.status_code", "status_code"))
	if s.Status == Failed || st.failed {
		o.Error = cmp.Or(s.StatusMessage, s.first("error.type", "error", "error.message", "exception.message"), st.failure)
	}
	abort := strings.Contains(o.FinishReason, "abort") || strings.Contains(o.FinishReason, "cancel") || st.aborted || code == 499
	switch {
	case abort:
		o.Outcome = request.AbortedRequest
		o.Error = cmp.Or(o.Error, st.abortWhy)
		if o.FinishReason == "" && st.aborted {
			o.FinishReason = "abort"
		}
	case s.Status == Failed || st.failed || code >= 400 || strings.Contains(o.FinishReason, "error"):
		o.Outcome = request.ErrorOutcome
		if o.Error == "" && code >= 400 {
			o.Error = "HTTP " + strconv.Itoa(code)
		}
		o.Error = cmp.Or(o.Error, "error")
	case s.End > 0:
		o.Outcome = request.Finished
	default:
		o.Outcome = request.Running
	}
}

// aliases names a request by all that its span and the callers above it, up to the frontend, say.
func (t *Tree) aliases(node int, o *request.Observation) {
	s, m := t.Of(node), t.Meaning(node)
	add := func(kind request.AliasKind, id string) {
		if id != "" && !slices.Contains(o.Aliases, request.Alias{Kind: kind, ID: id}) {
			o.Aliases = append(o.Aliases, request.Alias{Kind: kind, ID: id})
		}
	}
	add(request.TraceID, s.Trace.String())
	add(request.SpanID, s.ID.String())
	rid := s.first(shortcuts[0].keys...)
	if rid != "" {
		add(request.RID, rid)
	}
	requestID := func(s *Span, system string) {
		add(request.XRequestID, s.first(shortcuts[2].keys...))
		if id := s.first(shortcuts[1].keys...); id != "" {
			if system == "dynamo" {
				add(request.DynamoID, id)
			} else {
				add(request.XRequestID, id)
			}
		}
	}
	requestID(s, m.System)
	if room, ok := Room(s.first(shortcuts[3].keys...)); ok {
		add(request.BootstrapRoom, strconv.FormatUint(room, 10))
	}
	for p := t.Nodes[node].Parent; p >= 0; p = t.Nodes[p].Parent {
		ps := t.Of(p)
		if ps == nil {
			break
		}
		switch pm := t.Meaning(p); pm.Class {
		case ClassFrontend, ClassHandler, ClassCall, ClassRouting:
			requestID(ps, pm.System)
		case ClassGroup:
			if _, text, ok := strings.Cut(ps.Name, "Bootstrap Room "); ok {
				if room, ok := Room(text); ok {
					add(request.BootstrapRoom, strconv.FormatUint(room, 10))
				}
			}
		}
	}
}
