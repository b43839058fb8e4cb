package sim

import "strings"

// gateway writes a router's own smg_* metrics.
type gateway struct {
	f           *front
	reg         *registry
	requests    *metric
	errors      *metric
	unavailable *metric
	retries     *metric
	queueDepth  *metric // SMG 1.x: the gateway's own queue
	queueWait   *metric
	pdTTFT      *metric
	duration    *metric
	httpIn      *metric
	httpTook    *metric
	httpOK      *metric
	httpBad     *metric
	connections *metric
	inflight    []*metric // by age, not cumulative
	selections  []*metric
	pool        []*metric
	workers     map[*server]*gatewayWorker
	all         []*gatewayWorker
	open        map[uint64]float64 // requests in progress and when they came
}

type gatewayWorker struct {
	sv                                *server
	active, health, breaker           *metric
	ok, bad, toOpen, toClosed, probes *metric
	failures, successes               *metric
	wasDown                           bool
}

func newRouter(f *front) []*registry {
	if f.spec.Version == "" {
		f.spec.Version = "0.3.1"
	}
	r := newRegistry(rust)
	g := &gateway{f: f, reg: r, workers: map[*server]*gatewayWorker{}, open: map[uint64]float64{}}
	backend := "regular"
	if len(f.prefills) > 0 {
		backend = "pd"
	}
	model := f.anyWorker().spec.Model
	base := labels{{"backend_type", backend}, {"connection_mode", "http"}, {"endpoint", "generate"}, {"model", model}, {"router_type", "http"}}
	g.requests = r.counter("smg_router_requests_total", "Total requests routed by the router", base.with("streaming", "true"))
	g.duration = r.histogram("smg_router_request_duration_seconds", "Router request duration in seconds", base, gatewayBounds())
	g.errors = r.counter("smg_router_request_errors_total", "Total request errors in the router", base.with("error_type", "upstream_error"))
	g.unavailable = r.counter("smg_router_request_errors_total", "Total request errors in the router", base.with("error_type", "no_available_workers"))
	kind := "regular"
	if backend == "pd" {
		kind = "decode"
	}
	g.retries = r.counter("smg_worker_retries_total", "Total worker retries", labels{{"endpoint", "generate"}, {"worker_type", kind}})
	if f.fills() {
		g.queueDepth = r.gauge("smg_scheduler_queue_depth", "Requests in the gateway's queue", labels{{"priority", "default"}})
		g.queueWait = r.histogram("smg_scheduler_queue_wait_seconds", "Wait in the gateway's queue in seconds", labels{{"priority", "default"}}, gatewayBounds())
		if backend == "pd" {
			g.pdTTFT = r.histogram("smg_pd_ttft_seconds", "Time to first token over prefill and decode", labels{{"model", model}}, gatewayBounds())
		}
	}
	path := labels{{"method", "POST"}, {"path", "/generate"}}
	g.httpIn = r.counter("smg_http_requests_total", "Total HTTP requests received", path)
	g.httpTook = r.histogram("smg_http_request_duration_seconds", "HTTP request duration in seconds", path, gatewayBounds())
	g.httpOK = r.counter("smg_http_responses_total", "Total HTTP responses sent", labels{{"error_code", ""}, {"status_code", "200"}})
	g.httpBad = r.counter("smg_http_responses_total", "Total HTTP responses sent", labels{{"error_code", "no_available_workers"}, {"status_code", "503"}})
	g.connections = r.gauge("smg_http_connections_active", "Active HTTP connections", nil)
	ages := []string{"0", "30", "60", "180", "360", "900", "+Inf"}
	for i := 0; i+1 < len(ages); i++ {
		g.inflight = append(g.inflight, r.gauge("smg_http_inflight_request_age_count", "In-flight requests by age", labels{{"gt", ages[i]}, {"le", ages[i+1]}}))
	}
	for _, k := range []struct {
		kind string
		list []*server
	}{{"regular", f.workers}, {"prefill", f.prefills}, {"decode", f.decodes}} {
		if len(k.list) == 0 {
			continue
		}
		ls := labels{{"connection_mode", "http"}, {"model", model}, {"worker_type", k.kind}}
		g.pool = append(g.pool, r.gauge("smg_worker_pool_size", "Number of workers in the pool", ls))
		g.selections = append(g.selections, r.counter("smg_worker_selection_total", "Total worker selections", ls.with("policy", "cache_aware")))
		for _, sv := range k.list {
			w := &gatewayWorker{sv: sv}
			url := labels{{"worker", "http://" + sv.spec.Addr}}
			w.active = r.gauge("smg_worker_requests_active", "Active requests per worker", url)
			w.health = r.gauge("smg_worker_health", "Worker health status (1=healthy, 0=unhealthy)", url)
			w.breaker = r.gauge("smg_worker_cb_state", "Circuit breaker state (0=closed, 1=open, 2=half-open)", url)
			w.failures = r.gauge("smg_worker_cb_consecutive_failures", "Consecutive failures of a worker", url)
			w.successes = r.gauge("smg_worker_cb_consecutive_successes", "Consecutive successes of a worker", url)
			w.ok = r.counter("smg_worker_cb_outcomes_total", "Circuit breaker outcomes", url.with("outcome", "success"))
			w.bad = r.counter("smg_worker_cb_outcomes_total", "Circuit breaker outcomes", url.with("outcome", "failure"))
			w.toOpen = r.counter("smg_worker_cb_transitions_total", "Circuit breaker state transitions", url.with("from", "closed", "to", "open"))
			w.toClosed = r.counter("smg_worker_cb_transitions_total", "Circuit breaker state transitions", url.with("from", "half_open", "to", "closed"))
			w.probes = r.counter("smg_worker_errors_total", "Total worker errors", labels{{"connection_mode", "http"}, {"error_type", "health_check_failed"}, {"worker_type", k.kind}})
			g.workers[sv] = w
			g.all = append(g.all, w)
		}
	}
	f.obs = g
	return []*registry{r}
}

func (g *gateway) started() {
	g.reg.reset()
	clear(g.open)
}

// anyWorker is a worker of the front; connect has made sure that there is one.
func (f *front) anyWorker() *server {
	for _, list := range [][]*server{f.workers, f.prefills, f.decodes} {
		if len(list) > 0 {
			return list[0]
		}
	}
	return nil
}

// rewire takes over new addresses of the workers.
func (g *gateway) rewire() {
	for _, w := range g.all {
		for _, m := range []*metric{w.active, w.health, w.breaker, w.failures, w.successes, w.ok, w.bad, w.toOpen, w.toClosed} {
			for i := range m.labels {
				if m.labels[i].name == "worker" {
					m.labels[i].value = "http://" + w.sv.spec.Addr
				}
			}
			m.heads = [styles][][]byte{}
		}
	}
}

func (g *gateway) accepted(_ *front, r *request, w *server) {
	g.requests.add(1)
	g.httpIn.add(1)
	for _, m := range g.selections {
		m.add(1)
	}
	g.open[r.id] = r.born
	g.queueWait.observe(0.0004)
}

func (g *gateway) firstToken(r *request, now float64) { g.pdTTFT.observe(now - r.born) }
func (g *gateway) tokens(float64, float64)            {}
func (g *gateway) retried(*front)                     { g.retries.add(1) }

func (g *gateway) finished(r *request, o outcome, now float64) {
	delete(g.open, r.id)
	g.duration.observe(now - r.born)
	g.httpTook.observe(now - r.born)
	g.httpOK.add(1)
	w := g.workers[r.sched.server]
	if o == failed {
		g.errors.add(1)
		w.bad.add(1)
		return
	}
	w.ok.add(1)
}

func (g *gateway) refused(*front) {
	g.httpIn.add(1)
	g.httpBad.add(1)
	g.unavailable.add(1)
}

func (g *gateway) tick(f *front, now float64) {
	g.connections.set(float64(f.active))
	g.queueDepth.set(0)
	if f.fleet.ticks%20 != 0 {
		return
	}
	bounds := []float64{30, 60, 180, 360, 900}
	counts := make([]float64, len(bounds)+1)
	for _, born := range g.open { // addition of whole numbers: the order of the map does not matter
		i := 0
		for i < len(bounds) && now-born > bounds[i] {
			i++
		}
		counts[i]++
	}
	for i, m := range g.inflight {
		m.set(counts[i])
	}
	i := 0
	for _, list := range [][]*server{f.workers, f.prefills, f.decodes} {
		if len(list) > 0 {
			g.pool[i].set(float64(len(list)))
			i++
		}
	}
	for _, w := range g.all {
		up := 1.0
		if w.sv.down {
			up = 0
			w.probes.add(1)
			w.failures.add(1)
			w.successes.set(0)
		} else {
			w.failures.set(0)
			w.successes.add(1)
		}
		if w.sv.down && !w.wasDown {
			w.toOpen.add(1)
		}
		if !w.sv.down && w.wasDown {
			w.toClosed.add(1)
		}
		w.wasDown = w.sv.down
		w.health.set(up)
		w.breaker.set(1 - up)
		w.active.set(float64(f.perWork[w.sv]))
	}
}

// aggregate renders the router's /engine_metrics: the expositions of all workers that answer, every
// ':' replaced, worker_addr added, families merged. Gateways before SMG fail as a whole when the
// label names of a family differ between workers; SMG fills the missing ones with "", which is how
// the text format writes a label that is absent, so they are left out here.
func aggregate(body []byte, workers []*registry, fill bool) (out []byte, ok bool) {
	if !fill && !agree(workers) {
		return append(body, "Failed to aggregate metrics: Label names should agree on metrics of one family"...), false
	}
	for _, w := range workers {
		for _, f := range w.families {
			if owner(workers, f.name) != w {
				continue
			}
			at := len(body)
			if at > 0 {
				body = append(body, '\n')
			}
			head := len(body)
			for _, other := range workers {
				of := other.byName[f.name]
				if of == nil {
					continue
				}
				for _, m := range of.metrics {
					if !m.present {
						continue
					}
					if len(body) == head {
						body = append(body, f.headText(routed)...)
					}
					body = other.appendMetric(body, m, routed, nil)
				}
			}
			if len(body) == head {
				body = body[:at] // nobody has written it yet
			}
		}
	}
	return body, true
}

// agree tells whether the label names of every family are the same on all workers.
func agree(workers []*registry) bool {
	names := map[string]string{}
	for _, w := range workers {
		for _, f := range w.families {
			for _, m := range f.metrics {
				if !m.present {
					continue
				}
				if want, ok := names[f.name]; ok && want != m.names {
					return false
				}
				names[f.name] = m.names
			}
		}
	}
	return true
}

// owner is the first worker that has a family.
func owner(workers []*registry, name string) *registry {
	for _, w := range workers {
		if w.byName[name] != nil {
			return w
		}
	}
	return nil
}

// fills tells whether this gateway completes label sets that differ (SMG from 1.3.3 on).
func (f *front) fills() bool { return !strings.HasPrefix(f.spec.Version, "0.") }
