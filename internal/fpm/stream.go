package fpm

const (
	// window is how many counters back a stream knows which of them came.
	window = 256
	// maxLoss is how many messages at a time are believed to be lost; a counter that jumps further is another
	// sender's.
	maxLoss = 1_000_000_000
	// horizon is how long after its time, in ns, a message may come again or out of order. What comes
	// later than that with an old counter is from a sender that began anew.
	horizon = 2e9
)

// arrival is what a counter tells about a message.
type arrival uint8

const (
	fresh     arrival = iota // the newest of its stream
	late                     // older than the newest, and missing until now
	early                    // older than all that came
	duplicate                // seen before
	restarted                // the first of a sender that began anew
	other                    // the newest of a sender that sends under the same name as another
)

// life is what came of a sender between two of its restarts.
type life struct {
	first, last uint64
	began       int64
	at          int64 // when the last one came
	seen        [window]seen
}

// seen is one message: 16 bytes, since there are many.
type seen struct {
	counter uint64
	ms      uint32 // after the life began, plus one; 0 for none
	digest  uint32
}

// follow makes a counter the newest and returns how many were left out.
func (l *life) follow(now int64, counter uint64, digest uint32) (missing uint64) {
	missing = counter - l.last - 1
	l.last, l.at = counter, now
	l.mark(now, counter, digest)
	return missing
}

// follows says whether a counter goes on with a life that has not ended yet.
func (l *life) follows(now int64, counter uint64) bool {
	return counter > l.last && counter-l.last <= window && now-l.at <= horizon
}

// stream tells losses, repetitions and restarts by a counter that the sender increases by one. The life
// before the present one is kept: what is left of it may still come, and when two senders share a name
// their messages take turns.
type stream struct{ now, before *life }

func newLife(now int64, counter uint64, digest uint32) *life {
	l := &life{first: counter, last: counter, began: now, at: now}
	l.mark(now, counter, digest)
	return l
}

func (l *life) mark(now int64, counter uint64, digest uint32) {
	ms := max(now-l.began, 0) / 1e6
	l.seen[counter%window] = seen{counter, uint32(min(ms+1, 1<<32-1)), digest}
}

// when returns when a counter came, if it did and is in the window.
func (l *life) when(counter uint64) (at int64, digest uint32, ok bool) {
	s := l.seen[counter%window]
	return l.began + int64(s.ms-1)*1e6, s.digest, s.ms != 0 && s.counter == counter
}

// repeats says whether a message is one that just came.
func (l *life) repeats(now int64, counter uint64, digest uint32) bool {
	at, d, ok := l.when(counter)
	return ok && d == digest && now-at <= horizon
}

// take places a message. missing is how many messages between this one and those that came are not here
// (yet); a late one that comes after all is not taken off it.
func (s *stream) take(now int64, counter uint64, digest uint32) (a arrival, missing uint64) {
	l := s.now
	if l == nil {
		s.now = newLife(now, counter, digest)
		return fresh, 0
	}
	if l.repeats(now, counter, digest) || s.before != nil && s.before.repeats(now, counter, digest) {
		return duplicate, 0
	}
	if b := s.before; b != nil && b.follows(now, counter) && !(l.follows(now, counter) && counter-l.last <= counter-b.last) {
		s.now, s.before = b, l
		return other, b.follow(now, counter, digest)
	}
	if counter > l.last && counter-l.last <= maxLoss {
		return fresh, l.follow(now, counter, digest)
	}
	if _, _, ok := l.when(counter); !ok && counter < l.last && l.last-counter < window {
		if counter < l.first {
			if now-l.began <= horizon { // the first that came was not the first that was sent
				missing = l.first - counter - 1
				l.first = counter
				l.mark(now, counter, digest)
				return early, missing
			}
		} else if now-l.noticed(counter) <= horizon {
			l.mark(now, counter, digest)
			return late, 0
		}
	}
	s.before, s.now = l, newLife(now, counter, digest)
	return restarted, 0
}

// noticed returns when it was first known that a counter is missing: when a later one came.
func (l *life) noticed(counter uint64) int64 {
	first := int64(1<<63 - 1)
	for c := counter + 1; c <= l.last && c > counter; c++ {
		if at, _, ok := l.when(c); ok {
			first = min(first, at)
		}
	}
	return first
}
