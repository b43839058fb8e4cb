package tailsample

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"
)

// What was learned of how long requests take can be handed to the process after this one, so that what is
// slow is known there from the first request on. It is written as:
//
//	the line "rollscope percentiles 1"; another bound of the buckets would be another number
//	uvarint: how many distributions follow, by service, model and measure
//	of each: service and model, each as uvarint 1+length and that many bytes, or 0 where spans name none;
//	  uvarint measure (the order of measureNames); varint the time its window began, ns since 1970;
//	  the window and then the one before it, each as uvarint how many buckets are not empty, and of
//	  those the uvarint distance to the one before (the first: to 0) and the uvarint count
//	CRC-32C of all that, 4 bytes, little endian
const learnedHeader = "rollscope percentiles 1\n"

// MaxLearned bounds what [Sampler.AppendLearned] appends, in bytes. Usual are a few KB.
const MaxLearned = 32 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendLearned appends what [Sampler.Learn] takes. The same state gives the same bytes.
func (s *Sampler) AppendLearned(dst []byte) []byte {
	words := make([]string, len(s.words))
	for w, i := range s.words {
		words[i] = w
	}
	type named struct {
		service, model string
		key            [2]int32
	}
	word := func(i int32) string {
		if i == nobody {
			return ""
		}
		return words[i]
	}
	list := make([]named, 0, len(s.sketches))
	n := 0
	for key, of := range s.sketches {
		list = append(list, named{word(key[0]), word(key[1]), key})
		for _, k := range of {
			if k != nil {
				n++
			}
		}
	}
	slices.SortFunc(list, func(a, b named) int {
		return cmp.Or(strings.Compare(a.service, b.service), strings.Compare(a.model, b.model), slices.Compare(a.key[:], b.key[:]))
	})
	from := len(dst)
	dst = binary.AppendUvarint(append(dst, learnedHeader...), uint64(n))
	for _, x := range list {
		for m, k := range s.sketches[x.key] {
			if k == nil {
				continue
			}
			for i, w := range []string{x.service, x.model} {
				if x.key[i] == nobody {
					dst = append(dst, 0)
					continue
				}
				dst = append(binary.AppendUvarint(dst, uint64(len(w))+1), w...)
			}
			dst = binary.AppendVarint(binary.AppendUvarint(dst, uint64(m)), k.since)
			dst = appendBuckets(appendBuckets(dst, &k.now), &k.before)
		}
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

func appendBuckets(dst []byte, of *[sketchBuckets]uint32) []byte {
	n := 0
	for _, c := range of {
		if c > 0 {
			n++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	last := 0
	for i, c := range of {
		if c > 0 {
			dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(i-last)), uint64(c))
			last = i
		}
	}
	return dst
}

// Learn takes over what a process before this one appended, and says how many durations it took. What is
// older than both windows counts no more, and what this sampler has learned itself stays. An error says
// what is wrong with the bytes; then nothing is taken over.
func (s *Sampler) Learn(now int64, b []byte) (durations int64, err error) {
	if !s.c.native || !s.c.Slow.P99 {
		return 0, nil
	}
	list, err := readLearned(b)
	if err != nil {
		return 0, err
	}
	for i := range list {
		if x := &list[i]; s.adopt(now, x.service, x.model, x.measure, x.sketch) {
			durations += int64(x.sketch.n) + int64(x.sketch.m)
		}
	}
	return durations, nil
}

// adopt puts a distribution where this sampler has none yet. nil texts are those of spans that name none.
func (s *Sampler) adopt(now int64, service, model *string, measure int, k *sketch) bool {
	k.since = min(k.since, now) // the clock may have been set back
	if k.since <= 0 || now-k.since >= 2*int64(s.c.Slow.Window) {
		return false
	}
	key := [2]int32{nobody, nobody}
	for i, w := range []*string{service, model} {
		if w == nil {
			continue
		}
		if key[i] = s.word(*w); key[i] == nobody {
			return false // too many are told apart
		}
	}
	of := s.sketches[key]
	if of == nil {
		if len(s.sketches) >= maxSketches {
			return false
		}
		of = new([numMeasures]*sketch)
		s.sketches[key] = of
	}
	if of[measure] != nil {
		return false
	}
	of[measure] = k
	return true
}

// inheritLearned takes over the distributions of another sampler.
func (s *Sampler) inheritLearned(from *Sampler) {
	if !s.c.native || !s.c.Slow.P99 {
		return
	}
	words := make([]string, len(from.words))
	for w, i := range from.words {
		words[i] = w
	}
	for key, of := range from.sketches {
		var name [2]*string
		for i, k := range key {
			if k != nobody {
				name[i] = &words[k]
			}
		}
		for m, k := range of {
			if k != nil {
				own := *k
				s.adopt(from.now, name[0], name[1], m, &own)
			}
		}
	}
}

type learned struct {
	service, model *string
	measure        int
	sketch         *sketch
}

// readLearned reads all or nothing.
func readLearned(b []byte) ([]learned, error) {
	if !strings.HasPrefix(string(b[:min(len(b), len(learnedHeader))]), learnedHeader) {
		return nil, fmt.Errorf("percentiles: it does not begin with %q: it is damaged, or of another version", strings.TrimSpace(learnedHeader))
	}
	body := len(b) - crc32.Size
	if body < len(learnedHeader) || crc32.Checksum(b[:body], castagnoli) != binary.LittleEndian.Uint32(b[body:]) {
		return nil, errors.New("percentiles: the checksum is another: it is damaged")
	}
	r := learnedReader{b: b[:body], at: len(learnedHeader)}
	n := r.count("distributions", maxSketches*numMeasures)
	list := make([]learned, 0, n)
	for range n {
		x := learned{sketch: &sketch{}}
		x.service, x.model = r.text(), r.text()
		x.measure = r.count("measure", numMeasures-1)
		x.sketch.since = r.varint()
		x.sketch.n = r.buckets(&x.sketch.now)
		x.sketch.m = r.buckets(&x.sketch.before)
		if r.err != nil {
			return nil, r.err
		}
		list = append(list, x)
	}
	if r.err == nil && r.at != body {
		r.fail("bytes follow that belong to nothing")
	}
	return list, r.err
}

// learnedReader reads on until something is wrong.
type learnedReader struct {
	b   []byte
	at  int
	err error
}

func (r *learnedReader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("percentiles: at byte %d: %s", r.at, what)
	}
}

func (r *learnedReader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.b[r.at:])
	if n <= 0 {
		r.fail("no number")
		return 0
	}
	r.at += n
	return v
}

func (r *learnedReader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// count is a number that is at most so large.
func (r *learnedReader) count(of string, most int) int {
	v := r.uvarint()
	if v > uint64(most) {
		r.fail(fmt.Sprintf("%s: %d, and at most %d can be", of, v, most))
		return 0
	}
	return int(v)
}

func (r *learnedReader) text() *string {
	n := r.uvarint()
	if n == 0 || r.err != nil {
		return nil
	}
	if n--; n > uint64(len(r.b)-r.at) {
		r.fail("a name goes on beyond the end")
		return nil
	}
	text := string(r.b[r.at : r.at+int(n)])
	r.at += int(n)
	return &text
}

func (r *learnedReader) buckets(into *[sketchBuckets]uint32) uint32 {
	var sum uint64
	at := 0
	for i := range r.count("buckets", sketchBuckets) {
		step := r.count("bucket", sketchBuckets-1)
		if at += step; at >= sketchBuckets || step == 0 && i > 0 {
			r.fail("buckets are not in their order")
		}
		c := r.uvarint()
		if sum += min(c, math.MaxUint32+1); c == 0 || sum > math.MaxUint32 {
			r.fail("a bucket's count cannot be")
		}
		if r.err != nil {
			return 0
		}
		into[at] = uint32(c)
	}
	return uint32(sum)
}
