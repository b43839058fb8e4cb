package tailsample

import (
	"encoding/binary"

	"github.com/rollscope/rollscope/internal/span"
)

// memory remembers what was decided, for late spans and for what is tied to a decided trace. It holds at
// most a number of decisions, and none longer than a time after it was last asked for.
type memory struct {
	of    map[span.TraceID]uint32 // place in ring
	ring  []memo
	from  int // the oldest
	n     int
	limit int
	keep  int64 // ns
}

// memo is a decision. With its entry in the map it takes 88 bytes or so.
type memo struct {
	id   span.TraceID
	at   int64
	put  int64 // when it was decided
	rule uint8
	kept bool
	set  bool
}

func (m *memory) put(now int64, id span.TraceID, kept bool, rule uint8) {
	if i, ok := m.of[id]; ok {
		e := &m.ring[i]
		e.at, e.kept, e.rule = now, kept, rule
		return
	}
	m.expire(now)
	if m.n == m.limit {
		m.drop()
	}
	i := (m.from + m.n) % m.limit
	if i == len(m.ring) {
		m.ring = append(m.ring, memo{})
	}
	m.ring[i] = memo{id: id, at: now, put: now, rule: rule, kept: kept, set: true}
	m.of[id] = uint32(i)
	m.n++
}

// get asks for a decision, and keeps it for as long again.
func (m *memory) get(now int64, id span.TraceID) (memo, bool) {
	i, ok := m.of[id]
	if !ok {
		return memo{}, false
	}
	e := &m.ring[i]
	if now-e.at > m.keep {
		return memo{}, false
	}
	e.at = now
	return *e, true
}

// expire forgets the oldest entries when they are too old. One that was asked for since holds up those
// behind it, until it is too old itself or the limit on their number is reached.
func (m *memory) expire(now int64) {
	for range 2 { // a little at each call keeps up, as each call adds one at most
		if m.n == 0 {
			return
		}
		e := m.ring[m.from]
		if e.set && now-e.at <= m.keep {
			return
		}
		m.drop()
	}
}

func (m *memory) drop() {
	e := &m.ring[m.from]
	delete(m.of, e.id)
	*e = memo{}
	m.from = (m.from + 1) % m.limit
	m.n--
}

// groupID is the key under which a session's or a room's having been kept is remembered. No trace has
// such an id: its upper half would have to be this one.
func groupID(key uint64) (id span.TraceID) {
	binary.BigEndian.PutUint64(id[:], 0xf00d_5e55_1011_0000)
	binary.BigEndian.PutUint64(id[8:], key)
	return id
}
