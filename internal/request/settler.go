package request

import (
	"cmp"
	"container/heap"
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/rollscope/rollscope/internal/event"
)

// SettlerOptions bound a [Settler]. Zero values take the defaults.
type SettlerOptions struct {
	Tolerance Tolerance
	Linger    time.Duration // after the end was seen, for what others say of the request; 5 s
	Idle      time.Duration // of a request whose end nobody saw: then it is settled as it is; 10 min
	MaxOpen   int           // observations not settled; above, the ones next in line are settled early; 100,000
	MaxKept   int           // bytes of settled ones kept for late observations; 64 MiB
}

// The bounds of one cluster and of one id.
const (
	maxTogether = 256 // observations that are compared with each other
	maxSharing  = 256 // requests of one id that a new observation is compared with, newest first
)

// longest is how long before an observation the row may begin that it belongs to.
const longest = time.Hour

// Settler groups observations as they come and says which requests are ready to be settled. It does no
// I/O and has no clock. It is not safe for concurrent use.
//
// [Settler.Add] takes observations, [Settler.Due] tells what is ready and which earlier rows it must see
// first, and [Settler.Settle] yields the rows. An observation that comes after its request was settled
// gives the next revision of the same row.
type Settler struct {
	o     SettlerOptions
	byID  map[string][]*cluster
	queue dueQueue
	kept  *list.List // of *cluster, settled ones, oldest first
	bytes int        // of kept
	open  int        // observations in the queue
	// forgotten is the latest time that a settled request which is no longer kept may cover.
	forgotten int64
	counts    map[string]int64
}

// cluster is a set of observations that may be of one request.
type cluster struct {
	members []keyed
	packed  []byte // instead of members, of a settled one
	names   []string
	rows    []settledRow // as they were last settled
	from    int64        // the time that the members cover
	to      int64
	opened  int64 // now of the first observation since it was settled
	changed int64 // now of the last
	due     int64
	counted int // members that count as open
	at      int // in the queue, -1: it is settled, or between Due and Settle
	kept    *list.Element
	into    *cluster // it became a part of that one
	seen    bool     // earlier rows were looked up for all its names
	waited  bool     // it was found without an end once, and waits until it is idle
}

// settledRow is what must be remembered of a row.
type settledRow struct {
	id       string
	revision int
	time     int64
	keys     []string
	print    [16]byte
}

// Due is a cluster of observations that is ready.
type Due struct {
	// Names are ids under which an earlier row may be stored; empty when none can be.
	Names    []string
	From, To int64 // ns since 1970: what time such a row has
	c        *cluster
}

// Earlier is a row that is stored, with the observations it was made of.
type Earlier struct {
	Row          Settled // the highest revision
	Observations []Observation
}

// NewSettler makes a settler. Rows from before now, ns since 1970, are taken to be possible: what is
// ready asks for them.
func NewSettler(o SettlerOptions, now int64) *Settler {
	o.Linger = cmp.Or(o.Linger, 5*time.Second)
	o.Idle = cmp.Or(o.Idle, 10*time.Minute)
	o.MaxOpen = cmp.Or(o.MaxOpen, 100_000)
	o.MaxKept = cmp.Or(o.MaxKept, 64<<20)
	return &Settler{o: o, byID: map[string][]*cluster{}, kept: list.New(), forgotten: now, counts: map[string]int64{}}
}

// Counts tells how often something was not done as it should be, by reason: settled_early (too many
// open), too_many_together (one id ties more observations than are compared), id_too_common.
func (s *Settler) Counts() map[string]int64 {
	out := make(map[string]int64, len(s.counts))
	for k, v := range s.counts {
		out[k] = v
	}
	return out
}

// Open is how many observations wait.
func (s *Settler) Open() int { return s.open }

// Kept is how many bytes of settled observations are kept for late ones.
func (s *Settler) Kept() int { return s.bytes }

// Next is when the next request is ready, 0 when none waits.
func (s *Settler) Next() int64 {
	if len(s.queue) == 0 {
		return 0
	}
	return s.queue[0].due
}

// Oldest is when the observation came that has waited longest, as its now was; 0 when none waits. What is
// between Due and Settle does not count.
func (s *Settler) Oldest() int64 {
	var oldest int64
	for _, c := range s.queue {
		if oldest == 0 || c.opened < oldest {
			oldest = c.opened
		}
	}
	return oldest
}

// names are what an observation is found by.
func (o *Observation) names() []string {
	var out []string
	for _, a := range o.Aliases {
		if a.ID == "" {
			continue
		}
		switch a.Kind {
		case SpanID: // only within its trace
			continue
		case BootstrapRoom, SampleSpan:
			out = append(out, string(a.Kind)+":"+a.ID)
		default: // one may be the other: Dynamo's trace id is the engine's rid
			out = append(out, a.ID)
		}
	}
	return sortedWords(out)
}

// Add takes an observation; now is ns since 1970. The settler keeps it: its slices are not to be changed
// afterwards.
func (s *Settler) Add(now int64, o Observation) { s.AddKeyed(now, o, o.Key()) }

// AddKeyed is Add for who has the observation's [Observation.Key] at hand.
func (s *Settler) AddKeyed(now int64, o Observation, key string) {
	k := keyed{&o, key}
	names := o.names()
	var home *cluster
	var all []*cluster
	for _, name := range names {
		for _, c := range s.related(&k, name) {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	for _, c := range all {
		s.wake(c, now)
		if slices.ContainsFunc(c.members, func(m keyed) bool { return m.key == k.key }) {
			return // said before
		}
	}
	total := 1
	for _, c := range all {
		if total+len(c.members) > maxTogether {
			s.counts["too_many_together"]++
			continue
		}
		total += len(c.members)
		if home == nil {
			home = c
		} else {
			s.join(home, c)
		}
	}
	if home == nil {
		home = &cluster{at: -1, opened: now}
	}
	s.put(home, k, names)
	home.seen, home.waited = false, false
	home.changed = now
	s.schedule(home, min(now+int64(s.o.Linger), max(now, home.opened+int64(s.o.Idle))))
}

// related finds the clusters that one of k's names leads to and that may be of the same request.
func (s *Settler) related(k *keyed, name string) (out []*cluster) {
	list := s.byID[name]
	tried := 0
	from, to := k.o.window()
	slack := int64(cmp.Or(s.o.Tolerance.Start, defaultStart))
	for i := len(list) - 1; i >= 0; i-- {
		c := list[i]
		if k.o.Start != 0 && c.from != 0 && s.o.Tolerance.Skew == nil && (from-slack > c.to || c.from > to+slack) && !strings.HasPrefix(name, string(SampleSpan)) {
			continue
		}
		if tried++; tried > maxSharing {
			s.counts["id_too_common"]++
			break
		}
		for _, m := range c.view() {
			if m.key == k.key || judge(m.o, k.o, s.o.Tolerance).verdict != Unrelated {
				out = append(out, c)
				break
			}
		}
	}
	return out
}

// view are the members of a cluster, for reading.
func (c *cluster) view() []keyed {
	if c.packed != nil {
		return unpack(c.packed)
	}
	return c.members
}

// wake takes a settled cluster out of the kept ones.
func (s *Settler) wake(c *cluster, now int64) {
	if c.kept == nil {
		return
	}
	s.bytes -= c.size()
	c.members, c.packed = unpack(c.packed), nil
	s.kept.Remove(c.kept)
	c.kept, c.opened = nil, now
	s.schedule(c, now+int64(s.o.Linger))
}

// join makes one cluster of two; neither is a kept one.
func (s *Settler) join(home, c *cluster) {
	if c.at >= 0 {
		heap.Remove(&s.queue, c.at)
	}
	s.count(c, 0)
	for _, m := range c.members {
		s.put(home, m, m.o.names())
	}
	s.unname(c)
	for _, r := range c.rows {
		home.remember(r)
	}
	home.opened = min(home.opened, c.opened)
	c.into, c.members, c.rows = home, nil, nil
}

// count notes how many members of a cluster wait in the queue.
func (s *Settler) count(c *cluster, n int) {
	s.open += n - c.counted
	c.counted = n
}

func (c *cluster) remember(r settledRow) {
	for i := range c.rows {
		if c.rows[i].id == r.id {
			if r.revision > c.rows[i].revision {
				c.rows[i] = r
			}
			return
		}
	}
	c.rows = append(c.rows, r)
}

// put adds a member.
func (s *Settler) put(c *cluster, k keyed, names []string) {
	if slices.ContainsFunc(c.members, func(m keyed) bool { return m.key == k.key }) {
		return
	}
	c.members = append(c.members, k)
	if from, to := k.o.window(); k.o.Start != 0 {
		if c.from == 0 || from < c.from {
			c.from = from
		}
		c.to = max(c.to, to)
	}
	for _, n := range names {
		if !slices.Contains(c.names, n) {
			c.names = append(c.names, n)
			s.byID[n] = append(s.byID[n], c)
		}
	}
}

func (s *Settler) unname(c *cluster) {
	for _, n := range c.names {
		list := slices.DeleteFunc(s.byID[n], func(x *cluster) bool { return x == c })
		if len(list) == 0 {
			delete(s.byID, n)
		} else {
			s.byID[n] = list
		}
	}
}

func (s *Settler) schedule(c *cluster, due int64) {
	s.count(c, len(c.members))
	c.due = due
	if c.at >= 0 {
		heap.Fix(&s.queue, c.at)
		return
	}
	heap.Push(&s.queue, c)
}

// Due takes what is ready out of the queue, at most limit clusters, those first that waited longest. Each
// must be given to [Settler.Settle], or to [Settler.Postpone].
func (s *Settler) Due(now int64, limit int) (out []Due) {
	for len(out) < limit && len(s.queue) > 0 {
		c := s.queue[0]
		early := s.open > s.o.MaxOpen
		if c.due > now && !early {
			break
		}
		if idle := c.opened + int64(s.o.Idle); !early && !c.waited && now < idle && !s.ended(c) {
			c.waited = true
			s.schedule(c, idle)
			continue
		}
		if early && c.due > now {
			s.counts["settled_early"]++
		}
		heap.Pop(&s.queue)
		s.count(c, 0)
		d := Due{c: c}
		if slack := int64(cmp.Or(s.o.Tolerance.Start, defaultStart)); !c.seen && (c.from == 0 || c.from-slack <= s.forgotten) {
			d.Names = slices.Clone(c.names)
			d.From, d.To = c.from-int64(longest), c.to+slack
			if c.from == 0 {
				d.From, d.To = 0, now
			}
		}
		out = append(out, d)
	}
	return out
}

// ended says that of each request among the members somebody saw the end.
func (s *Settler) ended(c *cluster) bool {
	if len(c.members) == 1 { // nothing to tell apart
		return c.members[0].final()
	}
	groups, _, _ := partition(sortKeyed(slices.Clone(c.members)), s.o.Tolerance)
	for _, g := range groups {
		if !slices.ContainsFunc(g, keyed.final) {
			return false
		}
	}
	return true
}

// final says that it saw the end of the request: a prefill engine sees that of its half.
func (k keyed) final() bool { return k.o.Final && k.o.Role != "prefill" }

// Postpone puts back what could not be settled, until the given time.
func (s *Settler) Postpone(d Due, until int64) {
	c := d.c
	if c.into != nil || c.at >= 0 || c.kept != nil {
		return
	}
	s.schedule(c, until)
}

// Settle yields the rows of what was due: new requests, and revisions of those that changed. earlier are
// the stored rows that hold one of d.Names in its time.
func (s *Settler) Settle(now int64, d Due, earlier []Earlier) []Settled {
	c := d.c
	for c.into != nil { // something came meanwhile and tied it to another
		c = c.into
	}
	if c.kept != nil {
		return nil
	}
	lost := s.take(c, earlier)
	if c.at >= 0 { // something came meanwhile: it is due again, and asks for what else may be stored
		s.count(c, len(c.members))
		return nil
	}
	c.seen = true
	members := sortKeyed(slices.Clone(c.members))
	groups, weaks, ambiguous := partition(members, s.o.Tolerance)
	rows := make([]Settled, len(groups))
	for i, g := range groups {
		rows[i] = mergeKeyed(g)
		if ambiguous[i] {
			rows[i].Flags = sortedWords(append(rows[i].Flags, FlagAmbiguous))
		}
	}
	out := name(rows, c.rows, now)
	for _, w := range weaks {
		a, b := &rows[w.a], &rows[w.b]
		a.Probable = append(a.Probable, Probable{b.ID, b.Alias(TraceID), w.why})
		b.Probable = append(b.Probable, Probable{a.ID, a.Alias(TraceID), w.why})
	}
	before := c.rows
	c.rows = nil
	for i := range rows {
		r := &rows[i]
		for _, e := range lost {
			r.Probable = append(r.Probable, Probable{e.ID, e.Alias(TraceID), "an earlier row has one of its ids; what that was made of is no longer stored, so it was not merged"})
			r.Flags = sortedWords(append(r.Flags, FlagEarlierLost))
		}
		slices.SortFunc(r.Probable, func(a, b Probable) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Why, b.Why)) })
		print := r.print()
		at := slices.IndexFunc(before, func(x settledRow) bool { return x.id == r.ID })
		revision := 1
		if at >= 0 {
			if revision = before[at].revision; before[at].print != print {
				revision++
			}
		}
		r.Revision = revision
		if at < 0 || revision != before[at].revision {
			out = append(out, *r)
		}
		c.rows = append(c.rows, settledRow{r.ID, revision, r.Time, r.Keys, print})
	}
	s.keep(c)
	return out
}

// take adds stored rows and what they are made of, and returns those that cannot be merged with because
// their observations are gone.
func (s *Settler) take(c *cluster, earlier []Earlier) (lost []Settled) {
	for _, e := range earlier {
		if e.Row.Into != "" || slices.ContainsFunc(c.rows, func(r settledRow) bool { return r.id == e.Row.ID }) {
			continue
		}
		var found []keyed
		for i := range e.Observations {
			o := &e.Observations[i]
			if key := o.Key(); slices.Contains(e.Row.Keys, key) {
				found = append(found, keyed{o, key})
			}
		}
		found = sortKeyed(found)
		if len(found) < len(e.Row.Keys) {
			whole := Observation{Start: e.Row.Start, Finish: e.Row.Finish, Aliases: e.Row.Aliases, Engine: e.Row.Words[EngineWord], Final: true}
			if slices.ContainsFunc(c.members, func(m keyed) bool { return judge(m.o, &whole, s.o.Tolerance).verdict != Unrelated }) {
				lost = append(lost, e.Row)
			}
			continue
		}
		related := slices.ContainsFunc(found, func(f keyed) bool {
			return slices.ContainsFunc(c.members, func(m keyed) bool {
				return m.key == f.key || judge(m.o, f.o, s.o.Tolerance).verdict != Unrelated
			})
		})
		if !related {
			continue
		}
		if len(c.members)+len(found) > maxTogether {
			s.counts["too_many_together"]++
			continue
		}
		for _, f := range found {
			s.put(c, f, f.o.names())
		}
		c.remember(settledRow{e.Row.ID, e.Row.Revision, e.Row.Time, e.Row.Keys, e.Row.print()})
	}
	return lost
}

// name gives rows their ids: that of the stored row that most of their observations were in, else a new
// one. It returns rows that end stored ones which are now parts of others.
func name(rows []Settled, before []settledRow, now int64) (ended []Settled) {
	before = slices.Clone(before)
	slices.SortFunc(before, func(a, b settledRow) int { return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.id, b.id)) })
	for _, old := range before {
		best, most := -1, 0
		for i := range rows {
			n := 0
			for _, k := range old.keys {
				if slices.Contains(rows[i].Keys, k) {
					n++
				}
			}
			if n > most {
				best, most = i, n
			}
		}
		switch {
		case best < 0:
		case rows[best].ID == "":
			rows[best].ID, rows[best].Time = old.id, old.time
		default:
			ended = append(ended, Settled{ID: old.id, Revision: old.revision + 1, Into: rows[best].ID, Time: old.time, Keys: old.keys})
		}
	}
	for i := range rows {
		if rows[i].ID == "" {
			sum := sha256.Sum256([]byte(strings.Join(rows[i].Keys, " ")))
			rows[i].ID = "r" + hex.EncodeToString(sum[:10])
			rows[i].Time = cmp.Or(rows[i].Start, now)
		}
	}
	return ended
}

// print is equal for rows that say the same, whatever their revision.
func (s *Settled) print() (p [16]byte) {
	c := *s
	c.Revision = 0
	r := event.Row{Fields: make([]event.Field, 0, usualFields)}
	c.Row(&r)
	r.Add("service", r.Service)
	r.Add("engine", r.Engine)
	b := make([]byte, 0, 1024)
	for _, f := range r.Fields {
		b = append(append(append(append(b, f.Name...), 0), f.Value...), 0)
	}
	sum := sha256.Sum256(b)
	copy(p[:], sum[:])
	return p
}

// size is about what a settled cluster costs in memory.
func (c *cluster) size() int {
	n := 256 + len(c.packed)
	for _, name := range c.names {
		n += len(name) + 96
	}
	for _, r := range c.rows {
		n += 96 + 32*len(r.keys)
	}
	return n
}

// keep puts a settled cluster aside for late observations, and lets go of the oldest above the bound.
func (s *Settler) keep(c *cluster) {
	c.packed = pack(c.members)
	c.members = nil
	c.kept = s.kept.PushBack(c)
	s.bytes += c.size()
	for s.bytes > s.o.MaxKept && s.kept.Len() > 0 {
		old := s.kept.Remove(s.kept.Front()).(*cluster)
		old.kept = nil
		s.bytes -= old.size()
		s.unname(old)
		s.forgotten = max(s.forgotten, old.to)
	}
}

// dueQueue is a heap of clusters by when they are due.
type dueQueue []*cluster

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].due < q[j].due }
func (q dueQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *dueQueue) Push(x any) {
	c := x.(*cluster)
	c.at = len(*q)
	*q = append(*q, c)
}

func (q *dueQueue) Pop() any {
	old := *q
	c := old[len(old)-1]
	old[len(old)-1] = nil
	c.at = -1
	*q = old[:len(old)-1]
	return c
}
