package fpmbus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"syscall"
	"time"
)

// Retry is how often what is not there is tried again: after Min, then twice as long each time, at most Max.
// Zero fields take 100 ms and 5 s.
type Retry struct{ Min, Max time.Duration }

func (r Retry) withDefaults() Retry {
	if r.Min <= 0 {
		r.Min = 100 * time.Millisecond
	}
	if r.Max < r.Min {
		r.Max = max(r.Min, 5*time.Second)
	}
	return r
}

// Common is what every source takes.
type Common struct {
	Name   string           // in messages, status and counters; "" takes the address
	Now    func() time.Time // nil is the clock
	Logger *slog.Logger     // nil logs nothing
	Retry  Retry
	// MaxMessage bounds one message or line in bytes; larger ones are counted as "too_large". 0: 1 MiB.
	MaxMessage int
}

func (c Common) withDefaults(address string) Common {
	if c.Name == "" {
		c.Name = address
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("component", "fpmbus", "source", c.Name)
	c.Retry = c.Retry.withDefaults()
	if c.MaxMessage <= 0 {
		c.MaxMessage = 1 << 20
	}
	return c
}

const handshakeTimeout = 10 * time.Second

// keepAlive notices within half a minute that a host is gone. There is nothing else to tell by: a publisher
// may be silent, and a subscriber never sends.
func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}
}

// subscription is one SUB socket with one connection that is made again whenever it ends.
type subscription struct {
	c       Common
	address string
	topic   string // prefix
	m       *meter
	take    func(parts [][]byte) // the parts are good until the return
	lost    func()               // the connection was made anew; may be nil
}

// run keeps the connection until ctx ends.
func (s *subscription) run(ctx context.Context) {
	defer s.m.state(Ended, nil)
	wait := s.c.Retry.Min
	for ctx.Err() == nil {
		before := s.m.status().Messages
		err := s.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if st := s.m.status(); st.State == Connected {
			s.m.state(Down, err)
			s.c.Logger.Warn("the connection ended, it is made again", "address", s.address, "err", err)
			if st.Messages > before {
				wait = s.c.Retry.Min
			}
		} else {
			s.m.state(stateOf(err), err)
		}
		if !sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, s.c.Retry.Max)
	}
}

// once connects and reads until something fails.
func (s *subscription) once(ctx context.Context) error {
	network, address, err := endpoint(s.address)
	if err != nil {
		return err
	}
	d := net.Dialer{Timeout: handshakeTimeout, KeepAliveConfig: keepAlive()}
	nc, err := d.DialContext(ctx, network, address)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", s.address, err)
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
	z, err := handshake(nc, "SUB", s.c.MaxMessage, handshakeTimeout, "PUB", "XPUB")
	if err != nil {
		return fmt.Errorf("connect to %s: %w", s.address, err)
	}
	if _, err := nc.Write(appendFrame(nil, append([]byte{1}, s.topic...), false)); err != nil {
		return fmt.Errorf("subscribe at %s: %w", s.address, err)
	}
	if s.lost != nil {
		s.lost()
	}
	s.m.state(Connected, nil)
	for {
		parts, err := z.message()
		switch {
		case errors.Is(err, errTooLarge):
			s.m.failed("too_large", err)
		case err != nil:
			return fmt.Errorf("read from %s: %w", s.address, err)
		default:
			s.take(parts)
		}
	}
}

// stateOf tells what an error of connecting means.
func stateOf(err error) State {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return Missing
	case errors.Is(err, fs.ErrPermission):
		return Refused
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		return Missing
	}
	return Refused
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// EngineSocketOptions are for [NewEngineSocket].
type EngineSocketOptions struct {
	Common
	Endpoint string // ipc:///tmp/sglang-fpm.0, tcp://HOST:20380
	DPRank   int    // that the socket belongs to, -1: not known (the payload says it)
	// Namespace and Component go into the messages when they are known from elsewhere.
	Namespace, Component string
}

// engineSocket is the SUB side of one engine's PUB socket.
type engineSocket struct {
	o    EngineSocketOptions
	m    *meter
	emit func(Message)
	seq  sequence
	slab slab
}

// NewEngineSocket receives from the PUB socket of an engine: three frames, an empty topic, a number and the
// payload. An engine has one socket for each data-parallel rank; [EngineSockets] names them all.
func NewEngineSocket(o EngineSocketOptions) (Source, error) {
	if _, _, err := endpoint(o.Endpoint); err != nil {
		return nil, err
	}
	if o.DPRank < -1 {
		return nil, fmt.Errorf("fpmbus: the rank of %s is %d: use -1 for one that is not known", o.Endpoint, o.DPRank)
	}
	o.Common = o.Common.withDefaults(o.Endpoint)
	return &engineSocket{o: o, m: newMeter(o.Now, o.Name, EngineSocket, o.Endpoint), seq: sequence{ordered: true}}, nil
}

func (s *engineSocket) Run(ctx context.Context, emit func(Message)) error {
	s.emit = emit
	(&subscription{c: s.o.Common, address: s.o.Endpoint, m: s.m, take: s.take}).run(ctx)
	return nil
}

func (s *engineSocket) take(parts [][]byte) {
	if len(parts) != 3 || len(parts[1]) != 8 {
		s.m.failed("bad_frames", fmt.Errorf("a message of %s has %d frames, expected an empty topic, a number of 8 bytes and a payload", s.o.Endpoint, len(parts)))
		return
	}
	n := binary.BigEndian.Uint64(parts[1])
	a := s.seq.see(n, time.Time{})
	s.m.saw(a)
	if a.repeat {
		return
	}
	now := s.o.Now()
	s.m.got(now, len(parts[2]))
	s.emit(Message{
		Source: s.o.Name, Kind: EngineSocket, Namespace: s.o.Namespace, Component: s.o.Component, DPRank: s.o.DPRank,
		Sequence: n, HasSequence: true, Received: now, Payload: s.slab.keep(parts[2]),
	})
}

func (s *engineSocket) Status() []Status { return []Status{s.m.status()} }
func (s *engineSocket) Drops() []Drop    { return s.m.list() }

// EngineSockets names the sockets of all ranks of an engine. SGLang appends the rank to an ipc:// endpoint
// (ipc:///tmp/sglang-fpm.0, .1, ...); a tcp:// endpoint's port is the first rank's and counts on, as
// vLLM's does.
func EngineSockets(base string, ranks int) ([]string, error) {
	network, address, err := endpoint(base)
	if err != nil {
		return nil, err
	}
	if ranks < 1 || ranks > 4096 {
		return nil, fmt.Errorf("fpmbus: %d ranks at %s: expected 1 to 4096", ranks, base)
	}
	var out []string
	if network == "unix" {
		for r := range ranks {
			out = append(out, fmt.Sprintf("%s.%d", base, r))
		}
		return out, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	first, err := net.LookupPort("tcp", port)
	if err != nil || first+ranks-1 > 65535 {
		return nil, fmt.Errorf("fpmbus: the port of %s must be a number with room for %d ranks above it", base, ranks)
	}
	for r := range ranks {
		out = append(out, "tcp://"+net.JoinHostPort(host, fmt.Sprint(first+r)))
	}
	return out, nil
}
