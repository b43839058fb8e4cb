package tailsample

import (
	"strings"

	"github.com/rollscope/rollscope/internal/span"
)

// held scopes: the resource and scope of spans are kept once, however many spans are of them.
type heldScope struct {
	key  string
	sc   span.Scope // without spans
	bits uint64     // conditions that the resource meets
	refs int        // spans held
	size int64
}

// maxIdleScopes is how many scopes are remembered without a span that needs them.
const maxIdleScopes = 4096

// intern finds or adds a scope and gives its number.
func (s *Sampler) intern(sc *span.Scope) uint32 {
	s.scopeKey = append(s.scopeKey[:0], sc.Resource...)
	s.scopeKey = append(s.scopeKey, 0xff, 0xff, byte(len(sc.Resource)), byte(len(sc.Resource)>>8))
	s.scopeKey = append(s.scopeKey, sc.Scope...)
	s.scopeKey = append(s.scopeKey, 0xff, 0xff, byte(len(sc.Scope)), byte(len(sc.Scope)>>8))
	s.scopeKey = append(s.scopeKey, sc.Service...)
	if i, ok := s.scopeOf[string(s.scopeKey)]; ok {
		return i
	}
	if len(s.scopeOf) >= maxIdleScopes {
		s.sweepScopes()
	}
	key := string(s.scopeKey)
	h := heldScope{key: key, sc: span.Scope{Service: strings.Clone(sc.Service), ScopeName: strings.Clone(sc.ScopeName)}, size: int64(3*len(key) + 200)}
	// Absent and empty messages stay apart.
	if sc.Resource != nil {
		h.sc.Resource = append([]byte{}, sc.Resource...)
	}
	if sc.Scope != nil {
		h.sc.Scope = append([]byte{}, sc.Scope...)
	}
	h.bits = s.c.matchResource(sc.Resource)
	var i uint32
	if n := len(s.scopeHoles); n > 0 {
		i = s.scopeHoles[n-1]
		s.scopeHoles = s.scopeHoles[:n-1]
		s.scopes[i] = h
	} else {
		i = uint32(len(s.scopes))
		s.scopes = append(s.scopes, h)
	}
	s.scopeOf[key] = i
	s.scopeBytes += h.size
	return i
}

// sweepScopes forgets the scopes that no held span needs.
func (s *Sampler) sweepScopes() {
	s.sweeps++
	for i := range s.scopes {
		if h := &s.scopes[i]; h.key != "" && h.refs == 0 {
			delete(s.scopeOf, h.key)
			s.scopeBytes -= h.size
			*h = heldScope{}
			s.scopeHoles = append(s.scopeHoles, uint32(i))
		}
	}
}
