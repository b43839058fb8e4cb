package tailsample

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rollscope/rollscope/internal/span"
)

func TestParseNative(t *testing.T) {
	o := policyFile(t, "policies/native.yaml")
	p := o.Policy
	if p.Ratio != 0.025 || !p.Errors || p.Aborted || !p.Retracted || !p.Tools || !p.Linked {
		t.Errorf("%+v", p)
	}
	if want := (Slow{TTFT: 2 * time.Second, ITL: 50 * time.Millisecond, E2E: 5 * time.Minute, Queue: 10 * time.Second, Transfer: 3 * time.Second, P99: true, Requests: 500, Window: 20 * time.Minute}); p.Slow != want {
		t.Errorf("%+v", p.Slow)
	}
	if len(p.Keep) != 4 || p.Keep[1].Name != "prompt_tokens" || p.Keep[1].Min != 100000 || !math.IsInf(p.Keep[1].Max, 1) || !*p.Keep[2].Bool || len(p.Keep[3].Regexp) != 1 || len(p.Drop) != 1 {
		t.Errorf("%+v %+v", p.Keep, p.Drop)
	}
	if o.MaxBytes != 1<<30 || o.MaxTraces != 1_000_000 || o.MaxSpansPerTrace != 5000 || o.Linger != 10*time.Second || o.Settle != time.Minute || o.IdleAfter != 10*time.Minute ||
		o.MaxAge != time.Hour || o.Remember != 30*time.Minute || o.RememberTraces != 2_000_000 {
		t.Errorf("%+v", o)
	}
	for text, want := range map[string]func(Options) bool{
		"":                       func(o Options) bool { return reflect.DeepEqual(o, Options{Policy: DefaultPolicy()}) },
		"off":                    func(o Options) bool { return o.Policy.Ratio == 1 },
		"{keep: {slow: false}}":  func(o Options) bool { return o.Policy.Slow == Slow{} && o.Policy.Errors },
		"{ratio: 1}":             func(o Options) bool { return o.Policy.Ratio == 1 },
		"{ratio: '5 %'}":         func(o Options) bool { return o.Policy.Ratio == 0.05 },
		"{file: otel.yaml}":      func(o Options) bool { return o.File == "otel.yaml" },
		"a: &x {ratio: 0.5}":     nil,
		"{keep: null, ratio: 0}": func(o Options) bool { return o.Policy.Ratio == 0 && o.Policy.Errors },
	} {
		o, _, err := Parse([]byte(text), "p.yaml")
		if want == nil {
			if err == nil {
				t.Errorf("%q is accepted", text)
			}
			continue
		}
		if err != nil || !want(o) {
			t.Errorf("%q: %+v, %v", text, o, err)
		}
	}
}

// A part of a larger file is read with the lines of that file.
func TestFromNode(t *testing.T) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte("a: 1\nsampling:\n  ratio: 5\n"), &doc); err != nil {
		t.Fatal(err)
	}
	_, _, err := FromNode(doc.Content[0].Content[3], "rollscope.yaml")
	if err == nil || !strings.HasPrefix(err.Error(), "rollscope.yaml:3: ratio must be a share") {
		t.Fatalf("got %v", err)
	}
	if o, _, err := FromNode(nil, ""); err != nil || !reflect.DeepEqual(o.Policy, DefaultPolicy()) {
		t.Fatalf("nil: %+v, %v", o, err)
	}
	if o, _, err := FromNode(&yaml.Node{}, ""); err != nil || !reflect.DeepEqual(o.Policy, DefaultPolicy()) {
		t.Fatalf("empty: %+v, %v", o, err)
	}
}

func TestParseCollector(t *testing.T) {
	o := policyFile(t, "policies/collector.yaml")
	if o.Linger != 10*time.Second || o.MaxTraces != 100_000 || o.RememberTraces != 1_000_000 || len(o.Policy.Collector.policies) != 18 {
		t.Fatalf("%+v", o)
	}
	if _, err := New(o); err != nil {
		t.Fatal(err)
	}
}

// What is wrong with a policy is said with its line and with what to do.
func TestPolicyErrors(t *testing.T) {
	const one = "tail_sampling:\n  policies:\n    - name: x\n      type: "
	for name, c := range map[string]struct{ text, want string }{
		"no yaml":          {"a: [", "p.yaml:1: this is not YAML"},
		"unknown key":      {"ratios: 1", `p.yaml:1: unknown key "ratios" in sampling; known are ratio`},
		"a list":           {"- 1", "p.yaml:1: sampling must be a mapping"},
		"ratio":            {"ratio: 150%", `p.yaml:1: ratio must be a share`},
		"twice":            {"ratio: 1%\nratio: 2%", "stands twice"},
		"duration":         {"keep:\n  slow:\n    ttft: 2", "p.yaml:3: ttft must be a duration such as"},
		"no condition":     {"drop:\n  - {key: a}", "p.yaml:2: drop[0] must say one of"},
		"two conditions":   {"drop:\n  - {key: a, min: 1, values: [b]}", "p.yaml:2: drop[0] must say one of"},
		"no attribute":     {"drop:\n  - {values: [a]}", "p.yaml:2: drop[0] has no key"},
		"regexp":           {"drop:\n  - {key: a, regexp: '('}", "is not a regular expression"},
		"file and more":    {"file: a\nratio: 1%", "file stands alone"},
		"memory":           {"max_memory: lots", "max_memory must be a size such as 256MB"},
		"no policies":      {"tail_sampling:\n  decision_wait: 2s", "has no policies"},
		"empty":            {"tail_sampling:", "tail_sampling is empty"},
		"no processor":     {"processors:\n  batch: {}", "there is no tail_sampling among the processors"},
		"two processors":   {"processors:\n  tail_sampling/a: {policies: []}\n  tail_sampling/b: {policies: []}", "there are 2 tail_sampling processors"},
		"ottl":             {one + "ottl_condition\n      ottl_condition: {span: ['true']}", "p.yaml:4: policies[0] is of type ottl_condition, which is not supported: say it with"},
		"unknown type":     {one + "latencyy", `p.yaml:4: policies[0] is of the unknown type "latencyy"; known are always_sample`},
		"unknown setting":  {one + "latency\n      latency: {threshold: 1}", `p.yaml:5: unknown key "threshold" in policies[0].latency`},
		"status":           {one + "status_code\n      status_code: {status_codes: [BAD]}", "may be OK, ERROR or UNSET"},
		"no status":        {one + "status_code", "p.yaml:3: policies[0].status_code needs status_codes"},
		"no bound":         {one + "numeric_attribute\n      numeric_attribute: {key: a, min_value: 0}", "needs min_value or max_value other than 0"},
		"no type":          {"tail_sampling:\n  policies:\n    - {name: a}", "p.yaml:3: policies[0] has no type"},
		"percentage":       {one + "probabilistic\n      probabilistic: {sampling_percentage: 101}", "between 0 and 100"},
		"nested":           {one + "and\n      and:\n        and_sub_policy:\n          - {name: y, type: ottl_condition}", "p.yaml:7: policies[0].and.and_sub_policy[0] is of type ottl_condition"},
		"name twice":       {"policies:\n  - {name: a, type: always_sample}\n  - {name: a, type: always_sample}", "p.yaml:3: the policy \"a\" stands twice (also in line 2)"},
		"strategy":         {"policies: [{type: always_sample}]\nsampling_strategy: now", "must be trace-complete or span-ingest"},
		"too many":         {"drop:\n" + strings.Repeat("  - {key: a, values: [b]}\n", 65), "more than 64 conditions"},
		"wrong kind under": {one + "latency\n      latency: 5", "policies[0].latency must be a mapping"},
	} {
		_, _, err := Parse([]byte(c.text), "p.yaml")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestPolicyNotes(t *testing.T) {
	text := "tail_sampling:\n  block_on_overflow: true\n  policies:\n    - {name: e, type: status_code, status_codes: [ERROR]}\n    - {name: a, type: always_sample, latency: {threshold_ms: 1}}\n"
	_, notes, err := Parse([]byte(text), "p.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(notes, "\n")
	for _, want := range []string{"p.yaml:2: block_on_overflow", "p.yaml:4: policies[0]: its settings stand beside type", "p.yaml:5: policies[1]: the settings under latency"} {
		if !strings.Contains(all, want) {
			t.Errorf("no note %q in:\n%s", want, all)
		}
	}
}

// The policies of the collector's form, each alone.
func TestCollectorPolicies(t *testing.T) {
	root := func(length time.Duration, attrs ...any) []made {
		return []made{
			{trace: traceOf(1), id: 2, parent: 1, name: "child", start: t0, end: t0 + 1},
			{trace: traceOf(1), id: 1, name: "root", start: t0, end: t0 + int64(length), attrs: attrs},
		}
	}
	failed := root(1)
	failed[0].failed = true
	marked := root(1)
	marked[1].state, marked[1].flags = "a=b, vendor=yes", 1
	for _, c := range []struct {
		policy string
		spans  []made
		keep   bool
	}{
		{"type: always_sample", root(1), true},
		{"type: latency, latency: {threshold_ms: 100}", root(101 * time.Millisecond), true},
		{"type: latency, latency: {threshold_ms: 100}", root(100 * time.Millisecond), false},
		{"type: latency, latency: {threshold_ms: 100, upper_threshold_ms: 200}", root(201 * time.Millisecond), false},
		{"type: numeric_attribute, numeric_attribute: {key: n, min_value: 5, max_value: 9}", root(1, "n", 9), true},
		{"type: numeric_attribute, numeric_attribute: {key: n, min_value: 5, max_value: 9}", root(1, "n", 10), false},
		{"type: numeric_attribute, numeric_attribute: {key: n, min_value: 5}", root(1, "n", "7"), false},
		{"type: numeric_attribute, numeric_attribute: {key: n, max_value: 9, invert_match: true}", root(1, "n", 10), true},
		{"type: status_code, status_code: {status_codes: [ERROR]}", failed, true},
		{"type: status_code, status_code: {status_codes: [ERROR]}", root(1), false},
		{"type: string_attribute, string_attribute: {key: k, values: [a, b]}", root(1, "k", "b"), true},
		{"type: string_attribute, string_attribute: {key: host.name, values: [node-a]}", root(1), true},
		{"type: string_attribute, string_attribute: {key: k, values: [a]}", root(1, "k", "ab"), false},
		{"type: string_attribute, string_attribute: {key: k, values: ['^a'], enabled_regex_matching: true}", root(1, "k", "ab"), true},
		{"type: string_attribute, string_attribute: {key: k, values: [a], invert_match: true}", root(1, "k", "a"), false},
		{"type: string_attribute, string_attribute: {key: k, values: [a], invert_match: true}", root(1), true},
		{"type: boolean_attribute, boolean_attribute: {key: k, value: true}", root(1, "k", true), true},
		{"type: boolean_attribute, boolean_attribute: {key: k, value: true}", root(1, "k", false), false},
		{"type: trace_state, trace_state: {key: vendor, values: ['yes']}", marked, true},
		{"type: trace_state, trace_state: {key: vendor, values: ['no']}", marked, false},
		{"type: trace_flags", marked, true},
		{"type: trace_flags", root(1), false},
		{"type: span_count, span_count: {min_spans: 2}", root(1), true},
		{"type: span_count, span_count: {min_spans: 3}", root(1), false},
		{"type: probabilistic, probabilistic: {sampling_percentage: 100}", root(1), true},
		{"type: probabilistic, probabilistic: {sampling_percentage: 0}", root(1), false},
		{"type: rate_limiting, rate_limiting: {spans_per_second: 2}", root(1), true},
		{"type: rate_limiting, rate_limiting: {spans_per_second: 2, burst_capacity: 1}", root(1), false},
		{"type: bytes_limiting, bytes_limiting: {bytes_per_second: 10}", root(1), false},
		{"type: and, and: {and_sub_policy: [{type: span_count, span_count: {min_spans: 2}}, {type: latency, latency: {threshold_ms: 1}}]}", root(1), false},
		{"type: and, and: {and_sub_policy: [{type: span_count, span_count: {min_spans: 2}}, {type: latency, latency: {threshold_ms: 1}}]}", root(time.Second), true},
		{"type: not, not: {not_sub_policy: {type: latency, latency: {threshold_ms: 1}}}", root(1), true},
		{"type: drop, drop: {drop_sub_policy: [{type: always_sample}]}", root(1), false},
		{"type: composite, composite: {max_total_spans_per_second: 10, composite_sub_policy: [{name: a, type: always_sample}], rate_allocation: [{policy: a, percent: 20}]}", root(1), true},
		{"type: composite, composite: {max_total_spans_per_second: 10, composite_sub_policy: [{name: a, type: always_sample}], rate_allocation: [{policy: a, percent: 10}]}", root(1), false},
	} {
		o, _, err := Parse([]byte("policies: [{name: p, "+c.policy+"}]"), "")
		if err != nil {
			t.Errorf("%s: %v", c.policy, err)
			continue
		}
		o.Observe = nothing
		s := start(t, o)
		if d := end(s, c.spans...)[traceOf(1)]; d.Keep != c.keep {
			t.Errorf("%s: kept %v (%s), want %v", c.policy, d.Keep, d.Policy, c.keep)
		}
	}
	t.Run("drop wins, also over what matched before", func(t *testing.T) {
		o, _, err := Parse([]byte("policies: [{name: e, type: status_code, status_code: {status_codes: [ERROR]}}, {name: d, type: drop, drop: {drop_sub_policy: [{type: string_attribute, string_attribute: {key: path, values: [/health]}}]}}]"), "")
		if err != nil {
			t.Fatal(err)
		}
		o.Observe = nothing
		spans := root(1, "path", "/health")
		spans[0].failed = true
		if d := end(start(t, o), spans...)[traceOf(1)]; d.Keep || d.Policy != "d" {
			t.Fatalf("%+v", d)
		}
	})
	t.Run("rates are by time", func(t *testing.T) {
		o, _, err := Parse([]byte("decision_wait: 1s\npolicies: [{name: r, type: rate_limiting, rate_limiting: {spans_per_second: 5, burst_capacity: 5}}]"), "")
		if err != nil {
			t.Fatal(err)
		}
		o.Observe = nothing
		s := start(t, o)
		kept := 0
		for i := range 1000 { // 100 traces of one span a second, for 10 s
			now := after(time.Duration(i) * 10 * time.Millisecond)
			for _, d := range s.Add(now, []span.Scope{scope("a", made{trace: traceOf(uint64(i + 1)), id: 1, name: "x", start: now, end: now})}) {
				if d.Keep {
					kept++
				}
			}
		}
		if kept < 45 || kept > 55 {
			t.Fatalf("%d kept in 9 s at 5 a second", kept)
		}
	})
}

// The same ids as the collector's processor keeps: FNV-1a of salt and id against the share of 2^64.
func TestProbabilisticAsCollector(t *testing.T) {
	if h := saltedHash("default-hash-seed", traceOf(1)); h != fnvByHand("default-hash-seed", traceOf(1)) {
		t.Fatalf("%x", h)
	}
	limit, any := saltedThreshold(50)
	if !any || limit != math.MaxUint64/2+1 {
		t.Fatalf("half of all is %x", limit)
	}
}

func fnvByHand(salt string, id span.TraceID) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, b := range append([]byte(salt), id[:]...) {
		h = (h ^ uint64(b)) * 0x100000001b3
	}
	return h
}

func TestHeadSampled(t *testing.T) {
	for _, c := range []struct {
		in    Input
		state string
		share float64
		says  string
	}{
		{Input{Observed: 995, Counted: 1000}, "all", 0.995, ""},
		{Input{Observed: 100, Counted: 1000}, "sampled", 0.1, "counted 1000 requests and traces told of 100 (10.0 %)"},
		{Input{Observed: 0, Counted: 1000}, "sampled", 0, "OTEL_TRACES_SAMPLER"},
		{Input{Observed: 10, Counted: 20}, "unknown", 0.5, "too few"},
		{Input{Observed: 10, Counted: math.NaN()}, "unknown", 0, "no request counters"},
		{Input{Observed: 10, Counted: -1}, "unknown", 0, "no request counters"},
		{Input{Observed: math.NaN(), Counted: 100}, "unknown", 0, "not known"},
		{Input{Observed: 1000, Counted: 1000, Spans: 50, WithThreshold: 50}, "sampled", 1, "ot=th"},
	} {
		j := HeadSampled(c.in)
		if j.State != c.state || math.Abs(j.Share-c.share) > 1e-9 || !strings.Contains(j.Reason, c.says) || j.Reliable() != (c.state == "all") {
			t.Errorf("%+v: %+v", c.in, j)
		}
	}
}

// FuzzPolicy reads anything without falling over, and what it accepts can be started and used.
func FuzzPolicy(f *testing.F) {
	for _, pattern := range []string{"testdata/policies/*.yaml", "testdata/O01/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatal(pattern, err)
		}
		for _, name := range files {
			b, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Add([]byte("policies: [&a {name: x, type: not, not: {not_sub_policy: *a}}]"))
	f.Add([]byte("keep: {<<: {errors: false}}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, _, err := Parse(b, "p.yaml")
		if err != nil {
			return
		}
		if o.File != "" {
			return
		}
		o.Observe = nothing
		s, err := New(o)
		if err != nil {
			return // limits that cannot be
		}
		s.Add(t0, []span.Scope{scope("a", made{trace: traceOf(1), id: 1, name: "x", start: t0, end: t0 + 1, failed: true, attrs: []any{"key", "value", "n", 5}, state: "a=b"})})
		s.Flush(t0 + 1e9)
	})
}
