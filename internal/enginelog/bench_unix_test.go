//go:build unix

package enginelog

import "golang.org/x/sys/unix"

// cpuSeconds is the CPU time this process has used: on a busy machine the only honest clock.
func cpuSeconds() float64 {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)/1e6
}
