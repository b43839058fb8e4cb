package fpmbus

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// soak is how many seconds the long tests send: ROLLSCOPE_SOAK, else a little.
func soak(t testing.TB, least int) int {
	if s := os.Getenv("ROLLSCOPE_SOAK"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("ROLLSCOPE_SOAK=%s: it is a number of seconds", s)
		}
		return max(n, least)
	}
	return least
}

const soakRate = 5000

// Nothing is lost of 5,000 messages a second, over both transports at once.
func TestSoakEngineSockets(t *testing.T) {
	n := soakRate * soak(t, 2)
	k, all := map[string]*keeper{}, []Source{}
	var outlets []Outlet
	peers := map[string]*pyPeer{}
	for _, name := range []string{"ipc", "tcp"} {
		at := "tcp"
		if name == "ipc" {
			at = "ipc://" + socketPath(t, "fpm.0")
		}
		p := startPeer(t, "engine", at, fmt.Sprint(n), fmt.Sprint(soakRate), "0")
		peers[name] = p
		all = append(all, must[Source](t)(NewEngineSocket(EngineSocketOptions{Common: Common{Name: name, Retry: quick}, Endpoint: p.says()["bound"].(string)})))
		k[name] = &keeper{}
		outlets = append(outlets, Outlet{Name: name, Sink: k[name], Accept: func(m Message) bool { return m.Source == name }})
	}
	b, _ := runBus(t, Options{Sources: all, Outlets: outlets})
	for _, p := range peers {
		p.tell("go")
	}
	for name, p := range peers {
		sent := p.says()
		eventually(t, "all messages", func() bool { return k[name].count() == n })
		if k[name].sha() != sent["sha256"] {
			t.Errorf("%s: not what was sent", name)
		}
		t.Logf("%s: %d messages, sent in %.1f s", name, n, sent["seconds"])
	}
	if d := b.Drops(); len(d) != 0 {
		t.Errorf("%+v", d)
	}
	runtime.GC()
}

// The receiving process is stopped for a while: what it did not get is counted, exactly.
func TestSoakReceiverStopped(t *testing.T) {
	stopped := time.Second
	if os.Getenv("ROLLSCOPE_SOAK") != "" {
		stopped = 5 * time.Second
	}
	n := soakRate * max(soak(t, 3), int(stopped/time.Second)+3)
	t.Setenv("SNDHWM", "1000") // libzmq's default: it is the sender that drops
	p := startPeer(t, "engine", "tcp", fmt.Sprint(n), fmt.Sprint(soakRate), "0")
	at := p.says()["bound"].(string)
	cmd := exec.Command(os.Args[0], "-test.run=^TestReceiverProcess$")
	cmd.Env = append(os.Environ(), "FPMBUS_RECEIVE="+at, "FPMBUS_LAST="+fmt.Sprint(n-1))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	answers := json.NewDecoder(out)
	var s Status
	if err := answers.Decode(&s); err != nil || s.State != Connected {
		t.Fatalf("%+v, %v", s, err)
	}
	p.tell("go")
	time.Sleep(500 * time.Millisecond)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(stopped)
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	p.says()
	if err := answers.Decode(&s); err != nil {
		t.Fatal(err)
	}
	if s.Messages+s.Missed != int64(n) || s.Restarts != 0 || s.Connects != 1 {
		t.Errorf("%d messages came and %d are counted as missed, of %d: %+v", s.Messages, s.Missed, n, s)
	}
	t.Logf("stopped for %s: %d of %d missed, all counted", stopped, s.Missed, n)
}

// TestReceiverProcess is the process that TestSoakReceiverStopped stops.
func TestReceiverProcess(t *testing.T) {
	at := os.Getenv("FPMBUS_RECEIVE")
	if at == "" {
		t.Skip("not called by another test")
	}
	last, err := strconv.ParseUint(os.Getenv("FPMBUS_LAST"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	src := must[Source](t)(NewEngineSocket(EngineSocketOptions{Endpoint: at}))
	end := make(chan struct{})
	sink := SinkFunc(func(_ context.Context, batch []Message) error {
		if batch[len(batch)-1].Sequence == last {
			close(end)
		}
		return nil
	})
	b, _ := runBus(t, Options{Sources: []Source{src}, Outlets: []Outlet{{Name: "sink", Sink: sink}}})
	eventually(t, "connected", func() bool { return b.Sources()[0].State == Connected })
	answers := json.NewEncoder(os.Stdout)
	_ = answers.Encode(b.Sources()[0])
	select {
	case <-end:
	case <-time.After(5 * time.Minute):
	}
	_ = answers.Encode(b.Sources()[0])
}
