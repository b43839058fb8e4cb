package logpush

import (
	"compress/gzip"
	"compress/zlib"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// Options configure a Handler.
type Options struct {
	Sink Sink
	// Busy tells that an error of the sink means "later": the answer is then 503 with Retry-After.
	Busy func(error) bool
	// MaxBody bounds a request's body when it is unpacked, in bytes; 0 takes 64 MiB.
	MaxBody int64
	Now     func() time.Time // nil = time.Now
	Logger  *slog.Logger
}

// Handler serves the paths below /insert/ and /loki/. It is safe for concurrent use.
type Handler struct {
	o      Options
	log    *slog.Logger
	counts counts
}

// New makes a handler.
func New(o Options) *Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxBody == 0 {
		o.MaxBody = 64 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Busy == nil {
		o.Busy = func(error) bool { return false }
	}
	return &Handler{o: o, log: o.Logger.With("component", "logpush"),
		counts: counts{sources: map[string]*Source{}, drops: map[[2]string]int64{}}}
}

// Sources tells what came in, by name.
func (h *Handler) Sources() []Source {
	s, _ := h.counts.list()
	return s
}

// Drops tells what was not kept.
func (h *Handler) Drops() []Drop {
	_, d := h.counts.list()
	return d
}

// body reads and unpacks a request's body.
func (h *Handler) body(r *http.Request, fallback string) ([]byte, error) {
	var in io.Reader = http.MaxBytesReader(nil, r.Body, h.o.MaxBody)
	encoding := strings.ToLower(r.Header.Get("Content-Encoding"))
	if encoding == "" {
		encoding = fallback
	}
	limit := func(in io.Reader) ([]byte, error) {
		data, err := io.ReadAll(io.LimitReader(in, h.o.MaxBody+1))
		if err != nil {
			return nil, fmt.Errorf("the body could not be read: %w", err)
		}
		if int64(len(data)) > h.o.MaxBody {
			return nil, &tooLarge{h.o.MaxBody}
		}
		return data, nil
	}
	switch encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("the body is not gzip, as its Content-Encoding says: %w", err)
		}
		in = z
	case "deflate":
		z, err := zlib.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("the body is not deflate, as its Content-Encoding says: %w", err)
		}
		in = z
	case "zstd":
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(h.o.MaxBody)))
		if err != nil {
			return nil, fmt.Errorf("the body is not zstd, as its Content-Encoding says: %w", err)
		}
		defer z.Close()
		in = z
	case "snappy": // one block, as Loki's clients send it
		packed, err := limit(in)
		if err != nil {
			return nil, err
		}
		n, err := s2.DecodedLen(packed)
		if err != nil {
			return nil, fmt.Errorf("the body is not a snappy block: %w", err)
		}
		if int64(n) > h.o.MaxBody {
			return nil, &tooLarge{h.o.MaxBody}
		}
		data, err := s2.Decode(nil, packed)
		if err != nil {
			return nil, fmt.Errorf("the body is not a snappy block: %w", err)
		}
		return data, nil
	default:
		return nil, &unsupported{fmt.Sprintf("Content-Encoding %q is not read here: send gzip, deflate, zstd, snappy or none", encoding)}
	}
	return limit(in)
}

type tooLarge struct{ limit int64 }

func (e *tooLarge) Error() string {
	return fmt.Sprintf("the body is larger than %d MiB when unpacked: send smaller batches", e.limit>>20)
}

type unsupported struct{ msg string }

func (e *unsupported) Error() string { return e.msg }

// fail answers an error that the shipper's log will show.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, name string, err error, sunk bool) {
	h.counts.took(name, 0, h.o.Now(), err)
	var (
		large *tooLarge
		body  *http.MaxBytesError
		media *unsupported
	)
	code := http.StatusBadRequest
	switch {
	case errors.As(err, &large), errors.As(err, &body):
		code = http.StatusRequestEntityTooLarge
	case errors.As(err, &media):
		code = http.StatusUnsupportedMediaType
	case sunk && (h.o.Busy(err) || errors.Is(err, context.Canceled)):
		code = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "5")
	case sunk:
		code = http.StatusInternalServerError
	}
	h.log.Warn("pushed lines were refused", "path", r.URL.Path, "from", r.RemoteAddr, "status", code, "err", err)
	http.Error(w, err.Error(), code)
}

func (h *Handler) parameters(r *http.Request) (parameters, error) {
	// Only the URL: reading the form would eat the body of clients that send no content type.
	q := r.URL.Query()
	return readParameters(func(name, header string) string {
		if v := q.Get(name); v != "" {
			return v
		}
		return r.Header.Get(header)
	})
}

// take hands lines on.
func (h *Handler) take(w http.ResponseWriter, r *http.Request, name string, list []Entry, bad []*badLine) bool {
	for _, b := range bad {
		h.counts.drop(name, b.reason, 1)
	}
	if len(bad) > 0 {
		h.log.Warn("pushed lines were left out", "path", r.URL.Path, "from", r.RemoteAddr, "lines", len(bad), "first", bad[0])
	}
	if len(list) > 0 {
		if err := h.o.Sink(r.Context(), list); err != nil {
			h.fail(w, r, name, err, true)
			return false
		}
	}
	h.counts.took(name, len(list), h.o.Now(), nil)
	return true
}

// Loki takes Loki's push request: protobuf in a snappy block, or JSON.
func (h *Handler) Loki(w http.ResponseWriter, r *http.Request) {
	const name = "loki"
	p, err := h.parameters(r)
	if err != nil {
		h.fail(w, r, name, err, false)
		return
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // what cannot be read is not JSON
	decode, packed := lokiProto, "snappy"
	if kind == "application/json" {
		decode, packed = lokiJSON, ""
	}
	data, err := h.body(r, packed)
	if err != nil {
		h.fail(w, r, name, err, false)
		return
	}
	list, err := decode(data, &p)
	if err != nil {
		h.fail(w, r, name, err, false)
		return
	}
	if h.take(w, r, name, list, nil) {
		w.WriteHeader(http.StatusNoContent)
	}
}

// JSONLines takes an object a line.
func (h *Handler) JSONLines(w http.ResponseWriter, r *http.Request) {
	const name = "jsonline"
	p, err := h.parameters(r)
	if err != nil {
		h.fail(w, r, name, err, false)
		return
	}
	data, err := h.body(r, "")
	if err != nil {
		h.fail(w, r, name, err, false)
		return
	}
	list, bad := jsonLines(data, &p)
	if len(list) == 0 && len(bad) > 0 {
		for _, b := range bad {
			h.counts.drop(name, b.reason, 1)
		}
		h.fail(w, r, name, bad[0], false)
		return
	}
	h.take(w, r, name, list, bad)
}

// Ready answers health checks of shippers.
func (h *Handler) Ready(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"status":"ok"}`) // a client that is gone needs no answer
}

// bulkItem is one document in the answer of a bulk request.
type bulkItem struct {
	Status int        `json:"status"`
	Error  *bulkError `json:"error,omitempty"`
}

type bulkError struct {
	Type   string `json:"type"`
	Reason string `json:"reason"`
}

// Elastic takes Elasticsearch's bulk request, and answers what its clients ask before they send one.
func (h *Handler) Elastic(w http.ResponseWriter, r *http.Request) {
	const name = "elasticsearch"
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Elastic-Product", "Elasticsearch") // Logstash insists
	_, path, _ := strings.Cut(r.URL.Path, "/elasticsearch")
	switch path = strings.Trim(path, "/"); {
	case path == "_bulk" || strings.HasSuffix(path, "/_bulk"):
		if r.Method != http.MethodPost && r.Method != http.MethodPut {
			http.Error(w, "a bulk request is a POST", http.StatusMethodNotAllowed)
			return
		}
	case path == "":
		_, _ = io.WriteString(w, `{"version":{"number":"8.9.0"}}`)
		return
	case path == "_license":
		_, _ = io.WriteString(w, `{"license":{"status":"active","type":"oss","expiry_date_in_millis":4000000000000}}`)
		return
	case strings.HasPrefix(path, "_"), path == "logstash", strings.HasPrefix(path, "logstash/"):
		_, _ = io.WriteString(w, "{}") // templates, pipelines, policies: there is nothing to set up
		return
	default:
		http.Error(w, `{"error":"only _bulk is taken here"}`, http.StatusNotFound)
		return
	}
	p, err := h.parameters(r)
	if err != nil {
		h.fail(w, r, name, err, false)
		return
	}
	data, err := h.body(r, "")
	if err != nil {
		h.fail(w, r, name, err, false)
		return
	}
	start := h.o.Now()
	list, actions, bad, err := bulk(data, &p)
	if err != nil {
		h.fail(w, r, name, err, false)
		return
	}
	if !h.take(w, r, name, list, bad) {
		return
	}
	answer := struct {
		Took   int64                 `json:"took"`
		Errors bool                  `json:"errors"`
		Items  []map[string]bulkItem `json:"items"`
	}{h.o.Now().Sub(start).Milliseconds(), len(bad) > 0, make([]map[string]bulkItem, len(actions))}
	for i, a := range actions {
		answer.Items[i] = map[string]bulkItem{a: {Status: http.StatusCreated}}
	}
	for _, b := range bad {
		i := b.number - 1
		answer.Items[i] = map[string]bulkItem{actions[i]: {Status: http.StatusBadRequest, Error: &bulkError{Type: "mapper_parsing_exception", Reason: b.err.Error()}}}
	}
	_ = json.NewEncoder(w).Encode(answer) // a client that is gone needs no answer
}
