// Package otlp takes spans and log records in over OTLP and hands them on to collectors: gRPC and HTTP,
// protobuf and JSON, with limits, back-pressure and partial success. Its entry points are [NewReceiver]
// and [NewForwarder].
//
// Bodies stay the bytes that came over the wire; docs/decisions/0004-otlp-wire-bytes.md says why.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollscope/rollscope/internal/span"
)

// Sink takes what was received. Its methods are called by many goroutines at once. What they are given
// aliases buffers of the receiver and is only good until they return.
//
// An error means that nothing of the call was taken and the sender is to be told so: a [Refusal] says
// whether it may try again and when; any other error counts as "not now".
type Sink interface {
	// Traces takes the spans of one request. rejected of them were not taken, for the reason in message;
	// sending those again would not help.
	Traces(ctx context.Context, scopes []span.Scope) (rejected int, message string, err error)
	// Logs takes the log records of one request, likewise.
	Logs(ctx context.Context, records []LogRecord) (rejected int, message string, err error)
}

// Verdict is how a refused sender should go on.
type Verdict uint8

// Verdicts, with what the two transports make of them.
const (
	Busy    Verdict = iota // too much at once, try again: RESOURCE_EXHAUSTED with RetryInfo, 429
	Down                   // cannot be stored now, try again: UNAVAILABLE with RetryInfo, 503
	Invalid                // never as it is: INVALID_ARGUMENT, 400
	Denied                 // the sender may not: UNAUTHENTICATED, 401
	TooBig                 // never as it is: RESOURCE_EXHAUSTED without RetryInfo, 413
	Unknown                // there is no such thing here: UNIMPLEMENTED, 404 or 415
)

// Refusal is the error by which a whole request is not taken.
type Refusal struct {
	Verdict Verdict
	Reason  string        // a stable word for counters: "busy", "store_down", ...
	Message string        // what, where, and what to do
	After   time.Duration // of Busy and Down: when to try again; 0 means one second
}

func (r *Refusal) Error() string { return r.Message }

// retry is when the sender may try again, 0 for never.
func (r *Refusal) retry() time.Duration {
	if r.Verdict != Busy && r.Verdict != Down {
		return 0
	}
	if r.After <= 0 {
		return time.Second
	}
	return r.After
}

// asRefusal turns what a sink returned into a refusal.
func asRefusal(err error) *Refusal {
	var r *Refusal
	switch {
	case errors.As(err, &r):
		return r
	case errors.Is(err, context.Canceled):
		return &Refusal{Verdict: Down, Reason: "canceled", Message: "the request was given up before it was taken: " + err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		return &Refusal{Verdict: Busy, Reason: "busy", Message: "the request was not taken in time: " + err.Error()}
	}
	return &Refusal{Verdict: Down, Reason: "sink_failed", Message: err.Error()}
}

// Limits bound what a sender can make us do. Zero fields take the defaults of [DefaultLimits].
type Limits struct {
	Body       int           // bytes of a request as it comes over the wire
	Expanded   int           // bytes of a request after decompression
	Spans      int           // spans or log records of a request
	Depth      int           // nesting of an attribute's value, and of JSON
	Concurrent int           // requests that are worked on at once; others wait
	Waiting    int           // requests that are read or wait at once, the above included; more are refused
	Wait       time.Duration // how long a request waits for its turn before it is refused
	Read       time.Duration // how long the body may take to arrive
	Conns      int           // connections of each listener; more wait in the kernel
}

// DefaultLimits are meant for one machine that also does other things.
func DefaultLimits() Limits {
	return Limits{
		Body: 16 << 20, Expanded: 64 << 20, Spans: 200_000, Depth: 32,
		Concurrent: 16, Waiting: 256, Wait: 2 * time.Second, Read: 30 * time.Second, Conns: 1024,
	}
}

func (l Limits) withDefaults() (Limits, error) {
	d := DefaultLimits()
	for _, f := range []struct {
		name string
		v    *int
		d    int
	}{
		{"Body", &l.Body, d.Body}, {"Expanded", &l.Expanded, d.Expanded}, {"Spans", &l.Spans, d.Spans}, {"Depth", &l.Depth, d.Depth},
		{"Concurrent", &l.Concurrent, d.Concurrent}, {"Waiting", &l.Waiting, d.Waiting}, {"Conns", &l.Conns, d.Conns},
	} {
		if *f.v < 0 {
			return l, fmt.Errorf("otlp: limit %s is %d, it must be positive", f.name, *f.v)
		}
		if *f.v == 0 {
			*f.v = f.d
		}
	}
	if l.Wait <= 0 {
		l.Wait = d.Wait
	}
	if l.Read <= 0 {
		l.Read = d.Read
	}
	l.Waiting = max(l.Waiting, l.Concurrent)
	l.Expanded = max(l.Expanded, l.Body)
	return l, nil
}

// Drop counts what was not kept.
type Drop struct {
	Source, Reason string
	Count          int64
}

// Source is one sender as the receiver knows it: a host by one transport.
type Source struct {
	Name     string // host, without its port
	Kind     string // "otlp_grpc", "otlp_http"
	Agent    string // user agent of the last request
	Last     time.Time
	Requests int64
	Spans    int64 // taken
	Logs     int64 // taken
	Rejected int64 // spans and log records, those of refused requests not included
	Refused  int64 // requests
	Error    string
	ErrorAt  time.Time
}
