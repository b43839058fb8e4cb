package api

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/rollscope/rollscope/internal/tracestore"
)

// doctorTraces is a store of traces in which one process of two sends.
type doctorTraces struct{ fakeTraces }

func (doctorTraces) Senders(context.Context, int64, int64) ([]tracestore.Sender, error) {
	return []tracestore.Sender{{Service: "sglang", Engine: "10.0.0.1:30000", Process: "a 1", Spans: 4}, {Service: "sglang", Process: "a 2", Spans: 1}}, nil
}

// doctorEvents is a receiver that listens on one of its sockets.
type doctorEvents struct{ Events }

func (doctorEvents) Status() EventsStatus {
	return EventsStatus{Sources: []EventSource{
		{Name: "127.0.0.1:4317", Kind: DoorKind, State: "listening otlp_grpc"},
		{Name: "otlp_http", Kind: DoorKind, State: "off", Error: "port 4318 is taken"},
		{Name: "10.0.0.1", Kind: "otlp_grpc", State: "ok", Count: 5},
	}}
}
func (doctorEvents) Push() *PushHandlers { return &PushHandlers{} }

func TestDoctorTracing(t *testing.T) {
	a := newAPI(t, withTraces(fakeTraces{}), func(o *Options) {
		o.Traces = doctorTraces{o.Traces.(fakeTraces)}
		o.Drops = func() []Drop {
			return []Drop{{Source: "otlp", Reason: "base64_id", Count: 7}, {Source: "logs", Reason: "x", Count: 1}}
		}
	})
	a.Events = doctorEvents{} // its paths are not of this test
	answer := decode[struct{ Data TracingReport }](t, ask(a, "GET", ours+"/doctor/tracing?"+url.Values{"from": {"now-1h"}}.Encode(), ""))
	if l := answer.Data.Looked; l.Spans != 6 || l.Services != 2 || l.Engines != 6 || l.Traces != 2 {
		t.Errorf("looked at %+v", l)
	}
	found := map[string]Finding{}
	for _, f := range answer.Data.Findings {
		found[f.Code] = f
		if f.What == "" || len(f.Do) == 0 {
			t.Errorf("%s says neither what nor what to do: %+v", f.Code, f)
		}
	}
	for code, word := range map[string]string{
		"some_silent":        "10.0.0.2:30000",   // four busy engines that send nothing; the idle one is none of them
		"receiver_half":      "4318 is taken",    // why a socket is not there
		"rejected_base64_id": "is 7",             // what was refused
		"service_name":       "2 processes",      // under one name
		"attributes_dropped": "1 spans",          // the sender's own limit
		"orphans":            "placeholder",      // parents that nobody sent
		"no_engine_spans":    "50 % of the trac", // of the two that were looked at
	} {
		f, ok := found[code]
		if !ok {
			t.Errorf("%s was not found; found are %v", code, found)
		} else if !strings.Contains(f.Subject+f.What+strings.Join(f.Evidence, " "), word) {
			t.Errorf("%s does not say %q: %+v", code, word, f)
		}
	}
	if f := found["some_silent"]; strings.Contains(f.Subject, "10.0.0.6") {
		t.Errorf("an idle engine is no silent one: %s", f.Subject)
	}
}
