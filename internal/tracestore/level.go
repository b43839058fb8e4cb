package tracestore

import (
	"strings"

	"github.com/rollscope/rollscope/internal/span"
)

// level fills what SGLang's level of tracing is, as far as the names tell.
func (s *ServiceStats) level() {
	counts := make(map[string]int64, len(s.Names))
	for _, n := range s.Names {
		name := n.Name
		if f, ok := strings.CutSuffix(name, "*"); ok && familyOf(name) >= 0 {
			name = f + "00000000" // one of the family, as SGLang would name it
			if f == "Req " {
				name = " " + name
			}
		}
		counts[name] += n.Count
	}
	l := span.LevelOf(counts)
	s.Level, s.Missing, s.Sure, s.Generation = l.Level, l.Missing, l.Sure, l.Generation
}

func familyOf(name string) int {
	for i, f := range families {
		if f == name {
			return i
		}
	}
	return -1
}
