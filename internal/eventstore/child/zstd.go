//go:build !cgo

package child

import (
	"fmt"
	"sync/atomic"
	_ "unsafe" // for go:linkname

	"github.com/klauspost/compress/zstd"
)

// encoders are the storage's zstd encoders by level, made when they are first needed. They leave a block
// without repetitions as it is, and so a column of random ids in hex, whose digits need half of that.
//
//go:linkname encoders github.com/VictoriaMetrics/VictoriaMetrics/lib/encoding/zstd.av
var encoders atomic.Value

// compressAll replaces them by ones that compress such blocks too. What they write is zstd as before. It
// must run before the storage is opened.
func compressAll() error {
	made := map[zstd.EncoderLevel]*zstd.Encoder{}
	for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedDefault} {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(false), zstd.WithEncoderLevel(level), zstd.WithAllLitEntropyCompression(true))
		if err != nil {
			return fmt.Errorf("zstd: %w", err)
		}
		made[level] = e
	}
	if _, same := encoders.Load().(map[zstd.EncoderLevel]*zstd.Encoder); !same {
		return nil // another version of the storage keeps them in another way: its own do
	}
	encoders.Store(made)
	return nil
}
