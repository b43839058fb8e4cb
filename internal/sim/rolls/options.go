// Package rolls simulates RL rollout steps and writes them as the dumps that slime would have written:
// a model of engines, prompts, tools and rewards, seeded, with faults. Its entry point is [WriteFile].
package rolls

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Lengths is a lognormal distribution of token counts with a long tail.
type Lengths struct {
	Median int     // tokens
	Sigma  float64 // of the logarithm; 0 means constant
	Max    int     // tokens; longer draws are cut
}

func (l Lengths) draw(r *rand.Rand) int {
	return l.clip(float64(l.Median) * math.Exp(l.Sigma*r.NormFloat64()))
}

func (l Lengths) clip(x float64) int {
	if l.Max > 0 {
		x = math.Min(x, float64(l.Max))
	}
	return int(math.Max(math.Round(x), 1))
}

// Window is a span of time.
type Window struct {
	Start, End time.Time
}

// Options describe one step. The zero value of a field means what its comment says; the same Options
// give the same bytes.
type Options struct {
	Seed      uint64
	RolloutID int
	Samples   int // a multiple of GroupSize, else rounded up; default 256
	GroupSize int // samples of one prompt; default 8

	Eval     bool     // an evaluation dump: several datasets one after the other, no groups
	Datasets []string // of an evaluation dump; default two

	PD        bool // prefill and decode on engines of their own: pd_* timings on child spans, as slime's HEAD
	Streaming bool // requests are sglang_generate_stream

	MultiTurn  float64 // share of the prompt groups that use tools
	Partial    float64 // share of the groups that the step before began and left (none in step 0)
	ToolHangs  float64 // share of tool calls that are cancelled at their time-out and leave open spans; default 0.01, negative for none
	ToolErrors float64 // share of tool calls that fail; default 0.02, negative for none

	Response Lengths // tokens that the model writes for a prompt; default 2,200, 0.95, at most 16,384
	Prompt   Lengths // default 90, 0.35, at most 1,024
	Vocab    int     // token ids are below; default 151,936

	Reward      float64 // share of right answers in [0,1]; default 0.4, negative for none
	RewardDict  bool    // rewards are {"score", "acc", "pred"}
	Speculative bool    // engines draft tokens: spec_info is filled

	Engines         int     // (decode) engines; default one for each 256 samples, at least 2
	Prefills        int     // prefill engines with PD; default half of Engines
	Concurrency     int     // requests that the client keeps open per engine; default 256
	Running         int     // requests that an engine runs at once; default 192
	TokensPerSecond float64 // of a request that is alone on its engine; default 110
	KVBytesPerToken int     // with PD; default 72 KiB

	Start     time.Time     // of the step; default 2026-08-18T06:13:20Z
	TrainTime time.Duration // between the end of the step before and Start; default 60 s
	// Previous is the step before, in which carried-over samples began; default as long as its
	// samples need.
	Previous *Window

	Faults []Fault

	// Root is the folder inside the zip file. torch.save names it after the file; WriteFile does so too.
	Root string
}

// Stats says what was written.
type Stats struct {
	RolloutID  int
	Samples    int
	Groups     int
	Carried    int // samples that the step before began
	Requests   int // spans of a generation
	Events     int // entries of the traces' events lists
	OpenSpans  int // spans without an end
	Attempts   int // attempts that were thrown away
	Discarded  int // tokens that they had generated
	Prompt     int // tokens
	Response   int // tokens, those of tools included
	Generated  int // tokens that count for the loss
	Completed  int
	Truncated  int
	Failed     int
	Reward     float64 // mean
	Start, End time.Time
	Bytes      int64 // of the file
}

// Duration is how long the step took.
func (s Stats) Duration() time.Duration { return s.End.Sub(s.Start) }

func (o Options) withDefaults() (Options, error) {
	set := func(p *int, d int) {
		if *p == 0 {
			*p = d
		}
	}
	setF := func(p *float64, d float64) {
		switch {
		case *p == 0:
			*p = d
		case *p < 0:
			*p = 0
		}
	}
	set(&o.Samples, 256)
	set(&o.GroupSize, 8)
	if o.Eval && len(o.Datasets) == 0 {
		o.Datasets = []string{"aime-2025", "gpqa_diamond"}
	}
	if o.Response == (Lengths{}) {
		o.Response = Lengths{Median: 2200, Sigma: 0.95, Max: 16384}
	}
	if o.Prompt == (Lengths{}) {
		o.Prompt = Lengths{Median: 90, Sigma: 0.35, Max: 1024}
	}
	set(&o.Vocab, 151936)
	setF(&o.ToolHangs, 0.01)
	setF(&o.ToolErrors, 0.02)
	setF(&o.Reward, 0.4)
	set(&o.Engines, max(2, o.Samples/256))
	set(&o.Prefills, (o.Engines+1)/2)
	set(&o.Concurrency, 256)
	set(&o.Running, 192)
	setF(&o.TokensPerSecond, 110)
	set(&o.KVBytesPerToken, 72<<10)
	if o.Start.IsZero() {
		o.Start = time.Date(2026, 8, 18, 6, 13, 20, 0, time.UTC)
	}
	if o.TrainTime == 0 {
		o.TrainTime = time.Minute
	}
	if o.Root == "" {
		o.Root = o.name()
	}
	for _, n := range [...]int{o.Samples, o.GroupSize, o.Response.Median, o.Prompt.Median, o.Engines, o.Prefills, o.Concurrency, o.Running, o.KVBytesPerToken} {
		if n < 1 {
			return o, errors.New("rolls: counts and lengths of a step must be positive")
		}
	}
	if o.Vocab < 1000 || o.Vocab > math.MaxInt32 {
		return o, fmt.Errorf("rolls: a vocabulary of %d tokens; it must be between 1000 and 2^31", o.Vocab)
	}
	for _, f := range [...]struct {
		name  string
		share float64
	}{{"MultiTurn", o.MultiTurn}, {"Partial", o.Partial}, {"ToolHangs", o.ToolHangs}, {"ToolErrors", o.ToolErrors}, {"Reward", o.Reward}} {
		if !(f.share >= 0 && f.share <= 1) {
			return o, fmt.Errorf("rolls: %s is %v; it is a share between 0 and 1", f.name, f.share)
		}
	}
	if o.RolloutID < 0 {
		return o, fmt.Errorf("rolls: rollout id %d is negative", o.RolloutID)
	}
	for _, f := range o.Faults {
		if err := f.check(o); err != nil {
			return o, err
		}
	}
	o.Samples = (o.Samples + o.GroupSize - 1) / o.GroupSize * o.GroupSize
	return o, nil
}

// name is the dump's name without its extension, as slime makes it.
func (o Options) name() string {
	if o.Eval {
		return fmt.Sprintf("rollout_eval_%d", o.RolloutID)
	}
	return fmt.Sprintf("rollout_%d", o.RolloutID)
}

// FileName is the name that slime gives the dump of a step.
func (o Options) FileName() string { return o.name() + ".pt" }

// Bench is the step that benchmarks measure: 2,048 samples are about 140 MB with 115,000 events, 16,384
// about 1.1 GB with 890,000.
func Bench(samples int) Options {
	return Options{Seed: 1, RolloutID: 3, Samples: samples, PD: true, MultiTurn: 0.32, Partial: 0.33, Response: Lengths{Median: 2220, Sigma: 0.95, Max: 16384}}
}
