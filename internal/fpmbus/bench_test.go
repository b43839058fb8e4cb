package fpmbus

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// passBytes is as large as a message of an engine.
var passBytes = bytes.Repeat([]byte("x"), 431)

func BenchmarkEnvelope(b *testing.B) {
	e := Envelope{Publisher: 1 << 52, Sequence: 1 << 20, Published: time.UnixMilli(1782777601250), Topic: Topic, Payload: passBytes}
	buf := AppendEnvelope(nil, e)
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(buf)))
		for b.Loop() {
			if _, err := DecodeEnvelope(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(buf)))
		out := make([]byte, 0, 1024)
		for b.Loop() {
			out = AppendEnvelope(out[:0], e)
		}
	})
}

// engineAt is a PUB socket with one subscriber, as fast as the kernel takes it.
func engineAt(b testing.TB, network string) (at string, accept func() net.Conn) {
	address := "127.0.0.1:0"
	if network == "unix" {
		address = socketPath(b, "e")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	at = map[string]string{"unix": "ipc://", "tcp": "tcp://"}[network] + l.Addr().String()
	return at, func() net.Conn {
		c, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		z, err := handshake(c, "PUB", 1<<20, time.Minute, "SUB")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := z.message(); err != nil { // its subscription
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		return c
	}
}

func appendPass(buf []byte, n uint64, payload []byte) []byte {
	var seq [8]byte
	binary.BigEndian.PutUint64(seq[:], n)
	return appendFrame(appendFrame(appendFrame(buf, nil, true), seq[:], true), payload, false)
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

// pump sends b.N messages, at most ahead of done by what queues hold, and reports rates.
func pump(b *testing.B, c net.Conn, done func() int64) {
	const batch, ahead = 64, 16_384
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := cpuSeconds()
	b.ResetTimer()
	buf := make([]byte, 0, batch*600)
	for i := 0; i < b.N; {
		buf = buf[:0]
		for k := 0; k < batch && i < b.N; k++ {
			buf = appendPass(buf, uint64(i), passBytes)
			i++
		}
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		for int64(i)-done() > ahead {
			time.Sleep(50 * time.Microsecond)
		}
	}
	for done() < int64(b.N) {
		time.Sleep(50 * time.Microsecond)
	}
	b.StopTimer()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(b.N)/(cpuSeconds()-cpu), "msg/cpu-s")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "allocs/msg")
}

// From an engine's socket to a sink; the sender's work is in it, too.
func BenchmarkReceive(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		b.Run(network, func(b *testing.B) {
			at, accept := engineAt(b, network)
			src := must[Source](b)(NewEngineSocket(EngineSocketOptions{Endpoint: at}))
			var n atomic.Int64
			sink := SinkFunc(func(_ context.Context, batch []Message) error { n.Add(int64(len(batch))); return nil })
			bus, stop := runBus(b, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "sink", Sink: sink}}})
			pump(b, accept(), n.Load)
			if d := bus.Drops(); len(d) > 0 {
				b.Fatalf("%+v", d)
			}
			stop()
		})
	}
}

// From an engine's socket to the event plane over ZMQ, with one subscriber; sender and subscriber are in it.
func BenchmarkRelayZMQ(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		b.Run(network, func(b *testing.B) {
			at, accept := engineAt(b, network)
			src := must[Source](b)(NewEngineSocket(EngineSocketOptions{Endpoint: at}))
			bindAt := "tcp://127.0.0.1:0"
			if network == "unix" {
				bindAt = "ipc://" + socketPath(b, "out")
			}
			relay := must[*RelayZMQ](b)(NewRelayZMQ(RelayZMQOptions{RelayTo: RelayTo{Scope: Scope{"ns", "backend", "generate"}}, Bind: bindAt}))
			bus, stop := runBus(b, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "relay", Sink: relay}}})
			sub := subscribeRaw(b, relay.Endpoint(), Topic)
			var got atomic.Int64
			var wg sync.WaitGroup
			wg.Go(func() {
				z := &conn{Conn: sub, r: newLines(sub, 0).r, limit: 1 << 20}
				for {
					if _, err := z.message(); err != nil {
						return
					}
					got.Add(1)
				}
			})
			c := accept()
			for relay.Subscribers() == 0 {
				time.Sleep(time.Millisecond)
			}
			pump(b, c, got.Load)
			if d := bus.Drops(); len(d) > 0 {
				b.Fatalf("%+v", d)
			}
			stop()
			wg.Wait()
			_ = sub.Close()
		})
	}
}

// From an engine's socket to an embedded NATS server without a port; nobody subscribes.
func BenchmarkRelayNATS(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	e := must[*EmbeddedNATS](b)(StartEmbeddedNATS(ctx, EmbeddedNATSOptions{}))
	defer e.Wait()
	defer cancel()
	at, accept := engineAt(b, "unix")
	src := must[Source](b)(NewEngineSocket(EngineSocketOptions{Endpoint: at}))
	relay := must[*RelayNATS](b)(NewRelayNATS(RelayNATSOptions{RelayTo: RelayTo{Scope: Scope{"ns", "backend", "generate"}}, Server: NATSServer{InProcess: e}}))
	bus, stop := runBus(b, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "relay", Sink: relay}}})
	pump(b, accept(), func() int64 { return bus.Outlets()[0].Taken })
	if d := bus.Drops(); len(d) > 0 {
		b.Fatalf("%+v", d)
	}
	stop()
}

// What a relay adds: the time from an engine's write to a subscriber's read, straight and through the relay,
// at 5,000 messages a second.
func BenchmarkLatency(b *testing.B) {
	for _, relayed := range []bool{false, true} {
		b.Run(fmt.Sprintf("relayed=%v", relayed), func(b *testing.B) {
			at, accept := engineAt(b, "unix")
			took := make([]time.Duration, 0, b.N)
			var n atomic.Int64
			arrived := func(payload []byte) {
				took = append(took, time.Duration(time.Now().UnixNano()-int64(binary.BigEndian.Uint64(payload))))
				n.Add(1)
			}
			src := must[Source](b)(NewEngineSocket(EngineSocketOptions{Endpoint: at}))
			out := Outlet{Name: "sink", Sink: SinkFunc(func(_ context.Context, batch []Message) error {
				for _, m := range batch {
					arrived(m.Payload)
				}
				return nil
			})}
			var wg sync.WaitGroup
			var sub io.Closer
			var relay *RelayZMQ
			if relayed {
				relay = must[*RelayZMQ](b)(NewRelayZMQ(RelayZMQOptions{RelayTo: RelayTo{Scope: Scope{"ns", "c", "e"}}, Bind: "ipc://" + socketPath(b, "out")}))
				out.Sink = relay
			}
			_, stop := runBus(b, Options{Sources: []Source{src}, Outlets: []Outlet{out}})
			if relayed {
				c := subscribeRaw(b, relay.Endpoint(), Topic)
				sub = c
				wg.Go(func() {
					z := &conn{Conn: c, r: newLines(c, 0).r, limit: 1 << 20}
					for {
						parts, err := z.message()
						if err != nil {
							return
						}
						e, err := DecodeEnvelope(parts[3][5:])
						if err != nil {
							return
						}
						arrived(e.Payload)
					}
				})
			}
			c := accept()
			for relayed && relay.Subscribers() == 0 {
				time.Sleep(time.Millisecond)
			}
			payload := bytes.Clone(passBytes)
			var buf []byte
			start := time.Now()
			b.ResetTimer()
			for i := range b.N {
				time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / 5000)))
				binary.BigEndian.PutUint64(payload, uint64(time.Now().UnixNano()))
				buf = appendPass(buf[:0], uint64(i), payload)
				if _, err := c.Write(buf); err != nil {
					b.Fatal(err)
				}
			}
			for n.Load() < int64(b.N) {
				time.Sleep(time.Millisecond)
			}
			b.StopTimer()
			stop()
			wg.Wait()
			if sub != nil {
				_ = sub.Close()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100])/1e3, "p99-µs")
		})
	}
}
