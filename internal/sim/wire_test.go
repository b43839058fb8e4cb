package sim

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/rollscope/rollscope/internal/engine"
	"github.com/rollscope/rollscope/internal/signal"
)

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		v            float64
		python, rust string
	}{
		{0, "0.0", "0"}, {311, "311.0", "311"}, {999999, "999999.0", "999999"}, {1e6, "1e+06", "1000000"},
		{8128902, "8.128902e+06", "8128902"}, {7557572.5, "7.5575725e+06", "7557572.5"},
		{0.28, "0.28", "0.28"}, {0.007507552643049313, "0.007507552643049313", "0.007507552643049313"},
		{1.5e10, "1.5e+010", "15000000000"}, {1.25e-05, "1.25e-05", "0.0000125"}, {0.0001, "0.0001", "0.0001"},
		{-1, "-1.0", "-1"}, {2351897.9474117756, "2.3518979474117756e+06", "2351897.9474117756"},
		{math.NaN(), "NaN", "NaN"}, {math.Inf(1), "+Inf", "+Inf"}, {math.Inf(-1), "-Inf", "-Inf"},
		{stageBounds()[4], "0.006887475360000002", "0.006887475360000002"}, {stageBounds()[18], "5.905684770308542", "5.905684770308542"},
	} {
		if got := string(appendPython(nil, c.v)); got != c.python {
			t.Errorf("Python writes %v as %q, want %q", c.v, got, c.python)
		}
		if got := string(appendRust(nil, c.v)); got != c.rust {
			t.Errorf("Rust writes %v as %q, want %q", c.v, got, c.rust)
		}
	}
}

// histogramsOf groups the bucket series of an exposition by everything but le.
func histogramsOf(e parsed) map[string]map[float64]float64 {
	out := map[string]map[float64]float64{}
	for key, v := range e.values {
		i := strings.Index(key, `le="`)
		if i < 0 || !strings.Contains(key, `_bucket"`) {
			continue
		}
		j := i + 4 + strings.IndexByte(key[i+4:], '"')
		le, err := strconv.ParseFloat(key[i+4:j], 64)
		if err != nil {
			continue
		}
		group := key[:i] + key[j+1:]
		if out[group] == nil {
			out[group] = map[float64]float64{}
		}
		out[group][le] = v
	}
	return out
}

func TestExpositionsAreWellFormed(t *testing.T) {
	for _, preset := range []Config{Demo(), Mixed(16)} {
		preset.Faults = nil
		f := mustNew(t, preset)
		last := map[string]parsed{}
		for step := range 9 {
			f.Advance(f.after(time.Duration(step) * 45 * time.Second))
			for _, target := range f.Targets() {
				body, contentType, status := f.Exposition(target.Name)
				if target.Path == engineMetrics && status == 500 {
					continue
				}
				if status != 200 {
					t.Fatalf("%s: status %d", target.Name, status)
				}
				e := parse(t, body, contentType)
				for group, buckets := range histogramsOf(e) {
					bounds := make([]float64, 0, len(buckets))
					for le := range buckets {
						bounds = append(bounds, le)
					}
					sort.Float64s(bounds)
					for i := 1; i < len(bounds); i++ {
						if buckets[bounds[i]] < buckets[bounds[i-1]] {
							t.Fatalf("%s: %s is not cumulative at le=%g", target.Name, group, bounds[i])
						}
					}
					if !math.IsInf(bounds[len(bounds)-1], 1) {
						t.Fatalf("%s: %s has no +Inf", target.Name, group)
					}
				}
				for family, typ := range e.types {
					if typ != model.MetricTypeHistogram {
						continue
					}
					inf, _ := e.sum(family+"_bucket", `le="+Inf"`)
					count, n := e.sum(family + "_count")
					if inf != count || n == 0 {
						t.Fatalf("%s: %s counts %g but +Inf is %g", target.Name, family, count, inf)
					}
				}
				monotone(t, target.Name, last[target.Name], e)
				last[target.Name] = e
			}
		}
	}
}

// monotone checks that what is typed as a counter never falls.
func monotone(t *testing.T, target string, before, now parsed) {
	t.Helper()
	for name, keys := range before.series {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count"), "_sum")
		if now.types[name] != model.MetricTypeCounter && now.types[base] != model.MetricTypeHistogram {
			continue
		}
		for _, key := range keys {
			v := before.values[key]
			if w, ok := now.values[key]; !ok || w < v {
				t.Fatalf("%s: %s fell from %g to %g (present %t)", target, key, v, w, ok)
			}
		}
	}
}

// Samples and Series give the same numbers as the parsed text.
func TestSamplesAreTheText(t *testing.T) {
	f := mustNew(t, Demo())
	for _, d := range []time.Duration{0, 50 * time.Second, 5 * time.Minute, 13 * time.Minute} {
		f.Advance(f.after(d))
		got := map[string]map[string]float64{}
		f.Samples(func(target string, series int, v float64) {
			if got[target] == nil {
				got[target] = map[string]float64{}
			}
			pairs := f.Series(target)[series]
			if pairs[0][0] != "__name__" || !slices.IsSortedFunc(pairs[1:], func(a, b [2]string) int { return strings.Compare(a[0], b[0]) }) {
				t.Fatalf("labels out of order: %v", pairs)
			}
			got[target][fmt.Sprint(pairs)] = v
		})
		for _, target := range f.Targets() {
			body, contentType, status := f.Exposition(target.Name)
			if status != 200 {
				if len(got[target.Name]) > 0 {
					t.Errorf("%s at %s: samples of a target that answers %d", target.Name, d, status)
				}
				continue
			}
			e := parse(t, body, contentType)
			if len(e.values) != len(got[target.Name]) {
				t.Fatalf("%s at %s: %d series in the text, %d samples", target.Name, d, len(e.values), len(got[target.Name]))
			}
			text, direct := 0.0, 0.0
			for _, v := range e.values {
				if !math.IsNaN(v) {
					text += v
				}
			}
			for _, v := range got[target.Name] {
				if !math.IsNaN(v) {
					direct += v
				}
			}
			if math.Abs(text-direct) > 1e-9*math.Abs(text) {
				t.Errorf("%s at %s: the text adds up to %g, the samples to %g", target.Name, d, text, direct)
			}
		}
	}
}

// everySGLang is one engine of every version and role with every option.
func everySGLang() Config {
	cfg := Config{Seed: 3}
	for v := range released() {
		for _, m := range []Member{
			{Role: engine.Unified, DP: 2, Extended: true},
			{Role: engine.Unified, TP: 2, Speculative: true, HiCacheTokens: 60000, Extended: true, MoE: true, TokenHistograms: true, Hardware: Hardware{KVTokens: 50000}},
			{Role: engine.Prefill, MoE: true}, {Role: engine.Decode, MoE: true},
		} {
			m.Name = fmt.Sprintf("%s-%s-%d", m.Role, v, m.DP)
			m.Kind, m.Version = SGLang, v
			cfg.Members = append(cfg.Members, m)
		}
		cfg.Members = append(cfg.Members, Member{Name: "router-" + v, Kind: Router, Workers: []string{"prefill-" + v + "-0", "decode-" + v + "-0"}})
		users := chat("users-"+v, 6, "unified-"+v+"-2", "unified-"+v+"-0")
		users.GrammarShare = 0.3
		cfg.Loads = append(cfg.Loads, users, chat("pd-"+v, 2, "router-"+v))
		cfg.Faults = append(cfg.Faults, Fault{Name: "transfer_slow", At: 40 * time.Second, For: 50 * time.Second},
			Fault{Name: "kv_pressure", At: 30 * time.Second, For: 60 * time.Second, Member: "unified-" + v + "-0"},
			Fault{Name: "weight_update", At: 20 * time.Second, For: 2 * time.Second},
			Fault{Name: "engine_down", At: 70 * time.Second, For: 5 * time.Second, Member: "decode-" + v + "-0"})
	}
	slices.SortFunc(cfg.Members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(cfg.Loads, func(a, b Load) int { return strings.Compare(a.Name, b.Name) })
	return cfg
}

// Every family that is rendered stands in the catalog, with its type and labels, and in its time.
func TestFamiliesAreInTheCatalog(t *testing.T) {
	catalog := signal.Default()
	f := mustNew(t, everySGLang())
	f.Advance(f.after(95 * time.Second))
	seen := map[string]bool{}
	for _, m := range f.members {
		if m.spec.Kind != SGLang {
			continue
		}
		rel, err := parseRelease(m.spec.Version)
		if err != nil {
			t.Fatal(err)
		}
		for _, fam := range m.regs[0].families {
			written := false
			for _, s := range fam.metrics {
				written = written || s.present
			}
			if !written {
				continue
			}
			seen[fam.name] = true
			def, ok := catalog.Metric(fam.name)
			if !ok {
				t.Errorf("%s: %s is not in the catalog", m.name, fam.name)
				continue
			}
			if v := fam.metrics[0].value; def.Dead && v != 0 && !(fam.name == "sglang:utilization" && v == -1) {
				t.Errorf("%s is dead but is %g", fam.name, v)
			}
			if def.Type != fam.typ && !(def.Type == signal.Info && fam.typ == signal.Gauge) && def.WasType == "" {
				t.Errorf("%s: %s is a %s, the catalog says %s", m.name, fam.name, fam.typ, def.Type)
			}
			if !rel.has(strings.TrimSpace(def.Since), "") {
				t.Errorf("%s: %s is only since %s", m.name, fam.name, def.Since)
			}
			for _, l := range fam.metrics[0].labels {
				if !slices.Contains(def.Labels, l.name) {
					t.Errorf("%s: %s has label %s, the catalog knows %v", m.name, fam.name, l.name, def.Labels)
				}
			}
		}
	}
	if len(seen) < 120 {
		t.Errorf("only %d SGLang families are rendered, want at least 120", len(seen))
	}
	t.Logf("%d SGLang families", len(seen))
}

// rewrite is rule 1.9 of the reference, applied to texts: the independent way to a router's answer.
func rewrite(t *testing.T, texts map[string]string) map[string][]string {
	families := map[string][]string{}
	for worker, text := range texts {
		for _, line := range strings.Split(strings.TrimSpace(strings.ReplaceAll(text, ":", "_")), "\n") {
			if strings.HasPrefix(line, "#") {
				continue
			}
			sp := strings.LastIndexByte(line, ' ')
			v, err := strconv.ParseFloat(line[sp+1:], 64)
			if err != nil {
				t.Fatal(err)
			}
			head, le := line[:sp], ""
			open := strings.IndexByte(head, '{')
			name := head
			var pairs []string
			if open >= 0 {
				name = head[:open]
				for _, p := range strings.Split(head[open+1:len(head)-1], `",`) {
					p = strings.TrimSuffix(p, `"`) + `"`
					if strings.HasPrefix(p, `le="`) && strings.HasSuffix(name, "_bucket") {
						bound, err := strconv.ParseFloat(p[4:len(p)-1], 64)
						if err != nil {
							t.Fatal(err)
						}
						le = `le="` + string(appendRust(nil, bound)) + `"`
						continue
					}
					pairs = append(pairs, p)
				}
			}
			pairs = append(pairs, `worker_addr="`+worker+`"`)
			if le != "" {
				pairs = append(pairs, le)
			}
			families[name] = append(families[name], name+"{"+strings.Join(pairs, ",")+"} "+string(appendRust(nil, v)))
		}
	}
	return families
}

func TestRouterFollowsTheRule(t *testing.T) {
	cfg := Demo()
	cfg.Faults = nil
	for i := range cfg.Members {
		if cfg.Members[i].Role != "" {
			cfg.Members[i].Model = "acme/chat-7b:v2"
		}
	}
	f := mustNew(t, cfg)
	f.Advance(f.after(90 * time.Second))
	texts := map[string]string{}
	for _, name := range []string{"prefill-0", "decode-0", "decode-1"} {
		body, _, _ := f.Exposition(name)
		texts["http://"+f.byName[name].spec.Addr] = string(body)
	}
	body, contentType, status := f.Exposition("router-0/engine_metrics")
	if status != 200 || contentType != "text/plain; charset=utf-8" {
		t.Fatalf("status %d, Content-Type %q", status, contentType)
	}
	want := rewrite(t, texts)
	got := map[string][]string{}
	for _, block := range strings.Split(string(body), "\n\n") {
		if !strings.HasPrefix(block, "# HELP sglang_") {
			t.Fatalf("a block does not begin with HELP: %.200q", block)
		}
		for _, line := range strings.Split(strings.TrimSpace(block), "\n") {
			if strings.HasPrefix(line, "#") {
				if strings.Contains(line, ":") {
					t.Errorf("a colon is left in %q", line)
				}
				continue
			}
			name := line[:strings.IndexByte(line, '{')]
			got[name] = append(got[name], line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d sample names, want %d", len(got), len(want))
	}
	for name, lines := range want {
		g := got[name]
		sort.Strings(g)
		sort.Strings(lines)
		if !slices.Equal(g, lines) {
			t.Errorf("%s:\ngot  %.300s\nwant %.300s", name, strings.Join(g, "\n"), strings.Join(lines, "\n"))
		}
	}
	if !bytes.Contains(body, []byte(`model_name="acme/chat-7b_v2"`)) {
		t.Error("the colon in model_name was not replaced")
	}
}

func TestRouterAggregationFails(t *testing.T) {
	pd := func(router string, dp int) *Fleet {
		f := mustNew(t, Config{Members: []Member{
			{Name: "p", Kind: SGLang, Role: engine.Prefill}, {Name: "d", Kind: SGLang, Role: engine.Decode, DP: dp},
			{Name: "r", Kind: Router, Version: router, Workers: []string{"p", "d"}},
		}, Loads: []Load{chat("users", 2, "r")}})
		f.Advance(f.after(40 * time.Second))
		return f
	}
	for _, c := range []struct {
		router string
		dp     int
		status int
	}{{"0.3.1", 0, 200}, {"0.3.1", 2, 500}, {"1.9.0", 2, 200}} {
		f := pd(c.router, c.dp)
		body, _, status := f.Exposition("r/engine_metrics")
		if status != c.status {
			t.Errorf("router %s with DP %d on one side answers %d: %.100s", c.router, c.dp, status, body)
		}
		n := 0
		f.Samples(func(target string, _ int, _ float64) {
			if target == "r/engine_metrics" {
				n++
			}
		})
		if (n > 0) != (c.status == 200) {
			t.Errorf("router %s with DP %d: %d samples", c.router, c.dp, n)
		}
	}
	f := pd("0.3.1", 0)
	for _, m := range []string{"p", "d"} {
		if err := f.Order(Fault{Name: "engine_down", At: 41 * time.Second, For: time.Minute, Member: m}); err != nil {
			t.Fatal(err)
		}
	}
	f.Advance(f.after(42 * time.Second))
	if body, _, status := f.Exposition("r/engine_metrics"); status != 500 || string(body) != "All backend requests failed" {
		t.Errorf("without workers: %d %s", status, body)
	}
}

// What SGLang's library does to names, by Accept header.
func TestSpellings(t *testing.T) {
	f := mustNew(t, Uniform(1))
	f.Advance(f.after(40 * time.Second))
	const prom3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
	for _, c := range []struct {
		accept, contentType, typeLine, sample string
		eof                                   bool
	}{
		{"", "text/plain; version=0.0.4; charset=utf-8", "# TYPE sglang:prompt_tokens_total counter", "sglang:prompt_tokens_total{", false},
		{"application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores", "# TYPE sglang:prompt_tokens counter", "sglang_prompt_tokens_total{", true},
		{prom3, "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=allow-utf-8", "# TYPE sglang:prompt_tokens counter", "sglang:prompt_tokens_total{", true},
		{"text/plain;version=1.0.0;escaping=underscores", "text/plain; version=1.0.0; charset=utf-8; escaping=underscores", "# TYPE sglang:prompt_tokens_total counter", "sglang:prompt_tokens_total{", false},
	} {
		body, contentType, _ := f.ExpositionFor("engine-0", c.accept)
		if contentType != c.contentType {
			t.Errorf("Accept %q: Content-Type %q, want %q", c.accept, contentType, c.contentType)
		}
		if !bytes.Contains(body, []byte("\n"+c.typeLine+"\n")) || !bytes.Contains(body, []byte("\n"+c.sample)) {
			t.Errorf("Accept %q: no %q or no %q", c.accept, c.typeLine, c.sample)
		}
		if bytes.HasSuffix(body, []byte("# EOF\n")) != c.eof {
			t.Errorf("Accept %q: ends %q", c.accept, body[len(body)-20:])
		}
		parse(t, body, contentType)
	}
}

// Real captures and the simulator agree on how a family is written: its samples' order and labels.
func TestLooksLikeTheCaptures(t *testing.T) {
	path := filepath.Join("..", "..", "..", "shared", "fixtures", "captures", "sglang", "metrics", "90_generated_plain_004.txt")
	capture, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("the captures are not here: %v", err)
	}
	f := mustNew(t, Uniform(1))
	f.Advance(f.after(40 * time.Second))
	body, _, _ := f.Exposition("engine-0")
	shape := func(text, family string) []string {
		var out []string
		for _, line := range strings.Split(text, "\n") {
			if !strings.HasPrefix(line, family) {
				continue
			}
			name, rest, _ := strings.Cut(line, "{")
			var names []string
			for _, p := range strings.Split(rest, ",") {
				if n, _, ok := strings.Cut(p, "="); ok && n != "is_streaming" {
					names = append(names, n)
				}
			}
			s := name + " " + strings.Join(names, ",")
			if !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
		return out
	}
	for _, family := range []string{"sglang:time_to_first_token_seconds", "sglang:queue_time_seconds", "sglang:num_running_reqs", "sglang:prompt_tokens_total", "sglang:realtime_tokens_total", "sglang:routing_key_running_req_count"} {
		if got, want := shape(string(body), family), shape(string(capture), family); !slices.Equal(got, want) {
			t.Errorf("%s is written as\n%v, really\n%v", family, got, want)
		}
	}
}

func TestReleases(t *testing.T) {
	order := []string{"0.4.3.post4", "0.5.4", "0.5.4.post3", "0.5.10rc0", "0.5.10", "2026-05-01", "0.5.11", "0.5.15", "0.5.15.post1", "2026-08-05", "0.5.17", "0.5.18"}
	for i := 1; i < len(order); i++ {
		a, errA := parseRelease(order[i-1])
		b, errB := parseRelease(order[i])
		if errA != nil || errB != nil || a >= b {
			t.Errorf("%s = %d (%v) should be before %s = %d (%v)", order[i-1], a, errA, order[i], b, errB)
		}
	}
	if _, err := parseRelease("0.6.0"); err == nil {
		t.Error("0.6.0 is accepted")
	}
	if _, err := New(Config{Members: []Member{{Name: "old", Kind: SGLang, Version: "0.5.2"}}}); err == nil {
		t.Error("an engine older than the tables is accepted")
	}
}

// What a version has and has not, as the history says.
func TestVersions(t *testing.T) {
	families := func(version string) map[string]parsed {
		f := mustNew(t, Config{Members: []Member{
			{Name: "u", Kind: SGLang, Version: version}, {Name: "p", Kind: SGLang, Role: engine.Prefill, Version: version},
			{Name: "d", Kind: SGLang, Role: engine.Decode, Version: version}, {Name: "r", Kind: Router, Workers: []string{"p", "d"}},
		}, Loads: []Load{chat("a", 3, "u"), chat("b", 2, "r")}})
		f.Advance(f.after(50 * time.Second))
		return map[string]parsed{"u": expose(t, f, "u"), "p": expose(t, f, "p"), "d": expose(t, f, "d")}
	}
	old, slime, newest := families("0.5.9"), families("0.5.15"), families("0.5.18")
	has := func(where string, e parsed, name string, want bool, parts ...string) {
		t.Helper()
		if _, n := e.sum(name, parts...); (n > 0) != want {
			t.Errorf("%s: %s %v in %d series, want present %t", where, name, parts, n, want)
		}
	}
	has("0.5.9", old["u"], "sglang:prompt_tokens_total", false, "engine_type")
	has("0.5.15", slime["u"], "sglang:prompt_tokens_total", true, "engine_type")
	has("0.5.15", slime["u"], "sglang:time_to_first_token_seconds_count", false, "is_streaming")
	has("0.5.18", newest["u"], "sglang:time_to_first_token_seconds_count", true, `is_streaming="true"`)
	has("0.5.15", slime["u"], "sglang:prefill_effective_tokens_total", false)
	has("0.5.18", newest["u"], "sglang:prefill_effective_tokens_total", true)
	has("0.5.9", old["p"], "sglang:kv_transfer_latency_ms", true)
	has("0.5.9", old["p"], "sglang:kv_transfer_latency_ms_count", false)
	has("0.5.15", slime["p"], "sglang:kv_transfer_latency_ms_count", true)
	has("0.5.15", slime["p"], "sglang:kv_transfer_latency_ms", false)
	has("0.5.18", newest["d"], "sglang:kv_transfer_alloc_ms_count", true)
	has("0.5.18", newest["p"], "sglang:time_to_first_token_seconds_count", false)
	has("0.5.18", newest["d"], "sglang:time_to_first_token_seconds_count", true)
	has("0.5.9", old["p"], "sglang:num_prefill_prealloc_queue_reqs", true)
	has("0.5.18", newest["p"], "sglang:num_prefill_bootstrap_queue_reqs", true)
	has("0.5.18", newest["u"], "sglang:num_retracted_reqs", true, `pid="`)
	has("0.5.9", old["u"], "sglang:engine_startup_time", true)
	has("0.5.18", newest["u"], "sglang:startup_time_seconds", true)
}
