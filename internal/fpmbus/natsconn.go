package fpmbus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// NATSServer says where a NATS server is and how it lets us in.
type NATSServer struct {
	URL string // nats://HOST:4222, several with commas; "" with InProcess
	// InProcess is an embedded server ([EmbeddedNATS]) that is reached without a port.
	InProcess nats.InProcessConnProvider
	// At most one of these; the first that is set counts.
	User, Password, Token, NKeySeedFile, CredentialsFile string
	// RootCAs are PEM files that a server's certificate is checked with, for tls:// URLs.
	RootCAs []string
}

func (s NATSServer) address() string {
	if s.InProcess != nil {
		return "embedded"
	}
	return s.URL
}

func (s NATSServer) check() error {
	if s.URL == "" && s.InProcess == nil {
		return errors.New("fpmbus: NATS needs the URL of a server, such as nats://localhost:4222")
	}
	return nil
}

// events are told from goroutines of the client.
type events struct {
	up    func(nc *nats.Conn, again bool)
	down  func(error)
	wrong func(*nats.Subscription, error)
}

// connect never gives up by itself: it returns at once, and the events tell what becomes of it. more are
// further options.
func (s NATSServer) connect(retry Retry, ev events, more ...nats.Option) (*nats.Conn, error) {
	first := true
	opts := []nats.Option{
		nats.Name("rollscope"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(func(attempts int) time.Duration {
			return min(retry.Min<<min(attempts, 20), retry.Max)
		}),
		nats.ConnectHandler(func(nc *nats.Conn) { first = false; ev.up(nc, false) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { again := !first; first = false; ev.up(nc, again) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { ev.down(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { ev.down(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { ev.wrong(sub, err) }),
		nats.PingInterval(20 * time.Second), nats.IgnoreAuthErrorAbort(),
	}
	switch {
	case s.User != "":
		opts = append(opts, nats.UserInfo(s.User, s.Password))
	case s.Token != "":
		opts = append(opts, nats.Token(s.Token))
	case s.NKeySeedFile != "":
		o, err := nats.NkeyOptionFromSeed(s.NKeySeedFile)
		if err != nil {
			return nil, fmt.Errorf("fpmbus: NATS: read the nkey seed %s: %w", s.NKeySeedFile, err)
		}
		opts = append(opts, o)
	case s.CredentialsFile != "":
		opts = append(opts, nats.UserCredentials(s.CredentialsFile))
	}
	if len(s.RootCAs) > 0 {
		opts = append(opts, nats.RootCAs(s.RootCAs...))
	}
	if s.InProcess != nil {
		opts = append(opts, nats.InProcessServer(s.InProcess))
	}
	nc, err := nats.Connect(s.URL, append(opts, more...)...)
	if err != nil {
		return nil, fmt.Errorf("fpmbus: NATS at %s: %w", s.address(), err)
	}
	return nc, nil
}

// PlaneNATSOptions are for [NewPlaneNATS].
type PlaneNATSOptions struct {
	Common
	Server NATSServer
	// Subjects that are subscribed to; nil takes namespace.>, which has all forms. Of what comes, only
	// forward passes are handed on. On a plane with much other traffic (KV events) narrower subjects save
	// work: namespace.*.component.*.endpoint.*.forward-pass-metrics.
	Subjects []string
	Own      *Own // relays of this process, whose messages are not taken in; may be nil
}

type planeNATS struct {
	o    PlaneNATSOptions
	m    *meter
	pubs *publishers
}

// NewPlaneNATS receives forward passes from Dynamo's event plane over core NATS.
func NewPlaneNATS(o PlaneNATSOptions) (Source, error) {
	if err := o.Server.check(); err != nil {
		return nil, err
	}
	if len(o.Subjects) == 0 {
		o.Subjects = []string{"namespace.>"}
	}
	for _, s := range o.Subjects {
		if s == "" || strings.ContainsAny(s, " \t\r\n") {
			return nil, fmt.Errorf("fpmbus: %q is no NATS subject", s)
		}
	}
	o.Common = o.Common.withDefaults(o.Server.address())
	return &planeNATS{o: o, m: newMeter(o.Now, o.Name, PlaneNATS, o.Server.address()), pubs: newPublishers(false)}, nil
}

func (p *planeNATS) Run(ctx context.Context, emit func(Message)) error {
	defer p.m.state(Ended, nil)
	subscribed := make(chan struct{}) // nc is set, and the subscriptions were sent or wait to be
	mark := sync.OnceFunc(func() { close(subscribed) })
	defer mark()
	var nc *nats.Conn
	var err error
	nc, err = p.o.Server.connect(p.o.Retry, events{
		up: func(*nats.Conn, bool) {
			// Connected means that nothing is missed from here on, so the server must have the subscriptions.
			<-subscribed
			ctx, cancel := context.WithTimeout(ctx, flushTimeout)
			defer cancel()
			if nc == nil {
				return
			}
			if err := nc.FlushWithContext(ctx); err != nil {
				p.m.wrong(fmt.Errorf("subscribe: %w", err))
				return
			}
			p.m.state(Connected, nil)
		},
		down: func(err error) { p.m.down(err) },
		wrong: func(_ *nats.Subscription, err error) {
			if !errors.Is(err, nats.ErrSlowConsumer) { // that is counted below
				p.m.wrong(err)
				p.o.Logger.Warn("NATS reports an error", "err", err)
			}
		},
	})
	if err != nil {
		return err
	}
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	var subs []*nats.Subscription
	lost := make([]int, len(p.o.Subjects))
	count := func() {
		for i, s := range subs {
			if n, err := s.Dropped(); err == nil && n > lost[i] {
				p.m.drop("client_full", int64(n-lost[i]))
				lost[i] = n
			}
		}
	}
	// One goroutine handles the messages of all subscriptions, in the order in which they came.
	in := make(chan *nats.Msg, 8192)
	for _, subject := range p.o.Subjects {
		s, err := nc.ChanSubscribe(subject, in)
		if err != nil {
			mark() // the handlers run one after the other, and the first may wait for it
			nc.Close()
			<-closed
			return fmt.Errorf("fpmbus: NATS at %s: subscribe to %s: %w", p.o.Server.address(), subject, err)
		}
		subs = append(subs, s)
	}
	mark()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case m := <-in:
			p.take(m, emit)
		case <-tick.C:
			count()
		case <-ctx.Done():
			for len(in) > 0 { // what was received is not thrown away
				p.take(<-in, emit)
			}
			count()
			nc.Close()
			<-closed
			return nil
		}
	}
}

func (p *planeNATS) take(m *nats.Msg, emit func(Message)) {
	if m == nil {
		return
	}
	scope, ok := ParseSubject(m.Subject)
	if !ok {
		p.m.other()
		return
	}
	e, err := DecodeEnvelope(m.Data)
	if err != nil {
		p.m.failed("bad_envelope", fmt.Errorf("subject %s: %w", m.Subject, err))
		return
	}
	if len(e.Payload) > p.o.MaxMessage {
		p.m.failed("too_large", fmt.Errorf("subject %s: a payload of %d bytes, at most %d are taken", m.Subject, len(e.Payload), p.o.MaxMessage))
		return
	}
	if p.o.Own.has(e.Publisher) {
		p.m.other()
		return
	}
	a := p.pubs.see(e.Publisher, m.Subject, e.Sequence, e.Published)
	p.m.saw(a)
	if a.repeat {
		return
	}
	now := p.o.Now()
	p.m.got(now, len(e.Payload))
	emit(Message{
		Source: p.o.Name, Kind: PlaneNATS, Subject: m.Subject, Namespace: scope.Namespace, Component: scope.Component, Endpoint: scope.Endpoint,
		DPRank: -1, Publisher: e.Publisher, HasPublisher: true, Sequence: e.Sequence, HasSequence: true, Published: e.Published,
		Received: now, Payload: e.Payload, // the client gives every message a buffer of its own
	})
}

func (p *planeNATS) Status() []Status { return []Status{p.m.status()} }
func (p *planeNATS) Drops() []Drop    { return p.m.list() }
