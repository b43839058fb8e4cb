package torchfile

import (
	"math/big"
	"strconv"
	"unicode/utf8"
)

// The type-tagged JSON of tensors and numpy arrays.

func (j *jsonWriter) tensor(v Value) error {
	t, err := v.Tensor()
	if err != nil {
		return err
	}
	return j.tensorRef(t)
}

func (j *jsonWriter) tensorRef(t Tensor) error {
	if t.Layout != "strided" {
		j.str(`{"$sparse":{"dtype":`)
		j.quoted(t.DType.String())
		j.str(`,"shape":`)
		j.ints(t.Shape)
		if t.Layout != "sparse_coo" {
			j.str(`,"layout":`)
			j.quoted(t.Layout)
		}
		if t.Indices != nil {
			j.str(`,"indices":`)
			if err := j.tensorRef(*t.Indices); err != nil {
				return err
			}
		}
		j.str(`,"values":`)
		if err := j.tensorRef(*t.Values); err != nil {
			return err
		}
		j.str("}}")
		return nil
	}
	j.str(`{"$tensor":{"class":`)
	j.quoted(t.Class)
	j.str(`,"dtype":`)
	j.quoted(t.DType.String())
	j.str(`,"shape":`)
	j.ints(t.Shape)
	j.str(`,"stride":`)
	j.ints(t.Stride)
	j.str(`,"requires_grad":`)
	j.buf = strconv.AppendBool(j.buf, t.RequiresGrad)
	j.str(`,"data":[`)
	data, n, err := t.span()
	if err != nil {
		return err
	}
	if n*4 > j.left {
		return &Error{Offset: -1, Sort: ErrLimit, What: "the JSON is larger than JSONOptions.MaxBytes"}
	}
	o, dt, first := t.order(), t.DType, true
	if n > 0 {
		t.walk(data, func(b []byte) {
			if err != nil {
				return
			}
			if len(j.buf) > 1<<16 {
				if err = j.flush(); err != nil {
					return
				}
			}
			if !first {
				j.str(",")
			}
			first = false
			switch {
			case dt.IsComplex():
				c, _ := dt.complex(b, o)
				j.complex(c)
			case dt == TorchBool:
				j.buf = strconv.AppendBool(j.buf, b[0] != 0)
			case dt.IsFloat():
				f, _ := dt.float(b, o)
				j.float(f)
			case dt == UInt64:
				j.bigInt(new(big.Int).SetUint64(o.Uint64(b)))
			default:
				i, _ := dt.int(b, o)
				j.int64(i)
			}
		})
	}
	j.str("]}}")
	return err
}

func (j *jsonWriter) storage(v Value) error {
	s, err := v.Storage()
	if err != nil {
		return err
	}
	j.str(`{"$storage":{"key":`)
	j.quoted(s.Key)
	j.str(`,"dtype":`)
	j.quoted(s.dtype.String())
	j.str(`,"location":`)
	j.quoted(s.Location)
	j.str(`,"elements":`)
	j.int64(s.Elements)
	j.str("}}")
	return nil
}

func (j *jsonWriter) ndarray(v Value) error {
	a, err := v.NDArray()
	if err != nil {
		return err
	}
	j.str(`{"$ndarray":{"dtype":`)
	j.npType(a.Type)
	j.str(`,"shape":`)
	j.ints(a.Shape)
	j.str(`,"data":[`)
	first := true
	err = a.Each(func(e Elem) error {
		if !first {
			j.str(",")
		}
		first = false
		return j.elem(e)
	})
	j.str("]}}")
	return err
}

func (j *jsonWriter) npType(t *NPType) {
	if len(t.Fields) == 0 {
		j.quoted(t.String())
		return
	}
	j.str("[")
	for i, f := range t.Fields {
		if i > 0 {
			j.str(",")
		}
		j.str("[")
		j.quoted(f.Name)
		j.str(",")
		j.npType(f.Type)
		j.str("]")
	}
	j.str("]")
}

func (j *jsonWriter) npscalar(v Value) error {
	s, err := v.NPScalar()
	if err != nil {
		return err
	}
	j.str(`{"$np":{"dtype":`)
	j.npType(s.Type)
	j.str(`,"value":`)
	if err := j.elem(s.Elem()); err != nil {
		return err
	}
	j.str("}}")
	return nil
}

func (j *jsonWriter) elem(e Elem) error {
	if len(j.buf) > 1<<16 {
		if err := j.flush(); err != nil {
			return err
		}
	}
	t := e.t
	if e.obj.Exists() {
		return j.value(e.obj)
	}
	switch {
	case t.Sub != nil:
		j.str("[")
		first := true
		err := e.sub().Each(func(e Elem) error {
			if !first {
				j.str(",")
			}
			first = false
			return j.elem(e)
		})
		j.str("]")
		return err
	case len(t.Fields) > 0:
		j.str("[")
		for i, f := range t.Fields {
			if i > 0 {
				j.str(",")
			}
			if err := j.elem(e.field(f)); err != nil {
				return err
			}
		}
		j.str("]")
		return nil
	}
	switch t.Kind {
	case 'b':
		j.buf = strconv.AppendBool(j.buf, e.b[0] != 0)
	case 'i', 'M', 'm':
		i, _ := e.Int()
		j.int64(i)
	case 'u':
		i, _ := e.Int()
		j.bigInt(new(big.Int).SetUint64(uint64(i)))
	case 'f':
		f, ok := e.Number()
		if !ok {
			return e.unsupported()
		}
		j.float(f)
	case 'c':
		c, ok := e.Complex()
		if !ok {
			return e.unsupported()
		}
		j.complex(c)
	case 'U':
		s, _ := e.Text()
		if utf8.ValidString(s) {
			j.quoted(s)
		} else {
			j.tagHex("$surrogate_str", []byte(s))
		}
	case 'S':
		s, _ := e.Text()
		j.tagHex("$bytes", []byte(s))
	default:
		j.tagHex("$bytes", e.b)
	}
	return nil
}
