package tailsample

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/span"
)

// feed sends whole requests to a sampler, one each 10 ms.
type feed struct {
	s  *Sampler
	id uint64
}

func (f *feed) send(service, model string, ttft float64) *Decision {
	f.id++
	now := after(time.Duration(f.id) * 10 * time.Millisecond)
	attrs := []any{"gen_ai.latency.time_to_first_token", ttft}
	if model != "" {
		attrs = append(attrs, "gen_ai.response.model", model)
	}
	f.s.Add(now, []span.Scope{scope(service, made{trace: traceOf(f.id), id: f.id, name: " Req 1", start: now, end: now + 1e9, attrs: attrs})})
	for _, d := range f.s.Flush(now) {
		return d
	}
	return nil
}

// taught is a sampler that has seen requests of three kinds.
func taught(t testing.TB) *feed {
	p := DefaultPolicy()
	p.Ratio = 0
	f := &feed{s: start(t, Options{Policy: p, Observe: nothing})}
	r := rng(4)
	for range 1000 {
		f.send("sglang", "a", 0.1+r.Float64()*0.02)
		f.send("sglang", "b", 1+r.Float64()*0.2)
		f.send("vllm", "", 0.01+r.Float64()*0.002)
	}
	return f
}

// What was learned is known from the first request on: each kind is judged by its own.
func TestLearned(t *testing.T) {
	old := taught(t)
	b := old.s.AppendLearned([]byte("before"))[len("before"):]
	if again := old.s.AppendLearned(nil); !bytes.Equal(b, again) {
		t.Fatal("the same state gives other bytes")
	}
	if len(b) > 8<<10 {
		t.Errorf("%d bytes for three kinds of requests", len(b))
	}
	fresh := func() *feed { return &feed{s: start(t, Options{Policy: old.s.o.Policy, Observe: nothing}), id: old.id} }
	f := fresh()
	if d := f.send("sglang", "a", 0.3); d.Keep {
		t.Fatalf("a sampler that has learned nothing: %+v", d)
	}
	f = fresh()
	n, err := f.s.Learn(after(time.Duration(f.id)*10*time.Millisecond), b)
	if err != nil || n != 6000 { // TTFT and E2E each
		t.Fatalf("%d durations, %v", n, err)
	}
	if again := f.s.AppendLearned(nil); !bytes.Equal(b, again) {
		t.Fatal("what was taken over is not what was handed on")
	}
	for _, c := range []struct {
		service, model string
		ttft           float64
		keep           bool
	}{
		{"sglang", "a", 0.3, true}, {"sglang", "b", 1.05, false}, {"sglang", "b", 3, true}, {"vllm", "", 0.3, true}, {"vllm", "a", 0.3, false}, {"sglang", "a", 0.11, false},
	} {
		d := f.send(c.service, c.model, c.ttft)
		if d.Keep != c.keep || c.keep && d.Policy != "slow:ttft_p99" {
			t.Errorf("%s %s %v s: %+v", c.service, c.model, c.ttft, d)
		}
	}
}

// A change of the policy forgets nothing.
func TestLearnedInherited(t *testing.T) {
	old := taught(t)
	p := old.s.o.Policy
	p.Tools = false
	f := &feed{s: start(t, Options{Policy: p, Observe: nothing}), id: old.id}
	f.s.Inherit(old.s)
	if d := f.send("sglang", "a", 0.3); !d.Keep || d.Policy != "slow:ttft_p99" {
		t.Errorf("%+v", d)
	}
	for range 300 { // the two share nothing
		f.send("sglang", "a", 0.1)
	}
	if b := old.s.AppendLearned(nil); bytes.Equal(b, f.s.AppendLearned(nil)) {
		t.Error("the old one learns on")
	}
}

// What counts no more is not taken over, nor what this sampler knows better.
func TestLearnedBounds(t *testing.T) {
	old := taught(t)
	b, end := old.s.AppendLearned(nil), after(time.Duration(old.id)*10*time.Millisecond)
	window := old.s.o.Policy.Slow.Window
	learn := func(p Policy, now int64) int64 {
		t.Helper()
		n, err := start(t, Options{Policy: p, Observe: nothing}).Learn(now, b)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := learn(old.s.o.Policy, end+int64(window)); n != 6000 {
		t.Errorf("a window later: %d", n)
	}
	if n := learn(old.s.o.Policy, end+2*int64(window)); n != 0 {
		t.Errorf("two windows later: %d", n)
	}
	if n := learn(old.s.o.Policy, t0-1e12); n != 6000 {
		t.Errorf("with the clock set back: %d", n)
	}
	off := old.s.o.Policy
	off.Slow.P99 = false
	if n := learn(off, end); n != 0 {
		t.Errorf("without percentiles: %d", n)
	}
	f := &feed{s: start(t, Options{Policy: old.s.o.Policy, Observe: nothing}), id: old.id}
	f.send("sglang", "a", 0.3)
	if n, err := f.s.Learn(end, b); err != nil || n != 4000 {
		t.Errorf("beside what is known already: %d, %v", n, err)
	}
}

func sealed(body string) []byte {
	return binary.LittleEndian.AppendUint32([]byte(body), crc32.Checksum([]byte(body), castagnoli))
}

func TestLearnedDamaged(t *testing.T) {
	good := taught(t).s.AppendLearned(nil)
	empty := "\x01\x00\x00\x00\x02" // one distribution: no service, no model, TTFT, of the time 1
	for _, c := range []struct {
		name, want string
		b          []byte
	}{
		{"nothing", "does not begin", nil},
		{"another file", "does not begin", []byte("rollscope percentiles 2\nxxxxxxxx")},
		{"cut", "checksum", good[:len(good)/2]},
		{"the header alone", "checksum", []byte(learnedHeader)},
		{"too many", "distributions", sealed(learnedHeader + "\xff\xff\x7f")},
		{"too few", "no number", sealed(learnedHeader + "\x01")},
		{"a long name", "beyond the end", sealed(learnedHeader + "\x01\xff\xff\xff\xff\x7f")},
		{"a measure", "measure: 9", sealed(learnedHeader + "\x01\x00\x00\x09")},
		{"a bucket", "bucket", sealed(learnedHeader + empty + "\x01\xff\x7f\x01\x00")},
		{"a bucket twice", "order", sealed(learnedHeader + empty + "\x02\x01\x01\x00\x01\x00")},
		{"a count of 0", "count", sealed(learnedHeader + empty + "\x01\x01\x00\x00")},
		{"a count beyond", "count", sealed(learnedHeader + empty + "\x01\x01\xff\xff\xff\xff\xff\x7f\x00")},
		{"more", "belong to nothing", sealed(learnedHeader + "\x00\x00")},
	} {
		s := start(t, Options{Policy: DefaultPolicy(), Observe: nothing})
		n, err := s.Learn(t0, c.b)
		if err == nil || !strings.Contains(err.Error(), c.want) || n != 0 || len(s.sketches) > 0 {
			t.Errorf("%s: %d, %v; want %q", c.name, n, err, c.want)
		}
	}
	if n, err := start(t, Options{Policy: DefaultPolicy()}).Learn(t0, sealed(learnedHeader+empty+"\x00\x00")); n != 0 || err != nil {
		t.Errorf("an empty one: %d, %v", n, err)
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 4
		if _, err := readLearned(bad); err == nil {
			t.Fatalf("byte %d is another, and nobody notices", i)
		}
	}
}

// Whatever bytes are taken as learned can be handed on, and are the same then.
func FuzzLearned(f *testing.F) {
	f.Add(taught(f).s.AppendLearned(nil))
	f.Add(sealed(learnedHeader + "\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > len(learnedHeader)+4 { // so that the checksum does not hide the rest
			b = sealed(learnedHeader + string(b[len(learnedHeader):len(b)-4]))
		}
		s := start(t, Options{Policy: DefaultPolicy(), Observe: nothing})
		if _, err := s.Learn(t0, b); err != nil {
			return
		}
		first := s.AppendLearned(nil)
		again := start(t, Options{Policy: DefaultPolicy(), Observe: nothing})
		if _, err := again.Learn(t0, first); err != nil {
			t.Fatal(err)
		}
		if second := again.AppendLearned(nil); !bytes.Equal(first, second) {
			t.Fatalf("%x became %x", first, second)
		}
	})
}

// As many services as percentiles are kept of, each with all measures of many lengths: the most that is
// written down every 10 s.
func BenchmarkAppendLearned(b *testing.B) {
	s := start(b, Options{Policy: DefaultPolicy(), Observe: nothing})
	r := rng(5)
	for i := range int32(maxSketches) {
		key := [2]int32{s.word("service " + strconv.Itoa(int(i))), nobody}
		s.sketches[key] = new([numMeasures]*sketch)
		for m := range numMeasures {
			k := new(sketch)
			for range 2000 {
				k.add(t0, math.Exp(r.NormFloat64()), 1e9)
			}
			s.sketches[key][m] = k
		}
	}
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		out = s.AppendLearned(out[:0])
	}
	b.SetBytes(int64(len(out)))
	b.ReportMetric(float64(len(out)), "bytes")
}
