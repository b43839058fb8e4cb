package tailsample

import (
	"encoding/binary"

	"github.com/klauspost/compress/s2"

	"github.com/rollscope/rollscope/internal/span"
)

// How spans are held: each as a block of the nursery while there is room; when there is not, the traces
// of the nursery's oldest slab are packed, each into one block: for every span the number of its scope
// and its length as varints and then its bytes, compressed with S2 against a dictionary of spans that
// came shortly before. Spans repeat the names of their attributes and much of the values, so a dictionary
// of 16 KB does for a single span what a whole batch would.
const (
	dictBytes = 16 << 10
	dictLife  = 64 << 20 // bytes packed before the next dictionary
	maxDicts  = 16
	// plain in place of a dictionary's number says that the block is not compressed.
	plain = ^uint32(0)
)

// hold keeps a span of a trace.
func (s *Sampler) hold(slot, scope uint32, raw []byte) {
	t := s.at(slot)
	t.raw = s.nursery.put(slot, scope, uint32(len(raw)), t.raw, raw)
	s.scopes[scope].refs++
	s.heldSpans++
	s.heldWire += int64(len(raw))
	for len(s.nursery.order) > 1 && s.nursery.size-int64(len(s.nursery.spare))*slabSize > s.nurseryBytes {
		s.nursery.owners(s.nursery.order[0], s.pack)
	}
}

// pack moves the spans of a trace out of the nursery.
func (s *Sampler) pack(slot uint32) {
	t := s.at(slot)
	if t.raw == 0 {
		return
	}
	if s.dictNow < 0 || s.dictAge > dictLife {
		s.newDict()
	}
	s.refs = s.nursery.chain(t.raw, s.refs[:0])
	buf := s.scratch[:0]
	for _, r := range s.refs {
		data := s.nursery.payload(r)
		buf = binary.AppendUvarint(buf, uint64(binary.LittleEndian.Uint32(s.nursery.header(r)[hdrAux:])))
		buf = binary.AppendUvarint(buf, uint64(len(data)))
		buf = append(buf, data...)
	}
	s.scratch = buf
	s.nursery.drop(t.raw)
	t.raw = 0
	s.dictAge += int64(len(buf))
	aux, out := plain, buf
	if s.dictNow >= 0 {
		if n := s2.MaxEncodedLen(len(buf)); n > 0 {
			if cap(s.scratch2) < n {
				s.scratch2 = make([]byte, n)
			}
			if got := s.dicts[s.dictNow].d.Encode(s.scratch2[:n], buf); len(got) < len(buf) {
				aux, out = uint32(s.dictNow), got
				s.dicts[s.dictNow].refs++
			}
		}
	}
	t.comp = s.packed.put(slot, aux, uint32(len(buf)), t.comp, out)
}

// newDict makes a dictionary of spans that lie in the nursery, taken from all over it.
func (s *Sampler) newDict() {
	s.dictAge = 0
	place := -1
	for i := range s.dicts {
		if s.dicts[i].refs == 0 && i != s.dictNow {
			place = i
			break
		}
	}
	if place < 0 && len(s.dicts) == maxDicts {
		return // all are needed still; the one in use goes on
	}
	data := make([]byte, 0, dictBytes)
	share := max(dictBytes/len(s.nursery.order), 2<<10)
	// The newest last: it stands nearest to what is compressed.
	from := max(len(s.nursery.order)-dictBytes/share, 0)
	for _, index := range s.nursery.order[from:] {
		b := s.nursery.slabs[index].b
		for o, left := 0, share; o < len(b); {
			n := int(binary.LittleEndian.Uint32(b[o:]))
			if n <= left {
				data = append(data, b[o+hdrSize:o+hdrSize+n]...)
				left -= n
			}
			o += hdrSize + n
			if left < 128 {
				break
			}
		}
	}
	if len(data) > s2.MaxDictSize {
		data = data[len(data)-s2.MaxDictSize:]
	}
	if len(data) < s2.MinDictSize {
		return
	}
	d := s2.MakeDict(data, nil)
	if d == nil {
		return
	}
	if place < 0 {
		place = len(s.dicts)
		s.dicts = append(s.dicts, dict{})
	}
	s.dicts[place] = dict{d: d}
	s.dictNow = place
}

// dictDrop tells the dictionaries that a trace's blocks are gone.
func (s *Sampler) dictDrop(head ref) {
	for r := head; r != 0; {
		h := s.packed.header(r)
		if d := binary.LittleEndian.Uint32(h[hdrAux:]); d != plain {
			s.dicts[d].refs--
		}
		r = ref(binary.LittleEndian.Uint64(h[hdrPrev:]))
	}
}

// gather lays the spans of a trace out in buf, which grows as needed, and calls fn for each in the order
// of arrival. What fn is given lies in buf. It returns buf.
func (s *Sampler) gather(t *trace, buf []byte, fn func(scope uint32, raw []byte)) []byte {
	s.refs = s.packed.chain(t.comp, s.refs[:0])
	packed := len(s.refs)
	s.refs = s.nursery.chain(t.raw, s.refs)
	need := 0
	for _, r := range s.refs[:packed] {
		need += int(binary.LittleEndian.Uint32(s.packed.header(r)[hdrRaw:]))
	}
	for _, r := range s.refs[packed:] {
		need += int(binary.LittleEndian.Uint32(s.nursery.header(r)[hdrRaw:]))
	}
	if cap(buf) < need {
		buf = make([]byte, 0, need)
	}
	buf = buf[:0]
	for _, r := range s.refs[:packed] {
		h := s.packed.header(r)
		n := int(binary.LittleEndian.Uint32(h[hdrRaw:]))
		part := buf[len(buf) : len(buf)+n : len(buf)+n]
		if d := binary.LittleEndian.Uint32(h[hdrAux:]); d == plain {
			copy(part, s.packed.payload(r))
		} else if got, err := s.dicts[d].d.Decode(part, s.packed.payload(r)); err != nil || len(got) != n {
			s.stats.broken++ // cannot be: what is decoded here was encoded here
			continue
		}
		buf = buf[:len(buf)+n]
		for len(part) > 0 {
			scope, a := binary.Uvarint(part)
			size, b := binary.Uvarint(part[a:])
			part = part[a+b:]
			fn(uint32(scope), part[:size:size])
			part = part[size:]
		}
	}
	for _, r := range s.refs[packed:] {
		data := s.nursery.payload(r)
		at := len(buf)
		buf = append(buf, data...)
		fn(binary.LittleEndian.Uint32(s.nursery.header(r)[hdrAux:]), buf[at:len(buf):len(buf)])
	}
	return buf
}

// builder puts spans together under their scopes.
type builder struct {
	scopes []span.Scope
	nums   []uint32 // the number of each
}

func (b *builder) add(s *Sampler, scope uint32, raw []byte) {
	h, err := span.ScanSpan(raw)
	if err != nil {
		s.stats.broken++ // cannot be: it was scanned before it came
		return
	}
	i := len(b.nums) - 1
	for ; i >= 0 && b.nums[i] != scope; i-- {
	}
	if i < 0 {
		i = len(b.nums)
		b.nums = append(b.nums, scope)
		if i < cap(b.scopes) {
			b.scopes = b.scopes[:i+1]
			spans := b.scopes[i].Spans[:0]
			b.scopes[i] = s.scopes[scope].sc
			b.scopes[i].Spans = spans
		} else {
			b.scopes = append(b.scopes, s.scopes[scope].sc)
		}
	}
	b.scopes[i].Spans = append(b.scopes[i].Spans, h)
}

// traceBytes is what a trace takes beside its spans: its slot, its entry in the map of ids, a timer.
const traceBytes = 320

// used is the memory that undecided traces take.
func (s *Sampler) used() int64 {
	return s.nursery.size + s.packed.live + s.packed.live/4 + int64(len(s.held))*traceBytes + int64(len(s.extras))*256 + s.scopeBytes + int64(len(s.dicts))*(dictBytes+40<<10)
}

// tidy gives back what packed blocks no longer need.
func (s *Sampler) tidy() {
	for s.packed.size-int64(len(s.packed.spare))*slabSize > s.packed.live+s.packed.live/4+8*slabSize {
		if !s.packed.compact(func(owner uint32, head ref) { s.at(owner).comp = head }) {
			return
		}
	}
}
