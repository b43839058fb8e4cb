package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/signal"
)

// families lists what the members of a fleet have written.
func (f *Fleet) families() map[string]bool {
	have := map[string]bool{}
	for _, m := range f.members {
		for _, r := range m.regs {
			for _, fam := range r.families {
				for _, s := range fam.metrics {
					have[fam.name] = have[fam.name] || s.present
				}
			}
		}
	}
	return have
}

// Every signal of the catalog has data in a simulated fleet, but for those of programs and versions
// that are not modelled.
func TestSignalsHaveData(t *testing.T) {
	notModelled := []string{
		"frontend_migrations",                                 // Dynamo's migration limit is 0 by default
		"scheduler_idle_share",                                // newer than SGLang 0.5.18
		"nixl_transfer_time",                                  // vLLM's PD disaggregation
		"planner_prefill_replicas", "planner_decode_replicas", // Dynamo's planner
	}
	demo := mustNew(t, Demo())
	demo.Advance(demo.after(14 * time.Minute))
	have := demo.families()
	all := mustNew(t, everySGLang())
	all.Advance(all.after(95 * time.Second))
	rest := Mixed(16)
	for i := range rest.Members {
		switch rest.Members[i].Kind {
		case Router:
			rest.Members[i].Version = "1.9.0"
		case VLLM:
			rest.Members[i].Speculative = true
		case DynamoWorker:
			rest.Faults = append(rest.Faults, Fault{Name: "engine_down", At: 30 * time.Second, For: 5 * time.Second, Member: rest.Members[i].Name})
		}
	}
	mixed := mustNew(t, rest)
	mixed.Advance(mixed.after(time.Minute))
	for _, f := range []*Fleet{all, mixed} {
		for name, ok := range f.families() {
			have[name] = have[name] || ok
		}
	}
	base := func(metric string) string {
		if have[metric] {
			return metric
		}
		return strings.TrimSuffix(strings.TrimSuffix(metric, "_sum"), "_count")
	}
	for _, s := range signal.Default().Signals() {
		found := false
		for _, src := range s.Sources {
			ok := true
			for _, term := range append(slices.Clone(src.Num), src.Den...) {
				ok = ok && have[base(term.Metric)]
			}
			found = found || ok
		}
		if found == slices.Contains(notModelled, s.ID) {
			t.Errorf("signal %s: has data %t", s.ID, found)
		}
	}
}

func TestPresets(t *testing.T) {
	for n := 1; n <= 40; n++ {
		cfg := Mixed(n)
		if len(cfg.Members) != n {
			t.Fatalf("Mixed(%d) has %d members", n, len(cfg.Members))
		}
		mustNew(t, cfg)
	}
	f := mustNew(t, Uniform(3))
	if len(f.Targets()) != 3 {
		t.Errorf("Uniform(3) has targets %v", f.Targets())
	}
	f.Advance(f.after(10 * time.Minute))
	n := 0
	f.Samples(func(string, int, float64) { n++ })
	if per := n / 3; per < 350 || per > 450 {
		t.Errorf("an engine of Uniform has %d series, want about 400", per)
	}
}

func TestNewRefuses(t *testing.T) {
	engine := Member{Name: "e", Kind: SGLang}
	for want, cfg := range map[string]Config{
		`name "e" is empty or taken`:             {Members: []Member{engine, engine}},
		`name "" is empty or taken`:              {Members: []Member{{Kind: SGLang}}},
		`kind "tgi" is not known`:                {Members: []Member{{Name: "x", Kind: "tgi"}}},
		`worker "f" is not an engine`:            {Members: []Member{engine, {Name: "r", Kind: Router, Workers: []string{"f"}}}},
		"needs a unified worker":                 {Members: []Member{{Name: "p", Kind: SGLang, Role: "prefill"}, {Name: "r", Kind: Router, Workers: []string{"p"}}}},
		`no member "z"`:                          {Members: []Member{engine}, Loads: []Load{chat("l", 1, "z")}},
		"goes nowhere":                           {Members: []Member{engine}, Loads: []Load{chat("l", 1)}},
		"rate 0 must be above 0":                 {Members: []Member{engine}, Loads: []Load{chat("l", 0, "e")}},
		"needs groups and samples":               {Members: []Member{engine}, Loads: []Load{{Kind: Rollout, To: []string{"e"}}}},
		`kind "fax" is not known`:                {Members: []Member{engine}, Loads: []Load{{Kind: "fax", To: []string{"e"}}}},
		"takes the whole load":                   {Members: []Member{engine, {Name: "r", Kind: Router, Workers: []string{"e"}}}, Loads: []Load{chat("l", 1, "e", "r")}},
		`"g" takes no requests`:                  {Members: []Member{engine, {Name: "g", Kind: DCGM, Workers: []string{"e"}}}, Loads: []Load{chat("l", 1, "g")}},
		`no fault is called "gremlin"`:           {Members: []Member{engine}, Faults: []Fault{{Name: "gremlin", For: 1}}},
		`SGLang version "9.9.9" is not modelled`: {Members: []Member{{Name: "e", Kind: SGLang, Version: "9.9.9"}}},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New says %v, want %q", err, want)
		}
	}
}
