package fpmbus

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
)

// ExportSocketOptions are for [NewExportSocket].
type ExportSocketOptions struct {
	Common
	Path string      // of the UNIX socket; a file that a process left behind is replaced
	Mode fs.FileMode // of the socket; 0: 0o660
	Own  *Own        // relays of this process, whose messages are not taken in; may be nil
}

// maxExporters bounds connections at once.
const maxExporters = 256

type exportSocket struct {
	o    ExportSocketOptions
	m    *meter
	mu   sync.Mutex
	pubs *publishers
}

// NewExportSocket listens for Dynamo's exporter (python -m dynamo.common.export_forward_pass_metrics
// --socket unix:///PATH), which connects and writes one JSON object a line.
func NewExportSocket(o ExportSocketOptions) (Source, error) {
	if o.Path == "" {
		return nil, errors.New("fpmbus: the exporter's socket needs a path")
	}
	if o.Mode == 0 {
		o.Mode = 0o660
	}
	o.Common = o.Common.withDefaults(o.Path)
	return &exportSocket{o: o, m: newMeter(o.Now, o.Name, ExportSocket, o.Path), pubs: newPublishers(false)}, nil
}

func (s *exportSocket) Run(ctx context.Context, emit func(Message)) error {
	defer s.m.state(Ended, nil)
	l, err := bind("ipc://" + s.o.Path)
	if err != nil {
		return err
	}
	defer l.Close()
	if s.o.Path[0] != '@' {
		if err := os.Chmod(s.o.Path, s.o.Mode.Perm()); err != nil {
			return fmt.Errorf("fpmbus: the exporter's socket: %w", err)
		}
	}
	s.m.state(Listening, nil)
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	turns := make(chan struct{}, maxExporters)
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			if c != nil {
				_ = c.Close()
			}
			return nil
		}
		if err != nil {
			s.m.wrong(fmt.Errorf("accept at %s: %w", s.o.Path, err))
			if !sleep(ctx, s.o.Retry.Min) {
				return nil
			}
			continue
		}
		select {
		case turns <- struct{}{}:
		default:
			_ = c.Close()
			s.m.failed("too_many_exporters", fmt.Errorf("%d exporters are connected to %s, no more are taken", maxExporters, s.o.Path))
			continue
		}
		wg.Go(func() {
			defer func() { <-turns }()
			s.serve(ctx, c, emit)
		})
	}
}

func (s *exportSocket) serve(ctx context.Context, c net.Conn, emit func(Message)) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	s.m.mu.Lock()
	s.m.s.Connects++
	s.m.mu.Unlock()
	lines := newLines(c, s.o.MaxMessage)
	for {
		line, err := lines.next()
		switch {
		case errors.Is(err, errTooLarge):
			s.m.failed("too_large", err)
			continue
		case err != nil && !errors.Is(err, io.EOF):
			if ctx.Err() == nil {
				s.m.wrong(fmt.Errorf("read from an exporter at %s: %w", s.o.Path, err))
			}
			return
		}
		if len(line) > 0 && (err == nil || line[len(line)-1] == '}') { // a last line may lack its end
			s.line(line, emit)
		} else if len(line) > 0 {
			s.m.failed("cut_off", fmt.Errorf("an exporter at %s ended within a line", s.o.Path))
		}
		if err != nil {
			return
		}
	}
}

func (s *exportSocket) line(line []byte, emit func(Message)) {
	m, err := parseExported(line)
	if err != nil {
		s.m.failed("bad_record", err)
		return
	}
	if m.HasPublisher && s.o.Own.has(m.Publisher) {
		s.m.other()
		return
	}
	m.Source, m.Kind, m.Received = s.o.Name, ExportSocket, s.o.Now()
	s.mu.Lock() // the numbers are looked at in the order in which messages are handed on
	defer s.mu.Unlock()
	if m.HasPublisher && m.HasSequence {
		a := s.pubs.see(m.Publisher, Scope{m.Namespace, m.Component, m.Endpoint}.Subject(), m.Sequence, m.Published)
		s.m.saw(a)
		if a.repeat {
			return
		}
	}
	s.m.got(m.Received, len(m.Payload))
	emit(m)
}

func (s *exportSocket) Status() []Status { return []Status{s.m.status()} }
func (s *exportSocket) Drops() []Drop    { return s.m.list() }

// lines reads lines of bounded length.
type lines struct {
	r     *bufio.Reader
	limit int
	buf   []byte
}

func newLines(r io.Reader, limit int) *lines {
	return &lines{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// next returns the next line without its end and without white space around it. The last line may come with
// io.EOF. errTooLarge is for a line that was read over. The line is good until the next call.
func (l *lines) next() ([]byte, error) {
	l.buf = l.buf[:0]
	size := 0
	for {
		part, err := l.r.ReadSlice('\n')
		if size += len(part); size <= l.limit {
			if err == nil && len(l.buf) == 0 {
				return bytes.TrimSpace(part), nil
			}
			l.buf = append(l.buf, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if size > l.limit && (err == nil || errors.Is(err, io.EOF)) {
			l.buf = nil
			return nil, fmt.Errorf("%w: a line of %d bytes, %d are read", errTooLarge, size, l.limit)
		}
		return bytes.TrimSpace(l.buf), err
	}
}
