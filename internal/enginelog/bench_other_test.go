//go:build !unix

package enginelog

// cpuSeconds is not measured here.
func cpuSeconds() float64 { return 0 }
