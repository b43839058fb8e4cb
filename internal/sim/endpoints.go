package sim

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Endpoints lists the paths that a member answers.
func (f *Fleet) Endpoints(member string) []string {
	m := f.byName[member]
	if m == nil {
		return nil
	}
	switch m.spec.Kind {
	case VLLM:
		return []string{"/metrics", "/health", "/version", "/v1/models"}
	case Router:
		return []string{"/metrics", "/engine_metrics", "/health", "/workers", "/list_workers", "/v1/models"}
	case DynamoFrontend:
		return []string{"/metrics", "/health", "/live", "/v1/models"}
	case DynamoWorker:
		return []string{"/metrics", "/health", "/live"}
	case DCGM:
		return []string{"/metrics", "/health"}
	}
	return []string{"/metrics", "/health", "/server_info", "/get_server_info", "/v1/models", "/v1/loads"}
}

// Answer is what a member answers to GET path (with its query, if any): its exposition, or one of its
// side endpoints. Status 0 means connection refused.
func (f *Fleet) Answer(member, path, accept string) (body []byte, contentType string, status int) {
	m := f.byName[member]
	if m == nil {
		return notFound()
	}
	if m.down() {
		return nil, "", refusedState
	}
	path, query, _ := strings.Cut(path, "?")
	switch path {
	case "/metrics", "/metrics/":
		return f.ExpositionFor(member, accept)
	case "/engine_metrics":
		if m.spec.Kind == Router {
			return f.ExpositionFor(member+engineMetrics, accept)
		}
		return notFound()
	}
	var v any
	switch m.spec.Kind {
	case SGLang:
		if path == "/v1/loads" && strings.Contains(query, "format=prometheus") {
			return m.loadsText(), textPlain, 200
		}
		v = f.sglangAnswer(m, path)
	case VLLM:
		switch path {
		case "/health":
			return nil, "text/plain", 200
		case "/version":
			v = map[string]any{"version": m.spec.Version}
		case "/v1/models":
			v = models(m.spec.Model, "vllm")
		}
	case Router:
		v = f.routerAnswer(m, path)
	case DCGM:
		if path == "/health" {
			v = "OK"
		}
	case DynamoFrontend:
		v = f.frontendAnswer(m, path)
	case DynamoWorker:
		if path == "/health" || path == "/live" {
			up := f.now - m.server.began
			v = map[string]any{
				"endpoints": map[string]string{"generate": "ready", "clear_kv_blocks": "ready", "load_metrics": "ready"},
				"status":    "ready",
				"uptime":    map[string]int{"secs": int(up), "nanos": 0},
			}
			b, _ := json.Marshal(v) // maps of strings and numbers
			return b, "text/plain; charset=utf-8", 200
		}
	}
	switch v := v.(type) {
	case nil:
		return notFound()
	case string:
		return []byte(v), "text/plain; charset=utf-8", 200
	default:
		b, err := json.Marshal(v)
		if err != nil {
			return []byte(err.Error()), "text/plain; charset=utf-8", 500
		}
		return b, jsonText, 200
	}
}

func notFound() ([]byte, string, int) { return []byte(`{"detail":"Not Found"}`), jsonText, 404 }

func models(name, owner string) any {
	return map[string]any{"object": "list", "data": []any{map[string]any{"id": name, "object": "model", "owned_by": owner}}}
}

func (f *Fleet) sglangAnswer(m *member, path string) any {
	spec := &m.spec
	switch path {
	case "/health", "/health_generate":
		return ""
	case "/v1/models":
		return models(spec.Model, "sglang")
	case "/server_info", "/get_server_info":
		var states []any
		for _, s := range m.server.scheds {
			state := map[string]any{
				"last_gen_throughput":            s.throughput,
				"memory_usage":                   map[string]any{"kvcache": float64(spec.Hardware.KVTokens) * spec.Hardware.KVBytes / 1e9, "token_capacity": spec.Hardware.KVTokens},
				"effective_max_running_requests": spec.Hardware.MaxRunning,
			}
			if spec.Speculative {
				state["avg_spec_accept_length"] = s.accept
			}
			states = append(states, state)
		}
		return map[string]any{
			"version": m.server.spec.Version, "model_path": spec.Model, "served_model_name": spec.Model,
			"tp_size": spec.TP * max(spec.DP, 1), "dp_size": max(spec.DP, 1), "pp_size": 1, "ep_size": 1,
			"enable_dp_attention": spec.DP > 1, "disaggregation_mode": disaggregationMode(spec.Role),
			"enable_metrics": true, "max_total_num_tokens": spec.Hardware.KVTokens,
			"chunked_prefill_size": spec.Hardware.Chunk, "status": "ready", "internal_states": states,
		}
	case "/v1/loads":
		var loads []any
		for i, s := range m.server.scheds {
			loads = append(loads, map[string]any{
				"dp_rank": i, "num_running_reqs": len(s.batch), "num_waiting_reqs": len(s.queue),
				"num_used_tokens": s.pool.used(), "max_total_num_tokens": s.pool.capacity,
				"token_usage": float64(s.pool.used()) / float64(s.pool.capacity), "gen_throughput": s.throughput,
			})
		}
		return map[string]any{"timestamp": f.Now().Format("2006-01-02T15:04:05.000Z07:00"), "version": m.server.spec.Version, "loads": loads}
	}
	return nil
}

// loadsText is /v1/loads?format=prometheus: gauges with dp_rank only, some under the names of other metrics.
func (m *member) loadsText() []byte {
	var b strings.Builder
	family := func(name string, value func(s *scheduler) float64) {
		fmt.Fprintf(&b, "# TYPE %s gauge\n", name)
		for i, s := range m.server.scheds {
			fmt.Fprintf(&b, "%s{dp_rank=\"%d\"} %s\n", name, i, strconv.FormatFloat(value(s), 'g', -1, 64))
		}
	}
	family("sglang_num_running_reqs", func(s *scheduler) float64 { return float64(len(s.batch)) })
	family("sglang_num_waiting_reqs", func(s *scheduler) float64 { return float64(len(s.queue)) })
	family("sglang_token_usage", func(s *scheduler) float64 { return float64(s.pool.used()) / float64(s.pool.capacity) })
	family("sglang_num_total_tokens", func(s *scheduler) float64 { return float64(s.pool.used() + s.pool.evictable) })
	family("sglang_queues_waiting", func(s *scheduler) float64 { return float64(len(s.queue)) })
	return []byte(b.String())
}

func (f *Fleet) routerAnswer(m *member, path string) any {
	switch path {
	case "/health", "/liveness", "/readiness":
		return "OK"
	case "/v1/models":
		return models(m.front.anyWorker().spec.Model, "sglang")
	}
	var urls []string
	var workers []any
	counts := map[string]int{"regular_count": 0, "prefill_count": 0, "decode_count": 0}
	for _, k := range []struct {
		kind string
		list []*server
	}{{"regular", m.front.workers}, {"prefill", m.front.prefills}, {"decode", m.front.decodes}} {
		for _, sv := range k.list {
			url := "http://" + sv.spec.Addr
			urls = append(urls, url)
			counts[k.kind+"_count"]++
			workers = append(workers, map[string]any{
				"id": fmt.Sprintf("%x", mix(uint64(sv.pid))), "url": url, "model_id": sv.spec.Model, "worker_type": k.kind,
				"connection_mode": "http", "runtime_type": "sglang", "is_healthy": !sv.down, "load": m.front.perWork[sv],
				"priority": 50, "cost": 1.0,
			})
		}
	}
	switch path {
	case "/workers":
		return map[string]any{"workers": workers, "total": len(workers), "stats": counts}
	case "/list_workers":
		return map[string]any{"urls": urls}
	}
	return nil
}

func (f *Fleet) frontendAnswer(m *member, path string) any {
	switch path {
	case "/live":
		return map[string]string{"message": "Service is live", "status": "live"}
	case "/v1/models":
		return models(m.front.anyWorker().spec.Model, "nvidia")
	case "/health":
		var instances []any
		for _, list := range [][]*server{m.front.workers, m.front.prefills, m.front.decodes} {
			for _, sv := range list {
				if sv.down {
					continue
				}
				component := "backend"
				if sv.prefillOnly() {
					component = "prefill"
				}
				id, _ := strconv.ParseUint(workerID(sv), 16, 64) // written by workerID
				instances = append(instances, map[string]any{
					"component": component, "endpoint": "generate", "namespace": "dynamo", "instance_id": id,
					"transport": map[string]string{"nats_tcp": "dynamo_" + component + ".generate-" + workerID(sv)},
				})
			}
		}
		if len(instances) == 0 {
			return map[string]any{"instances": []any{}, "message": "No endpoints available", "status": "unhealthy"}
		}
		return map[string]any{"endpoints": []string{"dyn://dynamo.backend.generate"}, "instances": instances, "status": "healthy"}
	}
	return nil
}
