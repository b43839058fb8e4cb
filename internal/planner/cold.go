package planner

import "slices"

// ColdStart is about the first passes of engines, which load kernels and capture graphs and take a multiple
// of what the same work takes later. Dynamo fits them with the rest; here they are set apart as well.
type ColdStart struct {
	Passes uint64   // set apart so far
	Factor *float64 // median of the last ones' duration over what the model says; nil while that is not known
}

type engineKey struct {
	worker string
	rank   int
}

const (
	maxColdEngines = 4096 // an engine that was forgotten has its first passes set apart once more
	maxColdSamples = 64
)

type cold struct {
	first int // passes of an engine that are set apart; 0 for none
	left  map[engineKey]int
	order []engineKey

	count uint64
	last  []sample
	next  int
}

// is reports whether this is one of an engine's first passes, and counts it as one.
func (c *cold) is(it *Iteration) bool {
	if c.first == 0 {
		return false
	}
	k := engineKey{it.Worker, it.Rank}
	n, known := c.left[k]
	if !known {
		n = c.first
		c.know(k)
	}
	if n == 0 {
		return false
	}
	c.left[k] = n - 1
	c.count++
	return true
}

func (c *cold) know(k engineKey) {
	if c.left == nil {
		c.left = map[engineKey]int{}
	}
	if len(c.order) >= maxColdEngines {
		delete(c.left, c.order[0])
		c.order = slices.Delete(c.order, 0, 1)
	}
	c.order = append(c.order, k)
	c.left[k] = c.first
}

func (c *cold) restarted(worker string, rank int) {
	if k := (engineKey{worker, rank}); c.left != nil {
		if _, known := c.left[k]; known {
			c.left[k] = c.first
		}
	}
}

func (c *cold) keep(s sample) {
	if len(c.last) < maxColdSamples {
		c.last = append(c.last, s)
		return
	}
	c.last[c.next] = s
	c.next = (c.next + 1) % len(c.last)
}

func (c *cold) report(m *Model) ColdStart {
	out := ColdStart{Passes: c.count}
	if line, state := m.Line(); state == Fitted && len(c.last) > 0 {
		f := make([]float64, len(c.last))
		for i, s := range c.last {
			f[i] = s.y / line.At(s.x)
		}
		v := median(f)
		out.Factor = &v
	}
	return out
}

// median sorts v.
func median(v []float64) float64 {
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
