package otlp

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
)

// signalKind is what a request carries.
type signalKind uint8

const (
	traces signalKind = iota
	logs
	metrics
	profiles
)

func (k signalKind) String() string {
	return [...]string{"traces", "logs", "metrics", "profiles"}[k]
}

// outcome is how a request that was taken went.
type outcome struct {
	rejected int
	message  string
}

// protobuf is ExportTraceServiceResponse or ExportLogsServiceResponse, whose partial_success have the
// same numbers: rejected = 1, error_message = 2.
func (o outcome) protobuf() []byte {
	if o.rejected == 0 && o.message == "" {
		return nil
	}
	var p []byte
	if o.rejected > 0 {
		p = protowire.AppendTag(p, 1, protowire.VarintType)
		p = protowire.AppendVarint(p, uint64(o.rejected))
	}
	if o.message != "" {
		p = protowire.AppendTag(p, 2, protowire.BytesType)
		p = protowire.AppendString(p, o.message)
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), p)
}

// json is the same in OTLP/JSON.
func (o outcome) json(k signalKind) []byte {
	if o.rejected == 0 && o.message == "" {
		return []byte("{}")
	}
	p := map[string]string{}
	if o.rejected > 0 {
		name := "rejectedSpans"
		if k == logs {
			name = "rejectedLogRecords"
		}
		p[name] = strconv.Itoa(o.rejected)
	}
	if o.message != "" {
		p["errorMessage"] = o.message
	}
	b, err := json.Marshal(map[string]any{"partialSuccess": p})
	if err != nil {
		return []byte("{}") // a map of strings has an encoding
	}
	return b
}

// code is the gRPC status of a refusal.
func (r *Refusal) code() codes.Code {
	switch r.Verdict {
	case Busy, TooBig:
		return codes.ResourceExhausted
	case Down:
		return codes.Unavailable
	case Denied:
		return codes.Unauthenticated
	case Unknown:
		return codes.Unimplemented
	}
	return codes.InvalidArgument
}

// status is the HTTP status of a refusal.
func (r *Refusal) status() int {
	switch r.Verdict {
	case Busy:
		return http.StatusTooManyRequests
	case Down:
		return http.StatusServiceUnavailable
	case Denied:
		return http.StatusUnauthorized
	case TooBig:
		return http.StatusRequestEntityTooLarge
	case Unknown:
		return http.StatusNotFound
	}
	return http.StatusBadRequest
}

const retryInfoType = "type.googleapis.com/google.rpc.RetryInfo"

// statusProtobuf is google.rpc.Status: code = 1, message = 2, details = 3 (Any: type_url = 1, value = 2).
// RetryInfo holds retry_delay = 1, a Duration of seconds = 1 and nanos = 2.
func (r *Refusal) statusProtobuf() []byte {
	b := protowire.AppendTag(nil, 1, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(r.code()))
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendString(b, r.Message)
	if after := r.retry(); after > 0 {
		var d []byte
		if s := after / time.Second; s > 0 {
			d = protowire.AppendTag(d, 1, protowire.VarintType)
			d = protowire.AppendVarint(d, uint64(s))
		}
		if ns := after % time.Second; ns > 0 {
			d = protowire.AppendTag(d, 2, protowire.VarintType)
			d = protowire.AppendVarint(d, uint64(ns))
		}
		info := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), d)
		anyMsg := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), retryInfoType)
		anyMsg = protowire.AppendBytes(protowire.AppendTag(anyMsg, 2, protowire.BytesType), info)
		b = protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), anyMsg)
	}
	return b
}

// statusJSON is google.rpc.Status in JSON.
func (r *Refusal) statusJSON() []byte {
	s := struct {
		Code    int              `json:"code"`
		Message string           `json:"message"`
		Details []map[string]any `json:"details,omitempty"`
	}{Code: int(r.code()), Message: r.Message}
	if after := r.retry(); after > 0 {
		s.Details = []map[string]any{{"@type": retryInfoType, "retryDelay": strconv.FormatFloat(after.Seconds(), 'f', -1, 64) + "s"}}
	}
	b, err := json.Marshal(s)
	if err != nil {
		return []byte("{}") // strings and numbers have an encoding
	}
	return b
}
