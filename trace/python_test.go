package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/torchfile"
)

const client = "../clients/python"

// python runs a script beside rollscope_trace.py and returns what it printed.
func python(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	exe, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("ROLLSCOPE_TEST_STRICT") != "" {
			t.Fatal("no python3")
		}
		t.Skip("no python3")
	}
	cmd := exec.Command(exe, append([]string{"-B"}, args...)...)
	cmd.Dir = client
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python3: %v\n%s", err, stderr.String())
	}
	if strings.Contains(strings.Join(args, " "), "unittest") && !strings.Contains(stderr.String(), "OK") {
		t.Fatalf("no tests ran:\n%s", stderr.String())
	}
	return out
}

func TestPythonModule(t *testing.T) {
	files, err := filepath.Glob(client + "/test_*.py")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	python(t, nil, "-W", "error::ResourceWarning", "-m", "unittest", "discover", "-p", "test_*.py")
}

// meta is what SGLang's meta_info has with prefill-decode disaggregation.
const meta = `{"prompt_tokens": 141, "completion_tokens": 49, "cached_tokens": 0, "queue_time": 0.0017, "e2e_latency": 0.66, "decode_throughput": 84.8,
"pd_prefill_bootstrap_queue_duration": 0.024, "pd_prefill_bootstrap_duration": 0.0029, "pd_prefill_alloc_wait_duration": 0.021,
"pd_prefill_forward_duration": 0.039, "pd_prefill_transfer_queue_duration": 0.018,
"pd_decode_prealloc_duration": 0.0103, "pd_decode_bootstrap_duration": 0.0034, "pd_decode_alloc_wait_duration": 0.0068,
"pd_decode_transfer_duration": 0.0174, "pd_decode_forward_duration": 0.577,
"pd_transfer_speed_gb_s": 20.07, "pd_transfer_total_mb": 9.9, "pd_prefill_retry_count": 0, "finish_reason": {"type": "stop", "matched": 2}, "id": "eb33"}`

// pattern lists an event's type, name, parent's name and the keys of its attributes.
func pattern(events []Event) []string {
	names := map[string]string{}
	var out []string
	for _, e := range events {
		if e.Type == SpanStart {
			names[e.SpanID] = e.Name
		}
		keys := []string{}
		for _, a := range e.Attrs {
			keys = append(keys, a.Key)
		}
		out = append(out, e.Type+" "+e.Name+" < "+names[e.ParentSpanID]+" "+strings.Join(keys, ","))
	}
	return out
}

// generation records one request in Go.
func generation(t *testing.T) *Carrier {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(meta), &m); err != nil {
		t.Fatal(err)
	}
	var tr Tracer
	c := NewCarrier(0, 0)
	_, s := tr.Start(context.Background(), c, "sglang_generate", A("max_new_tokens", 700))
	s.Update(SGLangAttrs(m)...)
	s.End()
	noErrors(t, &tr)
	return c
}

func TestSameEventsAsSlime(t *testing.T) {
	f, err := torchfile.Open("../torchfile/testdata/dumps/f02_head_pd_children.pt", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := f.Load(torchfile.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var slime, keys []string
	names := map[string]string{}
	in := false
	for _, s := range d.Root().Get("samples").All() {
		for _, e := range s.Get("trace").Get("events").All() {
			typ, name := e.Get("type").Str(), e.Get("name").Str()
			if typ == SpanStart {
				names[e.Get("span_id").Str()] = name
				in = in || name == "sglang_generate"
			}
			if !in {
				continue
			}
			attrs := []string{}
			for k := range e.Get("attrs").Pairs() {
				attrs = append(attrs, k.Str())
			}
			parent := names[e.Get("parent_span_id").Str()]
			if name == "sglang_generate" {
				parent = ""
			}
			slime = append(slime, typ+" "+name+" < "+parent+" "+strings.Join(attrs, ","))
			var all []string
			for k := range e.Pairs() {
				all = append(all, k.Str())
			}
			keys = append(keys, strings.Join(all, ","))
			if typ == SpanEnd && name == "sglang_generate" {
				break
			}
		}
		break
	}
	ours := generation(t).Events()
	equal(t, pattern(ours), slime)
	for i, e := range ours {
		if e.Type == SpanStart && e.Name == "sglang_generate" {
			e.ParentSpanID = "x" // in slime's it hangs below generate_and_rm
		}
		var order []string
		j, _ := e.MarshalJSON()
		dec := json.NewDecoder(bytes.NewReader(j))
		_, _ = dec.Token()
		for dec.More() {
			k, _ := dec.Token()
			var skip json.RawMessage
			if err := dec.Decode(&skip); err != nil {
				t.Fatal(err)
			}
			order = append(order, k.(string))
		}
		equal(t, strings.Join(order, ","), keys[i])
	}
}

func TestPythonRecordsTheSame(t *testing.T) {
	out := python(t, []byte(meta), "-c", `
import json, sys
from rollscope_trace import *
s = {"index": 0, "group_index": 0}
with trace_span(s, "sglang_generate", attrs={"max_new_tokens": 700}) as span:
    span.update(build_sglang_meta_trace_attrs(json.load(sys.stdin)))
assert stats()["errors"] == {}, stats()
print(json.dumps(s["trace"]))`)
	var c Carrier
	if err := json.Unmarshal(out, &c); err != nil {
		t.Fatal(err)
	}
	ours := generation(t)
	equal(t, pattern(c.Events()), pattern(ours.Events()))
	for i, e := range c.Events() {
		equal(t, e.Attrs, roundTrip(t, ours).Events()[i].Attrs)
	}
	// What Go writes again is what Python wrote.
	again, _ := json.Marshal(&c)
	var a, b any
	if json.Unmarshal(again, &a) != nil || json.Unmarshal(out, &b) != nil {
		t.Fatal("not JSON")
	}
	equal(t, a, b)
}

func roundTrip(t *testing.T, c *Carrier) *Carrier {
	t.Helper()
	j, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var out Carrier
	if err := json.Unmarshal(j, &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

func TestPythonContinuesACarrierOfGo(t *testing.T) {
	var tr Tracer
	c := NewCarrier(3, "g")
	tr.NextAttempt(context.Background(), c)
	ctx, s := tr.Start(context.Background(), c, "rollout")
	in, err := json.Marshal(map[string]any{"carrier": c, "payload": tr.Export(ctx, c)})
	if err != nil {
		t.Fatal(err)
	}
	out := python(t, in, "-c", `
import json, sys
from rollscope_trace import *
given = json.load(sys.stdin)
remote = import_trace(given["payload"])
with trace_span(remote, "reward"):
    with trace_span(remote, "sandbox") as s:
        s.set("ok", True)
sample = {"index": 3, "trace": given["carrier"]}
assert merge_trace(sample, remote) == 4
trace_event(sample, "after")
assert stats()["errors"] == {}, stats()
print(json.dumps({"remote": remote.carrier, "whole": sample["trace"]}))`)
	var back struct{ Remote, Whole *Carrier }
	if err := json.Unmarshal(out, &back); err != nil {
		t.Fatal(err)
	}
	equal(t, tr.Merge(c, back.Remote), 4)
	s.End()
	equal(t, tree(c), ">attempt_start >rollout rollout>reward reward>sandbox")
	equal(t, tree(back.Whole), ">attempt_start >rollout rollout>reward reward>sandbox >after")
	for _, e := range c.Events() {
		equal(t, []any{e.TraceID, e.SampleID, e.GroupID, e.Attempt}, []any{c.TraceID(), int64(3), "g", 1})
	}
}

func TestPythonSendsWhatGoReads(t *testing.T) {
	r := receive(t, nil)
	python(t, nil, "-c", `
import sys
from rollscope_trace import *
class Sample: pass
samples = []
for i in range(3):
    s = Sample(); s.index = i; s.group_index = 0; s.tokens = [1, 2]; s.loss_mask = [1, 0]; s.reward = float("nan"); s.label = "NaN"
    with trace_span(s, "generate"): pass
    samples.append(s)
sender = Sender(sys.argv[1], run="r", batch=2)
assert sender.send_samples(samples, 7) == 3
assert sender.close(60), sender.stats()
assert stats()["errors"] == {}, stats()`, r.URL)
	equal(t, len(r.batches), 2)
	missing, final := Missing(r.batches)
	equal(t, missing, 0)
	equal(t, final, true)
	got := view(t, []Batch{r.batches[1], r.batches[0]})
	for _, want := range []string{"{'rollout_id': 7, 'samples': [{'index': 0, ", "'reward': nan", "'label': 'NaN'", "'token_count': 2", "'effective_response_length': 1", "'type': 'span_end'"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %.400s", want, got)
		}
	}
}
