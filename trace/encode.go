package trace

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxDepth is how deep a value may nest; what lies deeper, and so a cycle, is cut.
const maxDepth = 100

// maxText bounds the text of a value that has no JSON form, in bytes.
const maxText = 10_000

func appendString(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r) // what is not UTF-8 becomes U+FFFD
			i += n
			continue
		}
		i++
	}
	return append(b, '"')
}

func appendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(b, `"-Infinity"`...)
	}
	form := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e16) {
		form = 'e'
	}
	at := len(b)
	b = strconv.AppendFloat(b, f, form, -1, 64)
	for _, c := range b[at:] {
		if c == '.' || c == 'e' {
			return b
		}
	}
	return append(b, ".0"...) // a float stays one
}

func appendAttrs(b []byte, attrs Attrs, depth int) []byte {
	b = append(b, '{')
	for i, a := range attrs {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, a.Key)
		b = appendValue(append(b, ':'), a.Value, depth+1)
	}
	return append(b, '}')
}

// appendValue writes any value as JSON: numbers that JSON lacks as strings, durations in seconds, what
// has no JSON form as text. It never fails.
func appendValue(b []byte, v any, depth int) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case string:
		return appendString(b, v)
	case bool:
		return strconv.AppendBool(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case float64:
		return appendFloat(b, v)
	case float32:
		return appendFloat(b, float64(v))
	case json.Number:
		if json.Valid([]byte(v)) && v != "" && v[0] != '"' {
			return append(b, v...)
		}
		return appendString(b, string(v))
	case time.Duration:
		return appendFloat(b, v.Seconds())
	case Attrs:
		if depth <= maxDepth {
			return appendAttrs(b, v, depth)
		}
	case *Carrier:
		return v.append(b)
	case json.Marshaler:
		if text, ok := marshal(v); ok {
			return append(b, text...)
		}
		return appendText(b, v)
	case error:
		return appendText(b, v)
	}
	if depth > maxDepth {
		return appendString(b, fmt.Sprintf("(nested deeper than %d)", maxDepth))
	}
	return appendReflect(b, reflect.ValueOf(v), depth)
}

func appendReflect(b []byte, v reflect.Value, depth int) []byte {
	switch v.Kind() {
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return strconv.AppendUint(b, v.Uint(), 10)
	case reflect.Float32, reflect.Float64:
		return appendFloat(b, v.Float())
	case reflect.String:
		return appendString(b, v.String())
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return append(b, "null"...)
		}
		return appendValue(b, v.Elem().Interface(), depth+1)
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.IsNil() {
			return append(b, "null"...)
		}
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, v.Index(i).Interface(), depth+1)
		}
		return append(b, ']')
	case reflect.Map, reflect.Struct:
		if v.Kind() == reflect.Map && v.IsNil() {
			return append(b, "null"...)
		}
		b = append(b, '{')
		for i, f := range members(v) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, f.Key)
			b = appendValue(append(b, ':'), f.Value, depth+1)
		}
		return append(b, '}')
	}
	return appendText(b, v.Interface())
}

// members lists the entries of a map, sorted, or the fields of a struct under their JSON names.
func members(v reflect.Value) []Attr {
	var out []Attr
	if v.Kind() == reflect.Map {
		for it := v.MapRange(); it.Next(); {
			out = append(out, Attr{fmt.Sprint(it.Key().Interface()), it.Value().Interface()})
		}
		sort.Slice(out, func(i, j int) bool { return out[i].Key < out[j].Key })
		return out
	}
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if f.Anonymous && name == "" && v.Field(i).Kind() == reflect.Struct {
			out = append(out, members(v.Field(i))...)
			continue
		}
		if !f.IsExported() || tag == "-" {
			continue
		}
		if (strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")) && v.Field(i).IsZero() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		out = append(out, Attr{name, v.Field(i).Interface()})
	}
	return out
}

// marshal calls a method that is not ours.
func marshal(v json.Marshaler) (text []byte, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	text, err := json.Marshal(v) // also makes it compact and valid
	return text, err == nil
}

// appendText writes what a value says about itself.
func appendText(b []byte, v any) []byte {
	s := func() (s string) {
		defer func() {
			if recover() != nil {
				s = fmt.Sprintf("(%T that cannot be read)", v)
			}
		}()
		if e, ok := v.(error); ok {
			return e.Error()
		}
		return fmt.Sprint(v)
	}()
	return appendString(b, cut(s, maxText))
}

// cut shortens a text to at most n bytes, at the border of a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
