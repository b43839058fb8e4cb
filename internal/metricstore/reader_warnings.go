package metricstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/rollscope/rollscope/internal/engine"
)

// fleetWarnings looks for what makes an engine's numbers wrong or surprising.
func (r *Reader) fleetWarnings(ctx context.Context, x *fleetReader, f fleetEntry, from, to time.Time) ([]Warning, error) {
	var out []Warning
	both := map[string][]string{} // engines by router
	for _, e := range f.engines {
		if router, ok := x.views[e.Instance][engine.ViaRouter]; ok && e.View != engine.ViaRouter {
			both[router] = append(both[router], e.Name)
		}
		if visible := max(1, len(e.DPRanks)); e.DPSize > visible {
			out = append(out, Warning{
				Code:    "under_reported",
				Message: fmt.Sprintf("under-reported: %d of %d DP ranks visible", visible, e.DPSize),
				Where:   e.Instance,
				Hint:    "The ranks overwrite one another's metrics: this engine's version has no dp_rank label. Its numbers are those of one rank.",
			})
		}
	}
	for _, router := range sortedKeys(both) {
		names := both[router]
		are := "is scraped itself"
		if len(names) > 1 {
			are = "are scraped themselves"
		}
		if len(names) > 3 {
			names = append(slices.Clone(names[:3]), fmt.Sprintf("%d more", len(names)-3))
		}
		out = append(out, Warning{
			Code:    "both_views",
			Message: fmt.Sprintf("%s %s and through the router %s; the engine's own scrape counts, once.", strings.Join(names, ", "), are, router),
			Where:   router,
		})
	}
	out = append(out, modelWarnings(x, f)...)
	for _, c := range x.res.Conflicts() {
		out = append(out, Warning{Code: "role_conflict", Message: c.Message, Where: c.Instance,
			Hint: "Set rollscope.engines[].role if the judgement is wrong."})
	}
	idle, err := r.idleRanks(ctx, x, f, to)
	if err != nil {
		return nil, err
	}
	out = append(out, idle...)
	alternating, err := r.alternating(ctx, x, from, to)
	if err != nil {
		return nil, err
	}
	out = append(out, alternating...)
	slices.SortStableFunc(out, func(a, b Warning) int { return strings.Compare(a.Where+a.Code, b.Where+b.Code) })
	return out, nil
}

// modelWarnings finds models that are named twice, with ':' and with the '_' that a router makes of it.
// Where an engine was seen in both ways the two names are proven to be one, and its own is used.
func modelWarnings(x *fleetReader, f fleetEntry) []Warning {
	plain := map[string]string{} // rewritten name to the engine's own
	for _, e := range f.engines {
		if strings.Contains(e.Model, ":") {
			plain[strings.ReplaceAll(e.Model, ":", "_")] = e.Model
		}
	}
	var out []Warning
	for _, e := range f.engines {
		own, ok := plain[e.Model]
		if !ok || e.View != engine.ViaRouter {
			continue
		}
		out = append(out, Warning{
			Code:    "model_names",
			Message: fmt.Sprintf("The models %s and %s may be one: the router %s writes '_' for ':' in every label, and %s was seen through it only.", own, e.Model, x.views[e.Instance][engine.ViaRouter], e.Name),
			Where:   x.views[e.Instance][engine.ViaRouter],
			Hint:    "Scrape the engine itself as well.",
		})
	}
	return out
}

// idleRanks finds data-parallel ranks that do nothing while others of their engine work.
func (r *Reader) idleRanks(ctx context.Context, x *fleetReader, f fleetEntry, to time.Time) ([]Warning, error) {
	if !slices.ContainsFunc(f.engines, func(e EngineInfo) bool { return len(e.DPRanks) > 1 }) {
		return nil, nil
	}
	busy := map[string]map[string]float64{} // by instance and rank
	for _, name := range []string{"sglang:gen_throughput", "sglang:num_running_reqs"} {
		if !x.names[name] {
			continue
		}
		v, err := r.instant(ctx, fmt.Sprintf("max by (instance, worker_addr, WorkerId, dp_rank) (max_over_time(%s[5m]))", name), to)
		if err != nil {
			return nil, err
		}
		for _, s := range v {
			id := x.res.Identify(s.Metric.Get)
			if busy[id.Instance] == nil {
				busy[id.Instance] = map[string]float64{}
			}
			busy[id.Instance][id.DPRank] = max(busy[id.Instance][id.DPRank], s.F)
		}
	}
	var out []Warning
	for _, e := range f.engines {
		var idle, works []string
		for _, rank := range sortedKeys(busy[e.Instance]) {
			if busy[e.Instance][rank] == 0 {
				idle = append(idle, rank)
			} else {
				works = append(works, rank)
			}
		}
		if len(e.DPRanks) > 1 && len(idle) > 0 && len(works) > 0 {
			out = append(out, Warning{
				Code:    "rank_idle",
				Message: fmt.Sprintf("imbalance: DP rank %s does nothing while %s work", strings.Join(idle, ", "), strings.Join(works, ", ")),
				Where:   e.Instance,
				Hint:    "Look at how the router or the DP controller spreads requests over ranks.",
			})
		}
	}
	return out, nil
}

// alternatingOver is how far back alternating targets are looked for.
const alternatingOver = time.Hour

// alternating finds targets behind a load balancer: the answers of two processes take turns, every turn
// looks like a counter reset, and rates explode. A restart moves the start time forward once and is none.
func (r *Reader) alternating(ctx context.Context, x *fleetReader, from, to time.Time) ([]Warning, error) {
	if earliest := to.Add(-alternatingOver); earliest.After(from) {
		from = earliest
	}
	processes := map[string]int{}
	known := map[string]bool{}
	if x.names["process_start_time_seconds"] {
		err := r.samplesOf(ctx, "process_start_time_seconds", from, to, func(ls labels.Labels, _ []int64, vs []float64) {
			instance := strings.Clone(ls.Get("instance"))
			known[instance] = true
			if n := alternatingStarts(vs); n > 1 {
				processes[instance] = max(processes[instance], n)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"sglang:generation_tokens_total", "sglang:prompt_tokens_total", "vllm:generation_tokens_total", "dynamo_frontend_requests_total"} {
		if !x.names[name] {
			continue
		}
		err := r.samplesOf(ctx, name, from, to, func(ls labels.Labels, _ []int64, vs []float64) {
			instance := strings.Clone(ls.Get("instance"))
			if !known[instance] && twoStreams(vs) {
				processes[instance] = max(processes[instance], 2)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	var out []Warning
	for _, instance := range sortedKeys(processes) {
		out = append(out, Warning{
			Code:    "alternating_target",
			Message: fmt.Sprintf("target alternates between %d processes: rates and increases of its counters are wrong, since every turn looks like a reset", processes[instance]),
			Where:   instance,
			Hint:    "Scrape each replica by its own address, not the service in front of them.",
		})
	}
	return out, nil
}

// alternatingStarts counts the processes that take turns, judged by their start times; 0 when no start
// time comes back after another was seen. Times within two seconds are one: they are computed from the
// boot time, which moves a little with the clock.
func alternatingStarts(vs []float64) int {
	var starts []float64
	back := false
	last := -1
	for _, v := range vs {
		i := slices.IndexFunc(starts, func(s float64) bool { return v-s < 2 && s-v < 2 })
		switch {
		case i < 0:
			starts = append(starts, v)
			i = len(starts) - 1
		case i != last:
			back = true
		}
		last = i
	}
	if !back {
		return 0
	}
	return len(starts)
}

// twoStreams tells whether a counter that seems to reset again and again is two counters in turn: split
// into two, neither ever falls.
func twoStreams(vs []float64) bool {
	resets := 0
	for i := 1; i < len(vs); i++ {
		if vs[i] < vs[i-1] {
			resets++
		}
	}
	if resets < 3 {
		return false
	}
	// Each sample goes to the stream with the highest end that it does not fall below.
	ends := []float64{vs[0]}
	lengths := []int{1}
	for _, v := range vs[1:] {
		best := -1
		for i, end := range ends {
			if v >= end && (best < 0 || end > ends[best]) {
				best = i
			}
		}
		if best < 0 {
			if len(ends) == 2 {
				return false
			}
			ends, lengths = append(ends, v), append(lengths, 1)
			continue
		}
		ends[best] = v
		lengths[best]++
	}
	return len(ends) == 2 && lengths[0] > 2 && lengths[1] > 2
}
