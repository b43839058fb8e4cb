package otlp

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // the compression that every exporter has; it registers itself
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
)

// services are OTLP's gRPC services. Each has one method, Export.
var services = [...]struct {
	name string
	kind signalKind
}{
	{"opentelemetry.proto.collector.trace.v1.TraceService", traces},
	{"opentelemetry.proto.collector.logs.v1.LogsService", logs},
	{"opentelemetry.proto.collector.metrics.v1.MetricsService", metrics},
	{"opentelemetry.proto.collector.profiles.v1development.ProfilesService", profiles},
}

// exportMethod is the full name of a service's method.
func exportMethod(k signalKind) string { return "/" + services[k].name + "/Export" }

// message is a gRPC message as bytes.
type message struct {
	data []byte
	buf  mem.Buffer // holds data when it is not nil
}

func (m *message) free() {
	if m.buf != nil {
		m.buf.Free()
		m.buf, m.data = nil, nil
	}
}

// rawCodec hands messages over as the bytes that they are. It says that it is protobuf, which they are.
type rawCodec struct{}

// Name implements encoding.CodecV2.
func (rawCodec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*message)
	if !ok {
		return nil, fmt.Errorf("otlp: cannot send a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(m.data)}, nil
}

// Unmarshal implements encoding.CodecV2. The message holds the buffer until it is freed.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		return fmt.Errorf("otlp: cannot receive a %T", v)
	}
	m.buf = data.MaterializeToBuffer(mem.DefaultBufferPool())
	m.data = m.buf.ReadOnlyData()
	return nil
}

// grpcServer makes the server. Methods are registered as streams of one message, since then reading the
// message is ours: a request that is too large or too slow is answered with words, and is counted.
func (r *Receiver) grpcServer() *grpc.Server {
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.MaxRecvMsgSize(r.limits.Expanded),
		grpc.MaxConcurrentStreams(uint32(min(r.limits.Waiting, math.MaxUint32))),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.MaxHeaderListSize(64 << 10),
		grpc.InitialWindowSize(1 << 20),
		grpc.InitialConnWindowSize(2 << 20),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 10 * time.Minute, Time: 2 * time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.UnknownServiceHandler(r.unknownMethod),
	}
	if r.o.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(r.o.TLS)))
	}
	s := grpc.NewServer(opts...)
	for _, svc := range services {
		s.RegisterService(&grpc.ServiceDesc{
			ServiceName: svc.name,
			Streams: []grpc.StreamDesc{{StreamName: "Export", Handler: func(_ any, stream grpc.ServerStream) error {
				return r.export(svc.kind, stream)
			}}},
		}, nil)
	}
	return s
}

// export answers one request.
func (r *Receiver) export(k signalKind, stream grpc.ServerStream) error {
	ctx := stream.Context()
	req, host := callerOf(ctx, exportMethod(k))
	from := sourceKey{"otlp_grpc", host}
	r.came(from, req.UserAgent())
	out, refused := r.exportTo(ctx, req, from, k, stream)
	if refused != nil {
		r.refused(from, refused)
		return refused.grpcError()
	}
	r.partly(from, out)
	return stream.SendMsg(&message{data: out.protobuf()})
}

func (r *Receiver) exportTo(ctx context.Context, req *http.Request, from sourceKey, k signalKind, stream grpc.ServerStream) (outcome, *Refusal) {
	if r.o.Authorize != nil {
		if err := r.o.Authorize(req); err != nil {
			return outcome{}, &Refusal{Verdict: Denied, Reason: "unauthorized", Message: err.Error()}
		}
	}
	if k == metrics || k == profiles {
		return outcome{}, notHere(k)
	}
	leave, refused := r.enter()
	if refused != nil {
		return outcome{}, refused
	}
	defer leave()
	m, refused := r.read(stream)
	if refused != nil {
		return outcome{}, refused
	}
	defer m.free()
	return r.take(ctx, from, k, m.data, false)
}

// read reads the message, for as long as a body may take.
func (r *Receiver) read(stream grpc.ServerStream) (*message, *Refusal) {
	type result struct {
		m   *message
		err error
	}
	got := make(chan result, 1)
	go func() { // ends with the stream when we give up
		m := &message{}
		err := stream.RecvMsg(m)
		got <- result{m, err}
	}()
	t := time.NewTimer(r.limits.Read)
	defer t.Stop()
	select {
	case x := <-got:
		if x.err == nil {
			return x.m, nil
		}
		return nil, r.unreadable(x.err)
	case <-t.C:
		return nil, &Refusal{Verdict: Busy, Reason: "slow_body", Message: fmt.Sprintf("the request was not complete after %s: send smaller batches", r.limits.Read)}
	}
}

// unreadable says why a message could not be read.
func (r *Receiver) unreadable(err error) *Refusal {
	st := status.Convert(err)
	switch st.Code() {
	case codes.ResourceExhausted:
		return &Refusal{Verdict: TooBig, Reason: "too_large", Message: fmt.Sprintf("the request is larger than %d bytes, unpacked: let the exporter send smaller batches (OTEL_BSP_MAX_EXPORT_BATCH_SIZE, send_batch_max_size)", r.limits.Expanded)}
	case codes.Canceled, codes.DeadlineExceeded:
		return &Refusal{Verdict: Down, Reason: "canceled", Message: "the sender gave up: " + st.Message()}
	case codes.Unimplemented:
		return &Refusal{Verdict: Unknown, Reason: "compression", Message: st.Message() + ": use gzip, zstd or none"}
	}
	return &Refusal{Verdict: Invalid, Reason: "unreadable", Message: "the message cannot be read: " + st.Message()}
}

// notHere is the answer to signals that are not taken.
func notHere(k signalKind) *Refusal {
	x := &Refusal{Verdict: Unknown, Reason: k.String() + "_not_taken"}
	switch k {
	case metrics:
		x.Message = "metrics are not taken here: let Rollscope scrape them, or send them over HTTP to /api/v1/otlp/v1/metrics of its web address (otlphttp exporter); switch this exporter off with OTEL_METRICS_EXPORTER=none"
	default:
		x.Message = k.String() + " are not taken: send traces and logs"
	}
	return x
}

// unknownMethod answers whatever is no service of ours.
func (r *Receiver) unknownMethod(_ any, stream grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(stream)
	return status.Errorf(codes.Unimplemented, "%s is not here: this is an OTLP receiver for traces and logs", name)
}

// callerOf is the request as an HTTP request without a body, and the caller's host.
func callerOf(ctx context.Context, method string) (*http.Request, string) {
	req := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: method}, Header: http.Header{}, Proto: "HTTP/2.0", ProtoMajor: 2}
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		for k, v := range md {
			switch {
			case k == ":authority" && len(v) > 0:
				req.Host = v[0]
			case !strings.HasPrefix(k, ":") && !strings.HasSuffix(k, "-bin"):
				req.Header[http.CanonicalHeaderKey(k)] = v
			}
		}
	}
	host := ""
	if p, ok := peer.FromContext(ctx); ok {
		if p.Addr != nil {
			req.RemoteAddr = p.Addr.String()
			host = hostOf(req.RemoteAddr)
		}
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			state := info.State
			req.TLS = &state
		}
	}
	return req.WithContext(ctx), host
}

// hostOf is an address without its port.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr // of a UNIX socket
	}
	return host
}

// grpcError is the refusal as a status with its details.
func (r *Refusal) grpcError() error {
	st := &statuspb.Status{}
	if err := proto.Unmarshal(r.statusProtobuf(), st); err != nil {
		return status.Error(r.code(), r.Message)
	}
	return status.ErrorProto(st)
}
