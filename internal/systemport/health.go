package systemport

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/engine"
)

// State is how far an engine is.
type State string

// States of an engine. One that has not given metrics yet, as far as is recorded, is starting: it loads its
// weights, and is neither down nor idle. One that has, and does not answer now, is not ready.
const (
	Ready    State = "ready"
	NotReady State = "notready"
	Starting State = "starting"
)

// Generate is the endpoint that stands for all engines of the node: what Dynamo's workers call theirs.
const Generate = "generate"

// HealthConfig are Dynamo's settings of its system port.
type HealthConfig struct {
	HealthPath string // DYN_SYSTEM_HEALTH_PATH, "" = /health
	LivePath   string // DYN_SYSTEM_LIVE_PATH, "" = /live
	// Starting is what counts for an engine that is starting, and for a node without engines:
	// DYN_SYSTEM_STARTING_HEALTH_STATUS, "" = notready.
	Starting State
	// Endpoints are those that decide, all of them: DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS. None = every engine.
	Endpoints []string
}

// ParseHealthConfig reads the settings as Dynamo has them; endpoints is a JSON array of names, "" for
// none. The error names the setting.
func ParseHealthConfig(healthPath, livePath, starting, endpoints string) (HealthConfig, error) {
	c := HealthConfig{HealthPath: healthPath, LivePath: livePath, Starting: State(starting)}
	for _, p := range []struct {
		name, env string
		path      *string
		def       string
	}{
		{"--system-health-path", "DYN_SYSTEM_HEALTH_PATH", &c.HealthPath, "/health"},
		{"--system-live-path", "DYN_SYSTEM_LIVE_PATH", &c.LivePath, "/live"},
	} {
		if *p.path == "" {
			*p.path = p.def
		}
		u, err := url.Parse(*p.path)
		switch {
		case err != nil || !strings.HasPrefix(*p.path, "/") || u.Path != *p.path || strings.ContainsAny(*p.path, "{} ") || strings.Contains(*p.path, "//") || slices.Contains(strings.Split(*p.path, "/"), "..") || slices.Contains(strings.Split(*p.path, "/"), "."):
			return c, fmt.Errorf("%s (or %s) %q is no path: write it as /healthz", p.name, p.env, *p.path)
		case *p.path == "/metrics":
			return c, fmt.Errorf("%s (or %s) is /metrics, where the metrics are: choose another path", p.name, p.env)
		}
	}
	switch c.Starting {
	case "":
		c.Starting = NotReady
	case Ready, NotReady:
	default:
		return c, fmt.Errorf("--system-starting-health-status (or DYN_SYSTEM_STARTING_HEALTH_STATUS) %q: it is ready or notready", starting)
	}
	if endpoints != "" {
		if err := json.Unmarshal([]byte(endpoints), &c.Endpoints); err != nil {
			return c, fmt.Errorf(`--system-use-endpoint-health-status (or DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS) %q is no JSON array of names, as '["generate"]': %w`, endpoints, err)
		}
	}
	return c, nil
}

// Health is the body of /health and /live: Dynamo's three keys, and engines, which says more.
type Health struct {
	Endpoints map[string]State        `json:"endpoints"` // ready or notready
	Status    State                   `json:"status"`    // ready or notready
	Uptime    Uptime                  `json:"uptime"`
	Engines   map[string]EngineHealth `json:"engines"` // by host:port
}

// Uptime is a duration as Rust writes it.
type Uptime struct {
	Secs  int64 `json:"secs"`
	Nanos int64 `json:"nanos"`
}

// EngineHealth is one engine.
type EngineHealth struct {
	State   State  `json:"state"`
	Reason  string `json:"reason,omitempty"`  // one word, as in the list of targets; "" when ready or not asked yet
	Message string `json:"message,omitempty"` // the reason in a sentence
}

// loading are reasons that a program has which is not up yet.
var loading = []string{"connection_refused", "connection_reset", "timeout", noMetricsYet, "http_503", "http_502", "unreachable"}

// state judges one engine.
func (t *Target) state() State {
	switch {
	case t.Up != nil && *t.Up:
		return Ready
	case t.Reason == "" || t.Reason == noMetricsYet:
		// Not asked yet, or it answers with nothing: SGLang does so until its first request.
		return Starting
	case !t.EverUp && slices.Contains(loading, t.Reason):
		return Starting
	}
	return NotReady
}

// isEngine tells what counts for the health of a node. A target that has never been read may be one.
func (t *Target) isEngine() bool {
	switch t.Backend {
	case engine.SGLang, engine.VLLM, engine.DynamoWorker, engine.Unknown:
		return true
	}
	return false
}

// Judge makes the answer of /health out of the targets of this machine.
func Judge(targets []Target, c HealthConfig, uptime time.Duration) Health {
	h := Health{Endpoints: map[string]State{}, Engines: map[string]EngineHealth{},
		Uptime: Uptime{int64(uptime / time.Second), int64(uptime % time.Second)}}
	all := Ready
	for _, t := range targets {
		if !t.isEngine() {
			continue
		}
		e := EngineHealth{State: t.state(), Reason: t.Reason, Message: t.Message}
		if e.State == Ready {
			e.Reason, e.Message = "", ""
		}
		counts := e.State
		if counts == Starting {
			counts = c.Starting
		}
		if before, ok := h.Endpoints[t.Instance]; ok && before == NotReady {
			counts, e = NotReady, h.Engines[t.Instance] // two targets at one address: the worse counts
		}
		h.Engines[t.Instance], h.Endpoints[t.Instance] = e, counts
		if counts != Ready {
			all = NotReady
		}
	}
	if len(h.Engines) == 0 {
		h.Status = c.Starting
	} else {
		h.Endpoints[Generate] = all
		h.Status = all
	}
	if len(c.Endpoints) > 0 {
		h.Status = Ready
		for _, name := range c.Endpoints {
			if h.Endpoints[name] != Ready { // also one that is not there
				h.Status = NotReady
			}
		}
	}
	return h
}
