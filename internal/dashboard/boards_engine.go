package dashboard

import (
	"github.com/rollscope/rollscope/internal/engine"
)

// goldenBoard is the first look: five questions, the fleet and the engines.
func goldenBoard() Board {
	return Board{
		ID: "golden", Title: "Golden signals", Tags: []string{"golden", "sglang", "vllm", "dynamo"},
		Meaning: "How long do users wait for the first token and for each next one, how many tokens come out, how much prefill the cache saves, and who is waiting. Any engine, counted once however it is scraped.",
		Sections: []Section{
			row("Fleet", sig("ttft"), sig("itl"), sig("throughput"), sig("cache_hit_rate"), sig("queue_depth")),
			row("By engine", each("ttft"), each("itl"), each("throughput"), each("cache_hit_rate"), each("queue_depth")),
			row("By role", roles("throughput", claiming(engine.SGLang)), roles("running", claiming(engine.SGLang)),
				roles("queue_depth", claiming(engine.SGLang)), roles("kv_usage", claiming(engine.SGLang))),
			row("Behind them", sig("e2e"), sig("queue_time"), sig("request_rate"), sig("running"),
				each("kv_usage", above(Warn, 0.9), above(Crit, 0.97)), sig("retractions"), sig("aborts"),
				sig("outcomes", below(Warn, 0.999), below(Crit, 0.99)),
				prom("Tokens in and out", "tokens/s", targets(Target{Signal: "prompt_tokens"}, Target{Signal: "generation_tokens"}),
					means("Counted when a request finishes: long generations come as steps. The throughput panel moves with each decode step."))),
		},
	}
}

// sglangBoard has the eight panels that SGLang operators start with.
func sglangBoard() Board {
	only := backend(engine.SGLang)
	return Board{
		ID: "sglang", Title: "SGLang", Tags: []string{"sglang"},
		Meaning: "The eight panels an SGLang service is run by: first token, next tokens, throughput, cache, queue, KV pool, speculation, errors.",
		Sections: []Section{
			row("Latency", sig("ttft", titled("TTFT p50/p99"), only), sig("itl", titled("TPOT p50/p99"), only)),
			row("Load",
				sig("throughput", titled("Throughput"), only),
				sig("cache_hit_rate", titled("Cache hit rate"), shown(Stat), only),
				prom("Running / Queue", "requests", targets(Target{Signal: "running", Legend: "running"}, Target{Signal: "queue_depth", Legend: "queued"}), only),
				sig("kv_usage", titled("KV pool used"), shown(Gauge), only, above(Warn, 0.9), above(Crit, 0.97),
					means("The fullest engine. A full pool with a short queue is healthy: the cache is used; a full pool with a growing queue is overload."))),
			row("Speculation and errors",
				sig("spec_accept_rate", titled("Spec accept rate"), only, below(Warn, 0.5)),
				sig("aborts", titled("Error rate"), shown(Stat), only,
					means("Calls that abort requests, client disconnects among them. One call may abort many requests or none, so it is no count of failed requests."))),
		},
	}
}

// dynamoSGLangBoard has the five sections of Dynamo's board for SGLang.
func dynamoSGLangBoard() Board {
	only := backend(engine.SGLang)
	both := claiming(engine.SGLang, engine.DynamoWorker)
	p := quantiles(0.5, 0.9, 0.99)
	return Board{
		ID: "dynamo-sglang", Title: "Dynamo + SGLang engine", Tags: []string{"dynamo", "sglang", "hicache"},
		Meaning: "SGLang engines behind NVIDIA Dynamo, read from the workers' system port: latency, throughput and queue, cache and pins, memory pressure, HiCache.",
		Sections: []Section{
			row("Request latency",
				sig("e2e", titled("E2E Request Latency"), only, both, p),
				sig("ttft", titled("Time-To-First-Token"), only, both, p),
				sig("itl", titled("Inter-Token Latency"), only, both, p)),
			row("Throughput and queue",
				sig("throughput", titled("Token Generation Throughput"), only, both),
				prom("Running & Queued Requests", "requests", targets(Target{Signal: "running", Legend: "running"}, Target{Signal: "queue_depth", Legend: "queued"}), only, both),
				sig("request_rate", titled("Request Rate"), only, both)),
			row("Cache and PIN",
				sig("cache_hit_rate", titled("Cache Hit Rate"), only, both),
				prom("Active PIN Count", "tokens", targets(
					lazy(expr("pins (engines patched for Dynamo)", "sum(sglang:hicache_active_pin_count)")),
					Target{Signal: "kv_used_tokens", Legend: "tokens locked by running requests"}), only, claiming(engine.SGLang),
					means("No released SGLang counts pins; a patched one emits hicache_active_pin_count. What every version since April 2026 tells is how many KV tokens running requests lock, which no eviction can free.")),
				sig("retractions", titled("Retractions"), only)),
			row("Memory pressure",
				each("kv_usage", titled("GPU KV Cache Usage"), only, both, above(Warn, 0.9), above(Crit, 0.97)),
				each("hicache_usage", titled("Host (CPU) KV Cache Usage"), only, above(Warn, 0.95)),
				prom("Eviction & Load-back Rate", "tokens/s", targets(Target{Signal: "evictions", Legend: "evicted"}, Target{Signal: "load_back", Legend: "loaded back"}), only)),
			row("HiCache latency",
				sig("eviction_time", titled("Eviction P99 Latency"), quantiles(0.99)),
				sig("load_back_time", titled("Load-back P99 Latency"), quantiles(0.99))),
		},
	}
}

// vllmBoard shows what vLLM says and SGLang does not.
func vllmBoard() Board {
	only := backend(engine.VLLM)
	v := claiming(engine.VLLM)
	return Board{
		ID: "vllm", Title: "vLLM", Tags: []string{"vllm"},
		Meaning: "vLLM engines of the old and the new metric names at once: latency by phase, preemptions, prefix cache, finish reasons.",
		Sections: []Section{
			row("Latency",
				sig("ttft", only), sig("itl", titled("Time per output token"), only), sig("e2e", only),
				prom("Phases p99", "seconds", targets(
					Target{Signal: "queue_time", Quantile: 0.99, Legend: "queue"}, Target{Signal: "prefill_time", Quantile: 0.99, Legend: "prefill"},
					Target{Signal: "decode_time", Quantile: 0.99, Legend: "decode"}), only,
					means("Where the time of a request goes. Percentiles of phases do not add up to the percentile of the whole."))),
			row("Load",
				sig("throughput", only),
				prom("Running / waiting", "requests", targets(Target{Signal: "running", Legend: "running"}, Target{Signal: "queue_depth", Legend: "waiting"}), only),
				each("kv_usage", titled("KV cache usage"), only, above(Warn, 0.9), above(Crit, 0.97)),
				sig("retractions", titled("Preemptions"), only,
					means("Requests thrown out of the running batch for want of KV blocks; their prefill is done again."))),
			row("Cache and lengths",
				sig("cache_hit_rate", titled("Prefix cache hit rate"), only),
				prom("Finish reasons", "requests/s", targets(expr("{{finished_reason}}", speed("vllm:request_success_total", "finished_reason"))), v, stacked,
					means("How requests ended: stop, length, abort.")),
				sig("prompt_length", only), sig("generation_length", only),
				prom("Tokens per engine step", "tokens", targets(expr("mean", mean("vllm:iteration_tokens_total"))), v,
					means("How full the batches are."))),
		},
	}
}
