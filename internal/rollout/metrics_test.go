package rollout

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/torchfile"
)

// dumpOf writes samples as slime does and opens what was written.
func dumpOf(t testing.TB, rolloutID int64, samples ...map[string]any) *torchfile.File {
	t.Helper()
	var b bytes.Buffer
	w := torchfile.NewWriter(&b, nil)
	list := make([]any, len(samples))
	for i, s := range samples {
		list[i] = s
	}
	w.Value(map[string]any{"rollout_id": rolloutID, "samples": list})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := torchfile.OpenBytes(b.Bytes(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func metricsOf(t testing.TB, f *torchfile.File, opts MetricOptions) *Metrics {
	t.Helper()
	m, err := Measure(f, opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// sampleOf is a sample with these fields changed.
func sampleOf(changes map[string]any) map[string]any {
	s := map[string]any{
		"index": 0, "group_index": 0, "status": "completed", "response": "x", "response_length": 4, "reward": 1.0,
		"loss_mask": nil, "non_generation_time": 0.0,
	}
	for k, v := range changes {
		s[k] = v
	}
	return s
}

// traceOf is a carrier of spans: name, start, end, and the end's attributes.
func traceOf(id string, spans ...any) map[string]any {
	var events []any
	for i := 0; i < len(spans); i += 4 {
		span := id + string(rune('a'+i))
		events = append(events, map[string]any{"type": "span_start", "name": spans[i], "ts": spans[i+1], "span_id": span})
		if end := spans[i+2]; end != nil {
			events = append(events, map[string]any{"type": "span_end", "name": spans[i], "ts": end, "span_id": span, "attrs": spans[i+3]})
		}
	}
	return map[string]any{"version": 1, "trace_id": id, "attempt": 0, "events": events}
}

// expectMetrics compares a view with values by key; nil means that the key is not there, a string is a
// state, and a word in its note.
func expectMetrics(t *testing.T, view []Metric, want map[string]any) {
	t.Helper()
	for key, w := range want {
		m, ok := Find(view, key)
		switch w := w.(type) {
		case nil:
			if ok {
				t.Errorf("%s = %s, expected no such key", key, metricText(&m))
			}
		case string:
			state, note, _ := strings.Cut(w, ": ")
			if !ok || m.State.String() != state || !strings.Contains(m.Note, note) {
				t.Errorf("%s = %s %q (%v), expected %s", key, metricText(&m), m.Note, ok, w)
			}
		case float64:
			if !ok || m.State != MetricValue || math.Abs(m.Value-w) > 1e-12*math.Max(1, math.Abs(w)) {
				t.Errorf("%s = %s %q (%v), expected %v", key, metricText(&m), m.Note, ok, w)
			}
		case int:
			if !ok || m.State != MetricValue || m.Value != float64(w) {
				t.Errorf("%s = %s %q (%v), expected %d", key, metricText(&m), m.Note, ok, w)
			}
		}
	}
}

// A retracted request reports a negative queue time.
func TestImpossibleDurationsAreCountedApart(t *testing.T) {
	r := measureDump(t, dumpPath(t, "d06_rollout_9.pt"), goldenOptions).Result()
	expectMetrics(t, r.Perf, map[string]any{
		"perf/request/queue_time/mean": 0.3, "perf/request/queue_time/min": 0.2, "perf/request/queue_time/max": 0.4,
		"perf/request/queue_time/count": 2, "perf/request/queue_time/invalid_count": 1, "perf/request/invalid_count": 1,
		"perf/request/e2e_latency/mean": 22.0 / 3, "perf/request/e2e_latency/count": 3, "perf/request/e2e_latency/invalid_count": 0,
	})
	expectMetrics(t, r.Compat, map[string]any{"perf/request/queue_time/min": -2.99, "perf/request/queue_time/count": nil})
}

// Requests are not samples.
func TestRequestsAndSamples(t *testing.T) {
	opts := goldenOptions
	opts.CompatCounts = true
	r := measureDump(t, dumpPath(t, "w08_rollout_2.pt"), opts).Result()
	if r.Samples != 2 {
		t.Errorf("%d samples", r.Samples)
	}
	expectMetrics(t, r.Perf, map[string]any{
		"perf/request/count": 4, "perf/request/profiled_count": 3, "rollout/sample_count": 2,
		"perf/request/e2e_latency/mean": 2.0, "perf/request/e2e_latency/max": 3.0,
		"perf/request/e2e_latency_per_sample/min": 3.0, "perf/request/e2e_latency_per_sample/max": 3.0,
		"perf/request/count_per_sample/max": 3, "perf/aborted/request_count": 1,
		"perf/aborted/request_tokens": "unknown: none of these requests",
	})
	// The counts that slime had for a day.
	expectMetrics(t, r.Compat, map[string]any{
		"perf/request/count": 4, "perf/request/profiled_count": 3, "perf/request/e2e_latency/count": 3,
	})
}

func TestCompatCountsOfTheirDay(t *testing.T) {
	opts := goldenOptions
	opts.CompatCounts = true
	r := measureDump(t, dumpPath(t, "f04_g2_pd_endattrs.pt"), opts).Result()
	expectMetrics(t, r.Compat, map[string]any{"perf/request/count": 16, "perf/request/profiled_count": 16, "perf/decode/forward_duration/count": 16})
}

func TestTimeAndGPUsThatAreNotKnown(t *testing.T) {
	f := func() *torchfile.File {
		return dumpOf(t, 3, sampleOf(map[string]any{"trace": traceOf("t", "sglang_generate", 100.0, 104.0, map[string]any{"e2e_latency": 4.0, "completion_tokens": 4})}))
	}
	r := metricsOf(t, f(), MetricOptions{}).Result()
	expectMetrics(t, r.Compat, map[string]any{
		"perf/rollout_time": "unknown: rollout_time", "perf/tokens_per_gpu_per_sec": "unknown: rollout_time",
		"perf/longest_sample_tokens_per_sec": "unknown", "perf/request/e2e_latency/mean": 4.0,
	})
	expectMetrics(t, r.Perf, map[string]any{
		"perf/rollout_time": 4.0, "perf/longest_sample_tokens_per_sec": 1.0, "perf/tokens_per_gpu_per_sec": "unknown: GPUs",
	})
	if m, _ := Find(r.Perf, "perf/longest_sample_tokens_per_sec"); !m.Derived || !r.TimeDerived {
		t.Errorf("not marked as derived: %+v", m)
	}
	r = metricsOf(t, f(), MetricOptions{GPUs: 2}).Result()
	expectMetrics(t, r.Perf, map[string]any{"perf/tokens_per_gpu_per_sec": 0.5})
	expectMetrics(t, r.PerfStep, map[string]any{"perf_step/tokens_per_gpu_per_sec": 0.5})
	r = metricsOf(t, f(), MetricOptions{GPUs: 2, RolloutTime: 8}).Result()
	expectMetrics(t, r.Compat, map[string]any{"perf/tokens_per_gpu_per_sec": 0.25})
	if m, _ := Find(r.Perf, "perf/tokens_per_gpu_per_sec"); m.Derived || m.Value != 0.25 {
		t.Errorf("%+v", m)
	}
	// No trace: nothing to derive from.
	r = metricsOf(t, dumpOf(t, 3, sampleOf(nil)), MetricOptions{GPUs: 2}).Result()
	expectMetrics(t, r.Perf, map[string]any{
		"perf/rollout_time": "unknown: no trace", "perf/tokens_per_gpu_per_sec": "unknown: no trace", "rollout/untraced_count": 1,
	})
	expectMetrics(t, r.PerfStep, map[string]any{"perf_step/tokens_per_gpu_per_sec": "idle", "perf_step/request/count": 0})
}

func TestZeroStdGroups(t *testing.T) {
	s := func(group int, reward any) map[string]any {
		return sampleOf(map[string]any{"group_index": group, "reward": reward})
	}
	r := metricsOf(t, dumpOf(t, 1,
		s(0, 0.25), s(0, 0.25), // 0.2: ties to even
		s(1, 1), s(1, 1.0), s(1, true), // equal, named by the first
		s(2, 0.0), s(2, 1.0),
		s(3, 0.15), s(3, 0.15), // 0.1: below the tie in binary
		s(4, 1.0),
		s(5, math.NaN()), s(5, math.NaN()),
		s(6, math.Inf(1)),
		s(7, 0.21), s(7, 0.21),
	), MetricOptions{}).Result()
	for _, view := range [][]Metric{r.Compat, r.Perf} {
		expectMetrics(t, view, map[string]any{
			"rollout/zero_std/count_0.2": 2, "rollout/zero_std/count_1": 1, "rollout/zero_std/count_1.0": 1,
			"rollout/zero_std/count_0.1": 1, "rollout/zero_std/count_inf": 1, "rollout/zero_std/count_nan": nil, "rollout/zero_std/count_0.0": nil,
		})
	}
	expectMetrics(t, r.Perf, map[string]any{"rollout/group_count": 8, "rollout/zero_std/unknown_count": 0})
	r = metricsOf(t, dumpOf(t, 1, s(0, 1.0)), MetricOptions{AdvantageEstimator: "ppo"}).Result()
	expectMetrics(t, r.Compat, map[string]any{"rollout/zero_std/count_1.0": nil, "rollout/truncated_ratio": 0})
	expectMetrics(t, r.Perf, map[string]any{"rollout/group_count": nil})
}

func TestRewardsOfDicts(t *testing.T) {
	d := func(acc any, cat any) map[string]any {
		return sampleOf(map[string]any{"reward": map[string]any{"acc": acc, "cat": cat}})
	}
	file := func() *torchfile.File { return dumpOf(t, 1, d(1.0, "ok"), d(1.0, "wrong"), d(1.0, "ok"), d(1.0, 3)) }
	r := metricsOf(t, file(), MetricOptions{RewardKey: "acc", RewardCategory: "cat"}).Result()
	for _, view := range [][]Metric{r.Compat, r.Perf} {
		expectMetrics(t, view, map[string]any{
			"rollout/zero_std/count_1.0": 1, "rollout/error_cat/ok": 0.5, "rollout/error_cat/wrong": 0.25, "rollout/error_cat/3": 0.25,
		})
	}
	// The keys come in the order in which slime meets them.
	var order []string
	for _, m := range r.Compat {
		if name, ok := strings.CutPrefix(m.Key, "rollout/error_cat/"); ok {
			order = append(order, name)
		}
	}
	if got := strings.Join(order, " "); got != "ok wrong 3" {
		t.Errorf("categories in the order %s", got)
	}
	// Categories that differ and have the same name.
	r = metricsOf(t, dumpOf(t, 1, d(1.0, "3"), d(1.0, 3), d(1.0, "3"), d(1.0, 3.5)), MetricOptions{RewardKey: "acc", RewardCategory: "cat"}).Result()
	expectMetrics(t, r.Compat, map[string]any{"rollout/error_cat/3": 0.25, "rollout/error_cat/3.5": 0.25})
	expectMetrics(t, r.Perf, map[string]any{"rollout/error_cat/3": 0.75})
	for _, x := range r.Differences() {
		if x.Key == "rollout/error_cat/3" && x.Why[0] != WhySameName {
			t.Errorf("%v", x.Why)
		}
	}
	// A key that is not there makes slime fail.
	r = metricsOf(t, file(), MetricOptions{RewardKey: "score"}).Result()
	if len(r.CompatFailed) != 1 || r.CompatFailed[0] != (MetricFailure{"rollout", "KeyError: 'score'"}) {
		t.Errorf("%+v", r.CompatFailed)
	}
	expectMetrics(t, r.Perf, map[string]any{"rollout/reward/mean": "unknown: reward_key", "rollout/truncated_ratio": 0})
	r = metricsOf(t, dumpOf(t, 1, sampleOf(nil)), MetricOptions{RewardKey: "score", RewardCategory: "cat"}).Result()
	if len(r.CompatFailed) != 1 || r.CompatFailed[0].Error != "TypeError: 'float' object is not subscriptable" {
		t.Errorf("%+v", r.CompatFailed)
	}
	// Without a key dicts are compared whole, in any order of their keys, and cannot be rounded.
	r = metricsOf(t, dumpOf(t, 1, d(1.0, "a"), d(1, "a")), MetricOptions{}).Result()
	if len(r.CompatFailed) != 1 || r.CompatFailed[0].Error != "TypeError: type dict doesn't define __round__ method" {
		t.Errorf("%+v", r.CompatFailed)
	}
}

func TestSpeculationCacheAndLengths(t *testing.T) {
	spec := func(accept, draft, verify, completion int) map[string]any {
		return map[string]any{"spec_accept_token_num": accept, "spec_draft_token_num": draft, "spec_verify_ct": verify, "completion_token_num": completion}
	}
	f := dumpOf(t, 1,
		sampleOf(map[string]any{"spec_info": spec(3, 4, 2, 5), "prefix_cache_info": map[string]any{"cached_tokens": 10, "total_prompt_tokens": 40},
			"loss_mask": []int64{1, 0, 1, 1}, "status": "truncated"}),
		sampleOf(map[string]any{"spec_info": spec(0, 0, 0, 7), "prefix_cache_info": map[string]any{"cached_tokens": 0, "total_prompt_tokens": 10}, "status": "aborted"}),
	)
	r := metricsOf(t, f, MetricOptions{SpecDecoding: true}).Result()
	for _, view := range [][]Metric{r.Compat, r.Perf} {
		expectMetrics(t, view, map[string]any{
			"rollout/spec_accept_rate": 0.375, "rollout/spec_accept_length": 1.25, "rollout/prefix_cache_hit_rate": 0.2,
			"rollout/avg_cached_tokens_per_sample": 5.0, "rollout/response_len/mean": 3.5, "rollout/response_len/min": 3,
			"rollout/truncated_ratio": 0.5,
		})
	}
	expectMetrics(t, r.Perf, map[string]any{"rollout/masked_tokens": 1, "rollout/aborted_ratio": 0.5, "rollout/failed_ratio": 0})
}

func TestTopPKeptVocabulary(t *testing.T) {
	s := func(offsets any, changes map[string]any) map[string]any {
		x := sampleOf(changes)
		x["rollout_top_p_token_offsets"] = offsets
		return x
	}
	r := metricsOf(t, dumpOf(t, 1,
		s([]int64{0, 1, 3, 6, 10}, nil),                                              // 10 of 4 tokens
		s([]int64{0, 1, 3, 6, 10}, map[string]any{"loss_mask": []int64{1, 0, 0, 1}}), // 1 + 4 of 2
		s([]int64{0, 9, 9, 9, 9}, map[string]any{"remove_sample": true}),             // not counted
		s(nil, nil), s([]int64{}, nil), s([]int64{0, 5}, map[string]any{"response_length": 0}), // nothing to count
	), MetricOptions{}).Result()
	for _, view := range [][]Metric{r.Compat, r.Perf} {
		expectMetrics(t, view, map[string]any{"rollout/top_p_kept_vocab_per_token": 2.5})
	}
	r = metricsOf(t, dumpOf(t, 1, s([]int64{0, 1}, nil), s([]int64{0, 1, 3, 6, 10}, nil)), MetricOptions{}).Result()
	if len(r.CompatFailed) != 1 || r.CompatFailed[0].Error != "AssertionError: top-p token offsets length 2 != response length + 1 5" {
		t.Errorf("%+v", r.CompatFailed)
	}
	expectMetrics(t, r.Perf, map[string]any{"rollout/top_p_kept_vocab_per_token": "partial: 1 of 2"})
}

func TestRepetitionOfResponses(t *testing.T) {
	r := metricsOf(t, dumpOf(t, 1,
		sampleOf(map[string]any{"response": strings.Repeat("wait, ", 2000)}),
		sampleOf(map[string]any{"response": string(referenceText(1, "words", 12000, 3000))}),
		sampleOf(nil), sampleOf(nil),
	), MetricOptions{}).Result()
	for _, view := range [][]Metric{r.Compat, r.Perf} {
		expectMetrics(t, view, map[string]any{"rollout/repetition_frac": 0.25})
	}
}

func TestWaitsThatCannotBe(t *testing.T) {
	w := func(v any) map[string]any { return sampleOf(map[string]any{"non_generation_time": v}) }
	r := metricsOf(t, dumpOf(t, 1, w(2.0), w(-1.0), w(4.0)), MetricOptions{RolloutTime: 10, GPUs: 1}).Result()
	expectMetrics(t, r.Compat, map[string]any{"perf/non_generation_time/min": -1.0})
	expectMetrics(t, r.Perf, map[string]any{"perf/non_generation_time/min": 2.0, "perf/non_generation_time/invalid_count": 1, "perf/tokens_per_gpu_per_sec": 1.2})
	r = metricsOf(t, dumpOf(t, 1, w(10.0)), MetricOptions{RolloutTime: 10}).Result()
	expectMetrics(t, r.Perf, map[string]any{"perf/longest_sample_tokens_per_sec_without_non_generation": "unknown: outside generation"})
	r = metricsOf(t, dumpOf(t, 1, w("long")), MetricOptions{RolloutTime: 10}).Result()
	if len(r.CompatFailed) != 1 || r.CompatFailed[0].Part != "perf" {
		t.Errorf("%+v", r.CompatFailed)
	}
}

// Steps of a run: a request counts in the one step that it ran in.
func TestAttribute(t *testing.T) {
	gen := func(at, e2e float64) []any {
		return []any{"sglang_generate", at, at + e2e, map[string]any{"e2e_latency": e2e, "completion_tokens": 10}}
	}
	carry := traceOf("c", append(append([]any{"generate_and_rm_group", 100.0, 105.0, nil}, gen(101, 3)...),
		append([]any{"generate_and_rm_group", 200.0, 207.0, nil}, gen(201, 5)...)...)...)
	plain := func(at float64) map[string]any {
		return traceOf("p", append([]any{"generate_and_rm_group", at, at + 20, nil}, gen(at+1, 2)...)...)
	}
	shared := metricsOf(t, dumpOf(t, 6, sampleOf(map[string]any{"trace": plain(90)})), MetricOptions{GPUs: 1, RolloutTime: 10})
	next := metricsOf(t, dumpOf(t, 7,
		sampleOf(map[string]any{"trace": plain(200)}),
		sampleOf(map[string]any{"trace": carry, "metadata": map[string]any{"start_rollout_id": 6}})), MetricOptions{GPUs: 1, RolloutTime: 10})

	r := next.Result()
	expectMetrics(t, r.Perf, map[string]any{"perf/request/count": 3, "perf/request/e2e_latency/mean": 10.0 / 3, "rollout/carried_over_count": 1})
	expectMetrics(t, r.PerfStep, map[string]any{
		"perf_step/request/count": 2, "perf_step/request/e2e_latency/mean": 3.5, "perf_step/request/earlier_count": 1,
		"perf_step/tokens_per_gpu_per_sec": 2.0,
	})
	expectMetrics(t, shared.Result().PerfStep, map[string]any{"perf_step/request/count": 1})
	if n := Attribute([]*Metrics{shared, next}); n != 0 {
		t.Errorf("%d requests found no step", n)
	}
	expectMetrics(t, shared.Result().PerfStep, map[string]any{
		"perf_step/request/count": 2, "perf_step/request/e2e_latency/mean": 2.5, "perf_step/request/late_count": 1,
	})
	expectMetrics(t, shared.Result().Perf, map[string]any{"perf/request/count": 1})
	if n := Attribute([]*Metrics{shared, next}); n != 0 {
		t.Errorf("a second time, %d", n)
	}
	expectMetrics(t, shared.Result().PerfStep, map[string]any{"perf_step/request/count": 2})

	lone := metricsOf(t, dumpOf(t, 7, sampleOf(map[string]any{"trace": carry})), MetricOptions{})
	if n := Attribute([]*Metrics{lone}); n != 1 {
		t.Errorf("%d requests found no step, expected 1", n)
	}
	// The later dump is read again.
	again := metricsOf(t, dumpOf(t, 7, sampleOf(map[string]any{"trace": carry})), MetricOptions{})
	if n := Attribute([]*Metrics{shared, again}); n != 0 || shared.Late() != 1 {
		t.Errorf("read again: %d unplaced, %d late", n, shared.Late())
	}
	// The step's dump comes later.
	first := metricsOf(t, dumpOf(t, 6, sampleOf(map[string]any{"trace": plain(90)})), MetricOptions{})
	other := metricsOf(t, dumpOf(t, 5, sampleOf(map[string]any{"trace": plain(10)})), MetricOptions{})
	if n := Attribute([]*Metrics{lone, first, other}); n != 0 || first.Late() != 1 || other.Late() != 0 {
		t.Errorf("%d unplaced, %d and %d late ones", n, first.Late(), other.Late())
	}
}

func TestCarriedOverSampleThatDoesNotShowItsSteps(t *testing.T) {
	r := metricsOf(t, dumpOf(t, 7, sampleOf(map[string]any{
		"trace":    traceOf("t", "sglang_generate", 1.0, 2.0, map[string]any{"e2e_latency": 1.0}),
		"metadata": map[string]any{"start_rollout_id": 6},
	})), MetricOptions{}).Result()
	expectMetrics(t, r.PerfStep, map[string]any{"perf_step/request/e2e_latency/mean": "partial: carried-over", "perf_step/request/unsplit_sample_count": "partial"})
}

func TestSiblingsThatShareATrace(t *testing.T) {
	var b bytes.Buffer
	w := torchfile.NewWriter(&b, nil)
	trace := traceOf("t", "sglang_generate", 1.0, 2.0, map[string]any{"e2e_latency": 1.0, "completion_tokens": 9})
	w.Value(map[string]any{"rollout_id": 1, "samples": []any{sampleOf(map[string]any{"trace": trace}), sampleOf(map[string]any{"trace": trace})}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := torchfile.OpenBytes(b.Bytes(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m := NewMetrics(MetricOptions{})
	if _, err := Read(f, Options{}, func(s *Sample) error {
		if s.Ordinal == 1 {
			s.Trace.SharedWith = 0 // the writer writes the dict twice; slime's fan-out writes it once
		}
		m.Add(s)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r := m.Result()
	expectMetrics(t, r.Perf, map[string]any{"perf/request/count": 2, "perf/request/repeated_count": 1, "perf/aborted/discarded_tokens": 1})
	expectMetrics(t, r.PerfStep, map[string]any{"perf_step/request/count": 1})
	for _, d := range r.Differences() {
		if d.Key == "perf/request/count" && (len(d.Why) != 2 || d.Why[1] != WhyShared) {
			t.Errorf("%v", d.Why)
		}
	}
}

func TestTrainingThatIsNotComplete(t *testing.T) {
	tr := NewTraining([]int64{96, 97, 98, 99})
	known := func(v ...float64) []request.Value {
		out := make([]request.Value, len(v))
		for i, x := range v {
			out[i] = request.Value{V: x, State: request.Known}
		}
		return out
	}
	for _, s := range []struct {
		indices []int64
		rewards []request.Value
	}{{[]int64{96, 97}, known(1, 0)}, {[]int64{99}, known(1)}} {
		if err := tr.AddShard(s.indices, s.rewards, known(10, 20)[:len(s.indices)]); err != nil {
			t.Fatal(err)
		}
	}
	var samples []map[string]any
	for i := range 4 {
		samples = append(samples, sampleOf(map[string]any{"index": 96 + i}))
	}
	f := dumpOf(t, 12, samples...)
	r := metricsOf(t, f, MetricOptions{Training: tr.Row}).Result()
	expectMetrics(t, r.Perf, map[string]any{
		"rollout/train/coverage": 0.75, "rollout/train/reward/mean": "partial: 3 of 4 samples", "rollout/train/response_len/max": "partial",
		"rollout/reward/mean": 1.0, // not of the trainer
	})
	if m, _ := Find(r.Perf, "rollout/train/reward/mean"); math.Abs(m.Value-2.0/3) > 1e-12 {
		t.Errorf("mean %v", m.Value)
	}
	if err := tr.AddShard([]int64{98}, known(0), known(30)); err != nil {
		t.Fatal(err)
	}
	r = metricsOf(t, f, MetricOptions{Training: tr.Row}).Result()
	expectMetrics(t, r.Perf, map[string]any{"rollout/train/coverage": 1.0, "rollout/train/reward/mean": 0.5, "rollout/train/response_len/max": 30})
	for _, bad := range []struct {
		indices []int64
		rewards []request.Value
		want    string
	}{
		{[]int64{0, 1}, known(1, 1), "count within the shard"},
		{[]int64{400}, known(1), "another step"},
		{[]int64{96, 96}, known(1, 1), "twice"},
		{[]int64{96}, known(1, 2), "must be as many"},
	} {
		if err := tr.AddShard(bad.indices, bad.rewards, nil); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%v: %v", bad.indices, err)
		}
	}
	if have, of := tr.Coverage(); have != 4 || of != 4 {
		t.Errorf("%d of %d", have, of)
	}
}

func TestPartialStep(t *testing.T) {
	m := metricsOf(t, dumpOf(t, 1, sampleOf(nil)), MetricOptions{})
	m.MarkPartial("the file is cut")
	r := m.Result()
	expectMetrics(t, r.Perf, map[string]any{"rollout/response_len/mean": "partial: the file is cut"})
	expectMetrics(t, r.Compat, map[string]any{"rollout/response_len/mean": "partial: the file is cut"})
}

func TestStepOfTheTrainer(t *testing.T) {
	opts := MetricOptions{WandbAlwaysUseTrainStep: true, RolloutBatchSize: 32, NSamplesPerPrompt: 8, GlobalBatchSize: 100}
	r := metricsOf(t, dumpOf(t, 7, sampleOf(nil)), opts).Result()
	if r.Step != (Int{17, true}) || r.Axis != "rollout/step" || r.RolloutID != (Int{7, true}) {
		t.Errorf("step %v on %s of rollout %v", r.Step, r.Axis, r.RolloutID)
	}
	opts.GlobalBatchSize = 0
	if r := metricsOf(t, dumpOf(t, 7, sampleOf(nil)), opts).Result(); r.Step.OK {
		t.Errorf("step %v without a batch size", r.Step)
	}
	if r := metricsOf(t, dumpOf(t, 7, sampleOf(nil)), MetricOptions{}).Result(); r.Step != (Int{7, true}) {
		t.Errorf("step %v", r.Step)
	}
}

func TestPassRatesOfTraining(t *testing.T) {
	s := func(reward any) map[string]any { return sampleOf(map[string]any{"reward": reward}) }
	opts := MetricOptions{LogPassrate: true, NSamplesPerPrompt: 2}
	r := metricsOf(t, dumpOf(t, 1, s(1.0), s(0.0), s(1), s(0.5)), opts).Result()
	for _, view := range [][]Metric{r.Compat, r.Perf} {
		expectMetrics(t, view, map[string]any{"passrate/pass@1": 0.5, "passrate/pass@2": 1.0, "passrate/pass@4": nil})
	}
	r = metricsOf(t, dumpOf(t, 1, s(1.0), s(nil)), opts).Result()
	expectMetrics(t, r.Perf, map[string]any{"passrate/pass@1": "partial: 1 of 2"})
	r = metricsOf(t, dumpOf(t, 1, s(1.0), s(0.0), s(1.0)), opts).Result()
	expectMetrics(t, r.Perf, map[string]any{"passrate/pass@1": "unknown: 3 rewards are not groups of 2"})
}

func TestMetricsJSON(t *testing.T) {
	for _, name := range []string{"f20_nan_inf.pt", "f25_malformed_traces.pt", "f27_empty.pt", "f02_head_pd_children.pt", "f19_exotic_attrs.pt", "c19_truncated_zip.pt"} {
		r := measureDump(t, dumpPath(t, name), MetricOptions{}).Result()
		a, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if b, _ := json.Marshal(measureDump(t, dumpPath(t, name), MetricOptions{}).Result()); !bytes.Equal(a, b) {
			t.Errorf("%s: other bytes the second time", name)
		}
		if bytes.Contains(a, []byte(":NaN")) || bytes.Contains(a, []byte("Infinity")) {
			t.Errorf("%s: a number that JSON does not have", name)
		}
		var back MetricsResult
		if err := json.Unmarshal(a, &back); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c, _ := json.Marshal(&back); !bytes.Equal(a, c) {
			t.Errorf("%s: reading and writing changes it:\n%s\n%s", name, a, c)
		}
	}
	for _, bad := range []string{`{"kind":"test"}`, `{"kind":"train","perf":[{"key":"x","state":"odd"}]}`, `[]`} {
		var r MetricsResult
		if err := json.Unmarshal([]byte(bad), &r); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
}

// A value that cannot be a number on a chart is unknown, and says why.
func TestNothingFiniteIsInvented(t *testing.T) {
	for _, name := range allFixtures(t) {
		if openable(t, name) == "" {
			continue
		}
		r := measureDump(t, dumpPath(t, name), goldenOptions).Result()
		for _, view := range [][]Metric{r.Compat, r.Perf, r.PerfStep} {
			seen := map[string]bool{}
			for _, m := range view {
				if seen[m.Key] {
					t.Errorf("%s: %s comes twice", name, m.Key)
				}
				seen[m.Key] = true
				if math.IsNaN(m.Value) || math.IsInf(m.Value, 0) || m.State > MetricPartial && (m.Value != 0 || m.Note == "") {
					t.Errorf("%s: %+v", name, m)
				}
			}
		}
	}
}

func TestKeysAreEqualAsInPython(t *testing.T) {
	large := make([]any, 300)
	for i := range large {
		large[i] = i
	}
	values := []any{
		1, 1.0, true, 0, false, math.Copysign(0, -1), "1", nil, []any{1, 2}, []any{1.0, 2}, []any{1, 2, 3}, map[string]any{"a": 1, "b": []any{nil}},
		map[string]any{"b": []any{nil}, "a": true}, map[string]any{"a": "1"}, math.NaN(), large, 1 << 53, 1<<53 + 1, float64(1 << 53), "a", "a,b", []any{"a", "b"}, []any{"a,b"},
	}
	// The classes of equal values, by their first.
	want := []int{0, 0, 0, 3, 3, 3, 6, 7, 8, 8, 10, 11, 11, 13, -1, -1, 16, 17, 16, 19, 20, 21, 22}
	var samples []map[string]any
	for _, v := range values {
		samples = append(samples, map[string]any{"index": 0, "reward": v})
	}
	var keys []rewardKey
	if _, err := Read(dumpOf(t, 1, samples...), Options{}, func(s *Sample) error {
		keys = append(keys, keyOf(s.Reward.Raw))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i, k := range keys {
		first := -1
		for j := range keys {
			if keys[j] == k && k.kind != keyNaN {
				first = j
				break
			}
		}
		if first != want[i] {
			t.Errorf("%v (%+v) equals %d, expected %d", values[i], k, first, want[i])
		}
	}
}

// A reward that is large, and the same in every sample, costs no more than a look.
func TestLargeRewardsAreBounded(t *testing.T) {
	big := make([]any, 20000)
	for i := range big {
		big[i] = i
	}
	r := metricsOf(t, dumpOf(t, 1, sampleOf(map[string]any{"reward": big}), sampleOf(map[string]any{"reward": big})), MetricOptions{}).Result()
	expectMetrics(t, r.Perf, map[string]any{"rollout/zero_std/unknown_count": 1, "rollout/reward/mean": "unknown"})
	r = metricsOf(t, dumpOf(t, 1, sampleOf(map[string]any{"reward": map[string]any{"c": []any{1}}})), MetricOptions{RewardCategory: "c", RewardKey: "c"}).Result()
	if len(r.CompatFailed) != 1 || r.CompatFailed[0].Error != "TypeError: type list doesn't define __round__ method" {
		t.Errorf("%+v", r.CompatFailed)
	}
}
