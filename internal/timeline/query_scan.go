package timeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// scanAttrs calls fn with each value that key has in a block of attributes, raw, and the row it is of
// (from 0 within the block). It goes over what it does not want without decoding it.
func scanAttrs(raw []byte, key string, fn func(row int, value []byte)) error {
	s := scanner{b: raw}
	row := 0
	s.list(func() { // rows
		s.list(func() { // items
			s.list(func() { // start, end
				s.object(key, func(v []byte) { fn(row, v) })
			})
		})
		row++
	})
	return s.err
}

// scanner walks JSON. After an error it does nothing more.
type scanner struct {
	b   []byte
	pos int
	err error
}

var errScan = errors.New("the JSON is damaged")

func (s *scanner) fail() {
	if s.err == nil {
		s.err = fmt.Errorf("%w at byte %d", errScan, s.pos)
	}
	s.pos = len(s.b)
}

// peek is the next byte that is no space, 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.b) {
		if c := s.b[s.pos]; c > ' ' {
			return c
		}
		s.pos++
	}
	return 0
}

// next takes c, or says that it is not there.
func (s *scanner) next(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

// list calls fn at each element of an array; it goes over anything else.
func (s *scanner) list(fn func()) {
	if s.peek() != '[' {
		s.skip()
		return
	}
	s.pos++
	if s.next(']') {
		return
	}
	for s.err == nil {
		at := s.pos
		fn()
		if s.next(']') {
			return
		}
		if !s.next(',') || s.pos == at {
			s.fail()
		}
	}
}

// object calls fn with the values of key in an object; it goes over anything else.
func (s *scanner) object(key string, fn func([]byte)) {
	if s.peek() != '{' {
		s.skip()
		return
	}
	s.pos++
	if s.next('}') {
		return
	}
	for s.err == nil {
		if s.peek() != '"' {
			s.fail()
			return
		}
		from := s.pos
		s.skip()
		name := s.b[from:s.pos]
		if !s.next(':') {
			s.fail()
			return
		}
		s.peek()
		from = s.pos
		s.skip()
		if s.err == nil && isKey(name, key) {
			fn(s.b[from:s.pos])
		}
		if s.next('}') {
			return
		}
		if !s.next(',') {
			s.fail()
		}
	}
}

// isKey compares a quoted string with key.
func isKey(quoted []byte, key string) bool {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1:len(quoted)-1]) == key
	}
	var name string
	return json.Unmarshal(quoted, &name) == nil && name == key
}

// skip goes over a value.
func (s *scanner) skip() {
	for depth := 0; ; {
		switch c := s.peek(); c {
		case 0:
			s.fail()
			return
		case '"':
			s.string()
		case '[', '{':
			depth++
			s.pos++
		case ']', '}':
			if depth--; depth < 0 {
				s.fail()
				return
			}
			s.pos++
		case ',', ':':
			if depth == 0 {
				s.fail()
				return
			}
			s.pos++
			continue
		default:
			for s.pos < len(s.b) {
				if c := s.b[s.pos]; c <= ' ' || c == ',' || c == ':' || c == ']' || c == '}' || c == '[' || c == '{' || c == '"' {
					break
				}
				s.pos++
			}
		}
		if depth == 0 || s.err != nil {
			return
		}
	}
}

// string goes over a string.
func (s *scanner) string() {
	for s.pos++; s.pos < len(s.b); s.pos++ {
		switch s.b[s.pos] {
		case '\\':
			s.pos++
		case '"':
			s.pos++
			return
		}
	}
	s.pos = len(s.b)
	s.fail()
}
