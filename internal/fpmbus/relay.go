package fpmbus

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// RelayTo is what both relays take.
type RelayTo struct {
	Name string // in counters; "" takes the address
	// Scope is where messages belong whose carrier does not say it, as engine sockets' do not. Its
	// namespace and component must be set.
	Scope Scope
	// NoEndpoint writes subjects without the endpoint, as Dynamo before about 1.3 did.
	NoEndpoint bool
	// Publisher is the publisher_id of the first stream; 0 takes a random one. Every namespace, component and
	// endpoint has a stream of its own with numbers that begin at 0.
	Publisher uint64
	Now       func() time.Time // nil is the clock
	Own       *Own             // told of the publisher ids, so that sources do not take them in; may be nil
}

// FromEngines accepts what engines' sockets sent, and nothing that is on an event plane already. It is what
// a relay's [Outlet] should accept unless it connects two planes.
func FromEngines(m Message) bool { return m.Kind == EngineSocket }

const publisherMask = 1<<53 - 1 // so that it is exact in JSON, as Dynamo's newest

// maxStreams bounds how many streams a relay numbers; what would be more goes lost, counted.
const maxStreams = 4096

// stream is one publisher of ours.
type stream struct {
	publisher uint64
	subject   string
	next      uint64
}

// numbering gives messages their numbers when they enter the queue, so that what the queue or a subscriber
// loses shows as a gap.
type numbering struct {
	to  RelayTo
	mu  sync.Mutex
	ids map[Scope]*stream
}

func newNumbering(to RelayTo) (*numbering, error) {
	if to.Scope.Namespace == "" || to.Scope.Component == "" {
		return nil, fmt.Errorf("fpmbus: a relay needs a namespace and a component for messages that name none, got %+v", to.Scope)
	}
	if to.Now == nil {
		to.Now = time.Now
	}
	return &numbering{to: to, ids: map[Scope]*stream{}}, nil
}

// number is called with the queue locked, in the order of the queue.
func (n *numbering) number(m *Message) {
	s := Scope{m.Namespace, m.Component, m.Endpoint}
	if s.Namespace == "" || s.Component == "" {
		s = n.to.Scope
	}
	if n.to.NoEndpoint {
		s.Endpoint = ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	st := n.ids[s]
	if st == nil {
		if len(n.ids) >= maxStreams {
			return
		}
		st = &stream{publisher: n.publisher(), subject: s.Subject()}
		n.ids[s] = st
		n.to.Own.add(st.publisher)
	}
	m.stream, m.number = st, st.next
	st.next++
}

func (n *numbering) publisher() uint64 {
	if n.to.Publisher != 0 {
		return n.to.Publisher + uint64(len(n.ids))
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return binary.BigEndian.Uint64(b[:]) & publisherMask
}

// unfit tells why a message cannot be passed on; "" when it can.
func unfit(m *Message) string {
	switch {
	case m.Record != ForwardPass:
		return "not_forward_pass"
	case m.Encoding != MsgPack:
		return "not_msgpack" // its bytes could not stay what they are
	case m.stream == nil:
		return "too_many_streams"
	}
	return ""
}

// losses counts what a relay lost, by reason.
type losses struct {
	mu sync.Mutex
	of map[string]int64
}

func (l *losses) add(reason string, n int64) {
	if n == 0 {
		return
	}
	l.mu.Lock()
	if l.of == nil {
		l.of = map[string]int64{}
	}
	l.of[reason] += n
	l.mu.Unlock()
}

func (l *losses) list(name string) []Drop {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Drop
	for reason, n := range l.of {
		out = append(out, Drop{name, reason, n})
	}
	return out
}
