package torchfile

import (
	"encoding/binary"
	"fmt"
)

// The legacy container is a sequence of pickles and raw data in one file:
//
//	the magic number 0x1950a86a20f9469cfc6c, pickled
//	the format's version 1001, pickled
//	a dict {protocol_version, little_endian, type_sizes}, pickled
//	the object, pickled; a storage is the persistent id ("storage", class, key, location, count, view)
//	the list of storage keys, pickled
//	for each key in that order: the element count as int64, then the elements
//
// The element size of a storage stands in its persistent id only.

// legacyMagic is the magic number as LONG1 writes it.
const legacyMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."

// legacyMagicText is the magic number as protocols 0 and 1 write it.
const legacyMagicText = "L119547037146038801333356L\n."

// isLegacy looks at a file's first bytes.
func isLegacy(h []byte) bool {
	if len(h) >= len(legacyMagicText) && string(h[:len(legacyMagicText)]) == legacyMagicText {
		return true
	}
	if len(h) < 2+len(legacyMagic) || h[0] != opProto {
		return false
	}
	p := 2
	if h[p] == opFrame && len(h) >= p+9+len(legacyMagic) {
		p += 9
	}
	return string(h[p:p+len(legacyMagic)]) == legacyMagic
}

// legacyIndex is where the parts of a legacy file are.
type legacyIndex struct {
	all      []byte
	start    int // of the object's pickle
	storages map[string]legacyStorage
	err      error
}

type legacyStorage struct {
	off, count int64
	size       int64 // bytes
}

func (f *File) openLegacy() error {
	all, err := f.bytesAt(0, f.size)
	if err != nil {
		return err
	}
	if f.data != nil {
		f.pickleAt = 0
	}
	x := &legacyIndex{all: all}
	pos := 0
	for i := range 3 {
		d := newDoc(f, all)
		m := &machine{d: d, data: all, want: -1}
		next, err := m.run(pos, len(all))
		if err != nil {
			return err
		}
		if i == 2 && len(m.st) > 0 {
			if little, ok := (Value{d, m.top()}).Get("little_endian").Bool(); ok {
				f.bigEndian = !little
			}
		}
		pos = next
	}
	x.start = pos
	f.legacy = x
	return nil
}

// legacyPickle returns the object's pickle and all that follows it.
func (f *File) legacyPickle() ([]byte, error) {
	x := f.legacy
	if x.start >= len(x.all) {
		return nil, &Error{File: f.name, Offset: int64(x.start), Sort: ErrIncomplete, What: "the file ends before the object's pickle: still being written or cut"}
	}
	if f.data != nil {
		f.pickleAt = x.start
	}
	return x.all[x.start:], nil
}

// legacyData returns the bytes of a storage, after finding where all of them are. The caller holds f.mu.
func (f *File) legacyData(key string) ([]byte, error) {
	x := f.legacy
	if x.storages == nil && x.err == nil {
		x.storages, x.err = f.indexLegacy()
	}
	s, ok := x.storages[key]
	if !ok {
		if x.err != nil {
			return nil, x.err
		}
		return nil, &Error{File: f.name, Offset: -1, Sort: ErrCorrupt, What: fmt.Sprintf("there is no storage %q", clip([]byte(key)))}
	}
	return x.all[s.off : s.off+s.size], nil
}

func (f *File) indexLegacy() (map[string]legacyStorage, error) {
	x := f.legacy
	src := x.all[x.start:]
	d := f.newDoc(src)
	m := &machine{d: d, data: src, want: -1}
	pos, err := m.run(0, len(src))
	if err != nil {
		return nil, err
	}
	// The element sizes, by key.
	sizes := make(map[string]int64)
	for i := range d.nodes {
		if d.nodes[i].kind != KindStorage {
			continue
		}
		if s, err := (Value{d, mkCell(ckNode, 0, i, 0)}).Storage(); err == nil && s.dtype != 0 {
			sizes[s.Key] = int64(s.dtype.Size())
		}
	}
	km := &machine{d: f.newDoc(src), data: src, want: -1}
	pos, err = km.run(pos, len(src))
	if err != nil {
		return nil, err
	}
	out := make(map[string]legacyStorage)
	at := int64(x.start + pos)
	for _, k := range (Value{km.d, km.top()}).All() {
		key := k.Str()
		size, ok := sizes[key]
		if !ok {
			return out, &Error{File: f.name, Offset: at, Sort: ErrCorrupt, What: fmt.Sprintf("storage %q is listed but not used: its element size is unknown", clip([]byte(key)))}
		}
		if at+8 > f.size {
			return out, &Error{File: f.name, Offset: at, Sort: ErrIncomplete, What: "the file ends before storage " + string(clip([]byte(key))) + ": still being written or cut"}
		}
		count := int64(binary.LittleEndian.Uint64(x.all[at:]))
		if count < 0 || count > maxOffset {
			return out, &Error{File: f.name, Offset: at, Sort: ErrCorrupt, What: fmt.Sprintf("storage %q says it has %d elements", clip([]byte(key)), count)}
		}
		s := legacyStorage{off: at + 8, count: count, size: count * size}
		if s.off+s.size > f.size {
			return out, &Error{File: f.name, Offset: at, Sort: ErrIncomplete, What: fmt.Sprintf("storage %q has %d bytes, the file ends before them: still being written or cut", clip([]byte(key)), s.size)}
		}
		out[key] = s
		at = s.off + s.size
	}
	return out, nil
}
