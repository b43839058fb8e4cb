package scrape

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/engine"
)

const sglangBody = `# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="acme/chat-7b",pp_rank="0",tp_rank="0"} 1
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{engine_type="unified",model_name="acme/chat-7b"} %d
`

// info answers /server_info.
func info(json string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/server_info" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, json)
	}
}

// A target is asked once what it is, and again after a restart; an archive learns it too.
func TestIdentify(t *testing.T) {
	p := &page{body: fmt.Sprintf(sglangBody, 100), other: info(`{"version":"0.5.15.post1","dp_size":1,"tp_size":2,"served_model_name":"acme/chat-7b","disaggregation_mode":"null"}`)}
	r := start(t, yamlConfig(t, jobFor("a", serve(t, p))))
	want := Identity{Backend: engine.SGLang, Role: engine.Unified, Version: "0.5.15.post1", Model: "acme/chat-7b", DPSize: 1, From: "/server_info"}
	eventually(t, "it is identified", func() bool { return r.first().Identity == want })
	eventually(t, "its identity is stored", func() bool {
		got := r.points(t, name(InfoMetric), eq("backend", "sglang"), eq("role", "unified"), eq("version", "0.5.15.post1"), eq("model_name", "acme/chat-7b"), eq("dp_size", "1"), eq("job", "a"))
		for _, vs := range got {
			return len(vs) > 1 && last(vs) == 1
		}
		return false
	})
	if n := r.log.count("the target is an SGLang engine 0.5.15.post1 (unified)"); n != 1 {
		t.Errorf("said %d times", n)
	}
	asked := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.paths)
	}
	hits := func() int { p.mu.Lock(); defer p.mu.Unlock(); return p.hits }
	h := hits()
	eventually(t, "several scrapes", func() bool { return hits() > h+5 })
	if n := asked(); n != 1 {
		t.Errorf("asked %d times: %v", n, p.paths)
	}
	// The engine restarts with another version: its counters begin anew.
	r.m.watch.targets.Range(func(_, v any) bool { // without waiting for the interval between probes
		tg := v.(*target)
		tg.mu.Lock()
		tg.probe.known = false
		tg.mu.Unlock()
		return true
	})
	p.set(func(p *page) { p.body, p.other = fmt.Sprintf(sglangBody, 3), info(`{"version":"0.5.16"}`) })
	eventually(t, "the new version is known", func() bool { return r.first().Identity.Version == "0.5.16" })
	eventually(t, "the old identity has ended", func() bool {
		for _, vs := range r.points(t, name(InfoMetric), eq("version", "0.5.15.post1")) {
			return last(vs) != 1 // a stale marker
		}
		return false
	})
}

// What is no engine is not asked anything beside its metrics.
func TestOthersAreLeftAlone(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		want       Identity
		words      string
	}{
		{"node", "node_load1 1\n", Identity{Backend: engine.Other}, "no program Rollscope knows"},
		{"dcgm", "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 1\n", Identity{Backend: engine.DCGM}, "DCGM"},
		{"router", "smg_http_requests_total 1\n", Identity{Backend: engine.Router, Role: engine.RoleRouter}, "router's own"},
		{"frontend", "dynamo_frontend_inflight_requests{model=\"m\"} 0\n", Identity{Backend: engine.DynamoFrontend, Role: engine.Frontend}, "Dynamo frontend"},
		{"worker", "dynamo_component_uptime_seconds 1\nsglang:num_running_reqs{engine_type=\"prefill\",model_name=\"m\",tp_rank=\"0\"} 1\n", Identity{Backend: engine.DynamoWorker, Role: engine.Prefill, Model: "m"}, "Dynamo worker (prefill)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &page{body: tt.body}
			r := start(t, yamlConfig(t, jobFor("a", serve(t, p))))
			eventually(t, "it is identified", func() bool { return r.first().Identity == tt.want })
			if len(p.paths) != 0 {
				t.Errorf("asked for %v", p.paths)
			}
			if got := Describe(tt.want); !strings.Contains(got, tt.words) {
				t.Errorf("described as %q", got)
			}
		})
	}
}

// vLLM's version and its ranks.
func TestIdentifyVLLM(t *testing.T) {
	p := &page{body: "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 1\nvllm:num_requests_running{engine=\"1\",model_name=\"m\"} 1\n",
		other: func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"version":"0.14.1"}`) }}
	r := start(t, yamlConfig(t, jobFor("a", serve(t, p))))
	eventually(t, "it is identified", func() bool {
		ti := r.first()
		return ti.Identity.Backend == engine.VLLM && ti.Identity.Version == "0.14.1" && ti.Identity.Role == engine.Unified && slices.Equal(ti.DPRanks, []string{"0", "1"})
	})
}

// The side endpoints are asked with the target's own credentials.
func TestIdentifyWithCredentials(t *testing.T) {
	p := &page{body: fmt.Sprintf(sglangBody, 1), other: info(`{"version":"1.2.3","disaggregation_mode":"prefill"}`)}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		p.ServeHTTP(w, r)
	})
	srv := newServer(t, h)
	r := start(t, yamlConfig(t, jobFor("a", srv)+"  authorization: {credentials: secret}\n"))
	eventually(t, "it is identified", func() bool {
		id := r.first().Identity
		return id.Version == "1.2.3" && id.Role == engine.Prefill
	})
}

// Case M06: dp_size 4 and one unlabelled rank is under-reported; four labelled ranks are not.
func TestRanksUnderReported(t *testing.T) {
	si := info(read(t, "testdata/cases/M06/server_info.json"))
	un := &page{body: read(t, "testdata/cases/M06/unlabelled.prom"), other: si}
	all := &page{body: read(t, "testdata/cases/M06/labelled.prom"), other: si}
	r := start(t, yamlConfig(t, jobFor("all", serve(t, all))+jobFor("un", serve(t, un))))
	eventually(t, "both are identified", func() bool {
		ts := r.m.Targets()
		return len(ts) == 2 && ts[0].Identity.DPSize == 4 && ts[1].Identity.DPSize == 4
	})
	ts := r.m.Targets()
	has := func(ti TargetInfo, msg string) bool {
		return slices.ContainsFunc(ti.Findings, func(f Finding) bool { return f.Code == "under_reported" && f.Message == msg })
	}
	if has(ts[0], "under-reported: 1 of 4 DP ranks visible") || len(ts[0].DPRanks) != 4 {
		t.Errorf("labelled: %+v", ts[0])
	}
	if !has(ts[1], "under-reported: 1 of 4 DP ranks visible") {
		t.Errorf("unlabelled: %+v", ts[1].Findings)
	}
	sum := 0.0
	for _, vs := range r.points(t, name("sglang:gen_throughput"), eq("job", "all")) {
		sum += last(vs)
	}
	if sum != 300 {
		t.Errorf("gen_throughput of all ranks: %v", sum)
	}
	if n := r.log.count("under-reported"); n != 1 {
		t.Errorf("warned %d times", n)
	}
}

// Case M09: scheduler gauges say decode, token counters unified; it is decode, and said once.
func TestRoleConflict(t *testing.T) {
	p := &page{body: read(t, "testdata/cases/M09/pd.prom")}
	r := start(t, yamlConfig(t, jobFor("a", serve(t, p))))
	eventually(t, "its role is known", func() bool { return r.first().Identity.Role == engine.Decode })
	eventually(t, "the conflict is listed", func() bool {
		return slices.ContainsFunc(r.first().Findings, func(f Finding) bool { return f.Code == "role_conflict" })
	})
	if n := r.log.count("disagree about the role"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

// A router's view: its list is compared with what it answers for.
func TestRouterView(t *testing.T) {
	p := &page{path: "/engine_metrics", body: read(t, "testdata/cases/M01/router.prom"), other: func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/workers" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"workers":[{"url":"http://10.0.0.11:30000","is_healthy":true},{"url":"http://10.0.0.12:30000","is_healthy":false}],"total":2}`)
	}}
	addr := serve(t, p)
	r := start(t, yamlConfig(t, jobFor("r", addr)+"  metrics_path: /engine_metrics\n"))
	eventually(t, "it is identified", func() bool {
		id := r.first().Identity
		return id.Backend == engine.EngineMetrics && id.Role == engine.RoleRouter && id.Workers == 1
	})
	eventually(t, "the missing engine is named", func() bool {
		return slices.ContainsFunc(r.first().Findings, func(f Finding) bool {
			return f.Code == "missing_workers" && strings.Contains(f.Message, "10.0.0.12:30000")
		})
	})
	if !strings.Contains(r.log.String(), "--scrape "+addr+"/workers") {
		t.Error("the user is not told how to scrape the engines directly")
	}
}

// Two engines with other bucket bounds of one histogram: both are told about the other.
func TestFleetBucketLayouts(t *testing.T) {
	body := func(le string) string {
		return "# TYPE sglang:h histogram\nsglang:h_bucket{le=\"" + le + "\"} 1\nsglang:h_bucket{le=\"+Inf\"} 1\nsglang:h_sum 1\nsglang:h_count 1\n"
	}
	a, b := serve(t, &page{body: body("1.0")}), serve(t, &page{body: body("2.0")})
	r := start(t, yamlConfig(t, jobFor("a", a)+jobFor("b", b)+jobFor("c", serve(t, &page{body: body("1")}))))
	eventually(t, "two layouts are known", func() bool {
		l := r.m.Layouts()["sglang:h"]
		return len(l) == 2 && len(l[0].Targets) == 2 && slices.Equal(l[1].Targets, []string{b})
	})
	for _, ti := range r.m.Targets() {
		i := slices.IndexFunc(ti.Findings, func(f Finding) bool { return f.Code == "fleet_bucket_layouts" })
		if i < 0 {
			t.Errorf("%s: %+v", ti.Job, ti.Findings)
		} else if ti.Job == "a" && !strings.Contains(ti.Findings[i].Message, b) {
			t.Errorf("%+v does not name %s", ti.Findings[i], b)
		}
	}
}

// Case M22 as a server: two processes answer in turn.
func TestAlternatingProcesses(t *testing.T) {
	n := 0
	values := []string{"100 1000", "20 2000", "130 1000", "25 2000", "160 1000"}
	srv := newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var v, s string
		fmt.Sscan(values[n%len(values)], &v, &s)
		n++
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintf(w, "sglang:generation_tokens_total %s\nprocess_start_time_seconds %s\n", v, s)
	}))
	r := start(t, yamlConfig(t, jobFor("svc", srv)))
	eventually(t, "it is diagnosed", func() bool {
		return slices.ContainsFunc(r.first().Findings, func(f Finding) bool {
			return f.Code == "alternating" && strings.Contains(f.Message, "alternates between 2 processes")
		})
	})
	if c := r.log.count("alternates between 2 processes"); c != 1 {
		t.Errorf("said %d times", c)
	}
}

// A metric changes its type when the engine is upgraded in place.
func TestTypeChange(t *testing.T) {
	p := &page{body: "# TYPE sglang:kv_transfer_latency_ms gauge\nsglang:kv_transfer_latency_ms 4\n"}
	r := start(t, yamlConfig(t, jobFor("a", serve(t, p))))
	eventually(t, "it is identified", func() bool { return r.first().Identity.Backend == engine.SGLang })
	r.m.watch.targets.Range(func(_, v any) bool {
		tg := v.(*target)
		tg.mu.Lock()
		tg.identified, tg.probe.known = false, false
		tg.mu.Unlock()
		return true
	})
	p.set(func(p *page) {
		p.body = "# TYPE sglang:kv_transfer_latency_ms histogram\nsglang:kv_transfer_latency_ms_bucket{le=\"+Inf\"} 1\nsglang:kv_transfer_latency_ms_sum 4\nsglang:kv_transfer_latency_ms_count 1\n"
	})
	eventually(t, "the change is said", func() bool {
		return slices.ContainsFunc(r.first().Findings, func(f Finding) bool {
			return f.Code == "type_changed" && strings.Contains(f.Message, "was a gauge and is a histogram")
		})
	})
}

// Case M03: one model under two names is said, with the proof by worker_addr where there is one.
func TestModelNamesOfARouter(t *testing.T) {
	direct := serve(t, &page{body: read(t, "testdata/cases/M03/engine.prom")})
	router := read(t, "testdata/cases/M03/router.prom")
	proven := strings.ReplaceAll(router, "10.0.0.11:30000", direct)
	r := start(t, yamlConfig(t, jobFor("direct", direct)+
		jobFor("probable", serve(t, &page{path: "/engine_metrics", body: router}))+"  metrics_path: /engine_metrics\n"+
		jobFor("proven", serve(t, &page{path: "/engine_metrics", body: proven}))+"  metrics_path: /engine_metrics\n"))
	for job, want := range map[string]string{"probable": "probably the same", "proven": "the same, by worker_addr"} {
		eventually(t, job, func() bool {
			for _, ti := range r.m.Targets() {
				if ti.Job == job && slices.ContainsFunc(ti.Findings, func(f Finding) bool {
					return f.Code == "model_renamed" && strings.Contains(f.Message, want) && strings.Contains(f.Message, "acme/chat-7b:v2")
				}) {
					return true
				}
			}
			return false
		})
	}
	eventually(t, "worker_addr is intact", func() bool {
		return len(r.points(t, name("sglang:realtime_tokens_total"), eq("worker_addr", "http://10.0.0.11:30000"))) == 1
	})
}

// A router's serving port has no /metrics: the user is told what to scrape there.
func TestRouterAskedForMetrics(t *testing.T) {
	p := &page{path: "/engine_metrics", other: func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/list_workers" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"urls":["http://10.0.0.1:1"]}`)
	}}
	addr := serve(t, p)
	r := start(t, yamlConfig(t, jobFor("a", addr)))
	eventually(t, "it is told", func() bool {
		ti := r.first()
		return ti.Reason == "http_404" && strings.Contains(ti.Hint, "--scrape "+addr+"/list_workers") && strings.Contains(ti.Hint, "/engine_metrics")
	})
}
