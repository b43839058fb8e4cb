//go:build linux || darwin

package dumps

import (
	"errors"
	"syscall"
)

// freeBytes is what an unprivileged user may still write to the disk of a directory.
func freeBytes(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// isFull says that an error is of a disk or a quota that is full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
