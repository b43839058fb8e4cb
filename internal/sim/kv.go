package sim

import "math"

// prefix is a cached run of tokens that later prompts may share, a node of the radix cache.
type prefix struct {
	key        uint64
	tokens     int
	refs       int // requests that hold it; it can be evicted at 0
	reusable   bool
	prev, next *prefix // the eviction list, when refs is 0: least recently used first
}

// kvPool is the KV pool of one scheduler with its prefix cache and, behind it, a host tier.
// Always: private + locked + evictable + held <= capacity.
type kvPool struct {
	capacity  int
	private   float64 // tokens of running requests that nobody shares; a fraction with speculative decoding
	locked    int     // tokens of prefixes with refs > 0
	evictable int     // tokens of prefixes with refs == 0
	held      int     // tokens lost to a fault
	byKey     map[uint64]*prefix
	lru       prefix // sentinel
	host      hostTier
	moved     kvMoves
}

// kvMoves is what the pool did since the scheduler last looked.
type kvMoves struct {
	evicted, backedUp, dropped, loadedBack int // tokens
}

// hostTier is the host memory behind the pool (HiCache): tokens by key, oldest out first.
type hostTier struct {
	capacity, used int
	tokens         map[uint64]int
	order          []uint64
}

func newKVPool(capacity, host int) *kvPool {
	p := &kvPool{capacity: capacity, byKey: map[uint64]*prefix{}}
	p.lru.prev, p.lru.next = &p.lru, &p.lru
	p.host = hostTier{capacity: host, tokens: map[uint64]int{}}
	return p
}

// used is what running requests hold.
func (p *kvPool) used() int { return int(math.Ceil(p.private)) + p.locked + p.held }

// free is what is neither held nor cached.
func (p *kvPool) free() int { return p.capacity - p.used() - p.evictable }

// room is what a new allocation could get at most.
func (p *kvPool) room() int { return p.capacity - p.used() }

// reserve evicts until n tokens are free; false when that is not possible.
func (p *kvPool) reserve(n int) bool {
	if p.room() < n {
		return false
	}
	for p.free() < n {
		p.evict(p.lru.next)
	}
	return true
}

func (p *kvPool) evict(e *prefix) {
	p.unlink(e)
	p.evictable -= e.tokens
	delete(p.byKey, e.key)
	p.moved.evicted += e.tokens
	if !e.reusable || p.host.capacity == 0 {
		return
	}
	// A full host tier now and then has no place when it is needed.
	crowded := p.host.used+e.tokens > p.host.capacity && mix(e.key^uint64(e.tokens))%24 == 0
	if !crowded && p.host.put(e.key, e.tokens) {
		p.moved.backedUp += e.tokens
	} else {
		p.moved.dropped += e.tokens
	}
}

// flush empties the cache: what runs keeps its tokens.
func (p *kvPool) flush() {
	for e := p.lru.next; e != &p.lru; e = p.lru.next {
		p.unlink(e)
		p.evictable -= e.tokens
		delete(p.byKey, e.key)
	}
	p.host.used, p.host.order = 0, p.host.order[:0]
	clear(p.host.tokens)
}

func (p *kvPool) unlink(e *prefix) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
}

// lookup says how many tokens of key are cached and whether they are on the host.
func (p *kvPool) lookup(key uint64) (tokens int, onHost bool) {
	if key == 0 {
		return 0, false
	}
	if e := p.byKey[key]; e != nil {
		return e.tokens, false
	}
	n := p.host.tokens[key]
	return n, n > 0
}

// lock takes a reference on the prefix of key.
func (p *kvPool) lock(key uint64) {
	e := p.byKey[key]
	if e.refs == 0 {
		p.unlink(e)
		p.evictable -= e.tokens
		p.locked += e.tokens
	}
	e.refs++
}

// unlock gives a reference back; the prefix stays cached.
func (p *kvPool) unlock(key uint64) {
	e := p.byKey[key]
	e.refs--
	if e.refs == 0 {
		p.locked -= e.tokens
		p.evictable += e.tokens
		p.push(e)
	}
}

// create adds a prefix that its first user is computing, with one reference. The caller has reserved room.
func (p *kvPool) create(key uint64, tokens int) {
	p.byKey[key] = &prefix{key: key, tokens: tokens, refs: 1, reusable: true}
	p.locked += tokens
}

// keep turns n private tokens into a cached run under key (one of its kind: a key in use is replaced).
func (p *kvPool) keep(key uint64, n int, reusable bool) {
	if n <= 0 {
		return
	}
	if old := p.byKey[key]; old != nil {
		if old.refs > 0 {
			return
		}
		p.take(key)
	}
	e := &prefix{key: key, tokens: n, reusable: reusable}
	p.byKey[key] = e
	p.evictable += n
	p.push(e)
}

// take removes an unreferenced run and returns its tokens, which become the caller's own.
func (p *kvPool) take(key uint64) int {
	e := p.byKey[key]
	if e == nil || e.refs > 0 {
		return 0
	}
	p.unlink(e)
	p.evictable -= e.tokens
	delete(p.byKey, key)
	return e.tokens
}

func (p *kvPool) push(e *prefix) {
	e.prev, e.next = p.lru.prev, &p.lru
	e.prev.next, p.lru.prev = e, e
}

// put stores tokens on the host, pushing the oldest out; false when they can never fit.
func (h *hostTier) put(key uint64, tokens int) bool {
	if tokens > h.capacity {
		return false
	}
	if old, ok := h.tokens[key]; ok {
		h.used -= old
	} else {
		h.order = append(h.order, key)
	}
	h.tokens[key] = tokens
	h.used += tokens
	for h.used > h.capacity {
		oldest := h.order[0]
		h.order = h.order[1:]
		h.used -= h.tokens[oldest] // 0 when it was taken
		delete(h.tokens, oldest)
	}
	return true
}

// remove forgets a key whose tokens have gone back to the device. Its place in order stays, worth nothing.
func (h *hostTier) remove(key uint64) int {
	n := h.tokens[key]
	h.used -= n
	delete(h.tokens, key)
	return n
}
