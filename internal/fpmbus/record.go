package fpmbus

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// errRecord is the root of a line that is none of the records that are known.
var errRecord = errors.New("no record of forward passes or requests")

// errOther is a record that is valid and about something else.
var errOther = errors.New("a record of another kind")

// exported is a line of Dynamo's exporter.
type exported struct {
	Namespace string          `json:"namespace"`
	Component string          `json:"component"`
	Endpoint  string          `json:"endpoint"`
	Publisher *uint64         `json:"publisher_id"`
	Sequence  *uint64         `json:"sequence"`
	Published int64           `json:"published_at_ms"`
	Metrics   json.RawMessage `json:"metrics"`
}

// traced is a line of a trace file.
type traced struct {
	Event json.RawMessage `json:"event"`
	// Schema stands here when a sink writes the event without what is around it.
	Schema string `json:"schema"`
}

// event is what the two trace schemas have in common.
type event struct {
	Schema string `json:"schema"`
	Source struct {
		Namespace string          `json:"namespace"`
		Component string          `json:"component"`
		Endpoint  string          `json:"endpoint"`
		Producer  json.RawMessage `json:"producer_id"` // text, or a number
	} `json:"source"`
	Capture  string          `json:"capture_mode"`
	Observed int64           `json:"observed_at_unix_ms"`
	Time     int64           `json:"event_time_unix_ms"`
	FPM      json.RawMessage `json:"fpm"`
}

// parseExported reads a line of the exporter into a message without Source, Kind and Received.
func parseExported(line []byte) (Message, error) {
	var r exported
	if err := json.Unmarshal(line, &r); err != nil {
		return Message{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	if !isObject(r.Metrics) {
		return Message{}, fmt.Errorf("%w: it has no object named metrics", errRecord)
	}
	m := Message{Namespace: r.Namespace, Component: r.Component, Endpoint: r.Endpoint, DPRank: -1, Encoding: JSON, Payload: r.Metrics, Published: millis(r.Published)}
	if r.Publisher != nil {
		m.Publisher, m.HasPublisher = *r.Publisher, true
	}
	if r.Sequence != nil {
		m.Sequence, m.HasSequence = *r.Sequence, true
	}
	return m, nil
}

// parseTraced reads a line of a trace file likewise. The payload may be a part of the line.
func parseTraced(line []byte) (Message, error) {
	var t traced
	if err := json.Unmarshal(line, &t); err != nil {
		return Message{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	body := line
	if t.Schema == "" {
		if !isObject(t.Event) {
			return Message{}, fmt.Errorf("%w: it has neither a schema nor an object named event", errRecord)
		}
		body = t.Event
	}
	var e event
	if err := json.Unmarshal(body, &e); err != nil {
		return Message{}, fmt.Errorf("%w: its event: %w", errRecord, err)
	}
	m := Message{Namespace: e.Source.Namespace, Component: e.Source.Component, Endpoint: e.Source.Endpoint, DPRank: -1, Encoding: JSON}
	if p := strings.Trim(string(e.Source.Producer), `"`); p != "null" {
		m.Producer = p
	}
	switch e.Schema {
	case "dynamo.fpm.trace.v1":
		if !isObject(e.FPM) {
			return Message{}, fmt.Errorf("%w: its event has no object named fpm", errRecord)
		}
		m.Payload, m.Published = e.FPM, millis(e.Observed)
		m.Sampled = e.Capture != "full" && e.Capture != "all" // what it does not say is no proof of a loss
	case "dynamo.request.trace.v1":
		m.Record, m.Published = RequestTrace, millis(e.Time)
		m.Payload = body
	case "":
		return Message{}, fmt.Errorf("%w: its event has no schema", errRecord)
	default:
		return Message{}, fmt.Errorf("%w: schema %.60q", errOther, e.Schema)
	}
	return m, nil
}

func isObject(b json.RawMessage) bool { return len(b) > 0 && b[0] == '{' }

func millis(ms int64) time.Time {
	if ms <= 0 || ms > 1<<43 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
