package engine

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestInstanceOf(t *testing.T) {
	for in, want := range map[string][2]string{
		"http://10.0.0.1:30000":     {"10.0.0.1:30000", ""},
		"http://10.0.0.1:30000@3":   {"10.0.0.1:30000", "3"},
		"grpc://10.0.0.1:30000/x":   {"10.0.0.1:30000", ""},
		"10.0.0.1:30000":            {"10.0.0.1:30000", ""},
		"10.0.0.1:30000@12/metrics": {"10.0.0.1:30000", "12"},
		"http://[::1]:30000/":       {"[::1]:30000", ""},
		"":                          {"", ""},
	} {
		if host, rank := InstanceOf(in); host != want[0] || rank != want[1] {
			t.Errorf("InstanceOf(%q) = %q %q, want %q", in, host, rank, want)
		}
	}
}

var label = regexp.MustCompile(`(\w+)="([^"]*)"`)

// observe feeds series written as name{label="value",...}, one a line, with more labels on each.
func observe(r *Resolver, series, more string) {
	for line := range strings.Lines(series) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, rest, _ := strings.Cut(line, "{")
		values := map[string]string{}
		for _, m := range label.FindAllStringSubmatch(rest+","+more, -1) {
			values[m[1]] = m[2]
		}
		r.Observe(name, func(l string) string { return values[l] })
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestSchedulerGaugesSayTheRole(t *testing.T) { // M09
	series := read(t, "M09/pd.prom")
	lines := strings.Split(series, "\n")
	slices.Reverse(lines)
	for _, order := range []string{series, strings.Join(lines, "\n")} {
		r := NewResolver(nil)
		observe(r, order, `instance="10.0.0.5:30000",job="pd"`)
		observe(r, order, `instance="10.0.0.5:30000",job="pd"`)
		if got := r.Role("10.0.0.5:30000"); got != Decode {
			t.Errorf("role %q, want decode", got)
		}
		c := r.Conflicts()
		if len(c) != 1 || c[0].Instance != "10.0.0.5:30000" || c[0].Role != Decode ||
			c[0].Message != "10.0.0.5:30000 counts as decode because engine_type on the scheduler's gauges says so, although engine_type on the token counters says unified" {
			t.Errorf("conflicts %+v", c)
		}
	}
}

func TestPrecedence(t *testing.T) {
	const (
		scheduler = `sglang:num_running_reqs{engine_type="unified",tp_rank="0"}`
		counters  = `sglang:generation_tokens_total{engine_type="decode"}`
		pod       = `sglang:token_usage{nvidia_com_dynamo_sub_component_type="prefill"}`
		component = `dynamo_component_inflight_requests{dynamo_component="encode",dynamo_namespace="n"}`
		nothing   = `sglang:num_requests_total{model_name="m"}`
	)
	for _, c := range []struct {
		series []string
		want   Role
		clash  bool
	}{
		{[]string{nothing}, Unified, false},
		{[]string{nothing, counters}, Decode, false},
		{[]string{nothing, counters, component}, Encode, true},
		{[]string{nothing, counters, component, pod}, Prefill, true},
		{[]string{nothing, counters, component, pod, scheduler}, Unified, true},
	} {
		r := NewResolver(nil)
		observe(r, strings.Join(c.series, "\n"), `instance="a:1"`)
		if got := r.Role("a:1"); got != c.want || len(r.Conflicts()) > 0 != c.clash {
			t.Errorf("%q: role %q, want %q; conflicts %+v", c.series, got, c.want, r.Conflicts())
		}
		r = NewResolver([]Override{{Instance: "a:1", Role: Decode}})
		observe(r, strings.Join(c.series, "\n"), `instance="a:1"`)
		if got := r.Role("a:1"); got != Decode {
			t.Errorf("%q: the configuration says decode, got %q", c.series, got)
		}
	}
}

func TestEveryTargetHasOneRole(t *testing.T) { // P08: the component's name does not equal the role
	r := NewResolver(nil)
	fleet := map[string]string{
		"p1": `dynamo_component_requests_total{dynamo_component="backend",dynamo_namespace="ns",nvidia_com_dynamo_sub_component_type="prefill"}`,
		"d1": `dynamo_component_requests_total{dynamo_component="backend",dynamo_namespace="ns",nvidia_com_dynamo_sub_component_type="decode"}`,
		"d2": `dynamo_component_requests_total{dynamo_component="backend",dynamo_namespace="split"}`,
		"p2": `dynamo_component_requests_total{dynamo_component="prefill",dynamo_namespace="split"}`,
		"u1": `dynamo_component_requests_total{dynamo_component="backend",dynamo_namespace="whole"}`,
		"v1": `vllm:num_requests_running{engine="0"}`,
		"f1": `dynamo_frontend_requests_total{model="m"}`,
		"r1": `smg_http_requests_total{method="GET"}`,
	}
	for instance, series := range fleet {
		observe(r, series, `instance="`+instance+`"`)
	}
	want := map[string]Role{
		"p1": Prefill, "d1": Decode, "d2": Decode, "p2": Prefill, "u1": Unified, "v1": Unified, "f1": Frontend, "r1": RoleRouter,
	}
	roles := map[Role]int{}
	for _, s := range r.Instances() {
		if s.Role != want[s.Instance] {
			t.Errorf("%s is %q, want %q", s.Instance, s.Role, want[s.Instance])
		}
		roles[s.Role]++
	}
	sum := 0
	for _, n := range roles {
		sum += n
	}
	if sum != len(fleet) {
		t.Errorf("%d targets have a role, want %d", sum, len(fleet))
	}
}

func TestIdentity(t *testing.T) { // M12
	r := NewResolver([]Override{{Instance: "e1:30000", Aliases: []string{"http://10.0.0.1:30000", "w9"}, Name: "the first"}})
	canonical := strings.NewReplacer("ray_vllm:", "vllm:", "ray_vllm_", "vllm:", "ray_serve_sglang_", "sglang:")
	observe(r, canonical.Replace(read(t, "M12/ray.prom")), `instance="agent:8080"`)
	observe(r, `sglang:num_running_reqs{dp_rank="10",tp_rank="0"}
		sglang:num_running_reqs{dp_rank="2",tp_rank="0"}
		sglang:num_running_reqs{worker_addr="http://10.0.0.1:30000@3"}
		sglang:num_running_reqs{WorkerId="w9"}`, `instance="e1:30000"`)
	observe(r, `sglang:num_running_reqs{worker_addr="grpc://10.0.0.2:30000"}`, `instance="router:29000"`)
	var got []string
	for _, s := range r.Instances() {
		got = append(got, s.Instance+" "+string(s.View)+" "+s.Name+" "+strings.Join(s.DPRanks, ","))
	}
	want := []string{"10.0.0.2:30000 router  ", "e1:30000 direct the first 2,3,10", "w1 ray  ", "w2 ray  ", "w3 ray  "}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := r.Role("never seen"); got != RoleUnknown {
		t.Errorf("an instance that was never seen has role %q", got)
	}
}
