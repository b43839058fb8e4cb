package app

import (
	"bytes"
	"time"

	"github.com/rollscope/rollscope/internal/tailsample"
)

// learnedFile keeps what the sampler knows of how long requests take, so that after a restart slow is what
// was slow before it. It is a file of a few KB that is replaced as a whole; what a process that was killed
// learned since the last time is missing, and no more.
type learnedFile struct {
	path    string // "": nothing is kept
	written []byte
	failed  bool  // the last time; it is told once
	damaged int64 // files that could not be read
}

// load reads what there is. nil when there is nothing.
func (f *learnedFile) load() ([]byte, error) {
	if f.path == "" {
		return nil, nil
	}
	return readState(f.path, tailsample.MaxLearned)
}

// save replaces the file when there is something new.
func (f *learnedFile) save(b []byte) error {
	if f.path == "" || bytes.Equal(b, f.written) {
		return nil
	}
	err := writeState(f.path, b)
	if err == nil {
		f.written = b
	}
	return err
}

// recall gives the sampler what a process before this one learned.
func (s *sampling) recall(now time.Time) {
	b, err := s.learned.load()
	var n int64
	if err == nil && b != nil {
		n, err = s.sampler.Learn(now.UnixNano(), b)
	}
	if err != nil {
		s.learned.damaged++
		s.log.Error("what was known of how long requests take cannot be read; only limits call a request slow until enough were seen",
			"file", s.learned.path, "err", err, "do", "nothing: the file is replaced")
	}
	if n > 0 {
		s.log.Info("how long requests took before the last stop is known", "durations", n)
	}
}

// memorize writes down what the sampler has learned.
func (s *sampling) memorize() {
	if s.learned.path == "" {
		return
	}
	s.mu.Lock()
	b := s.sampler.AppendLearned(nil)
	s.mu.Unlock()
	err := s.learned.save(b)
	if err != nil && !s.learned.failed {
		s.log.Warn("what is known of how long requests take cannot be written down; a restart would forget it", "err", err)
	}
	s.learned.failed = err != nil
}
