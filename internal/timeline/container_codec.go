package timeline

import (
	"encoding/binary"
	"fmt"
	"math"
)

// column is one named column of a container: where it lives in memory and how it is written.
type column struct {
	name, typ, enc string
	s              store
}

// store is a list that a column is written from and read into.
type store interface {
	len() int
	// appendTo appends the encoded elements.
	appendTo(dst []byte) []byte
	// decode replaces the content by n elements out of src, all of which must be used up.
	decode(src []byte, n int) error
}

type number interface {
	~uint8 | ~uint16 | ~uint32 | ~int32 | ~int64
}

func errShort(i, n int) error {
	return fmt.Errorf("ends within element %d of %d", i, n)
}

func errLeft(n int) error { return fmt.Errorf("%d bytes are left over", n) }

// uv holds unsigned varints of at most max.
type uv[T number] struct {
	v   *vec[T]
	max uint64
}

func (c uv[T]) len() int { return c.v.len() }

func (c uv[T]) appendTo(dst []byte) []byte {
	c.v.each(func(x []T) {
		for _, x := range x {
			dst = binary.AppendUvarint(dst, uint64(x))
		}
	})
	return dst
}

func (c uv[T]) decode(src []byte, n int) error {
	out := make([]T, n)
	for i := range out {
		x, k := binary.Uvarint(src)
		if k <= 0 {
			return errShort(i, n)
		}
		if x > c.max {
			return fmt.Errorf("element %d is %d, at most %d is allowed", i, x, c.max)
		}
		out[i], src = T(x), src[k:]
	}
	c.v.set(out)
	if len(src) > 0 {
		return errLeft(len(src))
	}
	return nil
}

// zv holds zigzag varints; with delta, of the difference from the element before.
type zv[T number] struct {
	v        *vec[T]
	min, max int64
	delta    bool
}

func (c zv[T]) len() int { return c.v.len() }

func (c zv[T]) appendTo(dst []byte) []byte {
	last := int64(0)
	c.v.each(func(x []T) {
		for _, x := range x {
			dst = binary.AppendVarint(dst, int64(x)-last)
			if c.delta {
				last = int64(x)
			}
		}
	})
	return dst
}

func (c zv[T]) decode(src []byte, n int) error {
	out := make([]T, n)
	last := int64(0)
	for i := range out {
		x, k := binary.Varint(src)
		if k <= 0 {
			return errShort(i, n)
		}
		x += last // wraps at worst; the range is checked
		if x < c.min || x > c.max {
			return fmt.Errorf("element %d is out of range", i)
		}
		out[i], src = T(x), src[k:]
		if c.delta {
			last = x
		}
	}
	c.v.set(out)
	if len(src) > 0 {
		return errLeft(len(src))
	}
	return nil
}

// ov holds optional integers.
type ov struct{ v *vec[int64] }

func (c ov) len() int { return c.v.len() }

func (c ov) appendTo(dst []byte) []byte {
	c.v.each(func(x []int64) {
		for _, x := range x {
			if x == missing {
				dst = append(dst, 0)
				continue
			}
			dst = binary.AppendUvarint(dst, uint64(x)<<1^uint64(x>>63)+1)
		}
	})
	return dst
}

func (c ov) decode(src []byte, n int) error {
	out := make([]int64, n)
	for i := range out {
		x, k := binary.Uvarint(src)
		if k <= 0 {
			return errShort(i, n)
		}
		src = src[k:]
		if x == 0 {
			out[i] = missing
			continue
		}
		x--
		out[i] = int64(x>>1) ^ -int64(x&1)
		if out[i] > maxSafe || out[i] < -maxSafe {
			return fmt.Errorf("element %d is out of range", i)
		}
	}
	c.v.set(out)
	if len(src) > 0 {
		return errLeft(len(src))
	}
	return nil
}

// raw8, raw32 and raw64 hold little-endian numbers.
type raw8 struct {
	v   *vec[uint8]
	max uint8
}

func (c raw8) len() int { return c.v.len() }

func (c raw8) appendTo(dst []byte) []byte {
	c.v.each(func(x []uint8) { dst = append(dst, x...) })
	return dst
}

func (c raw8) decode(src []byte, n int) error {
	if len(src) != n {
		return fmt.Errorf("has %d bytes for %d elements", len(src), n)
	}
	for i, x := range src {
		if x > c.max {
			return fmt.Errorf("element %d is %d, at most %d is allowed", i, x, c.max)
		}
	}
	c.v.set(append([]uint8(nil), src...))
	return nil
}

type raw32 struct{ v *vec[float32] }

func (c raw32) len() int { return c.v.len() }

func (c raw32) appendTo(dst []byte) []byte {
	c.v.each(func(x []float32) {
		for _, x := range x {
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(x))
		}
	})
	return dst
}

func (c raw32) decode(src []byte, n int) error {
	if len(src) != 4*n {
		return fmt.Errorf("has %d bytes for %d elements", len(src), n)
	}
	out := make([]float32, n)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		if math.IsInf(float64(out[i]), 0) {
			return fmt.Errorf("element %d is infinite", i)
		}
	}
	c.v.set(out)
	return nil
}

type raw64 struct{ v *vec[float64] }

func (c raw64) len() int { return c.v.len() }

func (c raw64) appendTo(dst []byte) []byte {
	c.v.each(func(x []float64) {
		for _, x := range x {
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(x))
		}
	})
	return dst
}

func (c raw64) decode(src []byte, n int) error {
	if len(src) != 8*n {
		return fmt.Errorf("has %d bytes for %d elements", len(src), n)
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:]))
		if math.IsInf(out[i], 0) {
			return fmt.Errorf("element %d is infinite", i)
		}
	}
	c.v.set(out)
	return nil
}

// text holds strings.
type text struct{ s *strs }

func (c text) len() int { return c.s.len() }

func (c text) appendTo(dst []byte) []byte {
	last := uint32(0)
	c.s.ends.each(func(x []uint32) {
		for _, x := range x {
			dst = binary.AppendUvarint(dst, uint64(x-last))
			last = x
		}
	})
	c.s.data.each(func(x []byte) { dst = append(dst, x...) })
	return dst
}

func (c text) decode(src []byte, n int) error {
	ends := make([]uint32, n)
	sum := uint64(0)
	for i := range ends {
		x, k := binary.Uvarint(src)
		if k <= 0 {
			return errShort(i, n)
		}
		src = src[k:]
		if sum += x; x > maxStrs || sum > maxStrs {
			return fmt.Errorf("string %d is too long", i)
		}
		ends[i] = uint32(sum)
	}
	if uint64(len(src)) != sum {
		return fmt.Errorf("holds %d bytes of text, the lengths say %d", len(src), sum)
	}
	c.s.data.set(append([]byte(nil), src...))
	c.s.ends.set(ends)
	c.s.size = uint32(sum)
	return nil
}

// columns lists the columns as FORMAT.md does.
func (c *Columns) columns() []column {
	const (
		u8, u16, u32 = math.MaxUint8, math.MaxUint16, math.MaxUint32
		i31          = math.MaxInt32
	)
	r, t, s, q := &c.rows, &c.items, &c.segs, &c.reqs
	at := func(v *vec[int64]) store { return zv[int64]{v, -maxSafe, maxSafe, true} }
	dur := func(v *vec[int64]) store { return uv[int64]{v, maxSafe} }
	list := []column{
		{"row.ordinal", "u32", "dv", zv[uint32]{&r.ordinal, 0, u32, true}},
		{"row.index", "f64", "ov", ov{&r.index}},
		{"row.group", "f64", "ov", ov{&r.group}},
		{"row.rollout", "f64", "ov", ov{&r.rollout}},
		{"row.status", "u8", "uv", uv[uint8]{&r.status, u8}},
		{"row.why", "u8", "uv", uv[uint8]{&r.why, u8}},
		{"row.source", "u16", "uv", uv[uint16]{&r.source, u16}},
		{"row.label", "u32", "uv", uv[uint32]{&r.label, u32}},
		{"row.reward", "f64", "raw", raw64{&r.reward}},
		{"row.start", "f64", "dv", at(&r.start)},
		{"row.dur", "f64", "uv", dur(&r.dur)},
		{"row.attempts", "u8", "uv", uv[uint8]{&r.attempts, u8}},
		{"row.response", "f64", "ov", ov{&r.response}},
		{"row.prompt", "f64", "ov", ov{&r.prompt}},
		{"row.lanes", "u16", "uv", uv[uint16]{&r.lanes, u16}},
		{"row.items", "u32", "uv", uv[uint32]{&r.items, i31}},
		{"row.requests", "u32", "uv", uv[uint32]{&r.requests, i31}},
		{"row.open", "u32", "uv", uv[uint32]{&r.open, u32}},
		{"row.orphans", "u32", "uv", uv[uint32]{&r.orphans, u32}},
		{"row.points", "u32", "uv", uv[uint32]{&r.points, u32}},
		{"row.flags", "u16", "uv", uv[uint16]{&r.flags, u16}},
		{"row.trace", "str", "str", text{&r.trace}},
		{"item.start", "f64", "dv", at(&t.start)},
		{"item.dur", "f64", "uv", dur(&t.dur)},
		{"item.name", "u16", "uv", uv[uint16]{&t.name, u16}},
		{"item.class", "u8", "raw", raw8{&t.class, uint8(NumClasses - 1)}},
		{"item.state", "u8", "raw", raw8{&t.state, uint8(OrphanEnd)}},
		{"item.flags", "u16", "uv", uv[uint16]{&t.flags, u16}},
		{"item.lane", "u16", "uv", uv[uint16]{&t.lane, u16}},
		{"item.depth", "u16", "uv", uv[uint16]{&t.depth, u16}},
		{"item.parent", "i32", "zv", zv[int32]{&t.parent, -1, i31, false}},
		{"item.request", "i32", "zv", zv[int32]{&t.request, -1, i31, false}},
		{"item.attempt", "u8", "uv", uv[uint8]{&t.attempt, u8}},
		{"item.clip", "u8", "uv", uv[uint8]{&t.clip, u8}},
		{"item.segs", "u8", "uv", uv[uint8]{&t.segs, u8}},
		{"item.n", "u32", "uv", uv[uint32]{&t.n, u32}},
		{"seg.class", "u8", "raw", raw8{&s.class, uint8(NumClasses - 1)}},
		{"seg.start", "f64", "dv", at(&s.start)},
		{"seg.dur", "f64", "uv", dur(&s.dur)},
		{"req.rid", "str", "str", text{&q.rid}},
		{"req.name", "u16", "uv", uv[uint16]{&q.name, u16}},
		{"req.start", "f64", "dv", at(&q.start)},
		{"req.dur", "f64", "ov", ov{&q.dur}},
		{"req.attempt", "u8", "uv", uv[uint8]{&q.attempt, u8}},
		{"req.finish", "u8", "uv", uv[uint8]{&q.finish, u8}},
		{"req.prompt", "f64", "ov", ov{&q.prompt}},
		{"req.completion", "f64", "ov", ov{&q.completion}},
		{"req.cached", "f64", "ov", ov{&q.cached}},
		{"req.retries", "f64", "ov", ov{&q.retry}},
		{"req.queue", "f64", "ov", ov{&q.queue}},
		{"req.e2e", "f64", "ov", ov{&q.e2e}},
	}
	for p := range q.phases {
		list = append(list, column{fmt.Sprintf("req.phase%d", p), "f64", "ov", ov{&q.phases[p]}})
	}
	list = append(list,
		column{"req.throughput", "f32", "raw", raw32{&q.throughput}},
		column{"req.speed", "f32", "raw", raw32{&q.speed}},
		column{"req.size", "f32", "raw", raw32{&q.transferredSize}},
		column{"req.invalid", "u32", "uv", uv[uint32]{&q.invalid, u32}},
		column{"req.item", "i32", "zv", zv[int32]{&q.item, -1, i31, false}},
	)
	if c.rowID != nil {
		list = append(list, column{"row.id", "u32", "dv", zv[uint32]{c.rowID, 0, u32, true}})
	}
	return list
}
