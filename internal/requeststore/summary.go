package requeststore

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/request"
)

// Latencies are the fields that a summary has percentiles of.
var Latencies = [...]request.Number{request.TTFT, request.ITL, request.E2E, request.Queue, request.Prefill, request.Transfer, request.Decode}

// Targets are what a good request keeps, in seconds; 0 asks nothing of that one.
type Targets struct{ TTFT, ITL float64 }

// Summary sums requests up.
type Summary struct {
	Groups []Group // the whole first, with the name "", then by count, those without a value last
	By     string
	// Cut says how many groups, the smallest, are in the whole alone.
	Cut int
	// HeadSampled is how many requests come from input of which a part was thrown away before it came here,
	// as that input itself says; Traced how many were seen in traces.
	HeadSampled, Traced int64
}

// Group is a set of requests. Percentiles are exact: the k-th smallest of all values, k the quantile times
// their number rounded up.
type Group struct {
	Name      string
	Count     int64
	Outcomes  map[request.Outcome]int64
	Quantiles [len(Latencies)]Quantiles // as in Latencies
	// Good requests finished and kept all targets that are asked for. Judged are those for which that can be
	// said: those with all latencies that have a target, and those that failed. An answer of one token has no
	// time between tokens and keeps any target of that. Both are 0 without targets.
	Good, Judged int64
	// Tokens that good requests answered.
	GoodTokens float64
}

// Quantiles are of the Count requests that have the value; the others are 0 where Count is.
type Quantiles struct {
	P50, P90, P99, Max float64
	Count              int64
}

// maxGroups bounds the groups of one summary.
const maxGroups = 200

// columns are the values of a query's rows, one after another.
type columns struct {
	id     []uint64
	rev    []int32
	name   []int32 // index in names
	end    []uint8 // index in outcomes
	values [len(Latencies)][]float64
	tokens []float64
	head   []bool
	traced []bool
	names  []string
	byName map[string]int32
}

var outcomes = [...]request.Outcome{request.OutcomeUnknown, request.Finished, request.AbortedRequest, request.ErrorOutcome, request.Running}

// absent stands for no value: seconds are not negative.
const absent = -1

// Summarize sums up the requests that fit, grouped by one of [Groups] or "" for none. An error may be a
// *[FilterError], *[FieldError] or *[TooManyError].
func (s *Store) Summarize(ctx context.Context, q Query, by string, t Targets) (Summary, error) {
	if by != "" && !groupable(by) {
		return Summary{}, &FieldError{by, Groups}
	}
	c := &columns{byName: map[string]int32{}}
	err := s.scan(ctx, q, summaryFields(by), func(fields []event.Field) error {
		c.add(fields, by)
		return nil
	})
	if err != nil {
		return Summary{}, err
	}
	last, err := s.superseded(ctx, q.From, q.To)
	if err != nil {
		return Summary{}, err
	}
	keep := c.newest(last)
	out := Summary{By: by, Groups: []Group{c.group("", keep, t)}}
	for _, i := range keep {
		if c.head[i] {
			out.HeadSampled++
		}
		if c.traced[i] {
			out.Traced++
		}
	}
	if by == "" {
		return out, nil
	}
	sets := make([][]int32, len(c.names))
	for _, i := range keep {
		sets[c.name[i]] = append(sets[c.name[i]], i)
	}
	order := make([]int, 0, len(sets))
	for g, set := range sets {
		if len(set) > 0 {
			order = append(order, g)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		if empty := cmp.Compare(len(c.names[b]), 0) - cmp.Compare(len(c.names[a]), 0); empty != 0 {
			return empty
		}
		return cmp.Or(-cmp.Compare(len(sets[a]), len(sets[b])), strings.Compare(c.names[a], c.names[b]))
	})
	if len(order) > maxGroups {
		out.Cut = len(order) - maxGroups
		order = order[:maxGroups]
	}
	if by == "step" {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(stepOf(c.names[a]), stepOf(c.names[b])) })
	}
	for _, g := range order {
		out.Groups = append(out.Groups, c.group(cmp.Or(c.names[g], "none"), sets[g], t))
	}
	return out, nil
}

func stepOf(name string) float64 {
	v, err := strconv.ParseFloat(name, 64)
	if err != nil {
		return 1e18 // requests of no step are last
	}
	return v
}

// summaryFields are the stored fields that a summary reads.
func summaryFields(by string) []string {
	names := []string{"outcome", "flags", "sources", request.Numbers[request.CompletionTokens].Name}
	for _, n := range Latencies {
		names = append(names, request.Numbers[n].Name)
	}
	switch by {
	case "":
	case "role":
		names = append(names, "engine", "prefill_engine")
	default:
		f, _ := findField(by) // Groups are fields
		names = append(names, f.stored)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (c *columns) add(fields []event.Field, by string) {
	id, rev := idOf(fields)
	var values [len(Latencies)]float64
	for i := range values {
		values[i] = absent
	}
	tokens := float64(absent)
	name, engine, prefill, flags, sources := "", "", "", "", ""
	end := 0
	group := ""
	if f, ok := findField(by); ok {
		group = f.stored
	}
	for _, f := range fields {
		switch f.Name {
		case "outcome":
			end = max(slices.Index(outcomes[:], request.Outcome(f.Value)), 0)
		case "engine":
			engine = f.Value
		case "prefill_engine":
			prefill = f.Value
		case "flags":
			flags = f.Value
		case "sources":
			sources = f.Value
		case "completion_tokens":
			tokens = number(f.Value)
		default:
			if i := latency(f.Name); i >= 0 {
				values[i] = number(f.Value)
			}
		}
		if group != "" && f.Name == group {
			name = f.Value
		}
	}
	if by == "role" {
		name = role(engine, prefill, flags)
	}
	at, ok := c.byName[name]
	if !ok {
		name = strings.Clone(name)
		at = int32(len(c.names))
		c.names = append(c.names, name)
		c.byName[name] = at
	}
	c.id, c.rev, c.name, c.end = append(c.id, id), append(c.rev, int32(rev)), append(c.name, at), append(c.end, uint8(end))
	for i := range values {
		c.values[i] = append(c.values[i], values[i])
	}
	c.tokens = append(c.tokens, tokens)
	c.head = append(c.head, strings.Contains(flags, request.FlagHeadSampled))
	c.traced = append(c.traced, strings.Contains(sources, string(request.FromTrace)))
}

// latency is the place of a stored field in Latencies, -1 for another.
func latency(name string) int {
	for i, n := range Latencies {
		if request.Numbers[n].Name == name {
			return i
		}
	}
	return -1
}

func number(text string) float64 {
	v, ok := request.ParseStored(text)
	if !ok || v < 0 {
		return absent
	}
	return v
}

// role says what served a request: one engine, or the halves of a pair that were seen.
func role(engine, prefill, flags string) string {
	half := strings.Contains(flags, request.FlagHalf)
	switch {
	case engine != "" && prefill != "":
		return "pair"
	case prefill != "":
		return "prefill half"
	case engine != "" && half:
		return "decode half"
	case engine != "":
		return "unified"
	}
	return ""
}

// newest are the rows that are the last revision of their request, each once.
func (c *columns) newest(last map[uint64]int) []int32 {
	keep := make([]int32, 0, len(c.id))
	seen := make(map[uint64]struct{}, len(c.id))
	for i, id := range c.id {
		if int(c.rev[i]) < last[id] {
			continue
		}
		if _, twice := seen[id]; twice {
			continue
		}
		seen[id] = struct{}{}
		keep = append(keep, int32(i))
	}
	return keep
}

func (c *columns) group(name string, rows []int32, t Targets) Group {
	g := Group{Name: name, Count: int64(len(rows)), Outcomes: map[request.Outcome]int64{}}
	for _, i := range rows {
		g.Outcomes[outcomes[c.end[i]]]++
	}
	for k := range Latencies {
		var v []float64
		for _, i := range rows {
			if c.values[k][i] >= 0 {
				v = append(v, c.values[k][i])
			}
		}
		if len(v) == 0 {
			continue
		}
		slices.Sort(v)
		q := func(num, den int) float64 { return v[(len(v)*num+den-1)/den-1] }
		g.Quantiles[k] = Quantiles{q(1, 2), q(9, 10), q(99, 100), v[len(v)-1], int64(len(v))}
	}
	if t == (Targets{}) {
		return g
	}
	for _, i := range rows {
		ttft, itl := c.values[0][i], c.values[1][i]
		end := outcomes[c.end[i]]
		if itl < 0 && end == request.Finished && c.tokens[i] == 1 {
			itl = 0
		}
		if known := (t.TTFT == 0 || ttft >= 0) && (t.ITL == 0 || itl >= 0); !known && end != request.ErrorOutcome {
			continue
		}
		g.Judged++
		if end == request.ErrorOutcome || end == request.AbortedRequest {
			continue
		}
		if (t.TTFT == 0 || ttft <= t.TTFT) && (t.ITL == 0 || itl <= t.ITL) {
			g.Good++
			g.GoodTokens += max(c.tokens[i], 0)
		}
	}
	return g
}
