//go:build unix

package enginelog

import (
	"io/fs"
	"syscall"
)

// fileID is what names a file beyond its path, 0 0 where the system has no such thing.
func fileID(fi fs.FileInfo) (dev, ino uint64) {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), uint64(st.Ino)
	}
	return 0, 0
}
