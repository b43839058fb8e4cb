package rollout

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/request"
)

// ev makes one event of a carrier: "start", "end" or "event", a name, a time, ids, attrs.
func ev(kind, name string, ts any, id, parent string, attrs ...any) pyDict {
	e := pyDict{"type", map[string]string{"start": "span_start", "end": "span_end", "event": "event"}[kind], "name", name, "ts", ts}
	if id != "" {
		e = append(e, "span_id", id)
	}
	if parent != "" {
		e = append(e, "parent_span_id", parent)
	}
	if len(attrs) > 0 {
		e = append(e, "attrs", pyDict(attrs))
	}
	return e
}

func traced(events ...any) pyDict {
	return pyDict{"index", 0, "trace", pyDict{"version", 1, "trace_id", "t", "events", pyList(events)}}
}

// values shows what a request knows, without its span.
func values(q request.Request) string {
	s := showRequest(&q)
	return strings.TrimSpace(s[strings.Index(s, " from ")+len(" from 0"):])
}

func TestRequests(t *testing.T) {
	for name, c := range map[string]struct {
		events pyList
		want   []string // name, then what is known
	}{
		"by name": {pyList{
			ev("start", "sglang_generate", 1.0, "a", ""), ev("end", "sglang_generate", 3.0, "a", "", "e2e_latency", 2.0, "prompt_tokens", 5),
			ev("start", "sglang_generate_stream", 4.0, "b", ""), ev("end", "sglang_generate_stream", 5.0, "b", ""),
		}, []string{"sglang_generate prompt=5 e2e=2", "sglang_generate_stream"}},
		"by timings": {pyList{
			ev("start", "my_agent_call", 1.0, "a", ""), ev("end", "my_agent_call", 3.0, "a", "", "queue_time", 0.5),
			ev("start", "tool_call", 1.0, "b", ""), ev("end", "tool_call", 3.0, "b", "", "response_length", 5),
		}, []string{"my_agent_call queue=0.5"}},
		"a copy around": {pyList{
			ev("start", "turn", 1.0, "w", ""), ev("start", "sglang_generate", 1.0, "a", "w"), ev("end", "sglang_generate", 3.0, "a", "", "e2e_latency", 2.0),
			ev("end", "turn", 3.0, "w", "", "e2e_latency", 2.0),
		}, []string{"sglang_generate e2e=2"}},
		"a copy within": {pyList{
			ev("start", "sglang_generate", 1.0, "a", ""), ev("start", "http_post", 1.0, "h", "a"), ev("end", "http_post", 2.0, "h", "", "e2e_latency", 1.0),
			ev("end", "sglang_generate", 3.0, "a", "", "e2e_latency", 2.0),
		}, []string{"sglang_generate e2e=2"}},
		"timings within timings": {pyList{
			ev("start", "call", 1.0, "a", ""), ev("start", "post", 1.0, "h", "a"), ev("end", "post", 2.0, "h", "", "e2e_latency", 1.0),
			ev("end", "call", 3.0, "a", "", "e2e_latency", 2.0),
		}, []string{"call e2e=2"}},
		"a viewer's lanes": {pyList{
			ev("start", "sglang_generate [P]", 1.0, "a", ""), ev("end", "sglang_generate [P]", 2.0, "a", "", "pd_prefill_forward_duration", 1.0),
		}, nil},
		"parts alone": {pyList{
			ev("start", "sglang_pd_prefill", 1.0, "a", ""), ev("end", "sglang_pd_prefill", 2.0, "a", "", "pd_prefill_forward_duration", 1.0),
		}, nil},
		"open": {pyList{ev("start", "sglang_generate", 1.0, "a", "", "sglang_request_id", "r")}, []string{"sglang_generate"}},
		"old names": {pyList{
			ev("start", "sglang_generate", 1.0, "a", ""),
			ev("end", "sglang_generate", 3.0, "a", "", "pd_bootstrap_duration", 0.1, "pd_alloc_waiting_duration", 0.2, "pd_prefill_alloc_wait_duration", 0.3),
		}, []string{"sglang_generate p.bootstrap=0.1 p.alloc_wait=0.3"}},
		"what cannot be": {pyList{
			ev("start", "sglang_generate", 1.0, "a", ""),
			ev("end", "sglang_generate", 3.0, "a", "", "queue_time", -1.5, "e2e_latency", true, "decode_throughput", "9", "pd_decode_forward_duration", math.Inf(1), "pd_decode_prealloc_duration", nil),
		}, []string{"sglang_generate queue=invalid -1.5 e2e=invalid 0 throughput=invalid 0 d.forward=invalid +Inf"}},
		"numpy scalars": {pyList{
			ev("start", "sglang_generate", 1.0, "a", ""), ev("end", "sglang_generate", 3.0, "a", "", "e2e_latency", npScalar("f4", "\x00\x00\x00\x3f"), "prompt_tokens", npScalar("i2", "\x07\x00")),
		}, []string{"sglang_generate prompt=7 e2e=0.5"}},
		"parts by parents": {pyList{
			ev("start", "sglang_generate", 1.0, "a", ""),
			ev("start", "sglang_generate", 1.0, "b", ""),
			ev("start", "sglang_pd_prefill", 1.0, "ap", "a"), ev("start", "sglang_pd_prefill_forward", 1.0, "apf", "ap"),
			ev("end", "sglang_pd_prefill_forward", 1.5, "apf", "", "pd_prefill_forward_duration", 0.5),
			ev("end", "sglang_pd_prefill", 1.5, "ap", "", "phase", "prefill", "duration_s", 0.5),
			ev("start", "sglang_pd_decode_forward", 1.0, "bd", "b"), ev("end", "sglang_pd_decode_forward", 2.0, "bd", "", "pd_decode_forward_duration", 1.0),
			ev("event", "sglang_pd_summary", 2.0, "", "b", "pd_transfer_total_mb", 3.5, "pd_prefill_retry_count", 0),
			ev("end", "sglang_generate", 3.0, "a", ""), ev("end", "sglang_generate", 3.0, "b", ""),
		}, []string{"sglang_generate p.forward=0.5", "sglang_generate d.forward=1 size=3.5 retries=0"}},
		"end attrs win, parts fill": {pyList{
			ev("start", "sglang_generate", 1.0, "a", ""),
			ev("start", "sglang_pd_decode_forward", 1.0, "d", "a"), ev("end", "sglang_pd_decode_forward", 2.0, "d", "", "pd_decode_forward_duration", 1.0, "pd_decode_transfer_duration", 0.25),
			ev("end", "sglang_generate", 3.0, "a", "", "pd_decode_forward_duration", 0.75),
		}, []string{"sglang_generate d.transfer=0.25 d.forward=0.75"}},
		"a parent that comes later": {pyList{
			ev("start", "sglang_pd_decode_forward", 1.0, "d", "a"), ev("end", "sglang_pd_decode_forward", 2.0, "d", "", "pd_decode_forward_duration", 1.0),
			ev("start", "sglang_generate", 1.0, "a", ""), ev("start", "sglang_generate", 1.0, "b", ""),
		}, []string{"sglang_generate d.forward=1", "sglang_generate"}},
		"a parent of which the end is left": {pyList{
			ev("start", "sglang_pd_decode_forward", 1.0, "d", "a"), ev("end", "sglang_pd_decode_forward", 2.0, "d", "", "pd_decode_forward_duration", 1.0),
			ev("end", "sglang_generate", 1.0, "a", "", "e2e_latency", 2.0),
		}, []string{"sglang_generate e2e=2 d.forward=1"}},
		"a parent that is lost": {pyList{ // one request is open: it can only be its
			ev("start", "sglang_generate", 1.0, "a", ""),
			ev("start", "sglang_pd_decode_forward", 1.0, "d", "lost"), ev("end", "sglang_pd_decode_forward", 2.0, "d", "", "pd_decode_forward_duration", 1.0),
			ev("event", "sglang_pd_summary", 2.0, "", "", "pd_transfer_speed_gb_s", 9.5),
		}, []string{"sglang_generate d.forward=1 speed=9.5"}},
		"a parent that is lost among two": {pyList{
			ev("start", "sglang_generate", 1.0, "a", ""), ev("start", "sglang_generate", 1.0, "b", ""),
			ev("start", "sglang_pd_decode_forward", 1.0, "d", "lost"), ev("end", "sglang_pd_decode_forward", 2.0, "d", "", "pd_decode_forward_duration", 1.0),
		}, []string{"sglang_generate", "sglang_generate"}},
		"a cycle of parents": {pyList{
			ev("start", "x", 1.0, "x", "y"), ev("start", "y", 1.0, "y", "x"),
			ev("start", "sglang_pd_decode_forward", 1.0, "d", "x"), ev("end", "sglang_pd_decode_forward", 2.0, "d", "", "pd_decode_forward_duration", 1.0),
			ev("end", "x", 1.0, "x", ""), ev("end", "y", 1.0, "y", ""),
		}, nil},
		"its own parent": {pyList{
			ev("start", "sglang_generate", 1.0, "a", "a"), ev("end", "sglang_generate", 1.0, "a", "a", "e2e_latency", 1.0),
		}, []string{"sglang_generate e2e=1"}},
		"the id twice": {pyList{
			ev("start", "sglang_generate", 1.0, "a", ""), ev("end", "sglang_generate", 2.0, "a", "", "e2e_latency", 1.0),
			ev("start", "sglang_generate", 3.0, "a", ""), ev("end", "sglang_generate", 5.0, "a", "", "e2e_latency", 2.0),
		}, []string{"sglang_generate e2e=1", "sglang_generate e2e=2"}},
		"an end twice": {pyList{
			ev("start", "sglang_generate", 1.0, "a", ""), ev("end", "sglang_generate", 2.0, "a", "", "e2e_latency", 1.0), ev("end", "sglang_generate", 5.0, "a", "", "e2e_latency", 2.0),
		}, []string{"sglang_generate e2e=1", "sglang_generate e2e=2"}}, // as slime counts ends
		"no id": {pyList{
			ev("start", "sglang_generate", 1.0, "", ""), ev("end", "sglang_generate", 2.0, "", "", "e2e_latency", 1.0),
		}, []string{"sglang_generate e2e=1"}},
		"attrs are no dict": {pyList{
			ev("start", "sglang_generate", 1.0, "a", ""), append(ev("end", "sglang_generate", 2.0, "a", ""), "attrs", pyList{1}),
		}, []string{"sglang_generate"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := readOne(t, traced(c.events...), Options{})
			var got []string
			for _, q := range s.Requests {
				got = append(got, strings.TrimSpace(q.Name+" "+values(q)))
				if !q.OwnStep {
					t.Error("not of its own step")
				}
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestRequestSpan(t *testing.T) {
	s := readOne(t, traced(
		append(ev("start", "sglang_generate", 1.0, "a", ""), "attempt", 2),
		append(ev("end", "sglang_generate", 3.5, "a", "", "finish_reason", pyDict{"type", "length", "length", 8}, "sglang_request_id", "r-1", "error_type", "ReadTimeout"), "attempt", 3),
		ev("end", "sglang_generate", 9.0, "lost", "", "finish_reason", "abort"),
		ev("start", "sglang_generate", 4.0, "b", "", "sglang_request_id", 17),
	), Options{})
	if len(s.Requests) != 3 {
		t.Fatalf("%d requests", len(s.Requests))
	}
	a, lost, open := s.Requests[0], s.Requests[1], s.Requests[2]
	if a.Start != 1 || a.End != 3.5 || a.Attempt != 2 || a.RID != "r-1" || a.FinishReason != "length" || a.ErrorType != "ReadTimeout" || a.SpanID != "a" {
		t.Errorf("%+v", a)
	}
	if !math.IsNaN(lost.Start) || lost.End != 9 || lost.SpanStart != -1 || lost.SpanEnd != 2 || lost.FinishReason != "abort" || lost.Profiled() {
		t.Errorf("%+v", lost)
	}
	if open.Start != 4 || !math.IsNaN(open.End) || open.SpanEnd != -1 || open.RID != "17" {
		t.Errorf("%+v", open)
	}
}

// TestRequestsAreNotSamples is case W08.
func TestRequestsAreNotSamples(t *testing.T) {
	got := show(dumpFiles(t)["w08_rollout_2"], Options{})
	if got.Err != "" || len(got.Samples) != 2 || len(got.Samples[0].Requests) != 3 || len(got.Samples[1].Requests) != 1 {
		t.Fatalf("%+v", got)
	}
	profiled := 0
	eachRequest(t, "w08_rollout_2", func(q *request.Request) {
		if q.Profiled() {
			profiled++
		} else if q.FinishReason != "abort" {
			t.Errorf("not profiled: %+v", q)
		}
	})
	if profiled != 3 {
		t.Errorf("%d profiled, want 3", profiled)
	}
}

// TestNegativeQueueTimes is case D06.
func TestNegativeQueueTimes(t *testing.T) {
	var got []string
	eachRequest(t, "d06_rollout_9", func(q *request.Request) {
		got = append(got, fmt.Sprint(showValue(q.QueueTime), " ", showValue(q.E2ELatency)))
	})
	if want := []string{"0.2 4", "0.4 6", "invalid -2.99 12"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestUnknownClasses is case D01.
func TestUnknownClasses(t *testing.T) {
	path := dumpFiles(t)["d01_rollout_7"]
	got := show(path, Options{})
	if !reflect.DeepEqual(got.Header.Opaque, []string{"acme_rewards.v2.Verdict"}) {
		t.Errorf("opaque %q", got.Header.Opaque)
	}
	n := 0.0
	eachSample(t, "d01_rollout_7", func(s *Sample) {
		n++
		verdict := s.Raw.Field("metadata").Get("verdict")
		score, ok := verdict.Attr("score").Float()
		if s.Status != StatusCompleted || verdict.Class().String() != "acme_rewards.v2.Verdict" || !ok || score != 0.5 {
			t.Errorf("status %v, verdict %v %v", s.Status, verdict.Class(), score)
		}
		if len(s.Requests) != 1 || s.Requests[0].E2ELatency != known(n+1) {
			t.Errorf("requests %+v", s.Requests)
		}
	})
	if n != 3 {
		t.Errorf("%v samples", n)
	}
}

// TestOddSamplesStopNothing is case D08.
func TestOddSamplesStopNothing(t *testing.T) {
	var e2e []float64
	var why []string
	skipped := 0
	var places []string
	eachSample(t, "d08_rollout_1", func(s *Sample) {
		skipped += s.Trace.Skipped
		if !s.Trace.Present {
			why = append(why, s.Trace.Why)
		}
		for _, q := range s.Requests {
			e2e = append(e2e, q.E2ELatency.V)
		}
		if s.Group >= 0 {
			places = append(places, fmt.Sprint(s.Ordinal, s.Group, s.Member, s.Part))
		}
	})
	if !reflect.DeepEqual(e2e, []float64{2, 3, 4}) || skipped != 3 {
		t.Errorf("e2e %v, %d events skipped", e2e, skipped)
	}
	if want := []string{"trace is None", "no events", "no events", "none of 3 events is usable"}; !reflect.DeepEqual(why, want) {
		t.Errorf("why %q, want %q", why, want)
	}
	if want := []string{"5 5 0 -1", "6 5 1 0"}; !reflect.DeepEqual(places, want) {
		t.Errorf("places %q, want %q", places, want)
	}
	for name, dataset := range map[string]string{"d08_eval_1": "math", "d08_list": ""} {
		n := 0
		eachSample(t, name, func(s *Sample) {
			n++
			if s.Dataset != dataset || !s.Trace.Present {
				t.Errorf("%s: dataset %q, trace %v", name, s.Dataset, s.Trace.Present)
			}
		})
		if n != 1 {
			t.Errorf("%s: %d samples", name, n)
		}
	}
}
