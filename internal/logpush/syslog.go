package logpush

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rollscope/rollscope/internal/event"
)

// severities of RFC 5424, as the levels that our rows have.
var severities = [8]string{"fatal", "fatal", "fatal", "error", "warning", "info", "info", "debug"}

// parseSyslog reads a message of RFC 5424 or RFC 3164. Whatever it cannot read stays in the line: a
// message without any header is a line of its own. now places times that have no year, zone those that
// have no zone.
//
// The generated parsers that exist for this weigh more than the rest of this package's binary; what
// senders really write is looser than either RFC anyway.
func parseSyslog(msg []byte, now time.Time, zone *time.Location) Entry {
	rest := strings.TrimRight(text(msg), "\r\n\x00")
	var e Entry
	put := func(name, value string) {
		if value != "-" {
			add(&e.Fields, name, value)
		}
	}
	finish := func(line string) Entry {
		e.Line = line
		e.Source = e.Service
		for _, f := range e.Fields {
			if f.Name == "hostname" {
				e.Source = f.Value + "/" + e.Service
			}
		}
		return e
	}
	if strings.HasPrefix(rest, "<") {
		if end := strings.IndexByte(rest, '>'); end > 1 && end <= 4 {
			if n, err := strconv.Atoi(rest[1:end]); err == nil && n >= 0 && n < 192 {
				put("level", severities[n&7])
				put("syslog.facility", strconv.Itoa(n>>3))
				rest = rest[end+1:]
			}
		}
	}
	if v, after, ok := strings.Cut(rest, " "); ok && v == "1" {
		head := strings.SplitN(after, " ", 6)
		if len(head) == 6 {
			if t, err := time.Parse(time.RFC3339Nano, head[0]); err == nil || head[0] == "-" {
				if err == nil {
					e.Time = t.UnixNano()
				}
				put("hostname", head[1])
				if head[2] != "-" {
					e.Service = head[2]
				}
				put("proc_id", head[3])
				put("msg_id", head[4])
				return finish(structured(head[5], put))
			}
		}
	}
	if t, after, ok := oldTime(rest, now, zone); ok {
		e.Time = t.UnixNano()
		rest = after
		if host, after, ok := strings.Cut(rest, " "); ok && host != "" && !strings.HasSuffix(host, ":") && !strings.Contains(host, "[") {
			put("hostname", host)
			rest = after
		}
	}
	// TAG[pid]: text
	if tag, after, ok := strings.Cut(rest, ":"); ok && len(tag) > 0 && len(tag) <= 64 && !strings.ContainsAny(tag, " \t{\"") {
		name, pid, _ := strings.Cut(tag, "[")
		if name != "" {
			e.Service = name
			put("proc_id", strings.TrimSuffix(pid, "]"))
			rest = strings.TrimPrefix(after, " ")
		}
	}
	return finish(rest)
}

// structured reads RFC 5424's [id name="value" ...] parts and returns the message after them.
func structured(s string, put func(name, value string)) string {
	if rest, ok := strings.CutPrefix(s, "-"); ok {
		return strings.TrimPrefix(strings.TrimPrefix(rest, " "), "\ufeff")
	}
	all := s
	for strings.HasPrefix(s, "[") {
		id, rest, ok := strings.Cut(s[1:], " ")
		if i := strings.IndexByte(s, ']'); i >= 0 && (!ok || i < len(id)+1) { // an element without parameters
			s = s[i+1:]
			continue
		}
		for {
			rest = strings.TrimLeft(rest, " ")
			if after, ok := strings.CutPrefix(rest, "]"); ok {
				s = after
				break
			}
			name, after, ok := strings.Cut(rest, "=\"")
			if !ok {
				return all
			}
			value, after, ok := quoted(after)
			if !ok {
				return all
			}
			put(id+"."+name, value)
			rest = after
		}
	}
	return strings.TrimPrefix(strings.TrimPrefix(s, " "), "\ufeff")
}

// quoted reads up to the closing quote; \" \\ and \] are escapes.
func quoted(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s) && strings.IndexByte("\"\\]", s[i+1]) >= 0:
			i++
			b.WriteByte(s[i])
		case c == '"':
			return b.String(), s[i+1:], true
		default:
			b.WriteByte(c)
		}
	}
	return "", "", false
}

// oldTime reads "Jan _2 15:04:05", which has neither year nor zone, or RFC 3339, which newer senders put
// in the same place.
func oldTime(s string, now time.Time, zone *time.Location) (time.Time, string, bool) {
	if first, rest, ok := strings.Cut(s, " "); ok {
		if t, err := time.Parse(time.RFC3339Nano, first); err == nil {
			return t, rest, true
		}
	}
	const layout = "Jan _2 15:04:05"
	if len(s) < len(layout) {
		return time.Time{}, s, false
	}
	t, err := time.ParseInLocation(layout, s[:len(layout)], zone)
	if err != nil {
		return time.Time{}, s, false
	}
	// The year that brings it nearest to now: a message of 31 December may come in January.
	best := t.AddDate(now.Year()-t.Year(), 0, 0)
	for _, y := range []int{-1, 1} {
		if other := t.AddDate(now.Year()+y-t.Year(), 0, 0); other.Sub(now).Abs() < best.Sub(now).Abs() {
			best = other
		}
	}
	return best, strings.TrimPrefix(s[len(layout):], " "), true
}

// SyslogOptions configure [Syslog].
type SyslogOptions struct {
	Network string // "tcp" or "udp"
	Address string
	Zone    *time.Location // of times without one; nil = UTC
	Sink    Sink
	Now     func() time.Time // nil = time.Now
	Logger  *slog.Logger
	Extra   []event.Field // added to each message
	Service string        // for messages that name none
}

// Syslog receives syslog messages: datagrams, or a TCP stream of messages that end with a newline or
// begin with their length (RFC 6587). Messages that the sink refuses wait in a TCP sender's connection;
// datagrams cannot wait and are counted as lost.
type Syslog struct {
	o      SyslogOptions
	name   string
	log    *slog.Logger
	counts counts
	stream net.Listener
	packet net.PacketConn
}

// ListenSyslog opens the socket.
func ListenSyslog(o SyslogOptions) (*Syslog, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Syslog{o: o, name: "syslog " + o.Network + " " + o.Address, log: o.Logger.With("component", "logpush"),
		counts: counts{sources: map[string]*Source{}, drops: map[[2]string]int64{}}}
	var err error
	switch o.Network {
	case "tcp":
		s.stream, err = net.Listen("tcp", o.Address)
	case "udp":
		s.packet, err = net.ListenPacket("udp", o.Address)
	default:
		err = fmt.Errorf("%q is neither tcp nor udp", o.Network)
	}
	if err != nil {
		return nil, fmt.Errorf("receive syslog: %w", err)
	}
	return s, nil
}

// Addr is where it listens.
func (s *Syslog) Addr() net.Addr {
	if s.stream != nil {
		return s.stream.Addr()
	}
	return s.packet.LocalAddr()
}

// Sources and Drops are as those of a Handler.
func (s *Syslog) Sources() []Source { out, _ := s.counts.list(); return out }

// Drops tells what was not kept.
func (s *Syslog) Drops() []Drop { _, out := s.counts.list(); return out }

// Close closes the socket.
func (s *Syslog) Close() error {
	if s.stream != nil {
		return ignoreClosed(s.stream.Close())
	}
	return ignoreClosed(s.packet.Close())
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Run receives until ctx ends.
func (s *Syslog) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // wakes whoever waits for a message
	defer stop()
	if s.packet != nil {
		return s.packets(ctx)
	}
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		c, err := s.stream.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("receive syslog on %s: %w", s.o.Address, err)
		}
		conns.Go(func() {
			defer c.Close()
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			if err := s.connection(ctx, c); err != nil && ctx.Err() == nil {
				s.counts.took(s.name, 0, s.o.Now(), err)
				s.log.Warn("a syslog connection ended badly", "from", c.RemoteAddr(), "err", err)
			}
		})
	}
}

func (s *Syslog) packets(ctx context.Context) error {
	buf := make([]byte, 64<<10)
	for {
		n, _, err := s.packet.ReadFrom(buf)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("receive syslog on %s: %w", s.o.Address, err)
		}
		if n == 0 {
			continue
		}
		if err := s.o.Sink(ctx, []Entry{s.entry(buf[:n])}); err != nil {
			s.counts.drop("syslog", "refused", 1)
			s.counts.took(s.name, 0, s.o.Now(), err)
			continue
		}
		s.counts.took(s.name, 1, s.o.Now(), nil)
	}
}

func (s *Syslog) entry(msg []byte) Entry {
	e := parseSyslog(msg, s.o.Now(), s.o.Zone)
	if e.Service == "" {
		e.Service = s.o.Service
	}
	e.Fields = append(e.Fields, s.o.Extra...)
	return e
}

// connection reads one sender's messages; what is in the buffer goes on as one batch.
func (s *Syslog) connection(ctx context.Context, c io.Reader) error {
	in := bufio.NewReaderSize(c, 64<<10)
	var batch []Entry
	for {
		msg, cut, err := frame(in)
		if cut {
			s.counts.drop("syslog", "cut_at_1mib", 1)
		}
		if len(msg) > 0 {
			batch = append(batch, s.entry(msg))
		}
		if len(batch) > 0 && (err != nil || in.Buffered() == 0 || len(batch) >= 1000) {
			for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
				sinkErr := s.o.Sink(ctx, batch)
				if sinkErr == nil {
					break
				}
				s.counts.took(s.name, 0, s.o.Now(), sinkErr)
				select {
				case <-ctx.Done():
					s.counts.drop("syslog", "stopped", len(batch))
					return nil
				case <-time.After(wait):
				}
			}
			s.counts.took(s.name, len(batch), s.o.Now(), nil)
			batch = nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// frame reads one message: "LENGTH message", or up to a newline. A message that is too long is cut, and
// its rest thrown away.
func frame(in *bufio.Reader) (msg []byte, cut bool, err error) {
	head, err := in.Peek(1)
	if err != nil {
		return nil, false, err
	}
	if head[0] >= '1' && head[0] <= '9' {
		for digits := 1; digits <= 8; digits++ {
			head, err = in.Peek(digits + 1)
			if err != nil {
				break
			}
			c := head[digits]
			if c == ' ' {
				n, _ := strconv.Atoi(string(head[:digits])) // it is digits
				_, _ = in.Discard(digits + 1)               // it was peeked
				msg = make([]byte, min(n, maxLine))
				if _, err := io.ReadFull(in, msg); err != nil {
					return nil, false, fmt.Errorf("a message of %d bytes is cut: %w", n, err)
				}
				if n > maxLine {
					if _, err := io.CopyN(io.Discard, in, int64(n-maxLine)); err != nil {
						return msg, true, err
					}
					cut = true
				}
				return msg, cut, nil
			}
			if c < '0' || c > '9' {
				break
			}
		}
	}
	for {
		part, err := in.ReadSlice('\n')
		if room := maxLine - len(msg); len(part) > room {
			part, cut = part[:room], true
		}
		msg = append(msg, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return bytes.TrimRight(msg, "\n"), cut, err
	}
}
