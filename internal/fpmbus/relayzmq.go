package fpmbus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// RelayZMQOptions are for [NewRelayZMQ]: an endpoint to listen at, or brokers to connect to.
type RelayZMQOptions struct {
	RelayTo
	// Bind is where subscribers connect: tcp://HOST:PORT (port 0 takes a free one) or ipc:///PATH. They get
	// the topic "forward-pass-metrics", as from a publisher of Dynamo's.
	Bind string
	// Brokers are XSUB endpoints; each gets every message, with the whole subject as the topic.
	Brokers []string
	Retry   Retry
	// Queue bounds what waits for one subscriber or broker, in messages; when it is full what comes is lost
	// for that one, counted as "subscriber_full". 0: 100,000, as Dynamo's own.
	Queue int
	// QueueBytes bounds the same in bytes; 0: 64 MiB.
	QueueBytes int64
	Logger     *slog.Logger // nil logs nothing
}

// maxSubscribers bounds connections to a relay's socket.
const maxSubscribers = 1024

// RelayZMQ is a [Sink] that publishes as Dynamo's event plane over ZMQ does. As with any PUB socket a
// message that nobody subscribes to is gone (counted as "no_subscriber"); with brokers, it waits in the
// outlet's queue until one is connected.
type RelayZMQ struct {
	o     RelayZMQOptions
	num   *numbering
	m     *meter
	lost  losses
	l     net.Listener
	most  int // connections to it
	frame []byte

	mu      sync.Mutex
	peers   map[*peer]struct{}
	current []*peer       // the same, for Take
	some    chan struct{} // closed while there is a peer that subscribed
}

// NewRelayZMQ makes a relay and binds its socket; a [Bus] runs it. Close releases the socket of one that
// was never run.
func NewRelayZMQ(o RelayZMQOptions) (*RelayZMQ, error) {
	if (o.Bind == "") == (len(o.Brokers) == 0) {
		return nil, errors.New("fpmbus: a relay to ZMQ needs an endpoint to bind or brokers, and not both")
	}
	num, err := newNumbering(o.RelayTo)
	if err != nil {
		return nil, err
	}
	o.RelayTo = num.to
	o.Retry = o.Retry.withDefaults()
	if o.Queue <= 0 {
		o.Queue = 100_000
	}
	if o.QueueBytes <= 0 {
		o.QueueBytes = 64 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	address := o.Bind
	if address == "" {
		address = strings.Join(o.Brokers, ",")
	}
	if o.Name == "" {
		o.Name = address
	}
	r := &RelayZMQ{o: o, num: num, most: maxSubscribers, peers: map[*peer]struct{}{}, some: make(chan struct{}), m: newMeter(o.Now, o.Name, PlaneZMQ, address)}
	for _, b := range o.Brokers {
		if _, _, err := endpoint(b); err != nil {
			return nil, err
		}
	}
	if o.Bind != "" {
		if r.l, err = bind(o.Bind); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// bind listens at a ZMQ endpoint. The file of a UNIX socket that nobody listens at is replaced.
func bind(at string) (net.Listener, error) {
	network, address, err := endpoint(at)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		if err := removeStale(address); err != nil {
			return nil, err
		}
	}
	lc := net.ListenConfig{KeepAliveConfig: keepAlive()}
	l, err := lc.Listen(context.Background(), network, address)
	if err != nil {
		return nil, fmt.Errorf("fpmbus: listen at %s: %w", at, err)
	}
	return l, nil
}

// removeStale removes a socket's file that a process left behind, and nothing else.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || strings.HasPrefix(path, "@") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("fpmbus: listen at %s: %w", path, err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("fpmbus: listen at %s: there is a file that is no socket: remove it or name another path", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("fpmbus: listen at %s: another process listens there", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("fpmbus: listen at %s: remove the socket that was left behind: %w", path, err)
	}
	return nil
}

// Endpoint is where subscribers connect, "" with brokers.
func (r *RelayZMQ) Endpoint() string {
	switch {
	case r.l == nil:
		return ""
	case r.l.Addr().Network() == "unix":
		return "ipc://" + r.l.Addr().String()
	}
	return "tcp://" + r.l.Addr().String()
}

// Close closes the socket.
func (r *RelayZMQ) Close() error {
	if r.l == nil {
		return nil
	}
	return r.l.Close()
}

// lastWords is how long Run waits for what peers have not been sent yet.
const lastWords = time.Second

// Run serves subscribers or keeps connections to brokers until ctx ends.
func (r *RelayZMQ) Run(ctx context.Context) error {
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		defer stop()
		for end := time.Now().Add(lastWords); time.Now().Before(end) && r.pending(); {
			time.Sleep(2 * time.Millisecond)
		}
	})()
	return r.run(inner)
}

// pending tells whether there is a peer that was not sent everything.
func (r *RelayZMQ) pending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.current {
		if p.rest() > 0 {
			return true
		}
	}
	return false
}

func (r *RelayZMQ) run(ctx context.Context) error {
	defer r.m.state(Ended, nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, b := range r.o.Brokers {
		wg.Go(func() { r.keep(ctx, b) })
	}
	if r.l == nil {
		<-ctx.Done()
		return nil
	}
	r.m.state(Listening, nil)
	defer context.AfterFunc(ctx, func() { _ = r.l.Close() })()
	defer r.l.Close()
	turns := make(chan struct{}, r.most)
	for {
		c, err := r.l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("fpmbus: the relay's socket at %s was closed", r.o.Bind)
		}
		if err != nil {
			r.m.wrong(fmt.Errorf("accept at %s: %w", r.o.Bind, err))
			if !sleep(ctx, r.o.Retry.Min) {
				return nil
			}
			continue
		}
		select {
		case turns <- struct{}{}: // also of one that does not say yet who it is
		default:
			_ = c.Close()
			r.m.failed("too_many_subscribers", fmt.Errorf("%d subscribers are connected to %s, no more are taken", r.most, r.o.Bind))
			continue
		}
		wg.Go(func() {
			defer func() { <-turns }()
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			z, err := handshake(c, "PUB", 64<<10, handshakeTimeout, "SUB", "XSUB")
			if err != nil {
				r.m.wrong(fmt.Errorf("a subscriber at %s: %w", c.RemoteAddr(), err))
				return
			}
			r.serve(ctx, z, false)
		})
	}
}

// keep keeps the connection to one broker.
func (r *RelayZMQ) keep(ctx context.Context, broker string) {
	wait := r.o.Retry.Min
	for ctx.Err() == nil {
		err := func() error {
			network, address, err := endpoint(broker)
			if err != nil {
				return err
			}
			d := net.Dialer{Timeout: handshakeTimeout, KeepAliveConfig: keepAlive()}
			c, err := d.DialContext(ctx, network, address)
			if err != nil {
				return err
			}
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			z, err := handshake(c, "PUB", 64<<10, handshakeTimeout, "XSUB", "SUB")
			if err != nil {
				return err
			}
			wait = r.o.Retry.Min
			r.m.state(Connected, nil)
			return r.serve(ctx, z, true)
		}()
		if ctx.Err() != nil {
			return
		}
		r.m.down(fmt.Errorf("broker %s: %w", broker, err))
		if !sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, r.o.Retry.Max)
	}
}

// serve reads subscriptions and writes messages until the connection ends.
func (r *RelayZMQ) serve(ctx context.Context, z *conn, broker bool) error {
	p := &peer{c: z, broker: broker, max: r.o.Queue, maxBytes: r.o.QueueBytes, wake: make(chan struct{}, 1), end: make(chan struct{})}
	r.mu.Lock()
	r.peers[p] = struct{}{}
	r.changed()
	r.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { p.write(ctx) })
	var err error
	for {
		var parts [][]byte
		if parts, err = z.message(); err != nil {
			break
		}
		if len(parts) == 1 && len(parts[0]) > 0 && parts[0][0] <= 1 {
			if p.subscribe(string(parts[0][1:]), parts[0][0] == 1) {
				r.mu.Lock()
				r.changed()
				r.mu.Unlock()
			}
		}
	}
	r.mu.Lock()
	delete(r.peers, p)
	r.changed()
	r.mu.Unlock()
	_ = z.Close()
	close(p.end)
	wg.Wait()
	r.lost.add("connection_lost", p.over())
	return err
}

// changed renews what Take sees; r.mu is held.
func (r *RelayZMQ) changed() {
	r.current = make([]*peer, 0, len(r.peers))
	for p := range r.peers {
		if len(*p.topics.Load()) > 0 {
			r.current = append(r.current, p)
		}
	}
	open := false
	select {
	case <-r.some:
		open = true
	default:
	}
	switch {
	case len(r.current) > 0 && !open:
		close(r.some)
	case len(r.current) == 0 && open:
		r.some = make(chan struct{})
	}
}

// Take implements [Sink].
func (r *RelayZMQ) Take(ctx context.Context, batch []Message) error {
	var peers []*peer
	for {
		r.mu.Lock()
		some := r.some
		peers = r.current
		r.mu.Unlock()
		if len(peers) > 0 || r.l != nil {
			break
		}
		select {
		case <-some:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	unfits := map[string]int64{}
	for i := range batch {
		m := &batch[i]
		if reason := unfit(m); reason != "" {
			unfits[reason]++
			continue
		}
		topic := Topic
		if r.l == nil {
			topic = m.stream.subject
		}
		r.frame = r.frame[:0]
		sent := false
		for _, p := range peers {
			if !p.wants(topic) {
				continue
			}
			if len(r.frame) == 0 {
				r.frame = m.event(r.frame, topic, r.o.Now)
			}
			sent = true
			if why := p.push(r.frame); why != "" {
				unfits[why]++
			}
		}
		if !sent {
			unfits["no_subscriber"]++
		}
	}
	for _, p := range peers {
		p.flush()
	}
	var n int64
	for reason, c := range unfits {
		r.lost.add(reason, c)
		n += c
	}
	if n > 0 {
		return &Lost{N: n, Err: fmt.Errorf("fpmbus: relay to ZMQ at %s: %d messages were not passed on: %v", r.m.s.Address, n, unfits)}
	}
	return nil
}

// event appends the four frames of the event plane.
func (m *Message) event(b []byte, topic string, now func() time.Time) []byte {
	var id [8]byte
	b = appendFrame(b, []byte(topic), true)
	binary.BigEndian.PutUint64(id[:], m.stream.publisher)
	b = appendFrame(b, id[:], true)
	binary.BigEndian.PutUint64(id[:], m.number)
	b = appendFrame(b, id[:], true)
	// The last frame's length is known when its envelope is written: room for a long header is left before.
	at := len(b)
	b = append(b, make([]byte, 9+5)...)
	b = AppendEnvelope(b, m.envelope(now))
	n := len(b) - at - 14
	b[at] = flagLong
	binary.BigEndian.PutUint64(b[at+1:], uint64(n+5))
	b[at+9] = 1
	binary.BigEndian.PutUint32(b[at+10:], uint32(n))
	return b
}

// Status tells how the socket or the connection to the brokers is.
func (r *RelayZMQ) Status() Status { return r.m.status() }

// Drops tells what the relay could not pass on. A message that two subscribers missed counts twice.
func (r *RelayZMQ) Drops() []Drop { return append(r.lost.list(r.o.Name), r.m.list()...) }

// Subscribers is how many are connected and have subscribed.
func (r *RelayZMQ) Subscribers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.current)
}

func (r *RelayZMQ) number(m *Message) { r.num.number(m) }

// peer is one subscriber or broker.
type peer struct {
	c        *conn
	broker   bool
	topics   atomicTopics
	max      int
	maxBytes int64
	wake     chan struct{}
	end      chan struct{}

	mu      sync.Mutex
	waiting []byte // whole messages
	n       int    // in waiting
	writing int    // in the buffer that is being written
	ended   bool   // nothing is written any more
}

// atomicTopics is a list that is replaced as a whole.
type atomicTopics struct{ p atomic.Pointer[[]string] }

// Load never returns nil.
func (t *atomicTopics) Load() *[]string {
	if p := t.p.Load(); p != nil {
		return p
	}
	return &[]string{}
}

// maxTopics bounds the subscriptions of one peer.
const maxTopics = 1024

// subscribe adds or removes a prefix and tells whether that changed anything. As in ZMQ, the same prefix
// may be subscribed to several times, and each must be taken back.
func (p *peer) subscribe(topic string, on bool) bool {
	old := *p.topics.Load()
	var topics []string
	if on {
		if len(old) >= maxTopics {
			return false
		}
		topics = append(append(topics, old...), topic)
	} else {
		for i, t := range old {
			if t == topic {
				topics = append(append(topics, old[:i]...), old[i+1:]...)
				p.topics.p.Store(&topics)
				return true
			}
		}
		return false
	}
	p.topics.p.Store(&topics)
	return true
}

func (p *peer) wants(topic string) bool {
	for _, t := range *p.topics.Load() {
		if strings.HasPrefix(topic, t) {
			return true
		}
	}
	return false
}

// push copies a message into what waits, or tells why that is lost.
func (p *peer) push(frames []byte) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended { // between the look at who is there and this one
		return "connection_lost"
	}
	if p.n+p.writing >= p.max || int64(len(p.waiting)+len(frames)) > p.maxBytes {
		return "subscriber_full"
	}
	p.waiting = append(p.waiting, frames...)
	p.n++
	return ""
}

func (p *peer) flush() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// write sends what waits, in one piece, until the connection ends.
func (p *peer) write(ctx context.Context) {
	var buf []byte
	for {
		p.mu.Lock()
		buf, p.waiting = p.waiting, buf[:0]
		p.writing, p.n = p.n, 0
		p.mu.Unlock()
		if len(buf) == 0 {
			select {
			case <-p.wake:
				continue
			case <-p.end:
				return
			case <-ctx.Done():
				return
			}
		}
		if _, err := p.c.Write(buf); err != nil {
			_ = p.c.Close() // the reader ends, too, and counts what is left
			return
		}
		if cap(buf) > 1<<20 {
			buf = nil // a burst is over
		}
	}
}

// over ends taking messages in and is rest from then on.
func (p *peer) over() int64 {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	return p.rest()
}

// rest is how many messages were not written for certain: those of a write that failed may have arrived.
func (p *peer) rest() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(p.n + p.writing)
}
