package app

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// readState reads a small file of a process before this one, of at most most bytes; nil where there is none.
func readState(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(b)) > most {
		b, err = nil, fmt.Errorf("%s has more than %d bytes: rollscope did not write it", path, most)
	}
	return b, err
}

// writeState replaces such a file as a whole. It is not synced: after a power loss it may be an older one, or
// damaged, which its reader notices.
func writeState(path string, b []byte) error {
	err := os.MkdirAll(filepath.Dir(path), 0o777)
	if err == nil {
		err = os.WriteFile(path+".new", b, 0o666)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}
