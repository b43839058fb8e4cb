package fpmbus

import "time"

// windowSize is how far behind the newest a message may come and still be told from a repeat. Only
// brokers that run in pairs deliver out of order, by what one of them is ahead of the other.
const windowSize = 4096

// arrival is what a message's number tells.
type arrival struct {
	missed  int64 // numbers before it that have not come; negative when one of them came now
	restart bool  // its publisher counts anew
	repeat  bool  // it was here already
}

// sequence follows the numbers of one publisher.
type sequence struct {
	started bool
	ordered bool // by a connection that keeps the order: whatever goes back is a restart
	newest  uint64
	at      time.Time // when the newest was published, as its envelope says
	seen    []uint64  // ring of bits, one for each of the last windowSize numbers; nil when ordered
}

// see takes the next number. published is the envelope's time, zero when there is none.
func (s *sequence) see(n uint64, published time.Time) arrival {
	if !s.started {
		s.begin(n, published)
		return arrival{}
	}
	switch {
	case n > s.newest:
		gap := n - s.newest - 1
		if s.seen != nil {
			s.forget(gap + 1)
			s.mark(n)
		}
		s.newest = n
		if published.After(s.at) {
			s.at = published
		}
		return arrival{missed: clamp(gap)}
	case s.ordered:
		if n == s.newest {
			return arrival{repeat: true}
		}
		s.begin(n, published)
		return arrival{restart: true}
	case s.newest-n < windowSize && published.After(s.at) || s.newest-n >= windowSize:
		// A repeat is as old as its first copy, and a broker is never so far behind: this is a new count.
		s.begin(n, published)
		return arrival{restart: true}
	case s.marked(n):
		return arrival{repeat: true}
	}
	s.mark(n)
	return arrival{missed: -1}
}

func (s *sequence) begin(n uint64, published time.Time) {
	s.started, s.newest, s.at = true, n, published
	if s.ordered {
		return
	}
	if s.seen == nil {
		s.seen = make([]uint64, windowSize/64)
	}
	// What came before the first is not missed: nobody knows whether it was sent while we listened. So
	// it must not be taken for late either.
	for i := range s.seen {
		s.seen[i] = ^uint64(0)
	}
}

// forget clears the bits of the next n numbers.
func (s *sequence) forget(n uint64) {
	if n >= windowSize {
		clear(s.seen)
		return
	}
	for i := uint64(1); i <= n; i++ {
		k := (s.newest + i) % windowSize
		s.seen[k/64] &^= 1 << (k % 64)
	}
}

func (s *sequence) mark(n uint64) {
	k := n % windowSize
	s.seen[k/64] |= 1 << (k % 64)
}

func (s *sequence) marked(n uint64) bool {
	k := n % windowSize
	return s.seen[k/64]&(1<<(k%64)) != 0
}

func clamp(n uint64) int64 { return int64(min(n, 1<<62)) }

// maxPublishers bounds how many publishers of one source are followed at once.
const maxPublishers = 4096

// publishers follows those of an event plane. The one that was silent for longest goes when there are too many.
type publishers struct {
	ordered bool
	of      map[publisher]*followed
	tick    uint64
}

// publisher is who counts: a publisher's numbers run for each subject.
type publisher struct {
	id      uint64
	subject string
}

type followed struct {
	sequence
	used uint64
}

func newPublishers(ordered bool) *publishers {
	return &publishers{ordered: ordered, of: map[publisher]*followed{}}
}

func (p *publishers) see(id uint64, subject string, n uint64, published time.Time) arrival {
	p.tick++
	f := p.of[publisher{id, subject}]
	if f == nil {
		if len(p.of) >= maxPublishers {
			p.evict()
		}
		f = &followed{sequence: sequence{ordered: p.ordered}}
		p.of[publisher{id, subject}] = f
	}
	f.used = p.tick
	return f.see(n, published)
}

// evict drops the sixteenth of them that was used least lately, so that it is not done for each message.
func (p *publishers) evict() {
	lo, n := p.tick, 0
	for _, f := range p.of {
		lo = min(lo, f.used)
	}
	for at := lo + (p.tick-lo)/16; ; at += (p.tick-lo)/16 + 1 {
		for k, f := range p.of {
			if f.used <= at {
				delete(p.of, k)
				n++
			}
		}
		if n > 0 {
			return
		}
	}
}
