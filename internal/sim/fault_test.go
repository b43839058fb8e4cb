package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/engine"
)

func TestParseFault(t *testing.T) {
	for in, want := range map[string]Fault{
		"engine_down@45s+100s":            {Name: "engine_down", At: 45 * time.Second, For: 100 * time.Second},
		"kv_pressure@2m+1m30s:engine-3":   {Name: "kv_pressure", At: 2 * time.Minute, For: 90 * time.Second, Member: "engine-3"},
		"idle@0s+10s/1m:a":                {Name: "idle", For: 10 * time.Second, Every: time.Minute, Member: "a"},
		"bad_line@1.5s+200ms:127.0.0.1:1": {Name: "bad_line", At: 1500 * time.Millisecond, For: 200 * time.Millisecond, Member: "127.0.0.1:1"},
	} {
		got, err := ParseFault(in)
		if err != nil || got != want {
			t.Errorf("ParseFault(%q) = %+v, %v; want %+v", in, got, err, want)
		}
		if again, err := ParseFault(got.String()); err != nil || again != got {
			t.Errorf("%q is written as %q, which reads as %+v, %v", in, got.String(), again, err)
		}
	}
	for in, want := range map[string]string{
		"engine_down":             "no @",
		"engine_down@45s":         "no +",
		"engine_down@x+1s":        "begin x",
		"engine_down@1s+0s":       "length 0s",
		"engine_down@1s+5s/5s":    "period",
		"engine_gone@1s+1s":       `no fault is called "engine_gone"; there are slow_decode`,
		"engine_down@-1s+1s":      "begin -1s",
		"engine_down@1s+1s/":      "period",
		"engine_down@1s+1s/2s/3s": "period",
	} {
		if _, err := ParseFault(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseFault(%q) says %v, want %q", in, err, want)
		}
	}
	f := mustNew(t, Uniform(1))
	if err := f.Order(Fault{Name: "engine_down", For: time.Second, Member: "nobody"}); err == nil {
		t.Error("a fault of an unknown member is accepted")
	}
}

// What is read is written back as the same fault, and nothing panics.
func FuzzParseFault(f *testing.F) {
	for _, s := range []string{"engine_down@45s+100s", "idle@0s+10s/1m:a", "x@1s+1s", "@+", "bad_line@1h+1ns:a:b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseFault(s)
		if err != nil {
			return
		}
		if again, err := ParseFault(got.String()); err != nil || again != got {
			t.Errorf("%q reads as %+v, written %q, reads as %+v, %v", s, got, got.String(), again, err)
		}
	})
}

// pairCfg is a unified engine and a PD set, each under load.
func pairCfg() Config {
	users := chat("users", 2, "u")
	users.GrammarShare = 0.1
	pd := Hardware{KVBytes: 262144, LinkGBs: 12, KVTokens: 400000}
	return Config{Seed: 5, Members: []Member{
		{Name: "u", Kind: SGLang, Hardware: Hardware{KVTokens: 90000}, Speculative: true, MoE: true, HiCacheTokens: 200000},
		{Name: "p", Kind: SGLang, Role: engine.Prefill, Hardware: pd}, {Name: "d", Kind: SGLang, Role: engine.Decode, Hardware: pd},
		{Name: "r", Kind: Router, Workers: []string{"p", "d"}},
		{Name: "v", Kind: VLLM},
		{Name: "w", Kind: DynamoWorker}, {Name: "f", Kind: DynamoFrontend, Workers: []string{"w"}},
	}, Loads: []Load{users, chat("pd", 1.5, "r"), chat("v", 1.5, "v"), chat("f", 1.5, "f")}}
}

// Every fault shows in the metrics, and only while it lasts.
func TestFaultsShow(t *testing.T) {
	const from, to = 60 * time.Second, 110 * time.Second
	// rate is the growth of a metric from the fault's begin to its end.
	type reading struct{ before, after parsed }
	growth := func(r reading, name string, parts ...string) float64 {
		a, _ := r.before.sum(name, parts...)
		b, _ := r.after.sum(name, parts...)
		return b - a
	}
	mean := func(r reading, name string) float64 { return growth(r, name+"_sum") / growth(r, name+"_count") }
	for _, c := range []struct {
		fault, member, read string
		shows               func(calm, ill reading) bool
	}{
		{"slow_decode", "u", "u", func(calm, ill reading) bool {
			const itl = "sglang:inter_token_latency_seconds"
			return mean(ill, itl) > 2*mean(calm, itl)
		}},
		{"kv_pressure", "u", "u", func(calm, ill reading) bool {
			usage, _ := ill.after.sum("sglang:token_usage")
			return growth(calm, "sglang:num_retracted_requests_total") == 0 && growth(ill, "sglang:num_retracted_requests_total") > 5 && usage > 0.85
		}},
		{"cache_flush", "u", "u", func(calm, ill reading) bool {
			const n = "sglang:prefill_effective_tokens_total"
			share := func(r reading) float64 { return growth(r, n, `_hit"`) / growth(r, n) }
			return share(calm) > 0.3 && share(ill) < 0.02
		}},
		{"transfer_slow", "p", "p", func(calm, ill reading) bool {
			const n = "sglang:kv_transfer_latency_ms"
			return mean(ill, n) > 5*mean(calm, n) && growth(ill, "sglang:num_transfer_failed_reqs_total") > 0
		}},
		{"spec_drop", "u", "u", func(calm, ill reading) bool {
			a, _ := calm.after.sum("sglang:spec_accept_length")
			b, _ := ill.after.sum("sglang:spec_accept_length")
			return a > 2.4 && b < 2.1
		}},
		{"expert_skew", "u", "u", func(calm, ill reading) bool {
			const n = "sglang:eplb_balancedness"
			return mean(calm, n) > 0.8 && mean(ill, n) < 0.5
		}},
		{"weight_update", "u", "u", func(calm, ill reading) bool {
			return growth(ill, "sglang:realtime_tokens_total", `mode="decode"`) < 0.2*growth(calm, "sglang:realtime_tokens_total", `mode="decode"`)
		}},
		{"engine_hang", "u", "u", func(calm, ill reading) bool {
			a, _ := ill.before.sum("sglang:num_running_reqs")
			b, _ := ill.after.sum("sglang:num_running_reqs")
			return growth(ill, "sglang:generation_tokens_total") == 0 && a == b && a > 0
		}},
		{"abort_burst", "u", "u", func(calm, ill reading) bool {
			return growth(ill, "sglang:num_aborted_requests_total") > 60 && growth(calm, "sglang:num_aborted_requests_total") < 10
		}},
		{"idle", "u", "u", func(calm, ill reading) bool {
			return growth(ill, "sglang:http_requests_total", "/generate") == 0 && growth(calm, "sglang:http_requests_total", "/generate") > 50
		}},
		{"burst", "u", "u", func(calm, ill reading) bool {
			return growth(ill, "sglang:http_requests_total", "/generate") > 1.8*growth(calm, "sglang:http_requests_total", "/generate")
		}},
		{"long_outputs", "v", "v", func(calm, ill reading) bool {
			const n = "vllm:request_generation_tokens"
			return mean(ill, n) > 1.5*mean(calm, n)
		}},
		{"engine_down", "d", "r", func(calm, ill reading) bool {
			return growth(ill, "smg_router_request_errors_total") > 10 && growth(calm, "smg_router_request_errors_total") == 0
		}},
		{"engine_down", "w", "f", func(calm, ill reading) bool {
			return growth(ill, "dynamo_frontend_requests_total", `status="error"`, "internal") > 10
		}},
		{"slow_decode", "w", "f", func(calm, ill reading) bool {
			const itl = "dynamo_frontend_inter_token_latency_seconds"
			return mean(ill, itl) > 2*mean(calm, itl)
		}},
	} {
		t.Run(c.fault+" "+c.member, func(t *testing.T) {
			run := func(faults ...Fault) (r reading) {
				cfg := pairCfg()
				cfg.Faults = faults
				f := mustNew(t, cfg)
				f.Advance(f.after(from))
				r.before = expose(t, f, c.read)
				f.Advance(f.after(to - 100*time.Millisecond))
				r.after = expose(t, f, c.read)
				if len(f.Active()) != len(faults) {
					t.Fatalf("%d faults are on, want %d", len(f.Active()), len(faults))
				}
				f.Advance(f.after(to + 100*time.Millisecond))
				if len(f.Active()) != 0 {
					t.Fatal("the fault does not end")
				}
				return r
			}
			calm, ill := run(), run(Fault{Name: c.fault, At: from, For: to - from, Member: c.member})
			if !c.shows(calm, ill) {
				t.Error("the fault does not show")
			}
		})
	}
}

func TestDownAndRestart(t *testing.T) {
	cfg := pairCfg()
	cfg.Faults = []Fault{
		{Name: "engine_down", At: 60 * time.Second, For: 20 * time.Second, Member: "u"},
		{Name: "engine_restart", At: 120 * time.Second, For: 20 * time.Second, Member: "u"},
		{Name: "engine_restart", At: 120 * time.Second, For: 20 * time.Second, Member: "r"},
	}
	f := mustNew(t, cfg)
	read := func(at time.Duration) (parsed, int) {
		f.Advance(f.after(at))
		body, contentType, status := f.Exposition("u")
		if status != 200 {
			return parsed{}, status
		}
		return parse(t, body, contentType), status
	}
	before, _ := read(59 * time.Second)
	if _, status := read(70 * time.Second); status != 0 {
		t.Errorf("while down the engine answers %d", status)
	}
	back, _ := read(85 * time.Second)
	monotone(t, "u", before, back)
	if body, _, status := f.Answer("u", "/health", ""); status != 200 || len(body) != 0 {
		t.Errorf("after it came back /health says %d %q", status, body)
	}
	old, _ := read(119 * time.Second)
	if _, status := read(130 * time.Second); status != 0 {
		t.Errorf("while it restarts the engine answers %d", status)
	}
	if body, _, status := f.Exposition("r"); status != 0 {
		t.Errorf("while it restarts the router answers %d %s", status, body)
	}
	fresh, _ := read(145 * time.Second)
	for _, name := range []string{"sglang:prompt_tokens_total", "sglang:realtime_tokens_total", "sglang:time_to_first_token_seconds_count"} {
		a, _ := old.sum(name)
		b, n := fresh.sum(name)
		if b >= a/4 || n == 0 {
			t.Errorf("%s did not start again: %g, then %g in %d series", name, a, b, n)
		}
	}
	pids := func(e parsed) (out string) {
		for key := range e.values {
			if strings.Contains(key, "num_retracted_reqs\"") {
				out += key
			}
		}
		return out
	}
	if a, b := pids(old), pids(fresh); a == "" || a == b || strings.Count(b, "pid=") != 1 {
		t.Errorf("the new process keeps the pid: %s, then %s", a, b)
	}
	if up, _ := fresh.sum("sglang:max_total_num_tokens"); up != 90000 {
		t.Errorf("the constants are not written again: %g", up)
	}
	fr, _, status := f.Exposition("r")
	if status != 200 || !strings.Contains(string(fr), "smg_worker_health") {
		t.Errorf("the router does not come back: %d", status)
	}
}

func TestWireFaults(t *testing.T) {
	answer := func(name string) (string, string, int, *Fleet) {
		cfg := Uniform(2)
		cfg.Faults = []Fault{{Name: name, At: 30 * time.Second, For: 30 * time.Second}}
		f := mustNew(t, cfg)
		f.Advance(f.after(40 * time.Second))
		body, contentType, status := f.Exposition("engine-0")
		return string(body), contentType, status, f
	}
	if body, _, status, _ := answer("empty_body"); status != 200 || body != "" {
		t.Errorf("empty_body: %d with %d bytes", status, len(body))
	}
	if body, contentType, status, _ := answer("html_body"); status != 200 || !strings.HasPrefix(contentType, "text/html") || !strings.HasPrefix(body, "<!doctype html>") {
		t.Errorf("html_body: %d %s %s", status, contentType, body)
	}
	if body, contentType, status, _ := answer("not_found"); status != 404 || contentType != "application/json" || body != `{"detail":"Not Found"}` {
		t.Errorf("not_found: %d %s %s", status, contentType, body)
	}
	calm := mustNew(t, Uniform(2))
	calm.Advance(calm.after(40 * time.Second))
	clean, _, _ := calm.Exposition("engine-0")
	lines := strings.Split(string(clean), "\n")
	if body, _, _, _ := answer("bad_line"); strings.Count(body, "\n") != len(lines)-1 || body == string(clean) {
		t.Error("bad_line: want one line changed")
	} else {
		bad := 0
		for i, line := range strings.Split(body, "\n") {
			if line != lines[i] {
				bad++
			}
		}
		if bad != 1 {
			t.Errorf("bad_line: %d lines changed", bad)
		}
	}
	if body, _, _, f := answer("duplicate_series"); strings.Count(body, "\n") != len(lines) {
		t.Errorf("duplicate_series: %d lines, want %d", strings.Count(body, "\n"), len(lines))
	} else if other, _, _ := f.Exposition("engine-1"); strings.Contains(string(other), " 12345\n") {
		t.Error("duplicate_series hits the second engine too")
	}
	body, _, _, f := answer("clock_step")
	want := " " + "" + itoa(f.Now().Add(-2*time.Minute).UnixMilli()) + "\n"
	if n := strings.Count(body, want); n != strings.Count(string(clean), "\n")-strings.Count(string(clean), "# ") {
		t.Errorf("clock_step: %d samples carry the timestamp %s", n, want)
	}
}

func TestEveryFaultIsTold(t *testing.T) {
	names := map[string]bool{}
	for _, f := range Faults() {
		if f.Meaning == "" || f.Scope == "" || names[f.Name] {
			t.Errorf("%+v", f)
		}
		names[f.Name] = true
	}
	for _, n := range strings.Fields("slow_decode kv_pressure cache_flush transfer_slow engine_down engine_restart engine_hang abort_burst idle burst bad_line duplicate_series empty_body html_body clock_step") {
		if !names[n] {
			t.Errorf("no fault %s", n)
		}
	}
}

func TestRepeatedFault(t *testing.T) {
	f := Fault{At: 10 * time.Second, For: 2 * time.Second, Every: 5 * time.Second}
	var on []int
	for s := range 24 {
		if f.due(time.Duration(s) * time.Second) {
			on = append(on, s)
		}
	}
	if got := len(on); got != 6 || on[0] != 10 || on[1] != 11 || on[2] != 15 || on[5] != 21 {
		t.Errorf("on at %v", on)
	}
}
