package torchfile

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"unsafe"
)

// inMap says whether an address that faulted lies in the memory map.
func (f *File) inMap(addr uintptr) bool {
	if len(f.mapped) == 0 {
		return false
	}
	base := uintptr(unsafe.Pointer(unsafe.SliceData(f.mapped)))
	return addr >= base && addr < base+uintptr(len(f.mapped))
}

// account bounds what is read or inflated into memory.
func (f *File) account(n int64) error {
	lim := f.opts.Limits.withDefaults(0)
	f.inflated += n
	if n < 0 || f.inflated > lim.MaxInflate {
		return f.errorf(ErrLimit, "reading needs more than Limits.MaxInflate (%d bytes)", lim.MaxInflate)
	}
	return nil
}

// openZip reads the directory of a zip container.
//
// torch names every record "ROOT/NAME", ROOT being the file's stem or "archive": data.pkl, data/N
// for storage N, version, and since torch 2 byteorder and some more. Records are stored, their data
// aligned to 64 bytes by an extra field "FB" in the local header, sizes in a data descriptor; above
// 4 GiB zip64 fields are used.
func (f *File) openZip() error {
	zr, err := zip.NewReader(f.r, f.size)
	if f.data != nil {
		zr, err = zip.NewReader(bytes.NewReader(f.data), f.size)
	}
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		if f.hasDirectory() {
			return &Error{File: f.name, Offset: -1, Sort: ErrCorrupt, What: "the zip directory is damaged", Err: err}
		}
		cut := f.errorf(ErrIncomplete, "incomplete (no central directory): still being written or cut")
		if !f.opts.Salvage {
			return cut
		}
		f.incomplete = cut
		return f.salvageZip()
	}
	f.records = make(map[string]*record, len(zr.File))
	for _, zf := range zr.File {
		if _, dup := f.records[zf.Name]; dup {
			return f.errorf(ErrCorrupt, "the zip directory names record %q twice", clipName(zf.Name))
		}
		if zf.UncompressedSize64 > maxOffset || zf.CompressedSize64 > maxOffset {
			return f.errorf(ErrCorrupt, "record %q says it has %d bytes", clipName(zf.Name), zf.UncompressedSize64)
		}
		r := &record{off: -1, size: int64(zf.UncompressedSize64), zf: zf, stored: zf.Method == zip.Store, crc: zf.CRC32}
		if r.stored && zf.CompressedSize64 != zf.UncompressedSize64 {
			return f.errorf(ErrCorrupt, "stored record %q has two sizes, %d and %d", clipName(zf.Name), zf.CompressedSize64, r.size)
		}
		if zf.Flags&1 != 0 {
			return f.errorf(ErrUnsupported, "record %q is encrypted", clipName(zf.Name))
		}
		f.records[zf.Name] = r
		f.order = append(f.order, zf.Name)
	}
	return f.findPickle()
}

func clipName(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}

// findPickle finds the record data.pkl and what goes with it.
func (f *File) findPickle() error {
	best := ""
	for _, n := range f.order {
		if n != "data.pkl" && !strings.HasSuffix(n, "/data.pkl") {
			continue
		}
		if best == "" || strings.Count(n, "/") < strings.Count(best, "/") {
			best = n
		}
	}
	if best == "" {
		return f.errorf(ErrNotTorch, "a zip archive without a data.pkl: not written by torch.save")
	}
	f.pickleName = best
	f.prefix = strings.TrimSuffix(best, "data.pkl")
	if r, ok := f.records[f.prefix+"byteorder"]; ok && r.size < 64 {
		b, err := f.record(f.prefix + "byteorder")
		if err != nil && f.incomplete == nil {
			return err
		}
		f.bigEndian = strings.TrimSpace(string(b)) == "big"
	}
	return nil
}

// record returns a record's bytes: of the map when it is stored, inflated otherwise. Inflated
// records are kept. The caller holds f.mu, or is alone.
func (f *File) record(name string) ([]byte, error) {
	r, ok := f.records[name]
	if !ok {
		return nil, &Error{File: f.name, Record: name, Offset: -1, Sort: f.missing(), What: "there is no such record"}
	}
	if b, ok := f.loaded[name]; ok {
		return b, nil
	}
	if r.off < 0 {
		off, err := r.zf.DataOffset()
		if err != nil {
			return nil, &Error{File: f.name, Record: name, Offset: -1, Sort: ErrCorrupt, What: "the record's header is damaged", Err: err}
		}
		r.off = off
	}
	if r.stored {
		b, err := f.bytesAt(r.off, r.size)
		if err == nil && f.data == nil {
			f.keep(name, b)
		}
		return b, err
	}
	if err := f.account(r.size); err != nil {
		return nil, err
	}
	rc, err := r.zf.Open()
	if err != nil {
		return nil, &Error{File: f.name, Record: name, Offset: -1, Sort: ErrUnsupported, What: "cannot decompress", Err: err}
	}
	defer rc.Close()
	// The size in the directory may be a lie: grow with what really comes.
	var buf bytes.Buffer
	buf.Grow(int(min(r.size, 1<<20)))
	n, err := io.Copy(&buf, io.LimitReader(rc, r.size+1))
	switch {
	case err != nil:
		return nil, &Error{File: f.name, Record: name, Offset: n, Sort: ErrCorrupt, What: "cannot decompress", Err: err}
	case n != r.size:
		return nil, &Error{File: f.name, Record: name, Offset: n, Sort: ErrCorrupt,
			What: fmt.Sprintf("decompresses to another size than the %d bytes announced", r.size)}
	}
	f.keep(name, buf.Bytes())
	return buf.Bytes(), nil
}

func (f *File) keep(name string, b []byte) {
	if f.loaded == nil {
		f.loaded = make(map[string][]byte)
	}
	f.loaded[name] = b
}

func (f *File) missing() error {
	if f.incomplete != nil {
		return ErrIncomplete
	}
	return ErrCorrupt
}

// hasDirectory looks for the end-of-directory record in the file's last 64 KiB.
func (f *File) hasDirectory() bool {
	n := min(f.size, 65535+22)
	b := make([]byte, n)
	if f.data != nil {
		b = f.data[f.size-n:]
	} else if _, err := f.r.ReadAt(b, f.size-n); err != nil && !errors.Is(err, io.EOF) {
		return false
	}
	return bytes.Contains(b, []byte("PK\x05\x06"))
}

// salvageZip finds records by walking local headers from the start. A record whose size stands in a
// data descriptor behind it (torch's) ends where the descriptor with its very size is.
func (f *File) salvageZip() error {
	f.records = make(map[string]*record)
	var all []byte
	var err error
	if all, err = f.bytesAt(0, f.size); err != nil {
		return err
	}
	pos := 0
	for pos+30 <= len(all) && string(all[pos:pos+4]) == "PK\x03\x04" {
		h := all[pos:]
		flags := binary.LittleEndian.Uint16(h[6:])
		method := binary.LittleEndian.Uint16(h[8:])
		size := int64(binary.LittleEndian.Uint32(h[18:]))
		nameLen := int(binary.LittleEndian.Uint16(h[26:]))
		extraLen := int(binary.LittleEndian.Uint16(h[28:]))
		at := pos + 30 + nameLen + extraLen
		if at > len(all) {
			break
		}
		name := string(h[30 : 30+nameLen])
		if method != 0 {
			return &Error{File: f.name, Record: clipName(name), Offset: int64(pos), Sort: ErrIncomplete,
				What: "incomplete (no central directory), and the record is compressed: nothing can be salvaged"}
		}
		next := at
		switch {
		case size == 0xffffffff:
			size = zip64Size(h[30+nameLen : 30+nameLen+extraLen])
			next = at + int(size)
		case size == 0 && flags&8 != 0:
			size, next = describedSize(all, at, strings.HasSuffix(name, "data.pkl"))
		default:
			next = at + int(size)
		}
		if size < 0 || next < at || next > len(all) {
			size, next = int64(len(all)-at), len(all)
		}
		if _, dup := f.records[name]; !dup {
			f.records[name] = &record{off: int64(at), size: size, stored: true}
			f.order = append(f.order, name)
		}
		// A descriptor may follow.
		if flags&8 != 0 && next+4 <= len(all) && string(all[next:next+4]) == "PK\x07\x08" {
			next += 16
			if next+4 <= len(all) && string(all[next:next+4]) != "PK\x03\x04" && string(all[next:next+4]) != "PK\x01\x02" {
				next += 8
			}
		}
		pos = next
	}
	if len(f.order) == 0 {
		return f.errorf(ErrIncomplete, "incomplete (no central directory): cut within the first record's header")
	}
	return f.findPickle()
}

func zip64Size(extra []byte) int64 {
	for len(extra) >= 4 {
		id, n := binary.LittleEndian.Uint16(extra), int(binary.LittleEndian.Uint16(extra[2:]))
		if len(extra) < 4+n {
			break
		}
		if id == 1 && n >= 8 {
			return int64(binary.LittleEndian.Uint64(extra[4:]))
		}
		extra = extra[4+n:]
	}
	return -1
}

// describedSize finds the data descriptor that belongs to data starting at at. When there is none
// the record was being written at the cut, and is all that is left.
func describedSize(all []byte, at int, pickle bool) (size int64, next int) {
	from := at
	for {
		i := bytes.Index(all[from:], []byte("PK\x07\x08"))
		if i < 0 {
			return int64(len(all) - at), len(all)
		}
		p := from + i
		if p+16 <= len(all) && int64(binary.LittleEndian.Uint32(all[p+8:])) == int64(p-at) {
			return int64(p - at), p
		}
		if p+24 <= len(all) && int64(binary.LittleEndian.Uint64(all[p+8:])) == int64(p-at) {
			return int64(p - at), p
		}
		from = p + 4
	}
}
