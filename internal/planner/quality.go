package planner

import (
	"fmt"
	"math"
	"slices"
)

// Fit says how well a model's line describes its samples. What is not known is nil.
type Fit struct {
	State     ModelState
	Reason    string // why it does not answer, or what to know about the answer; "" when there is nothing
	Features  []string
	Coef      []float64  // seconds per unit of the feature; of a refused fit too
	StdErr    []*float64 // standard error of each, seconds per unit
	Intercept float64    // seconds
	Samples   int
	R2        *float64     // share of the spread of the durations that the line explains
	RMSE      *float64     // seconds
	MeanError *float64     // mean of |observed-predicted|/observed
	Range     [][2]float64 // least and greatest of each feature among the samples; outside, the line guesses
}

// Fit judges the model's present fit.
func (m *Model) Fit() Fit {
	m.fit()
	f := Fit{State: m.state, Features: m.role.Features(), Samples: m.samples.total}
	if m.state == Learning {
		f.Reason = fmt.Sprintf("%d of %d passes that did work have come", m.samples.total, m.minimum)
		return f
	}
	dims := m.line.Dims
	f.Coef, f.StdErr, f.Range = slices.Clone(m.line.Coef[:dims]), make([]*float64, dims), make([][2]float64, dims)
	f.Intercept = m.line.Intercept
	m.scratch = m.samples.appendTo(m.scratch[:0])
	n := float64(len(m.scratch))
	var sse, rel, mean, sst float64
	for i := range f.Range {
		f.Range[i] = [2]float64{math.Inf(1), math.Inf(-1)}
	}
	for _, s := range m.scratch {
		mean += s.y / n
		for i := range f.Range {
			f.Range[i][0], f.Range[i][1] = math.Min(f.Range[i][0], s.x[i]), math.Max(f.Range[i][1], s.x[i])
		}
	}
	for _, s := range m.scratch {
		e := s.y - m.line.At(s.x)
		sse, rel, sst = sse+e*e, rel+math.Abs(e)/s.y/n, sst+(s.y-mean)*(s.y-mean)
	}
	rmse := math.Sqrt(sse / n)
	f.RMSE, f.MeanError = &rmse, &rel
	if sst > 0 {
		r2 := 1 - sse/sst
		f.R2 = &r2
	}
	if free := n - 1 - float64(m.line.rank()); free > 0 && m.line.rank() == dims && !m.clipped {
		for j := range f.StdErr {
			v := 0.0
			for i := 0; i < dims; i++ {
				v += m.line.axis[i][j] * m.line.axis[i][j] / (m.line.size[i] * m.line.size[i])
			}
			se := math.Sqrt(v * sse / free)
			f.StdErr[j] = &se
		}
	}
	switch {
	case m.state == Refused:
		f.Coef = slices.Clone(m.refusedCoef[:dims])
		f.Reason = fmt.Sprintf("the fit says that more %s takes less time; it is not used, and passes at other loads will mend it", negative(f))
	case m.clipped:
		f.Reason = "the effect of the batch's size is set to 0: beside the context it came out negative"
	case m.line.rank() < dims:
		f.Reason = "all passes lie on one line of load: the effects of the features cannot be told apart"
	}
	return f
}

func negative(f Fit) string {
	for i, c := range f.Coef {
		if c < 0 {
			return f.Features[i]
		}
	}
	return f.Features[0]
}
