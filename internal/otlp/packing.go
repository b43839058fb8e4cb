package otlp

import (
	"bufio"
	"compress/flate"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/encoding"
)

// errExpanded says that a body unpacks to more than is allowed.
var errExpanded = errors.New("the body unpacks to more than is allowed")

// buffer is memory for one body.
type buffer struct{ b []byte }

// unpacker keeps what reading bodies needs between requests.
type unpacker struct {
	limit   int       // bytes of a body, unpacked
	buffers sync.Pool // *buffer
	gzips   sync.Pool // *gzip.Reader
	zstds   sync.Pool // *zstd.Decoder
}

func (u *unpacker) buffer() *buffer {
	if b, ok := u.buffers.Get().(*buffer); ok {
		return b
	}
	return new(buffer)
}

// release takes the memory back; huge ones go.
func (u *unpacker) release(b *buffer) {
	if cap(b.b) <= 8<<20 {
		b.b = b.b[:0]
		u.buffers.Put(b)
	}
}

// fill reads in to its end. size is how long it says that it is, -1 when it does not.
func (b *buffer) fill(in io.Reader, size int64, limit int) error {
	b.b = b.b[:0]
	if size > 0 && size <= int64(limit) && int64(cap(b.b)) < size+1 {
		b.b = make([]byte, 0, min(size+1, 4<<20)) // a length is easily said: more comes when bytes do
	}
	for {
		if len(b.b) == cap(b.b) {
			b.b = append(b.b, 0)[:len(b.b)]
		}
		n, err := in.Read(b.b[len(b.b):cap(b.b)])
		b.b = b.b[:len(b.b)+n]
		if len(b.b) > limit {
			return errExpanded
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// unpack returns a reader of what in holds, packed as the header Content-Encoding says; done must be
// called after the last read. How much may come out is the reader's business, how much memory unpacking
// takes is bounded here.
func (u *unpacker) unpack(encoding string, in io.Reader) (out io.Reader, done func(), err error) {
	switch encoding {
	case "", "identity":
		return in, func() {}, nil
	case "gzip", "x-gzip":
		z, ok := u.gzips.Get().(*gzip.Reader)
		if !ok {
			z = new(gzip.Reader)
		}
		if err := z.Reset(in); err != nil {
			u.gzips.Put(z)
			return nil, nil, fmt.Errorf("gzip: %w", err)
		}
		return z, func() { u.gzips.Put(z) }, nil
	case "zstd":
		z, err := zstdReader(&u.zstds, in, u.limit)
		if err != nil {
			return nil, nil, fmt.Errorf("zstd: %w", err)
		}
		return z, func() { putZstd(&u.zstds, z) }, nil
	case "deflate", "zlib":
		// By the standard deflate is the zlib format; some senders leave its header out.
		b := bufio.NewReader(in)
		head, err := b.Peek(2)
		if err == nil && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
			z, err := zlib.NewReader(b)
			if err != nil {
				return nil, nil, fmt.Errorf("deflate: %w", err)
			}
			return z, func() { _ = z.Close() }, nil
		}
		z := flate.NewReader(b)
		return z, func() { _ = z.Close() }, nil
	}
	return nil, nil, &Refusal{Verdict: Unknown, Reason: "compression",
		Message: fmt.Sprintf("the content encoding %s is not taken: send gzip, zstd, deflate or none", printable(encoding))}
}

// zstdReader is a decoder for one body. Its window is bounded, and it starts no goroutines. Those of one
// pool have one limit.
func zstdReader(pool *sync.Pool, in io.Reader, limit int) (*zstd.Decoder, error) {
	if z, ok := pool.Get().(*zstd.Decoder); ok {
		if err := z.Reset(in); err == nil {
			return z, nil
		}
	}
	return zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderMaxMemory(uint64(limit)+1), zstd.WithDecoderLowmem(true))
}

func putZstd(pool *sync.Pool, z *zstd.Decoder) {
	if z.Reset(nil) == nil { // lets go of what it read
		pool.Put(z)
	}
}

// RegisterCompressors teaches gRPC in this process zstd and snappy, beside gzip, which it knows. gRPC
// keeps such things in a list without a lock: call it once from main, before any gRPC server or client
// is made.
func RegisterCompressors() {
	encoding.RegisterCompressor(grpcZstd{new(sync.Pool)})
	encoding.RegisterCompressor(grpcSnappy{})
}

// grpcZstd is zstd for gRPC messages, with a pool of decoders.
type grpcZstd struct{ pool *sync.Pool }

// Name implements encoding.Compressor.
func (grpcZstd) Name() string { return "zstd" }

// Compress implements encoding.Compressor.
func (grpcZstd) Compress(w io.Writer) (io.WriteCloser, error) {
	return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20))
}

// Decompress implements encoding.Compressor. How much a message may hold is gRPC's business.
func (c grpcZstd) Decompress(in io.Reader) (io.Reader, error) {
	z, err := zstdReader(c.pool, in, 1<<30)
	if err != nil {
		return nil, err
	}
	return &zstdMessage{c.pool, z}, nil
}

// zstdMessage gives its decoder back when gRPC closes it.
type zstdMessage struct {
	pool *sync.Pool
	z    *zstd.Decoder
}

// Read implements [io.Reader].
func (m *zstdMessage) Read(p []byte) (int, error) {
	if m.z == nil {
		return 0, io.EOF
	}
	return m.z.Read(p)
}

// Close implements [io.Closer].
func (m *zstdMessage) Close() error {
	if m.z != nil {
		putZstd(m.pool, m.z)
	}
	m.z = nil
	return nil
}

// grpcSnappy is snappy's framed format for gRPC messages.
type grpcSnappy struct{}

// Name implements encoding.Compressor.
func (grpcSnappy) Name() string { return "snappy" }

// Compress implements encoding.Compressor.
func (grpcSnappy) Compress(w io.Writer) (io.WriteCloser, error) {
	return s2.NewWriter(w, s2.WriterSnappyCompat(), s2.WriterConcurrency(1)), nil
}

// Decompress implements encoding.Compressor.
func (grpcSnappy) Decompress(in io.Reader) (io.Reader, error) {
	return s2.NewReader(in, s2.ReaderMaxBlockSize(64<<10)), nil
}
