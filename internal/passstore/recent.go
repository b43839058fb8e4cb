package passstore

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/fpm"
)

// recent holds the newest passes in memory, in the order in which they came.
type recent struct {
	life string // of cursors: those of a former process name nothing here

	mu     sync.RWMutex
	ranks  []rankInfo
	at     map[fpm.Key]int
	chunks [][]entry // a ring of chunks, made as they are needed
	first  uint64    // number of the oldest that is held; numbers begin at 1
	next   uint64    // number of the next
	most   uint64
}

// rankInfo is what the entries of a rank have in common.
type rankInfo struct {
	key          fpm.Key
	engine, name string
}

// entry is a pass in memory.
type entry struct {
	time                                 int64
	wall                                 float64
	counter                              uint64
	prefillTokens, prefillKV, kv         uint64
	queuedTokens, queuedKV               uint64
	rank                                 uint32
	missing                              uint32
	prefills, decodes                    uint32
	queuedPrefills, queuedDecodes        uint32
	varPrefill, varKV, varQueued, varQKV float32
	flags                                Flags
	has                                  uint8
}

const (
	chunkSize   = 4096
	defaultMost = 64 * chunkSize // 262,144 passes: 30 MB; 64 ranks at 50 passes a second for 80 s
	hasCounter  = 1
	hasQueued   = 2
)

func newRecent(life string, most int) *recent {
	chunks := max((most+chunkSize-1)/chunkSize, 1) + 1 // one is being written while its old passes go
	return &recent{life: life, at: map[fpm.Key]int{}, chunks: make([][]entry, chunks), first: 1, next: 1, most: uint64(chunks-1) * chunkSize}
}

func (m *recent) entry(n uint64) *entry {
	return &m.chunks[(n/chunkSize)%uint64(len(m.chunks))][n%chunkSize]
}

// narrow is a count as it is held: beyond 4 billion requests it is that.
func narrow(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

func (m *recent) add(rows []Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range rows {
		r := &rows[i]
		rank, ok := m.at[r.Key]
		if !ok {
			if len(m.ranks) >= 1<<16 { // their entries are long gone: names of those that come again are made anew
				m.ranks, m.at, m.first = nil, map[fpm.Key]int{}, m.next
			}
			rank = len(m.ranks)
			m.at[r.Key] = rank
			m.ranks = append(m.ranks, rankInfo{r.Key, r.Engine, r.Name})
		}
		m.ranks[rank].name = r.Name
		c := &m.chunks[(m.next/chunkSize)%uint64(len(m.chunks))]
		if *c == nil {
			*c = make([]entry, chunkSize)
		}
		e := entry{
			time: r.Time, wall: r.Wall, counter: r.Counter, rank: uint32(rank), missing: narrow(r.Missing), flags: r.Flags,
			prefills: narrow(r.Scheduled.PrefillRequests), prefillTokens: r.Scheduled.PrefillTokens, prefillKV: r.Scheduled.PrefillKV,
			decodes: narrow(r.Scheduled.DecodeRequests), kv: r.Scheduled.DecodeKV,
			queuedPrefills: narrow(r.Queued.PrefillRequests), queuedTokens: r.Queued.PrefillTokens,
			queuedDecodes: narrow(r.Queued.DecodeRequests), queuedKV: r.Queued.DecodeKV,
			varPrefill: float32(r.Scheduled.PrefillLengths), varKV: float32(r.Scheduled.DecodeLengths),
			varQueued: float32(r.Queued.PrefillLengths), varQKV: float32(r.Queued.DecodeLengths),
		}
		if r.HasCounter {
			e.has |= hasCounter
		}
		if r.HasQueued {
			e.has |= hasQueued
		}
		(*c)[m.next%chunkSize] = e
		m.next++
		if m.next-m.first > m.most {
			m.first = m.next - m.most
		}
	}
}

func (m *recent) row(e *entry) Row {
	i := &m.ranks[e.rank]
	return Row{
		Key: i.key, Engine: i.engine, Name: i.name, Time: e.time, Counter: e.counter, HasCounter: e.has&hasCounter != 0, HasQueued: e.has&hasQueued != 0,
		Flags: e.flags, Missing: uint64(e.missing), Wall: e.wall,
		Scheduled: fpm.Scheduled{PrefillRequests: uint64(e.prefills), PrefillTokens: e.prefillTokens, PrefillKV: e.prefillKV, PrefillLengths: float64(e.varPrefill),
			DecodeRequests: uint64(e.decodes), DecodeKV: e.kv, DecodeLengths: float64(e.varKV)},
		Queued: fpm.Queued{PrefillRequests: uint64(e.queuedPrefills), PrefillTokens: e.queuedTokens, PrefillLengths: float64(e.varQueued),
			DecodeRequests: uint64(e.queuedDecodes), DecodeKV: e.queuedKV, DecodeLengths: float64(e.varQKV)},
	}
}

// Page is a part of the passes in memory.
type Page struct {
	Rows []Row  // in the order in which they came
	Next string // the cursor behind the last that was looked at
	Gone int64  // passes after the cursor that memory no longer has, of all engines
	More bool   // the limit left out others
}

// after returns the passes of one engine ("" for all) that came after a cursor, the oldest first; for "" and
// for a cursor of a former process the newest.
func (m *recent) after(cursor, engine string, limit int) (Page, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var p Page
	from, known, err := m.parse(cursor)
	if err != nil {
		return p, err
	}
	fits := func(e *entry) bool { return engine == "" || m.ranks[e.rank].engine == engine }
	end := m.next
	if !known { // the newest, told from the oldest of them on
		from = m.next
		for n := 0; from > m.first && n < limit; {
			if from--; fits(m.entry(from)) {
				n++
			}
		}
	} else if from < m.first {
		p.Gone = int64(m.first - from)
		from = m.first
	}
	n := from
	for ; n < end; n++ {
		e := m.entry(n)
		if !fits(e) {
			continue
		}
		if len(p.Rows) == limit {
			p.More = true
			break
		}
		if p.Rows == nil {
			p.Rows = make([]Row, 0, min(int(end-n), limit))
		}
		p.Rows = append(p.Rows, m.row(e))
	}
	p.Next = m.life + "-" + strconv.FormatUint(n, 10)
	return p, nil
}

// parse reads a cursor: the number of the next pass to be told.
func (m *recent) parse(cursor string) (n uint64, known bool, err error) {
	if cursor == "" {
		return 0, false, nil
	}
	life, number, ok := strings.Cut(cursor, "-")
	n, err = strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || n == 0 {
		return 0, false, fmt.Errorf("%q is no cursor", cursor)
	}
	if life != m.life || n > m.next {
		return 0, false, nil
	}
	return n, true, nil
}

// stretch is a part of memory that a burst wants stored: passes by number, of one engine ("" for all), and
// in a stretch of time.
type stretch struct {
	burst, engine string
	from, until   int64  // ns since 1970; until is exclusive
	next, end     uint64 // numbers
}

// numbers are those of the oldest pass from a time on, and of the next that comes.
func (m *recent) numbers(from int64) (first, next uint64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	first = m.next
	for n := m.next; n > m.first; {
		n--
		e := m.entry(n)
		if e.time >= from {
			first = n
		} else if e.flags&Late == 0 && e.time < from-int64(time.Minute) {
			break // what came before came earlier
		}
	}
	return first, m.next
}

// between returns the next rows of a stretch, not many, and moves its beginning behind them. gone is how many
// passes (of all engines) memory lost before they could be read.
func (m *recent) between(x *stretch, limit int) (out []Row, gone int64) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if x.next < m.first {
		gone = int64(min(m.first, x.end) - x.next)
		x.next += uint64(gone)
	}
	for ; x.next < x.end && len(out) < limit; x.next++ {
		e := m.entry(x.next)
		if e.time >= x.from && e.time < x.until && (x.engine == "" || m.ranks[e.rank].engine == x.engine) {
			out = append(out, m.row(e))
		}
	}
	return out, gone
}

// span is how many are held and which time they span.
func (m *recent) span() (int, time.Duration) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.next == m.first {
		return 0, 0
	}
	return int(m.next - m.first), time.Duration(max(0, m.entry(m.next-1).time-m.entry(m.first).time))
}
