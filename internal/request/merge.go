package request

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Said is what one source said about a field.
type Said struct {
	Source string // "trace", of an engine with a role "trace/decode"
	Text   string
}

// Settled is a request as all that was observed of it says. A row of it is stored; a later revision of
// the same ID replaces it.
type Settled struct {
	ID       string // stable over revisions
	Revision int    // from 1
	Into     string // this request turned out to be a part of that one; all else is that one's to say
	Final    bool   // every source that spoke has said all it will

	Time   int64 // ns since 1970 (UTC): the start that the first revision had; the row's place in time
	Start  int64 // ns since 1970 (UTC), 0 unknown
	Finish int64 // 0 unknown or open

	Aliases []Alias // sorted, each once
	Outcome Outcome
	Numbers [NumNumbers]Value
	Words   [NumWords]string
	// NumberFrom and WordFrom name the source of each field, "" where there is no value. A number that
	// was worked out of others has "=" behind the source.
	NumberFrom [NumNumbers]string
	WordFrom   [NumWords]string
	StartFrom  string
	// Others are words that differ from the field's value, by field name, sources in order.
	Others map[string][]Said

	Sources     []Source
	Spans       int
	SpansKept   string
	SpansReason string
	Flags       []string // sorted
	Probable    []Probable
	Keys        []string // of the observations it is made of, sorted
}

// Probable is a request that may be the same one.
type Probable struct {
	ID      string // of the other request
	TraceID string // of the other, "" without one
	Why     string
}

// Flags that merging sets; sources add their own.
const (
	FlagSkew        = "clock_skew"       // two hosts' clocks cannot both be right about this request
	FlagQueue       = "negative_queue"   // an engine said a queue time below 0
	FlagCached      = "cached_gt_prompt" // more cached tokens than the prompt has
	FlagHalf        = "half_missing"     // one half of a PD pair was seen alone
	FlagDisagree    = "sources_disagree" // two sources' latencies are more than a tenth and 50 ms apart
	FlagNoTime      = "no_time"          // nobody said when it was
	FlagInvalid     = "invalid_values"   // a number that cannot be was said and not used
	FlagAmbiguous   = "ambiguous_match"  // an observation fits two requests that are not the same
	FlagHeadSampled = "head_sampled"     // a sampler before us threw other traces away, as this one's tracestate says
	FlagEarlierLost = "earlier_lost"     // an earlier row's observations are gone: it was not merged
)

// Value returns a number and whether there is one.
func (s *Settled) Value(n Number) (float64, bool) { return s.Numbers[n].Known() }

// Alias returns the first alias of a kind, "" without one.
func (s *Settled) Alias(k AliasKind) string {
	for _, a := range s.Aliases {
		if a.Kind == k {
			return a.ID
		}
	}
	return ""
}

// origin names an observation as a source of a field.
func (o *Observation) origin() string {
	if o.Role == "" || o.Role == "unified" {
		return string(o.Source)
	}
	return string(o.Source) + "/" + o.Role
}

// Merge makes one request out of what was observed of it. The order of the observations and repeated ones
// make no difference. ID, Revision, Time and Probable are the caller's to fill.
func Merge(obs []Observation) Settled {
	return mergeKeyed(canonical(obs))
}

func mergeKeyed(list []keyed) Settled {
	var s Settled
	if len(list) == 0 {
		return s
	}
	s.times(list)
	for n := range NumNumbers {
		s.number(n, list)
	}
	for w := range NumWords {
		s.word(w, list)
	}
	s.outcome(list)
	s.derive(list)
	s.spans(list)
	s.Final = true
	for _, k := range list {
		o := k.o
		s.Keys = append(s.Keys, k.key)
		s.Aliases = append(s.Aliases, o.Aliases...)
		s.Flags = append(s.Flags, o.Flags...)
		s.Sources = append(s.Sources, o.Source)
		s.Final = s.Final && o.Final
	}
	slices.SortFunc(s.Aliases, compareAliases)
	s.Aliases = slices.Compact(s.Aliases)
	slices.Sort(s.Sources)
	s.Sources = slices.Compact(s.Sources)
	s.check(list)
	s.Flags = sortedWords(s.Flags)
	return s
}

func compareAliases(a, b Alias) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
}

func sortedWords(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// keyed is an observation with its key.
type keyed struct {
	o   *Observation
	key string
}

// canonical puts observations in one order whatever order they came in, each once.
func canonical(obs []Observation) []keyed {
	list := make([]keyed, len(obs))
	for i := range obs {
		list[i] = keyed{&obs[i], obs[i].Key()}
	}
	return sortKeyed(list)
}

func sortKeyed(list []keyed) []keyed {
	slices.SortFunc(list, func(a, b keyed) int {
		return cmp.Or(cmp.Compare(a.o.TimeRank, b.o.TimeRank), cmp.Compare(a.o.Start, b.o.Start), strings.Compare(a.key, b.key))
	})
	return slices.CompactFunc(list, func(a, b keyed) bool { return a.key == b.key })
}

// best is the index of the observation that a rule believes, among those for which said holds; -1 for none.
func best(rule *FieldRule, list []keyed, said func(o *Observation) bool) int {
	at, rank := -1, 0
	for i := range list {
		if o := list[i].o; said(o) && !rule.otherHalf(o) {
			if r := rule.rank(o); at < 0 || r < rank {
				at, rank = i, r
			}
		}
	}
	return at
}

// times takes start and end from the source whose view counts. Lines about a request count only where
// nobody gave a time stamp of it.
func (s *Settled) times(list []keyed) {
	for rank := range 2 {
		if at := best(&StartRule, list, func(o *Observation) bool { return o.Start != 0 && min(o.TimeRank, 1) == rank }); at >= 0 {
			s.Start, s.StartFrom = list[at].o.Start, list[at].o.origin()
			if list[at].o.Role != "prefill" {
				s.Finish = list[at].o.Finish
			}
			break
		}
	}
	if s.Finish == 0 {
		end := FieldRule{Order: StartRule.Order, Half: DecodeHalf}
		if at := best(&end, list, func(o *Observation) bool { return o.Finish != 0 }); at >= 0 {
			s.Finish = list[at].o.Finish
		}
	}
	if s.Finish != 0 && s.Finish < s.Start {
		s.Flags = append(s.Flags, FlagSkew)
	}
	if s.Start == 0 {
		s.Flags = append(s.Flags, FlagNoTime)
	}
}

// number settles one numeric field. A word that cannot be is taken, as such, only where no better one is.
func (s *Settled) number(n Number, list []keyed) {
	rule := &Numbers[n]
	for _, state := range [...]State{Known, Invalid} {
		if at := best(rule, list, func(o *Observation) bool { return o.value(n).State == state }); at >= 0 {
			v := *list[at].o.value(n)
			s.Numbers[n], s.NumberFrom[n] = Value{round(v.V), v.State}, list[at].o.origin() // as a stored row has it
			break
		}
	}
	for i := range list {
		v := *list[i].o.value(n)
		if v.State == Invalid {
			s.Flags = append(s.Flags, FlagInvalid)
			if n == Queue && v.V < 0 {
				s.Flags = append(s.Flags, FlagQueue)
			}
		}
		if v.State != Absent && !same(v, s.Numbers[n]) {
			s.other(rule.Name, list[i].o.origin(), v.text())
		}
	}
}

// same takes NaN for equal to NaN.
func same(a, b Value) bool {
	return a.State == b.State && (round(a.V) == round(b.V) || a.V != a.V && b.V != b.V)
}

// text is the value as people read it; what cannot be says so.
func (v Value) text() string {
	t := plain(v.V)
	if v.State == Invalid {
		t += " (invalid)"
	}
	return t
}

func (s *Settled) other(field, source, text string) {
	if s.Others == nil {
		s.Others = map[string][]Said{}
	}
	if e := (Said{source, text}); !slices.Contains(s.Others[field], e) {
		s.Others[field] = append(s.Others[field], e)
	}
}

func (s *Settled) word(w Word, list []keyed) {
	rule := &Words[w]
	if at := best(rule, list, func(o *Observation) bool { return o.word(w) != "" }); at >= 0 {
		s.Words[w], s.WordFrom[w] = list[at].o.word(w), list[at].o.origin()
	}
	for i := range list {
		if t := list[i].o.word(w); t != "" && t != s.Words[w] {
			s.other(rule.Name, list[i].o.origin(), t)
		}
	}
}

// outcome: one failure is enough, an abort next. A prefill half that finished has not finished the
// request. Running is what stays when somebody saw the request and nobody its end.
func (s *Settled) outcome(list []keyed) {
	rank := map[Outcome]int{OutcomeUnknown: 0, Running: 1, Finished: 2, AbortedRequest: 3, ErrorOutcome: 4}
	for _, k := range list {
		out := k.o.Outcome
		if out == OutcomeUnknown && k.o.FinishReason != "" {
			out = OutcomeOf(k.o.FinishReason)
		}
		if out == OutcomeUnknown && !k.o.Final && k.o.Finish == 0 {
			out = Running
		}
		if k.o.Role == "prefill" && out == Finished {
			out = OutcomeUnknown
		}
		if rank[out] > rank[s.Outcome] {
			s.Outcome = out
		}
	}
	if s.Outcome == Running && s.Finish != 0 {
		s.Outcome = OutcomeUnknown // an end, and nobody said which
	}
	for _, k := range list {
		if out := k.o.Outcome; out != OutcomeUnknown && out != Running && out != s.Outcome {
			s.other("outcome", k.o.origin(), string(out))
		}
	}
}

// OutcomeOf is the outcome that a finish reason means, unknown for words that nobody knows.
func OutcomeOf(finish string) Outcome {
	switch finish {
	case "stop", "length", "tool_calls", "function_call", "eos", "eos_token", "stop_sequence", "content_filter":
		return Finished
	case "abort", "aborted", "cancelled", "canceled":
		return AbortedRequest
	case "error":
		return ErrorOutcome
	}
	return OutcomeUnknown
}

// derive works out of what is known what nobody said; it never mixes two sources.
func (s *Settled) derive(list []keyed) {
	for n, p := range map[Number]Phase{Prefill: PrefillForward, Transfer: DecodeTransfer, Decode: DecodeForward} {
		from := PhaseNumber(p)
		if v, ok := s.Value(from); ok && s.Numbers[n].State != Known {
			s.Numbers[n], s.NumberFrom[n] = Value{v, Known}, s.NumberFrom[from]+"="
		}
	}
	if s.Numbers[E2E].State != Known {
		rule := &Numbers[E2E]
		if at := best(rule, list, func(o *Observation) bool { return o.TimeRank == 0 && o.Start != 0 && o.Finish > o.Start }); at >= 0 {
			o := list[at].o
			s.Numbers[E2E], s.NumberFrom[E2E] = Value{round(float64(o.Finish-o.Start) / 1e9), Known}, o.origin()+"="
		}
	}
	if s.Numbers[ITL].State != Known {
		at := best(&Numbers[ITL], list, func(o *Observation) bool { _, ok := o.meanITL(); return ok })
		if at >= 0 {
			v, _ := list[at].o.meanITL()
			s.Numbers[ITL], s.NumberFrom[ITL] = Value{v, Known}, list[at].o.origin()+"="
		}
	}
}

// meanITL is the time per token after the first, out of one observation alone.
func (o *Observation) meanITL() (float64, bool) {
	e2e, ok1 := o.E2E.Known()
	if !ok1 && o.TimeRank == 0 && o.Start != 0 && o.Finish > o.Start {
		e2e, ok1 = float64(o.Finish-o.Start)/1e9, true
	}
	ttft, ok2 := o.TTFT.Known()
	tokens, ok3 := o.CompletionTokens.Known()
	if !ok1 || !ok2 || !ok3 || tokens < 2 || ttft > e2e {
		return 0, false
	}
	return round((e2e - ttft) / (tokens - 1)), true
}

func (s *Settled) spans(list []keyed) {
	best := map[string]int{"": 0, "sampled_away": 1, "kept": 2}
	for _, k := range list {
		s.Spans += k.o.Spans
		if best[k.o.SpansKept] > best[s.SpansKept] {
			s.SpansKept, s.SpansReason = k.o.SpansKept, k.o.SpansReason
		}
	}
}

// check flags what does not fit together.
func (s *Settled) check(list []keyed) {
	cached, ok1 := s.Value(CachedTokens)
	prompt, ok2 := s.Value(PromptTokens)
	if ok1 && ok2 && cached > prompt {
		s.Flags = append(s.Flags, FlagCached)
	}
	half := map[string]bool{}
	for _, k := range list {
		half[k.o.Role] = true
	}
	if half["prefill"] != half["decode"] {
		s.Flags = append(s.Flags, FlagHalf)
	}
	for _, n := range [...]Number{TTFT, E2E} {
		least, most := math.Inf(1), 0.0
		for _, k := range list {
			if v, ok := k.o.value(n).Known(); ok && !Numbers[n].otherHalf(k.o) {
				least, most = min(least, v), max(most, v)
			}
		}
		if most > least+0.05 && most > least*1.1 {
			s.Flags = append(s.Flags, FlagDisagree)
		}
	}
	// A request reaches an engine after its client, and is answered before the client has the answer.
	for _, outer := range list {
		if o := outer.o; o.TimeRank != 0 || o.Start == 0 || o.Finish == 0 || !o.before() {
			continue
		}
		for _, inner := range list {
			o, i := outer.o, inner.o
			if i.TimeRank != 0 || i.Start == 0 || i.before() {
				continue
			}
			const slack = int64(5e6) // ns; clocks of one host agree within it
			if i.Start < o.Start-slack || i.Start > o.Finish+slack || i.Finish > o.Finish+slack {
				s.Flags = append(s.Flags, FlagSkew)
			}
		}
	}
}

// before says that the observer stands before the engine.
func (o *Observation) before() bool {
	return o.Source == FromDump || o.Role == "frontend" || o.Role == "router"
}
