package rolls

import (
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/rollscope/rollscope/torchfile"
)

// part is a stretch of a response: what the model wrote, or what a tool answered.
type part struct {
	tokens int
	tool   bool
}

// Write simulates a step and writes its dump, as torch.save would have written what slime gives it.
// It streams: memory does not grow with the texts and tokens.
func Write(w io.Writer, opts Options) (Stats, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return Stats{}, err
	}
	p := newPlan(o)
	p.live()
	count := &counter{w: w}
	d := &dump{o: &p.o, w: torchfile.NewWriter(count, &torchfile.WriterOptions{Root: o.Root})}
	d.stats = Stats{RolloutID: o.RolloutID, Samples: len(p.samples), Groups: len(p.samples) / o.GroupSize, Start: o.Start.UTC()}
	d.stats.End = d.stats.Start.Add(time.Duration(p.end * 1e9))
	d.carrier = carrier{w: d.w, stats: &d.stats, o: d.o, base: float64(o.Start.UnixNano()) / 1e9}
	d.w.BeginDict()
	d.w.Key("rollout_id")
	d.w.Int(int64(o.RolloutID))
	d.w.Key("samples")
	d.w.BeginList()
	for i := range p.samples {
		d.sample(&p.samples[i])
		if count.err != nil {
			break
		}
	}
	d.w.EndList()
	d.w.EndDict()
	if err := d.w.Close(); err != nil {
		return Stats{}, err
	}
	d.stats.Reward /= float64(len(p.samples))
	d.stats.Bytes = count.n
	return d.stats, nil
}

// counter counts, and remembers that a write failed so that a long dump stops early.
type counter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	c.err = err
	return n, err
}

// dump writes samples.
type dump struct {
	o       *Options
	w       *torchfile.Writer
	stats   Stats
	carrier carrier
	text    text
	parts   []part

	// of the open group
	source        string
	prompt, label torchfile.Ref
}

var sources = [...]string{"dapo-math-17k", "livecodebench-v6", "deepscaler", "numina-cot"}

func (d *dump) none(keys ...string) {
	for _, k := range keys {
		d.w.Key(k)
		d.w.None()
	}
}

// sample writes Sample.to_dict of slime's HEAD: the fields in the order of the class, then the trace.
func (d *dump) sample(s *sample) {
	w, o := d.w, d.o
	first := s.ordinal%o.GroupSize == 0
	r := o.rng(partText, uint64(s.ordinal))
	d.text.r = r
	d.parts = s.parts(d.parts[:0])
	d.count(s)

	w.BeginDict()
	w.Key("group_index")
	if o.Eval {
		w.None()
	} else {
		w.Int(int64(s.group))
	}
	keyInt(w, "index", s.index)
	d.none("rollout_id")
	w.Key("prompt")
	if first {
		d.text.buf = append(d.text.buf[:0], "<|im_start|>user\n"...)
		d.text.prose(s.prompt * bytesPerToken)
		d.text.buf = append(d.text.buf, "<|im_end|>\n<|im_start|>assistant\n"...)
		d.prompt = w.StrRef(string(d.text.buf))
		d.source = sources[r.IntN(len(sources))]
		if o.Eval {
			d.source = o.Datasets[o.dataset(s.ordinal)]
		}
	} else {
		w.Again(d.prompt)
	}
	response := d.text.response(s, d.parts)
	d.tokens(s, r)
	d.none("multimodal_inputs", "multimodal_train_inputs", "multimodal_train_input_id")
	w.Key("apply_chat_template_kwargs")
	w.BeginDict()
	w.EndDict()
	w.Key("response")
	w.Str(response)
	keyInt(w, "response_length", s.response)
	w.Key("label")
	if first {
		d.label = w.StrRef(strconv.Itoa(o.rng(partGroup, uint64(s.group)).IntN(1000)))
	} else {
		w.Again(d.label)
	}
	d.reward(s, r)
	w.Key("loss_mask")
	w.BeginList()
	for _, p := range d.parts {
		bit := int64(1)
		if p.tool {
			bit = 0
		}
		for range p.tokens {
			w.Int(bit)
		}
	}
	w.EndList()
	w.Key("weight_versions")
	w.BeginList()
	for i := range s.passes {
		for range s.passes[i].requests {
			w.Str(strconv.Itoa(s.passes[i].rollout + 1))
		}
	}
	w.EndList()
	w.Key("rollout_log_probs")
	w.BeginList()
	for _, p := range d.parts {
		for range p.tokens {
			if p.tool {
				w.Float(0)
				continue
			}
			x := r.ExpFloat64()
			w.Float(-float64(float32(0.35 * x * x)))
		}
	}
	w.EndList()
	d.none("rollout_top_p_token_ids", "rollout_top_p_token_offsets", "rollout_routed_experts")
	w.Key("remove_sample")
	w.Bool(false)
	d.none("teacher_log_probs")
	keyWord(w, "status", statusNames[s.status])
	d.metadata(s)
	d.none("generate_function_path", "custom_rm_path", "train_metadata")
	c := &d.carrier
	c.ids, c.index, c.group = o.rng(partIDs, uint64(s.ordinal)), s.index, s.group
	w.Key("session_id")
	if o.Eval {
		c.group = -1
		w.None()
	} else {
		id := c.newID()
		w.Str(string(id[:8]) + "-" + string(id[8:12]) + "-" + string(id[12:16]) + "-" + string(id[16:20]) + "-" + string(id[20:]))
	}
	keyFloat(w, "non_generation_time", s.nonGeneration)
	d.sums(s)
	w.Key("trace")
	c.trace(s, d.source)
	w.EndDict()
}

// parts lists what the response is made of; what attempts wrote that were thrown away is not.
func (s *sample) parts(dst []part) []part {
	for i := range s.passes {
		for k := range s.passes[i].requests {
			q := &s.passes[i].requests[k]
			if q.fresh {
				dst = dst[:0]
			}
			if q.completion > 0 {
				dst = append(dst, part{tokens: q.completion})
			}
			if q.tool != nil && q.tool.tokens > 0 {
				dst = append(dst, part{tokens: q.tool.tokens, tool: true})
			}
		}
	}
	return dst
}

func (d *dump) tokens(s *sample, r *rand.Rand) {
	w := d.w
	w.Key("tokens")
	w.BeginList()
	write := func(r *rand.Rand, n int) {
		for n > 0 {
			x := r.Uint64()
			w.Int(token(uint32(x), d.o.Vocab))
			if n > 1 {
				w.Int(token(uint32(x>>32), d.o.Vocab))
			}
			n -= 2
		}
	}
	write(d.o.rng(partGroup, uint64(s.group)), s.prompt)
	write(r, s.response)
	w.EndList()
}

func (d *dump) reward(s *sample, r *rand.Rand) {
	w := d.w
	score := 0.0
	if s.right {
		score = 1
	}
	d.stats.Reward += score
	w.Key("reward")
	if !d.o.RewardDict {
		w.Float(score)
		return
	}
	w.BeginDict()
	keyFloat(w, "score", score)
	w.Key("acc")
	w.Bool(s.right)
	w.Key("pred")
	w.Str("\\boxed{" + strconv.Itoa(r.IntN(100)) + "}")
	w.EndDict()
}

func (d *dump) metadata(s *sample) {
	w := d.w
	w.Key("metadata")
	w.BeginDict()
	keyWord(w, "source_name", d.source)
	keyWord(w, "rm_type", "math")
	if d.o.Eval {
		keyWord(w, "dataset", d.source)
	}
	w.Key("multi_turn")
	w.Bool(len(s.turns) > 1)
	if s.carried {
		keyInt(w, "start_rollout_id", d.o.RolloutID-1)
	}
	w.EndDict()
}

// sums writes what slime adds up over a sample's requests.
func (d *dump) sums(s *sample) {
	w := d.w
	var accepted, drafted, verified, completion, cached, prompt int
	for i := range s.passes {
		for k := range s.passes[i].requests {
			q := &s.passes[i].requests[k]
			accepted += q.accepted
			drafted += q.drafted
			verified += q.verified
			cached += q.cached
			prompt += q.prompt
			if d.o.Speculative {
				completion += q.completion
			}
		}
	}
	w.Key("spec_info")
	w.BeginDict()
	keyInt(w, "spec_accept_token_num", accepted)
	keyInt(w, "spec_draft_token_num", drafted)
	keyInt(w, "spec_verify_ct", verified)
	keyInt(w, "completion_token_num", completion)
	w.EndDict()
	w.Key("prefix_cache_info")
	w.BeginDict()
	keyInt(w, "cached_tokens", cached)
	keyInt(w, "total_prompt_tokens", prompt)
	w.EndDict()
}

func (d *dump) count(s *sample) {
	st := &d.stats
	st.Prompt += s.prompt
	st.Response += s.response
	for _, p := range d.parts {
		if !p.tool {
			st.Generated += p.tokens
		}
	}
	if s.carried {
		st.Carried++
	}
	for i := range s.passes {
		st.Attempts += len(s.passes[i].restarts)
		st.Discarded += s.passes[i].discardedTokens
	}
	switch s.status {
	case completed:
		st.Completed++
	case truncated:
		st.Truncated++
	case failed:
		st.Failed++
	}
}
