package rollout

import "strings"

// Views of a metric, as bits.
const (
	InCompat = 1 << iota
	InPerf
	InPerfStep
)

// MetricDoc describes a family of metrics. In Pattern, {stat} stands for mean, median, max or min, and
// {...} for any other text.
type MetricDoc struct {
	Pattern string
	Unit    string
	Views   int
	Meaning string
	Source  string // field of the dump that it is read from
	Trap    string
}

// Units.
const (
	unitSeconds  = "s"
	unitTokens   = "tokens"
	unitRatio    = "ratio"
	unitRequests = "requests"
	unitSamples  = "samples"
	unitRate     = "tokens/s"
)

// Catalog describes every metric that [Metrics.Result] can hold. Metrics of an evaluation's dataset,
// eval/NAME/..., are those of rollout/.
func Catalog() []MetricDoc {
	const (
		both  = InCompat | InPerf
		ours  = InPerf
		reqs  = InPerf | InPerfStep
		all   = InCompat | InPerf | InPerfStep
		pd    = "pd_* attribute of the request's span_end, or of its sglang_pd_* child spans"
		nests = "Phases nest; never add one to what it holds."
		lost  = "slime reads it from span_end only: nothing of PD runs since its commit 8f732538a. "
	)
	docs := []MetricDoc{
		{"rollout/response_len/{stat}", unitTokens, both, "Tokens of a response that count for the loss.", "loss_mask, else response_length", "Tool output and off-policy tokens are masked and not in it; see masked_tokens."},
		{"rollout/zero_std/count_{reward}", "groups", both, "Groups whose samples all have this reward (rounded to one digit): they teach nothing.", "reward, group_index", "A group of one sample always counts. Samples without a group_index are one group. The key's text is Python's: 1 and 1.0 are two keys."},
		{"rollout/zero_std/unknown_count", "groups", ours, "Groups with a reward that is missing or no number.", "reward, group_index", "slime's whole rollout/ section fails on such a group when its rewards are equal."},
		{"rollout/group_count", "groups", ours, "Groups: prompts with their samples.", "group_index", ""},
		{"rollout/spec_accept_rate", unitRatio, both, "Accepted share of the draft tokens, mean over samples.", "spec_info", "Samples without drafts count as 0. Only with speculative decoding configured."},
		{"rollout/spec_accept_length", unitTokens, both, "Tokens per verification step, mean over samples.", "spec_info", "Samples without a verification count as 0."},
		{"rollout/prefix_cache_hit_rate", unitRatio, both, "Cached share of all prompt tokens.", "prefix_cache_info", "Weighted by tokens, over all turns; 0 also when nothing was counted."},
		{"rollout/avg_cached_tokens_per_sample", unitTokens, both, "Cached prompt tokens per sample, all turns together.", "prefix_cache_info", ""},
		{"rollout/error_cat/{category}", unitRatio, both, "Share of the samples with this category.", "reward[log_reward_category]", "slime's whole rollout/ section fails when one sample has none."},
		{"rollout/top_p_kept_vocab_per_token", unitTokens, both, "Vocabulary entries that top-p kept per trainable token.", "rollout_top_p_token_offsets, loss_mask", "Removed samples are left out."},
		{"rollout/repetition_frac", unitRatio, both, "Share of the responses that repeat themselves: more than 10,000 code points, of which zlib makes the last 10,000 more than ten times smaller.", "response", "The size is that of C zlib (1.2, 1.3) at level 9; zlib-ng differs a little."},
		{"rollout/truncated_ratio", unitRatio, both, "Share of the samples that hit the length limit.", "status", ""},
		{"rollout/sample_count", unitSamples, ours, "Samples in the dump.", "samples", ""},
		{"rollout/reward/{stat}", "", ours, "Reward of the samples.", "reward, or its entry reward_key", "Before any normalisation by the trainer. Partial when samples have none."},
		{"rollout/aborted_ratio", unitRatio, ours, "Share of the samples that ended aborted.", "status", ""},
		{"rollout/failed_ratio", unitRatio, ours, "Share of the samples that ended failed.", "status", ""},
		{"rollout/masked_tokens", unitTokens, ours, "Response tokens that do not count for the loss.", "response_length, loss_mask", "Tool output, and with mask_offpolicy_in_partial_rollout what earlier steps generated."},
		{"rollout/carried_over_count", unitSamples, ours, "Samples that an earlier step began (partial rollout).", "metadata.start_rollout_id, trace", ""},
		{"rollout/untraced_count", unitSamples, ours, "Samples without a usable trace: their requests are in no metric.", "trace", ""},
		{"rollout/not_sample_count", "entries", ours, "Entries of the dump that are no samples.", "samples", "slime's loader fails on the first."},
		{"rollout/problem_count", "problems", ours, "Oddities that were found in the samples.", "samples", ""},
		{"rollout/train/coverage", unitRatio, ours, "Share of the samples for which the trainer wrote a row.", "training shards", "Below 1 every train/ metric is partial."},
		{"rollout/train/reward/{stat}", "", ours, "Reward as the trainer wrote it.", "training shards", "Joined by the global sample index, never by position."},
		{"rollout/train/response_len/{stat}", unitTokens, ours, "Response length as the trainer wrote it.", "training shards", ""},
		{"passrate/pass@{k}", unitRatio, both, "Estimated chance that one of k samples of a prompt is correct (reward exactly 1).", "reward", "Groups are consecutive runs of n_samples_per_prompt samples, whatever group_index says."},

		{"perf/rollout_time", unitSeconds, both, "Wall time of the rollout.", "given, else the extent of the step's own events", "Derived from the traces it lacks what happens before the first and after the last span."},
		{"perf/non_generation_time/{stat}", unitSeconds, both, "Time of a sample outside generation (tools, environment).", "non_generation_time", "Appears only when some sample has any."},
		{"perf/non_generation_time/invalid_count", unitSamples, ours, "Samples whose time is negative, not finite or no number; they are not in the statistics.", "non_generation_time", ""},
		{"perf/tokens_per_gpu_per_sec", unitRate, both, "Response tokens per second and GPU.", "response_length", "Counts all of a carried-over sample's tokens in the step that finished it; perf_step/ does not. Includes tool output."},
		{"perf/effective_tokens_per_gpu_per_sec", unitRate, both, "The same of tokens that count for the loss.", "loss_mask", ""},
		{"perf/longest_sample_tokens_per_sec", unitRate, both, "Tokens of the longest response over the rollout time.", "response_length", "Not a decode speed: the sample need not have run all the time."},
		{"perf/longest_effective_sample_tokens_per_sec", unitRate, both, "The same of tokens that count for the loss.", "loss_mask", ""},
		{"perf/longest_sample_non_generation_time", unitSeconds, both, "Time outside generation of the longest responses, mean.", "non_generation_time", ""},
		{"perf/longest_effective_sample_non_generation_time", unitSeconds, both, "The same, longest by tokens that count.", "non_generation_time", ""},
		{"perf/longest_sample_tokens_per_sec_without_non_generation", unitRate, both, "Tokens of the longest response over the rollout time less its time outside generation.", "response_length, non_generation_time", "Unknown when nothing is left of the time (slime divides by zero)."},
		{"perf/longest_effective_sample_tokens_per_sec_without_non_generation", unitRate, both, "The same of tokens that count for the loss.", "loss_mask, non_generation_time", ""},
		{"perf_step/rollout_time", unitSeconds, InPerfStep, "As perf/rollout_time.", "given, else the extent of the step's own events", ""},
		{"perf_step/tokens_per_gpu_per_sec", unitRate, InPerfStep, "Tokens generated in this step per second and GPU, aborted ones included.", "completion_tokens of the requests", "Partial when requests do not say their tokens (aborted ones often do not)."},
		{"perf_step/request/earlier_count", unitRequests, InPerfStep, "Requests in this dump that ran in an earlier step; not counted here.", "trace of carried-over samples", ""},
		{"perf_step/request/late_count", unitRequests, InPerfStep, "Requests of this step that were found in later dumps, and are counted here.", "later dumps", "0 until those dumps are there."},
		{"perf_step/request/unsplit_sample_count", unitSamples, InPerfStep, "Carried-over samples whose trace does not show where this step began.", "trace, metadata.start_rollout_id", "All their requests count here; every value is partial."},
	}
	for _, d := range []MetricDoc{
		{"request/e2e_latency/{stat}", unitSeconds, all, "Time of a request in the engine.", "e2e_latency", "Of requests, not samples: see _per_sample. The client's span is longer."},
		{"request/queue_time/{stat}", unitSeconds, all, "Time of a request in the engine's queue.", "queue_time", "Retracted requests report negative ones, which slime averages in; ours are in invalid_count."},
		{"decode/throughput/{stat}", unitRate, all, "Decode speed of a request.", "decode_throughput", "A mean over requests, not tokens: short ones weigh as much as long ones."},
		{"prefill/bootstrap_queue_duration/{stat}", unitSeconds, all, "Prefill: waiting for the decode side and for memory.", pd, lost + "Holds bootstrap and alloc_wait. " + nests},
		{"prefill/bootstrap_duration/{stat}", unitSeconds, all, "Prefill: handshake with the decode side.", pd, lost + "The first commit with traces (0988f0f4a) names it pd_bootstrap_duration, which slime does not read."},
		{"prefill/alloc_wait_duration/{stat}", unitSeconds, all, "Prefill: waiting for KV memory.", pd, lost + "Formerly pd_alloc_waiting_duration, which slime does not read."},
		{"prefill/forward_duration/{stat}", unitSeconds, all, "Prefill: computing.", pd, lost + "Holds transfer_queue."},
		{"prefill/transfer_queue_duration/{stat}", unitSeconds, all, "Prefill: the KV transfer waiting for its turn.", pd, lost + "Part of forward."},
		{"prefill/transfer_speed_gb_s/{stat}", "GB/s", all, "Speed of the KV transfer.", "pd_transfer_speed_gb_s; event sglang_pd_summary", lost},
		{"prefill/transfer_total_mb/{stat}", "MB", all, "Size of the KV transfer.", "pd_transfer_total_mb; event sglang_pd_summary", lost},
		{"prefill/retry_count/{stat}", "retries", all, "Retries of the prefill.", "pd_prefill_retry_count; event sglang_pd_summary", lost},
		{"decode/prealloc_duration/{stat}", unitSeconds, all, "Decode: before the transfer may begin.", pd, lost + "Holds decode's bootstrap and alloc_wait."},
		{"decode/bootstrap_duration/{stat}", unitSeconds, all, "Decode: handshake with the prefill side.", pd, lost},
		{"decode/alloc_wait_duration/{stat}", unitSeconds, all, "Decode: waiting for KV memory.", pd, lost},
		{"decode/transfer_duration/{stat}", unitSeconds, all, "Decode: receiving the KV cache.", pd, lost},
		{"decode/forward_duration/{stat}", unitSeconds, all, "Decode: computing.", pd, lost},
		{"{metric}/count", unitRequests, reqs, "Requests with a value of this metric.", "", "slime published it for a day (10a8b1082)."},
		{"{metric}/invalid_count", unitRequests, reqs, "Requests whose value is negative, not finite, or no number.", "", "They are in no statistic of ours."},
		{"request/count", unitRequests, reqs, "Requests, streaming ones included.", "spans sglang_generate, sglang_generate_stream, and spans with an engine's timings", "perf/ walks the whole trace of every sample, as slime does: carried-over samples bring requests of earlier steps, siblings that share a trace bring each request again."},
		{"request/profiled_count", unitRequests, reqs, "Requests with at least one usable timing.", "", "Aborted requests have none."},
		{"request/invalid_count", unitRequests, reqs, "Requests with at least one impossible timing.", "", ""},
		{"request/open_count", unitRequests, reqs, "Requests whose span never ended (cancelled).", "", ""},
		{"request/repeated_count", unitRequests, ours, "Requests counted again because siblings share one trace.", "", "perf_step/ counts each once."},
		{"request/count_per_sample/{stat}", unitRequests, reqs, "Requests of a sample.", "", ""},
		{"request/e2e_latency_per_sample/{stat}", unitSeconds, reqs, "Sum of the latencies of a sample's requests.", "e2e_latency", "Concurrent requests of one sample add up."},
		{"request/queue_time_per_sample/{stat}", unitSeconds, reqs, "Sum of the queue times of a sample's requests.", "queue_time", ""},
		{"request/prompt_tokens", unitTokens, reqs, "Prompt tokens of all requests.", "prompt_tokens", "A multi-turn prompt counts again in each turn."},
		{"request/completion_tokens", unitTokens, reqs, "Generated tokens of all requests.", "completion_tokens", ""},
		{"request/cached_tokens", unitTokens, reqs, "Cached prompt tokens of all requests.", "cached_tokens", ""},
		{"aborted/request_count", unitRequests, reqs, "Requests that the engine aborted.", "finish_reason", ""},
		{"aborted/request_tokens", unitTokens, reqs, "Tokens that they had generated.", "finish_reason, completion_tokens", "A partial rollout goes on from them; see discarded_tokens."},
		{"aborted/earlier_attempt_count", unitRequests, reqs, "Requests of attempts before a sample's last one.", "attempt", "slime itself never begins a second attempt."},
		{"aborted/earlier_attempt_tokens", unitTokens, reqs, "Tokens that they had generated.", "attempt, completion_tokens", "A carried-over sample goes on from them; see discarded_tokens."},
		{"aborted/discarded_tokens", unitTokens, ours, "Generated tokens that are in no response, at least: per sample, its requests' tokens less its response's.", "completion_tokens, response_length", "A lower bound: tool output in a response hides as many."},
	} {
		for _, prefix := range [...]struct {
			text string
			view int
		}{{"perf/", InCompat | InPerf}, {"perf_step/", InPerfStep}} {
			if v := d.Views & prefix.view; v != 0 {
				p := d
				p.Pattern, p.Views = prefix.text+d.Pattern, v
				docs = append(docs, p)
			}
		}
	}
	return append(docs,
		MetricDoc{"eval", "", both, "eval/NAME: mean reward of a dataset's samples.", "reward, or its entry eval_reward_key", "slime writes no dataset names into a dump: where the samples do not say and no names are given, NAME is unknown."},
		MetricDoc{"eval-truncated_ratio", unitRatio, both, "eval/NAME-truncated_ratio: share of the samples that hit the length limit.", "status", "Joined with - as slime does."},
	)
}

// catalog is Catalog, made once: it is asked for every key.
var catalog = Catalog()

// docOf finds the description of a key.
func docOf(key string) *MetricDoc {
	for i := range catalog {
		if catalog[i].Pattern == key {
			return &catalog[i]
		}
	}
	for i := range catalog {
		if matches(catalog[i].Pattern, key) {
			return &catalog[i]
		}
	}
	return nil
}

// matches compares a key with a pattern.
func matches(pattern, key string) bool {
	i := strings.IndexByte(pattern, '{')
	if i < 0 {
		return pattern == key
	}
	if !strings.HasPrefix(key, pattern[:i]) {
		return false
	}
	j := i + strings.IndexByte(pattern[i:], '}')
	name, rest := pattern[i+1:j], pattern[j+1:]
	key = key[i:]
	switch {
	case rest != "":
		k := strings.LastIndex(key, rest[:literal(rest)])
		return k > 0 && matches(rest, key[k:])
	case name == "stat":
		return key == "mean" || key == "median" || key == "max" || key == "min"
	}
	return key != ""
}

// literal is the length of a pattern's text before its first placeholder.
func literal(pattern string) int {
	if i := strings.IndexByte(pattern, '{'); i >= 0 {
		return i
	}
	return len(pattern)
}
