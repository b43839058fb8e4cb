package fpmbus

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// queue holds messages for one outlet, bounded in number and bytes. When it is full the oldest goes: what
// comes out has one gap, and is as fresh as can be.
type queue struct {
	mu       sync.Mutex
	ring     []Message
	head, n  int
	bytes    int64
	max      int
	maxBytes int64
	lost     int64
	high     int // most that ever waited
	closed   bool
	number   func(*Message) // called for each message in the order of the queue; may be nil
	wake     chan struct{}  // holds one token when there may be something to take
	room     chan struct{}  // holds one token when something was taken
}

func newQueue(messages int, bytes int64) *queue {
	return &queue{max: messages, maxBytes: bytes, wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// push adds a message and drops the oldest while there is no room. One that is larger than the whole queue
// is lost itself.
func (q *queue) push(m Message) {
	q.mu.Lock()
	q.add(m)
	q.mu.Unlock()
	signal(q.wake)
}

// pushWaiting adds a message when it pushes nothing out. It returns false when ctx ends before that: the
// message is not in the queue then.
func (q *queue) pushWaiting(ctx context.Context, m Message) bool {
	for ctx.Err() == nil {
		// Looked at and added under one lock: of several that wait, the room is one's.
		q.mu.Lock()
		fits := q.n == 0 || q.closed || q.n < q.max && q.bytes+int64(len(m.Payload)) <= q.maxBytes
		if fits {
			q.add(m)
		}
		q.mu.Unlock()
		if fits {
			signal(q.wake)
			signal(q.room) // another may wait, too, and looks for itself
			return true
		}
		select {
		case <-ctx.Done():
		case <-q.room:
		}
	}
	signal(q.room) // the token may have come at the same moment, and is another's then
	return false
}

// add is what push does; q.mu is held.
func (q *queue) add(m Message) {
	size := int64(len(m.Payload))
	if q.closed || size > q.maxBytes {
		if q.number != nil {
			q.number(new(Message{Namespace: m.Namespace, Component: m.Component, Endpoint: m.Endpoint})) // its number is a gap
		}
		q.lost++
		return
	}
	for q.n > 0 && (q.n == q.max || q.bytes+size > q.maxBytes) {
		q.pop()
		q.lost++
	}
	if q.n == len(q.ring) {
		q.grow()
	}
	at := (q.head + q.n) % len(q.ring)
	q.ring[at] = m
	if q.number != nil {
		q.number(&q.ring[at])
	}
	q.n++
	q.bytes += size
	q.high = max(q.high, q.n)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pop takes the oldest out; q.mu is held and there is one.
func (q *queue) pop() Message {
	m := q.ring[q.head]
	q.ring[q.head] = Message{} // the payload must not be held by a slot
	q.head = (q.head + 1) % len(q.ring)
	q.n--
	q.bytes -= int64(len(m.Payload))
	return m
}

func (q *queue) grow() {
	bigger := make([]Message, min(max(2*len(q.ring), 64), q.max))
	for i := range q.n {
		bigger[i] = q.ring[(q.head+i)%len(q.ring)]
	}
	q.ring, q.head = bigger, 0
}

// take waits for messages and moves as many as fit into batch. It returns 0 when ctx has ended, or when
// the queue is closed and empty.
func (q *queue) take(ctx context.Context, batch []Message) int {
	for {
		q.mu.Lock()
		n := min(q.n, len(batch))
		for i := range n {
			batch[i] = q.pop()
		}
		closed := q.closed
		if q.n == 0 && len(q.ring) > 4096 && n < len(batch) {
			q.ring, q.head = nil, 0 // a burst is over: its room is given back
		}
		q.mu.Unlock()
		if n > 0 {
			signal(q.room)
		}
		if n > 0 || closed {
			return n
		}
		select {
		case <-ctx.Done():
			return 0
		case <-q.wake:
		}
	}
}

// close lets take end when the queue is empty.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	signal(q.wake)
	signal(q.room)
}

// rest empties the queue and returns how many were in it.
func (q *queue) rest() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := int64(q.n)
	q.ring, q.head, q.n, q.bytes = nil, 0, 0, 0
	return n
}

// OutletStatus is how an outlet is.
type OutletStatus struct {
	Name string
	// Taken is what the sink took, Filtered what was not for it, Lost what it did not get or did not take.
	Taken, Filtered, Lost int64
	// Waiting is what is in the queue now, High the most that ever was, Limit its bound: messages.
	Waiting, High, Limit int
	WaitingBytes         int64
	// Connection is how a relay's is; its Kind is "" for a sink without one.
	Connection Status
	Last       time.Time // of the newest message that the sink took, when it was received
	Error      string    // of the last batch, "" when it went well
}

type outlet struct {
	o        Outlet
	queue    *queue
	taken    atomic.Int64
	filtered atomic.Int64
	failed   atomic.Int64
	unsent   atomic.Int64
	mu       sync.Mutex
	last     time.Time
	err      string
}

func newOutlet(o Outlet) *outlet {
	if o.Queue == 0 {
		o.Queue = 65_536
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = 64 << 20
	}
	if o.Batch == 0 {
		o.Batch = 512
	}
	out := &outlet{o: o, queue: newQueue(o.Queue, o.QueueBytes)}
	if n, ok := o.Sink.(interface{ number(*Message) }); ok {
		out.queue.number = n.number
	}
	return out
}

func (o *outlet) offer(ctx context.Context, m Message) {
	if o.o.Accept != nil && !o.o.Accept(m) {
		o.filtered.Add(1)
		return
	}
	// A file does not run away: it is read as fast as its readers can.
	if m.Kind != TraceFile {
		o.queue.push(m)
	} else if !o.queue.pushWaiting(ctx, m) {
		o.unsent.Add(1)
	}
}

// run hands batches to the sink until ctx ends, or until the queue is closed and empty.
func (o *outlet) run(ctx context.Context, log *slog.Logger) {
	batch := make([]Message, o.o.Batch)
	for {
		n := o.queue.take(ctx, batch)
		if n == 0 {
			o.unsent.Add(o.queue.rest())
			return
		}
		err := o.o.Sink.Take(ctx, batch[:n])
		var lost *Lost
		if err == nil {
			o.taken.Add(int64(n))
		} else if errors.As(err, &lost) {
			o.taken.Add(max(int64(n)-lost.N, 0))
		} else if ctx.Err() != nil {
			o.unsent.Add(int64(n))
		} else {
			o.failed.Add(int64(n))
		}
		o.mu.Lock()
		if err == nil || lost != nil {
			o.last = batch[n-1].Received
		}
		level := slog.LevelDebug
		if o.err == "" {
			level = slog.LevelWarn // once, until it goes well again
		}
		if o.err = ""; err != nil {
			o.err = err.Error()
			log.Log(ctx, level, "forward passes were not passed on", "outlet", o.o.Name, "batch", n, "err", err)
		}
		o.mu.Unlock()
		clear(batch[:n])
	}
}

func (o *outlet) status() OutletStatus {
	s := OutletStatus{Name: o.o.Name, Taken: o.taken.Load(), Filtered: o.filtered.Load(), Limit: o.o.Queue}
	o.queue.mu.Lock()
	s.Waiting, s.High, s.WaitingBytes, s.Lost = o.queue.n, o.queue.high, o.queue.bytes, o.queue.lost
	o.queue.mu.Unlock()
	s.Lost += o.failed.Load() + o.unsent.Load()
	if c, ok := o.o.Sink.(counted); ok {
		for _, d := range c.Drops() {
			s.Lost += d.Count
		}
	}
	if c, ok := o.o.Sink.(interface{ Status() Status }); ok {
		s.Connection = c.Status()
	}
	o.mu.Lock()
	s.Last, s.Error = o.last, o.err
	o.mu.Unlock()
	return s
}

// counted is a sink that counts what it loses itself.
type counted interface{ Drops() []Drop }

func (o *outlet) drops() []Drop {
	var out []Drop
	add := func(reason string, n int64) {
		if n > 0 {
			out = append(out, Drop{o.o.Name, reason, n})
		}
	}
	o.queue.mu.Lock()
	full := o.queue.lost
	o.queue.mu.Unlock()
	add("queue_full", full)
	add("sink_failed", o.failed.Load())
	add("stopped", o.unsent.Load())
	if c, ok := o.o.Sink.(counted); ok {
		for _, d := range c.Drops() {
			add(d.Reason, d.Count)
		}
	}
	return out
}
