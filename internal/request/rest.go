package request

import (
	"slices"
	"strings"
)

// Rest is what of the end-to-end latency lies in no phase that anybody named, in seconds; false when neither
// the whole nor a part is known, or the parts are longer than the whole. obs are those that it was merged of,
// as far as they are still stored.
//
// The phases of a PD pair's halves go on at the same time, so their sum is no time that was spent. What is
// known of them is their order: the decode half waits for memory, then for the KV cache; meanwhile the prefill
// half works; only then does the decode half queue and decode. So those last two add up, and before them
// counts the longer of the two halves, and what the prefill half did before the decode half had the request
// at all, where the end-to-end time was taken in front of both. Where only that decides, and the hosts' clocks
// contradict each other or nobody gave time stamps, nothing is known.
func (s *Settled) Rest(obs []Observation) (float64, bool) {
	e2e, ok := s.Value(E2E)
	if !ok {
		return 0, false
	}
	covered, ok := 0.0, false
	if list := canonical(obs); isPair(list) {
		covered, ok = s.pairCovers(list)
	} else {
		for _, n := range [...]Number{Queue, Prefill, Transfer, Decode} {
			if v, known := s.Value(n); known {
				covered, ok = covered+v, true
			}
		}
	}
	if rest := e2e - covered; ok && rest >= -1e-9 { // as rounded as the numbers are
		return max(rest, 0), true
	}
	return 0, false
}

// isPair tells requests that two engines answered.
func isPair(list []keyed) bool {
	for _, k := range list {
		if k.o.Role == "prefill" || k.o.Role == "decode" || k.o.Phases[DecodePrealloc].State == Known || k.o.Phases[DecodeTransfer].State == Known {
			return true
		}
	}
	return false
}

// pairCovers is how much of a pair's end-to-end time lies in phases.
func (s *Settled) pairCovers(list []keyed) (float64, bool) {
	at := best(&Numbers[Decode], list, func(o *Observation) bool { _, ok := firstKnown(o.Decode, o.Phases[DecodeForward]); return ok })
	if at < 0 {
		return 0, false
	}
	d := list[at].o
	decode, _ := firstKnown(d.Decode, d.Phases[DecodeForward])
	queue, _ := d.Queue.Known() // the answer's own is the decode half's, after the cache came
	prealloc, _ := d.Phases[DecodePrealloc].Known()
	transfer, _ := firstKnown(d.Phases[DecodeTransfer], d.Transfer)
	after, before := queue+decode, prealloc+transfer

	worked := func(o *Observation, queued bool) (sum float64) {
		sum, _ = o.Phases[PrefillBootstrapQueue].Known()
		if v, ok := o.Queue.Known(); ok && queued {
			sum += v
		}
		v, _ := firstKnown(o.Phases[PrefillForward], o.Prefill)
		return sum + v
	}
	at = best(&Numbers[Prefill], list, func(o *Observation) bool { return o.Role == "prefill" && worked(o, true) > 0 })
	if at < 0 && s.Words[PrefillEngine] != "" && !slices.ContainsFunc(list, func(k keyed) bool { return k.o.Role == "prefill" }) {
		return 0, false // what it said is no longer stored
	}
	if at < 0 { // the answer of the decode half may repeat what the prefill half told it: they began together
		return after + max(before, worked(d, false)), true
	}
	p := list[at].o
	if p.Start == 0 || d.Start == 0 || p.TimeRank != 0 || d.TimeRank != 0 || slices.Contains(s.Flags, FlagSkew) {
		return 0, false
	}
	const slack = int64(5e6) // ns; clocks of one host agree within it
	prefill := worked(p, true)
	early := min(prefill, float64(max(d.Start-p.Start-slack, 0))/1e9) // before the decode half had the request
	if p.Finish != 0 && p.Finish <= d.Start+slack {
		early = prefill
	}
	covered := after + max(before, prefill-early)
	if s.inFront(E2E) {
		covered += early
	}
	return covered, true
}

// inFront tells that a latency was taken before the engines, where both halves are seen.
func (s *Settled) inFront(n Number) bool {
	from, derived := strings.CutSuffix(s.NumberFrom[n], "=")
	// A dump's own word is the answer's, the decode half's; what was worked out is of the client's span.
	return from == front || from == router || from == dynamo || from == dump && derived
}

func firstKnown(list ...Value) (float64, bool) {
	for _, v := range list {
		if x, ok := v.Known(); ok {
			return x, true
		}
	}
	return 0, false
}
