package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/rollscope/rollscope/internal/signal"
)

// getSignal answers GET /signals/{id}.
func (a *API) getSignal(r *http.Request) (any, error) {
	p := a.params(r, "from", "to", "step", "by", "engine", "quantiles")
	from, to := p.window()
	q := SignalRequest{ID: r.PathValue("id"), From: from, To: to, Step: p.step(from, to),
		By:        p.oneOf("by", "fleet", "fleet", "engine", "role", "model"),
		Quantiles: p.quantiles("quantiles", 0.5, 0.99)}
	if p.err != nil {
		return nil, p.err
	}
	if _, err := a.signal(q.ID, r.URL.Path); err != nil {
		return nil, err
	}
	if id := p.text("engine"); id != "" {
		_, q.Instance = splitEngineID(id)
	}
	data, warnings, err := a.Reader.Signal(r.Context(), q)
	if err != nil {
		return nil, err
	}
	e := envelope(a, data, warnings)
	e.Unit = data.Unit
	e.State = stateOf(data)
	e.Partial = hasUnknown(data)
	return e, nil
}

func (a *API) signal(id, where string) (signal.Signal, error) {
	if s, ok := a.Catalog.Signal(id); ok {
		return s, nil
	}
	return signal.Signal{}, &Error{Code: "not_found", Message: "there is no signal " + id, Where: where, Hint: "GET " + ours + "/signals lists them"}
}

// stateOf is the state of a whole answer: a value if any line has one now, else the best that is known.
func stateOf(d SignalData) State {
	best := StateUnknown
	rank := map[State]int{StateUnknown: 0, StateNotApplicable: 1, StateIdle: 2, StateValue: 3}
	for _, l := range d.Lines {
		if rank[l.Now.State] > rank[best] {
			best = l.Now.State
		}
	}
	return best
}

// hasUnknown tells whether some line's number could not be read now.
func hasUnknown(d SignalData) bool {
	return slices.ContainsFunc(d.Lines, func(l Line) bool { return l.Now.State == StateUnknown })
}

// EngineID names an engine in URLs and answers: "job/instance", where "%" and "/" of either are escaped,
// so that it can be told apart again. It is escaped once more as part of a path.
func EngineID(job, instance string) string {
	escape := strings.NewReplacer("%", "%25", "/", "%2F")
	return escape.Replace(job) + "/" + escape.Replace(instance)
}

// splitEngineID is the reverse of EngineID. A name without "/" is an instance of any job.
func splitEngineID(id string) (job, instance string) {
	job, instance, ok := strings.Cut(id, "/")
	if !ok {
		job, instance = "", job
	}
	unescape := strings.NewReplacer("%2F", "/", "%25", "%")
	return unescape.Replace(job), unescape.Replace(instance)
}
