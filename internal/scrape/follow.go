package scrape

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strconv"
	"time"
)

// RouterAddress is where a training run says that its router is.
type RouterAddress struct {
	Host     string
	Port     int
	PromPort int // of the router's own metrics; 0 when the line does not say
}

// String gives host:port.
func (r RouterAddress) String() string { return net.JoinHostPort(r.Host, strconv.Itoa(r.Port)) }

var (
	// slime prints this once the router runs; older versions without the second half.
	routerLine = regexp.MustCompile(`Router launched at (?:https?://)?(\[[0-9A-Fa-f:.%]+\]|[^\s:,\[\]]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*):(\d{1,5})(?:/?,? *Prometheus port: *(\d{1,5}))?(?:\D|$)`)
	ansi       = regexp.MustCompile("\x1b\\[[0-9;:?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[@-Z\\\\-_]")
	rayIP      = regexp.MustCompile(`\(\S+ [^()]*\bip=([0-9A-Fa-f:.]+)[^()]*\)`)
)

// ParseRouterLine reads the address out of a line of a training log. Colours and the prefix that Ray
// puts before an actor's lines are no obstacle; when the router says it listens everywhere (0.0.0.0),
// the host is the one in Ray's prefix, else this one.
func ParseRouterLine(line []byte) (RouterAddress, bool) {
	if !bytes.Contains(line, []byte("Router")) {
		return RouterAddress{}, false
	}
	plain := ansi.ReplaceAll(line, nil)
	m := routerLine.FindSubmatch(plain)
	if m == nil {
		return RouterAddress{}, false
	}
	port, err := strconv.Atoi(string(m[2]))
	if err != nil || port < 1 || port > 65535 {
		return RouterAddress{}, false
	}
	r := RouterAddress{Host: string(bytes.Trim(m[1], "[]")), Port: port}
	if len(m[3]) > 0 {
		if p, err := strconv.Atoi(string(m[3])); err == nil && p >= 1 && p <= 65535 {
			r.PromPort = p
		}
	}
	if ip := net.ParseIP(r.Host); ip != nil && ip.IsUnspecified() {
		r.Host = "127.0.0.1"
		if f := rayIP.FindSubmatch(plain); f != nil && net.ParseIP(string(f[1])) != nil {
			r.Host = string(f[1])
		}
	}
	return r, true
}

// maxLine bounds a log line that is kept; of a longer one the beginning counts.
const maxLine = 64 << 10

// FollowLog reads a log file from its beginning and on as it grows, over rotation (by renaming or by
// truncating) and while the file does not exist yet, and calls found with each address that differs
// from the one before. Of what the file holds at the start only the last address is reported. every
// is the interval between looks at the file. It ends with ctx, whose error it returns.
func FollowLog(ctx context.Context, path string, every time.Duration, logger *slog.Logger, found func(RouterAddress)) error {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	f := &logFollower{path: path, log: logger}
	defer f.close()
	var said RouterAddress
	complained := ""
	for {
		if err := f.read(ctx); err != nil && !errors.Is(err, context.Canceled) {
			if complained != err.Error() {
				complained = err.Error()
				logger.Warn("a log file cannot be followed; trying on", "file", path, "err", err)
			}
		} else if complained != "" {
			complained = ""
			logger.Info("the log file is followed", "file", path)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if f.last != said && f.last != (RouterAddress{}) {
			said = f.last
			found(said)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
}

// logFollower is the state of one followed file.
type logFollower struct {
	path string
	log  *slog.Logger
	file *os.File
	off  int64
	part []byte // beginning of a line whose end is not written yet
	long bool   // part is full: the rest of the line is skipped
	last RouterAddress
}

func (f *logFollower) close() {
	if f.file != nil {
		_ = f.file.Close() // opened for reading
		f.file = nil
	}
}

// read takes in everything that is there now.
func (f *logFollower) read(ctx context.Context) error {
	for {
		if f.file == nil {
			file, err := os.Open(f.path)
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("%s does not exist yet", f.path)
				}
				return err
			}
			f.file, f.off, f.part, f.long = file, 0, nil, false
		}
		have, err := f.file.Stat()
		if err != nil {
			f.close()
			return err
		}
		if have.IsDir() {
			f.close()
			return fmt.Errorf("%s is a directory; name the log file in it", f.path)
		}
		if have.Size() < f.off {
			// Truncated in place: a new log begins.
			if _, err := f.file.Seek(0, io.SeekStart); err != nil {
				f.close()
				return err
			}
			f.off, f.part, f.long = 0, nil, false
		}
		now, statErr := os.Stat(f.path)
		if err := f.drain(ctx); err != nil {
			f.close()
			return err
		}
		if statErr == nil && os.SameFile(have, now) || statErr != nil {
			return nil // a file that was renamed away is read on until another takes its place
		}
		f.close() // rotated: the old one was read to its end
	}
}

// drain reads to the end of the open file.
func (f *logFollower) drain(ctx context.Context) error {
	buf := make([]byte, 256<<10)
	for ctx.Err() == nil {
		n, err := f.file.Read(buf)
		f.off += int64(n)
		f.take(buf[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// take splits what was read into lines.
func (f *logFollower) take(b []byte) {
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		chunk := b
		if i >= 0 {
			chunk = b[:i]
		}
		if i >= 0 && len(f.part) == 0 {
			f.line(chunk)
		} else {
			if room := maxLine - len(f.part); !f.long && room > 0 {
				f.part = append(f.part, chunk[:min(room, len(chunk))]...)
				f.long = len(chunk) > room
			}
			if i >= 0 {
				f.line(f.part)
				f.part, f.long = f.part[:0], false
			}
		}
		if i < 0 {
			return
		}
		b = b[i+1:]
	}
}

func (f *logFollower) line(b []byte) {
	if r, ok := ParseRouterLine(b[:min(len(b), maxLine)]); ok {
		f.last = r
	}
}

// followLog makes targets of the addresses in a log file.
func (s *sources) followLog(ctx context.Context, origin, path string) {
	every := s.m.opts.RefreshInterval
	setDefault(&every, time.Second)
	var was RouterAddress
	_ = FollowLog(ctx, path, every, s.m.log, func(r RouterAddress) { // ends with ctx only
		if was != (RouterAddress{}) {
			s.retire(Gone{Address: was.String(), From: path, At: s.m.opts.Now(), Next: r.String()})
		}
		was = r
		s.m.log.Info("a router was found in a log", "file", path, "router", r.String(), "metrics_port", r.PromPort)
		s.set(origin, TargetsForRouter(r.Host, r.Port, r.PromPort), nil)
	})
}
