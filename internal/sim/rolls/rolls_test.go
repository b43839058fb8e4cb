package rolls

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollscope/rollscope/torchfile"
)

var update = flag.Bool("update", false, "write the golden files")

// steps are the kinds of steps that the tests look at.
func steps() map[string]Options {
	small := Lengths{Median: 60, Sigma: 0.9, Max: 400}
	return map[string]Options{
		"plain":     {Samples: 32, Response: small},
		"pd":        {Samples: 64, PD: true, MultiTurn: 0.5, Partial: 0.25, RolloutID: 4, Response: small, RewardDict: true},
		"crowded":   {Samples: 128, PD: true, Engines: 2, Running: 8, Concurrency: 40, Response: small, MultiTurn: 0.3},
		"streaming": {Samples: 16, PD: true, Streaming: true, Speculative: true, Response: small},
		"eval":      {Samples: 24, Eval: true, RolloutID: 7, Response: small, MultiTurn: 0.3},
		"tools":     {Samples: 64, MultiTurn: 1, ToolHangs: 0.2, ToolErrors: 0.2, Response: small},
		"slow":      {Samples: 64, Faults: []Fault{{Name: slowEngine, Engine: -1}}, Response: small},
		"restart": {Samples: 64, PD: true, MultiTurn: 0.4, Partial: 0.5, RolloutID: 1, Engines: 2, Running: 12, Response: small,
			Faults: []Fault{{Name: engineRestart, At: 400 * time.Millisecond, For: time.Second, Engine: -1}}},
		"outage":    {Samples: 32, Faults: []Fault{{Name: rewardOutage, At: 0, For: 30 * time.Second, Engine: -1}}, Response: small},
		"transfers": {Samples: 32, PD: true, Faults: []Fault{{Name: transferSlow, Engine: -1}}, Response: small},
		"hold":      {Samples: 64, Faults: []Fault{{Name: straggler, Engine: -1}}, Response: small},
		"hangs":     {Samples: 32, MultiTurn: 1, Faults: []Fault{{Name: toolTimeouts, At: 0, For: time.Minute, Engine: -1}}, Response: small},
	}
}

func written(t *testing.T, o Options) ([]byte, Stats) {
	t.Helper()
	var b bytes.Buffer
	st, err := Write(&b, o)
	if err != nil {
		t.Fatal(err)
	}
	if st.Bytes != int64(b.Len()) {
		t.Errorf("Stats say %d bytes, written were %d", st.Bytes, b.Len())
	}
	return b.Bytes(), st
}

func load(t *testing.T, b []byte) torchfile.Value {
	t.Helper()
	f, err := torchfile.OpenBytes(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	d, err := f.Load(torchfile.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d.Root()
}

func at(v torchfile.Value, path ...string) torchfile.Value {
	for _, k := range path {
		v = v.Get(k)
	}
	return v
}

func num(t *testing.T, v torchfile.Value) float64 {
	t.Helper()
	x, ok := v.Number()
	if !ok {
		t.Fatalf("%s is no number", v.PyRepr())
	}
	return x
}

// TestStepsAreConsistent reads what was written and checks it against physics, slime's own checks of a
// sample, and the Stats.
func TestStepsAreConsistent(t *testing.T) {
	for name, o := range steps() {
		t.Run(name, func(t *testing.T) {
			b, st := written(t, o)
			root := load(t, b)
			if got := num(t, root.Get("rollout_id")); got != float64(o.RolloutID) {
				t.Errorf("rollout_id %v", got)
			}
			var n Stats
			for _, s := range root.Get("samples").All() {
				n.Samples++
				checkSample(t, s, &n, st)
			}
			if n.Samples != st.Samples || n.Events != st.Events || n.Requests != st.Requests || n.OpenSpans != st.OpenSpans ||
				n.Response != st.Response || n.Generated != st.Generated || n.Prompt != st.Prompt || n.Attempts != st.Attempts {
				t.Errorf("counted %+v\nStats   %+v", n, st)
			}
			if st.Completed+st.Truncated+st.Failed != st.Samples {
				t.Errorf("statuses do not add up: %+v", st)
			}
		})
	}
}

func checkSample(t *testing.T, s torchfile.Value, n *Stats, st Stats) {
	t.Helper()
	id := s.Get("index").PyStr()
	length := int(num(t, s.Get("response_length")))
	tokens, ok := s.Get("tokens").Ints(nil)
	if !ok {
		t.Fatalf("%s: tokens are no integers", id)
	}
	mask, _ := s.Get("loss_mask").Ints(nil)
	logs, _ := s.Get("rollout_log_probs").Floats(nil)
	if len(mask) != length || len(logs) != length || len(tokens) < length {
		t.Fatalf("%s: %d tokens, %d mask, %d log-probs, length %d", id, len(tokens), len(mask), len(logs), length)
	}
	for i, m := range mask {
		n.Generated += int(m)
		if m == 0 != (logs[i] == 0) {
			t.Fatalf("%s: token %d has mask %d and log-prob %v", id, i, m, logs[i])
		}
	}
	n.Response += length
	n.Prompt += len(tokens) - length
	type span struct {
		name, id, parent string
		start            float64
		attrs            torchfile.Value
	}
	open := map[string]span{}
	phases := map[string]map[string]float64{} // by request span
	var prefix, cached float64
	version := s.Get("weight_versions").Len()
	requests := 0
	for _, e := range at(s, "trace", "events").All() {
		n.Events++
		name, ts := e.Get("name").Str(), num(t, e.Get("ts"))
		if ts > float64(st.End.UnixNano())/1e9+1e-6 && !strings.HasPrefix(name, "sglang_pd") {
			t.Errorf("%s: %s at %v, after the end of the step %v", id, name, ts, st.End)
		}
		sid, parent := e.Get("span_id").Str(), e.Get("parent_span_id").Str()
		if parent != "" {
			if _, ok := open[parent]; !ok {
				t.Errorf("%s: %s has a parent that is not open", id, name)
			}
		}
		switch e.Get("type").Str() {
		case "event":
			if name == "attempt_start" && at(e, "attrs", "reason").Str() == "engine_restart" {
				n.Attempts++
			}
		case "span_start":
			open[sid] = span{name, sid, parent, ts, e.Get("attrs")}
		case "span_end":
			b, ok := open[sid]
			if !ok || b.name != name || ts < b.start {
				t.Fatalf("%s: %s ends that did not begin so", id, name)
			}
			delete(open, sid)
			a := e.Get("attrs")
			for key, v := range a.Pairs() {
				if k := key.Str(); strings.HasPrefix(k, "pd_") {
					request := open[open[b.parent].parent].id
					if phases[request] == nil {
						phases[request] = map[string]float64{}
					}
					phases[request][k] = num(t, v)
				}
			}
			if strings.HasPrefix(name, "sglang_generate") {
				n.Requests++
				requests++
				prefix += num(t, a.Get("prompt_tokens"))
				cached += num(t, a.Get("cached_tokens"))
				checkRequest(t, id, a, phases[sid], ts-b.start)
			}
		}
	}
	n.OpenSpans += len(open)
	if requests != version {
		t.Errorf("%s: %d requests and %d weight versions", id, requests, version)
	}
	if num(t, at(s, "prefix_cache_info", "total_prompt_tokens")) != prefix || num(t, at(s, "prefix_cache_info", "cached_tokens")) != cached {
		t.Errorf("%s: prefix_cache_info does not add up", id)
	}
}

// checkRequest checks that the phases nest and that all fits into the request.
func checkRequest(t *testing.T, id string, a torchfile.Value, p map[string]float64, span float64) {
	t.Helper()
	e2e, queue := num(t, a.Get("e2e_latency")), num(t, a.Get("queue_time"))
	const eps = 1e-5 // a time of 1.8e9 s is only so exact
	if queue < 0 || queue > e2e || e2e > span+eps {
		t.Errorf("%s: queue %v, e2e %v, span %v", id, queue, e2e, span)
	}
	if num(t, a.Get("cached_tokens")) >= num(t, a.Get("prompt_tokens")) {
		t.Errorf("%s: all of the prompt was cached", id)
	}
	decode := e2e
	if p != nil {
		sum := func(keys ...string) (x float64) {
			for _, k := range keys {
				x += p["pd_"+k+"_duration"]
			}
			return x
		}
		decode = sum("decode_forward")
		for what, bad := range map[string]bool{
			"bootstrap_queue": math.Abs(sum("prefill_bootstrap_queue")-sum("prefill_bootstrap", "prefill_alloc_wait")) > 1e-9,
			"prealloc":        math.Abs(sum("decode_prealloc")-sum("decode_bootstrap", "decode_alloc_wait")) > 1e-9,
			"transfer queue":  sum("prefill_transfer_queue") > sum("prefill_forward"),
			"prefill":         sum("prefill_bootstrap_queue", "prefill_forward", "decode_forward")+queue > e2e+eps,
			"decode":          sum("decode_prealloc", "decode_transfer", "decode_forward")+queue > e2e+eps,
		} {
			if bad {
				t.Errorf("%s: %s does not fit: e2e %v queue %v %v", id, what, e2e, queue, p)
			}
		}
	}
	tokens := num(t, a.Get("completion_tokens"))
	if v, ok := a.Get("decode_throughput").Number(); ok {
		if p != nil && math.Abs(v*decode-(tokens-1)) > 1e-6*tokens || v*e2e < tokens-1-eps {
			t.Errorf("%s: %v tokens/s over %v s for %v tokens", id, v, decode, tokens)
		}
	} else if tokens > 1 {
		t.Errorf("%s: no throughput for %v tokens", id, tokens)
	}
}

func TestFaultsShow(t *testing.T) {
	long := Lengths{Median: 300, Sigma: 0.6, Max: 1000}
	run := func(o Options) Stats {
		o.Response = long
		_, st := written(t, o)
		return st
	}
	calm := run(Options{Samples: 64}).Duration()
	for _, c := range []struct {
		name string
		o    Options
		ok   func(Stats) bool
	}{
		{"slow engine", Options{Samples: 64, Faults: []Fault{{Name: slowEngine, Engine: -1}}}, func(s Stats) bool { return s.Duration() > 2*calm }},
		{"straggler", Options{Samples: 64, Faults: []Fault{{Name: straggler, Engine: -1}}}, func(s Stats) bool { return s.Duration() > 2*calm }},
		{"reward outage", Options{Samples: 64, Faults: []Fault{{Name: rewardOutage, For: time.Hour, Engine: -1}}}, func(s Stats) bool { return s.Duration() > time.Hour }},
		{"restart", Options{Samples: 64, Faults: []Fault{{Name: engineRestart, At: time.Second, For: time.Second, Engine: 1}}}, func(s Stats) bool { return s.Attempts > 4 && s.Discarded > 100 }},
		{"hanging tools", Options{Samples: 64, MultiTurn: 1, Faults: []Fault{{Name: toolTimeouts, Engine: -1}}}, func(s Stats) bool { return s.OpenSpans > 20 }},
		{"no tool hangs", Options{Samples: 64, MultiTurn: 1, ToolHangs: -1}, func(s Stats) bool { return s.OpenSpans == 0 }},
	} {
		if st := run(c.o); !c.ok(st) {
			t.Errorf("%s: %+v (without it %v)", c.name, st, calm)
		}
	}
}

// TestTheSameSeedGivesTheSameBytes also checks that another seed, step or kind gives others.
func TestTheSameSeedGivesTheSameBytes(t *testing.T) {
	o := steps()["restart"]
	first, _ := written(t, o)
	again, _ := written(t, o)
	if !bytes.Equal(first, again) {
		t.Fatal("two writes differ")
	}
	for name, change := range map[string]func(*Options){
		"seed": func(o *Options) { o.Seed++ }, "step": func(o *Options) { o.RolloutID++ }, "PD": func(o *Options) { o.PD = false },
	} {
		p := o
		change(&p)
		if other, _ := written(t, p); bytes.Equal(first, other) {
			t.Errorf("another %s gives the same bytes", name)
		}
	}
}

// TestCarriedSamplesContinue: they come first, began in the step before, and some were cut there.
func TestCarriedSamplesContinue(t *testing.T) {
	o := Options{Samples: 64, Partial: 0.25, RolloutID: 5, Response: Lengths{Median: 500, Sigma: 0.8, Max: 2000}}
	b, st := written(t, o)
	if st.Carried != 16 {
		t.Fatalf("carried over: %d", st.Carried)
	}
	aborted := 0
	for i, s := range load(t, b).Get("samples").All() {
		ev := at(s, "trace", "events")
		firstTS := num(t, ev.Index(0).Get("ts"))
		if before := firstTS < float64(st.Start.Unix()); before != (i < 16) {
			t.Errorf("sample %d begins at %v", i, firstTS)
		}
		for _, e := range ev.All() {
			if at(e, "attrs", "finish_reason").Str() == "abort" {
				aborted++
			}
		}
	}
	if aborted == 0 {
		t.Error("no request of the step before was aborted")
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	for name, o := range map[string]Options{
		"share": {MultiTurn: 1.5}, "NaN": {Partial: math.NaN()}, "samples": {Samples: -1}, "id": {RolloutID: -1}, "vocabulary": {Vocab: 7},
		"fault":    {Faults: []Fault{{Name: "rain"}}},
		"engine":   {Faults: []Fault{{Name: slowEngine, Engine: 99}}},
		"endless":  {Faults: []Fault{{Name: engineRestart}}},
		"transfer": {Faults: []Fault{{Name: transferSlow}}},
		"past":     {Faults: []Fault{{Name: slowEngine, At: -1}}},
	} {
		if _, err := Write(io.Discard, o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, k := range Faults() {
		f, err := ParseFault(k.Name + "@10s+1m0s:2")
		if err != nil || f.String() != k.Name+"@10s+1m0s:2" {
			t.Errorf("%s: %v, %v", k.Name, f, err)
		}
	}
	for _, bad := range []string{"", "slow_engine", "rain@1s", "slow_engine@x", "slow_engine@1s+x", "slow_engine@1s:x", "slow_engine@1s:-1"} {
		if f, err := ParseFault(bad); err == nil {
			t.Errorf("%q is read as %v", bad, f)
		}
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	r, err := NewRun(RunOptions{Step: Options{Samples: 32, Partial: 0.25, Response: Lengths{Median: 40, Sigma: 0.5, Max: 200}}, Eval: 2,
		Faults: map[int][]Fault{1: {{Name: slowEngine, Engine: -1}}}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var end time.Time
	err = r.WriteDir(dir, 3, func(path string, o Options, st Stats) error {
		if st.Start.Before(end) {
			t.Errorf("%s begins at %v, before %v", path, st.Start, end)
		}
		end = st.End
		names = append(names, filepath.Base(path))
		if slow := !o.Eval && o.RolloutID == 1; slow != (len(o.Faults) == 1) {
			t.Errorf("%s has faults %v", path, o.Faults)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(names, " "); got != "rollout_eval_0.pt rollout_0.pt rollout_1.pt rollout_eval_2.pt rollout_2.pt" {
		t.Error(got)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != len(names) {
		t.Errorf("%d files", len(left))
	}
	if _, err := NewRun(RunOptions{Faults: map[int][]Fault{0: {{Name: "rain"}}}}); err == nil {
		t.Error("a run with an unknown fault")
	}
}

// TestLive: a dump is not there before its step has ended.
func TestLive(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := NewRun(RunOptions{Step: Options{Samples: 16, Start: now, Response: Lengths{Median: 40, Sigma: 0.5, Max: 200}}})
	if err != nil {
		t.Fatal(err)
	}
	dumps := func() int {
		list, err := filepath.Glob(filepath.Join(dir, "rollout_*.pt"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	seen, waits := 0, 0
	clock := Clock{Now: func() time.Time { return now }, After: func(d time.Duration) <-chan time.Time {
		waits++
		if dumps() != seen {
			t.Errorf("%d dumps while step %d goes on", dumps(), seen)
		}
		now = now.Add(d/2 + time.Millisecond) // it wakes too early
		c := make(chan time.Time, 1)
		c <- now
		if seen == 3 {
			cancel()
			return nil
		}
		return c
	}}
	err = r.Live(ctx, dir, 0, clock, func(path string, o Options, st Stats) error {
		if seen++; now.Before(st.End) || dumps() != seen {
			t.Errorf("%s at %v: it ends at %v", path, now, st.End)
		}
		return nil
	})
	if left, _ := os.ReadDir(dir); err != nil || seen != 3 || len(left) != 3 || waits < 6 {
		t.Error(err, seen, left, waits)
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rollout_0.pt")
	o := Options{Samples: 32}
	if _, err := WriteFile(path, o); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(whole[:100], []byte("rollout_0/data.pkl")) {
		t.Error("the folder in the file is not named after it")
	}
	grown := filepath.Join(dir, "grow", "rollout_0.pt")
	if err := os.Mkdir(filepath.Dir(grown), 0o755); err != nil {
		t.Fatal(err)
	}
	sizes := 0
	_, err = WriteFileWith(grown, o, FileOptions{InPlace: true, Every: 1 << 18, Pause: func(n int64) error {
		fi, err := os.Stat(grown)
		if err != nil || fi.Size() != n {
			t.Errorf("at %d: %v, %v", n, fi, err)
		}
		if _, err := torchfile.Open(grown, nil); !errors.Is(err, torchfile.ErrIncomplete) && n < int64(len(whole)) {
			t.Errorf("half a file opens with %v", err)
		}
		sizes++
		return nil
	}})
	if err != nil || sizes < 3 {
		t.Fatal(err, sizes)
	}
	if b, _ := os.ReadFile(grown); !bytes.Equal(b, whole) {
		t.Error("written in place, the file is another one")
	}
	killed := errors.New("killed")
	stopAt := FileOptions{Every: 1 << 18, Pause: func(n int64) error {
		if n > 1<<19 {
			return killed
		}
		return nil
	}}
	if _, err := WriteFileWith(filepath.Join(dir, "never.pt"), o, stopAt); !errors.Is(err, killed) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("a write that failed left %v", left)
	}
	if _, err := WriteFile(filepath.Join(dir, "missing", "x.pt"), o); err == nil {
		t.Error("no error for a directory that does not exist")
	}
}

// shape writes the structure of a value: keys, kinds, and texts of a small vocabulary.
func shape(v torchfile.Value, depth int, b *strings.Builder) {
	switch v.Kind() {
	case torchfile.KindDict:
		b.WriteString("{")
		sep := ""
		for key, x := range v.Pairs() {
			b.WriteString(sep)
			sep = ", "
			k := key.Str()
			b.WriteString(k + ": ")
			switch k {
			case "name", "type", "status", "finish_reason", "reason", "phase", "tool":
				b.WriteString(x.Str())
			case "events":
				b.WriteString("[")
				for _, e := range x.All() {
					b.WriteString("\n    ")
					shape(e, depth+1, b)
				}
				b.WriteString("]")
			default:
				if depth == 0 {
					b.WriteString("\n  ")
				}
				shape(x, depth+1, b)
			}
		}
		b.WriteString("}")
	case torchfile.KindList:
		if v.Len() == 0 {
			b.WriteString("[]")
			return
		}
		b.WriteString("[" + fmt.Sprint(v.Index(0).Kind()) + "...]")
	default:
		fmt.Fprint(b, v.Kind())
	}
}

func TestStructure(t *testing.T) {
	var b strings.Builder
	o := Options{Samples: 8, PD: true, MultiTurn: 1, Partial: 1, RolloutID: 2, Response: Lengths{Median: 900, Sigma: 0.8, Max: 1500}, RewardDict: true, Speculative: true}
	whole, _ := written(t, o)
	root := load(t, whole)
	shape(root.Get("samples").Index(0), 0, &b)
	b.WriteString("\n")
	o.PD, o.Partial, o.Eval, o.RewardDict, o.Streaming = false, 0, true, false, true
	whole, _ = written(t, o)
	shape(load(t, whole).Get("samples").Index(5), 0, &b)
	b.WriteString("\n")
	golden := "testdata/structure.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the structure is another one; run with -update and look at the difference:\n%s", b.String())
	}
}

// TestKeysAreSlimes compares the fields with those of a dump that slime itself wrote.
func TestKeysAreSlimes(t *testing.T) {
	f, err := torchfile.Open("../../../torchfile/testdata/dumps/f02_head_pd_children.pt", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := f.Load(torchfile.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := written(t, Options{Samples: 8, PD: true, Response: Lengths{Median: 20}})
	ours, theirs := load(t, b).Get("samples").Index(0), d.Root().Get("samples").Index(0)
	keys := func(v torchfile.Value) (k []string) {
		for key := range v.Pairs() {
			k = append(k, key.Str())
		}
		return k
	}
	if !slices.Equal(keys(ours), keys(theirs)) {
		t.Errorf("sample: %v\nslime:  %v", keys(ours), keys(theirs))
	}
	events := func(v torchfile.Value) (k []string) {
		for _, e := range at(v, "trace", "events").All() {
			k = append(k, strings.Join(append(append(keys(e), e.Get("name").Str()), keys(e.Get("attrs"))...), " "))
		}
		return k
	}
	if a, b := strings.Join(events(ours), "\n"), strings.Join(events(theirs), "\n"); a != b {
		t.Errorf("events:\n%s\nslime:\n%s", a, b)
	}
}

// TestTorchLoads has torch itself count.
func TestTorchLoads(t *testing.T) {
	var python string
	for _, p := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(p, "-c", "import sys, importlib.util as u; sys.exit(u.find_spec('torch') is None)").Run() == nil {
			python = p
		}
	}
	if python == "" {
		why := "no python3 with torch: apt-get install -y --no-install-recommends python3-torch"
		if os.Getenv("ROLLSCOPE_TEST_STRICT") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	dir := t.TempDir()
	want := map[string]Stats{}
	for name, o := range steps() {
		st, err := WriteFile(filepath.Join(dir, name+".pt"), o)
		if err != nil {
			t.Fatal(err)
		}
		want[name] = st
	}
	cmd := exec.Command(python, "-c", `
import glob, json, os, sys, torch
all = {}
for p in glob.glob(sys.argv[1] + "/*.pt"):
    d = torch.load(p)
    s = d["samples"]
    n = {"Samples": len(s), "Events": 0, "Prompt": 0, "Response": 0, "Generated": 0, "RolloutID": d["rollout_id"]}
    for x in s:
        n["Events"] += len(x["trace"]["events"])
        n["Prompt"] += len(x["tokens"]) - x["response_length"]
        n["Response"] += len(x["rollout_log_probs"])
        n["Generated"] += sum(x["loss_mask"])
        assert {id(e["trace_id"]) for e in x["trace"]["events"]} == {id(x["trace"]["trace_id"])}
    all[os.path.basename(p)[:-3]] = n
print(json.dumps(all))`, dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("torch: %v", err)
	}
	var counted map[string]json.RawMessage
	if err := json.Unmarshal(out, &counted); err != nil {
		t.Fatal(err)
	}
	for name, st := range want {
		got := st
		if err := json.Unmarshal(counted[name], &got); err != nil {
			t.Fatal(err)
		}
		if got != st {
			t.Errorf("%s: torch counts %s\nStats: %+v", name, counted[name], st)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	for range b.N {
		st, err := Write(io.Discard, Bench(256))
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(st.Bytes)
	}
}
