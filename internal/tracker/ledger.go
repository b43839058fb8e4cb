package tracker

// place is a step on an axis, row is one that was published at some time.
type place struct {
	axis uint8
	step int64
}

type row struct {
	place
	wall float64 // seconds since 1970
}

// ledger knows which steps a run's files hold, and decides what a further one means. It is rebuilt from
// the files; nothing else is kept.
type ledger struct {
	// attempt is the number of the current one, from 0; start is the time of its first step.
	attempt int
	start   float64
	// active are the steps of the curve. A step whose time is before start is of an earlier attempt.
	active map[place]float64
	// known are all steps that were ever published, those of earlier attempts' files too.
	known map[row]struct{}
	// top is the highest active step of each axis; old the highest one of earlier attempts. -1: none.
	top, old []int64
}

func newLedger() *ledger {
	return &ledger{active: map[place]float64{}, known: map[row]struct{}{}, top: none(), old: none()}
}

func none() []int64 {
	l := make([]int64, len(axes))
	for i := range l {
		l[i] = -1
	}
	return l
}

type verdict uint8

const (
	publish    verdict = iota
	published          // the files hold it
	superseded         // a later attempt took its place before it was ever seen
)

// plan is what publishing a step takes.
type plan struct {
	verdict
	// attempt and start are those after the step; begins says that the attempt begins with it.
	attempt int
	start   float64
	begins  bool
	// leaves says which active rows leave the curve; nil means none.
	leaves func(row) bool
	// early says that steps behind it on its axis are already written.
	early bool
}

func (l *ledger) plan(r row) plan {
	p := plan{attempt: l.attempt, start: l.start}
	if _, ok := l.known[r]; ok {
		p.verdict = published
		return p
	}
	was, taken := l.active[r.place]
	switch {
	case taken && r.wall < was:
		p.verdict = superseded
		return p
	case taken && (l.attempt == 0 || was >= l.start):
		p.attempt, p.start, p.begins = l.attempt+1, r.wall, true
		// What other axes logged since the first step that is run again belongs to the attempt that ended.
		since := was
		for q, wall := range l.active {
			if q.axis == r.axis && q.step >= r.step {
				since = min(since, wall)
			}
		}
		p.leaves = func(o row) bool {
			if o.axis == r.axis {
				return o.step >= r.step
			}
			return o.wall >= since
		}
	case l.attempt > 0 && (taken || r.wall >= l.start):
		// A further step of the current attempt: where an axis restarts, its old steps from there on leave.
		p.start = min(l.start, r.wall)
		if l.old[r.axis] >= r.step {
			start := p.start
			p.leaves = func(o row) bool { return o.axis == r.axis && o.step >= r.step && o.wall < start }
		}
	case l.attempt > 0:
		// A step of an earlier attempt that comes late: it is of the curve unless its axis restarted before it.
		for q, wall := range l.active {
			if q.axis == r.axis && wall >= l.start && q.step <= r.step {
				p.verdict = superseded
				return p
			}
		}
	}
	p.early = l.top[r.axis] > r.step
	return p
}

// leave takes rows off the curve, as p says; the caller has done so in the file.
func (l *ledger) leave(p plan) {
	l.attempt, l.start = p.attempt, p.start
	for q, wall := range l.active {
		if p.leaves != nil && p.leaves(row{q, wall}) {
			delete(l.active, q)
		}
	}
	l.top, l.old = none(), none()
	for q, wall := range l.active {
		l.note(q, wall)
	}
}

func (l *ledger) note(q place, wall float64) {
	l.top[q.axis] = max(l.top[q.axis], q.step)
	if l.attempt > 0 && wall < l.start {
		l.old[q.axis] = max(l.old[q.axis], q.step)
	}
}

// add puts a row on the curve.
func (l *ledger) add(r row) {
	l.active[r.place] = r.wall
	l.known[r] = struct{}{}
	l.note(r.place, r.wall)
}

// archive makes a row of an earlier attempt's file known.
func (l *ledger) archive(r row) { l.known[r] = struct{}{} }
