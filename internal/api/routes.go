package api

import (
	"net/http"
	"strings"
)

// Route is one line of the table.
type Route struct {
	Method  string // GET answers HEAD too
	Path    string // as http.ServeMux has it, without a method
	Scope   Scope  // what a request needs
	Body    int64  // the largest body in bytes, as sent; 0 takes none
	handler http.Handler
}

// Body limits in bytes.
const (
	noBody    = 0
	formBody  = 1 << 20  // a query in a form
	writeBody = 16 << 20 // a batch of samples, compressed
	dumpBody  = 64 << 20 // a batch of rollout samples, compressed
)

const ours = "/api/rollscope/v1"

// routes is the one table: what is not here is not served.
func (a *API) routes() []Route {
	table := []Route{
		{"GET", ours + "/status", ScopeRead, noBody, a.ready(a.getStatus)},
		{"GET", ours + "/drops", ScopeRead, noBody, a.ready(a.getDrops)},
		{"GET", ours + "/live", ScopeRead, noBody, http.HandlerFunc(a.getLive)},
		{"GET", ours + "/events", ScopeRead, noBody, a.ready(a.getEvents)},
		{"GET", ours + "/logs", ScopeRead, noBody, a.ready(a.getLogs)},
		{"GET", ours + "/logs/histogram", ScopeRead, noBody, a.ready(a.getLogHistogram)},

		{"GET", ours + "/rollouts", ScopeRead, noBody, a.ready(a.getRuns)},
		{"POST", ours + "/rollouts", ScopeWrite, dumpBody, a.ready(a.postRollouts)},
		{"GET", ours + "/rollouts/{run}/steps", ScopeRead, noBody, a.ready(a.getSteps)},
		{"GET", ours + "/rollouts/{run}/steps/{kind}/{step}", ScopeRead, noBody, a.ready(a.getStep)},
		{"GET", ours + "/requests", ScopeRead, noBody, a.ready(a.getRequests)},
		{"GET", ours + "/requests/summary", ScopeRead, noBody, a.ready(a.getRequestSummary)},
		{"GET", ours + "/requests/points", ScopeRead, noBody, a.ready(a.getRequestPoints)},
		{"GET", ours + "/requests/{id}", ScopeRead, noBody, a.ready(a.getRequest)},
		{"GET", ours + "/traces", ScopeRead, noBody, a.ready(a.getTraces)},
		{"GET", ours + "/traces/services", ScopeRead, noBody, a.ready(a.getTraceServices)},
		{"GET", ours + "/traces/{id}", ScopeRead, noBody, a.ready(a.getTrace)},
		{"GET", ours + "/doctor/tracing", ScopeRead, noBody, a.ready(a.getDoctorTracing)},
		{"GET", ours + "/timelines", ScopeRead, noBody, a.ready(a.getTimelines)},
		{"GET", ours + "/timelines/{id}", ScopeRead, noBody, a.container(a.getTimelineHead)},
		{"GET", ours + "/timelines/{id}/order", ScopeRead, noBody, a.container(a.getTimelineOrder)},
		{"GET", ours + "/timelines/{id}/window", ScopeRead, noBody, a.container(a.getTimelineWindow)},
		{"GET", ours + "/timelines/{id}/raster", ScopeRead, noBody, a.container(a.getTimelineRaster)},
		{"GET", ours + "/timelines/{id}/stats", ScopeRead, noBody, a.ready(a.getTimelineStats)},
		{"GET", ours + "/timelines/{id}/summary", ScopeRead, noBody, a.ready(a.getTimelineSummary)},
		{"GET", ours + "/timelines/{id}/find", ScopeRead, noBody, a.ready(a.getTimelineFind)},
		{"GET", ours + "/timelines/{id}/rows/{row}", ScopeRead, noBody, a.ready(a.getTimelineRow)},
		{"GET", ours + "/timelines/{id}/rows/{row}/text", ScopeRead, noBody, a.ready(a.getTimelineText)},
		{"GET", ours + "/timelines/{id}/perfetto", ScopeRead, noBody, a.perfetto()},

		{"GET", "/metrics", ScopeRead, noBody, a.ownMetrics()},
		{"GET", "/-/healthy", ScopeRead, noBody, http.HandlerFunc(a.healthy)},
		{"GET", "/-/ready", ScopeRead, noBody, http.HandlerFunc(a.isReady)},
		{"POST", "/-/reload", ScopeAdmin, formBody, http.HandlerFunc(a.reload)},
		{"PUT", "/-/reload", ScopeAdmin, formBody, http.HandlerFunc(a.reload)},
	}
	if a.Reader != nil {
		table = append(table, a.metricRoutes()...)
	}
	if a.Traces != nil {
		table = append(table, a.traceRoutes()...)
	}
	table = append(table, a.eventRoutes()...)
	table = append(table, a.passRoutes()...)
	if a.UI != nil {
		table = append(table, Route{"GET", "/", ScopeRead, noBody, http.HandlerFunc(a.page)})
	}
	return table
}

// metricRoutes are those that answer from metrics.
func (a *API) metricRoutes() []Route {
	table := []Route{
		{"GET", ours + "/targets", ScopeRead, noBody, a.ready(a.getTargets)},
		{"GET", ours + "/engines", ScopeRead, noBody, a.ready(a.getEngines)},
		{"GET", ours + "/engines/{id}", ScopeRead, noBody, a.ready(a.getEngine)},
		{"GET", ours + "/signals", ScopeRead, noBody, a.ready(a.getSignals)},
		{"GET", ours + "/signals/{id}", ScopeRead, noBody, a.ready(a.getSignal)},
		{"GET", ours + "/metrics-catalog", ScopeRead, noBody, a.ready(a.getMetrics)},
		{"GET", ours + "/overview", ScopeRead, noBody, a.ready(a.getOverview)},
		{"GET", ours + "/alerts", ScopeRead, noBody, a.ready(a.getAlerts)},
		{"GET", ours + "/boards", ScopeRead, noBody, a.ready(a.getBoards)},
		{"GET", ours + "/boards/{id}", ScopeRead, noBody, a.ready(a.getBoard)},
		{"GET", ours + "/config", ScopeRead, noBody, a.ready(a.getConfig)},

		{"GET", "/api/search", ScopeRead, noBody, http.HandlerFunc(a.grafanaSearch)},
		{"GET", "/api/dashboards/uid/{uid}", ScopeRead, noBody, http.HandlerFunc(a.grafanaDashboard)},

		{"GET", "/federate", ScopeRead, noBody, http.HandlerFunc(a.federate)},
	}
	prom := a.prometheusV1()
	for _, p := range prometheusPaths {
		scope, body := p.scope, int64(formBody)
		if scope == 0 {
			scope = ScopeRead
		}
		if scope == ScopeWrite {
			body = writeBody
		}
		for method := range strings.FieldsSeq(p.methods) {
			size := body
			if method == "GET" {
				size = noBody
			}
			table = append(table, Route{method, "/api/v1" + p.path, scope, size, prom})
		}
	}
	return table
}

// prometheusPaths are the paths of Prometheus's HTTP API that we serve, below /api/v1. The scope is
// read where none stands.
var prometheusPaths = []struct {
	methods, path string
	scope         Scope
}{
	{methods: "GET POST", path: "/query"},
	{methods: "GET POST", path: "/query_range"},
	{methods: "GET POST", path: "/query_exemplars"},
	{methods: "GET POST", path: "/format_query"},
	{methods: "GET POST", path: "/parse_query"},
	{methods: "GET POST", path: "/labels"},
	{methods: "GET", path: "/label/{name}/values"},
	{methods: "GET POST", path: "/series"},
	{methods: "GET", path: "/metadata"},
	{methods: "GET", path: "/scrape_pools"},
	{methods: "GET", path: "/scrape_pools/config"},
	{methods: "GET", path: "/targets"},
	{methods: "GET", path: "/targets/metadata"},
	{methods: "GET", path: "/targets/relabel_steps"},
	{methods: "GET", path: "/rules"},
	{methods: "GET", path: "/alerts"},
	{methods: "GET", path: "/alertmanagers"},
	{methods: "GET", path: "/status/config"},
	{methods: "GET", path: "/status/flags"},
	{methods: "GET", path: "/status/runtimeinfo"},
	{methods: "GET", path: "/status/buildinfo"},
	{methods: "GET", path: "/status/tsdb"},
	{methods: "GET", path: "/status/tsdb/blocks"},
	{methods: "GET", path: "/status/walreplay"},
	{methods: "GET", path: "/features"},
	{methods: "GET", path: "/openapi.yaml"},
	{methods: "POST", path: "/read"},
	{methods: "POST", path: "/write", scope: ScopeWrite},
	{methods: "POST", path: "/otlp/v1/metrics", scope: ScopeWrite},
	{methods: "POST PUT", path: "/admin/tsdb/delete_series", scope: ScopeAdmin},
	{methods: "POST PUT", path: "/admin/tsdb/clean_tombstones", scope: ScopeAdmin},
	{methods: "POST PUT", path: "/admin/tsdb/snapshot", scope: ScopeAdmin},
}

// faceOf tells whose error format a path speaks.
func faceOf(path string) face {
	switch {
	case strings.HasPrefix(path, "/api/v1/"):
		return facePrometheus
	case path == "/api/search" || strings.HasPrefix(path, "/api/dashboards/"):
		return faceGrafana
	case jaegerPath(path):
		return faceJaeger
	}
	return faceOurs
}
