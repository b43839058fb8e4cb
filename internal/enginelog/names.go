package enginelog

import "strings"

// word is one key of a batch line and the field it becomes.
type word struct {
	key, field string
	percent    bool // written as percent, stored as a share
}

// batchWords are the keys of all generations of SGLang's batch lines. A field has the name of the metric
// where both mean the same. Of keys that begin alike the order does not matter: a key ends at its colon.
var batchWords = [...]word{
	{key: "#running-req", field: "num_running_reqs"},
	{key: "#queue-req", field: "num_queue_reqs"},
	{key: "#token", field: "num_used_tokens"},
	{key: "token usage", field: "token_usage"},
	{key: "gen throughput (token/s)", field: "gen_throughput"},
	{key: "input throughput (token/s)", field: "input_throughput"},
	{key: "#new-seq", field: "num_new_seqs"},
	{key: "#new-token", field: "num_new_tokens"},
	{key: "#cached-token", field: "num_cached_tokens"},
	{key: "cache hit rate", field: "cache_hit_rate", percent: true},
	{key: "#pending-token", field: "num_pending_tokens"},
	{key: "accept len", field: "spec_accept_length"},
	{key: "accept rate", field: "spec_accept_rate"},
	{key: "cap len", field: "spec_cap_length"},
	{key: "block accept len", field: "spec_block_accept_length"},
	{key: "largest-len", field: "largest_len"},
	{key: "#full token", field: "num_full_used_tokens"},
	{key: "full token usage", field: "full_token_usage"},
	{key: "#swa token", field: "swa_used_tokens"},
	{key: "swa token usage", field: "swa_token_usage"},
	{key: "mamba num", field: "mamba_used_tokens"},
	{key: "mamba usage", field: "mamba_usage"},
	{key: "#gpu token", field: "num_gpu_used_tokens"},
	{key: "gpu token usage", field: "gpu_token_usage"},
	{key: "#cpu token", field: "num_cpu_used_tokens"},
	{key: "cpu token usage", field: "cpu_token_usage"},
	{key: "#unbootstrapped-req", field: "num_prefill_bootstrap_queue_reqs"},
	{key: "#bootstrap-req", field: "num_prefill_bootstrap_queue_reqs"},
	{key: "#transferring-req", field: "num_prefill_inflight_queue_reqs"},
	{key: "#inflight-req", field: "num_prefill_inflight_queue_reqs"},
	{key: "#prealloc-req", field: preallocKey},
	{key: "#transfer-req", field: "num_decode_transfer_queue_reqs"},
	{key: "#retracted-req", field: "num_retracted_queue_reqs"},
	{key: "#optimistic-req", field: "num_optimistic_reqs"},
	{key: "pre-allocated usage", field: "pre_allocated_usage"},
	{key: "waiting-image-req", field: "num_waiting_image_reqs"},
	{key: "time", field: "gap_latency"},
	{key: "est. prefill TFLOPS/s (per GPU)", field: "est_prefill_tflops_per_gpu"},
	{key: "est. decode TFLOPS/s (per GPU)", field: "est_decode_tflops_per_gpu"},
	{key: "est. read BW (GB/s per GPU)", field: "est_read_gb_per_s_per_gpu"},
	{key: "est. write BW (GB/s per GPU)", field: "est_write_gb_per_s_per_gpu"},
	{key: "fwd occupancy", field: "fwd_occupancy"},
	{key: "cuda graph", field: graphKey},
	{key: "cpu graph", field: graphKey},
	{key: "npu graph", field: graphKey},
	{key: "musa graph", field: graphKey},
	{key: "timestamp", field: skipKey},
}

// Keys whose field depends on more than the key.
const (
	preallocKey = "*prealloc" // the bootstrap queue on a prefill engine (0.5.3 to 2026-05), else the decode engine's
	graphKey    = "*graph"
	skipKey     = "*"
)

// graphBackends are the words before " graph"; more may come.
func isGraph(key string) bool { return strings.HasSuffix(key, " graph") && len(key) < 20 }

// findWord finds a key in batchWords by its length and last letters: most lines have a dozen keys.
func findWord(key string) *word {
	for i := range batchWords {
		if w := &batchWords[i]; len(w.key) == len(key) && w.key == key {
			return w
		}
	}
	return nil
}

// glued tells whether a key is the begin of one key and the end of another: a line out of which a part is
// missing.
func glued(key string) bool {
	for i := 1; i < len(key) && len(key) < 100; i++ {
		if len(key)-i < 3 {
			break
		}
		head, tail := key[:i], key[i:]
		if !isWord(key[i-1]) || !isWord(key[i]) {
			continue // between two words: rather a key that is new
		}
		begins, ends := false, false
		for j := range batchWords {
			k := batchWords[j].key
			begins = begins || len(head) >= 2 && len(head) < len(k) && strings.HasPrefix(k, head)
			ends = ends || strings.HasSuffix(k, tail)
		}
		if begins && ends {
			return true
		}
	}
	return false
}

// plainName makes a key that nobody knows yet a field name: letters, digits and underscores.
func plainName(key string) string {
	var b strings.Builder
	b.Grow(len(key))
	for i := 0; i < len(key) && i < 60; i++ {
		c := key[i]
		switch {
		case c >= 'A' && c <= 'Z':
			b.WriteByte(c + 'a' - 'A')
		case isWord(c):
			b.WriteByte(c)
		case b.Len() > 0 && b.String()[b.Len()-1] != '_':
			b.WriteByte('_')
		}
	}
	return strings.Trim(b.String(), "_")
}
