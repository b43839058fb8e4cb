package timeline

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/rollscope/rollscope/torchfile"
)

// Fingerprint tells dumps apart by content, whatever their names and times.
//
// Of a torch zip it is "z1:" and the SHA-256 of the file's size, the name, size and CRC-32 of every
// record as the central directory has them, the first and last 64 KiB, and 4 KiB from each of 64
// places between. So a gigabyte costs a millisecond. Any change of a record that went through a zip
// writer changes its CRC-32; a change of bytes in place, with the directory left as it was, is seen
// only where a sample falls on it. (torch can be told to write no CRC-32s; then only sizes and samples
// speak.) It is no proof against somebody who wants two dumps to look alike: it decides whether a
// cached page is shown, never whether content is trusted.
//
// Of every other file, and of a zip that was cut, it is "s1:" and the SHA-256 of all bytes.
func Fingerprint(f *torchfile.File) (string, error) {
	h := sha256.New()
	size := f.Size()
	if f.Format() != torchfile.Zip || f.Incomplete() != nil {
		if err := copyFile(h, f, 0, size); err != nil {
			return "", err
		}
		return "s1:" + hex.EncodeToString(h.Sum(nil)), nil
	}
	var n [8]byte
	put := func(x uint64) {
		binary.LittleEndian.PutUint64(n[:], x)
		h.Write(n[:])
	}
	put(uint64(size))
	for _, r := range f.Records() {
		put(uint64(len(r.Name)))
		h.Write([]byte(r.Name))
		put(uint64(r.Size))
		put(uint64(r.CRC))
	}
	const edge, sample, samples = 64 << 10, 4 << 10, 64
	if size <= 2*edge+samples*sample {
		if err := copyFile(h, f, 0, size); err != nil {
			return "", err
		}
		return "z1:" + hex.EncodeToString(h.Sum(nil)), nil
	}
	if err := copyFile(h, f, 0, edge); err != nil {
		return "", err
	}
	step := (size - 2*edge - sample) / samples
	for i := range int64(samples) {
		if err := copyFile(h, f, edge+i*step, sample); err != nil {
			return "", err
		}
	}
	if err := copyFile(h, f, size-edge, edge); err != nil {
		return "", err
	}
	return "z1:" + hex.EncodeToString(h.Sum(nil)), nil
}

func copyFile(w io.Writer, f *torchfile.File, off, n int64) error {
	got, err := io.Copy(w, io.NewSectionReader(f, off, n))
	if err != nil {
		return fmt.Errorf("timeline: fingerprint: %w", err)
	}
	if got != n {
		return fmt.Errorf("timeline: fingerprint: the file ends at %d, it had %d bytes when it was opened: it is being written again", off+got, off+n)
	}
	return nil
}
