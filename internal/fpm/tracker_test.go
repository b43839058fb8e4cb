package fpm

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	second = int64(time.Second)
	t0     = int64(1_780_000_000) * second
)

// busyPass is a pass of v1 that took wall seconds with n requests decoding.
func busyPass(worker string, rank uint32, counter uint64, wall float64, n uint64) *Pass {
	return &Pass{
		Has: HasVersion | HasCounter | HasWall | HasScheduled | HasQueued, Version: 1, WorkerID: worker, Rank: rank, Counter: counter,
		Wall: wall, Scheduled: Scheduled{DecodeRequests: n, DecodeKV: 100 * n},
	}
}

func beat(worker string, rank uint32, counter uint64) *Pass {
	return busyPass(worker, rank, counter, 0, 0)
}

func one(t *testing.T, tr *Tracker, now int64) Status {
	t.Helper()
	all := tr.Statuses(now)
	if len(all) != 1 {
		t.Fatalf("%d ranks, want 1: %+v", len(all), all)
	}
	return all[0]
}

// Silence is judged by the rank's own rhythm, and the last busy value never stays.
func TestStaleByItsOwnRhythm(t *testing.T) {
	type say struct {
		at int64 // ns
		p  *Pass
	}
	for _, c := range []struct {
		name  string
		says  []say
		at    int64
		state State
	}{
		{"just worked", []say{{0, busyPass("1", 0, 0, 0.02, 8)}}, second, Working},
		{"silent after work", []say{{0, busyPass("1", 0, 0, 0.02, 8)}}, 4 * second, Stale},
		{"a pass of 2 s may be followed by silence of as long", []say{{0, busyPass("1", 0, 0, 2, 8)}}, 9 * second, Working},
		{"but not for ever", []say{{0, busyPass("1", 0, 0, 2, 8)}}, 11 * second, Stale},
		{"idle", []say{{0, busyPass("1", 0, 0, 0.02, 8)}, {second, beat("1", 0, 1)}}, 2 * second, Idle},
		{"slow heartbeats", []say{{0, beat("1", 0, 0)}, {20 * second, beat("1", 0, 1)}, {40 * second, beat("1", 0, 2)}}, 95 * second, Idle},
		{"slow heartbeats, dead", []say{{0, beat("1", 0, 0)}, {20 * second, beat("1", 0, 1)}, {40 * second, beat("1", 0, 2)}}, 101 * second, Stale},
		{"fast heartbeats", []say{{0, beat("1", 0, 0)}, {second / 10, beat("1", 0, 1)}, {second / 5, beat("1", 0, 2)}}, second/5 + 2*second, Stale},
		{"a heartbeat after a lost one is no rhythm", []say{{0, beat("1", 0, 0)}, {60 * second, beat("1", 0, 60)}}, 65 * second, Stale},
		{"an hour's pass makes no hour's silence", []say{{0, busyPass("1", 0, 0, 3000, 8)}}, 301 * second, Stale},
		{"a restart ends a rhythm", []say{{0, beat("1", 0, 0)}, {20 * second, beat("1", 0, 1)}, {40 * second, beat("1", 0, 0)}}, 44 * second, Stale},
		{"a clock that steps back", []say{{0, beat("1", 0, 0)}, {-10 * second, beat("1", 0, 1)}}, 2 * second, Idle},
		{"the time of day instead of a duration makes no rhythm", []say{{0, busyPass("1", 0, 0, 1.7e9, 8)}}, 4 * second, Stale},
	} {
		tr := NewTracker(Options{})
		for _, s := range c.says {
			tr.Observe(t0+s.at, Origin{Source: "s"}, s.p)
		}
		got := one(t, tr, t0+c.at)
		if got.State != c.state || got.Reason == "" {
			t.Errorf("%s: %s (%s), want %s", c.name, got.State, got.Reason, c.state)
		}
		if (got.Current == nil) != (c.state == Stale) {
			t.Errorf("%s: current %+v", c.name, got.Current)
		}
		if c.state == Stale {
			if w := tr.Workers(t0 + c.at)[0]; w.State != Stale || w.Load != (Load{}) || w.QueueKnown || w.Silent != 1 {
				t.Errorf("%s: a stale rank's values are in the worker: %+v", c.name, w)
			}
		}
	}
}

func TestGapsRestartsDuplicates(t *testing.T) {
	tr := NewTracker(Options{})
	var got []string
	now := t0
	see := func(p *Pass) {
		now += second / 50
		o := tr.Observe(now, Origin{Source: "s"}, p)
		got = append(got, fmt.Sprintf("%d dup=%t late=%t restart=%t missing=%d%s", p.Counter, o.Duplicate, o.Late, o.Restart, o.Missing, o.Loss))
	}
	for _, p := range []*Pass{
		busyPass("1", 0, 0, 0.010, 4), busyPass("1", 0, 1, 0.011, 4),
		busyPass("1", 0, 5, 0.012, 4), // 2, 3, 4 did not come
		busyPass("1", 0, 5, 0.012, 4), // by another broker
		busyPass("1", 0, 3, 0.013, 4), // was only late
		busyPass("1", 0, 3, 0.013, 4),
		busyPass("1", 0, 6, 0.014, 4),
		busyPass("1", 0, 0, 0.015, 4), // another life
		busyPass("1", 0, 6, 0.014, 4), // a straggler of the first
		busyPass("1", 0, 1, 0.016, 4),
		busyPass("1", 0, 1000, 0.017, 4),
	} {
		see(p)
	}
	want := []string{
		"0 dup=false late=false restart=false missing=0",
		"1 dup=false late=false restart=false missing=0",
		"5 dup=false late=false restart=false missing=3engine",
		"5 dup=true late=false restart=false missing=0",
		"3 dup=false late=true restart=false missing=0",
		"3 dup=true late=false restart=false missing=0",
		"6 dup=false late=false restart=false missing=0",
		"0 dup=false late=false restart=true missing=0",
		"6 dup=true late=false restart=false missing=0",
		"1 dup=false late=false restart=false missing=0",
		"1000 dup=false late=false restart=false missing=998engine",
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
	s := one(t, tr, now)
	if s.Passes != 8 || s.Duplicates != 3 || s.Late != 1 || s.Missing != 1001 || s.Lost() != 1000 || s.Restarts != 1 || s.LastGap != now || s.LastRestart == 0 {
		t.Errorf("%+v", s)
	}
	if !s.BusyIsLowerBound {
		t.Error("passes were lost, and the busy time is not marked as a lower bound")
	}
}

// An idle engine that is restarted sends the same bytes again: only time tells them from duplicates.
func TestIdleRestart(t *testing.T) {
	tr := NewTracker(Options{})
	for i := range 10 {
		tr.Observe(t0+int64(i)*second, Origin{Source: "s"}, beat("1", 0, uint64(i)))
	}
	for i := range 5 {
		tr.Observe(t0+int64(13+i)*second, Origin{Source: "s"}, beat("1", 0, uint64(i)))
	}
	if s := one(t, tr, t0+17*second); s.Restarts != 1 || s.Duplicates != 0 || s.Heartbeats != 15 || s.Missing != 0 {
		t.Errorf("%+v", s)
	}
}

// An old counter that was missing is late only for a while; after that it is another life's. So is one
// that jumps further than messages can be lost.
func TestLateOrRestarted(t *testing.T) {
	for _, c := range []struct {
		name     string
		counters []uint64
		then     uint64
		after    int64
		restart  bool
	}{
		{"was missing", []uint64{5, 6, 8}, 7, second, false},
		{"was missing, long ago", []uint64{5, 6, 8}, 7, 3 * second, true},
		{"before the first", []uint64{5, 6, 8}, 4, second, false},
		{"before the first, long after", []uint64{5, 6, 8}, 4, 3 * second, true},
		{"further back than is remembered", []uint64{1000}, 1000 - window, second, true},
		{"a jump", []uint64{5}, maxLoss + 5, second, false},
		{"too far a jump", []uint64{5}, maxLoss + 6, second, true},
	} {
		tr := NewTracker(Options{})
		now := t0
		for i, n := range c.counters {
			now += 1e6
			tr.Observe(now, Origin{}, busyPass("1", 0, n, 0.01+float64(i)/1000, 1))
		}
		if o := tr.Observe(now+c.after, Origin{}, busyPass("1", 0, c.then, 0.5, 1)); o.Restart != c.restart || o.Duplicate {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

// Two engines under one name are neither restarts without end nor losses.
func TestTwoEnginesUnderOneName(t *testing.T) {
	tr := NewTracker(Options{})
	now := t0
	for i := range uint64(500) {
		now += 5e6
		tr.Observe(now, Origin{Source: "s"}, busyPass("1", 0, 100_000+i, 0.010+float64(i)*1e-6, 4))
		now += 5e6
		tr.Observe(now, Origin{Source: "s"}, busyPass("1", 0, 7+i, 0.020+float64(i)*1e-6, 4))
	}
	s := one(t, tr, now)
	if s.Restarts != 1 || s.Missing != 0 || s.Passes != 1000 || s.Interleaved != 998 || len(s.Notices) != 1 || !strings.Contains(s.Notices[0], "two senders take turns") {
		t.Errorf("%+v", s)
	}
	// One that crashes again and again is said to.
	tr = NewTracker(Options{})
	for i := range 5 {
		tr.Observe(t0+int64(i)*10*second, Origin{Source: "s"}, beat("1", 0, 0))
	}
	if s := one(t, tr, t0+41*second); s.Restarts != 4 || len(s.Notices) == 0 || !strings.Contains(s.Notices[0], "4 times within a minute") {
		t.Errorf("%+v", s)
	}
	if s := one(t, tr, t0+100*second); strings.Contains(strings.Join(s.Notices, ""), "within a minute") {
		t.Errorf("%+v", s.Notices)
	}
}

// A pass that is not emitted because its timer was not ready is neither a gap nor a stall; the busy time
// is then a lower bound.
func TestSkippedEmission(t *testing.T) {
	tr := NewTracker(Options{})
	now := t0
	for i := range 100 {
		now += 20 * int64(time.Millisecond)
		if i == 50 || i == 51 { // two emissions are left out: no counter is spent on them
			now += 20 * int64(time.Millisecond)
		}
		tr.Observe(now, Origin{Source: "s"}, busyPass("1", 0, uint64(i), 0.0199, 8))
	}
	s := one(t, tr, now)
	if s.Missing != 0 || s.Restarts != 0 || s.State != Working {
		t.Errorf("a skipped emission is taken for a gap or a stall: %+v", s)
	}
	if !s.BusyIsLowerBound || s.Unmeasured != 2 || s.UnmeasuredSeconds < 0.03 || s.UnmeasuredSeconds > 0.05 {
		t.Errorf("busy %g s, unmeasured %g s in %d places, lower bound %t", s.BusySeconds, s.UnmeasuredSeconds, s.Unmeasured, s.BusyIsLowerBound)
	}
	tr = NewTracker(Options{})
	tr.Observe(t0, Origin{Source: "s"}, busyPass("1", 0, 0, 1.7e9, 8))
	if s := one(t, tr, t0); !s.BusyIsLowerBound || s.BusySeconds != 0 || s.Implausible != 1 || s.Passes != 1 {
		t.Errorf("the time of day as a duration: %+v", s)
	}
	// Without any, it is exact. Idle time between requests is not unmeasured.
	tr = NewTracker(Options{})
	now = t0
	for i := range 100 {
		now += 20 * int64(time.Millisecond)
		n := uint64(8)
		if i%10 == 0 {
			now += second / 2
			n = 0 // a prompt comes, after nothing was there
		}
		if i%10 == 9 {
			n = 0
		}
		tr.Observe(now, Origin{Source: "s"}, busyPass("1", 0, uint64(i), 0.0199, n))
	}
	if s := one(t, tr, now); s.BusyIsLowerBound || s.Unmeasured != 0 || s.BusySeconds < 1.98 || s.BusySeconds > 2 {
		t.Errorf("busy %g s, unmeasured %g s in %d places, lower bound %t", s.BusySeconds, s.UnmeasuredSeconds, s.Unmeasured, s.BusyIsLowerBound)
	}
}

func TestWhereMessagesAreLost(t *testing.T) {
	tr := NewTracker(Options{})
	from := func(seq uint64) Origin {
		return Origin{Source: "nats", Namespace: "ns", Component: "backend", HasPublisher: true, PublisherID: 1<<53 - 1, Sequence: seq}
	}
	tr.Observe(t0, from(0), busyPass("1", 0, 10, 0.01, 1))
	if o := tr.Observe(t0+1e7, from(1), busyPass("1", 0, 12, 0.02, 1)); o.Missing != 1 || o.Loss != EngineLoss {
		t.Errorf("lost before the relay: %+v", o)
	}
	if o := tr.Observe(t0+2e7, from(5), busyPass("1", 0, 16, 0.03, 1)); o.Missing != 3 || o.Loss != PlaneLoss {
		t.Errorf("lost on the plane: %+v", o)
	}
	if o := tr.Observe(t0+3e7, from(5), busyPass("1", 0, 16, 0.03, 1)); !o.Duplicate {
		t.Errorf("a duplicate: %+v", o)
	}
	if p := tr.Publishers(); len(p) != 1 || p[0].Missing != 3 || p[0].Duplicates != 1 || p[0].Messages != 4 || p[0].ID != 1<<53-1 {
		t.Errorf("%+v", p)
	}
	// The first form has no counter: the socket's sequence stands for it, else losses cannot be seen.
	tr = NewTracker(Options{})
	old := busyPass("1", 0, 0, 0.01, 1)
	old.Has &^= HasVersion | HasCounter
	tr.Observe(t0, Origin{Source: "zmq", HasHop: true, Hop: 5}, old)
	if o := tr.Observe(t0+1e7, Origin{Source: "zmq", HasHop: true, Hop: 9}, old); o.Missing != 3 || o.Loss != EngineLoss {
		t.Errorf("%+v", o)
	}
	tr.Observe(t0+2e7, Origin{Source: "zmq"}, old)
	if s := one(t, tr, t0+2e7); !s.LossUnknown || !s.BusyIsLowerBound || s.Missing != 3 {
		t.Errorf("%+v", s)
	}
	// A sample of the passes has no losses.
	tr = NewTracker(Options{})
	for i := range 5 {
		if o := tr.Observe(t0+int64(i)*5*second, Origin{Source: "file", Sampled: true}, busyPass("1", 0, uint64(i)*250, 0.01, 1)); o.Missing != 0 || o.Restart || o.Duplicate {
			t.Errorf("%+v", o)
		}
	}
}

// Workers without an id are told apart by their publisher, and engines without Dynamo by their source.
func TestWorkersWithoutAnID(t *testing.T) {
	tr := NewTracker(Options{})
	for _, o := range []Origin{
		{Source: "nats", Namespace: "ns", Component: "backend", HasPublisher: true, PublisherID: 7},
		{Source: "nats", Namespace: "ns", Component: "backend", HasPublisher: true, PublisherID: 8},
		{Source: "engine-a"}, {Source: "engine-b"},
	} {
		tr.Observe(t0, o, busyPass("", 0, 5, 0.01, 1))
	}
	var names []string
	for _, s := range tr.Statuses(t0) {
		names = append(names, s.Key.String())
		if len(s.Notices) == 0 || !strings.Contains(s.Notices[0], "worker_id is empty") {
			t.Errorf("%s: notices %q", s.Key, s.Notices)
		}
	}
	want := []string{"source engine-a/0", "source engine-b/0", "ns/backend/publisher 7/0", "ns/backend/publisher 8/0"}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// Case F03: queues of rank 0 are the worker's, times of ranks are of the same moment.
func TestCaseF03(t *testing.T) {
	var ranks []json.RawMessage
	if err := json.Unmarshal(file(t, "testdata/F03/ranks.json"), &ranks); err != nil {
		t.Fatal(err)
	}
	tr := NewTracker(Options{})
	var d Decoder
	var passes []Pass
	for _, in := range ranks {
		var p Pass
		if err := d.DecodeJSON(in, &p); err != nil {
			t.Fatal(err)
		}
		passes = append(passes, p)
		tr.Observe(t0, Origin{Source: "s"}, &p)
	}
	w := tr.Workers(t0)
	if len(w) != 1 || len(w[0].Ranks) != 4 {
		t.Fatalf("%+v", w)
	}
	if g := w[0]; g.Queued.PrefillRequests != 6 || g.Queued.PrefillTokens != 9000 || g.QueueRule != QueueRank0 || !g.QueueKnown ||
		g.Load.DecodeRequests != 60 || g.Wall != 0.03 || g.Imbalance != 2 || g.State != Working || g.Silent != 0 {
		t.Errorf("%+v", g)
	}
	// Without rank 0 the queue is unknown, not 0.
	for _, p := range passes[1:] {
		tr.Observe(t0+10*second, Origin{Source: "s"}, &p)
	}
	if g := tr.Workers(t0 + 10*second)[0]; g.QueueKnown || g.Silent != 1 || g.Load.DecodeRequests != 50 {
		t.Errorf("%+v", g)
	}
	// Where every rank has a queue they are summed, and the rule says so.
	tr = NewTracker(Options{})
	for i, p := range passes {
		p.Queued.PrefillRequests = uint64(i + 1)
		tr.Observe(t0, Origin{Source: "s"}, &p)
	}
	if g := tr.Workers(t0)[0]; g.QueueRule != QueueSum || g.Queued.PrefillRequests != 10 || !g.QueueKnown {
		t.Errorf("%+v", g)
	}
	// No queue anywhere is 0, and the rule is open.
	tr = NewTracker(Options{})
	for _, p := range passes {
		p.Queued = Queued{}
		tr.Observe(t0, Origin{Source: "s"}, &p)
	}
	if g := tr.Workers(t0)[0]; g.QueueRule != QueueNone || g.Queued != (Queued{}) || !g.QueueKnown {
		t.Errorf("%+v", g)
	}
}

func TestImbalanceOfPrefill(t *testing.T) {
	tr := NewTracker(Options{})
	for rank, tokens := range []uint64{300, 100} {
		p := busyPass("1", uint32(rank), 0, 0.01, 0)
		p.Scheduled.PrefillTokens = tokens
		tr.Observe(t0, Origin{}, p)
	}
	tr.Observe(t0, Origin{}, beat("2", 0, 0))
	tr.Observe(t0, Origin{}, busyPass("3", 0, 0, 0.01, 1))
	tr.Observe(t0, Origin{}, beat("3", 1, 0))
	w := tr.Workers(t0)
	if w[0].Imbalance != 1.5 || w[1].Imbalance != 0 || w[1].QueueRule != QueueSingle || w[1].State != Idle || w[2].State != Working || w[2].Imbalance != 2 {
		t.Errorf("%+v", w)
	}
}

// Memory is bounded: the most silent rank makes room when it is stale; live ones are never thrown out.
func TestBoundedRanks(t *testing.T) {
	tr := NewTracker(Options{MaxRanks: 10})
	for i := range 10 {
		tr.Observe(t0+int64(i), Origin{Source: "s"}, busyPass(fmt.Sprint(100+i), 0, 0, 0.01, 1))
	}
	if o := tr.Observe(t0+second, Origin{Source: "s"}, busyPass("999", 0, 0, 0.01, 1)); !o.Dropped {
		t.Error("an eleventh rank was taken")
	}
	if got, want := tr.Drops(), []Drop{{"s", TooMany, 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if o := tr.Observe(t0+20*second, Origin{Source: "s"}, busyPass("999", 0, 1, 0.01, 1)); o.Dropped {
		t.Error("there was room")
	}
	if _, ok := tr.Status(t0+20*second, Key{Worker: "100"}); ok || len(tr.Statuses(t0)) != 10 || tr.Forgotten() != 1 {
		t.Error("the most silent rank stayed")
	}
	for i := range 100 {
		tr.Observe(t0, Origin{Source: "s", HasPublisher: true, PublisherID: uint64(i)}, busyPass("999", 0, uint64(2+i), 0.01, 1))
	}
	if n := len(tr.Publishers()); n != 10 {
		t.Errorf("%d publishers", n)
	}
	if n := tr.Forget(t0 + 2*int64(time.Hour)); n != 10 || len(tr.Statuses(t0)) != 0 || len(tr.Publishers()) != 0 {
		t.Errorf("%d forgotten", n)
	}
}

// delivery is a message as a network may bring it.
type delivery struct {
	life, n int
	p       *Pass
}

// deliveries makes lives of an engine and what comes of them: losses, duplicates, and local disorder.
func deliveries(r *rand.Rand) (out []delivery, came, dups, lost, restarts int) {
	for life := range 1 + r.IntN(4) {
		n := 300 + r.IntN(300)
		first := uint64(r.IntN(2))
		var own []delivery
		lastCame := -1
		lossy := r.Float64() * 0.2
		for i := range n {
			d := delivery{life: life, n: i, p: busyPass("1", 0, first+uint64(i), 0.01+r.Float64()/100, 1+uint64(r.IntN(100)))}
			if i > 0 && r.Float64() < lossy {
				continue
			}
			came++
			lost += i - lastCame - 1
			lastCame = i
			own = append(own, d)
			for r.Float64() < 0.2 {
				own = append(own, d)
				dups++
			}
		}
		// Each moves by 20 places at most.
		order := make([]float64, len(own))
		for i := range own {
			order[i] = float64(i) + r.Float64()*20
		}
		index := make([]int, len(own))
		for i := range index {
			index[i] = i
		}
		slices.SortStableFunc(index, func(a, b int) int {
			switch {
			case order[a] < order[b]:
				return -1
			case order[a] > order[b]:
				return 1
			}
			return 0
		})
		stragglers := out[max(0, len(out)-20):]
		for i, at := range index {
			out = append(out, own[at])
			if life > 0 && i < 10 && r.IntN(3) == 0 { // and what is left of the life before comes in between
				out = append(out, stragglers[r.IntN(len(stragglers))])
				dups++
			}
		}
		if life > 0 {
			restarts++
		}
	}
	return out, came, dups, lost, restarts
}

// Whatever the order in which messages come, and however often, each counts once, what is missing is
// exact, and each restart is seen once.
func TestAnyOrder(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		all, came, dups, lost, restarts := deliveries(r)
		tr := NewTracker(Options{})
		var busy float64
		now := t0
		for _, d := range all {
			now += int64(20 * time.Millisecond)
			o := tr.Observe(now, Origin{Source: "s"}, d.p)
			if !o.Duplicate {
				busy += d.p.Wall
			}
		}
		s := one(t, tr, now)
		if int(s.Passes) != came || int(s.Duplicates) != dups || int(s.Lost()) != lost || int(s.Restarts) != restarts || s.BusySeconds != busy {
			t.Fatalf("seed %d: passes %d (want %d), duplicates %d (%d), lost %d (%d), restarts %d (%d), busy %g (%g)",
				seed, s.Passes, came, s.Duplicates, dups, s.Lost(), lost, s.Restarts, restarts, s.BusySeconds, busy)
		}
	}
}

// FuzzTracker feeds arbitrary messages at arbitrary times. What must hold: every message is counted once
// as something, memory is bounded, and nothing stale is current.
func FuzzTracker(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 255, 255, 255, 255, 255, 255, 255, 255})
	r := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		b := make([]byte, 800)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		tr := NewTracker(Options{MaxRanks: 5})
		now := t0
		var seen, dropped uint64
		for ; len(in) >= 8; in = in[8:] {
			step := int64(binary.LittleEndian.Uint16(in))
			now += (step - 1000) * int64(time.Millisecond)
			p := busyPass([]string{"", "1", "2", "x"}[in[2]&3], uint32(in[2]>>2&3), uint64(int8(in[3])), float64(in[4]&7)*0.01, uint64(in[4]>>3))
			if in[5]&1 != 0 {
				p.Has &^= HasCounter
			}
			p.Queued.PrefillRequests = uint64(in[5] >> 1 & 3)
			if in[5]&0x80 != 0 {
				p.Wall = 1e9
			}
			o := Origin{Source: []string{"a", "b"}[in[6]&1], HasPublisher: in[6]&2 != 0, PublisherID: uint64(in[6] >> 5), Sequence: uint64(in[7]), HasHop: in[6]&4 != 0, Hop: uint64(in[7]), Sampled: in[6]&24 == 24}
			got := tr.Observe(now, o, p)
			seen++
			if got.Dropped {
				dropped++
			}
		}
		var counted uint64
		for _, s := range tr.Statuses(now) {
			counted += s.Passes + s.Heartbeats + s.Duplicates
			if (s.State == Stale) != (s.Current == nil) || s.BusySeconds < 0 || s.Filled > s.Missing || s.Allowance < time.Second {
				t.Fatalf("%+v", s)
			}
		}
		if tr.Forgotten() == 0 && counted+dropped != seen {
			t.Fatalf("%d messages, %d counted and %d dropped", seen, counted, dropped)
		}
		if a, b := tr.Source("a"), tr.Source("b"); a.Messages+b.Messages != seen || a.Passes+a.Heartbeats != a.Messages || a.Refused[TooMany]+b.Refused[TooMany] != dropped {
			t.Fatalf("%+v %+v", a, b)
		}
		if len(tr.Statuses(now)) > 5 || len(tr.Publishers()) > 5 {
			t.Fatal("more than the bound")
		}
		for _, w := range tr.Workers(now) {
			if w.Silent == len(w.Ranks) != (w.State == Stale) || w.Imbalance != 0 && w.Imbalance < 1 {
				t.Fatalf("%+v", w)
			}
		}
	})
}

func BenchmarkObserve(b *testing.B) {
	for _, ranks := range []int{1, 64, 4096} {
		b.Run(fmt.Sprint(ranks), func(b *testing.B) {
			tr := NewTracker(Options{})
			p := *busyPass("", 0, 0, 0.02, 64)
			ids := make([]string, ranks)
			for i := range ids {
				ids[i] = fmt.Sprint(7587888160958627365 + i)
			}
			from := Origin{Source: "nats", Namespace: "default", Component: "backend", HasPublisher: true, PublisherID: 7}
			now := t0
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				p.WorkerID, p.Counter = ids[i%ranks], uint64(i/ranks)
				from.Sequence = uint64(i)
				now += 1e6
				tr.Observe(now, from, &p)
				i++
			}
		})
	}
}

// BenchmarkMemory says what a rank costs that has been restarted once, and so has two lives.
func BenchmarkMemory(b *testing.B) {
	const ranks = 4096
	ids := make([]string, ranks)
	for i := range ids {
		ids[i] = fmt.Sprint(7587888160958627365 + i)
	}
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		tr := NewTracker(Options{})
		for n := range uint64(4) {
			for _, id := range ids {
				tr.Observe(t0+int64(n)*10*second, Origin{Source: "s"}, busyPass(id, 0, n%2, 0.01*float64(n+1), 1))
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(tr)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/ranks, "bytes/rank")
}

func BenchmarkWorkers(b *testing.B) {
	tr := NewTracker(Options{})
	for w := range 64 {
		for rank := range uint32(8) {
			tr.Observe(t0, Origin{Source: "s"}, busyPass(fmt.Sprint(w+1), rank, 0, 0.02, 64))
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		tr.Workers(t0)
	}
}
