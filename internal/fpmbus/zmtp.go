package fpmbus

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// This is the part of ZMTP 3.0 (rfc.zeromq.org/spec/23) that PUB and SUB need, with the NULL mechanism.
// docs/decisions/0006-zmtp.md says why it is ours. We say that we speak 3.0, so that a peer sends
// subscriptions as messages; those that come as commands of 3.1 are understood too.

const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4

	maxFrames    = 16
	maxHandshake = 4 << 10 // of a peer's READY
)

// errProtocol is the root of what a peer did that ZMTP does not allow.
var errProtocol = errors.New("the peer does not speak ZMTP 3")

// errTooLarge is returned for a message that was read over because it exceeds the limit; what follows it can be read.
var errTooLarge = errors.New("message is larger than the limit")

// endpoint turns a ZMQ endpoint into a network and an address of package net.
func endpoint(s string) (network, address string, err error) {
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case ok && scheme == "tcp" && rest != "":
		if _, _, err := net.SplitHostPort(rest); err != nil {
			return "", "", fmt.Errorf("fpmbus: endpoint %q: %w: write tcp://HOST:PORT", s, err)
		}
		return "tcp", strings.Replace(rest, "*:", ":", 1), nil
	case ok && scheme == "ipc" && rest != "":
		return "unix", rest, nil // a name that begins with @ is abstract for libzmq and for Go
	}
	return "", "", fmt.Errorf("fpmbus: %q is no endpoint: write tcp://HOST:PORT or ipc:///PATH", s)
}

// conn is a connection after the handshake. Reading and writing may go on at the same time, each by one goroutine.
type conn struct {
	net.Conn
	r     *bufio.Reader
	limit int // bytes of one message
	buf   []byte
	ends  [maxFrames]int
	parts [maxFrames][]byte
	head  [8]byte
	peer  string // the peer's socket type
}

// handshake exchanges greetings and READY. The peer must be one of the socket types that ours goes with.
func handshake(c net.Conn, ours string, limit int, timeout time.Duration, goesWith ...string) (*conn, error) {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	var g [64]byte
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:], "NULL")
	if _, err := c.Write(g[:]); err != nil {
		return nil, fmt.Errorf("send the greeting: %w", err)
	}
	z := &conn{Conn: c, r: bufio.NewReaderSize(c, 64<<10), limit: maxHandshake}
	var their [64]byte
	if _, err := io.ReadFull(z.r, their[:11]); err != nil {
		return nil, fmt.Errorf("%w: no greeting: %w", errProtocol, err)
	}
	if their[0] != 0xff || their[9]&1 != 1 || their[10] < 3 {
		return nil, fmt.Errorf("%w: its greeting begins with % x", errProtocol, their[:11])
	}
	if _, err := io.ReadFull(z.r, their[11:]); err != nil {
		return nil, fmt.Errorf("%w: its greeting is cut off: %w", errProtocol, err)
	}
	if m := string(bytes.TrimRight(their[12:32], "\x00")); m != "NULL" {
		return nil, fmt.Errorf("the peer asks for the security mechanism %q, only NULL is spoken here: let it listen without CURVE or PLAIN", m)
	}
	ready := append([]byte("\x05READY"), property("Socket-Type", ours)...)
	ready = append(ready, property("Identity", "")...)
	if _, err := c.Write(append([]byte{flagCommand, byte(len(ready))}, ready...)); err != nil {
		return nil, fmt.Errorf("send READY: %w", err)
	}
	command, parts, err := z.read()
	if err != nil {
		return nil, fmt.Errorf("%w: no READY: %w", errProtocol, err)
	}
	if !command {
		return nil, fmt.Errorf("%w: it sent a message before READY", errProtocol)
	}
	name, body, err := splitCommand(parts[0])
	if err != nil {
		return nil, err
	}
	if name == "ERROR" {
		return nil, fmt.Errorf("the peer refused: %q", body[min(1, len(body)):])
	}
	if name != "READY" {
		return nil, fmt.Errorf("%w: it sent %q in place of READY", errProtocol, name)
	}
	if z.peer, err = socketType(body); err != nil {
		return nil, err
	}
	if !slices.Contains(goesWith, z.peer) {
		return nil, fmt.Errorf("the peer is a %q socket, expected %s: is this the right port?", z.peer, strings.Join(goesWith, " or "))
	}
	z.limit = limit
	return z, c.SetDeadline(time.Time{})
}

func property(name, value string) []byte {
	b := append([]byte{byte(len(name))}, name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// socketType finds the peer's among READY's properties.
func socketType(b []byte) (string, error) {
	for len(b) > 0 {
		n := int(b[0])
		if len(b) < 1+n+4 {
			break
		}
		name := string(b[1 : 1+n])
		b = b[1+n:]
		size := binary.BigEndian.Uint32(b)
		if b = b[4:]; uint64(size) > uint64(len(b)) {
			break
		}
		if strings.EqualFold(name, "Socket-Type") {
			return string(b[:size]), nil
		}
		b = b[size:]
	}
	return "", fmt.Errorf("%w: its READY names no socket type", errProtocol)
}

func splitCommand(b []byte) (name string, body []byte, err error) {
	if len(b) == 0 || int(b[0]) > len(b)-1 {
		return "", nil, fmt.Errorf("%w: a command of %d bytes is cut off", errProtocol, len(b))
	}
	return string(b[1 : 1+b[0]]), b[1+b[0]:], nil
}

// read returns the next message or command. The parts are good until the next call. errTooLarge leaves the
// connection usable; every other error ends it.
func (z *conn) read() (command bool, parts [][]byte, err error) {
	z.buf = z.buf[:0]
	n, total, large := 0, uint64(0), false
	for more := true; more; n++ {
		flags, err := z.r.ReadByte()
		if err != nil {
			if n > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return false, nil, err
		}
		if flags > 7 || flags&flagCommand != 0 && (flags&flagMore != 0 || n > 0) {
			return false, nil, fmt.Errorf("%w: a frame has flags %#x", errProtocol, flags)
		}
		command, more = flags&flagCommand != 0, flags&flagMore != 0
		size := uint64(0)
		if flags&flagLong != 0 {
			if _, err := io.ReadFull(z.r, z.head[:]); err != nil {
				return false, nil, cut(err)
			}
			size = binary.BigEndian.Uint64(z.head[:])
		} else {
			b, err := z.r.ReadByte()
			if err != nil {
				return false, nil, cut(err)
			}
			size = uint64(b)
		}
		if size > 1<<32 || n >= 1024 {
			return false, nil, fmt.Errorf("%w: frame %d has a length of %d bytes", errProtocol, n, size)
		}
		total += size
		if large = large || total > uint64(z.limit) || n >= maxFrames; large {
			if _, err := io.CopyN(io.Discard, z.r, int64(size)); err != nil {
				return false, nil, cut(err)
			}
			continue
		}
		at := len(z.buf)
		z.buf = slices.Grow(z.buf, int(size))[:at+int(size)]
		if _, err := io.ReadFull(z.r, z.buf[at:]); err != nil {
			return false, nil, cut(err)
		}
		z.ends[n] = len(z.buf)
	}
	if large {
		return command, nil, fmt.Errorf("%w: %d bytes in %d frames, %d are read", errTooLarge, total, n, z.limit)
	}
	at := 0
	for i := range n {
		z.parts[i] = z.buf[at:z.ends[i]:z.ends[i]]
		at = z.ends[i]
	}
	if cap(z.buf) > 1<<20 && len(z.buf) < 64<<10 {
		z.buf = nil // one large message must not hold its room for ever; the parts still do
	}
	return command, z.parts[:n], nil
}

// message returns the next message, answering what commands ask for.
func (z *conn) message() ([][]byte, error) {
	for {
		command, parts, err := z.read()
		if err != nil {
			return nil, err
		}
		if !command {
			return parts, nil
		}
		name, body, err := splitCommand(parts[0])
		if err != nil {
			return nil, err
		}
		switch name {
		case "PING": // a time to live of 2 bytes, then what is to come back
			pong := append([]byte("\x04PONG"), body[min(2, len(body)):min(18, len(body))]...)
			if _, err := z.Write(append([]byte{flagCommand, byte(len(pong))}, pong...)); err != nil {
				return nil, err
			}
		case "ERROR":
			return nil, fmt.Errorf("the peer ended the connection: %q", body[min(1, len(body)):])
		case "SUBSCRIBE", "CANCEL": // as messages of 3.0 say it
			on := byte(0)
			if name == "SUBSCRIBE" {
				on = 1
			}
			return [][]byte{append([]byte{on}, body...)}, nil
		}
	}
}

func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendFrame appends one frame.
func appendFrame(b, body []byte, more bool) []byte {
	flags := byte(0)
	if more {
		flags = flagMore
	}
	if len(body) > 255 {
		b = binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(len(body)))
	} else {
		b = append(b, flags, byte(len(body)))
	}
	return append(b, body...)
}

// slab keeps payloads, many in one allocation.
type slab struct{ b []byte }

func (s *slab) keep(p []byte) []byte {
	const chunk = 32 << 10
	if len(p) > chunk/4 {
		return bytes.Clone(p)
	}
	if cap(s.b)-len(s.b) < len(p) {
		s.b = make([]byte, 0, chunk)
	}
	at := len(s.b)
	s.b = append(s.b, p...)
	return s.b[at:len(s.b):len(s.b)]
}
