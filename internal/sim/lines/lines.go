// Package lines renders what happens in a simulated fleet as the log lines that its engines, routers and
// frontends would write: the same requests, engines and times as in its metrics and spans. Its entry
// points are [New], which renders, [Live], which writes the files of a fleet that is served, and [Run],
// which writes lines at a rate.
package lines

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/sim"
)

// Options say how lines are written. The same options and the same fleet give the same lines.
type Options struct {
	Seed uint64
	// Zone is the local time that engines write without saying so; nil: UTC.
	Zone *time.Location
	// Millis writes SGLang's times with milliseconds (SGLANG_LOG_MS).
	Millis bool
	// NoRequests leaves out what SGLang says of each request in JSON (--log-requests --log-requests-level 0
	// --log-requests-format json, releases from 0.5.10 on) and with --enable-request-time-stats-logging.
	NoRequests bool
	// Copy makes another fleet of the same: 1 and more give requests other ids.
	Copy int
}

// Line is one line of one process.
type Line struct {
	Time   time.Time // when it is written
	Member string    // whose log it stands in
	Text   string    // without its end
}

// Renderer turns what a fleet tells into lines. It is safe for concurrent use.
type Renderer struct {
	o Options

	mu      sync.Mutex
	due     queue
	seq     uint64
	count   int64
	members map[string]*member
	names   []string // of members, in the order in which they were seen
	fronts  map[string]string
}

// member is what the renderer remembers of a process.
type member struct {
	last    time.Time // of its last line: a log's times do not go back
	pid     int
	ratios  map[int]float64 // new token ratio by rank
	stats   vllmStats
	hung    time.Time // since when
	told    time.Time // of the last health check that failed
	alarmed bool      // the watchdog has spoken
	ref     sim.Moment
}

// New makes a renderer. Give its Watch to [sim.Fleet.Watch], then take lines with Due.
func New(o Options) *Renderer {
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	return &Renderer{o: o, members: map[string]*member{}, fronts: map[string]string{}}
}

// Watch is what a fleet calls.
func (r *Renderer) Watch() sim.Watch {
	return sim.Watch{
		Call:   func(c sim.Call) { r.locked(func() { r.call(c) }) },
		Report: func(p sim.Report) { r.locked(func() { r.report(p) }) },
		Moment: func(m sim.Moment) { r.locked(func() { r.moment(m) }) },
	}
}

func (r *Renderer) locked(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// Begin writes how the members came up some seconds before, as their logs begin. See [sim.Fleet.Roll].
func (r *Renderer) Begin(roll []sim.Moment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range roll {
		m.Time = m.Time.Add(-time.Second)
		r.start(m)
	}
}

// Due takes the lines that are written by t, in the order of their times.
func (r *Renderer) Due(t time.Time) []Line {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.names {
		r.stuck(r.members[name], t)
	}
	var out []Line
	for len(r.due) > 0 && !r.due[0].at.After(t) {
		w := heap.Pop(&r.due).(waiting)
		m := r.of(w.member)
		at := w.at
		if at.Before(m.last) {
			at = m.last
		}
		m.last = at
		r.count++
		out = append(out, Line{at, w.member, w.write(at.In(r.o.Zone))})
	}
	return out
}

// Rendered is how many lines were taken.
func (r *Renderer) Rendered() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

func (r *Renderer) of(name string) *member {
	m := r.members[name]
	if m == nil {
		m = &member{ratios: map[int]float64{}}
		r.members[name] = m
		r.names = append(r.names, name)
	}
	return m
}

// add puts a line where its time is. Write gets the time at which it really is written.
func (r *Renderer) add(member string, at time.Time, write func(t time.Time) string) {
	r.seq++
	heap.Push(&r.due, waiting{at, r.seq, member, write})
}

// raw adds a line without a time of its own.
func (r *Renderer) raw(member string, at time.Time, text string) {
	r.add(member, at, func(time.Time) string { return text })
}

func (r *Renderer) call(c sim.Call) {
	if r.o.Copy > 0 {
		c.ID = mix(c.ID ^ uint64(r.o.Copy)<<40)
		c.RID = fmt.Sprintf("%016x%016x", mix(hashOf(c.RID)^uint64(r.o.Copy)), c.ID)
		c.Room = mix(c.Room^uint64(r.o.Copy)) >> 1 * min(c.Room, 1)
	}
	r.seen(c.Member, c.PID)
	if c.Front != "" {
		r.fronts[c.Member] = c.Front
	}
	switch c.Kind {
	case sim.VLLM:
		r.vllmCall(c)
	case sim.SGLang:
		r.sglangCall(c)
	case sim.DynamoWorker:
		r.workerCall(c)
	}
	r.frontCall(c)
}

// seen notes the process of a member that was there before anybody watched.
func (r *Renderer) seen(member string, pid int) {
	if st := r.of(member); st.pid == 0 {
		st.pid = pid
	}
}

func (r *Renderer) report(p sim.Report) {
	r.seen(p.Member, p.PID)
	switch p.Kind {
	case sim.VLLM:
		r.vllmReport(p)
	case sim.SGLang, sim.DynamoWorker:
		r.batch(p)
	}
}

func (r *Renderer) moment(m sim.Moment) {
	st := r.of(m.Member)
	switch m.What {
	case sim.Hung:
		st.hung, st.told, st.alarmed, st.ref = m.Time, m.Time, false, m
	case sim.Freed:
		st.hung = time.Time{}
	case sim.Crashed:
		st.hung = time.Time{}
		r.crash(m)
	case sim.Down:
		st.hung = time.Time{}
	case sim.Up:
		if st.pid != 0 && st.pid != m.PID { // a new process; else only its connections were gone
			r.start(m)
		}
	case sim.Retract:
		r.retract(st, m)
	case sim.Sweep, sim.Paused, sim.Synced:
		r.admin(m)
	}
	if m.What == sim.Down || m.What == sim.Crashed || m.What == sim.Up {
		r.routed(m)
	}
}

// start writes the lines of a process that comes up; it is ready at m.Time.
func (r *Renderer) start(m sim.Moment) {
	r.of(m.Member).pid = m.PID
	switch m.Kind {
	case sim.VLLM:
		r.vllmStart(m)
	case sim.SGLang, sim.DynamoWorker:
		r.sglangStart(m)
	case sim.Router:
		r.routerStart(m)
	case sim.DynamoFrontend:
		r.frontendStart(m)
	}
}

// waiting is a line whose time has not come.
type waiting struct {
	at     time.Time
	seq    uint64
	member string
	write  func(time.Time) string
}

// queue is a heap, what is due first on top.
type queue []waiting

// Len implements [heap.Interface].
func (q queue) Len() int { return len(q) }

// Less implements [heap.Interface].
func (q queue) Less(i, j int) bool {
	if !q[i].at.Equal(q[j].at) {
		return q[i].at.Before(q[j].at)
	}
	return q[i].seq < q[j].seq
}

// Swap implements [heap.Interface].
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements [heap.Interface].
func (q *queue) Push(x any) { *q = append(*q, x.(waiting)) }

// Pop implements [heap.Interface].
func (q *queue) Pop() any {
	n := len(*q) - 1
	x := (*q)[n]
	(*q)[n] = waiting{}
	*q = (*q)[:n]
	return x
}

// mix is a cheap hash (splitmix64's finaliser).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

func hashOf(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s)) // never fails
	return h.Sum64()
}

// client is the address that a request came from.
func (r *Renderer) client(id uint64) string {
	return fmt.Sprintf("127.0.0.1:%d", 32768+mix(id^r.o.Seed)%28000)
}

// release is N of SGLang 0.5.N, of a newer one 99.
func release(version string) int {
	n := 0
	if k, err := fmt.Sscanf(version, "0.5.%d", &n); k == 1 && err == nil {
		return n
	}
	return 99
}

// millis writes a duration as SGLang does; one whose ends were not both reached is 0.
func millis(from, to time.Time) string {
	d := time.Duration(0)
	if !from.IsZero() && !to.IsZero() {
		d = to.Sub(from)
	}
	return fmt.Sprintf("%.2fms", float64(d.Nanoseconds())/1e6)
}

// first is the first of the times that was reached.
func first(times ...time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

// stampSeconds is a time as seconds since 1970 with milliseconds.
func stampSeconds(t time.Time) string { return fmt.Sprintf("%.3f", float64(t.UnixMilli())/1000) }
