package enginelog

import (
	"strconv"
	"strings"
)

// classify finds the grammar of a line and reads it. S is the line behind its prefixes.
func (l *lineState) classify(st *stream, s string) {
	l.msg = s
	if l.continues(st, s) {
		return
	}
	if s == "" {
		return
	}
	if s[0] == '{' {
		l.jsonLine(s)
		return
	}
	for i := range byBegin {
		b := &byBegin[i]
		if s[0] == b.text[0] && strings.HasPrefix(s, b.text) {
			b.read(l, s[len(b.text):])
			if l.format != "" {
				return
			}
		}
	}
	if l.format == "uvicorn.text" && l.access(s) {
		return
	}
	if l.format == "torch.text" && l.nccl(s) {
		return
	}
	if l.dictLine(s) || l.verlLine(s) {
		return
	}
	if i := strings.Index(s, "dynamo_request_trace {"); i >= 0 {
		l.jsonLine(s[i+21:])
		return
	}
	for i := range byWord {
		w := &byWord[i]
		if strings.Contains(s, w.text) {
			w.read(l, s)
			if l.class != None || w.final {
				return
			}
		}
	}
	l.rest(st, s)
}

// rule reads a line that has a text: at its begin what stands behind it, within the whole line.
type rule struct {
	text  string
	read  func(l *lineState, s string)
	final bool // of byWord: no later rule is asked
}

// is makes a reader that only names what the line is.
func is(format string, class Class) func(*lineState, string) {
	return func(l *lineState, _ string) { l.set(format, class) }
}

// startup is a stage of a start with its numbers.
func startup(stage string) func(*lineState, string) {
	return func(l *lineState, s string) {
		l.set("sglang.startup", Startup)
		l.add("stage", stage)
		l.equals(s)
	}
}

// byBegin are the grammars that a line's first words tell. A longer text stands before a shorter one that
// it begins with.
var byBegin = [...]rule{
	{text: "Decode batch", read: func(l *lineState, s string) { l.batch(s, true) }},
	{text: "Prefill batch", read: func(l *lineState, s string) { l.batch(s, false) }},
	{text: "Req Time Stats(", read: func(l *lineState, s string) { l.timeStats(s) }},
	{text: "ReqTimeStats(", read: func(l *lineState, s string) { l.timeStats(s) }},
	{text: "KV cache pool is full. Retract requests.", read: func(l *lineState, s string) { l.retract(s) }},
	{text: "Decode out of memory happened.", read: func(l *lineState, s string) { l.retract(s) }},
	{text: "Testing retraction.", read: func(l *lineState, s string) { l.add("test", "true"); l.retract(s) }},
	{text: "retract_decode: aborted last request", read: func(l *lineState, s string) { l.set("sglang.abort", Abort); l.ids(s) }},
	{text: "Prefill out of memory.", read: is("sglang.oom", OOM)},
	{text: "Decode out of memory.", read: is("sglang.oom", OOM)},
	{text: "Finish: obj=", read: func(l *lineState, s string) { l.requestLog("finish", s) }},
	{text: "Receive: obj=", read: func(l *lineState, s string) { l.requestLog("receive", s) }},
	{text: "Receive OpenAI: obj=", read: func(l *lineState, s string) { l.requestLog("receive_openai", s) }},
	{text: "Watchdog timeout", read: func(l *lineState, s string) { l.watchdog("scheduler", s) }},
	{text: "Health check failed.", read: func(l *lineState, s string) { l.health(s) }},
	{text: "Scheduler hit an exception:", read: func(l *lineState, s string) { l.exception("sglang.exception", s) }},
	{text: "TokenizerManager hit an exception:", read: func(l *lineState, s string) { l.exception("sglang.exception", s) }},
	{text: "DetokenizerManager hit an exception:", read: func(l *lineState, s string) { l.exception("sglang.exception", s) }},
	{text: "DataParallelController hit an exception:", read: func(l *lineState, s string) { l.exception("sglang.exception", s) }},
	{text: "SIGQUIT received.", read: func(l *lineState, s string) { l.set("sglang.child_failed", Error); l.level = "critical" }},
	{text: "Subprocess ", read: func(l *lineState, s string) { l.childFailed(s) }},
	{text: "Rank ", read: func(l *lineState, s string) { l.childFailed(s) }},
	{text: "Prefill bootstrap failed", read: func(l *lineState, s string) { l.pdFailed("prefill_bootstrap", s) }},
	{text: "Prefill transfer failed", read: func(l *lineState, s string) { l.pdFailed("prefill_transfer", s) }},
	{text: "Decode transfer failed", read: func(l *lineState, s string) { l.pdFailed("decode_transfer", s) }},
	{text: "Decode handshake failed", read: func(l *lineState, s string) { l.pdFailed("decode_handshake", s) }},
	{text: "Context corruption detected", read: func(l *lineState, s string) { l.pdFailed("context_corruption", s) }},
	{text: "Abort ", read: func(l *lineState, s string) { l.abortLine(s) }},
	{text: "Aborted request(s) ", read: func(l *lineState, s string) { l.set("vllm.abort", Abort); l.add("rid", firstID(s)) }},
	{text: "Dumping requests before crash.", read: func(l *lineState, s string) { l.set("sglang.crash_dump", None); l.equals(s) }},
	{text: "[Expert Balancedness]", read: func(l *lineState, s string) { l.set("sglang.experts", None); l.equals(s) }},
	{text: "Cache flushed successfully", read: is("sglang.weights", None)},
	{text: "Update weights", read: is("sglang.weights", None)},
	{text: "Update engine weights", read: is("sglang.weights", None)},
	{text: "server_args=ServerArgs(", read: func(l *lineState, s string) { l.serverArgs(s) }},
	{text: "Init torch distributed", read: startup("distributed")},
	{text: "Load weight begin", read: startup("load_weight_begin")},
	{text: "Load weight end", read: startup("load_weight_end")},
	{text: "KV Cache is allocated", read: func(l *lineState, s string) { l.kvAllocated(s) }},
	{text: "Memory pool end", read: startup("memory_pool_end")},
	{text: "Capture cuda graph begin", read: startup("graph_begin")},
	{text: "Capture cuda graph end", read: startup("graph_end")},
	{text: "Capture piecewise CUDA graph begin", read: startup("piecewise_graph_begin")},
	{text: "Capture piecewise CUDA graph end", read: startup("piecewise_graph_end")},
	{text: "Tree cache initialized", read: startup("tree_cache")},
	{text: "max_total_num_tokens=", read: func(l *lineState, s string) {
		l.set("sglang.startup", Startup)
		l.add("stage", "limits")
		l.equals("max_total_num_tokens=" + s)
	}},
	{text: "The server is fired up and ready to roll", read: startup("ready")},
	{text: "Started server process", read: func(l *lineState, s string) { l.set("uvicorn.startup", Startup); l.add("stage", "http_process") }},
	{text: "Waiting for application startup", read: func(l *lineState, s string) { l.set("uvicorn.startup", Startup); l.add("stage", "http_waiting") }},
	{text: "Application startup complete", read: func(l *lineState, s string) { l.set("uvicorn.startup", Startup); l.add("stage", "http_complete") }},
	{text: "Uvicorn running on", read: func(l *lineState, s string) { l.set("uvicorn.startup", Startup); l.add("stage", "http_listening") }},
	{text: "Router launched at", read: startup("router")},
	{text: "Starting router on", read: func(l *lineState, s string) { l.set("router.startup", Startup); l.add("stage", "router") }},
	{text: "Engine ", read: func(l *lineState, s string) { l.vllmStats(s) }},
	{text: "Avg prompt throughput:", read: func(l *lineState, s string) { l.vllmStats("Avg prompt throughput:" + s) }},
	{text: "SpecDecoding metrics:", read: func(l *lineState, s string) { l.vllmSpec(s) }},
	{text: "GPU KV cache size:", read: func(l *lineState, s string) { l.vllmStart("kv_cache", s) }},
	{text: "Loading weights took", read: func(l *lineState, s string) { l.vllmStart("load_weight_end", s) }},
	{text: "Model loading took", read: func(l *lineState, s string) { l.vllmStart("model_loaded", s) }},
	{text: "Graph capturing finished", read: func(l *lineState, s string) { l.vllmStart("graph_end", s) }},
	{text: "init engine (profile", read: func(l *lineState, s string) { l.vllmStart("engine", s) }},
	{text: "Starting to load model", read: func(l *lineState, s string) { l.vllmStart("load_weight_begin", s) }},
	{text: "Starting vLLM API server", read: func(l *lineState, s string) { l.vllmStart("http_listening", s) }},
	{text: "AUDIT {", read: func(l *lineState, s string) { l.audit(s) }},
	{text: "FPM: ZMQ PUB bound on", read: func(l *lineState, s string) { l.fpm(s) }},
	{text: "InstrumentedScheduler: ZMQ PUB bound on", read: func(l *lineState, s string) { l.fpm(s) }},
	{text: "FPM relay:", read: func(l *lineState, s string) { l.fpm(s) }},
	{text: "[Gloo]", read: is("gloo", None)},
	{text: "Traceback (most recent call last)", read: func(l *lineState, s string) { l.set("python.traceback", None); l.level = "error"; l.block = blockTrace }},
	{text: "terminate called after throwing", read: func(l *lineState, s string) { l.crash("cpp.terminate") }},
	{text: "Fatal Python error:", read: func(l *lineState, s string) { l.crash("python.fatal") }},
	{text: "Segmentation fault", read: func(l *lineState, s string) { l.crash("cpp.terminate") }},
	{text: "*** SIG", read: func(l *lineState, s string) { l.crash("cpp.terminate") }},
}

// byWord are the grammars that a text within the line tells, the surer first.
var byWord = [...]rule{
	{text: "watchdog timeout (", read: func(l *lineState, s string) {
		name, rest, _ := strings.Cut(s, " watchdog timeout (")
		l.watchdog(strings.ToLower(name), "("+rest)
	}},
	{text: "Watchdog caught collective operation timeout", read: func(l *lineState, s string) { l.nccl(s) }},
	{text: "is preempted by", read: func(l *lineState, s string) { l.preempted(s) }},
	{text: "reempted", read: func(l *lineState, s string) {
		if strings.Contains(s, "KV") || strings.Contains(s, "request") {
			l.preempted(s)
		}
	}},
	{text: "memory leak detected", read: is("sglang.leak", Error)},
	{text: "CUDA out of memory", read: is("torch.oom", OOM)},
	{text: "OutOfMemoryError", read: is("torch.oom", OOM)},
	{text: "HIP out of memory", read: is("torch.oom", OOM)},
	{text: "NPU out of memory", read: is("torch.oom", OOM)},
	{text: "OOMKilled", read: is("process.oom", OOM)},
	{text: "Out of memory: Killed process", read: is("process.oom", OOM)},
	{text: "oom-kill", read: is("process.oom", OOM)},
	{text: "due to memory pressure (OOM)", read: is("ray.oom", OOM)},
	{text: "killed due to the node running low on memory", read: is("ray.oom", OOM)},
	{text: " debug info:", read: is("sglang.watchdog_info", None), final: true},
	{text: "NCCL error", read: is("nccl.error", Error)},
	{text: "NCCL WARN", read: func(l *lineState, s string) { l.set("nccl.text", None); l.level = "warning" }, final: true},
	{text: "NCCL INFO", read: func(l *lineState, s string) { l.set("nccl.text", None); l.level = "info" }, final: true},
	{text: " aborted.", read: func(l *lineState, s string) {
		if id, ok := strings.CutPrefix(s, "Request "); ok {
			l.set("vllm.abort", Abort)
			l.add("rid", firstID(id))
		}
	}},
	{text: "Exception in ASGI application", read: func(l *lineState, s string) { l.exception("uvicorn.exception", s) }},
	{text: "it/s]", read: is("tqdm", None), final: true},
	{text: "s/it]", read: is("tqdm", None), final: true},
	{text: "%|", read: is("tqdm", None), final: true},
}

// rest is a line that no grammar reads.
func (l *lineState) rest(st *stream, s string) {
	if l.format == "" && l.engineLine {
		l.format = "sglang.text"
	}
	if l.format == "" && l.actor != "" {
		l.format = "ray.prefix"
	}
	bad := l.level == "error" || l.level == "critical"
	switch {
	case l.class != None || !bad && l.level != "warning":
	case hasWord(s, "OOM"):
		l.class = OOM
	case strings.Contains(s, "preempt"):
		l.class = Preempt
	case bad:
		l.class = Error
	}
	if l.engineLine && (strings.HasPrefix(s, "Decode b") || strings.HasPrefix(s, "Prefill b")) {
		l.marks |= Cut
	}
}

// hasWord tells whether w stands in s as a word of its own.
func hasWord(s, w string) bool {
	for at := 0; ; {
		i := strings.Index(s[at:], w)
		if i < 0 {
			return false
		}
		i += at
		if (i == 0 || !isWord(s[i-1])) && (i+len(w) == len(s) || !isWord(s[i+len(w)])) {
			return true
		}
		at = i + 1
	}
}

// equals reads "name=number" and "name: number" pairs of a text, with a unit behind or none.
func (l *lineState) equals(s string) {
	for n := 0; n < 64; n++ {
		i := strings.IndexByte(s, '=')
		if i < 0 {
			return
		}
		j := i
		for j > 0 && strings.IndexByte(",.()", s[j-1]) < 0 {
			j--
		}
		name := strings.TrimSpace(s[j:i])
		if strings.Count(name, " ") > 2 {
			name = name[strings.LastIndexByte(name, ' ')+1:]
		}
		name = plainName(name)
		s = s[i+1:]
		val, rest := s, ""
		if k := strings.IndexAny(s, " ,)"); k >= 0 {
			val, rest = s[:k], s[k:]
		}
		val = strings.TrimRight(val, ".;")
		if isNumber(val) && name != "" {
			l.add(name+unitSuffix(rest), val)
		} else if name != "" && len(val) < 60 && isLogger(val) {
			l.add(name, val)
		}
		s = rest
	}
}

// unitSuffix makes " GB" behind a number a part of its name.
func unitSuffix(rest string) string {
	rest = strings.TrimLeft(rest, " ")
	for _, u := range [...]struct{ text, suffix string }{{"GB", "_gb"}, {"MB", "_mb"}, {"s,", "_seconds"}, {"s ", "_seconds"}, {"s.", "_seconds"}} {
		if strings.HasPrefix(rest, u.text) {
			return u.suffix
		}
	}
	if rest == "s" {
		return "_seconds"
	}
	return ""
}

// retract reads a retraction: requests thrown out of the decode batch.
func (l *lineState) retract(s string) {
	l.set("sglang.retract", Preempt)
	for rest := s; rest != ""; {
		i := strings.IndexByte(rest, ':')
		if i < 0 {
			break
		}
		key := strings.Trim(rest[:i], " ,.#")
		val, more := takeValue(rest[i+1:])
		rest = more
		switch key {
		case "retracted_reqs":
			l.num("num_retracted_reqs", val)
		case "new_tokens_gained", "mamba_num_gained":
			l.num(key, val)
		case "new_token_ratio":
			l.num("new_token_ratio_before", val)
			if r, ok := strings.CutPrefix(rest, "-> "); ok {
				val, rest = takeValue(r)
				l.num("new_token_ratio", val)
			} else {
				l.marks |= Cut
			}
		}
	}
	if !strings.Contains(s, "#retracted_reqs") {
		l.marks |= Cut
	}
}

// num adds a number that was read as name.
func (l *lineState) num(name, val string) {
	if v, ok := l.number(val); ok {
		l.add(name, v)
	}
}

func (l *lineState) watchdog(who, s string) {
	l.set("sglang.watchdog", Hang)
	l.add("watchdog", plainName(who))
	if _, v, ok := strings.Cut(s, "watchdog_timeout="); ok {
		v, _ = takeValue(v)
		if isNumber(v) {
			l.add("timeout_seconds", v)
		}
	}
	l.level = "critical"
	if _, v, ok := strings.Cut(s, "self.soft="); ok && strings.HasPrefix(v, "True") {
		l.add("soft", "true")
		l.level = "warning"
	}
}

func (l *lineState) health(s string) {
	l.set("sglang.health", Hang)
	l.level = "error"
	if _, v, ok := strings.Cut(s, "for last "); ok {
		v, _ = takeValue(v)
		if isNumber(v) {
			l.add("silent_seconds", v)
		}
	}
}

func (l *lineState) exception(format, s string) {
	l.set(format, Error)
	l.level = "error"
	l.block = blockHead
}

func (l *lineState) crash(format string) {
	l.set(format, Error)
	l.level = "critical"
	l.block = blockCrash
}

func (l *lineState) childFailed(s string) {
	if !strings.Contains(s, "crashed with exit code") && !strings.Contains(s, "died during initialization") {
		return
	}
	l.set("sglang.child_failed", Error)
	l.level = "critical"
	for _, w := range [...]string{"exit code ", "exit code: "} {
		if _, v, ok := strings.Cut(s, w); ok {
			n := 0
			for n < len(v) && (v[n] >= '0' && v[n] <= '9' || n == 0 && v[0] == '-') {
				n++
			}
			if isNumber(v[:n]) {
				l.add("exit_code", v[:n])
			}
		}
	}
	if _, v, ok := strings.Cut(s, "(pid="); ok {
		if v, _, ok = strings.Cut(v, ")"); ok && isDigits(v) {
			l.add("child_pid", v)
		}
	}
}

func (l *lineState) pdFailed(what, s string) {
	l.set("sglang.pd_failure", Error)
	l.level = "error"
	l.add("failure", what)
	l.ids(s)
}

func (l *lineState) abortLine(s string) {
	if strings.Contains(s, "request") || strings.Contains(s, "rid") {
		l.set("sglang.abort", Abort)
		l.ids(s)
	}
}

// ids finds the names of a request in a text: rid=, req.rid=, bootstrap_room=, Request HEX.
func (l *lineState) ids(s string) {
	if v := after(s, "rid="); v != "" {
		l.add("rid", v)
	} else if id := firstID(strings.TrimLeft(s, " ")); len(id) >= 16 && isHex(id) {
		l.add("rid", id)
	} else if i := strings.Index(s, "Request "); i >= 0 {
		if id := firstID(s[i+8:]); len(id) >= 16 {
			l.add("rid", id)
		}
	}
	if v := after(s, "bootstrap_room="); isDigits(v) {
		l.add("bootstrap_room", v)
	}
}

// after returns the word behind key, without quotes.
func after(s, key string) string {
	i := strings.Index(s, key)
	if i < 0 {
		return ""
	}
	return firstID(strings.TrimLeft(s[i+len(key):], "'\""))
}

// firstID is the id at the begin of s.
func firstID(s string) string {
	n := 0
	for n < len(s) && n < 200 && (isWord(s[n]) || s[n] == '-' || s[n] == '.') {
		n++
	}
	return strings.TrimRight(s[:n], ".")
}

func (l *lineState) serverArgs(s string) {
	l.set("sglang.startup", Startup)
	l.add("stage", "server_args")
	for _, k := range [...]string{"model_path", "served_model_name", "tp_size", "dp_size", "disaggregation_mode", "enable_metrics", "enable_trace", "enable_request_time_stats_logging", "log_requests", "port"} {
		for _, before := range [...]string{", ", ""} {
			i := strings.Index(s, before+k+"=")
			if i < 0 || before == "" && i != 0 {
				continue
			}
			v, _, err := readLiteral(s[i+len(before)+len(k)+1:])
			if err == nil && v.kind != dict && v.kind != list {
				l.add(k, v.keyText())
			}
			break
		}
	}
}

// kvAllocated reads "dtype: X, #tokens: N, K size: F GB, V size: F GB".
func (l *lineState) kvAllocated(s string) {
	l.set("sglang.startup", Startup)
	l.add("stage", "kv_allocated")
	for _, k := range [...]struct{ key, field string }{{"#tokens: ", "max_total_num_tokens"}, {"K size: ", "k_size_gb"}, {"V size: ", "v_size_gb"}} {
		if _, v, ok := strings.Cut(s, k.key); ok {
			v, _ = takeValue(v)
			if isNumber(v) {
				l.add(k.field, v)
			}
		}
	}
}

// access reads uvicorn's `1.2.3.4:5 - "GET /path HTTP/1.1" 200 OK`.
func (l *lineState) access(s string) bool {
	client, rest, ok := strings.Cut(s, ` - "`)
	if !ok || strings.ContainsRune(client, ' ') || len(client) > 100 {
		return false
	}
	l.set("uvicorn.access", None)
	l.add("client", client)
	method, rest, ok := strings.Cut(rest, " ")
	if !ok {
		l.marks |= Cut
		return true
	}
	l.add("method", method)
	i := strings.LastIndexByte(rest, '"')
	if i < 0 {
		l.marks |= Cut
		return true
	}
	path, _, _ := strings.Cut(rest[:i], " HTTP/")
	path, query, _ := strings.Cut(path, "?")
	l.add("path", path)
	l.add("query", query)
	status, reason, _ := strings.Cut(strings.TrimLeft(rest[i+1:], " "), " ")
	if len(status) != 3 || !isDigits(status) {
		l.marks |= Cut
		return true
	}
	l.add("status", status)
	l.add("reason", reason)
	if status[0] == '5' {
		l.level = "error"
		l.class = Error
	}
	return true
}

// nccl reads torch's watchdog. The line that says what timed out is the event; the ones that follow from
// it have no class, so that one hang of one rank counts once.
func (l *lineState) nccl(s string) bool {
	switch {
	case strings.Contains(s, "Watchdog caught collective operation timeout"):
		l.set("nccl.watchdog", Hang)
	case strings.Contains(s, "detected by watchdog"), strings.Contains(s, "Timeout at NCCL work"), strings.Contains(s, "Watchdog"):
		l.set("nccl.watchdog", None)
	case l.level == "error" || l.level == "critical":
		if !strings.Contains(s, "NCCL") {
			return false
		}
		l.set("nccl.error", Error)
	default:
		return false
	}
	for _, k := range [...]struct{ key, field string }{{"SeqNum=", "seq_num"}, {"OpType=", "op_type"}, {"NumelIn=", "numel_in"}, {"NumelOut=", "numel_out"}, {"Timeout(ms)=", "timeout_ms"}, {"ran for ", "ran_ms"}, {"last enqueued NCCL work: ", "last_enqueued"}, {"last completed NCCL work: ", "last_completed"}} {
		if i := strings.Index(s, k.key); i >= 0 {
			l.add(k.field, firstID(s[i+len(k.key):]))
		}
	}
	return true
}

func (l *lineState) preempted(s string) {
	l.set("vllm.preempt", Preempt)
	for _, w := range [...]string{"Sequence group ", "request "} {
		if _, v, ok := strings.Cut(s, w); ok {
			l.add("rid", firstID(v))
			break
		}
	}
	for _, k := range [...]string{"total_cumulative_preemption_cnt=", "total_num_cumulative_preemption="} {
		if v := after(s, k); isDigits(v) {
			l.add("num_preemptions", v)
		}
	}
}

// vllmWords are the parts of vLLM's statistics line.
var vllmWords = [...]struct {
	key, field string
	percent    bool
}{
	{"Avg prompt throughput", "input_throughput", false}, {"Avg generation throughput", "gen_throughput", false},
	{"Running", "num_running_reqs", false}, {"Waiting", "num_queue_reqs", false}, {"Pending", "num_queue_reqs", false},
	{"Swapped", "num_swapped_reqs", false}, {"Deferred", "num_deferred_reqs", false}, {"Preemptions", "num_preemptions", false},
	{"GPU KV cache usage", "token_usage", true}, {"CPU KV cache usage", "cpu_token_usage", true},
	{"Prefix cache hit rate", "cache_hit_rate", true}, {"External prefix cache hit rate", "external_cache_hit_rate", true},
	{"MM cache hit rate", "mm_cache_hit_rate", true},
}

func (l *lineState) vllmStats(s string) {
	if id, rest, ok := strings.Cut(s, ": "); ok && isDigits(id) {
		l.add("dp_rank", strconv.Itoa(atoi(id)))
		s = rest
	}
	if !strings.HasPrefix(s, "Avg prompt throughput:") {
		return
	}
	l.set("vllm.stats", None)
	l.pairs(s)
}

// pairs reads vLLM's "Key: number unit, Key: number unit".
func (l *lineState) pairs(s string) {
	for part := range strings.SplitSeq(s, ", ") {
		key, val, ok := strings.Cut(part, ": ")
		if !ok {
			l.marks |= Cut
			continue
		}
		val, _, _ = strings.Cut(val, " ")
		val = strings.TrimSuffix(val, ".")
		v, ok := l.number(strings.TrimSuffix(val, "%"))
		if !ok {
			continue
		}
		name := ""
		for _, w := range vllmWords {
			if w.key == key {
				name = w.field
				if w.percent {
					f, _ := strconv.ParseFloat(v, 64)
					v = strconv.FormatFloat(f/100, 'g', 6, 64)
				}
			}
		}
		if name == "" {
			name = plainName(key)
		}
		if name != "" {
			l.add(name, v)
		}
	}
}

func (l *lineState) vllmSpec(s string) {
	l.set("vllm.spec", None)
	if _, v, ok := strings.Cut(s, "Mean acceptance length: "); ok {
		v, _ = takeValue(v)
		l.num("spec_accept_length", v)
	}
	if _, v, ok := strings.Cut(s, "Avg Draft acceptance rate: "); ok {
		v, _ = takeValue(v)
		if f, err := strconv.ParseFloat(strings.TrimSuffix(v, "%"), 64); err == nil {
			l.add("spec_accept_rate", strconv.FormatFloat(f/100, 'g', 6, 64))
		}
	}
}

func (l *lineState) vllmStart(stage, s string) {
	l.set("vllm.startup", Startup)
	l.add("stage", stage)
	if stage == "kv_cache" {
		v, _ := takeValue(strings.ReplaceAll(s, ",", ""))
		if isDigits(v) {
			l.add("max_total_num_tokens", v)
		}
	}
}

// fpm reads what Dynamo's and SGLang's forward pass metrics say of their sockets.
func (l *lineState) fpm(s string) {
	l.set("dynamo.fpm", None)
	s = strings.TrimLeft(s, " ")
	if l.level == "" && strings.Contains(s, "unexpected") {
		l.level = "warning"
	}
	if i := strings.IndexByte(s, ' '); i > 0 && strings.Contains(s[:i], "://") {
		l.add("endpoint", s[:i])
	}
	for _, k := range [...]string{"dp_rank", "worker_id"} {
		if v := after(s, k+"="); isDigits(v) {
			l.add(k, v)
		}
	}
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
