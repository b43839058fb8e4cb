package span

import (
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/request"
)

// Class is what a span is about; it chooses the colour and the part of a request that it counts for.
type Class uint8

// Classes.
const (
	ClassOther      Class = iota
	ClassGroup            // holds others and measures nothing of its own
	ClassThread           // a thread or process that worked on a request
	ClassFrontend         // a whole request as the HTTP server in front saw it
	ClassRequest          // a whole request as one engine saw it
	ClassRouting          // choosing a worker
	ClassCall             // waiting for another process
	ClassHandler          // a worker's handling of a call
	ClassTokenize         //
	ClassDispatch         // handing on inside an engine
	ClassQueue            // waiting to be run
	ClassCache            // looking prefixes up
	ClassPrefill          //
	ClassTransfer         // of KV cache between engines
	ClassDecode           // the decoding of one request
	ClassStep             // one pass of many: decode_loop, chunked_prefill, run_batch
	ClassDetokenize       //
	ClassTool             //
	ClassReward           //
	ClassSync             // of weights
	NumClasses
)

var classNames = [NumClasses]string{"other", "group", "thread", "frontend", "request", "routing", "call", "handler",
	"tokenize", "dispatch", "queue", "cache", "prefill", "transfer", "decode", "step", "detokenize", "tool", "reward", "sync"}

// String is the class in a word.
func (c Class) String() string {
	if c < NumClasses {
		return classNames[c]
	}
	return "other"
}

// Meaning is what a span's name says.
type Meaning struct {
	System   string // who names spans so: sglang, smg, dynamo, vllm, slime, otel; "" when nobody known does
	Class    Class
	Phase    request.Phase // when HasPhase
	HasPhase bool
	Level    int    // SGLANG_TRACE_LEVEL that the span needs, 0 when none
	Since    string // generations that use the name
	Role     string // prefill, decode, frontend, router, "" when the name does not say
}

// Generations of SGLang's spans.
const (
	sglang053  = "0.5.3"
	sglang054  = "0.5.4-0.5.9"
	sglang0510 = "0.5.10+"
	sglangAll  = "0.5.3+"
	sglang054p = "0.5.4+"
)

// meanings has the names that are always the same, with where each was found.
var meanings = map[string]Meaning{
	// SGLang, python/sglang/srt/observability/req_time_stats.py (RequestStage) and, before 0.5.10,
	// python/sglang/srt/tracing/trace.py. Levels are the level of each stage there.
	"tokenize":                  {System: "sglang", Class: ClassTokenize, Level: 1, Since: sglangAll},
	"dispatch":                  {System: "sglang", Class: ClassDispatch, Since: "0.5.3-0.5.9"},
	"dc_dispatch":               {System: "sglang", Class: ClassDispatch, Since: sglang054},
	"process req":               {System: "sglang", Class: ClassDispatch, Since: sglang053},
	"prefill":                   {System: "sglang", Class: ClassPrefill, Since: sglang053},
	"decode loop":               {System: "sglang", Class: ClassStep, Since: sglang053},
	"api_server_dispatch":       {System: "sglang", Class: ClassDispatch, Level: 2, Since: sglang0510},
	"dpc_dispatch":              {System: "sglang", Class: ClassDispatch, Level: 2, Since: sglang0510},
	"request_process":           {System: "sglang", Class: ClassDispatch, Level: 2, Since: sglang054p},
	"prefill_waiting":           {System: "sglang", Class: ClassQueue, Level: 1, Since: sglang054p},
	"prefill_forward":           {System: "sglang", Class: ClassPrefill, Level: 1, Since: sglang054p, Phase: request.PrefillForward, HasPhase: true},
	"chunked_prefill":           {System: "sglang", Class: ClassStep, Level: 3, Since: sglang054p},
	"prefill_prepare":           {System: "sglang", Class: ClassDispatch, Level: 1, Since: sglang054p, Role: "prefill"},
	"prefill_bootstrap":         {System: "sglang", Class: ClassQueue, Level: 1, Since: sglang054p, Role: "prefill", Phase: request.PrefillBootstrapQueue, HasPhase: true},
	"prefill_transfer_kv_cache": {System: "sglang", Class: ClassTransfer, Level: 1, Since: sglang054p, Role: "prefill", Phase: request.PrefillTransferQueue, HasPhase: true},
	"decode_prepare":            {System: "sglang", Class: ClassDispatch, Level: 1, Since: sglang054p, Role: "decode"},
	"decode_bootstrap":          {System: "sglang", Class: ClassQueue, Level: 1, Since: sglang054p, Role: "decode", Phase: request.DecodePrealloc, HasPhase: true},
	"decode_transferred":        {System: "sglang", Class: ClassTransfer, Level: 1, Since: sglang054p, Role: "decode", Phase: request.DecodeTransfer, HasPhase: true},
	"decode_waiting":            {System: "sglang", Class: ClassQueue, Level: 1, Since: sglang054p},
	"decode_forward":            {System: "sglang", Class: ClassDecode, Level: 1, Since: sglang0510, Phase: request.DecodeForward, HasPhase: true},
	"decode_loop":               {System: "sglang", Class: ClassStep, Level: 3, Since: sglang054p},
	"fake_output":               {System: "sglang", Class: ClassStep, Level: 3, Since: sglang054p, Role: "decode"},
	"quick_finish":              {System: "sglang", Class: ClassDispatch, Level: 1, Since: sglang054p},
	"mm_encode":                 {System: "sglang", Class: ClassPrefill, Level: 1, Since: sglang0510},
	"spec_draft":                {System: "sglang", Class: ClassStep, Level: 2, Since: sglang0510},
	"spec_verify":               {System: "sglang", Class: ClassStep, Level: 2, Since: sglang0510},
	"run_batch_cpu":             {System: "sglang", Class: ClassStep, Level: 4, Since: sglang0510},
	// Of the module mooncake (--trace-modules), in traces of their own.
	"mooncake_send":                {System: "sglang", Class: ClassTransfer, Since: sglang0510, Role: "prefill"},
	"mooncake_recv":                {System: "sglang", Class: ClassTransfer, Since: sglang0510, Role: "decode"},
	"mooncake_worker_send":         {System: "sglang", Class: ClassTransfer, Since: sglang0510, Role: "prefill"},
	"mooncake_worker_send_session": {System: "sglang", Class: ClassTransfer, Since: sglang0510, Role: "prefill"},
	"mooncake_worker_recv":         {System: "sglang", Class: ClassTransfer, Since: sglang0510, Role: "decode"},

	// Names that guides to SGLang use for what its scheduler and its detokenizer do.
	"match_prefix": {System: "sglang", Class: ClassCache},
	"run_batch":    {System: "sglang", Class: ClassStep},
	"detokenize":   {System: "sglang", Class: ClassDetokenize},

	// SGLang's router (smg, sglang-router): src/otel_trace.rs and its middleware.
	"http_request": {System: "smg", Class: ClassFrontend, Role: "router"},
	"grpc_execute": {System: "smg", Class: ClassCall, Role: "router"},

	// Dynamo: lib/llm (frontend, kv_router), lib/runtime (network), components' Python handlers.
	"http-request":                   {System: "dynamo", Class: ClassFrontend, Role: "frontend"},
	"prefill_routing":                {System: "dynamo", Class: ClassRouting, Role: "frontend"},
	"kv_router.route_request":        {System: "dynamo", Class: ClassRouting},
	"kv_router.select_worker":        {System: "dynamo", Class: ClassRouting},
	"kv_router.compute_block_hashes": {System: "dynamo", Class: ClassRouting},
	"kv_router.find_matches":         {System: "dynamo", Class: ClassCache},
	"kv_router.compute_seq_hashes":   {System: "dynamo", Class: ClassRouting},
	"kv_router.schedule":             {System: "dynamo", Class: ClassRouting},
	"client_request":                 {System: "dynamo", Class: ClassCall},
	"handle_payload":                 {System: "dynamo", Class: ClassHandler},
	"engine.generate":                {System: "dynamo", Class: ClassRequest},

	// vLLM: vllm/tracing (one span a request; its times stand in gen_ai.latency.*).
	"llm_request": {System: "vllm", Class: ClassRequest},

	// slime: slime/utils/trace_utils and what our own export of a dump writes.
	"generate_rollout":                  {System: "slime", Class: ClassGroup},
	"generate_and_rm_group":             {System: "slime", Class: ClassGroup},
	"generate_and_rm":                   {System: "slime", Class: ClassGroup},
	"generate":                          {System: "slime", Class: ClassRequest},
	"sglang_generate":                   {System: "slime", Class: ClassRequest},
	"sglang_generate_stream":            {System: "slime", Class: ClassRequest},
	"reward_model":                      {System: "slime", Class: ClassReward},
	"update_weights":                    {System: "slime", Class: ClassSync},
	"sglang_pd_prefill":                 {System: "slime", Class: ClassPrefill, Role: "prefill"},
	"sglang_pd_decode":                  {System: "slime", Class: ClassDecode, Role: "decode"},
	"sglang_pd_prefill_bootstrap_queue": {System: "slime", Class: ClassQueue, Role: "prefill", Phase: request.PrefillBootstrapQueue, HasPhase: true},
	"sglang_pd_prefill_bootstrap":       {System: "slime", Class: ClassQueue, Role: "prefill", Phase: request.PrefillBootstrap, HasPhase: true},
	"sglang_pd_prefill_alloc_wait":      {System: "slime", Class: ClassQueue, Role: "prefill", Phase: request.PrefillAllocWait, HasPhase: true},
	"sglang_pd_prefill_forward":         {System: "slime", Class: ClassPrefill, Role: "prefill", Phase: request.PrefillForward, HasPhase: true},
	"sglang_pd_prefill_transfer_queue":  {System: "slime", Class: ClassTransfer, Role: "prefill", Phase: request.PrefillTransferQueue, HasPhase: true},
	"sglang_pd_decode_prealloc":         {System: "slime", Class: ClassQueue, Role: "decode", Phase: request.DecodePrealloc, HasPhase: true},
	"sglang_pd_decode_bootstrap":        {System: "slime", Class: ClassQueue, Role: "decode", Phase: request.DecodeBootstrap, HasPhase: true},
	"sglang_pd_decode_alloc_wait":       {System: "slime", Class: ClassQueue, Role: "decode", Phase: request.DecodeAllocWait, HasPhase: true},
	"sglang_pd_decode_transfer":         {System: "slime", Class: ClassTransfer, Role: "decode", Phase: request.DecodeTransfer, HasPhase: true},
	"sglang_pd_decode_forward":          {System: "slime", Class: ClassDecode, Role: "decode", Phase: request.DecodeForward, HasPhase: true},
	"decode":                            {Class: ClassDecode},
	"tool_end":                          {System: "dynamo", Class: ClassTool},
}

// beginnings are names that go on with something that changes.
var beginnings = [...]struct {
	text string
	m    Meaning
}{
	{"Bootstrap Room ", Meaning{System: "sglang", Class: ClassGroup, Since: "0.5.3-0.5.9"}},
	{"kv_router.", Meaning{System: "dynamo", Class: ClassRouting}},
	{"mooncake_", Meaning{System: "sglang", Class: ClassTransfer, Since: sglang0510}},
	// OpenTelemetry's conventions for generative AI: "{operation} {model, tool or agent}".
	{"execute_tool ", Meaning{System: "otel", Class: ClassTool}},
	{"execute_tool", Meaning{System: "otel", Class: ClassTool}},
	{"invoke_agent", Meaning{System: "otel", Class: ClassGroup}},
	{"chat ", Meaning{System: "otel", Class: ClassFrontend, Role: "frontend"}},
	{"text_completion ", Meaning{System: "otel", Class: ClassFrontend, Role: "frontend"}},
	{"generate_content ", Meaning{System: "otel", Class: ClassFrontend, Role: "frontend"}},
}

// words are parts of names that nobody above has, the first that fits counts.
var words = [...]struct {
	text  string
	class Class
}{
	{"detokenize", ClassDetokenize}, {"tokenize", ClassTokenize}, {"reward", ClassReward}, {"verifier", ClassReward},
	{"tool", ClassTool}, {"sandbox", ClassTool}, {"queue", ClassQueue}, {"waiting", ClassQueue}, {"transfer", ClassTransfer},
	{"update_weights", ClassSync}, {"weight_sync", ClassSync}, {"route", ClassRouting}, {"prefill", ClassPrefill}, {"decode", ClassDecode},
}

// maxWordName bounds the work on a name that no table has; names are words, not texts.
const maxWordName = 128

// Explain says what a span's name means. Names that nobody known uses get a class by the words in
// them, [ClassOther] when that says nothing, and no system.
func Explain(name string) Meaning {
	if m, ok := meanings[name]; ok {
		return m
	}
	if role, _, ok := RequestName(name); ok {
		return Meaning{System: "sglang", Class: ClassRequest, Role: role, Since: sglangAll}
	}
	if t, ok := ThreadName(name); ok {
		return Meaning{System: "sglang", Class: ClassThread, Role: t.Role, Since: sglangAll}
	}
	for i := range beginnings {
		if strings.HasPrefix(name, beginnings[i].text) {
			return beginnings[i].m
		}
	}
	if len(name) <= maxWordName {
		for i := range words {
			if hasWord(name, words[i].text) {
				return Meaning{Class: words[i].class}
			}
		}
	}
	return Meaning{}
}

// hasWord tells whether word stands in s between separators, case ignored.
func hasWord(s, word string) bool {
	sep := func(c byte) bool { return strings.IndexByte("_-.:/ ()[]", c) >= 0 }
	for i := 0; i+len(word) <= len(s); i++ {
		if (i == 0 || sep(s[i-1])) && (i+len(word) == len(s) || sep(s[i+len(word)])) && strings.EqualFold(s[i:i+len(word)], word) {
			return true
		}
	}
	return false
}

// RequestName reads the name of SGLang's span of a request: "{role} Req {first 8 of rid}". The role of a
// unified engine is empty, which leaves the blank before Req; older releases and guides have no blank.
func RequestName(name string) (role, rid string, ok bool) {
	role, rid, ok = strings.Cut(name, "Req ")
	role = strings.TrimSpace(role)
	if !ok || rid == "" || strings.ContainsAny(rid, " \t") || role != "" && role != "prefill" && role != "decode" && role != "unified" {
		return "", "", false
	}
	return role, rid, true
}

// Thread is a thread or process of SGLang that worked on a request.
type Thread struct {
	Label      string // Scheduler, Tokenizer, ...
	Role       string // prefill, decode, "" for a unified engine
	TP, PP, DP int    // ranks, -1 when the name has none
	Host       string // first 8 digits of the host's id
	PID        int    // 0 when the name has none
}

// threadLabels are SGLang's labels, behind an optional "Prefill " or "Decode ".
var threadLabels = [...]string{"Scheduler", "Tokenizer", "MultiTokenizer", "Detokenizer", "DP Controller", "Encoder", "unknown"}

// ThreadName reads the name of SGLang's span of a thread, "{label}[ [TP n] ][ [PP n] ][ [DP n] ](host:x | pid:n)",
// in which older releases leave out what stands in parentheses.
func ThreadName(name string) (Thread, bool) {
	t := Thread{TP: -1, PP: -1, DP: -1}
	rest := name
	for _, r := range [...]string{"Prefill", "Decode"} {
		if after, ok := strings.CutPrefix(rest, r); ok {
			t.Role, rest = strings.ToLower(r), strings.TrimPrefix(after, " ")
			break
		}
	}
	label := ""
	for _, l := range threadLabels {
		if strings.HasPrefix(rest, l) {
			label = l
			break
		}
	}
	if label == "" {
		return t, false
	}
	rest = rest[len(label):]
	if label == "MultiTokenizer" {
		n := 0
		for n < len(rest) && (rest[n] == '-' || '0' <= rest[n] && rest[n] <= '9') {
			n++
		}
		label, rest = label+rest[:n], rest[n:]
	}
	t.Label = label
	for rest = strings.TrimLeft(rest, " "); rest != ""; rest = strings.TrimLeft(rest, " ") {
		switch rest[0] {
		case '[':
			in, after, ok := strings.Cut(rest[1:], "]")
			kind, digits, two := strings.Cut(in, " ")
			n, err := strconv.Atoi(digits)
			if !ok || !two || err != nil || n < 0 {
				return t, false
			}
			switch rest = after; kind {
			case "TP":
				t.TP = n
			case "PP":
				t.PP = n
			case "DP":
				t.DP = n
			}
		case '(':
			in, after, ok := strings.Cut(rest[1:], ")")
			if !ok || after != "" {
				return t, false
			}
			for _, part := range strings.Split(in, "|") {
				key, v, _ := strings.Cut(strings.TrimSpace(part), ":")
				switch key {
				case "host":
					t.Host = v
				case "pid":
					t.PID, _ = strconv.Atoi(v)
				}
			}
			rest = ""
		default:
			return t, false
		}
	}
	return t, label != "unknown" || t.Host != ""
}
