package tracker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// file is what is needed of an *os.File that is appended to.
type file interface {
	io.Writer
	Truncate(size int64) error
	Seek(offset int64, whence int) (int64, error)
	Sync() error
	Close() error
}

// openAppend opens path for appending at its end. Tests put a failing disk in its place.
func openAppend(path string) (file, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
}

// advise adds what to do to the errors of a disk that people meet.
func advise(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: the disk or the quota is full; free space or choose another directory, the step is written when it is logged again", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: the directory must be writable; choose another one", err)
	case errors.Is(err, syscall.ESTALE):
		return fmt.Errorf("%w: the network file system lost the file; it is opened again when the step is logged again", err)
	}
	return err
}

const tempPrefix = ".rollscope-tmp-"

// replace writes a file whole: under another name in the same directory, synced, and then renamed, so
// that a reader sees all of it or nothing.
func replace(path string, write func(w io.Writer) error) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, tempPrefix+"*")
	if err != nil {
		return advise(err)
	}
	defer func() {
		if err != nil {
			os.Remove(tmp.Name())
			err = advise(err)
		}
	}()
	buf := bufio.NewWriterSize(tmp, 256<<10)
	err = write(buf)
	if err == nil {
		err = buf.Flush()
	}
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes renames in dir durable. A file system that cannot does not make the write fail.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}

// copyFile copies a file, whole or not at all.
func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	return replace(to, func(w io.Writer) error {
		_, err := io.Copy(w, src)
		return err
	})
}

// removeTemps deletes what a crash in replace left behind.
func removeTemps(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// dirName is a run's name as one path element. Letters, digits and "._-" stand for themselves, all other
// bytes and a leading dot are %XX, so two runs never share a directory.
func dirName(run string) string {
	var b strings.Builder
	for i := range len(run) {
		c := run[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// lock keeps two processes from writing in one directory.
type lock struct{ f *os.File }

const lockName = ".rollscope.lock"

func lockDir(dir string) (*lock, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, advise(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, advise(err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		f.Close()
		return nil, fmt.Errorf("tracker: %s is being written by another process: stop it, or choose another directory", dir)
	}
	// A file system without locks (some NFS mounts) is used without one.
	return &lock{f}, nil
}

func (l *lock) release() error { return l.f.Close() }

func newBuffered(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, 64<<10) }
