package fpmbus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// natsServer is Debian's nats-server, which can be killed and started again at the same port.
type natsServer struct {
	t    testing.TB
	at   string
	cmd  *exec.Cmd
	args []string
}

func startNATS(t testing.TB, args ...string) *natsServer {
	t.Helper()
	if _, err := exec.LookPath("nats-server"); err != nil {
		missing(t, "nats-server")
	}
	s := &natsServer{t: t, at: reserved(t), args: args}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *natsServer) start() {
	host, port, err := net.SplitHostPort(s.at)
	if err != nil {
		s.t.Fatal(err)
	}
	s.cmd = exec.Command("nats-server", append([]string{"-a", host, "-p", port}, s.args...)...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "nats-server listens", func() bool {
		c, err := net.Dial("tcp", s.at)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

func (s *natsServer) kill() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Signal(syscall.SIGKILL)
		_ = s.cmd.Wait()
	}
}

func (s *natsServer) url() string { return "nats://" + s.at }

// planeOf subscribes as Rollscope does.
func planeOf(t testing.TB, server NATSServer, own *Own) (*keeper, *Bus) {
	src := must[Source](t)(NewPlaneNATS(PlaneNATSOptions{Common: Common{Name: "plane", Retry: quick}, Server: server, Own: own}))
	k := &keeper{}
	b, _ := runBus(t, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "keep", Sink: k}}})
	return k, b
}

func relayOf(t testing.TB, o RelayNATSOptions, out Outlet) (*handmade, *Bus) {
	o.Name, o.Retry, o.Scope = "relay", quick, Scope{"ns", "backend", "generate"}
	relay := must[*RelayNATS](t)(NewRelayNATS(o))
	hand := newHandmade()
	out.Name, out.Sink = "relay", relay
	b, _ := runBus(t, Options{Sources: []Source{hand}, Outlets: []Outlet{out}})
	<-hand.ready
	return hand, b
}

// again starts a server that was killed. The relay's way there opens when the subscriber is back: what core
// NATS takes while nobody listens is gone, and RelayNATSOptions.Settle only makes that unlikely.
func again(t testing.TB, s *natsServer, g *gate, in *Bus) {
	t.Helper()
	g.close()
	s.start()
	eventually(t, "the subscriber is back", func() bool { return in.Sources()[0].State == Connected })
	g.open()
}

func pass(i int) Message {
	return Message{Kind: EngineSocket, Received: time.Now(), Payload: []byte(fmt.Sprint("pass ", i))}
}

func TestNATSBothForms(t *testing.T) {
	s := startNATS(t)
	k, b := planeOf(t, NATSServer{URL: s.url()}, nil)
	eventually(t, "connected", func() bool { return b.Sources()[0].State == Connected })
	nc := must[*nats.Conn](t)(nats.Connect(s.url()))
	defer nc.Close()
	body := AppendEnvelope(nil, Envelope{Publisher: 1 << 60, Sequence: 7, Published: time.UnixMilli(1782777601250), Topic: Topic, Payload: []byte{0x80}})
	for _, subject := range []string{
		"namespace.default.component.backend.endpoint.generate.forward-pass-metrics",
		"namespace.default.component.backend.forward-pass-metrics",
		"namespace.default.forward-pass-metrics",
		"namespace.default.component.backend.kv-events", // another topic
		"elsewhere.forward-pass-metrics",                // not subscribed to
	} {
		if err := nc.Publish(subject, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Publish("namespace.x.forward-pass-metrics", []byte("garbage")); err != nil {
		t.Fatal(err)
	}
	if err := nc.Publish("namespace.x.forward-pass-metrics", append(body[:len(body):len(body)], 1)); err != nil { // more than an envelope
		t.Fatal(err)
	}
	eventually(t, "all came", func() bool { s := b.Sources()[0]; return s.Messages == 4 && s.Other == 1 && len(b.Drops()) == 1 })
	if n := dropsOf(b.Drops(), "plane", "bad_envelope"); n != 1 {
		t.Errorf("drops %+v", b.Drops())
	}
	want := []Scope{{"default", "backend", "generate"}, {"default", "backend", ""}, {"default", "", ""}, {"x", "", ""}}
	eventually(t, "kept", func() bool { return k.count() == 4 })
	for i, m := range k.messages() {
		if (Scope{m.Namespace, m.Component, m.Endpoint}) != want[i] || m.Publisher != 1<<60 || m.Sequence != 7 || m.Kind != PlaneNATS ||
			!m.Published.Equal(time.UnixMilli(1782777601250)) || len(m.Payload) != 1 || m.DPRank != -1 {
			t.Errorf("%+v", m)
		}
	}
}

// The server is killed and started again, twice: what the queue can hold arrives, with our numbers and no gap.
func TestNATSServerKilled(t *testing.T) {
	s := startNATS(t)
	k, in := planeOf(t, NATSServer{URL: s.url()}, nil)
	g := newGate(t, s.at)
	hand, out := relayOf(t, RelayNATSOptions{Server: NATSServer{URL: g.url()}, Settle: 100 * time.Millisecond}, Outlet{Queue: 10_000})
	eventually(t, "connected", func() bool {
		return in.Sources()[0].State == Connected && out.Outlets()[0].Connection.State == Connected
	})
	n := 0
	sent := sha256.New()
	send := func(count int) {
		for range count {
			m := pass(n)
			sent.Write(m.Payload)
			hand.emit(m)
			n++
		}
	}
	for range 2 {
		send(500)
		eventually(t, "all came", func() bool { return k.count() == n })
		s.kill()
		eventually(t, "both know", func() bool {
			return in.Sources()[0].State == Down && out.Outlets()[0].Connection.State == Down
		})
		send(3000)
		if k.count() != n-3000 {
			t.Fatalf("%d came of %d while there was no server", k.count(), n)
		}
		again(t, s, g, in)
		eventually(t, "all came after all", func() bool { return k.count() == n })
	}
	if k.sha() != hex.EncodeToString(sent.Sum(nil)) {
		t.Error("what came is not what was sent")
	}
	if s := in.Sources()[0]; s.Missed != 0 || s.Restarts != 0 {
		t.Errorf("in: %+v", s)
	}
	if len(out.Drops()) != 0 {
		t.Errorf("out: %+v", out.Drops())
	}
}

// What the queue cannot hold is counted, and is the gap that the receiver sees.
func TestNATSQueueFull(t *testing.T) {
	s := startNATS(t)
	k, in := planeOf(t, NATSServer{URL: s.url()}, nil)
	g := newGate(t, s.at)
	hand, out := relayOf(t, RelayNATSOptions{Server: NATSServer{URL: g.url()}, Settle: 100 * time.Millisecond}, Outlet{Queue: 1000, Batch: 100})
	eventually(t, "connected", func() bool {
		return in.Sources()[0].State == Connected && out.Outlets()[0].Connection.State == Connected
	})
	hand.emit(pass(0))
	eventually(t, "the first", func() bool { return k.count() == 1 })
	s.kill()
	eventually(t, "both know", func() bool {
		return in.Sources()[0].State == Down && out.Outlets()[0].Connection.State == Down
	})
	const n = 5000
	for i := 1; i < n; i++ {
		hand.emit(pass(i))
	}
	lost := dropsOf(out.Drops(), "relay", "queue_full")
	if lost < n-1-1000-100 || lost > n-1-1000 {
		t.Errorf("%d are lost", lost)
	}
	again(t, s, g, in)
	eventually(t, "the rest", func() bool { return int64(k.count()) == n-lost })
	eventually(t, "taken", func() bool { return out.Outlets()[0].Taken == n-lost })
	if s := in.Sources()[0]; s.Missed != lost {
		t.Errorf("%d were lost, the receiver misses %d", lost, s.Missed)
	}
	if o := out.Outlets()[0]; o.Lost != lost || o.High != 1000 || o.Limit != 1000 {
		t.Errorf("%+v", o)
	}
}

// A source and a relay at one server: what the relay sends is not taken in again.
func TestNATSNoLoop(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	e := must[*EmbeddedNATS](t)(StartEmbeddedNATS(ctx, EmbeddedNATSOptions{}))
	defer e.Wait()
	defer cancel()
	if e.URL() != "" {
		t.Errorf("a server without a port has the URL %q", e.URL())
	}
	own := &Own{}
	server := NATSServer{InProcess: e}
	src := must[Source](t)(NewPlaneNATS(PlaneNATSOptions{Common: Common{Name: "plane"}, Server: server, Own: own}))
	relay := must[*RelayNATS](t)(NewRelayNATS(RelayNATSOptions{RelayTo: RelayTo{Name: "relay", Scope: Scope{"ns", "c", ""}, Own: own}, Server: server}))
	hand := newHandmade()
	k := &keeper{}
	b, stop := runBus(t, Options{Sources: []Source{src, hand}, Outlets: []Outlet{{Name: "keep", Sink: k}, {Name: "relay", Sink: relay}}})
	defer stop()
	<-hand.ready
	eventually(t, "connected", func() bool { return b.Sources()[0].State == Connected })
	for i := range 10 {
		hand.emit(pass(i))
	}
	eventually(t, "seen and left", func() bool { return b.Sources()[0].Other == 10 && k.count() >= 10 })
	if k.count() != 10 || b.Received() != 10 {
		t.Errorf("%d came, %d were received", k.count(), b.Received())
	}
}

func TestEmbeddedNATSForOthers(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	e := must[*EmbeddedNATS](t)(StartEmbeddedNATS(ctx, EmbeddedNATSOptions{Listen: "127.0.0.1:0", User: "u", Password: "p"}))
	defer e.Wait()
	defer cancel()
	k, b := planeOf(t, NATSServer{URL: e.URL(), User: "u", Password: "p"}, nil)
	hand, _ := relayOf(t, RelayNATSOptions{Server: NATSServer{InProcess: e, User: "u", Password: "p"}}, Outlet{})
	eventually(t, "connected", func() bool { return b.Sources()[0].State == Connected })
	hand.emit(pass(1))
	eventually(t, "it came", func() bool { return k.count() == 1 })
	_, wrong := planeOf(t, NATSServer{URL: e.URL(), User: "u", Password: "no"}, nil)
	eventually(t, "refused", func() bool { s := wrong.Sources()[0]; return s.State == Refused && s.Error != "" })
	if _, err := StartEmbeddedNATS(ctx, EmbeddedNATSOptions{Listen: e.URL()[len("nats://"):]}); err == nil {
		t.Error("two servers at one port")
	}
	for _, bad := range []string{"x", "127.0.0.1:http2", "127.0.0.1:99999"} {
		if _, err := StartEmbeddedNATS(ctx, EmbeddedNATSOptions{Listen: bad}); err == nil {
			t.Errorf("listens at %q", bad)
		}
	}
}

func TestNATSMissing(t *testing.T) {
	_, b := planeOf(t, NATSServer{URL: "nats://" + reserved(t)}, nil)
	eventually(t, "missing", func() bool { s := b.Sources()[0]; return s.State == Missing && s.Error != "" })
}

// A message that the server does not take because of its size is counted and does not hold up the others.
func TestNATSTooLarge(t *testing.T) {
	s := startNATS(t)
	k, in := planeOf(t, NATSServer{URL: s.url()}, nil)
	hand, out := relayOf(t, RelayNATSOptions{Server: NATSServer{URL: s.url()}}, Outlet{})
	eventually(t, "connected", func() bool {
		return in.Sources()[0].State == Connected && out.Outlets()[0].Connection.State == Connected
	})
	hand.emit(Message{Kind: EngineSocket, Payload: make([]byte, 2<<20)})
	hand.emit(pass(1))
	eventually(t, "the small one", func() bool { return k.count() == 1 })
	eventually(t, "counted", func() bool { return dropsOf(out.Drops(), "relay", "too_large") == 1 })
}

// The server is killed while messages stream: what it had taken and not delivered is gone with it, and that
// is exactly what the receiver misses. Nothing comes twice, though batches are sent again.
func TestNATSServerKilledWhileStreaming(t *testing.T) {
	s := startNATS(t)
	k, in := planeOf(t, NATSServer{URL: s.url()}, nil)
	g := newGate(t, s.at)
	hand, out := relayOf(t, RelayNATSOptions{Server: NATSServer{URL: g.url()}, Settle: 100 * time.Millisecond}, Outlet{Batch: 50})
	eventually(t, "connected", func() bool {
		return in.Sources()[0].State == Connected && out.Outlets()[0].Connection.State == Connected
	})
	n := 0
	send := func(count int) {
		for range count {
			hand.emit(pass(n))
			if n++; n%20 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
	for range 3 {
		killed := make(chan struct{})
		go func() {
			time.Sleep(20 * time.Millisecond)
			_ = s.cmd.Process.Signal(syscall.SIGKILL)
			close(killed)
		}()
		send(3000)
		<-killed
		_ = s.cmd.Wait()
		again(t, s, g, in)
		send(1000)
		eventually(t, "the relay has passed all on", func() bool { return out.Outlets()[0].Taken == int64(n) })
	}
	eventually(t, "all but what is missed", func() bool { return int64(k.count())+in.Sources()[0].Missed == int64(n) })
	all := k.messages()
	for i, m := range all[1:] {
		if m.Sequence <= all[i].Sequence {
			t.Fatalf("%d after %d", m.Sequence, all[i].Sequence)
		}
	}
	if s := in.Sources()[0]; s.Restarts != 0 || len(out.Drops()) != 0 {
		t.Errorf("%+v, %+v", s, out.Drops())
	}
	t.Logf("of %d, %d went with the server, %d came twice and were taken once", n, in.Sources()[0].Missed, in.Sources()[0].Repeats)
}

// A batch whose messages went into a connection that was lost is not confirmed by the one that came after it.
func TestNATSConnectionLostWithinBatch(t *testing.T) {
	s := startNATS(t)
	k, in := planeOf(t, NATSServer{URL: s.url()}, nil)
	g := newGate(t, s.at)
	var relay *RelayNATS
	times, once, at := 0, make(chan struct{}), time.Now()
	now := func() time.Time { // asked for by messages that do not say when they were received
		if times++; times == 2 {
			relay.mu.Lock()
			nc := relay.nc
			relay.mu.Unlock()
			g.mu.Lock()
			g.cut()
			g.mu.Unlock()
			eventually(t, "another connection", func() bool { return nc.Stats().Reconnects > 0 && nc.IsConnected() })
			close(once)
		}
		return at // sent again they are the same messages
	}
	relay = must[*RelayNATS](t)(NewRelayNATS(RelayNATSOptions{RelayTo: RelayTo{Name: "relay", Scope: Scope{"ns", "c", "e"}}, Retry: quick, Server: NATSServer{URL: g.url()}, Settle: -1}))
	hand := newHandmade()
	out, _ := runBus(t, Options{Sources: []Source{hand}, Outlets: []Outlet{{Name: "relay", Sink: relay}}})
	<-hand.ready
	eventually(t, "connected", func() bool {
		return in.Sources()[0].State == Connected && out.Outlets()[0].Connection.State == Connected
	})
	hand.emit(pass(0)) // what comes before the first that a receiver sees is nothing that it misses
	eventually(t, "the first", func() bool { return k.count() == 1 && out.Outlets()[0].Taken == 1 })
	nc, life, err := relay.ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var batch []Message
	for i := range 3 {
		m := pass(1 + i)
		m.Received = time.Time{}
		relay.number(&m)
		batch = append(batch, m)
	}
	relay.o.Now = now
	if err := relay.publish(t.Context(), nc, life, batch, map[string]int64{}); err == nil {
		t.Error("the batch is taken for confirmed")
	}
	<-once
	if err := relay.Take(t.Context(), batch); err != nil { // as it is tried again
		t.Error(err)
	}
	eventually(t, "all came", func() bool { return k.count() == 4 })
	if s := in.Sources()[0]; s.Missed != 0 {
		t.Errorf("%+v", s)
	}
}
