package fpm

import (
	"fmt"
	"unicode/utf8"
)

// MaxPayload is how many bytes a message may have. A real one has about 430.
const MaxPayload = 1 << 20

const (
	maxRank = 1 << 20
	// maxNames is how many names a decoder remembers, so that a name that it has seen costs no memory.
	maxNames = 4096
)

// Decoder reads messages of one source.
type Decoder struct {
	// Positional takes arrays in the order of the schema's fields where the schema has maps. Engines of
	// the field write maps; some documentation says arrays. Without it an array is refused.
	Positional bool

	names map[string]string
}

// name returns b as a string that is made once.
func (d *Decoder) name(r *reader) string {
	at, b := r.off, r.bytes()
	if len(b) == 0 {
		return ""
	}
	if s, ok := d.names[string(b)]; ok {
		return s
	}
	if len(b) > 256 || !utf8.Valid(b) {
		r.fail(Value, at, "the name is longer than 256 bytes or not UTF-8")
		return ""
	}
	if d.names == nil || len(d.names) >= maxNames {
		d.names = make(map[string]string)
	}
	s := string(b)
	d.names[s] = s
	return s
}

// Decode reads one message, MessagePack as engines and the event plane send it, into p, whatever p held
// before. It keeps nothing of payload. The error is an [*Error]; p is then undefined.
//
// Keys that the schema does not have are passed over and counted, missing ones are zero (see [Pass.Has]).
// A message that names another version than 1 is refused; one that names none is of the first form (v0).
func (d *Decoder) Decode(payload []byte, p *Pass) error {
	if len(payload) == 0 {
		return &Error{Reason: Empty, Detail: "no bytes"}
	}
	if len(payload) > MaxPayload {
		return &Error{Reason: TooLarge, Detail: fmt.Sprintf("%d bytes, more than %d", len(payload), MaxPayload)}
	}
	*p = Pass{}
	r := reader{b: payload}
	first := r.peek()
	n, isMap, isArray := r.open()
	switch {
	case r.err != nil:
	case isMap:
		d.message(&r, n, p)
	case isArray && d.Positional:
		p.Positional = true
		d.positions(&r, n, p)
	case isArray:
		r.fail(Array, 0, "an array, where the schema has a map with named keys; configure the source as positional if it truly writes arrays")
	case first == 0xc1:
		r.fail(Malformed, 0, "0xc1 begins no MessagePack value")
	default:
		r.fail(NotAMap, 0, fmt.Sprintf("begins with %s (0x%02x)", kind(first), first))
	}
	if r.err == nil && r.off != len(payload) {
		r.field = ""
		r.fail(Trailing, r.off, fmt.Sprintf("%d bytes follow the message", len(payload)-r.off))
	}
	if r.err != nil {
		return r.err
	}
	return nil
}

// The fields' keys as they are written, with the byte before them that says how long they are. Emitters
// write them in this order, so the next one is looked for first; any other order is read as well.
var (
	messageKeys = [...]string{
		"\xa7version", "\xa9worker_id", "\xa7dp_rank", "\xaacounter_id", "\xa9wall_time",
		"\xb2scheduled_requests", "\xafqueued_requests", "\xactiming_scope",
	}
	partKeys = [...]string{
		"\xb4num_prefill_requests", "\xb2sum_prefill_tokens", "\xb2var_prefill_length", "\xb5sum_prefill_kv_tokens",
		"\xb3num_decode_requests", "\xb4sum_decode_kv_tokens", "\xb4var_decode_kv_tokens",
	}
)

// unknown is the place of a key that the schema does not have.
const unknown = 255

// key returns the place of a key in keys; first is where to look first.
func (r *reader) key(keys []string, first int) int {
	if first < len(keys) && r.next(keys[first]) {
		return first
	}
	name := r.bytes()
	if r.err != nil {
		return unknown
	}
	for i, k := range keys {
		if k[1:] == string(name) {
			return i
		}
	}
	return unknown
}

func (d *Decoder) message(r *reader, n int, p *Pass) {
	for place := -1; n > 0 && r.err == nil; n-- {
		r.field = ""
		place = r.key(messageKeys[:], place+1)
		d.field(r, place, p)
	}
}

// field reads the field of a place in messageKeys, and passes over what has none.
func (d *Decoder) field(r *reader, place int, p *Pass) {
	switch place {
	case 0:
		p.readVersion(r)
	case 1:
		p.readWorker(d, r)
	case 2:
		p.readRank(r)
	case 3:
		p.readCounter(r)
	case 4:
		p.readWall(r)
	case 5:
		p.readScheduled(d, r)
	case 6:
		p.readQueued(d, r)
	case 7:
		r.field = "timing_scope"
		p.TimingScope = d.name(r)
	default:
		if r.err == nil {
			r.skip()
			p.skipped(1)
		}
	}
}

// positions reads the schema's fields in their order: version, worker_id, dp_rank, counter_id, wall_time
// and the two parts; the first form has no version and no counter_id and begins with the worker's id,
// which is a string. A shorter array ends early, a longer one has items of a later schema at its end.
func (d *Decoder) positions(r *reader, n int, p *Pass) {
	if n == 0 {
		r.fail(Truncated, 0, "an array without items")
		return
	}
	items, place, v0 := n, 0, false
	if c := kind(r.peek()); c == "a string" || c == "bytes" {
		place, v0 = 1, true
	}
	for ; n > 0 && r.err == nil; n, place = n-1, place+1 {
		r.field = ""
		if v0 && place == 3 {
			place++
		}
		if place == 7 {
			place++ // the timing scope has no place in an array
		}
		d.field(r, place, p)
	}
	if r.err == nil && p.Has&HasWall == 0 {
		r.fail(Truncated, r.off, fmt.Sprintf("an array of %d items ends before wall_time", items))
	}
}

func (p *Pass) skipped(n int) { p.Skipped = uint16(min(int(p.Skipped)+n, 1<<16-1)) }

func (p *Pass) readVersion(r *reader) {
	r.field = "version"
	at := r.off
	p.Version = r.count()
	p.Has |= HasVersion
	if p.Version != Version {
		r.fail(Versioned, at, fmt.Sprintf("version %d of the schema; only version %d is known, so what its fields mean is not", p.Version, Version))
	}
}

func (p *Pass) readWorker(d *Decoder, r *reader) {
	r.field = "worker_id"
	p.WorkerID = d.name(r)
}

func (p *Pass) readRank(r *reader) {
	r.field = "dp_rank"
	at := r.off
	n := r.count()
	if n > maxRank {
		r.fail(Value, at, fmt.Sprintf("rank %d is more than %d", n, maxRank))
	}
	p.Rank = uint32(n)
}

func (p *Pass) readCounter(r *reader) {
	r.field = "counter_id"
	p.Counter = r.count()
	p.Has |= HasCounter
}

func (p *Pass) readWall(r *reader) {
	r.field = "wall_time"
	p.Wall = r.real()
	p.Has |= HasWall
}

// part opens one of the two nested parts.
func (d *Decoder) part(r *reader) (n int, named bool) {
	at := r.off
	c := r.peek()
	n, isMap, isArray := r.open()
	switch {
	case isMap:
		return n, true
	case isArray && d.Positional:
		return n, false
	case isArray:
		r.fail(Array, at, "an array, where the schema has a map with named keys")
	default:
		r.wrong("a map", at, c)
	}
	return 0, true
}

func (p *Pass) readScheduled(d *Decoder, r *reader) {
	r.field = "scheduled_requests"
	n, named := d.part(r)
	s := &p.Scheduled
	p.Has |= HasScheduled
	for place := -1; n > 0 && r.err == nil; n-- {
		if place++; named {
			r.field = "scheduled_requests"
			place = r.key(partKeys[:], place)
		}
		switch place {
		case 0:
			r.field = "scheduled_requests.num_prefill_requests"
			s.PrefillRequests = r.count()
		case 1:
			r.field = "scheduled_requests.sum_prefill_tokens"
			s.PrefillTokens = r.count()
		case 2:
			r.field = "scheduled_requests.var_prefill_length"
			s.PrefillLengths = r.real()
		case 3:
			r.field = "scheduled_requests.sum_prefill_kv_tokens"
			s.PrefillKV = r.count()
		case 4:
			r.field = "scheduled_requests.num_decode_requests"
			s.DecodeRequests = r.count()
		case 5:
			r.field = "scheduled_requests.sum_decode_kv_tokens"
			s.DecodeKV = r.count()
		case 6:
			r.field = "scheduled_requests.var_decode_kv_tokens"
			s.DecodeLengths = r.real()
		default:
			if r.err == nil {
				r.skip()
				p.skipped(1)
			}
		}
	}
}

func (p *Pass) readQueued(d *Decoder, r *reader) {
	r.field = "queued_requests"
	n, named := d.part(r)
	q := &p.Queued
	p.Has |= HasQueued
	for place := -1; n > 0 && r.err == nil; n-- {
		if place++; place == 3 {
			place++ // the part has the fields of the other one without the fourth
		}
		if named {
			r.field = "queued_requests"
			place = r.key(partKeys[:], place)
		}
		switch place {
		case 0:
			r.field = "queued_requests.num_prefill_requests"
			q.PrefillRequests = r.count()
		case 1:
			r.field = "queued_requests.sum_prefill_tokens"
			q.PrefillTokens = r.count()
		case 2:
			r.field = "queued_requests.var_prefill_length"
			q.PrefillLengths = r.real()
		case 4:
			r.field = "queued_requests.num_decode_requests"
			q.DecodeRequests = r.count()
		case 5:
			r.field = "queued_requests.sum_decode_kv_tokens"
			q.DecodeKV = r.count()
		case 6:
			r.field = "queued_requests.var_decode_kv_tokens"
			q.DecodeLengths = r.real()
		default:
			if r.err == nil {
				r.skip()
				p.skipped(1)
			}
		}
	}
}
