package rollout

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/torchfile"
)

// npScalar is what numpy pickles of a scalar.
func npScalar(dtype string, data string) call {
	// dtype(name, False, True) with its state
	d := raw("cnumpy\ndtype\n(" + pushed(dtype) + "\x89\x88tR(K\x03" + pushed("<") + "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb")
	return call{"numpy.core.multiarray scalar", pyTuple{d, call{"_codecs encode", pyTuple{latin1(data), "latin1"}}}}
}

func pushed(s string) string {
	p := &pickler{}
	p.put(s)
	return string(p.b)
}

// latin1 is data as the text whose latin1 it is.
func latin1(data string) string {
	out := make([]rune, len(data))
	for i := range len(data) {
		out[i] = rune(data[i])
	}
	return string(out)
}

func known(f float64) request.Value { return request.Value{V: f, State: request.Known} }

func TestFieldsInEveryForm(t *testing.T) {
	type want struct {
		field    func(*Sample) any
		value    any
		problems string
	}
	get := func(f func(*Sample) any) func(*Sample) any { return f }
	index := get(func(s *Sample) any { return s.Index })
	reward := get(func(s *Sample) any { return s.Reward.Value })
	status := get(func(s *Sample) any { return fmt.Sprint(s.Status, " ", s.StatusText) })
	source := get(func(s *Sample) any { return s.Source })
	dataset := get(func(s *Sample) any { return s.Dataset })
	effective := get(func(s *Sample) any { return s.EffectiveLength })
	prompt := get(func(s *Sample) any { return s.PromptTokens })
	huge := new(big.Int).Lsh(big.NewInt(1), 100)
	for name, c := range map[string]struct {
		fields pyDict
		want
	}{
		"int":                       {pyDict{"index", 7}, want{index, Int{7, true}, ""}},
		"negative int":              {pyDict{"index", -7}, want{index, Int{-7, true}, ""}},
		"64 bits":                   {pyDict{"index", int64(math.MinInt64)}, want{index, Int{math.MinInt64, true}, ""}},
		"np.int64":                  {pyDict{"index", npScalar("i8", "\x07\x00\x00\x00\x00\x00\x00\x80")}, want{index, Int{7 - 1<<63, true}, ""}},
		"np.uint8":                  {pyDict{"index", npScalar("u1", "\xff")}, want{index, Int{255, true}, ""}},
		"float without a fraction":  {pyDict{"index", 7.0}, want{index, Int{7, true}, ""}},
		"float":                     {pyDict{"index", 7.5}, want{index, Int{}, "bad_index"}},
		"NaN":                       {pyDict{"index", math.NaN()}, want{index, Int{}, "bad_index"}},
		"bool":                      {pyDict{"index", true}, want{index, Int{}, "bad_index"}},
		"text":                      {pyDict{"index", "7"}, want{index, Int{}, "bad_index"}},
		"huge":                      {pyDict{"index", huge}, want{index, Int{}, "bad_index"}},
		"None":                      {pyDict{"index", nil}, want{index, Int{}, ""}},
		"list":                      {pyDict{"index", pyList{7}}, want{index, Int{}, "bad_index"}},
		"the last of two":           {pyDict{"index", 1, "index", 2}, want{index, Int{2, true}, ""}},
		"reward int":                {pyDict{"reward", -2}, want{reward, known(-2), ""}},
		"reward bool":               {pyDict{"reward", true}, want{reward, known(1), ""}},
		"reward np.float32":         {pyDict{"reward", npScalar("f4", "\x00\x00\x00\x3f")}, want{reward, known(0.5), ""}},
		"reward np.bool":            {pyDict{"reward", npScalar("b1", "\x01")}, want{reward, known(1), ""}},
		"reward infinite":           {pyDict{"reward", math.Inf(-1)}, want{reward, request.Value{V: math.Inf(-1), State: request.Invalid}, "bad_reward"}},
		"reward text":               {pyDict{"reward", "1"}, want{reward, request.Value{State: request.Invalid}, "bad_reward"}},
		"reward None":               {pyDict{"reward", nil}, want{reward, request.Value{}, ""}},
		"reward dict":               {pyDict{"reward", pyDict{"acc", true, "score", 0.25}}, want{reward, known(0.25), ""}},
		"reward dict without key":   {pyDict{"reward", pyDict{"acc", true}}, want{reward, request.Value{}, "no_reward_key"}},
		"reward object":             {pyDict{"reward", object{"a B", pyDict{"score", 3}}}, want{reward, known(3), ""}},
		"status text":               {pyDict{"status", "failed"}, want{status, "5 failed", ""}},
		"status of another trainer": {pyDict{"status", "cancelled"}, want{status, "6 cancelled", ""}},
		"status str(member)":        {pyDict{"status", "Status.TRUNCATED"}, want{status, "3 Status.TRUNCATED", ""}},
		"status member by value":    {pyDict{"status", call{"x Status", pyTuple{"aborted"}}}, want{status, "4 aborted", ""}},
		"status member by name":     {pyDict{"status", call{"__builtin__ getattr", pyTuple{global("x Status"), "PENDING"}}}, want{status, "1 PENDING", ""}},
		"status member of an int":   {pyDict{"status", call{"x Status", pyTuple{3}}}, want{status, "6 3", ""}},
		"status None":               {pyDict{"status", nil}, want{status, "0 ", ""}},
		"status dict":               {pyDict{"status", pyDict{}}, want{status, "0 ", "bad_status"}},
		"aborted of 2025-06":        {pyDict{"truncated", true, "aborted", true}, want{status, "4 ", ""}},
		"truncated of 2025-06":      {pyDict{"truncated", true, "aborted", false}, want{status, "3 ", ""}},
		"finished in 2025-06":       {pyDict{"truncated", false, "aborted", false}, want{status, "2 ", ""}},
		"unknown in 2025-06":        {pyDict{"truncated", nil, "aborted", false}, want{status, "0 ", ""}},
		"source":                    {pyDict{"source", "s", "metadata", pyDict{"source", "m"}}, want{source, "s", ""}},
		"source falls to metadata":  {pyDict{"source", "", "metadata", pyDict{"x_Source", "x", "source_name", "n", "source", "m"}}, want{source, "m", ""}},
		"source_name":               {pyDict{"metadata", pyDict{"x_Source", "x", "source_name", "n", "source", ""}}, want{source, "n", ""}},
		"any source":                {pyDict{"metadata", pyDict{"y_source", nil, "x_SOURCES", "x"}}, want{source, "x", ""}},
		"source 0":                  {pyDict{"source", 0}, want{source, "0", ""}},
		"no metadata":               {pyDict{"metadata", "source"}, want{source, "", ""}},
		"dataset":                   {pyDict{"dataset", "d"}, want{dataset, "d", ""}},
		"dataset in metadata":       {pyDict{"metadata", pyDict{"dataset_name", "d"}}, want{dataset, "d", ""}},
		"mask":                      {pyDict{"response_length", 3, "loss_mask", pyList{1, 0, 1}}, want{effective, Int{2, true}, ""}},
		"mask of bools":             {pyDict{"response_length", 3, "loss_mask", pyList{true, false, true}}, want{effective, Int{2, true}, ""}},
		"mask of floats":            {pyDict{"response_length", 2, "loss_mask", pyTuple{0.5, 1.5}}, want{effective, Int{2, true}, ""}},
		"mask of NaN":               {pyDict{"response_length", 1, "loss_mask", pyList{math.NaN()}}, want{effective, Int{}, "bad_loss_mask"}},
		"mask of text":              {pyDict{"response_length", 1, "loss_mask", pyList{"1"}}, want{effective, Int{}, "bad_loss_mask"}},
		"no mask":                   {pyDict{"response_length", 3, "loss_mask", nil}, want{effective, Int{3, true}, ""}},
		"mask too short":            {pyDict{"response_length", 3, "loss_mask", pyList{1, 1}}, want{effective, Int{2, true}, "loss_mask_length"}},
		"empty mask":                {pyDict{"response_length", 0, "loss_mask", pyList{}}, want{effective, Int{0, true}, ""}},
		"response length":           {pyDict{"response_length", -1}, want{get(func(s *Sample) any { return s.ResponseLength }), Int{}, "bad_response_length"}},
		"prompt":                    {pyDict{"response_length", 2, "tokens", pyList{1, 2, 3, 4, 70000}}, want{prompt, Int{3, true}, ""}},
		"prompt below zero":         {pyDict{"response_length", 2, "tokens", pyList{1}}, want{prompt, Int{}, "bad_tokens"}},
		"tokens None":               {pyDict{"response_length", 2, "tokens", nil}, want{prompt, Int{}, ""}},
		"tokens text":               {pyDict{"response_length", 2, "tokens", "123"}, want{prompt, Int{}, "bad_tokens"}},
		"token_count":               {pyDict{"response_length", 2, "token_count", 5}, want{prompt, Int{3, true}, ""}},
		"token_count of no tokens":  {pyDict{"response_length", 2, "tokens", nil, "token_count", 5}, want{prompt, Int{3, true}, ""}},
		"token_count and tokens":    {pyDict{"response_length", 1, "tokens", pyList{1, 2, 3}, "token_count", 9}, want{prompt, Int{2, true}, ""}},
		"token_count and bad ones":  {pyDict{"response_length", 1, "tokens", "12", "token_count", 9}, want{prompt, Int{}, "bad_tokens"}},
		"token_count too small":     {pyDict{"response_length", 2, "token_count", 1}, want{prompt, Int{}, "bad_token_count"}},
		"token_count negative":      {pyDict{"response_length", 2, "token_count", -1}, want{prompt, Int{}, "bad_token_count"}},
		"token_count alone":         {pyDict{"token_count", 5}, want{prompt, Int{}, ""}},
		"effective":                 {pyDict{"response_length", 3, "effective_response_length", 2}, want{effective, Int{2, true}, ""}},
		"effective of no mask":      {pyDict{"response_length", 3, "loss_mask", nil, "effective_response_length", 0}, want{effective, Int{0, true}, ""}},
		"effective and a mask":      {pyDict{"response_length", 3, "loss_mask", pyList{1, 0, 0}, "effective_response_length", 3}, want{effective, Int{1, true}, ""}},
		"effective None":            {pyDict{"response_length", 3, "effective_response_length", nil}, want{effective, Int{3, true}, ""}},
		"effective too large":       {pyDict{"response_length", 3, "effective_response_length", 4}, want{effective, Int{}, "bad_effective_response_length"}},
		"effective as text":         {pyDict{"response_length", 3, "effective_response_length", "2"}, want{effective, Int{}, "bad_effective_response_length"}},
		"time":                      {pyDict{"non_generation_time", -0.5}, want{get(func(s *Sample) any { return s.NonGeneration }), request.Value{V: -0.5, State: request.Invalid}, "bad_non_generation_time"}},
		"cache as an object":        {pyDict{"prefix_cache_info", object{"a B", pyDict{"cached_tokens", 3}}}, want{get(func(s *Sample) any { return s.CachedTokens }), Int{3, true}, ""}},
		"cache as text":             {pyDict{"prefix_cache_info", "x"}, want{get(func(s *Sample) any { return s.CachedTokens }), Int{}, "bad_prefix_cache_info"}},
		"spec as a dict":            {pyDict{"spec_info", pyDict{"spec_verify_ct", 9}}, want{get(func(s *Sample) any { return s.SpecVerify }), Int{9, true}, ""}},
		"versions":                  {pyDict{"weight_versions", pyList{"7", 8, nil}}, want{get(func(s *Sample) any { return strings.Join(s.WeightVersions, ",") }), "7,8,", ""}},
		"version":                   {pyDict{"weight_versions", "7"}, want{get(func(s *Sample) any { return strings.Join(s.WeightVersions, ",") }), "7", ""}},
		"removed":                   {pyDict{"remove_sample", 1}, want{get(func(s *Sample) any { return s.RemoveSample }), true, ""}},
		"session":                   {pyDict{"session_id", "a-b"}, want{get(func(s *Sample) any { return s.SessionID }), "a-b", ""}},
		"start of partial rollout":  {pyDict{"metadata", pyDict{"start_rollout_id", 4}}, want{get(func(s *Sample) any { return s.StartRollout }), Int{4, true}, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			s := readOne(t, append(pyDict{"prompt", "p"}, c.fields...), Options{RewardKey: "score"})
			got, want := c.field(&s), c.value
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %v, want %v", got, want)
			}
			var codes []string
			for _, p := range s.Problems {
				if p.Code != "no_sample_fields" {
					codes = append(codes, p.Code)
				}
			}
			if got := strings.Join(codes, " "); got != c.problems {
				t.Errorf("problems %q, want %q", got, c.problems)
			}
		})
	}
}

func TestWhatIsNoSample(t *testing.T) {
	var got []string
	h, err := readAll(t, pyDict{"samples", pyList{nil, 5, "x", pyDict{}, pyDict{"a", 1}, pyTuple{}, global("a B"), object{"a B", nil}, pyDict{"index", 1}}}, Options{}, func(s *Sample) {
		code := ""
		if len(s.Problems) > 0 {
			code = s.Problems[0].Code
		}
		got = append(got, code)
		if s.Trace.Present || s.Trace.Why == "" {
			t.Errorf("%d: trace %+v", s.Ordinal, s.Trace)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	// The empty tuple is a group of no samples.
	if want := []string{"not_a_sample", "not_a_sample", "not_a_sample", "no_sample_fields", "no_sample_fields", "not_a_sample", "no_sample_fields", ""}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if h.Samples != len(got) || !h.Nested {
		t.Errorf("%+v", h)
	}
}

func TestShapes(t *testing.T) {
	s := func(i int) pyDict { return pyDict{"index", i} }
	for name, c := range map[string]struct {
		v       any
		shape   string
		kind    Kind
		id      Int
		samples string
		err     error
	}{
		"slime":           {pyDict{"rollout_id", 3, "samples", pyList{s(1), s(2)}}, ShapeDict, Train, Int{3, true}, "1 2", nil},
		"id behind":       {pyDict{"samples", pyList{s(1), s(2)}, "rollout_id", 3}, ShapeDict, Train, Int{3, true}, "1 2", nil},
		"id as text":      {pyDict{"rollout_id", "eval_12", "samples", pyList{s(1)}}, ShapeDict, Eval, Int{12, true}, "1", nil},
		"list":            {pyList{s(1), s(2)}, ShapeList, Train, Int{}, "1 2", nil},
		"tuple":           {pyDict{"samples", pyTuple{s(1), s(2)}}, ShapeDict, Train, Int{}, "1 2", nil},
		"nested":          {pyList{pyList{s(1), pyTuple{s(2), s(3)}}, pyList{}, s(4)}, ShapeList, Train, Int{}, "1@0.0.-1 2@0.1.0 3@0.1.1 4", nil},
		"deeper":          {pyDict{"samples", pyList{pyList{pyList{pyList{s(1), s(2)}, s(3)}}}}, ShapeDict, Train, Int{}, "1@0.0.0 2@0.0.1 3@0.0.2", nil},
		"groups as dicts": {pyDict{"samples", pyList{pyDict{"group", 0, "samples", pyList{s(1), s(2)}}}}, ShapeDict, Train, Int{}, "1@0.0.-1 2@0.1.-1", nil},
		"datasets":        {pyDict{"rollout_id", 1, "samples", pyDict{"math", pyDict{"samples", pyList{s(1)}}, "code", pyList{s(2), s(3)}}}, ShapeDatasets, Eval, Int{1, true}, "1:math 2:code 3:code", nil},
		"eval's data":     {pyDict{"math", pyDict{"rewards", pyList{1.0, 0.0}, "truncated", pyList{false, true}}}, ShapeDatasets, Eval, Int{}, "-:math -:math", nil},
		"by key":          {pyDict{"samples", pyDict{0, s(1), 1, s(2)}}, ShapeDict, Train, Int{}, "1 2", nil},
		"one sample":      {s(1), ShapeDict, Train, Int{}, "1", nil},
		"train dict":      {pyDict{"response_lengths", pyList{5, 6}, "rewards", pyList{1, 2}, "sample_indices", pyList{8, 9}}, ShapeTrain, Train, Int{}, "8 9", nil},
		"empty":           {pyDict{"rollout_id", 3, "samples", pyList{}}, ShapeNothing, Train, Int{3, true}, "", nil},
		"empty list":      {pyList{}, ShapeNothing, Train, Int{}, "", nil},
		"None":            {pyDict{"samples", nil}, ShapeNothing, Train, Int{}, "", nil},
		"a number":        {5, ShapeNothing, Train, Int{}, "", ErrShape},
		"weights":         {pyDict{"model.embed", pyList{1, 2}, "lr", 0.1}, ShapeNothing, Train, Int{}, "", ErrShape},
		"samples a text":  {pyDict{"samples", "abc"}, ShapeNothing, Train, Int{}, "", ErrShape},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			h, err := readAll(t, c.v, Options{}, func(s *Sample) {
				text := "-"
				if s.Index.OK {
					text = fmt.Sprint(s.Index.N)
				}
				if s.Group >= 0 {
					text += fmt.Sprintf("@%d.%d.%d", s.Group, s.Member, s.Part)
				}
				if s.Dataset != "" {
					text += ":" + s.Dataset
				}
				if s.Ordinal != len(got) {
					t.Errorf("ordinal %d, want %d", s.Ordinal, len(got))
				}
				got = append(got, text)
			})
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if h.Shape != c.shape || h.Kind != c.kind || h.RolloutID != c.id || strings.Join(got, " ") != c.samples || h.Samples != len(got) {
				t.Errorf("%q, kind %d, id %v, samples %q (%d), want %q, %d, %v, %q", h.Shape, h.Kind, h.RolloutID, got, h.Samples, c.shape, c.kind, c.id, c.samples)
			}
		})
	}
}

func TestTrainDict(t *testing.T) {
	var got []string
	h, err := readAll(t, pyDict{
		"tokens", pyList{pyList{1, 2, 3}, pyList{4, 5}, nil}, "response_lengths", pyList{1, 1, 2}, "rewards", pyList{0.7, -0.7},
		"raw_reward", pyList{1.0, nil, 3.0}, "truncated", pyList{0, 1, 0}, "loss_masks", pyList{pyList{1}, pyList{0}, pyList{1, 1}},
	}, Options{}, func(s *Sample) {
		if s.Raw.Exists() || s.Index.OK {
			t.Errorf("a position is no index: %v", s.Index)
		}
		got = append(got, fmt.Sprint(s.PromptTokens, s.ResponseLength, s.EffectiveLength, s.Reward.Value, s.Status))
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"{2 true} {1 true} {1 true} {1 1} 2", "{1 true} {1 true} {0 true} {-0.7 1} 3", "{0 false} {2 true} {2 true} {3 1} 2"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(h.Problems) == 0 || h.Problems[0].Code != "column_length" {
		t.Errorf("problems %v", h.Problems)
	}
}

func TestFromName(t *testing.T) {
	for name, want := range map[string]string{
		"rollout_7.pt": "train {7 true}", "/a/eval_9/rollout_eval_12.pt": "eval {12 true}", "eval_3.pkl.pt": "eval {3 true}",
		"12.pt": "train {12 true}", `C:\x\rollout_eval_5.pt`: "eval {5 true}", "retrieval_5.pt": "train {5 true}", "rollout.pt": "train {0 false}", "": "train {0 false}",
		"rollout_99999999999999999999.pt": "train {0 false}", "rollout_7 (1).pt": "train {1 true}",
	} {
		if kind, id := FromName(name); fmt.Sprint(kind, " ", id) != want {
			t.Errorf("%s: %v %v, want %s", name, kind, id, want)
		}
	}
}

func TestVisitorEndsTheRead(t *testing.T) {
	many := pyList{}
	for i := range 10 {
		many = append(many, pyDict{"index", i})
	}
	for _, v := range []any{pyDict{"samples", many}, many} {
		for _, stop := range []error{errStop, torchfile.Stop} {
			f, err := torchfile.OpenBytes(pickleOf(v), nil)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			h, err := Read(f, Options{}, func(s *Sample) error {
				if n++; n == 3 {
					return stop
				}
				return nil
			})
			want := stop
			if stop == torchfile.Stop {
				want = nil
			}
			if err != want || n != 3 || h.Samples != 3 {
				t.Errorf("%v: error %v after %d samples, header %+v", stop, err, n, h)
			}
		}
	}
}

func TestOnlySomeSamples(t *testing.T) {
	many := pyList{}
	for i := range 10 {
		many = append(many, pyDict{"index", i, "trace", pyDict{"events", pyList{pyDict{"ts", 1.0}}}})
	}
	var got []int
	h, err := readAll(t, pyDict{"samples", many}, Options{Only: func(i int) bool { return i%4 == 1 }, NoTrace: true, NoMask: true}, func(s *Sample) {
		got = append(got, s.Ordinal)
		if s.Trace.Present || len(s.Trace.Events) > 0 || !s.Raw.Field("trace").Exists() {
			t.Errorf("trace %+v", s.Trace)
		}
	})
	if err != nil || !reflect.DeepEqual(got, []int{1, 5, 9}) || h.Samples != 10 {
		t.Errorf("visited %v of %d, error %v", got, h.Samples, err)
	}
}

// TestCutFile is case D03: what is broken is said, and what lies before the cut can be had.
func TestCutFile(t *testing.T) {
	dumps := dumpFiles(t)
	for name, want := range map[string]string{
		"d03_rollout_8": "incomplete (no central directory): still being written or cut",
		"d03_html":      "HTML",
	} {
		if _, err := torchfile.Open(dumps[name], nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty.pt")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := torchfile.Open(empty, nil); !errors.Is(err, torchfile.ErrEmpty) {
		t.Errorf("empty: %v", err)
	}

	f, err := torchfile.Open(dumps["d03_rollout_8"], &torchfile.Options{Salvage: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, cut := 0, 0
	h, err := Read(f, Options{}, func(s *Sample) error {
		n++
		for _, p := range s.Problems {
			if p.Code == "cut" {
				cut++
			}
		}
		if cut == 0 && (!s.Index.OK || s.Index.N != int64(s.Ordinal) || !s.Trace.Present) {
			t.Errorf("sample %d before the cut: %+v", s.Ordinal, s)
		}
		return nil
	})
	if n == 0 || h.Samples != n || h.RolloutID != (Int{8, true}) {
		t.Errorf("%d samples before the cut, header %+v, error %v", n, h, err)
	}
	if f.Incomplete() == nil && !errors.Is(err, torchfile.ErrIncomplete) {
		t.Errorf("error %v", err)
	}

	// A dump cut at every byte: never a crash, never a wrong sample, always an error.
	whole, err := os.ReadFile(dumps["f30_pickle_1dc85516d.pkl"])
	if err != nil {
		t.Fatal(err)
	}
	for end := 2; end < len(whole); end++ {
		f, err := torchfile.OpenBytes(whole[:end], &torchfile.Options{Salvage: true})
		if err != nil {
			continue
		}
		if _, err := Read(f, Options{}, func(*Sample) error { return nil }); err == nil {
			t.Errorf("cut at %d of %d bytes: no error", end, len(whole))
		}
	}
}
