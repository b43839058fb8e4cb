package fpmbus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Channel is one publisher of the event plane over ZMQ, as discovery knows it.
type Channel struct {
	Endpoint string // tcp://HOST:PORT
	Scope    Scope
}

// Discover lists the publishers of forward passes that exist now. It may be called often and must return
// when ctx ends.
type Discover func(ctx context.Context) ([]Channel, error)

// PlaneZMQOptions are for [NewPlaneZMQ]: brokers, or channels and discovery.
type PlaneZMQOptions struct {
	Common
	// Brokers are the XPUB endpoints that subscribers connect to, all of them; see [Brokers].
	Brokers []string
	// Channels are publishers that are known without discovery.
	Channels []Channel
	Discover Discover      // nil: only Channels
	Every    time.Duration // how often Discover is asked; 0: 5 s
	Own      *Own          // relays of this process, whose messages are not taken in; may be nil
}

// maxChannels bounds how many publishers one source connects to.
const maxChannels = 4096

type planeZMQ struct {
	o    PlaneZMQOptions
	all  *meter // of discovery and of whatever has no connection of its own
	emit func(Message)

	mu   sync.Mutex
	pubs *publishers
	open map[string]*channel
	list []*channel // in the order in which they came; ended ones stay until their publisher is replaced
	gone map[string]int64
}

// channel is one connection.
type channel struct {
	Channel
	m    *meter
	slab slab
	stop context.CancelFunc
	done chan struct{}
}

// NewPlaneZMQ receives forward passes from Dynamo's event plane over ZMQ: from brokers, which carry all
// publishers, or from each publisher directly.
func NewPlaneZMQ(o PlaneZMQOptions) (Source, error) {
	if len(o.Brokers) > 0 == (len(o.Channels) > 0 || o.Discover != nil) {
		return nil, errors.New("fpmbus: an event plane over ZMQ needs brokers, or channels or discovery, and not both")
	}
	for _, b := range o.Brokers {
		if _, _, err := endpoint(b); err != nil {
			return nil, err
		}
	}
	for _, c := range o.Channels {
		if _, _, err := endpoint(c.Endpoint); err != nil {
			return nil, err
		}
	}
	if o.Every <= 0 {
		o.Every = 5 * time.Second
	}
	o.Common = o.Common.withDefaults("event plane (zmq)")
	p := &planeZMQ{o: o, open: map[string]*channel{}, pubs: newPublishers(false), gone: map[string]int64{}}
	p.all = newMeter(o.Now, o.Name, PlaneZMQ, "discovery")
	return p, nil
}

func (p *planeZMQ) Run(ctx context.Context, emit func(Message)) error {
	p.emit = emit
	for _, b := range p.o.Brokers {
		p.start(ctx, Channel{Endpoint: b})
	}
	for _, c := range p.o.Channels {
		p.start(ctx, c)
	}
	if p.o.Discover == nil {
		<-ctx.Done()
	}
	for ctx.Err() == nil {
		found, err := p.o.Discover(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			// What is connected stays: discovery that cannot be asked says nothing about publishers.
			p.all.state(stateOf(err), err)
		default:
			p.all.state(Connected, nil)
			p.follow(ctx, found)
		}
		if !sleep(ctx, p.o.Every) {
			break
		}
	}
	p.mu.Lock()
	open := slices.Clone(p.list)
	p.mu.Unlock()
	for _, c := range open {
		c.stop()
		<-c.done
	}
	p.all.state(Ended, nil)
	return nil
}

// follow connects to what is new and leaves what is gone.
func (p *planeZMQ) follow(ctx context.Context, found []Channel) {
	want := map[string]Channel{}
	for _, c := range found {
		if _, _, err := endpoint(c.Endpoint); err != nil {
			p.all.failed("bad_endpoint", err)
			continue
		}
		if len(want) >= maxChannels {
			p.all.failed("too_many_channels", fmt.Errorf("discovery names more than %d publishers, the others are not followed", maxChannels))
			break
		}
		want[c.Endpoint] = c
	}
	for _, c := range p.o.Channels {
		want[c.Endpoint] = c
	}
	p.mu.Lock()
	var leave []*channel
	for at, c := range p.open {
		if w, ok := want[at]; !ok || w.Scope != c.Scope {
			leave = append(leave, c)
			delete(p.open, at)
		}
	}
	p.mu.Unlock()
	for _, c := range leave {
		c.stop()
		<-c.done
		p.mu.Lock()
		p.list = slices.DeleteFunc(p.list, func(o *channel) bool { return o == c })
		for _, d := range c.m.list() { // its counts outlive it
			p.gone[d.Reason] += d.Count
		}
		p.mu.Unlock()
	}
	for _, c := range found {
		if w, ok := want[c.Endpoint]; ok {
			p.start(ctx, w)
		}
	}
}

func (p *planeZMQ) start(ctx context.Context, w Channel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[w.Endpoint] != nil {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	c := &channel{Channel: w, stop: stop, done: make(chan struct{}), m: newMeter(p.o.Now, p.o.Name, PlaneZMQ, w.Endpoint)}
	p.open[w.Endpoint] = c
	p.list = append(p.list, c)
	topic := Topic
	if len(p.o.Brokers) > 0 {
		topic = "namespace." // a broker's topics are whole subjects, and a prefix is all that can be asked for
	}
	go func() {
		defer close(c.done)
		(&subscription{c: p.o.Common, address: w.Endpoint, topic: topic, m: c.m, take: func(parts [][]byte) { p.take(c, parts) }}).run(ctx)
	}()
}

// take reads the four frames of the event plane: topic, publisher, sequence, and the envelope behind a
// header of five bytes.
func (p *planeZMQ) take(c *channel, parts [][]byte) {
	if len(parts) != 4 || len(parts[1]) != 8 || len(parts[2]) != 8 {
		c.m.failed("bad_frames", fmt.Errorf("a message from %s has %d frames, expected topic, publisher, sequence and event", c.Endpoint, len(parts)))
		return
	}
	scope, subject := c.Scope, topicOf(parts[0])
	if subject != Topic {
		var ok bool
		if scope, ok = ParseSubject(subject); !ok {
			c.m.other()
			return
		}
	}
	body := parts[3]
	if len(body) < 5 || body[0] != 1 || uint64(binary.BigEndian.Uint32(body[1:])) != uint64(len(body)-5) {
		c.m.failed("bad_frames", fmt.Errorf("the event of a message from %s (%d bytes) does not begin with version 1 and its length", c.Endpoint, len(body)))
		return
	}
	e, err := DecodeEnvelope(body[5:])
	if err != nil {
		c.m.failed("bad_envelope", fmt.Errorf("from %s: %w", c.Endpoint, err))
		return
	}
	if p.o.Own.has(e.Publisher) {
		c.m.other()
		return
	}
	now := p.o.Now()
	m := Message{
		Source: p.o.Name, Kind: PlaneZMQ, Subject: subject, Namespace: scope.Namespace, Component: scope.Component, Endpoint: scope.Endpoint,
		DPRank: -1, Publisher: e.Publisher, HasPublisher: true, Sequence: e.Sequence, HasSequence: true, Published: e.Published,
		Received: now, Payload: c.slab.keep(e.Payload),
	}
	// Brokers that run in pairs deliver everything twice, so the numbers are looked at across connections,
	// and in the order in which the messages are handed on.
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.pubs.see(e.Publisher, subject, e.Sequence, e.Published)
	c.m.saw(a)
	if a.repeat {
		return
	}
	c.m.got(now, len(m.Payload))
	p.emit(m)
}

func (p *planeZMQ) channels() []*channel {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.list)
}

// Status has an entry for each connection, and one for discovery when there is any.
func (p *planeZMQ) Status() []Status {
	var out []Status
	if p.o.Discover != nil {
		out = append(out, p.all.status())
	}
	for _, c := range p.channels() {
		out = append(out, c.m.status())
	}
	return out
}

func (p *planeZMQ) Drops() []Drop {
	out := p.all.list()
	p.mu.Lock() // for both: a channel that goes is in one of them
	for _, c := range p.list {
		out = append(out, c.m.list()...)
	}
	for reason, n := range p.gone {
		out = append(out, Drop{p.o.Name, reason, n})
	}
	p.mu.Unlock()
	return merged(out)
}

// Brokers reads the form of DYN_ZMQ_BROKER_URL: "xsub=URL;URL , xpub=URL;URL". Publishers connect to the
// first, subscribers to the second.
func Brokers(s string) (xsub, xpub []string, err error) {
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		key, urls, ok := strings.Cut(part, "=")
		var to *[]string
		switch strings.TrimSpace(key) {
		case "xsub":
			to = &xsub
		case "xpub":
			to = &xpub
		}
		if !ok || to == nil {
			return nil, nil, fmt.Errorf("fpmbus: brokers %q: %q is neither xsub=URL nor xpub=URL", s, part)
		}
		for u := range strings.SplitSeq(urls, ";") {
			if u = strings.TrimSpace(u); u == "" {
				continue
			}
			if _, _, err := endpoint(u); err != nil {
				return nil, nil, err
			}
			*to = append(*to, u)
		}
	}
	if len(xsub)+len(xpub) == 0 {
		return nil, nil, fmt.Errorf("fpmbus: brokers %q name no URL: write xsub=tcp://HOST:PORT , xpub=tcp://HOST:PORT", s)
	}
	return xsub, xpub, nil
}
