package request

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestRest(t *testing.T) {
	front := func(e2e float64) Observation {
		return Observation{Source: FromTrace, Role: "frontend", Start: base, Finish: base + int64(e2e*1e9), Final: true, E2E: known(e2e)}
	}
	// A prefill half that waits 0.2 s and works for 0.5 s, and a decode half beside it.
	prefill := func(start int64) Observation {
		o := Observation{Source: FromTrace, Role: "prefill", Engine: "p", Start: start, Finish: start + 75e7, Final: true, E2E: known(0.75), Queue: known(0.1), Prefill: known(0.4), Transfer: known(0.1)}
		o.Phases[PrefillBootstrapQueue], o.Phases[PrefillForward] = known(0.1), known(0.5)
		return o
	}
	decode := func(start int64, prealloc, transfer, e2e float64) Observation {
		o := Observation{Source: FromTrace, Role: "decode", Engine: "d", Start: start, Finish: start + int64(e2e*1e9), Final: true, E2E: known(e2e), Queue: known(0.05), Decode: known(2), Transfer: known(transfer)}
		o.Phases[DecodePrealloc], o.Phases[DecodeTransfer], o.Phases[DecodeForward] = known(prealloc), known(transfer), known(2)
		return o
	}
	edit := func(o Observation, f func(*Observation)) Observation { f(&o); return o }
	dump := Observation{Source: FromDump, Start: base, Finish: base + 3*second, Final: true, E2E: known(2.9), Queue: known(0.05)}
	dump.Phases[PrefillBootstrapQueue], dump.Phases[PrefillForward] = known(0.2), known(0.5)
	dump.Phases[DecodePrealloc], dump.Phases[DecodeTransfer], dump.Phases[DecodeForward] = known(0.1), known(0.65), known(2)

	for name, c := range map[string]struct {
		obs  []Observation
		want float64 // NaN: not known
	}{
		"one engine":                 {[]Observation{{Source: FromTrace, Start: base, Final: true, E2E: known(3), Queue: known(0.5), Decode: known(2)}}, 0.5},
		"one engine, parts too long": {[]Observation{{Source: FromTrace, Start: base, Final: true, E2E: known(2), Queue: known(0.5), Decode: known(2)}}, math.NaN()},
		"no part":                    {[]Observation{{Source: FromTrace, Start: base, Final: true, E2E: known(2)}}, math.NaN()},
		"no whole":                   {[]Observation{{Source: FromTrace, Start: base, Decode: known(2)}}, math.NaN()},
		"nothing":                    {nil, math.NaN()},
		"halves at once":             {[]Observation{prefill(base), decode(base+1e6, 0.1, 0.7, 3)}, 3 - 0.8 - 2.05},
		"behind a frontend":          {[]Observation{front(3.2), prefill(base + 1e6), decode(base+2e6, 0.1, 0.7, 3)}, 3.2 - 0.8 - 2.05},
		"the decode half says little": {[]Observation{prefill(base), edit(decode(base, 0, 0, 3), func(o *Observation) {
			o.Transfer, o.Phases[DecodeTransfer], o.Phases[DecodePrealloc] = Value{}, Value{}, Value{}
		})}, 3 - 0.7 - 2.05},
		"one after the other":            {[]Observation{front(3.2), prefill(base), decode(base+76e7, 0.1, 0.1, 2.4)}, 3.2 - 0.7 - 0.2 - 2.05},
		"after, without a frontend":      {[]Observation{prefill(base), decode(base+76e7, 0.1, 0.1, 2.4)}, 2.4 - 0.2 - 2.05},
		"a head start":                   {[]Observation{front(3.2), prefill(base), decode(base+305e6, 0.1, 0.4, 2.7)}, 3.2 - 0.3 - 0.5 - 2.05},
		"a head start, no frontend":      {[]Observation{prefill(base), decode(base+305e6, 0.1, 0.4, 2.7)}, 2.7 - 0.5 - 2.05},
		"clocks that contradict":         {[]Observation{front(3.2), prefill(base - second), decode(base, 0.1, 0.7, 3)}, math.NaN()},
		"no time stamps":                 {[]Observation{edit(prefill(base), func(o *Observation) { o.TimeRank = 1 }), decode(base, 0.1, 0.7, 3)}, math.NaN()},
		"a decode half alone":            {[]Observation{decode(base, 0.1, 0.7, 3)}, 3 - 0.8 - 2.05},
		"a prefill half alone":           {[]Observation{prefill(base)}, math.NaN()},
		"a decode half that is not done": {[]Observation{prefill(base), edit(decode(base, 0.1, 0.7, 3), func(o *Observation) { o.Decode, o.Phases[DecodeForward] = Value{}, Value{} })}, math.NaN()},
		"phases too long":                {[]Observation{prefill(base), decode(base, 0.1, 0.7, 2.5)}, math.NaN()},
		"exactly":                        {[]Observation{prefill(base), decode(base, 0.1, 0.7, 2.85)}, 0},
		"a dump":                         {[]Observation{dump}, 2.9 - 0.75 - 2.05},
		"a dump's client":                {[]Observation{edit(dump, func(o *Observation) { o.E2E = Value{} })}, 3 - 0.75 - 2.05},
	} {
		s := Merge(c.obs)
		got, ok := s.Rest(c.obs)
		if ok != !math.IsNaN(c.want) || ok && math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: %v %v, want %v", name, got, ok, c.want)
		}
	}
}

// Whatever is observed, the rest is no less than nothing and no more than the whole.
func TestRestIsAPart(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	some := 0
	for i := range 2000 {
		obs := madeCall(rng, i).obs
		s := Merge(obs)
		rest, ok := s.Rest(obs)
		if e2e, known := s.Value(E2E); ok && (!known || rest < 0 || rest > e2e) {
			t.Fatalf("%v of %v: %+v", rest, e2e, obs)
		} else if ok {
			some++
		}
	}
	if some == 0 {
		t.Error("no request had one")
	}
}
