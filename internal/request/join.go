package request

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Tolerance is how far apart two sources' times of one request may be.
type Tolerance struct {
	Start time.Duration // between two clocks that agree; 0 is 2 s
	// Skew widens it by how far the clocks of two observers are apart, nil is not at all. It is asked with
	// Observation.Engine or, where that is empty, Service; the answer is not negative.
	Skew func(a, b string) time.Duration
}

// defaultStart is wide enough for a queue in front of the engine, and narrower than a client's back-off.
const defaultStart = 2 * time.Second

func (t Tolerance) between(a, b *Observation) int64 {
	d := t.Start
	if d == 0 {
		d = defaultStart
	}
	if t.Skew != nil {
		d += t.Skew(a.host(), b.host())
	}
	return int64(d)
}

func (o *Observation) host() string { return cmp.Or(o.Engine, o.Service) }

// Verdict is how much ties two observations.
type Verdict uint8

// Verdicts.
const (
	Unrelated Verdict = iota
	ProbablyOne
	Proven
)

// JoinRule is what an equal alias proves.
type JoinRule struct {
	Kind  AliasKind
	Needs string // what must hold beside two equal ids
	Why   string
}

// JoinRules is the table of what proves that two observations are of one request, strongest first. What
// it does not prove is at most probable, and is shown, never merged. docs/requests.md shows it.
var JoinRules = []JoinRule{
	{SampleSpan, "nothing", "run, step, sample and span name one call of the rollout."},
	{SpanID, "the same trace_id", "A span id is unique in its trace."},
	{BootstrapRoom, "a prefill and a decode half, or an observer before them; starts within the tolerance", "The router draws a room for each pair. Engines use small numbers such as 0 for tests, and rooms come again, so roles and time must fit."},
	{TraceID, "times that overlap, no other id that differs", "A trace may hold many requests (an agent's chain), so time must fit. Dynamo and SGLang behind it use the trace id as rid: the two are compared too."},
	{RID, "starts within the tolerance, or the time of a line within the request; no trace ids that differ; the same engine, or an observer before it, or the two halves of a pair", "A rid repeats over retries: the start decides."},
	{DynamoID, "as rid", "Dynamo passes one id through frontend, router and worker."},
	{XRequestID, "as rid", "Callers choose it and repeat it when they try again."},
}

// tie is a verdict on two observations with what it rests on.
type tie struct {
	verdict Verdict
	rule    int   // index in JoinRules
	apart   int64 // ns between the starts
	why     string
}

// Related judges two observations by the table; why says in plain words what a probable match rests on.
func Related(a, b *Observation, t Tolerance) (v Verdict, why string) {
	x := judge(a, b, t)
	return x.verdict, x.why
}

func judge(a, b *Observation, t Tolerance) tie {
	best := tie{rule: len(JoinRules)}
	for i := range JoinRules {
		if x := judgeBy(i, a, b, t); x.verdict > best.verdict {
			x.rule = i
			best = x
			if x.verdict == Proven {
				break
			}
		}
	}
	if best.verdict != Unrelated && JoinRules[best.rule].Kind != SampleSpan && JoinRules[best.rule].Kind != SpanID && twoCalls(a, b) {
		return tie{verdict: Unrelated}
	}
	return best
}

func judgeBy(rule int, a, b *Observation, t Tolerance) tie {
	kind := JoinRules[rule].Kind
	id, ok := common(a, b, kind)
	if !ok {
		return tie{}
	}
	tol := t.between(a, b)
	apart := abs(a.Start - b.Start)
	timed := a.Start != 0 && b.Start != 0
	x := tie{apart: apart}
	near := timed && startsFit(a, b, tol)
	switch kind {
	case SampleSpan:
		x.verdict = Proven
	case SpanID:
		if _, same := common(a, b, TraceID); same {
			x.verdict = Proven
		}
	case BootstrapRoom:
		switch {
		case !near && !(timed && overlap(a, b, tol)):
		case !complementary(a, b):
			x.verdict, x.why = ProbablyOne, fmt.Sprintf("both name the bootstrap room %s, but they are no prefill and decode half", id)
		case differ(a, b, SampleSpan):
		default:
			x.verdict = Proven
		}
	case TraceID:
		switch {
		case !timed || !overlap(a, b, tol):
		case differ(a, b, RID) && !complementary(a, b), differ(a, b, SampleSpan), differ(a, b, DynamoID), differ(a, b, XRequestID):
		case !sameEngine(a, b):
			x.verdict, x.why = ProbablyOne, fmt.Sprintf("one trace %s at the same time, on two engines that are no pair", id)
		default:
			x.verdict = Proven
		}
	default: // rid, dynamo_id, x_request_id
		what := strings.ReplaceAll(string(kind), "_", " ")
		switch {
		case differ(a, b, SampleSpan):
		case !timed:
			x.verdict, x.why = ProbablyOne, fmt.Sprintf("both name the %s %s; when one of them was is not known", what, id)
		case !near:
		case differ(a, b, TraceID) && !overlap(a, b, tol-int64(cmp.Or(t.Start, defaultStart))): // a retry
		case differ(a, b, TraceID):
			x.verdict, x.why = ProbablyOne, fmt.Sprintf("two traces name the %s %s at the same time", what, id)
		case differ(a, b, RID) && !complementary(a, b):
			x.verdict, x.why = ProbablyOne, fmt.Sprintf("both name the %s %s, with different rids", what, id)
		case !sameEngine(a, b):
			x.verdict, x.why = ProbablyOne, fmt.Sprintf("both name the %s %s at the same time, on two engines that are no pair", what, id)
		default:
			x.verdict = Proven
		}
	}
	return x
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}

// common is an id of the kind that both have. A rid is compared with a trace id and a Dynamo id too: each
// of them may be what the engine took as rid.
func common(a, b *Observation, kind AliasKind) (string, bool) {
	for _, x := range a.Aliases {
		for _, y := range b.Aliases {
			if x.ID == y.ID && x.ID != "" && (x.Kind == kind && y.Kind == kind || crossed(x.Kind, y.Kind, kind) || crossed(y.Kind, x.Kind, kind)) {
				return x.ID, true
			}
		}
	}
	return "", false
}

func crossed(rid, other, kind AliasKind) bool {
	return rid == RID && other == kind && (kind == TraceID || kind == DynamoID || kind == XRequestID)
}

// differ says that both have ids of the kind, and none in common.
func differ(a, b *Observation, kind AliasKind) bool {
	has := func(o *Observation) bool {
		return slices.ContainsFunc(o.Aliases, func(x Alias) bool { return x.Kind == kind && x.ID != "" })
	}
	if !has(a) || !has(b) {
		return false
	}
	for _, x := range a.Aliases {
		if x.Kind == kind && slices.Contains(b.Aliases, x) {
			return false
		}
	}
	return true
}

// startsFit compares times of the same kind as starts; the time of a line may be anywhere in the request.
func startsFit(a, b *Observation, tol int64) bool {
	if a.TimeRank == 0 && b.TimeRank == 0 {
		return abs(a.Start-b.Start) <= tol
	}
	return overlap(a, b, tol)
}

// window is the time that an observation covers. A line about a request that gives its length was
// written at its end.
func (o *Observation) window() (from, to int64) {
	from, to = o.Start, max(o.Start, o.Finish)
	if o.TimeRank > 0 {
		if e2e, ok := o.E2E.Known(); ok && e2e < 86400 {
			from -= int64(e2e * 1e9)
		}
	}
	return from, to
}

func overlap(a, b *Observation, tol int64) bool {
	f1, t1 := a.window()
	f2, t2 := b.window()
	return f1-tol <= t2 && f2-tol <= t1
}

// complementary says that the two may be a prefill and a decode half, or a half and who stands before it.
func complementary(a, b *Observation) bool {
	if isHalf(a.Role) && isHalf(b.Role) {
		return a.Role != b.Role
	}
	return isHalf(a.Role) && b.before() || isHalf(b.Role) && a.before() || a.before() && b.before() ||
		isHalf(a.Role) && b.Role == "" && b.Engine == "" || isHalf(b.Role) && a.Role == "" && a.Engine == ""
}

func isHalf(role string) bool { return role == "prefill" || role == "decode" }

// sameEngine says that the engines that two observers name do not speak against one request. Whoever
// stands before an engine names itself.
func sameEngine(a, b *Observation) bool {
	return a.Engine == "" || b.Engine == "" || a.Engine == b.Engine || a.before() || b.before() || complementary(a, b)
}

// twoCalls says that two observations of one observer are two requests: one source gives one time stamp
// and one last word to one request.
func twoCalls(a, b *Observation) bool {
	const jitter = int64(time.Millisecond)
	return a.Source == b.Source && a.Final == b.Final && a.Role == b.Role && a.Engine == b.Engine && a.Service == b.Service &&
		a.TimeRank == 0 && b.TimeRank == 0 && abs(a.Start-b.Start) > jitter
}

// parted says that two observations cannot be of one request whatever ties them over a third.
func parted(a, b *Observation) bool {
	if twoCalls(a, b) || differ(a, b, SampleSpan) {
		return true
	}
	if differ(a, b, RID) && !complementary(a, b) {
		_, room := common(a, b, BootstrapRoom)
		return !room
	}
	if differ(a, b, TraceID) {
		_, room := common(a, b, BootstrapRoom)
		return !room || !complementary(a, b)
	}
	// Who says no role may be the other half, on the other engine.
	return !sameEngine(a, b) && isHalf(a.Role) == isHalf(b.Role)
}

// link is a tie between the observations i < j of a list.
type link struct {
	tie
	i, j int
}

// weak is a probable tie between two groups.
type weak struct {
	a, b int // groups
	why  string
}

// partition puts observations into groups of one request each, by proven ties alone. An observation that
// fits two requests that are not the same stays alone, with a probable tie to both, unless its start
// says clearly which it is. The order of the list makes no difference; list must be canonical.
func partition(list []keyed, t Tolerance) (groups [][]keyed, weaks []weak, ambiguous []bool) {
	n := len(list)
	if n == 1 { // as most requests are
		return [][]keyed{list}, nil, []bool{false}
	}
	var links []link
	for i := range n {
		for j := i + 1; j < n; j++ {
			if x := judge(list[i].o, list[j].o, t); x.verdict != Unrelated {
				links = append(links, link{x, i, j})
			}
		}
	}
	doubt := doubts(list, links)
	slices.SortStableFunc(links, func(a, b link) int {
		return cmp.Or(-cmp.Compare(a.verdict, b.verdict), cmp.Compare(a.rule, b.rule), cmp.Compare(a.apart, b.apart))
	})
	group := make([]int, n)
	members := make([][]int, n)
	for i := range n {
		group[i], members[i] = i, []int{i}
	}
	var rest []link
	for _, l := range links {
		a, b := group[l.i], group[l.j]
		if a == b {
			continue
		}
		why := l.why
		inDoubt, other := doubt[[2]int{l.i, l.j}]
		switch {
		case l.verdict != Proven:
		case other && !inDoubt:
			continue
		case inDoubt:
			why = fmt.Sprintf("the same %s, but another request fits as well", JoinRules[l.rule].Kind)
		default:
			if anyParted(list, members[a], members[b]) {
				why = fmt.Sprintf("the same %s, but what else is known of the two does not fit", JoinRules[l.rule].Kind)
				break
			}
			lo, hi := min(a, b), max(a, b)
			for _, m := range members[hi] {
				group[m] = lo
			}
			members[lo] = append(members[lo], members[hi]...)
			members[hi] = nil
			continue
		}
		l.why = why
		rest = append(rest, l)
	}
	place := make([]int, n)
	for i := range n {
		if len(members[i]) == 0 {
			continue
		}
		slices.Sort(members[i])
		place[i] = len(groups)
		var g []keyed
		for _, m := range members[i] {
			g = append(g, list[m])
		}
		groups = append(groups, g)
	}
	ambiguous = make([]bool, len(groups))
	for _, l := range rest {
		a, b := place[group[l.i]], place[group[l.j]]
		if a == b {
			continue
		}
		if l.verdict == Proven {
			ambiguous[a], ambiguous[b] = true, true
		}
		w := weak{min(a, b), max(a, b), l.why}
		if !slices.ContainsFunc(weaks, func(x weak) bool { return x.a == w.a && x.b == w.b }) {
			weaks = append(weaks, w)
		}
	}
	return groups, weaks, ambiguous
}

func anyParted(list []keyed, a, b []int) bool {
	for _, i := range a {
		for _, j := range b {
			if parted(list[i].o, list[j].o) {
				return true
			}
		}
	}
	return false
}

// doubts finds the proven links of an observation that fits several requests: true for those that fit no
// better than another, false for those that another one clearly beats.
func doubts(list []keyed, links []link) map[[2]int]bool {
	byEnd := make([][]int, len(list)) // links of an observation
	for k, l := range links {
		if l.verdict == Proven {
			byEnd[l.i] = append(byEnd[l.i], k)
			byEnd[l.j] = append(byEnd[l.j], k)
		}
	}
	out := map[[2]int]bool{}
	for i, mine := range byEnd {
		for _, k1 := range mine {
			for _, k2 := range mine {
				l1, l2 := links[k1], links[k2]
				if k1 == k2 || l1.rule < l2.rule || !parted(list[other(l1, i)].o, list[other(l2, i)].o) {
					continue
				}
				key := [2]int{l1.i, l1.j}
				switch {
				case l1.rule > l2.rule, clearlyNearer(l2.apart, l1.apart):
					out[key] = false
				case !clearlyNearer(l1.apart, l2.apart):
					if _, beaten := out[key]; !beaten {
						out[key] = true
					}
				}
			}
		}
	}
	return out
}

func other(l link, i int) int {
	if l.i == i {
		return l.j
	}
	return l.i
}

// clearlyNearer: within a tenth of a second, and the other at least four times as far.
func clearlyNearer(a, b int64) bool {
	return a <= int64(100*time.Millisecond) && b >= 4*a && b-a > int64(time.Millisecond)
}
