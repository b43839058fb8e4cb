package logpush

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/rollscope/rollscope/internal/event"
)

// Bounds of what one pushed object may hold.
const (
	maxLine   = 1 << 20
	maxFields = 1000
	maxDepth  = 16
)

// flatten makes fields of an object: nested ones with dots, lists as JSON text. Names are sorted.
func flatten(out *[]event.Field, prefix string, m map[string]any, depth int) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if len(*out) >= maxFields {
			return
		}
		name := prefix + k
		switch v := m[k].(type) {
		case nil:
		case string:
			add(out, name, v)
		case bool:
			add(out, name, strconv.FormatBool(v))
		case json.Number:
			add(out, name, v.String())
		case float64:
			add(out, name, strconv.FormatFloat(v, 'g', -1, 64))
		case map[string]any:
			if depth+1 >= maxDepth {
				b, _ := json.Marshal(v) // it came out of JSON
				add(out, name, string(b))
				continue
			}
			flatten(out, name+".", v, depth+1)
		default:
			b, _ := json.Marshal(v) // it came out of JSON
			add(out, name, string(b))
		}
	}
}

func add(out *[]event.Field, name, value string) {
	if name != "" && value != "" {
		*out = append(*out, event.Field{Name: name, Value: value})
	}
}

// object reads one JSON object as fields; numbers keep all their digits.
func object(line []byte) ([]event.Field, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		return nil, fmt.Errorf("is no JSON object: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("has something after its object: one object a line")
	}
	out := make([]event.Field, 0, len(m))
	flatten(&out, "", m, 0)
	return out, nil
}

// badLine is a line that is left out; the others of its request are kept.
type badLine struct {
	number int // from 1
	reason string
	err    error
}

func (b *badLine) Error() string { return fmt.Sprintf("line %d %s", b.number, b.err) }

// jsonLines reads an object a line.
func jsonLines(data []byte, p *parameters) (out []Entry, bad []*badLine) {
	n := 0
	for line := range bytes.Lines(data) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		e, b := objectEntry(line, p, []string{"_time", "time", "timestamp", "@timestamp"})
		if b != nil {
			b.number = n
			bad = append(bad, b)
			continue
		}
		out = append(out, e)
	}
	return out, bad
}

func objectEntry(line []byte, p *parameters, times []string) (Entry, *badLine) {
	if len(line) > maxLine {
		return Entry{}, &badLine{reason: "too_long", err: errTooLong}
	}
	fields, err := object(line)
	if err != nil {
		return Entry{}, &badLine{reason: "no_object", err: err}
	}
	e, err := p.entry(fields, times, []string{"_msg", "message", "msg", "log", "body"})
	if err != nil {
		return Entry{}, &badLine{reason: "bad_time", err: err}
	}
	if e.Line == "" && len(e.Fields) == 0 {
		return Entry{}, &badLine{reason: "empty", err: errors.New("says nothing")}
	}
	return e, nil
}

// bulk reads Elasticsearch's bulk format: a line of action, a line of document. ids tells what each action
// was called, for the answer; bad[i].number is the document's place, from 1.
func bulk(data []byte, p *parameters) (out []Entry, actions []string, bad []*badLine, err error) {
	var action string
	n := 0
	for line := range bytes.Lines(data) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if action == "" {
			var a map[string]json.RawMessage
			if err := json.Unmarshal(line, &a); err != nil || len(a) != 1 {
				return nil, nil, nil, fmt.Errorf("line %d is no action: it must be {\"create\": {...}} or {\"index\": {...}}", n)
			}
			for action = range a {
			}
			if action != "create" && action != "index" {
				return nil, nil, nil, fmt.Errorf("line %d: the action %q is not possible here: rows are only added (create, index)", n, action)
			}
			continue
		}
		actions = append(actions, action)
		action = ""
		e, b := objectEntry(line, p, []string{"@timestamp", "_time", "timestamp", "time"})
		if b != nil {
			b.number = len(actions)
			bad = append(bad, b)
			continue
		}
		out = append(out, e)
	}
	if action != "" {
		return nil, nil, nil, fmt.Errorf("line %d: a document is missing after the action", n)
	}
	return out, actions, bad, nil
}
