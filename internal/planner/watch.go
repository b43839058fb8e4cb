package planner

import (
	"cmp"
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

// The watch compares a pass with passes like it, not with the line: a line is only near the truth (attention
// grows with the square, batches are padded), and traffic that stays at one load for a while would look like a
// change of the engine. So the features are cut into cells of a third of an octave, each cell remembers the mean
// duration and its spread, and the line only bridges the way from a cell's mean to the pass.
//
// The residuals, in standard deviations, go into a two-sided CUSUM. With these numbers a shift of two deviations
// is noticed within some 25 passes and one of four within five; one pass counts for four deviations at most,
// so that a pause of the machine is no change.
const (
	watchFrom   = 32   // passes in known cells before the watch begins, to learn their spread
	watchKnown  = 4    // passes that make a cell known
	watchMemory = 256  // passes after which a cell's mean forgets
	watchPrior  = 16   // passes' worth of trust in the spread of all cells, in a cell's own
	watchSlope  = 64   // passes after which the slopes are taken anew
	watchSlack  = 1.5  // deviations that are forgiven on each pass
	watchLimit  = 12.0 // what must come together
	watchClip   = 4.0
	watchLeast  = 0.05 // a shift that is less, however sure, changes no decision: the cells follow it
	watchCells  = 4096
	watchFloor  = 0.02   // a residual below 2 % is noise even on an engine without any
	toDeviation = 1.4826 // a normal spread's deviation over its median absolute residual
	meanToDev   = 1.2533 // and over its mean absolute residual
)

type watch struct {
	at    map[[3]int16]int // where a cell stands in cells
	cells []cell           // at most watchCells
	slope [kinds]slope     // of the passes of each kind
	age   int              // passes until the slopes are taken anew
	means [kinds][]cell    // the known cells

	first  []float64 // the first residuals, as shares, until there are watchFrom
	spread float64   // deviation of a residual as a share of the duration, over all cells; 0 while it is not known
	fresh  bool      // a change was noticed and too few passes have been compared since

	slower, faster cusum
	compared       int // passes since the last change that had a cell to be compared with
	changes        int
	last           *Change
}

// cell is what is known of passes that do about the same.
type cell struct {
	n      int
	x      [3]float64 // mean of where
	y      float64    // mean, seconds
	spread float64    // mean absolute residual as a share
	first  [watchKnown]sample
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

// cellOf is where a pass belongs: a third of an octave of each feature, and an octave of the requests that
// decode where they are no feature. Many short contexts take longer than few long ones of the same sum.
func cellOf(s *sample) [3]int16 {
	return [3]int16{int16(3 * math.Log2(1+s.x[0])), int16(3 * math.Log2(1+s.x[1])), int16(math.Log2(1 + s.batch))}
}

// slope is how a duration grows: seconds per unit, of a plane through the cells' means.
type slope [3]float64

// kinds of passes, where they are told apart: those that prefill only, those that decode only, and both in one.
// An engine runs another program for each, with another time for nothing.
const kinds = 3

func kindOf(x [3]float64) int {
	switch {
	case x[2] == 0:
		return 0
	case x[0] == 0:
		return 1
	}
	return 2
}

// where is what a pass did: its features, and the requests that decode where they are no feature.
func (s *sample) where() [3]float64 { return [3]float64{s.x[0], s.x[1], s.batch} }

// see looks at a pass before the model has it, and returns a change when this pass makes it one.
func (w *watch) see(m *Model, s sample) *Change {
	if w.age--; w.age < 0 {
		w.age = watchSlope
		w.takeSlope()
	}
	k := cellOf(&s)
	i, known := w.at[k]
	if !known {
		if len(w.cells) == watchCells {
			return nil
		}
		if w.at == nil {
			w.at = map[[3]int16]int{}
		}
		i = len(w.cells)
		w.at[k] = i
		w.cells = append(w.cells, cell{})
	}
	c := &w.cells[i]
	if c.n < watchKnown {
		if c.begin(s); len(w.cells) <= 32 {
			w.age = 0 // the first cells tell most about the slopes
		}
		return nil
	}
	// A duration grows at most in proportion to a feature. Until there are enough cells to tell the slopes, the
	// way from the cell's mean may mislead by as much.
	expected, way := c.y, 0.0
	kind := kindOf(s.where())
	for j, x := range s.where() {
		d := x - c.x[j]
		expected += math.Min(w.slope[kind][j], c.y/math.Max(1, c.x[j])) * d
		if len(w.means[kind]) <= 6*m.samples.dims {
			way += math.Abs(d) / math.Max(1, c.x[j])
		}
	}
	expected = math.Max(minPrediction, expected)
	off := (s.y - expected) / expected
	if w.spread == 0 {
		if w.first = append(w.first, math.Abs(off)); len(w.first) == watchFrom {
			w.spread, w.first = math.Max(1e-9, median(w.first)*toDeviation), nil
		}
		c.learn(s, expected*(1+math.Max(-0.5, math.Min(0.5, off))), math.Min(0.5, math.Abs(off)))
		return nil
	}
	own := c.spread * meanToDev
	n := float64(c.n)
	dev := way + math.Max(watchFloor, math.Sqrt((n*own*own+watchPrior*w.spread*w.spread)/(n+watchPrior)))
	z := math.Max(-watchClip, math.Min(watchClip, off/(dev*math.Sqrt(1+1/n))))
	kept := math.Abs(z) * dev
	w.spread += (kept*meanToDev - w.spread) / watchMemory
	c.learn(s, expected*(1+z*dev), kept)
	if w.compared++; w.compared >= watchFrom {
		w.fresh = false
	}
	ratio := s.y / expected
	slow, fast := w.slower.add(z, ratio, s.seq), w.faster.add(-z, ratio, s.seq)
	if !slow && !fast {
		return nil
	}
	by := w.slower
	if fast {
		by = w.faster
	}
	factor := by.ratio / float64(by.n)
	if math.Abs(factor-1) < watchLeast {
		w.slower, w.faster = cusum{}, cusum{}
		return nil
	}
	w.changes++
	w.last = &Change{Pass: s.seq, Since: by.since, Factor: factor}
	w.fresh, w.compared, w.slower, w.faster = true, 0, cusum{}, cusum{}
	clear(w.at) // what came before says nothing of what comes
	w.cells = w.cells[:0]
	m.samples.prune(by.since)
	m.stale = true
	return w.last
}

// takeSlope lays a plane through the cells of each kind: unlike the model's line, no stalled pass can turn it.
func (w *watch) takeSlope() {
	for kind := range w.means {
		w.means[kind] = w.means[kind][:0]
	}
	for i := range w.cells {
		if c := &w.cells[i]; c.n >= watchKnown {
			kind := kindOf(c.x)
			w.means[kind] = append(w.means[kind], *c)
		}
	}
	for kind := range w.means {
		w.slope[kind] = slopeOf(w.means[kind])
	}
}

// slopeOf is that of the plane through cells that is nearest to their means (least squares), nowhere below 0: more work never takes less time. What goes together, as requests and their contexts do, shares the effect.
func slopeOf(cells []cell) (out slope) {
	n := float64(len(cells))
	if n < 2 {
		return out
	}
	var mean, scale [4]float64 // of x, and of y
	at := func(c *cell) [4]float64 { return [4]float64{c.x[0], c.x[1], c.x[2], c.y} }
	for i := range cells {
		for j, v := range at(&cells[i]) {
			mean[j] += v / n
		}
	}
	for i := range cells {
		for j, v := range at(&cells[i]) {
			scale[j] = math.Max(scale[j], math.Abs(v-mean[j]))
		}
	}
	var sum [4][4]float64 // of products, each as a share of the largest
	for i := range cells {
		v := at(&cells[i])
		for j := range v {
			if v[j] -= mean[j]; scale[j] > 0 {
				v[j] /= scale[j]
			}
		}
		for j := range v {
			for k := range v {
				sum[j][k] += v[j] * v[k]
			}
		}
	}
	var use []int
	for j := range out {
		if scale[j] > 0 {
			use = append(use, j)
		}
	}
	for len(use) > 0 {
		got := solve(&sum, use, 1e-9*n)
		worst := 0
		for i := range use {
			if got[i] < got[worst] {
				worst = i
			}
		}
		if got[worst] >= 0 {
			for i, j := range use {
				out[j] = got[i] * scale[3] / scale[j]
			}
			return out
		}
		use = slices.Delete(use, worst, worst+1)
	}
	return out
}

// solve solves the normal equations of some of the columns; ridge keeps them apart where they are the same.
func solve(sum *[4][4]float64, use []int, ridge float64) (out [3]float64) {
	var a [3][4]float64
	for i, j := range use {
		for k, l := range use {
			a[i][k] = sum[j][l]
		}
		a[i][i] += ridge
		a[i][3] = sum[j][3]
	}
	for i := range use { // positive definite: no pivots
		for k := i + 1; k < len(use); k++ {
			f := a[k][i] / a[i][i]
			for l := i; l < 4; l++ {
				a[k][l] -= f * a[i][l]
			}
		}
	}
	for i := len(use) - 1; i >= 0; i-- {
		out[i] = a[i][3]
		for k := i + 1; k < len(use); k++ {
			out[i] -= a[i][k] * out[k]
		}
		out[i] /= a[i][i]
	}
	return out
}

// begin takes in one of a cell's first passes; from the last of them the middle ones become its means.
func (c *cell) begin(s sample) {
	c.first[c.n] = s
	if c.n++; c.n < watchKnown {
		return
	}
	slices.SortFunc(c.first[:], func(a, b sample) int { return cmp.Compare(a.y, b.y) })
	a, b := &c.first[watchKnown/2-1], &c.first[watchKnown/2]
	c.y = (a.y + b.y) / 2
	for j, x := range a.where() {
		c.x[j] = (x + b.where()[j]) / 2
	}
}

// learn moves a cell's means towards a pass; y is its duration less what is beyond all others.
func (c *cell) learn(s sample, y, off float64) {
	c.n = min(c.n+1, watchMemory)
	n := float64(c.n)
	for j, x := range s.where() {
		c.x[j] += (x - c.x[j]) / n
	}
	c.y += (y - c.y) / n
	c.spread += (off - c.spread) / n
}

func (w *watch) report() Drift {
	d := Drift{State: Holds, Changes: w.changes, Last: w.last, Pressure: math.Min(1, math.Max(w.slower.sum, w.faster.sum)/watchLimit)}
	switch {
	case w.fresh:
		d.State = Broken
	case w.spread == 0:
		d.State = Unwatched
	}
	return d
}
