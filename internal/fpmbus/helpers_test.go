package fpmbus

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// eventually waits for cond.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// peer is a process of testdata/peer.py.
type pyPeer struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Scanner
}

// python finds one with zmq and msgpack.
func python(t testing.TB) string {
	for _, p := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(p, "-c", "import zmq, msgpack").Run() == nil {
			return p
		}
	}
	missing(t, "python3 with zmq and msgpack")
	return ""
}

// missing skips a test that needs what is not installed; with ROLLSCOPE_TEST_STRICT it fails.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("ROLLSCOPE_TEST_STRICT") != "" {
		t.Fatalf("no %s: tools/test-deps.sh installs it", what)
	}
	t.Skipf("no %s: tools/test-deps.sh installs it", what)
}

func startPeer(t testing.TB, args ...string) *pyPeer {
	t.Helper()
	cmd := exec.Command(python(t), append([]string{"testdata/peer.py"}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &pyPeer{t: t, cmd: cmd, stdin: in, out: bufio.NewScanner(out)}
	t.Cleanup(p.kill)
	return p
}

// says reads the next line that the peer prints.
func (p *pyPeer) says() map[string]any {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("the peer ended: %v", p.out.Err())
	}
	var m map[string]any
	if err := json.Unmarshal(p.out.Bytes(), &m); err != nil {
		p.t.Fatalf("the peer says %q: %v", p.out.Text(), err)
	}
	return m
}

func (p *pyPeer) tell(s string) {
	if _, err := io.WriteString(p.stdin, s+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the peer as SIGKILL does.
func (p *pyPeer) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// reserved is an address of this machine whose port is nobody's but who asks for it by its number: connections
// to it are refused until somebody listens there, once or again and again.
func reserved(t testing.TB) string {
	t.Helper()
	fd := must[int](t)(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0))
	syscall.CloseOnExec(fd)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	// With this a listener that sets it, too, may have the port; none that asks for any port gets it.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at := must[syscall.Sockaddr](t)(syscall.Getsockname(fd))
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// gate stands before a server. While it is shut, connections end as they begin.
type gate struct {
	l      net.Listener
	server string
	wg     sync.WaitGroup

	mu    sync.Mutex
	shut  bool
	conns map[net.Conn]bool
}

func newGate(t testing.TB, server string) *gate {
	t.Helper()
	g := &gate{l: must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0")), server: server, conns: map[net.Conn]bool{}}
	g.wg.Go(func() {
		for {
			c, err := g.l.Accept()
			if err != nil {
				return
			}
			g.wg.Go(func() { g.pass(c) })
		}
	})
	t.Cleanup(func() {
		_ = g.l.Close()
		g.close()
		g.wg.Wait()
	})
	return g
}

func (g *gate) pass(c net.Conn) {
	defer c.Close()
	g.mu.Lock()
	shut := g.shut
	g.conns[c] = true
	g.mu.Unlock()
	if shut {
		return
	}
	s, err := net.Dial("tcp", g.server)
	if err != nil {
		return
	}
	defer s.Close()
	g.wg.Go(func() {
		_, _ = io.Copy(s, c)
		_ = s.Close()
	})
	_, _ = io.Copy(c, s)
}

// close shuts the gate and ends the connections through it.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	g.cut()
}

// cut ends the connections through the gate; g.mu is held.
func (g *gate) cut() {
	for c := range g.conns {
		_ = c.Close()
	}
	clear(g.conns)
}

func (g *gate) open() {
	g.mu.Lock()
	g.shut = false
	g.mu.Unlock()
}

func (g *gate) url() string { return "nats://" + g.l.Addr().String() }

// keeper is a sink that keeps everything.
type keeper struct {
	mu   sync.Mutex
	all  []Message
	gate chan struct{} // nil: open; else Take waits until it is closed
}

func (k *keeper) Take(ctx context.Context, batch []Message) error {
	if k.gate != nil {
		select {
		case <-k.gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, batch...)
	return nil
}

func (k *keeper) messages() []Message {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]Message(nil), k.all...)
}

func (k *keeper) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.all)
}

func (k *keeper) sha() string {
	h := sha256.New()
	for _, m := range k.messages() {
		h.Write(m.Payload)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// runBus runs a bus until stop is called or the test ends.
func runBus(t testing.TB, o Options) (b *Bus, stop func()) {
	t.Helper()
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the bus ended with: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return b, stop
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

var quick = Retry{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}

// handmade is a source that a test emits from.
type handmade struct {
	emit  func(Message)
	ready chan struct{}
}

func newHandmade() *handmade { return &handmade{ready: make(chan struct{})} }

func (h *handmade) Run(ctx context.Context, emit func(Message)) error {
	h.emit = emit
	close(h.ready)
	<-ctx.Done()
	return nil
}
func (h *handmade) Status() []Status { return nil }
func (h *handmade) Drops() []Drop    { return nil }

// capture returns a file of the collected captures, which are not a part of this repository.
func capture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../../shared/fixtures/captures/dynamo", name))
	if err != nil {
		t.Skip("the captures are not here")
	}
	return b
}

func dropsOf(drops []Drop, source, reason string) int64 {
	for _, d := range drops {
		if d.Source == source && d.Reason == reason {
			return d.Count
		}
	}
	return 0
}
