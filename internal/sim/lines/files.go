package lines

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rollscope/rollscope/internal/sim"
)

// Forms of a line in a file.
const (
	Plain  = "plain"
	Docker = "docker" // Docker's json-file
	CRI    = "cri"    // Kubernetes
)

// Forms lists the forms.
func Forms() []string { return []string{Plain, Docker, CRI} }

// FileOptions say how files are written.
type FileOptions struct {
	Form     string // one of Forms; "": Plain
	MaxBytes int64  // a file is renamed to NAME.1 and begun anew beyond it; 0: 8 MiB
	Keep     int    // how many old ones stay; 0: 2
	// Suffix stands behind a member's name; "": ".log".
	Suffix string
}

// Files are the logs of a fleet, one a member, in a directory. It is safe for concurrent use.
type Files struct {
	dir string
	o   FileOptions

	mu    sync.Mutex
	open  map[string]*file
	lines int64
	bytes int64
}

type file struct {
	f    *os.File
	w    *bufio.Writer
	size int64
}

// Open makes the directory; files are made when they get their first line, and old ones gone on with.
func Open(dir string, o FileOptions) (*Files, error) {
	switch o.Form {
	case "":
		o.Form = Plain
	case Plain, Docker, CRI:
	default:
		return nil, fmt.Errorf("sim logs: no form %q: there are %s", o.Form, strings.Join(Forms(), ", "))
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 8 << 20
	}
	if o.Keep <= 0 {
		o.Keep = 2
	}
	if o.Suffix == "" {
		o.Suffix = ".log"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("sim logs: %w", err)
	}
	return &Files{dir: dir, o: o, open: map[string]*file{}}, nil
}

// Path is a member's file.
func (f *Files) Path(member string) string { return filepath.Join(f.dir, member+f.o.Suffix) }

// Write appends lines and hands them to the operating system.
func (f *Files) Write(lines []Line) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var buf []byte
	for _, l := range lines {
		buf = f.o.append(buf[:0], l)
		x, err := f.file(l.Member, int64(len(buf)))
		if err != nil {
			return fmt.Errorf("sim logs: %w", err)
		}
		if _, err := x.w.Write(buf); err != nil {
			return fmt.Errorf("sim logs: %w", err)
		}
		x.size += int64(len(buf))
		f.lines++
		f.bytes += int64(len(buf))
	}
	for _, x := range f.open {
		if err := x.w.Flush(); err != nil {
			return fmt.Errorf("sim logs: %w", err)
		}
	}
	return nil
}

// append writes a line in its form. A runtime splits what is longer than 16 KiB.
func (o FileOptions) append(b []byte, l Line) []byte {
	const part = 16 << 10
	stamp := l.Time.UTC().Format(time.RFC3339Nano)
	for text := l.Text; ; {
		piece, last := text, true
		if o.Form != Plain && len(text) > part {
			n := part
			for n > 0 && !utf8.RuneStart(text[n]) {
				n--
			}
			piece, last = text[:n], false
		}
		switch o.Form {
		case Docker:
			end := ""
			if last {
				end = "\n"
			}
			rec, err := json.Marshal(struct {
				Log    string `json:"log"`
				Stream string `json:"stream"`
				Time   string `json:"time"`
			}{piece + end, "stderr", stamp})
			if err == nil { // texts always can be
				b = append(append(b, rec...), '\n')
			}
		case CRI:
			tag := " stderr F "
			if !last {
				tag = " stderr P "
			}
			b = append(append(append(append(b, stamp...), tag...), piece...), '\n')
		default:
			b = append(append(b, piece...), '\n')
		}
		if last {
			return b
		}
		text = text[len(piece):]
	}
}

// file is the open file of a member with room for n bytes.
func (f *Files) file(member string, n int64) (*file, error) {
	path := f.Path(member)
	x := f.open[member]
	if x != nil && x.size+n > f.o.MaxBytes && x.size > 0 {
		if err := errors.Join(x.w.Flush(), x.f.Close()); err != nil {
			return nil, err
		}
		delete(f.open, member)
		x = nil
		for i := f.o.Keep; i > 0; i-- {
			from := path
			if i > 1 {
				from = fmt.Sprintf("%s.%d", path, i-1)
			}
			if err := os.Rename(from, fmt.Sprintf("%s.%d", path, i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
	}
	if x != nil {
		return x, nil
	}
	fd, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	info, err := fd.Stat()
	if err != nil {
		return nil, errors.Join(err, fd.Close())
	}
	x = &file{f: fd, w: bufio.NewWriterSize(fd, 32<<10), size: info.Size()}
	f.open[member] = x
	return x, nil
}

// Written is how many lines and bytes were written.
func (f *Files) Written() (lines, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lines, f.bytes
}

// Close closes the files.
func (f *Files) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for m, x := range f.open {
		errs = append(errs, x.w.Flush(), x.f.Close())
		delete(f.open, m)
	}
	return errors.Join(errs...)
}

// Config is the section "logs:" of a recorder's configuration, below rollscope:, that follows the files of
// the targets. An engine's lines carry the address at which it is scraped.
func Config(f *Files, targets []sim.Target) []byte {
	var b bytes.Buffer
	b.WriteString("  logs:\n")
	seen := map[string]bool{}
	for _, t := range targets {
		if seen[t.Member] || t.Kind == sim.DCGM {
			continue
		}
		seen[t.Member] = true
		engine := ""
		if t.Kind == sim.SGLang || t.Kind == sim.VLLM || t.Kind == sim.DynamoWorker {
			engine = fmt.Sprintf(", engine: %q", t.Addr)
		}
		fmt.Fprintf(&b, "    - {path: %q%s, service: %q, timezone: UTC}\n", f.Path(t.Member), engine, t.Member)
	}
	return b.Bytes()
}
