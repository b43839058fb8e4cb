package fpmbus

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// socketPath is a short path: UNIX sockets have at most 107 bytes.
func socketPath(t testing.TB, name string) string {
	dir, err := os.MkdirTemp("", "fpm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, name)
}

func TestEngineSocketReceivesFromLibzmq(t *testing.T) {
	for _, transport := range []string{"ipc", "tcp"} {
		t.Run(transport, func(t *testing.T) {
			at := "tcp"
			if transport == "ipc" {
				at = "ipc://" + socketPath(t, "fpm.0")
			}
			const n = 3000
			p := startPeer(t, "engine", at, fmt.Sprint(n), "3000", "0")
			at = p.says()["bound"].(string)
			src := must[Source](t)(NewEngineSocket(EngineSocketOptions{Common: Common{Name: "engine-0", Retry: quick}, Endpoint: at, DPRank: 3, Namespace: "ns"}))
			k := &keeper{}
			b, _ := runBus(t, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "keep", Sink: k}}})
			p.tell("go")
			said := p.says()
			eventually(t, "all messages", func() bool { return k.count() >= n })
			if k.sha() != said["sha256"] {
				t.Error("payloads are not the bytes that were sent")
			}
			for i, m := range k.messages() {
				if m.Sequence != uint64(i) || !m.HasSequence || m.DPRank != 3 || m.Kind != EngineSocket || m.Source != "engine-0" || m.Namespace != "ns" || m.HasPublisher || m.Received.IsZero() {
					t.Fatalf("message %d: %+v", i, m)
				}
			}
			s := b.Sources()[0]
			if s.Messages != n || s.Missed != 0 || s.Restarts != 0 || s.Repeats != 0 || s.Connects != 1 || s.Error != "" || len(b.Drops()) != 0 {
				t.Errorf("status %+v, drops %+v", s, b.Drops())
			}
		})
	}
}

// An engine that is not there yet, comes, is killed, and comes again with numbers that begin anew.
func TestEngineSocketReconnects(t *testing.T) {
	at := "ipc://" + socketPath(t, "fpm.0")
	src := must[Source](t)(NewEngineSocket(EngineSocketOptions{Common: Common{Name: "e", Retry: quick}, Endpoint: at, DPRank: -1}))
	k := &keeper{}
	b, stop := runBus(t, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "keep", Sink: k}}})
	eventually(t, "missing", func() bool { s := b.Sources()[0]; return s.State == Missing && s.Error != "" })
	for round, want := range []int{40, 80} {
		p := startPeer(t, "engine", at, "40", "0", "5")
		p.says()
		p.tell("go")
		eventually(t, fmt.Sprintf("messages of round %d", round), func() bool { return k.count() >= want })
		p.kill()
		eventually(t, "gone", func() bool { s := b.Sources()[0].State; return s == Down || s == Missing })
	}
	s := b.Sources()[0]
	if s.Connects != 2 || s.Restarts != 1 || s.Missed != 0 || s.Messages != 80 {
		t.Errorf("status %+v", s)
	}
	stop()
	if s := b.Sources()[0]; s.State != Ended {
		t.Errorf("after the end: %+v", s)
	}
}

// The receiver's sink stands still: what the queue cannot hold is counted, exactly, and the rest comes in order.
func TestPausedSinkLosesWhatIsCounted(t *testing.T) {
	const n, room, batch = 5000, 1000, 100
	p := startPeer(t, "engine", "tcp", fmt.Sprint(n), "0", "0")
	src := must[Source](t)(NewEngineSocket(EngineSocketOptions{Common: Common{Name: "e", Retry: quick}, Endpoint: p.says()["bound"].(string), DPRank: 0}))
	k := &keeper{gate: make(chan struct{})}
	b, _ := runBus(t, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "keep", Sink: k, Queue: room, Batch: batch}}})
	p.tell("go")
	p.says()
	eventually(t, "all received", func() bool { return b.Received() == n })
	close(k.gate)
	eventually(t, "the queue empty", func() bool { return b.Outlets()[0].Waiting == 0 && b.Outlets()[0].Taken+b.Outlets()[0].Lost == n })
	lost := dropsOf(b.Drops(), "keep", "queue_full")
	got := k.messages()
	if int64(len(got))+lost != n || lost < n-room-batch || lost > n-room {
		t.Errorf("%d came, %d are counted as lost, of %d", len(got), lost, n)
	}
	gaps := int64(0)
	for i := 1; i < len(got); i++ {
		if got[i].Sequence <= got[i-1].Sequence {
			t.Fatalf("out of order: %d after %d", got[i].Sequence, got[i-1].Sequence)
		}
		gaps += int64(got[i].Sequence - got[i-1].Sequence - 1)
	}
	if gaps+int64(got[0].Sequence) != lost || got[len(got)-1].Sequence != n-1 {
		t.Errorf("numbers that are missing: %d, counted: %d, last %d", gaps, lost, got[len(got)-1].Sequence)
	}
	if s := b.Sources()[0]; s.Missed != 0 {
		t.Errorf("nothing was lost on the way here: %+v", s)
	}
}

// libzmq drops at its high-water mark: the numbers tell how many.
func TestPublisherDropsAreMissed(t *testing.T) {
	const n = 60_000
	t.Setenv("SNDHWM", "10")
	t.Setenv("PUB", "1") // as engines have it: what goes out before libzmq has our subscription is gone, and not missed
	p := startPeer(t, "engine", "tcp", fmt.Sprint(n), "0", "0")
	src := must[Source](t)(NewEngineSocket(EngineSocketOptions{Common: Common{Name: "e", Retry: quick}, Endpoint: p.says()["bound"].(string), DPRank: 0}))
	k := &keeper{}
	b, stop := runBus(t, Options{Sources: []Source{src}, Drain: patience, Outlets: []Outlet{{Name: "keep", Sink: k, Queue: n}}})
	eventually(t, "connected", func() bool { return b.Sources()[0].State == Connected })
	time.Sleep(200 * time.Millisecond)
	p.tell("go")
	p.says()
	last := int64(-1)
	eventually(t, "silence", func() bool {
		now := b.Received()
		same := now == last && now > 0
		last = now
		time.Sleep(100 * time.Millisecond)
		return same
	})
	stop() // whatever comes still does not: all that is counted is kept
	got := k.messages()
	missing := int64(0)
	for i := 1; i < len(got); i++ {
		missing += int64(got[i].Sequence - got[i-1].Sequence - 1)
	}
	if s := b.Sources()[0]; s.Missed != missing || s.Messages != int64(len(got)) || dropsOf(b.Drops(), "e", "missed") != missing {
		t.Errorf("missing %d, status %+v, drops %+v", missing, s, b.Drops())
	}
	t.Logf("of %d messages %d were dropped by the publisher", n, missing)
}

func TestPlaneZMQDirect(t *testing.T) {
	a := startPeer(t, "plane", "tcp", "500", "0", "7587888160958627", "forward-pass-metrics")
	c := startPeer(t, "plane", "tcp", "500", "0", "9007199254740993", "forward-pass-metrics")
	list := []Channel{
		{a.says()["bound"].(string), Scope{"default", "backend", "generate"}},
		{c.says()["bound"].(string), Scope{"default", "prefill", ""}},
	}
	src := must[Source](t)(NewPlaneZMQ(PlaneZMQOptions{Common: Common{Name: "plane", Retry: quick}, Channels: list}))
	k := &keeper{}
	b, _ := runBus(t, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "keep", Sink: k}}})
	eventually(t, "both connected", func() bool {
		s := b.Sources()
		return len(s) == 2 && s[0].State == Connected && s[1].State == Connected
	})
	a.tell("go")
	c.tell("go")
	eventually(t, "all messages", func() bool { return k.count() == 1000 })
	of := map[uint64]Scope{}
	for _, m := range k.messages() {
		of[m.Publisher] = Scope{m.Namespace, m.Component, m.Endpoint}
		if m.Subject != Topic || !m.HasPublisher || m.Published.IsZero() {
			t.Fatalf("%+v", m)
		}
	}
	if len(of) != 2 || of[7587888160958627] != list[0].Scope || of[9007199254740993] != list[1].Scope {
		t.Errorf("publishers: %+v", of)
	}
}

// Two brokers deliver everything twice; one copy is handed on.
func TestPlaneZMQBrokersInPairs(t *testing.T) {
	subject := Scope{"my ns", "backend", "generate"}.Subject()
	b1, b2 := startPeer(t, "broker").says(), startPeer(t, "broker").says()
	src := must[Source](t)(NewPlaneZMQ(PlaneZMQOptions{Common: Common{Name: "plane", Retry: quick}, Brokers: []string{b1["xpub"].(string), b2["xpub"].(string)}}))
	k := &keeper{}
	b, _ := runBus(t, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "keep", Sink: k}}})
	eventually(t, "both connected", func() bool {
		s := b.Sources()
		return len(s) == 2 && s[0].State == Connected && s[1].State == Connected
	})
	hand := newHandmade()
	relay := must[*RelayZMQ](t)(NewRelayZMQ(RelayZMQOptions{
		RelayTo: RelayTo{Name: "relay", Scope: Scope{"my ns", "backend", "generate"}}, Retry: quick,
		Brokers: []string{b1["xsub"].(string), b2["xsub"].(string)},
	}))
	b2nd, _ := runBus(t, Options{Sources: []Source{hand}, Outlets: []Outlet{{Name: "relay", Sink: relay}}})
	<-hand.ready
	eventually(t, "both brokers subscribed", func() bool { return relay.Subscribers() == 2 })
	const n = 2000
	for i := range n {
		hand.emit(Message{Kind: EngineSocket, Received: time.Now(), Payload: []byte(fmt.Sprint("pass ", i))})
	}
	eventually(t, "all messages, twice", func() bool {
		var repeats int64
		for _, s := range b.Sources() {
			repeats += s.Repeats
		}
		return k.count() == n && repeats == n
	})
	for i, m := range k.messages() {
		if m.Subject != subject || m.Namespace != "my ns" || m.Sequence != uint64(i) || string(m.Payload) != fmt.Sprint("pass ", i) {
			t.Fatalf("message %d: %+v", i, m)
		}
	}
	if d := b2nd.Drops(); len(d) != 0 {
		t.Errorf("the relay lost %+v", d)
	}
}

// Engines over ZMQ to the event plane over ZMQ, read by libzmq: the payloads are the same bytes, the numbers our own.
func TestRelayZMQ(t *testing.T) {
	const n = 2000
	for _, transport := range []string{"tcp://127.0.0.1:0", "ipc"} {
		t.Run(transport[:3], func(t *testing.T) {
			bindAt := transport
			if transport == "ipc" {
				bindAt = "ipc://" + socketPath(t, "out")
			}
			engine := startPeer(t, "engine", "tcp", fmt.Sprint(n), "4000", "100")
			src := must[Source](t)(NewEngineSocket(EngineSocketOptions{Common: Common{Name: "e", Retry: quick}, Endpoint: engine.says()["bound"].(string)}))
			relay := must[*RelayZMQ](t)(NewRelayZMQ(RelayZMQOptions{RelayTo: RelayTo{Name: "relay", Scope: Scope{"ns", "backend", "generate"}}, Bind: bindAt}))
			b, _ := runBus(t, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "relay", Sink: relay, Accept: FromEngines}}})
			sub := startPeer(t, "sub", relay.Endpoint(), Topic, fmt.Sprint(n))
			sub.says()
			eventually(t, "connected", func() bool { return b.Sources()[0].State == Connected && relay.Subscribers() == 1 })
			engine.tell("go")
			sent, got := engine.says(), sub.says()
			if got["got"] != float64(n) || got["gaps"] != 0.0 || got["sha256"] != sent["sha256"] {
				t.Errorf("sent %v, got %v", sent, got)
			}
			eventually(t, "counted", func() bool { return b.Outlets()[0].Taken == n })
			if o := b.Outlets()[0]; o.Taken != n || o.Lost != 0 || o.Connection.State != Listening || len(b.Drops()) != 0 {
				t.Errorf("outlet %+v, drops %+v", o, b.Drops())
			}
		})
	}
}

// A subscriber that reads nothing costs itself messages, not the others, and not memory.
func TestRelayZMQSlowSubscriber(t *testing.T) {
	relay := must[*RelayZMQ](t)(NewRelayZMQ(RelayZMQOptions{RelayTo: RelayTo{Name: "relay", Scope: Scope{"ns", "c", ""}}, Bind: "tcp://127.0.0.1:0", Queue: 50}))
	hand := newHandmade()
	b, _ := runBus(t, Options{Sources: []Source{hand}, Outlets: []Outlet{{Name: "relay", Sink: relay, QueueBytes: 1 << 30}}})
	<-hand.ready
	slow := subscribeRaw(t, relay.Endpoint(), Topic)
	defer slow.Close()
	if err := slow.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil { // some systems would hold all of it for the slow one
		t.Fatal(err)
	}
	eventually(t, "subscribed", func() bool { return relay.Subscribers() == 1 })
	src := must[Source](t)(NewPlaneZMQ(PlaneZMQOptions{Common: Common{Name: "good", Retry: quick}, Channels: []Channel{{relay.Endpoint(), Scope{"ns", "c", ""}}}}))
	k := &keeper{}
	b2, _ := runBus(t, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "keep", Sink: k}}})
	eventually(t, "two subscribers", func() bool { return relay.Subscribers() == 2 })
	const n = 400
	payload := make([]byte, 64<<10)
	for i := range n {
		hand.emit(Message{Kind: EngineSocket, Received: time.Now(), Payload: payload})
		eventually(t, "the good one reads", func() bool { return k.count() == i+1 })
	}
	lost := dropsOf(b.Drops(), "relay", "subscriber_full")
	if lost == 0 || lost >= n {
		t.Errorf("the slow one lost %d of %d", lost, n)
	}
	if s := b2.Sources()[0]; s.Missed != 0 || s.Messages != n {
		t.Errorf("the good one: %+v", s)
	}
}

func TestRelayZMQNobodySubscribes(t *testing.T) {
	relay := must[*RelayZMQ](t)(NewRelayZMQ(RelayZMQOptions{RelayTo: RelayTo{Name: "relay", Scope: Scope{"ns", "c", ""}}, Bind: "tcp://127.0.0.1:0"}))
	hand := newHandmade()
	b, _ := runBus(t, Options{Sources: []Source{hand}, Outlets: []Outlet{{Name: "relay", Sink: relay}}})
	<-hand.ready
	hand.emit(Message{Kind: EngineSocket, Payload: []byte{1}})
	hand.emit(Message{Kind: ExportSocket, Encoding: JSON, Payload: []byte("{}")})
	hand.emit(Message{Kind: TraceFile, Record: RequestTrace, Payload: []byte("{}")})
	eventually(t, "all counted", func() bool {
		d := b.Drops()
		return dropsOf(d, "relay", "no_subscriber") == 1 && dropsOf(d, "relay", "not_msgpack") == 1 && dropsOf(d, "relay", "not_forward_pass") == 1 && b.Outlets()[0].Error != ""
	})
	if o := b.Outlets()[0]; o.Lost != 3 || o.Taken != 0 || o.Error == "" {
		t.Errorf("%+v", o)
	}
}

// The broker is killed and started again: what the queue holds waits until somebody subscribes there again.
func TestRelayZMQWaitsForItsBroker(t *testing.T) {
	xsub, xpub := "tcp://"+reserved(t), "tcp://"+reserved(t)
	broker := startPeer(t, "broker", xsub, xpub)
	broker.says()
	src := must[Source](t)(NewPlaneZMQ(PlaneZMQOptions{Common: Common{Name: "plane", Retry: quick}, Brokers: []string{xpub}}))
	k := &keeper{}
	in, _ := runBus(t, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "keep", Sink: k}}})
	relay := must[*RelayZMQ](t)(NewRelayZMQ(RelayZMQOptions{RelayTo: RelayTo{Name: "relay", Scope: Scope{"ns", "c", "e"}}, Retry: quick, Brokers: []string{xsub}}))
	hand := newHandmade()
	out, _ := runBus(t, Options{Sources: []Source{hand}, Outlets: []Outlet{{Name: "relay", Sink: relay, Queue: 2000}}})
	<-hand.ready
	for i := range 1000 { // nobody may be there yet
		hand.emit(pass(i))
	}
	eventually(t, "the first thousand", func() bool { return k.count() == 1000 })
	broker.kill()
	eventually(t, "both know", func() bool {
		return relay.Subscribers() == 0 && relay.Status().State == Down && in.Sources()[0].State != Connected
	})
	for i := range 1000 {
		hand.emit(pass(1000 + i))
	}
	startPeer(t, "broker", xsub, xpub).says()
	eventually(t, "the second thousand", func() bool { return k.count() == 2000 })
	if s := in.Sources()[0]; s.Missed != 0 || s.Repeats != 0 || len(out.Drops()) != 0 {
		t.Errorf("%+v, %+v", s, out.Drops())
	}
}

// A message for a subscriber that has gone since it was looked for is counted.
func TestRelayZMQSubscriberGone(t *testing.T) {
	p := &peer{max: 10, maxBytes: 1 << 20, wake: make(chan struct{}, 1)}
	if why := p.push([]byte("a")); why != "" {
		t.Fatal(why)
	}
	if n := p.over(); n != 1 {
		t.Errorf("%d messages are left", n)
	}
	if why := p.push([]byte("b")); why != "connection_lost" || p.rest() != 1 {
		t.Errorf("%q, %d messages are left", why, p.rest())
	}
}

// Connections count as they are made, also those that never say who they are.
func TestRelayZMQFull(t *testing.T) {
	relay := must[*RelayZMQ](t)(NewRelayZMQ(RelayZMQOptions{RelayTo: RelayTo{Name: "relay", Scope: Scope{"ns", "c", ""}}, Bind: "tcp://127.0.0.1:0"}))
	relay.most = 2
	hand := newHandmade()
	b, _ := runBus(t, Options{Sources: []Source{hand}, Outlets: []Outlet{{Name: "relay", Sink: relay}}})
	_, address, err := endpoint(relay.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	for range 3 {
		c := must[net.Conn](t)(net.Dial("tcp", address))
		defer c.Close()
		conns = append(conns, c)
	}
	eventually(t, "the third is refused", func() bool { return dropsOf(b.Drops(), "relay", "too_many_subscribers") == 1 })
	_ = conns[0].Close()
	eventually(t, "there is room for another", func() bool {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		defer c.Close()
		_, err = handshake(c, "SUB", 1<<20, time.Minute, "PUB")
		return err == nil
	})
}

// What a publisher's connection counted is there all the time, also while it is left.
func TestPlaneZMQCountsWhileItLeaves(t *testing.T) {
	p := must[Source](t)(NewPlaneZMQ(PlaneZMQOptions{Common: Common{Name: "plane"}, Discover: func(context.Context) ([]Channel, error) { return nil, nil }})).(*planeZMQ)
	stopped := make(chan struct{})
	c := &channel{Channel: Channel{Endpoint: "tcp://h:1"}, m: newMeter(time.Now, "plane", PlaneZMQ, "tcp://h:1"), stop: func() { close(stopped) }, done: make(chan struct{})}
	c.m.drop("bad_frames", 7)
	p.open[c.Endpoint], p.list = c, []*channel{c}
	left := make(chan struct{})
	go func() {
		p.follow(context.Background(), nil)
		close(left)
	}()
	<-stopped
	during := dropsOf(p.Drops(), "plane", "bad_frames")
	close(c.done)
	<-left
	if after := dropsOf(p.Drops(), "plane", "bad_frames"); during != 7 || after != 7 || len(p.channels()) != 0 {
		t.Errorf("%d are counted while it leaves, %d then", during, after)
	}
}
