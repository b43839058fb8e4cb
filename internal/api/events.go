package api

import "net/http"

// Events is what takes and keeps spans, logs and requests, as far as HTTP sees it.
type Events interface {
	// Status never fails: a store that is down is a state.
	Status() EventsStatus
	// Query answers the query paths of VictoriaLogs, below /select/logsql/.
	Query() http.Handler
	// The paths in which others push. Nil in an archive.
	Push() *PushHandlers
}

// DoorKind is the kind of the sources that are sockets of this process: those that listen have the state
// "listening NAME" and their address as name, the others the state "off" and the reason as error.
const DoorKind = "door"

// PushHandlers take what others push. Each answers in its client's own format.
type PushHandlers struct {
	Loki, JSONLines, Elastic, Ready http.Handler
	Traces, Logs                    http.Handler // OTLP/HTTP
}

// pushBody bounds what is pushed in one request, as sent.
const pushBody = 64 << 20

func (a *API) getEvents(r *http.Request) (any, error) {
	p := a.params(r)
	if p.err != nil {
		return nil, p.err
	}
	if a.Events == nil {
		return envelope(a, EventsStatus{State: "off", Reason: "this process keeps no events"}), nil
	}
	return envelope(a, a.Events.Status()), nil
}

// eventRoutes are VictoriaLogs' paths of queries and of pushed lines, Loki's and OTLP's.
func (a *API) eventRoutes() []Route {
	if a.Events == nil {
		return nil
	}
	query := a.Events.Query()
	table := []Route{
		{"GET", "/select/logsql/{rest...}", ScopeRead, noBody, query},
		{"POST", "/select/logsql/{rest...}", ScopeRead, formBody, query},
	}
	push := a.Events.Push()
	if push == nil {
		return table
	}
	return append(table,
		Route{"POST", "/insert/jsonline", ScopeWrite, pushBody, push.JSONLines},
		Route{"POST", "/insert/loki/api/v1/push", ScopeWrite, pushBody, push.Loki},
		Route{"POST", "/loki/api/v1/push", ScopeWrite, pushBody, push.Loki},
		Route{"GET", "/insert/ready", ScopeRead, noBody, push.Ready},
		Route{"GET", "/insert/loki/ready", ScopeRead, noBody, push.Ready},
		Route{"GET", "/insert/elasticsearch/{rest...}", ScopeRead, noBody, push.Elastic},
		Route{"POST", "/insert/elasticsearch/{rest...}", ScopeWrite, pushBody, push.Elastic},
		Route{"PUT", "/insert/elasticsearch/{rest...}", ScopeWrite, pushBody, push.Elastic},
		Route{"POST", "/v1/traces", ScopeWrite, pushBody, push.Traces},
		Route{"POST", "/v1/logs", ScopeWrite, pushBody, push.Logs},
	)
}
