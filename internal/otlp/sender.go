package otlp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
)

// sender sends one request. Busy and Down in what it returns mean: again.
type sender interface {
	send(ctx context.Context, kind recordKind, body []byte) (outcome, *Refusal)
	close() error
}

// Sender sends OTLP requests to one endpoint, without a queue and without retries. It is safe for concurrent
// use.
type Sender struct{ s sender }

// NewSender makes a sender; of e the name, the queue's options and the limits of a batch do not matter.
func NewSender(e Endpoint) (*Sender, error) {
	e, err := e.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := newSender(e)
	if err != nil {
		return nil, err
	}
	return &Sender{s}, nil
}

// Traces sends an ExportTraceServiceRequest. rejected of its spans were not taken, as message says; an error
// is a *[Refusal].
func (s *Sender) Traces(ctx context.Context, body []byte) (rejected int, message string, err error) {
	return result(s.s.send(ctx, traceRecord, body))
}

// Logs sends an ExportLogsServiceRequest likewise.
func (s *Sender) Logs(ctx context.Context, body []byte) (rejected int, message string, err error) {
	return result(s.s.send(ctx, logRecord, body))
}

func result(out outcome, x *Refusal) (int, string, error) {
	if x != nil {
		return 0, "", x
	}
	return out.rejected, out.message, nil
}

// Close closes the connections.
func (s *Sender) Close() error { return s.s.close() }

func newSender(e Endpoint) (sender, error) {
	u, err := url.Parse(e.URL)
	if err != nil {
		return nil, fmt.Errorf("forward: endpoint %s: %w", e.Name, err)
	}
	if u.Scheme == "grpc" || u.Scheme == "grpcs" {
		return newGRPCSender(e, u)
	}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: e.TLS, ForceAttemptHTTP2: true, DisableCompression: true,
		MaxIdleConnsPerHost: 2, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
	}
	return &httpSender{e: e, base: strings.TrimSuffix(e.URL, "/"), client: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a redirect drops the body's headers, or leads elsewhere
	}}}, nil
}

// grpcSender is OTLP over gRPC.
type grpcSender struct {
	e    Endpoint
	conn *grpc.ClientConn
	opts []grpc.CallOption
}

func newGRPCSender(e Endpoint, u *url.URL) (*grpcSender, error) {
	creds := insecure.NewCredentials()
	if u.Scheme == "grpcs" {
		c := e.TLS
		if c == nil {
			c = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		creds = credentials.NewTLS(c)
	}
	conn, err := grpc.NewClient(u.Host, grpc.WithTransportCredentials(creds), grpc.WithUserAgent("rollscope"), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallSendMsgSize(1<<30), grpc.MaxCallRecvMsgSize(4<<20)))
	if err != nil {
		return nil, fmt.Errorf("forward: endpoint %s: %w", e.Name, err)
	}
	s := &grpcSender{e: e, conn: conn}
	if e.Compression != "none" {
		if encoding.GetCompressor(e.Compression) == nil {
			return nil, errors.Join(fmt.Errorf("forward: endpoint %s: this process has no %s for gRPC (it calls RegisterCompressors for that)", e.Name, e.Compression), conn.Close())
		}
		s.opts = append(s.opts, grpc.UseCompressor(e.Compression))
	}
	return s, nil
}

func (s *grpcSender) close() error { return s.conn.Close() }

func (s *grpcSender) send(ctx context.Context, kind recordKind, body []byte) (outcome, *Refusal) {
	for k, v := range s.e.Headers {
		ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(k), v)
	}
	method := exportMethod(traces)
	if kind == logRecord {
		method = exportMethod(logs)
	}
	answer := &message{}
	defer answer.free()
	if err := s.conn.Invoke(ctx, method, &message{data: body}, answer, s.opts...); err != nil {
		return outcome{}, refusalOf(status.Convert(err))
	}
	return readOutcome(answer.data), nil
}

// refusalOf reads a gRPC status as OTLP's specification says. What is wrong with our set-up and not with the
// data (who we are, the address, the service) is tried again too: somebody will put it right, and the queue
// is bounded.
func refusalOf(st *status.Status) *Refusal {
	x := &Refusal{Verdict: Invalid, Reason: strings.ToLower(st.Code().String()), Message: st.Code().String() + ": " + st.Message()}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok && info.RetryDelay != nil {
			x.After = min(max(info.RetryDelay.AsDuration(), 0), 10*time.Minute)
			x.Verdict = Busy
		}
	}
	switch st.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss:
		x.Verdict = Down
	case codes.Unauthenticated, codes.PermissionDenied, codes.NotFound, codes.Unimplemented:
		x.Verdict = Down
		x.After = max(x.After, 10*time.Second)
	case codes.ResourceExhausted:
		if x.Verdict != Busy {
			x.Verdict = TooBig
		}
	default:
		x.Verdict = Invalid
	}
	return x
}

// readOutcome reads the answer: partial_success = 1 with rejected = 1 and error_message = 2. What cannot be
// read is an answer without one: the request was taken.
func readOutcome(b []byte) outcome {
	var o outcome
	_ = each("answer", b, func(num protowire.Number, typ protowire.Type, _ uint64, data []byte) error {
		if num != 1 || typ != protowire.BytesType {
			return nil
		}
		return each("partial success", data, func(num protowire.Number, typ protowire.Type, v uint64, data []byte) error {
			switch {
			case num == 1 && typ == protowire.VarintType:
				o.rejected = int(min(v, 1<<31))
			case num == 2 && typ == protowire.BytesType:
				o.message = text(data[:min(len(data), 1000)])
			}
			return nil
		})
	})
	return o
}

// httpSender is OTLP over HTTP in protobuf.
type httpSender struct {
	e      Endpoint
	base   string
	client *http.Client
}

func (s *httpSender) close() error {
	s.client.CloseIdleConnections()
	return nil
}

func (s *httpSender) send(ctx context.Context, kind recordKind, body []byte) (outcome, *Refusal) {
	path := "/v1/traces"
	if kind == logRecord {
		path = "/v1/logs"
	}
	packed, err := pack(s.e.Compression, body)
	if err != nil {
		return outcome{}, &Refusal{Verdict: Invalid, Reason: "compression", Message: err.Error()}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+path, bytes.NewReader(packed))
	if err != nil {
		return outcome{}, &Refusal{Verdict: Invalid, Reason: "request", Message: err.Error()}
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "rollscope")
	if s.e.Compression != "none" {
		req.Header.Set("Content-Encoding", s.e.Compression)
	}
	for k, v := range s.e.Headers {
		req.Header.Set(k, v)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return outcome{}, &Refusal{Verdict: Down, Reason: "unreachable", Message: err.Error()}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil && resp.StatusCode/100 != 2 {
		answer = nil // the status says enough
	}
	if resp.StatusCode/100 == 2 {
		return readOutcome(answer), nil
	}
	return outcome{}, refusalOfHTTP(resp, answer)
}

// refusalOfHTTP reads a status as OTLP's specification says, with the same addition as [refusalOf].
func refusalOfHTTP(resp *http.Response, answer []byte) *Refusal {
	x := &Refusal{Verdict: Invalid, Reason: "http_" + strconv.Itoa(resp.StatusCode), Message: resp.Status}
	var st statuspb.Status
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/x-protobuf") && proto.Unmarshal(answer, &st) == nil {
		answer = []byte(st.Message)
	}
	if len(answer) > 0 {
		x.Message += ": " + text(answer[:min(len(answer), 300)])
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		x.Verdict = Down
		if s, err := strconv.Atoi(strings.TrimSpace(resp.Header.Get("Retry-After"))); err == nil {
			x.After = min(time.Duration(max(s, 0))*time.Second, 10*time.Minute)
		} else if t, err := http.ParseTime(resp.Header.Get("Retry-After")); err == nil {
			if sent, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
				x.After = min(max(t.Sub(sent), 0), 10*time.Minute)
			}
		}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusProxyAuthRequired,
		http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		x.Verdict, x.After = Down, 10*time.Second
	case http.StatusRequestEntityTooLarge:
		x.Verdict = TooBig
	}
	return x
}

// pack compresses a body.
func pack(how string, body []byte) ([]byte, error) {
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch how {
	case "gzip":
		w, err = gzip.NewWriterLevel(&b, gzip.BestSpeed)
	case "zstd":
		w, err = zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	default:
		return body, nil
	}
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
