package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// question is a handler of our own API: it returns a pointer to an Envelope, or an error.
type question func(r *http.Request) (any, error)

// ready makes a handler of a question: it is asked only while the store can answer.
func (a *API) ready(ask question) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e := a.notReady(); e != nil {
			refuse(w, faceOurs, e)
			return
		}
		answer, err := ask(r)
		if err == nil {
			err = a.writer.send(w, r, answer)
		}
		if err == nil {
			return
		}
		e := failure(r, err)
		if e.Code == "internal" {
			a.log.Error("a request failed", "path", r.URL.Path, "err", err)
		}
		refuse(w, faceOurs, e)
	})
}

func (a *API) notReady() *Error {
	switch a.Ready() {
	case Starting:
		return &Error{Code: "not_ready", Message: "the store is being opened", Hint: "ask again in a moment; /-/ready says when"}
	case Stopping:
		return &Error{Code: "stopping", Message: "this process is going down"}
	}
	return nil
}

// envelope wraps an answer with what every answer carries.
func envelope[T any](a *API, data T, warnings ...[]Warning) *Envelope[T] {
	return &Envelope[T]{Data: data, State: StateValue, Warnings: mergeWarnings(warnings...), Dropped: a.Drops()}
}

func (a *API) getStatus(r *http.Request) (any, error) {
	if p := a.params(r); p.err != nil {
		return nil, p.err
	}
	first, last, gaps, err := a.coverage(r.Context())
	if err != nil {
		return nil, fmt.Errorf("find out what the store holds: %w", err)
	}
	granted, _ := a.Access.scopeOf(r) // who got here may read
	s := Status{
		Version:  a.Version,
		Mode:     string(a.Mode),
		Now:      stamp(a.Now()),
		From:     stampPtr(first),
		To:       stampPtr(last),
		Gaps:     gaps,
		ReadOnly: a.Mode == ModeArchive || granted < ScopeWrite,
		Notices:  a.Notices(),
		Drops:    a.Drops(),
		Dir:      a.Dir,
	}
	s.Targets, s.TargetsUp = a.countTargets()
	return envelope(a, s), nil
}

func (a *API) countTargets() (all, up int) {
	if a.Targets == nil {
		return 0, 0
	}
	targets := a.Targets.Targets()
	for _, t := range targets {
		if t.Up != nil && *t.Up {
			up++
		}
	}
	return len(targets), up
}

func (a *API) getTargets(r *http.Request) (any, error) {
	p := a.params(r, "limit", "after")
	var targets Targets
	if a.Targets != nil {
		targets.Active, targets.Skipped = a.Targets.Targets(), a.Targets.Skipped()
	}
	slices.SortStableFunc(targets.Active, func(x, y Target) int { return strings.Compare(targetKey(x), targetKey(y)) })
	var next string
	targets.Active, next = page(p, targets.Active, targetKey)
	if p.err != nil {
		return nil, p.err
	}
	e := envelope(a, targets)
	e.Next = next
	return e, nil
}

func targetKey(t Target) string { return t.Job + "/" + t.Instance + "/" + t.URL }

func (a *API) getDrops(r *http.Request) (any, error) {
	p := a.params(r, "limit", "after")
	drops := a.Drops()
	key := func(d Drop) string { return d.Source + "/" + d.Reason }
	slices.SortStableFunc(drops, func(x, y Drop) int { return strings.Compare(key(x), key(y)) })
	cut, next := page(p, drops, key)
	if p.err != nil {
		return nil, p.err
	}
	e := envelope(a, cut)
	e.Next = next
	return e, nil
}

func (a *API) getConfig(r *http.Request) (any, error) {
	if p := a.params(r); p.err != nil {
		return nil, p.err
	}
	var view ConfigView
	if a.ConfigView != nil {
		view = a.ConfigView()
	}
	return envelope(a, view), nil
}

// ownMetrics is /metrics.
func (a *API) ownMetrics() http.Handler {
	if a.Gatherer == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			refuse(w, faceOurs, &Error{Code: "not_enabled", Message: "this process keeps no metrics of its own", Where: r.URL.Path})
		})
	}
	return promhttp.HandlerFor(a.Gatherer, promhttp.HandlerOpts{
		ErrorHandling:     promhttp.ContinueOnError,
		EnableOpenMetrics: true,
	})
}

// healthy says that the process answers; Prometheus's words, since probes look for them.
func (a *API) healthy(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "Rollscope is Healthy.")
}

// isReady says that queries are answered.
func (a *API) isReady(w http.ResponseWriter, _ *http.Request) {
	if e := a.notReady(); e != nil {
		w.Header().Set("X-Prometheus-Stopping", fmt.Sprint(e.Code == "stopping"))
		refuse(w, faceOurs, e)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "Rollscope is Ready.")
}

func (a *API) reload(w http.ResponseWriter, r *http.Request) {
	if a.Options.Reload == nil {
		refuse(w, faceOurs, &Error{Code: "not_enabled", Message: "there is no configuration to read again", Where: r.URL.Path})
		return
	}
	if err := a.Options.Reload(r.Context()); err != nil {
		e := failure(r, err)
		if e.Code == "internal" {
			e = &Error{Code: "bad_config", Message: "the configuration was not changed: " + err.Error(), Where: r.URL.Path,
				Hint: "correct it and reload again; what ran before goes on"}
		}
		refuse(w, faceOurs, e)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// page hands what is no API to the user interface.
func (a *API) page(w http.ResponseWriter, r *http.Request) { a.UI.ServeHTTP(w, r) }
