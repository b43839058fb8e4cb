//go:build unix

package torchfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps a regular file read-only. The mapping is shared, so a file that is truncated by its
// writer raises SIGBUS on access; every entry point that touches the map runs under guard.
func mapFile(f *os.File, size int64) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
}

func unmapFile(b []byte) error { return unix.Munmap(b) }

// adviseSequential makes cold files read ahead further. Advice only: errors do not matter.
func adviseSequential(b []byte) { _ = unix.Madvise(b, unix.MADV_SEQUENTIAL) }

// dropPages returns the pages of [from, to) to the page cache, so that a scan of a large file does
// not grow the resident set. They come back by themselves when they are touched again.
func dropPages(b []byte, from, to int) {
	page := os.Getpagesize()
	from = (from + page - 1) &^ (page - 1)
	to &^= page - 1
	if from < to && to <= len(b) {
		_ = unix.Madvise(b[from:to], unix.MADV_DONTNEED)
	}
}

// populate maps the pages of [from, to) that are in the page cache, and reads the others, in one go:
// a page at a time costs a fault each. Systems that cannot do not mind.
func populate(b []byte, from, to int) {
	page := os.Getpagesize()
	from &^= page - 1
	if to = min(to, len(b)); from < to {
		_ = madvisePopulate(b[from:to])
	}
}
