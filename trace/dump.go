package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// DumpWriter is what [WriteDump] needs of a writer of torch files; *torchfile.Writer is one.
type DumpWriter interface {
	BeginDict()
	EndDict()
	BeginList()
	EndList()
	Key(string)
	Str(string)
	Shared(string)
	Int(int64)
	BigInt(*big.Int)
	Float(float64)
	Bool(bool)
	None()
}

// WriteDump writes the batches of one rollout as slime's dump {"rollout_id", "samples": [...]}, so that
// one reader serves both. The caller closes w, whose Close returns its errors. Batches may come in any
// order and more than once; they are sorted by part, uploads in the order in which they came. Batches
// of different rollouts are an error before anything is written. Strings that stand for NaN and
// infinities are floats again where FORMAT.md says so.
func WriteDump(w DumpWriter, batches []Batch) error {
	uploads := make(map[string]int)
	seen := make(map[string]bool)
	var sorted []Batch
	for _, b := range batches {
		if err := sameRollout(batches[0].Header, b.Header); err != nil {
			return err
		}
		if seen[b.BatchID] {
			continue
		}
		seen[b.BatchID] = true
		if _, ok := uploads[b.Upload]; !ok {
			uploads[b.Upload] = len(uploads)
		}
		sorted = append(sorted, b)
	}
	sort.SliceStable(sorted, func(i, j int) bool {
		a, b := sorted[i], sorted[j]
		if a.Upload != b.Upload {
			return uploads[a.Upload] < uploads[b.Upload]
		}
		return a.Part < b.Part
	})
	return WriteDumpFrom(w, func(yield func(Batch, error) bool) {
		for _, b := range sorted {
			if !yield(b, nil) {
				return
			}
		}
	})
}

// WriteDumpFrom is [WriteDump] for batches that are made one after the other, so that a rollout of any
// size takes the memory of one of its batches: they are written as they come, which must be sorted and
// each once. The first error that comes with a batch ends it and is returned. When an error is
// returned, what was written is no dump; without a batch nothing is.
func WriteDumpFrom(w DumpWriter, batches iter.Seq2[Batch, error]) error {
	var first *Header
	words := make(map[string]string)
	for b, err := range batches {
		if err != nil {
			return err
		}
		if first == nil {
			first = &b.Header
			w.BeginDict()
			w.Key("rollout_id")
			w.Int(first.RolloutID)
			w.Key("samples")
			w.BeginList()
		} else if err := sameRollout(*first, b.Header); err != nil {
			return err
		}
		for i, s := range b.Samples {
			d := dumper{w: w, text: s, words: words}
			if err := d.value(inSample, 0); err != nil {
				return fmt.Errorf("trace: batch %s, sample %d: %w", b.BatchID, i, err)
			}
		}
	}
	if first == nil {
		return errors.New("trace: no batches to write")
	}
	w.EndList()
	w.EndDict()
	return nil
}

func sameRollout(first, h Header) error {
	if h.Run == first.Run && h.Kind == first.Kind && h.RolloutID == first.RolloutID {
		return nil
	}
	return fmt.Errorf("trace: batch %s is of run %q %s %d, the first one of run %q %s %d: a dump holds one rollout",
		h.BatchID, h.Run, h.Kind, h.RolloutID, first.Run, first.Kind, first.RolloutID)
}

// place is where in a sample a value stands.
type place uint8

const (
	elsewhere place = iota
	inSample
	inTrace
	inEvents
	inEvent
	onlyNumbers // where "NaN" is a float
)

// of returns the place of the value of a key.
func (p place) of(key string) place {
	switch p {
	case inSample:
		switch {
		case key == "trace":
			return inTrace
		case key == "reward", key == "non_generation_time", strings.HasSuffix(key, "_log_probs"):
			return onlyNumbers
		}
	case inTrace:
		if key == "events" {
			return inEvents
		}
	case inEvent:
		if key == "ts" || key == "attrs" {
			return onlyNumbers
		}
	case onlyNumbers:
		return onlyNumbers
	}
	return elsewhere
}

// maxWords bounds the table of words that occur again and again: keys, names, ids.
const maxWords = 1 << 14

// dumper walks over the JSON text of one sample. DecodeBatch has checked it; a text that it has not
// checked gives an error at worst.
type dumper struct {
	w     DumpWriter
	text  []byte
	at    int
	words map[string]string
}

func (d *dumper) space() {
	for d.at < len(d.text) && (d.text[d.at] == ' ' || d.text[d.at] == '\t' || d.text[d.at] == '\n' || d.text[d.at] == '\r') {
		d.at++
	}
}

// next skips white space and returns the byte after it, 0 at the end.
func (d *dumper) next() byte {
	d.space()
	if d.at < len(d.text) {
		return d.text[d.at]
	}
	return 0
}

func (d *dumper) bad() error {
	return fmt.Errorf("not JSON at byte %d", d.at)
}

func (d *dumper) take(word string) error {
	if !bytes.HasPrefix(d.text[d.at:], []byte(word)) {
		return d.bad()
	}
	d.at += len(word)
	return nil
}

func (d *dumper) value(p place, depth int) error {
	switch c := d.next(); c {
	case 'n':
		d.w.None()
		return d.take("null")
	case 't':
		d.w.Bool(true)
		return d.take("true")
	case 'f':
		d.w.Bool(false)
		return d.take("false")
	case '"':
		s, err := d.str(p == inEvent || p == onlyNumbers)
		if err != nil {
			return err
		}
		if f, ok := nonFinite(s); ok && p == onlyNumbers {
			d.w.Float(f)
		} else if p == inEvent && len(s) <= maxWord {
			d.w.Shared(s) // as Python refers back to an id or a name that occurs again
		} else {
			d.w.Str(s)
		}
		return nil
	case '[':
		if depth >= maxDumpDepth {
			return d.skip()
		}
		inner := elsewhere
		switch p {
		case inEvents:
			inner = inEvent
		case onlyNumbers:
			inner = onlyNumbers
		}
		d.w.BeginList()
		err := d.items(']', func() error { return d.value(inner, depth+1) })
		d.w.EndList()
		return err
	case '{':
		if depth >= maxDumpDepth {
			return d.skip()
		}
		d.w.BeginDict()
		err := d.items('}', func() error {
			if d.next() != '"' {
				return d.bad()
			}
			key, err := d.str(true)
			if err != nil {
				return err
			}
			if d.next() != ':' {
				return d.bad()
			}
			d.at++
			if len(key) > maxKey {
				d.w.Str(key) // a Writer remembers keys, all of them until the end
			} else {
				d.w.Key(key)
			}
			return d.value(p.of(key), depth+1)
		})
		d.w.EndDict()
		return err
	default:
		start := d.at
		for d.at < len(d.text) && strings.IndexByte("+-.0123456789eE", d.text[d.at]) >= 0 {
			d.at++
		}
		if start == d.at {
			return d.bad()
		}
		d.number(string(d.text[start:d.at]))
		return nil
	}
}

// items calls one for each element of a list or a dict, from its opening bracket to the closing one.
func (d *dumper) items(closer byte, one func() error) error {
	d.at++
	if d.next() == closer {
		d.at++
		return nil
	}
	for {
		if err := one(); err != nil {
			return err
		}
		switch d.next() {
		case ',':
			d.at++
		case closer:
			d.at++
			return nil
		default:
			return d.bad()
		}
	}
}

// maxWord is how long a string of the table of words may be, in bytes.
const maxWord = 64

// maxKey is how long a key may be that is written as one, in bytes.
const maxKey = 1024

// str reads a string; word says that it may well occur again.
func (d *dumper) str(word bool) (string, error) {
	start := d.at
	plain := true
	for i := start + 1; i < len(d.text); i++ {
		switch c := d.text[i]; {
		case c == '\\':
			plain = false
			i++
		case c >= utf8.RuneSelf:
			plain = false
		case c == '"':
			d.at = i + 1
			if !plain {
				var s string
				if err := json.Unmarshal(d.text[start:d.at], &s); err != nil {
					d.at = start
					return "", d.bad()
				}
				return s, nil
			}
			b := d.text[start+1 : i]
			if !word || len(b) > maxWord {
				return string(b), nil
			}
			if s, ok := d.words[string(b)]; ok {
				return s, nil
			}
			s := string(b)
			if len(d.words) < maxWords {
				d.words[s] = s
			}
			return s, nil
		}
	}
	return "", d.bad()
}

// maxDumpDepth is how deep values of a dump nest.
const maxDumpDepth = 2 * maxDepth

// skip passes over a list or a dict that lies too deep.
func (d *dumper) skip() error {
	d.w.Str(fmt.Sprintf("(nested deeper than %d)", maxDumpDepth))
	for open := 0; d.at < len(d.text); d.at++ {
		switch d.text[d.at] {
		case '"':
			if _, err := d.str(false); err != nil {
				return err
			}
			d.at--
		case '[', '{':
			open++
		case ']', '}':
			if open--; open == 0 {
				d.at++
				return nil
			}
		}
	}
	return d.bad()
}

func (d *dumper) number(s string) {
	if isInteger(s) {
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			d.w.Int(i)
			return
		}
		if len(s) <= 4300 { // longer ones take long to read, in Python too
			if i, ok := new(big.Int).SetString(s, 10); ok {
				d.w.BigInt(i)
				return
			}
		}
		d.w.Str(s)
		return
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		d.w.Str(s) // beyond a float's range
		return
	}
	d.w.Float(f)
}
