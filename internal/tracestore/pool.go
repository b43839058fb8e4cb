package tracestore

import (
	"strings"

	"github.com/rollscope/rollscope/internal/span"
)

// pool holds texts and lists that many spans of a trace have once. A span as it comes from the store keeps
// the whole row's text alive; after keep it holds what is its own.
type pool struct {
	texts map[string]string
	lists map[string][]span.Attr
	key   []byte
	bytes int64 // about what the kept spans and the pool take
}

// What is pooled: short texts, and not endless many.
const (
	maxPooled      = 100_000
	maxPooledBytes = 64
)

func newPool() *pool { return &pool{texts: map[string]string{}, lists: map[string][]span.Attr{}} }

func (p *pool) text(s string) string {
	if s == "" {
		return ""
	}
	if t, ok := p.texts[s]; ok {
		return t
	}
	t := strings.Clone(s)
	p.bytes += int64(len(t))
	if len(t) <= maxPooledBytes && len(p.texts) < maxPooled {
		p.texts[t] = t
		p.bytes += 48
	}
	return t
}

func (p *pool) attrs(list []span.Attr) []span.Attr {
	if len(list) == 0 {
		return nil
	}
	out := make([]span.Attr, len(list))
	for i, a := range list {
		out[i] = span.Attr{Key: p.text(a.Key), Value: span.Value{Type: a.Value.Type, Str: p.text(a.Value.Str)}}
	}
	p.bytes += int64(len(out)) * 40
	return out
}

// shared is attrs for lists that spans of one process have in common.
func (p *pool) shared(list []span.Attr) []span.Attr {
	if len(list) == 0 {
		return nil
	}
	p.key = p.key[:0]
	for _, a := range list {
		p.key = append(append(append(append(append(p.key, a.Key...), 0), byte(a.Value.Type)), a.Value.Str...), 0)
	}
	if out, ok := p.lists[string(p.key)]; ok {
		return out
	}
	out := p.attrs(list)
	if len(p.lists) < maxPooled {
		p.lists[string(p.key)] = out
		p.bytes += int64(len(p.key)) + 64
	}
	return out
}

// keep returns the span without anything of the row that it was read from.
func (p *pool) keep(s span.Span) span.Span {
	p.bytes += 560
	s.Name, s.Service, s.TraceState, s.StatusMessage = p.text(s.Name), p.text(s.Service), p.text(s.TraceState), p.text(s.StatusMessage)
	s.ScopeName, s.ScopeVersion = p.text(s.ScopeName), p.text(s.ScopeVersion)
	s.Resource, s.ScopeAttrs, s.Attrs = p.shared(s.Resource), p.shared(s.ScopeAttrs), p.attrs(s.Attrs)
	for i := range s.Events {
		e := &s.Events[i]
		e.Name, e.Attrs = p.text(e.Name), p.attrs(e.Attrs)
		p.bytes += 64
	}
	for i := range s.Links {
		l := &s.Links[i]
		l.TraceState, l.Attrs = p.text(l.TraceState), p.attrs(l.Attrs)
		p.bytes += 72
	}
	return s
}
