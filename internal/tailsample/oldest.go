package tailsample

// Oldest is when the first span of the longest held trace came in, ns since 1970: whatever came before is
// decided. some is false when nothing is held. It looks at every trace that is held.
func (s *Sampler) Oldest() (at int64, some bool) {
	for _, slot := range s.held {
		if first := s.at(slot).first; !some || first < at {
			at, some = first, true
		}
	}
	return at, some
}
