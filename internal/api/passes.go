package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Passes is what receives, keeps and judges forward passes. Its methods may be called by several goroutines.
type Passes interface {
	// Status never fails: a source that is silent is a state.
	Status() ForwardPasses
	// Live returns passes out of memory that came after a cursor, "" for as many of the newest as the limit
	// allows, of one engine or of all ("").
	Live(after, engine string, limit int) (PassColumns, error)
	// Rows returns stored passes; the newest when there are more than the limit.
	Rows(ctx context.Context, q PassQuery) (PassColumns, error)
	Advice(ctx context.Context) (PassAdvice, error)
	Capacity(ctx context.Context, q CapacityQuery) (PassCapacity, error)
	// Burst keeps every pass from so long before now until so long after it.
	Burst(engine, reason string, around time.Duration) (PassBurst, error)
}

// PassQuery selects stored passes.
type PassQuery struct {
	From, To time.Time
	Engine   string // PassEngine's id, "" for all
	Limit    int
}

// CapacityQuery says what is asked of a deployment. Nil is what is measured or configured.
type CapacityQuery struct {
	Namespace       string   // "" for the busiest, [NoNamespace] for that of passes without one
	TTFT, ITL       *float64 // seconds
	ISL, OSL, Hit   *float64
	Rate            *float64 // requests a second
	Prefill, Decode *int     // replicas
}

// NoNamespace is how a question names the passes that say no namespace: those of engines' own sockets.
const NoNamespace = "-"

// Bounds of the answers.
const (
	defaultPasses = 2000
	maxPasses     = 20000
	defaultBurst  = 30 * time.Second
)

// passRoutes are those of forward passes. They are there without a source too: a page that asks is told.
func (a *API) passRoutes() []Route {
	return []Route{
		{"GET", ours + "/passes", ScopeRead, noBody, a.ready(a.getPasses)},
		{"GET", ours + "/passes/live", ScopeRead, noBody, a.ready(a.getPassesLive)},
		{"GET", ours + "/passes/rows", ScopeRead, noBody, a.ready(a.getPassRows)},
		{"GET", ours + "/passes/advice", ScopeRead, noBody, a.ready(a.getPassAdvice)},
		{"GET", ours + "/passes/capacity", ScopeRead, noBody, a.ready(a.getPassCapacity)},
		{"POST", ours + "/passes/bursts", ScopeWrite, formBody, a.ready(a.postPassBurst)},
	}
}

// noPasses is the error of the routes that need a source.
func (a *API) noPasses(r *http.Request) error {
	if a.Passes != nil {
		return nil
	}
	return &Error{Code: "not_enabled", Message: "this process receives no forward passes", Where: r.URL.Path,
		Hint: "give serve a source: --fpm ipc:///tmp/sglang-fpm, or forward_passes: in the configuration; docs/fpm.md says more"}
}

func (a *API) getPasses(r *http.Request) (any, error) {
	if p := a.params(r); p.err != nil {
		return nil, p.err
	}
	if a.Passes == nil {
		return envelope(a, ForwardPasses{Rows: PassRows{Keep: "off"}}), nil
	}
	return envelope(a, a.Passes.Status()), nil
}

func (a *API) getPassesLive(r *http.Request) (any, error) {
	p := a.params(r, "after", "engine", "limit")
	limit := int(p.whole("limit", defaultPasses, 1, maxPasses))
	if p.err != nil {
		return nil, p.err
	}
	if err := a.noPasses(r); err != nil {
		return nil, err
	}
	c, err := a.Passes.Live(p.text("after"), p.text("engine"), limit)
	if err != nil {
		return nil, err
	}
	return envelope(a, c), nil
}

func (a *API) getPassRows(r *http.Request) (any, error) {
	p := a.params(r, "from", "to", "engine", "limit")
	from, to := p.window()
	limit := int(p.whole("limit", defaultPasses, 1, maxPasses))
	if p.err != nil {
		return nil, p.err
	}
	if err := a.noPasses(r); err != nil {
		return nil, err
	}
	c, err := a.Passes.Rows(r.Context(), PassQuery{From: from, To: to, Engine: p.text("engine"), Limit: limit})
	if err != nil {
		return nil, requestFailure(err)
	}
	e := envelope(a, c)
	if len(c.Rank) == 0 {
		e.State = StateIdle
	}
	return e, nil
}

func (a *API) getPassAdvice(r *http.Request) (any, error) {
	if p := a.params(r); p.err != nil {
		return nil, p.err
	}
	if err := a.noPasses(r); err != nil {
		return nil, err
	}
	advice, err := a.Passes.Advice(r.Context())
	if err != nil {
		return nil, err
	}
	e := envelope(a, advice)
	if len(advice.Deployments) == 0 {
		e.State = StateIdle
	}
	return e, nil
}

func (a *API) getPassCapacity(r *http.Request) (any, error) {
	p := a.params(r, "namespace", "ttft", "itl", "isl", "osl", "hit", "rate", "prefill", "decode")
	positive := func(v float64) bool { return v > 0 && v <= 1e8 }
	q := CapacityQuery{
		Namespace: p.text("namespace"),
		TTFT:      p.measure("ttft", "seconds above 0, as 0.5", positive),
		ITL:       p.measure("itl", "seconds above 0, as 0.05", positive),
		ISL:       p.measure("isl", "tokens above 0", positive),
		OSL:       p.measure("osl", "tokens above 0", positive),
		Hit:       p.measure("hit", "a share from 0 to 1", func(v float64) bool { return v >= 0 && v <= 1 }),
		Rate:      p.measure("rate", "requests a second, from 0", func(v float64) bool { return v >= 0 && v <= 1e8 }),
		Prefill:   p.count("prefill"), Decode: p.count("decode"),
	}
	if p.err != nil {
		return nil, p.err
	}
	if err := a.noPasses(r); err != nil {
		return nil, err
	}
	c, err := a.Passes.Capacity(r.Context(), q)
	if err != nil {
		return nil, err
	}
	e := envelope(a, c)
	if c.RPS == nil {
		e.State = StateUnknown // its reason says why
	}
	return e, nil
}

// measure reads a number that may be, nil without one.
func (p *params) measure(name, form string, may func(float64) bool) *float64 {
	v := p.values.Get(name)
	if v == "" {
		return nil
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || !may(f) {
		p.fail(badParameter(name, v, "is not possible", form))
		return nil
	}
	return &f
}

// count reads a number of replicas, nil without one.
func (p *params) count(name string) *int {
	if p.values.Get(name) == "" {
		return nil
	}
	n := int(p.whole(name, 0, 0, 1_000_000))
	return &n
}

func (a *API) postPassBurst(r *http.Request) (any, error) {
	if err := r.ParseForm(); err != nil {
		return nil, &Error{Code: "malformed", Message: "the form cannot be read: " + err.Error()}
	}
	p := &params{values: r.Form, now: a.Now()}
	for name := range r.Form {
		if !slices.Contains([]string{"engine", "reason", "around"}, name) {
			p.fail(badParameter(name, r.Form.Get(name), "is not known here", "around, engine, reason"))
		}
	}
	around := defaultBurst
	if v := p.text("around"); v != "" {
		d, err := parseDuration(v)
		if err != nil || d < time.Second || d > 10*time.Minute {
			p.fail(badParameter("around", v, "is not possible", "1s to 10m: so long before now and so long after"))
		}
		around = d
	}
	reason := p.text("reason")
	if len(reason) > 200 {
		p.fail(badParameter("reason", reason[:20]+"...", "is too long", "at most 200 bytes"))
	}
	if p.err != nil {
		return nil, p.err
	}
	if err := a.noPasses(r); err != nil {
		return nil, err
	}
	b, err := a.Passes.Burst(p.text("engine"), reason, around)
	if err != nil {
		return nil, err
	}
	return envelope(a, b), nil
}
