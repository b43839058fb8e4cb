package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"
)

// node is one value of a JSON text that remembers where it stands.
type node struct {
	kind       byte // 'o' object, 'a' array, 's' string, 'n' number, 'b' boolean, '0' null
	text       string
	yes        bool
	keys       []string // of an object, in the order of the file
	fields     map[string]*node
	items      []*node
	start, end int // byte offsets in the file; of a string with its quotes
}

// maxDepth bounds the nesting of a board: rows in tabs in rows do not need a tenth of it.
const maxDepth = 200

// parseJSON reads one JSON value. The error says at which byte offset reading stopped.
func parseJSON(data []byte) (root *node, offset int, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	root, err = parseNode(dec, data, 0)
	if err == nil {
		if _, e := dec.Token(); !errors.Is(e, io.EOF) {
			err = errors.New("text after the end of the JSON value")
		}
	}
	if err != nil {
		offset = int(dec.InputOffset())
		if s := (*json.SyntaxError)(nil); errors.As(err, &s) {
			offset = int(s.Offset) - 1
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the text ends in the middle of a value")
			offset = len(data)
		}
		return nil, min(max(offset, 0), len(data)), err
	}
	return root, 0, nil
}

func parseNode(dec *json.Decoder, data []byte, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxDepth)
	}
	before := int(dec.InputOffset())
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	n := &node{start: before, end: int(dec.InputOffset())}
	for n.start < n.end && bytes.IndexByte([]byte(" \t\r\n,:"), data[n.start]) >= 0 {
		n.start++
	}
	switch t := tok.(type) {
	case json.Delim:
		if t == '{' {
			n.kind, n.fields = 'o', map[string]*node{}
			for dec.More() {
				key, err := dec.Token()
				if err != nil {
					return nil, err
				}
				value, err := parseNode(dec, data, depth+1)
				if err != nil {
					return nil, err
				}
				name, _ := key.(string)
				if _, twice := n.fields[name]; !twice {
					n.keys = append(n.keys, name)
				}
				n.fields[name] = value
			}
		} else {
			n.kind = 'a'
			for dec.More() {
				item, err := parseNode(dec, data, depth+1)
				if err != nil {
					return nil, err
				}
				n.items = append(n.items, item)
			}
		}
		if _, err := dec.Token(); err != nil {
			return nil, err
		}
		n.end = int(dec.InputOffset())
	case string:
		n.kind, n.text = 's', t
	case json.Number:
		n.kind, n.text = 'n', t.String()
	case bool:
		n.kind, n.yes = 'b', t
	default:
		n.kind = '0'
	}
	return n, nil
}

// at follows keys through objects; nil when there is none.
func (n *node) at(keys ...string) *node {
	for _, k := range keys {
		if n == nil || n.kind != 'o' {
			return nil
		}
		n = n.fields[k]
	}
	return n
}

// str is the text of a string, "" of anything else.
func (n *node) str() string {
	if n == nil || n.kind != 's' {
		return ""
	}
	return n.text
}

func (n *node) isTrue() bool { return n != nil && n.kind == 'b' && n.yes }

func (n *node) list() []*node {
	if n == nil || n.kind != 'a' {
		return nil
	}
	return n.items
}

// offsetIn gives the byte offset in the file of the byte offset i in the text of a string node.
func (n *node) offsetIn(data []byte, i int) int {
	p, done := n.start+1, 0
	for p < n.end-1 && done < i {
		if data[p] != '\\' {
			p++
			done++
			continue
		}
		if p+1 < n.end-1 && data[p+1] == 'u' && p+6 <= n.end-1 {
			r, step := hexRune(data[p+2:p+6]), 6
			if utf16.IsSurrogate(r) {
				if p+12 <= n.end-1 && data[p+6] == '\\' && data[p+7] == 'u' {
					if pair := utf16.DecodeRune(r, hexRune(data[p+8:p+12])); pair != utf8.RuneError {
						r, step = pair, 12
					}
				}
			}
			if utf16.IsSurrogate(r) {
				r = utf8.RuneError
			}
			done += utf8.RuneLen(r)
			p += step
			continue
		}
		p += 2
		done++
	}
	return p
}

func hexRune(hex []byte) rune {
	var r rune
	for _, c := range hex {
		r <<= 4
		switch {
		case c >= '0' && c <= '9':
			r |= rune(c - '0')
		case c >= 'a' && c <= 'f':
			r |= rune(c-'a') + 10
		case c >= 'A' && c <= 'F':
			r |= rune(c-'A') + 10
		}
	}
	return r
}

// lineCol turns a byte offset into a line and a column, both from 1; a column counts characters.
func lineCol(data []byte, offset int) (line, col int) {
	offset = min(max(offset, 0), len(data))
	line = 1 + bytes.Count(data[:offset], []byte("\n"))
	start := bytes.LastIndexByte(data[:offset], '\n') + 1
	return line, 1 + utf8.RuneCount(data[start:offset])
}
