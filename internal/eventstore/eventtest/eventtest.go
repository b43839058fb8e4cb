// Package eventtest is for tests of what keeps rows in package eventstore: they run the real process, as the
// test's own program started a second time, and the real VictoriaLogs server. Its entry point is [Main].
//
// It is no part of the program: package house lets nothing but tests import it.
package eventtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/rollscope/rollscope/internal/eventstore/child"
)

const childEnv = "ROLLSCOPE_TEST_EVENTS_CHILD"

// Child is the event store's process if [Command] started this program as such, and does not return then.
// It comes first in a TestMain; [Main] begins with it.
func Child() {
	if os.Getenv(childEnv) != "" {
		os.Exit(child.Main(os.Args[1:]))
	}
}

// Main is the whole of a TestMain: it is [Child], runs the tests, and fails when a goroutine of theirs is left.
// At the end it calls the functions given and removes the server that [Server] built.
func Main(m *testing.M, atEnd ...func()) {
	Child()
	// The library starts goroutines as it is linked; those are there before any test.
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.Cleanup(func(code int) {
		for _, f := range atEnd {
			f()
		}
		_ = os.RemoveAll(serverDir())
		os.Exit(code)
	}))
}

// Command is eventstore.Options.Command: this program, as the event store's process. Its TestMain must be, or
// begin with, [Main] or [Child].
func Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), childEnv+"=1", "GOMAXPROCS=2")
	return cmd
}

// Store is what [Run] needs of an eventstore.Store.
type Store interface {
	Run(ctx context.Context) error
	Close() error
}

// Run runs a store until stop is called or the test ends; then it closes it. What goes wrong fails the test.
func Run(t testing.TB, s Store) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := errors.Join(<-done, s.Close()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// serverDir is where this process keeps the server that it built.
func serverDir() string {
	return filepath.Join(os.TempDir(), "rollscope-test-server-"+strconv.Itoa(os.Getpid()))
}

// buildServer builds VictoriaLogs' server from its module, unless this process did so before.
func buildServer() (path string, err error) {
	path = filepath.Join(serverDir(), "victoria-logs")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(serverDir(), 0o777); err != nil {
		return "", err
	}
	// Under a name of its own first: another test may need it at the same time.
	f, err := os.CreateTemp(serverDir(), "made-")
	if err != nil {
		return "", err
	}
	_ = f.Close()
	out, err := exec.Command("go", "build", "-o", f.Name(), "github.com/VictoriaMetrics/VictoriaLogs/app/victoria-logs").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the VictoriaLogs server: %w\n%s", err, out)
	}
	return path, os.Rename(f.Name(), path)
}

// Server starts the real VictoriaLogs server with more arguments and returns its URL. It ends with the test.
// The package's TestMain must be [Main].
func Server(t testing.TB, args ...string) string {
	t.Helper()
	path, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	for range 5 { // the server does not say which port it got for :0, so a free one is looked for
		addr, free, err := reserve()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(free)
		cmd := exec.Command(path, append([]string{"-httpListenAddr=" + addr, "-storageDataPath=" + t.TempDir(), "-retentionPeriod=60d",
			"-loggerLevel=ERROR", "-inmemoryDataFlushInterval=1s", "-memory.allowedBytes=128MB"}, args...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
		if answers(addr, ended) {
			return "http://" + addr
		}
	}
	t.Fatal("the VictoriaLogs server does not start")
	return ""
}

// reserve takes a port of this machine for who asks for it by its number: it is given to nobody who asks for
// any, until free is called. Where the system does not let two sockets share it that way it is only a free one.
func reserve() (addr string, free func(), err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return "", nil, fmt.Errorf("a port for the server: %w", err)
	}
	unix.CloseOnExec(fd)
	free = sync.OnceFunc(func() { _ = unix.Close(fd) })
	if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var at unix.Sockaddr
	if err == nil {
		at, err = unix.Getsockname(fd)
	}
	if err != nil {
		free()
		return "", nil, fmt.Errorf("a port for the server: %w", err)
	}
	if runtime.GOOS != "linux" {
		free()
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port), free, nil
}

// answers waits until somebody listens at an address; false: the server ended, as when another program took
// the port before it, or half a minute is over.
func answers(addr string, ended <-chan struct{}) bool {
	for range 600 {
		select {
		case <-ended:
			return false
		case <-time.After(50 * time.Millisecond):
		}
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return true
		}
	}
	return false
}
