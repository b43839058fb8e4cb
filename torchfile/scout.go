package torchfile

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime"
	"sync/atomic"
)

// scout goes ahead of a scan in a goroutine of its own and walks the runs of numbers, which are most of
// a dump. Where a run begins it can only guess (it knows nothing of what the bytes around mean), but
// what it found is a fact about the bytes: where the scan meets a run that begins there, it takes the
// answer in place of walking. Pages that the scan is done with it gives back. The scan never waits for
// the scout.
//
// The scout reads the file in place of touching its map: each page of a map is entered into the page
// tables and taken out again for one look, and where what it reads stays in the processor's cache that
// costs several times as much as the reading. What it has read lies over the map for a while, where the
// scan finds it; see overlay. Where that cannot be, it goes into a buffer for the scout alone. Then the
// scan should not look at a run at all: batches that follow each other are one answer. And what is between
// runs the scout looks at by the map before the scan does.
type scout struct {
	f         *File
	src       []byte
	next      int // what was not asked for yet
	windows   chan [2]int
	behind    chan [2]int // what is to be given back
	done      chan struct{}
	stopping  atomic.Bool
	found     chan []foundRun
	runs      []foundRun // taken from found, those before the scan's position left out
	alone     bool       // there is one processor: only the pages are worth it
	prevented bool       // the file cannot be read, or became shorter
	kept      bool       // something could not be taken from the map again
	buf       []byte
	seen      byte // so that a look at a page is one
}

// foundRun is a run of numbers: what scanRun returns for start, or, when an APPENDS stands at end, for
// the last of several batches, with the elements of all.
type foundRun struct {
	start, end, n int
	what          uint8
	sum           int64 // of elements that are all BININT1; -1 for others
}

const (
	scoutPage   = 4 << 10
	readAhead   = 8 << 20
	scoutWindow = 256 << 10
	// scoutLeast is how many elements a run has that is worth keeping; what looks like a shorter one is
	// as a rule text with a parenthesis in it.
	scoutLeast = 64
)

// newScout sends a scout ahead. With owner nobody else gives pages of the map back or lays something over it.
func newScout(f *File, src []byte, owner bool) *scout {
	s := &scout{
		f: f, src: src, windows: make(chan [2]int, readAhead/scoutWindow), found: make(chan []foundRun, 2*readAhead/scoutWindow),
		behind: make(chan [2]int, 1), done: make(chan struct{}), alone: runtime.GOMAXPROCS(0) < 2,
	}
	var over *overlay
	if owner {
		over = newOverlay(f)
	}
	go s.work(over)
	s.at(0)
	return s
}

// at asks for what lies ahead of pos, unless that was asked for or the scout is behind.
func (s *scout) at(pos int) {
	for s.next < len(s.src) && s.next < pos+readAhead {
		from := max(s.next, pos)
		to := min(from+scoutWindow, len(s.src))
		select {
		case s.windows <- [2]int{from, to}:
			s.next = to
		default:
			return
		}
	}
}

// drop gives pages back, unless the scout has others to give back still.
func (s *scout) drop(from, to int) bool {
	select {
	case s.behind <- [2]int{from, to}:
		return true
	default:
		return false
	}
}

// stop waits for the scout's end and says whether the map is as it was.
func (s *scout) stop() bool {
	s.stopping.Store(true)
	close(s.windows)
	<-s.done
	return !s.kept
}

func (s *scout) work(over *overlay) {
	defer close(s.done)
	if over != nil {
		defer func() { s.kept = !over.close() }()
	}
	r := runFinder{inStep: true} // the pickle begins with an opcode
	asked := 0
	for w := range s.windows {
		if s.stopping.Load() {
			continue
		}
		select {
		case b := <-s.behind:
			switch {
			case over == nil:
				dropPages(s.f.mapped, b[0], b[1])
			case over.uncover(b[1]):
				dropPages(s.f.mapped, b[0], over.bare(b[1]))
			}
		default:
		}
		if w[0] > asked && w[0] > r.pos { // the scan was faster
			r = runFinder{pos: w[0]}
		}
		asked = w[1]
		at := s.f.pickleAt
		covered := over != nil && over.cover(at+min(w[0], r.pos), at+w[1])
		switch {
		case s.alone:
			if !covered {
				populate(s.f.mapped, at+w[0], at+w[1])
			}
		case s.prevented || r.pos >= w[1]:
		default:
			runs := s.look(&r, w, covered)
			select {
			case s.found <- runs:
			default: // nobody takes them
			}
		}
	}
}

// look finds runs in a window.
func (s *scout) look(r *runFinder, w [2]int, covered bool) (runs []foundRun) {
	last := w[1] == len(s.src)
	if covered {
		s.prevented = s.f.Guard(func() error {
			runs = r.find(s.src[r.pos:w[1]], last)
			return nil
		}) != nil
		return runs
	}
	if n := w[1] - r.pos; cap(s.buf) < n {
		s.buf = make([]byte, n, n+scoutWindow/4)
	} else {
		s.buf = s.buf[:n]
	}
	if n, _ := s.f.r.ReadAt(s.buf, int64(s.f.pickleAt+r.pos)); n < len(s.buf) {
		s.prevented = true // the scan meets it by itself
		return nil
	}
	r.pages = r.pages[:0]
	runs = r.find(s.buf, last)
	populate(s.f.mapped, s.f.pickleAt+w[0], s.f.pickleAt+w[1])
	s.prevented = s.f.Guard(func() error {
		for _, p := range r.pages {
			s.seen ^= s.src[p*scoutPage]
		}
		return nil
	}) != nil
	return runs
}

// runFinder looks for runs in a pickle that it is given piece by piece.
type runFinder struct {
	pos int // how far it is
	// inStep says that an opcode begins at pos. As long as all are understood, strings are stepped over and
	// not looked into. Otherwise, and when the steps lead to what is no opcode, it looks at every byte that
	// is a MARK, until one of them has a run behind it, at whose end the steps begin.
	inStep bool
	open   bool     // pos is within a batch
	batch  foundRun // that batch, as far as it is known
	whole  foundRun // the batches before it, n = 0 when there are none
	pages  []int    // where opcodes are that are in no run
}

// find returns what look like runs that end in b, which begins at r.pos. last says that nothing follows b.
func (r *runFinder) find(b []byte, last bool) (runs []foundRun) {
	base := r.pos
	pos := 0
	defer func() { r.pos = base + pos }()
	for pos < len(b) {
		if r.open {
			end, n, what := scanRun(b, pos)
			r.batch.add(b, pos, end, n, what)
			r.batch.end = base + end
			if pos = end; !last && len(b)-pos < 16 {
				return runs // what follows may be the rest of it
			}
			if pos < len(b) && b[pos] == opAppends {
				r.whole.join(r.batch)
				if pos+2 < len(b) && b[pos+1] == opMark && startsRun(b[pos+2]) {
					pos += 2
					r.batch = foundRun{start: base + pos}
					continue
				}
				r.batch.n = 0
			}
			for _, run := range [...]foundRun{r.whole, r.batch} {
				if run.n >= scoutLeast {
					runs = append(runs, run)
					r.inStep = true
				}
			}
			r.open, r.whole = false, foundRun{}
			continue
		}
		if !r.inStep {
			at := bytes.IndexByte(b[pos:], opMark)
			if at < 0 {
				pos = len(b)
				return runs
			}
			pos += at
		}
		if !last && len(b)-pos < 16 {
			return runs
		}
		if p := (base + pos) / scoutPage; len(r.pages) == 0 || r.pages[len(r.pages)-1] != p {
			r.pages = append(r.pages, p)
		}
		op := b[pos]
		switch size := int(opSize[op]); {
		case op == opMark:
			if pos++; pos < len(b) && startsRun(b[pos]) {
				r.open, r.batch = true, foundRun{start: base + pos}
			}
		case size != 0:
			pos += size
		case op == opBinUnicode && pos+5 <= len(b):
			pos += 5 + int(binary.LittleEndian.Uint32(b[pos+1:]))
		case (op == opShortBinUnicode || op == opLong1) && pos+2 <= len(b):
			pos += 2 + int(b[pos+1])
		default:
			r.inStep = false
		}
	}
	return runs
}

func startsRun(op byte) bool { return runInfo[op] != 0 || op == opLong1 }

// add takes n more elements, which stand in b[from:to].
func (r *foundRun) add(b []byte, from, to, n int, what uint8) {
	if n == 0 {
		return
	}
	r.n += n
	r.what |= what
	if r.sum >= 0 && to-from == 2*n && what == runInt && r.sum <= math.MaxInt32 {
		r.sum += sumRunInts(b, from, to)
	} else {
		r.sum = -1
	}
}

// join appends a batch.
func (r *foundRun) join(batch foundRun) {
	if r.n == 0 {
		*r = batch
		return
	}
	r.end, r.n, r.what = batch.end, r.n+batch.n, r.what|batch.what
	if r.sum >= 0 && batch.sum >= 0 {
		r.sum += batch.sum
	} else {
		r.sum = -1
	}
}

// run is scanRun(s.src, pos) for positions that never decrease, or several batches; see foundRun.
func (s *scout) run(pos int) foundRun {
	for {
		for len(s.runs) > 0 && s.runs[0].start < pos {
			s.runs = s.runs[1:]
		}
		if len(s.runs) > 0 {
			if r := &s.runs[0]; r.start == pos {
				return *r
			}
			break
		}
		select {
		case s.runs = <-s.found:
			continue
		default:
		}
		break
	}
	end, n, what := scanRun(s.src, pos)
	return foundRun{start: pos, end: end, n: n, what: what, sum: -1}
}
