package torchfile

import (
	"bytes"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestOverlayRefused has the system refuse to move pages for which room was made already: the map is there again.
func TestOverlayRefused(t *testing.T) {
	path, data := largeDump(t)
	f := openTest(t, path, nil)
	o := newOverlay(f)
	if o == nil {
		t.Skip("this system has no overlays")
	}
	if !o.cover(o.next, o.next+overlayBlock) {
		t.Fatal("the first block cannot be laid over")
	}
	scratch := o.scratch
	empty, err := unix.Mmap(-1, 0, overlayBlock, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Munmap(empty); err != nil {
		t.Fatal(err)
	}
	o.scratch = empty                                                                       // nothing is there
	if err := unix.MunmapPtr(unsafe.Pointer(&f.mapped[o.next]), overlayBlock); err != nil { // as the system does
		t.Fatal(err)
	}
	if o.put() {
		t.Fatal("pages that are not there were moved")
	}
	o.scratch = scratch
	got := make([]byte, len(data))
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the map has other bytes than the file (%v)", err)
	}
	if !o.close() {
		t.Error("the map could not be restored")
	}
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("afterwards the map has other bytes than the file (%v)", err)
	}
}
