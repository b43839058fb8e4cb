package fpmbus

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// subscribeRaw connects as a SUB that never reads.
func subscribeRaw(t testing.TB, at, topic string) net.Conn {
	t.Helper()
	network, address, err := endpoint(at)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := handshake(c, "SUB", 1<<20, time.Minute, "PUB"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(appendFrame(nil, append([]byte{1}, topic...), false)); err != nil {
		t.Fatal(err)
	}
	return c
}

// said is a connection from which the given bytes come.
type said struct {
	net.Conn
	r   io.Reader
	out bytes.Buffer
}

func (s *said) Read(p []byte) (int, error)      { return s.r.Read(p) }
func (s *said) Write(p []byte) (int, error)     { return s.out.Write(p) }
func (s *said) SetDeadline(time.Time) error     { return nil }
func (s *said) SetReadDeadline(time.Time) error { return nil }
func (s *said) Close() error                    { return nil }

// greeting is a peer's part of a handshake.
func greetingOf(version byte, mechanism, socket string) []byte {
	g := make([]byte, 64)
	g[0], g[9], g[10] = 0xff, 0x7f, version
	copy(g[12:], mechanism)
	ready := append([]byte("\x05READY"), property("Socket-Type", socket)...)
	return append(append(g, flagCommand, byte(len(ready))), ready...)
}

func TestHandshakeRefuses(t *testing.T) {
	good := greetingOf(3, "NULL", "PUB")
	for _, c := range []struct {
		name string
		in   []byte
		want string
	}{
		{"nothing", nil, "no greeting"},
		{"HTTP", []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "does not speak ZMTP 3"},
		{"ZMTP 2", greetingOf(1, "", ""), "does not speak ZMTP 3"},
		{"cut off", good[:40], "cut off"},
		{"CURVE", greetingOf(3, "CURVE", "PUB"), "CURVE"},
		{"another socket", greetingOf(3, "NULL", "ROUTER"), `"ROUTER"`},
		{"a message in place of READY", append(append([]byte{}, good[:64]...), 0, 1, 'x'), "before READY"},
		{"a huge READY", append(append([]byte{}, good[:64]...), flagCommand|flagLong, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "length of"},
		{"a command that is cut off", append(append([]byte{}, good[:64]...), flagCommand, 1, 9), "cut off"},
		{"an error", append(append([]byte{}, good[:64]...), append([]byte{flagCommand, 10}, "\x05ERROR\x03bad"...)...), "bad"},
		{"no socket type", append(append([]byte{}, good[:64]...), append([]byte{flagCommand, 6}, "\x05READY"...)...), "no socket type"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := handshake(&said{r: bytes.NewReader(c.in)}, "SUB", 1<<20, time.Minute, "PUB", "XPUB")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
	if _, err := handshake(&said{r: bytes.NewReader(good)}, "SUB", 1<<20, time.Minute, "PUB"); err != nil {
		t.Error(err)
	}
}

func TestReadMessages(t *testing.T) {
	in := greetingOf(3, "NULL", "PUB")
	in = append(in, appendFrame(appendFrame(appendFrame(nil, nil, true), []byte("12345678"), true), bytes.Repeat([]byte("p"), 300), false)...)
	in = append(in, append([]byte{flagCommand, 11}, "\x04PING\x00\x01ctxt"...)...)
	in = append(in, appendFrame(nil, make([]byte, 2000), false)...)                                      // too large
	in = append(in, appendFrame(appendFrame(nil, make([]byte, 900), true), make([]byte, 200), false)...) // together
	for range maxFrames {
		in = appendFrame(in, []byte("x"), true)
	}
	in = appendFrame(in, nil, false) // too many frames
	in = append(in, append([]byte{flagCommand, 14}, "\x09SUBSCRIBEabcd"...)...)
	in = appendFrame(in, []byte("last"), false)
	c := &said{r: bytes.NewReader(in)}
	z, err := handshake(c, "SUB", 1000, time.Minute, "PUB")
	if err != nil {
		t.Fatal(err)
	}
	c.out.Reset()
	parts, err := z.message()
	if err != nil || len(parts) != 3 || len(parts[0]) != 0 || string(parts[1]) != "12345678" || len(parts[2]) != 300 {
		t.Fatalf("%q, %v", parts, err)
	}
	for i := range 3 {
		if _, err = z.message(); !errors.Is(err, errTooLarge) {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if got := c.out.String(); got != "\x04\x09\x04PONGctxt" {
		t.Errorf("the answer to PING is %q", got)
	}
	if parts, err = z.message(); err != nil || string(parts[0]) != "\x01abcd" {
		t.Fatalf("%q, %v", parts, err)
	}
	if parts, err = z.message(); err != nil || string(parts[0]) != "last" {
		t.Fatalf("%q, %v", parts, err)
	}
	if _, err = z.message(); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

func TestEndpoints(t *testing.T) {
	for in, want := range map[string]string{
		"tcp://127.0.0.1:20380": "tcp 127.0.0.1:20380", "tcp://*:5": "tcp :5", "tcp://[::1]:5": "tcp [::1]:5",
		"ipc:///tmp/fpm.0": "unix /tmp/fpm.0", "ipc://@name": "unix @name",
		"tcp://host": "", "udp://h:1": "", "": "", "ipc://": "", "/tmp/x": "",
	} {
		network, address, err := endpoint(in)
		if got := strings.TrimSpace(network + " " + address); got != want || (want == "") != (err != nil) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	ipc := must[[]string](t)(EngineSockets("ipc:///tmp/sglang-fpm", 2))
	tcp := must[[]string](t)(EngineSockets("tcp://h:20380", 3))
	if strings.Join(ipc, " ") != "ipc:///tmp/sglang-fpm.0 ipc:///tmp/sglang-fpm.1" || strings.Join(tcp, " ") != "tcp://h:20380 tcp://h:20381 tcp://h:20382" {
		t.Error(ipc, tcp)
	}
	for _, bad := range []struct {
		base  string
		ranks int
	}{{"ipc:///x", 0}, {"tcp://h:65535", 2}, {"tcp://h:", 1}, {"x", 1}} {
		if out, err := EngineSockets(bad.base, bad.ranks); err == nil && bad.base != "tcp://h:" {
			t.Errorf("%+v: %v", bad, out)
		}
	}
}

func FuzzHandshakeAndRead(f *testing.F) {
	good := greetingOf(3, "NULL", "PUB")
	f.Add(good)
	f.Add(append(append([]byte{}, good...), appendFrame(appendFrame(nil, nil, true), []byte("12345678"), false)...))
	f.Add(append(append([]byte{}, good...), append([]byte{flagCommand, 11}, "\x04PING\x00\x01ctxt"...)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		z, err := handshake(&said{r: bytes.NewReader(in)}, "SUB", 4096, time.Minute, "PUB")
		if err != nil {
			return
		}
		for range 1000 {
			parts, err := z.message()
			if err != nil && !errors.Is(err, errTooLarge) {
				return
			}
			n := 0
			for _, p := range parts {
				n += len(p)
			}
			if n > 4096+1 || len(parts) > maxFrames {
				t.Fatalf("%d parts of %d bytes", len(parts), n)
			}
		}
	})
}
