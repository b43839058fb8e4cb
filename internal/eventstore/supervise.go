package eventstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rollscope/rollscope/internal/eventstore/wire"
)

const (
	// maxSocketPath is what a socket's path may have on all systems.
	maxSocketPath = 100
	// A child that lived this long starts the count of failures anew.
	wellAfter = time.Minute
	// stopWithin is how long a child may take to write out what it holds.
	stopWithin = 20 * time.Second
	minBackoff = 200 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// supervisor starts the child when it is needed, again when it ends, and sets aside parts that end it.
type supervisor struct {
	command  func(ctx context.Context, args ...string) *exec.Cmd
	args     []string
	home     string // where the socket lives, if its path is short enough
	parts    *parts
	logger   *slog.Logger
	needed   chan struct{}
	needOnce sync.Once

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced when anything below changes
	current    *client       // nil: not ready
	generation int
	failures   int    // starts in a row that came to nothing
	reason     string // why there is no child
	last       string // why the last one ended
	restarts   int64
	stopped    bool
	clean      bool // the last child wrote out everything and said so
	pid        int
}

func newSupervisor(home string, p *parts, command func(context.Context, ...string) *exec.Cmd, args []string, logger *slog.Logger) *supervisor {
	return &supervisor{command: command, args: args, home: home, parts: p, logger: logger, needed: make(chan struct{}), changed: make(chan struct{})}
}

// need makes the child start.
func (v *supervisor) need() { v.needOnce.Do(func() { close(v.needed) }) }

func (v *supervisor) isNeeded() bool {
	select {
	case <-v.needed:
		return true
	default:
		return false
	}
}

func (v *supervisor) set(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
	close(v.changed)
	v.changed = make(chan struct{})
}

// is reports whether c speaks with the child that runs.
func (v *supervisor) is(c *client) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.current == c
}

// client waits for a child that answers.
func (v *supervisor) client(ctx context.Context) (*client, error) {
	v.need()
	for {
		v.mu.Lock()
		current, changed, failures, reason, stopped := v.current, v.changed, v.failures, v.reason, v.stopped
		v.mu.Unlock()
		switch {
		case stopped:
			return nil, ErrClosed
		case current != nil:
			return current, nil
		case failures > 1:
			return nil, fmt.Errorf("%w: %s", ErrDown, reason)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: it is starting: %w", ErrDown, context.Cause(ctx))
		}
	}
}

// passed waits until the given life of the child is over; it gives up soon, for the connection may have
// failed for another reason.
func (v *supervisor) passed(ctx context.Context, generation int) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		v.mu.Lock()
		over := v.current == nil || v.current.generation != generation
		changed := v.changed
		v.mu.Unlock()
		if over {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// lastReason is why the last child ended.
func (v *supervisor) lastReason() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.last
}

// run supervises until ctx ends, then ends the child in good order.
func (v *supervisor) run(ctx context.Context) {
	defer v.set(func() { v.stopped, v.current = true, nil })
	select {
	case <-v.needed:
	case <-ctx.Done():
		return
	}
	// Files that are too short are found now and not when a query comes to them, or never.
	v.parts.check()
	for ctx.Err() == nil {
		began := time.Now()
		err := v.life(ctx)
		if ctx.Err() != nil {
			return
		}
		aside := v.parts.setAside(err)
		v.set(func() {
			v.restarts++
			v.reason = err.Error()
			v.failures++
			if time.Since(began) > wellAfter || aside > 0 || v.parts.probing() {
				v.failures = 1
			}
		})
		pause := min(minBackoff<<min(v.failures-1, 10), maxBackoff)
		v.logger.Error("the event store's process ended and is started again", "reason", err, "parts_set_aside", aside, "in", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// exitError is how a child ended, with what it said last.
type exitError struct {
	err  error
	said string // all that is kept of stderr
}

func (e *exitError) Error() string {
	if line := lastWords(e.said); line != "" {
		return fmt.Sprintf("%v: %s", e.err, line)
	}
	return e.err.Error()
}

// lastWords is the line that says why a process ended.
func lastWords(said string) string {
	var last string
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.Contains(line, "FATAL:") {
			return line
		}
		if line != "" {
			last = line
		}
	}
	return last
}

// life is one child from start to end.
func (v *supervisor) life(ctx context.Context) error {
	listener, remove, err := v.listen()
	if err != nil {
		return err
	}
	defer remove()
	socket := listener.Addr().String()
	file, err := listener.File()
	_ = listener.Close()
	if err != nil {
		return fmt.Errorf("the event store's socket: %w", err)
	}
	// The child must outlive ctx for as long as it writes out what it holds.
	args, anew := slices.Clone(v.args), v.parts.reindex()
	if len(anew) > 0 {
		args = append(args, "-reindex", strings.Join(anew, ","))
	}
	if v.parts.probing() {
		args = append(args, "-probe")
	}
	cmd := v.command(context.WithoutCancel(ctx), args...)
	cmd.ExtraFiles = []*os.File{file}
	stdin, err := cmd.StdinPipe()
	if err == nil {
		cmd.Stdout = nil
	}
	var stderr io.ReadCloser
	if err == nil {
		stderr, err = cmd.StderrPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	_ = file.Close()
	if err != nil {
		return fmt.Errorf("the event store's process cannot be started: %w", err)
	}
	said := make(chan string, 1)
	go func() { said <- v.listenTo(stderr) }()
	ended := make(chan error, 1)
	go func() {
		words := <-said // before Wait, which closes the pipe
		err := cmd.Wait()
		if err == nil {
			err = errors.New("it ended")
		}
		ended <- &exitError{err, words}
	}()

	// The next child listens at the same path. Whoever still has this one's client must not be answered by
	// that one, which does not have what this one had in memory.
	var over atomic.Bool
	defer over.Store(true)
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "unix", socket)
			if err == nil && over.Load() { // looked at behind the connection: the next one comes after it was set
				return nil, errors.Join(errEnded, conn.Close())
			}
			return conn, err
		},
		MaxIdleConnsPerHost: 8,
		DisableCompression:  true,
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      64 << 10,
	}
	defer transport.CloseIdleConnections()
	c := &client{base: "http://events", http: &http.Client{Transport: transport}, reason: func() string {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.current == nil {
			return v.reason
		}
		return ""
	}}
	v.set(func() { v.generation++; c.generation = v.generation; v.pid = cmd.Process.Pid; v.clean = false })
	ready := make(chan error, 1)
	readyCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		req, err := http.NewRequestWithContext(readyCtx, http.MethodGet, c.base+wire.ReadyPath, nil)
		if err == nil {
			var resp *http.Response
			if resp, err = c.http.Do(req); err == nil {
				drain(resp.Body)
			}
		}
		ready <- err
	}()
	for {
		select {
		case err := <-ready:
			ready = nil
			if err == nil {
				v.parts.reindexed(anew)
				v.parts.foundNothing()
				v.set(func() { v.current, v.failures, v.reason = c, 0, "" })
			} // else it is ending, or ctx ended
		case err := <-ended:
			v.set(func() { v.current, v.reason, v.last = nil, err.Error(), err.Error() })
			return err
		case <-ctx.Done():
			v.set(func() { v.current = nil })
			_, _ = io.WriteString(stdin, wire.Stop+"\n")
			select {
			case err := <-ended:
				var exit *exitError
				v.set(func() { v.clean = errors.As(err, &exit) && cmd.ProcessState.Success() })
			case <-time.After(stopWithin):
				v.logger.Warn("the event store's process does not end and is killed; rows that it holds come from the spool again", "after", stopWithin)
				_ = cmd.Process.Kill()
				<-ended
			}
			return nil
		}
	}
}

// listen makes the child's socket, in the data directory if the path is short enough.
func (v *supervisor) listen() (*net.UnixListener, func(), error) {
	dir, remove := v.home, func() {}
	if len(dir)+len("/events.sock") > maxSocketPath {
		dir = ""
	}
	for {
		if dir == "" {
			tmp := os.TempDir()
			if len(tmp) > maxSocketPath/2 {
				tmp = "/tmp"
			}
			var err error
			if dir, err = os.MkdirTemp(tmp, "rollscope-"); err != nil {
				return nil, nil, fmt.Errorf("no place for the event store's socket: %w", err)
			}
			made := dir
			remove = func() { _ = os.RemoveAll(made) }
		}
		path := filepath.Join(dir, "events.sock")
		_ = os.Remove(path)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err == nil {
			l.SetUnlinkOnClose(false)
			inner := remove
			return l, func() { _ = os.Remove(path); inner() }, nil
		}
		if dir != v.home {
			remove()
			return nil, nil, fmt.Errorf("the event store's socket: %w", err)
		}
		dir = "" // some file systems have no sockets
	}
}

// listenTo logs what the child says and returns the part that matters when it ended.
func (v *supervisor) listenTo(r io.Reader) string {
	const keep = 256 << 10
	var said strings.Builder
	in := bufio.NewReaderSize(r, 64<<10)
	quiet := false
	for {
		line, err := in.ReadString('\n')
		if said.Len()+len(line) < keep {
			said.WriteString(line)
		} else if !quiet && !strings.Contains(said.String(), "FATAL") {
			// What is old did no harm: make room for what comes.
			said.Reset()
			said.WriteString(line)
		}
		switch text := strings.TrimSpace(line); {
		case text == "":
		case strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: "):
			quiet = true // stacks follow
		case !quiet:
			if len(text) > 500 {
				text = text[:500] + "..."
			}
			level := slog.LevelWarn
			if strings.Contains(text, "requestURI: /select/") { // a query that is wrong: its asker is told
				level = slog.LevelDebug
			}
			v.logger.Log(context.Background(), level, "the event store's process says", "line", text)
		}
		if err != nil {
			return said.String()
		}
	}
}

// childArgs are the options of package child.
func childArgs(dir string, retention, future time.Duration, minFree, memory int64, flush time.Duration) []string {
	return []string{
		"-dir", dir,
		"-retention", retention.String(),
		"-future", future.String(),
		"-min-free-bytes", strconv.FormatInt(minFree, 10),
		"-memory-bytes", strconv.FormatInt(memory, 10),
		"-flush-interval", flush.String(),
	}
}
