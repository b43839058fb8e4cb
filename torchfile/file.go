package torchfile

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Format is the container of a file.
type Format uint8

// Formats.
const (
	Zip    Format = iota + 1 // what torch.save writes since torch 1.6: a zip archive with a pickle and one record per storage
	Legacy                   // what torch.save wrote before, and still does on request: pickles, then storages
	Pickle                   // a plain pickle
)

func (f Format) String() string {
	switch f {
	case Zip:
		return "torch zip"
	case Legacy:
		return "torch legacy"
	case Pickle:
		return "pickle"
	}
	return "unknown"
}

// Record is one member of a zip container.
type Record struct {
	Name       string
	Size       int64
	Compressed bool
	CRC        uint32 // CRC-32 as the directory has it; 0 in a salvaged file
}

// File is an open dump. It may be used by several goroutines at once, each with its own Load or
// Scan; Close must come after them.
type File struct {
	name   string
	opts   Options
	r      io.ReaderAt
	size   int64
	data   []byte // whole file, nil when it is only read through r
	mapped []byte // data when it is a memory map
	closer io.Closer

	format     Format
	prefix     string // of record names, with the slash
	records    map[string]*record
	order      []string
	pickleName string
	pickleAt   int // offset of the pickle in data, -1 when it is held elsewhere
	bigEndian  bool
	incomplete error

	mu       sync.Mutex
	pkl      []byte
	inflated int64 // bytes inflated so far
	loaded   map[string][]byte
	owned    atomic.Bool // a scan gives pages of the map back; see overlay
	legacy   *legacyIndex
}

// record is a zip member: where it is, or how to inflate it.
type record struct {
	off, size int64
	zf        *zip.File // nil for a salvaged record
	stored    bool
	crc       uint32
	checked   bool
}

// Open maps the file at path and reads its directory. Nothing of the pickle is read yet.
func Open(path string, opts *Options) (*File, error) {
	fh, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("torchfile: %w", err)
	}
	st, err := fh.Stat()
	if err != nil {
		fh.Close()
		return nil, fmt.Errorf("torchfile: %w", err)
	}
	if st.IsDir() {
		fh.Close()
		return nil, &Error{File: path, Offset: -1, Sort: ErrNotTorch, What: "is a directory"}
	}
	f := &File{name: path, size: st.Size(), r: fh, closer: fh}
	if opts != nil {
		f.opts = *opts
	}
	if f.size > 0 && f.size <= math.MaxInt && !f.opts.NoMap && st.Mode().IsRegular() {
		if b, err := mapFile(fh, f.size); err == nil {
			f.data, f.mapped = b, b
		}
	}
	return f.init()
}

// OpenBytes reads a dump that is in memory. data must not change while the File is in use.
func OpenBytes(data []byte, opts *Options) (*File, error) {
	f := &File{size: int64(len(data)), r: bytes.NewReader(data), data: data}
	if opts != nil {
		f.opts = *opts
	}
	return f.init()
}

// OpenReaderAt reads a dump through r. The pickle is read into memory when it is first needed,
// tensors when they are asked for.
func OpenReaderAt(r io.ReaderAt, size int64, opts *Options) (*File, error) {
	f := &File{size: size, r: r}
	if opts != nil {
		f.opts = *opts
	}
	return f.init()
}

func (f *File) init() (*File, error) {
	f.pickleAt = -1
	err := func() (err error) {
		defer f.leave(f.enter(), &err, nil)
		return f.detect()
	}()
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close unmaps the file. Values, tensors and byte slices taken from it must not be used afterwards.
func (f *File) Close() error {
	var err error
	if f.mapped != nil {
		err = unmapFile(f.mapped)
		f.mapped, f.data, f.pkl = nil, nil, nil
	}
	if f.closer != nil {
		if e := f.closer.Close(); err == nil {
			err = e
		}
		f.closer = nil
	}
	return err
}

// Format is the file's container.
func (f *File) Format() Format { return f.format }

// Size is the file's size in bytes.
func (f *File) Size() int64 { return f.size }

// Incomplete is the error of a zip container without a central directory that was opened with
// Options.Salvage; nil for a complete one. The cut may lie behind the pickle: then Load and Scan
// succeed, and only tensors are missing.
func (f *File) Incomplete() error { return f.incomplete }

// Records lists the members of a zip container in the order of its directory.
func (f *File) Records() []Record {
	out := make([]Record, 0, len(f.order))
	for _, n := range f.order {
		r := f.records[n]
		out = append(out, Record{n, r.size, !r.stored, r.crc})
	}
	return out
}

// bytesAt returns n bytes of the file at off: of the map, or read.
func (f *File) bytesAt(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off+n < off || off+n > f.size {
		return nil, &Error{File: f.name, Offset: off, Sort: ErrIncomplete,
			What: fmt.Sprintf("%d bytes are announced, the file ends at %d: still being written or cut", n, f.size)}
	}
	if f.data != nil {
		return f.data[off : off+n : off+n], nil
	}
	if err := f.account(n); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if _, err := f.r.ReadAt(b, off); err != nil && !(errors.Is(err, io.EOF) && n == 0) {
		return nil, &Error{File: f.name, Offset: off, Sort: ErrIncomplete, What: "cannot read", Err: err}
	}
	return b, nil
}

// head returns up to n bytes from the file's start.
func (f *File) head(n int64) ([]byte, error) {
	n = min(n, f.size)
	if f.data != nil {
		return f.data[:n], nil
	}
	b := make([]byte, n)
	if _, err := f.r.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, &Error{File: f.name, Offset: 0, Sort: ErrIncomplete, What: "cannot read", Err: err}
	}
	return b, nil
}

// detect finds out what the file is.
func (f *File) detect() error {
	if f.size == 0 {
		return f.errorf(ErrEmpty, "the file is empty: not written yet, or the disk was full")
	}
	h, err := f.head(512)
	if err != nil {
		return err
	}
	switch {
	case bytes.HasPrefix(h, []byte("PK\x03\x04")) || bytes.HasPrefix(h, []byte("PK\x05\x06")):
		f.format = Zip
		return f.openZip()
	case isLegacy(h):
		f.format = Legacy
		return f.openLegacy()
	case len(h) > 262 && string(h[257:262]) == "ustar":
		return f.errorf(ErrUnsupported, "a tar archive, as torch before 0.2 wrote: load it with an old torch and save it again")
	case looksLikePickle(h, int64(len(h)) == f.size):
		f.format = Pickle
		return nil
	}
	return f.errorf(ErrNotTorch, "neither a torch container nor a pickle: %s", describe(h))
}

// describe says in a few words what foreign content looks like.
func describe(h []byte) string {
	t := bytes.TrimLeft(h, " \t\r\n\ufeff")
	lower := bytes.ToLower(t[:min(len(t), 64)])
	switch {
	case bytes.HasPrefix(lower, []byte("<!doctype html")) || bytes.HasPrefix(lower, []byte("<html")):
		return "it is an HTML page, perhaps an error page that was saved in its place"
	case bytes.HasPrefix(t, []byte("{")) || bytes.HasPrefix(t, []byte("[")):
		return "it looks like JSON"
	case bytes.HasPrefix(h, []byte("\x1f\x8b")):
		return "it is compressed by gzip; decompress it first"
	case bytes.HasPrefix(h, []byte("\x28\xb5\x2f\xfd")):
		return "it is compressed by zstd; decompress it first"
	case bytes.HasPrefix(h, []byte("\x93NUMPY")):
		return "it is a numpy .npy file"
	case bytes.HasPrefix(h, []byte("\x89HDF")):
		return "it is an HDF5 file"
	case bytes.HasPrefix(t, []byte("version https://git-lfs")):
		return "it is a Git LFS pointer; fetch the file itself"
	case len(bytes.Trim(h, "\x00")) == 0:
		return "it begins with zero bytes: not written yet, or lost by the file system"
	}
	return fmt.Sprintf("it begins with %q", clip(h[:min(len(h), 16)]))
}

// looksLikePickle judges a file without a container by its first opcodes.
func looksLikePickle(h []byte, whole bool) bool {
	if h[0] == opProto {
		return len(h) >= 2 && h[1] <= maxProtocol
	}
	if !bytes.ContainsRune([]byte("(]})cIKLSVXFGNMJTUP"), rune(h[0])) {
		return false
	}
	// Protocols 0 and 1 have no header: walk some opcodes.
	d := newDoc(&File{}, h)
	for pos := 0; pos < len(h); {
		if h[pos] == opStop {
			return true
		}
		if opName(h[pos]) == "" {
			return false
		}
		next, err := d.nextOp(pos)
		if err != nil {
			return !whole || pos > 0
		}
		pos = next
	}
	return true
}

// pickle returns the bytes of the object's pickle.
func (f *File) pickle() ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pkl != nil {
		return f.pkl, nil
	}
	var b []byte
	var err error
	switch f.format {
	case Zip:
		b, err = f.record(f.pickleName)
		if r := f.records[f.pickleName]; err == nil && r.stored && f.data != nil {
			f.pickleAt = int(r.off)
			if f.opts.Verify && r.zf != nil && !r.checked {
				if got := crc32.ChecksumIEEE(b); got != r.crc {
					return nil, &Error{File: f.name, Record: f.pickleName, Offset: -1, Sort: ErrCorrupt,
						What: fmt.Sprintf("checksum is %08x, the directory says %08x", got, r.crc)}
				}
				r.checked = true
			}
		}
	case Legacy:
		b, err = f.legacyPickle()
	default:
		b, err = f.bytesAt(0, f.size)
		if f.data != nil {
			f.pickleAt = 0
		}
	}
	if err != nil {
		return nil, err
	}
	if len(b) == 0 {
		return nil, &Error{File: f.name, Record: f.pickleName, Offset: 0, Sort: ErrIncomplete, What: "the pickle is empty"}
	}
	f.pkl = b
	return b, nil
}

// enter makes faults on the map panics of this goroutine; leave undoes that and turns them, and
// defects of the reader, into errors.
func (f *File) enter() bool { return debug.SetPanicOnFault(true) }

func (f *File) leave(old bool, err *error, d **Doc) {
	debug.SetPanicOnFault(old)
	r := recover()
	if r == nil {
		return
	}
	if a, ok := r.(interface{ Addr() uintptr }); ok && f.inMap(a.Addr()) {
		*err = f.errorf(ErrChanged, "the file became shorter while it was read: it is being written again")
		return
	}
	if re, ok := r.(runtime.Error); ok && (d == nil || *d == nil || !(*d).inVisit) {
		*err = &Error{File: f.name, Record: f.pickleName, Offset: -1, Sort: ErrInternal, What: "please report this file", Err: re}
		if d != nil {
			*d = nil
		}
		return
	}
	panic(r)
}

// Guard runs fn so that reading a mapped file that became shorter meanwhile is an [ErrChanged]
// instead of a crash. Load, Scan and its visitor already run that way; wrap later accesses to
// values in it when the file may be overwritten in place.
func (f *File) Guard(fn func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			if a, ok := r.(interface{ Addr() uintptr }); ok && f.inMap(a.Addr()) {
				err = f.errorf(ErrChanged, "the file became shorter while it was read: it is being written again")
				return
			}
			panic(r)
		}
	}()
	return fn()
}
