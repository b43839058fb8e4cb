package request

import "strings"

// Half says which half of a PD pair may speak about a field.
type Half uint8

// Halves. The other half's word stands beside the field and is never used: a prefill engine's "end to end"
// is not the request's, even where nobody else said anything.
const (
	Whole       Half = iota // either half, the decoding one first: it is there until the end
	PrefillHalf             // what the prefill engine does
	DecodeHalf              // what the decode engine does
	FirstHalf               // either half, the prefill one first
)

func (h Half) String() string { return [...]string{"either", "prefill", "decode", "either"}[h] }

// Number is the index of a numeric field in [Numbers].
type Number int

// The numeric fields; the phases follow Attempt.
const (
	TTFT Number = iota
	ITL
	E2E
	Queue
	Prefill
	Transfer
	Decode
	PromptTokens
	CompletionTokens
	CachedTokens
	DecodeThroughput
	TransferSpeed
	TransferSize
	Retries
	Retractions
	Step
	Sample
	Group
	Attempt
	firstPhase
	NumNumbers = firstPhase + Number(NumPhases)
)

// PhaseNumber is the field of a phase.
func PhaseNumber(p Phase) Number { return firstPhase + Number(p) }

// FieldRule says what a field is and whom to believe about it.
type FieldRule struct {
	Name string // in rows, filters and answers
	Unit string // "s", "tokens", "tokens/s", "GB/s", "MB", "" for counts and ids
	// Order is whom to believe, best first. An entry "trace" is the source in any role, "trace/frontend"
	// only in that one. A source that the list leaves out comes last.
	Order []string
	Half  Half
	Why   string // the reason of the order
}

// Sources of the view from the front: frontends and routers of Dynamo and SGLang.
const (
	front  = string(FromTrace) + "/frontend"
	router = string(FromTrace) + "/router"
	trace  = string(FromTrace)
	dump   = string(FromDump)
	export = string(FromExport)
	dynamo = string(FromDynamo)
	logged = string(FromLog)
	pushed = string(FromUnknown)
)

var (
	userFirst   = []string{front, router, dynamo, trace, export, dump, logged, pushed}
	engineFirst = []string{trace, export, dump, logged, dynamo, pushed}
	answerFirst = []string{export, dump, trace, dynamo, logged, pushed}
	rolloutOnly = []string{dump, export, trace, dynamo, logged, pushed}
)

const (
	whyUser   = "A latency is what the caller waited for: the process nearest to the caller that took the time wins. The engine's own number stands beside it."
	whyEngine = "Only the engine sees this. Its spans carry times of both ends; its request export and the answer's meta_info that a dump keeps are the same number rounded; a log line has fewer digits."
	whyAnswer = "A count that the engine's answer carries. The export and the dump hold the answer itself; spans repeat it, and some versions of SGLang leave it out or count before a retraction."
	whyPhase  = "Only the engine sees this; of a PD pair the half that goes through the phase."
	whyRoll   = "Only the rollout knows which sample asked; others repeat what they were told."
)

// Numbers is the table of the numeric fields: which source wins, and why. docs/requests.md shows it.
var Numbers = numberRules()

func numberRules() [NumNumbers]FieldRule {
	t := [NumNumbers]FieldRule{
		TTFT: {"ttft", "s", userFirst, DecodeHalf, whyUser + " A prefill half has the token before it is on its way to the caller."},
		ITL: {"itl", "s", userFirst, DecodeHalf,
			"The mean time between tokens (TPOT), as the one nearest to the caller measured it; without any it is (e2e - ttft) / (tokens - 1) of one and the same source."},
		E2E: {"e2e", "s", userFirst, DecodeHalf,
			whyUser + " Where nobody measured it, it is the end minus the start of one and the same observation."},
		Queue:    {"queue", "s", engineFirst, PrefillHalf, whyEngine + " Of a PD pair the prefill half queues for the model; the decode half's wait is a phase."},
		Prefill:  {"prefill", "s", engineFirst, PrefillHalf, whyPhase + " Without it the phase prefill_forward stands in."},
		Transfer: {"transfer", "s", engineFirst, DecodeHalf, whyPhase + " The receiving half knows when the KV cache was there. Without it the phase decode_transfer stands in."},
		Decode:   {"decode", "s", engineFirst, DecodeHalf, whyPhase + " Without it the phase decode_forward stands in."},

		PromptTokens:     {"prompt_tokens", "tokens", answerFirst, Whole, whyAnswer},
		CompletionTokens: {"completion_tokens", "tokens", answerFirst, DecodeHalf, whyAnswer + " The prefill half answers one token."},
		CachedTokens:     {"cached_tokens", "tokens", answerFirst, PrefillHalf, whyAnswer + " The prefix cache that saves work is the prefill half's."},
		DecodeThroughput: {"decode_throughput", "tokens/s", answerFirst, DecodeHalf, whyAnswer},
		TransferSpeed:    {"transfer_speed", "GB/s", answerFirst, Whole, whyEngine},
		TransferSize:     {"transfer_size", "MB", answerFirst, Whole, whyEngine},
		Retries:          {"retries", "", answerFirst, PrefillHalf, "pd_prefill_retry_count of the answer; spans do not say it in all versions."},
		Retractions:      {"retractions", "", engineFirst, DecodeHalf, "The engine retracts. Its spans have an event for each, its log lines a count, the answer nothing in most versions."},

		Step:    {"step", "", rolloutOnly, Whole, whyRoll},
		Sample:  {"sample", "", rolloutOnly, Whole, whyRoll + " It is the sample's ordinal in the dump."},
		Group:   {"group", "", rolloutOnly, Whole, whyRoll},
		Attempt: {"attempt", "", rolloutOnly, Whole, whyRoll},
	}
	for p := range NumPhases {
		h := PrefillHalf
		if p >= DecodePrealloc {
			h = DecodeHalf
		}
		t[PhaseNumber(p)] = FieldRule{"phase." + p.String(), "s", engineFirst, h, whyPhase}
	}
	return t
}

// Word is the index of a text field in [Words].
type Word int

// The text fields.
const (
	EngineWord Word = iota
	PrefillEngine
	ServiceWord
	ModelWord
	FinishReason
	ErrorWord
	WeightVersion
	RunWord
	KindWord
	StreamingWord
	NumWords
)

// Words is the table of the text fields.
var Words = [NumWords]FieldRule{
	EngineWord:    {"engine", "", []string{trace + "/decode", trace + "/unified", trace + "/", export, logged, dump, dynamo, pushed}, DecodeHalf, "Where the answer was made: the decode half of a pair. A frontend and a router are no engine; spans name the process that sent them."},
	PrefillEngine: {"prefill_engine", "", engineFirst, PrefillHalf, "The prefill half of a pair; empty for an engine that does both."},
	ServiceWord:   {"service", "", []string{trace + "/decode", trace + "/unified", trace + "/", front, router, trace, dynamo, export, logged, dump, pushed}, Whole, "service.name of the engine's spans, else of who stood before it."},
	ModelWord:     {"model", "", []string{front, router, trace, dynamo, export, dump, logged, pushed}, Whole, "The name that the caller used is the frontend's."},
	FinishReason:  {"finish_reason", "", []string{dump, export, front, router, trace, dynamo, logged, pushed}, DecodeHalf, "The answer's own word. A prefill half ends with length after one token, which says nothing about the request."},
	ErrorWord:     {"error", "", []string{trace, export, logged, dynamo, dump, pushed}, Whole, "The process that failed says why; the caller only sees that it failed."},
	WeightVersion: {"weight_version", "", answerFirst, Whole, whyAnswer},
	RunWord:       {"run", "", rolloutOnly, Whole, whyRoll},
	KindWord:      {"kind", "", rolloutOnly, Whole, whyRoll},
	StreamingWord: {"streaming", "", []string{front, router, dynamo, export, trace, dump, logged, pushed}, Whole, "The frontend knows what the caller asked for; it may stream from an engine all the same."},
}

// StartRule says whose start and end of a request count. The end is never that of a prefill half.
var StartRule = FieldRule{"start", "", []string{front, router, dynamo, trace, export, dump, logged, pushed}, FirstHalf,
	"The first process that the request reached, of a PD pair the prefill half. A time stamp of the request wins over the time of a line about it. A row keeps the start that it was first stored with: its place in time never moves."}

// rank is the place of an observation in an order, smaller is better.
func (f *FieldRule) rank(o *Observation) int {
	r := len(f.Order)
	for i, s := range f.Order {
		if rest, ok := strings.CutPrefix(s, string(o.Source)); ok && (rest == "" || rest[0] == '/' && rest[1:] == o.Role) {
			r = i
			break
		}
	}
	r *= 2
	if o.Role == "prefill" && f.Half == Whole || o.Role == "decode" && f.Half == FirstHalf {
		r++
	}
	return r
}

// otherHalf says that the observation is of the half that the field is not about.
func (f *FieldRule) otherHalf(o *Observation) bool {
	return o.Role == "prefill" && f.Half == DecodeHalf || o.Role == "decode" && f.Half == PrefillHalf
}

// value is the observation's word about a number.
func (o *Observation) value(n Number) *Value {
	switch n {
	case TTFT:
		return &o.TTFT
	case ITL:
		return &o.ITL
	case E2E:
		return &o.E2E
	case Queue:
		return &o.Queue
	case Prefill:
		return &o.Prefill
	case Transfer:
		return &o.Transfer
	case Decode:
		return &o.Decode
	case PromptTokens:
		return &o.PromptTokens
	case CompletionTokens:
		return &o.CompletionTokens
	case CachedTokens:
		return &o.CachedTokens
	case DecodeThroughput:
		return &o.DecodeThroughput
	case TransferSpeed:
		return &o.TransferSpeed
	case TransferSize:
		return &o.TransferSize
	case Retries:
		return &o.Retries
	case Retractions:
		return &o.Retractions
	case Step:
		return &o.Step
	case Sample:
		return &o.Sample
	case Group:
		return &o.Group
	case Attempt:
		return &o.Attempt
	}
	return &o.Phases[n-firstPhase]
}

// word is the observation's word about a text field, "" for none.
func (o *Observation) word(w Word) string {
	switch w {
	case EngineWord:
		if o.Role == "frontend" || o.Role == "router" || o.Role == "prefill" {
			return ""
		}
		return o.Engine
	case PrefillEngine:
		if o.Role == "prefill" {
			return o.Engine
		}
		return ""
	case ServiceWord:
		return o.Service
	case ModelWord:
		return o.Model
	case FinishReason:
		return o.FinishReason
	case ErrorWord:
		return o.Error
	case WeightVersion:
		return o.WeightVersion
	case RunWord:
		return o.Run
	case KindWord:
		return o.Kind
	case StreamingWord:
		switch {
		case o.Streaming == nil:
			return ""
		case *o.Streaming:
			return "true"
		}
		return "false"
	}
	return ""
}

var phaseNames = [NumPhases]string{"prefill_bootstrap_queue", "prefill_bootstrap", "prefill_alloc_wait", "prefill_forward", "prefill_transfer_queue",
	"decode_prealloc", "decode_bootstrap", "decode_alloc_wait", "decode_transfer", "decode_forward"}

// String is the phase's name as slime and SGLang write it, without pd_ and _duration.
func (p Phase) String() string {
	if p < NumPhases {
		return phaseNames[p]
	}
	return "unknown"
}

// Holder is the phase that holds p, and p itself where none does.
func (p Phase) Holder() Phase {
	switch p {
	case PrefillBootstrap, PrefillAllocWait:
		return PrefillBootstrapQueue
	case PrefillTransferQueue:
		return PrefillForward
	case DecodeBootstrap, DecodeAllocWait:
		return DecodePrealloc
	}
	return p
}
