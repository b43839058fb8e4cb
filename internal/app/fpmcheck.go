package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/fpm"
	"github.com/rollscope/rollscope/internal/fpmbus"
)

// FPMCheckOptions are for [CheckFPM].
type FPMCheckOptions struct {
	FPMOptions
	For     time.Duration // how long is listened
	Runtime string        // the engine's image or package and its version; "" unknown
	Metrics string        // URL of the engine's or its frontend's metrics; "" when there are none
}

// FPMSourceCheck is what is to be said of a source.
type FPMSourceCheck struct {
	Source string    `json:"source"`
	State  string    `json:"state"` // of the connection
	Error  string    `json:"error,omitempty"`
	Flow   fpm.Flow  `json:"flow"`
	Cause  fpm.Cause `json:"cause,omitempty"`
	Alarm  bool      `json:"alarm"`
	Known  bool      `json:"known"` // false: it could not be determined
	Why    string    `json:"why"`
	Do     string    `json:"do,omitempty"`
}

// FPMRank is what a rank's stream says.
type FPMRank struct {
	Rank       string    `json:"rank"`
	State      fpm.State `json:"state"`
	Reason     string    `json:"reason"`
	Passes     uint64    `json:"passes"`
	Heartbeats uint64    `json:"heartbeats"`
	Lost       uint64    `json:"lost"`
	Restarts   uint64    `json:"restarts"`
	Duplicates uint64    `json:"duplicates"`
	Unknown    bool      `json:"loss_unknown"` // its messages have no numbers to see losses by
	Notices    []string  `json:"notices,omitempty"`
}

// FPMCheck is the answer.
type FPMCheck struct {
	Seconds  float64          `json:"seconds"`
	Requests *float64         `json:"engine_requests"` // that the engine had meanwhile; nil: unknown
	Blind    bool             `json:"blind"`
	Known    bool             `json:"known"` // false: whether somebody is blind could not be determined
	Sources  []FPMSourceCheck `json:"sources"`
	Ranks    []FPMRank        `json:"ranks"`
	Drops    []fpmbus.Drop    `json:"drops"`
	Notes    []string         `json:"notes,omitempty"`
}

// heardEnough is how long is listened at least to sources that are all heard.
const heardEnough = 5 * time.Second

// CheckFPM listens and says of every source whether it is heard, and if not why. It returns early when all
// are heard.
func CheckFPM(ctx context.Context, o FPMCheckOptions) (FPMCheck, error) {
	sources, files, err := fpmSources(o.FPMOptions, nil)
	if err != nil {
		return FPMCheck{}, err
	}
	r := newFPMReader(o.Positional)
	bus, err := fpmbus.New(fpmbus.Options{Sources: sources, Outlets: []fpmbus.Outlet{{Name: "check", Sink: r}}, Logger: o.Logger})
	if err != nil {
		return FPMCheck{}, err
	}
	var res FPMCheck
	before, metricsErr := engineActivity(ctx, o.Metrics)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- bus.Run(ctx) }()
	end := time.NewTimer(o.For)
	defer end.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for listening := true; listening; {
		select {
		case err = <-done:
			listening, done = false, nil
		case <-end.C:
			listening = false
		case <-tick.C:
			if time.Since(start) >= heardEnough && r.heard(bus.Sources()) {
				listening = false
			}
		}
	}
	took := time.Since(start)
	states := bus.Sources() // before we end them
	requests := -1.0
	if o.Metrics != "" && metricsErr == nil {
		var after activity
		if after, metricsErr = engineActivity(ctx, o.Metrics); metricsErr == nil {
			requests = after.since(before)
		}
	}
	stop()
	if done != nil {
		err = <-done
	}
	if err != nil {
		return FPMCheck{}, err
	}
	if metricsErr != nil {
		res.Notes = append(res.Notes, fmt.Sprintf("whether the engine works is unknown: %v", metricsErr))
	} else if requests >= 0 {
		res.Requests = &requests
	}
	res.Seconds, res.Known = took.Seconds(), true
	r.mu.Lock()
	defer r.mu.Unlock()
	drops := bus.Drops()
	for _, s := range states {
		c := judge(s, r.track.Source(s.Name), drops, o, took, requests)
		res.Blind = res.Blind || c.Alarm
		res.Known = res.Known && c.Known
		res.Sources = append(res.Sources, c)
	}
	now := start.Add(took).UnixNano()
	if files && !o.Follow {
		now = r.last // what the file ends with, not the time since it was written
	}
	silent := 0
	for _, s := range r.track.Statuses(now) {
		res.Ranks = append(res.Ranks, FPMRank{
			Rank: s.Key.String(), State: s.State, Reason: s.Reason, Passes: s.Passes, Heartbeats: s.Heartbeats, Lost: s.Lost(),
			Restarts: s.Restarts, Duplicates: s.Duplicates, Unknown: s.LossUnknown, Notices: s.Notices,
		})
		if s.State == fpm.Stale {
			silent++
		}
	}
	if silent > 0 && silent == len(res.Ranks) {
		res.Known = false
		res.Notes = append(res.Notes, "every rank has fallen silent: what they do now is unknown")
	}
	if r.other > 0 {
		res.Notes = append(res.Notes, fmt.Sprintf("%d records are not of forward passes", r.other))
	}
	res.Drops = append(drops, refusals(r.track)...)
	return res, nil
}

// heard tells whether passes came from every source and nothing that cannot be read.
func (r *fpmReader) heard(states []fpmbus.Status) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range states {
		src := r.track.Source(s.Name)
		if src.Passes == 0 || len(src.Refused) > 0 {
			return false
		}
	}
	return len(states) > 0
}

// unreadable are the reasons for which a source does not hand on what came.
var unreadable = []string{"bad_frames", "bad_envelope", "bad_record", "too_large", "cut_off"}

// judge puts together what the stream of a source, its connection and the engine's metrics say.
func judge(s fpmbus.Status, src fpm.SourceStatus, drops []fpmbus.Drop, o FPMCheckOptions, took time.Duration, requests float64) FPMSourceCheck {
	e := src.Since(fpm.SourceStatus{})
	most := int64(0)
	for _, d := range drops {
		if d.Source == s.Name && slices.Contains(unreadable, d.Reason) {
			e.Refused += uint64(d.Count)
			if d.Count > most && e.Reason == "" {
				e.Reason, most = fpm.Reason(d.Reason), d.Count
			}
		}
	}
	e.Up, e.Window, e.Requests, e.Runtime = took, took, requests, o.Runtime
	switch {
	case s.State == fpmbus.Connected && s.Kind != fpmbus.PlaneNATS: // connected to a server says nothing of an engine
		e.Socket = fpm.SocketOpen
	case (s.State == fpmbus.Missing || s.State == fpmbus.Down) && s.Kind == fpmbus.EngineSocket:
		e.Socket = fpm.SocketMissing
	}
	v := fpm.Judge(e)
	c := FPMSourceCheck{
		Source: s.Name, State: string(s.State), Error: s.Error, Flow: v.Flow, Cause: v.Cause, Alarm: v.Alarm, Why: v.Why, Do: v.Do,
		Known: v.Flow != fpm.Starting && v.Flow != fpm.Unheard,
	}
	if s.Kind == fpmbus.TraceFile && e.Messages+e.Refused == 0 {
		c.Flow, c.Cause, c.Alarm, c.Known, c.Why, c.Do = fpm.Unheard, fpm.NoCause, false, false, "there is no record of a forward pass", ""
	} else if c.Flow == fpm.Unheard && s.Kind == fpmbus.ExportSocket {
		c.Do = "start Dynamo's exporter with this path (--socket), and name the engine's metrics with --metrics"
	}
	return c
}

// activity is how many requests an engine has had by its metrics.
type activity struct {
	began   map[string]float64 // counters by name and labels
	running float64
}

// requestCounters count requests that ended or began; the first of which there is one is taken.
var requestCounters = []string{"sglang:num_requests_total", "vllm:request_success_total", "dynamo_component_requests_total", "dynamo_frontend_requests_total"}

// runningGauges are requests that run now: an engine that decodes long answers has them and ends none.
var runningGauges = []string{"sglang:num_running_reqs", "vllm:num_requests_running", "dynamo_component_inflight_requests", "dynamo_frontend_inflight_requests"}

// since is how many requests there were between two scrapes. A counter that fell began anew.
func (a activity) since(before activity) float64 {
	n := 0.0
	for k, v := range a.began {
		if old := before.began[k]; v >= old {
			v -= old
		}
		n += v
	}
	if n == 0 {
		n = min(a.running, before.running)
	}
	return n
}

// engineActivity scrapes.
func engineActivity(ctx context.Context, at string) (activity, error) {
	a := activity{began: map[string]float64{}}
	if at == "" {
		return a, nil
	}
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return a, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%s answers %s: name the page of metrics, such as http://HOST:30000/metrics", at, resp.Status)
	}
	return parseActivity(io.LimitReader(resp.Body, 64<<20), at)
}

// parseActivity reads an exposition.
func parseActivity(from io.Reader, at string) (activity, error) {
	a := activity{began: map[string]float64{}}
	byName := map[string]map[string]float64{}
	found := false
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		series, value, ok := seriesValue(lines.Text())
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(series, "{")
		switch {
		case slices.Contains(requestCounters, name):
			if byName[name] == nil {
				byName[name] = map[string]float64{}
			}
			byName[name][series] = value
		case slices.Contains(runningGauges, name):
			a.running += value
			found = true
		}
	}
	if err := lines.Err(); err != nil {
		return a, fmt.Errorf("%s: %w", at, err)
	}
	for _, name := range requestCounters {
		if byName[name] != nil {
			a.began, found = byName[name], true
			break
		}
	}
	if !found {
		return a, errors.New(at + " has no counter of requests that is known: " + strings.Join(requestCounters, ", "))
	}
	return a, nil
}

// seriesValue splits a line of an exposition.
func seriesValue(line string) (series string, value float64, ok bool) {
	if line == "" || line[0] == '#' {
		return "", 0, false
	}
	at := strings.LastIndexByte(line, '}') + 1
	if at == 0 {
		at = strings.IndexByte(line, ' ')
	}
	if at <= 0 {
		return "", 0, false
	}
	fields := strings.Fields(line[at:])
	if len(fields) == 0 {
		return "", 0, false
	}
	v, err := strconv.ParseFloat(fields[0], 64)
	return line[:at], v, err == nil && v == v && v >= 0
}
