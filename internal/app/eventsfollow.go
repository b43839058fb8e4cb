package app

import (
	"context"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/event"
	"github.com/rollscope/rollscope/internal/eventstore"
)

// followedEvents is the event store of a data directory that a writer may still use, to be read. What it
// answers from is a view: a store opened on links to the files as they were at a moment, since the store's
// process reads its directory only when it starts. When the directory has changed, the next question after
// some time has a new view made, and the old one goes when nobody uses it any more. While nobody asks,
// nothing is done. Its methods may be called by several goroutines.
type followedEvents struct {
	dir    string // DIR/rollscope
	open   func(ctx context.Context) (*eventstore.Store, error)
	log    *slog.Logger
	follow bool // false: the events are elsewhere, and what is asked is always the present
	// lookAfter is the age from which on a question looks whether the directory changed; from waitAfter on it
	// waits for the new view, for patience at most.
	lookAfter, waitAfter, patience time.Duration
	effort                         time.Duration // how many times as long as making a view took no other one is made
	// renewed is told after each change of the view.
	renewed func()

	mu      sync.Mutex
	now     *eventsView
	retired *eventsView   // in use still
	making  chan struct{} // closed when the view that is being made is there; nil: none is
	next    time.Time     // no new view is made before
	failed  error         // why the last could not be made
	closed  bool
	all     sync.WaitGroup // views that are not closed, and what makes them
}

// eventsView is one store. Its numbers are under the lock of followedEvents.
type eventsView struct {
	store *eventstore.Store
	stop  context.CancelFunc
	ended chan struct{} // closed when the store's Run has
	at    time.Time     // when its links were made, at the latest
	mark  uint64        // of the directory then
	users int
	gone  bool // somebody closes it
}

const (
	// eventsLookAfter to eventsPatience: a question that comes while others do is answered with what was there
	// about 15 s before, one that comes after a pause with what was there a minute before, at most.
	eventsLookAfter = 15 * time.Second
	eventsWaitAfter = time.Minute
	eventsPatience  = 10 * time.Second
	eventsEffort    = 10
)

// start opens the first view.
func (f *followedEvents) start(ctx context.Context) error {
	v, err := f.make(ctx)
	if err != nil {
		return err
	}
	f.now = v
	return nil
}

// make opens a view and runs its store.
func (f *followedEvents) make(ctx context.Context) (*eventsView, error) {
	v := &eventsView{at: time.Now(), ended: make(chan struct{})}
	if f.follow {
		v.mark = markOf(f.dir) // before, so that what comes meanwhile is another
	}
	var err error
	if v.store, err = f.open(ctx); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	v.stop = stop
	go func() {
		defer close(v.ended)
		if err := v.store.Run(run); err != nil {
			f.log.Error("the event store ended", "err", err)
		}
	}()
	f.all.Add(1)
	return v, nil
}

// markOf is another number when a file of the events came, went or grew.
func markOf(dir string) uint64 {
	h := fnv.New64a()
	for _, part := range []string{"spool", "events"} {
		_ = filepath.WalkDir(filepath.Join(dir, part), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Type()&fs.ModeSymlink != 0 {
				return nil // it went meanwhile: the next look sees another tree
			}
			fmt.Fprintf(h, "%s\x00", path)
			if info, err := d.Info(); err == nil && !d.IsDir() {
				fmt.Fprintf(h, "%d\x00%d\x00", info.Size(), info.ModTime().UnixNano())
			}
			return nil
		})
	}
	return h.Sum64()
}

// acquire returns the view to answer from, and what to call when it is answered.
func (f *followedEvents) acquire(ctx context.Context) (*eventsView, func(), error) {
	now := time.Now()
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, nil, eventstore.ErrClosed
	}
	age := now.Sub(f.now.at)
	if f.follow && f.making == nil && age >= f.lookAfter && !now.Before(f.next) {
		f.making = make(chan struct{})
		f.all.Add(1)
		go f.renew(context.WithoutCancel(ctx), f.now.mark)
	}
	made := f.making
	f.mu.Unlock()
	if made != nil && age >= f.waitAfter {
		timer := time.NewTimer(f.patience)
		defer timer.Stop()
		select {
		case <-made:
		case <-timer.C:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, nil, eventstore.ErrClosed
	}
	v := f.now
	v.users++
	return v, func() { f.release(v) }, nil
}

func (f *followedEvents) release(v *eventsView) {
	f.mu.Lock()
	v.users--
	last := v.users == 0 && v == f.retired && !v.gone
	if last {
		v.gone, f.retired = true, nil
	}
	f.mu.Unlock()
	if last {
		go f.end(v)
	}
}

// end closes a view. Whoever uses it still is told that it is down.
func (f *followedEvents) end(v *eventsView) {
	defer f.all.Done()
	v.stop()
	<-v.ended
	if err := v.store.Close(); err != nil {
		f.log.Warn("a copy of the events could not be removed", "err", err)
	}
}

// renew makes a new view when the directory is another than the mark says, and puts it in the place of the
// old one once it answers.
func (f *followedEvents) renew(ctx context.Context, mark uint64) {
	defer f.all.Done()
	began := time.Now()
	var (
		v   *eventsView
		err error
	)
	same := markOf(f.dir) == mark
	if !same {
		if v, err = f.make(ctx); err == nil {
			// A question that finds nothing: it waits for the rows of the spool, too.
			ready, cancel := context.WithTimeout(ctx, time.Minute)
			err = v.store.Query(ready, eventstore.Query{LogsQL: "*", From: 1, To: 1}, func([]event.Field) error { return nil })
			cancel()
			if err != nil {
				f.end(v)
			}
		}
	}
	f.mu.Lock()
	took := time.Since(began)
	f.next = time.Now().Add(max(f.lookAfter, f.effort*took))
	var over []*eventsView
	switch {
	case same:
		f.now.at, f.failed = began, nil
		f.next = time.Time{}
	case err != nil:
		if f.failed == nil {
			f.log.Warn("the events could not be read again; what was read stays shown", "err", err)
		}
		f.failed = err
	case f.closed:
		over = append(over, v)
	default:
		// Of old views one may go on being used, such as by who follows a tail; the one before it ends.
		if f.retired != nil && !f.retired.gone {
			f.retired.gone = true
			over = append(over, f.retired)
		}
		old := f.now
		f.now, f.retired, f.failed = v, old, nil
		if old.users == 0 {
			old.gone, f.retired = true, nil
			over = append(over, old)
		}
	}
	swapped := v != nil && err == nil && !f.closed
	close(f.making)
	f.making = nil
	f.mu.Unlock()
	for _, x := range over {
		go f.end(x)
	}
	if swapped {
		f.log.Debug("the events were read again", "took", took)
		f.renewed()
	}
}

// asOf is when what is shown was read, and why it is no newer, nil when it can be.
func (f *followedEvents) asOf() (time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.follow {
		return time.Time{}, nil
	}
	return f.now.at, f.failed
}

// close ends all views.
func (f *followedEvents) close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	var over []*eventsView
	for _, v := range []*eventsView{f.now, f.retired} {
		if v != nil && !v.gone {
			v.gone = true
			over = append(over, v)
		}
	}
	f.mu.Unlock()
	for _, v := range over {
		f.end(v)
	}
	f.all.Wait()
	return nil
}

// Query asks the view as [eventstore.Store.Query] does.
func (f *followedEvents) Query(ctx context.Context, q eventstore.Query, fn func(fields []event.Field) error) error {
	v, release, err := f.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()
	return v.store.Query(ctx, q, fn)
}

// MaxQueryBytes is as [eventstore.Store.MaxQueryBytes].
func (f *followedEvents) MaxQueryBytes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now.store.MaxQueryBytes()
}

// errReadEvents is the answer to who would write.
var errReadEvents = fmt.Errorf("%w: they were opened to be read", eventstore.ErrReadOnly)

// Append, Flush and Delete are refused.
func (f *followedEvents) Append(context.Context, []event.Row) error { return errReadEvents }

// Flush is refused.
func (f *followedEvents) Flush(context.Context) error { return errReadEvents }

// Delete is refused.
func (f *followedEvents) Delete(context.Context, string) error { return errReadEvents }

// State is the view's.
func (f *followedEvents) State() eventstore.State {
	f.mu.Lock()
	v := f.now
	f.mu.Unlock()
	return v.store.State()
}

// Proxy is the view's, of the moment of each request.
func (f *followedEvents) Proxy() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, release, err := f.acquire(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer release()
		v.store.Proxy().ServeHTTP(w, r)
	})
}
