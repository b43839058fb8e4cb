package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// How often a listener of /live hears from us at most, and at least: a silent stream is cut by proxies.
const (
	liveMin = time.Second
	liveMax = 15 * time.Second
)

// live tells listeners that something new can be read. Each listener has a channel of one: what it has
// not read yet and what comes after are the same news.
type live struct {
	mu        sync.Mutex
	seq       int64
	listeners map[chan struct{}]bool
	closed    chan struct{}
	once      sync.Once
}

func newLive() *live {
	return &live{listeners: map[chan struct{}]bool{}, closed: make(chan struct{})}
}

func (l *live) evaluated() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	for c := range l.listeners {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (l *live) listen() (news <-chan struct{}, leave func()) {
	c := make(chan struct{}, 1)
	l.mu.Lock()
	l.listeners[c] = true
	l.mu.Unlock()
	return c, func() {
		l.mu.Lock()
		delete(l.listeners, c)
		l.mu.Unlock()
	}
}

func (l *live) number() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq
}

func (l *live) close() { l.once.Do(func() { close(l.closed) }) }

// getLive streams a tick at once and then one per evaluation, until the client or the server leaves.
func (a *API) getLive(w http.ResponseWriter, r *http.Request) {
	if e := a.notReady(); e != nil {
		refuse(w, faceOurs, e)
		return
	}
	stream := http.NewResponseController(w)
	// A server with a write timeout would cut every stream after it.
	_ = stream.SetWriteDeadline(time.Time{})
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would collect ticks before it sends them
	news, leave := a.live.listen()
	defer leave()
	beat := time.NewTicker(liveMax)
	defer beat.Stop()
	if !a.sendTick(w, r, stream) {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-a.live.closed:
			return
		case <-beat.C:
			if _, err := fmt.Fprint(w, ": still here\n\n"); err != nil || stream.Flush() != nil {
				return
			}
			continue
		case <-news:
		}
		if !a.sendTick(w, r, stream) {
			return
		}
		pause := time.NewTimer(liveMin)
		select {
		case <-pause.C:
		case <-r.Context().Done():
		case <-a.live.closed:
		}
		pause.Stop()
	}
}

// sendTick writes one event; false means that the stream is over.
func (a *API) sendTick(w http.ResponseWriter, r *http.Request, stream *http.ResponseController) bool {
	tick := Tick{Seq: a.live.number(), Now: stamp(a.Now()), Alerts: map[Level]int{}}
	tick.Targets, tick.TargetsUp = a.countTargets()
	if _, last, _, err := a.coverage(r.Context()); err == nil {
		tick.To = stampPtr(last)
	}
	if a.Rules != nil {
		for _, alert := range a.Rules.Alerts() {
			if alert.State == "firing" {
				tick.Alerts[levelOf(alert.Severity)]++
			}
		}
	}
	raw, err := json.Marshal(tick)
	if err != nil {
		a.log.Error("a tick could not be written", "err", err)
		return false
	}
	_, err = fmt.Fprintf(w, "id: %d\nevent: tick\ndata: %s\n\n", tick.Seq, raw)
	return err == nil && stream.Flush() == nil
}
