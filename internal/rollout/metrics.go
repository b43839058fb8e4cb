package rollout

import (
	"fmt"
	"math"
	"strings"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/torchfile"
)

// MetricOptions are what slime's metrics need beside the samples; names in brackets are slime's
// arguments. The zero value computes what a dump alone can tell.
type MetricOptions struct {
	GPUs        int     // [rollout_num_gpus]; 0 is unknown
	RolloutTime float64 // s that the rollout took; 0 is unknown: then it is derived from the traces, and marked
	RewardKey   string  // [reward_key], for an evaluation [eval_reward_key]: the entry of a dict reward that counts
	// RewardCategory [log_reward_category] is the entry of a dict reward by which samples are counted.
	RewardCategory     string
	AdvantageEstimator string // [advantage_estimator]; "ppo" has no groups
	SpecDecoding       bool   // [sglang_speculative_algorithm] is set
	// NSamplesPerPrompt [n_samples_per_prompt, n_samples_per_eval_prompt] is the group size of pass@k.
	NSamplesPerPrompt int
	LogPassrate       bool // [log_passrate]
	// Eval says that the dump is one of an evaluation, as [Options].Eval does.
	Eval bool
	// RolloutID is the step's number where the caller knows it, as [Options].RolloutID.
	RolloutID Int
	// EvalDatasets tells which dataset an evaluation's samples are of, in the order of the dump, where
	// the samples do not say it.
	EvalDatasets []EvalDataset
	// WandbAlwaysUseTrainStep, RolloutBatchSize and GlobalBatchSize decide the step that slime logs
	// under (compute_rollout_step).
	WandbAlwaysUseTrainStep           bool
	RolloutBatchSize, GlobalBatchSize int
	// CompatCounts adds */count to the compat view, which slime had for a day (10a8b1082).
	CompatCounts bool
	// CompensatedSum adds floats as Python 3.12's sum() does; otherwise as 3.11 and before.
	CompensatedSum bool
	// Training is the trainer's row of a sample; nil when there is no training data. See [Training].
	Training func(*Sample) (TrainingRow, bool)
}

// Metrics accumulates the metrics of one step, sample by sample. It keeps a few numbers of each sample
// and request for the medians, and one entry per group; nothing of the sample itself. Its result is
// [Metrics.Result]. It is not safe for concurrent use.
type Metrics struct {
	opts MetricOptions

	all      *rolloutAcc
	datasets map[string]*rolloutAcc
	order    []*rolloutAcc // datasets as they came
	place    int           // samples that EvalDatasets was asked about

	entries, notSamples, untraced, problems, carried, unsplit int
	statuses                                                  [StatusOther + 1]int
	rewards                                                   []float64
	masked                                                    tokenSum

	times   timesAcc
	compat  compatRequests
	walk    requestScope // every request of every sample's trace, as slime walks them
	own     requestScope // requests that ran in this step
	earlier []lateRequest
	from    float64 // extent of the step's own events, s since 1970
	to      float64
	late    int              // requests of this step found in later dumps
	lateBy  map[Int]*Metrics // the later steps that had them
	origin  [numSeries]seriesFacts

	hdr      Header
	ledger   []ledgerRow // of each entry: what was generated for it, and what it kept
	training trainingAcc
	loader   string // why slime's loader fails
	partial  string // why the sums are not of the whole step

	texts repetitionQueue
	ints  []int64
	mask  []int64
	facts sampleFacts
}

// NewMetrics begins the metrics of a step.
func NewMetrics(opts MetricOptions) *Metrics {
	m := &Metrics{opts: opts, datasets: map[string]*rolloutAcc{}, from: math.Inf(1), to: math.Inf(-1)}
	m.all = newRolloutAcc("", &m.opts)
	return m
}

// Measure reads a dump and accumulates its metrics. With an error it returns those of the samples before
// it, marked as partial.
func Measure(f *torchfile.File, opts MetricOptions) (*Metrics, error) {
	m := NewMetrics(opts)
	hdr, err := Read(f, Options{RewardKey: opts.RewardKey, Eval: opts.Eval, RolloutID: opts.RolloutID}, func(s *Sample) error {
		m.Add(s)
		return nil
	})
	m.Finish(hdr)
	if err == nil {
		err = f.Incomplete()
	}
	if err != nil {
		m.MarkPartial(err.Error())
		return m, fmt.Errorf("computing metrics after %d entries: %w", m.entries, err)
	}
	return m, nil
}

// MarkPartial says that not all samples of the step will be added, and why: a cut file, a shard that is
// missing. Every metric of the result is marked.
func (m *Metrics) MarkPartial(why string) { m.partial = why }

// Finish says what [Read] said of the dump after its samples: its kind, its step and its shape. Call it
// before [Attribute] and [Metrics.Result].
func (m *Metrics) Finish(hdr *Header) {
	if hdr != nil {
		m.hdr = *hdr
	}
	m.texts.wait()
	m.texts, m.ints, m.mask, m.facts = repetitionQueue{}, nil, nil, sampleFacts{} // metrics of many steps may be kept
}

// sampleFacts are what several accumulators want to know of one sample.
type sampleFacts struct {
	response, effective int64
	reward              rewardValue
	category            string
	categoryErr         string
	categoryKey         rewardKey
	truncated           bool
	surrogate           bool
	spec                [4]int64
	cached, prompt      int64
	topKept, topTokens  int64
	topErr              string
	group               Int
	correct             bool // reward == 1
	rewardErr           string
}

// Add takes one sample. It may be an entry that is no sample: those are counted, and not more.
func (m *Metrics) Add(s *Sample) {
	m.entries++
	m.ledger = append(m.ledger, ledgerRow{})
	m.problems += len(s.Problems) + s.MoreProblems
	if m.loader == "" {
		m.loader = loaderFails(s)
	}
	if !isMapping(s.Raw) {
		m.notSamples++
		return
	}
	f := &m.facts
	m.read(s, f)
	var set *rolloutAcc
	if name := m.dataset(s); name != "" || m.opts.Eval {
		set = m.datasetAcc(name)
	}
	f.surrogate = m.texts.add(s.Raw.Field("response"), m.all, set)
	m.all.add(f)
	if set != nil {
		set.add(f)
	}

	m.statuses[s.Status]++
	if v, ok := s.Reward.Value.Known(); ok {
		m.rewards = append(m.rewards, v)
	}
	m.masked.total++
	if s.ResponseLength.OK && s.EffectiveLength.OK {
		m.masked.known++
		m.masked.sum += float64(f.response - f.effective)
	}
	m.times.add(s, f)
	if m.opts.Training != nil {
		m.training.add(m.opts.Training(s))
	}
	m.requests(s)
}

// requests takes the sample's requests into the scopes.
func (m *Metrics) requests(s *Sample) {
	m.compat.add(s)
	t := &s.Trace
	if !t.Present {
		m.untraced++
		return
	}
	shared := t.SharedWith >= 0
	// A carried-over sample whose trace does not show where the step began.
	if s.StartRollout.OK || len(t.Segments) > 1 {
		m.carried++
		if len(t.Segments) <= 1 && !shared {
			m.unsplit++
		}
	}
	if t.Own >= 0 && t.Own < len(t.Segments) && !shared {
		g := t.Segments[t.Own]
		for i := g.First; i < g.End; i++ {
			// Phases are laid end to end, so that they may end long after their request did.
			if e := &t.Events[i]; !e.NonFinite && !strings.HasPrefix(e.Name, pdPrefix) {
				m.from, m.to = min(m.from, e.TS), max(m.to, e.TS)
			}
		}
	}
	last := t.Attempt
	for i := range s.Requests {
		last = max(last, s.Requests[i].Attempt)
	}
	m.walk.begin()
	m.own.begin()
	row := len(m.ledger) - 1
	if shared && t.SharedWith < row {
		row = t.SharedWith
	}
	m.ledger[row].kept += float64(s.ResponseLength.N)
	for i := range s.Requests {
		q := &s.Requests[i]
		r := newLateRequest(q, last)
		m.walk.add(&r)
		m.note(q)
		if v, ok := q.CompletionTokens.Known(); ok && !shared {
			m.ledger[row].generated += v
		}
		if shared {
			m.walk.repeated++
			continue
		}
		at := q.SpanStart
		if at < 0 {
			at = q.SpanEnd
		}
		if g := t.SegmentOf(at); g == t.Own {
			m.own.add(&r)
		} else {
			if g >= 0 {
				r.step = t.Segments[g].RolloutID
			}
			m.own.earlier++
			m.earlier = append(m.earlier, r)
		}
	}
	m.walk.end()
	if !shared {
		m.own.end()
	}
}

// ledgerRow weighs the tokens generated for a sample, or for all that share its trace, against those in
// its response.
type ledgerRow struct{ generated, kept float64 }

// discarded is how many generated tokens at least are in no response: a response may hold tool output in
// their place.
func (m *Metrics) discarded() float64 {
	sum := 0.0
	for _, r := range m.ledger {
		sum += max(0, r.generated-r.kept)
	}
	return sum
}

// tokenSum is a sum that some did not contribute to.
type tokenSum struct {
	sum          float64
	known, total int
}

func (t *tokenSum) add(v request.Value) {
	t.total++
	if f, ok := v.Known(); ok {
		t.known++
		t.sum += f
	}
}
