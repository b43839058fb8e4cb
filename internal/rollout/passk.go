package rollout

import "fmt"

// PassRate is one pass@k.
type PassRate struct {
	K    int
	Rate float64
}

// passCounter collects what pass@k needs while samples stream by: how many of each run of size
// consecutive rewards are exactly 1.
type passCounter struct {
	size, n, correct int
	groups           []int // correct ones per complete group
}

func (p *passCounter) add(correct bool) {
	if p.size <= 1 {
		return
	}
	if correct {
		p.correct++
	}
	if p.n++; p.n%p.size == 0 {
		p.groups = append(p.groups, p.correct)
		p.correct = 0
	}
}

// rates are the unbiased estimates of pass@1, 2, 4, ... up to the group size (Chen et al. 2021), as
// slime's compute_pass_rate computes them. A group size of 1 has none; rewards that do not fill the last
// group are an error, as in slime.
func (p *passCounter) rates() ([]PassRate, error) {
	if p.size <= 1 {
		return nil, nil
	}
	if p.n%p.size != 0 {
		return nil, fmt.Errorf("%d rewards are not groups of %d", p.n, p.size)
	}
	if p.n == 0 {
		return nil, fmt.Errorf("no rewards")
	}
	var out []PassRate
	values := make([]float64, len(p.groups))
	for k := 1; k <= p.size; k *= 2 {
		for i, c := range p.groups {
			values[i] = passAtK(p.size, c, k)
		}
		out = append(out, PassRate{K: k, Rate: npSum(values) / float64(len(values))})
	}
	return out, nil
}

// passAtK estimates the chance that one of k samples out of n, c of them correct, is correct:
// 1 - comb(n-c, k)/comb(n, k), as the product that numpy's np.prod forms from left to right.
func passAtK(n, c, k int) float64 {
	if n-c < k {
		return 1
	}
	prod := 1.0
	for i := n - c + 1; i <= n; i++ {
		prod *= 1 - float64(k)/float64(i)
	}
	return 1 - prod
}
