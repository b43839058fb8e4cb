package request

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// memory is a store for settled rows that a test can look into.
type memory struct {
	rows map[string]Settled // highest revision
	obs  []Observation
}

func (m *memory) earlier(d Due) (out []Earlier) {
	if len(d.Names) == 0 {
		return nil
	}
	for _, r := range m.rows {
		hit := slices.ContainsFunc(r.Aliases, func(a Alias) bool {
			return slices.Contains(d.Names, a.ID) || slices.Contains(d.Names, string(a.Kind)+":"+a.ID)
		})
		if !hit || r.Time < d.From || r.Time > d.To {
			continue
		}
		e := Earlier{Row: r}
		for _, o := range m.obs {
			if slices.Contains(r.Keys, o.Key()) {
				e.Observations = append(e.Observations, o)
			}
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Earlier) int { return cmp.Compare(a.Row.ID, b.Row.ID) })
	return out
}

func (m *memory) take(t *testing.T, rows []Settled) {
	t.Helper()
	for _, r := range rows {
		if old := m.rows[r.ID]; r.Revision != old.Revision+1 {
			t.Fatalf("revision %d of %s after %d", r.Revision, r.ID, old.Revision)
		} else if old.Revision > 0 && old.Time != r.Time {
			t.Fatalf("%s moved from %d to %d", r.ID, old.Time, r.Time)
		}
		m.rows[r.ID] = r
	}
}

// settle runs everything that is due.
func settle(t *testing.T, s *Settler, m *memory, now int64) {
	t.Helper()
	for {
		due := s.Due(now, 10)
		if len(due) == 0 {
			return
		}
		for _, d := range due {
			m.take(t, s.Settle(now, d, m.earlier(d)))
		}
	}
}

// table is what a reader sees, without ids and revisions.
func (m *memory) table() []string {
	var out []string
	for _, r := range m.rows {
		if r.Into == "" {
			out = append(out, fmt.Sprintf("%s %s %s %d %s %v %v", strings.Join(r.Keys, " "), r.Words[EngineWord], r.Outcome, r.Start, r.from(), r.Numbers, r.Flags))
		}
	}
	slices.Sort(out)
	return out
}

func TestShuffledObservationsGiveOneTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var all []Observation
	var want []string
	for i := range 150 {
		obs := madeCall(rng, i).obs
		all = append(all, obs...)
		r := Merge(obs)
		want = append(want, fmt.Sprintf("%s %s %s %d %s %v %v", strings.Join(r.Keys, " "), r.Words[EngineWord], r.Outcome, r.Start, r.from(), r.Numbers, r.Flags))
	}
	slices.Sort(want)
	for round, o := range []SettlerOptions{{}, {}, {MaxOpen: 20}, {MaxKept: 1}, {MaxOpen: 5, MaxKept: 20_000}, {Linger: time.Millisecond}} {
		rng.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
		now := base + 1000*second
		s, m := NewSettler(o, now), &memory{rows: map[string]Settled{}, obs: all}
		for i, x := range all {
			now += second / 100
			s.Add(now, x)
			if i%17 == 0 {
				settle(t, s, m, now)
			}
		}
		settle(t, s, m, now+3600*second)
		if got := m.table(); !reflect.DeepEqual(got, want) {
			t.Fatalf("round %d: %d requests, want %d\n%s", round, len(got), len(want), firstDifference(got, want))
		}
		if s.Open() != 0 || s.Next() != 0 {
			t.Errorf("round %d: %d open, next %d", round, s.Open(), s.Next())
		}
		if o.MaxOpen > 0 && s.Counts()["settled_early"] == 0 {
			t.Errorf("round %d: nothing was settled early", round)
		}
		before := m.table()
		for _, x := range all { // said again: nothing changes
			s.Add(now, x)
		}
		settle(t, s, m, now+7200*second)
		if got := m.table(); !reflect.DeepEqual(got, before) {
			t.Errorf("round %d: repeated observations changed the table", round)
		}
	}
}

func firstDifference(got, want []string) string {
	for i := range got {
		if i >= len(want) || got[i] != want[i] {
			w := ""
			if i < len(want) {
				w = want[i]
			}
			return "got  " + got[i] + "\nwant " + w
		}
	}
	return "want more"
}

func one(t *testing.T, rows []Settled) Settled {
	t.Helper()
	if len(rows) != 1 {
		t.Fatalf("%d rows: %+v", len(rows), rows)
	}
	return rows[0]
}

func TestSettleWaitsForTheEnd(t *testing.T) {
	s := NewSettler(SettlerOptions{Linger: 5 * time.Second, Idle: time.Minute}, base)
	now := base + 3600*second*2
	s.Add(now, Observation{Source: FromTrace, Role: "prefill", Engine: "p", Start: now, Finish: now + second, Final: true, Aliases: alias("bootstrap_room", "7", "rid", "a")})
	if d := s.Due(now+6*second, 10); len(d) != 0 {
		t.Fatal("a prefill half is no end")
	}
	s.Add(now+20*second, Observation{Source: FromTrace, Role: "decode", Engine: "d", Start: now, Finish: now + 19*second, Final: true, Aliases: alias("bootstrap_room", "7", "rid", "a")})
	if d := s.Due(now+24*second, 10); len(d) != 0 {
		t.Fatal("it does not linger")
	}
	due := s.Due(now+25*second, 10)
	if len(due) != 1 || due[0].Names != nil {
		t.Fatalf("due %+v", due)
	}
	r := one(t, s.Settle(now, due[0], nil))
	if r.Revision != 1 || r.Words[PrefillEngine] != "p" || r.Words[EngineWord] != "d" || !r.Final {
		t.Errorf("%+v", r)
	}
	// Idle: as it is, and again when more is known.
	s.Add(now, Observation{Source: FromLog, Engine: "e", Start: now, Aliases: alias("rid", "b")})
	if d := s.Due(now+59*second, 10); len(d) != 0 {
		t.Fatal("settled before it was idle")
	}
	r = one(t, s.Settle(now, s.Due(now+60*second, 10)[0], nil))
	if r.Outcome != Running || r.Final {
		t.Errorf("%+v", r)
	}
	s.Add(now+100*second, Observation{Source: FromLog, Engine: "e", Start: now, Finish: now + 99*second, Final: true, FinishReason: "stop", Aliases: alias("rid", "b")})
	r2 := one(t, s.Settle(now, s.Due(now+105*second, 10)[0], nil))
	if r2.ID != r.ID || r2.Revision != 2 || r2.Outcome != Finished || !reflect.DeepEqual(r2.Words, func() [NumWords]string { w := r.Words; w[FinishReason] = "stop"; return w }()) {
		t.Errorf("%+v", r2)
	}
}

func TestTwoTracesOfOneRidAreProbable(t *testing.T) {
	s := NewSettler(SettlerOptions{}, base-7200*second)
	m := &memory{rows: map[string]Settled{}}
	s.Add(base, Observation{Source: FromTrace, Service: "gateway", Start: base, Finish: base + 2*second, Final: true, Aliases: alias("trace_id", "06", "rid", "r-17")})
	s.Add(base, Observation{Source: FromTrace, Service: "engine", Start: base + second/10, Finish: base + 19*second/10, Final: true, Aliases: alias("trace_id", "07", "rid", "r-17")})
	settle(t, s, m, base+60*second)
	if len(m.rows) != 2 {
		t.Fatalf("%d rows", len(m.rows))
	}
	for _, r := range m.rows {
		if len(r.Probable) != 1 || m.rows[r.Probable[0].ID].ID == r.ID || !strings.Contains(r.Probable[0].Why, "r-17") || r.Probable[0].TraceID == r.Alias(TraceID) {
			t.Errorf("%+v", r.Probable)
		}
	}
	// A dump's request of that rid fits both: it is merged with neither.
	s.Add(base+60*second, Observation{Source: FromDump, Start: base + second/20, Finish: base + 2*second, Final: true, Aliases: alias("rid", "r-17", "sample_span", "r/train/0/0/s")})
	settle(t, s, m, base+120*second)
	if len(m.rows) != 3 {
		t.Fatalf("%d rows", len(m.rows))
	}
	for _, r := range m.rows {
		if len(r.Probable) != 2 || !slices.Contains(r.Flags, FlagAmbiguous) {
			t.Errorf("%s: %v %v", r.ID, r.Flags, r.Probable)
		}
	}
}

func TestTheStartDecidesBetweenRetries(t *testing.T) {
	s := NewSettler(SettlerOptions{}, base-7200*second)
	m := &memory{rows: map[string]Settled{}}
	for try := range int64(3) {
		at := base + try*second
		s.Add(base, Observation{Source: FromDump, Start: at, Finish: at + second/2, Final: true, Aliases: alias("rid", "r", "sample_span", fmt.Sprint("r/train/0/0/s", try)), Attempt: known(float64(try))})
		s.Add(base, Observation{Source: FromTrace, Engine: "e", Role: "unified", Start: at + second/100, Finish: at + second/3, Final: true, Aliases: alias("rid", "r", "trace_id", fmt.Sprint("0", try))})
	}
	settle(t, s, m, base+60*second)
	if len(m.rows) != 3 {
		t.Fatalf("%d rows", len(m.rows))
	}
	for _, r := range m.rows {
		if len(r.Keys) != 2 || len(r.Probable) != 0 || r.Numbers[Attempt].V != float64((r.Time-base)/second) {
			t.Errorf("%+v", r)
		}
	}
}

// Two rows are one request once a third observation ties them.
func TestRowsThatTurnOutToBeOne(t *testing.T) {
	s := NewSettler(SettlerOptions{Idle: 6 * time.Second, MaxKept: 1}, base)
	a := Observation{Source: FromTrace, Role: "frontend", Start: base, Finish: base + 2*second, Final: true, Aliases: alias("x_request_id", "x1")}
	b := Observation{Source: FromExport, Engine: "e", Start: base + second/10, Finish: base + 19*second/10, Final: true, Aliases: alias("rid", "r1")}
	tie := Observation{Source: FromDynamo, Start: base + second/20, Finish: base + 2*second, Final: true, Aliases: alias("x_request_id", "x1", "rid", "r1")}
	m := &memory{rows: map[string]Settled{}, obs: []Observation{a, b, tie}}
	s.Add(base, a)
	s.Add(base, b)
	settle(t, s, m, base+60*second)
	if len(m.table()) != 2 {
		t.Fatalf("%v", m.table())
	}
	s.Add(base+100*second, tie)
	settle(t, s, m, base+200*second)
	if got := m.table(); len(got) != 1 || len(m.rows) != 2 {
		t.Fatalf("%v", got)
	}
	for _, r := range m.rows {
		if r.Revision != 2 || r.Into != "" && m.rows[r.Into].ID == "" {
			t.Errorf("%+v", r)
		}
	}
}

func TestEarlierRowWithoutItsObservations(t *testing.T) {
	s := NewSettler(SettlerOptions{}, base+100*second)
	o := Observation{Source: FromDump, Start: base, Finish: base + second, Final: true, Aliases: alias("rid", "r1")}
	old := Merge([]Observation{{Source: FromExport, Engine: "e", Start: base, Finish: base + second, Final: true, Aliases: alias("rid", "r1")}})
	old.ID, old.Revision, old.Time = "r0ld", 1, base
	s.Add(base+100*second, o)
	d := s.Due(base+200*second, 1)[0]
	if !slices.Equal(d.Names, []string{"r1"}) || d.From > base || d.To < base {
		t.Fatalf("%+v", d)
	}
	r := one(t, s.Settle(base+200*second, d, []Earlier{{Row: old}}))
	if r.ID == old.ID || len(r.Probable) != 1 || r.Probable[0].ID != old.ID || !slices.Equal(r.Flags, []string{FlagEarlierLost}) {
		t.Errorf("%+v", r)
	}
}

// What comes between Due and Settle is not lost.
func TestObservationWhileRowsAreLookedUp(t *testing.T) {
	m := &memory{rows: map[string]Settled{}}
	s := NewSettler(SettlerOptions{}, base-7200*second)
	a := Observation{Source: FromExport, Engine: "e", Start: base, Finish: base + second, Final: true, Aliases: alias("rid", "r1")}
	b := Observation{Source: FromDump, Start: base, Finish: base + second, Final: true, Aliases: alias("rid", "r1", "x_request_id", "x")}
	c := Observation{Source: FromTrace, Role: "frontend", Start: base, Finish: base + second, Final: true, Aliases: alias("x_request_id", "x")}
	s.Add(base, a)
	s.Add(base, c)
	due := s.Due(base+10*second, 10)
	if len(due) != 2 || s.Open() != 0 {
		t.Fatalf("%d due, %d open", len(due), s.Open())
	}
	s.Add(base+10*second, b) // ties the two
	for _, d := range due {
		m.take(t, s.Settle(base+10*second, d, nil))
	}
	if len(m.rows) != 0 || s.Open() != 3 {
		t.Fatalf("%d rows, %d open", len(m.rows), s.Open())
	}
	settle(t, s, m, base+60*second)
	if len(m.rows) != 1 {
		t.Fatalf("%d rows", len(m.rows))
	}
	// Postponed: due later.
	s.Add(base+60*second, Observation{Source: FromLog, Engine: "e", Start: base, Finish: base + second, Final: true, Aliases: alias("rid", "r9")})
	d := s.Due(base+70*second, 10)
	s.Postpone(d[0], base+80*second)
	if len(s.Due(base+79*second, 10)) != 0 || len(s.Due(base+80*second, 10)) != 1 {
		t.Error("what was postponed is not due again")
	}
}

func BenchmarkSettle(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := NewSettler(SettlerOptions{}, base)
	var calls []call
	for i := range 4096 {
		calls = append(calls, madeCall(rng, i))
	}
	b.ReportAllocs()
	now := base + 7200*second
	obs := 0
	for i := 0; b.Loop(); i++ {
		now += second / 1000
		shift := int64(i/len(calls)) * 3600 * second
		for _, o := range calls[i%len(calls)].obs {
			o.Start += shift
			if o.Finish != 0 {
				o.Finish += shift
			}
			o.Aliases = slices.Clone(o.Aliases)
			for k := range o.Aliases {
				o.Aliases[k].ID += fmt.Sprint("-", i/len(calls))
			}
			s.Add(now, o)
			obs++
		}
		for _, d := range s.Due(now, 100) {
			s.Settle(now, d, nil)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64(obs)/b.Elapsed().Seconds(), "observations/s")
}
