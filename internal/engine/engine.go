// Package engine says which process a number belongs to: its identity, what kind of program it is,
// and which role it plays. Its entry point is [Resolver], the one place where two names are judged
// to mean the same engine.
package engine

import "strings"

// Backend is the kind of program behind a target or a series.
type Backend string

// Backends, as they are written in the `backend` label of recorded series and in the API.
const (
	SGLang         Backend = "sglang"          // an SGLang engine, asked directly or through a router
	VLLM           Backend = "vllm"            // a vLLM engine
	DynamoFrontend Backend = "dynamo_frontend" // NVIDIA Dynamo's HTTP frontend
	DynamoWorker   Backend = "dynamo_worker"   // NVIDIA Dynamo's worker runtime (may pass an engine's metrics on)
	Router         Backend = "router"          // a router's own metrics (smg_*, sgl_router_*)
	EngineMetrics  Backend = "engine_metrics"  // a router's /engine_metrics: many engines in one answer
	SGLangLoads    Backend = "sglang_loads"    // SGLang's GET /v1/loads?format=prometheus: near names, other meanings
	DCGM           Backend = "dcgm"            // dcgm-exporter
	Trainer        Backend = "trainer"         // a training process
	Other          Backend = "other"           // readable, but none of the above
	Unknown        Backend = ""                // not read yet
)

// Role is what an engine does in the life of a request.
type Role string

// Roles. A target has exactly one.
const (
	Unified     Role = "unified" // prefill and decode in one process
	Prefill     Role = "prefill"
	Decode      Role = "decode"
	Encode      Role = "encode"
	RoleRouter  Role = "router"
	Frontend    Role = "frontend"
	RoleUnknown Role = ""
)

// ID names one engine rank: the key under which observations of it are counted once.
// Instance is host:port as scraped, or the host:port of worker_addr when a router reported it,
// or Ray's WorkerId. DPRank is "" when the engine has no data-parallel ranks.
type ID struct {
	Job      string `json:"job"`
	Instance string `json:"instance"`
	Role     Role   `json:"role"`
	DPRank   string `json:"dp_rank,omitempty"`
}

// InstanceOf reduces a worker address to the host:port that a direct scrape of it would carry as
// its instance label: "http://10.0.0.1:30000@3" and "grpc://10.0.0.1:30000/x" give "10.0.0.1:30000".
// The second result is the data-parallel rank after "@", "" without one.
func InstanceOf(workerAddr string) (instance, dpRank string) {
	s := workerAddr
	if i := strings.Index(s, "://"); i >= 0 {
		s = s[i+3:]
	}
	if i := strings.IndexByte(s, '/'); i >= 0 {
		s = s[:i]
	}
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		s, dpRank = s[:i], s[i+1:]
	}
	return s, dpRank
}
