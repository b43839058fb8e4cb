package tailsample

import (
	"reflect"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/sim"
	"github.com/rollscope/rollscope/internal/sim/spans"
	"github.com/rollscope/rollscope/internal/span"
)

// The observations of a held trace, made without what stages carry, are those of its spans in full: for
// every trace of a simulated fleet with routers, frontends, PD pairs, aborts, retractions and lost spans.
func TestObservationsOfWhatIsHeld(t *testing.T) {
	corpus, err := spans.NewCorpus(spans.CorpusOptions{Fleet: sim.Demo(), For: 40 * time.Second, Max: 30_000,
		Traces: spans.Options{Level: 2, Attributes: 8, Split: 0.5, Agents: 0.3, ToolFail: 0.2, Orphans: 0.05, Broken: 0.05, Skewed: 0.3}})
	if err != nil {
		t.Fatal(err)
	}
	full := map[span.TraceID][]span.Span{}
	for _, policy := range []float64{0, 1} {
		s := start(t, Options{Policy: calm(policy)})
		s.nurseryBytes = 1 // all is packed
		got := map[span.TraceID][]request.Observation{}
		take := func(ds []*Decision) {
			for _, d := range ds {
				if d.Final {
					got[d.Trace] = append(got[d.Trace], d.Requests...)
				}
			}
		}
		for i := range corpus.Requests() {
			body, _ := corpus.AppendRequest(nil, i, 0, t0)
			scopes, err := span.Scan(body, nil)
			if err != nil {
				t.Fatal(err)
			}
			if policy == 0 {
				for j := range scopes {
					for k := range scopes[j].Spans {
						var sp span.Span
						if err := span.Decode(&scopes[j], &scopes[j].Spans[k], &sp); err != nil {
							t.Fatal(err)
						}
						full[sp.Trace] = append(full[sp.Trace], sp)
					}
				}
			}
			take(s.Add(t0, scopes))
		}
		take(s.Flush(t0))
		observed := 0
		for id, spans := range full {
			want := span.Observe(span.NewTree(spans))
			observed += len(want)
			have := got[id]
			if len(have) != len(want) {
				t.Fatalf("%s: %d observations, want %d", id, len(have), len(want))
			}
			for i := range want {
				h := have[i]
				if h.Spans != len(spans) || h.SpansKept == "" || h.SpansReason == "" {
					t.Fatalf("%s: %+v of %d spans", id, h, len(spans))
				}
				h.Spans, h.SpansKept, h.SpansReason = want[i].Spans, want[i].SpansKept, want[i].SpansReason
				if !reflect.DeepEqual(h, want[i]) {
					t.Fatalf("%s: the observation %d is\n%+v, want\n%+v", id, i, h, want[i])
				}
			}
		}
		if observed < 500 {
			t.Fatalf("only %d observations", observed)
		}
	}
}
