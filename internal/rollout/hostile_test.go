package rollout

import (
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/torchfile"
)

// The dumps of this file take minutes or the machine's memory to read for code that is quadratic in
// them.
const n = 50_000

func TestHostileCarriers(t *testing.T) {
	id := func(i int) string { return fmt.Sprint("s", i) }
	many := func(k int, fn func(i int) any) pyList {
		out := make(pyList, k)
		for i := range out {
			out[i] = fn(i)
		}
		return out
	}
	for name, c := range map[string]struct {
		events   func() pyList
		requests int
		segments int
	}{
		"open requests that end in the order they began": {func() pyList {
			return append(many(n, func(i int) any { return ev("start", "sglang_generate", 1.0, id(i), "") }),
				many(n, func(i int) any { return ev("end", "sglang_generate", 2.0, id(i), "", "e2e_latency", 1.0) })...)
		}, n, 1},
		"a deep chain of parents with parts at its end": {func() pyList {
			chain := many(n, func(i int) any { return ev("start", "x", 1.0, id(i), id(i-1)) })
			return append(append(pyList{ev("start", "sglang_generate", 1.0, id(-1), "")}, chain...), many(n, func(i int) any {
				return ev("end", "sglang_pd_decode_forward", 2.0, "p"+id(i), id(n-1), "pd_decode_forward_duration", 1.0)
			})...)
		}, 1, 1},
		"timings within timings": {func() pyList {
			return append(many(n, func(i int) any { return ev("start", "x", 1.0, id(i), id(i-1)) }),
				many(n, func(i int) any { return ev("end", "x", 2.0, id(i), "", "queue_time", 1.0) })...)
		}, 1, 1},
		"one cycle of parents": {func() pyList {
			return append(many(n, func(i int) any { return ev("start", "sglang_pd_x", 1.0, id(i), id((i+1)%n)) }),
				many(n, func(i int) any { return ev("end", "sglang_pd_x", 2.0, id(i), "", "pd_decode_forward_duration", 1.0) })...)
		}, 0, 1},
		"one id": {func() pyList {
			return many(2*n, func(i int) any { return ev([]string{"start", "end"}[i%2], "sglang_generate", 1.0, "a", "a") })
		}, n, 1},
		"segments": {func() pyList {
			return many(2*n, func(i int) any {
				if i%2 == 0 {
					return ev("event", "buffer_dequeue", 1.0, "", "", "rollout_id", i)
				}
				return ev("start", "sglang_generate", 1.0, id(i), "")
			})
		}, n, n},
		"roots of one instant": {func() pyList {
			return append(many(n, func(i int) any { return ev("start", "generate_and_rm_group", 1.0, id(i), "") }),
				many(n, func(i int) any { return ev("end", "generate_and_rm_group", 2.0, id(i), "") })...)
		}, 0, 1},
		"one event over and over": {func() pyList {
			e := &same{v: ev("start", strings.Repeat("x", 5000), 1.0, strings.Repeat("y", 5000), strings.Repeat("z", 5000), strings.Repeat("w", 500000), 1)}
			return many(2*n, func(int) any { return e })
		}, 0, 1},
		"one huge integer over and over": {func() pyList {
			huge := &same{v: new(big.Int).Lsh(big.NewInt(1), 500_000)}
			return many(n, func(i int) any {
				return append(ev("end", "sglang_generate", 1.0, "a", "", "e2e_latency", huge, "finish_reason", huge), "attempt", huge, "span_id", huge, "name", huge)
			})
		}, n, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := readOne(t, traced(c.events()...), Options{})
			if len(s.Requests) != c.requests || len(s.Trace.Segments) != c.segments || !s.Trace.Present || len(s.Problems) > MaxProblems {
				t.Errorf("%d requests, %d segments, %d events", len(s.Requests), len(s.Trace.Segments), len(s.Trace.Events))
			}
		})
	}
}

// TestHostileSharing: what a few bytes refer to is not paid for each time.
func TestHostileSharing(t *testing.T) {
	carrier := func() *same {
		events := pyList{}
		for range n {
			events = append(events, ev("event", "a", 1.0, "", ""))
		}
		return &same{v: pyDict{"events", events}}
	}
	metadata := func() *same {
		d := pyDict{}
		for i := range n {
			d = append(d, i, strings.Repeat("k", 10))
		}
		return &same{v: d}
	}
	repeat := func(field string, v any) pyList {
		out := pyList{}
		for i := range n {
			out = append(out, pyDict{"index", i, field, v})
		}
		return out
	}
	masks := pyList{}
	for range n {
		masks = append(masks, 1)
	}
	bomb := any(pyDict{"index", 1})
	for range 40 {
		b := &same{v: bomb}
		if l, ok := bomb.(*same); ok {
			b = &same{v: pyList{l, l, l, l}}
		} else {
			b = &same{v: pyList{bomb}}
		}
		bomb = b
	}
	self := &same{}
	self.v = pyList{pyDict{"index", 1}, self}
	for name, c := range map[string]struct {
		v       any
		samples int // -1: whatever the reader's limit leaves
		limit   bool
	}{
		"carriers":         {repeat("trace", carrier()), n, false},
		"metadata":         {repeat("metadata", metadata()), n, false},
		"masks":            {repeat("loss_mask", &same{v: masks}), n, false},
		"rewards":          {repeat("reward", &same{v: new(big.Int).Lsh(big.NewInt(1), 500_000)}), n, false},
		"lists of lists":   {bomb, -1, true},
		"a list of itself": {self, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			visited := 0
			_, err := readAll(t, c.v, Options{}, func(s *Sample) { visited++ })
			if errors.Is(err, torchfile.ErrLimit) != c.limit || !c.limit && err != nil {
				t.Errorf("error %v", err)
			}
			if c.samples >= 0 && visited != c.samples {
				t.Errorf("%d samples, want %d", visited, c.samples)
			}
		})
	}
}

// TestHostileTensors: a tensor of one element may say that it has 10^14.
func TestHostileTensors(t *testing.T) {
	s := readOne(t, pyDict{"index", 0, "response_length", 3, "loss_mask", wideTensor, "tokens", wideTensor, "reward", wideTensor}, Options{})
	codes := map[string]bool{}
	for _, p := range s.Problems {
		codes[p.Code] = true
	}
	if s.EffectiveLength.OK || !codes["bad_loss_mask"] || !codes["bad_reward"] {
		t.Errorf("%+v", s.Problems)
	}
	h, err := readAll(t, pyDict{"response_lengths", pyList{1, 2}, "rewards", wideTensor, "truncated", wideTensor}, Options{Only: func(i int) bool { return i < 2 }}, func(*Sample) {})
	if err == nil && h.Samples > 1<<26 {
		t.Errorf("%d samples", h.Samples)
	}
}

// wideTensor is _rebuild_tensor_v2 of a storage of one element with stride 0.
var wideTensor = raw("ctorch._utils\n_rebuild_tensor_v2\n((" + pushed("storage") + "ctorch\nLongStorage\n" + pushed("0") + pushed("cpu") + "K\x01tQK\x00" +
	"\x8a\x06\x00\x40\x7a\x10\xf3\x5a\x85K\x00\x85\x89ccollections\nOrderedDict\n)RtR")
