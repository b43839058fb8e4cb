package rollout

import (
	"strconv"

	"github.com/rollscope/rollscope/torchfile"
)

// rolloutAcc accumulates what slime's compute_metrics_from_samples computes of a list of samples: all
// of a step, or those of one dataset of an evaluation.
type rolloutAcc struct {
	name string
	opts *MetricOptions

	n         int
	effective []float64
	groups    []rewardGroup
	groupOf   map[Int]int

	rate, length                   pySum // speculative decoding
	cached, prompt                 int64
	categories                     []category
	categoryOf                     map[rewardKey]int
	topKept, topTokens             int64
	repeats, surrogates, truncated int
	rewardSum                      pySum
	rewardBad                      string // why the sum of the rewards fails
	rewardKnown                    int
	pass                           passCounter
	fails                          [numSections]string
	topSkipped, noCategory         int
}

// The parts of compute_metrics_from_samples that can fail, in its order: the first failure is what slime
// raises, and then it publishes nothing.
const (
	failRewards = iota
	failRound
	failCategory
	failTopP
	failRepetition
	numSections
)

type rewardGroup struct {
	first   rewardValue
	differ  bool
	unknown bool // a reward is missing
	n       int
}

type category struct {
	name string
	n    int
}

func newRolloutAcc(name string, opts *MetricOptions) *rolloutAcc {
	c := opts.CompensatedSum
	return &rolloutAcc{
		name: name, opts: opts, groupOf: map[Int]int{}, categoryOf: map[rewardKey]int{}, rate: pySum{compensated: c}, length: pySum{compensated: c},
		rewardSum: pySum{compensated: c}, pass: passCounter{size: opts.NSamplesPerPrompt},
	}
}

func (a *rolloutAcc) fail(section int, what string) {
	if a.fails[section] == "" {
		a.fails[section] = what
	}
}

func (a *rolloutAcc) failed() string {
	for _, f := range a.fails {
		if f != "" {
			return f
		}
	}
	return ""
}

func (a *rolloutAcc) add(f *sampleFacts) {
	a.n++
	a.effective = append(a.effective, float64(f.effective))
	a.reward(f)
	if a.opts.SpecDecoding {
		rate, length := 0.0, 0.0
		if f.spec[1] > 0 {
			rate = float64(f.spec[0]) / float64(f.spec[1])
		}
		if f.spec[2] > 0 {
			length = float64(f.spec[3]) / float64(f.spec[2])
		}
		a.rate.add(rate)
		a.length.add(length)
	}
	a.cached += f.cached
	a.prompt += f.prompt
	if a.opts.RewardCategory != "" {
		a.category(f)
	}
	if f.topErr != "" {
		a.fail(failTopP, f.topErr)
		a.topSkipped++
	}
	a.topKept += f.topKept
	a.topTokens += f.topTokens
	if f.surrogate {
		a.fail(failRepetition, "UnicodeEncodeError: 'utf-8' codec can't encode character: surrogates not allowed")
		a.surrogates++
	}
	if f.truncated {
		a.truncated++
	}
}

func (a *rolloutAcc) reward(f *sampleFacts) {
	r := f.reward
	switch {
	case f.rewardErr != "":
		a.rewardBad = f.rewardErr
	case r.isNumber:
		a.rewardSum.addAs(r.number, r.typeName)
		a.rewardKnown++
	case a.rewardBad == "":
		a.rewardBad = "TypeError: unsupported operand type(s) for +: 'int' and '" + r.typeName + "'"
	}
	a.pass.add(f.correct)
	if a.opts.AdvantageEstimator == "ppo" {
		return
	}
	if f.rewardErr != "" {
		a.fail(failRewards, f.rewardErr)
	}
	i, ok := a.groupOf[f.group]
	if !ok {
		i = len(a.groups)
		a.groupOf[f.group] = i
		a.groups = append(a.groups, rewardGroup{first: r})
	}
	g := &a.groups[i]
	if g.n++; r.key != g.first.key || r.key.kind == keyNaN {
		g.differ = true
	}
	if !r.isNumber {
		g.unknown = true
	}
}

func (a *rolloutAcc) category(f *sampleFacts) {
	if f.categoryErr != "" {
		a.fail(failCategory, f.categoryErr)
		a.noCategory++
		return
	}
	if i, ok := a.categoryOf[f.categoryKey]; ok {
		a.categories[i].n++
		return
	}
	if len(a.categories) == maxCategories {
		a.noCategory++
		return
	}
	a.categoryOf[f.categoryKey] = len(a.categories)
	a.categories = append(a.categories, category{name: f.category, n: 1})
}

// maxCategories bounds the keys that one dump may make.
const maxCategories = 1024

// zeroStd counts the groups whose rewards are all equal, by that reward rounded to one digit, in the
// order of the groups. err is what slime's round raises.
func (a *rolloutAcc) zeroStd() (counts []category, err string) {
	at := map[string]int{}
	for i := range a.groups {
		g := &a.groups[i]
		if g.differ {
			continue
		}
		if g.first.roundErr != "" {
			if err == "" {
				err = g.first.roundErr
			}
			continue
		}
		j, ok := at[g.first.rounded]
		if !ok {
			j = len(counts)
			at[g.first.rounded] = j
			counts = append(counts, category{name: g.first.rounded})
		}
		counts[j].n++
	}
	return counts, err
}

// read takes from a sample what the accumulators need.
func (m *Metrics) read(s *Sample, f *sampleFacts) {
	*f = sampleFacts{
		response: s.ResponseLength.N, effective: s.EffectiveLength.N, truncated: s.Status == StatusTruncated,
		group: s.GroupIndex, cached: s.CachedTokens.N, prompt: s.TotalPrompt.N,
		spec: [4]int64{s.SpecAccept.N, s.SpecDraft.N, s.SpecVerify.N, s.SpecCompletion.N},
	}
	if !s.EffectiveLength.OK {
		f.effective = f.response
	}
	f.reward, f.rewardErr = pickReward(s.Reward.Raw, m.opts.RewardKey)
	f.correct = f.reward.isNumber && f.reward.number == 1
	if key := m.opts.RewardCategory; key != "" {
		var v torchfile.Value
		if v, f.categoryErr = subscript(s.Reward.Raw, key); f.categoryErr == "" {
			f.categoryKey, f.category, f.categoryErr = categoryOf(v)
		}
	}
	m.topP(s, f)
}

// topP counts the tokens that top-p kept of the vocabulary, from the offsets that slime replays.
func (m *Metrics) topP(s *Sample, f *sampleFacts) {
	v := s.Raw.Field("rollout_top_p_token_offsets")
	if !v.Exists() || v.IsNone() || f.response == 0 {
		return
	}
	n, ok := length(v)
	switch {
	case !ok:
		f.topErr = "TypeError: top-p token offsets are " + describe(v)
		return
	case n == 0:
		return
	case n != f.response+1:
		f.topErr = "AssertionError: top-p token offsets length " + strconv.FormatInt(n, 10) + " != response length + 1 " +
			strconv.FormatInt(f.response+1, 10)
		return
	case s.RemoveSample:
		return
	}
	if m.ints, ok = intsOf(v, m.ints[:0]); !ok {
		f.topErr = "TypeError: top-p token offsets are no integers"
		return
	}
	off := m.ints
	mask := s.Raw.Field("loss_mask")
	if !mask.Exists() || mask.IsNone() {
		f.topKept, f.topTokens = off[len(off)-1]-off[0], f.response
		return
	}
	if m.mask, ok = intsOf(mask, m.mask[:0]); !ok || int64(len(m.mask)) != f.response {
		f.topErr = "AssertionError: loss mask length " + strconv.Itoa(len(m.mask)) + " != response length " + strconv.FormatInt(f.response, 10)
		return
	}
	for i, x := range m.mask {
		if x != 0 {
			f.topKept += off[i+1] - off[i]
			f.topTokens++
		}
	}
}

// intsOf reads a list, tensor or array of integers.
func intsOf(v torchfile.Value, dst []int64) ([]int64, bool) {
	switch v.Kind() {
	case torchfile.KindList, torchfile.KindTuple:
		return v.Ints(dst)
	case torchfile.KindTensor:
		t, err := v.Tensor()
		if err != nil {
			return dst, false
		}
		dst, err = t.Int64s(dst)
		return dst, err == nil
	case torchfile.KindNDArray:
		a, err := v.NDArray()
		if err != nil {
			return dst, false
		}
		dst, err = a.Int64s(dst)
		return dst, err == nil
	}
	return dst, false
}
