package tailsample

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/span"
)

const t0 = int64(1_780_000_000e9)

// after is a time after the tests' beginning.
func after(d time.Duration) int64 { return t0 + int64(d) }

func load(t *testing.T, name string) []span.Scope {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return fromJSON(t, b)
}

func fromJSON(t *testing.T, b []byte) []span.Scope {
	t.Helper()
	pb, rejected, err := span.FromJSON(b)
	if err != nil || len(rejected) > 0 {
		t.Fatal(err, rejected)
	}
	scopes, err := span.Scan(pb, nil)
	if err != nil {
		t.Fatal(err)
	}
	return scopes
}

func policyFile(t *testing.T, name string) Options {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	o, _, err := Parse(b, name)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func start(t testing.TB, o Options) *Sampler {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stored collects the spans of decisions as a store would have them: ids by trace, sorted by arrival.
type stored map[span.TraceID][]span.ID

func (s stored) take(ds []*Decision) {
	for _, d := range ds {
		for _, sc := range d.Spans {
			for _, h := range sc.Spans {
				s[d.Trace] = append(s[d.Trace], h.ID)
			}
		}
	}
}

// A late span follows the decision about its trace.
func TestLateSpans(t *testing.T) {
	o := policyFile(t, "O01/policy.yaml")
	if o.Linger != 2*time.Second {
		t.Fatalf("decision_wait 2s gives a linger of %s", o.Linger)
	}
	t.Run("dropped", func(t *testing.T) {
		s, st := start(t, o), stored{}
		st.take(s.Add(t0, load(t, "O01/first.json")))
		ds := s.Advance(after(2 * time.Second))
		if len(ds) != 1 || ds[0].Keep || ds[0].Policy != RuleNone || !ds[0].Final {
			t.Fatalf("got %+v, want one drop", ds)
		}
		st.take(s.Add(after(5*time.Second), load(t, "O01/late_error.json")))
		st.take(s.Flush(after(time.Hour)))
		if n := s.Stats(); n.LateDropped != 1 || n.LateKept != 0 || len(st) != 0 {
			t.Fatalf("%+v, stored %v; want the late span dropped with its trace", n, st)
		}
	})
	t.Run("kept", func(t *testing.T) {
		s, st := start(t, o), stored{}
		ds := s.Add(t0, load(t, "O01/kept_first.json"))
		if len(ds) != 1 || !ds[0].Keep || ds[0].Policy != "errors" || ds[0].Flags&Early == 0 {
			t.Fatalf("got %+v, want the error kept at once", ds)
		}
		st.take(ds)
		ds = s.Advance(after(2 * time.Second))
		if len(ds) != 1 || !ds[0].Final || len(ds[0].Spans) != 0 {
			t.Fatalf("got %+v, want the final word", ds)
		}
		ds = s.Add(after(5*time.Second), load(t, "O01/late_ok.json"))
		if len(ds) != 1 || !ds[0].Late || !ds[0].Keep {
			t.Fatalf("got %+v, want the late span kept", ds)
		}
		st.take(ds)
		if got := fmt.Sprint(st[traceOf(2)]); got != "[0000000000000003 0000000000000004]" {
			t.Fatalf("stored %s", got)
		}
	})
	t.Run("forgotten", func(t *testing.T) {
		o := o
		o.Remember = time.Minute
		s := start(t, o)
		s.Add(t0, load(t, "O01/first.json"))
		s.Advance(after(2 * time.Second))
		if s.Stats().Remembered != 1 {
			t.Fatal("the decision is not remembered")
		}
		s.Add(after(2*time.Minute), load(t, "O01/late_error.json"))
		if n := s.Stats(); n.LateDropped != 0 || n.HeldTraces != 1 {
			t.Fatalf("%+v: want a new trace after the decision was forgotten", n)
		}
	})
	t.Run("bounded", func(t *testing.T) {
		o := o
		o.RememberTraces = 10
		s := start(t, o)
		for i := range 100 {
			s.Add(after(time.Duration(i)*10*time.Second), []span.Scope{scope("engine", made{trace: traceOf(uint64(i + 1)), id: 1, name: "request", start: t0, end: t0 + 1})})
		}
		s.Flush(after(1000 * time.Second))
		if n := s.Stats().Remembered; n != 10 {
			t.Fatalf("%d remembered, want 10", n)
		}
	})
}

// burst is the input of case O03: n traces of three spans, every 100th with an error.
func burst(n int) []span.Scope {
	var spans []made
	for i := range n {
		id := traceOf(uint64(i + 1))
		root := uint64(i*3 + 1)
		at := t0 + int64(i)*1e6
		for j, name := range []string{"request", "prefill", "decode"} {
			m := made{trace: id, id: root + uint64(j), name: name, start: at, end: at + 1e8}
			if j > 0 {
				m.parent = root
			}
			m.failed = i%100 == 0 && j == 2
			spans = append(spans, m)
		}
	}
	return []span.Scope{scope("engine", spans...)}
}

// Above the limit the oldest traces are decided early, by name and number, those with errors last.
func TestTooManyTraces(t *testing.T) {
	o := Options{MaxTraces: 100}
	s, st := start(t, o), stored{}
	ds := s.Add(t0, burst(500))
	st.take(ds)
	n := s.Stats()
	if n.EvictedEarly != 400 || n.HeldTraces != 100 {
		t.Fatalf("%d evicted, %d held; want 400 and 100", n.EvictedEarly, n.HeldTraces)
	}
	for _, d := range ds {
		if d.Flags&Evicted != 0 && (d.Policy != RuleEvicted || !d.Final) {
			t.Fatalf("an evicted trace has the policy %q", d.Policy)
		}
	}
	if h := s.Hint(); !strings.Contains(h, "400 traces") || !strings.Contains(h, "max_traces") || !strings.Contains(h, "now 100") {
		t.Fatalf("the hint does not name the setting: %q", h)
	}
	if h := s.Hint(); h != "" {
		t.Fatalf("the hint repeats itself: %q", h)
	}
	st.take(s.Advance(after(time.Minute)))
	for i := 0; i < 500; i += 100 {
		if len(st[traceOf(uint64(i+1))]) != 3 {
			t.Errorf("error trace %d has %d spans stored, want 3", i+1, len(st[traceOf(uint64(i+1))]))
		}
	}
	n = s.Stats()
	if n.HeldTraces != 0 || n.HeldSpans != 0 || n.HeldBytes != 0 {
		t.Fatalf("%+v: the gauges do not fall back to 0", n)
	}
	if total := n.Kept[RuleErrors]; total != 5 {
		t.Fatalf("kept %v", n.Kept)
	}
	if n.SpansKept+n.SpansDropped != 1500 {
		t.Fatalf("%d spans kept and %d dropped, want 1500 together", n.SpansKept, n.SpansDropped)
	}
}

// Memory stays under the cap with 20 times what fits: that of the process too, not only what is counted.
func TestMemoryBounded(t *testing.T) {
	o := Options{MaxBytes: minBytes, Observe: nothing}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := start(t, o)
	r := rng(1)
	most, sent := int64(0), int64(0)
	for i := 0; sent < 20*o.MaxBytes; i++ {
		now := t0 + int64(i)*1e4
		g := generation(r, uint64(i), now)
		sc := scope("engine", g[:len(g)-1]...) // without their roots
		for _, h := range sc.Spans {
			sent += int64(len(h.Raw))
		}
		s.Add(now, []span.Scope{sc})
		most = max(most, s.nursery.size+s.packed.size+s.scopeBytes+int64(len(s.held))*traceBytes)
	}
	n := s.Stats()
	if n.EvictedEarly == 0 || most > o.MaxBytes+spares*2*slabSize {
		t.Fatalf("%d evicted, at most %d bytes of %d", n.EvictedEarly, most, o.MaxBytes)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	// Beside what is held there are the decisions that are remembered.
	if got, limit := int64(after.HeapAlloc)-int64(before.HeapAlloc), o.MaxBytes+o.MaxBytes/4+n.Remembered*120; got > limit {
		t.Errorf("%d bytes of memory are in use, the limit is %d (%+v)", got, limit, n)
	}
	if !strings.Contains(s.Hint(), "max_memory") {
		t.Fatal("the hint does not name max_memory")
	}
	s.Flush(t0 + int64(time.Hour))
	if n := s.Stats(); n.HeldBytes != 0 || n.HeldSpans != 0 {
		t.Fatalf("%+v", n)
	}
}
