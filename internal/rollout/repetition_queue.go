package rollout

import "github.com/rollscope/rollscope/torchfile"

// repetitionQueue judges responses beside the goroutine that reads the dump: in a dump of long texts
// this is most of the metrics' work. Texts are copied in batches; a batch is judged by one goroutine,
// which ends with it, and its verdicts are counted when the next one is full or somebody asks.
// The dump's memory map is touched by the caller alone.
type repetitionQueue struct {
	fill, busy *repetitionBatch
	done       chan struct{} // closed when busy is judged
	zlib       *zlibSizer
}

// repetitionBatch is some texts, one after another.
type repetitionBatch struct {
	text    []byte
	places  [][2]int         // of each in text
	accs    [][2]*rolloutAcc // whom a text's verdict counts for; the second may be nil
	repeats []bool
}

const batchBytes = 512 << 10

// add takes the response of a sample. bad says that slime could not encode it.
func (q *repetitionQueue) add(response torchfile.Value, a, b *rolloutAcc) (bad bool) {
	if response.Kind() != torchfile.KindStr {
		return false
	}
	n := response.Len()
	if n <= repetitionWindow {
		return false // code points are at most as many as bytes
	}
	if q.fill == nil {
		q.fill = &repetitionBatch{}
	}
	f := q.fill
	at := len(f.text)
	from := max(0, n-4*repetitionWindow) // as far as so many code points of valid text may reach
	f.text = response.AppendStr(f.text, from)
	tail, more := lastCodePoints(f.text[at:], repetitionWindow)
	if !more && from > 0 { // or there are just so many, or it is no valid text
		tail, more = lastCodePoints(response.RawStr(), repetitionWindow)
		f.text = append(f.text[:at], tail...)
		tail = f.text[at:]
	}
	if bad = more && hasSurrogate(tail); !more || bad {
		f.text = f.text[:at]
		return bad
	}
	f.places = append(f.places, [2]int{len(f.text) - len(tail), len(f.text)})
	f.accs = append(f.accs, [2]*rolloutAcc{a, b})
	if len(f.text) >= batchBytes {
		q.start()
	}
	return false
}

// start hands the full batch over.
func (q *repetitionQueue) start() {
	q.join()
	if q.zlib == nil {
		q.zlib = new(zlibSizer)
	}
	spare := q.busy
	q.busy, q.fill, q.done = q.fill, spare, make(chan struct{})
	go func(b *repetitionBatch, z *zlibSizer, done chan struct{}) {
		defer close(done)
		b.judge(z)
	}(q.busy, q.zlib, q.done)
}

// join waits for the batch that is being judged and counts its verdicts.
func (q *repetitionQueue) join() {
	if q.done == nil {
		return
	}
	<-q.done
	q.done = nil
	b := q.busy
	for i, yes := range b.repeats {
		for _, a := range b.accs[i] {
			if yes && a != nil {
				a.repeats++
			}
		}
	}
	*b = repetitionBatch{text: b.text[:0], places: b.places[:0], accs: b.accs[:0], repeats: b.repeats[:0]}
}

// wait judges everything that was added.
func (q *repetitionQueue) wait() {
	if q.fill != nil && len(q.fill.places) > 0 {
		q.start()
	}
	q.join()
}

func (b *repetitionBatch) judge(z *zlibSizer) {
	for _, at := range b.places {
		b.repeats = append(b.repeats, z.repeats(b.text[at[0]:at[1]]))
	}
}
