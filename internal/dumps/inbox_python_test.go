package dumps

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollscope/rollscope/internal/request"
	"github.com/rollscope/rollscope/internal/rollout"
	"github.com/rollscope/rollscope/torchfile"
)

// sendRollout records and posts a rollout, and prints what it recorded.
const sendRollout = `
import json, sys
import rollscope_trace as rt

class Sample:
    def __init__(self, index):
        self.index, self.group_index, self.status = index, index // 2, "completed"
        self.prompt, self.response, self.response_length = "question %d ü" % index, "answer %d" % index, 4
        self.tokens, self.loss_mask = list(range(10 + index)), [1, 1, 0, 1]
        self.reward = float("nan") if index == 3 else index / 2
        self.metadata = {"answer": "NaN", "n": 12345678901234567890}

samples = [Sample(i) for i in range(11)]
for sample in samples:
    with rt.trace_span(sample, "generate_and_rm"):
        with rt.trace_span(sample, "sglang_generate", attrs={"max_new_tokens": 64}) as span:
            span.update(rt.build_sglang_meta_trace_attrs({
                "prompt_tokens": 6 + sample.index, "completion_tokens": 4, "cached_tokens": 2, "queue_time": 0.25,
                "e2e_latency": 1.5, "decode_throughput": 80.0, "finish_reason": {"type": "stop"}, "id": "rid-%d" % sample.index,
                "pd_prefill_forward_duration": 0.5, "pd_decode_forward_duration": 0.75, "pd_transfer_total_mb": 9.0,
            }))
        rt.trace_event(sample, "scored", attrs={"score": sample.reward})
with rt.Sender(sys.argv[1], run="math/7b", batch=4, backoff=(0.001, 0.002)) as sender:
    sender.send_samples(samples[:5], rollout_id=7, final=False)
    sender.send_samples(samples[5:], rollout_id=7)
    sender.send_samples({"gsm8k": {"samples": samples[:1]}, "aime": {"samples": samples[1:2]}}, rollout_id=7, evaluation=True)
keep = ("index", "prompt", "response")
print(json.dumps({"stats": sender.stats(), "samples": [
    {**{k: vars(s)[k] for k in keep}, "events": [{k: v for k, v in e.items() if k != "attrs"} for e in s.trace["events"]]} for s in samples]}))
`

type pythonEvent struct {
	Type   string
	Name   string
	TS     float64
	SpanID string `json:"span_id"`
	Parent string `json:"parent_span_id"`
}

type pythonSample struct {
	Index    int64
	Prompt   string
	Response string
	Events   []pythonEvent
}

func TestInboxTakesWhatPythonSends(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("ROLLSCOPE_TEST_STRICT") != "" {
			t.Fatal("no python3")
		}
		t.Skip("no python3")
	}
	x := newBox(t, nil)
	var again, requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := requests.Add(1)
		if n == 1 { // before it is read
			w.Header().Set("Retry-After", "0.001")
			http.Error(w, "come again", http.StatusServiceUnavailable)
			return
		}
		receipt, err := x.Take(r.Context(), r.Body)
		if err != nil {
			t.Error(err)
			w.Header().Set("Retry-After", strconv.Itoa(int(refusal(err).RetryAfter.Seconds())))
			http.Error(w, err.Error(), refusal(err).Status())
			return
		}
		if receipt.Again {
			again.Add(1)
		}
		if n%3 == 0 {
			http.Error(w, "the answer is lost", http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	defer server.Close()
	cmd := exec.Command(python, "-B", "-c", sendRollout, server.URL)
	cmd.Dir = "../../clients/python"
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var sent struct {
		Stats struct {
			Samples int            `json:"sent_samples"`
			Dropped map[string]int `json:"dropped_samples"`
		}
		Samples []pythonSample
	}
	if err := json.Unmarshal(out, &sent); err != nil {
		t.Fatalf("%v\n%.1000s", err, out)
	}
	if sent.Stats.Samples != 13 || len(sent.Stats.Dropped) != 0 || again.Load() == 0 {
		t.Errorf("%+v, %d again\n%s", sent.Stats, again.Load(), stderr.String())
	}
	x.after(time.Minute)
	x.want("math%2F7b/rollout_eval_7.pt [0 1]", "math%2F7b/rollout_7.pt [0 1 2 3 4 5 6 7 8 9 10]")
	x.idle()

	f, err := torchfile.Open(x.dir+"/math%2F7b/rollout_7.pt", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	header, err := rollout.Read(f, rollout.Options{}, func(s *rollout.Sample) error {
		p := sent.Samples[s.Ordinal]
		i := float64(p.Index)
		if s.Index.N != p.Index || s.GroupIndex.N != p.Index/2 || s.Status != rollout.StatusCompleted || len(s.Problems) > 0 == (i != 3) {
			t.Errorf("sample %d: %+v", s.Ordinal, s)
		}
		// tokens and loss_mask were not sent, their number and sum were.
		if s.PromptTokens != (rollout.Int{N: 6 + p.Index, OK: true}) || s.EffectiveLength != (rollout.Int{N: 3, OK: true}) || s.Raw.Field("tokens").Exists() {
			t.Errorf("sample %d: %+v tokens of the prompt, %+v that count", s.Ordinal, s.PromptTokens, s.EffectiveLength)
		}
		if got := s.Raw.Field("prompt").Str(); got != p.Prompt {
			t.Errorf("sample %d: prompt %q, %q was sent", s.Ordinal, got, p.Prompt)
		}
		if got := s.Raw.Field("response").Str(); got != p.Response {
			t.Errorf("sample %d: response %q, %q was sent", s.Ordinal, got, p.Response)
		}
		if got := s.Raw.Field("metadata").Get("answer").Str(); got != "NaN" {
			t.Errorf("sample %d: answer %q", s.Ordinal, got)
		}
		if r, ok := s.Reward.Value.Known(); ok == (i == 3) || ok && r != i/2 || !ok && !math.IsNaN(s.Reward.Value.V) {
			t.Errorf("sample %d: reward %+v", s.Ordinal, s.Reward.Value)
		}
		if len(s.Trace.Events) != len(p.Events) || s.Trace.Skipped != 0 {
			t.Fatalf("sample %d: %d events of %d", s.Ordinal, len(s.Trace.Events), len(p.Events))
		}
		for k, e := range s.Trace.Events {
			want := p.Events[k]
			kind := map[string]rollout.EventKind{"span_start": rollout.SpanStart, "span_end": rollout.SpanEnd, "event": rollout.Point}[want.Type]
			if e.Name != want.Name || e.TS != want.TS || e.SpanID != want.SpanID || e.ParentID != want.Parent || e.Kind != kind {
				t.Errorf("sample %d: event %d is %+v, %+v was sent", s.Ordinal, k, e, want)
			}
		}
		if len(s.Requests) != 1 {
			t.Fatalf("sample %d: %d requests", s.Ordinal, len(s.Requests))
		}
		q := s.Requests[0]
		known := func(v request.Value) float64 { return v.V }
		if q.RID != "rid-"+strconv.Itoa(int(p.Index)) || q.FinishReason != "stop" || known(q.PromptTokens) != 6+i || known(q.CompletionTokens) != 4 ||
			known(q.QueueTime) != 0.25 || known(q.E2ELatency) != 1.5 || known(q.Phases[request.PrefillForward]) != 0.5 ||
			known(q.Phases[request.DecodeForward]) != 0.75 || known(q.TransferSize) != 9 {
			t.Errorf("sample %d: %+v", s.Ordinal, q)
		}
		return nil
	})
	if err != nil || header.Samples != 11 || header.RolloutID.N != 7 || header.Kind != rollout.Train {
		t.Errorf("%+v %v", header, err)
	}
	step, err := Read(t.Context(), x.dir+"/math%2F7b/rollout_eval_7.pt", ReadOptions{})
	if err != nil || step.Kind() != "eval" || step.Samples != 2 {
		t.Errorf("%+v %v", step, err)
	}
}
