package request

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

const second = int64(time.Second)

// base is when made requests begin, ns since 1970.
const base = int64(1_780_000_000) * second

func known(v float64) Value { return Value{v, Known} }

func alias(kv ...string) (out []Alias) {
	for i := 0; i < len(kv); i += 2 {
		out = append(out, Alias{AliasKind(kv[i]), kv[i+1]})
	}
	return out
}

// call is one made request with all that sources say about it.
type call struct {
	obs []Observation
}

// madeCall is request i: by a rollout, over a frontend, on one engine or a pair, with retries of one rid.
func madeCall(rng *rand.Rand, i int) call {
	start := base + int64(i)*second/7
	rid := fmt.Sprintf("rid-%04d", i/2) // two tries share it
	if i%2 == 1 {
		start += 30 * second
	}
	traceID := fmt.Sprintf("%032x", 1000+i)
	end := start + second + int64(rng.IntN(int(9*second)))
	e2e := float64(end-start) / 1e9
	engine := fmt.Sprintf("10.0.0.%d:30000", i%3)
	var c call
	add := func(o Observation) { c.obs = append(c.obs, o) }
	if rng.IntN(2) == 0 {
		add(Observation{Source: FromDump, Start: start - 3e6, Finish: end + 4e6, Final: true, Outcome: Finished, FinishReason: "stop",
			Aliases: alias("rid", rid, "sample_span", fmt.Sprintf("exp1/train/40/%d/s%d", i, i)), E2E: known(e2e), Run: "exp1", Kind: "train", Step: known(40), Sample: known(float64(i)),
			CompletionTokens: known(float64(100 + i))})
	}
	if rng.IntN(3) == 0 {
		add(Observation{Source: FromTrace, Role: "frontend", Service: "front", Engine: "front", Start: start - 1e6, Finish: end + 1e6, Final: true, Spans: 3,
			Aliases: alias("trace_id", traceID, "span_id", fmt.Sprintf("%016x", i), "x_request_id", fmt.Sprintf("x-%04d", i)), TTFT: known(e2e / 4), Model: "qwen", Flags: []string{"b", "a"}})
	}
	if rng.IntN(3) == 0 {
		room := strconv.Itoa(1<<40 + i)
		add(Observation{Source: FromTrace, Role: "prefill", Service: "sglang", Engine: "p-" + engine, Start: start, Finish: start + second/2, Final: true, Outcome: Finished, FinishReason: "length", Spans: 5, SpansKept: "kept", SpansReason: "slow",
			Aliases: alias("rid", rid, "trace_id", traceID, "bootstrap_room", room), Queue: known(0.01), Prefill: known(0.3), E2E: known(0.5), CompletionTokens: known(1)})
		add(Observation{Source: FromTrace, Role: "decode", Service: "sglang", Engine: engine, Start: start + 1e6, Finish: end, Final: true, Outcome: Finished, FinishReason: "stop", Spans: 7,
			Aliases: alias("rid", rid, "trace_id", traceID, "bootstrap_room", room), ITL: known(0.02), E2E: known(e2e), Phases: phases(DecodeForward, e2e/2), CompletionTokens: known(float64(100 + i))})
	} else {
		add(Observation{Source: FromTrace, Role: "unified", Service: "sglang", Engine: engine, Start: start, Finish: end, Final: true, Outcome: Finished, Spans: 9,
			Aliases: alias("rid", rid, "trace_id", traceID), TTFT: known(e2e / 5), Queue: Value{-0.5, Invalid}, CachedTokens: known(12), PromptTokens: known(10)})
	}
	if rng.IntN(2) == 0 {
		add(Observation{Source: FromLog, TimeRank: 1, Engine: engine, Start: end, Final: true, Aliases: alias("rid", rid), E2E: known(e2e), Queue: known(0.02)})
	}
	return c
}

func phases(p Phase, v float64) (out [NumPhases]Value) {
	out[p] = known(v)
	return out
}
