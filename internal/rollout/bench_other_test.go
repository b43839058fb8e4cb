//go:build !unix

package rollout

// cpuSeconds is not measured here.
func cpuSeconds() float64 { return 0 }
