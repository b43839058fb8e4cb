package systemport

import (
	"bytes"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
)

// A Dynamo worker passes its engine's metrics on. When that engine is a target too, both would say the same, and
// every sum over the answer would be twice too high. As between an engine and its router the engine's own view
// counts. Which worker has which engine is proven by one of three things; where nothing proves it both views
// stay, and the answer says so: a guess could hide an engine.

// Evidence is what proves that two programs speak of one engine.
type Evidence string

// Kinds of evidence, best first.
const (
	Configured Evidence = "configured" // rollscope.engines names one as an alias of the other
	WorkerID   Evidence = "worker_id"  // both have the same Dynamo worker_id on all lines of the engine
	Values     Evidence = "values"     // times that were added up agree to the last digit, now or in an answer before
)

// Same is a program that repeats an engine. Its lines of that engine are left out where the engine's own
// answer has them; further ones stand under the engine's address.
type Same struct {
	Input, Engine int // indexes of inputs
	Evidence      Evidence
}

// proof is how many times that were added up have to agree. One may be a coincidence of a value that both
// engines have by design; each has proofDigits digits, so two are none.
const (
	proof       = 2
	proofDigits = 9
)

// workerLabels are those by which Dynamo names a worker; worker_id is one number in the whole cluster.
var workerLabels = []string{"dynamo_namespace", "dynamo_component", "worker_id"}

// order finds out which answers repeat others, and returns all in the order in which they are to be taken: who
// repeats comes behind whom it repeats.
func (m *merger) order(known map[string]string) []*answer {
	evidence := map[*answer]Evidence{}
	m.group(evidence, Configured, func(a *answer) string { return a.Engine })
	m.group(evidence, WorkerID, (*answer).worker)
	var engines, relays []*answer
	for _, a := range m.answers {
		switch {
		case !a.engine || a.same != nil:
		case a.runtime:
			relays = append(relays, a)
		default:
			engines = append(engines, a)
		}
	}
	if len(engines) > 0 && len(relays) > 0 {
		m.recognise(engines, relays, known, evidence)
	}
	var first, then []*answer
	for _, a := range m.answers {
		if a.same == nil {
			first = append(first, a)
			continue
		}
		for a.same.same != nil {
			a.same = a.same.same
		}
		m.inject(a, []*answer{a.same})
		m.out.Same = append(m.out.Same, Same{a.index, a.same.index, evidence[a]})
		then = append(then, a)
	}
	return append(first, then...)
}

// group lets answers with the same key, "" for none, be of one engine. The engine itself goes before those
// that pass it on.
func (m *merger) group(evidence map[*answer]Evidence, why Evidence, key func(*answer) string) {
	by := map[string]*answer{}
	for _, runtime := range []bool{false, true} {
		for _, a := range m.answers {
			if !a.engine || a.runtime != runtime || a.same != nil {
				continue
			}
			k := key(a)
			if leader := by[k]; k != "" && leader != nil {
				a.same, evidence[a] = leader, why
			} else if k != "" {
				by[k] = a
			}
		}
	}
}

// worker is Dynamo's name of a worker, "" when its lines do not say it: workers that came back from a snapshot
// have an empty worker_id.
func (a *answer) worker() string {
	if !a.runtime {
		return ""
	}
	var key []byte
	for _, name := range workerLabels {
		i := slices.IndexFunc(a.constant, func(p pair) bool { return string(p.name) == name && len(p.value) > 0 })
		if i < 0 {
			return ""
		}
		key = append(append(key, a.constant[i].text...), ',')
	}
	return string(key)
}

// isAuto tells the labels that Dynamo puts on what a worker says, its engine's lines in newer versions among it.
func isAuto(name []byte) bool {
	switch string(name) {
	case "dynamo_namespace", "dynamo_component", "dynamo_endpoint", "worker_id":
		return true
	}
	return false
}

// inject finds out which labels a program has on the lines of its engine that the engine, one of engines, does
// not have itself: Dynamo's own, and those that stand on all of these lines and on none of the engines'.
func (m *merger) inject(a *answer, engines []*answer) {
	a.auto, a.added, a.injected = a.runtime && !engines[0].runtime, nil, 0
	for _, p := range a.constant {
		if a.auto && isAuto(p.name) || slices.ContainsFunc(engines, func(e *answer) bool { return e.labelNames()[string(p.name)] }) {
			continue
		}
		a.added = append(a.added, p.text)
		if len(p.value) > 0 {
			a.injected += maphash.Bytes(m.seed, p.text)
		}
	}
}

// without is the hash of a sample as the engine itself has it.
func (a *answer) without(s *sample) uint64 {
	if a.auto {
		return s.hash - a.injected - s.auto
	}
	return s.hash - a.injected
}

// recognise finds the engines of relays by their values.
func (m *merger) recognise(engines, relays []*answer, known map[string]string, evidence map[*answer]Evidence) {
	const several = -1
	sums := map[uint64]int{} // series and value -> index into engines
	for i, e := range engines {
		for _, s := range e.samples {
			if s.telling() {
				k := m.withValue(s.hash, &s)
				if j, ok := sums[k]; ok && j != i {
					i = several // twins of a simulation: it proves nothing
				}
				sums[k] = i
			}
		}
	}
	claimed := map[*answer]bool{}
	var open []*answer
	for _, r := range relays {
		m.inject(r, engines)
		seen := make([][][]byte, len(engines)) // values that agreed
		for _, s := range r.samples {
			if !s.telling() {
				continue
			}
			i, ok := sums[m.withValue(r.without(&s), &s)]
			if ok && i != several && len(seen[i]) < proof && !slices.ContainsFunc(seen[i], func(v []byte) bool { return bytes.Equal(v, s.value()) }) {
				seen[i] = append(seen[i], s.value())
			}
		}
		var is *answer
		many := false
		for i, v := range seen {
			if len(v) >= proof {
				many = many || is != nil
				is = engines[i]
			}
		}
		if is == nil && known[r.Instance] != "" {
			for _, e := range engines {
				if e.Instance == known[r.Instance] && !refuted(r, e) {
					is = e
				}
			}
		}
		if is == nil || many {
			open = append(open, r)
			continue
		}
		r.same, evidence[r], claimed[is] = is, Values, true
	}
	for _, r := range open {
		for _, e := range engines {
			if !claimed[e] && alike(r, e) && !refuted(r, e) {
				m.out.Alike = append(m.out.Alike, r.index)
				break
			}
		}
	}
}

// telling tells samples whose value no two engines have: seconds added up by a clock of many digits.
func (s *sample) telling() bool {
	if !s.engine || !s.sum || s.by < 0 {
		return false
	}
	n, zero := 0, true
	for _, c := range s.value() {
		switch {
		case c == 'e' || c == 'E':
			return n >= proofDigits
		case c >= '0' && c <= '9':
			if zero = zero && c == '0'; !zero {
				n++
			}
		}
	}
	return n >= proofDigits
}

// value is a sample's value as it is written.
func (s *sample) value() []byte {
	v, _ := field(s.rest)
	return v
}

func (m *merger) withValue(series uint64, s *sample) uint64 {
	return series*0x9E3779B97F4A7C15 + maphash.Bytes(m.seed, s.value())
}

// refuted tells that a relay and an engine, asked at nearly the same time, counted what cannot be one engine's.
func refuted(r, e *answer) bool {
	of := e.bySeries()
	for i := range r.samples {
		s := &r.samples[i]
		if !s.engine || s.by < 0 || !strings.HasSuffix(s.name, "_count") {
			continue
		}
		t, ok := of[r.without(s)]
		if !ok {
			continue
		}
		x, err1 := strconv.ParseFloat(string(s.value()), 64)
		y, err2 := strconv.ParseFloat(string(t.value()), 64)
		if err1 == nil && err2 == nil && max(x, y) > 1.25*min(x, y)+100 {
			return true
		}
	}
	return false
}

// alike tells that nearly all series that a relay passes on are series of an engine.
func alike(r, e *answer) bool {
	of := e.bySeries()
	found, lacking := 0, 0
	for i := range r.samples {
		s := &r.samples[i]
		if !s.engine || s.bucket || s.by < 0 {
			continue
		}
		if _, ok := of[r.without(s)]; ok {
			found++
		} else {
			lacking++
		}
	}
	return found > 9*lacking
}

// bySeries are the samples of an engine by name and labels.
func (a *answer) bySeries() map[uint64]*sample {
	if a.lookup == nil {
		a.lookup = make(map[uint64]*sample, len(a.samples))
		for i := range a.samples {
			if s := &a.samples[i]; s.engine && s.by >= 0 {
				a.lookup[s.hash] = s
			}
		}
	}
	return a.lookup
}

// labelNames are the names of the labels that an engine gives its lines. All lines of one metric have the same.
func (a *answer) labelNames() map[string]bool {
	if a.labels == nil {
		a.labels = map[string]bool{}
		var last *inName
		for i := range a.samples {
			s := &a.samples[i]
			if !s.engine || s.inName == last {
				continue
			}
			last = s.inName
			for rest := s.labels; len(rest) > 0; {
				var p pair
				p, rest = next(rest)
				a.labels[string(p.name)] = true
			}
		}
	}
	return a.labels
}

// equal tells whether two samples are of one series, b without the labels that its answer has put on it; nil when
// all of them count. Hashes that are equal
// are no proof: what is left out must have been said.
func (m *merger) equal(a, b *sample, of *answer) bool {
	if a.name != b.name {
		return false
	}
	if a.by == b.by && bytes.Equal(a.labels, b.labels) {
		return true
	}
	m.scratch[0] = m.texts(m.scratch[0][:0], a, nil)
	m.scratch[1] = m.texts(m.scratch[1][:0], b, of)
	if slices.EqualFunc(m.scratch[0], m.scratch[1], bytes.Equal) {
		return true
	}
	for _, t := range m.scratch {
		slices.SortFunc(t, bytes.Compare)
	}
	return slices.EqualFunc(m.scratch[0], m.scratch[1], bytes.Equal)
}

// texts are the labels of a sample that say something, its address among them.
func (m *merger) texts(to [][]byte, s *sample, of *answer) [][]byte {
	for rest := s.labels; len(rest) > 0; {
		var p pair
		p, rest = next(rest)
		if len(p.value) == 0 || of != nil && (of.auto && isAuto(p.name) || slices.ContainsFunc(of.added, func(w []byte) bool { return bytes.Equal(w, p.text) })) {
			continue
		}
		to = append(to, p.text)
	}
	if s.by >= 0 {
		to = append(to, m.answers[s.by].suffix)
	}
	return to
}
