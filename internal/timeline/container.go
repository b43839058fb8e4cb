package timeline

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"
)

const magic = "RTC1"

// blob is a piece of a container, compressed or not.
type blob struct {
	data []byte
	raw  int
	enc  string
}

// deflater compresses piece after piece.
type deflater struct {
	w   *flate.Writer
	buf bytes.Buffer
}

// blob returns the piece, compressed when that saves an eighth of it: what is saved must be worth the time
// that every reader takes to inflate it. Times and random ids save less.
func (d *deflater) blob(raw []byte) blob {
	if len(raw) < 64 {
		return blob{append([]byte(nil), raw...), len(raw), "none"}
	}
	d.buf.Reset()
	if d.w == nil {
		d.w, _ = flate.NewWriter(&d.buf, flate.BestSpeed) // the level is valid
	} else {
		d.w.Reset(&d.buf)
	}
	// A bytes.Buffer takes every write.
	_, _ = d.w.Write(raw)
	_ = d.w.Close()
	if d.buf.Len() > len(raw)-len(raw)/8 {
		return blob{append([]byte(nil), raw...), len(raw), "none"}
	}
	return blob{append([]byte(nil), d.buf.Bytes()...), len(raw), "deflate"}
}

// blobs are pieces in the order in which they will stand. The newest may still be in the making: list is
// complete after wait.
type blobs struct {
	list []blob
	zip  deflater
	busy chan struct{} // closed when the newest piece is compressed; nil when it is
	raw  []byte        // what it is made of
}

// add appends a piece, which is compressed beside the goroutine that reads the dump. It keeps raw and
// returns the memory of the piece before, or none.
func (b *blobs) add(raw []byte) []byte {
	b.put(blob{})
	free := b.raw
	b.raw, b.busy = raw, make(chan struct{})
	go func(to *blob, done chan struct{}) {
		defer close(done)
		*to = b.zip.blob(raw)
	}(&b.list[len(b.list)-1], b.busy)
	return free[:0]
}

// put appends a piece that is compressed already.
func (b *blobs) put(x blob) {
	b.wait()
	b.list = append(b.list, x)
}

func (b *blobs) wait() {
	if b.busy != nil {
		<-b.busy
		b.busy = nil
	}
}

// ownBlob is the size from which a column has a blob of its own, so that a reader can inflate several
// at once; smaller ones share.
const ownBlob = 32 << 10

// writeContainer writes head, columns and pieces (which may be nil) to w. The head's Columns and Blobs are
// filled.
func writeContainer(w io.Writer, head *Head, cols []column, pieces *blobs) error {
	return writeParts(w, w, head, cols, pieces)
}

// writeParts writes a container of which the beginning, all that is needed to draw, goes to first, and the
// pieces to rest.
func writeParts(first, rest io.Writer, head *Head, cols []column, pieces *blobs) error {
	if pieces == nil {
		pieces = &blobs{}
	}
	pieces.wait()
	d := &pieces.zip
	var shared, buf []byte
	blobs := pieces.list[:len(pieces.list):len(pieces.list)]
	head.Columns = make([]ColumnInfo, 0, len(cols))
	var inShared []int
	for _, c := range cols {
		info := ColumnInfo{Name: c.name, Type: c.typ, Enc: c.enc, Count: c.s.len()}
		buf = c.s.appendTo(buf[:0])
		info.Bytes = len(buf)
		if len(buf) >= ownBlob {
			info.Blob = len(blobs)
			blobs = append(blobs, d.blob(buf))
		} else {
			info.Offset = len(shared)
			shared = append(shared, buf...)
			inShared = append(inShared, len(head.Columns))
		}
		head.Columns = append(head.Columns, info)
	}
	if len(inShared) > 0 {
		for _, i := range inShared {
			head.Columns[i].Blob = len(blobs)
		}
		blobs = append(blobs, d.blob(shared))
	}
	later, now := blobs[:len(pieces.list)], blobs[len(pieces.list):]
	head.Blobs = make([]BlobInfo, len(blobs))
	at := 0
	place := func(list []blob, infos []BlobInfo) {
		for i, b := range list {
			infos[i] = BlobInfo{at, len(b.data), b.raw, b.enc}
			at += len(b.data)
		}
	}
	place(now, head.Blobs[len(later):])
	place(later, head.Blobs)
	for _, list := range []*[]Block{&head.Attrs, &head.Details} {
		if *list == nil {
			*list = []Block{}
		}
	}
	if head.Texts == nil {
		head.Texts = []TextBlock{}
	}
	j, err := json.Marshal(head)
	if err != nil {
		return fmt.Errorf("timeline: writing the head: %w", err)
	}
	start := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(j)))
	var failed error
	write := func(w io.Writer, piece []byte) {
		if failed == nil {
			_, failed = w.Write(piece)
		}
	}
	write(first, start)
	write(first, j)
	for _, b := range now {
		write(first, b.data)
	}
	for _, b := range later {
		write(rest, b.data)
	}
	if failed != nil {
		return fmt.Errorf("timeline: writing the container: %w", failed)
	}
	return nil
}

// Encode writes the container. The same content gives the same bytes.
func (c *Columns) Encode(w io.Writer) error {
	return c.encodeParts(w, w)
}

// encodeParts writes the container: up to the last column to first, attributes, details and texts to rest.
func (c *Columns) encodeParts(first, rest io.Writer) error {
	c.settle()
	c.flush()
	return writeParts(first, rest, &c.Head, c.columns(), &c.blobs)
}

// ErrContainer is what every error of [Decode] wraps.
var ErrContainer = fmt.Errorf("not a timeline of this version, or a damaged one")

func bad(format string, args ...any) error {
	return fmt.Errorf("timeline: %w: %w", ErrContainer, fmt.Errorf(format, args...))
}

// container is a container whose blobs are inflated when they are asked for.
type container struct {
	head     Head
	data     []byte // after the head
	inflated map[int][]byte
	left     int // bytes that may still be inflated
}

// maxInflated bounds what the blobs of one container may inflate to, attributes not counted.
const maxInflated = 1 << 30

// DecodeHead reads the head of a container alone; data may end after it.
func DecodeHead(data []byte) (*Head, error) {
	c, err := openHead(data)
	if err != nil {
		return nil, err
	}
	return &c.head, nil
}

func openHead(data []byte) (*container, error) {
	if len(data) < 8 || string(data[:4]) != magic {
		return nil, bad("it does not begin with %s", magic)
	}
	n := int(binary.LittleEndian.Uint32(data[4:]))
	if n > len(data)-8 {
		return nil, bad("the head has %d bytes, %d are there", n, len(data)-8)
	}
	c := &container{data: data[8+n:], inflated: map[int][]byte{}, left: maxInflated}
	if err := json.Unmarshal(data[8:8+n], &c.head); err != nil {
		return nil, bad("the head: %w", err)
	}
	h := &c.head
	switch {
	case h.Format != Format:
		return nil, bad("the format is %q", h.Format)
	case h.Version != Version:
		return nil, bad("version %d, this program reads %d", h.Version, Version)
	case h.UnitNS <= 0 || h.UnitNS > 1e9:
		return nil, bad("a unit of %d ns", h.UnitNS)
	}
	return c, nil
}

func openContainer(data []byte) (*container, error) {
	c, err := openHead(data)
	if err != nil {
		return nil, err
	}
	for i, b := range c.head.Blobs {
		switch {
		case b.Offset < 0 || b.Bytes < 0 || b.Offset > len(c.data) || b.Bytes > len(c.data)-b.Offset:
			return nil, bad("blob %d lies outside of the file: cut, or still being written", i)
		case b.Enc == "none" && b.Raw != b.Bytes, b.Enc != "none" && b.Enc != "deflate":
			return nil, bad("blob %d: encoding %q of %d bytes to %d", i, b.Enc, b.Raw, b.Bytes)
		case b.Raw < 0 || b.Raw/1100 > b.Bytes: // deflate makes at most 1,032 bytes of one
			return nil, bad("blob %d says that %d bytes inflate to %d", i, b.Bytes, b.Raw)
		}
	}
	return c, nil
}

// blob returns blob i inflated; it is kept.
func (c *container) blob(i int) ([]byte, error) {
	if i < 0 || i >= len(c.head.Blobs) {
		return nil, bad("there is no blob %d", i)
	}
	if b, ok := c.inflated[i]; ok {
		return b, nil
	}
	info := c.head.Blobs[i]
	if c.left -= info.Raw; c.left < 0 {
		return nil, bad("it inflates to more than %d bytes", maxInflated)
	}
	b, err := inflate(blob{c.data[info.Offset : info.Offset+info.Bytes], info.Raw, info.Enc}, nil)
	if err != nil {
		return nil, bad("blob %d: %w", i, err)
	}
	c.inflated[i] = b
	return b, nil
}

// inflate returns the raw bytes of b, in dst where there is room.
func inflate(b blob, dst []byte) ([]byte, error) {
	if b.enc == "none" {
		return b.data, nil
	}
	r := flate.NewReader(bytes.NewReader(b.data))
	if cap(dst) < b.raw {
		dst = make([]byte, b.raw)
	}
	dst = dst[:b.raw]
	if _, err := io.ReadFull(r, dst); err != nil {
		return nil, fmt.Errorf("inflating to %d bytes: %w", b.raw, err)
	}
	var one [1]byte
	if n, err := r.Read(one[:]); n != 0 || err != io.EOF {
		return nil, fmt.Errorf("inflates to more than %d bytes", b.raw)
	}
	return dst, nil
}

// column reads a column into s. There is no column of that name when ok is false.
func (c *container) column(col column) (ok bool, err error) {
	for _, info := range c.head.Columns {
		if info.Name != col.name {
			continue
		}
		if info.Type != col.typ || info.Enc != col.enc {
			return true, bad("column %s is %s %s, %s %s is expected", info.Name, info.Type, info.Enc, col.typ, col.enc)
		}
		b, err := c.blob(info.Blob)
		if err != nil {
			return true, err
		}
		if info.Offset < 0 || info.Bytes < 0 || info.Offset > len(b) || info.Bytes > len(b)-info.Offset {
			return true, bad("column %s lies outside of blob %d", info.Name, info.Blob)
		}
		// Every element takes a byte at least.
		if info.Count < 0 || info.Count > info.Bytes {
			return true, bad("column %s has %d elements in %d bytes", info.Name, info.Count, info.Bytes)
		}
		if err := col.s.decode(b[info.Offset:info.Offset+info.Bytes], info.Count); err != nil {
			return true, bad("column %s: %w", info.Name, err)
		}
		return true, nil
	}
	return false, nil
}
