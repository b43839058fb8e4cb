package fpmbus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// Envelope is what Dynamo's event plane puts around a payload: a MessagePack map with string keys, in
// any order.
type Envelope struct {
	Publisher uint64    // publisher_id
	Sequence  uint64    // from 0 for each publisher
	Published time.Time // published_at, milliseconds; published_at_ns when it is there
	Topic     string
	Payload   []byte
}

// errEnvelope is the root of what cannot be read as an envelope.
var errEnvelope = errors.New("fpmbus: no event envelope")

// DecodeEnvelope reads an envelope. The payload aliases b. Unknown keys are read over; publisher_id,
// sequence and payload must be there.
func DecodeEnvelope(b []byte) (Envelope, error) {
	var e Envelope
	p := packed{b: b}
	n, ok := p.mapLen()
	if !ok {
		return e, fmt.Errorf("%w: %d bytes do not begin with a map", errEnvelope, len(b))
	}
	var id, seq, payload bool
	var ms, ns uint64
	for i := range n {
		key, ok := p.bytes()
		if !ok {
			return e, fmt.Errorf("%w: key %d of %d at byte %d is no text", errEnvelope, i, n, p.at)
		}
		at := p.at
		switch string(key) {
		case "publisher_id":
			e.Publisher, ok = p.uint()
			id = ok
		case "sequence":
			e.Sequence, ok = p.uint()
			seq = ok
		case "published_at":
			ms, ok = p.uint()
		case "published_at_ns":
			if ns, ok = p.uint(); !ok { // it is optional, so it may be nil
				p.at = at
				ok = p.skip(0)
			}
		case "topic":
			var t []byte
			t, ok = p.bytes()
			e.Topic = topicOf(t)
		case "payload":
			e.Payload, ok = p.bytes()
			payload = ok
		default:
			ok = p.skip(0)
		}
		if !ok {
			return e, fmt.Errorf("%w: the value of %q at byte %d of %d cannot be read", errEnvelope, shorten(key), at, len(b))
		}
	}
	switch {
	case !id:
		return e, fmt.Errorf("%w: publisher_id is missing", errEnvelope)
	case !seq:
		return e, fmt.Errorf("%w: sequence is missing", errEnvelope)
	case !payload:
		return e, fmt.Errorf("%w: payload is missing", errEnvelope)
	}
	if ns > 0 && ns <= math.MaxInt64 {
		e.Published = time.Unix(0, int64(ns)).UTC()
	} else if ms > 0 && ms <= math.MaxInt64/1_000_000 {
		e.Published = time.UnixMilli(int64(ms)).UTC()
	}
	return e, nil
}

// Topic is the topic of forward passes on Dynamo's event plane.
const Topic = "forward-pass-metrics"

// topicOf avoids an allocation for the one topic that nearly all messages have.
func topicOf(b []byte) string {
	if string(b) == Topic {
		return Topic
	}
	return string(b)
}

func shorten(b []byte) []byte { return b[:min(len(b), 40)] }

// AppendEnvelope appends an envelope as the newest Dynamo writes it.
func AppendEnvelope(b []byte, e Envelope) []byte {
	b = append(b, 0x85)
	b = appendUint(appendText(b, "publisher_id"), e.Publisher)
	b = appendUint(appendText(b, "sequence"), e.Sequence)
	b = appendUint(appendText(b, "published_at"), uint64(max(e.Published.UnixMilli(), 0)))
	b = appendText(appendText(b, "topic"), e.Topic)
	b = appendText(b, "payload")
	switch n := len(e.Payload); {
	case n < 1<<8:
		b = append(b, 0xc4, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0xc5), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xc6), uint32(n))
	}
	return append(b, e.Payload...)
}

func appendText(b []byte, s string) []byte {
	if len(s) < 32 {
		return append(append(b, 0xa0|byte(len(s))), s...)
	}
	return append(append(b, 0xd9, byte(min(len(s), 255))), s[:min(len(s), 255)]...)
}

func appendUint(b []byte, n uint64) []byte {
	switch {
	case n < 1<<7:
		return append(b, byte(n))
	case n < 1<<8:
		return append(b, 0xcc, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), n)
}

// packed reads MessagePack.
type packed struct {
	b  []byte
	at int
}

// size reads a big-endian number of n bytes.
func (p *packed) size(n int) (uint64, bool) {
	if len(p.b)-p.at < n {
		return 0, false
	}
	var v uint64
	for _, c := range p.b[p.at : p.at+n] {
		v = v<<8 | uint64(c)
	}
	p.at += n
	return v, true
}

func (p *packed) mapLen() (int, bool) {
	c, ok := p.size(1)
	switch {
	case !ok:
		return 0, false
	case c&0xf0 == 0x80:
		return int(c & 0x0f), true
	case c == 0xde:
		n, ok := p.size(2)
		return int(n), ok
	case c == 0xdf:
		n, ok := p.size(4)
		return int(n), ok && n <= uint64(len(p.b))
	}
	return 0, false
}

// bytes reads text or binary.
func (p *packed) bytes() ([]byte, bool) {
	c, ok := p.size(1)
	if !ok {
		return nil, false
	}
	var n uint64
	switch {
	case c&0xe0 == 0xa0:
		n = c & 0x1f
	case c == 0xd9, c == 0xc4:
		n, ok = p.size(1)
	case c == 0xda, c == 0xc5:
		n, ok = p.size(2)
	case c == 0xdb, c == 0xc6:
		n, ok = p.size(4)
	default:
		return nil, false
	}
	if !ok || n > uint64(len(p.b)-p.at) {
		return nil, false
	}
	p.at += int(n)
	return p.b[p.at-int(n) : p.at], true
}

func (p *packed) uint() (uint64, bool) {
	c, ok := p.size(1)
	if !ok {
		return 0, false
	}
	switch {
	case c < 0x80:
		return c, true
	case c >= 0xcc && c <= 0xcf:
		return p.size(1 << (c - 0xcc))
	case c >= 0xd0 && c <= 0xd3: // signed, as long as it is not below zero
		n := 1 << (c - 0xd0)
		v, ok := p.size(n)
		return v, ok && v>>(8*n-1) == 0
	}
	return 0, false
}

// skip reads over one value.
func (p *packed) skip(depth int) bool {
	c, ok := p.size(1)
	if !ok || depth > 16 {
		return false
	}
	pass := func(n uint64, ok bool) bool {
		if !ok || n > uint64(len(p.b)-p.at) {
			return false
		}
		p.at += int(n)
		return true
	}
	values := func(n uint64, ok bool) bool {
		if !ok || n > uint64(len(p.b)-p.at) { // each takes a byte at least
			return false
		}
		for range n {
			if !p.skip(depth + 1) {
				return false
			}
		}
		return true
	}
	sized := func(n int, more uint64) bool {
		v, ok := p.size(n)
		return pass(v+more, ok)
	}
	switch {
	case c < 0x80 || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3:
		return true
	case c < 0x90:
		return values(2*(c&0x0f), true)
	case c < 0xa0:
		return values(c&0x0f, true)
	case c < 0xc0:
		return pass(c&0x1f, true)
	case c >= 0xc4 && c <= 0xc6:
		return sized(1<<(c-0xc4), 0)
	case c >= 0xc7 && c <= 0xc9: // ext: its type is one byte more
		return sized(1<<(c-0xc7), 1)
	case c == 0xca:
		return pass(4, true)
	case c == 0xcb:
		return pass(8, true)
	case c >= 0xcc && c <= 0xcf:
		return pass(1<<(c-0xcc), true)
	case c >= 0xd0 && c <= 0xd3:
		return pass(1<<(c-0xd0), true)
	case c >= 0xd4 && c <= 0xd8:
		return pass(1+1<<(c-0xd4), true)
	case c >= 0xd9 && c <= 0xdb:
		return sized(1<<(c-0xd9), 0)
	case c == 0xdc || c == 0xdd:
		return values(p.size(2 << (c - 0xdc)))
	case c == 0xde || c == 0xdf:
		n, ok := p.size(2 << (c - 0xde))
		return values(2*n, ok)
	}
	return false // 0xc1 is never used
}
