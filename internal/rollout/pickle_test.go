package rollout

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/rollscope/rollscope/torchfile"
)

// Things that a test's pickle may hold beside Go's own values.
type (
	pyDict  []any // key, value, key, value, ...
	pyTuple []any
	pyList  []any
	// same is one Python object wherever the pointer occurs.
	same struct {
		v  any
		id int
	}
	// object is an instance whose state is a dict.
	object struct {
		class string // "module Name"
		state any
	}
	// call is a REDUCE.
	call struct {
		class string
		args  pyTuple
	}
	// global is a class or function by itself.
	global string
	// raw is pickle code that pushes one value.
	raw string
)

// pickler writes pickles of protocol 2 for tests.
type pickler struct {
	b    []byte
	next int
}

func pickleOf(v any) []byte {
	p := &pickler{b: []byte{0x80, 2}, next: 1}
	p.put(v)
	return append(p.b, '.')
}

func (p *pickler) put(v any) {
	switch v := v.(type) {
	case nil:
		p.b = append(p.b, 'N')
	case bool:
		p.b = append(p.b, map[bool]byte{true: 0x88, false: 0x89}[v])
	case int:
		p.put(int64(v))
	case int64:
		if v >= 0 && v < 256 {
			p.b = append(p.b, 'K', byte(v))
		} else if v == int64(int32(v)) {
			p.b = binary.LittleEndian.AppendUint32(append(p.b, 'J'), uint32(v))
		} else {
			p.b = binary.LittleEndian.AppendUint64(append(p.b, 0x8a, 8), uint64(v))
		}
	case *big.Int: // not negative
		be := append([]byte{0}, v.Bytes()...)
		p.b = binary.LittleEndian.AppendUint32(append(p.b, 0x8b), uint32(len(be)))
		for i := len(be) - 1; i >= 0; i-- {
			p.b = append(p.b, be[i])
		}
	case float64:
		p.b = binary.BigEndian.AppendUint64(append(p.b, 'G'), math.Float64bits(v))
	case string:
		p.b = append(binary.LittleEndian.AppendUint32(append(p.b, 'X'), uint32(len(v))), v...)
	case pyList:
		p.b = append(p.b, ']')
		p.items([]any(v), 'e')
	case pyDict:
		p.b = append(p.b, '}')
		p.items([]any(v), 'u')
	case pyTuple:
		p.b = append(p.b, '(')
		for _, x := range v {
			p.put(x)
		}
		p.b = append(p.b, 't')
	case global:
		p.class(string(v))
	case object:
		p.class(v.class)
		p.b = append(p.b, ")\x81"...)
		if v.state != nil {
			p.put(v.state)
			p.b = append(p.b, 'b')
		}
	case call:
		p.class(v.class)
		p.put(v.args)
		p.b = append(p.b, 'R')
	case raw:
		p.b = append(p.b, v...)
	case *same:
		if v.id != 0 {
			p.b = binary.LittleEndian.AppendUint32(append(p.b, 'j'), uint32(v.id))
			return
		}
		v.id = p.next
		p.next++
		put := binary.LittleEndian.AppendUint32([]byte{'r'}, uint32(v.id))
		switch x := v.v.(type) { // memoised while empty, as Python does
		case pyList:
			p.b = append(append(p.b, ']'), put...)
			p.items([]any(x), 'e')
		case pyDict:
			p.b = append(append(p.b, '}'), put...)
			p.items([]any(x), 'u')
		default:
			p.put(x)
			p.b = append(p.b, put...)
		}
	default:
		panic(fmt.Sprintf("a test's pickle cannot hold %T", v))
	}
}

func (p *pickler) items(v []any, op byte) {
	for len(v) > 0 {
		n := min(len(v), 1000)
		p.b = append(p.b, '(')
		for _, x := range v[:n] {
			p.put(x)
		}
		p.b = append(p.b, op)
		v = v[n:]
	}
}

func (p *pickler) class(name string) {
	p.b = append(p.b, 'c')
	for i := range name {
		if name[i] == ' ' {
			p.b = append(append(append(append(p.b, name[:i]...), '\n'), name[i+1:]...), '\n')
			return
		}
	}
	panic("class without a module: " + name)
}

// readAll reads the samples of a pickle; keep is called with each, "" ends the test's patience.
func readAll(t testing.TB, v any, opts Options, keep func(*Sample)) (*Header, error) {
	t.Helper()
	return readBytes(t, pickleOf(v), opts, keep)
}

func readBytes(t testing.TB, b []byte, opts Options, keep func(*Sample)) (*Header, error) {
	t.Helper()
	f, err := torchfile.OpenBytes(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return Read(f, opts, func(s *Sample) error {
		if keep != nil {
			keep(s)
		}
		return nil
	})
}

// readOne reads one sample and copies what a test looks at.
func readOne(t testing.TB, fields pyDict, opts Options) Sample {
	t.Helper()
	var out Sample
	n := 0
	if _, err := readAll(t, pyDict{"rollout_id", 3, "samples", pyList{fields}}, opts, func(s *Sample) {
		out = *s
		out.Trace.Events = append([]Event(nil), s.Trace.Events...)
		n++
	}); err != nil || n != 1 {
		t.Fatalf("%d samples, error %v", n, err)
	}
	return out
}
