package planner

import "math"

// Line is a linear model of a pass's duration: Intercept + Coef[0]*x0 (+ Coef[1]*x1) seconds.
type Line struct {
	Dims      int
	Coef      [2]float64 // seconds per unit of the feature
	Intercept float64    // seconds

	n    int
	mean [2]float64
	axis [2][2]float64 // directions in which the samples spread, one a row
	size [2]float64    // how far they spread along it (singular values); 0 when they do not
	far  float64       // the greatest leverage among the samples
}

// minPrediction is Dynamo's floor: a pass takes some time, whatever the line says.
const minPrediction = 1e-6

// At predicts the duration of a pass in seconds, never below 1 µs.
func (l *Line) At(x [2]float64) float64 {
	y := l.Intercept + l.Coef[0]*x[0]
	if l.Dims == 2 {
		y += l.Coef[1] * x[1]
	}
	return math.Max(minPrediction, y)
}

// leverage says how far x lies from what the line was fitted on: 1/n in the middle, 1 and more outside.
func (l *Line) leverage(x [2]float64) float64 {
	if l.n == 0 {
		return math.Inf(1)
	}
	h := 1 / float64(l.n)
	for i := 0; i < l.Dims; i++ {
		d := 0.0
		for j := 0; j < l.Dims; j++ {
			d += (x[j] - l.mean[j]) * l.axis[i][j]
		}
		if l.size[i] > 0 {
			h += d * d / (l.size[i] * l.size[i])
		} else if math.Abs(d) > 1e-9*(1+math.Abs(x[0])+math.Abs(x[1])) {
			return math.Inf(1) // nothing was ever seen in this direction
		}
	}
	return h
}

// Outside reports whether a pass lies well beyond all that the line was fitted on, so that it guesses there.
func (l *Line) Outside(x [2]float64) bool { return l.leverage(x) > 2*l.far }

// rank is the number of directions in which the samples spread.
func (l *Line) rank() (r int) {
	for i := 0; i < l.Dims; i++ {
		if l.size[i] > 0 {
			r++
		}
	}
	return r
}

// fitLine is ordinary least squares with an intercept. Where the features do not tell their effects apart
// (all samples at one load, or batch and context growing together) it takes the shortest of the solutions,
// as LAPACK's least squares do, on which scikit-learn and so Dynamo rest. work is memory to use.
//
// The columns are turned against each other until they are orthogonal (one-sided Jacobi): unlike the normal
// equations that keeps the digits when one feature counts requests and the other a million tokens.
func fitLine(dims int, s []sample, work []float64) (Line, []float64) {
	l := Line{Dims: dims, n: len(s)}
	if len(s) == 0 {
		return l, work
	}
	n := float64(len(s))
	var ymean, ymax float64
	for i := range s {
		l.mean[0] += s[i].x[0]
		l.mean[1] += s[i].x[1]
		ymean += s[i].y
		ymax = math.Max(ymax, math.Abs(s[i].y))
	}
	l.mean[0], l.mean[1], ymean = l.mean[0]/n, l.mean[1]/n, ymean/n

	if cap(work) < 3*len(s) {
		work = make([]float64, 3*len(s))
	}
	a, b, y := work[:len(s)], work[len(s):2*len(s)], work[2*len(s):3*len(s)]
	var far [2]float64
	for i := range s {
		a[i], b[i], y[i] = s[i].x[0]-l.mean[0], s[i].x[1]-l.mean[1], s[i].y-ymean
		if dims == 1 {
			b[i] = 0
		}
		far[0], far[1] = math.Max(far[0], math.Abs(a[i])), math.Max(far[1], math.Abs(b[i]))
	}
	l.axis = [2][2]float64{{1, 0}, {0, 1}}
	for turn := 0; dims == 2 && turn < 8; turn++ {
		var aa, bb, ab float64
		for i := range a {
			aa, bb, ab = aa+a[i]*a[i], bb+b[i]*b[i], ab+a[i]*b[i]
		}
		if math.Abs(ab) <= 1e-15*math.Sqrt(aa*bb) {
			break
		}
		zeta := (bb - aa) / (2 * ab)
		t := math.Copysign(1/(math.Abs(zeta)+math.Sqrt(1+zeta*zeta)), zeta)
		c := 1 / math.Sqrt(1+t*t)
		sn := c * t
		for i := range a {
			a[i], b[i] = c*a[i]-sn*b[i], sn*a[i]+c*b[i]
		}
		for j := 0; j < 2; j++ {
			p, q := l.axis[0][j], l.axis[1][j]
			l.axis[0][j], l.axis[1][j] = c*p-sn*q, sn*p+c*q
		}
	}
	var along [2]float64
	for i := range a {
		l.size[0] += a[i] * a[i]
		l.size[1] += b[i] * b[i]
		along[0] += a[i] * y[i]
		along[1] += b[i] * y[i]
	}
	l.size[0], l.size[1] = math.Sqrt(l.size[0]), math.Sqrt(l.size[1])
	least := math.Max(l.size[0], l.size[1]) * n * 0x1p-52
	for i := 0; i < dims; i++ {
		if l.size[i] <= least {
			l.size[i] = 0
			continue
		}
		k := along[i] / (l.size[i] * l.size[i])
		for j := 0; j < dims; j++ {
			l.Coef[j] += k * l.axis[i][j]
		}
	}
	for j := 0; j < dims; j++ {
		if math.Abs(l.Coef[j])*far[j] < 1e-12*ymax { // rounding: it must not decide about the sign
			l.Coef[j] = 0
		}
	}
	l.Intercept = ymean - l.Coef[0]*l.mean[0] - l.Coef[1]*l.mean[1]
	return l, work
}
