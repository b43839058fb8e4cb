package timeline

import (
	"strings"

	"github.com/rollscope/rollscope/internal/request"
)

// classRule gives a class to names. Rules are tried in their order; the first that fits counts.
type classRule struct {
	how   byte // = the name, ^ its beginning, ~ a word in it: between the name's ends, _, -, ., :, / and spaces
	text  string
	class Class
}

// classRules is what names mean. The names of phases are those of slime's trace_utils.
var classRules = [...]classRule{
	{'=', "sglang_pd_prefill", ClassPrefill},
	{'=', "sglang_pd_decode", ClassDecode},
	{'=', "sglang_pd_prefill_bootstrap_queue", ClassPhase + Class(request.PrefillBootstrapQueue)},
	{'=', "sglang_pd_prefill_bootstrap", ClassPhase + Class(request.PrefillBootstrap)},
	{'=', "sglang_pd_prefill_alloc_wait", ClassPhase + Class(request.PrefillAllocWait)},
	{'=', "sglang_pd_prefill_forward", ClassPhase + Class(request.PrefillForward)},
	{'=', "sglang_pd_prefill_transfer_queue", ClassPhase + Class(request.PrefillTransferQueue)},
	{'=', "sglang_pd_decode_prealloc", ClassPhase + Class(request.DecodePrealloc)},
	{'=', "sglang_pd_decode_bootstrap", ClassPhase + Class(request.DecodeBootstrap)},
	{'=', "sglang_pd_decode_alloc_wait", ClassPhase + Class(request.DecodeAllocWait)},
	{'=', "sglang_pd_decode_transfer", ClassPhase + Class(request.DecodeTransfer)},
	{'=', "sglang_pd_decode_forward", ClassPhase + Class(request.DecodeForward)},
	{'^', "sglang_generate", ClassGenerate},
	{'^', "generate_and_rm", ClassGroup},
	{'=', "generate", ClassGenerate},
	{'=', "generate_rollout", ClassGroup},
	{'=', "rollout", ClassGroup},
	{'~', "update_weights", ClassSync},
	{'~', "update_weight", ClassSync},
	{'~', "weight_update", ClassSync},
	{'~', "weight_sync", ClassSync},
	{'~', "sync_weights", ClassSync},
	{'~', "weight_transfer", ClassSync},
	{'~', "queue", ClassQueue},
	{'~', "queued", ClassQueue},
	{'~', "enqueue", ClassQueue},
	{'~', "reward", ClassReward},
	{'~', "rm", ClassReward},
	{'~', "verifier", ClassReward},
	{'~', "verify", ClassReward},
	{'~', "judge", ClassReward},
	{'~', "grader", ClassReward},
	{'~', "tool", ClassTool},
	{'~', "tools", ClassTool},
	{'~', "sandbox", ClassTool},
	{'~', "env", ClassTool},
	{'~', "environment", ClassTool},
	{'~', "browser", ClassTool},
	{'~', "exec", ClassTool},
	{'~', "search", ClassTool},
	{'~', "prefill", ClassPrefill},
	{'~', "decode", ClassDecode},
	{'~', "generate", ClassGenerate},
	{'~', "completion", ClassGenerate},
	{'~', "completions", ClassGenerate},
}

// ClassOf is what a span's name says about its class: [ClassOther] when no rule knows it.
func ClassOf(name string) Class {
	for i := range classRules {
		r := &classRules[i]
		switch r.how {
		case '=':
			if name == r.text {
				return r.class
			}
		case '^':
			if strings.HasPrefix(name, r.text) {
				return r.class
			}
		case '~':
			if len(name) <= maxClassName && hasWord(name, r.text) {
				return r.class
			}
		}
	}
	return ClassOther
}

// maxClassName bounds the work on a name; names are words, not texts.
const maxClassName = 256

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

// classCache remembers the classes of the few names that a dump has.
type classCache struct {
	known map[string]Class
}

// maxClassCache bounds the cache; a dump whose spans are all named differently gains nothing from it.
const maxClassCache = 4096

func (c *classCache) of(name string) Class {
	if k, ok := c.known[name]; ok {
		return k
	}
	k := ClassOf(name)
	if c.known == nil || len(c.known) >= maxClassCache {
		c.known = map[string]Class{}
	}
	if len(name) <= maxClassName {
		c.known[strings.Clone(name)] = k
	}
	return k
}
