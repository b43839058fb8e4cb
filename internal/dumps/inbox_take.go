package dumps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net/http"
	"os"
	"time"

	"github.com/rollscope/rollscope/trace"
)

// Receipt says what became of a batch.
type Receipt struct {
	Run       string
	Kind      string
	RolloutID int64
	Samples   int  // in the batch
	Total     int  // of the rollout's attempt so far
	Again     bool // the batch was here before: nothing was added
	Final     bool // all parts of all uploads are there; the dump follows after Linger
}

// Take stores the batch that body holds, compressed or not. When it returns without an error the batch
// is on disk, also if the machine fails. A batch that was taken before is not stored twice, also when
// its rollout has its dump already. Every error is a [*Refusal]; nothing of the batch is kept then.
func (b *Inbox) Take(ctx context.Context, body io.Reader) (Receipt, error) {
	receipt, err := b.take(ctx, body)
	if err != nil {
		r := refusal(err)
		b.drop(r.Reason, 1)
		return Receipt{}, r
	}
	return receipt, nil
}

func (b *Inbox) take(ctx context.Context, body io.Reader) (Receipt, error) {
	select {
	case b.senders <- struct{}{}:
		defer func() { <-b.senders }()
	default:
		return Receipt{}, refuse(RefusedBusy, time.Second, "%d batches are being received: as many as MaxSenders allows", cap(b.senders))
	}
	if b.o.MinFree > 0 {
		if free, err := b.o.Free(b.dir); err == nil && free < b.o.MinFree {
			return Receipt{}, refuse(RefusedDiskFull, time.Minute, "the disk of %s has %d MiB left: batches are taken from %d MiB on", b.dir, free>>20, b.o.MinFree>>20)
		}
	}
	s := &spool{b: b}
	defer s.discard()
	if err := s.receive(ctx, body); err != nil {
		return Receipt{}, err
	}
	rec, err := b.decode(ctx, s)
	if err != nil {
		return Receipt{}, err
	}
	key := rec.key()
	p := part{rec.BatchID, rec.Digest, rec.Samples, rec.Text, rec.Payload}
	if p.charge() > b.o.MaxBytes {
		return Receipt{}, refuse(RefusedTooLarge, 0, "batch %.40q takes %d bytes, all that wait may take %d: %w", rec.BatchID, p.charge(), b.o.MaxBytes, trace.ErrTooLarge)
	}
	for {
		receipt, wait, err := b.admit(rec, &p, s)
		switch {
		case err != nil:
			return Receipt{}, err
		case receipt != nil:
			return *receipt, nil
		case wait != nil: // another batch of this upload, which may be this very one
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return Receipt{}, refuse(RefusedInterrupted, 0, "waiting for another batch of the same upload: %w", context.Cause(ctx))
			}
		}
		break
	}
	err = s.store(rec)
	b.mu.Lock()
	defer b.mu.Unlock()
	at := flight{key, rec.Upload}
	close(b.flights[at])
	delete(b.flights, at)
	r := b.rollouts[key]
	r.storing--
	if err != nil {
		b.release(&p)
		b.tidy(r)
		return Receipt{}, err
	}
	if r.uploads[rec.Upload] == nil {
		b.began++
	}
	r.upload(rec.Upload, b.began).add(rec)
	out := Receipt{Run: key.run, Kind: key.kind, RolloutID: key.id, Samples: rec.Samples}
	if out.Total, out.Final = r.sums(); out.Final {
		b.awake()
	}
	return out, nil
}

// awake makes Run look.
func (b *Inbox) awake() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// release gives back what a batch took of the bounds; mu is held.
func (b *Inbox) release(p *part) {
	b.waiting -= p.charge()
	b.batches--
}

// tidy forgets a rollout of which nothing is there; mu is held.
func (b *Inbox) tidy(r *incoming) {
	if len(r.uploads) == 0 && len(r.attempts) == 0 && r.storing == 0 {
		delete(b.rollouts, r.key)
	}
}

// decode reads a spooled body and describes it. The samples are not kept.
func (b *Inbox) decode(ctx context.Context, s *spool) (*partRecord, error) {
	select {
	case b.decoders <- struct{}{}:
		defer func() { <-b.decoders }()
	case <-ctx.Done():
		return nil, refuse(RefusedInterrupted, 0, "waiting to be decoded: %w", context.Cause(ctx))
	}
	batch, err := trace.DecodeBatch(io.NewSectionReader(s.f, blockSize, s.n), b.o.Limits)
	var disk *fs.PathError
	switch {
	case err == nil:
	case errors.As(err, &disk):
		return nil, err
	case errors.Is(err, trace.ErrTooLarge):
		return nil, &Refusal{RefusedTooLarge, 0, err}
	default:
		return nil, &Refusal{RefusedMalformed, 0, err}
	}
	if batch.RolloutID < 0 {
		return nil, &Refusal{RefusedMalformed, 0, &trace.LineError{Line: 1, Err: fmt.Errorf("header: rollout_id %d is negative", batch.RolloutID)}}
	}
	rec := &partRecord{
		Header: batch.Header, Samples: len(batch.Samples), Payload: s.n, Sum: s.sum, Received: b.o.Now().UTC(),
	}
	h := sha256.New()
	for _, text := range batch.Samples {
		h.Write(text)
		h.Write([]byte{'\n'})
		rec.Text += int64(len(text)) + 1
	}
	rec.Digest = hex.EncodeToString(h.Sum(nil)[:16])
	return rec, nil
}

// maxUploads is how many uploads a rollout may have at a time.
const maxUploads = 1024

// admit decides about a batch. It returns a receipt when the batch is here already, a channel to wait
// for, or neither when the caller is to store it.
func (b *Inbox) admit(rec *partRecord, p *part, s *spool) (*Receipt, <-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := rec.key()
	if wait := b.flights[flight{key, rec.Upload}]; wait != nil {
		return nil, wait, nil
	}
	r := b.rollouts[key]
	var open *attempt // to which this belongs
	if r != nil {
		receipt := &Receipt{Run: key.run, Kind: key.kind, RolloutID: key.id, Samples: p.samples, Again: true}
		for _, a := range r.attempts {
			u := a.uploads[rec.Upload]
			if u == nil {
				continue
			}
			again, err := u.compare(rec)
			switch {
			case again:
				receipt.Total, receipt.Final = a.Samples, !a.Incomplete
				return receipt, nil, nil
			case err == nil && a.Kept && a.State == finished && !a.unwanted:
				open = a
			case rec.Upload == "" && a.cleaned: // a restart, as far as one can tell
			case rec.Upload == "" || err == nil && a.Kept && a.State != finished:
				a.unwanted = a.unwanted || err != nil // its files have the same names
				b.awake()
				return nil, nil, refuse(RefusedBusy, time.Second, "%s is being written as a dump", key)
			case err != nil:
				return nil, nil, err
			default:
				return nil, nil, refuse(RefusedLate, 0, "part %d of upload %.40q came after %s was closed without it: send the rollout again as another upload", rec.Part, rec.Upload, key)
			}
		}
		if u := r.uploads[rec.Upload]; u != nil {
			again, err := u.compare(rec)
			if err != nil {
				return nil, nil, err
			}
			if again {
				receipt.Total, receipt.Final = r.sums()
				return receipt, nil, nil
			}
		}
	}
	if r == nil || !r.active() {
		n := 0
		for _, other := range b.rollouts {
			if other.active() {
				n++
			}
		}
		if n >= b.o.MaxRollouts {
			return nil, nil, refuse(RefusedFull, 10*time.Second, "%d rollouts are being received: as many as MaxRollouts allows", n)
		}
	}
	switch {
	case r != nil && r.uploads[rec.Upload] == nil && len(r.uploads)+r.storing >= maxUploads:
		return nil, nil, refuse(RefusedFull, 10*time.Second, "%s comes in %d uploads: no more are taken at a time", key, maxUploads)
	case b.batches >= b.o.MaxBatches:
		b.press()
		return nil, nil, refuse(RefusedFull, 10*time.Second, "%d batches wait: as many as MaxBatches allows", b.batches)
	case b.waiting+b.spooled-s.reserved+p.charge() > b.o.MaxBytes:
		return nil, nil, b.full()
	}
	if r == nil {
		r = &incoming{key: key, uploads: map[string]*upload{}}
		b.rollouts[key] = r
	}
	if open != nil {
		b.reopen(r, open)
	}
	b.spooled -= s.reserved
	s.reserved = 0
	b.waiting += p.charge()
	b.batches++
	r.storing++
	b.flights[flight{key, rec.Upload}] = make(chan struct{})
	return nil, nil, nil
}

// press asks for the room of batches that are kept in case; mu is held.
func (b *Inbox) press() {
	b.pressed = true
	b.awake()
}

func (b *Inbox) full() error {
	b.press()
	return refuse(RefusedFull, 10*time.Second, "batches of %d MiB wait for the rest of their rollouts; at most %d MiB may", b.waiting>>20, b.o.MaxBytes>>20)
}

// compare says whether an upload has a batch, or why it cannot have it.
func (u *upload) compare(rec *partRecord) (again bool, err error) {
	no, known := u.ids[rec.BatchID]
	if !known {
		no = rec.Part
	}
	if p := u.parts[no]; p != nil {
		if no == rec.Part && p.digest == rec.Digest {
			return true, nil
		}
		if known {
			return false, refuse(RefusedConflict, 0, "batch_id %.40q was part %d of upload %.40q, with other samples than part %d here", rec.BatchID, no, u.name, rec.Part)
		}
		return false, refuse(RefusedConflict, 0, "part %d of upload %.40q was batch %.40q, with other samples than batch %.40q here", no, u.name, p.id, rec.BatchID)
	}
	last := rec.Part
	if rec.Parts != nil {
		last = *rec.Parts - 1
	}
	switch {
	case u.final && last > u.last:
		return false, refuse(RefusedConflict, 0, "upload %.40q has a part %d by what its part %d says, but part %d was the final one", u.name, last, rec.Part, u.last)
	case rec.Final && rec.Part < u.last:
		return false, refuse(RefusedConflict, 0, "part %d of upload %.40q is said to be its final one, but there is a part %d", rec.Part, u.name, u.last)
	}
	return false, nil
}

// spool is a body on its way: a file that is not in its place yet.
type spool struct {
	b        *Inbox
	f        *os.File // nil once it is in its place
	n        int64    // bytes of the body
	sum      uint32
	reserved int64 // of b.spooled
}

// receive writes the body to disk as it comes: a slow sender holds no memory.
func (s *spool) receive(ctx context.Context, body io.Reader) error {
	f, err := os.CreateTemp(s.b.temp(), "body-*")
	if err != nil {
		return err
	}
	s.f = f
	if _, err := f.Seek(blockSize, io.SeekStart); err != nil {
		return err
	}
	buf := make([]byte, 1<<16)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if s.n += int64(n); s.n > s.b.o.Limits.Bytes {
				return refuse(RefusedTooLarge, 0, "the body has more than %d bytes: %w: send smaller batches", s.b.o.Limits.Bytes, trace.ErrTooLarge)
			}
			if err := s.reserve(int64(n)); err != nil {
				return err
			}
			s.sum = crc32.Update(s.sum, castagnoli, buf[:n])
			if _, err := f.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return refuse(RefusedTooLarge, 0, "%w (%w): send smaller batches", trace.ErrTooLarge, err)
		}
		if err != nil {
			return refuse(RefusedInterrupted, 0, "reading the body after %d bytes: %w", s.n, err)
		}
	}
}

func (s *spool) reserve(n int64) error {
	b := s.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting+b.spooled+n > b.o.MaxBytes {
		return b.full()
	}
	b.spooled += n
	s.reserved += n
	return nil
}

// store puts the file into its place, durably.
func (s *spool) store(rec *partRecord) error {
	block, err := rec.block()
	if err != nil {
		return err
	}
	if _, err := s.f.WriteAt(block, 0); err != nil {
		return err
	}
	if err := s.f.Sync(); err != nil {
		return err
	}
	if err := s.b.at("batch written"); err != nil {
		return err
	}
	dir := s.b.uploadDir(rec.key(), rec.Upload)
	if err := s.b.makeDir(dir); err != nil {
		return err
	}
	path := s.b.partPath(rec.key(), rec.Upload, rec.Part)
	if err := os.Rename(s.f.Name(), path); err != nil {
		return err
	}
	f := s.f
	s.f = nil
	if err := errors.Join(f.Close(), syncDir(dir)); err != nil {
		return errors.Join(err, os.Remove(path)) // the sender is told that it is not there
	}
	return s.b.at("batch stored")
}

func (s *spool) discard() {
	if s.f != nil {
		name := s.f.Name()
		if err := errors.Join(s.f.Close(), os.Remove(name)); err != nil {
			s.b.o.Logger.Warn("cannot remove the body of a batch that was not taken", "path", name, "err", err)
		}
	}
	s.b.mu.Lock()
	s.b.spooled -= s.reserved
	s.reserved = 0
	s.b.mu.Unlock()
}
