package torchfile

import (
	"bytes"
	"runtime"
)

// scout goes ahead of a scan in a goroutine of its own. It has the pages mapped, which costs a fault
// each when the scan meets them, and walks the runs of numbers that it finds there, which are most of
// a dump. Where a run begins it can only guess (it knows nothing of what the bytes around mean), but
// what it found is a fact about the bytes: where the scan meets a run that begins there, it takes the
// answer in place of walking. Pages that the scan is done with it gives back. The scan never waits for
// the scout.
type scout struct {
	f         *File
	src       []byte
	next      int // what was not asked for yet
	windows   chan [2]int
	behind    chan [2]int // what is to be given back
	done      chan struct{}
	found     chan []foundRun
	runs      []foundRun // taken from found, those before the scan's position left out
	alone     bool       // there is one processor: only the pages are worth it
	prevented bool       // the file changes under the map
}

// foundRun is a run of numbers: what scanRun returns for start.
type foundRun struct {
	start, end, n int
	what          uint8
}

const (
	readAhead   = 8 << 20
	scoutWindow = 1 << 20
	// scoutLeast is how many elements a run has that is worth keeping; what looks like a shorter one is
	// as a rule text with a parenthesis in it.
	scoutLeast = 64
)

func newScout(f *File, src []byte) *scout {
	s := &scout{
		f: f, src: src, windows: make(chan [2]int, readAhead/scoutWindow), found: make(chan []foundRun, 2*readAhead/scoutWindow),
		behind: make(chan [2]int, 1), done: make(chan struct{}), alone: runtime.GOMAXPROCS(0) < 2,
	}
	go s.work()
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

func (s *scout) stop() {
	close(s.windows)
	<-s.done
}

func (s *scout) work() {
	defer close(s.done)
	pos := 0
	for w := range s.windows {
		select {
		case b := <-s.behind:
			dropPages(s.f.mapped, b[0], b[1])
		default:
		}
		populate(s.f.mapped, s.f.pickleAt+w[0], s.f.pickleAt+w[1])
		if s.alone || s.prevented {
			continue
		}
		pos = max(pos, w[0])
		var runs []foundRun
		s.prevented = s.f.Guard(func() error {
			runs, pos = findRuns(s.src, pos, w[1])
			return nil
		}) != nil
		select {
		case s.found <- runs:
		default: // nobody takes them
		}
	}
}

// findRuns returns what look like runs behind a MARK that stands in [pos, to), and where to go on.
func findRuns(b []byte, pos, to int) ([]foundRun, int) {
	var runs []foundRun
	for pos < to {
		at := bytes.IndexByte(b[pos:to], opMark)
		if at < 0 {
			return runs, to
		}
		pos += at + 1
		if pos >= len(b) || runInfo[b[pos]] == 0 && b[pos] != opLong1 {
			continue
		}
		end, n, what := scanRun(b, pos)
		if n < scoutLeast {
			continue
		}
		runs = append(runs, foundRun{pos, end, n, what})
		pos = end
	}
	return runs, pos
}

// run is scanRun(s.src, pos) for positions that never decrease.
func (s *scout) run(pos int) (end, n int, what uint8) {
	for {
		for len(s.runs) > 0 && s.runs[0].start < pos {
			s.runs = s.runs[1:]
		}
		if len(s.runs) > 0 {
			if r := &s.runs[0]; r.start == pos {
				return r.end, r.n, r.what
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
	return scanRun(s.src, pos)
}
