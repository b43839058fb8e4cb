package eventstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore/wire"
)

// client speaks VictoriaLogs' HTTP API with one server: one life of the child, or the server at a URL.
type client struct {
	base       string
	http       *http.Client
	generation int
	remote     bool
	reason     func() string // why the server is gone, when that is known
	zip        *zstd.Encoder // of a remote server's rows
}

// broken wraps an error of the connection.
func (c *client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.reason != nil {
		if why := c.reason(); why != "" {
			return fmt.Errorf("%w: %s", ErrDown, why)
		}
	}
	return fmt.Errorf("%w: %w", ErrDown, err)
}

// insertPath has all parameters in the URL: the server reads a body that is a form as parameters.
const insertPath = "/insert/jsonline?_stream_fields=row,service,engine&_time_field=_time&_msg_field=_msg"

// errStoreFull is the server's answer that it takes no rows; none of the request was stored.
var errStoreFull = errors.New("the store takes no rows, its disk is nearly full")

// refusedError is the server's answer that it cannot read what it got; none of it was stored.
type refusedError struct{ words string }

func (e *refusedError) Error() string { return "the store refuses rows: " + e.words }

// insert sends JSON lines and returns how many of them the server could not read. After an error that is
// neither errStoreFull nor a refusedError any part of them may have been stored.
func (c *client) insert(ctx context.Context, lines []byte) (unread int64, err error) {
	body, path := lines, wire.InsertPath
	if c.zip != nil {
		body = c.zip.EncodeAll(lines, nil)
	}
	if c.remote {
		path = insertPath
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/stream+json")
	if c.zip != nil {
		req.Header.Set("Content-Encoding", "zstd")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, c.broken(ctx, err)
	}
	defer drain(resp.Body)
	switch {
	case resp.StatusCode < 300:
		unread, _ = strconv.ParseInt(resp.Header.Get(wire.RefusedHeader), 10, 64) // another server has no such header
		return unread, nil
	case resp.StatusCode == http.StatusTooManyRequests:
		return 0, errStoreFull
	case resp.StatusCode < 500:
		return 0, &refusedError{readWords(resp.Body)}
	}
	return 0, fmt.Errorf("%w: %s: %s", ErrDown, resp.Status, readWords(resp.Body))
}

func drain(r io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(r, 1<<20))
	_ = r.Close()
}

// answerError is an answer that says that something cannot be done.
type answerError struct {
	path, status string
	code         int
	words        string
}

func (e *answerError) Error() string {
	return fmt.Sprintf("%v: %s: %s: %s", ErrDown, e.path, e.status, e.words)
}
func (e *answerError) Unwrap() error { return ErrDown }

func (c *client) post(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	defer drain(resp.Body)
	if resp.StatusCode >= 300 {
		return nil, &answerError{req.URL.Path, resp.Status, resp.StatusCode, readWords(resp.Body)}
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, c.broken(ctx, err)
	}
	return b, nil
}

// flush makes what was inserted visible to queries.
func (c *client) flush(ctx context.Context) error {
	_, err := c.post(ctx, "/internal/force_flush")
	return err
}

// settle asks the child to say that all rows lie in files; nobody may insert meanwhile.
func (c *client) settle(ctx context.Context, minT, maxT int64) (wire.Settled, error) {
	b, err := c.post(ctx, wire.SettlePath+"?days="+url.QueryEscape(days(minT, maxT)))
	if err != nil {
		return wire.Settled{}, err
	}
	var a wire.Settled
	if err := json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("%w: the answer of %s: %w", ErrDown, wire.SettlePath, err)
	}
	return a, nil
}

const dayNs = int64(24 * time.Hour)

// days names the partitions of a time range; "2", which all names begin with, when there are very many.
func days(minT, maxT int64) string {
	first, last := minT/dayNs, maxT/dayNs
	if last-first > 100 {
		return "2"
	}
	var names []string
	for d := first; d <= last; d++ {
		names = append(names, dayName(d))
	}
	return strings.Join(names, ",")
}

func dayName(day int64) string { return time.Unix(0, day*dayNs).UTC().Format("20060102") }

// stored calls fn with each _seq from first to last that a query finds.
func (c *client) stored(ctx context.Context, first, last uint64, minT, maxT int64, fn func(seq uint64)) error {
	q := Query{LogsQL: fmt.Sprintf("_seq:range[%d, %d] | fields _seq", first, last), From: minT, To: maxT}
	_, err := c.query(ctx, q, func(fields []event.Field) error {
		for _, f := range fields {
			if f.Name == "_seq" {
				seq, err := strconv.ParseUint(f.Value, 10, 64)
				if err != nil {
					return fmt.Errorf("%w: _seq is %q", ErrDown, f.Value)
				}
				if seq >= first && seq <= last {
					fn(seq)
				}
			}
		}
		return nil
	})
	return err
}

// started is when the server says that it was started, "" when it does not say.
func (c *client) started(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/metrics", nil)
	if err != nil {
		return ""
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return ""
	}
	defer drain(resp.Body)
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "vm_app_start_timestamp "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
