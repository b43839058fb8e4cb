package otlp

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// jsonLogs is ExportLogsServiceRequest in OTLP/JSON. Unknown keys are skipped, numbers may be texts.
type jsonLogs struct {
	ResourceLogs []struct {
		Resource struct {
			Attributes []jsonAttr `json:"attributes"`
		} `json:"resource"`
		ScopeLogs []struct {
			Scope struct {
				Name       string     `json:"name"`
				Version    string     `json:"version"`
				Attributes []jsonAttr `json:"attributes"`
			} `json:"scope"`
			LogRecords []jsonRecord `json:"logRecords"`
		} `json:"scopeLogs"`
	} `json:"resourceLogs"`
}

type jsonRecord struct {
	Time         jsonUint   `json:"timeUnixNano"`
	Observed     jsonUint   `json:"observedTimeUnixNano"`
	Severity     jsonEnum   `json:"severityNumber"`
	SeverityText string     `json:"severityText"`
	Body         *jsonAny   `json:"body"`
	Attributes   []jsonAttr `json:"attributes"`
	Dropped      jsonUint   `json:"droppedAttributesCount"`
	Flags        jsonUint   `json:"flags"`
	Trace        jsonID     `json:"traceId"`
	Span         jsonID     `json:"spanId"`
	EventName    string     `json:"eventName"`
}

type jsonAttr struct {
	Key   string   `json:"key"`
	Value *jsonAny `json:"value"`
}

// jsonAny is an AnyValue: at most one of these is there.
type jsonAny struct {
	String *string     `json:"stringValue"`
	Bool   *bool       `json:"boolValue"`
	Int    *jsonInt    `json:"intValue"`
	Double *jsonDouble `json:"doubleValue"`
	Bytes  *string     `json:"bytesValue"` // base64
	Array  *struct {
		Values []*jsonAny `json:"values"`
	} `json:"arrayValue"`
	Map *struct {
		Values []jsonAttr `json:"values"`
	} `json:"kvlistValue"`
}

// bare takes the quotes off a number that came as text.
func bare(b []byte) string { return strings.Trim(string(b), `"`) }

type jsonUint uint64

// UnmarshalJSON takes 12, "12" and null.
func (u *jsonUint) UnmarshalJSON(b []byte) error {
	s := bare(b)
	if s == "null" || s == "" {
		return nil
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return fmt.Errorf("%.40q is no unsigned number", s)
	}
	*u = jsonUint(v)
	return nil
}

type jsonInt int64

// UnmarshalJSON takes -12, "-12" and null.
func (i *jsonInt) UnmarshalJSON(b []byte) error {
	s := bare(b)
	if s == "null" || s == "" {
		return nil
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return fmt.Errorf("%.40q is no whole number", s)
	}
	*i = jsonInt(v)
	return nil
}

type jsonDouble float64

// UnmarshalJSON takes 1.5, "1.5", "NaN", "Infinity" and null.
func (d *jsonDouble) UnmarshalJSON(b []byte) error {
	s := bare(b)
	if s == "null" || s == "" {
		return nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%.40q is no number", s)
	}
	*d = jsonDouble(v)
	return nil
}

type jsonEnum int32

// UnmarshalJSON takes 9, "9", "SEVERITY_NUMBER_INFO2" and null.
func (e *jsonEnum) UnmarshalJSON(b []byte) error {
	s := bare(b)
	if name, ok := strings.CutPrefix(s, "SEVERITY_NUMBER_"); ok {
		for i, level := range [...]string{"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"} {
			if rest, ok := strings.CutPrefix(name, level); ok {
				n, err := strconv.Atoi(rest)
				if rest == "" {
					n, err = 1, nil
				}
				if err == nil && n >= 1 && n <= 4 {
					*e = jsonEnum(i*4 + n)
				}
			}
		}
		return nil
	}
	v, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return nil // a name that we do not know is no severity; the text of the record stays
	}
	*e = jsonEnum(v)
	return nil
}

type jsonID []byte

// UnmarshalJSON takes hex in either case, "" and null. Anything else is no id: a log record is worth
// keeping without its span.
func (id *jsonID) UnmarshalJSON(b []byte) error {
	raw, err := hex.DecodeString(bare(b))
	if err == nil {
		*id = raw
	}
	return nil
}

// logsFromJSON turns OTLP/JSON into the protobuf of the same request.
func logsFromJSON(body []byte, depth, records int) ([]byte, error) {
	if err := shallow(body, 4*depth, records); err != nil {
		return nil, err
	}
	var in jsonLogs
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := dec.Decode(&in); err != nil {
		var syntax *json.SyntaxError
		var typ *json.UnmarshalTypeError
		switch {
		case errors.As(err, &syntax):
			return nil, fmt.Errorf("byte %d: %w", syntax.Offset, err)
		case errors.As(err, &typ):
			return nil, fmt.Errorf("byte %d, %s: a %s cannot stand there", typ.Offset, typ.Field, typ.Value)
		}
		return nil, err
	}
	if dec.More() {
		return nil, fmt.Errorf("byte %d: something follows the request", dec.InputOffset())
	}
	var out []byte
	for _, rl := range in.ResourceLogs {
		var res []byte
		if len(rl.Resource.Attributes) > 0 {
			res = bytesField(res, 1, appendAttrs(nil, 1, rl.Resource.Attributes))
		}
		for _, sl := range rl.ScopeLogs {
			var sc []byte
			if sl.Scope.Name != "" || sl.Scope.Version != "" || len(sl.Scope.Attributes) > 0 {
				s := stringField(nil, 1, sl.Scope.Name)
				s = stringField(s, 2, sl.Scope.Version)
				sc = bytesField(sc, 1, appendAttrs(s, 3, sl.Scope.Attributes))
			}
			for i := range sl.LogRecords {
				sc = bytesField(sc, 2, sl.LogRecords[i].protobuf())
			}
			res = bytesField(res, 2, sc)
		}
		out = bytesField(out, 1, res)
	}
	return out, nil
}

// recordLevel is how many brackets are open inside a log record: {[{[{[{.
const recordLevel = 7

// shallow refuses JSON that nests deeper than n, or that has far more objects where log records stand than
// may come: before anything of it is in memory.
func shallow(b []byte, n, records int) error {
	deep, quoted, most := 0, false, records+10_000
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if deep++; deep > n {
				return fmt.Errorf("byte %d: nested deeper than %d", i, n)
			}
			if deep <= recordLevel {
				if most--; most < 0 {
					return errTooMany
				}
			}
		case c == '}' || c == ']':
			deep--
		}
	}
	return nil
}

func (l *jsonRecord) protobuf() []byte {
	var b []byte
	if l.Time > 0 {
		b = fixed64(b, 1, uint64(l.Time))
	}
	if l.Severity > 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(l.Severity))
	}
	b = stringField(b, 3, l.SeverityText)
	if l.Body != nil {
		b = bytesField(b, 5, l.Body.protobuf())
	}
	b = appendAttrs(b, 6, l.Attributes)
	if l.Dropped > 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 7, protowire.VarintType), uint64(l.Dropped))
	}
	if l.Flags > 0 {
		b = protowire.AppendFixed32(protowire.AppendTag(b, 8, protowire.Fixed32Type), uint32(l.Flags))
	}
	if len(l.Trace) > 0 {
		b = bytesField(b, 9, l.Trace)
	}
	if len(l.Span) > 0 {
		b = bytesField(b, 10, l.Span)
	}
	if l.Observed > 0 {
		b = fixed64(b, 11, uint64(l.Observed))
	}
	return stringField(b, 12, l.EventName)
}

// protobuf is AnyValue: string = 1, bool = 2, int = 3, double = 4, array = 5, map = 6, bytes = 7.
func (v *jsonAny) protobuf() []byte {
	switch {
	case v == nil:
		return nil
	case v.String != nil:
		return protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), *v.String)
	case v.Bool != nil:
		return protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), protowire.EncodeBool(*v.Bool))
	case v.Int != nil:
		return protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), uint64(*v.Int))
	case v.Double != nil:
		return fixed64(nil, 4, math.Float64bits(float64(*v.Double)))
	case v.Array != nil:
		var vals []byte
		for _, x := range v.Array.Values {
			vals = bytesField(vals, 1, x.protobuf())
		}
		return bytesField(nil, 5, vals)
	case v.Map != nil:
		return bytesField(nil, 6, appendAttrs(nil, 1, v.Map.Values))
	case v.Bytes != nil:
		raw, err := base64.StdEncoding.DecodeString(*v.Bytes)
		if err != nil {
			raw = []byte(*v.Bytes) // not base64 after all: the text is kept
		}
		return bytesField(nil, 7, raw)
	}
	return nil
}

func appendAttrs(b []byte, num protowire.Number, attrs []jsonAttr) []byte {
	for _, a := range attrs {
		kv := stringField(nil, 1, a.Key)
		if a.Value != nil {
			kv = bytesField(kv, 2, a.Value.protobuf())
		}
		b = bytesField(b, num, kv)
	}
	return b
}

// bytesField appends a field of bytes, also an empty one.
func bytesField(b []byte, num protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), m)
}

// stringField appends a text that is not empty.
func stringField(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}
