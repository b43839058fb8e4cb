package fpmbus

import (
	"context"
	"fmt"
	"testing"
)

func TestEnginePubIsHeardAsAnEngine(t *testing.T) {
	for _, at := range []string{"ipc://" + socketPath(t, "fpm.0"), "tcp://127.0.0.1:0"} {
		pub := must[*EnginePub](t)(NewEnginePub(at))
		pub.Send(6, []byte("nobody"))
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- pub.Run(ctx) }()
		src := must[Source](t)(NewEngineSocket(EngineSocketOptions{Common: Common{Name: "e", Retry: quick}, Endpoint: pub.Endpoint(), DPRank: 0}))
		k := &keeper{}
		b, end := runBus(t, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "keep", Sink: k}}})
		eventually(t, "subscribed", func() bool { return pub.Subscribers() == 1 })
		for i := range uint64(500) {
			if i != 100 && pub.Send(7+i, fmt.Appendf(nil, "payload %d", i)) != 1 {
				t.Fatalf("%s: message %d went to nobody", at, i)
			}
		}
		eventually(t, "all messages", func() bool { return k.count() == 499 })
		for _, m := range k.messages() {
			if string(m.Payload) != fmt.Sprintf("payload %d", m.Sequence-7) || m.Kind != EngineSocket {
				t.Fatalf("%s: %+v", at, m)
			}
		}
		if s := b.Sources()[0]; s.Missed != 1 || s.Messages != 499 {
			t.Errorf("%s: %+v", at, s)
		}
		end()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := dropsOf(pub.Drops(), at, "no_subscriber") + dropsOf(pub.Drops(), pub.Endpoint(), "no_subscriber"); n < 1 {
			t.Errorf("drops %+v", pub.Drops())
		}
	}
}
