package fpmbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// EmbeddedNATSOptions are for [StartEmbeddedNATS].
type EmbeddedNATSOptions struct {
	// Listen is HOST:PORT for other processes (port 0 takes a free one); "" opens no port, then only this
	// process can use the server.
	Listen string
	// User and Password are asked of clients when User is set.
	User, Password string
	Logger         *slog.Logger // nil logs nothing
}

// EmbeddedNATS is a NATS server in this process, for one machine: core NATS, nothing is stored. It can be
// given as [NATSServer.InProcess].
type EmbeddedNATS struct{ s *server.Server }

// StartEmbeddedNATS starts a server and returns when it takes connections. It stops when ctx ends; Wait
// returns then.
func StartEmbeddedNATS(ctx context.Context, o EmbeddedNATSOptions) (*EmbeddedNATS, error) {
	opts := &server.Options{
		ServerName: "rollscope", DontListen: o.Listen == "", NoSigs: true, NoLog: true,
		Username: o.User, Password: o.Password, MaxPayload: 8 << 20, MaxPending: 64 << 20,
	}
	if o.Listen != "" {
		host, port, err := net.SplitHostPort(o.Listen)
		if err != nil {
			return nil, fmt.Errorf("fpmbus: embedded NATS: %q is no HOST:PORT: %w", o.Listen, err)
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("fpmbus: embedded NATS: the port of %q is no number: %w", o.Listen, err)
		}
		opts.Host, opts.Port = host, int(n)
		if n == 0 {
			opts.Port = server.RANDOM_PORT
		}
		// The server only logs when it cannot listen, so that is tried first.
		l, err := net.Listen("tcp", o.Listen)
		if err != nil {
			return nil, fmt.Errorf("fpmbus: embedded NATS: %w", err)
		}
		_ = l.Close()
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("fpmbus: embedded NATS: %w", err)
	}
	if o.Logger != nil {
		opts.NoLog = false
		s.SetLoggerV2(natsLog{o.Logger.With("component", "nats")}, false, false, false)
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, errors.New("fpmbus: embedded NATS did not take connections within 10 s")
	}
	context.AfterFunc(ctx, s.Shutdown)
	return &EmbeddedNATS{s}, nil
}

// URL is where other processes reach the server, "" without a port.
func (e *EmbeddedNATS) URL() string {
	if a := e.s.Addr(); a != nil {
		return "nats://" + a.String()
	}
	return ""
}

// InProcessConn implements [nats.InProcessConnProvider].
func (e *EmbeddedNATS) InProcessConn() (net.Conn, error) { return e.s.InProcessConn() }

// Wait returns when the server has stopped.
func (e *EmbeddedNATS) Wait() { e.s.WaitForShutdown() }

// natsLog passes on what the server says that somebody must know.
type natsLog struct{ l *slog.Logger }

func (n natsLog) say(level slog.Level, format string, v []any) {
	n.l.Log(context.Background(), level, strings.TrimSuffix(fmt.Sprintf(format, v...), "\n"))
}

func (n natsLog) Noticef(format string, v ...any) { n.say(slog.LevelDebug, format, v) }
func (n natsLog) Warnf(format string, v ...any)   { n.say(slog.LevelWarn, format, v) }
func (n natsLog) Errorf(format string, v ...any)  { n.say(slog.LevelError, format, v) }
func (n natsLog) Fatalf(format string, v ...any)  { n.say(slog.LevelError, format, v) }
func (n natsLog) Debugf(string, ...any)           {}
func (n natsLog) Tracef(string, ...any)           {}

var _ server.Logger = natsLog{}
