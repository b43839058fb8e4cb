package torchfile

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// overlay lays copies over blocks of a mapped file, in large pages, and takes them away again. At its
// address such a block holds the bytes that the file has there, but the processor finds them by one entry
// of the page tables in place of 512, each of which costs a fault when a page is first looked at; on a
// virtual machine that is most of the time that reading a file by its map takes.
//
// A block is filled elsewhere and put in place by one call, and so is the map when it is restored:
// who reads there meanwhile sees the same bytes before and after. Only one overlay of a file may exist,
// and pages of the map must not be given back while it does: that would empty the copies. It belongs to
// one goroutine.
type overlay struct {
	mapped  []byte
	fd      int
	scratch []byte // where blocks are filled; one block, at a multiple of its size
	held    []byte // what scratch is part of
	next    int    // the first block that was not looked at, as an offset in mapped
	first   int    // the first block that is laid over; those up to next are
	off     bool   // something failed
}

const overlayBlock = 2 << 20 // a large page on x86-64 and, with pages of 4 KiB, on ARM

// newOverlay returns nil where it is of no use.
func newOverlay(f *File) *overlay {
	file, ok := f.r.(*os.File)
	if !ok || os.Getpagesize() != 4<<10 {
		return nil
	}
	held, err := unix.Mmap(-1, 0, 2*overlayBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil
	}
	from := beforeBlock(held)
	o := &overlay{mapped: f.mapped, fd: int(file.Fd()), held: held, scratch: held[from : from+overlayBlock], next: beforeBlock(f.mapped)}
	o.first = o.next
	if unix.Madvise(o.scratch, unix.MADV_HUGEPAGE) != nil {
		o.close()
		return nil
	}
	return o
}

// beforeBlock is how many bytes stand before the first block in b.
func beforeBlock(b []byte) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % overlayBlock)
}

// cover lays copies over the blocks from from to to, and says whether all these bytes have one now: what
// stands before the file's first block and behind its last never has. Blocks behind from are restored.
func (o *overlay) cover(from, to int) bool {
	if o.off {
		return false
	}
	if o.next+overlayBlock <= from { // the scan was faster
		if !o.uncover(o.next) {
			return false
		}
		o.next += (from - o.next) / overlayBlock * overlayBlock
		o.first = o.next
	}
	for o.next < to && o.next+overlayBlock <= len(o.mapped) {
		if n, err := unix.Pread(o.fd, o.scratch, int64(o.next)); n < overlayBlock || err != nil || !o.put() {
			o.off = true
			return false
		}
		o.next += overlayBlock
	}
	return o.first <= from && to <= o.next
}

// put moves the pages of scratch to block next, in place of what is there. The addresses of scratch stay
// reserved, and have new pages when they are written to.
func (o *overlay) put() bool {
	_, _, errno := unix.Syscall6(unix.SYS_MREMAP, uintptr(unsafe.Pointer(unsafe.SliceData(o.scratch))), overlayBlock, overlayBlock,
		unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED|unix.MREMAP_DONTUNMAP, uintptr(unsafe.Pointer(&o.mapped[o.next])), 0)
	if errno != 0 {
		_ = o.restore(o.next) // it may have made room before it failed; who reads there gets ErrChanged when this fails too
	}
	return errno == 0
}

// restore puts the map back at the block that begins at offset at.
func (o *overlay) restore(at int) error {
	_, err := unix.MmapPtr(o.fd, int64(at), unsafe.Pointer(&o.mapped[at]), overlayBlock, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED)
	return err
}

// uncover restores the map of the blocks that end at to or before it. When that fails a copy stays, which
// has the same bytes, but pages of the map must not be given back any more.
func (o *overlay) uncover(to int) bool {
	for o.first < o.next && o.first+overlayBlock <= to {
		if err := o.restore(o.first); err != nil {
			o.off = true
			return false
		}
		o.first += overlayBlock
	}
	return true
}

// bare is up to where, of [0, to), the map itself is.
func (o *overlay) bare(to int) int {
	if o.first < o.next {
		return min(to, o.first)
	}
	return to
}

func (o *overlay) close() bool {
	ok := o.uncover(len(o.mapped))
	return unix.Munmap(o.held) == nil && ok
}
