package rollout

import (
	"archive/zip"
	"bytes"
	"flag"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/torchfile"
)

// FuzzRead reads any bytes as a dump: nothing may crash, and what is visited must hold together.
func FuzzRead(f *testing.F) {
	for _, b := range seeds(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { readAny(t, b) })
}

// TestDamagedDumps reads every seed of the fuzzer with bytes changed at random, the same each time.
func TestDamagedDumps(t *testing.T) {
	const opcodes = ".(]}aeus0NKJGXhrjqtRb\x81\x85\x88"
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, seed := range seeds(t) {
		for range *damage {
			b := slices.Clone(seed)
			for range 1 + rnd.IntN(4) {
				switch at := rnd.IntN(len(b)); rnd.IntN(4) {
				case 0:
					b[at] = byte(rnd.IntN(256))
				case 1: // an opcode
					b[at] = opcodes[rnd.IntN(len(opcodes))]
				case 2: // something from elsewhere
					from := rnd.IntN(len(b))
					copy(b[at:], b[from:min(from+1+rnd.IntN(64), len(b))])
				default:
					b = slices.Delete(b, at, min(at+1+rnd.IntN(16), len(b)))
				}
				if len(b) == 0 {
					break
				}
			}
			readAny(t, b)
		}
	}
}

var damage = flag.Int("damage", 8, "how often TestDamagedDumps damages each dump")

// seeds are the dumps of the tests, the pickles in them, and carriers that they do not have.
func seeds(t testing.TB) (out [][]byte) {
	files := dumpFiles(t)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		b, err := os.ReadFile(files[name])
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 64<<10 { // the large ones slow the fuzzer down and hold nothing else
			continue
		}
		out = append(out, b)
		// The pickle alone is a dump, too, and one that no checksum keeps from being changed.
		z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			continue
		}
		for _, record := range z.File {
			if !strings.HasSuffix(record.Name, "data.pkl") {
				continue
			}
			r, err := record.Open()
			if err != nil {
				t.Fatal(err)
			}
			pickle, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, pickle)
		}
	}
	carrier := &same{v: pyDict{"events", pyList{
		ev("start", "generate_and_rm_group", 1.0, "g", ""), ev("start", "sglang_generate", 1.0, "a", "g"),
		ev("start", "sglang_pd_decode", 1.0, "d", "a"), ev("end", "sglang_pd_decode", 2.0, "d", "", "pd_decode_forward_duration", 1.0),
		ev("event", "sglang_pd_summary", 2.0, "", "a", "pd_transfer_total_mb", 3.5), ev("end", "sglang_generate", 3.0, "a", "", "e2e_latency", 2.0),
		ev("event", "buffer_dequeue", 4.0, "", "", "rollout_id", 2), ev("start", "generate_and_rm_group", 5.0, "h", ""),
	}}}
	for _, v := range []any{
		pyDict{"rollout_id", 1, "samples", pyList{pyDict{"index", 0, "trace", carrier}, pyDict{"index", 1, "trace", carrier}}},
		pyDict{"samples", pyDict{"math", pyDict{"rewards", pyList{1.0}, "samples", pyList{pyDict{"index", 0}}}}},
		pyDict{"tokens", pyList{pyList{1, 2}}, "response_lengths", pyList{1}, "rewards", pyList{1.0}, "loss_masks", pyList{pyList{1}}},
		pyList{pyList{pyDict{"index", 0, "reward", pyDict{"a", 1}}}, nil, 5},
		pyDict{"response_lengths", wideTensor, "rewards", wideTensor},
	} {
		out = append(out, pickleOf(v))
	}
	return out
}

// readAny reads bytes that may be anything, and checks what comes out.
func readAny(t *testing.T, b []byte) {
	for _, salvage := range [...]bool{false, true} {
		dump, err := torchfile.OpenBytes(b, &torchfile.Options{Salvage: salvage, Limits: torchfile.Limits{MaxMemory: 64 << 20, MaxInflate: 16 << 20, MaxOps: 1 << 22}})
		if err != nil {
			continue
		}
		visited := 0
		h, err := Read(dump, Options{RewardKey: "a"}, func(s *Sample) error {
			if s.Ordinal != visited {
				t.Fatalf("ordinal %d, want %d", s.Ordinal, visited)
			}
			visited++
			check(t, s)
			if visited == 10_000 {
				return torchfile.Stop
			}
			return nil
		})
		if h == nil || h.Samples != visited {
			t.Fatalf("header %+v after %d samples, error %v", h, visited, err)
		}
		dump.Close()
	}
}

// check says what is wrong with a sample whatever it was read from.
func check(t *testing.T, s *Sample) {
	tr := &s.Trace
	if tr.Present != (len(tr.Events) > 0) || tr.Present == (tr.Why != "") {
		t.Fatalf("present %v with %d events, why %q", tr.Present, len(tr.Events), tr.Why)
	}
	if len(s.Problems) > MaxProblems || len(tr.Events)+tr.Skipped > tr.Total {
		t.Fatalf("%d problems, %d events and %d skipped of %d", len(s.Problems), len(tr.Events), tr.Skipped, tr.Total)
	}
	last := -1
	for i := range tr.Events {
		e := &tr.Events[i]
		if e.Order <= last || e.NonFinite == finite(e.TS) || e.Kind == SpanStart && e.SpanID == "" {
			t.Fatalf("event %d: %+v", i, e)
		}
		last = e.Order
	}
	at := 0
	for _, g := range tr.Segments {
		if g.First != at || g.End <= g.First {
			t.Fatalf("segments %+v", tr.Segments)
		}
		at = g.End
	}
	if tr.Present && (at != len(tr.Events) || tr.Own < 0 || tr.Own >= len(tr.Segments)) {
		t.Fatalf("segments %+v of %d events, own %d", tr.Segments, len(tr.Events), tr.Own)
	}
	if tr.SharedWith >= s.Ordinal {
		t.Fatalf("sample %d shares its carrier with %d", s.Ordinal, tr.SharedWith)
	}
	before := -1
	for i := range s.Requests {
		q := &s.Requests[i]
		first := q.SpanStart
		if first < 0 {
			first = q.SpanEnd
		}
		if first <= before || first >= len(tr.Events) || q.SpanEnd >= len(tr.Events) {
			t.Fatalf("request %d: %+v", i, q)
		}
		before = first
		if q.Segment != tr.SegmentOf(first) || q.OwnStep != (q.Segment == tr.Own) || math.IsNaN(q.Start) != (q.SpanStart < 0) && !tr.Events[first].NonFinite {
			t.Fatalf("request %d: %+v", i, q)
		}
		for _, v := range append(q.Phases[:], q.QueueTime, q.E2ELatency, q.DecodeThroughput, q.PromptTokens, q.CachedTokens, q.Retries) {
			if v.State == request.Known && (!finite(v.V) || v.V < 0) {
				t.Fatalf("request %d: %+v", i, q)
			}
		}
	}
	for _, n := range []Int{s.ResponseLength, s.PromptTokens, s.CachedTokens, s.SpecDraft} {
		if n.N < 0 || !n.OK && n.N != 0 {
			t.Fatalf("negative or half missing: %+v", s)
		}
	}
	if v := s.Reward.Value; v.State == request.Known && !finite(v.V) || len(s.Reward.Keys) != len(s.Reward.Parts) {
		t.Fatalf("reward %+v", s.Reward)
	}
}

// FuzzTrainShard parses any bytes as a trainer's shard and joins what comes out.
func FuzzTrainShard(f *testing.F) {
	for _, s := range []string{
		`{"rollout_id": 12, "rank": 0, "sample_indices": [96, 97], "rewards": [1, NaN], "response_lengths": [10, null]}`,
		`{"sample_indices": [0, 1], "rewards": ["x\"", -Infinity]}`, `{`, `[]`, "null",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseTrainShard("s", b)
		if (s == nil) == (err == nil) {
			t.Fatal(s, err)
		}
		if s == nil {
			return
		}
		j := JoinTrain(Int{12, true}, []int64{96, 97, 98}, []*TrainShard{s, s})
		if j.Have > j.Of || j.Of != 3 || j.Partial != (j.Have < j.Of) || len(j.Missing) != j.Of-j.Have {
			t.Fatalf("%+v", j)
		}
	})
}
