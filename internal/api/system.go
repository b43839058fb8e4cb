package api

import "net/http"

// SystemPort serves the metrics and the health of this machine's engines as a Dynamo worker does, behind the
// same checks as the rest; nil without [Options.System]. It is for a listener of its own.
func (a *API) SystemPort() http.Handler {
	if a.system == nil {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(a.system, w, r) })
}

// SystemRoutes is the whole table of [API.SystemPort].
func (a *API) SystemRoutes() []Route {
	if a.system == nil {
		return nil
	}
	return a.system.table
}

func faceOfSystem(string) face { return faceTempo } // an error is a line of text

func (a *API) systemRoutes() []Route {
	p := a.Options.System
	table := []Route{
		{"GET", "/metrics", ScopeRead, noBody, http.HandlerFunc(p.ServeMetrics)},
		{"GET", p.HealthPath(), ScopeRead, noBody, http.HandlerFunc(p.ServeHealth)},
	}
	if p.LivePath() != p.HealthPath() {
		table = append(table, Route{"GET", p.LivePath(), ScopeRead, noBody, http.HandlerFunc(p.ServeHealth)})
	}
	return table
}
