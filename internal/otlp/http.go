package otlp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// signalOf is which signal a path takes: exporters append these paths to their endpoint.
func signalOf(path string) (signalKind, bool) {
	for _, p := range [...]struct {
		path string
		kind signalKind
	}{{"/v1/traces", traces}, {"/v1/logs", logs}, {"/v1/metrics", metrics}, {"/v1development/profiles", profiles}} {
		if strings.HasSuffix(path, p.path) {
			return p.kind, true
		}
	}
	return 0, false
}

// overHTTP is the [Source.Kind] of what came over HTTP.
const overHTTP = "otlp_http"

// httpServer makes the server of the listener: HTTP/1.1 and HTTP/2, also without TLS.
func (r *Receiver) httpServer() *http.Server {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(r.o.TLS == nil)
	plain := r.Handler()
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if r.o.Authorize != nil {
				if err := r.o.Authorize(req); err != nil {
					from := sourceKey{overHTTP, hostOf(req.RemoteAddr)}
					r.came(from, req.UserAgent())
					w.Header().Set("WWW-Authenticate", `Basic realm="rollscope"`)
					r.refuseHTTP(w, req, from, &Refusal{Verdict: Denied, Reason: "unauthorized", Message: err.Error()})
					return
				}
			}
			plain.ServeHTTP(w, req)
		}),
		Protocols: &p, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: min(r.limits.Waiting, 250)},
		ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
}

// Handler answers OTLP/HTTP at /v1/traces, /v1/logs and /v1/metrics, for whoever the caller lets through:
// mount it where the caller has been checked. Each path is also found below a prefix, such as /otlp/v1/traces.
func (r *Receiver) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		from := sourceKey{overHTTP, hostOf(req.RemoteAddr)}
		k, ok := signalOf(req.URL.Path)
		if ok && k == metrics && r.o.Metrics != nil && req.Method == http.MethodPost {
			r.o.Metrics.ServeHTTP(w, req)
			return
		}
		r.came(from, req.UserAgent())
		out, refused := outcome{}, (*Refusal)(nil)
		switch {
		case !ok:
			refused = &Refusal{Verdict: Unknown, Reason: "unknown_path", Message: fmt.Sprintf("there is nothing at %s: post to /v1/traces or /v1/logs", printable(req.URL.Path))}
		case req.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			refused = &Refusal{Verdict: Invalid, Reason: "method", Message: fmt.Sprintf("%s is not for %s: use POST", req.Method, printable(req.URL.Path))}
		case k == metrics || k == profiles:
			refused = notHere(k)
		default:
			out, refused = r.post(w, req, from, k)
		}
		if refused != nil {
			r.refuseHTTP(w, req, from, refused)
			return
		}
		r.partly(from, out)
		if isJSON, _ := bodyType(req); isJSON {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(out.json(k)) // whoever is gone gets no answer
			return
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(out.protobuf())
	})
}

// printable bounds what a stranger sent before it is repeated.
func printable(s string) string {
	return strconv.QuoteToASCII(s[:min(len(s), 200)])
}

// post takes the body of a request.
func (r *Receiver) post(w http.ResponseWriter, req *http.Request, from sourceKey, k signalKind) (outcome, *Refusal) {
	isJSON, refused := bodyType(req)
	if refused != nil {
		return outcome{}, refused
	}
	leave, refused := r.enter()
	if refused != nil {
		return outcome{}, refused
	}
	defer leave()
	// What cannot be set (a recorder in a test, a wrapper) stays without a deadline.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(r.limits.Read))
	buf, refused := r.readBody(w, req)
	if refused != nil {
		return outcome{}, refused
	}
	defer r.unpack.release(buf)
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return r.take(req.Context(), from, k, buf.b, isJSON)
}

// bodyType tells JSON from protobuf.
func bodyType(req *http.Request) (isJSON bool, refused *Refusal) {
	given := req.Header.Get("Content-Type")
	t, _, err := mime.ParseMediaType(given)
	switch {
	case err == nil && (t == "application/x-protobuf" || t == "application/protobuf"):
		return false, nil
	case err == nil && t == "application/json":
		return true, nil
	}
	return false, &Refusal{Verdict: Unknown, Reason: "content_type",
		Message: fmt.Sprintf("the content type %s is not taken: send application/x-protobuf or application/json", printable(given))}
}

// readBody reads and unpacks the body, both within the limits.
func (r *Receiver) readBody(w http.ResponseWriter, req *http.Request) (*buffer, *Refusal) {
	if req.ContentLength > int64(r.limits.Body) {
		w.Header().Set("Connection", "close") // the rest is not read
		return nil, r.tooLarge(r.limits.Body, "")
	}
	wire := http.MaxBytesReader(w, req.Body, int64(r.limits.Body))
	encoding := strings.ToLower(strings.TrimSpace(req.Header.Get("Content-Encoding")))
	in, done, err := r.unpack.unpack(encoding, wire)
	if err != nil {
		var x *Refusal
		if errors.As(err, &x) {
			return nil, x
		}
		return nil, r.badBody(err)
	}
	defer done()
	buf := r.unpack.buffer()
	size := int64(-1)
	if encoding == "" || encoding == "identity" {
		size = req.ContentLength
	}
	if err := buf.fill(in, size, r.limits.Expanded); err != nil {
		r.unpack.release(buf)
		if errors.Is(err, errExpanded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) {
			return nil, r.tooLarge(r.limits.Expanded, ", unpacked")
		}
		return nil, r.badBody(err)
	}
	return buf, nil
}

func (r *Receiver) tooLarge(limit int, how string) *Refusal {
	return &Refusal{Verdict: TooBig, Reason: "too_large",
		Message: fmt.Sprintf("the request is larger than %d bytes%s: let the exporter send smaller batches (OTEL_BSP_MAX_EXPORT_BATCH_SIZE, send_batch_max_size)", limit, how)}
}

func (r *Receiver) badBody(err error) *Refusal {
	var tooLong *http.MaxBytesError
	var timeout net.Error
	switch {
	case errors.As(err, &tooLong):
		return r.tooLarge(r.limits.Body, "")
	case errors.As(err, &timeout) && timeout.Timeout():
		return &Refusal{Verdict: Busy, Reason: "slow_body", Message: fmt.Sprintf("the body was not complete after %s: send smaller batches", r.limits.Read)}
	case errors.Is(err, context.Canceled):
		return asRefusal(err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Refusal{Verdict: Invalid, Reason: "cut", Message: "the body ends too early"}
	}
	return &Refusal{Verdict: Invalid, Reason: "unreadable", Message: "the body cannot be read: " + err.Error()}
}

// refuseHTTP answers with google.rpc.Status in the request's encoding, as the specification wants.
func (r *Receiver) refuseHTTP(w http.ResponseWriter, req *http.Request, from sourceKey, x *Refusal) {
	r.refused(from, x)
	status := x.status()
	switch x.Reason {
	case "content_type", "compression":
		status = http.StatusUnsupportedMediaType
	case "method":
		status = http.StatusMethodNotAllowed
	}
	if after := x.retry(); after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	t, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type")) // an unreadable one is none
	if t == "application/x-protobuf" || t == "application/protobuf" {
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.WriteHeader(status)
		_, _ = w.Write(x.statusProtobuf())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(x.statusJSON())
}
