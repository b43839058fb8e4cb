package fpmbus

import (
	"strings"
)

// Scope is what a subject of the event plane names.
type Scope struct{ Namespace, Component, Endpoint string }

// ParseSubject reads a subject of forward passes in its forms with and without an endpoint or component:
// namespace.NS.component.C.endpoint.E.forward-pass-metrics. ok is false for subjects of other topics.
// Names are unescaped; a namespace with dots in it, as old publishers write it, is taken whole.
func ParseSubject(subject string) (s Scope, ok bool) {
	rest, ok := strings.CutPrefix(subject, "namespace.")
	if !ok {
		return s, false
	}
	if rest, ok = strings.CutSuffix(rest, "."+Topic); !ok || rest == "" {
		return s, false
	}
	if i := strings.LastIndex(rest, ".component."); i > 0 {
		s.Component = rest[i+len(".component."):]
		rest = rest[:i]
		if i := strings.LastIndex(s.Component, ".endpoint."); i > 0 {
			s.Endpoint = s.Component[i+len(".endpoint."):]
			s.Component = s.Component[:i]
		}
	}
	s.Namespace = rest
	s.Namespace, s.Component, s.Endpoint = unescape(s.Namespace), unescape(s.Component), unescape(s.Endpoint)
	return s, true
}

// Subject writes the subject of forward passes: the newest form when the endpoint is known, else the older ones.
func (s Scope) Subject() string { return s.prefix() + "." + Topic }

func (s Scope) prefix() string {
	out := "namespace." + escape(s.Namespace)
	if s.Component != "" {
		out += ".component." + escape(s.Component)
		if s.Endpoint != "" {
			out += ".endpoint." + escape(s.Endpoint)
		}
	}
	return out
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// escape writes every byte that is no letter, digit, - or _ as %XX.
func escape(s string) string {
	const hex = "0123456789ABCDEF"
	i := 0
	for i < len(s) && plain(s[i]) {
		i++
	}
	if i == len(s) {
		return s
	}
	b := []byte(s[:i])
	for ; i < len(s); i++ {
		if c := s[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}

func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, lo := nibble(s[i+1]), nibble(s[i+2])
			if hi >= 0 && lo >= 0 {
				b = append(b, byte(hi<<4|lo))
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

func nibble(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}
