package api

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// status codes of the errors that handlers return; others are 500.
func (e *Error) status() int {
	switch e.Code {
	case "bad_parameter", "bad_query", "malformed":
		return http.StatusBadRequest
	case "interrupted":
		return http.StatusRequestTimeout
	case "conflict", "late":
		return http.StatusConflict
	case "unknown_token", "not_authenticated":
		return http.StatusUnauthorized
	case "forbidden", "foreign_host", "foreign_origin":
		return http.StatusForbidden
	case "not_found", "not_enabled":
		return http.StatusNotFound
	case "method_not_allowed":
		return http.StatusMethodNotAllowed
	case "too_large":
		return http.StatusRequestEntityTooLarge
	case "canceled":
		return 499 // the client went away; nobody reads this
	case "timeout", "not_ready", "stopping", "busy", "inbox_full":
		return http.StatusServiceUnavailable
	case "disk_full":
		return http.StatusInsufficientStorage
	case "not_implemented":
		return http.StatusNotImplemented
	}
	return http.StatusInternalServerError
}

// Error makes an Error one of Go's.
func (e *Error) Error() string {
	s := e.Message
	if e.Where != "" {
		s += " (" + e.Where + ")"
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// face is whose error format a route speaks.
type face int

const (
	faceOurs       face = iota // {"error": {code, message, where, hint}}
	facePrometheus             // {"status": "error", "errorType": ..., "error": ...}
	faceGrafana                // {"message": ...}
	faceJaeger                 // {"data": null, ..., "errors": [{code, msg}]}
	faceTempo                  // a line of text
)

// refuse writes e in the format of the route's face.
func refuse(w http.ResponseWriter, f face, e *Error) {
	var body any
	switch f {
	case facePrometheus:
		body = struct {
			Status    string `json:"status"`
			ErrorType string `json:"errorType"`
			Error     string `json:"error"`
		}{"error", e.Code, e.Error()}
	case faceGrafana:
		body = struct {
			Message string `json:"message"`
			Error
		}{e.Error(), *e}
	case faceJaeger:
		body = jaegerAnswer{Errors: []jaegerError{{Code: e.status(), Msg: e.Error()}}}
	case faceTempo:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if e.status() == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "5")
		}
		w.WriteHeader(e.status())
		_, _ = io.WriteString(w, e.Error()+"\n")
		return
	default:
		body = ErrorBody{Error: *e}
	}
	raw, err := json.Marshal(body)
	if err != nil { // strings only: cannot be
		raw = []byte(`{"error":{"code":"internal","message":"the error could not be written"}}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	switch e.status() {
	case http.StatusServiceUnavailable, http.StatusInsufficientStorage:
		w.Header().Set("Retry-After", "5")
	}
	w.WriteHeader(e.status())
	w.Write(append(raw, '\n'))
}

// compressFrom is the size in bytes from which an answer is compressed: below, it fits a packet or two.
const compressFrom = 2048

// writer sends JSON answers; it keeps buffers and compressors for reuse.
type writer struct {
	buffers sync.Pool // *bytes.Buffer
	gzips   sync.Pool // *gzip.Writer
}

// send writes v as JSON: no slice or map is null, no number is NaN or infinite, and a big answer is
// compressed where the client takes it. v must be a pointer, since it is tidied in place.
func (s *writer) send(w http.ResponseWriter, r *http.Request, v any) error {
	tidy(reflect.ValueOf(v))
	return s.sendRaw(w, r, v)
}

// sendRaw is send without the tidying: foreign APIs have nulls of their own.
func (s *writer) sendRaw(w http.ResponseWriter, r *http.Request, v any) error {
	buf, _ := s.buffers.Get().(*bytes.Buffer)
	if buf == nil {
		buf = new(bytes.Buffer)
	}
	defer func() {
		if buf.Cap() <= 4<<20 { // one huge answer must not stay in memory
			buf.Reset()
			s.buffers.Put(buf)
		}
	}()
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write the answer as JSON: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Add("Vary", "Accept-Encoding")
	if buf.Len() < compressFrom || !acceptsGzip(r) {
		h.Set("Content-Length", strconv.Itoa(buf.Len()))
		w.Write(buf.Bytes())
		return nil
	}
	h.Set("Content-Encoding", "gzip")
	zip, _ := s.gzips.Get().(*gzip.Writer)
	if zip == nil {
		zip, _ = gzip.NewWriterLevel(w, gzip.BestSpeed)
	} else {
		zip.Reset(w)
	}
	zip.Write(buf.Bytes())
	zip.Close()
	s.gzips.Put(zip)
	return nil
}

// acceptsGzip reads Accept-Encoding; an encoding with q=0 is not accepted.
func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, params, _ := strings.Cut(part, ";")
		if strings.TrimSpace(name) == "gzip" {
			q := strings.ReplaceAll(params, " ", "")
			return q != "q=0" && q != "q=0.0" && q != "q=0.00" && q != "q=0.000"
		}
	}
	return false
}

// tidy makes nil slices and maps empty and pointers to numbers that JSON cannot carry nil, all the way down.
func tidy(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		if f, ok := v.Interface().(*float64); ok {
			if v.CanSet() && !finite(*f) {
				v.SetZero()
			}
			return
		}
		tidy(v.Elem())
	case reflect.Interface:
		if !v.IsNil() && v.Elem().Kind() == reflect.Pointer {
			tidy(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				tidy(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 { // json.RawMessage
			return
		}
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
			return
		}
		if values, ok := v.Interface().([]*float64); ok {
			for i, p := range values {
				if p != nil && !finite(*p) {
					values[i] = nil
				}
			}
			return
		}
		switch v.Type().Elem().Kind() {
		case reflect.Struct, reflect.Slice, reflect.Map, reflect.Pointer:
			for i := range v.Len() {
				tidy(v.Index(i))
			}
		}
	case reflect.Map:
		if v.IsNil() && v.CanSet() {
			v.Set(reflect.MakeMap(v.Type()))
			return
		}
		if v.Type().Elem().Kind() != reflect.Struct {
			return
		}
		for _, key := range v.MapKeys() { // a map's values cannot be changed in place
			e := reflect.New(v.Type().Elem()).Elem()
			e.Set(v.MapIndex(key))
			tidy(e)
			v.SetMapIndex(key, e)
		}
	}
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// number returns a pointer to f, nil if JSON cannot carry it.
func number(f float64) *float64 {
	if !finite(f) {
		return nil
	}
	return &f
}

// stamp writes a time as the API does: RFC 3339, UTC, nanoseconds where there are any.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// stampPtr is stamp, and nil for the zero time.
func stampPtr(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := stamp(t)
	return &s
}

// mergeWarnings joins lists of warnings, without repeating one.
func mergeWarnings(lists ...[]Warning) []Warning {
	var out []Warning
	for _, l := range lists {
		for _, w := range l {
			if !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	return out
}
