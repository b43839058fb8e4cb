package fpmbus

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// State is how a source is.
type State string

// States of a source. None of them says whether an engine works: a source that is connected and silent is
// Connected with an old Last.
const (
	Starting  State = "starting"  // nothing was tried yet
	Missing   State = "missing"   // there is no such socket or file, or nobody listens there; it is tried again
	Connected State = "connected" // to a publisher, a broker or a server
	Listening State = "listening" // for a publisher that connects to us, or to a file that may grow
	Down      State = "down"      // it was connected; it is tried again
	Refused   State = "refused"   // the other side speaks another protocol or does not let us in; it is tried again
	Ended     State = "ended"     // by us
)

// Status is one socket, subscription or set of files.
type Status struct {
	Name    string
	Kind    Kind
	Address string
	State   State
	Since   time.Time // of the state
	Last    time.Time // message; zero: none yet
	// Messages and Bytes (of payload) that were handed on.
	Messages, Bytes int64
	// Other is what came and is not about forward passes: an event plane carries more.
	Other int64
	// By the carrier's own numbers: messages that never came, publishers that began anew, and messages that
	// came twice (those are not handed on).
	Missed, Restarts, Repeats int64
	Connects                  int64 // connections that were made, so Connects-1 were lost
	Error                     string
	ErrorAt                   time.Time
}

// Drop counts what was not kept.
type Drop struct {
	Source, Reason string
	Count          int64
}

// meter keeps the status and the drops of one socket.
type meter struct {
	mu    sync.Mutex
	now   func() time.Time
	s     Status
	drops map[string]int64
	gone  int64 // the most that ever were missed: some of those may come late, and a drop's count only grows
}

func newMeter(now func() time.Time, name string, kind Kind, address string) *meter {
	return &meter{now: now, drops: map[string]int64{}, s: Status{Name: name, Kind: kind, Address: address, State: Starting, Since: now()}}
}

// state sets the state; an error of nil leaves the last error where it is.
func (m *meter) state(s State, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set(s, err)
}

// set is what state does; m.mu is held.
func (m *meter) set(s State, err error) {
	t := m.now()
	if m.s.State != s {
		m.s.State, m.s.Since = s, t
		if s == Connected {
			m.s.Connects++
		}
	}
	if err != nil {
		m.s.Error, m.s.ErrorAt = err.Error(), t
	}
}

// down is for a connection that ended or could not be made.
func (m *meter) down(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch m.s.State {
	case Ended:
	case Connected, Down:
		m.set(Down, err)
	default:
		m.set(stateOf(err), err)
	}
}

// wrong tells an error that leaves the state as it is.
func (m *meter) wrong(err error) {
	m.mu.Lock()
	m.s.Error, m.s.ErrorAt = err.Error(), m.now()
	m.mu.Unlock()
}

func (m *meter) got(at time.Time, bytes int) {
	m.mu.Lock()
	m.s.Messages++
	m.s.Bytes += int64(bytes)
	m.s.Last = at
	m.mu.Unlock()
}

func (m *meter) other() {
	m.mu.Lock()
	m.s.Other++
	m.mu.Unlock()
}

// saw takes what the carrier's numbers tell about one message.
func (m *meter) saw(r arrival) {
	if r == (arrival{}) {
		return
	}
	m.mu.Lock()
	m.s.Missed += r.missed
	m.gone = max(m.gone, m.s.Missed)
	if r.restart {
		m.s.Restarts++
	}
	if r.repeat {
		m.s.Repeats++
	}
	m.mu.Unlock()
}

func (m *meter) drop(reason string, n int64) {
	if n <= 0 {
		return
	}
	m.mu.Lock()
	m.drops[reason] += n
	m.mu.Unlock()
}

// failed counts a drop and tells why.
func (m *meter) failed(reason string, err error) {
	m.drop(reason, 1)
	m.wrong(err)
}

func (m *meter) status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.s
}

func (m *meter) list() []Drop {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Drop
	for reason, n := range m.drops {
		out = append(out, Drop{m.s.Name, reason, n})
	}
	if m.gone > 0 {
		out = append(out, Drop{m.s.Name, "missed", m.gone})
	}
	if m.s.Repeats > 0 {
		out = append(out, Drop{m.s.Name, "repeat", m.s.Repeats})
	}
	return out
}

// merged adds up drops of one source and reason, sorted.
func merged(in []Drop) []Drop {
	slices.SortFunc(in, func(a, b Drop) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Reason, b.Reason))
	})
	out := in[:0]
	for _, d := range in {
		if n := len(out); n > 0 && out[n-1].Source == d.Source && out[n-1].Reason == d.Reason {
			out[n-1].Count += d.Count
			continue
		}
		out = append(out, d)
	}
	return out
}
