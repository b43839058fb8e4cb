package torchfile

import (
	"io"
)

// ReadAt reads the file's own bytes, container and all; it makes a File an [io.ReaderAt]. A mapped file
// that became shorter is [ErrChanged].
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, f.errorf(ErrCorrupt, "a read at offset %d", off)
	}
	if f.data == nil {
		return f.r.ReadAt(p, off)
	}
	if off >= f.size {
		return 0, io.EOF
	}
	err = f.Guard(func() error {
		n = copy(p, f.data[off:])
		return nil
	})
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}
