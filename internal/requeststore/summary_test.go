package requeststore

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/request"
)

// row is a stored row as a query gives it; what is "" is left out.
func row(id string, rev int, kv ...string) []event.Field {
	out := []event.Field{{Name: "id", Value: id}, {Name: "revision", Value: fmt.Sprint(rev)}}
	for i := 0; i < len(kv); i += 2 {
		if kv[i+1] != "" {
			out = append(out, event.Field{Name: kv[i], Value: kv[i+1]})
		}
	}
	return out
}

func TestGoodput(t *testing.T) {
	for _, c := range []struct {
		what, outcome, ttft, itl, tokens string
		targets                          Targets
		judged, good                     bool
	}{
		{"both kept", "ok", "1", "0.05", "100", Targets{2, 0.1}, true, true},
		{"on the line", "ok", "2", "0.1", "100", Targets{2, 0.1}, true, true},
		{"one missed", "ok", "1", "0.2", "100", Targets{2, 0.1}, true, false},
		{"the other missed", "ok", "3", "0.05", "100", Targets{2, 0.1}, true, false},
		{"one unknown", "ok", "1", "", "100", Targets{2, 0.1}, false, false},
		// To judge this one would count the bad of those that nobody knows, and not the good.
		{"one unknown, the other missed", "ok", "3", "", "100", Targets{2, 0.1}, false, false},
		{"unknown without a target", "ok", "1", "", "100", Targets{TTFT: 2}, true, true},
		{"one token", "ok", "1", "", "1", Targets{2, 0.1}, true, true},
		{"one token, late", "ok", "3", "", "1", Targets{2, 0.1}, true, false},
		{"one token of an abort", "aborted", "1", "", "1", Targets{2, 0.1}, false, false},
		{"aborted", "aborted", "1", "0.05", "100", Targets{2, 0.1}, true, false},
		{"failed at once", "error", "", "", "", Targets{2, 0.1}, true, false},
		{"running", "running", "1", "", "", Targets{2, 0.1}, false, false},
		{"no targets", "error", "1", "0.05", "", Targets{}, false, false},
	} {
		s := columns{byName: map[string]int32{}}
		s.add(row("r", 1, "outcome", c.outcome, "ttft", c.ttft, "itl", c.itl, "completion_tokens", c.tokens), "")
		g := s.group("", s.newest(nil), c.targets)
		if g.Judged == 1 != c.judged || g.Good == 1 != c.good || c.good == (g.GoodTokens == 0) {
			t.Errorf("%s: judged %d, good %d, %v tokens", c.what, g.Judged, g.Good, g.GoodTokens)
		}
	}
}

// Percentiles are values that were there, the smallest below or at which that share lies, and are told apart
// from "nobody said".
func TestQuantilesAreExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 9))
	for _, n := range []int{1, 2, 3, 9, 10, 99, 100, 101, 1000, 1234} {
		c := columns{byName: map[string]int32{}}
		var all []float64
		for i := range n + 7 {
			text := ""
			if i < n {
				v := math.Round(rng.ExpFloat64()*1000) / 1000
				all = append(all, v)
				text = fmt.Sprint(v)
			}
			c.add(row(fmt.Sprint("r", i), 1, "ttft", text), "")
		}
		slices.Sort(all)
		q := c.group("", c.newest(nil), Targets{}).Quantiles[0]
		if q.Count != int64(n) || q.Max != all[n-1] {
			t.Fatalf("%d: %+v", n, q)
		}
		for _, p := range []struct{ got, share float64 }{{q.P50, 0.5}, {q.P90, 0.9}, {q.P99, 0.99}} {
			atMost := 0
			below := 0
			for _, v := range all {
				if v <= p.got {
					atMost++
				}
				if v < p.got {
					below++
				}
			}
			if float64(atMost) < p.share*float64(n)-1e-9 || float64(below) >= p.share*float64(n) {
				t.Errorf("%d: %v has %d at most and %d below for %v", n, p.got, atMost, below, p.share)
			}
		}
	}
}

// Of a request's revisions the last one counts, and only when the filter lets it through.
func TestSupersededRowsDoNotCount(t *testing.T) {
	c := columns{byName: map[string]int32{}}
	c.add(row("a", 1, "outcome", "running"), "outcome")
	c.add(row("a", 2, "outcome", "ok"), "outcome")
	c.add(row("b", 1, "outcome", "running"), "outcome") // its second one did not fit
	c.add(row("c", 1, "outcome", "error"), "outcome")
	c.add(row("c", 1, "outcome", "error"), "outcome") // stored twice, as after a crash
	g := c.group("", c.newest(map[uint64]int{hash("a"): 2, hash("b"): 2}), Targets{})
	if g.Count != 2 || g.Outcomes[request.Finished] != 1 || g.Outcomes[request.ErrorOutcome] != 1 {
		t.Errorf("%+v", g)
	}
}
