//go:build !unix

package torchfile

// cpuSeconds is not measured here.
func cpuSeconds() float64 { return 0 }
