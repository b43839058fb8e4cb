package fpm

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// Case F05: the relay is up and no engine ever emits.
func TestCaseF05(t *testing.T) {
	var states []struct {
		Name     string  `json:"name"`
		Up       float64 `json:"relay_up_s"`
		Messages uint64  `json:"messages"`
		Requests float64 `json:"engine_requests_delta"`
		Expect   string  `json:"expect"`
	}
	if err := json.Unmarshal(file(t, "testdata/F05/state.json"), &states); err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		up := time.Duration(s.Up * float64(time.Second))
		v := Judge(Evidence{Up: up, Window: up, Messages: s.Messages, Requests: s.Requests})
		want := map[string]Flow{"alarm": Blind, "waiting": Waiting}[s.Expect]
		if v.Flow != want || v.Alarm != (s.Expect == "alarm") || v.Why == "" {
			t.Errorf("%s: %+v, want %s", s.Name, v, want)
		}
	}
	// It is said within 30 s.
	for _, c := range []struct {
		up   time.Duration
		want Flow
	}{{5 * time.Second, Starting}, {10 * time.Second, Blind}, {29 * time.Second, Blind}} {
		if v := Judge(Evidence{Up: c.up, Window: c.up, Requests: 1}); v.Flow != c.want {
			t.Errorf("after %s: %+v, want %s", c.up, v, c.want)
		}
	}
}

func TestJudge(t *testing.T) {
	base := Evidence{Up: 2 * time.Minute, Window: time.Minute, Requests: 300}
	for _, c := range []struct {
		name  string
		edit  func(*Evidence)
		flow  Flow
		cause Cause
		alarm bool
		says  string
	}{
		{"socket missing", func(e *Evidence) { e.Socket = SocketMissing }, Blind, NoSocket, true, "--enable-forward-pass-metrics"},
		{"socket silent", func(e *Evidence) { e.Socket = SocketOpen }, Blind, SilentSocket, true, "only one rank"},
		{"socket not known", func(*Evidence) {}, Blind, SilentSocket, true, "find out"},
		{"undecodable", func(e *Evidence) { e.Refused, e.Reason = 9, Versioned }, Undecodable, CannotDecode, true, "update rollscope"},
		{"arrays", func(e *Evidence) { e.Refused, e.Reason = 9, Array }, Undecodable, CannotDecode, true, "encoding: positional"},
		{"another socket", func(e *Evidence) { e.Refused, e.Reason = 9, "bad_frames" }, Undecodable, CannotDecode, true, "3 frames"},
		{"garbage", func(e *Evidence) { e.Refused, e.Reason = 9, Malformed }, Undecodable, CannotDecode, true, "no forward-pass message"},
		{"another schema", func(e *Evidence) { e.Refused, e.Reason = 9, Type }, Undecodable, CannotDecode, true, "schema differs"},
		{"some garbage", func(e *Evidence) { e.Refused, e.Reason, e.Messages, e.Passes = 1, Malformed, 99, 99 }, PartlyReadable, CannotDecode, false, "1 of 100"},
		{"much garbage", func(e *Evidence) { e.Refused, e.Reason, e.Messages, e.Passes = 10, Malformed, 90, 90 }, PartlyReadable, CannotDecode, true, "10 of 100"},
		{"a runtime image without an emitter", func(e *Evidence) { e.Runtime = "nvcr.io/nvidia/ai-dynamo/sglang-runtime:1.2.0" }, Blind, RuntimeSilent, true, "vLLM or TensorRT-LLM"},
		{"its variants", func(e *Evidence) { e.Runtime = "sglang-runtime:v1.2.0-cuda13" }, Blind, RuntimeSilent, true, "later runtime"},
		{"an SGLang without an emitter", func(e *Evidence) { e.Runtime, e.Socket = "sglang 0.5.11", SocketMissing }, Blind, RuntimeSilent, true, "update SGLang"},
		{"a later one", func(e *Evidence) { e.Runtime, e.Socket = "sglang 0.5.12", SocketMissing }, Blind, NoSocket, true, ""},
		{"heartbeats only", func(e *Evidence) { e.Messages = 60 }, HeartbeatsOnly, NoDeviceTimer, true, "CUDA"},
		{"idle with heartbeats", func(e *Evidence) { e.Messages, e.Requests = 60, 0 }, Receiving, NoCause, false, ""},
		{"heartbeats, activity unknown", func(e *Evidence) { e.Messages, e.Requests = 60, -1 }, Receiving, NoCause, false, ""},
		{"passes", func(e *Evidence) { e.Messages, e.Passes = 3000, 2990 }, Receiving, NoCause, false, ""},
		{"idle, and nothing", func(e *Evidence) { e.Requests = 0 }, Waiting, NoCause, false, ""},
		{"idle, no socket", func(e *Evidence) { e.Requests, e.Socket = 0, SocketMissing }, Waiting, NoSocket, false, ""},
		{"activity unknown", func(e *Evidence) { e.Requests = -1 }, Unheard, ActivityHidden, false, "scrape the engine"},
		{"activity unknown, no socket", func(e *Evidence) { e.Requests, e.Socket = -1, SocketMissing }, Unheard, NoSocket, false, ""},
		{"just up", func(e *Evidence) { e.Up = time.Second }, Starting, NoCause, false, ""},
	} {
		e := base
		c.edit(&e)
		v := Judge(e)
		if v.Flow != c.flow || v.Cause != c.cause || v.Alarm != c.alarm || v.Why == "" || !strings.Contains(v.Why+" "+v.Do, c.says) {
			t.Errorf("%s: %+v", c.name, v)
		}
		if v.Alarm && v.Do == "" {
			t.Errorf("%s: an alarm without what to do: %+v", c.name, v)
		}
	}
}

// What a tracker counted of a source is the evidence, from one time to another.
func TestEvidenceOfASource(t *testing.T) {
	tr := NewTracker(Options{MaxRanks: 1})
	garbage := new(Decoder).Decode([]byte{0xc1}, new(Pass))
	tr.Refuse(t0, "s", garbage)
	tr.Observe(t0, Origin{Source: "s"}, beat("1", 0, 0))
	before := tr.Source("s")
	tr.Refuse(t0+1, "s", garbage)
	for range 2 {
		tr.Refuse(t0+2, "s", new(Decoder).Decode(nil, new(Pass)))
	}
	tr.Refuse(t0+3, "s", errors.New("of no kind"))
	tr.Observe(t0, Origin{Source: "s"}, beat("1", 0, 1))
	tr.Observe(t0, Origin{Source: "s"}, busyPass("1", 0, 2, 0.01, 1))
	tr.Observe(t0, Origin{Source: "s"}, busyPass("2", 0, 0, 0.01, 1)) // one rank too many
	want := Evidence{Messages: 3, Passes: 2, Refused: 4, Reason: Empty, Requests: -1}
	if got := tr.Source("s").Since(before); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := tr.Source("s").Since(tr.Source("s")); got != (Evidence{Requests: -1}) {
		t.Errorf("%+v", got)
	}
	if s := tr.Source("s"); s.LastError != "of no kind" || s.LastBad != t0+3 || s.Last != t0 {
		t.Errorf("%+v", s)
	}
	if s := tr.Source("other"); s.Messages != 0 || s.Source != "other" {
		t.Errorf("%+v", s)
	}
}

func number(v float64) *float64 { return &v }

// Case F07: requests of a decode engine that wait for their KV cache are seen, and when messages and
// metrics of one queue differ for long it is said.
func TestCaseF07(t *testing.T) {
	q := ScrapedQueue(Decode, Scraped{Waiting: number(0), Prealloc: number(12), Transfer: number(7), Bootstrap: number(99)})
	if q.Requests != 19 || !q.Known || len(q.Parts) != 3 || q.Parts[0] != (Part{"prealloc", 12, true, true}) || q.Parts[1] != (Part{"transfer", 7, true, true}) || q.Parts[2] != (Part{"waiting", 0, true, false}) {
		t.Errorf("decode: %+v", q)
	}
	if q := ScrapedQueue(Decode, Scraped{Waiting: number(3)}); q.Requests != 3 || !q.Known || q.Parts[0].Known || q.Parts[1].Known {
		t.Errorf("an engine without those series: %+v", q)
	}
	if q := ScrapedQueue(Decode, Scraped{}); q.Known {
		t.Errorf("no series: %+v", q)
	}
	if q := ScrapedQueue(Prefill, Scraped{Waiting: number(1), Bootstrap: number(4)}); q.Requests != 5 {
		t.Errorf("prefill: %+v", q)
	}
	if q := ScrapedQueue(Unified, Scraped{Waiting: number(2), Prealloc: number(5)}); q.Requests != 2 || len(q.Parts) != 1 {
		t.Errorf("unified: %+v", q)
	}
	queued := Queued{PrefillRequests: 5, DecodeRequests: 19}
	for role, want := range map[Role]float64{Unified: 24, Prefill: 5, Decode: 19, "": 24} {
		if q := PassQueue(role, queued); q.Requests != want || !q.Known {
			t.Errorf("%q: %+v, want %g", role, q, want)
		}
	}

	// The decode engine's own metric of waiting requests says 0: no difference, since messages do not count those.
	var w QueueWatch
	scraped := ScrapedQueue(Decode, Scraped{Waiting: number(0), Prealloc: number(12), Transfer: number(7)})
	for i := range int64(100) {
		if d, ok := w.Compare(t0+i*second, Decode, PassQueue(Decode, queued), scraped); ok {
			t.Fatalf("%+v", d)
		}
	}
	// An emitter that reads the wrong queue is found out after 30 s, not before.
	found := int64(-1)
	for i := range int64(60) {
		d, ok := w.Compare(t0+(100+i)*second, Decode, PassQueue(Decode, Queued{}), scraped)
		if ok && found < 0 {
			found = i
			if d.Passes != 0 || d.Scraped != 19 || d.For != 30*time.Second || !strings.Contains(d.Reason, "prealloc + transfer") || !strings.Contains(d.Reason, "another queue") {
				t.Errorf("%+v", d)
			}
		}
	}
	if found != 30 {
		t.Errorf("found after %d s", found)
	}
	// A short difference is of when each was read.
	w = QueueWatch{}
	for i := range int64(200) {
		n := uint64(19)
		if i%20 < 10 {
			n = 0
		}
		if d, ok := w.Compare(t0+i*second, Decode, PassQueue(Decode, Queued{DecodeRequests: n}), scraped); ok {
			t.Fatalf("%+v", d)
		}
	}
	// Nor is a small one worth a word.
	for _, n := range []uint64{17, 21, 15} {
		w = QueueWatch{}
		for i := range int64(100) {
			if d, ok := w.Compare(t0+i*second, Decode, PassQueue(Decode, Queued{DecodeRequests: n}), scraped); ok {
				t.Fatalf("%+v", d)
			}
		}
	}
	// Nothing is compared with what is unknown.
	for i := range int64(100) {
		if d, ok := w.Compare(t0+i*second, Decode, PassQueue(Decode, Queued{}), ScrapedQueue(Decode, Scraped{Prealloc: number(50)})); ok {
			t.Fatalf("%+v", d)
		}
	}
}
