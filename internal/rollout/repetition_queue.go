package rollout

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
	ends    []int
	accs    [][2]*rolloutAcc // whom a text's verdict counts for; the second may be nil
	repeats []bool
}

const batchBytes = 512 << 10

// add takes the response of a sample. bad says that slime could not encode it.
func (q *repetitionQueue) add(response []byte, a, b *rolloutAcc) (bad bool) {
	if len(response) <= repetitionWindow {
		return false // code points are at most as many as bytes
	}
	tail, long := lastCodePoints(response, repetitionWindow)
	if !long {
		return false
	}
	if hasSurrogate(tail) {
		return true
	}
	if q.fill == nil {
		q.fill = &repetitionBatch{}
	}
	f := q.fill
	f.text = append(f.text, tail...)
	f.ends = append(f.ends, len(f.text))
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
	*b = repetitionBatch{text: b.text[:0], ends: b.ends[:0], accs: b.accs[:0], repeats: b.repeats[:0]}
}

// wait judges everything that was added.
func (q *repetitionQueue) wait() {
	if q.fill != nil && len(q.fill.ends) > 0 {
		q.start()
	}
	q.join()
}

func (b *repetitionBatch) judge(z *zlibSizer) {
	from := 0
	for _, end := range b.ends {
		b.repeats = append(b.repeats, z.repeats(b.text[from:end]))
		from = end
	}
}
