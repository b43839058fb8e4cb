package fpmbus

import (
	"context"
	"encoding/binary"
)

// EnginePub is a PUB socket as an engine binds it for one data-parallel rank: messages of an empty topic, a
// number and the payload, without an envelope. It is what simulated engines send through; an [EngineSocket]
// receives from it as from a real one.
type EnginePub struct {
	r     *RelayZMQ
	frame []byte
}

// NewEnginePub binds the socket: ipc:///PATH or tcp://HOST:PORT (port 0 takes a free one). Run serves it.
func NewEnginePub(endpoint string) (*EnginePub, error) {
	r, err := NewRelayZMQ(RelayZMQOptions{RelayTo: RelayTo{Scope: Scope{Namespace: "engine", Component: "engine"}}, Bind: endpoint})
	if err != nil {
		return nil, err
	}
	return &EnginePub{r: r}, nil
}

// Endpoint is where subscribers connect.
func (p *EnginePub) Endpoint() string { return p.r.Endpoint() }

// Run serves subscribers until ctx ends and then gives them a second for what waits for them.
func (p *EnginePub) Run(ctx context.Context) error { return p.r.Run(ctx) }

// Close releases the socket of one that was never run.
func (p *EnginePub) Close() error { return p.r.Close() }

// Subscribers is how many are connected and have subscribed.
func (p *EnginePub) Subscribers() int { return p.r.Subscribers() }

// Drops tells what subscribers did not get, by reason, and of what nobody was there to get.
func (p *EnginePub) Drops() []Drop { return p.r.Drops() }

// Send gives a message to all who subscribed, without waiting for them, and returns to how many. It is not
// safe for concurrent use.
func (p *EnginePub) Send(number uint64, payload []byte) int {
	var seq [8]byte
	binary.BigEndian.PutUint64(seq[:], number)
	p.frame = appendFrame(p.frame[:0], nil, true)
	p.frame = appendFrame(p.frame, seq[:], true)
	p.frame = appendFrame(p.frame, payload, false)
	p.r.mu.Lock()
	peers := p.r.current
	p.r.mu.Unlock()
	n := 0
	for _, s := range peers {
		if !s.wants("") {
			continue
		}
		if why := s.push(p.frame); why != "" {
			p.r.lost.add(why, 1)
			continue
		}
		s.flush()
		n++
	}
	if len(peers) == 0 {
		p.r.lost.add("no_subscriber", 1)
	}
	return n
}
