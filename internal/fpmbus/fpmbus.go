// Package fpmbus brings forward-pass messages in (engine sockets and event planes over ZMQ, NATS, the
// exporter's socket, trace files) and passes them on unaltered (to NATS, to ZMQ), with bounded queues and
// every loss counted. Its entry point is [New].
//
// A payload's bytes are never looked into here: that is internal/fpm's. What stands around them (ZMQ
// frames, envelopes, subjects, lines of files) is read here. Section 1.3, 1.5 and 2 of Dynamo's wire
// contract, as far as it concerns the bus, are written out in WIRE.md beside this file.
package fpmbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Kind is the way by which a message came.
type Kind string

// Kinds of sources.
const (
	EngineSocket Kind = "zmq_engine" // an engine's PUB socket, one for each data-parallel rank
	PlaneZMQ     Kind = "zmq_plane"  // Dynamo's event plane over ZMQ, direct or through brokers
	PlaneNATS    Kind = "nats"       // Dynamo's event plane over NATS
	ExportSocket Kind = "socket"     // Dynamo's exporter, which connects to a UNIX socket of ours
	TraceFile    Kind = "file"       // dynamo.fpm.trace.v1 and dynamo.request.trace.v1
)

// Encoding is how a payload is written.
type Encoding uint8

// Encodings.
const (
	MsgPack Encoding = iota // as engines send it
	JSON                    // as the exporter and trace files write it
)

// Record is what a payload holds.
type Record uint8

// Records.
const (
	ForwardPass  Record = iota // ForwardPassMetrics
	RequestTrace               // the event of a dynamo.request.trace.v1 record
)

// Message is one payload as it came and what its carrier said about it. A message and its payload are
// never changed after it was handed on: whoever gets one may keep it, and must not write into it.
type Message struct {
	Source string // name of the source
	Kind   Kind
	// Subject is the NATS subject or the ZMQ topic, "" for engine sockets, sockets and files.
	Subject string
	// Namespace, Component and Endpoint are Dynamo's, "" when the carrier does not say.
	Namespace, Component, Endpoint string
	// DPRank is the data-parallel rank that an engine socket belongs to, -1 when the carrier does not say.
	DPRank int
	// Publisher is the envelope's publisher_id (or the trace file's producer_id, as text in Producer).
	Publisher    uint64
	HasPublisher bool
	Producer     string
	// Sequence is the carrier's own number: the second ZMQ frame of an engine socket, else the envelope's.
	Sequence    uint64
	HasSequence bool
	Published   time.Time // by the envelope or the record; zero when it does not say
	Received    time.Time
	// Sampled says that the record's writer left out others on purpose: numbers that are missing are no loss.
	Sampled  bool
	Encoding Encoding
	Record   Record
	Payload  []byte

	stream *stream // of the relay in whose queue this copy is
	number uint64
}

// Sink takes messages. Batch is in the order in which the messages came and is only good until the
// return; the messages' payloads may be kept. Take may block: the sink's queue holds what comes meanwhile.
//
// An error means that the batch is lost; it is counted as "sink_failed" unless it is a [*Lost]. A sink
// that can try again does so itself, until ctx ends.
type Sink interface {
	Take(ctx context.Context, batch []Message) error
}

// SinkFunc is a function as a [Sink].
type SinkFunc func(ctx context.Context, batch []Message) error

// Take implements [Sink].
func (f SinkFunc) Take(ctx context.Context, batch []Message) error { return f(ctx, batch) }

// Lost is the error of a sink that lost some of a batch and counted them itself: the rest was taken.
type Lost struct {
	N   int64 // messages
	Err error
}

func (l *Lost) Error() string { return l.Err.Error() }

// Unwrap returns what happened.
func (l *Lost) Unwrap() error { return l.Err }

// Source brings messages in. Those of this package are made by [NewEngineSocket], [NewPlaneZMQ],
// [NewPlaneNATS], [NewExportSocket] and [NewTraceFiles].
type Source interface {
	// Run hands messages to emit until ctx ends. It returns an error only for what cannot get better by
	// waiting. emit may be called by several goroutines. It does not block, but for messages of the kind
	// TraceFile: files are read no faster than every outlet's queue has room.
	Run(ctx context.Context, emit func(Message)) error
	// Status tells how it is; more than one entry for a source of several sockets.
	Status() []Status
	// Drops tells what it did not hand on. Counts only grow.
	Drops() []Drop
}

// Outlet is a sink with a name and a queue of its own.
type Outlet struct {
	Name string
	Sink Sink
	// Queue and QueueBytes bound what waits for the sink, in messages and in bytes of payload; 0 takes
	// 65,536 messages and 64 MiB. When it is full the oldest goes, counted as "queue_full"; files wait instead.
	Queue      int
	QueueBytes int64
	// Batch is how many messages Take gets at most; 0 takes 512.
	Batch int
	// Accept says which messages the sink gets; nil: all. What it refuses is counted as filtered, not as lost.
	Accept func(Message) bool
}

// Options of a [Bus].
type Options struct {
	Sources []Source
	Outlets []Outlet
	Logger  *slog.Logger // nil logs nothing
	// Drain is how long outlets may still work off their queues after the sources have ended; 0: 2 s.
	Drain time.Duration
}

// Bus connects sources with outlets. It is safe for concurrent use.
type Bus struct {
	o       Options
	log     *slog.Logger
	outlets []*outlet
	ran     atomic.Bool
	emitted atomic.Int64
}

// New makes a bus. The error names the option that is not possible.
func New(o Options) (*Bus, error) {
	b := &Bus{o: o, log: o.Logger}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.log = b.log.With("component", "fpmbus")
	if b.o.Drain <= 0 {
		b.o.Drain = 2 * time.Second
	}
	if len(o.Sources) == 0 {
		return nil, errors.New("fpmbus: there is no source: name an engine socket, an event plane, a socket or files")
	}
	names := map[string]bool{}
	for i, out := range o.Outlets {
		switch {
		case out.Sink == nil:
			return nil, fmt.Errorf("fpmbus: outlet %d (%q) has no sink", i, out.Name)
		case out.Name == "" || names[out.Name]:
			return nil, fmt.Errorf("fpmbus: outlet %d needs a name of its own, %q is none", i, out.Name)
		case out.Queue < 0 || out.QueueBytes < 0 || out.Batch < 0:
			return nil, fmt.Errorf("fpmbus: the bounds of outlet %q must be positive, 0 takes the default", out.Name)
		}
		names[out.Name] = true
		b.outlets = append(b.outlets, newOutlet(out))
	}
	return b, nil
}

// Run works until ctx ends or a source or relay fails for good, then lets the outlets empty their queues for
// Options.Drain and returns. The error is of the first that failed. A bus runs once.
func (b *Bus) Run(ctx context.Context) error {
	if b.ran.Swap(true) {
		return errors.New("fpmbus: a bus runs once: make a new one")
	}
	var out, in sync.WaitGroup
	// Outlets end after the sources, so that what was received is still passed on.
	outCtx, stopOut := context.WithCancel(context.WithoutCancel(ctx))
	defer stopOut()
	errs := make(chan error, len(b.o.Sources)+len(b.outlets))
	inCtx, stopIn := context.WithCancel(ctx)
	defer stopIn()
	connCtx, stopConns := context.WithCancel(context.WithoutCancel(ctx))
	var conns sync.WaitGroup
	for _, o := range b.outlets {
		out.Go(func() { o.run(outCtx, b.log) })
		if r, ok := o.o.Sink.(runner); ok {
			conns.Go(func() {
				if err := r.Run(connCtx); err != nil {
					errs <- err
					stopIn()
					stopOut()
				}
			})
		}
	}
	for _, s := range b.o.Sources {
		in.Go(func() {
			if err := s.Run(inCtx, func(m Message) { b.emit(inCtx, m) }); err != nil && inCtx.Err() == nil {
				errs <- err
				stopIn() // one that cannot work must be seen, not missed among others that can
			}
		})
	}
	in.Wait()
	for _, o := range b.outlets {
		o.queue.close()
	}
	end := time.AfterFunc(b.o.Drain, stopOut)
	out.Wait()
	end.Stop()
	for _, o := range b.outlets { // what came from a source that had not ended yet when its outlet had
		o.unsent.Add(o.queue.rest())
	}
	stopConns() // after the outlets: what they hold goes over these
	conns.Wait()
	close(errs)
	return <-errs
}

// runner is a sink that needs to run: relays.
type runner interface {
	Run(ctx context.Context) error
}

// emit gives a message to every outlet that accepts it.
func (b *Bus) emit(ctx context.Context, m Message) {
	b.emitted.Add(1)
	for _, o := range b.outlets {
		o.offer(ctx, m)
	}
}

// Received is how many messages the sources have handed on.
func (b *Bus) Received() int64 { return b.emitted.Load() }

// Sources tells how each source is, in the order of the options.
func (b *Bus) Sources() []Status {
	var all []Status
	for _, s := range b.o.Sources {
		all = append(all, s.Status()...)
	}
	return all
}

// Outlets tells how each outlet is, in the order of the options.
func (b *Bus) Outlets() []OutletStatus {
	all := make([]OutletStatus, len(b.outlets))
	for i, o := range b.outlets {
		all[i] = o.status()
	}
	return all
}

// Drops tells what was not kept or not passed on, by source and reason. Counts only grow. Nothing that
// merely was not for an outlet is among them.
func (b *Bus) Drops() []Drop {
	var all []Drop
	for _, s := range b.o.Sources {
		all = append(all, s.Drops()...)
	}
	for _, o := range b.outlets {
		all = append(all, o.drops()...)
	}
	return merged(all)
}
