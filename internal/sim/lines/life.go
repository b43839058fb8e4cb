package lines

import (
	"fmt"
	"time"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/sim"
)

// sglangStart writes the stages of a start. The process is ready at m.Time.
func (r *Renderer) sglangStart(m sim.Moment) {
	w := who{m.Member, m.Kind, m.Version, ""}
	s := who{m.Member, m.Kind, m.Version, ranksOf(0, m.DP, m.TP)}
	at := func(before float64) time.Time { return m.Time.Add(-time.Duration(before * float64(time.Second))) }
	mode, tp, dp := "null", max(m.TP, 1), max(m.DP, 1)
	switch m.Role {
	case engine.Prefill:
		mode = "prefill"
	case engine.Decode:
		mode = "decode"
	}
	model := m.Model
	if model == "" {
		model = "Qwen/Qwen3-8B"
	}
	seed := mix(hashOf(m.Member))
	tokens := 200_000 + int(seed%1_500_000)
	gb := 40 + float64(seed%60)
	r.say(w, at(38), fmt.Sprintf("server_args=ServerArgs(model_path='%s', tp_size=%d, dp_size=%d, disaggregation_mode='%s', enable_metrics=True, enable_trace=True, enable_request_time_stats_logging=%s, log_requests=%s, port=%s)",
		model, tp, dp, mode, title(!r.o.NoRequests), title(!r.o.NoRequests && release(m.Version) >= 10), portOf(m.Addr)))
	r.say(s, at(30), "Init torch distributed begin.")
	r.raw(m.Member, at(29.9), fmt.Sprintf("[Gloo] Rank 0 is connected to %d peer ranks. Expected number of connected peer ranks is : %d", tp-1, tp-1))
	r.say(s, at(29.8), "Init torch distributed ends. elapsed=0.21 s, mem usage=0.10 GB")
	r.say(s, at(29.5), "Load weight begin. avail mem=139.20 GB")
	r.raw(m.Member, at(24), "Multi-thread loading shards: 100% Completed | 5/5 [00:05<00:00,  1.02s/it]")
	r.say(s, at(23.5), "Load weight end. elapsed=6.02 s, type=Qwen3ForCausalLM, avail mem=123.91 GB, mem usage=15.28 GB.")
	r.say(s, at(23.4), fmt.Sprintf("KV Cache is allocated. dtype: torch.bfloat16, #tokens: %d, K size: %.2f GB, V size: %.2f GB", tokens, gb, gb))
	r.say(s, at(23.3), "Memory pool end. avail mem=14.28 GB")
	r.say(s, at(23.2), "Capture cuda graph begin. This can take up to several minutes. avail mem=14.16 GB")
	r.raw(m.Member, at(12), "Capturing batches (bs=1 avail_mem=13.56 GB): 100%|██████████| 52/52 [00:11<00:00,  4.61it/s]")
	r.say(s, at(11.9), "Capture cuda graph end. Time elapsed: 11.28 s. mem usage=0.60 GB. avail mem=13.56 GB.")
	r.say(s, at(3), fmt.Sprintf("max_total_num_tokens=%d, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=256, context_len=40960, available_gpu_mem=13.56 GB", tokens))
	r.say(w, at(2.5), fmt.Sprintf("INFO:     Started server process [%d]", m.PID))
	r.say(w, at(2.5), "INFO:     Waiting for application startup.")
	r.say(w, at(2.4), "INFO:     Application startup complete.")
	r.say(w, at(2.4), fmt.Sprintf("INFO:     Uvicorn running on http://%s (Press CTRL+C to quit)", m.Addr))
	r.say(w, at(0), "The server is fired up and ready to roll!")
}

func portOf(addr string) string {
	for i := len(addr) - 1; i >= 0; i-- {
		if addr[i] == ':' {
			return addr[i+1:]
		}
	}
	return "30000"
}

// crash writes how a process dies: of a batch that no longer fits the memory.
func (r *Renderer) crash(m sim.Moment) {
	switch m.Kind {
	case sim.VLLM:
		r.vllmCrash(m)
	case sim.SGLang, sim.DynamoWorker:
		s := who{m.Member, m.Kind, m.Version, ranksOf(0, m.DP, m.TP)}
		w := who{m.Member, m.Kind, m.Version, ""}
		r.sayAs(s, m.Time, "ERROR", "Scheduler hit an exception: Traceback (most recent call last):")
		for _, l := range []string{
			`  File "/sgl-workspace/sglang/python/sglang/srt/managers/scheduler.py", line 3105, in run_scheduler_process`,
			`    scheduler.event_loop_overlap()`,
			`  File "/sgl-workspace/sglang/python/sglang/srt/layers/logits_processor.py", line 604, in forward`,
			`    logits = torch.matmul(hidden_states, lm_head.weight.T)`,
			`torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.04 GiB is free.`,
			``,
		} {
			r.raw(m.Member, m.Time, l)
		}
		if release(m.Version) >= 11 {
			r.sayAs(w, m.Time.Add(200*time.Millisecond), "ERROR", fmt.Sprintf("Subprocess scheduler_0 (pid=%d) crashed with exit code -9. Triggering SIGQUIT for cleanup...", m.PID+3))
		}
		r.sayAs(w, m.Time.Add(250*time.Millisecond), "ERROR", "SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
		r.sayAs(w, m.Time.Add(260*time.Millisecond), "ERROR", "Dumping requests before crash. self.crash_dump_folder=None")
	}
}

// vllmStats is what vLLM's statistics line adds up.
type vllmStats struct {
	next      time.Time
	prompt    int
	preempted int
	since     time.Time
}

// vllmEvery is how often vLLM prints its statistics.
const vllmEvery = 10 * time.Second

func vllmStamp(t time.Time) string { return t.Format("01-02 15:04:05") }

// vllmReport adds up, and prints every ten seconds.
func (r *Renderer) vllmReport(p sim.Report) {
	st := &r.of(p.Member).stats
	if st.since.IsZero() {
		st.since, st.next = p.Time, p.Time.Add(vllmEvery)
	}
	if p.What == "prefill" {
		st.prompt += p.Computed + p.Cached
	}
	if p.Time.Before(st.next) {
		return
	}
	d := p.Time.Sub(st.since).Seconds()
	usage := 0.0
	if p.Capacity > 0 {
		usage = 100 * float64(p.Tokens) / float64(p.Capacity)
	}
	text := fmt.Sprintf("Engine %03d: Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s, Running: %d reqs, Waiting: %d reqs, ",
		p.Rank, float64(st.prompt)/d, p.Throughput, p.Running, p.Queue)
	if st.preempted > 0 {
		text += fmt.Sprintf("Preemptions: %d, ", st.preempted)
	}
	text += fmt.Sprintf("GPU KV cache usage: %.1f%%, Prefix cache hit rate: %.1f%%", usage, 20+float64(mix(hashOf(p.Member))%300)/10)
	r.vllm(p.Member, p.Time, "INFO", "loggers.py:259", text)
	st.since, st.next, st.prompt, st.preempted = p.Time, p.Time.Add(vllmEvery), 0, 0
}

func (r *Renderer) vllm(member string, at time.Time, level, code, text string) {
	r.add(member, at, func(t time.Time) string {
		return fmt.Sprintf("(APIServer pid=1) %s %s [%s] %s", level, vllmStamp(t), code, text)
	})
}

func (r *Renderer) vllmCore(m sim.Moment, at time.Time, level, code, text string) {
	r.add(m.Member, at, func(t time.Time) string {
		return fmt.Sprintf("(EngineCore_DP0 pid=%d) %s %s [%s] %s", m.PID, level, vllmStamp(t), code, text)
	})
}

func (r *Renderer) vllmCall(c sim.Call) {
	if c.Received.IsZero() || c.Outcome == sim.Failed {
		return
	}
	if c.Outcome == sim.Aborted {
		r.vllm(c.Member, c.Ended, "INFO", "async_llm.py:836", fmt.Sprintf("Aborted request(s) chatcmpl-%s.", c.RID))
		if c.First.IsZero() {
			return
		}
	}
	at := c.Ended
	if c.Streaming && !c.First.IsZero() {
		at = c.First
	}
	r.raw(c.Member, at, fmt.Sprintf(`(APIServer pid=1) INFO:     %s - "POST /v1/chat/completions HTTP/1.1" 200 OK`, r.client(c.ID)))
}

func (r *Renderer) vllmStart(m sim.Moment) {
	at := func(before float64) time.Time { return m.Time.Add(-time.Duration(before * float64(time.Second))) }
	r.vllmCore(m, at(30), "INFO", "gpu_model_runner.py:2602", "Starting to load model "+m.Model+"...")
	r.vllmCore(m, at(22), "INFO", "default_loader.py:268", "Loading weights took 7.42 seconds")
	r.vllmCore(m, at(21), "INFO", "gpu_model_runner.py:2653", "Model loading took 14.99 GiB and 8.210317 seconds")
	r.vllmCore(m, at(14), "INFO", "kv_cache_utils.py:1087", "GPU KV cache size: 160,000 tokens")
	r.vllmCore(m, at(4), "INFO", "gpu_model_runner.py:3480", "Graph capturing finished in 9 secs, took 0.62 GiB")
	r.vllmCore(m, at(3.5), "INFO", "core.py:218", "init engine (profile, create kv cache, warmup model) took 17.31 seconds")
	r.vllm(m.Member, at(1), "INFO", "api_server.py:1692", "Starting vLLM API server 0 on http://"+m.Addr)
	r.raw(m.Member, at(0.5), fmt.Sprintf("(APIServer pid=1) INFO:     Started server process [%d]", m.PID))
	r.raw(m.Member, at(0.4), "(APIServer pid=1) INFO:     Waiting for application startup.")
	r.raw(m.Member, at(0), "(APIServer pid=1) INFO:     Application startup complete.")
}

func (r *Renderer) vllmCrash(m sim.Moment) {
	for _, l := range []string{
		"EngineCore encountered a fatal error.",
		"Traceback (most recent call last):",
		`  File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 701, in run_engine_core`,
		"    engine_core.run_busy_loop()",
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 79.11 GiB of which 812.00 MiB is free.",
	} {
		r.vllmCore(m, m.Time, "ERROR", "core.py:710", l)
	}
	r.vllm(m.Member, m.Time.Add(100*time.Millisecond), "ERROR", "async_llm.py:480", "AsyncLLM output_handler failed.")
}
