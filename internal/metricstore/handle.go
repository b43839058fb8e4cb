package metricstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/tsdb"
)

// openDB is one opening of the database, with the count of its users so that it is never closed under
// a reader: the head's chunk files are memory maps, and a read after unmapping kills the process.
type openDB struct {
	db    *tsdb.DB
	names *nameSet // names the head holds or held
	reg   *undoRegisterer
	lease
}

// close waits for the users, at most for wait, and closes.
func (h *openDB) close(wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if !h.retire(ctx) {
		// Leak rather than crash: somebody still reads.
		return errors.New("metricstore: queries still run: the database was left open")
	}
	err := noPanic(h.db.Close)
	h.reg.undo()
	return err
}

// errNotReady is what queries get while the database is opened again.
var errNotReady = fmt.Errorf("metricstore: the database is being opened again: %w", tsdb.ErrNotReady)

// lease counts users of something that is to be closed when the last is gone.
type lease struct {
	mu      sync.Mutex
	n       int
	retired bool
	zero    chan struct{}
}

// acquire adds a user; call the result once, when done.
func (l *lease) acquire() (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired {
		return nil, errNotReady
	}
	l.n++
	var once sync.Once
	return func() { once.Do(l.done) }, nil
}

func (l *lease) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n--; l.n == 0 && l.retired {
		close(l.zero)
	}
}

// retire refuses new users and waits for the present ones; false when they are not gone when ctx ends.
func (l *lease) retire(ctx context.Context) bool {
	l.mu.Lock()
	if !l.retired {
		l.retired = true
		l.zero = make(chan struct{})
		if l.n == 0 {
			close(l.zero)
		}
	}
	zero := l.zero
	l.mu.Unlock()
	select {
	case <-zero:
		return true
	case <-ctx.Done():
		return false
	}
}

// undoRegisterer remembers what was registered, so that a second opening can register it again.
type undoRegisterer struct {
	to  prometheus.Registerer
	mu  sync.Mutex
	got []prometheus.Collector
}

func (r *undoRegisterer) Register(c prometheus.Collector) error {
	if err := r.to.Register(c); err != nil {
		return err
	}
	r.mu.Lock()
	r.got = append(r.got, c)
	r.mu.Unlock()
	return nil
}

func (r *undoRegisterer) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

func (r *undoRegisterer) Unregister(c prometheus.Collector) bool { return r.to.Unregister(c) }

func (r *undoRegisterer) undo() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.got {
		r.to.Unregister(c)
	}
	r.got = nil
}

// drained tells whether the lease is retired and unused.
func (l *lease) drained() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.retired && l.n == 0
}
