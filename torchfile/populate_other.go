//go:build unix && !linux

package torchfile

import "golang.org/x/sys/unix"

func madvisePopulate(b []byte) error { return unix.Madvise(b, unix.MADV_WILLNEED) }
