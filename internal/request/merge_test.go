package request

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func TestMergeTakesTheSourceOfTheTable(t *testing.T) {
	frontend := Observation{Source: FromTrace, Role: "frontend", Engine: "front:8000", Service: "dynamo-frontend", Start: base, Finish: base + 4*second, Final: true, TTFT: known(0.5), Model: "qwen"}
	prefill := Observation{Source: FromTrace, Role: "prefill", Engine: "p:1", Service: "p", Start: base + 1e6, Finish: base + second/2, Final: true,
		Queue: known(0.02), TTFT: known(0.1), E2E: known(0.4), CompletionTokens: known(1), FinishReason: "length", Outcome: Finished, Phases: phases(PrefillForward, 0.25), CachedTokens: known(64)}
	decode := Observation{Source: FromTrace, Role: "decode", Engine: "d:1", Service: "d", Start: base + 2e6, Finish: base + 4*second - 1e6, Final: true,
		Queue: known(0.9), TTFT: known(0.6), E2E: known(3.9), CompletionTokens: known(101), FinishReason: "stop", Outcome: Finished, Phases: phases(DecodeForward, 3), CachedTokens: known(1000), PromptTokens: known(1000)}
	s := Merge([]Observation{decode, prefill, frontend})
	for n, want := range map[Number]struct {
		v    float64
		from string
	}{
		TTFT: {0.5, "trace/frontend"}, E2E: {3.9, "trace/decode"}, Queue: {0.02, "trace/prefill"}, CompletionTokens: {101, "trace/decode"}, CachedTokens: {64, "trace/prefill"},
		Prefill: {0.25, "trace/prefill="}, Decode: {3, "trace/decode="}, PhaseNumber(PrefillForward): {0.25, "trace/prefill"},
		ITL: {0.033, "trace/decode="},
	} {
		if v, ok := s.Value(n); !ok || v != want.v || s.NumberFrom[n] != want.from {
			t.Errorf("%s = %v %v from %q, want %v from %q", Numbers[n].Name, v, ok, s.NumberFrom[n], want.v, want.from)
		}
	}
	for w, want := range map[Word]string{EngineWord: "d:1", PrefillEngine: "p:1", ServiceWord: "d", ModelWord: "qwen", FinishReason: "stop"} {
		if s.Words[w] != want {
			t.Errorf("%s = %q, want %q", Words[w].Name, s.Words[w], want)
		}
	}
	if s.Start != base || s.Finish != base+4*second || s.StartFrom != "trace/frontend" || s.Outcome != Finished || !slices.Equal(s.Flags, []string{FlagDisagree}) {
		t.Errorf("start %d from %s, finish %d, outcome %q, flags %v", s.Start-base, s.StartFrom, s.Finish-base, s.Outcome, s.Flags)
	}
	if got := s.Others["ttft"]; !slices.Equal(got, []Said{{"trace/prefill", "0.1"}, {"trace/decode", "0.6"}}) {
		t.Errorf("others of ttft: %v", got)
	}
}

// A half alone is not the request: what it cannot know stays unknown.
func TestMergeOfAHalf(t *testing.T) {
	s := Merge([]Observation{{Source: FromTrace, Role: "prefill", Engine: "p:1", Start: base, Finish: base + second, Final: true, Outcome: Finished, FinishReason: "length",
		TTFT: known(0.3), E2E: known(0.4), Queue: known(0.1), CompletionTokens: known(1), PromptTokens: known(7)}})
	for _, n := range []Number{TTFT, E2E, ITL, CompletionTokens, Decode} {
		if s.Numbers[n].State != Absent {
			t.Errorf("%s = %v", Numbers[n].Name, s.Numbers[n])
		}
	}
	if v, ok := s.Value(Queue); !ok || v != 0.1 {
		t.Errorf("queue %v %v", v, ok)
	}
	if s.Outcome != OutcomeUnknown || s.Words[FinishReason] != "" || s.Words[EngineWord] != "" || s.Words[PrefillEngine] != "p:1" {
		t.Errorf("outcome %q, finish %q, engines %q %q", s.Outcome, s.Words[FinishReason], s.Words[EngineWord], s.Words[PrefillEngine])
	}
	if !slices.Equal(s.Flags, []string{FlagHalf}) {
		t.Errorf("flags %v", s.Flags)
	}
}

func TestMergeFlags(t *testing.T) {
	for name, c := range map[string]struct {
		obs  []Observation
		want []string
	}{
		"queue":             {[]Observation{{Source: FromExport, Start: base, Final: true, Queue: Value{-0.1, Invalid}}}, []string{FlagInvalid, FlagQueue}},
		"invalid gives way": {[]Observation{{Source: FromTrace, Start: base, Final: true, Queue: Value{-0.1, Invalid}}, {Source: FromLog, Start: base, Final: true, Queue: known(0.1)}}, []string{FlagInvalid, FlagQueue}},
		"cached":            {[]Observation{{Source: FromExport, Start: base, Final: true, PromptTokens: known(10), CachedTokens: known(11)}}, []string{FlagCached}},
		"no time":           {[]Observation{{Source: FromExport, Final: true}}, []string{FlagNoTime}},
		"disagree":          {[]Observation{{Source: FromExport, Start: base, Final: true, E2E: known(1)}, {Source: FromDump, Start: base, Final: true, E2E: known(1.2)}}, []string{FlagDisagree}},
		"skew":              {[]Observation{{Source: FromDump, Start: base, Finish: base + second, Final: true}, {Source: FromTrace, Start: base - second/2, Finish: base + second/2, Final: true}}, []string{FlagSkew}},
		"no skew":           {[]Observation{{Source: FromDump, Start: base, Finish: base + second, Final: true}, {Source: FromTrace, Start: base + 1e6, Finish: base + second/2, Final: true}}, nil},
	} {
		if s := Merge(c.obs); !slices.Equal(s.Flags, c.want) {
			t.Errorf("%s: %v, want %v", name, s.Flags, c.want)
		}
	}
	s := Merge([]Observation{{Source: FromTrace, Start: base, Queue: Value{-0.1, Invalid}}, {Source: FromLog, Start: base, Queue: known(0.1)}})
	if v, ok := s.Value(Queue); !ok || v != 0.1 || s.NumberFrom[Queue] != "log" || s.Others["queue"][0] != (Said{"trace", "-0.1 (invalid)"}) {
		t.Errorf("queue %v %v from %s, others %v", v, ok, s.NumberFrom[Queue], s.Others["queue"])
	}
}

func TestMergeOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		obs  []Observation
		want Outcome
	}{
		"nothing said":  {[]Observation{{Start: base, Final: true}}, OutcomeUnknown},
		"open":          {[]Observation{{Start: base}}, Running},
		"open and done": {[]Observation{{Start: base}, {Start: base, Final: true, FinishReason: "length"}}, Finished},
		"one failed":    {[]Observation{{Start: base, Final: true, Outcome: Finished}, {Start: base, Final: true, Outcome: ErrorOutcome}}, ErrorOutcome},
		"aborted":       {[]Observation{{Start: base, Final: true, Outcome: Finished}, {Start: base, Final: true, FinishReason: "abort"}}, AbortedRequest},
		"unknown end":   {[]Observation{{Start: base}, {Start: base, Finish: base + 1, Final: true}}, OutcomeUnknown},
		"strange word":  {[]Observation{{Start: base, Final: true, FinishReason: "wormhole"}}, OutcomeUnknown},
	} {
		if s := Merge(c.obs); s.Outcome != c.want {
			t.Errorf("%s: %q, want %q", name, s.Outcome, c.want)
		}
	}
}

func TestMergeIsOneForEveryOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		obs := madeCall(rng, i).obs
		want := Merge(obs)
		for range 5 {
			mixed := append(slices.Clone(obs), obs[rng.IntN(len(obs))])
			rng.Shuffle(len(mixed), func(a, b int) { mixed[a], mixed[b] = mixed[b], mixed[a] })
			if got := Merge(mixed); !reflect.DeepEqual(got, want) {
				t.Fatalf("request %d:\n%+v\nwant\n%+v", i, got, want)
			}
		}
	}
}

func BenchmarkMerge(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	var calls []call
	n := 0
	for i := range 1000 {
		calls = append(calls, madeCall(rng, i))
		n += len(calls[i].obs)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		Merge(calls[i%len(calls)].obs)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}
