package rollout

import (
	"strings"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/torchfile"
)

// maxKey is longer than any key that is looked for.
const maxKey = 64

// The fields of a sample that Read looks at.
const (
	fGroupIndex = iota
	fIndex
	fRolloutID
	fStatus
	fTruncated
	fAborted
	fSource
	fDataset
	fDatasetName
	fDataSource
	fMetadata
	fSessionID
	fWeightVersions
	fResponseLength
	fLossMask
	fTokens
	fTokenCount
	fEffective
	fNonGeneration
	fPrefixCache
	fSpecInfo
	fRemove
	fReward
	fTrace
	numFields
)

var fieldNames = map[string]int{
	"group_index": fGroupIndex, "index": fIndex, "rollout_id": fRolloutID, "status": fStatus, "truncated": fTruncated,
	"aborted": fAborted, "source": fSource, "dataset": fDataset, "dataset_name": fDatasetName, "data_source": fDataSource,
	"metadata": fMetadata, "session_id": fSessionID, "weight_versions": fWeightVersions,
	"response_length": fResponseLength, "loss_mask": fLossMask, "tokens": fTokens, "non_generation_time": fNonGeneration,
	"prefix_cache_info": fPrefixCache, "spec_info": fSpecInfo, "remove_sample": fRemove, "reward": fReward,
	"trace": fTrace,

	// What senders of samples put in place of tokens and loss_mask (trace/FORMAT.md).
	"token_count": fTokenCount, "effective_response_length": fEffective,

	// The trainer's dump (slime's save_debug_train_data, format_version 2) keeps the columns' names.
	"sample_index": fIndex, "response_lengths": fResponseLength, "rewards": fReward, "loss_masks": fLossMask,
	"rollout_ids": fRolloutID,
}

// looksLikeSample says that v has at least one of the fields that make a sample.
func looksLikeSample(v torchfile.Value) bool {
	for _, name := range [...]string{"response", "trace", "reward", "index", "status", "response_length", "sample_index", "response_lengths"} {
		if v.Field(name).Exists() {
			return true
		}
	}
	return false
}

// each calls fn with the entries of a dict, or the attributes of an object, and says whether v is
// either. A name that comes twice is reported twice; the last one counts. A dict that a file refers to
// over and over costs time each time: when that is used up, it has no entries any more.
func (r *reader) each(v torchfile.Value, fn func(key []byte, x torchfile.Value)) bool {
	switch v.Kind() {
	case torchfile.KindDict:
		if r.afford(v.Len()) {
			pairs(v, fn)
		}
		return true
	case torchfile.KindObject:
		s := v.State()
		if !r.afford(v.Len() + s.Len()) {
			return true
		}
		switch s.Kind() {
		case torchfile.KindDict:
			pairs(s, fn)
		case torchfile.KindTuple: // (attributes, slots)
			for _, part := range s.All() {
				if r.afford(part.Len()) {
					pairs(part, fn)
				}
			}
		}
		pairs(v, fn)
		return true
	}
	return false
}

func pairs(v torchfile.Value, fn func(key []byte, x torchfile.Value)) {
	for k, x := range v.Pairs() {
		fn(k.RawStr(), x)
	}
}

// afford takes n steps out of what a file of this size may cost, and says whether there were as many.
func (r *reader) afford(n int) bool {
	if r.work < int64(n) {
		if r.work >= 0 {
			r.fileProblem("too_much_work", "", "values that are referred to over and over were left out")
		}
		r.work = -1
		return false
	}
	r.work -= int64(n)
	return true
}

// decode fills the sample from a dict or an object.
func (r *reader) decode(v torchfile.Value) {
	s := &r.sample
	r.fields = [numFields]torchfile.Value{}
	known := 0
	mapping := r.each(v, func(key []byte, x torchfile.Value) {
		if len(key) > maxKey {
			return
		}
		if id, ok := fieldNames[string(key)]; ok {
			r.fields[id] = x
			known++
		}
	})
	if v.Kind() == torchfile.KindObject && known == 0 {
		for name, id := range fieldNames { // a namedtuple or slotted class whose fields the caller named
			if x := v.Attr(name); x.Exists() {
				r.fields[id] = x
				known++
			}
		}
	}
	switch {
	case !mapping:
		r.problem("not_a_sample", "", describe(v))
		s.Trace.Why = "not a sample but " + describe(v)
		return
	case known == 0:
		r.problem("no_sample_fields", "", describe(v)+" has none of a sample's fields")
	}
	f := &r.fields
	s.GroupIndex = r.integer(f[fGroupIndex], "group_index")
	s.Index = r.integer(f[fIndex], "index")
	s.RolloutID = r.integer(f[fRolloutID], "rollout_id")
	s.ResponseLength = r.count(f[fResponseLength], "response_length")
	s.NonGeneration = r.measure(f[fNonGeneration], "non_generation_time")
	s.RemoveSample = r.truth(f[fRemove], "remove_sample")
	s.SessionID = scalarText(f[fSessionID], maxWord)
	r.status(f[fStatus], f[fTruncated], f[fAborted])
	r.names()
	r.versions(f[fWeightVersions])
	r.lengths(f[fTokens], f[fLossMask])
	r.counters(f[fPrefixCache], f[fSpecInfo])
	r.reward(f[fReward])
	r.trace(f[fTrace])
}

// integer reads an optional integer field; None is none.
func (r *reader) integer(v torchfile.Value, name string) Int {
	if !v.Exists() || v.IsNone() {
		return Int{}
	}
	n, why := integer(v)
	if why != "" {
		r.problem("bad_"+name, name, why)
		return Int{}
	}
	return Int{n, true}
}

// count is an integer that is not negative.
func (r *reader) count(v torchfile.Value, name string) Int {
	n := r.integer(v, name)
	if n.N < 0 {
		r.problem("bad_"+name, name, "negative")
		return Int{}
	}
	return n
}

// measure reads an optional duration, count or rate.
func (r *reader) measure(v torchfile.Value, name string) request.Value {
	m := measure(v)
	if m.State == request.Invalid {
		r.problem("bad_"+name, name, "not a finite number from 0 on: "+describe(v))
	}
	return m
}

func (r *reader) truth(v torchfile.Value, name string) bool {
	if !v.Exists() || v.IsNone() {
		return false
	}
	f, _, ok := number(v)
	if !ok {
		r.problem("bad_"+name, name, "not a bool: "+describe(v))
	}
	return f != 0
}

// statuses of slime, by the value and (in upper case) the name of the enum's member.
var statuses = map[string]Status{
	"pending": StatusPending, "completed": StatusCompleted, "truncated": StatusTruncated, "aborted": StatusAborted,
	"failed": StatusFailed,
}

// status reads a status that is text, a member of an enum by name or by value, or, in dumps of
// 2025-06, two bools.
func (r *reader) status(v, truncated, aborted torchfile.Value) {
	s := &r.sample
	if e, ok := v.Enum(); ok {
		switch {
		case e.Value.Exists():
			s.StatusText = r.words.text(e.Value, maxText)
		default:
			s.StatusText = r.words.add([]byte(e.Name))
		}
	} else if v.Exists() && !v.IsNone() {
		s.StatusText = r.words.text(v, maxText)
		if s.StatusText == "" {
			r.problem("bad_status", "status", describe(v))
		}
	}
	if s.StatusText != "" {
		text := s.StatusText
		st, ok := statuses[text]
		if !ok { // COMPLETED, or what str() makes of the member: Status.COMPLETED
			st, ok = statuses[strings.ToLower(text[strings.LastIndexByte(text, '.')+1:])]
		}
		if !ok {
			st = StatusOther
		}
		s.Status = st
		return
	}
	t, _, isT := number(truncated)
	a, _, isA := number(aborted)
	switch {
	case isA && a != 0:
		s.Status = StatusAborted
	case isT && t != 0:
		s.Status = StatusTruncated
	case isT:
		s.Status = StatusCompleted
	}
}

// names finds out where the sample is from. The order is that of the reference viewer's
// _infer_source: the sample's source, metadata.source, metadata.source_name, then the first key of
// metadata that has "source" in it.
func (r *reader) names() {
	s := &r.sample
	metadata := r.fields[fMetadata]
	var source, sourceName, anySource, dataset, datasetName, dataSource torchfile.Value
	r.each(metadata, func(key []byte, x torchfile.Value) {
		switch string(key) {
		case "source":
			source = x
		case "source_name":
			sourceName = x
		case "dataset":
			dataset = x
		case "dataset_name", "eval_dataset", "eval_dataset_name":
			datasetName = x
		case "data_source":
			dataSource = x
		case "start_rollout_id":
			s.StartRollout = r.integer(x, "start_rollout_id")
		}
		if !anySource.Exists() && !empty(x) && hasSource(key) {
			anySource = x
		}
	})
	s.Source = r.firstText(r.fields[fSource], source, sourceName, anySource)
	if name := r.firstText(r.fields[fDataset], r.fields[fDatasetName], dataset, datasetName, r.fields[fDataSource], dataSource); name != "" && s.Dataset == "" {
		s.Dataset = name
	}
}

// empty says that v is missing, None or "".
func empty(v torchfile.Value) bool {
	return !v.Exists() || v.IsNone() || v.Kind() == torchfile.KindStr && v.Len() == 0
}

func (r *reader) firstText(vs ...torchfile.Value) string {
	for _, v := range vs {
		if !empty(v) {
			return r.words.text(v, maxText)
		}
	}
	return ""
}

// hasSource says that the first 256 bytes of key have "source" in them, in any case.
func hasSource(key []byte) bool {
	const word = "source"
	key = key[:min(len(key), maxWord)]
	for i := 0; i+len(word) <= len(key); i++ {
		if key[i]|0x20 == word[0] && strings.EqualFold(string(key[i:i+len(word)]), word) {
			return true
		}
	}
	return false
}

// maxVersions bounds Sample.WeightVersions.
const maxVersions = 4096

func (r *reader) versions(v torchfile.Value) {
	if empty(v) {
		return
	}
	s := &r.sample
	if !isList(v) {
		s.WeightVersions = append(s.WeightVersions, r.words.text(v, maxWord))
		return
	}
	for i, x := range v.All() {
		if i == maxVersions {
			r.problem("many_weight_versions", "weight_versions", describe(v))
			break
		}
		s.WeightVersions = append(s.WeightVersions, r.words.text(x, maxWord))
	}
}

// lengths derives the prompt's length from the tokens' number, and the trained length from the mask, or
// takes both from what a sender left in their place.
func (r *reader) lengths(tokens, mask torchfile.Value) {
	s := &r.sample
	count, ok := length(tokens)
	name := "tokens"
	if !tokens.Exists() || tokens.IsNone() {
		n := r.count(r.fields[fTokenCount], "token_count")
		count, ok, name = n.N, n.OK, "token_count"
	} else if !ok {
		r.problem("bad_tokens", "tokens", describe(tokens))
	}
	if ok && s.ResponseLength.OK {
		if s.PromptTokens = (Int{count - s.ResponseLength.N, true}); s.PromptTokens.N < 0 {
			r.problem("bad_"+name, name, "fewer than response_length")
			s.PromptTokens = Int{}
		}
	}
	if r.opts.NoMask {
		return
	}
	s.EffectiveLength = s.ResponseLength
	if !mask.Exists() || mask.IsNone() {
		if v := r.fields[fEffective]; v.Exists() && !v.IsNone() {
			s.EffectiveLength = r.count(v, "effective_response_length")
			if s.ResponseLength.OK && s.EffectiveLength.N > s.ResponseLength.N {
				r.problem("bad_effective_response_length", "effective_response_length", "more than response_length")
				s.EffectiveLength = Int{}
			}
		}
		return
	}
	sum, ok := r.sum(mask)
	if !ok {
		r.problem("bad_loss_mask", "loss_mask", describe(mask))
		s.EffectiveLength = Int{}
		return
	}
	s.EffectiveLength = Int{sum, true}
	if n, ok := length(mask); ok && s.ResponseLength.OK && n != s.ResponseLength.N {
		r.problem("loss_mask_length", "loss_mask", "it has another length than the response")
	}
}

// counters reads prefix_cache_info and spec_info, which are dicts or objects.
func (r *reader) counters(cache, spec torchfile.Value) {
	s := &r.sample
	take := func(key []byte, x torchfile.Value) {
		var to *Int
		switch string(key) {
		case "cached_tokens":
			to = &s.CachedTokens
		case "total_prompt_tokens":
			to = &s.TotalPrompt
		case "spec_accept_token_num":
			to = &s.SpecAccept
		case "spec_draft_token_num":
			to = &s.SpecDraft
		case "spec_verify_ct":
			to = &s.SpecVerify
		case "completion_token_num":
			to = &s.SpecCompletion
		default:
			return
		}
		if n, ok := x.Int(); ok && n >= 0 {
			*to = Int{n, true}
			return
		}
		*to = r.count(x, string(key))
	}
	if cache.Exists() && !cache.IsNone() && !r.each(cache, take) {
		r.problem("bad_prefix_cache_info", "prefix_cache_info", describe(cache))
	}
	if spec.Exists() && !spec.IsNone() && !r.each(spec, take) {
		r.problem("bad_spec_info", "spec_info", describe(spec))
	}
}

// maxParts bounds Reward.Keys.
const maxParts = 256

// score reads a reward: a finite number of any sign. Bools count, as they do in Python's sums.
func (r *reader) score(v torchfile.Value) request.Value {
	if !v.Exists() || v.IsNone() || bigInt(v) && !r.afford(1<<14) {
		return request.Value{}
	}
	f, _, ok := number(v)
	if !ok || !finite(f) {
		return request.Value{V: f, State: request.Invalid}
	}
	return request.Value{V: f, State: request.Known}
}

func (r *reader) reward(v torchfile.Value) {
	w := &r.sample.Reward
	w.Raw = v
	if k := v.Kind(); k == torchfile.KindDict || k == torchfile.KindObject {
		more := 0
		r.each(v, func(key []byte, x torchfile.Value) {
			if len(w.Keys) == maxParts {
				more++
				return
			}
			part := r.score(x)
			w.Keys, w.Parts = append(w.Keys, r.words.add(key)), append(w.Parts, part)
			if r.opts.RewardKey != "" && string(key) == r.opts.RewardKey {
				w.Value = part
			}
		})
		if more > 0 {
			r.problem("many_reward_parts", "reward", describe(v))
		}
		if r.opts.RewardKey != "" && w.Value.State == request.Absent {
			r.problem("no_reward_key", "reward", "the reward has no number under "+r.opts.RewardKey)
		}
		return
	}
	if w.Value = r.score(v); w.Value.State == request.Invalid {
		r.problem("bad_reward", "reward", describe(v))
	}
}
