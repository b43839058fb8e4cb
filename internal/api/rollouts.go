package api

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// StepKey names a step. Attempt counts the runs of the same step from 0; -1 is the newest.
type StepKey struct {
	Run     string
	Kind    string // "train", "eval"
	ID      int64
	Attempt int
}

// RolloutSource has the runs, their steps and what is known of each.
type RolloutSource interface {
	Runs(ctx context.Context) ([]Run, error)
	// Steps lists the newest attempts of a run's steps of one kind ("" for all), in order, each with the
	// values of the given metrics. The error is an *Error with code "not_found" for an unknown run.
	Steps(ctx context.Context, run, kind string, metrics []string) ([]Step, error)
	// Step has everything about one step; the *Error is "not_found" when it is not there.
	Step(ctx context.Context, key StepKey) (StepDetail, error)
	// Receive takes one batch of samples in the format of trace/FORMAT.md. In an archive it is an *Error
	// with code "not_enabled".
	Receive(ctx context.Context, body io.Reader) (Received, error)
	Watching() bool
}

// noRollouts is the error of every route while there is no source.
func (a *API) noRollouts(r *http.Request) error {
	if a.Rollouts != nil {
		return nil
	}
	return &Error{Code: "not_enabled", Message: "this process has no rollouts", Where: r.URL.Path,
		Hint: "start it with --rollouts 'DIR/rollout_{rollout_id}.pt'"}
}

func (a *API) getRuns(r *http.Request) (any, error) {
	p := a.params(r, "limit", "after")
	if p.err != nil {
		return nil, p.err
	}
	var answer Runs
	if a.Rollouts == nil { // the page asks without knowing
		return envelope(a, answer), nil
	}
	runs, err := a.Rollouts.Runs(r.Context())
	if err != nil {
		return nil, err
	}
	// Newest first; runs without a step, which have no time, last.
	slices.SortStableFunc(runs, func(x, y Run) int {
		return cmp.Or(cmp.Compare(deref(y.To), deref(x.To)), cmp.Compare(x.Name, y.Name))
	})
	var next string
	answer.Runs, next = page(p, runs, func(r Run) string { return r.Name })
	answer.Watching = a.Rollouts.Watching()
	if p.err != nil {
		return nil, p.err
	}
	e := envelope(a, answer)
	e.Next = next
	return e, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// maxMetrics bounds what one list of steps carries.
const maxMetrics = 40

func (a *API) getSteps(r *http.Request) (any, error) {
	if err := a.noRollouts(r); err != nil {
		return nil, err
	}
	p := a.params(r, "kind", "metrics", "from", "to", "limit", "after")
	kind := p.oneOf("kind", "", "train", "eval")
	from, to := p.time("from", time.Time{}), p.time("to", time.Time{})
	var metrics []string
	if list := p.text("metrics"); list != "" {
		metrics = strings.Split(list, ",")
		if len(metrics) > maxMetrics {
			p.fail(badParameter("metrics", list, "has too many", fmt.Sprintf("at most %d keys", maxMetrics)))
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	steps, err := a.Rollouts.Steps(r.Context(), r.PathValue("run"), kind, metrics)
	if err != nil {
		return nil, err
	}
	steps = slices.DeleteFunc(steps, func(s Step) bool { return !overlaps(s, from, to) })
	var answer Steps
	var next string
	answer.Steps, next = page(p, steps, stepKey)
	if p.err != nil {
		return nil, p.err
	}
	e := envelope(a, answer)
	e.Next = next
	return e, nil
}

func stepKey(s Step) string { return s.Kind + "-" + strconv.FormatInt(s.ID, 10) }

// overlaps tells whether any of the step lies in the range. A step without times is in every range: it
// has none because its samples have no trace, and hiding it would look like it never ran.
func overlaps(s Step, from, to time.Time) bool {
	if s.Start == nil || s.End == nil {
		return true
	}
	start, err1 := time.Parse(time.RFC3339Nano, *s.Start)
	end, err2 := time.Parse(time.RFC3339Nano, *s.End)
	if err1 != nil || err2 != nil {
		return true
	}
	return (to.IsZero() || !start.After(to)) && (from.IsZero() || !end.Before(from))
}

func (a *API) getStep(r *http.Request) (any, error) {
	if err := a.noRollouts(r); err != nil {
		return nil, err
	}
	p := a.params(r, "attempt")
	key := StepKey{Run: r.PathValue("run"), Kind: r.PathValue("kind"), Attempt: -1}
	if key.Kind != "train" && key.Kind != "eval" {
		p.fail(badParameter("kind", key.Kind, "is none of the allowed", "train, eval"))
	}
	id, err := strconv.ParseInt(r.PathValue("step"), 10, 64)
	if err != nil {
		p.fail(badParameter("step", r.PathValue("step"), "is no rollout id", "a whole number"))
	}
	key.ID = id
	if v := p.text("attempt"); v != "" {
		if key.Attempt, err = strconv.Atoi(v); err != nil || key.Attempt < 0 {
			p.fail(badParameter("attempt", v, "is no attempt", "a whole number from 0; leave it out for the newest"))
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	d, err := a.Rollouts.Step(r.Context(), key)
	if err != nil {
		return nil, err
	}
	return envelope(a, d), nil
}

func (a *API) postRollouts(r *http.Request) (any, error) {
	if err := a.noRollouts(r); err != nil {
		return nil, err
	}
	got, err := a.Rollouts.Receive(r.Context(), r.Body)
	if err != nil {
		return nil, err
	}
	return envelope(a, got), nil
}
