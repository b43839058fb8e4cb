package rollout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/torchfile"
)

// dumpFiles are all dumps that this package's tests read, by base name.
func dumpFiles(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, dir := range [...]string{"../../torchfile/testdata/dumps", "testdata/dumps"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.pt"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no dumps in %s: %v", dir, err)
		}
		for _, f := range files {
			out[strings.TrimSuffix(filepath.Base(f), ".pt")] = f
		}
	}
	return out
}

// seen is what a golden file holds of a sample.
type seen struct {
	Place    []int          `json:"place,omitempty"` // group, member, part
	Ints     map[string]any `json:"ints,omitempty"`
	Status   string         `json:"status,omitempty"`
	Source   string         `json:"source,omitempty"`
	Dataset  string         `json:"dataset,omitempty"`
	Session  string         `json:"session,omitempty"`
	Versions []string       `json:"versions,omitempty"`
	NonGen   any            `json:"non_generation,omitempty"`
	Removed  bool           `json:"removed,omitempty"`
	Reward   any            `json:"reward,omitempty"`
	Parts    map[string]any `json:"reward_parts,omitempty"`
	Trace    string         `json:"trace,omitempty"`
	Why      string         `json:"why,omitempty"`
	Segments string         `json:"segments,omitempty"`
	Requests []string       `json:"requests,omitempty"`
	Problems []string       `json:"problems,omitempty"`
}

type seenFile struct {
	Header  *Header `json:"header,omitempty"`
	Err     string  `json:"error,omitempty"`
	Samples []seen  `json:"samples,omitempty"`
}

func showValue(v request.Value) any {
	switch {
	case v.State == request.Absent:
		return nil
	case v.State == request.Invalid:
		return fmt.Sprintf("invalid %v", v.V)
	}
	return v.V
}

func showSample(s *Sample) seen {
	out := seen{
		Status: fmt.Sprintf("%d %.40q", s.Status, s.StatusText), Source: fmt.Sprintf("%.60s", s.Source), Dataset: s.Dataset, Session: s.SessionID,
		Versions: append([]string(nil), s.WeightVersions...), NonGen: showValue(s.NonGeneration), Removed: s.RemoveSample,
		Reward: showValue(s.Reward.Value), Why: s.Trace.Why, Ints: map[string]any{},
	}
	out.Source = strings.ToValidUTF8(out.Source, "?")
	if s.Group >= 0 {
		out.Place = []int{s.Group, s.Member, s.Part}
	}
	for name, n := range map[string]Int{
		"index": s.Index, "group_index": s.GroupIndex, "rollout_id": s.RolloutID, "response_length": s.ResponseLength,
		"effective": s.EffectiveLength, "prompt": s.PromptTokens, "cached": s.CachedTokens, "total_prompt": s.TotalPrompt,
		"spec_accept": s.SpecAccept, "spec_draft": s.SpecDraft, "spec_verify": s.SpecVerify, "spec_completion": s.SpecCompletion,
		"start_rollout": s.StartRollout,
	} {
		if n.OK {
			out.Ints[name] = n.N
		}
	}
	for i, k := range s.Reward.Keys {
		if out.Parts == nil {
			out.Parts = map[string]any{}
		}
		out.Parts[k] = showValue(s.Reward.Parts[i])
	}
	t := &s.Trace
	if t.Present {
		var kinds [3]int
		for i := range t.Events {
			kinds[t.Events[i].Kind]++
		}
		out.Trace = fmt.Sprintf("id %s version %v attempt %d: %d points, %d starts, %d ends of %d events, shared with %d",
			t.ID, t.Version, t.Attempt, kinds[Point], kinds[SpanStart], kinds[SpanEnd], t.Total, t.SharedWith)
		for i, g := range t.Segments {
			mark := ""
			if i == t.Own {
				mark = "*"
			}
			out.Segments += fmt.Sprintf("%s[%d,%d) rollout %v attempt %d; ", mark, g.First, g.End, g.RolloutID, g.Attempt)
		}
	}
	for i := range s.Requests {
		out.Requests = append(out.Requests, showRequest(&s.Requests[i]))
	}
	for _, p := range s.Problems {
		out.Problems = append(out.Problems, strings.ToValidUTF8(fmt.Sprintf("%s %s: %.100s", p.Code, p.Where, p.What), "?"))
	}
	if s.MoreProblems > 0 {
		out.Problems = append(out.Problems, fmt.Sprintf("and %d more", s.MoreProblems))
	}
	return out
}

var phaseNames = [request.NumPhases]string{
	"p.bootstrap_queue", "p.bootstrap", "p.alloc_wait", "p.forward", "p.transfer_queue",
	"d.prealloc", "d.bootstrap", "d.alloc_wait", "d.transfer", "d.forward",
}

func showRequest(q *request.Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s #%d..%d", q.Name, q.SpanStart, q.SpanEnd)
	if d := q.End - q.Start; !math.IsNaN(d) {
		fmt.Fprintf(&b, " %.6fs", d)
	}
	fmt.Fprintf(&b, " rid %q attempt %d segment %d own %v reason %q error %q from %d", q.RID, q.Attempt, q.Segment, q.OwnStep, q.FinishReason, q.ErrorType, q.PhasesFrom)
	show := func(name string, v request.Value) {
		if x := showValue(v); x != nil {
			fmt.Fprintf(&b, " %s=%v", name, x)
		}
	}
	show("prompt", q.PromptTokens)
	show("completion", q.CompletionTokens)
	show("cached", q.CachedTokens)
	show("queue", q.QueueTime)
	show("e2e", q.E2ELatency)
	show("throughput", q.DecodeThroughput)
	for i, v := range q.Phases {
		show(phaseNames[i], v)
	}
	show("speed", q.TransferSpeed)
	show("size", q.TransferSize)
	show("retries", q.Retries)
	return b.String()
}

// show reads a dump as a golden file holds it.
func show(path string, opts Options) seenFile {
	f, err := torchfile.Open(path, nil)
	if err != nil {
		return seenFile{Err: strings.ReplaceAll(err.Error(), path, filepath.Base(path))}
	}
	defer f.Close()
	var out seenFile
	out.Header, err = Read(f, opts, func(s *Sample) error {
		out.Samples = append(out.Samples, showSample(s))
		return nil
	})
	if err != nil {
		out.Err = strings.ReplaceAll(err.Error(), path, filepath.Base(path))
	}
	return out
}

// TestDumps reads every dump and compares what was found with golden files.
func TestDumps(t *testing.T) {
	for name, path := range dumpFiles(t) {
		t.Run(name, func(t *testing.T) {
			kind, id := FromName(filepath.Base(path))
			var got bytes.Buffer
			e := json.NewEncoder(&got)
			e.SetEscapeHTML(false)
			e.SetIndent("", " ")
			if err := e.Encode(show(path, Options{Eval: kind == Eval, RewardKey: "score"})); err != nil {
				t.Fatal(err)
			}
			_ = id
			golden := filepath.Join("testdata/golden", name+".json")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%s differs from %s (run with -update and look at the difference):\n%s", name, golden, firstDifference(got.String(), string(want)))
			}
		})
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

var errStop = errors.New("enough")

func eachSample(t *testing.T, name string, fn func(*Sample)) {
	t.Helper()
	f, err := torchfile.Open(dumpFiles(t)[name], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := Read(f, Options{}, func(s *Sample) error { fn(s); return nil }); err != nil {
		t.Fatal(err)
	}
}

func eachRequest(t *testing.T, name string, fn func(*request.Request)) {
	t.Helper()
	eachSample(t, name, func(s *Sample) {
		for i := range s.Requests {
			fn(&s.Requests[i])
		}
	})
}
