package planner

import (
	"math"
	"slices"
)

// Change is the moment at which a model stopped holding: passes take consistently longer or shorter than
// passes like them took before.
type Change struct {
	Pass   uint64  // number of the pass at which it was noticed, of those in the model
	Since  uint64  // first of the passes that gave it away
	Factor float64 // observed duration over the former model's, on average since then
}

// Drift says whether a model still holds. It is ours; Dynamo keeps fitting old and new samples together.
type Drift struct {
	State   DriftState
	Changes int     // noticed so far
	Last    *Change // the latest; nil when there was none
	// Pressure is how near the next notice is, 0 to 1: what has come together towards slower or faster.
	Pressure float64
}

// DriftState says whether the residuals still look like those of the samples.
type DriftState string

// States of a watch.
const (
	Unwatched DriftState = "learning" // too few samples to compare with
	Holds     DriftState = "holds"
	Broken    DriftState = "broken" // a change was noticed and too few passes have come since to know the new line
)

// The watch is a two-sided CUSUM of the standardised residuals of passes that the reference has not seen.
// With these numbers a shift of 1.2 standard deviations is noticed within 64 passes and one of 4 within 4,
// while noise alone needs some 10^11 passes; one pass counts for 4 deviations at most, so that a pause of the
// machine is no change.
const (
	watchFrom   = 32   // samples before the watch begins
	watchFresh  = 64   // passes after which the reference is fitted anew while all is calm
	watchSlack  = 1.0  // deviations that are forgiven on each pass
	watchLimit  = 12.0 // what must come together
	watchClip   = 4.0
	watchFloor  = 0.02 // a residual below 2 % is noise even on an engine without any
	toDeviation = 1.4826
)

type watch struct {
	ready    bool
	ref      Line
	sigma    float64 // standard deviation of a residual, seconds
	relative float64 // and as a share of the prediction: where noise grows with the work, this is the larger one
	age      int     // passes since the reference was fitted

	slower, faster cusum
	changes        int
	last           *Change
}

type cusum struct {
	sum   float64
	since uint64
	ratio float64
	n     int
}

func (c *cusum) add(z, ratio float64, pass uint64) bool {
	if c.sum == 0 {
		c.since, c.ratio, c.n = pass, 0, 0
	}
	c.sum = math.Max(0, c.sum+z-watchSlack)
	c.ratio, c.n = c.ratio+ratio, c.n+1
	return c.sum > watchLimit
}

// see looks at a pass before the model has it, and returns a change when this pass makes it one.
func (w *watch) see(m *Model, s sample) *Change {
	if !w.ready {
		w.learn(m)
		if !w.ready {
			return nil
		}
	}
	expected, far := w.ref.At(s.x), w.ref.leverage(s.x)
	if math.IsInf(far, 1) {
		return nil // nothing like it was seen: that says nothing about the line
	}
	w.age++
	dev := w.deviation(expected) * math.Sqrt(1+far)
	z := math.Max(-watchClip, math.Min(watchClip, (s.y-expected)/dev))
	ratio := s.y / expected
	slow, fast := w.slower.add(z, ratio, s.seq), w.faster.add(-z, ratio, s.seq)
	if !slow && !fast {
		if w.age >= watchFresh && math.Max(w.slower.sum, w.faster.sum) < watchLimit/4 {
			w.learn(m)
		}
		return nil
	}
	by := w.slower
	if fast {
		by = w.faster
	}
	w.changes++
	w.last = &Change{Pass: s.seq, Since: by.since, Factor: by.ratio / float64(by.n)}
	w.ready, w.slower, w.faster = false, cusum{}, cusum{}
	m.samples.prune(by.since)
	m.stale = true
	return w.last
}

// learn makes the model's present samples the reference. It is fitted so that single stalled passes have
// little say (Huber's estimate: residuals beyond two deviations are cut to that and the line is fitted again).
func (w *watch) learn(m *Model) {
	if m.samples.total < min(watchFrom, m.samples.max) || !m.fit() {
		return
	}
	m.scratch = m.samples.appendTo(m.scratch[:0])
	cut := slices.Clone(m.scratch)
	off, rel := make([]float64, len(cut)), make([]float64, len(cut))
	line := m.line
	for range 20 {
		for i, s := range m.scratch {
			at := line.At(s.x)
			off[i] = math.Abs(s.y - at)
			rel[i] = off[i] / at
		}
		w.sigma, w.relative = median(off)*toDeviation, median(rel)*toDeviation
		moved := false
		for i, s := range m.scratch {
			at := line.At(s.x)
			most := 2 * w.deviation(at)
			y := math.Max(at-most, math.Min(at+most, s.y))
			moved = moved || math.Abs(y-cut[i].y) > 1e-4*at
			cut[i].y = y
		}
		if !moved {
			break
		}
		line, m.work = fitLine(m.samples.dims, cut, m.work)
	}
	w.ref, w.ready, w.age = line, true, 0
}

// deviation is how far a pass of the expected duration usually is from it, seconds.
func (w *watch) deviation(expected float64) float64 {
	return math.Max(w.sigma, math.Max(w.relative, watchFloor)*expected)
}

func (w *watch) report() Drift {
	d := Drift{State: Holds, Changes: w.changes, Last: w.last, Pressure: math.Min(1, math.Max(w.slower.sum, w.faster.sum)/watchLimit)}
	switch {
	case w.ready:
	case w.last != nil:
		d.State = Broken
	default:
		d.State = Unwatched
	}
	return d
}
