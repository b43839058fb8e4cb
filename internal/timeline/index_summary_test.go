package timeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
)

// TestSummaryByHand checks numbers that a person can see in handmade.
func TestSummaryByHand(t *testing.T) {
	ix := NewIndex(handmade(t))
	for _, x := range []struct {
		q    Query
		want string
	}{
		{Query{Filter: "row=3"}, `{"rows":1,"classes":[{"class":"other","n":1,"seconds":4.25}],` +
			`"names":[{"name":"sandbox_exec","n":1,"seconds":4.25,"other":{"n":1,"seconds":4.25}}],"attempts":[{"attempt":0,"n":1,"seconds":4.25}],` +
			`"statuses":[{"status":"truncated","n":1,"seconds":4.25,"rows":1}],` +
			`"medians":{"phases":[null,null,null,null,null,null,null,null,null,null],"queue":null,"e2e":null,"dur":null}}`},
		// A row without a trace is a row of its status.
		{Query{Filter: "row=1"}, `{"rows":1,"classes":[],"names":[],"attempts":[],"statuses":[{"status":"pending","n":0,"seconds":0,"rows":1}],` +
			`"medians":{"phases":[null,null,null,null,null,null,null,null,null,null],"queue":null,"e2e":null,"dur":null}}`},
		// The open span, to where it was cut; the request of the attempt has no end and no value that can be.
		{Query{Attempt: rollout.Int{N: 1, OK: true}}, `{"rows":1,"classes":[{"class":"generate","n":1,"seconds":10.500001}],` +
			`"names":[{"name":"sglang_generate","n":1,"seconds":10.500001}],"attempts":[{"attempt":1,"n":1,"seconds":10.500001}],` +
			`"statuses":[{"status":"aborted","n":1,"seconds":10.500001,"rows":1}],` +
			`"medians":{"phases":[null,null,null,null,null,null,null,null,null,null],"queue":null,"e2e":null,"dur":null}}`},
		{Query{Filter: "nobody"}, `{"rows":0,"classes":[],"names":[],"attempts":[],"statuses":[],` +
			`"medians":{"phases":[null,null,null,null,null,null,null,null,null,null],"queue":null,"e2e":null,"dur":null}}`},
	} {
		s, err := ix.Summary(x.q)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != x.want {
			t.Errorf("%+v:\n%s\nnot\n%s", x.q, got, x.want)
		}
	}
	var qe *QueryError
	if _, err := ix.Summary(Query{Filter: "dur>"}); !errors.As(err, &qe) {
		t.Errorf("a wrong filter: %v", err)
	}
}

// TestMedians takes the value at place (n+1)/2 of those that are said.
func TestMedians(t *testing.T) {
	c := NewColumns(Head{Tool: "test"})
	for i, queue := range []float64{0.4, 0.1, 0.3, 0.2} {
		s := plainSample(i, i, 0, rollout.StatusCompleted, 1)
		q := absentRequest("sglang_generate", fmt.Sprint("rid", i), 0, float64(i+1))
		q.QueueTime = known1(queue)
		if i > 0 {
			q.Phases[request.DecodeForward] = known1(float64(i))
		}
		s.Requests = []request.Request{q}
		c.Add(&Row{Sample: s, Start: sec(0), End: sec(5), Lanes: 1, Attempts: 1, Spans: 1, Items: []Item{{Class: ClassGenerate, Name: "sglang_generate", Start: sec(0), End: sec(float64(i + 1)), Parent: -1, Request: 0}}})
	}
	s, err := NewIndex(c).Summary(Query{})
	if err != nil {
		t.Fatal(err)
	}
	m := s.Medians
	if m.E2E != nil || m.Phases[0] != nil || m.Queue == nil || m.Dur == nil || m.Phases[request.DecodeForward] == nil {
		t.Fatalf("%+v", m)
	}
	if *m.Queue != 0.2 || *m.Dur != 2 || *m.Phases[request.DecodeForward] != 2 {
		t.Errorf("queue %g, dur %g, decode %g", *m.Queue, *m.Dur, *m.Phases[request.DecodeForward])
	}
}

// TestRasterByHand looks at handmade's four rows, one pixel high, from 0 s to 4 s of row 0.
func TestRasterByHand(t *testing.T) {
	ix := NewIndex(handmade(t))
	name := func(s string) int { return slices.Index(ix.head.Dicts.Name, s) + 1 }
	status := func(s string) int { return slices.Index(ix.head.Dicts.Status, s) + 1 }
	other := firstName + name("sandbox_exec")
	for _, x := range []struct {
		by   By
		q    Query
		want []int
	}{
		// In the second and the third pixel of row 0 decode_forward and the reward fill more than what stands around them.
		{ByClass, Query{Filter: "row=0"}, []int{int(ClassPhase) + int(request.PrefillForward) + 1, int(ClassPhase) + int(request.DecodeForward) + 1, int(ClassReward) + 1, 0}},
		{ByName, Query{Filter: "row=0"}, []int{name("[P] sglang_generate"), name("[D] sglang_generate"), name("reward_model"), 0}},
		{ByAttempt, Query{}, []int{1, 1, 1, 0, 2, 2, 2, 2, 1, 1, 1, 1}},
		{ByStatus, Query{}, []int{status("completed"), status("completed"), status("completed"), 0, status("aborted"), status("aborted"), status("aborted"), status("aborted"),
			status("truncated"), status("truncated"), status("truncated"), status("truncated")}},
		{ByStatus, Query{Attempt: rollout.Int{N: 1, OK: true}}, []int{status("aborted"), status("aborted"), status("aborted"), status("aborted")}},
		{ByClass, Query{Filter: "row=3"}, []int{int(ClassOther) + 1, int(ClassOther) + 1, int(ClassOther) + 1, int(ClassOther) + 1}},
		{ByPhase, Query{Filter: "row=3"}, []int{other, other, other, other}},
	} {
		if x.q.Filter == "" {
			x.q.Filter = "-flag:empty"
		}
		order, err := ix.Order(x.q)
		if err != nil {
			t.Fatal(err)
		}
		img, err := ix.Raster(x.q, x.by, 4, len(order), 1_000_001, 5_000_001)
		if err != nil {
			t.Fatal(err)
		}
		if got := ints8(img.Class); !slices.Equal(got, x.want) {
			t.Errorf("by %s, %+v: %v, not %v", byNames[x.by], x.q, got, x.want)
		}
	}
}

// TestRasterManyNames has more names than a pixel has values.
func TestRasterManyNames(t *testing.T) {
	c := NewColumns(Head{Tool: "test"})
	const n = 300
	for i := range n {
		s := plainSample(i, i, 0, rollout.StatusCompleted, 1)
		c.Add(&Row{Sample: s, Start: sec(0), End: sec(1), Lanes: 1, Attempts: 1, Spans: 1,
			Items: []Item{{Class: ClassOther, Name: fmt.Sprintf("work %03d", i), Start: sec(0), End: sec(1), Attempt: i, Parent: -1, Request: -1}}})
	}
	ix := NewIndex(c)
	for by, first := range map[By]int{ByName: 1, ByPhase: firstName + 1, ByAttempt: 0} {
		img, err := ix.Raster(Query{}, by, 1, n, 0, 1_000_000)
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range img.Class { // the dictionary's entry 0 is ""
			if want := min(i+first, 254) + 1; int(got) != want {
				t.Fatalf("by %s: row %d is %d, not %d", byNames[by], i, got, want)
			}
			if img.Fill[i] != 255 {
				t.Fatalf("by %s: row %d is filled to %d", byNames[by], i, img.Fill[i])
			}
		}
	}
}

func TestParseBy(t *testing.T) {
	for i, name := range byNames {
		if by, err := ParseBy(name); err != nil || by != By(i) {
			t.Errorf("%s: %d, %v", name, by, err)
		}
	}
	if by, err := ParseBy(""); err != nil || by != ByClass {
		t.Errorf("nothing said: %d, %v", by, err)
	}
	var qe *QueryError
	if _, err := ParseBy("Class"); !errors.As(err, &qe) || qe.At != -1 {
		t.Errorf("%v", err)
	}
}
