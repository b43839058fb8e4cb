package logpush

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rollscope/rollscope/internal/event"
)

// lokiJSON reads {"streams": [{"stream": {labels}, "values": [["<ns>", "line", {metadata}], ...]}]}.
func lokiJSON(data []byte, p *parameters) ([]Entry, error) {
	var body struct {
		Streams []struct {
			Stream map[string]any      `json:"stream"`
			Values [][]json.RawMessage `json:"values"`
		} `json:"streams"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, fmt.Errorf("the body is no push request in JSON: %w", err)
	}
	if body.Streams == nil {
		return nil, fmt.Errorf("the body has no streams: it must be {\"streams\": [{\"stream\": {...}, \"values\": [[\"<ns>\", \"line\"]]}]}")
	}
	var out []Entry
	for i, s := range body.Streams {
		var labels []event.Field
		flatten(&labels, "", s.Stream, 0)
		for k, v := range s.Values {
			at := fmt.Sprintf("streams[%d].values[%d]", i, k)
			if len(v) < 2 || len(v) > 3 {
				return nil, fmt.Errorf("%s has %d elements, not [time, line] or [time, line, metadata]", at, len(v))
			}
			var stamp, line string
			if err := json.Unmarshal(v[0], &stamp); err != nil {
				return nil, fmt.Errorf("%s: the time must be a string of nanoseconds: %w", at, err)
			}
			if err := json.Unmarshal(v[1], &line); err != nil {
				return nil, fmt.Errorf("%s: the line must be a string: %w", at, err)
			}
			ns, err := strconv.ParseInt(stamp, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %q is no number of nanoseconds", at, stamp)
			}
			var meta map[string]any
			if len(v) == 3 {
				if err := json.Unmarshal(v[2], &meta); err != nil {
					return nil, fmt.Errorf("%s: metadata must be an object: %w", at, err)
				}
			}
			out = append(out, lokiEntry(labels, meta, ns, line, p))
		}
	}
	return out, nil
}

func lokiEntry(labels []event.Field, meta map[string]any, ns int64, line string, p *parameters) Entry {
	e := Entry{Time: ns, Line: line, Fields: make([]event.Field, 0, len(labels)+len(meta)+len(p.extra))}
	e.Fields = append(e.Fields, labels...)
	n := len(e.Fields)
	flatten(&e.Fields, "", meta, 0)
	e.Fields = append(e.Fields, p.extra...)
	e.settle(n)
	return e
}

// lokiProto reads logproto.PushRequest: streams=1 {labels=1 (text), entries=2 {timestamp=1 {seconds=1,
// nanos=2}, line=2, structuredMetadata=3 {name=1, value=2}}}.
func lokiProto(data []byte, p *parameters) ([]Entry, error) {
	var out []Entry
	err := messages(data, 1, func(stream []byte) error {
		var labels []event.Field
		var entries [][]byte
		err := fields(stream, func(num protowire.Number, b []byte, _ uint64) error {
			var err error
			switch num {
			case 1:
				labels, err = parseLabels(string(b))
			case 2:
				entries = append(entries, b)
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, b := range entries {
			var (
				ns   int64
				line string
				meta []event.Field
			)
			err := fields(b, func(num protowire.Number, b []byte, _ uint64) error {
				switch num {
				case 1:
					return fields(b, func(num protowire.Number, _ []byte, v uint64) error {
						switch num {
						case 1:
							ns += int64(v) * 1e9
						case 2:
							ns += int64(v)
						}
						return nil
					})
				case 2:
					line = text(b)
				case 3:
					var f event.Field
					if err := fields(b, func(num protowire.Number, b []byte, _ uint64) error {
						switch num {
						case 1:
							f.Name = text(b)
						case 2:
							f.Value = text(b)
						}
						return nil
					}); err != nil {
						return err
					}
					if f.Name != "" && f.Value != "" {
						meta = append(meta, f)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			e := lokiEntry(labels, nil, ns, line, &parameters{})
			e.Fields = append(append(e.Fields, meta...), p.extra...)
			out = append(out, e)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the body is no push request in protobuf: %w", err)
	}
	return out, nil
}

// messages calls fn with each embedded message of one field number.
func messages(data []byte, number protowire.Number, fn func([]byte) error) error {
	return fields(data, func(num protowire.Number, b []byte, _ uint64) error {
		if num != number {
			return nil
		}
		return fn(b)
	})
}

// fields calls fn with each field: b of those with a length, v of varints.
func fields(data []byte, fn func(num protowire.Number, b []byte, v uint64) error) error {
	for len(data) > 0 {
		num, typ, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		var err error
		switch typ {
		case protowire.BytesType:
			b, m := protowire.ConsumeBytes(data)
			if n = m; n >= 0 {
				err = fn(num, b, 0)
			}
		case protowire.VarintType:
			v, m := protowire.ConsumeVarint(data)
			if n = m; n >= 0 {
				err = fn(num, nil, v)
			}
		default:
			n = protowire.ConsumeFieldValue(num, typ, data)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// text copies bytes as UTF-8.
func text(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// parseLabels reads labels as Prometheus writes them: {a="b", c="d"}.
func parseLabels(s string) ([]event.Field, error) {
	rest := strings.TrimSpace(s)
	bad := func(what string) error { return fmt.Errorf("labels %q: %s", s, what) }
	if !strings.HasPrefix(rest, "{") {
		return nil, bad("must begin with {")
	}
	rest = rest[1:]
	var out []event.Field
	for {
		rest = strings.TrimLeft(rest, " ,")
		if rest == "}" {
			return out, nil
		}
		name, after, ok := strings.Cut(rest, "=")
		if !ok {
			return nil, bad("an equals sign is missing")
		}
		after = strings.TrimLeft(after, " ")
		quoted, err := strconv.QuotedPrefix(after)
		if err != nil {
			return nil, bad("a value must be quoted")
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, bad("a value is not quoted well")
		}
		if name = strings.TrimSpace(name); name != "" && value != "" {
			out = append(out, event.Field{Name: name, Value: text([]byte(value))})
		}
		rest = after[len(quoted):]
		if rest == "" {
			return nil, bad("must end with }")
		}
	}
}
