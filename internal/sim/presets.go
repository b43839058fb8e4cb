package sim

import (
	"fmt"
	"time"

	"github.com/rollscope/rollscope/internal/engine"
)

// chat is a load of users with believable lengths.
func chat(name string, rate float64, to ...string) Load {
	return Load{
		Name: name, Kind: Chat, To: to, Rate: rate, Daily: 0.35,
		Prompt: Lengths{Median: 420, Sigma: 1.0, Max: 30000}, Output: Lengths{Median: 230, Sigma: 0.85, Max: 2048},
		SystemPrompts: 6, SystemTokens: 900, TurnShare: 0.55, LeaveShare: 0.015, Patience: 90 * time.Second,
	}
}

// Demo is a small fleet that shows everything within minutes: two unified SGLang engines (one with
// two DP ranks, which runs RL rollouts), a prefill engine and two decode engines behind a router that
// also serves /engine_metrics, a vLLM engine, a Dynamo frontend with its worker, and a dcgm-exporter.
// One engine goes down for a while, another loses part of its KV pool; both again every fifteen minutes.
func Demo() Config {
	small := Hardware{KVTokens: 90000, Prefill: 16000, Step: 0.013}
	rollouts := Hardware{KVTokens: 68000, MaxRunning: 128, Prefill: 20000, Step: 0.0125}
	pd := Hardware{KVTokens: 360000, KVBytes: 262144, LinkGBs: 10}
	cfg := Config{
		Seed: 7,
		Members: []Member{
			{Name: "rollout-0", Kind: SGLang, Version: "0.5.15", Model: "Qwen/Qwen3-30B-A3B", DP: 2, Hardware: rollouts, MoE: true, TokenHistograms: true},
			{Name: "chat-0", Kind: SGLang, Model: "Qwen/Qwen3-32B", TP: 2, Hardware: small, Speculative: true, HiCacheTokens: 400000, TokenHistograms: true, Extended: true},
			{Name: "prefill-0", Kind: SGLang, Role: engine.Prefill, Model: "deepseek-ai/DeepSeek-V3.2", Hardware: pd, MoE: true},
			{Name: "decode-0", Kind: SGLang, Role: engine.Decode, Model: "deepseek-ai/DeepSeek-V3.2", Hardware: pd, MoE: true},
			{Name: "decode-1", Kind: SGLang, Role: engine.Decode, Model: "deepseek-ai/DeepSeek-V3.2", Hardware: pd, MoE: true},
			{Name: "router-0", Kind: Router, Workers: []string{"prefill-0", "decode-0", "decode-1"}},
			{Name: "vllm-0", Kind: VLLM, Model: "meta-llama/Llama-3.1-8B-Instruct", Hardware: Hardware{KVTokens: 160000, Step: 0.008, Prefill: 30000}},
			{Name: "dynamo-worker-0", Kind: DynamoWorker, Model: "Qwen/Qwen3-14B", Hardware: Hardware{KVTokens: 140000, Step: 0.0095}, HiCacheTokens: 300000},
			{Name: "dynamo-frontend-0", Kind: DynamoFrontend, Workers: []string{"dynamo-worker-0"}},
			{Name: "gpus-0", Kind: DCGM, Workers: []string{"rollout-0", "chat-0", "prefill-0", "decode-0", "decode-1"}},
		},
		Loads: []Load{
			{
				Name: "rl", Kind: Rollout, To: []string{"rollout-0"}, Groups: 20, Samples: 8, Unstreamed: true,
				Prompt: Lengths{Median: 480, Sigma: 0.5, Max: 4000}, Output: Lengths{Median: 1100, Sigma: 0.9, Max: 8192},
				Enough: 0.95, Train: 25 * time.Second, Sync: 6 * time.Second, FirstWave: 2 * time.Second,
			},
			chat("chat", 1.7, "chat-0"),
			{
				Name: "long", Kind: Chat, To: []string{"router-0"}, Rate: 1.3, Daily: 0.3,
				Prompt: Lengths{Median: 3200, Sigma: 0.9, Max: 60000}, Output: Lengths{Median: 380, Sigma: 0.8, Max: 4096},
				SystemPrompts: 3, SystemTokens: 1800, TurnShare: 0.3, LeaveShare: 0.01, Patience: 120 * time.Second,
			},
			chat("vllm", 2.0, "vllm-0"),
			chat("dynamo", 1.4, "dynamo-frontend-0"),
		},
	}
	cfg.Loads[1].GrammarShare = 0.1
	cfg.Faults = []Fault{
		{Name: "engine_down", At: 35 * time.Second, For: 110 * time.Second, Every: 15 * time.Minute, Member: "decode-1"},
		{Name: "kv_pressure", At: 20 * time.Second, For: 6 * time.Minute, Every: 15 * time.Minute, Member: "chat-0"},
		{Name: "abort_burst", At: 5 * time.Minute, For: 2 * time.Minute, Every: 15 * time.Minute, Member: "vllm-0"},
		{Name: "transfer_slow", At: 7 * time.Minute, For: 2 * time.Minute, Every: 15 * time.Minute, Member: "prefill-0"},
		{Name: "cache_flush", At: 9 * time.Minute, For: 2 * time.Minute, Every: 15 * time.Minute, Member: "dynamo-worker-0"},
		{Name: "engine_restart", At: 12 * time.Minute, For: 20 * time.Second, Every: 15 * time.Minute, Member: "vllm-0"},
	}
	return cfg
}

// Uniform is n equal unified SGLang engines of about 400 series each under chats and some scripts
// that do not stream: for load and benchmarks.
func Uniform(n int) Config {
	cfg := Config{Seed: 11}
	var names []string
	for i := range n {
		name := fmt.Sprintf("engine-%d", i)
		names = append(names, name)
		cfg.Members = append(cfg.Members, Member{Name: name, Kind: SGLang, Hardware: Hardware{KVTokens: 100000}})
	}
	scripts := chat("scripts", 0.15*float64(n), names...)
	scripts.Unstreamed = true
	scripts.Prompt = Lengths{Median: 2500, Sigma: 1.1, Max: 30000}
	cfg.Loads = []Load{chat("chat", 0.85*float64(n), names...), scripts}
	return cfg
}

// Mixed is n members of every kind in turn: unified engines with and without DP, of an older and the
// newest version, PD sets behind routers, vLLM and Dynamo; and loads for all of them.
func Mixed(n int) Config {
	cfg := Config{Seed: 13}
	var unified, vllms []string
	for i := 0; len(cfg.Members) < n; i++ {
		add := func(name string, m Member) string {
			m.Name = fmt.Sprintf("%s-%d", name, i)
			cfg.Members = append(cfg.Members, m)
			return m.Name
		}
		left := n - len(cfg.Members)
		switch i % 5 {
		case 0:
			unified = append(unified, add("unified", Member{Kind: SGLang, TP: 2, Speculative: true, HiCacheTokens: 300000, TokenHistograms: true}))
		case 1:
			unified = append(unified, add("dp", Member{Kind: SGLang, DP: 2, MoE: true, Version: "0.5.15"}))
		case 2:
			if left < 4 {
				unified = append(unified, add("unified", Member{Kind: SGLang, Version: "0.5.9", Extended: true}))
				continue
			}
			pd := Hardware{KVBytes: 262144, LinkGBs: 12}
			p := add("prefill", Member{Kind: SGLang, Role: engine.Prefill, Hardware: pd})
			d0 := add("decode-a", Member{Kind: SGLang, Role: engine.Decode, Hardware: pd})
			d1 := add("decode-b", Member{Kind: SGLang, Role: engine.Decode, Hardware: pd})
			r := add("router", Member{Kind: Router, Workers: []string{p, d0, d1}})
			cfg.Loads = append(cfg.Loads, chat("pd-"+r, 2, r))
		case 3:
			vllms = append(vllms, add("vllm", Member{Kind: VLLM}))
		case 4:
			if left < 2 {
				unified = append(unified, add("unified", Member{Kind: SGLang, Version: "0.5.7"}))
				continue
			}
			w := add("dynamo-worker", Member{Kind: DynamoWorker, Model: "Qwen/Qwen3-14B"})
			fe := add("dynamo-frontend", Member{Kind: DynamoFrontend, Workers: []string{w}})
			cfg.Loads = append(cfg.Loads, chat("dynamo-"+fe, 1.5, fe))
		}
	}
	if len(unified) > 0 {
		cfg.Loads = append(cfg.Loads, chat("chat", 1.5*float64(len(unified)), unified...))
	}
	if len(vllms) > 0 {
		cfg.Loads = append(cfg.Loads, chat("vllm", 1.5*float64(len(vllms)), vllms...))
	}
	return cfg
}
