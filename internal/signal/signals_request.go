package signal

import "github.com/rollscope/rollscope/internal/engine"

// requestSignals are about requests: how many, how long, how they ended.
func requestSignals() []Signal {
	const group = "Requests"
	return []Signal{
		{
			ID: "e2e", Title: "End-to-end latency", Short: "E2E", Group: group, Unit: "seconds", Kind: Quantile,
			Meaning: "Receipt of a request to its last token, once per finished request.",
			Trap:    "A PD prefill engine observes only its own part of the request.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "engine", Num: whole("sglang:e2e_request_latency_seconds", "")},
				{Backend: engine.VLLM, Name: "engine", Num: whole("vllm:e2e_request_latency_seconds", "")},
				{Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true, Num: whole("dynamo_frontend_request_duration_seconds", "")},
			},
		},
		{
			ID: "running", Title: "Running requests", Short: "Running", Group: group, Unit: "requests", Kind: Level,
			Meaning: "Requests in the running batch.",
			Trap:    "SGLang writes the gauge every 40 decode steps: during a long decode it is tens of seconds old.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "running batch", Num: leader("sglang:num_running_reqs", total)},
				{Backend: engine.VLLM, Name: "running batch", Num: leader("vllm:num_requests_running", "")},
				{Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true, Caveat: "all requests in flight, waiting ones too", Num: whole("dynamo_frontend_active_requests", "")},
				{Backend: engine.DynamoFrontend, Name: "frontend, old name", Fallback: true, Caveat: "all requests in flight, waiting ones too", Num: whole("dynamo_frontend_inflight_requests", "")},
			},
		},
		{
			ID: "request_rate", Title: "Request rate", Short: "req/s", Group: group, Unit: "requests/s", Kind: Rate,
			Meaning: "Requests that finished, per second.",
			Trap:    "Aborted requests may be in it, depending on the version.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "finished", Num: whole("sglang:num_requests_total", "")},
				{Backend: engine.VLLM, Name: "finished", Num: whole("vllm:request_success_total", "")},
				{Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true, Num: whole("dynamo_frontend_requests_total", "")},
			},
		},
		{
			ID: "prompt_tokens", Title: "Prompt tokens", Short: "In tok/s", Group: group, Unit: "tokens/s", Kind: Rate,
			Meaning: "Prompt tokens of requests per second, cached ones included.",
			Trap:    "SGLang adds a request's tokens when it finishes; prefill_throughput shows them as they are processed.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "finished requests", Caveat: caveatAtFinish, Num: whole("sglang:prompt_tokens_total", "")},
				{Backend: engine.VLLM, Name: "prefilled", Num: whole("vllm:prompt_tokens_total", "")},
				{Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true, Num: whole("dynamo_frontend_input_sequence_tokens_sum", "")},
			},
		},
		{
			ID: "generation_tokens", Title: "Generated tokens", Short: "Out tok/s", Group: group, Unit: "tokens/s", Kind: Rate,
			Meaning: "Output tokens of requests per second, as the requests' counters say.",
			Trap:    "SGLang adds a request's tokens when it finishes; throughput shows them as they are generated.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "finished requests", Caveat: caveatAtFinish, Num: whole("sglang:generation_tokens_total", "")},
				{Backend: engine.VLLM, Name: "generated", Num: whole("vllm:generation_tokens_total", "")},
				{Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true, Num: whole("dynamo_frontend_output_tokens_total", "")},
			},
		},
		{
			ID: "prefill_throughput", Title: "Prefill throughput", Short: "Prefill tok/s", Group: group, Unit: "tokens/s", Kind: Rate, Higher: true, Roles: prefilling(),
			Meaning: "Prompt tokens computed per second, cached ones left out.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "realtime_tokens", Since: "0.5.7", Num: leader("sglang:realtime_tokens_total", `mode="prefill_compute"`)},
				{Backend: engine.VLLM, Name: "prompt_tokens_by_source", Since: "2026-02", Num: whole("vllm:prompt_tokens_by_source_total", `source="local_compute"`)},
			},
		},
		{
			ID: "queue_time", Title: "Queue time", Short: "Queue time", Group: group, Unit: "seconds", Kind: Quantile,
			Meaning: "Entry into the waiting queue to the first forward pass, once per request.",
			Trap:    "Every TP rank observes it, here one counts. On a PD decode engine it starts when the KV cache has arrived.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "queue_time_seconds", Since: "0.5.3rc2", Num: leader("sglang:queue_time_seconds", "")},
				{Backend: engine.SGLang, Name: "queue_time_s", Since: "0.5.2", Num: leader("sglang:queue_time_s", "")},
				{Backend: engine.VLLM, Name: "request_queue_time", Num: whole("vllm:request_queue_time_seconds", "")},
				{Backend: engine.VLLM, Name: "time_in_queue", Num: whole("vllm:time_in_queue_requests", "")},
			},
		},
		{
			ID: "prefill_time", Title: "Prefill time", Short: "Prefill", Group: group, Unit: "seconds", Kind: Quantile, RawOnly: true, Roles: prefilling(),
			Meaning: "Time of a request's prefill, once per request.",
			Trap:    "SGLang splits long prompts: this is the last chunk's stage, the earlier ones are in stage chunked_prefill.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "prefill_forward", Since: "0.5.3rc2", Num: leader("sglang:per_stage_req_latency_seconds", `stage="prefill_forward"`)},
				{Backend: engine.VLLM, Name: "request_prefill_time", Num: whole("vllm:request_prefill_time_seconds", "")},
			},
		},
		{
			ID: "decode_time", Title: "Decode time", Short: "Decode", Group: group, Unit: "seconds", Kind: Quantile, RawOnly: true, Roles: generating(),
			Meaning: "Time of a request's decoding, once per request.",
			Sources: []Source{{Backend: engine.VLLM, Name: "request_decode_time", Num: whole("vllm:request_decode_time_seconds", "")}},
		},
		{
			ID: "prompt_length", Title: "Prompt length", Short: "ISL", Group: group, Unit: "tokens", Kind: Quantile, RawOnly: true,
			Meaning: "Prompt tokens of a request.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "finished requests", Since: "0.4.6.post4", Num: whole("sglang:prompt_tokens_histogram", "")},
				{Backend: engine.VLLM, Name: "finished requests", Num: whole("vllm:request_prompt_tokens", "")},
				{Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true, Num: whole("dynamo_frontend_input_sequence_tokens", "")},
			},
		},
		{
			ID: "generation_length", Title: "Answer length", Short: "OSL", Group: group, Unit: "tokens", Kind: Quantile, RawOnly: true,
			Meaning: "Output tokens of a request.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "finished requests", Since: "0.4.6.post4", Num: whole("sglang:generation_tokens_histogram", "")},
				{Backend: engine.VLLM, Name: "finished requests", Num: whole("vllm:request_generation_tokens", "")},
				{Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true, Num: whole("dynamo_frontend_output_sequence_tokens", "")},
			},
		},
		{
			ID: "aborts", Title: "Aborts", Short: "Aborts", Group: group, Unit: "requests/s", Kind: Rate,
			Meaning: "Abort calls per second, client disconnects included.",
			Trap:    "SGLang counts calls: abort_all is one, whatever it aborts. Requests that the scheduler rejects are not in it (see rejections).",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "abort calls", Since: "0.4.7", Num: whole("sglang:num_aborted_requests_total", ""), ZeroIf: whole("sglang:num_requests_total", "")},
				{Backend: engine.VLLM, Name: "finished as aborted", Num: whole("vllm:request_success_total", `finished_reason="abort"`), ZeroIf: whole("vllm:request_success_total", "")},
				{
					Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true,
					Num: whole("dynamo_frontend_requests_total", `error_type="cancelled"`), ZeroIf: whole("dynamo_frontend_requests_total", ""),
				},
			},
		},
		{
			ID: "rejections", Title: "Rejections", Short: "Rejected", Group: group, Unit: "requests/s", Kind: Rate,
			Meaning: "Requests per second that were refused: the queue was full, a higher priority came, or they waited too long.",
			Trap:    "SGLang before August 2026 counts them nowhere, and a rejected stream is an HTTP 200: without data here rejections are unknown, not 0.",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "waiting queue", Since: "2026-08", Num: leader("sglang:num_queue_rejected_requests_total", "", "reason")},
				{Backend: engine.VLLM, Name: "admission", Since: "2026-09", Num: whole("vllm:admission_rejections_total", "")},
				{Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true, Num: whole("dynamo_frontend_model_rejection_total", "")},
			},
		},
		{
			ID: "outcomes", Title: "Successful requests", Short: "Success", Group: group, Unit: "ratio", Kind: Share, Higher: true,
			Meaning: "Share of the requests that ended in which they ended well.",
			Trap:    "Without counters of outcomes SGLang's share is approximate: abort_all counts once for many, errors after the first streamed chunk stay an HTTP 200, and older versions do not count rejections.",
			Sources: []Source{
				{
					Backend: engine.SGLang, Name: "request_outcomes", Since: "2026-08", Lazy: true,
					Num: whole("sglang:request_outcomes_total", `outcome=~"success|succeeded|completed|complete|finished|stop|length|ok"`),
					Den: whole("sglang:request_outcomes_total", ""),
				},
				{
					Backend: engine.SGLang, Name: "finished, aborted and rejected", Lazy: true,
					Caveat: "approximate: an abort_all counts once for many requests; errors within a stream, failed requests and, before August 2026, rejections from a full queue are missing",
					Num:    whole("sglang:num_requests_total", ""),
					Den: Vec{
						{Metric: "sglang:num_requests_total"},
						{Metric: "sglang:num_aborted_requests_total"},
						{Metric: "sglang:num_queue_rejected_requests_total", Ranks: RankLeader, Parts: []string{"reason"}},
					},
				},
				{
					Backend: engine.VLLM, Name: "finished_reason", Lazy: true,
					Caveat: "requests refused at admission are missing",
					Num:    whole("vllm:request_success_total", `finished_reason!~"abort|error"`),
					Den:    whole("vllm:request_success_total", ""),
				},
				{
					Backend: engine.DynamoFrontend, Name: "frontend", Fallback: true, Lazy: true,
					Num: whole("dynamo_frontend_requests_total", `status="success"`), Den: whole("dynamo_frontend_requests_total", ""),
				},
			},
		},
		{
			ID: "retractions", Title: "Retractions", Short: "Retracted", Group: group, Unit: "requests/s", Kind: Rate,
			Meaning: "Requests per second that were thrown out of the running batch for want of KV slots, to be computed again (vLLM: preemptions).",
			Sources: []Source{
				{Backend: engine.SGLang, Name: "num_retracted_requests", Since: "0.5.7", Num: leader("sglang:num_retracted_requests_total", ""), ZeroIf: leader("sglang:realtime_tokens_total", "")},
				{Backend: engine.VLLM, Name: "num_preemptions", Num: whole("vllm:num_preemptions_total", "")},
			},
		},
		{
			ID: "retracted_tokens", Title: "Retracted tokens", Short: "Retracted tok/s", Group: group, Unit: "tokens/s", Kind: Rate,
			Meaning: "Tokens per second that retractions threw away, prompt and output together.",
			Sources: []Source{{
				Backend: engine.SGLang, Name: "input and output", Since: "0.5.7", ZeroIf: leader("sglang:realtime_tokens_total", ""),
				Num: Vec{
					{Metric: "sglang:num_retracted_input_tokens_total", Ranks: RankLeader},
					{Metric: "sglang:num_retracted_output_tokens_total", Ranks: RankLeader},
				},
			}},
		},
		{
			ID: "grammar_queue", Title: "Grammar queue", Short: "Grammar", Group: group, Unit: "requests", Kind: Level,
			Meaning: "Requests that wait for the compilation of their grammar; not in queue_depth.",
			Sources: []Source{{Backend: engine.SGLang, Name: "grammar queue", Since: "0.4.6.post4", Num: leader("sglang:num_grammar_queue_reqs", "")}},
		},
		{
			ID: "http_active", Title: "HTTP requests in flight", Short: "HTTP", Group: group, Unit: "requests", Kind: Level,
			Meaning: "HTTP requests between receipt and response, over all processes of the server.",
			Sources: []Source{{Backend: engine.SGLang, Name: "HTTP front", Since: "0.5.8", Num: whole("sglang:http_requests_active", `endpoint!~"/metrics.*|/health.*"`)}},
		},
		{
			ID: "http_errors", Title: "HTTP errors", Short: "5xx", Group: group, Unit: "responses/s", Kind: Rate,
			Meaning: "HTTP responses with a 5xx status per second.",
			Trap:    "An error after the first streamed chunk stays a 200.",
			Sources: []Source{{
				Backend: engine.SGLang, Name: "HTTP front", Since: "0.5.6.post2",
				Num: whole("sglang:http_responses_total", `status_code=~"5.."`), ZeroIf: whole("sglang:http_responses_total", ""),
			}},
		},
	}
}
