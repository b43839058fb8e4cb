package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"sort"
	"strconv"
	"strings"
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
	if len(batches) == 0 {
		return errors.New("trace: no batches to write")
	}
	first := batches[0].Header
	uploads := make(map[string]int)
	seen := make(map[string]bool)
	var sorted []Batch
	for _, b := range batches {
		if b.Run != first.Run || b.Kind != first.Kind || b.RolloutID != first.RolloutID {
			return fmt.Errorf("trace: batch %s is of run %q %s %d, the first one of run %q %s %d: a dump holds one rollout",
				b.BatchID, b.Run, b.Kind, b.RolloutID, first.Run, first.Kind, first.RolloutID)
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
	w.BeginDict()
	w.Key("rollout_id")
	w.Int(first.RolloutID)
	w.Key("samples")
	w.BeginList()
	for _, b := range sorted {
		for i, s := range b.Samples {
			d := dumper{w: w, dec: json.NewDecoder(bytes.NewReader(s))}
			d.dec.UseNumber()
			if err := d.value(inSample, 0); err != nil {
				return fmt.Errorf("trace: batch %s, sample %d: %w", b.BatchID, i, err)
			}
		}
	}
	w.EndList()
	w.EndDict()
	return nil
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

type dumper struct {
	w   DumpWriter
	dec *json.Decoder
}

func (d *dumper) value(p place, depth int) error {
	tok, err := d.dec.Token()
	if err != nil {
		return err
	}
	switch t := tok.(type) {
	case nil:
		d.w.None()
	case bool:
		d.w.Bool(t)
	case string:
		if f, ok := nonFinite(t); ok && p == onlyNumbers {
			d.w.Float(f)
			break
		}
		// Ids and names occur again and again in a trace; a dump of Python refers back to them.
		if p == inEvent && len(t) <= 64 {
			d.w.Shared(t)
		} else {
			d.w.Str(t)
		}
	case json.Number:
		d.number(t.String())
	case json.Delim:
		if t == '[' {
			d.w.BeginList()
			inner := elsewhere
			switch p {
			case inEvents:
				inner = inEvent
			case onlyNumbers:
				inner = onlyNumbers
			}
			for d.dec.More() {
				if err := d.inner(inner, depth); err != nil {
					return err
				}
			}
			d.w.EndList()
		} else {
			d.w.BeginDict()
			for d.dec.More() {
				key, err := d.dec.Token()
				if err != nil {
					return err
				}
				k := key.(string)
				d.w.Key(k)
				if err := d.inner(p.of(k), depth); err != nil {
					return err
				}
			}
			d.w.EndDict()
		}
		_, err = d.dec.Token() // the closing one
	}
	return err
}

func (d *dumper) inner(p place, depth int) error {
	if depth < 2*maxDepth {
		return d.value(p, depth+1)
	}
	var skipped json.RawMessage
	if err := d.dec.Decode(&skipped); err != nil {
		return err
	}
	d.w.Str(fmt.Sprintf("(nested deeper than %d)", 2*maxDepth))
	return nil
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
