package span

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep a value may nest; what lies deeper is replaced by the text tooDeep.
const (
	maxDepth = 32
	tooDeep  = `"(nested deeper than 32 levels)"`
)

// The keys of objects that say what plain JSON cannot; see [Type].
const (
	keyBytes  = "bytesValue"
	keyDouble = "doubleValue"
	keyMap    = "kvlistValue"
)

// keyValue splits a KeyValue; value is nil when there is none.
func keyValue(b []byte) (key string, value []byte, err error) {
	f := fields{b: b}
	for f.next() {
		switch {
		case f.is(1, wireBytes):
			key = alias(f.data)
		case f.is(2, wireBytes):
			value = f.data
		}
	}
	return key, value, f.err("KeyValue")
}

// Attributes calls fn for each attribute of a span message until fn returns false, without decoding the
// rest of it. Keys and values of type Text alias raw.
func Attributes(raw []byte, fn func(key string, v Value) bool) error {
	f := fields{b: raw}
	for f.next() {
		if !f.is(9, wireBytes) {
			continue
		}
		key, value, err := keyValue(f.data)
		if err != nil {
			return err
		}
		v, _, err := decodeValue(value, nil)
		if err != nil {
			return err
		}
		if !fn(clean(key), v) {
			return nil
		}
	}
	return f.err("Span")
}

// decodeValue reads an AnyValue. A text aliases b; the text of anything else is appended to buf and
// aliases that.
func decodeValue(b, buf []byte) (Value, []byte, error) {
	v := Value{Type: JSON, Str: "null"}
	f := fields{b: b}
	for f.next() {
		from := len(buf)
		switch {
		case f.num == 1 && f.typ == wireBytes:
			v = Value{Text, clean(alias(f.data))}
		case f.num == 2 && f.typ == wireVarint:
			v = Value{Bool, strconv.FormatBool(f.u != 0)}
		case f.num == 3 && f.typ == wireVarint:
			buf = strconv.AppendInt(buf, int64(f.u), 10)
			v = Value{Int, alias(buf[from:])}
		case f.num == 4 && f.typ == wireFixed8:
			buf = appendFloat(buf, math.Float64frombits(f.u))
			v = Value{Float, alias(buf[from:])}
		case f.num >= 5 && f.num <= 7 && f.typ == wireBytes:
			var err error
			if buf, err = appendPlain(buf, f.num, f.data, 1); err != nil {
				return v, buf, err
			}
			v = Value{JSON, alias(buf[from:])}
		}
	}
	return v, buf, f.err("AnyValue")
}

// appendFloat writes a number as people and LogsQL read it.
func appendFloat(dst []byte, f float64) []byte {
	switch a := math.Abs(f); {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	case a != 0 && (a < 1e-6 || a >= 1e21):
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64)
}

// parseFloat reads what appendFloat wrote, and what JSON writes.
func parseFloat(s string) (float64, bool) {
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}

// appendPlain writes a value of an AnyValue's field num as plain JSON.
func appendPlain(dst []byte, num uint32, b []byte, depth int) ([]byte, error) {
	if depth > maxDepth {
		return append(dst, tooDeep...), nil
	}
	switch num {
	case 5:
		dst = append(dst, '[')
		f := fields{b: b}
		for n := 0; f.next(); {
			if !f.is(1, wireBytes) {
				continue
			}
			if n++; n > 1 {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = appendPlainAny(dst, f.data, depth+1); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), f.err("ArrayValue")
	case 6:
		from := len(dst)
		dst = append(dst, '{')
		f := fields{b: b}
		n, last := 0, ""
		for f.next() {
			if !f.is(1, wireBytes) {
				continue
			}
			key, value, err := keyValue(f.data)
			if err != nil {
				return dst, err
			}
			if n++; n > 1 {
				dst = append(dst, ',')
			}
			last = key
			dst = appendQuoted(dst, key)
			dst = append(dst, ':')
			if dst, err = appendPlainAny(dst, value, depth+1); err != nil {
				return dst, err
			}
		}
		dst = append(dst, '}')
		if n == 1 && (last == keyBytes || last == keyDouble || last == keyMap) {
			const open = `{"` + keyMap + `":`
			dst = append(dst, open...)
			copy(dst[from+len(open):], dst[from:])
			copy(dst[from:], open)
			dst = append(dst, '}')
		}
		return dst, f.err("KeyValueList")
	}
	dst = append(dst, `{"`+keyBytes+`":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, `"}`...), nil
}

// appendPlainAny writes an AnyValue inside another as plain JSON.
func appendPlainAny(dst, b []byte, depth int) ([]byte, error) {
	from := len(dst)
	dst = append(dst, "null"...)
	f := fields{b: b}
	for f.next() {
		switch {
		case f.is(1, wireBytes):
			dst = appendQuoted(dst[:from], alias(f.data))
		case f.is(2, wireVarint):
			dst = strconv.AppendBool(dst[:from], f.u != 0)
		case f.is(3, wireVarint):
			dst = strconv.AppendInt(dst[:from], int64(f.u), 10)
		case f.is(4, wireFixed8):
			dst = appendPlainFloat(dst[:from], math.Float64frombits(f.u))
		case f.num >= 5 && f.num <= 7 && f.typ == wireBytes:
			var err error
			if dst, err = appendPlain(dst[:from], f.num, f.data, depth); err != nil {
				return dst, err
			}
		}
	}
	return dst, f.err("AnyValue")
}

// appendPlainFloat writes a number so that it is not taken for an integer.
func appendPlainFloat(dst []byte, v float64) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		dst = append(dst, `{"`+keyDouble+`":"`...)
		return append(appendFloat(dst, v), `"}`...)
	}
	from := len(dst)
	dst = appendFloat(dst, v)
	if !strings.ContainsAny(alias(dst[from:]), ".e") {
		dst = append(dst, ".0"...)
	}
	return dst
}

// appendAny writes a value as the AnyValue of protobuf field num.
func appendAny(dst []byte, num uint32, v Value) []byte {
	dst, from := openMessage(dst, num)
	dst = appendAnyBody(dst, v)
	return closeMessage(dst, from)
}

func appendAnyBody(dst []byte, v Value) []byte {
	asText := func() []byte {
		dst = appendTag(dst, 1, wireBytes)
		dst = binary.AppendUvarint(dst, uint64(len(v.Str)))
		return append(dst, v.Str...)
	}
	switch v.Type {
	case Bool:
		if v.Str == "true" || v.Str == "false" {
			dst = append(dst, 2<<3, 0)
			if v.Str == "true" {
				dst[len(dst)-1] = 1
			}
			return dst
		}
	case Int:
		if n, err := strconv.ParseInt(v.Str, 10, 64); err == nil {
			return binary.AppendUvarint(append(dst, 3<<3), uint64(n))
		}
	case Float:
		if f, ok := parseFloat(v.Str); ok {
			return binary.LittleEndian.AppendUint64(append(dst, 4<<3|wireFixed8), math.Float64bits(f))
		}
	case JSON:
		r := reader{b: bytesOf(v.Str)}
		out := plainToProto(dst, &r, 1)
		if r.end(); r.err == nil {
			return out
		}
	}
	return asText()
}

// plainToProto reads plain JSON and writes the fields of an AnyValue.
func plainToProto(dst []byte, r *reader, depth int) []byte {
	if depth > maxDepth+2 {
		r.fail("nested too deep")
		return dst
	}
	switch r.peek() {
	case '"':
		s := r.text()
		dst = appendTag(dst, 1, wireBytes)
		dst = binary.AppendUvarint(dst, uint64(len(s)))
		dst = append(dst, s...)
	case 't', 'f':
		dst = append(dst, 2<<3, 0)
		if r.bool() {
			dst[len(dst)-1] = 1
		}
	case 'n':
		r.null()
	case '[':
		dst, from := openMessage(dst, 5)
		for ok := r.open('['); ok; ok = r.more(']') {
			var v int
			dst, v = openMessage(dst, 1)
			dst = plainToProto(dst, r, depth+1)
			dst = closeMessage(dst, v)
		}
		return closeMessage(dst, from)
	case '{':
		if b, f, kind := r.marked(); kind == keyBytes {
			dst = appendTag(dst, 7, wireBytes)
			dst = binary.AppendUvarint(dst, uint64(len(b)))
			return append(dst, b...)
		} else if kind == keyDouble {
			return binary.LittleEndian.AppendUint64(append(dst, 4<<3|wireFixed8), math.Float64bits(f))
		} else if kind == keyMap {
			r.open('{')
			r.key()
			dst = plainMapToProto(dst, r, depth)
			r.more('}')
			return dst
		}
		return plainMapToProto(dst, r, depth)
	default:
		s, isInt := r.number()
		if n, err := strconv.ParseInt(s, 10, 64); isInt && err == nil {
			return binary.AppendUvarint(append(dst, 3<<3), uint64(n))
		}
		f, ok := parseFloat(s)
		if !ok {
			r.fail("a number that is none")
		}
		return binary.LittleEndian.AppendUint64(append(dst, 4<<3|wireFixed8), math.Float64bits(f))
	}
	return dst
}

func plainMapToProto(dst []byte, r *reader, depth int) []byte {
	dst, from := openMessage(dst, 6)
	for ok := r.open('{'); ok; ok = r.more('}') {
		var kv, v int
		dst, kv = openMessage(dst, 1)
		dst = appendText(dst, 1, r.key())
		dst, v = openMessage(dst, 2)
		dst = plainToProto(dst, r, depth+1)
		dst = closeMessage(dst, v)
		dst = closeMessage(dst, kv)
	}
	return closeMessage(dst, from)
}

// appendAnyJSON writes a value as an AnyValue of OTLP/JSON.
func appendAnyJSON(dst []byte, v Value) []byte {
	switch v.Type {
	case Bool:
		if v.Str == "true" || v.Str == "false" {
			return append(append(append(dst, `{"boolValue":`...), v.Str...), '}')
		}
	case Int:
		if _, err := strconv.ParseInt(v.Str, 10, 64); err == nil {
			return append(append(append(dst, `{"intValue":"`...), v.Str...), `"}`...)
		}
	case Float:
		if f, ok := parseFloat(v.Str); ok {
			return appendDoubleJSON(dst, f)
		}
	case JSON:
		from := len(dst)
		r := reader{b: bytesOf(v.Str)}
		dst = plainToOTLP(dst, &r, 1)
		if r.end(); r.err == nil {
			return dst
		}
		dst = dst[:from]
	}
	return append(appendQuoted(append(dst, `{"stringValue":`...), v.Str), '}')
}

func appendDoubleJSON(dst []byte, f float64) []byte {
	dst = append(dst, `{"doubleValue":`...)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(appendFloat(append(dst, '"'), f), `"}`...)
	}
	return append(appendFloat(dst, f), '}')
}

// plainToOTLP reads plain JSON and writes an AnyValue of OTLP/JSON.
func plainToOTLP(dst []byte, r *reader, depth int) []byte {
	if depth > maxDepth+2 {
		r.fail("nested too deep")
		return dst
	}
	switch r.peek() {
	case '"':
		return append(appendQuoted(append(dst, `{"stringValue":`...), r.text()), '}')
	case 't', 'f':
		return append(strconv.AppendBool(append(dst, `{"boolValue":`...), r.bool()), '}')
	case 'n':
		r.null()
		return append(dst, "{}"...)
	case '[':
		dst = append(dst, `{"arrayValue":{"values":[`...)
		n := 0
		for ok := r.open('['); ok; ok = r.more(']') {
			if n++; n > 1 {
				dst = append(dst, ',')
			}
			dst = plainToOTLP(dst, r, depth+1)
		}
		return append(dst, `]}}`...)
	case '{':
		b, f, kind := r.marked()
		switch kind {
		case keyBytes:
			dst = append(dst, `{"bytesValue":"`...)
			return append(base64.StdEncoding.AppendEncode(dst, b), `"}`...)
		case keyDouble:
			return appendDoubleJSON(dst, f)
		case keyMap:
			r.open('{')
			r.key()
		}
		dst = append(dst, `{"kvlistValue":{"values":[`...)
		n := 0
		for ok := r.open('{'); ok; ok = r.more('}') {
			if n++; n > 1 {
				dst = append(dst, ',')
			}
			dst = append(appendQuoted(append(dst, `{"key":`...), r.key()), `,"value":`...)
			dst = append(plainToOTLP(dst, r, depth+1), '}')
		}
		if kind == keyMap {
			r.more('}')
		}
		return append(dst, `]}}`...)
	}
	s, isInt := r.number()
	if _, err := strconv.ParseInt(s, 10, 64); isInt && err == nil {
		return append(append(append(dst, `{"intValue":"`...), s...), `"}`...)
	}
	f, ok := parseFloat(s)
	if !ok {
		r.fail("a number that is none")
	}
	return appendDoubleJSON(dst, f)
}

// clean is s as valid UTF-8.
func clean(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
