package metricstore

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The lock on a data directory is DIR/rollscope/LOCK: three lines, "pid N", "host NAME", "since TIME",
// under an flock of its holder. A kill -9 drops the flock with the process, so that a stale file blocks
// nobody. Where the file system grants no locks (NFS without a lock daemon), the file is a lease: its
// holder touches it every leaseBeat, and one untouched for leaseTTL is void. Prometheus's own DIR/lock
// is taken by the database after ours, except under a lease, where it could not be taken either.
const (
	leaseBeat = 10 * time.Second
	leaseTTL  = time.Minute
)

// LockedError says who holds a data directory.
type LockedError struct {
	Dir  string
	PID  int    // 0 when it could not be found
	Host string // "" when it could not be found
	By   string // "rollscope", or the name of the program
}

func (e *LockedError) Error() string {
	who := "another process"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	if e.Host != "" {
		who += " on host " + e.Host
	}
	return fmt.Sprintf("metricstore: %s is in use by %s (%s): stop that process, or give this one its own --storage.tsdb.path", e.Dir, who, e.By)
}

// dirLock is a held lock.
type dirLock struct {
	path  string
	f     *os.File
	lease bool // no flock: the file's age is the lock

	stop chan struct{}
	wg   sync.WaitGroup
}

// lockDir makes dir and locks it. It writes nothing when the directory is held by somebody.
func lockDir(dir string, now func() time.Time, log *slog.Logger) (*dirLock, error) {
	path := filepath.Join(dir, "rollscope", "LOCK")
	// Look before touching: opening the database removes half-made blocks, also those that the process
	// that holds the directory is making right now.
	if err := heldByPrometheus(dir); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, fmt.Errorf("metricstore: making %s: %w", filepath.Dir(path), err)
		}
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	}
	if err != nil {
		return nil, fmt.Errorf("metricstore: opening the lock: %w", err)
	}
	l := &dirLock{path: path, f: f}
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case err == nil:
	case errors.Is(err, syscall.EWOULDBLOCK):
		held := readLock(path, dir)
		return nil, errors.Join(held, f.Close())
	case errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.ENOSYS):
		if held := leaseHeld(path, dir, now()); held != nil {
			return nil, errors.Join(held, f.Close())
		}
		l.lease = true
		log.Warn("the file system grants no locks: a lease file stands in", "file", path)
	default:
		return nil, errors.Join(fmt.Errorf("metricstore: locking %s: %w", path, err), f.Close())
	}
	if err := l.write(now()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if l.lease {
		l.stop = make(chan struct{})
		l.wg.Go(l.beat)
	}
	return l, nil
}

func (l *dirLock) write(now time.Time) error {
	host, _ := os.Hostname() // an empty host is shown as unknown
	text := fmt.Sprintf("pid %d\nhost %s\nsince %s\n", os.Getpid(), host, now.UTC().Format(time.RFC3339))
	err := l.f.Truncate(0)
	if err == nil {
		_, err = l.f.WriteAt([]byte(text), 0)
	}
	if err != nil {
		return fmt.Errorf("metricstore: writing %s: %w", l.path, err)
	}
	return nil
}

// beat keeps a lease alive.
func (l *dirLock) beat() {
	t := time.NewTicker(leaseBeat)
	defer t.Stop()
	for {
		select {
		case <-l.stop:
			return
		case now := <-t.C:
			_ = os.Chtimes(l.path, now, now) // a failure shows as storage that cannot be written
		}
	}
}

// release empties the file and gives the lock back. The file stays: removing it would let two processes
// lock two files of one name.
func (l *dirLock) release() error {
	if l.lease {
		close(l.stop)
		l.wg.Wait()
		old := time.Unix(0, 0)
		return errors.Join(l.f.Truncate(0), os.Chtimes(l.path, old, old), l.f.Close())
	}
	return errors.Join(l.f.Truncate(0), l.f.Close())
}

// readLock reads who holds the lock.
func readLock(path, dir string) *LockedError {
	e := &LockedError{Dir: dir, By: "rollscope"}
	b, err := os.ReadFile(path)
	if err != nil {
		return e
	}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch key {
		case "pid":
			e.PID, _ = strconv.Atoi(value)
		case "host":
			e.Host = value
		}
	}
	return e
}

// leaseHeld returns the holder of a lease that is alive: touched lately, and not by a process of this
// host that is gone.
func leaseHeld(path, dir string, now time.Time) error {
	st, err := os.Stat(path)
	if err != nil || st.Size() == 0 || now.Sub(st.ModTime()) > leaseTTL {
		return nil
	}
	e := readLock(path, dir)
	host, _ := os.Hostname()
	if e.PID == 0 || e.Host == host && errors.Is(syscall.Kill(e.PID, 0), syscall.ESRCH) {
		return nil
	}
	return e
}

// heldByPrometheus finds out whether another program writes the directory, without making or changing
// anything: Prometheus holds DIR/lock while it runs. Debian's build makes no such file, so on this host
// the processes that have the log open are looked for as well.
func heldByPrometheus(dir string) error {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		if pid, name := logWriter(dir); pid != 0 {
			host, _ := os.Hostname()
			return &LockedError{Dir: dir, PID: pid, Host: host, By: name}
		}
		return nil // absent or unreadable: opening the database will tell
	}
	defer f.Close()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		if pid, name := logWriter(dir); pid != 0 {
			host, _ := os.Hostname()
			return &LockedError{Dir: dir, PID: pid, Host: host, By: name}
		}
		return nil // the lock goes with the file's closing
	}
	if e := readLock(filepath.Join(dir, "rollscope", "LOCK"), dir); e.PID != 0 {
		return e
	}
	e := &LockedError{Dir: dir, By: "prometheus", PID: flockHolder(f)}
	if e.PID != 0 {
		e.Host, _ = os.Hostname() // /proc/locks lists this host's processes only
	}
	return e
}

// logWriter finds another process of this host that has a segment of the directory's log open to write.
// Processes whose descriptors we may not see are not found.
func logWriter(dir string) (pid int, name string) {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	prefix := filepath.Join(dir, "wal") + "/"
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return 0, ""
	}
	for _, p := range procs {
		n, err := strconv.Atoi(p.Name())
		if err != nil || n == os.Getpid() {
			continue
		}
		fds, err := os.ReadDir("/proc/" + p.Name() + "/fd")
		if err != nil {
			continue
		}
		for _, fd := range fds {
			target, err := os.Readlink("/proc/" + p.Name() + "/fd/" + fd.Name())
			if err != nil || !strings.HasPrefix(target, prefix) || !openToWrite(p.Name(), fd.Name()) {
				continue
			}
			comm, _ := os.ReadFile("/proc/" + p.Name() + "/comm") // a name is not worth a failure
			return n, strings.TrimSpace(string(comm))
		}
	}
	return 0, ""
}

// openToWrite reads the access mode of a descriptor, an octal number in the line "flags:".
func openToWrite(pid, fd string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/fdinfo/" + fd)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseInt(strings.TrimSpace(v), 8, 64)
			return err == nil && flags&syscall.O_ACCMODE != syscall.O_RDONLY
		}
	}
	return false
}

// flockHolder finds in /proc/locks the process that holds a lock on f, 0 if it is not listed there.
func flockHolder(f *os.File) int {
	st, err := f.Stat()
	if err != nil {
		return 0
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer locks.Close()
	inode := ":" + strconv.FormatUint(sys.Ino, 10)
	for sc := bufio.NewScanner(locks); sc.Scan(); {
		// "1: FLOCK  ADVISORY  WRITE 1234 08:01:131 0 EOF"
		w := strings.Fields(sc.Text())
		if len(w) >= 6 && w[1] == "FLOCK" && strings.HasSuffix(w[5], inode) {
			pid, _ := strconv.Atoi(w[4])
			return pid
		}
	}
	return 0
}
