package fpm

// Layout is how a message is written. The zero value is what today's engines write.
type Layout struct {
	V0         bool // the first form: without version and counter_id
	Positional bool // arrays instead of maps
	NoQueue    bool // without queued_requests
	Wide       bool // every length and integer in its longest form, which readers must take as well
	Future     bool // with keys that later versions may add: lists of lengths, and one at the end
}

// Append appends the message as MessagePack. A timing scope is written when there is one, and only in
// maps. Has, Positional and Skipped of p are of no account: the layout says what is written, and the
// version is always [Version].
func (p *Pass) Append(dst []byte, l Layout) []byte {
	w := writer{b: dst, wide: l.Wide}
	key := func(k string) {
		if !l.Positional {
			w.text(k)
		}
	}
	open := func(n int) {
		if l.Positional {
			w.arrayOf(n)
		} else {
			w.mapOf(n)
		}
	}
	scope := p.TimingScope != "" && !l.Positional
	n := 7
	for _, less := range []bool{l.V0, l.V0, l.NoQueue} {
		if less {
			n--
		}
	}
	future := l.Future && !(l.Positional && l.NoQueue) // after the last place of an array
	for _, more := range []bool{scope, future} {
		if more {
			n++
		}
	}
	open(n)
	if !l.V0 {
		key("version")
		w.uint(Version)
	}
	key("worker_id")
	w.text(p.WorkerID)
	key("dp_rank")
	w.uint(uint64(p.Rank))
	if !l.V0 {
		key("counter_id")
		w.uint(p.Counter)
	}
	if scope {
		key("timing_scope")
		w.text(p.TimingScope)
	}
	key("wall_time")
	w.float(p.Wall)

	s := &p.Scheduled
	key("scheduled_requests")
	if l.Future {
		open(9)
	} else {
		open(7)
	}
	key("num_prefill_requests")
	w.uint(s.PrefillRequests)
	key("sum_prefill_tokens")
	w.uint(s.PrefillTokens)
	key("var_prefill_length")
	w.float(s.PrefillLengths)
	key("sum_prefill_kv_tokens")
	w.uint(s.PrefillKV)
	key("num_decode_requests")
	w.uint(s.DecodeRequests)
	key("sum_decode_kv_tokens")
	w.uint(s.DecodeKV)
	key("var_decode_kv_tokens")
	w.float(s.DecodeLengths)
	if l.Future {
		key("extend_lengths")
		w.arrayOf(1)
		w.uint(s.PrefillTokens)
		key("past_kv_lengths")
		w.arrayOf(1)
		w.uint(s.PrefillKV)
	}

	if !l.NoQueue {
		q := &p.Queued
		key("queued_requests")
		open(6)
		key("num_prefill_requests")
		w.uint(q.PrefillRequests)
		key("sum_prefill_tokens")
		w.uint(q.PrefillTokens)
		key("var_prefill_length")
		w.float(q.PrefillLengths)
		key("num_decode_requests")
		w.uint(q.DecodeRequests)
		key("sum_decode_kv_tokens")
		w.uint(q.DecodeKV)
		key("var_decode_kv_tokens")
		w.float(q.DecodeLengths)
	}
	if future {
		key("future")
		w.mapOf(1)
		w.text("kind")
		w.text("unknown")
	}
	return w.b
}
