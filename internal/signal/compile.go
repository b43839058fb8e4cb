package signal

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/rollscope/rollscope/internal/engine"
)

// By is what a compiled query keeps apart.
type By string

// Groupings. The empty By is ByFleet.
const (
	ByFleet  By = "fleet"  // one number; no labels
	ByEngine By = "engine" // labels instance, model_name; recorded ones also role and backend
	ByRole   By = "role"   // label role; an engine of unknown role has role=""
	ByModel  By = "model"  // label model_name
)

// Form is what a compiled query reads.
type Form string

// Forms. The empty Form is Raw.
const (
	Raw      Form = "raw"      // the scraped series: works on any store
	Recorded Form = "recorded" // the series that [RecordingRules] make: cheap over long ranges
)

// Query says which form of a signal is wanted. The zero Query is the fleet's number out of raw series.
type Query struct {
	By     By
	Form   Form
	Window time.Duration // range of rates; 0 is the signal's own (5 minutes, throughput 1 minute)
	// Quantile of a Quantile signal, 0 is 0.99.
	Quantile float64
	// Match holds more matchers, without braces. In the raw form they apply to the scraped series, except
	// that `instance` means the engine's identity (as in the result), however the engine was seen. In the
	// recorded form they apply to the labels instance, model_name, role, backend.
	Match string
	// CommonBounds keeps only the bucket bounds that every engine has, so that engines with different
	// bucket layouts can be added. It costs three evaluations of the buckets in the raw form; recorded
	// fleet quantiles always have it.
	CommonBounds bool
	// Sources picks some of the signal's sources by index; nil is all.
	Sources []int
}

// Compile gives the PromQL of a signal. A result without samples means idle where [CompileCount]
// gives 0, and unknown where that has no samples either; the result never holds a NaN.
func Compile(s Signal, q Query) (string, error) {
	b, err := newBuilder(s, q)
	if err != nil {
		return "", err
	}
	if b.q.Form == Recorded {
		return b.recorded()
	}
	switch s.Kind {
	case Quantile:
		return b.quantileOf(b.buckets()), nil
	case Share:
		num, den := b.grouped(b.vector(numOf), false), b.grouped(b.vector(denOf), false)
		return fmt.Sprintf("%s / (%s > 0)", operand(num), operand(den)), nil
	default:
		return b.grouped(b.vector(valueOf), false), nil
	}
}

// CompileCount gives the PromQL of the events per second under the signal's number, in the same
// grouping: 0 means idle, no sample means unknown. It is "" for a Level and a Worst, which are never
// idle.
func CompileCount(s Signal, q Query) (string, error) {
	b, err := newBuilder(s, q)
	if err != nil {
		return "", err
	}
	if s.Kind == Level || s.Kind == Worst {
		return "", nil
	}
	if b.q.Form == Recorded {
		return b.recordedCount()
	}
	switch s.Kind {
	case Quantile:
		return b.grouped(b.vector(countOf), false), nil
	case Share:
		return b.grouped(b.vector(denOf), false), nil
	default:
		return b.grouped(b.vector(valueOf), false), nil
	}
}

// CompileBuckets gives the PromQL of a Quantile's buckets: events per second by `le` (in the unit of
// the histogram, see [Signal.Scale]) and the grouping, engines of one group added.
func CompileBuckets(s Signal, q Query) (string, error) {
	b, err := newBuilder(s, q)
	if err != nil {
		return "", err
	}
	if s.Kind != Quantile {
		return "", fmt.Errorf("signal %q is a %s: only a quantile has buckets", s.ID, s.Kind)
	}
	if b.q.Form == Recorded {
		return b.recordedBuckets()
	}
	return b.buckets(), nil
}

// builder holds what is constant while one query is built.
type builder struct {
	s       Signal
	q       Query
	window  string
	sources []Source
	match   matchers
}

func newBuilder(s Signal, q Query) (*builder, error) {
	if q.By == "" {
		q.By = ByFleet
	}
	if q.Form == "" {
		q.Form = Raw
	}
	if q.Quantile == 0 {
		q.Quantile = 0.99
	}
	if !slices.Contains([]By{ByFleet, ByEngine, ByRole, ByModel}, q.By) {
		return nil, fmt.Errorf("signal %q: unknown grouping %q: use fleet, engine, role or model", s.ID, q.By)
	}
	if q.Form != Raw && q.Form != Recorded {
		return nil, fmt.Errorf("signal %q: unknown form %q: use raw or recorded", s.ID, q.Form)
	}
	if q.Quantile < 0 || q.Quantile > 1 {
		return nil, fmt.Errorf("signal %q: quantile %g is outside 0..1", s.ID, q.Quantile)
	}
	if s.RawOnly && q.Form == Recorded { // nobody has looked at the bounds, as the reader of raw series has
		q.Form, q.CommonBounds = Raw, true
	}
	b := &builder{s: s, q: q}
	if q.Window == 0 {
		b.q.Window = s.DefaultRange()
	}
	b.window = model.Duration(b.q.Window).String()
	var err error
	if b.match, err = parseMatch(q.Match); err != nil {
		return nil, fmt.Errorf("signal %q: %w", s.ID, err)
	}
	if q.Sources == nil {
		b.sources = s.Sources
	}
	for _, i := range q.Sources {
		if i < 0 || i >= len(s.Sources) {
			return nil, fmt.Errorf("signal %q has no source %d", s.ID, i)
		}
		b.sources = append(b.sources, s.Sources[i])
	}
	return b, nil
}

// side is which of a source's vectors is wanted.
type side int

const (
	valueOf    side = iota // Num, as a rate or a level
	bucketOf               // Num's buckets
	countOf                // Num's count
	numOf                  // a Share's numerator
	denOf                  // a Share's denominator
	presenceOf             // series that only need to be there
)

// vec is a PromQL vector that still has the dims that its final aggregation removes.
type vec struct {
	expr  string
	exact bool // its labels are exactly those of the grouping: no aggregation is needed
}

// isEngine tells the backends whose series may be seen through a router or through Ray.
func isEngine(b engine.Backend) bool { return b == engine.SGLang || b == engine.VLLM }

// hasRole tells the backends whose instances take part in the join with roles.
func hasRole(b engine.Backend) bool { return isEngine(b) || b == engine.DynamoWorker }

// identity lists the labels that tell engines apart inside the query. Where the result keeps the
// engine, its identity is moved into `instance`; elsewhere leaving Ray's WorkerId where it is makes a
// shorter query.
func (b *builder) identity() string {
	if b.movesIdentity() {
		return "instance"
	}
	return "instance, WorkerId"
}

func (b *builder) movesIdentity() bool { return b.q.By == ByEngine || b.q.By == ByRole }

// vector joins all sources, best first: an engine that has the first is not looked for in the second.
func (b *builder) vector(what side) vec {
	var engines, fallbacks []vec
	var engineSources []Source
	for _, src := range b.sources {
		for _, v := range b.views(src) {
			l := b.sourceView(src, v, what)
			if b.q.By == ByRole && !hasRole(src.Backend) {
				l = vec{expr: fmt.Sprintf(`label_replace(%s, "role", %q, "", "")`, l.expr, roleOf(src.Backend))}
			}
			if src.Fallback {
				fallbacks = append(fallbacks, l)
			} else {
				engines = append(engines, l)
				engineSources = append(engineSources, src)
			}
		}
	}
	out := b.join(engines, " or on ("+b.identity()+") ")
	if b.q.By == ByRole && len(engines) > 0 && slices.ContainsFunc(engineSources, func(s Source) bool { return hasRole(s.Backend) }) {
		out = vec{expr: b.withRole(out.expr)}
	}
	if len(fallbacks) == 0 {
		return out
	}
	all := fallbacks
	if len(engines) > 0 {
		all = append([]vec{out}, fallbacks...)
	}
	return b.join(all, " or on () ")
}

func (b *builder) join(vs []vec, op string) vec {
	out := vec{exact: true}
	var exprs []string
	for _, v := range vs {
		exprs = append(exprs, v.expr)
		out.exact = out.exact && v.exact
	}
	out.expr = strings.Join(exprs, op)
	return out
}

// roleOf is the role of programs that are not engines.
func roleOf(b engine.Backend) engine.Role {
	switch b {
	case engine.DynamoFrontend:
		return engine.Frontend
	case engine.Router:
		return engine.RoleRouter
	default:
		return engine.RoleUnknown
	}
}

// view is one way in which an engine's series reach the store.
type view string

const (
	plainView  view = ""       // not an engine: no other way exists
	directView view = "direct" // scraped itself; Ray's metrics agent is the same but for the identity
	routerView view = "router" // in a router's /engine_metrics, told apart by worker_addr
	rayView    view = "ray"    // only where the query asks for one instance, which may be a WorkerId
)

func (b *builder) views(src Source) []view {
	switch {
	case !isEngine(src.Backend):
		return []view{plainView}
	case len(b.match.instance) > 0:
		return []view{directView, rayView, routerView}
	default:
		return []view{directView, routerView}
	}
}

// sourceView builds one source in one view.
func (b *builder) sourceView(src Source, v view, what side) vec {
	var out vec
	switch {
	case what == denOf && len(src.Den) == 0:
		out = vec{expr: b.terms(src, src.Num, v, numOf).expr + " * 0 + 1"}
	case what == denOf:
		out = b.terms(src, src.Den, v, what)
	case what == numOf && src.Lazy && len(src.Den) > 0:
		out = b.orZero(b.terms(src, src.Num, v, what), b.terms(src, src.Den, v, denOf))
	case len(src.ZeroIf) > 0:
		out = b.orZero(b.terms(src, src.Num, v, what), b.terms(src, src.ZeroIf, v, presenceOf))
	case what == valueOf && len(src.Den) > 0:
		num, den := b.terms(src, src.Num, v, what), b.terms(src, src.Den, v, what)
		out = vec{expr: fmt.Sprintf("%s / (%s > 0)", operand(num.expr), operand(den.expr)), exact: num.exact && den.exact}
	default:
		out = b.terms(src, src.Num, v, what)
	}
	if scale := orOne(src.Scale); scale != 1 && (what == valueOf || what == numOf) {
		out.expr = operand(out.expr) + " * " + number(scale)
	}
	return out
}

// orZero is v, and 0 for the engines that are in present and not in v.
func (b *builder) orZero(v, present vec) vec {
	return vec{expr: fmt.Sprintf("(%s or on (%s) %s * 0)", v.expr, b.identity(), operand(present.expr))}
}

// terms adds the terms of a Vec. The final aggregation adds; here they are only kept from colliding.
func (b *builder) terms(src Source, ts Vec, v view, what side) vec {
	if len(ts) == 1 {
		return b.leaf(src, ts[0], v, what)
	}
	var exprs []string
	for i, t := range ts {
		exprs = append(exprs, fmt.Sprintf(`label_replace(%s, "term", "%d", "", "")`, b.leaf(src, t, v, what).expr, i))
	}
	return vec{expr: "(" + strings.Join(exprs, " or ") + ")"}
}

// workerAddr takes the host:port out of a worker address, as [engine.InstanceOf] does.
const workerAddr = `([a-z]+://)?([^/@]+).*`

// leaf is one term in one view, reduced so that each event or level of an engine is in it once.
//
// Without rank labels the parts of one scrape (streaming or not, custom labels) are added, and then
// the largest of what several jobs or routers say about one engine counts. With rank labels the largest
// of all that is said about one data-parallel rank counts, which collapses the jobs and the tensor-,
// pipeline- and expert-parallel ranks at once.
func (b *builder) leaf(src Source, t Term, v view, what side) vec {
	f := b.selection(src, t, v, what)
	modelLabel := b.modelLabel(src.Backend)
	var extra []string
	if modelLabel != "" {
		extra = append(extra, modelLabel)
	}
	if what == bucketOf {
		extra = append(extra, "le")
	}
	exact := b.q.By == ByEngine
	if t.Ranks == RankLeader {
		dims := slices.Clone(t.Parts)
		if isEngine(src.Backend) {
			dims = append([]string{dpLabel(src.Backend)}, dims...)
		}
		exact = exact && len(dims) == 0
		extra = append(extra, dims...)
	}
	id := list("instance", extra)
	var expr string
	switch {
	case t.Ranks == RankLeader && v == plainView:
		expr = fmt.Sprintf("max by (%s) (%s)", id, f)
	case t.Ranks == RankLeader && v == routerView:
		expr = fmt.Sprintf(`max by (%s) (label_replace(max by (%s) (%s), "instance", "$2", "worker_addr", "%s"))`,
			id, list("worker_addr", extra), f, workerAddr)
	case t.Ranks == RankLeader && b.movesIdentity():
		expr = fmt.Sprintf(`max by (%s) (label_replace(%s, "instance", "$1", "WorkerId", "(.+)"))`, id, f)
	case t.Ranks == RankLeader:
		expr = fmt.Sprintf("max by (%s) (%s)", list("instance, WorkerId", extra), f)
	case v == plainView:
		expr = fmt.Sprintf("max by (%s) (sum by (%s) (%s))", id, list("job, instance", extra), f)
	case v == routerView:
		expr = fmt.Sprintf(`max by (%s) (label_replace(max by (%s) (sum by (%s) (%s)), "instance", "$2", "worker_addr", "%s"))`,
			id, list("worker_addr", extra), list("job, instance, worker_addr", extra), f, workerAddr)
	case b.movesIdentity():
		expr = fmt.Sprintf(`max by (%s) (label_replace(sum by (%s) (%s), "instance", "$1", "WorkerId", "(.+)"))`,
			id, list("job, instance, WorkerId", extra), f)
	default:
		expr = fmt.Sprintf("max by (%s) (sum by (%s) (%s))",
			list("instance, WorkerId", extra), list("job, instance, WorkerId", extra), f)
	}
	if modelLabel != "" && modelLabel != "model_name" {
		expr = fmt.Sprintf(`label_replace(%s, "model_name", "$1", %q, "(.+)")`, expr, modelLabel)
		exact = false
	}
	return vec{expr: expr, exact: exact}
}

// modelLabelOf is the label in which a program writes the model's name, "" when it writes none.
func modelLabelOf(b engine.Backend) string {
	switch b {
	case engine.SGLang, engine.VLLM:
		return "model_name"
	case engine.DynamoFrontend, engine.DynamoWorker, engine.Router:
		return "model"
	default:
		return ""
	}
}

// modelLabel is the label that holds the model where the grouping needs it, "" elsewhere.
func (b *builder) modelLabel(backend engine.Backend) string {
	if b.q.By != ByEngine && b.q.By != ByModel {
		return ""
	}
	return modelLabelOf(backend)
}

// dpLabel is the label of the data-parallel rank.
func dpLabel(b engine.Backend) string {
	if b == engine.VLLM {
		return "engine"
	}
	return "dp_rank"
}

// selection is the raw vector of a term in a view: rates of counters, levels as they are.
func (b *builder) selection(src Source, t Term, v view, what side) string {
	name := t.Metric
	switch what {
	case bucketOf:
		name += "_bucket"
	case countOf:
		name += "_count"
	}
	m := b.matchersOf(src.Backend, t, v)
	f := selector(name, m)
	if b.isRate(src, t, what) {
		return fmt.Sprintf("rate(%s[%s])", f, b.window)
	}
	if t.OnlyIf != "" {
		f = fmt.Sprintf("%s and %s > 0", f, selector(t.OnlyIf, m))
	}
	if t.Then != "" && what != presenceOf {
		f = operand(f) + " " + t.Then
	}
	return f
}

// isRate tells whether a term is read as events per second.
func (b *builder) isRate(src Source, t Term, what side) bool {
	switch {
	case what == bucketOf || what == countOf:
		return true
	case what == presenceOf:
		return false
	case t.As != "":
		return t.As == AsRate
	default:
		return b.s.Kind == Rate || b.s.Kind == Share && len(src.Den) > 0
	}
}

// grouped aggregates a vector to the query's grouping.
func (b *builder) grouped(v vec, keepLe bool) string {
	labels := b.groupLabels()
	if keepLe {
		labels = append([]string{"le"}, labels...)
	}
	if v.exact && b.q.By == ByEngine {
		return v.expr
	}
	if len(labels) == 0 {
		return fmt.Sprintf("%s(%s)", b.aggregator(), v.expr)
	}
	return fmt.Sprintf("%s by (%s) (%s)", b.aggregator(), strings.Join(labels, ", "), v.expr)
}

func (b *builder) groupLabels() []string {
	switch b.q.By {
	case ByEngine:
		return []string{"instance", "model_name"}
	case ByRole:
		return []string{"role"}
	case ByModel:
		return []string{"model_name"}
	default:
		return nil
	}
}

// aggregator is how engines of one group are merged.
func (b *builder) aggregator() string {
	switch {
	case b.s.Kind == Worst && b.s.Higher:
		return "min"
	case b.s.Kind == Worst:
		return "max"
	default:
		return "sum"
	}
}

// buckets are the bucket rates of the grouping.
func (b *builder) buckets() string {
	v := b.vector(bucketOf)
	if b.q.CommonBounds && b.q.By != ByEngine {
		return commonBounds(v.expr, b.groupLabels())
	}
	return b.grouped(v, true)
}

// commonBounds adds the buckets of a group, keeping only the bounds that every engine in it has.
func commonBounds(buckets string, group []string) string {
	on, le := strings.Join(group, ", "), list("le", group)
	count := fmt.Sprintf("count by (%s) (%s)", le, buckets)
	most := fmt.Sprintf("max(%s)", count)
	if on != "" {
		most = fmt.Sprintf("max by (%s) (%s)", on, count)
	}
	return fmt.Sprintf("sum by (%s) (%s) and on (%s) (%s == on (%s) group_left %s)", le, buckets, le, count, on, most)
}

// quantileOf is the percentile of buckets, without a sample where there are no events (NaN is not >= 0).
func (b *builder) quantileOf(buckets string) string {
	q := fmt.Sprintf("histogram_quantile(%s, %s)", number(b.q.Quantile), buckets)
	if scale := b.s.Scale(); scale != 1 {
		q += " * " + number(scale)
	}
	return q + " >= 0"
}

// list writes label names as PromQL wants them.
func list(first string, rest []string) string {
	if len(rest) == 0 {
		return first
	}
	return first + ", " + strings.Join(rest, ", ")
}

// operand puts an expression in parentheses where an operator beside it would tear it apart.
func operand(expr string) string {
	if strings.Contains(expr, " or ") || strings.Contains(expr, " and ") || strings.Contains(expr, " unless ") {
		return "(" + expr + ")"
	}
	return expr
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
