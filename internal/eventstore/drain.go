package eventstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// sendBytes is how much goes in one request.
	sendBytes = 2 << 20
	// keepBytes is how much of what waits is kept in memory too; the rest is read from the spool.
	keepBytes = 16 << 20
	// settleBytes of the spool sent and not confirmed ask for a confirmation before the interval is over.
	settleBytes = 256 << 20
	// smallSegment is not worth a file of its own.
	smallSegment = 64 << 10
	// remoteVisible is after how long rows of a request whose outcome is not known are visible or never.
	remoteVisible = 3 * time.Second
)

// waitingChunk is a chunk of lines that was accepted and not yet sent.
type waitingChunk struct {
	first uint64
	rows  int
	lines []byte
}

// drainer sends what is in the spool to the store and empties the spool.
type drainer struct {
	s      *Store
	poke   chan struct{} // something to do
	urgent chan struct{} // the spool is full: confirm now

	mu        sync.Mutex
	queue     []waitingChunk
	bytes     int
	progress  chan struct{} // closed and replaced when one of done, confirmed, full, generation, unable changes
	done      uint64        // all rows up to it were sent and answered
	confirmed uint64        // all rows up to it lie in the store's files
	target    uint64        // the last row accepted
	full      bool
	why       string             // what is wrong
	flushers  int                // calls of flush that wait
	settling  context.CancelFunc // ends a confirmation that waits
	// generation is the life of the process that has all rows up to done; only run changes it.
	generation int
	unable     int   // the life in which that was not achieved, because of
	cause      error // which is nothing that a new process mends

	// Only run uses these.
	tried     uint64 // the last row that may have been sent
	opened    uint64 // the last number that was not given out when the spool was opened
	doubt     bool   // the outcome of a request is not known
	sentBytes int64  // since the last confirmation
	sentAt    time.Time
	marks     []mark // of a remote server
	startedAt string // of it, as it says
}

// mark is when rows up to one were sent, and to which start of a server.
type mark struct {
	seq uint64
	at  time.Time
}

func newDrainer(s *Store) *drainer {
	first, last, next := s.spool.bounds()
	d := &drainer{s: s, poke: make(chan struct{}, 1), urgent: make(chan struct{}, 1), progress: make(chan struct{})}
	d.confirmed, d.done, d.target = first-1, first-1, next-1
	d.tried, d.opened = last, next-1 // the process before this one may have sent all there is
	return d
}

// accept takes over a chunk's lines. It is called in order, with the spool's lock held.
func (d *drainer) accept(first uint64, c chunk) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.target = first + uint64(len(c.starts)) - 1
	if d.bytes+len(c.lines) > keepBytes {
		putLines(c.lines)
		return // it is read from the spool
	}
	d.queue = append(d.queue, waitingChunk{first, len(c.starts), c.lines})
	d.bytes += len(c.lines)
}

func (d *drainer) wake() {
	select {
	case d.poke <- struct{}{}:
	default:
	}
}

// urge asks for a confirmation.
func (d *drainer) urge() {
	select {
	case d.urgent <- struct{}{}:
	default:
	}
}

func (d *drainer) sent() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}

// whole reports whether a life of the process has all rows that were sent, also those that an earlier one had
// in memory alone.
func (d *drainer) whole(generation int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.generation == generation
}

func (d *drainer) waiting() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return int64(d.target - d.done)
}

func (d *drainer) trouble() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.why
}

func (d *drainer) storeFull() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.full
}

// accepted is the number of the last row accepted.
func (d *drainer) accepted() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.target
}

// flush waits until all rows up to target are sent.
func (d *drainer) flush(ctx context.Context, target uint64) error {
	d.mu.Lock()
	d.flushers++
	if d.settling != nil && d.done < target {
		d.settling()
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.flushers--
		d.mu.Unlock()
	}()
	d.wake()
	for {
		d.mu.Lock()
		done, progress := d.done, d.progress
		d.mu.Unlock()
		if done >= target {
			return nil
		}
		select {
		case <-progress:
		case <-ctx.Done():
			st := d.s.State()
			return fmt.Errorf("%d rows are not in the event store yet (%s %s): %w", target-done, st.State, st.Reason, context.Cause(ctx))
		}
	}
}

// restored waits until the process that c speaks with has all rows up to done: those that an earlier one had
// in memory alone are sent again. It returns an error that is [ErrDown] when that process ended meanwhile,
// and an [incompleteError] when it is up and does not take them.
func (d *drainer) restored(ctx context.Context, c *client) error {
	if c.remote {
		return nil // it does not tell when it was started anew; see settleRemote
	}
	for {
		d.mu.Lock()
		done, unable, cause, progress := d.generation >= c.generation, d.unable == c.generation, d.cause, d.progress
		d.mu.Unlock()
		if done {
			return nil
		}
		if unable {
			return &incompleteError{cause}
		}
		over := d.changed(c)
		select {
		case <-progress:
		case <-over:
			if !d.s.sup.is(c) {
				return c.broken(ctx, errEnded)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// errEnded is what is known of a process that ended before it said why.
var errEnded = errors.New("its process ended")

// incompleteError is why rows that an earlier process had in memory alone cannot be sent again.
type incompleteError struct{ err error }

func (e *incompleteError) Error() string {
	return "rows are not in the event store yet: " + e.err.Error()
}
func (e *incompleteError) Unwrap() error { return e.err }

// settled waits until all rows up to seq lie in the store's files and are in the spool no longer. False: the
// store takes no rows.
func (d *drainer) settled(ctx context.Context, seq uint64) (bool, error) {
	for {
		d.mu.Lock()
		done, confirmed, full, progress := d.done, d.confirmed, d.full, d.progress
		d.mu.Unlock()
		switch {
		case confirmed >= seq:
			return true, nil
		case full:
			return false, nil
		case done >= seq:
			d.urge()
		}
		select {
		case <-progress:
		case <-ctx.Done():
			st := d.s.State()
			return false, fmt.Errorf("%d rows are not in the event store's files yet (%s %s): %w", seq-confirmed, st.State, st.Reason, context.Cause(ctx))
		}
	}
}

// progressed wakes up those who wait for progress. d.mu is held.
func (d *drainer) progressed() {
	close(d.progress)
	d.progress = make(chan struct{})
}

// reconciled notes how an attempt ended to give the process that c speaks with what earlier ones lost.
func (d *drainer) reconciled(c *client, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		d.generation, d.unable, d.cause = c.generation, 0, nil
	case errors.Is(err, ErrDown):
		return // the same is tried with the next process, or with this one once more
	default:
		d.unable, d.cause = c.generation, err
	}
	d.progressed()
}

// advance notes that all rows up to seq were sent, and forgets them.
func (d *drainer) advance(seq uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if seq > d.done {
		d.done = seq
		d.progressed()
	}
	n := 0
	for n < len(d.queue) && d.queue[n].first+uint64(d.queue[n].rows)-1 <= seq {
		d.bytes -= len(d.queue[n].lines)
		putLines(d.queue[n].lines)
		n++
	}
	d.queue = append(d.queue[:0], d.queue[n:]...)
}

func (d *drainer) note(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if full := errors.Is(err, errStoreFull); full != d.full {
		d.full = full
		d.progressed() // nobody waits any longer for rows that cannot be sent
	}
	d.why = ""
	if err != nil && !d.full {
		d.why = err.Error()
	}
}

// run sends until ctx ends.
func (d *drainer) run(ctx context.Context) {
	pause := minBackoff
	for ctx.Err() == nil {
		err := d.step(ctx)
		if ctx.Err() != nil {
			return
		}
		d.note(err)
		if err == nil {
			pause = minBackoff
			continue
		}
		d.s.opts.Logger.Debug("rows wait in the spool", "reason", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, 2*time.Second)
	}
}

// step does one thing: clears up what is in doubt, sends, confirms, or waits.
func (d *drainer) step(ctx context.Context) error {
	if d.s.sup != nil {
		select { // no process is started for nothing
		case <-d.s.sup.needed:
		case <-d.poke:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	c, err := d.s.client(ctx)
	if err != nil {
		return err
	}
	if c.generation != d.generation || d.doubt {
		err := d.reconcile(ctx, c)
		if ctx.Err() != nil {
			return nil
		}
		d.reconciled(c, err)
		if err != nil {
			return err
		}
		d.doubt = false
		return nil
	}
	sent, err := d.send(ctx, c)
	if err != nil {
		return err
	}
	if sent {
		if d.due() {
			return d.settle(ctx, c)
		}
		return nil
	}
	wait := d.s.opts.FlushInterval
	if d.pending() {
		wait = time.Until(d.sentAt.Add(d.s.opts.FlushInterval))
		if c.remote {
			wait = time.Second
		}
		if wait <= 0 {
			return d.settle(ctx, c)
		}
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-d.poke:
	case <-t.C:
		return d.settle(ctx, c)
	case <-d.urgent:
		return d.settle(ctx, c)
	case <-d.changed(c):
	case <-ctx.Done():
	}
	return nil
}

// changed is closed when the process may have ended.
func (d *drainer) changed(c *client) <-chan struct{} {
	if d.s.sup == nil {
		return nil
	}
	d.s.sup.mu.Lock()
	defer d.s.sup.mu.Unlock()
	if d.s.sup.current != c {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return d.s.sup.changed
}

// pending reports whether rows were sent that are not confirmed.
func (d *drainer) pending() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done > d.confirmed
}

// due reports whether a confirmation should not wait until there is nothing to send.
func (d *drainer) due() bool {
	select {
	case <-d.urgent:
		return true
	default:
	}
	return d.sentBytes > settleBytes || time.Since(d.sentAt) > d.s.opts.FlushInterval
}

// send sends what comes next; false when there is nothing.
func (d *drainer) send(ctx context.Context, c *client) (bool, error) {
	d.mu.Lock()
	next, target := d.done+1, d.target
	var take []waitingChunk
	var bytes int
	for _, w := range d.queue {
		if w.first != next+rowsOf(take) || bytes > 0 && bytes+len(w.lines) > sendBytes {
			break
		}
		take = append(take, w)
		bytes += len(w.lines)
	}
	d.mu.Unlock()
	if next > target {
		return false, nil
	}
	if len(take) == 0 {
		return true, d.sendSpooled(ctx, c, next, target)
	}
	lines := take[0].lines
	if len(take) > 1 {
		lines = *linesPool.Get().(*[]byte)
		for _, w := range take {
			lines = append(lines, w.lines...)
		}
		defer func() { putLines(lines) }()
	}
	last := next + rowsOf(take) - 1
	if err := d.insert(ctx, c, lines, last); err != nil {
		return false, err
	}
	d.advance(last)
	return true, nil
}

func rowsOf(list []waitingChunk) (n uint64) {
	for _, w := range list {
		n += uint64(w.rows)
	}
	return n
}

// insert sends lines, the last of them having the number last, and notes what that leaves in doubt.
func (d *drainer) insert(ctx context.Context, c *client, lines []byte, last uint64) error {
	if len(lines) == 0 {
		return nil
	}
	before := d.tried
	d.tried = max(d.tried, last)
	unread, err := c.insert(ctx, lines)
	d.s.drop(refused, unread)
	var no *refusedError
	switch {
	case err == nil:
	case errors.As(err, &no):
		// It would be refused again for ever.
		n := int64(bytes.Count(lines, []byte{'\n'}))
		d.s.drop(refused, n)
		d.s.opts.Logger.Error("the event store cannot read rows; they are dropped", "rows", n, "reason", no.words)
	case errors.Is(err, errStoreFull):
		d.tried = before
		return err
	default:
		d.doubt = true
		return err
	}
	now := time.Now()
	if d.sentBytes == 0 {
		d.sentAt = now
	}
	d.sentBytes += int64(len(lines))
	if c.remote {
		d.marks = append(d.marks, mark{last, now})
	}
	return nil
}

// sendSpooled sends rows that are not in memory, up to some that are.
func (d *drainer) sendSpooled(ctx context.Context, c *client, next, target uint64) error {
	d.mu.Lock()
	if len(d.queue) > 0 && d.queue[0].first > next {
		target = min(target, d.queue[0].first-1)
	}
	d.mu.Unlock()
	return d.resend(ctx, c, next, target, nil)
}

// resend sends the rows from first to last out of the spool, without those in have.
func (d *drainer) resend(ctx context.Context, c *client, first, last uint64, have *seqSet) error {
	var buf []byte
	upTo := first - 1
	var old int64
	oldest := d.s.opts.Now().Add(-d.s.opts.Retention).UnixNano() - dayNs
	push := func() error {
		if err := d.insert(ctx, c, buf, upTo); err != nil {
			return err
		}
		buf = buf[:0]
		d.advance(upTo)
		return ctx.Err()
	}
	err := d.s.spool.read(first, last, func(r record) error {
		seq := r.first
		for rest := r.lines; len(rest) > 0; seq++ {
			n := bytes.IndexByte(rest, '\n') + 1
			if n == 0 {
				return fmt.Errorf("the spool's record of row %d has no end", r.first)
			}
			line := rest[:n]
			rest = rest[n:]
			if seq < first || seq > last || have.has(seq) {
				continue
			}
			if t, ok := lineTime(line); !ok || t < oldest {
				old++
				continue
			}
			buf = append(buf, line...)
		}
		upTo = min(r.last(), last)
		if len(buf) >= sendBytes {
			return push()
		}
		return nil
	})
	d.s.drop(expired, old)
	if err != nil {
		return err
	}
	upTo = last // what is missing on the way was reported when the spool was opened
	return push()
}

// reconcile finds out which of the rows that may have been sent are stored, and sends the others.
func (d *drainer) reconcile(ctx context.Context, c *client) error {
	d.mu.Lock()
	first := d.confirmed + 1
	d.mu.Unlock()
	last := d.tried
	if last < first {
		return nil
	}
	minT, maxT, some := d.s.spool.span(first, last)
	if !some {
		d.advance(max(last, d.opened))
		return nil
	}
	if c.remote || c.generation == d.generation {
		// Rows of a request that was cut off may still be on their way through the server.
		select {
		case <-time.After(remoteVisible):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := c.flush(ctx); err != nil && !c.remote {
			return err
		}
	}
	have := newSeqSet(first, last)
	if err := c.stored(ctx, first, last, minT, maxT, have.add); err != nil {
		return err
	}
	d.s.opts.Logger.Info("rows whose storing was not confirmed", "rows", last-first+1, "stored", have.count, "sent_again", last-first+1-have.count)
	d.sentBytes, d.marks = 0, nil
	if err := d.resend(ctx, c, first, last, have); err != nil {
		return err
	}
	d.advance(d.opened) // no rows have the numbers up to there
	// Somebody may have seen these rows before the process ended: they must not be missing for a second.
	if err := c.flush(ctx); err != nil && !c.remote {
		return err
	}
	return nil
}

// settle has the store confirm what was sent, and empties the spool. Nothing is sent meanwhile.
func (d *drainer) settle(ctx context.Context, c *client) error {
	if !d.pending() {
		return nil
	}
	if c.remote {
		return d.settleRemote(ctx, c)
	}
	d.mu.Lock()
	first, last := d.confirmed+1, d.done
	if d.flushers > 0 && d.done < d.target {
		d.mu.Unlock()
		return nil
	}
	waitCtx, cancel := context.WithCancel(ctx)
	d.settling = cancel
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.settling = nil
		d.mu.Unlock()
		cancel()
	}()
	minT, maxT, _ := d.s.spool.span(first, last)
	a, err := c.settle(waitCtx, minT, maxT)
	if waitCtx.Err() != nil && ctx.Err() == nil {
		return nil // somebody waits for rows that are not sent yet
	}
	if err != nil {
		return err
	}
	if !a.Settled {
		return fmt.Errorf("the store did not confirm that rows lie in files: %s", a.Reason)
	}
	return d.confirm(last, smallSegment)
}

func (d *drainer) settleRemote(ctx context.Context, c *client) error {
	now := time.Now()
	if len(d.marks) == 0 { // the last rows were on the server already, or too old to be sent
		d.marks = append(d.marks, mark{d.sent(), now})
	}
	n := 0
	for n < len(d.marks) && now.Sub(d.marks[n].at) > d.s.opts.SettleAfter {
		n++
	}
	if n == 0 {
		return nil
	}
	seq := d.marks[n-1].seq
	started := c.started(ctx)
	if d.startedAt != "" && started != "" && started != d.startedAt {
		d.startedAt, d.doubt = started, true
		return nil
	}
	d.startedAt = started
	d.marks = append(d.marks[:0], d.marks[n:]...)
	return d.confirm(seq, smallSegment)
}

// confirm notes that all rows up to seq lie in the store's files, and removes them from the spool.
func (d *drainer) confirm(seq uint64, spare int64) error {
	d.sentBytes, d.sentAt = 0, time.Now()
	if err := d.s.spool.remove(seq, spare); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.confirmed = max(d.confirmed, seq)
	d.progressed()
	return nil
}

// seqSet is a set of numbers in a range.
type seqSet struct {
	first uint64
	bits  []uint64
	count uint64
}

func newSeqSet(first, last uint64) *seqSet {
	return &seqSet{first: first, bits: make([]uint64, (last-first)/64+1)}
}

func (s *seqSet) add(seq uint64) {
	i := seq - s.first
	if s.bits[i/64]&(1<<(i%64)) == 0 {
		s.bits[i/64] |= 1 << (i % 64)
		s.count++
	}
}

func (s *seqSet) has(seq uint64) bool {
	if s == nil || seq < s.first {
		return false
	}
	i := seq - s.first
	return i/64 < uint64(len(s.bits)) && s.bits[i/64]&(1<<(i%64)) != 0
}
